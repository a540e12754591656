"""One run from the command line: its loop, its progress, its files and the table at the end.

A folder of results can be continued: it holds the settings, and a run with other settings is
refused rather than mixed with it.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from botorch.exceptions.warnings import InputDataWarning

from botorch_bandits.acquisition import BelowMinimumWarning, WideConfidenceWarning
from botorch_bandits.asynchronous import AsyncResult, run_async
from botorch_bandits.cli.arguments import METHODS
from botorch_bandits.cli.changes import Changes
from botorch_bandits.cli.command_line import (
    INTERRUPTED,
    replaced_at_the_end,
    write_atomically,
)
from botorch_bandits.cli.journals import (
    begin_journal,
    check_journal_options,
    known_journal_settings,
    refuse_other_settings,
)
from botorch_bandits.cli.options import (
    Budgets,
    Waiting,
    build_loop,
    parameters_of,
)
from botorch_bandits.cli.parallel import WorkerPool, evaluate_known, traceback_of_user
from botorch_bandits.cli.summary import (
    against_random_search,
    best_at_the_start,
    closing_lines,
    expected_at,
    guarantee_as_record,
    next_steps,
    recommended_by,
)
from botorch_bandits.constraints import InfeasibleConstraintsWarning
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.evaluation import ByRound, RunResult, run
from botorch_bandits.feedback import BelowMinimumError, Censored, LateOutcomeWarning
from botorch_bandits.history import History, flatten_records
from botorch_bandits.journal.files import read_bounded
from botorch_bandits.loop import BanditLoop
from botorch_bandits.problems.tuning import TuningProblem
from botorch_bandits.progress import ProgressBar
from botorch_bandits.random_baseline import RandomBaseline
from botorch_bandits.stopping import (
    DEADLY,
    ErrorPolicy,
    EvaluationError,
    EvaluationFailedWarning,
    EvaluationMark,
    NoOutcomeError,
    mark_of,
    shown_point,
    stop_on_record,
)
from botorch_bandits.version import __version__

HISTORY_FILE = "history.json"
MARK_FILE = "evaluating.json"
JOURNAL_FILE = "journal.txt"
"""The file that names the journal of the run whose results are in the folder, if any."""


class OutputFolder:
    """Writes the files of one run; each is replaced as a whole, so none is ever half written.

    A folder that holds a run with the same settings is continued; one with other settings is
    refused, so that no outcome is ever overwritten by accident.

    Args:
        path: The folder; created if it does not exist.
        settings: The settings that determine the run, by name.
        overwrite: Whether to start over regardless of the contents of the folder.
        journal: The journal that records queries and outcomes instead of ``history.json``, if any.
            The other files then agree with the journal.

    Raises:
        ValueError: If the folder cannot be written, or holds a run with other settings.
    """

    def __init__(
        self,
        path: str | Path,
        settings: Mapping[str, Any],
        overwrite: bool = False,
        journal: str | None = None,
    ) -> None:
        """See the class."""
        self.path = Path(path)
        self._has_journal = journal is not None
        self._settings = json.loads(json.dumps(dict(settings)))
        self._known: dict[str, Any] | None = None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if (self.path / HISTORY_FILE).exists() and not overwrite:
                self._known = _read_history(self.path)
            write_atomically(self.path / ".writable", "")
            (self.path / ".writable").unlink()
            if overwrite:
                (self.path / MARK_FILE).unlink(missing_ok=True)
        except OSError as error:
            raise ValueError(folder_error(path, error)) from error
        except ValueError as error:
            raise self._damaged(error) from error
        if not overwrite:
            self._refuse_other_journal(journal)
        if journal is not None:
            if self._known is not None:
                raise ValueError(
                    f"{self.path} holds a run without a journal, and --journal is {journal}. "
                    "Choose another --out folder, or start over with --overwrite."
                )
            (self.path / HISTORY_FILE).unlink(missing_ok=True)  # a run has one record
            write_atomically(self.path / JOURNAL_FILE, f"{Path(journal).resolve()}\n")
        else:
            (self.path / JOURNAL_FILE).unlink(missing_ok=True)
        if self._known is not None:
            self._refuse_other_settings(self._known["settings"])

    def load_history(
        self, dim: int, num_constraints: int = 0, maximize: bool = True
    ) -> History | None:
        """Return the history of the run that the folder holds, if any.

        Args:
            dim: The dimension of its points.
            num_constraints: The number of constraint values that come with each reward.
            maximize: Whether large rewards are sought; otherwise, low costs are.

        Raises:
            ValueError: If the file is not a history: an entry is missing or has a wrong value.
        """
        if self._known is None:
            return None
        sizes: dict[str, Any] = {"num_constraints": num_constraints, "maximize": maximize}
        try:
            return History.from_records(self._known["queries"], dim, **sizes)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> ValueError:
        reason = (str(error) or type(error).__name__).rstrip(".")[:300]
        return ValueError(
            f"{self.path / HISTORY_FILE} is damaged ({reason:.300}). Choose another --out folder, "
            "or start over with --overwrite."
        )

    def _refuse_other_journal(self, journal: str | None) -> None:
        """Raise if the folder has the results of a run that is recorded in another place."""
        marker = self.path / JOURNAL_FILE
        if not marker.exists():
            return
        try:
            known = read_bounded(marker, MOST_MARKER_BYTES).decode("utf-8").strip()
            is_there = Path(known).exists()
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{marker} does not name a journal ({error!s:.200}). Choose another --out folder, "
                "or write over the results with --overwrite."
            ) from error
        is_same = journal is not None and str(Path(journal).resolve()) == known
        if not is_same and is_there:
            raise ValueError(
                f"{self.path} holds the results of the run with the journal {known}. Continue it "
                f"with botorch-bandits resume {known}, choose another --out folder, or write over "
                "the results with --overwrite."
            )

    def _refuse_other_settings(self, known: Mapping[str, Any]) -> None:
        refuse_other_settings(
            str(self.path),
            known,
            self._settings,
            "Choose another --out folder, or start over with --overwrite.",
        )

    def write_history(self, history: History) -> None:
        """Write every query: as a table (``history.csv``), and exactly (``history.json``).

        The latter is left out if there is a journal.

        A row of the table has parameters, reward, rounds, clock readings and diagnostics.
        """
        records = history.to_records()
        if not self._has_journal:
            write_atomically(
                self.path / HISTORY_FILE,
                json.dumps({"settings": self._settings, "queries": records}) + "\n",
            )
        rows = flatten_records(records)
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(self.path / "history.csv", text.getvalue())

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write the summary as JSON."""
        write_atomically(self.path / "result.json", json.dumps(result, indent=2) + "\n")

    def write_pictures(
        self,
        loop: BanditLoop,
        title: str,
        reference: tuple[str, float] | None,
        change_points: Sequence[int] = (),
        random_search: RandomBaseline | None = None,
    ) -> bool:
        """Draw the run; print a note if matplotlib is not installed.

        Args:
            loop: The loop to draw.
            title: A title.
            reference: A reward to compare with and its name, if there is one.
            change_points: The last round before each known change.
            random_search: What random search finds, if it is known.

        Returns:
            Whether the run was drawn.
        """
        try:
            import matplotlib
        except ImportError:
            print("no picture: pip install 'botorch_bandits[plot]'")
            return False
        matplotlib.use("Agg")
        from botorch_bandits.plotting import plot_run

        known: dict[str, Any] = {"change_points": change_points, "random_search": random_search}
        self._save(plot_run(loop, title, reference, **known), "run.png")
        return True

    def _save(self, axes: Any, name: str) -> None:
        import matplotlib.pyplot as plt

        with replaced_at_the_end(self.path / name) as file:
            axes[0].figure.savefig(file, dpi=130, format="png")
        plt.close(axes[0].figure)


def folder_error(path: str | Path, error: OSError) -> str:
    """Return the error message if an output folder cannot be created or written."""
    return (
        f"output folder {path} cannot be used: {error}. Choose another --out folder, or make this "
        "one writable."
    )


MOST_HISTORY_BYTES = 2**28
MOST_MARKER_BYTES = 2**14
"""A larger file is not a file of a run."""


def _read_history(folder: Path) -> dict[str, Any]:
    """Return the content of the history in a folder.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is not a history.
    """
    try:
        known = json.loads(read_bounded(folder / HISTORY_FILE, MOST_HISTORY_BYTES))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(known, dict) or not {"settings", "queries"} <= set(known):
        raise ValueError("it is not the history of a run")
    if not isinstance(known["settings"], dict):
        raise ValueError(f"settings is {known['settings']!r:.100}")
    if not isinstance(known["queries"], list):
        raise ValueError(f"records is {known['queries']!r:.100}, which is not a list")
    return known


def known_settings(path: str | Path) -> dict[str, Any]:
    """Return the settings of the run in a folder; empty if the folder has no complete ones."""
    try:
        return dict(_read_history(Path(path))["settings"])
    except (OSError, ValueError):
        return {}  # opening the folder reports what is wrong


def settings_to_continue(options: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Return the settings of the run that is continued; empty if there is none.

    Args:
        options: The options of ``tune`` or ``optimize``.
        folder: The folder of the run's files.

    Raises:
        ValueError: If there is a journal that does not belong to a run, or is to be overwritten.
    """
    check_journal_options(options)
    if options.journal is not None:
        return known_journal_settings(options.journal)
    return {} if options.overwrite else known_settings(folder)


def open_loop(
    options: argparse.Namespace,
    output: OutputFolder,
    settings: dict[str, Any],
    build: Callable[..., BanditLoop],
    fresh: BanditLoop,
    num_constraints: int = 0,
) -> BanditLoop:
    """Return the loop with the outcomes so far, from the journal if there is one, or the folder.

    Args:
        options: The options of ``tune`` or ``optimize``.
        output: The output folder of the run.
        settings: The effective options that determine the run, by name.
        build: A function that builds the loop; takes ``history=`` or ``journal=``.
        fresh: The loop that it builds without either.
        num_constraints: The number of constraint values that come with each reward.

    Raises:
        ValueError: If the journal was begun with other settings, or cannot be begun.
    """
    if options.journal is None:
        known = (fresh.settings.domain.dim, num_constraints, fresh.settings.maximize)
        return build(history=output.load_history(*known))
    begin_journal(options.journal, fresh.settings, options.arguments, settings)
    return build(journal=options.journal)


def compare(
    problem: TuningProblem,
    acquisitions: Mapping[str, Any],
    seeds: Sequence[int],
    num_rounds: int,
    num_initial: int,
    folder: Path,
    settings: Mapping[str, Any],
    progress: bool = True,
    on_error: str = "raise",
) -> int:
    """Run every method with every seed and print a table of the best rewards.

    All methods share the initial rounds of a seed, so that they differ only in how they use the
    data.

    Args:
        problem: The tuning problem.
        acquisitions: The acquisition of each method, by name.
        seeds: The seeds; there is one trial per seed and method.
        num_rounds: Rounds of each trial.
        num_initial: Uniform rounds at the start of each trial.
        folder: The folder for one file per trial, and ``compare.csv``.
        settings: The settings; trials on file with other settings are run again.
        progress: Whether to show a progress bar.
        on_error: How failed evaluations are treated; see :func:`~botorch_bandits.run`.

    Returns:
        The exit code.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / ".writable", "")
        (folder / ".writable").unlink()
    except OSError as error:
        raise ValueError(folder_error(folder, error)) from error
    known = json.loads(json.dumps(dict(settings)))
    best: dict[str, list[float]] = {method: [] for method in acquisitions}
    num_failed = 0
    with ProgressBar(len(seeds) * len(acquisitions), "trials", progress) as bar:
        for seed in seeds:
            for method, acquisition in acquisitions.items():
                path = folder / f"{method}-{seed}.json"
                trial = _load(path)
                if trial is None or trial["settings"] != known:
                    loop = build_loop(problem.box, acquisition, num_initial, seed)
                    result = run(loop, problem, num_rounds, on_error=on_error, progress=False)
                    trial = {"settings": known, "best_so_far": result.best_so_far.tolist()}
                    trial["num_failed"] = loop.history.num_failed
                    write_atomically(path, json.dumps(trial) + "\n")
                best[method].append(trial["best_so_far"][-1])
                num_failed += trial.get("num_failed", 0)
                bar.advance(last=f"{method} {best[method][-1]:.4f}")
    rows = ["method,seed,best_reward"]
    rows += [
        f"{method},{seed},{value!r}"
        for method, values in best.items()
        for seed, value in zip(seeds, values, strict=True)
    ]
    write_atomically(folder / "compare.csv", "\n".join(rows) + "\n")
    print(f"\nbest reward after {num_rounds} rounds over {len(seeds)} seeds ({problem.task.title})")
    print(f"{'method':<10}{'median':>10}{'mean':>10}{'worst':>10}{'best':>10}")
    for method, values in best.items():
        print(
            f"{method:<10}{statistics.median(values):>10.5f}{statistics.fmean(values):>10.5f}"
            f"{min(values):>10.5f}{max(values):>10.5f}   {METHODS[method]}"
        )
    print(f"{'default':<10}{problem.default_accuracy():>10.5f}   scikit-learn's default")
    if num_failed:
        print(f"{num_failed} of {len(seeds) * len(acquisitions) * num_rounds} evaluations failed")
    return 0


def _load(path: Path) -> dict[str, Any] | None:
    try:
        trial: Any = json.loads(read_bounded(path, MOST_HISTORY_BYTES))
        found, rewards = trial["settings"], [float(reward) for reward in trial["best_so_far"]]
        is_whole = type(found) is dict and bool(rewards) and type(trial.get("num_failed", 0)) is int
    except (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError):
        return None
    return {**trial, "best_so_far": rewards} if is_whole else None


BAD_REWARD = 1
"""The exit code of a run with an evaluation that did not give a usable reward."""


@dataclass
class Session:
    """Everything that one run needs.

    Attributes:
        loop: The loop.
        function: A function of a ``d``-dimensional point and a round that returns one number; with
            budgets, a pair of that number and the constraint values.
        num_rounds: The number of rounds of the run, including those of an earlier start.
        output: The folder for the files.
        title: A description of the run.
        waiting: How the run waits for outcomes.
        changes: What may change, and how the loop responds.
        budgets: The budgets that must hold on average, and the rule that enforces them.
        settings: The settings that were requested; kept in ``result.json``.
        reference: A reward to compare with, and its name.
        random_search: What random search finds, if it is known.
        in_python: A function from the best parameters to a Python expression.
        arguments: The arguments typed after ``botorch-bandits``.
        journal: The run's journal, if there is one.
        progress: Whether to show a progress bar.
        on_error: How failed evaluations are treated; see :func:`~botorch_bandits.run`.
        stop_after_no_gain: After how many rounds without a better reward the run ends, if ever.
        stop_below: The certificate of the recommended point at which the run ends, if there is one.
    """

    loop: BanditLoop
    function: Callable[..., Any]
    num_rounds: int
    output: OutputFolder
    title: str
    waiting: Waiting
    changes: Changes = field(default_factory=Changes)
    budgets: Budgets = field(default_factory=Budgets)
    settings: Mapping[str, Any] = field(default_factory=dict)
    reference: tuple[str, float] | None = None
    random_search: RandomBaseline | None = None
    in_python: Callable[[Mapping[str, Any]], str] | None = None
    arguments: Sequence[str] = ()
    journal: str | None = None
    progress: bool = True
    on_error: str = "raise"
    stop_after_no_gain: int | None = None
    stop_below: float | None = None

    def execute(self) -> int:
        """Run, print the summary, write the files; return the exit code."""
        with warnings.catch_warnings():
            # the summary counts late outcomes
            warnings.simplefilter("ignore", LateOutcomeWarning)
            # the model standardizes; the remaining warnings are about first outcomes that are equal
            warnings.filterwarnings("ignore", ".*is not standardized", InputDataWarning)
            warnings.filterwarnings("once", category=InfeasibleConstraintsWarning)
            warnings.simplefilter("always", EvaluationFailedWarning)
            warnings.showwarning = _one_line_each(warnings.showwarning)
            return self._execute()

    def _execute(self) -> int:
        started = time.monotonic()
        # as an interrupt, which takes effect even while a point is chosen
        previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
        num_known = self.loop.history.num_queries
        self._num_before = num_known - self.loop.history.num_pending
        self._mark = EvaluationMark(self.output.path / MARK_FILE)
        if num_known > 0:
            stop = stop_on_record(self.loop)
            known = "" if stop is None else f", where it had stopped: {stop}"
            print(f"continuing {self.output.path} after {num_known} rounds{known}", file=sys.stderr)
        if num_known >= self.num_rounds > 0:
            print(
                f"all {self.num_rounds} rounds were played before; --rounds N continues to round N",
                file=sys.stderr,
            )
        exit_code, stopped = 0, None
        try:
            self._give_up_fatal_queries()
            num_left = self.num_rounds - self.loop.history.num_queries
            stopped = self._play(max(num_left, 0)).stopped
            if self._has_only_failures():
                exit_code = BAD_REWARD
        except KeyboardInterrupt:
            exit_code = INTERRUPTED
        except BelowMinimumError as error:
            minimum = self.loop.settings.feedback.minimum  # type: ignore[attr-defined]
            side = "below" if self.loop.settings.maximize else "above"
            print(
                f"error: {str(error).partition(',')[0]}, {side} --minimum {minimum:g} by more than "
                "noise explains. Start over with a minimum that holds or a larger --tolerance, "
                "and --overwrite.",
                file=sys.stderr,
            )
            exit_code = BAD_REWARD
        except NoOutcomeError:
            self._has_only_failures()
            exit_code = BAD_REWARD
        except EvaluationError as error:
            print(f"error: {error}", file=sys.stderr)
            exit_code = BAD_REWARD
        except Exception as error:
            if not (shown := traceback_of_user(error)):
                raise
            print(f"\n{shown}\n", file=sys.stderr)
            exit_code = BAD_REWARD
        finally:
            signal.signal(signal.SIGTERM, previous)
            # even if the user's function raises: all told outcomes are kept
            self._finish(time.monotonic() - started, exit_code == INTERRUPTED, stopped)
            self.loop.close()
        return exit_code

    def _has_only_failures(self) -> bool:
        """Return whether every evaluation failed, and then say what to do."""
        history = self.loop.history
        if history.num_failed == 0 or history.num_arrived > 0 or history.num_pending > 0:
            return False
        which = "evaluation" if history.num_failed == 1 else f"{history.num_failed} evaluations"
        print(
            f"error: {'the' if history.num_failed == 1 else 'all'} {which} failed, so there is no "
            "result. Correct the function or what it measures, and start over with --overwrite"
            f"{'' if self.journal is None else ' and another --journal'}, because a run that goes "
            "on avoids the points that failed.",
            file=sys.stderr,
        )
        return True

    def _play(self, num_rounds: int) -> RunResult | AsyncResult:
        common: dict[str, Any] = {
            "on_error": self.on_error,
            "stop_after_no_gain": self.stop_after_no_gain,
            "stop_below": self.stop_below,
            "progress": self.progress,
            "on_round": lambda query, event: self._write(),
            "shown": self._shown,
        }
        workers = self.waiting.num_workers
        if workers > 1:
            if self.progress and num_rounds + self.loop.history.num_pending > 0:
                print(
                    f"starting {workers} worker processes; each imports the package first, which "
                    "takes seconds, or a minute if the cores are busy",
                    file=sys.stderr,
                )
            # the query is on disk before its evaluation begins
            pool = partial(WorkerPool, self.function, workers, self._write)
            function = ByRound(evaluate_known)
            return run_async(self.loop, function, pool, workers, num_rounds, **common)
        function, delays = ByRound(self._evaluate), self.waiting.delays
        return run(self.loop, function, num_rounds, delays=delays, **common)

    def _evaluate(self, argument: Any, round_number: int) -> Any:
        if self.waiting.delays is not None:
            # many rounds may pass until the next outcome
            self._write()
        if mark_of(self.loop, ErrorPolicy.read(self.on_error)) is not None:
            return self.function(argument, round_number)  # the run itself leaves a mark
        with self._mark.around(argument, round_number):
            return self.function(argument, round_number)

    def _give_up_fatal_queries(self) -> None:
        """Record the failure of queries whose evaluation ended several processes."""
        while (query := self._mark.fatal_query(self.loop, self.num_rounds)) is not None:
            self.loop.tell_failed(query.id, DEADLY, avoid=True)
            self._write()
            self._mark.forget(query.round_number)
            warnings.warn(
                f"query {query.id} at {shown_point(query)} failed: {DEADLY}. It is recorded as "
                "failed, and the run goes on.",
                EvaluationFailedWarning,
                stacklevel=1,
            )

    def _shown(self, loop: BanditLoop) -> dict[str, float | str]:
        since, best = self.changes.best(loop)
        shown: dict[str, float | str] = {}
        if best is not None:
            name = "best" if since == 1 else f"best since round {since}"
            shown[name] = f"{best[1].reward:.6g}"
        if loop.history.num_failed:
            shown["failed"] = loop.history.num_failed
        return {**shown, **self.changes.shown(loop), **self.budgets.shown(loop)}

    def _write(self) -> None:
        self.output.write_history(self.loop.history)

    def _count_waiting(self) -> dict[str, int]:
        history = self.loop.history
        counts = {"num_pending": history.num_pending, "num_lost": 0, "num_late": 0}
        if isinstance(self.loop.settings.feedback, Censored):
            view = self.loop.feedback_view()
            numbers = (len(view.pending), len(view.lost), len(view.late))
            counts = dict(zip(counts, numbers, strict=True))
        return counts

    def _finish(self, seconds: float, interrupted: bool, stopped: str | None) -> None:
        history = self.loop.history
        self._write()
        best_since, best = self.changes.best(self.loop)
        result: dict[str, Any] = {
            "title": self.title,
            "version": __version__,
            "settings": dict(self.settings),
            # with delays a round is over before its outcome is told; one that failed is over, too
            "num_rounds": history.num_queries
            - (history.num_pending if self.waiting.delays is None else 0),
            "num_rounds_before": self._num_before,
            "num_arrived": history.num_arrived,
            **self._count_waiting(),
            "num_failed": history.num_failed,
            "interrupted": interrupted,
            "stopped": stopped,
            "seconds": round(seconds, 3),
            **({} if history.maximize else {"outcome_name": history.outcome_name}),
            "best_reward": None if best is None else best[1].reward,
            "best_since_round": best_since,
            "best_round": None if best is None else best[0].round_number,
            "best_parameters": None if best is None else parameters_of(best[0]),
            "expected_at_best": self._expected_at_best(),
            "recommended": recommended_by(self.loop),
            "mean_reward": None
            if history.num_arrived == 0
            else statistics.fmean(outcome.reward for outcome in history.outcomes),
            "random_search": against_random_search(
                self.random_search, history.num_arrived, None if best is None else best[1].reward
            ),
            "start": best_at_the_start(history) if self._is_plain else None,
            "reference": None
            if self.reference is None
            else {"name": self.reference[0], "reward": self.reference[1]},
            "guarantee": guarantee_as_record(self.loop.guarantee()),
            **self.changes.result(self.loop),
            **self.budgets.result(self.loop),
        }
        self.output.write_result(result)
        has_picture = self.output.write_pictures(
            self.loop,
            self.title,
            self.reference,
            change_points=self.changes.change_points,
            random_search=self.random_search,
        )
        print(self._closing_lines(result, has_picture))

    def _expected_at_best(self) -> dict[str, float] | None:
        """Return what the model expects at the best point, if it is a model of the reward."""
        is_censored = isinstance(self.loop.settings.feedback, Censored)
        best = self.loop.best() if self._is_plain and not is_censored else None
        return None if best is None else expected_at(self.loop, best[0])

    @property
    def _is_plain(self) -> bool:
        """Whether only the reward counts, and it is the same in all rounds."""
        return not (self.budgets.budgets or self.changes.are_possible)

    def _closing_lines(self, result: Mapping[str, Any], has_picture: bool) -> str:
        best, show = result["best_parameters"], self.in_python
        found = result["recommended"]
        if found is not None and not self.budgets.budgets:  # else it may exceed a budget
            best = found["parameters"]
        steps = next_steps(
            result,
            self.arguments,
            self.num_rounds,
            self.journal,
            None if best is None or show is None else show(best),
            self.stop_after_no_gain,
            self.stop_below,
        )
        return closing_lines(
            self.title,
            result,
            self.num_rounds,
            str(self.output.path),
            [*self.budgets.rows(result), *self.changes.rows(result)],
            steps,
            waits=self.waiting.has_pending,
            has_budgets=bool(self.budgets.budgets),
            has_picture=has_picture,
        )


TOLD_IN_ONE_LINE = (
    BelowMinimumWarning,
    EvaluationFailedWarning,
    InfeasibleConstraintsWarning,
    WideConfidenceWarning,
)


def _one_line_each(show: Callable[..., None]) -> Callable[..., None]:
    """Return a function that shows a warning about the run without its line of code."""

    def show_one_line(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        if issubclass(category, TOLD_IN_ONE_LINE):
            print(f"\nwarning: {message}", file=sys.stderr)
        else:
            show(message, category, *rest)

    return show_one_line


fill_in_docstrings(__name__)

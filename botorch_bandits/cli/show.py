"""The command ``show``: the content of a journal, even while another process writes to it.

It rebuilds queries, pending queries, resets and multipliers from the records, and neither needs the
user's code nor changes a file.
"""

from __future__ import annotations

import argparse
import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from botorch_bandits.change_points import OracleRestart
from botorch_bandits.cli.arguments import NUM_ROUNDS
from botorch_bandits.cli.command_line import printable
from botorch_bandits.cli.options import parameters_of, show_value
from botorch_bandits.cli.session import JOURNAL_FILE, MOST_MARKER_BYTES
from botorch_bandits.cli.summary import (
    best_at_the_start,
    random_points,
    rounds_in,
    table_of_commands,
)
from botorch_bandits.constraints import (
    AdditiveEpochs,
    Ledger,
    MultiplicativeEpochs,
    MultiplierRule,
    PrimalDual,
)
from botorch_bandits.domains import Box
from botorch_bandits.feedback import Censored, Hallucinated
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.journal import Journal, JournalError, JournalReader
from botorch_bandits.journal.files import read_bounded
from botorch_bandits.loop.descriptions import describe_setting, setting_rows
from botorch_bandits.loop.journal import (
    read_history,
    settings_of,
    stop_in,
)
from botorch_bandits.loop.state import Segments
from botorch_bandits.penalties import Exponential, Linear, Polynomial
from botorch_bandits.plotting.run import resets_on_record
from botorch_bandits.queries import point_text
from botorch_bandits.spaces import Categorical, Fixed, Float, Integer, Space

_CLASSES = {
    kind.__name__: kind
    for kind in (
        AdditiveEpochs,
        MultiplicativeEpochs,
        PrimalDual,
        Exponential,
        Linear,
        Polynomial,
        Censored,
        Float,
        Integer,
        Categorical,
        Fixed,
    )
}
"""Classes that can be rebuilt, because they consist of plain values."""


class _UnknownClassError(Exception):
    """A setting has a class that cannot be built from its record."""


def censored_feedback(settings: Mapping[str, Any]) -> Censored | None:
    """Return the censored feedback of a loop, if it has such feedback.

    Args:
        settings: The settings in a journal's header.
    """
    record = settings["feedback"]
    if isinstance(record, Mapping):  # functions are recorded by name only, and not needed here
        record = {key: part for key, part in record.items() if key != "delay_distribution"}
    try:
        feedback = _build(record)
    except _UnknownClassError:
        return None
    return feedback if isinstance(feedback, Censored) else None


def rebuild_domain(settings: Mapping[str, Any]) -> Box | None:
    """Return the domain of a loop, for axes with the parameters' names; None for other domains.

    Args:
        settings: The settings in a journal's header.
    """
    record = settings.get("domain") or {}
    kind = str(record.get("class", "")).partition(":")[2]
    try:
        if kind == "Space":
            return Space({name: _build(record["parameters"][name]) for name in record["names"]})
        if kind == "Box":
            return Box(record["bounds"]["entries"], record["integer_dims"])
    except (_UnknownClassError, KeyError, TypeError, ValueError):
        return None  # written by another version
    return None


def reset_reason(settings: Mapping[str, Any]) -> str:
    """Return why a loop starts over, as in :attr:`.Reset.reason`; empty if it is unknown.

    Args:
        settings: The settings in a journal's header.
    """
    restart = settings.get("restart") or {}
    reasons = {
        "ChangePointRestart": "detection",
        "EvidenceRestart": "detection",
        "OracleRestart": "oracle",
    }
    return reasons.get(describe_setting(restart.get("class", "")), "")


def rebuild_ledger(settings: Mapping[str, Any], history: History) -> Ledger | None:
    """Return the ledger of a loop with constraints, without the loop.

    Resets are placed where the queries record them: an outcome that arrived between a detection and
    the next query counts in the epoch that the detection ended.

    Args:
        settings: The settings in a journal's header.
        history: The history in the journal.

    Returns:
        The ledger; None if the multiplier rule cannot be built from its record, or does not give
        the multipliers on record. Multipliers from before a retraction are not compared; with
        restarts, the retraction may have moved them, which only the loop can determine.
    """
    try:
        rule = _build(settings["constraints"])
    except _UnknownClassError:
        return None
    if not isinstance(rule, MultiplierRule):
        return None
    restart = settings.get("restart")
    if restart is not None and history.num_retracted:
        return None
    resets = resets_on_record(history)
    stand_in = None
    if restart is not None:
        keeps = bool(restart.get("keep_multipliers", False))
        stand_in = OracleRestart(change_points=tuple(resets), keep_multipliers=keeps)
    box = Box(torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, history.dim))
    segments = Segments(stand_in, box, Hallucinated(), history.context_dim, rule)
    segments.replay(history)
    assert segments.multipliers is not None
    updates = segments.multipliers.updates
    for epoch, multipliers in _recorded_multipliers(history, rule.num_constraints):
        if epoch > len(updates) or not all(
            math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
            for a, b in zip(updates[epoch - 1].multipliers, multipliers, strict=True)
        ):
            return None
    return segments.multipliers.ledger()


def _recorded_multipliers(
    history: History, num_constraints: int
) -> Iterator[tuple[int, list[float]]]:
    """Return the epoch of each query and the multipliers in force, from the last retraction on."""
    first = max((retraction.retracted_round for retraction in history.retractions), default=0)
    for query in history.queries_since(first):
        known = query.diagnostics
        if "epoch" in known:
            names = [f"multiplier_{j + 1}" for j in range(num_constraints)]
            yield int(known["epoch"]), [known[name] for name in names]


def _build(setting: Any) -> Any:
    """Build an object again.

    Raises:
        _UnknownClassError: If it, or a part of it, has a class other than those above.
    """
    if isinstance(setting, str) and setting.startswith("float:"):
        return float(setting.removeprefix("float:"))
    if not isinstance(setting, Mapping):
        return setting
    package, _, name = str(setting.get("class", "")).partition(":")
    if package != __name__.partition(".")[0] or name not in _CLASSES:
        raise _UnknownClassError(name)
    return _CLASSES[name](**{k: _build(v) for k, v in setting.items() if k != "class"})


def run_show(options: argparse.Namespace) -> int:
    """Print the content of a journal; return the exit code."""
    reader = Journal.read(_check_path(options.file))
    history = read_history(reader)
    num_rounds = None if options.all else NUM_ROUNDS
    print(printable(describe(reader, history, time.time(), num_rounds, options.epochs)))
    if options.plot:
        domain = rebuild_domain(settings_of(reader.header))
        _plot(history, Path(options.file).name, options.plot, domain)
    print(printable("\n" + "\n".join(table_of_commands(_next_steps(reader, history, options)))))
    return 0


def stop_of(reader: JournalReader) -> str | None:
    """Return why the run of a journal ended early; None if it did not, or was continued.

    Args:
        reader: The reader of the journal.
    """
    last = list(reader.records(after=max(reader.num_records - 1, 0)))
    return stop_in(last[-1]) if last else None


def _last_multipliers(history: History) -> list[float]:
    """Return the multipliers last on record; empty if there are none."""
    for query in reversed(history.queries):
        known = query.diagnostics
        if "multiplier_1" in known:
            return [known[f"multiplier_{j + 1}"] for j in range(history.num_constraints)]
    return []


def _next_steps(
    reader: JournalReader, history: History, options: argparse.Namespace
) -> list[tuple[str, str]]:
    """Return commands that can be typed next, and what they do."""
    rows = []
    if reader.header.get("command") is None:
        step = f"BanditLoop.open({options.file!r}, ...)"
        if Path(f"{options.file}.scores").exists():  # of model_selection, which needs scikit-learn
            step = f"BanditSearchCV(..., journal={options.file!r}).fit(X, y)"
        rows.append(("go on, in Python", step))
    else:
        again = ["botorch-bandits", "resume", options.file, "--rounds"]
        arguments = [str(argument) for argument in reader.header["command"]["arguments"]]
        # a later resume may have asked for more
        wanted = max(rounds_in(arguments), history.num_queries)
        is_delayed = any(argument.partition("=")[0] == "--delay" for argument in arguments)
        num_played = history.num_queries - (0 if is_delayed else history.num_pending)
        is_over = num_played >= wanted
        what, number = ("more rounds", 2 * wanted) if is_over else ("go on", wanted)
        rows.append((what, shlex.join([*again, str(number)])))
    if not options.plot:
        shown = ["botorch-bandits", "show", options.file, "--plot", "run.png"]
        rows.append(("picture", shlex.join(shown)))
    return rows


def _check_path(path: str) -> str:
    """Return the path of a journal.

    Raises:
        ValueError: If it does not exist, or is a folder.
    """
    if Path(path).is_dir():
        known = Path(path) / JOURNAL_FILE
        where = "Name a journal"
        if (Path(path) / "result.json").exists():
            where = (
                "Its run has no journal: the numbers are in its result.json, and the rounds in its "
                "history.csv"
            )
        if known.exists():
            marked = read_bounded(known, MOST_MARKER_BYTES).decode("utf-8", "replace").strip()
            where = f"The journal of its run is {marked}"
        raise ValueError(f"{path} is a folder, not a journal. {where}.")
    if not Path(path).exists():
        raise ValueError(
            f"there is no file {path}. Check the path; tune and optimize write a journal with "
            "--journal FILE, a program with BanditLoop.open."
        )
    return path


def describe(
    reader: JournalReader,
    history: History,
    now: float,
    num_rounds: int | None = None,
    with_epochs: bool = False,
) -> str:
    """Return what ``show`` prints.

    Args:
        reader: The reader of the journal.
        history: The history in the journal.
        now: The time in seconds, for ages.
        num_rounds: The number of rounds in the table, the last ones; None for all.
        with_epochs: Whether each constraint has a row per epoch.

    Raises:
        JournalError: If the header or a record is not what a loop writes.
    """
    try:
        return _describe(reader, history, now, num_rounds, with_epochs)
    except _NOT_OF_A_LOOP as error:
        raise JournalError(
            f"{reader.path} is not what a loop writes ({error!r:.300}). Was it written by a later "
            "version of the package, or by another program?"
        ) from error


_NOT_OF_A_LOOP = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""The errors of reading if an entry is missing or of another kind."""


def _describe(
    reader: JournalReader,
    history: History,
    now: float,
    num_rounds: int | None,
    with_epochs: bool,
) -> str:
    settings = settings_of(reader.header)
    censored = censored_feedback(settings)
    parts = [_heading(reader, history, censored), _rounds(history, censored, num_rounds)]
    parts += [_pending(history, censored, now), _failures(history), _retractions(history)]
    parts += [_resets(settings, history), _constraints(history)]
    if with_epochs:
        parts.append(_epochs(settings, history))
    return "\n\n".join(part for part in parts if part)


def _heading(reader: JournalReader, history: History, censored: Censored | None) -> str:
    header = reader.header
    settings, environment = settings_of(header), header["environment"]
    rows: list[list[Any]] = [["journal", str(reader.path)], ["records", reader.num_records]]
    command = header.get("command")
    if command is not None:
        rows.append(["command", " ".join(command["arguments"])])
    rows += setting_rows(settings)
    rows.append(["written with", ", ".join(f"{k} {v}" for k, v in environment.items())])
    num_waited = sum(_delay(history, query) > 1 for query in history.queries)
    told = f"{num_waited} after later ones were asked"
    if censored is not None and censored.max_delay is not None:
        num_late = sum(_is_late(history, query, censored) for query in history.queries)
        told += f", {num_late} late: after max_delay={censored.max_delay:g} {censored.unit}"
    rows.append(
        [
            "queries",
            f"{history.num_queries}: {history.num_arrived} told ({told}), "
            f"{history.num_pending} pending, {history.num_failed} failed"
            + (f", {history.num_retracted} retracted" if history.num_retracted else "")
            + ("; some are means of several or have their own noise" * history.is_weighted),
        ]
    )
    stop = stop_of(reader)
    if stop is not None:
        rows.append(["stopped", stop])
    best = history.best()
    if best is not None:
        changes = settings["context_dim"] or settings.get("forgetting") or settings.get("restart")
        largest = "largest reward" if history.maximize else "least cost"
        is_one = not (history.num_constraints or changes)
        what = f"best {history.outcome_name}" if is_one else largest
        rows.append([what, f"{best[1].reward:.6g} in round {best[0].round_number}"])
        rows += [[f"  {k}", show_value(v)] for k, v in parameters_of(best[0]).items()]
        start = None if history.num_constraints or changes else best_at_the_start(history)
        if start is not None:
            rows.append(["random points", random_points(start)])
    for first in resets_on_record(history)[-1:]:
        since = [outcome for outcome in history.outcomes if outcome.query_id >= first]
        if since:
            last = max(since, key=history.rank)
            found = f"{last.reward:.6g} in round {history.query(last.query_id).round_number}"
            rows.append([f"since the reset after round {first}", found])
    return _table([], rows)


def _rounds(history: History, censored: Censored | None, num_rounds: int | None) -> str:
    rows: list[list[Any]] = []
    best: float | None = None
    resets = set(resets_on_record(history))
    for query in history.queries:
        best = None if query.id in resets else best
        outcome = history.outcome(query.id)
        if outcome is not None:
            is_better = best is None or history.is_better(outcome.reward, best)
            best = outcome.reward if is_better else best
        late = " late" if _is_late(history, query, censored) else ""
        rows.append(
            [
                query.round_number,
                query.origin,
                history.state(query.id) + late,
                "" if outcome is None else _delay(history, query),
                "" if outcome is None else f"{outcome.reward:.6g}",
                "" if best is None else f"{best:.6g}",
                point_text(query),
            ]
        )
        if history.is_weighted:
            rows[-1].insert(-2, "" if outcome is None else _weighting_text(outcome))
    shown = rows if num_rounds is None else rows[-num_rounds:]
    left_out = len(rows) - len(shown)
    note = f"{left_out} earlier rounds are left out; --all shows them\n" if left_out else ""
    names = ["round", "origin", "state", "delay", history.outcome_name, "best so far", "point"]
    if history.is_weighted:
        names.insert(-2, "of")
    return note + _table(names, shown) if rows else "no rounds yet"


def _weighting_text(outcome: Outcome) -> str:
    """Return the number of observations whose mean an outcome is, or its noise."""
    if outcome.noise is not None:
        return f"noise {outcome.noise:.6g}"
    return f"{outcome.count or 1}"


def _pending(history: History, censored: Censored | None, now: float) -> str:
    """Return the ages of pending queries: their delays if the outcomes came now."""
    rows, next_round = [], history.num_queries + 1
    for q in history.pending():
        row = [q.id, q.round_number, next_round - q.round_number, f"{now - q.asked_at:.1f}"]
        is_lost = censored is not None and censored.is_lost(q, next_round, now)
        rows.append([*row, "given up" if is_lost else ""])
    names = ["pending", "round", "age in rounds", "in seconds", ""]
    return _table(names, rows) if rows else ""


MOST_FAILURES = 10
"""With more failures than this, those with the same reason share a row."""


def _failures(history: History) -> str:
    failures = [
        (f.query_id, history.query(f.query_id).round_number, " ".join((f.reason or "").split()))
        for f in history.failures
    ]
    if len(failures) <= MOST_FAILURES:
        return (
            _table(["failed", "round", "reason"], [list(each) for each in failures])
            if failures
            else ""
        )
    by_reason: dict[str, list[int]] = {}
    for _, number, reason in failures:
        by_reason.setdefault(reason, []).append(number)
    shared = [[len(all_), f"{all_[0]} to {all_[-1]}", reason] for reason, all_ in by_reason.items()]
    return _table(["failed", "rounds", "reason"], shared)


def _retractions(history: History) -> str:
    """Return the retracted outcomes by query, and the reasons."""
    rows = []
    for retraction in history.retractions:
        told = retraction.outcome
        values = ", ".join(f"{value:.6g}" for value in told.constraints)
        row = [retraction.query_id, history.query(told.query_id).round_number, f"{told.reward:.6g}"]
        row += [values, retraction.retracted_round, " ".join(retraction.reason.split())]
        rows.append(row)
    names = ["retracted", "round", history.outcome_name]
    names += ["constraints", "after round", "reason"]
    return _table(names, rows) if rows else ""


def _resets(settings: Mapping[str, Any], history: History) -> str:
    """Return where the segment on record changes from query to query; segments count from 1."""
    if all("segment" not in query.diagnostics for query in history.queries):
        return ""
    reason = reset_reason(settings)
    rows = [
        [f"before round {after_round + 1}", i + 2, reason]
        for i, after_round in enumerate(resets_on_record(history))
    ]
    return _table(["reset", "begins segment", "reason"], rows) if rows else "resets: none"


def _constraints(history: History) -> str:
    """Return both violations of observed values, and the last multipliers on record."""
    if history.num_constraints == 0 or history.num_arrived == 0:
        return ""
    values = history.constraints()
    multipliers = _last_multipliers(history)
    rows = []
    for j in range(history.num_constraints):
        column = values[:, j]
        rows.append(
            [
                j + 1,
                f"{float(column.mean()):.6g}",
                f"{max(float(column.sum()), 0.0):.6g}",
                f"{float(column.clamp_min(0.0).sum()):.6g}",
                f"{multipliers[j]:.6g}" if multipliers else "",
            ]
        )
    names = ["constraint", "average", "signed violation", "rectified violation", "multiplier"]
    return _table(names, rows)


def _epochs(settings: Mapping[str, Any], history: History) -> str:
    """Return a row for each epoch and constraint, from the ledger that the records give."""
    if settings.get("constraints") is None:
        return "epochs: none, because there are no constraints"
    if not history.num_constraints:
        return "epochs: none yet, because no outcome has been told"
    ledger = rebuild_ledger(settings, history)
    if ledger is None:
        return "epochs: the journal does not say enough; open the loop and look at loop.ledger()"
    keys = ("epoch", "constraint", "num_outcomes")
    numbers = ("signed_violation", "rectified_violation", "multiplier")
    rows = [
        [*(record[key] for key in keys), *(f"{record[key]:.6g}" for key in numbers)]
        for record in ledger.to_records()
    ]
    return _table([name.replace("num_", "").replace("_", " ") for name in keys + numbers], rows)


def _delay(history: History, query: Query) -> int:
    """Return the delay of an outcome in rounds, as censored feedback counts it; 0 without one."""
    outcome = history.outcome(query.id)
    return 0 if outcome is None else outcome.arrived_round + 1 - query.round_number


def _is_late(history: History, query: Query, censored: Censored | None) -> bool:
    outcome = history.outcome(query.id)
    return censored is not None and outcome is not None and censored.is_late(query, outcome)


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    cells = [
        [printable(str(cell), keep="") for cell in row]
        for row in ([names, *rows] if names else rows)
    ]
    sizes = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{size}}" for cell, size in zip(row, sizes, strict=True)).rstrip()
        for row in cells
    )


def _plot(history: History, title: str, path: str, domain: Box | None) -> None:
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("--plot needs matplotlib: install botorch_bandits[plot]") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from botorch_bandits.plotting import plot_run

    figure = plot_run(history, title, domain=domain)[0].figure
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print(f"\npicture: {path}")

"""Arguments of the command line and what they start."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from botorch_bandits.checks import check_integer
from botorch_bandits.cli.arguments import (
    add_budget_arguments,
    add_change_arguments,
    add_continue_arguments,
    add_method_arguments,
    add_problem_arguments,
    add_run_arguments,
    add_waiting_arguments,
)
from botorch_bandits.cli.bench import add_bench_parser
from botorch_bandits.cli.budgets import read_budgets
from botorch_bandits.cli.changes import read_changes
from botorch_bandits.cli.compare import compare
from botorch_bandits.cli.experiment import run_experiment
from botorch_bandits.cli.faults import add_faults_parser
from botorch_bandits.cli.functions import AtAnyRound, NamedFunction, parse_box
from botorch_bandits.cli.journals import (
    add_journal_argument,
    add_resume_parser,
    resume,
)
from botorch_bandits.cli.methods import METHODS, build_acquisition, build_loop
from botorch_bandits.cli.opening import open_loop, settings_to_continue
from botorch_bandits.cli.output import OutputFolder
from botorch_bandits.cli.reproduce import add_reproduce_parser
from botorch_bandits.cli.session import INTERRUPTED, Session
from botorch_bandits.cli.show import add_show_parser
from botorch_bandits.cli.waiting import read_waiting
from botorch_bandits.experiments import EXPERIMENTS, TABLES
from botorch_bandits.journal import JournalError
from botorch_bandits.problems.tuning import TuningProblem, load_csv, load_dataset
from botorch_bandits.problems.tuning_costs import CostlyTuningProblem
from botorch_bandits.problems.tuning_shift import ShiftingTuning, shift_problem
from botorch_bandits.version import __version__

BAD_ARGUMENTS = 2


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: error: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(BAD_ARGUMENTS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Command-line arguments; those of the process if omitted.

    Returns:
        The exit code: 0, 2 for bad arguments, 130 if the user interrupted.
    """
    parser = _build_parser()
    given = _join_bounds(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    options.arguments = given
    try:
        start: Callable[[argparse.Namespace], Session | int] = options.start
        session = start(options)
    except KeyboardInterrupt:
        print("\ninterrupted; the same command continues", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, TypeError, ImportError, OSError, JournalError) as error:
        print(f"{parser.prog} {options.command}: error: {error}", file=sys.stderr)
        return BAD_ARGUMENTS
    return session if isinstance(session, int) else session.execute()


def _join_bounds(arguments: Sequence[str]) -> list[str]:
    """Join ``--bounds`` with its value: argparse would take ``-5:5`` for an option."""
    joined = list(arguments)
    if "--bounds" in joined[:-1]:
        i = joined.index("--bounds")
        joined[i : i + 2] = [f"--bounds={joined[i + 1]}"]
    return joined


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="botorch-bandits",
        description="Gaussian-process bandits: tune a classifier, or optimise any function.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)

    tune = commands.add_parser(
        "tune",
        help="tune a classifier on real data",
        description="Tune a scikit-learn classifier; the reward is its cross-validated accuracy.",
    )
    add_problem_arguments(tune)
    add_method_arguments(tune)
    add_run_arguments(tune)
    add_waiting_arguments(tune)
    add_change_arguments(tune, can_shift=True)
    add_budget_arguments(tune)
    add_continue_arguments(tune)
    add_journal_argument(tune)
    tune.set_defaults(start=_start_tune)

    optimize = commands.add_parser(
        "optimize",
        help="maximise a Python function",
        description="Maximise a function of yours. It is called with a list of numbers and "
        "returns one number.",
    )
    optimize.add_argument("function", metavar="MODULE:FUNCTION", help="for example mymodule:reward")
    optimize.add_argument(
        "--bounds", required=True, help="low:high for each dimension, as in 0:1,-5:5"
    )
    optimize.add_argument(
        "--integer", default="", metavar="I,J", help="dimensions (from 0) that take whole numbers"
    )
    add_method_arguments(optimize)
    add_run_arguments(optimize)
    add_waiting_arguments(optimize)
    add_change_arguments(optimize, can_shift=False)
    add_continue_arguments(optimize)
    add_journal_argument(optimize)
    optimize.set_defaults(start=_start_optimize)

    against = commands.add_parser(
        "compare",
        help="compare methods on a tuning problem over several seeds",
        description="Run several methods over several seeds and print the best rewards. "
        "Interrupted comparisons continue where they stopped.",
    )
    add_problem_arguments(against)
    add_method_arguments(against, one=False)
    against.add_argument("--methods", default="igp-ucb,random", help="names separated by commas")
    against.add_argument("--seeds", type=int, default=10, help="number of seeds (default 10)")
    add_run_arguments(against)
    against.set_defaults(start=_start_compare)

    experiment = commands.add_parser(
        "experiment",
        help="run a published experiment",
        description="Run a published experiment, or the study of what a guarantee costs. "
        "Interrupted experiments continue where they stopped.",
    )
    experiment.add_argument(
        "name",
        choices=(*EXPERIMENTS, *TABLES),
        metavar="NAME",
        help=", ".join((*EXPERIMENTS, *TABLES)),
    )
    experiment.add_argument("--trials", type=int, help="default: the paper's number")
    experiment.add_argument("--rounds", type=int, help="default: the paper's number")
    experiment.add_argument("--data", metavar="FILE", nargs="+", help="data files, where needed")
    experiment.add_argument(
        "--ridge", type=float, help="added to an empirical covariance; avanesov-*: of the detector"
    )
    experiment.add_argument("--no-centre", action="store_true", help="keep the sensors' means")
    experiment.add_argument("--seed", type=int, default=0, help="default 0")
    experiment.add_argument("--out", metavar="FOLDER", help="default runs/experiment-NAME")
    experiment.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="play trials in N processes (default 1); results do not depend on it",
    )
    experiment.add_argument("--quiet", action="store_true", help="no progress bar")
    experiment.set_defaults(start=run_experiment)
    add_reproduce_parser(commands)
    add_bench_parser(commands)
    add_faults_parser(commands)
    add_resume_parser(commands).set_defaults(start=lambda options: resume(options, main))
    add_show_parser(commands)
    return parser


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return what determines the run: not how long it is, where it goes and how it looks."""
    left_out = ("start", "quiet", "rounds", "out", "overwrite", "workers", "journal", "arguments")
    return {name: value for name, value in vars(options).items() if name not in left_out}


def _check_numbers(options: argparse.Namespace) -> None:
    for name, minimum in (("rounds", 1), ("initial", 0), ("seed", 0)):
        check_integer(f"--{name}", getattr(options, name), minimum)


def _build_problem(options: argparse.Namespace) -> tuple[TuningProblem, str]:
    if (options.data is None) != (options.target is None):
        raise ValueError("--data and --target go together: a CSV file and its class column.")
    if options.data is None:
        name, data = options.dataset, load_dataset(options.dataset)
    else:
        name, data = Path(options.data).stem, load_csv(options.data, options.target)
    return TuningProblem(options.task, *data, num_folds=options.folds), name


def _acquisition(options: argparse.Namespace, method: str, weighs: bool = False) -> Any:
    return build_acquisition(
        method, options.rkhs_bound, options.noise_bound, options.delta, options.width, weighs
    )


def _start_tune(options: argparse.Namespace) -> Session:
    _check_numbers(options)
    budgets = read_budgets(options)
    is_separate = budgets.rule is not None and budgets.rule.surrogate_in_use == "separate"
    acquisition = _acquisition(options, options.method, is_separate)
    problem, name = _build_problem(options)
    box = problem.box
    waiting = read_waiting(options, acquisition, box, minimum=0.0, outcome_bound=1.0)
    folder = options.out or f"runs/tune-{options.task}-{name}-{options.method}-{options.seed}"
    known = settings_to_continue(options, folder)
    phases, feature = [problem], None
    if options.shift:
        *phases, feature = shift_problem(problem, options.shift_feature)
    functions = [CostlyTuningProblem(p, budgets.budgets) if budgets.rule else p for p in phases]
    changes = read_changes(options, box, known, reward_mean=0.8, reward_scale=0.2)
    function: Any = AtAnyRound(functions[0])
    title = f"{options.task} on {name}, {METHODS[options.method]}"
    if options.shift:
        function = ShiftingTuning((functions[0], functions[1]), changes.change_points[0])
        title += f", shift after round {changes.change_points[0]}"
    settings = {**_settings(options), **waiting.settings, **changes.settings, **budgets.settings}
    if feature is not None:
        settings["shift_feature"] = feature
    # what does not go together is refused before a folder is made
    parts: dict[str, Any] = {
        "feedback": waiting.feedback,
        "restart": changes.restart,
        "constraints": budgets.rule,
    }
    build = partial(build_loop, box, acquisition, options.initial, options.seed, **parts)
    fresh = build()
    output = OutputFolder(folder, problem.decode, settings, options.overwrite, options.journal)
    # the data after a shift are what the result is for
    default = phases[-1].default_accuracy()
    return Session(
        loop=open_loop(options, output, settings, build, fresh, len(budgets.budgets)),
        function=function,
        num_rounds=options.rounds,
        output=output,
        decode=problem.decode,
        title=title,
        waiting=waiting,
        changes=changes,
        budgets=budgets,
        settings={**settings, "workers": waiting.num_workers},
        reference=(f"scikit-learn's default{' after the shift' * bool(options.shift)}", default),
        progress=not options.quiet,
    )


def _start_optimize(options: argparse.Namespace) -> Session:
    _check_numbers(options)
    acquisition = _acquisition(options, options.method)
    box = parse_box(options.bounds, options.integer)
    function = NamedFunction.in_current_folder(options.function)
    name = options.function.replace(":", "-")
    waiting = read_waiting(options, acquisition, box)
    folder = options.out or f"runs/optimize-{name}-{options.method}-{options.seed}"
    known = settings_to_continue(options, folder)
    changes = read_changes(options, box, known)
    settings = {**_settings(options), **waiting.settings, **changes.settings}

    def decode(x: Sequence[float]) -> dict[str, float]:
        return {f"x{i}": value for i, value in enumerate(x)}

    parts: dict[str, Any] = {"feedback": waiting.feedback, "restart": changes.restart}
    build = partial(build_loop, box, acquisition, options.initial, options.seed, **parts)
    fresh = build()
    output = OutputFolder(folder, decode, settings, options.overwrite, options.journal)
    return Session(
        loop=open_loop(options, output, settings, build, fresh),
        function=AtAnyRound(function),
        num_rounds=options.rounds,
        output=output,
        decode=decode,
        title=f"{options.function}, {METHODS[options.method]}",
        waiting=waiting,
        changes=changes,
        settings={**settings, "workers": waiting.num_workers},
        progress=not options.quiet,
    )


def _start_compare(options: argparse.Namespace) -> int:
    _check_numbers(options)
    check_integer("--seeds", options.seeds, minimum=1)
    methods = [name.strip() for name in options.methods.split(",") if name.strip()]
    acquisitions = {method: _acquisition(options, method) for method in methods}
    if not acquisitions:
        raise ValueError(f"--methods is empty; choose from {', '.join(METHODS)}.")
    problem, name = _build_problem(options)
    return compare(
        problem,
        acquisitions,
        seeds=range(options.seed, options.seed + options.seeds),
        num_rounds=options.rounds,
        num_initial=options.initial,
        folder=Path(options.out or f"runs/compare-{options.task}-{name}"),
        settings={
            "rounds": options.rounds,
            **{
                k: v for k, v in _settings(options).items() if k not in ("methods", "seeds", "seed")
            },
        },
        progress=not options.quiet,
    )

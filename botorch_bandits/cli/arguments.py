"""The arguments of ``botorch-bandits``: a parser that lists the commands without importing them.

Help pages and errors of arguments appear at once: torch and BoTorch, which take seconds to import,
are imported only when a command starts. The names of tasks, data sets, objectives and costs that
the parser shows are repeated here, and a test compares them with the originals.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from botorch_bandits.cli.command_line import (
    CommandParser,
    Executable,
    keep_beginnings,
    run_command,
)
from botorch_bandits.version import __version__

TASK_NAMES = ("svm", "logistic-regression", "gradient-boosting")
DATASETS = ("breast-cancer", "digits", "wine", "iris")
OBJECTIVES = ("best", "earned")
COSTS = ("fit_seconds", "predict_seconds", "model_size", "support_vectors")

METHODS = {
    "best": "the default for the best point (expected improvement)",
    "earned": "the default for reward during the run (a narrow confidence bound)",
    "igp-ucb": "IGP-UCB (Chowdhury and Gopalan 2017)",
    "gp-ucb": "GP-UCB with a constant width (Srinivas et al. 2010)",
    "gp-ts": "GP-TS (Chowdhury and Gopalan 2017)",
    "ei": "expected improvement (BoTorch's LogEI)",
    "random": "random search",
}

FILLS = ("minimum", "middle", "soft", "lower_bound")
FEEDBACKS = ("hallucinated", "ignored", "censored")
RESTARTS = ("evidence", "cpd", "oracle", "never")
RULES = ("additive", "multiplicative", "primal-dual")

EPOCH_LENGTH = 5
STEP_SIZE = 0.5
"""The default step size of the multipliers of budgets."""

DETECTOR_DEFAULTS = {"ridge": 0.03, "lengthscale": 0.5, "false_alarm_rate": 0.1}
EXPLORATION = 3.0

NUM_ROUNDS = 20
"""How many rounds ``show`` prints by default."""

DEFAULT_ROUNDS = 40
"""How many rounds a run has by default."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The arguments, without the name of the program; those of the process if omitted.

    Returns:
        The exit code: 0, 2 for bad arguments, 130 if the user interrupted.
    """
    return run_command(
        build_parser(), join_bounds(sys.argv[1:] if arguments is None else arguments)
    )


def add_problem_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that select the tuning problem."""
    parser.add_argument("--task", choices=TASK_NAMES, default="svm", help="default svm")
    parser.add_argument(
        "--dataset", choices=DATASETS, default="breast-cancer", help="default breast-cancer"
    )
    parser.add_argument("--data", metavar="FILE", help="a CSV file instead of --dataset")
    parser.add_argument("--target", metavar="COLUMN", help="the class column of --data")
    parser.add_argument("--folds", type=int, default=5, help="cross-validation folds (default 5)")
    parser.add_argument(
        "--param",
        action="append",
        metavar="NAME=KIND:...",
        help="an argument of the classifier with its range, as in optimize --param: instead of "
        "the task's range, or in addition to the task's parameters",
    )


def add_method_arguments(parser: argparse.ArgumentParser, one: bool = True) -> None:
    """Add the settings of methods and the choice of a method."""
    if one:
        parser.add_argument(
            "--objective",
            choices=OBJECTIVES,
            help="find the best point (best, the default), or collect reward on the way (earned)",
        )
        parser.add_argument("--method", choices=METHODS, help="instead of --objective")
    parser.add_argument(
        "--rkhs-bound",
        type=float,
        help="norm bound B in prior standard deviations (igp-ucb, gp-ts; default: unknown)",
    )
    parser.add_argument(
        "--noise-bound",
        type=float,
        help="noise bound R in prior standard deviations (igp-ucb, gp-ts; default: unknown)",
    )
    parser.add_argument(
        "--delta", type=float, help="failure probability (igp-ucb, gp-ts; default 0.1)"
    )
    parser.add_argument("--width", type=float, help="constant width (gp-ucb; default 2)")
    if one:
        parser.add_argument(
            "--prior",
            metavar="LENGTHSCALE:SCALE:NOISE[:MEAN]",
            help="a prior that is fixed before the data, instead of a fitted model: a lengthscale "
            "as a share of each range, and standard deviations of the reward and of its noise",
        )


def add_continue_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option that starts over instead of continuing a run."""
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="start over if the folder holds a run (by default, it is continued)",
    )


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of every run."""
    rounds = f"default {DEFAULT_ROUNDS}"
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help=rounds)
    parser.add_argument(
        "--initial", type=int, default=5, help="uniform rounds at the start (default 5)"
    )
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--out", metavar="FOLDER", help="default runs/<command>-...")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def add_waiting_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for late outcomes: delays, feedback and workers."""
    waiting = parser.add_argument_group("delayed and parallel evaluations")
    waiting.add_argument(
        "--delay",
        metavar="DELAY",
        help="tell outcomes only after a number of rounds: constant:ROUNDS, poisson:MEAN, "
        "geometric:MEAN or heavy-tailed:SCALE[,INDEX], as in poisson:10",
    )
    waiting.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="evaluate N queries at once, each in a process with one thread (default 1)",
    )
    waiting.add_argument(
        "--feedback",
        choices=FEEDBACKS,
        help="how pending queries are treated: they count as known to have the posterior mean "
        "(hallucinated, the default), are left out (ignored), or enter at the minimum (censored)",
    )
    waiting.add_argument(
        "--max-delay",
        type=int,
        metavar="M",
        help="give up queries without an outcome after M rounds (censored; default: never)",
    )
    waiting.add_argument(
        "--minimum",
        type=float,
        help="a lower bound on the noise-free reward (censored; tune: default 0)",
    )
    waiting.add_argument(
        "--outcome-bound",
        type=float,
        help="the most by which a reward can exceed the minimum (censored; default: unknown, and "
        "the width has no terms for it). Like --rkhs-bound, it is in prior standard deviations "
        "with igp-ucb and gp-ts; otherwise, it is in the units of the reward",
    )
    waiting.add_argument(
        "--tolerance",
        type=float,
        help="how far noise can push a reward below the minimum (censored; default: a share of "
        "--outcome-bound, or of how far rewards lie above the minimum)",
    )
    waiting.add_argument(
        "--fill",
        choices=FILLS,
        help="the value at which pending queries enter (censored): the minimum (default), the "
        "middle between it and the minimum plus --outcome-bound, the posterior mean as far as "
        "outcomes are still expected (soft), or a lower confidence bound. All but the first need "
        "--outcome-bound in the units of the reward, so igp-ucb and gp-ts do not accept them",
    )
    waiting.add_argument(
        "--delay-distribution",
        type=float,
        nargs="+",
        metavar="P",
        help="the probabilities of delays of 0, 1, 2, ... rounds (--fill soft; default: estimated "
        "from the delays so far)",
    )


def add_change_arguments(parser: argparse.ArgumentParser, can_shift: bool) -> None:
    """Add the options for rewards that change.

    Args:
        parser: The parser of a command.
        can_shift: Whether the command can make the data shift.
    """
    group = parser.add_argument_group("rewards that change")
    if can_shift:
        group.add_argument(
            "--shift",
            action="store_const",
            const=True,
            help="split the data at the median of a feature; halfway through, the rounds switch "
            "from the rows up to the median to the rows above it",
        )
        group.add_argument(
            "--shift-round",
            type=int,
            metavar="ROUND",
            help="the last round before the shift (default: half of --rounds)",
        )
        group.add_argument(
            "--shift-feature",
            type=int,
            metavar="J",
            help="the feature, from 0 (default: the first one whose halves allow the folds)",
        )
    else:
        group.add_argument(
            "--change-points",
            metavar="ROUND,...",
            help="for --restart oracle: the last round before each change",
        )
    group.add_argument(
        "--restart",
        nargs="?",
        const="evidence",
        choices=RESTARTS,
        help="start over when the evidence of all outcomes says that the reward has changed "
        "(evidence, also without a value), when a detector finds it in uniform rounds (cpd), when "
        "told (oracle), or never, with the same exploration (never); default: none of these",
    )
    group.add_argument(
        "--exploration",
        type=float,
        metavar="XI",
        help="explore uniformly while |uniform| <= XI sqrt(|rounds|) "
        f"(default {EXPLORATION:g}; evidence: not at all)",
    )
    group.add_argument(
        "--false-alarm-rate",
        type=float,
        metavar="RATE",
        help="cpd: probability of an alarm without a change within --rounds; the threshold is "
        f"simulated for it first (default {DETECTOR_DEFAULTS['false_alarm_rate']})",
    )
    group.add_argument(
        "--threshold-scale",
        type=float,
        metavar="C",
        help="cpd: instead of --false-alarm-rate, the threshold C n^-r in units of --reward-scale "
        "squared",
    )
    group.add_argument(
        "--ridge",
        type=float,
        help=f"cpd: ridge of the detector's fits (default {DETECTOR_DEFAULTS['ridge']})",
    )
    group.add_argument(
        "--lengthscale",
        type=float,
        metavar="SHARE",
        help="cpd: lengthscale of the detector's kernel, as a share of each dimension's range "
        f"(default {DETECTOR_DEFAULTS['lengthscale']})",
    )
    means = " (tune: default 0.8)" if can_shift else ""
    scales = " (tune: default 0.2)" if can_shift else ""
    group.add_argument(
        "--reward-mean",
        type=float,
        help=f"cpd, evidence: prior mean of the rewards{means}",
    )
    group.add_argument(
        "--reward-scale",
        type=float,
        help=f"cpd, evidence: how much the rewards vary over the box{scales}",
    )


def add_budget_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for budgets."""
    group = parser.add_argument_group("budgets")
    group.add_argument(
        "--budget",
        action="append",
        metavar="COST<=LIMIT",
        help="keep a measured cost within a limit on average, as in 'fit_seconds<=0.05' (in "
        f"quotes); may be repeated. Costs: {', '.join(COSTS)}",
    )
    group.add_argument(
        "--multiplier-rule",
        choices=RULES,
        help="the rule for the weight of the costs (default additive)",
    )
    group.add_argument(
        "--epoch-length",
        type=int,
        metavar="S",
        help=f"rounds between two updates of the weight (default {EPOCH_LENGTH})",
    )
    group.add_argument(
        "--step-size",
        type=float,
        metavar="MU",
        help=f"additive and primal-dual: step size of the updates (default {STEP_SIZE:g})",
    )


def add_journal_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for the journal of queries and outcomes."""
    parser.add_argument(
        "--journal",
        metavar="FILE",
        help="write each query and outcome to this file before continuing, and resume from it "
        "(instead of the folder's history.json)",
    )


def add_error_argument(parser: argparse.ArgumentParser, default: str | None = "raise") -> None:
    """Add the option for evaluations that fail.

    Args:
        parser: The parser of a command.
        default: The default of ``--on-error``; None for a command that continues another one.
    """
    parser.add_argument(
        "--on-error",
        default=default,
        metavar="raise|skip|retry:N",
        help="what to do if the function raises or does not return a number: end the run (raise), "
        "record it and continue (skip), or try N more times first (retry:N); default: "
        f"{default or 'as in the run so far'}",
    )


def add_ending_arguments(parser: argparse.ArgumentParser, default: str | None = "raise") -> None:
    """Add the options for evaluations that fail and for ending a run early.

    Args:
        parser: The parser of a command.
        default: The default of ``--on-error``; None for a command that continues another one.
    """
    add_error_argument(parser, default)
    parser.add_argument(
        "--stop-after-no-gain",
        type=int,
        metavar="N",
        help="end the run after N rounds without a better reward; a larger N continues it",
    )
    parser.add_argument(
        "--stop-below",
        type=float,
        metavar="EPS",
        help="end the run once the certificate of the recommended point is at most EPS: no point "
        "is better by more, with probability 1 - delta (--prior, and igp-ucb or gp-ts with both "
        "bounds); a smaller EPS continues it",
    )
    keep_beginnings(parser, "--stop-after-no-gain", "--sto", "--stop", "--stop-")


def add_resume_parser(commands: Any) -> None:
    """Add the command ``resume``.

    Args:
        commands: The object that ``argparse`` returned for the commands.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        "resume",
        help="continue a run from its journal",
        description="Continue the run of tune or optimize whose journal is FILE, with the options "
        "with which it was begun.",
    )
    parser.add_argument("file", metavar="FILE", help="a journal that --journal made")
    parser.add_argument("--rounds", type=int, help="rounds in total, if different")
    add_ending_arguments(parser, default=None)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument(
        "--trust",
        action="store_true",
        help="run what the file names without asking: its function, in its folder, with its files",
    )
    parser.add_argument(
        "--function",
        metavar="MODULE:FUNCTION",
        help="the function of optimize that you expect: if the file names another one, it is "
        "refused; if it names this one, you are not asked",
    )
    parser.add_argument(
        "--folder", help="with --function: the folder that you expect (default: the current one)"
    )
    parser.set_defaults(start=_late("commands", "start_resume"))


def add_repair_parsers(commands: Any) -> None:
    """Add the commands ``check`` and ``salvage``.

    Args:
        commands: The object that ``argparse`` returned for the commands.
    """
    check = commands.add_parser(
        "check",
        help="verify everything in a journal",
        description="Read each record of a journal, check it, replay it, and compare the "
        "snapshot with the result. Nothing is changed. The exit code is 1 if something is "
        "damaged or missing.",
    )
    check.add_argument("file", metavar="FILE", help="a journal")
    check.set_defaults(start=_late("salvage", "run_check"))
    salvage = commands.add_parser(
        "salvage",
        help="write what is left of a damaged journal to a new one",
        description="Write to a new journal the records before the first damaged line, the records "
        "that only the snapshot has, and the records that follow the snapshot. The damaged files "
        "are left as they are.",
    )
    salvage.add_argument("file", metavar="FILE", help="a damaged journal")
    salvage.add_argument("--out", required=True, metavar="NEW", help="the new journal")
    salvage.set_defaults(start=_late("salvage", "run_salvage"))


def add_show_parser(commands: Any) -> None:
    """Add the command ``show``.

    Args:
        commands: The object that ``argparse`` returned for the commands.
    """
    show = commands.add_parser(
        "show",
        help="show the content of a journal",
        description="Print a journal's settings, rounds, pending queries and their ages, failures, "
        "retractions, resets and constraints. The journal may be in use. The delay of an outcome "
        "counts rounds: it is 1 if the outcome had arrived when the next query was chosen. An "
        "outcome is late if its delay exceeds the max_delay of censored feedback; then the model "
        "leaves it out.",
    )
    show.add_argument("file", metavar="FILE", help="a journal of a loop")
    show.add_argument(
        "--all", action="store_true", help=f"all rounds, not only the last {NUM_ROUNDS}"
    )
    show.add_argument(
        "--epochs", action="store_true", help="also print a row for each epoch and constraint"
    )
    show.add_argument(
        "--plot", metavar="FILE.png", help="also draw rewards, widths and resets over rounds"
    )
    show.set_defaults(start=_late("show", "run_show"))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with all commands."""
    parser = CommandParser(
        prog="botorch-bandits",
        description="Gaussian-process bandits: tune a classifier, or optimize any function.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=CommandParser)

    tune = commands.add_parser(
        "tune",
        help="tune a classifier on real data",
        description="Tune a scikit-learn classifier; the reward is its cross-validated accuracy.",
    )
    add_problem_arguments(tune)
    add_method_arguments(tune)
    add_run_arguments(tune)
    add_ending_arguments(tune)
    add_waiting_arguments(tune)
    add_change_arguments(tune, can_shift=True)
    add_budget_arguments(tune)
    add_continue_arguments(tune)
    add_journal_argument(tune)
    keep_beginnings(tune, "--param", "--p")
    tune.set_defaults(start=_late("commands", "start_tune"))

    optimize = commands.add_parser(
        "optimize",
        help="maximize a Python function",
        description="Maximize a function of yours, or minimize it with --minimize. It is called "
        "with one argument, and returns one number: with --param the argument is a dict of values "
        "by name, with --bounds a one-dimensional float64 tensor (x.tolist() makes it a list). The "
        "same function works under run and run_async in Python.",
    )
    optimize.add_argument("function", metavar="MODULE:FUNCTION", help="for example mymodule:reward")
    optimize.add_argument(
        "--param",
        action="append",
        metavar="NAME=KIND:...",
        help="a parameter of the function, once for each: NAME=float:LOW:HIGH, NAME=log:LOW:HIGH "
        "(on a logarithmic scale), NAME=int:LOW:HIGH, NAME=log-int:LOW:HIGH, NAME=choice:A,B,..., "
        "NAME=ordered:A,B,... (neighbors are similar) or NAME=fixed:VALUE",
    )
    optimize.add_argument(
        "--bounds", help="instead of --param: low:high for each dimension, as in 0:1,-5:5"
    )
    optimize.add_argument(
        "--integer",
        default="",
        metavar="I,J",
        help="with --bounds: dimensions (from 0) that take whole numbers",
    )
    optimize.add_argument(
        "--minimize",
        action="store_true",
        help="the function returns a cost to be minimized. Everything printed, drawn and "
        "written shows the numbers that it returns, and --minimum is the largest of them",
    )
    add_method_arguments(optimize)
    add_run_arguments(optimize)
    add_ending_arguments(optimize)
    add_waiting_arguments(optimize)
    add_change_arguments(optimize, can_shift=False)
    add_continue_arguments(optimize)
    add_journal_argument(optimize)
    keep_beginnings(optimize, "--param", "--p")
    optimize.set_defaults(start=_late("commands", "start_optimize"))

    against = commands.add_parser(
        "compare",
        help="compare methods on a tuning problem over several seeds",
        description="Run several methods over several seeds and print the best rewards. "
        "Interrupted comparisons continue where they stopped.",
    )
    add_problem_arguments(against)
    add_method_arguments(against, one=False)
    against.add_argument("--methods", default="best,random", help="names separated by commas")
    against.add_argument("--seeds", type=int, default=10, help="number of seeds (default 10)")
    add_run_arguments(against)
    add_error_argument(against)
    against.set_defaults(start=_late("commands", "start_compare"))

    add_resume_parser(commands)
    add_repair_parsers(commands)
    add_show_parser(commands)
    return parser


def _late(module: str, function: str) -> Callable[[argparse.Namespace], Executable | int]:
    """Return a function of this subpackage, which is imported when it is called."""

    def start(options: argparse.Namespace) -> Executable | int:
        found: Callable[[argparse.Namespace], Executable | int]
        found = getattr(import_module(f"botorch_bandits.cli.{module}"), function)
        return found(options)

    return start


def join_bounds(arguments: Sequence[str]) -> list[str]:
    """Join ``--bounds`` with its value: argparse would read ``-5:5`` as an option."""
    joined = list(arguments)
    if "--bounds" in joined[:-1]:
        i = joined.index("--bounds")
        joined[i : i + 2] = [f"--bounds={joined[i + 1]}"]
    return joined

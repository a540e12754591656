"""The commands of ``botorch-bandits``: their arguments, and what they start.

To be read from top to bottom: groups of arguments that commands share, the parser with its
commands, and for each command what prepares its run. Nothing is written before all arguments were
checked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from botorch_bandits.checks import check_integer, check_positive
from botorch_bandits.cli.changes import DETECTOR_DEFAULTS, EXPLORATION, RESTARTS, read_changes
from botorch_bandits.cli.command_line import CommandParser, keep_beginnings, run_command
from botorch_bandits.cli.first_page import COMMANDS, build_first_parser
from botorch_bandits.cli.journals import (
    add_ending_arguments,
    add_error_argument,
    add_journal_argument,
    add_resume_parser,
    resume,
)
from botorch_bandits.cli.options import (
    EPOCH_LENGTH,
    METHOD_SETTINGS,
    METHODS,
    RULES,
    STEP_SIZE,
    Prior,
    build_acquisition,
    build_loop,
    read_budgets,
    read_domain,
    read_waiting,
)
from botorch_bandits.cli.pages import add_live_page_argument
from botorch_bandits.cli.parallel import AtAnyRound, NamedFunction
from botorch_bandits.cli.session import (
    OutputFolder,
    Session,
    compare,
    open_loop,
    settings_to_continue,
)
from botorch_bandits.cli.show import add_show_parser
from botorch_bandits.loop import BanditLoop
from botorch_bandits.loop.settings import OBJECTIVES
from botorch_bandits.problems.random_rewards import random_baseline_of
from botorch_bandits.problems.tuning import (
    COSTS,
    DATASETS,
    TASK_NAMES,
    CostlyTuningProblem,
    ShiftingTuning,
    TuningProblem,
    load_csv,
    load_dataset,
    shift_problem,
)
from botorch_bandits.spaces import Space
from botorch_bandits.stopping import ErrorPolicy, SmallCertificate

FEEDBACKS = ("hallucinated", "ignored", "censored")


def add_problem_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says which tuning problem it is."""
    parser.add_argument("--task", choices=TASK_NAMES, default="svm", help="default svm")
    parser.add_argument(
        "--dataset", choices=DATASETS, default="breast-cancer", help="default breast-cancer"
    )
    parser.add_argument("--data", metavar="FILE", help="a CSV file in place of --dataset")
    parser.add_argument("--target", metavar="COLUMN", help="the class column of --data")
    parser.add_argument("--folds", type=int, default=5, help="cross-validation folds (default 5)")
    parser.add_argument(
        "--param",
        action="append",
        metavar="NAME=KIND:...",
        help="an argument of the classifier with its range, as in optimize --param: in place of "
        "the task's range, or beside the task's parameters",
    )


def add_method_arguments(parser: argparse.ArgumentParser, one: bool = True) -> None:
    """Add the settings of methods, and the choice of one of them."""
    if one:
        parser.add_argument(
            "--objective",
            choices=OBJECTIVES,
            help="find the best point (best, the default), or collect reward on the way (earned)",
        )
        parser.add_argument("--method", choices=METHODS, help="in place of --objective")
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
            help="a prior that is fixed before the data, in place of a fitted model: a lengthscale "
            "as a share of each range, and standard deviations of the reward and of its noise",
        )


def add_continue_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says whether a run is continued."""
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="start afresh where the folder holds a run (otherwise it is continued)",
    )


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what every run has."""
    parser.add_argument("--rounds", type=int, default=40, help="default 40")
    parser.add_argument(
        "--initial", type=int, default=5, help="uniform rounds at the start (default 5)"
    )
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--out", metavar="FOLDER", help="default runs/<command>-...")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def add_waiting_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is about outcomes that arrive late: delays, feedback and workers."""
    waiting = parser.add_argument_group("delayed and parallel evaluations")
    waiting.add_argument(
        "--delay",
        metavar="DELAY",
        help="tell outcomes only after so many rounds: constant:ROUNDS, poisson:MEAN, "
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
        help="what is made of pending queries: they count as known to have the posterior mean "
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
        help="no reward without its noise is smaller (censored; tune: default 0)",
    )
    waiting.add_argument(
        "--outcome-bound",
        type=float,
        help="no reward exceeds the minimum by more (censored; default: unknown, and the width has "
        "no terms of it). Like --rkhs-bound it counts prior standard deviations with igp-ucb and "
        "gp-ts; else it is in the units of the reward",
    )
    waiting.add_argument(
        "--tolerance",
        type=float,
        help="by how much noise can take a reward below the minimum (censored; default: a share of "
        "--outcome-bound, or of how far rewards lie above the minimum)",
    )


def add_change_arguments(parser: argparse.ArgumentParser, can_shift: bool) -> None:
    """Add what is about rewards that change.

    Args:
        parser: Of a command.
        can_shift: Whether the command can make the data shift.
    """
    group = parser.add_argument_group("rewards that change")
    if can_shift:
        group.add_argument(
            "--shift",
            action="store_const",
            const=True,
            help="split the data at the median of a feature; the rounds switch from the rows up "
            "to it to those above, half-way",
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
        help="begin anew when the evidence of all outcomes says that the reward has changed "
        "(evidence, also without a value), when a detector sees it in uniform rounds (cpd), when "
        "told (oracle), or never, with the same exploration (never); default: nothing of that",
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
        help="cpd: of any alarm without a change within --rounds, for which the threshold is "
        f"simulated first (default {DETECTOR_DEFAULTS['false_alarm_rate']})",
    )
    group.add_argument(
        "--threshold-scale",
        type=float,
        metavar="C",
        help="cpd: in its place, the threshold C n^-r in units of --reward-scale squared",
    )
    group.add_argument(
        "--ridge",
        type=float,
        help=f"cpd: of the detector's fits (default {DETECTOR_DEFAULTS['ridge']})",
    )
    group.add_argument(
        "--lengthscale",
        type=float,
        metavar="SHARE",
        help="cpd: of the detector's kernel, as a share of each dimension's range "
        f"(default {DETECTOR_DEFAULTS['lengthscale']})",
    )
    means = " (tune: default 0.8)" if can_shift else ""
    scales = " (tune: default 0.2)" if can_shift else ""
    group.add_argument(
        "--reward-mean",
        type=float,
        help=f"cpd, evidence: what rewards are about, beforehand{means}",
    )
    group.add_argument(
        "--reward-scale", type=float, help=f"cpd, evidence: how much they vary over the box{scales}"
    )


def add_budget_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is about budgets."""
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
        help="how the weight of the costs follows (default additive)",
    )
    group.add_argument(
        "--epoch-length",
        type=int,
        metavar="S",
        help=f"rounds between two changes of the weight (default {EPOCH_LENGTH})",
    )
    group.add_argument(
        "--step-size",
        type=float,
        metavar="MU",
        help=f"additive and primal-dual: size of its changes (default {STEP_SIZE:g})",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Command-line arguments; those of the process if omitted.

    Returns:
        The exit code: 0, 2 for bad arguments, 130 if the user interrupted.
    """
    parser = _build_parser()
    given = _join_bounds(sys.argv[1:] if arguments is None else arguments)
    return run_command(parser, given)


def _join_bounds(arguments: Sequence[str]) -> list[str]:
    """Join ``--bounds`` with its value: argparse would take ``-5:5`` for an option."""
    joined = list(arguments)
    if "--bounds" in joined[:-1]:
        i = joined.index("--bounds")
        joined[i : i + 2] = [f"--bounds={joined[i + 1]}"]
    return joined


def _build_parser() -> argparse.ArgumentParser:
    parser, commands = build_first_parser(CommandParser)

    tune = commands.add_parser(
        "tune",
        help=COMMANDS["tune"],
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
    add_live_page_argument(tune)
    keep_beginnings(tune, "--param", "--p")
    tune.set_defaults(start=_start_tune)

    optimize = commands.add_parser(
        "optimize",
        help=COMMANDS["optimize"],
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
        "NAME=ordered:A,B,... (neighbors are alike) or NAME=fixed:VALUE",
    )
    optimize.add_argument(
        "--bounds", help="in place of --param: low:high for each dimension, as in 0:1,-5:5"
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
        help="the function returns a cost: find where it is least. What is printed, drawn and "
        "written has the numbers that it returns, and --minimum is the largest of them",
    )
    add_method_arguments(optimize)
    add_run_arguments(optimize)
    add_ending_arguments(optimize)
    add_waiting_arguments(optimize)
    add_change_arguments(optimize, can_shift=False)
    add_continue_arguments(optimize)
    add_journal_argument(optimize)
    add_live_page_argument(optimize)
    keep_beginnings(optimize, "--param", "--p")
    optimize.set_defaults(start=_start_optimize)

    against = commands.add_parser(
        "compare",
        help=COMMANDS["compare"],
        description="Run several methods over several seeds and print the best rewards. "
        "Interrupted comparisons continue where they stopped.",
    )
    add_problem_arguments(against)
    add_method_arguments(against, one=False)
    against.add_argument("--methods", default="best,random", help="names separated by commas")
    against.add_argument("--seeds", type=int, default=10, help="number of seeds (default 10)")
    add_run_arguments(against)
    add_error_argument(against)
    against.set_defaults(start=_start_compare)

    add_resume_parser(commands).set_defaults(start=lambda options: resume(options, main))
    add_show_parser(commands)
    return parser


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return what determines the run: not how long it is, where it goes and how it looks."""
    left_out = {"start", "quiet", "rounds", "out", "overwrite", "workers", "journal", "arguments"}
    left_out |= {"on_error", "stop_after_no_gain", "stop_below", "html"}
    left_out.add("objective")  # it has become the method
    if not getattr(options, "minimize", False):  # which earlier versions did not know
        left_out.add("minimize")
    if getattr(options, "prior", None) is None:  # likewise
        left_out.add("prior")
    return {name: value for name, value in vars(options).items() if name not in left_out}


def _check_numbers(options: argparse.Namespace) -> None:
    for name, minimum in (("rounds", 1), ("initial", 0), ("seed", 0)):
        check_integer(f"--{name}", getattr(options, name), minimum)
    if getattr(options, "stop_after_no_gain", None) is not None:
        check_integer("--stop-after-no-gain", options.stop_after_no_gain, 1)
    if getattr(options, "stop_below", None) is not None:
        check_positive("--stop-below", options.stop_below)
    if hasattr(options, "on_error"):
        ErrorPolicy.read(options.on_error, "--on-error")


def _build_problem(options: argparse.Namespace) -> tuple[TuningProblem, str]:
    if (options.data is None) != (options.target is None):
        raise ValueError("--data and --target go together: a CSV file and its class column.")
    if options.data is None:
        name, data = options.dataset, load_dataset(options.dataset)
    else:
        name, data = Path(options.data).stem, load_csv(options.data, options.target)
    problem = TuningProblem(options.task, *data, num_folds=options.folds)
    if options.param is not None:
        try:
            space = Space.parse(options.param, problem.space)
            problem = TuningProblem(options.task, *data, num_folds=options.folds, space=space)
        except ValueError as error:
            raise ValueError(f"--param: {error}") from error
    return problem, name


def _acquisition(options: argparse.Namespace, method: str, weighs: bool = False) -> Any:
    return build_acquisition(
        method,
        options.rkhs_bound,
        options.noise_bound,
        options.delta,
        options.width,
        weighs,
        getattr(options, "feedback", None) == "censored",
        Prior.read(getattr(options, "prior", None)),
    )


def _check_certificate(options: argparse.Namespace, loop: BanditLoop) -> None:
    """Raise if a run is to end with a certificate that cannot come.

    Args:
        options: Of ``tune`` or ``optimize``.
        loop: As it is without outcomes.
    """
    if options.stop_below is None:
        return
    remedy = "Give --prior, and --method igp-ucb or gp-ts with --rkhs-bound and --noise-bound."
    if options.prior is None:
        raise ValueError(
            f"--stop-below is {options.stop_below:g}, but the model is fitted to the same "
            f"outcomes, so that no theorem says how near the best possible a point is. {remedy}"
        )
    try:
        SmallCertificate(loop, options.stop_below)
    except ValueError as error:
        raise ValueError(f"--stop-below: {error} On the command line: {remedy}") from error


def _settle_method(options: argparse.Namespace) -> None:
    """Write the method that is meant to the options.

    It is the one that is named, or that of the objective; else that of the run that is continued.
    """
    if options.method is not None and options.objective is not None:
        raise ValueError(
            f"--objective is {options.objective} and --method {options.method}; give one of them."
        )
    known: dict[str, Any] = {}
    if options.journal is not None or options.out is not None:
        known = settings_to_continue(options, options.out)
    is_named = options.method is not None or "method" in known
    options.method = options.method or options.objective or known.get("method", OBJECTIVES[0])
    _refuse_unread(options, list(METHODS) if is_named else [options.method])


def _refuse_unread(options: argparse.Namespace, methods: Sequence[str]) -> None:
    """Raise if a setting was given that none of the methods reads."""
    for name, (_, readers) in METHOD_SETTINGS.items():
        given = getattr(options, name)
        if given is not None and not set(readers) & set(methods):
            raise ValueError(
                f"--{name.replace('_', '-')} is {given:g}, but {' and '.join(methods)} would not "
                f"read it. Name a method that does ({' or '.join(readers)}), or leave it out."
            )


def _complete_settings(options: argparse.Namespace, known: Mapping[str, Any]) -> None:
    """Write to the options what was not given: of the run that is continued, or the defaults."""
    for name, (default, _) in METHOD_SETTINGS.items():
        if getattr(options, name) is None:
            setattr(options, name, known.get(name, default))


def _start_tune(options: argparse.Namespace) -> Session:
    _check_numbers(options)
    _settle_method(options)
    budgets = read_budgets(options)
    is_separate = budgets.rule is not None and budgets.rule.surrogate_in_use == "separate"
    problem, name = _build_problem(options)
    box = problem.box
    folder = options.out or f"runs/tune-{options.task}-{name}-{options.method}-{options.seed}"
    known = settings_to_continue(options, folder)
    _complete_settings(options, known)
    acquisition = _acquisition(options, options.method, is_separate)
    waiting = read_waiting(options, acquisition, box, known, minimum=0.0)
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
    if options.prior is not None and budgets.rule is not None:
        raise ValueError(
            f"--prior is {options.prior}, which is of one reward, but with --budget costs are "
            "modeled, too. Leave one of them out."
        )
    parts: dict[str, Any] = {
        "feedback": waiting.feedback,
        "restart": changes.restart,
        "constraints": budgets.rule,
        "prior": Prior.read(options.prior),
    }
    build = partial(build_loop, box, acquisition, options.initial, options.seed, **parts)
    fresh = build()
    _check_certificate(options, fresh)
    output = OutputFolder(folder, settings, options.overwrite, options.journal)
    # the data after a shift are what the result is for
    default = phases[-1].default_accuracy()
    return Session(
        loop=open_loop(options, output, settings, build, fresh, len(budgets.budgets)),
        function=function,
        num_rounds=options.rounds,
        output=output,
        title=title,
        waiting=waiting,
        changes=changes,
        budgets=budgets,
        settings={**settings, "workers": waiting.num_workers},
        reference=(f"scikit-learn's default{' after the shift' * bool(options.shift)}", default),
        random_search=None
        if options.data or options.shift or budgets.rule
        else random_baseline_of(problem, name),
        in_python=problem.describe_estimator,
        arguments=options.arguments,
        journal=options.journal,
        progress=not options.quiet,
        on_error=options.on_error,
        stop_after_no_gain=options.stop_after_no_gain,
        stop_below=options.stop_below,
        html=options.html,
    )


def _start_optimize(options: argparse.Namespace) -> Session:
    _check_numbers(options)
    _settle_method(options)
    box = read_domain(options)
    function = NamedFunction.in_current_folder(options.function)
    name = options.function.replace(":", "-")
    folder = options.out or f"runs/optimize-{name}-{options.method}-{options.seed}"
    known = settings_to_continue(options, folder)
    _complete_settings(options, known)
    acquisition = _acquisition(options, options.method)
    waiting = read_waiting(options, acquisition, box, known)
    changes = read_changes(options, box, known)
    settings = {**_settings(options), **waiting.settings, **changes.settings}
    parts: dict[str, Any] = {"feedback": waiting.feedback, "restart": changes.restart}
    parts |= {"maximize": not options.minimize, "prior": Prior.read(options.prior)}
    build = partial(build_loop, box, acquisition, options.initial, options.seed, **parts)
    fresh = build()
    _check_certificate(options, fresh)
    output = OutputFolder(folder, settings, options.overwrite, options.journal)
    return Session(
        loop=open_loop(options, output, settings, build, fresh),
        function=AtAnyRound(function),
        num_rounds=options.rounds,
        output=output,
        title=f"{options.function}{', minimized' * options.minimize}, {METHODS[options.method]}",
        waiting=waiting,
        changes=changes,
        settings={**settings, "workers": waiting.num_workers},
        in_python=repr if options.param else lambda found: repr(list(found.values())),
        arguments=options.arguments,
        journal=options.journal,
        progress=not options.quiet,
        on_error=options.on_error,
        stop_after_no_gain=options.stop_after_no_gain,
        stop_below=options.stop_below,
        html=options.html,
    )


def _start_compare(options: argparse.Namespace) -> int:
    _check_numbers(options)
    check_integer("--seeds", options.seeds, minimum=1)
    methods = [name.strip() for name in options.methods.split(",") if name.strip()]
    _refuse_unread(options, methods)
    _complete_settings(options, {})
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
                k: v
                for k, v in _settings(options).items()
                if k not in ("methods", "seeds", "seed") and (k, v) != ("param", None)
            },
        },
        progress=not options.quiet,
        on_error=options.on_error,
    )

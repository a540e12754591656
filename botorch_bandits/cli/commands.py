"""The commands of ``botorch-bandits``: each prepares the run that it starts.

The parser passes its options here. Nothing is written before all arguments have been checked.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from botorch_bandits.checks import check_integer, check_positive
from botorch_bandits.cli.arguments import METHODS, OBJECTIVES, main
from botorch_bandits.cli.changes import read_changes
from botorch_bandits.cli.journals import resume
from botorch_bandits.cli.options import (
    METHOD_SETTINGS,
    Prior,
    build_acquisition,
    build_loop,
    read_budgets,
    read_domain,
    read_waiting,
)
from botorch_bandits.cli.parallel import AtAnyRound, NamedFunction
from botorch_bandits.cli.session import (
    OutputFolder,
    Session,
    compare,
    open_loop,
    settings_to_continue,
)
from botorch_bandits.loop import BanditLoop
from botorch_bandits.problems.random_rewards import random_baseline_of
from botorch_bandits.problems.tuning import (
    CostlyTuningProblem,
    ShiftingTuning,
    TuningProblem,
    load_csv,
    load_dataset,
    shift_problem,
)
from botorch_bandits.spaces import Space
from botorch_bandits.stopping import ErrorPolicy, SmallCertificate


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that determine the run, but not its length, its files or its display."""
    left_out = {"start", "quiet", "rounds", "out", "overwrite", "workers", "journal", "arguments"}
    left_out |= {"on_error", "stop_after_no_gain", "stop_below"}
    left_out.add("objective")  # it was turned into the method
    if not getattr(options, "minimize", False):  # which earlier versions did not have
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
    """Raise if a run should end with a certificate that it cannot have.

    Args:
        options: The options of ``tune`` or ``optimize``.
        loop: The loop without outcomes.
    """
    if options.stop_below is None:
        return
    remedy = "Give --prior, and --method igp-ucb or gp-ts with --rkhs-bound and --noise-bound."
    if options.prior is None:
        raise ValueError(
            f"--stop-below is {options.stop_below:g}, but the model is fitted to the same "
            f"outcomes, so no theorem says how close to optimal a point is. {remedy}"
        )
    try:
        SmallCertificate(loop, options.stop_below)
    except ValueError as error:
        raise ValueError(f"--stop-below: {error} On the command line: {remedy}") from error


def _settle_method(options: argparse.Namespace) -> None:
    """Write the intended method to the options.

    It is the method that was named, or the one for the objective; otherwise, it is the method of
    the run that is continued.
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
    """Raise if a setting was given that none of the methods uses."""
    for name, (_, readers) in METHOD_SETTINGS.items():
        given = getattr(options, name)
        if given is not None and not set(readers) & set(methods):
            raise ValueError(
                f"--{name.replace('_', '-')} is {given:g}, but {' and '.join(methods)} would not "
                f"use it. Name a method that does ({' or '.join(readers)}), or leave it out."
            )


def _complete_settings(options: argparse.Namespace, known: Mapping[str, Any]) -> None:
    """Fill in missing options from the run that is continued, or with the defaults."""
    for name, (default, _) in METHOD_SETTINGS.items():
        if getattr(options, name) is None:
            setattr(options, name, known.get(name, default))


def start_tune(options: argparse.Namespace) -> Session:
    """Prepare the tuning of a classifier; raises if its options are wrong."""
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
    # options that conflict are refused before a folder is made
    if options.prior is not None and budgets.rule is not None:
        raise ValueError(
            f"--prior is {options.prior}, which is for one reward, but with --budget, costs are "
            "modeled as well. Leave one of them out."
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
    # the result is for the data after a shift
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
    )


def start_optimize(options: argparse.Namespace) -> Session:
    """Prepare the optimization of a function; raises if its options are wrong."""
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
    )


def start_compare(options: argparse.Namespace) -> int:
    """Compare methods on a tuning problem; returns the exit code."""
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


def start_resume(options: argparse.Namespace) -> int:
    """Continue the run of a journal; returns the exit code."""
    return resume(options, main)

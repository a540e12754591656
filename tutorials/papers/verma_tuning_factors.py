"""Figures 2, 3 and 4 of Verma, Dai and Low 2022 with one factor changed.

The panels are those of :mod:`papers.verma_tuning` and :mod:`papers.verma_contextual`, with Poisson
delays. The contextual panels have given hyperparameters unless stated otherwise.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from papers.trials import ArmsExperiment
from papers.verma_contextual import contextual
from papers.verma_factors import BUILDERS, NUM_TRIALS, Claim, FactorPanel, Setting
from papers.verma_tuning import (
    FAMILIES,
    NUM_ROUNDS,
    PUBLISHED,
    Task,
    censored,
    compared,
    method,
    panel,
    tuning_tasks,
    variants,
)

SHORT_ROUNDS = NUM_ROUNDS - 70
CODE, PAPER = "released code", "appendix C"
_FIGURES = {"svm": "verma-2ad", "cnn": "verma-2eh", "logistic": "verma-3"}


def factors(
    diabetes: Path | None = None,
    tasks: Path | None = None,
    num_trials: int | None = None,
    num_rounds: int | None = None,
    seed: int = 0,
) -> list[ArmsExperiment]:
    """Return the panels of all figures of the paper.

    Args:
        diabetes: The Pima Indians diabetes data; panels that need it are left out if omitted.
        tasks: The table of tasks; panels that need it are left out if omitted.
        num_trials: The number of trials per panel; as in the judged figure if omitted.
        num_rounds: The number of rounds of each; as in the judged figure if omitted.
        seed: The seed of the judged experiments, whose first trials are used.
    """
    given = {"diabetes": diabetes, "tasks": tasks}
    files = {name: path for name, path in given.items() if path is not None}
    panels = [build(files, num_trials or NUM_TRIALS, num_rounds, seed) for build in BUILDERS]
    panels += [
        build(files, num_trials, num_rounds, seed) for build in (tuning_factors, contextual_factors)
    ]
    return [panel for each in panels for panel in each]


def tuning_factors(
    files: Mapping[str, Path], num_trials: int | None, num_rounds: int | None, seed: int
) -> list[FactorPanel]:
    """Return the panels of Figures 2 and 3.

    Args:
        files: The data files; ``"diabetes"`` is for the support vector machine.
        num_trials: See :func:`factors`.
        num_rounds: See :func:`factors`.
        seed: See :func:`factors`.
    """
    panels = []
    rounds = num_rounds or NUM_ROUNDS
    for task in tuning_tasks(files.get("diabetes")):
        trials = num_trials or task.num_trials
        figure = _FIGURES[task.name]

        def add(
            changed: Task,
            family: str,
            key: str,
            methods: Sequence[Any],
            settings: Sequence[Setting],
            length: int,
            task: Task = task,
            trials: int = trials,
        ) -> None:
            name = f"verma-tuning-{task.name}-{family.lower()}-poisson{key}"
            size = trials, length, seed
            played = panel(name, task.title, "", changed.player(seed), [*methods], *size)
            panels.append(_with_settings(played, methods, settings))

        def setting(
            factor: str, words: str, source: str, family: str, *names: str, figure: str = figure
        ) -> Setting:
            claims = _claims(family, names, "below", "Poisson delays")
            return Setting(figure, factor, words, source, claims)

        if task.name == "cnn":
            judged = setting("none", "as judged", f"{PAPER} and {CODE}", "UCB")
            add(task, "UCB", "", compared("UCB", "poisson"), [judged], rounds)
        else:
            for family in FAMILIES:
                methods, settings = _own_factors(family, setting)
                add(task, family, "", methods, settings, rounds)
        others = [
            (
                "-logarithmic",
                replace(task, options={**PUBLISHED, "logarithmic": True}),
                rounds,
                ("scale of the box", "logarithmic in penalties and rates", "ours"),
            )
        ]
        if task.name != "cnn":
            others += [
                (
                    "-standardized",
                    replace(task, options={**PUBLISHED, "standardizes": True}),
                    rounds,
                    ("features", "standardized", "ours"),
                ),
                (
                    "-short",
                    task,
                    min(rounds, SHORT_ROUNDS),
                    ("rounds", f"5 + {SHORT_ROUNDS - 5}", "ours"),
                ),
            ]
        if task.in_box:
            change = ("where methods choose", "400 points of the box", "ours")
            others.append(("-points", replace(task, in_box=False), rounds, change))
        for key, changed, length, words in others:
            one = [setting(*words, "UCB")]
            add(changed, "UCB", key, compared("UCB", "poisson"), one, length)
    return panels


def _own_factors(family: str, setting: Any) -> tuple[list[Any], list[Setting]]:
    """Return the methods and settings of a panel in which methods are changed."""
    waiting, ignoring, hallucinating = FAMILIES[family][1]
    theorem = replace(censored("poisson"), sum_form="theorem")
    judged = setting("none", "as judged", f"{PAPER} and {CODE}", family)
    if family == "TS":
        # draws never include the noise
        theorem = replace(theorem, predictive=False)
        scaled = method(f"{waiting}, scaled", family, "poisson", theorem)
        words = "1 plus the sum over the prior variance"
        one = setting("scale of the draws", words, "Theorem 3", family, scaled.name)
        return [*compared(family, "poisson"), scaled], [judged, one]
    divided = method(f"{waiting}, divided", family, "poisson", theorem)
    start, fitted = "start of the baselines", "what censored feedback is fitted to"
    common = [f"{name}, common start" for name in (ignoring, hallucinating)]
    early = "after the 5 initial points, as censored feedback"
    zeros = "what arrived and the zeros of pending queries"
    factor, words = "sum of deviations in the width", "divided by the prior variance"
    return [*variants(family, "poisson"), divided], [
        judged,
        setting(start, early, "ours", family, waiting, *common),
        setting(fitted, zeros, CODE, family, f"{waiting}, fitted to all"),
        setting(factor, words, "Theorem 1", family, divided.name),
    ]


def _claims(family: str, names: Sequence[str], how: str, where: str) -> tuple[Claim, ...]:
    """Return the claims of a family's panel, with the given names of the methods."""
    own = FAMILIES[family][1]
    played = [*names, *own[len(names) :]]
    quantity = "simple regret" if how == "below" else "regret"
    return tuple(
        Claim(f"{own[0]} {how} {other}, {where}", played[0], name, quantity)
        for other, name in zip(own[1:], played[1:], strict=True)
    )


def contextual_factors(
    files: Mapping[str, Path], num_trials: int | None, num_rounds: int | None, seed: int
) -> list[FactorPanel]:
    """Return the panels of Figure 4.

    Args:
        files: The data files ``"tasks"`` and ``"diabetes"``, or one of them.
        num_trials: See :func:`factors`.
        num_rounds: See :func:`factors`.
        seed: See :func:`factors`.
    """
    if not files:
        return []
    size: dict[str, Any] = {"num_rounds": num_rounds, "seed": seed}
    if num_trials is not None:
        size["num_trials"] = num_trials
    panels = []
    for experiment in contextual(*files.values(), **size):
        _, kind, family, *_ = experiment.name.split("-")
        family, is_learned = family.upper(), experiment.name.endswith("learned")
        waiting = FAMILIES[family][1][0]
        methods = list(experiment.make_methods(experiment.make_study(0, 1)))
        where = "learned" if is_learned else "given"
        judged = Setting(
            f"verma-4{'ab' if kind == 'tasks' else 'cd'}",
            "none",
            f"as judged, hyperparameters {where}",
            f"{PAPER} and {CODE}",
            _claims(family, (), "ahead of", where),
        )
        if is_learned:
            pseudo = replace(
                methods[0], name=f"{waiting}, fitted to all", learns_from_pseudo_values=True
            )
            change = ("what censored feedback is fitted to", "its rows with pseudo-values", CODE)
        elif family == "UCB":
            pseudo = replace(methods[0], name=f"{waiting}, divided", divides_the_sum=True)
            words = "divided by the prior variance"
            change = ("sum of deviations in the width", words, "Theorem 1")
        else:
            pseudo = replace(methods[0], name=f"{waiting}, scaled", scales_draws=True)
            words = "1 plus the sum, as bounds have it"
            change = ("scale of the draws", words, "Theorem 3")
        claims = _claims(family, (pseudo.name,), "ahead of", where)
        one = Setting(judged.figure, *change, claims)
        panels.append(_with_settings(experiment, [*methods, pseudo], [judged, one]))
    if "diabetes" not in files:
        return panels
    for key, change, options in (
        (
            "-logarithmic",
            ("scale of the grid", "logarithmic in C and gamma", "ours"),
            {"logarithmic": True},
        ),
        ("-standardized", ("features", "standardized", "ours"), {"standardizes": True}),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the tasks are left out
            experiments = contextual(files["diabetes"], **size, **options)
        for experiment in experiments[:2]:
            family = experiment.name.split("-")[2].upper()
            claims = _claims(family, (), "ahead of", "given")
            one = Setting("verma-4cd", *change, claims)
            renamed = replace(experiment, name=f"{experiment.name}{key}")
            panels.append(
                _with_settings(renamed, experiment.make_methods(experiment.make_study(0, 1)), [one])
            )
    return panels


def _with_settings(
    experiment: ArmsExperiment, methods: Sequence[Any], settings: Sequence[Setting]
) -> FactorPanel:
    known = {f.name: getattr(experiment, f.name) for f in fields(ArmsExperiment)}
    known |= {"published": "", "make_methods": lambda study: list(methods)}
    return FactorPanel(**known, compared=tuple(settings))

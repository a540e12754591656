"""Verma, Dai and Low 2022 with one factor changed: which setting decides whether a claim holds.

A panel of this experiment has the methods of a judged figure and the same methods with one setting
replaced, on the first functions of the figure. Each row of ``factors.csv`` is a claim under a
setting, and the rules are those of the judged figures. :data:`BUILDERS` has one function per group
of figures, which returns panels whose :class:`Setting` says what is compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from botorch_bandits.problems import PoissonDelay
from papers.delayed_curves import CurveMethod
from papers.results import write_csv
from papers.trials import ArmsExperiment, Curves
from papers.verma import (
    COMMON_START,
    DELAYS,
    FAMILIES,
    GIVEN,
    MEAN_DELAY,
    MEAN_DELAYS,
    NUM_ROUNDS,
    PUBLISHED_START,
    baseline_methods,
    censored_method,
    curve_panel,
    curve_player,
)

ERRORS = 2.0
"""A difference counts from this many of its standard errors, as in the judged figures."""

REPORTED_ROUND = 80
"""The middle of the curves of simple regret, as in the judged figures."""

NUM_TRIALS = 30


@dataclass(frozen=True)
class Claim:
    """A claim about two methods of a panel.

    Attributes:
        words: The words of the claim in the judged figure.
        better: The method that should have less.
        worse: The method that should have more.
        quantity: ``"simple regret"`` for less in the middle or at the end and not more at either,
            or ``"regret"`` for less cumulative regret.
    """

    words: str
    better: str
    worse: str
    quantity: str = "simple regret"


@dataclass(frozen=True)
class Setting:
    """A setting of a judged figure.

    Attributes:
        figure: The name of the figure, such as ``"verma-1cd"``.
        factor: What is changed, in words; ``"none"`` for the settings as judged.
        setting: Its value, in words.
        source: Section or equation of the paper, ``"released code"``, or ``"ours"``.
        claims: The claims to check.
    """

    figure: str
    factor: str
    setting: str
    source: str
    claims: tuple[Claim, ...]


@dataclass(frozen=True, eq=False)
class FactorPanel(ArmsExperiment):
    """A panel with methods under several settings.

    Attributes:
        compared: The settings, with the judged one first.
    """

    compared: tuple[Setting, ...] = ()


Builder = Callable[[Mapping[str, Path], int, int | None, int], list[Any]]
"""Takes the data files by name, ``"diabetes"`` and ``"tasks"``, and the arguments of
:func:`factors`; returns no panels if its file is missing."""


def factors(
    diabetes: Path | None = None,
    tasks: Path | None = None,
    num_trials: int = NUM_TRIALS,
    num_rounds: int | None = None,
    seed: int = 0,
) -> list[ArmsExperiment]:
    """Return the panels of all groups of figures.

    Args:
        diabetes: The Pima Indians diabetes data; panels that need it are left out if omitted.
        tasks: The table of tasks; panels that need it are left out if omitted.
        num_trials: The number of functions per panel.
        num_rounds: The number of rounds of each; as in the judged figure if omitted.
        seed: The seed of the judged experiments, whose first functions are used.
    """
    given = {"diabetes": diabetes, "tasks": tasks}
    files = {name: path for name, path in given.items() if path is not None}
    return [panel for build in BUILDERS for panel in build(files, num_trials, num_rounds, seed)]


def synthetic_factors(
    files: Mapping[str, Path], num_trials: int, num_rounds: int | None, seed: int
) -> list[Any]:
    """Return the panels of Figures 1a, 1c, 1d and 5.

    The claims of Figure 1b hold by a wide margin with learned and with given hyperparameters.

    Args:
        files: Not used.
        num_trials: See :func:`factors`.
        num_rounds: See :func:`factors`.
        seed: See :func:`factors`.
    """
    player = curve_player(seed)
    size = num_trials, num_rounds or NUM_ROUNDS, seed
    panels = [
        (f"verma-factors-{family.lower()}-{delays}", *_compared(family, delays))
        for family in FAMILIES
        for delays in DELAYS
    ]
    panels.append(("verma-factors-mean", *_means()))
    return [
        curve_panel(
            name,
            "one factor changed",
            "",
            methods,
            player,
            size,
            kind=FactorPanel,
            compared=settings,
        )
        for name, methods, settings in panels
    ]


BUILDERS: list[Builder] = [synthetic_factors]

WHERE = {"poisson": "Poisson delays", "fixed": "fixed delays"}

_WIDE = replace(PUBLISHED_START, lengthscales=(0.05, 2.0))
_GIVEN: dict[str, Any] = {"start": GIVEN, "learns": False}


def _compared(family: str, name: str) -> tuple[list[CurveMethod], tuple[Setting, ...]]:
    """Return the methods and settings of a panel of Figures 1c, 1d, 5a or 5b."""
    delays, twice, is_ucb = DELAYS[name], 2 * MEAN_DELAY, family == "UCB"
    figure = "verma-1cd" if is_ucb else "verma-5"
    sdf, *baselines = [each for each, _ in FAMILIES[family]]
    methods = [censored_method(family, delays, twice), *baseline_methods(family, delays)]
    settings = []

    def add(
        factor: str,
        setting: str,
        source: str,
        censored: Mapping[str, Any] | None = None,
        others: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> None:
        """Change censored feedback, its baselines, or both."""
        own = [sdf, *baselines]
        if censored is not None:
            limit = censored.get("max_delay", twice)
            changed = {field: value for field, value in censored.items() if field != "max_delay"}
            methods.append(censored_method(family, delays, limit, key, **changed))
            own[0] = methods[-1].name
        if others is not None:
            methods.extend(baseline_methods(family, delays, key, **others))
            own[1:] = [method.name for method in methods[-2:]]
        claims = tuple(
            Claim(f"{sdf} below {each}, {WHERE[name]}", own[0], other)
            for each, other in zip(baselines, own[1:], strict=True)
        )
        settings.append(Setting(figure, factor, setting, source, claims))

    add("none", "as judged", "appendix C and released code")
    zeros = {"fitted_to_zeros": True}
    words = "what arrived and the zeros of pending queries"
    add("what censored feedback is fitted to", words, "released code", zeros, None, "zeros")
    add("hyperparameters", "given: those of the functions", "ours", _GIVEN, _GIVEN, "given")
    if name == "fixed":  # the other settings are as with Poisson delays
        m = {"max_delay": MEAN_DELAY}
        add("m", f"{MEAN_DELAY}", "released code", m, None, f"m = {MEAN_DELAY}")
        return methods, tuple(settings)
    wide = {"start": _WIDE}
    add("smallest lengthscale that is learned", "0.05", "ours", wide, wide, "floor 0.05")
    words = "they choose after the 5 initial points, as censored feedback does"
    early = {"uniform_until": 0}
    add("start of the baselines", words, "ours", None, early, COMMON_START)
    if is_ucb:
        divided = {"added": "divided"}
        words = "divided by the prior variance"
        add(
            "sum of deviations in the width",
            words,
            "Theorem 1, outcomes in units of the prior",
            divided,
            None,
            "divided",
        )
        plain = {"added": "nothing"}
        add("sum of deviations in the width", "left out", "ours", plain, None, "no sum")
        noiseless = {"predictive": False}
        words = "of the function, without the noise"
        add("deviations in bounds", words, "section 3.2", noiseless, noiseless, "noiseless")
    else:
        scaled = {"added": "published"}
        words = "1 plus the sum of deviations"
        add("scale of the draws", words, "section 3.2", scaled, None, "scaled")
    return methods, tuple(settings)


def _censored_alone(
    figure: str, of: Callable[..., list[CurveMethod]], claims: Sequence[tuple[str, str]]
) -> tuple[list[CurveMethod], tuple[Setting, ...]]:
    """Return the methods and settings of a panel with censored feedback only.

    Args:
        figure: The name of the figure.
        of: Maps what is added to the names and what is changed to the methods.
        claims: The methods with less and with more regret.
    """
    changes: list[tuple[str, str, str, str, dict[str, Any]]] = [
        ("none", "as judged", "appendix C and released code", "", {}),
        ("smallest lengthscale that is learned", "0.05", "ours", ", floor 0.05", {"start": _WIDE}),
        (
            "what censored feedback is fitted to",
            "what arrived and the zeros of pending queries",
            "released code",
            ", zeros",
            {"fitted_to_zeros": True},
        ),
        ("hyperparameters", "given: those of the functions", "ours", ", given", _GIVEN),
    ]
    methods, settings = [], []
    for factor, setting, source, key, changed in changes:
        methods += of(key, **changed)
        compared = tuple(Claim(f"{a} below {b}", f"{a}{key}", f"{b}{key}") for a, b in claims)
        settings.append(Setting(figure, factor, setting, source, compared))
    return methods, tuple(settings)


def _means() -> tuple[list[CurveMethod], tuple[Setting, ...]]:
    def of(key: str, **changed: Any) -> list[CurveMethod]:
        return [
            censored_method("UCB", PoissonDelay(mean), 2 * mean, f"mean {mean}{key}", **changed)
            for mean in MEAN_DELAYS
        ]

    pairs = itertools.pairwise(MEAN_DELAYS)
    claims = [(f"GP-UCB-SDF, mean {low}", f"GP-UCB-SDF, mean {high}") for low, high in pairs]
    return _censored_alone("verma-1a", of, claims)


def check_claim(claim: Claim, curves: Mapping[str, Curves]) -> tuple[float, float, bool, str]:
    """Return the difference, its standard error, whether the claim holds, and the numbers in words.

    The difference is the method that should have more minus the other one, over the same trials, at
    the end for simple regret.

    Args:
        claim: The claim to check.
        curves: Results by method.
    """
    better, worse = curves[claim.better], curves[claim.worse]
    if claim.quantity == "regret":
        totals = better.regret.sum(-1), worse.regret.sum(-1)
        mean, error = _estimate(totals[1] - totals[0])
        own, other = (float(total.mean()) for total in totals)
        words = f"regret {own:.4g} and {other:.4g}, difference {mean:+.3g} ± {error:.2g}"
        return mean, error, mean > 0.0 and mean > ERRORS * error, words
    assert better.simple_regret is not None
    assert worse.simple_regret is not None
    differences = worse.simple_regret - better.simple_regret
    num_rounds = differences.shape[1]
    middle_round = REPORTED_ROUND if num_rounds >= REPORTED_ROUND else max(num_rounds * 3 // 5, 1)
    middle, end = _estimate(differences[:, middle_round - 1]), _estimate(differences[:, -1])
    both = (middle, end)
    is_less = any(mean > 0.0 and mean > ERRORS * error for mean, error in both)
    is_more = any(-mean > 0.0 and -mean > ERRORS * error for mean, error in both)
    texts = [f"{mean:+.3g} ± {error:.2g}" for mean, error in both]
    words = f"difference of simple regret {texts[0]} in the middle, {texts[1]} at the end"
    return *end, is_less and not is_more, words


def _estimate(values: Tensor) -> tuple[float, float]:
    """Return the mean and standard error, which is infinite with a single trial."""
    count = len(values)
    error = float(values.std()) / count**0.5 if count > 1 else float("inf")
    return float(values.mean()), error


def tabulate_factors(
    panels: Sequence[FactorPanel], curves: Sequence[Mapping[str, Curves]]
) -> list[dict[str, Any]]:
    """Return one row per setting and claim, figure by figure, with the settings as judged first.

    Args:
        panels: The panels that were played.
        curves: The results of each, by method.
    """
    rows: list[tuple[str, int, int, dict[str, Any]]] = []
    for panel, found in zip(panels, curves, strict=True):
        for place, setting in enumerate(panel.compared):
            for claim in setting.claims:
                difference, error, holds, words = check_claim(claim, found)
                row = {
                    "figure": setting.figure,
                    "factor": setting.factor,
                    "setting": setting.setting,
                    "claim": claim.words,
                    "ours": words,
                    "difference": difference,
                    "standard_error": error if error != float("inf") else "",
                    "holds": "yes" if holds else "no",
                    "trials": len(found[claim.better].regret),
                    "source": setting.source,
                }
                rows.append((setting.figure, place, len(rows), row))
    figures = list(dict.fromkeys(figure for figure, *_ in rows))
    rows.sort(key=lambda each: (figures.index(each[0]), each[1] > 0, each[2]))
    return [row for *_, row in rows]


def report(
    panels: Sequence[FactorPanel], curves: Sequence[Mapping[str, Curves]], folder: Path
) -> None:
    """Print the claims under each setting, and write them as ``factors.csv``.

    Args:
        panels: The panels that were played.
        curves: The results of each, by method.
        folder: The folder of the experiment.
    """
    rows = tabulate_factors(panels, curves)
    write_csv(folder / "factors.csv", rows)
    for row in rows:
        words = f"{row['figure']}, {row['factor']}: {row['setting']}"
        print(f"{words}; {row['claim']}: {row['holds']} ({row['ours']})")

"""Experiments of Shi and Eryilmaz 2022, appendix E (Figures 1 to 9): long-term constraints.

Our methods play a grid of arms, and their regret is against the grid's own optimum. The methods of
others that need a box play the box itself. The paper does not say ``B``, ``R``, ``lam``, ``delta``
or the lengthscale; here they are 1, 0.1 (the standard deviation of the reward's noise), 0.01, 0.1
and 1, on a model of prior mean 0 and prior variance 1, which is not rescaled with the multipliers.
So no theorem covers these runs: 1 bounds no norm here, and ``lam`` is below 1. A panel of other
values shows what they matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from botorch_bandits.acquisition import GPThompsonSampling
from botorch_bandits.constraints import SURROGATES, AdditiveEpochs, MultiplicativeEpochs
from botorch_bandits.experiments.arms_experiment import ArmsExperiment
from botorch_bandits.experiments.arms_study import ArmsStudy
from botorch_bandits.experiments.constrained_study import ConstrainedMethod, play_with_constraints
from botorch_bandits.experiments.shi_setting import NOISE_STD, NUM_INITIAL, Constants, Setting
from botorch_bandits.problems import GardnerProblem, RatesProblem

EPOCH_LENGTH, STEP_SIZE = 20, 0.5
EPOCH_LENGTHS = (5, 10, 20, 35, 70)
RATE_NOISE = 0.2

SLOW_TRIALS, FURTHER_TRIALS, EPOCH_TRIALS = 5, 10, 20
"""At most so many trials of methods that take seconds a run, of further panels, and of epochs of
several lengths, of which the paper has 20."""

LONG = 4
"""The longest horizon of the fitted powers, in units of the usual one."""


def gardner(
    num_trials: int = 100, num_rounds: int = 350, seed: int = 0, num_points: int = 41
) -> list[ArmsExperiment]:
    """Figures 1 to 5: the problem with a small feasible region, on a grid of arms.

    Args:
        num_trials: Runs; further panels have fewer.
        num_rounds: The horizon; four times that for the fitted powers.
        seed: Seeds noise, initial points and draws; a trial's are the same for every method.
        num_points: Of the grid, a dimension.
    """
    steps = ((10, 5), (50, 5))
    exact = Setting(
        "shi-gardner", GardnerProblem(NOISE_STD), num_points, steps, (7.0, 1.95, 0.05), num_rounds
    )
    noisy = replace(exact, box=GardnerProblem(NOISE_STD, NOISE_STD))
    lengths = [exact.loop(f"S = {S}", MultiplicativeEpochs(1, S)) for S in EPOCH_LENGTHS]
    other = {
        "B = 3": Constants(rkhs_bound=3.0),
        "B = 10": Constants(rkhs_bound=10.0),
        "lengthscale 0.5": Constants(lengthscale=0.5),
        "lengthscale 2": Constants(lengthscale=2.0),
        "lam = 1": Constants(lam=1.0),
    }
    unsaid = [
        exact.loop(name, _rule(2, "relabelled"), constants=constants)
        for name, constants in other.items()
    ]
    compared = _comparisons(exact, noisy, num_trials, seed, ("Figures 2 and 3", "Figures 4 and 5"))
    return [
        *compared[:2],
        panel(
            exact,
            "epochs",
            "Algorithm 2 with epochs of several lengths",
            "Figure 1: more frequent updates, less violation and, for some, more regret",
            lengths,
            min(num_trials, EPOCH_TRIALS),
            seed,
        ),
        panel(
            exact,
            "unsaid",
            "Algorithm 2 with other constants",
            "",
            unsaid,
            min(num_trials, SLOW_TRIALS),
            seed,
        ),
        *_long(exact, noisy, num_trials, seed),
        *compared[2:],
    ]


def rates(
    num_trials: int = 100, num_rounds: int = 350, seed: int = 0, num_points: int = 7
) -> list[ArmsExperiment]:
    """Figures 6 to 9: data rates of four servers, with SUBSTITUTE constants, on a grid of arms.

    The paper's constants could not be had; see :class:`~botorch_bandits.problems.RatesProblem`.
    Arguments are those of :func:`gardner`.
    """
    steps = ((20, 2), (20, 2))
    exact = Setting(
        "shi-rates", RatesProblem(NOISE_STD), num_points, steps, (4.0, 3.2, 2.0), num_rounds
    )
    noisy = replace(exact, box=RatesProblem(NOISE_STD, RATE_NOISE))
    # GP-TS and constrained EI take long on so many arms: they are in the other experiment alone
    figures = ("Figures 6 and 7", "Figures 8 and 9")
    return _comparisons(exact, noisy, num_trials, seed, figures, with_slow=False)


def _comparisons(
    exact: Setting,
    noisy: Setting,
    num_trials: int,
    seed: int,
    figures: tuple[str, str],
    with_slow: bool = True,
) -> list[ArmsExperiment]:
    """Return the compared methods without noise on the constraint and with it, and more of ours."""
    falls = "averages of regret and violation fall to 0, not those of OCO and ADMMBO"
    panels: list[ArmsExperiment] = []
    later: list[ArmsExperiment] = []
    for kind, setting, figure, number in (
        ("noiseless", exact, figures[0], 2),
        ("noisy", noisy, figures[1], 3),
    ):
        name = f"Algorithm {number}"
        rules = {surrogate: _rule(number, surrogate) for surrogate in SURROGATES}
        words = f"constraint observed {'exactly' if kind == 'noiseless' else 'with noise'}"
        compared = [setting.loop(name, rules["relabelled"]), *setting.others()]
        slow = [
            setting.loop(f"{name}, GP-TS", rules["relabelled"], GPThompsonSampling),
            setting.improvement(),
        ]
        surrogates = [
            setting.loop(f"{name}, fresh", rules["fresh"]),
            setting.separate(f"{name}, separate", rules["separate"]),
            setting.every_round(),
        ]
        published = f"{figure}: {name}'s {falls}"
        panels.append(panel(setting, kind, words, published, compared, num_trials, seed))
        count = min(num_trials, SLOW_TRIALS)
        if with_slow:
            title = f"{words}, slow methods"
            later.append(panel(setting, f"{kind}-slow", title, "", slow, count, seed))
        count = min(num_trials, FURTHER_TRIALS)
        title = f"{words}, other surrogates"
        later.append(panel(setting, f"{kind}-surrogates", title, "", surrogates, count, seed))
    return [*panels, *later]


def _rule(number: int, surrogate: str) -> MultiplicativeEpochs | AdditiveEpochs:
    """Return the rule of Algorithm 2 or 3."""
    if number == 2:
        return MultiplicativeEpochs(1, EPOCH_LENGTH, surrogate=surrogate)
    return AdditiveEpochs(1, EPOCH_LENGTH, step_size=STEP_SIZE, surrogate=surrogate)


def _long(exact: Setting, noisy: Setting, num_trials: int, seed: int) -> list[ArmsExperiment]:
    """Return the panel of the fitted powers."""
    num_rounds = LONG * exact.num_rounds
    methods = [
        exact.loop("Algorithm 2", _rule(2, "relabelled"), num_rounds=num_rounds),
        noisy.loop("Algorithm 3", _rule(3, "relabelled"), num_rounds=num_rounds),
        exact.others()[0],
    ]
    count = min(num_trials, FURTHER_TRIALS)
    return [panel(exact, "powers", "long horizon", "", methods, count, seed, num_rounds)]


def panel(
    setting: Setting,
    kind: str,
    title: str,
    published: str,
    methods: Sequence[ConstrainedMethod],
    num_trials: int,
    seed: int,
    num_rounds: int | None = None,
) -> ArmsExperiment:
    """Return a panel of methods that are played in turns.

    Args:
        setting: The problem; it says how panels begin their names.
        kind: How the name ends.
        title: What is shown, in words.
        published: What the paper states.
        methods: What is played, on the box of the setting or its grid.
        num_trials: Runs of each method.
        seed: Seeds everything.
        num_rounds: Those of the setting if omitted.
    """
    rounds = num_rounds or setting.num_rounds
    box, grid = setting.box, setting.grid
    price = float(box.optimal_multiplier)
    lagrangian = grid.values - price * grid.constraint_table[:, 0]

    def make_study(first: int, count: int) -> ArmsStudy:
        # the methods have the problem; a study says how many trials, and seeds them
        nothing = torch.empty(0, 0, dtype=torch.float64)
        return ArmsStudy(nothing, nothing.new_zeros(count, 1), NOISE_STD, rounds, seed, first)

    make_methods: Callable[[ArmsStudy], Any] = lambda study: list(methods)  # noqa: E731
    return ArmsExperiment(
        name=f"{setting.name}-{kind}",
        title=title,
        published=published,
        num_trials=num_trials,
        num_rounds=rounds,
        make_study=make_study,
        make_methods=make_methods,
        average=True,
        player=play_with_constraints,
        settings={
            "seed": seed,
            "num_points": setting.num_points,
            "horizon": setting.num_rounds,
            "constants": vars(Constants()),
            "num_initial": NUM_INITIAL,
            "epoch_length": EPOCH_LENGTH,
            "step_size": STEP_SIZE,
            "optimal_value_of_box": float(box.optimal_value),
            "optimal_value_of_grid": float(grid.optimal_value),
            "price": price,
            "largest_priced_value_of_grid": float(lagrangian.max()),
        },
    )

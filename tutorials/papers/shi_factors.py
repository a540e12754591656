"""Shi and Eryilmaz 2022 with one factor changed, for the claims of Figures 2 to 9 that fail.

On the problem with a small feasible region, epochs with fresh data fail as the paper prints them,
so this experiment looks for epochs that would work. On the data rates, bandit online convex
optimization (OCO) fails less than in the paper. The constants of the four servers are substitutes
there, so other constants are drawn, and OCO's own steps and the horizon, which the paper does not
state either, are changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from botorch_bandits.acquisition import ImprovedUpperConfidenceBound
from botorch_bandits.constraints import AdditiveEpochs, MultiplicativeEpochs
from botorch_bandits.domains import Arms
from botorch_bandits.loop import BanditLoop
from botorch_bandits.penalties import Exponential
from botorch_bandits.problems import ConstrainedProblem, GardnerProblem
from botorch_bandits.random_streams import generator
from papers.changed_factors import Changed, FactorRow, fall_row, write_factors
from papers.constrained_methods import BanditSaddlePoint
from papers.constrained_study import ConstrainedMethod, PlayedLoop
from papers.environments import RatesProblem
from papers.results import write_csv
from papers.shi import (
    EPOCH_LENGTH,
    NOISE_STD,
    NUM_INITIAL,
    RATE_NOISE,
    STEP_SIZE,
    Constants,
    Setting,
    averages,
    panel,
    tabulate_violation,
)
from papers.trials import ArmsExperiment, Curves

Rule = MultiplicativeEpochs | AdditiveEpochs

JUDGED = Changed("none", "as judged: S = 20, lengthscale 1", "ours")
LONGER = 5
"""The factor by which epochs or runs of the longer panels exceed the judged ones."""

SMALLER = 0.25
"""The factor of smaller steps of the multipliers."""

NUM_FIRST = 5
"""The number of uniform draws at the start of each epoch, if that is the changed factor."""


class FirstOfEpochs(PlayedLoop):
    """A loop whose epochs each begin with uniform draws; see :class:`PlayedLoop`.

    Args:
        loop: A loop with ``constraints=``, before its first round.
        arms: The arms of the loop.
        epoch_length: ``S``.
        num_first: The number of initial rounds of each epoch that are drawn uniformly.
        seed: Seeds these draws.
    """

    def __init__(
        self, loop: BanditLoop, arms: Arms, epoch_length: int, num_first: int, seed: int
    ) -> None:
        """See the class."""
        super().__init__(loop)
        self._arms, self._seed = arms, seed
        self._epoch_length, self._num_first = epoch_length, num_first

    def choose(self, round_number: int) -> Tensor:
        """Ask the loop; at the start of an epoch, it can choose from a single arm only.

        Args:
            round_number: From 1.
        """
        if (round_number - 1) % self._epoch_length >= self._num_first:
            return super().choose(round_number)
        stream = generator(self._seed, round_number, "first of an epoch")
        arm = int(torch.randint(self._arms.num_arms, (), generator=stream))
        self._query = self.loop.ask(available=[arm])
        return self._query.x


def fresh_rule(number: int, length: int = EPOCH_LENGTH, step: float = 1.0) -> Rule:
    """Return the rule of Algorithm 2 or 3 with fresh epochs.

    Args:
        number: 2 or 3.
        length: ``S``.
        step: The factor of the multipliers' steps, either inside ``psi`` or of ``mu``.
    """
    if number == 2:
        return MultiplicativeEpochs(1, length, penalty=Exponential(step), surrogate="fresh")
    return AdditiveEpochs(1, length, step_size=step * STEP_SIZE, surrogate="fresh")


def epochs_of(setting: Setting, number: int) -> dict[Changed, ConstrainedMethod]:
    """Return Algorithm 2 or 3 with fresh epochs, as judged and with one factor changed.

    Args:
        setting: The problem on its grid.
        number: 2 or 3.
    """
    text = "Section 5.2" if number == 2 else "Theorem 2"
    lengthscale = 2.0
    long = Changed("rounds an epoch", "epochs of 50", text)
    longest = Changed("rounds an epoch", "epochs of 100", text)
    made = {
        JUDGED: setting.loop(JUDGED.name, fresh_rule(number)),
        long: setting.loop(long.name, fresh_rule(number, 50)),
        longest: setting.loop(longest.name, fresh_rule(number, 100)),
    }
    wide = Changed("lengthscale", "lengthscale 2", "Section 5, a kernel for each epoch")
    made[wide] = setting.loop(
        wide.name, fresh_rule(number), constants=Constants(lengthscale=lengthscale)
    )
    small = Changed(
        "step of the multipliers",
        "exp(x / 4) in place of exp(x)" if number == 2 else "mu = 0.125",
        "(10), any positive c" if number == 2 else "Theorem 2, mu = O(1 / sqrt(L))",
    )
    made[small] = setting.loop(small.name, fresh_rule(number, step=SMALLER))
    first = Changed("initial points", f"{NUM_FIRST} uniform points an epoch", "ours")
    made[first] = _of_epochs(setting, first.name, fresh_rule(number), num_first=NUM_FIRST)
    kept = Changed("data of an epoch", "all queries, relabeled", "ours")
    rule = replace(fresh_rule(number), surrogate="relabeled")
    made[kept] = setting.loop(kept.name, rule)
    return made


def _of_epochs(setting: Setting, name: str, rule: Rule, num_first: int) -> ConstrainedMethod:
    known, grid = Constants(), setting.grid
    arms = Arms(grid.choices)

    def build(seed: int) -> PlayedLoop:
        loop = BanditLoop(
            arms,
            known.model,
            ImprovedUpperConfidenceBound.with_options(**known.widths),
            constraints=rule,
            horizon=setting.num_rounds,
            num_initial=NUM_INITIAL,
            seed=seed,
            clock=lambda: 0.0,
        )
        return FirstOfEpochs(loop, arms, rule.rounds_per_update, num_first, seed)

    return ConstrainedMethod(name, grid, build)


def longer_epochs_of(setting: Setting, number: int) -> dict[Changed, ConstrainedMethod]:
    """Return fresh epochs in a longer run, with as many rounds per epoch or as many epochs.

    Args:
        setting: The problem on its grid.
        number: 2 or 3.
    """
    rounds = LONGER * setting.num_rounds
    more = Changed("rounds", f"{LONGER} times the rounds, epochs of {EPOCH_LENGTH}", "Theorem 1")
    more = replace(more, source="Theorem 1" if number == 2 else "Theorem 2")
    both = replace(more, setting=f"{LONGER} times the rounds, as many epochs")
    return {
        more: setting.loop(more.name, fresh_rule(number), num_rounds=rounds),
        both: setting.loop(both.name, fresh_rule(number, LONGER * EPOCH_LENGTH), num_rounds=rounds),
    }


class RatesOf(ConstrainedProblem):
    """The data rates with other constants; see :class:`RatesProblem`.

    Utilities are scaled so that ``U(0) = 0`` and ``U(2) = scale``.

    Args:
        steepness: ``a``, four numbers.
        shift: ``b`` of servers 1 and 3; that of the other two is 1.
        budget: The factor of the paper's budget.
        scale: The scale of the utilities.
        is_noisy: Whether the constraint is observed with the noise of appendix E.2.2.
    """

    dim = 4
    num_constraints = 1
    continuous_inds: ClassVar[list[int]] = [0, 1, 2, 3]
    _bounds: ClassVar[list[tuple[float, float]]] = [(0.0, 2.0)] * 4
    _worst_feasible_value = 0.0
    _weights: ClassVar[tuple[float, ...]] = (0.2, 0.4, 0.8, 1.2)

    def __init__(
        self,
        steepness: Sequence[float],
        shift: Sequence[float],
        budget: float = 1.0,
        scale: float = 1.0,
        is_noisy: bool = False,
    ) -> None:
        """See the class."""
        super().__init__(noise_std=NOISE_STD)
        self.steepness, self.shift = tuple(steepness), tuple(shift)
        self.budget, self.scale = 2.0 * budget, scale
        self.constraint_noise_std = RATE_NOISE / math.sqrt(3.0) if is_noisy else None
        self.constraint_noise_distribution = "uniform"
        ends = self._curves(torch.tensor([[0.0] * 4, [2.0] * 4], dtype=torch.float64))
        self._low, self._high = ends[0], ends[1]
        # regret is not judged here, so the best value on a grid suffices
        lines = [torch.linspace(0.0, 2.0, 15, dtype=torch.float64)] * 4
        grid = torch.stack(torch.meshgrid(*lines, indexing="ij"), -1).reshape(-1, 4)
        is_met = self._evaluate_constraints(grid)[:, 0] <= 0.0
        self.optimal_value = float(self._evaluate_true(grid[is_met]).max())

    def _curves(self, X: Tensor) -> Tensor:
        a, b = self.steepness, self.shift
        logistic = [(a[i] * (X[..., i] - b[i // 2])).sigmoid() for i in (0, 2)]
        logarithms = [(a[i] * X[..., i] + 1.0).log() for i in (1, 3)]
        return torch.stack([logistic[0], logarithms[0], logistic[1], logarithms[1]], -1)

    def _evaluate_true(self, X: Tensor) -> Tensor:
        values = (self._curves(X) - self._low) / (self._high - self._low)
        return self.scale * values.sum(-1)

    def _evaluate_constraints(self, X: Tensor) -> Tensor:
        weights = torch.tensor(self._weights, dtype=X.dtype)
        return (X @ weights - self.budget).unsqueeze(-1)


NUM_DRAWS = 8
SUBSTITUTES = ((6.0, 5.0, 8.0, 5.0), (1.0, 0.8))
"""``a`` of all servers and ``b`` of servers 1 and 3 in :class:`RatesProblem`."""


def drawn_constants(number: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return constants of the servers within plausible ranges.

    The logistic curves rise with a steepness of 3 to 12 around 0.4 to 1.4, on a range that ends at
    2; the logarithms have ``a`` of 1 to 10.

    Args:
        number: The number of the draw.
    """
    u = torch.rand(6, dtype=torch.float64, generator=generator(number, 0, "servers")).tolist()
    logistic = [3.0 + 9.0 * u[0], 3.0 + 9.0 * u[1]]
    logarithms = [1.0 + 9.0 * u[2], 1.0 + 9.0 * u[3]]
    steepness = (logistic[0], logarithms[0], logistic[1], logarithms[1])
    return steepness, (0.4 + u[4], 0.4 + u[5])


OCO_JUDGED = Changed("none", "as judged: substitute constants", "ours")
FIRST_ROUNDS = 100
FIRST = Changed("rounds", f"the first {FIRST_ROUNDS} rounds", "appendix E.2: Figures 7 and 9")


def oco_of(is_noisy: bool) -> dict[Changed, ConstrainedMethod]:
    """Return bandit online convex optimization, as judged and with one factor changed.

    Args:
        is_noisy: Whether the constraint is observed with noise.
    """
    judged = RatesProblem(NOISE_STD, RATE_NOISE if is_noisy else None)
    problems: dict[Changed, ConstrainedProblem] = {OCO_JUDGED: judged}
    for number in range(1, NUM_DRAWS + 1):
        known = Changed(
            "constants of the servers", f"constants of the servers, draw {number}", "ours"
        )
        problems[known] = RatesOf(*drawn_constants(number), is_noisy=is_noisy)
    for scale in (0.3, 3.0):
        known = Changed("scale of the utilities", f"utilities {scale:g} times as large", "ours")
        problems[known] = RatesOf(*SUBSTITUTES, scale=scale, is_noisy=is_noisy)
    for budget in (0.5, 1.5):
        known = Changed("budget", f"budget {budget:g} times that of the paper", "ours")
        problems[known] = RatesOf(*SUBSTITUTES, budget=budget, is_noisy=is_noisy)
    made = {known: _oco(known.name, problem) for known, problem in problems.items()}
    best = "appendix E: set to the best performance"
    for step in (0.005, 0.01, 0.04):
        known = Changed("step of OCO", f"step of OCO {step:g} in place of 0.02", best)
        made[known] = _oco(known.name, judged, step_size=step)
    return made


def _oco(name: str, problem: ConstrainedProblem, step_size: float = 0.02) -> ConstrainedMethod:
    return ConstrainedMethod(
        name,
        problem,
        lambda seed: BanditSaddlePoint(problem.bounds, step_size=step_size, seed=seed),
    )


FIGURES = {2: ("shi-2-3", "shi-6-7"), 3: ("shi-4-5", "shi-8-9")}
"""The figures of both problems for each algorithm."""


def factors(
    num_trials: int = 10, num_rounds: int = 350, seed: int = 0, num_points: int = 41
) -> list[ArmsExperiment]:
    """Return fresh and longer epochs of Algorithms 2 and 3, and OCO on the data rates.

    Args:
        num_trials: The number of runs; OCO, which is fast, has twice as many.
        num_rounds: The horizon, except for longer epochs.
        seed: Seeds noise, initial points and draws.
        num_points: The number of points per dimension of the grid of the small feasible region.
    """
    bounds = (7.0, 1.95, 0.05)
    steps = ((10, 5), (50, 5))
    exact = Setting("shi-factors", GardnerProblem(NOISE_STD), num_points, steps, bounds, num_rounds)
    noisy = replace(exact, box=GardnerProblem(NOISE_STD, NOISE_STD))
    rates = Setting("shi-factors", RatesProblem(NOISE_STD), 3, steps, bounds, num_rounds)
    panels = []
    for number, setting in ((2, exact), (3, noisy)):
        words = f"Algorithm {number} with fresh epochs, one factor changed"
        panels += [
            panel(
                setting,
                f"epochs-{number}",
                words,
                "",
                list(epochs_of(setting, number).values()),
                num_trials,
                seed,
            ),
            panel(
                setting,
                f"longer-{number}",
                f"{words}, longer runs",
                "",
                list(longer_epochs_of(setting, number).values()),
                num_trials,
                seed,
                LONGER * num_rounds,
            ),
            panel(
                rates,
                f"rates-{number}",
                f"OCO on the data rates, one factor changed ({FIGURES[number][1]})",
                "",
                list(oco_of(number == 3).values()),
                2 * num_trials,
                seed,
            ),
        ]
    return panels


def tabulate_factors(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]]
) -> list[FactorRow]:
    """Return the rows of all four figures.

    Args:
        experiments: The panels of :func:`factors`.
        curves: Their results.
    """
    found = {e.name: (e.num_rounds, r) for e, r in zip(experiments, curves, strict=True)}
    bounds = (7.0, 1.95, 0.05)
    setting = Setting("shi-factors", GardnerProblem(), 41, ((1, 1), (1, 1)), bounds, 350)
    rows: list[FactorRow] = []
    for number, (region, rates) in FIGURES.items():
        fresh = f"time-averaged violation of Algorithm {number}, fresh tends to 0"
        for kind, known in (
            ("epochs", epochs_of(setting, number)),
            ("longer", longer_epochs_of(setting, number)),
        ):
            rounds, results = found[f"shi-factors-{kind}-{number}"]
            for changed in known:
                half, end = _violation(results[changed.name], rounds)
                rows.append(fall_row(region, changed, fresh, half, end, should_fall=True))
        rounds, results = found[f"shi-factors-rates-{number}"]
        stays = "time-averaged violation of OCO, saddle point does not tend to 0"
        for changed in oco_of(number == 3):
            half, end = _violation(results[changed.name], rounds)
            rows.append(fall_row(rates, changed, stays, half, end, should_fall=False))
        half, end = _violation(results[OCO_JUDGED.name], min(FIRST_ROUNDS, rounds))
        rows.append(fall_row(rates, FIRST, stays, half, end, should_fall=False))
    order = [*(pair[0] for pair in FIGURES.values()), *(pair[1] for pair in FIGURES.values())]
    return sorted(rows, key=lambda row: order.index(row.figure))


def _violation(curve: Curves, rounds: int) -> tuple[Tensor, Tensor]:
    known = averages(curve)
    return known.at("violation", max(rounds // 2, 1)), known.at("violation", rounds)


def report(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]], folder: Path
) -> None:
    """Write ``factors.csv`` and ``violation.csv``.

    Args:
        experiments: The panels of :func:`factors`.
        curves: Their results.
        folder: The folder for the files.
    """
    write_csv(folder / "violation.csv", tabulate_violation(experiments, curves))
    write_factors(folder, tabulate_factors(experiments, curves))

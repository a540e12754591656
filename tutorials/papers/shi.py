"""Shi and Eryilmaz 2022: long-term constraints, as published and with one setting changed.

The first problem has a small feasible region, the second shares data rates among four servers, with
substitute constants, because those of the paper could not be obtained. The paper does not specify
``B``, ``R``, ``lam``, ``delta`` or the lengthscale (:class:`Constants`). Our methods play a grid of
arms, and regret is against the grid's own best feasible arm; OCO and ADMMBO play the box.

Algorithm 2 has multiplicative epochs for a constraint that is observed exactly, Algorithm 3
additive ones for one that is observed with noise. The paper prints them with *fresh* epochs, which
use only the queries of the epoch; *relabeled* epochs use all queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from botorch_bandits.acquisition import (
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
)
from botorch_bandits.constraints import AdditiveEpochs, MultiplicativeEpochs, PrimalDual
from botorch_bandits.domains import Arms, Box
from botorch_bandits.history import Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGP
from botorch_bandits.random_streams import generator
from papers.environments import GardnerProblem, PublishedProblem, RatesProblem, on_grid
from papers.runner import ArmsExperiment, ArmsStudy, Curves, Entry, standard_error, write_csv

Rule = MultiplicativeEpochs | AdditiveEpochs | PrimalDual

NOISE_STD, RATE_NOISE = 0.1, 0.2
EPOCH_LENGTH, STEP_SIZE, EPOCH_LENGTHS = 20, 0.5, (5, 10, 20, 35, 70)
NUM_INITIAL = 1
EPOCH_TRIALS, FURTHER_TRIALS = 20, 10
"""The numbers of trials of Figure 1, as in the paper, and of panels that are ours."""


@dataclass(frozen=True)
class Constants:
    """What the paper does not specify: in units that are never rescaled, with prior mean 0."""

    rkhs_bound: float = 1.0
    noise_bound: float = NOISE_STD
    lam: float = 0.01
    delta: float = 0.1
    lengthscale: float = 1.0

    @property
    def widths(self) -> dict[str, float]:
        """The options of the acquisition."""
        names = ("rkhs_bound", "noise_bound", "delta")
        return {name: vars(self)[name] for name in names}


# --- methods


class Baseline:
    """A method that plays by itself.

    Attributes:
        multipliers: Those in force; NaN if there are none.
        stopped_after: The round after which it has nothing more to do.
    """

    multipliers: Any = (math.nan,)
    stopped_after: int | None = None

    def choose(self, round_number: int) -> Tensor:
        """Return the point to play."""
        raise NotImplementedError

    def observe(self, x: Tensor, reward: float, constraints: Tensor) -> None:
        """Take the outcome of the point that was chosen last."""
        raise NotImplementedError


class PlayedLoop(Baseline):
    """A loop with constraints; see :class:`Baseline`."""

    def __init__(self, loop: BanditLoop) -> None:
        """See the class."""
        self.loop = loop
        self._query: Query | None = None

    def choose(self, round_number: int) -> Tensor:
        """Ask the loop."""
        self._query = self.loop.ask()
        return self._query.x

    def observe(self, x: Tensor, reward: float, constraints: Tensor) -> None:
        """Tell the loop."""
        assert self._query is not None
        self.loop.tell(self._query.id, reward, constraints=constraints.tolist())
        self.multipliers = self.loop.multipliers


class SaddlePoint(Baseline):
    """Bandit online convex optimization (OCO): gradient steps on the Lagrangian.

    On the unit cube, two points at distance ``radius`` from the current one in a random direction
    estimate the slopes of reward and constraint; the point climbs ``reward - k constraint`` and the
    multiplier climbs the constraint.
    """

    radius = 0.1

    def __init__(self, bounds: Any, seed: int, step_size: float = 0.02) -> None:
        """See the class."""
        box = Box(bounds)
        self._lower, self._upper = box.bounds
        self._seed, self._step_size, self._num_steps = seed, step_size, 0
        unit = torch.rand(box.dim, dtype=torch.float64, generator=generator(seed, 0, "start"))
        self._x, self.multipliers = self._project(unit), torch.zeros(1, dtype=torch.float64)
        self._plan()

    def choose(self, round_number: int) -> Tensor:
        """Return a point ahead of the current one, then one behind."""
        shift = self.radius * self._direction
        unit = (self._x - shift if self._values else self._x + shift).clamp(0.0, 1.0)
        return torch.minimum(self._lower + (self._upper - self._lower) * unit, self._upper)

    def observe(self, x: Tensor, reward: float, constraints: Tensor) -> None:
        """Step after both points."""
        self._values.append(torch.cat([constraints.new_tensor([reward]), constraints]))
        if len(self._values) == 2:
            ahead, behind = self._values
            slopes = (ahead - behind) * (len(self._x) / (2.0 * self.radius))
            gradients = slopes.unsqueeze(-1) * self._direction
            ascent = gradients[0] - self.multipliers @ gradients[1:]
            self._x = self._project(self._x + self._step_size * ascent)
            step = self._step_size * (ahead + behind)[1:] / 2
            keep = 1.0 - self._step_size**2
            self.multipliers = (keep * self.multipliers + step).clamp_min(0.0)
            self._num_steps += 1
            self._plan()

    def _plan(self) -> None:
        """Draw a direction: the first of a random orthonormal frame."""
        stream = generator(self._seed, self._num_steps + 1, "directions")
        dim = len(self._x)
        gaussian = torch.randn(dim, dim, dtype=torch.float64, generator=stream)
        frame, upper = torch.linalg.qr(gaussian)
        self._direction = (frame * upper.diagonal().sign()).T[0]
        self._values: list[Tensor] = []

    def _project(self, unit: Tensor) -> Tensor:
        return unit.clamp(self.radius, 1.0 - self.radius)


TOLERANCE, RELAXATION = 0.05, 1.5
RESIDUAL_RATIO, PENALTY_FACTOR, WEIGHT = 10.0, 2.0, 50.0
NUM_CANDIDATES, NUM_UNIFORM = 2048, 2
"""Of ADMMBO: its stopping rule, its penalty, the candidates of a round, and the first rounds."""


class ADMMBO(Baseline):
    """Bayesian optimization by the alternating direction method of multipliers.

    The augmented Lagrangian splits ``x``, which minimizes the negative reward, from ``z``, which is
    to be feasible, with multipliers ``y``. Each has steps of expected improvement in turn, until
    primal and dual residuals are small; afterward the best observed point is played.

    Args:
        bounds: The box.
        steps: Steps on the reward and on feasibility, each in the first and in later iterations.
        seed: Of all draws.
    """

    def __init__(
        self, bounds: Any, steps: tuple[tuple[int, int], tuple[int, int]], seed: int
    ) -> None:
        """See the class."""
        self._box, self._steps, self._seed = Box(bounds), steps, seed
        corner = self._box.bounds[1]
        self.x, self.z, self.y, self.penalty = corner, corner.clone(), torch.zeros_like(corner), 0.1
        self._previous_z, self._num_iterations = self.z, 0
        self._points = torch.empty(0, self._box.dim, dtype=torch.float64)
        self._observed = torch.empty(0, 2, dtype=torch.float64)
        self._is_reward, self._left = True, steps[0][0]

    def choose(self, round_number: int) -> Tensor:
        """Return the candidate with the largest expected improvement."""
        stream = generator(self._seed, round_number, "candidates")
        if len(self._points) < NUM_UNIFORM:
            return self._box.sample(1, stream)[0]
        if self.stopped_after is not None:
            return self._points[self._best_row]
        candidates = self._box.sample(NUM_CANDIDATES, stream)
        return candidates[self._improvement(candidates).argmax()]

    @property
    def _best_row(self) -> int:
        """The feasible row with the largest reward, or else that with the smallest violation."""
        reward, constraint = self._observed.unbind(-1)
        feasible = constraint <= 0.0
        if bool(feasible.any()):
            return int(reward.masked_fill(~feasible, -torch.inf).argmax())
        return int(constraint.argmin())

    def _penalty_at(self, points: Tensor) -> Tensor:
        if self._is_reward:
            center, factor = self.z - self.y / self.penalty, 1.0
        else:
            center, factor = self.x + self.y / self.penalty, 1.0 / WEIGHT
        return 0.5 * factor * self.penalty * (points - center).square().sum(-1)

    def _costs(self) -> Tensor:
        reward, constraint = self._observed.unbind(-1)
        cost = -reward if self._is_reward else (constraint > 0.0).to(reward)
        return cost + self._penalty_at(self._points)

    def _improvement(self, points: Tensor) -> Tensor:
        observed = self._observed[:, 0 if self._is_reward else 1]
        model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=1.0)
        with torch.no_grad():
            posterior = model(self._points, observed.unsqueeze(-1)).posterior(points.unsqueeze(-2))
        mean = posterior.mean.reshape(-1)
        std = posterior.variance.clamp_min(1e-20).sqrt().reshape(-1)
        gain = self._costs().min() - self._penalty_at(points)
        normal = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
        if self._is_reward:
            u = (gain + mean) / std
            return std * normal.log_prob(u).exp() + (gain + mean) * normal.cdf(u)
        holds = normal.cdf(-mean / std)
        return holds * gain.clamp_min(0.0) + (1.0 - holds) * (gain - 1.0).clamp_min(0.0)

    def observe(self, x: Tensor, reward: float, constraints: Tensor) -> None:
        """Add a row, and close the subproblem after its steps."""
        is_initial = len(self._points) < NUM_UNIFORM
        self._points = torch.cat([self._points, x.unsqueeze(0)])
        row = torch.cat([x.new_tensor([reward]), constraints])
        self._observed = torch.cat([self._observed, row.unsqueeze(0)])
        if is_initial or self.stopped_after is not None:
            return
        self._left -= 1
        if self._left == 0:
            self._close_subproblem()

    def _close_subproblem(self) -> None:
        solution = self._points[self._costs().argmin()]
        if self._is_reward:
            self._previous_z, self.x = self.z, solution
        else:
            self.z, self.y = solution, self.y + self.penalty * (self.x - solution)
            self._num_iterations += 1
            primal = float((self.x - self.z).norm())
            dual = float(self.penalty * (self.z - self._previous_z).norm())
            absolute, relative = math.sqrt(len(self.x)) * TOLERANCE, RELAXATION * TOLERANCE
            scale = max(float(self.x.norm()), float(self.z.norm()))
            is_small = dual < absolute + relative * float((self.penalty * self.y).norm())
            if primal < absolute + relative * scale and is_small:
                self.stopped_after = len(self._points)
            if primal > RESIDUAL_RATIO * dual:
                self.penalty *= PENALTY_FACTOR
            elif dual > RESIDUAL_RATIO * primal:
                self.penalty /= PENALTY_FACTOR
        self._is_reward = not self._is_reward
        steps = self._steps[0 if self._is_reward else 1]
        self._left = steps[0 if self._num_iterations == 0 else 1]


# --- playing


@dataclass(frozen=True, eq=False)
class ConstrainedMethod:
    """A method: its name, the problem that it plays, and what maps a seed to it."""

    name: str
    problem: PublishedProblem
    build: Callable[[int], Baseline]


def play_with_constraints(study: ArmsStudy, method: ConstrainedMethod) -> dict[str, Any]:
    """Play the trials of a study one after the other; every method meets the same noise.

    Returns:
        ``regret`` and the constraint's noiseless values ``constraint``, each ``num_trials x
        num_rounds``; the last ``multiplier``, NaN without one, and the round ``stopped`` after
        which a method had nothing more to do, each ``num_trials``.
    """
    problem, rounds = method.problem, study.num_rounds
    regrets, constraints, multipliers, stops = [], [], [], []
    for seed in study.seeds:
        player, played = method.build(seed), []
        for t in range(1, rounds + 1):
            x = player.choose(t)
            reward, observed = problem.observe(x, generator(seed, t, "constrained noise"))
            played.append(x.clone())
            player.observe(x, float(reward), observed)
        points = torch.stack(played)
        with torch.no_grad():
            regrets.append(float(problem.optimal_value) - problem.evaluate_true(points))
            constraints.append(problem.constraint_values(points)[:, 0])
        multipliers.append(float(player.multipliers[0]))
        stops.append(player.stopped_after or rounds)
    return {
        "regret": torch.stack(regrets).numpy(),
        "constraint": torch.stack(constraints).numpy(),
        "multiplier": np.array(multipliers),
        "stopped": np.array(stops),
    }


@dataclass(frozen=True, eq=False)
class Setting:
    """A problem with what its methods need.

    Attributes:
        name: The beginning of the panels' names.
        box: The problem on its box, with noise.
        num_points: Points of the grid per dimension.
        admm_steps: See :class:`ADMMBO`.
        bounds: Of reward and constraint, and Slater's gap, for the rule that updates every round.
        num_rounds: The horizon.
        constants: What the paper does not specify.
    """

    name: str
    box: GardnerProblem | RatesProblem
    num_points: int
    admm_steps: tuple[tuple[int, int], tuple[int, int]]
    bounds: tuple[float, float, float]
    num_rounds: int
    constants: Constants = Constants()

    @property
    def grid(self) -> Any:
        """The problem on its grid."""
        return _grid(self.box, self.num_points)

    def loop(self, name: str, rule: Rule, num_rounds: int | None = None) -> ConstrainedMethod:
        """Return a loop on the grid, with the models that the rule needs."""
        known, arms = self.constants, Arms(self.grid.choices)
        is_separate = rule.surrogate == "separate"
        kind = LagrangianUpperConfidenceBound if is_separate else ImprovedUpperConfidenceBound
        recipe = kind.with_options(**known.widths)
        kernel = MaternKernel(nu=2.5)
        model = BanditGP.with_kernel(kernel, noise=known.lam, lengthscale=known.lengthscale)
        horizon = num_rounds or self.num_rounds

        def build(seed: int) -> PlayedLoop:
            return PlayedLoop(
                BanditLoop(
                    arms,
                    model,
                    recipe,
                    constraints=rule,
                    horizon=horizon,
                    num_initial=NUM_INITIAL,
                    seed=seed,
                )
            )

        return ConstrainedMethod(name, self.grid, build)

    def every_round(self, name: str = "update every round") -> ConstrainedMethod:
        """Return the rule that updates every round, with the constants of its theory."""
        reward, constraint, gap = self.bounds
        rule = PrimalDual.with_constants(
            1,
            reward_bound=reward,
            constraint_bound=constraint,
            slater_gap=gap,
            horizon=self.num_rounds,
        )
        return self.loop(name, rule)

    def oco(self) -> ConstrainedMethod:
        """Return bandit online convex optimization on the box."""
        bounds = self.box.bounds
        return ConstrainedMethod("OCO, saddle point", self.box, lambda s: SaddlePoint(bounds, s))

    def admmbo(self) -> ConstrainedMethod:
        """Return ADMMBO on the box."""
        bounds, steps = self.box.bounds, self.admm_steps
        return ConstrainedMethod("ADMMBO", self.box, lambda seed: ADMMBO(bounds, steps, seed))


@cache
def _grid(box: GardnerProblem | RatesProblem, num_points: int) -> Any:
    return on_grid(box, num_points)


def epochs(
    number: int, surrogate: str = "relabeled", length: int = EPOCH_LENGTH
) -> MultiplicativeEpochs | AdditiveEpochs:
    """Return the rule of Algorithm 2 or 3."""
    if number == 2:
        return MultiplicativeEpochs(1, length, surrogate=surrogate)
    return AdditiveEpochs(1, length, step_size=STEP_SIZE, surrogate=surrogate)


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
    """Return a panel; its settings have the price of violation, to read regret with it.

    The price is the optimal multiplier of the box.
    """
    rounds, grid = num_rounds or setting.num_rounds, setting.grid
    price = float(setting.box.optimal_multiplier)
    lagrangian = grid.values - price * grid.constraint_table[:, 0]

    def make_study(first: int, count: int) -> ArmsStudy:
        nothing = torch.empty(0, 0, dtype=torch.float64)
        return ArmsStudy(nothing, nothing.new_zeros(count, 1), NOISE_STD, rounds, seed, first)

    return ArmsExperiment(
        name=f"{setting.name}-{kind}",
        title=title,
        published=published,
        num_trials=num_trials,
        num_rounds=rounds,
        make_study=make_study,
        make_methods=lambda study: list(methods),
        average=True,
        player=play_with_constraints,
        shown=running_averages,
        settings={
            "seed": seed,
            "num_points": setting.num_points,
            "horizon": setting.num_rounds,
            "constants": vars(setting.constants),
            "rules": (EPOCH_LENGTH, STEP_SIZE),
            "optimal_value_of_box": float(setting.box.optimal_value),
            "optimal_value_of_grid": float(grid.optimal_value),
            "price": price,
            "largest_priced_value_of_grid": float(lagrangian.max()),
        },
    )


# --- what is tabulated


def averages(curve: Curves) -> dict[str, Tensor]:
    """Return time averages of regret, signed violation and rectified violation.

    The positive part of signed violation is taken of the sum over rounds, so that slack offsets
    violation; that of the rectified one is taken in every round.
    """
    rounds = torch.arange(1.0, curve.regret.shape[1] + 1, dtype=torch.float64)
    constraint = curve.others["constraint"]
    return {
        "regret": curve.regret.cumsum(1) / rounds,
        "violation": constraint.cumsum(1).clamp_min(0.0) / rounds,
        "rectified": constraint.clamp_min(0.0).cumsum(1) / rounds,
    }


def running_averages(curve: Curves) -> dict[str, Tensor]:
    """Return regret and violation, with NaN after a run has stopped."""
    known = averages(curve)
    rounds = torch.arange(1, curve.regret.shape[1] + 1)
    after = rounds > curve.others["stopped"].unsqueeze(1)
    names = ("regret", "violation")
    return {f"time-averaged {name}": known[name].masked_fill(after, torch.nan) for name in names}


def tabulate_violation(
    panels: Sequence[ArmsExperiment], results: Sequence[Mapping[str, Curves]]
) -> list[dict[str, Any]]:
    """Return time averages half way and at the end, up to where a run has stopped."""
    rows = []
    for experiment, found in zip(panels, results, strict=True):
        for name, curve in found.items():
            known, stopped = averages(curve), curve.others["stopped"]
            for t in sorted({max(experiment.num_rounds // 2, 1), experiment.num_rounds}):
                row: dict[str, Any] = {
                    "experiment": experiment.name,
                    "method": name,
                    "trials": len(curve.regret),
                    "round": t,
                }
                for quantity, each in known.items():
                    at = (stopped.clamp_max(t) - 1).long().unsqueeze(1)
                    values = each.gather(1, at).squeeze(1)
                    row[f"{quantity}_mean"] = float(values.mean())
                    error = standard_error(values)
                    row[f"{quantity}_standard_error"] = error if error == error else 0.0
                    row[f"{quantity}_median"] = float(values.quantile(0.5))
                row["mean_stop"] = float(stopped.clamp_max(t).double().mean())
                multiplier = curve.others["multiplier"]
                row["median_last_multiplier"] = float(multiplier.quantile(0.5))
                rows.append(row)
    return rows


def report(
    panels: Sequence[ArmsExperiment], results: Sequence[Mapping[str, Curves]], folder: Path
) -> None:
    """Write ``violation.csv``."""
    write_csv(folder / "violation.csv", tabulate_violation(panels, results))


# --- experiments


def gardner(
    num_trials: int = 100,
    num_rounds: int = 350,
    seed: int = 0,
    num_points: int = 41,
    length: int = EPOCH_LENGTH,
    lengthscale: float = 1.0,
) -> list[ArmsExperiment]:
    """Return the small feasible region: Figures 2 to 5, and the epochs of Figure 1.

    Args:
        num_trials: The number of runs.
        num_rounds: The number of rounds of each.
        seed: Of noise and draws.
        num_points: Points of the grid per dimension.
        length: Rounds of an epoch.
        lengthscale: Of every model.
    """
    exact = Setting(
        "shi-gardner",
        GardnerProblem(NOISE_STD),
        num_points,
        ((10, 5), (50, 5)),
        (7.0, 1.95, 0.05),
        num_rounds,
        Constants(lengthscale=lengthscale),
    )
    noisy = replace(exact, box=GardnerProblem(NOISE_STD, NOISE_STD))
    lengths = [exact.loop(f"S = {S}", epochs(2, length=S)) for S in EPOCH_LENGTHS]
    title = "Algorithm 2 with epochs of several lengths"
    words = "Figure 1: more frequent updates, less violation and, for some, more regret"
    return [
        *_comparisons(exact, noisy, num_trials, seed, length),
        panel(exact, "epochs", title, words, lengths, min(num_trials, EPOCH_TRIALS), seed),
    ]


def rates(
    num_trials: int = 100,
    num_rounds: int = 350,
    seed: int = 0,
    num_points: int = 7,
    length: int = EPOCH_LENGTH,
) -> list[ArmsExperiment]:
    """Return the data rates, Figures 6 to 9; see :func:`gardner` for the arguments."""
    exact = Setting(
        "shi-rates",
        RatesProblem(NOISE_STD),
        num_points,
        ((20, 2), (20, 2)),
        (4.0, 3.2, 2.0),
        num_rounds,
    )
    noisy = replace(exact, box=RatesProblem(NOISE_STD, RATE_NOISE))
    return _comparisons(exact, noisy, num_trials, seed, length)


def _comparisons(
    exact: Setting, noisy: Setting, num_trials: int, seed: int, length: int
) -> list[ArmsExperiment]:
    panels = []
    for kind, setting, number in (("noiseless", exact, 2), ("noisy", noisy, 3)):
        name = f"Algorithm {number}"
        words = f"constraint observed {'exactly' if kind == 'noiseless' else 'with noise'}"
        relabeled, fresh, separate = (
            epochs(number, surrogate, length) for surrogate in ("relabeled", "fresh", "separate")
        )
        published = f"averages of {name} fall to 0, not those of OCO and ADMMBO"
        compared = [setting.loop(name, relabeled), setting.oco(), setting.admmbo()]
        further = [
            setting.loop(f"{name}, fresh", fresh),
            setting.loop(f"{name}, separate", separate),
            setting.every_round(),
        ]
        few = min(num_trials, FURTHER_TRIALS)
        panels += [
            panel(setting, kind, words, published, compared, num_trials, seed),
            panel(setting, f"{kind}-surrogates", f"{words}, others", "", further, few, seed),
        ]
    return panels


EXPERIMENTS = {
    "shi-gardner": Entry(gardner, "Shi and Eryilmaz 2022, Figures 1 to 5", report=report),
    "shi-rates": Entry(
        rates, "Shi and Eryilmaz 2022, Figures 6 to 9, with substitute constants", report=report
    ),
}

"""How fast is the best of finitely many arms found, and how fast is it certified?

Functions of known norm on arms with correlated rewards are played with top-two Thompson sampling
(Russo 2020), with its variant that computes the challenger directly (T3C, Shang et al. 2020), with
Thompson sampling, with IGP-UCB, and uniformly at random. All methods use the same certificate, that
of ``BanditLoop.recommend()`` with the confidence bounds of IGP-UCB for every ``lam``, which hold
however the arms are chosen. The experiment measures the share of functions whose best arm is
recommended after a budget, and the number of rounds until the certificate is below a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    ArmsEngine,
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
    TopTwoThompsonSampling,
)
from botorch_bandits.domains import Arms
from botorch_bandits.models import ArmsPrior, double_kernel
from botorch_bandits.random_streams import derive_seed, generator

RKHS_NORM, NOISE_STD, DELTA = 2.0, 0.2, 0.05
NUM_CENTERS = 8
NUM_ROUNDS, EARLY = 400, 40
TOLERANCE = 1.0
AT_ONCE = 25
"""The number of functions that are played at once; the results do not depend on it."""

METHODS: dict[str, AcquisitionRecipe | None] = {
    "TTTS": TopTwoThompsonSampling.with_options(),
    "T3C": TopTwoThompsonSampling.with_options(max_draws=0),
    "Thompson sampling": GPThompsonSampling.with_options(width=1.0),
    "IGP-UCB": ImprovedUpperConfidenceBound.with_options(
        rkhs_bound=RKHS_NORM, noise_bound=NOISE_STD, delta=DELTA, any_lambda=True
    ),
    "uniform": None,
}


@dataclass(frozen=True, eq=False)
class _Problem:
    """The arms and the kernel of the functions on them."""

    name: str
    choices: Tensor
    kernel: Kernel
    lengthscale: float

    @property
    def matrix(self) -> Tensor:
        """``num_arms x num_arms``."""
        with torch.no_grad():
            kernel = double_kernel(self.kernel, lengthscale=self.lengthscale)
            matrix: Tensor = kernel(self.choices).to_dense()
        return matrix


def _problems() -> list[_Problem]:
    line = torch.linspace(0, 1, 20, dtype=torch.float64)
    square = torch.linspace(0, 1, 5, dtype=torch.float64)
    return [
        _Problem("line, smooth", line.unsqueeze(-1), RBFKernel(), 0.15),
        _Problem("line, rough", line.unsqueeze(-1), MaternKernel(nu=1.5), 0.1),
        _Problem("square", torch.cartesian_prod(square, square), MaternKernel(nu=2.5), 0.4),
    ]


def identification(num_trials: int = 50, seed: int = 0) -> list[dict[str, Any]]:
    """Return a row for each problem and method.

    Args:
        num_trials: The number of functions per problem, the same for each method.
        seed: Seeds functions, noise and draws.
    """
    rows = []
    for problem in _problems():
        for name, recipe in METHODS.items():
            played = [_play(problem, recipe, *part, seed) for part in _parts(num_trials)]
            found, rounds, missed = (torch.cat(each) for each in zip(*played, strict=True))
            certified = rounds <= NUM_ROUNDS
            mean = rounds.clamp_max(NUM_ROUNDS).double()
            rows.append(
                {
                    "problem": problem.name,
                    "method": name,
                    "trials": num_trials,
                    **_share(f"correct_after_{EARLY}", found[:, 0]),
                    **_share(f"correct_after_{NUM_ROUNDS}", found[:, 1]),
                    "certified": int(certified.sum()),
                    "certified_wrongly": int((certified & missed).sum()),
                    "mean_rounds": round(float(mean.mean()), 1),
                    "rounds_half_width": round(1.96 * float(mean.std()) / len(mean) ** 0.5, 1),
                }
            )
    return rows


def _parts(num_trials: int) -> Iterator[tuple[int, int]]:
    for first in range(0, num_trials, AT_ONCE):
        yield first, min(AT_ONCE, num_trials - first)


def _share(name: str, right: Tensor) -> dict[str, float]:
    """Return a share and its Wilson interval at 95 %."""
    n, p, z = len(right), float(right.double().mean()), 1.96
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = max(middle - half, 0.0), min(middle + half, 1.0)
    return {name: round(p, 3), f"{name}_low": round(low, 3), f"{name}_high": round(high, 3)}


def _play(
    problem: _Problem, recipe: AcquisitionRecipe | None, first: int, count: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what was found after both budgets, when it was certified, and whether it was wrong."""
    matrix, trials = problem.matrix, range(first, first + count)
    values = torch.stack([_function(matrix, seed, trial) for trial in trials])
    seeds = [derive_seed(seed, trial, "replicate") for trial in trials]
    noise = torch.stack(
        [
            torch.randn(
                NUM_ROUNDS, dtype=torch.float64, generator=generator(seed, trial, "outcome noise")
            )
            for trial in trials
        ]
    )
    rule = None if recipe is None else recipe.arms_rule(Arms(problem.choices))
    lam = NOISE_STD**2
    engine = ArmsEngine(rule, ArmsPrior.from_matrix(matrix), lam, 1.0, seeds)
    best = values.argmax(-1)
    found = torch.zeros(count, 2, dtype=torch.bool)
    rounds = torch.full((count,), NUM_ROUNDS + 1)
    missed = torch.zeros(count, dtype=torch.bool)
    for t in range(1, NUM_ROUNDS + 1):
        arm = engine.choose_uniformly(t) if rule is None else engine.choose(engine.look(t))
        at_arm = values.gather(-1, arm.unsqueeze(-1)).squeeze(-1)
        engine.observe(arm, at_arm + NOISE_STD * noise[:, t - 1])
        posterior = engine.posterior
        gain = posterior.information_gain.unsqueeze(-1)
        width = RKHS_NORM + NOISE_STD / lam**0.5 * (2.0 * (gain - math.log(DELTA))).sqrt()
        half = width * posterior.standard_deviation
        lower, upper = posterior.mean - half, posterior.mean + half
        recommended = lower.argmax(-1)
        certificate = upper.amax(-1) - lower.amax(-1)
        is_new = (certificate <= TOLERANCE) & (rounds > NUM_ROUNDS)
        regret = values.amax(-1) - values.gather(-1, recommended.unsqueeze(-1)).squeeze(-1)
        missed |= is_new & (regret > TOLERANCE)
        rounds[is_new] = t
        if t in (EARLY, NUM_ROUNDS):
            found[:, int(t == NUM_ROUNDS)] = recommended == best
    return found, rounds, missed


def _function(matrix: Tensor, seed: int, trial: int) -> Tensor:
    """Return a function of norm :data:`RKHS_NORM` on the arms."""
    stream = generator(seed, trial, "rkhs function")
    centers = torch.randperm(len(matrix), generator=stream)[:NUM_CENTERS]
    weights = torch.randn(NUM_CENTERS, dtype=torch.float64, generator=stream)
    norm = (weights @ matrix[centers][:, centers] @ weights).sqrt()
    return RKHS_NORM / norm * (matrix[:, centers] @ weights)

"""Beyond the papers: rewards and constraints that vary with the round.

Shi and Eryilmaz 2022 count regret and violation in realized functions (Appendices B and D). Reward
and constraint are functions of known norm on arms, around which the functions of the rounds vary:
by shocks that all points share, by quick waves, or by a drift that does not end within the run.
Algorithm 3 is played with epochs that begin without data, once told how much the functions vary
within an epoch and once not told, and with all outcomes relabeled. Regret is against the best arm
that meets the constraint of every round (with shocks, the mean constraint), in the rewards of the
rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from botorch_bandits import run
from botorch_bandits.acquisition import ImprovedUpperConfidenceBound
from botorch_bandits.constraints import AdditiveEpochs
from botorch_bandits.domains import Arms
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGP
from botorch_bandits.problems import ArmsProblem
from botorch_bandits.random_streams import derive_seed, generator
from papers.environments import VaryingProblem, best_fixed_arm

NUM_ARMS, NUM_CENTERS, LENGTHSCALE = 40, 8, 0.2
NUM_ROUNDS, EPOCH_LENGTH, STEP_SIZE = 500, 50, 0.2
NORM, MARGIN = 1.5, 0.5
"""The norm of the reward, and the slack with which some arm meets the mean constraint."""

LAM, NOISE_STD, DELTA = 0.25, 0.1, 0.1
MAX_MULTIPLIER = 1.0
"""The norm and variation of penalized functions are stated for multipliers up to this value."""


@dataclass(frozen=True)
class Kind:
    """How functions vary.

    Attributes:
        name: The name in tables.
        kind: The kind of :class:`~papers.environments.VaryingProblem`.
        reward: The amplitude by which the reward varies over the run.
        constraint: The amplitude by which the constraint varies.
        period: The period in rounds.
        is_shared: Whether all points of a round move together.
        within: The share of these amplitudes by which functions within an epoch differ from a fixed
            one.
    """

    name: str
    kind: str
    reward: float
    constraint: float
    period: float
    is_shared: bool
    within: float

    @property
    def noise_bound(self) -> float:
        """The bound on the noise of outcomes, where shocks are noise that all points share."""
        shock = max(self.reward, self.constraint) if self.kind == "shocks" else 0.0
        return math.hypot(NOISE_STD, shock)

    @property
    def variation(self) -> float:
        """The variation of the penalized function within an epoch."""
        if self.kind == "shocks":
            return 0.0
        return self.within * (self.reward + MAX_MULTIPLIER * self.constraint)


# the difference of a sine with the drift's period from its value in the middle of an epoch
_WITHIN = 2.0 * math.sin(math.pi * EPOCH_LENGTH / (8.0 * NUM_ROUNDS))
KINDS = (
    Kind("shocks", "shocks", 0.3, 0.3, 1.0, True, 0.0),
    Kind("waves", "waves", 0.05, 0.05, 7.0, False, 1.0),
    Kind("drift", "waves", 0.5, 0.2, 4.0 * NUM_ROUNDS, False, _WITHIN),
)
METHODS = {
    "fresh, told of the variation": ("fresh", True),
    "fresh, not told": ("fresh", False),
    "relabeled, not told": ("relabeled", False),
}
"""The surrogate of each method, and whether its width is told how much functions vary."""


def varying(num_trials: int = 20, seed: int = 0) -> list[dict[str, Any]]:
    """Return a row for each kind of variation and each method.

    Args:
        num_trials: The number of environments of each kind, the same for each method.
        seed: Seeds functions, shocks and noise.
    """
    rows = []
    for kind in KINDS:
        for name, (surrogate, is_told) in METHODS.items():
            if is_told and not kind.variation:
                continue
            played = [
                _play(kind, surrogate, is_told, derive_seed(seed, trial, "varying"))
                for trial in range(num_trials)
            ]
            rows.append({"kind": kind.name, "method": name, "trials": num_trials, **_row(played)})
    return rows


def _row(played: list[dict[str, float]]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for quantity in ("regret", "violation", "multiplier"):
        values = torch.tensor([each[quantity] for each in played], dtype=torch.float64)
        error = float(values.std()) / len(values) ** 0.5 if len(values) > 1 else 0.0
        row[f"{quantity}_mean"] = round(float(values.mean()), 4)
        row[f"{quantity}_standard_error"] = round(error, 4)
    held = [each for each in played if "regret_bound" in each]
    row["guaranteed"] = len(held)
    for quantity in ("regret", "violation"):
        bounds = [each[f"{quantity}_bound"] for each in held]
        row[f"{quantity}_bound"] = round(sum(bounds) / len(bounds), 4) if bounds else ""
        exceeded = [each[quantity] > each[f"{quantity}_bound"] for each in held]
        row[f"{quantity}_exceeded"] = sum(exceeded) if held else ""
    return row


def environment(
    kind: Kind, seed: int, constraint_noise_std: float | None = NOISE_STD
) -> tuple[VaryingProblem, tuple[float, float]]:
    """Return an environment with one constraint, and the norms of its reward and constraint.

    Args:
        kind: How functions vary.
        seed: Seeds everything.
        constraint_noise_std: The noise of the constraint's observations; None for exact ones.
    """
    choices = torch.linspace(0, 1, NUM_ARMS, dtype=torch.float64).unsqueeze(-1)
    matrix = kernel()(choices).to_dense().detach()
    values, norms, shapes = [], [], []
    for j in range(2):
        stream = generator(seed, j, "varying function")
        weights = torch.zeros(NUM_ARMS, dtype=torch.float64)
        centers = torch.randperm(NUM_ARMS, generator=stream)[:NUM_CENTERS]
        weights[centers] = torch.randn(NUM_CENTERS, dtype=torch.float64, generator=stream)
        function = matrix @ weights
        if j and float(function.min()) > -float(function.max()):
            function = -function  # choose the sign whose largest excursion is feasible
        scale = MARGIN / -float(function.min()) if j else NORM / _norm(weights, matrix)
        values.append(scale * function)
        norms.append(scale * _norm(weights, matrix))
        shape = matrix @ torch.randn(NUM_ARMS, dtype=torch.float64, generator=stream)
        shapes.append(None if kind.is_shared else ArmsProblem(choices, shape / shape.abs().max()))
    noise = (NOISE_STD, constraint_noise_std)
    problems = [ArmsProblem(choices, *pair) for pair in zip(values, noise, strict=True)]
    given = [(kind.constraint, problems[1], shapes[1]), (kind.reward, problems[0], shapes[0])]
    made: list[VaryingProblem] = []
    for j, (amplitude, mean, shape) in enumerate(given):
        moves = kind.kind, kind.period, derive_seed(seed, j, "shocks"), shape
        made.append(VaryingProblem(mean, amplitude, *moves, constraints=tuple(made)))
    return made[1], (norms[0], norms[1])


def compared_with(problem: VaryingProblem, kind: Kind) -> VaryingProblem:
    """Return the environment whose best arm is the reference for regret.

    With shocks, which are noise, that arm meets the mean constraint. Otherwise it meets the
    constraint of every round.

    Args:
        problem: The problem to play.
        kind: How its functions vary.
    """
    if kind.kind != "shocks":
        return problem
    (constraint,) = problem.constraints
    assert isinstance(constraint, VaryingProblem)
    return VaryingProblem(
        problem.mean,
        problem.amplitude,
        problem.kind,
        problem.period,
        problem.seed,
        problem.shape,
        (constraint.mean,),
    )


def kernel() -> MaternKernel:
    """Return the kernel of all functions and of every model."""
    made = MaternKernel(nu=2.5).double()
    made.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
    return made


def _norm(weights: Tensor, matrix: Tensor) -> float:
    return float(weights @ matrix @ weights) ** 0.5


def _play(kind: Kind, surrogate: str, is_told: bool, seed: int) -> dict[str, float]:
    """Play one run; all results are averages per round."""
    problem, norms = environment(kind, seed)
    assert problem.choices is not None
    loop = BanditLoop(
        Arms(problem.choices),
        BanditGP.with_kernel(kernel(), noise=LAM),
        ImprovedUpperConfidenceBound.with_options(
            rkhs_bound=norms[0] + MAX_MULTIPLIER * norms[1],
            noise_bound=kind.noise_bound,
            delta=DELTA,
            any_lambda=True,
            variation=kind.variation if is_told else 0.0,
        ),
        constraints=AdditiveEpochs(1, EPOCH_LENGTH, STEP_SIZE, surrogate=surrogate),
        horizon=NUM_ROUNDS,
        seed=seed % 2**31,
    )
    run(loop, problem, NUM_ROUNDS, progress=False)
    X = loop.history.inputs()
    rounds = range(1, NUM_ROUNDS + 1)
    earned = sum(float(problem.evaluate_true(x, t)) for x, t in zip(X, rounds, strict=True))
    summed = sum(float(problem.constraint_values(x, t)) for x, t in zip(X, rounds, strict=True))
    _, best = best_fixed_arm(compared_with(problem, kind), NUM_ROUNDS)
    told = loop.guarantee()
    multipliers = [query.diagnostics["multiplier_1"] for query in loop.history.queries]
    found = {
        "regret": (float(best.sum()) - earned) / NUM_ROUNDS,
        "violation": max(summed, 0.0) / NUM_ROUNDS,
        "multiplier": max(multipliers),
    }
    # no guarantee holds if functions vary and the width is not told, whatever it reports
    is_true = is_told or not kind.variation
    if told.holds and is_true and found["multiplier"] <= MAX_MULTIPLIER:
        assert told.regret is not None
        assert told.violation is not None
        found["regret_bound"] = float(told.regret.bound or 0.0) / NUM_ROUNDS
        found["violation_bound"] = float(told.violation.bound or 0.0) / NUM_ROUNDS
    return found

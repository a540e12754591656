"""Beyond the papers: restarting against models that forget.

Every method plays the same upper confidence bound with the same constant width on the correct
kernel. The environment switches between independent draws of a Gaussian process, drifts as
TV-GP-UCB assumes, or stays the same. Each way of forgetting has two settings that were fixed
beforehand, as does the detector: a window of the length of a period and half of that, weights that
fade at the same pace, and the drift's own rate and three times that rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe, ArmsEngine, GPUpperConfidenceBound
from botorch_bandits.change_points import ChangePointRestart, NeverRestart, OracleRestart, Restart
from botorch_bandits.domains import first_of_the_largest
from botorch_bandits.forgetting import (
    ExponentialWeights,
    Forgetting,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.problems import (
    ChangingProblem,
    DriftingGP,
    evenly_spaced_change_points,
    switching_gp_draws,
)
from botorch_bandits.random_streams import RandomBlocks, derive_seed
from botorch_bandits.simulation import ReplicateSegments, play_arms, rewards_of
from papers.avanesov import NOISE_STD, arms_of, calibrated_restart, detector, kernel, prior_of
from papers.trials import ArmsExperiment, ArmsStudy, Method


@dataclass(frozen=True, eq=False, kw_only=True)
class EnvironmentStudy(ArmsStudy):
    """Environments on the same arms.

    Attributes:
        environments: One per trial, in place of ``values``.
        change_points: The rounds of abrupt changes, which only an oracle uses.
    """

    environments: Sequence[ChangingProblem]
    change_points: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NonStationaryMethod(Method):
    """A method that restarts, forgets, or does neither.

    Attributes:
        restart: Maps the study to the restart rule.
        forgetting: How its model forgets old outcomes; its score is then the mean plus ``width``
            deviations.
        width: See ``forgetting``.
    """

    restart: Callable[[EnvironmentStudy], Restart | None] | None = None
    forgetting: Forgetting | None = None
    width: float = 2.0


def forgotten_posterior(
    kernel_matrix: Tensor,
    lam: float,
    forgetting: Forgetting,
    arms: Tensor,
    outcomes: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the mean and variance of all arms under the model of the next round.

    Args:
        kernel_matrix: ``num_arms x num_arms``.
        lam: The regularization.
        forgetting: How old outcomes are forgotten.
        arms: ``num_trials x n``; the arms of rounds ``1 .. n``.
        outcomes: ``num_trials x n``; their outcomes.

    Returns:
        Two tensors, ``num_trials x num_arms``.
    """
    rounds = torch.arange(1, arms.shape[1] + 1, dtype=torch.float64)  # powers are float64, too
    now = len(rounds) + 1
    noise = torch.full((len(rounds),), lam, dtype=torch.float64)
    if isinstance(forgetting, SlidingWindow):
        kept = forgetting.keeps(rounds, now)
        arms, outcomes, rounds, noise = arms[:, kept], outcomes[:, kept], rounds[kept], noise[kept]
    if isinstance(forgetting, ExponentialWeights):
        noise = lam / forgetting.weights(rounds, now)
    gram = kernel_matrix[arms.unsqueeze(-1), arms.unsqueeze(-2)]
    cross = kernel_matrix[arms]  # num_trials x n x num_arms
    if isinstance(forgetting, TimeVaryingKernel):
        root = (1.0 - forgetting.rate) ** 0.5
        gram = gram * root ** (rounds.unsqueeze(-1) - rounds).abs()
        cross = cross * (root ** (now - rounds)).unsqueeze(-1)
    factor = torch.linalg.cholesky(gram + noise.diag())
    seen = torch.cat([cross, outcomes.unsqueeze(-1)], -1)
    halves = torch.linalg.solve_triangular(factor, seen, upper=False)
    mean = (halves[..., :-1] * halves[..., -1:]).sum(-2)
    variance = kernel_matrix.diagonal() - halves[..., :-1].square().sum(-2)
    return mean, variance.clamp_min(0.0)


def play_environments(
    study: ArmsStudy, method: Method, on_round: Callable[[int], None]
) -> dict[str, Any]:
    """Play a study with a method, as a loop with the same arguments does.

    Returns:
        ``regret`` against the best arm of each round, ``num_trials x num_rounds``; ``resets`` and
        ``explored``, the number of restarts and of uniformly drawn arms of each trial.
    """
    assert isinstance(study, EnvironmentStudy)
    assert isinstance(method, NonStationaryMethod)
    assert isinstance(method.acquisition, AcquisitionRecipe)
    count = len(study.environments)
    if method.forgetting is not None:
        regret = _play_forgetting(study, method, method.forgetting, on_round)
        none = torch.zeros(count).numpy()
        return {"regret": regret.numpy(), "resets": none, "explored": none}
    restart = None if method.restart is None else method.restart(study)
    arms = arms_of(len(study.kernel_matrix))
    rule, segments = method.acquisition.arms_rule(arms), None
    if restart is not None:
        segments = ReplicateSegments(restart, arms, count)
        rule = segments.rule(method.acquisition, arms)
    played = play_arms(
        ArmsEngine(rule, study.prior, method.lam, 1.0, study.seeds),
        rewards_of(study.environments, count, "cpu"),
        study.noise_std,
        study.num_rounds,
        study.seeds,
        with_bounds=False,
        on_round=on_round,
        segments=segments,
    )
    resets, explored = torch.zeros(count), torch.zeros(count)
    if played.resets is not None and played.explored is not None:
        resets = torch.tensor([float(len(own)) for own in played.resets])
        explored = played.explored.sum(-1).float()
    return {
        "regret": played.regret.numpy(),
        "resets": resets.numpy(),
        "explored": explored.numpy(),
    }


def _play_forgetting(
    study: EnvironmentStudy,
    method: NonStationaryMethod,
    forgetting: Forgetting,
    on_round: Callable[[int], None],
) -> Tensor:
    count, rounds = len(study.environments), study.num_rounds
    noise = RandomBlocks(study.seeds, "noise")
    arms = torch.zeros(count, rounds, dtype=torch.long)
    outcomes = torch.zeros(count, rounds, dtype=torch.float64)
    regret = torch.zeros(count, rounds, dtype=torch.float64)
    for t in range(rounds):
        mean, variance = forgotten_posterior(
            study.kernel_matrix, float(method.lam), forgetting, arms[:, :t], outcomes[:, :t]
        )
        arm = first_of_the_largest(mean + method.width * variance.sqrt())
        values = torch.stack([e.arm_values(t + 1) for e in study.environments])
        value = values.gather(-1, arm.unsqueeze(-1)).squeeze(-1)
        arms[:, t] = arm
        outcomes[:, t] = value + study.noise_std * noise.at(t + 1)
        regret[:, t] = values.amax(-1) - value
        on_round(t + 1)
    return regret


NUM_ARMS, NUM_PERIODS, WIDTH = 100, 4, 2.0
DRIFT = 0.01
"""The covariance of two rounds halves in 138 rounds."""

FALSE_ALARM_RATE, NUM_SIMULATIONS = 0.1, 500
"""The false-alarm rate of the calibrated threshold over a run's uniform queries without a reset."""

NEVER = "never restarts"
PANELS = {
    "abrupt": f"{NUM_PERIODS} periods",
    "drift": f"drift of rate {DRIFT:g}",
    "stationary": "no change",
}


def forgetting(
    num_trials: int = 30,
    num_rounds: int = 400,
    seed: int = 0,
    num_arms: int = NUM_ARMS,
    chunk: int = 15,
) -> list[ArmsExperiment]:
    """Return a panel of abrupt changes, one of a drift and one without a change.

    Args:
        num_trials: Environments per panel.
        num_rounds: The horizon.
        seed: Seeds environments, noise and draws.
        num_arms: Evenly spaced points of [0, 5].
        chunk: Trials per file.
    """
    settings = {
        "seed": seed,
        "num_arms": num_arms,
        "num_periods": NUM_PERIODS,
        "drift": DRIFT,
        "noise_std": NOISE_STD,
        "width": WIDTH,
        "calibration": (FALSE_ALARM_RATE, NUM_SIMULATIONS),
    }
    return [
        ArmsExperiment(
            name=f"beyond-forgetting-{kind}",
            title=title,
            published="",
            num_trials=num_trials,
            num_rounds=num_rounds,
            make_study=partial(_make_study, kind, num_rounds, num_arms, seed),
            make_methods=_methods,
            player=play_environments,
            chunk=chunk,
            settings=settings,
            tabulated=("resets", "explored"),
        )
        for kind, title in PANELS.items()
    ]


def _make_study(
    kind: str, num_rounds: int, num_arms: int, seed: int, first: int, count: int
) -> EnvironmentStudy:
    own = derive_seed(seed, 0, f"beyond-forgetting-{kind}")
    arms = arms_of(num_arms)
    num_periods = NUM_PERIODS if kind == "abrupt" and num_rounds >= NUM_PERIODS else 1
    changes = evenly_spaced_change_points(num_rounds, num_periods)
    environments: list[ChangingProblem] = []
    for trial in range(first, first + count):
        drawn = derive_seed(own, trial, "environment")
        if kind == "drift":
            environments.append(DriftingGP(kernel(), arms, DRIFT, drawn, NOISE_STD))
        else:
            environments.append(switching_gp_draws(kernel(), arms, changes, drawn, NOISE_STD))
    matrix = prior_of(num_arms).matrix
    assert matrix is not None
    return EnvironmentStudy(
        kernel_matrix=matrix,
        values=torch.zeros(count, 1, dtype=torch.float64),
        noise_std=NOISE_STD,
        num_rounds=num_rounds,
        seed=own,
        first_trial=first,
        environments=environments,
        change_points=changes,
    )


def _methods(study: ArmsStudy) -> list[NonStationaryMethod]:
    assert isinstance(study, EnvironmentStudy)
    recipe = GPUpperConfidenceBound.with_options(width=WIDTH)
    method = partial(NonStationaryMethod, acquisition=recipe, width=WIDTH, lam=NOISE_STD**2)
    methods = [
        method(NEVER),
        method("explores, never restarts", restart=lambda study: NeverRestart()),
        method("restart, published threshold", restart=_published),
        method("restart, calibrated threshold", restart=_calibrated),
    ]
    if study.change_points:
        methods.append(method("restart, oracle", restart=_oracle))
    for length in (50, 100):
        methods.append(method(f"window {length}", forgetting=SlidingWindow(length)))
    for discount in (0.98, 0.99):
        methods.append(method(f"weights {discount}", forgetting=ExponentialWeights(discount)))
    for rate in (DRIFT, 3 * DRIFT):
        methods.append(method(f"time kernel {rate:g}", forgetting=TimeVaryingKernel(rate)))
    return methods


def _published(study: EnvironmentStudy) -> Restart:
    return ChangePointRestart(detector=detector())


def _calibrated(study: EnvironmentStudy) -> Restart:
    return _calibrated_restart(len(study.kernel_matrix), study.num_rounds)


@cache
def _calibrated_restart(num_arms: int, num_rounds: int) -> Restart:
    return calibrated_restart(
        detector(),
        arms_of(num_arms),
        num_rounds,
        noise_std=NOISE_STD,
        false_alarm_rate=FALSE_ALARM_RATE,
        num_simulations=NUM_SIMULATIONS,
    )


def _oracle(study: EnvironmentStudy) -> Restart:
    return OracleRestart(change_points=study.change_points, exploration=None)

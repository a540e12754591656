"""Environments that change, played by methods that begin anew or forget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.acquisition.arms_player import ArmsPlayer
from botorch_bandits.change_points import Restart
from botorch_bandits.domains import first_of_the_largest
from botorch_bandits.experiments.arms_study import ArmsStudy, Method
from botorch_bandits.experiments.avanesov_study import arms_of
from botorch_bandits.forgetting import (
    ExponentialWeights,
    Forgetting,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.problems import ChangingProblem
from botorch_bandits.random_streams import RandomBlocks
from botorch_bandits.simulation import ReplicateSegments, play_arms
from botorch_bandits.simulation.rewards import rewards_of


@dataclass(frozen=True, eq=False, kw_only=True)
class EnvironmentStudy(ArmsStudy):
    """Environments on the same arms.

    Attributes:
        environments: One a trial, in place of ``values``.
        change_points: Where they change abruptly; an oracle alone looks at them.
    """

    environments: Sequence[ChangingProblem]
    change_points: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NonStationaryMethod(Method):
    """A method that begins anew, or forgets, or neither.

    Attributes:
        restart: From the study to the rule by which it begins anew.
        forgetting: What its model makes of old outcomes; its score is the mean plus ``width``
            deviations then.
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
    """Return mean and variance of all arms by the model of the next round.

    Args:
        kernel_matrix: ``num_arms x num_arms``.
        lam: The regularisation.
        forgetting: What becomes of old outcomes.
        arms: ``num_trials x n``; the arms of rounds ``1 .. n``.
        outcomes: Likewise.

    Returns:
        Two tensors, ``num_trials x num_arms``.
    """
    rounds = torch.arange(1, arms.shape[1] + 1)
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
    """Play a study with a method, as a loop with these arguments does.

    Returns:
        ``regret`` against the best arm of each round, ``num_trials x num_rounds``; ``resets`` and
        ``explored``, how often each trial began anew and how many arms it drew uniformly.
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
        ArmsPlayer(rule, study.prior, method.lam, 1.0, study.seeds),
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

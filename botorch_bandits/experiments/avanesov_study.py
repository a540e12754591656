"""Environments that change and policies that begin anew: what Avanesov's experiments share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe, ChangePointUpperConfidenceBound
from botorch_bandits.acquisition.arms_player import ArmsPlayer
from botorch_bandits.change_points import Restart
from botorch_bandits.domains import Arms
from botorch_bandits.experiments.arms_study import ArmsStudy, Method
from botorch_bandits.models.arms_prior import ArmsPrior
from botorch_bandits.models.kernels import double_kernel
from botorch_bandits.problems import evenly_spaced_change_points
from botorch_bandits.problems.changing_builders import gp_draws_of_periods
from botorch_bandits.random_streams import derive_seed
from botorch_bandits.simulation import PeriodRewards, ReplicateSegments, play_arms

SMOOTHNESS, LENGTHSCALE, LENGTH = 2.5, 1.0, 5.0
NOISE_STD = 0.05
NUM_ARMS = 1000


@dataclass(frozen=True, eq=False, kw_only=True)
class ChangingStudy(ArmsStudy):
    """Environments on the same arms that change at the same times.

    Attributes:
        periods: ``num_functions x num_periods x num_arms`` noiseless rewards, in place of
            ``values``.
        change_points: The last round of each period but the last one.
    """

    periods: Tensor
    change_points: tuple[int, ...]

    @property
    def arms(self) -> Arms:
        """The arms."""
        return arms_of(self.periods.shape[-1])

    @property
    def prior(self) -> ArmsPrior:
        """The prior of the arms."""
        return prior_of(self.periods.shape[-1])


@dataclass(frozen=True, kw_only=True)
class RestartMethod(Method):
    """A method that begins anew.

    Attributes:
        restart: From the change points, which only an oracle looks at, to the rule.
    """

    restart: Callable[[tuple[int, ...]], Restart]


@cache
def arms_of(num_arms: int) -> Arms:
    """Return evenly spaced points of [0, 5]."""
    return Arms(torch.linspace(0.0, LENGTH, num_arms, dtype=torch.float64).unsqueeze(-1))


@cache
def prior_of(num_arms: int) -> ArmsPrior:
    """Return their prior."""
    return ArmsPrior.from_kernel(kernel(), arms_of(num_arms).choices)


def kernel() -> MaternKernel:
    """Return the kernel of the functions and of every model: Matern 5/2, lengthscale 1."""
    made = double_kernel(MaternKernel(nu=SMOOTHNESS), lengthscale=LENGTHSCALE)
    assert isinstance(made, MaternKernel)
    return made


def acquisition(horizon: int, width_constant: float) -> AcquisitionRecipe:
    """Return the upper confidence bound of Theorem 3.1."""
    return ChangePointUpperConfidenceBound.with_options(
        horizon=horizon, smoothness=SMOOTHNESS, width_constant=width_constant
    )


def make_study(
    name: str,
    num_rounds: int,
    num_periods: int,
    num_arms: int,
    num_trials: int,
    seed: int,
    first: int,
    count: int,
) -> ChangingStudy:
    """Return the study of some trials; a trial's functions do not depend on the others.

    Args:
        name: Of the panel: panels have independent functions.
        num_rounds: The horizon.
        num_periods: Of equal length.
        num_arms: How many.
        num_trials: Of the whole experiment.
        seed: Seeds functions and noise.
        first: The first trial.
        count: How many.
    """
    own = derive_seed(seed, 0, name)
    periods = _functions(own, num_arms, num_periods, max(num_trials, first + count))
    periods = periods[first : first + count]
    return ChangingStudy(
        kernel_matrix=torch.empty(0, 0, dtype=torch.float64),  # the prior is made of the kernel
        values=periods[:, 0],
        noise_std=NOISE_STD,
        num_rounds=num_rounds,
        seed=own,
        first_trial=first,
        periods=periods,
        change_points=evenly_spaced_change_points(num_rounds, num_periods),
    )


@cache
def _functions(seed: int, num_arms: int, num_periods: int, num_trials: int) -> Tensor:
    seeds = [derive_seed(seed, trial, "environment") for trial in range(num_trials)]
    return gp_draws_of_periods(kernel(), arms_of(num_arms), num_periods, seeds)


def play_changing(
    study: ArmsStudy, method: Method, on_round: Callable[[int], None]
) -> dict[str, Any]:
    """Play a study with a method.

    Returns:
        ``num_functions x num_rounds`` arrays: ``regret`` against the best arm of the round,
        ``resets`` (whether the method began anew behind a round) and ``explored`` (whether it drew
        its arm uniformly).
    """
    assert isinstance(study, ChangingStudy)
    assert isinstance(method, RestartMethod)
    restart = method.restart(study.change_points)
    segments = ReplicateSegments(restart, study.arms, len(study.values))
    rule = segments.rule(method.acquisition, study.arms)
    played = play_arms(
        ArmsPlayer(rule, study.prior, method.lam, 1.0, study.seeds),
        PeriodRewards(study.periods, study.change_points),
        study.noise_std,
        study.num_rounds,
        study.seeds,
        with_bounds=False,
        on_round=on_round,
        segments=segments,
    )
    assert played.resets is not None
    assert played.explored is not None
    resets = torch.zeros_like(played.explored)
    for row, own in zip(resets, played.resets, strict=True):
        for reset in own:
            row[reset.after_round - 1] = True
    return {
        "regret": played.regret.numpy(),
        "resets": resets.numpy(),
        "explored": played.explored.numpy(),
    }

"""Beyond the papers: the evidence of all outcomes, half-samples, windows and a time kernel.

The setting is that of Avanesov's Figure 3: four periods of 300 rounds, with its functions, noise
and upper confidence bound. Policies that forget have a window of half a period, or a kernel in time
whose covariance halves in 138 rounds. They play two deviations above the mean, because with
Avanesov's width of 7 to 20, a model whose deviation does not vanish would explore forever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.change_points import (
    ChangePointRestart,
    EvidenceRestart,
    NeverRestart,
    OracleRestart,
    Restart,
)
from botorch_bandits.confidence import PUBLISHED_WIDTH_CONSTANT
from botorch_bandits.domains import first_of_the_largest
from botorch_bandits.forgetting import SlidingWindow, TimeVaryingKernel
from botorch_bandits.random_streams import RandomBlocks
from papers.avanesov import (
    NOISE_STD,
    NUM_ARMS,
    ChangingStudy,
    RestartMethod,
    acquisition,
    detector,
    make_study,
    play_changing,
)
from papers.beyond_forgetting import DRIFT, WIDTH, forgotten_posterior
from papers.trials import ArmsExperiment, ArmsStudy, Method

NUM_PERIODS = 4

NEVER, ORACLE, HALVES = "never restarts", "told of the changes", "half-samples"
PLAIN, ROBUST = "evidence, plain", "evidence, robust"
WINDOW, TIME_KERNEL = "window", "time kernel"


@dataclass(frozen=True, kw_only=True)
class ForgettingMethod(Method):
    """An upper confidence bound on a model that forgets.

    Attributes:
        forgetting: How old outcomes are forgotten.
        width: The number of deviations above the mean.
    """

    forgetting: SlidingWindow | TimeVaryingKernel
    width: float = WIDTH


class DriftingPosterior:
    """The posterior of a process that drifts, on arms, from round to round.

    The process with the time kernel is a Markov chain: in each round, the function is ``root``
    times the previous one plus an independent draw. The mean and covariance of all arms are
    therefore sufficient, and a round costs the square of the number of arms, however long the run
    is.

    Args:
        kernel_matrix: ``num_arms x num_arms``.
        lam: The noise variance.
        rate: The rate of the drift.
        num_trials: The number of simultaneous runs.
    """

    def __init__(self, kernel_matrix: Tensor, lam: float, rate: float, num_trials: int) -> None:
        """See the class."""
        self._prior, self._lam, self._kept = kernel_matrix, lam, 1.0 - rate
        self.mean = kernel_matrix.new_zeros(num_trials, len(kernel_matrix))
        self.covariance = kernel_matrix.repeat(num_trials, 1, 1)

    @property
    def variance(self) -> Tensor:
        """``num_trials x num_arms``."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0)

    def observe(self, arm: Tensor, outcome: Tensor) -> None:
        """Add an outcome of each trial and move on to the next round.

        Args:
            arm: ``num_trials``.
            outcome: ``num_trials``.
        """
        trials = torch.arange(len(arm))
        column = self.covariance[trials, :, arm]
        scale = column[trials, arm] + self._lam
        residual = (outcome - self.mean[trials, arm]) / scale
        self.mean = (self.mean + residual.unsqueeze(-1) * column) * self._kept**0.5
        lost = (column * scale.rsqrt().unsqueeze(-1)).unsqueeze(-1)
        self.covariance.baddbmm_(lost, lost.transpose(-1, -2), alpha=-1.0)
        self.covariance.mul_(self._kept).add_(self._prior, alpha=1.0 - self._kept)


def play(study: ArmsStudy, method: Method, on_round: Callable[[int], None]) -> dict[str, Any]:
    """Play a study with a method that restarts or forgets.

    Returns:
        What :func:`~papers.avanesov.play_changing` returns.
    """
    if isinstance(method, RestartMethod):
        return play_changing(study, method, on_round)
    assert isinstance(study, ChangingStudy)
    assert isinstance(method, ForgettingMethod)
    matrix, lam = study.prior.matrix, float(method.lam)
    assert matrix is not None
    count, rounds = len(study.periods), study.num_rounds
    noise = RandomBlocks(study.seeds, "noise")
    arms = torch.zeros(count, rounds, dtype=torch.long)
    outcomes = torch.zeros(count, rounds, dtype=torch.float64)
    regret = torch.zeros(count, rounds, dtype=torch.float64)
    rule, drifting, rewards = method.forgetting, None, study.rewards
    if isinstance(rule, TimeVaryingKernel):
        drifting = DriftingPosterior(matrix, lam, rule.rate, count)
    for t in range(rounds):
        if drifting is not None:
            mean, variance = drifting.mean, drifting.variance
        else:
            assert isinstance(rule, SlidingWindow)
            first = max(t - rule.length, 0)
            seen = arms[:, first:t], outcomes[:, first:t]
            mean, variance = forgotten_posterior(matrix, lam, rule, *seen)
        arm = first_of_the_largest(mean + method.width * variance.sqrt())
        values = rewards.at(t + 1)
        value = values.gather(-1, arm.unsqueeze(-1)).squeeze(-1)
        arms[:, t] = arm
        outcomes[:, t] = value + study.noise_std * noise.at(t + 1)
        regret[:, t] = values.amax(-1) - value
        if drifting is not None:
            drifting.observe(arm, outcomes[:, t])
        on_round(t + 1)
    none = torch.zeros(count, rounds, dtype=torch.bool).numpy()
    return {"regret": regret.numpy(), "resets": none, "explored": none}


def changes(
    num_trials: int = 24,
    num_rounds: int = 1200,
    seed: int = 0,
    num_arms: int = NUM_ARMS,
    chunk: int = 4,
) -> list[ArmsExperiment]:
    """Return four periods with the functions and the noise of Avanesov's Figure 3.

    Args:
        num_trials: The number of environments.
        num_rounds: The horizon.
        seed: Seeds functions, noise and draws.
        num_arms: Evenly spaced points of [0, 5].
        chunk: Trials per file.
    """
    return [
        ArmsExperiment(
            name=f"beyond-changes-{NUM_PERIODS}",
            title=f"{NUM_PERIODS} periods of {num_rounds // NUM_PERIODS}",
            published="",
            num_trials=num_trials,
            num_rounds=num_rounds,
            make_study=partial(
                make_study, "avanesov-compare", num_rounds, NUM_PERIODS, num_arms, num_trials, seed
            ),
            make_methods=partial(_methods, num_rounds),
            player=play,
            chunk=chunk,
            settings={
                "seed": seed,
                "num_arms": num_arms,
                "num_periods": NUM_PERIODS,
                "noise_std": NOISE_STD,
                "drift": DRIFT,
                "width": WIDTH,
            },
        )
    ]


def _methods(num_rounds: int, study: ArmsStudy) -> Sequence[Method]:
    recipe = acquisition(num_rounds, PUBLISHED_WIDTH_CONSTANT)
    window = max(num_rounds // NUM_PERIODS // 2, 1)
    return ways_to_follow_changes(recipe, NOISE_STD**2, window)


def ways_to_follow_changes(recipe: AcquisitionRecipe, lam: float, window: int) -> list[Method]:
    """Return the compared methods, from the oracle to the one that never restarts.

    Args:
        recipe: The acquisition of the methods that do not forget.
        lam: The noise variance of every model.
        window: The length of the sliding window.
    """

    def restarts(name: str, restart: Callable[[tuple[int, ...]], Restart]) -> RestartMethod:
        return RestartMethod(name, recipe, lam, restart=restart)

    evidence = [
        restarts(name, partial(_same, EvidenceRestart(robust=robust)))
        for name, robust in ((PLAIN, False), (ROBUST, True))
    ]
    forgetting = partial(ForgettingMethod, acquisition=recipe, lam=lam)
    return [
        restarts(ORACLE, _oracle),
        *evidence,
        restarts(HALVES, partial(_same, ChangePointRestart(detector=detector()))),
        forgetting(name=f"{WINDOW} {window}", forgetting=SlidingWindow(window)),
        forgetting(name=f"{TIME_KERNEL} {DRIFT:g}", forgetting=TimeVaryingKernel(DRIFT)),
        restarts(NEVER, partial(_same, NeverRestart(exploration=0.0))),
    ]


def _same(restart: Restart, change_points: tuple[int, ...]) -> Restart:
    return restart


def _oracle(change_points: tuple[int, ...]) -> Restart:
    return OracleRestart(change_points=change_points, exploration=None)

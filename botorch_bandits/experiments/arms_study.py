"""Many functions on the same arms, played by one method at once.

A study knows its arms by the covariance of their rewards alone, for some of the papers' kernels are
the empirical covariance of sensors. The rules that are played are those of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch
from botorch_bandits.acquisition.arms_player import ArmsPlayer
from botorch_bandits.domains import Arms
from botorch_bandits.models.arms_prior import ArmsPrior
from botorch_bandits.random_streams import derive_seed
from botorch_bandits.simulation import SimulationResult, play_arms


@dataclass(frozen=True, eq=False)
class ArmsStudy:
    """Reward functions on the same arms.

    Attributes:
        kernel_matrix: ``num_arms x num_arms``; the model's prior covariance. Bounds on the norm are
            in its units.
        values: ``num_functions x num_arms``; the noiseless rewards.
        noise_std: Standard deviation of the Gaussian noise on outcomes, one number or one a
            function.
        num_rounds: How long each function is played.
        seed: Seeds noise and whatever methods draw.
        first_trial: The number of the first function. Random numbers belong to the trial, so a
            study may be cut into pieces without changing what happens.
    """

    kernel_matrix: Tensor
    values: Tensor
    noise_std: float | Tensor
    num_rounds: int
    seed: int = 0
    first_trial: int = 0

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """One a function."""
        trials = range(self.first_trial, self.first_trial + len(self.values))
        return tuple(derive_seed(self.seed, trial, "replicate") for trial in trials)

    @cached_property
    def prior(self) -> ArmsPrior:
        """The prior of the arms."""
        return ArmsPrior.from_matrix(self.kernel_matrix)


@dataclass(frozen=True)
class Method:
    """An acquisition with its name and the regularisation of its posterior.

    Attributes:
        name: As the figure's legend has it.
        acquisition: What is played.
        lam: The regularisation.
    """

    name: str
    acquisition: AcquisitionRecipe | RandomSearch
    lam: float | Tensor


def play(
    study: ArmsStudy, method: Method, on_round: Callable[[int], None] | None = None
) -> SimulationResult:
    """Play every function of a study with one method; the noise is the same for every method.

    Args:
        study: What is played.
        method: How.
        on_round: Called with the number of each finished round.

    Raises:
        ValueError: If the acquisition has no rule on arms.
    """
    rule = None
    if isinstance(method.acquisition, AcquisitionRecipe):
        # the rules ask the domain for the number of arms only
        numbered = torch.arange(float(study.prior.num_arms), dtype=torch.float64)
        rule = method.acquisition.arms_rule(Arms(numbered.unsqueeze(-1)))
        if rule is None:
            raise ValueError(f"method {method.name!r} has no rule on arms.")
    player = ArmsPlayer(rule, study.prior, method.lam, 1.0, study.seeds)
    return play_arms(
        player, study.values, study.noise_std, study.num_rounds, study.seeds, on_round=on_round
    )

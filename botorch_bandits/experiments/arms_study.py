"""Many functions on the same arms, played by one policy at once as a tensor program.

A policy maps a posterior and a round to one score an arm; the arm of the largest score is played
(ties go to the smallest index). The widths are those of :mod:`botorch_bandits.confidence`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from botorch.acquisition.analytic import _log_ei_helper
from torch import Tensor

from botorch_bandits.checks import check_one_of
from botorch_bandits.confidence import RidgeConfidenceSet, gp_ucb_finite_width
from botorch_bandits.domains import TIE_TOLERANCE
from botorch_bandits.models.arms_posterior import ArmsPosterior
from botorch_bandits.random_streams import generator

INCUMBENTS = ("posterior_mean", "observed")
Width = Callable[[int, Tensor], Tensor]
"""From the round and the information gain (one a replicate) to the width."""


@dataclass(frozen=True, eq=False)
class ArmsStudy:
    """Reward functions on the same arms.

    Attributes:
        kernel_matrix: ``num_arms x num_arms``; the model's prior covariance.
        values: ``num_functions x num_arms``; the noiseless rewards.
        noise_std: Standard deviation of the Gaussian noise on outcomes.
        num_rounds: How long each function is played.
        seed: Seeds noise and whatever policies draw.
        first_trial: The number of the first function. Random numbers belong to the trial, so a
            study may be cut into pieces without changing what happens.
    """

    kernel_matrix: Tensor
    values: Tensor
    noise_std: float
    num_rounds: int
    seed: int = 0
    first_trial: int = 0

    def generators(self, purpose: str) -> list[torch.Generator]:
        """Return one generator a function."""
        trials = range(self.first_trial, self.first_trial + len(self.values))
        return [generator(self.seed, trial, purpose) for trial in trials]


@dataclass(frozen=True, eq=False)
class Played:
    """What a policy did with a study.

    Attributes:
        regret: ``num_functions x num_rounds``; regret of each round, from noiseless rewards.
        covered: ``num_functions``; whether the bounds held at all arms in all rounds, or None
            for a policy without bounds.
        mean_width: ``num_rounds``; the mean half-distance of the bounds over arms, or None.
    """

    regret: Tensor
    covered: Tensor | None = None
    mean_width: Tensor | None = None


@dataclass(eq=False)
class Situation:
    """What a policy sees at the start of a round.

    Attributes:
        posterior: Of everything observed, one replicate a function.
        round_number: From 1.
        arms: ``num_functions x (round_number - 1)``; the arms played so far.
        outcomes: Of the same shape; the outcomes observed so far.
        kernel_matrix: The prior covariance of the arms.
        generators: One a function, for what the policy draws.
    """

    posterior: ArmsPosterior
    round_number: int
    arms: Tensor
    outcomes: Tensor
    kernel_matrix: Tensor
    generators: list[torch.Generator]

    def normal(self) -> Tensor:
        """Draw a standard normal number for each arm of each function."""
        return _draw(torch.randn, self.generators, self.posterior.mean.shape[-1])

    def uniform(self) -> Tensor:
        """Draw a uniform number for each arm of each function."""
        return _draw(torch.rand, self.generators, self.posterior.mean.shape[-1])


class Policy(ABC):
    """Scores arms; :meth:`bounds` is None for policies without confidence bounds."""

    @abstractmethod
    def scores(self, situation: Situation) -> Tensor:
        """Return ``num_functions x num_arms`` scores."""

    def bounds(self, situation: Situation) -> tuple[Tensor, Tensor] | None:
        """Return lower and upper confidence bounds, each ``num_functions x num_arms``."""
        return None


@dataclass(frozen=True)
class WidthPolicy(Policy):
    """Play ``mean + width * standard deviation``.

    Attributes:
        width: From round and information gain to the width.
    """

    width: Width

    def scores(self, situation: Situation) -> Tensor:
        """See the base class."""
        return self.bounds(situation)[1]

    def bounds(self, situation: Situation) -> tuple[Tensor, Tensor]:
        """See the base class."""
        posterior = situation.posterior
        width = self.width(situation.round_number, posterior.information_gain)
        half = width.unsqueeze(-1) * posterior.standard_deviation
        return posterior.mean - half, posterior.mean + half


@dataclass(frozen=True)
class DMMPolicy(Policy):
    """Play the upper bound of DMM; the posterior's own regularisation is its base ridge.

    Attributes:
        rkhs_bound: ``B``, in prior standard deviations.
        noise_bound: ``R``, likewise.
        delta: The bounds fail with at most this probability.
        num_ridges: Size of the grid of ridges.
    """

    rkhs_bound: float
    noise_bound: float
    delta: float
    num_ridges: int = 48

    def scores(self, situation: Situation) -> Tensor:
        """See the base class."""
        return self.bounds(situation)[1]

    def bounds(self, situation: Situation) -> tuple[Tensor, Tensor]:
        """See the base class."""
        arms, K = situation.arms, situation.kernel_matrix
        confidence_set = RidgeConfidenceSet.from_data(
            K[arms.unsqueeze(-1), arms.unsqueeze(-2)],
            situation.outcomes,
            self.rkhs_bound,
            self.noise_bound,
            self.delta,
            situation.posterior.lam,
            self.num_ridges,
        )
        cross = K[arms].transpose(-1, -2)  # num_functions x num_arms x n
        return confidence_set.bounds(cross, K.diagonal().expand(len(arms), -1))


@dataclass(frozen=True)
class ThompsonPolicy(Policy):
    """Play the largest value of a joint draw, deviations from the mean multiplied by a scale.

    Attributes:
        width: From round and information gain to the scale.
    """

    width: Width

    def scores(self, situation: Situation) -> Tensor:
        """See the base class."""
        posterior = situation.posterior
        width = self.width(situation.round_number, posterior.information_gain)
        draw = posterior.sample(situation.normal())
        return posterior.mean + width.unsqueeze(-1) * (draw - posterior.mean)


@dataclass(frozen=True)
class ImprovementPolicy(Policy):
    """Play expected improvement or the probability of improvement.

    Attributes:
        kind: ``"expected"`` or ``"probability"``.
        incumbent: ``"posterior_mean"`` (largest over the arms played) or ``"observed"``.
        margin: Added to the incumbent.
    """

    kind: str = "expected"
    incumbent: str = "posterior_mean"
    margin: float = 0.0

    def __post_init__(self) -> None:
        """Check the settings."""
        check_one_of("kind", self.kind, ("expected", "probability"))
        check_one_of("incumbent", self.incumbent, INCUMBENTS)

    def scores(self, situation: Situation) -> Tensor:
        """See the base class."""
        posterior = situation.posterior
        deviation = posterior.variance.clamp_min(1e-18).sqrt()
        standardised = (posterior.mean - self._best(situation) - self.margin) / deviation
        if self.kind == "probability":
            return standardised  # the probability is a monotone function of it
        return _log_ei_helper(standardised) + deviation.log()

    def _best(self, situation: Situation) -> Tensor:
        if situation.round_number == 1:
            return situation.posterior.mean.new_zeros(len(situation.arms), 1)
        if self.incumbent == "observed":
            return situation.outcomes.amax(-1, keepdim=True)
        return situation.posterior.mean.gather(-1, situation.arms).amax(-1, keepdim=True)


@dataclass(frozen=True)
class MeanPolicy(Policy):
    """Play the largest posterior mean: exploit only."""

    def scores(self, situation: Situation) -> Tensor:
        """See the base class."""
        return situation.posterior.mean


@dataclass(frozen=True)
class VariancePolicy(Policy):
    """Play the largest posterior variance: explore only.

    The score is its root, as in the acquisition function: ties are wider among variances.
    """

    def scores(self, situation: Situation) -> Tensor:
        """See the base class."""
        return situation.posterior.standard_deviation


@dataclass(frozen=True)
class RandomPolicy(Policy):
    """Play uniformly at random."""

    def scores(self, situation: Situation) -> Tensor:
        """See the base class."""
        return situation.uniform()


def play(
    study: ArmsStudy,
    policy: Policy,
    lam: float,
    on_round: Callable[[int], None] | None = None,
) -> Played:
    """Play every function of a study with one policy.

    The noise of a study is the same for every policy.

    Args:
        study: What is played.
        policy: How.
        lam: The regularisation of the posterior.
        on_round: Called with the number of each finished round.
    """
    num_functions, num_arms = study.values.shape
    noise = study.noise_std * _draw(torch.randn, study.generators("noise"), study.num_rounds)
    situation = Situation(
        posterior=ArmsPosterior(study.kernel_matrix, lam, (num_functions,)),
        round_number=1,
        arms=torch.zeros(num_functions, 0, dtype=torch.long),
        outcomes=torch.zeros(num_functions, 0, dtype=torch.float64),
        kernel_matrix=study.kernel_matrix,
        generators=study.generators("policy"),
    )
    index = torch.arange(num_arms)
    covered: Tensor | None = None
    widths: list[Tensor] = []
    for t in range(study.num_rounds):
        situation.round_number = t + 1
        bounds = policy.bounds(situation)
        if bounds is not None:
            lower, upper = bounds
            inside = ((lower <= study.values) & (study.values <= upper)).all(-1)
            covered = inside if covered is None else covered & inside
            widths.append(0.5 * (upper - lower).mean())
        scores = policy.scores(situation) if bounds is None else bounds[1]
        largest = scores.amax(-1, keepdim=True)
        tolerance = TIE_TOLERANCE * largest.abs().clamp_min(1.0)
        arm = torch.where(scores >= largest - tolerance, index, num_arms).amin(-1)
        outcome = study.values.gather(-1, arm.unsqueeze(-1)).squeeze(-1) + noise[:, t]
        situation.posterior.observe(arm, outcome)
        situation.arms = torch.cat([situation.arms, arm.unsqueeze(-1)], -1)
        situation.outcomes = torch.cat([situation.outcomes, outcome.unsqueeze(-1)], -1)
        if on_round is not None:
            on_round(t + 1)
    best = study.values.amax(-1, keepdim=True)
    return Played(
        regret=best - study.values.gather(-1, situation.arms),
        covered=covered,
        mean_width=torch.stack(widths) if widths else None,
    )


def _draw(
    distribution: Callable[..., Tensor], generators: list[torch.Generator], size: int
) -> Tensor:
    return torch.stack([distribution(size, dtype=torch.float64, generator=g) for g in generators])


def srinivas_width(num_arms: int, delta: float, scale: float) -> Width:
    """Return Theorem 1's width times a factor (the paper's experiments: ``5 ** -0.5``)."""

    def width(round_number: int, information_gain: Tensor) -> Tensor:
        value = scale * gp_ucb_finite_width(num_arms, round_number, delta)
        return value.expand(information_gain.shape)

    return width

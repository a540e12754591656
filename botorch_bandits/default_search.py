"""What the search of a user who knows nothing of the function adds to its acquisition function.

Expected improvement, and a bound, are computed as if the fitted model were right. Three rules serve
where it cannot be. They were chosen on problems with many peaks, on flat starts and on Hartmann's
functions (``docs/league.md``).

**Nothing is known.** While the outcomes do not tell a function from noise, the point with the
largest acquisition value is an accident of the model. The search then covers the domain evenly. It
also does so in most rounds in which the model is sure that hardly anything can be gained.

**A few points.** In a search for the best point, a point that is pending is not proposed again
while others remain, nor, if outcomes have no noise, one that was played.

**One basin.** A proposal beside a point that was played, from a model without noise, is about the
last digits: the learned output scale has become so small that nothing else seems worth trying. It
is replaced by the proposal of a model whose output scale is the variance of the outcomes.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from botorch_bandits.domains import Arms, Domain
from botorch_bandits.models.fitted import LearnedGP
from botorch_bandits.random_streams import generator

__all__ = ["FlatOutcomesWarning"]

NATS_OF_NOISE = -1.0
"""Noise alone explains the outcomes if the fitted model is not ahead of it by this log likelihood.

The prior of the lengthscales lets the model fall behind where there is nothing to learn.
"""

NATS_IN_DOUBT = 1.0
"""Up to this log likelihood, the fitted model may be an accident: it has a few free numbers, each
of which gains about half a nat on noise alone. Every second round then trusts it."""

LEAST_GAIN = 3e-4
"""An expected improvement below this, in standard deviations of the outcomes, is hardly any."""

PERIOD = 4
"""One of so many rounds follows the acquisition function even if hardly anything can be gained."""

BESIDE = 1e-3
"""Points nearer than this in each coordinate, as a share of its range, are beside each other."""

SMALL_NOISE = 1e-4
"""With a learned noise variance below this, in variances of the outcomes, digits are refined."""

NOISE_TO_REPEAT = 1e-3
"""From this learned noise variance on, a point may be proposed again. A dozen outcomes without any
noise leave it above a tenth of this."""

EVEN = "exploration"
"""The origin of a query with which a search covers its domain."""

NUM_EVEN = 3
"""The search says that it covers the domain when it does so for this time, for one or two such
rounds are usual after an initial design of five."""


class FlatOutcomesWarning(UserWarning):
    """The outcomes do not tell a function from noise, so that the search covers the domain."""


def tells_nothing(model: LearnedGP, round_number: int, only_if_equal: bool) -> bool:
    """Return whether a round is for covering the domain, for no function is seen in the outcomes.

    Args:
        model: The fitted model.
        round_number: The number of the round.
        only_if_equal: Whether it is so only if the outcomes are equal, up to rounding.
    """
    nats = model.nats_ahead_of_noise()
    if only_if_equal:
        return nats == -math.inf
    return nats < (NATS_IN_DOUBT if round_number % 2 else NATS_OF_NOISE)


def gains_little(model: LearnedGP, log_improvement: float, round_number: int) -> bool:
    """Return whether a round is for covering the domain, for hardly anything can be gained.

    Args:
        model: The fitted model.
        log_improvement: The logarithm of the largest expected improvement.
        round_number: The number of the round.
    """
    least = math.log(LEAST_GAIN * float(model.outcome_transform.stdvs))
    return log_improvement < least and round_number % PERIOD > 0


def learned_noise(model: LearnedGP) -> float:
    """Return the noise variance in variances of the outcomes.

    Args:
        model: The fitted model.
    """
    return float(model.likelihood.noise.detach().max())


def is_beside_played(model: LearnedGP, x: Tensor) -> bool:
    """Return whether a proposal is beside a row of a model without noise.

    Args:
        model: The fitted model.
        x: The proposal, ``d`` raw coordinates.
    """
    played = model.transform_inputs(model.raw_inputs)
    apart = (model.transform_inputs(x.unsqueeze(0)) - played).abs().amax(-1)
    return learned_noise(model) < SMALL_NOISE and bool((apart < BESIDE).any())


class Taken(NamedTuple):
    """Points that are not to be proposed again while others remain."""

    pending: Tensor
    """``k x d``, the worst to propose again."""

    played: Tensor
    """``n x d``."""

    def rank(self, X: Tensor) -> Tensor:
        """Return 2 for each pending point, 1 for each other one that was played, and 0 for others.

        Args:
            X: ``m x d`` points.

        Returns:
            ``m`` whole numbers.
        """
        pending, played = (
            (X.unsqueeze(1) == points.to(X)).all(-1).any(-1)
            for points in (self.pending, self.played)
        )
        return torch.where(pending, 2, played.to(torch.long))

    def among(self, x: Tensor) -> bool:
        """Return whether a point is one of these.

        Args:
            x: ``d`` coordinates.
        """
        return bool(self.rank(x.unsqueeze(0)) > 0)


def others(domain: Domain, x: Tensor, taken: Taken, seed: int) -> Arms:
    """Return the points that may be proposed instead of one that is taken.

    Args:
        domain: The domain.
        x: The point, ``d`` coordinates.
        taken: The points that are taken.
        seed: The seed of the points that are drawn if not all can be listed.

    Returns:
        Points of the lowest rank that occurs.
    """
    points = domain.instead_of(x, seed).choices
    rank = taken.rank(points)
    return Arms(points[rank == rank.min()])


def untaken(domain: Domain, x: Tensor, taken: Taken, seed: int) -> Tensor:
    """Return a point of a draw or, if it is taken, a draw from the others.

    Args:
        domain: The domain.
        x: The point, ``d`` coordinates.
        taken: The points that are taken.
        seed: The seed of the other draw.
    """
    if not taken.among(x):
        return x
    return others(domain, x, taken, seed).sample(1, generator(seed, 0, "untaken")).squeeze(0)


def say_once(num_before: int, num_outcomes: int) -> None:
    """Warn that the search covers the domain, when it does so for the third time.

    Args:
        num_before: The number of earlier rounds that covered it.
        num_outcomes: The number of outcomes.
    """
    if num_before == NUM_EVEN - 1:
        warnings.warn(
            f"the {num_outcomes} outcomes so far do not tell a function from noise, so that "
            "there is nothing to follow yet: until they do, queries with the origin "
            f"{EVEN!r} cover the domain evenly. If the function is known to be flat but in a "
            "small part, a smaller domain helps.",
            FlatOutcomesWarning,
            stacklevel=6,  # the line that asks
        )

r"""Models that forget: how a loop's model treats old outcomes if the reward may change.

These are the usual alternatives to restarting. None of them looks for a change; each fades what is
old at a rate that is fixed beforehand. "Old" always refers to the number of rounds since a query
was asked.

:class:`SlidingWindow` keeps only the last queries. :class:`ExponentialWeights` is weighted
Gaussian-process regression (WGP-UCB; Deng, Zhou, Ghosh, Gupta and Shroff, *Weighted Gaussian
process bandits for non-stationary environments*, AISTATS 2022). :class:`TimeVaryingKernel` models a
reward that drifts (TV-GP-UCB; Bogunovic, Scarlett and Cevher, *Time-varying Gaussian process bandit
optimization*, AISTATS 2016). Neither was compared with its paper; each class states its form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from botorch_bandits.checks import check_integer, check_probability, store_checked

__all__ = ["ExponentialWeights", "Forgetting", "SlidingWindow", "TimeVaryingKernel"]


class Forgetting:
    """How a model fades old outcomes.

    Attributes:
        fades: Whether older outcomes have smaller weights.
    """

    fades: ClassVar[bool] = False

    @property
    def window(self) -> int | None:
        """The number of the last rounds whose outcomes count; None if all do."""
        return None

    @property
    def drift_rate(self) -> float | None:
        """The rate at which the reward drifts; the round is then an input of the model."""
        return None

    def keeps(self, rounds: Tensor, round_number: int) -> Tensor:
        """Return which queries the model of a round sees.

        Args:
            rounds: ``n`` rounds in which queries were asked, from 1.
            round_number: The round being chosen.
        """
        if self.window is None:
            return torch.ones_like(rounds, dtype=torch.bool)
        return rounds >= round_number - self.window

    def weights(self, rounds: Tensor, round_number: int) -> Tensor:
        """Return the weights of queries in a round.

        Args:
            rounds: ``n`` rounds in which queries were asked, from 1.
            round_number: The round being chosen.

        Returns:
            ``n`` weights, float64, in [0, 1].
        """
        return torch.ones_like(rounds, dtype=torch.float64)


@dataclass(frozen=True)
class SlidingWindow(Forgetting):
    """The model of round t has only the outcomes of queries ``t - length, ..., t - 1``.

    Attributes:
        length: The number of rounds, at least 1.

    Example:
        >>> window = SlidingWindow(length=3)
        >>> window.keeps(torch.arange(1, 6), round_number=6).tolist()
        [False, False, True, True, True]
    """

    length: int

    def __post_init__(self) -> None:
        """Check the length."""
        store_checked(self, length=check_integer("length", self.length, minimum=1))

    @property
    def window(self) -> int:
        """The number of the last rounds whose outcomes count."""
        return self.length


@dataclass(frozen=True)
class ExponentialWeights(Forgetting):
    r"""The outcome of round s has the weight :math:`w_s = \eta^{t - 1 - s}` in round t.

    The latest query has the weight 1, and the noise variance of the others is
    :math:`\lambda / w_s`:

    .. math::
       \mu_t(x) = k_t(x)^\top (K_t + \lambda W_t^{-1})^{-1} y, \qquad
       \sigma_t^2(x) = k(x, x) - k_t(x)^\top (K_t + \lambda W_t^{-1})^{-1} k_t(x) .

    The mean is that of WGP-UCB: the minimizer of :math:`\sum_s w_s (y_s - f(x_s))^2 + \lambda
    \lVert f \rVert_k^2`. The paper's deviation also has squared weights (``W^2`` instead of ``W``,
    as in weighted linear bandits); the deviation here is the posterior of the same Gaussian model
    as the mean, so that every acquisition function and draw can use it. It is never larger than the
    one with squared weights, because no weight exceeds 1.

    Attributes:
        discount: The :math:`\eta` above, in (0, 1).

    Example:
        >>> ExponentialWeights(0.5).weights(torch.tensor([1, 2, 3]), round_number=4).tolist()
        [0.25, 0.5, 1.0]
    """

    discount: float

    fades: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the discount."""
        store_checked(self, discount=check_probability("discount", self.discount))

    def weights(self, rounds: Tensor, round_number: int) -> Tensor:
        age = (round_number - 1 - rounds).double()
        return torch.exp(math.log(self.discount) * age)


@dataclass(frozen=True)
class TimeVaryingKernel(Forgetting):
    r"""The reward drifts: rounds t and t' have the covariance of this kernel.

    .. math:: k(x, x') (1 - \epsilon)^{|t - t'| / 2}

    It is the exact model of :class:`~botorch_bandits.problems.DriftingGP` with the same rate. The
    round of a query is a further input of the model, before context and point.

    Attributes:
        rate: The :math:`\epsilon` above, in (0, 1).
    """

    rate: float

    def __post_init__(self) -> None:
        """Check the rate."""
        store_checked(self, rate=check_probability("rate", self.rate))

    @property
    def drift_rate(self) -> float:
        """The rate at which the reward drifts."""
        return self.rate

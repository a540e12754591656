"""Width rules for rewards drawn from the Gaussian process: GP-UCB and IRGP-UCB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from botorch_bandits.checks import (
    check_integer,
    check_positive,
    check_probability,
    store_checked,
)
from botorch_bandits.confidence.bayesian_widths import (
    gp_ucb_compact_width,
    gp_ucb_finite_width,
    irgp_ucb_width,
)
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.readable_prior import PriorReading
from botorch_bandits.confidence.rules import WidthRule, prior_gaps
from botorch_bandits.random_streams import generator


@dataclass(frozen=True)
class FiniteArmsWidth(WidthRule):
    """GP-UCB on finitely many arms: Srinivas et al. 2010, Theorem 1.

    Attributes:
        num_arms: ``|D|``.
        delta: The bound fails with at most this probability.
    """

    num_arms: int
    delta: float
    needs_round: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the ingredients."""
        store_checked(self, num_arms=check_integer("num_arms", self.num_arms, minimum=1))
        store_checked(self, delta=check_probability("delta", self.delta))

    def width(self, reading: PriorReading, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`; it needs nothing of the model."""
        return gp_ucb_finite_width(self.num_arms, round_number, self.delta)

    def guarantee(self, reading: PriorReading, round_number: int) -> Guarantee:
        """See :meth:`WidthRule.guarantee`."""
        constants = {"num_arms": float(self.num_arms), "delta": self.delta}
        gaps = prior_gaps(reading)
        return Guarantee(
            method="GP-UCB on finitely many arms",
            theorem="Srinivas et al. 2010, Theorem 1",
            statement=f"with probability {1 - self.delta:g} the reward lies within the width of "
            "the posterior mean, on all arms and in all rounds",
            assumptions=(
                "the reward function is a draw from the model's Gaussian-process prior",
                "the noise is Gaussian with the modelled variance",
                "the acquisition is maximised over these arms",
            ),
            constants=constants,
            gaps=tuple(gaps),
        )


@dataclass(frozen=True)
class CompactBoxWidth(WidthRule):
    """GP-UCB on a box: Srinivas et al. 2010, Theorem 2.

    Attributes:
        dim: ``d``.
        side_length: ``r``, the longest side of the box.
        smoothness_a: ``a`` in ``P(sup |df/dx_j| > L) <= a exp(-(L/b)^2)``.
        smoothness_b: ``b``, in raw outcome units per unit of input.
        delta: The bound fails with at most this probability.
    """

    dim: int
    side_length: float
    smoothness_a: float
    smoothness_b: float
    delta: float
    needs_round: ClassVar[bool] = True
    is_uniform: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the ingredients."""
        store_checked(
            self,
            dim=check_integer("dim", self.dim, minimum=1),
            side_length=check_positive("side_length", self.side_length),
            smoothness_a=check_positive("smoothness_a", self.smoothness_a),
            smoothness_b=check_positive("smoothness_b", self.smoothness_b),
            delta=check_probability("delta", self.delta),
        )
        self._width_for_unit(1, 1.0)

    def width(self, reading: PriorReading, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`."""
        priors = reading.active_priors
        if len(priors) > 1:
            raise ValueError(
                f"Theorem 2 speaks of one output, and {len(priors)} are scalarised. Use "
                "ImprovedUpperConfidenceBound, or an explicit width=."
            )
        units = priors[0].standard_deviation
        widths = [self._width_for_unit(round_number, unit) for unit in units.reshape(-1).tolist()]
        return torch.stack(widths).reshape(units.shape)

    def guarantee(self, reading: PriorReading, round_number: int) -> Guarantee:
        """See :meth:`WidthRule.guarantee`."""
        gaps = prior_gaps(reading)
        return Guarantee(
            method="GP-UCB on a box",
            theorem="Srinivas et al. 2010, Theorem 2",
            statement=f"with probability {1 - self.delta:g} the regret obeys the theorem's bound; "
            "the confidence bound holds on a discretisation that grows with the round",
            assumptions=(
                "the reward function is a draw from the model's Gaussian-process prior",
                "the noise is Gaussian with the modelled variance",
                "partial derivatives exceed L with probability at most a exp(-(L/b)^2)",
            ),
            constants={
                "dim": float(self.dim),
                "side_length": self.side_length,
                "smoothness_a": self.smoothness_a,
                "smoothness_b": self.smoothness_b,
                "delta": self.delta,
            },
            gaps=tuple(gaps),
        )

    def _width_for_unit(self, round_number: int, unit: float) -> Tensor:
        return gp_ucb_compact_width(
            self.dim,
            round_number,
            self.delta,
            self.side_length,
            self.smoothness_a,
            self.smoothness_b / unit,
        )


@dataclass(frozen=True)
class RandomizedWidth(WidthRule):
    """IRGP-UCB: Takeno, Inatsu and Karasuyama 2023, on finitely many arms.

    Attributes:
        num_arms: ``|D|``, at least 2.
        seed: Seeds the draw of each round.
    """

    num_arms: int
    seed: int = 0
    needs_round: ClassVar[bool] = True
    is_uniform: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the ingredients."""
        store_checked(self, num_arms=check_integer("num_arms", self.num_arms, minimum=2))
        store_checked(self, seed=check_integer("seed", self.seed, minimum=0))

    def width(self, reading: PriorReading, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`; it needs nothing of the model."""
        stream = generator(self.seed, round_number, "IRGP-UCB")
        draw = torch.empty((), dtype=torch.float64).exponential_(generator=stream)
        return irgp_ucb_width(self.num_arms, float(draw))

    def guarantee(self, reading: PriorReading, round_number: int) -> Guarantee:
        """See :meth:`WidthRule.guarantee`."""
        gaps = prior_gaps(reading)
        return Guarantee(
            method="IRGP-UCB",
            theorem="Takeno, Inatsu and Karasuyama 2023, regret bound for finite domains",
            statement="the expected regret over rewards, noise and draws obeys the theorem's "
            "bound; no single confidence bound holds in all rounds",
            assumptions=(
                "the reward function is a draw from the model's Gaussian-process prior",
                "the noise is Gaussian with the modelled variance",
                "the acquisition is maximised over these arms",
            ),
            constants={"num_arms": float(self.num_arms)},
            gaps=tuple(gaps),
        )

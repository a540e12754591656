"""IRGP-UCB (Takeno et al. 2023): a random width that does not grow with the round.

It is for rewards that are drawn from the Gaussian process, on finitely many arms. The conventions
are those of :mod:`botorch_bandits.confidence.width_rules`: a width multiplies the posterior
STANDARD DEVIATION, and logarithms are natural.

Source: Takeno, Inatsu and Karasuyama, *Randomized Gaussian process upper confidence bound with
tighter Bayesian regret bounds*, ICML 2023.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from botorch_bandits.checks import (
    check_integer,
    store_checked,
)
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.guarantee import Guarantee, RegretStatement
from botorch_bandits.confidence.hypotheses import DRAWN_FROM_PRIOR, FIXED_PRIOR, GAUSSIAN_NOISE
from botorch_bandits.confidence.prior_assumptions import prior_gaps
from botorch_bandits.confidence.width_rules import PriorSummary, WidthRule, check_all_nonnegative
from botorch_bandits.random_streams import generator


def irgp_ucb_width(num_arms: int, exponential: float | Tensor) -> Tensor:
    r"""Return the width of IRGP-UCB, which is random and does not grow with the round.

    .. math:: w_t = \sqrt{2 \ln(|D| / 2) + Z_t}, \qquad Z_t \sim \mathrm{Exp}(\text{mean } 2)

    Source: Takeno, Inatsu and Karasuyama 2023, finite domains (where ``zeta_t = w_t ** 2``). The
    width bounds the expected regret of a reward drawn from the Gaussian process; it is not a
    confidence bound that holds in all rounds at once.

    Args:
        num_arms: ``|D|``, at least 2.
        exponential: ``Z_t / 2``, a draw from the exponential distribution with mean 1, a new one
            in each round. Scalar or tensor.

    Returns:
        A float64 tensor of the shape of ``exponential``.
    """
    num_arms = check_integer("num_arms", num_arms, minimum=2)
    draw = check_all_nonnegative("exponential", exponential)
    return torch.sqrt(2.0 * math.log(num_arms / 2.0) + 2.0 * draw)


@dataclass(frozen=True)
class RandomizedWidth(WidthRule):
    """IRGP-UCB: Takeno, Inatsu and Karasuyama 2023, on finitely many arms.

    Attributes:
        num_arms: ``|D|``, at least 2.
        seed: The seed of the draw in each round.
    """

    num_arms: int
    seed: int = 0
    needs_round: ClassVar[bool] = True
    is_uniform: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the ingredients."""
        store_checked(self, num_arms=check_integer("num_arms", self.num_arms, minimum=2))
        store_checked(self, seed=check_integer("seed", self.seed, minimum=0))

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`; the width does not depend on the model."""
        stream = generator(self.seed, round_number, "IRGP-UCB")
        draw = torch.empty((), dtype=torch.float64).exponential_(generator=stream)
        return irgp_ucb_width(self.num_arms, float(draw))

    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        gaps = prior_gaps(summary)
        return Guarantee(
            method="IRGP-UCB",
            theorem="Takeno, Inatsu and Karasuyama 2023, regret bound for finite domains",
            regret=RegretStatement(
                facts.say(
                    "{regret_of} a round, in expectation over {outcome}s, noise and draws, is at "
                    "most the expectation of width times standard deviation at the point that it "
                    "chose; no single confidence bound holds in all rounds"
                ),
                factor=1.0,
                is_expected=True,
                quantity="the expected regret",
            ),
            assumptions=(
                facts.say(DRAWN_FROM_PRIOR),
                FIXED_PRIOR,
                GAUSSIAN_NOISE,
                "the acquisition is maximized over at most num_arms arms, fixed before the data",
            ),
            constants={"num_arms": float(self.num_arms)},
            gaps=tuple(gaps),
            is_drawn=True,
        )

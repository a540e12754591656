"""Rules that change multipliers once an epoch: Shi and Eryilmaz 2022, Algorithms 2 and 3."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from botorch_bandits.checks import (
    check_integer,
    check_number,
    check_one_of,
    check_positive,
    store_checked,
)
from botorch_bandits.confidence import Guarantee
from botorch_bandits.constraints.rules import (
    SURROGATES,
    MultiplierRule,
)
from botorch_bandits.constraints.state import MultiplierState
from botorch_bandits.constraints.targets import MultiplierOverflowError
from botorch_bandits.penalties import (
    CustomPenalty,
    Exponential,
    Linear,
    Penalty,
    Polynomial,
    check_penalty_properties,
)

SOURCE = "Shi and Eryilmaz 2022"

SURROGATE_GAPS = {
    "relabelled": "the targets of earlier epochs are made with multipliers that depend on their "
    "noise, and the theorem's epochs each start without data",
    "separate": "the theorem's inner algorithm models the penalised outcome; confidence bounds of "
    "separate models hold for all multipliers at once, its rates are not proven for them",
}
"""Why the theorems do not cover a surrogate; the paper's own is ``"fresh"``."""


@dataclass(frozen=True)
class EpochRule(MultiplierRule):
    """What the two rules with epochs share.

    Attributes:
        num_constraints: See :class:`MultiplierRule`.
        epoch_length: ``S``, the rounds of an epoch.
        surrogate: One of :data:`SURROGATES`.
    """

    epoch_length: int
    surrogate: str = field(default="relabelled", kw_only=True)

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        length = check_integer("epoch_length", self.epoch_length, minimum=1)
        store_checked(self, epoch_length=length)
        check_one_of("surrogate", self.surrogate, SURROGATES)

    @property
    def rounds_per_update(self) -> int:
        """See :class:`MultiplierRule`."""
        return self.epoch_length

    @property
    def surrogate_in_use(self) -> str:
        """See :class:`MultiplierRule`."""
        return self.surrogate

    def _guarantee(
        self, method: str, theorem: str, statement: str, assumptions: tuple[str, ...]
    ) -> Guarantee:
        gap = SURROGATE_GAPS.get(self.surrogate)
        return Guarantee(
            method=method,
            theorem=f"{SOURCE}, {theorem}",
            statement=statement,
            assumptions=(
                "the reward is observed with independent sub-Gaussian noise",
                "the norm of the penalised function is bounded in every epoch",
                *assumptions,
            ),
            constants={"epoch_length": float(self.epoch_length)},
            gaps=() if gap is None else (gap,),
        )


@dataclass(frozen=True)
class MultiplicativeEpochs(EpochRule):
    r"""Algorithm 2 of Shi and Eryilmaz 2022, for constraints observed exactly.

    .. math:: \kappa_j^1 = 1, \qquad
        \kappa_j^{l+1} = \kappa_j^l \, \psi\Big(\frac{1}{S} \sum_{s=1}^S g_j(x_l^s)\Big)

    Multipliers are kept as logarithms, so that the update itself cannot overflow. They never
    decrease.

    Attributes:
        num_constraints: ``m``.
        epoch_length: ``S``, the rounds of an epoch.
        penalty: ``psi``.
        max_multiplier: Multipliers are held at this value, at least 1, once they reach it. No
            theorem covers that. If None, a multiplier beyond float64 is an error.
        surrogate: One of :data:`SURROGATES`.

    Raises:
        PenaltyPropertyError: If the penalty is linear, or lacks another required property.

    Example:
        >>> import torch
        >>> rule = MultiplicativeEpochs(num_constraints=1, epoch_length=2)
        >>> state = rule.init()
        >>> for g in (1.0, 2.0):
        ...     state = rule.step(state, torch.tensor([g], dtype=torch.float64))
        >>> rule.multipliers(state).log()
        tensor([1.5000], dtype=torch.float64)
    """

    penalty: Penalty = field(default_factory=Exponential)
    max_multiplier: float | None = None

    expects_exact_constraints: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if not isinstance(self.penalty, Penalty):
            raise TypeError(
                f"penalty must be a Penalty, got {self.penalty!r}. Use Polynomial(c, n), "
                "Exponential(c) or CustomPenalty(function)."
            )
        if self.penalty.is_linear:
            check_penalty_properties(self.penalty, largest=0.5)  # it is not 1 for x <= 0
        if self.max_multiplier is None:
            return
        store_checked(self, max_multiplier=check_number("max_multiplier", self.max_multiplier))
        if self.max_multiplier < 1.0:
            raise ValueError(
                f"max_multiplier is {self.max_multiplier}; multipliers start at 1, so it must be "
                "at least that."
            )

    @property
    def penalty_in_use(self) -> Penalty:
        """See :class:`MultiplierRule`."""
        return self.penalty

    def update(self, levels: Tensor, mean: Tensor) -> Tensor:
        """Add ``ln psi`` of the mean to the logarithms; see :class:`MultiplierRule`."""
        levels = levels + self.penalty.log_value(mean)
        if self.max_multiplier is None:
            return levels
        return levels.clamp_max(math.log(self.max_multiplier))

    def multipliers(self, state: MultiplierState) -> Tensor:
        """See :class:`MultiplierRule`."""
        multipliers = state.levels.exp()
        if not bool(torch.isfinite(multipliers).all()):
            raise MultiplierOverflowError(
                f"the logarithm of a multiplier is {float(state.levels.max()):.4g}, too large for "
                "float64. Use penalty=Polynomial(c, n), which grows more slowly, a smaller c, "
                "longer epochs, or max_multiplier=. If all points violate the constraint, no "
                "multiplier will do: see Ledger and recognise_infeasibility."
            )
        return multipliers

    def guarantee(self) -> Guarantee:
        """Return what Theorem 1 says of regret and violation, and whether it applies."""
        guarantee = self._guarantee(
            "GP-UCB with noiseless constraints",
            "Theorem 1",
            "regret and violation are bounded; both are sublinear in T = L S for suitable L and S",
            ("constraint values are observed without noise", *_assumed_of(self.penalty)),
        )
        if self.max_multiplier is not None:
            guarantee = guarantee.with_gaps("multipliers are held at max_multiplier")
        if getattr(self.penalty, "n", 2.0) <= 1.0:
            guarantee = guarantee.with_gaps("the bound on the violation is linear in T for n = 1")
        return guarantee


def _assumed_of(penalty: Penalty) -> tuple[str, ...]:
    """Return what is not known of a penalty."""
    if isinstance(penalty, Polynomial | Exponential):
        return ()
    known = ", which was checked on a grid" if isinstance(penalty, CustomPenalty) else ""
    return (f"the penalty has the four properties of Assumption 2{known}",)


@dataclass(frozen=True)
class AdditiveEpochs(EpochRule):
    r"""Algorithm 3 of Shi and Eryilmaz 2022, for constraints observed with noise.

    .. math:: \kappa_j^1 = 0, \qquad \kappa_j^{l+1} = \Big[\kappa_j^l
        + \mu \frac{1}{S} \sum_{s=1}^S (g_j(x_l^s) + \varepsilon_{l,j}^s)\Big]^+

    The penalty is linear, so a penalised outcome has the noise of the reward and that of each
    constraint: its noise bound is ``R sqrt(1 + sum_j kappa_j^2)`` (the paper's box prints ``R``
    inside the root), and each epoch gets ``delta / (2 L)``.

    Attributes:
        num_constraints: ``m``.
        epoch_length: ``S``, the rounds of an epoch.
        step_size: ``mu``, of order ``1 / sqrt(L)`` in the theorem; 0.5 in the paper's experiments.
        surrogate: One of :data:`SURROGATES`.

    Example:
        >>> import torch
        >>> rule = AdditiveEpochs(num_constraints=1, epoch_length=2, step_size=0.5)
        >>> state = rule.init()
        >>> for g in (1.0, 2.0):
        ...     state = rule.step(state, torch.tensor([g], dtype=torch.float64))
        >>> rule.multipliers(state)
        tensor([0.7500], dtype=torch.float64)
    """

    step_size: float = 0.5

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        store_checked(self, step_size=check_positive("step_size", self.step_size))

    @property
    def penalty_in_use(self) -> Penalty:
        """See :class:`MultiplierRule`."""
        return Linear()

    def update(self, levels: Tensor, mean: Tensor) -> Tensor:
        """Take a step along the mean, not below 0; see :class:`MultiplierRule`."""
        return (levels + self.step_size * mean).clamp_min(0.0)

    def multipliers(self, state: MultiplierState) -> Tensor:
        """See :class:`MultiplierRule`."""
        return state.levels

    def noise_factor(self, multipliers: Tensor) -> Tensor:
        """Return ``sqrt(1 + sum_j kappa_j^2)``; see :class:`MultiplierRule`."""
        return (1.0 + multipliers.square().sum(dim=-1)).sqrt()

    def delta(self, delta: float, epoch: int = 1, num_epochs: int | None = None) -> float:
        """Return half of an epoch's share: the other half is for the noise of the updates.

        Args:
            delta: See :class:`MultiplierRule`.
            epoch: See :class:`MultiplierRule`.
            num_epochs: See :class:`MultiplierRule`.
        """
        share = super().delta(delta, epoch, num_epochs)
        return share if self.surrogate == "separate" else share / 2.0

    def guarantee(self) -> Guarantee:
        """Return what Theorem 2 says of regret and violation, and whether it applies."""
        return self._guarantee(
            "GP-UCB with noisy constraints",
            "Theorem 2",
            "regret and violation are bounded; both are sublinear in T = L S for suitable L and S",
            (
                "constraint values are observed with independent sub-Gaussian noise",
                "reward and constraints are bounded",
                "some point meets all constraints with a margin that is large enough for S "
                "(Slater's condition)",
                "step_size is of order 1 / sqrt(L)",
            ),
        )

"""Multipliers that change every round: constrained kernelised bandits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from botorch_bandits.checks import check_integer, check_positive, store_checked
from botorch_bandits.confidence import Guarantee
from botorch_bandits.constraints.rules import MultiplierRule
from botorch_bandits.constraints.state import MultiplierState
from botorch_bandits.penalties import Linear, Penalty


@dataclass(frozen=True)
class PrimalDual(MultiplierRule):
    r"""A multiplier update in every round, after Zhou and Ji 2022.

    Each round plays the maximiser of ``UCB_f(x) - sum_j phi_j LCB_j(x)``, with ``UCB_f`` clipped
    to ``[-B, B]`` and ``LCB_j`` to ``[-G, G]``, on separate models of ``f`` and each ``g_j``, and
    then takes a step along the lower confidence bounds at the point played:

    .. math:: \phi_j \leftarrow \min\{\max\{\phi_j + \mathrm{LCB}_j(x_t) / V, 0\}, \rho\}

    The rule observes lower bounds, not outcomes (:attr:`observes`), so delays do not concern it.
    The form and its constants are restated FROM MEMORY of the paper, not checked against it.

    Attributes:
        num_constraints: ``m``.
        max_multiplier: ``rho``.
        divisor: ``V``.
        reward_bound: ``B``, or None for no clipping of ``UCB_f``.
        constraint_bound: ``G``, or None for no clipping of ``LCB_j``.

    Example:
        >>> import torch
        >>> rule = PrimalDual(num_constraints=1, max_multiplier=2.0, divisor=4.0)
        >>> state = rule.step(rule.init(), torch.tensor([1.0], dtype=torch.float64))
        >>> rule.multipliers(state)
        tensor([0.2500], dtype=torch.float64)
    """

    max_multiplier: float
    divisor: float
    reward_bound: float | None = None
    constraint_bound: float | None = None

    observes: ClassVar[str] = "lower_bounds"

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        store_checked(self, max_multiplier=check_positive("max_multiplier", self.max_multiplier))
        store_checked(self, divisor=check_positive("divisor", self.divisor))
        for name in ("reward_bound", "constraint_bound"):
            if getattr(self, name) is not None:
                store_checked(self, **{name: check_positive(name, getattr(self, name))})

    @classmethod
    def with_constants(
        cls,
        num_constraints: int,
        *,
        reward_bound: float,
        constraint_bound: float,
        slater_gap: float,
        horizon: int,
    ) -> PrimalDual:
        """Return the rule with ``rho = 4 B / gap`` and ``V = G sqrt(T) / rho``.

        These constants are from memory of Zhou and Ji 2022.

        Args:
            num_constraints: ``m``.
            reward_bound: ``B``, a bound on the absolute value of ``f``.
            constraint_bound: ``G``, a bound on the absolute value of each ``g_j``.
            slater_gap: Some point has ``g_j <= -slater_gap`` for all ``j``.
            horizon: ``T``, the number of rounds.
        """
        bound = check_positive("reward_bound", reward_bound)
        largest = 4.0 * bound / check_positive("slater_gap", slater_gap)
        rounds = check_integer("horizon", horizon, minimum=1)
        divisor = check_positive("constraint_bound", constraint_bound) * math.sqrt(rounds) / largest
        return cls(num_constraints, largest, divisor, reward_bound, constraint_bound)

    @property
    def rounds_per_update(self) -> int:
        """See :class:`MultiplierRule`."""
        return 1

    @property
    def penalty_in_use(self) -> Penalty:
        """See :class:`MultiplierRule`."""
        return Linear()

    @property
    def surrogate_in_use(self) -> str:
        """See :class:`MultiplierRule`; always separate."""
        return "separate"

    def update(self, levels: Tensor, mean: Tensor) -> Tensor:
        """Take a step along the clipped lower bounds; see :class:`MultiplierRule`."""
        if self.constraint_bound is not None:
            mean = mean.clamp(-self.constraint_bound, self.constraint_bound)
        return (levels + mean / self.divisor).clamp(0.0, self.max_multiplier)

    def multipliers(self, state: MultiplierState) -> Tensor:
        """See :class:`MultiplierRule`."""
        return state.levels

    def guarantee(self) -> Guarantee:
        """Return that no theorem is claimed: its constants were not checked."""
        return Guarantee(
            method="primal-dual multipliers, every round",
            constants={"max_multiplier": self.max_multiplier, "divisor": self.divisor},
            gaps=("form and constants are from memory of Zhou and Ji 2022, not checked",),
        )

r"""Multiplier rules as folds over tensors: what they share.

A rule turns observed constraint values into multipliers ``kappa``, and multipliers into the
penalised outcomes that a surrogate is fitted to,

.. math:: F(x) = f(x) - \sum_j \kappa_j (\psi(g_j(x)) - 1).

``init(batch_shape) -> state`` and ``step(state, values, mask) -> state`` serve a single live
stream (``batch_shape`` is ``()``) and a batch of replicates alike.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_double,
    check_integer,
    check_nonnegative,
    check_probability,
    store_checked,
)
from botorch_bandits.confidence import Guarantee
from botorch_bandits.constraints.state import MultiplierState, initial_state
from botorch_bandits.constraints.targets import penalise
from botorch_bandits.penalties import Penalty

SURROGATES = ("relabelled", "fresh", "separate")
"""What the Gaussian process models.

``"relabelled"``: one GP on the penalised outcomes of ALL queries so far, with the multipliers of
the running epoch. ``"fresh"``: one GP on those of the running epoch alone. ``"separate"``: one GP
for ``f`` and one for each ``g_j``, on all queries.
"""


@dataclass(frozen=True)
class MultiplierRule(ABC):
    """How multipliers follow from constraint values.

    Attributes:
        num_constraints: How many constraints there are, at least 1.
    """

    num_constraints: int

    expects_exact_constraints: ClassVar[bool] = False
    """Whether the rule is for constraint values observed without noise."""

    observes: ClassVar[str] = "outcomes"
    """What :meth:`step` takes: ``"outcomes"`` (observed ``g``) or ``"lower_bounds"`` (lower
    confidence bounds of ``g`` at the point that was played)."""

    initial_level: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        """Check the number of constraints."""
        number = check_integer("num_constraints", self.num_constraints, minimum=1)
        store_checked(self, num_constraints=number)

    @property
    @abstractmethod
    def rounds_per_update(self) -> int:
        """How many rounds pass between two updates of the multipliers."""

    @property
    @abstractmethod
    def penalty_in_use(self) -> Penalty:
        """What is charged for a violation."""

    @property
    @abstractmethod
    def surrogate_in_use(self) -> str:
        """One of :data:`SURROGATES`."""

    @abstractmethod
    def update(self, levels: Tensor, mean: Tensor) -> Tensor:
        """Return the levels of the next epoch.

        Args:
            levels: ``batch_shape x num_constraints``.
            mean: ``batch_shape x num_constraints``; sums of the epoch over its length.
        """

    @abstractmethod
    def multipliers(self, state: MultiplierState) -> Tensor:
        """Return the multipliers in force, ``batch_shape x num_constraints``.

        Args:
            state: As :meth:`init` and :meth:`step` return it.

        Raises:
            MultiplierOverflowError: If one of them is too large for float64.
        """

    @abstractmethod
    def guarantee(self) -> Guarantee:
        """Return what theorem bounds regret and violation under this rule, or why none does."""

    # --- the fold ---------------------------------------------------------------------------

    def init(
        self,
        batch_shape: tuple[int, ...] | torch.Size = (),
        device: torch.device | str | None = None,
    ) -> MultiplierState:
        """Return the state before the first round.

        Args:
            batch_shape: Of the replicates; ``()`` for a live loop.
            device: Where its tensors live.
        """
        return initial_state(self.initial_level, self.num_constraints, batch_shape, device)

    def step(
        self,
        state: MultiplierState,
        values: Tensor | None,
        mask: Tensor | None = None,
        active: Tensor | None = None,
    ) -> MultiplierState:
        """Return the state after one more round.

        The outcomes that arrived in the round count in the running epoch, each once, whichever
        round they were asked in. After the epoch's last round the multipliers change.

        Args:
            state: Before the round.
            values: What arrived: ``batch_shape x num_constraints`` for one outcome, ``batch_shape
                x k x num_constraints`` for ``k``. None if nothing arrived.
            mask: ``batch_shape`` or ``batch_shape x k`` booleans: which of them did arrive;
                all, if omitted. The round counts in any case. Masked values may be NaN.
            active: ``batch_shape`` booleans: the replicates that played this round; all, if
                omitted. The state of the others stays as it is.

        Raises:
            TypeError: If the values are not float64 or a mask is not boolean.
            ValueError: If a shape is wrong or an unmasked value is not finite.
        """
        if values is not None:
            if active is not None:
                here = _check_mask("active", active, state.batch_shape)
                extra = values.dim() - 1 - len(state.batch_shape)
                here = here.reshape(*state.batch_shape, *(1,) * extra)
                mask = here.expand(values.shape[:-1]) if mask is None else mask & here
            state = self.observe(state, values, mask)
        return self.advance(state, active)

    def observe(
        self, state: MultiplierState, values: Tensor, mask: Tensor | None = None
    ) -> MultiplierState:
        """Count outcomes in the running epoch; no round passes.

        Args:
            state: Before they arrived.
            values: See :meth:`step`.
            mask: See :meth:`step`.
        """
        return replace(state, sums=state.sums + self.total(state, values, mask))

    def advance(self, state: MultiplierState, active: Tensor | None = None) -> MultiplierState:
        """Let one round pass; after the epoch's last round the multipliers change.

        Args:
            state: Before the end of the round.
            active: See :meth:`step`.
        """
        passed = torch.ones_like(state.rounds) if active is None else active.to(state.rounds.dtype)
        rounds = state.rounds + passed
        ended = rounds >= self.rounds_per_update
        by_constraint = ended.unsqueeze(-1)
        # the mean first, then psi: constraint values of both signs cancel within an epoch
        mean = state.sums / self.rounds_per_update
        return MultiplierState(
            levels=torch.where(by_constraint, self.update(state.levels, mean), state.levels),
            sums=torch.where(by_constraint, 0.0, state.sums),
            rounds=torch.where(ended, 0, rounds),
            epochs=state.epochs + ended,
        )

    def reset(
        self,
        state: MultiplierState,
        mask: Tensor | None = None,
        keep_multipliers: bool = False,
    ) -> MultiplierState:
        """Return the state after a restart: the running epoch is cut and makes no update.

        Args:
            state: Before the restart.
            mask: ``batch_shape`` booleans: the replicates that restart; all, if omitted.
            keep_multipliers: Whether multipliers stay as they are; the number of the epoch does
                too then.
        """
        fresh = self.init(state.batch_shape, state.levels.device)
        here = (
            torch.ones_like(state.rounds, dtype=torch.bool)
            if mask is None
            else _check_mask("mask", mask, state.batch_shape)
        )
        by_constraint = here.unsqueeze(-1)
        cut = replace(
            state,
            sums=torch.where(by_constraint, 0.0, state.sums),
            rounds=torch.where(here, 0, state.rounds),
        )
        if keep_multipliers:
            return cut
        return replace(
            cut,
            levels=torch.where(by_constraint, fresh.levels, state.levels),
            epochs=torch.where(here, 0, state.epochs),
        )

    def total(self, state: MultiplierState, values: Tensor, mask: Tensor | None) -> Tensor:
        """Return the sum of what arrived, ``batch_shape x num_constraints``, after checks.

        Args:
            state: As :meth:`init` and :meth:`step` return it.
            values: ``batch_shape x num_constraints`` of one outcome, or ``batch_shape x k x
                num_constraints`` of ``k``.
            mask: Which outcomes arrived; all if omitted.
        """
        check_double("constraint values", values)
        shape, m = state.batch_shape, self.num_constraints
        one = values.shape == (*shape, m)
        if not one and (
            values.dim() != len(shape) + 2 or (*values.shape[:-2], values.shape[-1]) != (*shape, m)
        ):
            raise ValueError(
                f"constraint values have shape {tuple(values.shape)}; they must be "
                f"{(*shape, m)} for one outcome or {(*shape, 'k', m)} for k outcomes "
                f"({m} constraints)."
            )
        if mask is not None:
            mask = _check_mask("mask", mask, values.shape[:-1])
            values = torch.where(mask.unsqueeze(-1), values, 0.0)
        if not torch.isfinite(values).all():
            raise ValueError(
                "a constraint value is not finite. Mask outcomes that have not arrived; repair "
                "or leave out those that are broken."
            )
        return values if one else values.sum(dim=-2)

    # --- penalised outcomes -----------------------------------------------------------------

    def penalised(self, rewards: Tensor, constraints: Tensor, multipliers: Tensor) -> Tensor:
        """Return the targets ``f - sum_j kappa_j (psi(g_j) - 1)`` of stored outcomes.

        Targets are computed from rewards and constraint values afresh whenever multipliers
        change: earlier targets are of no use then.

        Args:
            rewards: ``batch_shape x n``.
            constraints: ``batch_shape x n x num_constraints``.
            multipliers: ``batch_shape x num_constraints``.

        Returns:
            ``batch_shape x n`` targets.

        Raises:
            TypeError: If a tensor is not float64.
            ValueError: If shapes do not fit.
            MultiplierOverflowError: If a target of finite outcomes is not finite.
        """
        return penalise(self.penalty_in_use, rewards, constraints, multipliers)

    def penalised_minimum(
        self, minimum: float, largest_constraints: Sequence[float] | None, multipliers: Tensor
    ) -> Tensor:
        """Return the smallest penalised outcome that can occur, for censored feedback.

        It is the pseudo-outcome and the prior mean of a censored penalised outcome.

        Args:
            minimum: The known minimum of the reward.
            largest_constraints: An upper bound on each constraint function.
            multipliers: ``batch_shape x num_constraints``.

        Returns:
            ``batch_shape``.

        Raises:
            ValueError: If there are no upper bounds on the constraints, or too few.
        """
        if largest_constraints is None:
            raise ValueError(
                "a censored penalised outcome needs an upper bound on each constraint: pass "
                "largest_constraints=, or use feedback=Hallucinated()."
            )
        if len(largest_constraints) != self.num_constraints:
            raise ValueError(
                f"largest_constraints has {len(largest_constraints)} entries, but there are "
                f"{self.num_constraints} constraints."
            )
        shape = multipliers.shape[:-1]
        worst = torch.tensor([list(largest_constraints)], dtype=DTYPE, device=multipliers.device)
        rewards = torch.full((*shape, 1), float(minimum), dtype=DTYPE, device=multipliers.device)
        return self.penalised(
            rewards, worst.expand(*shape, 1, self.num_constraints), multipliers
        ).squeeze(-1)

    # --- constants of the inner algorithm ---------------------------------------------------

    def noise_factor(self, multipliers: Tensor) -> Tensor:
        """Return by what the noise bound ``R`` is multiplied for penalised outcomes.

        Args:
            multipliers: ``batch_shape x num_constraints``.

        Returns:
            ``batch_shape``; 1 where constraints are observed exactly.
        """
        return torch.ones_like(multipliers[..., 0])

    def delta(self, delta: float, epoch: int = 1, num_epochs: int | None = None) -> float:
        """Return the share of ``delta`` that the confidence bound of one epoch gets.

        Args:
            delta: For all epochs together.
            epoch: The number ``l`` of the running epoch, from 1.
            num_epochs: ``L``. If it is not known, epoch ``l`` gets ``6 delta / (pi^2 l^2)``,
                and these shares sum to ``delta``.

        Returns:
            ``delta`` itself for separate surrogates, whose bounds hold for all multipliers at
            once; the acquisition function splits it between ``f`` and the constraints.
        """
        delta = check_probability("delta", delta)
        epoch = check_integer("epoch", epoch, minimum=1)
        if self.surrogate_in_use == "separate":
            return delta
        if num_epochs is None:
            return 6.0 * delta / (math.pi * epoch) ** 2
        if epoch > check_integer("num_epochs", num_epochs, minimum=1):
            raise ValueError(f"epoch is {epoch}, but num_epochs is {num_epochs}.")
        return delta / num_epochs

    def norm_bound(
        self, reward_bound: float, penalty_bounds: Sequence[float], multipliers: Tensor
    ) -> Tensor:
        """Return ``B_f + sum_j kappa_j B_j``, a bound on the norm of the penalised function.

        Args:
            reward_bound: ``B_f``, of the reward function.
            penalty_bounds: ``B_j``, of ``psi(g_j) - 1``. For the linear penalty that is ``g_j``
                itself. For others no bound on the norm of ``g_j`` gives one: it is yours to know.
            multipliers: ``batch_shape x num_constraints``.

        Returns:
            ``batch_shape``.
        """
        reward_bound = check_nonnegative("reward_bound", reward_bound)
        if len(penalty_bounds) != self.num_constraints:
            raise ValueError(
                f"penalty_bounds has {len(penalty_bounds)} entries, but there are "
                f"{self.num_constraints} constraints."
            )
        bounds = [check_nonnegative("penalty_bounds", bound) for bound in penalty_bounds]
        return reward_bound + (multipliers * multipliers.new_tensor(bounds)).sum(dim=-1)


def _check_mask(name: str, mask: Tensor, shape: torch.Size) -> Tensor:
    if mask.dtype != torch.bool:
        raise TypeError(f"{name} has dtype {mask.dtype}, but booleans are needed.")
    if mask.shape != shape:
        raise ValueError(f"{name} has shape {tuple(mask.shape)}, not {tuple(shape)}.")
    return mask

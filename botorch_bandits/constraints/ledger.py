"""The ledger of long-term constraints: violations, their sizes, and the multipliers in force.

It is computed from observed constraint values, for one stream of rounds or for replicates. It
reports both usual measures of violation, because they differ in whether slack makes up for
violations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.checks import check_double, check_integer, check_nonnegative, counted


@dataclass(frozen=True, eq=False)
class Ledger:
    r"""Two measures of violation, both always reported, by constraint and epoch.

    ====================  ====================================  ==================================
    signed violation      :math:`[\sum_t g_j(x_t)]^+`           that of Shi and Eryilmaz 2022;
                                                                rounds with slack make up for
                                                                violations
    rectified violation   :math:`\sum_t [g_j(x_t)]^+`           every violation counts
    ====================  ====================================  ==================================

    Regret can be negative while constraints are violated, so neither number means much on its own.
    Use noiseless constraint values if they are known, and observed ones otherwise.

    Attributes:
        constraints: ``batch_shape x n x num_constraints`` constraint values, in the order in which
            they count.
        epochs: ``batch_shape x n`` integers from 1: the epoch in which each counts (for delayed
            outcomes, the epoch of their arrival). A rule without epochs has one epoch per round.
        multipliers: ``batch_shape x num_epochs x num_constraints``; the multipliers in force in
            each epoch.
        mask: ``batch_shape x n``; which rows are outcomes; None for all.

    Example:
        >>> import torch
        >>> ledger = Ledger(
        ...     constraints=torch.tensor([[1.0], [-2.0], [0.5]], dtype=torch.float64),
        ...     epochs=torch.tensor([1, 1, 2]),
        ...     multipliers=torch.ones(2, 1, dtype=torch.float64),
        ... )
        >>> ledger.signed_violation.item(), ledger.rectified_violation.item()
        (0.0, 1.5)
    """

    constraints: Tensor
    epochs: Tensor
    multipliers: Tensor
    mask: Tensor | None = None

    def __post_init__(self) -> None:
        """Check the shapes."""
        check_double("constraints", self.constraints)
        check_double("multipliers", self.multipliers)
        if self.epochs.dtype != torch.int64:
            raise TypeError(f"epochs has dtype {self.epochs.dtype}, but int64 is needed.")
        rows = self.constraints.shape[:-1]
        if len(rows) == 0 or self.epochs.shape != rows:
            raise ValueError(
                f"epochs has shape {tuple(self.epochs.shape)}, but constraints has shape "
                f"{tuple(self.constraints.shape)}; each row of constraints needs one epoch."
            )
        wanted = (*rows[:-1], self.multipliers.shape[-2], self.constraints.shape[-1])
        if self.multipliers.shape != wanted:
            raise ValueError(
                f"multipliers has shape {tuple(self.multipliers.shape)}, not {wanted}."
            )
        if self.mask is not None and (self.mask.dtype != torch.bool or self.mask.shape != rows):
            raise ValueError(f"mask must be booleans of shape {tuple(rows)}.")
        known = self.epochs if self.mask is None else self.epochs[self.mask]
        if known.numel() and not (int(known.min()) >= 1 and int(known.max()) <= self.num_epochs):
            raise ValueError(
                f"epochs lie between {int(known.min())} and {int(known.max())}, but multipliers "
                f"are given for epochs 1 to {self.num_epochs}."
            )
        if not torch.isfinite(self._known).all():
            raise ValueError("a constraint value is not finite; mask rows that are not outcomes.")

    def __repr__(self) -> str:
        """Return sizes and, without a batch, the averages."""
        counts = self.num_rows
        constraints = counted(self.num_constraints, "constraint", "constraints")
        sizes = f"{constraints}, {counted(self.num_epochs, 'epoch', 'epochs')}"
        if counts.ndim:
            return f"Ledger({sizes}, batch_shape={tuple(counts.shape)})"
        sizes = f"{int(counts)} outcomes, {sizes}"
        average, signed, rectified = (
            [round(value, 6) for value in each.tolist()]
            for each in (
                self.average,
                self.average_signed_violation,
                self.average_rectified_violation,
            )
        )
        return (
            f"Ledger({sizes}, average value {average}, average violation signed {signed}, "
            f"rectified {rectified} (ignoring slack))"
        )

    @property
    def num_constraints(self) -> int:
        """The number of constraints."""
        return int(self.constraints.shape[-1])

    @property
    def num_epochs(self) -> int:
        """The number of epochs, including the running one."""
        return int(self.multipliers.shape[-2])

    @property
    def num_rows(self) -> Tensor:
        """``batch_shape``; the number of outcomes that count."""
        return self._counts.sum(dim=-1)

    # --- sums over all rounds ---------------------------------------------------------------

    @property
    def signed_violation(self) -> Tensor:
        """``batch_shape x num_constraints``; ``[sum of g]^+``."""
        return self._known.sum(dim=-2).clamp_min(0.0)

    @property
    def rectified_violation(self) -> Tensor:
        """``batch_shape x num_constraints``; ``sum of [g]^+``."""
        return self._known.clamp_min(0.0).sum(dim=-2)

    @property
    def violation_norm(self) -> Tensor:
        """``batch_shape``; the Euclidean norm of the signed violation, the papers' ``V_T``."""
        return self.signed_violation.norm(dim=-1)

    @property
    def average(self) -> Tensor:
        """``batch_shape x num_constraints``; the mean of all values, negative if budget is left."""
        return self._known.sum(dim=-2) / self.num_rows.clamp_min(1).unsqueeze(-1)

    @property
    def running_average(self) -> Tensor:
        """``batch_shape x n x num_constraints``; the mean of all values up to each row."""
        return self._known.cumsum(dim=-2) / self._running_counts

    @property
    def running_rectified_average(self) -> Tensor:
        """``batch_shape x n x num_constraints``; the time average after each row."""
        return self._known.clamp_min(0.0).cumsum(dim=-2) / self._running_counts

    @property
    def average_signed_violation(self) -> Tensor:
        """``batch_shape x num_constraints``; :attr:`average`, or 0 if it is negative."""
        return self.average.clamp_min(0.0)

    @property
    def average_rectified_violation(self) -> Tensor:
        """``batch_shape x num_constraints``; the rectified one over the outcomes so far."""
        return self.rectified_violation / self.num_rows.clamp_min(1).unsqueeze(-1)

    def budget_left(self, horizon: int | None = None) -> Tensor:
        """Return the remaining sum that constraint values may have; negative if it is overdrawn.

        Args:
            horizon: ``T``. If given, the result is that sum divided by the number of remaining
                rounds, which is what a round may use on average. It is minus or plus infinity if no
                round is left.

        Returns:
            ``batch_shape x num_constraints``.
        """
        left = -self._known.sum(dim=-2)
        if horizon is None:
            return left
        remaining = check_integer("horizon", horizon, minimum=1) - self.num_rows
        if bool((remaining < 0).any()):
            raise ValueError(
                f"horizon is {horizon}, but {int(self.num_rows.max())} outcomes have arrived."
            )
        share = left / remaining.unsqueeze(-1)
        return torch.where(share.isnan(), torch.inf, share)  # no budget and no round is left

    # --- the best point ---------------------------------------------------------------------

    def best_point(self, rewards: Tensor, tolerance: float = 0.0) -> tuple[Tensor, Tensor]:
        """Return the best row, and whether it is feasible.

        Feasible rows come first, regardless of their rewards. Without a feasible row, the best one
        has the smallest violation.

        Args:
            rewards: ``batch_shape x n``.
            tolerance: A row is feasible if no constraint value exceeds this.

        Returns:
            ``batch_shape`` row numbers (-1 without any row) and ``batch_shape`` booleans.
        """
        check_double("rewards", rewards)
        tolerance = check_nonnegative("tolerance", tolerance)
        if rewards.shape != self.epochs.shape:
            raise ValueError(
                f"rewards has shape {tuple(rewards.shape)}, not {tuple(self.epochs.shape)}."
            )
        if rewards.shape[-1] == 0:
            none = torch.full(rewards.shape[:-1], -1, device=rewards.device)
            return none, torch.zeros_like(none, dtype=torch.bool)
        known = torch.ones_like(self.epochs, dtype=torch.bool) if self.mask is None else self.mask
        worst = torch.where(known, self._known.amax(dim=-1), torch.inf)
        feasible = known & (worst <= tolerance)
        is_feasible = feasible.any(dim=-1)
        best = torch.where(feasible, rewards, -torch.inf).argmax(dim=-1)
        nearest = self._known.clamp_min(0.0).norm(dim=-1)
        nearest = torch.where(known, nearest, torch.inf).argmin(dim=-1)
        index = torch.where(is_feasible, best, nearest)
        return torch.where(known.any(dim=-1), index, -1), is_feasible

    # --- plain records ----------------------------------------------------------------------

    def to_records(self) -> list[dict[str, Any]]:
        """Return one dictionary of plain numbers for each epoch and constraint.

        For a batch, there is a further entry ``replicate``, which numbers the flattened batch.
        """
        batch_shape = self.epochs.shape[:-1]
        flat = (-1, self.num_epochs, self.num_constraints)
        counts = self._counts.reshape(-1, self.num_epochs).tolist()
        signed = self._by_epoch(self._known).clamp_min(0.0).reshape(flat).tolist()
        rectified = self._by_epoch(self._known.clamp_min(0.0)).reshape(flat).tolist()
        multipliers = self.multipliers.reshape(flat).tolist()
        return [
            {
                **({"replicate": b} if batch_shape else {}),
                "epoch": epoch + 1,
                "constraint": j + 1,
                "num_outcomes": int(counts[b][epoch]),
                "signed_violation": signed[b][epoch][j],
                "rectified_violation": rectified[b][epoch][j],
                "multiplier": multipliers[b][epoch][j],
            }
            for b in range(len(counts))
            for epoch in range(self.num_epochs)
            for j in range(self.num_constraints)
        ]

    @property
    def _known(self) -> Tensor:
        """Constraint values, or 0 where there is no outcome."""
        if self.mask is None:
            return self.constraints
        return torch.where(self.mask.unsqueeze(-1), self.constraints, 0.0)

    @property
    def _ones(self) -> Tensor:
        ones = torch.ones_like(self.constraints[..., :1])
        return ones if self.mask is None else ones * self.mask.unsqueeze(-1)

    @property
    def _counts(self) -> Tensor:
        """``batch_shape x num_epochs``."""
        return self._by_epoch(self._ones).squeeze(-1)

    @property
    def _running_counts(self) -> Tensor:
        return self._ones.cumsum(dim=-2).clamp_min(1.0)

    def _by_epoch(self, values: Tensor) -> Tensor:
        """Sum ``batch_shape x n x k`` rows to ``batch_shape x num_epochs x k``."""
        shape = (*values.shape[:-2], self.num_epochs, values.shape[-1])
        index = self.epochs if self.mask is None else torch.where(self.mask, self.epochs, 1)
        index = (index - 1).unsqueeze(-1).expand_as(values)
        return values.new_zeros(shape).scatter_add(-2, index, values)

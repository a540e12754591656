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

from botorch_bandits.checks import check_double, check_finite, check_integer, counted


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
        known = self.epochs
        if known.numel() and not (int(known.min()) >= 1 and int(known.max()) <= self.num_epochs):
            raise ValueError(
                f"epochs lie between {int(known.min())} and {int(known.max())}, but multipliers "
                f"are given for epochs 1 to {self.num_epochs}."
            )
        check_finite("constraints", self.constraints)

    def __repr__(self) -> str:
        """Return sizes and, without a batch, the averages."""
        constraints = counted(self.num_constraints, "constraint", "constraints")
        sizes = f"{constraints}, {counted(self.num_epochs, 'epoch', 'epochs')}"
        if self.epochs.dim() > 1:
            return f"Ledger({sizes}, batch_shape={tuple(self.epochs.shape[:-1])})"
        averages = self.average, self.average_signed_violation, self.average_rectified_violation
        average, signed, rectified = ([round(v, 6) for v in each.tolist()] for each in averages)
        return (
            f"Ledger({self.num_rows} outcomes, {sizes}, average value {average}, average violation "
            f"signed {signed}, rectified {rectified} (ignoring slack))"
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
    def num_rows(self) -> int:
        """``n``, the number of outcomes."""
        return int(self.epochs.shape[-1])

    # --- sums over all rounds ---------------------------------------------------------------

    @property
    def signed_violation(self) -> Tensor:
        """``batch_shape x num_constraints``; ``[sum of g]^+``."""
        return self.constraints.sum(dim=-2).clamp_min(0.0)

    @property
    def rectified_violation(self) -> Tensor:
        """``batch_shape x num_constraints``; ``sum of [g]^+``."""
        return self._excess.sum(dim=-2)

    @property
    def violation_norm(self) -> Tensor:
        """``batch_shape``; the Euclidean norm of the signed violation, the papers' ``V_T``."""
        return self.signed_violation.norm(dim=-1)

    @property
    def average(self) -> Tensor:
        """``batch_shape x num_constraints``; the mean of all values, negative if budget is left."""
        return self.constraints.sum(dim=-2) / max(self.num_rows, 1)

    @property
    def average_signed_violation(self) -> Tensor:
        """``batch_shape x num_constraints``; :attr:`average`, or 0 if it is negative."""
        return self.average.clamp_min(0.0)

    @property
    def average_rectified_violation(self) -> Tensor:
        """``batch_shape x num_constraints``; the rectified one over the outcomes so far."""
        return self.rectified_violation / max(self.num_rows, 1)

    def budget_left(self, horizon: int | None = None) -> Tensor:
        """Return the remaining sum that constraint values may have; negative if it is overdrawn.

        Args:
            horizon: ``T``. If given, the result is that sum divided by the number of remaining
                rounds, which is what a round may use on average. It is minus or plus infinity if no
                round is left.

        Returns:
            ``batch_shape x num_constraints``.
        """
        left = -self.constraints.sum(dim=-2)
        if horizon is None:
            return left
        remaining = check_integer("horizon", horizon, minimum=1) - self.num_rows
        if remaining < 0:
            raise ValueError(f"horizon is {horizon}, but {self.num_rows} outcomes have arrived.")
        share = left / remaining
        return torch.where(share.isnan(), torch.inf, share)  # no budget and no round is left

    # --- the best point ---------------------------------------------------------------------

    def best_point(self, rewards: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best row, and whether it is feasible.

        Feasible rows come first, regardless of their rewards. Without a feasible row, the best one
        has the smallest violation.

        Args:
            rewards: ``batch_shape x n``, ``n`` at least 1; one for each row, and minus infinity
                for an evaluation that failed.

        Returns:
            ``batch_shape`` row numbers and ``batch_shape`` booleans.
        """
        check_double("rewards", rewards)
        if rewards.shape != self.epochs.shape:
            raise ValueError(
                f"rewards has shape {tuple(rewards.shape)}, not {tuple(self.epochs.shape)}."
            )
        violations = self._excess.norm(dim=-1)  # batch_shape x n
        smallest = violations.amin(dim=-1, keepdim=True)
        best = torch.where(violations == smallest, rewards, -torch.inf).argmax(dim=-1)
        return best, smallest.squeeze(-1) == 0.0

    # --- plain records ----------------------------------------------------------------------

    def to_records(self) -> list[dict[str, Any]]:
        """Return one dictionary of plain numbers for each epoch and constraint.

        For a batch, there is a further entry ``replicate``, which numbers the flattened batch.
        """
        flat = (-1, self.num_epochs, self.num_constraints)
        columns = {
            "num_outcomes": self._by_epoch(torch.ones_like(self.constraints)).long(),
            "signed_violation": self._by_epoch(self.constraints).clamp_min(0.0),
            "rectified_violation": self._by_epoch(self._excess),
            "multiplier": self.multipliers,
        }
        lists = {name: values.reshape(flat).tolist() for name, values in columns.items()}
        is_batch, num_replicates = self.epochs.dim() > 1, len(lists["multiplier"])
        return [
            {
                **({"replicate": b} if is_batch else {}),
                "epoch": epoch + 1,
                "constraint": j + 1,
                **{name: values[b][epoch][j] for name, values in lists.items()},
            }
            for b in range(num_replicates)
            for epoch in range(self.num_epochs)
            for j in range(self.num_constraints)
        ]

    @property
    def _excess(self) -> Tensor:
        """``[g]^+``."""
        return self.constraints.clamp_min(0.0)

    def _by_epoch(self, values: Tensor) -> Tensor:
        """Sum ``batch_shape x n x k`` rows to ``batch_shape x num_epochs x k``."""
        shape = (*values.shape[:-2], self.num_epochs, values.shape[-1])
        index = (self.epochs - 1).unsqueeze(-1).expand_as(values)
        return values.new_zeros(shape).scatter_add(-2, index, values)

r"""A single stream on so many arms that no matrix of all arms is kept.

Only the columns of the posterior covariance that belong to the ``p`` arms played so far are kept,
:math:`C = S_{P, \cdot}`, as of the last fold: every few rounds, their rows ``R`` are folded into it
by one matrix product, :math:`C \leftarrow C - R_P^\top R`. The next column of an arm that has been
played before then costs a few rows, where :mod:`botorch_bandits.models.arms` reads ``p`` of them or
more. The column of a new arm comes from the prior and the counts at the last fold,

.. math:: S_j = K_j - K_{j P} (K_{PP} + \mathrm{diag}(\lambda / n))^{-1} K_P,

which also serves to recompute all columns every few hundred rounds or more: :math:`C =
\mathrm{diag}(\lambda / n) (K_{PP} + \mathrm{diag}(\lambda / n))^{-1} K_P`.

**Memory.** The prior and posterior columns of the arms that were played, and a few rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_bandits.checks import DTYPE
from botorch_bandits.models.arms import DENSE_BLOCK, ArmsPosterior
from botorch_bandits.models.prior_on_arms import ArmsPrior

FEWEST_ROUNDS = 256
"""The round after which everything is recomputed first, then after twice as many, and so on."""

ROUNDS_BETWEEN = 1024
"""Everything is recomputed after at most this many rounds, or four per arm that was played."""

ARMS_AT_ONCE = 4096
"""Arms whose columns are recomputed at a time."""


class _Columns:
    """Columns of a matrix of all arms, in memory that grows without being copied.

    Args:
        num_arms: The number of arms.
    """

    def __init__(self, num_arms: int) -> None:
        """See the class."""
        self._num_arms, self._count = num_arms, 0
        self._blocks: list[Tensor] = []

    def append(self, column: Tensor | None = None) -> None:
        """Add a column; if it is omitted, the contents of the new column are undefined."""
        slot = self._count % DENSE_BLOCK
        if slot == 0:
            self._blocks.append(torch.empty(DENSE_BLOCK, self._num_arms, dtype=DTYPE))
        if column is not None:
            self._blocks[-1][slot] = column
        self._count += 1

    def __getitem__(self, slot: int) -> Tensor:
        """Return a column."""
        return self._blocks[slot // DENSE_BLOCK][slot % DENSE_BLOCK]

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the positions of each block's columns, and the columns."""
        for start, block in zip(range(0, self._count, DENSE_BLOCK), self._blocks, strict=True):
            stop = min(start + DENSE_BLOCK, self._count)
            yield slice(start, stop), block[: stop - start]

    def times(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of the first columns, ``num_arms``."""
        total = torch.zeros(self._num_arms, dtype=DTYPE)
        for some, block in self.blocks():
            part = weights[some]
            if len(part):
                total.addmv_(block[: len(part)].T, part)
        return total


class ManyArmsPosterior(ArmsPosterior):
    """The counterpart of :class:`ArmsPosterior` for a single stream on the CPU.

    Args:
        prior: The prior covariance of the arms.
        lam: The regularization (modeled noise variance).

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> points = torch.linspace(0.0, 1.0, 5000, dtype=torch.float64).unsqueeze(-1)
        >>> posterior = ManyArmsPosterior(ArmsPrior.from_kernel(RBFKernel().double(), points), 1.0)
        >>> posterior.observe(4999, 2.0)
        >>> round(float(posterior.mean[4999]), 9)
        1.0
    """

    def __init__(self, prior: ArmsPrior, lam: float) -> None:
        """See the class."""
        super().__init__(prior, lam)
        self._begin()

    @property
    def num_columns(self) -> int:
        """The number of arms whose columns are kept."""
        return len(self._slots)

    def _begin(self) -> None:
        self._row_limit = DENSE_BLOCK
        self._slots: dict[int, int] = {}  # positions of arms in order of their first play
        self._played = torch.empty(0, dtype=torch.long)
        self._prior_columns = _Columns(self.num_arms)
        self._columns_of_played = _Columns(self.num_arms)  # as of the last fold
        self._prior_block = torch.empty(0, 0, dtype=DTYPE)  # of the arms that were played
        self._fresh_at = 0  # the number of rounds at the last recomputation
        self._fold_statistics()

    def _fold_statistics(self) -> None:
        """Remember the statistics from which the columns were computed."""
        self._base_counts = self._counts[0, self._played].clone()
        self._base_factor: Tensor | None = None

    def _add_arm(self, arm: int) -> Tensor:
        """Take in the prior of an arm that is played for the first time, and return its column."""
        slot = len(self._slots)
        column = self.prior.column_once(arm)
        self._prior_columns.append(column)
        if slot == len(self._prior_block):
            grown = torch.empty(2 * slot + DENSE_BLOCK, 2 * slot + DENSE_BLOCK, dtype=DTYPE)
            grown[:slot, :slot] = self._prior_block
            self._prior_block = grown
        self._slots[arm] = slot
        self._played = torch.tensor(list(self._slots))
        cross = column[self._played]
        self._prior_block[slot, : slot + 1] = cross
        self._prior_block[: slot + 1, slot] = cross
        return column

    def _column_of_base(self, arm: int) -> Tensor:
        if arm not in self._slots:
            self._columns_of_played.append(self._given_base(self._add_arm(arm)))
        return self._columns_of_played[self._slots[arm]]

    def _columns_of_base(self, index: Tensor) -> Tensor:
        columns = [
            self._columns_of_played[self._slots[arm]]
            if arm in self._slots
            else self._given_base(self.prior.column_once(arm))
            for arm in index.reshape(-1).tolist()
        ]
        return torch.stack(columns).reshape(*index.shape, self.num_arms)

    def _given_base(self, column: Tensor) -> Tensor:
        """Turn the prior column of an arm without outcomes into its column at the last fold."""
        count = len(self._base_counts)
        if count == 0:
            return column
        cross = column[self._played[:count]].unsqueeze(-1)
        weights = torch.cholesky_solve(cross, self._factor_of_base()).squeeze(-1)
        return column - self._prior_columns.times(weights)

    def _factor_of_base(self) -> Tensor:
        if self._base_factor is None:
            count = len(self._base_counts)
            block = self._prior_block[:count, :count].clone()
            block.diagonal().add_(self._lam[0] / self._base_counts)
            # in units of the prior variance, because an absolute jitter would be lost on large ones
            jitter = 1e-14 * float(self.prior.diagonal.max())
            self._base_factor = psd_safe_cholesky(block, jitter=jitter, max_tries=4)
        return self._base_factor

    def _make_room(self) -> None:
        if self._is_due(self._rounds, self._fresh_at, len(self._slots)):
            self._compact()
            return
        rows = self._rows[0, : self._num_rows]
        at_arms = rows[:, self._played]
        for some, block in self._columns_of_played.blocks():
            block.addmm_(at_arms[:, some].T, rows, alpha=-1.0)
        self._num_rows = 0
        self._fold_statistics()

    @staticmethod
    def _is_due(num_rounds: int, fresh_at: int, num_distinct: int) -> bool:
        """Whether to recompute everything: after twice as many rounds, or after many."""
        many = max(ROUNDS_BETWEEN, 4 * num_distinct)
        return num_rounds - fresh_at >= min(max(FEWEST_ROUNDS, fresh_at), many)

    def _last_fresh_start(self, arms: Sequence[int]) -> int:
        start, num_rows = 0, 0
        played: set[int] = set()
        for number, arm in enumerate(arms, 1):
            if num_rows == DENSE_BLOCK:
                num_rows = 0
                if self._is_due(number - 1, start, len(played)):
                    start = number - 1
            played.add(arm)
            num_rows += 1
            if number % self._rounds_between == 0:
                start, num_rows = number, 0
        return start

    def _choose_form(self) -> None:
        """There is only one form."""

    def _compact(self) -> None:
        """Recompute everything from the statistics, some arms at a time."""
        arms = torch.nonzero(self._counts[0]).squeeze(-1).tolist()
        self._begin()
        self._num_rows, self._fresh_at = 0, self._rounds
        self._variance.copy_(self.prior.diagonal)
        self._mean.zero_()
        self._gain.zero_()
        if not arms:
            return
        for arm in arms:
            self._add_arm(arm)
            self._columns_of_played.append()
        self._fold_statistics()
        factor, counts = self._factor_of_base(), self._base_counts.unsqueeze(-1)
        noise = self._lam / counts
        means = self._sums[0, arms].unsqueeze(-1) / counts
        weights = torch.linalg.solve_triangular(factor, means, upper=False)
        for start in range(0, self.num_arms, ARMS_AT_ONCE):
            some = slice(start, start + ARMS_AT_ONCE)
            columns = torch.cat([block[:, some] for _, block in self._prior_columns.blocks()])
            rows = torch.linalg.solve_triangular(factor, columns, upper=False)
            self._mean[0, some] = (rows.T @ weights).squeeze(-1)
            self._variance[0, some] -= rows.square().sum(0)
            columns = torch.linalg.solve_triangular(factor.T, rows, upper=True).mul_(noise)
            for own, block in self._columns_of_played.blocks():
                block[:, some] = columns[own]
        self._gain += (factor.diagonal().log() + 0.5 * (counts[:, 0] / self._lam[0]).log()).sum()

    def _gains_of(self, simulated: Tensor) -> Tensor:
        arms, rows = self._played, self._rows[0, : self._num_rows]
        weights = simulated[0, arms] * self._counts[0, arms] / self._lam[0]
        gains = self._columns_of_played.times(weights)
        if len(rows):
            gains.addmv_(rows.T, rows[:, arms] @ weights, alpha=-1.0)
        return gains.unsqueeze(0)

    def _forget(self, mask: Tensor) -> None:
        super()._forget(mask)
        if bool(mask.any()):
            self._num_rows = 0
            self._begin()

    def _forget_all(self) -> None:
        super()._forget_all()
        self._begin()


def posterior_on_arms(
    prior: ArmsPrior, lam: float | Tensor, batch_shape: Sequence[int] = ()
) -> ArmsPosterior:
    """Return the posterior on arms in the form that costs least.

    Args:
        prior: The prior covariance of the arms.
        lam: The regularization; one number, or a float64 tensor of ``batch_shape``.
        batch_shape: ``()`` for one stream of observations, ``(B,)`` for replicates.
    """
    is_single = not batch_shape and not isinstance(lam, Tensor)
    if is_single and prior.matrix is None and prior.diagonal.device.type == "cpu":
        return ManyArmsPosterior(prior, float(lam))
    return ArmsPosterior(prior, lam, batch_shape)

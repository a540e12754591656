r"""The exact posterior on a finite set of arms, at a cost that does not grow with the rounds.

Loops on arms and batches of replicates use it. For each arm, it keeps the count, the sum and the
sum of squares of the outcomes: several observations of one arm are equivalent to one observation of
their mean with noise variance ``lam / n_i``. An outcome of weight ``w``, whose noise has the
variance ``lam / w``, counts ``w`` times; ``w`` need not be an integer.

**The posterior.** Its covariance is

.. math:: S = S_0 - R^\top R

with rows ``R``, one more for each observation (``r = S_i / sqrt(v_i + lam)``, with ``S_i`` the
column of the arm that was played and ``v_i`` its variance), and

.. math:: \mu \leftarrow \mu + \frac{y - \mu_i}{\sqrt{v_i + \lambda}} r, \qquad
          v \leftarrow v - r^2 .

**When the buffer of rows is full**, one of two things happens. If few distinct arms ``P`` were
played, ``R`` becomes :math:`L^{-1} K_P` with ``L`` the Cholesky factor of
:math:`K_{PP} + \mathrm{diag}(\lambda / n)`, and ``S_0`` stays the prior: no matrix of all arms is
ever needed. Otherwise the rows are folded into a dense ``S_0``. Every few thousand rounds, the
statistics are factorized from scratch, so that rounding errors do not accumulate and a posterior
that is rebuilt from a long record need not replay all of it.

**Memory.** Up to 4096 arms, the prior covariance matrix is kept; beyond that, only the columns of
the arms that were requested are kept; see :class:`~botorch_bandits.models.ArmsPrior`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.checks import check_finite, check_integer, check_positive
from botorch_bandits.confidence.width_rules import RunningPriorSummary
from botorch_bandits.models.prior_on_arms import LARGEST_MATRIX, ArmsPrior

SMALLEST_BUFFER = 64
"""Rows that are kept before the posterior decides which form to use."""

DENSE_BLOCK = 32
"""Rows that are folded into a dense covariance at a time, by one fast matrix product."""

SNAPSHOT_EVERY = 32
"""Quantities that are expensive to compute may use counts up to this many rounds old."""

ROW_COST = 2.5
"""A row of a distinct arm costs as much per round as this many arms of a dense covariance."""


@dataclass(eq=False, slots=True)
class _Memory:
    """The memory of a single stream, as NumPy sees it."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    statistics: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
    gain: NDArray[np.float64]
    rows: NDArray[np.float64]
    row_arms: NDArray[np.int64]
    row_scale: NDArray[np.float64]
    row_valid: NDArray[np.bool_]
    lam: float
    product: NDArray[np.float64]
    number: NDArray[np.float64]
    prior: NDArray[np.float64] | None
    base: NDArray[np.float64] | None


class ArmsFactor:
    """State and arithmetic, always with one batch dimension ``B``; nothing is checked here.

    Args:
        prior: The prior covariance of the arms.
        lam: ``B x 1``; the regularization of each replicate.

    Attributes:
        num_arms: The number of arms.
        is_in_numpy: Whether there is a single stream on the CPU, for which NumPy computes on the
            same memory.
    """

    def __init__(self, prior: ArmsPrior, lam: Tensor) -> None:
        """See the class."""
        self.prior = prior
        self._lam = lam
        diagonal = prior.diagonal
        self.num_arms = prior.num_arms
        self.is_in_numpy = len(lam) == 1 and diagonal.device.type == "cpu"
        self._statistics = diagonal.new_zeros(3, len(lam), self.num_arms)
        self._mean = diagonal.new_zeros(len(lam), self.num_arms)
        self._variance = diagonal.expand(len(lam), -1).clone()
        self._gain = diagonal.new_zeros(len(lam))
        self._base: Tensor | None = None
        self._factored: Tensor | None = None
        self._num_factored = 0  # rows of it that are current
        self._allocate(SMALLEST_BUFFER)
        self._num_rows, self._row_limit = 0, SMALLEST_BUFFER

    @property
    def device(self) -> torch.device:
        """The device on which the arithmetic runs."""
        return self._mean.device

    @property
    def moments_in_numpy(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance of one stream, ``num_arms`` each, which change in place; read only."""
        return self._memory.mean, self._memory.variance

    @property
    def all_arms(self) -> Tensor:
        """The arm numbers."""
        return torch.arange(self.num_arms, device=self._mean.device)

    def refactorize(self) -> None:
        """Recompute everything from the statistics, and choose the form of ``S_0``."""
        self._compact()
        self._choose_form()

    def _allocate(self, num_rows: int) -> None:
        shape = (len(self._gain), num_rows)
        self._rows = self._mean.new_empty(*shape, self.num_arms)
        self._row_arms = torch.zeros(shape, dtype=torch.long, device=self._mean.device)
        self._row_scale = self._mean.new_ones(shape)
        self._row_valid = torch.zeros(shape, dtype=torch.bool, device=self._mean.device)
        self._share_memory()

    def _share_memory(self) -> None:
        self._counts, self._sums, self._squares = self._statistics
        if self.is_in_numpy:
            statistics = self._statistics.numpy()
            self._memory = _Memory(
                mean=self._mean.numpy()[0],
                variance=self._variance.numpy()[0],
                statistics=(statistics[0, 0], statistics[1, 0], statistics[2, 0]),
                gain=self._gain.numpy(),
                rows=self._rows.numpy()[0],
                row_arms=self._row_arms.numpy()[0],
                row_scale=self._row_scale.numpy()[0],
                row_valid=self._row_valid.numpy()[0],
                lam=float(self._lam),
                product=np.empty(self.num_arms),
                number=np.empty(()),
                prior=None if self.prior.matrix is None else self.prior.matrix.numpy(),
                base=None,
            )
        self._set_base(self._base)

    def _set_base(self, base: Tensor | None) -> None:
        self._base = base
        if self.is_in_numpy:
            self._memory.base = None if base is None else base.numpy()[0]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what shares memory with the rest."""
        shared = ("_memory", "_counts", "_sums", "_squares")
        return {name: value for name, value in self.__dict__.items() if name not in shared}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share memory again."""
        self.__dict__.update(state)
        self._share_memory()

    def _columns(self, index: Tensor) -> Tensor:
        """Map ``B x k`` arms to the ``B x k x num_arms`` columns of their posterior covariance."""
        columns = self._columns_of_base(index)
        if self._num_rows == 0:
            return columns
        rows = self._rows[:, : self._num_rows]
        at_arms = rows.gather(-1, index.unsqueeze(-2).expand(-1, self._num_rows, -1))
        return torch.baddbmm(columns, at_arms.mT, rows, alpha=-1.0)

    def _columns_of_base(self, index: Tensor) -> Tensor:
        """Map ``B x k`` arms to the ``B x k x num_arms`` columns of ``S_0``."""
        if self._base is None:
            return self.prior.columns(index)
        return self._base.gather(-2, index.unsqueeze(-1).expand(-1, -1, self.num_arms))

    def _column_of_base(self, arm: int) -> Tensor:
        """Return the column of one arm if no matrix is kept; it must not be changed."""
        return self.prior.column(arm)

    def _gains_of(self, simulated: Tensor) -> Tensor:
        """Map ``B x num_arms`` mean outcomes of the arms to the resulting posterior means."""
        n = self._num_rows
        if self._base is not None:
            weights = (simulated * self._counts / self._lam).unsqueeze(-1)
            gains = self._base @ weights
            if n:
                rows = self._rows[:, :n]
                gains -= rows.mT @ (rows @ weights)
            return gains.squeeze(-1)
        if n == 0:
            return torch.zeros_like(simulated)
        arms, rows = self._row_arms[:, :n], self._rows[:, :n]
        factor = self._factor()
        weights = torch.linalg.solve_triangular(
            factor, simulated.gather(-1, arms).unsqueeze(-1), upper=False
        )
        return (weights.mT @ rows).squeeze(-2)

    def _factor(self) -> Tensor:
        """``B x n x n``; the lower Cholesky factor from which the rows come, if they are few."""
        n = self._num_rows
        arms, rows = self._row_arms[:, :n], self._rows[:, :n]
        if len(rows) > 1:
            factor = rows.gather(-1, arms.unsqueeze(-2).expand(-1, n, -1)).mT.tril(-1)
            factor = factor * self._row_valid[:, :n].unsqueeze(-1)
            factor.diagonal(dim1=-2, dim2=-1).copy_(self._row_scale[:, :n])
            return factor
        # kept for a single stream, because the rows at the arms are far apart in memory
        known = self._factored
        if known is None or known.shape[-1] < n:
            known = self._mean.new_zeros(1, self._rows.shape[1], self._rows.shape[1])
            self._num_factored = 0
        for i in range(self._num_factored, n):
            known[0, i, :i] = rows[0, :i, arms[0, i]] * self._row_valid[0, i]
        known.diagonal(dim1=-2, dim2=-1)[:, :n] = self._row_scale[:, :n]
        self._factored, self._num_factored = known, n
        return known[:, :n, :n]

    def _forget_all(self) -> None:
        self._set_base(None)
        self._num_rows, self._row_limit = 0, SMALLEST_BUFFER
        self._forget(torch.ones_like(self._gain, dtype=torch.bool))

    def _forget(self, mask: Tensor) -> None:
        self._num_factored = 0
        self._statistics[:, mask] = 0.0
        self._mean[mask] = 0.0
        self._variance[mask] = self.prior.diagonal
        self._gain[mask] = 0.0
        self._rows[mask] = 0.0
        self._row_valid[mask] = False
        if self._base is not None:
            self._base[mask] = self.prior.columns(self.all_arms)

    def _observe_one(self, arm: int, outcome: float, weight: float = 1.0) -> None:
        # NumPy on the same memory, because calls of PyTorch would cost more than the arithmetic
        if self._num_rows == self._row_limit:
            self._make_room()
        n, memory = self._num_rows, self._memory
        if memory.base is not None:
            column = memory.base[arm]
        elif memory.prior is not None:
            column = memory.prior[arm]
        else:
            column = self._column_of_base(arm).numpy()
        row, product = memory.rows[n], memory.product
        mean, variance = memory.mean, memory.variance
        if n:
            rows = memory.rows[:n]
            column = np.subtract(column, np.dot(rows[:, arm], rows, out=product), out=row)
        before = max(float(variance[arm]), 0.0)
        lam = memory.lam / weight
        scale = math.sqrt(before + lam)
        number = memory.number  # NumPy would create an array of a number in each call
        number[()] = scale
        np.divide(column, number, out=row)
        number[()] = (outcome - float(mean[arm])) / scale
        np.multiply(row, number, out=product)
        np.add(mean, product, out=mean)
        np.multiply(row, row, out=product)
        np.subtract(variance, product, out=variance)
        memory.gain[0] += 0.5 * math.log1p(before / lam)
        counts, sums, squares = memory.statistics
        counts[arm] += weight
        sums[arm] += weight * outcome
        squares[arm] += weight * (outcome * outcome)
        memory.row_arms[n] = arm
        memory.row_scale[n] = scale
        memory.row_valid[n] = True
        self._num_rows = n + 1

    def _observe_batch(
        self, arm: Tensor, outcome: Tensor, mask: Tensor | None, weight: float = 1.0
    ) -> None:
        if self._num_rows == self._row_limit:
            self._make_room()
        n = self._num_rows
        index = arm.unsqueeze(-1)
        column = self._columns(index).squeeze(-2)
        before = self._variance.gather(-1, index).clamp_min_(0.0)
        lam = self._lam if weight == 1.0 else self._lam / weight
        scale = (before + lam).sqrt_()
        row = column.div_(scale)
        gain = torch.log1p(before.div_(lam)).mul_(0.5).squeeze(-1)
        one = torch.ones_like(scale)
        if mask is not None:
            row = row.mul_(mask.unsqueeze(-1))
            gain, one = gain * mask, one * mask.unsqueeze(-1)
        residual = (outcome.unsqueeze(-1) - self._mean.gather(-1, index)).div_(scale)
        self._rows[:, n] = row
        self._mean.addcmul_(row, residual)
        self._variance.addcmul_(row, row, value=-1.0)
        self._gain += gain
        values = torch.stack([one, outcome.unsqueeze(-1), outcome.unsqueeze(-1) ** 2])
        values = values if weight == 1.0 else values.mul_(weight)
        self._statistics.scatter_add_(-1, index.expand_as(values), values)
        self._row_arms[:, n] = arm
        self._row_scale[:, n] = scale.squeeze(-1)
        self._row_valid[:, n] = True if mask is None else mask
        if mask is not None:  # a row that does not count has a factor of its own, which is 1
            self._row_scale[:, n].masked_fill_(~mask, 1.0)
        self._num_rows = n + 1

    def _make_room(self) -> None:
        if self._base is None:
            self._compact()
            self._choose_form()
        else:
            rows = self._rows[:, : self._num_rows]
            self._base.baddbmm_(rows.mT, rows, alpha=-1.0)
            self._variance.copy_(self._base.diagonal(dim1=-2, dim2=-1))
            self._num_rows = 0

    def _choose_form(self) -> None:
        """Run after :meth:`_compact`: keep the rows of the distinct arms, or fold them."""
        num_rows, self._row_limit, has_base = self._form_of(self._num_rows)
        if not has_base:
            return
        rows = self._rows[:, : self._num_rows]
        prior = self.prior.columns(self.all_arms).expand(len(rows), -1, -1)
        self._set_base(torch.baddbmm(prior, rows.mT, rows, alpha=-1.0))
        self._num_rows = num_rows

    def _form_of(self, num_distinct: int) -> tuple[int, int, bool]:
        """Return the number of rows kept, the size of the buffer, and whether rows are folded."""
        few = ROW_COST * num_distinct < self.num_arms
        if few or self.num_arms > LARGEST_MATRIX or num_distinct <= SMALLEST_BUFFER // 2:
            return num_distinct, max(SMALLEST_BUFFER, 2 * num_distinct), False
        return 0, DENSE_BLOCK, True

    def _compact(self) -> None:
        """Turn the rows into those of the distinct arms played, from the statistics alone."""
        self._set_base(None)
        self._num_factored = 0
        played = self._counts > 0
        p = int(played.sum(-1).max())
        if 2 * p > self._rows.shape[1]:
            self._allocate(max(SMALLEST_BUFFER, 2 * p))
        self._num_rows = p
        if p == 0:
            self._mean.zero_()
            self._variance.copy_(self.prior.diagonal.expand_as(self._variance))
            self._gain.zero_()
            return
        if self.is_in_numpy and self.prior.matrix is not None:
            self._compact_one(self.prior.matrix, p)
            return
        # replicates that played fewer arms are padded with rows that do not count
        index = torch.sort(played.to(torch.int8), dim=-1, descending=True, stable=True).indices
        index = index[:, :p]
        valid = played.gather(-1, index)
        counts = ones_for_none(self._counts.gather(-1, index))
        columns = self.prior.columns(index) * valid.unsqueeze(-1)  # B x p x num_arms
        block = columns.gather(-1, index.unsqueeze(-2).expand(-1, p, -1)) * valid.unsqueeze(-2)
        noise = (self._lam / counts).where(valid, torch.ones_like(counts))
        block.diagonal(dim1=-2, dim2=-1).add_(noise)
        factor = self._factorize(block)
        means = self._sums.gather(-1, index) / counts * valid
        right = torch.cat([columns, means.unsqueeze(-1)], dim=-1)
        solved = torch.linalg.solve_triangular(factor, right, upper=False)
        rows, weights = solved[..., :-1], solved[..., -1:]
        self._rows[:, :p] = rows
        self._mean.copy_((rows.mT @ weights).squeeze(-1))
        self._variance.copy_(self.prior.diagonal - rows.square().sum(-2))
        scale = factor.diagonal(dim1=-2, dim2=-1)
        logs = scale.log() + 0.5 * (counts / self._lam).log()
        self._gain.copy_((logs * valid).sum(-1))
        self._row_arms[:, :p] = index
        self._row_scale[:, :p] = scale
        self._row_valid[:, :p] = valid

    def _compact_one(self, prior: Tensor, p: int) -> None:
        """Do :meth:`_compact` for one stream in the memory of its rows, as copies cost most."""
        counts = self._counts[0]
        index = counts.nonzero().squeeze(-1)
        counts = counts[index]
        rows = self._rows[0, :p]
        torch.index_select(prior, 0, index, out=rows)
        block = rows[:, index]
        block.diagonal().add_(self._lam[0] / counts)
        factor = self._factorize(block)
        means = (self._sums[0, index] / counts).unsqueeze(-1)
        weights = torch.linalg.solve_triangular(factor, means, upper=False)
        torch.linalg.solve_triangular(factor, rows, upper=False, out=rows)
        torch.mv(rows.T, weights.squeeze(-1), out=self._mean[0])
        torch.sub(self.prior.diagonal, rows.square().sum(0), out=self._variance[0])
        scale = factor.diagonal()
        self._gain[0] = (scale.log() + 0.5 * (counts / self._lam[0]).log()).sum()
        self._row_arms[0, :p] = index
        self._row_scale[0, :p] = scale
        self._row_valid[0, :p] = True

    def _factorize(self, block: Tensor) -> Tensor:
        # in units of the prior variance, because an absolute jitter would be lost on large ones
        return psd_safe_cholesky(
            block, jitter=1e-14 * float(self.prior.diagonal.max()), max_tries=4
        )


def ones_for_none(counts: Tensor) -> Tensor:
    """Return counts with 1 in place of 0, so that sums and noise can be divided by them."""
    return counts.masked_fill(counts == 0.0, 1.0)


class ArmsPosterior(ArmsFactor):
    """Posterior mean and covariance of all arms, with a running information gain.

    A leading batch dimension contains independent replicates that share prior and regularization.

    Args:
        prior: The prior covariance of the arms, or a ``num_arms x num_arms`` matrix of it, float64.
        lam: The regularization (modeled noise variance), in the same units; one number, or a
            float64 tensor of ``batch_shape``.
        batch_shape: ``()`` for one stream of observations, ``(B,)`` for replicates.

    Attributes:
        prior: The prior.
        lam: The regularization as given.
        batch_shape: The shape of the replicates.
        counts_before: ``B x num_arms``; the number of observations of each arm after the last round
            whose number is a multiple of :data:`SNAPSHOT_EVERY`, also within a record.

    Example:
        >>> posterior = ArmsPosterior(torch.eye(2, dtype=torch.float64), lam=1.0)
        >>> posterior.observe(torch.tensor(0), torch.tensor(2.0, dtype=torch.float64))
        >>> posterior.mean.round(decimals=9).tolist()
        [1.0, 0.0]
    """

    def __init__(
        self, prior: ArmsPrior | Tensor, lam: float | Tensor, batch_shape: Sequence[int] = ()
    ) -> None:
        """See the class."""
        prior = prior if isinstance(prior, ArmsPrior) else ArmsPrior.from_matrix(prior)
        self.batch_shape = torch.Size(batch_shape)
        if len(self.batch_shape) > 1:
            raise ValueError(f"batch_shape is {tuple(batch_shape)}; it must be () or (B,).")
        num_replicates = self.batch_shape[0] if self.batch_shape else 1
        diagonal = prior.diagonal
        if isinstance(lam, Tensor):
            for level in lam.reshape(-1).tolist():
                check_positive("lam", level)
        else:
            lam = check_positive("lam", lam)
        self.lam = lam
        levels = torch.as_tensor(lam, dtype=diagonal.dtype, device=diagonal.device)
        # one row per replicate, so that it broadcasts over arms
        super().__init__(prior, levels.expand(num_replicates).unsqueeze(-1).clone())
        # chosen so that a factorization from scratch costs less than the rounds between two of them
        self._rounds, self._rounds_between = 0, max(1024, 4 * self.num_arms)
        self.counts_before = torch.zeros_like(self._counts)

    @property
    def regularization(self) -> Tensor:
        """``batch_shape``; the regularization."""
        return self._outside(self._lam.squeeze(-1).clone())

    @property
    def mean(self) -> Tensor:
        """``batch_shape x num_arms``; clone it to keep it, as the next observation changes it."""
        return self._outside(self._mean)

    @property
    def variance(self) -> Tensor:
        """``batch_shape x num_arms``; the posterior variances, at least 0."""
        return self.clamped_variance(0.0)

    def clamped_variance(self, smallest: float) -> Tensor:
        """Return the variances, ``batch_shape x num_arms``, at least ``smallest``."""
        return self._outside(self._variance.clamp_min(smallest))

    @property
    def standard_deviation(self) -> Tensor:
        """``batch_shape x num_arms``; the posterior standard deviations."""
        return self.variance.sqrt_()

    @property
    def information_gain(self) -> Tensor:
        """``batch_shape``; ``1/2 ln det(I + K / lam)`` of all observations, in nats."""
        return self._outside(self._gain).clone()

    @property
    def counts(self) -> Tensor:
        """``batch_shape x num_arms``; the number of observations of each arm, float64."""
        return self._outside(self._counts).clone()

    @property
    def sums(self) -> Tensor:
        """``batch_shape x num_arms``; the sum of the outcomes of each arm."""
        return self._outside(self._sums).clone()

    @property
    def squares(self) -> Tensor:
        """``batch_shape x num_arms``; the sum of the squared outcomes of each arm."""
        return self._outside(self._squares).clone()

    @property
    def covariance(self) -> Tensor:
        """``batch_shape x num_arms x num_arms``; computed on request."""
        index = torch.arange(self.num_arms, device=self._mean.device)
        return self.covariance_columns(index.expand(*self.batch_shape, -1))

    def observe(
        self,
        arm: Tensor | int,
        outcome: Tensor | float,
        mask: Tensor | None = None,
        weight: float = 1.0,
    ) -> None:
        """Add one outcome per replicate.

        Args:
            arm: ``batch_shape`` arm numbers.
            outcome: ``batch_shape`` outcomes, float64.
            mask: ``batch_shape``; replicates where it is False observe nothing.
            weight: The noise variance is ``lam / weight``; a mean of ``n`` outcomes has ``n``.

        Raises:
            TypeError: If an arm number is not an integer. In this case, nothing is changed.
            ValueError: If there is no such arm, or an outcome that counts is not finite. In this
                case, nothing is changed.
        """
        if mask is None and self.is_in_numpy:
            value = float(outcome)
            if not math.isfinite(value):
                raise ValueError(f"outcome is {value}; it must be finite.")
            self._observe_one(self._arm_number(arm), value, weight)
        else:
            shape = self._gain.shape
            arms = self._arm_numbers(arm)
            outcomes = self._tensor(outcome).expand(shape)
            active = None if mask is None else mask.expand(shape)
            if active is not None:
                outcomes = outcomes.where(active, torch.zeros_like(outcomes))
            check_finite("outcome", outcomes)
            self._observe_batch(arms, outcomes, active, weight)
        self._rounds += 1
        if self._rounds % SNAPSHOT_EVERY == 0:
            self.counts_before = self._counts.clone()
        if self._rounds % self._rounds_between == 0:
            self.refactorize()

    def observe_many(
        self,
        arms: Sequence[int],
        outcomes: Sequence[float],
        weights: Sequence[float] | None = None,
    ) -> None:
        """Add a record of one stream, with the same result, to the last bit, as one by one.

        Args:
            arms: Arm numbers in order.
            outcomes: Their outcomes.
            weights: The weight of each outcome, see :meth:`observe`; all are 1 if omitted.

        Raises:
            TypeError: If an arm number is not an integer.
            ValueError: If there are not as many outcomes as arms, there is no such arm, or an
                outcome is not finite.
        """
        if len(arms) == len(outcomes) == 1 and not self.batch_shape:
            self.observe(arms[0], outcomes[0], weight=1.0 if weights is None else weights[0])
            return
        if len(arms) != len(outcomes):
            raise ValueError(
                f"arms has {len(arms)} entries and outcomes {len(outcomes)}; give one outcome for "
                "each arm that was played."
            )
        skipped = 0
        if self._rounds == 0 and not self.batch_shape:
            numbers = [self._arm_number(arm) for arm in arms]
            # before the last factorization from scratch, only the statistics matter
            skipped = self._last_fresh_start(numbers)
            first = np.array(numbers[:skipped], dtype=np.int64)
            of_first = None if weights is None else np.array(weights[:skipped], dtype=np.float64)
            self._add_up(first, outcomes[:skipped], of_first)
            self._rounds = skipped
            if skipped:
                self.refactorize()
        own = [1.0] * len(arms) if weights is None else weights
        rest = (each[skipped:] for each in (arms, outcomes, own))
        for arm, outcome, weight in zip(*rest, strict=True):
            self.observe(arm, outcome, weight=weight)

    def _add_up(
        self,
        index: NDArray[np.int64],
        outcomes: Sequence[float],
        weights: NDArray[np.float64] | None,
    ) -> None:
        """Set the statistics of a single stream to those of a record, before anything else."""
        values = np.array(outcomes, dtype=np.float64)
        check_finite("outcomes", torch.from_numpy(values))
        for statistic, power in zip(self._statistics, (0, 1, 2), strict=True):
            total, powers = np.zeros(self.num_arms), values**power
            # adds in order, as single rounds do
            np.add.at(total, index, powers if weights is None else weights * powers)
            statistic[0] = torch.from_numpy(total).to(statistic)
        num_before = len(index) // SNAPSHOT_EVERY * SNAPSHOT_EVERY
        before = index[:num_before]
        of_before = None if weights is None else weights[:num_before]
        counts = np.bincount(before, of_before, minlength=self.num_arms).astype(np.float64)
        self.counts_before = torch.from_numpy(counts).to(self._counts).unsqueeze(0)

    def _last_fresh_start(self, arms: Sequence[int]) -> int:
        """Return the round of a record after which everything was last recomputed from statistics.

        A single stream does so when its buffer is full, and every few thousand rounds; which rounds
        these are depends only on the arms.
        """
        start, num_rows, limit, has_base = 0, 0, SMALLEST_BUFFER, False
        played: set[int] = set()
        for number, arm in enumerate(arms, 1):
            if num_rows == limit:
                if has_base:
                    num_rows = 0  # rows are folded into the covariance
                else:
                    start = number - 1
                    num_rows, limit, has_base = self._form_of(len(played))
            played.add(arm)
            num_rows += 1
            if number % self._rounds_between == 0:
                start = number
                num_rows, limit, has_base = self._form_of(len(played))
        return start

    def change_outcome(self, arm: Tensor | int, old: Tensor | float, new: Tensor | float) -> None:
        """Replace one past outcome of an arm with another, in each replicate.

        Args:
            arm: ``batch_shape`` arm numbers.
            old: ``batch_shape`` outcomes as reported.
            new: ``batch_shape`` outcomes in their place; equal outcomes change nothing.

        Raises:
            TypeError: If an arm number is not an integer.
            ValueError: If there is no such arm, an arm was never observed, or a new outcome is not
                finite.
        """
        shape = self._gain.shape
        arms = self._arm_numbers(arm)
        before = self._tensor(old).expand(shape)
        after = check_finite("new", self._tensor(new).expand(shape))
        index = arms.unsqueeze(-1)
        if not bool((self._counts.gather(-1, index) > 0).all()):
            raise ValueError(f"arm is {arms.tolist()}; an outcome of it was never observed.")
        change = (after - before).unsqueeze(-1)
        self._sums.scatter_add_(-1, index, change)
        self._squares.scatter_add_(-1, index, (after**2 - before**2).unsqueeze(-1))
        self._mean += self._columns(index).squeeze(-2) * (change / self._lam)

    def relabel(self, sums: Tensor, squares: Tensor | None = None) -> None:
        """Replace all outcomes; how often each arm was observed stays the same.

        Args:
            sums: ``batch_shape x num_arms``; the new sum of the outcomes of each arm. Arms that
                were not observed do not count.
            squares: ``batch_shape x num_arms``; the new sum of their squares, if it is needed.
        """
        check_finite("sums", sums)
        self._sums.copy_(sums).mul_(self._counts > 0)
        if squares is not None:
            self._squares.copy_(check_finite("squares", squares)).mul_(self._counts > 0)
        self.refactorize()

    def reset(self, mask: Tensor | None = None) -> None:
        """Forget everything, in all replicates or where ``mask`` (``batch_shape``) is True."""
        if mask is None or bool(mask.all()):
            self._rounds = 0
            self.counts_before = torch.zeros_like(self._counts)
            self._forget_all()
        else:
            self._forget(mask.expand(self._gain.shape))

    def covariance_columns(self, index: Tensor) -> Tensor:
        """Return posterior covariances of some arms with all arms.

        Args:
            index: ``batch_shape x k`` arm numbers.

        Returns:
            A ``batch_shape x k x num_arms`` tensor.
        """
        return self._outside(self._columns(index if self.batch_shape else index.unsqueeze(0)))

    def variance_given(self, index: Tensor) -> Tensor:
        """Return the variances after observing some arms once more, whatever the outcomes.

        Args:
            index: ``batch_shape x k`` arm numbers, repeats allowed.

        Returns:
            A ``batch_shape x num_arms`` tensor, at least 0.
        """
        index = index if self.batch_shape else index.unsqueeze(0)
        columns = self._columns(index)
        block = columns.gather(-1, index.unsqueeze(-2).expand(*index.shape, index.shape[-1]))
        block.diagonal(dim1=-2, dim2=-1).add_(self._lam)
        rows = torch.linalg.solve_triangular(torch.linalg.cholesky(block), columns, upper=False)
        return self._outside((self._variance - rows.square().sum(-2)).clamp_min(0.0))

    @property
    def num_normals(self) -> int:
        """The number of standard normal numbers that one draw takes."""
        return len(self.prior.root) + self.num_arms

    def simulate_prior(self, normal: Tensor) -> Tensor:
        """Turn normal numbers into what :meth:`correct` needs; many draws at a time cost less.

        Args:
            normal: ``... x num_normals`` independent standard normal numbers.

        Returns:
            A ``... x 2 x num_arms`` tensor: a function drawn from the prior, and normal numbers for
            the noise of its simulated observations.
        """
        rank = len(self.prior.root)
        return torch.stack([normal[..., :rank] @ self.prior.root, normal[..., rank:]], dim=-2)

    def sample(self, normal: Tensor) -> Tensor:
        """Draw jointly over all arms, exactly, one draw per replicate.

        A function is drawn from the prior and corrected by kriging (Matheron's rule), so the
        covariance needs no root. Equal numbers give equal draws, regardless of the form of ``S_0``.

        Args:
            normal: ``batch_shape x num_normals`` independent standard normal numbers.

        Returns:
            A ``batch_shape x num_arms`` tensor.
        """
        return self.correct(self.simulate_prior(normal))

    def correct(self, simulation: Tensor) -> Tensor:
        """Turn draws from the prior into draws from the posterior; see :meth:`sample`.

        Args:
            simulation: ``batch_shape x 2 x num_arms``, from :meth:`simulate_prior`.
        """
        simulation = simulation.reshape(len(self._gain), 2, self.num_arms)
        function = simulation[:, 0]
        noise = (self._lam / ones_for_none(self._counts)).sqrt_().mul_(simulation[:, 1])
        simulated = noise.add_(function)  # the mean outcome of each arm if this were the truth
        return self._outside(self._mean + function - self._gains_of(simulated))

    def _arm_number(self, arm: Tensor | int) -> int:
        number = arm if type(arm) is int else check_integer("arm", arm, minimum=0)
        if not 0 <= number < self.num_arms:
            raise ValueError(self._no_such_arm(number))
        return number

    def _arm_numbers(self, arm: Tensor | int) -> Tensor:
        arms = torch.as_tensor(arm, device=self._mean.device)
        if arms.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"arm has dtype {arms.dtype}, but arm numbers are integers (int64).")
        if arms.device.type == "cpu":  # reading from a GPU would wait, and it checks numbers itself
            smallest, largest = (int(end) for end in arms.aminmax())
            if smallest < 0 or largest >= self.num_arms:
                raise ValueError(self._no_such_arm(smallest if smallest < 0 else largest))
        return arms.long().expand(self._gain.shape)

    def _no_such_arm(self, number: int) -> str:
        return (
            f"arm is {number}, but the {self.num_arms} arms are numbered from 0 to "
            f"{self.num_arms - 1}."
        )

    def _tensor(self, value: Tensor | float) -> Tensor:
        return torch.as_tensor(value, dtype=self._mean.dtype, device=self._mean.device)

    def _outside(self, value: Tensor) -> Tensor:
        return value if self.batch_shape else value[0]


class ArmsPriorSummary(RunningPriorSummary):
    """A view of a posterior on arms that lets width rules work on it as on any model.

    Args:
        posterior: The posterior, which is read again at each access.
        prior_variance: The prior variance, the unit of bounds.
    """

    def __init__(self, posterior: ArmsPosterior, prior_variance: float = 1.0) -> None:
        """See the class."""
        self._posterior = posterior
        super().__init__(posterior, posterior.regularization, prior_variance)

    def kernel_matrix(self) -> Tensor:
        return self._posterior.prior.columns(self._posterior.all_arms)

    @property
    def num_rows(self) -> int | Tensor:  # type: ignore[override]
        """The number of observations: a number, or one per replicate if they differ."""
        total = self._posterior.counts.sum(-1)
        first = total.reshape(-1)[0]
        return int(first) if bool((total == first).all()) else total

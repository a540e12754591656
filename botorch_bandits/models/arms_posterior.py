r"""The exact posterior on a finite set of arms, at a cost a round that does not grow with time.

What was observed is kept as sufficient statistics: count ``n_i``, sum and sum of squares of the
outcomes of each arm. Several observations of one arm are one observation of their mean with
noise variance ``lam / n_i``. The posterior covariance is

.. math:: S = S_0 - R^\top R

with rows ``R`` that grow by one an observation (``r = S_i / sqrt(v_i + lam)``, with ``S_i`` the
column of the arm that was played and ``v_i`` its variance), and

.. math:: \mu \leftarrow \mu + \frac{y - \mu_i}{\sqrt{v_i + \lambda}} r, \qquad
          v \leftarrow v - r^2 .

When the buffer of rows is full, one of two things happens. Where few distinct arms ``P`` were
played, ``R`` becomes :math:`L^{-1} K_P` with ``L`` the Cholesky factor of
:math:`K_{PP} + \mathrm{diag}(\lambda / n)`, and ``S_0`` stays the prior: no matrix of all arms is
ever needed. Otherwise the rows are folded into a dense ``S_0``. Every few thousand rounds the
statistics are factorised afresh, so rounding errors do not build up, and a posterior that is
rebuilt from a long record need not replay all of it.
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

from botorch_bandits.checks import check_finite, check_positive
from botorch_bandits.models.arms_prior import LARGEST_MATRIX, ArmsPrior

SMALLEST_BUFFER = 64
"""Rows that are kept before the posterior decides how to go on."""

DENSE_BLOCK = 32
"""Rows that are folded into a dense covariance at a time: one product of matrices is fast."""

ROW_COST = 2.5
"""Rows of distinct arms cost as much a round as a dense covariance of this many arms each."""


@dataclass(eq=False, slots=True)
class _Memory:
    """The memory of a single stream, as numpy sees it."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    statistics: NDArray[np.float64]
    gain: NDArray[np.float64]
    rows: NDArray[np.float64]
    row_arms: NDArray[np.int64]
    row_scale: NDArray[np.float64]
    row_valid: NDArray[np.bool_]
    lam: float


class ArmsPosterior:
    """Posterior mean and covariance of all arms, with a running information gain.

    A leading batch dimension holds independent replicates that share prior and regularisation.

    Args:
        prior: The prior covariance of the arms, or a ``num_arms x num_arms`` matrix of it, float64.
        lam: The regularisation (modelled noise variance), in the same units; one number, or a
            float64 tensor of ``batch_shape``.
        batch_shape: ``()`` for one stream of observations, ``(B,)`` for replicates.

    Attributes:
        prior: The prior.
        lam: The regularisation as it was given.
        batch_shape: The shape of the replicates.

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
        self.prior = prior if isinstance(prior, ArmsPrior) else ArmsPrior.from_matrix(prior)
        self.batch_shape = torch.Size(batch_shape)
        if len(self.batch_shape) > 1:
            raise ValueError(f"batch_shape is {tuple(batch_shape)}; it must be () or (B,).")
        num_replicates = self.batch_shape[0] if self.batch_shape else 1
        diagonal = self.prior.diagonal
        self.lam = lam
        for level in lam.reshape(-1).tolist() if isinstance(lam, Tensor) else [lam]:
            check_positive("lam", level)
        # one row a replicate, so that it broadcasts over arms
        self._lam = (
            torch.as_tensor(lam, dtype=diagonal.dtype, device=diagonal.device)
            .expand(num_replicates)
            .unsqueeze(-1)
            .clone()
        )
        # inside there is always one batch dimension
        self._statistics = diagonal.new_zeros(3, num_replicates, self.num_arms)
        self._mean = diagonal.new_zeros(num_replicates, self.num_arms)
        self._variance = diagonal.expand(num_replicates, -1).clone()
        self._gain = diagonal.new_zeros(num_replicates)
        # chosen so that a fresh factorisation costs less than the rounds between two of them
        self._rounds, self._rounds_between = 0, max(1024, 4 * self.num_arms)
        self._base: Tensor | None = None
        self._allocate(SMALLEST_BUFFER)
        self._num_rows, self._row_limit = 0, SMALLEST_BUFFER

    @property
    def regularisation(self) -> Tensor:
        """``batch_shape``; the regularisation."""
        return self._outside(self._lam.squeeze(-1))

    @property
    def num_arms(self) -> int:
        """How many arms there are."""
        return self.prior.num_arms

    @property
    def all_arms(self) -> Tensor:
        """The arm numbers."""
        return torch.arange(self.num_arms, device=self._mean.device)

    @property
    def mean(self) -> Tensor:
        """``batch_shape x num_arms``; it changes with the next observation, so clone it to keep."""
        return self._outside(self._mean)

    @property
    def variance(self) -> Tensor:
        """``batch_shape x num_arms``; at least 0."""
        return self._outside(self._variance.clamp_min(0.0))

    @property
    def standard_deviation(self) -> Tensor:
        """``batch_shape x num_arms``."""
        return self.variance.sqrt_()

    @property
    def information_gain(self) -> Tensor:
        """``batch_shape``; ``1/2 ln det(I + K / lam)`` of all observations, in nats."""
        return self._outside(self._gain)

    @property
    def counts(self) -> Tensor:
        """``batch_shape x num_arms``; how often each arm was observed, float64."""
        return self._outside(self._counts)

    @property
    def sums(self) -> Tensor:
        """``batch_shape x num_arms``; the sum of the outcomes of each arm."""
        return self._outside(self._sums)

    @property
    def squares(self) -> Tensor:
        """``batch_shape x num_arms``; the sum of the squared outcomes of each arm."""
        return self._outside(self._squares)

    @property
    def covariance(self) -> Tensor:
        """``batch_shape x num_arms x num_arms``, computed when asked for."""
        index = torch.arange(self.num_arms, device=self._mean.device)
        return self.covariance_columns(index.expand(*self.batch_shape, -1))

    def observe(
        self, arm: Tensor | int, outcome: Tensor | float, mask: Tensor | None = None
    ) -> None:
        """Take in one outcome a replicate.

        Args:
            arm: ``batch_shape`` arm numbers.
            outcome: ``batch_shape`` outcomes, float64.
            mask: ``batch_shape``; replicates where it is False observe nothing.

        Raises:
            ValueError: If an outcome that counts is not finite. Nothing is changed then.
        """
        if len(self._gain) == 1 and mask is None and self._mean.device.type == "cpu":
            value = float(outcome)
            if not math.isfinite(value):
                raise ValueError(f"outcome is {value}; it must be finite.")
            self._observe_one(int(arm), value)
        else:
            shape = self._gain.shape
            arms = torch.as_tensor(arm, device=self._mean.device).expand(shape)
            outcomes = self._tensor(outcome).expand(shape)
            active = None if mask is None else mask.expand(shape)
            if active is not None:
                outcomes = outcomes.where(active, torch.zeros_like(outcomes))
            check_finite("outcome", outcomes)
            self._observe_batch(arms, outcomes, active)
        self._rounds += 1
        if self._rounds % self._rounds_between == 0:
            self.refactorise()

    def observe_many(self, arms: Sequence[int], outcomes: Sequence[float]) -> None:
        """Take in a record of one stream; the same, to the last bit, as one after the other.

        Args:
            arms: Arm numbers in order.
            outcomes: Their outcomes.
        """
        skipped = 0
        if self._rounds == 0 and not self.batch_shape:
            # up to the last fresh factorisation only the statistics matter
            skipped = len(arms) // self._rounds_between * self._rounds_between
            index, values = (
                np.asarray(arms[:skipped], dtype=np.int64),
                np.asarray(outcomes[:skipped]),
            )
            check_finite("outcomes", torch.from_numpy(values.astype(np.float64)))
            for statistic, power in zip(self._statistics, (0, 1, 2), strict=True):
                total = np.zeros(self.num_arms)
                np.add.at(total, index, values**power)  # adds in order, as single rounds do
                statistic[0] = torch.from_numpy(total).to(statistic)
            self._rounds = skipped
            if skipped:
                self.refactorise()
        for arm, outcome in zip(arms[skipped:], outcomes[skipped:], strict=True):
            self.observe(arm, outcome)

    def change_outcome(self, arm: Tensor | int, old: Tensor | float, new: Tensor | float) -> None:
        """Replace one past outcome of an arm by another, in each replicate.

        Args:
            arm: ``batch_shape`` arm numbers.
            old: ``batch_shape`` outcomes as they were told.
            new: ``batch_shape`` outcomes in their place; equal ones change nothing.

        Raises:
            ValueError: If an arm was never observed or a new outcome is not finite.
        """
        shape = self._gain.shape
        arms = torch.as_tensor(arm, device=self._mean.device).expand(shape)
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
        """Replace all outcomes; what was observed how often stays.

        Args:
            sums: ``batch_shape x num_arms``; the new sum of the outcomes of each arm. Arms that
                were not observed do not count.
            squares: Likewise of the squares, where they are needed.
        """
        check_finite("sums", sums)
        self._sums.copy_(sums).mul_(self._counts > 0)
        if squares is not None:
            self._squares.copy_(check_finite("squares", squares)).mul_(self._counts > 0)
        self.refactorise()

    def reset(self, mask: Tensor | None = None) -> None:
        """Forget everything, in all replicates or where ``mask`` (``batch_shape``) is True."""
        if mask is None or bool(mask.all()):
            self._statistics.zero_()
            self._base, self._num_rows, self._row_limit = None, 0, SMALLEST_BUFFER
            self._rounds = 0
            mask = torch.ones_like(self._gain, dtype=torch.bool)
        mask = mask.expand(self._gain.shape)
        self._statistics[:, mask] = 0.0
        self._mean[mask] = 0.0
        self._variance[mask] = self.prior.diagonal
        self._gain[mask] = 0.0
        self._rows[mask] = 0.0
        self._row_valid[mask] = False
        if self._base is not None:
            self._base[mask] = self.prior.columns(self.all_arms)

    def refactorise(self) -> None:
        """Compute everything afresh from the statistics, and choose the form of ``S_0``."""
        self._compact()
        self._choose_form()

    def covariance_columns(self, index: Tensor) -> Tensor:
        """Return posterior covariances of some arms with all arms.

        Args:
            index: ``batch_shape x k`` arm numbers.

        Returns:
            A ``batch_shape x k x num_arms`` tensor.
        """
        return self._outside(self._columns(index if self.batch_shape else index.unsqueeze(0)))

    def variance_given(self, index: Tensor) -> Tensor:
        """Return the variances if some arms were observed once more, whatever the outcomes.

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
        """How many standard normal numbers one draw takes."""
        return len(self.prior.root) + self.num_arms

    def simulate_prior(self, normal: Tensor) -> Tensor:
        """Turn normal numbers into what :meth:`correct` needs; many draws at once are cheaper.

        Args:
            normal: ``... x num_normals`` independent standard normal numbers.

        Returns:
            A ``... x 2 x num_arms`` tensor: a function drawn from the prior, and normal numbers for
            the noise of its simulated observations.
        """
        rank = len(self.prior.root)
        return torch.stack([normal[..., :rank] @ self.prior.root, normal[..., rank:]], dim=-2)

    def sample(self, normal: Tensor) -> Tensor:
        """Draw jointly over all arms, exactly, one draw a replicate.

        A function is drawn from the prior and corrected by kriging (Matheron's rule), so the
        covariance needs no root. Equal numbers give equal draws, whatever the form of ``S_0``.

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
        noise = (self._lam / self._counts.clamp_min(1.0)).sqrt_().mul_(simulation[:, 1])
        simulated = noise.add_(function)  # the mean outcome of each arm, were this the truth
        n = self._num_rows
        if self._base is not None:
            weights = (simulated * self._counts / self._lam).unsqueeze(-1)
            correction = self._base @ weights
            if n:
                rows = self._rows[:, :n]
                correction -= rows.mT @ (rows @ weights)
            return self._outside(self._mean + function - correction.squeeze(-1))
        if n == 0:
            return self._outside(function)
        arms, rows = self._row_arms[:, :n], self._rows[:, :n]
        factor = rows.gather(-1, arms.unsqueeze(-2).expand(-1, n, -1)).mT.tril(-1)
        factor = factor * self._row_valid[:, :n].unsqueeze(-1)
        factor.diagonal(dim1=-2, dim2=-1).copy_(self._row_scale[:, :n])
        weights = torch.linalg.solve_triangular(
            factor, simulated.gather(-1, arms).unsqueeze(-1), upper=False
        )
        correction = (weights.mT @ rows).squeeze(-2)
        return self._outside(self._mean + function - correction)

    def _tensor(self, value: Tensor | float) -> Tensor:
        return torch.as_tensor(value, dtype=self._mean.dtype, device=self._mean.device)

    def _outside(self, value: Tensor) -> Tensor:
        return value if self.batch_shape else value[0]

    def _allocate(self, num_rows: int) -> None:
        shape = (len(self._gain), num_rows)
        self._rows = self._mean.new_empty(*shape, self.num_arms)
        self._row_arms = torch.zeros(shape, dtype=torch.long, device=self._mean.device)
        self._row_scale = self._mean.new_ones(shape)
        self._row_valid = torch.zeros(shape, dtype=torch.bool, device=self._mean.device)
        self._share_memory()

    def _share_memory(self) -> None:
        self._counts, self._sums, self._squares = self._statistics
        if len(self._gain) == 1 and self._mean.device.type == "cpu":
            self._memory = _Memory(
                mean=self._mean.numpy()[0],
                variance=self._variance.numpy()[0],
                statistics=self._statistics.numpy()[:, 0],
                gain=self._gain.numpy(),
                rows=self._rows.numpy()[0],
                row_arms=self._row_arms.numpy()[0],
                row_scale=self._row_scale.numpy()[0],
                row_valid=self._row_valid.numpy()[0],
                lam=float(self._lam),
            )

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what shares memory with the rest."""
        shared = ("_memory", "_counts", "_sums", "_squares")
        return {name: value for name, value in self.__dict__.items() if name not in shared}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share memory again."""
        self.__dict__.update(state)
        self._share_memory()

    def _columns(self, index: Tensor) -> Tensor:
        """``B x k`` arms to the ``B x k x num_arms`` columns of their posterior covariance."""
        if self._base is None:
            columns = self.prior.columns(index)
        else:
            columns = self._base.gather(-2, index.unsqueeze(-1).expand(-1, -1, self.num_arms))
        if self._num_rows == 0:
            return columns
        rows = self._rows[:, : self._num_rows]
        at_arms = rows.gather(-1, index.unsqueeze(-2).expand(-1, self._num_rows, -1))
        return torch.baddbmm(columns, at_arms.mT, rows, alpha=-1.0)

    def _observe_one(self, arm: int, outcome: float) -> None:
        # numpy on the same memory: calls of torch would cost more than the arithmetic
        if self._num_rows == self._row_limit:
            self._make_room()
        n, memory = self._num_rows, self._memory
        base = self.prior.column(arm) if self._base is None else self._base[0, arm]
        column = base.numpy()
        if n:
            column = column - memory.rows[:n, arm] @ memory.rows[:n]
        before = max(float(memory.variance[arm]), 0.0)
        scale = math.sqrt(before + memory.lam)
        row = np.divide(column, scale, out=memory.rows[n])
        memory.mean += row * ((outcome - float(memory.mean[arm])) / scale)
        memory.variance -= row * row
        memory.gain[0] += 0.5 * math.log1p(before / memory.lam)
        memory.statistics[0, arm] += 1.0
        memory.statistics[1, arm] += outcome
        memory.statistics[2, arm] += outcome * outcome
        memory.row_arms[n] = arm
        memory.row_scale[n] = scale
        memory.row_valid[n] = True
        self._num_rows = n + 1

    def _observe_batch(self, arm: Tensor, outcome: Tensor, mask: Tensor | None) -> None:
        if self._num_rows == self._row_limit:
            self._make_room()
        n = self._num_rows
        index = arm.unsqueeze(-1)
        column = self._columns(index).squeeze(-2)
        before = self._variance.gather(-1, index).clamp_min_(0.0)
        scale = (before + self._lam).sqrt_()
        row = column.div_(scale)
        gain = torch.log1p(before.div_(self._lam)).mul_(0.5).squeeze(-1)
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
        self._statistics.scatter_add_(-1, index.expand_as(values), values)
        self._row_arms[:, n] = arm
        self._row_scale[:, n] = scale.squeeze(-1)
        self._row_valid[:, n] = True if mask is None else mask
        if mask is not None:  # a row that does not count has a factor of its own, 1
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
        """Behind :meth:`_compact`: keep the rows of the distinct arms, or fold them."""
        few = ROW_COST * self._num_rows < self.num_arms
        if few or self.num_arms > LARGEST_MATRIX or self._num_rows <= SMALLEST_BUFFER // 2:
            self._row_limit = max(SMALLEST_BUFFER, 2 * self._num_rows)
            return
        rows = self._rows[:, : self._num_rows]
        self._base = torch.baddbmm(
            self.prior.columns(self.all_arms).expand(len(rows), -1, -1), rows.mT, rows, alpha=-1.0
        )
        self._num_rows, self._row_limit = 0, DENSE_BLOCK

    def _compact(self) -> None:
        """Turn the rows into those of the distinct arms played, from the statistics alone."""
        self._base = None
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
        # replicates that played fewer arms fill up with rows that do not count
        index = torch.sort(played.to(torch.int8), dim=-1, descending=True, stable=True).indices
        index = index[:, :p]
        valid = played.gather(-1, index)
        counts = self._counts.gather(-1, index).clamp_min(1.0)
        columns = self.prior.columns(index) * valid.unsqueeze(-1)  # B x p x num_arms
        block = columns.gather(-1, index.unsqueeze(-2).expand(-1, p, -1)) * valid.unsqueeze(-2)
        noise = (self._lam / counts).where(valid, torch.ones_like(counts))
        block.diagonal(dim1=-2, dim2=-1).add_(noise)
        factor = psd_safe_cholesky(block, jitter=1e-14, max_tries=4)
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

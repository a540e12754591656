r"""Posteriors of independent replicates in closed form, each with its own data.

All share a stationary kernel, a noise level and the number of rows; the formulas are those of
``closed_form.py``. One more row in each of ``B`` replicates yields a new row of each inverse
Cholesky factor, new weights and a new information gain from the existing ones:

.. math::
   \ell = L^{-1} k, \qquad s^2 = k_0 + \lambda - \|\ell\|^2, \qquad
   u = \left( -\tfrac1s \ell^\top L^{-1}, \tfrac1s \right), \qquad
   a \leftarrow (a, 0) + (u^\top y) \, u, \qquad
   \gamma \leftarrow \gamma + \ln \frac{s}{\sqrt\lambda}

With ``n`` rows, a further row costs ``2 B n^2`` operations; values at ``r`` points per replicate
cost ``B r n^2`` and their gradients as much again, all in batched matrix products.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from botorch_bandits.confidence.width_rules import RunningPriorSummary
from botorch_bandits.core.kernels import StationaryKernel
from botorch_bandits.models.closed_form import SMALLEST_PIVOT

CHUNK_ENTRIES = 2**17
"""Kernel values that are computed at a time on a CPU; larger temporaries would leave its cache."""

FIRST_CAPACITY = 16
"""The number of rows for which memory is allocated at first; it doubles when it is used up."""


class BatchedClosedForm:
    """The posterior of each replicate's reward function, which :meth:`append` changes.

    Args:
        kernel: The kernel of all replicates.
        noise: The noise variance ``lam``.
        num_replicates: ``B``.
        center: ``d``, a point in the middle of the inputs, so that distances from it lose few
            digits. Its dtype and device are those of the posterior.
        prior_mean: The prior mean, the same at all points.
    """

    def __init__(
        self,
        kernel: StationaryKernel,
        noise: float,
        num_replicates: int,
        center: Tensor,
        prior_mean: float = 0.0,
    ) -> None:
        """See the class."""
        one = center.new_ones(1)
        self.kernel = StationaryKernel(kernel.smoothness, one, kernel.outputscale.to(center))
        self.noise = noise
        self.outputscale = float(kernel.outputscale)
        self.lengthscale = kernel.lengthscale.to(center)
        self.center = center
        self.prior_mean = prior_mean
        self.num_rows = 0
        self._gain = center.new_zeros(num_replicates)
        # scaled inputs, ones, squared norms
        self._points = center.new_zeros(num_replicates, 0, len(center) + 2)
        # less the prior mean
        self._outcomes = center.new_zeros(num_replicates, 0)
        self._weights = center.new_zeros(num_replicates, 0)
        self._factor = center.new_zeros(num_replicates, 0, 0)

    @property
    def num_replicates(self) -> int:
        """The number of replicates, ``B``."""
        return len(self._gain)

    @property
    def dim(self) -> int:
        """The number of input columns, ``d``."""
        return len(self.center)

    @property
    def information_gain(self) -> Tensor:
        """``1/2 ln det(I + K / lam)`` of each replicate's rows in nats, ``B``."""
        return self._gain.clamp_min(0.0)

    def kernel_matrix(self) -> Tensor:
        """Return the ``B x n x n`` prior covariances of each replicate's rows."""
        scaled = self._points[:, : self.num_rows, : self.dim]
        return self.kernel.matrix(scaled, scaled)

    def append(self, X: Tensor, y: Tensor) -> None:
        """Add one more row per replicate.

        Args:
            X: ``B x d`` inputs.
            y: Their ``B`` outcomes.

        Raises:
            ValueError: If the matrix of a replicate cannot be factorized in float64.
        """
        n = self.num_rows
        scaled, queries = self._queries(X.unsqueeze(-2))
        cross, _ = self._kernel_values(queries, slice(None), with_slope=False)
        factor = self._factor[:, :n, :n]
        solved = cross @ factor.mT
        squared = self.outputscale + self.noise - solved.square().sum(-1)
        is_lost = ~(squared >= SMALLEST_PIVOT * self.noise)
        if bool(is_lost.any()):
            replicate = int(is_lost.int().argmax())
            raise ValueError(
                f"noise is {self.noise:g}, too small against the prior variance "
                f"{self.outputscale:g}: the kernel matrix of replicate {replicate} cannot "
                f"be factorized with {n + 1} rows. Model a larger noise variance."
            )
        self._make_room(n + 1)
        pivot = squared.sqrt()
        row = self._factor[:, n, : n + 1]
        torch.div((solved @ factor).squeeze(-2), -pivot, out=row[:, :n])
        row[:, n] = pivot.squeeze(-1).reciprocal()
        self._points[:, n, : self.dim] = scaled.squeeze(-2)
        self._points[:, n, self.dim] = 1.0
        self._points[:, n, self.dim + 1] = queries[:, 0, self.dim]
        self._outcomes[:, n] = y - self.prior_mean
        along = (row * self._outcomes[:, : n + 1]).sum(-1, keepdim=True)
        self._weights[:, : n + 1].addcmul_(along, row)
        self._gain = self._gain + (pivot.squeeze(-1).log() - 0.5 * math.log(self.noise))
        self.num_rows = n + 1

    def select(self, replicates: Tensor) -> BatchedClosedForm:
        """Return the current posterior of some replicates, given by their numbers."""
        n, chosen = self.num_rows, copy.copy(self)
        chosen._gain = self._gain[replicates]
        chosen._points = self._points[:, :n][replicates]
        chosen._outcomes = self._outcomes[:, :n][replicates]
        chosen._weights = self._weights[:, :n][replicates]
        chosen._factor = self._factor[:, :n, :n][replicates]
        return chosen

    def mean_and_variance(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior mean and variance, ``B x r`` each, at ``B x r x d`` points."""
        found = [self._mean_and_variance(X[part], part) for part in self._parts(X.shape[1])]
        if len(found) == 1:
            return found[0]
        means, variances = zip(*found, strict=True)
        return torch.cat(means), torch.cat(variances)

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return mean, variance and their gradients at ``B x r x d`` points.

        Returns:
            Mean (``B x r``), variance (``B x r``), gradient of the mean (``B x r x d``), gradient
            of the variance (``B x r x d``). A variance that rounding makes negative is set to 0.
        """
        found = [self._value_and_gradient(X[part], part) for part in self._parts(X.shape[1])]
        if len(found) == 1:
            return found[0]
        means, variances, mean_slopes, variance_slopes = zip(*found, strict=True)
        return (
            torch.cat(means),
            torch.cat(variances),
            torch.cat(mean_slopes),
            torch.cat(variance_slopes),
        )

    def _parts(self, num_points: int) -> list[slice]:
        """Split replicates into parts whose kernel values at so many points fit in the cache."""
        entries = max(1, num_points * self.num_rows)
        size = self.num_replicates
        if self.center.device.type == "cpu":
            size = max(1, min(size, CHUNK_ENTRIES // entries))
        return [slice(i, i + size) for i in range(0, self.num_replicates, size)]

    def _mean_and_variance(self, X: Tensor, part: slice) -> tuple[Tensor, Tensor]:
        n = self.num_rows
        _, queries = self._queries(X)
        values, _ = self._kernel_values(queries, part, with_slope=False)
        mean = (values @ self._weights[part, :n].unsqueeze(-1)).squeeze(-1).add_(self.prior_mean)
        solved = values @ self._factor[part, :n, :n].mT
        variance = torch.rsub(solved.square_().sum(-1), self.outputscale).clamp_min_(0.0)
        return mean, variance

    def _value_and_gradient(self, X: Tensor, part: slice) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        n, dim, (b, r, _) = self.num_rows, self.dim, X.shape
        scaled, queries = self._queries(X)
        values, slope = self._kernel_values(queries, part, with_slope=True)
        assert slope is not None
        weights = self._weights[part, :n]
        mean = (values @ weights.unsqueeze(-1)).squeeze(-1).add_(self.prior_mean)
        factor = self._factor[part, :n, :n]
        solved = values @ factor.mT
        # sum_j c_j h_j (x - x_j): both sums of both functions are one matrix product
        coefficients = values.new_empty(b, 2, r, n)
        torch.mul(slope, weights.unsqueeze(-2), out=coefficients[:, 0])
        torch.mul(slope, solved @ factor, out=coefficients[:, 1])
        variance = torch.rsub(solved.square_().sum(-1), self.outputscale).clamp_min_(0.0)
        sums = coefficients.reshape(b, 2 * r, n) @ self._points[part, :n, : dim + 1]
        sums = sums.reshape(b, 2, r, dim + 1)
        gradient = torch.addcmul(-sums[..., :dim], sums[..., dim:], scaled.unsqueeze(1))
        gradient /= self.lengthscale
        return mean, variance, gradient[:, 0], gradient[:, 1].mul_(-2.0)

    def _kernel_values(
        self, queries: Tensor, part: slice, with_slope: bool
    ) -> tuple[Tensor, Tensor | None]:
        points = self._points[part, : self.num_rows]
        return self.kernel.of_augmented(queries, points, with_slope)

    def _queries(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Scaled points ``u``, and ``(-2u, |u|^2, 1)``: times a row of points, this is ``r^2``."""
        scaled = (X - self.center).div_(self.lengthscale)
        queries = X.new_ones(*X.shape[:-1], self.dim + 2)
        torch.mul(scaled, -2.0, out=queries[..., : self.dim])
        torch.sum(scaled.square(), dim=-1, out=queries[..., self.dim])
        return scaled, queries

    def _make_room(self, num_rows: int) -> None:
        capacity = self._factor.shape[-1]
        if num_rows <= capacity:
            return
        more = max(2 * capacity, FIRST_CAPACITY) - capacity
        pad = torch.nn.functional.pad
        self._points = pad(self._points, (0, 0, 0, more))
        self._outcomes = pad(self._outcomes, (0, more))
        self._weights = pad(self._weights, (0, more))
        self._factor = pad(self._factor, (0, more, 0, more))


class ReplicatesPriorSummary(RunningPriorSummary):
    """A summary of the posteriors of replicates on a box.

    Args:
        posterior: The posterior of all replicates, whose kernel has the prior variance.
    """

    def __init__(self, posterior: BatchedClosedForm) -> None:
        """See the class."""
        self._posterior = posterior
        noise_variance = posterior.center.new_tensor(posterior.noise)
        super().__init__(posterior, noise_variance, posterior.outputscale)

    def kernel_matrix(self) -> Tensor:
        return self._posterior.kernel_matrix()

    @property
    def num_rows(self) -> int:
        """The number of rows of each replicate."""
        return self._posterior.num_rows

r"""The posteriors of many Gaussian processes with different kernels, given the same rows.

Kernels have no output scale; ``K + lam I = L L'`` has the inverse factor :math:`L^{-1}`, which is
kept for each of ``G`` groups, together with :math:`z = L^{-1} (y - m)`, the standardized errors of
the predictions of each row from the rows before it:

.. math::
   \mu(x) = m + k^\top L^{-\top} z, \qquad
   \sigma^2(x) = k(x, x) - \|L^{-1} k\|^2, \qquad
   y_i | y_1, \dots, y_{i-1} \sim N(y_i - z_i L_{ii}, L_{ii}^2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.core.kernels import StationaryKernel
from botorch_bandits.models.closed_form import SLAB_ROWS, ClosedForm, InverseFactor, _Slab
from botorch_bandits.models.row_deletion import inverse_without_first_rows


def correlation(smoothness: float, squared: Tensor) -> Tensor:
    """Stationary kernels at scaled squared distances, with derivatives; they may be overwritten."""
    if not squared.requires_grad:
        one = squared.new_ones(())
        return StationaryKernel(smoothness, one, one).of_squared_distance(squared, False)[0]
    if smoothness == math.inf:
        return torch.exp(-0.5 * squared)
    # the slope of a root at 0 is infinite, so it counts as 0 below this
    scaled = (2.0 * smoothness * squared).clamp_min(1e-30).sqrt()
    decay = torch.exp(-scaled)
    if smoothness == 0.5:
        return decay
    if smoothness == 1.5:
        return (1.0 + scaled) * decay
    return (1.0 + scaled + scaled.square() / 3.0) * decay


class UnitKernels:
    """The kernels of all groups, evaluated together if their closed form is known.

    Args:
        kernels: Kernels without output scale, one per group.
    """

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        """See the class."""
        self._kernels = tuple(kernels)
        read = [StationaryKernel.read(kernel) for kernel in kernels]
        self._parts: list[tuple[float, list[int], Tensor]] = []
        self._others = [i for i, each in enumerate(read) if each is None]
        known = [(i, each) for i, each in enumerate(read) if each is not None]
        for smoothness in sorted({each.smoothness for _, each in known}):
            index = [i for i, each in known if each.smoothness == smoothness]
            scales = [each.lengthscale for i, each in known if i in index]
            dim = max(len(scale) for scale in scales)
            table = torch.stack([scale.expand(dim) for scale in scales]).unsqueeze(-2)
            self._parts.append((smoothness, index, table))

    def select(self, groups: Sequence[int]) -> UnitKernels:
        """Return the kernels of some groups."""
        return UnitKernels([self._kernels[group] for group in groups])

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return the covariances of ``... x r x d`` and ``... x n x d`` points.

        Returns:
            A ``... x G x r x n`` tensor.
        """
        if Z.shape[-2] == 0:
            return X.new_zeros(*X.shape[:-2], len(self._kernels), X.shape[-2], 0)
        values: list[Tensor | None] = [None] * len(self._kernels)
        for smoothness, index, lengthscale in self._parts:
            found = self._stationary(X, Z, smoothness, lengthscale.to(X))
            for place, value in zip(index, found.unbind(-3), strict=True):
                values[place] = value
            if len(index) == len(values):
                return found
        for place in self._others:
            values[place] = self._kernels[place](X, Z).to_dense()
        return torch.stack(cast(list[Tensor], values), dim=-3)

    def closed_form_of(self, group: int) -> StationaryKernel | None:
        """Return the kernel of a group, if its closed form is known."""
        return StationaryKernel.read(self._kernels[group])

    def diagonal(self, X: Tensor) -> Tensor:
        """Return the prior variances at ``... x r x d`` points, ``... x G x r``."""
        # a stationary prior does not depend on X, but its gradient, which is zero, must exist
        one = 1.0 + 0.0 * X.sum(-1)
        values = [
            self._kernels[i](X, diag=True) if i in self._others else one
            for i in range(len(self._kernels))
        ]
        return torch.stack(values, dim=-2)

    @staticmethod
    def _stationary(X: Tensor, Z: Tensor, smoothness: float, lengthscale: Tensor) -> Tensor:
        # rounding errors grow with the distance from the origin
        center = Z.reshape(-1, Z.shape[-1])[:1]
        X = (X - center).unsqueeze(-3) / lengthscale
        Z = (Z - center).unsqueeze(-3) / lengthscale
        if smoothness == 0.5:  # the kink reveals how near points are to each other
            squared = (X.unsqueeze(-2) - Z.unsqueeze(-3)).square().sum(-1)
        else:
            squared = X.square().sum(-1, keepdim=True) + Z.square().sum(-1).unsqueeze(-2)
            if squared.requires_grad:
                squared = (squared - 2.0 * X @ Z.mT).clamp_min(0.0)
            else:  # in place, because new memory for large matrices costs more than the arithmetic
                squared = squared.sub_((2.0 * X) @ Z.mT).clamp_min_(0.0)
        return correlation(smoothness, squared)


@dataclass(frozen=True, eq=False)
class SharedRows:
    """The posteriors of all groups given the same rows, as an immutable value.

    Attributes:
        kernels: One per group.
        lam: ``G`` noise ratios.
        prior_means: ``G``.
        inputs: ``n x d``, as the kernels see them.
        inverse: ``G x n x n``; inverse Cholesky factors of ``K + lam I``.
        residuals: ``G x n``; ``z``, the standardized errors of the one-step predictions.
    """

    kernels: UnitKernels
    lam: Tensor
    prior_means: Tensor
    inputs: Tensor
    inverse: Tensor
    residuals: Tensor

    @classmethod
    def of_rows(
        cls, kernels: UnitKernels, lam: Tensor, prior_means: Tensor, X: Tensor, y: Tensor
    ) -> SharedRows:
        """Factorize the covariances of ``n x d`` inputs, with ``n`` outcomes.

        Raises:
            ValueError: If a covariance cannot be factorized in float64.
        """
        n, num_groups = len(X), len(lam)
        inverse = X.new_empty(num_groups, n, n)
        # large matrices are factorized one after the other, so that only one needs work space
        step = num_groups if n <= SMALL_MATRIX else 1
        for first in range(0, num_groups, step):
            groups = range(first, first + step)
            some = kernels if step == num_groups else kernels.select(groups)
            covariance = some(X, X) if step == num_groups else _in_blocks(some, X)
            diagonal = some.diagonal(X) + lam[first : first + step].unsqueeze(-1)
            covariance.diagonal(dim1=-2, dim2=-1).copy_(diagonal)
            factor, info = torch.linalg.cholesky_ex(covariance)
            del covariance
            if bool(info.any()):
                lost = first + int(info.argmax())
                _refuse(lost, float(lam[lost]), n)
            _invert_lower(factor, out=inverse[first : first + step])
            del factor
        residuals = (inverse @ (y - prior_means.unsqueeze(-1)).unsqueeze(-1)).squeeze(-1)
        return cls(kernels, lam, prior_means, X, inverse, residuals)

    @property
    def num_rows(self) -> int:
        """``n``."""
        return len(self.inputs)

    @cached_property
    def weights(self) -> Tensor:
        """``G x n``; ``(K + lam I)^-1 (y - m)``."""
        return (self.residuals.unsqueeze(-2) @ self.inverse).squeeze(-2)

    @cached_property
    def pivots(self) -> Tensor:
        """``G x n``; the standard deviations of the one-step predictions at output scale 1."""
        return self.inverse.diagonal(dim1=-2, dim2=-1).reciprocal()

    def predictions(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and variances of the one-step predictions, ``G x n`` each, noise included.

        Variances are at output scale 1.

        Args:
            y: The ``n`` outcomes.
        """
        return y - self.residuals * self.pivots, self.pivots.square()

    def select(self, groups: Sequence[int]) -> SharedRows:
        """Return the posteriors of some groups."""
        if list(groups) == list(range(len(self.lam))):
            return self
        index: Tensor | slice = torch.as_tensor(groups, device=self.lam.device)
        if list(groups) == list(range(groups[0], groups[0] + len(groups))):
            index = slice(groups[0], groups[0] + len(groups))  # copies nothing
        return SharedRows(
            self.kernels.select(groups),
            self.lam[index],
            self.prior_means[index],
            self.inputs,
            self.inverse[index],
            self.residuals[index],
        )

    def with_row(self, x: Tensor, y: Tensor | None) -> SharedRows:
        """Return the posteriors given one more row.

        Args:
            x: ``d``.
            y: The outcome; None for the posterior mean of each group (a hallucinated row).

        Raises:
            ValueError: If a covariance cannot be factorized in float64.
        """
        point = x.unsqueeze(0)
        cross = self.kernels(point, self.inputs)  # G x 1 x n
        solved = cross @ self.inverse.mT
        squared = (
            self.kernels.diagonal(point).squeeze(-1) + self.lam - solved.square().sum((-1, -2))
        )
        is_lost = ~(squared > 0.0)
        if bool(is_lost.any()):
            group = int(is_lost.int().argmax())
            _refuse(group, float(self.lam[group]), self.num_rows + 1)
        pivot = squared.sqrt()
        row = -(solved @ self.inverse).squeeze(-2) / pivot.unsqueeze(-1)
        n = self.num_rows
        inverse = self.inverse.new_zeros(len(pivot), n + 1, n + 1)
        inverse[:, :n, :n] = self.inverse
        inverse[:, n, :n] = row
        inverse[:, n, n] = pivot.reciprocal()
        if y is None:
            residual = torch.zeros_like(pivot)
        else:
            expected = self.prior_means + (solved.squeeze(-2) * self.residuals).sum(-1)
            residual = (y - expected) / pivot
        return SharedRows(
            self.kernels,
            self.lam,
            self.prior_means,
            torch.cat([self.inputs, point]),
            inverse,
            torch.cat([self.residuals, residual.unsqueeze(-1)], dim=-1),
        )

    def without_first(self, num_rows: int, y: Tensor) -> SharedRows:
        """Return the posteriors given all rows but the first ones.

        Args:
            num_rows: The number of rows to leave out, fewer than ``n``.
            y: The outcomes of the other rows.
        """
        inverse = inverse_without_first_rows(self.inverse, num_rows)
        return replace(
            self,
            inputs=self.inputs[num_rows:].clone(),
            inverse=inverse,
            residuals=(inverse @ (y - self.prior_means.unsqueeze(-1)).unsqueeze(-1)).squeeze(-1),
        )

    @cached_property
    def closed_forms(self) -> tuple[ClosedForm, ...] | None:
        """The posterior of each group as plain functions with gradients, for evaluation only.

        None without rows, or if the closed form of a kernel is not known.
        """
        found = [self.kernels.closed_form_of(group) for group in range(len(self.lam))]
        if self.num_rows == 0 or any(each is None for each in found):
            return None
        n, forms = self.num_rows, []
        start = n // SLAB_ROWS * SLAB_ROWS
        for group, kernel in enumerate(found):
            assert kernel is not None
            inverse = self.inverse[group]
            # the slabs are views, so that nothing is copied
            full = tuple(
                inverse[i : i + SLAB_ROWS, : i + SLAB_ROWS] for i in range(0, start, SLAB_ROWS)
            )
            last = _Slab(start, inverse[start:], -1) if start < n else None
            factor = InverseFactor(n, full, self.pivots[group], last)
            lam, mean = float(self.lam[group]), float(self.prior_means[group])
            weights = self.weights[group]
            form = ClosedForm.of_kernel(kernel, lam, self.inputs, factor, weights, mean)
            forms.append(replace(form, points=form._augment(self.inputs)))
        return tuple(forms)

    def posterior_of(self, group: int, scale: float, y: Tensor) -> ClosedForm | None:
        """Return the posterior of a group at an output scale, to which rows can be added.

        Args:
            group: The number of the group.
            scale: The output scale.
            y: The ``n`` outcomes of all rows.

        Returns:
            None without rows, or if the closed form of a kernel is not known.
        """
        if self.closed_forms is None:
            return None
        unit = self.closed_forms[group]
        factor, outcomes = unit.factor.times(scale**-0.5), y - self.prior_means[group]
        weights, full_weights = factor.weights(outcomes)
        return replace(
            unit,
            kernel=replace(unit.kernel, outputscale=unit.kernel.outputscale * scale),
            noise=unit.noise * scale,
            outputscale=unit.outputscale * scale,
            outcomes=outcomes,
            factor=factor,
            weights=weights,
            full_weights=full_weights,
            memo={},
        )

    def mean(self, X: Tensor) -> Tensor:
        """Return posterior means at ``... x r x d`` points, ``... x G x r``."""
        size = max(1, MEAN_ENTRIES // max(1, self.inverse.shape[-1] * len(self.lam)))
        if X.dim() == 2 and len(X) > size and not X.requires_grad:
            return torch.cat([self.mean(part) for part in X.split(size)], dim=-1)
        weights = self.weights.unsqueeze(-1)
        mean = (self.kernels(X, self.inputs) @ weights).squeeze(-1)
        return mean + self.prior_means.unsqueeze(-1)

    def mean_and_variance(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return posterior means and variances at ``... x r x d`` points, ``... x G x r`` each.

        Variances are at output scale 1, without noise, at least 0.
        """
        size = max(1, CHUNK_ENTRIES // max(1, self.inverse.shape[-1] * len(self.lam)))
        if X.dim() == 2 and len(X) > size and not X.requires_grad:
            parts = [self.mean_and_variance(part) for part in X.split(size)]
            means, variances = zip(*parts, strict=True)
            return torch.cat(means, dim=-1), torch.cat(variances, dim=-1)
        mean, solved = self._solved(X)
        variance = self.kernels.diagonal(X) - solved.square().sum(-1)
        return mean, variance.clamp_min(0.0)

    def mean_and_covariance(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return posterior means and covariances among ``... x q x d`` points.

        Returns:
            ``... x G x q`` and ``... x G x q x q``.
        """
        mean, solved = self._solved(X)
        return mean, self.kernels(X, X) - solved @ solved.mT

    def _solved(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return posterior means, ``... x G x r``, and ``L^-1 k``, ``... x G x r x n``."""
        # all points in one matrix, because batches of points would each get a copy of the factors
        flat = X.reshape(-1, X.shape[-1])
        cross = self.kernels(flat, self.inputs)  # G x points x n
        mean = (cross @ self.weights.unsqueeze(-1)).squeeze(-1) + self.prior_means.unsqueeze(-1)
        solved = cross @ self.inverse.mT
        if X.dim() == 2:
            return mean, solved
        shape = X.shape[:-1]
        return (
            mean.unflatten(-1, shape).movedim(0, -2),
            solved.unflatten(-2, shape).movedim(0, -3),
        )


SMALL_MATRIX = 256
"""Up to this many rows, the matrices of all groups are factorized in one call."""

CHUNK_ENTRIES = 500_000
"""Kernel values that are kept at a time when many points are evaluated."""

MEAN_ENTRIES = 130_000
"""The same if only means are computed; computing kernel values takes four times their memory."""

BLOCK_ROWS = 128
"""Rows of a large matrix at a time; computing a kernel's values takes four times their memory."""

SMALL_TRIANGLE = 64
"""Triangles of up to this many rows are inverted at once, larger ones by their quarters."""


def _in_blocks(kernels: UnitKernels, X: Tensor) -> Tensor:
    """Return the covariances of ``n x d`` points, ``G x n x n``, computed some rows at a time."""
    first = kernels(X[:BLOCK_ROWS], X)
    covariance = first.new_empty(*first.shape[:-2], len(X), len(X))
    covariance[..., :BLOCK_ROWS, :] = first
    for start in range(BLOCK_ROWS, len(X), BLOCK_ROWS):
        end = start + BLOCK_ROWS
        covariance[..., start:end, :] = kernels(X[start:end], X)
    return covariance


def _invert_lower(factor: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the inverse of ``... x n x n`` lower triangular matrices.

    Solving for the unit matrix would do three times the work, because it does not exploit that the
    result is triangular.

    Args:
        factor: The matrices.
        out: The tensor to write to; new memory if None.
    """
    n = factor.shape[-1]
    if n <= SMALL_TRIANGLE:
        eye = torch.eye(n, dtype=factor.dtype, device=factor.device).expand_as(factor)
        small = torch.linalg.solve_triangular(factor, eye, upper=False)
        return small if out is None else out.copy_(small)
    half = n // 2
    first, last = _invert_lower(factor[..., :half, :half]), _invert_lower(factor[..., half:, half:])
    inverse = factor.new_zeros(factor.shape) if out is None else out.zero_()
    inverse[..., :half, :half], inverse[..., half:, half:] = first, last
    inverse[..., half:, :half] = (last @ factor[..., half:, :half] @ first).neg_()
    return inverse


def _refuse(group: int, lam: float, num_rows: int) -> None:
    raise ValueError(
        f"the kernel matrix of {num_rows} rows cannot be factorized for the entries of the list "
        f"with noise ratio {lam:g} (group {group}). Give them a larger noise variance."
    )

"""Prior covariances of a finite set of points, with and without columns in front of them.

A prior answers for rows, given by the numbers of points and by their fronts, and for all points
behind the front of the present round. Its kernel is a sum of products of factors. The values of a
factor that reads the points alone are kept in a matrix, which serves all fronts; those of others
are evaluated. Without fronts, the kernel as a whole is such a factor. :class:`Stack` joins ``G``
priors in a batch dimension.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import torch
from gpytorch.kernels import Kernel
from scipy.linalg.lapack import dpstrf
from torch import Tensor

from botorch_bandits.checks import check_covariance, check_finite, check_kernel_columns
from botorch_bandits.core.kernels import (
    KernelFunction,
    kernel_function,
    structure_of,
)

LARGEST_MATRIX = 4096
"""The number of points up to which the matrix of all of them is kept (128 MiB)."""
NEGLIGIBLE = 1e-15
"""A root leaves out variance below this share of the largest, which is rounding error."""
NUM_CHECKED = 512
"""Points, evenly spaced in their order, whose covariance is checked if the matrix is not kept."""


def cholesky(matrix: Tensor) -> Tensor:
    """Return lower Cholesky factors, of matrices raised as little as rounding errors require.

    Args:
        matrix: ``... x n x n``.
    """
    factor, info = torch.linalg.cholesky_ex(matrix)
    share = 1e-14  # some tens of roundings of the largest variance
    while bool(info.any()):
        largest = matrix.diagonal(dim1=-2, dim2=-1).abs().amax(-1, keepdim=True)
        raised = matrix.clone()
        raised.diagonal(dim1=-2, dim2=-1).add_(share * largest)  # K + share max(K) I
        factor, info = torch.linalg.cholesky_ex(raised)
        share *= 10.0
        if share > 1.0:
            raise ValueError(
                f"the covariance of {matrix.shape[-1]} rows cannot be factorized: its values are "
                "not finite, or the kernel is not positive semi-definite. Check the kernel."
            )
    return factor


def root_of(covariance: Tensor) -> Tensor:
    """Return a matrix ``R`` with ``R R'`` equal to a covariance up to rounding, ``... x n x rank``.

    Args:
        covariance: ``... x n x n``, which may be singular.
    """
    root, info = torch.linalg.cholesky_ex(covariance)
    if not bool(info.any()):
        return root
    if covariance.dim() > 2:  # LAPACK's pivoted factorization takes one matrix; K = Q E Q'
        eigenvalues, eigenvectors = torch.linalg.eigh(covariance)
        return eigenvectors * eigenvalues.clamp_min(0.0).sqrt().unsqueeze(-2)
    # P' K P = L L' with n x rank L, which stops where only rounding errors are left
    factor, pivots, rank, _ = dpstrf(covariance.detach().cpu().numpy(), lower=1)
    root = torch.zeros(len(factor), rank, dtype=covariance.dtype)
    root[torch.from_numpy(pivots).long() - 1] = torch.from_numpy(factor[:, :rank]).tril()
    return root.to(covariance.device)


class Prior:
    """A zero-mean Gaussian prior of the values at ``A`` points; it never changes.

    Attributes:
        num_points: ``A``.
        num_front: The number of columns in front of the points.
        matrix: ``A x A``, the covariance of all points; None if there are fronts, or so many points
            that it is evaluated where it is needed.
        has_root: Whether one root of the covariance of all points serves all fronts.
    """

    def __init__(
        self,
        points: Tensor,
        kernel: KernelFunction | None,
        num_front: int = 0,
        matrix: Tensor | None = None,
    ) -> None:
        """See the class.

        Args:
            points: ``A x d``.
            kernel: The kernel of fronts and points; None if the matrix is given.
            num_front: The number of columns in front of the points.
            matrix: ``A x A``, if there are no fronts.
        """
        self.num_points, self.num_front = len(points), num_front
        self._points, self._kernel = points.detach().clone(), kernel
        known = kernel.terms if kernel is not None else ()
        self.has_root = num_front == 0 or bool(known)  # kernels with known terms are stationary
        self._terms = known if num_front and known else ((kernel,),)
        self._matrices = {} if matrix is None else {kernel: matrix}
        if matrix is None and self.num_points <= LARGEST_MATRIX:
            here = self._here(points.new_zeros(num_front))
            for factor in dict.fromkeys(factor for term in self._terms for factor in term):
                assert factor is not None
                if num_front == 0 or min(factor.columns, default=0) >= num_front:
                    own = self._matrices[factor] = factor(here, here)
                    own.diagonal().copy_(factor.diagonal(here))  # free of rounding
        self.matrix = None if num_front else self._matrices.get(kernel)
        alone = [each in self._matrices or self._is_of_front(each) for each in self._terms[0]]
        self._is_product = len(self._terms) == 1 and all(alone)

    @classmethod
    def from_matrix(cls, matrix: Tensor) -> Prior:
        """Return the prior with a given covariance, ``A x A``, which is not checked."""
        return cls(matrix[:, :0], None, matrix=matrix.detach().clone())

    def __deepcopy__(self, memo: dict[int, Any]) -> Prior:
        """Return the prior itself, because it never changes."""
        return self

    def columns(
        self, index: Tensor, front: Tensor | None = None, now: Tensor | None = None
    ) -> Tensor:
        """Return the covariances of rows with all points, ``... x k x A``.

        Args:
            index: ``... x k``, the numbers of the rows' points.
            front: ``k x c``, the rows' fronts.
            now: ``c``, the front of all points.
        """
        return self.block(index, front, None, None if now is None else now[None])

    def block(
        self, index: Tensor, front: Tensor | None, others: Tensor | None, behind: Tensor | None
    ) -> Tensor:
        """Return the covariances of ``k`` rows with ``l`` others, ``k x l``.

        Args:
            index: ``k`` numbers of points.
            front: ``k x c``, the fronts of these rows.
            others: ``l`` numbers of points; None for all points in their order.
            behind: ``l x c``, the fronts of the others, or ``1 x c`` for all of them.
        """

        def values(factor: KernelFunction | None) -> Tensor:
            matrix = self._matrices.get(factor)
            if matrix is not None:
                if others is None:
                    return matrix[index]
                # entries by their places, because copies of k x A first cost three times as much
                return matrix[index.unsqueeze(-1), others.unsqueeze(-2)]
            assert factor is not None
            if front is not None and behind is not None and self._is_of_front(factor):
                return factor(front, behind)  # k x 1 if all have the same front
            return factor(self._inputs(index, front), self._inputs(others, behind))

        products = [functools.reduce(torch.mul, map(values, term)) for term in self._terms]
        total = functools.reduce(torch.add, products)
        # factors of the front alone have one value for all points
        count = self.num_points if others is None else others.shape[-1]
        return total.expand(*total.shape[:-1], count)

    def variances(self, now: Tensor | None = None) -> Tensor:
        """Return the ``A`` prior variances; they must not be changed."""
        if self.matrix is not None:
            return self.matrix.diagonal()
        assert self._kernel is not None
        return self._kernel.diagonal(self._here(now))

    @cached_property
    def _root(self) -> tuple[Tensor, Tensor, Tensor]:
        """A root ``U`` of the covariance of all points, ``U' U``; pivots; and ``U`` at the pivots.

        A Cholesky factorization with pivots, which stops where only rounding error is left: the
        rank of a smooth kernel is far below ``A``. It is the same behind every front, since the
        kernel is stationary.
        """
        now = self._points.new_zeros(self.num_front) if self.num_front else None
        residual = self.variances(now).clone()  # A variances that the rows so far leave
        smallest = NEGLIGIBLE * float(residual.max())
        rows = residual.new_empty(min(64, self.num_points), self.num_points)
        pivots: list[Tensor] = []
        while len(pivots) < self.num_points:
            pivot, rank = residual.argmax().reshape(1), len(pivots)
            variance = float(residual[pivot])
            if variance <= smallest:
                break
            if rank == len(rows):
                rows = torch.cat([rows, torch.empty_like(rows)])
            # row = (k(pivot, .) - sum_i rows_i rows_i(pivot)) / sqrt(residual(pivot))
            column = self.columns(pivot, None if now is None else now[None], now)[0]
            row = torch.addmv(column, rows[:rank].T, rows[:rank, pivot[0]], alpha=-1.0)
            rows[rank] = row.div_(variance**0.5)
            residual.addcmul_(row, row, value=-1.0).clamp_min_(0.0)
            residual[pivot] = 0.0  # not chosen again because of rounding
            pivots.append(pivot)
        root, order = rows[: len(pivots)].clone(), torch.cat(pivots)
        return root, order, root[:, order]

    @property
    def num_normals(self) -> int:
        """The standard normal numbers that a draw of a function takes."""
        return len(self._root[0]) if self.has_root else self.num_points

    def simulate(self, normal: Tensor) -> Tensor:
        """Turn ``... x num_normals`` numbers into what draws need; many at a time cost less.

        Returns:
            Draws of the values at all points, ``... x A``. Behind fronts the numbers come first; if
            there is no root, there is nothing but them.
        """
        if not self.has_root:
            return normal
        values = normal @ self._root[0]
        return torch.cat([normal, values], dim=-1) if self.num_front else values

    def rows_given(
        self, simulated: Tensor, index: Tensor, columns: Tensor, now: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return what drawn functions leave open about rows behind other fronts.

        With ``K = U' U`` at the points of the pivots, rows have the means ``k' U^-1 z``; under a
        product of a kernel of the front and one of the point, a share of the values there now.

        Args:
            simulated: ``k x ...``, from :meth:`simulate`.
            index: ``n`` numbers of the rows' points.
            columns: ``n x A`` covariances of the rows with all points now.
            now: ``c``, the front of all points.

        Returns:
            The means of the rows' values, ``k x n``, and the covariance that draws explain, the
            same for each of them, ``n x n``.
        """
        root, pivots, triangle = self._root  # rank x A, rank, rank x rank
        if self._is_product:
            share = columns.gather(-1, index.unsqueeze(-1)) / self.variances(now)[index, None]
            here = now.expand(len(index), -1)
            explained = self.block(index, here, index, here) * share * share.mT
            return simulated[..., len(root) + index] * share[:, 0], explained
        known = torch.linalg.solve_triangular(triangle.mT, columns[:, pivots].mT, upper=False)
        return simulated[..., : len(root)] @ known, known.mT @ known

    def _is_of_front(self, factor: KernelFunction | None) -> bool:
        """Return whether a factor reads nothing but the front."""
        return factor is not None and max(factor.columns, default=self.num_front) < self.num_front

    def _inputs(self, index: Tensor | None, front: Tensor | None) -> Tensor:
        points = self._points if index is None else self._points[index]
        if front is None:
            return points
        return torch.cat([front.expand(len(points), -1), points], dim=-1)

    def _here(self, now: Tensor | None) -> Tensor:
        return self._inputs(None, now)


_shared: WeakValueDictionary[tuple[Any, ...], Prior] = WeakValueDictionary()


def prior_of(kernel: Kernel, points: Tensor, num_front: int = 0) -> Prior:
    """Return the prior of points under a kernel; users of equal kernels and points share it.

    Args:
        kernel: A GPyTorch kernel of fronts and points, without a batch shape.
        points: ``A x d``, as the kernel expects them.
        num_front: The number of columns in front of the points.

    Raises:
        ValueError: If the kernel reads other columns, or its values are not a covariance.
    """
    dim = num_front + points.shape[-1]
    check_kernel_columns(kernel, dim)
    function = kernel_function(kernel, dim)
    if not function.terms:
        prior = Prior(points, function, num_front)
        _check_kernel(prior, type(kernel).__name__)
        return prior
    values = points.detach().cpu().contiguous().numpy().tobytes()
    numbers = tuple((*f.lengthscale.tolist(), float(f.outputscale)) for f in function.factors)
    where = (num_front, tuple(points.shape), str(points.device), values)
    key = (structure_of(function), numbers, *where)
    found = _shared.get(key)
    if found is None:  # a stationary kernel is a covariance at any points
        _shared[key] = found = Prior(points, function, num_front)
    return found


def _check_kernel(prior: Prior, name: str) -> None:
    """Raise an error unless a kernel is a covariance at the points, or at some of very many."""
    name = f"the matrix of the kernel ({name}) on the arms"
    front = prior._points.new_zeros(1, prior.num_front) if prior.num_front else None
    some = torch.arange(prior.num_points, device=prior._points.device)
    if prior.matrix is None:
        some = some[:: max(1, prior.num_points // NUM_CHECKED)]
    behind = None if front is None else front.expand(len(some), -1)
    check_finite(name, prior.variances(None if front is None else front[0]))
    matrix = prior.block(some, behind, some, behind)
    check_covariance(name, matrix)


class Stack:
    """``G`` priors of the same points, as one batch.

    Attributes:
        priors: The priors.
        num_points: ``A``.
        num_front: The number of columns in front of the points.
        matrices: ``1 x A x A``, the covariance of all points if there is one prior and it is kept.
    """

    def __init__(self, priors: Sequence[Prior]) -> None:
        """See the class.

        Args:
            priors: At least one prior; all have the same points and fronts.
        """
        self.priors = tuple(priors)
        self.num_points, self.num_front = priors[0].num_points, priors[0].num_front
        matrix = priors[0].matrix if len(priors) == 1 else None
        self.matrices = None if matrix is None else matrix.unsqueeze(0)

    def columns(
        self, index: Tensor, front: Tensor | None = None, now: Tensor | None = None
    ) -> Tensor:
        """Return ``G x k x A`` covariances of rows with all points; see :class:`Prior`.

        Args:
            index: ``k``, or ``G x k``; with one prior, ``G`` is the number of replicates.
            front: ``k x c``, the rows' fronts.
            now: ``c``, the front of all points.
        """
        if len(self.priors) == 1:
            found = self.priors[0].columns(index, front, now)
            return found if index.dim() == 2 else found.unsqueeze(0)
        pairs = zip(self.priors, index.expand(len(self.priors), -1), strict=True)
        return torch.stack([prior.columns(own, front, now) for prior, own in pairs])

    def block(
        self, index: Tensor, front: Tensor | None, others: Tensor, behind: Tensor | None
    ) -> Tensor:
        """Return new ``G x k x l`` covariances of rows with others; see :class:`Prior`."""
        return torch.stack([prior.block(index, front, others, behind) for prior in self.priors])

    def among(self, index: Tensor, front: Tensor | None = None) -> Tensor:
        """Return new ``G x n x n`` covariances of rows with each other."""
        return self.block(index, front, index, front)

    def variances(self, now: Tensor | None = None) -> Tensor:
        """Return new ``G x A`` prior variances."""
        return torch.stack([prior.variances(now) for prior in self.priors])

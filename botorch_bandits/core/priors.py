"""Prior covariances of a finite set of points, with and without columns in front of them.

A prior answers for rows, given by the numbers of points and by their fronts, and for all points
behind the front of the present round. Three forms cover all kernels:

* :class:`Table`: points without fronts. The matrix of all points is kept; of very many points only
  columns are evaluated.
* :class:`Separable`: sums of products ``k(c, c') k(x, x')`` of kernels that read either the front
  or the point. Tables serve all fronts.
* :class:`OfFronts`: any kernel of front and point together.

:class:`Stack` joins ``G`` priors in a batch dimension.
"""

from __future__ import annotations

import hashlib
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any
from weakref import WeakValueDictionary

import torch
from gpytorch.kernels import Kernel
from scipy.linalg.lapack import dpstrf
from torch import Tensor

from botorch_bandits.checks import check_double, check_finite
from botorch_bandits.core.kernels import (
    KernelFunction,
    StationaryKernel,
    Term,
    check_kernel_columns,
    fingerprint_kernel,
    kernel_function,
    read_products,
    sum_of_products,
)

LARGEST_MATRIX = 4096
"""The number of points up to which the matrix of all of them is kept (128 MiB)."""
NEGLIGIBLE = 1e-15
"""A root leaves out variance below this share of the largest, which is rounding error."""
ROUNDING = 1e-6
"""A negative eigenvalue below this share of the largest value is a kernel's rounding error."""
NUM_CHECKED = 512
"""Points, evenly spaced in their order, whose covariance is checked if the matrix is not kept."""
LARGEST_SUM = 4
"""Sums of more products than this are evaluated as one kernel: each product costs as much."""


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
    """Return a matrix ``R`` with ``R R'`` equal to a covariance up to rounding, ``n x rank``.

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


class Prior(ABC):
    """A zero-mean Gaussian prior of the values at ``A`` points.

    Attributes:
        num_points: ``A``.
        num_front: The number of columns in front of the points.
        matrix: ``A x A``, the covariance of all points; None if it is not kept or there are fronts.
        num_normals: The standard normal numbers that a draw of a function takes.
    """

    num_points: int
    num_front: int = 0
    matrix: Tensor | None = None

    @abstractmethod
    def columns(self, index: Tensor, front: Tensor | None, now: Tensor | None) -> Tensor:
        """Return the covariances of rows with all points, ``k x A``.

        Args:
            index: The ``k`` numbers of the rows' points.
            front: ``k x c``, the rows' fronts.
            now: ``c``, the front of all points.
        """

    @abstractmethod
    def block(
        self, index: Tensor, front: Tensor | None, others: Tensor, behind: Tensor | None
    ) -> Tensor:
        """Return the covariances of ``k`` rows with ``l`` others, ``k x l``."""

    @abstractmethod
    def variances(self, now: Tensor | None) -> Tensor:
        """Return the ``A`` prior variances; they must not be changed."""

    @property
    @abstractmethod
    def num_normals(self) -> int:
        """See the class."""

    @abstractmethod
    def simulate(self, normal: Tensor) -> Tensor:
        """Turn ``... x num_normals`` numbers into what draws need; many at a time cost less."""

    @abstractmethod
    def function(self, simulated: Tensor, now: Tensor | None) -> Tensor | None:
        """Return draws of the values at all points, ``... x A``; None if there is no root."""

    def rows_given(
        self, simulated: Tensor, index: Tensor, front: Tensor, now: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return what drawn functions leave open about rows behind other fronts.

        Returns:
            The means of the rows' values, ``k x n``, and the covariance that draws explain, the
            same for each of them, ``n x n``.
        """
        raise NotImplementedError


class Table(Prior):
    """Points without fronts; users of the same kernel and points share it, for it never changes.

    Attributes:
        diagonal: ``A`` prior variances.
        matrix: ``A x A``; None for so many points that only columns are evaluated.
    """

    def __init__(
        self,
        diagonal: Tensor,
        matrix: Tensor | None,
        evaluate: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """See the class.

        Args:
            diagonal: ``A`` prior variances.
            matrix: ``A x A`` prior covariances, if they are kept.
            evaluate: Otherwise, maps ``k`` numbers of points to their ``k x A`` covariances.
        """
        self.diagonal, self.matrix, self._evaluate = diagonal, matrix, evaluate
        self.num_points = len(diagonal)

    @classmethod
    def from_matrix(cls, matrix: Tensor) -> Table:
        """Return the prior with a given covariance.

        Args:
            matrix: ``A x A``, float64.

        Raises:
            ValueError: If the matrix is empty, not square, or not a covariance.
        """
        check_finite("kernel_matrix", check_double("kernel_matrix", matrix))
        if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1] or matrix.numel() == 0:
            raise ValueError(
                f"kernel_matrix has shape {tuple(matrix.shape)}; it must be num_arms x num_arms, "
                "with at least one arm."
            )
        own = matrix.detach().clone(memory_format=torch.contiguous_format)
        _check_covariance("kernel_matrix", own, 1e-8)
        return cls(own.diagonal().clone(), own)

    @classmethod
    def from_kernel(cls, kernel: Kernel, points: Tensor) -> Table:
        """Return the prior of points under a kernel.

        Args:
            kernel: A GPyTorch kernel without a batch shape.
            points: ``A x d``, as the kernel expects them.

        Raises:
            ValueError: If the kernel reads other columns, or its values are not a covariance.
        """
        check_kernel_columns(kernel, points.shape[-1])
        function = kernel_function(kernel, points.shape[-1])
        key = (fingerprint_kernel(kernel), *_name_of_points(points))
        with _lock:
            found = _shared.get(key)
            # a fingerprint tells stationary kernels apart; others may differ where it does not look
            if found is not None and (function.is_stationary or found._is_of(function, points)):
                return found
            _shared[key] = table = cls.from_function(function, points, type(kernel).__name__)
        return table

    @classmethod
    def from_function(cls, function: KernelFunction, points: Tensor, name: str) -> Table:
        """Return the prior of points under a kernel that is not shared.

        Args:
            function: The kernel.
            points: ``A x d``.
            name: The name of the kernel in error messages.

        Raises:
            ValueError: If the values of the kernel are not a covariance.
        """
        points = points.detach().clone()
        with torch.no_grad():
            diagonal = function.diagonal(points).contiguous()
            evaluate = partial(_evaluate, function, points, function.prepared(points))
        every = torch.arange(len(points), device=points.device)
        matrix = evaluate(every) if len(points) <= LARGEST_MATRIX else None
        if not function.is_stationary:  # a stationary kernel is a covariance at any points
            name = f"the matrix of the kernel ({name}) on the arms"
            some = every[:: max(1, len(every) // NUM_CHECKED)]
            # of very many points, the principal block of some
            among = evaluate(some)[:, some] if matrix is None else matrix
            check_finite(name, diagonal)
            _check_covariance(name, among, ROUNDING)
        return cls(diagonal, matrix, evaluate)

    def __deepcopy__(self, memo: dict[int, Any]) -> Table:
        """Return the prior itself, because it never changes."""
        return self

    def columns(
        self, index: Tensor, front: Tensor | None = None, now: Tensor | None = None
    ) -> Tensor:
        if self.matrix is not None:
            return self.matrix[index]
        assert self._evaluate is not None
        # k x A, or replicates x k x A
        return self._evaluate(index.reshape(-1)).reshape(*index.shape, self.num_points)

    def block(
        self, index: Tensor, front: Tensor | None, others: Tensor, behind: Tensor | None
    ) -> Tensor:
        if self.matrix is None:
            return self.columns(index).take_along_dim(others.unsqueeze(-2), -1)
        # entries by their places, because copies of k x A first cost three times as much
        return self.matrix.take(index.unsqueeze(-1) * self.num_points + others.unsqueeze(-2))

    def variances(self, now: Tensor | None = None) -> Tensor:
        return self.diagonal

    @cached_property
    def root(self) -> Tensor:
        """``rank x A``, such that ``root' root`` is the prior covariance.

        A Cholesky factorization with pivots, which stops where only rounding error is left: the
        rank of a smooth kernel is far below ``A``.
        """
        residual = self.diagonal.clone()  # A variances that the rows so far leave
        smallest = NEGLIGIBLE * float(residual.max())
        rows = residual.new_empty(min(64, self.num_points), self.num_points)
        for rank in range(self.num_points):
            pivot = residual.argmax().reshape(1)
            variance = float(residual[pivot])
            if variance <= smallest:
                return rows[:rank].clone()
            if rank == len(rows):
                rows = torch.cat([rows, torch.empty_like(rows)])
            # row = (k(pivot, .) - sum_i rows_i rows_i(pivot)) / sqrt(residual(pivot))
            column = self.columns(pivot)[0]
            row = torch.addmv(column, rows[:rank].T, rows[:rank, pivot[0]], alpha=-1.0)
            rows[rank] = row.div_(variance**0.5)
            residual.addcmul_(row, row, value=-1.0).clamp_min_(0.0)
            residual[pivot] = 0.0  # not chosen again because of rounding
        return rows[: self.num_points].clone()

    @property
    def num_normals(self) -> int:
        return len(self.root)

    def simulate(self, normal: Tensor) -> Tensor:
        return normal @ self.root  # ... x A, the values at all points

    def function(self, simulated: Tensor, now: Tensor | None = None) -> Tensor:
        return simulated

    def _is_of(self, function: KernelFunction, points: Tensor) -> bool:
        """Return whether the variances and some columns are those of a kernel."""
        # three columns of different points tell kernels apart that fingerprints do not
        some = torch.linspace(0, self.num_points - 1, 3, device=points.device).long().unique()
        with torch.no_grad():
            theirs, diagonal = function(points[some], points), function.diagonal(points)
        tolerance = 1e-12 * float(self.diagonal.abs().max())
        is_close = torch.allclose(self.columns(some), theirs, rtol=0.0, atol=tolerance)
        return is_close and torch.equal(self.diagonal, diagonal)


_shared: WeakValueDictionary[tuple[Any, ...], Table] = WeakValueDictionary()
_lock = threading.RLock()


def _evaluate(function: KernelFunction, points: Tensor, rows: Any, index: Tensor) -> Tensor:
    with torch.no_grad():
        return function(points[index], points, rows)


def _check_covariance(name: str, matrix: Tensor, share: float) -> None:
    """Raise an error unless a matrix is a covariance up to a share of its largest value."""
    check_finite(name, matrix)
    size = float(matrix.abs().max())
    difference = float((matrix - matrix.mT).abs().max())
    if difference > share * size:
        raise ValueError(
            f"{name} is not symmetric: k(x, z) and k(z, x) differ by up to {difference:.3g}, but a "
            "prior covariance is symmetric. Pass a symmetric kernel."
        )
    # the smallest eigenvalue is above -share max(K) if this has a factor
    raised = matrix.clone()
    raised.diagonal().add_(share * size)
    if size > 0.0 and int(torch.linalg.cholesky_ex(raised).info):
        smallest = float(torch.linalg.eigvalsh(matrix)[0])
        raise ValueError(
            f"{name} is not positive semi-definite: an eigenvalue is {smallest:.3g}, so some "
            "combination of arms would have a negative variance, and it is not a prior covariance. "
            "Pass a positive semi-definite kernel, such as MaternKernel, or a sum or product of "
            "such kernels."
        )


def _name_of_points(points: Tensor) -> tuple[Any, ...]:
    values = points.detach().cpu().contiguous().numpy()
    digest = hashlib.blake2b(values.tobytes(), digest_size=32).digest()
    return tuple(points.shape), points.dtype, str(points.device), digest


# --- kernels of fronts and points ----------------------------------------------------------------


class Separable(Prior):
    """Sums of products: ``sum_l c_l(front, front') K_l(point, point')``."""

    def __init__(
        self, fronts: Sequence[KernelFunction], tables: Sequence[Table], num_front: int
    ) -> None:
        """See the class.

        Args:
            fronts: ``c_l``, the kernel of the front in each product.
            tables: The prior of the points in each product.
            num_front: The number of columns in front.
        """
        self.num_points, self.num_front = tables[0].num_points, num_front
        self._fronts, self.tables = tuple(fronts), tuple(tables)

    def scales(self, front: Tensor, behind: Tensor) -> list[Tensor]:
        """Return ``c_l`` of the class for each product, ``k x l`` each."""
        with torch.no_grad():
            return [function(front, behind) for function in self._fronts]

    def columns(self, index: Tensor, front: Tensor | None, now: Tensor | None) -> Tensor:
        assert front is not None
        assert now is not None
        return self._sum(front, now[None], [table.columns(index) for table in self.tables])

    def block(
        self, index: Tensor, front: Tensor | None, others: Tensor, behind: Tensor | None
    ) -> Tensor:
        assert front is not None
        assert behind is not None
        each = [table.block(index, None, others, None) for table in self.tables]
        return self._sum(front, behind, each)

    def variances(self, now: Tensor | None) -> Tensor:
        assert now is not None
        here = now[None]
        return self._sum(here, here, [table.diagonal[None] for table in self.tables])[0]

    @property
    def num_normals(self) -> int:
        return sum(len(table.root) for table in self.tables)

    def simulate(self, normal: Tensor) -> Tensor:
        """See the base class; ``... x num_products x A``."""
        # a draw is a sum of independent draws, one for each product
        parts = normal.split([len(table.root) for table in self.tables], dim=-1)
        own = [part @ table.root for part, table in zip(parts, self.tables, strict=True)]
        return torch.stack(own, dim=-2)

    def function(self, simulated: Tensor, now: Tensor | None) -> Tensor:
        # f(now, .) = sum_l sqrt(c_l(now, now)) f_l, ... x A
        own = self._own(now).sqrt()  # num_products
        return (own.unsqueeze(-1) * simulated).sum(-2)

    def rows_given(
        self, simulated: Tensor, index: Tensor, front: Tensor, now: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See the base class.

        The values of the rows in product ``l`` are ``c_l(front, now) / c_l(now, now)`` times those
        behind the present front, plus what is independent of these.
        """
        mean = simulated.new_zeros(len(simulated), len(index))
        known = simulated.new_zeros(len(index), len(index))
        scales = self.scales(front, now[None])  # n x 1 each
        for i, own in enumerate(self._own(now).tolist()):
            if own > 0.0:  # a linear kernel of the front is 0 at the front 0
                share = scales[i] / math.sqrt(own)
                mean += share[:, 0] * simulated[:, i, index]
                known += self.tables[i].block(index, None, index, None).mul_(share).mul_(share.mT)
        return mean, known

    def _own(self, now: Tensor | None) -> Tensor:
        assert now is not None
        return torch.cat([own.reshape(1) for own in self.scales(now[None], now[None])])

    def _sum(self, front: Tensor, behind: Tensor, parts: Sequence[Tensor]) -> Tensor:
        first, *others = zip(self.scales(front, behind), parts, strict=True)
        total = first[0] * first[1]  # sum_l c_l K_l
        for scale, part in others:
            total.addcmul_(scale, part)
        return total


class OfFronts(Prior):
    """Any kernel of fronts and points together."""

    def __init__(self, kernel: KernelFunction, points: Tensor, num_front: int) -> None:
        """See the class.

        Args:
            kernel: The kernel of fronts and points.
            points: ``A x d``.
            num_front: The number of columns in front.
        """
        self.num_points, self.num_front = len(points), num_front
        self._kernel, self._points = kernel, points

    def columns(self, index: Tensor, front: Tensor | None, now: Tensor | None) -> Tensor:
        assert front is not None
        assert now is not None
        return self._kernel(self._inputs(index, front), self._here(now))

    def block(
        self, index: Tensor, front: Tensor | None, others: Tensor, behind: Tensor | None
    ) -> Tensor:
        assert front is not None
        assert behind is not None
        return self._kernel(self._inputs(index, front), self._inputs(others, behind))

    def variances(self, now: Tensor | None) -> Tensor:
        assert now is not None
        return self._kernel.diagonal(self._here(now))

    @property
    def num_normals(self) -> int:
        return len(self._root[0]) if self._kernel.terms else self.num_points

    def simulate(self, normal: Tensor) -> Tensor:
        """See the base class; the numbers, followed by the values at all points."""
        if not self._kernel.terms:
            return normal
        factor, order = self._root
        # in the order of the pivots, values are U' z
        values = normal.new_empty(*normal.shape[:-1], self.num_points)
        values[..., order] = normal @ factor
        return torch.cat([normal, values], dim=-1)

    def function(self, simulated: Tensor, now: Tensor | None) -> Tensor | None:
        return simulated[..., len(self._root[0]) :] if self._kernel.terms else None

    def rows_given(
        self, simulated: Tensor, index: Tensor, front: Tensor, now: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See the base class: with ``K = U' U`` at the points, rows have the means ``U^-T k z``."""
        factor, order = self._root  # r x A, A
        rank = len(factor)
        columns = self.columns(index, front, now)[:, order[:rank]].mT  # r x n
        # the points of the pivots determine z
        known = torch.linalg.solve_triangular(factor[:, :rank].mT, columns, upper=False)  # r x n
        return simulated[..., :rank] @ known, known.mT @ known

    @cached_property
    def _root(self) -> tuple[Tensor, Tensor]:
        """A factor ``U`` of the covariance of all points, ``r x A``, and the order of its pivots.

        It is the same behind every front, since the kernel is stationary.
        """
        here = self._here(self._points.new_zeros(self.num_front))
        matrix = self._kernel(here, here).cpu().numpy()
        smallest = NEGLIGIBLE * float(matrix.diagonal().max())
        factor, pivots, rank, _ = dpstrf(matrix.T, tol=smallest, lower=1, overwrite_a=1)
        upper = torch.from_numpy(factor).tril().mT[:rank].contiguous()
        return upper.to(self._points), torch.from_numpy(pivots).long().to(here.device) - 1

    def _inputs(self, index: Tensor, front: Tensor) -> Tensor:
        return torch.cat([front, self._points[index]], dim=-1)

    def _here(self, now: Tensor) -> Tensor:
        return torch.cat([now.expand(self.num_points, -1), self._points], dim=-1)


def _split(term: Term, num_front: int) -> tuple[Term, Term] | None:
    """Return the factors of a front and those of a point; None if one of them reads both."""
    sides: tuple[list[Any], list[Any]] = ([], [])
    for factor in term:
        in_front = [column < num_front for column in factor.columns]
        if len(set(in_front)) == 1:
            sides[not in_front[0]].append(factor)
        elif factor.smoothness != math.inf:
            return None
        else:  # s exp(-|u|^2 / 2 - |v|^2 / 2) = s exp(-|u|^2 / 2) exp(-|v|^2 / 2)
            for side, is_front in zip(sides, (True, False), strict=True):
                kept = [i for i, own in enumerate(in_front) if own is is_front]
                scale = factor.outputscale if is_front else torch.ones_like(factor.outputscale)
                columns = tuple(factor.columns[i] for i in kept)
                lengthscale = factor.lengthscale[kept]
                side.append(StationaryKernel(math.inf, lengthscale, scale, columns))
    return tuple(sides[0]), tuple(sides[1])


def prior_of(kernel: Kernel, points: Tensor, num_front: int = 0) -> Prior:
    """Return the prior of points under a kernel, in its cheapest form.

    Args:
        kernel: A GPyTorch kernel of fronts and points, without a batch shape.
        points: ``A x d``, as the kernel expects them.
        num_front: The number of columns in front of the points.

    Raises:
        ValueError: If the kernel reads other columns, or its values are not a covariance.
    """
    if num_front == 0:
        return Table.from_kernel(kernel, points)
    dim = num_front + points.shape[-1]
    check_kernel_columns(kernel, dim)
    products = read_products(kernel, dim, with_others=True) or []
    split = [_split(term, num_front) for term in products]
    if None in split or not 0 < len(split) <= LARGEST_SUM:
        return OfFronts(kernel_function(kernel, dim), points, num_front)
    inputs = torch.nn.functional.pad(points, (num_front, 0))  # kernels count all columns
    one = points.new_ones(())
    fronts, tables = [], []
    for sides in filter(None, split):
        # no factor is a constant, which has an infinite lengthscale
        constants = (StationaryKernel(math.inf, one / 0.0, one, (c,)) for c in (0, num_front))
        front, behind = (
            sum_of_products([side or (constant,)])
            for side, constant in zip(sides, constants, strict=True)
        )
        fronts.append(front)
        tables.append(Table.from_function(behind, inputs, type(kernel).__name__))
    return Separable(fronts, tables, num_front)


class Stack:
    """``G`` priors of the same points, as one batch.

    Attributes:
        priors: The priors.
        num_points: ``A``.
        num_front: The number of columns in front of the points.
        matrices: ``G x A x A``, the covariances of all points if they are kept and one tensor.
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

    def __len__(self) -> int:
        """Return ``G``."""
        return len(self.priors)

    def columns(
        self, index: Tensor, front: Tensor | None = None, now: Tensor | None = None
    ) -> Tensor:
        """Return ``G x k x A`` covariances of rows with all points; see :class:`Prior`.

        Args:
            index: ``k``, or ``G x k``; with one prior, ``G`` is the number of replicates.
            front: ``k x c``, the rows' fronts.
            now: ``c``, the front of all points.
        """
        if index.dim() == 1:
            return _stacked([prior.columns(index, front, now) for prior in self.priors])
        if len(self.priors) == 1:
            return self.priors[0].columns(index, front, now)
        pairs = zip(self.priors, index, strict=True)  # each prior has rows of its own
        return torch.stack([prior.columns(own, front, now) for prior, own in pairs])

    def block(
        self, index: Tensor, front: Tensor | None, others: Tensor, behind: Tensor | None
    ) -> Tensor:
        """Return ``G x k x l`` covariances of rows with others; see :class:`Prior`."""
        return _stacked([prior.block(index, front, others, behind) for prior in self.priors])

    def among(self, index: Tensor, front: Tensor | None = None) -> Tensor:
        """Return new ``G x n x n`` covariances of rows with each other."""
        return self.block(index, front, index, front)

    def variances(self, now: Tensor | None = None) -> Tensor:
        """Return ``G x A`` prior variances; they must not be changed."""
        return _stacked([prior.variances(now) for prior in self.priors])


def _stacked(each: Sequence[Tensor]) -> Tensor:
    return each[0].unsqueeze(0) if len(each) == 1 else torch.stack(list(each))

r"""Covariances of the arms of one round with rows that were observed with other fronts.

The front of a row is what precedes the arm in the model's columns: the round in which the row was
asked, the context that was given, or both. In the present round all arms have the same front
:math:`c`, and a model needs the covariances of its rows :math:`(c_i, x_i)` with all :math:`(c, x)`.
Two structures make them cheap.

**Sums of products.** If :math:`k((c, x), (c', x')) = \sum_l f_l(c, c') g_l(x, x')`, the covariances
of a row are rows of the prior matrices of the arms, each multiplied by one number
(:class:`SumOfProducts`). Squared exponential kernels are such products, and so are products and
sums of kernels whose ``active_dims`` are all in the front or all among the columns of the arms.

**Stationary kernels of all columns.** The scaled squared distance is the sum of one between the
fronts and one between the arms, and the latter is computed once for each arm that is played
(:class:`JointStationary`). Every other kernel is evaluated directly (:class:`AnyKernel`).

With a time-varying kernel, the first column is the round, and all of these covariances are
multiplied by :math:`(1 - \epsilon)^{|t - t'| / 2}`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, ProductKernel, RBFKernel
from gpytorch.kernels import ScaleKernel as Scale
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf
from torch import Tensor

from botorch_bandits.core.kernels import StationaryKernel
from botorch_bandits.models.prior_on_arms import LARGEST_MATRIX, NEGLIGIBLE, ArmsPrior

Array = NDArray[np.float64]
Index = NDArray[np.int64]

ROWS_AT_ONCE = 32
"""Rows whose covariances with all arms are computed together."""

LARGEST_SUM = 4
"""Sums of more products than this are evaluated as one kernel: each product costs as much."""


def exponential(values: Array) -> Array:
    """Exponentiate values in place, and return them.

    Where the processor has no AVX-512, PyTorch takes a third of the time of NumPy.

    Args:
        values: Any shape.
    """
    torch.from_numpy(values).exp_()
    return values


def values_at(squared: Array, smoothness: float) -> Array:
    """Return the values of a stationary kernel of variance 1 at scaled squared distances.

    Args:
        squared: Any shape, non-negative; it is overwritten.
        smoothness: ``nu`` of a Matern kernel, or infinity; see :class:`.StationaryKernel`.
    """
    if smoothness == math.inf:
        squared *= -0.5
        return exponential(squared)
    squared *= 2.0 * smoothness
    scaled = np.sqrt(squared, out=squared)
    decay = np.negative(scaled)
    exponential(decay)
    if smoothness == 0.5:
        return decay
    polynomial = scaled + 1.0
    if smoothness == 2.5:
        scaled *= scaled
        scaled *= 1.0 / 3.0
        polynomial += scaled
    decay *= polynomial
    return decay


def squared_distances(X: Array, Z: Array) -> Array:
    """Return the ``n x m`` squared distances of ``n x d`` and ``m x d`` points."""
    total: Array | None = None
    for x, z in zip(X.T, Z.T, strict=True):  # differences first, which keeps digits of near points
        difference = x[:, None] - z
        difference *= difference
        if total is None:
            total = difference
        else:
            total += difference
    return np.zeros((len(X), len(Z))) if total is None else total


@dataclass(frozen=True, eq=False)
class Factor:
    """A kernel of some of the columns.

    Attributes:
        kernel: The GPyTorch kernel, whose ``active_dims`` refer to all columns.
        columns: The columns that it reads.
        smoothness: ``nu`` of a Matern kernel, infinity for the squared exponential kernel, None for
            other kernels.
        lengthscale: A single one, or one for each of these columns, if there is a smoothness.
    """

    kernel: Kernel
    columns: tuple[int, ...]
    smoothness: float | None = None
    lengthscale: Array | None = None

    def matrix(self, X: Array, Z: Array, first: int, num_columns: int) -> Array:
        """Return the ``n x m`` values at points of which only some columns are given.

        Args:
            X: ``n x d`` points.
            Z: ``m x d`` points.
            first: The position of their first column among all columns.
            num_columns: The number of all columns.
        """
        own = [column - first for column in self.columns]
        if self.smoothness is not None and self.lengthscale is not None:
            scaled = squared_distances(X[:, own] / self.lengthscale, Z[:, own] / self.lengthscale)
            return values_at(scaled, self.smoothness)
        padded = []
        for points in (X, Z):
            whole = torch.zeros(len(points), num_columns, dtype=torch.float64)
            whole[:, first : first + points.shape[1]] = torch.tensor(points)
            padded.append(whole)
        with torch.no_grad():
            values: Array = self.kernel(*padded).to_dense().numpy()
        return values


@dataclass(frozen=True, eq=False)
class Product:
    """A product of kernels, each of which reads either the front or the columns of the arms.

    Attributes:
        scale: A number that multiplies the kernels.
        front: The kernels of the front.
        behind: The kernels of the columns of the arms.
    """

    scale: float
    front: tuple[Factor, ...] = ()
    behind: tuple[Factor, ...] = ()

    def times(self, other: Product) -> Product:
        """Return the product of both."""
        return Product(
            self.scale * other.scale, self.front + other.front, self.behind + other.behind
        )


def read_products(kernel: Kernel, num_front: int, num_columns: int) -> list[Product] | None:
    """Return a kernel as a sum of products of kernels of the front and kernels of the arms.

    Args:
        kernel: A float64 kernel without batch shape.
        num_front: The number of columns in front of those of the arms.
        num_columns: The number of all columns.

    Returns:
        None if it is not such a sum, or a sum of more than :data:`LARGEST_SUM` products.
    """
    if kernel.batch_shape:
        return None
    if type(kernel) is Scale and _reads_all_of(kernel, kernel.base_kernel):
        inner = read_products(kernel.base_kernel, num_front, num_columns)
        own = Product(float(kernel.outputscale.detach()))
        return None if inner is None else [own.times(each) for each in inner]
    parts: list[list[Product]] = []
    if type(kernel) in (ProductKernel, AdditiveKernel) and kernel.active_dims is None:
        for part in kernel.kernels:
            read = read_products(part, num_front, num_columns)
            if read is None:
                return None
            parts.append(read)
        if type(kernel) is AdditiveKernel:
            total = [product for part_products in parts for product in part_products]
        else:
            total = [Product(1.0)]
            for part_products in parts:
                total = [one.times(other) for one in total for other in part_products]
        return total if len(total) <= LARGEST_SUM else None
    columns = _columns_of(kernel, num_columns)
    if all(column < num_front for column in columns):
        return [Product(1.0, front=(_factor(kernel, columns),))]
    if all(column >= num_front for column in columns):
        return [Product(1.0, behind=(_factor(kernel, columns),))]
    if type(kernel) is not RBFKernel or kernel.lengthscale.numel() not in (1, len(columns)):
        return None
    lengthscale = kernel.lengthscale.detach().reshape(-1).expand(len(columns)).numpy()
    halves = []
    for is_front in (True, False):
        kept = [i for i, column in enumerate(columns) if (column < num_front) == is_front]
        own_columns = tuple(columns[i] for i in kept)
        halves.append((Factor(kernel, own_columns, math.inf, lengthscale[kept]),))
    return [Product(1.0, *halves)]


def _reads_all_of(kernel: Kernel, inner: Kernel) -> bool:
    """Return whether a kernel passes on all columns that the kernel inside it reads."""
    own, of_inner = kernel.active_dims, inner.active_dims
    # a ScaleKernel selects columns in place of the kernel that it scales
    return own is None or (of_inner is not None and torch.equal(own, of_inner))


def _columns_of(kernel: Kernel, num_columns: int) -> tuple[int, ...]:
    """Return the columns that a kernel reads, including those of parts with ``active_dims``."""
    if kernel.active_dims is None:
        return tuple(range(num_columns))
    return tuple(kernel.active_dims.tolist())


def _factor(kernel: Kernel, columns: tuple[int, ...]) -> Factor:
    if type(kernel) is RBFKernel:
        smoothness = math.inf
    elif type(kernel) is MaternKernel:
        smoothness = float(kernel.nu)
    else:
        return Factor(kernel, columns)
    lengthscale = kernel.lengthscale.detach().reshape(-1).numpy()
    if len(lengthscale) not in (1, len(columns)):
        return Factor(kernel, columns)
    return Factor(kernel, columns, smoothness, lengthscale)


class FrontCovariance(ABC):
    """The prior covariances of rows and arms with any fronts.

    Args:
        num_arms: The number of arms.
        num_front: The number of columns of a front, including the round.
        rate: The rate of a time-varying kernel, for which the first of these columns is the round;
            otherwise None.
    """

    def __init__(self, num_arms: int, num_front: int, rate: float | None) -> None:
        """See the class."""
        self.num_arms, self.num_front = num_arms, num_front
        self._log_decay = None if rate is None else 0.5 * math.log1p(-rate)

    @abstractmethod
    def with_rows(self, arms: Index, fronts: Array, arm: int, front: Array) -> Array:
        """Return the ``n`` covariances of rows with one more.

        Args:
            arms: ``n`` arm numbers of the rows.
            fronts: ``n x num_front``.
            arm: The arm of the other row.
            front: ``num_front``; the front of the other row.
        """

    @abstractmethod
    def among(self, arms: Index, fronts: Array) -> Array:
        """Return the ``n x n`` covariances of rows with each other."""

    @abstractmethod
    def columns(self, arms: Index, fronts: Array, front: Array, at: Index | None = None) -> Array:
        """Return the covariances of rows with arms that have a common front.

        Args:
            arms: ``n`` arm numbers of the rows.
            fronts: ``n x num_front``.
            front: ``num_front``; the front of the arms.
            at: ``k`` arms; all if omitted.

        Returns:
            ``n x k``; for all arms, in memory that the next call overwrites.
        """

    @abstractmethod
    def at_own(self, arms: Index, fronts: Array, front: Array) -> Array:
        """Return the ``n`` covariances of rows with their own arms at another front."""

    @abstractmethod
    def variances(self, front: Array) -> Array:
        """Return the ``num_arms`` prior variances with a front; they must not be changed."""

    @abstractmethod
    def matrix(self, front: Array) -> Array:
        """Return the ``num_arms x num_arms`` prior covariances with a front."""

    def alike(self, arms: Index, front: Array) -> Array:
        """Return a new ``n x n`` covariance of arms that shows which of them are alike.

        It is positive semi-definite, but may differ from the prior covariance if another one is
        cheaper.

        Args:
            arms: ``n`` arm numbers.
            front: ``num_front``; their front.
        """
        return self.among(arms, np.broadcast_to(front, (len(arms), len(front))))

    @property
    def num_normals(self) -> int:
        """The number of standard normal numbers that :meth:`simulate` takes."""
        return self.num_arms

    def simulate(self, normal: Tensor) -> Tensor:
        """Turn normal numbers into what posterior draws need; many at a time cost less.

        Args:
            normal: ``... x num_normals`` independent standard normal numbers.

        Returns:
            ``... x num_products x num_arms`` functions, one from the prior of each product. If the
            kernel is not a sum of products, the numbers themselves, followed by a function if it is
            stationary.
        """
        return normal

    def decay(self, fronts: Array, others: Array) -> Array | None:
        """Return the ``n x m`` factors of covariances due to time; None if there are none."""
        if self._log_decay is None:
            return None
        gaps = np.abs(fronts[:, 0, None] - others[None, :, 0])
        gaps *= self._log_decay
        return np.exp(gaps, out=gaps)

    def contexts(self, fronts: Array) -> Array:
        """Return the fronts without the round."""
        return fronts if self._log_decay is None else fronts[:, 1:]


class SumOfProducts(FrontCovariance):
    """Covariances that are sums of products; see the module.

    Args:
        products: From :func:`read_products`, for all columns but the round.
        points: ``num_arms x d`` arms, as the kernels see them.
        num_contexts: The number of context columns.
        rate: See :class:`FrontCovariance`.
    """

    def __init__(
        self, products: Sequence[Product], points: Array, num_contexts: int, rate: float | None
    ) -> None:
        """See the class."""
        super().__init__(len(points), num_contexts + (rate is not None), rate)
        self._num_contexts = num_contexts
        self._num_columns = num_contexts + points.shape[1]
        self._products = tuple(products)
        self._last: dict[int, tuple[Index, Array]] = {}  # arms and their rows, by product
        self.priors = tuple(self._prior(product, points) for product in products)

    @classmethod
    def behind_time(cls, prior: ArmsPrior, rate: float | None) -> SumOfProducts:
        """Return the covariances of arms without contexts, given their prior.

        Args:
            prior: The prior of the arms.
            rate: See :class:`FrontCovariance`; None if arms have no front at all.
        """
        new = cls([], np.empty((prior.num_arms, 0)), 0, rate)
        new._products, new.priors = (Product(1.0),), (prior,)
        return new

    def rows_of(self, number: int, arms: Index) -> Array:
        """Return the ``k x num_arms`` prior covariances of some arms with all, for one product.

        They must not be changed, because those of the same arms are returned again.
        """
        known, kept = self._last.get(number, (arms[:0], np.empty((0, self.num_arms))))
        count, total = len(known), len(arms)
        if not np.array_equal(known, arms[:count]):
            if 2 * total < count:  # so few are no reason to discard the others
                return self._new_rows_of(number, arms)
            count, kept = 0, kept[:0]
        if total > len(kept):  # with room for more, because arms are played one after the other
            more = np.empty((total + total // 4 * bool(count), self.num_arms))
            more[:count] = kept[:count]
            kept = more
        if total > count:
            kept[count:total] = self._new_rows_of(number, arms[count:])
        self._last[number] = arms.copy() if total > count else known, kept
        return kept[:total]

    def _new_rows_of(self, number: int, arms: Index) -> Array:
        rows: Array
        matrix = self.priors[number].matrix
        if matrix is None:
            rows = self.priors[number].columns(torch.from_numpy(arms)).numpy()
        else:
            rows = matrix.numpy().take(arms, axis=0)
        return rows

    def block_of(self, number: int, arms: Index, others: Index) -> Array:
        """Return the ``k x m`` prior covariances of arms with other arms, for one product."""
        matrix = self.priors[number].matrix
        if matrix is None:
            return self.rows_of(number, arms)[:, others]
        block: Array = matrix.numpy()[arms[:, None], others]
        return block

    def scales(self, fronts: Array, others: Array) -> list[Array]:
        """Return the factors of each product due to the fronts, ``n x m`` each."""
        if self.num_front == 0:
            return [np.ones((len(fronts), len(others)))]
        decay = self.decay(fronts, others)
        X, Z = self.contexts(fronts), self.contexts(others)
        every = []
        for product in self._products:
            values = decay
            for factor in product.front:
                own = factor.matrix(X, Z, 0, self._num_columns)
                values = own if values is None else values * own
            if values is None:
                values = np.ones((len(fronts), len(others)))
            every.append(values if product.scale == 1.0 else product.scale * values)
        return every

    def with_rows(self, arms: Index, fronts: Array, arm: int, front: Array) -> Array:
        total = np.zeros(len(arms))
        for prior, scale in zip(self.priors, self.scales(fronts, front[None]), strict=True):
            total += scale[:, 0] * prior.column(arm).numpy()[arms]
        return total

    def among(self, arms: Index, fronts: Array) -> Array:
        if self.num_front == 0:
            return self.rows_of(0, arms).take(arms, axis=1)
        scales = self.scales(fronts, fronts)
        total = np.zeros((len(arms), len(arms)))
        for number, scale in enumerate(scales):
            total += scale * self.block_of(number, arms, arms)
        return total

    def alike(self, arms: Index, front: Array) -> Array:
        if len(self.priors) == 1:
            return self.block_of(0, arms, arms)
        total = np.zeros((len(arms), len(arms)))
        for number, scale in enumerate(self.scales(front[None], front[None])):
            total += scale * self.block_of(number, arms, arms)
        return total

    def columns(self, arms: Index, fronts: Array, front: Array, at: Index | None = None) -> Array:
        total: Array | None = None
        for number, scale in enumerate(self.scales(fronts, front[None])):
            own = self.rows_of(number, arms) if at is None else self.block_of(number, arms, at)
            if self.num_front:
                own = own * scale
            total = own if total is None else total + own
        assert total is not None
        return total

    def at_own(self, arms: Index, fronts: Array, front: Array) -> Array:
        total = np.zeros(len(arms))
        for prior, scale in zip(self.priors, self.scales(fronts, front[None]), strict=True):
            total += scale[:, 0] * prior.diagonal.numpy()[arms]
        return total

    def variances(self, front: Array) -> Array:
        if not self.num_front:
            own: Array = self.priors[0].diagonal.numpy()
            return own
        total = np.zeros(self.num_arms)
        for prior, scale in zip(self.priors, self.scales(front[None], front[None]), strict=True):
            total += scale[0, 0] * prior.diagonal.numpy()
        return total

    def matrix(self, front: Array) -> Array:
        every = np.arange(self.num_arms)
        scales = self.scales(front[None], front[None])
        return sum(scale * self.rows_of(i, every) for i, scale in enumerate(scales))  # type: ignore[return-value]

    @property
    def num_normals(self) -> int:
        return sum(len(prior.root) for prior in self.priors)

    def simulate(self, normal: Tensor) -> Tensor:
        roots = [prior.root for prior in self.priors]
        parts = normal.split([len(root) for root in roots], dim=-1)
        return torch.stack([p @ root for p, root in zip(parts, roots, strict=True)], dim=-2)

    def _prior(self, product: Product, points: Array) -> ArmsPrior:
        def evaluate(index: Tensor) -> Tensor:
            total = np.ones((len(index), len(points)))
            for factor in product.behind:
                total *= factor.matrix(
                    points[index.numpy()], points, self._num_contexts, self._num_columns
                )
            return torch.from_numpy(total)

        diagonal = np.ones(len(points))
        for factor in product.behind:
            if factor.smoothness is None:
                whole = torch.zeros(len(points), self._num_columns, dtype=torch.float64)
                whole[:, self._num_contexts :] = torch.tensor(points)
                with torch.no_grad():
                    diagonal *= factor.kernel(whole, diag=True).numpy()
        own = torch.from_numpy(diagonal)
        if len(points) > LARGEST_MATRIX:
            return ArmsPrior(own, None, evaluate)
        return ArmsPrior(own, evaluate(torch.arange(len(points))))


class JointStationary(FrontCovariance):
    """A stationary kernel of all columns at once; see the module.

    Args:
        kernel: The closed form of the kernel.
        points: ``num_arms x d`` arms, as the kernel sees them.
        num_contexts: The number of context columns.
        rate: See :class:`FrontCovariance`.
    """

    def __init__(
        self, kernel: StationaryKernel, points: Array, num_contexts: int, rate: float | None
    ) -> None:
        """See the class."""
        super().__init__(len(points), num_contexts + (rate is not None), rate)
        lengthscale = kernel.lengthscale.expand(num_contexts + points.shape[1]).cpu().numpy()
        self._of_context, of_arms = lengthscale[:num_contexts], lengthscale[num_contexts:]
        self._points = points / of_arms
        self._smoothness, self._variance = kernel.smoothness, float(kernel.outputscale)
        self._distances = np.empty((16, len(points)))  # of the arms that were played from all arms
        self._slots = np.full(len(points), -1)
        self._num_slots = 0
        self._room = np.empty((0, len(points)))  # reused: new memory costs more than its contents

    def with_rows(self, arms: Index, fronts: Array, arm: int, front: Array) -> Array:
        slot = self._slots_of(np.array([arm]))[0]
        squared = self._distances[slot, arms][:, None] + self._apart(fronts, front[None])
        return self._values(squared, fronts, front[None])[:, 0]

    def among(self, arms: Index, fronts: Array) -> Array:
        slots = self._slots_of(arms)
        squared = self._distances[slots[:, None], arms]
        squared += self._apart(fronts, fronts)
        return self._values(squared, fronts, fronts)

    def alike(self, arms: Index, front: Array) -> Array:
        """See the base class; a rational quadratic kernel needs no roots or powers."""
        values = self._distances[self._slots_of(arms)[:, None], arms]
        values *= 0.5
        values += 1.0
        return np.reciprocal(values, out=values)

    def columns(self, arms: Index, fronts: Array, front: Array, at: Index | None = None) -> Array:
        slots, apart = self._slots_of(arms), self._apart(fronts, front[None])
        if at is not None:
            squared = self._distances[slots[:, None], at]
            squared += apart
            return self._values(squared, fronts, front[None])
        if len(self._room) < len(arms):
            self._room = np.empty((math.ceil(1.25 * len(arms)), self.num_arms))
        columns = self._room[: len(arms)]
        for start in range(0, len(arms), ROWS_AT_ONCE):  # so few rows stay in the cache
            some = slice(start, start + ROWS_AT_ONCE)
            squared = self._distances.take(slots[some], axis=0)
            squared += apart[some]
            columns[some] = self._values(squared, fronts[some], front[None])
        return columns

    def at_own(self, arms: Index, fronts: Array, front: Array) -> Array:
        return self._values(self._apart(fronts, front[None]), fronts, front[None])[:, 0]

    def variances(self, front: Array) -> Array:
        return np.full(self.num_arms, self._variance)

    def matrix(self, front: Array) -> Array:
        return self._matrix

    @cached_property
    def root(self) -> tuple[Array, Index]:
        """A pivoted Cholesky factor, ``r x num_arms``, and the arms in the order of its pivots.

        In this order the covariance of the arms is ``U' U``, where the factor ``U`` is upper
        triangular up to the rank ``r``, beyond which only rounding errors are left.
        """
        smallest = NEGLIGIBLE * self._variance
        factor, pivots, rank, _ = dpstrf(self._matrix.T, tol=smallest, lower=1, overwrite_a=1)
        order: Index = pivots.astype(np.int64) - 1
        upper = factor.T  # row-major, in the memory of the matrix
        for i in range(rank):
            upper[i, :i] = 0.0
        return (upper if rank == len(upper) else upper[:rank].copy()), order

    @property
    def num_normals(self) -> int:
        return len(self.root[0])

    def simulate(self, normal: Tensor) -> Tensor:
        factor, order = self.root
        function = torch.empty(*normal.shape[:-1], self.num_arms, dtype=normal.dtype)
        function[..., torch.from_numpy(order)] = normal @ torch.from_numpy(factor)
        return torch.cat([normal, function], dim=-1)

    @property
    def _matrix(self) -> Array:
        """The covariance of all arms, in memory of its own: it is the same with every front."""
        values = values_at(squared_distances(self._points, self._points), self._smoothness)
        values *= self._variance
        return values

    def _apart(self, fronts: Array, others: Array) -> Array:
        X, Z = self.contexts(fronts), self.contexts(others)
        return squared_distances(X / self._of_context, Z / self._of_context)

    def _values(self, squared: Array, fronts: Array, others: Array) -> Array:
        values = values_at(squared, self._smoothness)
        if self._variance != 1.0:
            values *= self._variance
        decay = self.decay(fronts, others)
        if decay is not None:
            values *= decay
        return values

    def _slots_of(self, arms: Index) -> Index:
        slots = self._slots[arms]
        if len(slots) and slots.min() < 0:
            for arm in dict.fromkeys(arms[slots < 0].tolist()):
                if self._num_slots == len(self._distances):
                    more = np.empty((2 * self._num_slots, self.num_arms))
                    more[: self._num_slots] = self._distances
                    self._distances = more
                point = self._points[arm][None]
                self._distances[self._num_slots] = squared_distances(point, self._points)[0]
                self._slots[arm] = self._num_slots
                self._num_slots += 1
            slots = self._slots[arms]
        return slots


class AnyKernel(FrontCovariance):
    """Any kernel of all columns, evaluated by GPyTorch.

    Args:
        kernel: A float64 kernel without batch shape.
        points: ``num_arms x d`` arms, as the kernel sees them.
        num_contexts: The number of context columns.
        rate: See :class:`FrontCovariance`.
    """

    def __init__(
        self, kernel: Kernel, points: Array, num_contexts: int, rate: float | None
    ) -> None:
        """See the class."""
        super().__init__(len(points), num_contexts + (rate is not None), rate)
        self._kernel, self._points = kernel, points

    def with_rows(self, arms: Index, fronts: Array, arm: int, front: Array) -> Array:
        rows, other = self._inputs(arms, fronts), self._inputs(np.array([arm]), front[None])
        return self._evaluate(rows, other, fronts, front[None])[:, 0]

    def among(self, arms: Index, fronts: Array) -> Array:
        rows = self._inputs(arms, fronts)
        return self._evaluate(rows, rows, fronts, fronts)

    def columns(self, arms: Index, fronts: Array, front: Array, at: Index | None = None) -> Array:
        rows, here = self._inputs(arms, fronts), self._here(front)
        here = here if at is None else here[torch.from_numpy(at)]
        return self._evaluate(rows, here, fronts, front[None])

    def at_own(self, arms: Index, fronts: Array, front: Array) -> Array:
        rows = self._inputs(arms, fronts)
        behind = self._inputs(arms, np.broadcast_to(front, fronts.shape))
        with torch.no_grad():
            values: Array = self._kernel(rows, behind, diag=True).numpy()
        decay = self.decay(fronts, front[None])
        return values if decay is None else values * decay[:, 0]

    def variances(self, front: Array) -> Array:
        with torch.no_grad():
            values: Array = self._kernel(self._here(front), diag=True).numpy()
        return values

    def matrix(self, front: Array) -> Array:
        here = self._here(front)
        return self._evaluate(here, here, front[None], front[None])

    def _here(self, front: Array) -> Tensor:
        fronts = np.broadcast_to(front, (self.num_arms, len(front)))
        return self._inputs(np.arange(self.num_arms), fronts)

    def _inputs(self, arms: Index, fronts: Array) -> Tensor:
        columns = [self.contexts(fronts), self._points[arms]]
        return torch.from_numpy(np.concatenate(columns, axis=1))

    def _evaluate(self, X: Tensor, Z: Tensor, fronts: Array, others: Array) -> Array:
        with torch.no_grad():
            values: Array = self._kernel(X, Z).to_dense().numpy()
        decay = self.decay(fronts, others)
        return values if decay is None else values * decay


def front_covariance(
    kernel: Kernel, points: Tensor, num_contexts: int, rate: float | None
) -> FrontCovariance:
    """Return the covariances of a kernel in their cheapest form.

    Args:
        kernel: A float64 kernel of contexts and arms on the CPU, without batch shape.
        points: ``num_arms x d`` arms, as the kernel sees them.
        num_contexts: The number of context columns.
        rate: The rate of a time-varying kernel, or None.

    Example:
        >>> arms = torch.linspace(0.0, 1.0, 4, dtype=torch.float64).unsqueeze(-1)
        >>> type(front_covariance(RBFKernel().double(), arms, 1, None)).__name__
        'SumOfProducts'
        >>> type(front_covariance(MaternKernel().double(), arms, 1, None)).__name__
        'JointStationary'
    """
    if num_contexts == 0:
        return SumOfProducts.behind_time(ArmsPrior.from_kernel(kernel, points), rate)
    own = points.numpy()
    products = read_products(kernel, num_contexts, num_contexts + points.shape[1])
    if products is not None:
        return SumOfProducts(products, own, num_contexts, rate)
    stationary = StationaryKernel.read(kernel)
    num_columns = num_contexts + points.shape[1]
    if stationary is not None and len(stationary.lengthscale) in (1, num_columns):
        return JointStationary(stationary, own, num_contexts, rate)
    return AnyKernel(kernel, own, num_contexts, rate)

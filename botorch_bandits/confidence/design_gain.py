r"""Bounds on the information gain from designs: the tightest one on arms, and one for a whole box.

Let every point of a domain have a feature vector whose inner products are the kernel, and let a
design spread a mass :math:`T` of observations over points. Its gain

.. math:: F(M) = \tfrac12 \ln\det\Bigl(I + \tfrac1\lambda \sum_i m_i \varphi_i \varphi_i^\top\Bigr)

is a concave function of the masses, and the gain of any ``T`` observations is that of a design with
integer masses. A concave function lies below its tangents: with :math:`v_M(x)` the posterior
variance at ``x`` after the design ``M``,

.. math:: \gamma_T \le F(M) + \frac{1}{2\lambda}
          \Bigl(T \max_x v_M(x) - \sum_i m_i v_M(x_i)\Bigr)

for every design ``M`` of any mass. For the best design of mass ``T``, the bound equals the gain of
the best design with real masses (the equivalence theorem of Kiefer and Wolfowitz 1960, for this
criterion). Each design gives a line in ``T``, and the bound is the minimum of several lines.

**On a box**, the points of a grid represent all points. A point in a cell is interpolated between
the corners of its cell, :math:`\tilde\varphi(x) = \sum_c w_c \varphi(g_c)` with weights that are
not negative and sum to 1, and :math:`\lVert \varphi(x) - \tilde\varphi(x) \rVert \le \rho`. As
:math:`\varphi\varphi^\top \preceq (1 + a) \tilde\varphi\tilde\varphi^\top + (1 + 1/a) r r^\top` for
the rest ``r`` and every ``a > 0``, and
:math:`\tilde\varphi\tilde\varphi^\top \preceq \sum_c w_c \varphi(g_c)\varphi(g_c)^\top`,

.. math:: \gamma_T \le \max_{M \text{ on the grid}} F_{\lambda / (1 + a)}(M)
          + \frac{T}{2} \ln\Bigl(1 + \bigl(1 + \tfrac1a\bigr) \frac{\rho^2}{\lambda}\Bigr).

If one interpolates along one axis after the other, :math:`\rho` is at most the sum over the axes of
the largest error along each, which can be computed from the kernel.
"""

from __future__ import annotations

import math
from typing import Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.checks import (
    check_double,
    check_finite,
    check_integer,
    check_positive,
)
from botorch_bandits.confidence.information_gain import (
    GainBound,
    GainDomain,
    WaterFillingGain,
    check_kernel_matrix,
)

_GROWTH = 1.5
"""The masses of two neighboring designs; between two of them, the bound is up to 1% off."""

_NUM_STEPS = 40
"""The largest number of steps for each design."""

_POWER = 1.5
"""The shares of a design are multiplied by this power of their variances over the average. With 1,
as in textbooks, the steps are slower; 1.5 needs about half as many, and 3 makes them oscillate."""

_TIGHTNESS = 0.01
"""The search for a design ends when the bound is off by at most this share of the gain."""

_EXTRAS = (0.003, 0.03, 0.3)
"""The values of ``a`` on a box; the smallest of the bounds is used."""

_SHARE_LEFT_OUT = 1e-3
"""The amount in nats that leaving out directions of small variance may add to a design's gain."""


class DesignGain(WaterFillingGain):
    r"""Upper bound on arms: the best design with real masses, by its tangents.

    It is at most :class:`WaterFillingGain`, whose designs may observe any direction of the feature
    space and not arms only, and at most :math:`\tfrac{T}{2} \ln(1 + k / \lambda)`, the gain of
    uncorrelated points. With more observations than the kernel has relevant directions, it is
    within 1% or 2% of what greedy selection attains.

    Source: see the module. The designs are found with the multiplicative algorithm of Silvey,
    Titterington and Torsney 1978; any design gives a valid bound.

    Args:
        kernel_matrix: ``num_arms x num_arms`` prior covariance of the arms.
        lam: The regularization (noise variance), in the same units.
        points: See :class:`GainBoundOfPoints`.

    Example:
        >>> bound = DesignGain(torch.eye(3, dtype=torch.float64), lam=1.0)
        >>> round(bound(3), 6) == round(1.5 * math.log(2.0), 6)
        True
    """

    def __init__(self, kernel_matrix: Tensor, lam: float, points: Tensor | None = None) -> None:
        """See the class."""
        super().__init__(kernel_matrix, lam, points)
        self._covariance = check_kernel_matrix(kernel_matrix).clone()
        self._lam = check_positive("lam", lam)
        self._lines = _TangentLines(*_pivoted_cholesky(self._covariance), self._lam)

    def _bound(self, num_observations: int) -> float:
        alone = math.log1p(max(float(self._covariance.diagonal().max()), 0.0) / self._lam)
        return min(
            super()._bound(num_observations),
            0.5 * num_observations * alone,
            self._lines(num_observations),
        )


class BoxGain(GainBound):
    r"""Upper bound on the gain of any observations in a box.

    See the module for the formula. It is for stationary kernels, and useful in up to about three
    dimensions, where a grid of ``max_points`` points has cells that are small compared with the
    lengthscales. Otherwise it is hardly better than :math:`\tfrac{T}{2} \ln(1 + 1/\lambda)`, the
    gain of uncorrelated points, which it never exceeds.

    With contexts the box is that of contexts and actions together.

    Args:
        bounds: ``2 x d``, float64: lower and upper ends of the box, in the kernel's inputs.
        kernel: The stationary kernel of the model, including its scale if it has one.
        lam: The noise variance of the model, in the kernel's units.
        max_points: The largest number of points of the grid. Time grows with its square, and
            tightness grows with it.

    Raises:
        TypeError: If ``bounds`` is not float64.
        ValueError: If an argument is out of its range, or the kernel is not stationary.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> gain = BoxGain(bounds, RBFKernel().double(), lam=1.0)
        >>> round(gain(100), 1), round(50 * math.log(2.0), 1)  # any 100 points; unrelated ones
        (4.4, 34.7)
    """

    def __init__(self, bounds: Tensor, kernel: Kernel, lam: float, max_points: int = 600) -> None:
        """See the class."""
        check_finite("bounds", check_double("bounds", bounds))
        if bounds.dim() != 2 or len(bounds) != 2 or bool((bounds[0] >= bounds[1]).any()):
            raise ValueError(
                f"bounds is {bounds.tolist()}; pass 2 x d numbers, each lower end below its upper "
                "end."
            )
        if not kernel.is_stationary:
            raise ValueError(
                f"kernel is a {type(kernel).__name__}, which is not stationary; the error between "
                "the points of a grid is known for stationary kernels only. On finitely many "
                "points use DesignGain.on(choices, kernel, lam)."
            )
        lam = check_positive("lam", lam)
        max_points = check_integer("max_points", max_points, minimum=2 ** bounds.shape[-1])
        self.bounds = bounds.detach().clone()
        sizes = _sizes_of_grid(self.bounds, kernel, max_points)
        axes = [
            torch.linspace(float(low), float(high), size, dtype=bounds.dtype)
            for low, high, size in zip(*self.bounds, sizes, strict=True)
        ]
        grid = torch.cartesian_prod(*axes).reshape(-1, len(sizes))
        with torch.no_grad():
            matrix = kernel(grid).to_dense()
            self._error = sum(
                _interpolation_error(kernel, self.bounds.mean(0), j, float(axes[j][1] - axes[j][0]))
                for j in range(len(axes))
            )
        self.kernel, self.lam, self.max_points = kernel, lam, max_points
        self._prior_variance = float(matrix.diagonal().max())
        self.domain = GainDomain(None, lam / self._prior_variance, bounds=self.bounds)
        factor, residuals = _pivoted_cholesky(0.5 * (matrix + matrix.mT))
        self._lines = [_TangentLines(factor, residuals, lam / (1.0 + extra)) for extra in _EXTRAS]

    @classmethod
    def on(cls, bounds: Tensor, kernel: Kernel, lam: float) -> Self:
        """Return the bound for a box, like the method of the same name of bounds for points.

        Args:
            bounds: ``2 x d``.
            kernel: The model's, with its scale if it has one.
            lam: The noise variance of the model, in the kernel's units.
        """
        return cls(bounds, kernel, lam)

    def _bound(self, num_observations: int) -> float:
        least = 0.5 * num_observations * math.log1p(self._prior_variance / self.lam)
        for extra, lines in zip(_EXTRAS, self._lines, strict=True):
            rest = math.log1p((1.0 + 1.0 / extra) * self._error**2 / self.lam)
            between = 0.5 * num_observations * rest
            if between < least:
                least = min(least, between + lines(num_observations))
        return least


class _TangentLines:
    """The minimum of the tangents at some designs, which are computed on demand.

    Args:
        factor: ``n x m``, a root of the points' covariance whose columns are sorted by the variance
            that they explain.
        residuals: ``m + 1``, the largest variance that the first columns leave.
        lam: The noise variance.
    """

    def __init__(self, factor: Tensor, residuals: Tensor, lam: float) -> None:
        """See the class."""
        self._factor, self._residuals, self._lam = factor, residuals, lam
        self._lines: dict[int, tuple[float, float]] = {}

    def __call__(self, num_observations: int) -> float:
        """Return the bound for a number of observations, at least 1.

        Args:
            num_observations: The mass of the design.
        """
        place = math.log(num_observations) / math.log(_GROWTH)
        lines = [self._line(number) for number in (math.floor(place), math.ceil(place))]
        return max(0.0, min(start + slope * num_observations for start, slope in lines))

    def _line(self, number: int) -> tuple[float, float]:
        """Return start and slope of the tangent at the best design of mass ``_GROWTH ** number``.

        Directions of the feature space that add less than ``_SHARE_LEFT_OUT`` nats are left out.
        For two matrices without negative eigenvalues, ``ln det(I + A + B)`` is at most the sum of
        ``ln det(I + A)`` and ``ln det(I + B)``, and the latter at most the sum over its diagonal.
        """
        if number not in self._lines:
            mass, lam = _GROWTH**number, self._lam
            small = self._residuals <= 2.0 * lam * _SHARE_LEFT_OUT / mass
            rank = int(small.double().argmax()) if bool(small.any()) else len(self._residuals) - 1
            features = self._factor[:, :rank]
            left_out = 0.5 * math.log1p(max(float(self._residuals[rank]), 0.0) / lam)
            start, slope = _tangent(features, mass, lam)
            self._lines[number] = (start, slope + left_out)
        return self._lines[number]


def _tangent(features: Tensor, mass: float, lam: float) -> tuple[float, float]:
    """Return start and slope of the tangent at a good design of this mass.

    Args:
        features: ``n x m``.
        mass: The mass of the design.
        lam: The noise variance.
    """
    num_points, rank = features.shape
    if rank == 0:
        return 0.0, 0.0  # all eigenvalues are 0, so nothing can be learned
    share = features.new_full((num_points,), 1.0 / num_points)
    best = (math.inf, 0.0, 0.0)
    identity = torch.eye(rank, dtype=features.dtype)
    for _ in range(_NUM_STEPS):
        weighted = features * (share * (mass / lam)).unsqueeze(-1)
        factor = torch.linalg.cholesky(identity + features.mT @ weighted)
        variances = torch.linalg.solve_triangular(factor, features.mT, upper=False).square().sum(0)
        largest, average = float(variances.max()), float(share @ variances)
        gain = float(factor.diagonal().log().sum())
        start, slope = gain - 0.5 * mass * average / lam, 0.5 * largest / lam
        best = min(best, (start + slope * mass, start, slope))
        if best[0] <= (1.0 + _TIGHTNESS) * gain:
            break
        share = share * (variances / average) ** _POWER
        share = share / share.sum()
    return best[1:]


def _pivoted_cholesky(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return a factor whose columns are sorted by the variance that they explain.

    The last column is the last one that is more than rounding.

    Args:
        matrix: ``n x n``, positive semi-definite.

    Returns:
        ``n x m`` and ``m + 1`` numbers: the largest variance that the first ``0, 1, ..., m``
        columns leave.
    """
    variances = matrix.diagonal().clone()
    first = float(variances.max())
    residuals, rank = [first], 0
    factor = matrix.new_empty(matrix.shape)
    while rank < len(matrix) and residuals[-1] > 1e-13 * first:
        pivot = int(variances.argmax())
        column = matrix[:, pivot] - factor[:, :rank] @ factor[pivot, :rank]
        if not float(column[pivot]) > 0.0:
            break
        factor[:, rank] = column / column[pivot].sqrt()
        variances = (variances - factor[:, rank].square()).clamp_min(0.0)
        variances[pivot] = 0.0
        rank += 1
        residuals.append(float(variances.max()))
    return factor[:, :rank].clone(), torch.tensor(residuals, dtype=matrix.dtype)


def _sizes_of_grid(bounds: Tensor, kernel: Kernel, max_points: int) -> list[int]:
    """Return the number of grid points along each axis, for cells with similar errors.

    Args:
        bounds: ``2 x d``.
        kernel: A stationary kernel.
        max_points: The largest number of points of the grid.
    """
    dim = bounds.shape[-1]
    sizes = [2] * dim
    lengths = (bounds[1] - bounds[0]).tolist()
    center = bounds.mean(0)
    with torch.no_grad():
        errors = [_interpolation_error(kernel, center, j, lengths[j], 16) for j in range(dim)]
        while True:
            worst = max(range(dim), key=lambda j: errors[j])
            if errors[worst] <= 0.0:
                return sizes
            larger = [
                max(size + 1, math.ceil(1.05 * size)) if j == worst else size
                for j, size in enumerate(sizes)
            ]
            if math.prod(larger) > max_points:
                return sizes
            sizes = larger
            spacing = lengths[worst] / (sizes[worst] - 1)
            errors[worst] = _interpolation_error(kernel, center, worst, spacing, 16)


def _interpolation_error(
    kernel: Kernel, center: Tensor, axis: int, spacing: float, num_steps: int = 2000
) -> float:
    r"""Return a bound on the norm of the error of interpolation between two points.

    It is the root of ``Var(f(u) - (1 - u) f(0) - u f(1))`` for ``u`` between two neighbors on an
    axis, at most the largest value at ``num_steps`` points and the change of the norm between two
    of these, which is at most ``|phi(u) - phi(u')| + |u - u'| |phi(1) - phi(0)|``.

    Args:
        kernel: A stationary kernel.
        center: ``d``, any point.
        axis: The column.
        spacing: The distance of the two neighbors.
        num_steps: The number of points between them that are evaluated.
    """
    u = torch.linspace(0.0, 1.0, num_steps + 1, dtype=center.dtype)
    half = 0.5 / num_steps
    points = center.repeat(len(u) + 1, 1)
    points[:-1, axis] += u * spacing
    points[-1, axis] += half * spacing
    ends = points[[0, len(u) - 1]]
    with_ends = kernel(points, ends).to_dense()
    with_ends = with_ends.detach()
    prior, between = float(with_ends[0, 0]), float(with_ends[0, 1])
    low, high = with_ends[:-1, 0], with_ends[:-1, 1]
    left = 1.0 - u
    variances = (
        prior * (1.0 + left.square() + u.square())
        - 2.0 * left * low
        - 2.0 * u * high
        + 2.0 * left * u * between
    )
    distance = math.sqrt(max(2.0 * (prior - float(with_ends[-1, 0])), 0.0))
    whole = math.sqrt(max(2.0 * (prior - between), 0.0))
    rounding = 1e-15 * prior
    return math.sqrt(max(float(variances.max()), 0.0) + rounding) + distance + half * whole

r"""The realized information gain, and bounds on the largest gain that any inputs could realize.

.. math:: I(X) = \tfrac12 \ln\det(I + K / \lambda)
           = \tfrac12 \sum_s \ln(1 + \sigma_{s-1}^2(x_s) / \lambda)

in nats, with the same regularization ``lam`` as the posterior. In the widths of Chowdhury and
Gopalan 2017 (Theorem 2), the realized gain of the inputs in the posterior may replace the maximal
one: it is never larger, and a Cholesky factor provides it at no cost. Other widths need an upper
bound on

.. math:: \gamma_T = \max_{|A| = T} \tfrac12 \ln\det(I + K_A / \lambda)

over MULTISETS ``A`` of points: an arm may be observed many times. The exact value is NP-hard to
compute. Every bound is an object that is called with the number of observations; it caches its
results.

**Designs** give the tightest bound on arms, and one for a whole box. Let every point of a domain
have a feature vector whose inner products are the kernel, and let a design spread a mass :math:`T`
of observations over points. Its gain

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

Sources: Srinivas et al. 2010, section 5 and Lemma 7.6; Vakili, Khezeli and Picheny, *On
information gain and regret bounds in Gaussian process bandits*, AISTATS 2021.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from botorch.exceptions.errors import ModelFittingError
from gpytorch.kernels import Kernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_double,
    check_finite,
    check_integer,
    check_positive,
)
from botorch_bandits.confidence.facts import ALONE
from botorch_bandits.confidence.theorems import (
    GAIN_IS_RATE,
    GAIN_OF_ANOTHER_BOX,
    GAIN_OF_BOX,
    GAIN_OF_FEW_POINTS,
    GAIN_OF_OTHER_NOISE,
    GAIN_OF_OTHER_POINTS,
    GAIN_OF_POINTS,
    GAIN_OF_POINTS_ON_A_BOX,
    GAIN_OF_UNKNOWN_POINTS,
    GAIN_OF_USER,
)


def realized_information_gain(kernel_matrix: Tensor, lam: Tensor | float) -> Tensor:
    r"""Return ``1/2 ln det(I + K / lam)`` of the inputs in the posterior.

    Source: Srinivas et al. 2010, section 2 and Lemma 5.3. A repeated row counts as often as it
    occurs.

    Args:
        kernel_matrix: ``batch_shape x n x n``, float64; ``n = 0`` has gain 0.
        lam: The modeled noise variance in the kernel's units; scalar or ``batch_shape``.

    Returns:
        A ``batch_shape`` float64 tensor, in nats.

    Raises:
        TypeError: If ``kernel_matrix`` is not float64.
        ValueError: If ``lam`` is not positive.
        ModelFittingError: If the matrix is not positive semi-definite.

    Example:
        >>> K = torch.ones(2, 2, dtype=torch.float64)
        >>> torch.isclose(realized_information_gain(K, 0.5), torch.tensor(5.0).double().log() / 2)
        tensor(True)
    """
    check_double("kernel_matrix", kernel_matrix)
    lam = torch.as_tensor(lam, dtype=kernel_matrix.dtype, device=kernel_matrix.device)
    if not (lam > 0).all():
        raise ValueError(f"lam is {lam.tolist()}; it is a noise variance and must be positive.")
    scaled = kernel_matrix / lam[..., None, None]
    scaled = scaled + torch.eye(scaled.shape[-1], dtype=scaled.dtype, device=scaled.device)
    if scaled.shape[-1] == 0:
        return scaled.new_zeros(scaled.shape[:-2])
    try:
        factor = psd_safe_cholesky(scaled)
    except NotPSDError as error:
        raise ModelFittingError(
            "I + K / lam of the observed inputs is not positive definite, so the information "
            f"gain does not exist. The kernel is not positive semi-definite, or lam = "
            f"{lam.tolist()} is too small for float64."
        ) from error
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1).clamp_min(0.0)


GREEDY_FACTOR = 1.0 / (1.0 - math.exp(-1.0))
"""By submodularity, a greedy set has at least 1 - 1/e of the largest gain."""


@dataclass(frozen=True, eq=False)
class GainDomain:
    """The domain for which a bound on the gain was made.

    Attributes:
        num_points: The number of points; None for a box.
        lam: The noise variance over the prior variance; None if the prior variances of the points
            differ, so that it cannot be compared with that of a model.
        points: ``num_points x d``, the points themselves; None if they were not given.
        bounds: ``2 x d``, the box; None for points.
    """

    num_points: int | None
    lam: float | None = None
    points: Tensor | None = None
    bounds: Tensor | None = None

    @cached_property
    def _rows(self) -> frozenset[tuple[float, ...]]:
        return frozenset() if self.points is None else frozenset(map(tuple, self.points.tolist()))

    def has(self, points: Tensor) -> bool:
        """Return whether all of the given points are among the points of the domain or in its box.

        Args:
            points: ``n x d``.
        """
        if self.bounds is not None:
            return points.shape[-1] == self.bounds.shape[-1] and bool(
                ((points >= self.bounds[0]) & (points <= self.bounds[1])).all()
            )
        return all(tuple(row) in self._rows for row in points.tolist())

    def gap_on(self, points: Tensor, contexts: Iterable[Tensor] | None, is_box: bool) -> str:
        """Return the template of why a bound for this domain is none on another; empty if it is.

        Args:
            points: ``n x d``, the arms or the two ends of the box.
            contexts: See :meth:`GainBound.gaps_on`.
            is_box: Whether the other domain is a box.
        """
        joined = [points]
        if contexts is not None:
            joined = [torch.cat([each.expand(len(points), -1), points], -1) for each in contexts]
        if self.num_points is None:
            return "" if all(map(self.has, joined)) else GAIN_OF_ANOTHER_BOX
        if is_box:
            return GAIN_OF_POINTS_ON_A_BOX
        if self.points is None and contexts is not None:
            return GAIN_OF_UNKNOWN_POINTS
        if self.points is None:
            return GAIN_OF_FEW_POINTS if self.num_points < len(points) else ""
        is_among = all(map(self.has, joined))
        return "" if is_among else GAIN_OF_OTHER_POINTS[contexts is not None]


class GainBound(ABC):
    """A bound on the maximal information gain as a function of the number of observations.

    The bounds of this package are computed from the kernel matrix of finitely many points and hold
    for these points only. A bound of your own is assumed to be valid for the domain on which it is
    used.
    """

    is_upper_bound: bool = True

    domain: GainDomain | None = None
    """The domain for which the bound was made; None if it was not made for a domain."""

    def recorded_parts(self) -> dict[str, Any]:
        """Return some values, by which a storage compares the bound with another one."""
        return {"values": [self(number) for number in (1, 30, 1000)]}

    @property
    def assumption(self) -> str:
        """The assumption that a user of the bound makes, in words."""
        if self.domain is None:
            return GAIN_OF_USER
        if self.domain.bounds is not None:
            return GAIN_OF_BOX
        return ALONE.say(GAIN_OF_POINTS, num_points=self.domain.num_points)

    def gaps_on(
        self,
        choices: Tensor | None,
        contexts: Iterable[Tensor] | None = None,
        bounds: Tensor | None = None,
    ) -> list[str]:
        """Return the reasons why it is not a bound on some domain.

        Args:
            choices: ``num_arms x d`` arms; None for a box.
            contexts: The contexts of the rounds so far, which come before the arms in the model's
                inputs; None without contexts.
            bounds: ``2 x d``, the bounds of the box; None for arms.
        """
        if self.domain is None:
            return []
        points = choices if bounds is None else bounds
        assert points is not None
        gap = self.domain.gap_on(points, contexts, is_box=choices is None)
        words = {"num_points": self.domain.num_points, "num_arms": len(points)}
        return [ALONE.say(gap, **words)] if gap else []

    def gaps_with(self, lam: float | None) -> list[str]:
        """Return the reasons why it is not a bound for a model.

        Args:
            lam: The model's noise variance over its prior variance; None if it cannot be read.
        """
        if not self.is_upper_bound:
            return [GAIN_IS_RATE]
        made_for = None if self.domain is None else self.domain.lam
        if made_for is None or lam is None or made_for <= lam * (1.0 + 1e-6):
            return []
        return [ALONE.say(GAIN_OF_OTHER_NOISE, made_for=made_for, lam=lam)]

    def __call__(self, num_observations: int) -> float:
        """Return the bound in nats; 0 for no observations.

        Args:
            num_observations: How many points are observed, at least 0.
        """
        num_observations = check_integer("num_observations", num_observations, minimum=0)
        return 0.0 if num_observations == 0 else self._bound(num_observations)

    @abstractmethod
    def _bound(self, num_observations: int) -> float: ...


class GainBoundOfPoints(GainBound):
    """A bound from the kernel matrix of finitely many points.

    Args:
        kernel_matrix: ``num_arms x num_arms`` prior covariance of the arms.
        lam: The regularization (noise variance), in the same units.
        points: ``num_arms x d``, the points whose matrix it is. A loop then checks that its arms
            are among them.

    Raises:
        TypeError: If a tensor is not float64.
        ValueError: If the matrix is not symmetric, ``lam`` is not positive, or the number of points
            differs from the number of rows.
    """

    def __init__(self, kernel_matrix: Tensor, lam: float, points: Tensor | None = None) -> None:
        """See the class."""
        self._covariance = check_kernel_matrix(kernel_matrix).clone()
        self._lam = check_positive("lam", lam)
        variances = self._covariance.diagonal()
        largest = float(variances.max())
        if points is not None:
            check_finite("points", check_double("points", points))
            if points.dim() != 2 or len(points) != len(kernel_matrix):
                raise ValueError(
                    f"points has shape {tuple(points.shape)}, but kernel_matrix has "
                    f"{len(kernel_matrix)} rows; pass the {len(kernel_matrix)} x d points whose "
                    "matrix it is."
                )
            points = points.detach().clone()
        is_constant = largest > 0.0 and float(variances.min()) > largest * (1.0 - 1e-9)
        ratio = self._lam / largest if is_constant else None
        self.domain = GainDomain(len(kernel_matrix), ratio, points)

    @classmethod
    def on(cls, choices: Tensor, kernel: Kernel, lam: float) -> Self:
        """Return the bound for some points, with the kernel matrix computed from the kernel.

        Args:
            choices: ``num_arms x d`` points, float64.
            kernel: The model's, with its scale if it has one.
            lam: The noise variance of the model, in the kernel's units.

        Example:
            >>> from gpytorch.kernels import RBFKernel
            >>> choices = torch.linspace(0.0, 1.0, 20, dtype=torch.float64).unsqueeze(-1)
            >>> bound = WaterFillingGain.on(choices, RBFKernel().double(), lam=0.1)
            >>> bound.domain.num_points, bound.domain.lam
            (20, 0.1)
        """
        check_finite("choices", check_double("choices", choices))
        with torch.no_grad():
            matrix = kernel(choices).to_dense()
        return cls(0.5 * (matrix + matrix.mT), lam, choices)


class GreedyGain(GainBoundOfPoints):
    r"""Upper bound from greedy selection: ``I(greedy) / (1 - 1/e)``.

    The greedy rule observes the arm with the largest posterior variance; no outcomes are needed.
    ``I(greedy) <= gamma_T <= I(greedy) / (1 - 1/e)``: the greedy gain itself is a LOWER bound.

    Source: Srinivas et al. 2010, sections 2 and 5.1 (after Nemhauser, Wolsey and Fisher 1978).

    Args:
        kernel_matrix: ``num_arms x num_arms`` prior covariance of the arms.
        lam: The regularization (noise variance), in the same units.
        points: See :class:`GainBoundOfPoints`.

    Example:
        >>> bound = GreedyGain(torch.eye(3, dtype=torch.float64), lam=1.0)
        >>> round(bound.greedy_gain(3), 6) == round(1.5 * math.log(2.0), 6)
        True
    """

    def __init__(self, kernel_matrix: Tensor, lam: float, points: Tensor | None = None) -> None:
        """See the class."""
        super().__init__(kernel_matrix, lam, points)
        self._gains = [0.0]

    def greedy_gain(self, num_observations: int) -> float:
        """Return the gain of the greedy set, a lower bound on the maximal gain.

        Args:
            num_observations: The size of the set, with repeats counted.
        """
        while len(self._gains) <= num_observations:
            variance = self._covariance.diagonal()
            arm = int(variance.argmax())
            largest = float(variance[arm].clamp_min(0.0))
            self._gains.append(self._gains[-1] + 0.5 * math.log1p(largest / self._lam))
            column = self._covariance[:, arm].clone()
            self._covariance -= torch.outer(column, column) / (largest + self._lam)
        return self._gains[num_observations]

    def _bound(self, num_observations: int) -> float:
        return GREEDY_FACTOR * self.greedy_gain(num_observations)


class WaterFillingGain(GainBoundOfPoints):
    r"""Upper bound from the spectrum that spreads observations over eigenvalues by water-filling.

    .. math:: \max_{\sum m_i = T,\; m_i \ge 0} \tfrac12 \sum_i \ln(1 + m_i l_i / \lambda)

    over real ``m_i``, with ``l_i`` the eigenvalues of the arms' kernel matrix. The gain of any
    multiset is the gain of a diagonal matrix of counts, whose trace is ``T``. The determinant is
    largest if that matrix commutes with ``K``, so no factor ``1 / (1 - 1/e)`` is needed. This is
    the tightest of the simple bounds on arms.

    Args:
        kernel_matrix: ``num_arms x num_arms`` prior covariance of the arms.
        lam: The regularization (noise variance), in the same units.
        points: See :class:`GainBoundOfPoints`.
    """

    def __init__(self, kernel_matrix: Tensor, lam: float, points: Tensor | None = None) -> None:
        """See the class."""
        super().__init__(kernel_matrix, lam, points)
        ratios = (torch.linalg.eigvalsh(self._covariance) / self._lam).flip(0)
        self._ratios = ratios[ratios > 1e-14 * ratios[0].clamp_min(1.0)]

    def _bound(self, num_observations: int) -> float:
        if len(self._ratios) == 0:
            return 0.0  # all eigenvalues are 0, so nothing can be learned
        # m_i = (level - 1 / ratio_i)^+ is positive for the k largest ratios
        inverse = 1.0 / self._ratios
        k = torch.arange(1, len(inverse) + 1, dtype=inverse.dtype)
        levels = (num_observations + inverse.cumsum(0)) / k
        num_under_water = int((levels > inverse).sum())
        level = levels[num_under_water - 1]
        return 0.5 * float((level * self._ratios[:num_under_water]).log().sum())


def check_kernel_matrix(kernel_matrix: Tensor) -> Tensor:
    """Return a kernel matrix that a user gave, detached, if it is valid.

    Args:
        kernel_matrix: ``n x n``.

    Raises:
        TypeError: If it is not float64.
        ValueError: If it is not finite, square and symmetric.
    """
    check_finite("kernel_matrix", check_double("kernel_matrix", kernel_matrix))
    if kernel_matrix.dim() != 2 or kernel_matrix.shape[0] != kernel_matrix.shape[1]:
        raise ValueError(
            f"kernel_matrix has shape {tuple(kernel_matrix.shape)}; it must be num_arms x num_arms."
        )
    if not torch.allclose(kernel_matrix, kernel_matrix.T, rtol=1e-8, atol=1e-10):
        raise ValueError("kernel_matrix is not symmetric; pass (K + K.T) / 2 if that is rounding.")
    return kernel_matrix.detach()


# --- designs: bounds from tangents, on points and on boxes ----------------------------------------


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
        if not is_stationary(kernel, bounds.shape[-1]):
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
    lengths, center = (bounds[1] - bounds[0]).tolist(), bounds.mean(0)
    sizes = [2] * len(lengths)

    def error(axis: int) -> float:
        spacing = lengths[axis] / (sizes[axis] - 1)
        return _interpolation_error(kernel, center, axis, spacing, 16)

    with torch.no_grad():
        errors = [error(axis) for axis in range(len(lengths))]
        while True:
            worst = errors.index(max(errors))
            larger = [*sizes]
            larger[worst] = max(sizes[worst] + 1, math.ceil(1.05 * sizes[worst]))
            if errors[worst] <= 0.0 or math.prod(larger) > max_points:
                return sizes
            sizes = larger
            errors[worst] = error(worst)


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
    with_ends = kernel(points, ends).to_dense().detach()
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


def is_stationary(kernel: Kernel, num_columns: int) -> bool:
    """Return whether a kernel depends on the difference of two points alone.

    GPyTorch's attribute of this name says only whether a kernel has a lengthscale, which some
    kernels have that depend on the points themselves. Its values at a few points are compared with
    those at the same points moved, once for each combination of classes.

    Args:
        kernel: The kernel.
        num_columns: The number of columns of its points.
    """
    if not kernel.is_stationary:
        return False
    classes = tuple(type(part) for part in kernel.modules() if isinstance(part, Kernel))
    if classes not in _STATIONARY:
        like = next(kernel.parameters(), torch.empty(0, dtype=DTYPE))
        X = torch.linspace(0.2, 0.7, 3).to(like).unsqueeze(-1).expand(3, num_columns)
        with torch.no_grad():
            here, there = (kernel(points).to_dense() for points in (X, X + 0.15))
            variances = here.diagonal(dim1=-2, dim2=-1)
        _STATIONARY[classes] = torch.allclose(here, there) and torch.allclose(
            variances, variances[..., :1].expand_as(variances)
        )
    return _STATIONARY[classes]


_STATIONARY: dict[tuple[type, ...], bool] = {}

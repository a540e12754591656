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
    check_double,
    check_finite,
    check_integer,
    check_positive,
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
            return "the gain bound is for this domain, this kernel and this noise variance"
        if self.domain.bounds is not None:
            return (
                "the gain bound is for this kernel, this noise variance and a box that contains "
                "all points that are played"
            )
        number = self.domain.num_points
        return (
            f"the gain bound is for {number} points, this kernel and this noise variance; the "
            "points that are played are among them"
        )

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
        domain = self.domain
        if domain is None:
            return []
        if domain.bounds is not None:
            corners = choices if bounds is None else bounds
            if corners is None:
                return []
            inputs = [corners]
            if contexts is not None:
                inputs = [torch.cat([c.expand(len(corners), -1), corners], -1) for c in contexts]
            if all(domain.has(each) for each in inputs):
                return []
            return [
                "the gain bound is for another box, which does not contain all points of the "
                "domain; build it for the domain's, such as BoxGain(domain.bounds, kernel, lam)"
            ]
        assert domain.num_points is not None
        made = f"the gain bound is for {domain.num_points} points"
        remedy = "build it for them, such as WaterFillingGain.on(choices, kernel, lam)"
        if choices is None:
            return [
                f"{made}, which says nothing about a box; leave information_gain= out, or use "
                "BoxGain(domain.bounds, kernel, lam)"
            ]
        if contexts is not None:
            if domain.points is None:
                return [f"{made} that were not given (points=), and there are contexts"]
            joined = (torch.cat([c.expand(len(choices), -1), choices], -1) for c in contexts)
            if not all(domain.has(inputs) for inputs in joined):
                return [f"{made}, but not all arms with the contexts so far are among them"]
            return []
        if domain.points is not None and not domain.has(choices):
            return [f"{made}, but not all arms are among them; {remedy}"]
        if domain.num_points < len(choices):
            return [f"{made}, but there are {len(choices)} arms; {remedy}"]
        return []

    def gaps_with(self, lam: float | None) -> list[str]:
        """Return the reasons why it is not a bound for a model.

        Args:
            lam: The model's noise variance over its prior variance; None if it cannot be read.
        """
        if not self.is_upper_bound:
            return ["the information gain is a growth rate, not a bound"]
        made_for = None if self.domain is None else self.domain.lam
        if made_for is None or lam is None or made_for <= lam * (1.0 + 1e-6):
            return []
        return [
            f"the gain bound was made with lam = {made_for:.4g}, and the model's is {lam:.4g}, for "
            "which the gain is larger"
        ]

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
        variances = check_kernel_matrix(kernel_matrix).diagonal()
        lam, largest = check_positive("lam", lam), float(variances.max())
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
        ratio = lam / largest if is_constant else None
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
        self._covariance = check_kernel_matrix(kernel_matrix).clone()
        self._lam = check_positive("lam", lam)
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
        eigenvalues = torch.linalg.eigvalsh(check_kernel_matrix(kernel_matrix))
        ratios = (eigenvalues / check_positive("lam", lam)).flip(0)
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

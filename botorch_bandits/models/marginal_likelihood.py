r"""The log marginal likelihood of a Gaussian process and its gradient, in closed form.

With :math:`K_y = K + \lambda I`, :math:`\alpha = K_y^{-1} y` and
:math:`M = \alpha \alpha^\top - K_y^{-1}`,

.. math::
   L = -\tfrac12 y^\top \alpha - \tfrac12 \ln |K_y| - \tfrac n2 \ln 2\pi, \qquad
   \frac{\partial L}{\partial \theta}
   = \tfrac12 \operatorname{tr}\Bigl(M \frac{\partial K_y}{\partial \theta}\Bigr).

Let row i be the mean of :math:`n_i` observations at one input. The observations within a row only
say how far they lie from their mean, so the likelihood of all :math:`N = \sum_i n_i` of them is
that of the means, with noise :math:`\lambda / n_i`, plus

.. math::
   \sum_i \Bigl[-\tfrac{n_i - 1}2 \ln 2 \pi \lambda - \tfrac12 \ln n_i\Bigr]
   - \frac1{2 \lambda} \sum_i \sum_k (y_{ik} - \bar y_i)^2 .

Source: Rasmussen and Williams 2006, equations 5.8 and 5.9.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from linear_operator import settings
from linear_operator.utils.errors import NanError, NotPSDError
from linear_operator.utils.warnings import NumericalWarning
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.checks import check_nonnegative, check_vector
from botorch_bandits.models.stationary_kernel import SMALLEST_DISTANCE

LOG_TWO_PI = math.log(2.0 * math.pi)


@dataclass(frozen=True, eq=False)
class Evidence:
    """A log marginal likelihood and its slopes in the hyperparameters.

    Attributes:
        value: The log marginal likelihood of all observations, in nats.
        lengthscale: Slopes in the lengthscales, one for each of them.
        outputscale: Slope in the output scale.
        noise: Slope in the noise variance.
    """

    value: float
    lengthscale: NDArray[np.float64]
    outputscale: float
    noise: float


class MarginalLikelihood:
    """The log marginal likelihood of one data set as a function of the hyperparameters.

    It keeps three ``n x n`` buffers (four if there is one lengthscale for all dimensions).

    Args:
        X: ``n x d`` inputs, float64, ``n`` at least 1.
        y: ``n`` outcomes; means of the observations at each input if ``repeats`` is given.
        smoothness: ``nu`` of a Matern kernel (0.5, 1.5, 2.5), infinity for squared exponential.
        num_lengthscales: One for all dimensions, or ``d``.
        repeats: ``n`` positive whole numbers: how many observations each row is the mean of.
        within_sum_of_squares: Squared deviations of the observations from the mean of their
            row, summed over all rows; in squared outcome units.

    Raises:
        TypeError: If a tensor is of the wrong type.
        ValueError: If ``repeats`` are not ``n`` positive whole numbers, or
            ``within_sum_of_squares`` is negative or given without ``repeats``.

    Example:
        >>> X = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> likelihood = MarginalLikelihood(X, X.squeeze(-1), math.inf, num_lengthscales=1)
        >>> evidence = likelihood(np.ones(1), outputscale=1.0, noise=0.1)
        >>> round(evidence.value, 6)
        -2.405074
    """

    def __init__(
        self,
        X: Tensor,
        y: Tensor,
        smoothness: float,
        num_lengthscales: int,
        repeats: Tensor | None = None,
        within_sum_of_squares: float = 0.0,
    ) -> None:
        """See the class."""
        num_rows = X.shape[0]
        # the gradient takes differences of squared coordinates, which a large offset would spoil
        self._X = X - X.mean(0)
        self._y = y.unsqueeze(-1)
        self._smoothness = smoothness
        self._repeats = None if repeats is None else _check_repeats(repeats, num_rows).to(X)
        self._within_sum_of_squares = check_nonnegative(
            "within_sum_of_squares", within_sum_of_squares
        )
        if repeats is None and within_sum_of_squares > 0.0:
            raise ValueError(
                f"within_sum_of_squares is {within_sum_of_squares}, but repeats is None: rows that "
                "are single observations have none. Pass repeats too."
            )
        self._num_within = 0.0
        self._constant = 0.0
        if self._repeats is not None:
            self._num_within = self._repeats.sum().item() - num_rows
            self._constant = -0.5 * self._repeats.log().sum().item()
        self.num_observations = num_rows + round(self._num_within)
        self._constant -= 0.5 * self.num_observations * LOG_TWO_PI
        # fresh memory for large matrices costs more than the arithmetic
        self._work, self._slope, self._covariance = X.new_empty(3, num_rows, num_rows)
        self._info = torch.zeros((), dtype=torch.int32, device=X.device)
        self._squared: Tensor | None = None
        if num_lengthscales == 1:
            self._squared = _distance(self._X).square_()
            return
        # all weighted squared distances are one matrix product of rows (x, |x|^2, 1)
        dim = X.shape[1]
        self._X_squared = self._X.square()
        self._X_one = torch.cat([self._X, X.new_ones(num_rows, 1)], dim=-1)
        self._X_both = torch.cat([self._X_squared, self._X], dim=-1)
        self._rows = torch.cat([self._X, X.new_ones(num_rows, 2)], dim=-1)
        self._weighted_rows = torch.empty_like(self._rows)
        self._form = X.new_zeros(dim + 2, dim + 2)
        self._form[dim, dim + 1] = self._form[dim + 1, dim] = 1.0
        self._norms, self._form_weights = self._rows[:, dim], self._form.diagonal()[:dim]

    def __call__(
        self, lengthscale: NDArray[np.float64], outputscale: float, noise: float
    ) -> Evidence:
        """Return the log marginal likelihood and its slopes.

        Args:
            lengthscale: As many as ``num_lengthscales`` said.
            outputscale: The prior variance.
            noise: The noise variance of one observation.

        Raises:
            NotPSDError: If the covariance has no Cholesky factor, with GPyTorch's jitter neither.
            NanError: If it has entries that are not numbers.
        """
        slope_factor = self._evaluate_kernel(lengthscale, outputscale)
        covariance, diagonal = self._covariance, self._covariance.diagonal()
        diagonal.add_(noise if self._repeats is None else noise / self._repeats)
        factor = self._work.mT  # LAPACK stores columns
        jitter = _factorise(covariance, factor, self._info)
        half = torch.linalg.solve_triangular(factor, self._y, upper=False)
        alpha = torch.linalg.solve_triangular(factor.mT, half, upper=True)
        fit = half.square().sum().item()
        value = self._constant - 0.5 * fit - factor.diagonal().log().sum().item()

        # M takes the memory of the covariance, which is not needed any more
        weight = torch.cholesky_inverse(factor, out=covariance.mT).mT
        weight.addmm_(alpha, alpha.mT, beta=-1.0)
        trace = noise_trace = diagonal.sum().item()
        within_slope = 0.0
        if self._repeats is not None:
            noise_trace = (diagonal / self._repeats).sum().item()
            within = self._within_sum_of_squares / noise
            value -= 0.5 * (self._num_within * math.log(noise) + within)
            within_slope = (within - self._num_within) / noise
        # tr(M K_y) = y' alpha - n, and K is K_y less the noise and the jitter
        kernel_trace = fit - len(self._y) - noise * noise_trace - jitter * trace
        distances = self._weighted_distances(weight.mul_(self._slope))
        return Evidence(
            value,
            0.5 * slope_factor * distances / lengthscale**3,
            0.5 * kernel_trace / outputscale if outputscale > 0.0 else 0.0,
            0.5 * (noise_trace + within_slope),
        )

    def _weighted_distances(self, weight: Tensor) -> NDArray[np.float64]:
        """Return ``sum_ij weight_ij (x_i - x_j)^2`` for each lengthscale."""
        if self._squared is not None:
            return np.array([torch.dot(weight.view(-1), self._squared.view(-1)).item()])
        # 2 sum_i x_i^2 (W 1)_i - 2 sum_i x_i (W x)_i: all of it, and more, is in one small matrix
        products = ((weight @ self._X_one).mT @ self._X_both).cpu().numpy()
        dim = self._X.shape[1]
        return 2.0 * (products[-1, :dim] - products[:dim, dim:].diagonal())

    def _evaluate_kernel(self, lengthscale: NDArray[np.float64], outputscale: float) -> float:
        """Fill the covariance and ``-h`` of ``StationaryKernel``, up to the factor returned."""
        work, slope, covariance = self._work, self._slope, self._covariance
        if self._smoothness == math.inf:
            self._squared_distance(lengthscale, -0.5)
            torch.exp(work, out=slope)
            torch.mul(slope, outputscale, out=covariance)
            return outputscale
        # work holds a = sqrt(2 nu) r, slope at first s exp(-a)
        self._squared_distance(lengthscale, 2.0 * self._smoothness)
        work.clamp_min_(0.0).sqrt_()
        shift = math.log(outputscale) if outputscale > 0.0 else -math.inf
        torch.sub(work.new_tensor(shift), work, out=slope)
        slope.exp_()
        if self._smoothness == 0.5:
            covariance.copy_(slope)
            # at a kink the slope counts as 0
            slope.div_(work.masked_fill_(work < SMALLEST_DISTANCE, math.inf))
            return 1.0
        if self._smoothness == 1.5:
            torch.addcmul(slope, slope, work, out=covariance)
            return 3.0
        torch.addcmul(work, work, work, value=1.0 / 3.0, out=covariance)
        torch.addcmul(slope, slope, covariance, out=covariance)
        slope.addcmul_(slope, work)
        return 5.0 / 3.0

    def _squared_distance(self, lengthscale: NDArray[np.float64], factor: float) -> None:
        """Write ``factor`` times the squared scaled distances to the work space."""
        precision = factor / lengthscale**2
        if self._squared is not None:
            torch.mul(self._squared, precision.item(), out=self._work)
            return
        if self._smoothness == 0.5:  # its kink shows how near points are to each other
            scaled_X = self._X / torch.from_numpy(lengthscale).to(self._X)
            torch.mul(_distance(scaled_X).square_(), factor, out=self._work)
            return
        weights = torch.from_numpy(precision).to(self._X)
        torch.mv(self._X_squared, weights, out=self._norms)
        torch.mul(weights, -2.0, out=self._form_weights)
        torch.mm(self._rows, self._form, out=self._weighted_rows)
        torch.mm(self._weighted_rows, self._rows.mT, out=self._work)


def _distance(X: Tensor) -> Tensor:
    return torch.cdist(X, X, compute_mode="donot_use_mm_for_euclid_dist")


def _factorise(covariance: Tensor, factor: Tensor, info: Tensor) -> float:
    """Write the Cholesky factor and return the jitter that it took, as GPyTorch adds it.

    The jitter stays on the diagonal of ``covariance``.
    """
    torch.linalg.cholesky_ex(covariance, out=(factor, info))
    if not info.item():
        return 0.0
    if not bool(torch.isfinite(covariance).all()):
        raise NanError("the covariance of the rows has entries that are not finite")
    jitter = 0.0
    for exponent in range(settings.cholesky_max_tries.value()):
        increased = settings.cholesky_jitter.value(covariance.dtype) * 10.0**exponent
        covariance.diagonal().add_(increased - jitter)
        jitter = increased
        warnings.warn(
            f"A not p.d., added jitter of {jitter:.1e} to the diagonal",
            NumericalWarning,
            stacklevel=2,
        )
        torch.linalg.cholesky_ex(covariance, out=(factor, info))
        if not info.item():
            return jitter
    raise NotPSDError(
        f"the covariance of the rows is not positive definite, even with {jitter:.1e} added to "
        "its diagonal"
    )


def _check_repeats(repeats: Tensor, num_rows: int) -> Tensor:
    repeats = check_vector("repeats", repeats, length=num_rows)
    for index, count in enumerate(repeats.tolist()):
        if count < 1.0 or count != round(count):
            raise ValueError(
                f"repeats[{index}] is {count}; it counts the observations that the row is the mean "
                "of, so it must be a positive whole number."
            )
    return repeats

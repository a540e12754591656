r"""The log marginal likelihood of a Gaussian process in closed form, and fits by it.

BoTorch's ordinary fit differentiates through a Cholesky factorization in every evaluation. Here the
gradient is written down once, with the same objective, parameters, bounds, optimizer and starting
point. Autograd through a plain kernel function was tried: it takes two to four times as long.

With :math:`K_y = K + \lambda I`, a prior mean :math:`\mu` and :math:`\alpha = K_y^{-1} (y - \mu)`,

.. math::
   L = -\tfrac12 (y - \mu)^\top \alpha - \tfrac12 \ln |K_y| - \tfrac n2 \ln 2\pi, \qquad
   \frac{\partial L}{\partial K_y} = W = \tfrac12 (\alpha \alpha^\top - K_y^{-1}).

The slope in a hyperparameter is the sum of :math:`W_{ij} \, \partial K_{ij}`. With the
:math:`h` of :mod:`botorch_bandits.core.kernels` and scaled points :math:`v = x / \ell`,

.. math::
   \frac{\partial L}{\partial \ln \ell_k} = - \sum_{ij} W_{ij} h_{ij} (v_{ik} - v_{jk})^2
   = - 2 \sum_i v_{ik} \bigl( v_{ik} (H 1)_i - (H v)_{ik} \bigr), \qquad H = W \circ h .

Let row i be the mean of :math:`n_i` observations at one input. The observations within a row only
tell how far they lie from their mean, so the likelihood of all :math:`N = \sum_i n_i` observations
is that of the means, with noise :math:`\lambda / n_i`, plus

.. math::
   \sum_i \Bigl[-\tfrac{n_i - 1}2 \ln 2 \pi \lambda - \tfrac12 \ln n_i\Bigr]
   - \frac1{2 \lambda} \sum_i \sum_k (y_{ik} - \bar y_i)^2 .

Source: Rasmussen and Williams 2006, equations 5.8 and 5.9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from botorch.optim.utils import get_parameters_and_bounds
from botorch.optim.utils.numpy_utils import get_bounds_as_ndarray
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.errors import NanError, NotPSDError
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from botorch_bandits.core.kernels import StationaryKernel

LOG_TWO_PI = math.log(2.0 * math.pi)

Array = NDArray[np.float64]


class MarginalLikelihood:
    """The log marginal likelihood of one data set as a function of the hyperparameters.

    It keeps four ``n x n`` buffers.

    Args:
        X: ``n x d`` inputs, float64, ``n`` at least 1.
        y: ``n`` outcomes; means of the observations at each input if ``repeats`` is given.
        smoothness: ``nu`` of a Matern kernel (0.5, 1.5, 2.5), infinity for squared exponential.
        repeats: ``n`` positive whole numbers: the number of observations of which each row is the
            mean.
        within_sum_of_squares: Squared deviations of the observations from the mean of their row,
            summed over all rows, in squared outcome units. If None, they are unknown: the
            likelihood is then that of the means alone, each with the noise variance ``noise /
            repeats``, and ``repeats`` may be fractions.

    Example:
        >>> X = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> likelihood = MarginalLikelihood(X, X.squeeze(-1), math.inf)
        >>> value, slopes = likelihood(np.ones(1), outputscale=1.0, noise=0.1)
        >>> round(value, 6)
        -2.405074
    """

    def __init__(
        self,
        X: Tensor,
        y: Tensor,
        smoothness: float,
        repeats: Tensor | None = None,
        within_sum_of_squares: float | None = 0.0,
    ) -> None:
        """See the class."""
        n, dim = X.shape
        self._X = X - X.mean(0)  # squared distances lose digits if offsets are large
        self._y = y.unsqueeze(-1)
        self._smoothness = smoothness
        self._within = within_sum_of_squares or 0.0
        self._share = y.new_ones(n)  # of the noise variance
        # the observations besides the means tell of the noise only
        self._num_within, constant = 0, 0.0
        if repeats is not None:
            self._share = 1.0 / repeats.to(X)
            if within_sum_of_squares is not None:
                self._num_within = round(float(repeats.sum())) - n
                constant = -0.5 * float(repeats.log().sum())
        self.num_observations = n + self._num_within
        self._constant = constant - 0.5 * self.num_observations * LOG_TWO_PI
        # new memory for large matrices costs more than the arithmetic
        self._work, self._slope, self._covariance, self._inverse = X.new_empty(4, n, n)
        # r^2 = |v|^2 + |w|^2 - 2 v.w is (v, |v|^2, 1) F (w, |w|^2, 1)'
        self._rows = X.new_ones(n, dim + 2)
        self._v, self._norms = self._rows[:, :dim], self._rows[:, dim]
        self._form = torch.diag(X.new_tensor([-2.0] * dim + [0.0, 0.0]))
        self._form[dim, dim + 1] = self._form[dim + 1, dim] = 1.0

    def __call__(
        self, lengthscale: Array, outputscale: float, noise: float, prior_mean: float = 0.0
    ) -> tuple[float, Array]:
        """Return the log marginal likelihood and its slopes.

        Args:
            lengthscale: ``d`` lengthscales, or one for all dimensions.
            outputscale: The prior variance.
            noise: The noise variance of one observation.
            prior_mean: The constant prior mean.

        Returns:
            The value in nats, and the slopes in all lengthscales, output scale, noise and mean.

        Raises:
            NotPSDError: If the covariance has no Cholesky factor, even with GPyTorch's jitter.
            NanError: If it has entries that are not numbers.
        """
        dim = self._X.shape[1]
        torch.mul(self._X, torch.from_numpy(1.0 / lengthscale).to(self._X), out=self._v)
        if self._smoothness == 0.5:  # the kink reveals how near points are to each other
            exact = "donot_use_mm_for_euclid_dist"
            squared = torch.cdist(self._v, self._v, compute_mode=exact).square_()
        else:
            torch.linalg.vecdot(self._v, self._v, out=self._norms)
            squared = torch.mm(self._rows @ self._form, self._rows.mT, out=self._work)
        kernel = StationaryKernel(self._smoothness, self._y, self._y.new_tensor(outputscale))
        kernel.of_squared_distance(squared.clamp_min_(0.0), True, (self._covariance, self._slope))
        self._covariance.diagonal().add_(self._share, alpha=noise)
        # LAPACK stores columns, so it writes transposed matrices in place
        L = psd_safe_cholesky(self._covariance, out=self._work.mT)
        half = torch.linalg.solve_triangular(L, self._y - prior_mean, upper=False)  # n x 1
        alpha = torch.linalg.solve_triangular(L.mT, half, upper=True)
        fit, log_pivots = half.square().sum(), L.diagonal().log().sum()
        W = torch.cholesky_inverse(L, out=self._inverse.mT).mT
        W.addmm_(alpha, alpha.mT, beta=-0.5, alpha=0.5)
        noise_trace = torch.dot(W.diagonal(), self._share)
        trace = torch.dot(W.view(-1), self._covariance.view(-1))
        H = W.mul_(self._slope) @ self._rows  # n x (d + 2); what is on the diagonal cancels
        of_log = torch.addcmul(H[:, :dim], self._v, H[:, -1:], value=-1.0)  # n x d
        of_log = torch.linalg.vecdot(self._v, of_log, dim=0)
        scalars = torch.stack([fit, log_pivots, trace, noise_trace, alpha.sum()])
        found = torch.cat([scalars, of_log]).cpu().numpy()
        squares, log_root, of_scale, of_noise, of_mean = found[:5].tolist()
        value = self._constant - 0.5 * squares - log_root
        slopes = found[5:] if len(lengthscale) > 1 else found[5:].sum(keepdims=True)
        # less the noise, the sum of W K_y is that of W K; K is proportional to the output scale
        of_scale = (of_scale - noise * of_noise) / outputscale if outputscale > 0.0 else 0.0
        if self._num_within:
            within = self._within / noise
            value -= 0.5 * (self._num_within * math.log(noise) + within)
            of_noise += 0.5 * (within - self._num_within) / noise
        return value, np.array([*(2.0 * slopes / lengthscale), of_scale, of_noise, of_mean])


class Parameter(NamedTuple):
    """A raw parameter of a model, and what it stands for.

    Attributes:
        raw: The parameter.
        lower: The value is the raw value, or its softplus, plus this.
        is_soft: Whether it is the softplus.
        log_normal: Mean and standard deviation of the logarithm of the value under its prior; an
            infinite deviation if it has none.
    """

    raw: Tensor
    lower: float = 0.0
    is_soft: bool = False
    log_normal: tuple[float, float] = (0.0, math.inf)


class MarginalLikelihoodObjective:
    """The objective that ``fit_gpytorch_mll`` minimizes, and its gradient.

    Its arguments are raw parameters. Those that have a positive lower bound, as BoTorch's default
    lengthscales and noise have, are moved as logarithms, which takes a quarter of the evaluations,
    because lengthscales are a matter of ratios.

    The value is that of ``ExactMarginalLogLikelihood``, negated: the log densities of the priors
    are added, and the sum is divided by the number of observations. It is that of all observations
    if the model states what its rows are the means of, as ours do.

    Args:
        mll: An ``ExactMarginalLogLikelihood`` in training mode, of a stationary kernel.
        parameters: Lengthscales, output scale, noise and mean of its model.
        smoothness: Of its kernel; see :class:`MarginalLikelihood`.

    Attributes:
        is_log: Which of the ``p`` arguments are logarithms.
        start: The arguments at the time of construction.
        bounds: Their lower and upper bounds, ``2 x p``, as BoTorch sets them.
    """

    def __init__(
        self, mll: ExactMarginalLogLikelihood, parameters: Sequence[Parameter], smoothness: float
    ) -> None:
        """See the class."""
        model = mll.model
        everything = [each.raw for each in parameters]
        sizes = [raw.numel() for raw in everything]
        # one entry for each number in all parameters
        self._raw = parameters_to_vector([raw.detach().cpu() for raw in everything]).numpy()
        self._free = np.repeat([raw.requires_grad for raw in everything], sizes)
        self._is_soft = np.repeat([each.is_soft for each in parameters], sizes)
        self._lower = np.repeat([each.lower for each in parameters], sizes)
        self._log_normal = np.repeat([each.log_normal for each in parameters], sizes, axis=0).T
        names = {id(parameter): name for name, parameter in mll.named_parameters()}
        self._moving = [raw for raw in everything if raw.requires_grad]
        moving = {names[id(raw)]: raw for raw in self._moving}
        bounds = get_bounds_as_ndarray(moving, get_parameters_and_bounds(mll)[1])
        start = self._raw[self._free]
        unbounded = np.broadcast_to([-math.inf, math.inf], (len(start), 2))
        self._raw_bounds: Array = (unbounded if bounds is None else bounds).T
        self.is_log = self._raw_bounds[0] > 0.0
        self.start, self.bounds = (
            np.where(self.is_log, np.log(np.where(self.is_log, raw, 1.0)), raw)
            for raw in (start, self._raw_bounds)
        )
        with torch.no_grad():
            X = model.transform_inputs(model.train_inputs[0])
        repeated = model.repeats, model.within_sum_of_squares
        self._likelihood = MarginalLikelihood(X, model.train_targets, smoothness, *repeated)

    def _raw_of(self, arguments: Array) -> Array:
        return np.where(self.is_log, np.exp(np.where(self.is_log, arguments, 0.0)), arguments)

    def __call__(self, arguments: Array) -> tuple[float, Array]:
        """Return objective and gradient at some arguments.

        Raises:
            NotPSDError: If the covariance has no Cholesky factor, even with jitter.
        """
        self._raw[self._free] = raw = self._raw_of(arguments)
        center, deviation = self._log_normal
        has_prior = deviation < math.inf
        with np.errstate(all="ignore"):  # a lengthscale or a scale may underflow
            softplus = np.logaddexp(0.0, self._raw)
            values = self._lower + np.where(self._is_soft, softplus, self._raw)
            logs = np.log(np.where(has_prior, values, 1.0))
            z = (logs - center) / deviation
            # of the log-normal density, -ln(v s sqrt(2 pi)) - z^2 / 2
            each = -(logs + np.log(deviation) + 0.5 * (LOG_TWO_PI + z**2))
            try:
                value, slopes = self._likelihood(values[:-3], *values[-3:].tolist())
            except NanError:
                return math.nan, np.full_like(raw, math.nan)
            slopes -= np.where(has_prior, (1.0 + z / deviation) / values, 0.0)
            # the slope of the softplus is e^x / (1 + e^x)
            slopes *= np.where(self._is_soft, np.exp(self._raw - softplus), 1.0)
        scale = -1.0 / self._likelihood.num_observations
        slope = slopes[self._free] * np.where(self.is_log, raw, 1.0)  # d/d ln v = v d/dv
        return scale * (value + float(each[has_prior].sum())), scale * slope

    def write(self, arguments: Array) -> None:
        """Set the model's free parameters."""
        raw = np.clip(self._raw_of(arguments), *self._raw_bounds)  # it may lie an ulp outside
        vector_to_parameters(torch.tensor(raw).to(self._moving[0]), self._moving)


LARGEST_SHIFT = 30.0
"""How far a fit lets a logarithm move from its start.

If the objective is nearly flat, the optimizer would step thousands of logarithms away."""

STATIONARY = 1e-3
"""A result where a slope exceeds this is not yet taken for a minimum."""

MOST_RUNS = 5
"""Runs of the optimizer before the fit is left to BoTorch."""


def minimize_objective(objective: MarginalLikelihoodObjective) -> Array | None:
    """Return arguments where an objective has a minimum; None if none can be trusted."""

    def function(arguments: Array) -> tuple[float, Array]:
        value, slope = objective(arguments)
        if not (math.isfinite(value) and np.isfinite(slope).all()):
            raise NotPSDError("the objective is not a number")
        return value, slope

    point, shift = objective.start, np.where(objective.is_log, LARGEST_SHIFT, math.inf)
    ends = np.clip(objective.bounds, point - shift, point + shift)  # 2 x p
    for _ in range(MOST_RUNS):
        try:
            # SciPy's defaults, as BoTorch has them; BoTorch also sets BLAS threads, which takes as
            # long as a small fit
            result = minimize(function, point, method="L-BFGS-B", jac=True, bounds=ends.T)
        except NotPSDError:
            return None
        if not result.success:
            return None
        point = result.x
        uphill = np.clip(point - result.jac, *ends) - point
        if np.abs(uphill).max() <= STATIONARY:
            # a minimum at an end that is ours rather than the user's is not one
            is_ours = (point == ends) & (ends != objective.bounds)
            return None if is_ours.any() else point
    return None

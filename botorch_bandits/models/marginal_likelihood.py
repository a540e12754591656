r"""The log marginal likelihood of a Gaussian process in closed form, and fits by it.

BoTorch's ordinary fit builds an autograd graph in every evaluation. For stationary kernels the
gradient has a closed form, which is used here with the same objective, parameters, bounds,
optimizer and starting point.

With :math:`K_y = K + \lambda I`, :math:`\alpha = K_y^{-1} y` and
:math:`M = \alpha \alpha^\top - K_y^{-1}`,

.. math::
   L = -\tfrac12 y^\top \alpha - \tfrac12 \ln |K_y| - \tfrac n2 \ln 2\pi, \qquad
   \frac{\partial L}{\partial \theta}
   = \tfrac12 \operatorname{tr}\Bigl(M \frac{\partial K_y}{\partial \theta}\Bigr).

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
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import botorch.fit
import numpy as np
import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.models import SingleTaskGP
from botorch.optim.utils import get_parameters_and_bounds
from botorch.optim.utils.numpy_utils import get_bounds_as_ndarray
from botorch.optim.utils.timeout import minimize_with_timeout
from gpytorch.constraints import GreaterThan, Interval, Positive
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from gpytorch.priors import GammaPrior, LogNormalPrior
from linear_operator import settings
from linear_operator.utils.errors import NanError, NotPSDError
from linear_operator.utils.warnings import NumericalWarning
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor
from torch.nn import Parameter

from botorch_bandits.checks import check_nonnegative, check_vector
from botorch_bandits.core.kernels import SMALLEST_DISTANCE, StationaryKernel
from botorch_bandits.models.likelihoods import RepeatedGaussianLikelihood
from botorch_bandits.models.means import has_learned_constant, read_constant_mean
from botorch_bandits.optim import to_host

LOG_TWO_PI = math.log(2.0 * math.pi)


@dataclass(frozen=True, eq=False)
class Evidence:
    """A log marginal likelihood and its slopes in the hyperparameters.

    Attributes:
        value: The log marginal likelihood of all observations, in nats.
        lengthscale: Slopes in the lengthscales, one for each of them.
        outputscale: Slope in the output scale.
        noise: Slope in the noise variance.
        prior_mean: Slope in the constant prior mean.
    """

    value: float
    lengthscale: NDArray[np.float64]
    outputscale: float
    noise: float
    prior_mean: float


class MarginalLikelihood:
    """The log marginal likelihood of one data set as a function of the hyperparameters.

    It keeps three ``n x n`` buffers (four if there is one lengthscale for all dimensions).

    Args:
        X: ``n x d`` inputs, float64, ``n`` at least 1.
        y: ``n`` outcomes; means of the observations at each input if ``repeats`` is given.
        smoothness: ``nu`` of a Matern kernel (0.5, 1.5, 2.5), infinity for squared exponential.
        num_lengthscales: 1 (one for all dimensions), or ``d``.
        repeats: ``n`` positive whole numbers: the number of observations of which each row is the
            mean.
        within_sum_of_squares: Squared deviations of the observations from the mean of their row,
            summed over all rows, in squared outcome units. If None, they are unknown: the
            likelihood is then that of the means alone, each with the noise variance ``noise /
            repeats``, and ``repeats`` may be fractions.

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
        within_sum_of_squares: float | None = 0.0,
    ) -> None:
        """See the class."""
        num_rows = X.shape[0]
        knows_within, within_sum_of_squares = (
            within_sum_of_squares is not None,
            within_sum_of_squares or 0.0,
        )
        # the gradient takes differences of squared coordinates, which lose digits if offsets are
        # large
        self._X = X - X.mean(0)
        self._y = y.unsqueeze(-1)
        self._smoothness = smoothness
        self._repeats = None
        if repeats is not None:
            self._repeats = _check_repeats(repeats, num_rows, whole=knows_within).to(X)
        self._within_sum_of_squares = check_nonnegative(
            "within_sum_of_squares", within_sum_of_squares
        )
        if repeats is None and within_sum_of_squares > 0.0:
            raise ValueError(
                f"within_sum_of_squares is {within_sum_of_squares}, but repeats is None: rows that "
                "are single observations have no such deviations. Pass repeats too."
            )
        self._num_within = 0.0
        self._constant = 0.0
        if self._repeats is not None and knows_within:
            self._num_within = self._repeats.sum().item() - num_rows
            self._constant = -0.5 * self._repeats.log().sum().item()
        self.num_observations = num_rows + round(self._num_within)
        self._constant -= 0.5 * self.num_observations * LOG_TWO_PI
        # new memory for large matrices costs more than the arithmetic
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
        self,
        lengthscale: NDArray[np.float64],
        outputscale: float,
        noise: float,
        prior_mean: float = 0.0,
    ) -> Evidence:
        """Return the log marginal likelihood and its slopes.

        Args:
            lengthscale: ``num_lengthscales`` numbers.
            outputscale: The prior variance.
            noise: The noise variance of one observation.
            prior_mean: The constant prior mean.

        Raises:
            NotPSDError: If the covariance has no Cholesky factor, even with GPyTorch's jitter.
            NanError: If it has entries that are not numbers.
        """
        slope_factor = self._fill_covariance(lengthscale, outputscale, noise)
        factor, jitter = self._work.mT, 0.0  # LAPACK stores columns
        torch.linalg.cholesky_ex(self._covariance, out=(factor, self._info))
        try:
            has_failed, *sums = self._sums(prior_mean)
        except RuntimeError:  # a failed factor cannot be inverted either, or only with a warning
            has_failed = 1.0
        if has_failed:
            self._fill_covariance(lengthscale, outputscale, noise)
            jitter = _factorize(self._covariance, factor, self._info)
            _, *sums = self._sums(prior_mean)
        fit, log_pivots, trace, noise_trace, alpha_sum, distances = sums
        value = self._constant - 0.5 * fit - log_pivots
        within_slope = 0.0
        if self._repeats is not None:
            within = self._within_sum_of_squares / noise
            value -= 0.5 * (self._num_within * math.log(noise) + within)
            within_slope = (within - self._num_within) / noise
        # tr(M K_y) = y' alpha - n, and K is K_y less the noise and the jitter
        kernel_trace = fit - len(self._y) - noise * noise_trace - jitter * trace
        return Evidence(
            value,
            0.5 * slope_factor * distances / lengthscale**3,
            0.5 * kernel_trace / outputscale if outputscale > 0.0 else 0.0,
            0.5 * (noise_trace + within_slope),
            alpha_sum,
        )

    def _fill_covariance(
        self, lengthscale: NDArray[np.float64], outputscale: float, noise: float
    ) -> float:
        """Fill the covariance with noise, and ``-h`` up to the factor that is returned."""
        slope_factor = self._evaluate_kernel(lengthscale, outputscale)
        diagonal = self._covariance.diagonal()
        diagonal.add_(noise if self._repeats is None else noise / self._repeats)
        return slope_factor

    def _sums(self, prior_mean: float) -> list[Any]:
        """Return all that is needed of a factorized covariance, with a single copy to the host.

        It includes whether the factorization failed, so that the host does not wait for that
        earlier. The memory of the covariance is not needed any more and is overwritten.
        """
        covariance, factor = self._covariance, self._work.mT
        residual = self._y - prior_mean if prior_mean else self._y
        half = torch.linalg.solve_triangular(factor, residual, upper=False)
        alpha = torch.linalg.solve_triangular(factor.mT, half, upper=True)
        fit, log_pivots = half.square().sum(), factor.diagonal().log().sum()
        weight = torch.cholesky_inverse(factor, out=covariance.mT).mT
        weight.addmm_(alpha, alpha.mT, beta=-1.0)
        diagonal = covariance.diagonal()
        trace = noise_trace = diagonal.sum()
        if self._repeats is not None:
            noise_trace = (diagonal / self._repeats).sum()
        weight.mul_(self._slope)
        if self._squared is not None:
            products = torch.dot(weight.view(-1), self._squared.view(-1))
        else:
            # 2 sum_i x_i^2 (W 1)_i - 2 sum_i x_i (W x)_i: a small matrix holds all of it, and more
            products = (weight @ self._X_one).mT @ self._X_both
        scalars = (self._info.to(fit.dtype), fit, log_pivots, trace, noise_trace, alpha.sum())
        *numbers, sums = to_host(*scalars, products)
        return [*(number.item() for number in numbers), self._weighted_distances(sums)]

    def _weighted_distances(self, products: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ``sum_ij weight_ij (x_i - x_j)^2`` for each lengthscale."""
        if self._squared is not None:
            return products.reshape(1).copy()
        dim = self._X.shape[1]
        distances: NDArray[np.float64] = products[-1, :dim] - products[:dim, dim:].diagonal()
        return 2.0 * distances

    def _evaluate_kernel(self, lengthscale: NDArray[np.float64], outputscale: float) -> float:
        """Fill the covariance and ``-h`` of ``StationaryKernel``, up to the returned factor."""
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
            # the slope at a kink counts as 0
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
        if self._smoothness == 0.5:  # the kink reveals how near points are to each other
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


def _factorize(covariance: Tensor, factor: Tensor, info: Tensor) -> float:
    """Write the Cholesky factor and return the jitter that it needed, chosen as in GPyTorch.

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


def _check_repeats(repeats: Tensor, num_rows: int, whole: bool) -> Tensor:
    repeats = check_vector("repeats", repeats, length=num_rows)
    for index, count in enumerate(repeats.tolist()):
        if not whole and count <= 0.0:
            raise ValueError(f"repeats[{index}] is {count}; it must be positive.")
        if whole and (count < 1.0 or count != round(count)):
            raise ValueError(
                f"repeats[{index}] is {count}; it is the number of observations of which the row "
                "is the mean, so it must be a positive whole number."
            )
    return repeats


def has_closed_form(model: SingleTaskGP) -> bool:
    """Whether the marginal likelihood of a model, and its gradient, have a closed form here.

    Args:
        model: An exact model with a mean, a kernel and a likelihood.

    Returns:
        True for one output without a batch shape, a kernel that ``StationaryKernel`` can read, a
        constant mean and one noise variance, if no other parameter can change and at least one of
        these can.
        does.
    """
    if type(model).forward is not SingleTaskGP.forward:
        return False
    if model.train_targets.dim() != 1 or model.train_inputs[0].dim() != 2:
        return False
    likelihoods = (GaussianLikelihood, RepeatedGaussianLikelihood)
    if read_constant_mean(model.mean_module) is None or type(model.likelihood) not in likelihoods:
        return False
    if model.likelihood.noise.numel() != 1 or StationaryKernel.read(model.covar_module) is None:
        return False
    fitted = {id(entry.parameter) for entry in _read_parameters(model)}
    free = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    return bool(free) and free <= fitted


class MarginalLikelihoodObjective:
    """The objective that ``fit_gpytorch_mll`` minimizes, and its gradient, in raw parameters.

    The value is that of ``ExactMarginalLogLikelihood``, negated: the log densities of the priors
    are added, and the sum is divided by the number of observations.

    Args:
        mll: An ``ExactMarginalLogLikelihood`` in training mode, of a model for which
            :func:`has_closed_form` is true.
        repeats: ``n`` counts: the number of observations of which each row of the model is the
            mean; the model's own if omitted. The objective is then that of all observations.
        within_sum_of_squares: Squared deviations of the observations from the mean of their row,
            summed over all rows; the model's own if omitted.

    Attributes:
        start: Raw values of the free parameters at the time of construction.
        bounds: Their lower and upper bounds, ``p x 2``, as BoTorch sets them; None if there are
            none.
        num_evaluations: The number of calls of the objective.
    """

    def __init__(
        self,
        mll: ExactMarginalLogLikelihood,
        repeats: Tensor | None = None,
        within_sum_of_squares: float | None = None,
    ) -> None:
        """See the class."""
        model = mll.model
        if repeats is None:
            repeats = model.repeats
        if within_sum_of_squares is None:
            within_sum_of_squares = model.within_sum_of_squares
        self.num_evaluations = 0
        parameters = _read_parameters(model)
        self._parameters = [entry.parameter for entry in parameters]
        sizes = [parameter.numel() for parameter in self._parameters]
        self._transform = _Transform([entry.constraint for entry in parameters], sizes)
        names_of_parts = [entry.name for entry in parameters]
        offsets = [0, *np.cumsum(sizes).tolist()]
        self._places = {
            name: slice(start, end)
            for name, start, end in zip(names_of_parts, offsets[:-1], offsets[1:], strict=True)
        }
        self._known_priors, self._priors = _split_priors(model, parameters)
        self._raw = torch.cat([p.detach().reshape(-1).cpu() for p in self._parameters]).numpy()
        free = [np.full(p.numel(), p.requires_grad) for p in self._parameters]
        self._free = np.concatenate(free)
        self.start: NDArray[np.float64] = self._raw[self._free]
        names = {id(parameter): name for name, parameter in mll.named_parameters()}
        moving = {names[id(p)]: p for p in self._parameters if p.requires_grad}
        self.bounds = get_bounds_as_ndarray(moving, get_parameters_and_bounds(mll)[1])
        kernel = StationaryKernel.read(model.covar_module)
        assert kernel is not None
        prior_mean = read_constant_mean(model.mean_module)
        assert prior_mean is not None
        self._fixed_mean = 0.0 if "prior_mean" in self._places else prior_mean
        with torch.no_grad():
            X = model.transform_inputs(model.train_inputs[0])
        self._likelihood = MarginalLikelihood(
            X,
            model.train_targets - self._fixed_mean,
            kernel.smoothness,
            kernel.lengthscale.numel(),
            repeats,
            within_sum_of_squares,
        )

    def __call__(self, raw: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return objective and gradient at raw values of the free parameters.

        Raises:
            NotPSDError: If the covariance has no Cholesky factor, even with jitter.
        """
        self.num_evaluations += 1
        self._raw[self._free] = raw
        values, slopes = self._transform(self._raw)
        places = self._places
        given = {name: float(values[place.start]) for name, place in places.items()}
        try:
            with np.errstate(all="ignore"):  # a lengthscale may underflow
                evidence = self._likelihood(
                    values[places["lengthscale"]],
                    given.get("outputscale", 1.0),
                    given["noise"],
                    given.get("prior_mean", 0.0),
                )
        except NanError:
            return math.nan, np.full_like(raw, math.nan)
        gradient = np.empty_like(values)
        for name, place in places.items():
            gradient[place] = getattr(evidence, name)
        value = evidence.value
        with np.errstate(all="ignore"):  # a scale may underflow as well
            for name, log_density_of in self._known_priors:
                log_density, its_slope = log_density_of(values[places[name]])
                value += log_density
                gradient[places[name]] += its_slope
            gradient *= slopes
        if self._priors:
            self.write(raw)
            log_density, its_gradient = self._evaluate_priors()
            value += log_density
            gradient += its_gradient
        scale = -1.0 / self._likelihood.num_observations
        return scale * value, scale * gradient[self._free]

    def write(self, raw: NDArray[np.float64]) -> None:
        """Set the model's free parameters to raw values."""
        self._raw[self._free] = raw
        offset = 0
        with torch.no_grad():
            for parameter in self._parameters:
                size = parameter.numel()
                if parameter.requires_grad:
                    part = torch.from_numpy(self._raw[offset : offset + size])
                    parameter.copy_(part.view_as(parameter))
                offset += size

    def _evaluate_priors(self) -> tuple[float, NDArray[np.float64]]:
        """Return the sum of the priors' log densities and its gradient, 0 for frozen parameters."""
        with torch.enable_grad():
            total = torch.zeros_like(self._parameters[0]).sum()
            for _, module, prior, closure, _ in self._priors:
                total = total + prior.log_prob(closure(module)).sum()
            moving = [p for p in self._parameters if p.requires_grad]
            slopes: list[Tensor | None] = [None] * len(moving)
            if total.requires_grad:
                slopes = list(torch.autograd.grad(total, moving, allow_unused=True))
        parts = []
        for parameter in self._parameters:
            slope = slopes.pop(0) if parameter.requires_grad else None
            parts.append((torch.zeros_like(parameter) if slope is None else slope).reshape(-1))
        density, gradient = to_host(total.detach(), torch.cat(parts))
        return density.item(), gradient


class _Transform:
    """The constraints of all parameters: they map raw values to values, with slopes."""

    def __init__(self, constraints: list[Interval | None], sizes: list[int]) -> None:
        # on the host, as is the optimizer, so that no evaluation waits for a device
        self._constraints = [each if each is None else deepcopy(each).cpu() for each in constraints]
        self._sizes = sizes
        self._lower: NDArray[np.float64] | None = None
        # one vectorized step if every constraint is either none or GPyTorch's usual one
        if all(_is_identity(each) or _is_softplus(each) for each in constraints):
            is_softplus = [not _is_identity(each) for each in constraints]
            bounds = [
                each.lower_bound.item() if each is not None and is_soft else 0.0
                for each, is_soft in zip(constraints, is_softplus, strict=True)
            ]
            self._lower = np.repeat(bounds, sizes)
            self._is_softplus = np.repeat(is_softplus, sizes)

    def __call__(self, raw: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self._lower is not None:
            softplus = np.logaddexp(0.0, raw)
            values = np.where(self._is_softplus, softplus, raw) + self._lower
            return values, np.where(self._is_softplus, np.exp(raw - softplus), 1.0)
        with torch.enable_grad():
            leaf = torch.tensor(raw, requires_grad=True)
            parts = leaf.split(self._sizes)
            joined = torch.cat(
                [
                    p if c is None else c.transform(p)
                    for c, p in zip(self._constraints, parts, strict=True)
                ]
            )
            (slopes,) = torch.autograd.grad(joined.sum(), leaf)
        return joined.detach().numpy(), slopes.numpy()


class _Entry(NamedTuple):
    """A hyperparameter: its name here, its raw parameter, and the constraint between the two."""

    name: str
    parameter: Parameter
    constraint: Interval | None


def _read_parameters(model: SingleTaskGP) -> list[_Entry]:
    """Return lengthscales, output scale (if any), noise and learned mean (if any)."""
    kernel, noise = model.covar_module, model.likelihood.noise_covar
    scale, mean = [], []
    if type(kernel) is ScaleKernel:
        constraint = kernel.raw_outputscale_constraint
        scale = [_Entry("outputscale", kernel.raw_outputscale, constraint)]
        kernel = kernel.base_kernel
    if has_learned_constant(model.mean_module):
        mean = [_Entry("prior_mean", model.mean_module.raw_constant, None)]
    return [
        _Entry("lengthscale", kernel.raw_lengthscale, kernel.raw_lengthscale_constraint),
        *scale,
        _Entry("noise", noise.raw_noise, noise.raw_noise_constraint),
        *mean,
    ]


def _split_priors(
    model: SingleTaskGP, parameters: list[_Entry]
) -> tuple[list[tuple[str, _LogDensity]], list[Any]]:
    """Return the priors with known closed forms, by parameter, and all others."""
    by_module = {"lengthscale_prior": "lengthscale", "outputscale_prior": "outputscale"}
    names = {entry.name for entry in parameters}
    known: list[tuple[str, _LogDensity]] = []
    others: list[Any] = []
    for entry in model.named_priors():
        full_name, module, prior, closure, _ = entry
        own = full_name.rpartition(".")[-1]
        name = "noise" if own == "noise_prior" else by_module.get(own)
        # the closure set by the constructor of GPyTorch's class, which returns the parameter itself
        usual = getattr(type(module), f"_{name}_param", None)
        is_usual = usual is not None and getattr(closure, "__func__", None) is usual
        if name in names and is_usual and _is_known_density(prior):
            assert name is not None
            known.append((name, _LogDensity(prior)))
        else:
            others.append(entry)
    return known, others


def _is_known_density(prior: Any) -> bool:
    if getattr(prior, "_transform", None) is not None:
        return False
    if type(prior) is LogNormalPrior:
        return bool(prior.loc.numel() == 1 and prior.scale.numel() == 1)
    if type(prior) is GammaPrior:
        return bool(prior.concentration.numel() == 1 and prior.rate.numel() == 1)
    return False


class _LogDensity:
    """The sum of a prior's log densities, and its slopes; the prior's numbers are read only once.

    At ``v`` it is ``constant + linear ln v - (ln v - center)^2 precision / 2 - rate v``.

    Args:
        prior: A prior for which :func:`_is_known_density` is true.
    """

    def __init__(self, prior: LogNormalPrior | GammaPrior) -> None:
        if type(prior) is GammaPrior:
            shape, self._rate = prior.concentration.item(), prior.rate.item()
            self._center, self._precision, self._linear = 0.0, 0.0, shape - 1.0
            self._constant = shape * math.log(self._rate) - math.lgamma(shape)
        else:
            scale = prior.scale.item()
            self._center, self._precision, self._linear = prior.loc.item(), scale**-2, -1.0
            self._rate, self._constant = 0.0, -math.log(scale) - 0.5 * LOG_TWO_PI

    def __call__(self, values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the sum at positive values, and its slopes."""
        logs = np.log(values)
        residual = self._precision * (logs - self._center)
        densities = self._linear * logs - 0.5 * residual * (logs - self._center)
        densities -= self._rate * values
        slopes = (self._linear - residual) / values - self._rate
        return float(densities.sum()) + len(values) * self._constant, slopes


def _is_identity(constraint: Interval | None) -> bool:
    return constraint is None or not constraint.enforced


def _is_softplus(constraint: Any) -> bool:
    return (
        type(constraint) in (GreaterThan, Positive)
        and type(constraint._transform) is torch.nn.Softplus
        and constraint.lower_bound.numel() == 1
    )


STATUS_LIMIT_REACHED = 1
"""SciPy's status of an L-BFGS-B run that ended at the limit of iterations, evaluations or time."""


def fit_marginal_likelihood(
    mll: MarginalLogLikelihood,
    closure: Callable[..., Any] | None = None,
    closure_kwargs: dict[str, Any] | None = None,
    optimizer_kwargs: dict[str, Any] | None = None,
    *,
    in_logarithms: bool = False,
    **kwargs: Any,
) -> MarginalLogLikelihood:
    """Maximize the marginal likelihood from the model's present hyperparameters.

    BoTorch's ordinary fit is used instead if a closure, an optimizer or several attempts are
    requested, if ``mll`` is not an ``ExactMarginalLogLikelihood``, or if the attempt with the
    closed form fails or does not converge; it then starts where that attempt started.

    Args:
        mll: A marginal likelihood of a model for which :func:`has_closed_form` is true.
        closure: See ``fit_gpytorch_mll``.
        closure_kwargs: Arguments for ``closure``.
        optimizer_kwargs: ``options`` of SciPy's L-BFGS-B (such as ``maxiter``), ``timeout_sec``
            in seconds, and ``method="L-BFGS-B"`` are honored here.
        in_logarithms: See :func:`minimize_objective`.
        kwargs: Passed on to BoTorch.

    Returns:
        ``mll`` in evaluation mode, with the hyperparameters set.

    Raises:
        ModelFittingError: If BoTorch's attempts failed as well, or the model has repeated rows.
    """
    settings = dict(optimizer_kwargs or {})
    options, timeout = settings.pop("options", None), settings.pop("timeout_sec", None)
    special = settings.pop("method", "L-BFGS-B") != "L-BFGS-B" or bool(settings)
    special |= closure is not None or closure_kwargs is not None
    special |= kwargs.get("optimizer") is not None or kwargs.get("pick_best_of_all_attempts", False)
    if type(mll) is ExactMarginalLogLikelihood and not special:
        mll.train()
        objective = MarginalLikelihoodObjective(mll)
        if minimize_objective(objective, options, timeout, in_logarithms):
            return mll.eval()
        objective.write(objective.start)
    if mll.model.repeats is not None:
        raise ModelFittingError(
            "the closed-form fit failed, and BoTorch's own fit does not support repeated rows."
        )
    return fit_ordinarily(
        mll,
        closure=closure,
        closure_kwargs=closure_kwargs,
        optimizer_kwargs=optimizer_kwargs,
        **kwargs,
    )


def fit_ordinarily(mll: MarginalLogLikelihood, **kwargs: Any) -> MarginalLogLikelihood:
    """Fit a model as BoTorch fits a model that has no ``custom_fit`` of its own.

    Args:
        mll: The marginal likelihood of the model.
        **kwargs: What ``fit_gpytorch_mll`` passes to a ``custom_fit``.

    Returns:
        ``mll`` in evaluation mode, with the hyperparameters set.

    Raises:
        ModelFittingError: If all attempts failed.
    """
    return botorch.fit._fit_fallback(mll, **kwargs)


def log_marginal_likelihood(mll: ExactMarginalLogLikelihood) -> float:
    """Return the value that a fit maximizes, at the model's present hyperparameters.

    Several outputs and batches are summed. Minus infinity stands for a covariance without a
    Cholesky factor. ``mll`` is left in training mode.
    """
    mll.train()
    model = mll.model
    try:
        if has_closed_form(model):
            objective = MarginalLikelihoodObjective(mll)
            value = -objective(objective.start)[0]
        else:
            with torch.no_grad():
                value = mll(model(*model.train_inputs), model.train_targets).sum().item()
    except (NotPSDError, NanError):
        return -math.inf
    return -math.inf if math.isnan(value) else value


def minimize_objective(
    objective: MarginalLikelihoodObjective,
    options: dict[str, Any] | None,
    timeout: float | None,
    in_logarithms: bool = False,
) -> bool:
    """Set a model's free parameters to a minimum of its objective.

    Args:
        objective: The function to minimize, with its start and its bounds.
        options: Options of SciPy's L-BFGS-B; None for its defaults, which BoTorch uses as well.
        timeout: Seconds after which the best values so far count as the minimum.
        in_logarithms: Whether to move the logarithms of parameters whose raw values have a positive
            lower bound, as BoTorch's default lengthscales and noise have. This takes a quarter of
            the evaluations, because lengthscales are a matter of ratios.

    Returns:
        False if the optimizer failed. The values of the parameters are then undefined.
    """
    if in_logarithms and _minimize_in_logarithms(objective, options, timeout):
        return True
    result = _minimize(objective, objective.start, objective.bounds, options, timeout)
    if result is None:
        return False
    objective.write(result.x)
    return True


def _minimize(
    function: Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]],
    start: NDArray[np.float64],
    bounds: NDArray[np.float64] | None,
    options: dict[str, Any] | None,
    timeout: float | None,
) -> OptimizeResult | None:
    """Return SciPy's result; None if the optimizer failed."""
    arguments: dict[str, Any] = {"method": "L-BFGS-B", "jac": True, "options": options}
    arguments["bounds"] = bounds
    try:
        if timeout is None:  # setting BLAS threads, as BoTorch does, takes as long as a small fit
            result = minimize(function, start, **arguments)
        else:
            result = minimize_with_timeout(function, start, timeout_sec=timeout, **arguments)
    except NotPSDError:
        return None
    if not (result.success or result.status == STATUS_LIMIT_REACHED):
        return None
    return result if math.isfinite(result.fun) else None


LARGEST_FACTOR, LARGEST_SHIFT = 1e4, 30.0
"""How far a fit in logarithms lets a parameter without bounds move, from 1 or from its start.

If the objective is nearly flat, the optimizer would step thousands of logarithms away."""

STATIONARY = 1e-3
"""A result where a slope exceeds this is not yet taken for a minimum."""

MOST_RESTARTS = 5


def _minimize_in_logarithms(
    objective: MarginalLikelihoodObjective, options: dict[str, Any] | None, timeout: float | None
) -> bool:
    """Minimize in logarithms if the bounds allow it; False if there is no trustworthy minimum."""
    if objective.bounds is None or not (is_log := objective.bounds[:, 0] > 0.0).any():
        return False
    function = _InLogarithms(objective, is_log)
    start, bounds = objective.start, objective.bounds.T
    shift = np.array([[-LARGEST_SHIFT], [LARGEST_SHIFT]]) + start
    caps = np.where(is_log, LARGEST_FACTOR * np.maximum(start, 1.0), shift)
    lower, upper = np.where(is_log, bounds[0], np.maximum(bounds[0], caps[0])), caps[1]
    ends = function.to_logarithms(np.stack([lower, np.minimum(bounds[1], upper)]))
    point = function.to_logarithms(start)
    for _ in range(MOST_RESTARTS):
        result = _minimize(function, point, ends.T, options, timeout)
        if result is None or function.has_failed:
            return False
        point = result.x
        uphill = np.clip(point - result.jac, *ends) - point
        if result.status == STATUS_LIMIT_REACHED or np.abs(uphill).max() <= STATIONARY:
            break
    else:
        return False
    raw = function.to_raw(point)
    if bool(((point <= ends[0]) & (lower > bounds[0])).any()):
        return False
    if bool(((point >= ends[1]) & (upper < bounds[1])).any()):
        return False
    objective.write(np.clip(raw, *bounds))  # it may lie an ulp outside
    return True


class _InLogarithms:
    """An objective as a function of the logarithms of some parameters.

    Attributes:
        has_failed: Whether a value or a slope was not finite.
    """

    def __init__(self, objective: MarginalLikelihoodObjective, is_log: NDArray[np.bool_]) -> None:
        self._objective, self._is_log = objective, is_log
        self.has_failed = False

    def __call__(self, values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        raw = self.to_raw(values)
        value, slope = self._objective(raw)
        slope = np.where(self._is_log, slope * raw, slope)
        self.has_failed |= not (math.isfinite(value) and bool(np.isfinite(slope).all()))
        return value, slope

    def to_logarithms(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Take the logarithms of the last dimension's entries."""
        return np.where(self._is_log, np.log(np.where(self._is_log, raw, 1.0)), raw)

    def to_raw(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(self._is_log, np.exp(np.where(self._is_log, values, 0.0)), values)

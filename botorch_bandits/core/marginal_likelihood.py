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
from collections.abc import Callable
from typing import Any

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
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from gpytorch.means import ConstantMean, Mean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from gpytorch.priors import GammaPrior, LogNormalPrior, Prior
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.errors import NanError, NotPSDError
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_nonnegative, check_vector
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

    Raises:
        TypeError: If a tensor is of the wrong type.
        ValueError: If ``repeats`` are not ``n`` positive whole numbers, or
            ``within_sum_of_squares`` is negative or given without ``repeats``.

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
        self._within = check_nonnegative("within_sum_of_squares", within_sum_of_squares or 0.0)
        self._share = y.new_ones(n)  # of the noise variance
        # the observations besides the means tell of the noise only
        self._num_within, constant = 0, 0.0
        if repeats is not None:
            is_known = within_sum_of_squares is not None
            repeats = _check_repeats(repeats, n, whole=is_known).to(X)
            self._share = 1.0 / repeats
            if is_known:
                self._num_within = round(float(repeats.sum())) - n
                constant = -0.5 * float(repeats.log().sum())
        elif self._within > 0.0:
            raise ValueError(
                f"within_sum_of_squares is {within_sum_of_squares}, but repeats is None: rows that "
                "are single observations have no such deviations. Pass repeats too."
            )
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
        residual = self._y - prior_mean if prior_mean else self._y
        half = torch.linalg.solve_triangular(L, residual, upper=False)  # n x 1
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
        constant mean and one noise variance, if at least one of their parameters can change and no
        other can.
    """
    noise = getattr(model.likelihood, "noise_covar", None)
    if type(model).forward is not SingleTaskGP.forward or not isinstance(noise, HomoskedasticNoise):
        return False
    if model.train_targets.dim() != 1 or model.train_inputs[0].dim() != 2:
        return False
    if noise.raw_noise.numel() != 1 or StationaryKernel.read(model.covar_module) is None:
        return False
    if _constant_of(model.mean_module) is None:
        return False
    fitted = {id(parameter) for parameter, _ in _read_parameters(model)}
    free = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    return bool(free) and free <= fitted


def _constant_of(mean: Mean) -> Tensor | None:
    """Return the constant of a mean module, learned or not; None for any other mean."""
    if type(mean) is ZeroMean:
        return torch.zeros(1, dtype=DTYPE)
    is_free = type(mean) is ConstantMean and not mean._constraints
    constant = mean.raw_constant if is_free else dict(mean.named_buffers()).get("constant")
    return constant if constant is not None and constant.numel() == 1 else None


def _read_parameters(model: SingleTaskGP) -> list[tuple[Tensor, Interval | None]]:
    """Return lengthscales, output scale, noise and mean, each raw and with its constraint."""
    kernel, noise = model.covar_module, model.likelihood.noise_covar
    scale: tuple[Tensor, Interval | None] = torch.ones_like(noise.raw_noise).detach(), None
    if type(kernel) is ScaleKernel:
        scale = kernel.raw_outputscale, kernel.raw_outputscale_constraint
        kernel = kernel.base_kernel
    mean = _constant_of(model.mean_module)
    assert mean is not None
    return [
        (kernel.raw_lengthscale, kernel.raw_lengthscale_constraint),
        scale,
        (noise.raw_noise, noise.raw_noise_constraint),
        (mean, None),
    ]


class MarginalLikelihoodObjective:
    """The objective that ``fit_gpytorch_mll`` minimizes, and its gradient, in raw parameters.

    The value is that of ``ExactMarginalLogLikelihood``, negated: the log densities of the priors
    are added, and the sum is divided by the number of observations.

    Args:
        mll: An ``ExactMarginalLogLikelihood`` in training mode, of a model for which
            :func:`has_closed_form` is true.
        repeats: ``n`` counts: the number of observations of which each row of the model is the
            mean; None if all are 1. The objective is then that of all observations.
        within_sum_of_squares: See :class:`MarginalLikelihood`.

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
        within_sum_of_squares: float | None = 0.0,
    ) -> None:
        """See the class."""
        self.num_evaluations = 0
        model = mll.model
        parameters = _read_parameters(model)
        self._parameters = [parameter for parameter, _ in parameters]
        self._to_values = _Values(model, parameters)
        self._raw = torch.cat([p.detach().reshape(-1).cpu() for p in self._parameters]).numpy()
        free = [np.full(p.numel(), p.requires_grad) for p in self._parameters]
        self._free = np.concatenate(free)
        self.start: Array = self._raw[self._free]
        names = {id(parameter): name for name, parameter in mll.named_parameters()}
        moving = {names[id(p)]: p for p in self._parameters if p.requires_grad}
        self.bounds = get_bounds_as_ndarray(moving, get_parameters_and_bounds(mll)[1])
        kernel = StationaryKernel.read(model.covar_module)
        assert kernel is not None
        with torch.no_grad():
            X = model.transform_inputs(model.train_inputs[0])
        targets = (X, model.train_targets, kernel.smoothness)
        self._likelihood = MarginalLikelihood(*targets, repeats, within_sum_of_squares)

    def __call__(self, raw: Array) -> tuple[float, Array]:
        """Return objective and gradient at raw values of the free parameters.

        Raises:
            NotPSDError: If the covariance has no Cholesky factor, even with jitter.
        """
        self.num_evaluations += 1
        self._raw[self._free] = raw
        if not self._to_values.is_known:
            self.write(raw)
        with np.errstate(all="ignore"):  # a lengthscale or a scale may underflow
            values, log_prior, pull_back = self._to_values(self._raw)
            try:
                value, slopes = self._likelihood(values[:-3], *values[-3:].tolist())
            except NanError:
                return math.nan, np.full_like(raw, math.nan)
            gradient = pull_back(slopes)
        scale = -1.0 / self._likelihood.num_observations
        return scale * (value + log_prior), scale * gradient[self._free]

    def write(self, raw: Array) -> None:
        """Set the model's free parameters to raw values."""
        self._raw[self._free] = raw
        parts = torch.from_numpy(self._raw).split([p.numel() for p in self._parameters])
        with torch.no_grad():
            for parameter, part in zip(self._parameters, parts, strict=True):
                if parameter.requires_grad:
                    parameter.copy_(part.view_as(parameter))


class _Values:
    """How raw parameters become hyperparameters, and the log density of the priors of these.

    Usual constraints and priors are evaluated by NumPy. Others take autograd, which for 50 rows
    costs more than the likelihood itself.

    Attributes:
        is_known: Whether no autograd is needed. If it is, the parameters themselves are read.
    """

    def __init__(
        self, model: SingleTaskGP, parameters: list[tuple[Tensor, Interval | None]]
    ) -> None:
        self._parameters, self._priors = parameters, list(model.named_priors())
        sizes = [parameter.numel() for parameter, _ in parameters]
        bounds = [_bound_of_softplus(constraint) for _, constraint in parameters]
        self._is_soft = np.repeat([bound is not None for bound in bounds], sizes)
        self._lower = np.repeat([bound or 0.0 for bound in bounds], sizes)
        ends = np.cumsum(sizes)
        places = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        densities = [
            (place, _numbers_of_density(prior))
            for _, part, prior, of, _ in self._priors
            for name, place in zip(("lengthscale", "outputscale", "noise"), places, strict=False)
            # what the constructor of GPyTorch's class registers, which is the parameter itself
            if getattr(of, "__func__", of) is getattr(type(part), f"_{name}_param", None)
        ]
        self._densities = [(place, numbers) for place, numbers in densities if numbers is not None]
        self.is_known = len(self._densities) == len(self._priors) and all(
            bound is not None or constraint is None or not constraint.enforced
            for bound, (_, constraint) in zip(bounds, parameters, strict=True)
        )

    def __call__(self, raw: Array) -> tuple[Array, float, Callable[[Array], Array]]:
        """Return values, log density, and what maps a gradient in the values to one in ``raw``.

        The latter adds the gradient of the log density.
        """
        if not self.is_known:
            return self._by_autograd()
        softplus = np.logaddexp(0.0, raw)
        values = np.where(self._is_soft, softplus, raw) + self._lower
        log_density, slopes = 0.0, np.zeros_like(values)
        for place, (constant, linear, center, precision, rate) in self._densities:
            # constant + linear ln v - precision (ln v - center)^2 / 2 - rate v
            v = values[place]
            logs = np.log(v)
            residual = precision * (logs - center)
            each = constant + linear * logs - 0.5 * residual * (logs - center) - rate * v
            log_density += float(each.sum())
            slopes[place] += (linear - residual) / v - rate

        def pull_back(gradient: Array) -> Array:
            total: Array = (gradient + slopes) * np.where(
                self._is_soft, np.exp(raw - softplus), 1.0
            )
            return total

        return values, log_density, pull_back

    def _by_autograd(self) -> tuple[Array, float, Callable[[Array], Array]]:
        with torch.enable_grad():
            parts = [p if c is None else c.transform(p) for p, c in self._parameters]
            values = torch.cat([part.reshape(-1) for part in parts])
            log_density = values.new_zeros(())
            for _, part, prior, of, _ in self._priors:
                log_density = log_density + prior.log_prob(of(part)).sum()

        def pull_back(gradient: Array) -> Array:
            moving = [p for p, _ in self._parameters if p.requires_grad]
            total = values @ torch.from_numpy(gradient).to(values) + log_density
            found = iter(torch.autograd.grad(total, moving, allow_unused=True))
            slopes = [next(found) if p.requires_grad else None for p, _ in self._parameters]
            each = [
                (torch.zeros_like(p) if slope is None else slope).reshape(-1)
                for (p, _), slope in zip(self._parameters, slopes, strict=True)
            ]
            return torch.cat(each).cpu().numpy()

        return values.detach().cpu().numpy(), float(log_density), pull_back


def _bound_of_softplus(constraint: Interval | None) -> float | None:
    """Return the lower bound to which a softplus is added; None for any other constraint."""
    if constraint is None or type(constraint) not in (GreaterThan, Positive):
        return None
    is_one = constraint.lower_bound.numel() == 1
    is_usual = is_one and type(constraint._transform) is torch.nn.Softplus
    return float(constraint.lower_bound) if is_usual else None


def _numbers_of_density(prior: Prior) -> tuple[float, float, float, float, float] | None:
    """Return constant, linear, center, precision and rate of a log density; None if unknown."""
    if getattr(prior, "_transform", None) is not None:
        return None
    if type(prior) is LogNormalPrior and prior.loc.numel() == prior.scale.numel() == 1:
        scale = prior.scale.item()
        constant = -math.log(scale) - 0.5 * LOG_TWO_PI
        return constant, -1.0, prior.loc.item(), scale**-2, 0.0
    if type(prior) is GammaPrior and prior.concentration.numel() == prior.rate.numel() == 1:
        shape, rate = prior.concentration.item(), prior.rate.item()
        return shape * math.log(rate) - math.lgamma(shape), shape - 1.0, 0.0, 0.0, rate
    return None


def objective_of(mll: ExactMarginalLogLikelihood) -> MarginalLikelihoodObjective:
    """Return the objective of a model that states what its rows are the means of, as ours do."""
    model = mll.model
    return MarginalLikelihoodObjective(mll, model.repeats, model.within_sum_of_squares)


STATUS_LIMIT_REACHED = 1
"""SciPy's status of an L-BFGS-B run that ended at the limit of iterations, evaluations or time."""


def fit_marginal_likelihood(
    mll: MarginalLogLikelihood, *, in_logarithms: bool = False, **kwargs: Any
) -> MarginalLogLikelihood:
    """Maximize the marginal likelihood from the model's present hyperparameters.

    BoTorch's ordinary fit is used instead if ``mll`` is not an ``ExactMarginalLogLikelihood``, if
    anything but ``options`` of SciPy's L-BFGS-B (such as ``maxiter``) and ``timeout_sec`` is
    requested, or if the attempt with the closed form fails or does not converge; it then starts
    where that attempt started.

    Args:
        mll: A marginal likelihood of a model for which :func:`has_closed_form` is true.
        in_logarithms: See :func:`minimize_objective`.
        **kwargs: What ``fit_gpytorch_mll`` passes to a ``custom_fit``.

    Returns:
        ``mll`` in evaluation mode, with the hyperparameters set.

    Raises:
        ModelFittingError: If BoTorch's attempts failed as well, or the model has repeated rows.
    """
    asked = {name: value for name, value in kwargs.items() if value}
    further = dict(asked.pop("optimizer_kwargs", {}))
    options, timeout = further.pop("options", None), further.pop("timeout_sec", None)
    if type(mll) is ExactMarginalLogLikelihood and not asked and not further:
        objective = objective_of(mll.train())
        if minimize_objective(objective, options, timeout, in_logarithms):
            return mll.eval()
        objective.write(objective.start)
    if mll.model.repeats is not None:
        raise ModelFittingError(
            "the closed-form fit failed, and BoTorch's own fit does not support repeated rows."
        )
    return fit_ordinarily(mll, **kwargs)


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
            objective = objective_of(mll)
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
    function: Callable[[Array], tuple[float, Array]],
    start: Array,
    bounds: Array | None,
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
    has_failed = False

    def to_logarithms(raw: Array) -> Array:
        return np.where(is_log, np.log(np.where(is_log, raw, 1.0)), raw)

    def to_raw(values: Array) -> Array:
        return np.where(is_log, np.exp(np.where(is_log, values, 0.0)), values)

    def function(values: Array) -> tuple[float, Array]:
        nonlocal has_failed
        raw = to_raw(values)
        value, slope = objective(raw)
        slope = np.where(is_log, slope * raw, slope)  # d/d ln v = v d/dv
        has_failed |= not (math.isfinite(value) and bool(np.isfinite(slope).all()))
        return value, slope

    start, bounds = objective.start, objective.bounds.T
    shift = np.array([[-LARGEST_SHIFT], [LARGEST_SHIFT]]) + start
    caps = np.where(is_log, LARGEST_FACTOR * np.maximum(start, 1.0), shift)
    lower, upper = np.where(is_log, bounds[0], np.maximum(bounds[0], caps[0])), caps[1]
    ends = to_logarithms(np.stack([lower, np.minimum(bounds[1], upper)]))
    point = to_logarithms(start)
    for _ in range(MOST_RESTARTS):
        result = _minimize(function, point, ends.T, options, timeout)
        if result is None or has_failed:
            return False
        point = result.x
        uphill = np.clip(point - result.jac, *ends) - point
        if result.status == STATUS_LIMIT_REACHED or np.abs(uphill).max() <= STATIONARY:
            break
    else:
        return False
    # a minimum at an end that is ours rather than the user's is not one
    if bool(((point <= ends[0]) & (lower > bounds[0])).any()):
        return False
    if bool(((point >= ends[1]) & (upper < bounds[1])).any()):
        return False
    objective.write(np.clip(to_raw(point), *bounds))  # it may lie an ulp outside
    return True

"""The objective of ``fit_gpytorch_mll`` in closed form, as a function of raw parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.optim.utils import get_parameters_and_bounds
from botorch.optim.utils.numpy_utils import get_bounds_as_ndarray
from gpytorch.constraints import GreaterThan, Interval, Positive
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.errors import NanError
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Parameter

from botorch_bandits.models.fixed_mean import read_prior_mean
from botorch_bandits.models.marginal_likelihood import MarginalLikelihood
from botorch_bandits.models.repeats import RepeatedGaussianLikelihood
from botorch_bandits.models.stationary_kernel import StationaryKernel

if TYPE_CHECKING:
    from botorch_bandits.models.bandit_gp import BanditGP

ORDINARY = "_fits_in_the_ordinary_way"
"""Attribute of a model that leaves its fit to BoTorch; set only while that fit runs."""


def has_closed_form(model: BanditGP) -> bool:
    """Whether the marginal likelihood of a model, and its gradient, have a closed form here.

    Returns:
        True for one output without a batch shape, a kernel that ``StationaryKernel`` knows, a
        fixed mean and one noise variance, if only their parameters can move, and at least one does.
    """
    if vars(model).get(ORDINARY, False) or type(model).forward is not SingleTaskGP.forward:
        return False
    if model.train_targets.dim() != 1 or model.train_inputs[0].dim() != 2:
        return False
    likelihoods = (GaussianLikelihood, RepeatedGaussianLikelihood)
    if read_prior_mean(model.mean_module) is None or type(model.likelihood) not in likelihoods:
        return False
    if model.likelihood.noise.numel() != 1 or StationaryKernel.read(model.covar_module) is None:
        return False
    known = {id(parameter) for parameter, _ in _read_parameters(model)}
    free = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    return bool(free) and free <= known


class MarginalLikelihoodObjective:
    """What ``fit_gpytorch_mll`` minimises, and its gradient, as a function of raw parameters.

    The value is that of ``ExactMarginalLogLikelihood``, negated: the log densities of the priors
    are added, and all is divided by the number of observations.

    Args:
        mll: An ``ExactMarginalLogLikelihood`` in training mode, of a model that
            :func:`has_closed_form`.
        repeats: ``n`` counts: how many observations each row of the model is the mean of; those of
            the model if omitted. The objective is then that of all observations.
        within_sum_of_squares: Squared deviations of the observations from the mean of their
            row, summed over all rows; the model's if omitted.

    Attributes:
        start: Raw values of the free parameters at the time of construction.
        bounds: Their lower and upper ends, ``2 x p``, as BoTorch sets them.
        num_evaluations: How often the objective was called.
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
        self._priors = list(model.named_priors())
        self._parameters, constraints = zip(*_read_parameters(model), strict=True)
        sizes = [parameter.numel() for parameter in self._parameters]
        self._transform = _Transform(constraints, sizes)
        self._has_scale = len(sizes) == 3
        self._raw = torch.cat([p.detach().reshape(-1).cpu() for p in self._parameters]).numpy()
        free = [np.full(p.numel(), p.requires_grad) for p in self._parameters]
        self._free = np.concatenate(free)
        self.start: NDArray[np.float64] = self._raw[self._free]
        names = {id(parameter): name for name, parameter in mll.named_parameters()}
        moving = {names[id(p)]: p for p in self._parameters if p.requires_grad}
        self.bounds = get_bounds_as_ndarray(moving, get_parameters_and_bounds(mll)[1])
        kernel = StationaryKernel.read(model.covar_module)
        assert kernel is not None
        prior_mean = read_prior_mean(model.mean_module)
        assert prior_mean is not None
        with torch.no_grad():
            X = model.transform_inputs(model.train_inputs[0])
        self._likelihood = MarginalLikelihood(
            X,
            model.train_targets - prior_mean,
            kernel.smoothness,
            kernel.lengthscale.numel(),
            repeats,
            within_sum_of_squares,
        )

    def __call__(self, raw: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return objective and gradient at raw values of the free parameters.

        Raises:
            NotPSDError: If the covariance has no Cholesky factor, with jitter neither.
        """
        self.num_evaluations += 1
        self._raw[self._free] = raw
        values, slopes = self._transform(self._raw)
        num_lengthscales = len(values) - 1 - self._has_scale
        lengthscale, noise = values[:num_lengthscales], float(values[-1])
        outputscale = float(values[-2]) if self._has_scale else 1.0
        try:
            with np.errstate(all="ignore"):  # a lengthscale may underflow
                evidence = self._likelihood(lengthscale, outputscale, noise)
        except NanError:
            return math.nan, np.full_like(raw, math.nan)
        gradient = np.empty_like(values)
        gradient[:num_lengthscales] = evidence.lengthscale
        if self._has_scale:
            gradient[-2] = evidence.outputscale
        gradient[-1] = evidence.noise
        gradient *= slopes
        value = evidence.value
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
        """Return the sum of the priors' log densities and its gradient, frozen parameters' 0."""
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
        return total.item(), torch.cat(parts).cpu().numpy()


class _Transform:
    """The constraints of all parameters: raw values to values, with slopes."""

    def __init__(self, constraints: tuple[Interval, ...], sizes: list[int]) -> None:
        self._constraints, self._sizes = constraints, sizes
        self._lower: NDArray[np.float64] | None = None
        # one vectorised step where every constraint is GPyTorch's usual one
        if all(_is_softplus(constraint) for constraint in constraints):
            bounds = [constraint.lower_bound.item() for constraint in constraints]
            self._lower = np.repeat(bounds, sizes)

    def __call__(self, raw: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self._lower is not None:
            softplus = np.logaddexp(0.0, raw)
            return softplus + self._lower, np.exp(raw - softplus)
        with torch.enable_grad():
            leaf = torch.tensor(raw, requires_grad=True)
            parts = leaf.to(self._constraints[0].lower_bound.device).split(self._sizes)
            values = [c.transform(p) for c, p in zip(self._constraints, parts, strict=True)]
            joined = torch.cat(values).cpu()
            (slopes,) = torch.autograd.grad(joined.sum(), leaf)
        return joined.detach().numpy(), slopes.numpy()


def _read_parameters(model: BanditGP) -> list[tuple[Parameter, Interval]]:
    """Return raw lengthscales, output scale (if there is one) and noise, with constraints."""
    kernel, noise = model.covar_module, model.likelihood.noise_covar
    scale = []
    if type(kernel) is ScaleKernel:
        scale = [(kernel.raw_outputscale, kernel.raw_outputscale_constraint)]
        kernel = kernel.base_kernel
    return [
        (kernel.raw_lengthscale, kernel.raw_lengthscale_constraint),
        *scale,
        (noise.raw_noise, noise.raw_noise_constraint),
    ]


def _is_softplus(constraint: Interval) -> bool:
    return (
        type(constraint) in (GreaterThan, Positive)
        and type(constraint._transform) is torch.nn.Softplus
        and constraint.lower_bound.numel() == 1
    )

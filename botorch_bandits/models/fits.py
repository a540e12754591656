"""Fits of a model's hyperparameters by the marginal likelihood in closed form."""

from __future__ import annotations

import math
from typing import Any

import botorch.fit
import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.models import SingleTaskGP
from gpytorch.constraints import GreaterThan, Positive
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor
from torch.nn import Module

from botorch_bandits.checks import DTYPE
from botorch_bandits.core.kernels import smoothness_of_whole
from botorch_bandits.core.marginal_likelihood import (
    MarginalLikelihoodObjective,
    Parameter,
    minimize_objective,
)


def read_parameters(model: SingleTaskGP) -> list[Parameter] | None:
    """Return lengthscales, output scale, noise and mean of a model, if it has a closed form.

    Args:
        model: An exact model with a mean, a kernel and a likelihood.

    Returns:
        None unless the model has one output without a batch shape, a kernel that
        :func:`.smoothness_of_whole` knows, a constant mean, one noise variance, and usual
        constraints and priors; if a parameter besides these can change; or if none can.
    """
    kernel, noise = model.covar_module, getattr(model.likelihood, "noise_covar", None)
    if type(model).forward is not SingleTaskGP.forward or not isinstance(noise, HomoskedasticNoise):
        return None
    mean = _constant_of(model.mean_module)
    if model.train_targets.dim() != 1 or noise.raw_noise.numel() != 1:
        return None
    if smoothness_of_whole(kernel) is None or mean is None:
        return None
    # by the name of the value: the module and its parameter
    parts: dict[str, Module] = {"noise": noise}
    found = {"lengthscale": Parameter(mean), "outputscale": Parameter(torch.ones(1, dtype=DTYPE))}
    if isinstance(kernel, ScaleKernel):
        parts["outputscale"], kernel = kernel, kernel.base_kernel
    parts["lengthscale"] = kernel
    for name, part in parts.items():
        raw, constraint = getattr(part, f"raw_{name}"), getattr(part, f"raw_{name}_constraint")
        lower = _lower_of_softplus(constraint)
        if constraint.enforced and lower is None:
            return None
        found[name] = Parameter(raw, lower or 0.0, is_soft=bool(constraint.enforced))
    for _, part, prior, value_of, _ in model.named_priors():
        # what the constructor of GPyTorch's class registers, which is the parameter itself
        own = getattr(value_of, "__func__", value_of)
        names = [name for name in parts if own is getattr(type(part), f"_{name}_param", None)]
        is_usual = type(prior) is LogNormalPrior and prior._transform is None
        if not names or not is_usual or prior.loc.numel() > 1 or prior.scale.numel() > 1:
            return None
        log_normal = prior.loc.item(), prior.scale.item()
        found[names[0]] = found[names[0]]._replace(log_normal=log_normal)
    order = [found["lengthscale"], found["outputscale"], found["noise"], Parameter(mean)]
    free = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    return order if free and free <= {id(each.raw) for each in order} else None


def _constant_of(mean: Any) -> Tensor | None:
    """Return the constant of a mean module, learned or not; None for any other mean."""
    if type(mean) is ZeroMean:
        return torch.zeros(1, dtype=DTYPE)
    is_free = type(mean) is ConstantMean and not mean._constraints
    constant = mean.raw_constant if is_free else dict(mean.named_buffers()).get("constant")
    return constant if constant is not None and constant.numel() == 1 else None


def _lower_of_softplus(constraint: Any) -> float | None:
    """Return the lower bound to which a softplus is added; None for any other constraint."""
    is_usual = type(constraint) in (GreaterThan, Positive) and constraint.lower_bound.numel() == 1
    if not (is_usual and type(constraint._transform) is torch.nn.Softplus):
        return None
    return float(constraint.lower_bound)


def objective_of(mll: MarginalLogLikelihood) -> MarginalLikelihoodObjective | None:
    """Return what a fit minimizes; None if it has no closed form (see :func:`read_parameters`).

    Args:
        mll: A marginal likelihood of one of our models, which is put into training mode.
    """
    model = mll.train().model
    parameters, smoothness = read_parameters(model), smoothness_of_whole(model.covar_module)
    if type(mll) is not ExactMarginalLogLikelihood or parameters is None or smoothness is None:
        return None
    return MarginalLikelihoodObjective(mll, parameters, smoothness)


def fit_marginal_likelihood(mll: MarginalLogLikelihood, **kwargs: Any) -> MarginalLogLikelihood:
    """Maximize the marginal likelihood from the model's present hyperparameters.

    BoTorch's ordinary fit is used instead if the model has no closed form (see
    :func:`read_parameters`), if ``mll`` is not an ``ExactMarginalLogLikelihood``, if any option is
    given, or if the attempt with the closed form fails or does not converge; it then starts where
    that attempt started.

    Args:
        mll: A marginal likelihood of one of our models.
        **kwargs: What ``fit_gpytorch_mll`` passes to a ``custom_fit``.

    Returns:
        ``mll`` in evaluation mode, with the hyperparameters set.

    Raises:
        ModelFittingError: If BoTorch's attempts failed as well, or the model has repeated rows.
    """
    objective = objective_of(mll)
    if objective is not None and not any(kwargs.values()):
        arguments = minimize_objective(objective)
        if arguments is not None:
            objective.write(arguments)
            return mll.eval()
    if mll.model.repeats is not None:
        raise ModelFittingError(
            "the closed-form fit failed, and BoTorch's own fit does not support repeated rows. "
            "Constraints of GPyTorch's default kind and log-normal priors have a closed form."
        )
    return botorch.fit._fit_fallback(mll, **kwargs)


def log_marginal_likelihood(mll: ExactMarginalLogLikelihood) -> float:
    """Return the value that a fit maximizes, at the model's present hyperparameters.

    Several outputs and batches are summed. Minus infinity stands for a covariance without a
    Cholesky factor. ``mll`` is left in training mode.
    """
    try:
        objective = objective_of(mll)
        if objective is not None:
            value = -objective(objective.start)[0]
        else:
            with torch.no_grad():
                model = mll.model
                value = mll(model(*model.train_inputs), model.train_targets).sum().item()
    except (NotPSDError, NanError):
        return -math.inf
    return -math.inf if math.isnan(value) else value

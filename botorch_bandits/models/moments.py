"""Prior means and posterior variances of any model, in raw outcomes.

GPyTorch takes every variance below 1e-10 for that; here it is so many prior variances, so that
outcomes of a small unit keep their variances.
"""

from __future__ import annotations

import torch
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.posteriors.posterior import Posterior
from gpytorch import settings
from gpytorch.distributions import MultitaskMultivariateNormal
from torch import Tensor

from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence.width_rules import UnreadablePriorError, read_prior
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.models.closed_form import LeanPosterior

SMALLEST_ORDINARY_VARIANCE = 1e-3
"""From this prior variance on GPyTorch's floor is left alone where it would cost digits."""


def variance_of(posterior: Posterior, prior_variance: float | Tensor) -> Tensor:
    """Return posterior variances, with GPyTorch's floor taken in prior variances.

    GPyTorch's smallest variance is 1e-10 whatever the unit of the outcomes; where the prior
    variance is 1, that is what this returns.

    Args:
        posterior: Of any model.
        prior_variance: Of the scalar, or one an output; broadcasts against the variances.
    """
    if isinstance(posterior, LeanPosterior) or not isinstance(posterior, GPyTorchPosterior):
        return posterior.variance
    distribution = posterior.distribution
    units = torch.as_tensor(prior_variance, dtype=DTYPE)
    smallest = float(units.min())
    if smallest == 1.0 or (not distribution.islazy and smallest >= SMALLEST_ORDINARY_VARIANCE):
        # a dense covariance has been factorized: these variances are those of the factor
        return posterior.variance
    variance = distribution.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)
    mean = posterior.mean  # ``batch_shape x q x m``
    if isinstance(distribution, MultitaskMultivariateNormal) and not distribution._interleaved:
        shape = (*variance.shape[:-1], mean.shape[-1], mean.shape[-2])
        variance = variance.reshape(shape).mT
    else:
        variance = variance.reshape(*variance.shape[:-1], *mean.shape[-2:])
    lowest = settings.min_variance.value(variance.dtype) * units.to(variance)
    return torch.maximum(variance.expand(mean.shape), lowest)


def variances_of_outputs(posterior: Posterior, model: Model) -> Tensor:
    """Return the posterior variances of all outputs of a model; see :func:`variance_of`.

    Args:
        posterior: ``batch_shape x q`` points, one column an output.
        model: Whose posterior it is; its prior is read.
    """
    try:
        priors = read_prior(model)
    except UnreadablePriorError:
        return posterior.variance
    parts = torch.broadcast_tensors(*(prior.standard_deviation.detach() for prior in priors))
    return variance_of(posterior, torch.stack(parts, dim=-1).square().unsqueeze(-2))


def prior_means(model: Model) -> tuple[Tensor, ...] | None:
    """Return the prior mean of each output at the model's rows (or at the origin), in raw units.

    Args:
        model: Any model; it is not changed.

    Returns:
        One vector an output; None if the model has no mean function that can be read.
    """
    if isinstance(model, ModelListGP):
        parts = [prior_means(submodel) for submodel in model.models]
        if any(part is None for part in parts):
            return None
        return tuple(means for part in parts if part is not None for means in part)
    mean = getattr(model, "mean_module", None)
    inputs = getattr(model, "train_inputs", None)
    if mean is None or not inputs:
        return None
    X: Tensor = inputs[0]
    if X.shape[-2] == 0:
        X = X.new_zeros(*X.shape[:-2], 1, X.shape[-1])
    with torch.no_grad():
        M = mean(X)
    M_raw = untransform(model, M.unsqueeze(-1) if model.num_outputs == 1 else M.mT)
    if M_raw is None:
        return None
    return tuple(column.reshape(-1) for column in M_raw.detach().unbind(-1))


def untransform(model: Model, Y: Tensor) -> Tensor | None:
    """Return outcomes in raw units.

    Args:
        model: Its outcome transform is inverted; it is not changed.
        Y: ``... x m`` outcomes in the model's own units.

    Returns:
        None if the transform cannot be inverted.
    """
    transform = getattr(model, "outcome_transform", None)
    if transform is None:
        return Y
    was_training = transform.training
    try:
        with torch.no_grad():
            raw: Tensor = transform.eval().untransform(Y)[0]
    except (NotImplementedError, TypeError, ValueError):
        return None
    finally:
        transform.train(was_training)
    return raw


fill_in_docstrings(__name__)

"""What can be read from any model: prior means, posterior variances, moments and columns.

GPyTorch raises every variance to at least 1e-10; here, the limit is 1e-10 times the prior variance,
so that outcomes in a small unit keep their variances.

A BoTorch model with an outcome transform answers in raw outcomes. With ``Standardize``, they are
Gaussian; with ``Log``, they are log-normal, with mean and variance in closed form; for ``Power``
and ``Bilog``, BoTorch has only samples. An acquisition function that needs moments that its model
does not provide is rejected at construction, so that no value is wrong or not a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import HigherOrderGP, KroneckerMultiTaskGP, ModelListGP, MultiTaskGP
from botorch.models.approximate_gp import ApproximateGPyTorchModel
from botorch.models.fully_bayesian import AbstractFullyBayesianSingleTaskGP
from botorch.models.gpytorch import (
    BatchedMultiOutputGPyTorchModel,
    GPyTorchModel,
    MultiTaskGPyTorchModel,
)
from botorch.models.map_saas import EnsembleMapSaasSingleTaskGP
from botorch.models.model import Model, ModelList
from botorch.models.transforms.input import ReversibleInputTransform
from botorch.models.transforms.outcome import (
    ChainedOutcomeTransform,
    OutcomeTransform,
    Standardize,
)
from botorch.posteriors import GPyTorchPosterior, TransformedPosterior
from botorch.posteriors.posterior import Posterior
from gpytorch import settings
from gpytorch.constraints import Interval
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from torch import Tensor

from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence.kernel_reading import is_of_output_task, prior_mean_at
from botorch_bandits.confidence.width_rules import UnreadablePriorError, kernel_inputs, read_prior
from botorch_bandits.models.ensembles import LeanPosterior

SMALLEST_ORDINARY_VARIANCE = 1e-3
"""From this prior variance on, GPyTorch's floor is left alone if changing it would cost digits."""


def variance_of(posterior: Posterior, prior_variance: float | Tensor) -> Tensor:
    """Return posterior variances, with GPyTorch's floor in units of the prior variance.

    GPyTorch's smallest variance is 1e-10, regardless of the unit of the outcomes; if the prior
    variance is 1, this function uses the same.

    Args:
        posterior: The posterior of any model.
        prior_variance: A scalar, or one number per output; broadcasts against the variances.
    """
    if isinstance(posterior, LeanPosterior) or not isinstance(posterior, GPyTorchPosterior):
        return posterior.variance
    distribution = posterior.distribution
    units = torch.as_tensor(prior_variance, dtype=DTYPE)
    smallest = float(units.min())
    if smallest == 1.0 or (not distribution.islazy and smallest >= SMALLEST_ORDINARY_VARIANCE):
        # a dense covariance has been factorized, and these variances match the factor
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
        posterior: A posterior at ``batch_shape x q`` points, with one column per output.
        model: The model of this posterior; its prior is read.
    """
    try:
        priors = read_prior(model)
    except UnreadablePriorError:
        return posterior.variance
    parts = torch.broadcast_tensors(*(prior.standard_deviation.detach() for prior in priors))
    return variance_of(posterior, torch.stack(parts, dim=-1).square().unsqueeze(-2))


_READABLE_POSTERIORS = (
    AbstractFullyBayesianSingleTaskGP.posterior,
    ApproximateGPyTorchModel.posterior,
    BatchedMultiOutputGPyTorchModel.posterior,
    EnsembleMapSaasSingleTaskGP.posterior,
    GPyTorchModel.posterior,
    KroneckerMultiTaskGP.posterior,
    MultiTaskGPyTorchModel.posterior,
)
"""Posteriors at points that have the columns of the rows; in other models, columns may differ."""


def count_columns(model: Model) -> int | None:
    """Return the number of columns of a model's raw inputs; for ``MultiTaskGP``, without the task.

    Args:
        model: Any model. For a list, the number on which all parts agree.

    Returns:
        None if that cannot be determined: the model does not show its rows, or its ``posterior`` or
        an input transform takes points with other columns than these.
    """
    if isinstance(model, ModelList):
        counts = {count_columns(part) for part in model.models}
        return counts.pop() if len(counts) == 1 else None
    evaluates = type(model).posterior
    if evaluates not in _READABLE_POSTERIORS and not evaluates.__module__.startswith(__package__):
        return None
    if type(model).transform_inputs is not Model.transform_inputs:
        return None
    transform = getattr(model, "input_transform", None)
    if isinstance(model, ApproximateGPyTorchModel):  # shows transformed rows only
        keeps_columns = transform is None or isinstance(transform, ReversibleInputTransform)
        inputs = getattr(model.model, "train_inputs", None) if keeps_columns else None
    else:
        adds_later = transform is not None and any(
            getattr(part, "transform_on_train", True) is False for part in transform.modules()
        )
        inputs = None if adds_later else getattr(model, "train_inputs", None)
    if not inputs or not isinstance(inputs[0], Tensor):
        return None
    raw = None if model.training else getattr(model, "_original_train_inputs", None)
    X = inputs[0] if raw is None else raw
    return X.shape[-1] - isinstance(model, MultiTaskGPyTorchModel)


def prior_means(model: Model) -> tuple[Tensor, ...] | None:
    """Return the prior mean of each output at the model's rows (or at the origin), in raw units.

    Args:
        model: Any model; it is not changed.

    Returns:
        One vector per output; None if the model has no mean function that can be read.
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
    if isinstance(model, MultiTaskGP):
        if model.num_outputs > 1:
            return None
        X = kernel_inputs(model)[is_of_output_task(model)]
    else:
        X = inputs[0]
    if X.shape[-2] == 0:
        X = X.new_zeros(*X.shape[:-2], 1, X.shape[-1])
    with torch.no_grad():
        M = prior_mean_at(model, X) if isinstance(model, MultiTaskGP) else mean(X)
    M_raw = untransform(model, M.unsqueeze(-1) if model.num_outputs == 1 else M.mT)
    if M_raw is None:
        return None
    return tuple(column.reshape(-1) for column in M_raw.detach().unbind(-1))


def untransform(model: Model, Y: Tensor) -> Tensor | None:
    """Return outcomes in raw units.

    Args:
        model: A model, whose outcome transform is inverted; it is not changed.
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


FARTHEST = 30.0
"""The distance from 0 up to which draws of a model are examined, in its own outcome units."""

REMEDY = (
    "Use Standardize or no outcome transform. To use another transform, apply it to train_Y and "
    "maximize the transformed outcome: if it is increasing, the best points are the same."
)


def submodels(model: Model) -> tuple[Model, ...]:
    """Return the models of a list, or the model itself.

    Args:
        model: Any model; lists in lists are flattened.
    """
    if not isinstance(model, ModelList):
        return (model,)
    return tuple(each for part in model.models for each in submodels(part))


def check_model(model: Model) -> Model:
    """Return ``model`` if its numbers are finite and all of them are float64.

    Bounds of constraints do not count: GPyTorch keeps them in float32 in some models, and they are
    only used during a fit.

    Raises:
        TypeError: If a parameter, buffer, training input or target is not float64.
        ValueError: If a training target is not finite.
        UnsupportedError: If its outcomes are tensors.
    """
    for each in submodels(model):
        name = type(each).__name__
        tensors = list(each.parameters())
        for module in each.modules():
            if not isinstance(module, Interval):
                tensors += module.buffers(recurse=False)
        data = [*(getattr(each, "train_inputs", None) or ()), getattr(each, "train_targets", None)]
        tensors += [tensor for tensor in data if isinstance(tensor, Tensor)]
        for tensor in tensors:
            if tensor.is_floating_point() and tensor.dtype != DTYPE:
                raise TypeError(
                    f"model ({name}) holds {tensor.dtype} numbers, but float64 is needed. Build it "
                    "from train_X.double() and train_Y.double()."
                )
        if isinstance(each, HigherOrderGP):
            raise UnsupportedError(
                f"model is a {name}, whose outcomes are tensors; acquisition functions of this "
                "package need one column per output. Use a ModelListGP of SingleTaskGPs, one for "
                "each number that matters."
            )
        _check_targets(each)
    return model


def _check_targets(model: Model) -> None:
    targets = getattr(model, "train_targets", None)
    if not isinstance(targets, Tensor):
        return
    bad = ~torch.isfinite(targets)
    if not bool(bad.any()):
        return
    rows = bad.reshape(-1, bad.shape[-1]).any(0).nonzero().squeeze(-1).tolist()
    transform = getattr(model, "outcome_transform", None)
    remedy = "Leave these rows out."
    if transform is not None:
        remedy = (
            f"Its outcome transform {name_of_transform(transform)} is not defined for every number "
            "(Log needs outcomes above 0). Leave these rows out, or use Standardize."
        )
    raise ValueError(
        f"train_Y of model ({type(model).__name__}) became infinite or not a number in these rows: "
        f"{', '.join(map(str, rows))}. {remedy}"
    )


def name_of_transform(transform: OutcomeTransform) -> str:
    """Return the name of an outcome transform for error messages.

    Args:
        transform: The transform; for a chain, the parts are named as well.
    """
    if isinstance(transform, ChainedOutcomeTransform):
        parts = [type(part).__name__ for part in transform.values()]
        return f"{type(transform).__name__}({', '.join(parts)})"
    return type(transform).__name__


def _parts(transform: OutcomeTransform) -> tuple[OutcomeTransform, ...]:
    if not isinstance(transform, ChainedOutcomeTransform):
        return (transform,)
    return tuple(part for each in transform.values() for part in _parts(each))


@contextmanager
def _evaluating(transform: OutcomeTransform) -> Iterator[OutcomeTransform]:
    was_training = transform.training
    try:
        with torch.no_grad():
            yield transform.eval()
    finally:
        transform.train(was_training)


def _standard_normal(model: Model, transform: OutcomeTransform) -> GPyTorchPosterior:
    """Return a posterior at one point, in the model's own outcome units."""
    one = next(transform.buffers(), torch.ones((), dtype=DTYPE)).new_ones((), dtype=DTYPE)
    m = int(model.num_outputs)
    mean = one.new_zeros(*model.batch_shape, 1, m)
    covariance = torch.eye(m).to(one).expand(*model.batch_shape, m, m)
    if m == 1:
        return GPyTorchPosterior(MultivariateNormal(mean.squeeze(-1), covariance))
    return GPyTorchPosterior(MultitaskMultivariateNormal(mean, covariance))


def is_gaussian(model: Model) -> bool:
    """Return whether a model's raw outcomes are Gaussian, judging by its outcome transforms.

    Args:
        model: Any model.
    """
    return all(_posterior_kind(each) == "gaussian" for each in submodels(model))


def has_moments(model: Model) -> bool:
    """Return whether mean and variance of a model's raw outcomes are known, judging by transforms.

    BoTorch answers for every chain of transforms, but for two nonlinear ones, such as a logarithm
    of a logarithm, its moments are those of another distribution.

    Args:
        model: Any model.
    """
    return all(_posterior_kind(each) != "samples" for each in submodels(model))


def has_increasing_inverse(model: Model) -> bool:
    """Return whether outcome transforms map every draw of a model back, and keep their order.

    A draw can be any number, but the inverse of ``Power``, for example, is not defined below 0, or
    is not increasing there.

    Args:
        model: Any model.
    """
    for each in submodels(model):
        transform = getattr(each, "outcome_transform", None)
        if transform is None or all(isinstance(part, Standardize) for part in _parts(transform)):
            continue
        probes = torch.linspace(-FARTHEST, FARTHEST, 13, dtype=DTYPE)
        probes = probes.to(next(transform.buffers(), probes).device)
        m = int(each.num_outputs)
        Y = probes.unsqueeze(-1).expand(*each.batch_shape, len(probes), m)
        with _evaluating(transform):
            raw = transform.untransform(Y)[0]
        steps = raw.diff(dim=-2)  # not a number between two infinite ones, as it should be
        if bool(raw.isnan().any()) or bool((steps < 0.0).any()):
            return False
    return True


def _posterior_kind(model: Model) -> str:
    """Return ``"gaussian"``, ``"moments"`` or ``"samples"``."""
    transform = getattr(model, "outcome_transform", None)
    if transform is None:
        return "gaussian"
    bent = [part for part in _parts(transform) if not isinstance(part, Standardize)]
    if not bent:
        return "gaussian"
    with _evaluating(transform):
        try:
            posterior = transform.untransform_posterior(_standard_normal(model, transform))
            if not isinstance(posterior, TransformedPosterior):
                return "gaussian"
            posterior.mean, posterior.variance  # noqa: B018
        except (NotImplementedError, RuntimeError, AttributeError):
            return "samples"
    return "moments" if len(bent) == 1 else "samples"


NEEDS = ("moments", "gaussian", "draws")
"""What can be needed: mean and variance of raw outcomes, Gaussian raw outcomes, or that every
draw of a model can be mapped to a draw of raw outcomes."""


def check_outcomes(
    name: str, model: Model, needs: str, posterior_transform: PosteriorTransform | None = None
) -> Model:
    """Return a model whose raw outcomes have what an acquisition function needs.

    Args:
        name: The acquisition class, for error messages.
        model: Any model.
        needs: One of :data:`NEEDS`.
        posterior_transform: The user's posterior transform.

    Raises:
        UnsupportedError: If the outcomes lack it, or the model does not support a posterior
            transform.
    """
    check_takes_transform(name, model, posterior_transform)
    has, needed, why = {
        "moments": (has_moments, "mean and variance of outcomes", "for which BoTorch has none"),
        "gaussian": (is_gaussian, "Gaussian outcomes", "with which they are not Gaussian"),
        "draws": (
            has_increasing_inverse,
            "draws of outcomes",
            "whose inverse is not defined, or not increasing, at every number",
        ),
    }[needs]
    if has(model):
        return model
    bent = next(each for each in submodels(model) if not has(each))
    transform = name_of_transform(bent.outcome_transform)
    raise UnsupportedError(
        f"{name} needs {needed}, but model ({type(bent).__name__}) has the outcome transform "
        f"{transform}, {why}. {REMEDY}"
    )


def check_takes_transform(
    name: str, model: Model, posterior_transform: PosteriorTransform | None
) -> None:
    """Raise an error if a posterior transform is given that the model does not support.

    Args:
        name: The acquisition class, for error messages.
        model: Any model.
        posterior_transform: The user's posterior transform.

    Raises:
        UnsupportedError: If that is the case.
    """
    if posterior_transform is not None and isinstance(model, KroneckerMultiTaskGP):
        raise UnsupportedError(
            f"{name} got posterior_transform={type(posterior_transform).__name__}, and BoTorch has "
            "none for KroneckerMultiTaskGP. Use MultiTaskGP, or a ModelListGP with one model per "
            "output."
        )

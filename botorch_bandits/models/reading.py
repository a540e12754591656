r"""Reads and conditions any BoTorch model: rows, units, moments, pending points, pseudo-outcomes.

BoTorch's models differ in the units, shapes and transforms that they expect, and only this module
depends on these differences. A user's model is never changed: conditioning returns a new model with
the same hyperparameters and outcome statistics.

**Outcomes.** A model with an outcome transform answers in raw outcomes. With ``Standardize``, they
are Gaussian; with ``Log``, they are log-normal, with mean and variance in closed form; for
``Power`` and ``Bilog``, BoTorch has only samples. An acquisition function that needs moments that
its model does not provide is rejected at construction, so that no value is wrong or not a number.

**Several points.** With ``S`` the posterior covariance of the function, ``P`` the pending points
and ``N`` the diagonal of the observation variances there, both in posterior units,

.. math:: \operatorname{var}(x \mid P) = S_{xx} - S_{xP} (S_{PP} + N)^{-1} S_{Px}.

This equals the result of conditioning on outcomes at the posterior mean, but a joint posterior of
several points is enough. It therefore works for models of several tasks, variational models,
deterministic ensembles and user-defined models. If there are several outputs, they are conditioned
on all outputs at ``P`` before they are combined into one. The members of a mixture are conditioned
one by one.

The posterior of each of ``q`` points given the points before it follows from the same identity.
With the Cholesky factor :math:`L L^\top = S + N` of the points, in blocks with one row and column
per output, and outcomes ``y`` there,

.. math::
   \operatorname{cov}(x_i \mid x_{<i}) = L_{ii} L_{ii}^\top - N_{ii}, \qquad
   \operatorname{E}(x_i \mid y_{<i}) = \mu_i + \sum_{j<i} L_{ij} \bigl(L^{-1} (y - \mu)\bigr)_j .

Source: Desautels, Krause and Burdick, *Parallelizing exploration-exploitation tradeoffs in Gaussian
process bandit optimization*, JMLR 2014, for the effect of pending points on the variance.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import HigherOrderGP, KroneckerMultiTaskGP, MultiTaskGP
from botorch.models.approximate_gp import ApproximateGPyTorchModel
from botorch.models.fully_bayesian import AbstractFullyBayesianSingleTaskGP
from botorch.models.gpytorch import GPyTorchModel, MultiTaskGPyTorchModel
from botorch.models.model import Model, ModelList
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.models.transforms.input import ReversibleInputTransform
from botorch.models.transforms.outcome import (
    ChainedOutcomeTransform,
    OutcomeTransform,
    Standardize,
    StratifiedStandardize,
)
from botorch.models.utils.assorted import fantasize
from botorch.posteriors import GPyTorchPosterior, PosteriorList, TransformedPosterior
from botorch.posteriors.ensemble import EnsemblePosterior
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from botorch.posteriors.multitask import MultitaskGPPosterior
from botorch.posteriors.posterior import Posterior
from botorch.utils.transforms import is_ensemble
from gpytorch import settings
from gpytorch.constraints import Interval
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.models import ExactGP
from linear_operator.operators import DenseLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from torch.nn import Module

from botorch_bandits.checks import DTYPE, check_double, check_nonnegative, check_one_of
from botorch_bandits.confidence.prior_reading import (
    UnreadablePriorError,
    insert_task,
    is_of_output_task,
    kernel_inputs,
    outcome_units,
    prior_mean_at,
    prior_variance_of,
    read_prior,
)
from botorch_bandits.models.ensembles import LeanPosterior

# --- parts and devices ----------------------------------------------------------------------------


def submodels(model: Model) -> tuple[Model, ...]:
    """Return the models of a list, or the model itself.

    Args:
        model: Any model; lists in lists are flattened.
    """
    if not isinstance(model, ModelList):
        return (model,)
    return tuple(each for part in model.models for each in submodels(part))


def shape_of_batch(model: Model) -> torch.Size:
    """Return the batch shape of a model; empty if the model states none, as in BoTorch.

    Args:
        model: Any model.
    """
    try:
        return model.batch_shape or torch.Size()
    except NotImplementedError:
        return torch.Size()


def on_device_of(model: Model, transform: PosteriorTransform | None) -> PosteriorTransform | None:
    """Move a posterior transform to the device of the model, in place, as BoTorch does.

    Args:
        model: The model.
        transform: The transform of its posterior, or None.
    """
    like = next(model.parameters(), None)
    return transform if transform is None or like is None else transform.to(like.device)


@contextmanager
def moving_models(module: Module, move: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Complete the move of a module to another device, which the block makes.

    GPyTorch's models keep cached predictions on the old device, and BoTorch's models keep their
    untransformed inputs there. The former are dropped, and the latter are moved.

    Args:
        module: The module, such as an acquisition function, that contains the models.
        move: The function that moves one tensor.
    """
    models = [each for each in module.modules() if isinstance(each, ExactGP)]
    before = [_device_of_rows(model) for model in models]
    yield
    for model, device in zip(models, before, strict=True):
        if _device_of_rows(model) != device:
            model.prediction_strategy = None
            original = vars(model).get("_original_train_inputs")
            if original is not None:
                model._original_train_inputs = move(original)


def _device_of_rows(model: ExactGP) -> torch.device | None:
    return None if model.train_inputs is None else model.train_inputs[0].device


# --- rows and their units -------------------------------------------------------------------------


def _raw_inputs(model: Model) -> Tensor | None:
    """Return the inputs that a model stores, before any transform; None if it shows none."""
    inputs = getattr(model, "train_inputs", None)
    if not inputs or not isinstance(inputs[0], Tensor):
        return None
    # in evaluation mode, BoTorch keeps transformed inputs and stores the raw ones separately
    original = None if model.training else getattr(model, "_original_train_inputs", None)
    X: Tensor = inputs[0] if original is None else original
    return X.detach()


def observed_inputs(model: Model) -> Tensor | None:
    """Return the raw inputs that a model holds, ``n x d``.

    Args:
        model: Any model. If it has several outputs, members or batches, all rows are listed, but
            equal sets of rows only once.

    Returns:
        None if the model does not show them.
    """
    if isinstance(model, ModelListGP):
        parts = [observed_inputs(submodel) for submodel in model.models]
        shown = [part for part in parts if part is not None]
        return torch.cat(shown) if len(shown) == len(parts) else None
    X = _raw_inputs(model)
    if X is None or len(model.train_inputs) != 1:
        return None
    if isinstance(model, MultiTaskGP):  # the rows of the output task, without its number
        column = model._task_feature
        X = torch.cat([X[..., :column], X[..., column + 1 :]], dim=-1)
        return X[is_of_output_task(model)] if model.num_outputs == 1 else X
    if X.dim() == 2:
        return X
    sets = X.reshape(-1, *X.shape[-2:])
    same = bool((sets == sets[:1]).all())
    return sets[0] if same else sets.reshape(-1, X.shape[-1])


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
    # the posteriors of a user's class may take points with other columns than the rows
    if not type(model).posterior.__module__.startswith(("botorch.", __package__)):
        return None
    if type(model).transform_inputs is not Model.transform_inputs:
        return None
    transform = getattr(model, "input_transform", None)
    if isinstance(model, ApproximateGPyTorchModel):  # shows transformed rows only
        keeps_columns = transform is None or isinstance(transform, ReversibleInputTransform)
        X = _raw_inputs(model.model) if keeps_columns else None
    else:
        parts = () if transform is None else transform.modules()
        adds_later = any(getattr(part, "transform_on_train", True) is False for part in parts)
        X = None if adds_later else _raw_inputs(model)
    return None if X is None else X.shape[-1] - isinstance(model, MultiTaskGPyTorchModel)


def _of_all_outputs(
    model: Model, read: Callable[[Model], Tensor | None]
) -> tuple[Tensor, ...] | None:
    """Return one vector in raw units for each output; None if one of the parts shows none.

    Args:
        model: Any model.
        read: Returns ``batch_shape x (m) x n`` numbers of a part, in its own outcome units.
    """
    found: list[Tensor] = []
    for each in submodels(model):
        own = read(each)
        if own is None or (each.num_outputs > 1 and own.dim() < 2):
            return None
        raw = untransform(each, own.unsqueeze(-1) if each.num_outputs == 1 else own.mT)
        if raw is None:
            return None
        found += [column.reshape(-1) for column in raw.detach().unbind(-1)]
    return tuple(found)


def observed_outcomes(model: Model) -> tuple[Tensor, ...] | None:
    """Return the outcomes that a model holds, in raw units: one vector per output.

    Returns:
        None if the model does not show them or its outcome transform cannot be inverted. Members
        and batches are listed one after another.
    """
    return _of_all_outputs(model, _own_outcomes)


def _own_outcomes(model: Model) -> Tensor | None:
    targets = getattr(model, "train_targets", None)
    if not isinstance(targets, Tensor) or isinstance(model, KroneckerMultiTaskGP):
        return None
    if not isinstance(model, MultiTaskGP):
        return targets.detach()
    if model.num_outputs > 1 or isinstance(transform_of(model), StratifiedStandardize):
        return None
    return targets.detach()[is_of_output_task(model)]


def prior_means(model: Model) -> tuple[Tensor, ...] | None:
    """Return the prior mean of each output at the model's rows (or at the origin), in raw units.

    Args:
        model: Any model; it is not changed.

    Returns:
        One vector per output; None if the model has no mean function that can be read.
    """
    return _of_all_outputs(model, _own_prior_means)


def _own_prior_means(model: Model) -> Tensor | None:
    mean, inputs = getattr(model, "mean_module", None), getattr(model, "train_inputs", None)
    if mean is None or not inputs:
        return None
    X = inputs[0]
    if isinstance(model, MultiTaskGP):
        if model.num_outputs > 1:
            return None
        X = kernel_inputs(model)[is_of_output_task(model)]
    if X.shape[-2] == 0:
        X = X.new_zeros(*X.shape[:-2], 1, X.shape[-1])
    with torch.no_grad():
        return prior_mean_at(model, X)


def transform_of(model: Model) -> OutcomeTransform | None:
    """Return the outcome transform of a model, if it has one."""
    return getattr(model, "outcome_transform", None)


@contextmanager
def _evaluating(transform: OutcomeTransform) -> Iterator[OutcomeTransform]:
    was_training = transform.training
    try:
        with torch.no_grad():
            yield transform.eval()
    finally:
        transform.train(was_training)


def untransform(model: Model, Y: Tensor) -> Tensor | None:
    """Return outcomes in raw units.

    Args:
        model: A model, whose outcome transform is inverted; it is not changed.
        Y: ``... x m`` outcomes in the model's own units.

    Returns:
        None if the transform cannot be inverted.
    """
    transform = transform_of(model)
    if transform is None:
        return Y
    try:
        with _evaluating(transform):
            raw: Tensor = transform.untransform(Y)[0]
    except (NotImplementedError, TypeError, ValueError):
        return None
    return raw


def check_transformable(name: str, model: Model, values: Sequence[float]) -> None:
    """Raise an error unless the model's outcome transform maps outcomes to finite numbers.

    Args:
        name: The argument from which the outcomes come, for error messages.
        model: Any model; it is not changed.
        values: One raw outcome for each output.

    Raises:
        ValueError: If an outcome becomes infinite or not a number, as 0 does under ``Log``.
    """
    left = iter(values)
    for each in submodels(model):
        own = list(itertools.islice(left, int(each.num_outputs)))
        transform = transform_of(each)
        if transform is None or isinstance(transform, Standardize):
            continue
        row = torch.tensor([own], dtype=DTYPE)
        row = row.to(next(transform.buffers(), row).device)
        with _evaluating(transform):
            Y = transform(row.expand(*each.batch_shape, 1, len(own)))[0]
        for value, column in zip(own, Y.unbind(-1), strict=True):
            bad = column[~torch.isfinite(column)]
            if len(bad):
                kind = name_of_transform(transform)
                raise ValueError(
                    f"{name} is {value:g}, which the outcome transform {kind} of "
                    f"{type(each).__name__} maps to {float(bad[0])}. Pass a value that {kind} "
                    "maps to a finite number (for Log, one above 0), or a model with Standardize "
                    "or without an outcome transform."
                )


def name_of_transform(transform: OutcomeTransform) -> str:
    """Return the name of an outcome transform for error messages.

    Args:
        transform: The transform; for a chain, the parts are named as well.
    """
    name = type(transform).__name__
    if not isinstance(transform, ChainedOutcomeTransform):
        return name
    return f"{name}({', '.join(type(part).__name__ for part in transform.values())})"


# --- what a model must have -----------------------------------------------------------------------


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
        name, targets = type(each).__name__, getattr(each, "train_targets", None)
        parts = [part for part in each.modules() if not isinstance(part, Interval)]
        tensors = [*each.parameters(), *(b for part in parts for b in part.buffers(recurse=False))]
        for tensor in (*tensors, *(getattr(each, "train_inputs", None) or ()), targets):
            is_number = isinstance(tensor, Tensor) and tensor.is_floating_point()
            if is_number and tensor.dtype != DTYPE:
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
        if isinstance(targets, Tensor):
            _check_targets(each, ~torch.isfinite(targets))
    return model


def _check_targets(model: Model, bad: Tensor) -> None:
    if not bool(bad.any()):
        return
    rows = bad.reshape(-1, bad.shape[-1]).any(0).nonzero().squeeze(-1).tolist()
    transform = transform_of(model)
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


FARTHEST = 30.0
"""The distance from 0 up to which draws of a model are examined, in its own outcome units."""

REMEDY = (
    "Use Standardize or no outcome transform. To use another transform, apply it to train_Y and "
    "maximize the transformed outcome: if it is increasing, the best points are the same."
)


def _bent_parts(transform: OutcomeTransform | None) -> list[OutcomeTransform]:
    """Return the parts of a transform that are not affine."""
    if transform is None or isinstance(transform, Standardize):
        return []
    if not isinstance(transform, ChainedOutcomeTransform):
        return [transform]
    return [part for each in transform.values() for part in _bent_parts(each)]


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


def _posterior_kind(model: Model) -> str:
    """Return ``"gaussian"``, ``"moments"`` or ``"samples"``."""
    transform = transform_of(model)
    bent = _bent_parts(transform)
    if transform is None or not bent:
        return "gaussian"
    # a posterior at one point, in the model's own outcome units
    one = next(transform.buffers(), torch.ones(())).new_ones((), dtype=DTYPE)
    m = int(model.num_outputs)
    mean, unit = one.new_zeros(*model.batch_shape, 1, m), torch.eye(m).to(one)
    normal = JointMoments(mean, unit.expand(*model.batch_shape, m, m), False).posterior()
    with _evaluating(transform):
        try:
            posterior = transform.untransform_posterior(normal)
            if not isinstance(posterior, TransformedPosterior):
                return "gaussian"
            posterior.mean, posterior.variance  # noqa: B018
        except (NotImplementedError, RuntimeError, AttributeError):
            return "samples"
    return "moments" if len(bent) == 1 else "samples"


def has_increasing_inverse(model: Model) -> bool:
    """Return whether outcome transforms map every draw of a model back, and keep their order.

    A draw can be any number, but the inverse of ``Power``, for example, is not defined below 0, or
    is not increasing there.

    Args:
        model: Any model.
    """
    for each in submodels(model):
        transform = transform_of(each)
        if transform is None or not _bent_parts(transform):
            continue
        probes = torch.linspace(-FARTHEST, FARTHEST, 13, dtype=DTYPE).unsqueeze(-1)
        probes = probes.to(next(transform.buffers(), probes).device)
        with _evaluating(transform):
            raw = transform.untransform(probes.expand(*each.batch_shape, -1, each.num_outputs))[0]
        steps = raw.diff(dim=-2)  # not a number between two infinite ones, as it should be
        if bool(raw.isnan().any()) or bool((steps < 0.0).any()):
            return False
    return True


_NEEDS: dict[str, tuple[Callable[[Model], bool], str, str]] = {
    "moments": (has_moments, "mean and variance of outcomes", "for which BoTorch has none"),
    "gaussian": (is_gaussian, "Gaussian outcomes", "with which they are not Gaussian"),
    "draws": (
        has_increasing_inverse,
        "draws of outcomes",
        "whose inverse is not defined, or not increasing, at every number",
    ),
}


def check_outcomes(
    name: str, model: Model, needs: str, posterior_transform: PosteriorTransform | None = None
) -> Model:
    """Return a model whose raw outcomes have what an acquisition function needs.

    Args:
        name: The acquisition class, for error messages.
        model: Any model.
        needs: ``"moments"`` (mean and variance of raw outcomes), ``"gaussian"`` (Gaussian raw
            outcomes) or ``"draws"`` (every draw of a model can be mapped to one of raw outcomes).
        posterior_transform: The user's posterior transform.

    Raises:
        UnsupportedError: If the outcomes lack it, or the model does not support a posterior
            transform.
    """
    if posterior_transform is not None and isinstance(model, KroneckerMultiTaskGP):
        raise UnsupportedError(
            f"{name} got posterior_transform={type(posterior_transform).__name__}, and BoTorch has "
            "none for KroneckerMultiTaskGP. Use MultiTaskGP, or a ModelListGP with one model per "
            "output."
        )
    has, needed, why = _NEEDS[needs]
    for each in submodels(model):
        if not has(each):
            raise UnsupportedError(
                f"{name} needs {needed}, but model ({type(each).__name__}) has the outcome "
                f"transform {name_of_transform(each.outcome_transform)}, {why}. {REMEDY}"
            )
    return model


# --- variances ------------------------------------------------------------------------------------

SMALLEST_ORDINARY_VARIANCE = 1e-3
"""From this prior variance on, GPyTorch's floor is left alone if changing it would cost digits."""


def variance_of(posterior: Posterior, prior_variance: float | Tensor) -> Tensor:
    """Return posterior variances, with GPyTorch's floor in units of the prior variance.

    GPyTorch raises every variance to at least 1e-10; here, the limit is 1e-10 times the prior
    variance, so that outcomes in a small unit keep their variances.

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
    if _is_by_output(distribution):
        shape = (*variance.shape[:-1], mean.shape[-1], mean.shape[-2])
        variance = variance.reshape(shape).mT
    else:
        variance = variance.reshape(*variance.shape[:-1], *mean.shape[-2:])
    lowest = settings.min_variance.value(variance.dtype) * units.to(variance)
    return torch.maximum(variance.expand(mean.shape), lowest)


def _is_by_output(distribution: MultivariateNormal) -> bool:
    """Whether the points of an output are adjacent, instead of the outputs of a point."""
    return isinstance(distribution, MultitaskMultivariateNormal) and not distribution._interleaved


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


# --- several points at once -----------------------------------------------------------------------

SMALLEST_NOISE = 1e-10
"""The smallest observation noise, as a share of the largest posterior variance."""


@dataclass(frozen=True, eq=False)
class JointMoments:
    """Mean and covariance of all outputs at several points.

    Attributes:
        mean: ``batch_shape x n x m``.
        covariance: ``batch_shape x n m x n m``; the outputs of a point are adjacent.
        is_mixture: Whether the last batch dimension holds the members of a mixture.
    """

    mean: Tensor
    covariance: Tensor
    is_mixture: bool

    @classmethod
    def of(cls, posterior: Posterior, name: str) -> JointMoments:
        """Read the joint posterior of several points.

        Args:
            posterior: A BoTorch posterior; for a finite ensemble, the mean and covariance of its
                members are used.
            name: The name of the model, for error messages.

        Raises:
            UnsupportedError: If it has no Gaussian moments, or does not provide their covariances.
        """
        if isinstance(posterior, PosteriorList):
            return cls._of_independent([cls.of(each, name) for each in posterior.posteriors])
        if isinstance(posterior, TransformedPosterior):
            raise UnsupportedError(
                f"the outcome transform of {name} is not affine (Log, Power and Bilog are not), so "
                "its posterior is not Gaussian, and points cannot be conditioned on one another "
                "in it. Use Standardize or no outcome transform and transform the outcomes "
                "yourself, or ask for one point at a time of an exact Gaussian process such as "
                "SingleTaskGP (sequential=True in optimize_acqf)."
            )
        if isinstance(posterior, EnsemblePosterior):
            return cls(posterior.mean, _covariance_of_ensemble(posterior), False)
        if not isinstance(posterior, GPyTorchPosterior) or isinstance(
            posterior, MultitaskGPPosterior
        ):
            raise UnsupportedError(
                f"{name} gives a {type(posterior).__name__}, which holds no joint covariance of "
                "points and outputs, so points cannot be conditioned on one another in it. Use a "
                "model with a GPyTorchPosterior (SingleTaskGP, MultiTaskGP, ModelListGP), or leave "
                "X_pending out and ask for one point at a time."
            )
        mean, covariance = posterior.mean, posterior.distribution.covariance_matrix
        n, m = mean.shape[-2:]
        if _is_by_output(posterior.distribution):
            order = torch.arange(n * m, device=mean.device).reshape(m, n).T.reshape(-1)
            covariance = covariance[..., order[:, None], order]
        covariance = covariance.expand(*mean.shape[:-2], n * m, n * m)
        return cls(mean, covariance, isinstance(posterior, GaussianMixturePosterior))

    @classmethod
    def _of_independent(cls, parts: list[JointMoments]) -> JointMoments:
        batch_shape = torch.broadcast_shapes(*(part.mean.shape[:-2] for part in parts))
        means = [part.mean.expand(*batch_shape, *part.mean.shape[-2:]) for part in parts]
        mean = torch.cat(means, dim=-1)
        n, m = mean.shape[-2:]
        covariance = mean.new_zeros(*batch_shape, n * m, n * m)
        places = torch.arange(n * m, device=mean.device).reshape(n, m)
        for part, own in zip(parts, places.split([p.shape[-1] for p in means], -1), strict=True):
            index = own.reshape(-1)
            covariance[..., index[:, None], index] = part.covariance
        return cls(mean, covariance, any(part.is_mixture for part in parts))

    @property
    def variance(self) -> Tensor:
        """``batch_shape x n x m`` variances of the points, each on its own."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).reshape(self.mean.shape)

    def given(self, count: int, noise: Tensor, away: Tensor | None = None) -> JointMoments:
        """Return the moments of the other points, given outcomes at the first ones.

        Args:
            count: The number of first points.
            noise: ``batch_shape x count x m`` observation variances at these points.
            away: ``batch_shape x count x m``; the differences of the outcomes from their means; 0
                if omitted.
        """
        size, mean = count * self.mean.shape[-1], self.mean[..., count:, :]
        factor = _factor(self.covariance[..., :size, :size], noise)
        # L^{-1} S_Px, of which the products with itself are what P explains
        half = torch.linalg.solve_triangular(
            factor, self.covariance[..., :size, size:], upper=False
        )
        left = self.covariance[..., size:, size:] - half.mT @ half
        if away is not None:
            told = torch.linalg.solve_triangular(factor, away.flatten(-2)[..., None], upper=False)
            moved = (half.mT @ told).squeeze(-1)
            mean = mean + moved.reshape(*moved.shape[:-1], *mean.shape[-2:])
        return JointMoments(mean, left, self.is_mixture)

    def one_by_one(self, noise: Tensor, values: Tensor | None = None) -> JointMoments:
        """Return the moments of the outputs at each point, given outcomes at the points before it.

        Args:
            noise: ``batch_shape x n x m`` observation variances.
            values: ``m`` outcomes, the same at each point; the posterior mean of each if omitted.

        Returns:
            ``batch_shape x n`` moments of one point each.
        """
        n, m = self.mean.shape[-2:]
        levels = _levels(self.covariance, noise)
        factor = _factor(self.covariance, noise)
        mean = self.mean if values is None else self.mean + before(factor, values - self.mean)
        blocks = factor.reshape(*factor.shape[:-2], n, m, n, m)
        own = blocks.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)  # ... x n x m x m
        noises = torch.diag_embed(levels.reshape(*levels.shape[:-1], n, m))
        return JointMoments(mean.unsqueeze(-2), own @ own.mT - noises, self.is_mixture)

    def deviations_ahead(self, count: int, noise: Tensor, added: Tensor | float = 0.0) -> Tensor:
        """Return deviations at all points, given outcomes at more and more of the first points.

        Args:
            count: The number of first points.
            noise: ``batch_shape x count x m`` observation variances at these points.
            added: Added to all variances; broadcasts against ``batch_shape x n x m``.

        Returns:
            ``batch_shape x n x m x count``: given outcomes at none of these points, at one, at two
            and so on.
        """
        size = count * self.mean.shape[-1]
        factor = _factor(self.covariance[..., :size, :size], noise)
        half = torch.linalg.solve_triangular(factor, self.covariance[..., :size, :], upper=False)
        each = half.square().mT.reshape(*self.mean.shape, count, -1).sum(-1)
        variance = (self.variance + added).unsqueeze(-1) - (each.cumsum(-1) - each)
        return variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()

    def selected(self, member: int | None) -> JointMoments:
        """Return the moments of one member of a mixture, or all moments if the member is None.

        Args:
            member: The number of the member.
        """
        if member is None:
            return self
        return JointMoments(self.mean.select(-3, member), self.covariance.select(-3, member), False)

    def posterior(self) -> GPyTorchPosterior:
        """Return BoTorch's posterior with these moments."""
        variance = self.covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0)  # rounding errors
        covariance = DenseLinearOperator(
            self.covariance.diagonal_scatter(variance, dim1=-2, dim2=-1)
        )
        if self.mean.shape[-1] == 1:
            distribution = MultivariateNormal(self.mean.squeeze(-1), covariance)
        else:
            distribution = MultitaskMultivariateNormal(self.mean, covariance, interleaved=True)
        kind = GaussianMixturePosterior if self.is_mixture else GPyTorchPosterior
        return kind(distribution)

    def with_noise(self, noise: Tensor) -> JointMoments:
        """Return the moments of noisy outcomes.

        Args:
            noise: ``batch_shape x n x m`` observation variances.
        """
        levels = torch.diag_embed(noise.expand(self.mean.shape).flatten(-2))
        return JointMoments(self.mean, self.covariance + levels, self.is_mixture)


def _covariance_of_ensemble(posterior: EnsemblePosterior) -> Tensor:
    """Return the covariance that matches BoTorch's ensemble variance, ``... x n m x n m``."""
    away = (posterior.values - posterior.mean.unsqueeze(-3)).flatten(-2)  # ... x members x n m
    if away.shape[-2] == 1:
        return away.mT @ away
    weights = posterior.weights
    return away.mT @ (weights.unsqueeze(-1) * away) / (1.0 - weights.square().sum())


def _levels(covariance: Tensor, noise: Tensor) -> Tensor:
    """Return observation variances that are large enough to factorize, ``batch_shape x s``."""
    diagonal = covariance.detach().diagonal(dim1=-2, dim2=-1)
    tiny = torch.finfo(covariance.dtype).tiny
    least = (SMALLEST_NOISE * diagonal.amax(-1, keepdim=True)).clamp_min(tiny)
    return torch.maximum(noise.flatten(-2), least)


def _factor(covariance: Tensor, noise: Tensor) -> Tensor:
    """Return the Cholesky factor of covariance plus noise, ``batch_shape x s x s``."""
    factor: Tensor = psd_safe_cholesky(covariance + torch.diag_embed(_levels(covariance, noise)))
    return factor


def before(factor: Tensor, differences: Tensor) -> Tensor:
    r"""Return how differences at the points before each point change its expectation.

    That is :math:`S_{i,<i} (S_{<i,<i} + N)^{-1} d_{<i}`, for all points at once.

    Args:
        factor: ``batch_shape x n m x n m``, the Cholesky factor of covariance plus noise.
        differences: ``batch_shape x n x m`` outcomes less their means.
    """
    solved = torch.linalg.solve_triangular(factor, differences.flatten(-2)[..., None], upper=False)
    # a Cholesky factor without the blocks on its diagonal, m rows and columns each
    index = torch.arange(factor.shape[-1], device=factor.device) // differences.shape[-1]
    moved = torch.where(index.unsqueeze(-1) > index, factor, 0.0) @ solved
    return moved.squeeze(-1).reshape(*moved.shape[:-2], *differences.shape[-2:])


def factor_of(moments: JointMoments, noise: Tensor) -> Tensor:
    """Return the Cholesky factor of covariance plus noise, ``batch_shape x n m x n m``.

    Args:
        moments: The moments of several points.
        noise: ``batch_shape x n x m`` observation variances.
    """
    return _factor(moments.covariance, noise)


def read_moments(model: Model, X: Tensor) -> JointMoments:
    """Return the joint moments of a model's outputs at several points.

    Args:
        model: Any model; it is not changed.
        X: ``batch_shape x n x d`` points in raw inputs.

    Raises:
        UnsupportedError: If the posterior has no joint Gaussian moments, or not one row per point.
    """
    name = type(model).__name__
    moments = JointMoments.of(model.posterior(X), name)
    if moments.mean.shape[-2] != X.shape[-2]:
        raise UnsupportedError(
            f"{name} gives {moments.mean.shape[-2]} posterior rows for {X.shape[-2]} points, as "
            "models with InputPerturbation or AppendFeatures do, and then points cannot be "
            "conditioned on one another. Leave X_pending out and ask for one point at a time."
        )
    return moments


def read_noise(model: Model, X: Tensor) -> Tensor:
    """Return the variances that a model assigns to the noise of outcomes at some points.

    They are what ``observation_noise=True`` adds to BoTorch's posterior, in raw outcome units: the
    noise of the likelihood, by task if it differs between tasks; the mean of ``train_Yvar`` (of
    each task) if the noise of each row is given; 0 for models without noise.

    Args:
        model: Any model; it is not changed.
        X: ``batch_shape x n x d`` points in raw inputs.

    Returns:
        ``batch_shape x n x m``.

    Raises:
        UnsupportedError: If the model rejects ``observation_noise=True``.
    """
    name = type(model).__name__
    with torch.no_grad():
        try:
            noisy = model.posterior(X, observation_noise=True)
        except (NotImplementedError, UnsupportedError, TypeError) as error:
            raise UnsupportedError(
                f"{name} does not say how noisy an outcome is, which pending points need: its "
                f"posterior rejects observation_noise=True ({error}). Give the model a likelihood, "
                "or leave X_pending out."
            ) from error
        latent = model.posterior(X)
        difference = JointMoments.of(noisy, name).variance - JointMoments.of(latent, name).variance
    if not bool(difference.isfinite().all()):
        raise UnsupportedError(
            f"{name} gives outcomes a noise variance of {float(difference.min())}: it has no rows, "
            "or none of a task, whose mean noise it could use. Give it a likelihood with a noise "
            "of its own, or leave X_pending out."
        )
    return difference.clamp_min(0.0)


class _MomentsModel(Model):
    """A model whose posterior is computed from the joint moments of another model."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self._num_outputs, self._batch_shape = int(model.num_outputs), shape_of_batch(model)
        self._is_ensemble = is_ensemble(model)
        self._is_fully_bayesian = getattr(model, "_is_fully_bayesian", False)

    @property
    def num_outputs(self) -> int:
        """The number of outputs of the model."""
        return self._num_outputs

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the model."""
        return self._batch_shape

    def _moments(self, X: Tensor, observation_noise: bool | Tensor) -> JointMoments:
        raise NotImplementedError

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """Return the posterior; see BoTorch.

        Args:
            X: ``batch_shape x q x d`` points in raw inputs.
            output_indices: The outputs; all if omitted.
            observation_noise: Whether to add the noise variance, or a tensor of variances.
            posterior_transform: Applied to the posterior, after conditioning.
        """
        moments = self._moments(X, observation_noise)
        if output_indices is not None:
            n, m = moments.mean.shape[-2:]
            places = torch.arange(n * m, device=X.device).reshape(n, m)
            index = places[:, output_indices].reshape(-1)
            covariance = moments.covariance[..., index[:, None], index]
            mean = moments.mean[..., output_indices]
            moments = JointMoments(mean, covariance, moments.is_mixture)
        posterior: Any = moments.posterior()
        if posterior_transform is not None:
            posterior = posterior_transform(posterior=posterior, X=X)
        found: Posterior = posterior
        return found


class PendingModel(_MomentsModel):
    """A model with pending points, whose outcomes count as known to equal the posterior mean.

    The mean is unchanged and the covariance shrinks; see the module. The model itself is neither
    conditioned nor changed.

    Args:
        model: Any model whose posterior has Gaussian moments.
        X: ``n x d`` pending points in raw inputs.

    Raises:
        UnsupportedError: If the model's posterior has no joint Gaussian moments.
    """

    pending_points: Tensor
    pending_noise: Tensor

    def __init__(self, model: Model, X: Tensor) -> None:
        """See the class."""
        super().__init__(model)
        self.base = model
        with torch.no_grad():
            read_moments(model, X)  # raises now any error that it would raise later
        self.register_buffer("pending_points", X.detach().clone(), persistent=False)
        self.register_buffer("pending_noise", read_noise(model, X), persistent=False)

    def _moments(self, X: Tensor, observation_noise: bool | Tensor) -> JointMoments:
        pending = self.pending_points
        both = torch.cat([pending.expand(*X.shape[:-2], *pending.shape), X], dim=-2)
        moments = read_moments(self.base, both).given(len(pending), self.pending_noise)
        if isinstance(observation_noise, Tensor):
            return moments.with_noise(observation_noise)
        return moments.with_noise(read_noise(self.base, X)) if observation_noise else moments


class OneByOneModel(_MomentsModel):
    """The posteriors of ``q`` points, each given the points before it, as of ``q`` single points.

    Args:
        model: Any model whose posterior has Gaussian moments; it already includes pending points.
        X: ``batch_shape x q x d`` points in raw inputs.
        noise: ``batch_shape x q x m`` observation variances there; those of the model if omitted.
        values: ``m`` outcomes that each point has for the points after it; the posterior mean if
            omitted.

    Attributes:
        points: ``batch_shape x q x 1 x d``; the points of its posterior. For a batched model, the
            model's batch dimensions follow ``q``.
        num_points: ``q``.
        inputs: ``batch_shape x q x d``; the points as the model sees them.
        moments: The joint moments.
        noise: The observation variances.

    Raises:
        UnsupportedError: If the posterior has no joint Gaussian moments.
    """

    def __init__(
        self,
        model: Model,
        X: Tensor,
        noise: Tensor | None = None,
        values: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(model)
        self.num_points = X.shape[-2]
        members = len(self._batch_shape)
        depth = 0 if self._is_ensemble else members
        if depth:
            X = X.expand(*torch.broadcast_shapes(X.shape[:-2], self._batch_shape), *X.shape[-2:])
        self.inputs = X
        self.points = X.movedim(-2, -2 - depth).unsqueeze(-2)
        self.moments = read_moments(model, X)
        self.noise = read_noise(model, X) if noise is None else noise
        each = self.moments.one_by_one(self.noise, values)
        noise_of_each = self.noise.expand(self.moments.mean.shape).unsqueeze(-2)
        # q comes before the dimensions of the model's batch
        mean, covariance, self._noise_of_each = (
            tensor.movedim(-3, -3 - members)
            for tensor in (each.mean, each.covariance, noise_of_each)
        )
        self._each = JointMoments(mean, covariance, each.is_mixture)

    def _moments(self, X: Tensor, observation_noise: bool | Tensor) -> JointMoments:
        """Return the moments at :attr:`points`, whose batch dimensions may be flattened into one.

        Raises:
            ValueError: If ``X`` contains other points.
        """
        if X.numel() != self.points.numel():
            raise ValueError(
                f"X has shape {tuple(X.shape)}, but this posterior covers only the points of shape "
                f"{tuple(self.points.shape)}."
            )
        moments = self._each.with_noise(self._noise_of_each) if observation_noise else self._each
        if X.shape == self.points.shape:
            return moments
        m = moments.mean.shape[-1]
        shape = (*X.shape[:-2], *(self._batch_shape if self._is_ensemble else ()))
        mean, covariance = moments.mean.reshape(*shape, 1, m), moments.covariance
        return JointMoments(mean, covariance.reshape(*shape, m, m), moments.is_mixture)


# --- pseudo-outcomes ------------------------------------------------------------------------------


def condition(
    model: Model, X: Tensor, Y: Tensor, extra_noise: float = 0.0, noise_unit: str = "outcome"
) -> Model:
    """Return ``model`` conditioned on outcomes ``Y`` at ``X``; ``model`` is not changed.

    The hyperparameters and the statistics of outcome transforms remain those of the model and never
    depend on the pseudo-observations. With fixed noise levels, the new rows get the mean level of
    the rows.

    Args:
        model: An exact Gaussian-process model, or a ``ModelListGP`` of such.
        X: ``n x d`` points in raw inputs.
        Y: ``batch_shape x n x m`` outcomes in raw units (``batch_shape`` is the model's).
        extra_noise: A variance, added to the noise of the new rows.
        noise_unit: ``"outcome"`` if it is in squared raw outcome units, ``"prior"`` if it is a
            multiple of the prior variance.

    Returns:
        A model of the same class with ``n`` more rows.

    Raises:
        UnsupportedError: If this kind of model cannot be conditioned.
        ValueError: If the model's outcome transform does not map an outcome to a finite number.
    """
    check_double("X", X)
    check_double("Y", Y)
    extra_noise = check_nonnegative("extra_noise", extra_noise)
    check_one_of("noise_unit", noise_unit, ("outcome", "prior"))
    if isinstance(model, ModelListGP):
        columns = Y.split([submodel.num_outputs for submodel in model.models], dim=-1)
        pairs = zip(model.models, columns, strict=True)
        return ModelListGP(*(condition(sub, X, y, extra_noise, noise_unit) for sub, y in pairs))
    if transform_of(model) is not None:
        for values in Y.detach().reshape(-1, Y.shape[-1]).unique(dim=0).tolist():
            check_transformable("an outcome", model, values)
    if not _is_exact(model):
        raise UnsupportedError(_refusal(model, "it is not an exact Gaussian process"))
    options = {}
    if isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        options["noise"] = _mean_noise(model, Y)
    if isinstance(model, MultiTaskGP):
        if model.num_outputs > 1:
            reason = "it has several output tasks; build it with output_tasks=[one of them]"
            raise UnsupportedError(_refusal(model, reason))
        X = insert_task(model, X)
    if not isinstance(model, AbstractFullyBayesianSingleTaskGP):
        X = X.expand(*Y.shape[:-2], *X.shape[-2:])
    # even if inputs are perturbed, a pending point is the point itself
    with torch.no_grad(), fantasize():
        model.posterior(X[..., :1, :])  # GPyTorch extends the caches of an evaluated model only
        try:
            conditioned = model.condition_on_observations(X, Y, **options)
        except (NotImplementedError, AttributeError, RuntimeError) as error:
            raise UnsupportedError(_refusal(model, str(error))) from error
    if extra_noise > 0.0:
        _add_noise(conditioned, X.shape[-2], extra_noise, noise_unit)
    return conditioned


def hallucinate(model: Model, X: Tensor) -> Model:
    """Return ``model`` conditioned on its own posterior mean at ``X``.

    The posterior mean is unchanged and the posterior variance shrinks as if the outcomes at ``X``
    were known, which is how GP-BUCB treats pending points (Desautels, Krause and Burdick 2014).

    An exact Gaussian process gets ``X`` as new rows, with the noise of its likelihood or the mean
    of ``train_Yvar``. For every other model, the joint posterior with ``X`` is conditioned instead,
    which gives the same numbers; the noise at ``X`` is what ``observation_noise=True`` adds to the
    model's posterior there (for ``MultiTaskGP``, the noise of each task, and with ``train_Yvar``
    the mean of each task).

    Args:
        model: An exact Gaussian-process model, or any other whose posterior is Gaussian; for a
            finite ensemble, the mean and covariance of its members are used.
        X: ``n x d`` pending points in raw inputs.

    Raises:
        UnsupportedError: If the model is not an exact Gaussian process and its posterior is not
            Gaussian (an outcome transform such as ``Log``), has no joint covariance or no noise.
    """
    if isinstance(model, ModelListGP):
        parts = [hallucinate(submodel, X) for submodel in model.models]
        is_exact = not any(isinstance(part, PendingModel) for part in parts)
        return ModelListGP(*parts) if is_exact else PendingModel(model, X)
    # rows of several tasks have a column for the task and their own noise
    if not _is_exact(model) or isinstance(model, MultiTaskGPyTorchModel | KroneckerMultiTaskGP):
        return PendingModel(model, X)
    with torch.no_grad(), fantasize():
        posterior = model.posterior(X)
        if isinstance(posterior, TransformedPosterior):
            # under a log-normal distribution, for example, the Gaussian process has its mean at the
            # median
            base_samples = X.new_zeros(1, *posterior.base_sample_shape)
            Y = posterior.rsample_from_base_samples(torch.Size([1]), base_samples).squeeze(0)
        else:
            Y = posterior.mean  # an ensemble has its members in the batch shape
    try:
        return condition(model, X, Y)
    except UnsupportedError:  # an exact Gaussian process that does not accept rows after all
        return PendingModel(model, X)


def _is_exact(model: Model) -> bool:
    return isinstance(model, ExactGP) and isinstance(model, GPyTorchModel)


def _mean_noise(model: ExactGP, Y: Tensor) -> Tensor:
    levels = model.likelihood.noise  # ``batch_shape x (m) x n``, in transformed outcome units
    if levels.shape[-1] == 0:
        raise UnsupportedError(_refusal(model, "it has no rows to take a noise level from"))
    if isinstance(model, MultiTaskGP) and bool(is_of_output_task(model).any()):
        levels = levels[..., is_of_output_task(model)]
    mean = levels.mean(dim=-1, keepdim=True)
    mean = mean.unsqueeze(-1) if model.num_outputs == 1 else mean.transpose(-1, -2)
    return mean.expand_as(Y)


def _add_noise(model: ExactGP, num_rows: int, extra_noise: float, noise_unit: str) -> None:
    """Add noise to the last rows of a model that is not shared."""
    if noise_unit == "prior":
        with torch.no_grad():
            extra = extra_noise * prior_variance_of(model.covar_module, model.train_inputs[0])
    else:
        try:
            extra = extra_noise / outcome_units(model)[0] ** 2
        except UnreadablePriorError as error:
            reason = f"{error}, so the unit of extra noise is unknown"
            raise UnsupportedError(_refusal(model, reason)) from error
    targets = model.train_targets  # ``batch_shape x (m) x n``
    with torch.no_grad():
        rows = model.likelihood.noise
        repeats = getattr(model.likelihood, "repeats", None)
        levels = (rows if repeats is None else rows / repeats).expand_as(targets).clone()
        levels[..., -num_rows:] += extra.unsqueeze(-1)
    with settings.min_fixed_noise(double_value=0.0):  # it would silently raise small levels
        model.likelihood = FixedNoiseGaussianLikelihood(levels).eval()
    model.prediction_strategy = None


def _refusal(model: Model, reason: str) -> str:
    return (
        f"{type(model).__name__} cannot take pseudo-observations for pending points: {reason}. Use "
        "an exact Gaussian process (SingleTaskGP, BanditGP, ModelListGP of such), or leave "
        "X_pending out."
    )

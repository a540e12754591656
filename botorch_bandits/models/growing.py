"""How :class:`~botorch_bandits.BanditGP` grows row by row and uses only some of its rows.

This applies to one output without batches, fixed inputs and a kernel that
:class:`~botorch_bandits.models.composed_kernels.ComposedKernel` can read. In all other cases,
BoTorch and GPyTorch handle the same data as for any ``SingleTaskGP``.
"""

from __future__ import annotations

import copy
import math
import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import botorch.settings
import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform, Normalize
from botorch.models.transforms.outcome import Standardize
from botorch.posteriors import GPyTorchPosterior
from gpytorch import settings
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor
from torch.nn import Module

from botorch_bandits.checks import (
    DTYPE,
    check_double,
    check_finite,
    check_integer,
    check_matrix,
    check_number,
)
from botorch_bandits.confidence.width_rules import PriorSummary
from botorch_bandits.core.kernels import StationaryKernel
from botorch_bandits.models.closed_form import (
    CachedPosterior,
    ClosedForm,
    LeanPosterior,
    marginals,
    parts_of,
)
from botorch_bandits.models.composed_closed_form import can_be_composed, composed_form_of
from botorch_bandits.models.means import read_constant_mean
from botorch_bandits.models.module_copies import copy_modules
from botorch_bandits.models.row_deletion import posterior_without_first_rows


def has_closed_posterior(model: SingleTaskGP) -> bool:
    """Return whether the data and hyperparameters of a model are such that it has a closed form.

    It must be in evaluation mode and have at least one row, one output, no batches, float64 data, a
    kernel that ``ComposedKernel`` can read, a constant mean, noise that ``read_noise`` can read,
    outcomes that are raw or standardized, and input transforms that map each row to one row both in
    training and in evaluation.
    """
    inputs, targets = model.train_inputs[0], model.train_targets
    kernel, likelihood, mean, *_ = parts_of(model)
    transform = model._modules.get("input_transform")
    if (
        model.training
        or type(model).forward is not SingleTaskGP.forward
        or model.num_outputs != 1
        or len(model.train_inputs) != 1
        or inputs.dim() != 2
        or targets.dim() != 1
        or targets.shape[0] == 0
        or inputs.dtype != DTYPE
        or (inputs.requires_grad or targets.requires_grad)
        or read_constant_mean(mean) is None
        or read_standardization(model._modules.get("outcome_transform")) is None
    ):
        return False
    if transform is not None and not (
        transform.transform_on_train
        and transform.transform_on_eval
        and not transform.is_one_to_many
    ):
        return False
    if type(likelihood) is GaussianLikelihood and model.likelihood.noise.numel() == 1:
        form = StationaryKernel.read(kernel)
        if form is not None:
            return len(form.lengthscale) in (1, inputs.shape[-1])
    return can_be_composed(model)


class Standardization(NamedTuple):
    """The affine map from the model's outcomes to raw ones: ``mean + unit * outcome``.

    Attributes:
        mean: 0 if outcomes are not transformed.
        unit: Positive; 1 if outcomes are not transformed.
    """

    mean: float = 0.0
    unit: float = 1.0


def read_standardization(transform: Module | None) -> Standardization | None:
    """Return how raw outcomes follow from those of a model with one output.

    Args:
        transform: The model's outcome transform, if it has one.

    Returns:
        None if the transform is not BoTorch's ``Standardize`` of one column, or has seen no
        outcomes.
    """
    if transform is None:
        return Standardization()
    scale: Any = transform
    if type(transform) is not Standardize or scale.means.numel() != 1 or not scale._is_trained:
        return None
    return Standardization(scale.means.item(), scale.stdvs.item())


def closed_form_of(model: SingleTaskGP) -> ClosedForm | None:
    """Factorize the kernel matrix of a model for which :func:`has_closed_posterior` is true.

    Returns:
        The posterior in raw outcomes, of inputs as the kernel sees them; None if the matrix cannot
        be factorized in float64.
    """
    # results that were computed in inference mode must be usable outside of it
    with torch.inference_mode(False), torch.no_grad():
        y, prior_mean, unit = _in_raw_outcomes(model)
        stationary = _read_stationary(model, unit)
        if stationary is None:
            return composed_form_of(model, y, prior_mean, unit)
        form, noise = stationary
        return ClosedForm.of_data(form, noise, model.train_inputs[0], y, prior_mean)


def _in_raw_outcomes(model: SingleTaskGP) -> tuple[Tensor, float, float]:
    """Return outcomes and prior mean in raw units, and the unit of the model's own outcomes."""
    prior_mean = read_constant_mean(model.mean_module)
    scale = read_standardization(model._modules.get("outcome_transform"))
    assert prior_mean is not None
    assert scale is not None
    if scale == Standardization():
        return model.train_targets, prior_mean, 1.0
    # standardizing outcomes changes their unit, which changes a Gaussian process in the same way
    y = scale.mean + scale.unit * model.train_targets
    return y, scale.mean + scale.unit * prior_mean, scale.unit


def _read_stationary(model: SingleTaskGP, unit: float) -> tuple[StationaryKernel, float] | None:
    """Return kernel and noise variance in raw outcomes; None for other kernels or noise."""
    form = StationaryKernel.read(model.covar_module)
    if form is None or type(model.likelihood) is not GaussianLikelihood:
        return None
    noise = model.likelihood.noise.detach().item()
    if unit == 1.0:
        return form, noise
    return replace(form, outputscale=form.outputscale * unit**2), noise * unit**2


def joint_moments_of(model: SingleTaskGP, X: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return mean and covariance at many points, if :func:`has_closed_posterior` is true.

    Nothing is kept, memory is passed few times, and only the rows need a Cholesky factor.

    Args:
        model: The model, which is not changed.
        X: ``n x d`` raw points; gradients do not flow through them.

    Returns:
        ``n`` and ``n x n`` in raw outcomes, the latter symmetric up to rounding; None if
        :class:`ClosedForm` does not support the kernel or the noise, or if the factorization fails.
    """
    with torch.no_grad():
        y, prior_mean, unit = _in_raw_outcomes(model)
        stationary = _read_stationary(model, unit)
        if stationary is None:
            return None
        form, noise = stationary
        rows, points = model.train_inputs[0], model.transform_inputs(X)
        own = form.matrix(rows, rows)
        own.diagonal().add_(noise)
        factor, info = torch.linalg.cholesky_ex(own)
        if bool(info):
            return None
        both = torch.cat([form.matrix(rows, points), (y - prior_mean).unsqueeze(-1)], dim=-1)
        solved = torch.linalg.solve_triangular(factor, both, upper=False)
        solved, outcomes = solved[:, :-1], solved[:, -1]
        covariance = form.matrix(points, points)
        covariance.addmm_(solved.mT, solved, alpha=-1.0)
        variance = (form.outputscale - solved.square().sum(0)).clamp_min_(0.0)
        covariance.diagonal().copy_(variance)
        return prior_mean + outcomes @ solved, covariance


def of_raw_inputs(
    closed_form: ClosedForm, transform: InputTransform | None
) -> ClosedForm | TransformedClosedForm:
    """Return a posterior as a function of the inputs before the model's input transform.

    Args:
        closed_form: A posterior of inputs as the kernel sees them.
        transform: A transform in evaluation mode that maps each row to one row, or None.
    """
    if transform is None:
        return closed_form
    units = units_of_columns(transform, closed_form.center)
    if units is None:
        return TransformedClosedForm(closed_form, transform)
    return closed_form.of_inputs_in_units(*units)


def units_of_columns(transform: InputTransform, like: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return side and origin of each column if a transform maps ``x`` to ``(x - o) / s``.

    Args:
        transform: BoTorch's ``Normalize``, or a transform with a method ``units_of_columns(like)``.
        like: ``d`` numbers, one per column.

    Returns:
        None if it is not such a map.
    """
    own: Any = getattr(transform, "units_of_columns", None)
    if own is not None:
        found: tuple[Tensor, Tensor] | None = own(like)
        return found
    if type(transform) is not Normalize or transform.reverse or transform.coefficient.dim() != 2:
        return None
    side, origin = torch.ones_like(like), torch.zeros_like(like)
    columns = getattr(transform, "indices", slice(None))
    side[columns], origin[columns] = transform.coefficient[0].to(side), transform.offset[0].to(side)
    return side, origin


class TransformedClosedForm:
    """A posterior as a function of inputs before a transform, such as an encoding of categories.

    Args:
        closed_form: The closed form in transformed inputs.
        transform: The transform, which maps each row to one row.
    """

    most_steps: int  # of a local search, if the posterior limits them

    def __init__(self, closed_form: ClosedForm, transform: InputTransform) -> None:
        """See the class."""
        self._closed_form = closed_form
        self._transform: Callable[[Tensor], Tensor] = transform
        self.kernel, self.outputscale = closed_form.kernel, closed_form.outputscale
        self.num_rows, self.noise = closed_form.num_rows, closed_form.noise

    def mean_and_variance(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior mean and variance, ``b`` each, at ``b x d`` raw points."""
        with torch.no_grad():
            return self._closed_form.mean_and_variance(self._transform(X))

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return mean, variance and their gradients at ``b x d`` raw points."""
        with torch.enable_grad():
            raw = X.detach().requires_grad_()
            points = self._transform(raw)
        mean, variance, *slopes = self._closed_form.value_and_gradient(points)
        if not points.requires_grad:  # there are only categories
            return mean, variance, torch.zeros_like(X), torch.zeros_like(X)
        of_mean, of_variance = (
            torch.autograd.grad(points, raw, slope, retain_graph=True)[0] for slope in slopes
        )
        return mean, variance, of_mean, of_variance


_LOCK = threading.RLock()
"""Held while a model creates its own parts or is copied, as several threads may read it."""


class _Origin:
    """The immutable parts of a model that are shared with the models that continue it.

    Args:
        modules: The parts by name.
    """

    def __init__(self, modules: dict[str, Module]) -> None:
        """See the class."""
        self.modules: dict[str, Module | None] = dict(modules)
        self.is_shared = False

    def take(self) -> dict[str, Module | None]:
        """Return parts that belong to a single model."""
        if not self.is_shared:
            self.is_shared = True
            return self.modules
        present = {name: part for name, part in self.modules.items() if part is not None}
        return {**self.modules, **copy_modules(present)}


class IncrementalGP(SingleTaskGP):
    """Exact Gaussian process whose posterior grows by one row in ``n^2`` operations.

    The closed form is computed with the first posterior, and again whenever the data or a
    hyperparameter has changed since. Its values have first-order gradients with respect to the
    inputs; gradients with respect to hyperparameters need ``train()`` mode, as with any BoTorch
    model. A posterior reflects the hyperparameters and data of the model at the time of the call.
    """

    learn_hyperparameters: bool
    _kept: dict[str, Any] | None = None
    _cached: CachedPosterior | None = None
    _origin: _Origin | None = None

    @cached_property
    def _modules(self) -> dict[str, Module | None]:
        """The kernel, the likelihood and so on of a model that continues another one.

        Every other model has them from its constructor. Here they are created on first use, because
        copying them takes longer than adding a row.
        """
        state = self.__dict__
        with _LOCK:
            origin = self._origin
            if origin is not None:  # no other thread has been faster
                state["_modules"] = origin.take()
                if self._cached is not None:
                    state["_cached"] = self._cached.with_modules(parts_of(self))
                state["_origin"] = None
        modules: dict[str, Module | None] = state["_modules"]
        return modules

    @property
    def _parts(self) -> Mapping[str, Module | None]:
        """The same parts for reading only, which needs no copies."""
        origin = self._origin
        return self._modules if origin is None else origin.modules

    def __getattr__(self, name: str) -> Any:
        """Look for a parameter or part; see ``torch.nn.Module``."""
        if self._origin is not None:
            self._modules  # noqa: B018
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; see ``torch.nn.Module``, which needs its parts to replace one."""
        if isinstance(value, Module) and self._origin is not None:
            self._modules  # noqa: B018
        super().__setattr__(name, value)

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GPyTorchPosterior:
        """Return the posterior at ``X``; see BoTorch.

        Args:
            X: ``batch_shape x q x d``, raw. Each ``q x d`` is one joint distribution.
            output_indices: Which outputs; all by default.
            observation_noise: Whether to add the noise variance, or a tensor of variances.
            posterior_transform: Applied to the posterior.
        """
        if isinstance(observation_noise, bool):
            lean = self._lean_posterior(X, observation_noise, posterior_transform)
            if lean is not None:
                return lean
        return super().posterior(
            X,
            output_indices=output_indices,
            observation_noise=observation_noise,
            posterior_transform=posterior_transform,
        )

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> Model:
        """Return a new model with the rows ``(X, Y)`` added.

        Args:
            X: ``batch_shape x n' x d`` inputs, raw.
            Y: ``batch_shape' x n' x m`` outcomes; further leading dimensions are fantasies.
            kwargs: Passed on to BoTorch; if there are any, nothing is reused.
        """
        is_plain = not kwargs and X.dim() == Y.dim() == 2 and Y.shape[-1] == 1
        if is_plain and not (X.requires_grad or Y.requires_grad):
            cached = self._current()
            if self._grows(cached):
                return self._with_rows(X, Y, cached)
        if self.prediction_strategy is None:
            with torch.no_grad():  # GPyTorch extends only its own caches
                super().posterior(X[..., :1, :])
        return super().condition_on_observations(X, Y, **kwargs)

    def grows(self) -> bool:
        """Return whether plain rows can be added in ``n^2`` operations each."""
        return self._grows(self._current())

    def with_outcomes(self, Y: Tensor) -> Self:
        """Return a new model with the same inputs and all outcomes replaced.

        This takes ``n^2`` operations, because the factor of the kernel matrix does not depend on
        outcomes.

        Args:
            Y: ``batch_shape x n x m`` outcomes, float64.

        Raises:
            TypeError: If ``Y`` is not a float64 tensor.
            ValueError: If its shape differs from that of the present outcomes, or an entry is not
                finite.
        """
        check_finite("Y", check_double("Y", Y))
        shape = self.train_targets.shape
        if self.num_outputs > 1:
            shape = torch.Size([*shape[:-2], shape[-1], shape[-2]])
        else:
            shape = torch.Size([*shape, 1])
        if Y.shape != shape:
            raise ValueError(
                f"Y has shape {tuple(Y.shape)}, but the outcomes it replaces have shape "
                f"{tuple(shape)}; give one row for each input of the model."
            )
        cached = self._current()
        with torch.inference_mode(False), torch.no_grad():
            Y_own = self._standardized(Y)
            targets = (Y_own.mT if self.num_outputs > 1 else Y_own.squeeze(-1)).clone()
            sibling = self._sibling(self.train_inputs[0], targets)
            if cached is not None and cached.closed_form is not None:
                replaced = cached.closed_form.with_outcomes(Y.squeeze(-1).clone())
                sibling._remember(replaced)
        return sibling

    def without_first_rows(self, num_rows: int, others: IncrementalGP | None = None) -> Self | None:
        """Return a new model without its first rows, in far less time than a factorization takes.

        Args:
            num_rows: The number of rows to leave out, fewer than there are.
            others: A result of this method for a model that differs only in its outcomes; its
                factor is reused.

        Returns:
            None if the posterior has no closed form, or if the noise differs between rows.
            None if the posterior has no closed form, or the noise differs from row to row.
        """
        closed_form = self._closed_form()
        if closed_form is None or type(self._parts["likelihood"]) is not GaussianLikelihood:
            return None
        known = None if others is None else others._closed_form()
        with torch.inference_mode(False), torch.no_grad():
            left = posterior_without_first_rows(closed_form, num_rows, known)
            inputs, targets = self.train_inputs[0][num_rows:], self.train_targets[num_rows:]
            sibling = self._sibling(inputs.clone(), targets.clone())
            if self._parts.get("input_transform") is not None:
                sibling._original_train_inputs = self._original_train_inputs[num_rows:].clone()
            sibling._remember(left)
        return sibling

    def take_posterior(self, closed_form: ClosedForm | None) -> None:
        """Continue from a posterior that has been computed elsewhere, instead of factorizing.

        Args:
            closed_form: The posterior of this model's data and hyperparameters, in inputs as the
                kernel sees them, or None.
        """
        if closed_form is not None and has_closed_posterior(self):
            self._remember(closed_form)

    def has_factor_of(self, other: Any) -> bool:
        """Return whether another model differs only in its outcomes and shares the factor.

        Args:
            other: Any model.
        """
        if not isinstance(other, IncrementalGP):
            return False
        own, others = self._closed_form(), other._closed_form()
        return own is not None and others is not None and own.factor is others.factor

    def continued_by(self, model: Self) -> Self:
        """Let a model with the rows of this one, followed by others, continue from this posterior.

        Args:
            model: A model with the same hyperparameters and no outcome transform; each of its
                further rows is one observation.

        Returns:
            ``model``; it factorizes its kernel matrix itself if it cannot continue from here.
        """
        cached = self._current()
        if cached is None or cached.closed_form is None or not has_closed_posterior(model):
            return model
        inputs, num_rows = model.train_inputs[0], cached.closed_form.num_rows
        if not torch.equal(inputs[:num_rows], self.train_inputs[0]):
            return model
        with torch.inference_mode(False), torch.no_grad():
            targets = model.train_targets[num_rows:]
            grown = cached.closed_form.with_rows(inputs[num_rows:], targets)
        if grown is not None:
            model._remember(grown)
        return model

    @property
    def closed_form(self) -> ClosedForm | TransformedClosedForm | None:
        """The posterior as plain functions of raw inputs.

        None if there are no data, in training mode, with several outputs or batches, with outcome
        transforms other than ``Standardize``, and for kernels without a known closed form.
        """
        closed_form = self._closed_form()
        if closed_form is None:
            return None
        return of_raw_inputs(closed_form, self._parts.get("input_transform"))

    @property
    def factored(self) -> ClosedForm | None:
        """The closed form in the inputs of the kernel, regardless of the input transform."""
        return self._closed_form()

    @property
    def kept(self) -> dict[str, Any] | None:
        """What others keep about rows of this prior from round to round; None to keep nothing."""
        closed_form = None if self._kept is not None else self._closed_form()
        return self._kept if closed_form is None else closed_form.memo

    @kept.setter
    def kept(self, kept: dict[str, Any]) -> None:
        self._kept = kept

    @property
    def running_information_gain(self) -> Tensor | None:
        """The realized information gain from the model's own factor, if there is one."""
        closed_form = self._closed_form()
        return None if closed_form is None else closed_form.information_gain

    @property
    def information_gain(self) -> Tensor:
        r"""The realized gain ``1/2 ln det(I + K / lam)`` in nats, ``batch_shape``.

        Several outputs are independent, so that their gains are added.
        """
        gain = PriorSummary(self).realized_information_gain()
        assert gain is not None
        return gain

    def _lean_posterior(
        self, X: Tensor, observation_noise: bool, posterior_transform: PosteriorTransform | None
    ) -> GPyTorchPosterior | None:
        closed_form = self._closed_form()
        if closed_form is None or X.dim() < 2 or X.numel() == 0:
            return None
        if X.dtype != DTYPE or X.device != closed_form.points.device:
            return None
        transform = self._parts.get("input_transform")
        points = X if transform is None else transform(X)
        if points.shape[-1] != closed_form.dim or points.shape[:-1] != X.shape[:-1]:
            return None
        shape = points.shape[:-1]
        noise = closed_form.noise if observation_noise else 0.0
        covariance: Callable[[], Tensor] | None = None
        if shape[-1] > 1:
            if torch.is_grad_enabled() and points.requires_grad:
                return None
            covariance = partial(_noisy_covariance, closed_form, points, noise)
        mean, variance = marginals(closed_form, points.reshape(-1, closed_form.dim), noise)
        posterior = LeanPosterior(mean.view(shape), variance.view(shape), covariance)
        if posterior_transform is not None:
            return posterior_transform(posterior=posterior, X=points)
        return posterior

    def _grows(self, cached: CachedPosterior | None) -> bool:
        if self.training or type(self._parts["likelihood"]) is not GaussianLikelihood:
            return False
        return (cached is not None and cached.closed_form is not None) or has_closed_posterior(self)

    def _closed_form(self) -> ClosedForm | None:
        if self.training or settings.prior_mode.on() or botorch.settings.propagate_grads.on():
            return None
        cached = self._current()
        if cached is None:
            closed_form = closed_form_of(self) if has_closed_posterior(self) else None
            cached = self._remember(closed_form)
        return cached.closed_form

    def _current(self) -> CachedPosterior | None:
        """What has been computed, unless something has changed since."""
        cached = self._cached
        return cached if cached is not None and cached.is_current(self) else None

    def _remember(self, closed_form: ClosedForm | None) -> CachedPosterior:
        modules = parts_of(self) if self._origin is None else ()
        cached = CachedPosterior.of(self, closed_form, modules)
        self.__dict__["_cached"] = cached
        return cached

    def _with_rows(self, X: Tensor, Y: Tensor, cached: CachedPosterior | None) -> Self:
        check_double("X", X)
        check_double("Y", Y)
        if not math.isfinite((X.sum() + Y.sum()).item()):  # one pass over all entries
            check_finite("X", X)
            check_finite("Y", Y)
        transform = self._parts.get("input_transform")
        raw = self.train_inputs[0] if transform is None else self._original_train_inputs
        if X.shape[-1] != raw.shape[-1] or len(X) != len(Y):
            raise ValueError(
                f"X has shape {tuple(X.shape)} and Y {tuple(Y.shape)}; they must be n' x "
                f"{raw.shape[-1]} and n' x 1, because the model's inputs have {raw.shape[-1]} "
                "columns. A single point x becomes one row with x.unsqueeze(0)."
            )
        with torch.inference_mode(False), torch.no_grad():
            points = X if transform is None else transform(X)
            inputs = torch.cat([self.train_inputs[0], points])
            targets = torch.cat([self.train_targets, self._standardized(Y).squeeze(-1)])
            sibling = self._sibling(inputs, targets)
            if transform is not None:
                sibling._original_train_inputs = torch.cat([raw, X])
            if cached is not None and cached.closed_form is not None:
                grown = cached.closed_form.with_rows(points, Y.squeeze(-1))
                if grown is not None:  # otherwise the new model factorizes from scratch
                    sibling._remember(grown)
        return sibling

    def _sibling(self, inputs: Tensor, targets: Tensor) -> Self:
        """Return a model with other data and its own copies of the same hyperparameters."""
        sibling = copy.copy(self)
        state = sibling.__dict__
        for name, value in state.items():
            if isinstance(value, dict | set):
                state[name] = value.copy()
        # GPyTorch's hook is bound to this model and would keep it alive; this one holds a weak
        # reference
        state["_load_state_dict_pre_hooks"] = OrderedDict()
        sibling._register_load_state_dict_pre_hook(
            type(self)._load_state_hook_ignore_shapes, with_module=True
        )
        origin = state.get("_origin")  # marked as shared by __getstate__
        if origin is None:
            origin = _Origin(copy_modules(state.pop("_modules")))
        # bypass nn.Module, which looks for parameters in every attribute
        state.update(
            train_inputs=(inputs,),
            _train_targets=targets,
            prediction_strategy=None,
            _cached=None,
            _origin=origin,
        )
        return sibling

    def _standardized(self, Y: Tensor) -> Tensor:
        """Outcomes in the model's own units, without changing what the transform has learned."""
        scale = read_standardization(self._parts.get("outcome_transform"))
        assert scale is not None
        return Y if scale == Standardization() else (Y - scale.mean) / scale.unit

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> Self:
        # BoTorch converts the model in every evaluation, nearly always to the dtype and device it
        # has
        cached = self._current()
        if cached is not None:
            transform = self._modules.get("input_transform")
            with torch.no_grad():
                data = [cached.inputs, cached.targets]
                if transform is not None:
                    data += [self._original_train_inputs, *transform.buffers()]
                if all(fn(tensor) is tensor for tensor in data) and all(
                    stamp.is_left_alone_by(fn) for stamp in cached.stamps
                ):
                    return self
        return super()._apply(fn)

    def __getstate__(self) -> dict[str, Any]:
        """Keep copies and pickles small: they factorize again on first use."""
        with _LOCK:
            if self._origin is not None:
                self._origin.is_shared = True
            return vars(self) | {"_cached": None}


def _noisy_covariance(closed_form: ClosedForm, X: Tensor, noise: float) -> Tensor:
    covariance = closed_form.covariance(X)
    covariance.diagonal(dim1=-2, dim2=-1).add_(noise)
    return covariance


class DataViews(IncrementalGP):
    """A model that provides views with pending rows censored, or without its oldest rows.

    Views have the model's kernel, noise and prior mean, and the model itself is not changed.
    """

    def censored(self, X: Tensor, minimum: float) -> Model:
        """Return a view: the model with pending queries at the known minimum.

        This model is not changed. Each plain row costs ``n^2`` operations if the kernel's closed
        form is known. When an outcome arrives, :meth:`with_outcomes` replaces the pseudo-outcome
        and keeps the factor of the kernel matrix; a query that is lost keeps the minimum.

        Source: Verma, Dai and Low 2022, section 3.1. The theorem assumes that the prior mean equals
        the minimum: pass ``prior_mean=minimum`` to the model.

        Args:
            X: ``n' x d`` pending queries, raw, float64.
            minimum: The smallest possible outcome, in outcome units.

        Raises:
            TypeError: If ``X`` is not float64.
            ValueError: If ``X`` is not a finite matrix, or ``minimum`` is not finite.

        Example:
            >>> import torch
            >>> from gpytorch.kernels import RBFKernel
            >>> from botorch_bandits import BanditGP
            >>> X = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
            >>> Y = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
            >>> model = BanditGP(X, Y, kernel=RBFKernel(), noise=0.01)
            >>> waiting = model.censored(torch.tensor([[3.0]], dtype=torch.float64), minimum=0.0)
            >>> waiting.train_targets.tolist()
            [1.0, 2.0, 0.0]
            >>> arrived = waiting.with_outcomes(torch.cat([Y, Y[:1]]))
            >>> arrived.train_targets.tolist()
            [1.0, 2.0, 1.0]
        """
        X = check_matrix("X", check_double("X", X))
        shape = (*self.batch_shape, len(X), self.num_outputs)
        pseudo = X.new_full(shape, check_number("minimum", minimum))
        return self.condition_on_observations(X, pseudo) if len(X) else self

    def since(self, row: int) -> Self:
        """Return a view: the model of the data from a given row on, as after a reset.

        Args:
            row: The first row that is kept, from 0. If it equals the number of rows, none is kept,
                which leaves the prior.

        Raises:
            TypeError: If ``row`` is not an integer.
            ValueError: If there is no such row, or if rows are means of several observations, which
                have no order in time.

        Example:
            >>> import torch
            >>> from gpytorch.kernels import RBFKernel
            >>> from botorch_bandits import BanditGP
            >>> X = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
            >>> model = BanditGP(X, X.sin(), kernel=RBFKernel(), noise=0.01)
            >>> model.since(1).train_inputs[0].tolist()
            [[1.0], [2.0]]
        """
        num_rows = self.train_targets.shape[-1]
        if check_integer("row", row, minimum=0) > num_rows:
            raise ValueError(f"row is {row}, but the model has {num_rows} rows, numbered from 0.")
        if getattr(self._parts["likelihood"], "repeats", None) is not None:
            raise ValueError(
                "the model has repeats=: its rows are means of several observations, which have no "
                "order in time. Build the model from single observations."
            )
        Y = self.train_targets.mT if self.num_outputs > 1 else self.train_targets.unsqueeze(-1)
        return self._with_data(self._raw_inputs[..., row:, :], Y[..., row:, :])

    @property
    @abstractmethod
    def _raw_inputs(self) -> Tensor:
        """``batch_shape x n x d``, before any input transform."""

    @abstractmethod
    def _with_data(self, X: Tensor, Y: Tensor) -> Self:
        """Return a new model with the same settings and other data."""

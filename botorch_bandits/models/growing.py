"""How :class:`~botorch_bandits.BanditGP` grows row by row and uses only some of its rows.

This applies to one output without batches and fixed inputs. In all other cases, BoTorch and
GPyTorch handle the same data as for any ``SingleTaskGP``.
"""

from __future__ import annotations

import copy
import itertools
import math
import operator
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
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
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
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
from botorch_bandits.core.box import BoxPosterior, IndefiniteError
from botorch_bandits.core.kernels import kernel_function
from botorch_bandits.models.ensembles import LeanPosterior
from botorch_bandits.models.likelihoods import RepeatedGaussianLikelihood
from botorch_bandits.models.means import read_constant_mean


class Noise(NamedTuple):
    """The noise variances of the rows of a model, ``level / weights``.

    Attributes:
        level: The noise variance of a row of weight 1, and of a further observation.
        weights: ``n``; None if all are 1.
    """

    level: float
    weights: Tensor | None = None


def read_noise(likelihood: Module, num_rows: int) -> Noise | None:
    """Return the noise of a model's rows in the model's own units, if it is known.

    Args:
        likelihood: The likelihood of the model.
        num_rows: The number of its rows.

    Returns:
        None unless the noise is Gaussian with one variance for all rows, one variance divided by a
        number of repeats, or a fixed variance for each row.
    """
    module: Any = likelihood
    if type(likelihood) is GaussianLikelihood:
        return Noise(module.noise.detach().item()) if module.noise.numel() == 1 else None
    if type(likelihood) is RepeatedGaussianLikelihood:
        repeats = module.repeats
        if repeats.shape != (num_rows,) or module.noise.numel() != 1:
            return None
        return Noise(module.noise.detach().item(), repeats)
    if type(likelihood) is FixedNoiseGaussianLikelihood:
        levels = module.noise_covar.noise
        if module.second_noise_covar is not None or levels.shape != (num_rows,):
            return None
        level = levels.mean().item()
        return Noise(level, level / levels)
    return None


def has_closed_posterior(model: SingleTaskGP) -> bool:
    """Return whether the posterior of a model follows from its data by the textbook formulas.

    It must be in evaluation mode and have at least one row, one output, no batches, float64 data, a
    constant mean, noise that :func:`read_noise` can read, outcomes that are raw or standardized,
    and input transforms that map each row to one row both in training and in evaluation.
    """
    inputs, targets = model.train_inputs[0], model.train_targets
    transform = model._modules.get("input_transform")
    return not (
        model.training
        or type(model).forward is not SingleTaskGP.forward
        or model.num_outputs != 1
        or model.covar_module.batch_shape
        or len(model.train_inputs) != 1
        or inputs.dim() != 2
        or targets.dim() != 1
        or targets.shape[0] == 0
        or inputs.dtype != DTYPE
        or (inputs.requires_grad or targets.requires_grad)
        or read_constant_mean(model.mean_module) is None
        or read_standardization(model._modules.get("outcome_transform")) is None
        or read_noise(model.likelihood, len(inputs)) is None
        or not (transform is None or _keeps_rows(transform))
    )


def _keeps_rows(transform: Any) -> bool:
    is_always_on = transform.transform_on_train and transform.transform_on_eval
    return bool(is_always_on and not transform.is_one_to_many)


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


def box_posterior_of(model: SingleTaskGP) -> BoxPosterior | None:
    """Condition on the rows of a model for which :func:`has_closed_posterior` is true.

    Returns:
        The posterior of raw outcomes, of inputs as the kernel sees them; None if the kernel matrix
        cannot be factorized in float64.
    """
    inputs = model.train_inputs[0]
    scale = read_standardization(model._modules.get("outcome_transform"))
    noise, mean = read_noise(model.likelihood, len(inputs)), read_constant_mean(model.mean_module)
    assert scale is not None
    assert noise is not None
    assert mean is not None
    # results that are computed in inference mode must be usable outside of it
    with torch.inference_mode(False), torch.no_grad():
        # standardizing outcomes changes their unit, which changes a Gaussian process the same way
        variance = scale.unit**2
        y = model.train_targets
        if scale != Standardization():
            y, mean = scale.mean + scale.unit * y, scale.mean + scale.unit * mean
        kernel = kernel_function(model.covar_module, inputs.shape[-1], variance)
        try:
            level = noise.level * variance
            row_noise = None if noise.weights is None else level / noise.weights
            return BoxPosterior.of(kernel, inputs, y, level, mean, row_noise)
        except IndefiniteError:
            return None


def closed_form_of(model: Model) -> BoxPosterior | None:
    """Return the posterior of raw outcomes as plain functions of raw inputs, if it has that form.

    Args:
        model: Any model; it is put into evaluation mode, as its own ``posterior`` does.
    """
    if isinstance(model, IncrementalGP):
        return model.eval().closed_form
    # a subclass may have another posterior
    is_plain = isinstance(model, SingleTaskGP) and all(
        getattr(type(model), name) is getattr(SingleTaskGP, name)
        for name in ("posterior", "transform_inputs")
    )
    if not is_plain or not has_closed_posterior(model.eval()):
        return None
    box = box_posterior_of(model)
    return None if box is None else replace(box, transform=transform_of(model))


def transform_of(model: SingleTaskGP) -> Callable[[Tensor], Tensor] | None:
    """Return the map from raw points to those that the kernel of a model sees, if it has one."""
    transform: Any = model._modules.get("input_transform")
    if transform is None:
        return None
    if not hasattr(model, "_original_train_inputs"):
        return transform
    units = units_of_columns(transform, model._original_train_inputs[0])
    if units is None:
        return transform
    side, origin = units
    return lambda X: (X - origin) / side  # without the checks of BoTorch, which take longer


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


class Snapshot:
    """The state of some modules and tensors, to detect every change since.

    All attributes of modules are compared by identity, tensors by version as well, and parameters
    by value, because GPyTorch sets them without updating torch's version counters.

    Args:
        parts: Modules with few parameters, without those inside them.
        tensors: Tensors, such as data.
    """

    def __init__(self, parts: Sequence[Module], tensors: Iterable[Tensor]) -> None:
        """See the class."""
        self._tables = [
            table
            for part in parts
            for table in (vars(part), part._parameters, part._buffers, part._modules)
        ]
        self._objects = self._current_objects()
        self._parameters = [
            (value, value.detach().clone())
            for part in parts
            for value in part._parameters.values()
            if value is not None
        ]
        self._tensors = [*tensors, *(each for each in self._objects if isinstance(each, Tensor))]
        self._versions = [version(each) for each in self._tensors]

    def is_current(self) -> bool:
        """Return whether nothing has changed since."""
        objects = self._current_objects()
        return (
            len(objects) == len(self._objects)
            and all(map(operator.is_, objects, self._objects))
            and all(map(operator.eq, map(version, self._tensors), self._versions))
            and all(each.device == value.device for each, value in self._parameters)
            and all(torch.equal(each, value) for each, value in self._parameters)
        )

    def is_left_alone_by(self, function: Callable[[Tensor], Tensor]) -> bool:
        """Return whether ``function`` returns every tensor itself, as idle conversions do."""
        return all(function(tensor) is tensor for tensor in self._tensors)

    def _current_objects(self) -> list[Any]:
        return list(itertools.chain.from_iterable(map(dict.values, self._tables)))


def version(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place, as far as PyTorch knows."""
    return 0 if tensor.is_inference() else int(tensor._version)


class _Cached(NamedTuple):
    """A model's posterior, or None if it has none, and the state to which it belongs."""

    box: BoxPosterior | None
    inputs: Tensor
    targets: Tensor
    parts: tuple[Module, ...]
    snapshot: Snapshot


class IncrementalGP(SingleTaskGP):
    """Exact Gaussian process whose posterior grows by one row in ``n^2`` operations.

    The posterior is computed with its first use, and again whenever the data or a hyperparameter
    has changed since. Its values have first-order gradients with respect to the inputs; gradients
    with respect to hyperparameters need ``train()`` mode, as with any BoTorch model.
    """

    learn_hyperparameters: bool
    _kept: dict[str, Any] | None = None
    _cached: _Cached | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Build the model from the ``args`` and ``kwargs`` of ``SingleTaskGP``."""
        super().__init__(*args, **kwargs)
        # GPyTorch's hook is bound to the model, which would stay in memory, with its matrix, until
        # the garbage is collected; this one has a weak reference
        self._load_state_dict_pre_hooks: OrderedDict[int, Any] = OrderedDict()
        hook = type(self)._load_state_hook_ignore_shapes
        self._register_load_state_dict_pre_hook(hook, with_module=True)

    @property
    def repeats(self) -> Tensor | None:
        """The number of observations of which each row is the mean; None if all are single."""
        return getattr(self.likelihood, "repeats", None)

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
        """Return a new model with the rows ``(X, Y)`` added, as single observations.

        Args:
            X: ``batch_shape x n' x d`` inputs, raw.
            Y: ``batch_shape' x n' x m`` outcomes; further leading dimensions are fantasies.
            kwargs: Passed on to BoTorch; if there are any, nothing is reused.
        """
        is_plain = not kwargs and X.dim() == Y.dim() == 2 and Y.shape[-1] == 1
        is_fixed = type(self.likelihood) is FixedNoiseGaussianLikelihood
        if is_plain and not (X.requires_grad or Y.requires_grad or is_fixed):
            box = self._box()
            if box is not None:
                return self._with_rows(X, Y, box)
        if self.prediction_strategy is None:
            with torch.no_grad():  # GPyTorch extends only its own caches
                super().posterior(X[..., :1, :])
        return super().condition_on_observations(X, Y, **kwargs)

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
        box = self._box()
        with torch.inference_mode(False), torch.no_grad():
            own = self._standardized(Y)
            targets = (own.mT if self.num_outputs > 1 else own.squeeze(-1)).clone()
            sibling = self._sibling(self.train_inputs[0], targets)
            if box is not None:
                sibling._remember(box.with_outcomes(Y.squeeze(-1)))
        return sibling

    def grows(self) -> bool:
        """Return whether plain rows can be added in ``n^2`` operations each."""
        return self._box() is not None

    @property
    def closed_form(self) -> BoxPosterior | None:
        """The posterior of raw outcomes as plain functions of raw inputs.

        None if there are no data, in training mode, with several outputs or batches, and with
        outcome transforms other than ``Standardize``.
        """
        box = self._box()
        return None if box is None else replace(box, transform=transform_of(self))

    @property
    def factored(self) -> BoxPosterior | None:
        """The same of inputs as the kernel sees them, regardless of the input transform."""
        return self._box()

    @property
    def kept(self) -> dict[str, Any] | None:
        """What others keep about rows of this prior from round to round; None to keep nothing."""
        box = None if self._kept is not None else self._box()
        return self._kept if box is None else box.memo

    @kept.setter
    def kept(self, kept: dict[str, Any]) -> None:
        self._kept = kept

    @property
    def running_information_gain(self) -> Tensor | None:
        """The realized information gain from the model's own factor, if there is one."""
        box = self._box()
        return None if box is None else box.information_gain

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
        box = self._box()
        if box is None or X.dim() < 2 or X.numel() == 0:
            return None
        if X.dtype != DTYPE or X.device != box.X.device:
            return None
        transform = transform_of(self)
        points = X if transform is None else transform(X)
        shape, dim = points.shape[:-1], box.X.shape[-1]
        if points.shape[-1] != dim or shape != X.shape[:-1]:
            return None
        noise = box.noise if observation_noise else box.noise.new_zeros(())
        # at prior variance 1, this is the smallest variance of GPyTorch
        lowest = settings.min_variance.value(X.dtype) * box.outputscale
        mean, variance = box.moments(points.reshape(-1, dim))
        mean, variance = mean.view(shape), (variance + noise).clamp_min(lowest).view(shape)
        covariance: Callable[[], Tensor] | None = None
        if shape[-1] > 1:
            covariance = partial(_covariance, box, points, variance, torch.is_grad_enabled())
        posterior = LeanPosterior(mean, variance, covariance)
        if posterior_transform is not None:
            return posterior_transform(posterior=posterior, X=points)
        return posterior

    def _box(self) -> BoxPosterior | None:
        """The posterior of inputs as the kernel sees them, unless GPyTorch must compute it."""
        if self.training or settings.prior_mode.on() or botorch.settings.propagate_grads.on():
            return None
        if self._is_current():
            assert self._cached is not None
            return self._cached.box
        return self._remember(box_posterior_of(self) if has_closed_posterior(self) else None)

    def _is_current(self) -> bool:
        cached = self._cached
        return (
            cached is not None
            and self.train_inputs[0] is cached.inputs
            and self.train_targets is cached.targets
            and self._parts == cached.parts
            and cached.snapshot.is_current()
        )

    def _remember(self, box: BoxPosterior | None) -> BoxPosterior | None:
        inputs, targets, parts = self.train_inputs[0], self.train_targets, self._parts
        every = [each for part in parts for each in part.modules()]
        snapshot = Snapshot(every, (inputs, targets))
        # bypass nn.Module, which looks for parameters in every attribute
        self.__dict__["_cached"] = _Cached(box, inputs, targets, parts, snapshot)
        return box

    @property
    def _parts(self) -> tuple[Module, ...]:
        """The modules on which the posterior depends; inputs are kept as the kernel sees them."""
        modules = self._modules  # quicker than the attributes
        parts = (modules["covar_module"], modules["likelihood"], modules["mean_module"])
        transform = modules.get("outcome_transform")
        return parts if transform is None else (*parts, transform)

    def _with_rows(self, X: Tensor, Y: Tensor, box: BoxPosterior) -> Self:
        check_double("X", X)
        check_double("Y", Y)
        if not math.isfinite((X.sum() + Y.sum()).item()):  # one copy from a device
            check_finite("X", X)
            check_finite("Y", Y)
        transform = self._modules.get("input_transform")
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
            if self.repeats is not None:
                ones = self.repeats.new_ones(len(X))
                sibling.likelihood.noise_covar.repeats = torch.cat([self.repeats, ones])
            try:
                sibling._remember(box.with_rows(points, Y.squeeze(-1)))
            except IndefiniteError:  # the new model leaves it to GPyTorch
                sibling._remember(None)
        return sibling

    def _sibling(self, inputs: Tensor, targets: Tensor) -> Self:
        """Return a model with other data and its own copies of the same hyperparameters."""
        shared = (self.train_inputs[0], self.train_targets, self._kept)  # not to be copied
        sibling = copy.deepcopy(self, {id(each): each for each in shared if each is not None})
        sibling.__dict__.update(
            train_inputs=(inputs,), _train_targets=targets, prediction_strategy=None
        )
        return sibling

    def _standardized(self, Y: Tensor) -> Tensor:
        """Outcomes in the model's own units, without changing what the transform has learned."""
        scale = read_standardization(self._modules.get("outcome_transform"))
        assert scale is not None
        return Y if scale == Standardization() else (Y - scale.mean) / scale.unit

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> Self:
        # BoTorch converts the model in every evaluation, nearly always to the dtype and device it
        # has
        cached = self._cached
        if cached is not None and self._is_current():
            others: list[Tensor] = []
            transform = self._modules.get("input_transform")
            if transform is not None:
                others = [self._original_train_inputs, *transform.buffers()]
            with torch.no_grad():
                if cached.snapshot.is_left_alone_by(fn) and all(fn(t) is t for t in others):
                    return self
        applied: Self = super()._apply(fn)
        return applied

    def __getstate__(self) -> dict[str, Any]:
        """Keep copies and pickles small: they factorize again on first use."""
        return vars(self) | {"_cached": None}


def _covariance(box: BoxPosterior, points: Tensor, variance: Tensor, has_graph: bool) -> Tensor:
    """Return the joint covariance of ``... x q x d`` points, with these variances."""
    with torch.set_grad_enabled(has_graph):
        covariance = box.mean_and_covariance(points)[1]
        return covariance.diagonal_scatter(variance, dim1=-2, dim2=-1)


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
        if self.repeats is not None:
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

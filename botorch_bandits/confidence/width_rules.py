"""Width rules, which map a model and a round to a width, and what they read from a model.

:class:`WidthRule` is the base class of all methods' rules. :class:`PriorSummary` reads the
constants of a theorem for a user's model, in raw outcome units: it inspects exact Gaussian-process
models (BoTorch's ``SingleTaskGP`` family, ``ModelListGP`` of them, ensembles and batches) for
kernel, inputs, noise and units without changing them.

Every width function returns ``w``, the factor of the posterior STANDARD DEVIATION: the bound is
``mean + w * standard_deviation``. BoTorch's ``UpperConfidenceBound(beta)`` multiplies by
``sqrt(beta)``, so ``beta = w ** 2``. Logarithms are natural.

The theorems are about a kernel with ``k(x, x) <= 1``, prior mean 0 and the regularization
``lam = (modeled noise variance) / (prior variance)``. Widths for rewards drawn from the Gaussian
process are in :mod:`botorch_bandits.confidence.gp_ucb`, and widths for rewards of bounded norm are
in :mod:`botorch_bandits.confidence.igp_ucb`.

A rule holds a method's ingredients (bounds, delta), reads a model's prior when needed, and handles
units: the constants of a theorem for a unit-variance kernel are divided by the prior standard
deviation of the user's model, so that the width multiplies the posterior standard deviation that
the model reports.

For a scalarization ``sum_j a_j f_j`` of ``m`` independent outputs, each active output gets
``delta / m`` and the widths combine to ``sqrt(sum_j w_j ** 2)``. By the Cauchy-Schwarz inequality,
``sum_j |a_j| w_j sigma_j`` is at most this combined width times
``sqrt(sum_j a_j ** 2 sigma_j ** 2)``, the posterior standard deviation of the scalarization.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, ClassVar, Protocol, overload

import torch
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.models import ModelListGP, MultiTaskGP
from botorch.models.gpytorch import (
    BatchedMultiOutputGPyTorchModel,
    GPyTorchModel,
)
from botorch.models.likelihoods.sparse_outlier_noise import SparseOutlierGaussianLikelihood
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import (
    ChainedOutcomeTransform,
    OutcomeTransform,
    Standardize,
    StratifiedStandardize,
)
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    HadamardGaussianLikelihood,
)
from gpytorch.means import ZeroMean
from gpytorch.models import ExactGP
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_double,
    check_nonnegative,
    check_one_of,
    check_positive,
    store_checked,
)
from botorch_bandits.confidence.candidates import CandidateEvidence
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.information_gain import GainBound, realized_information_gain
from botorch_bandits.confidence.kernel_reading import (
    ListOfPriorsError,
    check_forward,
    check_tasks,
    constants_of_tasks,
    insert_task,
    noise_of_tasks,
    number_tasks,
    outlier_variances,
    variance_of_output_task,
)
from botorch_bandits.confidence.kernel_reading import (
    UnreadablePriorError as UnreadablePriorError,
)


def _no_gain() -> None:
    """Return None: the information gain is not known yet (a named function can be pickled)."""


@dataclass(frozen=True)
class OutputPrior:
    """The prior of one output; every tensor has the model's batch shape.

    Attributes:
        kernel_matrix: Computes the ``batch_shape x n x n`` kernel matrix of the model's inputs,
            in the model's own (transformed) outcome units.
        noise_variance: Modeled noise variance in the same units; the smallest one if it differs
            between rows.
        prior_variance: Prior variance in the same units: that of the whole kernel if it is
            stationary, otherwise the outer ``ScaleKernel``'s output scale (1 without one).
        outcome_scale: Raw outcome units in one transformed outcome unit.
        learned: A description of what was, or could have been, learned from the same data.
        running_information_gain: A function that returns the realized information gain if the model
            already has it.
        prior_mean: The constant prior mean in the same units (for a batch, the one farthest from
            0); None if it is not constant.
        is_stationary: Whether the prior variance is the same at all points.
        is_given: Whether the model was built from a given prior, as ``BanditGP`` is, so that no
            parameter can have been fitted before it was frozen.
        row_noise: ``batch_shape x n`` noise variances of the rows, in the same units; None if there
            is one level (``noise_variance``).
        has_tasks: Whether rows belong to several tasks, in which case the norm is the norm of all
            their functions together. The output is one of the tasks, and the prior variance is that
            of its function.
    """

    kernel_matrix: Callable[[], Tensor]
    noise_variance: Tensor
    prior_variance: Tensor
    outcome_scale: Tensor
    learned: tuple[str, ...]
    running_information_gain: Callable[[], Tensor | None] = _no_gain
    prior_mean: float | None = 0.0
    is_stationary: bool = True
    is_given: bool = True
    row_noise: Tensor | None = None
    has_tasks: bool = False

    @property
    def lam(self) -> Tensor:
        """The regularization of the theorem: (smallest) noise variance over prior variance."""
        return self.noise_variance / self.prior_variance

    @property
    def first_lam(self) -> Tensor:
        """The regularization of the first row, which is known before all outcomes."""
        first = self.noise_variance if self.row_noise is None else self.row_noise[..., 0]
        return first / self.prior_variance

    @property
    def lam_has_fallen(self) -> bool:
        """Whether the noise of some row is below that of the first one, so that ``lam`` changed."""
        return bool((self.lam < self.first_lam * (1.0 - 1e-12)).any())

    @property
    def standard_deviation(self) -> Tensor:
        """The prior standard deviation ``s`` in raw outcome units."""
        return self.prior_variance.sqrt() * self.outcome_scale

    @cached_property
    def information_gain(self) -> Tensor:
        """The realized information gain of the model's inputs, in nats.

        With ``V`` the diagonal matrix of the rows' noise variances, the gain is
        ``1/2 ln det(I + V^(-1/2) K V^(-1/2))``.
        """
        if self.row_noise is not None:
            root = self.row_noise.rsqrt()
            whitened = self.kernel_matrix() * root.unsqueeze(-1) * root.unsqueeze(-2)
            return realized_information_gain(whitened, 1.0)
        running = self.running_information_gain()
        if running is not None:
            return running
        return realized_information_gain(self.kernel_matrix(), self.noise_variance)


def read_prior(model: Model) -> tuple[OutputPrior, ...]:
    """Read the prior of each output of an exact Gaussian-process model.

    Args:
        model: In training or evaluation mode; it is not changed.

    Returns:
        One entry per output. For a batched model or an ensemble each tensor has the model's
        batch shape.

    Raises:
        UnreadablePriorError: If the model is not an exact Gaussian process with one noise level
            or one per row (``train_Yvar``), a plain kernel and no other outcome transform than
            ``Standardize``.
        ValueError: If the noise variance of a row is unknown.
    """
    if isinstance(model, ModelListGP):
        return tuple(prior for submodel in model.models for prior in read_prior(submodel))
    name = type(model).__name__
    if isinstance(getattr(model, "evidence", None), CandidateEvidence):
        raise ListOfPriorsError("the model is a list of priors")
    if not (isinstance(model, ExactGP) and isinstance(model, GPyTorchModel)):
        raise UnreadablePriorError(f"{name} is not an exact Gaussian process with its own kernel")
    kernel = getattr(model, "covar_module", None)
    if not isinstance(kernel, Kernel) or len(model.train_inputs) != 1:
        raise UnreadablePriorError(f"{name} has no single kernel `covar_module`")
    has_tasks = isinstance(model, MultiTaskGP)
    if has_tasks:
        check_tasks(model)
    elif model.num_outputs > 1 and not isinstance(model, BatchedMultiOutputGPyTorchModel):
        raise UnreadablePriorError(
            f"{name} is not an exact Gaussian process with its own kernel: its kernel joins outputs"
        )
    inputs = kernel_inputs(model)
    own_package = __name__.partition(".")[0]
    if type(model).forward.__module__.partition(".")[0] not in ("botorch", own_package):
        check_forward(model, inputs)
    noise, row_noise, learned = _noise_variance(model)
    # Internally, several outputs are the last batch dimension.
    batch_shape = torch.broadcast_shapes(inputs.shape[:-2], kernel.batch_shape, noise.shape)
    scale, transform_learned = read_outcome_scale(model)
    learned += transform_learned
    if learns_input_scale(getattr(model, "input_transform", None)):
        learned.append("input scale (an input transform without given bounds)")
    learned += [
        f"{parameter_name} (a free parameter)"
        for parameter_name, parameter in model.named_parameters()
        if parameter.requires_grad and not parameter_name.startswith("likelihood.")
    ]

    @cache
    def kernel_matrix() -> Tensor:
        with torch.no_grad():
            matrix = kernel(inputs).to_dense() if inputs.shape[-2] else inputs.new_zeros(0, 0)
        return matrix.expand(*batch_shape, *matrix.shape[-2:])

    with torch.no_grad():
        prior_variance = (
            variance_of_output_task(model, inputs)
            if has_tasks
            else prior_variance_of(kernel, inputs).expand(batch_shape)
        )
    noise, scale = noise.expand(batch_shape), scale.expand(batch_shape)
    if row_noise is not None:
        row_noise = row_noise.expand(*batch_shape, row_noise.shape[-1])
    about_prior: dict[str, Any] = {
        "prior_mean": constant_prior_mean(model),
        "is_stationary": has_tasks or kernel.is_stationary,
        "has_tasks": has_tasks,
        "is_given": getattr(model, "learn_hyperparameters", True) is False,
    }
    if model.num_outputs == 1:
        # a model that grows row by row has factorized its kernel matrix already
        running = partial(getattr, model, "running_information_gain", None)
        told = OutputPrior(kernel_matrix, noise, prior_variance, scale, tuple(learned), running)
        return (replace(told, row_noise=row_noise, **about_prior),)
    return tuple(
        OutputPrior(
            partial(_select_output, kernel_matrix, j),
            noise[..., j],
            prior_variance[..., j],
            scale[..., j],
            tuple(learned),
            row_noise=None if row_noise is None else row_noise[..., j, :],
            **about_prior,
        )
        for j in range(model.num_outputs)
    )


def constant_prior_mean(model: ExactGP) -> float | None:
    """Return the constant of a model's mean, the one farthest from 0; None for other mean modules.

    Args:
        model: A model with a ``mean_module``.
    """
    if isinstance(model, MultiTaskGP):
        of_tasks = {float(value) for value in constants_of_tasks(model)}
        return of_tasks.pop() if len(of_tasks) == 1 else None
    mean = getattr(model, "mean_module", None)
    if isinstance(mean, ZeroMean):
        return 0.0
    constant = getattr(mean, "constant", None)
    if not isinstance(constant, Tensor) or type(mean).__name__ not in ("ConstantMean", "FixedMean"):
        return None
    values: list[float] = constant.detach().reshape(-1).tolist()
    return max(values, key=abs)


def learns_input_scale(transform: InputTransform | None) -> bool:
    """Return whether an input transform takes its scale from the data (``Normalize(d)`` does)."""
    parts = [] if transform is None else transform.modules()
    return any(getattr(part, "learn_coefficients", False) for part in parts)


def _select_output(kernel_matrix: Callable[[], Tensor], output: int) -> Tensor:
    return kernel_matrix()[..., output, :, :]


def kernel_inputs(model: ExactGP) -> Tensor:
    """Return a model's inputs as its kernel sees them; the model is not changed.

    Args:
        model: In training or evaluation mode.
    """
    inputs = model.train_inputs[0].detach()
    transform = getattr(model, "input_transform", None)
    # in training mode BoTorch keeps raw inputs, in evaluation mode their transforms
    if model.training and transform is not None:
        with torch.no_grad():
            inputs = copy.deepcopy(transform).preprocess_transform(inputs)
    return number_tasks(model, inputs) if isinstance(model, MultiTaskGP) else inputs


def inputs_of_kernel(model: ExactGP, X: Tensor) -> Tensor:
    """Return new points as a model's kernel sees them; the model stays in its mode.

    Args:
        model: In training or evaluation mode.
        X: ``... x d`` raw points; differentiable.
    """
    has_tasks = isinstance(model, MultiTaskGP)
    X = insert_task(model, X) if has_tasks else X
    transform = getattr(model, "input_transform", None)
    if transform is not None:
        was_training = transform.training
        try:
            X = transform.eval()(X)
        finally:
            transform.train(was_training)
    return number_tasks(model, X) if has_tasks else X


def _noise_variance(model: ExactGP) -> tuple[Tensor, Tensor | None, list[str]]:
    """Return the smallest noise variance, that of each row if they differ, and what was learned."""
    likelihood = model.likelihood
    is_free = any(parameter.requires_grad for parameter in likelihood.parameters())
    learned = ["likelihood noise (a free parameter)"] if is_free else []
    if isinstance(likelihood, FixedNoiseGaussianLikelihood):
        levels = likelihood.noise.detach()
        if levels.shape[-1] == 0:
            raise UnreadablePriorError("the model has noise at its rows only, and it has no rows")
        unknown = ~(torch.isfinite(levels) & (levels > 0.0)).reshape(-1, levels.shape[-1]).all(0)
        if bool(unknown.any()):
            rows = ", ".join(map(str, unknown.nonzero().squeeze(-1).tolist()))
            raise ValueError(
                f"the observation variances (train_Yvar) of {type(model).__name__} are not finite "
                f"and positive in these rows: {rows}. A width needs a bound on the noise of each "
                "row, known before its outcome: give one for them too, or leave the rows out."
            )
        noise = levels[..., 0]
        if torch.allclose(levels, noise.unsqueeze(-1), rtol=1e-12, atol=0.0):
            return noise, None, learned
        return levels.amin(-1), levels, learned
    if type(likelihood) is GaussianLikelihood or hasattr(likelihood, "repeats"):
        return likelihood.noise.detach().squeeze(-1), None, learned
    of_rows: Tensor | None = None
    if isinstance(likelihood, SparseOutlierGaussianLikelihood):
        of_rows = outlier_variances(model, likelihood, kernel_inputs(model))
        if of_rows is None:
            return likelihood.noise_covar.base_noise.noise.detach().squeeze(-1), None, learned
        learned = [*learned, "noise of rows that look like outliers"]
    if isinstance(likelihood, HadamardGaussianLikelihood) and isinstance(model, MultiTaskGP):
        of_rows = noise_of_tasks(model, likelihood)
    if of_rows is not None:
        return of_rows.amin(-1), of_rows, learned
    raise UnreadablePriorError(f"{type(likelihood).__name__} has no single noise level")


def read_outcome_scale(model: Model) -> tuple[Tensor, list[str]]:
    """Return raw outcome units in one transformed unit, and what was learned to determine it.

    The scale has the model's batch shape, then one entry per output if there are several.

    Raises:
        UnreadablePriorError: If a transform is neither ``Standardize`` nor a chain of them.
    """
    scale, _ = outcome_units(model)
    learned = getattr(model, "outcome_transform", None) is not None
    return scale, ["outcome scale and mean (Standardize)"] if learned else []


def outcome_units(model: Model) -> tuple[Tensor, Tensor]:
    """Return scale and shift of a model's outcomes: raw ones are ``shift + scale * own``.

    Both have the model's batch shape, then one entry per output if there are several. Without an
    outcome transform they are a scalar 1 and a scalar 0.

    Args:
        model: A BoTorch model with training targets.

    Raises:
        UnreadablePriorError: If a transform is neither ``Standardize`` nor a chain of them.
    """
    scale = torch.ones((), dtype=torch.float64, device=model.train_targets.device)
    shift = torch.zeros_like(scale)
    transform = getattr(model, "outcome_transform", None)
    for part in () if transform is None else _standardizations(transform):
        shift = shift + scale * part.means.detach().squeeze(-2)
        scale = scale * part.stdvs.detach().squeeze(-2)
    if model.num_outputs == 1 and scale.dim():
        return scale.squeeze(-1), shift.squeeze(-1)
    return scale, shift


def _standardizations(transform: OutcomeTransform) -> list[Standardize]:
    """Return the transforms that a transform consists of, in the order of their application."""
    if type(transform) is Standardize:
        return [transform]
    if isinstance(transform, ChainedOutcomeTransform):
        return [part for each in transform.values() for part in _standardizations(each)]
    if isinstance(transform, StratifiedStandardize):
        raise UnreadablePriorError("StratifiedStandardize gives each task its own unit")
    raise UnreadablePriorError(f"the outcome transform {type(transform).__name__} is not affine")


def prior_variance_of(kernel: Kernel, inputs: Tensor) -> Tensor:
    """Return the unit in which bounds on the norm are measured; see :class:`OutputPrior`.

    Args:
        kernel: The kernel of the model.
        inputs: ``batch_shape x n x d``, inputs of the model; ``n`` may be 0.
    """
    if kernel.is_stationary:
        if inputs.shape[-2] > 0:
            points = inputs[..., :1, :]
        else:
            points = inputs.new_zeros(*inputs.shape[:-2], 1, inputs.shape[-1])
        return kernel(points, diag=True).squeeze(-1)
    if isinstance(kernel, ScaleKernel):
        return kernel.outputscale.detach()
    return inputs.new_ones(())


ASSUMABLE = ("fixed prior", "centered bound")
"""What a user can state by ``assume=``, because it cannot be read off a model. ``"fixed prior"``
states that the frozen parameters of a model were fixed before the data, and ``"centered bound"``
that ``rkhs_bound`` is for the reward less the prior mean."""


def check_assume(assume: str | Iterable[str]) -> tuple[str, ...]:
    """Return what a user vouches for as a tuple.

    Args:
        assume: One or several of :data:`ASSUMABLE`.

    Raises:
        TypeError: If it is neither a string nor an iterable.
        ValueError: If an entry is not one of them.
    """
    entries = (assume,) if isinstance(assume, str) else assume
    if not isinstance(entries, Iterable):
        raise TypeError(f"assume is {assume!r}; pass some of {', '.join(map(repr, ASSUMABLE))}.")
    checked = tuple(dict.fromkeys(entries))
    for entry in checked:
        check_one_of("assume", entry, ASSUMABLE)
    return checked


READ_ONCE = {"priors", "weights", "scalar_variance"}
"""What a summary reads from a model at most once."""


class PriorSummary:
    """A summary of a model's prior, which is read from the model at most once.

    Args:
        model: Any BoTorch model; it is not changed.
        posterior_transform: The transform that combines several outputs into one, if any.
        assume: The assumptions that a user vouches for; see :data:`ASSUMABLE`.

    Raises:
        ValueError: If ``assume`` has an unknown entry.
    """

    assume: tuple[str, ...] = ()

    def __init__(
        self,
        model: Model,
        posterior_transform: PosteriorTransform | None = None,
        assume: str | tuple[str, ...] = (),
    ) -> None:
        """See the class."""
        self.model = model
        self.posterior_transform = posterior_transform
        self.assume = check_assume(assume)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what has been read, which cannot be pickled and is read again."""
        return {name: value for name, value in vars(self).items() if name not in READ_ONCE}

    def forget(self) -> None:
        """Read the prior again when it is needed next, because the model has changed."""
        for name in READ_ONCE & vars(self).keys():
            del vars(self)[name]

    @cached_property
    def priors(self) -> tuple[OutputPrior, ...]:
        """The prior of each output; see :func:`read_prior`."""
        return read_prior(self.model)

    @property
    def num_outputs(self) -> int:
        """How many outputs the model has."""
        return int(self.model.num_outputs)

    @cached_property
    def weights(self) -> tuple[dict[int, float], float]:
        """The non-zero weights of the outputs in the scalar of the acquisition, and its offset.

        Raises:
            UnreadablePriorError: If the posterior transform is not a linear scalarization.
        """
        transform = self.posterior_transform
        if transform is None:
            return dict.fromkeys(range(self.num_outputs), 1.0), 0.0
        if type(transform) is not ScalarizedPosteriorTransform:
            raise UnreadablePriorError(
                f"{type(transform).__name__} is not a ScalarizedPosteriorTransform"
            )
        active = {j: weight for j, weight in enumerate(transform.weights.tolist()) if weight}
        if not active:
            raise ValueError(
                "posterior_transform has only zero weights; give at least one output a weight."
            )
        return active, float(transform.offset)

    @property
    def active_outputs(self) -> tuple[int, ...]:
        """The outputs with a non-zero weight; see :attr:`weights`."""
        return tuple(self.weights[0])

    @cached_property
    def scalar_variance(self) -> float | None:
        """The prior variance of the scalar, the largest one in a batch; None if it is unknown."""
        try:
            weights, priors = self.weights[0].values(), self.active_priors
        except (UnreadablePriorError, ValueError):
            return None
        deviations = [prior.standard_deviation.detach().cpu() for prior in priors]
        if not all(deviation.numel() for deviation in deviations):
            return None
        parts = [(w * s) ** 2 for w, s in zip(weights, deviations, strict=True)]
        variance = float(torch.stack(torch.broadcast_tensors(*parts)).sum(0).max())
        return variance if 0.0 < variance < math.inf else None

    @property
    def active_priors(self) -> tuple[OutputPrior, ...]:
        """The priors of the active outputs."""
        return tuple(self.priors[j] for j in self.active_outputs)

    def smallest_lam(self) -> float | None:
        """Return the smallest regularization of the active outputs, over all rows.

        It is None if the prior cannot be read.
        """
        try:
            return min(float(prior.lam.min()) for prior in self.active_priors)
        except UnreadablePriorError:
            return None

    def realized_information_gain(self) -> Tensor | None:
        """Return the realized gain summed over active outputs; None if it cannot be read."""
        try:
            gains = [prior.information_gain for prior in self.active_priors]
        except UnreadablePriorError:
            return None
        return gains[0] if len(gains) == 1 else torch.stack(torch.broadcast_tensors(*gains)).sum(0)

    @cached_property
    def num_rows(self) -> int:
        """How many observations the model holds.

        Raises:
            UnreadablePriorError: If the model does not show its training targets.
        """
        return _count_rows(self.model)


def _count_rows(model: Model) -> int:
    if isinstance(model, ModelListGP):
        return max(_count_rows(submodel) for submodel in model.models)
    if hasattr(model, "num_observations"):  # a row may be the mean of several observations
        return int(model.num_observations)
    targets = getattr(model, "train_targets", None)
    if not isinstance(targets, Tensor):
        raise UnreadablePriorError(f"{type(model).__name__} does not show its training targets")
    return int(targets.shape[-1])


class RunningPosterior(Protocol):
    """A posterior that is updated with outcomes and tracks its information gain."""

    @property
    def information_gain(self) -> Tensor:
        """The realized information gain of all observations, ``batch_shape``, in nats."""


@dataclass(frozen=True)
class RunningOutputPrior(OutputPrior):
    """The prior of the single output; its information gain is that of the current round."""

    posterior: RunningPosterior = field(kw_only=True)

    @property
    def information_gain(self) -> Tensor:
        """The realized information gain of all observations, ``batch_shape``, in nats."""
        return self.posterior.information_gain


class RunningPriorSummary(PriorSummary, ABC):
    """A view of a running posterior that lets width rules work on it as on any model.

    Args:
        posterior: The posterior, whose information gain is read again at each access.
        noise_variance: The regularization, a scalar or ``batch_shape``.
        prior_variance: The prior variance, the unit of bounds.
    """

    def __init__(
        self, posterior: RunningPosterior, noise_variance: Tensor, prior_variance: float
    ) -> None:
        """See the class."""
        self.posterior_transform = None
        self.assume = ()
        self._running = posterior
        self._noise_variance = noise_variance
        self._prior_variance = prior_variance

    @abstractmethod
    def kernel_matrix(self) -> Tensor:
        """Return the prior covariance of the inputs, ``batch_shape x n x n``."""

    @property
    @abstractmethod
    def num_rows(self) -> int | Tensor:  # type: ignore[override]
        """The number of observations; one number per replicate if they differ."""

    @property
    def num_outputs(self) -> int:
        """One."""
        return 1

    @cached_property
    def priors(self) -> tuple[OutputPrior, ...]:
        scalar = self._noise_variance.new_tensor
        return (
            RunningOutputPrior(
                kernel_matrix=self.kernel_matrix,
                noise_variance=self._noise_variance,
                prior_variance=scalar(self._prior_variance),
                outcome_scale=scalar(1.0),
                learned=(),
                posterior=self._running,
            ),
        )


MINIMUM_VARIANCE = 1e-18
"""The lower limit of posterior variances; with a wide bound, a larger one would be visible."""

MINIMUM_VARIANCE_OF_IMPROVEMENT = 1e-12
"""The lower limit of variances where improvement is divided by the deviation. It is BoTorch's:
``LogExpectedImprovement`` is the drop-in class, and arms must have the same values."""


def constant_width(width: float) -> Tensor:
    """Return a fixed width as a scalar float64 tensor; no theorem covers it.

    Args:
        width: The factor on the standard deviation, at least 0.
    """
    return torch.tensor(check_nonnegative("width", width), dtype=DTYPE)


def check_scale(scale: float) -> float:
    """Return a factor on a width after checking it; only the factor 1 keeps a guarantee.

    Srinivas et al. 2010 divide ``beta`` by 5 in their experiments: ``scale = 5 ** -0.5``.
    """
    return check_positive("scale", scale)


def check_all_nonnegative(name: str, value: float | Tensor) -> Tensor:
    """Return ``value`` as a float64 tensor if every entry is finite and at least 0.

    Raises:
        ValueError: If an entry is negative, NaN or infinite.
    """
    tensor = torch.as_tensor(value, dtype=DTYPE)
    if not ((tensor >= 0) & torch.isfinite(tensor)).all():
        raise ValueError(f"{name} is {tensor.tolist()}; it must be finite and at least 0.")
    return tensor


class WidthRule(ABC):
    """A confidence width as a function of a model and a round."""

    needs_round: ClassVar[bool] = False
    """Whether the width depends on the round in other ways than through the data."""

    is_uniform: ClassVar[bool] = True
    """Whether the theorem's confidence bound holds at every point of the domain in every round."""

    @abstractmethod
    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """Return the width, of the model's batch shape (a scalar for an ordinary model).

        Args:
            summary: The prior of the model without pending points.
            round_number: The round ``t``, from 1.

        Raises:
            ValueError: If the model's prior cannot be read but is needed.
        """

    @abstractmethod
    def guarantee(self, summary: PriorSummary, round_number: int) -> Guarantee:
        """Return what the width guarantees for this model and round.

        Args:
            summary: The prior summary of the model.
            round_number: The round of the next point, from 1.
        """

    def in_numbers(self, summary: PriorSummary) -> Callable[[int], float]:
        """Return the width of one stream as a function of the round, equal to the last bit.

        A rule may compute once what does not change, and the rest without tensors.

        Args:
            summary: The summary of a posterior without batch shape that keeps taking in outcomes.
        """
        return lambda t: float(fit_to_batch(WIDTH, self.width(summary, t), torch.Size()))

    def information_gain(self, summary: PriorSummary) -> Tensor | None:
        """Return the information gain that enters the width, summed over outputs, if any does.

        Args:
            summary: The prior summary of the model.
        """
        return None

    def bound_on_gain(self) -> GainBound | None:
        """Return the bound on the maximal information gain in use, if there is one."""
        return None


DEFAULT_WIDTH = 2.0
"""The constant width of GP-UCB if the user gave nothing that determines one."""

PLAIN_WIDTH = 1.0
"""The same for Thompson sampling: draws come from the unscaled posterior."""


@dataclass(frozen=True)
class ConstantWidth(WidthRule):
    """A fixed width, as practitioners use it.

    Attributes:
        value: The factor of the posterior standard deviation, at least 0.
        is_default: Whether it is the default because the user did not give one.
    """

    value: float
    is_default: bool = False

    def __post_init__(self) -> None:
        """Check the value."""
        store_checked(self, value=check_nonnegative("width", self.value))

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        return constant_width(self.value)

    def in_numbers(self, summary: PriorSummary) -> Callable[[int], float]:
        return lambda _: self.value

    def guarantee(self, summary: PriorSummary, round_number: int) -> Guarantee:
        return Guarantee(
            method=f"constant width {self.value:g}",
            constants={"width": float(self.value)},
            gaps=(
                *((no_ingredient(self.value),) if self.is_default else ()),
                "a constant width is a heuristic",
            ),
        )


def no_ingredient(
    width: float, needed: str = "rkhs_bound= and noise_bound= (GPUpperConfidenceBound: num_arms=)"
) -> str:
    """Report that the user gave no ingredients of a width, and what a theorem needs."""
    return (
        f"no bounds on the reward were given; the default width, the constant {width:g}, is not "
        f"based on knowledge of this reward: a theorem needs {needed}, and hyperparameters that "
        "were fixed before the data"
    )


def combine_outputs(
    summary: PriorSummary,
    delta: float,
    width_of_output: Callable[[int, OutputPrior, float], Tensor],
) -> Tensor:
    """Return the width of a scalarization from the widths of its active outputs.

    Args:
        summary: The model's prior.
        delta: Split evenly between the active outputs.
        width_of_output: From an output's index, prior and share of ``delta`` to its width.
    """
    active = summary.active_outputs
    squared = [
        width_of_output(j, prior, delta / len(active)) ** 2
        for j, prior in zip(active, summary.active_priors, strict=True)
    ]
    return torch.stack(torch.broadcast_tensors(*squared)).sum(0).sqrt()


WIDTH = "the width (from rkhs_bound= and noise_bound=)"
"""The name of a width in errors."""

Bound = float | tuple[float, ...] | Tensor
"""One number for all outputs, one per output (a tuple), or one per replicate (a float64 tensor)."""

NoiseBound = Bound | str | tuple[float | str, ...]
"""The same, or ``"model"`` in place of a number; see :class:`KernelizedWidth`."""


def check_bounds(**bounds: Bound) -> dict[str, Bound]:
    """Return bounds that are one number, one per output or one per replicate, by name.

    Args:
        **bounds: The bounds by name. A tensor without dimensions is one number.

    Returns:
        The same bounds, with Python floats for all but tensors.
    """
    return {name: check_bound(name, bound) for name, bound in bounds.items()}


def check_bound(name: str, bound: Bound) -> Bound:
    """Return one bound with Python floats for all but tensors.

    Args:
        name: The name of the bound, for the error.
        bound: A number, a tuple of numbers, or a float64 tensor.
    """
    if isinstance(bound, Tensor) and bound.dim() > 0:
        return check_all_nonnegative(name, check_double(name, bound))
    if isinstance(bound, tuple):
        return tuple(check_nonnegative(name, value) for value in bound)
    return check_nonnegative(name, bound)


def fit_to_batch(name: str, value: Tensor, batch_shape: torch.Size) -> Tensor:
    """Return ``value`` if it is one number or one per replicate; a single entry becomes a scalar.

    Args:
        name: The name of the value, for the error.
        value: A tensor.
        batch_shape: The batch shape of the replicates or of a batched model.

    Raises:
        ValueError: If it has another shape.
    """
    if value.dim() == 0 or value.shape == batch_shape:
        return value
    if value.numel() == 1:
        return value.reshape(())
    try:
        fits = torch.broadcast_shapes(value.shape, batch_shape) == batch_shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}, but the batch shape is {tuple(batch_shape)}. "
            "A tensor of bounds has one number per replicate; without replicates pass a number."
        )
    return value


@overload
def pick_bound(name: str, bound: Bound, output: int, num_outputs: int) -> float | Tensor: ...


@overload
def pick_bound(
    name: str, bound: NoiseBound, output: int, num_outputs: int
) -> float | Tensor | str: ...


def pick_bound(name: str, bound: NoiseBound, output: int, num_outputs: int) -> float | Tensor | str:
    """Return the bound of one output.

    Raises:
        ValueError: If there is neither one number nor one per output.
    """
    if not isinstance(bound, tuple):
        return bound
    if len(bound) != num_outputs:
        raise ValueError(
            f"{name} has {len(bound)} entries for {num_outputs} outputs; give one number, or one "
            "per output."
        )
    return bound[output]


def bound_constants(delta: float, **bounds: NoiseBound) -> dict[str, float]:
    """Return the constants of a guarantee by name, numbered where there are several.

    A bound that is not a number (``noise_bound="model"``) is left out.
    """
    constants = {"delta": delta}
    for name, bound in bounds.items():
        if isinstance(bound, Tensor):
            bound = tuple(bound.reshape(-1).tolist())
        values = bound if isinstance(bound, tuple) else (bound,)
        names = [name] if len(values) == 1 else [f"{name}_{j}" for j in range(len(values))]
        numbers = zip(names, values, strict=True)
        constants.update({key: float(v) for key, v in numbers if not isinstance(v, str)})
    return constants

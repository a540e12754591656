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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, overload

import torch
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.models import ModelListGP, MultiTaskGP
from botorch.models.gpytorch import (
    BatchedMultiOutputGPyTorchModel,
)
from botorch.models.likelihoods.sparse_outlier_noise import SparseOutlierGaussianLikelihood
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import (
    ChainedOutcomeTransform,
    Standardize,
)
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    HadamardGaussianLikelihood,
)
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
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.information_gain import GainBound, realized_information_gain
from botorch_bandits.confidence.kernel_reading import (
    UnreadablePriorError as UnreadablePriorError,
)
from botorch_bandits.confidence.kernel_reading import (
    check_forward,
    check_tasks,
    insert_task,
    noise_of_tasks,
    number_tasks,
    outlier_variances,
    variance_of_output_task,
)


@dataclass(frozen=True)
class OutputPrior:
    """The prior of one output; every tensor has the model's batch shape.

    Attributes:
        gain: Returns the realized information gain of the model's rows, in nats.
        noise_variance: Modeled noise variance in the model's own (transformed) outcome units; the
            smallest one if it differs between rows.
        prior_variance: Prior variance in the same units: that of the whole kernel if it is
            stationary, otherwise the outer ``ScaleKernel``'s output scale (1 without one).
        outcome_scale: Raw outcome units in one transformed outcome unit.
        learned: A description of what was, or could have been, learned from the same data.
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

    gain: Callable[[], Tensor]
    noise_variance: Tensor
    prior_variance: Tensor
    outcome_scale: Tensor
    learned: tuple[str, ...] = ()
    prior_mean: float | None = 0.0
    is_stationary: bool = True
    is_given: bool = True
    row_noise: Tensor | None = None
    has_tasks: bool = False

    @cached_property
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

    @cached_property
    def standard_deviation(self) -> Tensor:
        """The prior standard deviation ``s`` in raw outcome units."""
        return self.prior_variance.sqrt() * self.outcome_scale

    @property
    def information_gain(self) -> Tensor:
        """The realized information gain, in nats; see :func:`gain_of_rows`."""
        return self.gain()


def part_of(model: Model, name: str) -> Any:
    """Return a part that not every model has, such as ``input_transform``; None without it."""
    return getattr(model, name, None)


def has_tasks(model: Model) -> bool:
    """Return whether the rows of a model belong to several tasks, one of which is its output."""
    return isinstance(model, MultiTaskGP)


def gain_of_rows(kernel_matrix: Tensor, noise: Tensor) -> Tensor:
    """Return ``1/2 ln det(I + V^(-1/2) K V^(-1/2))``, with ``V`` the diagonal matrix of the noise.

    Args:
        kernel_matrix: ``batch_shape x n x n``.
        noise: ``batch_shape x n`` noise variances of the rows.
    """
    root = noise.rsqrt()
    return realized_information_gain(kernel_matrix * root.unsqueeze(-1) * root.unsqueeze(-2), 1.0)


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
    if part_of(model, "evidence") is not None:
        raise UnreadablePriorError(
            "the model is a list of priors (CandidatesUpperConfidenceBound is for such lists)"
        )
    kernel = part_of(model, "covar_module")
    if not (isinstance(model, ExactGP) and isinstance(kernel, Kernel)):
        raise UnreadablePriorError(f"{name} is not an exact Gaussian process with its own kernel")
    if len(model.train_inputs) != 1:
        raise UnreadablePriorError(f"{name} has several tensors of inputs")
    is_of_tasks = has_tasks(model)
    if is_of_tasks:
        check_tasks(model)
    elif model.num_outputs > 1 and not isinstance(model, BatchedMultiOutputGPyTorchModel):
        raise UnreadablePriorError(
            f"{name} is not an exact Gaussian process with its own kernel: its kernel joins outputs"
        )
    inputs = kernel_inputs(model)
    own_package = __name__.partition(".")[0]
    if type(model).forward.__module__.partition(".")[0] not in ("botorch", own_package):
        check_forward(model, inputs)
    # internally, several outputs are the last batch dimension
    noise, learned_noise = _noise_of_rows(model, inputs)  # ``batch_shape x n``, or ``x 1``
    learned = (*learned_noise, *_learned_beside_noise(model))
    scale, _ = outcome_units(model)
    with torch.no_grad():
        prior_variance = (
            variance_of_output_task(model, inputs)
            if is_of_tasks
            else prior_variance_of(kernel, inputs)
        )
    levels = noise.amin(-1)
    batch_shape = torch.broadcast_shapes(inputs.shape[:-2], kernel.batch_shape, levels.shape)
    is_level = torch.allclose(noise, noise[..., :1], rtol=1e-12, atol=0.0)

    @cache
    def gain() -> Tensor:
        # a model that grows row by row has factorized its kernel matrix already
        running: Tensor | None = part_of(model, "running_information_gain")
        if running is not None and is_level:
            return running
        with torch.no_grad():
            matrix = kernel(inputs).to_dense() if inputs.shape[-2] else inputs.new_zeros(0, 0)
        matrix = matrix.expand(*batch_shape, *matrix.shape[-2:])
        return gain_of_rows(matrix, noise.expand(*batch_shape, matrix.shape[-1]))

    def of_output(j: int | None) -> OutputPrior:
        def pick(values: Tensor) -> Tensor:
            whole = values.expand(batch_shape)
            return whole if j is None else whole[..., j]

        rows = noise.expand(*batch_shape, noise.shape[-1])
        return OutputPrior(
            lambda: pick(gain()),
            pick(levels),
            pick(prior_variance),
            pick(scale),
            learned,
            prior_mean=constant_prior_mean(model),
            is_stationary=is_of_tasks or kernel.is_stationary,
            is_given=part_of(model, "learn_hyperparameters") is False,
            row_noise=None if is_level else rows if j is None else rows[..., j, :],
            has_tasks=is_of_tasks,
        )

    return tuple(map(of_output, [None] if model.num_outputs == 1 else range(model.num_outputs)))


def _learned_beside_noise(model: ExactGP) -> Iterator[str]:
    """Describe what was, or could have been, learned from the data, apart from the likelihood."""
    if _standardizations(model):
        yield "outcome scale and mean (Standardize)"
    if learns_input_scale(part_of(model, "input_transform")):
        yield "input scale (an input transform without given bounds)"
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not name.startswith("likelihood."):
            yield f"{name} (a free parameter)"


def constant_prior_mean(model: ExactGP) -> float | None:
    """Return the constant of a model's mean, the one farthest from 0 in a batch.

    Args:
        model: A model with a ``mean_module``.

    Returns:
        None for other mean modules, or if tasks have different constants.
    """
    mean = part_of(model, "mean_module")
    constants = {_constant_of(each) for each in getattr(mean, "base_means", [mean])}
    return constants.pop() if len(constants) == 1 else None


def _constant_of(mean: Any) -> float | None:
    kind = type(mean).__name__  # a subclass need not be constant
    if kind == "ZeroMean":
        return 0.0
    if kind not in ("ConstantMean", "FixedMean"):
        return None
    values: list[float] = mean.constant.detach().reshape(-1).tolist()
    return max(values, key=abs)


def learns_input_scale(transform: InputTransform | None) -> bool:
    """Return whether an input transform takes its scale from the data (``Normalize(d)`` does)."""
    parts = [] if transform is None else transform.modules()
    return any(getattr(part, "learn_coefficients", False) for part in parts)


def kernel_inputs(model: ExactGP) -> Tensor:
    """Return a model's inputs as its kernel sees them; the model is not changed.

    Args:
        model: In training or evaluation mode.
    """
    inputs = model.train_inputs[0].detach()
    transform = part_of(model, "input_transform")
    # in training mode BoTorch keeps raw inputs, in evaluation mode their transforms
    if model.training and transform is not None:
        with torch.no_grad():
            inputs = copy.deepcopy(transform).preprocess_transform(inputs)
    return number_tasks(model, inputs) if has_tasks(model) else inputs


def inputs_of_kernel(model: ExactGP, X: Tensor) -> Tensor:
    """Return new points as a model's kernel sees them; the model stays in its mode.

    Args:
        model: In training or evaluation mode.
        X: ``... x d`` raw points; differentiable.
    """
    X = insert_task(model, X) if has_tasks(model) else X
    transform = part_of(model, "input_transform")
    if transform is not None:
        was_training = transform.training
        try:
            X = transform.eval()(X)
        finally:
            transform.train(was_training)
    return number_tasks(model, X) if has_tasks(model) else X


def _noise_of_rows(model: ExactGP, inputs: Tensor) -> tuple[Tensor, list[str]]:
    """Return noise variances, ``batch_shape x n`` or ``x 1``, and what of them was learned."""
    likelihood = model.likelihood
    is_free = any(parameter.requires_grad for parameter in likelihood.parameters())
    learned = ["likelihood noise (a free parameter)"] if is_free else []
    if isinstance(likelihood, FixedNoiseGaussianLikelihood):
        noise = likelihood.noise.detach()
        if noise.shape[-1] == 0:
            raise UnreadablePriorError("the model has noise at its rows only, and it has no rows")
        unknown = ~(torch.isfinite(noise) & (noise > 0.0)).reshape(-1, noise.shape[-1]).all(0)
        if bool(unknown.any()):
            rows = ", ".join(map(str, unknown.nonzero().squeeze(-1).tolist()))
            raise ValueError(
                f"the observation variances (train_Yvar) of {type(model).__name__} are not finite "
                f"and positive in these rows: {rows}. A width needs a bound on the noise of each "
                "row, known before its outcome: give one for them too, or leave the rows out."
            )
        return noise, learned
    if isinstance(likelihood, SparseOutlierGaussianLikelihood):
        of_rows = outlier_variances(model, likelihood, inputs)
        if of_rows is None:
            return likelihood.noise_covar.base_noise.noise.detach(), learned
        return of_rows, [*learned, "noise of rows that look like outliers"]
    if isinstance(likelihood, HadamardGaussianLikelihood) and has_tasks(model):
        return noise_of_tasks(model, likelihood), learned
    if type(likelihood) is GaussianLikelihood or hasattr(likelihood, "repeats"):
        return likelihood.noise.detach(), learned
    raise UnreadablePriorError(f"{type(likelihood).__name__} has no single noise level")


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
    for part in _standardizations(model):
        shift = shift + scale * part.means.detach().squeeze(-2)
        scale = scale * part.stdvs.detach().squeeze(-2)
    if model.num_outputs == 1 and scale.dim():
        return scale.squeeze(-1), shift.squeeze(-1)
    return scale, shift


def _standardizations(model: Model) -> list[Standardize]:
    """Return the transforms of a model's outcomes, in the order of their application."""
    transform = part_of(model, "outcome_transform")
    if transform is None:
        return []
    parts = transform.values() if isinstance(transform, ChainedOutcomeTransform) else [transform]
    for part in parts:
        if type(part) is not Standardize:
            raise UnreadablePriorError(f"the outcome transform {type(part).__name__} is not affine")
    return list(parts)


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
    try:
        checked = tuple(dict.fromkeys((assume,) if isinstance(assume, str) else assume))
    except TypeError as error:
        known = ", ".join(map(repr, ASSUMABLE))
        raise TypeError(f"assume is {assume!r}; pass some of {known}.") from error
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
        parts = [
            (self.weights[0][j] * prior.standard_deviation.detach().cpu()) ** 2
            for j, prior in self.readable.items()
        ]
        if not parts or not all(part.numel() for part in parts):
            return None
        variance = float(torch.stack(torch.broadcast_tensors(*parts)).sum(0).max())
        return variance if 0.0 < variance < math.inf else None

    @property
    def active_priors(self) -> tuple[OutputPrior, ...]:
        """The priors of the active outputs."""
        return tuple(self.priors[j] for j in self.active_outputs)

    @property
    def readable(self) -> dict[int, OutputPrior]:
        """The priors of the active outputs by the number of the output; none if unreadable."""
        try:
            return {j: self.priors[j] for j in self.active_outputs}
        except UnreadablePriorError:
            return {}

    def smallest_lam(self) -> float | None:
        """Return the smallest regularization of the active outputs, over all rows.

        It is None if the prior cannot be read.
        """
        return min((float(prior.lam.min()) for prior in self.readable.values()), default=None)

    def realized_information_gain(self) -> Tensor | None:
        """Return the realized gain summed over active outputs; None if it cannot be read."""
        gains = [prior.information_gain for prior in self.readable.values()]
        return torch.stack(torch.broadcast_tensors(*gains)).sum(0) if gains else None

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
    count = part_of(model, "num_observations")  # a row may be the mean of several observations
    if count is not None:
        return int(count)
    targets = part_of(model, "train_targets")
    if targets is None:
        raise UnreadablePriorError(f"{type(model).__name__} does not show its training targets")
    return int(targets.shape[-1])


class RunningPriorSummary(PriorSummary):
    """A summary of a posterior that is updated with outcomes and knows its information gain.

    Args:
        running: Has the present ``information_gain``, ``batch_shape``, in nats.
        noise_variance: The regularization, a scalar or ``batch_shape``.
        prior_variance: The prior variance, the unit of bounds.
    """

    num_outputs = 1

    def __init__(self, running: Any, noise_variance: Tensor, prior_variance: float) -> None:
        """See the class."""
        super().__init__(None)
        self._running, self._known = running, (noise_variance, prior_variance)

    @property
    @abstractmethod
    def num_rows(self) -> int | Tensor:  # type: ignore[override]
        """The number of observations; one number per replicate if they differ."""

    @cached_property
    def priors(self) -> tuple[OutputPrior, ...]:
        noise, variance = self._known
        own = (noise, noise.new_tensor(variance), noise.new_ones(()))
        return (OutputPrior(lambda: self._running.information_gain, *own),)


MINIMUM_VARIANCE = 1e-18
"""The lower limit of posterior variances; with a wide bound, a larger one would be visible."""

MINIMUM_VARIANCE_OF_IMPROVEMENT = 1e-12
"""The lower limit of variances where improvement is divided by the deviation. It is BoTorch's:
``LogExpectedImprovement`` is the drop-in class, and arms must have the same values."""


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
        return torch.tensor(self.value, dtype=DTYPE)

    def guarantee(self, summary: PriorSummary, round_number: int) -> Guarantee:
        return Guarantee(
            method=f"constant width {self.value:g}",
            constants={"width": self.value},
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
    widths = [
        width_of_output(j, prior, delta / len(active))
        for j, prior in zip(active, summary.active_priors, strict=True)
    ]
    if len(widths) == 1:
        return widths[0]
    return torch.stack(torch.broadcast_tensors(*widths)).square().sum(0).sqrt()


WIDTH = "the width (from rkhs_bound= and noise_bound=)"
"""The name of a width in errors."""

Bound = float | tuple[float, ...] | Tensor
"""One number for all outputs, one per output (a tuple), or one per replicate (a float64 tensor)."""

NoiseBound = Bound | str | tuple[float | str, ...]
"""The same, or ``"model"`` in place of a number; see :class:`KernelizedWidth`."""


def numbers_of(bound: NoiseBound) -> tuple[float | str, ...]:
    """Return all entries of a bound, one after another."""
    if isinstance(bound, Tensor):
        return tuple(bound.reshape(-1).tolist())
    return bound if isinstance(bound, tuple) else (bound,)


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
    checked = tuple(check_nonnegative(name, value) for value in numbers_of(bound))
    return checked if isinstance(bound, tuple) else checked[0]


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
        values = numbers_of(bound)
        names = [name] if len(values) == 1 else [f"{name}_{j}" for j in range(len(values))]
        pairs = zip(names, values, strict=True)
        constants.update({key: float(value) for key, value in pairs if value != MODEL_NOISE})
    return constants


MODEL_NOISE = "model"
"""The value of ``noise_bound=`` that takes the bound on the noise of each row from the model: it is
the square root of the row's noise variance (``train_Yvar``)."""

"""Width rules, which map a model and a round to a width, and the summary of a model they look at.

:class:`WidthRule` is the base class of all methods' rules. :class:`PriorSummary` holds the
constants of a theorem for a user's model, in raw outcome units, as :func:`.read_prior` reads them.

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

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_double,
    check_nonnegative,
    check_one_of,
    check_positive,
    entries_of,
    store_checked,
)
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.information_gain import GainBound
from botorch_bandits.confidence.prior_reading import (
    OutputPrior,
    UnreadablePriorError,
    count_rows,
    read_prior,
    weight_of_rows,
)
from botorch_bandits.confidence.theorems import A_CONSTANT, guarantee_of

ASSUMABLE = ("fixed prior", "centered bound")
"""What a user can state by ``assume=``, because it cannot be read off a model. ``"fixed prior"``
states that the frozen parameters of a model were fixed before the data, and ``"centered bound"``
that ``rkhs_bound`` is for the reward less the prior mean."""

Assumed = str | tuple[str, ...]
"""One or several of :data:`ASSUMABLE`."""


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


READ_ONCE = {"priors", "active", "weights", "scalar_variance", "_norms"}
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
        given = transform.weights.tolist()
        if len(given) != self.num_outputs:
            raise ValueError(
                f"posterior_transform has {len(given)} weights, but the model "
                f"({type(self.model).__name__}) has {self.num_outputs} outputs. Give one weight "
                "per output."
            )
        active = {j: weight for j, weight in enumerate(given) if weight}
        if not active:
            raise ValueError(
                "posterior_transform has only zero weights; give at least one output a weight."
            )
        return active, float(transform.offset)

    @cached_property
    def active(self) -> dict[int, OutputPrior]:
        """The priors of the outputs with a non-zero weight, by the number of the output."""
        return {j: self.priors[j] for j in self.weights[0]}

    @property
    def readable(self) -> dict[int, OutputPrior]:
        """The same; empty if the priors cannot be read."""
        try:
            return self.active
        except UnreadablePriorError:
            return {}

    @cached_property
    def _norms(self) -> dict[WidthRule, dict[int, Any]]:
        return {}

    def norms_of(self, rule: WidthRule) -> dict[int, Any]:
        """Return what a rule assumes of each active output, which is computed once.

        Args:
            rule: The rule; see :meth:`WidthRule.norms`.
        """
        if rule not in self._norms:
            self._norms[rule] = rule.norms(self)
        return self._norms[rule]

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

    def known_to(self, facts: Facts, noise_bound: NoiseBound = 0.0, **further: Any) -> Facts:
        """Return facts with those of the prior.

        Args:
            facts: The facts of a use.
            noise_bound: The bound on the noise, as the user gave it.
            **further: Further facts.
        """
        further["of_outputs"] = self.posterior_transform is not None or self.num_outputs > 1
        try:
            active = self.active
        except UnreadablePriorError as error:
            kind = "modeled level" if is_model_noise(noise_bound, 0) else "level"
            return replace(facts, unreadable=str(error), noise=frozenset({kind}), **further)
        priors, modeled = active.values(), {j for j in active if is_model_noise(noise_bound, j)}
        by_number = [prior for j, prior in active.items() if j not in modeled]
        means = tuple(
            math.nan if prior.prior_mean is None else facts.as_told(prior.prior_mean)
            for prior in priors
        )
        learned = sorted({what for prior in priors for what in prior.learned})
        return replace(
            facts,
            learned=tuple(learned),
            is_frozen="fixed prior" not in self.assume and not all(p.is_given for p in priors),
            prior_means=() if learned or not any(means) else means,
            is_centered="centered bound" in self.assume,
            has_tasks=any(prior.has_tasks for prior in priors),
            is_stationary=all(prior.is_stationary for prior in priors),
            noise=frozenset(
                ("modeled " if j in modeled else "") + ("level" if p.row_noise is None else "rows")
                for j, p in active.items()
            ),
            lam_has_fallen=any(prior.lam_has_fallen for prior in by_number),
            **{"lam_of_bounds": min((float(p.lam.min()) for p in by_number), default=math.inf)}
            | further,
        )

    def smallest_lam(self) -> float | None:
        """Return the smallest regularization of the active outputs, over all rows.

        It is None if the prior cannot be read.
        """
        return min((float(prior.lam.min()) for prior in self.readable.values()), default=None)

    def realized_information_gain(self) -> Tensor | None:
        """Return the realized gain summed over active outputs; None if it cannot be read."""
        gains = [prior.gain() for prior in self.readable.values()]
        return torch.stack(torch.broadcast_tensors(*gains)).sum(0) if gains else None

    @cached_property
    def num_rows(self) -> int:
        """How many observations the model holds.

        Raises:
            UnreadablePriorError: If the model does not show its training targets.
        """
        return count_rows(self.model)

    @property
    def weight_of_rows(self) -> float | Tensor:
        """The sum of the rows' weights; see :func:`.weight_of_rows`."""
        return weight_of_rows(self.model)


class RunningPriorSummary(PriorSummary):
    """A summary of a posterior that is updated with outcomes and knows its information gain.

    Args:
        gain: Returns the present information gain, ``batch_shape``, in nats.
        num_rows: Returns the number of observations; one number per replicate if they differ.
        noise_variance: The regularization, a scalar or ``batch_shape``.
        prior_variance: The prior variance, the square of the unit of bounds.
    """

    num_outputs = 1

    def __init__(
        self,
        gain: Callable[[], Tensor],
        num_rows: Callable[[], int | Tensor],
        noise_variance: Tensor,
        prior_variance: float,
    ) -> None:
        """See the class."""
        super().__init__(None)
        self._gain = self.realized_information_gain = gain  # type: ignore[method-assign]
        self._num_rows, self._known = num_rows, (noise_variance, prior_variance)

    @property
    def num_rows(self) -> int | Tensor:  # type: ignore[override]
        """The number of observations; one number per replicate if they differ."""
        return self._num_rows()

    @property
    def weight_of_rows(self) -> float | Tensor:
        return self.num_rows

    @cached_property
    def priors(self) -> tuple[OutputPrior, ...]:
        noise, variance = self._known
        return (OutputPrior(self._gain, noise, noise.new_tensor(variance), noise.new_ones(())),)


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
    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        """Return what the width guarantees for this model and round.

        Args:
            summary: The prior summary of the model.
            round_number: The round of the next point, from 1.
            facts: What is known of its use.
        """

    def norms(self, summary: PriorSummary) -> dict[int, Any]:
        """Return what is assumed of each active output, as :class:`.BoundedNorm`, if that is all.

        Args:
            summary: The prior summary of the model.

        Raises:
            UnreadablePriorError: If the model's prior cannot be read but is needed.
        """
        return {}

    def information_gain(self, summary: PriorSummary) -> Tensor | None:
        """Return the information gain that enters the width, summed over outputs, if any does.

        Args:
            summary: The prior summary of the model.
        """
        return None

    units = "outcome"
    """The units of its bounds: ``"prior"`` if they are multiples of the prior deviation."""

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
        value: The factor of the posterior standard deviation, at least 0; a tuple has one for each
            model of a batch, like a ``beta`` of several numbers in BoTorch.
        is_default: Whether it is the default because the user did not give one.
    """

    value: float | tuple[float, ...]
    is_default: bool = False

    def __post_init__(self) -> None:
        """Check the value."""
        checked = tuple(check_nonnegative("width", each) for each in entries_of(self.value))
        store_checked(self, value=checked if len(checked) > 1 else checked[0])

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`.

        Raises:
            ValueError: If there is one number per model, and the batch has another number of them.
        """
        if isinstance(self.value, tuple) and summary.model.batch_shape != (len(self.value),):
            raise ValueError(
                f"width or beta has {len(self.value)} entries, but the model has the batch shape "
                f"{tuple(summary.model.batch_shape)}. Give one number, or one per model of the "
                "batch."
            )
        return torch.tensor(self.value, dtype=DTYPE)

    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        facts = replace(facts, not_given=("width",) if self.is_default else ())
        constants = bound_constants(width=self.value)
        return guarantee_of(A_CONSTANT, facts, constants, width=numbers_of(self.value))


def combined(widths: Sequence[Tensor]) -> Tensor:
    """Return the width of a scalarization from those of its active outputs, at shares of delta.

    Args:
        widths: One per active output.
    """
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


def pick_bound(name: str, bound: Any, output: int, num_outputs: int) -> Any:
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


def bound_constants(**bounds: NoiseBound) -> dict[str, float]:
    """Return the constants of a guarantee by name, numbered where there are several.

    A bound that is not a number (``noise_bound="model"``) is left out.
    """
    constants = {}
    for name, bound in bounds.items():
        values = numbers_of(bound)
        for j, value in enumerate(values):
            if value != MODEL_NOISE:
                constants[f"{name}_{j}" if len(values) > 1 else name] = float(value)
    return constants


def is_model_noise(bound: NoiseBound, output: int) -> bool:
    """Return whether the noise of an output is bounded by the model's noise variances of its rows.

    Args:
        bound: The bound as the user gave it.
        output: The number of the output.
    """
    entries = numbers_of(bound)
    return entries[output if len(entries) > 1 else 0] == MODEL_NOISE


MODEL_NOISE = "model"
"""The value of ``noise_bound=`` that takes the bound on the noise of each row from the model: it is
the square root of the row's noise variance (``train_Yvar``)."""


def largest_regret(
    summary: PriorSummary,
    rkhs_bound: Bound,
    in_prior_units: bool,
    not_given: tuple[str, ...] = (),
) -> float | None:
    """Return ``2 B``, the largest difference of two values of the reward; None if it is unknown.

    A function of norm ``B`` is at most ``B sqrt(k(x, x))``, and ``k(x, x) = 1`` for stationary
    kernels. A constant prior mean does not change differences.

    Args:
        summary: The prior summary of the model.
        rkhs_bound: ``B``.
        in_prior_units: Whether it is a multiple of the prior standard deviation.
        not_given: The names of bounds that are defaults: a default for ``B`` bounds nothing.
    """
    if "rkhs_bound" in not_given:
        return None
    if summary.posterior_transform is not None or not isinstance(rkhs_bound, float):
        return None
    priors = list(summary.readable.values())
    if len(priors) != 1 or not priors[0].is_stationary or priors[0].prior_mean is None:
        return None
    unit = float(priors[0].standard_deviation.max()) if in_prior_units else 1.0
    return 2.0 * rkhs_bound * unit

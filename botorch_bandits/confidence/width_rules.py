"""Width rules: from a model and a round to the factor of its posterior standard deviation.

Every width function returns ``w``, the factor of the posterior STANDARD DEVIATION: the bound is
``mean + w * standard_deviation``. BoTorch's ``UpperConfidenceBound(beta)`` multiplies by
``sqrt(beta)``, so ``beta = w ** 2``. Logarithms are natural.

The theorems speak of a kernel with ``k(x, x) <= 1``, prior mean 0 and the regularization
``lam = (modeled noise variance) / (prior variance)``. Those for rewards drawn from the Gaussian
process are in :mod:`botorch_bandits.confidence.gp_ucb`, those for rewards of bounded norm
in :mod:`botorch_bandits.confidence.igp_ucb`.

A rule holds a method's ingredients (bounds, delta), looks at a model's prior where it needs to,
and takes care of units: what a theorem says about a unit-variance kernel is divided by the
prior standard deviation of the user's model, so that the width multiplies the posterior standard
deviation that the model reports.

For a scalarisation ``sum_j a_j f_j`` of ``m`` independent outputs, each active output gets
``delta / m`` and the widths combine to ``sqrt(sum_j w_j ** 2)``. By the Cauchy-Schwarz inequality
``sum_j |a_j| w_j sigma_j`` is at most that times ``sqrt(sum_j a_j ** 2 sigma_j ** 2)``, the
posterior standard deviation of the scalarisation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_double,
    check_nonnegative,
    check_positive,
    store_checked,
)
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.prior import OutputPrior, PriorSummary, UnreadablePriorError
from botorch_bandits.docstrings import fill_in_docstrings

MINIMUM_VARIANCE = 1e-18
"""Posterior variances are clamped here: times a wide bound, a larger clamp would be visible."""

MINIMUM_VARIANCE_OF_IMPROVEMENT = 1e-12
"""They are clamped here where improvement is divided by the deviation, as BoTorch does it: its
``LogExpectedImprovement`` is the drop-in class, and arms must have the same values."""


def constant_width(width: float) -> Tensor:
    """Return a fixed width as a scalar float64 tensor; no theorem covers it.

    Args:
        width: The factor of the standard deviation, at least 0.
    """
    return torch.tensor(check_nonnegative("width", width), dtype=DTYPE)


def check_scale(scale: float) -> float:
    """Check a factor on a width. Only the factor 1 keeps a guarantee.

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
    """Whether the width depends on the round other than through the data."""

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
        """Return what the width promises for this model and round.

        Args:
            summary: Of the model.
            round_number: The round of the next point, from 1.
        """

    def information_gain(self, summary: PriorSummary) -> Tensor | None:
        """Return the information gain that enters the width, summed over outputs, if any does.

        Args:
            summary: Of the model.
        """
        return None


@dataclass(frozen=True)
class ConstantWidth(WidthRule):
    """A fixed width, as practitioners use it.

    Attributes:
        value: The factor of the posterior standard deviation, at least 0.
    """

    value: float

    def __post_init__(self) -> None:
        """Check the value."""
        store_checked(self, value=check_nonnegative("width", self.value))

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`."""
        return constant_width(self.value)

    def guarantee(self, summary: PriorSummary, round_number: int) -> Guarantee:
        """See :meth:`WidthRule.guarantee`."""
        return Guarantee(
            method=f"constant width {self.value:g}",
            constants={"width": float(self.value)},
            gaps=("a constant width is a heuristic",),
        )


def combine_outputs(
    summary: PriorSummary,
    delta: float,
    width_of_output: Callable[[int, OutputPrior, float], Tensor],
) -> Tensor:
    """Return the width of a scalarisation from the widths of its active outputs.

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


def prior_gaps(summary: PriorSummary) -> list[str]:
    """Say why the prior voids a theorem: it cannot be read, or was learned from the same data."""
    try:
        priors = summary.active_priors
    except UnreadablePriorError as error:
        return [f"the prior cannot be read ({error})"]
    learned = sorted({what for prior in priors for what in prior.learned})
    if not learned:
        return []
    return [
        f"learned from the same data, or free to be: {', '.join(learned)}; a theorem needs them "
        "fixed in advance (freeze parameters with requires_grad_(False))"
    ]


WIDTH = "the width (from rkhs_bound= and noise_bound=)"
"""What a width is called in errors."""

Bound = float | tuple[float, ...] | Tensor
"""One number for all outputs, one an output (a tuple), or one a replicate (a float64 tensor)."""


def check_bounds(**bounds: Bound) -> dict[str, Bound]:
    """Return bounds that are one number, one an output or one a replicate, by name.

    Args:
        **bounds: By name. A tensor without dimensions is one number.

    Returns:
        Likewise, with Python floats for all but tensors.
    """
    return {name: _check_bound(name, bound) for name, bound in bounds.items()}


def _check_bound(name: str, bound: Bound) -> Bound:
    if isinstance(bound, Tensor) and bound.dim() > 0:
        return check_all_nonnegative(name, check_double(name, bound))
    if isinstance(bound, tuple):
        return tuple(check_nonnegative(name, value) for value in bound)
    return check_nonnegative(name, bound)


def fit_to_batch(name: str, value: Tensor, batch_shape: torch.Size) -> Tensor:
    """Return ``value`` if it is one number or one a replicate; a single entry becomes a scalar.

    Args:
        name: What it is, for the error.
        value: A tensor.
        batch_shape: Of the replicates, or of a batched model.

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
            "A tensor of bounds has one number a replicate; pass a plain number without replicates."
        )
    return value


def pick_bound(name: str, bound: Bound, output: int, num_outputs: int) -> float | Tensor:
    """Return the bound of one output.

    Raises:
        ValueError: If there is not one number, nor one an output.
    """
    if not isinstance(bound, tuple):
        return bound
    if len(bound) != num_outputs:
        raise ValueError(
            f"{name} has {len(bound)} entries for {num_outputs} outputs; give one number, or one "
            "an output."
        )
    return bound[output]


def bound_constants(delta: float, **bounds: Bound) -> dict[str, float]:
    """Return the constants of a guarantee by name, numbered where there are several."""
    constants = {"delta": delta}
    for name, bound in bounds.items():
        if isinstance(bound, Tensor):
            bound = tuple(bound.reshape(-1).tolist())
        values = bound if isinstance(bound, tuple) else (bound,)
        names = [name] if len(values) == 1 else [f"{name}_{j}" for j in range(len(values))]
        constants.update(zip(names, map(float, values), strict=True))
    return constants


fill_in_docstrings(__name__)

"""What the acquisition functions with multipliers share: options, widths of each output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.affine_outcomes import AffineOutcomes
from botorch_bandits.acquisition.kernelized import KERNELIZED_OPTIONS, kernelized_rule
from botorch_bandits.checks import DTYPE, check_one_of, check_probability, check_vector
from botorch_bandits.confidence import ConstantWidth, Guarantee, PriorReading, WidthRule
from botorch_bandits.confidence.rules import WIDTH, fit_to_batch, pick_bound
from botorch_bandits.confidence.widths import check_scale
from botorch_bandits.penalties import Penalty


def check_multipliers(multipliers: Tensor | Sequence[float]) -> Tensor:
    """Return multipliers as a float64 vector of numbers that are at least 0.

    Raises:
        ValueError: If there are none, or one is negative or not finite.
    """
    vector = check_vector("multipliers", multipliers).detach().clone()
    if len(vector) == 0:
        raise ValueError("multipliers is empty; give one for each constraint.")
    if bool((vector < 0.0).any()):
        raise ValueError(f"multipliers is {vector.tolist()}; each must be at least 0.")
    return vector


def check_penalty(penalty: Penalty) -> Penalty:
    """Return ``penalty`` if it is one.

    Raises:
        TypeError: If it is not.
    """
    if not isinstance(penalty, Penalty):
        raise TypeError(
            f"penalty must be a Penalty, got {penalty!r}. Use Linear(), Polynomial(c, n), "
            "Exponential(c) or CustomPenalty(function)."
        )
    return penalty


def check_outputs(
    name: str, model: Model, num_outputs: int, posterior_transform: PosteriorTransform | None
) -> None:
    """Raise unless the model has an output for the reward and one for each constraint.

    Raises:
        ValueError: If the numbers differ.
        UnsupportedError: If the posterior transform makes one output of all.
    """
    if posterior_transform is not None:
        if getattr(posterior_transform, "scalarize", False):
            raise UnsupportedError(
                f"{name} weights the outputs by its multipliers itself; "
                f"{type(posterior_transform).__name__} leaves only one. Leave it out, or pass one "
                "with scalarize = False."
            )
        if isinstance(posterior_transform, AffineOutcomes):
            check_num_outputs(name, len(posterior_transform.weights), num_outputs)
        return  # how many outputs another one makes shows in the first evaluation
    check_num_outputs(name, model.num_outputs, num_outputs)


def check_num_outputs(name: str, found: int, wanted: int) -> None:
    """Raise unless two numbers of outputs agree.

    Raises:
        ValueError: If they differ.
    """
    if found != wanted:
        raise ValueError(
            f"{name} has {wanted - 1} multipliers, so it needs a model with {wanted} outputs (the "
            f"reward first, then each constraint), but the model has {found}. ModelListGP makes "
            "one of several models."
        )


def output_rules(name: str, num_outputs: int, **options: Any) -> tuple[WidthRule, ...]:
    """Return a width rule for each output, with an equal share of ``delta`` each.

    Each output always gets ``delta / num_outputs``, also where its multiplier is 0: the bounds
    then hold for all multipliers, and in all rounds, at once.

    Args:
        name: The acquisition class, for errors.
        num_outputs: The reward's and the constraints'.
        options: Those of :data:`KERNELIZED_OPTIONS` that were given; bounds and ``width`` may be
            tuples with one entry an output.
    """
    given = {key: value for key, value in options.items() if key in KERNELIZED_OPTIONS}
    delta = check_probability("delta", given.pop("delta", 0.1)) / num_outputs
    each = ("rkhs_bound", "noise_bound", "width")

    def of_output(j: int) -> dict[str, Any]:
        return {
            key: pick_bound(key, value, j, num_outputs) if key in each else value
            for key, value in given.items()
        }

    return tuple(kernelized_rule(name, delta=delta, **of_output(j)) for j in range(num_outputs))


def check_lagrangian_options(name: str, options: dict[str, Any]) -> None:
    """Raise what the constructors raise for bad options, as far as it can be known.

    ``multipliers`` may be missing: in a loop the rule in use gives them.
    """
    check_scale(options.get("scale", 1.0))
    if "penalty" in options:
        check_penalty(options["penalty"])
    tuples = [
        len(options[key])
        for key in ("rkhs_bound", "noise_bound", "width")
        if isinstance(options.get(key), tuple)
    ]
    num_outputs = tuples[0] if tuples else 2
    if options.get("multipliers") is not None:
        num_outputs = 1 + len(check_multipliers(options["multipliers"]))
    output_rules(name, num_outputs, **options)


class OutputWidths:
    """The widths of the outputs of a model, each from its own prior.

    Args:
        name: The acquisition class, for errors.
        model: Without pending points.
        num_outputs: How many outputs it has after the transform.
        posterior_transform: That of the user, if any; the prior can be read through
            :class:`~botorch_bandits.acquisition.affine_outcomes.AffineOutcomes` only.
        scale: A factor on every width.
        options: See :func:`output_rules`.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        num_outputs: int,
        posterior_transform: PosteriorTransform | None,
        scale: float = 1.0,
        **options: Any,
    ) -> None:
        """See the class."""
        check_one_of("any_lambda", options.get("any_lambda", False), (True, False))
        self.rules = output_rules(name, num_outputs, **options)
        self.scale = check_scale(scale)
        width = options.get("width")
        self.is_one_number = width is not None and not isinstance(width, tuple)
        self.model = model
        self.posterior_transform = posterior_transform
        self.forget()

    def forget(self) -> None:
        """Read the prior again when it is needed next."""
        self.readings = tuple(
            PriorReading(self.model, self._transform_of(j)) for j in range(len(self.rules))
        )

    def _transform_of(self, j: int) -> PosteriorTransform:
        if isinstance(self.posterior_transform, AffineOutcomes):
            return self.posterior_transform.row(j)
        return self.posterior_transform or select_output(j, self.model.num_outputs)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was read of the prior: it cannot be pickled, and is read again."""
        return {key: value for key, value in self.__dict__.items() if key != "readings"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set everything, and read the prior again when it is needed."""
        self.__dict__.update(state)
        self.forget()

    @property
    def are_one(self) -> bool:
        """Whether every width is the constant 1, which leaves a draw as it is."""
        return self.scale == 1.0 and all(
            isinstance(rule, ConstantWidth) and rule.value == 1.0 for rule in self.rules
        )

    def compute(self) -> Tensor:
        """Return ``batch_shape x num_outputs`` widths, where ``batch_shape`` is the model's."""
        widths = [
            fit_to_batch(WIDTH, self.scale * rule.width(reading, 1), self.model.batch_shape)
            for rule, reading in zip(self.rules, self.readings, strict=True)
        ]
        return torch.stack(torch.broadcast_tensors(*widths), dim=-1)

    def guarantee(self, method: str, delta: float) -> Guarantee:
        """Return what the widths of all outputs promise together.

        Args:
            method: What they are used for.
            delta: For all outputs together.
        """
        each = [
            rule.guarantee(reading, 1)
            for rule, reading in zip(self.rules, self.readings, strict=True)
        ]
        names = ["reward", *(f"constraint {j}" for j in range(1, len(each)))]
        gaps: dict[str, list[str]] = {}
        for name, guarantee in zip(names, each, strict=True):
            for gap in guarantee.gaps:
                gaps.setdefault(gap, []).append(name)
        told = tuple(
            gap if len(who) == len(each) else f"{', '.join(who)}: {gap}"
            for gap, who in gaps.items()
        )
        constants = {"delta": delta}
        for j, guarantee in enumerate(each):
            constants.update({f"{key}_{j}": value for key, value in guarantee.constants.items()})
        combined = Guarantee(method=method, constants=constants, gaps=told)
        if all(guarantee.theorem is not None for guarantee in each):
            combined = replace(
                combined,
                theorem=f"{each[0].theorem}, for reward and constraints at delta / {len(each)} "
                "each (union bound)",
                statement=f"with probability {1 - delta:g} the reward and each constraint lie "
                "within their widths of their posterior means, at all points and in all rounds, "
                "for all multipliers at once",
                assumptions=(
                    *dict.fromkeys(
                        a.replace("the reward function", "each function")
                        for guarantee in each
                        for a in guarantee.assumptions
                    ),
                ),
            )
        if self.scale != 1.0:
            combined = combined.with_gaps(f"the width is scaled by {self.scale:g}")
        if is_ensemble(self.model):
            combined = combined.with_gaps("the bound is averaged over the members of an ensemble")
        return combined


def select_output(index: int, num_outputs: int) -> ScalarizedPosteriorTransform:
    """Return the transform that leaves one output as it is and drops the others."""
    weights = torch.zeros(num_outputs, dtype=DTYPE)
    weights[index] = 1.0
    return ScalarizedPosteriorTransform(weights)

"""A width for each output of a model, and checks of the number of outputs.

The bound on a penalized reward needs one width for the reward and one for each constraint, each
with an equal share of ``delta``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.affine_outcomes import AffineOutcomes, select_output
from botorch_bandits.acquisition.base import kernelized_rule
from botorch_bandits.checks import check_one_of, check_probability, counted
from botorch_bandits.confidence import (
    ConstantWidth,
    Guarantee,
    PriorSummary,
    RegretStatement,
    Statement,
    WidthRule,
)
from botorch_bandits.confidence.width_rules import (
    WIDTH,
    check_assume,
    check_scale,
    fit_to_batch,
    pick_bound,
)
from botorch_bandits.penalties import check_multipliers, check_penalty


def check_outputs(
    name: str, model: Model, num_outputs: int, posterior_transform: PosteriorTransform | None
) -> None:
    """Raise unless the model has an output for the reward and one for each constraint.

    Raises:
        ValueError: If the numbers differ.
        UnsupportedError: If the posterior transform combines all outputs into one.
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
        return  # the first evaluation shows how many outputs another transform returns
    check_num_outputs(name, model.num_outputs, num_outputs)


def check_num_outputs(name: str, found: int, wanted: int) -> None:
    """Raise unless two numbers of outputs agree.

    Raises:
        ValueError: If they differ.
    """
    if found != wanted:
        raise ValueError(
            f"{name} has {counted(wanted - 1, 'multiplier', 'multipliers')}, so it needs a model "
            f"with {wanted} outputs (the reward first, then each constraint), but the model has "
            f"{found}. ModelListGP combines several models."
        )


PER_OUTPUT = ("rkhs_bound", "noise_bound", "width")
"""Options that may be tuples with one entry per output."""


def output_rules(name: str, num_outputs: int, options: Mapping[str, Any]) -> tuple[WidthRule, ...]:
    """Return a width rule for each output, with an equal share of ``delta`` each.

    Each output always gets ``delta / num_outputs``, even if its multiplier is 0: the bounds then
    hold for all multipliers, and in all rounds, at once.

    Args:
        name: The name of the acquisition class, for error messages.
        num_outputs: The number of outputs, the reward and the constraints.
        options: Constructor arguments, at least those of :func:`kernelized_rule`.
    """
    delta = check_probability("delta", options["delta"]) / num_outputs
    return tuple(
        kernelized_rule(
            name,
            {
                **options,
                "delta": delta,
                **{key: pick_bound(key, options[key], j, num_outputs) for key in PER_OUTPUT},
            },
        )
        for j in range(num_outputs)
    )


def check_lagrangian_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise the errors that the constructors raise for invalid options, as far as possible.

    ``multipliers`` may be missing: in a loop, they come from the multiplier rule in use.

    Args:
        name: The name of the acquisition class, for error messages.
        options: All constructor arguments.
    """
    check_scale(options["scale"])
    check_maximizes(name, options)
    if options["penalty"] is not None:
        check_penalty(options["penalty"])
    lengths = [len(options[key]) for key in PER_OUTPUT if isinstance(options[key], tuple)]
    num_outputs = lengths[0] if lengths else 2
    if options["multipliers"] is not None:
        num_outputs = 1 + len(check_multipliers(options["multipliers"]))
    output_rules(name, num_outputs, options)


def of_minus_the_reward(guarantee: Guarantee) -> Guarantee:
    """Return the guarantee for a penalized reward if the reward is minimized.

    Args:
        guarantee: The guarantee for maximization.
    """
    every, less = "the regret of every round", "less the lower confidence bound of the reward"
    plus = "plus the upper confidence bound of the reward"
    minimized = guarantee.with_wording(
        "regret", every, "the regret, of minus the reward, in every round"
    )
    return minimized.with_wording("regret", less, plus)


def check_maximizes(name: str, options: Mapping[str, Any]) -> None:
    """Raise if the reward is to be minimized in a loop, whose regret bounds are for maximization.

    Args:
        name: The name of the acquisition class, for error messages.
        options: Constructor arguments.

    Raises:
        ValueError: If ``maximize`` is False.
    """
    if check_one_of("maximize", options.get("maximize", True), (True, False)) is False:
        raise ValueError(
            f"{name} has maximize=False, but a loop maximizes the reward under constraints. Pass "
            "maximize=False to the loop instead."
        )


class OutputWidths:
    """The widths of the outputs of a model, each from its own prior.

    Args:
        name: The name of the acquisition class, for error messages.
        model: The model without pending points.
        num_outputs: The number of outputs after the transform.
        posterior_transform: The user's transform, if any; the prior can be read only through
            :class:`~botorch_bandits.acquisition.affine_outcomes.AffineOutcomes`.
        scale: A factor on every width.
        options: See :func:`output_rules`; ``assume`` as well.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        num_outputs: int,
        posterior_transform: PosteriorTransform | None,
        scale: float,
        options: Mapping[str, Any],
    ) -> None:
        """See the class."""
        self.rules = output_rules(name, num_outputs, options)
        self.scale = check_scale(scale)
        width = options["width"]
        self.is_one_number = width is not None and not isinstance(width, tuple)
        self.model = model
        self.posterior_transform = posterior_transform
        self.assume = check_assume(options["assume"])
        self.summaries = tuple(
            PriorSummary(model, self._transform_of(j), self.assume) for j in range(len(self.rules))
        )

    def _transform_of(self, j: int) -> PosteriorTransform:
        if isinstance(self.posterior_transform, AffineOutcomes):
            return self.posterior_transform.row(j)
        return self.posterior_transform or select_output(j, self.model.num_outputs)

    @property
    def are_one(self) -> bool:
        """Whether every width is the constant 1, which leaves a draw unchanged."""
        return self.scale == 1.0 and all(
            isinstance(rule, ConstantWidth) and rule.value == 1.0 for rule in self.rules
        )

    def compute(self) -> Tensor:
        """Return ``batch_shape x num_outputs`` widths, where ``batch_shape`` is the model's."""
        widths = [
            fit_to_batch(WIDTH, self.scale * rule.width(summary, 1), self.model.batch_shape)
            for rule, summary in zip(self.rules, self.summaries, strict=True)
        ]
        return torch.stack(torch.broadcast_tensors(*widths), dim=-1)

    def guarantee(self, method: str, delta: float) -> Guarantee:
        """Return what the widths of all outputs guarantee together.

        Args:
            method: The method that uses them.
            delta: The failure probability for all outputs together.
        """
        each = [
            rule.guarantee(summary, 1)
            for rule, summary in zip(self.rules, self.summaries, strict=True)
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
                bands=Statement(
                    "with {probability} the reward and each constraint lie within their widths of "
                    "their posterior means, at all points and in all rounds, for all multipliers "
                    "at once",
                    delta=delta,
                    reach="everywhere",
                ),
                regret=RegretStatement(
                    "with {probability}, on the same event, the regret of every round "
                    "that maximizes the bound of the penalized reward, against the best point that "
                    "meets the constraints, is at most the value of that bound less the lower "
                    "confidence bound of the reward, at the point that it chose",
                    delta=delta,
                ),
                violation=Statement(
                    "with {probability}, on the same event, each constraint is at most its upper "
                    "confidence bound at the points that were chosen, so that the norm of the "
                    "positive part of summed constraint values is at most that of summed bounds",
                    delta=delta,
                ),
                assumptions=tuple(
                    dict.fromkeys(
                        assumption
                        for guarantee in each
                        for assumption in guarantee.about("each function").assumptions
                    )
                ),
            )
        if self.scale != 1.0:
            combined = combined.with_gaps(f"the width is scaled by {self.scale:g}")
        if is_ensemble(self.model):
            combined = combined.with_gaps("the bound is averaged over the members of an ensemble")
        return combined

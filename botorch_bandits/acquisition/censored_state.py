"""What the acquisition functions with censored feedback keep and say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.censoring import Censoring, output_signs
from botorch_bandits.acquisition.recipe import BanditAcquisition, check_pending
from botorch_bandits.checks import check_probability
from botorch_bandits.confidence import CensoredWidth, Guarantee, PriorReading
from botorch_bandits.confidence.widths import check_scale
from botorch_bandits.models.observed import observed_outcomes, prior_means


def build_settings(halves_delta: bool = False, **options: Any) -> tuple[Censoring, CensoredWidth]:
    """Return how to censor, and the width rule, from the options of a constructor.

    Args:
        halves_delta: Whether half of ``delta`` is for something else than the confidence bound.
        options: The options of both, by the names of the constructor; ``width`` is the constant.
    """
    delta = check_probability("delta", options.pop("delta", 0.1))
    constant = options.pop("width", None)
    of_censoring = {field.name for field in fields(Censoring)}
    of_rule = {field.name for field in fields(CensoredWidth)}
    rule = CensoredWidth(
        delta=delta / 2.0 if halves_delta else delta,
        constant=constant,
        **{name: value for name, value in options.items() if name in of_rule},
    )
    censoring = Censoring(**{name: v for name, v in options.items() if name in of_censoring})
    return censoring, rule


def check_censored_options(options: dict[str, Any]) -> None:
    """Raise what a constructor raises for these options on any model."""
    check_scale(options.get("scale", 1.0))
    known = {field.name for field in (*fields(Censoring), *fields(CensoredWidth))} | {"width"}
    build_settings(**{name: value for name, value in options.items() if name in known})


class CensorsPending(BanditAcquisition):
    """Takes pending points at the known minimum and computes the width that goes with it."""

    base_model: Model
    rule: Any  # a CensoredWidth
    posterior_transform: PosteriorTransform | None
    scale: float
    predictive: bool = False
    _censoring: Censoring | None = None
    _pseudo_values: tuple[float, ...] | None = None
    _signs: tuple[float, ...] = ()
    _X_observed: Tensor | None = None
    _Y_observed: Tensor | None = None

    @property
    def is_optimistic(self) -> bool:
        """False: the bound is on the reward times the probability of arriving in time."""
        return False

    @property
    def pseudo_values(self) -> tuple[float, ...] | None:
        """What pending queries are filled in with: one number an output, in raw units.

        None before there is a proxy for an unknown minimum.
        """
        return self._pseudo_values

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return mean, standard deviation, width and information gain at one point.

        Args:
            x: A ``d``-dimensional point. The model must not be batched.
        """
        known = super().describe(x)
        gain = self.rule.information_gain(self._gain_reading())
        if gain is not None:  # that of the base class is without pending rows
            known["information_gain"] = float(gain.mean())
        return known

    def _censor(self, base_model: Model, X_pending: Tensor | None, maximize: bool) -> Tensor:
        """Replace the model by the censored one; return the scaled width."""
        assert self._censoring is not None
        pending = check_pending(X_pending)
        if pending is not None:
            here = next(base_model.parameters(), pending).device
            pending = pending.detach().to(here, copy=True)
        signs = output_signs(base_model, self.posterior_transform, maximize)
        values = self._censoring.pseudo_values(
            base_model, signs, self._X_observed, self._Y_observed
        )
        model = base_model
        if pending is not None:
            if values is None:
                values = self._censoring.proxy(base_model, signs, pending)
            model = self._censoring.censor(base_model, pending, values)
        sums = self._censoring.deviation_sums(base_model, model, pending, self.predictive)
        reading = self._reading_of(base_model, model, pending, values)
        width = check_scale(self.scale) * self.rule.censored_width(reading, sums)
        if pending is not None:
            assert values is not None
            self._censoring.warn_of_ringing(
                base_model,
                model,
                pending,
                values,
                self.posterior_transform,
                maximize,
                self._X_observed,
            )
        # all that may be refused has been: now nothing is left half done
        self.model, self._pseudo_values, self._signs = model, values, signs
        AcquisitionFunction.set_X_pending(self, pending)
        return width

    def _reading_of(
        self,
        base_model: Model,
        model: Model,
        pending: Tensor | None,
        values: tuple[float, ...] | None,
    ) -> PriorReading:
        """Read the prior with all rows; pseudo-rows count as rows with ordinary noise."""
        assert self._censoring is not None
        if pending is not None and self._censoring.pseudo_noise > 0.0:
            assert values is not None
            model = self._censoring.censor(base_model, pending, values, with_noise=False)
        return PriorReading(model, self.posterior_transform)

    def _gain_reading(self) -> PriorReading:
        return self._reading_of(self.base_model, self.model, self.X_pending, self._pseudo_values)

    def _of_draws(self, guarantee: Guarantee) -> Guarantee:
        """Word a guarantee of the width for draws, which have the other half of delta."""
        return guarantee.for_draws("Thompson sampling, censored feedback", 2.0 * self.rule.delta)

    def _censoring_gaps(self) -> Iterator[str]:
        """Why the theorem does not cover this use, beside what the width rule knows."""
        censoring = self._censoring
        assert censoring is not None
        if self.scale != 1.0:
            yield f"the width is scaled by {self.scale:g}"
        if self.predictive:
            yield "standard deviations include the noise"
        if is_ensemble(self.base_model):
            yield "the bound is averaged over the members of an ensemble"
        if censoring.minimum is None:
            yield "the minimum is unknown; a lower confidence bound is in its place"
        if censoring.pseudo_noise > 0.0 and self.X_pending is not None:
            yield "pending rows have more noise than the others"
        if self._pseudo_values is not None:
            yield from self._value_gaps(self._pseudo_values)

    def _value_gaps(self, values: tuple[float, ...]) -> Iterator[str]:
        censoring = self._censoring
        assert censoring is not None
        stated = censoring.minimum if isinstance(censoring.minimum, tuple) else ()
        stated = stated or (censoring.minimum,) * len(values)  # type: ignore[assignment]
        if censoring.minimum is not None and any(
            value != before for value, before in zip(values, stated, strict=True)
        ):
            yield "the minimum was lowered to an observed outcome"
        means = prior_means(self.base_model)
        if means is None:
            yield "the prior mean cannot be read; it must equal the minimum"
        outcomes = self._observed_columns()
        for j, value in enumerate(values):
            if self._signs[j] == 0.0:
                continue
            here = means[j] if means is not None else torch.tensor([value], dtype=torch.float64)
            difference = float((here - value).abs().max())
            if difference > 1e-6 * (1.0 + abs(value)):
                yield (
                    f"the prior mean differs from the minimum by {difference:.4g}; give the model "
                    f"a fixed prior mean of {value:g} (BanditGP: prior_mean=)"
                )
            bound = self.rule.outcome_bound
            bound = bound[j] if isinstance(bound, tuple) else bound
            if isinstance(bound, float | int) and self.rule.units == "outcome" and outcomes:
                farthest = float((outcomes[j] - value).abs().max()) if len(outcomes[j]) else 0.0
                if farthest > bound * (1.0 + 1e-9):
                    yield (
                        f"an observed outcome is {farthest:.4g} from the minimum, more than "
                        f"outcome_bound = {bound:.4g}"
                    )

    def _observed_columns(self) -> tuple[Tensor, ...] | None:
        if self._Y_observed is not None:
            return self._Y_observed.unbind(-1)
        return observed_outcomes(self.base_model)

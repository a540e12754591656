"""Width rules: from a model and a round to the factor of its posterior standard deviation.

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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_integer,
    check_nonnegative,
    check_one_of,
    check_probability,
)
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.readable_prior import (
    OutputPrior,
    PriorReading,
    UnreadablePriorError,
)
from botorch_bandits.confidence.widths import (
    any_lambda_width,
    constant_width,
    gp_ucb_finite_width,
    igp_ucb_width,
)


class WidthRule(ABC):
    """A confidence width as a function of a model and a round."""

    needs_round: ClassVar[bool] = False
    """Whether the width depends on the round other than through the data."""

    @abstractmethod
    def width(self, reading: PriorReading, round_number: int) -> Tensor:
        """Return the width, of the model's batch shape (a scalar for an ordinary model).

        Args:
            reading: The prior of the model without pending points.
            round_number: The round ``t``, from 1.

        Raises:
            ValueError: If the model's prior cannot be read but is needed.
        """

    @abstractmethod
    def guarantee(self, reading: PriorReading, round_number: int) -> Guarantee:
        """Return what the width promises for this model and round."""

    def information_gain(self, reading: PriorReading) -> Tensor | None:
        """Return the information gain that enters the width, summed over outputs, if any does."""
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
        check_nonnegative("width", self.value)

    def width(self, reading: PriorReading, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`."""
        return constant_width(self.value)

    def guarantee(self, reading: PriorReading, round_number: int) -> Guarantee:
        """See :meth:`WidthRule.guarantee`."""
        return Guarantee(
            method=f"constant width {self.value:g}",
            constants={"width": float(self.value)},
            gaps=("a constant width is a heuristic",),
        )


@dataclass(frozen=True)
class FiniteArmsWidth(WidthRule):
    """GP-UCB on finitely many arms: Srinivas et al. 2010, Theorem 1.

    Attributes:
        num_arms: ``|D|``.
        delta: The bound fails with at most this probability.
    """

    num_arms: int
    delta: float
    needs_round: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the ingredients."""
        check_integer("num_arms", self.num_arms, minimum=1)
        check_probability("delta", self.delta)

    def width(self, reading: PriorReading, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`; it needs nothing of the model."""
        return gp_ucb_finite_width(self.num_arms, round_number, self.delta)

    def guarantee(self, reading: PriorReading, round_number: int) -> Guarantee:
        """See :meth:`WidthRule.guarantee`."""
        constants = {"num_arms": float(self.num_arms), "delta": self.delta}
        gaps: list[str] = []
        try:
            priors = reading.active_priors
            gaps += _learned(priors)
        except UnreadablePriorError as error:
            gaps.append(f"the prior cannot be read ({error})")
        return Guarantee(
            method="GP-UCB on finitely many arms",
            theorem="Srinivas et al. 2010, Theorem 1",
            statement=f"with probability {1 - self.delta:g} the reward lies within the width of "
            "the posterior mean, on all arms and in all rounds",
            assumptions=(
                "the reward function is a draw from the model's Gaussian-process prior",
                "the noise is Gaussian with the modelled variance",
                "the acquisition is maximised over these arms",
            ),
            constants=constants,
            gaps=tuple(gaps),
        )


@dataclass(frozen=True)
class KernelizedWidth(WidthRule):
    """IGP-UCB and the scale of GP-TS: Chowdhury and Gopalan 2017, Theorems 2 and 4.

    Attributes:
        rkhs_bound: ``B``, a bound on the norm of each output in its unit-variance kernel, in raw
            outcome units. One number for all outputs or one an output.
        noise_bound: ``R`` of R-sub-Gaussian noise, in raw outcome units. Likewise.
        delta: The bound fails with at most this probability.
        any_lambda: Use the form that holds for every regularisation, not the printed one (which
            needs ``lam >= 1``).
        explicit_gain: The information gain to use in place of the realised one. With a model
            whose prior cannot be read, the bounds are taken in units of its prior standard
            deviation.
        units: ``"outcome"``: the bounds are in raw outcome units. ``"prior"``: they are multiples
            of the prior standard deviation, for models that learn the scale of the outcomes.
    """

    rkhs_bound: float | tuple[float, ...]
    noise_bound: float | tuple[float, ...]
    delta: float
    any_lambda: bool = False
    explicit_gain: float | None = None
    units: str = "outcome"

    def __post_init__(self) -> None:
        """Check the ingredients."""
        for name, bound in (("rkhs_bound", self.rkhs_bound), ("noise_bound", self.noise_bound)):
            for value in bound if isinstance(bound, tuple) else (bound,):
                check_nonnegative(name, value)
        check_probability("delta", self.delta)
        if self.explicit_gain is not None:
            check_nonnegative("information_gain", self.explicit_gain)
        check_one_of("units", self.units, ("outcome", "prior"))

    def width(self, reading: PriorReading, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`."""
        try:
            active, priors = reading.active_outputs, reading.priors
        except UnreadablePriorError as error:
            if self.explicit_gain is not None and not self.any_lambda and self._is_single:
                return igp_ucb_width(
                    self.rkhs_bound,  # type: ignore[arg-type]
                    self.noise_bound,  # type: ignore[arg-type]
                    self.explicit_gain,
                    self.delta,
                )
            raise UnreadablePriorError(
                f"the width needs the model's prior, but {error}. Pass information_gain= (bounds "
                "are then in units of the prior standard deviation, any_lambda=False) or an "
                "explicit width=."
            ) from error
        squared = [
            self._output_width(j, prior, len(priors), self.delta / len(active)) ** 2
            for j, prior in enumerate(priors)
            if j in active
        ]
        return torch.stack(torch.broadcast_tensors(*squared)).sum(0).sqrt()

    def guarantee(self, reading: PriorReading, round_number: int) -> Guarantee:
        """See :meth:`WidthRule.guarantee`."""
        constants: dict[str, float] = {"delta": self.delta}
        for name, bound in (("rkhs_bound", self.rkhs_bound), ("noise_bound", self.noise_bound)):
            values = bound if isinstance(bound, tuple) else (bound,)
            names = [name] if len(values) == 1 else [f"{name}_{j}" for j in range(len(values))]
            constants.update(zip(names, map(float, values), strict=True))
        gaps: list[str] = []
        try:
            priors = reading.active_priors
            gaps += _learned(priors)
            lam = min(float(prior.lam.min()) for prior in priors)
            constants["lam"] = lam
            if lam < 1.0 and not self.any_lambda:
                gaps.append(
                    f"lam = {lam:.4g} is below 1, where the printed width is not a bound; "
                    "any_lambda=True gives one that is"
                )
        except UnreadablePriorError as error:
            gaps.append(f"the prior cannot be read ({error})")
        if self.explicit_gain is not None:
            constants["information_gain"] = float(self.explicit_gain)
            gaps.append("information_gain was given; it must be at least the realised gain")
        else:
            gain = self.information_gain(reading)
            if gain is not None:
                constants["information_gain"] = float(gain.max())
        form = "in the form for every lam" if self.any_lambda else "as printed"
        return Guarantee(
            method="IGP-UCB width",
            theorem=f"Chowdhury and Gopalan 2017, Theorem 2, {form}, with the realised "
            "information gain",
            statement=f"with probability {1 - self.delta:g} the reward lies within the width of "
            "the posterior mean, at all points and in all rounds",
            assumptions=(
                "the norm of the reward function in the unit-variance kernel is at most rkhs_bound",
                "the noise is noise_bound-sub-Gaussian given the past",
            ),
            constants=constants,
            gaps=tuple(gaps),
        )

    def information_gain(self, reading: PriorReading) -> Tensor | None:
        """See :meth:`WidthRule.information_gain`."""
        if self.explicit_gain is not None:
            return torch.tensor(self.explicit_gain, dtype=DTYPE)
        try:
            gains = [prior.information_gain for prior in reading.active_priors]
        except UnreadablePriorError:
            return None
        return torch.stack(torch.broadcast_tensors(*gains)).sum(0)

    @property
    def _is_single(self) -> bool:
        return not isinstance(self.rkhs_bound, tuple) and not isinstance(self.noise_bound, tuple)

    def _output_width(
        self, output: int, prior: OutputPrior, num_outputs: int, delta: float
    ) -> Tensor:
        unit = prior.standard_deviation if self.units == "outcome" else 1.0
        rkhs_bound = _pick("rkhs_bound", self.rkhs_bound, output, num_outputs) / unit
        noise_bound = _pick("noise_bound", self.noise_bound, output, num_outputs) / unit
        gain = prior.information_gain if self.explicit_gain is None else self.explicit_gain
        if self.any_lambda:
            return any_lambda_width(rkhs_bound, noise_bound, gain, delta, prior.lam)
        return igp_ucb_width(rkhs_bound, noise_bound, gain, delta)


def _pick(name: str, bound: float | tuple[float, ...], output: int, num_outputs: int) -> float:
    if not isinstance(bound, tuple):
        return bound
    if len(bound) != num_outputs:
        raise ValueError(
            f"{name} has {len(bound)} entries for {num_outputs} outputs; give one number, or one "
            "an output."
        )
    return bound[output]


def _learned(priors: Sequence[OutputPrior]) -> list[str]:
    learned = sorted({what for prior in priors for what in prior.learned})
    if not learned:
        return []
    return [
        f"learned from the same data, or free to be: {', '.join(learned)}; a theorem needs them "
        "fixed in advance (freeze parameters with requires_grad_(False))"
    ]

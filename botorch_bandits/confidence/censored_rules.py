"""The width rule of censored feedback: units, outputs and what is promised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_nonnegative,
    check_one_of,
    check_probability,
    store_checked,
)
from botorch_bandits.confidence.censored_widths import (
    any_lambda_censored_width,
    bounded_censored_width,
    censored_width,
)
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.readable_prior import (
    OutputPrior,
    PriorReading,
    UnreadablePriorError,
)
from botorch_bandits.confidence.rules import (
    Bound,
    WidthRule,
    bound_constants,
    check_bounds,
    combine_outputs,
    pick_bound,
    prior_gaps,
)

ASSUMPTIONS = (
    "the norm of the reward function less the minimum, in the unit-variance kernel, is at most "
    "rkhs_bound",
    "outcomes differ from the minimum by at most outcome_bound",
    "delays depend neither on the noise nor on the inputs, and have the same distribution in all "
    "rounds",
)


@dataclass(frozen=True)
class CensoredWidth(WidthRule):
    """Censored feedback: Verma, Dai and Low 2022, Theorem 1.

    Its readings are those of the CENSORED model: its gain counts pending and lost rows.

    Attributes:
        rkhs_bound: ``B``, a bound on the norm of each output less its minimum in its unit-variance
            kernel, in raw outcome units. One number for all outputs or one an output.
        noise_bound: ``R`` of R-sub-Gaussian noise, in raw outcome units. Likewise; not used with
            ``bounded_outcomes``.
        outcome_bound: ``B_y``, a bound on ``|y - minimum|``, in raw outcome units. Likewise.
        delta: The bound fails with at most this probability.
        any_lambda: Use the form that holds for every regularisation, not the printed one.
        bounded_outcomes: Use the tighter form for ``y - minimum`` in ``[0, B_y]`` (it holds for
            every regularisation).
        units: ``"outcome"``: bounds are in raw outcome units. ``"prior"``: they are multiples of
            the prior standard deviation.
        constant: Takes the place of all but the sum over pending queries (the paper's ``beta_t``).
            The sum is then kept if ``outcome_bound`` is given.
    """

    rkhs_bound: Bound | None = None
    noise_bound: Bound | None = None
    outcome_bound: Bound | None = None
    delta: float = 0.1
    any_lambda: bool = False
    bounded_outcomes: bool = False
    units: str = "outcome"
    constant: float | None = None

    def __post_init__(self) -> None:
        """Check the ingredients."""
        given = {
            "rkhs_bound": self.rkhs_bound,
            "noise_bound": self.noise_bound,
            "outcome_bound": self.outcome_bound,
        }
        bounds = {name: bound for name, bound in given.items() if bound is not None}
        store_checked(self, **check_bounds(**bounds))
        store_checked(self, delta=check_probability("delta", self.delta))
        check_one_of("any_lambda", self.any_lambda, (True, False))
        check_one_of("bounded_outcomes", self.bounded_outcomes, (True, False))
        check_one_of("units", self.units, ("outcome", "prior"))
        if self.constant is not None:
            store_checked(self, constant=check_nonnegative("width", self.constant))
            if self.rkhs_bound is not None or self.noise_bound is not None:
                raise ValueError(
                    "give either width= or rkhs_bound= and noise_bound=, not both; got "
                    f"width={self.constant}. Beside width=, outcome_bound= adds the sum over "
                    "pending queries."
                )
            return
        needed = [name for name in given if name != "noise_bound" or not self.bounded_outcomes]
        missing = [f"{name}=" for name in needed if given[name] is None]
        if missing:
            raise ValueError(
                f"the width of censored feedback needs {' and '.join(missing)} (or a constant "
                "width=)."
            )

    def width(self, reading: PriorReading, round_number: int) -> Tensor:
        """Return the width while nothing is pending; see :meth:`WidthRule.width`."""
        zero = torch.zeros((), dtype=DTYPE)
        return self.censored_width(reading, (zero,) * reading.num_outputs)

    def censored_width(self, reading: PriorReading, deviation_sums: Sequence[Tensor]) -> Tensor:
        """Return the width with pending queries, of the model's batch shape.

        Args:
            reading: The prior of the censored model.
            deviation_sums: For each output the sum of current posterior standard deviations of the
                censored model over pending queries, in raw outcome units.

        Raises:
            UnreadablePriorError: If the model's prior is needed but cannot be read.
        """
        num_outputs = reading.num_outputs
        if self.constant is not None and self.outcome_bound is None:
            return torch.tensor(self.constant, dtype=DTYPE)

        def pick(name: str, j: int, unit: float | Tensor) -> float | Tensor:
            bound = getattr(self, name)
            return 0.0 if bound is None else pick_bound(name, bound, j, num_outputs) / unit

        def of_output(j: int, prior: OutputPrior, delta: float) -> Tensor:
            unit = prior.standard_deviation if self.units == "outcome" else 1.0
            deviations = deviation_sums[j].to(prior.lam) / prior.standard_deviation
            rkhs_bound, noise_bound, outcome_bound = (
                pick(name, j, unit) for name in ("rkhs_bound", "noise_bound", "outcome_bound")
            )
            if self.constant is not None:
                factor = prior.lam if self.any_lambda or self.bounded_outcomes else 1.0
                return outcome_bound * deviations / factor
            gain, lam = prior.information_gain, prior.lam
            if self.bounded_outcomes:
                return bounded_censored_width(
                    deviations, rkhs_bound, outcome_bound, gain, delta, lam
                )
            bounds = (rkhs_bound, noise_bound, outcome_bound)
            if self.any_lambda:
                return any_lambda_censored_width(deviations, *bounds, gain, delta, lam)
            return censored_width(deviations, *bounds, gain, delta)

        try:
            width = combine_outputs(reading, self.delta, of_output)
        except UnreadablePriorError as error:
            raise UnreadablePriorError(
                f"the width needs the model's prior, but {error}. Pass an explicit width= (without "
                "outcome_bound=)."
            ) from error
        return width if self.constant is None else width + self.constant

    def guarantee(self, reading: PriorReading, round_number: int) -> Guarantee:
        """See :meth:`WidthRule.guarantee`."""
        if self.constant is not None:
            return Guarantee(
                method=f"censored feedback, constant width {self.constant:g}",
                constants={"width": float(self.constant)},
                gaps=("a constant width is a heuristic",),
            )
        bounds = {"rkhs_bound": self.rkhs_bound, "outcome_bound": self.outcome_bound}
        if not self.bounded_outcomes:
            bounds["noise_bound"] = self.noise_bound
        constants = bound_constants(
            self.delta, **{name: bound for name, bound in bounds.items() if bound is not None}
        )
        gaps = prior_gaps(reading)
        lam, gain = reading.smallest_lam(), self.information_gain(reading)
        if lam is not None:
            constants["lam"] = lam
            if lam < 1.0 and not (self.any_lambda or self.bounded_outcomes):
                gaps.append(
                    f"lam = {lam:.4g} is below 1, where the printed width is not a bound; "
                    "any_lambda=True gives one that is"
                )
        if gain is not None:
            constants["information_gain"] = float(gain.max())
        if self.bounded_outcomes:
            form, noise = "in the form for bounded outcomes", "outcomes lie on one side of the "
            noise += "minimum, at most outcome_bound away"
        else:
            form = "in the form for every lam" if self.any_lambda else "as printed"
            noise = "the noise is noise_bound-sub-Gaussian given the past"
        return Guarantee(
            method="censored feedback",
            theorem=f"Verma, Dai and Low 2022, Theorem 1, {form}, with the realised information "
            "gain",
            statement=f"with probability {1 - self.delta:g} the reward (less the minimum) TIMES "
            "rho_m, the probability that an outcome arrives within max_delay rounds, lies within "
            "the width of the posterior mean (less the minimum), at all points and in all rounds; "
            "it has the same maximiser",
            assumptions=(*ASSUMPTIONS, noise),
            constants=constants,
            gaps=tuple(gaps),
        )

    def information_gain(self, reading: PriorReading) -> Tensor | None:
        """See :meth:`WidthRule.information_gain`."""
        return reading.realized_information_gain()

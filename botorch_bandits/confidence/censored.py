r"""Censored feedback (Verma, Dai and Low 2022): widths where pending queries enter at the minimum.

With outcomes less the minimum, :math:`\tilde y_{s,t} = y_s` if the outcome of query ``s`` has
arrived within ``m`` rounds, else 0. The posterior mean of these values estimates
:math:`\rho_m f`, where :math:`\rho_m` is the probability of arriving within ``m`` rounds.

Conventions as in :mod:`botorch_bandits.confidence.igp_ucb`: widths multiply the posterior
STANDARD DEVIATION, logarithms are natural, kernels have unit variance. ``rkhs_bound`` bounds the
norm of ``f - minimum``, ``outcome_bound`` is ``B_y`` with ``|y - minimum| <= B_y``. Who has a prior
standard deviation ``s`` divides all bounds and the sum of deviations by ``s`` first (the width
rules do). The information gain is that of all rows, pending and lost ones too; the realized gain
may stand for the maximal one, because the proof uses it through ``ln det(I + K / lam)`` alone.

Source: Verma, Dai and Low, *Bayesian optimization under stochastic delayed feedback*, ICML 2022,
Theorem 1 (there the width is ``nu_t``) and its proof, appendix A.1.
"""

from __future__ import annotations

import math
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
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.prior import OutputPrior, PriorSummary, UnreadablePriorError
from botorch_bandits.confidence.width_rules import (
    Bound,
    WidthRule,
    bound_constants,
    check_all_nonnegative,
    check_bounds,
    combine_outputs,
    pick_bound,
    prior_gaps,
)
from botorch_bandits.docstrings import fill_in_docstrings


def censored_width(
    deviation_sum: float | Tensor,
    rkhs_bound: float | Tensor,
    noise_bound: float | Tensor,
    outcome_bound: float | Tensor,
    information_gain: float | Tensor,
    delta: float,
) -> Tensor:
    r"""Width of GP-UCB-SDF as printed.

    .. math::
       \nu_t = B_y \sum_s \sigma_{t-1}(x_s) + B
               + (R + B_y) \sqrt{2 (\gamma_{t-1} + 1 + \ln(2/\delta))}

    Source: Verma, Dai and Low 2022, Theorem 1. The paper sums over the last ``m`` queries; in its
    proof only queries that are still pending, and younger than ``m`` rounds, contribute, so the sum
    over them is valid and smaller. Assumes ``lam > 1`` (with the realized gain ``lam >= 1``),
    R-sub-Gaussian noise, ``|y - minimum| <= B_y`` and delays that depend neither on noise nor on
    inputs. GP-TS-SDF (Theorem 3) takes this width at ``delta / 2``.

    Args:
        deviation_sum: The sum of CURRENT posterior standard deviations, at least 0.
        rkhs_bound: ``B``, at least 0.
        noise_bound: ``R``, at least 0.
        outcome_bound: ``B_y``, at least 0.
        information_gain: The gain of all rows, in nats.
        delta: The bound fails with at most this probability.

    Returns:
        A float64 tensor of the shape to which the arguments broadcast.

    Example:
        >>> censored_width(0.5, 2.0, 0.1, 0.9, 0.0, delta=2.0 * math.exp(-1.0)).item()
        4.45
    """
    delta = check_probability("delta", delta)
    deviations = check_all_nonnegative("deviation_sum", deviation_sum)
    bound = check_all_nonnegative("rkhs_bound", rkhs_bound)
    noise = check_all_nonnegative("noise_bound", noise_bound)
    outcome = check_all_nonnegative("outcome_bound", outcome_bound)
    gain = check_all_nonnegative("information_gain", information_gain)
    radius = torch.sqrt(2.0 * (gain + 1.0 + math.log(2.0 / delta)))
    return outcome * deviations + bound + (noise + outcome) * radius


def any_lambda_censored_width(
    deviation_sum: float | Tensor,
    rkhs_bound: float | Tensor,
    noise_bound: float | Tensor,
    outcome_bound: float | Tensor,
    information_gain: float | Tensor,
    delta: float,
    lam: float | Tensor,
) -> Tensor:
    r"""Width for censored feedback that holds for every regularization.

    .. math::
       \frac{B_y}{\lambda} \sum_s \sigma_{t-1}(x_s) + B
       + \frac{R + B_y}{\sqrt\lambda} \sqrt{2 (\gamma_{t-1} + \ln(2/\delta))}

    Source: the proof of Theorem 1 of Verma, Dai and Low 2022 before it uses ``lam > 1``, with the
    self-normalized bound of Abbasi-Yadkori 2011 for the two noises, each at ``delta / 2``.

    Args:
        deviation_sum: See :func:`censored_width`.
        rkhs_bound: See :func:`censored_width`.
        noise_bound: See :func:`censored_width`.
        outcome_bound: See :func:`censored_width`.
        information_gain: See :func:`censored_width`.
        delta: The bound fails with at most this probability.
        lam: The regularization, a variance, greater than 0.

    Returns:
        A float64 tensor of the shape to which the arguments broadcast.
    """
    delta = check_probability("delta", delta)
    deviations = check_all_nonnegative("deviation_sum", deviation_sum)
    bound = check_all_nonnegative("rkhs_bound", rkhs_bound)
    noise = check_all_nonnegative("noise_bound", noise_bound)
    outcome = check_all_nonnegative("outcome_bound", outcome_bound)
    gain = check_all_nonnegative("information_gain", information_gain)
    lam = _check_lam(lam)
    radius = torch.sqrt(2.0 * (gain + math.log(2.0 / delta)) / lam)
    return outcome / lam * deviations + bound + (noise + outcome) * radius


def bounded_censored_width(
    deviation_sum: float | Tensor,
    rkhs_bound: float | Tensor,
    outcome_bound: float | Tensor,
    information_gain: float | Tensor,
    delta: float,
    lam: float | Tensor,
) -> Tensor:
    r"""Width for censored outcomes of a bounded range, for every regularization.

    .. math::
       \frac{B_y}{\lambda} \sum_s \sigma_{t-1}(x_s) + B
       + \frac{B_y}{2 \sqrt\lambda} \sqrt{2 (\gamma_{t-1} + \ln(1/\delta))}

    Tighter than :func:`any_lambda_censored_width` where ``y - minimum`` lies in ``[0, B_y]``: what
    is left of an outcome after ``m`` rounds, itself or 0, has the mean :math:`\rho_m f(x)` and a
    range of ``B_y``, so it is ``B_y / 2``-sub-Gaussian (Hoeffding's lemma). One event takes the
    place of two, and ``R`` is not needed.

    Args:
        deviation_sum: See :func:`censored_width`.
        rkhs_bound: See :func:`censored_width`.
        outcome_bound: ``B_y``, the length of the interval, at least 0.
        information_gain: See :func:`censored_width`.
        delta: The bound fails with at most this probability.
        lam: The regularization, a variance, greater than 0.

    Returns:
        A float64 tensor of the shape to which the arguments broadcast.
    """
    delta = check_probability("delta", delta)
    deviations = check_all_nonnegative("deviation_sum", deviation_sum)
    bound = check_all_nonnegative("rkhs_bound", rkhs_bound)
    outcome = check_all_nonnegative("outcome_bound", outcome_bound)
    gain = check_all_nonnegative("information_gain", information_gain)
    lam = _check_lam(lam)
    radius = torch.sqrt(2.0 * (gain + math.log(1.0 / delta)) / lam)
    return outcome / lam * deviations + bound + 0.5 * outcome * radius


def _check_lam(lam: float | Tensor) -> Tensor:
    lam = torch.as_tensor(lam, dtype=DTYPE)
    if not (lam > 0).all():
        raise ValueError(f"lam is {lam.tolist()}; it is a noise variance and must be positive.")
    return lam


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
        any_lambda: Use the form that holds for every regularization, not the printed one.
        bounded_outcomes: Use the tighter form for ``y - minimum`` in ``[0, B_y]`` (it holds for
            every regularization).
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

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """Return the width while nothing is pending; see :meth:`WidthRule.width`."""
        zero = torch.zeros((), dtype=DTYPE)
        return self.censored_width(summary, (zero,) * summary.num_outputs)

    def censored_width(self, summary: PriorSummary, deviation_sums: Sequence[Tensor]) -> Tensor:
        """Return the width with pending queries, of the model's batch shape.

        Args:
            summary: The prior of the censored model.
            deviation_sums: For each output the sum of current posterior standard deviations of the
                censored model over pending queries, in raw outcome units.

        Raises:
            UnreadablePriorError: If the model's prior is needed but cannot be read.
        """
        num_outputs = summary.num_outputs
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
            width = combine_outputs(summary, self.delta, of_output)
        except UnreadablePriorError as error:
            raise UnreadablePriorError(
                f"the width needs the model's prior, but {error}. Pass an explicit width= (without "
                "outcome_bound=)."
            ) from error
        return width if self.constant is None else width + self.constant

    def guarantee(self, summary: PriorSummary, round_number: int) -> Guarantee:
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
        gaps = prior_gaps(summary)
        lam, gain = summary.smallest_lam(), self.information_gain(summary)
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
            theorem=f"Verma, Dai and Low 2022, Theorem 1, {form}, with the realized information "
            "gain",
            statement=f"with probability {1 - self.delta:g} the reward (less the minimum) TIMES "
            "rho_m, the probability that an outcome arrives within max_delay rounds, lies within "
            "the width of the posterior mean (less the minimum), at all points and in all rounds; "
            "it has the same maximizer",
            assumptions=(*ASSUMPTIONS, noise),
            constants=constants,
            gaps=tuple(gaps),
        )

    def information_gain(self, summary: PriorSummary) -> Tensor | None:
        """See :meth:`WidthRule.information_gain`."""
        return summary.realized_information_gain()


fill_in_docstrings(__name__)

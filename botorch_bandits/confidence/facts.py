"""What decides which statements hold for a use of a method, and the words that describe the use.

:class:`Facts` are plain values: what an acquisition function does, and what the rounds of a loop
contained. A text of a guarantee is a template whose fields are facts and words that follow from
them, and is completed once, by :meth:`Facts.say`. The table of what facts void, and of what they
make the user vouch for, is in :mod:`botorch_bandits.confidence.theorems`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

from botorch_bandits.checks import counted


@dataclass(frozen=True)
class Facts:
    """What theorems must know of a use of a method; the defaults are those of a model alone.

    Attributes:
        outcome: What an outcome is called: ``"reward"``, or ``"cost"`` in a loop that minimizes.
        minimizes: Whether the outcome is minimized.
        subject: What the confidence bounds are on, if it is not the outcome.
        function: What the function that is modeled is called, if it is not that of the outcome.
        variation: By how much the function of a round may differ from a fixed one, in outcome
            units; see :class:`.KernelizedWidth`.
        draws: Whether points maximize draws, so that the bounds have half of ``delta``.
        is_drawn: Whether the theorem is about functions that are drawn from a prior.
        is_alone: Whether an acquisition function is used alone, without a loop that knows its rows.
        num_points_pending: The number of pending points that the acquisition function was given.
        pending_as: What becomes of pending points: one of ``""`` (a theorem covers them),
            ``"means"`` (they count as observed at the posterior mean), ``"bounds"`` (the same, but
            confidence bounds are computed without them), ``"redrawn"`` and ``"left out"`` (they do
            not enter the model, and another function is drawn), ``"shrinking"`` (they only shrink
            the deviations) and ``"noisy"`` (they have more noise than other rows).
        scale: The factor on the width.
        of_members: What becomes of the members of an ensemble, if it voids the guarantee.
        own_values: The name of a subclass that may evaluate something else than its base class.
        num_rounds: The number of rounds of the loop.
        refuted_round: The first round in which the data refuted the assumptions; None if there is
            none.
        has_own_model: Whether a function of the user's makes the model.
        has_own_acquisition: Whether a function of the user's makes the acquisition function.
        of_choices: Whether the statements are also about the points that were chosen, and not only
            about the bounds.
        is_late: Whether an outcome or a failure came after a later query had been asked.
        hallucinates: Whether pending queries of the loop count as observed at the posterior mean.
        num_pending: The number of pending queries.
        num_avoided: The number of failed queries whose points are avoided.
        num_failed: The number of failed queries.
        has_attached: Whether points were attached.
        is_censored: Whether the feedback is censored.
        has_told_attached: Whether points were attached together with their outcomes.
        num_lost: The number of outcomes that were lost, besides those of attached points.
        num_below: The number of outcomes below the minimum.
        farthest_below: The largest distance below it.
        bounded_outcomes: Whether the width requires that there is none below it.
        context_dim: The number of context columns.
        num_restricted: The number of rounds that could choose from a part of the domain only.
        num_counted: The number of outcomes that were told with ``count=``.
        num_noisy: The number of outcomes that were told with ``noise=``.
        forgets: Whether the model forgets.
        retracted: The ids of the queries whose outcomes were retracted.
        withdrawn: The rounds that were chosen with what was retracted later.
        sums_choices: Whether the bound on the regret is one on all choices together, or expected.
        restart: How a loop starts over: ``""``, ``"known"`` (at given rounds), ``"undivided"`` (the
            same, each segment with all of ``delta``), ``"evidence"`` or ``"tests"``.
        share: The running segment's share of ``delta``.
        segment_delta: The name of what each segment has of ``delta``.
        change_points: The given rounds.
        keeps_rows: Whether rows from before a change may be kept, by their outcomes.
        false_alarms: What is claimed about false alarms.
        constraints: ``""``, ``"separate"`` (bounds on each) or ``"penalized"`` (one on their sum).
        inner: The method that plays an epoch.
        is_covered: Whether the theorem on epochs is about that method.
        may_draw: Whether it would be for exact constraints.
        num_missing: The number of rounds without an outcome, failed or retracted.
        has_models: Whether epochs have different models.
        surrogate: What the model of a multiplier rule is of; see :data:`.SURROGATES`.
        is_capped: Whether multipliers are held at a largest one.
        is_linear_beyond: Whether the penalty grows no faster than linearly.
        unreadable: Why the prior of the model cannot be read; empty if it can.
        learned: What was, or could have been, learned from the same data.
        num_skipped: The number of first outcomes that chose a list of priors.
        is_frozen: Whether parameters are fixed now, but may have been fitted to the data before.
        of_outputs: Whether the model has several outputs.
        prior_means: The prior mean of each output, NaN if it is not constant; empty if all are 0.
        is_centered: Whether the user says that norms are of functions less the prior mean.
        has_tasks: Whether the model has several tasks.
        is_stationary: Whether the prior variance is the same at all points.
        noise: The kinds of noise of the outputs: ``"level"`` (one variance) or ``"rows"`` (one for
            each row), with ``"modeled "`` before it if the model bounds the noise itself.
        lam_has_fallen: Whether a later row than the first has a smaller noise variance, beside a
            number that bounds the noise.
        lam_of_bounds: The smallest regularization of outputs whose noise a number bounds.
        is_printed: Whether the width has the printed form, which needs ``lam >= 1``.
        not_given: The names of bounds that the user did not give.
        in_prior_units: Whether bounds are multiples of the prior standard deviation.
        gain_is_number: Whether the user gave the information gain as a number.
        small_gain: The information gain in use, if it is below the realized one.
        realized_gain: The realized one.
        fill: The value at which pending queries enter, with censored feedback.
        on_choices: Whether draws are on a finite set of points.
        num_points: The number of points on which each draw is made; None if it varies.
        prior_deviation: The prior standard deviation in raw outcome units, if it is needed.
        constants: The numbers in use, by name.
    """

    # the words
    outcome: str = "reward"
    minimizes: bool = False
    subject: str = ""
    function: str = ""
    variation: float = 0.0
    draws: bool = False
    is_drawn: bool = False
    # an acquisition function
    is_alone: bool = True
    num_points_pending: int = 0
    pending_as: str = ""
    scale: float = 1.0
    of_members: str = ""
    own_values: str = ""
    # the rounds of a loop
    num_rounds: int = 0
    refuted_round: int | None = None
    has_own_model: bool = False
    has_own_acquisition: bool = False
    of_choices: bool = True
    is_late: bool = False
    hallucinates: bool = False
    num_pending: int = 0
    num_avoided: int = 0
    num_failed: int = 0
    has_attached: bool = False
    is_censored: bool = False
    has_told_attached: bool = False
    num_lost: int = 0
    num_below: int = 0
    farthest_below: float = 0.0
    bounded_outcomes: bool = False
    context_dim: int = 0
    num_restricted: int = 0
    num_counted: int = 0
    num_noisy: int = 0
    forgets: bool = False
    retracted: tuple[int, ...] = ()
    withdrawn: tuple[int, ...] = ()
    sums_choices: bool = False
    # what starts over
    restart: str = ""
    share: float = 1.0
    segment_delta: str = "delta"
    change_points: tuple[Any, ...] = ()
    keeps_rows: bool = False
    false_alarms: str = ""
    # constraints
    constraints: str = ""
    inner: str = ""
    is_covered: bool = True
    may_draw: bool = False
    num_missing: int = 0
    has_models: bool = False
    surrogate: str = ""
    is_capped: bool = False
    is_linear_beyond: bool = False
    # the prior of the model
    unreadable: str = ""
    learned: tuple[str, ...] = ()
    is_frozen: bool = False
    num_skipped: int = 0
    of_outputs: bool = False
    prior_means: tuple[float, ...] = ()
    is_centered: bool = False
    has_tasks: bool = False
    is_stationary: bool = True
    # the ingredients of a width
    noise: frozenset[str] = frozenset({"level"})
    lam_has_fallen: bool = False
    lam_of_bounds: float = math.inf
    is_printed: bool = False
    not_given: tuple[str, ...] = ()
    in_prior_units: bool = False
    gain_is_number: bool = False
    small_gain: float | None = None
    realized_gain: float | None = None
    fill: str = "minimum"
    # draws
    on_choices: bool = True
    num_points: int | None = None
    prior_deviation: float | None = None
    constants: Mapping[str, float] = field(default_factory=dict)

    def as_told(self, value: float) -> float:
        """Return a number of the model as the user states it: models see minus the costs.

        Args:
            value: In the sign of the model.
        """
        return 0.0 - value if self.outcome == "cost" else value

    @property
    def words(self) -> dict[str, Any]:
        """The fields of templates: all facts, and the words that follow from them."""
        outcome, is_sum, within = self.outcome, self.subject == WEIGHTED_SUM, ""
        if self.num_restricted and self.of_choices:
            within = (
                f" (in {self.num_restricted} of {self.num_rounds} rounds, within the part of the "
                "domain that they could choose from)"
            )
        means = self.prior_means
        words: dict[str, Any] = {
            **vars(self),
            **self.constants,
            **WORDS[self.minimizes],
            "probability": "{probability}",  # a statement knows its level itself
            "function": self.function or f"the {outcome} function",
            "bounded": self.function or f"the {outcome} function",
            "of_each": "",
            "prior_mean": ", ".join("not 0" if math.isnan(m) else f"{m:g}" for m in means),
            "subject": self.subject or f"the {outcome}",
            "regret_of": f"the regret{within} of",
            "cumulative_regret": f"cumulative regret{within}",
            "rounds": self._covered_rounds,
            "withdrawn_rounds": self._withdrawn_rounds,
            "half": "",
            "plus_variation": "",
            "num_retracted": len(self.retracted),
            "computed": "",
            "within": within,
        }
        if self.of_outputs:
            words["bounded"] = self.function or "each output of the model"
            words["of_each"] = "of each output "
        if is_sum:
            words["regret_of"] = f"the regret in {WEIGHTED_SUM}{within} of"
            words["cumulative_regret"] = f"cumulative regret in the weighted sum{within}"
        if self.minimizes:
            of_sum = f"the weighted sum at its point less the least such sum{within}, in"
            of_one = f"the {outcome} at its point less the least {outcome}{within}, in"
            words["regret_of"] = of_sum if is_sum else of_one
            words["cumulative_regret"] = f"cumulative regret of minus {words['subject']}{within}"
        if outcome == "cost":
            words["minimum"] = "largest cost"
        if self.variation:
            words["subject"] += ", up to variation,"
            words["plus_variation"] = ", plus twice variation"
        if self.draws:
            words["half"] = " (at half of delta; the other half is for the draws)"
        if self.num_points_pending and self.pending_as == "bounds":
            words["computed"] = "computed from the outcomes that have arrived (as bounds(X) does), "
        return words

    @property
    def _withdrawn_rounds(self) -> str:
        """The rounds that no statement covers; empty if there are none."""
        if not self.withdrawn:
            return ""
        first, *others = self.withdrawn
        which = f"rounds {first} to {others[-1]}" if others else f"round {first}"
        if others and others[-1] - first > len(others):
            which = f"{len(self.withdrawn)} of the {which}"
        return which

    @property
    def _covered_rounds(self) -> str:
        """The rounds that statements cover."""
        excluded = []
        if self.withdrawn:
            excluded.append(f"{self._withdrawn_rounds}, chosen with what was retracted later")
        if self.is_late and self.hallucinates and self.pending_as != "bounds":
            excluded.append("rounds that were chosen while outcomes were pending")
        return f"all rounds but for {', and for '.join(excluded)}" if excluded else "all rounds"

    def say(self, template: str, **further: Any) -> str:
        """Return a text from its template.

        Args:
            template: The text with fields in braces: names of facts or words, which may be followed
                by a format. The format of a tuple separates its entries by commas, and that of a
                count may be the two words that follow it, ``one|many``.
            **further: Further fields.

        Example:
            >>> Facts(num_failed=2).say("{num_failed:point fails|points fail} of the {outcome}")
            '2 points fail of the reward'
        """
        return _TEXTS.vformat(template, (), {**self.words, **further})


ALONE = Facts()
"""The facts of a method without a loop, of which nothing is known but the model."""


class _Texts(Formatter):
    """Formats counts with the words that follow them, and tuples with commas."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        if isinstance(value, tuple):
            return ", ".join(format(each, format_spec) for each in value)
        if "|" in format_spec:
            return counted(value, *format_spec.split("|"))
        return super().format_field(value, format_spec)


_TEXTS = _Texts()

WEIGHTED_SUM = "the weighted sum of outputs"
"""The subject of bounds on a posterior transform of several outputs."""

WORDS = {
    False: {
        "optimizes": "maximizes the upper confidence bound",
        "largest_bound": "largest upper",
        "optimizer": "maximizer",
        "minimum": "minimum",
        "below": "below",
    },
    True: {
        "optimizes": "minimizes the lower confidence bound",
        "largest_bound": "smallest lower",
        "optimizer": "minimizer",
        "minimum": "maximum",
        "below": "above",
    },
}
"""Words of templates that depend on whether the outcome is minimized."""

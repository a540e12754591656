"""What theorems need, as a table: which facts void a statement, and what the user vouches for.

Width rules check what concerns the model and their own ingredients. Everything else that a theorem
needs of an acquisition function and of the rounds of a loop is a line of :data:`HYPOTHESES`, or of
the tables for loops with constraints. :func:`concluded` evaluates a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from botorch_bandits.confidence.facts import Facts
from botorch_bandits.confidence.guarantee import Guarantee


@dataclass(frozen=True)
class Hypothesis:
    """A requirement of a theorem.

    Attributes:
        check: Returns True if the facts show that it is met, False if they show that it is not, and
            None if the user vouches for it.
        says: A template: the gap if it is not met, or the assumption that the user makes.
        if_drawn: The template for theorems on functions that are drawn from a prior, if it differs.
        voids: The names of the statements that do not hold if it is not met; empty for all.
    """

    check: Callable[[Facts], bool | None]
    says: str
    if_drawn: str = ""
    voids: tuple[str, ...] = ()


def vouched(is_needed: Callable[[Facts], Any], says: str, if_drawn: str = "") -> Hypothesis:
    """Return a hypothesis that the user vouches for where it is needed.

    Args:
        is_needed: Whether the facts are such that it is needed.
        says: See :class:`Hypothesis`.
        if_drawn: See :class:`Hypothesis`.
    """
    return Hypothesis(lambda facts: None if is_needed(facts) else True, says, if_drawn)


def voided(is_voided: Callable[[Facts], Any], says: str, *voids: str) -> Hypothesis:
    """Return a hypothesis that facts show to be met or not.

    Args:
        is_voided: Whether it is not met.
        says: See :class:`Hypothesis`.
        *voids: See :class:`Hypothesis`.
    """
    return Hypothesis(lambda facts: not is_voided(facts), says, voids=voids)


# --- assumptions --------------------------------------------------------------------------------

BOUNDED_NORM = "the norm of {function} in the unit-variance kernel is at most rkhs_bound"
"""What theorems on functions in the kernel's Hilbert space assume if the prior mean is 0."""

BOUNDED_CENTERED_NORM = (
    "the norm of {function} less the prior mean, in the unit-variance kernel, is at most rkhs_bound"
)
"""The same assumption for any other prior mean."""

DRAWN_FROM_PRIOR = "{function} is a draw from the model's Gaussian-process prior"
"""What theorems on draws of the Gaussian process assume."""

DRAWN_FROM_LIST = "{function} is a draw from one of the Gaussian-process priors on the list"
"""The assumption if it is unknown from which of several priors the function is drawn."""

FIXED_PRIOR = "kernel, noise variance and prior mean of the model were fixed before the data"
"""What every theorem here assumes of the model."""

FIXED_LIST = (
    "the list, its weights, and kernel, noise variance and prior mean of each of its priors were "
    "fixed before the data"
)
"""What is assumed of a list of priors."""

FIXED_AFTER_FIRST = (
    "the list, its weights, and kernel, noise variance and prior mean of each of its priors depend "
    "on no later outcome"
)
"""What is assumed of a list of priors that the first outcomes chose."""

GAUSSIAN_NOISE_ON_LIST = (
    "the noise is Gaussian with mean 0 and the variance of the prior on the list that is the true "
    "one, independent from row to row and of the unknown function"
)
"""The assumption on the noise if the noise variance is on the list, too."""

SUB_GAUSSIAN_NOISE = "the noise is noise_bound-sub-Gaussian given the past"
"""The assumption on the noise in theorems on functions of bounded norm."""

SUB_GAUSSIAN_OUTPUTS = "the noise of each output is noise_bound-sub-Gaussian given the past"
"""The same assumption for a model with several outputs."""

GAUSSIAN_NOISE = (
    "the noise is Gaussian with mean 0 and the modeled variance, independent from row to row and "
    "of the unknown function"
)
"""The assumption on the noise in theorems on draws."""

BOUNDED_NOISE = (
    "the noise has mean 0 given the past and is at most sigma in absolute value almost surely, and "
    "the modeled variance is sigma^2"
)
"""The assumption on the noise in Theorem 3 of Srinivas et al. 2010."""

AS_OBSERVED = "outcomes are as observed: neither censored nor relabeled"
"""What AMM and DMM assume in addition."""

DELAYS_ALIKE = (
    "delays depend neither on the noise nor on the inputs, and have the same distribution in all "
    "rounds; outcomes that fail, are retracted or never arrive count as delayed forever"
)
"""What censored feedback assumes about delays."""

NORM_OF_THE_REST = (
    "the norm of {function} less the {minimum}, in the unit-variance kernel, is at most rkhs_bound"
)
"""What censored feedback assumes about the function."""

VARIES = (
    "in every round and at every point {function} differs by at most variation from one fixed "
    "function, for which all other assumptions hold; how it varies may depend on what happened "
    "before, not on noise that is still to come"
)
"""What replaces the assumption of one function if each round has its own."""

ROWS_IGNORE_NOISE = (
    "which outcomes are rows of the model does not depend on their noise, and no row of an earlier "
    "round is left out in a later one"
)
"""What an acquisition function alone assumes if the function is fixed; a loop knows more."""

ROWS_IGNORE_FUNCTION = (
    "the points, contexts and rows of the model were chosen from nothing but the outcomes that it "
    "has, with knowledge neither of the noise nor of the unknown function; no row of an earlier "
    "round is left out in a later one, and no two rounds with different rows have the same number"
)
"""What an acquisition function alone assumes if the function is drawn; a loop knows more."""

ARRIVALS_IGNORE_NOISE = (
    "which outcomes have arrived, and in what order, does not depend on their noise; the noise is "
    "as assumed given the points that were asked for and the outcomes that arrived before"
)
"""What is assumed if outcomes arrive late and the function is fixed."""

ARRIVALS_IGNORE_FUNCTION = (
    "which outcomes have arrived, and in what order, depends neither on their noise nor on the "
    "unknown function"
)
"""What is assumed if outcomes arrive late and the function is drawn: only outcomes reveal it."""

FAILURES_IGNORE_NOISE = "which queries failed does not depend on their noise"
"""What is assumed if queries failed and the function is fixed."""

FAILURES_IGNORE_FUNCTION = (
    "which queries failed depends neither on their noise nor on the unknown function"
)
"""What is assumed if queries failed and the function is drawn."""

ATTACHED_IGNORE_NOISE = "which outcomes were attached does not depend on their noise"
"""What is assumed if outcomes were attached and the function is fixed."""

ATTACHED_IGNORE_FUNCTION = (
    "which points were attached depends neither on their noise nor, except through outcomes told "
    "before, on the unknown function"
)
"""What is assumed if outcomes were attached and the function is drawn."""

CONTEXTS_IGNORE_NOISE = "contexts do not depend on the noise of outcomes that are not yet told"
"""What is assumed of contexts if the function is fixed."""

CONTEXTS_IGNORE_FUNCTION = (
    "contexts reveal nothing about the unknown function or the noise beyond the outcomes told"
)
"""What is assumed of contexts if the function is drawn."""

SETS_IGNORE_NOISE = (
    "the points that a round can choose from depend neither on the noise of outcomes that are not "
    "yet told nor on the random numbers of that round"
)
"""What is assumed of restricted rounds if the function is fixed."""

SETS_IGNORE_FUNCTION = (
    "the points that a round can choose from reveal nothing about the unknown function or the "
    "noise beyond the outcomes told, nor about the random numbers of that round"
)
"""What is assumed of restricted rounds if the function is drawn."""

_RETRACTED = (
    "{num_retracted:outcome was|outcomes were} retracted (query_id {retracted}); which outcomes "
    "are kept "
)
_MEANS_OF_SEVERAL = (
    "the outcomes of {num_counted:round|rounds} told with count= are means of that many "
    "observations, whose noise is as assumed, each given the earlier ones; their number does not "
    "depend on their noise"
)
_CHANGES = "after {change_points} only, and in each segment "
_WITH_RESTARTS = (
    "with restarts the theorem covers each segment at {segment_delta}, for as long as the "
    "{outcome} function does not change in it"
)
_NOT_SEEN = "; a change at points that are not played is not seen. On false alarms: {false_alarms}"


# --- the table ----------------------------------------------------------------------------------


def _takes_means(facts: Facts) -> bool:
    """Return whether pending and failed queries of a loop count as observed."""
    left_out = facts.pending_as in ("redrawn", "bounds")
    return facts.of_choices and facts.hallucinates and not left_out


HYPOTHESES = (
    # an acquisition function
    voided(
        lambda f: f.num_points_pending and f.pending_as == "means",
        "{num_points_pending:pending point enters|pending points enter} at the posterior mean",
    ),
    voided(
        lambda f: f.num_points_pending and f.pending_as == "bounds",
        "{num_points_pending:pending point enters|pending points enter} at the posterior mean, so "
        "the point that is chosen need not have the {largest_bound} bound; on arms, "
        "regret_bound(x, choices) bounds the regret of this round for any choice",
        "regret",
    ),
    voided(
        lambda f: f.num_points_pending and f.pending_as == "shrinking",
        "{num_points_pending:pending point shrinks|pending points shrink} the deviations",
    ),
    voided(
        lambda f: f.num_points_pending and f.pending_as in ("redrawn", "left out"),
        "{num_points_pending:outcome is pending|outcomes are pending}",
    ),
    voided(
        lambda f: f.num_points_pending and f.pending_as == "noisy",
        "pending rows have more noise than the others",
    ),
    voided(lambda f: f.scale != 1.0, "the width is scaled by {scale:g}"),
    voided(lambda f: f.of_members, "{of_members}"),
    voided(
        lambda f: f.own_values,
        "{own_values} may evaluate something other than its base class, whose guarantee this is; "
        "give it its own guarantee, or set defines_rule = True in its body if its values are those "
        "of width_rule",
        "regret",
    ),
    vouched(lambda f: f.is_alone, ROWS_IGNORE_NOISE, ROWS_IGNORE_FUNCTION),
    # the rounds of a loop
    voided(
        lambda f: f.refuted_round is not None,
        "the data refuted the assumptions at this level in round {refuted_round}",
    ),
    vouched(
        lambda f: f.has_own_model,
        "the function that makes the model makes a row of every outcome, as it was told",
    ),
    vouched(
        lambda f: f.has_own_acquisition,
        "the acquisition function is made with the same arguments in every round",
    ),
    vouched(  # censored feedback has its own assumption on delays
        lambda f: (f.is_late or f.num_pending) and not f.is_censored,
        ARRIVALS_IGNORE_NOISE,
        ARRIVALS_IGNORE_FUNCTION,
    ),
    voided(
        lambda f: f.num_below and f.bounded_outcomes,
        "{num_below:outcome lies|outcomes lie} {below} the {minimum}, but bounded_outcomes=True "
        "requires that none does",
    ),
    vouched(
        lambda f: f.num_below and not f.bounded_outcomes,
        "{num_below:outcome lies|outcomes lie} {below} the {minimum}, by at most "
        "{farthest_below:.4g}: outcome_bound bounds how far outcomes are from it in both "
        "directions",
    ),
    vouched(lambda f: f.num_failed, FAILURES_IGNORE_NOISE, FAILURES_IGNORE_FUNCTION),
    vouched(lambda f: f.has_attached, ATTACHED_IGNORE_NOISE, ATTACHED_IGNORE_FUNCTION),
    vouched(
        lambda f: f.is_censored and f.has_told_attached,
        "attached outcomes are never lost, so every other outcome is assumed to arrive within "
        "max_delay as well (rho_m = 1)",
    ),
    voided(
        lambda f: f.is_censored and f.has_told_attached and f.num_lost,
        "attached outcomes are never lost, but {num_lost} others were, so rho_m is not one number",
    ),
    vouched(lambda f: f.context_dim, CONTEXTS_IGNORE_NOISE, CONTEXTS_IGNORE_FUNCTION),
    vouched(lambda f: f.num_restricted, SETS_IGNORE_NOISE, SETS_IGNORE_FUNCTION),
    vouched(
        lambda f: f.num_counted,
        _MEANS_OF_SEVERAL,
        f"{_MEANS_OF_SEVERAL} or on the unknown function",
    ),
    vouched(
        lambda f: f.num_noisy,
        "the noise of the outcomes of {num_noisy:round|rounds} told with noise=v has the bound "
        "noise_bound sqrt(v / lam) instead of noise_bound, where lam is the modeled variance; v is "
        "known before the noise",
        "the noise of the outcomes of {num_noisy:round|rounds} told with noise=v has the variance "
        "v instead of the modeled one; v depends neither on the noise nor on the unknown function",
    ),
    voided(
        lambda f: _takes_means(f) and f.num_pending,
        "{num_pending:pending point enters|pending points enter} at the posterior mean",
        "bands",
    ),
    voided(
        lambda f: _takes_means(f) and f.num_avoided,
        "{num_avoided:failed point enters|failed points enter} at the posterior mean",
        "bands",
    ),
    voided(lambda f: f.forgets, "this package claims no theorem for a model that forgets"),
    vouched(
        lambda f: f.retracted,
        f"{_RETRACTED}does not depend on their noise",
        f"{_RETRACTED}depends neither on their noise nor, except through the outcomes that are "
        "kept, on the unknown function",
    ),
    vouched(
        lambda f: f.withdrawn,
        "no statement covers {withdrawn_rounds}, chosen with what was retracted later",
    ),
    vouched(  # with an expectation over choices, none may be left out because of the choices
        lambda f: f.withdrawn and f.sums_choices,
        "which outcomes were retracted, and when, does not depend on what was chosen after them",
    ),
    # what starts over
    voided(
        lambda f: f.restart == "undivided",
        "each segment has all of delta, so all segments together fail with a larger probability; "
        "split_delta=True divides it",
    ),
    vouched(
        lambda f: f.restart == "known" and not f.constraints,
        f"the {{outcome}} function changes {_CHANGES}it is a fixed function of that norm",
        f"the {{outcome}} function changes {_CHANGES}it is a new draw that is independent of what "
        "came before",
    ),
    vouched(
        lambda f: f.restart == "known" and f.constraints,
        f"the {{outcome}} function and the constraints change {_CHANGES}each is a fixed function "
        "of that norm",
        f"the {{outcome}} function and the constraints change {_CHANGES}each is a new draw that is "
        "independent of what came before",
    ),
    voided(
        lambda f: f.restart == "evidence" and f.keeps_rows,
        f"{_WITH_RESTARTS}, and the rows that later segments keep were chosen by their outcomes"
        f"{_NOT_SEEN}",
    ),
    voided(
        lambda f: f.restart == "evidence" and not f.keeps_rows,
        f"{_WITH_RESTARTS}, and the outcomes that later segments drop determined when they begin"
        f"{_NOT_SEEN}",
    ),
    voided(
        lambda f: f.restart == "tests",
        f"{_WITH_RESTARTS}; a change is seen late or not at all",
    ),
)
"""What theorems need of an acquisition function, and of the rounds of a loop."""

RATES = ("regret", "violation")

NOT_EVERY_ROUND = (
    "{num} of {num_rounds} rounds were not chosen by the method with every outcome at hand, but "
    "the proof needs all of them to be"
)
"""The gap of a theorem on all rounds of an epoch, once they are counted."""

NO_ROUND = (
    "none of the {num_rounds} rounds so far was chosen by the method with every outcome at hand"
)
"""The gap of a statement that covers no round, once they are counted."""

OF_EPOCHS = (
    voided(
        lambda f: not f.is_covered and not f.may_draw,
        "the theorem's inner algorithm is IGP-UCB, not {inner}",
        *RATES,
    ),
    voided(
        lambda f: not f.is_covered and f.may_draw,
        "the theorem's inner algorithm is IGP-UCB, not {inner}; Remark 1 allows GP-TS for "
        "Algorithm 2 only",
        *RATES,
    ),
    voided(
        lambda f: f.context_dim,
        "the theorem is against the best fixed point; none is stated here with contexts",
        *RATES,
    ),
    voided(
        lambda f: f.num_restricted,
        "the theorem is against the best fixed point; none is stated here where rounds could "
        "choose from a part of the domain only",
        *RATES,
    ),
    voided(
        lambda f: f.restart,
        "a reset cuts the running epoch short without an update of the multipliers, but the proof "
        "needs the update of every epoch",
        *RATES,
    ),
    voided(
        lambda f: f.num_missing,
        "{num_missing} of {num_rounds} rounds have no outcome, but the proof needs the {outcome} "
        "and the constraint values of all rounds",
        *RATES,
    ),
    vouched(
        lambda f: f.variation,
        "the fixed point that regret compares with meets the constraints of every round",
    ),
    vouched(
        lambda f: f.has_models,
        "each epoch has its own model, which was fixed before the outcomes of the epoch; "
        "assumptions on the penalized function of an epoch refer to the kernel of that model",
    ),
    voided(
        lambda f: f.is_censored,
        "no theorem is claimed for censored feedback with constraints: the value of pending "
        "queries, the smallest penalized outcome, changes with the multipliers, which follow from "
        "earlier noise",
    ),
)
"""What the theorems on epochs of a penalized function need in addition."""

OF_SEPARATE_BOUNDS = (
    voided(
        lambda f: f.is_censored,
        "no theorem is claimed for censored feedback with constraints: the bounds are on the "
        "{outcome} less the {minimum}, and on each constraint, times the probability that an "
        "outcome arrives in time",
    ),
)
"""What separate bounds on the outcome and each constraint need in addition."""


def concluded(
    guarantee: Guarantee, facts: Facts, table: Sequence[Hypothesis] = HYPOTHESES
) -> Guarantee:
    """Return what a theorem guarantees in a use, given the facts about it.

    Args:
        guarantee: What the theorem says, with the gaps that the width rule knows.
        facts: The facts.
        table: The hypotheses.
    """
    regret = guarantee.regret
    facts = replace(
        facts,
        is_drawn=guarantee.is_drawn,
        sums_choices=regret is not None and (regret.factor is None or regret.is_expected),
    )
    for each in table:
        verdict = each.check(facts)
        if verdict:
            continue
        says = facts.say(each.if_drawn if facts.is_drawn and each.if_drawn else each.says)
        if verdict is not None:
            guarantee = guarantee.with_gaps(says, of=each.voids)
        elif guarantee.theorem is not None:
            guarantee = guarantee.with_assumptions(says)
    return guarantee

"""Theorems as tables: what each says, and which facts void it or make the user vouch for something.

All texts are templates, see :meth:`.Facts.say`. What a theorem on a width needs of a model and of
ingredients are lines of small tables, which the theorem lists. What it needs of an acquisition
function and of the rounds of a loop is a line of :data:`HYPOTHESES`, or of the tables for loops
with constraints. Width rules collect facts, and :func:`guarantee_of` evaluates the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.guarantee import Forecast, Guarantee, RegretStatement, Statement


@dataclass(frozen=True)
class Hypothesis:
    """A requirement of a theorem that some facts concern.

    Attributes:
        when: The fact that concerns it, by name, or a function of all facts.
        says: A template: the gap if it is not met, or the assumption that the user makes.
        if_drawn: The template for theorems on functions that are drawn from a prior, if it differs.
        voids: The names of the statements that do not hold because it is not met; empty for all,
            None if the user vouches for it.
    """

    when: str | Callable[[Facts], Any]
    says: str
    if_drawn: str = ""
    voids: tuple[str, ...] | None = None

    def concerns(self, facts: Facts) -> bool:
        """Return whether the facts concern it.

        Args:
            facts: The facts of a use.
        """
        if callable(self.when):
            return bool(self.when(facts))
        return bool(getattr(facts, self.when))


def voided(when: str | Callable[[Facts], Any], says: str, *voids: str) -> Hypothesis:
    """Return a hypothesis that is not met in some uses.

    Args:
        when: See :class:`Hypothesis`.
        says: See :class:`Hypothesis`.
        *voids: See :class:`Hypothesis`.
    """
    return Hypothesis(when, says, voids=voids)


def never(says: str) -> Hypothesis:
    """Return a hypothesis that is not met in any use.

    Args:
        says: See :class:`Hypothesis`.
    """
    return voided(lambda f: True, says)


# --- assumptions --------------------------------------------------------------------------------

BOUNDED_NORM = "the norm of {bounded} in the unit-variance kernel is at most rkhs_bound"
"""What theorems on functions in the kernel's Hilbert space assume if the prior mean is 0."""

BOUNDED_CENTERED_NORM = (
    "the norm of {bounded} less the prior mean, in the unit-variance kernel, is at most rkhs_bound"
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

FIXED_BUT_FOR_ROWS = "kernel and prior mean of the model were fixed before the data"
"""What is fixed if the noise variance of each row is known only before its outcome."""

SUB_GAUSSIAN_NOISE = "the noise {of_each}is noise_bound-sub-Gaussian given the past"
"""The assumption on the noise in theorems on functions of bounded norm."""

SUB_GAUSSIAN_ROWS = (
    "the noise of each row is sub-Gaussian given the past; its bound is the square root of the "
    "row's noise variance in the model, a number that was known before the row's outcome (a "
    "standard error estimated from the same outcomes is no such bound)"
)
"""The same with ``noise_bound="model"``."""

ROWS_WERE_KNOWN = (
    "the noise variance of each row in the model was known before the row's outcome (it was not "
    "estimated from the same outcomes)"
)
"""What is needed in addition if rows are weighted differently and one ``noise_bound`` is given."""

SMALLEST_ROW_IS_FIXED = (
    "no row has a smaller noise variance in the model than the first one, which is the row of the "
    "outcome that was observed first"
)
"""The ratio of the noise bound to that noise enters the width and must be fixed before the data."""

FIRST_ROW = "the first row of the model is that of the outcome that was observed first"
"""What DMM needs, because its base ridge is the regularization of the first row."""

ROWS_HAVE_LARGE_LAM = "no row ever has a noise variance below the prior variance"
"""What the printed width of IGP-UCB needs in all rounds."""

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


# --- what theorems on widths need of a model and of ingredients -----------------------------------

PRIOR = (
    voided("unreadable", "the prior cannot be read ({unreadable})"),
    voided(
        "learned",
        "learned from the same data, or free to be learned: {learned}; a theorem needs them fixed "
        "in advance (BanditGP.with_kernel(...) does that)",
    ),
    voided(
        lambda f: f.is_frozen and not f.learned,
        "the model's parameters are frozen, but they may have been fitted to the same data before; "
        'if they were fixed before the data, say so with assume="fixed prior"',
    ),
)
"""What theorems need of the prior of a model."""

DEFAULTS = {
    "rkhs_bound": "1 prior standard deviation",
    "noise_bound": "the standard deviation of the model's noise",
    "outcome_bound": "a width without its terms",
}
"""Descriptions of the defaults that replace bounds that were not given."""


def _given(name: str) -> Hypothesis:
    """Return the hypothesis that the user gave a bound."""
    return voided(
        lambda f: name in f.not_given,
        f"{name} was not given; the default, {DEFAULTS[name]}, is not based on knowledge of this "
        f"function: give {name}= if you have a bound",
    )


ALL_GIVEN = tuple(map(_given, DEFAULTS))
"""What theorems need of the bounds in a width."""

NORM = (
    Hypothesis(lambda f: not f.prior_means, BOUNDED_NORM),
    Hypothesis("prior_means", BOUNDED_CENTERED_NORM),
    # a bound for the function does not imply one for the function less its mean
    voided(
        lambda f: f.prior_means and not f.is_centered,
        "the prior mean is {prior_mean}, and the theorem needs a bound on the norm of the function "
        "less the prior mean; if rkhs_bound= bounds that, state it with "
        'assume="centered bound"',
    ),
)
"""What theorems on functions of bounded norm need of the bound on it."""

KERNEL = (
    Hypothesis(
        "has_tasks",
        "the bound on the norm is for the functions of all tasks together, in the model's kernel "
        "of inputs and tasks, divided by the prior variance of the output task",
    ),
    Hypothesis(
        lambda f: not (f.has_tasks or f.is_stationary),
        "the kernel is not stationary; its unit-variance form is the kernel divided by its output "
        "scale (1 without one)",
    ),
)
"""What a kernel of unit variance means."""

_AT_MOST_ONE = "the kernel divided by its output scale has k(x, x) <= 1 at all points of the domain"
AT_MOST_ONE = Hypothesis(lambda f: not (f.has_tasks or f.is_stationary), _AT_MOST_ONE)
"""What some theorems need of it in addition."""

NOISE = (
    Hypothesis(lambda f: f.noise & {"level", "modeled level"}, FIXED_PRIOR),
    # of some outputs; the rows of the others have assumptions of theirs
    Hypothesis(lambda f: not f.noise & {"level", "modeled level"}, FIXED_BUT_FOR_ROWS),
    Hypothesis(lambda f: f.noise & {"modeled level", "modeled rows"}, SUB_GAUSSIAN_ROWS),
    Hypothesis(lambda f: f.noise & {"level", "rows"}, SUB_GAUSSIAN_NOISE),
    Hypothesis(lambda f: "rows" in f.noise, ROWS_WERE_KNOWN),
)
"""What theorems on functions of bounded norm need of the noise."""

UNITS = (
    Hypothesis(
        lambda f: f.in_prior_units and f.noise & {"level", "rows"},
        "rkhs_bound and noise_bound are multiples of the prior standard deviation",
    ),
    Hypothesis(
        lambda f: f.in_prior_units and not f.noise & {"level", "rows"},
        "rkhs_bound is a multiple of the prior standard deviation",
    ),
)
"""What bounds are if they are not in the units of outcomes."""

LEAST_LAM = 1.0 - 1e-12
"""The printed widths need ``lam >= 1``; GPyTorch's noise parameter rounds a noise of 1."""

LARGE_LAM = voided(
    lambda f: f.is_printed and f.lam_of_bounds < LEAST_LAM,
    "lam = {lam_of_bounds:.4g} is below 1, where the printed width is not a bound; any_lambda=True "
    "gives one that is",
)
"""What the printed width needs."""

RATIO = (
    LARGE_LAM,
    voided(
        lambda f: not f.is_printed and f.lam_has_fallen,
        "a row has a smaller noise variance in the model than the first one, so the ratio of "
        "noise_bound to it was not fixed before the data; noise_bound='model' needs no such ratio",
    ),
    Hypothesis(lambda f: f.is_printed and "rows" in f.noise, ROWS_HAVE_LARGE_LAM),
    Hypothesis(lambda f: not f.is_printed and "rows" in f.noise, SMALLEST_ROW_IS_FIXED),
)
"""What widths need of the ratio of the noise bound to the noise variance of the model."""

GAIN = (
    voided(
        lambda f: f.small_gain is not None,
        "the information gain in use, {small_gain:.4g}, is below the realized {realized_gain:.4g}; "
        "is it of this kernel, this lam and all points that are played?",
    ),
    voided(
        lambda f: f.gain_is_number and f.small_gain is None,
        "information_gain was given; it must be at least the realized gain",
    ),
)
"""What widths need of an information gain that a user gives."""

GAIN_IS_RATE = "the information gain is a growth rate, not a bound"
GAIN_OF_OTHER_NOISE = (
    "the gain bound was made with lam = {made_for:.4g}, and the model's is {lam:.4g}, for which "
    "the gain is larger"
)
GAIN_OF_USER = "the gain bound is for this domain, this kernel and this noise variance"
GAIN_OF_BOX = (
    "the gain bound is for this kernel, this noise variance and a box that contains all points "
    "that are played"
)
GAIN_OF_POINTS = (
    "the gain bound is for {num_points} points, this kernel and this noise variance; the points "
    "that are played are among them"
)
"""What is assumed of a bound on the gain: of a user's own, of a box and of points."""

GAIN_OF_ANOTHER_BOX = (
    "the gain bound is for another box, which does not contain all points of the domain; build it "
    "for the domain's, such as BoxGain(domain.bounds, kernel, lam)"
)
_GAIN_OF = "the gain bound is for {num_points} points"
_ON_POINTS = "build it for them, such as WaterFillingGain.on(choices, kernel, lam)"
GAIN_OF_POINTS_ON_A_BOX = (
    f"{_GAIN_OF}, which says nothing about a box; leave information_gain= out, or use "
    "BoxGain(domain.bounds, kernel, lam)"
)
GAIN_OF_UNKNOWN_POINTS = f"{_GAIN_OF} that were not given (points=), and there are contexts"
GAIN_OF_FEW_POINTS = f"{_GAIN_OF}, but there are {{num_arms}} arms; {_ON_POINTS}"
GAIN_OF_OTHER_POINTS = {
    False: f"{_GAIN_OF}, but not all arms are among them; {_ON_POINTS}",
    True: f"{_GAIN_OF}, but not all arms with the contexts so far are among them; {_ON_POINTS}",
}
"""The gap by whether there are contexts."""

OF_DRAWS = (
    Hypothesis(lambda f: f.draws and f.on_choices, "regret is against the best of the choices"),
    Hypothesis(lambda f: f.draws and not (f.has_tasks or f.is_stationary), _AT_MOST_ONE),
    voided(
        lambda f: f.draws and not f.on_choices,
        "the theorem draws on a finite set in each round; a pathwise draw approximates a draw on "
        "the whole box",
        "regret",
    ),
)
"""What theorems on draws that are scaled by a width need in addition."""

ON_ONE_LEVEL = voided(
    lambda f: f.noise & {"rows", "modeled rows"},
    "the noise variance differs from row to row; Theorem 3 is for one level",
)
"""What Theorem 3 of Srinivas et al. 2010 needs of the noise."""

OF_CENSORED = (
    # with the smallest of the rows' variances in lam, the terms of the norm and of pending queries
    # are still bounds. The martingale of the noise is not: the weight of a row changes when its
    # outcome arrives
    voided(
        lambda f: f.noise & {"rows", "modeled rows"},
        "the noise differs between rows (train_Yvar), and a pending row has their mean until its "
        "outcome arrives; the theorem needs weights of rows that were fixed before their outcomes. "
        "A model with one noise level has them",
    ),
    Hypothesis(lambda f: True, NORM_OF_THE_REST),
    Hypothesis(
        lambda f: f.fill == "minimum",
        "outcomes differ from the {minimum} by at most outcome_bound",
    ),
    Hypothesis(
        lambda f: f.fill != "minimum",
        "outcomes, with their noise, lie on one side of the {minimum}, at most outcome_bound away, "
        "and so do the values that fill in pending queries, which may depend on anything",
    ),
    Hypothesis(lambda f: not f.bounded_outcomes, SUB_GAUSSIAN_NOISE),
    Hypothesis(
        "bounded_outcomes",
        "outcomes have the {outcome} as their mean given the past, and lie on one side of the "
        "{minimum}, at most outcome_bound away",
    ),
    Hypothesis(
        lambda f: f.in_prior_units and not f.not_given,
        "rkhs_bound, outcome_bound and, if it is used, noise_bound are multiples of the prior "
        "standard deviation",
    ),
)
"""What theorems on censored feedback need of noise, outcomes and bounds."""

STANDARD_DEVIATIONS_WITH_NOISE = "standard deviations include the noise"
SUM_AS_PUBLISHED = "the terms of pending queries are those of the published code"
FILL_AS_PUBLISHED = "the published code has no fill={fill!r}, and no theorem covers both"
UNKNOWN_MINIMUM = "the {minimum} is unknown; a confidence bound replaces it"
LOWERED_MINIMUM = "the {minimum} was moved to an observed outcome"
UNREADABLE_MEAN = "the prior mean cannot be read; it must equal the {minimum}"
_GIVE_MEAN = "give the model a fixed prior mean of {told:g} (BanditGP: prior_mean=)"
OTHER_MEAN = {
    False: f"the prior mean differs from the {{minimum}} by {{difference:.4g}}; {_GIVE_MEAN}",
    True: (
        "the prior mean differs from the {minimum} by {difference:.4g}; state minimum={told:g} and "
        f"{_GIVE_MEAN}"
    ),
}
"""The gap by whether the minimum was moved to an outcome."""

BELOW_FILLS = (
    "{num} outcomes lie {below} the {minimum}, but fill={fill!r} needs noisy outcomes on one side "
    "of it, at most outcome_bound away"
)
BEYOND_BOUND = (
    "an observed outcome is {farthest:.4g} from the {minimum}, more than outcome_bound = "
    "{bound:.4g}"
)
ALL_QUERIES_ENTER = (
    "X_pending has every query that is waited for, and each query that was given up, failed or was "
    "retracted is a row of the model with the {minimum} as its outcome"
)
"""What the user of a drop-in must ensure; a loop does it by itself."""

OF_RULES = (
    voided(
        lambda f: f.surrogate == "relabeled",
        "the targets of earlier epochs are made with multipliers that depend on their noise, and "
        "the theorem's epochs each start without data",
    ),
    voided(
        lambda f: f.surrogate == "separate",
        "the theorem's inner algorithm models the penalized outcome; confidence bounds of separate "
        "models hold for all multipliers at once, its rates are not proven for them",
    ),
    voided("is_capped", "multipliers are held at max_multiplier"),
    voided(
        "is_linear_beyond",
        "the bound on the violation is linear in T for n = 1",
        "violation",
    ),
)
"""What the theorems of Shi and Eryilmaz 2022 need of a multiplier rule."""


# --- what they need of a use ----------------------------------------------------------------------


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
    voided("of_members", "{of_members}"),
    voided(
        "own_values",
        "{own_values} may evaluate something other than its base class, whose guarantee this is; "
        "give it its own guarantee, or set defines_rule = True in its body if its values are those "
        "of width_rule",
        "regret",
    ),
    Hypothesis("is_alone", ROWS_IGNORE_NOISE, ROWS_IGNORE_FUNCTION),
    # the rounds of a loop
    voided(
        lambda f: f.refuted_round is not None,
        "the data refuted the assumptions at this level in round {refuted_round}",
    ),
    Hypothesis(
        "has_own_model",
        "the function that makes the model makes a row of every outcome, as it was told",
    ),
    Hypothesis(
        "has_own_acquisition",
        "the acquisition function is made with the same arguments in every round",
    ),
    Hypothesis(  # censored feedback has its own assumption on delays
        lambda f: (f.is_late or f.num_pending) and not f.is_censored,
        ARRIVALS_IGNORE_NOISE,
        ARRIVALS_IGNORE_FUNCTION,
    ),
    voided(
        lambda f: f.num_below and f.bounded_outcomes,
        "{num_below:outcome lies|outcomes lie} {below} the {minimum}, but bounded_outcomes=True "
        "requires that none does",
    ),
    Hypothesis(
        lambda f: f.num_below and not f.bounded_outcomes,
        "{num_below:outcome lies|outcomes lie} {below} the {minimum}, by at most "
        "{farthest_below:.4g}: outcome_bound bounds how far outcomes are from it in both "
        "directions",
    ),
    Hypothesis("num_failed", FAILURES_IGNORE_NOISE, FAILURES_IGNORE_FUNCTION),
    Hypothesis("has_attached", ATTACHED_IGNORE_NOISE, ATTACHED_IGNORE_FUNCTION),
    Hypothesis(
        lambda f: f.is_censored and f.has_told_attached,
        "attached outcomes are never lost, so every other outcome is assumed to arrive within "
        "max_delay as well (rho_m = 1)",
    ),
    voided(
        lambda f: f.is_censored and f.has_told_attached and f.num_lost,
        "attached outcomes are never lost, but {num_lost} others were, so rho_m is not one number",
    ),
    Hypothesis("context_dim", CONTEXTS_IGNORE_NOISE, CONTEXTS_IGNORE_FUNCTION),
    Hypothesis("num_restricted", SETS_IGNORE_NOISE, SETS_IGNORE_FUNCTION),
    Hypothesis(
        "num_counted",
        _MEANS_OF_SEVERAL,
        f"{_MEANS_OF_SEVERAL} or on the unknown function",
    ),
    Hypothesis(
        "num_noisy",
        "the noise of the outcomes of {num_noisy:round|rounds} told with noise=v has the bound "
        "noise_bound sqrt(v / lam) instead of noise_bound, where lam is the modeled variance; v is "
        "known before the noise",
        "the noise of the outcomes of {num_noisy:round|rounds} told with noise=v has the variance "
        "v instead of the modeled one; v depends neither on the noise nor on the unknown function",
    ),
    Hypothesis(
        lambda f: f.num_noisy and f.constraints,
        "the noise of constraint values told with noise=v has their bound times sqrt(v / lam)",
        "the noise of constraint values told with noise=v has their modeled variance times v / lam",
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
    voided("forgets", "this package claims no theorem for a model that forgets"),
    Hypothesis(
        "retracted",
        f"{_RETRACTED}does not depend on their noise",
        f"{_RETRACTED}depends neither on their noise nor, except through the outcomes that are "
        "kept, on the unknown function",
    ),
    Hypothesis(
        "withdrawn",
        "no statement covers {withdrawn_rounds}, chosen with what was retracted later",
    ),
    Hypothesis(  # with an expectation over choices, none may be left out because of the choices
        lambda f: f.withdrawn and f.sums_choices,
        "which outcomes were retracted, and when, does not depend on what was chosen after them",
    ),
    # what starts over
    voided(
        lambda f: f.restart == "undivided",
        "each segment has all of delta, so all segments together fail with a larger probability; "
        "split_delta=True divides it",
    ),
    Hypothesis(
        lambda f: f.restart == "known" and not f.constraints,
        f"the {{outcome}} function changes {_CHANGES}it is a fixed function of that norm",
        f"the {{outcome}} function changes {_CHANGES}it is a new draw that is independent of what "
        "came before",
    ),
    Hypothesis(
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

NO_THEOREM = "no theorem is stated for it"
"""The gap of an acquisition function that is not in the tables."""

IN_EPOCH = "in epoch {number}: {gap}"
"""The gap of an earlier epoch whose model has it."""

NO_MORE_THAN_ASSUMED = (
    "the bound on {quantity} says no more than the assumptions do: it is {bound:.6g} for "
    "{num_bounded:round|rounds}, and no round can lose more than {largest:.6g} under them"
)
NO_MORE_THAN_OBSERVED = (
    "the bound on {quantity} says no more than the outcomes do: it is {bound:.6g} for "
    "{num_bounded:round|rounds}, and the largest and the smallest of the {num_outcomes} outcomes "
    "differ by {spread:.6g}, so it would hold even if every round that it bounds had lost that much"
)
"""Notes on a bound that says nothing new."""

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
        "context_dim",
        "the theorem is against the best fixed point; none is stated here with contexts",
        *RATES,
    ),
    voided(
        "num_restricted",
        "the theorem is against the best fixed point; none is stated here where rounds could "
        "choose from a part of the domain only",
        *RATES,
    ),
    voided(
        "restart",
        "a reset cuts the running epoch short without an update of the multipliers, but the proof "
        "needs the update of every epoch",
        *RATES,
    ),
    voided(
        "num_missing",
        "{num_missing} of {num_rounds} rounds have no outcome, but the proof needs the {outcome} "
        "and the constraint values of all rounds",
        *RATES,
    ),
    Hypothesis(
        "variation",
        "the fixed point that regret compares with meets the constraints of every round",
    ),
    Hypothesis(
        "has_models",
        "each epoch has its own model, which was fixed before the outcomes of the epoch; "
        "assumptions on the penalized function of an epoch refer to the kernel of that model",
    ),
    voided(
        "is_censored",
        "no theorem is claimed for censored feedback with constraints: the value of pending "
        "queries, the smallest penalized outcome, changes with the multipliers, which follow from "
        "earlier noise",
    ),
)
"""What the theorems on epochs of a penalized function need in addition."""

OF_SEPARATE_BOUNDS = (
    voided(
        "is_censored",
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
        if not each.concerns(facts):
            continue
        says = facts.say(each.if_drawn if facts.is_drawn and each.if_drawn else each.says)
        if each.voids is not None:
            guarantee = guarantee.with_gaps(says, of=each.voids)
        elif guarantee.theorem is not None:
            guarantee = guarantee.with_assumptions(says)
    return guarantee


# --- theorems -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Theorem:
    """A theorem on a width, or on the multipliers of constraints.

    Attributes:
        method: The method that has the width.
        source: Where the theorem is; empty if there is none.
        regret: What it says about the regret.
        bands: What it says about confidence bounds, if anything.
        violation: What it says about the violation of constraints, if anything.
        hypotheses: What it needs of the model and of the ingredients.
        assumptions: What it assumes whatever they are.
        draws: The method whose draws are scaled by the width, where its theorem is, and where its
            number for a whole run is.
        is_drawn: Whether it is about functions that are drawn from the model's prior.
    """

    method: str
    source: str = ""
    regret: RegretStatement | None = None
    bands: Statement | None = None
    violation: Statement | None = None
    hypotheses: tuple[Hypothesis, ...] = ()
    assumptions: tuple[str, ...] = ()
    draws: tuple[str, str, str] | None = None
    is_drawn: bool = False


EVERYWHERE = Statement(
    "with {probability} {subject} lies within the width of the posterior mean, at all points and "
    "in {rounds}{half}",
    reach="everywhere",
)
"""A confidence bound that holds at all points and in all rounds."""

TWICE_THE_BOUND = RegretStatement(
    "with {probability}, on the same event, {regret_of} every round that {optimizes} is at most "
    "twice width times standard deviation at the point that it chose{plus_variation}",
    factor=2.0,
)
"""What a confidence bound that holds at all points implies for the regret."""

OF_DRAWN = (DRAWN_FROM_PRIOR, FIXED_PRIOR, GAUSSIAN_NOISE)
"""What theorems on draws of the Gaussian process assume."""

ON_FEW_ARMS = "the acquisition is maximized over at most num_arms arms, fixed before the data"
ON_A_BOX = (
    "the acquisition is maximized over a box of at most dim dimensions, with sides of at most "
    "side_length, fixed before the data"
)
_SMOOTH = (
    "for each dimension j the largest |df/dx_j| over the box (and over all contexts, if there are "
    "any) exceeds L with probability at most a exp(-(L/b)^2), for every L"
)
_BETWEEN_BOUNDS = (
    "with {probability} {subject} lies between the least lower and the largest upper bound of the "
    "priors that survive, {computed}in {rounds}, "
)
_DISTANCE_OF_BOUNDS = (
    "with {probability}, on the same event, {regret_of} every round t that {optimizes} is at most "
    "the distance of the bounds at the point that it chose, which is twice the effective width "
    "times standard deviation"
)

OF_NORM = (*PRIOR, *ALL_GIVEN, *NORM, *KERNEL, *NOISE, *UNITS)
"""What theorems on functions of bounded norm need of model and bounds."""

IGP_UCB = Theorem(
    "IGP-UCB width{varying}",
    "Chowdhury and Gopalan 2017, Theorem 2, {details}",
    replace(TWICE_THE_BOUND, source_of_run="Chowdhury and Gopalan 2017, Theorem 3"),
    EVERYWHERE,
    hypotheses=(*OF_NORM, *RATIO, *GAIN, Hypothesis("variation", VARIES), *OF_DRAWS),
    draws=(
        "GP-TS",
        "Chowdhury and Gopalan 2017, Theorem 4, {details}",
        "Chowdhury and Gopalan 2017, Theorem 4",
    ),
)
AMM = Theorem(
    "AMM width",
    "Flynn and Reeb 2024, analytic mixture-martingale bound, with a_0 = lam",
    replace(
        TWICE_THE_BOUND,
        source_of_run="Flynn and Reeb 2024, with the sum of deviations by the gain",
    ),
    EVERYWHERE,
    hypotheses=(*OF_NORM, *RATIO),
    assumptions=(AS_OBSERVED,),
)
DMM = Theorem(
    "DMM",
    "Flynn and Reeb 2024, mixture-martingale confidence set, over a grid of ridges",
    TWICE_THE_BOUND,
    EVERYWHERE,
    hypotheses=(*OF_NORM, Hypothesis(lambda f: "rows" in f.noise, FIRST_ROW)),
    assumptions=(AS_OBSERVED,),
)
GP_UCB_IN_THE_RKHS = Theorem(
    "GP-UCB in the RKHS",
    "Srinivas et al. 2010, Theorem 3",
    replace(TWICE_THE_BOUND, source_of_run="Srinivas et al. 2010, Theorem 3"),
    EVERYWHERE,
    hypotheses=(*PRIOR, *GAIN, ON_ONE_LEVEL, *NORM, *KERNEL, AT_MOST_ONE),
    assumptions=(FIXED_PRIOR, BOUNDED_NOISE),
)
CENSORED = Theorem(
    "censored feedback",
    "Verma, Dai and Low 2022, Theorem 1, {details}",
    RegretStatement(
        "with {probability}, on the same event, rho_m TIMES {regret_of} every round that "
        "{optimizes} is at most twice width times standard deviation at the point that it chose, "
        "whether or not outcomes are pending",
        factor=2.0,
        covers_pending=True,
        quantity="rho_m times the regret",
        source_of_run="Verma, Dai and Low 2022, Theorem 2 (with contexts also Theorem 4)",
    ),
    Statement(
        "with {probability} {subject} (less the {minimum}) TIMES rho_m, the probability that an "
        "outcome arrives within max_delay {unit} (ever, if that is None), lies within the width of "
        "the posterior mean (less the {minimum}), at all points and in {rounds}{half}; it has the "
        "same {optimizer}"
    ),
    hypotheses=(*PRIOR, *ALL_GIVEN, LARGE_LAM, *OF_CENSORED, *KERNEL, *OF_DRAWS),
    assumptions=(DELAYS_ALIKE, FIXED_PRIOR),
    draws=(
        "Thompson sampling, censored feedback",
        "Verma, Dai and Low 2022, Theorem 3, {details}",
        "Verma, Dai and Low 2022, Theorem 3 (with contexts also Theorem 4)",
    ),
)
WITH_CENSORING = Theorem("censored feedback, {inner}")
NOT_COVERED = (
    "no theorem covers this width with censored feedback; outcome_bound was added as Verma, Dai "
    "and Low 2022 add it to IGP-UCB's"
)
"""The gap of a width that has a theorem without delays only."""

GP_UCB_ON_ARMS = Theorem(
    "GP-UCB on finitely many arms",
    "Srinivas et al. 2010, Theorem 1",
    replace(TWICE_THE_BOUND, source_of_run="Srinivas et al. 2010, Theorem 1"),
    Statement(
        "with {probability} {subject} lies within the width of the posterior mean, on all arms "
        "(with contexts: at the context of each round) and in {rounds}{half}",
        reach="arms",
    ),
    assumptions=(*OF_DRAWN, ON_FEW_ARMS),
    hypotheses=PRIOR,
    is_drawn=True,
)
GP_UCB_ON_A_BOX = Theorem(
    "GP-UCB on a box",
    "Srinivas et al. 2010, Theorem 2",
    RegretStatement(
        "with {probability}, on the same event, {regret_of} every round t (counted from the last "
        "reset, if there are any) that {optimizes} is at most twice width times standard deviation "
        "at the point that it chose, plus the prior standard deviation times 1 / t^2",
        factor=2.0,
        source_of_run="Srinivas et al. 2010, Theorem 2",
    ),
    Statement(
        "with {probability} {subject} lies within the width of the posterior mean, in {rounds}, at "
        "the point of the round and on a discretization that grows with it; not at all points at "
        "once"
    ),
    assumptions=(
        *OF_DRAWN,
        f"{_SMOOTH}, with smoothness_a and smoothness_b for a and b",
        ON_A_BOX,
    ),
    hypotheses=PRIOR,
    is_drawn=True,
)
IRGP_UCB = Theorem(
    "IRGP-UCB",
    "Takeno, Inatsu and Karasuyama 2023, regret bound for finite domains",
    RegretStatement(
        "{regret_of} a round, in expectation over {outcome}s, noise and draws, is at most the "
        "expectation of width times standard deviation at the point that it chose; no single "
        "confidence bound holds in all rounds",
        factor=1.0,
        is_expected=True,
        quantity="the expected regret",
    ),
    assumptions=(*OF_DRAWN, ON_FEW_ARMS),
    hypotheses=PRIOR,
    is_drawn=True,
)
REFUTED_LIST = (
    "after {after} outcomes all {count} priors on the list were refuted at level {level:g}"
)
OF_LISTS = (
    voided("learned", "hyperparameters may have been learned from the same outcomes: {learned}"),
    Hypothesis(lambda f: not f.num_skipped, FIXED_LIST),
    Hypothesis(
        "num_skipped",
        "everything is conditional on the first {num_skipped} outcomes, which chose the list; the "
        "rounds until then are not covered",
    ),
    Hypothesis("num_skipped", FIXED_AFTER_FIRST),
)
"""What the theorems on lists of priors need of the list."""

LIST_ON_ARMS = Theorem(
    "upper confidence bound of the survivors of a list of priors",
    "Ville's inequality and Srinivas et al. 2010, Theorem 1, each at delta / 2",
    RegretStatement(_DISTANCE_OF_BOUNDS, factor=2.0),
    Statement(
        _BETWEEN_BOUNDS + "on all arms (with contexts: at the context of each round)", reach="arms"
    ),
    assumptions=(DRAWN_FROM_LIST, GAUSSIAN_NOISE_ON_LIST, ON_FEW_ARMS),
    hypotheses=OF_LISTS,
    is_drawn=True,
)
LIST_ON_A_BOX = Theorem(
    LIST_ON_ARMS.method,
    "Ville's inequality and Srinivas et al. 2010, Theorem 2, each at delta / 2",
    RegretStatement(
        _DISTANCE_OF_BOUNDS + ", plus the prior standard deviation times 1 / t^2", factor=2.0
    ),
    Statement(
        _BETWEEN_BOUNDS + "at the point of the round and on a discretization that grows with it; "
        "not at all points at once"
    ),
    assumptions=(
        DRAWN_FROM_LIST,
        GAUSSIAN_NOISE_ON_LIST,
        f"{_SMOOTH}, with the smoothness_a and smoothness_b of the true prior for a and b",
        ON_A_BOX,
    ),
    hypotheses=OF_LISTS,
    is_drawn=True,
)
TOP_TWO = "top-two Thompson sampling, with the confidence bounds of {inner}"
REGRET_OF_TOP_TWO = RegretStatement(
    "no statement is made about the regret",
    gaps=(
        "top-two sampling seeks the best arm, and plays a challenger in a share of the rounds no "
        "matter how much is known: no regret bound is stated for it",
        "what is proven about its draws is asymptotic and for independent arms: the posterior "
        "probability that another arm is the best falls at the largest exponential rate that "
        "leader_probability allows (Russo 2020; Shang et al. 2020 for Gaussian rewards). A prior "
        "that correlates the arms is not covered, and nothing is stated here about any finite "
        "number of rounds",
    ),
)
GP_UCB_CPD = Theorem(
    "GP-UCB-CPD",
    "Avanesov, Theorem 3.1",
    RegretStatement("the expected regret grows more slowly than the horizon, for D large enough"),
    hypotheses=(
        voided(
            lambda f: f.constants["regret_exponent"] >= 1.0,
            "the rate of the theorem is not sublinear: T to the power {regret_exponent:.4g}",
        ),
        never(
            "the theorem does not say how large D must be; its lemma requires at least 1, and the "
            "experiments of the paper use 0.02"
        ),
    ),
)
A_CONSTANT = Theorem(
    "constant width {width:g}",
    hypotheses=(
        voided(
            lambda f: "width" in f.not_given,
            "no bounds on the function were given; the default width, the constant {width:g}, is "
            "not based on knowledge of this function: a theorem needs rkhs_bound= and noise_bound= "
            "(with censored feedback outcome_bound= as well; GPUpperConfidenceBound: num_arms=), "
            "and hyperparameters that were fixed before the data",
        ),
        never("a constant width is a heuristic"),
    ),
)
A_CONSTANT_FOR_A_LIST = Theorem(
    "upper confidence bound of a list of priors",
    hypotheses=(
        never(
            "the width is a constant (given as width=, or 2 because nothing else is given), which "
            "no theorem covers; on a box pass smoothness_a= and smoothness_b= (Theorem 2), on arms "
            "num_arms= (Theorem 1), which a loop on Arms fills in unless width= is given"
        ),
    ),
)
MIXTURE_OF_A_LIST = Theorem(
    "upper confidence bound of the mixture of a list of priors",
    hypotheses=(never("no theorem covers the mixture; form='survivors' has one"),),
)

DRAWN = RegretStatement(
    "with {probability} {times}the {cumulative_regret} over the rounds that the method "
    "chose{at_hand} is at most a constant times the sum of scale times standard deviation at the "
    "points that it chose, up to logarithms and a term of the order of the square root of the "
    "number of rounds"
)
"""What theorems on draws that are scaled by a width say about the regret."""

SEPARATE_BOUNDS = {
    minimizes: Theorem(
        "{penalized}",
        "{source}, for {outcome} and constraints at delta / {count} each (union bound)",
        RegretStatement(f"with {{probability}}, on the same event, {of_regret}"),
        Statement(
            "with {probability} the {outcome} and each constraint lie within their widths of their "
            "posterior means, at all points and in {rounds}, for all multipliers at once",
            reach="everywhere",
        ),
        Statement(
            "with {probability}, on the same event, each constraint is at most its upper "
            "confidence bound at the points that were chosen, so that the norm of the positive "
            "part of summed constraint values is at most that of summed bounds"
        ),
    )
    for minimizes, of_regret in (
        (
            False,
            "the regret{within} of every round that maximizes the bound of the penalized "
            "{outcome}, against the best point that meets the constraints, is at most the value of "
            "that bound less the lower confidence bound of the {outcome}, at the point that it "
            "chose",
        ),
        (
            True,
            "the regret{within}, of minus the {outcome}, in every round that maximizes the bound "
            "of minus the penalized {outcome}, against the best point that meets the constraints, "
            "is at most the value of that bound plus the upper confidence bound of the {outcome}, "
            "at the point that it chose",
        ),
    )
}
"""What bounds on an outcome and each constraint say together, whether it is minimized or not."""

PENALIZED_BOUND = {
    True: "the upper confidence bound of the penalized {outcome} (as one weighted sum of outputs)",
    False: "the upper confidence bound of the penalized {outcome} (output by output)",
}
"""The method by whether the penalty is linear, so that the sum has one bound."""

WITHIN_LIMITS = "{outcome} and constraints lie within the limits at which bounds are clipped"
"""What is assumed where bounds are clipped."""

PENALIZED_DRAW = "Thompson sampling of a penalized {outcome}"
NO_JOINT_DRAWS = "no theorem bounds the regret of joint draws of all outputs"
"""Remark 1 draws the penalized outcome; separate draws of all outputs are another method."""

PLAYED_BY = "{rule}, played by {inner}"
"""The name of a method under a multiplier rule."""

_SUBLINEAR = RegretStatement(
    "with {probability} the cumulative regret against the best fixed point that meets all "
    "constraints is bounded, and sublinear in T = L S for suitable L and S; in expected "
    "{outcome}s, or in realized ones whose noise is the same at all points of a round",
    needs_every_round=True,
)
_OF_VIOLATION = Statement(
    "the violation is bounded with the same probability, and sublinear in T = L S for suitable L "
    "and S"
)
EXACT_CONSTRAINTS = Theorem(
    "GP-UCB with noiseless constraints",
    "Shi and Eryilmaz 2022, Theorem 1",
    _SUBLINEAR,
    violation=_OF_VIOLATION,
    hypotheses=OF_RULES,
    assumptions=("constraint values are observed without noise",),
)
NOISY_CONSTRAINTS = Theorem(
    "GP-UCB with noisy constraints",
    "Shi and Eryilmaz 2022, Theorem 2",
    _SUBLINEAR,
    violation=_OF_VIOLATION,
    hypotheses=OF_RULES,
    assumptions=(
        "constraint values are observed with noise_bound-sub-Gaussian noise given the past, "
        "independent of each other's and of the {outcome}'s",
        "{outcome} and constraints are bounded",
        "some point meets all constraints with a margin that is large enough for S (Slater's "
        "condition)",
        "step_size is of order 1 / sqrt(L)",
    ),
)


def guarantee_of(
    theorem: Theorem,
    facts: Facts,
    constants: Mapping[str, float],
    gaps: Iterable[str] = (),
    assumptions: Iterable[str] = (),
    largest: float | None = None,
    tail: float = 0.0,
    of_use: Sequence[Hypothesis] = HYPOTHESES,
    **words: Any,
) -> Guarantee:
    """Return what a theorem guarantees of a use.

    Args:
        theorem: A line of the table.
        facts: The facts of model, ingredients and use.
        constants: The numbers in use, by name, such as ``delta``.
        gaps: Why it does not hold, besides what the facts say.
        assumptions: What it assumes, besides what the facts say.
        largest: ``2 B``, if it bounds the regret of any round for a function that does not vary.
        tail: See :class:`.RegretStatement`.
        of_use: What it needs of the use.
        **words: Further fields of the templates.
    """
    facts = replace(facts, constants=constants)
    method, source, regret = theorem.method, theorem.source, theorem.regret
    delta, added = constants.get("delta"), 2.0 * facts.variation
    bands, violation = (
        each and replace(each, wording=facts.say(each.wording, **words), delta=delta)
        for each in (theorem.bands, theorem.violation)
    )
    if facts.draws and not source:
        method = f"Thompson sampling, {method}"
    elif facts.draws and theorem.draws is not None and regret is not None:
        method, source, of_run = theorem.draws
        words["times"] = "" if regret.quantity == "the regret" else "rho_m TIMES "
        words["at_hand"] = "" if regret.covers_pending else " with every outcome at hand"
        regret = replace(
            regret,
            wording=DRAWN.wording,
            factor=None,
            source_of_run=of_run,
            num_points=facts.num_points,
            prior_deviation=facts.prior_deviation,
        )
        delta = 2.0 * constants["delta"]  # the width has half of it
        constants = {**constants, "delta": delta}
    if regret is not None:
        wording = facts.say(regret.wording, **words)
        if largest is not None:
            largest += added
            if regret.factor is not None:
                wording += facts.say(_OF_ANY_ROUND, largest=largest)
        regret = replace(
            regret, wording=wording, delta=delta, largest=largest, tail=tail, added=added
        )
    guarantee = Guarantee(
        method=facts.say(method, **words),
        theorem=facts.say(source, **words) or None,
        bands=bands,
        regret=regret,
        violation=violation,
        constants={**constants},
        gaps=tuple(gaps),
        is_drawn=theorem.is_drawn,
    )
    guarantee = concluded(guarantee, facts, theorem.hypotheses)
    assumed = [facts.say(each) for each in theorem.assumptions]
    return concluded(guarantee.with_assumptions(*assumed, *assumptions), facts, of_use)


_OF_ANY_ROUND = (
    "; that of any round is at most 2 B{plus_variation} = {largest:g}, B the norm's bound in "
    "outcome units"
)


def union_of(each: Sequence[Guarantee], facts: Facts, method: str, delta: float) -> Guarantee:
    """Return what the bounds of an outcome and of its constraints guarantee together.

    Args:
        each: The guarantees of the outcome and of each constraint, at equal shares of ``delta``,
            for facts in which the function is ``"each function"``.
        facts: The facts of the use.
        method: The template of the name of the method that uses the bounds.
        delta: All bounds together fail with at most this probability.
    """
    names = [facts.outcome, *(f"constraint {j}" for j in range(1, len(each)))]
    gaps = [
        gap if all(gap in other.gaps for other in each) else f"{name}: {gap}"
        for name, guarantee in zip(names, each, strict=True)
        for gap in guarantee.gaps
    ]
    constants = {
        f"{key}_{j}": value
        for j, guarantee in enumerate(each)
        for key, value in guarantee.constants.items()
    }
    theorem = SEPARATE_BOUNDS[facts.minimizes]
    if any(guarantee.theorem is None for guarantee in each):
        theorem = Theorem(theorem.method)
    return guarantee_of(
        theorem,
        facts,
        {"delta": delta, **constants},
        dict.fromkeys(gaps),
        [assumption for guarantee in each for assumption in guarantee.assumptions],
        penalized=facts.say(method),
        source=each[0].theorem,
        count=len(each),
    )


# --- numbers that are known before a run ----------------------------------------------------------


@dataclass(frozen=True)
class Foretold:
    """What a theorem says about a whole run before it.

    Attributes:
        source: The template of where the theorem is.
        says: The template of the text that precedes the number, or of why there is none.
        rest: The template of the text that follows it.
    """

    source: str
    says: str
    rest: str = ""

    def of(self, value: float | None = None, **words: Any) -> Forecast:
        """Return the forecast.

        Args:
            value: The number, if there is one.
            **words: The fields of the templates.
        """
        theorem, wording, rest = (
            ALONE.say(each, **words) for each in (self.source, self.says, self.rest)
        )
        return Forecast(theorem, wording, value, rest)


GAIN_OF_RUN = Foretold("{name}", "the information gain of any {num_rounds} rounds is at most")
REGRET_OF_RUN = {
    False: Foretold(
        "{source}",
        "the cumulative regret of {num_rounds} rounds that the method chooses with the outcomes of "
        "all earlier rounds{others} is at most",
    ),
    True: Foretold(
        "{source}",
        "rho_m times the cumulative regret of {num_rounds} rounds that the method chooses{others} "
        "is at most",
    ),
}
"""What a statement says about a whole run, by whether it covers pending outcomes."""

OTHER_ROUNDS = " (and {num_others:other|others} so far)"

_EPOCHS = "of {num_rounds} rounds, {num_epochs} epochs of {length},"
NO_RUN_OF_MODELS = Foretold(
    "Shi and Eryilmaz 2022", "no number is known if epochs have different models"
)
REGRET_OF_EXACT = Foretold("Shi and Eryilmaz 2022, (11)", f"the regret {_EPOCHS} is at most")
VIOLATION_OF_EXACT = Foretold("Shi and Eryilmaz 2022, (12)", f"the violation {_EPOCHS} is at most")
NO_VIOLATION_OF_EXACT = Foretold(
    "Shi and Eryilmaz 2022, (12)",
    "the violation has a number if unconstrained_gap= is given, the amount by which the largest "
    "reward exceeds the best feasible one",
)
MARGIN_OF_NOISY = Foretold(
    "Shi and Eryilmaz 2022, Theorem 2", "it needs, with epochs of {length}, a Slater margin above"
)
NO_RUN_OF_NOISY = Foretold(
    "Shi and Eryilmaz 2022, Theorem 2",
    "regret and violation have numbers with slater_margin= and largest_constraint=",
)
SMALL_MARGIN_OF_NOISY = Foretold(
    "Shi and Eryilmaz 2022, Theorem 2",
    "a margin of {margin:g} is too small; longer epochs need less",
)
REGRET_OF_NOISY = Foretold("Shi and Eryilmaz 2022, Theorem 2", f"the regret {_EPOCHS} is at most")
VIOLATION_OF_NOISY = Foretold(
    "Shi and Eryilmaz 2022, Theorem 2", f"the violation {_EPOCHS} is at most"
)
VIOLATION_AS_OBSERVED = Foretold(
    "Shi and Eryilmaz 2022, Appendix D",
    f"the violation {_EPOCHS} of constraint values as observed, is at most",
)
MULTIPLIERS_OF_NOISY = Foretold(
    "Shi and Eryilmaz 2022, Theorem 2, (33)", "the norm of the multipliers is at most"
)

GIVEN_PERIODS = "of the periods that were given"
DETECTED_PERIODS = "of the periods so far, as detected"
SPACING_OF_CHANGES = Foretold(
    "Avanesov, (3.10)", "sqrt(max T_i) / min T_i {periods}, which should tend to 0, is"
)
SPACING_WITH_SIZE = Foretold(
    "Avanesov, (3.8)", "with Delta = {change:g} and its logarithm, this is"
)
_RATE = (
    "the expected regret grows as the lengths of periods to the power {exponent:.4g}: {periods} it "
    "is an unknown constant times"
)
RATE_OF_CHANGES = {
    False: Foretold("Avanesov, (3.9)", _RATE, " Delta^-{power:.4g}"),
    True: Foretold("Avanesov, (3.9)", _RATE),
}
"""The rate of the theorem, by whether the smallest change ``Delta`` is known."""

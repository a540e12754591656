"""What a method guarantees: theorem, statements, assumptions and constants, or why none applies.

A guarantee has up to three statements, on the confidence bounds, on the regret and on the violation
of constraints, each with its own reasons why it may not hold. Width rules make the statements,
acquisition functions and loops add the reasons that void them, and users print them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from botorch_bandits.checks import counted


class FunctionAssumption(str):
    """An assumption on the reward function, which can also be stated for another function.

    It is the string ``before + function + after``.

    Args:
        before: The text before the name of the function.
        after: The text after it.
        function: The name of the function.

    Example:
        >>> BOUNDED_NORM.about("each function")
        'the norm of each function in the unit-variance kernel is at most rkhs_bound'
    """

    before: str
    after: str
    function: str

    def __new__(
        cls, before: str, after: str, function: str = "the reward function"
    ) -> FunctionAssumption:
        """See the class."""
        assumption = super().__new__(cls, f"{before}{function}{after}")
        assumption.before, assumption.after, assumption.function = before, after, function
        return assumption

    def __getnewargs__(self) -> tuple[str, str, str]:  # type: ignore[override]
        """Return the three pieces, from which pickles and copies are made."""
        return self.before, self.after, self.function

    def about(self, function: str) -> FunctionAssumption:
        """Return the same assumption on another function.

        Args:
            function: What it is called.
        """
        return FunctionAssumption(self.before, self.after, function)


BOUNDED_NORM = FunctionAssumption(
    "the norm of ", " in the unit-variance kernel is at most rkhs_bound"
)
"""What theorems on functions in the kernel's Hilbert space assume if the prior mean is 0."""

BOUNDED_CENTERED_NORM = FunctionAssumption(
    "the norm of ", " less the prior mean, in the unit-variance kernel, is at most rkhs_bound"
)
"""The same assumption for any other prior mean."""

DRAWN_FROM_PRIOR = FunctionAssumption("", " is a draw from the model's Gaussian-process prior")
"""What theorems on draws of the Gaussian process assume."""

FIXED_PRIOR = "kernel, noise variance and prior mean of the model were fixed before the data"
"""What every theorem here assumes of the model."""

DRAWN_FROM_LIST = FunctionAssumption(
    "", " is a draw from one of the Gaussian-process priors on the list"
)
"""The assumption if it is unknown from which of several priors the function is drawn."""

DRAWS = (DRAWN_FROM_PRIOR, DRAWN_FROM_LIST)
"""Under one of these, the reward function is random, and statements about it concern a draw."""

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
    "one, independent from row to row and of the reward function"
)
"""The assumption on the noise if the noise variance is on the list, too."""

SUB_GAUSSIAN_NOISE = "the noise is noise_bound-sub-Gaussian given the past"
"""The assumption on the noise in theorems on functions of bounded norm."""

SUB_GAUSSIAN_OUTPUTS = "the noise of each output is noise_bound-sub-Gaussian given the past"
"""The same assumption for a model with several outputs."""

GAUSSIAN_NOISE = (
    "the noise is Gaussian with mean 0 and the modeled variance, independent from row to row and "
    "of the reward function"
)
"""The assumption on the noise in theorems on draws."""

BOUNDED_NOISE = (
    "the noise has mean 0 given the past and is at most sigma in absolute value almost surely, and "
    "the modeled variance is sigma^2"
)
"""The assumption on the noise in Theorem 3 of Srinivas et al. 2010."""

AS_OBSERVED = "outcomes are as observed: neither censored nor relabeled"
"""What AMM and DMM assume in addition."""

ARRIVALS_IGNORE_NOISE = (
    "which outcomes have arrived, and in what order, does not depend on their noise; the noise is "
    "as assumed given the points that were asked for and the outcomes that arrived before"
)
"""What is assumed if outcomes arrive late and the function is fixed."""

ARRIVALS_IGNORE_REWARD = (
    "which outcomes have arrived, and in what order, depends neither on their noise nor on the "
    "reward function"
)
"""What is assumed if outcomes arrive late and the function is drawn: only outcomes reveal it."""

FAILURES_IGNORE_NOISE = "which queries failed does not depend on their noise"
"""What is assumed if queries failed and the function is fixed."""

FAILURES_IGNORE_REWARD = (
    "which queries failed depends neither on their noise nor on the reward function"
)
"""What is assumed if queries failed and the function is drawn."""

ATTACHED_IGNORE_NOISE = "which outcomes were attached does not depend on their noise"
"""What is assumed if outcomes were attached and the function is fixed."""

ATTACHED_IGNORE_REWARD = (
    "which points were attached depends neither on their noise nor, except through outcomes told "
    "before, on the reward function"
)
"""What is assumed if outcomes were attached and the function is drawn."""

ATTACHED_WITHOUT_LOSS = (
    "attached outcomes are never lost, so every other outcome is assumed to arrive within "
    "max_delay as well (rho_m = 1)"
)
"""What is assumed if outcomes were attached and feedback is censored."""

ROWS_IGNORE_NOISE = (
    "which outcomes are rows of the model does not depend on their noise, and no row of an earlier "
    "round is left out in a later one"
)
"""What an acquisition function alone assumes if the function is fixed; a loop knows more."""

ROWS_IGNORE_REWARD = (
    "the points, contexts and rows of the model were chosen from nothing but the outcomes that it "
    "has, with knowledge neither of the noise nor of the reward function; no row of an earlier "
    "round is left out in a later one, and no two rounds with different rows have the same number"
)
"""What an acquisition function alone assumes if the function is drawn; a loop knows more."""

CONTEXTS_IGNORE_NOISE = "contexts do not depend on the noise of outcomes that are not yet told"
"""What is assumed of contexts if the function is fixed."""

CONTEXTS_IGNORE_REWARD = (
    "contexts reveal nothing about the reward function or the noise beyond the outcomes told"
)
"""What is assumed of contexts if the function is drawn."""

SETS_IGNORE_NOISE = (
    "the points that a round can choose from depend neither on the noise of outcomes that are not "
    "yet told nor on the random numbers of that round"
)
"""What is assumed of restricted rounds if the function is fixed."""

SETS_IGNORE_REWARD = (
    "the points that a round can choose from reveal nothing about the reward function or the noise "
    "beyond the outcomes told, nor about the random numbers of that round"
)
"""What is assumed of restricted rounds if the function is drawn."""


@dataclass(frozen=True)
class Statement:
    """One statement of a guarantee: on confidence bounds, on regret or on violation.

    Attributes:
        wording: The text of the statement; ``{probability}`` is replaced by the number
            ``1 - delta``, or by these words if ``delta`` is None.
        gaps: The reasons why it does not hold as used; empty if it does.
        bound: The value of the bound for the rounds so far that it covers, in raw outcome units, if
            it can be computed; loops compute it for regret and violation.
        num_rounds: The number of rounds so far that it covers; None if rounds are not counted.
        num_others: The number of rounds so far that it does not cover.
        bound_of_others: A bound for those other rounds together, if there is one.
        delta: The statement fails with at most this probability.
        reach: For confidence bounds, the points at which they hold on one event, in all rounds:
            ``"everywhere"``, ``"arms"`` (all arms, each with the context of the round), or None if
            this is not stated, for example if they hold at one point of each round.
    """

    wording: str
    gaps: tuple[str, ...] = ()
    bound: float | None = None
    num_rounds: int | None = None
    num_others: int = 0
    bound_of_others: float | None = None
    delta: float | None = None
    reach: str | None = None

    @property
    def text(self) -> str:
        """The text of the statement, with its probability."""
        number = "1 - delta" if self.delta is None else f"{1.0 - self.delta:.6g}"
        if number == "1":
            number = f"1 - {self.delta:.3g}"
        return self.wording.replace("{probability}", f"probability {number}")

    @property
    def holds(self) -> bool:
        """Whether the theorem covers this use, given its assumptions."""
        return not self.gaps

    @property
    def total(self) -> float | None:
        """The bound for all rounds so far; None if there is no number or it does not hold."""
        if not self.holds or self.bound is None:
            return None
        if self.num_others == 0:
            return self.bound
        return None if self.bound_of_others is None else self.bound + self.bound_of_others

    def with_gaps(self, *gaps: str) -> Statement:
        """Return a copy with further reasons why it does not hold.

        Args:
            *gaps: One reason each.
        """
        return replace(self, gaps=tuple(dict.fromkeys((*self.gaps, *gaps))))

    @property
    def _bounds(self) -> str:
        """Return the text between the number of rounds and the value of the bound."""
        return ": at most"

    def lines(self, name: str, common: tuple[str, ...]) -> list[str]:
        """Return the statement as lines of text.

        Args:
            name: The name of the statement.
            common: Gaps that are reported elsewhere and are left out here.
        """
        told = [f"  {name}, {'guaranteed' if self.holds else 'not guaranteed'}: {self.text}"]
        told += [f"    not covered: {gap}" for gap in self.gaps if gap not in common]
        if self.num_rounds is not None and self.holds:
            all_rounds = self.num_rounds + self.num_others
            value = "" if self.bound is None else f"{self._bounds} {self.bound:.6g}"
            rounds = counted(all_rounds, "round", "rounds")
            told.append(f"    so far it covers {self.num_rounds} of {rounds}{value}")
            if self.num_others:
                is_or_adds = ("is", "adds") if self.num_others == 1 else ("are", "add")
                others = self.bound_of_others
                value = (
                    f"{is_or_adds[0]} not bounded"
                    if others is None
                    else f"{is_or_adds[1]} at most {others:.6g}"
                )
                rounds = counted(self.num_others, "other round", "other rounds")
                told.append(f"    the {rounds} {value}")
        return told


@dataclass(frozen=True)
class RegretStatement(Statement):
    """A statement on regret, with what a loop needs to compute a number from it.

    The regret of round ``t`` is at most ``factor * width * standard_deviation + tail / t ** 2 +
    added``.

    See :class:`Statement` for the other arguments.

    Attributes:
        factor: The factor on the width; None if rounds have no bounds of their own.
        tail: The amount added in the first round, in raw outcome units.
        added: The amount added in every round, in raw outcome units.
        largest: A bound on the regret of any round, no matter who chose its point; None if there is
            none.
        needs_every_round: Whether the proof requires that the method chose the point in every
            round.
        is_expected: Whether it bounds the expected regret, by the expectation of the number.
        covers_pending: Whether it covers rounds that were chosen while outcomes were pending.
        counts_pending: Whether it covers these rounds one by one, because each maximized a bound of
            the outcomes that had arrived; forecasts for the whole run do not include them.
        quantity: The quantity it bounds: the regret, its expectation or a multiple of it.
        num_points: For draws, the number of points on which each is made, if it is the same in all
            rounds.
        prior_deviation: For draws, the prior standard deviation, in raw outcome units.
    """

    factor: float | None = None
    tail: float = 0.0
    added: float = 0.0
    largest: float | None = None
    needs_every_round: bool = False
    is_expected: bool = False
    covers_pending: bool = False
    counts_pending: bool = False
    quantity: str = "the regret"
    num_points: int | None = None
    prior_deviation: float | None = None

    @property
    def total(self) -> float | None:
        """The bound for all rounds so far; None if there is none or it is on expected regret."""
        return None if self.is_expected else super().total

    @property
    def _bounds(self) -> str:
        if self.is_expected:
            return (
                "; the sum of width times standard deviation, whose expectation bounds the "
                "expected regret, is"
            )
        return super()._bounds


@dataclass(frozen=True)
class Forecast:
    """A number from a theorem that is known before the run, or the quantities it depends on.

    Attributes:
        theorem: Its source.
        wording: The text that describes the number and precedes it.
        value: The number; None if there is none, in which case the wording says why.
        rest: The text that follows it.
    """

    theorem: str
    wording: str
    value: float | None = None
    rest: str = ""

    def __str__(self) -> str:
        """Return the forecast as one sentence."""
        number = "" if self.value is None else f" {self.value:.6g}"
        return f"{self.wording}{number}{self.rest} ({self.theorem})"


@dataclass(frozen=True)
class Guarantee:
    """What a theorem says about confidence bounds, regret and violation, and whether it applies.

    Attributes:
        method: The method, in words.
        theorem: The source, or None if no theorem exists.
        bands: The statement on confidence bounds, if there is one.
        regret: The statement on the cumulative regret, if there is one.
        violation: The statement on the violation of constraints, if there is one.
        assumptions: The assumptions that the user vouches for; they cannot be checked from data.
        constants: The numbers in use, by name.
        gaps: The reasons why no statement holds, which are included in the gaps of each statement.
        theorem_of_draws: The source for Thompson sampling with draws scaled by the width, if it is
            another theorem.
        forecasts: The numbers known before the run, for a loop that knows its horizon.
        notes: What the data say about assumptions; they do not change what is guaranteed.
    """

    method: str
    theorem: str | None = None
    bands: Statement | None = None
    regret: RegretStatement | None = None
    violation: Statement | None = None
    assumptions: tuple[str, ...] = ()
    constants: Mapping[str, float] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()
    theorem_of_draws: str | None = field(default=None, repr=False)
    forecasts: tuple[Forecast, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Add the gaps of the whole guarantee to each statement."""
        for name, statement in self.statements.items():
            if any(gap not in statement.gaps for gap in self.gaps):
                object.__setattr__(self, name, statement.with_gaps(*self.gaps))

    @property
    def statements(self) -> dict[str, Statement]:
        """The statements that the guarantee makes, by name."""
        each = {"bands": self.bands, "regret": self.regret, "violation": self.violation}
        return {name: statement for name, statement in each.items() if statement is not None}

    @property
    def holds(self) -> bool:
        """Whether a theorem covers this use in every statement, given its assumptions."""
        made = self.statements.values()
        return (
            self.theorem is not None
            and not self.gaps
            and bool(made)
            and all(statement.holds for statement in made)
        )

    @property
    def verdict(self) -> str:
        """Whether all statements hold, some or none, in the words that ``print`` begins with.

        It is ``"guaranteed"``, ``"guaranteed in part"`` or ``"no guarantee"``.
        """
        if self.holds:
            return "guaranteed"
        held = [statement for statement in self.statements.values() if statement.holds]
        return "guaranteed in part" if self.theorem and held and not self.gaps else "no guarantee"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason why the guarantee or one of its statements does not hold."""
        of_statements = [gap for each in self.statements.values() for gap in each.gaps]
        return tuple(dict.fromkeys((*self.gaps, *of_statements)))

    @property
    def statement(self) -> str:
        """The text of all statements."""
        return "; ".join(statement.text for statement in self.statements.values())

    @property
    def regret_bound(self) -> float | None:
        """A bound on the cumulative regret of all rounds so far, if there is one.

        It is None if the statement is on the expected regret or on a multiple of the regret.
        """
        regret = self.regret
        return regret.total if regret is not None and regret.quantity == "the regret" else None

    def with_gaps(self, *gaps: str, of: str | None = None) -> Guarantee:
        """Return a copy with further reasons why the theorem does not apply.

        Args:
            *gaps: One reason each.
            of: The one statement to which they apply, such as ``"regret"``; None for all.
        """
        if of is None:
            return replace(self, gaps=tuple(dict.fromkeys((*self.gaps, *gaps))))
        statement = self.statements.get(of)
        if statement is None:
            return self
        changed: dict[str, Any] = {of: statement.with_gaps(*gaps)}
        return replace(self, **changed)

    def with_assumptions(self, *assumptions: str) -> Guarantee:
        """Return a copy with further assumptions.

        Args:
            *assumptions: One assumption each; those that are already made are not repeated.
        """
        return replace(self, assumptions=tuple(dict.fromkeys((*self.assumptions, *assumptions))))

    @property
    def is_on_draws(self) -> bool:
        """Whether the reward function is a draw rather than a fixed function."""
        return any(
            isinstance(each, FunctionAssumption)
            and any((each.before, each.after) == (one.before, one.after) for one in DRAWS)
            for each in self.assumptions
        )

    def of_rows(self) -> Guarantee:
        """Return what an acquisition function alone guarantees, without knowledge of its rows."""
        if self.theorem is None:
            return self
        return self.with_assumptions(ROWS_IGNORE_REWARD if self.is_on_draws else ROWS_IGNORE_NOISE)

    def of_loop(self) -> Guarantee:
        """Return a copy without the assumption on rows, which a loop ensures by itself."""
        about_rows = (ROWS_IGNORE_NOISE, ROWS_IGNORE_REWARD)
        kept = tuple(each for each in self.assumptions if each not in about_rows)
        return replace(self, assumptions=kept)

    def with_wording(self, of: str, old: str, new: str) -> Guarantee:
        """Return a copy with other words in one statement.

        Args:
            of: The statement, such as ``"bands"``; nothing changes if it is not made.
            old: The words to replace.
            new: The words that replace them.
        """
        statement = self.statements.get(of)
        if statement is None:
            return self
        wording = statement.wording.replace(old, new)
        changed: dict[str, Any] = {of: replace(statement, wording=wording)}
        return replace(self, **changed)

    def of_weighted_sum(self) -> Guarantee:
        """Return the guarantee for a weighted sum of outputs, as a posterior transform forms it."""
        least = "the reward at its point less the least reward,"
        return (
            self.with_wording("bands", "the reward lies", "the weighted sum of outputs lies")
            .with_wording("regret", "the regret", "the regret in the weighted sum of outputs")
            .with_wording("regret", "cumulative regret", "cumulative regret in the weighted sum")
            .with_wording("regret", least, "the weighted sum at its point less the least such sum,")
        )

    def for_minimizing(self) -> Guarantee:
        """Return the guarantee for minimization of the reward by lower confidence bounds."""
        least, minus = "the reward at its point less the least reward,", "minus the reward"
        return (
            self.with_wording("regret", "maximizes the upper", "minimizes the lower")
            .with_wording("regret", "the regret of every round", f"{least} in every round")
            .with_wording("regret", "the regret of a round", f"{least} in a round")
            .with_wording("regret", "cumulative regret over", f"cumulative regret of {minus} over")
        )

    def about(self, function: str) -> Guarantee:
        """Return a copy whose assumptions on the reward function are about another function.

        Args:
            function: What the other function is called.
        """
        assumptions = tuple(
            each.about(function) if isinstance(each, FunctionAssumption) else each
            for each in self.assumptions
        )
        return replace(self, assumptions=assumptions)

    def for_draws(
        self,
        method: str,
        delta: float,
        num_points: int | None = None,
        prior_deviation: float | None = None,
    ) -> Guarantee:
        """Return the guarantee of draws that are scaled by a width at ``delta / 2``.

        Args:
            method: The name of the method that draws, in words.
            delta: The probability of failure of width and draws together.
            num_points: The number of points on which each draw is made; None if it varies.
            prior_deviation: The prior standard deviation, in raw outcome units, if it is known.
        """
        if self.theorem is None:
            return replace(self, method=f"Thompson sampling, {self.method}")
        of_width = self.regret or RegretStatement("")
        at_hand = "" if of_width.covers_pending else " with every outcome at hand"
        times = "" if of_width.quantity == "the regret" else "rho_m TIMES "
        regret = replace(
            of_width,
            wording=f"with {{probability}} {times}the cumulative regret over the rounds that the "
            f"method chose{at_hand} is at most a constant times the sum of scale times standard "
            "deviation at the points that it chose, up to logarithms and a term of the order of "
            "the square root of the number of rounds",
            factor=None,
            delta=delta,
            num_points=num_points,
            prior_deviation=prior_deviation,
        )
        return replace(
            self,
            method=method,
            theorem=self.theorem_of_draws or self.theorem,
            bands=None
            if self.bands is None
            else replace(
                self.bands,
                wording=f"{self.bands.wording} (at half of delta; the other half is for the draws)",
            ),
            regret=regret,
            constants={**self.constants, "delta": delta},
        )

    def __str__(self) -> str:
        """Return the guarantee as a few lines of text: what voids all of it comes first."""
        lines = [f"{self.method}: {self.verdict}"]
        lines += [f"  not covered: {gap}" for gap in self.gaps]
        if self.theorem is not None:
            lines.append(f"  theorem: {self.theorem}")
        names = {"bands": "confidence bounds", "regret": "regret", "violation": "violation"}
        for name, statement in self.statements.items():
            lines += statement.lines(names[name], self.gaps)
        lines += [f"  before the run: {forecast}" for forecast in self.forecasts]
        lines += [f"  assumes: {assumption}" for assumption in self.assumptions]
        if self.constants:
            constants = ", ".join(f"{name} = {value:.6g}" for name, value in self.constants.items())
            lines.append(f"  constants: {constants}")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def at_posterior_mean(count: int, kind: str = "") -> str:
    """Return the gap of pending or failed points that count as observed at the posterior mean.

    Args:
        count: The number of points.
        kind: Number and kind of the points, in words; if it is empty, all are pending.
    """
    shown = kind or f"{count} pending"
    return f"{shown} {'point enters' if count == 1 else 'points enter'} at the posterior mean"


def outcomes_pending(count: int) -> str:
    """Return the gap of outcomes that have not arrived and do not enter the model.

    Args:
        count: The number of outcomes.
    """
    return counted(count, "outcome is pending", "outcomes are pending")


def of_any_round(largest: float | None) -> str:
    """Return the end of a text on regret if functions are bounded.

    Args:
        largest: A bound on the regret of any round, if there is one.
    """
    if largest is None:
        return ""
    return f"; that of any round is at most 2 B = {largest:g}, B the norm's bound in outcome units"


def band_everywhere(delta: float) -> Statement:
    """Return the statement that a confidence bound holds at all points and in all rounds.

    Args:
        delta: The statement fails with at most this probability.
    """
    return Statement(
        "with {probability} the reward lies within the width of the posterior mean, at all points "
        "and in all rounds",
        delta=delta,
        reach="everywhere",
    )


def regret_of_band(delta: float, largest: float | None = None) -> RegretStatement:
    """Return what a confidence bound that holds at all points implies for the regret.

    Args:
        delta: The bound fails with at most this probability.
        largest: A bound on the regret of any round, if there is one.
    """
    return RegretStatement(
        "with {probability}, on the same event, the regret of every round that "
        "maximizes the upper confidence bound is at most twice width times standard deviation at "
        f"the point that it chose{of_any_round(largest)}",
        delta=delta,
        largest=largest,
        factor=2.0,
    )


def of_all_outputs(each: Sequence[Guarantee], method: str, delta: float) -> Guarantee:
    """Return what the bounds of a reward and of its constraints guarantee together.

    Args:
        each: The guarantees of the reward and of each constraint, at equal shares of ``delta``.
        method: The name of the method that uses the bounds, in words.
        delta: All bounds together fail with at most this probability.
    """
    names = ["reward", *(f"constraint {j}" for j in range(1, len(each)))]
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
    combined = Guarantee(
        method=method,
        constants={"delta": delta, **constants},
        gaps=tuple(dict.fromkeys(gaps)),
    )
    if all(guarantee.theorem is not None for guarantee in each):
        on_same = "with {probability}, on the same event, "
        assumptions = [a for g in each for a in g.about("each function").assumptions]
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
                f"{on_same}the regret of every round that maximizes the bound of the penalized "
                "reward, against the best point that meets the constraints, is at most the "
                "value of that bound less the lower confidence bound of the reward, at the "
                "point that it chose",
                delta=delta,
            ),
            violation=Statement(
                f"{on_same}each constraint is at most its upper confidence bound at the points "
                "that were chosen, so that the norm of the positive part of summed constraint "
                "values is at most that of summed bounds",
                delta=delta,
            ),
            assumptions=tuple(dict.fromkeys(assumptions)),
        )
    return combined


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

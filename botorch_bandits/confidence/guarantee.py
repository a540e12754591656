"""What a method guarantees: theorem, statements, assumptions and constants, or why none applies.

A guarantee has up to three statements, on the confidence bounds, on the regret and on the violation
of constraints, each with its own reasons why it may not hold. Width rules make the statements,
acquisition functions and loops add the reasons that void them, and users print them.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from botorch_bandits.checks import counted

WIDTH = 88
"""The largest number of characters in a line that is printed."""

BOUNDS = {
    False: ": at most",
    True: (
        "; the sum of width times standard deviation, whose expectation bounds the expected "
        "regret, is"
    ),
}
"""The text between the number of rounds and the value of a bound, by whether it is expected."""

MOST_REASONS = 3
"""The largest number of reasons in the short form, which begins with those against all of it."""

NAMES = {"bands": "confidence bounds", "regret": "regret", "violation": "violation"}
"""What the statements of a guarantee are called."""


@dataclass(frozen=True)
class Statement:
    """One statement of a guarantee: on confidence bounds, on regret or on violation.

    Attributes:
        wording: The template of the text, whose only field, ``{probability}``, is the number
            ``1 - delta``, or these words if ``delta`` is None.
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
        is_expected: Whether it bounds the expected regret, by the expectation of the number.
    """

    wording: str
    gaps: tuple[str, ...] = ()
    bound: float | None = None
    num_rounds: int | None = None
    num_others: int = 0
    bound_of_others: float | None = None
    delta: float | None = None
    reach: str | None = None
    is_expected: bool = False

    @property
    def probability(self) -> str:
        """The probability with which it holds, in words."""
        number = "1 - delta" if self.delta is None else f"{1.0 - self.delta:.6g}"
        if number == "1":
            number = f"1 - {self.delta:.3g}"
        return f"probability {number}"

    @property
    def text(self) -> str:
        """The text of the statement, with its probability."""
        return self.wording.replace("{probability}", self.probability)

    @property
    def holds(self) -> bool:
        """Whether the theorem covers this use, given its assumptions."""
        return not self.gaps

    @property
    def total(self) -> float | None:
        """The bound for all rounds so far; None without a number, if it does not hold, or expected.

        On the expected regret, it is the expectation of the number that is the bound.
        """
        if not self.holds or self.bound is None or self.is_expected:
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
    def verdict(self) -> str:
        """Whether it holds, in words."""
        return "guaranteed" if self.holds else "not guaranteed"

    @property
    def lines(self) -> list[str]:
        """The numbers for the rounds so far, as lines of text; empty if it does not hold."""
        told = []
        if self.num_rounds is not None and self.holds:
            all_rounds = self.num_rounds + self.num_others
            value = "" if self.bound is None else f"{BOUNDS[self.is_expected]} {self.bound:.6g}"
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
        covers_pending: Whether it covers rounds that were chosen while outcomes were pending.
        counts_pending: Whether it covers these rounds one by one, because each maximized a bound of
            the outcomes that had arrived; forecasts for the whole run do not include them.
        quantity: The quantity it bounds: the regret, its expectation or a multiple of it.
        num_points: For draws, the number of points on which each is made, if it is the same in all
            rounds.
        prior_deviation: For draws, the prior standard deviation, in raw outcome units.
        source_of_run: Where the number for a whole run is that is known before it; empty if there
            is none.
    """

    factor: float | None = None
    tail: float = 0.0
    added: float = 0.0
    largest: float | None = None
    needs_every_round: bool = False
    covers_pending: bool = False
    counts_pending: bool = False
    quantity: str = "the regret"
    num_points: int | None = None
    prior_deviation: float | None = None
    source_of_run: str = ""


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
        forecasts: The numbers known before the run, for a loop that knows its horizon.
        notes: What the data say about assumptions; they do not change what is guaranteed.
        is_drawn: Whether the theorem is about functions that are drawn from a prior, so that
            statements concern a draw.
    """

    method: str
    theorem: str | None = None
    bands: Statement | None = None
    regret: RegretStatement | None = None
    violation: Statement | None = None
    assumptions: tuple[str, ...] = ()
    constants: Mapping[str, float] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()
    forecasts: tuple[Forecast, ...] = ()
    notes: tuple[str, ...] = ()
    is_drawn: bool = field(default=False, repr=False)

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

    def with_gaps(self, *gaps: str, of: Collection[str] = ()) -> Guarantee:
        """Return a copy with further reasons why the theorem does not apply.

        Args:
            *gaps: One reason each.
            of: The names of the statements to which they apply, such as ``"regret"``; empty for
                all.
        """
        if not of:
            return replace(self, gaps=tuple(dict.fromkeys((*self.gaps, *gaps))))
        changed: dict[str, Any] = {
            name: statement.with_gaps(*gaps)
            for name, statement in self.statements.items()
            if name in of
        }
        return replace(self, **changed)

    def with_assumptions(self, *assumptions: str) -> Guarantee:
        """Return a copy with further assumptions.

        Args:
            *assumptions: One assumption each; those that are already made are not repeated.
        """
        return replace(self, assumptions=tuple(dict.fromkeys((*self.assumptions, *assumptions))))

    def explain(self, width: int = WIDTH) -> str:
        """Return everything that is known: texts, reasons, numbers, assumptions and constants.

        What voids all of it comes first.

        Args:
            width: The largest number of characters in a line.
        """
        lines = [f"{self.verdict}: {self.method}"]
        lines += [f"  not covered: {gap}" for gap in self.gaps]
        if self.theorem is not None:
            lines.append(f"  theorem: {self.theorem}")
        for name, statement in self.statements.items():
            lines.append(f"  {NAMES[name]}, {statement.verdict}: {statement.text}")
            own = [gap for gap in statement.gaps if gap not in self.gaps]
            lines += [f"    not covered: {gap}" for gap in own]
            lines += statement.lines
        lines += [f"  before the run: {forecast}" for forecast in self.forecasts]
        lines += [f"  assumes: {assumption}" for assumption in self.assumptions]
        if self.constants:
            constants = ", ".join(f"{name} = {value:.6g}" for name, value in self.constants.items())
            lines.append(f"  constants: {constants}")
        lines += [f"  note: {note}" for note in self.notes]
        return _wrapped(lines, width)

    def __str__(self) -> str:
        """Return the verdict, at most three reasons against it, and numbers, without the texts."""
        lines = [f"{self.verdict}: {self.method}"]
        lines += [f"  not covered: {reason}" for reason in self.reasons[:MOST_REASONS]]
        left_out = len(self.reasons) - MOST_REASONS
        if left_out > 0:
            lines.append(f"  not covered, for {counted(left_out, 'more reason', 'more reasons')}")
        for name, statement in self.statements.items() if self.theorem else ():
            level = f", with {statement.probability}" if "{prob" in statement.wording else ""
            lines.append(f"  {NAMES[name]}: {statement.verdict}{level if statement.holds else ''}")
            lines += statement.lines
        known = [forecast for forecast in self.forecasts if forecast.value is not None]
        lines += [f"  before the run: {forecast}" for forecast in known]
        lines += [f"  note: {note}" for note in self.notes]
        assumed = counted(len(self.assumptions), "assumption", "assumptions")
        lines.append(f"  explain() returns the full text, with {assumed}")
        return _wrapped(lines, WIDTH)

    def _repr_html_(self) -> str:
        """Return what notebooks show: the short form, and the full text to be unfolded."""
        first, *others = html.escape(str(self)).splitlines(keepends=True)
        return (
            f"<pre><b>{first}</b>{''.join(others)}</pre><details><summary>explain()</summary>"
            f"<pre>{html.escape(self.explain())}</pre></details>"
        )


def _wrapped(lines: Collection[str], width: int) -> str:
    """Return indented lines as one text, in which a line continues with four more spaces."""
    return "\n".join(
        textwrap.fill(
            line.lstrip(),
            width,
            initial_indent=(indent := line[: len(line) - len(line.lstrip())]),
            subsequent_indent=indent + "    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines
    )

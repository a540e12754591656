"""The statements that several theorems make, from the facts of a use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from botorch_bandits.confidence.facts import Facts
from botorch_bandits.confidence.guarantee import Guarantee, RegretStatement, Statement


def band_everywhere(delta: float, facts: Facts) -> Statement:
    """Return the statement that a confidence bound holds at all points and in all rounds.

    Args:
        delta: The statement fails with at most this probability.
        facts: The facts of the use.
    """
    says = (
        "with {probability} {subject} lies within the width of the posterior mean, at all points "
        "and in {rounds}{half}"
    )
    return Statement(facts.say(says), delta=delta, reach="everywhere")


def regret_of_band(delta: float, facts: Facts, largest: float | None = None) -> RegretStatement:
    """Return what a confidence bound that holds at all points implies for the regret.

    Args:
        delta: The bound fails with at most this probability.
        facts: The facts of the use.
        largest: ``2 B``, if it bounds the regret of any round for a function that does not vary.
    """
    added = 2.0 * facts.variation
    if largest is not None:
        largest += added
    return RegretStatement(
        facts.say(
            "with {probability}, on the same event, {regret_of} every round that {optimizes} is at "
            "most twice width times standard deviation at the point that it chose{plus_variation}"
        )
        + of_any_round(largest, facts),
        delta=delta,
        largest=largest,
        added=added,
        factor=2.0,
    )


def of_any_round(largest: float | None, facts: Facts) -> str:
    """Return the end of a statement on regret if functions are bounded.

    Args:
        largest: A bound on the regret of any round, if there is one.
        facts: The facts of the use.
    """
    if largest is None:
        return ""
    says = (
        "; that of any round is at most 2 B{plus_variation} = {largest:g}, B the norm's bound in "
        "outcome units"
    )
    return facts.say(says, largest=largest)


def of_draws(
    guarantee: Guarantee,
    facts: Facts,
    method: str,
    delta: float,
    num_points: int | None = None,
    prior_deviation: float | None = None,
) -> Guarantee:
    """Return the guarantee of draws that are scaled by a width at ``delta / 2``.

    Args:
        guarantee: The guarantee of the width.
        facts: The facts of the use.
        method: The name of the method that draws, in words.
        delta: The probability of failure of width and draws together.
        num_points: The number of points on which each draw is made; None if it varies.
        prior_deviation: The prior standard deviation, in raw outcome units, if it is known.
    """
    if guarantee.theorem is None:
        return replace(guarantee, method=f"Thompson sampling, {guarantee.method}")
    of_width = guarantee.regret or RegretStatement("")
    says = (
        "with {probability} {times}the {cumulative_regret} over the rounds that the method "
        "chose{at_hand} is at most a constant times the sum of scale times standard deviation at "
        "the points that it chose, up to logarithms and a term of the order of the square root of "
        "the number of rounds"
    )
    regret = replace(
        of_width,
        wording=facts.say(
            says,
            times="" if of_width.quantity == "the regret" else "rho_m TIMES ",
            at_hand="" if of_width.covers_pending else " with every outcome at hand",
        ),
        factor=None,
        delta=delta,
        num_points=num_points,
        prior_deviation=prior_deviation,
    )
    return replace(
        guarantee,
        method=method,
        theorem=guarantee.theorem_of_draws or guarantee.theorem,
        regret=regret,
        constants={**guarantee.constants, "delta": delta},
    )


_REGRET_OF_PENALIZED = {
    False: "the regret{within} of every round that maximizes the bound of the penalized {outcome}, "
    "against the best point that meets the constraints, is at most the value of that bound less "
    "the lower confidence bound of the {outcome}, at the point that it chose",
    True: "the regret{within}, of minus the {outcome}, in every round that maximizes the bound of "
    "minus the penalized {outcome}, against the best point that meets the constraints, is at most "
    "the value of that bound plus the upper confidence bound of the {outcome}, at the point that "
    "it chose",
}


def of_all_outputs(each: Sequence[Guarantee], facts: Facts, method: str, delta: float) -> Guarantee:
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
    combined = Guarantee(
        method=facts.say(method),
        constants={"delta": delta, **constants},
        gaps=tuple(dict.fromkeys(gaps)),
    )
    if any(guarantee.theorem is None for guarantee in each):
        return combined
    on_same = "with {probability}, on the same event, "
    return replace(
        combined,
        theorem=facts.say(
            "{theorem}, for {outcome} and constraints at delta / {count} each (union bound)",
            theorem=each[0].theorem,
            count=len(each),
        ),
        bands=Statement(
            facts.say(
                "with {probability} the {outcome} and each constraint lie within their widths of "
                "their posterior means, at all points and in {rounds}, for all multipliers at once"
            ),
            delta=delta,
            reach="everywhere",
        ),
        regret=RegretStatement(
            facts.say(on_same + _REGRET_OF_PENALIZED[facts.minimizes]), delta=delta
        ),
        violation=Statement(
            f"{on_same}each constraint is at most its upper confidence bound at the points that "
            "were chosen, so that the norm of the positive part of summed constraint values is at "
            "most that of summed bounds",
            delta=delta,
        ),
        assumptions=tuple(dict.fromkeys(a for g in each for a in g.assumptions)),
    )

"""The rules, on both sides of each."""

from __future__ import annotations

import math

import pytest

from papers.reproduction.judging import (
    NUM_QUOTED,
    Check,
    Estimate,
    Evidence,
    MissingRowsError,
    Verdict,
    ahead,
    alike,
    are_alike,
    below,
    best,
    decide,
    is_larger,
    reason,
    tends_to_zero,
)

from .worlds import of_means

ONE = Estimate(1.0, math.inf)


@pytest.mark.parametrize(
    ("mean", "error", "expected"),
    [(2.01, 1.0, True), (1.99, 1.0, False), (-3.0, 1.0, False), (0.0, 0.0, False)],
)
def test_larger_beyond_two_errors(mean: float, error: float, expected: bool) -> None:
    assert is_larger(Estimate(mean, error)) == expected


def test_one_trial_decides_nothing() -> None:
    assert not is_larger(ONE)
    assert not are_alike(ONE, 2.0)
    evidence = of_means({"p": {"a": 1.0, "b": 9.0}})
    for table in evidence.tables.values():
        for row in table:
            row["trials"] = "1"
    assert not ahead(evidence, "p", "a", "b").holds
    assert ahead(evidence, "p", "a", "b").standard_error is None


@pytest.mark.parametrize(
    ("difference", "error", "expected"),
    [(0.09, 0.01, True), (-0.09, 0.01, True), (0.11, 0.01, False), (0.3, 0.2, True)],
)
def test_alike(difference: float, error: float, expected: bool) -> None:
    assert are_alike(Estimate(difference, error), 1.0) == expected
    evidence = of_means({"p": {"a": 1.0, "b": 1.0 - difference}}, error)
    assert alike(evidence, "p", "a", "b").holds == expected


@pytest.mark.parametrize(
    ("half", "end", "error", "expected"),
    [
        (1.0, 0.74, 0.01, True),
        (1.0, 0.76, 0.01, False),  # too little
        (1.0, 0.7, 0.2, False),  # within the errors
        (0.0, 0.01, 0.01, True),  # is there
        (1.0, 1.2, 0.01, False),
    ],
)
def test_tends_to_zero(half: float, end: float, error: float, expected: bool) -> None:
    assert tends_to_zero(Estimate(half, error), Estimate(end, error)) == expected


def test_ahead_and_far_ahead_and_best() -> None:
    evidence = of_means({"p": {"a": 1.0, "b": 1.5, "c": 3.0}})
    assert ahead(evidence, "p", "a", "b").holds
    assert not ahead(evidence, "p", "b", "a").holds
    assert not ahead(evidence, "p", "a", "b", far=True).holds
    assert ahead(evidence, "p", "a", "c", far=True).holds
    assert best(evidence, "p", "a", ("b", "c")).holds
    assert not best(evidence, "p", "b", ("a", "c")).holds
    check = ahead(evidence, "p", "a", "b", where="Rosenbrock")
    assert check.claim == "a ahead of b, Rosenbrock"
    assert check.ours == "regret 1 and 1.5, difference +0.5 ± 0.01"


@pytest.mark.parametrize(
    ("middle", "end", "expected"),
    [
        (1.0, 1.0, True),
        (1.0, 0.0, True),
        (1.0, -1.0, False),
        (0.0, 1.0, True),
        (-1.0, 1.0, False),
        (0.0, 0.0, False),
    ],
)
def test_below_asks_the_middle_and_the_end(middle: float, end: float, expected: bool) -> None:
    evidence = of_means({"p": {"b": end, "a": 0.0}}, quantity="simple regret")
    for row in evidence.tables["differences"]:
        if row["quantity"].endswith("middle"):
            row["mean"] = str(middle)
    assert below(evidence, "p", "a", "b").holds == expected


def test_differences_are_those_over_the_same_trials() -> None:
    """Not those of independent means, and in either order of the methods."""
    evidence = of_means({"p": {"a": 1.0, "b": 1.1}}, error=0.02)
    for row in evidence.tables["table"]:
        row["standard_error"] = "5"
    assert ahead(evidence, "p", "a", "b").holds
    assert evidence.difference("p", "a", "b").mean == pytest.approx(-0.1)
    assert (Estimate(3.0, 3.0) - Estimate(1.0, 4.0)) == Estimate(2.0, 5.0)


def check(holds: bool, is_main: bool = True) -> Check:
    return Check("claim", holds, "1 and 2", None, is_main)


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ([check(True), check(True, False)], Verdict.REPRODUCED),
        ([check(True), check(False, False)], Verdict.PARTLY),
        ([check(True), check(False)], Verdict.PARTLY),
        ([check(False), check(True, False)], Verdict.NOT),
        ([check(False)], Verdict.NOT),
    ],
)
def test_verdicts(checks: list[Check], expected: Verdict) -> None:
    assert decide(checks) is expected


def test_reasons_quote_numbers() -> None:
    assert reason([check(True)]) == "The claim holds: claim (1 and 2)."
    assert reason([check(True)] * 2).startswith("All 2 claims hold: claim (1 and 2)")
    assert "among them" in reason([check(True)] * (NUM_QUOTED + 1))
    words = reason([check(True), *[check(False)] * (NUM_QUOTED + 2)])
    assert words.startswith(f"1 of {NUM_QUOTED + 3} claims hold. Does not hold: claim (1 and 2);")
    assert words.endswith("and 2 more in the list of claims.")


def test_missing_rows_are_told_from_numbers() -> None:
    evidence = of_means({"p": {"a": 1.0, "b": 2.0}})
    with pytest.raises(MissingRowsError, match="no rows of q, a"):
        evidence.mean("q", "a")
    with pytest.raises(MissingRowsError, match="no simple regret of a and b in p"):
        evidence.difference("p", "a", "b", "simple regret")
    with pytest.raises(MissingRowsError):
        Evidence({}).rows("table")

"""Claiming less is no remedy: what held, and rightly, when guarantees were one statement holds.

Each line is a method and where it may be used. A claim may be dropped from here only together with
a counterexample. The theorems of Shi and Eryilmaz with contexts are gone: their comparator is one
fixed point.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pairwise import pairwise

from botorch_bandits import BanditLoop
from claims.building import Plan
from claims.faults import setting
from claims.settings import Setting

ARMS, BOX = "arms, d = 1", "box, d = 1"
PLAIN = ("hallucinated", "ignored")
CENSORED = (
    "censored, printed",
    "censored, any lam",
    "censored, seconds",
    "censored, window all",
)
ANY = ("none", "random")
ALONE = ("none",)

# method, domains, feedback, contexts, constraints
COVERED: list[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...], str]] = [
    ("IGP-UCB, printed", (ARMS, BOX), PLAIN + CENSORED, ANY, "none"),
    ("IGP-UCB, any lam", (ARMS, BOX), PLAIN + CENSORED, ANY, "none"),
    ("IGP-UCB, water-filling gain", (ARMS,), PLAIN, ALONE, "none"),
    ("IGP-UCB, greedy gain", (ARMS,), PLAIN, ALONE, "none"),
    ("AMM", (ARMS, BOX), PLAIN, ANY, "none"),
    ("DMM", (ARMS, BOX), PLAIN, ANY, "none"),
    ("Theorem 1", (ARMS,), PLAIN, ANY, "none"),
    ("Theorem 1, list", (ARMS,), PLAIN[:1], ANY, "none"),
    ("Theorem 2", (BOX,), PLAIN, ANY, "none"),
    ("Theorem 2, list", (BOX,), PLAIN[:1], ANY, "none"),
    ("Theorem 3", (ARMS,), PLAIN, ALONE, "none"),
    ("IRGP-UCB", (ARMS,), PLAIN, ANY, "none"),
    ("GP-TS, printed", (ARMS,), PLAIN + CENSORED, ANY, "none"),
    ("GP-TS, any lam", (ARMS,), PLAIN + CENSORED, ANY, "none"),
    ("IGP-UCB, any lam", (ARMS, BOX), PLAIN, ALONE, "multiplicative, fresh"),
    ("IGP-UCB, any lam", (ARMS, BOX), PLAIN, ALONE, "additive, fresh"),
    ("GP-TS, any lam", (ARMS,), PLAIN, ALONE, "multiplicative, fresh"),
]


def combinations(restarts: tuple[str, ...] = ("none",)) -> Iterator[Any]:
    for method, domains, feedback, contexts, constraints in COVERED:
        for domain, form, context in pairwise(domains, feedback, contexts):
            for restart in restarts:
                kernel = "Matern 1/2" if constraints.startswith("multiplicative") else "RBF"
                name = (method, domain[:4].strip(","), form, context, constraints, restart)
                yield pytest.param(
                    setting(
                        method=method,
                        domain=domain,
                        feedback=form,
                        contexts=context,
                        constraints=constraints,
                        restart=restart,
                        kernel=kernel,
                        lam="2",
                        num_arms=5,
                        num_rounds=8,
                    ),
                    id="-".join(name).replace(" ", "_"),
                )


class Played:
    """A loop of a setting, round by round."""

    def __init__(self, chosen: Setting) -> None:
        self.setting, self.now = chosen, 0.0
        plan = Plan(chosen)
        self.unit = plan.unit
        self.reward = plan.minimum + 0.3 if chosen.is_censored else 0.3
        self.loop: BanditLoop = plan.loop(0)

    def ask(self) -> int:
        self.now += 1.0
        given = {"context": [0.3]} if self.setting.contexts != "none" else {}
        return self.loop.ask(at=self.now, **given).id  # type: ignore[arg-type]

    def tell(self, query_id: int) -> None:
        has_none = self.setting.constraints == "none"
        given: dict[str, Any] = {} if has_none else {"constraints": [-0.1]}
        self.loop.tell(query_id, self.reward, at=self.now, **given)

    def play(self, num_rounds: int) -> None:
        for _ in range(num_rounds):
            self.tell(self.ask())


@pytest.mark.parametrize("chosen", list(combinations()))
def test_what_held_still_holds(chosen: Setting) -> None:
    played = Played(chosen)
    assert played.loop.guarantee().holds or chosen.model != "BanditGP"  # before the first round
    played.play(5)
    guarantee = played.loop.guarantee()
    assert guarantee.holds, guarantee.explain()
    if guarantee.regret is not None and guarantee.regret.num_rounds is not None:
        assert (guarantee.regret.num_rounds, guarantee.regret.num_others) == (5, 0)


def without_constraints(params: Iterator[Any]) -> list[Any]:
    return [each for each in params if each.values[0].constraints == "none"]


@pytest.mark.parametrize(
    "chosen",
    [
        each
        for each in without_constraints(combinations(("never",)))
        if each.values[0].feedback != "ignored"
    ],
)
def test_a_rule_that_never_begins_anew_takes_nothing_away(chosen: Setting) -> None:
    played = Played(chosen)
    played.play(6)
    guarantee = played.loop.guarantee()
    assert guarantee.holds, guarantee.explain()


ONE_CONTEXT = [
    each
    for each in without_constraints(combinations())
    if each.values[0].contexts == "none"
    and each.values[0].feedback in ("hallucinated", "ignored", "censored, any lam")
]
"""Without contexts and with one form of censoring: the others change nothing in what follows."""


@pytest.mark.parametrize("chosen", ONE_CONTEXT)
def test_a_failed_query_and_an_attached_one_leave_the_rest(chosen: Setting) -> None:
    played = Played(chosen)
    played.play(2)
    played.loop.fail(played.ask())
    if not chosen.is_censored:
        played.loop.attach([0.25] if chosen.is_box else [0.0], played.reward)
    played.play(2)
    guarantee = played.loop.guarantee()
    assert guarantee.holds, guarantee.explain()
    regret = guarantee.regret
    assert regret is not None
    assert regret.num_rounds is None or regret.num_rounds >= 4


@pytest.mark.parametrize("chosen", ONE_CONTEXT)
def test_a_pending_query_leaves_the_rounds_before_it(chosen: Setting) -> None:
    played = Played(chosen)
    played.play(3)
    late = played.ask()
    played.play(1)
    guarantee = played.loop.guarantee()
    assert guarantee.regret is not None
    assert guarantee.regret.holds, guarantee.explain()
    if chosen.feedback != "hallucinated" and guarantee.bands is not None:
        assert guarantee.bands.holds, guarantee.explain()
    played.tell(late)
    guarantee = played.loop.guarantee()
    assert guarantee.holds, guarantee.explain()


@pytest.mark.parametrize("chosen", [each for each in ONE_CONTEXT if not each.values[0].is_censored])
def test_rounds_that_were_drawn_uniformly_are_counted_apart(chosen: Setting) -> None:
    played = Played(replace(chosen, num_initial="3"))
    played.play(5)
    guarantee = played.loop.guarantee()
    assert guarantee.holds, guarantee.explain()
    assert guarantee.regret is not None
    assert guarantee.regret.num_others == 3

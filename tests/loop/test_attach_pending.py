"""Points that are evaluated elsewhere and have no outcome yet: they are pending like asked ones."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel
from records import assert_same

import botorch_bandits as bb
from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Hallucinated,
    Ignored,
    RandomSearch,
)

CHOICES = torch.linspace(0, 1, 15, dtype=torch.float64).unsqueeze(-1)
FEEDBACKS = {
    "censored": Censored(-1.0, 2.5, max_delay=4),
    "hallucinated": Hallucinated(),
    "ignored": Ignored(),
}
DOMAINS = {"arms": Arms(CHOICES), "box": Box([[0.0], [1.0]], num_restarts=4, raw_samples=32)}


def reward(x: torch.Tensor) -> float:
    return math.sin(7.0 * float(x))


def build(domain: str = "arms", feedback: Any = None, acquisition: Any = None, **more: Any) -> Any:
    return BanditLoop(
        DOMAINS[domain],
        BanditGP.with_kernel(RBFKernel(), noise=0.1, lengthscale=0.2),
        acquisition or GPUpperConfidenceBound.with_options(width=2.0),
        feedback=feedback or Hallucinated(),
        seed=4,
        **{**more},
    )


@pytest.mark.parametrize("context_dim", [0, 1])
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("name", FEEDBACKS)
def test_what_is_attached_is_pending_like_what_was_asked(
    name: str, domain: str, context_dim: int
) -> None:
    """A loop that is given another one's queries, one by one, is where that one is."""
    if domain == "box" and context_dim:
        pytest.skip("the same builder")
    asks = build(domain, FEEDBACKS[name], context_dim=context_dim)
    takes = build(domain, FEEDBACKS[name], context_dim=context_dim)
    for t in range(9):
        context = {"context": [t / 9.0]} if context_dim else {}
        query = asks.ask(**context)
        again = takes.attach(query.x, **context)
        assert (again.id, again.origin, again.round_number) == (t, "attached", t + 1)
        assert takes.history.state(again.id) == "pending"
        if t in (2, 5):
            for loop in (asks, takes):
                loop.tell(t - 1, reward(query.x))
        if t == 6:
            for loop in (asks, takes):
                loop.fail(3)
    context = {"context": [0.5]} if context_dim else {}
    first, second = asks.ask(**context), takes.ask(**context)
    assert torch.equal(first.x, second.x)
    assert_same(first.diagnostics, second.diagnostics)
    if name == "censored":
        assert asks.feedback_view() == takes.feedback_view()
        assert len(takes.feedback_view().pending) > 0


def test_draws_and_restricted_rounds_go_on_from_it() -> None:
    loop = build(acquisition=GPThompsonSampling.with_options(width=1.0), num_initial=2)
    loop.attach(CHOICES[3])
    loop.attach(CHOICES[7])  # both initial rounds
    assert loop.ask().origin == "acquisition"
    loop.tell(0, 0.3)
    assert loop.ask(avoid=[2, 3]).x.item() not in CHOICES[[2, 3]].flatten().tolist()


def test_constraints_come_with_the_outcome() -> None:
    rule = bb.PrimalDual(1, max_multiplier=2.0, divisor=4.0)
    loop = build(
        acquisition=bb.LagrangianUpperConfidenceBound.with_options(width=1.0), constraints=rule
    )
    for i in range(5):
        query = loop.attach(CHOICES[3 * i])
        loop.tell(query.id, 0.1 * i, constraints=[0.3 - 0.1 * i])
    waiting = loop.attach(CHOICES[1])
    assert loop.ask().id == 6
    assert loop.tell(waiting.id, 0.5, constraints=[-0.1]).constraints == (-0.1,)


def test_guarantees_count_it_as_one_that_may_be_lost() -> None:
    improved = bb.ImprovedUpperConfidenceBound.with_options(
        rkhs_bound=2.0, noise_bound=0.1, any_lambda=True
    )
    loop = build(feedback=Censored(0.0, 1.0, max_delay=3), acquisition=improved)
    loop.attach(CHOICES[2])
    loop.ask()
    words = str(loop.guarantee())
    assert "which points were attached" in words or "which outcomes were attached" in words
    assert "never lost" not in words
    loop.attach(CHOICES[4], 0.5)
    assert "never lost" in str(loop.guarantee())


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda loop: loop.attach([0.51]), ValueError, "x has the row"),
        (lambda loop: loop.attach([0.5], constraints=[0.1]), ValueError, "constraints is .*reward"),
        (lambda loop: loop.attach([0.5], count=3), ValueError, "count is 3, but reward is missing"),
        (lambda loop: loop.attach([0.5], noise=0.1), ValueError, "noise is 0.1, but reward"),
        (lambda loop: loop.attach([0.5], context=[0.1]), ValueError, "context"),
    ],
)
def test_bad_input_records_nothing(call: Any, error: type[Exception], match: str) -> None:
    loop = build()
    with pytest.raises(error, match=match):
        call(loop)
    assert loop.history.num_queries == 0
    with pytest.raises(ValueError, match="context is"):
        build(context_dim=1).attach([0.5])
    short = build(horizon=1)
    short.attach([0.5])
    with pytest.raises(RuntimeError, match="horizon=1 rounds were asked"):
        short.attach([1.0])


def test_a_script_that_attaches_its_data_again_is_warned_once(tmp_path: Path) -> None:
    rows = [([0.1], 1.0), ([0.4], 2.0), ([0.9], 1.5)]
    storage = tmp_path / "lab.db"

    def opened() -> BanditLoop:
        return BanditLoop(Box([(0.0, 1.0)]), None, RandomSearch(), storage=storage)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with opened() as loop:
            for x, y in [*rows, rows[0]]:  # a repeated measurement within one script
                loop.attach(x, y)
        with opened() as loop:
            loop.attach([0.1], 1.25)  # a new measurement at an old point
            loop.attach([0.2], 1.0)
    with opened() as loop:
        with pytest.warns(UserWarning, match=r"x=\[0\.4\].*query 1\).*num_queries:"):
            loop.attach(*rows[1])
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            loop.attach(*rows[2])
        assert loop.history.num_arrived == 8

"""Censored feedback in the loop beyond the paper's own setting, and what each round costs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from gpytorch.kernels import RBFKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from botorch_bandits import (
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    CensoredUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Hallucinated,
    History,
    Ignored,
    ImprovedUpperConfidenceBound,
    RandomizedUpperConfidenceBound,
)
from botorch_bandits.acquisition import MinimumLoweredWarning
from botorch_bandits.confidence import (
    BoundedNorm,
    gp_ucb_compact_width,
    gp_ucb_finite_width,
)
from tests.models.textbook import posterior, squared_exponential

CHOICES = torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1)
LENGTHSCALE, NOISE, MINIMUM, OUTCOME_BOUND = 0.2, 1.5, -2.0, 4.0
B, R, DELTA = 3.0, 0.1, 0.1
BOUNDS = {"rkhs_bound": B, "noise_bound": R, "delta": DELTA}
IGP = ImprovedUpperConfidenceBound.with_options(**BOUNDS)
CENSORED = Censored(MINIMUM, OUTCOME_BOUND, max_delay=4)

pytestmark = pytest.mark.filterwarnings("ignore::botorch_bandits.feedback.LateOutcomeWarning")


def make_loop(
    domain: str, acquisition: Any = IGP, feedback: Any = CENSORED, **options: Any
) -> BanditLoop:
    options = {"prior_mean": 0.0, "seed": 1, **options}
    mean = options.pop("prior_mean")
    return BanditLoop(
        Arms(CHOICES) if domain == "arms" else Box([[0.0], [1.0]], num_restarts=8, raw_samples=512),
        BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE, prior_mean=mean),
        acquisition,
        feedback=feedback,
        **options,
    )


def reward(x: Tensor) -> float:
    return math.sin(7.0 * float(x))


# --- the cost of a round --------------------------------------------------------------------

# ask, tell one of those without an outcome or let it fail, move the clock (back, too), look
ACTIONS = st.lists(
    st.one_of(
        st.just(("ask", 0.0)),
        st.tuples(st.sampled_from(["tell", "fail"]), st.integers(0, 20)),
        st.tuples(st.just("clock"), st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 7.0, -2.0])),
        st.just(("look", 0.0)),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(
    actions=ACTIONS,
    max_delay=st.one_of(st.none(), st.integers(1, 5)),
    unit=st.sampled_from(["rounds", "seconds"]),
)
def test_a_query_is_observed_pending_or_lost_as_defined(
    actions: list[tuple[str, float]], max_delay: int | None, unit: str
) -> None:
    feedback = Censored(0.0, 1.0, max_delay=max_delay, unit=unit)
    history, now = History(1), 0.0
    longest = math.inf if max_delay is None else max_delay
    for action, number in [*actions, ("look", 0.0)]:
        waiting = history.pending()
        if action == "ask":
            history.record(
                history.new_query(torch.zeros(1, dtype=torch.float64), "acquisition", now)
            )
        elif action in ("tell", "fail") and waiting:
            query_id = waiting[int(number) % len(waiting)].id
            if action == "tell":
                history.record(history.new_outcome(query_id, 0.5, now))
            else:
                history.record(history.new_failure(query_id, now))
        elif action == "clock":
            now += number
        elif action == "look":
            view, t = feedback.view(history, history.num_queries + 1, now), history.num_queries + 1
            for query in history.queries:
                outcome, has_failed = history.outcome(query.id), history.failure(query.id)
                age = t - query.round_number if unit == "rounds" else now - query.asked_at
                expected = "lost"
                if outcome is not None:
                    delay = outcome.arrived_round + 1 - query.round_number
                    delay = delay if unit == "rounds" else outcome.arrived_at - query.asked_at
                    expected = "observed" if delay <= longest else "late"
                elif has_failed is None and (age < longest or (unit, age) == ("seconds", longest)):
                    expected = "pending"
                assert (view.rewards[query.id] is not None) == (expected == "observed")
                assert (query.id in view.pending) == (expected == "pending")
                assert (query.id in view.lost) == (expected in ("lost", "late"))
                assert (query.id in view.late) == (expected == "late")


@pytest.mark.parametrize("domain", ["arms", "box"])
def test_the_diagnostics_count_what_is_pending_and_lost(domain: str) -> None:
    loop = make_loop(domain)
    for t in range(1, 9):
        query = loop.ask()
        assert query.diagnostics["pending"] == min(t - 1, 3)
        assert query.diagnostics["lost"] == max(0, t - 4)


# --- an unknown minimum ---------------------------------------------------------------------


def test_a_users_model_gives_the_proxy_of_the_drop_in() -> None:
    def build(X: Tensor, Y: Tensor) -> SingleTaskGP:
        return SingleTaskGP(X, Y, torch.full_like(Y, 0.1), outcome_transform=None).eval()

    loop = BanditLoop(
        Box([[0.0], [1.0]], num_restarts=2, raw_samples=16),
        build,
        GPUpperConfidenceBound.with_options(width=1.0),
        feedback=Censored(minimum_proxy=2.0),
        num_initial=4,
    )
    queries = [loop.ask() for _ in range(4)]
    for query in queries[:2]:
        loop.tell(query.id, reward(query.x))
    X = torch.stack([query.x for query in queries])
    base = build(X[:2], torch.tensor([[reward(x)] for x in X[:2]], dtype=torch.float64))
    dropped = CensoredUpperConfidenceBound(base, minimum_proxy=2.0, width=1.0, X_pending=X[2:])
    assert dropped.pseudo_values is not None
    assert loop.current_model().train_targets[2:].tolist() == pytest.approx(
        dropped.pseudo_values * 2
    )
    query = loop.ask()
    value = float(dropped(query.x.unsqueeze(0)).detach())
    assert query.diagnostics["acquisition_value"] == pytest.approx(value, abs=1e-8)


# --- settings of the published code, and other widths ---------------------------------------


OTHERS = {
    "finite": GPUpperConfidenceBound.with_options(delta=DELTA),
    "compact": GPUpperConfidenceBound.with_options(delta=DELTA, smoothness_a=1.0, smoothness_b=2.0),
    "AMM": AMMUpperConfidenceBound.with_options(**BOUNDS),
    "IRGP": RandomizedUpperConfidenceBound.with_options(),
    "given gain": ImprovedUpperConfidenceBound.with_options(**BOUNDS, information_gain=2.5),
}


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("finite", "arms"),
        ("compact", "box"),
        ("AMM", "arms"),
        ("AMM", "box"),
        ("IRGP", "arms"),
        ("given gain", "arms"),
        ("given gain", "box"),
    ],
)
def test_other_widths_get_the_terms_without_a_promise(name: str, domain: str) -> None:
    loop = make_loop(domain, OTHERS[name])
    plain = make_loop(domain, OTHERS[name], Ignored())
    for _ in range(3):
        loop.ask()
        plain.ask()
    loop.tell(1, 0.4)
    X = torch.stack([loop.history.query(i).x for i in range(3)])
    kernel = squared_exponential(LENGTHSCALE)
    variance = posterior(kernel, X, torch.zeros(3).double(), NOISE, X)[1].diagonal()
    gain = 0.5 * float(torch.logdet(torch.eye(3, dtype=torch.float64) + kernel(X, X) / NOISE))
    total = float(variance[[0, 2]].sqrt().sum())
    raised = R + OUTCOME_BOUND
    if name == "finite":
        expected = gp_ucb_finite_width(len(CHOICES), 4, DELTA) + OUTCOME_BOUND * total
    elif name == "compact":
        base = gp_ucb_compact_width(1, 4, DELTA, 1.0, smoothness_a=1.0, smoothness_b=2.0)
        expected = base + OUTCOME_BOUND * total
    elif name == "AMM":
        base = BoundedNorm(B, raised, DELTA, NOISE).mixture_width(gain)
        expected = base + OUTCOME_BOUND / NOISE * total
    elif name == "given gain":
        expected = BoundedNorm(B, raised, DELTA / 2).width(2.5) + OUTCOME_BOUND * total
    else:  # the draw of the round
        expected = plain.ask().diagnostics["width"] + OUTCOME_BOUND * total
    assert loop.ask().diagnostics["width"] == pytest.approx(float(expected), abs=1e-8)
    guarantee = loop.guarantee()
    assert guarantee.theorem is None
    assert any("no theorem covers this width" in gap for gap in guarantee.gaps)


def test_gaps_of_feedback_are_named() -> None:
    loop = make_loop("arms", feedback=Censored(MINIMUM, 1.0, max_delay=4))
    query = loop.ask()
    assert loop.guarantee().holds
    loop.tell(query.id, -0.5)
    assert any("more than outcome_bound = 1" in gap for gap in loop.guarantee().gaps)


# --- Thompson sampling and pending queries --------------------------------------------------


@pytest.mark.parametrize("domain", ["arms", "box"])
def test_what_a_draw_makes_of_pending_queries_can_be_stated(domain: str) -> None:
    def points(feedback: Any, **options: Any) -> list[tuple[float, float]]:
        recipe = GPThompsonSampling.with_options(width=1.0, **options)
        loop = make_loop(domain, recipe, feedback)
        queries = [loop.ask() for _ in range(6)]
        return [(float(query.x), query.diagnostics["acquisition_value"]) for query in queries]

    assert points(None) == points(Hallucinated(), pending="hallucinate")
    assert points(None, pending="redraw") != points(None)
    if domain == "arms":  # the draws are the loop's, whatever is pending
        assert points(None, pending="redraw") == points(Ignored())


# --- batches --------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", ["arms", "box"])
def test_batches_are_the_loop_with_fixed_delays(domain: str) -> None:
    """All outcomes of ``b`` queries come before the next one: every ``d_s <= b``, so ``m = b``."""
    size, bounds = 3, torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    feedback = Censored(MINIMUM, OUTCOME_BOUND, max_delay=size)
    loop = make_loop(domain, feedback=feedback, num_initial=2)
    for query in [loop.ask(), loop.ask()]:  # without data, by symmetry, two points are best
        loop.tell(query.id, reward(query.x))
    X, Y = loop.history.arrived()
    for _ in range(3):
        model = loop.settings.model.model_class(
            X, Y, kernel=loop.settings.model.kernel, noise=NOISE, prior_mean=MINIMUM
        )
        acqf = CensoredUpperConfidenceBound(
            model, minimum=MINIMUM, outcome_bound=OUTCOME_BOUND, max_delay=size, **BOUNDS
        )
        if domain == "arms":
            batch, _ = optimize_acqf_discrete(acqf, q=size, choices=CHOICES, unique=False)
        else:
            torch.manual_seed(0)
            batch, _ = optimize_acqf(
                acqf, bounds, q=size, sequential=True, num_restarts=8, raw_samples=128
            )
        queries = [loop.ask() for _ in range(size)]
        found = torch.stack([query.x for query in queries])
        assert torch.allclose(found, batch, atol=1e-9 if domain == "arms" else 1e-3)
        acqf.set_X_pending(found[: size - 1])
        assert queries[-1].diagnostics["width"] == pytest.approx(float(acqf.width), abs=1e-8)
        outcomes = torch.tensor([[reward(x)] for x in found], dtype=torch.float64)
        for query in queries:
            loop.tell(query.id, reward(query.x))
        X, Y = torch.cat([X, found]), torch.cat([Y, outcomes])
        view = loop.feedback_view()
        assert (view.lost, view.late, view.pending) == ((), (), ())


def test_loop_and_drop_in_give_the_same_reasons() -> None:
    """One definition says why the theorem does not cover a use, for both."""

    def build(X: Tensor, Y: Tensor) -> BanditGP:
        return BanditGP(X, Y, kernel=RBFKernel(), noise=NOISE, prior_mean=0.0)

    feedback = Censored(MINIMUM, outcome_bound=2.5, on_lower="lower")
    loop = BanditLoop(Arms(CHOICES), build, IGP, feedback=feedback, num_initial=1, seed=0)
    loop.attach(CHOICES[3], 1.0)
    query = loop.ask()
    acqf = CensoredUpperConfidenceBound(
        build(CHOICES[3:4], torch.ones(1, 1).double()),
        minimum=MINIMUM,
        X_pending=query.x[None],
        rkhs_bound=B,
        noise_bound=R,
        outcome_bound=2.5,
    )
    gaps = loop.guarantee().gaps
    assert gaps == acqf.guarantee().gaps[-len(gaps) :]
    assert sorted(gaps) == sorted(acqf.guarantee().gaps)
    assert any("the prior mean differs from the minimum by 2; give" in gap for gap in gaps)
    assert any("outcome is 3 from the minimum, more than outcome_bound = 2.5" in g for g in gaps)
    with pytest.warns(MinimumLoweredWarning, match="lowered"):
        loop.tell(query.id, -3.0)
    (gap,) = [gap for gap in loop.guarantee().gaps if "prior mean differs" in gap]
    assert "by 3; state minimum=-3 and give the model a fixed prior mean of -3" in gap


def test_a_bound_in_prior_units_is_not_compared_with_outcomes() -> None:
    options = {**BOUNDS, "information_gain": 2.0, "units": "prior"}
    loop = make_loop(
        "arms",
        ImprovedUpperConfidenceBound.with_options(**options),
        Censored(MINIMUM, outcome_bound=0.1),
    )
    loop.tell(loop.ask().id, 2.0)
    assert not any("outcome_bound = " in gap for gap in loop.guarantee().gaps)


@given(
    num_queries=st.integers(0, 12),
    max_delay=st.integers(1, 6),
    window=st.sampled_from(["pending", "all"]),
)
def test_the_sum_has_the_same_queries_everywhere(
    num_queries: int, max_delay: int, window: str
) -> None:
    """By number, as the loop and its rules on arms ask, and by position, as a drop-in does."""
    feedback = Censored(0.0, 1.0, max_delay=max_delay, window=window)
    waited_for = list(range(max(0, num_queries - max_delay + 1), num_queries))
    last = list(range(max(0, num_queries - max_delay), num_queries))
    expected = last if window == "all" else waited_for
    assert feedback.summed(range(num_queries), num_queries) == expected
    assert feedback.summed(waited_for, num_queries) == expected
    assert Censored(0.0, max_delay=max_delay, window=window).summed(waited_for, num_queries) == []
    by_clock = Censored(0.0, 1.0, max_delay=max_delay, unit="seconds")
    assert by_clock.summed(range(num_queries), num_queries) == list(range(num_queries))

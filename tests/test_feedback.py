"""Delayed feedback in the loop, against the definitions of Verma, Dai and Low 2022."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    CensoredUpperConfidenceBound,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Ignored,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    Query,
)
from botorch_bandits.acquisition import BelowMinimumWarning, MinimumLoweredWarning
from botorch_bandits.loop import LateOutcomeWarning
from tests.models.textbook import double, posterior, squared_exponential
from tests.records import rebuilt

CHOICES = torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1)
LENGTHSCALE, NOISE, MINIMUM, OUTCOME_BOUND = 0.2, 1.5, -2.0, 4.0
BOUNDS = {"rkhs_bound": 3.0, "noise_bound": 0.1, "delta": 0.1}
IGP = ImprovedUpperConfidenceBound.with_options(**BOUNDS)
CENSORED = Censored(MINIMUM, OUTCOME_BOUND, max_delay=4)
FILLED: dict[str, Any] = {"minimum": -1.0, "outcome_bound": 2.0, "fill": "soft"}

pytestmark = pytest.mark.filterwarnings("ignore::botorch_bandits.loop.view.LateOutcomeWarning")


def make_loop(
    domain: str = "arms", acquisition: Any = IGP, feedback: Any = CENSORED, **options: Any
) -> BanditLoop:
    return BanditLoop(
        Arms(CHOICES) if domain == "arms" else Box([[0.0], [1.0]], num_restarts=8, raw_samples=128),
        BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE),
        acquisition,
        feedback=feedback,
        seed=1,
        **options,
    )


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


@settings(max_examples=100, deadline=None)
@given(
    actions=ACTIONS,
    max_delay=st.one_of(st.none(), st.integers(1, 5)),
    unit=st.sampled_from(["rounds", "seconds"]),
)
def test_a_query_is_observed_pending_or_lost_as_defined(
    actions: list[tuple[str, float]], max_delay: int | None, unit: str
) -> None:
    feedback = Censored(0.0, 1.0, max_delay=max_delay, unit=unit)
    loop, now = make_loop(feedback=feedback), 0.0
    history = loop.history
    longest = math.inf if max_delay is None else max_delay
    for action, number in [*actions, ("look", 0.0)]:
        waiting = history.pending()
        if action == "ask":
            loop.attach(CHOICES[0], at=now)
        elif action in ("tell", "fail") and waiting:
            query_id = waiting[int(number) % len(waiting)].id
            if action == "tell":
                loop.tell(query_id, 0.5, at=now)
            else:
                loop.fail(query_id, at=now)
        elif action == "clock":
            now += number
        elif action == "look":
            view, t = loop.feedback_view(), history.num_queries + 1
            for query in history.queries:
                outcome, has_failed = history.outcome(query.id), history.failure(query.id)
                age = t - query.round_number
                age = age if unit == "rounds" else history.latest_at - query.asked_at
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


def mean_at(query: Query, X: Tensor, labels: Sequence[float]) -> float:
    """Textbook posterior with prior mean MINIMUM."""
    rest = double(labels) - MINIMUM
    at = X, rest, NOISE, query.x.unsqueeze(0)
    return MINIMUM + float(posterior(squared_exponential(LENGTHSCALE), *at)[0])


def test_delays_in_seconds() -> None:
    loop = make_loop(feedback=Censored(MINIMUM, OUTCOME_BOUND, max_delay=10.0, unit="seconds"))
    for now in (0.0, 4.0, 8.0):
        loop.ask(at=now)
    view = loop.feedback_view()  # as of the latest event
    assert (view.pending, view.lost) == ((0, 1, 2), ())
    loop.tell(1, 0.7, at=14.0)  # exactly 10 after 4: in time
    view = loop.feedback_view()
    assert (view.pending, view.lost) == ((2,), (0,))
    with pytest.warns(LateOutcomeWarning):
        loop.tell(0, 0.9, at=14.0)
    view = loop.feedback_view()
    assert view.rewards == (None, 0.7, None)
    assert (view.pending, view.lost, view.late) == ((2,), (0,), (0,))


def test_outcome_below_the_minimum() -> None:
    loop = make_loop()
    query = loop.ask()
    with pytest.raises(ValueError, match=r"below minimum=-2\.0"):
        loop.tell(query.id, -2.5)
    assert loop.history.num_arrived == 0
    for domain in ("arms", "box"):
        lowering = make_loop(
            domain, feedback=Censored(MINIMUM, OUTCOME_BOUND, max_delay=4, on_lower="lower")
        )
        for _ in range(3):
            lowering.ask()
        with pytest.warns(MinimumLoweredWarning, match="lowered"):
            lowering.tell(1, -3.0)
        query = lowering.ask()
        X = torch.stack([lowering.history.query(i).x for i in range(3)])
        mean = mean_at(query, X, [-3.0, -3.0, -3.0])
        assert query.diagnostics["mean"] == pytest.approx(mean, abs=1e-8)


def told_below(tell: Callable[[], Any]) -> list[str]:
    """What warnings about the minimum are told."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tell()
    kinds = (BelowMinimumWarning, MinimumLoweredWarning)
    return [str(each.message) for each in caught if issubclass(each.category, kinds)]


@pytest.mark.parametrize("domain", ["arms", "box"])
def test_an_outcome_that_noise_takes_below_the_minimum_is_told_once(domain: str) -> None:
    loop = make_loop(domain)  # noise_bound is 0.1, so that 0.4 is noise
    for _ in range(4):
        loop.ask()
    (text,) = told_below(lambda: loop.tell(1, -2.3))
    assert "-2.3 lies below minimum=-2.0, by no more than noise explains" in text
    assert told_below(lambda: loop.tell(2, -2.35)) == []
    with pytest.raises(ValueError, match=r"below minimum=-2\.0 by more"):
        loop.tell(3, -2.5)
    assert [outcome.reward for outcome in loop.history.outcomes] == [-2.3, -2.35]
    # outcomes are as they were told; what is missing stays at the minimum, which was not lowered
    query = loop.ask()
    X = torch.stack([loop.history.query(i).x for i in range(4)])
    mean = mean_at(query, X, [MINIMUM, -2.3, -2.35, MINIMUM])
    assert query.diagnostics["mean"] == pytest.approx(mean, abs=1e-8)
    guarantee = loop.guarantee()
    assert any(
        "2 outcomes lie below the minimum, by at most 0.35: outcome_bound bounds how far" in each
        for each in guarantee.assumptions
    )
    assert not any("minimum" in gap for gap in guarantee.reasons)
    # a loop that is built again has told it already
    again = rebuilt(make_loop(domain), loop.history)
    assert told_below(lambda: again.tell(3, -2.01)) == []


@pytest.mark.parametrize(
    ("feedback", "options", "told", "tolerated"),
    [
        (Censored(0.0, 2.0, tolerance=0.7), BOUNDS, [], 0.7),
        (Censored(0.0, 2.0), BOUNDS, [], 0.4),
        (Censored(0.0, 2.0), {"width": 1.0}, [], 0.1),
        (Censored(0.0), {"width": 1.0}, [3.0, *[1.0] * 9], 0.75),
        (Censored(0.0, 9.0), {**BOUNDS, "units": "prior"}, [3.0, *[1.0] * 9], 0.75),
    ],
    ids=["stated", "noise", "range", "spread", "prior units"],
)
def test_how_far_noise_reaches(
    feedback: Censored, options: dict[str, Any], told: list[float], tolerated: float
) -> None:
    recipe = ImprovedUpperConfidenceBound.with_options(**options)
    loop = make_loop(acquisition=recipe, feedback=feedback)
    for reward in told:
        loop.tell(loop.ask().id, reward)
    query = loop.ask()
    with pytest.raises(ValueError, match="pass tolerance="):
        loop.tell(query.id, -tolerated - 1e-6)
    with pytest.warns(BelowMinimumWarning):
        loop.tell(query.id, -tolerated + 1e-6)


def test_where_nothing_is_stated_the_first_outcomes_say_how_far_noise_reaches() -> None:
    """Neither the first outcome nor one beside a small one shows that the minimum is wrong."""
    recipe = GPUpperConfidenceBound.with_options(width=2.0)
    loop = make_loop(acquisition=recipe, feedback=Censored(0.0))
    (text,) = told_below(lambda: loop.tell(loop.ask().id, -0.02))
    assert "-0.02 lies below minimum=0.0, by no more than noise explains" in text
    rest = [0.01, -0.05, -0.04, 0.3, -0.1, 2.0, 0.7, -0.08, 0.2, -0.4]
    for reward in rest:
        assert told_below(lambda reward=reward: loop.tell(loop.ask().id, reward)) == []
    with pytest.raises(ValueError, match=r"below minimum=0\.0 by more"):
        loop.tell(loop.ask().id, -0.6)
    wrong = make_loop(acquisition=recipe, feedback=Censored(0.0))
    for reward in (-7.0, -9.0, -8.0):
        told_below(lambda reward=reward: wrong.tell(wrong.ask().id, reward))
    with pytest.raises(ValueError, match="more than the 0"):
        wrong.tell(wrong.ask().id, -7.0)


def test_a_minimum_that_is_lowered_is_told_where_it_falls_further() -> None:
    lowering = make_loop(feedback=Censored(MINIMUM, OUTCOME_BOUND, on_lower="lower"))
    rewards, counts = [-2.1, -2.05, -2.2, -2.2, -1.0], [1, 0, 1, 0, 0]
    for reward, count in zip(rewards, counts, strict=True):
        query = lowering.ask()
        assert len(told_below(partial(lowering.tell, query.id, reward))) == count
    assert lowering.settings.feedback.current_minimum(lowering.history) == -2.2


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: Censored(float("nan"), 1.0), ValueError, "minimum"),
        (lambda: Censored(0.0, -1.0), ValueError, "outcome_bound is -1"),
        (lambda: Censored(0.0, 1.0, max_delay=0), ValueError, "max_delay is 0"),
        (lambda: Censored(0.0, 1.0, max_delay=1.5), TypeError, "max_delay"),
        (lambda: Censored(0.0, 1.0, max_delay=-1.0, unit="seconds"), ValueError, "max_delay"),
        (lambda: Censored(0.0, 1.0, unit="days"), ValueError, "unit is 'days'"),
        (lambda: Censored(0.0, 1.0, window="all"), ValueError, "max_delay="),
        (lambda: Censored(0.0, 1.0, on_lower="ignore"), ValueError, "on_lower"),
        (lambda: make_loop(feedback="censored"), TypeError, "feedback is 'censored'"),
        (
            lambda: make_loop(acquisition=DMMUpperConfidenceBound.with_options(**BOUNDS)),
            ValueError,
            "no width for the acquisition DMMUpperConfidenceBound",
        ),
        (
            lambda: make_loop(acquisition=LogExpectedImprovement.with_options()),
            ValueError,
            "no width for the acquisition LogExpectedImprovement",
        ),
        (
            lambda: make_loop(
                acquisition=CensoredUpperConfidenceBound.with_options(minimum=0.0, width=1.0)
            ),
            ValueError,
            "would censor them twice",
        ),
        (
            lambda: make_loop(
                acquisition=GPUpperConfidenceBound.with_options(width=1.0, maximize=False)
            ),
            ValueError,
            "maximize=False",
        ),
        (
            lambda: make_loop(feedback=Censored(MINIMUM)),
            ValueError,
            "KernelizedWidth needs outcome_bound=",
        ),
        (
            lambda: make_loop(
                acquisition=GPThompsonSampling.with_options(width=1.0),
                feedback=Censored(MINIMUM, predictive=True),
            ),
            ValueError,
            "predictive=True is for upper confidence bounds",
        ),
        (
            lambda: make_loop(
                acquisition=GPThompsonSampling.with_options(width=1.0, pending="hallucinate"),
                feedback=Ignored(),
            ),
            ValueError,
            "feedback=Ignored it never sees pending points",
        ),
        *(
            (
                lambda pairs=pairs: Censored(0.0, 1.0, constraint_bounds=pairs),
                ValueError,
                "bounds is",
            )
            for pairs in ((), ((1.0, 0.0),), (1.0, 2.0), ((0.0, 1.0, 2.0),))
        ),
        *(
            (lambda given=given: Censored(**{**FILLED, **given}), ValueError, message)
            for given, message in (
                ({"minimum": None, "minimum_proxy": 1.0}, "needs minimum="),
                ({"on_lower": "lower"}, "minimum that holds"),
                ({"outcome_bound": None}, "needs outcome_bound="),
                ({"fill": "middle", "delay_distribution": (1.0,)}, "does not use it"),
            )
        ),
        (lambda: Censored(outcome_bound=1.0), ValueError, "pass either minimum="),
        (lambda: Censored(0.0, 1.0, minimum_proxy=2.0), ValueError, "pass either minimum="),
        (lambda: Censored(minimum_proxy=-1.0), ValueError, "minimum_proxy is -1"),
        (lambda: Censored(minimum_proxy=2.0, on_lower="lower"), ValueError, "lowers a known"),
        (lambda: Censored(0.0, predictive=2), ValueError, "predictive is 2"),
        (lambda: make_loop(feedback=Ignored()).feedback_view(), RuntimeError, "no censored"),
    ],
)
def test_bad_settings_are_refused(act: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        act()

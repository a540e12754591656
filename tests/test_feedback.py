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
    FittedSingleTaskGP,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Ignored,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    Query,
    RandomSearch,
)
from botorch_bandits.acquisition import BelowMinimumWarning, MinimumLoweredWarning
from botorch_bandits.core.posterior import Posterior
from botorch_bandits.feedback import LateOutcomeWarning
from tests.models.textbook import double, posterior, squared_exponential
from tests.records import rebuilt

CHOICES = torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1)
LENGTHSCALE, NOISE, MINIMUM, OUTCOME_BOUND = 0.2, 1.5, -2.0, 4.0
BOUNDS = {"rkhs_bound": 3.0, "noise_bound": 0.1, "delta": 0.1}
IGP = ImprovedUpperConfidenceBound.with_options(**BOUNDS)
CENSORED = Censored(MINIMUM, OUTCOME_BOUND, max_delay=4)

pytestmark = pytest.mark.filterwarnings("ignore::botorch_bandits.feedback.LateOutcomeWarning")


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


def reward(x: Tensor) -> float:
    return math.sin(7.0 * float(x))


class Reference:
    """The paper's definitions, from a list of events, query by query."""

    def __init__(self, max_delay: float) -> None:
        self.max_delay = max_delay
        self.asked: list[int] = []  # round of each query
        self.delays: dict[int, float] = {}
        self.failed: set[int] = set()

    def ask(self) -> None:
        self.asked.append(len(self.asked) + 1)

    def tell(self, query: int) -> None:
        # usable for the first time when the next query is chosen
        self.delays[query] = len(self.asked) + 1 - self.asked[query]

    def state(self, query: int) -> str:
        """When the next query is chosen."""
        if query in self.failed:
            return "lost"
        t, s = len(self.asked) + 1, self.asked[query]
        delay = self.delays.get(query, math.inf)
        if delay <= min(self.max_delay, t - s):
            return "usable"
        if query in self.delays:
            return "late"
        return "pending" if t - s < self.max_delay else "lost"


# actions: None asks, a number tells one of the queries without an outcome, or lets it fail below 0
ACTIONS = st.lists(st.one_of(st.none(), st.integers(-5, 20)), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(actions=ACTIONS, max_delay=st.integers(1, 6))
def test_bookkeeping_is_the_papers(actions: list[int | None], max_delay: int) -> None:
    feedback = Censored(-1.0, 2.0, max_delay=max_delay)
    loop = BanditLoop(Arms(CHOICES), None, RandomSearch(), feedback=feedback)
    reference = Reference(max_delay)
    for action in actions:
        waiting = [query.id for query in loop.history.pending()]
        if action is None or not waiting:
            loop.ask()
            reference.ask()
        else:
            query_id = waiting[action % len(waiting)]
            if action < 0:
                loop.fail(query_id)
                reference.failed.add(query_id)
                continue
            late = max_delay < len(reference.asked) + 1 - reference.asked[query_id]
            if late:
                with pytest.warns(LateOutcomeWarning, match="kept out of"):
                    loop.tell(query_id, 0.25 * query_id)
            else:
                loop.tell(query_id, 0.25 * query_id)
            reference.tell(query_id)
        view = loop.feedback_view()
        states = [reference.state(i) for i in range(len(reference.asked))]
        assert [i for i, s in enumerate(states) if s == "pending"] == list(view.pending)
        assert [i for i, s in enumerate(states) if s == "late"] == list(view.late)
        assert [i for i, s in enumerate(states) if s in ("lost", "late")] == list(view.lost)
        labels = [0.25 * i if s == "usable" else None for i, s in enumerate(states)]
        assert labels == list(view.rewards)


def mean_at(query: Query, X: Tensor, labels: Sequence[float]) -> float:
    """Textbook posterior with prior mean MINIMUM."""
    rest = double(labels) - MINIMUM
    at = X, rest, NOISE, query.x.unsqueeze(0)
    return MINIMUM + float(posterior(squared_exponential(LENGTHSCALE), *at)[0])


def test_arrivals_do_not_factorize_again() -> None:
    arms = make_loop("arms")
    for _ in range(3):
        arms.ask()
    assert arms._chooser._arms is not None
    posterior = arms._chooser._arms.player.posterior
    assert isinstance(posterior, Posterior)
    assert posterior.num_kept == 2
    arms.tell(1, 0.5)
    arms.ask()  # one row for the third query, and two by which an outcome replaces a pseudo-value
    assert arms._chooser._arms.player.posterior is posterior
    assert posterior.num_kept == 5


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


def test_a_users_model_is_conditioned() -> None:
    seen = []

    class Factory(FittedSingleTaskGP):
        def __call__(self, X: Tensor, Y: Tensor) -> Any:
            seen.append((len(X), float(Y.min())))
            return super().__call__(X, Y)

    loop = BanditLoop(
        Box([[0.0], [1.0]], num_restarts=2, raw_samples=16),
        Factory([[0.0], [1.0]]),
        GPUpperConfidenceBound.with_options(width=1.0),
        feedback=CENSORED,
        num_initial=3,
    )
    for _ in range(3):
        query = loop.ask()
        loop.tell(query.id, reward(query.x))
    loop.ask()
    loop.ask()
    model = loop.current_model()
    assert seen[-1][0] == 3  # pseudo-values are never fitted to
    assert model.train_targets.shape[-1] == 5
    assert min(low for _, low in seen) > MINIMUM


def test_guarantee_names_the_theorem() -> None:
    loop = make_loop()
    guarantee = loop.guarantee()
    assert guarantee.theorem is not None
    assert "Theorem 1" in guarantee.theorem
    assert guarantee.holds
    loop.ask()
    guarantee = loop.guarantee()
    assert guarantee.holds  # pending queries are part of the theorem
    assert guarantee.regret is not None
    assert guarantee.regret.num_rounds == 1
    assert guarantee.regret_bound is None  # it is one on rho_m times the regret


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
            r"needs outcome_bound=.*KernelizedWidth",
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

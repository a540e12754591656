"""Censored feedback in loops that forget: pseudo-values leave, fade and drift as outcomes do."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    ExponentialWeights,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.acquisition import MinimumLoweredWarning

LENGTH, NOISE, MINIMUM, OUTCOME_BOUND = 0.2, 1.5, -2.0, 4.0
B, R, DELTA, ETA, RATE, WINDOW = 3.0, 0.1, 0.1, 0.8, 0.1, 6
CHOICES = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
DOMAINS: dict[str, Any] = {
    "arms": Arms(CHOICES),
    "box": Box([[0.0], [1.0]], num_restarts=8, raw_samples=512),
    "small box": Box([[0.0], [1.0]], num_restarts=2, raw_samples=16),
}
FORGETTING: dict[str, Any] = {
    "window": SlidingWindow(WINDOW),
    "weights": ExponentialWeights(ETA),
    "time": TimeVaryingKernel(RATE),
}
IGP_UCB = ImprovedUpperConfidenceBound.with_options(rkhs_bound=B, noise_bound=R, delta=DELTA)
KNOWN = Censored(MINIMUM, OUTCOME_BOUND, max_delay=4)

pytestmark = pytest.mark.filterwarnings("ignore::botorch_bandits.feedback.LateOutcomeWarning")


def build(domain: str, forgetting: str, **options: Any) -> BanditLoop:
    given = {"acquisition": IGP_UCB, "feedback": KNOWN, "seed": 1, **options}
    given.setdefault("model", BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTH))
    return BanditLoop(DOMAINS[domain], forgetting=FORGETTING[forgetting], **given)


def delay_of(query_id: int) -> int:
    """Rounds until an outcome can be used; some come too late."""
    return 1 + (5 * query_id) % 7


def play(loop: BanditLoop, rounds: int, seen: Any = None) -> None:
    history = loop.history
    for _ in range(rounds):
        for query in history.pending():
            if history.num_queries + 1 - query.round_number >= delay_of(query.id):
                x = float(query.x[0])
                told = {} if loop.settings.constraints is None else {"constraints": [x - 0.5]}
                loop.tell(query.id, math.sin(7.0 * x), **told)
        view = loop.feedback_view()
        query = loop.ask(context=[0.5] if loop.settings.context_dim else None)
        if seen is not None:
            seen(query, view)


def fitted(X: Tensor, Y: Tensor) -> SingleTaskGP:
    """A user's own model, which must not be fitted to pseudo-values."""
    assert bool((Y > MINIMUM).all())
    assert len(Y) <= WINDOW
    return SingleTaskGP(X, Y, outcome_transform=None)


def test_a_window_on_a_users_model() -> None:
    """Uniform rounds as long as no outcome is in the window."""
    acquisition = GPUpperConfidenceBound.with_options(width=2.0)
    loop = build("box", "window", model=fitted, acquisition=acquisition, seed=2)
    for _ in range(10):
        play(loop, 1)
    origins = [query.origin for query in loop.history.queries]
    assert origins[0] == "initial"
    assert "acquisition" in origins
    for _ in range(WINDOW + 2):  # nothing is told any more
        query = loop.ask()
    assert query.origin == "initial"
    loop.tell(query.id, 0.5)
    assert loop.ask().origin == "acquisition"
    # its one outcome, and pseudo-values at what is pending or lost inside the window
    model = loop.current_model()
    assert model.train_targets.tolist().count(0.5) == 1
    assert model.train_targets.tolist().count(MINIMUM) == len(model.train_targets) - 1


def test_a_lowered_minimum_stays_when_its_outcome_has_left_the_window() -> None:
    feedback = Censored(MINIMUM, on_lower="lower")
    loop = build(
        "arms",
        "window",
        feedback=feedback,
        acquisition=GPUpperConfidenceBound.with_options(width=2.0),
    )
    first = loop.ask().id
    with pytest.warns(MinimumLoweredWarning):
        loop.tell(first, MINIMUM - 1.0)
    for _ in range(WINDOW):
        loop.ask()
    assert loop.current_model().train_targets.tolist() == [MINIMUM - 1.0] * WINDOW

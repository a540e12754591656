"""Censored feedback in loops that forget: pseudo-values leave, fade and drift as outcomes do."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel
from records import assert_same
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    ExponentialWeights,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    OracleRestart,
    SlidingWindow,
    TimeVaryingKernel,
)

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
UNKNOWN = Censored(minimum_proxy=1.5, outcome_bound=OUTCOME_BOUND, max_delay=4)

pytestmark = pytest.mark.filterwarnings("ignore::botorch_bandits.feedback.LateOutcomeWarning")


def build(domain: str, forgetting: str, **options: Any) -> BanditLoop:
    given = {"acquisition": IGP_UCB, "feedback": KNOWN, "seed": 1, **options}
    given.setdefault("model", BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTH))
    return BanditLoop(
        DOMAINS[domain], forgetting=FORGETTING[forgetting], clock=lambda: 0.0, **given
    )


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


class Dense:
    """The textbook's posterior of round ``t`` from rows that were asked in rounds ``s``."""

    def __init__(
        self, kind: str, t: int, x: np.ndarray, s: np.ndarray, y: np.ndarray, prior_mean: float
    ) -> None:
        kept = s >= t - WINDOW if kind == "window" else np.ones(len(s), dtype=bool)
        self.kind, self.x, self.s, self.prior_mean = kind, x[kept], s[kept], prior_mean
        noise = np.full(len(self.s), NOISE)
        if kind == "weights":
            noise = NOISE / ETA ** (t - 1.0 - self.s)
        gram = self._kernel(self.x, self.s, self.x, self.s)
        self.inverse = np.linalg.inv(gram + np.diag(noise))
        self.residuals = y[kept] - prior_mean
        scaled = gram / np.sqrt(noise[:, None] * noise[None])
        self.gain = 0.5 * np.linalg.slogdet(np.eye(len(noise)) + scaled)[1]

    def _kernel(self, a: np.ndarray, s: np.ndarray, b: np.ndarray, r: np.ndarray) -> np.ndarray:
        values = np.exp(-((a[:, None] - b[None]) ** 2) / (2 * LENGTH**2))
        if self.kind == "time":
            values = values * (1 - RATE) ** (np.abs(s[:, None] - r[None]) / 2)
        return values

    def at(self, x: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation."""
        cross = self._kernel(x, s, self.x, self.s)
        mean = self.prior_mean + cross @ self.inverse @ self.residuals
        variance = 1.0 - np.einsum("ij,jk,ik->i", cross, self.inverse, cross)
        return mean, np.sqrt(variance.clip(0.0))


@pytest.mark.parametrize("minimum", ["known", "unknown"])
@pytest.mark.parametrize("forgetting", FORGETTING)
@pytest.mark.parametrize("domain", ["arms", "box"])
def test_the_dense_rule_is_played(domain: str, forgetting: str, minimum: str) -> None:
    loop = build(domain, forgetting, feedback=KNOWN if minimum == "known" else UNKNOWN)
    lost = []

    def check(query: Any, view: Any) -> None:
        t = query.round_number
        if t == 1:
            return
        rows = [loop.history.query(i) for i in range(t - 1)]
        x = np.array([float(q.x[0]) for q in rows])
        s = np.array([float(q.round_number) for q in rows])
        told = np.array([value is not None for value in view.rewards])
        y = np.array([np.nan if value is None else value for value in view.rewards])
        inside = s >= t - WINDOW if forgetting == "window" else told | True
        prior_mean, pseudo_value = MINIMUM, MINIMUM
        if minimum == "unknown":
            prior_mean = 0.0
            of_told = Dense(forgetting, t, x[told], s[told], y[told], 0.0)
            places = told & inside if (told & inside).any() else inside
            mean, deviation = of_told.at(x[places], s[places])
            pseudo_value = (mean - 1.5 * deviation).min()
        y[~told] = pseudo_value
        model = Dense(forgetting, t, x, s, y, prior_mean)
        waiting = [i for i in view.pending if inside[i]]
        total = model.at(x[waiting], s[waiting])[1].sum()
        width = OUTCOME_BOUND * total + B
        width += (R + OUTCOME_BOUND) * math.sqrt(2 * (model.gain + 1 + math.log(2 / DELTA)))
        grid = np.linspace(0.0, 1.0, 9 if domain == "arms" else 501)
        points = np.append(grid, float(query.x[0]))
        mean, deviation = model.at(points, np.full(len(points), float(t)))
        values = mean + width * deviation
        assert query.diagnostics["width"] == pytest.approx(width, abs=1e-8)
        assert query.diagnostics["mean"] == pytest.approx(mean[-1], abs=1e-8)
        assert query.diagnostics["standard_deviation"] == pytest.approx(deviation[-1], abs=1e-8)
        assert values[-1] >= values.max() - (1e-6 if domain == "arms" else 1e-5)
        lost.append(len(view.lost))

    play(loop, 16, check)
    assert lost[-1] > 1
    guarantee = loop.guarantee()
    assert not guarantee.holds
    assert any("model that forgets" in gap for gap in guarantee.reasons)


def fitted(X: Tensor, Y: Tensor) -> SingleTaskGP:
    """A user's own model, which must not be fitted to pseudo-values."""
    assert bool((Y > MINIMUM).all())
    assert len(Y) <= WINDOW
    return SingleTaskGP(X, Y, outcome_transform=None)


OTHERS: dict[str, dict[str, Any]] = {
    "draws": {"acquisition": GPThompsonSampling.with_options(rkhs_bound=B, noise_bound=R)},
    "contexts": {"context_dim": 1},
    "restarts": {"restart": OracleRestart((5,))},
    "unknown minimum": {"feedback": UNKNOWN},
    "relabeled": {
        "constraints": AdditiveEpochs(1, 4),
        "feedback": Censored(MINIMUM, OUTCOME_BOUND, max_delay=4, constraint_bounds=((-0.5, 0.5),)),
    },
    "fresh, with restarts": {
        "constraints": AdditiveEpochs(1, 4, surrogate="fresh"),
        "feedback": Censored(MINIMUM, OUTCOME_BOUND, max_delay=4, constraint_bounds=((-0.5, 0.5),)),
        "restart": OracleRestart((5,)),
    },
}


def in_turns() -> list[Any]:
    """Every pair of settings, domain and forgetting; what repeats pairs is marked as slow."""
    runs = []
    for (i, name), (j, domain), (k, forgetting) in product(
        enumerate(OTHERS), enumerate(("arms", "small box")), enumerate(FORGETTING)
    ):
        marks: Any = [] if (i + j + k) % 2 == 0 else pytest.mark.slow
        label = f"{name}-{domain}-{forgetting}"
        runs.append(pytest.param(name, domain, forgetting, id=label, marks=marks))
    return runs


@pytest.mark.slow
@pytest.mark.parametrize(("name", "domain", "forgetting"), in_turns())
def test_reopened_loops_go_on(name: str, domain: str, forgetting: str, tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    whole = build(domain, forgetting, **OTHERS[name])
    play(whole, 13)
    with build(domain, forgetting, journal=path, **OTHERS[name]) as first:
        play(first, 8)
    with build(domain, forgetting, journal=path, **OTHERS[name]) as second:
        play(second, 5)
        for ours, theirs in zip(second.history.queries, whole.history.queries, strict=True):
            assert torch.equal(ours.x, theirs.x)
            assert_same(ours.diagnostics, theirs.diagnostics)


def test_pseudo_values_follow_the_multipliers() -> None:
    """The prior mean too: it is the smallest penalized outcome."""
    loop = build("arms", "window", **{**OTHERS["relabeled"], "acquisition": IGP_UCB})
    means = set()
    for _ in range(13):
        play(loop, 1)
        (kappa,) = loop.multipliers
        far = loop.current_model().mean_module(torch.zeros(1, 1, dtype=torch.float64))
        assert float(far) == pytest.approx(MINIMUM - kappa * 0.5, abs=1e-10)
        means.add(round(float(far), 8))
    assert len(means) > 1


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

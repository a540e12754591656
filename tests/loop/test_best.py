"""What `best()` says where the reward is not the same in all rounds: what is best now."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    ExponentialWeights,
    GPUpperConfidenceBound,
    OracleRestart,
    RandomSearch,
    SlidingWindow,
    TimeVaryingKernel,
)

NOISE, LENGTHSCALE = 0.05, 0.3
GRID = np.linspace(0.0, 1.0, 9)
ARMS = Arms(torch.from_numpy(GRID).unsqueeze(-1))
MODEL = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE)
UCB = GPUpperConfidenceBound.with_options(delta=0.1)


def make(**options: Any) -> BanditLoop:
    return BanditLoop(ARMS, MODEL, UCB, **options)


def told(loop: BanditLoop, x: float, reward: float, context: float | None = None) -> int:
    """Tell a reward at a point, of an arm; return the query's id."""
    given = None if context is None else [context]
    return loop.attach([x], reward, context=given).query_id


def rbf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1) / LENGTHSCALE**2)


def dense_means(
    X: np.ndarray, y: np.ndarray, at: np.ndarray, noise: np.ndarray | float = NOISE
) -> np.ndarray:
    return rbf(at, X) @ np.linalg.solve(rbf(X, X) + np.eye(len(X)) * noise, y)


def ids(best: Any) -> int | None:
    return None if best is None else best[0].id


class TestRestarts:
    def test_after_a_reset_only_what_came_since_counts(self) -> None:
        loop = make(restart=OracleRestart(change_points=(3,), exploration=None))
        for reward in (5.0, 9.0, 7.0):
            loop.tell(loop.ask().id, reward)
        assert loop.best()[1].reward == 9.0  # type: ignore[index]
        first = loop.ask()
        assert loop.resets[-1].after_round == 3
        assert loop.best() is None  # nothing is known of what is best now
        loop.tell(first.id, 1.0)
        loop.tell(loop.ask().id, 2.0)
        loop.tell(loop.ask().id, 2.0)
        assert loop.best()[0].id == 4  # type: ignore[index]
        assert loop.history.best()[1].reward == 9.0  # type: ignore[index]

    def test_an_outcome_of_before_that_comes_later_does_not_count(self) -> None:
        loop = make(restart=OracleRestart(change_points=(2,), exploration=None))
        late = loop.ask()
        loop.tell(loop.ask().id, 3.0)
        loop.tell(loop.ask().id, 1.0)
        loop.tell(late.id, 8.0)
        assert ids(loop.best()) == 2

    def test_with_constraints_it_is_the_best_since_then_that_meets_them(self) -> None:
        rule = AdditiveEpochs(1, 2)
        restart = OracleRestart(change_points=(2,), exploration=None)
        loop = make(constraints=rule, restart=restart)
        for reward, g in ((9.0, -1.0), (8.0, -1.0), (5.0, 0.5), (2.0, 0.0), (1.0, -1.0)):
            loop.tell(loop.ask().id, reward, [g])
        assert ids(loop.best()) == 3


class TestForgetting:
    def test_only_what_is_in_the_window_counts(self) -> None:
        loop = make(forgetting=SlidingWindow(3))
        for reward in (9.0, 1.0, 3.0, 2.0):
            loop.tell(loop.ask().id, reward)
        assert ids(loop.best()) == 2
        loop.ask()  # the window moves on, with a query whose outcome is not known
        assert ids(loop.best()) == 2
        loop.ask()
        assert ids(loop.best()) == 3
        loop.ask()
        assert loop.best() is None

    @pytest.mark.parametrize("kind", ["weights", "kernel"])
    def test_where_outcomes_fade_the_posterior_mean_now_decides(self, kind: str) -> None:
        """Against the dense posterior of the points that were played."""
        discount, rate = 0.7, 0.3
        loop = make(
            forgetting=ExponentialWeights(discount)
            if kind == "weights"
            else TimeVaryingKernel(rate)
        )
        plays = [(0.0, 2.0), (0.125, 1.0), (0.75, 1.2), (1.0, 1.0), (0.875, 1.1), (0.0, 0.3)]
        decided = []
        for n, (x, reward) in enumerate(plays, start=1):
            told(loop, x, reward)
            X, y = np.array([[p[0]] for p in plays[:n]]), np.array([p[1] for p in plays[:n]])
            rounds = np.arange(1, n + 1)
            if kind == "weights":
                means = dense_means(X, y, X, NOISE / discount ** (n - rounds))
            else:
                drift = (1 - rate) ** (np.abs(rounds[:, None] - rounds[None, :]) / 2)
                gram = rbf(X, X) * drift + NOISE * np.eye(n)
                fade = (1 - rate) ** ((n + 1 - rounds) / 2)
                means = (rbf(X, X) * fade) @ np.linalg.solve(gram, y)
            best, outcome = loop.best()  # type: ignore[misc]
            assert float(best.x) == X[means.argmax(), 0]
            assert best.id == max(
                i for i in range(n) if X[i, 0] == float(best.x)
            )  # the latest there
            assert outcome.query_id == best.id
            decided.append(best.id)
        assert decided[0] == 0
        assert loop.history.best()[0].id == 0  # type: ignore[index]
        assert decided[-1] in (2, 3, 4)


class TestContexts:
    PLAYS = ((0.0, 0.0, 1.0), (0.0, 1.0, 0.1), (1.0, 0.0, 0.2), (1.0, 0.875, 1.5), (1.0, 0.0, 0.3))
    """Context, point and reward."""

    def loop(self, **options: Any) -> BanditLoop:
        loop = make(context_dim=1, **options)
        for context, x, reward in self.PLAYS:
            told(loop, x, reward, context)
        return loop

    def test_the_context_is_asked_for(self) -> None:
        loop = self.loop()
        with pytest.raises(ValueError, match=r"context is missing: .*best\(context=.*history.best"):
            loop.best()
        with pytest.raises(ValueError, match="vector of length 1"):
            loop.best([0.0, 1.0])
        with pytest.raises(ValueError, match="context is"):
            make().best([0.0])
        assert loop.history.best()[1].reward == 1.5  # type: ignore[index]

    @pytest.mark.parametrize("context", [0.0, 0.4, 1.0])
    def test_it_is_the_point_with_the_largest_mean_there(self, context: float) -> None:
        loop = self.loop()
        X = np.array([[c, x] for c, x, _ in self.PLAYS])
        y = np.array([reward for _, _, reward in self.PLAYS])
        points = np.array([0.0, 1.0, 0.875])
        at = np.stack([np.full(3, context), points], axis=-1)
        expected = points[dense_means(X, y, at).argmax()]
        best, outcome = loop.best([context])  # type: ignore[misc]
        assert float(best.x) == expected
        assert outcome.query_id == best.id

    def test_of_outcomes_at_the_point_it_is_one_of_the_context_or_else_the_latest(self) -> None:
        loop = self.loop()
        assert ids(loop.best(torch.zeros(1, dtype=torch.float64))) == 0
        assert ids(loop.best([0.05])) == 4  # at the same point, not in this context
        assert ids(loop.best([1.0])) == 3

    def test_without_a_model_what_was_told_in_the_context_counts(self) -> None:
        loop = BanditLoop(ARMS, None, RandomSearch(), context_dim=1)
        for context, x, reward in self.PLAYS:
            told(loop, x, reward, context)
        assert ids(loop.best([0.0])) == 0
        assert ids(loop.best([1.0])) == 3
        assert loop.best([0.5]) is None

    def test_with_constraints_only_what_met_them_counts(self) -> None:
        rule = AdditiveEpochs(1, 50)
        loop = make(context_dim=1, constraints=rule)
        for x, reward, g in ((0.0, 2.0, 0.5), (0.5, 1.0, -1.0), (1.0, 0.5, -1.0)):
            loop.attach([x], reward, [g], context=[0.0])
        assert ids(loop.best([0.0])) == 1

"""Posteriors of rows that leave a window or fade equal dense algebra, without a factorization."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel

from botorch_bandits.forgetting import ExponentialWeights, SlidingWindow
from botorch_bandits.models import changed_rows
from botorch_bandits.models.changed_rows import (
    Before,
    ChangedRowsPosterior,
    Record,
    changes_of,
    collapsed_rows,
    kept_of,
)
from botorch_bandits.models.front_kernels import SumOfProducts
from botorch_bandits.models.prior_on_arms import ArmsPrior
from botorch_bandits.models.row_factors import FreshFactor

NUM_ARMS, COUNT = 30, 150
STREAM = torch.Generator().manual_seed(2)
ARMS = torch.rand(NUM_ARMS, 2, dtype=torch.float64, generator=STREAM)
FORGETTING: dict[str, Any] = {
    "window": SlidingWindow(60),
    "short window": SlidingWindow(20),
    "weights": ExponentialWeights(0.97),
    "strong weights": ExponentialWeights(0.6),
}


class Stream:
    """Random plays of which some arrive late; what counts in a round, and dense algebra on it."""

    def __init__(self, forgetting: str, lam: float, num_outputs: int | None = None) -> None:
        stream = np.random.default_rng(5)
        kernel = MaternKernel(nu=2.5).double()
        kernel.lengthscale = torch.tensor(0.3, dtype=torch.float64)
        with torch.no_grad():
            self.K = 1.7 * kernel(ARMS).to_dense()
        self.covariance = SumOfProducts.behind_time(ArmsPrior.from_matrix(self.K), None)
        self.forgetting, self.lam = FORGETTING[forgetting], lam
        self.arms = stream.integers(NUM_ARMS, size=COUNT)
        shape = (COUNT,) if num_outputs is None else (COUNT, num_outputs)
        self.outcomes = stream.normal(size=shape)
        # the query of each outcome: of each four in turn, two are told in the other order
        order = np.arange(COUNT).reshape(-1, 2)
        order[::2] = order[::2, ::-1]
        self.queries = order.reshape(-1)[: COUNT - COUNT % 2]

    def weights(self, queries: Any, round_number: int) -> tuple[Any, Any]:
        rounds = torch.from_numpy(queries + 1)
        if isinstance(self.forgetting, SlidingWindow):
            kept = self.forgetting.keeps(rounds, round_number).numpy()
            return kept, np.ones(int(kept.sum()))
        every = np.ones(len(queries), dtype=bool)
        return every, self.forgetting.weights(rounds, round_number).numpy()

    def record(self, count: int) -> Record:
        """What counts after so many outcomes."""
        fronts = np.zeros((COUNT, 0))
        now = int(self.queries[:count].max()) + 2

        def before(stride: int) -> Before:
            first = count // stride * stride
            queries = self.queries[:first]
            then = int(queries.max(initial=-1)) + 2
            kept, weights = self.weights(queries, then)
            queries, scale = queries[kept], None
            if isinstance(self.forgetting, ExponentialWeights):
                scale = float(self.forgetting.weights(torch.tensor([then - 1]), now))
            arms = self.arms[queries]
            return Before(arms, fronts[queries], arms, weights, scale, first)

        queries = self.queries[:count]
        kept, weights = self.weights(queries, now)
        queries = queries[kept]
        arms = self.arms[queries]
        return Record(arms, fronts[queries], arms, self.outcomes[queries], weights, 0, before)

    def posterior(self, record: Record, memo: dict[str, Any]) -> ChangedRowsPosterior | None:
        assert record.weights is not None
        rows, means = collapsed_rows(
            record.arms, record.fronts, record.pairs, record.outcomes, record.weights, self.lam
        )
        changes = changes_of(rows, means, self.lam, record, 1)
        if changes.base is rows:
            return None
        kept = kept_of(self.covariance, changes, self.lam, memo)

        def factor() -> FreshFactor:
            among = self.covariance.among(rows.arms, rows.fronts)
            return FreshFactor(among + np.diag(rows.noise))

        return ChangedRowsPosterior(
            self.covariance, rows, means, factor, self.lam, None, None, record.arms, changes, kept
        )

    def textbook(self, record: Record) -> tuple[Any, Any, float]:
        """Means, variances and the gain from one row for each outcome, densely."""
        assert record.weights is not None
        K, k = self.K.numpy()[np.ix_(record.arms, record.arms)], self.K.numpy()[record.arms]
        noise = self.lam / record.weights
        total = K + np.diag(noise)
        means = k.T @ np.linalg.solve(total, record.outcomes)
        variances = self.K.numpy().diagonal() - (k * np.linalg.solve(total, k)).sum(0)
        whitened = K / np.sqrt(noise * noise[:, None])
        gain = 0.5 * np.linalg.slogdet(np.eye(len(K)) + whitened)[1]
        return means.T.reshape(-1, NUM_ARMS), variances, gain


@pytest.mark.parametrize("num_outputs", [None, 3])
@pytest.mark.parametrize("lam", [1e-3, 0.04, 2.0])
@pytest.mark.parametrize("forgetting", FORGETTING)
def test_every_round_equals_dense_algebra(
    forgetting: str, lam: float, num_outputs: int | None
) -> None:
    stream, memo = Stream(forgetting, lam, num_outputs), {}
    num_changed = 0
    for count in range(1, 140, 1 if num_outputs is None else 7):
        record = stream.record(count)
        posterior = stream.posterior(record, memo)
        if posterior is None:
            continue
        num_changed += 1
        means, variances, gain = stream.textbook(record)
        assert np.allclose(posterior.means.numpy(), means, atol=1e-8, rtol=0)
        assert np.allclose(posterior.variance.numpy(), variances, atol=1e-8, rtol=0)
        assert np.allclose(posterior.largest_variance, variances, atol=1e-8, rtol=0)
        some = np.array([4, 0, 11])
        assert np.allclose(posterior.variance_at(some), variances[some], atol=1e-8, rtol=0)
        assert float(posterior.information_gain) == pytest.approx(gain, abs=1e-8)
        assert torch.equal(posterior.observed_variance, posterior.variance)
        columns = np.random.default_rng(count).normal(size=len(posterior.rows.arms))
        solved = posterior._factor.whole(columns)  # draws have a factor still
        dense = stream.covariance.among(posterior.rows.arms, posterior.rows.fronts)
        dense = dense + np.diag(posterior.rows.noise)
        assert np.allclose(dense @ solved, columns, atol=1e-8)
    assert num_changed >= 10


@pytest.mark.parametrize("forgetting", ["window", "weights"])
def test_a_round_is_a_function_of_the_history(forgetting: str) -> None:
    """What was looked at before changes no bit of a round."""
    stream, memo = Stream(forgetting, 0.04), {}
    for count in range(60, 140):
        record = stream.record(count)
        known, fresh = stream.posterior(record, memo), stream.posterior(record, {})
        assert known is not None
        assert fresh is not None
        assert torch.equal(known.variance, fresh.variance)
        assert torch.equal(known.mean, fresh.mean)
        assert torch.equal(known.information_gain, fresh.information_gain)


def test_eigenvectors_are_computed_once_in_a_stride(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, memo = Stream("weights", 0.04), {}
    computed, of = [], changed_rows.Spectrum.of
    monkeypatch.setattr(
        changed_rows.Spectrum, "of", lambda matrix: (computed.append(len(matrix)), of(matrix))[1]
    )
    for count in range(64, 128):
        assert stream.posterior(stream.record(count), memo) is not None
    assert len(computed) == 2


def test_rows_that_count_for_nothing_are_left_out() -> None:
    """Weights below the smallest that counts are in no base."""
    stream = Stream("strong weights", 0.04)
    record = stream.record(130)
    posterior = stream.posterior(record, {})
    assert posterior is not None
    weights = stream.lam / posterior._changes.base.noise
    assert weights.min() > changed_rows.NEGLIGIBLE_WEIGHT

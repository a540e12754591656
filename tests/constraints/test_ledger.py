"""The ledger against sums written out."""

import json
import math

import numpy as np
import pytest
import torch

from botorch_bandits.constraints import Ledger

BATCHES = pytest.mark.parametrize("batch_shape", [(), (2, 3)], ids=["stream", "batch"])


def make(batch_shape, n=14, num_epochs=4):
    rng = np.random.default_rng(7)
    g = rng.normal(0.1, 1.0, (*batch_shape, n, 2))
    epochs = np.sort(rng.integers(1, num_epochs + 1, (*batch_shape, n)))
    kappa = 1.0 + rng.random((*batch_shape, num_epochs, 2)).cumsum(axis=-2)
    return Ledger(*map(torch.from_numpy, (g, epochs, kappa))), g, epochs, kappa


@BATCHES
def test_violations(batch_shape):
    ledger, g, _, _ = make(batch_shape)
    assert ledger.num_rows == 14
    for b in np.ndindex(*batch_shape):
        rows = g[b]
        signed = np.maximum(rows.sum(0), 0.0)
        rectified = np.maximum(rows, 0.0).sum(0)
        close = lambda actual, expected: np.testing.assert_allclose(  # noqa: E731
            actual, expected, rtol=1e-10, atol=1e-12
        )
        close(ledger.signed_violation[b], signed)
        close(ledger.rectified_violation[b], rectified)
        close(ledger.violation_norm[b], np.sqrt((signed**2).sum()))
        close(ledger.average[b], rows.sum(0) / len(rows))
        close(ledger.average_signed_violation[b], signed / len(rows))
        close(ledger.average_rectified_violation[b], rectified / len(rows))
        close(ledger.budget_left()[b], -rows.sum(0))
        close(ledger.budget_left(horizon=30)[b], -rows.sum(0) / (30 - len(rows)))


@BATCHES
def test_best_point(batch_shape):
    ledger, g, _, _ = make(batch_shape)
    rewards = np.random.default_rng(8).normal(size=g.shape[:-1])
    index, feasible = ledger.best_point(torch.from_numpy(rewards))
    for b in np.ndindex(*batch_shape):
        meets = [t for t in range(14) if (g[b][t] <= 0.0).all()]
        assert bool(feasible[b]) == bool(meets)
        if meets:
            assert int(index[b]) == max(meets, key=lambda t: rewards[b][t])
        else:
            distance = np.linalg.norm(np.maximum(g[b], 0.0), axis=-1)
            assert int(index[b]) == distance.argmin()


def test_nothing_yet():
    empty = torch.zeros(0, 1, dtype=torch.float64)
    ledger = Ledger(empty, torch.zeros(0, dtype=torch.int64), torch.ones(1, 1, dtype=torch.float64))
    assert ledger.average_signed_violation.tolist() == [0.0]
    assert ledger.budget_left(horizon=10).tolist() == [0.0]
    assert ledger.to_records()[0]["num_outcomes"] == 0


@BATCHES
def test_records_are_plain(batch_shape):
    ledger, g, epochs, kappa = make(batch_shape)
    records = ledger.to_records()
    assert json.loads(json.dumps(records)) == records
    assert len(records) == 4 * 2 * math.prod(batch_shape)
    replicates = list(np.ndindex(*batch_shape))
    for record in records:
        b, epoch, j = replicates[record.get("replicate", 0)], record["epoch"], record["constraint"]
        of_epoch = g[b][epochs[b] == epoch][:, j - 1]
        assert record["num_outcomes"] == len(of_epoch)
        assert record["multiplier"] == kappa[b][epoch - 1, j - 1]
        for name, value in (
            ("signed_violation", max(of_epoch.sum(), 0.0)),
            ("rectified_violation", np.maximum(of_epoch, 0.0).sum()),
        ):
            assert record[name] == pytest.approx(value, abs=1e-12)


def test_bad_tables_are_refused():
    g, one = torch.zeros(3, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"1 and 2.*epochs 1"):
        Ledger(g, torch.tensor([1, 2, 1]), one)
    with pytest.raises(ValueError, match=r"epochs has shape \(2,\)"):
        Ledger(g, torch.tensor([1, 1]), one)
    with pytest.raises(TypeError, match=r"epochs has dtype torch.float32"):
        Ledger(g, torch.ones(3), one)
    with pytest.raises(ValueError, match=r"\(1, 2\), not \(1"):
        Ledger(g, torch.tensor([1, 1, 1]), one.expand(1, 2))
    with pytest.raises(ValueError, match=r"must be finite"):
        Ledger(g + torch.nan, torch.tensor([1, 1, 1]), one)
    with pytest.raises(ValueError, match="2, but 3 outcomes"):
        Ledger(g, torch.tensor([1, 1, 1]), one).budget_left(horizon=2)

"""Posteriors at many ridges against one dense inverse a ridge, by rows that change."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from models.textbook import double, information_gain
from torch import Tensor

from botorch_bandits.acquisition.dmm import largest_first
from botorch_bandits.core import ridges as room
from botorch_bandits.core.ridges import Ridges

VARIANCE, NORM = 1.7, 6.0
STREAM = torch.Generator().manual_seed(0)
ROWS, POINTS = (torch.rand(n, 2, dtype=torch.float64, generator=STREAM) for n in (60, 7))
WEIGHTS = torch.rand(60, dtype=torch.float64, generator=STREAM) + 0.5
NOISES = torch.randn(60, dtype=torch.float64, generator=STREAM)


def kernel(A: Tensor, B: Tensor) -> Tensor:
    squared = (A.unsqueeze(-2) - B.unsqueeze(-3)).square().sum(-1)
    return VARIANCE * torch.exp(-squared / (2 * 0.3**2))


def outcomes(X: Tensor, noise: float) -> Tensor:
    return (5.0 * X).sin().sum(-1) + noise**0.5 * NOISES[: X.shape[-2]]


def dense(
    X: Tensor, w: Tensor, y: Tensor, at: Tensor, found: Ridges
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Means, explained variances (a column for each ridge), fits and the gain, as printed."""
    K, k, columns = kernel(X, X), kernel(at, X), []
    for a in found.ridges.tolist():
        inverse = torch.linalg.inv(K + a * torch.diag(1.0 / w))
        columns.append((k @ inverse @ y, ((k @ inverse) * k).sum(-1), y @ inverse @ y))
    gain = information_gain(K, found.ridges[-1] / w)
    mean, explained, fits = (torch.stack(each, -1) for each in zip(*columns, strict=True))
    return mean, explained, fits, gain


def assert_dense(found: Ridges, X: Tensor, w: Tensor, y: Tensor, tolerance: float) -> None:
    mean, explained = found.moments(kernel(POINTS, found.places))
    expected = dense(X, w, y, POINTS, found)
    for ours, theirs in zip(
        (mean, explained, found.fits, found.information_gain), expected, strict=True
    ):
        assert torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    # of covariances, at the base ridge
    cross, k = kernel(POINTS, found.places), kernel(POINTS, X)
    whole = k @ torch.linalg.solve(kernel(X, X) + found.ridges[-1] * torch.diag(1.0 / w), k.mT)
    ours = cross @ found.weights(cross).mT
    assert torch.allclose(ours, whole, rtol=tolerance, atol=tolerance)


# how rows change: the first and last row, a factor on their weights, and whether some gain or lose
STEPS = {
    "none": (0, 40, 1.0, False),
    "added": (0, 44, 1.0, False),
    "window": (5, 48, 1.0, False),
    "faded": (0, 50, 0.3, False),
    "faded and left": (9, 60, 0.01, False),
    "gained and lost": (5, 49, 0.7, True),
    "in another order": (40, 0, 1.0, False),
}


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 1.0, 1e2])
@pytest.mark.parametrize("step", STEPS)
def test_moments_are_those_of_the_rows_that_count(
    step: str, noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "FEWEST_KEPT", 10)
    base, kept = double(noise), dict[str, Any]()
    y = outcomes(ROWS, noise)
    Ridges(ROWS[:40], WEIGHTS[:40], y[:40], kernel, base, kept=kept)
    (before, _) = kept[room.KEPT]
    first, last, factor, changed = STEPS[step]
    index = torch.arange(first, last) if first < last else torch.arange(last, first).flip(0)
    w = factor * WEIGHTS[index]
    if changed:
        w[3], w[7] = 2.0 * w[3], 0.5 * w[7]
    found = Ridges(ROWS[index], w, y[index], kernel, base, kept=kept)
    assert kept[room.KEPT][0] is before
    fresh = Ridges(ROWS[index], w, y[index], kernel, base)
    tolerance = 1e-9 if noise >= 1e-3 else 1e-6  # as inverses are as exact as that
    for each in (found, fresh):
        assert_dense(each, ROWS[index], w, y[index], tolerance)
        assert torch.allclose(each.ridges, fresh.ridges, rtol=1e-9, atol=0.0)


def test_eigenvectors_are_computed_again_when_much_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "FEWEST_KEPT", 10)
    monkeypatch.setattr(room, "MOST_CHANGES", 6)
    kept: dict[str, Any] = {}
    y, base, seen = outcomes(ROWS, 0.01), torch.tensor(0.01).double(), list[Any]()
    X = torch.cat([ROWS[:20], ROWS[:20], ROWS[20:40]])  # with rows at the same places
    for t in range(30):
        rows = slice(t, t + 30)
        found = Ridges(X[rows], WEIGHTS[rows], y[rows], kernel, base, kept=kept)
        assert_dense(found, X[rows], WEIGHTS[rows], y[rows], 1e-9)
        seen.append(kept[room.KEPT][0])
    assert 5 <= len(set(map(id, seen))) <= 15  # each round, one row comes and one leaves
    few: dict[str, Any] = {}
    Ridges(X[:9], WEIGHTS[:9], y[:9], kernel, base, kept=few)
    assert not few


def test_batches_have_rows_of_their_own_some_of_which_do_not_count() -> None:
    X, w = ROWS.reshape(3, 20, 2), WEIGHTS.reshape(3, 20).clone()
    w[1, 12:] = 0.0
    y, base = outcomes(ROWS, 0.1).reshape(3, 20), torch.tensor([0.01, 0.1, 2.0]).double()
    batch = Ridges(X, w, y, kernel, base)
    mean, explained = batch.moments(kernel(POINTS.expand(3, 7, 2), X))
    for g, n in enumerate((20, 12, 20)):
        alone = Ridges(X[g, :n], w[g, :n], y[g, :n], kernel, base[g])
        expected = (*alone.moments(kernel(POINTS, X[g, :n])), alone.fits, alone.information_gain)
        found = (mean[g], explained[g], batch.fits[g], batch.information_gain[g])
        for ours, theirs in zip(found, expected, strict=True):
            assert torch.allclose(ours, theirs, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("bound", [NORM, 0.3])
@pytest.mark.parametrize("num_changes", [0, 5])
def test_ends_are_the_tightest_and_have_slopes(
    bound: float, num_changes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a small bound on the norm no function fits the data, and ends cross."""
    monkeypatch.setattr(room, "FEWEST_KEPT", 10)
    monkeypatch.setattr(room, "LARGEST_BLOCK", 500)  # a few points at once
    y, w, kept = outcomes(ROWS, 0.01), torch.ones_like(WEIGHTS), dict[str, Any]()
    base, norm = (double(each) for each in (0.01, bound))
    for n in (40, 40 + num_changes):
        found = Ridges(ROWS[:n], w[:n], y[:n], kernel, base, kept=kept)
    radius = base * found.fits[-1] + 0.02 * (found.information_gain + math.log(10.0))
    radicand = radius / found.ridges + norm**2 - found.fits
    assert bool((radicand < 0.0).any()) == (bound < 1.0)
    prior = VARIANCE * torch.linspace(1.0, 1.1, 7, dtype=torch.float64)
    prior[0] = 0.1  # less than what is explained: the variance is replaced
    lower, upper, at_base = found.ends(kernel(POINTS, found.places), prior, radicand, norm)
    mean, explained, *_ = dense(ROWS[:n], w[:n], y[:n], POINTS, found)
    variance = torch.maximum(prior[:, None] - explained, 1e-18 * prior[:, None])
    half, furthest = (variance * radicand.clamp_min(0.0)).sqrt(), bound * prior.sqrt()
    low = torch.maximum((mean - half).amax(-1), -furthest)
    high = torch.minimum((mean + half).amin(-1), furthest)
    middle = 0.5 * (low + high)
    assert bool((low > high)[1:].any()) == (bound < 1.0)
    assert torch.allclose(lower, torch.minimum(low, middle), rtol=0.0, atol=1e-7)
    assert torch.allclose(upper, torch.maximum(high, middle), rtol=0.0, atol=1e-7)
    assert torch.allclose(at_base, variance[:, -1], rtol=0.0, atol=1e-9)

    def ends(X: Tensor, prior: Tensor) -> Tensor:
        return torch.stack(found.ends(kernel(X, found.places), prior, radicand, norm))

    X, own = POINTS[1:].clone().requires_grad_(), prior[1:].clone().requires_grad_()
    assert torch.autograd.gradcheck(ends, (X, own), atol=1e-4)


def test_the_largest_score_is_found_without_all_scores() -> None:
    scores = torch.rand(500, dtype=torch.float64, generator=STREAM)
    bounds = scores + 0.1 * torch.rand(500, dtype=torch.float64, generator=STREAM)
    asked: list[int] = []

    def exact(some: Tensor) -> Tensor:
        asked.extend(some.tolist())
        return scores[some]

    found = largest_first(bounds, exact, 1e-3)
    assert int(found.argmax()) == int(scores.argmax())
    assert len(asked) < 200
    left = torch.ones(500, dtype=torch.bool)
    left[asked] = False
    assert torch.equal(found[~left], scores[~left])
    assert float(found[left].max()) < float(scores.max()) - 1e-3

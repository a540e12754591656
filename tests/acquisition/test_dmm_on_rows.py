"""DMM on arms with contexts or forgetting: the same choices and numbers as with models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

from acquisition.dense import matern_five_halves
from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    DMMUpperConfidenceBound,
    ExponentialWeights,
    History,
    OracleRestart,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.acquisition import dmm, dmm_on_rows
from botorch_bandits.acquisition.dmm_on_rows import RowsInRidges, changes_of
from botorch_bandits.confidence.dmm import AssumptionRefutedWarning
from botorch_bandits.loop.chooser import Chooser
from botorch_bandits.loop.rows_stream import RowsStream
from botorch_bandits.models import changed_rows

CHOICES = torch.rand(60, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
ARMS = Arms(CHOICES)
PRODUCT = RBFKernel(active_dims=(0,)) * MaternKernel(nu=1.5, active_dims=(1,))
FORGETTING = {
    "all is kept": None,
    "window": SlidingWindow(14),
    "weights": ExponentialWeights(0.8),
    "time": TimeVaryingKernel(0.1),
}
BOUNDS: dict[str, Any] = {"rkhs_bound": 6.0, "noise_bound": 0.3}


def build(forgetting: str, num_contexts: int, kernel: Any = None, **options: Any) -> BanditLoop:
    given = {**BOUNDS, **options.pop("bounds", {})}
    kernel = MaternKernel(nu=2.5) if kernel is None else kernel
    return BanditLoop(
        ARMS,
        BanditGP.with_kernel(kernel.double(), noise=0.05, prior_mean=0.3),
        DMMUpperConfidenceBound.with_options(**given),
        context_dim=num_contexts,
        forgetting=FORGETTING[forgetting],
        clock=lambda: 0.0,
        **{"seed": 3, **options},
    )


def go_on(loop: BanditLoop, num_rounds: int, delayed: bool = False) -> None:
    """Play; contexts come again now and then, and of delayed outcomes one of four is told."""
    for _ in range(num_rounds):
        t = loop.history.num_queries + 1
        context = [math.sin(3.0 * t) if t % 3 else 0.5]
        loop.ask(**({"context": context} if loop.settings.context_dim else {}))
        waiting = list(loop.history.pending())
        if delayed:
            waiting = [] if len(waiting) < 4 else [waiting[(5 * t) % 3]]
        for query in waiting:
            x = float(query.x[0])
            shift = 0.0 if query.context is None else x * float(query.context[0])
            told = {"constraints": [x - 0.6]} if loop.settings.constraints is not None else {}
            loop.tell(query.id, math.cos(5.0 * x) + shift + 0.1 * math.sin(9.0 * t), **told)


def keep_eigenvectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with many rows, but of few."""
    monkeypatch.setattr(dmm_on_rows, "FEWEST_KEPT_ROWS", 5)
    monkeypatch.setattr(changed_rows, "STRIDE", 8)


def assert_follows_the_models(
    monkeypatch: pytest.MonkeyPatch,
    delayed: bool,
    *given: Any,
    num_rounds: int = 33,
    **options: Any,
) -> None:
    """Each point that models choose is chosen, whether or not eigenvectors are kept."""
    with monkeypatch.context() as patch:
        patch.setattr(Chooser, "_new_rows_stream", lambda self, played: None)
        known = build(*given, **options)
        go_on(known, num_rounds, delayed)
        assert known._chooser._stream is None
    for is_kept in (False, True):
        with monkeypatch.context() as patch:
            if is_kept:
                keep_eigenvectors(patch)
            loop = build(*given, **options)
            go_on(loop, num_rounds, delayed)
        assert isinstance(loop._chooser._stream, RowsStream)
        for ours, theirs in zip(loop.history.queries, known.history.queries, strict=True):
            assert torch.equal(ours.x, theirs.x)
            for name, value in theirs.diagnostics.items():
                assert ours.diagnostics[name] == pytest.approx(value, rel=1e-7, abs=1e-8), name


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("num_contexts", [0, 1])
@pytest.mark.parametrize("forgetting", FORGETTING)
def test_bounds_are_those_of_the_models(
    forgetting: str,
    num_contexts: int,
    delayed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if forgetting == "all is kept" and num_contexts == 0:
        return
    for kernel in (None, PRODUCT)[: 1 + num_contexts]:
        assert_follows_the_models(monkeypatch, delayed, forgetting, num_contexts, kernel)


SETTINGS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "minimized": ("window", 0, {"bounds": {"maximize": False}}),
    "nothing given": ("weights", 1, {"bounds": {"rkhs_bound": None, "noise_bound": None}}),
    "noise of the model": ("window", 0, {"bounds": {"noise_bound": "model"}}),
    "in prior units": ("weights", 0, {"bounds": {"units": "prior"}}),
    "one ridge": ("window", 1, {"bounds": {"num_ridges": 1}}),
    "doubled": ("window", 0, {"bounds": {"rkhs_bound": 0.05, "double_rkhs_bound": True}}),
    "refuted": ("window", 0, {"bounds": {"rkhs_bound": 0.05, "noise_bound": 0.01}}),
    "relabeled": ("window", 0, {"constraints": AdditiveEpochs(1, 5, surrogate="relabeled")}),
    "fresh": ("weights", 1, {"constraints": AdditiveEpochs(1, 9, surrogate="fresh")}),
    "restart": ("window", 1, {"restart": OracleRestart(change_points=(12,))}),
}


@pytest.mark.filterwarnings("ignore:the data refute")
@pytest.mark.parametrize("name", SETTINGS)
def test_settings_combine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forgetting, num_contexts, options = SETTINGS[name]
    assert_follows_the_models(monkeypatch, False, forgetting, num_contexts, **options)


def test_refuted_assumptions_are_reported() -> None:
    refuted = {"rkhs_bound": 0.05, "noise_bound": 0.01}
    with pytest.warns(AssumptionRefutedWarning, match="the data refute"):
        go_on(build("window", 0, bounds=refuted), 12)
    with pytest.raises(ValueError, match="the data refute"):
        go_on(build("window", 0, bounds={**refuted, "on_refuted": "raise"}), 12)


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("num_contexts", [0, 1])
@pytest.mark.parametrize("forgetting", FORGETTING)
def test_a_rebuilt_loop_goes_on_to_the_last_bit(
    forgetting: str, num_contexts: int, delayed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_eigenvectors(monkeypatch)
    whole = build(forgetting, num_contexts)
    go_on(whole, 29, delayed)
    records = whole.history.to_records()
    history = History.from_records(records, dim=1, context_dim=num_contexts)
    again = build(forgetting, num_contexts, history=history)
    go_on(whole, 12, delayed)
    go_on(again, 12, delayed)
    assert again.history.to_records() == whole.history.to_records()


def dense_bounds(
    X: np.ndarray, weights: np.ndarray, y: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of DMM, ridge by ridge, of rows times the roots of their weights."""
    kernel, lam, delta = matern_five_halves(math.log(2.0)), 0.05, 0.1
    w = np.sqrt(weights)
    K, k = kernel(X, X) * np.outer(w, w), kernel(at, X) * w
    y = (y - 0.3) * w
    gain = np.linalg.slogdet(np.eye(len(K)) + K / lam)[1]
    radius = lam * y @ np.linalg.solve(K + lam * np.eye(len(K)), y)
    radius += 0.3**2 * (gain + 2.0 * math.log(1.0 / delta))
    top = 1e2 * (lam + np.trace(K))
    ridges = [*np.geomspace(1e-2 * lam, top, 47), lam]
    lower, upper = np.full(len(at), -6.0), np.full(len(at), 6.0)
    for a in ridges:
        inverse = np.linalg.inv(K + a * np.eye(len(K)))
        mean = k @ inverse @ y
        deviation = np.sqrt(1.0 - np.einsum("ij,jk,ik->i", k, inverse, k))
        half = deviation * math.sqrt(radius / a + 36.0 - y @ inverse @ y)
        lower, upper = np.maximum(lower, mean - half), np.minimum(upper, mean + half)
    return lower + 0.3, upper + 0.3


@pytest.mark.parametrize("forgetting", ["window", "weights"])
def test_bounds_are_those_of_the_paper(forgetting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_eigenvectors(monkeypatch)
    loop = build(forgetting, 0)
    go_on(loop, 29)
    query = loop.ask()
    history = loop.history
    played = torch.stack([each.x for each in history.queries[:29]]).numpy()
    y = np.array([outcome.reward for outcome in history.outcomes])
    age = np.arange(28, -1, -1)
    weights = (age < 14).astype(float) if forgetting == "window" else 0.8**age
    lower, upper = dense_bounds(played, weights, y, CHOICES.numpy())
    at = int(ARMS.index_of(query.x.unsqueeze(0)))
    # the points of arms may be near each other, so the values are compared and not the choice
    assert upper[at] == pytest.approx(upper.max(), rel=0.0, abs=1e-8)
    assert query.diagnostics["acquisition_value"] == pytest.approx(upper[at], rel=0.0, abs=1e-8)
    width = 0.5 * (upper[at] - lower[at]) / query.diagnostics["standard_deviation"]
    assert query.diagnostics["width"] == pytest.approx(width, rel=1e-7)


def test_all_arms_have_the_bounds_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_eigenvectors(monkeypatch)
    seen: list[RowsInRidges] = []
    prepare = dmm.DMMArmsRule._prepare_rows

    def keep(self: Any, round_: Any, *given: Any) -> Any:
        changes = changes_of(round_.posterior, round_.record)
        seen.append(
            RowsInRidges(round_.posterior, changes, {}, 6.0, 0.3, 0.1, 48, False, 1.0, True)
        )
        return prepare(self, round_, *given)

    monkeypatch.setattr(dmm.DMMArmsRule, "_prepare_rows", keep)
    loop = build("window", 0)
    go_on(loop, 30)
    ridges = seen[-1]
    assert len(ridges._changes.left)
    assert len(ridges._changes.came.arms)
    history = loop.history
    played = torch.stack([each.x for each in history.queries[:29]]).numpy()
    y = np.array([outcome.reward for outcome in history.outcomes[:29]])
    lower, upper = dense_bounds(played[-14:], np.ones(14), y[-14:], CHOICES.numpy())
    for found in (ridges.of_all(), ridges.ends(np.arange(60))):
        np.testing.assert_allclose(found[0] + 0.3, lower, rtol=0.0, atol=1e-8)
        np.testing.assert_allclose(found[1] + 0.3, upper, rtol=0.0, atol=1e-8)
    scores = ridges.scores(1.0)
    assert scores is not None
    is_bound = np.abs(scores + 0.3 - upper) < 1e-8
    assert bool((scores + 0.3 >= upper - 1e-8).all())
    assert bool((scores[~is_bound] + 0.3 < upper.max()).all())


def test_eigenvectors_are_computed_once_in_a_stride(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    of = dmm_on_rows.Spectrum.of

    def count(matrix: np.ndarray) -> Any:
        calls.append(len(matrix))
        return of(matrix)

    keep_eigenvectors(monkeypatch)
    for forgetting, num_contexts in (("window", 0), ("weights", 0), ("time", 1)):
        loop = build(forgetting, num_contexts)
        go_on(loop, 24)
        with monkeypatch.context() as patch:
            patch.setattr(dmm_on_rows.Spectrum, "of", count)
            go_on(loop, 16)
        assert len(calls) <= 3, (forgetting, calls)
        calls.clear()

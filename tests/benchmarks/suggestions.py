"""Benchmarks of the suggestion that a user gets who names nothing, fit included.

The ordinary way is BoTorch's: a ``SingleTaskGP`` with the same kernel and priors on the same
transforms, ``fit_gpytorch_mll``, ``LogExpectedImprovement`` and ``optimize_acqf``.
"""

from __future__ import annotations

import warnings
from functools import partial
from statistics import median

import torch
from botorch.acquisition import analytic
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.boxes import objective
from benchmarks.measure import (
    NUM_RESTARTS,
    RAW_SAMPLES,
    Measurement,
    Scale,
    compare,
    maximize,
    smooth_data,
)
from botorch_bandits import Box, FittedSingleTaskGP, LogExpectedImprovement
from botorch_bandits.models import default_kernel, default_likelihood

SETTINGS = ((20, 2), (50, 6), (200, 6))

OBJECTIVE_TOLERANCE, VALUE_TOLERANCE = 1e-5, 1e-3
"""By how much the objective of our fit, and our logarithm of expected improvement, may be less."""

Suggested = tuple[SingleTaskGP, Tensor]
"""The fitted model and the next point."""


def default_suggestions(scale: Scale) -> list[Measurement]:
    """Fit the default model and maximize its acquisition function, on several data sets each."""
    return [_default_suggestion(scale, *size) for size in SETTINGS]


def _data_sets(scale: Scale, rows: int, dim: int) -> list[tuple[int, Tensor, Tensor]]:
    seeds = range(scale.seed, scale.seed + max(scale.repeats, 1))
    return [(seed, *smooth_data(rows, dim, seed, noise=1e-4)) for seed in seeds]


def _box(dim: int) -> Box:
    return Box([(0.0, 1.0)] * dim, num_restarts=NUM_RESTARTS, raw_samples=RAW_SAMPLES)


def _default_suggestion(scale: Scale, num_rows: int, dim: int) -> Measurement:
    rows = scale.of(num_rows, 10)
    timings, shortfalls = [], [0.0]
    for seed, X, Y in _data_sets(scale, rows, dim):
        timing = compare(partial(_ordinary, seed, X, Y), partial(_ours, seed, X, Y), 1)
        timings.append(timing)
        (ordinary, their_point), (own, our_point) = timing.ordinary_result, timing.our_result
        lower = objective(ordinary) - objective(own)
        judge = analytic.LogExpectedImprovement(own, best_f=_incumbent(own, X))
        with torch.no_grad():
            worse = float(judge(their_point[None]) - judge(our_point[None]))
        # one number for both: each in its own tolerance
        shortfalls += [worse, lower * VALUE_TOLERANCE / OBJECTIVE_TOLERANCE]
    ratios = [each.ordinary / each.ours for each in timings]
    return Measurement(
        f"default-suggestion: n = {rows}, d = {dim}",
        median(each.ordinary for each in timings),
        median(each.ours for each in timings),
        (6, 10),
        max(shortfalls),
        VALUE_TOLERANCE,
        "difference: how much worse our acquisition value was, or 100 times our "
        f"objective; ratios {min(ratios):.1f} to {max(ratios):.1f}",
    )


def _ours(seed: int, X: Tensor, Y: Tensor) -> Suggested:
    box = _box(X.shape[-1])
    model = FittedSingleTaskGP.for_domain(box)(X, Y)
    acquisition = LogExpectedImprovement(model, X_observed=X)
    assert isinstance(model, SingleTaskGP)
    return model, box.maximize(acquisition, seed)[0]


def _ordinary(seed: int, X: Tensor, Y: Tensor) -> Suggested:
    bounds = _box(X.shape[-1]).bounds
    model = SingleTaskGP(
        X,
        Y,
        likelihood=default_likelihood(),
        covar_module=default_kernel(X.shape[-1]),
        input_transform=Normalize(X.shape[-1], bounds=bounds),
        outcome_transform=Standardize(1),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        improvement = analytic.LogExpectedImprovement(model, best_f=_incumbent(model, X))
        point, _ = maximize(improvement, bounds, seed)
    return model, point.squeeze(0)


def _incumbent(model: SingleTaskGP, X: Tensor) -> Tensor:
    with torch.no_grad():
        best: Tensor = model.posterior(X).mean.max()
    return best

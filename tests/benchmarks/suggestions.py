"""Benchmarks of the suggestion that a user gets who names nothing, fit included.

The ordinary way is BoTorch's: a ``SingleTaskGP`` with the same kernel and priors on the same
transforms, ``fit_gpytorch_mll``, ``LogExpectedImprovement`` and ``optimize_acqf``. Where Optuna is
installed, its ``GPSampler`` is asked, too.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from botorch.acquisition import analytic
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.measure import Measurement, Scale, compare, smooth_data
from botorch_bandits import Box, FittedSingleTaskGP, LogExpectedImprovement
from botorch_bandits.models import default_kernel, default_likelihood
from botorch_bandits.random_streams import seeded_globally

SETTINGS = ((20, 2), (50, 6), (200, 6))
AGAINST_OPTUNA = (50, 6)
NUM_RESTARTS, RAW_SAMPLES = 10, 256

LEAST, AIM = 6.0, 10.0

OBJECTIVE_TOLERANCE, VALUE_TOLERANCE = 1e-5, 1e-3
"""By how much the objective of our fit, and our logarithm of expected improvement, may be less."""


@dataclass(frozen=True)
class _Suggestion:
    """What one way came to."""

    model: SingleTaskGP
    point: Tensor


def default_suggestions(scale: Scale) -> list[Measurement]:
    """Fit the default model and maximize its acquisition function, on several data sets each."""
    lines = []
    for num_rows, dim in SETTINGS:
        rows = scale.of(num_rows, 10)
        box = Box([(0.0, 1.0)] * dim, num_restarts=NUM_RESTARTS, raw_samples=RAW_SAMPLES)
        ratios, theirs, ours, worse, lower = [], [], [], [], []
        for seed in range(scale.seed, scale.seed + max(scale.repeats, 1)):
            X, Y = smooth_data(rows, dim, seed, noise=1e-4)
            timing = compare(
                lambda X=X, Y=Y, s=seed: _ordinary(X, Y, box, s),  # type: ignore[misc] # noqa: B023
                lambda X=X, Y=Y, s=seed: _ours(X, Y, box, s),  # type: ignore[misc] # noqa: B023
                1,
            )
            ratios.append(timing.ratio)
            theirs.append(timing.ordinary_seconds)
            ours.append(timing.our_seconds)
            ordinary, own = timing.ordinary_result, timing.our_result
            lower.append(_objective(ordinary.model) - _objective(own.model))
            judge = analytic.LogExpectedImprovement(own.model, best_f=_incumbent(own.model, X))
            with torch.no_grad():
                worse.append(float(judge(ordinary.point[None]) - judge(own.point[None])))
        # one number for both: each in its own tolerance
        shortfall = max(max(worse), max(lower) * VALUE_TOLERANCE / OBJECTIVE_TOLERANCE)
        lines.append(
            Measurement(
                name=f"default-suggestion: n = {rows}, d = {dim}",
                ratio=median(theirs) / median(ours),
                difference=max(0.0, shortfall),
                tolerance=VALUE_TOLERANCE,
                unit="suggestion",
                ordinary_seconds=median(theirs),
                our_seconds=median(ours),
                at_least=LEAST,
                aim=AIM,
                note="difference: how much worse our acquisition value was, or 100 times our "
                f"objective; ratios {min(ratios):.1f} to {max(ratios):.1f}",
            )
        )
    return lines + _against_optuna(scale)


def _ours(X: Tensor, Y: Tensor, box: Box, seed: int) -> _Suggestion:
    model = FittedSingleTaskGP.for_domain(box)(X, Y)
    acquisition = LogExpectedImprovement(model, X_observed=X)
    assert isinstance(model, SingleTaskGP)
    return _Suggestion(model, box.maximize(acquisition, seed)[0])


def _ordinary(X: Tensor, Y: Tensor, box: Box, seed: int) -> _Suggestion:
    model = SingleTaskGP(
        X,
        Y,
        likelihood=default_likelihood(),
        covar_module=default_kernel(X.shape[-1]),
        input_transform=Normalize(X.shape[-1], bounds=box.bounds),
        outcome_transform=Standardize(1),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        with seeded_globally(seed):
            point, _ = optimize_acqf(
                analytic.LogExpectedImprovement(model, best_f=_incumbent(model, X)),
                box.bounds,
                q=1,
                num_restarts=NUM_RESTARTS,
                raw_samples=RAW_SAMPLES,
                options={"batch_limit": NUM_RESTARTS, "init_batch_limit": RAW_SAMPLES},
            )
    return _Suggestion(model, point.squeeze(0))


def _incumbent(model: SingleTaskGP, X: Tensor) -> Tensor:
    with torch.no_grad():
        best: Tensor = model.posterior(X).mean.max()
    return best


def _objective(model: SingleTaskGP) -> float:
    """What the fit maximized, by GPyTorch; a larger one is better."""
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    with torch.no_grad():
        value = float(mll(model(*model.train_inputs), model.train_targets))
    model.eval()
    return value


def _against_optuna(scale: Scale) -> list[Measurement]:
    """Against ``GPSampler``, which starts from its last fit, as it would in a study."""
    try:
        import optuna
    except ImportError:
        return []
    num_rows, dim = AGAINST_OPTUNA
    rows = scale.of(num_rows, 12)
    box = Box([(0.0, 1.0)] * dim, num_restarts=NUM_RESTARTS, raw_samples=RAW_SAMPLES)
    distributions: dict[str, Any] = {
        f"x{i}": optuna.distributions.FloatDistribution(0.0, 1.0) for i in range(dim)
    }
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    theirs, ours = [], []
    for seed in range(scale.seed, scale.seed + max(scale.repeats, 1)):
        X, Y = smooth_data(rows, dim, seed, noise=1e-4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=5)
            study = optuna.create_study(direction="maximize", sampler=sampler)
            for x, y in zip(X[:-1].tolist(), Y[:-1, 0].tolist(), strict=True):
                params: dict[str, Any] = {f"x{i}": value for i, value in enumerate(x)}
                study.add_trial(
                    optuna.trial.create_trial(params=params, distributions=distributions, value=y)
                )
            study.tell(study.ask(distributions), float(Y[-1]))  # its caches are warm now
            start = time.process_time()
            study.ask(distributions)
            theirs.append(time.process_time() - start)
        start = time.process_time()
        _ours(X, Y, box, seed)
        ours.append(time.process_time() - start)
    return [
        Measurement(
            name=f"default-suggestion, against Optuna's GPSampler: n = {rows}, d = {dim}",
            ratio=median(theirs) / median(ours),
            difference=0.0,
            tolerance=0.0,
            unit="suggestion",
            ordinary_seconds=median(theirs),
            our_seconds=median(ours),
            at_least=1.0,
            note="another model, so there are no results to compare",
        )
    ]

"""Benchmarks of the marginal-likelihood fit, cold and warm, against BoTorch's ordinary one.

Both ways start from the same hyperparameters; the difference is that of the values they reach.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from botorch.fit import _fit_fallback, fit_gpytorch_mll
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood

from benchmarks.measure import Measurement, Scale, compare, smooth_data
from botorch_bandits.models import BanditGP

NEW_ROWS = 5
"""A warm fit starts from the hyperparameters of a fit to this many rows fewer."""


class _OrdinaryBanditGP(BanditGP):
    """The same model, fitted as BoTorch fits any other."""

    def custom_fit(self, mll: MarginalLogLikelihood, **kwargs: Any) -> MarginalLogLikelihood:
        return _fit_fallback(mll, **kwargs)


def refits(scale: Scale) -> list[Measurement]:
    """Cold and warm fits at 50, 200 and 1000 rows in 2 and 6 dimensions."""
    lines = []
    for num_rows, least, aim in ((50, 4.0, 8.0), (200, 4.0, 8.0), (1000, 3.0, 5.0)):
        for dim in (2, 6):
            rows = scale.of(num_rows, 30)
            earlier = _model(BanditGP, rows, dim, scale.seed, rows - NEW_ROWS)
            start = copy.deepcopy(earlier.state_dict())
            _fit(earlier)
            warm = copy.deepcopy(earlier.state_dict())
            repeats = scale.repeats if num_rows < 1000 else min(scale.repeats, 3)
            for words, state, goals in (
                ("cold", start, (least, aim)),
                ("warm", warm, (4.0, 10.0)),
            ):
                lines.append(_compare(words, rows, dim, scale.seed, state, repeats, goals))
    return lines


def _compare(
    words: str,
    rows: int,
    dim: int,
    seed: int,
    state: dict[str, Any],
    repeats: int,
    goals: tuple[float, float],
) -> Measurement:
    models = [_model(cls, rows, dim, seed) for cls in (_OrdinaryBanditGP, BanditGP)]

    def fit(model: BanditGP) -> BanditGP:
        model.load_state_dict(state)
        return _fit(model)

    timing = compare(lambda: fit(models[0]), lambda: fit(models[1]), repeats)
    difference = _objective(timing.ordinary_result) - _objective(timing.our_result)
    return Measurement(
        name=f"refit {words}: n = {rows}, d = {dim}",
        ratio=timing.ratio,
        difference=max(0.0, difference),
        tolerance=1e-5,
        unit="fit",
        ordinary_seconds=timing.ordinary_seconds,
        our_seconds=timing.our_seconds,
        at_least=goals[0],
        aim=goals[1],
        note="difference: how much smaller our objective is",
    )


def _model(
    cls: type[BanditGP], rows: int, dim: int, seed: int, used: int | None = None
) -> BanditGP:
    X, Y = (data[:used] for data in smooth_data(rows, dim, seed))
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=dim)).double()
    kernel.base_kernel.register_constraint("raw_lengthscale", GreaterThan(1e-3))
    kernel.base_kernel.lengthscale = torch.full((dim,), 0.5, dtype=torch.float64)
    return cls(X, (Y - Y.mean()) / Y.std(), kernel=kernel, noise=0.1, learn_hyperparameters=True)


def _fit(model: BanditGP) -> BanditGP:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def _objective(model: BanditGP) -> float:
    """A larger one is better."""
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    with torch.no_grad():
        value = float(mll(model(*model.train_inputs), model.train_targets))
    model.eval()
    return value

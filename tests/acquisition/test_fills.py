"""Fills of pending points in drop-ins, against dense computations on every kind of model."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from botorch_bandits import (
    BanditGP,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
)

from .cases import MODELS, bandit_gp, minima, rows, uniform
from .dense import DenseGP, Reference

pytestmark = [
    pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning"),
    pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.BadInitialCandidatesWarning"),
    pytest.mark.filterwarnings("ignore::botorch_bandits.acquisition.RingingWarning"),
]

BOUND, B, R = 7.0, 2.0, 0.1
BOUNDS: dict[str, Any] = {"rkhs_bound": B, "noise_bound": R, "outcome_bound": BOUND}
PROBABILITIES = (0.1, 0.2, 0.3, 0.2, 0.15, 0.05)
FILLS: dict[str, dict[str, Any]] = {
    "middle": {"fill": "middle"},
    "soft": {"fill": "soft", "delay_distribution": PROBABILITIES},
    "lower bound": {"fill": "lower_bound"},
}
SINGLE = [case for case in MODELS if case.kind in ("single", "ensemble")]
PENDING = uniform(4, 2, seed=4)


def close(actual: Any, expected: Any) -> bool:
    actual, expected = (
        torch.as_tensor(np.asarray(v.detach() if isinstance(v, Tensor) else v)).double()
        for v in (actual, expected)
    )
    return torch.allclose(actual, expected, rtol=1e-8, atol=1e-8)


def fills_of(
    output: DenseGP, x: np.ndarray, minimum: float, sign: float, fill: str, limit: int | None
) -> np.ndarray:
    """What pending points are filled in with, the last one asked one round ago."""
    mean, covariance = output.posterior(x)
    values = []
    for i in range(len(x)):
        age = len(x) - i
        if limit is not None and age >= limit:
            values.append(minimum)
            continue
        if fill == "middle":
            height = BOUND / 2
        elif fill == "soft":
            end = len(PROBABILITIES) if limit is None else limit + 1
            later = sum(PROBABILITIES[age + 1 :])
            w = sum(PROBABILITIES[age + 1 : end]) / later if later else 0.0
            height = w * sign * (mean[i] - minimum)
        else:
            height = sign * (mean[i] - minimum) - sqrt(covariance[i, i])
        values.append(minimum + sign * min(max(height, 0.0), BOUND))
    return np.array(values)


def expected(
    reference: Reference, x: np.ndarray, least: tuple[float, ...], fill: str, limit: int | None
) -> tuple[Reference, list[float], list[list[np.ndarray]]]:
    """The filled reference, the width of each member for every lam, and the fills."""
    active = [j for j, weight in enumerate(reference.weights) if weight != 0.0]
    radius = log(2.0 * len(active) / 0.1)
    members, widths, fills = [], [], []
    for outputs in reference.members:
        filled, squares, values = [], [], []
        for j, (output, minimum) in enumerate(zip(outputs, least, strict=True)):
            sign = -1.0 if reference.weights[j] < 0.0 else 1.0
            phi = fills_of(output, x, minimum, sign, fill, limit)
            new = output.censor(x, phi)
            height = sign * (phi - minimum)
            waits = [limit is None or len(x) - i < limit for i in range(len(x))]
            b = np.maximum(height, BOUND - height)[waits]
            s, lam = new.standard_deviation, new.lam
            total = (b / s * new.deviations(x)[waits] / s).sum()
            noise = (R + BOUND) / s / sqrt(lam) * sqrt(2.0 * (new.information_gain + radius))
            if j in active:
                squares.append((total / lam + B / s + noise) ** 2)
            filled.append(new)
            values.append(phi)
        members.append(tuple(filled))
        widths.append(sqrt(sum(squares)))
        fills.append(values)
    return replace(reference, members=tuple(members)), widths, fills


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("name", FILLS)
@pytest.mark.parametrize("case", SINGLE, ids=lambda case: case.name)
def test_every_fill_on_every_model(case: Any, name: str, limit: int | None) -> None:
    model = case.build()
    X_pending, x = case.points(4, seed=4), case.points(5, seed=3)
    options = {**BOUNDS, **FILLS[name], "any_lambda": True, "max_delay": limit}
    acqf = CensoredUpperConfidenceBound(
        model,
        minimum=minima(case),
        posterior_transform=case.posterior_transform,
        X_pending=X_pending,
        **options,
    )
    reference, widths, fills = expected(
        case.reference(model), X_pending.numpy(), minima(case), FILLS[name]["fill"], limit
    )
    assert acqf.filled_values is not None
    found = acqf.filled_values.movedim(-1, -2)  # ... outputs x pending
    assert close(found.reshape(len(fills), len(minima(case)), 4), np.array(fills))
    assert close(acqf.width.reshape(-1), widths)
    assert close(acqf(x.unsqueeze(-2)), reference.upper_bound(x.numpy(), widths).mean(0))
    # a fill of its own for each set of points, from the user's model
    acqf.set_X_pending(X_pending[:1])
    assert acqf.filled_values.shape[-2] == 1
    acqf.set_X_pending(None)
    assert acqf.filled_values is None
    assert acqf.model is model


def test_draws_have_half_of_delta_and_fills() -> None:
    model = bandit_gp()
    for options in FILLS.values():
        given = {"minimum": -1.0, "X_pending": PENDING, **BOUNDS, **options}
        draw = CensoredThompsonSampling(model, delta=0.2, seed=0, **given)
        bound = CensoredUpperConfidenceBound(model, delta=0.1, **given)
        assert torch.equal(draw.width, bound.width)
        assert torch.equal(draw.filled_values, bound.filled_values)
        guarantee = draw.guarantee()
        assert "lemma" in str(guarantee.theorem)


def test_the_promise_names_what_is_missing() -> None:
    X, Y = rows()
    model = BanditGP(X, Y[:, 1:], kernel=MaternKernel(nu=2.5), noise=1.5, prior_mean=-1.0)
    given = {"X_pending": PENDING, **BOUNDS, **FILLS["soft"]}
    acqf = CensoredUpperConfidenceBound(model, minimum=-1.0, **given)
    assert acqf.guarantee().holds, acqf.guarantee().gaps
    least = float(Y[:, 1].min())
    model = BanditGP(X, Y[:, 1:], kernel=MaternKernel(nu=2.5), noise=1.5, prior_mean=least + 0.01)
    below = CensoredUpperConfidenceBound(model, minimum=least + 0.01, tolerance=0.5, **given)
    assert any("1 outcomes lie below the minimum" in gap for gap in below.guarantee().gaps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fill": "soft"}, "X_pending does not say after which delays"),
        ({"fill": "middle", "units": "prior"}, "units is 'prior'"),
        ({"fill": "middle", "outcome_bound": None, "width": 1.0}, "needs outcome_bound="),
        ({"fill": "middle", "minimum": None, "minimum_proxy": 1.0}, "needs minimum="),
        ({"fill": "middle", "outcome_bound": 0.0}, "positive outcome_bound="),
        ({"fill": "mean"}, "fill is 'mean'"),
        ({"fill": "soft", "delay_distribution": (0.5,)}, "sums to 0.5"),
    ],
)
def test_what_does_not_go_is_an_error(options: dict[str, Any], message: str) -> None:
    bounds = {} if "width" in options else {"rkhs_bound": B, "noise_bound": R}
    for cls in (CensoredUpperConfidenceBound, CensoredThompsonSampling):
        given = {"minimum": -1.0, "outcome_bound": BOUND, **bounds, **options}
        with pytest.raises(ValueError, match=message):
            cls(bandit_gp(), **given)
        with pytest.raises(ValueError, match=message):
            cls.with_options(**given)

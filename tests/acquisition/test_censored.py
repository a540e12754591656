"""Censored feedback in drop-ins: pseudo-rows, widths, units, promises, warnings."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelListGP, SingleTaskGP
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_bandits import (
    BanditGP,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
)
from botorch_bandits.acquisition import BelowMinimumWarning, MinimumLoweredWarning, RingingWarning
from botorch_bandits.models import condition
from botorch_bandits.models.censoring import probe_points

from .cases import (
    MODELS,
    bandit_gp,
    bandit_gp_reference,
    double,
    minima,
    named,
    rows,
    uniform,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning"),
    pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.BadInitialCandidatesWarning"),
    pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.OptimizationWarning"),
    pytest.mark.filterwarnings("ignore::botorch_bandits.acquisition.RingingWarning"),
]

BOUNDS: dict[str, Any] = {"rkhs_bound": 2.0, "noise_bound": 0.1, "outcome_bound": 7.0}
FORMS = {
    "printed": {},
    "any lambda": {"any_lambda": True},
    "bounded": {"bounded_outcomes": True},
    "constant": {"rkhs_bound": None, "noise_bound": None, "width": 1.5, "any_lambda": True},
}
X_TEST = uniform(5, 2, seed=3)
PENDING = uniform(4, 2, seed=4)
SINGLE = [case for case in MODELS if case.kind in ("single", "ensemble")]


def close(actual: Any, expected: Any, tolerance: float = 1e-8) -> bool:
    actual, expected = (
        torch.as_tensor(np.asarray(v.detach() if isinstance(v, Tensor) else v)).double()
        for v in (actual, expected)
    )
    return torch.allclose(actual, expected, rtol=tolerance, atol=tolerance)


def censored(model: Any, **options: Any) -> CensoredUpperConfidenceBound:
    return CensoredUpperConfidenceBound(model, **{"minimum": -1.0, **BOUNDS, **options})


# --- widths ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", SINGLE, ids=lambda case: case.name)
def test_every_form_on_every_model(case: Any, form: str) -> None:
    model = case.build()
    X_pending, x = case.points(3, seed=4), case.points(5, seed=3)
    reference = case.reference(model).censor(X_pending.numpy(), minima(case))
    acqf = censored(
        model,
        minimum=minima(case),
        posterior_transform=case.posterior_transform,
        X_pending=X_pending,
        **FORMS[form],
    )
    width = reference.censored_width(X_pending.numpy(), 2.0, 0.1, 7.0, 0.1, form)
    assert close(acqf.width.reshape(-1), width)
    expected = reference.upper_bound(x.numpy(), width).mean(0)
    assert close(acqf(x.unsqueeze(-2)), expected)
    halved = CensoredThompsonSampling(
        model,
        minimum=minima(case),
        posterior_transform=case.posterior_transform,
        X_pending=X_pending,
        seed=0,
        **{**BOUNDS, **FORMS[form]},
    )
    draw = reference.censored_width(X_pending.numpy(), 2.0, 0.1, 7.0, 0.05, form)
    assert close(halved.width.reshape(-1), draw)


def test_the_window_has_the_queries_that_count() -> None:
    model = bandit_gp()
    reference = bandit_gp_reference().censor(PENDING.numpy(), (-1.0,))
    X = rows()[0].numpy()
    p = PENDING.numpy()

    def width(**options: Any) -> Tensor:
        return censored(model, X_pending=PENDING, **options).width

    def expected(window: np.ndarray) -> np.ndarray:
        return reference.censored_width(window, 2.0, 0.1, 7.0, 0.1)[0]

    assert close(width(), expected(p))
    assert close(width(max_delay=10), expected(p))
    # the k-th from the end is at least k rounds old; of age m and more, none can arrive
    assert close(width(max_delay=3), expected(p[-2:]))
    assert close(width(max_delay=1), expected(p[:0]))
    assert close(width(window="all", max_delay=6), expected(np.vstack([X[-2:], p])))
    assert close(width(window="all", max_delay=2), expected(p[-2:]))
    assert close(width(window="all", max_delay=99), expected(np.vstack([X, p])))
    alone = censored(model, window="all", max_delay=2).width
    assert close(alone, bandit_gp_reference().censored_width(X[-2:], 2.0, 0.1, 7.0, 0.1)[0])


def test_the_window_of_a_list_of_models() -> None:
    model = ModelListGP(bandit_gp(), bandit_gp().with_outcomes(rows()[1][:, :1]))
    weights = ScalarizedPosteriorTransform(double([1.0, 1.0]))
    options = {"minimum": -3.0, "posterior_transform": weights, "X_pending": PENDING}
    acqf = censored(model, window="all", max_delay=6, **options)
    squares = []
    for alone in model.models:  # half of delta for each output
        own = {"minimum": -3.0, "X_pending": PENDING, "delta": 0.05}
        squares.append(float(censored(alone, window="all", max_delay=6, **own).width) ** 2)
    assert close(acqf.width, np.sqrt(sum(squares)))
    fewer = named(MODELS, "ModelListGP, scalarized")  # the second output has fewer rows
    options |= {"minimum": minima(fewer), "posterior_transform": fewer.posterior_transform}
    with pytest.raises(ValueError, match=r"window=.all. needs one set of inputs.*leave it out"):
        censored(fewer.build(), window="all", max_delay=6, **options)


def test_the_scale_of_a_draw_has_a_factor() -> None:
    model = bandit_gp()
    options = {"minimum": -1.0, "max_delay": 6, "X_pending": PENDING}
    scaled = CensoredThompsonSampling(model, **options, **BOUNDS, seed=0, scale=0.5)
    assert close(scaled.width, 0.5 * CensoredThompsonSampling(model, **options, **BOUNDS).width)


# --- pseudo-rows ----------------------------------------------------------------------------


def test_extra_noise_does_not_change_gain_and_lam() -> None:
    model = bandit_gp()
    noisy = censored(model, pseudo_noise=0.5, X_pending=PENDING, any_lambda=True)
    plain = censored(model, X_pending=PENDING, any_lambda=True)
    x = X_TEST[0]
    assert noisy.describe(x)["information_gain"] == plain.describe(x)["information_gain"]
    assert noisy.describe(x)["standard_deviation"] > plain.describe(x)["standard_deviation"]
    assert noisy.width > plain.width  # the deviations at pending points are larger
    assert any("more noise" in gap for gap in noisy.guarantee().gaps)
    with pytest.raises(ValueError, match="extra_noise is -1"):
        condition(model, PENDING, PENDING[:, :1], extra_noise=-1.0)


# --- the minimum ----------------------------------------------------------------------------


def test_an_outcome_below_the_minimum() -> None:
    model = bandit_gp()
    lowest = float(model.train_targets.min())
    with pytest.raises(ValueError, match=r"the known minimum, 0\.2.*on_lower='lower'"):
        censored(model, minimum=0.2)
    with pytest.warns(MinimumLoweredWarning, match="below the known minimum"):
        acqf = censored(model, minimum=0.2, on_lower="lower", X_pending=PENDING)
    assert acqf.pseudo_values == (lowest,)
    assert acqf.model.train_targets[-1].item() == lowest
    assert any("moved to an observed outcome" in gap for gap in acqf.guarantee().gaps)
    # a transform rounds: the minimum itself is not below the minimum
    X, Y = rows()
    censored(SingleTaskGP(X, Y[:, :1]), minimum=float(Y[:, 0].min()))


@pytest.mark.parametrize(
    "name", ["BanditGP", "SingleTaskGP, Standardize", "SingleTaskGP, two outputs, scalarized"]
)
def test_a_proxy_for_an_unknown_minimum(name: str) -> None:
    case = named(MODELS, name)
    model = case.build()
    acqf = censored(
        model,
        minimum=None,
        minimum_proxy=1.5,
        posterior_transform=case.posterior_transform,
        X_pending=PENDING,
    )
    observed = case.observed.numpy()
    expected = []
    for output, weight in zip(
        case.reference(model).members[0], case.weights or (1.0,), strict=True
    ):
        mean, sd = output.posterior(observed)[0], output.deviations(observed)
        expected.append((mean - 1.5 * sd).min() if weight > 0.0 else (mean + 1.5 * sd).max())
    assert close(acqf.pseudo_values, expected)
    assert any("minimum is unknown" in gap for gap in acqf.guarantee().gaps)


def test_a_proxy_without_data_is_made_at_the_pending_points() -> None:
    acqf = censored(bandit_gp(num_rows=0), minimum=None, minimum_proxy=2.0)
    assert acqf.pseudo_values is None
    acqf.guarantee()
    acqf.set_X_pending(PENDING)
    assert close(acqf.pseudo_values, [-2.0 * 2.0**0.5])


# --- ringing --------------------------------------------------------------------------------


def smooth_model(noise: float) -> BanditGP:
    """High outcomes around the points that are pending."""
    ticks = torch.linspace(0.0, 1.0, 4, dtype=torch.float64)
    X = torch.cartesian_prod(ticks, ticks)
    Y = 4.0 - ((X - 0.5) ** 2).sum(-1, keepdim=True)
    kernel = RBFKernel().double()
    kernel.lengthscale = double(0.4)
    return BanditGP(X, Y, kernel=kernel, noise=noise)


NEAR = double([[0.48, 0.5], [0.53, 0.5], [0.5, 0.46], [0.5, 0.55]])


def test_a_posterior_that_rings_is_reported() -> None:
    model = smooth_model(1e-4)
    with pytest.warns(RingingWarning, match="4 pending queries in"):
        acqf = CensoredUpperConfidenceBound(model, minimum=0.0, width=2.0, X_pending=NEAR)
    x = probe_points(NEAR, model.train_inputs[0])
    assert acqf.model.posterior(x).mean.max() > 1.05 * model.posterior(x).mean.max()
    mirrored = model.with_outcomes(-model.train_targets.unsqueeze(-1))
    with pytest.warns(RingingWarning):
        CensoredUpperConfidenceBound(
            mirrored, minimum=0.0, width=2.0, maximize=False, X_pending=NEAR
        )
    with pytest.warns(RingingWarning):
        CensoredThompsonSampling(model, minimum=0.0, width=1.0, X_pending=NEAR, seed=0)


@pytest.mark.parametrize(
    ("noise", "options"),
    [
        (1e-4, {"ringing_tolerance": None}),
        (1e-4, {"pseudo_noise": 1.0, "units": "prior"}),
        (1e-4, {"X_pending": None}),
        (1.1, {}),
    ],
    ids=str,
)
def test_no_warning_where_nothing_rings(noise: float, options: dict[str, Any]) -> None:
    given = {"minimum": 0.0, "width": 2.0, "X_pending": NEAR, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("error", RingingWarning)
        CensoredUpperConfidenceBound(smooth_model(noise), **given)


# --- what is refused, copies ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pass either minimum="),
        ({"minimum": 0.0, "minimum_proxy": 2.0, "width": 1.0}, "pass either minimum="),
        ({"minimum": float("nan"), "width": 1.0}, "minimum is nan"),
        ({"minimum": (0.0, 1.0), "width": 1.0}, "minimum has 2 entries for 1 outputs"),
        ({"minimum": -1.0, "rkhs_bound": 1.0}, "Give noise_bound="),
        (
            {"minimum": -1.0, "rkhs_bound": 1.0, "noise_bound": 0.1},
            "needs outcome_bound=",
        ),
        ({"minimum": -1.0, "bounded_outcomes": True}, "needs outcome_bound="),
        ({"minimum": -1.0, "rkhs_bound": 1.0, "width": 1.0}, "either width="),
        ({"minimum": -1.0, "width": 1.0, "window": "all"}, "pass max_delay=m"),
        ({"minimum": -1.0, "width": 1.0, "window": "some"}, "window is 'some'"),
        ({"minimum": -1.0, "width": 1.0, "max_delay": 0}, "max_delay is 0"),
        ({"minimum": -1.0, "width": 1.0, "pseudo_noise": -1.0}, "pseudo_noise is -1"),
        ({"minimum": -1.0, "width": 1.0, "on_lower": "ignore"}, "on_lower is 'ignore'"),
        ({"minimum_proxy": 2.0, "width": 1.0, "on_lower": "lower"}, "minimum is unknown"),
        ({"minimum": -1.0, "width": 1.0, "scale": 0.0}, "scale is 0"),
        ({"minimum": -1.0, "width": 1.0, "delta": 2.0}, "delta is 2"),
        ({"minimum": -1.0, "width": 1.0, "ringing_tolerance": -0.1}, "ringing_tolerance is -0.1"),
    ],
    ids=str,
)
@pytest.mark.parametrize("cls", [CensoredUpperConfidenceBound, CensoredThompsonSampling])
def test_infeasible_settings_are_refused(cls: type, options: dict[str, Any], message: str) -> None:
    width = {"width": 1.0} if not options else {}
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        cls(bandit_gp(), **options, **width)
    if "2 entries" not in message:  # a recipe does not know the outputs
        with pytest.raises(ValueError, match=message.replace("(", r"\(")):
            cls.with_options(**options, **width)


def test_outcomes_that_noise_takes_below_the_minimum_are_taken_as_they_are() -> None:
    X = double([[0.1, 0.2], [0.4, 0.4], [0.8, 0.6]])
    Y = double([[0.9], [-0.03], [0.4]])
    model = BanditGP(X, Y, RBFKernel().double(), noise=1.1)
    options: dict[str, Any] = {"minimum": 0.0, "outcome_bound": 1.0, "X_pending": PENDING}
    bounds: dict[str, Any] = {**options, "rkhs_bound": 2.0, "noise_bound": 0.1}
    told = set()
    for _ in range(2):
        with pytest.warns(BelowMinimumWarning, match="by no more than") as caught:
            acqf = CensoredUpperConfidenceBound(model, **bounds)
        told |= {(str(each.message), each.filename) for each in caught}
    assert len(told) == 1  # Python shows the same text of the same line once
    assert told.pop()[1] == __file__
    assert acqf.pseudo_values == (0.0,)
    with pytest.warns(BelowMinimumWarning):
        same = CensoredUpperConfidenceBound(model, **{**bounds, "minimum": 0.0, "tolerance": 0.5})
    assert torch.equal(acqf.width, same.width)
    guarantee = acqf.guarantee()
    assert guarantee.holds
    assert any(
        "1 outcome lies below the minimum, by at most 0.03" in a for a in guarantee.assumptions
    )
    with pytest.warns(BelowMinimumWarning):
        one_sided = CensoredUpperConfidenceBound(
            model, **options, rkhs_bound=2.0, bounded_outcomes=True
        )
    assert one_sided.guarantee().gaps == (
        "1 outcome lies below the minimum, but bounded_outcomes=True requires that none does",
    )
    for cls in (CensoredUpperConfidenceBound, CensoredThompsonSampling):
        with pytest.raises(ValueError, match=r"0\.02 that noise explains.*tolerance="):
            cls(model, **options, tolerance=0.02)
    assert cls.with_options(minimum=0.0, width=1.0, tolerance=0.1)

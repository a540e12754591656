"""Thompson sampling: when a draw is made again, of which member it is, and what it promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import MultiTaskGP
from torch import Tensor

from botorch_bandits import Arms, GPThompsonSampling
from botorch_bandits.confidence import ConstantWidth

from .cases import (
    ENSEMBLE_LENGTHSCALES,
    MODELS,
    bandit_gp,
    double,
    named,
    rows,
    uniform,
)
from .test_draws import check_law

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")

ARMS = uniform(6, 2, seed=12)
PENDING = uniform(3, 2, seed=4)
BOUNDS: dict[str, Any] = {"rkhs_bound": 2.0, "noise_bound": 0.1, "delta": 0.1}
KINDS = pytest.mark.parametrize("options", [{}, {"choices": ARMS}], ids=["pathwise", "on arms"])


# --- one draw, and another ------------------------------------------------------------------


@KINDS
def test_seeds_make_draws_reproducible(options: dict[str, Any]) -> None:
    X, model = ARMS.unsqueeze(-2), bandit_gp()

    def two_draws(seed: int | None) -> Tensor:
        acqf = GPThompsonSampling(model, width=2.0, seed=seed, **options)
        first = acqf(X)
        acqf.set_X_pending(ARMS[:1])
        return torch.cat([first, acqf(X)]).detach()

    torch.manual_seed(0)
    before, after = two_draws(7), torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(3), after)  # the caller's numbers are left alone
    assert torch.equal(two_draws(7), before)
    assert not torch.allclose(two_draws(8), before)
    torch.manual_seed(0)  # without a seed, the global generator decides
    first, second = two_draws(None), two_draws(None)
    torch.manual_seed(0)
    assert torch.equal(two_draws(None), first)
    assert not torch.allclose(first, second)


@KINDS
def test_another_rule_scales_the_same_draw_anew(options: dict[str, Any]) -> None:
    X = ARMS.unsqueeze(-2)
    acqf = GPThompsonSampling(bandit_gp(), width=1.0, seed=3, **options)
    acqf(X)
    acqf.set_rule(ConstantWidth(5.0))
    expected = GPThompsonSampling(bandit_gp(), width=5.0, seed=3, **options)
    assert torch.allclose(acqf(X), expected(X), atol=1e-12, rtol=0.0)


# --- pending points at the posterior mean: GP-BTS ---------------------------------------------


def test_the_width_is_that_of_the_observed_data_and_the_rule_on_arms_follows_the_option() -> None:
    options = {**BOUNDS, "choices": ARMS, "seed": 2}
    acqf = GPThompsonSampling(bandit_gp(), pending="hallucinate", X_pending=PENDING, **options)
    observed = GPThompsonSampling(bandit_gp(), **options)
    assert torch.equal(acqf.width, observed.width)
    known, plain = acqf.describe(ARMS[0]), observed.describe(ARMS[0])
    assert known["information_gain"] == plain["information_gain"]
    assert known["standard_deviation"] < plain["standard_deviation"]
    for pending, hallucinates in (("hallucinate", True), ("redraw", False)):
        recipe = GPThompsonSampling.with_options(width=1.0, pending=pending)
        rule = recipe.arms_rule(Arms(ARMS))
        assert rule.takes_pending == hallucinates
    with pytest.raises(ValueError, match="pending is 'forget'"):
        GPThompsonSampling.with_options(width=1.0, pending="forget")


# --- ensembles ------------------------------------------------------------------------------

MEMBERS = len(ENSEMBLE_LENGTHSCALES)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="pathwise", marks=pytest.mark.slow),
        pytest.param({"choices": ARMS}, id="on arms"),
    ],
)
def test_draws_of_each_ensemble_member_have_its_moments(options: dict[str, Any]) -> None:
    case = named(MODELS, "EnsembleMapSaasSingleTaskGP")
    model, v = case.build(), 2.0
    means, covariances = (torch.from_numpy(m) for m in case.reference(model).moments(ARMS.numpy()))
    samples: dict[int, list[Tensor]] = {m: [] for m in range(MEMBERS)}
    for seed in range(300):
        with torch.no_grad():
            plain, drawn = (
                GPThompsonSampling(model, width=width, seed=seed, **options)(ARMS.unsqueeze(-2))
                for width in (1.0, v)
            )
        mean = (v * plain - drawn) / (v - 1.0)
        samples[int((means - mean).abs().amax(-1).argmin())].append(drawn)
    assert min(map(len, samples.values())) > 20
    for m, sample in samples.items():
        check_law(torch.stack(sample), means[m], v**2 * covariances[m])
    with pytest.raises(AssertionError):  # neighbors' moments would not do
        check_law(torch.stack(samples[0]), means[2], v**2 * covariances[2])


# --- what is refused, promised and described --------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rkhs_bound": 1.0}, ValueError, "GPThompsonSampling needs rkhs_bound= and noise_bound="),
        ({"rkhs_bound": 1.0, "noise_bound": 0.1, "width": 1.0}, ValueError, "not both"),
        ({"width": 1.0, "delta": 2.0}, ValueError, "delta is 2.0"),
        ({"width": 1.0, "scale": -1.0}, ValueError, "scale is -1.0"),
        ({"width": 1.0, "seed": -1}, ValueError, "seed is -1"),
        ({"width": 1.0, "seed": 0.5}, TypeError, "seed must be an integer"),
        ({"width": 1.0, "choices": ARMS.float()}, TypeError, "choices has dtype torch.float32"),
        ({"width": 1.0, "choices": ARMS[[0, 0]]}, ValueError, "rows 0 and 1 are the same point"),
        ({"width": 1.0, "choices": ARMS[0]}, ValueError, "choices must be a matrix"),
    ],
)
def test_infeasible_options_are_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        GPThompsonSampling(bandit_gp(), **options)


def test_several_outputs_need_a_transform_and_several_tasks_choices() -> None:
    model = named(MODELS, "SingleTaskGP, two outputs, scalarized").build()
    with pytest.raises(UnsupportedError, match="outputs; pass a posterior_transform"):
        GPThompsonSampling(model, width=1.0)
    X, Y = rows()
    Z = torch.cat([X, torch.arange(len(X)).remainder(2).to(X).unsqueeze(-1)], dim=-1)
    tasks = MultiTaskGP(Z, Y[:, :1], task_feature=-1)
    transform = ScalarizedPosteriorTransform(double([1.0, 0.5]))
    with pytest.raises(UnsupportedError, match="Pass choices=, a finite"):
        GPThompsonSampling(tasks, seed=0, posterior_transform=transform)(X[:1])

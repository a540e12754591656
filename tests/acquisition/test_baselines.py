"""Expected improvement and random search."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskVariationalGP
from botorch.optim import optimize_acqf_discrete
from gpytorch.kernels import RBFKernel

from botorch_bandits import BanditGP, ExpectedImprovement, RandomSearch

from .cases import MODELS, bandit_gp, bandit_gp_reference, double, named, rows, uniform

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")

x = uniform(6, 2, seed=3)
X_OBSERVED, OUTCOMES = rows()
Y_OBSERVED = OUTCOMES[:, 1:]
PENDING = uniform(3, 2, seed=4)


def improvement(best: float, pending: Any = None, maximize: bool = True) -> torch.Tensor:
    """The textbook value of the model of ``bandit_gp``."""
    reference = bandit_gp_reference()
    if pending is not None:
        reference = reference.hallucinate(pending.numpy())
    values = reference.log_expected_improvement(x.numpy(), np.array([best]), maximize)
    return torch.from_numpy(values[0])


def test_it_is_an_expectation() -> None:
    # E[max(f - best, 0)] by numerical integration over the normal density
    mean, sd = (float(v[0, 0]) for v in bandit_gp_reference().mean_and_sd(x[:1].numpy()))
    grid = np.linspace(mean - 12 * sd, mean + 12 * sd, 400_001)
    density = np.exp(-0.5 * ((grid - mean) / sd) ** 2) / (sd * math.sqrt(2 * math.pi))
    expected = math.log(np.trapezoid(np.clip(grid - 0.3, 0.0, None) * density, grid))
    acqf = ExpectedImprovement(bandit_gp(), best_f=0.3)
    assert float(acqf(x[:1])) == pytest.approx(expected, abs=1e-6)
    assert isinstance(acqf, LogExpectedImprovement)


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("incumbent", ["posterior_mean", "observed", "given"])
def test_incumbents(incumbent: str, maximize: bool) -> None:
    extreme = np.max if maximize else np.min
    if incumbent == "posterior_mean":
        options: dict[str, Any] = {"X_observed": X_OBSERVED}
        best = extreme(bandit_gp_reference().moments(X_OBSERVED.numpy())[0])
    elif incumbent == "observed":
        options = {"incumbent": "observed", "Y_observed": Y_OBSERVED}
        best = extreme(Y_OBSERVED.numpy())
    else:
        options, best = {"best_f": 0.1}, 0.1
    acqf = ExpectedImprovement(bandit_gp(), maximize=maximize, **options)
    assert torch.allclose(acqf(x.unsqueeze(-2)), improvement(best, None, maximize), atol=1e-8)
    assert float(acqf.best_f) == pytest.approx(best, abs=1e-10)


def test_a_weight_of_minus_one_turns_observed_outcomes_too() -> None:
    case = named(MODELS, "SingleTaskGP, weight -1")
    y = OUTCOMES[:, :1]
    acqf = ExpectedImprovement(
        case.build(),
        incumbent="observed",
        Y_observed=y,
        posterior_transform=case.posterior_transform,
    )
    mirrored = ExpectedImprovement(case.build(), incumbent="observed", Y_observed=y, maximize=False)
    assert float(acqf.best_f) == -float(y.min())
    assert torch.allclose(acqf(x.unsqueeze(-2)), mirrored(x.unsqueeze(-2)), atol=1e-10)


@pytest.mark.parametrize("maximize", [True, False])
def test_pending_points_raise_the_incumbent(maximize: bool) -> None:
    # Their outcomes are taken to be the posterior mean. Were the incumbent not raised to that, a
    # pending point that promises an improvement would promise it for ever.
    reference = bandit_gp_reference()
    sign = 1.0 if maximize else -1.0
    best = sign * max(
        (sign * reference.moments(points.numpy())[0]).max() for points in (X_OBSERVED, PENDING)
    )
    acqf = ExpectedImprovement(bandit_gp(), X_observed=X_OBSERVED, maximize=maximize)
    alone = float(acqf.best_f)
    acqf.set_X_pending(PENDING)
    expected = improvement(best, PENDING, maximize)
    assert torch.allclose(acqf(x.unsqueeze(-2)), expected, atol=1e-8)
    acqf.set_X_pending(None)
    assert float(acqf.best_f) == alone


def test_picks_of_one_batch_differ_though_the_incumbent_is_low() -> None:
    choices = torch.cat([x, PENDING, X_OBSERVED])
    acqf = ExpectedImprovement(bandit_gp(noise=1e-4), best_f=-1.0)
    picks, _ = optimize_acqf_discrete(acqf, q=3, choices=choices, unique=False)
    assert len(torch.unique(picks, dim=0)) == 3


def test_nothing_observed_means_improvement_over_the_prior_mean() -> None:
    acqf = ExpectedImprovement(bandit_gp(num_rows=0), X_observed=X_OBSERVED[:0])
    # sd = sqrt(2): E[max(f, 0)] = sd / sqrt(2 pi)
    expected = math.log(math.sqrt(2.0) / math.sqrt(2.0 * math.pi))
    assert acqf(x.unsqueeze(-2)).tolist() == pytest.approx([expected] * 6, abs=1e-10)


def test_far_below_the_incumbent_it_still_has_a_slope() -> None:
    # 40 and more standard deviations below, expected improvement itself underflows to 0
    kernel = RBFKernel().double()
    model = BanditGP(double([[0.0], [1.0]]), double([[0.0], [0.1]]), kernel=kernel, noise=0.01)
    acqf = ExpectedImprovement(model, best_f=60.0)
    at = double([[0.5]]).requires_grad_()
    value = acqf(at)
    slope = torch.autograd.grad(value.sum(), at)[0]
    assert -math.inf < value.item() < -745.0  # exp of it is 0 in float64
    assert slope.abs().max() > 1e-3


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, r"incumbent='posterior_mean' needs X_observed= or best_f="),
        ({"incumbent": "observed"}, ValueError, "needs Y_observed= or best_f="),
        ({"incumbent": "best"}, ValueError, "'posterior_mean', 'observed'"),
        ({"best_f": math.inf}, ValueError, "best_f is inf"),
        ({"X_observed": X_OBSERVED.float()}, TypeError, "X_observed has dtype torch.float32"),
        (
            {"incumbent": "observed", "Y_observed": Y_OBSERVED.float()},
            TypeError,
            "Y_observed has dtype torch.float32",
        ),
    ],
)
def test_infeasible_options_are_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ExpectedImprovement(bandit_gp(), **options)


def test_a_model_that_cannot_be_conditioned_refuses_pending_points_only() -> None:
    model = SingleTaskVariationalGP(X_OBSERVED, Y_OBSERVED, inducing_points=5).double().eval()
    acqf = ExpectedImprovement(model, best_f=0.0)
    before = acqf(x.unsqueeze(-2)).detach()
    with pytest.raises(UnsupportedError, match="SingleTaskVariationalGP cannot take"):
        acqf.set_X_pending(PENDING)
    assert acqf.X_pending is None
    assert torch.equal(acqf(x.unsqueeze(-2)), before)


def test_it_promises_nothing_and_describes_its_value() -> None:
    acqf = ExpectedImprovement(bandit_gp(), best_f=0.3)
    guarantee = acqf.guarantee()
    assert not guarantee.holds
    assert guarantee.theorem is None
    assert "no theorem here applies" in str(guarantee)
    assert acqf.describe(x[0]) == {"acquisition_value": float(acqf(x[:1]))}


def test_random_searches_are_equal() -> None:
    assert RandomSearch() == RandomSearch()

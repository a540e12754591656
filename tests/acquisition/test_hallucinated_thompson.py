"""Thompson sampling with hallucinated pending points, GP-BTS: on arms, and as a drop-in."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from botorch.models import SingleTaskVariationalGP
from torch import Tensor

from botorch_bandits import Arms, GPThompsonSampling
from botorch_bandits.acquisition.player import Player
from botorch_bandits.acquisition.rules import ThompsonArmsRule
from botorch_bandits.confidence import ConstantWidth
from botorch_bandits.core.priors import Table
from botorch_bandits.core.rows import Rows
from botorch_bandits.models.reading import hallucinate

from .cases import bandit_gp, rows, uniform

CHOICES = uniform(6, 2, seed=3)
PENDING = uniform(3, 2, seed=4)
BOUNDS: dict[str, Any] = {"rkhs_bound": 2.0, "noise_bound": 0.1}


@pytest.mark.slow
def test_draws_of_gp_bts_have_the_hallucinated_moments() -> None:
    points = torch.linspace(0, 1, 8, dtype=torch.float64).unsqueeze(-1)
    K = torch.exp(-(torch.cdist(points, points) ** 2) / (2 * 0.3**2))
    width, lam = 1.5, 0.1
    rule = ThompsonArmsRule(ConstantWidth(width), hallucinates=True)
    player = Player(rule, Table.from_matrix(K), lam, 1.0, 0, prior_mean=0.3)
    arms, outcomes = torch.tensor([1, 6]), torch.tensor([1.0, -0.5], dtype=torch.float64)
    pending = torch.tensor([2, 2, 5])
    told, waiting = (
        Rows(index, Y.unsqueeze(-1), torch.ones_like(Y))
        for index, Y in ((arms, outcomes), (pending, torch.zeros(3, dtype=torch.float64)))
    )
    seen = (player.look(t, told, pending=waiting) for t in range(1, 6001))
    draws = torch.stack([each.scores for each in seen])

    def gains(rows: torch.Tensor) -> torch.Tensor:
        ridge = lam * torch.eye(len(rows), dtype=torch.float64)
        return torch.linalg.solve(K[rows][:, rows] + ridge, K[rows]).mT

    everything = torch.cat([arms, pending])
    mean = 0.3 + gains(arms) @ (outcomes - 0.3)
    covariance = width**2 * (K - gains(everything) @ K[everything])
    assert torch.allclose(draws.mean(0), mean, atol=0.06, rtol=0)
    assert torch.allclose(draws.T.cov(), covariance, atol=0.06, rtol=0)


def joint(model: object, X: Tensor) -> tuple[Tensor, Tensor]:
    """Posterior mean and covariance."""
    posterior = model.posterior(X)  # type: ignore[attr-defined]
    return posterior.mean.squeeze(-1), posterior.distribution.covariance_matrix


def shrunk(X: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """Mean of the model and its covariance, less what pending points explain; textbook."""
    mean, covariance = joint(bandit_gp(), torch.cat([X, PENDING]))
    n = len(X)
    block = covariance[n:, n:] + noise * torch.eye(len(PENDING), dtype=torch.float64)
    explained = covariance[:n, n:] @ torch.linalg.solve(block, covariance[n:, :n])
    return mean[:n], covariance[:n, :n] - explained


def test_a_drop_in_draws_from_the_hallucinated_posterior() -> None:
    model = bandit_gp()
    noise = float(model.likelihood.noise.mean())
    before = joint(model, CHOICES)
    acqf = GPThompsonSampling(
        model, **BOUNDS, choices=CHOICES, pending="hallucinate", X_pending=PENDING, seed=2
    )
    mean, covariance = shrunk(CHOICES, noise)
    found = joint(acqf.model, CHOICES)
    assert torch.allclose(found[0], mean, atol=1e-8)
    assert torch.allclose(found[1], covariance, atol=1e-8)
    observed = GPThompsonSampling(model, **BOUNDS, choices=CHOICES, seed=2)
    assert torch.equal(acqf.width, observed.width)  # of the observed data alone
    described = acqf.describe(CHOICES[0])
    assert described["standard_deviation"] == pytest.approx(float(covariance[0, 0].sqrt()), 1e-7)
    assert described["information_gain"] == observed.describe(CHOICES[0])["information_gain"]
    # the draw itself: the same numbers through a root of the smaller covariance
    same = GPThompsonSampling(acqf.model, width=float(acqf.width), choices=CHOICES, seed=2)
    values = acqf(CHOICES.unsqueeze(-2))
    assert torch.allclose(values, same(CHOICES.unsqueeze(-2)), atol=1e-10)
    assert "3 pending points enter at the posterior mean" in acqf.guarantee().gaps
    # the user's model is as it was, and each set of points starts from it
    assert all(torch.equal(a, b) for a, b in zip(before, joint(model, CHOICES), strict=True))
    acqf.set_X_pending(PENDING[:1])
    assert acqf.model.train_targets.shape[-1] == model.train_targets.shape[-1] + 1
    acqf.set_X_pending(None)
    assert acqf.model is model
    for copied in (copy.deepcopy(acqf), pickle.loads(pickle.dumps(acqf))):
        copied.set_X_pending(PENDING)
        assert torch.allclose(joint(copied.model, CHOICES)[1], covariance, atol=1e-8)


def test_redrawing_leaves_the_model_alone() -> None:
    model = bandit_gp()
    acqf = GPThompsonSampling(model, width=1.0, choices=CHOICES, X_pending=PENDING, seed=2)
    assert acqf.model is model
    assert "3 outcomes are pending" in acqf.guarantee().gaps


def test_pathwise_draws_are_of_the_hallucinated_model() -> None:
    model = bandit_gp()
    options: dict[str, Any] = {"width": 1.5, "seed": 0}
    acqf = GPThompsonSampling(model, pending="hallucinate", X_pending=PENDING, **options)
    same = GPThompsonSampling(hallucinate(model, PENDING), **options)
    X = torch.cat([CHOICES, PENDING]).unsqueeze(-2)
    assert torch.allclose(acqf(X), same(X), atol=1e-10)
    redrawn = GPThompsonSampling(model, X_pending=PENDING, **options)
    assert not torch.allclose(acqf(X), redrawn(X), atol=1e-2)


def test_the_rule_on_arms_follows_the_option() -> None:
    arms = Arms(CHOICES)
    recipe = GPThompsonSampling.with_options(width=1.0, pending="hallucinate")
    plain = GPThompsonSampling.with_options(width=1.0)
    for given, hallucinates in ((recipe, True), (plain, False)):
        rule = given.arms_rule(arms)
        assert isinstance(rule, ThompsonArmsRule)
        assert rule.hallucinates is hallucinates
    with pytest.raises(ValueError, match="pending is 'forget'"):
        GPThompsonSampling.with_options(width=1.0, pending="forget")


def test_draws_of_a_variational_model_have_hallucinated_moments() -> None:
    X, Y = rows()
    model = SingleTaskVariationalGP(X, Y[:, :1], inducing_points=5).double().eval()
    acqf = GPThompsonSampling(
        model, width=1.0, choices=CHOICES, pending="hallucinate", seed=0, X_pending=PENDING
    )
    posterior = acqf.model.posterior(CHOICES)
    joint = model.posterior(torch.cat([PENDING, CHOICES])).distribution.covariance_matrix.detach()
    count = len(PENDING)
    noisy = joint[:count, :count] + float(model.likelihood.noise) * torch.eye(count).double()
    cross = joint[:count, count:]
    expected = joint[count:, count:] - cross.T @ torch.linalg.solve(noisy, cross)
    found = posterior.distribution.covariance_matrix.detach()
    assert torch.allclose(found, expected, atol=1e-10)
    assert acqf(CHOICES.unsqueeze(-2)).isfinite().all()

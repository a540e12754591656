"""A list of priors: posteriors, evidence and survivors against explicit linear algebra."""

from __future__ import annotations

import math
import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Tensor

from botorch_bandits import (
    Arms,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
)
from botorch_bandits.acquisition.rules import Player, player_of
from botorch_bandits.confidence.candidates import CandidateEvidence, RefutedListWarning
from botorch_bandits.core.posterior import Rows
from botorch_bandits.models import BanditGP, candidates
from botorch_bandits.models.candidates import NUM_MEMBERS, CandidatesModel, CandidatesRecipe
from botorch_bandits.models.prior_lists import (
    DefaultCandidates,
    candidate_grid,
    draw_lengthscales,
    lengthscale_ladder,
)
from models.textbook import double, line, linear, matern, posterior, squared_exponential, uniform

KINDS: dict[float, Callable[..., Any]] = {
    2.5: lambda length, scale: matern(2.5, length, scale),
    0.5: lambda length, scale: matern(0.5, length, scale),
    math.inf: squared_exponential,
}


def settings(
    lengthscales: list[Any], ratios: list[float], scales: list[float], kinds: list[float]
) -> list[tuple[float, Any, float, float, float]]:
    """The entries of ``candidate_grid`` in its order, without its classes."""
    return [
        (nu, length, scale, ratio * scale, mean)
        for nu in kinds
        for length in lengthscales
        for ratio in ratios
        for mean in (0.0, 0.7)
        for scale in scales
    ]


REPEATS = double([1.0, 20.0, 0.3] * 3 + [1.0] * 141)
"""The weights of rows."""


def built(recipe: CandidatesRecipe, X: Tensor, y: Tensor) -> CandidatesModel:
    return recipe(X, y.unsqueeze(-1), REPEATS[: len(y)])


def textbook(
    entry: tuple[float, Any, float, float, float],
    X: Tensor,
    y: Tensor,
    points: Tensor,
    repeats: Tensor = REPEATS,
) -> tuple[Tensor, Tensor]:
    nu, length, scale, noise, mean = entry
    kernel = KINDS[nu](double(length), scale)
    if len(X) == 0:
        return torch.full((len(points),), mean, dtype=torch.float64), kernel(points, points)
    found, covariance = posterior(kernel, X, y - mean, noise / repeats[: len(X)], points)
    return found + mean, covariance


def log_likelihood(entry: tuple[float, Any, float, float, float], X: Tensor, y: Tensor) -> float:
    """The joint density of all outcomes at once, not one after the other."""
    nu, length, scale, noise, mean = entry
    covariance = KINDS[nu](double(length), scale)(X, X) + (noise / REPEATS[: len(X)]).diag()
    residual = y - mean
    fit = residual @ torch.linalg.solve(covariance, residual)
    return float(-0.5 * (fit + torch.logdet(covariance) + len(X) * math.log(2.0 * math.pi)))


ENTRIES = settings([0.2, [0.3, 0.6]], [0.01, 0.2], [0.5, 3.0], [0.5, 2.5, math.inf])


@pytest.fixture(scope="module")
def recipe() -> CandidatesRecipe:
    priors = candidate_grid(
        [0.2, [0.3, 0.6]],
        [0.01, 0.2],
        [0.5, 3.0],
        smoothness=[0.5, 2.5, math.inf],
        prior_means=[0.0, 0.7],
    )
    return BanditGP.with_candidates(priors, weights=[1.0 + k % 3 for k in range(len(priors))])


def weights() -> Tensor:
    given = double([1.0 + k % 3 for k in range(len(ENTRIES))])
    return given / given.sum()


def rows(num_rows: int) -> tuple[Tensor, Tensor]:
    X = uniform(num_rows, 2, seed=1)
    return X, torch.sin(6.0 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * uniform(num_rows, seed=2)


def expected_evidence(X: Tensor, y: Tensor) -> Tensor:
    """``ln e_t`` of all entries for all t, from joint densities of the first t outcomes."""
    joint = double(
        [[log_likelihood(e, X[:t], y[:t]) for e in ENTRIES] for t in range(1, len(X) + 1)]
    )
    return torch.logsumexp(joint + weights().log(), dim=-1, keepdim=True) - joint


def test_evidence_is_that_of_joint_densities(recipe: CandidatesRecipe) -> None:
    X, y = rows(9)
    evidence = built(recipe, X, y).evidence
    expected = expected_evidence(X, y)
    close(evidence.path, expected)
    close(evidence.log_evidence_against, expected[-1])
    posterior_weights = weights() * torch.exp(-expected[-1])
    close(evidence.posterior_weights, posterior_weights)
    level = 0.3
    alive = (expected < math.log(1.0 / level)).all(0)
    assert evidence.survivors(level).tolist() == alive.tolist()
    assert 0 < int(alive.sum()) < len(ENTRIES)
    for k, after in enumerate(evidence.eliminated_after(level)):
        over = (expected[:, k] >= math.log(1.0 / level)).nonzero().reshape(-1)
        assert after == (int(over[0]) + 1 if len(over) else None)


def all_moments(X: Tensor, y: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    each = [textbook(entry, X, y, points) for entry in ENTRIES]
    means = torch.stack([mean for mean, _ in each])
    return means, torch.stack([covariance.diagonal() for _, covariance in each])


def close(found: Any, expected: Any, atol: float = 1e-8) -> None:
    """Compare tensors, or arrays."""
    if isinstance(found, np.ndarray):
        found, expected = torch.from_numpy(found), torch.as_tensor(expected)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=atol)


@pytest.mark.parametrize("num_rows", [0, 9])
def test_moments_bounds_and_mixture(recipe: CandidatesRecipe, num_rows: int) -> None:
    X, y = rows(num_rows)
    points = uniform(5, 2, seed=3)
    model, groups = built(recipe, X, y), recipe.groups
    assert (recipe.num_candidates, len(groups)) == (48, 24)  # scales share a factor
    means, variances = all_moments(X, y, points)
    moments = model.group_moments(points)
    close(moments[0][groups.group_of], means)
    scales = torch.from_numpy(groups.scales).unsqueeze(-1)
    close(moments[1][groups.group_of] * scales, variances)
    alive = torch.from_numpy(model.evidence.survivors(0.3))
    widths = 1.0 + uniform(len(ENTRIES), seed=4)
    half = widths.unsqueeze(-1) * variances.sqrt()
    lower, upper = groups.bounds(*moments, widths.numpy(), alive.numpy())
    close(upper, (means + half)[alive].amax(0))
    close(lower, (means - half)[alive].amin(0))
    p = torch.from_numpy(model.evidence.posterior_weights).unsqueeze(-1)
    mixed = (p * means).sum(0)
    mean, variance = model.mixture(points)
    close(mean, mixed)
    close(variance, (p * (variances + (means - mixed) ** 2)).sum(0))
    noises = double([entry[3] for entry in ENTRIES])
    ratio = (noises / variances[:, 0])[alive].min()
    assert model.least_noise_ratio(points[0], alive.numpy()) == pytest.approx(float(ratio))


def test_hallucinated_rows_are_no_evidence(recipe: CandidatesRecipe) -> None:
    X, y = rows(9)
    points, pending = uniform(4, 2, seed=3), uniform(2, 2, seed=5)
    model = built(recipe, X, y)
    seen = model.hallucinated(pending)
    assert (seen.evidence.path == model.evidence.path).all()
    mean, variance = seen.group_moments(points)
    close(mean, model.group_moments(points)[0])
    made_up = torch.cat([y, torch.zeros(2).double()])
    _, variances = all_moments(torch.cat([X, pending]), made_up, points)
    scales = torch.from_numpy(recipe.groups.scales).unsqueeze(-1)
    close(variance[recipe.groups.group_of] * scales, variances)


def player_of_list(recipe: CandidatesRecipe, choices: Tensor, draws: bool = False) -> Player:
    acquisition = (
        CandidatesThompsonSampling.with_options()
        if draws
        else CandidatesUpperConfidenceBound.with_options(width=2.0, delta=0.1)
    )
    player = player_of(recipe, acquisition, Arms(choices), 0)
    assert player is not None
    return player


def rows_on_arms(arms: list[int], outcomes: list[float]) -> Rows:
    Y = double(outcomes).reshape(-1, 1)
    return Rows(torch.tensor(arms, dtype=torch.long), Y, 1.0 / REPEATS[: len(arms)])


def test_arms_agree_with_the_model_through_every_form_of_the_posterior() -> None:
    priors = candidate_grid([0.1, 0.4], [0.05], [0.5, 2.0], prior_means=[0.0, 1.0])
    recipe = BanditGP.with_candidates(priors)
    choices = uniform(40, 1, seed=7)
    player = player_of_list(recipe, choices)
    generator = torch.Generator().manual_seed(3)
    played = torch.randint(40, (150,), generator=generator).tolist()
    noise = torch.randn(150, dtype=torch.float64, generator=generator)
    pairs = zip(played, noise, strict=True)
    outcomes = [math.sin(8.0 * float(choices[a])) + 0.2 * float(e) for a, e in pairs]
    for count in (1, 5, 64, 65, 100, 150):
        told = rows_on_arms(played[:count], outcomes[:count])
        posterior = player.condition(told)
        model = built(recipe, choices[played[:count]], double(outcomes[:count]))
        known = model.evidence.log_evidence_against
        close(player.evidence.log_evidence_against, known)
        mean, variance = model.group_moments(choices)
        close(posterior.mean[:, 0], mean)
        close(posterior.variance, variance)
    waiting = [3, 3, 17]
    at_once = model.hallucinated(choices[waiting])
    pending = replace(rows_on_arms(waiting, [0.0] * 3), noise=torch.ones(3).double())
    seen = player.look(151, told, pending=pending)
    rule: Any = player.rule
    in_force = model.evidence.in_force(rule.widths.level)
    bounds = recipe.groups.bounds(*at_once.group_moments(choices), 2.0, in_force)
    for a, b in zip(seen.prepared, bounds, strict=True):
        close(a, b)
    mean, variance = model.mixture(choices)
    close(rule.known(seen).mean, mean)
    close(rule.known(seen).deviation.square(), variance)


def test_draws_on_arms_have_the_moments_of_their_entry() -> None:
    entries = (0.3, 0.5), (0.1, 4.0)  # of different groups, with different roots
    priors = [candidate_grid([length], [0.1], [scale])[0] for length, scale in entries]
    recipe = BanditGP.with_candidates(priors)
    player = player_of_list(recipe, uniform(4, 1, seed=7), draws=True)
    told = rows_on_arms([0, 2, 2], [1.0, -0.5, 0.3])
    seen = [player.look(t, told) for t in range(1, 4001)]
    drawn = torch.tensor([each.prepared for each in seen])
    weights = player.evidence.posterior_weights
    X, y = player.rule_domain.choices, told.Y[:, 0]
    for entry, (length, scale) in enumerate(entries):
        own = [each.scores for each, k in zip(seen, drawn, strict=True) if k == entry]
        assert len(own) / 4000 == pytest.approx(float(weights[entry]), abs=0.04)
        draws = torch.stack(own)
        mean, covariance = textbook((2.5, length, scale, 0.1 * scale, 0.0), X[[0, 2, 2]], y, X)
        error = covariance.diagonal().sqrt() / math.sqrt(len(draws))
        assert bool(((draws.mean(0) - mean).abs() < 5.0 * error).all())
        assert float((draws.T.cov() - covariance).abs().max()) < 0.075 * scale


def test_first_outcomes_can_be_left_out_of_the_evidence() -> None:
    priors = candidate_grid([0.2, [0.3, 0.6]], [0.01], [1.0])
    X, y = rows(8)
    later = BanditGP.with_candidates(priors, num_skipped=3)
    evidence = built(later, X, y).evidence
    assert evidence.num_outcomes == 5
    entries = [(2.5, 0.2, 1.0, 0.01, 0.0), (2.5, [0.3, 0.6], 1.0, 0.01, 0.0)]
    # the density of the later outcomes given the first three
    conditional = double(
        [log_likelihood(e, X, y) - log_likelihood(e, X[:3], y[:3]) for e in entries]
    )
    expected = torch.logsumexp(conditional + math.log(0.5), 0) - conditional
    close(evidence.log_evidence_against, expected)
    player = player_of_list(later, X)
    player.condition(rows_on_arms(list(range(8)), y.tolist()))
    close(player.evidence.log_evidence_against, expected)


def test_any_kernel_and_any_transform_can_be_on_the_list() -> None:
    X, y = rows(7)
    transform = Normalize(2, bounds=double([[0.0, 0.0], [2.0, 4.0]]))
    kernels = [LinearKernel().double(), RBFKernel().double()]
    kernels[0].variance = double([[[0.5]]])
    kernels[1].lengthscale = double(0.3)
    recipe = BanditGP.with_candidates(
        [BanditGP.with_kernel(k, noise=0.1, input_transform=transform) for k in kernels]
    )
    model = recipe(X, y.unsqueeze(-1))
    points = uniform(4, 2, seed=3)
    mean, variance = model.group_moments(points)
    scaled, at = X / double([2.0, 4.0]), points / double([2.0, 4.0])
    for k, kernel in enumerate([linear(0.5), squared_exponential(0.3)]):
        found, covariance = posterior(kernel, scaled, y, 0.1, at)
        close(mean[k], found)
        close(variance[k], covariance.diagonal())


def test_a_refuted_list_is_told() -> None:
    priors = candidate_grid([0.1, 0.2], [0.01], [1.0])
    recipe = BanditGP.with_candidates(priors, names=["short", "long"])
    X = torch.zeros(3, 1).double()
    evidence = recipe(X, double([[0.0], [0.0], [0.0]])).evidence
    assert evidence.refuted_after(0.05) is None
    # a mixture cannot refute all of its own entries at once; one after the other it can
    evidence = CandidateEvidence([1.0, 1.0], names=["short", "long"])
    evidence.update([-9.0, 0.0])
    evidence.update([0.0, -30.0])
    assert evidence.survivors(0.05).tolist() == [False, False]
    assert evidence.refuted_after(0.05) == 2
    assert evidence.in_force(0.05).tolist() == [True, True]
    with pytest.warns(RefutedListWarning, match="short, long"):
        evidence.warn_if_refuted(0.05)
    rows = evidence.table(0.05)
    assert [row.eliminated_after for row in rows] == [1, 2]
    assert not any(row.survives for row in rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evidence.warn_if_refuted(1e-30)


def test_members_are_there_as_often_as_their_weight_says(recipe: CandidatesRecipe) -> None:
    X, y = rows(9)
    model = built(recipe, X, y)
    shares = torch.bincount(torch.tensor(model.members), minlength=48) / NUM_MEMBERS
    assert len(model.members) == NUM_MEMBERS
    assert float(abs(shares.numpy() - model.evidence.posterior_weights).max()) < 1.0 / NUM_MEMBERS
    points = uniform(3, 2, seed=3)
    found = model.posterior(points, observation_noise=True)
    each = model.posterior(points.unsqueeze(-2), observation_noise=True)
    assert each.mean.shape == (3, NUM_MEMBERS, 1, 1)
    for place, k in enumerate(model.members):
        mean, covariance = textbook(ENTRIES[k], X, y, points)
        noisy = covariance + ENTRIES[k][3] * torch.eye(3)
        close(each.mean[:, place, 0, 0], mean)
        close(each.variance[:, place, 0, 0], noisy.diagonal())
        close(found.mean[place, :, 0], mean)
        close(found.distribution.covariance_matrix[place], noisy)


def single_task(X: Tensor, y: Tensor, length: float, noise: float) -> SingleTaskGP:
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = double(length)
    likelihood = GaussianLikelihood().double()
    likelihood.noise = double(noise)
    model = SingleTaskGP(
        X,
        y.unsqueeze(-1),
        likelihood=likelihood,
        covar_module=kernel,
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    return model.eval()


def test_a_list_of_own_models_is_the_same_list() -> None:
    X, y = rows(8)
    own = CandidatesModel.from_models(
        [single_task(X, y, 0.2, 0.1), single_task(X, y, 0.6, 0.1)], weights=[2.0, 1.0]
    )
    priors = candidate_grid([0.2, 0.6], [0.1])
    same = BanditGP.with_candidates(priors, weights=[2.0, 1.0])(X, y.unsqueeze(-1))
    close(own.evidence.path, same.evidence.path)
    points = uniform(4, 2, seed=3)
    for found, expected in zip(own.mixture(points), same.mixture(points), strict=True):
        close(found, expected)
    member = own.condition_on_observations(X[:1], y[:1].unsqueeze(-1)).member(1)
    entry = (2.5, 0.6, 1.0, 0.1, 0.0)
    mean, _ = textbook(entry, X[[*range(8), 0]], y[[*range(8), 0]], points, torch.ones(9))
    found = member.posterior(points).mean.squeeze(-1)
    close(found, mean, 1e-6)


def test_own_models_that_do_not_go_are_refused() -> None:
    X, y = rows(8)
    first = single_task(X, y, 0.2, 0.1)
    standardized = SingleTaskGP(X, y.unsqueeze(-1), outcome_transform=Standardize(1))
    with pytest.raises(ValueError, match="outcome_transform=None"):
        CandidatesModel.from_models([first, standardized])
    with pytest.raises(ValueError, match=r"rows of models.*differ"):
        CandidatesModel.from_models([first, single_task(X[:5], y[:5], 0.2, 0.1)])
    with pytest.raises(ValueError, match="models is empty"):
        CandidatesModel.from_models([])


def test_bad_lists_are_refused() -> None:
    priors = candidate_grid([0.2, 0.5])
    with pytest.raises(ValueError, match="candidates is empty"):
        BanditGP.with_candidates([])
    with pytest.raises(TypeError, match="with_kernel"):
        BanditGP.with_candidates([RBFKernel()])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="refit_every"):
        BanditGP.with_candidates([BanditGP.with_kernel(RBFKernel(), refit_every=5)])
    with pytest.raises(ValueError, match=r"weights\[1\]"):
        BanditGP.with_candidates(priors, weights=[1.0, 0.0])
    with pytest.raises(ValueError, match="weights has 1"):
        BanditGP.with_candidates(priors, weights=[1.0])
    learning = BanditGP.with_kernel(RBFKernel(), input_transform=Normalize(2))
    with pytest.raises(ValueError, match="learns its scale"):
        BanditGP.with_candidates([learning])
    other = BanditGP.with_kernel(
        RBFKernel(), input_transform=Normalize(1, bounds=double([[0.0], [2.0]]))
    )
    with pytest.raises(ValueError, match="input transforms of"):
        BanditGP.with_candidates([priors[0], other])
    recipe = BanditGP.with_candidates(priors)
    with pytest.raises(ValueError, match="n x 1"):
        recipe(uniform(3, 1, seed=0), uniform(3, seed=0))
    with pytest.raises(TypeError, match="float64"):
        recipe(uniform(3, 1, seed=0).float(), uniform(3, 1, seed=0))
    with pytest.raises(ValueError, match="smoothness"):
        candidate_grid([0.2], smoothness=[2.0])


def test_recipes_are_compared_and_pickled(recipe: CandidatesRecipe) -> None:
    again: CandidatesRecipe = pickle.loads(pickle.dumps(recipe))
    assert again == recipe
    assert hash(again) == hash(recipe)
    assert recipe != CandidatesRecipe(recipe.candidates)
    X, y = rows(5)
    model = recipe(X, y.unsqueeze(-1))
    unpickled = pickle.loads(pickle.dumps(model))
    points = uniform(3, 2, seed=3)
    assert torch.equal(unpickled.mixture(points)[0], model.mixture(points)[0])


def test_ladders_and_draws() -> None:
    assert lengthscale_ladder(4) == pytest.approx((0.1, 0.2, 0.4, 0.8, 1.6))
    draws = double(draw_lengthscales(3, 1024, seed=5))
    assert draw_lengthscales(3, 1024, seed=5) == tuple(map(tuple, draws.tolist()))
    assert draw_lengthscales(3, 4, seed=6) != draw_lengthscales(3, 4, seed=5)
    # log-normal with mean sqrt(2) + ln(d)/2 and standard deviation sqrt(3), cut at 0.025
    logs = draws.log()
    median = math.sqrt(2.0) + 0.5 * math.log(3.0)
    torch.testing.assert_close(
        logs.median(0).values, torch.full((3,), median).double(), rtol=0.0, atol=0.02
    )
    above = (logs > median + math.sqrt(3.0)).double().mean(0)
    torch.testing.assert_close(above, torch.full((3,), 0.1587).double(), rtol=0.0, atol=0.01)
    assert float(draws.min()) >= 0.025


@pytest.mark.slow
def test_default_list_takes_its_scales_from_the_first_outcomes_alone() -> None:
    default = DefaultCandidates([(0.0, 2.0), (1.0, 3.0)], num_draws=2, num_first=4)
    X, y = rows(9)
    X = X * 2.0 + double([0.0, 1.0])
    Y = (30.0 * y).unsqueeze(-1)
    scales = default.scales(Y)
    middle = round(2.0 * math.log10(float(Y[:4].var())))
    assert scales == tuple(10.0 ** (0.5 * k) for k in range(middle - 2, middle + 3))
    louder = torch.cat([Y[:4], 1e3 * Y[4:]])
    assert default.scales(louder) == scales  # what comes later has no say
    recipe = default.list_of(Y)
    assert recipe.num_candidates == (5 + 2) * 4 * 5
    assert len(recipe.groups) == (5 + 2) * 4
    model = default(X, Y)
    assert model.recipe == recipe
    assert model.evidence.num_outcomes == 5
    # entry by entry, on the unit cube: the density of the later outcomes given the first four
    unit = (X - double([0.0, 1.0])) / 2.0
    lengths = [*lengthscale_ladder(2), *draw_lengthscales(2, 2)]
    entries = [
        (2.5, length, s, ratio * s, 0.0)
        for length in lengths
        for ratio in default.noise_ratios
        for s in scales
    ]
    values = double(
        [
            log_likelihood(e, unit, Y.squeeze(-1)) - log_likelihood(e, unit[:4], Y[:4].squeeze(-1))
            for e in entries
        ]
    )
    expected = torch.logsumexp(values - math.log(len(entries)), 0) - values
    found = torch.from_numpy(model.evidence.log_evidence_against)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_a_builder_returns_a_function_of_the_rows_alone(recipe: CandidatesRecipe) -> None:
    """Whatever was built before: a loop that is built again from its history goes on alike."""
    X, y = rows(150)
    live, points = recipe.builder(), uniform(5, 2, seed=3)
    changed = torch.cat([y[:3], y[3:4] + 1.0, y[4:]])
    cases = [(n, y, REPEATS) for n in (0, 1, 5, 65, 130, 129, 150)]
    for num_rows, told, repeats in [*cases, (150, changed, REPEATS), (150, y, REPEATS.flip(0))]:
        given = X[:num_rows], told[:num_rows].unsqueeze(-1), repeats[:num_rows]
        model, at_once = live(*given), recipe(*given)
        for ours, dense in zip(
            model.group_moments(points), at_once.group_moments(points), strict=True
        ):
            close(ours, dense, 1e-10)
        close(model.evidence.path, at_once.evidence.path)


def test_conditioning_leaves_the_model_as_it_was(recipe: CandidatesRecipe) -> None:
    X, y = rows(9)
    Y = y.unsqueeze(-1)
    model = recipe(X[:5], Y[:5])
    before = model.evidence.log_evidence_against
    assert model.condition_on_observations(X[5:], Y[5:]).num_rows == 9
    assert (model.evidence.log_evidence_against == before).all()
    assert model.num_rows == 5
    with pytest.raises(UnsupportedError, match="2 such rows"):
        model.hallucinated(X[:2]).condition_on_observations(X[5:], Y[5:])


def test_searches_start_near_the_best_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "MOST_STARTS", 3)
    X = line(0.0, 1.0, 5)
    Y = double([[3.0], [0.0], [2.0], [5.0], [1.0]])
    model = BanditGP.with_candidates([BanditGP.with_kernel(RBFKernel())])(X, Y)
    assert model.X_baseline.squeeze(-1).sort().values.tolist() == [0.0, 0.5, 0.75]
    few = BanditGP.with_candidates([BanditGP.with_kernel(RBFKernel())])(X[:2], Y[:2])
    assert len(few.X_baseline) == 2

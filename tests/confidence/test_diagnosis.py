"""One-step-ahead and leave-one-out predictions against models that are conditioned row by row."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from acquisition.cases import MODELS, ModelCase
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel
from models.textbook import double, line, uniform
from scipy.stats import multivariate_normal
from torch import Tensor
from torch.distributions import Normal

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    CandidatesUpperConfidenceBound,
    Censored,
    ExponentialWeights,
    GPUpperConfidenceBound,
    OracleRestart,
    RandomSearch,
    SlidingWindow,
    run,
)
from botorch_bandits.confidence import ModelCheck, check_model
from botorch_bandits.models import candidate_grid
from tests.records import rebuilt

DTYPE = torch.float64
UCB = GPUpperConfidenceBound.with_options(width=2.0)


def draw(seed: int, n: int = 20, noise: float = 0.04, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return points in order and outcomes drawn from a GP with lengthscale 0.3."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=generator, dtype=DTYPE)
    K = torch.exp(-0.5 * (torch.cdist(X, X) / 0.3) ** 2)
    L = torch.linalg.cholesky(K + noise * torch.eye(n, dtype=DTYPE))
    return X, scale * (L @ torch.randn(n, 1, generator=generator, dtype=DTYPE))


def gp(X: Tensor, Y: Tensor, noise: float = 0.04, **options: float) -> BanditGP:
    kernel = RBFKernel().double()
    kernel.lengthscale = double(options.pop("lengthscale", 0.3))
    return BanditGP(X, Y, kernel=kernel, noise=noise, **options)


@pytest.mark.parametrize(
    "case",
    [case for case in MODELS if case.kind == "single" and case.weights is None],
    ids=lambda case: case.name,
)
def test_residuals_are_those_of_dense_models_of_the_other_rows(case: ModelCase) -> None:
    model = case.build()
    ((output,),) = case.reference(model).members
    n, check = len(output.X), check_model(model)
    y, noise = output.shift + output.unit * output.Y, output.unit**2 * output.noise
    for i in range(n):
        others = [j for j in range(n) if j != i]
        for kept, found in ((others[:i], check.one_step), (others, check.left_out)):
            part = replace(output, X=output.X[kept], Y=output.Y[kept], noise=output.noise[kept])
            mean, variance = part.posterior(output.X[[i]])
            deviation = math.sqrt(variance.item() + noise[i])
            assert float(found[i]) == pytest.approx((y[i] - mean.item()) / deviation, abs=1e-9)
    if n:
        prior = replace(output, X=output.X[:0], Y=output.Y[:0], noise=output.noise[:0])
        mean, covariance = prior.posterior(output.X)
        law = multivariate_normal(mean, covariance + np.diag(noise))
        assert check.log_likelihood == pytest.approx(float(law.logpdf(y)), abs=1e-8)
    inside = (check.one_step.abs() <= 0.6744897501960817).double()
    shares = [float(inside[: i + 1].mean()) for i in range(n)]
    assert check.coverage(0.5).tolist() == pytest.approx(shares)
    is_ours = isinstance(model, BanditGP)
    assert any("learned" in caution for caution in check.cautions) != is_ours


def test_verdicts() -> None:
    """Of draws from the model, few are spoken against; of others, the verdict names the fault."""
    fine = sum("Nothing" in check_model(gp(*draw(seed))).verdict for seed in range(60))
    assert fine >= 54
    X, Y = draw(3, n=40)
    assert "overconfident" in check_model(gp(X, 5.0 * Y)).verdict
    assert "too cautious" in check_model(gp(X, 0.1 * Y)).verdict
    spoiled = Y.clone()
    spoiled[17] += 6.0
    assert check_model(gp(X, spoiled)).verdict.startswith("Outcome 18 is")
    assert "too few" in check_model(gp(X[:3], Y[:3])).verdict
    assert "0 outcomes" in check_model(gp(X[:0], Y[:0])).verdict
    assert "in their 95%" in repr(check_model(gp(X, Y)))


def residuals(z: Tensor) -> ModelCheck:
    """Return a check of independent outcomes with these residuals."""
    return ModelCheck(z, z, torch.ones_like(z))


@pytest.mark.slow
def test_residuals_that_are_exchangeable_rarely_seem_to_grow() -> None:
    """Of 300 sequences, 3 are expected at level 0.01; more than 10 have a probability of 3e-4."""
    generator = torch.Generator().manual_seed(5)
    draws = torch.randn(300, 60, generator=generator, dtype=DTYPE)
    heavy = draws / torch.randn(300, 60, generator=generator, dtype=DTYPE)  # without a variance
    assert sum(residuals(z).growth is not None for z in draws) <= 10
    assert sum(residuals(z).growth is not None for z in heavy) <= 10


def test_the_block_that_grew_is_the_one_found_by_trying_all() -> None:
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(70, generator=generator, dtype=DTYPE)
    z[41:57] *= 3.0
    found = {}
    for i in range(8, 63):
        for j in {i + 8, i + 16, i + 32, 70} & set(range(i + 8, 71)):
            inside, others = z[i:j], torch.cat([z[:i], z[j:]])
            two, one = (Normal(0.0, (each**2).mean().sqrt()) for each in (inside, others))
            both = float(two.log_prob(inside).sum() + one.log_prob(others).sum())
            found[i, j] = both if bool(two.scale > one.scale) else -math.inf
    assert residuals(z).growth == max(found, key=lambda block: found[block]) == (41, 57)


def test_a_change_of_the_reward_is_named_with_its_round() -> None:
    """The outcomes of a loop that never restarts are the model's until round 41, then others."""
    arms = Arms(line(0.0, 1.0, 9))
    recipe = BanditGP.with_kernel(RBFKernel(), noise=0.04, lengthscale=0.3)
    loop = BanditLoop(arms, recipe, UCB, seed=0)
    stream = torch.Generator().manual_seed(0)
    for t in range(1, 81):
        query = loop.ask()
        x, noise = float(query.x), 0.2 * float(torch.randn(1, generator=stream, dtype=DTYPE))
        loop.tell(query.id, noise + (3.0 * x if t <= 40 else 3.0 - 4.0 * x))
        if t == 40:
            assert loop.check_model().finding == "agrees"
    check = loop.check_model()
    assert check.finding == "changed"
    assert check.verdict.startswith("The reward may have changed about round 4")
    assert check.growth is not None
    assert abs(check.growth[0] - 40) <= 2
    assert check.rounds is not None
    assert check.rounds.tolist() == list(range(1, 81))
    told_of_rows = check_model(gp(*loop.history.arrived())).verdict
    assert told_of_rows.startswith("The reward may have changed about outcome 4")
    windowed = BanditLoop(arms, recipe, UCB, forgetting=SlidingWindow(30))
    rebuilt(windowed, loop.history)
    assert windowed.check_model().rounds.tolist() == list(range(51, 81))


@pytest.mark.slow
def test_a_model_that_was_overconfident_before_is_not_said_to_have_changed() -> None:
    quantiles = torch.special.ndtri((torch.arange(40, dtype=DTYPE) + 0.5) / 40)
    z = quantiles[torch.randperm(40, generator=torch.Generator().manual_seed(1))]
    z = torch.cat([z, 3.0 * z])
    assert residuals(z).finding == "changed"
    louder = residuals(2.0 * z)
    assert louder.growth is not None
    assert louder.finding == "overconfident"
    assert "They vary more from outcome 4" in louder.verdict
    assert residuals(0.5 * z).finding == "changed"  # although it is too cautious before
    quieter = residuals(0.2 * z)  # everything is as expected of a model that is too cautious
    assert quieter.finding == "too cautious"
    assert "They vary more from outcome 4" in quieter.verdict


def test_rounds_after_a_reset_are_those_of_the_whole_run() -> None:
    restart = OracleRestart(change_points=(12,), exploration=None)
    loop = BanditLoop(PLACES["arms"], RECIPE, UCB, restart=restart)
    run(loop, lambda x: float(x), 20, progress=False)
    assert loop.check_model().rounds.tolist() == list(range(13, 21))


def test_an_offset_is_named() -> None:
    generator = torch.Generator().manual_seed(0)
    X = line(0.0, 100.0, 60)  # far apart: independent
    Y = 0.6 + 0.9 * torch.randn(60, 1, generator=generator, dtype=DTYPE)
    check = check_model(gp(X, Y))
    assert check.verdict.startswith("Outcomes lie above what the model predicts")


PLACES = {"box": Box([[0.0], [1.0]]), "arms": Arms([[0.0], [0.4], [0.7], [1.0]])}
RECIPE = BanditGP.with_kernel(RBFKernel(), noise=0.04, lengthscale=0.3)


@pytest.mark.parametrize("domain", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("window", [None, 5])
def test_a_loop_checks_the_rows_of_its_model(domain: Box | Arms, window: int | None) -> None:
    forgetting = None if window is None else SlidingWindow(window)
    loop = BanditLoop(domain, RECIPE, UCB, forgetting=forgetting, num_initial=3, seed=0)
    run(loop, lambda x: float((6.0 * x).sin()), 12, progress=False)
    X, Y = (each[-(window or 12) :] for each in loop.history.arrived())
    torch.testing.assert_close(loop.check_model().one_step, check_model(gp(X, Y)).one_step)


def test_fading_rows_and_means_of_rows_are_named() -> None:
    loop = BanditLoop(PLACES["arms"], RECIPE, UCB, forgetting=ExponentialWeights(0.9))
    run(loop, lambda x: float(x), 20, progress=False)
    assert "caution: the model fades old outcomes" in str(loop.check_model())
    X, Y = draw(0, n=5)
    twice = torch.full((5,), 2.0, dtype=DTYPE)
    merged = BanditGP(X, Y, kernel=gp(X, Y).covar_module, noise=0.04, repeats=twice)
    with pytest.raises(ValueError, match="Pass single outcomes as"):
        check_model(merged)


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("told", ["count", "noise"])
@pytest.mark.parametrize("domain", PLACES.values(), ids=PLACES)
def test_outcomes_with_weights(domain: Box | Arms, told: str, maximize: bool) -> None:
    loop = BanditLoop(domain, RECIPE, UCB, maximize=maximize, seed=1)
    noises = []
    for k in range(12):
        query = loop.ask()
        weighting = {"count": 1 + k % 4} if told == "count" else {"noise": 0.01 + 0.02 * k}
        noises.append(weighting.get("noise", 0.04 / (1 + k % 4)))
        loop.tell(query.id, float((6.0 * query.x).sin()) + 0.1 * (-1.0) ** k, **weighting)
    check = loop.check_model()
    X, Y = loop.history.arrived()
    for k in range(12):
        before = torch.arange(k)
        others = torch.tensor([j for j in range(12) if j != k])
        for rows, found in ((before, check.one_step), (others, check.left_out)):
            K = torch.exp(-0.5 * (torch.cdist(X[rows], X[rows]) / 0.3) ** 2)
            A = K + torch.diag(double(noises)[rows])
            cross = torch.exp(-0.5 * (torch.cdist(X[rows], X[[k]]) / 0.3) ** 2).squeeze(-1)
            half = torch.linalg.solve(A, cross)
            mean = float(half @ (Y[rows, 0]))
            deviation = float(1.0 + noises[k] - half @ cross) ** 0.5
            assert float(found[k]) == pytest.approx((float(Y[k]) - mean) / deviation, abs=1e-9)


@pytest.mark.parametrize(
    ("weights", "message"),
    [(torch.ones(3), "weights has shape"), (torch.zeros(20), "each must be positive")],
)
def test_weights_that_do_not_fit_are_refused(weights: Tensor, message: str) -> None:
    X, Y = draw(0)
    with pytest.raises(ValueError, match=message):
        check_model(gp(X, Y), X, Y, weights.double())


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("domain", PLACES.values(), ids=PLACES)
def test_of_a_list_of_priors_the_likeliest_is_checked(domain: Box | Arms, maximize: bool) -> None:
    names = ["long", "short"]
    lengthscales = dict(zip(names, (10.0, 0.3), strict=True))
    priors = {
        name: BanditGP.with_kernel(RBFKernel(), noise=0.04, lengthscale=lengthscales[name])
        for name in names
    }
    listed = BanditGP.with_candidates(list(priors.values()), names=names)
    loop = BanditLoop(domain, listed, maximize=maximize, seed=0)
    for _ in range(12):
        query = loop.ask()
        loop.tell(query.id, float((9.0 * query.x).sin()))
    check = loop.check_model()
    X, Y = loop.history.arrived()
    likeliest = max(loop.evidence(), key=lambda row: row.posterior_weight).name
    expected = check_model(gp(X, Y, lengthscale=lengthscales[likeliest]))
    torch.testing.assert_close(check.one_step, expected.one_step, atol=1e-8, rtol=1e-8)
    assert f"prior {likeliest!r}, which is checked, is the likeliest of 2" in str(check)


def test_what_cannot_be_checked() -> None:
    box = Box([[0.0], [1.0]])
    with pytest.raises(RuntimeError, match="no model"):
        BanditLoop(box, None, RandomSearch()).check_model()
    recipe = BanditGP.with_kernel(RBFKernel(), noise=0.04)
    censored = BanditLoop(box, recipe, UCB, feedback=Censored(minimum=0.0))
    censored.tell(censored.ask().id, 1.0)
    with pytest.raises(RuntimeError, match="pseudo-values"):
        censored.check_model()
    listed = BanditGP.with_candidates([recipe, recipe])(*draw(0))
    assert torch.equal(check_model(listed).one_step, check_model(listed.member(0)).one_step)
    X, Y = draw(0)
    with pytest.raises(ValueError, match="2 outputs"):
        check_model(SingleTaskGP(X, torch.cat([Y, Y], -1)))
    with pytest.raises(ValueError, match="go together"):
        check_model(gp(X, Y), X)


LOW = double([20.0, 4.0, 10.0])
SIDES = double([60.0, 5.0, 110.0])


def in_raw_units(num_rows: int) -> tuple[Tensor, Tensor]:
    """Inputs in three units, the first row repeated, and outcomes around 50."""
    unit = uniform(num_rows, 3, seed=3)
    unit[-1] = unit[0]
    return LOW + SIDES * unit, 80.0 - 100.0 * (unit - 0.5).square().sum(-1, keepdim=True)


@pytest.mark.parametrize("are_raw", [True, False])
def test_lengthscales_in_other_units_than_the_inputs_are_noticed(are_raw: bool) -> None:
    X, Y = in_raw_units(16)
    lengths = [0.2, 0.8] if are_raw else [(SIDES * each).tolist() for each in (0.2, 0.8)]
    priors = candidate_grid(lengths, scales=[100.0, 900.0], prior_means=[50.0])
    model = BanditGP.with_candidates(priors)(X, Y)
    check = check_model(model)
    kernel = model.member(int(model.evidence.posterior_weights.argmax())).covar_module
    shown = kernel(X[:-1]).to_dense().detach()
    dense = sorted(
        max(float(shown[i, j] / shown[0, 0]) for j in range(15) if j != i) for i in range(15)
    )
    assert check.nearest_correlation == pytest.approx(dense[7], rel=1e-8)
    assert check.is_uncorrelated == are_raw
    assert ("are the lengthscales in the units of the inputs?" in str(check)) == are_raw
    notes = CandidatesUpperConfidenceBound(model, num_arms=50).guarantee().notes
    assert any("candidate_grid takes one for each input" in note for note in notes) == are_raw


def test_a_mean_that_no_outcome_can_correct_is_told_with_the_lengthscale() -> None:
    X, Y = in_raw_units(16)
    (prior,) = candidate_grid([0.2], scales=[3000.0])
    check = check_model(prior(X, Y))
    assert check.finding == "mean off"
    assert "its prior mean is off, or its lengthscale too short" in check.verdict


def test_few_points_or_one_have_no_correlation_to_judge() -> None:
    X, Y = in_raw_units(16)
    (prior,) = candidate_grid([0.2])
    assert not check_model(prior(X[:7], Y[:7])).is_uncorrelated
    assert check_model(prior(X[:1].repeat(9, 1), Y[:9])).nearest_correlation is None

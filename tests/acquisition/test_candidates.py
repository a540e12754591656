"""Bounds and draws on a list of priors: values, coverage, certificates, and in the loop."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from models.textbook import double, line, matern, normal, posterior, uniform
from torch import Tensor

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
    Censored,
    FittedSingleTaskGP,
    GPUpperConfidenceBound,
    RandomSearch,
    TimeVaryingKernel,
)
from botorch_bandits.confidence import RefutedListWarning, check_model
from botorch_bandits.confidence.theorems import FIXED_AFTER_FIRST, FIXED_LIST
from botorch_bandits.models import (
    CandidatesModel,
    DefaultCandidates,
    candidate_grid,
)
from tests.records import rebuilt

LENGTHS, RATIOS, SCALES = (0.1, 0.4), (0.01, 0.1), (0.5, 2.0)
PRIORS = [(length, s, r * s) for length in LENGTHS for r in RATIOS for s in SCALES]


def recipe() -> Any:
    return BanditGP.with_candidates(candidate_grid(LENGTHS, RATIOS, SCALES))


def rows(num_rows: int) -> tuple[Tensor, Tensor]:
    X = uniform(num_rows, 1, seed=1)
    return X, torch.sin(6.0 * X[:, 0]) + 0.1 * uniform(num_rows, seed=2)


def moments(X: Tensor, y: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of every prior, ``K x n`` each."""
    found = [posterior(matern(2.5, le, s), X, y, noise, points) for le, s, noise in PRIORS]
    return torch.stack([m for m, _ in found]), torch.stack([c.diagonal().sqrt() for _, c in found])


def survivors(X: Tensor, y: Tensor, level: float) -> Tensor:
    """By joint densities of the first t outcomes, for every t."""
    alive = torch.ones(len(PRIORS), dtype=torch.bool)
    for t in range(1, len(X) + 1):
        joint = []
        for length, s, noise in PRIORS:
            covariance = matern(2.5, length, s)(X[:t], X[:t]) + noise * torch.eye(t).double()
            fit = y[:t] @ torch.linalg.solve(covariance, y[:t])
            joint.append(-0.5 * float(fit + torch.logdet(2.0 * math.pi * covariance)))
        values = double(joint)
        log_evidence_against = torch.logsumexp(values - math.log(len(PRIORS)), 0) - values
        alive &= log_evidence_against < math.log(1.0 / level)
    return alive


def test_bound_on_arms_is_the_largest_of_the_survivors() -> None:
    X, y = rows(12)
    points = uniform(30, 1, seed=3)
    acqf = CandidatesUpperConfidenceBound(recipe()(X, y.unsqueeze(-1)), num_arms=30, delta=0.4)
    alive = survivors(X, y, 0.2)
    assert acqf.survivors.tolist() == alive.tolist()
    assert 0 < int(alive.sum()) < len(PRIORS)
    width = math.sqrt(2.0 * math.log(30 * 13**2 * math.pi**2 / (6.0 * 0.2)))
    mean, deviation = moments(X, y, points)
    upper = (mean + width * deviation)[alive].amax(0)
    lower = (mean - width * deviation)[alive].amin(0)
    value = acqf(points.unsqueeze(-2))
    torch.testing.assert_close(value, upper, rtol=0.0, atol=1e-8)
    torch.testing.assert_close(acqf.bounds(points)[0], lower, rtol=0.0, atol=1e-8)
    regret = acqf.regret_bound(points[4], points)
    assert regret == pytest.approx(float(upper.max() - lower[4]), abs=1e-8)
    described = acqf.describe(points[4])
    band = 2.0 * described["width"] * described["standard_deviation"]
    assert band == pytest.approx(float(upper[4] - lower[4]), abs=1e-8)
    least = CandidatesUpperConfidenceBound(acqf.base_model, num_arms=30, delta=0.4, maximize=False)
    torch.testing.assert_close(least(points.unsqueeze(-2)), -lower, rtol=0.0, atol=1e-8)
    regret = least.regret_bound(points[4], points)
    assert regret == pytest.approx(float(upper[4] - lower.min()), abs=1e-8)


def test_bound_on_a_box_has_the_width_of_each_prior() -> None:
    X, y = rows(12)
    points = uniform(30, 1, seed=3)
    b = [1.0 + 0.3 * k for k in range(len(PRIORS))]
    acqf = CandidatesUpperConfidenceBound(
        recipe()(X, y.unsqueeze(-1)),
        smoothness_a=2.0,
        smoothness_b=b,
        dim=1,
        side_length=1.0,
        delta=0.4,
    )
    alive, t, delta = survivors(X, y, 0.2), 13, 0.2
    scales = double([s for _, s, _ in PRIORS])
    inner = t**2 * double(b) / scales.sqrt() * math.sqrt(math.log(4.0 * 2.0 / delta))
    beta = 2.0 * math.log(2.0 * math.pi**2 * t**2 / (3.0 * delta)) + 2.0 * inner.log()
    mean, deviation = moments(X, y, points)
    half = beta.sqrt().unsqueeze(-1) * deviation
    upper, lower = (mean + half)[alive].amax(0), (mean - half)[alive].amin(0)
    torch.testing.assert_close(acqf(points.unsqueeze(-2)), upper, rtol=0.0, atol=1e-8)
    torch.testing.assert_close(acqf.bounds(points)[0], lower, rtol=0.0, atol=1e-8)
    with pytest.raises(ValueError, match="the width is for num_arms=None"):
        acqf.regret_bound(points[3], points)
    guarantee = acqf.guarantee()
    assert guarantee.holds
    assert guarantee.regret is not None
    assert guarantee.regret.tail == pytest.approx(float(scales[alive].max().sqrt()))


def test_pending_points_choose_and_do_not_certify() -> None:
    X, y = rows(12)
    points, pending = uniform(30, 1, seed=3), uniform(2, 1, seed=5)
    model = recipe()(X, y.unsqueeze(-1))
    plain = CandidatesUpperConfidenceBound(model, num_arms=30, round_number=15)
    acqf = CandidatesUpperConfidenceBound(model, num_arms=30, round_number=15, X_pending=pending)
    assert bool((acqf(points.unsqueeze(-2)) < plain(points.unsqueeze(-2))).all())
    assert acqf.round_number == 15
    assert torch.equal(acqf.bounds(points)[1], plain.bounds(points)[1])
    assert torch.equal(acqf.survivors, plain.survivors)
    # the bounds hold, and so does a regret bound on arms, but the value is of another model
    guarantee = acqf.guarantee()
    assert guarantee.verdict == "guaranteed in part"
    assert guarantee.bands is not None
    assert guarantee.bands.holds
    assert guarantee.regret is not None
    assert not guarantee.regret.holds
    assert (
        "computed from the outcomes that have arrived (as bounds(X) does)" in guarantee.bands.text
    )
    assert "2 pending points enter at the posterior mean" in guarantee.regret.gaps[0]
    assert acqf.regret_bound(points[3], points) == plain.regret_bound(points[3], points)
    acqf.set_X_pending(None)
    assert acqf.round_number == 13
    assert acqf.guarantee().holds


def test_regret_is_bounded_on_the_arms_of_the_width_only() -> None:
    X, y = rows(12)
    points = uniform(30, 1, seed=3)
    acqf = CandidatesUpperConfidenceBound(recipe()(X, y.unsqueeze(-1)), num_arms=20)
    assert acqf.regret_bound(points[3], points[:20]) > 0.0
    with pytest.raises(ValueError, match=r"30 points, .* num_arms=20"):
        acqf.regret_bound(points[3], points)
    with pytest.raises(ValueError, match="not one of the 20 arms"):
        acqf.regret_bound(points[25], points[:20])
    with pytest.raises(TypeError, match="choices"):
        acqf.regret_bound(points[3], points[:20].float())


@pytest.mark.parametrize("shift", [0.0, 40.0])
def test_a_list_in_the_wrong_units_is_noted(shift: float) -> None:
    X, y = rows(12)
    model = recipe()(X, shift * (1.0 + y.unsqueeze(-1)) if shift else y.unsqueeze(-1))
    acqf = CandidatesUpperConfidenceBound(model, num_arms=30)
    guarantee = acqf.guarantee()
    assert guarantee.holds  # if one of the priors is the true one, which is an assumption
    check = check_model(model)
    likeliest = int(model.evidence.posterior_weights.argmax())
    alone = check_model(model.member(likeliest))
    assert torch.equal(check.one_step, alone.one_step)
    if not shift:
        assert check.finding == "agrees"
        assert guarantee.notes == ()
        return
    assert check.finding == "overconfident"
    (note,) = guarantee.notes
    assert repr(model.evidence.names[likeliest]) in note
    ratio = float(alone.one_step.square().mean().sqrt())
    assert f"outcomes vary {ratio:.3g} times as much as it predicts" in note
    assert guarantee.explain(10_000).endswith(f"  note: {note}")
    # outcomes that chose the list are not held against it
    late = replace(recipe(), num_skipped=3)(*model.train_inputs, model.train_targets.unsqueeze(-1))
    likeliest = int(late.evidence.posterior_weights.argmax())
    expected = check_model(late.member(likeliest)).one_step[3:]
    assert torch.equal(check_model(late).one_step, expected)
    assert "note" in guarantee.explain(10_000)


@pytest.mark.parametrize("num_skipped", [0, 4])
def test_a_list_that_outcomes_chose_is_not_said_to_be_fixed_before_them(num_skipped: int) -> None:
    model = replace(recipe(), num_skipped=num_skipped)(rows(12)[0], rows(12)[1].unsqueeze(-1))
    assumptions = CandidatesUpperConfidenceBound(model, num_arms=30).guarantee().assumptions
    chosen = f"everything is conditional on the first {num_skipped} outcomes, which chose the list"
    assert any(each.startswith(chosen) for each in assumptions) == bool(num_skipped)
    assert (FIXED_AFTER_FIRST in assumptions) == bool(num_skipped)
    assert (FIXED_LIST in assumptions) != bool(num_skipped)


def test_a_refuted_list_is_told_and_guarantees_nothing() -> None:
    X = torch.zeros(40, 1).double()
    noise = normal(40, 1, seed=0)
    priors = [*candidate_grid([0.2], [1e-4]), *candidate_grid([0.2], [1.0], [1e4])]
    # first as calm as one of them wants, then as loud as neither does
    Y = torch.cat([1e-2 * noise[:20], 3.0 * noise[20:]])
    model = BanditGP.with_candidates(priors)(X, Y)
    with pytest.warns(RefutedListWarning, match="all 2 priors on"):
        acqf = CandidatesUpperConfidenceBound(model, num_arms=3)
    assert not bool(acqf.survivors.any())
    assert not acqf.guarantee().holds
    assert "refuted" in acqf.guarantee().explain(10_000)
    assert acqf.describe(X[0])["is_refuted"] == 1.0


def own_model(X: Tensor, y: Tensor, length: float) -> SingleTaskGP:
    kernel, likelihood = MaternKernel(nu=2.5).double(), GaussianLikelihood().double()
    kernel.lengthscale, likelihood.noise = double(length), double(0.1)
    model = SingleTaskGP(
        X,
        y.unsqueeze(-1),
        likelihood=likelihood,
        covar_module=kernel,
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    return model.eval()


def test_own_models_guarantee_nothing_unless_their_user_vouches() -> None:
    X, y = rows(6)
    models = [own_model(X, y, 0.2), own_model(X, y, 0.5)]
    acqf = CandidatesUpperConfidenceBound(CandidatesModel.from_models(models), num_arms=9)
    assert not acqf.guarantee().holds
    for model in models:
        model.requires_grad_(False)
    frozen = CandidatesModel.from_models(models)
    assert not CandidatesUpperConfidenceBound(frozen, num_arms=9).guarantee().holds
    vouched = CandidatesUpperConfidenceBound(frozen, num_arms=9, assume="fixed prior")
    assert vouched.guarantee().holds


def test_bad_options_are_refused() -> None:
    X, y = rows(6)
    model = recipe()(X, y.unsqueeze(-1))
    with pytest.raises(TypeError, match="with_candidates"):
        CandidatesUpperConfidenceBound(own_model(X, y, 0.2), num_arms=9)
    with pytest.raises(ValueError, match="exactly one width"):
        CandidatesUpperConfidenceBound(model, num_arms=9, width=2.0)
    with pytest.raises(ValueError, match="exactly one width"):
        CandidatesUpperConfidenceBound(model, smoothness_a=1.0)
    with pytest.raises(ValueError, match="form='mixture'"):
        CandidatesUpperConfidenceBound(model, form="mixture", num_arms=9)
    with pytest.raises(ValueError, match="form is 'best'"):
        CandidatesUpperConfidenceBound.with_options(form="best")
    with pytest.raises(ValueError, match="smoothness_b has 2 entries"):
        CandidatesUpperConfidenceBound(
            model, smoothness_a=1.0, smoothness_b=[1.0, 2.0], dim=1, side_length=1.0
        )
    options: dict[str, Any] = {
        "domain": Arms(X),
        "model": recipe(),
        "acquisition": CandidatesUpperConfidenceBound.with_options(),
    }
    with pytest.raises(ValueError, match="Censored"):
        BanditLoop(
            **{**options, "acquisition": GPUpperConfidenceBound.with_options(width=2.0)},
            feedback=Censored(minimum=0.0, outcome_bound=1.0),
        )
    loop = BanditLoop(
        domain=Arms(X),
        model=BanditGP.with_kernel(MaternKernel(nu=2.5)),
        acquisition=GPUpperConfidenceBound.with_options(),
    )
    with pytest.raises(RuntimeError, match="not a list"):
        loop.evidence()
    drifting = BanditLoop(
        domain=Arms(X),
        model=BanditGP.with_kernel(MaternKernel(nu=2.5)),
        acquisition=GPUpperConfidenceBound.with_options(),
        forgetting=TimeVaryingKernel(0.1),
    )
    drifting.tell(drifting.ask().id, 0.1)
    with pytest.raises(RuntimeError, match="needs one fixed prior"):
        drifting.evidence()
    at_random = BanditLoop(domain=Arms(X), acquisition=RandomSearch())
    with pytest.raises(RuntimeError, match="not a list"):
        at_random.evidence()
    default = BanditLoop(
        domain=Box([(0.0, 1.0)]),
        model=DefaultCandidates([(0.0, 1.0)], num_draws=1),
        acquisition=CandidatesUpperConfidenceBound.with_options(form="mixture"),
        num_initial=9,
    )
    with pytest.raises(RuntimeError, match="no outcome has arrived"):
        default.evidence()
    for _ in range(9):
        query = default.ask()
        default.tell(query.id, reward_of(query.x))
    assert default.evidence().num_outcomes == 1


@pytest.mark.parametrize("kind", [CandidatesUpperConfidenceBound, CandidatesThompsonSampling])
def test_loops_whose_model_is_no_list_are_refused(kind: Any) -> None:
    for model in (BanditGP.with_kernel(MaternKernel(nu=2.5)), FittedSingleTaskGP([(0.0, 1.0)])):
        with pytest.raises(TypeError, match=r"BanditGP.with_candidates\(\[...\]\)"):
            BanditLoop(Arms(uniform(6, 1, seed=3)), model, kind.with_options())
    two = CandidatesUpperConfidenceBound.with_options(smoothness_a=1.0, smoothness_b=[1.0, 2.0])
    with pytest.raises(ValueError, match="smoothness_b has 2 entries"):
        BanditLoop(Box([(0.0, 1.0)]), recipe(), two)


def reward_of(x: Tensor) -> float:
    return math.sin(6.0 * float(x[-1]))


@pytest.mark.parametrize("form", ["survivors", "mixture", "draws"])
def test_loop_on_arms_plays_what_the_acquisition_function_says(form: str) -> None:
    choices = line(0.0, 1.0, 12)
    acquisition: Any = (
        CandidatesThompsonSampling.with_options()
        if form == "draws"
        else CandidatesUpperConfidenceBound.with_options(form=form)
    )
    loop = BanditLoop(domain=Arms(choices), model=recipe(), acquisition=acquisition, seed=4)
    for t in range(12):
        query = loop.ask()
        if form != "draws":
            X, Y = loop.history.arrived()
            acqf = acquisition.build(recipe()(X, Y), loop.settings.domain, round_number=t + 1)
            values = acqf(choices.unsqueeze(-2))
            assert float(acqf(query.x.reshape(1, 1, 1))) == pytest.approx(
                float(values.max()), abs=1e-8
            )
            known = acqf.describe(query.x)
            for name, value in known.items():
                assert query.diagnostics[name] == pytest.approx(value, abs=1e-8)
        loop.tell(query.id, reward_of(query.x))
    guarantee = loop.guarantee()
    assert guarantee.holds == (form == "survivors")
    if form == "survivors":
        seen = [query.diagnostics for query in loop.history.queries]
        bound = math.fsum(each["upper_bound"] - each["lower_bound"] for each in seen)
        assert guarantee.regret_bound == pytest.approx(bound, abs=1e-8)
    again = BanditLoop(
        domain=Arms(choices),
        model=recipe(),
        acquisition=acquisition,
        seed=4,
    )
    assert torch.equal(rebuilt(again, loop.history).ask().x, loop.ask().x)


def test_outcomes_count_in_the_order_in_which_they_arrive() -> None:
    choices = line(0.0, 1.0, 12)
    loop = BanditLoop(
        domain=Arms(choices),
        model=recipe(),
        acquisition=CandidatesUpperConfidenceBound.with_options(),
    )
    queries = [loop.ask() for _ in range(5)]
    assert len({float(query.x) for query in queries}) > 1  # pending points shrink the bounds
    order = [3, 0, 4, 1]
    for i in order:
        loop.tell(queries[i].id, reward_of(queries[i].x))
    X = torch.stack([queries[i].x for i in order])
    Y = double([[reward_of(x)] for x in X])
    expected = torch.from_numpy(recipe()(X, Y).evidence.path[-1])
    found = double([row.log_evidence_against for row in loop.evidence()])
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-8)
    guarantee = loop.guarantee()
    assert guarantee.regret is not None
    assert guarantee.regret.num_rounds == 1  # the first; later ones had outcomes pending

"""Bounds over a region of hyperparameters: against grids, and how often they hold."""

from __future__ import annotations

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.utils.sampling import manual_seed

from botorch_bandits import Arms, BanditGP, BanditLoop, Box, Ignored
from botorch_bandits.acquisition import RegionUpperConfidenceBound
from botorch_bandits.change_points.calibration import binomial_interval
from botorch_bandits.confidence import gp_ucb_finite_width
from botorch_bandits.confidence.candidates import RefutedListWarning
from botorch_bandits.models import CandidatesModel, PriorFamily, candidate_grid

GRID = torch.linspace(0.0, 1.0, 15, dtype=torch.float64).unsqueeze(-1)
FAMILY = PriorFamily((0.05, 1.0), scales=(0.3, 3.0), noises=(0.01, 0.2))
LIST = candidate_grid([0.1, 0.4], noise_ratios=[0.05], scales=[0.5, 2.0], smoothness=(2.5,))


def some_model(n=10, seed=0, entries=LIST):
    random = np.random.default_rng(seed)
    X = GRID[random.integers(15, size=n)]
    y = (6.0 * X).sin() + 0.2 * torch.as_tensor(random.standard_normal((n, 1)))
    return BanditGP.with_candidates(entries)(X, y)


def grid_of_region(acqf, sizes=(41, 21, 21)):
    low, high = FAMILY.box
    axes = [torch.linspace(float(low[i]), float(high[i]), n).double() for i, n in enumerate(sizes)]
    members = torch.tensor(list(itertools.product(*[axis.tolist() for axis in axes])))
    members = members.double()
    with torch.no_grad():
        inside = acqf.region.log_likelihoods(members) > acqf.region.threshold
    return members[inside]


def test_the_largest_bound_is_that_of_a_dense_grid():
    model = some_model()
    acqf = RegionUpperConfidenceBound(
        model, family=FAMILY, num_arms=15, choices=GRID, delta=0.2, round_number=7
    )
    width = float(gp_ucb_finite_width(15, 7, 0.1))
    inside = grid_of_region(acqf)
    mean, deviation = FAMILY.posterior(inside, acqf.region.X, acqf.region.y, GRID.unsqueeze(-2))
    upper = (mean + width * deviation).amax(0).squeeze(-1)
    lower = (mean - width * deviation).amin(0).squeeze(-1)
    with torch.no_grad():
        values = acqf(GRID.unsqueeze(-2))
    best = int(upper.argmax())
    assert float(upper[best]) - 1e-9 <= float(values.max()) <= float(upper[best]) * 1.05
    assert bool((values >= 0.9 * upper).all())  # elsewhere it is that of some members
    # at few points both are searched
    points = GRID[[0, best, 9]]
    low, high = acqf.bounds(points)
    assert bool((high >= upper[[0, best, 9]] - 1e-9).all())
    assert bool((low <= lower[[0, best, 9]] + 1e-9).all())
    assert bool((high <= upper[[0, best, 9]] + 0.05 * upper[best]).all())
    assert bool((low >= lower[[0, best, 9]] - 0.05 * upper[best]).all())
    known = acqf.describe(GRID[best])
    assert known["upper_bound"] == pytest.approx(float(high[1]), abs=1e-6)
    assert known["acquisition_value"] == pytest.approx(float(high[1]), abs=1e-4)
    assert known["width"] * known["standard_deviation"] == pytest.approx(
        0.5 * (known["upper_bound"] - known["lower_bound"])
    )
    minimized = RegionUpperConfidenceBound(
        model, family=FAMILY, num_arms=15, choices=GRID, delta=0.2, round_number=7, maximize=False
    )
    with torch.no_grad():
        values = minimized(GRID.unsqueeze(-2))
    least = float(lower.min())
    assert -least - 1e-9 <= float(values.max()) <= -1.05 * least


def test_the_score_is_that_of_the_list():
    model = some_model()
    acqf = RegionUpperConfidenceBound(model, family=FAMILY, num_arms=15, delta=0.2)
    assert acqf.region.score == model.evidence.log_marginal_likelihood
    assert acqf.region.threshold == pytest.approx(acqf.region.score - math.log(10.0))
    # priors of the list that survive and are in the family are in the region
    theta = FAMILY.hyperparameters((0.1,), 0.5, 0.025)
    assert acqf.region.contains(theta) == bool(acqf.survivors[0])


def test_gradients_pending_points_and_optimizers():
    model = some_model()
    acqf = RegionUpperConfidenceBound(model, family=FAMILY, width=2.0)
    points = torch.tensor([[[0.21]], [[0.68]]], dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda Z: acqf(Z), (points,), atol=1e-5)
    box = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    with manual_seed(0):  # from a few starts the highest of several peaks may be missed
        best, value = optimize_acqf(acqf, box, q=1, num_restarts=8, raw_samples=128)
    fine = torch.linspace(0.0, 1.0, 501, dtype=torch.float64).reshape(-1, 1, 1)
    with torch.no_grad():
        assert float(value) >= float(acqf(fine).max()) - 1e-5
    pending = GRID[4:6]
    after = RegionUpperConfidenceBound(model, family=FAMILY, width=2.0, X_pending=pending)
    assert after.round_number == 13
    with torch.no_grad():
        assert float(after(GRID[5].reshape(1, 1, 1))) < float(acqf(GRID[5].reshape(1, 1, 1)))
        both = torch.stack([GRID[4], GRID[5]]).unsqueeze(0)
        assert float(acqf(both)) <= float(acqf(both[:, :1]) + acqf(both[:, 1:]))
    assert torch.equal(after.bounds(GRID[:2])[1], acqf.bounds(GRID[:2])[1])
    again = pickle.loads(pickle.dumps(acqf))
    torch.testing.assert_close(again(best.unsqueeze(0)), acqf(best.unsqueeze(0)))
    copy.deepcopy(acqf)


@pytest.mark.parametrize("num_runs", [2, pytest.param(16, marks=pytest.mark.slow)])
def test_a_true_prior_between_the_entries_is_covered(num_runs):
    """In all rounds and on all arms; the list does not have it, and queries follow the bound."""
    delta, failed = 0.4, 0
    truth = FAMILY.recipe(FAMILY.hyperparameters((0.2,), 1.0, 0.05))
    with torch.no_grad():
        K = truth.kernel(GRID).to_dense().numpy() + 1e-10 * np.eye(15)
    recipe = BanditGP.with_candidates(LIST)
    for run in range(num_runs):
        random = np.random.default_rng(run)
        f = np.linalg.cholesky(K) @ random.standard_normal(15)
        X, y, held = [], [], True
        for t in range(5):
            rows = torch.stack(X) if X else GRID[:0]
            outcomes = torch.tensor(y, dtype=torch.float64).reshape(-1, 1)
            acqf = RegionUpperConfidenceBound(
                recipe(rows, outcomes),
                family=FAMILY,
                num_arms=15,
                choices=GRID,
                delta=delta,
                round_number=t + 1,
            )
            with torch.no_grad():
                lower, upper = (end.numpy() for end in acqf.bounds(GRID))
                arm = int(acqf(GRID.unsqueeze(-2)).argmax())
            held &= bool(((lower <= f) & (f <= upper)).all())
            X.append(GRID[arm])
            y.append(f[arm] + math.sqrt(0.05) * random.standard_normal())
        failed += not held
    lower, _ = binomial_interval(failed, num_runs, confidence=0.99)
    assert lower <= delta
    assert failed <= delta * num_runs


@pytest.mark.parametrize("domain", [Arms(GRID), Box([[0.0], [1.0]])], ids=["arms", "box"])
def test_a_loop_plays_it(domain, tmp_path):
    recipe = BanditGP.with_candidates(LIST)
    options = {"family": FAMILY, "delta": 0.1}
    options |= {} if isinstance(domain, Arms) else {"width": 2.0}

    def loop_on(history=None, **given):
        return BanditLoop(
            domain,
            recipe,
            RegionUpperConfidenceBound.with_options(**options),
            seed=0,
            history=history,
            **given,
        )

    loop = loop_on(journal=tmp_path / "run.journal")
    regrets = []
    for n in range(6):
        query = loop.ask()
        x = float(query.x[0])
        regrets.append(1.0 - math.exp(-8.0 * (x - 0.6) ** 2))
        loop.tell(query.id, 1.0 - regrets[-1] + 0.1 * math.sin(7.0 * n))
    assert loop.guarantee().holds == isinstance(domain, Arms)
    if isinstance(domain, Arms):
        assert sum(regrets) <= loop.guarantee().regret.bound
    twin = loop_on(copy.deepcopy(loop.history))
    loop.close()
    loop = loop_on(journal=tmp_path / "run.journal")
    assert torch.equal(twin.ask().x, loop.ask().x)
    loop.close()
    other = PriorFamily((0.05, 1.0), scales=(0.3, 3.0), noises=(0.01, 0.3))
    with pytest.raises(ValueError, match="noises"):
        BanditLoop(
            domain,
            recipe,
            RegionUpperConfidenceBound.with_options(**{**options, "family": other}),
            seed=0,
            journal=tmp_path / "run.journal",
        )
    waiting = loop_on(feedback=Ignored())
    waiting.ask()
    assert waiting.ask().id == 1
    contexts = loop_on(context_dim=1)
    for n in range(3):
        query = contexts.ask(context=[0.3 * n])
        contexts.tell(query.id, 0.1 * n)
    assert contexts.guarantee().holds == isinstance(domain, Arms)


def test_costs_are_rewards_in_the_other_sign():
    """A loop that minimizes turns the prior means of list and family."""
    chosen = {}
    for sign in (1.0, -1.0):
        priors = candidate_grid([0.1, 0.4], prior_means=(0.5 * sign,))
        family = PriorFamily((0.05, 1.0), (0.3, 3.0), (0.01, 0.2), prior_mean=0.5 * sign)
        loop = BanditLoop(
            Arms(GRID),
            BanditGP.with_candidates(priors),
            RegionUpperConfidenceBound.with_options(family=family),
            maximize=sign > 0.0,
            seed=0,
        )
        chosen[sign] = []
        for _ in range(5):
            query = loop.ask()
            chosen[sign].append((float(query.x[0]), sign * query.diagnostics["mean"]))
            loop.tell(query.id, sign * math.sin(5.0 * float(query.x[0])))
    np.testing.assert_allclose(chosen[1.0], chosen[-1.0], atol=1e-9)


def test_the_guarantee_names_every_assumption():
    model = some_model()
    told = str(RegionUpperConfidenceBound(model, family=FAMILY, num_arms=15).guarantee())
    assert "is a draw from one of the Gaussian-process priors of the family" in told
    assert "the maximization is assumed exact" in told
    assert "the family was fixed before the data" in told
    assert "rounds with different rows have the same number" in told  # of draws
    constant = RegionUpperConfidenceBound(model, family=FAMILY).guarantee()
    assert "no theorem covers; on arms pass num_arms=" in str(constant)
    skipped = BanditGP.with_candidates(LIST, num_skipped=3)(*_rows(model))
    acqf = RegionUpperConfidenceBound(skipped, family=FAMILY, num_arms=15)
    assert "conditional on the first 3 outcomes" in str(acqf.guarantee())
    assert acqf.region.num_skipped == 3
    fitted = SingleTaskGP(*_rows(model), outcome_transform=None).eval()
    own = CandidatesModel.from_models([fitted])
    assert not RegionUpperConfidenceBound(own, family=FAMILY, num_arms=15).guarantee().holds
    wrong = PriorFamily((0.9, 1.0), scales=(0.01, 0.02), noises=(0.001, 0.002))
    with pytest.warns(RefutedListWarning, match="no prior of PriorFamily"):
        none = RegionUpperConfidenceBound(model, family=wrong, num_arms=15, choices=GRID)
    assert none.is_refuted
    assert "no prior of the family was found" in str(none.guarantee())
    with torch.no_grad():
        assert bool(torch.isfinite(none(GRID.unsqueeze(-2))).all())


def _rows(model):
    return model.train_inputs[0], model.train_targets.unsqueeze(-1)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"family": LIST}, TypeError, "family"),
        ({"family": FAMILY, "delta": 0.0}, ValueError, "delta is 0"),
        ({"family": FAMILY, "num_arms": 5, "width": 2.0}, ValueError, "give one of them"),
        ({"family": FAMILY, "width": -1.0}, ValueError, "width is -1"),
        ({"family": FAMILY, "num_arms": 0}, ValueError, "num_arms is 0"),
        ({"family": FAMILY, "maximize": 2}, ValueError, "maximize is 2"),
    ],
)
def test_bad_options_are_refused(options, kind, message):
    with pytest.raises(kind, match=message):
        RegionUpperConfidenceBound.with_options(**options)
    with pytest.raises(kind, match=message):
        RegionUpperConfidenceBound(some_model(), **options)


def test_other_mistakes_are_refused():
    with pytest.raises(TypeError, match="family"):
        RegionUpperConfidenceBound.with_options()
    with pytest.raises(TypeError, match="a list of priors"):
        RegionUpperConfidenceBound(LIST[0](GRID[:3], GRID[:3]), family=FAMILY)
    several = PriorFamily((0.1, 1.0), (0.1, 1.0), (0.1, 1.0), num_lengthscales=2)
    with pytest.raises(ValueError, match="num_lengthscales is 2, but"):
        RegionUpperConfidenceBound(some_model(), family=several)
    acqf = RegionUpperConfidenceBound(some_model(), family=FAMILY)
    with pytest.raises(TypeError, match="float64"):
        acqf(GRID.float().unsqueeze(-2))
    with pytest.raises(TypeError, match="which needs a list"):
        BanditLoop(Arms(GRID), LIST[0], RegionUpperConfidenceBound.with_options(family=FAMILY))

"""DMM on a list of kernels against dense formulas, and how often its bounds hold."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    DMMUpperConfidenceBound,
    Hallucinated,
    Ignored,
)
from botorch_bandits.acquisition import (
    AssumptionRefutedWarning,
    CandidatesDMMUpperConfidenceBound,
)
from botorch_bandits.change_points.calibration import binomial_interval
from botorch_bandits.models import CandidatesModel, candidate_grid

GRID = torch.linspace(0.0, 1.0, 30, dtype=torch.float64).unsqueeze(-1)
BOUNDS = {"rkhs_bound": 1.5, "noise_bound": 0.2}


def squared_exponential(lengthscale):
    return lambda A, B: np.exp(-0.5 * ((A[:, None] - B[None]) ** 2).sum(-1) / lengthscale**2)


def matern52(lengthscale):
    def kernel(A, B):
        a = math.sqrt(5.0) * np.sqrt(((A[:, None] - B[None]) ** 2).sum(-1)) / lengthscale
        return (1.0 + a + a**2 / 3.0) * np.exp(-a)

    return kernel


def entry(kernel, lengthscale, scale=1.0, **given):
    scaled = ScaleKernel(copy.deepcopy(kernel)).double()
    scaled.base_kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    scaled.outputscale = torch.tensor(scale, dtype=torch.float64)
    return BanditGP.with_kernel(scaled, **given)


def some_list():
    """Three kernels, of which the first is there at two scales; means and noise differ."""
    return [
        entry(RBFKernel(), 0.3, 1.0, noise=0.04),
        entry(RBFKernel(), 0.3, 4.0, noise=0.16),
        entry(MaternKernel(nu=2.5), 0.5, 2.0, noise=0.1, prior_mean=0.3),
        entry(RBFKernel(), 0.1, 1.0, noise=0.3),
    ]


DENSE = [
    (squared_exponential(0.3), 0.04, 0.0),
    (squared_exponential(0.3), 0.04, 0.0),
    (matern52(0.5), 0.05, 0.3),
    (squared_exponential(0.1), 0.3, 0.0),
]


def dense_radius(X, y, weights, noise_bound, delta):
    """``-2 R^2 ln sum_th w_th exp(-r_th^2/(2 R^2)) + 2 R^2 ln(1/delta)``, on all rows."""
    n, terms = len(y), []
    for (kernel, ridge, mean), weight in zip(DENSE, weights, strict=True):
        K, residual = kernel(X, X), y - mean
        own = ridge * residual @ np.linalg.solve(K + ridge * np.eye(n), residual)
        own += noise_bound**2 * np.linalg.slogdet(np.eye(n) + K / ridge)[1]
        terms.append(math.log(weight) - own / (2.0 * noise_bound**2))
    return 2.0 * noise_bound**2 * (math.log(1.0 / delta) - np.logaddexp.reduce(terms))


def dense_bounds(X, y, points, bounds, weights, noise_bound, delta, num_ridges=48):
    """Each entry by itself, with the grid of ridges around its own."""
    radius = dense_radius(X, y, weights, noise_bound, delta)
    n, lowest, highest, alive = len(y), [], [], []
    for (kernel, ridge, mean), bound in zip(DENSE, bounds, strict=True):
        K, residual = kernel(X, X), y - mean
        low, high = 1e-2 * ridge, 1e2 * (ridge + np.trace(K))
        grid = [*(low * (high / low) ** np.linspace(0.0, 1.0, num_ridges - 1)), ridge]
        lower, upper = np.full(len(points), -bound), np.full(len(points), bound)
        is_refuted = False
        for a in grid:
            inverse = np.linalg.inv(K + a * np.eye(n))
            cross = kernel(points, X)
            mu = cross @ inverse @ residual
            s = np.sqrt(1.0 - np.einsum("ij,jk,ik->i", cross, inverse, cross))
            radicand = radius / a + bound**2 - residual @ inverse @ residual
            is_refuted |= radicand < 0.0
            half = s * math.sqrt(max(radicand, 0.0))
            lower, upper = np.maximum(lower, mu - half), np.minimum(upper, mu + half)
        lowest.append(lower + mean)
        highest.append(upper + mean)
        alive.append(not is_refuted)
    alive = np.array(alive) if any(alive) else np.ones(len(alive), dtype=bool)
    return np.min(np.array(lowest)[alive], 0), np.max(np.array(highest)[alive], 0), alive


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("bounds", [1.5, (1.0, 2.0, 1.2, 0.8), (0.02, 0.02, 2.0, 3.0)])
def test_bounds_equal_dense_ones(bounds, repeats):
    random = np.random.default_rng(0)
    X = random.random((14, 1))
    if repeats:
        X = X[random.integers(4, size=14)]
    y = np.sin(6.0 * X[:, 0]) + 0.2 * random.standard_normal(14)
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    model = BanditGP.with_candidates(some_list(), weights=weights.tolist())(
        torch.as_tensor(X), torch.as_tensor(y).unsqueeze(-1)
    )
    acqf = CandidatesDMMUpperConfidenceBound(model, rkhs_bound=bounds, noise_bound=0.3, delta=0.2)
    each = np.broadcast_to(bounds, (4,)).astype(float)
    each = np.array([max(each[0], each[1])] * 2 + list(each[2:]))  # one ball has the other in it
    points = np.linspace(-0.2, 1.2, 9)[:, None]
    lower, upper, alive = dense_bounds(X, y, points, each, weights / 10.0, 0.3, 0.2)
    found = acqf.bounds(torch.as_tensor(points))
    np.testing.assert_allclose(found[0], lower, atol=1e-8)
    np.testing.assert_allclose(found[1], upper, atol=1e-8)
    if bounds == (0.02, 0.02, 2.0, 3.0):
        assert acqf.survivors.tolist() == alive.tolist() == [False, False, True, True]
        assert acqf.guarantee().constants["num_survivors"] == 2.0
    values = acqf(torch.as_tensor(points).unsqueeze(-2))
    np.testing.assert_allclose(values, upper, atol=1e-8)
    minimized = CandidatesDMMUpperConfidenceBound(
        model, rkhs_bound=bounds, noise_bound=0.3, delta=0.2, maximize=False
    )
    np.testing.assert_allclose(minimized(torch.as_tensor(points).unsqueeze(-2)), -lower, atol=1e-8)
    # the ball of each function that is drawn holds it: its values are between the bounds
    description = acqf.describe(torch.as_tensor(points[3]))
    assert description["upper_bound"] == pytest.approx(upper[3], abs=1e-8)
    half = 0.5 * (upper[3] - lower[3])
    assert description["width"] * description["standard_deviation"] == pytest.approx(half)


def test_a_list_of_one_is_dmm():
    X, y = GRID[::4], (6.0 * GRID[::4]).sin()
    prior = some_list()[2]
    model = BanditGP.with_candidates([prior])(X, y)
    alone = DMMUpperConfidenceBound(prior(X, y), assume="centered bound", **BOUNDS)
    acqf = CandidatesDMMUpperConfidenceBound(model, **BOUNDS)
    for mine, theirs in zip(acqf.bounds(GRID), alone.bounds(GRID), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-9, rtol=0.0)


def test_the_radius_of_the_list_costs_the_weight_of_the_best_at_most():
    random = np.random.default_rng(1)
    X = random.random((20, 1))
    y = np.sin(6.0 * X[:, 0]) + 0.2 * random.standard_normal(20)
    whole = dense_radius(X, y, [0.25] * 4, 0.3, 0.1)
    alone = [
        dense_radius(X, y, [1.0 if i == j else 1e-300 for i in range(4)], 0.3, 0.1)
        for j in range(4)
    ]
    assert whole <= min(alone) + 2.0 * 0.3**2 * math.log(4.0) + 1e-12


def test_gradients_transforms_and_optimizers():
    transform = Normalize(2, bounds=torch.tensor([[0.0, 0.0], [2.0, 1.0]], dtype=torch.float64))
    priors = [
        BanditGP.with_kernel(kernel, noise=0.04, lengthscale=0.3, input_transform=transform)
        for kernel in (RBFKernel(), MaternKernel(nu=1.5))
    ]
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(9, 2, dtype=torch.float64, generator=generator)
    model = BanditGP.with_candidates(priors)(X, X.sum(-1, keepdim=True).sin())
    acqf = CandidatesDMMUpperConfidenceBound(model, **BOUNDS)
    points = torch.rand(4, 1, 2, dtype=torch.float64, generator=generator).requires_grad_()
    assert torch.autograd.gradcheck(lambda Z: acqf(Z), (points,), atol=1e-5)
    box = torch.tensor([[0.0, 0.0], [2.0, 1.0]], dtype=torch.float64)
    with manual_seed(0):
        best, value = optimize_acqf(acqf, box, q=1, num_restarts=8, raw_samples=128)
    some = torch.rand(200, 1, 2, dtype=torch.float64, generator=generator) * box[1]
    assert float(value) >= float(acqf(some).max()) - 1e-6
    again = pickle.loads(pickle.dumps(acqf))
    torch.testing.assert_close(again(best.unsqueeze(0)), acqf(best.unsqueeze(0)))


def test_pending_points_shrink_what_is_added():
    X = GRID[::6]
    model = BanditGP.with_candidates(some_list())(X, X.sin())
    acqf = CandidatesDMMUpperConfidenceBound(model, **BOUNDS)
    pending = GRID[14:16]
    after = CandidatesDMMUpperConfidenceBound(model, X_pending=pending, **BOUNDS)
    near, far = GRID[15].reshape(1, 1, 1), GRID[25].reshape(1, 1, 1)
    assert float(after(near)) < float(acqf(near)) - 1e-3
    assert float(after(far)) <= float(acqf(far)) + 1e-12
    # several points are one after the other
    both = torch.stack([GRID[14], GRID[20]]).unsqueeze(0)
    second = CandidatesDMMUpperConfidenceBound(model, X_pending=GRID[14:15], **BOUNDS)
    expected = float(acqf(both[:, :1])) + float(second(both[:, 1:]))
    assert float(acqf(both)) == pytest.approx(expected, abs=1e-10)
    for mine, theirs in zip(after.bounds(GRID), acqf.bounds(GRID), strict=True):
        assert torch.equal(mine, theirs)  # certificates are of what arrived
    guarantee = after.guarantee()
    assert guarantee.bands.holds
    assert not guarantee.regret.holds
    after.set_X_pending(None)
    assert after.guarantee().holds


@pytest.mark.parametrize("noise", ["gaussian", "signs"])
def test_the_true_function_stays_between_the_bounds(noise):
    """At all points in all rounds; queries follow the bound. The list has the true kernel once."""
    delta, num_runs, failed = 0.3, 40, 0
    kernel = squared_exponential(0.1)
    priors = some_list()
    for run in range(num_runs):
        random = np.random.default_rng(run)
        centers = random.random((6, 1))
        alpha = random.standard_normal(6)
        alpha *= 1.5 / math.sqrt(alpha @ kernel(centers, centers) @ alpha)
        f = kernel(GRID.numpy(), centers) @ alpha
        recipe, X, y, held = BanditGP.with_candidates(priors), [], [], True
        model = recipe(GRID[:0], GRID[:0])
        for _ in range(12):
            acqf = CandidatesDMMUpperConfidenceBound(
                model, rkhs_bound=1.5, noise_bound=0.2, delta=delta
            )
            with torch.no_grad():
                lower, upper = (end.numpy() for end in acqf.bounds(GRID))
            held &= bool(((lower <= f) & (f <= upper)).all())
            arm = int(upper.argmax())
            sign = 1.0 if random.random() < 0.5 else -1.0
            z = random.standard_normal() if noise == "gaussian" else sign
            X.append(GRID[arm])
            y.append([f[arm] + 0.2 * z])
            model = recipe(torch.stack(X), torch.tensor(y, dtype=torch.float64))
        failed += not held
    lower, _ = binomial_interval(failed, num_runs, confidence=0.99)
    assert lower <= delta
    assert failed <= delta * num_runs


def test_wrong_kernels_drop_out_and_the_bound_profits():
    """A rough function: the ball of the long lengthscale is refuted, and the union shrinks."""
    X = np.tile(np.linspace(0.0, 1.0, 12)[:, None], (4, 1))
    f = 2.0 * np.sign(np.sin(9.0 * X[:, 0])) * 0.5
    priors = [entry(RBFKernel(), lengthscale, noise=0.04) for lengthscale in (1.0, 0.1)]
    model = BanditGP.with_candidates(priors)(torch.as_tensor(X), torch.as_tensor(f).unsqueeze(-1))
    acqf = CandidatesDMMUpperConfidenceBound(model, rkhs_bound=(2.0, 6.0), noise_bound=0.2)
    assert acqf.survivors.tolist() == [False, True]
    alone = BanditGP.with_candidates(priors[1:])(
        torch.as_tensor(X), torch.as_tensor(f).unsqueeze(-1)
    )
    reference = CandidatesDMMUpperConfidenceBound(alone, rkhs_bound=6.0, noise_bound=0.2)
    gap = (acqf.bounds(GRID)[1] - reference.bounds(GRID)[1]).abs().max()
    assert float(gap) < 0.2  # ln 2 of a radius
    with pytest.warns(AssumptionRefutedWarning, match="a kernel of"):
        none = CandidatesDMMUpperConfidenceBound(model, rkhs_bound=0.1, noise_bound=0.2)
    assert none.is_refuted
    assert "refute every ball" in str(none.guarantee())
    assert bool(torch.isfinite(none(GRID.unsqueeze(-2))).all())
    with pytest.raises(ValueError, match="Give the list other"):
        CandidatesDMMUpperConfidenceBound(
            model, rkhs_bound=0.1, noise_bound=0.2, on_refuted="raise"
        )


def test_the_guarantee_names_every_assumption():
    model = BanditGP.with_candidates(some_list())(GRID[:3], GRID[:3])
    guarantee = CandidatesDMMUpperConfidenceBound(model, **BOUNDS).guarantee()
    assert guarantee.holds
    assert guarantee.regret.largest == pytest.approx(3.0)
    told = str(guarantee)
    assert "for at least one entry of the list the reward less its prior mean" in told
    assert "the norm 1.5 in the space of its kernel without output scale" in told
    assert "sub-Gaussian" in told
    assert "fixed before the data" in told
    linear = [BanditGP.with_kernel(LinearKernel(), noise=0.1), some_list()[0]]
    linear = BanditGP.with_candidates(linear)(GRID[:3], GRID[:3])
    assert CandidatesDMMUpperConfidenceBound(linear, **BOUNDS).guarantee().regret.largest is None
    skipped = BanditGP.with_candidates(some_list(), num_skipped=2)(GRID[:3], GRID[:3])
    assert not CandidatesDMMUpperConfidenceBound(skipped, **BOUNDS).guarantee().holds
    own = CandidatesModel.from_models([prior(GRID[:3], GRID[:3]) for prior in some_list()[:1]])
    own = CandidatesDMMUpperConfidenceBound(own, assume="fixed prior", **BOUNDS)
    assert own.guarantee().holds


@pytest.mark.parametrize("domain", [Arms(GRID), Box([[0.0], [1.0]])], ids=["arms", "box"])
def test_a_loop_plays_it(domain, tmp_path):
    recipe = BanditGP.with_candidates(candidate_grid([0.05, 0.2, 0.8], noise_ratios=[0.04]))

    def loop_on(history=None, **given):
        return BanditLoop(
            domain,
            recipe,
            CandidatesDMMUpperConfidenceBound.with_options(**BOUNDS),
            seed=0,
            history=history,
            **given,
        )

    loop = loop_on(journal=tmp_path / "run.journal")
    f = lambda x: math.exp(-8.0 * (x - 0.6) ** 2)  # noqa: E731
    for n in range(12):
        query = loop.ask()
        x = float(query.x[0])
        noise = 0.05 * math.sin(7.0 * n)
        assert query.diagnostics["lower_bound"] - 1e-9 <= f(x) <= query.diagnostics["upper_bound"]
        loop.tell(query.id, f(x) + noise)
    assert loop.guarantee().holds
    regrets = [1.0 - f(float(query.x[0])) for query in loop.history.queries]
    assert sum(regrets) <= loop.guarantee().regret.bound
    twin = loop_on(copy.deepcopy(loop.history))
    loop.close()
    loop = loop_on(journal=tmp_path / "run.journal")
    following = loop.ask()
    assert torch.equal(twin.ask().x, following.x)
    model = recipe(*loop.history.arrived())
    acqf = CandidatesDMMUpperConfidenceBound(model, **BOUNDS)
    value = float(acqf(following.x.unsqueeze(0)))
    assert value == pytest.approx(float(acqf(GRID.unsqueeze(-2)).max()), abs=1e-3)
    for feedback in (Hallucinated(), Ignored()):
        waiting = loop_on(feedback=feedback)
        first, second = waiting.ask(), waiting.ask()
        assert first.id != second.id
        assert len(waiting.recommend().x) == 1
    contexts = BanditLoop(
        domain,
        recipe,
        CandidatesDMMUpperConfidenceBound.with_options(**BOUNDS),
        seed=0,
        context_dim=1,
        num_initial=2,
    )
    for n in range(4):
        query = contexts.ask(context=[0.1 * n])
        contexts.tell(query.id, 0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rkhs_bound": 0.0, "noise_bound": 0.1}, "rkhs_bound is 0"),
        ({"rkhs_bound": math.nan, "noise_bound": 0.1}, "rkhs_bound is nan"),
        ({"rkhs_bound": 1.0, "noise_bound": 0.0}, "noise_bound is 0"),
        ({"rkhs_bound": 1.0, "noise_bound": 0.1, "delta": 1.0}, "delta is 1"),
        ({"rkhs_bound": 1.0, "noise_bound": 0.1, "num_ridges": 0}, "num_ridges is 0"),
        ({"rkhs_bound": 1.0, "noise_bound": 0.1, "on_refuted": "no"}, "on_refuted is 'no'"),
        ({"rkhs_bound": (1.0, -1.0), "noise_bound": 0.1}, "rkhs_bound"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        CandidatesDMMUpperConfidenceBound.with_options(**options)
    model = BanditGP.with_candidates(some_list()[:2])(GRID[:3], GRID[:3])
    with pytest.raises(ValueError, match=message):
        CandidatesDMMUpperConfidenceBound(model, **options)


def test_other_mistakes_are_refused():
    with pytest.raises(ValueError, match="rkhs_bound= is missing"):
        CandidatesDMMUpperConfidenceBound.with_options(noise_bound=0.1)
    model = BanditGP.with_candidates(some_list())(GRID[:3], GRID[:3])
    with pytest.raises(ValueError, match="rkhs_bound has 2 entries"):
        CandidatesDMMUpperConfidenceBound(model, rkhs_bound=(1.0, 2.0), noise_bound=0.1)
    with pytest.raises(TypeError, match="a list of priors"):
        CandidatesDMMUpperConfidenceBound(some_list()[0](GRID[:3], GRID[:3]), **BOUNDS)
    acqf = CandidatesDMMUpperConfidenceBound(model, **BOUNDS)
    with pytest.raises(TypeError, match="float64"):
        acqf(GRID.float().unsqueeze(-2))
    with pytest.raises(ValueError, match="columns"):
        acqf.bounds(torch.zeros(2, 2, dtype=torch.float64))
    recipe = CandidatesDMMUpperConfidenceBound.with_options(rkhs_bound=[1.0, 2.0], noise_bound=0.1)
    with pytest.raises(ValueError, match="rkhs_bound has 2 entries"):
        BanditLoop(Arms(GRID), BanditGP.with_candidates(some_list()), recipe)
    with pytest.raises(TypeError, match="which needs a list"):
        BanditLoop(Arms(GRID), some_list()[0], recipe)

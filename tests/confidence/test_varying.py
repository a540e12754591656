"""Functions that vary with the round: widths and numbers against dense computations."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from gpytorch.kernels import RBFKernel, ScaleKernel
from models.textbook import double, line
from torch import Tensor

import botorch_bandits as bandits
from botorch_bandits import BanditGP, BanditLoop, ImprovedUpperConfidenceBound
from botorch_bandits.confidence import (
    BoundedNorm,
    CensoredWidth,
    GainBound,
    KernelizedWidth,
    PriorSummary,
    exact_constraints_bounds,
    igp_ucb_regret_bound,
    noisy_constraints_bounds,
    realized_regret_bound,
    width_of_variation,
)
from botorch_bandits.penalties import Exponential, Polynomial

B, R, DELTA = 2.0, 0.1, 0.1
BOUNDS = {"rkhs_bound": B, "noise_bound": R, "delta": DELTA}


def points(count: int, seed: int, dim: int = 1) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.rand(count, dim, dtype=torch.float64, generator=stream)


def scaled(variance: float) -> Any:
    kernel: Any = ScaleKernel(RBFKernel()).double()
    numbers = double([0.3, variance])
    kernel.base_kernel.lengthscale, kernel.outputscale = numbers
    return kernel


# --- the inequality -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_no_error_of_that_size_moves_the_mean_by_more(seed: int) -> None:
    """The worst errors are known: those with the signs of the weights of the mean."""
    lam, v = (0.01, 0.1, 0.5, 1.0, 4.0)[seed], 0.3
    X, x = points(25, seed, 2), points(40, seed + 100, 2)
    K = torch.exp(-0.5 * torch.cdist(X, X).square() / 0.09)
    k = torch.exp(-0.5 * torch.cdist(x, X).square() / 0.09)
    weights = torch.linalg.solve(K + lam * torch.eye(25, dtype=torch.float64), k.mT).mT
    deviation = (1.0 - (weights * k).sum(-1)).sqrt()
    worst = v * weights.abs().sum(-1)
    limit = width_of_variation(v, 25, double(lam))
    assert limit == pytest.approx(v * math.sqrt(25 / lam), rel=1e-12)
    assert bool((worst <= limit * deviation + 1e-12).all())


@pytest.mark.parametrize("variance", [1.0, 4.0])
@pytest.mark.parametrize("units", ["outcome", "prior"])
@pytest.mark.parametrize("any_lambda", [True, False])
def test_the_width_grows_by_it(variance: float, units: str, any_lambda: bool) -> None:
    X, v, noise = points(12, 3), 0.07, 1.7 * variance
    model = BanditGP(X, X.sin(), kernel=scaled(variance), noise=noise)
    options = {**BOUNDS, "units": units, "any_lambda": any_lambda}
    with_it, without = (
        ImprovedUpperConfidenceBound(model, **options, variation=each) for each in (v, 0.0)
    )
    unit = 1.0 if units == "prior" else math.sqrt(variance)
    expected = v / unit * math.sqrt(12 / 1.7)
    assert float(with_it.width - without.width) == pytest.approx(expected, rel=1e-10)
    told = with_it.guarantee()
    assert told.holds
    assert told.regret is not None
    scale = math.sqrt(variance) if units == "prior" else 1.0
    assert told.regret.added == pytest.approx(2.0 * v * scale, rel=1e-12)
    assert told.regret.largest == pytest.approx(2.0 * (B + v) * scale, rel=1e-12)
    assert "differs by at most variation" in told.explain(10_000)
    assert told.constants["variation"] == v


# --- what loops promise -------------------------------------------------------------------------


def test_exact_constraints_that_vary_are_no_noise() -> None:
    X = line(0.0, 1.0, 3)
    rule = ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True, variation=0.1)
    recipe = BanditGP.with_kernel(scaled(1.0), noise=0.5)
    models = [recipe, recipe]
    constraints = bandits.MultiplicativeEpochs(1, 4, surrogate="fresh", models=models)
    loop = BanditLoop(bandits.Arms(X), None, rule, constraints=constraints, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for t in range(9):
            query = loop.ask()
            loop.tell(query.id, float(query.x), constraints=[0.05 * math.sin(t) - 0.2])
    told = loop.guarantee()
    seen = [q.diagnostics for q in loop.history.queries]
    expected = sum(2.0 * d["width"] * d["standard_deviation"] + 0.2 for d in seen)
    assert told.regret is not None
    assert told.regret.bound == pytest.approx(expected, rel=1e-10)


# --- numbers for a horizon ----------------------------------------------------------------------


def gain(count: int) -> float:
    return 0.4 * math.log1p(count)


def noise_term(rounds: int, odds: float, lam: float, any_lambda: bool) -> float:
    """What the noise adds to the width of the last round, as printed or for every lam."""
    root = math.sqrt(2 * (gain(rounds - 1) + (not any_lambda) + math.log(odds)))
    return R * root / (math.sqrt(lam) if any_lambda else 1.0)


@pytest.mark.parametrize("v", [0.0, 0.02])
@pytest.mark.parametrize(("lam", "any_lambda"), [(0.3, True), (2.0, True), (2.0, False)])
@pytest.mark.parametrize("penalty", [Exponential(0.8), Polynomial(1.3, 2.5)])
def test_bounds_of_theorem_1_are_its_formulas(
    penalty: Any, lam: float, any_lambda: bool, v: float
) -> None:
    L, S, m, gap = 6, 50, 2, 0.4
    assumed = BoundedNorm(B, R, DELTA, lam, any_lambda, variation=v)
    found = exact_constraints_bounds(L, S, gain, assumed, penalty, gap, m)
    w = B + v * math.sqrt((S - 1) / lam) + noise_term(S, L / DELTA, lam, any_lambda)
    c1 = 2.0 / math.log(1.0 + 1.0 / lam)
    U = L * min(2 * w * math.sqrt(S * min(c1 * gain(S), S)), 2 * B * S) + 2 * v * L * S
    assert found.regret == pytest.approx(U, rel=1e-12)
    level = 1.0 + L * gap + U / S
    inverse = (level ** (1 / 2.5) - 1.0) / 1.3
    if isinstance(penalty, Exponential):
        inverse = math.log(level) / 0.8
    assert found.violation == pytest.approx(math.sqrt(m) * S * inverse, rel=1e-10)


@pytest.mark.parametrize("v", [0.0, 0.02])
@pytest.mark.parametrize("any_lambda", [True, False])
def test_bounds_of_theorem_2_are_its_formulas(any_lambda: bool, v: float) -> None:
    L, S, m, mu, eps, Q, M, lam = 40, 4000, 2, 0.15, 1.0, 9.0, 1.2, 2.0
    assumed = BoundedNorm(B, R, DELTA, lam, any_lambda, variation=v)
    found = noisy_constraints_bounds(L, S, gain, assumed, mu, eps, Q, M, m)
    c1 = 2.0 / math.log(1.0 + 1.0 / lam)
    W = 2.0 * math.sqrt(min(c1 * gain(S), S) / S)
    share = DELTA / (2 * L)
    term = noise_term(S, 1 / share, lam, any_lambda)
    B_v = B + v * math.sqrt((S - 1) / lam)
    g = math.sqrt(4 * m) + math.sqrt(math.log(1 / share))
    top = 2 * Q + 2 * v + W * (B_v + term) + m * mu * M**2 + 4 * mu * R**2 * g**2 / S
    bottom = eps - W * term - 2 * R * g / math.sqrt(S)
    kappa = math.sqrt(m) * mu * M + 2 * mu * R * g / math.sqrt(S) + top / bottom
    assert found.multiplier == pytest.approx(kappa, rel=1e-12)
    assert found.realized_violation == pytest.approx(S * kappa / mu, rel=1e-12)
    noise = 2 * R * L * math.sqrt(S) * g
    worst = min(S * kappa / mu + noise, math.sqrt(m) * M * L * S)
    assert found.violation == pytest.approx(worst, rel=1e-12)
    regret = L * (
        S * W * (B_v + math.sqrt(1 + kappa**2) * term)
        + m * S * mu * M**2
        + 4 * mu * R**2 * g**2
        + 2 * R * kappa * math.sqrt(S) * g
        + 2 * S * v
    )
    assert regret < 2 * Q * L * S  # what any choice of points has
    assert found.regret == pytest.approx(regret, rel=1e-12)


# --- Appendix B ---------------------------------------------------------------------------------


def test_regret_in_realized_rewards() -> None:
    added = (
        0.3 * math.sqrt(2 * 50) * (math.sqrt(math.log(2 * 7 / 0.1)) + math.sqrt(math.log(2 / 0.1)))
    )
    assert realized_regret_bound(12.0, 50, 0.3, 0.1) == 12.0
    assert realized_regret_bound(12.0, 50, 0.3, 0.1, 7) == pytest.approx(12.0 + added, rel=1e-12)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, "much"])
def test_a_bad_variation_is_named(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="variation"):
        ImprovedUpperConfidenceBound.with_options(**BOUNDS, variation=value)


def test_variation_needs_bounds_and_one_output() -> None:
    X = points(5, 0)
    model = BanditGP(X, X.sin(), kernel=scaled(1.0), noise=1.0)
    for options in ({}, {"width": 2.0}):
        with pytest.raises(ValueError, match=r"variation=0\.1"):
            ImprovedUpperConfidenceBound(model, variation=0.1, **options)
    feedback = bandits.Censored(minimum=0.0, outcome_bound=1.0, max_delay=3)
    rule = ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True, variation=0.1)
    recipe = BanditGP.with_kernel(scaled(1.0), noise=1.0)
    with pytest.raises(ValueError, match="does not go with"):
        BanditLoop(bandits.Box([[0.0], [1.0]]), recipe, rule, feedback=feedback)
    two = BanditGP.with_kernel(scaled(1.0), noise=1.0)(X, torch.cat([X, X], -1))
    weights = torch.ones(2, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"variation is 0\.1, but"):
        ImprovedUpperConfidenceBound(
            two,
            **BOUNDS,
            any_lambda=True,
            variation=0.1,
            posterior_transform=ScalarizedPosteriorTransform(weights),
        )


@pytest.mark.parametrize("weighting", [{"count": 10}, {"noise": 0.02}, {"noise": 0.1}])
@pytest.mark.parametrize("domain", ["arms", "box"])
def test_rows_of_other_weights_vary_by_their_own_noise(domain: str, weighting: Any) -> None:
    """The bound on what varies is ``v`` times the root of the sum of ``1 / lam`` over rows."""
    points, noise, variation = torch.linspace(0.0, 1.0, 5).double().unsqueeze(-1), 0.05, 0.1
    options = {"rkhs_bound": 2.0, "noise_bound": 0.3, "any_lambda": True}
    loop, plain = (
        BanditLoop(
            bandits.Arms(points) if domain == "arms" else bandits.Box([[0.0], [1.0]]),
            BanditGP.with_kernel(RBFKernel(), noise=noise, lengthscale=0.2),
            ImprovedUpperConfidenceBound.with_options(**options, **more),
        )
        for more in ({"variation": variation}, {})
    )
    for i in range(20):
        for each in (loop, plain):
            each.attach(points[i % 5], 0.3, **weighting)
    widths = [each.ask().diagnostics["width"] for each in (loop, plain)]
    sigma = noise / weighting["count"] if "count" in weighting else weighting["noise"]
    assert widths[0] - widths[1] == pytest.approx(variation * math.sqrt(20 / sigma), rel=1e-8)
    bounds = [each.recommend() for each in (loop, plain)]
    halves = [each.upper_bound - each.mean for each in bounds]
    halves[0] -= variation  # the reward of a round differs from the function by as much
    ratios = [half / each.standard_deviation for half, each in zip(halves, bounds, strict=True)]
    assert ratios[0] - ratios[1] == pytest.approx(widths[0] - widths[1], rel=1e-8)


def test_censored_outcomes_of_functions_that_vary_have_no_theorem() -> None:
    rule = KernelizedWidth(2.0, 0.1, delta=0.1, variation=0.1)
    model = BanditGP.with_kernel(RBFKernel(), noise=0.05)(torch.zeros(1, 1).double(), ONE)
    known = CensoredWidth(rule, 1.0).guarantee(PriorSummary(model), 1)
    assert known.bands is None or not known.bands.holds
    varying = BoundedNorm(1.0, 0.1, 0.1, outcome_bound=1.0, variation=0.1)
    with pytest.raises(ValueError, match="no theorem covers censored outcomes"):
        igp_ucb_regret_bound(5, lambda n: 1.0, varying)


ONE = torch.ones(1, 1, dtype=torch.float64)


@pytest.mark.parametrize("name", ["ImprovedUpperConfidenceBound", "GPThompsonSampling"])
def test_options_beside_an_explicit_width_are_checked(name: str) -> None:
    model = BanditGP.with_kernel(RBFKernel(), noise=0.05)(torch.zeros(1, 1).double(), ONE)
    with pytest.raises(ValueError, match="delta is 5"):
        getattr(bandits, name)(model, width=2.0, delta=5.0)
    with pytest.raises(ValueError, match="units is 'x'"):
        getattr(bandits, name)(model, width=2.0, units="x")


def test_the_assumption_of_a_gain_of_ones_own_is_said_as_it_is() -> None:
    class Binary(GainBound):
        assumption = "all inputs are in {0,1}^d"

        def _bound(self, num_observations: int) -> float:
            return 50.0

    model = BanditGP.with_kernel(RBFKernel(), noise=1.0)(torch.zeros(1, 1).double(), ONE)
    acqf = ImprovedUpperConfidenceBound(
        model, rkhs_bound=1.0, noise_bound=0.1, information_gain=Binary()
    )
    assert "all inputs are in {0,1}^d" in acqf.guarantee().assumptions

"""Epochs with kernels of their own (Assumptions 3 and 5 of Shi and Eryilmaz): dense hand checks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

import botorch_bandits as bandits
from botorch_bandits import AdditiveEpochs, BanditGP, BanditLoop, MultiplicativeEpochs
from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.penalties import Exponential
from botorch_bandits.problems import ConstrainedArmsProblem
from botorch_bandits.simulation import Policy, simulate

S, B, R, DELTA = 4, 2.0, 0.1, 0.1
GRID = np.linspace(0.0, 1.0, 15)
ARMS = bandits.Arms(torch.from_numpy(GRID).unsqueeze(-1))
BOX = bandits.Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
BOUNDS = {"rkhs_bound": B, "noise_bound": R, "delta": DELTA}
IGP_UCB = bandits.ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)

PRIORS = ((0.3, 1.0, 0.05), (0.15, 4.0, 0.5), (0.6, 0.25, 0.02))
"""Lengthscale, prior variance and noise variance of epochs 1, 2 and all later ones."""


def recipe(lengthscale: float, variance: float, noise: float) -> bandits.BanditGPRecipe:
    kernel: Any = ScaleKernel(RBFKernel()).double()
    numbers = torch.tensor([lengthscale, variance], dtype=torch.float64)
    kernel.base_kernel.lengthscale, kernel.outputscale = numbers
    return BanditGP.with_kernel(kernel, noise=noise)


MODELS = [recipe(*prior) for prior in PRIORS]
FRESH = MultiplicativeEpochs(1, S, surrogate="fresh", models=MODELS)


def f(x: float) -> float:
    return math.sin(5.0 * x) + x


def g(x: float) -> float:
    return 0.5 - x


def score(
    prior: tuple[float, float, float], x: Any, y: Any, noise_bound: float, delta: float
) -> Any:
    """Mean, deviation and width of IGP-UCB for every lam, everything dense and in raw units."""
    lengthscale, variance, noise = prior

    def k(a: Any, b: Any) -> Any:
        distance = (np.asarray(a)[:, None] - np.asarray(b)[None, :]) / lengthscale
        return variance * np.exp(-0.5 * distance**2)

    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    matrix, cross = k(x, x) + noise * np.eye(len(x)), k(GRID, x)
    mean = cross @ np.linalg.solve(matrix, y)
    remaining = variance - np.einsum("ij,ji->i", cross, np.linalg.solve(matrix, cross.T))
    gain = 0.5 * np.linalg.slogdet(np.eye(len(x)) + k(x, x) / noise)[1]
    scale = math.sqrt(variance)
    radius = math.sqrt(2.0 * (gain + math.log(1.0 / delta)))
    width = B / scale + noise_bound / scale / math.sqrt(noise / variance) * radius
    return mean, np.sqrt(remaining.clip(1e-18)), width


def choice(mean: Any, deviation: Any, width: float) -> int:
    scores = mean + width * deviation
    return int(np.argmax(scores >= scores.max() - 1e-9 * max(1.0, abs(scores.max()))))


@pytest.mark.parametrize("kind", ["multiplicative", "additive"])
def test_each_epoch_is_played_in_its_own_kernel(kind: str) -> None:
    is_exact = kind == "multiplicative"
    rule: Any = AdditiveEpochs(1, S, 0.5, surrogate="fresh", models=MODELS)
    if is_exact:
        rule = MultiplicativeEpochs(
            1, S, penalty=Exponential(0.7), surrogate="fresh", models=MODELS
        )
    loop = BanditLoop(ARMS, None, IGP_UCB, constraints=rule, horizon=24, seed=0)
    rng = np.random.default_rng(0)
    kappa = 1.0 if is_exact else 0.0
    xs: list[float] = []
    fs: list[float] = []
    gs: list[float] = []
    regret = squares = linear = 0.0
    for t in range(24):
        epoch = t // S + 1
        if t and t % S == 0:
            mean_g = float(np.mean(gs[-S:]))
            kappa = (
                kappa * math.exp(0.7 * max(mean_g, 0.0))
                if is_exact
                else max(kappa + 0.5 * mean_g, 0.0)
            )
        prior = PRIORS[min(epoch, 3) - 1]
        rows = slice(t - t % S, t)
        values = np.array(gs[rows])
        penalty = np.exp(0.7 * values.clip(0.0)) - 1.0 if is_exact else values
        labels = np.array(fs[rows]) - kappa * penalty
        share = DELTA / 6 if is_exact else DELTA / 12
        noise_bound = R if is_exact else R * math.sqrt(1.0 + kappa**2)
        mean, deviation, width = score(prior, xs[rows], labels, noise_bound, share)
        arm = choice(mean, deviation, width)
        query = loop.ask()
        assert float(query.x[0]) == GRID[arm], t
        assert query.diagnostics["width"] == pytest.approx(width, rel=1e-9)
        assert query.diagnostics["standard_deviation"] == pytest.approx(deviation[arm], rel=1e-8)
        x = float(query.x[0])
        constraint = g(x) if is_exact else g(x) + R * (1.0 if rng.random() < 0.5 else -1.0)
        reward = f(x) + R * (1.0 if rng.random() < 0.5 else -1.0)
        loop.tell(query.id, reward, constraints=[constraint])
        xs.append(x), fs.append(reward), gs.append(constraint)
        regret += 2.0 * width * deviation[arm]
        squares, linear = squares + kappa**2, linear + kappa * constraint
    told = loop.guarantee()
    assert told.holds, str(told)
    assert "each epoch has its own model" in str(told)
    expected, violation = regret, max(sum(gs), 0.0)
    if not is_exact:

        def largest(total: float, delta: float) -> float:
            log = 0.5 * math.log1p(total) - math.log(delta)
            return R * math.sqrt(2.0 * (total + 1.0) * log)

        expected += largest(squares, DELTA / 4) - linear
        violation = max(sum(gs) + largest(24.0, DELTA / 4), 0.0)
    assert told.regret is not None
    assert told.violation is not None
    assert told.regret.bound == pytest.approx(expected, rel=1e-8)
    assert told.violation.bound == pytest.approx(violation, rel=1e-10, abs=1e-12)


def play(loop: BanditLoop, num_rounds: int, sign: float = 1.0) -> list[float]:
    """Play rounds whose outcomes are a function of the point."""
    played = []
    for _ in range(num_rounds):
        query = loop.ask()
        x = float(query.x[0])
        loop.tell(query.id, sign * f(x), constraints=[g(x)])
        played.append(x)
    return played


def test_what_an_earlier_model_lacks_takes_regret_and_violation_away_for_good() -> None:
    printed = bandits.ImprovedUpperConfidenceBound.with_options(**BOUNDS)
    small, large = recipe(0.3, 1.0, 0.5), recipe(0.3, 1.0, 2.0)
    rule = replace(FRESH, models=[small, large])
    loop = BanditLoop(ARMS, None, printed, constraints=rule, seed=0)
    play(loop, 3)
    assert not loop.guarantee().holds
    play(loop, 3)  # in the second epoch, whose own model lacks nothing
    told = loop.guarantee()
    assert told.bands is not None
    assert told.bands.holds
    for statement in (told.regret, told.violation):
        assert statement is not None
        assert not statement.holds
        assert statement.total is None
        assert any(gap.startswith("in epoch 1: lam = 0.5 is below 1") for gap in statement.gaps)
    rule = replace(FRESH, models=[large, large])
    fine = BanditLoop(ARMS, None, printed, constraints=rule, seed=0)
    play(fine, 6)
    assert fine.guarantee().holds


def test_bounds_in_prior_units_take_the_largest_scale_for_the_noise_of_constraints() -> None:
    acquisition = bandits.ImprovedUpperConfidenceBound.with_options(
        **BOUNDS, any_lambda=True, units="prior"
    )
    bounds = []
    for variances in ((4.0, 1.0), (1.0, 1.0)):
        models = [recipe(0.3, v, 0.05 * v) for v in variances]
        rule = AdditiveEpochs(1, S, 0.5, surrogate="fresh", models=models)
        loop = BanditLoop(ARMS, None, acquisition, constraints=rule, seed=0)
        play(loop, 6)
        violation = loop.guarantee().violation
        assert violation is not None
        assert violation.bound is not None
        total = sum(o.constraints[0] for o in loop.history.outcomes)
        scale = max(variances) ** 0.5
        log = 0.5 * math.log1p(6.0) - math.log(DELTA / 4)
        expected = total + R * scale * math.sqrt(2.0 * 7.0 * log)
        assert violation.bound == pytest.approx(max(expected, 0.0), rel=1e-10)
        bounds.append(violation.bound)
    assert bounds[0] > bounds[1]


def test_a_restart_begins_with_the_first_model_again() -> None:
    loop = BanditLoop(
        ARMS, None, IGP_UCB, constraints=FRESH, restart=bandits.OracleRestart((6,)), seed=0
    )
    noises = []
    for _ in range(11):
        query = loop.ask()
        noises.append(round(float(loop.current_model().likelihood.noise), 6))
        loop.tell(query.id, f(float(query.x[0])), constraints=[g(float(query.x[0]))])
    assert noises == [0.05] * 4 + [0.5] * 2 + [0.05] * 4 + [0.5]
    detector = bandits.ChangePointDetector(
        MaternKernel(nu=2.5), threshold=PowerThreshold(2.6, -6 / 7), smoothness=2.5
    )
    restart = bandits.ChangePointRestart(exploration=3**0.5, detector=detector)
    other = BanditLoop(ARMS, None, IGP_UCB, constraints=FRESH, restart=restart, seed=0)
    play(other, 6)
    assert not other.guarantee().holds


def test_replicates_are_played_by_loops() -> None:
    values = torch.tensor([f(x) for x in GRID], dtype=torch.float64)
    table = torch.tensor([[g(x)] for x in GRID], dtype=torch.float64)
    problem = ConstrainedArmsProblem(ARMS.choices, values, table)
    policy = Policy(MODELS[0], IGP_UCB, constraints=FRESH)
    result = simulate(problem, policy, 6, 2, progress=False)
    loop = policy.loop(ARMS, seed=result.seeds[1])
    assert result.arms is not None
    assert play(loop, 6) == [GRID[arm] for arm in result.arms[1].tolist()]


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"), [(MODELS[0], "models"), (3, "models"), ([MODELS[0], 1.0], r"models\[1\]")]
)
def test_bad_models_are_named(given: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        AdditiveEpochs(1, S, surrogate="fresh", models=given)


def test_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ValueError, match="surrogate='fresh'"):
        AdditiveEpochs(1, S, models=MODELS)
    with pytest.raises(ValueError, match="EvidenceRestart"):
        BanditLoop(ARMS, None, IGP_UCB, constraints=FRESH, restart=bandits.EvidenceRestart())
    with pytest.raises(ValueError, match="models="):
        BanditLoop(ARMS, MODELS[1], IGP_UCB, constraints=FRESH)


def test_weighted_outcomes_are_refused() -> None:
    loop = BanditLoop(ARMS, None, IGP_UCB, constraints=FRESH, seed=0)
    query = loop.ask()
    with pytest.raises(ValueError, match="models="):
        loop.tell(query.id, 1.0, constraints=[0.0], count=3)
    assert loop.history.num_arrived == 0


def test_feasibility_is_asked_in_the_model_of_the_running_epoch() -> None:
    loop = BanditLoop(ARMS, None, IGP_UCB, constraints=FRESH, seed=0)
    play(loop, 6)
    x = np.array([float(query.x[0]) for query in loop.history.queries])
    values = np.array([o.constraints[0] for o in loop.history.outcomes])
    mean, deviation, _ = score(PRIORS[1], x, values, R, DELTA)
    expected = float((mean - 1.5 * deviation).min())
    found = loop.feasibility(width=1.5).constraints[0].smallest_lower_bound
    # the running epoch began with round 5 at the latest when round 6 was asked
    assert found == pytest.approx(expected, rel=1e-8)

"""Loops with long-term constraints: multipliers, epochs, reports and guarantees."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditGPRecipe,
    BanditLoop,
    Box,
    ExponentialWeights,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    MultiplicativeEpochs,
    OracleRestart,
    Policy,
    PrimalDual,
    RandomSearch,
    SlidingWindow,
    TimeVaryingKernel,
    simulate,
)
from botorch_bandits.constraints import InfeasibleConstraintsWarning, NoisyConstraintsWarning
from botorch_bandits.penalties import Exponential, Polynomial
from botorch_bandits.problems import ConstrainedArmsProblem
from tests.models.textbook import double, posterior, squared_exponential
from tests.records import rebuilt

from .rounds import Setting, charges

S, B, R, DELTA = 4, 2.0, 0.1, 0.1
GRID = torch.linspace(0.0, 1.0, 15, dtype=torch.float64).unsqueeze(-1)
ARMS, BOX = Arms(GRID), Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
BOUNDS = {"rkhs_bound": B, "noise_bound": R, "delta": DELTA}
IGP_UCB = ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)
PLAIN = GPUpperConfidenceBound.with_options(width=1.5)
LAGRANGIAN = LagrangianUpperConfidenceBound.with_options(width=1.5)

PRIORS = ((0.3, 1.0, 0.05), (0.15, 4.0, 0.5), (0.6, 0.25, 0.02))
"""Lengthscale, prior variance and noise variance of epochs 1, 2 and all later ones."""


def recipe(lengthscale: float, variance: float, noise: float, **more: Any) -> BanditGPRecipe:
    kernel: Any = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = double([lengthscale, variance])
    return BanditGP.with_kernel(kernel, noise=noise, **more)


MODELS = [recipe(*prior) for prior in PRIORS]
MODEL = recipe(*PRIORS[0], prior_mean=0.5)
FRESH = MultiplicativeEpochs(1, S, surrogate="fresh", models=MODELS)


def f(x: float) -> float:
    return math.sin(5.0 * x) + x


def feasible(x: float) -> float:
    return 0.5 - x


def infeasible(x: float) -> float:
    return 1.0 + x * x


def play(
    loop: BanditLoop, num_rounds: int, g: Callable[[float], float] = feasible
) -> list[warnings.WarningMessage]:
    """Play rounds whose outcomes are a function of the point; return warnings on constraints."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(num_rounds):
            query = loop.ask()
            x = float(query.x[0])
            loop.tell(query.id, f(x), constraints=[g(x)])
    kinds = (InfeasibleConstraintsWarning, NoisyConstraintsWarning)
    return [w for w in caught if issubclass(w.category, kinds)]


def dense(
    prior: tuple[float, float, float], x: Any, y: Any, noises: Any = 1.0, time: Any = None
) -> tuple[Tensor, Tensor, float]:
    """Mean and deviation on the grid, and gain; the prior mean is 0.

    Args:
        prior: Lengthscale, prior variance and noise variance.
        x: Places of the rows.
        y: Their values.
        noises: Multiples of the noise.
        time: Rounds to go back from the next one, and the rate of the drift.
    """
    lengthscale, variance, noise = prior
    places, at = double(list(x)).reshape(-1, 1), GRID
    kernel = squared_exponential(lengthscale)

    def drifting(A: Tensor, C: Tensor) -> Tensor:
        ages, rate = time
        back = [ages if len(each) == len(ages) else torch.zeros(len(each)) for each in (A, C)]
        decay: Tensor = (1.0 - rate) ** ((back[0].unsqueeze(-1) - back[1]).abs() / 2)
        return kernel(A, C) * decay

    lam = noise / variance * torch.as_tensor(noises).expand(len(places)).double()
    mean, covariance = posterior(
        kernel if time is None else drifting, places, double(list(y)), lam, at
    )
    gram = kernel(places, places) / lam
    gain = 0.5 * float(torch.logdet(torch.eye(len(places), dtype=torch.float64) + gram))
    return mean, (variance * covariance.diagonal()).clamp_min(1e-18).sqrt(), gain


def igp_width(
    prior: tuple[float, float, float], gain: float, noise_bound: float, delta: float
) -> float:
    """For every ``lam``, in prior deviations."""
    _, variance, noise = prior
    radius = math.sqrt(2.0 * (gain + math.log(1.0 / delta)))
    return B / math.sqrt(variance) + noise_bound / math.sqrt(noise) * radius


def smallest(loop: BanditLoop, **options: Any) -> float:
    return loop.feasibility(**options).constraints[0].smallest_lower_bound


# --- multipliers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["relabeled", "fresh", "exact", "separate, exact"])
def test_multipliers_follow_the_mean_of_each_epoch(rule: str) -> None:
    """Those of Algorithms 2 and 3; the choice that they lead to is in ``test_rounds``."""
    setting = Setting(rule=rule)
    loop = setting.loop()
    kappa = torch.ones(2).double() if "exact" in rule else torch.zeros(2).double()
    for t in range(14):
        setting.tell(loop)
        query = setting.ask(loop)
        values = double([outcome.constraints for outcome in loop.history.outcomes])
        if t and t % S == 0:
            mean = values[-S:].mean(0)
            grown = kappa * (1.0 + charges(mean, rule)) if "exact" in rule else kappa + 3.0 * mean
            kappa = grown.clamp_min(0.0)
        assert query.diagnostics["epoch"] == t // S + 1
        found = [query.diagnostics[f"multiplier_{j}"] for j in (1, 2)]
        assert found == pytest.approx(kappa.tolist(), rel=1e-12, abs=1e-12)
    assert float(kappa.max()) > 0.05  # the rule had work to do
    ledger = loop.ledger()
    sums = values.sum(0).clamp_min(0.0)
    assert ledger.signed_violation.tolist() == pytest.approx(sums.tolist(), abs=1e-12)
    rectified = values.clamp_min(0.0).sum(0)
    assert ledger.rectified_violation.tolist() == pytest.approx(rectified.tolist(), abs=1e-12)
    assert ledger.num_epochs == 4


def test_an_outcome_counts_in_the_epoch_of_its_arrival() -> None:
    rule = AdditiveEpochs(1, 3, step_size=1.0)
    loop = BanditLoop(ARMS, MODEL, RandomSearch(), constraints=rule, seed=0)
    queries = [loop.ask() for _ in range(3)]
    loop.tell(queries[0].id, 0.0, constraints=[0.6])
    queries.append(loop.ask())  # the first epoch is over: 0.6 / 3
    assert loop.multipliers == pytest.approx((0.2,))
    loop.tell(queries[1].id, 0.0, constraints=[0.9])
    loop.tell(queries[3].id, 0.0, constraints=[0.3])
    queries += [loop.ask() for _ in range(3)]
    assert loop.multipliers == pytest.approx((0.2 + 0.4,))
    assert [row["num_outcomes"] for row in loop.ledger().to_records()] == [1, 2, 0]


@pytest.mark.parametrize("keeps", [False, True])
def test_a_reset_cuts_the_epoch_and_may_keep_the_multipliers(keeps: bool) -> None:
    rule = AdditiveEpochs(1, 4, step_size=1.0)
    restart = OracleRestart((6,), exploration=None, keep_multipliers=keeps)
    loop = BanditLoop(ARMS, MODEL, IGP_UCB, constraints=rule, restart=restart, seed=0)
    play(loop, 6, lambda x: 0.5)
    assert loop.multipliers == pytest.approx((0.5,))
    early = loop.ask()  # the reset comes before round 7
    assert loop.multipliers == pytest.approx((0.5 if keeps else 0.0,))
    loop.tell(early.id, 0.0, constraints=[0.5])
    play(loop, 4, lambda x: 0.5)
    # a whole epoch of the new segment is over, and the cut one made no update
    assert loop.multipliers == pytest.approx((1.0 if keeps else 0.5,))


@pytest.mark.parametrize(
    "acquisition", [LAGRANGIAN, LagrangianThompsonSampling.with_options(width=1.5)]
)
def test_multipliers_of_every_round_follow_lower_bounds_in_uniform_rounds_too(
    acquisition: Any,
) -> None:
    rule = PrimalDual(1, max_multiplier=5.0, divisor=2.0)
    model = MODELS[0]
    loop = BanditLoop(ARMS, model, acquisition, constraints=rule, num_initial=4, seed=0)
    expected = 0.0
    for _ in range(15):
        query = loop.ask()
        assert query.diagnostics["multiplier_1"] == pytest.approx(expected, abs=1e-12)
        xs = [float(q.x[0]) for q in loop.history.queries[:-1]]
        mean, deviation, _ = dense(PRIORS[0], xs, [1.0] * len(xs))
        lower = (mean - 1.5 * deviation)[int(ARMS.index_of(query.x.unsqueeze(0)))]
        expected = min(max(expected + float(lower) / 2.0, 0.0), 5.0)
        loop.tell(query.id, 0.0, constraints=[1.0])
    assert loop.multipliers[0] > 1.0


def test_the_users_clips_stay_where_the_rule_has_none() -> None:
    clipped = LagrangianUpperConfidenceBound.with_options(
        width=2.0, reward_bound=1e-3, constraint_bound=1e-3
    )
    loop = BanditLoop(ARMS, MODEL, clipped, constraints=PrimalDual(1, 5.0, 1.0), seed=0)
    assert loop.ask().diagnostics["constraint_lower_bound_1"] == pytest.approx(-1e-3)


# --- a model for each epoch (Assumptions 3 and 5 of Shi and Eryilmaz) -----------------------------


@pytest.mark.parametrize("is_exact", [True, False])
def test_each_epoch_is_played_in_its_own_kernel(is_exact: bool) -> None:
    rule: Any = AdditiveEpochs(1, S, 0.5, surrogate="fresh", models=MODELS)
    if is_exact:
        rule = replace(FRESH, penalty=Exponential(0.7))
    loop = BanditLoop(ARMS, None, IGP_UCB, constraints=rule, horizon=24, seed=0)
    rng = np.random.default_rng(0)
    kappa = 1.0 if is_exact else 0.0
    rows: list[tuple[float, float, float]] = []
    regret = squares = linear = 0.0
    for t in range(24):
        if t and t % S == 0:
            mean_g = float(np.mean([row[2] for row in rows[-S:]]))
            grown = kappa * math.exp(0.7 * max(mean_g, 0.0)) if is_exact else kappa + 0.5 * mean_g
            kappa = max(grown, 0.0)
        prior, known = PRIORS[min(t // S, 2)], rows[t - t % S :]
        x, y, g = np.array(known).reshape(-1, 3).T
        labels = y - kappa * (np.exp(0.7 * g.clip(0.0)) - 1.0 if is_exact else g)
        share = DELTA / 6 if is_exact else DELTA / 12
        noise_bound = R if is_exact else R * math.sqrt(1.0 + kappa**2)
        mean, deviation, gain = dense(prior, x, labels)
        width = igp_width(prior, gain, noise_bound, share)
        scores = mean + width * deviation
        query = loop.ask()
        arm = int(ARMS.index_of(query.x.unsqueeze(0)))
        assert float(scores[arm]) >= float(scores.max()) - 1e-9 * max(1.0, float(scores.max()))
        assert query.diagnostics["width"] == pytest.approx(width, rel=1e-9)
        assert query.diagnostics["standard_deviation"] == pytest.approx(
            float(deviation[arm]), rel=1e-8
        )
        place = float(query.x[0])
        constraint = feasible(place) + (0.0 if is_exact else R * float(rng.choice([-1.0, 1.0])))
        rows.append((place, f(place) + R * float(rng.choice([-1.0, 1.0])), constraint))
        loop.tell(query.id, rows[-1][1], constraints=[constraint])
        regret += 2.0 * width * float(deviation[arm])
        squares, linear = squares + kappa**2, linear + kappa * constraint
    told, total = loop.guarantee(), sum(row[2] for row in rows)
    assert told.holds, told.explain(10_000)
    assert "each epoch has its own model" in told.explain(10_000)
    if not is_exact:

        def largest(squared: float) -> float:
            log = 0.5 * math.log1p(squared) - math.log(DELTA / 4)
            return R * math.sqrt(2.0 * (squared + 1.0) * log)

        regret += largest(squares) - linear
        total += largest(24.0)
    assert told.regret is not None
    assert told.violation is not None
    assert told.regret.bound == pytest.approx(regret, rel=1e-8)
    assert told.violation.bound == pytest.approx(max(total, 0.0), rel=1e-10, abs=1e-12)


def test_what_an_earlier_model_lacks_takes_regret_and_violation_away_for_good() -> None:
    printed = ImprovedUpperConfidenceBound.with_options(**BOUNDS)
    small, large = recipe(0.3, 1.0, 0.5), recipe(0.3, 1.0, 2.0)
    loop = BanditLoop(ARMS, None, printed, constraints=replace(FRESH, models=[small, large]))
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
    fine = BanditLoop(ARMS, None, printed, constraints=replace(FRESH, models=[large, large]))
    play(fine, 6)
    assert fine.guarantee().holds


def test_bounds_in_prior_units_take_the_largest_scale_for_the_noise_of_constraints() -> None:
    acquisition = ImprovedUpperConfidenceBound.with_options(
        **BOUNDS, any_lambda=True, units="prior"
    )
    for variances in ((4.0, 1.0), (1.0, 1.0)):
        models = [recipe(0.3, v, 0.05 * v) for v in variances]
        rule = AdditiveEpochs(1, S, 0.5, surrogate="fresh", models=models)
        loop = BanditLoop(ARMS, None, acquisition, constraints=rule, seed=0)
        play(loop, 6, lambda x: 0.5)
        violation = loop.guarantee().violation
        assert violation is not None
        log = 0.5 * math.log1p(6.0) - math.log(DELTA / 4)
        expected = 3.0 + R * max(variances) ** 0.5 * math.sqrt(2.0 * 7.0 * log)
        assert violation.bound == pytest.approx(expected, rel=1e-10)


def test_a_restart_begins_with_the_first_model_again() -> None:
    restart = OracleRestart((6,))
    loop = BanditLoop(ARMS, None, IGP_UCB, constraints=FRESH, restart=restart, seed=0)
    noises = []
    for _ in range(11):
        query = loop.ask()
        noises.append(round(float(loop.current_model().likelihood.noise), 6))
        loop.tell(query.id, 0.0, constraints=[0.1])
    assert noises == [0.05] * 4 + [0.5] * 2 + [0.05] * 4 + [0.5]
    guarantee = loop.guarantee()
    for statement in (guarantee.regret, guarantee.violation):
        assert statement is not None
        assert not statement.holds
    assert any("a reset cuts the running epoch" in gap for gap in guarantee.reasons)
    assert guarantee.bands is not None
    assert guarantee.bands.holds  # of the running epoch


def test_replicates_are_played_by_loops() -> None:
    values = double([f(float(x)) for x in GRID])
    problem = ConstrainedArmsProblem(GRID, values, 0.5 - GRID)
    policy = Policy(MODELS[0], IGP_UCB, constraints=FRESH)
    result = simulate(problem, policy, 6, 2, progress=False)
    loop = policy.loop(ARMS, seed=result.seeds[1])
    play(loop, 6)
    assert result.arms is not None
    assert torch.equal(loop.history.inputs(), GRID[result.arms[1]])


# --- feasibility ----------------------------------------------------------------------------------


def test_smallest_lower_bounds_are_dense_ones() -> None:
    """Two constraints, one GP each; the width has delta / 3 and no share of an epoch."""
    loop = BanditLoop(ARMS, MODEL, IGP_UCB, constraints=AdditiveEpochs(2, S), seed=0)
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(15):
        query = loop.ask()
        rows.append((float(query.x[0]), *rng.normal(0.0, 1.0, 2)))
        loop.tell(query.id, f(rows[-1][0]), constraints=rows[-1][1:])
    x, *values = np.array(rows).T
    known = loop.feasibility()
    fixed = loop.feasibility(width=0.3).constraints
    for j in range(2):
        mean, deviation, gain = dense(PRIORS[0], x, values[j])
        width = igp_width(PRIORS[0], gain, R, DELTA / 3.0)
        entry = known.constraints[j]
        expected = float((mean - width * deviation).min())
        assert entry.smallest_lower_bound == pytest.approx(expected, abs=1e-8)
        assert (entry.constraint, entry.multiplier) == (j + 1, loop.multipliers[j])
        expected = float((mean - 0.3 * deviation).min())
        assert fixed[j].smallest_lower_bound == pytest.approx(expected, abs=1e-8)


def test_the_width_has_the_share_of_its_segment_and_the_model_of_its_epoch() -> None:
    """``delta`` is 6 delta / (pi i)^2 in segment i, and half of that for each of two bounds."""
    restart = OracleRestart((6,), exploration=None)
    rule = AdditiveEpochs(1, S)
    loop = BanditLoop(ARMS, MODEL, IGP_UCB, constraints=rule, restart=restart, seed=0)
    play(loop, 6, infeasible)
    play(loop, 5)
    x = loop.history.inputs()[6:, 0]
    mean, deviation, gain = dense(PRIORS[0], x, 0.5 - x)
    width = igp_width(PRIORS[0], gain, R, 0.5 * DELTA * 6.0 / (2.0 * math.pi) ** 2)
    assert smallest(loop) == pytest.approx(float((mean - width * deviation).min()), abs=1e-8)
    loop = BanditLoop(ARMS, None, IGP_UCB, constraints=FRESH, seed=0)
    play(loop, 6)  # the second epoch has begun
    x = loop.history.inputs()[:, 0]
    mean, deviation, _ = dense(PRIORS[1], x, 0.5 - x)
    expected = float((mean - 1.5 * deviation).min())
    assert smallest(loop, width=1.5) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("kind", ["relabeled", "separate"])
@pytest.mark.parametrize(
    "forgetting", [SlidingWindow(5), ExponentialWeights(0.8), TimeVaryingKernel(0.1)]
)
def test_models_that_forget_are_dense_ones(forgetting: Any, kind: str) -> None:
    """The bound of the next round, after a reset; rounds count from the reset."""
    loop = BanditLoop(
        ARMS,
        MODELS[0],
        LAGRANGIAN if kind == "separate" else PLAIN,
        constraints=AdditiveEpochs(1, S, surrogate=kind),
        forgetting=forgetting,
        restart=OracleRestart((4,), exploration=None),
        num_initial=3,
        seed=0,
    )
    play(loop, 4, infeasible)
    play(loop, 9)
    x, ages, options = loop.history.inputs()[4:, 0], torch.arange(9.0, 0.0, -1.0).double(), {}
    if isinstance(forgetting, SlidingWindow):
        x = x[-5:]
    elif isinstance(forgetting, ExponentialWeights):
        options = {"noises": 0.8 ** (1.0 - ages)}
    else:
        options = {"time": (ages, 0.1)}
    mean, deviation, _ = dense(PRIORS[0], x, 0.5 - x, **options)
    assert smallest(loop) == pytest.approx(float((mean - 1.5 * deviation).min()), abs=1e-8)


def test_feasibility_of_a_users_model_and_in_contexts() -> None:
    def build(X: Tensor, Y: Tensor) -> SingleTaskGP:
        return SingleTaskGP(X, Y, outcome_transform=None)

    rule = AdditiveEpochs(1, S)
    loop = BanditLoop(ARMS, build, PLAIN, constraints=rule, seed=0)
    with pytest.raises(ValueError, match="no outcome has arrived"):
        loop.feasibility()
    play(loop, 3)
    assert loop.feasibility().infeasible == ()
    loop = BanditLoop(ARMS, MODELS[0], PLAIN, constraints=rule, context_dim=1, seed=0)
    for t in range(12):
        query = loop.ask(context=[0.1 * t])
        loop.tell(query.id, 0.0, constraints=[0.5])
    posterior_of = MODELS[0](loop.history.inputs(), torch.full((12, 1), 0.5).double())
    lowest = []
    for t in range(2, 12):
        at = posterior_of.posterior(torch.cat([torch.full_like(GRID, 0.1 * t), GRID], -1))
        lowest.append(float((at.mean - 1.5 * at.variance.sqrt()).min()))
    assert smallest(loop) == pytest.approx(sum(lowest) / 10, abs=1e-8)


def test_feasibility_without_a_width() -> None:
    expected_improvement = LogExpectedImprovement.with_options(incumbent="observed")
    loop = BanditLoop(ARMS, MODEL, expected_improvement, constraints=AdditiveEpochs(1, 2))
    assert play(loop, 16, infeasible) == []
    with pytest.raises(ValueError, match=r"pass width="):
        loop.feasibility()
    assert loop.feasibility(width=1.0).infeasible == (1,)
    for bad in (0.0, math.nan):
        with pytest.raises(ValueError, match="width"):
            loop.feasibility(width=bad)
    with pytest.raises(RuntimeError, match="no constraints"):
        BanditLoop(ARMS, MODEL, PLAIN).feasibility()


def test_no_observed_point_is_feasible_while_the_bound_is_positive() -> None:
    """One lucky value neither hides the verdict nor is reported as a feasible point."""
    loop = BanditLoop(ARMS, MODEL, PLAIN, constraints=AdditiveEpochs(1, 1), seed=0)
    play(loop, 30, infeasible)
    loop.tell(loop.ask().id, 0.0, constraints=[-0.01])
    assert loop.best() is not None  # by its own observed value
    loop.ask()
    assert loop.multipliers[0] < loop.ledger().multipliers[-2, 0]  # it fell in the last update
    known = loop.feasibility()
    assert known.constraints[0].smallest_lower_bound > 0.0
    assert known.infeasible == (1,)
    assert not known.nearest_is_feasible


CASES: dict[str, tuple[Any, Any, Any, int]] = {
    "arms, additive": (ARMS, PLAIN, AdditiveEpochs(1, 4), 40),
    "arms, thompson, fresh": (
        ARMS,
        GPThompsonSampling.with_options(width=1.0),
        AdditiveEpochs(1, 4, surrogate="fresh"),
        40,
    ),
    "arms, held at the largest multiplier": (
        ARMS,
        PLAIN,
        MultiplicativeEpochs(1, 2, penalty=Polynomial(1.0, 2.0), max_multiplier=1.5),
        40,
    ),
    "arms, every round": (ARMS, LAGRANGIAN, PrimalDual(1, 0.5, 5.0), 16),
    "box, separate": (BOX, LAGRANGIAN, AdditiveEpochs(1, 4, surrogate="separate"), 13),
}


@pytest.mark.parametrize("name", CASES)
def test_infeasible_problems_are_recognized_once_and_feasible_ones_are_not(name: str) -> None:
    domain, acquisition, rule, num_rounds = CASES[name]
    given = {"constraints": rule, "num_initial": 12 if domain is BOX else 0, "seed": 0}
    bad, good = (BanditLoop(domain, MODEL, acquisition, **given) for _ in range(2))
    caught = play(bad, num_rounds, infeasible)
    assert [w.category for w in caught] == [InfeasibleConstraintsWarning]
    assert "constraint 1 (at least" in str(caught[0].message)
    assert caught[0].filename == __file__  # the line that asked
    known = bad.feasibility()
    assert known.infeasible == (1,)
    assert known.constraints[0].smallest_lower_bound > 0.0
    assert not known.nearest_is_feasible
    assert known.nearest is not None
    assert known.nearest[0].x == bad.history.inputs().min()  # the smallest violation
    assert bad.best() is None
    assert play(good, num_rounds) == []
    assert good.feasibility().infeasible == ()


def test_noise_is_warned_of_once_where_a_point_repeats() -> None:
    """A function that changed with a reset is no noise."""
    arms, rng = Arms(GRID[:3]), np.random.default_rng(0)

    def noisy(x: float) -> float:
        return float(-x - abs(rng.normal()))

    def caught(rule: Any, g: Any) -> list[Any]:
        loop = BanditLoop(arms, MODEL, RandomSearch(), constraints=rule, seed=0)
        return play(loop, 12, g)

    (warning,) = caught(MultiplicativeEpochs(1, 50), noisy)
    assert (warning.category, warning.filename) == (NoisyConstraintsWarning, __file__)
    assert caught(MultiplicativeEpochs(1, 50), feasible) == []
    assert caught(AdditiveEpochs(1, 50), noisy) == []
    given = {"constraints": MultiplicativeEpochs(1, 50), "seed": 0}
    restart = OracleRestart((8,), exploration=None)
    loop = BanditLoop(Arms(GRID[:2]), MODEL, RandomSearch(), restart=restart, **given)
    assert play(loop, 8) == []
    assert play(loop, 8, lambda x: -feasible(x)) == []


def test_best_is_the_best_feasible_point_of_the_ledger() -> None:
    loop = BanditLoop(ARMS, MODEL, RandomSearch(), constraints=AdditiveEpochs(2, 3), seed=0)
    assert loop.best() is None
    rng = np.random.default_rng(3)
    queries = [loop.ask() for _ in range(30)]
    for i in rng.permutation(30):
        g = rng.normal(0.0, 1.0, 2)
        loop.tell(queries[i].id, float(np.round(rng.normal(), 1)), constraints=g)
        rewards = double([outcome.reward for outcome in loop.history.outcomes])
        row, is_feasible = loop.ledger().best_point(rewards)
        best = loop.best()
        assert (best is not None) == bool(is_feasible)
        if best is not None:
            assert best[1] == loop.history.outcomes[int(row)]
            assert best[0].id == best[1].query_id
    again = BanditLoop(ARMS, MODEL, RandomSearch(), constraints=AdditiveEpochs(2, 3))
    assert rebuilt(again, loop.history).best() == loop.best()


def test_only_the_inner_algorithms_of_the_theorems_are_covered() -> None:
    guarantee = BanditLoop(ARMS, MODELS[0], IGP_UCB, constraints=AdditiveEpochs(1, 5)).guarantee()
    assert not guarantee.holds
    assert guarantee.theorem is not None
    assert "Shi and Eryilmaz" in guarantee.theorem
    assert any("earlier epochs" in gap for gap in guarantee.gaps)
    thompson = GPThompsonSampling.with_options(rkhs_bound=1.0, noise_bound=0.1, any_lambda=True)
    gp_ucb = GPUpperConfidenceBound.with_options(delta=0.1)
    for acquisition, kind, holds in (
        (IGP_UCB, AdditiveEpochs, True),
        (thompson, AdditiveEpochs, False),
        (thompson, MultiplicativeEpochs, True),
        (gp_ucb, AdditiveEpochs, False),
        (gp_ucb, MultiplicativeEpochs, False),
    ):
        rule = kind(1, 5, surrogate="fresh")
        guarantee = BanditLoop(ARMS, MODELS[0], acquisition, constraints=rule).guarantee()
        assert guarantee.holds is holds, guarantee.gaps
        assert not any("norm of the reward function" in line for line in guarantee.assumptions)

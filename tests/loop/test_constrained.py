"""A loop with long-term constraints against dense hand computations, epoch by epoch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Censored,
    ChangePointDetector,
    ChangePointRestart,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    MultiplicativeEpochs,
    OracleRestart,
    PrimalDual,
    RandomSearch,
)
from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.penalties import Exponential

NUM_ARMS, LENGTHSCALE, NOISE = 21, 0.25, 0.05
GRID = np.linspace(0.0, 1.0, NUM_ARMS)
ARMS = Arms(torch.from_numpy(GRID).unsqueeze(-1))
MODEL = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE)
B, R, DELTA = 2.0, 0.1, 0.1
IGP_UCB = ImprovedUpperConfidenceBound.with_options(
    rkhs_bound=B, noise_bound=R, delta=DELTA, any_lambda=True
)


def f(x: float) -> float:
    return math.sin(5.0 * x) + x


def g(x: float) -> float:
    return 0.5 - x


def rbf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * ((a[:, None] - b[None, :]) / LENGTHSCALE) ** 2)


def posterior(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean, deviation on the grid and realized gain, everything dense."""
    if len(x) == 0:
        return np.zeros(NUM_ARMS), np.ones(NUM_ARMS), 0.0
    K = rbf(x, x) + NOISE * np.eye(len(x))
    k = rbf(GRID, x)
    variance = 1.0 - np.einsum("ij,ji->i", k, np.linalg.solve(K, k.T))
    gain = 0.5 * np.linalg.slogdet(np.eye(len(x)) + rbf(x, x) / NOISE)[1]
    return k @ np.linalg.solve(K, y), np.sqrt(variance.clip(1e-18)), gain


def first_largest(scores: np.ndarray) -> int:
    return int(np.argmax(scores >= scores.max() - 1e-9 * max(1.0, abs(scores.max()))))


def igp_ucb_choice(x: np.ndarray, y: np.ndarray, noise_bound: float, delta: float) -> int:
    mean, deviation, gain = posterior(x, y)
    width = B + noise_bound / math.sqrt(NOISE) * math.sqrt(2.0 * (gain + math.log(1.0 / delta)))
    return first_largest(mean + width * deviation)


@pytest.mark.parametrize("surrogate", ["relabeled", "fresh"])
@pytest.mark.parametrize("horizon", [None, 60])
def test_multiplicative_epochs_are_algorithm_2(surrogate, horizon):
    S = 6
    rule = MultiplicativeEpochs(1, S, penalty=Exponential(0.7), surrogate=surrogate)
    loop = BanditLoop(ARMS, MODEL, IGP_UCB, constraints=rule, horizon=horizon, seed=0)
    kappa, xs, fs, gs = 1.0, [], [], []
    noise = np.random.default_rng(0).normal(0.0, R, 100)
    for t in range(60):
        epoch, first = t // S, t - t % S
        if t > 0 and t % S == 0:
            kappa *= math.exp(0.7 * max(np.mean(gs[-S:]), 0.0))
        rows = slice(first if surrogate == "fresh" else 0, t)
        labels = np.array(fs[rows]) - kappa * (np.exp(0.7 * np.array(gs[rows]).clip(0.0)) - 1.0)
        share = DELTA / 10 if horizon else 6.0 * DELTA / (math.pi * (epoch + 1)) ** 2
        arm = igp_ucb_choice(np.array(xs[rows]), labels, R, share)
        query = loop.ask()
        assert float(query.x[0]) == GRID[arm], t
        assert query.diagnostics["multiplier_1"] == pytest.approx(kappa, rel=1e-12)
        assert query.diagnostics["epoch"] == epoch + 1
        x = float(query.x[0])
        loop.tell(query.id, f(x) + noise[t], constraints=[g(x)])
        xs.append(x), fs.append(f(x) + noise[t]), gs.append(g(x))
        mean, deviation, _ = posterior(
            np.array(xs[rows.start : t + 1]),
            np.array(fs[rows.start : t + 1])
            - kappa * (np.exp(0.7 * np.array(gs[rows.start : t + 1]).clip(0.0)) - 1.0),
        )
        if t % 7 == 0:  # the model that a user sees has the running epoch's labels
            seen = loop.current_model().posterior(ARMS.choices)
            assert np.abs(seen.mean.detach().numpy()[:, 0] - mean).max() < 1e-10
            assert np.abs(seen.variance.detach().numpy()[:, 0] - deviation**2).max() < 1e-10
    ledger = loop.ledger()
    assert ledger.signed_violation.item() == pytest.approx(max(sum(gs), 0.0), abs=1e-12)
    assert ledger.rectified_violation.item() == pytest.approx(
        sum(max(v, 0.0) for v in gs), abs=1e-12
    )
    assert ledger.num_epochs == 10


def test_additive_epochs_are_algorithm_3():
    S, mu = 5, 0.5
    rule = AdditiveEpochs(1, S, step_size=mu)
    loop = BanditLoop(ARMS, MODEL, IGP_UCB, constraints=rule, seed=0)
    rng = np.random.default_rng(1)
    kappa, xs, fs, gs = 0.0, [], [], []
    for t in range(50):
        if t > 0 and t % S == 0:
            kappa = max(kappa + mu * np.mean(gs[-S:]), 0.0)
        share = 0.5 * 6.0 * DELTA / (math.pi * (t // S + 1)) ** 2
        labels = np.array(fs) - kappa * np.array(gs)
        arm = igp_ucb_choice(np.array(xs), labels, R * math.sqrt(1.0 + kappa**2), share)
        query = loop.ask()
        assert float(query.x[0]) == GRID[arm], t
        assert loop.multipliers == pytest.approx((kappa,), abs=1e-12)
        x = float(query.x[0])
        told = f(x) + rng.normal(0.0, R), g(x) + rng.normal(0.0, R)
        loop.tell(query.id, told[0], constraints=[told[1]])
        xs.append(x), fs.append(told[0]), gs.append(told[1])
    assert max(loop.ledger().multipliers.flatten().tolist()) > 0.05  # the rule had work to do


LAGRANGIAN_UCB = LagrangianUpperConfidenceBound.with_options(width=1.5)


def test_an_outcome_counts_in_the_epoch_of_its_arrival():
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
def test_a_reset_cuts_the_epoch_and_may_keep_the_multipliers(keeps):
    rule = AdditiveEpochs(1, 4, step_size=1.0)
    restart = OracleRestart((6,), exploration=None, keep_multipliers=keeps)
    loop = BanditLoop(ARMS, MODEL, IGP_UCB, constraints=rule, restart=restart, seed=0)
    for _ in range(6):
        query = loop.ask()
        loop.tell(query.id, 0.0, constraints=[0.5])
    assert loop.multipliers == pytest.approx((0.5,))
    early = loop.ask()  # the reset comes before round 7
    assert loop.multipliers == pytest.approx((0.5 if keeps else 0.0,))
    loop.tell(early.id, 0.0, constraints=[0.5])
    for _ in range(4):
        query = loop.ask()
        loop.tell(query.id, 0.0, constraints=[0.5])
    # a whole epoch of the new segment is over, and the cut one made no update
    assert loop.multipliers == pytest.approx((1.0 if keeps else 0.5,))


def test_a_constraint_that_changes_alone_is_seen_by_its_own_detector():
    reward = ChangePointDetector(
        RBFKernel(), lengthscale=LENGTHSCALE, threshold=PowerThreshold(2.0, -0.8)
    )
    restart = ChangePointRestart(detector=reward, constraint_detectors=(reward,))
    loop = BanditLoop(
        ARMS, MODEL, IGP_UCB, constraints=AdditiveEpochs(1, 5), restart=restart, seed=0
    )
    for t in range(1, 101):
        query = loop.ask()
        x, sign = float(query.x[0]), 1.0 if t <= 50 else -1.0
        loop.tell(query.id, f(x), constraints=[sign * math.cos(4.0 * x)])
    assert [reset.quantity for reset in loop.resets] == ["constraint 1"]
    assert 50 < loop.resets[0].after_round < 90


class TestWhatDoesNotGoTogether:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"constraints": 3}, "constraints is 3"),
            ({"feedback": Censored(0.0, 1.0)}, "Hallucinated"),
            ({"constraints": AdditiveEpochs(1, 5, surrogate="separate")}, "Lagrangian"),
        ],
        ids=["no rule", "censored", "separate"],
    )
    def test_is_refused(self, options, message):
        options = {"constraints": AdditiveEpochs(1, 5), **options}
        with pytest.raises((TypeError, ValueError), match=message):
            BanditLoop(ARMS, MODEL, IGP_UCB, **options)

    def test_lagrangian_without_constraints_or_on_penalized_outcomes(self):
        with pytest.raises(ValueError, match="the loop has none"):
            BanditLoop(ARMS, MODEL, LAGRANGIAN_UCB)
        with pytest.raises(ValueError, match="must not penalize again"):
            BanditLoop(ARMS, MODEL, LAGRANGIAN_UCB, constraints=AdditiveEpochs(1, 5))

    @pytest.mark.parametrize("constraints", [None, [1.0, 2.0], [math.nan], "many"])
    def test_bad_constraint_values_record_nothing(self, constraints):
        loop = BanditLoop(ARMS, MODEL, IGP_UCB, constraints=AdditiveEpochs(1, 5), seed=0)
        query = loop.ask()
        with pytest.raises((TypeError, ValueError), match="constraints"):
            loop.tell(query.id, 1.0, constraints=constraints)
        assert loop.history.num_arrived == 0
        assert len(loop.ledger().constraints) == 0
        loop.tell(query.id, 1.0, constraints=[0.5])
        assert loop.history.num_arrived == 1


def test_what_is_promised():
    loop = BanditLoop(ARMS, MODEL, IGP_UCB, constraints=AdditiveEpochs(1, 5), seed=0)
    guarantee = loop.guarantee()
    assert not guarantee.holds
    assert "Shi and Eryilmaz" in guarantee.theorem
    assert any("earlier epochs" in gap for gap in guarantee.gaps)


class TestEveryRound:
    @pytest.mark.parametrize(
        "acquisition",
        [LAGRANGIAN_UCB, LagrangianThompsonSampling.with_options(width=1.5)],
        ids=["bounds", "draws"],
    )
    def test_multipliers_follow_lower_bounds_in_uniform_rounds_too(self, acquisition):
        rule = PrimalDual(1, max_multiplier=5.0, divisor=2.0)
        loop = BanditLoop(ARMS, MODEL, acquisition, constraints=rule, num_initial=4, seed=0)
        expected = 0.0
        for _ in range(15):
            query = loop.ask()
            assert query.diagnostics["multiplier_1"] == pytest.approx(expected, abs=1e-12)
            told = [loop.history.outcome(q.id) for q in loop.history.queries[:-1]]
            xs = np.array([float(q.x[0]) for q in loop.history.queries[:-1]])
            gs = np.array([outcome.constraints[0] for outcome in told])
            mean, deviation, _ = posterior(xs, gs)
            lower = (mean - 1.5 * deviation)[int(ARMS.index_of(query.x.unsqueeze(0)))]
            expected = min(max(expected + lower / 2.0, 0.0), 5.0)
            loop.tell(query.id, 0.0, constraints=[1.0])
        assert loop.multipliers[0] > 1.0

    def test_the_users_clips_stay_where_the_rule_has_none(self):
        clipped = LagrangianUpperConfidenceBound.with_options(
            width=2.0, reward_bound=1e-3, constraint_bound=1e-3
        )
        loop = BanditLoop(ARMS, MODEL, clipped, constraints=PrimalDual(1, 5.0, 1.0), seed=0)
        known = loop.ask().diagnostics
        assert known["constraint_lower_bound_1"] == pytest.approx(-1e-3)


def test_only_the_inner_algorithms_of_the_theorems_are_covered():
    def fresh(kind):
        return kind(1, 5, surrogate="fresh")

    thompson = GPThompsonSampling.with_options(rkhs_bound=1.0, noise_bound=0.1, any_lambda=True)
    gp_ucb = GPUpperConfidenceBound.with_options(delta=0.1)
    for acquisition, kind, holds in (
        (IGP_UCB, AdditiveEpochs, True),
        (IGP_UCB, MultiplicativeEpochs, True),
        (thompson, AdditiveEpochs, False),
        (gp_ucb, AdditiveEpochs, False),
        (gp_ucb, MultiplicativeEpochs, False),
    ):
        rule = fresh(kind)
        guarantee = BanditLoop(ARMS, MODEL, acquisition, constraints=rule, seed=0).guarantee()
        if kind is AdditiveEpochs or acquisition is not IGP_UCB:
            assert guarantee.holds is holds, (acquisition, kind, guarantee.gaps)
        assert not any("norm of the reward function" in line for line in guarantee.assumptions)


def test_multipliers_of_the_users_own_are_refused():
    own = LagrangianUpperConfidenceBound.with_options(multipliers=[1.0], width=2.0)
    with pytest.raises(ValueError, match="Leave them out"):
        BanditLoop(ARMS, MODEL, own, constraints=AdditiveEpochs(1, 5, surrogate="separate"))

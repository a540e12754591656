"""What a loop with constraints tells: noise, infeasible problems, the best point."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    ExponentialWeights,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    MultiplicativeEpochs,
    OracleRestart,
    PrimalDual,
    RandomSearch,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.constraints import InfeasibleConstraintsWarning, NoisyConstraintsWarning
from botorch_bandits.penalties import Polynomial
from tests.records import rebuilt

NUM_ARMS, LENGTHSCALE, NOISE = 21, 0.25, 0.05
GRID = np.linspace(0.0, 1.0, NUM_ARMS)
ARMS = Arms(torch.from_numpy(GRID).unsqueeze(-1))
BOX = Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
MODEL = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE, prior_mean=0.5)
B, R, DELTA = 1.0, 0.1, 0.1
IGP_UCB = ImprovedUpperConfidenceBound.with_options(
    rkhs_bound=B, noise_bound=R, delta=DELTA, any_lambda=True
)
PLAIN = GPUpperConfidenceBound.with_options(width=1.5)
LAGRANGIAN = LagrangianUpperConfidenceBound.with_options(width=1.5)


def f(x: float) -> float:
    return math.sin(5.0 * x) + x


def feasible(x: float) -> float:
    return 0.5 - x


def infeasible(x: float) -> float:
    return 1.0 + x * x


def play(
    loop: BanditLoop, num_rounds: int, g: Callable[[float], float]
) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(num_rounds):
            query = loop.ask()
            x = float(query.x[0])
            loop.tell(query.id, f(x), constraints=[g(x)])
    kinds = (InfeasibleConstraintsWarning, NoisyConstraintsWarning)
    return [w for w in caught if issubclass(w.category, kinds)]


def lower_bounds(x: np.ndarray, y: np.ndarray, width: Callable[[float], float]) -> np.ndarray:
    """Dense lower confidence bounds on the grid, prior mean 0."""

    def rbf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * ((a[:, None] - b[None, :]) / LENGTHSCALE) ** 2)

    K = rbf(x, x) + NOISE * np.eye(len(x))
    k = rbf(GRID, x)
    variance = 1.0 - np.einsum("ij,ji->i", k, np.linalg.solve(K, k.T))
    gain = 0.5 * np.linalg.slogdet(K / NOISE)[1]
    return k @ np.linalg.solve(K, y) - width(gain) * np.sqrt(variance.clip(1e-18))


class TestFeasibility:
    def test_smallest_lower_bounds_are_dense_ones(self) -> None:
        """Two constraints, one GP each; the width has delta / 3 and no share of an epoch."""
        rule = AdditiveEpochs(2, 4)
        loop = BanditLoop(ARMS, MODEL, IGP_UCB, constraints=rule, seed=0)
        rng = np.random.default_rng(0)
        rows = []
        for _ in range(15):
            query = loop.ask()
            x = float(query.x[0])
            rows.append((x, *rng.normal(0.0, 1.0, 2)))
            loop.tell(query.id, f(x), constraints=rows[-1][1:])
        x, *values = np.array(rows).T
        known = loop.feasibility()

        def width(gain: float) -> float:
            return B + R / math.sqrt(NOISE) * math.sqrt(2.0 * (gain + math.log(3.0 / DELTA)))

        for j in range(2):
            entry = known.constraints[j]
            expected = lower_bounds(x, values[j], width).min()
            assert entry.smallest_lower_bound == pytest.approx(expected, abs=1e-8)
            assert entry.constraint == j + 1
            assert entry.multiplier == loop.multipliers[j]
        fixed = loop.feasibility(width=0.3).constraints[1].smallest_lower_bound
        expected = lower_bounds(x, values[1], lambda _: 0.3).min()
        assert fixed == pytest.approx(expected, abs=1e-8)

    def test_after_a_reset_the_width_has_the_share_of_its_segment(self) -> None:
        """``delta`` is 6 delta / (pi i)^2 in segment i, and half of that for each of two bounds."""
        restart = OracleRestart((6,), exploration=None)
        rule = AdditiveEpochs(1, 4)
        loop = BanditLoop(ARMS, MODEL, IGP_UCB, constraints=rule, restart=restart, seed=0)
        play(loop, 6, infeasible)
        play(loop, 5, feasible)
        x, share = loop.history.inputs()[6:, 0].numpy(), 6.0 / (2.0 * math.pi) ** 2

        def width(gain: float) -> float:
            return B + R / math.sqrt(NOISE) * math.sqrt(
                2.0 * (gain + math.log(2.0 / (share * DELTA)))
            )

        found = loop.feasibility().constraints[0].smallest_lower_bound
        assert found == pytest.approx(lower_bounds(x, 0.5 - x, width).min(), abs=1e-8)

    def test_a_users_model_and_contexts(self) -> None:
        def build(X: torch.Tensor, Y: torch.Tensor) -> SingleTaskGP:
            return SingleTaskGP(X, Y, outcome_transform=None)

        loop = BanditLoop(ARMS, build, PLAIN, constraints=AdditiveEpochs(1, 4), seed=0)
        with pytest.raises(ValueError, match="no outcome has arrived"):
            loop.feasibility()
        play(loop, 3, feasible)
        assert loop.feasibility().infeasible == ()
        loop = BanditLoop(
            ARMS, MODEL, PLAIN, constraints=AdditiveEpochs(1, 4), context_dim=1, seed=0
        )
        for t in range(12):
            query = loop.ask(context=[0.1 * t])
            loop.tell(query.id, 0.0, constraints=[0.5])
        averaged = loop.feasibility().constraints[0].smallest_lower_bound
        X, model = (
            loop.history.inputs(),
            BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE),
        )
        posterior_of = model(X, torch.full((12, 1), 0.5, dtype=torch.float64))
        smallest = []
        for t in range(2, 12):
            inputs = torch.stack([torch.full((NUM_ARMS,), 0.1 * t).double(), ARMS.choices[:, 0]], 1)
            posterior = posterior_of.posterior(inputs)
            smallest.append(float((posterior.mean - 1.5 * posterior.variance.sqrt()).min()))
        assert averaged == pytest.approx(sum(smallest) / 10, abs=1e-8)

    def test_without_a_width(self) -> None:
        expected_improvement = LogExpectedImprovement.with_options(incumbent="observed")
        loop = BanditLoop(ARMS, MODEL, expected_improvement, constraints=AdditiveEpochs(1, 2))
        assert play(loop, 16, infeasible) == []
        with pytest.raises(ValueError, match=r"pass width="):
            loop.feasibility()
        assert loop.feasibility(width=1.0).infeasible == (1,)
        for bad in (0.0, math.nan):
            with pytest.raises(ValueError, match="width"):
                loop.feasibility(width=bad)
        loop = BanditLoop(ARMS, MODEL, RandomSearch(), constraints=AdditiveEpochs(1, 2))
        with pytest.raises(RuntimeError, match="no constraints"):
            BanditLoop(ARMS, MODEL, PLAIN).feasibility()

    @pytest.mark.parametrize("kind", ["relabeled", "separate"])
    @pytest.mark.parametrize(
        "forgetting", [SlidingWindow(5), ExponentialWeights(0.8), TimeVaryingKernel(0.1)]
    )
    def test_models_that_forget_are_dense_ones(self, forgetting: Any, kind: str) -> None:
        """The bound of the next round, after a reset; rounds count from the reset."""
        model = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE)
        loop = BanditLoop(
            ARMS,
            model,
            LAGRANGIAN if kind == "separate" else PLAIN,
            constraints=AdditiveEpochs(1, 4, surrogate=kind),
            forgetting=forgetting,
            restart=OracleRestart((4,), exploration=None),
            num_initial=3,
            seed=0,
        )
        play(loop, 4, infeasible)
        play(loop, 9, feasible)
        x, ages = loop.history.inputs()[4:, 0].numpy(), np.arange(9.0, 0.0, -1.0)
        y, noise, faded = 0.5 - x, np.full(9, NOISE), np.ones((9, 9))
        seen = np.ones(9)
        if isinstance(forgetting, SlidingWindow):
            x, y, noise, seen, faded = x[-5:], y[-5:], noise[-5:], seen[-5:], faded[-5:, -5:]
        elif isinstance(forgetting, ExponentialWeights):
            noise = NOISE / 0.8 ** (ages - 1.0)
        else:
            faded, seen = 0.9 ** (np.abs(ages[:, None] - ages) / 2), 0.9 ** (ages / 2)

        def rbf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return np.exp(-0.5 * ((a[:, None] - b[None, :]) / LENGTHSCALE) ** 2)

        K, k = rbf(x, x) * faded + np.diag(noise), rbf(GRID, x) * seen
        variance = 1.0 - np.einsum("ij,ji->i", k, np.linalg.solve(K, k.T))
        expected = (k @ np.linalg.solve(K, y) - 1.5 * np.sqrt(variance)).min()
        found = loop.feasibility().constraints[0].smallest_lower_bound
        assert found == pytest.approx(expected, abs=1e-8)

    def test_no_observed_point_is_feasible_while_the_bound_is_positive(self) -> None:
        """One lucky value neither hides the verdict nor is reported as a feasible point."""
        loop = BanditLoop(ARMS, MODEL, PLAIN, constraints=AdditiveEpochs(1, 1), seed=0)
        play(loop, 30, infeasible)
        query = loop.ask()
        loop.tell(query.id, 0.0, constraints=[-0.01])
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


class TestInfeasibleProblems:
    @pytest.mark.parametrize("name", CASES)
    def test_are_recognized_once_and_feasible_ones_are_not(self, name: str) -> None:
        domain, acquisition, rule, num_rounds = CASES[name]
        num_initial = 12 if domain is BOX else 0
        bad, good = (
            BanditLoop(
                domain, MODEL, acquisition, constraints=rule, num_initial=num_initial, seed=0
            )
            for _ in range(2)
        )
        caught = play(bad, num_rounds, infeasible)
        assert [w.category for w in caught] == [InfeasibleConstraintsWarning]
        assert "constraint 1 (at least" in str(caught[0].message)
        assert caught[0].filename == __file__  # the line that asked
        known = bad.feasibility()
        assert known.infeasible == (1,)
        assert known.constraints[0].smallest_lower_bound > 0.0
        assert not known.nearest_is_feasible
        assert known.nearest is not None
        xs = bad.history.inputs()[:, 0]
        assert float(known.nearest[0].x[0]) == float(xs.min())  # the smallest violation
        assert bad.best() is None
        assert play(good, num_rounds, feasible) == []
        assert good.feasibility().infeasible == ()

    def test_looking_changes_no_suggestion(self) -> None:
        first, second = (
            BanditLoop(ARMS, MODEL, PLAIN, constraints=AdditiveEpochs(1, 2), seed=0)
            for _ in range(2)
        )
        play(first, 20, infeasible)
        for _ in range(20):
            query = second.ask()
            second.feasibility()
            x = float(query.x[0])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                second.tell(query.id, f(x), constraints=[infeasible(x)])
        assert torch.equal(first.history.inputs(), second.history.inputs())


class TestNoise:
    def test_warns_once_where_a_point_repeats(self) -> None:
        arms = Arms(ARMS.choices[:3])
        rule = MultiplicativeEpochs(1, 50)
        loop = BanditLoop(arms, MODEL, RandomSearch(), constraints=rule, seed=0)
        rng = np.random.default_rng(0)
        caught = play(loop, 12, lambda x: -x - abs(rng.normal()))
        assert [w.category for w in caught] == [NoisyConstraintsWarning]
        assert caught[0].filename == __file__  # the line that told
        loop = BanditLoop(arms, MODEL, RandomSearch(), constraints=rule, seed=0)
        assert play(loop, 12, feasible) == []
        other = AdditiveEpochs(1, 50)
        loop = BanditLoop(arms, MODEL, RandomSearch(), constraints=other, seed=0)
        assert play(loop, 12, lambda x: -x - abs(rng.normal())) == []

    def test_a_function_that_changed_is_not_noise(self) -> None:
        loop = BanditLoop(
            Arms(ARMS.choices[:2]),
            MODEL,
            RandomSearch(),
            constraints=MultiplicativeEpochs(1, 50),
            restart=OracleRestart((8,), exploration=None),
            seed=0,
        )
        assert play(loop, 8, feasible) == []
        assert play(loop, 8, lambda x: -feasible(x)) == []


def test_best_is_the_best_feasible_point_of_the_ledger() -> None:
    loop = BanditLoop(ARMS, MODEL, RandomSearch(), constraints=AdditiveEpochs(2, 3), seed=0)
    assert loop.best() is None
    rng = np.random.default_rng(3)
    queries = [loop.ask() for _ in range(30)]
    for i in rng.permutation(30):
        g = rng.normal(0.0, 1.0, 2)
        loop.tell(queries[i].id, float(np.round(rng.normal(), 1)), constraints=g)
        rewards = torch.tensor([outcome.reward for outcome in loop.history.outcomes]).double()
        row, is_feasible = loop.ledger().best_point(rewards)
        if not bool(is_feasible):
            assert loop.best() is None
            continue
        best = loop.best()
        assert best is not None
        assert best[1] == loop.history.outcomes[int(row)]
        assert best[0].id == best[1].query_id
    again = BanditLoop(ARMS, MODEL, RandomSearch(), constraints=AdditiveEpochs(2, 3))
    assert rebuilt(again, loop.history).best() == loop.best()

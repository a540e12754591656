"""Other people's methods for long-term constraints, against hand computations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition.analytic import (
    LogConstrainedExpectedImprovement,
    LogProbabilityOfFeasibility,
)
from gpytorch.kernels import MaternKernel
from scipy.stats import norm
from torch import Tensor

from botorch_bandits.domains import Arms, Box
from botorch_bandits.models import BanditGP
from botorch_bandits.problems import ConstrainedProblem, GardnerProblem
from papers.constrained_methods import (
    ADMMBO,
    BanditSaddlePoint,
    ConstrainedImprovement,
    Splitting,
    estimate_gradient,
    feasibility_improvement,
    objective_improvement,
    orthonormal_directions,
)
from papers.constrained_study import ConstrainedRecord, Observations, play_constrained
from papers.environments import RatesProblem

NOISE, LENGTHSCALE = 0.01, 1.3
MODEL = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=NOISE, lengthscale=LENGTHSCALE)


def vector(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def dense_posterior(X: Tensor, y: Tensor, at: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the Matern 5/2 process by textbook formulas."""

    def kernel(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        distance = np.linalg.norm(A[:, None] - B[None], axis=-1) * math.sqrt(5.0) / LENGTHSCALE
        return (1.0 + distance + distance**2 / 3.0) * np.exp(-distance)

    K = kernel(X.numpy(), X.numpy()) + NOISE * np.eye(len(X))
    k = kernel(X.numpy(), at.numpy())
    mean = k.T @ np.linalg.solve(K, y.numpy())
    return mean, np.sqrt(1.0 - np.einsum("ij,ij->j", k, np.linalg.solve(K, k)))


class ConvexProblem(ConstrainedProblem):
    """Rewards ``-|x - c|^2`` with ``x_1 + x_2 <= 1``; the optimum is the projection of ``c``."""

    dim = 2
    num_constraints = 1
    continuous_inds = [0, 1]  # noqa: RUF012
    _bounds = [(0.0, 2.0), (-1.0, 1.0)]  # noqa: RUF012
    center = (1.2, 0.6)
    optimal_value = -0.32  # at (0.8, 0.2); the multiplier there is 0.8

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return -(X - X.new_tensor(self.center)).square().sum(-1)

    def _evaluate_constraints(self, X: Tensor) -> Tensor:
        return X.sum(-1, keepdim=True) - 1.0


# --- the record -------------------------------------------------------------------------------


def test_record_against_sums_by_hand() -> None:
    values, constraints = random(3, 7, seed=1), random(3, 7, 2, seed=2) - 0.5
    record = ConstrainedRecord(random(3, 7, 1), values, constraints, 0.7)
    for b in range(3):
        regret, total, rectified = 0.0, [0.0, 0.0], [0.0, 0.0]
        for t in range(7):
            regret += 0.7 - values[b, t].item()
            for j in range(2):
                g = constraints[b, t, j].item()
                total[j] += g
                rectified[j] += max(g, 0.0)
            signed = math.hypot(*(max(s, 0.0) for s in total))
            assert record.cumulative_regret[b, t].item() == pytest.approx(regret, abs=1e-12)
            assert record.average_regret[b, t].item() == pytest.approx(regret / (t + 1), abs=1e-12)
            assert record.signed_violation[b, t].item() == pytest.approx(signed, abs=1e-12)
            assert record.average_signed_violation[b, t].item() == pytest.approx(
                signed / (t + 1), abs=1e-12
            )
            assert record.average_rectified_violation[b, t].item() == pytest.approx(
                math.hypot(*rectified) / (t + 1), abs=1e-12
            )


def test_slack_makes_up_for_signed_violations_only() -> None:
    constraints = vector(1.0, -3.0, 1.0).unsqueeze(-1)
    record = ConstrainedRecord(constraints, constraints[:, 0], constraints, 0.0)
    assert record.signed_violation.tolist() == [1.0, 0.0, 0.0]
    assert record.rectified_violation.tolist() == [1.0, 1.0, 2.0]


class Scripted:
    """Plays given points and keeps what it is told."""

    def __init__(self, points: Tensor) -> None:
        self.points = points
        self.told: list[tuple[Tensor, float, Tensor]] = []

    def choose(self, round_number: int) -> Tensor:
        return self.points[round_number - 1]

    def observe(self, x: Tensor, reward: float, constraints: Tensor) -> None:
        self.told.append((x, reward, constraints))


def test_playing_records_true_values_and_tells_noisy_ones() -> None:
    problem = GardnerProblem(noise_std=0.1, constraint_noise_std=0.2)
    points = 6.0 * random(30, 2, seed=3)
    method = Scripted(points)
    record = play_constrained(method, problem, 30, seed=5)
    assert torch.equal(record.points, points)
    assert torch.equal(record.values, problem(points, noise=False))
    assert torch.equal(record.constraints, problem.constraint_values(points))
    assert record.optimal_value == problem.optimal_value
    noise = torch.tensor([r for _, r, _ in method.told], dtype=torch.float64) - record.values
    on_constraint = torch.stack([g for _, _, g in method.told]) - record.constraints
    assert 0.05 < noise.std().item() < 0.2
    assert 0.1 < on_constraint.std().item() < 0.4
    # another method meets the same noise
    other = Scripted(points.flip(0))
    again = play_constrained(other, problem, 30, seed=5)
    same = torch.tensor([r for _, r, _ in other.told], dtype=torch.float64) - again.values
    torch.testing.assert_close(same, noise, rtol=0, atol=1e-13)


def test_records_of_replicates_are_stacked() -> None:
    problem = RatesProblem()
    records = [play_constrained(Scripted(random(4, 4, seed=s)), problem, 4) for s in range(3)]
    stacked = ConstrainedRecord.stack(records)
    assert stacked.average_regret.shape == (3, 4)
    assert torch.equal(stacked.signed_violation[1], records[1].signed_violation)
    short = play_constrained(Scripted(random(2, 4)), problem, 2)
    with pytest.raises(ValueError, match=r"records\[1\] has constraints of shape \(2, 1\)"):
        ConstrainedRecord.stack([records[0], short])
    with pytest.raises(ValueError, match="records is empty"):
        ConstrainedRecord.stack([])


def test_the_best_row_is_feasible_if_any_is() -> None:
    data = Observations(1, 2)
    data.append(vector(0.0), 9.0, vector(0.3, 0.4))
    data.append(vector(1.0), 8.0, vector(-9.0, 0.45))
    assert data.best_row == 1  # the smaller violation: 0.45 against 0.5
    data.append(vector(2.0), 1.0, [0.0, -1.0])
    data.append(vector(3.0), 2.0, vector(-1.0, -1.0))
    assert data.best_row == 3


# --- bandit online convex optimization --------------------------------------------------------


@pytest.mark.parametrize("num_directions", [1, 2, 3])
def test_gradient_estimates_of_quadratics_are_unbiased(num_directions: int) -> None:
    dim, radius, num_draws = 3, 0.3, 1500
    A = random(2, dim, dim, seed=4)
    A, b, x = A + A.mT, random(2, dim, seed=5), random(dim, seed=6)

    def functions(points: Tensor) -> Tensor:
        quadratic = torch.einsum("ni,mij,nj->nm", points, A, points)
        return 0.5 * quadratic + points @ b.T

    exact = A @ x + b
    stream = torch.Generator().manual_seed(7)
    draws = []
    for _ in range(num_draws):
        U = orthonormal_directions(dim, num_directions, stream)
        torch.testing.assert_close(
            U @ U.T, torch.eye(num_directions, dtype=torch.float64), rtol=0, atol=1e-12
        )
        draws.append(
            estimate_gradient(functions(x + radius * U), functions(x - radius * U), U, radius)
        )
    estimates = torch.stack(draws)
    assert estimates.shape == (num_draws, 2, dim)
    if num_directions == dim:  # the central difference is exact for a quadratic function
        torch.testing.assert_close(estimates, exact.expand_as(estimates), rtol=0, atol=1e-10)
        return
    error = estimates.std(0) / math.sqrt(num_draws)
    # 4.5 standard errors in 6 coordinates: wrong alarm below 1e-4
    assert ((estimates.mean(0) - exact).abs() < 4.5 * error).all()


def test_more_directions_have_less_variance() -> None:
    stream = torch.Generator().manual_seed(8)
    slope = random(4, seed=9)
    spread = []
    for k in (1, 2):
        draws = []
        for _ in range(2000):
            U = orthonormal_directions(4, k, stream)
            draws.append(estimate_gradient(U @ slope, -(U @ slope), U, 1.0))
        spread.append(torch.stack(draws).var(0).sum().item())
    # of a linear function: (d / k - 1) |slope|^2
    for k, variance in zip((1, 2), spread, strict=True):
        assert variance == pytest.approx((4 / k - 1) * slope.square().sum().item(), rel=0.05)


def test_a_step_against_a_hand_computation() -> None:
    method = BanditSaddlePoint(
        [[0.0, -1.0], [2.0, 1.0]],
        num_constraints=2,
        step_size=0.1,
        multiplier_step_size=0.3,
        radius=0.2,
        num_directions=1,
        regularization=2.0,
        start=vector(1.0, 0.2),
        seed=3,
    )
    x, multipliers = np.array([0.5, 0.6]), np.zeros(2)
    outcomes = random(4, 3, seed=10).numpy()
    for step in range(2):
        first = method.choose(2 * step + 1)
        u = (first.numpy() / 2.0 + [0.0, 0.5] - x) / 0.2
        assert np.linalg.norm(u) == pytest.approx(1.0, abs=1e-12)
        rows = outcomes[2 * step : 2 * step + 2]
        method.observe(first, rows[0, 0], torch.tensor(rows[0, 1:]))
        second = method.choose(2 * step + 2)
        np.testing.assert_allclose(second / 2.0 + vector(0.0, 0.5), x - 0.2 * u, atol=1e-12)
        method.observe(second, rows[1, 0], torch.tensor(rows[1, 1:]))
        gradients = [(2 / 0.4) * (rows[0, i] - rows[1, i]) * u for i in range(3)]
        ascent = gradients[0] - multipliers[0] * gradients[1] - multipliers[1] * gradients[2]
        x = np.clip(x + 0.1 * ascent, 0.2, 0.8)
        multipliers = np.maximum(0.94 * multipliers + 0.3 * rows[:, 1:].mean(0), 0.0)
        np.testing.assert_allclose(method.x, 2.0 * x - [0.0, 1.0], atol=1e-12)
        np.testing.assert_allclose(method.multipliers, multipliers, atol=1e-12)
    assert method.num_steps == 2


@pytest.mark.parametrize("num_directions", [1, 2])
def test_saddle_point_converges_on_a_convex_problem(num_directions: int) -> None:
    problem = ConvexProblem()
    method = BanditSaddlePoint(
        problem.bounds,
        step_size=0.05,
        radius=0.01,
        num_directions=num_directions,
        regularization=0.0,
        start=[0.2, -0.8],
        seed=1,
    )
    record = play_constrained(method, problem, 1500)
    torch.testing.assert_close(method.x, vector(0.8, 0.2), rtol=0, atol=1e-3)
    assert method.multipliers.item() == pytest.approx(0.8, abs=1e-3)
    for average in (record.average_regret, record.average_signed_violation):
        assert average[1499].abs().item() < 0.05
        assert average[1499].abs().item() < 0.2 * average[199].abs().item()
    assert (record.points >= problem.bounds[0]).all()
    assert (record.points <= problem.bounds[1]).all()


def test_saddle_point_takes_noise() -> None:
    problem = ConvexProblem(noise_std=0.05)
    problem._set_constraint_noise(0.05)
    method = BanditSaddlePoint(
        problem.bounds, step_size=0.03, radius=0.2, regularization=0.0, start=[1.0, 0.0], seed=2
    )
    record = play_constrained(method, problem, 2000, seed=3)
    # the mean of the points is that of the iterates; the sphere around them cancels
    torch.testing.assert_close(record.points[1000:].mean(0), vector(0.8, 0.2), rtol=0, atol=0.05)


def test_saddle_point_starts_and_directions_follow_from_the_seed() -> None:
    problem = GardnerProblem(noise_std=0.1)
    records = [
        play_constrained(BanditSaddlePoint(problem.bounds, seed=s), problem, 20) for s in (1, 1, 2)
    ]
    assert torch.equal(records[0].points, records[1].points)
    assert not torch.equal(records[0].points, records[2].points)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"radius": 0.6}, ValueError, "radius is 0.6"),
        ({"num_directions": 3}, ValueError, "num_directions is 3"),
        ({"step_size": 0.0}, ValueError, "step_size is 0"),
        ({"step_size": 1.0, "regularization": 2.0}, ValueError, "multipliers change sign"),
        ({"start": [7.0, 0.0]}, ValueError, r"start\[0\] is 7"),
        ({"num_constraints": 0}, ValueError, "num_constraints is 0"),
    ],
)
def test_saddle_point_refuses(options: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        BanditSaddlePoint(GardnerProblem().bounds, **options)


def test_saddle_point_refuses_outcomes_of_other_points() -> None:
    method = BanditSaddlePoint(GardnerProblem().bounds)
    x = method.choose(1)
    with pytest.raises(ValueError, match="was chosen"):
        method.observe(x + 0.5, 1.0, vector(0.0))
    with pytest.raises(ValueError, match="constraints must be a vector of length 1"):
        method.observe(x, 1.0, vector(0.0, 1.0))
    with pytest.raises(ValueError, match="reward is nan"):
        method.observe(x, math.nan, vector(0.0))
    with pytest.raises(TypeError, match="float64"):
        method.observe(x, 1.0, vector(0.0).float())


# --- ADMMBO -----------------------------------------------------------------------------------


def test_splitting_against_a_hand_computation() -> None:
    x, z, y = random(2, seed=11), random(3, 2, seed=12), random(3, 2, seed=13)
    splitting = Splitting(x, z, y, penalty=0.4, weight=20.0)
    points = random(5, 2, seed=14)
    center = sum(z.numpy()) / 3 - sum(y.numpy()) / 3 / 0.4
    for row, value in zip(points.numpy(), splitting.objective_penalty(points), strict=True):
        # m rho / 2 |x - mean z + mean y / rho|^2
        assert value.item() == pytest.approx(3 * 0.2 * np.sum((row - center) ** 2), abs=1e-12)
    for j in range(3):
        for row, value in zip(
            points.numpy(), splitting.feasibility_penalty(points, j), strict=True
        ):
            distance = x.numpy() - row + y[j].numpy() / 0.4
            assert value.item() == pytest.approx(0.4 / 40.0 * np.sum(distance**2), abs=1e-12)
    moved = splitting.with_feasible_point(1, vector(0.5, -0.5))
    np.testing.assert_allclose(moved.y[1], y[1] + 0.4 * (x - vector(0.5, -0.5)), atol=1e-12)
    assert torch.equal(moved.z[1], vector(0.5, -0.5))
    assert torch.equal(moved.y[[0, 2]], y[[0, 2]])
    assert torch.equal(splitting.y, y)
    assert torch.equal(splitting.z, z)
    primal, dual = moved.residuals(z)
    expected = [np.linalg.norm(x - row) for row in moved.z]
    np.testing.assert_allclose(primal, expected, atol=1e-12)
    expected = [0.0, 0.4 * np.linalg.norm(vector(0.5, -0.5) - z[1]), 0.0]
    np.testing.assert_allclose(dual, expected, atol=1e-12)


def test_stationary_points_of_the_splitting_solve_the_smooth_problem() -> None:
    """With exact minimization the multipliers lead to the constrained optimum of a toy problem.

    ``F(x) = (x - 2)^2`` with ``z <= 1``: the indicator has weight ``M``, so for ``M`` larger than
    any gain the method must end at ``x = z = 1`` with ``y = -F'(1) = 2``.
    """
    line = torch.linspace(-1.0, 3.0, 4001, dtype=torch.float64).unsqueeze(-1)
    one = torch.zeros(1, 1, dtype=torch.float64)
    splitting = Splitting(one[0], one, one.clone(), penalty=1.0, weight=1e4)
    for _ in range(200):
        cost = (line[:, 0] - 2.0).square() + splitting.objective_penalty(line)
        splitting = Splitting(line[cost.argmin()], splitting.z, splitting.y, 1.0, 1e4)
        cost = (line[:, 0] > 1.0).double() + splitting.feasibility_penalty(line, 0)
        splitting = splitting.with_feasible_point(0, line[cost.argmin()])
    assert splitting.x.item() == pytest.approx(1.0, abs=2e-3)
    assert splitting.z.item() == pytest.approx(1.0, abs=2e-3)
    assert splitting.y.item() == pytest.approx(2.0, abs=1e-2)


def test_penalty_follows_the_residuals() -> None:
    one = torch.ones(1, 2, dtype=torch.float64)
    for x, previous, factor in ((9.0, 0.9, 2.0), (1.0001, 0.0, 0.5), (1.5, 0.5, 1.0)):
        splitting = Splitting(x * one[0], one, 0.0 * one, penalty=1.0)
        assert splitting.with_adapted_penalty(previous * one).penalty == factor


def test_convergence_tolerances() -> None:
    y = vector(3.0, 4.0).unsqueeze(0)
    z = vector(6.0, 8.0).unsqueeze(0)
    # sqrt(2) 0.05 + 0.075 * 10, and sqrt(2) 0.05 + 0.075 * |0.5 y|
    primal, dual = 0.05 * math.sqrt(2) + 0.75, 0.05 * math.sqrt(2) + 0.075 * 2.5

    def converged(off_x: float, off_z: float) -> bool:
        # x moves across z, so that its norm stays the smaller one up to second order
        x = z[0] + off_x * vector(-0.6, -0.8)
        return Splitting(x, z, y, penalty=0.5).has_converged(z + off_z / 0.5 * vector(1.0, 0.0))

    assert converged(primal - 1e-6, dual - 1e-6)
    assert not converged(primal + 1e-6, dual - 1e-6)
    assert not converged(primal - 1e-6, dual + 1e-6)


def test_expected_improvements_against_quadrature() -> None:
    mean, std = 4 * random(20, seed=15) - 2, 0.1 + random(20, seed=16)
    penalty, best = 2 * random(20, seed=17), vector(1.3).squeeze()
    grid = np.linspace(-9, 9, 200_001)
    weights = norm.pdf(grid) * (grid[1] - grid[0])
    on_objective = objective_improvement(mean, std, penalty, best)
    on_feasibility = feasibility_improvement(mean, std, penalty, best)
    for i in range(20):
        draws = mean[i].item() + std[i].item() * grid
        fallen = np.maximum(1.3 - (-draws + penalty[i].item()), 0.0)
        assert on_objective[i].item() == pytest.approx(fallen @ weights, abs=1e-8)
        # a step function: its quadrature is the normal distribution's mass on either side
        mass = norm.cdf(0.0, mean[i].item(), std[i].item())
        fallen_if = [max(1.3 - penalty[i].item() - violated, 0.0) for violated in (0.0, 1.0)]
        expected = mass * fallen_if[0] + (1 - mass) * fallen_if[1]
        assert on_feasibility[i].item() == pytest.approx(expected, abs=1e-12)


def test_admm_iterations_against_a_replay_by_hand() -> None:
    """Each choice and each update of ADMMBO, from dense formulas."""
    problem = GardnerProblem(noise_std=0.1)
    method = ADMMBO(
        problem.bounds,
        MODEL,
        objective_steps=(2, 1),
        feasibility_steps=(3, 2),
        num_candidates=64,
        stops=False,
        seed=4,
    )
    corner = np.array([6.0, 6.0])
    x, z, y, rho, M = corner, corner, np.zeros(2), 0.1, 50.0
    X: list[np.ndarray] = []
    f: list[float] = []
    g: list[float] = []
    phases = ["initial"] * 2 + ["x"] * 2 + ["z"] * 3 + ["x"] + ["z"] * 2 + ["x"] + ["z"] * 2
    for t, phase in enumerate(phases, start=1):
        chosen = method.choose(t)
        if phase != "initial":
            points, P = torch.tensor(np.array(X)), np.array(X)
            probe = torch.cat([6.0 * random(9, 2, seed=t), chosen.unsqueeze(0)])
            q = probe.numpy()
            if phase == "x":
                mean, std = dense_posterior(points, vector(*f), probe)
                added = [rho / 2 * np.sum((p - z + y / rho) ** 2) for p in P]
                best = min(a - v for a, v in zip(added, f, strict=True))
                gain = best + mean - [rho / 2 * np.sum((p - z + y / rho) ** 2) for p in q]
                expected = gain * norm.cdf(gain / std) + std * norm.pdf(gain / std)
            else:
                mean, std = dense_posterior(points, vector(*g), probe)
                added = [rho / 2 / M * np.sum((x - p + y / rho) ** 2) for p in P]
                best = min(a + (v > 0) for a, v in zip(added, g, strict=True))
                gain = best - np.array([rho / 2 / M * np.sum((x - p + y / rho) ** 2) for p in q])
                holds = norm.cdf(-mean / std)
                expected = np.where(
                    gain < 0, 0.0, np.where(gain < 1, gain * holds, gain - (1 - holds))
                )
            np.testing.assert_allclose(method.expected_improvement(probe), expected, atol=1e-8)
        reward, constraint = problem.observe(chosen, torch.Generator().manual_seed(t))
        method.observe(chosen, float(reward), constraint)
        X.append(chosen.numpy())
        f.append(float(reward))
        g.append(float(constraint))
        ends = t == len(phases) or phases[t] != phase
        if phase == "x" and ends:
            costs = [
                rho / 2 * np.sum((p - z + y / rho) ** 2) - v for p, v in zip(X, f, strict=True)
            ]
            x = X[int(np.argmin(costs))]
        if phase == "z" and ends:
            costs = [
                rho / 2 / M * np.sum((x - p + y / rho) ** 2) + (v > 0)
                for p, v in zip(X, g, strict=True)
            ]
            previous, z = z, X[int(np.argmin(costs))]
            y = y + rho * (x - z)
            primal, dual = np.linalg.norm(x - z), rho * np.linalg.norm(z - previous)
            rho *= 2.0 if primal > 10 * dual else 0.5 if dual > 10 * primal else 1.0
        np.testing.assert_allclose(method.splitting.x, x, atol=1e-12)
        np.testing.assert_allclose(method.splitting.z[0], z, atol=1e-12)
        np.testing.assert_allclose(method.splitting.y[0], y, atol=1e-12)
        assert method.splitting.penalty == rho
    assert method.num_iterations == 3


def test_admm_chooses_the_best_of_its_candidates() -> None:
    problem = GardnerProblem(noise_std=0.1)
    method = ADMMBO(problem.bounds, MODEL, num_candidates=256, seed=1)
    for t in range(1, 9):
        chosen = method.choose(t)
        if t > method.num_initial:
            others = method.expected_improvement(6.0 * random(256, 2, seed=t))
            value = method.expected_improvement(chosen.unsqueeze(0)).item()
            assert value >= others.quantile(0.95).item()
        reward, constraint = problem.observe(chosen, torch.Generator().manual_seed(t))
        method.observe(chosen, float(reward), constraint)


def test_admm_plays_the_best_feasible_point_when_it_has_converged() -> None:
    problem = ConvexProblem()
    method = ADMMBO(
        problem.bounds, MODEL, penalty=1.0, objective_steps=(8, 4), feasibility_steps=(8, 4), seed=0
    )
    record = play_constrained(method, problem, 60)
    assert method.stopped_after is not None
    assert method.stopped_after < 60
    rest = record.points[method.stopped_after :]
    assert (rest == rest[0]).all()
    before = slice(0, method.stopped_after)
    feasible = record.constraints[before, 0] <= 0
    assert record.values[-1] == record.values[before][feasible].max()
    assert record.constraints[-1].item() <= 0
    assert record.regret[-1].item() < 0.1


def test_admm_refuses() -> None:
    bounds = GardnerProblem().bounds
    with pytest.raises(ValueError, match=r"objective_steps\[1\] is 0"):
        ADMMBO(bounds, MODEL, objective_steps=(3, 0))
    with pytest.raises(ValueError, match="two numbers"):
        ADMMBO(bounds, MODEL, feasibility_steps=(3,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="weight is -1"):
        ADMMBO(bounds, MODEL, weight=-1.0)
    method = ADMMBO(bounds, MODEL)
    with pytest.raises(ValueError, match="constraints must be a vector of length 1"):
        method.observe(method.choose(1), 0.0, vector(0.0, 0.0))
    with pytest.raises(TypeError, match="float64"):
        method.observe(method.choose(1), 0.0, vector(0.0).float())


# --- constrained expected improvement ---------------------------------------------------------


def observed_improvement(num_constraints: int, shift: float) -> ConstrainedImprovement:
    method = ConstrainedImprovement(Box([[0.0, 0.0], [6.0, 6.0]]), MODEL, num_constraints, seed=3)
    X, outcomes = 6.0 * random(12, 2, seed=20), random(12, 1 + num_constraints, seed=21)
    for x, row in zip(X, outcomes, strict=True):
        method.observe(x, float(row[0]), row[1:] + shift)
    return method


@pytest.mark.parametrize("num_constraints", [1, 2])
def test_improvement_against_dense_formulas(num_constraints: int) -> None:
    method = observed_improvement(num_constraints, -0.4)
    acquisition = method.acquisition()
    assert isinstance(acquisition, LogConstrainedExpectedImprovement)
    data = method.observations
    probe = 6.0 * random(15, 2, seed=22)
    mean, std = dense_posterior(data.points, data.rewards, probe)
    at_rows = dense_posterior(data.points, data.rewards, data.points)[0]
    feasible, log_holds = np.ones(12, dtype=bool), np.zeros(15)
    for g in data.constraints.T:
        feasible &= dense_posterior(data.points, g, data.points)[0] <= 0
        g_mean, g_std = dense_posterior(data.points, g, probe)
        log_holds += norm.logcdf(-g_mean / g_std)
    assert 0 < feasible.sum() < 12
    u = (mean - at_rows[feasible].max()) / std
    expected = np.log(std * (norm.pdf(u) + u * norm.cdf(u))) + log_holds
    with torch.no_grad():
        values = acquisition(probe.unsqueeze(-2))
    np.testing.assert_allclose(values, expected, atol=1e-7, rtol=0)


def test_without_a_feasible_point_feasibility_is_sought() -> None:
    method = observed_improvement(1, 1.0)
    acquisition = method.acquisition()
    assert isinstance(acquisition, LogProbabilityOfFeasibility)
    data = method.observations
    probe = 6.0 * random(15, 2, seed=23)
    mean, std = dense_posterior(data.points, data.constraints[:, 0], probe)
    with torch.no_grad():
        values = acquisition(probe.unsqueeze(-2))
    np.testing.assert_allclose(values, norm.logcdf(-mean / std), atol=1e-8, rtol=0)


def test_improvement_chooses_the_maximizer_on_arms() -> None:
    line = torch.linspace(0.0, 6.0, 13, dtype=torch.float64)
    arms = Arms(torch.cartesian_prod(line, line))
    problem = GardnerProblem(noise_std=0.1).on_grid(13)
    method = ConstrainedImprovement(arms, MODEL, seed=2)
    record = play_constrained(method, problem, 40)
    with torch.no_grad():
        values = method.acquisition()(arms.choices.unsqueeze(-2))
    chosen = method.choose(41)
    assert values[arms.index_of(chosen.unsqueeze(0))].item() == pytest.approx(
        values.max().item(), abs=1e-9
    )
    # of 169 arms, 4 are feasible; the later half is spent near the boundary of the right disc
    late = record.constraints[20:].mean().item()
    assert late < record.constraints[:20].mean().item()


def test_improvement_finds_the_optimum_of_a_convex_problem() -> None:
    problem = ConvexProblem()
    method = ConstrainedImprovement(
        Box(problem.bounds, num_restarts=2, raw_samples=32), MODEL, seed=1
    )
    record = play_constrained(method, problem, 12)
    feasible = record.constraints[:, 0] <= 1e-2
    assert record.regret[feasible].min().item() < 0.05

"""Constrained problems: functions, optima, noise and grids."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from botorch_bandits.problems import (
    ConstrainedArmsProblem,
    ConstrainedProblem,
    GardnerProblem,
    RatesProblem,
)

PROBLEMS = {"gardner": GardnerProblem, "rates": RatesProblem}
both = pytest.mark.parametrize("name", list(PROBLEMS))


def points_of(problem: ConstrainedProblem, *shape: int, seed: int = 0) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    unit = torch.rand(*shape, problem.dim, dtype=torch.float64, generator=stream)
    return problem.bounds[0] + (problem.bounds[1] - problem.bounds[0]) * unit


def gardner_by_hand(x: np.ndarray) -> tuple[float, float]:
    return -math.sin(x[0]) - x[1], math.sin(x[0]) * math.sin(x[1]) + 0.95


def rates_by_hand(x: np.ndarray) -> tuple[float, float]:
    # c and d from their definition: each utility is a curve scaled to U(0) = 0 and U(2) = 1
    def logistic(rate: float, a: float, b: float) -> float:
        def curve(r: float) -> float:
            return 1.0 / (1.0 + math.exp(-a * (r - b)))

        return (curve(rate) - curve(0.0)) / (curve(2.0) - curve(0.0))

    def logarithm(rate: float) -> float:
        return math.log(5.0 * rate + 1.0) / math.log(11.0)

    reward = logistic(x[0], 6.0, 1.0) + logarithm(x[1]) + logistic(x[2], 8.0, 0.8)
    cost = 0.2 * x[0] + 0.4 * x[1] + 0.8 * x[2] + 1.2 * x[3]
    return reward + logarithm(x[3]), cost - 2.0


BY_HAND = {"gardner": gardner_by_hand, "rates": rates_by_hand}


@both
def test_functions_against_scalar_arithmetic(name: str) -> None:
    problem = PROBLEMS[name]()
    points = points_of(problem, 5, 40)
    expected = torch.tensor(
        [[BY_HAND[name](x) for x in rows] for rows in points.numpy()], dtype=torch.float64
    )
    torch.testing.assert_close(problem(points, noise=False), expected[..., 0], rtol=0, atol=1e-12)
    g = problem.constraint_values(points)
    assert g.shape == (5, 40, 1)
    torch.testing.assert_close(g[..., 0], expected[..., 1], rtol=0, atol=1e-12)
    torch.testing.assert_close(problem.evaluate_slack_true(points), -g, rtol=0, atol=0)
    torch.testing.assert_close(
        problem.is_feasible(points, noise=False), expected[..., 1] <= 0, rtol=0, atol=0
    )


def test_the_known_optimum_of_gardner() -> None:
    problem = GardnerProblem()
    assert problem.optimal_value == pytest.approx(-0.25323589750337505, abs=1e-15)
    expected = torch.tensor([[4.71238898038469, 1.253235897503375]], dtype=torch.float64)
    torch.testing.assert_close(problem.optimizers, expected, rtol=0, atol=1e-12)


@both
def test_optimum_is_attained_and_feasible(name: str) -> None:
    problem = PROBLEMS[name]()
    value = problem(problem.optimizers, noise=False)
    assert value.item() == pytest.approx(problem.optimal_value, abs=1e-12)
    assert abs(problem.constraint_values(problem.optimizers).item()) < 1e-12


@both
def test_no_feasible_point_is_better_by_dense_optimization(name: str) -> None:
    """Any feasible x has f(x) <= f(x) - kappa g(x), so the largest of these bounds the optimum."""
    problem = PROBLEMS[name]()
    kappa = problem.optimal_multiplier
    if name == "gardner":
        lines = [np.linspace(0.0, 6.0, 3001)] * 2
        x1, x2 = np.meshgrid(*lines, indexing="ij")
        bound = (-np.sin(x1) - x2 - kappa * (np.sin(x1) * np.sin(x2) + 0.95)).max()
    else:  # the Lagrangian is a sum over the servers
        rates = np.linspace(0.0, 2.0, 200_001)
        zero = np.array([rates_by_hand([0.0] * 4)[0]])
        assert abs(zero.item()) < 1e-14
        logistic = [
            (lambda c: (c - c[0]) / (c[-1] - c[0]))(1 / (1 + np.exp(-a * (rates - b))))
            for a, b in [(6.0, 1.0), (8.0, 0.8)]
        ]
        logarithm = np.log(5 * rates + 1) / math.log(11)
        utilities = [logistic[0], logarithm, logistic[1], logarithm]
        weights = [0.2, 0.4, 0.8, 1.2]
        bound = 2.0 * kappa + sum(
            (u - kappa * w * rates).max() for u, w in zip(utilities, weights, strict=True)
        )
    # the grid's largest value is at most its spacing squared below that of the box
    assert bound <= problem.optimal_value + 1e-9
    assert bound >= problem.optimal_value - 1e-5


@both
def test_local_searches_find_nothing_better(name: str) -> None:
    problem = PROBLEMS[name]()
    by_hand = BY_HAND[name]
    best = -np.inf
    for start in points_of(problem, 30, seed=3).numpy():
        found = minimize(
            lambda x: -by_hand(x)[0],
            start,
            method="SLSQP",
            bounds=problem.bounds.T.tolist(),
            constraints={"type": "ineq", "fun": lambda x: -by_hand(x)[1]},
        )
        if found.success and by_hand(found.x)[1] <= 1e-9:
            best = max(best, -found.fun)
    assert best == pytest.approx(problem.optimal_value, abs=1e-6)


def test_worst_feasible_value_of_gardner() -> None:
    line = torch.linspace(0.0, 6.0, 2001, dtype=torch.float64)
    points = torch.cartesian_prod(line, line)
    problem = GardnerProblem()
    feasible = problem.is_feasible(points, noise=False)
    rewards = problem(points, noise=False)[feasible]
    assert rewards.min().item() >= problem.worst_feasible_value
    assert rewards.min().item() == pytest.approx(problem.worst_feasible_value, abs=0.005)
    assert rewards.max().item() <= problem.optimal_value
    assert feasible.double().mean().item() == pytest.approx(0.0176761, abs=1e-4)


@both
def test_gradients_match_finite_differences(name: str) -> None:
    problem = PROBLEMS[name]()
    points = points_of(problem, 4).requires_grad_(True)
    assert torch.autograd.gradcheck(lambda X: problem(X, noise=False), points)
    assert torch.autograd.gradcheck(problem.constraint_values, points)


# --- grids ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_points", "published"), [(61, -0.300), (41, -0.352)])
def test_grids_of_gardner_have_their_own_optimum(num_points: int, published: float) -> None:
    line = np.linspace(0.0, 6.0, num_points)
    best = max(f for f, g in (gardner_by_hand([a, b]) for a in line for b in line) if g <= 0.0)
    grid = GardnerProblem().on_grid(num_points)
    assert grid.num_arms == num_points**2
    assert grid.optimal_value == pytest.approx(best, abs=1e-12)
    assert grid.optimal_value == pytest.approx(published, abs=5e-4)
    assert grid.values.max().item() == pytest.approx(1.0, abs=0.01)  # unconstrained


def test_grid_of_rates_is_the_table_of_its_points() -> None:
    problem = RatesProblem(noise_std=0.1, constraint_noise_half_width=0.2)
    grid = problem.on_grid(5)
    assert grid.num_arms == 5**4
    assert torch.equal(grid.bounds, problem.bounds)
    assert torch.equal(grid(grid.choices, noise=False), problem(grid.choices, noise=False))
    g = problem.constraint_values(grid.choices)
    assert torch.equal(grid.constraint_values(grid.choices), g)
    feasible = (g <= 0).all(-1)
    assert grid.optimal_value == problem(grid.choices, noise=False)[feasible].max().item()
    assert grid.noise_std == 0.1
    assert grid.constraint_noise_std == problem.constraint_noise_std
    assert grid.constraint_noise_distribution == "uniform"


def test_optimal_arms_are_feasible_with_several_constraints() -> None:
    choices = torch.arange(4, dtype=torch.float64).unsqueeze(-1)
    values = torch.tensor([5.0, 2.0, 3.0, 3.0], dtype=torch.float64)
    table = torch.tensor([[-1.0, 0.1], [-1.0, -1.0], [0.0, -2.0], [-0.5, 0.0]], dtype=torch.float64)
    problem = ConstrainedArmsProblem(choices, values, table)
    assert problem.num_constraints == 2
    assert problem.feasible.tolist() == [False, True, True, True]
    assert (problem.optimal_value, problem.optimal_arm) == (3.0, 2)
    assert problem.optimizers.tolist() == [[2.0], [3.0]]
    assert torch.equal(problem.constraint_values(choices[[3, 0]]), table[[3, 0]])


def test_a_table_without_a_feasible_arm_has_no_optimum() -> None:
    choices = torch.arange(2, dtype=torch.float64).unsqueeze(-1)
    one = torch.ones(2, 1, dtype=torch.float64)
    problem = ConstrainedArmsProblem(choices, one[:, 0], one)
    assert problem.optimizers.shape == (0, 1)
    with pytest.raises(ValueError, match="no arm meets all constraints"):
        problem.optimal_value  # noqa: B018
    with pytest.raises(ValueError, match="no point of that grid is feasible"):
        GardnerProblem().on_grid(2)


# --- noise ------------------------------------------------------------------------------------


def test_noise_on_reward_and_constraint_is_normal_with_the_given_deviations() -> None:
    problem = GardnerProblem(noise_std=0.1, constraint_noise_std=0.3)
    points = points_of(problem, 1).expand(40_000, 2)
    rewards, constraints = problem.observe(points, torch.Generator().manual_seed(1))
    noise = rewards - problem(points, noise=False)
    on_constraint = (constraints - problem.constraint_values(points))[:, 0]
    # five standard errors of mean, deviation and kurtosis
    for draws, std in ((noise, 0.1), (on_constraint, 0.3)):
        assert abs(draws.mean().item()) < 5 * std / 200
        assert draws.std().item() == pytest.approx(std, rel=5 / math.sqrt(2 * 40_000))
        assert (draws / std).pow(4).mean().item() == pytest.approx(3.0, abs=5 * math.sqrt(96) / 200)
    assert abs(torch.corrcoef(torch.stack([noise, on_constraint]))[0, 1].item()) < 5 / 200


def test_noise_on_the_constraint_of_rates_is_uniform() -> None:
    problem = RatesProblem(constraint_noise_half_width=0.2)
    points = points_of(problem, 1).expand(20_000, 4)
    rewards, constraints = problem.observe(points, torch.Generator().manual_seed(2))
    assert torch.equal(rewards, problem(points, noise=False))
    draws = (constraints - problem.constraint_values(points))[:, 0]
    assert draws.abs().max().item() <= 0.2 + 1e-12
    # Kolmogorov-Smirnov distance to the uniform distribution; 1.95 is its 0.1% point
    ranks = (draws.sort().values + 0.2) / 0.4
    distance = (ranks - (torch.arange(20_000) + 0.5) / 20_000).abs().max().item()
    assert distance * math.sqrt(20_000) < 1.95


def test_observations_belong_to_the_stream_alone() -> None:
    problem = GardnerProblem(noise_std=0.1, constraint_noise_std=0.1)
    first, second = points_of(problem, 2)
    state = torch.get_rng_state()
    drawn = [
        problem.observe(x, torch.Generator().manual_seed(7))[1] - problem.constraint_values(x)
        for x in (first, second)
    ]
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(drawn[0], drawn[1], rtol=0, atol=1e-14)
    # switching off the reward's noise leaves the constraint's as it is
    quiet = GardnerProblem(constraint_noise_std=0.1)
    reward, constraint = quiet.observe(first, torch.Generator().manual_seed(7))
    assert reward == quiet(first, noise=False)
    torch.testing.assert_close(
        constraint - quiet.constraint_values(first), drawn[0], rtol=0, atol=1e-14
    )


def test_slack_with_noise_is_botorchs_own() -> None:
    problem = GardnerProblem(constraint_noise_std=0.3)
    points = points_of(problem, 6)
    torch.manual_seed(5)
    noisy = problem.evaluate_slack(points)
    torch.manual_seed(5)
    clean = problem.evaluate_slack(points, noise=False)
    expected = clean + 0.3 * torch.randn(6, 1, dtype=torch.float64)
    torch.testing.assert_close(noisy, expected, rtol=0, atol=1e-14)


def test_observing_an_arm_leaves_the_tables_alone() -> None:
    grid = GardnerProblem(noise_std=1.0, constraint_noise_std=1.0).on_grid(21)
    values, table = grid.values.clone(), grid.constraint_table.clone()
    for row in (0, 7):
        grid.observe(grid.choices[row], torch.Generator().manual_seed(row))
    assert torch.equal(grid.values, values)
    assert torch.equal(grid.constraint_table, table)


# --- refusals ---------------------------------------------------------------------------------


@both
def test_bad_points_are_refused(name: str) -> None:
    problem = PROBLEMS[name]()
    points = points_of(problem, 3)
    broken = points.clone()
    broken[1, 0] = torch.nan
    for call in (problem.constraint_values, problem.observe, problem.evaluate_slack_true):
        with pytest.raises(TypeError, match=r"float64.*X\.double"):
            call(points.float())
        with pytest.raises(ValueError, match=r"X\[1, 0\] is nan"):
            call(broken)
        with pytest.raises(ValueError, match="coordinates of a point"):
            call(points[:, :1])
        with pytest.raises(ValueError, match="within the bounds"):
            call(points + 10.0)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="constraint_noise_std is -1"):
        GardnerProblem(constraint_noise_std=-1.0)
    with pytest.raises(ValueError, match="constraint_noise_half_width is nan"):
        RatesProblem(constraint_noise_half_width=math.nan)
    with pytest.raises(ValueError, match="num_points is 101, which makes 104060401 arms"):
        RatesProblem().on_grid(101)
    with pytest.raises(TypeError, match="num_points must be an integer"):
        GardnerProblem().on_grid(2.5)  # type: ignore[arg-type]
    choices = torch.arange(2, dtype=torch.float64).unsqueeze(-1)
    with pytest.raises(ValueError, match="one row for each of the 2 arms"):
        ConstrainedArmsProblem(choices, choices[:, 0], choices[:1])
    with pytest.raises(TypeError, match="float64"):
        ConstrainedArmsProblem(choices, choices[:, 0], choices.float())
    with pytest.raises(ValueError, match="constraint_noise_distribution is 'cauchy'"):
        ConstrainedArmsProblem(
            choices, choices[:, 0], choices, constraint_noise_distribution="cauchy"
        )
    with pytest.raises(ValueError, match="not one of the 2 arms"):
        ConstrainedArmsProblem(choices, choices[:, 0], choices).constraint_values(choices + 0.5)

"""Environments change when and how they say."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from torch import Tensor

from botorch_bandits import Arms, Box
from botorch_bandits.problems import (
    ArmsProblem,
    BraninReward,
    ChangingProblem,
    DriftingGP,
    DriftingProblem,
    GPDraw,
    Hartmann3Reward,
    RKHSFunction,
    SwitchingProblem,
    TabulatedProblem,
    evenly_spaced_change_points,
    gp_draw_on_arms,
    gp_draws_of_periods,
    sensor_day,
    switching_gp_draws,
    switching_rkhs,
)
from botorch_bandits.random_streams import derive_seed

CHOICES = torch.linspace(0, 2, 15, dtype=torch.float64).unsqueeze(-1)
ARMS = Arms(CHOICES)
BOX = Box([[0.0], [2.0]])
MATERN = MaternKernel(nu=2.5)


def table(seed: int, noise_std: float | None = 0.1) -> ArmsProblem:
    stream = torch.Generator().manual_seed(seed)
    values = torch.randn(len(CHOICES), dtype=torch.float64, generator=stream)
    return ArmsProblem(CHOICES, values, noise_std)


def test_function_changes_in_the_round_behind_a_change_point() -> None:
    problems = [table(i) for i in range(3)]
    environment = SwitchingProblem(problems, change_points=[4, 9])
    expected = [0] * 4 + [1] * 5 + [2] * 3
    for t, k in enumerate(expected, start=1):
        assert environment.period(t) == k
        assert environment.at(t) is problems[k]
        assert torch.equal(environment.arm_values(t), problems[k].values)
        assert torch.equal(environment.evaluate_true(CHOICES[3:5], t), problems[k].values[3:5])
        assert environment.optimal_value(t) == float(problems[k].values.max())


@pytest.mark.parametrize(("num_rounds", "num_periods"), [(2700, 3), (2700, 7), (10, 10), (5, 1)])
def test_periods_are_of_equal_length(num_rounds: int, num_periods: int) -> None:
    points = evenly_spaced_change_points(num_rounds, num_periods)
    lengths = np.diff([0, *points, num_rounds])
    assert len(lengths) == num_periods
    assert lengths.min() >= num_rounds // num_periods
    assert lengths.max() - lengths.min() <= 1


def test_reward_and_constraints_change_on_their_own() -> None:
    switching = SwitchingProblem([table(2), table(3)], [6])
    environment = SwitchingProblem([table(0), table(1)], [3], constraints=[switching, table(4)])
    for t in range(1, 10):
        assert environment.at(t).values.equal(table(0 if t <= 3 else 1).values)  # type: ignore[operator, union-attr]
        expected = torch.stack([table(2 if t <= 6 else 3).values, table(4).values], -1)
        assert torch.equal(environment.constraint_values(CHOICES, t), expected)
    only_a_constraint = SwitchingProblem([table(0)], [], constraints=[switching])
    assert torch.equal(only_a_constraint.arm_values(1), only_a_constraint.arm_values(7))
    assert only_a_constraint.change_points == ()
    assert SwitchingProblem([table(0)], []).constraint_values(CHOICES, 1).shape == (15, 0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SwitchingProblem([], []), "problems is empty"),
        (lambda: SwitchingProblem([table(0), table(1)], []), "2 periods have 1"),
        (lambda: SwitchingProblem([table(i) for i in range(3)], [5, 5]), "increase strictly"),
        (lambda: SwitchingProblem([table(0), table(1)], [0]), "at least 1"),
        (lambda: SwitchingProblem([table(0), table(1, 0.3)], [5]), "give all periods the same"),
        (lambda: SwitchingProblem([BraninReward(), Hartmann3Reward()], [5]), "is not on the box"),
        (
            lambda: SwitchingProblem([table(0)], [], constraints=[GPDraw(MATERN, BOX.bounds)]),
            "is not on the arms",
        ),
        (lambda: SwitchingProblem([table(0)], []).at(0), "round_number is 0"),
        (lambda: DriftingProblem(table(0), table(1), 0.0), "rounds_per_turn"),
        (lambda: DriftingGP(MATERN, ARMS, rate=1.0), "rate is 1.0"),
    ],
)
def test_what_does_not_fit_is_refused(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]


def test_functions_to_be_minimized_are_refused() -> None:
    from botorch.test_functions import Branin

    with pytest.raises(ValueError, match=r"problems\[0\] \(Branin\).*negate=True"):
        SwitchingProblem([Branin()], [])
    with pytest.raises(TypeError, match="BaseTestProblem"):
        SwitchingProblem([lambda x: x], [])  # type: ignore[list-item]


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_switching_draws_are_those_of_the_fixed_problems(domain: Arms | Box) -> None:
    draws = switching_gp_draws(MATERN, domain, [5, 8], seed=3, noise_std=0.2, num_features=64)
    functions = switching_rkhs(MATERN, domain, [5], 7, rkhs_norm=2.0, seed=3, noise_std=0.2)
    seeds = [derive_seed(3, k, "period") for k in range(3)]
    for k, t in enumerate([5, 8, 9]):
        if isinstance(domain, Arms):
            expected = gp_draw_on_arms(MATERN, CHOICES, seeds[k])(CHOICES, noise=False)
        else:
            expected = GPDraw(MATERN, BOX.bounds, seeds[k], num_features=64)(CHOICES, noise=False)
        assert torch.allclose(draws.evaluate_true(CHOICES, t), expected, atol=1e-12, rtol=0)
    for k, t in enumerate([5, 6]):
        if isinstance(domain, Arms):
            other = RKHSFunction.on_arms(MATERN, CHOICES, 7, 2.0, seeds[k])(CHOICES, noise=False)
        else:
            other = RKHSFunction(MATERN, BOX.bounds, 7, 2.0, seeds[k])(CHOICES, noise=False)
        assert torch.allclose(functions.evaluate_true(CHOICES, t), other, atol=1e-12, rtol=0)
    assert draws.noise_std == functions.noise_std == 0.2


def test_draws_of_many_replicates_are_those_of_each() -> None:
    values = gp_draws_of_periods(MATERN, ARMS, 3, seeds=[3, 8])
    for b, seed in enumerate([3, 8]):
        environment = switching_gp_draws(MATERN, ARMS, [5, 8], seed=seed)
        expected = torch.stack([problem(CHOICES, noise=False) for problem in environment.problems])
        assert torch.allclose(values[b], expected, atol=1e-12, rtol=0)


def test_gradual_turn_on_arms_and_on_a_box() -> None:
    first, second = table(0), table(1)
    environment = DriftingProblem(first, second, rounds_per_turn=60)
    assert environment.change_points is None
    for t in (1, 6, 16, 31):
        angle = 2 * math.pi * (t - 1) / 60
        expected = math.cos(angle) * first.values + math.sin(angle) * second.values
        assert torch.allclose(environment.arm_values(t), expected, atol=1e-14, rtol=0)
        assert torch.equal(environment.at(t)(CHOICES, noise=False), environment.arm_values(t))
        assert environment.optimal_value(t) == float(environment.arm_values(t).max())
    f, g = (GPDraw(MATERN, BOX.bounds, seed, 0.1, num_features=64) for seed in (0, 1))
    on_box = DriftingProblem(f, g, rounds_per_turn=8)
    half = math.sqrt(0.5)
    expected = half * f(CHOICES, noise=False) + half * g(CHOICES, noise=False)
    assert torch.allclose(on_box.evaluate_true(CHOICES, 2), expected, atol=1e-12, rtol=0)
    fine = torch.linspace(0, 2, 20001, dtype=torch.float64).unsqueeze(-1)
    largest = float(on_box.evaluate_true(fine, 2).max())
    assert largest - 1e-12 <= on_box.optimal_value(2) <= largest + 1e-6
    at_best = on_box.at(2)(on_box.at(2).optimizers, noise=False)
    assert float(at_best) == pytest.approx(on_box.optimal_value(2), abs=1e-12)
    with pytest.raises(ValueError, match="only arms have arm_values"):
        on_box.arm_values(2)


def test_drifting_gp_starts_at_the_fixed_draw_and_forgets_the_order_of_questions() -> None:
    environment = DriftingGP(RBFKernel(), ARMS, rate=0.1, seed=4, noise_std=0.1)
    start = gp_draw_on_arms(RBFKernel(), CHOICES, seed=4)
    assert torch.allclose(environment.arm_values(1), start.values, atol=1e-7, rtol=0)
    late, early = environment.arm_values(300), environment.arm_values(7)
    again = DriftingGP(RBFKernel(), ARMS, rate=0.1, seed=4)
    assert torch.equal(again.arm_values(7), early)
    assert torch.equal(again.arm_values(300), late)
    assert not torch.allclose(late, early, atol=0.1)
    on_box = DriftingGP(RBFKernel(), BOX, rate=0.1, seed=4, num_features=64)
    draw = GPDraw(RBFKernel(), BOX.bounds, seed=4, num_features=64)
    assert torch.equal(on_box.evaluate_true(CHOICES, 1), draw(CHOICES, noise=False))
    assert not torch.allclose(on_box.evaluate_true(CHOICES, 9), draw(CHOICES, noise=False))


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_drifting_gp_has_the_covariance_of_its_model(domain: Arms | Box) -> None:
    """Each entry within 5 standard errors of k(x, x') (1 - rate)^(|t - t'| / 2)."""
    rate, rounds, points = 0.2, (1, 2, 5), CHOICES[[0, 6, 14]]
    num_draws = 800 if isinstance(domain, Arms) else 400

    def draw(seed: int) -> Tensor:
        environment = DriftingGP(MATERN, domain, rate, seed=seed)
        return torch.cat([environment.evaluate_true(points, t) for t in rounds])

    if isinstance(domain, Box):
        environment = DriftingGP(MATERN, domain, rate, seed=0, num_features=256)
        assert environment._path is not None
        with torch.no_grad():
            features = environment._path.feature_map(points).to_dense()
        walks = []
        for seed in range(num_draws):
            environment._start = torch.randn(
                256, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
            )
            environment._state = (1, environment._start)
            environment._steps._seeds, environment._steps._number = (seed,), -1
            walks.append(torch.cat([features @ environment._coordinates(t) for t in rounds]))
        samples = torch.stack(walks)
        # the covariance given the features, which are the same in every draw
        space = features @ features.mT
    else:
        samples = torch.stack([draw(seed) for seed in range(num_draws)])
        with torch.no_grad():
            space = MaternKernel(nu=2.5).double()(points).to_dense()
    times = torch.tensor(rounds, dtype=torch.float64)
    decay = (1 - rate) ** ((times[:, None] - times[None, :]).abs() / 2)
    expected = torch.kron(decay, space)
    found = samples.mT @ samples / num_draws
    variance = expected.diagonal()
    error = ((variance[:, None] * variance[None, :] + expected**2) / num_draws).sqrt()
    assert bool(((found - expected).abs() < 5 * error).all())


def test_table_holds_each_row_and_ends() -> None:
    rows = torch.arange(12, dtype=torch.float64).reshape(4, 3)
    environment = TabulatedProblem(CHOICES[:3], rows, rounds_per_row=3, noise_std=0.2)
    for t in range(1, 13):
        assert torch.equal(environment.arm_values(t), rows[(t - 1) // 3])
    assert environment.num_rounds == 12
    with pytest.raises(ValueError, match="lasts for 12 rounds"):
        environment.at(13)


def test_sensor_day_plays_the_rows_behind_the_past(tmp_path: Path) -> None:
    readings = np.random.default_rng(0).normal(20.0, 2.0, size=(30, 4))
    path = tmp_path / "readings.npz"
    np.savez(path, temperature=readings)
    environment, data = sensor_day(path, num_past=20, num_later=6, rounds_per_reading=2)
    assert environment.num_rounds == 12
    centered = torch.from_numpy(readings[20:26] - readings[:20].mean(0))
    for t in range(1, 13):
        assert torch.allclose(environment.arm_values(t), centered[(t - 1) // 2], atol=1e-12, rtol=0)
    covariance = torch.from_numpy(np.cov(readings[:20].T))
    assert torch.allclose(data.kernel_matrix(), covariance, atol=1e-12, rtol=0)
    with pytest.raises(ValueError, match="30 rows, fewer than"):
        sensor_day(path, num_past=20, num_later=11)


def test_environments_leave_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    environments: list[ChangingProblem] = [
        switching_gp_draws(MATERN, BOX, [3], num_features=32),
        DriftingGP(MATERN, BOX, 0.1, num_features=32),
        DriftingGP(MATERN, ARMS, 0.1),
    ]
    for environment in environments:
        environment.evaluate_true(CHOICES, 4)
        environment.optimal_value(4)
    assert torch.equal(torch.get_rng_state(), before)

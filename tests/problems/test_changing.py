"""Environments change when and how they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from botorch.test_functions import Hartmann
from gpytorch.kernels import MaternKernel, RBFKernel
from models.textbook import double, line
from torch import Tensor

from botorch_bandits import Arms, Box
from botorch_bandits.problems import (
    ArmsProblem,
    BraninReward,
    DriftingGP,
    SwitchingProblem,
    evenly_spaced_change_points,
    gp_draw_on_arms,
    switching_gp_draws,
)
from botorch_bandits.random_streams import derive_seed
from papers.environments import gp_draws_of_periods

CHOICES = line(0, 2, 15)
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
        (
            lambda: SwitchingProblem([BraninReward(), Hartmann(dim=3, negate=True)], [5]),
            "is not on the box",
        ),
        (
            lambda: SwitchingProblem([table(0)], [], constraints=[BraninReward()]),
            "is not on the arms",
        ),
        (lambda: SwitchingProblem([table(0)], []).at(0), "round_number is 0"),
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


def test_draws_of_periods_are_those_of_the_fixed_problems() -> None:
    values = gp_draws_of_periods(MATERN, ARMS, 3, seeds=[3, 8])
    for b, seed in enumerate([3, 8]):
        environment = switching_gp_draws(MATERN, ARMS, [5, 8], seed=seed, noise_std=0.2)
        assert environment.noise_std == 0.2
        for k, t in enumerate([5, 8, 9]):
            expected = gp_draw_on_arms(MATERN, CHOICES, derive_seed(seed, k, "period")).values
            assert torch.allclose(environment.arm_values(t), expected, atol=1e-12, rtol=0)
            assert torch.allclose(values[b, k], expected, atol=1e-12, rtol=0)
    with pytest.raises(TypeError, match="domain is"):
        switching_gp_draws(MATERN, BOX, [5])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="domain is"):
        DriftingGP(MATERN, BOX, 0.1)  # type: ignore[arg-type]


def test_drifting_gp_starts_at_the_fixed_draw_and_forgets_the_order_of_questions() -> None:
    environment = DriftingGP(RBFKernel(), ARMS, rate=0.1, seed=4, noise_std=0.1)
    start = gp_draw_on_arms(RBFKernel(), CHOICES, seed=4)
    assert torch.allclose(environment.arm_values(1), start.values, atol=1e-7, rtol=0)
    late, early = environment.arm_values(300), environment.arm_values(7)
    again = DriftingGP(RBFKernel(), ARMS, rate=0.1, seed=4)
    assert torch.equal(again.arm_values(7), early)
    assert torch.equal(again.arm_values(300), late)
    assert not torch.allclose(late, early, atol=0.1)


@pytest.mark.slow
def test_drifting_gp_has_the_covariance_of_its_model() -> None:
    """Each entry within 5 standard errors of k(x, x') (1 - rate)^(|t - t'| / 2)."""
    rate, rounds, points, num_draws = 0.2, (1, 2, 5), CHOICES[[0, 6, 14]], 800

    def draw(seed: int) -> Tensor:
        environment = DriftingGP(MATERN, ARMS, rate, seed=seed)
        return torch.cat([environment.evaluate_true(points, t) for t in rounds])

    samples = torch.stack([draw(seed) for seed in range(num_draws)])
    with torch.no_grad():
        space = MaternKernel(nu=2.5).double()(points).to_dense()
    times = double(rounds)
    decay = (1 - rate) ** ((times[:, None] - times[None, :]).abs() / 2)
    expected = torch.kron(decay, space)
    found = samples.mT @ samples / num_draws
    variance = expected.diagonal()
    error = ((variance[:, None] * variance[None, :] + expected**2) / num_draws).sqrt()
    assert bool(((found - expected).abs() < 5 * error).all())

"""The methods for long-term constraints, against computations by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from models.textbook import double

from botorch_bandits.random_streams import generator
from papers import shi
from papers.environments import GardnerProblem, RatesProblem, on_grid
from papers.runner import Curves

BOX = [[0.0, 0.0], [2.0, 4.0]]


def tensor(*numbers: float) -> torch.Tensor:
    return double(numbers)


def test_a_step_of_oco_by_hand() -> None:
    player = shi.SaddlePoint(BOX, 3, step_size=0.1)
    sides = tensor(2.0, 4.0)
    start = torch.rand(2, dtype=torch.float64, generator=generator(3, 0, "start")).clamp(0.1, 0.9)
    ahead = player.choose(1)
    player.observe(ahead, 1.0, tensor(0.5))
    behind = player.choose(2)
    player.observe(behind, 0.2, tensor(-0.1))
    direction = (ahead - behind) / sides / 0.2
    assert float(direction.norm()) == pytest.approx(1.0)
    torch.testing.assert_close((ahead + behind) / 2 / sides, start)
    # slopes are dim (f(x + r u) - f(x - r u)) / (2 r) u; the multiplier was 0
    point = (start + 0.1 * 2 * 0.8 / 0.2 * direction).clamp(0.1, 0.9)
    assert float(player.multipliers[0]) == pytest.approx(0.1 * 0.2)
    third = player.choose(3)
    player.observe(third, 0.0, tensor(0.0))
    torch.testing.assert_close((third + player.choose(4)) / 2 / sides, point)


def observe(player: shi.ADMMBO, rows: list[tuple[float, float, float]]) -> list[torch.Tensor]:
    chosen = []
    for t, (_, reward, constraint) in enumerate(rows, 1):
        chosen.append(player.choose(t))
        player.observe(chosen[-1], reward, tensor(constraint))
    return chosen


def test_admm_alternates_between_reward_and_feasibility_by_hand() -> None:
    player = shi.ADMMBO(BOX, ((2, 1), (1, 1)), 1)
    rows = [(0, 0.3, 0.2), (0, 0.1, -0.5), (0, 0.9, 0.1), (0, 0.4, -0.2)]
    X = torch.stack(observe(player, rows))
    corner = tensor(2.0, 4.0)
    reward = tensor(*(row[1] for row in rows))
    x = X[int((-reward + 0.05 * (X - corner).square().sum(-1)).argmin())]
    torch.testing.assert_close(player.x, x)
    player.observe(player.choose(5), 0.2, tensor(-0.3))
    X = torch.cat([X, player._points[-1:]])
    violated = tensor(1.0, 0.0, 1.0, 0.0, 0.0)
    z = X[int((violated + 0.05 / 50.0 * (X - x).square().sum(-1)).argmin())]
    torch.testing.assert_close(player.z, z)
    torch.testing.assert_close(player.y, 0.1 * (x - z))
    primal, dual = float((x - z).norm()), 0.1 * float((z - corner).norm())
    factor = 2.0 if primal > 10 * dual else 0.5 if dual > 10 * primal else 1.0
    assert player.penalty == pytest.approx(0.1 * factor)


def test_expected_improvements_against_quadrature() -> None:
    player = shi.ADMMBO(BOX, ((20, 2), (20, 2)), 2)
    observe(player, [(0, 0.3, 0.4), (0, 0.1, -0.5), (0, 0.9, 0.1)])
    points = torch.rand(5, 2, dtype=torch.float64, generator=generator(0, 0, "points"))
    model = shi.BanditGP.with_kernel(shi.MaternKernel(nu=2.5), noise=0.01, lengthscale=1.0)
    normal = torch.linspace(-9, 9, 40001, dtype=torch.float64)
    density = torch.exp(-0.5 * normal.square())
    density = density / density.sum()
    for is_reward in (True, False):
        player._is_reward = is_reward
        observed = player._observed[:, [0 if is_reward else 1]]
        posterior = model(player._points, observed).posterior(points.unsqueeze(-2))
        mean, std = (
            posterior.mean.detach().reshape(-1, 1),
            posterior.variance.detach().sqrt().reshape(-1, 1),
        )
        drawn = mean + std * normal
        cost = -drawn if is_reward else (drawn > 0.0).double()
        cost = cost + player._penalty_at(points).unsqueeze(-1)
        expected = (player._costs().min() - cost).clamp_min(0.0) @ density
        torch.testing.assert_close(player._improvement(points), expected, atol=1e-3, rtol=1e-3)


def test_playing_records_true_values_and_tells_noisy_ones() -> None:
    problem = GardnerProblem(0.1, 0.1)
    told = []

    class Fixed(shi.Baseline):
        stopped_after = 2

        def choose(self, round_number: int) -> torch.Tensor:
            return tensor(1.0, 0.5 * round_number)

        def observe(self, x: torch.Tensor, reward: float, constraints: torch.Tensor) -> None:
            told.append((reward, float(constraints)))

    study = shi.ArmsStudy(torch.empty(0, 0), torch.zeros(1, 1), 0.1, 3, 7)
    played = shi.play_with_constraints(study, shi.ConstrainedMethod("", problem, lambda s: Fixed()))
    X = torch.stack([tensor(1.0, 0.5 * t) for t in (1, 2, 3)])
    regret = problem.optimal_value - problem.evaluate_true(X)
    np.testing.assert_allclose(played["regret"][0], regret)
    np.testing.assert_allclose(played["constraint"][0], problem.constraint_values(X)[:, 0])
    noise = np.array(told) - np.stack([problem.optimal_value - regret, played["constraint"][0]], 1)
    assert (np.abs(noise) > 0).all()
    assert np.abs(noise).max() < 0.6
    assert np.isnan(played["multiplier"][0])
    assert played["stopped"][0] == 2


def test_slack_offsets_signed_violation_only_and_averages_end_where_a_method_stops() -> None:
    constraint = double([[1.0, -2.0, 1.0, 1.0]])
    regret = double([[1.0, 0.0, 0.0, 3.0]])
    others = {"constraint": constraint, "stopped": torch.tensor([3]), "multiplier": tensor(2.0)}
    curve = Curves(regret, others)
    known = shi.averages(curve)
    torch.testing.assert_close(known["violation"], torch.tensor([[1.0, 0.0, 0.0, 0.25]]).double())
    torch.testing.assert_close(known["rectified"], torch.tensor([[1.0, 0.5, 2 / 3, 0.75]]).double())
    shown = shi.running_averages(curve)["time-averaged regret"]
    assert shown.isnan().tolist() == [[False, False, False, True]]
    panel = shi.gardner(1, 4, num_points=5)[0]
    half, end = shi.tabulate_violation([panel], [{"m": curve}])
    assert (half["round"], half["regret_mean"]) == (2, 0.5)
    assert (end["round"], end["regret_mean"], end["mean_stop"]) == (4, pytest.approx(1 / 3), 3.0)


@pytest.mark.parametrize(
    ("box", "num_points", "best", "mixed"),
    [(GardnerProblem(0.1), 41, "-0.3519", "-0.2700"), (RatesProblem(0.1), 7, "2.9881", "3.0236")],
)
def test_what_the_page_says_of_the_grids(box, num_points: int, best: str, mixed: str) -> None:
    grid = on_grid(box, num_points)
    assert f"{grid.optimal_value:.4f}" == best
    # the least priced value over multipliers is what a mixture that holds on average earns
    prices = torch.linspace(0.0, 8.0, 8001, dtype=torch.float64)
    lagrangian = grid.values - prices.unsqueeze(-1) * grid.constraint_table[:, 0]
    assert float(lagrangian.amax(-1).min()) == pytest.approx(float(mixed), abs=2e-4)

"""Replicates on a box in lockstep: what they play, and that it is as good as what a loop plays."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from botorch.test_functions import Ackley, BraninCurrin, Hartmann
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from models.textbook import double
from other_device import other_device
from torch import Tensor

from botorch_bandits import (
    AMMUpperConfidenceBound,
    BanditGP,
    Box,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    Policy,
    simulate,
)
from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.problems import ArmsProblem, BraninReward, RKHSFunction
from botorch_bandits.random_streams import RandomBlocks
from botorch_bandits.simulation.boxes import BoxEngine

BOUNDS: dict[str, Any] = {"rkhs_bound": 2.0, "noise_bound": 0.1, "delta": 0.1}
MODEL = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.02, lengthscale=0.3)

RECIPES: dict[str, AcquisitionRecipe] = {
    "constant width": GPUpperConfidenceBound.with_options(width=2.0, scale=0.5),
    "GP-UCB, Theorem 2": GPUpperConfidenceBound.with_options(smoothness_a=1.0, smoothness_b=1.0),
    "IGP-UCB": ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True),
    "IGP-UCB, minimizing": ImprovedUpperConfidenceBound.with_options(**BOUNDS, maximize=False),
    "AMM": AMMUpperConfidenceBound.with_options(**BOUNDS),
}


def kernel(nu: float = 2.5, lengthscale: float = 0.3, outputscale: float = 1.0) -> Any:
    base = RBFKernel() if nu == math.inf else MaternKernel(nu=nu)
    scaled = ScaleKernel(base).double()
    scaled.base_kernel.lengthscale = double(lengthscale)
    scaled.outputscale = double(outputscale)
    return scaled


def unit_problem(seed: int = 0, dim: int = 2) -> RKHSFunction:
    bounds = double([[0.0] * dim, [1.0] * dim])
    return RKHSFunction(kernel(), bounds, seed=seed, noise_std=0.1)


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Tensor, Tensor]]:
    """Collects round, points and values of each choice."""
    record: list[tuple[int, Tensor, Tensor]] = []
    original = BoxEngine.choose

    def choose(self: BoxEngine, round_number: int) -> tuple[Tensor, Tensor]:
        found = original(self, round_number)
        record.append((round_number, *found))
        return found

    monkeypatch.setattr(BoxEngine, "choose", choose)
    return record


@pytest.mark.parametrize("name", RECIPES)
def test_values_are_those_of_the_acquisition_function(
    name: str, chosen: list[tuple[int, Tensor, Tensor]]
) -> None:
    """The widths and the posterior of a model that is built from the replicate's data."""
    problem = unit_problem()
    policy = Policy(MODEL, RECIPES[name], num_initial=2)
    result = simulate(problem, policy, 14, 3, seed=1, progress=False)
    assert result.points is not None
    box = Box(problem.bounds)
    assert [number for number, _, _ in chosen] == list(range(3, 15))
    for number, points, values in chosen:
        assert torch.equal(points, result.points[:, number - 1])
        for b in range(3):
            n = number - 1
            model = MODEL(result.points[b, :n], result.outcomes[b, :n].unsqueeze(-1))
            acquisition = RECIPES[name].build(model, box, round_number=number)
            expected = float(acquisition(points[b].unsqueeze(0)))
            assert float(values[b]) == pytest.approx(expected, abs=1e-8)


def test_a_replicate_depends_on_its_seed_alone() -> None:
    # after one point corners may tie, and rounding decides
    policy = Policy(MODEL, RECIPES["IGP-UCB"], num_initial=3)
    many = simulate(unit_problem(), policy, 10, 5, seed=3, progress=False)
    few = simulate(unit_problem(), policy, 10, 2, seed=3, progress=False)
    alone = simulate(unit_problem(), policy, 10, seed=3, progress=False)
    assert many.points is not None
    assert few.points is not None
    assert alone.points is not None
    assert torch.allclose(many.points[:2], few.points, atol=1e-6, rtol=0)
    assert torch.allclose(many.points[:1], alone.points, atol=1e-6, rtol=0)
    assert len({tuple(row.reshape(-1).tolist()) for row in many.points}) == 5
    again = simulate(unit_problem(), policy, 10, 5, seed=3, progress=False)
    assert again.points is not None
    assert torch.equal(many.points, again.points)


@pytest.mark.parametrize("is_one", [True, False])
def test_result_adds_up(is_one: bool) -> None:
    problems = [unit_problem(0 if is_one else i) for i in range(3)]
    given = problems[0] if is_one else problems
    policy = Policy(MODEL, RECIPES["constant width"])
    result = simulate(given, policy, 12, 3, seed=4, progress=False)
    assert result.points is not None
    assert (result.arms, result.covered, result.mean_width) == (None, None, None)
    assert result.points.shape == (3, 12, 2)
    assert bool(((result.points >= 0.0) & (result.points <= 1.0)).all())
    noise = RandomBlocks(result.seeds, "noise")
    for b, problem in enumerate(problems):
        values = problem(result.points[b], noise=False)
        assert torch.allclose(result.regret[b], problem.optimal_value - values, atol=1e-12)
        draws = torch.stack([noise.at(t + 1)[b] for t in range(12)])
        assert torch.allclose(result.outcomes[b], values + 0.1 * draws, atol=1e-12)
    assert float(result.simple_regret[:, -1].max()) < float(result.regret[:, 0].max())
    nothing = simulate(given, policy, 0, 3, progress=False)
    assert nothing.points is not None
    assert (nothing.points.shape, nothing.regret.shape) == ((3, 0, 2), (3, 0))


class OwnNoise(BraninReward):
    """Evaluates in its own way."""

    def forward(self, X: Tensor, noise: bool = True) -> Tensor:
        return super().forward(X, noise) + 1.0


class UnknownOptimum(BraninReward):
    """Does not know its optimum."""

    _optimal_value = None


MINE = Policy(MODEL, RECIPES["IGP-UCB"])


def with_acquisition(acquisition: Any) -> Policy:
    return Policy(MODEL, acquisition)


def with_model(**options: Any) -> Policy:
    given = {"kernel": MaternKernel(nu=2.5), "noise": 0.1, **options}
    return Policy(BanditGP.with_kernel(given.pop("kernel"), **given), MINE.acquisition)


@pytest.mark.parametrize(
    ("problem", "policy", "message"),
    [
        (Ackley(dim=2), MINE, "negate=True"),
        (BraninCurrin(), MINE, "several objectives"),
        (OwnNoise(), MINE, r"OwnNoise.*policy.loop"),
        (UnknownOptimum(), MINE, "does not know its optimal value"),
        ([BraninReward(), BraninReward(0.1)], MINE, "problem 1 has other bounds or another noise"),
        (
            [BraninReward(), Hartmann(dim=3, negate=True)],
            MINE,
            "problem 1 has other bounds or another noise",
        ),
        (
            [BraninReward(), ArmsProblem(torch.eye(2).double(), torch.ones(2).double())],
            MINE,
            "problems on arms and on boxes",
        ),
        (
            BraninReward(),
            with_acquisition(GPUpperConfidenceBound.with_options(num_arms=5)),
            "num_arms=5, but the domain is a box",
        ),
        (
            BraninReward(),
            with_model(kernel=RBFKernel(ard_num_dims=3)),
            "ard_num_dims=3 on 2 columns",
        ),
    ],
)
def test_bad_settings_are_refused(problem: Any, policy: Policy, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(problem, policy, 3, progress=False)


def test_devices_play_the_same_points() -> None:
    policy = Policy(MODEL, RECIPES["IGP-UCB"], num_initial=2)
    host = simulate(unit_problem(), policy, 12, 4, progress=False)
    with other_device() as name:
        device = simulate(unit_problem(), policy, 12, 4, device=name, progress=False)
    assert host.points is not None
    assert device.points is not None
    assert torch.allclose(host.points, device.points, atol=1e-5, rtol=0)

"""What every problem promises, whatever its function."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from botorch.test_functions.base import BaseTestProblem
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits.problems import (
    ArmsProblem,
    BraninReward,
    GPDraw,
    Hartmann3Reward,
    RKHSFunction,
    RosenbrockReward,
    gp_draw_on_arms,
    posterior_mean_of_gp_draw,
    restrict_to_arms,
)

BOX = torch.tensor([[-1.0, 0.0], [1.0, 3.0]], dtype=torch.float64)
ARMS = BOX[0] + (BOX[1] - BOX[0]) * torch.rand(
    40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(5)
)
MATERN = ScaleKernel(MaternKernel(nu=2.5))

BOX_PROBLEMS: dict[str, Callable[[], BaseTestProblem]] = {
    "branin": lambda: BraninReward(noise_std=0.3),
    "hartmann3": lambda: Hartmann3Reward(noise_std=0.3),
    "rosenbrock2": lambda: RosenbrockReward(noise_std=0.3),
    "rosenbrock4": lambda: RosenbrockReward(dim=4, noise_std=0.3),
    "rkhs_se": lambda: RKHSFunction(RBFKernel(), BOX, seed=1, noise_std=0.3),
    "rkhs_matern": lambda: RKHSFunction(MATERN, BOX, rkhs_norm=4.0, seed=2, noise_std=0.3),
    "gp_draw": lambda: GPDraw(MATERN, BOX, seed=4, noise_std=0.3, num_features=256),
}
ARM_PROBLEMS: dict[str, Callable[[], BaseTestProblem]] = {
    "table": lambda: ArmsProblem(ARMS, ARMS.sum(dim=-1), noise_std=0.3),
    "restricted": lambda: restrict_to_arms(BraninReward(noise_std=0.3), ARMS),
    "rkhs_on_arms": lambda: RKHSFunction.on_arms(MATERN, ARMS, seed=3, noise_std=0.3),
    "gp_on_arms": lambda: gp_draw_on_arms(MATERN, ARMS, seed=3, noise_std=0.3),
    "posterior_mean": lambda: posterior_mean_of_gp_draw(
        MATERN, ARMS, ridge=0.1, seed=3, noise_std=0.3
    ),
}
ALL_PROBLEMS = {**BOX_PROBLEMS, **ARM_PROBLEMS}
all_problems = pytest.mark.parametrize("name", list(ALL_PROBLEMS))


def points_of(problem: BaseTestProblem, *batch_shape: int) -> Tensor:
    """Random points in the domain of a problem."""
    generator = torch.Generator().manual_seed(11)
    if isinstance(problem, ArmsProblem):
        return problem.choices[torch.randint(problem.num_arms, batch_shape, generator=generator)]
    unit = torch.rand(*batch_shape, problem.dim, dtype=torch.float64, generator=generator)
    return problem.bounds[0] + (problem.bounds[1] - problem.bounds[0]) * unit


@all_problems
def test_building_leaves_global_state_alone_and_is_reproducible(name: str) -> None:
    torch.manual_seed(17)
    before = torch.get_rng_state()
    first = ALL_PROBLEMS[name]()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() == torch.float32
    torch.manual_seed(18)
    second = ALL_PROBLEMS[name]()
    points = points_of(first, 7)
    assert torch.equal(first(points, noise=False), second(points, noise=False))
    assert first.optimal_value == second.optimal_value


@all_problems
@pytest.mark.parametrize("batch_shape", [(), (1,), (5,), (2, 3)])
def test_shapes_and_dtype(name: str, batch_shape: tuple[int, ...]) -> None:
    problem = ALL_PROBLEMS[name]()
    points = points_of(problem, *batch_shape)
    for rewards in (problem(points), problem.evaluate_true(points)):
        assert rewards.shape == batch_shape
        assert rewards.dtype == torch.float64
    assert problem.bounds.shape == (2, problem.dim)
    assert problem.bounds.dtype == torch.float64


@all_problems
def test_reward_orientation_and_optimum(name: str) -> None:
    problem = ALL_PROBLEMS[name]()
    assert problem.is_minimization_problem is False
    at_optimizers = problem(problem.optimizers, noise=False)
    expected = torch.full_like(at_optimizers, problem.optimal_value)
    assert torch.allclose(at_optimizers, expected, rtol=1e-12, atol=1e-12)
    points = points_of(problem, 2000)
    rewards = problem(points, noise=False)
    assert torch.equal(rewards, problem.evaluate_true(points))
    assert rewards.max().item() <= problem.optimal_value + 1e-12


@all_problems
@pytest.mark.parametrize("batch_shape", [(), (4,)])
def test_noise_is_botorchs_own(name: str, batch_shape: tuple[int, ...]) -> None:
    problem = ALL_PROBLEMS[name]()
    points = points_of(problem, *batch_shape)
    clean = problem(points, noise=False).clone()
    torch.manual_seed(3)
    noisy = problem(points)
    torch.manual_seed(3)
    expected = clean + 0.3 * torch.randn_like(clean)
    assert torch.allclose(noisy, expected, rtol=0.0, atol=1e-12)
    # A noisy evaluation must not write into the stored rewards.
    assert torch.equal(problem(points, noise=False), clean)


@all_problems
def test_deep_copy_is_the_same_function(name: str) -> None:
    problem = ALL_PROBLEMS[name]()
    points = points_of(problem, 5)
    duplicate = copy.deepcopy(problem)
    assert torch.equal(duplicate(points, noise=False), problem(points, noise=False))


@pytest.mark.parametrize("name", list(BOX_PROBLEMS))
def test_gradient_matches_finite_differences(name: str) -> None:
    problem = BOX_PROBLEMS[name]()
    points = points_of(problem, 3).requires_grad_(True)
    assert torch.autograd.gradcheck(lambda X: problem(X, noise=False), points, atol=1e-4)


@all_problems
def test_bad_points_are_refused(name: str) -> None:
    problem = ALL_PROBLEMS[name]()
    points = points_of(problem, 3)
    with_nan = points.clone()
    with_nan[2, 0] = float("nan")
    with pytest.raises(TypeError, match=r"X has dtype torch.float32.*double\(\)"):
        problem(points.float())
    with pytest.raises(TypeError, match=r"X must be a torch.Tensor, got list"):
        problem.evaluate_true(points.tolist())
    with pytest.raises(ValueError, match=r"X\[2, 0\] is nan"):
        problem(with_nan)
    with pytest.raises(ValueError, match=r"X must have shape batch_shape x \d, got \(3, 1\)"):
        problem(points[:, :1])
    # BoTorch checks boxes, the package checks arms
    with pytest.raises(ValueError, match=r"within the bounds|not one of the 40 arms"):
        problem(problem.bounds[1:] + 1.0)


@pytest.mark.parametrize(
    ("noise_std", "error", "message"),
    [
        (-0.1, ValueError, "noise_std is -0.1; it must be at least 0"),
        (float("nan"), ValueError, "noise_std is nan; it must be finite"),
        (float("inf"), ValueError, "noise_std is inf; it must be finite"),
        ([0.1, 0.2], TypeError, "noise_std must be one number"),
    ],
)
@pytest.mark.parametrize(
    "build",
    [
        lambda noise_std: BraninReward(noise_std),
        lambda noise_std: Hartmann3Reward(noise_std),
        lambda noise_std: RosenbrockReward(2, noise_std),
        lambda noise_std: ArmsProblem(ARMS, ARMS[:, 0], noise_std),
        lambda noise_std: RKHSFunction(RBFKernel(), BOX, noise_std=noise_std),
        lambda noise_std: GPDraw(RBFKernel(), BOX, noise_std=noise_std),
    ],
)
def test_bad_noise_level_is_refused(
    build: Callable[..., object], noise_std: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build(noise_std)


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        (-1, ValueError, "seed is -1; it must be at least 0"),
        (1.5, TypeError, "seed must be an integer, got 1.5"),
        (True, TypeError, "seed must be an integer, got True"),
    ],
)
@pytest.mark.parametrize(
    "build",
    [
        lambda seed: RKHSFunction(RBFKernel(), BOX, seed=seed),
        lambda seed: RKHSFunction.on_arms(RBFKernel(), ARMS, seed=seed),
        lambda seed: GPDraw(RBFKernel(), BOX, seed=seed),
        lambda seed: gp_draw_on_arms(RBFKernel(), ARMS, seed=seed),
        lambda seed: posterior_mean_of_gp_draw(RBFKernel(), ARMS, 0.1, seed=seed),
    ],
)
def test_bad_seed_is_refused(
    build: Callable[..., object], seed: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build(seed)


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        (BOX.float(), TypeError, r"bounds has dtype torch.float32.*bounds.double\(\)"),
        (BOX.T[:1], ValueError, r"bounds must have shape 2 x d .*got \(1, 2\)"),
        (BOX.flip(0), ValueError, "bounds of dimension 0 .* the lower bound must be below"),
        (BOX / 0.0, ValueError, r"bounds\[0, 0\] is -inf"),
    ],
)
def test_bad_boxes_are_refused(bounds: Tensor, error: type[Exception], message: str) -> None:
    for build in (RKHSFunction, GPDraw):
        with pytest.raises(error, match=message):
            build(RBFKernel(), bounds)


def test_bad_kernels_are_refused() -> None:
    builds: list[Callable[..., object]] = [
        lambda kernel: RKHSFunction(kernel, BOX),
        lambda kernel: RKHSFunction.on_arms(kernel, ARMS),
        lambda kernel: GPDraw(kernel, BOX),
        lambda kernel: gp_draw_on_arms(kernel, ARMS),
        lambda kernel: posterior_mean_of_gp_draw(kernel, ARMS, 0.1),
    ]
    for build in builds:
        with pytest.raises(TypeError, match=r"kernel must be a gpytorch\.kernels\.Kernel, got str"):
            build("rbf")
        with pytest.raises(ValueError, match=r"kernel must not be batched.*\(2,\)"):
            build(RBFKernel(batch_shape=torch.Size([2])))
        with pytest.raises(ValueError, match="on points with 2 columns; check its ard_num_dims"):
            build(RBFKernel(ard_num_dims=3))

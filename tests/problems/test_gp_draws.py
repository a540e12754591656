"""Draws from Gaussian process priors.

Each statistical test has a fixed seed. Its bound is 5 standard errors per checked
entry, so a correct draw would fail for fewer than one seed in 50,000.
"""

from __future__ import annotations

import math

import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

from botorch_bandits.problems import GPDraw, gp_draw_on_arms, posterior_mean_of_gp_draw


def se_kernel(lengthscale: float, scale: float) -> ScaleKernel:
    """A scaled squared exponential kernel of GPyTorch in float64."""
    kernel = ScaleKernel(RBFKernel()).double()
    # GPyTorch would round a plain Python number to float32.
    kernel.base_kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    kernel.outputscale = torch.tensor(scale, dtype=torch.float64)
    return kernel


def se_matrix(points: Tensor, lengthscale: float, scale: float) -> Tensor:
    """Its Gram matrix, from explicit differences."""
    differences = points.unsqueeze(1) - points.unsqueeze(0)
    return scale * torch.exp(-0.5 * differences.square().sum(dim=-1) / lengthscale**2)


def column(num_points: int, upper: float = 1.0) -> Tensor:
    """Equally spaced points on a line, as arms."""
    return torch.linspace(0.0, upper, num_points, dtype=torch.float64).unsqueeze(-1)


def test_draws_on_arms_have_the_mean_and_covariance_of_the_prior() -> None:
    # 100 copies of four arms, so far apart that the prior makes them independent: 20 joint draws
    # are 2000 draws of the four.
    cluster = torch.tensor([[0.0, 0.0], [0.3, 0.1], [0.5, 0.9], [2.0, 1.0]], dtype=torch.float64)
    shifts = 100.0 * torch.arange(100, dtype=torch.float64)[:, None, None]
    choices = (cluster + shifts).reshape(-1, 2)
    kernel = se_kernel(0.6, 2.0)
    draws = torch.cat(
        [gp_draw_on_arms(kernel, choices, seed=seed).values.reshape(-1, 4) for seed in range(20)]
    )
    num_draws = len(draws)
    gram = se_matrix(cluster, 0.6, 2.0)
    diagonal = gram.diagonal()
    mean_error = draws.mean(dim=0).abs() / (diagonal / num_draws).sqrt()
    assert mean_error.max().item() < 5.0
    estimate = draws.T @ draws / num_draws
    # Var(f_i f_j) = k_ii k_jj + k_ij^2 for centered Gaussian variables.
    standard_error = ((torch.outer(diagonal, diagonal) + gram.square()) / num_draws).sqrt()
    assert ((estimate - gram).abs() / standard_error).max().item() < 5.0
    # Squared Mahalanobis lengths are chi-squared: mean 4, variance 8; their squares have
    # mean 24 and variance 4 * 6 * 8 * 10 - 24^2. This checks normality beyond two moments.
    lengths = (draws * torch.linalg.solve(gram, draws.T).T).sum(dim=-1)
    assert abs(lengths.mean().item() - 4.0) < 5.0 * math.sqrt(8.0 / num_draws)
    fourth = lengths.square().mean().item()
    assert abs(fourth - 24.0) < 5.0 * math.sqrt((1920.0 - 576.0) / num_draws)


def test_thousand_smooth_arms_can_be_drawn() -> None:
    choices = column(1000)
    kernel = se_kernel(0.2, 1.0)
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.cholesky(se_matrix(choices, 0.2, 1.0))
    values = gp_draw_on_arms(kernel, choices, seed=1).values
    # A draw is as smooth as its kernel: the slope has standard deviation 1 / 0.2.
    slopes = values.diff() * 999.0
    assert slopes.abs().max().item() < 5.0 / 0.2
    assert slopes.abs().max().item() > 0.5


def test_draw_applies_the_symmetric_square_root() -> None:
    # The draw is linear in one normal vector that depends on the seed alone. With
    # the identity as Gram matrix (arms far apart) the draw is that vector itself.
    normal = gp_draw_on_arms(se_kernel(1.0, 1.0), column(6, upper=1e4), seed=9).values
    choices = column(6, upper=2.0)
    gram = se_matrix(choices, 0.4, 3.0)
    eigenvalues, eigenvectors = torch.linalg.eigh(gram)
    root = eigenvectors @ eigenvalues.sqrt().diag() @ eigenvectors.T
    values = gp_draw_on_arms(se_kernel(0.4, 3.0), choices, seed=9).values
    assert torch.allclose(values, root @ normal, rtol=0.0, atol=1e-10)


def test_any_kernel_can_be_drawn_on_arms() -> None:
    choices = column(20)
    kernels: list[Kernel] = [
        PeriodicKernel(),
        LinearKernel(),
        RBFKernel() * MaternKernel(nu=0.5) + LinearKernel(),
    ]
    for kernel in kernels:
        assert bool(torch.isfinite(gp_draw_on_arms(kernel, choices).values).all())
    # Draws of a linear kernel are lines through the origin.
    line = gp_draw_on_arms(LinearKernel(), choices, seed=2).values
    assert torch.allclose(line, line[-1] * choices.squeeze(-1), rtol=0.0, atol=1e-6)


def test_rescaling_is_affine_onto_the_unit_interval() -> None:
    choices = column(30)
    plain = gp_draw_on_arms(se_kernel(0.2, 5.0), choices, seed=3).values
    problem = gp_draw_on_arms(se_kernel(0.2, 5.0), choices, seed=3, rescale="unit_interval")
    low, high = min(plain.tolist()), max(plain.tolist())
    expected = [(value - low) / (high - low) for value in plain.tolist()]
    assert problem.values.tolist() == pytest.approx(expected, abs=1e-12)
    assert problem.values.min().item() == 0.0
    assert problem.optimal_value == 1.0


def test_bad_rescaling_is_refused() -> None:
    with pytest.raises(
        ValueError, match="rescale is 'standardize'; it must be one of None, 'unit_interval'"
    ):
        gp_draw_on_arms(RBFKernel(), column(3), rescale="standardize")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"needs rewards that differ.*rescale=None"):
        gp_draw_on_arms(RBFKernel(), column(1), rescale="unit_interval")


class NegativeKernel(Kernel):
    """Not a covariance function."""

    has_lengthscale = False

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: object) -> Tensor:
        """Returns -1 everywhere."""
        shape = x1.shape[:-1] if diag else (*x1.shape[:-1], x2.shape[-2])
        return -torch.ones(shape, dtype=x1.dtype)


def test_indefinite_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match="kernel is not positive semi-definite on choices"):
        gp_draw_on_arms(NegativeKernel(), column(4))


@pytest.mark.parametrize("ridge", [1e-3, 0.5, 20.0])
def test_posterior_mean_matches_the_dense_solution(ridge: float) -> None:
    choices = torch.rand(25, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = se_kernel(0.3, 1.7)
    draw = gp_draw_on_arms(kernel, choices, seed=5).values
    gram = se_matrix(choices, 0.3, 1.7)
    identity = torch.eye(25, dtype=torch.float64)
    alpha = torch.linalg.solve(gram + ridge * identity, draw)
    problem = posterior_mean_of_gp_draw(kernel, choices, ridge, seed=5)
    assert torch.allclose(problem.values, gram @ alpha, rtol=0.0, atol=1e-8)
    norm = math.sqrt((alpha @ gram @ alpha).item())
    assert problem.rkhs_norm == pytest.approx(norm, rel=1e-8)
    assert problem.optimal_value == problem.values.max().item()


@pytest.mark.parametrize("ridge", [0.0, -1.0, float("nan")])
def test_bad_ridge_is_refused(ridge: float) -> None:
    with pytest.raises(ValueError, match=f"ridge is {ridge}; it must be (greater than 0|finite)"):
        posterior_mean_of_gp_draw(RBFKernel(), column(3), ridge)


@pytest.mark.parametrize("nu", [None, 2.5])
def test_paths_have_the_covariance_of_the_kernel(
    nu: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The optimum is not needed here, and takes far longer to find than a path to draw.
    monkeypatch.setattr(GPDraw, "_find_optimum", lambda problem, seed: None)
    # Sites are 10 lengthscales apart, so each path holds 50 almost uncorrelated pairs of
    # points at distance h: 2000 pairs from 40 paths. Standard errors are taken between
    # paths, since the pairs of one path share its finitely many features.
    base = RBFKernel() if nu is None else MaternKernel(nu=nu)
    kernel = ScaleKernel(base).double()
    kernel.base_kernel.lengthscale = 0.5
    kernel.outputscale = 3.0
    distance = 0.4
    bounds = torch.tensor([[0.0], [250.0]], dtype=torch.float64)
    sites = torch.arange(50, dtype=torch.float64).unsqueeze(-1) * 5.0
    left, right = [], []
    for seed in range(40):
        problem = GPDraw(kernel, bounds, seed=seed, num_features=256)
        left.append(problem(sites))
        right.append(problem(sites + distance))
    first, second = torch.stack(left), torch.stack(right)
    ratio = distance / 0.5
    if nu is None:
        correlation = math.exp(-0.5 * ratio**2)
    else:
        root = math.sqrt(5.0) * ratio
        correlation = (1.0 + root + root**2 / 3.0) * math.exp(-root)
    for product, expected in [
        (first, 0.0),
        (first * first, 3.0),
        (second * second, 3.0),
        (first * second, 3.0 * correlation),
    ]:
        of_path = product.mean(dim=-1)
        standard_error = of_path.std().item() / math.sqrt(of_path.numel())
        assert abs(of_path.mean().item() - expected) < 5.0 * standard_error
        assert standard_error < 0.2


def test_path_is_a_smooth_function_with_its_optimum() -> None:
    bounds = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    grid = column(2001, upper=2.0)
    for seed in range(3):
        problem = GPDraw(se_kernel(0.2, 1.0), bounds, seed=seed)
        best = problem(grid).max().item()
        assert best <= problem.optimal_value + 1e-12
        assert problem.optimal_value - best < 1e-4
    with_other_seed = GPDraw(se_kernel(0.2, 1.0), bounds, seed=7)
    assert not torch.allclose(problem(grid), with_other_seed(grid))


def test_path_uses_the_columns_the_kernel_is_active_on() -> None:
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    problem = GPDraw(MaternKernel(nu=2.5, active_dims=(1,)), bounds, num_features=64)
    points = torch.tensor([[0.1, 0.4], [0.9, 0.4], [0.1, 0.8]], dtype=torch.float64)
    rewards = problem(points)
    assert rewards[0].item() == pytest.approx(rewards[1].item(), abs=1e-12)
    assert abs((rewards[0] - rewards[2]).item()) > 1e-6


def test_kernel_of_a_path_is_copied() -> None:
    kernel = se_kernel(0.2, 1.0)
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    problem = GPDraw(kernel, bounds, num_features=64)
    before = problem(column(5))
    kernel.outputscale = 100.0
    kernel.base_kernel.lengthscale = 3.0
    assert torch.equal(problem(column(5)), before)


def test_kernels_without_features_are_refused() -> None:
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    for kernel in (LinearKernel(), PeriodicKernel(), RBFKernel() + MaternKernel()):
        before = torch.get_rng_state()
        with pytest.raises(UnsupportedError, match="with gp_draw_on_arms, which takes any kernel"):
            GPDraw(kernel, bounds)
        assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("num_features", "error", "message"),
    [
        (0, ValueError, "num_features is 0; it must be at least 2"),
        (2.0, TypeError, "num_features must be an integer, got 2.0"),
        (7, ValueError, r"num_features must be even, .* got 7; pass 8"),
    ],
)
def test_bad_number_of_features_is_refused(
    num_features: int, error: type[Exception], message: str
) -> None:
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    with pytest.raises(error, match=message):
        GPDraw(RBFKernel(), bounds, num_features=num_features)

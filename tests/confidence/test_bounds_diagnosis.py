"""What data refute, against dense computations from the definition of the set, and on draws."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel, ScaleKernel
from models.textbook import double
from torch import Tensor

from botorch_bandits import BanditGP, DMMUpperConfidenceBound, diagnose_bounds
from botorch_bandits.confidence import UnreadablePriorError

DTYPE = torch.float64


def rows(seed: int, n: int = 14, noise_std: float = 0.2) -> tuple[Tensor, Tensor, Tensor, float]:
    """Return inputs, outcomes, the kernel matrix, and the norm of the function behind them."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 1, generator=generator, dtype=DTYPE)
    centers = torch.rand(5, 1, generator=generator, dtype=DTYPE)
    weights = torch.randn(5, generator=generator, dtype=DTYPE)
    norm = float((weights @ gram(centers, centers) @ weights).sqrt())
    f = gram(X, centers) @ weights
    Y = f + noise_std * torch.randn(n, generator=generator, dtype=DTYPE)
    return X, Y, gram(X, X), norm


def gram(A: Tensor, B: Tensor, lengthscale: float = 0.2) -> Tensor:
    return torch.exp(-0.5 * (torch.cdist(A, B) / lengthscale) ** 2)


def model_of(X: Tensor, Y: Tensor, noise: float = 0.04) -> BanditGP:
    kernel = RBFKernel().double()
    kernel.lengthscale = double(0.2)
    return BanditGP(X, Y.unsqueeze(-1), kernel=kernel, noise=noise)


def radius(K: Tensor, Y: Tensor, lam: float, R: float, delta: float) -> float:
    A = K + lam * torch.eye(len(Y), dtype=DTYPE)
    fit = lam * float(Y @ torch.linalg.solve(A, Y))
    return fit + R**2 * float(torch.logdet(A / lam)) + 2.0 * R**2 * math.log(1.0 / delta)


@pytest.mark.parametrize("R", [0.01, 0.1, 0.2])
@pytest.mark.parametrize("seed", range(3))
def test_the_smallest_norm_is_that_of_the_smoothest_function_in_the_ball(
    seed: int, R: float
) -> None:
    """Of all functions within the radius of the data, the one with the least norm, by bisection."""
    X, Y, K, _ = rows(seed)
    found = diagnose_bounds(model_of(X, Y), noise_bound=R, delta=0.05)
    r = radius(K, Y, 0.04, R, 0.05)

    def smooth(a: float) -> tuple[float, float]:
        alpha = torch.linalg.solve(K + a * torch.eye(len(Y), dtype=DTYPE), Y)
        return float(((K @ alpha - Y) ** 2).sum()), float(alpha @ K @ alpha)

    low, high = 1e-8, 1e8
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if smooth(middle)[0] < r else (low, middle)
    least = math.sqrt(smooth(low)[1]) if float((Y**2).sum()) > r else 0.0
    assert found.rkhs_bound <= least * (1.0 + 1e-8)
    assert found.rkhs_bound >= 0.9 * least  # a grid of ridges refutes a little less


def test_norm_and_noise_against_the_formula_on_the_same_ridges() -> None:
    X, Y, K, _ = rows(5)
    model, delta, R = model_of(X, Y), 0.1, 0.03
    found = diagnose_bounds(model, noise_bound=R, delta=delta)
    eye = torch.eye(len(Y), dtype=DTYPE)
    low, high = 1e-2 * 0.04, 1e2 * (0.04 + float(K.trace()))
    ridges = [low * (high / low) ** (i / 46.0) for i in range(47)] + [0.04]

    def least_norm(R: float) -> float:
        r = radius(K, Y, 0.04, R, delta)
        fits = (float(Y @ torch.linalg.solve(K + a * eye, Y)) - r / a for a in ridges)
        return math.sqrt(max(*fits, 0.0))

    assert found.rkhs_bound == pytest.approx(least_norm(R), rel=1e-9)
    assert len(found.rkhs_bound_by_noise) == 5
    for other, norm in found.rkhs_bound_by_noise.items():
        assert norm == pytest.approx(least_norm(other), rel=1e-8)
    acquisition = DMMUpperConfidenceBound(model, rkhs_bound=1e6, noise_bound=R, delta=delta)
    assert found.rkhs_bound == pytest.approx(acquisition.smallest_rkhs_bound, rel=1e-9)
    assert [B / found.rkhs_bound for B in found.noise_bound_by_norm] == pytest.approx([1, 2, 4])
    for norm, noise in found.noise_bound_by_norm.items():
        assert noise <= R * (1.0 + 1e-6)
        if noise > 0.0:  # the two are inverses of each other
            assert least_norm(noise) == pytest.approx(norm, rel=1e-6)
        else:
            assert least_norm(0.0) <= norm


def test_the_regret_bound_is_the_textbooks() -> None:
    X, Y, K, _ = rows(1, n=20)
    R, delta, lam = 0.2, 0.05, 0.04
    found = diagnose_bounds(model_of(X, Y), noise_bound=R, delta=delta)
    gain = 0.5 * float(torch.logdet(torch.eye(20, dtype=DTYPE) + K / lam))
    assert found.information_gain == pytest.approx(gain, rel=1e-10)
    for B, bound in found.regret_bounds.items():
        width = B + R / math.sqrt(lam) * math.sqrt(2.0 * (gain - math.log(delta)))
        textbook = 2.0 * width * math.sqrt(20 * 2.0 * gain / math.log(1.0 + 1.0 / lam))
        assert bound == pytest.approx(min(textbook, 2.0 * B * 20), rel=1e-9)


def test_bounds_that_hold_are_refuted_no_more_often_than_the_level() -> None:
    refuted = 0
    for seed in range(100, 160):
        X, Y, _, norm = rows(seed)
        found = diagnose_bounds(model_of(X, Y), noise_bound=0.2, delta=0.05, factors=(1.0,))
        refuted += found.refutes(norm)
        assert not found.refutes(1e9)
    assert refuted <= 3
    X, Y, _, norm = rows(0, n=40, noise_std=1e-3)
    assert diagnose_bounds(model_of(X, Y, 1e-6)).refutes(0.3 * norm)


def test_units_are_those_of_the_outcomes() -> None:
    """A scaled kernel and a prior mean change nothing but the scale."""
    X, Y, _, _ = rows(3)
    plain = diagnose_bounds(model_of(X, Y))
    assert plain.noise_bound == pytest.approx(0.2)
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = double(9.0)
    kernel.base_kernel.lengthscale = double(0.2)
    model = BanditGP(X, 3.0 * Y.unsqueeze(-1) + 7.0, kernel=kernel, noise=0.36, prior_mean=7.0)
    scaled = diagnose_bounds(model)
    assert scaled.rkhs_bound == pytest.approx(3.0 * plain.rkhs_bound, rel=1e-8)
    assert scaled.noise_bound == pytest.approx(3.0 * plain.noise_bound, rel=1e-9)
    assert list(scaled.regret_bounds.values()) == pytest.approx(
        [3.0 * bound for bound in plain.regret_bounds.values()], rel=1e-8
    )


def test_rows_with_noise_variances_of_their_own_say_what_is_counted() -> None:
    """Weights below 1 are no numbers of outcomes: the diagnosis says what they add up to."""
    X, Y, K, _ = rows(4)
    weights = torch.linspace(0.1, 0.3, 14, dtype=DTYPE)
    kernel = model_of(X, Y).covar_module
    model = BanditGP(X, Y.unsqueeze(-1), kernel=kernel, noise=0.04, repeats=weights)
    found = diagnose_bounds(model)
    root = weights.sqrt()
    K, y = root.unsqueeze(-1) * K * root, root * Y
    r = radius(K, y, 0.04, 0.2, 0.05)
    eye = torch.eye(14, dtype=DTYPE)
    dense = [
        float(y @ torch.linalg.solve(K + a * eye, y)) - r / a
        for a in torch.logspace(-4, 4, 400, dtype=DTYPE).tolist()
    ]
    assert found.rkhs_bound == pytest.approx(math.sqrt(max(*dense, 0.0)), rel=0.05)
    assert found.num_rows == 3  # 2.8, rounded up
    (caveat,) = found.caveats
    assert "they weigh as much as 2.8 outcomes with the noise of the model" in caveat
    assert "R >= -0" not in str(diagnose_bounds(model_of(X, 0.0 * Y)))


def test_bad_arguments() -> None:
    X, Y, _, _ = rows(0)
    with pytest.raises(ValueError, match="has no data"):
        diagnose_bounds(model_of(X[:0], Y[:0]))
    with pytest.raises(ValueError, match="2 outputs"):
        diagnose_bounds(SingleTaskGP(X, torch.stack([Y, Y], -1)))
    with pytest.raises(TypeError, match=r"None\. Pass a BoTorch"):
        diagnose_bounds(None)
    recipe = BanditGP.with_kernel(RBFKernel(), noise=0.04)
    listed = BanditGP.with_candidates([recipe, recipe])(X, Y.unsqueeze(-1))
    with pytest.raises(ValueError, match=r"diagnose each .* model\.member\(0\)"):
        diagnose_bounds(listed)
    assert diagnose_bounds(listed.member(0)).num_rows == 14
    with pytest.raises(UnreadablePriorError, match="differs from row"):
        diagnose_bounds(SingleTaskGP(X, Y.unsqueeze(-1), torch.rand_like(Y).unsqueeze(-1) + 0.1))
    for name, options in (
        ("noise_bound", {"noise_bound": -1.0}),
        ("delta", {"delta": 1.5}),
        ("factor", {"factors": (0.0,)}),
    ):
        with pytest.raises(ValueError, match=name):
            diagnose_bounds(model_of(X, Y), **options)

"""Bounds on the gain from designs: on arms against brute force, on boxes against any points."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from models.textbook import double
from torch import Tensor

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.confidence import (
    BoxGain,
    DesignGain,
    GreedyGain,
    WaterFillingGain,
)
from botorch_bandits.fingerprints import fingerprint


def uniform(rows: int, dim: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, dim, dtype=torch.float64, generator=generator)


def gain(matrix: Tensor, lam: float) -> float:
    identity = torch.eye(len(matrix), dtype=torch.float64)
    return 0.5 * float(torch.linalg.slogdet(identity + matrix / lam)[1])


def rbf(lengthscale: float | list[float], scale: float = 1.0) -> Any:
    dims = len(lengthscale) if isinstance(lengthscale, list) else None
    kernel = ScaleKernel(RBFKernel(ard_num_dims=dims)).double()
    kernel.base_kernel.lengthscale = double(lengthscale)
    kernel.outputscale = double(scale)
    return kernel


def matern(nu: float, lengthscale: float) -> Any:
    kernel = MaternKernel(nu=nu).double()
    kernel.lengthscale = double(lengthscale)
    return kernel


KERNELS: dict[str, tuple[Any, int]] = {
    "rbf": (rbf(0.3), 1),
    "scaled ard rbf": (rbf([0.4, 1.0], 2.5), 2),
    "matern 5/2": (matern(2.5, 0.6), 2),
    "matern 1/2": (matern(0.5, 0.5), 1),
    "product": (
        RBFKernel(active_dims=(0,)).double() * MaternKernel(nu=1.5, active_dims=(1,)).double(),
        2,
    ),
}


# --- arms -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.01, 1.0])
@pytest.mark.parametrize("size", [1, 7, 60, 2000])
def test_on_arms_it_lies_between_the_greedy_set_and_the_spectrum(lam: float, size: int) -> None:
    K = rbf(0.2, 1.7)(uniform(60, 1, 3)).to_dense().detach()
    greedy, spectrum = GreedyGain(K, lam), WaterFillingGain(K, lam)
    bound = DesignGain(K, lam)(size)
    assert greedy.greedy_gain(size) - 1e-9 <= bound <= spectrum(size) + 1e-9
    assert bound <= 0.5 * size * math.log1p(1.7 / lam) + 1e-9
    if size >= 60:
        assert bound <= 1.03 * greedy.greedy_gain(size)
        assert bound < 0.9 * spectrum(size)


# --- boxes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("lam", [0.02, 1.0])
def test_no_points_of_the_box_have_a_larger_gain(name: str, lam: float) -> None:
    kernel, dim = KERNELS[name]
    low, high = torch.full((dim,), -1.0).double(), torch.full((dim,), 0.5).double()
    bound = BoxGain(torch.stack([low, high]), kernel, lam, max_points=150)
    many = low + (high - low) * uniform(300, dim, 6)
    matrix = kernel(many).to_dense().detach()
    greedy = GreedyGain(matrix, lam)
    for size in (1, 5, 40, 250):
        points = low + (high - low) * uniform(size, dim, size)
        spread = gain(kernel(points).to_dense().detach(), lam)
        corners = gain(kernel((points > -0.25).double() * 1.5 - 1.0).to_dense().detach(), lam)
        most = 0.5 * size * math.log1p(float(matrix[0, 0]) / lam)
        assert max(spread, corners, greedy.greedy_gain(size)) <= bound(size) + 1e-9
        assert bound(size) <= most + 1e-9


def test_it_is_tight_on_a_line_and_useful_on_a_square() -> None:
    line = double([[0.0], [1.0]])
    greedy = GreedyGain(rbf(0.2)(uniform(400, 1, 8)).to_dense().detach(), 0.01)
    assert BoxGain(line, rbf(0.2), 0.01)(500) <= 1.02 * greedy.greedy_gain(500)
    square = double([[0.0, 0.0], [1.0, 1.0]])
    greedy = GreedyGain(rbf(0.3)(uniform(400, 2, 8)).to_dense().detach(), 1.0)
    assert BoxGain(square, rbf(0.3), 1.0)(500) <= 1.15 * greedy.greedy_gain(500)


def test_bad_boxes_and_kernels_are_refused() -> None:
    bounds = double([[0.0], [1.0]])
    with pytest.raises(ValueError, match=r"kernel is a LinearKernel.*DesignGain\.on"):
        BoxGain(bounds, LinearKernel().double(), 1.0)
    with pytest.raises(ValueError, match=r"bounds is \[\[1\.0\], \[0\.0\]\]"):
        BoxGain(bounds.flip(0), rbf(0.3), 1.0)
    with pytest.raises(TypeError, match="bounds"):
        BoxGain(bounds.float(), rbf(0.3), 1.0)
    with pytest.raises(ValueError, match="lam"):
        BoxGain(bounds, rbf(0.3), 0.0)
    with pytest.raises(ValueError, match="max_points"):
        BoxGain(bounds, rbf(0.3), 1.0, max_points=1)


# --- in loops ---------------------------------------------------------------------------------

UNIT = Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)


def played(domain: Any, acquisition: Any, contexts: int = 0) -> BanditLoop:
    recipe = BanditGP.with_kernel(rbf(0.3), noise=1.0)
    loop = BanditLoop(domain, recipe, acquisition, num_initial=2, context_dim=contexts)
    for number in range(4):
        query = loop.ask(context=torch.tensor([0.05 * number]).double()) if contexts else loop.ask()
        loop.tell(query.id, 0.5)
    return loop


def theorem_3(bound: BoxGain) -> Any:
    return GPUpperConfidenceBound.with_options(rkhs_bound=1.0, information_gain=bound, delta=0.1)


def test_theorem_3_holds_on_a_box() -> None:
    bound = BoxGain(UNIT.bounds, rbf(0.3), 1.0)
    promised = played(UNIT, theorem_3(bound)).guarantee()
    assert promised.holds, promised.explain(10_000)
    assert "a box that contains all points" in promised.explain(10_000)


@pytest.mark.parametrize(
    ("domain", "low", "high", "holds"),
    [
        (UNIT, 0.1, 1.0, False),
        (UNIT, -1.0, 1.0, True),
        (Arms([[0.2], [0.9]]), 0.0, 1.0, True),
        (Arms([[0.2], [1.9]]), 0.0, 1.0, False),
    ],
)
def test_a_bound_for_another_box_is_a_gap(
    domain: Any, low: float, high: float, holds: bool
) -> None:
    bound = BoxGain(double([[low], [high]]), rbf(0.3), 1.0)
    promised = played(domain, theorem_3(bound)).guarantee()
    assert promised.holds is holds
    assert ("the gain bound is for another box" in promised.explain(10_000)) is not holds


def test_contexts_are_part_of_the_box() -> None:
    both = double([[0.0, 0.0], [0.3, 1.0]])
    for bounds, holds in ((both, True), (both[:, 1:], False), (0.5 * both, False)):
        bound = BoxGain(bounds, rbf(0.3), 1.0)
        options = ImprovedUpperConfidenceBound.with_options(
            rkhs_bound=1.0, noise_bound=0.1, information_gain=bound
        )
        assert played(UNIT, options, contexts=1).guarantee().holds is holds


def test_a_smaller_noise_than_the_bounds_is_a_gap() -> None:
    bound = BoxGain(UNIT.bounds, rbf(0.3), 2.0)
    assert "was made with lam = 2" in str(played(UNIT, theorem_3(bound)).guarantee())


def test_what_was_computed_is_no_setting() -> None:
    bounds = double([[0.0], [1.0]])
    used = BoxGain(bounds, rbf(0.3), 1.0)
    before = fingerprint({"gain": used})
    assert used(10) == BoxGain(bounds, rbf(0.3), 1.0)(10)
    used(300)
    assert used(10) == BoxGain(bounds, rbf(0.3), 1.0)(10)  # whatever was asked between
    assert fingerprint({"gain": used}) == before
    assert fingerprint({"gain": BoxGain(bounds, rbf(0.3), 2.0)}) != before
    assert fingerprint({"gain": BoxGain(2 * bounds, rbf(0.3), 1.0)}) != before

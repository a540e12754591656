"""Kernels, models and numbers of rows that gave wrong results are refused, each by its name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import Kernel, MaternKernel, ProductKernel, RBFKernel, ScaleKernel

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    ExponentialWeights,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.checks import check_kernel_columns
from botorch_bandits.core.priors import prior_of

WIDTH = GPUpperConfidenceBound.with_options(width=2.0)
KNOWN = {"rkhs_bound": 1.0, "noise_bound": 0.1}
BOX = Box([[0.0], [1.0]])
CUBE = Box([[0.0] * 3, [1.0] * 3])
POINTS = torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1)


def a_loop(domain: Any = BOX, kernel: Kernel | None = None, **settings: Any) -> BanditLoop:
    model = BanditGP.with_kernel(MaternKernel(nu=2.5) if kernel is None else kernel, noise=0.01)
    return BanditLoop(domain, model, **{"acquisition": WIDTH, **settings})


class Cone(Kernel):
    """``1 - 4 |x - z|``, which is no covariance: its smallest eigenvalue on the arms is -3.56."""

    has_lengthscale = True

    def forward(self, x1: Any, x2: Any, diag: bool = False, **params: Any) -> torch.Tensor:
        if diag:
            return x1.new_ones(x1.shape[:-1])
        return 1.0 - 4.0 * (x1.unsqueeze(-2) - x2.unsqueeze(-3)).abs().sum(-1)


class Lopsided(Cone):
    """``exp(-|x - 2 z|)``, which depends on the order of its arguments."""

    def forward(self, x1: Any, x2: Any, diag: bool = False, **params: Any) -> torch.Tensor:
        if diag:
            return x1.new_ones(x1.shape[:-1])
        return (-(x1.unsqueeze(-2) - 2.0 * x2.unsqueeze(-3)).abs().sum(-1)).exp()


class Endless(Cone):
    """Infinite where the first coordinate is 0."""

    def forward(self, x1: Any, x2: Any, diag: bool = False, **params: Any) -> torch.Tensor:
        covariance = 1.0 / (x1 * x2.mT)
        return covariance.diagonal(dim1=-1, dim2=-2) if diag else covariance


@pytest.mark.parametrize("rule", [WIDTH, GPThompsonSampling.with_options(**KNOWN)])
@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            Cone(),
            r"kernel \(Cone\) on the arms is not positive semi-definite.* is -3.56",
        ),
        (ScaleKernel(Cone()), r"kernel \(ScaleKernel\) on the arms is not positive semi"),
        (Lopsided(), r"kernel \(Lopsided\) on the arms is not symmetric"),
        (Endless(), r"kernel \(Endless\) on the arms\[0.*\] is inf"),
    ],
)
def test_a_kernel_on_arms_is_a_covariance(kernel: Kernel, message: str, rule: Any) -> None:
    """Bounds and draws came out of negative variances, and nothing said so."""
    with pytest.raises(ValueError, match=message):
        a_loop(Arms(POINTS), kernel, acquisition=rule).ask()


def test_of_many_arms_some_are_looked_at() -> None:
    many = torch.linspace(0.0, 1.0, 5000, dtype=torch.float64).unsqueeze(-1)
    with pytest.raises(ValueError, match="not positive semi-definite"):
        prior_of(Cone().double(), many)
    sound = (RBFKernel() + MaternKernel(nu=0.5)).double()
    assert prior_of(sound, many).num_points == 5000


@pytest.mark.parametrize("num_arms", [2, 40, 400])
def test_kernels_of_gpytorch_are_covariances(num_arms: int) -> None:
    """Rounding errors of smooth kernels on close arms are no negative eigenvalues."""
    points = torch.linspace(0.0, 1e-3, num_arms, dtype=torch.float64).unsqueeze(-1)
    for kernel in (
        RBFKernel() + RBFKernel(),
        ScaleKernel(MaternKernel(nu=0.5)) * RBFKernel(),
        ScaleKernel(RBFKernel() + MaternKernel(nu=1.5)),
    ):
        assert prior_of(kernel.double(), points).num_points == num_arms


WRONG_COLUMNS = {
    "alone": (MaternKernel(nu=2.5, ard_num_dims=2), "MaternKernel with ard_num_dims=2 on 3 col"),
    "scaled": (ScaleKernel(RBFKernel(ard_num_dims=2)), "RBFKernel with ard_num_dims=2 on 3 col"),
    "one for all": (ScaleKernel(RBFKernel(ard_num_dims=1)), "ard_num_dims=1 on 3 columns"),
    "of a sum": (RBFKernel() + RBFKernel(ard_num_dims=4), "ard_num_dims=4 on 3 columns"),
    "of a product": (
        ProductKernel(
            RBFKernel(active_dims=[0]), ScaleKernel(RBFKernel(ard_num_dims=3, active_dims=[1, 2]))
        ),
        "ard_num_dims=3 on 2 columns",
    ),
    "columns that are not there": (
        ScaleKernel(RBFKernel(active_dims=[0, 3])),
        r"active_dims=\(0, 3\), but the inputs have 3 columns",
    ),
}


@pytest.mark.parametrize("case", WRONG_COLUMNS)
def test_lengthscales_are_those_of_the_columns(case: str) -> None:
    """Inside a ``ScaleKernel`` they were broadcast, so that the kernel was another one."""
    kernel, message = WRONG_COLUMNS[case]
    arms = Arms(torch.rand(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    for domain in (CUBE, arms, Box([[0.0], [1.0]])):
        settings = {} if domain.dim == 3 else {"context_dim": 2}
        with pytest.raises(ValueError, match=message):
            a_loop(domain, kernel, **settings)
    with pytest.raises(ValueError, match=message):
        a_loop(CUBE, kernel, forgetting=TimeVaryingKernel(0.1))


def test_right_columns_pass() -> None:
    parts = RBFKernel(active_dims=[0]) * ScaleKernel(RBFKernel(ard_num_dims=2, active_dims=[1, 2]))
    check_kernel_columns(parts, 3)
    check_kernel_columns(ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=3)), 3)
    assert a_loop(BOX, parts, context_dim=2).ask([0.1, 0.2]).id == 0


@pytest.mark.parametrize(
    "settings",
    [{}, {"model": None}, {"forgetting": ExponentialWeights(0.9)}],
    ids=["recipe", "default", "weights"],
)
def test_too_many_distinct_rows_are_refused(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exact model of them would not end; a window and a model of one's own go on."""
    monkeypatch.setattr("botorch_bandits.loop.chooser.MOST_ROWS", 5)

    def attached(places: Any, **options: Any) -> BanditLoop:
        model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.3)
        loop = BanditLoop(BOX, **{"model": model, "acquisition": WIDTH, **options})
        for place in places:
            loop.attach([place], place)
        return loop

    loop = attached([0.0, 0.2, 0.2, 0.4, 0.4, 0.6], **settings)
    loop.tell(loop.ask().id, 0.5)  # four distinct points, and then five
    with pytest.raises(ValueError, match=r"5 distinct.*model=.*SingleTaskVariationalGP"):
        loop.ask()
    assert (loop.history.num_queries, loop.history.num_arrived) == (7, 7)
    places = [i / 10 for i in range(9)]
    attached(places, forgetting=SlidingWindow(4)).ask()
    attached(places, model=SingleTaskGP).ask()

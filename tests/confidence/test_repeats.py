"""How often points are played: variances by dense algebra, regret and choices by simulation."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Standardize
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from models.textbook import double, uniform

from botorch_bandits import BanditGP
from botorch_bandits.confidence import num_plays, num_plays_at


def rows(seed: int, n: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    stream = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, dtype=torch.float64, generator=stream)
    return X, torch.randn(n, 1, dtype=torch.float64, generator=stream)


@pytest.mark.parametrize("factor", [1.05, 1.5, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_last_play_has_the_promised_deviation_and_the_next_would_not(
    seed: int, factor: float
) -> None:
    """Against dense conditioning on all plays before the last one."""
    X, Y = rows(seed)
    noise = 0.07
    kernel = MaternKernel(nu=2.5).double()
    model = BanditGP(X, Y, kernel=kernel, noise=noise)
    x = uniform(2, seed=99 + seed)

    def variance(num_played: int) -> float:
        Z = torch.cat([X, x.expand(num_played, -1)])
        K = kernel(Z).to_dense().detach() + noise * torch.eye(len(Z), dtype=torch.float64)
        k = kernel(x[None], Z).to_dense().detach()
        return float(1.0 - k @ torch.linalg.solve(K, k.mT))

    plays = num_plays_at(model, x, factor)
    chosen = variance(0)
    assert plays == num_plays(math.sqrt(chosen), noise, factor)
    assert chosen <= factor**2 * variance(plays - 1) * (1.0 + 1e-9)
    assert chosen > factor**2 * variance(plays) * (1.0 - 1e-9)
    gain = 0.5 * math.log1p(plays * chosen / noise)
    assert gain > math.log(factor)


def test_units_are_those_of_outcomes() -> None:
    X, Y = rows(1)
    model = SingleTaskGP(X, 100.0 * Y, outcome_transform=Standardize(1)).eval()
    x = double([0.3, 0.4])
    scale = float((100.0 * Y).std())
    noise = float(model.likelihood.noise) * scale**2
    deviation = float(model.posterior(x[None]).variance.detach().sqrt())
    assert num_plays_at(model, x, 1.5) == num_plays(deviation, noise, 1.5)


@pytest.mark.parametrize("seed", range(3))
def test_of_a_list_the_survivor_that_allows_least_counts(seed: int) -> None:
    """Against dense algebra; the scale of an entry is that of its noise, too."""
    X, Y = rows(seed, n=14)
    x = uniform(2, seed=50 + seed)
    entries = [(0.1, 1.0, 0.1), (0.8, 4.0, 0.3), (0.8, 1.0, 0.2), (0.3, 9.0, 0.05), (2.0, 0.1, 1.0)]
    priors, ratios = [], []
    for lengthscale, scale, noise in entries:
        kernel = ScaleKernel(MaternKernel(nu=2.5)).double()
        kernel.outputscale = double(scale)
        kernel.base_kernel.lengthscale = double(lengthscale)
        priors.append(BanditGP.with_kernel(kernel, noise=noise))
        r, r_x = (
            math.sqrt(5.0) * (Z[:, None] - X).norm(dim=-1) / lengthscale for Z in (X, x[None])
        )
        K, k = (scale * (1.0 + d + d.square() / 3.0) * (-d).exp() for d in (r, r_x))
        K = K + noise * torch.eye(len(X), dtype=torch.float64)
        ratios.append(noise / float(scale - k @ torch.linalg.solve(K, k.mT)))
    model = BanditGP.with_candidates(priors)(X, Y)
    for level in (1e-12, 0.05, 0.9):
        survivors = model.evidence.survivors(level)
        least = min(r for r, counts in zip(ratios, survivors, strict=True) if counts)
        ratio = model.least_noise_ratio(x, survivors)
        assert ratio == pytest.approx(least, rel=1e-8)
        plays = num_plays_at(model, x, 1.5, level=level)
        assert plays == 1 + math.floor((1.5**2 - 1.0) * least)
    assert not model.evidence.survivors(0.9).all()


@pytest.mark.parametrize("factor", [1.1, 1.5, 2.0])
def test_what_discretization_adds_is_bounded_by_the_worst_run_lengths(factor: float) -> None:
    """Each run as long as it can be, with the least variance that rounds before can leave."""
    lam, start, added = 1.0, 1, 0.0
    for _ in range(200):
        plays = num_plays(math.sqrt(lam / (lam + start - 1)), lam, factor)
        added += plays / start**2
        start += plays
    assert added <= (factor**2 + 1.0) ** 2 * math.pi**2 / 6.0


def test_what_cannot_be_counted_is_refused() -> None:
    X, Y = rows(2)
    model = BanditGP(X, Y, kernel=RBFKernel(), noise=0.1)
    for factor in (1.0, 0.5, math.nan, math.inf):
        with pytest.raises(ValueError, match="factor"):
            num_plays(0.1, 0.1, factor)
    with pytest.raises(ValueError, match="standard_deviation"):
        num_plays(-1.0, 0.1, 2.0)
    with pytest.raises(ValueError, match="noise"):
        num_plays(1.0, 0.0, 2.0)
    assert num_plays(0.0, 0.1, 2.0) == 2**53
    with pytest.raises(ValueError, match="outputs"):
        num_plays_at(ModelListGP(model, model), X[0], 2.0)
    levels = SingleTaskGP(X, Y, train_Yvar=torch.full_like(Y, 0.1))
    with pytest.raises(ValueError, match="FixedNoise"):
        num_plays_at(levels, X[0], 2.0)

"""Models that forget, against the textbook formulas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.models.transforms.input import Normalize
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits import BanditGP, ExponentialWeights, SlidingWindow, TimeVaryingKernel
from botorch_bandits.confidence import PriorSummary
from botorch_bandits.core.kernels import TimeDecayKernel
from tests.models.textbook import double, matern, posterior, squared_exponential, uniform

from .of_rows import model_of_rounds, with_round

LAM, LENGTHSCALE, SCALE, PRIOR_MEAN = 0.05, 0.4, 1.7, 0.3
EXACT = {"atol": 1e-8, "rtol": 0.0}


def recipe(**options: Any) -> Any:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = double([LENGTHSCALE, SCALE])
    return BanditGP.with_kernel(kernel, noise=LAM, prior_mean=PRIOR_MEAN, **options)


def data(n: int = 30, num_distinct: int | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs, outcomes and rounds, which have gaps and are not in order, and test points."""
    stream = torch.Generator().manual_seed(n)
    X = uniform(num_distinct or n, 2, seed=n)
    if num_distinct is not None:
        X = X[torch.randint(num_distinct, (n,), generator=stream)]
    rounds = torch.randperm(n + 8, generator=stream)[:n] + 1
    return X, uniform(n, 1, seed=1) - 0.5, rounds, uniform(7, 2, seed=2)


def expected(
    forgetting: Any,
    kernel: Any,
    X: Tensor,
    y: Tensor,
    rounds: Tensor,
    now: int,
    test: Tensor,
    noise: Tensor | float = LAM,
) -> tuple[Tensor, Tensor, float]:
    """Mean, covariance and gain; rounds are columns in front, of which a kernel may look at."""
    noise = torch.as_tensor(noise, dtype=torch.float64).expand(len(X))
    if isinstance(forgetting, SlidingWindow):
        kept = (now - rounds) <= forgetting.length
        X, y, rounds, noise = X[kept], y[kept], rounds[kept], noise[kept]
    elif isinstance(forgetting, ExponentialWeights):
        noise = noise / forgetting.discount ** (now - 1 - rounds).double()

    def over_time(A: Tensor, C: Tensor) -> Tensor:
        values: Tensor = kernel(A[:, 1:], C[:, 1:])
        if isinstance(forgetting, TimeVaryingKernel):
            values = values * (1 - forgetting.rate) ** ((A[:, None, 0] - C[None, :, 0]).abs() / 2)
        return values

    rows = torch.cat([rounds.unsqueeze(-1).double(), X], dim=-1)
    mean, covariance = posterior(over_time, rows, y - PRIOR_MEAN, noise, with_round(test, now))
    root = noise.rsqrt()
    scaled = root.unsqueeze(-1) * over_time(rows, rows) * root
    gain = 0.5 * float(torch.logdet(torch.eye(len(rows), dtype=torch.float64) + scaled))
    return PRIOR_MEAN + mean, covariance, gain


KINDS: list[Any] = [
    SlidingWindow(10),
    ExponentialWeights(0.6),
    ExponentialWeights(0.97),
    TimeVaryingKernel(0.02),
    TimeVaryingKernel(0.5),
]


@pytest.mark.parametrize("num_distinct", [None, 6])
@pytest.mark.parametrize("forgetting", KINDS, ids=str)
def test_means_covariances_and_gains_are_the_textbooks(
    forgetting: Any, num_distinct: int | None
) -> None:
    X, Y, rounds, test = data(num_distinct=num_distinct)
    # where points repeat, each row has its own noise
    noise = LAM if num_distinct is None else LAM / torch.exp(5.0 * uniform(30, seed=5) - 1.0)
    told = None if num_distinct is None else noise
    model = model_of_rounds(recipe(), forgetting, X, Y, rounds, 40, told)
    kernel = squared_exponential(LENGTHSCALE, SCALE)
    mean, covariance, gain = expected(forgetting, kernel, X, Y[:, 0], rounds, 40, test, noise)
    at = with_round(test, 40) if forgetting.drift_rate else test
    joint, single = model.posterior(at), model.posterior(at.unsqueeze(-2))
    assert torch.allclose(joint.mean.squeeze(-1), mean, **EXACT)
    assert torch.allclose(joint.distribution.covariance_matrix, covariance, **EXACT)
    assert torch.allclose(single.mean.reshape(-1), mean, **EXACT)
    assert torch.allclose(single.variance.reshape(-1), covariance.diagonal(), **EXACT)
    # the gain is that of the weighted observations, and lam is the recipe's
    summary = PriorSummary(model)
    assert float(summary.realized_information_gain()) == pytest.approx(gain, abs=1e-8)
    assert summary.smallest_lam() == pytest.approx(LAM / SCALE, rel=1e-12)
    # an input transform acts on the point alone
    normalize = Normalize(2, bounds=double([[0.0, 0.0], [4.0, 0.5]]))
    places = [test, normalize(test)]
    if forgetting.drift_rate is not None:
        places = [with_round(each, 40) for each in places]
    given = recipe(input_transform=normalize), recipe()
    moments = [
        model_of_rounds(each, forgetting, x, Y, rounds, 40).posterior(place)
        for each, x, place in zip(given, (X, normalize(X)), places, strict=True)
    ]
    assert torch.allclose(moments[0].mean, moments[1].mean, atol=1e-9, rtol=0)
    assert torch.allclose(moments[0].variance, moments[1].variance, atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    "forgetting", [SlidingWindow(850), ExponentialWeights(0.99), TimeVaryingKernel(0.05)], ids=str
)
def test_many_rows_are_solved_exactly(forgetting: Any) -> None:
    """Beyond 800 rows GPyTorch alone, without BoTorch's settings, would solve iteratively."""
    n = 900
    X, Y, _, test = data(n)
    prior = BanditGP.with_kernel(
        MaternKernel(nu=1.5), noise=LAM, lengthscale=LENGTHSCALE, prior_mean=PRIOR_MEAN
    )
    rounds, kernel = torch.arange(1, n + 1), matern(1.5, LENGTHSCALE)
    model = model_of_rounds(prior, forgetting, X, Y, rounds, n + 1)
    mean, covariance, _ = expected(forgetting, kernel, X, Y[:, 0], rounds, n + 1, test)
    found = model.posterior(with_round(test, n + 1) if forgetting.drift_rate else test)
    assert torch.allclose(found.mean.squeeze(-1), mean, **EXACT)
    assert torch.allclose(found.variance.squeeze(-1), covariance.diagonal(), **EXACT)


def test_rows_of_no_weight_are_left_out_without_a_trace() -> None:
    X, Y, _, test = data(60)
    rounds, weights = torch.arange(1, 61), ExponentialWeights(0.1)
    model = model_of_rounds(recipe(), weights, X, Y, rounds, 61)
    assert model.num_rows < 40
    kernel = squared_exponential(LENGTHSCALE, SCALE)
    mean, _, _ = expected(weights, kernel, X, Y[:, 0], rounds, 61, test)
    assert torch.allclose(model.posterior(test).mean.squeeze(-1), mean, atol=1e-10, rtol=0)


def test_time_decay_kernel_by_hand() -> None:
    base = MaternKernel(nu=2.5).double()
    kernel = TimeDecayKernel(base, rate=0.3)
    a, b = uniform(2, 5, 3, seed=0), uniform(2, 5, 3, seed=1)
    with torch.no_grad():
        found = kernel(a, b).to_dense()
        space = base(a[..., 1:], b[..., 1:]).to_dense()
        diagonal = kernel(a, b, diag=True)
    decay = 0.7 ** ((a[..., :, None, 0] - b[..., None, :, 0]).abs() / 2)
    assert torch.allclose(found, decay * space, atol=1e-12, rtol=0)
    assert torch.allclose(diagonal, found.diagonal(dim1=-2, dim2=-1), atol=1e-7, rtol=0)
    assert kernel.is_stationary

"""Models that forget, against the textbook formulas in dense numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from botorch.models.transforms.input import Normalize
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits import BanditGP, BanditGPRecipe, BanditLoop, Box, GPUpperConfidenceBound
from botorch_bandits.confidence import PriorSummary
from botorch_bandits.core.kernels import TimeDecayKernel
from botorch_bandits.forgetting import (
    ExponentialWeights,
    Forgetting,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.loop.settings import forgetful_recipe

from .of_rows import model_of_rounds, with_round

LAM, LENGTHSCALE, SCALE, PRIOR_MEAN = 0.05, 0.4, 1.7, 0.3
Array = NDArray[np.float64]


def recipe(**options: object) -> BanditGPRecipe:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = torch.tensor(SCALE, dtype=torch.float64)
    return BanditGP.with_kernel(
        kernel,
        noise=LAM,
        lengthscale=LENGTHSCALE,
        prior_mean=PRIOR_MEAN,
        **options,  # type: ignore[arg-type]
    )


def covariance(x: Array, z: Array) -> Array:
    squares = ((x[:, None] - z[None]) ** 2).sum(-1)
    result: Array = SCALE * np.exp(-0.5 * squares / LENGTHSCALE**2)
    return result


def data(n: int = 30, dim: int = 2, num_distinct: int | None = None) -> tuple[Tensor, ...]:
    """Inputs, outcomes and rounds; rounds have gaps and are not in order."""
    stream = torch.Generator().manual_seed(n)
    X = torch.rand(num_distinct or n, dim, dtype=torch.float64, generator=stream)
    if num_distinct is not None:
        X = X[torch.randint(num_distinct, (n,), generator=stream)]
    Y = torch.randn(n, 1, dtype=torch.float64, generator=stream)
    rounds = torch.randperm(n + 8, generator=stream)[:n] + 1
    test = torch.rand(7, dim, dtype=torch.float64, generator=stream)
    return X, Y, rounds, test


def dense(gram: Array, cross: Array, noise: Array, y: Array) -> tuple[Array, Array]:
    """Posterior mean and covariance at the test points: gram n x n, cross m x n."""
    inverse = np.linalg.inv(gram + np.diag(noise))
    return PRIOR_MEAN + cross @ inverse @ (y - PRIOR_MEAN), cross @ inverse @ cross.T


def check(model: BanditGP, at: Tensor, mean: Array, reduction: Array, prior: Array) -> None:
    joint = model.posterior(at)
    np.testing.assert_allclose(joint.mean.detach().squeeze(-1), mean, atol=1e-8, rtol=0)
    found = joint.distribution.covariance_matrix.detach()
    np.testing.assert_allclose(found, prior - reduction, atol=1e-8, rtol=0)
    single = model.posterior(at.unsqueeze(-2))
    np.testing.assert_allclose(single.mean.detach().reshape(-1), mean, atol=1e-8, rtol=0)
    np.testing.assert_allclose(
        single.variance.detach().reshape(-1), np.diag(prior - reduction), atol=1e-8, rtol=0
    )


@pytest.mark.parametrize("num_distinct", [None, 6])
def test_window_has_the_last_queries_alone(num_distinct: int | None) -> None:
    X, Y, rounds, test = data(num_distinct=num_distinct)
    model = model_of_rounds(recipe(), SlidingWindow(length=10), X, Y, rounds, 40)
    kept = [i for i, s in enumerate(rounds.tolist()) if 40 - 10 <= s < 40]
    assert 0 < len(kept) < 30
    x, y = X.numpy()[kept], Y.numpy()[kept, 0]
    k = covariance(test.numpy(), x)
    mean, reduction = dense(covariance(x, x), k, np.full(len(kept), LAM), y)
    check(model, test, mean, reduction, covariance(test.numpy(), test.numpy()))


@pytest.mark.parametrize("num_distinct", [None, 6])
@pytest.mark.parametrize("discount", [0.6, 0.97])
def test_weights_divide_the_noise(num_distinct: int | None, discount: float) -> None:
    X, Y, rounds, test = data(num_distinct=num_distinct)
    model = model_of_rounds(recipe(), ExponentialWeights(discount), X, Y, rounds, 40)
    x, y, z = X.numpy(), Y.numpy()[:, 0], test.numpy()
    w = discount ** (39.0 - rounds.numpy())
    mean, reduction = dense(covariance(x, x), covariance(z, x), LAM / w, y)
    check(model, test, mean, reduction, covariance(z, z))
    # the mean minimizes the weighted squares: in coefficients, (W K + lam I) alpha = W (y - m)
    alpha = np.linalg.solve(np.diag(w) @ covariance(x, x) + LAM * np.eye(30), w * (y - PRIOR_MEAN))
    np.testing.assert_allclose(PRIOR_MEAN + covariance(z, x) @ alpha, mean, atol=1e-8, rtol=0)
    # the gain is that of the weighted observations, and lam is the recipe's
    root = np.sqrt(w)
    scaled = root[:, None] * covariance(x, x) * root[None] / LAM
    gain = 0.5 * np.linalg.slogdet(np.eye(30) + scaled)[1]
    summary = PriorSummary(model)
    found = summary.realized_information_gain()
    assert found is not None
    assert float(found) == pytest.approx(gain, abs=1e-8)
    assert summary.smallest_lam() == pytest.approx(LAM / SCALE, rel=1e-12)


@pytest.mark.parametrize("rate", [0.02, 0.5])
def test_time_varying_kernel(rate: float) -> None:
    X, Y, rounds, test = data(num_distinct=9)
    model = model_of_rounds(recipe(), TimeVaryingKernel(rate), X, Y, rounds, 40)
    now = with_round(test, 40)
    x, y, z, s = X.numpy(), Y.numpy()[:, 0], test.numpy(), rounds.numpy().astype(float)
    gram = covariance(x, x) * (1 - rate) ** (np.abs(s[:, None] - s[None]) / 2)
    cross = covariance(z, x) * (1 - rate) ** ((40 - s)[None] / 2)
    mean, reduction = dense(gram, cross, np.full(30, LAM), y)
    check(model, now, mean, reduction, covariance(z, z))
    gain = 0.5 * np.linalg.slogdet(np.eye(30) + gram / LAM)[1]
    summary = PriorSummary(model)
    found = summary.realized_information_gain()
    assert found is not None
    assert float(found) == pytest.approx(gain, abs=1e-8)
    assert summary.smallest_lam() == pytest.approx(LAM / SCALE, rel=1e-12)


FORGETTING = [SlidingWindow(850), ExponentialWeights(0.99), TimeVaryingKernel(0.05)]


@pytest.mark.parametrize("forgetting", FORGETTING, ids=lambda f: type(f).__name__)
def test_many_rows_are_solved_exactly(forgetting: Forgetting) -> None:
    """Beyond 800 rows GPyTorch alone, without BoTorch's settings, would solve iteratively."""
    n = 900
    X, Y, _, test = data(n)
    prior = BanditGP.with_kernel(MaternKernel(nu=1.5), noise=LAM, lengthscale=LENGTHSCALE)
    model = model_of_rounds(prior, forgetting, X, Y, torch.arange(1, n + 1), n + 1)
    kernel = MaternKernel(nu=1.5).double()
    kernel.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
    with torch.no_grad():
        gram = kernel(X).to_dense().numpy()
        cross = kernel(test, X).to_dense().numpy()
    age = np.arange(n, 0, -1.0)
    noise = np.full(n, LAM)
    if isinstance(forgetting, SlidingWindow):
        noise[age > 850] = np.inf
    elif isinstance(forgetting, ExponentialWeights):
        noise /= 0.99 ** (age - 1)
    else:
        gram = gram * 0.95 ** (np.abs(age[:, None] - age[None]) / 2)
        cross = cross * 0.95 ** (age[None] / 2)
    kept = np.isfinite(noise)
    inverse = np.linalg.inv(gram[np.ix_(kept, kept)] + np.diag(noise[kept]))
    mean = cross[:, kept] @ inverse @ Y.numpy()[kept, 0]
    variance = 1.0 - np.einsum("ij,jk,ik->i", cross[:, kept], inverse, cross[:, kept])
    posterior = model.posterior(with_round(test, n + 1) if forgetting.drift_rate else test)
    np.testing.assert_allclose(posterior.mean.detach().squeeze(-1), mean, atol=1e-8, rtol=0)
    np.testing.assert_allclose(posterior.variance.detach().squeeze(-1), variance, atol=1e-8, rtol=0)


def test_rows_of_no_weight_are_left_out_without_a_trace() -> None:
    X, Y, _, test = data(200)
    rounds = torch.arange(1, 201)
    model = model_of_rounds(recipe(), ExponentialWeights(0.5), X, Y, rounds, 201)
    assert model.num_rows < 70
    w = 0.5 ** (200.0 - rounds.numpy())
    x, z = X.numpy(), test.numpy()
    scaled = np.sqrt(w)[:, None] * covariance(x, x) * np.sqrt(w)[None] + LAM * np.eye(200)
    cross = covariance(z, x) * np.sqrt(w)[None]
    mean = PRIOR_MEAN + cross @ np.linalg.solve(scaled, np.sqrt(w) * (Y.numpy()[:, 0] - PRIOR_MEAN))
    np.testing.assert_allclose(model.posterior(test).mean.squeeze(-1), mean, atol=1e-10, rtol=0)


@pytest.mark.parametrize("forgetting", FORGETTING, ids=lambda f: type(f).__name__)
def test_without_rows_it_is_the_prior(forgetting: Forgetting) -> None:
    X, Y, rounds, test = data()
    model = model_of_rounds(recipe(), forgetting, X[:0], Y[:0], rounds[:0], 1)
    posterior = model.posterior(with_round(test, 1) if forgetting.drift_rate else test)
    assert torch.allclose(posterior.mean, torch.full_like(posterior.mean, PRIOR_MEAN))
    assert torch.allclose(posterior.variance, torch.full_like(posterior.mean, SCALE))


@pytest.mark.parametrize(
    "forgetting",
    [SlidingWindow(12), ExponentialWeights(0.9), TimeVaryingKernel(0.1)],
    ids=lambda f: type(f).__name__,
)
def test_input_transform_acts_on_the_point_alone(forgetting: Forgetting) -> None:
    X, Y, rounds, test = data()
    bounds = torch.tensor([[0.0, 0.0], [4.0, 0.5]], dtype=torch.float64)
    normalize = Normalize(2, bounds=bounds)
    transformed, other = recipe(input_transform=normalize), normalize(X)
    places = [test, normalize(test)]
    if forgetting.drift_rate is not None:
        places = [with_round(each, 40) for each in places]
    first = model_of_rounds(transformed, forgetting, X, Y, rounds, 40).posterior(places[0])
    second = model_of_rounds(recipe(), forgetting, other, Y, rounds, 40).posterior(places[1])
    assert torch.allclose(first.mean, second.mean, atol=1e-9, rtol=0)
    assert torch.allclose(first.variance, second.variance, atol=1e-9, rtol=0)


def test_time_decay_kernel_by_hand() -> None:
    base = MaternKernel(nu=2.5).double()
    kernel = TimeDecayKernel(base, rate=0.3)
    stream = torch.Generator().manual_seed(0)
    a, b = (torch.rand(2, 5, 3, dtype=torch.float64, generator=stream) for _ in range(2))
    with torch.no_grad():
        found = kernel(a, b).to_dense()
        space = base(a[..., 1:], b[..., 1:]).to_dense()
        diagonal = kernel(a, b, diag=True)
    decay = 0.7 ** ((a[..., :, None, 0] - b[..., None, :, 0]).abs() / 2)
    assert torch.allclose(found, decay * space, atol=1e-12, rtol=0)
    assert torch.allclose(diagonal, found.diagonal(dim1=-2, dim2=-1), atol=1e-7, rtol=0)
    assert kernel.is_stationary


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"refit_every": 5}, "refit_every=5"),
        ({"input_transform": Normalize(2)}, "learns its scale"),
    ],
    ids=["refit", "transform"],
)
def test_learned_hyperparameters_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        forgetful_recipe(recipe(**options), SlidingWindow(5))


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: SlidingWindow(0), "length"),
        (lambda: ExponentialWeights(1.0), "discount"),
        (lambda: ExponentialWeights(0.0), "discount"),
        (lambda: TimeVaryingKernel(0.0), "rate"),
        (lambda: TimeVaryingKernel(float("nan")), "rate"),
    ],
    ids=["window", "no discount", "all discount", "no rate", "NaN"],
)
def test_settings_out_of_range_are_refused(build: object, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        build()  # type: ignore[operator]


def test_a_window_that_no_row_has_left_grows_and_is_the_same() -> None:
    recipe = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.05, lengthscale=0.3)
    stream = torch.Generator().manual_seed(0)
    X = torch.rand(60, 2, dtype=torch.float64, generator=stream)
    Y, rounds = X.sin().sum(-1, keepdim=True), torch.arange(1, 61)
    rule = GPUpperConfidenceBound.with_options(width=2.0)
    loop = BanditLoop(Box([[0.0] * 2, [1.0] * 2]), recipe, rule, forgetting=SlidingWindow(40))
    for count in range(1, 61):
        loop.attach(X[count - 1], float(Y[count - 1]))
        if count < 30 or count % 5:
            continue
        model = loop.current_model()
        given = X[:count], Y[:count], rounds[:count], count + 1
        afresh = model_of_rounds(recipe, SlidingWindow(40), *given)
        assert model.num_rows == min(count, 40)
        for found, expected in zip(
            model.closed_form.moments(X), afresh.closed_form.moments(X), strict=True
        ):
            assert torch.allclose(found, expected, rtol=0, atol=1e-10)

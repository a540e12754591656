"""BanditGP against dense linear algebra, and at work in what BoTorch does with models."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from botorch.acquisition import (
    qKnowledgeGradient,
)
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize
from botorch.posteriors import GPyTorchPosterior
from botorch.sampling import SobolQMCNormalSampler
from botorch.settings import propagate_grads
from gpytorch import settings
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from pairwise import pairwise
from torch import Tensor

from botorch_bandits import BanditGP
from botorch_bandits.models import condition, hallucinate
from botorch_bandits.models.bandit_gp import LeanPosterior
from botorch_bandits.models.noise import collapse

from .textbook import (
    KernelFunction,
    double,
    information_gain,
    linear,
    matern,
    normal,
    posterior,
    squared_exponential,
    uniform,
)

X, NEW_X = uniform(12, 2, seed=0), uniform(3, 2, seed=1)


def outcomes(inputs: Tensor) -> Tensor:
    """Two outcomes on scales that are not 1."""
    first = 3.0 + 2.0 * (5.0 * inputs[..., :1]).sin()
    return torch.cat([first, 40.0 * (4.0 * inputs[..., 1:2]).cos()], dim=-1)


Y = outcomes(X)


def scaled(base: Kernel, scale: float, lengthscale: Any) -> ScaleKernel:
    kernel = ScaleKernel(base).double()
    kernel.outputscale = double(scale)
    kernel.base_kernel.lengthscale = double(lengthscale)
    return kernel


def linear_kernel(variance: float) -> LinearKernel:
    kernel = LinearKernel().double()
    kernel.variance = double(variance)
    return kernel


def on_columns(first: KernelFunction, second: KernelFunction) -> KernelFunction:
    return lambda A, B: first(A[..., :1], B[..., :1]) * second(A[..., 1:], B[..., 1:])


def product_kernel() -> Kernel:
    product = RBFKernel(active_dims=(0,)).double() * MaternKernel(nu=0.5, active_dims=(1,)).double()
    product.kernels[0].lengthscale = double(0.4)
    product.kernels[1].lengthscale = double(0.8)
    return product


def sum_kernel() -> Kernel:
    total = scaled(RBFKernel(), 2.0, 0.3) + linear_kernel(0.7)
    return total.double()


KERNELS: dict[str, tuple[Callable[[], Kernel], KernelFunction]] = {
    "squared exponential": (
        lambda: scaled(RBFKernel(), 4.0, 0.3),
        squared_exponential(0.3, 4.0),
    ),
    "one lengthscale per dimension": (
        lambda: scaled(RBFKernel(ard_num_dims=2), 1.0, [[0.2, 0.9]]),
        squared_exponential(double([0.2, 0.9])),
    ),
    "matern 1/2": (lambda: scaled(MaternKernel(nu=0.5), 2.0, 0.5), matern(0.5, 0.5, 2.0)),
    "matern 3/2": (lambda: scaled(MaternKernel(nu=1.5), 0.1, 0.5), matern(1.5, 0.5, 0.1)),
    "matern 5/2": (lambda: scaled(MaternKernel(nu=2.5), 1.0, 0.25), matern(2.5, 0.25)),
    "one column": (
        lambda: scaled(RBFKernel(active_dims=(1,)), 1.0, 0.3),
        lambda A, B: squared_exponential(0.3)(A[..., 1:], B[..., 1:]),
    ),
    "product": (product_kernel, on_columns(squared_exponential(0.4), matern(0.5, 0.8))),
    "sum": (
        sum_kernel,
        lambda A, B: squared_exponential(0.3, 2.0)(A, B) + linear(0.7)(A, B),
    ),
    "linear": (lambda: linear_kernel(1.5), linear(1.5)),
}


# --- the posterior, however one comes to it -------------------------------------------------------

MEAN = 0.6
UNITS = Normalize(2, bounds=double([[-1.0, 0.0], [2.0, 4.0]]))
PLACES = uniform(14, 2, seed=0)
ROWS = PLACES[(14.0 * uniform(40, seed=3)).long()]  # some come again
OUTCOMES = outcomes(ROWS)[:, :1] + 0.2 * normal(40, 1, seed=4)
OTHERS, POINTS = uniform(4, 2, seed=1), uniform(6, 2, seed=2)
WEIGHTS = torch.exp(6.0 * uniform(40, seed=5) - 2.0)  # some below 1, some far above


@dataclass(frozen=True)
class Given:
    """The prior of a model.

    Attributes:
        kernel: Its kernel.
        noise: The noise variance of an outcome of weight 1.
        transform: Of the inputs.
    """

    kernel: Kernel
    noise: float
    transform: Normalize | None

    def model(self, X: Tensor, Y: Tensor, **options: Any) -> BanditGP:
        options = {"prior_mean": MEAN, "input_transform": self.transform, **options}
        return BanditGP(X, Y, self.kernel, self.noise, **options)

    def builder(self, **options: Any) -> Any:
        options = {"prior_mean": MEAN, "input_transform": self.transform, **options}
        return BanditGP.with_kernel(self.kernel, self.noise, **options).builder(0)


def grown(given: Given) -> BanditGP:
    model, start = given.model(ROWS[:0], OUTCOMES[:0]), 0
    for end in (1, 2, 7, 23, 40):
        model.posterior(POINTS)
        new = ROWS[start:end], OUTCOMES[start:end]
        model, start = model.condition_on_observations(*new), end
    return model


def censored_before(given: Given) -> BanditGP:
    view = given.model(ROWS[:37], OUTCOMES[:37]).censored(ROWS[37:], minimum=-5.0)
    assert view.train_targets[37:].tolist() == [-5.0] * 3
    return view.with_outcomes(OUTCOMES)


def collapsed(given: Given) -> BanditGP:
    places, means, counts, squares = collapse(ROWS, OUTCOMES)
    return given.model(places, means, repeats=counts, within_sum_of_squares=squares)


def built_row_by_row(given: Given) -> BanditGP:
    build = given.builder()
    for n in (0, 3, 4, 5, 20, 39):
        build(ROWS[:n], OUTCOMES[:n])
    build(ROWS, OUTCOMES.flip(0))
    return build(ROWS, OUTCOMES)


ROUTES: dict[str, Callable[[Given], BanditGP]] = {
    "at once": lambda given: given.model(ROWS, OUTCOMES),
    "row by row": grown,
    "conditioned": lambda given: condition(  # type: ignore[dict-item, return-value]
        given.model(ROWS[:37], OUTCOMES[:37]), ROWS[37:], OUTCOMES[37:]
    ),
    "with other outcomes": lambda given: given.model(
        ROWS, OTHERS[:1, :1].expand(40, 1)
    ).with_outcomes(OUTCOMES),
    "censored before": censored_before,
    "since a row": lambda given: given.model(
        torch.cat([OTHERS, ROWS]), torch.cat([OTHERS[:, :1], OUTCOMES])
    ).since(4),
    "one row a place": collapsed,
    "built row by row": built_row_by_row,
    "copied": lambda given: copy.deepcopy(grown(given)),
    "pickled": lambda given: pickle.loads(pickle.dumps(grown(given))),
    "with weights": lambda given: given.builder()(ROWS, OUTCOMES, WEIGHTS),
    "weights of places": lambda given: given.model(
        *collapse(ROWS, OUTCOMES, WEIGHTS)[:2], repeats=collapse(ROWS, OUTCOMES, WEIGHTS)[2]
    ),
}


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-8) -> bool:
    size = max(1.0, float(expected.detach().abs().max()))
    return torch.allclose(found, expected, rtol=0.0, atol=tolerance * size)


@pytest.mark.parametrize(
    ("name", "route", "noise", "transform"),
    pairwise(list(KERNELS), list(ROUTES), (1e-2, 2.0), (None, UNITS)),
    ids=lambda value: type(value).__name__ if isinstance(value, Normalize) else str(value),
)
def test_the_posterior_is_the_textbook_one(
    name: str, route: str, noise: float, transform: Normalize | None
) -> None:
    build, function = KERNELS[name]
    model = ROUTES[route](Given(build(), noise, transform))
    units = (lambda X: X) if transform is None else transform
    levels = noise / WEIGHTS if "weights" in route else torch.full((40,), noise).double()
    y = OUTCOMES[:, 0] - MEAN
    mean, covariance = posterior(function, units(ROWS), y, levels, units(POINTS))
    joint, each = model.posterior(POINTS), model.posterior(POINTS.unsqueeze(-2))
    for found in (joint.mean, each.mean[:, 0]):
        assert close(found[:, 0], MEAN + mean)
    for found in (joint.variance, each.variance[:, 0]):
        assert close(found[:, 0], covariance.diagonal())
    assert close(joint.distribution.covariance_matrix, covariance)
    for points in (POINTS, POINTS.unsqueeze(-2)):
        noisy = model.posterior(points, observation_noise=True).variance.reshape(-1)
        assert close(noisy, covariance.diagonal() + noise)
    K = function(units(ROWS), units(ROWS))
    assert close(model.information_gain, information_gain(K, levels))
    assert model.num_observations == 40 or "places" in route
    # and of further rows: what they are given is the mean, and the noise that of weight 1
    more = hallucinate(model, OTHERS)
    rows, levels = torch.cat([ROWS, OTHERS]), torch.cat([levels, torch.full((4,), noise).double()])
    told = posterior(function, units(ROWS), y, levels[:40], units(OTHERS))[0]
    expected = posterior(function, units(rows), torch.cat([y, told]), levels, units(POINTS))[1]
    assert close(more.posterior(POINTS).variance[:, 0], expected.diagonal())
    assert close(model.posterior(POINTS).mean, joint.mean, 1e-12)
    slopes = POINTS[:2].unsqueeze(-2).clone().requires_grad_()
    for moment in ("mean", "variance"):
        assert torch.autograd.gradcheck(lambda X, m=moment: getattr(model.posterior(X), m), slopes)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("noise", [1e-2, 2.0])
def test_of_few_distinct_rows_it_has_ten_digits(name: str, noise: float) -> None:
    build, function = KERNELS[name]
    found = BanditGP(X, Y[:, :1], build(), noise).posterior(POINTS)
    mean, covariance = posterior(function, X, Y[:, 0], noise, POINTS)
    assert close(found.mean[:, 0], mean, 1e-10)
    block = found.distribution.covariance_matrix
    assert torch.allclose(block, covariance, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", KERNELS)
def test_without_data_it_is_the_prior(name: str) -> None:
    build, function = KERNELS[name]
    model = BanditGP(X[:0], Y[:0, :1], build(), noise=0.1)
    assert model.num_rows == 0
    found = model.posterior(POINTS)
    assert close(found.mean, torch.zeros(6, 1, dtype=torch.float64), 1e-12)
    assert close(found.distribution.covariance_matrix, function(POINTS, POINTS), 1e-12)
    noisy = model.posterior(POINTS, observation_noise=True).variance
    assert close(noisy[:, -1], function(POINTS, POINTS).diagonal() + 0.1, 1e-12)
    assert model.posterior(POINTS.unsqueeze(-2)).mean.shape == (6, 1, 1)


@pytest.mark.parametrize("name", KERNELS)
def test_batches_are_separate_models(name: str) -> None:
    build, function = KERNELS[name]
    inputs = uniform(3, 7, 2, seed=4)
    noise = double([0.1, 0.3, 0.5])
    model = BanditGP(inputs, outcomes(inputs)[..., :1], build(), noise)
    found = model.posterior(POINTS)
    assert model.batch_shape == (3,)
    assert found.mean.shape == (3, 6, 1)
    for k in range(3):
        y = outcomes(inputs[k])[:, 0]
        mean, covariance = posterior(function, inputs[k], y, noise[k], POINTS)
        assert torch.allclose(found.mean[k, :, 0], mean, rtol=0, atol=1e-8)
        assert torch.allclose(found.variance[k, :, 0], covariance.diagonal(), rtol=0, atol=1e-9)


# --- gradients, and BoTorch's posterior -----------------------------------------------------------


def smooth_model() -> BanditGP:
    X = uniform(30, 2, seed=0)
    kernel = scaled(MaternKernel(nu=2.5, ard_num_dims=2), 1.7, [[0.3, 0.8]])
    return BanditGP(X, 2.0 * (4.0 * X.sum(-1, keepdim=True)).sin() + 0.5, kernel, 0.01)


def test_gradients_once_and_not_twice() -> None:
    model = smooth_model()
    points = uniform(4, 1, 2, seed=3).requires_grad_(True)

    def moments(points: Tensor) -> tuple[Tensor, Tensor]:
        posterior = model.posterior(points)
        return posterior.mean, posterior.variance

    assert torch.autograd.gradcheck(moments, points, atol=1e-6)
    for k in range(2):
        value = moments(points)[k].sum()
        with pytest.raises(
            RuntimeError, match=r"differentiated only once.*propagate_grads\(True\)"
        ):
            torch.autograd.grad(value, points, create_graph=True)
    with propagate_grads(True):
        assert torch.autograd.gradgradcheck(moments, points, atol=1e-5)


def test_variances_that_rounding_makes_negative() -> None:
    """They become GPyTorch's smallest variance, in prior variances, without a gradient."""
    X = uniform(40, 1, seed=0)
    kernel = scaled(RBFKernel(), 1.7, 0.3)
    model = BanditGP(X, (4.0 * X).sin(), kernel, 2e-10)
    points = uniform(500, 1, 1, seed=3).requires_grad_(True)
    with settings.min_variance(double_value=1e-9):
        variance = model.posterior(points).variance
    (slope,) = torch.autograd.grad(variance.sqrt().sum(), points)
    smallest = 1e-9 * float(kernel.outputscale)
    lowest = variance == smallest
    assert 0 < lowest.sum() < 500
    assert variance.min().item() == smallest
    assert slope[lowest].abs().max().item() == 0.0
    assert slope[~lowest].abs().min().item() > 0.0


@pytest.mark.parametrize("shape", [(5, 1), (2, 3, 1), (4,), (2, 3)])
@pytest.mark.parametrize("noisy", [False, True])
def test_the_posterior_is_botorchs(shape: tuple[int, ...], noisy: bool) -> None:
    """Marginals, joint distribution, samples and transforms, as GPyTorch computes them."""
    model = smooth_model()
    points = uniform(*shape, 2, seed=3)
    found = model.posterior(points, observation_noise=noisy)
    with propagate_grads(True):
        expected = model.posterior(points, observation_noise=noisy)
    assert type(found) is LeanPosterior
    assert type(expected) is GPyTorchPosterior
    transform = ScalarizedPosteriorTransform(weights=double([-2.0]), offset=1.0)
    pairs = [(found, expected), (transform(found), transform(expected))]
    pairs.append((model.posterior(points, posterior_transform=transform), transform(found)))
    for one, other in pairs[: 2 if noisy else 3]:
        assert torch.allclose(one.mean, other.mean, rtol=0, atol=1e-10)
        assert torch.allclose(one.variance, other.variance, rtol=0, atol=1e-10)
        assert torch.allclose(
            one.distribution.covariance_matrix,
            other.distribution.covariance_matrix,
            rtol=0,
            atol=1e-10,
        )
        assert one.base_sample_shape == other.base_sample_shape
        assert one.batch_range == other.batch_range
        base = uniform(7, *one.base_sample_shape, seed=4)
        samples = [p.rsample_from_base_samples(torch.Size([7]), base) for p in (one, other)]
        assert torch.allclose(*samples, rtol=0, atol=1e-6)
        assert one.rsample(torch.Size([2])).shape == (2, *shape, 1)
        assert (one.device, one.dtype) == (other.device, other.dtype)
        level = double([0.3])
        assert torch.allclose(one.quantile(level), other.quantile(level), rtol=0, atol=1e-8)


# --- learning -------------------------------------------------------------------------------------


def fit(model: BanditGP) -> None:
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))


@pytest.mark.parametrize(
    "model",
    [
        BanditGP(X, Y[:, :1], scaled(RBFKernel(), 1.0, 0.3), 0.1),
        BanditGP(X[:0], Y[:0, :1], scaled(RBFKernel(), 1.0, 0.3), 0.1),
        BanditGP(X[:0], Y[:0, :1], scaled(RBFKernel(), 1.0, 0.3), 0.1, learn_hyperparameters=True),
    ],
    ids=["fixed", "fixed without data", "learning without data"],
)
def test_fitting_does_nothing_where_nothing_can_be_learned(model: BanditGP) -> None:
    before = copy.deepcopy(model.state_dict())
    model.train()
    fit(model)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not model.training


@pytest.mark.parametrize("name", ["squared exponential", "sum"])
def test_a_fit_leaves_the_prior_mean_alone(name: str) -> None:
    build = partial(BanditGP, X, kernel=KERNELS[name][0](), noise=0.03, learn_hyperparameters=True)
    model, shifted = (build(Y[:, :1] - 5.0 + mean, prior_mean=mean) for mean in (-2.5, 0.0))
    for each in (model, shifted):
        fit(each)
    assert model.prior_mean == -2.5
    assert not model.mean_module.raw_constant.requires_grad
    assert torch.allclose(model.likelihood.noise, shifted.likelihood.noise, rtol=1e-4)
    found, expected = (each.eval().posterior(POINTS) for each in (model, shifted))
    assert torch.allclose(found.mean, expected.mean - 2.5, rtol=0.0, atol=1e-4)
    assert torch.allclose(found.variance, expected.variance, rtol=0.0, atol=1e-4)


# --- what is refused ------------------------------------------------------------------------------

TWICE = {"train_X": X.expand(2, 12, 2), "train_Y": Y[:, :1].expand(2, 12, 1)}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"train_X": X.float()}, TypeError, r"train_X has dtype torch\.float32"),
        ({"train_Y": Y.float()}, TypeError, r"train_Y has dtype torch\.float32"),
        ({"train_X": X.tolist()}, TypeError, r"train_X must be a torch\.Tensor"),
        ({"train_X": X / 0.0}, ValueError, r"train_X\[0, 0\] is inf"),
        ({"train_Y": Y[:, :1] * float("nan")}, ValueError, r"train_Y\[0, 0\] is nan"),
        ({"train_Y": Y[:, 0]}, ValueError, r"train_Y \(12,\).*train_Y with y\.unsqueeze\(-1\)"),
        ({"train_X": X[:, 0]}, ValueError, r"train_X has shape \(12,\)"),
        ({"train_Y": Y[:5]}, ValueError, r"train_X has shape \(12, 2\) and train_Y \(5, 2\)"),
        ({"train_Y": Y}, ValueError, r"BanditGP has one output.*ModelListGP"),
        ({"kernel": "rbf"}, TypeError, "kernel must be a gpytorch.*MaternKernel"),
        ({"kernel": RBFKernel}, TypeError, "kernel must be a gpytorch"),
        ({"noise": 0.0}, ValueError, "noise is 0.0; it must be greater than 0"),
        ({"noise": -1.0}, ValueError, "noise is -1.0"),
        ({"prior_mean": float("nan")}, ValueError, "prior_mean is"),
        ({"prior_mean": float("inf")}, ValueError, "prior_mean is"),
        ({"noise": float("nan")}, ValueError, "noise is nan"),
        ({"noise": 1e-10}, ValueError, "noise is 1e-10 and .*ratio is 1e-10, but it must be above"),
        ({**TWICE, "noise": double([0.1, -0.2])}, ValueError, "noise is -0.2"),
        (
            {**TWICE, "noise": double([0.1] * 3)},
            ValueError,
            r"noise has batch shape \(3,\).*shape \(2,\)",
        ),
        (
            {**TWICE, "kernel": RBFKernel(batch_shape=torch.Size([3]))},
            ValueError,
            r"kernel has batch shape \(3,\), which does not fit the data's batch shape \(2,\)",
        ),
        (
            {"train_X": X[:0], "train_Y": Y[:0, :1], "input_transform": Normalize(2)},
            ValueError,
            r"input_transform learns its scale.*Normalize\(d, bounds=bounds\)",
        ),
    ],
)
def test_malformed_arguments_are_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    arguments = {"train_X": X, "train_Y": Y[:, :1], "kernel": RBFKernel(), "noise": 0.1} | changes
    with pytest.raises(error, match=message):
        BanditGP(**arguments)


def test_a_kernel_set_in_single_precision_is_warned_of() -> None:
    kernel = RBFKernel()
    kernel.lengthscale = 0.2
    with pytest.warns(UserWarning, match=r"set in float32.*0\.200000003.*kernel\.double\(\)"):
        BanditGP(X, Y[:, :1], kernel, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BanditGP(X, Y[:, :1], RBFKernel(), 0.1)  # untouched parameters lost nothing
        BanditGP(X, Y[:, :1], scaled(RBFKernel(), 1.0, 0.2), 0.1)


@pytest.mark.parametrize("num_rows", [0, 12])
def test_fantasies_are_rebuilt_models(num_rows: int) -> None:
    model = BanditGP(X[:num_rows], Y[:num_rows, :1], RBFKernel(), noise=0.1)
    model.posterior(POINTS)
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
    fantasies = model.fantasize(NEW_X, sampler)
    assert fantasies.num_rows == num_rows + 3
    found = fantasies.posterior(POINTS)
    assert found.mean.shape == (4, 6, 1)
    samples = SobolQMCNormalSampler(torch.Size([4]), seed=0)(
        model.posterior(NEW_X, observation_noise=True)
    )
    for i in range(4):
        rebuilt = BanditGP(
            torch.cat([X[:num_rows], NEW_X]),
            torch.cat([Y[:num_rows, :1], samples[i]]),
            RBFKernel(),
            noise=0.1,
        ).posterior(POINTS)
        assert torch.allclose(found.mean[i], rebuilt.mean, rtol=0, atol=1e-8)
        assert torch.allclose(found.variance[i], rebuilt.variance, rtol=0, atol=1e-10)


@pytest.mark.parametrize("num_rows", [0, 12])
def test_the_knowledge_gradient_can_be_optimized(num_rows: int) -> None:
    model = BanditGP(X[:num_rows], Y[:num_rows, :1], RBFKernel(), noise=0.1)
    acquisition = qKnowledgeGradient(model, num_fantasies=4)
    points = uniform(3, 5, 2, seed=8).requires_grad_(True)
    acquisition(points).sum().backward()
    assert points.grad is not None
    assert torch.isfinite(points.grad).all()
    assert points.grad.abs().max().item() > 0.0


def test_views_of_rows_that_there_are_not_are_refused() -> None:
    model, empty = smooth_model(), BanditGP(X[:0], Y[:0, :1], RBFKernel(), 0.03)
    for row, message in ((31, "row is 31, but"), (-1, "row")):
        with pytest.raises(ValueError, match=message):
            model.since(row)
    places = BanditGP(X, Y[:, :1], RBFKernel(), 0.1, repeats=torch.full((12,), 2.0).double())
    with pytest.raises(ValueError, match="no order in time"):
        places.since(2)
    with pytest.raises(TypeError, match=r"X has dtype torch\.float32"):
        empty.censored(NEW_X.float(), minimum=0.0)
    with pytest.raises(ValueError, match="X must be"):
        empty.censored(NEW_X[0], minimum=0.0)
    with pytest.raises(ValueError, match="minimum is nan"):
        empty.censored(NEW_X, minimum=float("nan"))
    # 0.1 must not become a float32
    assert empty.censored(NEW_X, minimum=0.1).train_targets.tolist() == [0.1] * 3
    assert empty.censored(NEW_X[:0], minimum=0.0) is empty

"""How BanditGP grows, is copied and notices changes: always the model that would be built anew."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.models.transforms import Normalize
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits import BanditGP

from .textbook import double, uniform

X = uniform(300, 2, seed=0)
Y = 2.0 * (5.0 * X[:, :1]).sin() + X[:, 1:].square()
POINTS = uniform(7, 1, 2, seed=1)
NORMALIZE = Normalize(2, bounds=double([[-1.0, 0.0], [2.0, 4.0]]))


def kernel(lengthscale: float = 0.3) -> Kernel:
    scaled = ScaleKernel(MaternKernel(nu=2.5)).double()
    scaled.outputscale = double(2.0)
    scaled.base_kernel.lengthscale = double(lengthscale)
    return scaled


def build(num_rows: int, **options: Any) -> Any:
    return BanditGP(X[:num_rows], Y[:num_rows], kernel(), 0.01, **options)


def append(model: Any, start: int, *ends: int) -> Any:
    for end in ends:
        model = model.condition_on_observations(X[start:end], Y[start:end])
        start = end
    return model


def assert_close(first: Any, second: Any, tolerance: float = 1e-9) -> None:
    for points in (POINTS, POINTS.squeeze(-2)):
        one, other = first.posterior(points), second.posterior(points)
        assert torch.allclose(one.mean, other.mean, rtol=0, atol=tolerance)
        assert torch.allclose(one.variance, other.variance, rtol=0, atol=tolerance)
    joint = [
        m.posterior(POINTS.squeeze(-2)).distribution.covariance_matrix for m in (first, second)
    ]
    assert torch.allclose(*joint, rtol=0, atol=tolerance)
    assert torch.allclose(first.information_gain, second.information_gain, rtol=1e-9)
    assert torch.equal(first.train_inputs[0], second.train_inputs[0])
    assert torch.equal(first.train_targets, second.train_targets)


# --- the same posterior on every route -----------------------------------------------------------


@pytest.mark.parametrize("transform", [None, NORMALIZE])
@pytest.mark.parametrize("refit_every", [None, 20])
def test_builders_give_the_same_posterior(
    transform: Normalize | None, refit_every: int | None
) -> None:
    recipe = BanditGP.with_kernel(
        kernel(), 0.01, refit_every=refit_every, input_transform=transform
    )
    growing = recipe.builder(seed=0)
    late = Y.clone()
    late[:5] += 1.0
    for num_rows, rows in [(n, Y) for n in (0, *range(1, 36), 44)] + [(44, late), (50, late)]:
        model = growing(X[:num_rows], rows[:num_rows])
        at_once = recipe.builder(seed=0)(X[:num_rows], rows[:num_rows])
        assert_close(model, at_once)
    other = growing(X[100:110], Y[100:110])
    assert_close(other, recipe(X[100:110], Y[100:110]))


# --- nothing goes stale ---------------------------------------------------------------------------


def change_lengthscale(model: Any) -> None:
    model.covar_module.base_kernel.lengthscale = double(0.7)


def change_noise(model: Any) -> None:
    model.likelihood.noise = double(0.3)


def change_data_of_a_parameter(model: Any) -> None:
    model.covar_module.raw_outputscale.data.add_(1.0)


def change_parameter_in_place(model: Any) -> None:
    with torch.no_grad():
        model.covar_module.raw_outputscale.add_(1.0)


def change_state(model: Any) -> None:
    other = BanditGP(X[:3], Y[:3], kernel(0.8), 0.2)
    model.load_state_dict(other.state_dict())


def change_kernel(model: Any) -> None:
    model.covar_module = kernel(0.9)


def change_smoothness(model: Any) -> None:
    model.covar_module.base_kernel.nu = 1.5
    model.train().eval()  # as with GPyTorch's own caches


def change_rows(model: Any) -> None:
    model.set_train_data(X[50:55], Y[50:55, 0], strict=False)


def change_outcomes_in_place(model: Any) -> None:
    model.train_targets.add_(1.0)


CHANGES = [
    change_lengthscale,
    change_noise,
    change_data_of_a_parameter,
    change_parameter_in_place,
    change_state,
    change_kernel,
    change_smoothness,
    change_rows,
    change_outcomes_in_place,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_are_noticed(change: Any) -> None:
    model = BanditGP(X[:20].clone(), Y[:20].clone(), kernel(), 0.01)
    before = model.posterior(POINTS)
    change(model)
    after = model.posterior(POINTS)
    assert not torch.equal(before.mean, after.mean)
    inputs, targets = model.train_inputs[0], model.train_targets.unsqueeze(-1)
    noise = model.likelihood.noise.squeeze(-1)
    assert_close(model, BanditGP(inputs, targets, model.covar_module, noise), 1e-10)
    grown: Any = model.condition_on_observations(X[20:21], Y[20:21])
    inputs, targets = grown.train_inputs[0], grown.train_targets.unsqueeze(-1)
    assert_close(grown, BanditGP(inputs, targets, model.covar_module, noise), 1e-10)


def test_what_is_computed_in_inference_mode_is_usable_outside() -> None:
    model = build(20)
    with torch.inference_mode():
        model.posterior(POINTS)
        model = append(model, 20, 21)
        model = model.with_outcomes(Y[:21])
    points = POINTS.clone().requires_grad_(True)
    posterior = append(model, 21, 22, 40).posterior(points)
    posterior.variance.sum().backward()
    assert points.grad is not None
    assert_close(append(model, 21, 40), build(40))


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new_X", "new_Y", "error", "message"),
    [
        (X[:1].float(), Y[:1], TypeError, r"X has dtype torch\.float32"),
        (X[:1], Y[:1].float(), TypeError, r"Y has dtype torch\.float32"),
        (X[:1] / 0.0, Y[:1], ValueError, r"X\[0, 0\] is inf"),
        (X[:1], Y[:1] * float("nan"), ValueError, r"Y\[0, 0\] is nan"),
        (X[:2], Y[:1], ValueError, r"X has shape \(2, 2\) and Y \(1, 1\)"),
        (uniform(1, 3, seed=0), Y[:1], ValueError, r"X has shape \(1, 3\).*n' x 2"),
    ],
)
def test_malformed_rows_are_refused(
    new_X: Tensor, new_Y: Tensor, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build(5).condition_on_observations(new_X, new_Y)


def test_malformed_outcomes_are_refused() -> None:
    model = build(5)
    with pytest.raises(ValueError, match=r"\(4, 1\).*have shape \(5"):
        model.with_outcomes(Y[:4])
    with pytest.raises(TypeError, match="float64"):
        model.with_outcomes(Y[:5].float())
    with pytest.raises(ValueError, match="finite"):
        model.with_outcomes(Y[:5] / 0.0)


@pytest.mark.parametrize("num_rows", [0, 3])
def test_rows_of_another_number_of_outputs_are_refused(num_rows: int) -> None:
    X = torch.rand(num_rows, 2, dtype=torch.float64)
    model = BanditGP(X, X[:, :1], kernel=RBFKernel(), noise=0.1)
    with pytest.raises(ValueError, match=r"has shape \(2, 2\)"):
        model.condition_on_observations(torch.zeros(2, 2).double(), torch.zeros(2, 2).double())

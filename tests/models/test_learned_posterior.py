"""The closed-form posterior under transforms, against a ``SingleTaskGP`` of the same state."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import SingleTaskGP
from botorch.models.transforms import ChainedInputTransform, Normalize, Standardize
from botorch.models.transforms.input import (
    InputStandardize,
    InputTransform,
    Log10,
    NumericToCategoricalEncoding,
)
from botorch.models.transforms.outcome import Log
from botorch.posteriors import Posterior
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor
from torch.nn.functional import one_hot

from botorch_bandits.core.box import BoxPosterior
from botorch_bandits.models import LearnedGP
from botorch_bandits.models.bandit_gp import LeanPosterior

from .textbook import double, uniform, value_and_gradient

DIM = 3
LOW, HIGH = double([1.0, 100.0, 0.0]), double([3.0, 900.0, 2.0])
BOUNDS = torch.stack([LOW, HIGH])


def points(num_rows: int, seed: int) -> Tensor:
    """The last column takes the values 0, 1 and 2."""
    X = LOW + (HIGH - LOW) * uniform(num_rows, DIM, seed=seed)
    X[:, 2] = (3.0 * uniform(num_rows, seed=seed + 50)).floor()
    return X


def outcomes(X: Tensor) -> Tensor:
    unit = (X - LOW) / (HIGH - LOW)
    return 250.0 + 40.0 * (4.0 * unit.sum(-1, keepdim=True)).sin()


X, QUERIES = points(21, 0), points(6, 1)
Y = outcomes(X)


def encoding() -> NumericToCategoricalEncoding:
    return NumericToCategoricalEncoding(
        dim=DIM, categorical_features={2: 3}, encoders={2: partial(one_hot, num_classes=3)}
    )


def normalize(dim: int = DIM, **options: Any) -> Normalize:
    return Normalize(dim, **({"bounds": BOUNDS} | options))


ENCODED = torch.cat([BOUNDS[:, :2], double([[0.0] * 3, [1.0] * 3])], dim=-1)

AFFINE: dict[str, Callable[[], InputTransform | None]] = {
    "none": lambda: None,
    "bounds": normalize,
    "some columns": lambda: normalize(indices=[1, 0]),
    "learned bounds": lambda: Normalize(DIM),
    "learned bounds of some columns": lambda: Normalize(DIM, indices=[1]),
    "another center": lambda: normalize(center=0.0),
}
OTHERS: dict[str, Callable[[], InputTransform]] = {
    "reversed": lambda: normalize(reverse=True, bounds=double([[0.1] * DIM, [0.6] * DIM])),
    "standardized inputs": lambda: InputStandardize(DIM),
    "logarithm, then bounds": lambda: ChainedInputTransform(
        log=Log10(indices=[1]),
        unit=normalize(bounds=double([[1.0, 2.0, 0.0], [3.0, 3.0, 2.0]])),
    ),
    "one hot": encoding,
    "one hot, then bounds": lambda: ChainedInputTransform(
        hot=encoding(), unit=Normalize(DIM + 2, bounds=ENCODED)
    ),
}
TRANSFORMS = {**AFFINE, **OTHERS}
every_transform = pytest.mark.parametrize("transform", list(TRANSFORMS))


def build(
    transform: str = "bounds",
    ard: bool = True,
    base: type[Kernel] = MaternKernel,
    outcome_transform: Any = None,
    cls: type[SingleTaskGP] = LearnedGP,
) -> Any:
    """A model whose hyperparameters are none of the defaults."""
    of_inputs = TRANSFORMS[transform]()
    dim = DIM + 2 if "hot" in transform else DIM
    lengthscale = torch.linspace(0.4, 1.2, dim, dtype=torch.float64)
    if transform in ("none", "some columns", "learned bounds of some columns", "one hot"):
        lengthscale[0] *= 2.0
        lengthscale[1] *= 1.0 if "some" in transform else 500.0
    if transform == "reversed":
        lengthscale[1] *= 300.0
    kernel = ScaleKernel(base(ard_num_dims=dim if ard else None)).double()
    kernel.base_kernel.lengthscale = lengthscale if ard else lengthscale.mean()
    kernel.outputscale = double(1.7)
    likelihood = GaussianLikelihood().double()
    likelihood.noise = double(0.03)
    model = cls(
        X,
        Y,
        likelihood=likelihood,
        covar_module=kernel,
        input_transform=of_inputs,
        outcome_transform=Standardize(1) if outcome_transform is None else outcome_transform,
    )
    model.mean_module.constant = double(-0.4)
    return model.eval()


def plain(model: LearnedGP, X: Tensor, Y: Tensor) -> SingleTaskGP:
    """BoTorch's own model with the state of ``model``, transforms included, and other data."""
    standardize, transform = model.outcome_transform, model.input_transform
    twin = SingleTaskGP(
        X,
        standardize(Y)[0],
        likelihood=copy.deepcopy(model.likelihood),
        covar_module=copy.deepcopy(model.covar_module),
        mean_module=copy.deepcopy(model.mean_module),
        outcome_transform=None,
    )
    twin.outcome_transform = copy.deepcopy(standardize)
    twin.input_transform = copy.deepcopy(transform)
    return twin.eval()


def moments(posterior: Posterior) -> list[Tensor]:
    return [posterior.mean, posterior.variance]


def assert_close(found: Any, expected: Any, tolerance: float = 1e-9) -> None:
    """Compare, relative to the largest entry of each."""
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        scale = float(other.detach().abs().max()) or 1.0
        assert float((one - other).detach().abs().max()) <= tolerance * scale


def with_gradients(function: Callable[[Tensor], list[Tensor]], at: Tensor) -> list[Tensor]:
    """Two functions of ``b x d`` points, and their gradients."""
    at = at.clone().requires_grad_()
    values = [value.reshape(-1) for value in function(at)]
    slopes = [torch.autograd.grad(value.sum(), at, retain_graph=True)[0] for value in values]
    return [*values, *slopes]


def assert_like_botorch(model: LearnedGP, twin: SingleTaskGP, tolerance: float = 1e-9) -> None:
    """Moments, gradients, noise, covariances and transforms of the posterior."""
    found = model.posterior(QUERIES.unsqueeze(-2))
    assert type(found) is LeanPosterior
    assert_close(moments(found), moments(twin.posterior(QUERIES.unsqueeze(-2))), tolerance)

    def at(each: Any) -> list[Tensor]:
        return with_gradients(lambda Z: moments(each.posterior(Z.unsqueeze(-2))), QUERIES)

    assert_close(at(model), at(twin), 10.0 * tolerance)
    noisy = [each.posterior(QUERIES, observation_noise=True) for each in (model, twin)]
    assert_close(moments(noisy[0]), moments(noisy[1]), tolerance)
    joint = [each.posterior(QUERIES[:3]) for each in (model, twin)]
    covariances = [[each.distribution.covariance_matrix] for each in joint]
    assert_close(*covariances, tolerance)
    weighed = ScalarizedPosteriorTransform(double([-2.0]), offset=3.0)
    scalar = [each.posterior(QUERIES[:3], posterior_transform=weighed) for each in (model, twin)]
    assert_close(moments(scalar[0]), moments(scalar[1]), tolerance)
    own = model.closed_form
    assert own is not None
    with torch.no_grad():
        functions = list(value_and_gradient(own, QUERIES))
        values = list(own.moments(QUERIES))
    assert_close(functions, at(twin), 10.0 * tolerance)
    assert_close(values, functions[:2], tolerance)


# --- transforms -----------------------------------------------------------------------------------


@every_transform
@pytest.mark.parametrize("ard", [True, False])
def test_every_transform_is_followed(transform: str, ard: bool) -> None:
    model = build(transform, ard)
    assert_like_botorch(model, build(transform, ard, cls=SingleTaskGP))
    assert model.closed_form.num_rows == len(X)


@pytest.mark.parametrize(
    ("base", "tolerance"),
    [
        (RBFKernel, 1e-9),
        (partial(MaternKernel, nu=1.5), 1e-9),
        (partial(MaternKernel, nu=0.5), 1e-7),  # GPyTorch squares distances before the kink
    ],
)
def test_every_kernel_follows_its_transforms(base: Any, tolerance: float) -> None:
    for transform in ("bounds", "one hot, then bounds"):
        model, twin = (build(transform, base=base, cls=cls) for cls in (LearnedGP, SingleTaskGP))
        assert_like_botorch(model, twin, tolerance)


def test_rows_may_have_noise_levels_of_their_own() -> None:
    kernel = (
        ScaleKernel(RBFKernel(active_dims=[1])) * MaternKernel(active_dims=[2, 0], ard_num_dims=2)
    ).double()
    given = {"covar_module": kernel, "outcome_transform": Standardize(1)}
    levels = 10.0 + 90.0 * uniform(len(X), 1, seed=2)
    model, twin = (
        cls(X, Y, levels, input_transform=normalize(), **given).eval()
        for cls in (LearnedGP, SingleTaskGP)
    )
    assert_like_botorch(model, twin, 1e-8)
    # levels are a plain attribute in GPyTorch: another one counts from train() on
    before = model.posterior(QUERIES).mean
    model.likelihood.noise_covar.noise = model.likelihood.noise_covar.noise * 2.0
    model.train().eval()
    assert float((model.posterior(QUERIES).mean - before).abs().max()) > 1e-3


def test_other_outcome_transforms_are_left_to_botorch() -> None:
    model = build(outcome_transform=Log())
    assert model.closed_form is None
    twin = build(outcome_transform=Log(), cls=SingleTaskGP)
    assert_close(moments(model.posterior(QUERIES)), moments(twin.posterior(QUERIES)))


# --- other data -----------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", ["bounds", "learned bounds", "one hot, then bounds"])
def test_conditioning_takes_raw_outcomes(transform: str) -> None:
    model = build(transform)
    before = model.posterior(QUERIES).mean
    more, theirs = points(4, 2), double([[100.0], [300.0], [200.0], [400.0]])
    grown = model
    for x, y in zip(more.split(2), theirs.split(2), strict=True):
        grown = grown.condition_on_observations(x, y)
    expected = plain(model, torch.cat([X, more]), torch.cat([Y, theirs]))
    assert_like_botorch(grown, expected, 1e-8)
    assert torch.equal(grown.X_baseline, torch.cat([X, more]))
    assert torch.equal(model.posterior(QUERIES).mean, before)
    again = grown.posterior(QUERIES).mean
    assert_close([again], [copy.deepcopy(grown).posterior(QUERIES).mean], 1e-12)


@pytest.mark.parametrize("transform", ["bounds", "one hot, then bounds"])
def test_replaced_outcomes_are_raw(transform: str) -> None:
    model = build(transform)
    model.posterior(QUERIES)
    replaced = Y.flip(0) + 70.0
    assert_like_botorch(model.with_outcomes(replaced), plain(model, X, replaced))
    assert_like_botorch(model, build(transform, cls=SingleTaskGP))


# --- what has changed since is noticed ------------------------------------------------------------


def in_place(model: Any) -> None:
    model.outcome_transform.means.mul_(1.5)
    model.train().eval()  # as with GPyTorch's own caches


def replaced_buffer(model: Any) -> None:
    model.outcome_transform.stdvs = 2.0 * model.outcome_transform.stdvs
    model.train().eval()


def new_state(model: Any) -> None:
    state = copy.deepcopy(model.state_dict())
    state["mean_module.raw_constant"] += 1.0
    state["outcome_transform.means"] += 5.0
    model.load_state_dict(state)


CHANGES = [in_place, replaced_buffer, new_state]  # others: as in a BanditGP


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_noticed(change: Callable[[Any], None]) -> None:
    model, twin = build(), build(cls=SingleTaskGP)
    before = model.posterior(QUERIES).mean
    own = model.closed_form.moments(QUERIES)
    for each in (model, twin):
        change(each)
        each.prediction_strategy = None
    assert not torch.allclose(
        torch.stack(own), torch.stack(model.closed_form.moments(QUERIES)), rtol=1e-3
    )
    assert before.shape == (len(QUERIES), 1)
    assert_like_botorch(model, twin)


def test_the_closed_form_is_kept_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build()
    before = model.posterior(QUERIES).mean
    monkeypatch.setattr(BoxPosterior, "of", None)
    for _ in range(2):
        assert model.to(torch.float64) is model
        assert model.to(QUERIES) is model
        assert torch.equal(model.posterior(QUERIES).mean, before)

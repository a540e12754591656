"""What is read from a model against explicit kernels on the raw data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from acquisition.cases import MODELS, ModelCase, assert_same, rows, snapshot
from botorch.acquisition.objective import (
    ExpectationPosteriorTransform,
    ScalarizedPosteriorTransform,
)
from botorch.models import (
    ModelListGP,
    MultiTaskGP,
    SingleTaskGP,
    SingleTaskVariationalGP,
)
from botorch.models.kernels.exponential_decay import ExponentialDecayKernel
from botorch.models.model import Model
from botorch.models.multitask import KroneckerMultiTaskGP
from botorch.models.transforms import Log, Normalize
from botorch.models.transforms.input import InputPerturbation, Warp
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from models.textbook import double, uniform

from botorch_bandits import BanditGP
from botorch_bandits.confidence import BoxGain, PriorSummary, UnreadablePriorError
from botorch_bandits.confidence.prior_reading import read_prior

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")


X = uniform(9, 2, seed=0)
WIDE = X * torch.tensor([15.0, 4.0]).double() - 5.0
Y = torch.cat([3.0 + 2.0 * (5.0 * X[:, :1]).sin(), 40.0 * (4.0 * X[:, 1:]).cos()], dim=-1)


def perturbed() -> Model:
    """Perturbs test points only: the rows stay what they are."""
    shifts = double([[0.0, 0.0], [0.1, -0.1]])
    model = MODELS[0].build()
    model.input_transform = InputPerturbation(shifts)
    return model


def two_outputs_with_given_noise() -> Model:
    X, Y = rows()
    Yvar = double([0.002, 0.05]).expand(len(X), 2)
    kernel = ScaleKernel(RBFKernel(batch_shape=torch.Size([2])), batch_shape=torch.Size([2]))
    kernel = kernel.double()
    kernel.base_kernel.lengthscale = double([[[0.3]], [[0.7]]])
    kernel.outputscale = double([0.5, 2.0])
    return SingleTaskGP(X, Y, Yvar, covar_module=kernel)


BATCHES, NOISES = uniform(3, 6, 1, seed=4), 0.1 * torch.arange(1.0, 7.0).double().reshape(3, 2)


def batches_of_two_outputs() -> Model:
    kernel = RBFKernel().double()
    kernel.lengthscale = double(0.4)
    model = SingleTaskGP(
        BATCHES, torch.cat([BATCHES, -BATCHES], -1), covar_module=kernel, outcome_transform=None
    )
    model.likelihood.noise = NOISES.unsqueeze(-1)
    return model


CASES = [
    *MODELS,
    ModelCase("perturbed inputs", perturbed),
    ModelCase("two outputs, train_Yvar", two_outputs_with_given_noise, (rows(),)),
    ModelCase(
        "batches, two outputs",
        batches_of_two_outputs,
        ((BATCHES, torch.cat([BATCHES, -BATCHES], -1)),),
        kind="batch",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluating"])
def test_what_is_read_is_what_the_model_was_built_from(case: ModelCase, training: bool) -> None:
    model = case.build()
    members = case.reference(model).members
    model.train(training)
    before = snapshot(model)
    priors = read_prior(model)
    assert_same(before, snapshot(model))
    assert len(priors) == len(members[0])
    shape = () if case.kind == "single" else (len(members),)
    for prior, outputs in zip(priors, zip(*members, strict=True), strict=True):
        assert prior.lam.shape == shape
        for found, expected, tolerance in (
            (prior.noise_variance, [output.lam * output.outputscale for output in outputs], 1e-10),
            (prior.lam, [output.lam for output in outputs], 1e-10),
            (prior.standard_deviation, [output.standard_deviation for output in outputs], 1e-10),
            (prior.gain(), [output.information_gain for output in outputs], 1e-8),
        ):
            assert found.expand(shape).reshape(-1).tolist() == pytest.approx(
                expected, rel=tolerance
            )


def test_a_sum_of_stationary_kernels_has_their_total_variance() -> None:
    kernel = ScaleKernel(RBFKernel()).double() + ScaleKernel(MaternKernel(nu=0.5)).double()
    kernel.kernels[0].outputscale = double(2.0)
    kernel.kernels[1].outputscale = double(0.5)
    (prior,) = read_prior(BanditGP(X, Y[:, :1], kernel, noise=0.1))
    assert prior.standard_deviation.item() == pytest.approx(math.sqrt(2.5), rel=1e-12)
    assert prior.lam.item() == pytest.approx(0.1 / 2.5, rel=1e-12)


def test_a_kernel_that_is_not_stationary_counts_with_its_outputscale() -> None:
    kernel = ScaleKernel(LinearKernel()).double()
    kernel.outputscale = double(4.0)
    (prior,) = read_prior(BanditGP(X, Y[:, :1], kernel, noise=0.1))
    assert prior.standard_deviation.item() == 2.0
    (plain,) = read_prior(BanditGP(X, Y[:, :1], LinearKernel(), noise=0.1))
    assert plain.standard_deviation.item() == 1.0


class Centered(Kernel):
    """A kernel with a lengthscale and the variance 1 that is not stationary."""

    has_lengthscale = True

    def forward(self, x1: torch.Tensor, x2: torch.Tensor, **params: Any) -> torch.Tensor:
        angles = (each.square().sum(-1) / self.lengthscale.squeeze(-1) for each in (x1, x2))
        one, other = angles
        covariance = (one.unsqueeze(-1) - other.unsqueeze(-2)).cos()
        return covariance.diagonal(dim1=-2, dim2=-1) if params.get("diag") else covariance


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (ExponentialDecayKernel(), False),
        (ScaleKernel(ExponentialDecayKernel()), False),
        (ExponentialDecayKernel() * RBFKernel(), False),
        (Centered(), False),
        (PeriodicKernel(), True),
        (ScaleKernel(RBFKernel() * MaternKernel(nu=1.5)) + RQKernel(), True),
    ],
    ids=str,
)
def test_a_kernel_is_stationary_if_it_is_and_not_because_it_has_a_lengthscale(
    kernel: Kernel, expected: bool
) -> None:
    (prior,) = read_prior(BanditGP(X[:, :1], Y[:, :1], kernel, noise=0.1))
    assert prior.is_stationary is expected
    if not expected:
        with pytest.raises(ValueError, match="not stationary"):
            BoxGain(double([[0.0], [1.0]]), kernel.double(), 0.1)


# --- what was learned ---------------------------------------------------------------------------


def learned(model: Model) -> set[str]:
    return {what for prior in read_prior(model) for what in prior.learned}


def test_everything_that_was_or_could_have_been_learned_is_named() -> None:
    noise = "likelihood noise (a free parameter)"
    inputs = "input scale (an input transform without given bounds)"
    outcomes = "outcome scale and mean (Standardize)"
    lengthscale = "covar_module.raw_lengthscale (a free parameter)"
    free = BanditGP(X, Y[:, :1], RBFKernel(), learn_hyperparameters=True)
    assert learned(free) == {noise, lengthscale}
    assert learned(BanditGP(WIDE, Y[:, :1], RBFKernel(), input_transform=Normalize(2))) == {inputs}
    model = SingleTaskGP(X, Y[:, :1])
    assert {noise, outcomes, lengthscale} <= learned(model)
    assert learned(model.requires_grad_(False)) == {outcomes}
    extra = FixedNoiseGaussianLikelihood(
        torch.full((9,), 0.1, dtype=torch.float64), learn_additional_noise=True
    )
    assert noise in learned(SingleTaskGP(X, Y[:, :1], likelihood=extra))
    warped = SingleTaskGP(X, Y[:, :1], input_transform=Warp(2, [0])).requires_grad_(False)
    warped.input_transform.concentration0.requires_grad_(True)
    assert "input_transform.concentration0 (a free parameter)" in learned(warped)


# --- what cannot be read ------------------------------------------------------------------------


TASK = (torch.arange(9) % 2).double()[:, None]
UNREADABLE: dict[str, tuple[Callable[[], Model], str]] = {
    "variational": (
        lambda: SingleTaskVariationalGP(X, Y[:, :1]),
        "SingleTaskVariationalGP is not an exact Gaussian process",
    ),
    "log": (
        lambda: SingleTaskGP(X, Y[:, :1].exp(), outcome_transform=Log()),
        "the outcome transform Log is not affine",
    ),
    "multi-task": (
        lambda: MultiTaskGP(torch.cat([X, TASK], -1), Y[:, :1], task_feature=-1),
        "MultiTaskGP has 2 output tasks, which are correlated",
    ),
    "kronecker": (
        lambda: KroneckerMultiTaskGP(X, Y),
        "KroneckerMultiTaskGP is not an exact Gaussian process with its own kernel",
    ),
    "one of a list": (
        lambda: ModelListGP(
            SingleTaskGP(X, Y[:, :1]),
            SingleTaskGP(X, Y[:, 1:].abs(), X[:, :1] + 0.1, outcome_transform=Log()),
        ),
        "the outcome transform Log is not affine",
    ),
}


@pytest.mark.parametrize("name", list(UNREADABLE))
def test_models_that_cannot_be_read_say_why(name: str) -> None:
    build_model, reason = UNREADABLE[name]
    with pytest.raises(UnreadablePriorError, match=reason):
        read_prior(build_model())


# --- which outputs count ------------------------------------------------------------------------


def test_outputs_without_weight_do_not_count() -> None:
    model = SingleTaskGP(X, torch.cat([Y, Y[:, :1] ** 2], -1))
    weights = double([0.0, -2.0, 1.0])
    summary = PriorSummary(model, ScalarizedPosteriorTransform(weights))
    assert tuple(summary.active) == (1, 2)
    assert tuple(summary.active.values()) == summary.priors[1:]
    assert tuple(PriorSummary(model).active) == (0, 1, 2)
    assert summary.num_rows == 9


def test_a_scalarization_of_nothing_is_refused() -> None:
    transform = ScalarizedPosteriorTransform(torch.zeros(2, dtype=torch.float64))
    with pytest.raises(ValueError, match="only zero weights"):
        _ = PriorSummary(SingleTaskGP(X, Y), transform).active


def test_other_posterior_transforms_cannot_be_read() -> None:
    transform = ExpectationPosteriorTransform(n_w=3)
    with pytest.raises(UnreadablePriorError, match="ExpectationPosteriorTransform is not"):
        _ = PriorSummary(SingleTaskGP(X, Y), transform).active

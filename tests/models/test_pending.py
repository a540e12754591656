"""Pending points from the joint posterior of any model equal conditioning on hallucinated rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from acquisition.cases import MODELS, ModelCase, OwnGP, Waves
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.exceptions.warnings import BotorchWarning
from botorch.models import (
    KroneckerMultiTaskGP,
    MixedSingleTaskGP,
    ModelListGP,
    MultiTaskGP,
    SingleTaskGP,
    SingleTaskVariationalGP,
)
from botorch.models.deterministic import GenericDeterministicModel
from botorch.models.model import Model, ModelList
from botorch.models.transforms import Log, Standardize
from botorch.models.transforms.input import InputPerturbation
from botorch.posteriors import GPyTorchPosterior
from torch import Tensor

from botorch_bandits import GPThompsonSampling, GPUpperConfidenceBound
from botorch_bandits.models import hallucinate
from botorch_bandits.models.reading import PendingModel, posterior_of_each

from .textbook import double, uniform

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")


X = uniform(8, 2, seed=1)
Y = torch.cat([torch.sin(5 * X[:, :1]) + X[:, 1:], 2 * X[:, 1:] - X[:, :1]], dim=-1)
P, NEW = uniform(3, 2, seed=2), uniform(5, 2, seed=3)


def fixed_hyperparameters(model: Model) -> Model:
    """Set what a fit would set, so that no test depends on starting values."""
    for name, parameter in model.named_parameters():
        if "raw_noise" in name:
            parameter.data.fill_(0.05)
    return model.eval()


def standardized() -> Model:
    return fixed_hyperparameters(SingleTaskGP(X, Y[:, :1], outcome_transform=Standardize(1)))


def mixed() -> Model:
    rounded = torch.cat([X[:, :1], X[:, 1:].round()], dim=-1)
    return fixed_hyperparameters(MixedSingleTaskGP(rounded, Y[:, :1], cat_dims=[1]))


def one_task(train_Yvar: bool = False) -> Model:
    tasks = torch.cat([torch.zeros(8, 1), torch.ones(8, 1)]).double()
    inputs, variances = torch.cat([torch.cat([X, X]), tasks], dim=-1), 0.1 + torch.cat([X, X])
    options = {"train_Yvar": variances[:, :1]} if train_Yvar else {}
    outcomes = torch.cat([Y[:, :1], Y[:, 1:]])
    model = MultiTaskGP(inputs, outcomes, task_feature=-1, output_tasks=[0], **options)
    return fixed_hyperparameters(model)


OTHERS = {"mixed": mixed, "one task": one_task, "with variances": lambda: one_task(True)}
CONDITIONED = [*MODELS, *(replace(MODELS[0], name=n, build=build) for n, build in OTHERS.items())]
"""Models that take rows, so that both ways exist."""
families = pytest.mark.parametrize("case", CONDITIONED, ids=lambda case: case.name)


def agree(one: Any, other: Any) -> bool:
    return all(
        torch.allclose(a, b, rtol=0.0, atol=1e-10)
        for a, b in ((one.mean, other.mean), (one.variance, other.variance))
    )


@families
def test_it_equals_conditioning_where_both_exist(case: ModelCase) -> None:
    model, points = case.build(), case.points(5, seed=3)
    points = points.expand(*(model.batch_shape if case.kind == "batch" else ()), 5, 2)
    conditioned = hallucinate(model, case.points(3, seed=2))
    assert not isinstance(conditioned, PendingModel)
    pending = PendingModel(model, case.points(3, seed=2))
    assert pending.batch_shape == model.batch_shape
    assert pending.num_outputs == model.num_outputs
    for noisy in (False, True):
        one = conditioned.posterior(points, observation_noise=noisy)
        other = pending.posterior(points, observation_noise=noisy)
        assert isinstance(other, GPyTorchPosterior)
        assert agree(one, other)
    # jointly as well
    one, other = conditioned.posterior(points), pending.posterior(points)
    if one.mean.shape[-1] == 1:
        covariances = [each.distribution.covariance_matrix for each in (one, other)]
        assert torch.allclose(*covariances, rtol=0.0, atol=1e-10)
    # and scalarized, after conditioning
    weights = double([1.0, -0.5])[: model.num_outputs]
    transform = ScalarizedPosteriorTransform(weights, offset=0.3)
    assert agree(
        *(each.posterior(points, posterior_transform=transform) for each in (conditioned, pending))
    )


@families
def test_one_by_one_equals_conditioning_on_the_points_before(case: ModelCase) -> None:
    model, x = case.build(), case.points(5, seed=3)
    depth = 1 if case.kind == "batch" else 0
    points = x.reshape(1, *(1,) * depth, 5, 2)
    posterior = posterior_of_each(model, points)
    for i in range(5):
        before = hallucinate(model, x[:i]) if i else model
        expected = before.posterior(x[i : i + 1].expand(*(2,) * depth, 1, 2))
        mean, variance = posterior.mean[0, ..., i, :, :], posterior.variance[0, ..., i, :, :]
        assert torch.allclose(mean, expected.mean, rtol=0.0, atol=1e-10)
        assert torch.allclose(variance, expected.variance, rtol=0.0, atol=1e-10)


def long_format(train_Yvar: bool) -> tuple[MultiTaskGP, Tensor, Tensor, Tensor]:
    tasks = torch.cat([torch.zeros(8, 1), torch.ones(5, 1)]).double()
    inputs = torch.cat([torch.cat([X, X[:5]]), tasks], dim=-1)
    outcomes = torch.cat([Y[:, :1], Y[:5, 1:]])
    variances = torch.cat([0.01 + 0.1 * X[:, :1] ** 2, 0.3 + X[:5, :1]])
    model = MultiTaskGP(
        inputs, outcomes, task_feature=-1, train_Yvar=variances if train_Yvar else None
    )
    return fixed_hyperparameters(model), inputs, outcomes, variances


def test_variational_model() -> None:
    model = SingleTaskVariationalGP(X, Y[:, :1], inducing_points=5).double().eval()
    joint = model.posterior(torch.cat([P, NEW])).distribution.covariance_matrix.detach()
    noise = float(model.likelihood.noise)
    S_PP, S_PX = joint[:3, :3] + noise * torch.eye(3).double(), joint[:3, 3:]
    expected = joint[3:, 3:] - S_PX.T @ torch.linalg.solve(S_PP, S_PX)
    posterior = hallucinate(model, P).posterior(NEW)
    assert torch.allclose(posterior.distribution.covariance_matrix, expected, atol=1e-10)
    acqf = GPThompsonSampling(model, pending="hallucinate", X_pending=P, seed=0, choices=NEW)
    assert acqf(NEW.unsqueeze(-2)).shape == (5,)


def test_deterministic_ensemble_counts_by_mean_and_covariance_of_its_members() -> None:
    model = Waves()
    values = model(torch.cat([P[:2], NEW])).squeeze(-1)
    S = torch.cov(values.T)
    expected = S[2:, 2:] - S[2:, :2] @ torch.linalg.solve(S[:2, :2], S[:2, 2:])
    posterior = hallucinate(model, P[:2]).posterior(NEW)
    found = posterior.distribution.covariance_matrix
    assert torch.allclose(found, expected, atol=1e-7)  # no noise: 1e-10 of the variance is added
    assert torch.allclose(posterior.mean, model.posterior(NEW).mean)
    # more pending points than members leave nothing to learn
    nothing = hallucinate(model, uniform(9, 2, seed=5)).posterior(NEW)
    assert nothing.variance.max() < 1e-6
    assert GPUpperConfidenceBound(model, X_pending=P)(NEW.unsqueeze(-2)).shape == (5,)
    assert GPUpperConfidenceBound(model)(NEW.unsqueeze(0)).shape == (1,)


def test_lists_of_other_kinds() -> None:
    alone = hallucinate(standardized(), P).posterior(NEW)
    several = ModelListGP(MultiTaskGP(*long_format(False)[1:3], task_feature=-1), standardized())
    of_list = hallucinate(several.eval(), P).posterior(NEW)
    assert torch.allclose(of_list.variance[:, 2:], alone.variance, atol=1e-10)
    known = GenericDeterministicModel(lambda x: x.sum(-1, keepdim=True))
    with pytest.raises(UnsupportedError, match=r"gives a PosteriorList.*ModelListGP"):
        hallucinate(ModelList(standardized(), known), P)


class WithoutNoise(OwnGP):
    """A model that does not say how noisy outcomes are."""

    def posterior(self, X, observation_noise=False, **options):  # type: ignore[override]
        if observation_noise is not False:
            raise NotImplementedError("no likelihood")
        return super().posterior(X, **options)


def variational(transform: type) -> Model:
    outcomes = Y[:, :1].exp()
    model = SingleTaskVariationalGP(X, outcomes, inducing_points=5, outcome_transform=transform())
    return model.double().eval()


def perturbed() -> Model:
    both = InputPerturbation(torch.zeros(2, 2).double())
    return SingleTaskGP(X, Y[:, :1], input_transform=both).eval()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: variational(Log), r"gives a .*no joint Gaussian moments.*SingleTaskGP"),
        (lambda: KroneckerMultiTaskGP(X, Y).eval(), r"GP gives a Multit.*MultiTaskGP"),
        (perturbed, r"rows for 3 points.*InputPerturbation"),
        (lambda: WithoutNoise(X, Y[:, :1]).eval(), r"observation_noise=True .*likelihood"),
    ],
)
def test_refusals_name_the_remedy(build: Callable[[], Model], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        PendingModel(build(), P)


def test_pending_points_that_require_a_gradient_warn_as_in_botorch() -> None:
    acqf = GPUpperConfidenceBound(standardized())
    with pytest.warns(BotorchWarning, match="Pending points require"):
        acqf.set_X_pending(P.clone().requires_grad_())
    assert not acqf.X_pending.requires_grad

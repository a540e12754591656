"""Pseudo-observations against dense algebra, for each kind of model that takes them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from acquisition.cases import MODELS, ModelCase, assert_same, rows, uniform
from acquisition.dense import DenseGP
from botorch.exceptions.errors import UnsupportedError
from botorch.models import ModelListGP, PairwiseGP, SingleTaskGP, SingleTaskVariationalGP
from botorch.models.model import Model
from botorch.models.multitask import KroneckerMultiTaskGP
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_bandits import BanditGP
from botorch_bandits.models import condition, hallucinate
from botorch_bandits.models.reading import prior_variances_of_outputs

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")
families = pytest.mark.parametrize("case", MODELS, ids=lambda case: case.name)


def agrees(
    case: ModelCase, model: Model, seen: Callable[[DenseGP, int, int], DenseGP], found: Model
) -> bool:
    """Whether moments are the dense ones, output by output of each member.

    ``seen`` is called with the output of a model as it was, its member and its place.
    """
    x = case.points(5, seed=3)
    members = [
        [seen(output, k, j) for j, output in enumerate(outputs)]
        for k, outputs in enumerate(case.reference(model).members)
    ]
    posterior = found.posterior(x)
    moments = [posterior.mean, posterior.variance.sqrt()]
    mean = np.stack([np.stack([o.posterior(x.numpy())[0] for o in m], -1) for m in members])
    deviation = np.stack([np.stack([o.deviations(x.numpy()) for o in m], -1) for m in members])
    return all(
        np.allclose(one.detach().numpy().reshape(mean.shape), dense, rtol=tolerance, atol=tolerance)
        for one, dense, tolerance in zip(moments, (mean, deviation), (1e-8, 1e-7), strict=True)
    )


def imagined(case: ModelCase, model: Model) -> tuple[Tensor, Tensor]:
    """Points, and outcomes of each member and output that no model expects."""
    X = case.points(3, seed=4)
    return X, 5.0 * uniform(*model.batch_shape, 3, model.num_outputs, seed=5) - 7.0


# --- one model ------------------------------------------------------------------------------------


@families
def test_hallucination_is_conditioning_on_the_mean(case: ModelCase) -> None:
    model, pending = case.build(), case.points(3, seed=4)
    found = hallucinate(model, pending)
    assert type(found) is type(model)
    assert agrees(case, model, lambda output, *_: output.hallucinate(pending.numpy()), found)


@families
@pytest.mark.parametrize("units", ["none", "outcome", "prior"])
def test_conditioning_is_adding_rows_at_once_or_in_turn(case: ModelCase, units: str) -> None:
    model = case.build()
    X, Y = imagined(case, model)
    each = Y.reshape(-1, 3, model.num_outputs).numpy()
    each = np.broadcast_to(each, (len(case.reference(model).members), *each.shape[1:]))
    options: dict[str, Any] = {}
    if units != "none":
        scales = prior_variances_of_outputs(model) if units == "prior" else 1.0
        options = {"extra_noise": 0.8 * scales}

    def seen(output: DenseGP, member: int, place: int) -> DenseGP:
        unit = {"none": 0.0, "outcome": 1.0, "prior": output.standard_deviation**2}[units]
        return output.censor(X.numpy(), each[member, :, place], 0.8 * unit)

    assert agrees(case, model, seen, condition(model, X, Y, **options))
    if units == "none":  # a new row has the mean noise of the rows before
        twice = condition(model, X[:1], Y[..., :1, :])
        assert agrees(case, model, seen, condition(twice, X[1:], Y[..., 1:, :]))


@families
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluating"])
def test_the_users_model_is_left_as_it_was(case: ModelCase, training: bool) -> None:
    model = case.build()
    model.train(training)
    before = copy.deepcopy(model.state_dict())
    untouched = copy.deepcopy(model).posterior(case.points(5, seed=3))
    pending = hallucinate(model, case.points(3, seed=4))
    # what happens to the new model is no matter of the old one either
    for parameter in pending.parameters():
        parameter.data.add_(1.0)
    assert_same(before, model.state_dict())
    after = model.posterior(case.points(5, seed=3))
    assert torch.allclose(after.mean, untouched.mean, rtol=0, atol=1e-12)
    assert torch.allclose(after.variance, untouched.variance, rtol=0, atol=1e-12)


# --- what is refused ------------------------------------------------------------------------------

X, Y = rows()
PENDING = uniform(3, 2, seed=3)


def without_levels() -> Model:
    model = SingleTaskGP(X, Y[:, :1], torch.full_like(Y[:, :1], 0.1), outcome_transform=None)
    model.likelihood.noise = torch.empty(0, dtype=torch.float64)
    return model


REFUSED: dict[str, tuple[Callable[[], Model], str]] = {
    name: (make, r"process \(SingleTaskGP, BanditGP, ModelListGP")
    for name, make in {
        "variational": lambda: SingleTaskVariationalGP(X, Y[:, :1]),
        "kronecker": lambda: KroneckerMultiTaskGP(X, Y),
        "pairwise": lambda: PairwiseGP(X, torch.tensor([[0, 1], [2, 3]])),
        "one of a list": lambda: ModelListGP(
            SingleTaskGP(X, Y[:, :1]), SingleTaskVariationalGP(X, Y[:, :1])
        ),
    }.items()
} | {"given noise without rows": (without_levels, r"no rows.*Give it a likelihood")}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_take_no_rows_are_refused_with_the_remedy(name: str) -> None:
    build_model, message = REFUSED[name]
    model = build_model()
    with pytest.raises(UnsupportedError, match=message):
        condition(model, PENDING, PENDING.new_zeros(len(PENDING), model.num_outputs))


def test_single_precision_is_refused() -> None:
    model = BanditGP(X, Y[:, :1], RBFKernel())
    for name, given in {
        "X": (PENDING.float(), Y[:3, :1]),
        "Y": (PENDING, Y[:3, :1].float()),
    }.items():
        with pytest.raises(TypeError, match=rf"{name} has dtype torch\.float32"):
            condition(model, *given)

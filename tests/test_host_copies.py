"""Searches and fits make the host wait for a device a few times a step, factors once in all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from host_copies import HostCopies
from torch import Tensor

from botorch_bandits import (
    BanditGP,
    FittedSingleTaskGP,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    optim,
)
from botorch_bandits.acquisition import gen_candidates_batched
from botorch_bandits.models.fits import objective_of

GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(400, 3, dtype=torch.float64, generator=GENERATOR)
Y = (6.0 * X).sin().sum(-1, keepdim=True)
BOUNDS = [[0.0] * 3, [1.0] * 3]
ZERO, ONE = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)

ACQUISITIONS: dict[str, Callable[[Any], Any]] = {
    "constant width": lambda model: GPUpperConfidenceBound(model, width=2.0),
    "IGP-UCB": lambda model: ImprovedUpperConfidenceBound(model, rkhs_bound=1.0, noise_bound=0.1),
    "EI": lambda model: LogExpectedImprovement(model, best_f=1.0),
}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As on a device: tensors go to the host by a copy. Has the number of tensors of each."""
    seen: list[int] = []

    def copy(*tensors: Tensor) -> list[Any]:
        seen.append(len(tensors))
        return optim.copy_at_once(tensors)

    monkeypatch.setattr(optim, "to_host", copy)
    return seen


def count(function: Callable[[], Any]) -> int:
    with HostCopies() as copies:
        function()
    return copies.number


def test_one_copy_has_the_numbers_of_many() -> None:
    tensors = X[:4], Y[:3], Y.sum(), X[0]
    for one, other, tensor in zip(
        optim.to_host(*tensors), optim.copy_at_once(tensors), tensors, strict=True
    ):
        assert one.shape == other.shape == tensor.shape
        assert (one == other).all()
    assert count(lambda: optim.copy_at_once(tensors)) == 1
    assert count(lambda: optim.to_host(*tensors)) == 0


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_a_search_copies_once_a_step_and_looks_at_the_model(name: str, steps: list[int]) -> None:
    acquisition = ACQUISITIONS[name](BanditGP(X[:40], Y[:40], MaternKernel(nu=2.5), 0.01))
    start = torch.rand(5, 1, 3, dtype=torch.float64, generator=GENERATOR)

    def search(num_steps: int) -> None:
        gen_candidates_batched(start, acquisition, ZERO, ONE, options={"maxiter": num_steps})

    search(1)
    totals, lengths = [], []
    for num_steps in (2, 50):
        steps.clear()
        totals.append(count(lambda n=num_steps: search(n)))
        lengths.append(len(steps))
    more = lengths[1] - lengths[0]
    assert more > 0
    # besides the copy of values and slopes, the model looks whether its parameters have changed
    assert totals[1] - totals[0] <= 3 * more
    assert totals[0] - lengths[0] <= 10


@pytest.mark.parametrize("kernel", [RBFKernel, lambda **options: MaternKernel(nu=2.5, **options)])
@pytest.mark.parametrize("dim", [None, 3])
def test_a_fit_copies_twice_an_evaluation(kernel: Any, dim: int | None) -> None:
    model = FittedSingleTaskGP(BOUNDS)(X[:40], Y[:40])
    model.covar_module = kernel(ard_num_dims=dim).double()
    objective = objective_of(ExactMarginalLogLikelihood(model.likelihood, model))
    for shift in (0.0, 0.01):  # one sees whether there is a factor, the other has the numbers
        assert count(lambda s=shift: objective(objective.start + s)) == 2

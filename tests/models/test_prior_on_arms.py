"""Priors on arms are shared by all with the same kernel and arms, and by nobody else."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel
from torch import Tensor

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    OracleRestart,
)
from botorch_bandits.models import prior_on_arms
from botorch_bandits.models.prior_on_arms import LARGEST_MATRIX, ArmsPrior


def uniform(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


def kernel(lengthscale: float = 0.3) -> Kernel:
    made = ScaleKernel(MaternKernel(nu=2.5)).double()
    made.base_kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    made.outputscale = 1.7
    return made


def test_forty_loops_keep_one_matrix_and_one_root() -> None:
    choices = uniform(300, 2, seed=1)
    recipe = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.2)
    loops = []
    for seed in range(40):
        acquisition = GPThompsonSampling.with_options(width=1.0)
        restart = OracleRestart((2,), exploration=None)
        loop = BanditLoop(Arms(choices.clone()), recipe, acquisition, seed=seed, restart=restart)
        for _ in range(3):  # over a reset
            loop.tell(loop.ask().id, 0.0)
        loops.append(loop)
    priors = [loop._chooser._stream.engine.posterior.prior for loop in loops]
    assert len({prior.matrix.data_ptr() for prior in priors}) == 1
    assert len({prior.root.data_ptr() for prior in priors}) == 1
    counts = [entry for entry in prior_on_arms._shared.values() if entry.num_arms == 300]
    assert len(counts) == 1
    alive = weakref.ref(priors[0])
    del loops, loop, priors, counts
    gc.collect()
    assert alive() is None  # nobody else keeps it


def test_what_differs_is_not_shared() -> None:
    inputs = uniform(30, 2, seed=2)
    first = ArmsPrior.from_kernel(kernel(), inputs)
    assert ArmsPrior.from_kernel(kernel(), inputs.clone()) is first
    moved = inputs.clone()
    moved[7, 1] *= 1.0 + 1e-15
    others = [
        ArmsPrior.from_kernel(kernel(0.3 * (1.0 + 1e-13)), inputs),
        ArmsPrior.from_kernel(kernel(), moved),
        ArmsPrior.from_kernel(kernel(), inputs[:29]),
        ArmsPrior.from_kernel(kernel(), inputs.flip(0)),
        ArmsPrior.from_kernel(kernel(), inputs.reshape(60, 1)),
        ArmsPrior.from_kernel(kernel().base_kernel, inputs),
        ArmsPrior.from_kernel(RBFKernel().double(), inputs),
        ArmsPrior.from_kernel(RQKernel().double(), inputs),
        ArmsPrior.from_kernel(PeriodicKernel().double(), inputs),
    ]
    shared = [i for i, prior in enumerate(others) if prior is first]
    assert shared == []
    assert len({id(prior) for prior in others}) == len(others)


class Hidden(Kernel):
    """A kernel with a setting that no fingerprint sees: it acts away from the probe points."""

    is_stationary = False

    def __init__(self, power: list[float]) -> None:
        super().__init__()
        self.power = power

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        a, b = (1.0 + (x.sum(-1) - 3.0).clamp_min(0.0) * self.power[0] for x in (x1, x2))
        return a * b if diag else a.unsqueeze(-1) * b.unsqueeze(-2)


def test_a_kernel_that_hides_something_is_looked_at() -> None:
    inputs = 3.0 * uniform(20, 2, seed=3)
    priors = [ArmsPrior.from_kernel(Hidden([power]).double(), inputs) for power in (0.0, 1.0)]
    assert prior_on_arms.fingerprint_kernel(Hidden([0.0])) == prior_on_arms.fingerprint_kernel(
        Hidden([1.0])
    )
    assert not torch.equal(priors[0].diagonal, priors[1].diagonal)
    expected = Hidden([1.0]).double()(inputs).to_dense()
    assert torch.allclose(priors[1].columns(torch.arange(20)), expected, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("num_arms", [50, LARGEST_MATRIX + 10])
def test_changes_in_place_do_not_reach_a_prior(num_arms: int) -> None:
    inputs, own = uniform(num_arms, 2, seed=4), kernel()
    index = torch.tensor([3, 49, 0])
    expected = kernel()(inputs[index], inputs).to_dense().detach()
    prior = ArmsPrior.from_kernel(own, inputs)
    with torch.no_grad():
        inputs += 1.0
        inputs[0] *= 3.0
        own.base_kernel.lengthscale = 0.9
    assert torch.allclose(prior.columns(index), expected, rtol=0.0, atol=1e-12)
    assert ArmsPrior.from_kernel(own, inputs) is not prior
    assert copy.deepcopy(prior) is prior
    again = pickle.loads(pickle.dumps(prior))
    assert torch.equal(again.columns(index), prior.columns(index))


@pytest.mark.parametrize(
    "kind", [RBFKernel(), *(MaternKernel(nu=nu) for nu in (0.5, 1.5, 2.5)), RQKernel()]
)
def test_columns_are_the_same_however_they_are_asked_for(kind: Kernel) -> None:
    """To the last bit: a loop that is rebuilt asks for them in another order."""
    inputs = 5.0 + uniform(LARGEST_MATRIX + 1, 3, seed=5)
    own = ScaleKernel(kind.double()).double()
    index = torch.tensor([[5, 4000], [17, 5]])
    together, alone = (ArmsPrior.from_kernel(own, inputs.clone()) for _ in range(2))
    assert together is alone  # while one is in use
    found = together.columns(index)
    assert together.num_columns_kept == 3
    del together, alone
    gc.collect()
    alone = ArmsPrior.from_kernel(own, inputs)
    assert alone.num_columns_kept == 0
    each = [alone.column(arm) for arm in (17, 4000, 5)]
    assert torch.equal(found.reshape(4, -1)[[2, 1, 0]], torch.stack(each))
    if getattr(kind, "nu", None) == 0.5:  # GPyTorch's own distances are off by 1e-8 near 0
        apart = (inputs[index.reshape(-1)].unsqueeze(1) - inputs).norm(dim=-1)
        expected = own.outputscale * torch.exp(-apart / kind.lengthscale)
    else:
        expected = own(inputs[index.reshape(-1)], inputs).to_dense()
    assert torch.allclose(found.reshape(4, -1), expected, rtol=0.0, atol=1e-11)
    sizes = [alone.column(arm).untyped_storage().nbytes() for arm in (17, 4000, 5)]
    assert sizes == [8 * alone.num_arms] * 3  # each has memory of its own, as large as it is


def test_one_more_column_copies_none() -> None:
    prior = ArmsPrior.from_kernel(kernel(), uniform(LARGEST_MATRIX + 1, 2, seed=6))
    first = prior.column(0)
    places = {prior.column(0).data_ptr()}
    for arm in range(1, 80):
        prior.column(arm)
        places.add(prior.column(0).data_ptr())
    assert places == {first.data_ptr()}


def test_loops_with_bounds_share_with_those_that_draw() -> None:
    domain = Arms(uniform(40, 1, seed=7))
    recipe = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2)
    loops = [
        BanditLoop(domain, recipe, acquisition, seed=0)
        for acquisition in (
            GPThompsonSampling.with_options(width=1.0),
            GPUpperConfidenceBound.with_options(width=1.0),
        )
    ]
    for loop in loops:
        loop.ask()
    one, other = (loop._chooser._stream.engine.posterior.prior for loop in loops)
    assert one is other

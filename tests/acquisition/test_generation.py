"""The batched search: slopes of any acquisition function, optima as good as BoTorch's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition import PosteriorMean, UpperConfidenceBound
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import BotorchError
from botorch.generation import gen_candidates_scipy
from botorch.models import ModelListGP, SingleTaskGP
from botorch.optim.initializers import gen_batch_initial_conditions
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from models.textbook import double
from torch import Tensor

from botorch_bandits import (
    BanditGP,
    CandidatesUpperConfidenceBound,
    CensoredUpperConfidenceBound,
    Exponential,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
    WidthUpperConfidenceBound,
    gen_candidates_batched,
)
from botorch_bandits import optim as generation
from botorch_bandits.confidence import ConstantWidth
from botorch_bandits.models import candidate_grid

from .cases import uniform


def gp(
    num_rows: int = 20,
    dim: int = 2,
    nu: float = 2.5,
    noise: float = 0.01,
    lengthscale: float = 0.3,
    seed: int = 0,
) -> BanditGP:
    X = uniform(num_rows, dim, seed=seed)
    Y = torch.sin(6.0 * X[:, :1]) + torch.cos(5.0 * X[:, -1:]) - 0.5 * X.square().sum(-1, True)
    Y = Y + 0.1 * (uniform(num_rows, 1, seed=seed + 1000) - 0.5)
    base = RBFKernel() if nu == math.inf else MaternKernel(nu=nu)
    kernel = ScaleKernel(base.double()).double()
    kernel.base_kernel.lengthscale = double(lengthscale)
    kernel.outputscale = double(1.5)
    return BanditGP(X, Y, kernel=kernel, noise=noise)


def ucb(model: Any, width: float = 2.0, **options: Any) -> GPUpperConfidenceBound:
    return GPUpperConfidenceBound(model, width=width, **options)


def unit_box(dim: int = 2) -> Tensor:
    return torch.stack([torch.zeros(dim), torch.ones(dim)]).double()


def starts(acquisition: Any, bounds: Tensor, seed: int = 0, num: int = 10) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return gen_batch_initial_conditions(acquisition, bounds, 1, num, 256)


def both(acquisition: Any, bounds: Tensor, seed: int = 0, **given: Any) -> tuple[Tensor, ...]:
    """Our candidates and values and BoTorch's, from the same starting points."""
    X = starts(acquisition, bounds, seed)
    ours = gen_candidates_batched(X, acquisition, bounds[0], bounds[1], **given)
    theirs = gen_candidates_scipy(X, acquisition, bounds[0], bounds[1], **given)
    return *ours, *theirs


ONE = torch.ones(1, dtype=torch.float64)


class Penalized(WidthUpperConfidenceBound):
    def forward(self, X: Tensor) -> Tensor:
        return super().forward(X) - X.squeeze(-2).square().sum(-1)


def data() -> tuple[Tensor, Tensor]:
    return gp().train_inputs[0], uniform(20, 1, seed=3)


def single_task(model: BanditGP) -> SingleTaskGP:
    return SingleTaskGP(model.train_inputs[0], model.train_targets.unsqueeze(-1))


def inside(X: Tensor, bounds: Tensor) -> bool:
    return bool((X.ge(bounds[0]) & X.le(bounds[1])).all())


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collects the calls that reach BoTorch's generator."""
    calls: list[Any] = []

    def record(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        calls.append(kwargs)
        return gen_candidates_scipy(*args, **kwargs)

    monkeypatch.setattr(generation, "gen_candidates_scipy", record)
    return calls


# --- values and slopes ----------------------------------------------------------------------


def slopes_of(acquisition: Any, X: Tensor) -> tuple[Tensor, Tensor]:
    """The values and slopes that the search sees."""
    evaluate = generation.values_and_slopes(acquisition, X.device)
    value, slope = evaluate(X.numpy(), np.zeros(len(X), dtype=np.int64))
    return torch.from_numpy(value), torch.from_numpy(slope)


def penalized(**options: Any) -> LagrangianUpperConfidenceBound:
    models = ModelListGP(gp(), gp(seed=1))
    return LagrangianUpperConfidenceBound(models, multipliers=[0.7], width=1.5, **options)


X_PENDING = uniform(2, 2, seed=8)
SEARCHED: dict[str, Any] = {
    **{f"bound, nu = {nu}": lambda nu=nu: ucb(gp(nu=nu), 3.0) for nu in (0.5, 1.5, 2.5, math.inf)},
    "minus the lower bound": lambda: ucb(gp(), maximize=False, X_pending=X_PENDING),
    "another kernel": lambda: ucb(BanditGP(*data(), LinearKernel(), noise=0.05)),
    "SingleTaskGP": lambda: ucb(single_task(gp())),
    "subclass": lambda: Penalized(gp(), ConstantWidth(2.0)),
    "transform": lambda: ucb(gp(), posterior_transform=ScalarizedPosteriorTransform(-ONE)),
    "expected improvement": lambda: LogExpectedImprovement(gp(), augmented=True),
    "probability of improvement": lambda: LogProbabilityOfImprovement(gp(), X_pending=X_PENDING),
    "censored": lambda: CensoredUpperConfidenceBound(
        gp(), minimum=-3.0, outcome_bound=6.0, width=1.0, X_pending=X_PENDING
    ),
    "a path": lambda: GPThompsonSampling(gp(), width=1.7, maximize=False, seed=5),
    "BoTorch's bound": lambda: UpperConfidenceBound(gp(), beta=4.0),
    "BoTorch's mean": lambda: PosteriorMean(single_task(gp())),
    "a list of priors": lambda: CandidatesUpperConfidenceBound(
        BanditGP.with_candidates(candidate_grid([0.2, 0.4]))(*data())
    ),
    "penalized reward": lambda: penalized(),
    "penalized reward, separate": lambda: penalized(separate_bounds=True),
    "penalized reward, exponential": lambda: penalized(penalty=Exponential(0.3)),
    "a penalized path": lambda: LagrangianThompsonSampling(
        ModelListGP(gp(), gp(seed=1)),
        multipliers=[0.7],
        penalty=Exponential(0.5),
        width=1.3,
        seed=5,
    ),
}


@pytest.mark.parametrize("name", SEARCHED)
def test_slopes_are_those_of_differences_and_the_optimum_is_no_worse(
    name: str, handed_over: list[Any]
) -> None:
    acqf, step = SEARCHED[name](), 1e-5
    X = uniform(7, 2, seed=9)
    value, slope = slopes_of(acqf, X)
    with torch.no_grad():
        ends = [
            torch.stack([acqf((X + sign * step * e).unsqueeze(-2)) for e in torch.eye(2).double()])
            for sign in (1.0, -1.0)
        ]
        assert torch.allclose(value, acqf(X.unsqueeze(-2)), rtol=0.0, atol=1e-10)
    expected = (ends[0] - ends[1]).mT / (2.0 * step)
    assert torch.allclose(slope, expected, rtol=1e-5, atol=1e-5)
    _, found, _, botorchs = both(acqf, unit_box())
    assert float(found.max()) >= float(botorchs.max()) - 1e-6
    assert not handed_over


def test_a_clamped_variance_has_no_slope() -> None:
    model = gp(noise=1e-7)  # at its own rows, the variance is rounding error
    at_rows = slopes_of(ucb(model, width=1e3), model.train_inputs[0])[1]
    assert torch.isfinite(at_rows).all()


# --- optima ---------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome_scale", [1e-5, 1e5])
def test_tolerances_follow_the_scale_of_the_outcomes(outcome_scale: float) -> None:
    model = gp(30)
    kernel = ScaleKernel(model.covar_module.base_kernel).double()
    kernel.outputscale = double(1.5 * outcome_scale**2)
    X, Y = model.train_inputs[0], model.train_targets.unsqueeze(-1)
    noise = max(0.01 * outcome_scale**2, 1e-9)
    acqf = ucb(BanditGP(X, outcome_scale * Y, kernel=kernel, noise=noise))
    candidates, value, _, expected = both(acqf, unit_box())
    assert float(value.max()) >= float(expected.max()) - 1e-9 * outcome_scale
    best = candidates[value.argmax()]
    free = (best > 0.0) & (best < 1.0)
    gradient = slopes_of(acqf, best)[1]
    assert (gradient[free].abs() <= 1e-4 * outcome_scale).all()


def test_candidates_lie_in_the_box_to_the_last_bit_and_reach_its_corners() -> None:
    bounds = double([[0.1, -0.7], [0.3, 0.1]])  # sides are rounded
    model = BanditGP(bounds.mean(0, True), bounds[:1, :1], RBFKernel())
    X, *_ = both(ucb(model, width=5.0), bounds)
    assert inside(X, bounds)
    assert (X.eq(bounds[0]) | X.eq(bounds[1])).all()  # uncertainty grows toward the corners


def test_fixed_features_stay() -> None:
    acqf = ucb(gp(40, 3))
    for fixed in ({1: 0.25}, {0: 0.0, 2: torch.tensor(0.5)}, {0: 0.1, 1: 0.2, 2: 0.3}):
        if len(fixed) < 3:
            X, value, X_botorch, expected = both(acqf, unit_box(3), fixed_features=fixed)
            assert X.shape == X_botorch.shape
            assert float(value.max()) >= float(expected.max()) - 1e-6
        else:
            X = starts(acqf, unit_box(3))
            X, value = gen_candidates_batched(X, acqf, 0.0, 1.0, fixed_features=fixed)
        for i, fixed_value in fixed.items():
            assert (X[..., i] == float(fixed_value)).all()
        assert torch.allclose(value, acqf(X), atol=1e-9)


def test_starts_outside_the_bounds_are_refused() -> None:
    with pytest.raises(BotorchError, match="out of bounds"):
        gen_candidates_batched(uniform(3, 1, 2, seed=0) + 2.0, ucb(gp()), 0.0, 1.0)


def test_a_limit_of_steps() -> None:
    acqf = ucb(gp(40))
    X = starts(acqf, unit_box())
    _, few = gen_candidates_batched(X, acqf, 0.0, 1.0, options={"maxiter": 2})
    _, many = gen_candidates_batched(X, acqf, 0.0, 1.0)
    assert (few >= acqf(X) - 1e-12).all()
    assert float(few.sum()) < float(many.sum())


# --- what is handed over --------------------------------------------------------------------


LEFT = (torch.tensor([0]), -ONE, -0.5)


@pytest.mark.parametrize(
    "given",
    [
        {"inequality_constraints": [LEFT]},
        {"equality_constraints": [LEFT]},
        {"options": {"maxiter": 50, "maxls": 10}},
        {"timeout_sec": 5.0},
        {"fixed_features": {0: uniform(10, seed=2)}},
    ],
    ids=["inequality", "equality", "options", "time", "fixed in each restart"],
)
def test_what_it_cannot_do_is_handed_over(given: dict[str, Any], handed_over: list[Any]) -> None:
    acqf, bounds = ucb(gp()), unit_box()
    X = starts(acqf, bounds)
    X[..., 0] = 0.5
    candidates, _ = gen_candidates_batched(X, acqf, bounds[0], bounds[1], **given)
    assert len(handed_over) == 1
    for name, value in given.items():
        assert handed_over[0][name] is value
    assert candidates.shape == X.shape


def test_joint_points_are_handed_over(handed_over: list[Any]) -> None:
    X = uniform(2, 3, 2, seed=0)
    found, values = gen_candidates_batched(X, ucb(gp()), 0.0, 1.0, options={"maxiter": 3})
    assert len(handed_over) == 1
    assert found.shape == X.shape
    assert bool((values >= ucb(gp())(X) - 1e-9).all())

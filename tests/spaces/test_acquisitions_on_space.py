"""Every acquisition function that a loop takes plays a space of all kinds of parameters."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel

from botorch_bandits import (
    AdditiveEpochs,
    AMMUpperConfidenceBound,
    BanditGP,
    BanditGPRecipe,
    BanditLoop,
    Categorical,
    Censored,
    ChangePointUpperConfidenceBound,
    DMMUpperConfidenceBound,
    Fixed,
    Float,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    Integer,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
    MeanOnly,
    PrimalDual,
    Space,
    VarianceOnly,
)

DISCRETE = {
    "depth": Integer(2, 4),
    "units": Integer(1, 3, log=True),
    "kernel": Categorical(["rbf", "poly", None]),
    "size": Categorical([16, 64], ordered=True),
    "data": Fixed("digits"),
}
FEW = Space(DISCRETE)  # 54 points, all of which are looked at
MIXED = Space(
    {"C": Float(1e-3, 1e3, log=True), "rate": Float(-1.0, 2.0), **DISCRETE},
    num_restarts=1,
    raw_samples=4,
)
SPACES = pytest.mark.parametrize("space", [MIXED, FEW], ids=["mixed", "few"])


def reward(values: dict[str, Any]) -> float:
    off = (math.log10(values.get("C", 1.0)) - 1.0) ** 2 / 4.0 + (values.get("rate", 0.5) - 0.5) ** 2
    return -off - abs(values["depth"] - 3) / 5.0 + (values["kernel"] == "poly")


def model(space: Space, num_contexts: int = 0) -> BanditGPRecipe:
    ends = [[0.0] * num_contexts, [1.0] * num_contexts] if num_contexts else None
    return BanditGP.with_kernel(
        MaternKernel(nu=2.5, ard_num_dims=space.num_columns + num_contexts),
        noise=0.01,
        lengthscale=0.5,
        input_transform=space.input_transform(ends),
    )


def play(loop: BanditLoop, space: Space) -> None:
    """Play some rounds; each outcome arrives when the next query is under way."""
    settings = loop.settings
    pending = None
    num_rounds = 8 if space is FEW else 4  # searches of a mixed space take the time
    for i in range(num_rounds):
        query = loop.ask(context=[i / 8.0]) if settings.context_dim else loop.ask()
        values = query.parameters
        assert values is not None
        assert query.x.dtype == torch.float64
        assert torch.equal(space.check_point("x", query.x), query.x)
        assert values == space.decode(query.x)
        assert [type(values[name]) for name in ("depth", "units", "size")] == [int] * 3
        assert query.origin == ("initial" if i < 2 else "acquisition")
        if pending is not None:
            constraints = [pending.parameters["depth"] / 4.0 - 0.6] * settings.num_constraints
            loop.tell(pending.id, reward(pending.parameters), constraints=constraints or None)
        pending = query
    assert loop.history.num_arrived == num_rounds - 1


@SPACES
@pytest.mark.parametrize(
    "acquisition",
    [
        GPThompsonSampling.with_options(),
        GPThompsonSampling.with_options(width=2.0, pending="redraw"),
        ImprovedUpperConfidenceBound.with_options(),
        GPUpperConfidenceBound.with_options(width=2.0),
        AMMUpperConfidenceBound.with_options(),
        ChangePointUpperConfidenceBound.with_options(horizon=50, smoothness=2.5),
        DMMUpperConfidenceBound.with_options(),
        LogExpectedImprovement.with_options(),
        LogProbabilityOfImprovement.with_options(),
        MeanOnly.with_options(),
        VarianceOnly.with_options(),
    ],
    ids=lambda recipe: recipe.acquisition_class.__name__,
)
def test_with_a_query_pending(acquisition: Any, space: Space) -> None:
    play(BanditLoop(space, model(space), acquisition, num_initial=2), space)


@SPACES
@pytest.mark.parametrize(
    "acquisition", [GPThompsonSampling.with_options(), ImprovedUpperConfidenceBound.with_options()]
)
def test_in_contexts_with_censored_feedback(acquisition: Any, space: Space) -> None:
    loop = BanditLoop(
        space,
        model(space, num_contexts=1),
        acquisition,
        num_initial=2,
        context_dim=1,
        feedback=Censored(minimum=-12.0, outcome_bound=14.0),
    )
    play(loop, space)


@SPACES
@pytest.mark.parametrize(
    ("acquisition", "constraints"),
    [
        (LagrangianThompsonSampling, PrimalDual(1, max_multiplier=2.0, divisor=1.0)),
        (LagrangianUpperConfidenceBound, PrimalDual(1, max_multiplier=2.0, divisor=1.0)),
        (GPThompsonSampling, AdditiveEpochs(1, epoch_length=3)),
    ],
)
def test_under_constraints(acquisition: Any, constraints: Any, space: Space) -> None:
    options = acquisition.with_options()
    play(BanditLoop(space, model(space), options, num_initial=2, constraints=constraints), space)


def test_the_default_model_is_drawn_from_in_contexts() -> None:
    acquisition = GPThompsonSampling.with_options()
    play(BanditLoop(MIXED, None, acquisition, num_initial=2, context_dim=1), MIXED)

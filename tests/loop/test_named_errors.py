"""Errors name the argument, the value and the remedy, before anything is recorded."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gpytorch
import pytest
import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.models import SingleTaskGP

from botorch_bandits import (
    Arms,
    BanditLoop,
    Box,
    Categorical,
    Exponential,
    Float,
    GPUpperConfidenceBound,
    LogExpectedImprovement,
    MultiplicativeEpochs,
    RandomSearch,
    Space,
    run,
)
from botorch_bandits.constraints import MultiplierOverflowError
from tests.records import rebuilt

BOX = Box([[0.0], [1.0]])
ARMS = Arms(torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1))


class NowhereGP(SingleTaskGP):
    """A model whose mean is not finite."""

    def forward(self, x: torch.Tensor) -> Any:
        prior = super().forward(x)
        return gpytorch.distributions.MultivariateNormal(
            prior.mean * math.nan, prior.lazy_covariance_matrix
        )


DOMAINS = {
    "box": BOX,
    "arms": ARMS,
    "whole numbers": Box([[0.0, 0.0], [1.0, 3.0]], integer_dims=[1]),
    "part of a box": Box(
        [[0.0, 0.0], [1.0, 1.0]], inequality_constraints=[([0, 1], [-1.0, -1.0], -1.2)]
    ),
    "space": Space({"a": Float(0.0, 1.0), "c": Categorical(["x", "y"])}),
}

RULES: dict[str, Any] = {
    "GPUpperConfidenceBound": GPUpperConfidenceBound.with_options(width=2.0),
    "LogExpectedImprovement": LogExpectedImprovement.with_options(),
    "UpperConfidenceBound": lambda model, pending, best: UpperConfidenceBound(model, beta=2.0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("domain", DOMAINS)
def test_a_model_that_is_not_finite_is_named(domain: str, rule: str) -> None:
    """On boxes it was an error of a random draw in BoTorch."""
    loop = BanditLoop(DOMAINS[domain], NowhereGP, RULES[rule], num_initial=2)
    for i in range(2):
        loop.tell(loop.ask().id, float(i))
    message = (
        rf"acquisition function \({rule}\) is nan at \[.*\], where the model \(NowhereGP\) has the "
        r"mean \[nan\] and the variance \[\d.*\]; both must be finite. Check model="
    )
    with pytest.raises(ValueError, match=message):
        loop.ask()
    assert loop.history.num_queries == 2


def test_other_errors_of_a_search_stay_as_they_are() -> None:
    class Broken(UpperConfidenceBound):
        def forward(self, X: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("the machine is on fire")

    loop = BanditLoop(BOX, SingleTaskGP, lambda model, pending, best: Broken(model, beta=2.0))
    loop.attach([0.5], 1.0)
    loop.attach([0.25], 0.0)
    with pytest.raises(RuntimeError, match="machine is on fire"):
        loop.ask()


EXACT: dict[str, Any] = {"num_constraints": 1, "epoch_length": 2, "penalty": Exponential(1.0)}
HELD = MultiplicativeEpochs(**EXACT, max_multiplier=1e6)


def with_rule(rule: MultiplicativeEpochs, **settings: Any) -> BanditLoop:
    return BanditLoop(ARMS, None, RandomSearch(), constraints=rule, **settings)


def costly(x: torch.Tensor) -> tuple[float, list[float]]:
    return float(x), [60.0]


@pytest.mark.filterwarnings("ignore::botorch_bandits.constraints.NoisyConstraintsWarning")
def test_a_run_goes_on_after_multipliers_overflow(tmp_path: Path) -> None:
    """What was told is not lost, nor is the query whose outcome was refused."""
    with with_rule(MultiplicativeEpochs(**EXACT), storage=tmp_path / "first.db") as loop:
        with pytest.raises(Exception, match=r"a multiplier .* attach them to a new loop"):
            run(loop, costly, 20, progress=False)
        history, refused = loop.history, loop.history.pending()[0].id
    for more in ({}, {"storage": tmp_path / "second.db"}):
        with with_rule(HELD, **more) as loop:
            rebuilt(loop, history).tell(refused, 0.5, [60.0])
            result = run(loop, costly, 20, progress=False)
            assert result.history.num_arrived == refused + 21
            assert loop.multipliers[0] == pytest.approx(1e6)
    with with_rule(MultiplicativeEpochs(**EXACT), storage=tmp_path / "first.db") as loop:
        assert loop.history.state(refused) == "pending"


@pytest.mark.filterwarnings("ignore::botorch_bandits.constraints.NoisyConstraintsWarning")
def test_a_loop_goes_on_where_a_retraction_made_multipliers_overflow() -> None:
    loop = with_rule(MultiplicativeEpochs(**EXACT))
    for value in (-200.0, 100.0) * 20:
        loop.tell(loop.ask().id, 0.5, [value])
    for query_id in range(0, 40, 2):  # these held the multiplier down
        loop.retract(query_id, "another unit")
    with pytest.raises(
        MultiplierOverflowError, match=r"continue from .* attach them to a new loop"
    ):
        loop.ask()
    other = rebuilt(with_rule(HELD), loop.history)
    assert other.ask().id == 40
    assert other.multipliers[0] == pytest.approx(1e6)

"""The round of a point is at least the rows of the model plus the pending points plus 1."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.models import MultiTaskGP
from botorch.utils.testing import MockModel, MockPosterior
from gpytorch.kernels import RBFKernel
from models.textbook import line

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
)

X = line(0.0, 1.0, 9)
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "gp": (GPUpperConfidenceBound, {"num_arms": 9}),
    "improved": (ImprovedUpperConfidenceBound, {"rkhs_bound": 1.0, "noise_bound": 0.1}),
}


def model(num_rows: int = 6, repeats: int = 1) -> BanditGP:
    rows = X[:num_rows].repeat(repeats, 1)
    return BanditGP(rows, rows.sin(), RBFKernel(), noise=1.0)


@pytest.mark.parametrize("name", CASES)
def test_a_round_that_is_too_small_is_refused(name: str) -> None:
    """The width of Theorem 1 was 3.85 in the place of 5.53."""
    cls, options = CASES[name]
    with pytest.raises(ValueError, match="round_number is 6"):
        cls(model(), **options, round_number=6)
    cls(model(), **options, round_number=7)
    cls(model(), **options, round_number=100)


@pytest.mark.parametrize("name", ["gp", "improved"])
def test_pending_points_count(name: str) -> None:
    cls, options = CASES[name]
    with pytest.raises(ValueError, match="6 rows and 2"):
        cls(model(), **options, X_pending=X[:2], round_number=8)
    cls(model(), **options, X_pending=X[:2], round_number=9)


def test_observations_count_where_a_row_is_the_mean_of_several() -> None:
    recipe = BanditGP.with_kernel(RBFKernel(), noise=1.0)
    rows = X[:3].repeat(4, 1)
    collapsed = recipe.builder(0, True)(rows, rows.sin())
    with pytest.raises(ValueError, match=r"12 rows, .* at"):
        GPUpperConfidenceBound(collapsed, num_arms=9, round_number=12)
    assert GPUpperConfidenceBound(collapsed, num_arms=9).round_number == 13


def test_a_model_that_does_not_show_its_rows_takes_any_round() -> None:
    posterior = MockPosterior(
        mean=torch.zeros(1, 1, dtype=torch.float64), variance=torch.ones(1, 1, dtype=torch.float64)
    )
    assert GPUpperConfidenceBound(MockModel(posterior), num_arms=9, round_number=1).width > 0
    tasks = torch.cat([torch.zeros(6, 1), torch.ones(6, 1)]).double()
    rows = torch.cat([X[:6].repeat(2, 1), tasks], dim=-1)
    several = MultiTaskGP(rows, rows[:, :1].sin(), task_feature=-1, output_tasks=[0])
    assert GPUpperConfidenceBound(several, num_arms=9, round_number=7).round_number == 7


def more_rows(train_X: torch.Tensor, train_Y: torch.Tensor) -> BanditGP:
    """A user's model of outcomes and of five rows that were known before."""
    return BanditGP(
        torch.cat([X[:5], train_X]), torch.cat([X[:5].sin(), train_Y]), RBFKernel(), noise=1.0
    )


def test_loops_count_their_rounds_whatever_rows_a_model_has() -> None:
    loop = BanditLoop(Arms(X), more_rows, GPUpperConfidenceBound.with_options(num_arms=9), seed=0)
    for number in range(1, 5):
        query = loop.ask()
        loop.tell(query.id, 0.0)
        if number > 1:
            assert query.diagnostics["width"] == pytest.approx(
                float(GPUpperConfidenceBound(model(0), num_arms=9, round_number=number).width)
            )

"""The value of several points is the sum of values of one after the other, for every class."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from pairwise import pairwise
from torch import Tensor

from botorch_bandits import (
    BanditGP,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
    CensoredUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
)
from botorch_bandits.models import candidate_grid

from .cases import (
    ACQUISITIONS,
    MODELS,
    AcquisitionCase,
    ModelCase,
    named,
    rows,
    uniform,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning"),
    pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.BadInitialCandidatesWarning"),
    pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.OptimizationWarning"),
    pytest.mark.filterwarnings("ignore::botorch_bandits.acquisition.RingingWarning"),
]

VALUED = [case for case in ACQUISITIONS if case.expected is not None]


def ids(case: Any) -> str:
    return str(case) if isinstance(case, int) else case.name.replace(", ", ",").replace(" ", "_")


def of_kinds(acquisition: AcquisitionCase, case: ModelCase, *others: Any) -> bool:
    is_censored_batch = acquisition.name.startswith("censored") and case.kind == "batch"
    return case.kind not in acquisition.refuses and not is_censored_batch


@pytest.mark.parametrize(
    ("acquisition", "case", "num_pending"),
    pairwise(VALUED, MODELS, (0, 2), allowed=of_kinds),
    ids=ids,
)
def test_value_of_several_points_is_the_sum_of_textbook_values(
    acquisition: AcquisitionCase, case: ModelCase, num_pending: int
) -> None:
    # the i-th point is valued by the dense computation with the points before it pending
    model = case.build()
    reference = case.reference(model)
    pending = case.points(num_pending, seed=4)
    acqf = acquisition.make(case, model, X_pending=pending if num_pending else None)
    X = case.points(6, seed=3).reshape(2, 3, 2)
    expected = []
    for points in X:
        total = 0.0
        for i in range(3):
            known = torch.cat([pending, points[:i]])
            given = known if len(known) else None
            total = total + acquisition.values(case, reference, points[i : i + 1], given)[0]
        expected.append(total)
    values = acqf(X.unsqueeze(1) if case.kind == "batch" else X).detach()
    assert values.shape == ((2, 2) if case.kind == "batch" else (2,))
    assert torch.allclose(values, torch.stack(expected), rtol=1e-8, atol=1e-8)


DRAWN = [case for case in ACQUISITIONS if case.scale_of_draw is not None]


@pytest.mark.parametrize(
    ("acquisition", "case", "num_pending"),
    pairwise(DRAWN, MODELS, (0, 2), allowed=of_kinds),
    ids=ids,
)
def test_several_points_have_a_draw_each(
    acquisition: AcquisitionCase, case: ModelCase, num_pending: int
) -> None:
    # the i-th point has the i-th draw
    pending = case.points(num_pending, seed=4) if num_pending else None
    acqf = acquisition.make(case, X_pending=pending)
    other = acquisition.make(case, X_pending=pending)
    points = case.choices[::4][:6] if acquisition.on_choices else case.points(6, seed=3)
    X = points.reshape(2, 3, 2)
    X = X.unsqueeze(1) if case.kind == "batch" else X
    expected = 0.0
    for i in range(3):
        expected = expected + other(X[..., i : i + 1, :]).detach()
        other.set_X_pending(pending)
    assert torch.allclose(acqf(X).detach(), expected, rtol=1e-10, atol=1e-10)
    assert torch.equal(acqf(X), acqf(X))
    last = acqf(X).detach()
    acqf.set_X_pending(pending)
    assert not torch.allclose(acqf(X), last, atol=1e-3)


GRADIENTS = ("GP-UCB", "EI", "DMM", "variance only", "GP-TS", "censored TS")


@pytest.mark.parametrize("model", ["SingleTaskGP, two outputs, scalarized", "BanditGP"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_go_through_all_points(name: str, model: str) -> None:
    acquisition, case = named(ACQUISITIONS, name), named(MODELS, model)
    acqf = acquisition.make(case, X_pending=case.points(2, seed=4))
    X = case.points(4, seed=3).reshape(2, 2, 2).requires_grad_()
    assert torch.autograd.gradcheck(acqf, (X,))


def test_censored_points_have_a_joint_value_and_no_gradient() -> None:
    options = {"outcome_bound": 7.0, "minimum": -2.0, "X_pending": uniform(2, 2, seed=4)}
    points = uniform(3, 2, seed=3)
    acqf = CensoredUpperConfidenceBound(named(MODELS, "BanditGP").build(), **options)
    assert acqf(points).shape == (1,)
    with pytest.raises(UnsupportedError, match="sequential=True"):
        acqf(points.requires_grad_())


def check_one_after_the_other(acqf: Any, points: Tensor, pending: Tensor) -> None:
    """The joint value is the sum of values of which each knows the points before."""
    assert torch.autograd.gradcheck(acqf, (points.clone().requires_grad_(),))
    together, total = acqf(points), 0.0
    for i in range(len(points)):
        acqf.set_X_pending(torch.cat([pending, points[:i]]))
        total = total + acqf(points[i : i + 1])
    assert torch.allclose(together, total, rtol=1e-10, atol=1e-10)


def check_a_draw_each(draw: Any, points: Tensor) -> None:
    together, total = draw(points), 0.0
    for i in range(len(points)):
        total = total + draw(points[i : i + 1])
        draw.set_X_pending(points[: i + 1])
    assert torch.allclose(together, total, rtol=1e-12)


def test_lists_of_priors() -> None:
    X, Y = rows()
    model = BanditGP.with_candidates(candidate_grid([0.1, 0.5], scales=[1.0, 4.0]))(X, Y[:, :1])
    pending, points = uniform(2, 2, seed=4), uniform(3, 2, seed=3)
    for options in ({"num_arms": 50}, {"form": "mixture"}, {"num_arms": 50, "maximize": False}):
        acqf = CandidatesUpperConfidenceBound(model, X_pending=pending, **options)
        check_one_after_the_other(acqf, points, pending)
    draw = CandidatesThompsonSampling(model, seed=2)
    check_a_draw_each(draw, points)


def test_penalized_rewards() -> None:
    case = named(MODELS, "SingleTaskGP, two outputs, scalarized")
    pending, points = case.points(2, seed=4), case.points(3, seed=3)
    for options in ({}, {"separate_bounds": True}):
        acqf = LagrangianUpperConfidenceBound(
            case.build(), multipliers=[1.5], width=2.0, X_pending=pending, **options
        )
        check_one_after_the_other(acqf, points, pending)
    draw = LagrangianThompsonSampling(case.build(), multipliers=[1.5], seed=2)
    check_a_draw_each(draw, points)

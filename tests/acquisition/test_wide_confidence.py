"""Widths that dwarf the outcomes are told once, and healthy ones are not."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import RBFKernel
from models.textbook import double, uniform

from botorch_bandits import (
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    CensoredUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.acquisition import WideConfidenceWarning, upper_confidence_bound

SQUARE = double([[0.0, 0.0], [1.0, 1.0]])
X = uniform(60, 2, seed=0)
Y = (6.0 * X[:, :1]).sin() + X[:, 1:]

NUMBERS = itertools.count()


def fresh(cls: Any) -> Any:
    """A subclass of which nothing was told yet."""
    return type(f"{cls.__name__}{next(NUMBERS)}", (cls,), {})


def model(num_rows: int, lengthscale: float = 0.2) -> SingleTaskGP:
    """A model whose parameters are free, as a fitted one's are."""
    kernel = RBFKernel().double()
    kernel.lengthscale = double(lengthscale)
    return SingleTaskGP(
        X[:num_rows],
        Y[:num_rows],
        covar_module=kernel,
        input_transform=Normalize(2, bounds=SQUARE),
        outcome_transform=Standardize(1),
    ).eval()


def told(make: Callable[[], Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
    return [each for each in caught if each.category is WideConfidenceWarning]


def bound(num_rows: int, cls: Any = GPUpperConfidenceBound, **options: Any) -> Any:
    return fresh(cls)(model(num_rows), **options)


def test_the_reason_has_a_remedy() -> None:
    with pytest.warns(WideConfidenceWarning) as caught:
        fresh(ImprovedUpperConfidenceBound)(model(20), rkhs_bound=40.0, noise_bound=0.1)
    (warning,) = caught
    text = str(warning.message)
    assert re.match(r"ImprovedUpperConfidenceBound\d+: the width is out of proportion", text)
    assert "Leave the bounds or width= out, give smaller ones" in text
    assert warning.filename == __file__  # the line of whoever built it


def test_the_point_is_chosen_by_its_deviation_where_it_warns() -> None:
    wide = model(20)
    assert told(lambda: fresh(GPUpperConfidenceBound)(wide, width=30.0))
    grid = uniform(4000, 1, 2, seed=1)
    with torch.no_grad():
        posterior = wide.posterior(grid)
        deviation = posterior.variance.sqrt().reshape(-1)
        chosen = (posterior.mean.reshape(-1) + 30.0 * deviation).argmax()
    assert deviation[chosen] > upper_confidence_bound.SHARE_OF_EXPLORATION * deviation.max()


@pytest.mark.parametrize(
    "make",
    [
        lambda: bound(20, width=2.0),
        lambda: bound(20, ImprovedUpperConfidenceBound),
        lambda: bound(20, GPThompsonSampling, seed=0),
        lambda: bound(9, width=30.0),  # nobody knows the spread
        # all is known
        lambda: fresh(GPUpperConfidenceBound)(model(60, lengthscale=2.0), width=5.0),
        # whoever gives the prior says how large the reward is
        lambda: fresh(GPUpperConfidenceBound)(BanditGP(X, Y, RBFKernel(), noise=0.01), width=30.0),
    ],
    ids=["constant", "default", "draw", "few", "explored", "given prior"],
)
def test_healthy_widths_are_silent(make: Any) -> None:
    assert told(make) == []


def test_draws_and_censored_bounds_are_looked_at_too() -> None:
    assert told(lambda: bound(20, GPThompsonSampling, width=30.0, seed=0))
    options = {"minimum": -2.0, "outcome_bound": 5.0, "rkhs_bound": 20.0, "noise_bound": 0.1}
    assert told(lambda: bound(20, CensoredUpperConfidenceBound, **options, X_pending=X[40:42]))
    first = ScalarizedPosteriorTransform(double([1.0, 0.0]))
    weighted, cls = ModelListGP(model(20), model(20)), fresh(ImprovedUpperConfidenceBound)
    assert told(lambda: cls(weighted, width=30.0, posterior_transform=first))


def test_a_class_is_told_once_while_the_model_grows() -> None:
    cls = fresh(GPUpperConfidenceBound)
    assert len(told(lambda: [cls(model(n), width=30.0) for n in range(10, 60, 5)])) == 1


@pytest.mark.parametrize("feedback", [None, Censored(minimum=-2.0, outcome_bound=5.0)])
def test_a_loop_tells_it_once_and_names_the_line_that_asks(feedback: Any) -> None:
    # no other test has inputs of three dimensions
    loop = BanditLoop(
        Box([(0.0, 1.0)] * (3 if feedback is None else 4), num_restarts=1, raw_samples=16),
        lambda X, Y: SingleTaskGP(X, Y).eval(),
        ImprovedUpperConfidenceBound.with_options(rkhs_bound=80.0, noise_bound=0.1),
        num_initial=9,
        feedback=feedback,
        seed=0,
    )

    def play() -> None:
        for _ in range(16):
            query = loop.ask()
            loop.tell(query.id, float((6.0 * query.x[0]).sin() + query.x[1]))

    (warning,) = told(play)
    assert warning.filename == __file__

"""Acquisition functions whose user knows no bounds: defaults in prior units, and what they say."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import RBFKernel, ScaleKernel
from models.textbook import double, line, uniform

from botorch_bandits import (
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
)

N, DIM, NOISE, LENGTHSCALE, DELTA = 9, 2, 0.04, 0.4, 0.1
X = uniform(N, DIM, seed=0)
Y = torch.sin(5.0 * X[:, :1]) + X[:, 1:]
LEFT_OUT = {
    "rkhs_bound": "rkhs_bound was not given; the default, 1 prior standard deviation, is not "
    "based on knowledge of this function: give rkhs_bound= if you have a bound",
    "noise_bound": "noise_bound was not given; the default, the standard deviation of the model's "
    "noise, is not based on knowledge of this function: give noise_bound= if you have a bound",
    "outcome_bound": "outcome_bound was not given; the default, a width without its terms, is "
    "not based on knowledge of this function: give outcome_bound= if you have a bound",
}


PLAIN = (
    "no bounds on the function were given; the default width, the constant 1, is not based on "
    "knowledge of this function: a theorem needs {}, and hyperparameters that were fixed "
    "before the data"
)
NEEDED = (
    "rkhs_bound= and noise_bound= (with censored feedback outcome_bound= as well; "
    "GPUpperConfidenceBound: num_arms=)"
)


def model(factor: float = 1.0) -> SingleTaskGP:
    """A model with parameters that this file knows, in outcome units times ``factor``."""
    kernel = RBFKernel().double()
    kernel.lengthscale = double(LENGTHSCALE)
    single = SingleTaskGP(
        X,
        factor * Y,
        covar_module=kernel,
        input_transform=Normalize(DIM, bounds=torch.tensor([[0.0] * DIM, [1.0] * DIM]).double()),
        outcome_transform=Standardize(1),
    )
    single.likelihood.noise = double(NOISE)
    return single.eval()


def gain(n: int = N) -> float:
    """The information gain, from the definition."""
    points = X.numpy()[:n]
    squares = ((points[:, None] - points[None]) ** 2).sum(-1)
    matrix = np.exp(-0.5 * squares / LENGTHSCALE**2)
    return 0.5 * float(np.linalg.slogdet(np.eye(n) + matrix / NOISE)[1])


def printed(delta: float, num_deltas: int = 1) -> float:
    """``B + R sqrt(2 (gain + 1 + ln(1 / delta)))`` with B = 1 and R the noise of the model."""
    return 1.0 + math.sqrt(NOISE) * math.sqrt(2.0 * (gain() + 1.0 + math.log(num_deltas / delta)))


@pytest.mark.parametrize("factor", [1.0, 1e-4, 1e6])
def test_the_width_is_the_printed_one_whatever_outcomes_are_counted_in(factor: float) -> None:
    for acqf, expected in (
        (ImprovedUpperConfidenceBound(model(factor)), printed(DELTA)),
        (GPThompsonSampling(model(factor), seed=0), 1.0),
        (
            GPThompsonSampling(model(factor), rkhs_bound=1.0, units="prior", seed=0),
            printed(DELTA, 2),
        ),
        (AMMUpperConfidenceBound(model(factor)), math.sqrt(1 + 2 * (gain() + math.log(1 / DELTA)))),
        (GPUpperConfidenceBound(model(factor)), 2.0),
        (
            CensoredUpperConfidenceBound(model(factor), minimum=-2.0 * factor),
            printed(DELTA, 2),
        ),
        (
            CensoredUpperConfidenceBound(
                model(factor), minimum=-2.0 * factor, outcome_bound=5.0 * factor
            ),
            1.0
            + (math.sqrt(NOISE) + 5.0 / float(Y.std()))
            * math.sqrt(2.0 * (gain() + 1.0 + math.log(2.0 / DELTA))),
        ),
        (CensoredThompsonSampling(model(factor), minimum=-2.0 * factor, seed=0), 1.0),
    ):
        assert float(acqf.width) == pytest.approx(expected, rel=1e-8), type(acqf).__name__


def test_each_output_of_a_lagrangian_has_the_defaults() -> None:
    outputs = ModelListGP(model(), model(1e3))
    bound = LagrangianUpperConfidenceBound(outputs, multipliers=[1.0])
    draw = LagrangianThompsonSampling(outputs, multipliers=[1.0], seed=0, choices=X)
    assert bound.widths.tolist() == pytest.approx([printed(DELTA / 2)] * 2, rel=1e-8)
    assert draw.widths.tolist() == [1.0, 1.0]
    assert PLAIN.format(NEEDED) in draw.guarantee().gaps
    assert set(LEFT_OUT.values()) - {LEFT_OUT["outcome_bound"]} <= set(bound.guarantee().gaps)


@pytest.mark.parametrize(
    ("cls", "options", "missing"),
    [
        (ImprovedUpperConfidenceBound, {}, ["rkhs_bound", "noise_bound"]),
        (ImprovedUpperConfidenceBound, {"noise_bound": 0.3, "units": "prior"}, ["rkhs_bound"]),
        (GPThompsonSampling, {"rkhs_bound": 2.0, "units": "prior"}, ["noise_bound"]),
        (AMMUpperConfidenceBound, {}, ["rkhs_bound", "noise_bound"]),
        (AMMUpperConfidenceBound, {"rkhs_bound": 2.0, "units": "prior"}, ["noise_bound"]),
        (DMMUpperConfidenceBound, {}, ["rkhs_bound", "noise_bound"]),
        (DMMUpperConfidenceBound, {"rkhs_bound": 9.0, "units": "prior"}, ["noise_bound"]),
        (CensoredUpperConfidenceBound, {"minimum": -2.0}, list(LEFT_OUT)),
        (
            CensoredUpperConfidenceBound,
            {"minimum": -2.0, "outcome_bound": 5.0},
            ["rkhs_bound", "noise_bound"],
        ),
        (
            CensoredThompsonSampling,
            {"minimum": -2.0, "outcome_bound": 5.0, "bounded_outcomes": True},
            ["rkhs_bound"],
        ),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_was_not_given_voids_every_statement_and_is_named(
    cls: Any, options: dict[str, Any], missing: list[str]
) -> None:
    fixed = BanditGP(X, Y, RBFKernel().double(), noise=1.5)  # all else of the theorems holds
    guarantee = cls(fixed, **options).guarantee()
    assert not guarantee.holds
    assert not any(statement.holds for statement in guarantee.statements.values())
    told = [gap for gap in guarantee.gaps if "was not given" in gap]
    assert told == [LEFT_OUT[name] for name in missing]
    assert LEFT_OUT[missing[0]] in guarantee.explain(10_000)


@pytest.mark.parametrize("given", ["rkhs_bound", "noise_bound"])
@pytest.mark.parametrize(
    "cls",
    [
        ImprovedUpperConfidenceBound,
        GPThompsonSampling,
        AMMUpperConfidenceBound,
        DMMUpperConfidenceBound,
    ],
)
def test_one_bound_alone_in_raw_units_is_a_mistake(cls: Any, given: str) -> None:
    other = {"rkhs_bound": "noise_bound", "noise_bound": "rkhs_bound"}[given]
    for make in (lambda: cls(model(), **{given: 0.5}), lambda: cls.with_options(**{given: 0.5})):
        with pytest.raises(
            ValueError, match=f"Give {other}= in the units of the outcomes"
        ) as error:
            make()
        assert cls.__name__ in str(error.value)
        assert f"{other}=None" in str(error.value)
        assert f"{given}=0.5" in str(error.value)


def test_dmm_and_amm_take_multiples_of_the_prior_standard_deviation() -> None:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = double(2500.0)
    scaled = BanditGP(X, 50.0 * Y, kernel, noise=NOISE * 2500.0)
    points = uniform(5, 1, DIM, seed=1)
    for cls in (DMMUpperConfidenceBound, AMMUpperConfidenceBound):
        relative = cls(scaled, rkhs_bound=4.0, noise_bound=0.2, units="prior")
        raw = cls(scaled, rkhs_bound=200.0, noise_bound=10.0)
        assert torch.allclose(relative(points), raw(points), rtol=1e-12)
        assert relative.guarantee().regret.largest == pytest.approx(raw.guarantee().regret.largest)
    refuted = {"rkhs_bound": 0.1, "noise_bound": 0.01}
    with pytest.warns(match=r"norm 0.1 .*exceed \d+\.?\d*"):
        DMMUpperConfidenceBound(scaled, **refuted, units="prior")


@pytest.mark.parametrize(
    ("cls", "domain", "outcome_bound"),
    [
        (ImprovedUpperConfidenceBound, "box", None),
        (ImprovedUpperConfidenceBound, "arms", 2.0),
        (GPThompsonSampling, "arms", None),
        (GPThompsonSampling, "arms", 2.0),
    ],
)
def test_censored_loops_need_no_bounds(cls: Any, domain: str, outcome_bound: float | None) -> None:
    grid = line(0.0, 1.0, 15)
    where = Box([[0.0], [1.0]], num_restarts=1, raw_samples=16) if domain == "box" else Arms(grid)
    recipe = BanditGP.with_kernel(RBFKernel(), noise=0.04, lengthscale=0.3)
    feedback = Censored(minimum=0.0, outcome_bound=outcome_bound, max_delay=3)
    loop = BanditLoop(where, recipe, cls.with_options(), feedback=feedback, seed=1)
    for t in range(5):
        query = loop.ask()
        if t % 2:
            loop.tell(query.id, float(query.x[0]))
    width = loop.ask().diagnostics["width"]
    assert width > (1.0 if outcome_bound or cls is ImprovedUpperConfidenceBound else 0.999)
    told = [gap for gap in loop.guarantee().gaps if re.search("no bounds on|was not given", gap)]
    expected = [LEFT_OUT[name] for name in list(LEFT_OUT)[: 2 if outcome_bound else 3]]
    assert told == ([PLAIN.format(NEEDED)] if cls is GPThompsonSampling else expected)
    remedy = r"needs outcome_bound=.*with_options\(width=2\.0\).*without rkhs_bound= and noise"
    with pytest.raises(ValueError, match=remedy):
        BanditLoop(
            where,
            recipe,
            cls.with_options(rkhs_bound=1.0, noise_bound=0.1),
            feedback=Censored(minimum=0.0),
        )

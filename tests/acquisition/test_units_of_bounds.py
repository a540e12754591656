"""Guarantees say in which units bounds and delays are, and what the user of a drop-in sees to."""

from __future__ import annotations

from typing import Any

import pytest
from botorch.models import ModelListGP
from gpytorch.kernels import RBFKernel, ScaleKernel
from models.textbook import double, line

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Censored,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
)
from botorch_bandits.confidence import CensoredWidth, ConstantWidth

X = line(0.0, 1.0, 7)
BOUNDS: dict[str, Any] = {"rkhs_bound": 2.0, "noise_bound": 0.1, "any_lambda": True}
CENSORED: dict[str, Any] = {**BOUNDS, "minimum": 0.0, "outcome_bound": 1.0}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "improved": (ImprovedUpperConfidenceBound, BOUNDS),
    "thompson": (GPThompsonSampling, {**BOUNDS, "choices": X}),
    "censored": (CensoredUpperConfidenceBound, CENSORED),
    "censored thompson": (CensoredThompsonSampling, {**CENSORED, "choices": X}),
    "lagrangian": (LagrangianUpperConfidenceBound, {**BOUNDS, "multipliers": [1.0]}),
    "lagrangian thompson": (
        LagrangianThompsonSampling,
        {**BOUNDS, "multipliers": [1.0], "choices": X},
    ),
}


def model(name: str) -> Any:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = double(4.0)
    one = BanditGP(X[:4], X[:4].sin(), kernel, noise=0.2)
    return ModelListGP(one, one) if name.startswith("lagrangian") else one


def assumptions(name: str, **options: Any) -> str:
    cls, own = CASES[name]
    guarantee = cls(model(name), **own, **options).guarantee()
    assert guarantee.gaps == ()
    return "\n".join(guarantee.assumptions)


@pytest.mark.parametrize("name", CASES)
def test_bounds_in_prior_units_are_not_worded_as_raw(name: str) -> None:
    assert "multiples of the prior standard deviation" in assumptions(name, units="prior")
    assert "multiples of the prior standard deviation" not in assumptions(name)


def test_the_largest_regret_is_in_raw_units() -> None:
    for units, expected in (("outcome", 4.0), ("prior", 8.0)):
        cls, own = CASES["improved"]
        regret = cls(model("improved"), **own, units=units).guarantee().regret
        assert regret.largest == pytest.approx(expected)


def test_delays_are_told_in_their_unit() -> None:
    for unit in ("rounds", "seconds"):
        loop = BanditLoop(
            Arms(X),
            BanditGP.with_kernel(RBFKernel(), noise=0.2),
            ImprovedUpperConfidenceBound.with_options(**BOUNDS),
            feedback=Censored(minimum=0.0, outcome_bound=1.0, max_delay=3, unit=unit),
        )
        bands = loop.guarantee().bands
        assert bands is not None
        assert f"arrives within max_delay {unit} (ever, if that is None)" in bands.text
    with pytest.raises(ValueError, match="unit is 'days'"):
        CensoredWidth(ConstantWidth(2.0), 1.0, unit="days")


@pytest.mark.parametrize("name", ["censored", "censored thompson"])
@pytest.mark.parametrize("num_pending", [0, 2])
def test_whoever_has_a_loop_of_their_own_sees_to_the_queries(name: str, num_pending: int) -> None:
    told = assumptions(name, X_pending=X[4 : 4 + num_pending])
    assert "X_pending has every query that is waited for" in told
    assert "is a row of the model with the minimum as its outcome" in told
    loop = BanditLoop(
        Arms(X),
        BanditGP.with_kernel(RBFKernel(), noise=0.2),
        ImprovedUpperConfidenceBound.with_options(**BOUNDS),
        feedback=Censored(minimum=0.0, outcome_bound=1.0, max_delay=3),
    )
    assert "X_pending" not in str(loop.guarantee())  # a loop sees to it itself

"""A bound on the information gain is one for the points that it was made of, and for no others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.models import ModelListGP
from gpytorch.kernels import LinearKernel, RBFKernel, ScaleKernel
from models.textbook import double, line
from torch import Tensor

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
)
from botorch_bandits.confidence import (
    DesignGain,
    GainBound,
    GreedyGain,
    KernelizedWidth,
    PriorSummary,
    RKHSWidth,
    WaterFillingGain,
    WidthRule,
)

LENGTHSCALE, LAM = 0.1, 0.05
GRID = line(0.0, 1.0, 40)
THREE = GRID[[0, 20, 39]]
BOX = Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
KINDS: list[Any] = [
    GreedyGain,
    WaterFillingGain,
    DesignGain,
]


def kernel(scale: float = 1.0) -> Any:
    base = RBFKernel().double()
    base.lengthscale = double(LENGTHSCALE)
    if scale == 1.0:
        return base
    scaled = ScaleKernel(base).double()
    scaled.outputscale = double(scale)
    return scaled


def dense(A: Tensor) -> Tensor:
    return torch.exp(-0.5 * (A - A.mT).square() / LENGTHSCALE**2)


def model_on(points: Tensor, noise: float = LAM) -> BanditGP:
    return BanditGP(points, points.sin(), kernel(), noise=noise)


class MyOwn(GainBound):
    """A bound that somebody derived, for a domain that they know."""

    def _bound(self, num_observations: int) -> float:
        return 100.0 + num_observations


RULES: dict[str, Any] = {
    "rkhs": lambda gain: RKHSWidth(2.0, gain, 0.1),
    "kernelized": lambda gain: KernelizedWidth(2.0, 0.1, 0.1, any_lambda=True, explicit_gain=gain),
}


# --- what a bound knows ---------------------------------------------------------------------------


@pytest.mark.parametrize("cls", KINDS)
@pytest.mark.parametrize("scale", [1.0, 9.0])
def test_on_makes_the_matrix_itself(cls: Any, scale: float) -> None:
    made, given = cls.on(GRID, kernel(scale), scale * LAM), cls(dense(GRID), LAM)
    for count in (1, 5, 60):
        assert made(count) == pytest.approx(given(count), abs=1e-8)
    assert made.domain.lam == pytest.approx(LAM, rel=1e-9)
    assert torch.equal(made.domain.points, GRID)


def test_points_are_checked() -> None:
    with pytest.raises(ValueError, match=r"\(3, 1\), but kernel_matrix"):
        WaterFillingGain(dense(GRID), LAM, THREE)
    with pytest.raises(TypeError, match="points"):
        WaterFillingGain(dense(GRID), LAM, GRID.float())


# --- in drop-ins ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("cls", KINDS)
def test_a_bound_below_the_realized_gain_is_refuted_for_every_rule(name: str, cls: Any) -> None:
    model = model_on(GRID)
    rule: WidthRule = RULES[name](cls.on(THREE, kernel(), LAM))
    realized = 0.5 * float(torch.logdet(torch.eye(40) + dense(GRID) / LAM))
    assert realized > cls.on(THREE, kernel(), LAM)(41)
    guarantee = rule.guarantee(PriorSummary(model), 41)
    assert any(f"is below the realized {realized:.4g}" in gap for gap in guarantee.gaps)
    assert RULES[name](cls.on(GRID, kernel(), LAM)).guarantee(PriorSummary(model), 41).gaps == ()


@pytest.mark.parametrize("name", RULES)
def test_a_guarantee_says_for_which_points_the_bound_is(name: str) -> None:
    summary = PriorSummary(model_on(GRID[:3]))
    told = RULES[name](WaterFillingGain(dense(GRID), LAM)).guarantee(summary, 4).assumptions
    assert (
        "the gain bound is for 40 points, this kernel and this noise variance; the points that are "
        "played are among them"
    ) in told
    told = RULES[name](MyOwn()).guarantee(summary, 4).assumptions
    assert "the gain bound is for this domain, this kernel and this noise variance" in told


@pytest.mark.parametrize("name", RULES)
def test_a_bound_of_another_regularization_is_none(name: str) -> None:
    summary = PriorSummary(model_on(GRID[:3]))
    for factor, num_gaps in ((0.5, 0), (1.0, 0), (1.0 + 1e-9, 0), (1.001, 1), (2.0, 1)):
        gain = WaterFillingGain.on(GRID, kernel(), factor * LAM)
        gaps = RULES[name](gain).guarantee(summary, 4).gaps
        assert len(gaps) == num_gaps
        assert all("was made with lam = " in gap for gap in gaps)
    linear = LinearKernel().double()
    linear.variance = double(1.0)
    model = BanditGP(GRID[:3], GRID[:3], linear, noise=LAM)
    gain = WaterFillingGain.on(GRID, linear, LAM)
    assert RULES[name](gain).guarantee(PriorSummary(model), 4).gaps == ()


# --- in loops -------------------------------------------------------------------------------------


def loop_with(gain: GainBound, domain: Any, kind: str = "rkhs", **settings: Any) -> BanditLoop:
    options: dict[str, Any] = {"rkhs_bound": 2.0, "information_gain": gain}
    if kind != "rkhs":
        options.update(noise_bound=0.1, any_lambda=True)
    cls = {
        "rkhs": GPUpperConfidenceBound,
        "improved": ImprovedUpperConfidenceBound,
        "thompson": GPThompsonSampling,
    }[kind]
    prior = BanditGP.with_kernel(kernel(), noise=LAM)
    loop = BanditLoop(domain, prior, cls.with_options(**options), seed=1, **settings)
    return loop


def play(loop: BanditLoop, rounds: int = 3, context: Any = None) -> BanditLoop:
    for _ in range(rounds):
        query = loop.ask() if context is None else loop.ask(context=context)
        loop.tell(query.id, float(query.x.sin().sum()))
    return loop


@pytest.mark.parametrize("kind", ["rkhs", "improved", "thompson"])
def test_in_a_loop_the_arms_must_be_among_the_points(kind: str) -> None:
    for gain in (
        WaterFillingGain.on(GRID, kernel(), LAM),
        WaterFillingGain(dense(GRID), LAM),
        MyOwn(),
    ):
        assert play(loop_with(gain, Arms(GRID), kind)).guarantee().holds
        assert play(loop_with(gain, Arms(THREE), kind)).guarantee().holds
    for gain, words in (
        (WaterFillingGain.on(THREE, kernel(), LAM), "not all arms are among them"),
        (WaterFillingGain.on(GRID + 0.5, kernel(), LAM), "not all arms are among them"),
        (WaterFillingGain(dense(THREE), LAM), "there are 40 arms"),
    ):
        gaps = play(loop_with(gain, Arms(GRID), kind)).guarantee().gaps
        assert any(words in gap for gap in gaps)


@pytest.mark.parametrize("kind", ["rkhs", "improved"])
def test_finitely_many_points_say_nothing_of_a_box(kind: str) -> None:
    """The three points of a box that were believed: 9.1 in use, and 23.0 realized."""
    loop = play(loop_with(WaterFillingGain.on(THREE, kernel(), LAM), BOX, kind))
    assert any("says nothing about a box" in gap for gap in loop.guarantee().gaps)
    assert play(loop_with(MyOwn(), BOX, kind)).guarantee().holds


def test_with_contexts_the_pairs_must_be_among_the_points() -> None:
    contexts = double([[0.0], [1.0]])
    pairs = torch.cartesian_prod(contexts[:, 0], GRID[:, 0])
    for gain, context, words in (
        (WaterFillingGain.on(pairs, kernel(), LAM), 1.0, None),
        (WaterFillingGain.on(pairs, kernel(), LAM), 0.5, "not all arms with the contexts so far"),
        (WaterFillingGain(torch.eye(80, dtype=torch.float64), LAM), 1.0, "were not given"),
    ):
        loop = loop_with(gain, Arms(GRID), context_dim=1)
        guarantee = play(loop, context=double([context])).guarantee()
        assert guarantee.holds == (words is None)
        assert words is None or any(words in gap for gap in guarantee.gaps)


def test_constraints_are_looked_at_too() -> None:
    model = ModelListGP(model_on(GRID[:3]), model_on(GRID[:3]))
    options: dict[str, Any] = {"rkhs_bound": 2.0, "noise_bound": 0.1, "any_lambda": True}
    acquisition = LagrangianUpperConfidenceBound(
        model,
        multipliers=[1.0],
        information_gain=WaterFillingGain.on(GRID, kernel(), 2.0 * LAM),
        **options,
    )
    assert any("was made with lam" in gap for gap in acquisition.guarantee().gaps)
    assert [rule.bound_on_gain().domain.num_points for rule in acquisition.width_rules] == [40, 40]  # type: ignore[union-attr]

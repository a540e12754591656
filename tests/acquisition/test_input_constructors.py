"""What BoTorch's registry builds is what a direct call of the constructor builds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition.input_constructors import (
    ACQF_INPUT_CONSTRUCTOR_REGISTRY,
    get_acqf_input_constructor,
)
from botorch.acquisition.objective import LinearMCObjective, ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.utils.datasets import SupervisedDataset

import botorch_bandits
from botorch_bandits import (
    AMMUpperConfidenceBound,
    BanditAcquisition,
    BanditGP,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
    ChangePointUpperConfidenceBound,
    DMMUpperConfidenceBound,
    Exponential,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
    MeanOnly,
    RandomizedUpperConfidenceBound,
    TopTwoThompsonSampling,
    VarianceOnly,
    WidthUpperConfidenceBound,
)
from botorch_bandits.acquisition import (
    register_input_constructor,
)
from botorch_bandits.models import candidate_grid
from botorch_bandits.penalties import Linear
from botorch_bandits.random_streams import derive_seed

from .cases import DELTA, MODELS, RootOfRound, double, named, rows, uniform
from .test_lagrangian import NOISE, RKHS, igp_widths

BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1}
CENSORED = {**BOUNDS, "minimum": 6.0, "outcome_bound": 7.0, "ringing_tolerance": None}
OPTIONS = {
    AMMUpperConfidenceBound: BOUNDS,
    CensoredThompsonSampling: {**CENSORED, "seed": 3},
    CensoredUpperConfidenceBound: CENSORED,
    ChangePointUpperConfidenceBound: {"horizon": 100, "smoothness": 2.5, "dim": 2},
    DMMUpperConfidenceBound: {"rkhs_bound": 20.0, "noise_bound": 0.1},
    LogExpectedImprovement: {},
    GPThompsonSampling: {**BOUNDS, "seed": 3},
    GPUpperConfidenceBound: {"num_arms": 50},
    ImprovedUpperConfidenceBound: BOUNDS,
    LagrangianThompsonSampling: {**BOUNDS, "multipliers": [1.5], "seed": 3},
    LagrangianUpperConfidenceBound: {**BOUNDS, "multipliers": [1.5]},
    MeanOnly: {},
    LogProbabilityOfImprovement: {"margin": 0.02},
    RandomizedUpperConfidenceBound: {"num_arms": 50, "seed": 3},
    VarianceOnly: {},
    WidthUpperConfidenceBound: {"rule": RootOfRound()},
}
OF_LISTS = (CandidatesUpperConfidenceBound, CandidatesThompsonSampling)  # of priors
ON_FINITE_SETS = (TopTwoThompsonSampling,)
LAGRANGIAN = (LagrangianUpperConfidenceBound, LagrangianThompsonSampling)
ONE_REWARD = [cls for cls in OPTIONS if cls not in LAGRANGIAN]
BOX = [(0.0, 1.0), (0.0, 1.0)]  # as Ax writes it
MINIMIZED = ScalarizedPosteriorTransform(double([-1.0]))


def names(cls: type) -> str:
    return cls.__name__


def single_model() -> SingleTaskGP:
    return named(MODELS, "SingleTaskGP, Standardize").build()


def datasets() -> dict[str, SupervisedDataset]:
    X, Y = rows()
    return {
        name: SupervisedDataset(X, Y[:, [j]], feature_names=["a", "b"], outcome_names=[name])
        for j, name in enumerate(["first", "second"])
    }


def build(cls, model, **given):
    return cls(**get_acqf_input_constructor(cls)(model=model, **given))


@pytest.fixture(autouse=True, scope="module")
def _registered():
    for cls in (*OPTIONS, *OF_LISTS, *ON_FINITE_SETS):
        register_input_constructor(cls)
        register_input_constructor(cls)  # the second time does nothing


def test_every_acquisition_can_be_registered():
    built_from_a_model = {
        each
        for each in (getattr(botorch_bandits, name) for name in botorch_bandits.__all__)
        if isinstance(each, type)
        and issubclass(each, BanditAcquisition)
        and each is not BanditAcquisition
    }
    assert built_from_a_model == {*OPTIONS, *OF_LISTS, *ON_FINITE_SETS}


@pytest.mark.parametrize("num_pending", [0, 2])
@pytest.mark.parametrize("cls", ONE_REWARD, ids=names)
def test_it_is_what_a_direct_call_builds_when_minimizing(cls, num_pending):
    X, _ = rows()
    pending = uniform(num_pending, 2, seed=4) if num_pending else None
    given = {"X_pending": pending} if num_pending else {}  # Ax passes no empty argument
    built = build(
        cls,
        single_model(),
        training_data=datasets()["first"],
        X_baseline=X,
        bounds=None if "num_arms" in OPTIONS[cls] else BOX,
        posterior_transform=MINIMIZED,
        **given,
        **OPTIONS[cls],
    )
    options = dict(OPTIONS[cls])
    if "seed" in options:  # each round has draws of its own
        options["seed"] = derive_seed(3, len(X) + num_pending + 1, cls.__name__)
    direct = cls(single_model(), posterior_transform=MINIMIZED, X_pending=pending, **options)
    x = uniform(9, 2, seed=3).unsqueeze(-2)
    assert type(built) is cls
    assert torch.equal(built(x), direct(x))
    if num_pending:
        assert torch.equal(built.X_pending, pending)
    assert built.guarantee().explain() == direct.guarantee().explain()


def test_lists_of_priors_are_built_from_a_model_that_is_one():
    X, Y = rows()
    model = BanditGP.with_candidates(candidate_grid([0.2, 0.5]))(X, Y[:, :1])
    pending, x = uniform(2, 2, seed=4), uniform(9, 2, seed=3).unsqueeze(-2)
    given = {"training_data": datasets()["first"], "X_baseline": X, "X_pending": pending}
    built = build(
        CandidatesUpperConfidenceBound,
        model,
        posterior_transform=MINIMIZED,
        bounds=BOX,
        smoothness_a=1.0,
        smoothness_b=[2.0, 1.0],
        **given,
    )
    direct = CandidatesUpperConfidenceBound(
        model,
        smoothness_a=1.0,
        smoothness_b=[2.0, 1.0],
        dim=2,
        side_length=1.0,
        maximize=False,
        X_pending=pending,
    )
    assert torch.equal(built(x), direct(x))
    assert built.guarantee().explain() == direct.guarantee().explain()
    draw = build(CandidatesThompsonSampling, model, seed=3, **given)
    seed = derive_seed(3, len(X) + 3, "CandidatesThompsonSampling")
    assert torch.equal(draw(x), CandidatesThompsonSampling(model, seed=seed, X_pending=pending)(x))
    minimized = build(
        CandidatesThompsonSampling, model, seed=3, posterior_transform=MINIMIZED, **given
    )
    assert torch.equal(minimized(x), -draw(x))
    halved = ScalarizedPosteriorTransform(double([0.5]))
    with pytest.raises(UnsupportedError, match="weight 1 or -1"):
        build(CandidatesUpperConfidenceBound, model, posterior_transform=halved)
    with pytest.raises(TypeError, match="with_candidates"):
        build(CandidatesUpperConfidenceBound, single_model(), num_arms=9)


# --- reward and constraints -----------------------------------------------------------------

CASES = [
    named(MODELS, "SingleTaskGP, two outputs, scalarized"),
    named(MODELS, "ModelListGP, scalarized"),
]
# minimize the second metric, subject to -2 first <= -7, that is, first >= 3.5
OBJECTIVE = ScalarizedPosteriorTransform(double([0.0, -1.0]))
CONSTRAINTS = (double([[-2.0, 0.0]]), double([[-7.0]]))
KAPPA = 1.5


@pytest.mark.parametrize("num_pending", [0, 2])
@pytest.mark.parametrize("penalty", ["linear", "exponential"])
@pytest.mark.parametrize("case", CASES, ids=["two outputs", "ModelListGP"])
def test_lagrangian_bound_of_metrics_is_the_textbook_value(case, penalty, num_pending):
    # Ax's order of outcomes, sign of the objective and A f <= b against numpy.
    pending = case.points(num_pending, seed=4) if num_pending else None
    built = build(
        LagrangianUpperConfidenceBound,
        case.build(),
        training_data=datasets(),
        bounds=BOX,
        posterior_transform=OBJECTIVE,
        constraints_tuple=CONSTRAINTS,
        constraints=[lambda Y: Y],  # Ax passes both; this one is for sampled objectives
        multipliers=[KAPPA],
        penalty=Linear() if penalty == "linear" else Exponential(0.8),
        rkhs_bound=list(RKHS),  # of the objective, then of the constraint; JSON has no tuples
        noise_bound=list(NOISE),
        delta=DELTA,
        **({} if pending is None else {"X_pending": pending}),
    )
    x = uniform(9, 2, seed=3)
    (outputs,) = case.reference(case.build()).members

    widths = igp_widths(outputs[::-1])
    seen = [o if pending is None else o.hallucinate(pending.numpy()) for o in outputs]
    (mean_first, cov_first), (mean_second, cov_second) = (o.posterior(x.numpy()) for o in seen)
    sd_f, sd_g = np.sqrt(np.diag(cov_second)), 2.0 * np.sqrt(np.diag(cov_first))
    mean_f, mean_g = -mean_second, 7.0 - 2.0 * mean_first
    if penalty == "linear":
        sd = np.sqrt(sd_f**2 + (KAPPA * sd_g) ** 2)
        expected = mean_f - KAPPA * mean_g + math.hypot(*widths) * sd
    else:
        lower = np.maximum(mean_g - widths[1] * sd_g, 0.0)
        expected = mean_f + widths[0] * sd_f - KAPPA * (np.exp(0.8 * lower) - 1.0)
    np.testing.assert_allclose(built(x.unsqueeze(-2)).detach(), expected, rtol=1e-8, atol=1e-8)
    assert not any("posterior_transform" in gap for gap in built.guarantee().gaps)


# --- options --------------------------------------------------------------------------------


def test_the_box_completes_the_options():
    model = single_model()
    wide = [(0.0, 2.0), (-1.0, 3.0)]
    built = build(ChangePointUpperConfidenceBound, model, bounds=wide, horizon=9, smoothness=2.5)
    assert built.rule.dim == 2
    built = build(GPUpperConfidenceBound, model, bounds=wide, smoothness_a=1.0, smoothness_b=2.0)
    direct = GPUpperConfidenceBound(
        model, smoothness_a=1.0, smoothness_b=2.0, dim=2, side_length=4.0
    )
    assert torch.equal(built.width, direct.width)
    with pytest.raises(ValueError, match="side_length=1"):
        build(
            GPUpperConfidenceBound,
            model,
            bounds=wide,
            smoothness_a=1.0,
            smoothness_b=2.0,
            dim=2,
            side_length=1.0,
        )
    finite = build(RandomizedUpperConfidenceBound, model, bounds=wide, num_arms=20, seed=0)
    assert finite.rule.num_arms == 20  # a search space of integers is a box to Ax


def test_draws_differ_between_rounds_though_options_stay_the_same():
    model, (X, _) = single_model(), rows()
    x = uniform(9, 2, seed=3).unsqueeze(-2)
    options = {"width": 1.0, "training_data": datasets()}
    first, again, pending = (
        build(GPThompsonSampling, model, **options, seed=3, **more)
        for more in ({}, {}, {"X_pending": X[:1]})
    )
    assert torch.equal(first(x), again(x))
    assert not torch.allclose(first(x), pending(x))
    with torch.random.fork_rng(devices=[]):
        seeds = []
        for num_pending in (1, 2):  # the global generator is seeded alike before every round
            torch.default_generator.manual_seed(0)
            seeds.append(
                build(GPThompsonSampling, model, **options, X_pending=X[:num_pending]).seed
            )
    assert seeds[0] != seeds[1]


def test_refusals():
    model, two = single_model(), CASES[0].build()
    with pytest.raises(ValueError, match=r"needs rkhs_bound= and noise_bound="):
        build(ImprovedUpperConfidenceBound, model, training_data=datasets(), rkhs_bound=1.0)
    with pytest.raises(ValueError, match=r"RandomizedUpperConfidenceBound needs num_arms="):
        build(RandomizedUpperConfidenceBound, model)
    with pytest.raises(ValueError, match=r"WidthUpperConfidenceBound needs rule="):
        build(WidthUpperConfidenceBound, model)
    with pytest.raises(ValueError, match=r"LagrangianUpperConfidenceBound needs multipliers="):
        build(LagrangianUpperConfidenceBound, two, width=1.0)
    with pytest.raises(TypeError, match=r"`rkhs_bond`.*ImprovedUpperConfidenceBound"):
        build(ImprovedUpperConfidenceBound, model, rkhs_bond=2.0)
    with pytest.raises(UnsupportedError, match=r"no outcome constraints.*Lagrangian"):
        build(ImprovedUpperConfidenceBound, two, width=1.0, constraints_tuple=CONSTRAINTS)
    with pytest.raises(UnsupportedError, match=r"one reward.*objective= is for"):
        build(
            ImprovedUpperConfidenceBound,
            two,
            width=1.0,
            objective=LinearMCObjective(double([1.0, 2.0])),
        )
    lagrangian = {"multipliers": [1.0], "width": 1.0}
    with pytest.raises(ValueError, match="needs outcome constraints besides"):
        build(LagrangianUpperConfidenceBound, model, posterior_transform=MINIMIZED, **lagrangian)
    with pytest.raises(ValueError, match=r"needs posterior_transform=Scalarized.*got NoneType"):
        build(LagrangianUpperConfidenceBound, two, constraints_tuple=CONSTRAINTS, **lagrangian)
    with pytest.raises(ValueError, match=r"has 2 multipliers.*3 outputs"):
        build(
            LagrangianUpperConfidenceBound,
            two,
            posterior_transform=OBJECTIVE,
            constraints_tuple=CONSTRAINTS,
            multipliers=[1.0, 2.0],
            width=1.0,
        )


def test_a_subclass_needs_to_be_registered():
    class Mine(ImprovedUpperConfidenceBound):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)

    with pytest.raises(RuntimeError, match="Mine"):
        get_acqf_input_constructor(Mine)
    register_input_constructor(Mine)
    try:
        assert type(build(Mine, single_model(), width=1.0)) is Mine
    finally:
        del ACQF_INPUT_CONSTRUCTOR_REGISTRY[Mine]

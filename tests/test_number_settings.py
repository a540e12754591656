"""Settings hold Python numbers, whatever kind of number their user passed.

Each number of each recipe, rule and settings class is passed as a float, an integer, a fraction, a
tensor without dimensions and a numpy number. What is stored must be the same Python number, and
what follows from it must be the same too.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from models.textbook import double, line

import botorch_bandits
from botorch_bandits import (
    AcquisitionRecipe,
    AdditiveEpochs,
    AMMUpperConfidenceBound,
    Arms,
    BanditAcquisition,
    BanditGP,
    BanditGPRecipe,
    BanditLoop,
    CandidatesUpperConfidenceBound,
    Censored,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
    ChangePointDetector,
    ChangePointRestart,
    ChangePointUpperConfidenceBound,
    DefaultCandidates,
    DMMUpperConfidenceBound,
    EvidenceDetector,
    EvidenceRestart,
    Exponential,
    ExponentialWeights,
    Float,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    Integer,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    MultiplicativeEpochs,
    NeverRestart,
    OracleRestart,
    Policy,
    PrimalDual,
    RandomizedUpperConfidenceBound,
    SlidingWindow,
    TimeVaryingKernel,
    TopTwoThompsonSampling,
)
from botorch_bandits.acquisition.base import GIVEN_BY_THE_LOOP
from botorch_bandits.change_points import PowerThreshold, Restart
from botorch_bandits.confidence import (
    CensoredWidth,
    ChangePointWidth,
    CompactBoxWidth,
    ConstantWidth,
    FiniteArmsWidth,
    KernelizedWidth,
    RandomizedWidth,
    RKHSWidth,
    WaterFillingGain,
)
from botorch_bandits.penalties import CustomPenalty, Polynomial
from botorch_bandits.problems import (
    ConstantDelay,
    PoissonDelay,
)

FLOAT_KINDS: dict[str, Callable[[float], Any]] = {
    "float": float,
    "integer": int,
    "fraction": Fraction,
    "tensor": lambda value: double(value),
    "integer tensor": lambda value: torch.tensor(int(value)),
    "numpy float": np.float64,
    "numpy integer": lambda value: np.int64(int(value)),
}
INTEGER_KINDS: dict[str, Callable[[int], Any]] = {
    "integer": int,
    "tensor": torch.tensor,
    "numpy integer": np.int64,
}
NUM_ARMS = 5
CHOICES = line(0.0, 1.0, NUM_ARMS)
ARMS = Arms(CHOICES)
KERNEL = RBFKernel().double()
GAIN = WaterFillingGain(torch.eye(NUM_ARMS, dtype=torch.float64), lam=0.5)
BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.3}
CENSORED = {**BOUNDS, "minimum": 0.0, "outcome_bound": 1.5}

RECIPES: list[tuple[type[BanditAcquisition], dict[str, Any]]] = [
    (ImprovedUpperConfidenceBound, {**BOUNDS, "delta": 0.2, "scale": 0.7, "variation": 0.1}),
    (ImprovedUpperConfidenceBound, {**BOUNDS, "information_gain": 3.0}),
    (ImprovedUpperConfidenceBound, {"width": 2.0}),
    (AMMUpperConfidenceBound, {**BOUNDS, "delta": 0.2, "scale": 0.7}),
    (DMMUpperConfidenceBound, {**BOUNDS, "delta": 0.2}),
    (GPUpperConfidenceBound, {"num_arms": 5, "delta": 0.2, "scale": 0.7}),
    (
        GPUpperConfidenceBound,
        {"smoothness_a": 2.0, "smoothness_b": 1.3, "dim": 1, "side_length": 2.0, "delta": 0.2},
    ),
    (GPUpperConfidenceBound, {"rkhs_bound": 2.0, "information_gain": GAIN, "delta": 0.2}),
    (GPUpperConfidenceBound, {"width": 2.0}),
    (GPUpperConfidenceBound, {"beta": 6.25}),
    (CandidatesUpperConfidenceBound, {"num_arms": 5, "delta": 0.2}),
    (
        CandidatesUpperConfidenceBound,
        {"smoothness_a": 2.0, "smoothness_b": 1.3, "dim": 1, "side_length": 2.0},
    ),
    (CandidatesUpperConfidenceBound, {"width": 2.0}),
    (RandomizedUpperConfidenceBound, {"num_arms": 5}),
    (
        ChangePointUpperConfidenceBound,
        {"horizon": 40, "smoothness": 2.5, "dim": 1, "width_constant": 0.5, "scale": 0.7},
    ),
    (GPThompsonSampling, {**BOUNDS, "delta": 0.2, "scale": 0.7, "information_gain": 3.0}),
    (GPThompsonSampling, {"width": 2.0}),
    (TopTwoThompsonSampling, {**BOUNDS, "delta": 0.2, "information_gain": 3.0}),
    (TopTwoThompsonSampling, {"leader_probability": 0.25, "max_draws": 3}),
    (
        CensoredUpperConfidenceBound,
        {
            **CENSORED,
            "delta": 0.2,
            "scale": 0.7,
            "max_delay": 4,
            "pseudo_noise": 0.5,
            "ringing_tolerance": 0.3,
            "tolerance": 0.2,
        },
    ),
    (CensoredUpperConfidenceBound, {"minimum_proxy": 2.0, "width": 3.0, "outcome_bound": 1.0}),
    (
        CensoredThompsonSampling,
        {
            **CENSORED,
            "delta": 0.2,
            "scale": 0.7,
            "max_delay": 4,
            "pseudo_noise": 0.5,
            "ringing_tolerance": 0.3,
            "tolerance": 0.2,
        },
    ),
    (CensoredThompsonSampling, {"minimum_proxy": 2.0, "width": 3.0}),
    (
        LagrangianUpperConfidenceBound,
        {**BOUNDS, "delta": 0.2, "scale": 0.7, "reward_bound": 3.0, "constraint_bound": 2.0},
    ),
    (LagrangianUpperConfidenceBound, {**BOUNDS, "information_gain": 3.0}),
    (LagrangianUpperConfidenceBound, {"width": 2.0}),
    (LagrangianThompsonSampling, {**BOUNDS, "delta": 0.2, "scale": 0.7, "information_gain": 3.0}),
    (LagrangianThompsonSampling, {"width": 2.0}),
    *(
        (cls, {"best_f": 1.5, "margin": 0.25})
        for cls in (getattr(botorch_bandits, name) for name in botorch_bandits.__all__)
        if isinstance(cls, type)
        and issubclass(cls, BanditAcquisition)
        and "best_f" in inspect.signature(cls).parameters
    ),
]
DETECTOR = ChangePointDetector(MaternKernel(nu=2.5), lengthscale=0.3)
SETTINGS: list[tuple[type, dict[str, Any]]] = [
    (KernelizedWidth, {**BOUNDS, "delta": 0.2, "explicit_gain": 3.0}),
    (KernelizedWidth, {**BOUNDS, "delta": 0.2, "variation": 0.1}),
    (RKHSWidth, {"rkhs_bound": 2.0, "gain_bound": GAIN, "delta": 0.2}),
    (KernelizedWidth, {**BOUNDS, "delta": 0.2, "is_mixture": True}),
    (Float, {"low": 0.5, "high": 2.0}),
    (Integer, {"low": 2, "high": 7}),
    (CensoredWidth, {"inner": KernelizedWidth(**BOUNDS, delta=0.2), "outcome_bound": 1.5}),
    (CensoredWidth, {"inner": ConstantWidth(3.0), "outcome_bound": 1.5, "round_number": 2}),
    (ConstantWidth, {"value": 2.0}),
    (FiniteArmsWidth, {"num_arms": 5, "delta": 0.2}),
    (
        CompactBoxWidth,
        {"dim": 1, "side_length": 2.0, "smoothness_a": 2.0, "smoothness_b": 1.3, "delta": 0.2},
    ),
    (RandomizedWidth, {"num_arms": 5, "seed": 3}),
    (ChangePointWidth, {"horizon": 40, "smoothness": 2.5, "dim": 1, "width_constant": 0.5}),
    (
        BanditGPRecipe,
        {
            "model_class": BanditGP,
            "kernel": KERNEL,
            "noise": 0.3,
            "refit_every": 4,
            "prior_mean": 2.0,
        },
    ),
    (
        DefaultCandidates,
        {
            "bounds": [(0.0, 1.0)],
            "num_draws": 3,
            "prior_mean": 0.5,
            "num_first": 4,
        },
    ),
    (Censored, {"minimum": -1.0, "outcome_bound": 2.0, "max_delay": 4, "tolerance": 0.3}),
    (Censored, {"minimum_proxy": 2.0, "unit": "seconds", "max_delay": 2.5}),
    (SlidingWindow, {"length": 3}),
    (ExponentialWeights, {"discount": 0.7}),
    (TimeVaryingKernel, {"rate": 0.2}),
    (Restart, {"exploration": 2.0}),
    (NeverRestart, {"exploration": 0.3}),
    (OracleRestart, {"exploration": 0.3}),
    (EvidenceRestart, {"exploration": 0.3, "alpha": 0.25, "change_scale": 50.0}),
    (EvidenceRestart, {"drift_rate": 0.25}),
    (EvidenceRestart, {"robust": False, "rkhs_bound": 2.0, "noise_bound": 0.1}),
    (
        ChangePointRestart,
        {"exploration": 0.3, "detector": DETECTOR, "smallest_change": 0.5},
    ),
    (
        ChangePointDetector,
        {
            "kernel": KERNEL,
            "ridge": 2.0,
            "smoothness": 2.5,
            "prior_mean": 0.3,
            "seed": 4,
        },
    ),
    (ChangePointDetector, {"kernel": KERNEL, "smoothness": math.inf}),
    (EvidenceDetector, {"alpha": 0.25, "change_scale": 50.0}),
    (EvidenceDetector, {"drift_rate": 0.25}),
    (EvidenceDetector, {"robust": False, "rkhs_bound": 2.0, "noise_bound": 0.25}),
    (PowerThreshold, {"scale": 2.0, "exponent": -0.3}),
    (PowerThreshold, {"scale": math.inf}),
    (AdditiveEpochs, {"num_constraints": 1, "epoch_length": 3, "step_size": 0.3}),
    (
        AdditiveEpochs,
        {
            "num_constraints": 1,
            "epoch_length": 3,
            "slater_margin": 0.2,
            "largest_reward": 2.0,
            "largest_constraint": 1.5,
        },
    ),
    (
        MultiplicativeEpochs,
        {
            "num_constraints": 1,
            "epoch_length": 3,
            "max_multiplier": 9.0,
            "unconstrained_gap": 0.5,
        },
    ),
    (
        PrimalDual,
        {
            "num_constraints": 1,
            "max_multiplier": 3.0,
            "divisor": 2.5,
            "reward_bound": 3.0,
            "constraint_bound": 1.3,
        },
    ),
    (Polynomial, {"c": 0.3, "n": 2.0}),
    (Exponential, {"c": 0.3}),
    (CustomPenalty, {"function": Exponential().value, "largest": 3.0, "num_points": 20}),
    (
        Policy,
        {
            "model": BanditGP.with_kernel(KERNEL, noise=0.25),
            "acquisition": ImprovedUpperConfidenceBound.with_options(**BOUNDS),
            "num_initial": 3,
        },
    ),
    (ConstantDelay, {"delay": 3}),
    (PoissonDelay, {"mean": 2.0}),
]
RESULTS = {  # what the package itself makes, and bounds that are tensors
    "BoundedNorm",
    "BoundsDiagnosis",
    "ModelCheck",
    "CalibratedThreshold",
    "CandidateStatus",
    "ChangePointTest",
    "EvidenceTable",
    "EvidenceTest",
    "FalseAlarms",
    "Failure",
    "Forecast",
    "Guarantee",
    "Outcome",
    "Query",
    "RegretStatement",
    "Reset",
    "RunResult",
    "SimulationResult",
    "Statement",
}


def kinds_of(value: object) -> dict[str, Callable[[Any], Any]]:
    if type(value) is int:
        return INTEGER_KINDS
    if type(value) is not float:
        return {}
    if math.isinf(value):
        return {"float": float, "tensor": FLOAT_KINDS["tensor"], "numpy float": np.float64}
    is_whole = value == int(value)
    return {k: v for k, v in FLOAT_KINDS.items() if is_whole or "integer" not in k}


def names_of(cases: Sequence[tuple[type, dict[str, Any]]]) -> list[Any]:
    return [pytest.param(*case, id=f"{case[0].__name__}-{n}") for n, case in enumerate(cases)]


def converted(arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the arguments in turns, so that each number is once of each of its kinds."""
    kinds = {name: list(kinds_of(value).values()) for name, value in arguments.items()}
    for turn in range(max(map(len, kinds.values()))):
        yield {
            name: of[(turn + place) % len(of)](arguments[name]) if of else arguments[name]
            for place, (name, of) in enumerate(kinds.items())
        }


def same_number(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


# --- recipes of acquisition functions ---------------------------------------------------------


@pytest.mark.parametrize(("cls", "options"), names_of(RECIPES))
def test_a_recipe_holds_python_numbers(
    cls: type[BanditAcquisition], options: dict[str, Any]
) -> None:
    expected = cls.with_options(**options)
    for passed in converted(options):
        for recipe in (cls.with_options(**passed), AcquisitionRecipe(cls, passed)):
            for name in filter(lambda name: kinds_of(options[name]), options):
                assert same_number(recipe.options[name], options[name]), name
            assert recipe == expected
            assert hash(recipe) == hash(expected)


def test_numbers_of_every_public_acquisition_function_are_known() -> None:
    """An option that is added must be put in the cases here."""
    tested = {(cls.__name__, name) for cls, options in RECIPES for name in options}
    public = [getattr(botorch_bandits, name) for name in botorch_bandits.__all__]
    for cls in public:
        if not (isinstance(cls, type) and issubclass(cls, BanditAcquisition)):
            continue
        for name, parameter in inspect.signature(cls).parameters.items():
            kind = str(parameter.annotation)
            is_number = kind.startswith(("int", "float", "Bound", "NoiseBound"))
            if name in (*GIVEN_BY_THE_LOOP, "multipliers") or not is_number:
                continue
            if not inspect.isabstract(cls) and cls is not botorch_bandits.WidthUpperConfidenceBound:
                assert (cls.__name__, name) in tested, f"{cls.__name__}: {name}"


def test_one_number_an_output_is_converted_too() -> None:
    bounds = (Fraction(1, 2), double(2.0))
    recipe = LagrangianUpperConfidenceBound.with_options(rkhs_bound=bounds, noise_bound=0.1)
    assert recipe.options["rkhs_bound"] == (0.5, 2.0)
    assert [type(value) for value in recipe.options["rkhs_bound"]] == [float, float]
    given = [1, Fraction(1, 2)]
    of_list = CandidatesUpperConfidenceBound.with_options(smoothness_a=1.0, smoothness_b=given)
    given.append(3)  # the recipe has numbers of its own
    assert of_list.options["smoothness_b"] == (1.0, 0.5)


# --- rules and other settings -----------------------------------------------------------------


@pytest.mark.parametrize(("cls", "arguments"), names_of(SETTINGS))
def test_settings_hold_python_numbers(cls: type, arguments: dict[str, Any]) -> None:
    expected = cls(**arguments)
    for passed in converted(arguments):
        found = cls(**passed)
        for name in filter(lambda name: kinds_of(arguments[name]), arguments):
            assert same_number(getattr(found, name), arguments[name]), name
        if cls is not RKHSWidth:  # its gain bound is equal to itself alone
            assert found == expected
            assert hash(found) == hash(expected)


def test_numbers_of_all_public_settings_are_tested() -> None:
    tested = {(cls.__name__, name) for cls, options in SETTINGS for name in options}
    rooms = [
        botorch_bandits,
        botorch_bandits.acquisition,
        botorch_bandits.change_points,
        botorch_bandits.confidence,
        botorch_bandits.constraints,
        botorch_bandits.penalties,
        botorch_bandits.problems,
    ]
    classes = {
        cls
        for room in rooms
        for cls in vars(room).values()
        if dataclasses.is_dataclass(cls) and isinstance(cls, type)
    }
    made_inside = {"Ledger", "MultiplierRule", "MultiplierState", "OutputPrior"}
    made_inside |= {"RidgeConfidenceSet"}
    for cls in classes:
        if cls.__name__ in RESULTS | made_inside:
            continue
        for field in dataclasses.fields(cls):
            if str(field.type).startswith(("int", "float", "Bound")):
                assert (cls.__name__, field.name) in tested, f"{cls.__name__}: {field.name}"


@pytest.mark.parametrize("name", ["horizon", "num_initial", "context_dim", "seed"])
@pytest.mark.parametrize("convert", INTEGER_KINDS.values(), ids=INTEGER_KINDS)
def test_a_loop_holds_python_integers(name: str, convert: Callable[[int], Any]) -> None:
    model = BanditGP.with_kernel(KERNEL, noise=0.25)
    recipe = ImprovedUpperConfidenceBound.with_options(width=2.0)
    loop = BanditLoop(ARMS, model, recipe, **{name: convert(3)})
    assert same_number(getattr(loop.settings, name), 3)

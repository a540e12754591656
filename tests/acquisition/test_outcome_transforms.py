"""Every acquisition class behind every outcome transform: right values, or a refusal with a remedy.

References are dense linear algebra in numpy on transformed outcomes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition.objective import (
    ExpectationPosteriorTransform,
    ScalarizedPosteriorTransform,
)
from botorch.exceptions.errors import UnsupportedError
from botorch.models import (
    HigherOrderGP,
    KroneckerMultiTaskGP,
    ModelListGP,
    SingleTaskGP,
    SingleTaskVariationalGP,
)
from botorch.models.transforms import Log, Power, Standardize
from botorch.models.transforms.input import InputPerturbation
from botorch.models.transforms.outcome import Bilog, ChainedOutcomeTransform, OutcomeTransform
from models.textbook import double
from pairwise import pairwise
from torch import Tensor

from botorch_bandits import acquisition
from botorch_bandits.acquisition import BanditAcquisition

from .dense import DenseGP, squared_exponential

X = double([[0.05, 0.3], [0.2, 0.9], [0.45, 0.1], [0.6, 0.65], [0.8, 0.35], [0.95, 0.8]])
Y = 2.0 + (3.0 * X[:, :1]).sin() + X[:, 1:].square()
POINTS = double([[0.15, 0.15], [0.5, 0.5], [0.7, 0.05]])
PENDING = double([[0.3, 0.55], [0.75, 0.9]])
NOISE, LENGTHSCALE = 0.02, 0.4
WIDTH = 1.5

TRANSFORMS: dict[str, Callable[[], OutcomeTransform | None]] = {
    "none": lambda: None,
    "Standardize": lambda: Standardize(1),
    "Standardize, Standardize": lambda: ChainedOutcomeTransform(
        first=Standardize(1), second=Standardize(1)
    ),
    "Log": Log,
    "Log, Standardize": lambda: ChainedOutcomeTransform(log=Log(), scale=Standardize(1)),
    "Log, Log": lambda: ChainedOutcomeTransform(first=Log(), second=Log()),
    "Power": lambda: Power(0.3),
    "Power, Standardize": lambda: ChainedOutcomeTransform(power=Power(0.5), scale=Standardize(1)),
    "Bilog": Bilog,
}
GAUSSIAN = {"none", "Standardize", "Standardize, Standardize"}

# Arguments with which each class has no theorem's width, and what it needs of the outcomes.
BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1}
CLASSES: dict[str, tuple[dict[str, Any], str]] = {
    "AMMUpperConfidenceBound": (BOUNDS, "theorem"),
    "CensoredThompsonSampling": ({"minimum": 1.5, "width": 1.0, "seed": 0}, "draws"),
    "CensoredUpperConfidenceBound": ({"minimum": 1.5, "width": WIDTH}, "moments"),
    "ChangePointUpperConfidenceBound": ({"horizon": 9, "smoothness": 1.0, "dim": 2}, "moments"),
    "DMMUpperConfidenceBound": (BOUNDS, "theorem"),
    "GPThompsonSampling": ({"seed": 0}, "draws"),
    "GPUpperConfidenceBound": ({"width": WIDTH}, "moments"),
    "ImprovedUpperConfidenceBound": ({"width": WIDTH}, "moments"),
    "LogExpectedImprovement": ({}, "gaussian"),
    "LogProbabilityOfImprovement": ({}, "gaussian"),
    "MeanOnly": ({}, "moments"),
    "RandomizedUpperConfidenceBound": ({"num_arms": 9, "seed": 0}, "moments"),
    "TopTwoThompsonSampling": ({"choices": POINTS, "seed": 0}, "gaussian"),
    "VarianceOnly": ({}, "moments"),
}
LAGRANGIAN = {"LagrangianUpperConfidenceBound", "LagrangianThompsonSampling"}
OF_OTHERS = {
    "BanditAcquisition",  # the base class
    "CandidatesThompsonSampling",  # of a CandidatesModel, which takes no outcome transform
    "CandidatesUpperConfidenceBound",
    "WidthUpperConfidenceBound",  # its rule is an argument; GPUpperConfidenceBound stands for it
}
REMEDY = "Use Standardize or no outcome transform"


def model_of(name: str, Y: Tensor = Y, **options: Any) -> SingleTaskGP:
    model = SingleTaskGP(X, Y, outcome_transform=TRANSFORMS[name](), **options)
    model.covar_module.lengthscale = torch.full((2,), LENGTHSCALE, dtype=torch.float64)
    model.likelihood.noise = double([NOISE])
    model.mean_module.constant = double(0.25)
    return model


def dense(name: str) -> DenseGP:
    y = Y.numpy()
    shift, unit = 0.0, 1.0
    if "Standardize" in name:  # a second one finds mean 0 and deviation 1
        shift, unit = float(y.mean()), float(y.std(ddof=1))
    return DenseGP(
        X=X.numpy(),
        Y=(y.reshape(-1) - shift) / unit,
        kernel=squared_exponential([LENGTHSCALE, LENGTHSCALE]),
        noise=np.full(len(X), NOISE),
        new_noise=NOISE,
        prior_mean=0.25,
        shift=shift,
        unit=unit,
    )


def values_of(acqf: BanditAcquisition) -> np.ndarray:
    return acqf(POINTS.unsqueeze(-2)).detach().numpy()


def test_every_exported_class_is_looked_at() -> None:
    exported = {
        name
        for name in acquisition.__all__
        if isinstance(getattr(acquisition, name), type)
        and issubclass(getattr(acquisition, name), BanditAcquisition)
    }
    assert exported == set(CLASSES) | LAGRANGIAN | OF_OTHERS


@pytest.mark.parametrize(
    ("cls", "transform", "X_pending"),
    pairwise(list(CLASSES), list(TRANSFORMS), (None, PENDING)),
    ids=lambda value: "pending" if value is PENDING else str(value),
)
def test_values_are_numbers_or_refused_with_a_remedy(
    cls: str, transform: str, X_pending: Tensor | None
) -> None:
    options, _ = CLASSES[cls]
    model = model_of(transform)
    build = getattr(acquisition, cls)
    if transform not in GAUSSIAN:
        with pytest.raises(UnsupportedError, match=REMEDY):
            build(model, X_pending=X_pending, **options)
        return
    acqf = build(model, X_pending=X_pending, **options)
    assert np.isfinite(values_of(acqf)).all()
    assert all(np.isfinite(value) for value in acqf.describe(POINTS[0]).values())
    guarantee = acqf.guarantee()
    assert "nan" not in guarantee.explain(10_000)
    assert not guarantee.holds  # its hyperparameters were learned, or no theorem is stated


@pytest.mark.parametrize("X_pending", [None, PENDING], ids=["none", "pending"])
@pytest.mark.parametrize("transform", sorted(GAUSSIAN))
def test_moments_are_those_of_the_raw_outcomes(transform: str, X_pending: Tensor | None) -> None:
    process = dense(transform)
    if X_pending is not None:
        process = process.hallucinate(X_pending.numpy())
    mean, deviation = process.posterior(POINTS.numpy())[0], process.deviations(POINTS.numpy())
    model = model_of(transform)

    def values(cls: str, **options: Any) -> np.ndarray:
        return values_of(getattr(acquisition, cls)(model, X_pending=X_pending, **options))

    tolerance = {"rtol": 1e-8, "atol": 1e-8}
    of_bound = values("GPUpperConfidenceBound", width=WIDTH)
    np.testing.assert_allclose(of_bound, mean + WIDTH * deviation, **tolerance)
    of_lower = values("GPUpperConfidenceBound", width=WIDTH, maximize=False)
    np.testing.assert_allclose(of_lower, -mean + WIDTH * deviation, **tolerance)
    np.testing.assert_allclose(values("MeanOnly"), mean, **tolerance)
    np.testing.assert_allclose(values("VarianceOnly"), deviation, **tolerance)


@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_penalized_rewards(transform: str, separate: bool) -> None:
    model = ModelListGP(model_of("Standardize"), model_of(transform))
    options: dict[str, Any] = {"multipliers": [0.5], "width": 1.0}
    if transform in GAUSSIAN:
        acqf = acquisition.LagrangianUpperConfidenceBound(
            model, separate_bounds=separate, **options
        )
        assert np.isfinite(values_of(acqf)).all()
        assert not acqf.guarantee().holds
    else:
        with pytest.raises(UnsupportedError, match=REMEDY):
            acquisition.LagrangianUpperConfidenceBound(model, separate_bounds=separate, **options)
    if transform in GAUSSIAN:
        draw = acquisition.LagrangianThompsonSampling(model, seed=0, **options)
        assert np.isfinite(values_of(draw)).all()
    else:
        with pytest.raises(UnsupportedError, match=REMEDY):
            acquisition.LagrangianThompsonSampling(model, seed=0, **options)


@pytest.mark.parametrize("cls", CLASSES)
def test_outcomes_that_are_not_finite_are_named(cls: str) -> None:
    with np.errstate(all="ignore"):
        model = model_of("none")
        model.train_targets = model.train_targets.clone()
        model.train_targets[2] = float("nan")
    options, _ = CLASSES[cls]
    with pytest.raises(ValueError, match=r"\(SingleTaskGP\) .* rows: 2"):
        getattr(acquisition, cls)(model, **options)


# --- models with outcomes of another kind -----------------------------------------------------


@pytest.mark.parametrize("cls", CLASSES)
def test_tensors_as_outcomes_are_refused(cls: str) -> None:
    model = HigherOrderGP(X, Y.reshape(-1, 1, 1).expand(-1, 2, 2))
    options, _ = CLASSES[cls]
    with pytest.raises(UnsupportedError, match="HigherOrderGP, whose outcomes"):
        getattr(acquisition, cls)(model, **options)


@pytest.mark.parametrize("cls", CLASSES)
def test_a_kronecker_model_takes_no_posterior_transform(cls: str) -> None:
    model = KroneckerMultiTaskGP(X, torch.cat([Y, -Y], -1))
    weights = ScalarizedPosteriorTransform(double([1.0, -0.5]))
    options, _ = CLASSES[cls]
    with pytest.raises(UnsupportedError, match=r"Kronecker.*Use MultiTaskGP"):
        getattr(acquisition, cls)(model, posterior_transform=weights, **options)


@pytest.mark.parametrize("cls", CLASSES)
def test_a_variational_model_works_or_says_what_is_missing(cls: str) -> None:
    model = SingleTaskVariationalGP(X, train_Y=Y, inducing_points=4)
    options, needs = CLASSES[cls]
    build = getattr(acquisition, cls)
    missing: dict[str, Any] = {}
    if cls in ("ChangePointUpperConfidenceBound", "RandomizedUpperConfidenceBound"):
        with pytest.raises(ValueError, match=r"Pass round_number="):
            build(model, **options)
        missing = {"round_number": 7}
    if "Improvement" in cls:
        with pytest.raises(ValueError, match=r"needs X_observed=, or best_f="):
            build(model, **options)
        missing = {"best_f": 2.0}
    if needs == "theorem":
        with pytest.raises(ValueError, match=r"Gaussian process.*[Uu]se BanditGP"):
            build(model, **options)
        return
    assert np.isfinite(values_of(build(model, **options, **missing))).all()
    if cls.startswith("Censored"):  # the others condition the joint posterior, or draw again
        with pytest.raises(UnsupportedError, match=r"cannot take pseudo-observations.*Use"):
            build(model, X_pending=PENDING, **options, **missing)
        return
    missing = {"round_number": 9} if "round_number" in missing else missing
    pending = build(model, X_pending=PENDING, **options, **missing)
    assert np.isfinite(values_of(pending)).all()


# --- inputs that are perturbed ----------------------------------------------------------------

PERTURBATIONS = double([[0.0, 0.0], [0.05, 0.0], [0.0, -0.08]])
# BoTorch rounds its default weights to float32
EXPECTED = ExpectationPosteriorTransform(3, torch.ones(3, 1, dtype=torch.float64))


def perturbed() -> SingleTaskGP:
    return model_of("Standardize", input_transform=InputPerturbation(PERTURBATIONS))


@pytest.mark.slow
@pytest.mark.parametrize("censored", [False, True], ids=["hallucinated", "censored"])
@pytest.mark.parametrize("X_pending", [None, PENDING], ids=["none", "pending"])
def test_bound_of_the_expectation_over_perturbed_inputs(
    X_pending: Tensor | None, censored: bool
) -> None:
    """A pending point enters at itself: it will be observed, and not its perturbations."""
    process = dense("Standardize")
    if X_pending is not None:
        pending = X_pending.numpy()
        process = process.censor(pending, 1.5) if censored else process.hallucinate(pending)
    around = (POINTS.unsqueeze(-2) + PERTURBATIONS).reshape(-1, 2).numpy()
    mean, covariance = process.posterior(around)
    mean = mean.reshape(-1, 3).mean(-1)
    variance = [covariance[3 * i : 3 * i + 3, 3 * i : 3 * i + 3].mean() for i in range(3)]
    cls, options = acquisition.GPUpperConfidenceBound, {}
    if censored:
        cls, options = acquisition.CensoredUpperConfidenceBound, {"minimum": 1.5}
    acqf = cls(
        perturbed(), width=WIDTH, posterior_transform=EXPECTED, X_pending=X_pending, **options
    )
    np.testing.assert_allclose(
        values_of(acqf), mean + WIDTH * np.sqrt(variance), rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("cls", CLASSES)
def test_expectations_work_or_are_refused_with_a_remedy(cls: str) -> None:
    options, needs = CLASSES[cls]
    build = getattr(acquisition, cls)
    if needs in ("theorem", "draws"):
        with pytest.raises((UnsupportedError, ValueError), match=r"Expectation.*(Use|Pass) "):
            build(perturbed(), posterior_transform=EXPECTED, **options)
        return
    acqf = build(perturbed(), posterior_transform=EXPECTED, **options)
    assert np.isfinite(values_of(acqf)).all()
    assert not acqf.guarantee().holds


def test_weights_for_another_number_of_outputs_are_named() -> None:
    weights = ScalarizedPosteriorTransform(torch.ones(2, dtype=torch.float64))
    for cls in ("CensoredUpperConfidenceBound", "ImprovedUpperConfidenceBound"):
        options, _ = CLASSES[cls]
        with pytest.raises(ValueError, match=r"\(SingleTaskGP\) has 1"):
            getattr(acquisition, cls)(
                model_of("none"),
                **(options if "Cens" in cls else BOUNDS),
                posterior_transform=weights,
            )

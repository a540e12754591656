"""Noise that differs from row to row: widths and bounds against dense computations by hand.

The models are BoTorch's with ``train_Yvar``; kernels, gains and posteriors of the references are
numpy's on the raw data, divided by ``R_i`` where the theory divides by it.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from acquisition.dense import DenseGP, squared_exponential
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms.outcome import Standardize
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from models.textbook import double, uniform
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Censored,
    CensoredUpperConfidenceBound,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
)
from botorch_bandits.confidence import (
    CensoredWidth,
    KernelizedWidth,
)
from botorch_bandits.confidence.facts import ALONE
from botorch_bandits.confidence.theorems import (
    ROWS_HAVE_LARGE_LAM,
    ROWS_WERE_KNOWN,
    SMALLEST_ROW_IS_FIXED,
    SUB_GAUSSIAN_NOISE,
    SUB_GAUSSIAN_ROWS,
)
from papers.chowdhury import RateGain

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")

B, DELTA, LENGTHSCALE, OUTPUTSCALE = 3.0, 0.1, 0.3, 2.3


def scaled_kernel(outputscale: float = OUTPUTSCALE) -> ScaleKernel:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = double(outputscale)
    kernel.base_kernel.lengthscale = double(LENGTHSCALE)
    return kernel


X = uniform(8, 2, seed=1)
Y = (5.0 * X[:, :1]).sin() + X[:, 1:]
ROOTS = 0.2 + uniform(8, 1, seed=2)  # R_i, in raw outcome units
TEST = uniform(11, 2, seed=3)


def model_of(
    Yvar: Tensor | None = None, outcome_transform: Any = None, outputscale: float = OUTPUTSCALE
) -> SingleTaskGP:
    """A model whose hyperparameters are fixed."""
    model = SingleTaskGP(
        X,
        Y,
        ROOTS**2 if Yvar is None else Yvar,
        covar_module=scaled_kernel(outputscale),
        outcome_transform=outcome_transform,
    )
    return model.requires_grad_(False)


def dense(roots: Tensor = ROOTS, unit: float = 1.0) -> DenseGP:
    """The model by hand, with the kernel's variance in raw outcome units."""
    levels = roots.numpy().reshape(-1) ** 2
    kernel, scale = squared_exponential(LENGTHSCALE), OUTPUTSCALE * unit**2
    return DenseGP(X.numpy(), Y.numpy().reshape(-1), kernel, levels, levels.mean(), scale)


def whitened_gain(roots: Tensor, unit: float = 1.0) -> float:
    return dense(roots, unit).information_gain


# --- widths on the model's own posterior ---------------------------------------------------------


@pytest.mark.parametrize("standardized", [False, True])
def test_widths_are_those_of_rows_divided_by_their_noise(standardized: bool) -> None:
    model = model_of(outcome_transform=Standardize(1) if standardized else None)
    unit = float(Y.std()) if standardized else 1.0
    s = math.sqrt(OUTPUTSCALE) * unit  # the prior standard deviation in raw outcome units
    gain, log = whitened_gain(ROOTS, unit), math.log(1.0 / DELTA)
    bounds: dict[str, Any] = {"rkhs_bound": B, "noise_bound": "model", "delta": DELTA}
    printed = ImprovedUpperConfidenceBound(model, **bounds)
    draw = GPThompsonSampling(model, **bounds, any_lambda=True, choices=TEST, seed=0)
    assert printed.describe(TEST[0])["information_gain"] == pytest.approx(gain, abs=1e-8)
    for acqf, expected in (
        (printed, B / s + math.sqrt(2.0 * (gain + 1.0 + log))),
        (
            ImprovedUpperConfidenceBound(model, **bounds, any_lambda=True),
            B / s + math.sqrt(2.0 * (gain + log)),
        ),
        (AMMUpperConfidenceBound(model, **bounds), math.hypot(B / s, math.sqrt(2 * (gain + log)))),
        (draw, B / s + math.sqrt(2.0 * (gain + math.log(2.0 / DELTA)))),
    ):
        assert float(acqf.width) == pytest.approx(expected, abs=1e-8)


def test_each_output_has_its_own_rows() -> None:
    roots = torch.cat([ROOTS, 0.1 + 2.0 * uniform(8, 1, seed=4)], -1)
    two = torch.cat([Y, 3.0 * Y.cos()], -1)
    weights = double([1.0, -2.0])
    kernel = ScaleKernel(
        RBFKernel(batch_shape=torch.Size([2])), batch_shape=torch.Size([2])
    ).double()
    kernel.outputscale = double([OUTPUTSCALE] * 2)
    kernel.base_kernel.lengthscale = double(LENGTHSCALE)
    joint = SingleTaskGP(X, two, roots**2, covar_module=kernel, outcome_transform=None)
    single = [
        SingleTaskGP(
            X,
            two[:, j : j + 1],
            roots[:, j : j + 1] ** 2,
            covar_module=scaled_kernel(),
            outcome_transform=None,
        )
        for j in range(2)
    ]
    s, log = math.sqrt(OUTPUTSCALE), math.log(2.0 / DELTA)
    factors = (1.0, 0.35 / float(roots[:, 1].min()))
    each = [
        B / s + factor * math.sqrt(2.0 * (whitened_gain(roots[:, j]) + log))
        for j, factor in enumerate(factors)
    ]
    options: dict[str, Any] = {
        "rkhs_bound": B,
        "noise_bound": ("model", 0.35),
        "delta": DELTA,
        "any_lambda": True,
    }
    for model in (joint, ModelListGP(*single)):
        model.requires_grad_(False)
        acqf = ImprovedUpperConfidenceBound(
            model, **options, posterior_transform=ScalarizedPosteriorTransform(weights)
        )
        assert float(acqf.width) == pytest.approx(math.hypot(*each), abs=1e-8)
        lagrangian = LagrangianUpperConfidenceBound(model, multipliers=[1.0], **options)
        assert lagrangian.widths.tolist() == pytest.approx(each, abs=1e-8)
        assumptions = lagrangian.guarantee().assumptions
        assert {SUB_GAUSSIAN_ROWS, ROWS_WERE_KNOWN} <= {*assumptions}


# --- DMM -----------------------------------------------------------------------------------------


def test_dmm_is_that_of_rows_divided_by_their_noise() -> None:
    acqf = DMMUpperConfidenceBound(
        model_of(), rkhs_bound=B, noise_bound="model", delta=DELTA, assume="fixed prior"
    )
    ends = dense().ridge_bounds(TEST.numpy(), B, ROOTS.numpy().reshape(-1), DELTA)
    for found, expected in zip(acqf.bounds(TEST), ends, strict=True):
        assert torch.allclose(found, torch.from_numpy(expected), rtol=0.0, atol=1e-8)
    guarantee = acqf.guarantee()
    assert guarantee.holds, guarantee
    assert SUB_GAUSSIAN_ROWS in guarantee.assumptions
    gain = acqf.guarantee().constants["information_gain"]
    assert gain == pytest.approx(whitened_gain(ROOTS), abs=1e-8)


# --- guarantees ----------------------------------------------------------------------------------


def test_the_models_own_noise_is_guaranteed_and_says_what_it_assumes() -> None:
    bounds: dict[str, Any] = {"rkhs_bound": B, "noise_bound": "model", "delta": DELTA}
    bounds["assume"] = "fixed prior"
    model = model_of()  # the smallest lam is far below 1
    for acqf in (
        ImprovedUpperConfidenceBound(model, **bounds),
        ImprovedUpperConfidenceBound(model, **bounds, any_lambda=True),
        AMMUpperConfidenceBound(model, **bounds),
        DMMUpperConfidenceBound(model, **bounds),
        GPThompsonSampling(model, **bounds, choices=TEST),
    ):
        guarantee = acqf.guarantee()
        assert guarantee.holds, guarantee
        assert SUB_GAUSSIAN_ROWS in guarantee.assumptions
        assert "known before the row's outcome" in guarantee.explain(10_000)


def test_one_number_needs_a_ratio_that_was_fixed_before_the_data() -> None:
    first_is_smallest = ROOTS.sort(dim=0).values ** 2
    later_is_smaller = first_is_smallest.flip(0)
    bounds: dict[str, Any] = {"rkhs_bound": B, "noise_bound": 0.3, "delta": DELTA}
    bounds["assume"] = "fixed prior"
    for Yvar, holds in ((first_is_smallest, True), (later_is_smaller, False)):
        for acqf in (
            ImprovedUpperConfidenceBound(model_of(Yvar), **bounds, any_lambda=True),
            AMMUpperConfidenceBound(model_of(Yvar), **bounds),
        ):
            guarantee = acqf.guarantee()
            assert guarantee.holds == holds
            assert {ALONE.say(SUB_GAUSSIAN_NOISE), ROWS_WERE_KNOWN, SMALLEST_ROW_IS_FIXED} <= {
                *guarantee.assumptions
            }
            assert any("ratio" in gap for gap in guarantee.gaps) != holds
        # DMM's set needs no posterior of the model
        assert DMMUpperConfidenceBound(model_of(Yvar), **bounds).guarantee().holds


@pytest.mark.parametrize(("smallest", "holds"), [(1.05, True), (0.95, False)])
def test_the_printed_width_needs_lam_of_one_in_every_row(smallest: float, holds: bool) -> None:
    Yvar = OUTPUTSCALE * (smallest + torch.linspace(1.0, 0.0, 8, dtype=torch.float64)[:, None])
    acqf = ImprovedUpperConfidenceBound(
        model_of(Yvar), rkhs_bound=B, noise_bound=0.3, assume="fixed prior"
    )
    guarantee = acqf.guarantee()
    assert guarantee.holds == holds
    assert guarantee.constants["lam"] == pytest.approx(smallest)
    assert ROWS_HAVE_LARGE_LAM in guarantee.assumptions
    assert any("below 1" in gap for gap in guarantee.gaps) != holds
    # where it is claimed, it is at least the width for every lam
    every = ImprovedUpperConfidenceBound(
        model_of(Yvar), rkhs_bound=B, noise_bound=0.3, any_lambda=True
    )
    assert not holds or float(acqf.width) >= float(every.width)


def test_theorem_three_is_for_one_level() -> None:
    acqf = GPUpperConfidenceBound(
        model_of(), rkhs_bound=B, information_gain=RateGain("rbf", 2), delta=DELTA
    )
    assert any("Theorem 3 is for one level" in gap for gap in acqf.guarantee().gaps)


# --- errors, and what goes with it ---------------------------------------------------------------


def test_a_row_without_a_bound_is_named() -> None:
    model = model_of()
    levels = (ROOTS**2).reshape(-1).clone()
    levels[2], levels[5] = math.nan, math.inf
    model.likelihood = FixedNoiseGaussianLikelihood(levels)
    for acquisition in (
        ImprovedUpperConfidenceBound,
        AMMUpperConfidenceBound,
        DMMUpperConfidenceBound,
    ):
        with pytest.raises(ValueError, match="these rows: 2, 5"):
            acquisition(model, rkhs_bound=B, noise_bound="model")


def test_another_word_is_refused() -> None:
    options: dict[str, Any] = {"rkhs_bound": B, "noise_bound": "modell"}
    for acquisition in (
        ImprovedUpperConfidenceBound,
        AMMUpperConfidenceBound,
        DMMUpperConfidenceBound,
        GPThompsonSampling,
    ):
        with pytest.raises(ValueError, match=r"noise_bound is 'modell'; .*'model'"):
            acquisition(model_of(), **options)
        with pytest.raises(ValueError, match=r"noise_bound is 'modell'; .*'model'"):
            acquisition.with_options(**options)


def test_censored_feedback_needs_a_number() -> None:
    options: dict[str, Any] = {"minimum": -3.0, "outcome_bound": 5.0, "rkhs_bound": B}
    with pytest.raises(ValueError, match="noise_bound is 'model'; with"):
        CensoredUpperConfidenceBound(model_of(), **options, noise_bound="model")
    with pytest.raises(ValueError, match="noise_bound is 'model'; with"):
        CensoredWidth(KernelizedWidth(2.0, (0.1, "model"), DELTA), 1.0)
    recipe = BanditGP.with_kernel(MaternKernel(nu=2.5), lengthscale=0.4, noise=0.09)
    for acquisition in (ImprovedUpperConfidenceBound, AMMUpperConfidenceBound):
        with pytest.raises(ValueError, match="noise_bound is 'model'; with"):
            BanditLoop(
                Arms(TEST),
                recipe,
                acquisition.with_options(rkhs_bound=2.0, noise_bound="model"),
                feedback=Censored(minimum=0.0, max_delay=5, outcome_bound=1.0),
            )


def test_penalized_outcomes_need_a_number() -> None:
    recipe = BanditGP.with_kernel(MaternKernel(nu=2.5), lengthscale=0.4, noise=0.09)
    acquisition = AMMUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound="model")
    rule = AdditiveEpochs(1, epoch_length=5, step_size=0.5, surrogate="relabeled")
    with pytest.raises(ValueError, match="noise_bound is 'model', but"):
        BanditLoop(Arms(TEST), recipe, acquisition, constraints=rule)
    lagrangian = LagrangianUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound="model")
    rule = AdditiveEpochs(1, epoch_length=5, step_size=0.5, surrogate="separate")
    BanditLoop(Arms(TEST), recipe, lagrangian, constraints=rule).ask()

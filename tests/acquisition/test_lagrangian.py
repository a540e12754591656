"""Upper confidence bounds of penalized rewards against textbook computations in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import KroneckerMultiTaskGP, ModelListGP, SingleTaskGP
from botorch.models.multitask import MultiTaskGP
from botorch.models.transforms import Log

from botorch_bandits import (
    Arms,
    Box,
    Exponential,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
)
from botorch_bandits.acquisition import AffineOutcomes
from botorch_bandits.penalties import Linear, Polynomial

from .cases import MODELS, double, named, rows, uniform

CASES = [
    named(MODELS, "SingleTaskGP, two outputs, scalarized"),
    named(MODELS, "ModelListGP, scalarized"),
]
CASE = pytest.mark.parametrize("case", CASES, ids=["two outputs", "ModelListGP"])
KAPPA = 1.7
RKHS, NOISE, DELTA = (2.0, 3.0), (0.1, 0.2), 0.1
PENALTIES = {
    "linear": (Linear(), lambda g: g),
    "exponential": (Exponential(0.8), lambda g: np.exp(0.8 * np.maximum(g, 0.0)) - 1.0),
    "polynomial": (Polynomial(0.5, 2.0), lambda g: (0.5 * np.maximum(g, 0.0) + 1.0) ** 2 - 1.0),
}
# the data are chosen for variety, not for BoTorch's taste
pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")
PENALTY = pytest.mark.parametrize("penalty", PENALTIES)


def outputs_of(case, pending):
    (outputs,) = case.reference(case.build()).members
    return outputs, [o.hallucinate(pending) if len(pending) else o for o in outputs]


def igp_widths(outputs, delta=DELTA):
    """IGP-UCB as printed, ``delta / 2`` each, in units of each output's prior."""
    return [
        B / o.standard_deviation
        + R
        / o.standard_deviation
        * math.sqrt(2.0 * (o.information_gain + 1.0 + math.log(2.0 / delta)))
        for o, B, R in zip(outputs, RKHS, NOISE, strict=True)
    ]


def textbook(case, penalty, x, pending=(), widths=None, separate=False, clips=(np.inf, np.inf)):
    outputs, seen = outputs_of(case, np.asarray(pending))
    widths = igp_widths(outputs) if widths is None else widths
    (mean_f, cov_f), (mean_g, cov_g) = (o.posterior(x) for o in seen)
    var_f, var_g = (np.clip(np.diag(c), 0.0, None) for c in (cov_f, cov_g))
    if penalty == "linear" and not separate:
        sd = np.sqrt(var_f + KAPPA**2 * var_g)
        return mean_f - KAPPA * mean_g + math.hypot(*widths) * sd
    upper = np.clip(mean_f + widths[0] * np.sqrt(var_f), -clips[0], clips[0])
    lower = np.clip(mean_g - widths[1] * np.sqrt(var_g), -clips[1], clips[1])
    return upper - KAPPA * PENALTIES[penalty][1](lower)


def make(model, penalty="linear", **options):
    given = {"rkhs_bound": RKHS, "noise_bound": NOISE, "delta": DELTA}
    if "width" in options:
        given = {}
    return LagrangianUpperConfidenceBound(
        model, multipliers=[KAPPA], penalty=PENALTIES[penalty][0], **{**given, **options}
    )


def close(actual, expected, tolerance=1e-8):
    np.testing.assert_allclose(actual.detach(), expected, rtol=tolerance, atol=tolerance)


# --- values ---------------------------------------------------------------------------------


@CASE
@PENALTY
@pytest.mark.parametrize("num_pending", [0, 3])
def test_value_is_the_textbook_value(case, penalty, num_pending):
    x, pending = case.points(6, seed=3), case.points(num_pending, seed=4)
    acqf = make(case.build(), penalty, X_pending=pending if num_pending else None)
    close(acqf(x.unsqueeze(-2)), textbook(case, penalty, x.numpy(), pending.numpy()))
    assert acqf(x.reshape(2, 3, 1, 2)).shape == (2, 3)
    assert acqf(x[:1]).shape == (1,)
    acqf.set_X_pending(None)
    close(acqf(x.unsqueeze(-2)), textbook(case, penalty, x.numpy()))


@CASE
def test_clipped_bounds_apart(case):
    x, model = case.points(8, seed=3), case.build()
    plain = make(model, separate_bounds=True)
    close(plain(x.unsqueeze(-2)), textbook(case, "linear", x.numpy(), separate=True))
    clips = (4.8, 0.9)  # in the middle of what the bounds are: some are clipped and some not
    clipped = make(model, reward_bound=clips[0], constraint_bound=clips[1])
    expected = textbook(case, "linear", x.numpy(), separate=True, clips=clips)
    close(clipped(x.unsqueeze(-2)), expected)
    lower = clipped.constraint_lower_bounds(x.unsqueeze(-2)).detach()
    assert lower.shape == (8, 1)
    assert (lower.abs() <= 0.9).all()
    unclipped = plain.constraint_lower_bounds(x.unsqueeze(-2)).detach()
    assert torch.equal(lower, unclipped.clamp(-0.9, 0.9))
    assert not torch.equal(lower, unclipped)


@CASE
def test_constant_widths(case):
    x, model = case.points(6, seed=3), case.build()
    outputs, _ = outputs_of(case, ())
    (mean_f, cov_f), (mean_g, cov_g) = (o.posterior(x.numpy()) for o in outputs)
    sd = np.sqrt(np.diag(cov_f) + KAPPA**2 * np.diag(cov_g))
    # one number multiplies the deviation of the weighted sum; a pair combines
    close(make(model, width=2.0)(x.unsqueeze(-2)), mean_f - KAPPA * mean_g + 2.0 * sd)
    close(
        make(model, width=(2.0, 1.5), scale=0.5)(x.unsqueeze(-2)),
        mean_f - KAPPA * mean_g + 0.5 * 2.5 * sd,
    )
    close(
        make(model, "exponential", width=(2.0, 1.5), scale=0.5)(x.unsqueeze(-2)),
        textbook(case, "exponential", x.numpy(), widths=(1.0, 0.75)),
    )


def multi_task():
    X, Y = rows()
    tasks = torch.cat([torch.zeros(7, 1), torch.ones(7, 1)]).double()
    model = MultiTaskGP(
        torch.cat([torch.cat([X, X]), tasks], dim=-1),
        Y.T.reshape(-1, 1),
        task_feature=-1,
        outcome_transform=None,
    )
    data, task = model.covar_module.kernels
    data.lengthscale = double([[0.4, 0.6]])
    task.initialize(covar_factor=double([[1.2, 0.3], [0.7, 0.9]]), var=double([0.05, 0.1]))
    return model.eval()


@PENALTY
def test_correlated_outputs(penalty):
    # one dense Gaussian process on (point, output) pairs, with its full covariance
    model, x = multi_task(), uniform(5, 2, seed=3)
    X, Y = rows()
    task = model.covar_module.kernels[1]
    B = task.covar_matrix.to_dense().detach().numpy()
    noise = model.likelihood.noise_covar.noise.detach().numpy().reshape(-1)
    means = [m.constant.item() for m in model.mean_module.base_means]

    def k(A, C):
        scaled = (A[:, None] - C[None]) / np.array([0.4, 0.6])
        return np.exp(-0.5 * (scaled**2).sum(-1))

    acqf = make(model, penalty, width=2.0)
    points = x.unsqueeze(-2).requires_grad_()
    for pending in (X[:0], uniform(3, 2, seed=8)):
        # pending points are conditioned on with both of their outputs, each with its own noise
        known = torch.cat([X, pending]).numpy()
        A = np.kron(B, k(known, known)) + np.diag(np.repeat(noise, len(known)))
        cross = np.kron(B, k(known, x.numpy()))  # (outputs x rows) x (outputs x points)
        solved = np.linalg.solve(A, cross)
        if not len(pending):  # they do not change the mean
            centered = Y.numpy().T.reshape(-1) - np.repeat(means, 7)
            mean = (np.repeat(means, 5) + solved.T @ centered).reshape(2, 5)
        full = (np.kron(B, k(x.numpy(), x.numpy())) - cross.T @ solved).reshape(2, 5, 2, 5)
        var_f, cov, _, var_g = np.einsum("aibi->abi", full).reshape(4, 5)
        assert len(pending) or (np.abs(cov) > 0.1 * np.sqrt(var_f * var_g)).all()
        if penalty == "linear":
            sd = np.sqrt(var_f - 2.0 * KAPPA * cov + KAPPA**2 * var_g)
            expected = mean[0] - KAPPA * mean[1] + 2.0 * sd
        else:
            charge = KAPPA * PENALTIES[penalty][1](mean[1] - 2.0 * np.sqrt(var_g))
            expected = mean[0] + 2.0 * np.sqrt(var_f) - charge
        acqf.set_X_pending(pending if len(pending) else None)
        close(acqf(x.unsqueeze(-2)), expected, 1e-7)
        assert torch.autograd.gradcheck(acqf, (points,))
    # its prior has no single kernel to read, so a width with a theorem is refused
    with pytest.raises(ValueError, match=r"MultiTaskGP.*information_gain="):
        make(model, penalty)


def test_kronecker_model_gives_bounds_apart_only():
    # BoTorch's posterior of it holds no covariances between outputs, though they are correlated
    model, x = KroneckerMultiTaskGP(*rows()).eval(), uniform(5, 2, seed=3)
    with pytest.raises(UnsupportedError, match=r"joint Gaussian posterior.*separate_bounds=True"):
        make(model, width=2.0)(x.unsqueeze(-2))
    joint = model(x)
    mean, sd = joint.mean.detach().numpy(), joint.variance.sqrt().detach().numpy()
    expected = mean[:, 0] + 2.0 * sd[:, 0] - KAPPA * (mean[:, 1] - 2.0 * sd[:, 1])
    close(make(model, width=2.0, separate_bounds=True)(x.unsqueeze(-2)), expected, 1e-6)


@pytest.mark.parametrize("separate_bounds", [False, True])
def test_posterior_transform_comes_first(separate_bounds):
    model, x = named(MODELS, CASES[0].name).build(), uniform(5, 2, seed=3)
    units, shift = double([2.0, 3.0]), double([1.0, -2.0])
    transform = AffineOutcomes(torch.diag(units), shift)
    options = {"width": 1.5, "separate_bounds": separate_bounds}
    acqf = make(model, posterior_transform=transform, **options)
    posterior = model.posterior(x)
    mean = (posterior.mean.detach() * units + shift).numpy()
    sd = (posterior.variance.detach().sqrt() * units).numpy()
    if separate_bounds:
        expected = mean[:, 0] + 1.5 * sd[:, 0] - KAPPA * (mean[:, 1] - 1.5 * sd[:, 1])
    else:
        both = np.sqrt(sd[:, 0] ** 2 + (KAPPA * sd[:, 1]) ** 2)
        expected = mean[:, 0] - KAPPA * mean[:, 1] + 1.5 * both
    close(acqf(x.unsqueeze(-2)), expected)
    weighted = ScalarizedPosteriorTransform(double([1.0, 1.0]))
    with pytest.raises(TypeError, match=r"posterior_transform.*Pass AffineOutcomes"):
        make(model, posterior_transform=weighted)


# --- gradients, copies, pending points ------------------------------------------------------


@CASE
@PENALTY
def test_gradient(case, penalty):
    x = case.points(4, seed=3).unsqueeze(-2).requires_grad_()
    for options in ({}, {"separate_bounds": True}):
        acqf = make(case.build(), penalty, X_pending=case.points(2, seed=4), **options)
        assert torch.autograd.gradcheck(acqf, (x,))


# --- guarantees, recipes, refusals ----------------------------------------------------------


def test_refusals():
    model = CASES[0].build()
    x = CASES[0].points(3, seed=3)
    with pytest.raises(ValueError, match=r"2 multipliers.* 3 outputs"):
        LagrangianUpperConfidenceBound(model, multipliers=[1.0, 1.0], width=1.0)
    with pytest.raises(ValueError, match=r"multipliers is \[-1.0\]"):
        LagrangianUpperConfidenceBound(model, multipliers=[-1.0], width=1.0)
    with pytest.raises(TypeError, match=r"multipliers has dtype torch.float32"):
        LagrangianUpperConfidenceBound(model, multipliers=torch.ones(1), width=1.0)
    with pytest.raises(TypeError, match="penalty must be"):
        LagrangianUpperConfidenceBound(model, multipliers=[1.0], penalty=torch.exp, width=1.0)
    with pytest.raises(ValueError, match="rkhs_bound has 3 entries"):
        make(model, rkhs_bound=(1.0, 1.0, 1.0))
    acqf = make(model)
    with pytest.raises(AssertionError, match="q=1"):
        acqf.constraint_lower_bounds(x)
    with pytest.raises(TypeError, match=r"X has dtype torch.float32"):
        acqf(x.float().unsqueeze(-2))
    steep = LagrangianUpperConfidenceBound(
        ModelListGP(*[CASES[1].build().models[0]] * 2),  # both outputs are near 3
        multipliers=[1.0],
        penalty=Exponential(1e4),
        width=0.1,
    )
    with pytest.raises(OverflowError, match=r"Polynomial\(c, n\)"):
        steep(x.unsqueeze(-2))


# --- joint draws ---------------------------------------------------------------------------


def draw(model, penalty="linear", **options):
    return LagrangianThompsonSampling(
        model,
        multipliers=[KAPPA],
        penalty=PENALTIES[penalty][0],
        **{"width": 1.0, "seed": 3, **options},
    )


@CASE
@pytest.mark.parametrize("on_choices", [False, True], ids=["path", "choices"])
def test_each_output_is_scaled_about_its_mean(case, on_choices):
    # Theorem 4 spends half of delta on the draw, and each output has half of the rest
    x = (case.choices[::4] if on_choices else case.points(6, seed=3)).unsqueeze(-2)
    options = {"choices": case.choices} if on_choices else {}
    model = case.build()
    outputs, _ = outputs_of(case, ())
    widths = np.array(igp_widths(outputs, DELTA / 2.0))
    scaled = draw(
        model, width=None, rkhs_bound=RKHS, noise_bound=NOISE, delta=DELTA, **options
    ).draw(x)
    plain = draw(model, **options).draw(x).detach().numpy()
    mean = np.stack([o.posterior(x.squeeze(-2).numpy())[0] for o in outputs], axis=-1)
    close(scaled, mean + widths * (plain - mean))


def test_draws_from_recipes_and_what_they_refuse():
    recipe = LagrangianThompsonSampling.with_options(width=1.0)
    case = CASES[0]
    given = {"multipliers": [KAPPA], "penalty": Exponential(0.8), "seed": 3}
    on_arms = recipe.build(case.build(), Arms(case.choices), **given)
    assert torch.equal(on_arms.choices, case.choices)
    on_box = recipe.build(case.build(), Box(case.bounds), **given)
    assert on_box.choices is None
    expected = draw(case.build(), "exponential", choices=case.choices)
    grid = case.choices.unsqueeze(-2)
    assert torch.equal(on_arms(grid), expected(grid))
    X, Y = rows()
    batched = SingleTaskGP(torch.stack([X, X]), torch.stack([Y, Y]))
    with pytest.raises(UnsupportedError, match=r"batch shape \(2,\)"):
        draw(batched)
    with pytest.raises(UnsupportedError, match=r"no pathwise draws .*choices="):
        draw(multi_task())(grid)
    with pytest.raises(UnsupportedError, match=r"no joint Gaussian moments.*a model with"):
        draw(KroneckerMultiTaskGP(X, Y).eval(), choices=case.choices)(grid)
    with pytest.raises(ValueError, match=r"2 multipliers"):
        LagrangianThompsonSampling(case.build(), multipliers=[1.0, 2.0], width=1.0)


def test_affine_outcomes_refuse():
    X, Y = rows()
    with pytest.raises(TypeError, match=r"weights has dtype torch.float32"):
        AffineOutcomes(torch.ones(1, 2))
    with pytest.raises(ValueError, match="weights must be a matrix"):
        AffineOutcomes(double([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"offsets must be a vector of length 1"):
        AffineOutcomes(double([[1.0, 2.0]]), double([1.0, 2.0]))
    with pytest.raises(ValueError, match="for 3 outputs, but"):
        CASES[0].build().posterior(X, posterior_transform=AffineOutcomes(double([[1.0, 2.0, 3.0]])))
    positive = SingleTaskGP(X, Y.abs() + 1.0, outcome_transform=Log())
    with pytest.raises(UnsupportedError, match=r"joint Gaussian posterior.*ModelListGP"):
        positive.posterior(X, posterior_transform=AffineOutcomes(double([[1.0, 2.0]])))

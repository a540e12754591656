"""Joint draws of reward and constraints: their law, their score, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models import KroneckerMultiTaskGP, SingleTaskGP

from botorch_bandits import Arms, Box, Exponential, LagrangianThompsonSampling

from .cases import rows
from .test_lagrangian import (
    CASE,
    CASES,
    DELTA,
    KAPPA,
    NOISE,
    PENALTIES,
    PENALTY,
    RKHS,
    close,
    igp_widths,
    multi_task,
    outputs_of,
)

# the data are chosen for variety, not for BoTorch's taste
pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")


def make(model, penalty="linear", **options):
    return LagrangianThompsonSampling(
        model,
        multipliers=[KAPPA],
        penalty=PENALTIES[penalty][0],
        **{"width": 1.0, "seed": 3, **options},
    )


@CASE
@PENALTY
@pytest.mark.parametrize("on_choices", [False, True], ids=["path", "choices"])
def test_score_of_the_draw(case, penalty, on_choices):
    x = case.choices[::4] if on_choices else case.points(6, seed=3)
    acqf = make(case.build(), penalty, choices=case.choices if on_choices else None)
    drawn = acqf.draw(x.unsqueeze(-2)).detach().numpy()
    assert drawn.shape == (len(x), 2)
    close(acqf(x.unsqueeze(-2)), drawn[:, 0] - KAPPA * PENALTIES[penalty][1](drawn[:, 1]))
    assert torch.equal(acqf(x.unsqueeze(-2)), acqf(x.unsqueeze(-2)))  # one draw answers all
    two = x[:6].reshape(2, 3, 1, 2)
    torch.testing.assert_close(acqf(two).reshape(-1), acqf(x[:6].unsqueeze(-2)))


@CASE
@pytest.mark.parametrize("on_choices", [False, True], ids=["path", "choices"])
def test_each_output_is_scaled_about_its_mean(case, on_choices):
    # Theorem 4 spends half of delta on the draw, and each output has half of the rest
    x = (case.choices[::4] if on_choices else case.points(6, seed=3)).unsqueeze(-2)
    options = {"choices": case.choices} if on_choices else {}
    model = case.build()
    outputs, _ = outputs_of(case, ())
    widths = np.array(igp_widths(outputs, DELTA / 2.0))
    scaled = make(
        model, width=None, rkhs_bound=RKHS, noise_bound=NOISE, delta=DELTA, **options
    ).draw(x)
    plain = make(model, **options).draw(x).detach().numpy()
    mean = np.stack([o.posterior(x.squeeze(-2).numpy())[0] for o in outputs], axis=-1)
    close(scaled, mean + widths * (plain - mean))


def test_recipe_and_refusals():
    recipe = LagrangianThompsonSampling.with_options(width=1.0)
    case = CASES[0]
    given = {"multipliers": [KAPPA], "penalty": Exponential(0.8), "seed": 3}
    on_arms = recipe.build(case.build(), Arms(case.choices), **given)
    assert torch.equal(on_arms.choices, case.choices)
    on_box = recipe.build(case.build(), Box(case.bounds), **given)
    assert on_box.choices is None
    expected = make(case.build(), "exponential", choices=case.choices)
    grid = case.choices.unsqueeze(-2)
    assert torch.equal(on_arms(grid), expected(grid))
    X, Y = rows()
    batched = SingleTaskGP(torch.stack([X, X]), torch.stack([Y, Y]))
    with pytest.raises(UnsupportedError, match=r"batch shape \(2,\)"):
        make(batched)
    with pytest.raises(UnsupportedError, match=r"no pathwise draws .*choices="):
        make(multi_task())(grid)
    with pytest.raises(UnsupportedError, match=r"no joint Gaussian moments.*a model with"):
        make(KroneckerMultiTaskGP(X, Y).eval(), choices=case.choices)(grid)
    with pytest.raises(ValueError, match=r"2 multipliers"):
        LagrangianThompsonSampling(case.build(), multipliers=[1.0, 2.0], width=1.0)

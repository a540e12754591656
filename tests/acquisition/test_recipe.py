"""Recipes: all settings of an acquisition function but its model."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits import (
    AcquisitionRecipe,
    Arms,
    BanditAcquisition,
    Box,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    WidthUpperConfidenceBound,
)
from botorch_bandits.confidence import ConstantWidth

from .cases import bandit_gp, rows, uniform

ARMS = Arms(uniform(9, 2, seed=5))
BOX = Box([[0.0, 0.0], [1.0, 1.0]])
X_TEST = ARMS.choices.unsqueeze(-2)
BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1}


# --- options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (GPUpperConfidenceBound, ("num_arms", "delta", "width", "scale", "maximize")),
        (ImprovedUpperConfidenceBound, ("rkhs_bound", "noise_bound", "any_lambda", "units")),
        (GPThompsonSampling, ("rkhs_bound", "choices", "posterior_transform")),
        (LogExpectedImprovement, ("best_f", "incumbent", "maximize")),
        (WidthUpperConfidenceBound, ("rule", "scale")),
    ],
)
def test_an_unknown_option_is_answered_with_the_known_ones(
    cls: type[BanditAcquisition], options: tuple[str, ...]
) -> None:
    with pytest.raises(TypeError, match=f"{cls.__name__}.with_options has no option 'gamma'") as e:
        cls.with_options(gamma=2.0)
    listed = re.findall(r"\w+", str(e.value).split("it has ")[1])
    assert set(options) <= set(listed)
    # what changes from round to round is no setting
    for given in ("model", "X_pending", "round_number", "seed", "X_observed", "Y_observed"):
        assert given not in listed
        with pytest.raises(TypeError, match=f"no option '{given}'"):
            cls.with_options(**{given: None})


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (ImprovedUpperConfidenceBound, {}, "needs rkhs_bound= and noise_bound="),
        (ImprovedUpperConfidenceBound, {"rkhs_bound": 1.0}, "noise_bound=None"),
        (ImprovedUpperConfidenceBound, {**BOUNDS, "width": 1.0}, "not both"),
        (ImprovedUpperConfidenceBound, {**BOUNDS, "delta": 0.0}, "delta is 0.0"),
        (ImprovedUpperConfidenceBound, {**BOUNDS, "scale": 0.0}, "scale is 0.0"),
        (ImprovedUpperConfidenceBound, {**BOUNDS, "units": "raw"}, "units is 'raw'"),
        (GPThompsonSampling, {"noise_bound": 0.1}, "rkhs_bound=None"),
        (GPThompsonSampling, {"width": 1.0, "delta": 3.0}, "delta is 3.0"),
        (
            GPThompsonSampling,
            {"width": 1.0, "choices": ARMS.choices[[0, 0]]},
            "rows 0 and 1 are the same",
        ),
        (GPUpperConfidenceBound, {"num_arms": 0}, "num_arms is 0"),
        (GPUpperConfidenceBound, {"num_arms": 3, "width": 1.0}, "exactly one"),
        (GPUpperConfidenceBound, {"width": -1.0}, "width is -1.0"),
        (LogExpectedImprovement, {"incumbent": "best"}, "incumbent is 'best'"),
    ],
)
def test_infeasible_options_are_refused_at_once(
    cls: type[BanditAcquisition], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        cls.with_options(**options)


# --- equality -------------------------------------------------------------------------------


def test_recipes_are_equal_if_class_and_options_are() -> None:
    recipe = ImprovedUpperConfidenceBound.with_options(**BOUNDS)
    same = ImprovedUpperConfidenceBound.with_options(noise_bound=0.1, rkhs_bound=2.0)
    assert recipe == same
    assert hash(recipe) == hash(same)
    assert recipe != ImprovedUpperConfidenceBound.with_options(**BOUNDS, delta=0.05)
    assert recipe != ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.1, noise_bound=0.1)
    assert recipe != GPThompsonSampling.with_options(**BOUNDS)
    assert recipe != "ImprovedUpperConfidenceBound"
    # True == 1 in Python, but not as an option
    with_flag = ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)
    assert with_flag != AcquisitionRecipe(ImprovedUpperConfidenceBound, {**BOUNDS, "any_lambda": 1})


def test_tensors_among_the_options_are_compared_by_their_entries() -> None:
    recipes = [
        GPThompsonSampling.with_options(width=1.0, choices=choices)
        for choices in (ARMS.choices, ARMS.choices.clone(), ARMS.choices + 1e-9, ARMS.choices[:3])
    ]
    assert recipes[0] == recipes[1]
    assert hash(recipes[0]) == hash(recipes[1])
    assert recipes[0] != recipes[2]
    assert recipes[0] != recipes[3]


def test_recipes_with_rules_are_compared_by_the_rules() -> None:
    one, same, other = (
        WidthUpperConfidenceBound.with_options(rule=ConstantWidth(w)) for w in (1.0, 1.0, 2.0)
    )
    assert one == same
    assert one != other


# --- building -------------------------------------------------------------------------------


def test_arms_give_gp_ucb_their_number() -> None:
    model = bandit_gp()
    recipe = GPUpperConfidenceBound.with_options(delta=0.2)
    built = recipe.build(model, ARMS)
    direct = GPUpperConfidenceBound(model, num_arms=9, delta=0.2)
    assert torch.equal(built(X_TEST), direct(X_TEST))
    recipe.check(ARMS)
    assert dict(recipe.options) == {"delta": 0.2}  # building completes a copy
    explicit = GPUpperConfidenceBound.with_options(num_arms=500).build(model, ARMS)
    assert torch.equal(explicit.width, GPUpperConfidenceBound(model, num_arms=500).width)
    # None is what leaving an option out means
    with_none = GPUpperConfidenceBound.with_options(num_arms=None, width=None).build(model, ARMS)
    assert torch.equal(with_none.width, GPUpperConfidenceBound(model, num_arms=9).width)


def test_gp_ucb_on_a_box_needs_a_width() -> None:
    recipe = GPUpperConfidenceBound.with_options()
    message = "exactly one.*On a box, ImprovedUpperConfidenceBound has a width with a theorem"
    with pytest.raises(ValueError, match=message):
        recipe.check(BOX)
    with pytest.raises(ValueError, match=message):
        recipe.build(bandit_gp(), BOX)
    constant = GPUpperConfidenceBound.with_options(width=2.0).build(bandit_gp(), BOX)
    assert float(constant.width) == pytest.approx(2.0)


def test_thompson_sampling_draws_on_the_arms_of_the_domain() -> None:
    model = bandit_gp()
    recipe = GPThompsonSampling.with_options(**BOUNDS)
    on_arms = recipe.build(model, ARMS, seed=3)
    direct = GPThompsonSampling(model, **BOUNDS, choices=ARMS.choices, seed=3)
    assert torch.equal(on_arms(X_TEST), direct(X_TEST))
    on_box = recipe.build(model, BOX, seed=3)
    assert on_box.arms is None
    assert torch.equal(on_box(X_TEST), GPThompsonSampling(model, **BOUNDS, seed=3)(X_TEST))
    some = GPThompsonSampling.with_options(**BOUNDS, choices=ARMS.choices[:3])
    assert some.build(model, ARMS, seed=3).arms.num_arms == 3


def test_what_a_class_does_not_know_is_not_handed_to_it() -> None:
    X, Y = rows()
    pending = uniform(2, 2, seed=4)
    given = {
        "round_number": 20,
        "X_pending": pending,
        "seed": 1,
        "X_observed": X,
        "Y_observed": Y[:, 1:],
    }
    model = bandit_gp()
    gp_ucb = GPUpperConfidenceBound.with_options().build(model, ARMS, **given)
    assert gp_ucb.round_number == 20
    assert torch.equal(gp_ucb.X_pending, pending)
    direct = GPUpperConfidenceBound(model, num_arms=9, round_number=20, X_pending=pending)
    assert torch.equal(gp_ucb(X_TEST), direct(X_TEST))
    draw = GPThompsonSampling.with_options(width=2.0).build(model, ARMS, **given)
    again = GPThompsonSampling(model, width=2.0, choices=ARMS.choices, seed=1, X_pending=pending)
    assert torch.equal(draw(X_TEST), again(X_TEST))
    improvement = LogExpectedImprovement.with_options(incumbent="observed").build(
        model, ARMS, **given
    )
    assert float(improvement.observed_best_f) == float(Y[:, 1].max())
    rule = WidthUpperConfidenceBound.with_options(rule=ConstantWidth(2.0))
    assert float(rule.build(model, BOX, **given).width) == pytest.approx(2.0)


def test_one_recipe_builds_for_many_models() -> None:
    recipe = ImprovedUpperConfidenceBound.with_options(**BOUNDS)
    for num_rows in (0, 3, 7):
        model = bandit_gp(num_rows=num_rows)
        direct = ImprovedUpperConfidenceBound(model, **BOUNDS)
        assert torch.equal(recipe.build(model, BOX)(X_TEST), direct(X_TEST))


# --- the base class -------------------------------------------------------------------------


class Distance(BanditAcquisition):
    """A user's own acquisition function: minus the distance to a center."""

    def __init__(self, model: Model, center: Tensor) -> None:
        super().__init__(model)
        self.center = center

    def forward(self, X: Tensor) -> Tensor:
        return -(X - self.center).norm(dim=-1).squeeze(-1)


def test_a_class_of_ones_own_gets_recipes_from_the_base_class() -> None:
    center = ARMS.choices[4]
    recipe = Distance.with_options(center=center)
    assert recipe == Distance.with_options(center=center.clone())
    acqf = recipe.build(bandit_gp(), ARMS, seed=1, round_number=2)
    assert torch.equal(ARMS.maximize(acqf)[0], center)
    assert acqf.describe(center) == {"acquisition_value": 0.0}
    guarantee = acqf.guarantee()
    assert guarantee.method == "Distance"
    assert not guarantee.holds
    with pytest.raises(TypeError, match="no option 'center'; it has center"):
        Distance.with_options(center=center)

"""Recipes: all settings of an acquisition function but its model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from botorch.models.model import Model
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_bandits import (
    AcquisitionRecipe,
    Arms,
    BanditAcquisition,
    BanditGP,
    BanditLoop,
    Box,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    WidthUpperConfidenceBound,
)
from botorch_bandits.acquisition.rules import ThompsonArmsRule, WidthArmsRule
from botorch_bandits.confidence import ConstantWidth, WidthRule

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


# --- building -------------------------------------------------------------------------------


def test_gp_ucb_without_ingredients_takes_the_arms_or_a_constant_width() -> None:
    recipe = GPUpperConfidenceBound.with_options()
    on_box = recipe.build(bandit_gp(), BOX)
    assert float(on_box.width) == pytest.approx(2.0)
    assert on_box.guarantee().gaps == (
        "no bounds on the function were given; the default width, the constant 2, is not based on "
        "knowledge of this function: a theorem needs rkhs_bound= and noise_bound= "
        "(with censored feedback outcome_bound= as well; GPUpperConfidenceBound: num_arms=), and "
        "hyperparameters that were fixed before the data",
        "a constant width is a heuristic",
    )
    on_arms = recipe.build(bandit_gp(), ARMS, round_number=20)
    known = GPUpperConfidenceBound(bandit_gp(), num_arms=ARMS.num_arms, round_number=20)
    assert torch.equal(on_arms.width, known.width)
    message = "exactly one.*On a box, ImprovedUpperConfidenceBound has a width with a theorem"
    with pytest.raises(ValueError, match=message):
        GPUpperConfidenceBound.with_options(smoothness_b=1.0)
    constant = GPUpperConfidenceBound.with_options(width=2.0).build(bandit_gp(), BOX)
    assert constant.guarantee().gaps == ("a constant width is a heuristic",)


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
    assert acqf.describe(center)["acquisition_value"] == 0.0
    guarantee = acqf.guarantee()
    assert guarantee.method == "Distance"
    assert not guarantee.holds
    with pytest.raises(TypeError, match="no option 'middle'"):
        Distance.with_options(middle=center)


# --- subclasses -----------------------------------------------------------------------------


class Wider(ImprovedUpperConfidenceBound):
    """A subclass with a width of its own."""

    defines_rule = True

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> WidthRule:
        return ConstantWidth(3.0 * options["rkhs_bound"])


class Shifted(ImprovedUpperConfidenceBound):
    """A subclass that evaluates something else."""

    def forward(self, X: Tensor) -> Tensor:
        return super().forward(X) - 10.0 * X[..., 0, 0]


class Rescaled(ImprovedUpperConfidenceBound):
    """A subclass with a constructor of its own."""

    def __init__(self, model: Model, factor: float, X_pending: Tensor | None = None) -> None:
        super().__init__(model, **BOUNDS, scale=factor, X_pending=X_pending)


class Counted(GPUpperConfidenceBound):
    """A subclass whose constructor has other options, one with the name of another's."""

    def __init__(self, model: Model, dim: int, X_pending: Tensor | None = None) -> None:
        super().__init__(model, width=float(dim), X_pending=X_pending)


class Fewer(GPUpperConfidenceBound):
    """A subclass whose constructor has some of the options, with one default of its own."""

    def __init__(
        self,
        model: Model,
        *,
        num_arms: int | None = None,
        delta: float = 0.05,
        X_pending: Tensor | None = None,
    ) -> None:
        super().__init__(model, num_arms=num_arms, delta=delta, X_pending=X_pending)


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [
        (ImprovedUpperConfidenceBound.with_options(**BOUNDS), WidthArmsRule),
        (Wider.with_options(**BOUNDS), WidthArmsRule),
        (WidthUpperConfidenceBound.with_options(rule=ConstantWidth(2.0)), WidthArmsRule),
        (GPThompsonSampling.with_options(**BOUNDS), ThompsonArmsRule),
        (Shifted.with_options(**BOUNDS), None),
        (Rescaled.with_options(factor=2.0), None),
        (Counted.with_options(dim=1), None),
    ],
)
def test_a_subclass_is_evaluated_unless_it_says_that_a_rule_plays_it(
    recipe: AcquisitionRecipe, kind: type | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = recipe.arms_rule(ARMS)
    assert rule is None if kind is None else type(rule) is kind
    # the loop follows: it builds no acquisition function where there is a rule
    built: list[type] = []
    build = AcquisitionRecipe.build

    def count(self: AcquisitionRecipe, *args: Any, **given: Any) -> Any:
        built.append(self.acquisition_class)
        return build(self, *args, **given)

    monkeypatch.setattr(AcquisitionRecipe, "build", count)
    model = BanditGP.with_kernel(RBFKernel(), noise=0.05)
    loop = BanditLoop(ARMS, model, recipe, seed=1)
    for _ in range(4):
        query = loop.ask()
        loop.tell(query.id, float(query.x.sin().sum()))
    assert built == ([] if kind else [recipe.acquisition_class] * 4)


def test_a_width_rule_of_ones_own_is_that_of_drop_in_and_arms() -> None:
    recipe = Wider.with_options(**BOUNDS)
    assert float(recipe.build(bandit_gp(), BOX).width) == pytest.approx(6.0)
    rule = recipe.arms_rule(ARMS)
    assert isinstance(rule, WidthArmsRule)
    assert rule.rule == ConstantWidth(6.0)


def test_a_constructor_of_ones_own_gets_its_own_options_and_no_others() -> None:
    recipe = Counted.with_options(dim=1)
    for domain in (ARMS, BOX):
        Counted.check_options(recipe.options, domain)
        assert float(recipe.build(bandit_gp(), domain).width) == pytest.approx(1.0)
    with pytest.raises(TypeError, match="no option 'width'"):
        Counted.with_options(width=1.0)


def test_a_constructor_of_ones_own_is_told_what_the_domain_knows() -> None:
    recipe = Fewer.with_options()
    for domain, num_arms in ((ARMS, ARMS.num_arms), (Arms(ARMS.choices[:4]), 4)):
        found = recipe.build(bandit_gp(), domain)
        expected = GPUpperConfidenceBound(bandit_gp(), num_arms=num_arms, delta=0.05)
        assert torch.equal(found.width, expected.width)
    loop = BanditLoop(ARMS, BanditGP.with_kernel(RBFKernel(), noise=0.05), recipe, seed=1)
    assert loop.ask().diagnostics["width"] > 0.0
    with pytest.raises(ValueError, match="num_arms=3, but the domain"):
        GPUpperConfidenceBound.with_options(num_arms=3).build(bandit_gp(), ARMS)

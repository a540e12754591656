"""A guarantee is given only where a theorem covers the model and the width in use."""

from __future__ import annotations

from dataclasses import replace

import pytest
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelListGP, SingleTaskGP, SingleTaskVariationalGP
from botorch.models.model import Model
from botorch.models.transforms import Normalize
from gpytorch.kernels import RBFKernel
from models.textbook import double, uniform

from botorch_bandits import BanditGP, Guarantee
from botorch_bandits.confidence import (
    FiniteArmsWidth,
    KernelizedWidth,
    PriorSummary,
    RegretStatement,
    Statement,
    WidthRule,
)
from botorch_bandits.confidence.facts import Facts

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")


X, Y = uniform(6, 2, seed=0), uniform(6, 2, seed=1)
PRINTED = KernelizedWidth(2.0, 0.1, 0.05)
GENERAL = KernelizedWidth(2.0, 0.1, 0.05, any_lambda=True)


def guarantee(rule: WidthRule, model: Model, weights: list[float] | None = None) -> Guarantee:
    transform = None if weights is None else ScalarizedPosteriorTransform(double(weights))
    return rule.guarantee(PriorSummary(model, transform), round_number=7)


def fixed(noise: float) -> BanditGP:
    return BanditGP(X, Y[:, :1], RBFKernel(), noise)


def two(*noises: float) -> ModelListGP:
    return ModelListGP(
        *(
            BanditGP(X, y, RBFKernel(), noise)
            for y, noise in zip(Y.split(1, -1), noises, strict=True)
        )
    )


def test_the_printed_form_holds_from_lambda_one_upwards() -> None:
    assert guarantee(PRINTED, fixed(1.0)).holds
    promise = guarantee(PRINTED, fixed(0.99))
    assert not promise.holds
    assert len(promise.gaps) == 1
    assert "lam = 0.99 is below 1" in promise.gaps[0]
    assert "any_lambda=True" in promise.gaps[0]


def test_what_is_learned_from_the_data_voids_every_theorem() -> None:
    free = BanditGP(X, Y[:, :1], RBFKernel(), noise=1.0, learn_hyperparameters=True)
    by_data = BanditGP(X, Y[:, :1], RBFKernel(), noise=1.0, input_transform=Normalize(2))
    standardized = SingleTaskGP(X, Y[:, :1]).requires_grad_(False)
    for rule in (GENERAL, FiniteArmsWidth(10, 0.1)):
        for model, what in (
            (free, "raw_lengthscale (a free parameter)"),
            (free, "likelihood noise (a free parameter)"),
            (by_data, "input scale"),
            (standardized, "outcome scale and mean (Standardize)"),
        ):
            promise = guarantee(rule, model)
            assert promise.theorem is not None
            assert not promise.holds
            assert any(what in gap for gap in promise.gaps)
            assert any("BanditGP.with_kernel" in gap for gap in promise.gaps)


def test_only_outputs_with_weight_need_to_be_covered() -> None:
    # the second output has a lambda below 1 in one model, and learns in the other
    low = two(2.0, 0.1)
    assert guarantee(PRINTED, low, [1.0, 0.0]).holds
    assert not guarantee(PRINTED, low, [1.0, 1.0]).holds
    mixed = ModelListGP(fixed(2.0), SingleTaskGP(X, Y[:, 1:]))
    assert guarantee(PRINTED, mixed, [1.0, 0.0]).holds
    assert not guarantee(PRINTED, mixed, [1.0, 1.0]).holds


@pytest.mark.parametrize("rule", [GENERAL, FiniteArmsWidth(10, 0.1)])
def test_a_model_that_cannot_be_read_has_no_promise(rule: WidthRule) -> None:
    promise = guarantee(rule, SingleTaskVariationalGP(X, Y[:, :1]))
    assert not promise.holds
    assert any("the prior cannot be read (SingleTaskVariationalGP" in g for g in promise.gaps)


def test_statements_hold_one_by_one() -> None:
    bands, regret = Statement("a band"), RegretStatement("a bound", bound=2.0, num_rounds=3)
    promise = Guarantee("m", "t", bands=bands, regret=regret)
    assert promise.holds
    assert (promise.regret_bound, promise.statement) == (2.0, "a band; a bound")
    partly = promise.with_gaps("pending", of=("bands",))
    assert partly.bands is not None
    assert partly.regret is not None
    assert (partly.bands.holds, partly.regret.holds, partly.holds) == (False, True, False)
    assert (partly.gaps, partly.reasons) == ((), ("pending",))
    assert str(partly).startswith("guaranteed in part: m\n  not covered: pending\n")
    assert (
        "  confidence bounds, not guaranteed: a band\n    not covered: pending" in partly.explain()
    )
    assert partly.with_gaps("none", of=("violation",)) == partly
    whole = partly.with_gaps("all")
    assert whole.regret is not None
    assert (whole.gaps, whole.reasons) == (("all",), ("all", "pending"))
    assert whole.regret.gaps == ("all",)
    assert whole.regret_bound is None
    assert whole.explain().count("all") == 1
    # without a statement there is nothing to hold
    assert not Guarantee("m", "t").holds
    # a bound on a multiple of the regret is none on the regret
    scaled = replace(regret, quantity="rho_m times the regret")
    assert Guarantee("m", "t", regret=scaled).regret_bound is None
    others = replace(regret, num_others=1)
    assert others.total is None
    assert replace(others, bound_of_others=0.5).total == 2.5


def test_the_short_form_begins_with_the_verdict_and_three_reasons() -> None:
    regret = RegretStatement(
        "with {probability} a bound", delta=0.1, bound=2.0, num_rounds=3, num_others=2
    )
    assumed = tuple(f"the assumption {'with many words ' * 9}{i}" for i in range(4))
    promise = Guarantee("m <T>", "t", regret=regret, assumptions=assumed)
    assert str(promise).splitlines() == [
        "guaranteed: m <T>",
        "  regret: guaranteed, with probability 0.9",
        "    so far it covers 3 of 5 rounds: at most 2",
        "    the 2 other rounds are not bounded",
        "  explain() returns the full text, with 4 assumptions",
    ]
    words = " ".join(promise.explain().split())
    assert all(each in words for each in assumed)
    voided = promise.with_gaps(*"abcd").with_gaps("e " * 80, of=("regret",))
    assert str(voided).splitlines()[:6] == [
        "no guarantee: m <T>",
        "  not covered: a",
        "  not covered: b",
        "  not covered: c",
        "  not covered, for 2 more reasons",
        "  regret: not guaranteed",
    ]
    for text in (str(promise), promise.explain(), str(voided), voided.explain()):
        assert max(map(len, text.splitlines())) <= 88
    shown = voided._repr_html_()
    assert "<b>no guarantee: m &lt;T&gt;" in shown
    assert shown.endswith(f"{voided.explain().replace('<T>', '&lt;T&gt;')}</pre></details>")


def test_words_follow_from_the_facts() -> None:
    model = BanditGP(X, Y[:, :1], kernel=RBFKernel(), noise=2.0, prior_mean=3.0)
    summary = PriorSummary(model)
    told = GENERAL.guarantee(summary, 7, Facts(outcome="cost", minimizes=True))
    assert told.constants["prior_mean"] == -3.0  # the model has minus the costs
    assert "the cost function" in told.assumptions[0]
    assert "the cost lies within" in told.statement
    assert "the cost at its point less the least cost, in every round that minimizes" in (
        told.explain(10_000)
    )
    of_each = GENERAL.guarantee(summary, 7, Facts(function="each function"))
    assert "the norm of each function less the prior mean" in of_each.assumptions[0]
    assert of_each.statement == GENERAL.guarantee(summary, 7).statement


def test_draws_have_the_theorem_that_the_width_names_for_them() -> None:
    model = BanditGP(X, Y[:, :1], kernel=RBFKernel(), noise=2.0)
    drawn = GENERAL.guarantee(PriorSummary(model), 7, Facts(draws=True))
    assert drawn.theorem == (
        "Chowdhury and Gopalan 2017, Theorem 4, in the form for every lam, with the realized "
        "information gain"
    )
    # a width that names no other theorem keeps its own
    finite = FiniteArmsWidth(10, 0.1)
    drawn = finite.guarantee(PriorSummary(model), 7, Facts(draws=True))
    assert drawn.theorem == guarantee(finite, model).theorem

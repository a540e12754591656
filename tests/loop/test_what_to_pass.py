"""Errors and reasons that a newcomer meets name what to pass instead."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement as BoTorchsImprovement
from botorch.acquisition import PosteriorMean, UpperConfidenceBound
from botorch.models import ModelListGP
from gpytorch.kernels import MaternKernel

from botorch_bandits import (
    AdditiveEpochs,
    AMMUpperConfidenceBound,
    BanditGP,
    BanditLoop,
    Box,
    CandidatesUpperConfidenceBound,
    DMMUpperConfidenceBound,
    EvidenceRestart,
    ExponentialWeights,
    Float,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    RandomizedUpperConfidenceBound,
    SlidingWindow,
    Space,
    TimeVaryingKernel,
)
from botorch_bandits.models import candidate_grid

BOX = Box([(0.0, 1.0)])
PRIOR = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.3)
LIST = BanditGP.with_candidates(candidate_grid([0.1, 0.3]))
BOUNDS = {"rkhs_bound": 1.0, "noise_bound": 0.1}


@pytest.mark.parametrize("given", [UpperConfidenceBound, BoTorchsImprovement, PosteriorMean])
def test_a_class_of_botorch_is_refused_with_a_function_that_builds_it(given: Any) -> None:
    message = rf"BoTorch's class {given.__name__}, .*lambda model, X_pending, best: "
    with pytest.raises(TypeError, match=message):
        BanditLoop(BOX, PRIOR, given)


@pytest.mark.parametrize("maximize", [True, False])
def test_a_function_gets_the_best_outcome_in_the_sign_of_the_model(maximize: bool) -> None:
    seen: list[float | None] = []

    def build(model: Any, X_pending: Any, best: float | None) -> Any:
        seen.append(best)
        return BoTorchsImprovement(model, best_f=-9.0 if best is None else best)

    loop = BanditLoop(BOX, PRIOR, build, maximize=maximize)
    for reward in (0.5, -1.0, 2.0):
        loop.tell(loop.ask().id, reward)
    loop.ask()
    assert seen == ([None, 0.5, 0.5, 2.0] if maximize else [None, -0.5, 1.0, 1.0])
    windowed = BanditLoop(BOX, PRIOR, build, forgetting=SlidingWindow(1))
    for reward in (0.5, -1.0):
        windowed.tell(windowed.ask().id, reward)
    windowed.ask()
    assert seen[-1] == -1.0


def test_drift_of_model_and_test_agree_or_a_warning_says_so() -> None:
    play = ImprovedUpperConfidenceBound.with_options(width=2.0)
    drifts = {"forgetting": TimeVaryingKernel(0.01)}
    for rate, effect in ((None, "counts as a change"), (0.005, "counts"), (0.02, "harder")):
        restart = EvidenceRestart(drift_rate=rate)
        with pytest.warns(UserWarning, match=rf"{effect}.*Pass EvidenceRestart\(drift_rate=0.01"):
            BanditLoop(BOX, PRIOR, play, restart=restart, **drifts)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        BanditLoop(BOX, PRIOR, play, restart=EvidenceRestart(drift_rate=0.01), **drifts)
        BanditLoop(BOX, PRIOR, play, restart=EvidenceRestart(), forgetting=SlidingWindow(9))


def test_beta_is_the_square_of_a_width() -> None:
    X = torch.tensor([[0.2], [0.7]], dtype=torch.float64)
    model = PRIOR(X, X)
    for cls in (ImprovedUpperConfidenceBound, CandidatesUpperConfidenceBound):
        with pytest.raises(TypeError, match=f"{cls.__name__} has no argument 'beta'.*pass width="):
            cls(model, beta=4.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'beta'.*GPUpperConfidenceBound takes beta="):
        RandomizedUpperConfidenceBound(model, beta=4.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"BoTorch's beta: .*pass width="):
        ImprovedUpperConfidenceBound(model, 4.0)  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"it has .*pass width="):
        ImprovedUpperConfidenceBound.with_options(beta=4.0)

    class Own(ImprovedUpperConfidenceBound):
        def __init__(self, model: Any, beta: float) -> None:
            super().__init__(model, width=beta**0.5)

    assert Own(model, beta=4.0).width == 2.0
    assert Own(model, 4.0).width == 2.0


def test_an_incumbent_is_for_improvements_only() -> None:
    X = torch.tensor([[0.2], [0.7]], dtype=torch.float64)
    for cls in (ImprovedUpperConfidenceBound, GPUpperConfidenceBound):  # not "did you mean beta"
        with pytest.raises(TypeError, match=r"'best_f'; it has.*\. Leave it out"):
            cls(PRIOR(X, X), best_f=0.3)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=r"'best_f'; it has.*\. Leave it out"):
            cls.with_options(best_f=0.3)


def test_an_argument_that_is_misspelled_is_named() -> None:
    X = torch.tensor([[0.2], [0.7]], dtype=torch.float64)
    model = PRIOR(X, X)
    with pytest.raises(TypeError, match=r"no argument 'rkhs_bond'; .*Did"):
        ImprovedUpperConfidenceBound(model, rkhs_bond=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="it has model, rkhs_bound"):
        ImprovedUpperConfidenceBound(model, foo=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'rkhs_bond'.*Did you mean 'rkhs_bound'\?"):
        ImprovedUpperConfidenceBound.with_options(rkhs_bond=1.0)
    too_many = (
        r"takes model, beta, posterior_transform, maximize by position, but got 5 .*num_arms="
    )
    with pytest.raises(TypeError, match=too_many):
        GPUpperConfidenceBound(model, 4.0, None, True, 3)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("points", "remedy"),
    [
        ([torch.zeros(1, dtype=torch.float64)], r"got list. Pass torch.stack\(X_pending\)"),
        (np.zeros((1, 1)), r"got ndarray. Pass torch.as_tensor\(X_pending, dtype=torch.float64\)"),
    ],
)
def test_pending_points_are_a_tensor(points: Any, remedy: str) -> None:
    X = torch.tensor([[0.2], [0.7]], dtype=torch.float64)
    with pytest.raises(TypeError, match=f"X_pending must be a torch.Tensor, {remedy}"):
        ImprovedUpperConfidenceBound(PRIOR(X, X), X_pending=points)


@pytest.mark.parametrize(
    "cls", [ImprovedUpperConfidenceBound, AMMUpperConfidenceBound, DMMUpperConfidenceBound]
)
def test_one_width_for_a_list_of_priors_names_the_bound_for_lists(cls: Any) -> None:
    loop = BanditLoop(BOX, LIST, cls.with_options(**BOUNDS), num_initial=1)
    loop.tell(loop.ask().id, 0.5)
    with pytest.raises(ValueError, match=r"of priors \(CandidatesUpper"):
        loop.ask()


@pytest.mark.parametrize("forgetting", [ExponentialWeights(0.9), TimeVaryingKernel(0.1)])
def test_what_the_default_model_cannot_forget_is_because_it_learns(forgetting: Any) -> None:
    with pytest.raises(ValueError, match="FittedSingleTaskGP, the default model"):
        BanditLoop(BOX, forgetting=forgetting)


def test_what_a_loop_gets_in_the_wrong_form_names_the_call_that_takes_it() -> None:
    loop = BanditLoop(BOX)
    query = loop.ask()
    X, Y = torch.rand(3, 1, dtype=torch.float64), torch.rand(3, dtype=torch.float64)
    for bad in (float("nan"), float("inf"), np.float32("nan")):
        with pytest.raises(ValueError, match=r"reward is (nan|inf).*fail\(query_id\)"):
            loop.tell(query.id, bad)
    with pytest.raises(TypeError, match="reward must be one") as other:
        loop.tell(query.id, "high")
    assert "fail" not in str(other.value)
    with pytest.raises(ValueError, match=r"2, but .*call ask\(\)"):
        loop.ask(2)
    with pytest.raises(ValueError, match="context is") as of_a_context:
        loop.ask([0.5])
    assert "once for each" not in str(of_a_context.value)
    for rows in (X, X.numpy(), X.tolist(), tuple(X)):
        with pytest.raises(ValueError, match=r"x has 3 rows.*one"):
            loop.attach(rows, Y)
    space = BanditLoop(Space({"a": Float(0.0, 1.0)}))
    with pytest.raises(ValueError, match="x has 1 row"):
        space.attach([{"a": 0.5}], [1.0])
    assert (loop.history.num_queries, space.history.num_queries) == (1, 0)


def test_numbers_of_constraints_come_in_lists() -> None:
    X = torch.tensor([[0.2], [0.7]], dtype=torch.float64)
    both = ModelListGP(PRIOR(X, X), PRIOR(X, X))
    for value in (2, 2.0, torch.tensor(2.0, dtype=torch.float64), np.float64(2.0)):
        with pytest.raises(ValueError, match=r"list, such as \[2\.0\]"):
            LagrangianUpperConfidenceBound(both, multipliers=value, width=2.0)  # type: ignore[arg-type]
    rule = AdditiveEpochs(1, 1)
    with pytest.raises(TypeError, match=r"Pass torch.tensor\(\[0\.3\], dtype="):
        rule.step(rule.init(), 0.3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Pass torch.as_tensor\(values, dtype=torch.float64\)"):
        rule.step(rule.init(), [0.3])  # type: ignore[arg-type]
    loop = BanditLoop(BOX, constraints=rule)
    with pytest.raises(ValueError, match=r"constraint value\. Pass constraints=\[\.\.\.\]"):
        loop.attach([0.5], 1.0)


def test_a_plain_list_is_no_model() -> None:
    with pytest.raises(TypeError, match=r"with_candidates\(\[\.\.\.\]\) for a list"):
        BanditLoop(BOX, [PRIOR], CandidatesUpperConfidenceBound.with_options())


def test_no_guarantee_says_what_would_have_one() -> None:
    bound = CandidatesUpperConfidenceBound.with_options()
    for loop, remedy in (
        (BanditLoop(BOX, LIST, bound), "on a box pass smoothness_a= and smoothness_b="),
        (BanditLoop(BOX), "no theorem here covers expected improvement; ImprovedUpper"),
    ):
        loop.tell(loop.ask().id, 0.5)
        (gap,) = loop.guarantee().gaps
        assert remedy in gap


def test_evidence_is_shown_as_a_table() -> None:
    loop = BanditLoop(BOX, LIST, CandidatesUpperConfidenceBound.with_options(), num_initial=1)
    loop.tell(loop.ask().id, 0.5)
    evidence = loop.current_model().evidence  # type: ignore[attr-defined]
    assert repr(evidence) == "CandidateEvidence(1 outcomes, 2 priors)"
    assert "evidence against now  posterior weight" in str(evidence)
    assert str(evidence) == str(loop.evidence())

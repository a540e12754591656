"""Checks of what a loop is made of."""

from __future__ import annotations

from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    BanditAcquisition,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    RandomSearch,
)
from botorch_bandits.acquisition.arms_rules import ThompsonArmsRule, WidthArmsRule
from botorch_bandits.acquisition.censored_loop import censored_rule
from botorch_bandits.domains import Domain
from botorch_bandits.feedback import Censored, Feedback, Hallucinated


def check_acquisition(acquisition: Any, domain: Domain) -> Any:
    """Return the acquisition of a loop if it is one, and feasible on the domain."""
    if isinstance(acquisition, AcquisitionRecipe):
        acquisition.check(domain)
    elif isinstance(acquisition, type) and issubclass(acquisition, BanditAcquisition):
        raise TypeError(
            f"acquisition is the class {acquisition.__name__}; pass "
            f"{acquisition.__name__}.with_options(...)."
        )
    elif isinstance(acquisition, AcquisitionFunction):
        raise TypeError(
            f"acquisition is a built {type(acquisition).__name__}, but the loop builds a fresh one "
            f"each round. Pass {type(acquisition).__name__}.with_options(...), or a callable "
            "(model, X_pending) -> acquisition function."
        )
    elif not isinstance(acquisition, RandomSearch) and not callable(acquisition):
        raise TypeError(
            "acquisition must be a recipe (Class.with_options(...)), RandomSearch() or a callable "
            f"(model, X_pending) -> acquisition function, got {acquisition!r}."
        )
    return acquisition


def check_feedback(feedback: Any, acquisition: Any, domain: Domain) -> Feedback:
    """Return the feedback of a loop, hallucination by default, if the acquisition goes with it.

    Raises:
        TypeError: If it is no feedback.
        ValueError: If censored feedback has no width for the acquisition.
    """
    if feedback is None:
        return Hallucinated()
    if not isinstance(feedback, Feedback):
        raise TypeError(
            f"feedback is {feedback!r}; pass Hallucinated(), Ignored() or Censored(...)."
        )
    if isinstance(feedback, Censored) and not isinstance(acquisition, RandomSearch):
        classes = (ImprovedUpperConfidenceBound, GPUpperConfidenceBound, GPThompsonSampling)
        if not isinstance(acquisition, AcquisitionRecipe) or (
            acquisition.acquisition_class not in classes
        ):
            name = getattr(getattr(acquisition, "acquisition_class", acquisition), "__name__", "")
            raise ValueError(
                f"feedback=Censored(...) has no width for the acquisition {name or acquisition}. "
                "Use ImprovedUpperConfidenceBound, GPThompsonSampling or a constant width "
                "(GPUpperConfidenceBound(width=...)), or feedback=Hallucinated()."
            )
        options = acquisition.acquisition_class.complete_options(dict(acquisition.options), domain)
        rule = acquisition.acquisition_class.arms_rule(options)
        if rule is not None:
            assert isinstance(rule, WidthArmsRule | ThompsonArmsRule)
            censored_rule(rule.rule, feedback.outcome_bound)
    return feedback


def check_loop_model(model: Any, needed: bool) -> Any:
    """Return the model of a loop if it is a recipe or a function."""
    if model is None:
        if needed:
            raise TypeError(
                "model is None, but the acquisition needs one. Pass BanditGP.with_kernel(...) or a "
                "callable (X, Y) -> BoTorch model."
            )
    elif isinstance(model, Model | torch.nn.Module):
        raise TypeError(
            f"model is a built {type(model).__name__}, but the loop builds a fresh one when data "
            "arrive. Pass BanditGP.with_kernel(...) or a callable (X, Y) -> BoTorch model."
        )
    elif not callable(model):
        raise TypeError(
            "model must be BanditGP.with_kernel(...) or a callable (X, Y) -> BoTorch model, got "
            f"{model!r}."
        )
    return model

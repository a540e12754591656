"""Checks of what a loop is made of."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    AMMUpperConfidenceBound,
    BanditAcquisition,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    RandomizedUpperConfidenceBound,
    RandomSearch,
)
from botorch_bandits.acquisition.arms_rules import ThompsonArmsRule, WidthArmsRule
from botorch_bandits.acquisition.censored_loop import censored_rule
from botorch_bandits.change_points import ChangePointDetector, Restart
from botorch_bandits.checks import check_instance
from botorch_bandits.domains import Domain
from botorch_bandits.feedback import Censored, Feedback, Hallucinated
from botorch_bandits.history import History


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
        ValueError: If censored feedback has no width for the acquisition, or the two contradict
            each other.
    """
    if feedback is None:
        return Hallucinated()
    if not isinstance(feedback, Feedback):
        raise TypeError(
            f"feedback is {feedback!r}; pass Hallucinated(), Ignored() or Censored(...)."
        )
    is_recipe = isinstance(acquisition, AcquisitionRecipe)
    if is_recipe and not isinstance(feedback, Hallucinated) and "pending" in acquisition.options:
        raise ValueError(
            f"the acquisition has pending={acquisition.options['pending']!r}, but with feedback="
            f"{type(feedback).__name__} it never sees pending points. Leave pending= out."
        )
    if isinstance(feedback, Censored) and not isinstance(acquisition, RandomSearch):
        _check_censored(feedback, acquisition, domain)
    return feedback


def with_feedback(acquisition: Any, feedback: Feedback) -> Any:
    """Return an acquisition that does with pending points what the feedback says."""
    if not isinstance(feedback, Hallucinated) or not isinstance(acquisition, AcquisitionRecipe):
        return acquisition
    knows_pending = issubclass(acquisition.acquisition_class, GPThompsonSampling) and (
        "pending" in inspect.signature(acquisition.acquisition_class).parameters
    )
    if not knows_pending or "pending" in acquisition.options:
        return acquisition
    options = {**acquisition.options, "pending": "hallucinate"}
    return replace(acquisition, options=options)


CENSORABLE = (
    ImprovedUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    AMMUpperConfidenceBound,
    RandomizedUpperConfidenceBound,
)
"""What has a width to which censored feedback can add its terms."""


def _check_censored(feedback: Censored, acquisition: Any, domain: Domain) -> None:
    cls = getattr(acquisition, "acquisition_class", None)
    if not isinstance(acquisition, AcquisitionRecipe) or cls not in CENSORABLE:
        name = getattr(cls or acquisition, "__name__", acquisition)
        if cls in (CensoredUpperConfidenceBound, CensoredThompsonSampling):
            reason = f"with {name}, which censors pending points itself, would censor them twice"
        else:
            reason = f"has no width for the acquisition {name}, to which it could add its terms"
        raise ValueError(
            f"feedback=Censored(...) {reason}. Use one of "
            f"{', '.join(known.__name__ for known in CENSORABLE)}, or feedback=Hallucinated()."
        )
    options = cls.complete_options(dict(acquisition.options), domain)
    if not options.get("maximize", True):
        raise ValueError(
            f"{cls.__name__} has maximize=False, but feedback=Censored(...) is for rewards: the "
            "minimum must be the worst outcome. Tell the negative instead, and leave maximize= out."
        )
    if feedback.predictive and cls in (GPThompsonSampling, RandomizedUpperConfidenceBound):
        raise ValueError(
            f"predictive=True is for upper confidence bounds as published, not for {cls.__name__}. "
            "Leave it out."
        )
    rule = cls.arms_rule(options)
    if rule is not None:
        assert isinstance(rule, WidthArmsRule | ThompsonArmsRule)
        censored_rule(rule.rule, feedback.outcome_bound)


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


def check_restart(restart: Any) -> Restart | None:
    """Return the restart rule of a loop if it is one.

    Raises:
        TypeError: If it is something else.
    """
    if restart is None or isinstance(restart, Restart):
        return restart
    if isinstance(restart, ChangePointDetector):
        raise TypeError(
            "restart is a ChangePointDetector; pass ChangePointRestart(detector=...), which also "
            "says how much is explored."
        )
    raise TypeError(
        f"restart is {restart!r}; pass ChangePointRestart(...), OracleRestart(...) or "
        "NeverRestart(...)."
    )


def check_history(history: History, dim: int, context_dim: int, num_constraints: int) -> History:
    """Return a history if it is of these sizes.

    Raises:
        ValueError: If it is not.
    """
    check_instance("history", history, History, "Pass the history of a loop, or leave it out.")
    found = (history.dim, history.context_dim, history.num_constraints)
    if found != (dim, context_dim, num_constraints):
        raise ValueError(
            f"history is for {found[0]} dimensions, {found[1]} context dimensions and {found[2]} "
            f"constraints; the domain has {dim}, and the loop {context_dim} and {num_constraints}."
        )
    return history

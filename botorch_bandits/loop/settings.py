"""What a loop is made of, checked."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch

from botorch_bandits.acquisition import AcquisitionRecipe, GPThompsonSampling, RandomSearch
from botorch_bandits.change_points import Restart
from botorch_bandits.checks import DTYPE, check_integer
from botorch_bandits.constraints import MultiplierRule
from botorch_bandits.domains import Box, Domain
from botorch_bandits.feedback import Feedback
from botorch_bandits.forgetting import ExponentialWeights, Forgetting
from botorch_bandits.loop.acquisition_source import AcquisitionFactory, ModelFactory
from botorch_bandits.loop.arguments import (
    check_acquisition,
    check_feedback,
    check_loop_model,
    check_restart,
)
from botorch_bandits.loop.constrained import check_constraints
from botorch_bandits.loop.forgetting_source import check_forgetting
from botorch_bandits.models import BanditGPRecipe

OWNED = (AcquisitionRecipe, BanditGPRecipe, Feedback, Restart, MultiplierRule, Forgetting)
"""What a loop copies, so that later changes to what its user passed do not reach it."""


@dataclass(frozen=True, eq=False)
class LoopSettings:
    """The settings of a loop; suggestions are a function of them, the history and nothing else.

    Attributes are the arguments of :class:`~botorch_bandits.BanditLoop`.

    Raises:
        TypeError: If a setting is of the wrong kind.
        ValueError: If a setting is infeasible, or two of them do not go together.
    """

    domain: Domain
    model: BanditGPRecipe | ModelFactory | None
    acquisition: AcquisitionRecipe | RandomSearch | AcquisitionFactory
    horizon: int | None
    feedback: Feedback
    restart: Restart | None
    constraints: MultiplierRule | None
    forgetting: Forgetting | None
    num_initial: int
    context_dim: int
    seed: int

    @classmethod
    def checked(
        cls,
        domain: Domain,
        model: BanditGPRecipe | ModelFactory | None,
        acquisition: AcquisitionRecipe | RandomSearch | AcquisitionFactory,
        horizon: int | None,
        feedback: Feedback | None,
        restart: Restart | None,
        constraints: MultiplierRule | None,
        forgetting: Forgetting | None,
        num_initial: int,
        context_dim: int,
        seed: int,
    ) -> LoopSettings:
        """Return the settings with defaults filled in; see the class."""
        if not isinstance(domain, Domain):
            raise TypeError(
                "domain must be a Box or Arms, or a subclass of Domain of your own, got "
                f"{type(domain).__name__}."
            )
        check_integer("domain.dim", getattr(domain, "dim", None), minimum=1)
        context_dim = check_integer("context_dim", context_dim, minimum=0)
        acquisition = check_acquisition(acquisition, domain)
        if context_dim and isinstance(acquisition, AcquisitionRecipe):
            # what a dimension in the options is compared with in every round
            acquisition.check(domain.in_context(torch.zeros(context_dim, dtype=DTYPE)))
        model = check_loop_model(model, needed=not isinstance(acquisition, RandomSearch))
        feedback = check_feedback(feedback, acquisition, domain)
        minimum = getattr(feedback, "minimum", None)
        if minimum is not None and isinstance(model, BanditGPRecipe):
            model = replace(model, prior_mean=float(minimum))
        restart = check_restart(restart)
        check_constraints(constraints, acquisition, feedback, restart)
        surrogate = None if constraints is None else constraints.surrogate_in_use
        if surrogate == "separate" and isinstance(forgetting, ExponentialWeights):
            raise ValueError(
                f"forgetting is {forgetting!r}, which weighs one output, but constraints= models "
                "reward and constraints separately. Use SlidingWindow or TimeVaryingKernel, or "
                "surrogate='relabelled'."
            )
        forgetting = check_forgetting(
            forgetting, model, feedback, _draws_on_paths(acquisition, domain)
        )
        return cls(
            domain=domain,
            model=_own("model", model),
            acquisition=_own("acquisition", acquisition),
            horizon=None if horizon is None else check_integer("horizon", horizon, minimum=1),
            feedback=_own("feedback", feedback),
            restart=_own("restart", restart),
            constraints=_own("constraints", constraints),
            forgetting=_own("forgetting", forgetting),
            num_initial=check_integer("num_initial", num_initial, minimum=0),
            context_dim=context_dim,
            seed=check_integer("seed", seed, minimum=0),
        )

    @property
    def num_constraints(self) -> int:
        """How many constraint values come with each reward."""
        return 0 if self.constraints is None else self.constraints.num_constraints


def _own(name: str, setting: Any) -> Any:
    """Return a copy of a recipe or a rule, which its user cannot change; functions as they are.

    Raises:
        TypeError: If it cannot be copied.
    """
    if not isinstance(setting, OWNED):
        return setting
    try:
        return copy.deepcopy(setting)
    except Exception as error:
        raise TypeError(
            f"{name} is {setting!r}, which cannot be copied ({error}), but a loop keeps a copy of "
            "its own. Build it from plain values, detached tensors and functions."
        ) from error


def _draws_on_paths(acquisition: Any, domain: Domain) -> bool:
    """Return whether functions are drawn on a whole box."""
    if not isinstance(acquisition, AcquisitionRecipe) or not isinstance(domain, Box):
        return False
    is_finite = {"choices", "discretization"} & acquisition.options.keys()
    return issubclass(acquisition.acquisition_class, GPThompsonSampling) and not is_finite

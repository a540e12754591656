"""The functions that BoTorch's registry and Ax call to build this package's acquisition functions.

This module translates what Ax passes into what our classes take: bounds, minimization, outcome
constraints ``A f <= b``, and options that went through JSON. Ax itself is not imported.

BoTorch's registry imports all its acquisition functions and ``scipy.stats``, which takes longer
than all other imports of this package. It is therefore imported only when a class is registered:
:func:`~botorch_bandits.register_with_ax` registers all classes, and
:func:`register_input_constructor` one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.base import (
    GIVEN_BY_THE_LOOP,
    BanditAcquisition,
    check_required,
)
from botorch_bandits.acquisition.lagrangian import AffineOutcomes
from botorch_bandits.checks import DTYPE, check_integer
from botorch_bandits.confidence import PriorSummary
from botorch_bandits.domains import Box
from botorch_bandits.random_streams import derive_seed

FROM_OUTSIDE = (
    "training_data",
    "X_baseline",
    "bounds",
    "constraints_tuple",
    "constraints",
    "objective",
    "objective_thresholds",
    "ref_point",
)
"""What Ax passes in addition to the constructor arguments of a class."""


def register_input_constructor(acquisition_class: type[BanditAcquisition]) -> None:
    """Let BoTorch's registry, and thus Ax, build an acquisition class of this package.

    It does nothing for a class that is already registered.

    Args:
        acquisition_class: A class whose constructor takes the model first; also a subclass of your
            own.

    Example:
        >>> from botorch.acquisition.input_constructors import get_acqf_input_constructor
        >>> from botorch_bandits import ImprovedUpperConfidenceBound
        >>> register_input_constructor(ImprovedUpperConfidenceBound)
        >>> get_acqf_input_constructor(ImprovedUpperConfidenceBound)(model=None, width=2.0)
        {'model': None, 'width': 2.0}
    """
    from botorch.acquisition import input_constructors as registry

    if acquisition_class not in registry.ACQF_INPUT_CONSTRUCTOR_REGISTRY:
        constructor = _constructor_of(acquisition_class)
        registry.acqf_input_constructor(acquisition_class)(constructor)


def _constructor_of(acquisition_class: type[BanditAcquisition]) -> Callable[..., dict[str, Any]]:
    """Return the constructor of inputs of one class.

    BoTorch looks at its signature, and refuses arguments that are not in it as unknown.
    """
    outside = {
        name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in (*FROM_OUTSIDE, "posterior_transform")
    }
    own = inspect.signature(acquisition_class).parameters
    known = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in {**outside, **own}.values()]

    def construct_inputs(model: Model, **given: Any) -> dict[str, Any]:
        return _construct_inputs(acquisition_class, model, given)

    construct_inputs.__name__ = acquisition_class.__name__
    construct_inputs.__signature__ = inspect.Signature(known)  # type: ignore[attr-defined]
    return construct_inputs


def _construct_inputs(
    cls: type[BanditAcquisition], model: Model, given: Mapping[str, Any]
) -> dict[str, Any]:
    name, parameters = cls.__name__, inspect.signature(cls).parameters
    context = {key: given[key] for key in FROM_OUTSIDE if given.get(key) is not None}
    options = options_from_plain({k: v for k, v in given.items() if k not in FROM_OUTSIDE})
    for key in ("objective", "objective_thresholds", "ref_point"):
        if key in context:
            raise UnsupportedError(
                f"{name} takes one reward, a weighted sum of metrics; {key}= is for sampled or "
                "several objectives. Leave it out."
            )
    objective = options.pop("posterior_transform", None)
    if "multipliers" in parameters:
        objective = lagrangian_outcomes(name, objective, context.get("constraints_tuple"))
    elif "constraints_tuple" in context or "constraints" in context:
        raise UnsupportedError(
            f"{name} takes no outcome constraints. Use LagrangianUpperConfidenceBound or "
            "LagrangianThompsonSampling, or track the metric without a constraint."
        )
    if objective is not None and "posterior_transform" in parameters:
        options["posterior_transform"] = objective
    elif objective is not None and _is_minimized(name, objective, "maximize" in parameters):
        options["maximize"] = not options.get("maximize", True)
    domain = _domain_of(options, context)
    settings = {key: value for key, value in options.items() if key not in GIVEN_BY_THE_LOOP}
    cls.check_options(settings, domain)
    if domain is not None:
        complete = cls.complete_options(settings, domain)
        known = {key: complete.get(key) for key in cls.wanted_from_domain(complete)}
        options.update({key: value for key, value in known.items() if value is not None})
    check_required(cls, {**dict.fromkeys(parameters), **options, "model": cls})
    if "seed" in parameters:
        options["seed"] = _seed_of_round(name, model, options)
    return {"model": model, **options}


def options_from_plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a class from values that went through JSON, where tuples are lists.

    Args:
        options: By name.
    """
    return {k: tuple(value) if isinstance(value, list) else value for k, value in options.items()}


def _is_minimized(name: str, objective: Any, takes_both: bool) -> bool:
    """Return whether an objective minimizes, for classes that take no posterior transform."""
    if isinstance(objective, ScalarizedPosteriorTransform) and not float(objective.offset):
        weights = objective.weights.tolist()
        if weights == [1.0] or (weights == [-1.0] and takes_both):
            return weights == [-1.0]
    raise UnsupportedError(
        f"{name} takes the reward as the model has it: posterior_transform= may be left out"
        + (", or be ScalarizedPosteriorTransform with weight 1 or -1." if takes_both else ".")
        + " Negate outcomes that are to be minimized, or weight them, before fitting the model."
    )


def lagrangian_outcomes(
    name: str,
    objective: PosteriorTransform | None,
    constraints_tuple: tuple[Tensor, Tensor] | None,
) -> PosteriorTransform | None:
    """Return the transform from the metrics of a model to reward and constraints ``g_j <= 0``.

    Args:
        name: The acquisition class, for errors.
        objective: The reward as a weighted sum of metrics (minimization: a weight of -1).
        constraints_tuple: ``(A, b)`` with ``A f <= b`` for the metrics ``f``.

    Returns:
        ``(w f, A f - b)``; the arguments as given if there are no outcome constraints (the outputs
        of the model are then the reward and the constraints, unchanged).

    Raises:
        ValueError: If there are constraints but no objective, or vice versa.
    """
    if constraints_tuple is None:
        if objective is not None and objective.scalarize:
            raise ValueError(
                f"{name} needs outcome constraints besides the objective, but has none. Use "
                "ImprovedUpperConfidenceBound or GPThompsonSampling without them."
            )
        return objective
    if not isinstance(objective, ScalarizedPosteriorTransform):
        raise ValueError(
            f"{name} needs posterior_transform=ScalarizedPosteriorTransform(weights) with "
            "constraints_tuple=: otherwise, it is not known which output is the objective and "
            f"whether it is minimized; got {type(objective).__name__}."
        )
    A, b = (part.to(DTYPE) for part in constraints_tuple)
    weights = torch.cat([objective.weights.to(A).unsqueeze(0), A])
    offsets = torch.cat([A.new_full((1,), float(objective.offset)), -b.reshape(-1)])
    return AffineOutcomes(weights, offsets)


def _domain_of(options: Mapping[str, Any], context: Mapping[str, Any]) -> Box | None:
    """Return the box of the search; None if it is unknown or replaced by finite sets."""
    bounds = context.get("bounds")
    if bounds is None or any(options.get(key) is not None for key in ("num_arms", "choices")):
        return None
    return Box([tuple(pair) for pair in bounds])


def _seed_of_round(name: str, model: Model, options: Mapping[str, Any]) -> int:
    """Return a seed for this round: options stay the same over an experiment, draws must not.

    Torch's global generator does not help, because Ax may seed it equally before every suggestion.
    """
    seed, pending = options.get("seed"), options.get("X_pending")
    base = int(torch.randint(2**62, ())) if seed is None else check_integer("seed", seed, 0)
    num_pending = 0 if pending is None else len(pending)
    return derive_seed(base, PriorSummary(model).num_rows + num_pending + 1, name)

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
    constructor_parameters,
)
from botorch_bandits.acquisition.lagrangian import AffineOutcomes
from botorch_bandits.checks import DTYPE, check_integer, check_one_of
from botorch_bandits.confidence import PriorSummary
from botorch_bandits.domains import Box
from botorch_bandits.penalties import Exponential, Linear, Penalty, Polynomial
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

PER_OUTPUT = ("rkhs_bound", "noise_bound", "width", "minimum", "outcome_bound")
"""Options that may be tuples, which JSON turns into lists."""

PENALTIES: dict[str, type[Penalty]] = {
    "linear": Linear,
    "exponential": Exponential,
    "polynomial": Polynomial,
}
"""Names of penalties in options that have to go through JSON."""

Constructor = Callable[..., dict[str, Any]]


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


def _constructor_of(acquisition_class: type[BanditAcquisition]) -> Constructor:
    """Return the constructor of inputs of one class.

    BoTorch looks at its signature, and refuses arguments that are not in it as unknown.
    """
    own = constructor_parameters(acquisition_class).values()
    named = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    known = {parameter.name for parameter in own}
    outside = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in (*FROM_OUTSIDE, "posterior_transform")
        if name not in known
    ]

    def construct_inputs(model: Model, **given: Any) -> dict[str, Any]:
        return _construct_inputs(acquisition_class, model, given)

    construct_inputs.__name__ = acquisition_class.__name__
    construct_inputs.__signature__ = inspect.Signature([*named, *outside])  # type: ignore[attr-defined]
    return construct_inputs


def _construct_inputs(
    cls: type[BanditAcquisition], model: Model, given: Mapping[str, Any]
) -> dict[str, Any]:
    name = cls.__name__
    parameters = constructor_parameters(cls)
    context = {key: given[key] for key in FROM_OUTSIDE if given.get(key) is not None}
    options = options_from_plain(
        {key: value for key, value in given.items() if key not in FROM_OUTSIDE}
    )
    _refuse_what_is_not_one_reward(name, context)
    if "multipliers" in parameters:
        objective = options.pop("posterior_transform", None)
        constraints = context.get("constraints_tuple")
        options["posterior_transform"] = lagrangian_outcomes(name, objective, constraints)
    elif "constraints_tuple" in context or "constraints" in context:
        raise UnsupportedError(
            f"{name} takes no outcome constraints. Use LagrangianUpperConfidenceBound or "
            "LagrangianThompsonSampling, or track the metric without a constraint."
        )
    if "posterior_transform" not in parameters:
        objective = options.pop("posterior_transform", None)
        if _is_minimized(name, objective, "maximize" in parameters):
            options["maximize"] = not options.get("maximize", True)
    settings = {key: value for key, value in options.items() if key not in GIVEN_BY_THE_LOOP}
    if "multipliers" in parameters:
        settings.pop("maximize", None)  # refused only in loops
    domain = _domain_of(options, context)
    cls.check_options(settings, domain)
    if domain is not None:
        known = cls.options_from_domain(cls.complete_options(settings, None), domain)
        options.update({key: value for key, value in known.items() if key in parameters})
    required = (key for key, p in parameters.items() if p.default is p.empty and key != "model")
    check_required(name, options, tuple(required))
    if "seed" in parameters:
        options["seed"] = _seed_of_round(name, model, options)
    return {"model": model, **options}


def options_from_plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a class from values that went through JSON.

    Args:
        options: By name; bounds of several outputs may be lists, and a penalty may be
            ``"linear"``, ``["exponential", c]`` or ``["polynomial", c, n]``.
    """
    read = {
        key: tuple(value) if key in PER_OUTPUT and isinstance(value, list) else value
        for key, value in options.items()
    }
    if read.get("penalty") is not None:
        read["penalty"] = _read_penalty(read["penalty"])
    return read


def _is_minimized(name: str, objective: Any, takes_both: bool) -> bool:
    """Return whether an objective minimizes, for classes that take no posterior transform."""
    if objective is None:
        return False
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


def _refuse_what_is_not_one_reward(name: str, context: Mapping[str, Any]) -> None:
    for key in ("objective", "objective_thresholds", "ref_point"):
        if key in context:
            raise UnsupportedError(
                f"{name} takes one reward, a weighted sum of metrics; {key}= is for sampled or "
                "several objectives. Leave it out."
            )


def _read_penalty(penalty: Any) -> Any:
    """Return a penalty from ``"linear"`` or ``["polynomial", 1.0, 2.0]``; others are unchanged."""
    if isinstance(penalty, str):
        penalty = [penalty]
    if not isinstance(penalty, list | tuple):
        return penalty
    kind, *numbers = penalty
    return PENALTIES[check_one_of("penalty", kind, tuple(PENALTIES))](*numbers)


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

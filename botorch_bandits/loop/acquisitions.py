"""What a loop takes as its acquisition: a recipe, random search, or a user's function.

Classes and built acquisition functions are refused with what to pass instead of them.
"""

from __future__ import annotations

from typing import Any

from botorch.acquisition import AcquisitionFunction

from botorch_bandits.acquisition import AcquisitionRecipe, BanditAcquisition, RandomSearch
from botorch_bandits.domains import Domain


def check_acquisition(acquisition: Any, domain: Domain) -> Any:
    """Return the acquisition of a loop if it is one, and feasible on the domain."""
    if isinstance(acquisition, AcquisitionRecipe):
        acquisition.acquisition_class.check_options(acquisition.options, domain)
    elif isinstance(acquisition, type):
        _refuse_class(acquisition)
    elif isinstance(acquisition, AcquisitionFunction):
        raise TypeError(
            f"acquisition is a built {type(acquisition).__name__}, but the loop builds a fresh one "
            f"each round. Pass {type(acquisition).__name__}.with_options(...), or a callable "
            "(model, X_pending, best) -> acquisition function."
        )
    elif not isinstance(acquisition, RandomSearch) and not callable(acquisition):
        raise TypeError(
            "acquisition must be a recipe (Class.with_options(...)), RandomSearch() or a callable "
            f"(model, X_pending, best) -> acquisition function, got {acquisition!r}."
        )
    return acquisition


def bandit(acquisition: AcquisitionFunction) -> BanditAcquisition | None:
    """Return an acquisition function if it is one of this package's, which states its widths."""
    return acquisition if isinstance(acquisition, BanditAcquisition) else None


def is_played_as(acquisition_class: type[Any] | None, parent: type) -> bool:
    """Return whether a rule of a class plays an acquisition function.

    Args:
        acquisition_class: The class of the acquisition function, if it is known.
        parent: The class with the rule.
    """
    return acquisition_class is not None and acquisition_class.played_as is parent


def model_of(acquisition: AcquisitionFunction) -> Any:
    """Return the model of an acquisition function without pending points; None if it has none."""
    own = getattr(acquisition, "base_model", None)
    return getattr(acquisition, "model", None) if own is None else own


def _refuse_class(given: type) -> None:
    """Raise if a class cannot be called with a model, pending points and the best outcome."""
    name = given.__name__
    if issubclass(given, BanditAcquisition):
        raise TypeError(f"acquisition is the class {name}; pass {name}.with_options(...).")
    if issubclass(given, AcquisitionFunction) and given.__module__.startswith("botorch."):
        raise TypeError(
            f"acquisition is BoTorch's class {name}, which the loop would call with the model, the "
            "pending points and the best outcome. Pass a function that builds it, "
            f"lambda model, X_pending, best: {name}(model, ...), or a class of botorch_bandits, "
            "such as GPUpperConfidenceBound.with_options(beta=4.0), which takes the pending points "
            "into account."
        )

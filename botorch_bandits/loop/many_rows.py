"""What a loop says if its model gets slow, and what cannot be combined with a model for many rows.

An exact model of ``n`` rows costs ``n^2`` operations per point of the search. The loop never
changes the model on its own: it warns once and names the alternatives.
"""

from __future__ import annotations

import warnings
from typing import Any

from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.acquisition.draws import SeededDraw
from botorch_bandits.checks import level_of_users_line
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.models import BanditGP, LearnedGP, LocalGPRecipe
from botorch_bandits.models.local_gp import check_drawable
from botorch_bandits.models.moments import submodels

MANY_ROWS = 4000
"""From this many rows on, a round with a ``BanditGP`` takes about a second on one core."""

MANY_FITTED_ROWS = 800
"""The same for the default model, whose hyperparameters are fitted in each round."""


class ManyRowsWarning(RuntimeWarning):
    """The model of a loop has so many rows that a round takes a second or more."""


def warn_of_many_rows(model: Model) -> bool:
    """Warn if a round with a model takes a second or more; return whether it does.

    Args:
        model: The model of the round; times are known for the models of this package.
    """
    for each in submodels(model):
        limit = MANY_FITTED_ROWS if isinstance(each, LearnedGP) else MANY_ROWS
        targets = getattr(each, "train_targets", None)
        if not isinstance(each, BanditGP | LearnedGP) or not isinstance(targets, Tensor):
            continue
        if targets.shape[-1] >= limit:
            remedy = (
                "A fixed kernel (model=BanditGP.with_kernel(...)) stays below a second up to "
                f"{MANY_ROWS} distinct rows. For more there is the"
                if isinstance(each, LearnedGP)
                else "The"
            )
            warnings.warn(
                f"the model has {targets.shape[-1]} rows, so that a round takes about a "
                f"second and its cost grows faster than their square. {remedy} approximate "
                "model=LocalGP.with_kernel(...) takes less, but no theorem covers it.",
                ManyRowsWarning,
                stacklevel=level_of_users_line(),
            )
            return True
    return False


def check_local_model(model: Any, acquisition: Any, constraints: Any) -> None:
    """Raise if a loop with a :class:`~botorch_bandits.models.LocalGP` needs what it does not have.

    Args:
        model: The loop's model.
        acquisition: The loop's acquisition.
        constraints: The loop's rule for multipliers.

    Raises:
        UnsupportedError: If the acquisition draws functions.
        ValueError: If reward and constraints are modeled separately.
    """
    if not isinstance(model, LocalGPRecipe):
        return
    if isinstance(acquisition, AcquisitionRecipe):
        played = acquisition.acquisition_class
        if issubclass(played, SeededDraw):
            check_drawable(played.__name__, model)
    if getattr(constraints, "surrogate_in_use", None) == "separate":
        raise ValueError(
            "constraints= models reward and constraints separately, but model is a LocalGP, which "
            "has one output. Use surrogate='relabeled', or BanditGP.with_kernel(...)."
        )


fill_in_docstrings(__name__)

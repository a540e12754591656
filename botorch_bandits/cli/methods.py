"""The methods that the command line knows by name.

The model learns its scale from the data, and the bounds of each method are multiples of it.
"""

from __future__ import annotations

from typing import Any

import torch
from botorch.models import ModelListGP
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    RandomSearch,
)
from botorch_bandits.change_points import Restart
from botorch_bandits.constraints import MultiplierRule
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.domains import Box
from botorch_bandits.feedback import Feedback
from botorch_bandits.history import History
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import FittedSingleTaskGP

METHODS = {
    "igp-ucb": "IGP-UCB (Chowdhury and Gopalan 2017)",
    "gp-ucb": "GP-UCB with a constant width (Srinivas et al. 2010)",
    "gp-ts": "GP-TS (Chowdhury and Gopalan 2017)",
    "ei": "expected improvement (BoTorch's LogEI)",
    "random": "random search",
}


def build_acquisition(
    method: str,
    rkhs_bound: float,
    noise_bound: float,
    delta: float,
    width: float,
    weighs_constraints: bool = False,
) -> AcquisitionRecipe | RandomSearch:
    """Return the acquisition of a method by name.

    The command line does not know the scale of anybody's reward: the bounds are multiples of
    the prior standard deviation, which the model learns.

    Args:
        method: A key of ``METHODS``.
        rkhs_bound: For ``igp-ucb`` and ``gp-ts``.
        noise_bound: For ``igp-ucb`` and ``gp-ts``.
        delta: For ``igp-ucb`` and ``gp-ts``.
        width: For ``gp-ucb``.
        weighs_constraints: Whether reward and constraints are modeled separately (``igp-ucb``
            and ``gp-ucb``).
    """
    kernelized: dict[str, Any] = {
        "rkhs_bound": rkhs_bound,
        "noise_bound": noise_bound,
        "delta": delta,
        "units": "prior",
    }
    if weighs_constraints:
        options = {"width": width} if method == "gp-ucb" else kernelized
        return LagrangianUpperConfidenceBound.with_options(**options)
    if method == "igp-ucb":
        return ImprovedUpperConfidenceBound.with_options(**kernelized)
    if method == "gp-ts":
        return GPThompsonSampling.with_options(**kernelized)
    if method == "gp-ucb":
        return GPUpperConfidenceBound.with_options(width=width)
    if method == "ei":
        return LogExpectedImprovement.with_options()
    if method == "random":
        return RandomSearch()
    raise ValueError(f"method is {method!r}; it must be one of {', '.join(METHODS)}.")


def build_loop(
    box: Box,
    acquisition: AcquisitionRecipe | RandomSearch,
    num_initial: int,
    seed: int,
    history: History | None = None,
    feedback: Feedback | None = None,
    restart: Restart | None = None,
    constraints: MultiplierRule | None = None,
    journal: str | None = None,
) -> BanditLoop:
    """Return a loop on a box with the model of practitioners."""
    # torch imports much at this function's first call, which fits make, and an interrupt in the
    # middle leaves modules that are half imported: better now than during the run
    torch.broadcast_shapes((1,), (1,))
    is_separate = constraints is not None and constraints.surrogate_in_use == "separate"
    return BanditLoop(
        box,
        FittedSingleTaskGP(box.bounds) if not is_separate else FittedOutputs(box),
        acquisition,
        num_initial=num_initial,
        seed=seed,
        history=history,
        feedback=feedback,
        restart=restart,
        constraints=constraints,
        journal=journal,
    )


class FittedOutputs:
    """Builds a fitted model of each outcome: the reward, then each constraint.

    Args:
        box: Where points are chosen.
    """

    def __init__(self, box: Box) -> None:
        """See the class."""
        self._build = FittedSingleTaskGP(box.bounds)

    def __call__(self, X: Tensor, Y: Tensor) -> ModelListGP:
        """Build and fit the models.

        Args:
            X: ``n x d`` inputs.
            Y: ``n x m`` outcomes.
        """
        return ModelListGP(*(self._build(X, y) for y in Y.split(1, dim=-1)))


fill_in_docstrings(__name__)

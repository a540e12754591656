"""The methods that the command line knows by name."""

from __future__ import annotations

from typing import Any

import torch

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    ExpectedImprovement,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    RandomSearch,
)
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
    method: str, rkhs_bound: float, noise_bound: float, delta: float, width: float
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
    """
    kernelized: dict[str, Any] = {
        "rkhs_bound": rkhs_bound,
        "noise_bound": noise_bound,
        "delta": delta,
        "units": "prior",
    }
    if method == "igp-ucb":
        return ImprovedUpperConfidenceBound.with_options(**kernelized)
    if method == "gp-ts":
        return GPThompsonSampling.with_options(**kernelized)
    if method == "gp-ucb":
        return GPUpperConfidenceBound.with_options(width=width)
    if method == "ei":
        return ExpectedImprovement.with_options()
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
) -> BanditLoop:
    """Return a loop on a box with the model of practitioners."""
    # torch imports much at this function's first call, which fits make, and an interrupt in the
    # middle leaves modules that are half imported: better now than during the run
    torch.broadcast_shapes((1,), (1,))
    return BanditLoop(
        box,
        FittedSingleTaskGP(box.bounds),
        acquisition,
        num_initial=num_initial,
        seed=seed,
        history=history,
        feedback=feedback,
    )

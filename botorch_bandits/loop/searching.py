"""The search for the point of a round.

If an acquisition function is NaN, BoTorch's searches fail with an error about a random draw. This
search says at which point the function is NaN, and what its model predicts there.
"""

from __future__ import annotations

import math
from contextlib import suppress

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from botorch_bandits.domains import Domain


def maximize_checked(
    domain: Domain, acquisition: AcquisitionFunction, seed: int
) -> tuple[Tensor, float]:
    """Return what :meth:`.Domain.maximize` returns, or report which model is not finite.

    Args:
        domain: The domain on which it is maximized.
        acquisition: The acquisition function; it may be NaN or infinite because its model is.
        seed: See :meth:`.Domain.maximize`.

    Raises:
        ValueError: If the acquisition function is not finite at its maximum, or the search fails
            and it is not finite at some points of the domain.
    """
    try:
        whole, value = domain.maximize(acquisition, seed=seed)
    except (ArithmeticError, RuntimeError, ValueError) as error:
        points = domain.sample(NUM_LOOKED_AT, torch.Generator().manual_seed(seed % 2**63))
        if (told := _not_finite(acquisition, points)) is not None:
            raise ValueError(told) from error
        raise
    if not math.isfinite(value):
        told = _not_finite(acquisition, whole.unsqueeze(0))
        raise ValueError(told or f"the acquisition function is {value} at its maximum.")
    return whole, value


NUM_LOOKED_AT = 64
"""The number of points at which a model is examined if a search failed."""


def _not_finite(acquisition: AcquisitionFunction, points: Tensor) -> str | None:
    """Return where an acquisition function is not finite, and what its model predicts there."""
    try:
        with torch.no_grad():
            values = acquisition(points.unsqueeze(-2)).reshape(len(points))
    except Exception:  # the error of the search says more
        return None
    bad = (~values.isfinite()).nonzero()
    if len(bad) == 0:
        return None
    i, name = int(bad[0]), type(acquisition).__name__
    told = f"the acquisition function ({name}) is {float(values[i])} at {points[i].tolist()}"
    with suppress(Exception), torch.no_grad():  # it may have no model
        posterior = acquisition.model.posterior(points[i : i + 1])
        moments = posterior.mean.reshape(-1).tolist(), posterior.variance.reshape(-1).tolist()
        told += (
            f", where the model ({type(acquisition.model).__name__}) has the mean {moments[0]} "
            f"and the variance {moments[1]}"
        )
    return (
        f"{told}; both must be finite. Check model= on the outcomes so far: its transforms, "
        "priors and noise, and whether rows repeat or outcomes are all equal."
    )

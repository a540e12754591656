"""Outcomes that are means of several, or have their own noise: what a loop can do with them.

An outcome of weight ``w``, told with ``count=w`` or with ``noise=`` a ``w``-th of the modeled noise
variance ``lam``, is a row with the noise variance ``lam / w``. If a part of the loop treats each
outcome as one observation, :func:`check_weighted` refuses it before anything is recorded.
"""

from __future__ import annotations

from botorch_bandits.history import Outcome
from botorch_bandits.loop.refusals import reason_of_one
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.models.noise_floor import SMALLEST_RATIO, output_scale_of


def check_weighted(settings: LoopSettings, outcome: Outcome) -> None:
    """Raise an error unless the loop can take in an outcome with a ``count`` or a ``noise``.

    Args:
        settings: The settings of the loop.
        outcome: The outcome, which is about to be recorded.

    Raises:
        ValueError: If it cannot, with the reason and what to do.
    """
    if not outcome.is_weighted or settings.is_random:
        return
    given = f"count is {outcome.count}"
    if outcome.count is None:
        given = f"noise is {outcome.noise:g}"
    reason = reason_of_one(settings)
    if reason is None and outcome.noise is not None and settings.constraints is not None:
        reason = (
            "noise= is the variance of the reward's noise alone, and the loop has constraint "
            "values, too. If all are means of n observations, tell count=n"
        )
    if reason is None and outcome.noise is not None and not settings.has_fixed_noise:
        reason = (
            "the noise that it would be compared with is learned from the outcomes. Pass "
            "BanditGP.with_kernel(...) with fixed hyperparameters, or tell a mean with count="
        )
    if reason is not None:
        raise ValueError(f"{given}, but {reason}.")
    recipe = settings.recipe
    if recipe is not None:
        smallest = SMALLEST_RATIO * float(output_scale_of(recipe.kernel).max())
        level = recipe.noise / outcome.weight(recipe.noise)
        if level <= smallest:
            raise ValueError(
                f"{given}, which makes the noise variance of the row {level:.3g}; it must be above "
                f"{smallest:.3g}, {SMALLEST_RATIO:g} times the kernel's output scale, or float64 "
                "cannot factorize the kernel matrix. Tell a smaller count or a larger noise: below "
                "that nothing changes."
            )

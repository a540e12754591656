"""Outcomes that are means of several, or have their own noise: what a loop can do with them.

An outcome of weight ``w``, told with ``count=w`` or with ``noise=`` a ``w``-th of the modeled noise
variance ``lam``, is a row with the noise variance ``lam / w``. If a part of the loop treats each
outcome as one observation, :func:`check_weighted` refuses it before anything is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator

from botorch_bandits.history import History, Outcome
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


def check_weighted_history(settings: LoopSettings, history: History) -> None:
    """Raise an error unless the loop can take in all outcomes of a given history.

    Args:
        settings: The settings of the loop.
        history: The history from which the loop continues.

    Raises:
        ValueError: See :func:`check_weighted`.
    """
    for outcome in history.outcomes if history.is_weighted else ():
        try:
            check_weighted(settings, outcome)
        except ValueError as error:
            raise ValueError(
                f"the outcome of query {outcome.query_id} in history has a weight: {error}"
            ) from None


def noise_of_weighted(history: History, on_draws: bool) -> Iterator[str]:
    r"""Return what theorems assume about the noise of weighted outcomes.

    A row of weight :math:`w_t` counts as the row :math:`\sqrt{w_t} (\phi(x_t), y_t)` of a model
    with one noise variance. The noise of this row is ``noise_bound``-sub-Gaussian if the noise of
    the outcome is sub-Gaussian with ``noise_bound`` over :math:`\sqrt{w_t}`, and the
    self-normalized bounds require features to be known before the noise. Widths therefore hold with
    the gain of the weighted rows, :math:`\tfrac12 \ln\det(I + W^{1/2} K W^{1/2} / \lambda)`, which
    is the model's gain.

    Args:
        history: The history of all rounds.
        on_draws: Whether the theorem is about draws of the prior.
    """
    counted = [o.count for o in history.outcomes if o.count is not None]
    if counted:
        yield (
            f"the outcomes of {_told(len(counted))} count= are means of that many observations, "
            "whose noise is as assumed, each given the earlier ones; their number does not depend "
            "on their noise"
        ) + (" or on the reward function" if on_draws else "")
    num_noisy = sum(o.noise is not None for o in history.outcomes)
    if num_noisy and on_draws:
        yield (
            f"the noise of the outcomes of {_told(num_noisy)} noise=v has the variance v instead "
            "of the modeled one; v depends neither on the noise nor on the reward function"
        )
    elif num_noisy:
        yield (
            f"the noise of the outcomes of {_told(num_noisy)} noise=v has the bound noise_bound "
            "sqrt(v / lam) instead of noise_bound, where lam is the modeled variance; v is known "
            "before the noise"
        )


def _told(num_rounds: int) -> str:
    return f"{num_rounds} round{'s' if num_rounds > 1 else ''} that were told with"

"""What the width of censored feedback needs in addition to its formula.

Bounds that were not given have defaults, and the theorem does not cover rows whose noise differs.
"""

from __future__ import annotations

from botorch_bandits.confidence.igp_ucb import DEFAULT_RKHS_BOUND
from botorch_bandits.confidence.prior_reading import UnreadablePriorError
from botorch_bandits.confidence.width_rules import Bound, PriorSummary


def gaps_of_rows(summary: PriorSummary) -> tuple[str, ...]:
    """Return why the theorem does not cover rows whose noise differs.

    With the smallest of the rows' variances in ``lam``, the terms of the norm and of pending
    queries are still bounds. The martingale of the noise is not: it needs weights of the rows that
    are fixed before their outcomes, but the weight of a row changes when its outcome arrives.

    Args:
        summary: The prior summary of the censored model.
    """
    try:
        differs = any(prior.row_noise is not None for prior in summary.active_priors)
    except UnreadablePriorError:
        return ()
    if not differs:
        return ()
    return (
        "the noise differs between rows (train_Yvar), and a pending row has their mean until its "
        "outcome arrives; the theorem needs weights of rows that were fixed before their outcomes. "
        "A model with one noise level has them",
    )


def complete_censored_bounds(
    rkhs_bound: Bound | None,
    noise_bound: Bound | None,
    outcome_bound: Bound | None,
    units: str,
    bounded_outcomes: bool,
) -> tuple[Bound | None, tuple[str, ...]]:
    """Return ``rkhs_bound`` or its default, and the names of bounds that are defaults.

    If neither norm nor noise is known, ``outcome_bound`` is not needed either; if it is given, it
    has its units.

    Args:
        rkhs_bound: The bound as the user gave it, or None.
        noise_bound: The bound as the user gave it, or None.
        outcome_bound: The bound as the user gave it, or None.
        units: ``"outcome"`` or ``"prior"``, the units of the bounds that were given.
        bounded_outcomes: Whether the form that needs no bound on the noise is used.
    """
    given = {"rkhs_bound": rkhs_bound, "noise_bound": noise_bound}
    if bounded_outcomes:
        del given["noise_bound"]
    missing = tuple(name for name, bound in given.items() if bound is None)
    if not missing or (units != "prior" and len(missing) < len(given)):
        return rkhs_bound, ()  # either nothing is missing, or it is an error
    if outcome_bound is None and not bounded_outcomes and len(missing) == len(given):
        missing = (*missing, "outcome_bound")
    return DEFAULT_RKHS_BOUND if rkhs_bound is None else rkhs_bound, missing

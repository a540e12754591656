"""What goes with the width of censored feedback beside its formula.

Bounds that nobody gave have defaults, and rows whose noise differs are outside of the theorem.
"""

from __future__ import annotations

from botorch_bandits.confidence.igp_ucb import DEFAULT_RKHS_BOUND
from botorch_bandits.confidence.width_rules import Bound, PriorSummary, UnreadablePriorError
from botorch_bandits.docstrings import fill_in_docstrings


def gaps_of_rows(summary: PriorSummary) -> tuple[str, ...]:
    """Say why the theorem does not cover rows whose noise differs.

    With the smallest of the rows' variances in ``lam``, the terms of the norm and of pending
    queries stay bounds. The martingale of the noise does not: it needs weights of the rows that
    are fixed before their outcomes, and the weight of a row changes when its outcome arrives.

    Args:
        summary: Of the censored model.
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
    """Return ``rkhs_bound`` or its default, and which bounds are defaults.

    Where neither norm nor noise is known, ``outcome_bound`` is not needed either; if it is given,
    it has its units.

    Args:
        rkhs_bound: As the user gave it, or None.
        noise_bound: Likewise.
        outcome_bound: Likewise.
        units: ``"outcome"`` or ``"prior"``: of the bounds that were given.
        bounded_outcomes: Whether the form is used that needs no bound on the noise.
    """
    given = {"rkhs_bound": rkhs_bound, "noise_bound": noise_bound}
    if bounded_outcomes:
        del given["noise_bound"]
    missing = tuple(name for name, bound in given.items() if bound is None)
    if not missing or (units != "prior" and len(missing) < len(given)):
        return rkhs_bound, ()  # all is there, or what is missing is an error
    if outcome_bound is None and not bounded_outcomes and len(missing) == len(given):
        missing = (*missing, "outcome_bound")
    return DEFAULT_RKHS_BOUND if rkhs_bound is None else rkhs_bound, missing


fill_in_docstrings(__name__)

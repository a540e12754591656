"""What a loop promises: the guarantee of its acquisition, as the history so far used it."""

from __future__ import annotations

from dataclasses import replace

from botorch.acquisition import AcquisitionFunction

from botorch_bandits.acquisition import BanditAcquisition
from botorch_bandits.change_points import Restart
from botorch_bandits.confidence import Guarantee
from botorch_bandits.domains import Arms, Box, Domain
from botorch_bandits.history import History


def guarantee_of(
    acquisition: AcquisitionFunction,
    history: History,
    domain: Domain,
    num_given: int,
    leaves_out_pending: bool,
) -> Guarantee:
    """Return what an acquisition function promises to a loop.

    Args:
        acquisition: Of the next round.
        history: Of all rounds.
        domain: Where it is maximised.
        num_given: How many rounds of the history the loop was given.
        leaves_out_pending: Whether pending queries are left out of the model.
    """
    if not isinstance(acquisition, BanditAcquisition):
        return Guarantee(method=type(acquisition).__name__, gaps=("no theorem is stated for it",))
    guarantee = acquisition.guarantee()
    refuted = [q.round_number for q in history.queries if q.diagnostics.get("is_refuted")]
    if refuted:
        guarantee = guarantee.with_gaps(
            f"the data refuted the assumptions at this level in round {refuted[0]}"
        )
    num_pending = len(history.pending())
    if leaves_out_pending and num_pending:
        if acquisition.is_optimistic:  # the bounds are those of the data that arrived
            arrivals = "which outcomes have arrived does not depend on their noise"
            guarantee = replace(guarantee, assumptions=(*guarantee.assumptions, arrivals))
        else:
            guarantee = guarantee.with_gaps(f"{num_pending} outcomes are pending")
    if guarantee.holds and acquisition.is_optimistic:
        guarantee = replace(
            guarantee,
            regret_bound=realised_regret_bound(history),
            assumptions=(*guarantee.assumptions, *_assumptions(domain, num_given)),
        )
    return guarantee


def with_restarts(guarantee: Guarantee, restart: Restart) -> Guarantee:
    """Return what is left of a guarantee when a policy begins anew.

    Args:
        guarantee: Of the policy alone.
        restart: The rule.
    """
    share = "its share of delta" if restart.split_delta else "delta"
    return replace(guarantee, regret_bound=None).with_gaps(
        "with restarts the theorem covers each segment at "
        f"{share}, for as long as the reward function does not change in it; a change is seen "
        "late or not at all"
    )


def realised_regret_bound(history: History) -> float | None:
    """Return ``sum_t 2 w_t sigma_{t-1}(x_t)``; None where a round was played otherwise."""
    total = 0.0
    for query in history.queries:
        outcome = history.outcome(query.id)
        known = query.diagnostics
        if (
            query.origin != "acquisition"
            or outcome is None
            or outcome.arrived_round != query.round_number
            or "width" not in known
        ):
            return None
        total += 2.0 * known["width"] * known["standard_deviation"]
    return total


def _assumptions(domain: Domain, num_given: int) -> list[str]:
    assumptions = []
    if isinstance(domain, Box):
        assumptions.append("the acquisition is maximised exactly (on a box it is numerically)")
    elif not isinstance(domain, Arms):
        assumptions.append("the acquisition is maximised exactly by domain.maximize")
    if num_given > 0:
        assumptions.append(f"the first {num_given} rounds were played by these settings")
    return assumptions

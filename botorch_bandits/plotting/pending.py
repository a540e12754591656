"""Outcomes on their way."""

from __future__ import annotations

from typing import Any

from botorch_bandits.checks import check_positive
from botorch_bandits.history import History
from botorch_bandits.plotting.rounds import check_history
from botorch_bandits.plotting.style import SMALL, new_figure


def plot_pending(history: History, title: str = "", max_delay: float | None = None) -> Any:
    """Draw how many outcomes are pending in each round, and for how long each was.

    The delay of an outcome counts rounds as :class:`~botorch_bandits.Censored` does: it is 1 if the
    outcome is known when the next query is chosen. It is late if its delay exceeds ``max_delay``.

    Args:
        history: What to draw.
        title: A title for the figure.
        max_delay: For how many rounds an outcome is waited for, ``m``, such as that of
            ``Censored``. Outcomes that came later are drawn as squares.

    Returns:
        An array of two axes: the number of pending queries when each round's query was chosen,
        with their share of all queries; below, one line a query from asking to arrival (open at
        the end while it is pending, a cross where it failed) at the height of its delay.

    Raises:
        ValueError: If ``max_delay`` is not positive.
    """
    check_history(history)
    if max_delay is not None:
        max_delay = check_positive("max_delay", max_delay)
    figure, axes = new_figure(2)
    column = axes[:, 0]
    rounds = range(1, history.num_queries + 1)
    pending = [len(history.pending_in(t)) for t in rounds]
    column[0].step(rounds, pending, where="mid", color="black", lw=1.5, label="pending queries")
    column[0].set_ylabel("pending queries")
    share = column[0].twinx()
    shares = [n / (t - 1) if t > 1 else 0.0 for t, n in zip(rounds, pending, strict=True)]
    share.step(rounds, shares, where="mid", color="0.5", ls="--", lw=1.2, label="share")
    share.set_ylim(0, 1)
    share.set_ylabel("share of all queries (dashed)")
    share.grid(False)
    ends: dict[str, list[tuple[int, int]]] = {}
    for query in history.queries:
        failure, outcome = history.failure(query.id), history.outcome(query.id)
        news = outcome if failure is None else failure
        end = history.num_queries + 1 if news is None else news.arrived_round + 1
        delay = end - query.round_number
        column[1].plot([query.round_number, end], [delay] * 2, "0.6", lw=0.8)
        kind = "failed" if failure is not None else "told" if outcome is not None else "pending"
        if kind == "told" and max_delay is not None and delay > max_delay:
            kind = "told late"
        ends.setdefault(kind, []).append((end, delay))
    for kind, marker, fill in (
        ("told", "o", "black"),
        ("told late", "s", "black"),
        ("pending", "o", "white"),
        ("failed", "x", "black"),
    ):
        if kind in ends:
            x, y = zip(*ends[kind], strict=True)
            column[1].plot(
                x, y, marker, color="black", mfc=fill, ms=3.5, ls="none", label=kind, zorder=3
            )
    if max_delay is not None:
        label = f"max_delay = {max_delay:g}"
        column[1].axhline(max_delay, color="black", ls="--", lw=1.0, label=label)
    column[1].set_ylabel("delay so far (rounds)")
    column[1].set_xlabel("round")
    if ends or max_delay is not None:
        column[1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=SMALL)
    for ax in column:
        ax.set_xlim(0, max(history.num_queries, 1) + 2)
    figure.suptitle(title, fontsize=11)
    return column

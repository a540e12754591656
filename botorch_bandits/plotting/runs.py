"""Plots of one run, round by round: rewards, restarts, pending outcomes, gain and multipliers.

Each function draws one of them from a loop's history, on new or given axes.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botorch_bandits.checks import check_callable, check_instance, check_positive
from botorch_bandits.history import History, Outcome
from botorch_bandits.plotting.style import (
    LINE_COLOR,
    MARKERS,
    ORIGINS,
    PENDING,
    RANDOM_BAND,
    RANDOM_COLOR,
    SMALL,
    after_round,
    axes_or_new,
    break_at,
    columns,
    line_style,
    mark_rounds,
    new_figure,
    write_in_the_middle,
)
from botorch_bandits.random_baseline import RandomBaseline

if TYPE_CHECKING:
    from matplotlib.axes import Axes


NO_DIAGNOSTIC = "this method has none"
LABELS = {"width": "width (standard deviations)", "information_gain": "information gain (nats)"}


def plot_rewards(
    history: Any,
    ax: Axes | None = None,
    reference: float | tuple[str, float] | None = None,
    *,
    random_search: RandomBaseline | Iterable[float] | None = None,
    zoom: bool = False,
    restarts: Sequence[int] = (),
    best: bool = True,
) -> Axes:
    """Draw observed rewards and the best so far over rounds.

    With constraints, the best so far is taken among the rewards of rounds that met all of them; the
    other rounds have a plus.

    Costs of a history with ``maximize=False`` are drawn as they were told, so lower is better.

    Args:
        history: A loop, or its history. Rounds without an outcome have a mark at the foot, which is
            open while the outcome is pending and a cross if it failed.
        ax: Axes to draw on; new ones if omitted.
        reference: A reward to compare with, drawn as a horizontal line; alone or with its name
            before it.
        random_search: Rewards at points that were drawn uniformly at random. The dashed line is the
            mean best reward of random search after the same number of rounds, and the band contains
            four of five searches.
        zoom: Cut the axis off below, so that the gain of the later rounds can be seen. Rewards
            below are small triangles at the foot. For costs, the upper end is cut off.
        restarts: The rounds after which the best so far starts over.
        best: Whether the best so far is drawn. It says little if the reward drifts.
    """
    from matplotlib.ticker import MaxNLocator

    history = check_history(history)
    ax = axes_or_new(ax)
    levels = []
    if random_search is not None:
        levels = _draw_random_search(ax, random_search, history)
    arrived = scatter_rewards(history, ax)
    over = [(t, o.reward) for t, o in arrived if any(g > 0.0 for g in o.constraints)]
    if over:
        plus: dict[str, Any] = {"color": "black", "ms": 7.5, "mew": 1.1, "ls": "none"}
        ax.plot(*columns(over), "+", label="a constraint not met", **plus)
    steps = best_so_far(history, arrived, restarts) if best else []
    if steps:
        label = f"best so far: {steps[-1][1]:.4g}"
        ax.step(*columns(steps), where="post", color=LINE_COLOR, lw=2.2, label=label)
    if reference is not None:
        name, value = reference if isinstance(reference, tuple) else ("reference", reference)
        ax.axhline(value, color="black", ls="-.", lw=1.1, label=f"{name}: {value:.4g}")
        levels.append(value)
    _mark_missing(history, ax)
    if zoom:
        _zoom(ax, arrived, [y for _, y in steps if not math.isnan(y)], levels, history.maximize)
    ax.set_xlabel("round")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylabel(history.outcome_name)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="lower right" if history.maximize else "upper right", fontsize=SMALL)
    return ax


def _draw_random_search(
    ax: Axes, rewards: RandomBaseline | Iterable[float], history: History
) -> list[float]:
    """Draw the results of random search after each round; return its values in the later half."""
    baseline = (
        rewards
        if isinstance(rewards, RandomBaseline)
        else RandomBaseline(rewards, history.maximize)
    )
    if baseline.maximize is not history.maximize:
        raise ValueError(
            f"random_search has maximize={baseline.maximize}, but the history "
            f"maximize={history.maximize}; build RandomBaseline(..., maximize={history.maximize}) "
            "of outcomes in the sign of the history."
        )
    rounds = range(1, min(max(history.num_queries, 1), len(baseline)) + 1)
    mean = [baseline.expected_best(n) for n in rounds]
    # with more than half of all points, all searches find nearly the same
    varying = [n for n in rounds if 2 * n <= len(baseline)]
    if varying:
        low, high = ([baseline.quantile(n, level) for n in varying] for level in (0.1, 0.9))
        label = "random search, 4 of 5 times"
        ax.fill_between(varying, low, high, color=RANDOM_BAND, lw=0, label=label, step=None)
    label = f"random search, on average: {mean[-1]:.4g}"
    ax.plot(rounds, mean, color=RANDOM_COLOR, ls="--", lw=1.8, label=label)
    return mean[len(mean) // 2 :]


def _mark_missing(history: History, ax: Axes) -> None:
    """Mark rounds without an outcome at the foot."""
    rounds: dict[str, list[int]] = {}
    for query in history.queries:
        rounds.setdefault(history.state(query.id), []).append(query.round_number)
    failed: dict[str, Any] = {"marker": "x", "color": "black", "ms": 5.0, "zorder": 4}
    for state, style in (("pending", {**PENDING, "ms": 5.0}), ("failed", failed)):
        if state in rounds:
            ax.plot(
                rounds[state], [0.0] * len(rounds[state]), ls="none", label=state,
                transform=ax.get_xaxis_transform(), clip_on=False, **style,
            )  # fmt: skip


def best_so_far(
    history: History, arrived: Sequence[tuple[int, Outcome]], restarts: Sequence[int]
) -> list[tuple[float, float]]:
    """Return rounds and the best reward up to each; there is a NaN where it starts over."""
    steps: list[tuple[float, float]] = []
    worst = -math.inf if history.maximize else math.inf
    best, begins = worst, sorted(restarts)
    for t, outcome in arrived:
        while begins and begins[0] < t:
            if math.isfinite(best):
                steps += [(begins[0] + 0.5, best), (begins[0] + 0.5, math.nan)]
            best = worst
            begins.pop(0)
        if all(g <= 0.0 for g in outcome.constraints):
            best = outcome.reward if history.is_better(outcome.reward, best) else best
        if math.isfinite(best):
            steps.append((t, best))
    if steps and steps[-1][0] < history.num_queries:
        steps.append((history.num_queries, best))
    return steps


def _zoom(
    ax: Axes,
    arrived: Sequence[tuple[int, Outcome]],
    best: Sequence[float],
    levels: Sequence[float],
    maximize: bool = True,
) -> None:
    """Cut the reward axis off below the range of the rewards after the first quarter of rounds.

    At most half of the rewards are cut off. The axis of costs is cut off above.
    """
    if not best:
        return
    sign = 1.0 if maximize else -1.0
    told = [(t, sign * outcome.reward) for t, outcome in arrived]
    best, levels = [sign * y for y in best], [sign * y for y in levels]
    top = max(*best, *levels, *(y for _, y in told))
    low = min(best[len(best) // 4], best[-1], *levels)
    if top <= low:
        return
    median = sorted(y for _, y in told)[len(told) // 2]
    low = min(low - 0.25 * (top - low), median - 0.04 * (top - median))
    top += 0.06 * (top - low)  # with room for half a marker
    below = [t for t, y in told if y < low]
    if not below:
        return
    ax.set_ylim(*sorted((sign * low, sign * top)))
    # triangles that point to the rewards outside
    style: dict[str, Any] = {"marker": 7 if maximize else 6, "color": "0.35", "ms": 5.0}
    height, label = (0.03, "below this axis") if maximize else (0.97, "above this axis")
    ax.plot(
        below, [height] * len(below), transform=ax.get_xaxis_transform(), label=label, ls="none",
        **style,
    )  # fmt: skip


def plot_diagnostic(
    history: Any, name: str, ax: Axes | None = None, resets: Sequence[Any] | None = None
) -> Axes:
    """Draw one diagnostic of the acquisition over rounds.

    Args:
        history: A loop, or its history. Rounds without it are left out.
        name: ``"width"``, ``"information_gain"``, ``"mean"``, ``"standard_deviation"``,
            ``"multiplier_1"`` or another name in the ``diagnostics`` of the queries. If no query
            has it, the panel lists the names that there are.
        ax: Axes to draw on; new ones if omitted.
        resets: Where the run started over, such as ``loop.resets``: the line is interrupted there.
            If omitted, they are inferred from the diagnostics (:func:`resets_on_record`).
    """
    history = check_history(history)
    ax = axes_or_new(ax)
    points = [
        (q.round_number, q.diagnostics[name]) for q in history.queries if name in q.diagnostics
    ]
    if points:
        resets = resets_on_record(history) if resets is None else resets
        ax.plot(*break_at(*columns(points), resets), color="black", lw=1.5)
    else:
        known = sorted({key for query in history.queries for key in query.diagnostics})
        listed = textwrap.fill(f"there are {', '.join(known)}", 60) if known else ""
        write_in_the_middle(ax, "\n".join(filter(None, (NO_DIAGNOSTIC, listed))))
    ax.set_xlabel("round")
    ax.set_ylabel(LABELS.get(name, name.replace("_", " ")))
    return ax


def resets_on_record(history: History) -> list[int]:
    """Return the rounds after which a loop with ``restart=`` started over, as its queries tell.

    Each query has the number of its segment among its diagnostics, so a restart is known once a
    query has followed. A point that was evaluated elsewhere has no such number: if such points come
    first after a restart, the restart is placed after them.

    Args:
        history: The history of the loop.
    """
    found, before = [], None
    for query in history.queries:
        segment = query.diagnostics.get("segment", before)
        if before is not None and segment != before:
            found.append(query.round_number - 1)
        before = segment
    return found


def scatter_rewards(history: History, ax: Axes) -> list[tuple[int, Outcome]]:
    """Draw arrived rewards, with a marker for each origin; return rounds and outcomes."""
    told = [(q, history.outcome(q.id)) for q in history.queries]
    arrived = [(q.round_number, q.origin, o) for q, o in told if o is not None]
    for origin, marker, label in ORIGINS:
        points = [(t, o.reward) for t, found, o in arrived if found == origin]
        fill = "0.6" if origin == "acquisition" else "white"
        if points:
            ax.plot(*columns(points), marker, color="0.3", mfc=fill, ms=4, ls="none", label=label)
    return [(t, o) for t, _, o in arrived]


def check_history(history: Any) -> History:
    """Return a history, or that of a loop; otherwise raise a TypeError that says what to pass."""
    checked: History = check_instance(
        "history",
        history.history if is_loop(history) else history,
        History,
        "Pass the loop, its history, or the history of a result.",
    )
    return checked


def is_loop(run: Any) -> bool:
    """Say whether something is a loop rather than a history."""
    return hasattr(run, "current_model") and hasattr(run, "settings")


def events_of(run: Any, resets: Any, change_tests: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the resets and tests that were given, or else those of a loop."""
    if is_loop(run):
        resets = run.resets if resets is None else resets
        change_tests = run.change_tests if change_tests is None else change_tests
    return resets or (), change_tests or ()


SYMBOLS = ("o", "s", "D", "v", "P")  # an upright triangle is an estimated change
DASHES: tuple[Any, ...] = ("--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)))


def plot_timeline(
    history: Any,
    resets: Sequence[Any] | None = None,
    change_tests: Sequence[Any] | None = None,
    change_points: Sequence[int] | None = (),
    title: str = "",
) -> Any:
    """Draw a run that explores and starts over: rewards, and the results of the detector.

    Args:
        history: A loop, or its history.
        resets: Where the run started over; ``loop.resets`` if a loop is passed without them.
        change_tests: The results of the tests; likewise ``loop.change_tests``.
        change_points: The last round before each true change, if they are known.
        title: A title for the figure.

    Returns:
        An array of two axes. At the top are rewards by round, with those of exploration rounds as
        open triangles. At the bottom is the statistic of each test (of the tail closest to a
        detection, or the evidence in nats) and its threshold, with a marker and a line for each
        quantity that was tested; detections are filled. Thresholds are not joined across restarts.
        Solid vertical lines are restarts, dotted ones true changes; carets at the foot are the
        positions of changes according to the detector.
    """
    resets, change_tests = events_of(history, resets, change_tests)
    history = check_history(history)
    figure, axes = new_figure(2)
    column = axes[:, 0]
    rewards, tests = column
    scatter_rewards(history, rewards)
    rewards.set_ylabel(history.outcome_name)
    if change_tests:
        _draw_change_tests(tests, change_tests, resets)
    else:
        write_in_the_middle(tests, "no test for a change")
        tests.set_yticks([])
    evidence = any(getattr(r, "quantity", "reward") == "evidence" for r in change_tests)
    squared = "squared difference\n(squared outcome units)"
    if change_tests:
        tests.set_ylabel("evidence for a change\n(nats)" if evidence else squared)
    tests.set_xlabel("round")
    located = [r.change_round for r in resets if getattr(r, "change_round", None) is not None]
    for ax in column:
        mark_rounds(ax, resets, change_points)
        if located:
            ax.plot(
                located,
                [0.0] * len(located),
                "^",
                color="black",
                ms=6,
                transform=ax.get_xaxis_transform(),
                clip_on=False,
                label="estimated change",
            )
        ax.set_xlim(0, max(history.num_queries, 1) + 1)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=SMALL)
    figure.suptitle(title, fontsize=11)
    return column


def _draw_change_tests(ax: Axes, change_tests: Sequence[Any], resets: Sequence[Any]) -> None:
    """Draw statistics and thresholds, by quantity."""
    by_quantity: dict[str, list[Any]] = {}
    for reading in change_tests:
        by_quantity.setdefault(getattr(reading, "quantity", "reward"), []).append(reading)
    for i, (quantity, some) in enumerate(by_quantity.items()):
        ending = "" if len(by_quantity) == 1 else f", {quantity}"
        gray = "0.4" if i < len(DASHES) else "0.65"
        points = [(r.after_round, r.threshold) for r in some]
        ax.plot(
            *break_at(*columns(points), resets),
            ls=DASHES[i % len(DASHES)],
            color=gray,
            lw=1.2,
            label=f"threshold{ending}",
        )
        for detected, fill, label in ((False, "white", "statistic"), (True, "black", "detection")):
            points = [(r.after_round, r.statistic) for r in some if r.detected is detected]
            if points:
                ax.plot(
                    *columns(points),
                    SYMBOLS[i % len(SYMBOLS)],
                    color="black",
                    mfc=fill,
                    ms=4,
                    ls="none",
                    label=f"{label}{ending}",
                )
    values = [value for r in change_tests for value in (r.statistic, r.threshold)]
    if "evidence" in by_quantity:  # these are logarithms already; one detection may dwarf the rest
        largest = max(r.threshold for r in change_tests)
        ax.set_yscale("symlog", linthresh=largest)
        _set_symlog_ticks(ax, largest)
    elif any(value > 0.0 and math.isfinite(value) for value in values):
        ax.set_yscale("log")


def _set_symlog_ticks(ax: Axes, linear: float) -> None:
    """Put ticks at round numbers in the linear part of an axis, and at powers of ten beyond it.

    Args:
        ax: What it belongs to; everything is drawn already.
        linear: Where the linear part ends, on both sides of 0.
    """
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, StrMethodFormatter

    low, high = ax.get_ylim()
    inside = MaxNLocator(4).tick_values(max(low, -linear), min(high, linear))
    ticks = {float(at) for at in inside if abs(at) <= linear}
    for sign, end in ((1.0, high), (-1.0, -low)):
        if end > linear:
            factors = (1, 2, 5) if end < 100.0 * linear else (1,)
            decades = range(math.floor(math.log10(linear)), math.ceil(math.log10(end)) + 1)
            beyond = [m * 10.0**k for k in decades for m in factors]
            ticks |= {sign * at for at in beyond if 1.3 * linear < at <= end}
    ax.yaxis.set_major_locator(FixedLocator(sorted(at for at in ticks if low <= at <= high)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def plot_pending(history: Any, title: str = "", max_delay: float | None = None) -> Any:
    """Draw how many outcomes are pending in each round, and for how long each one was.

    The delay of an outcome counts rounds as :class:`~botorch_bandits.Censored` does: it is 1 if the
    outcome is known when the next query is chosen. It is late if its delay exceeds ``max_delay``.

    Args:
        history: A loop, or its history.
        title: A title for the figure.
        max_delay: The number of rounds ``m`` for which an outcome is waited for, such as that of
            ``Censored``. Outcomes that came later are drawn as squares.

    Returns:
        An array of two axes: the number of pending queries when each round's query was chosen,
        with their share of all queries; and below, one line per query from asking to arrival (open
        at the end while it is pending, a cross if it failed) at the height of its delay.

    Raises:
        ValueError: If ``max_delay`` is not positive.
    """
    history = check_history(history)
    if max_delay is not None:
        max_delay = check_positive("max_delay", max_delay)
    from matplotlib.ticker import MaxNLocator

    figure, axes = new_figure(2)
    column = axes[:, 0]
    rounds = range(1, history.num_queries + 1)
    pending = [len(history.pending_in(t)) for t in rounds]
    column[0].step(rounds, pending, where="mid", color="black", lw=1.5, label="pending queries")
    column[0].set_ylabel("pending queries (solid)")
    for ax in column:
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    share = column[0].twinx()
    shares = [n / (t - 1) if t > 1 else 0.0 for t, n in zip(rounds, pending, strict=True)]
    share.step(rounds, shares, where="mid", color="0.5", ls="--", lw=1.2, label="share")
    share.set_ylim(-0.04, 1.04)
    share.set_ylabel("share of all queries (dashed)")
    share.grid(False)
    ends: dict[str, list[tuple[int, int]]] = {}
    for query in history.queries:
        news = history.outcome(query.id) or history.failure(query.id)
        news = news or history.retraction(query.id)
        end = history.num_queries + 1 if news is None else news.arrived_round + 1
        delay = end - query.round_number
        column[1].plot([query.round_number, end], [delay] * 2, "0.6", lw=0.8)
        kind = history.state(query.id)
        if kind == "told" and max_delay is not None and delay > max_delay:
            kind = "told late"
        ends.setdefault(kind, []).append((end, delay))
    for kind, marker, fill in (
        ("told", "o", "black"),
        ("told late", "s", "black"),
        ("pending", "o", "white"),
        ("failed", "x", "black"),
        ("retracted", "+", "black"),
    ):
        if kind in ends:
            x, y = zip(*ends[kind], strict=True)
            label = "pending, delay so far" if kind == "pending" else kind
            column[1].plot(
                x, y, marker, color="black", mfc=fill, ms=3.5, ls="none", label=label, zorder=3
            )
    if max_delay is not None:
        label = f"max_delay = {max_delay:g}"
        column[1].axhline(max_delay, color="black", ls="--", lw=1.0, label=label)
    column[1].set_ylabel("delay (rounds)")
    column[1].set_xlabel("round")
    if ends or max_delay is not None:
        column[1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=SMALL)
    for ax in column:
        ax.set_xlim(0, max(history.num_queries, 1) + 2)
    figure.suptitle(title, fontsize=11)
    return column


GainCurve = Callable[[int], float]


def plot_information_gain(
    history: Any,
    bounds: GainCurve | Mapping[str, GainCurve] | None = None,
    resets: Sequence[Any] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the realized information gain over rounds, with its upper bounds.

    The gain of a round is that of the outcomes with which its query was chosen. After a restart it
    starts again from 0, and so does the bound.

    Args:
        history: Rounds whose acquisition did not report its gain are left out.
        bounds: Bounds to compare the gain with: a function from a number of observations (one less
            than the round, counted since the last restart) to nats, such as
            :class:`~botorch_bandits.confidence.GreedyGain` or
            :class:`~botorch_bandits.confidence.RateGain`; or several by name.
        resets: Where the run started over, such as ``loop.resets``; marked by vertical lines. If
            omitted, they are inferred from the diagnostics.
        ax: Axes to draw on; new ones if omitted.

    Raises:
        TypeError: If a bound cannot be called.

    Example:
        >>> from botorch_bandits import History
        >>> import math
        >>> ax = plot_information_gain(History(dim=1), {"logarithm": lambda n: math.log(1 + n)})
        >>> ax.get_ylabel()
        'information gain (nats)'
    """
    history = check_history(history)
    ax = axes_or_new(ax)
    resets = resets_on_record(history) if resets is None else resets
    curves = bounds if isinstance(bounds, Mapping) else {} if bounds is None else {"bound": bounds}
    points = [
        (q.round_number, q.diagnostics["information_gain"])
        for q in history.queries
        if "information_gain" in q.diagnostics
    ]
    mark_rounds(ax, resets)
    if points:
        ax.plot(*break_at(*columns(points), resets), lw=1.5, label="realized gain", **line_style(0))
    else:
        write_in_the_middle(ax, NO_DIAGNOSTIC)
    rounds = list(range(1, history.num_queries + 1))
    starts = [0, *sorted(after_round(reset) for reset in resets)]
    observed = [t - 1 - max(start for start in starts if start < t) for t in rounds]
    for i, (name, curve) in enumerate(curves.items()):
        check_callable("bounds", curve, "Pass a function from a number of observations to nats.")
        known = {n: float(curve(n)) for n in sorted(set(observed))}
        values = [known[n] for n in observed]
        ax.plot(*break_at(rounds, values, resets), lw=1.2, label=name, **line_style(i + 2))
    ax.set_xlim(0, max(history.num_queries, 1) + 1)
    ax.set_xlabel("round")
    ax.set_ylabel("information gain (nats)")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=SMALL)
    return ax


THICK, THIN = 1.8, 0.8


def plot_ledger(ledger: Any, names: Sequence[str] = (), title: str = "") -> Any:
    """Draw the violations of constraints, and the multipliers that followed.

    Args:
        ledger: A loop, or the ledger of one run. With a loop, vertical lines mark its restarts.
        names: One per constraint; if omitted, constraints are numbered.
        title: A title for the figure.

    Returns:
        An array of two axes over the outcomes, in order of arrival. The upper one has, for each
        constraint, the mean of its values in each epoch (open markers), the mean of all values so
        far (thick line; negative if budget is left), and the running rectified violation (thin
        line), a mean in which values below 0 count as 0. The lower one has the multipliers in
        force.

    Raises:
        TypeError: If ``ledger`` is neither a loop nor a ledger.
        ValueError: If the ledger has several replicates, or the number of names is wrong.
    """
    from matplotlib.lines import Line2D

    marks: list[int] = []
    if hasattr(ledger, "ledger") and hasattr(ledger, "resets"):
        arrivals = [outcome.arrived_round for outcome in ledger.history.outcomes]
        marks = [sum(t <= reset.after_round for t in arrivals) for reset in ledger.resets]
        ledger = ledger.ledger()
    if not hasattr(ledger, "running_average"):
        raise TypeError(
            f"ledger is a {type(ledger).__name__}; pass a loop with constraints=, or loop.ledger()."
        )
    if ledger.constraints.ndim != 2:
        raise ValueError(
            f"ledger has constraints of shape {tuple(ledger.constraints.shape)}; draw one "
            "replicate at a time."
        )
    if names and (isinstance(names, str) or len(names) != ledger.num_constraints):
        raise ValueError(
            f"names is {names!r}; give a list with one name for each of the "
            f"{ledger.num_constraints} constraints, or leave it out."
        )
    figure, axes = new_figure(2)
    column = axes[:, 0]
    violations, multipliers = column
    known = slice(None) if ledger.mask is None else ledger.mask
    values, epochs = ledger.constraints[known], ledger.epochs[known]
    average = ledger.running_average[known]
    rectified = ledger.running_rectified_average[known]
    outcomes = range(1, len(values) + 1)
    violations.axhline(0.0, color="0.7", lw=0.8)
    for j in range(ledger.num_constraints):
        style = line_style(j)
        name = names[j] if names else f"constraint {j + 1}"
        violations.plot(outcomes, average[:, j].tolist(), lw=THICK, label=name, **style)
        violations.plot(outcomes, rectified[:, j].tolist(), lw=THIN, label="_rectified", **style)
        last, means, played = [], [], []
        for epoch in range(1, ledger.num_epochs + 1):
            rows = (epochs == epoch).nonzero().reshape(-1)
            if len(rows):
                last.append(int(rows[-1]) + 1)
                means.append(float(values[rows, j].mean()))
            played += [float(ledger.multipliers[epoch - 1, j])] * len(rows)
        marker = MARKERS[j % len(MARKERS)]
        violations.plot(
            last,
            means,
            marker,
            color=style["color"],
            mfc="white",
            ms=4,
            ls="none",
            label="_epochs",
        )
        multipliers.step(outcomes, played, where="mid", lw=1.5, label=name, **style)
    violations.set_ylabel("constraint value (0 is the limit)")
    multipliers.set_ylabel("multiplier")
    multipliers.set_xlabel("outcome, in order of arrival")
    is_alone = ledger.num_constraints == 1
    of_one = f"{names[0]}, " if is_alone and names else ""
    color = "black" if is_alone else "0.5"  # of several, these are about all of them
    meanings = [
        Line2D([], [], color=color, lw=THICK, label=f"{of_one}average so far (thick)"),
        Line2D([], [], color=color, lw=THIN, label=f"{of_one}rectified average (thin)"),
        Line2D([], [], color=color, marker="o", mfc="white", ms=4, ls="none", label="epoch mean"),
    ]
    handles = meanings
    if not is_alone:
        handles = [*violations.get_legend_handles_labels()[0], *meanings]
    for ax in column:
        mark_rounds(ax, marks)
    if marks:
        handles = [*handles, Line2D([], [], color="0.5", lw=0.9, label="restart")]
    violations.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=SMALL)
    for ax in column:
        ax.set_xlim(0, max(len(values), 1) + 1)
    figure.suptitle(title, fontsize=11)
    return column

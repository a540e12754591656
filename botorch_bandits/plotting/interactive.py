"""The same figures for a notebook: with plotly, they can be zoomed, and points show their values.

=============================  =================================================================
:func:`plot_run`               rewards over rounds and the best so far
:func:`plot_map`               the points by two parameters, over what the model expects
:func:`plot_evidence`          which priors on a list the outcomes speak against
:func:`plot_timeline`          what the tests for a change said, and when a run restarted
=============================  =================================================================

Each returns a ``plotly.graph_objects.Figure``, which a notebook shows and ``figure.write_html``
saves. Install the extra ``interactive``. The functions of :mod:`botorch_bandits.plotting` without
it draw for print.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from botorch_bandits.checks import check_instance, check_integer
from botorch_bandits.confidence import EvidenceTable
from botorch_bandits.domains import Arms, Box
from botorch_bandits.history import History, Query
from botorch_bandits.plotting.overview import Seen, by_relevance, see, values_on_axis
from botorch_bandits.plotting.runs import (
    best_so_far,
    check_history,
    events_of,
    is_loop,
    resets_on_record,
)
from botorch_bandits.plotting.style import (
    ORIGINS,
    after_round,
    axis_names,
    break_at,
    columns,
    native_ticks,
)
from botorch_bandits.spaces import Space

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""The palette of Okabe and Ito, whose colors color-blind people can tell apart."""

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")

SYMBOLS = {
    "initial": "square",
    "exploration": "triangle-up",
    "random": "triangle-down",
    "acquisition": "circle",
    "repeat": "circle-open-dot",
    "attached": "diamond",
}
"""The marker of each origin, as in the figures for print."""

CELLS_ON_A_SIDE = 60


def need_plotly() -> Any:
    """Return ``plotly.graph_objects``.

    Raises:
        ImportError: If plotly is not installed.
    """
    try:
        import plotly.graph_objects as graph_objects
    except ImportError as error:
        raise ImportError(
            "interactive plots need plotly: pip install 'botorch_bandits[interactive]'."
        ) from error
    return graph_objects


def plot_run(
    run: Any, title: str = "", *, resets: Sequence[Any] | None = None, domain: Any = None
) -> Any:
    """Draw rewards over rounds and the best so far; each point shows its query.

    With constraints, the best so far is taken among the rewards of rounds that met all of them.
    Failed and pending queries have marks at the bottom.

    Args:
        run: A loop, or its history.
        title: A title for the figure.
        resets: Where the run started over, such as ``loop.resets``; if omitted, they are inferred
            from the diagnostics.
        domain: The domain of the points; that of the loop if omitted. A
            :class:`~botorch_bandits.Space` has names and native values.

    Returns:
        A ``plotly.graph_objects.Figure``.

    Raises:
        ImportError: If plotly is not installed.
        TypeError: If ``run`` is neither a loop nor a history.

    Example:
        >>> from botorch_bandits import Box, BanditLoop, RandomSearch
        >>> from botorch_bandits import run as run_rounds
        >>> loop = BanditLoop(Box([[0.0], [1.0]]), None, RandomSearch())
        >>> _ = run_rounds(loop, lambda x: float(x), num_rounds=3, progress=False)
        >>> [trace.name for trace in plot_run(loop).data]
        ['random', 'best so far']
    """
    graph_objects = need_plotly()
    history, domain = _read(run, domain)
    resets = _resets(run, history) if resets is None else resets
    figure = graph_objects.Figure()
    _add_rewards(figure, graph_objects, history, domain)
    arrived = [(q.round_number, history.outcome(q.id)) for q in history.queries]
    told = [(t, outcome) for t, outcome in arrived if outcome is not None]
    steps = best_so_far(history, told, [after_round(reset) for reset in resets])
    if steps:
        x, y = columns(steps)
        figure.add_trace(
            graph_objects.Scatter(
                x=x, y=y, mode="lines", name="best so far", line={"shape": "hv", "color": COLORS[0]}
            )
        )
    _mark_resets(figure, resets)
    _finish(figure, title, "round", history.outcome_name)
    return figure


def plot_map(
    run: Any,
    title: str = "",
    *,
    parameters: tuple[Any, Any] | None = None,
    model: Any = None,
    domain: Any = None,
) -> Any:
    """Draw the points by two parameters, over the posterior mean of the model.

    The other parameters have their values at the best point. After a restart, and with contexts, it
    shows what belongs to the present.

    Args:
        run: A loop, or its history. A history alone does not have a model.
        title: A title for the figure.
        parameters: Two names of a :class:`~botorch_bandits.Space`, or two numbers of dimensions;
            if omitted, the two that change the model's mean most.
        model: The model to draw; that of the loop if omitted.
        domain: The domain of the points; that of the loop if omitted.

    Returns:
        A ``plotly.graph_objects.Figure``.

    Raises:
        ImportError: If plotly is not installed.
        TypeError: If ``run`` is neither a loop nor a history.
        ValueError: If points have one dimension only, or ``parameters`` are not two of them.
    """
    graph_objects = need_plotly()
    history, known = _read(run, domain)
    if history.dim < 2:
        raise ValueError(
            "run has points of one dimension, but a map needs two; use "
            "botorch_bandits.plotting.plot_posterior."
        )
    resets = _resets(run, history)
    seen = see(run, model, known, resets, ())
    names = axis_names(seen.domain, seen.dim)
    first, second = (
        by_relevance(seen, 2) if parameters is None else _pair(parameters, names, seen.domain)
    )
    figure = graph_objects.Figure()
    _add_background(figure, graph_objects, seen, (first, second))
    rows = [query for query, _, _ in seen.told()]
    for origin, _, label in ORIGINS:
        some = [query for query in rows if query.origin == origin]
        if some:
            _add_points(figure, graph_objects, some, seen, (first, second), label, origin)
    waiting = seen.pending()
    if waiting:
        _add_points(figure, graph_objects, waiting, seen, (first, second), "pending", "")
    best = seen.best()
    if best is not None:
        point = best[0].cpu()
        figure.add_trace(
            graph_objects.Scatter(
                x=[float(point[first])],
                y=[float(point[second])],
                mode="markers",
                name="best point",
                marker={
                    "symbol": "star",
                    "size": 16,
                    "color": "white",
                    "line": {"width": 1.5, "color": "black"},
                },
                hovertext=[f"best: {best[1]:.6g}"],
                hoverinfo="text",
            )
        )
    _finish(figure, title, names[first], names[second])
    for axis, i in ((figure.update_xaxes, first), (figure.update_yaxes, second)):
        ticks = native_ticks(seen.domain, i) if isinstance(seen.domain, Space) else None
        if ticks is not None:
            at, texts = columns(ticks)
            axis(tickvals=at, ticktext=texts)
    return figure


def plot_evidence(table: EvidenceTable, title: str = "", num_named: int = 5) -> Any:
    """Draw the log evidence against each prior on a list; each line shows its prior.

    Args:
        table: The table, such as ``loop.evidence()``.
        title: A title for the figure.
        num_named: The number of survivors with an entry in the legend: those with the largest
            posterior weights.

    Returns:
        A ``plotly.graph_objects.Figure``.

    Raises:
        ImportError: If plotly is not installed.
        TypeError: If ``table`` is not a table of evidence.
        ValueError: If ``num_named`` is negative.
    """
    graph_objects = need_plotly()
    check_instance("table", table, EvidenceTable, "Pass loop.evidence().")
    count = min(check_integer("num_named", num_named, minimum=0), len(COLORS))
    rows = list(table)
    order = sorted(range(len(rows)), key=lambda k: -rows[k].posterior_weight)
    named = [k for k in order if rows[k].survives][:count]
    figure = graph_objects.Figure()
    steps = list(range(1, table.num_outcomes + 1))
    for k in [k for k in range(len(rows)) if k not in named] + named[::-1]:
        row = rows[k]
        rank = named.index(k) if k in named else None
        status = "survives" if row.survives else f"eliminated after {row.eliminated_after}"
        line: dict[str, Any] = {"color": "#b0b0b0" if row.survives else "#e0e0e0", "width": 1}
        if rank is not None:
            line = {"color": COLORS[rank], "width": 2, "dash": DASHES[rank]}
        figure.add_trace(
            graph_objects.Scatter(
                x=steps,
                y=table.path[:, k].tolist(),
                mode="lines",
                name=row.name,
                line=line,
                showlegend=rank is not None,
                hovertemplate=(
                    f"{_plain(row.name)}<br>{status}, posterior weight {row.posterior_weight:.3g}"
                    "<br>log evidence against it %{y:.3f} after %{x} outcomes<extra></extra>"
                ),
            )
        )
    if table.num_outcomes:
        figure.add_hline(
            y=table.threshold,
            line={"color": "black", "width": 2},
            annotation_text=f"eliminated at level {table.level:g}",
        )
        lowest = min(float(table.path.min()), 0.0)
        figure.update_yaxes(range=[1.1 * lowest - 0.2, 2.0 * table.threshold])
    _finish(figure, title, "outcomes", "log evidence against the prior (nats)")
    return figure


def plot_timeline(
    history: Any,
    resets: Sequence[Any] | None = None,
    change_tests: Sequence[Any] | None = None,
    change_points: Sequence[int] | None = (),
    title: str = "",
    *,
    domain: Any = None,
) -> Any:
    """Draw a run that starts over: rewards above, and the tests for a change below.

    Args:
        history: A loop, or its history.
        resets: Where the run started over: solid vertical lines. If a loop is passed without them,
            they are ``loop.resets``.
        change_tests: The results of the tests; likewise ``loop.change_tests``.
        change_points: The last round before each true change, if they are known: dotted lines.
        title: A title for the figure.
        domain: The domain of the points, for names and native values of a
            :class:`~botorch_bandits.Space`; that of the loop if omitted.

    Returns:
        A ``plotly.graph_objects.Figure`` with two rows that are zoomed together.

    Raises:
        ImportError: If plotly is not installed.
        TypeError: If ``history`` is neither a loop nor a history.
    """
    graph_objects = need_plotly()
    from plotly.subplots import make_subplots

    resets, change_tests = events_of(history, resets, change_tests)
    history, domain = _read(history, domain)
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    _add_rewards(figure, graph_objects, history, domain, row=1, col=1)
    quantities = dict.fromkeys(getattr(test, "quantity", "reward") for test in change_tests)
    for number, quantity in enumerate(quantities):
        some = [t for t in change_tests if getattr(t, "quantity", "reward") == quantity]
        ending = "" if len(quantities) == 1 else f", {quantity}"
        color = COLORS[number % len(COLORS)]
        x, y = break_at(*columns([(t.after_round, t.threshold) for t in some]), resets)
        line = {"color": color, "dash": DASHES[1 + number % (len(DASHES) - 1)]}
        figure.add_trace(
            graph_objects.Scatter(x=x, y=y, mode="lines", name=f"threshold{ending}", line=line),
            row=2,
            col=1,
        )
        for detected, label in ((False, "statistic"), (True, "detection")):
            points = [(t.after_round, t.statistic) for t in some if t.detected is detected]
            if points:
                x, y = columns(points)
                marker = {"color": color, "symbol": "circle" if detected else "circle-open"}
                figure.add_trace(
                    graph_objects.Scatter(
                        x=x, y=y, mode="markers", name=f"{label}{ending}", marker=marker
                    ),
                    row=2,
                    col=1,
                )
    _mark_resets(figure, resets)
    for change in change_points or ():
        figure.add_vline(x=change + 0.5, line={"color": "black", "dash": "dot"})
    is_evidence = "evidence" in quantities
    below = "evidence for a change (nats)" if is_evidence else "squared difference"
    _finish(figure, title, "", history.outcome_name)
    figure.update_xaxes(title_text="round", row=2, col=1)
    positive = all(t.statistic > 0.0 and t.threshold > 0.0 for t in change_tests)
    scale = "log" if change_tests and not is_evidence and positive else "linear"
    figure.update_yaxes(title_text=below, type=scale, row=2, col=1)
    return figure


def _read(run: Any, domain: Any) -> tuple[History, Any]:
    """Return history and domain of a loop, or of a history."""
    history = check_history(run)
    if domain is None and is_loop(run):
        domain = run.settings.domain
    return history, domain


def _resets(run: Any, history: History) -> list[Any]:
    if hasattr(run, "current_model"):
        return [reset for reset in run.resets if reset.after_round < history.num_queries]
    return list(resets_on_record(history))


def _plain(text: str) -> str:
    """Return a text in a form that plotly, which interprets some HTML, shows unchanged."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _hover(query: Query, history: History, domain: Any) -> str:
    """Return what is shown for a point under the cursor."""
    lines = [f"query {query.id}, round {query.round_number}, {query.origin}"]
    if query.context is not None:
        lines.append("context " + ", ".join(f"{z:.4g}" for z in query.context.tolist()))
    if isinstance(domain, Space):
        values = domain.decode(query.x)
        lines += [
            f"{_plain(str(name))} = {value:.6g}"
            if isinstance(value, float)
            else f"{_plain(str(name))} = {_plain(str(value))}"
            for name, value in values.items()
        ]
    else:
        lines.append("x = " + ", ".join(f"{value:.6g}" for value in query.x.tolist()))
    outcome = history.outcome(query.id)
    if outcome is None:
        lines.append(history.state(query.id))
    else:
        lines.append(f"{_plain(history.outcome_name)} {outcome.reward:.6g}")
        if outcome.constraints:
            lines.append("constraints " + ", ".join(f"{g:.4g}" for g in outcome.constraints))
    return "<br>".join(lines)


def _add_rewards(
    figure: Any, graph_objects: Any, history: History, domain: Any, **place: int
) -> None:
    """Draw rewards, with a marker for each origin, and queries without one at the bottom."""
    for origin, _, label in ORIGINS:
        rows = [
            (query, outcome)
            for query in history.queries
            if query.origin == origin and (outcome := history.outcome(query.id)) is not None
        ]
        if not rows:
            continue
        unmet = [any(g > 0.0 for g in outcome.constraints) for _, outcome in rows]
        figure.add_trace(
            graph_objects.Scatter(
                x=[query.round_number for query, _ in rows],
                y=[outcome.reward for _, outcome in rows],
                mode="markers",
                name=label,
                marker={
                    "symbol": ["x" if over else SYMBOLS[origin] for over in unmet],
                    "color": "#606060",
                    "size": 7,
                },
                hovertext=[_hover(query, history, domain) for query, _ in rows],
                hoverinfo="text",
            ),
            **place,
        )
    rewards = [o.reward for q in history.queries if (o := history.outcome(q.id)) is not None]
    foot = min(rewards, default=0.0) if history.maximize else max(rewards, default=0.0)
    for state, symbol in (("pending", "circle-open"), ("failed", "x-thin-open")):
        some = [query for query in history.queries if history.state(query.id) == state]
        if some:
            figure.add_trace(
                graph_objects.Scatter(
                    x=[query.round_number for query in some],
                    y=[foot] * len(some),
                    mode="markers",
                    name=state,
                    marker={"symbol": symbol, "color": "black", "size": 8},
                    hovertext=[_hover(query, history, domain) for query in some],
                    hoverinfo="text",
                ),
                **place,
            )


def _mark_resets(figure: Any, resets: Sequence[Any]) -> None:
    for reset in resets:
        figure.add_vline(x=after_round(reset) + 0.5, line={"color": "#808080", "width": 1})


def _finish(figure: Any, title: str, x: str, y: str) -> None:
    figure.update_layout(
        title=title or None, template="plotly_white", hovermode="closest", font={"size": 13}
    )
    figure.update_xaxes(title_text=_plain(x))
    figure.update_yaxes(title_text=_plain(y), selector=0)


def _pair(parameters: Any, names: Sequence[str], domain: Any) -> tuple[int, int]:
    """Return two dimensions by name or number."""
    known = {name: i for i, name in enumerate(domain.names)} if isinstance(domain, Space) else {}
    given = tuple(parameters)
    found = [known.get(each, each) for each in given]
    is_pair = len(set(found)) == 2 and all(
        isinstance(i, int) and not isinstance(i, bool) and 0 <= i < len(names) for i in found
    )
    if len(given) != 2 or not is_pair:
        raise ValueError(
            f"parameters is {given!r}; give two different ones of {', '.join(names)}, by name "
            f"(on a Space) or by number from 0 to {len(names) - 1}."
        )
    return found[0], found[1]


def _add_background(figure: Any, graph_objects: Any, seen: Seen, pair: tuple[int, int]) -> None:
    """Color the map by the posterior mean."""
    center = seen.center()
    if seen.model is None or center is None:
        return
    bar = {"title": {"text": f"expected {_plain(seen.reward_name)}"}}
    scale = {"colorscale": "Viridis", "reversescale": not seen.history.maximize, "colorbar": bar}
    if isinstance(seen.domain, Box):
        x, y = (values_on_axis(seen, i, CELLS_ON_A_SIDE)[0] for i in pair)
        grid = torch.cartesian_prod(x, y)
        X = center.repeat(len(grid), 1)
        X[:, list(pair)] = grid
        mean, deviation = seen.posterior(X)
        shape = (len(x), len(y))
        figure.add_trace(
            graph_objects.Heatmap(
                x=x.tolist(),
                y=y.tolist(),
                z=mean.reshape(shape).T.tolist(),
                customdata=deviation.reshape(shape).T.tolist(),
                zsmooth="best",
                hovertemplate="expected %{z:.5g} ± %{customdata:.3g}<extra></extra>",
                **scale,
            )
        )
    elif isinstance(seen.domain, Arms):
        X = seen.domain.choices.cpu()
        mean, deviation = seen.posterior(X)
        figure.add_trace(
            graph_objects.Scatter(
                x=X[:, pair[0]].tolist(),
                y=X[:, pair[1]].tolist(),
                mode="markers",
                name="arms",
                marker={"symbol": "square", "size": 9, "color": mean.tolist(), **scale},
                customdata=deviation.tolist(),
                hovertemplate="expected %{marker.color:.5g} ± %{customdata:.3g}<extra></extra>",
            )
        )


def _add_points(
    figure: Any,
    graph_objects: Any,
    queries: Sequence[Query],
    seen: Seen,
    pair: tuple[int, int],
    label: str,
    origin: str,
) -> None:
    marker: dict[str, Any] = {
        "symbol": SYMBOLS.get(origin, "circle-open"),
        "size": 8,
        "color": "#303030",
        "line": {"width": 1, "color": "white" if origin else "black"},
    }
    figure.add_trace(
        graph_objects.Scatter(
            x=[float(query.x[pair[0]]) for query in queries],
            y=[float(query.x[pair[1]]) for query in queries],
            mode="markers",
            name=label,
            marker=marker,
            hovertext=[_hover(query, seen.history, seen.domain) for query in queries],
            hoverinfo="text",
        )
    )

"""What one run found: its outcomes by round, its constraints, and its outcomes by parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from botorch_bandits.checks import check_instance
from botorch_bandits.domains import Box
from botorch_bandits.history import History, Outcome
from botorch_bandits.plotting.posterior import (
    POINTS_ON_A_LINE,
    Queries,
    inputs_of,
    read_posterior,
    sort_queries,
    values_along,
)
from botorch_bandits.plotting.style import (
    BEST,
    FAILED,
    LINE_STYLES,
    PENDING,
    SMALL,
    STYLE,
    TOLD,
    label_axis,
    mark_rounds,
    need_matplotlib,
    plot_expected,
    plot_points,
)
from botorch_bandits.random_baseline import RandomBaseline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PARAMETERS = 8
"""The largest number of parameters with a panel: those along which the mean varies most."""

ON_A_ROW = 4
BAND = 2.0
"""Half the height of the model's band, in posterior standard deviations."""


def plot_run(  # noqa: C901, PLR0912, PLR0915 - a panel for each kind of record
    run: Any,
    title: str = "",
    reference: float | tuple[str, float] | None = None,
    *,
    change_points: Sequence[int] | None = (),
    random_search: RandomBaseline | None = None,
    model: Any = None,
    domain: Any = None,
) -> Any:
    """Draw what a run found: outcomes by round, constraints, and outcomes by parameter.

    The first panel has the rewards by round and the best so far among those that met all
    constraints; costs are drawn as they were told. The axis leaves out much worse outcomes if they
    would hide the gain, and the legend says how many. With constraints, two panels follow: their
    averages so far (thick; thin with values below 0 as 0), and the multipliers of each round. At
    the bottom, a panel for each parameter has the values that were tried, their rewards, and what
    the model expects along this parameter, with the others as at the best point. On arms of
    several dimensions, the model is not drawn.

    The best so far starts over at restarts and known changes; a loop that forgets has no such line.
    Outcomes from before, and from other contexts than the last one, are small and gray.

    Args:
        run: A loop, or its history. A history alone does not have a model.
        title: A title for the figure.
        reference: A reward to compare with, a horizontal line; alone or with its name before it.
        change_points: The last round before each true change, if they are known: dotted lines.
        random_search: What random search finds in as many rounds: its mean and four of five
            searches.
        model: The model to draw; that of the loop if omitted.
        domain: The domain of the points; that of the loop if omitted. A
            :class:`~botorch_bandits.Space` has names and native values.

    Returns:
        An array of axes in this order; ``axes[0].figure`` is the figure.

    Raises:
        TypeError: If ``run`` is neither a loop nor a history.

    Example:
        >>> from botorch_bandits import BanditLoop, Float, RandomSearch, Space
        >>> from botorch_bandits import run as run_rounds
        >>> space = Space({"C": Float(1e-3, 1e3, log=True), "gamma": Float(0.0, 1.0)})
        >>> loop = BanditLoop(space, None, RandomSearch())
        >>> _ = run_rounds(loop, lambda p: p["gamma"], num_rounds=3, progress=False)
        >>> [ax.get_xlabel() for ax in plot_run(loop)]
        ['round', 'C', 'gamma']
    """
    settings = getattr(run, "settings", None)  # a history has none
    history: History = check_instance(
        "run", run if settings is None else run.history, History, "Pass a loop or its history."
    )
    changes = [t for t in change_points or () if t < history.num_queries]
    if settings is None:
        restarts, kept_from = resets_on_record(history), 0
    else:
        domain = settings.domain if domain is None else domain
        restarts = [reset.after_round for reset in run.resets]
        kept_from = max((reset.num_before for reset in run.resets), default=0)
    starts = sorted(t for t in (*restarts, *changes) if t < history.num_queries)
    since = max([kept_from, *changes] if settings is not None else [0, *starts])
    context = history.queries[-1].context if history.queries else None
    queries = sort_queries(history, context, lambda query: query.round_number > since)
    label = f"what the model expects, ± {BAND:g} standard deviations"
    if settings is not None and settings.model is not None and model is None and queries.told:
        with suppress(RuntimeError):  # all outcomes came late and do not count
            model = run.current_model()
        if getattr(model, "num_outputs", 1) > 1:  # the reward, then the constraints
            model = model.subset_output([0])
        elif history.num_constraints:
            label = f"{label} (of the penalized {history.outcome_name})"
    best = _best(history, queries.told)
    slices = _slices(history, queries, model, domain, context, best)
    rounds, parameters = _lay_out(2 if history.num_constraints else 0, list(slices))
    _draw_random_search(rounds[0], history, random_search)
    is_steady = settings is None or settings.forgetting is None
    _draw_rewards(rounds[0], history, starts if is_steady else None)
    levels = []
    if reference is not None:
        name, value = reference if isinstance(reference, tuple) else ("reference", reference)
        rounds[0].axhline(value, color="black", ls="-.", lw=1.1, label=f"{name}: {value:.4g}")
        levels.append(value)
    if is_steady and not starts:  # otherwise the worst outcomes may tell of a change
        _cut_off(rounds[0], history, levels)
    if history.num_constraints:
        _draw_constraints(rounds[1], rounds[2], history)
    for ax in rounds:
        mark_rounds(ax, restarts, changes)
        ax.set_xlabel("round")
        ax.set_xlim(0, max(history.num_queries, 1) + 1)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize=SMALL, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for (i, curve), ax in zip(slices.items(), parameters, strict=True):
        if curve is not None:
            x, mean, half, is_discrete = curve
            plot_expected(ax, x, mean, half, is_discrete, label)
        queries.draw_along(ax, i)
        if best is not None:
            plot_points(ax, [(float(best[0][i]), best[1].reward)], BEST, label="best point")
        label_axis(ax.xaxis, domain, i, history.dim)
        if domain is not None and domain.bounds is not None:
            low, high = domain.bounds[:, i].tolist()
            margin = 0.05 * (high - low)
            ax.set_xlim(low - margin, high + margin)
        ax.tick_params(labelsize=SMALL)
    parameters[0].set_ylabel(history.outcome_name)
    figure = rounds[0].figure
    entries = dict(zip(*reversed(parameters[0].get_legend_handles_labels()), strict=True))
    if entries:
        figure.legend(
            entries.values(), entries, loc="outside lower center", ncols=3, fontsize=SMALL
        )
    figure.suptitle(title, fontsize=11)
    return np.array([*rounds, *parameters], dtype=object)


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


def _best(history: History, told: Sequence[tuple[Any, Outcome]]) -> tuple[Any, Outcome] | None:
    """Return the best point and its outcome among those that met all constraints."""
    met = [(x, outcome) for x, outcome in told if max(outcome.constraints, default=0.0) <= 0.0]
    return max(met, key=lambda row: history.rank(row[1]), default=None)


def _slices(
    history: History, queries: Queries, model: Any, domain: Any, context: Any, best: Any
) -> dict[int, Any]:
    """Return the parameters to draw, each with what the model expects along it.

    That is the values, the mean, the half-width of the band, and whether the values are discrete;
    None without a model.
    """
    found: dict[int, Any] = dict.fromkeys(range(history.dim))
    is_line = domain is not None and domain.choices is not None and history.dim == 1
    if model is not None and queries.told and (is_line or isinstance(domain, Box)):
        center = queries.told[-1][0] if best is None else best[0]
        for i in found:
            if is_line:
                X, is_discrete = domain.choices.cpu().sort(dim=0).values, True
            else:
                along, is_discrete = values_along(domain, i, POINTS_ON_A_LINE)
                X = center.repeat(len(along), 1)
                X[:, i] = along
            mean, deviation = read_posterior(model, inputs_of(model, X, context))
            mean = mean if history.maximize else -mean
            found[i] = (X[:, i].numpy(), mean.numpy(), BAND * deviation.numpy(), is_discrete)
    varied = sorted(found, key=lambda i: 0.0 if found[i] is None else -float(found[i][1].std()))
    return {i: found[i] for i in sorted(varied[:MOST_PARAMETERS])}


def _lay_out(num_more: int, shown: Sequence[int]) -> tuple[list[Axes], list[Axes]]:
    """Return the axes over rounds, one above the other, and below them those of parameters."""
    plt = need_matplotlib()
    num_columns = min(len(shown), ON_A_ROW)
    num_rows = 1 + num_more + math.ceil(len(shown) / ON_A_ROW)
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(9.5, 2.6 * num_rows + 0.7), layout="constrained")
        grid = figure.add_gridspec(num_rows, num_columns)
        rounds = [figure.add_subplot(grid[k, :]) for k in range(1 + num_more)]
        parameters: list[Axes] = []
        for k in range(len(shown)):
            row, column = divmod(k, num_columns)
            shared = parameters[0] if parameters else None
            parameters.append(figure.add_subplot(grid[1 + num_more + row, column], sharey=shared))
    return rounds, parameters


def _draw_random_search(ax: Axes, history: History, baseline: RandomBaseline | None) -> None:
    """Draw the results of random search after each round."""
    if baseline is None:
        return
    check_instance("random_search", baseline, RandomBaseline, "Pass RandomBaseline(rewards).")
    if baseline.maximize is not history.maximize:
        raise ValueError(
            f"random_search has maximize={baseline.maximize}, but the history "
            f"maximize={history.maximize}; build RandomBaseline(..., maximize={history.maximize}) "
            "of outcomes in the sign of the history."
        )
    rounds = range(1, min(max(history.num_queries, 1), len(baseline)) + 1)
    mean = [baseline.expected_best(n) for n in rounds]
    low, high = ([baseline.quantile(n, level) for n in rounds] for level in (0.1, 0.9))
    color = LINE_STYLES[1]["color"]
    ax.fill_between(rounds, low, high, color=color, alpha=0.2, lw=0, label="4 of 5 random searches")
    ax.plot(rounds, mean, lw=1.8, label=f"random search: {mean[-1]:.4g}", **LINE_STYLES[1])


def _draw_rewards(ax: Axes, history: History, starts: Sequence[int] | None) -> None:
    """Draw outcomes over rounds and the best so far, which starts over after each of ``starts``."""
    from matplotlib.ticker import MaxNLocator

    found: dict[str, list[tuple[int, float]]] = {}
    steps: list[tuple[float, float]] = []
    best: Outcome | None = None
    for query in history.queries:
        t, state, outcome = query.round_number, history.state(query.id), history.outcome(query.id)
        if starts and t - 1 in starts and best is not None:
            steps += [(t - 0.5, best.reward), (t - 0.5, math.nan)]
            best = None
        if outcome is not None:
            is_met = max(outcome.constraints, default=0.0) <= 0.0
            state = "told" if is_met else "a constraint not met"
            if is_met and (best is None or history.is_better(outcome.reward, best.reward)):
                best = outcome
        found.setdefault(state, []).append((t, 0.0 if outcome is None else outcome.reward))
        if best is not None:
            steps.append((t, best.reward))
    plot_points(ax, found.get("told", []), TOLD, label=history.outcome_name)
    unmet = "a constraint not met"
    plot_points(ax, found.get(unmet, []), {**TOLD, "marker": "+", "ms": 7.5}, label=unmet)
    foot = {"transform": ax.get_xaxis_transform(), "clip_on": False}
    for state, look in (("pending", PENDING), ("failed", FAILED)):
        plot_points(ax, found.get(state, []), look, label=state, **foot)
    if starts is not None and steps:
        ax.step(
            *zip(*steps, strict=True), where="post", lw=2.2, color=LINE_STYLES[2]["color"],
            label=f"best so far: {steps[-1][1]:.4g}",
        )  # fmt: skip
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylabel(history.outcome_name)


def _cut_off(ax: Axes, history: History, levels: Sequence[float]) -> None:
    """Cut off the worst outcomes where they would hide the gain, and say how many they are.

    The axis has twice the distance from the best outcome to the median one, if less than half of
    the distance to the worst. ``levels`` stay inside.
    """
    told = sorted((outcome.reward for outcome in history.outcomes), reverse=history.maximize)
    if not told:
        return
    best, middle, worst = told[0], told[len(told) // 2], told[-1]
    edge = 2.0 * middle - best
    if middle == best or abs(edge - best) >= 0.5 * abs(worst - best):
        return
    low, high = min(edge, best, *levels), max(edge, best, *levels)
    margin = 0.1 * (high - low)
    low, high = low - margin, high + margin
    num_hidden = sum(not low <= reward <= high for reward in told)
    where = "below" if history.maximize else "above"
    ax.set_ylim(low, high)
    ax.plot([], [], ls="none", label=f"{num_hidden} outcomes are {where} this axis")


def _draw_constraints(averages: Axes, multipliers: Axes, history: History) -> None:
    """Draw the averages of constraint values so far, and the multipliers of each round."""
    rounds = [outcome.arrived_round for outcome in history.outcomes]
    g = history.constraints().cpu()  # n x m, in order of arrival
    count = torch.arange(1, len(g) + 1).unsqueeze(-1)
    averages.axhline(0.0, color="0.7", lw=0.8)
    for j in range(history.num_constraints):
        style, name = LINE_STYLES[j % len(LINE_STYLES)], f"constraint {j + 1}"
        for values, lw, what in ((g, 1.8, "average"), (g.clamp_min(0.0), 0.8, "rectified average")):
            mean = (values.cumsum(dim=0) / count)[:, j].tolist()
            averages.plot(rounds, mean, lw=lw, label=f"{name}, {what}", **style)
        played = [
            (query.round_number, query.diagnostics[f"multiplier_{j + 1}"])
            for query in history.queries
            if f"multiplier_{j + 1}" in query.diagnostics
        ]
        plot_points(multipliers, played, style, label=name, drawstyle="steps-mid")
    averages.set_ylabel("average (0 is the limit)")
    multipliers.set_ylabel("multiplier")

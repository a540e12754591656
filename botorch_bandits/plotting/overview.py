"""What one run found, in one picture: the gain, where the points were, and what the model expects.

The gain is drawn over rounds, with random search for comparison. A map shows the points by two
parameters, and slices through the best point show what the model expects along each parameter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE
from botorch_bandits.domains import Arms, Box
from botorch_bandits.history import History, Query
from botorch_bandits.plotting.posterior import read_posterior
from botorch_bandits.plotting.runs import check_history, is_loop, plot_rewards, resets_on_record
from botorch_bandits.plotting.style import (
    BEST,
    FAILED,
    LINE_COLOR,
    ORIGINS,
    PENDING,
    SMALL,
    STYLE,
    after_round,
    axis_names,
    columns,
    label_axis,
    mark_rounds,
    native_ticks,
    need_matplotlib,
    write_in_the_middle,
)
from botorch_bandits.random_baseline import RandomBaseline
from botorch_bandits.spaces import Categorical, Space

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST_SLICES = 8
"""The largest number of slices, for the parameters that matter most to the model."""

MOST_ARMS = 10
"""The largest number of arms with a bar, the best ones first."""

MOST_BARS = 30
"""Up to this many whole numbers or categories have a bar each; more are drawn as a line."""

CELLS_ON_A_SIDE, POINTS_ON_A_LINE = 60, 121
BAND = 2.0
"""Half the height of the model's band, in posterior standard deviations."""

EXPECTED = f"what the model expects, ± {BAND:g} standard deviations"

COLORS = "viridis"
"""Perceptually uniform, and the larger the lighter in gray."""


@dataclass(frozen=True)
class Seen:
    """What is drawn of a run.

    Attributes:
        history: The history of all queries.
        domain: The domain of the points; None if it is unknown.
        model: The model of the outcomes that arrived; None without one.
        front: The values of the model's inputs before the point.
        since: The round after which the current rewards began: the last restart or known change.
        reward_name: The name of the model's output.
    """

    history: History
    domain: Any
    model: Any
    front: Tensor
    since: int
    reward_name: str = "reward"

    @property
    def dim(self) -> int:
        """The dimension of the points."""
        return self.history.dim

    @property
    def context(self) -> Tensor | None:
        """The context of the last query, if there are contexts."""
        queries = self.history.queries
        return queries[-1].context if queries else None

    def posterior(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation at ``n x d`` points, in the current context."""
        inputs = torch.cat([self.front.expand(len(X), -1), X], dim=-1)
        mean, deviation = read_posterior(self.model, inputs)
        return self.sign * mean, deviation

    @property
    def sign(self) -> float:
        """The sign between the model's outputs and outcomes, and from these to the objective."""
        return 1.0 if self.history.maximize else -1.0

    @property
    def is_plain(self) -> bool:
        """Whether the model is of the outcomes as told."""
        return self.reward_name == self.history.outcome_name

    def is_here(self, query: Query) -> bool:
        """Whether a query was asked in the context of the last one, since the last restart."""
        same = query.context is None or bool(torch.equal(query.context, self.context))  # type: ignore[arg-type]
        return same and query.round_number > self.since

    def told(self) -> list[tuple[Query, float, bool]]:
        """Return the queries from here, their rewards, and whether all constraints were met."""
        rows = []
        for query in self.history.queries:
            outcome = self.history.outcome(query.id)
            if outcome is not None and self.is_here(query):
                met = all(g <= 0.0 for g in outcome.constraints)
                rows.append((query, outcome.reward, met))
        return rows

    def failed(self) -> list[Query]:
        """Return queries from here that failed."""
        history = self.history
        ids = (failure.query_id for failure in history.failures)
        return [query for query in map(history.query, ids) if self.is_here(query)]

    def pending(self) -> list[Query]:
        """Return queries from here without an outcome yet."""
        return [query for query in self.history.pending() if self.is_here(query)]

    def best(self) -> tuple[Tensor, float] | None:
        """Return the best point from here that met all constraints, and its reward."""
        rows = [(self.sign * reward, -q.round_number, q) for q, reward, met in self.told() if met]
        if not rows:
            return None
        value, _, query = max(rows, key=lambda row: row[:2])
        return query.x, self.sign * value

    def center(self) -> Tensor | None:
        """Return the point through which slices are drawn: the best one, or any that was told."""
        best, told = self.best(), self.told()
        if best is not None:
            return best[0].cpu()
        return told[-1][0].x.cpu() if told else None


def see(run: Any, model: Any, domain: Any, resets: Sequence[Any], changes: Sequence[int]) -> Seen:
    """Return what is to be drawn of a loop or a history."""
    history = check_history(run)
    front = torch.empty(0, dtype=DTYPE)
    kept_from = max([0, *(getattr(r, "num_before", after_round(r)) for r in resets)])
    since = max([kept_from, *changes])
    since = since if since < history.num_queries else 0
    name = history.outcome_name
    if is_loop(run):
        settings = run.settings
        domain = settings.domain if domain is None else domain
        arrived = any(history.outcome(q.id) for q in history.queries if q.round_number > since)
        if model is None and settings.model is not None and arrived:
            with suppress(RuntimeError):  # all outcomes came late and do not count
                model = run.current_model()
        if getattr(model, "num_outputs", 1) > 1:  # the reward, then the constraints
            model = model.subset_output([0])
        elif settings.constraints is not None:
            name = f"penalized {name}"
        if hasattr(settings.forgetting, "rate"):  # the round is an input of the model
            front = torch.tensor([float(history.num_queries - kept_from + 1)], dtype=DTYPE)
    queries = history.queries
    if history.context_dim and queries:
        front = torch.cat([front, queries[-1].context.to("cpu", DTYPE)])  # type: ignore[union-attr]
    return Seen(history, domain, model, front, since, name)


def values_on_axis(seen: Seen, i: int, num_points: int) -> tuple[Tensor, bool]:
    """Return coordinates along one parameter, and whether they are all that it can have."""
    domain = seen.domain
    if isinstance(domain, Box):
        low, high = domain.bounds[:, i].tolist()
        if i in domain.integer_dims and high - low + 1 <= num_points:
            return torch.arange(low, high + 1, dtype=DTYPE), True
        return torch.linspace(low, high, num_points, dtype=DTYPE), False
    X = torch.stack([q.x.cpu() for q in seen.history.queries])[:, i]
    low, high = float(X.min()), float(X.max())
    pad = 0.05 * (high - low) or 0.5
    return torch.linspace(low - pad, high + pad, num_points, dtype=DTYPE), False


def relevances(seen: Seen) -> list[float]:
    """Return how much each parameter alone changes the posterior mean.

    It is the standard deviation of the mean along the parameter, with the others as at a told
    point, averaged over the last told points. Without a model, and on arms, it is the same for
    all parameters.
    """
    points = [query.x.cpu() for query, _, _ in seen.told()][-40:]
    if seen.model is None or not isinstance(seen.domain, Box) or not points:
        return [1.0] * seen.dim
    at, found = torch.stack(points), []
    for i in range(seen.dim):
        along, _ = values_on_axis(seen, i, 21)
        X = at.unsqueeze(1).repeat(1, len(along), 1)
        X[..., i] = along
        mean, _ = seen.posterior(X.reshape(-1, seen.dim))
        found.append(float(mean.reshape(len(points), -1).std(dim=-1, correction=0).mean()))
    return found


def by_relevance(seen: Seen, count: int) -> list[int]:
    """Return the parameters that matter most, in the order of the domain."""
    shares = relevances(seen)
    order = sorted(range(seen.dim), key=lambda i: (-shares[i], i))
    return sorted(order[:count])


def _color_range(seen: Seen, mean: Tensor | None) -> tuple[float, float]:
    """Return the range of the colors: rewards far below their middle are cut off.

    For costs, those far above are cut off.
    """
    if mean is not None:
        mean = seen.sign * mean
    rewards = sorted(seen.sign * reward for _, reward, _ in seen.told())
    values = rewards or ([] if mean is None else mean.tolist()) or [0.0]
    top = max(values) if mean is None else max(*values, float(mean.max()))
    low = values[0] if mean is None else min(values[0], float(mean.min()))
    middle = values[len(values) // 4]
    low = max(low, top - 2.0 * (top - middle)) if top > middle else low
    first, last = sorted((seen.sign * low, seen.sign * top))
    return first, last


def _spread(seen: Seen, i: int, numbers: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return how far markers are spread within a category, so that they do not hide each other."""
    if not is_categorical(seen.domain, i):
        return np.zeros(len(numbers))
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    return np.array([0.6 * ((n * golden) % 1.0 - 0.5) for n in numbers])


def is_categorical(domain: Any, i: int) -> bool:
    """Whether a parameter is a category."""
    if not isinstance(domain, Space):
        return False
    return isinstance(domain.parameters[domain.names[i]], Categorical)


def draw_map(seen: Seen, ax: Axes, pair: Sequence[int]) -> None:
    """Draw points by two parameters over what the model expects; see :func:`plot_run`."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patheffects import withStroke

    center = seen.center()
    X = mean = sides = None
    if seen.model is not None and center is not None:
        if isinstance(seen.domain, Box):
            sides = [values_on_axis(seen, i, CELLS_ON_A_SIDE) for i in pair]
            grid = torch.cartesian_prod(*(side for side, _ in sides))
            X = center.repeat(len(grid), 1)
            X[:, list(pair)] = grid
        elif isinstance(seen.domain, Arms):
            X = seen.domain.choices.cpu()
        if X is not None:
            mean, _ = seen.posterior(X)
    low, high = _color_range(seen, mean if seen.is_plain else None)
    if not seen.is_plain and mean is not None:
        low, high = float(mean.min()), float(mean.max())
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # the values do not differ
        low, high = low - 0.5, high + 0.5
    names = {"cmap": COLORS if seen.history.maximize else f"{COLORS}_r"}  # better is lighter
    colors: dict[str, Any] = {**names, "norm": Normalize(low, high)}
    cut_end = "min" if seen.history.maximize else "max"
    has_colors = mean is not None
    if mean is not None and sides is not None:
        (x, x_all), (y, y_all) = sides
        z = mean.reshape(len(x), len(y)).T.numpy()
        if x_all or y_all:
            ax.pcolormesh(x.numpy(), y.numpy(), z, shading="nearest", **colors)
        else:
            levels = np.linspace(low, high, 15)
            ax.contourf(x.numpy(), y.numpy(), z, levels, extend=cut_end, **colors)
            ax.contour(x.numpy(), y.numpy(), z, levels, colors="white", linewidths=0.3)
    elif mean is not None and X is not None:
        u, v = X[:, list(pair)].T.numpy()
        ax.scatter(u, v, c=mean.numpy(), marker="s", s=60, linewidths=0, **colors)
    told = seen.told()
    halo = [withStroke(linewidth=2.4, foreground="white")]  # visible on dark colors
    for origin, marker, label in ORIGINS:
        rows = [(q, y, met) for q, y, met in told if q.origin == origin]
        if rows:
            u, v = _positions(seen, pair, [q for q, _, _ in rows])
            fill = {"c": [y for _, y, _ in rows], **colors}
            if not seen.is_plain:
                fill = {"c": ["black" if met else "white" for _, _, met in rows]}
            ax.scatter(
                u, v, marker=marker, s=30, edgecolors="black", linewidths=0.8, label=label,
                zorder=3, clip_on=False, path_effects=halo, **fill,
            )  # fmt: skip
            has_colors = has_colors or seen.is_plain
    if not seen.is_plain:
        circle: dict[str, Any] = {"color": "black", "ms": 5.5, "mew": 0.8, "ls": "none"}
        for inside, label in (("black", "constraints met"), ("white", "constraints not met")):
            ax.plot([], [], "o", label=label, mfc=inside, **circle)
    failed = seen.failed()
    if failed:
        u, v = _positions(seen, pair, failed)
        ax.plot(u, v, ls="none", label="failed", clip_on=False, path_effects=halo, **FAILED)
    waiting = seen.pending()
    if waiting:
        u, v = _positions(seen, pair, waiting)
        ax.plot(u, v, ls="none", label="pending", clip_on=False, **PENDING)
    best = seen.best()
    if best is not None:
        query = next(q for q, _, _ in told if torch.equal(q.x, best[0]))
        u, v = _positions(seen, pair, [query])
        ax.plot(u, v, ls="none", label="best point", clip_on=False, **BEST)
    label_axis(ax.xaxis, seen.domain, pair[0], seen.dim)
    label_axis(ax.yaxis, seen.domain, pair[1], seen.dim)
    ax.grid(False)
    if isinstance(seen.domain, Box) and sides is None:
        ax.set_xlim(*seen.domain.bounds[:, pair[0]].tolist())
        ax.set_ylim(*seen.domain.bounds[:, pair[1]].tolist())
    if has_colors:
        values = [y for _, y, _ in told] + ([] if mean is None else mean.tolist())
        is_cut = min(values) < low if seen.history.maximize else max(values) > high
        bar = ax.figure.colorbar(
            ScalarMappable(**colors), ax=ax, pad=0.02, aspect=30,
            extend=cut_end if is_cut else "neither",
        )  # fmt: skip
        bar.ax.ticklabel_format(useOffset=False)
        bar.set_label(seen.reward_name, fontsize=SMALL)
        bar.ax.tick_params(labelsize=SMALL)
        bar.ax.grid(False)


def _positions(seen: Seen, pair: Sequence[int], queries: Sequence[Query]) -> tuple[Any, Any]:
    X = torch.stack([q.x.cpu() for q in queries]).numpy()
    numbers = [q.round_number for q in queries]
    x, y = (X[:, i] + _spread(seen, i, numbers) for i in pair)
    return x, y


def draw_slice(seen: Seen, ax: Axes, i: int) -> None:
    """Draw what the model expects along one parameter; see :func:`plot_run`."""
    told = seen.told()
    center = seen.center() if seen.model is not None else None
    if center is not None:
        _draw_expected(seen, ax, i, center)
    if seen.is_plain:
        is_line = seen.dim == 1 or center is None
        for origin, marker, label in ORIGINS if is_line else ():
            rows = [(float(q.x[i]), y) for q, y, _ in told if q.origin == origin]
            if rows:
                look: dict[str, Any] = {"mec": "black", "mew": 0.8, "ms": 5, "color": "0.5"}
                ax.plot(*columns(rows), marker, label=label, zorder=3, ls="none", **look)
        best = seen.best()
        if best is not None:
            at = float(best[0][i])
            ax.plot(at, best[1], ls="none", label="best point", clip_on=False, **BEST)
    foot = ax.get_xaxis_transform()
    if told and seen.dim > 1 and center is not None:
        at_foot = [(float(query.x[i]), 0.0) for query, _, _ in told]
        tick: dict[str, Any] = {"color": "0.35", "ms": 6, "ls": "none", "clip_on": False}
        ax.plot(*columns(at_foot), "|", transform=foot, label="values that were tried", **tick)
    failed = [(float(query.x[i]), 0.0) for query in seen.failed()]
    if failed:
        style = {**FAILED, "ms": 4.5, "transform": foot}
        ax.plot(*columns(failed), ls="none", clip_on=False, label="failed", **style)
    waiting = [query.x.cpu() for query in seen.pending()]
    if waiting:
        style = {**PENDING, "ms": 4.5, "transform": foot}
        heights = [0.0] * len(waiting)
        if seen.dim == 1 and center is not None:  # the best point is drawn on the line
            heights, style = seen.posterior(torch.stack(waiting))[0].tolist(), PENDING
        pairs = [(float(x[i]), y) for x, y in zip(waiting, heights, strict=True)]
        ax.plot(*columns(pairs), ls="none", clip_on=False, label="pending", **style)
    label_axis(ax.xaxis, seen.domain, i, seen.dim)
    if isinstance(seen.domain, Box):
        low, high = seen.domain.bounds[:, i].tolist()
        pad = 0.5 if is_categorical(seen.domain, i) else 0.02 * (high - low)
        ax.set_xlim(low - pad, high + pad)
    ax.tick_params(labelsize=SMALL)
    _thin_ticks(ax, seen, i)


def _draw_expected(seen: Seen, ax: Axes, i: int, center: Tensor) -> None:
    """Draw mean and band along one parameter."""
    if isinstance(seen.domain, Arms):
        X = seen.domain.choices.cpu()
        X = X[X[:, i].argsort()]
        along, is_all = X[:, i], True
    else:
        along, is_all = values_on_axis(seen, i, POINTS_ON_A_LINE)
        X = center.repeat(len(along), 1)
        X[:, i] = along
    mean, deviation = (value.numpy() for value in seen.posterior(X))
    x, half = along.numpy(), BAND * deviation
    if is_all and len(x) <= MOST_BARS:
        bars: dict[str, Any] = {"fmt": "_", "ms": 7, "mew": 2.0, "elinewidth": 3.5, "capsize": 0}
        ax.errorbar(x, mean, half, color=LINE_COLOR, ecolor="0.8", label=EXPECTED, **bars)
    else:
        ax.fill_between(x, mean - half, mean + half, color="0.87", lw=0)
        ax.plot(x, mean, color=LINE_COLOR, lw=1.6, label=EXPECTED)


MOST_LETTERS = 34
"""The number of characters for which the tick labels of a slice have room."""


def _thin_ticks(ax: Axes, seen: Seen, i: int) -> None:
    """Leave out tick labels that would overlap, or rotate those of categories."""
    if seen.dim == 1:
        return
    room = MOST_LETTERS if seen.dim <= 3 else MOST_LETTERS // 2
    ticks = native_ticks(seen.domain, i) if isinstance(seen.domain, Space) else None
    if ticks is None:
        ax.locator_params(axis="x", nbins=8 if seen.dim <= 3 else 4)
        return
    at, texts = [place for place, _ in ticks], [text for _, text in ticks]
    if sum(map(len, texts)) <= room:
        return
    if is_categorical(seen.domain, i):
        ax.tick_params("x", labelrotation=25)
        return
    step = math.ceil(sum(map(len, texts)) / room)
    ax.set_xticks(at, [text if k % step == 0 else "" for k, text in enumerate(texts)])


def draw_best_arms(seen: Seen, ax: Axes) -> None:
    """Draw the arms with the best posterior means; see :func:`plot_run`."""
    X = seen.domain.choices.cpu()
    mean, deviation = seen.posterior(X)
    order = (seen.sign * mean).argsort(descending=True, stable=True)[:MOST_ARMS].flip(0)
    names = [
        ", ".join(f"{value:.3g}" for value in X[k].tolist()) if seen.dim <= 3 else f"arm {int(k)}"
        for k in order
    ]
    ax.errorbar(
        mean[order].numpy(), range(len(order)), xerr=BAND * deviation[order].numpy(), fmt="|",
        color=LINE_COLOR, ecolor="0.8", elinewidth=4.0, ms=9, mew=2.0, label=EXPECTED,
    )  # fmt: skip
    ax.set_yticks(range(len(order)), names, fontsize=SMALL)
    ax.set_ylabel("arm" if seen.dim > 3 else ", ".join(axis_names(seen.domain, seen.dim)))
    ax.set_xlabel(seen.reward_name)


def plot_run(
    run: Any,
    title: str = "",
    reference: float | tuple[str, float] | None = None,
    resets: Sequence[Any] | None = None,
    change_points: Sequence[int] | None = (),
    *,
    random_search: RandomBaseline | Iterable[float] | None = None,
    model: Any = None,
    domain: Any = None,
) -> Any:
    """Draw what a run found: the gain, where its points were, and what its model expects.

    At the top are the rewards by round and the best so far, as in :func:`plot_rewards`. At the
    bottom left is a map of the points by the two parameters that change the model's mean most. The
    color is the reward; the background color is what the model expects if the other parameters are
    as at the best point. At the bottom right is what the model expects along each parameter, with
    the others as at the best point; ticks at the foot are the values that were tried. On arms of
    two or more dimensions, the ten best arms are shown there instead. After a restart or a known
    change, and with contexts, map and slices show what belongs to the present, and the axis of the
    rewards is not cut off. A loop that forgets has no line of the best so far, because its reward
    drifts.

    Args:
        run: A loop, or its history. A history alone does not have a model.
        title: A title for the figure.
        reference: A reward to compare with, a horizontal line; alone or with its name before it.
        resets: Where the run started over, such as ``loop.resets``: solid vertical lines. If
            omitted, they are inferred from the diagnostics (:func:`resets_on_record`).
        change_points: The last round before each true change, if they are known: dotted lines.
        random_search: Rewards at points that were drawn uniformly at random, for a comparison with
            random search.
        model: The model to draw; that of the loop if omitted.
        domain: The domain of the points; that of the loop if omitted. A
            :class:`~botorch_bandits.Space` has names and native values.

    Returns:
        An array of axes: the rewards, then map and slices if there is something to draw;
        ``axes[0].figure`` is the figure.

    Raises:
        TypeError: If ``run`` is neither a loop nor a history.

    Example:
        >>> from botorch_bandits import BanditLoop, Float, RandomSearch, Space
        >>> from botorch_bandits import run as run_rounds
        >>> space = Space({"C": Float(1e-3, 1e3, log=True), "gamma": Float(0.0, 1.0)})
        >>> loop = BanditLoop(space, None, RandomSearch())
        >>> _ = run_rounds(loop, lambda p: p["gamma"], num_rounds=3, progress=False)
        >>> [ax.get_xlabel() for ax in plot_run(loop)]
        ['round', 'C', 'C', 'gamma']
    """
    history = check_history(run)
    if resets is None and hasattr(run, "current_model"):  # resets of a loop say what they kept
        resets = [reset for reset in run.resets if reset.after_round < history.num_queries]
    resets = resets_on_record(history) if resets is None else resets
    changes = list(change_points or ())
    seen = see(run, model, domain, resets, changes)
    figure, rewards, map_ax, rest = _lay_out(seen)
    mark_rounds(rewards, resets, changes)
    drifts = getattr(getattr(run, "settings", None), "forgetting", None) is not None
    is_same = not (drifts or resets or changes)  # later rewards say nothing about earlier ones
    plot_rewards(
        history, rewards, reference, random_search=random_search, zoom=is_same,
        restarts=[*(after_round(r) for r in resets), *changes], best=not drifts,
    )  # fmt: skip
    rewards.set_xlim(0, max(history.num_queries, 1) + 1)
    if history.num_arrived == 0:
        rewards.set_yticks([])
        write_in_the_middle(rewards, f"no {history.outcome_name} yet")
    if map_ax is not None:
        draw_map(seen, map_ax, by_relevance(seen, 2))
        behind = "\n(background: what the model expects)" if seen.model is not None else ""
        map_ax.set_title(_here(f"where the points were{behind}", seen), fontsize=SMALL + 1)
    _draw_rest(seen, rest)
    figure.suptitle(title, fontsize=11)
    axes = [ax for ax in (rewards, map_ax, *rest) if ax is not None]
    legend = rewards.get_legend()
    if legend is not None:
        legend.remove()
    _add_legend(figure, axes)
    return np.array(axes, dtype=object)


def _here(text: str, seen: Seen) -> str:
    """Return a title with its restrictions in a second line."""
    parts = [f"since round {seen.since + 1}"] if seen.since else []
    parts += ["in the last context"] if seen.context is not None else []
    return "\n".join([text, ", ".join(parts)]) if parts else text


def _lay_out(seen: Seen) -> tuple[Any, Axes, Axes | None, list[Axes]]:
    """Return a figure with axes for rewards, the map (from two dimensions) and the rest."""
    plt = need_matplotlib()
    is_line = seen.dim == 1
    is_arms = isinstance(seen.domain, Arms) and not is_line
    count = 1 if is_line else min(seen.dim, MOST_SLICES)
    if is_arms:
        count = 0 if seen.model is None or seen.center() is None else 1
    num_columns = 1 if count <= 3 else 2
    num_rows = max(math.ceil(count / num_columns), 1)
    below = max(3.3, 1.45 * num_rows)
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(9.5, 3.0 + below + 0.7), layout="constrained")
        figure.get_layout_engine().set(wspace=0.03)
        rows = figure.add_gridspec(2, 1, height_ratios=[3.0, below])
        rewards = figure.add_subplot(rows[0])
        if is_line:
            return figure, rewards, None, [figure.add_subplot(rows[1])]
        if count == 0:
            return figure, rewards, figure.add_subplot(rows[1]), []
        halves = rows[1].subgridspec(1, 2, width_ratios=[1.0, 1.0])
        map_ax = figure.add_subplot(halves[0])
        cells = halves[1].subgridspec(num_rows, num_columns)
        rest: list[Axes] = []
        for k in range(count):
            shared = rest[0] if rest and not is_arms else None
            cell = cells[k // num_columns, k % num_columns]
            rest.append(figure.add_subplot(cell, sharey=shared))
        return figure, rewards, map_ax, rest


def _draw_rest(seen: Seen, rest: Sequence[Axes]) -> None:
    if not rest:
        return
    if isinstance(seen.domain, Arms) and seen.dim > 1:
        draw_best_arms(seen, rest[0])
        rest[0].set_title(_here("the best arms, by the model", seen), fontsize=SMALL + 1)
        return
    if not seen.told():
        for ax in rest:
            ax.set_yticks([])
            write_in_the_middle(ax, f"no {seen.history.outcome_name} yet")
    shown = by_relevance(seen, len(rest))
    for k, (ax, i) in enumerate(zip(rest, shown, strict=True)):
        draw_slice(seen, ax, i)
        is_left = len(rest) <= 3 or k % 2 == 0
        if is_left:
            ax.set_ylabel(seen.reward_name.replace(" ", "\n"), fontsize=SMALL)  # a low panel
        else:
            ax.tick_params(labelleft=False)
    _limit_rewards(seen, rest[0])
    rest[0].set_title(
        _here(
            f"the {seen.history.outcome_name}s, by parameter"
            if seen.model is None
            else "what the model expects"
            if seen.dim == 1
            else "what the model expects, by parameter",
            seen,
        ),
        fontsize=SMALL + 1,
    )


def _limit_rewards(seen: Seen, ax: Axes) -> None:
    """Cut off what a wide band adds beyond the rewards that were told."""
    told = [reward for _, reward, _ in seen.told()]
    if not seen.is_plain or len(told) < 2 or max(told) <= min(told):
        return
    low, high = ax.get_ylim()
    size = max(told) - min(told)
    low, high = max(low, min(told) - 0.6 * size), min(high, max(told) + 0.6 * size)
    room = 0.08 * (high - low)  # for the star, which is at the foot if costs are minimized
    ax.set_ylim(low - room, high + room)


def _add_legend(figure: Any, axes: Sequence[Axes]) -> None:
    """Draw one legend for all panels, each name once."""
    entries: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    for num_columns in range(min(len(entries), 4), 0, -1):
        legend = figure.legend(
            list(entries.values()), list(entries), loc="outside lower center", ncols=num_columns,
            fontsize=SMALL,
        )  # fmt: skip
        if num_columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()

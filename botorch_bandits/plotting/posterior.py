"""The posterior over a domain of one or two dimensions, and whether its confidence band covers.

The queries, the true function and the best point are drawn into the same axes if they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.bounds import read_bounds
from botorch_bandits.checks import (
    DTYPE,
    check_callable,
    check_double,
    check_finite,
    check_instance,
    check_matrix,
    check_nonnegative,
    check_number,
    check_vector,
)
from botorch_bandits.domains import Arms, Box, Domain
from botorch_bandits.history import History
from botorch_bandits.models.condition import observed_inputs
from botorch_bandits.plotting.runs import check_history
from botorch_bandits.plotting.style import SMALL, axes_or_new, label_axis, new_figure
from botorch_bandits.spaces import Space

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass
class PlacedQueries:
    """Queries by state, one row each; failed ones are left out.

    Attributes:
        told: Points whose outcome was told, and their rewards.
        pending: Points without an outcome.
        elsewhere: Points whose outcome was told in another context, or that are not in the part of
            the domain that is drawn, and their rewards.
        elsewhere_is: What these points are called.
    """

    told: list[tuple[Tensor, float]] = field(default_factory=list)
    pending: list[Tensor] = field(default_factory=list)
    elsewhere: list[tuple[Tensor, float]] = field(default_factory=list)
    elsewhere_is: str = "told in another context"

    def draw_on_line(self, ax: Any, mean_at: Callable[[Tensor], Tensor]) -> None:
        """Draw rewards that were told, and pending queries on the mean."""
        for rows, style, label in (
            (self.elsewhere, _ELSEWHERE, self.elsewhere_is),
            (self.told, _TOLD, "told"),
        ):
            if rows:
                points, rewards = [float(p) for p, _ in rows], [y for _, y in rows]
                ax.plot(points, rewards, ls="none", label=label, **style)
        if self.pending:
            X = torch.stack(self.pending)
            x, y = X[:, 0].numpy(), mean_at(X).numpy()
            ax.plot(x, y, ls="none", label="pending (at the mean)", **_PENDING)

    def draw_on_plane(self, ax: Any) -> None:
        """Draw the points."""
        for points, style, label in (
            ([p for p, _ in self.elsewhere], _ELSEWHERE, self.elsewhere_is),
            ([p for p, _ in self.told], {**_TOLD, "mec": "white", "ms": 6.5}, "told"),
            (self.pending, _PENDING, "pending"),
        ):
            if points:
                x, y = torch.stack(points).T.numpy()
                ax.plot(x, y, ls="none", label=label, clip_on=False, **style)


_TOLD = {"marker": "o", "color": "black", "mfc": "black", "ms": 4.5}
_PENDING = {"marker": "o", "color": "black", "mfc": "white", "ms": 5.5, "mew": 1.3, "zorder": 3}
_ELSEWHERE = {"marker": "x", "color": "0.4", "ms": 4}


@dataclass(frozen=True)
class Section:
    """The part of a domain that is drawn: one or two coordinates, with the others fixed.

    Attributes:
        domain: The domain of the points, for names and native values.
        front: The values of the model's inputs before the point; they end with the context.
        point: ``d`` coordinates; the drawn ones do not count.
        free: Which coordinates are drawn.
    """

    domain: Any
    front: Tensor
    point: Tensor
    free: tuple[int, ...]

    def points(self, drawn: Tensor) -> Tensor:
        """Return points of the domain, ``n x d``.

        Args:
            drawn: ``n x k`` values of the coordinates that are drawn.
        """
        points = self.point.repeat(len(drawn), 1)
        points[:, list(self.free)] = drawn
        return points

    def inputs(self, drawn: Tensor) -> Tensor:
        """Return the model's inputs; see :meth:`points`."""
        points = self.points(drawn)
        return torch.cat([self.front.expand(len(points), -1), points], dim=-1)

    def has(self, x: Tensor) -> bool:
        """Return whether a point is in this part."""
        return torch.equal(self.points(x[list(self.free)].unsqueeze(0)).squeeze(0), x)

    def name_axes(self, *axes: Any) -> None:
        """Name the axes that show the coordinates."""
        for axis, i in zip(axes, self.free, strict=True):
            label_axis(axis, self.domain, i, len(self.point))


def place_queries(history: History, section: Section) -> PlacedQueries:
    """Sort queries by their state.

    Args:
        history: The history of the loop.
        section: The part of the domain that is drawn.

    Raises:
        ValueError: If the points of the history have another dimension.
    """
    dim, front = len(section.point), section.front
    if history.dim != dim:
        raise ValueError(
            f"history has points of {history.dim} dimensions, but the domain has {dim}; pass the "
            "history of a loop on this domain."
        )
    is_part = len(section.free) < dim
    placed = PlacedQueries(elsewhere_is="told elsewhere" if is_part else "told in another context")
    here = front.cpu()[max(len(front) - history.context_dim, 0) :]  # without the round, if any
    for query in history.queries:
        outcome, x = history.outcome(query.id), query.x.cpu()
        is_here = query.context is None or torch.equal(query.context.to("cpu", DTYPE), here)
        is_here = is_here and section.has(x)
        drawn = x[list(section.free)]
        if outcome is not None:
            (placed.told if is_here else placed.elsewhere).append((drawn, outcome.reward))
        elif history.state(query.id) == "pending" and is_here:
            placed.pending.append(drawn)
    return placed


NUM_LEVELS = 8
_STAR: dict[str, Any] = {"ms": 14, "ls": "none", "clip_on": False, "zorder": 4}


def draw_plane(
    X: Tensor,
    mean: Tensor,
    deviation: Tensor,
    true_values: Tensor | None,
    excluded: Tensor | None,
    queries: PlacedQueries,
    star: Tensor | None,
    axes: Any,
    is_arms: bool,
    section: Section,
    name: str = "reward",
) -> Any:
    """Draw mean and standard deviation side by side; see :func:`.plot_posterior`.

    Args:
        X: ``n x 2`` points: those of a grid, first dimension slowest, or arms.
        mean: ``n`` values.
        deviation: ``n`` values.
        true_values: ``n`` values, or None.
        excluded: ``n`` values of a constraint, or None.
        queries: The queries to mark.
        star: The next query, or None.
        axes: A pair of axes, or None for new ones.
        is_arms: Whether points are drawn instead of contours.
        section: The part of the domain that is drawn.
        name: The name of the values: a reward, or a cost.

    Returns:
        An array of two axes.
    """
    panels = new_figure(1, 2, width=9.0, height=4.2)[1][0] if axes is None else axes
    if np.size(panels) != 2:
        raise ValueError(
            f"ax is {axes!r}; two dimensions need a pair of axes: mean and standard deviation."
        )
    panels = np.asarray(panels).reshape(-1)
    for ax, values, title in zip(
        panels, (mean, deviation), ("posterior mean", "posterior standard deviation"), strict=True
    ):
        if is_arms:
            _draw_arms(ax, X, values, excluded, title)
        else:
            _draw_contours(ax, X, values, excluded)
        queries.draw_on_plane(ax)
        if star is not None:
            x, y = star.tolist()
            ax.plot(x, y, "*", color="black", mfc="white", label="next query", **_STAR)
        ax.set_title(f"{title} (units of the {name})", fontsize=SMALL + 2)
        section.name_axes(ax.xaxis, ax.yaxis)
        ax.grid(False)
    if true_values is not None and not is_arms:
        levels = _levels(mean)
        side = round(len(X) ** 0.5)
        x, y, z = (v.reshape(side, side).numpy() for v in (X[:, 0], X[:, 1], true_values))
        panels[0].contour(x, y, z, levels=levels, colors="black", linestyles="--", linewidths=0.8)
        panels[0].plot([], [], color="black", ls="--", lw=0.8, label=f"{name} function")
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        panels[0].figure.legend(
            handles, labels, loc="outside lower center", ncols=len(handles), fontsize=SMALL
        )
    return panels


def _levels(values: Tensor) -> Any:
    """Return increasing levels for contours, even if the values are constant."""
    from matplotlib.ticker import MaxNLocator

    low, high = float(values.min()), float(values.max())
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        low, high = low - 0.5, high + 0.5
    return MaxNLocator(NUM_LEVELS).tick_values(low, high)


def _light_grays() -> Any:
    """Return shades on which black and white markers are visible; dark means large."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("light grays", ["1.0", "0.45"])


def _draw_contours(ax: Any, X: Tensor, values: Tensor, excluded: Tensor | None) -> None:
    side = round(len(X) ** 0.5)
    x, y, z = (v.reshape(side, side).numpy() for v in (X[:, 0], X[:, 1], values))
    levels = _levels(values)
    ax.contourf(x, y, z, levels=levels, cmap=_light_grays())
    lines = ax.contour(x, y, z, levels=levels, colors="0.35", linestyles="-", linewidths=0.7)
    ax.clabel(lines, fontsize=SMALL - 1, colors="black")
    if excluded is None:
        return
    g = excluded.reshape(side, side).numpy()
    if g.max() > 0.0:
        hatched = ax.contourf(
            x, y, g, levels=[0.0, max(float(g.max()), 1e-300)], colors="none", hatches=["//"]
        )
        hatched.set_edgecolor("0.5")
        hatched.set_linewidth(0.0)
    if g.min() < 0.0 < g.max():
        ax.contour(x, y, g, levels=[0.0], colors="black", linestyles="-.", linewidths=1.4)
        ax.plot([], [], color="black", ls="-.", lw=1.4, label="limit of the constraint")


def _draw_arms(ax: Any, X: Tensor, values: Tensor, excluded: Tensor | None, title: str) -> None:
    x, y = X.T.numpy()
    shades = ax.scatter(
        x, y, c=values.numpy(), cmap=_light_grays(), s=90, marker="s", edgecolors="0.4"
    )
    ax.figure.colorbar(shades, ax=ax).set_label(title, fontsize=SMALL)
    if excluded is not None:
        bad = (excluded > 0.0).numpy()
        ax.plot(x[bad], y[bad], "x", color="black", ms=9, ls="none", label="not feasible")


POINTS_ON_A_LINE, POINTS_ON_A_SIDE, MARKS_ON_A_SIDE = 400, 60, 25

Function = Callable[[Tensor], Tensor]


def plot_posterior(
    model: Any,
    domain: Any,
    high: float | None = None,
    width: float = 2.0,
    history: History | None = None,
    function: Function | None = None,
    ax: Any = None,
    *,
    context: Any = None,
    next_query: Any = None,
    constraint: Function | None = None,
    at: Mapping[str, Any] | None = None,
) -> Any:
    """Draw the posterior over a domain of one or two dimensions, and the queries.

    In one dimension, it is the mean with its confidence band; on arms, each arm has a point and a
    bar. In two dimensions, there are contours of the mean on the left and of the standard deviation
    on the right; on arms, points in shades of gray.

    Args:
        model: A BoTorch model of one output. With the history of a loop with ``maximize=False``, it
            is that loop's model, of minus the cost, and the cost is drawn.
        domain: A :class:`~botorch_bandits.Space`, whose names and native values are shown at the
            axes; a :class:`~botorch_bandits.Box`, :class:`~botorch_bandits.Arms` or bounds as for
            ``Box``; or the left end of an interval.
        high: The right end of the interval.
        width: Half the height of the band, in posterior standard deviations; one dimension only.
        history: Its queries are marked: filled if the outcome was told, open if it is pending.
            Queries in another context are small crosses.
        function: The true reward (maps an ``n x d`` tensor to ``n`` values), drawn dashed; in two
            dimensions at the levels of the mean. On arms it is drawn in one dimension only.
        ax: Axes to draw on, a pair of them in two dimensions; new ones if omitted.
        context: If the model's inputs have columns before the point, their values, the same
            everywhere: the context and, with ``forgetting=TimeVaryingKernel(...)``, the round
            before it. If the round alone is left out, it is the next round of the loop. Rounds
            count from the last reset (from the first round that was kept, if rows are kept).
        next_query: The point that will be asked next, drawn as a star.
        constraint: A constraint function, like ``function``; at most 0 is feasible. The part that
            it
            excludes is hatched, up to a dash-dotted boundary; excluded arms are crossed out.
        at: The values by name of all parameters of a :class:`~botorch_bandits.Space` except the one
            or two that are drawn. Queries elsewhere are small crosses.

    Returns:
        The axes; in two dimensions, an array of two.

    Raises:
        TypeError: If the domain is of another type, or a tensor is not float64.
        ValueError: If the domain has more than two dimensions, the model has more outputs or other
            inputs, or a value is not finite.
    """
    width = check_nonnegative("width", width)
    front = torch.empty(0, dtype=DTYPE) if context is None else check_vector("context", context)
    section, X, is_arms = _section(domain, high, front, at)
    dim, now = len(section.point), getattr(model, "current_round", None)
    if now is not None and _num_columns(model) == dim + len(front) + 1:
        front = torch.cat([torch.tensor([float(now)], dtype=DTYPE), front])
        section = replace(section, front=front)
    _check_columns(model, dim, front)
    is_turned = isinstance(history, History) and not history.maximize
    sign, name = (-1.0, "cost") if is_turned else (1.0, "reward")
    shown = f"penalized {name}" if _is_penalized(model, history) else name
    mean, deviation = read_posterior(model, section.inputs(X))
    mean = sign * mean
    points = section.points(X)
    true_values = None if function is None else _evaluate("function", function, points)
    excluded = None if constraint is None else _evaluate("constraint", constraint, points)
    queries = PlacedQueries()
    if history is not None:
        queries = place_queries(check_history(history), section)
    star = None if next_query is None else _read_star(next_query, section)
    if X.shape[-1] == 2:
        return draw_plane(
            X, mean, deviation, true_values, excluded, queries, star, ax, is_arms, section, shown
        )
    ax = axes_or_new(ax)
    x, half = X.squeeze(-1).numpy(), (width * deviation).numpy()
    middle = mean.numpy()
    if is_arms:
        ax.errorbar(
            x, middle, half, fmt="s", color="0.6", ms=3, capsize=2, label="mean and confidence bar"
        )
    else:
        ax.fill_between(x, middle - half, middle + half, color="0.85", label="confidence band")
        ax.plot(x, middle, color="black", lw=1.5, label="posterior mean")
    if true_values is not None:
        style = {"ls": "none", "marker": "_", "ms": 9} if is_arms else {"ls": "--"}
        ax.plot(x, true_values.numpy(), color="black", lw=1.0, label=f"{name} function", **style)
    if excluded is not None:
        _hatch(ax, X.squeeze(-1), excluded, middle, is_arms)
    queries.draw_on_line(ax, lambda drawn: sign * _mean_at(model, drawn, section))
    if star is not None:
        y = sign * float(_mean_at(model, star.unsqueeze(0), section))
        ax.plot(float(star), y, "*", color="black", mfc="white", ms=13, label="next query")
    section.name_axes(ax.xaxis)
    ax.set_ylabel(name if shown == name else f"{shown} (points: {name})")
    ax.legend(fontsize=SMALL)
    return ax


def _is_penalized(model: Any, history: Any) -> bool:
    """Return whether a model's outcomes are not the rewards of a history with constraints.

    A model of the reward alone has the rewards as its rows, shifted or standardized.
    """
    if not isinstance(history, History) or not history.num_constraints or history.num_arrived < 3:
        return False
    targets = getattr(model, "train_targets", None)
    rewards = [outcome.reward for outcome in history.outcomes]
    if not isinstance(targets, Tensor) or targets.numel() != len(rewards):
        return True
    told, found = np.array(rewards), targets.detach().cpu().flatten().numpy()
    told, found = told - told.mean(), found - found.mean()
    scales = (1.0, -1.0, 1.0 / (told.std(ddof=1) or 1.0), -1.0 / (told.std(ddof=1) or 1.0))
    return not any(np.allclose(scale * told, found, atol=1e-6) for scale in scales)


def read_posterior(model: Any, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return posterior mean and standard deviation at ``n x d`` points, on the CPU.

    Raises:
        TypeError: If they are not float64.
        ValueError: If the model has more than one output or a batch, or a value is not finite.
    """
    inputs = getattr(model, "train_inputs", None)
    if inputs and isinstance(inputs[0], Tensor):
        X = X.to(check_double("model.train_inputs[0]", inputs[0]).device)
    with torch.no_grad():
        posterior = model.posterior(X)
        mean, variance = posterior.mean, posterior.variance
    if mean.shape != (len(X), 1):
        raise ValueError(
            f"model gives a mean of shape {tuple(mean.shape)} at {len(X)} points; draw one output "
            "of one model at a time, such as model.subset_output([0])."
        )
    check_finite("the posterior mean of model", check_double("the posterior mean of model", mean))
    deviation = variance.clamp_min(0.0).sqrt()
    check_finite("the posterior standard deviation of model", deviation)
    return mean.squeeze(-1).cpu(), deviation.squeeze(-1).cpu()


def _section(
    domain: Any, high: Any, front: Tensor, at: Mapping[str, Any] | None
) -> tuple[Section, Tensor, bool]:
    """Return what is drawn, the points to evaluate, and whether these are arms."""
    if isinstance(domain, Space) and high is None:
        return _section_of_space(domain, front, at)
    if at is not None:
        raise TypeError(
            f"at is {dict(at)}, but the domain has no names; pass a Space, or leave at out."
        )
    X, is_arms = _points(domain, high)
    return Section(domain, front, X[0], tuple(range(X.shape[-1]))), X, is_arms


def _section_of_space(
    space: Space, front: Tensor, at: Mapping[str, Any] | None
) -> tuple[Section, Tensor, bool]:
    held = {} if at is None else check_instance("at", at, Mapping, "Pass a dict of values by name.")
    point = space.encode({**space.decode(space.bounds[0]), **held}).cpu()
    free = tuple(i for i, name in enumerate(space.names) if name not in held)
    if not free:
        raise ValueError(
            f"at holds all parameters that vary ({', '.join(space.names)}), but a figure draws one "
            "or two of them. Leave those out of at."
        )
    if len(free) > 2:
        names = [space.names[i] for i in free]
        raise ValueError(
            f"{len(free)} parameters of the space vary ({', '.join(names)}), but a figure draws "
            "one or two. Hold the others with at={name: value, ...}."
        )
    num_points = POINTS_ON_A_LINE if len(free) == 1 else POINTS_ON_A_SIDE
    counts = {i: count for i, count in space.num_values.items() if i in free}
    is_arms = any(i in space.unordered_dims for i in free) or (
        len(counts) == len(free) and max(counts.values()) <= num_points
    )
    sides = []
    for i in free:
        low, high = space.bounds[:, i].tolist()
        if is_arms and i in counts and counts[i] <= num_points:
            sides.append(torch.tensor(space.values_of(i), dtype=DTYPE))
        else:
            size = MARKS_ON_A_SIDE if is_arms else num_points
            sides.append(torch.linspace(low, high, size, dtype=DTYPE))
    X = torch.cartesian_prod(*sides).reshape(-1, len(free))
    return Section(space, front, point, free), X, is_arms


def _points(domain: Any, high: Any) -> tuple[Tensor, bool]:
    """Return the points to evaluate, and whether they are arms."""
    if high is not None:
        if not isinstance(domain, int | float | Tensor):
            raise TypeError(
                f"high is {high!r}, the right end of an interval, but domain is a "
                f"{type(domain).__name__}; leave high out, and pass width= by its name."
            )
        left, right = check_number("domain", domain), check_number("high", high)
        bounds = read_bounds("bounds", [(left, right)])
    elif isinstance(domain, Arms):
        _check_dim(domain.dim)
        return domain.choices.cpu(), True
    elif isinstance(domain, Box):
        bounds = domain.bounds.cpu()
    elif isinstance(domain, Domain | int | float):
        raise TypeError(
            f"domain is {domain!r}; pass a Box, Arms, bounds, or both ends of an interval."
        )
    else:
        bounds = read_bounds("bounds", domain).cpu()
    _check_dim(bounds.shape[-1])
    if bounds.shape[-1] == 1:
        low, top = bounds.squeeze(-1).tolist()
        return torch.linspace(low, top, POINTS_ON_A_LINE, dtype=DTYPE).unsqueeze(-1), False
    sides = [
        torch.linspace(low, top, POINTS_ON_A_SIDE, dtype=DTYPE) for low, top in bounds.T.tolist()
    ]
    return torch.cartesian_prod(*sides), False


def _check_dim(dim: int) -> None:
    if dim > 2:
        raise ValueError(
            f"domain has {dim} dimensions, but a figure has one or two. Pass the bounds of the "
            "last one or two, and fix those before them with context=."
        )


def _num_columns(model: Any) -> int | None:
    """Return how many columns a model's inputs have; None if it does not expose them."""
    inputs = observed_inputs(model) if hasattr(model, "train_inputs") else None
    return None if inputs is None else int(inputs.shape[-1])


def _check_columns(model: Any, dim: int, front: Tensor) -> None:
    needed = _num_columns(model)
    if needed is not None and needed != dim + len(front):
        raise ValueError(
            f"model takes {needed} columns, but the domain has {dim} and context has {len(front)}. "
            f"Pass context= with the values of the {needed - dim} columns before the point: the "
            "context, and before it the round if the model's kernel varies in time."
            if needed > dim
            else f"model takes {needed} columns, but the domain has {dim}; pass the domain that "
            "the model is over."
        )


def _evaluate(name: str, function: Function, X: Tensor) -> Tensor:
    check_callable(name, function, f"Pass a function from {tuple(X.shape)} points to values.")
    values = function(X)
    if isinstance(values, Tensor) and values.shape == (len(X), 1):
        values = values.squeeze(-1)
    return check_vector(f"{name}(X)", values, length=len(X)).detach().cpu()


def _mean_at(model: Any, drawn: Tensor, section: Section) -> Tensor:
    return read_posterior(model, section.inputs(drawn))[0]


def _read_star(next_query: Any, section: Section) -> Tensor:
    if isinstance(section.domain, Space):
        x = section.domain.check_point("next_query", next_query).cpu()
    else:
        x = check_vector("next_query", next_query, length=len(section.point))
    return x[list(section.free)]


def _hatch(ax: Any, x: Tensor, values: Tensor, mean: Any, is_arms: bool) -> None:
    """Mark where a constraint value is positive."""
    bad = (values > 0.0).numpy()
    if is_arms:
        ax.plot(x[bad], mean[bad], "x", color="black", ms=7, ls="none", label="not feasible")
        return
    ax.fill_between(
        x.numpy(),
        0,
        1,
        where=bad,
        transform=ax.get_xaxis_transform(),
        facecolor="none",
        edgecolor="0.6",
        hatch="//",
        lw=0,
        label="not feasible",
    )
    for i in (bad[1:] != bad[:-1]).nonzero()[0]:
        share = float(values[i] / (values[i] - values[i + 1]))  # where a straight line crosses 0
        edge = float(x[i] + share * (x[i + 1] - x[i]))
        ax.axvline(edge, color="black", ls="-.", lw=1.0)


NEEDED = ("mean", "standard_deviation", "width")


def plot_width_against_error(
    model: Any,
    X: Tensor | None = None,
    truth: Any = None,
    width: float | None = None,
    *,
    logarithmic: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw the distance of the reward function from the posterior mean against the half-width.

    Points on or below the diagonal are covered: the error is at most the width times the standard
    deviation. Crosses above it are not; the legend has the share that is covered. Points far below
    the diagonal show that the width is larger than necessary.

    Args:
        model: A BoTorch model of one output; or, with nothing else, the result of
            :func:`~botorch_bandits.run` on a problem that knows its noiseless values. Each round is
            then a point, with the mean, standard deviation and width when its query was chosen.
        X: ``n x d`` points, the model's inputs.
        truth: The noiseless reward function there: ``n`` values, or a function from ``X`` to them.
        width: Half the height of the band, in posterior standard deviations.
        logarithmic: Whether axes are logarithmic; points without an error or a deviation are then
            left out.
        ax: Axes to draw on; new ones if omitted.

    Raises:
        TypeError: If an argument is missing, or a tensor is not float64.
        ValueError: If a shape is wrong, a value is not finite, or a result lacks what is needed.
    """
    if hasattr(model, "posterior"):
        half, error = _of_model(model, X, truth, width)
    else:
        if X is not None or truth is not None or width is not None:
            raise TypeError(
                f"model is a {type(model).__name__}. With X, truth and width pass a BoTorch model; "
                "the result of run is passed alone."
            )
        half, error = _of_result(model)
    ax = axes_or_new(ax)
    covered = error <= half
    count = int(covered.sum())
    for mask, marker, fill, label in (
        (covered, "o", "white", f"covered ({count} of {len(half)}, {count / len(half):.1%})"),
        (~covered, "x", "black", f"not covered ({len(half) - count})"),
    ):
        x, y = half[mask].numpy(), error[mask].numpy()
        ax.plot(x, y, marker, color="black", mfc=fill, ms=4, mew=0.8, ls="none", label=label)
    largest = 1.05 * max(float(half.max()), float(error.max()), torch.finfo(DTYPE).tiny)
    if logarithmic:
        smallest = torch.cat([half, error])
        smallest = smallest[smallest > 0.0]
        lowest = 0.8 * float(smallest.min()) if len(smallest) else 0.1 * largest
        ax.set_xscale("log")
        ax.set_yscale("log")
    else:
        lowest = 0.0
    ends = [lowest, largest]
    ax.plot(ends, ends, color="black", ls="--", lw=1.0, label="error = half-width")
    ax.set_xlabel("half-width of the band: width x standard deviation (units of the reward)")
    ax.set_ylabel("|reward function - mean|")
    ax.legend(fontsize=SMALL)
    return ax


def _of_model(model: Any, X: Any, truth: Any, width: Any) -> tuple[Tensor, Tensor]:
    """Return half-widths and errors at points, on the CPU."""
    missing = [n for n, v in (("X", X), ("truth", truth), ("width", width)) if v is None]
    if missing:
        raise TypeError(
            f"{', '.join(missing)} is missing; with a model pass X, truth and width, or pass the "
            "result of run alone."
        )
    X = check_matrix("X", X)
    if len(X) == 0:
        raise ValueError("X has no rows; pass the points to evaluate.")
    values = truth(X) if callable(truth) else truth
    if isinstance(values, Tensor) and values.dim() == 2 and values.shape[-1] == 1:
        values = values.squeeze(-1)
    values = check_vector("truth", values, length=len(X)).detach().cpu()
    mean, deviation = read_posterior(model, X)
    return check_nonnegative("width", width) * deviation, (values - mean).abs()


def _of_result(result: Any) -> tuple[Tensor, Tensor]:
    """Return half-widths and errors of the rounds that have them."""
    history, values = getattr(result, "history", None), getattr(result, "values", None)
    if history is None or not hasattr(result, "rewards"):
        raise TypeError(
            f"model is a {type(result).__name__}; pass a BoTorch model with X, truth and width, or "
            "the result of run."
        )
    if not isinstance(values, Tensor):
        raise ValueError(
            "the result has no noiseless values; run a problem that knows them, such as those in "
            "botorch_bandits.problems, or pass a model with X, truth and width."
        )
    if history.num_constraints:
        raise ValueError(
            "the result is of a loop with constraints, whose model may be of the penalized reward; "
            "pass a model with X, truth and width."
        )
    queries = history.queries[history.num_queries - len(values) :]
    told = [history.outcome(q.id) for q in queries]
    rewards = torch.tensor([torch.nan if o is None else o.reward for o in told], dtype=DTYPE)
    if len(queries) != len(values) or not torch.equal(
        rewards.nan_to_num(), result.rewards.cpu().nan_to_num()
    ):
        raise ValueError(
            "the rounds of the result are not the last ones of its history, which has continued; "
            "draw it before the loop continues, or pass a model with X, truth and width."
        )
    rows = [
        (d["width"] * d["standard_deviation"], abs(value - d["mean"]))
        for d, value in ((q.diagnostics, v) for q, v in zip(queries, values.tolist(), strict=True))
        if all(name in d for name in NEEDED)
    ]
    if not rows:
        raise ValueError(
            "no round of the result has a mean, a standard deviation and a width: this method has "
            "none. Pass a model with X, truth and width."
        )
    half, error = torch.tensor(rows, dtype=DTYPE).unbind(dim=-1)
    return half, error

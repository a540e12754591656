"""The posterior over a domain of one or two dimensions, or a slice of one, with its queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.bounds import read_bounds
from botorch_bandits.checks import (
    DTYPE,
    check_double,
    check_finite,
    check_instance,
    check_nonnegative,
    check_vector,
)
from botorch_bandits.domains import Arms, Box
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.models.reading import observed_inputs
from botorch_bandits.plotting.style import (
    ELSEWHERE,
    FAILED,
    PENDING,
    SMALL,
    TOLD,
    axes_or_new,
    label_axis,
    new_figure,
    plot_expected,
    plot_points,
)
from botorch_bandits.spaces import Space

POINTS_ON_A_LINE, POINTS_ON_A_SIDE = 201, 61

MOST_VALUES = 60
"""A parameter with more whole numbers than this is drawn like a continuous one."""

COLORS = "cividis"
"""Perceptually uniform with any color vision, and the larger the lighter in gray."""


def plot_posterior(  # noqa: PLR0913 - options, each with a name
    model: Any,
    domain: Any,
    high: float | None = None,
    width: float = 2.0,
    history: History | None = None,
    function: Callable[[Tensor], Tensor] | None = None,
    ax: Any = None,
    *,
    context: Any = None,
    at: Mapping[str, Any] | None = None,
) -> Any:
    """Draw the posterior over a domain of one or two dimensions, and the queries.

    In one dimension, it is the mean with its confidence band; discrete values have a bar each. In
    two dimensions, colors show the mean on the left and the standard deviation on the right.

    Args:
        model: A BoTorch model of one output. With the history of a loop with ``maximize=False``, it
            is that loop's model, of minus the cost, and the cost is drawn.
        domain: A :class:`~botorch_bandits.Space`, whose names and native values are shown at the
            axes; a :class:`~botorch_bandits.Box`, :class:`~botorch_bandits.Arms` or bounds as for
            ``Box``; or the left end of an interval.
        high: The right end of the interval.
        width: Half the height of the band, in posterior standard deviations; one dimension only.
        history: Its queries are marked: filled if the outcome was told, open if it is pending.
            Queries that were told in another context, or outside of the slice, are small and gray.
        function: The true reward (maps an ``n x d`` tensor to ``n`` values), drawn dashed; one
            dimension only.
        ax: Axes to draw on, a pair of them in two dimensions; new ones if omitted.
        context: If the model's inputs have columns before the point, their values, the same
            everywhere: the context and, with ``forgetting=TimeVaryingKernel(...)``, the round
            before it. If the round alone is left out, it is the next round of the loop. Rounds
            count from the last reset (from the first round that was kept, if rows are kept).
        at: The values by name of all parameters of a :class:`~botorch_bandits.Space` except the one
            or two that are drawn.

    Returns:
        The axes; in two dimensions, an array of two.

    Raises:
        TypeError: If the domain is of another type, or a tensor is not float64.
        ValueError: If the domain has more than two dimensions, the model has more outputs or other
            inputs, or a value is not finite.
    """
    width = check_nonnegative("width", width)
    domain = _read_domain(domain, high)
    free, X, is_discrete = _slice(domain, at)
    dim = X.shape[-1]
    mean, deviation = read_posterior(model, inputs_of(model, X, context))
    queries, name = Queries(), "reward"
    if history is not None:
        check_instance("history", history, History, "Pass loop.history.")
        if history.dim != dim:
            raise ValueError(
                f"history has points of {history.dim} dimensions, but the domain has {dim}; pass "
                "the history of a loop on this domain."
            )
        mean = mean if history.maximize else -mean
        name = history.outcome_name
        held = [i for i in range(dim) if i not in free]
        front = None if context is None else check_vector("context", context)
        context = None if front is None else front[len(front) - history.context_dim :]
        queries = sort_queries(
            history, context, lambda query: torch.equal(query.x.cpu()[held], X[0, held])
        )
        if history.num_constraints:
            name = f"model's outcome (points: {name})"  # it may be penalized by the constraints
    if len(free) == 2:
        if function is not None:
            raise ValueError(f"function is {function!r}, but it is drawn in one dimension only.")
        return _draw_plane(domain, X, free, (mean, deviation), queries, name, ax)
    ax = axes_or_new(ax)
    (i,), x = free, X[:, free[0]].numpy()
    label = f"posterior mean, band of width {width:.3g}"
    plot_expected(ax, x, mean.numpy(), (width * deviation).numpy(), is_discrete, label)
    if function is not None:
        values = check_vector("function(X)", function(X).reshape(-1), length=len(X)).detach().cpu()
        look = {"marker": "_", "ls": "none"} if is_discrete else {"ls": "--"}
        ax.plot(x, values.numpy(), color="black", lw=1.0, label=f"{name} function", **look)
    queries.draw_along(ax, i)
    label_axis(ax.xaxis, domain, i, dim)
    ax.set_ylabel(name)
    ax.legend(fontsize=SMALL)
    return ax


@dataclass
class Queries:
    """Points by the state of their queries, ``d`` coordinates each.

    Attributes:
        told: Points whose outcome was told, and their outcomes.
        elsewhere: The same for points that do not belong to what is drawn.
        pending: Points without an outcome yet.
        failed: Points whose evaluation failed.
    """

    told: list[tuple[Tensor, Outcome]] = field(default_factory=list)
    elsewhere: list[tuple[Tensor, Outcome]] = field(default_factory=list)
    pending: list[Tensor] = field(default_factory=list)
    failed: list[Tensor] = field(default_factory=list)

    def draw_along(self, ax: Any, i: int) -> None:
        """Draw outcomes over one coordinate; pending and failed points are at the foot."""
        for rows, look, label in (
            (self.elsewhere, ELSEWHERE, "told elsewhere"),
            (self.told, TOLD, "told"),
        ):
            plot_points(ax, [(float(x[i]), o.reward) for x, o in rows], look, label=label)
        foot = {"transform": ax.get_xaxis_transform(), "clip_on": False}
        plot_points(ax, [(float(x[i]), 0.0) for x in self.failed], FAILED, label="failed", **foot)
        plot_points(
            ax, [(float(x[i]), 0.0) for x in self.pending], PENDING, label="pending", **foot
        )


def sort_queries(
    history: History, context: Tensor | None, is_here: Callable[[Query], bool]
) -> Queries:
    """Sort queries by their state.

    Args:
        history: The history of the loop.
        context: The context that is drawn; None for all.
        is_here: Whether a query belongs to what is drawn, apart from its context.
    """
    found = Queries()
    for query in history.queries:
        here = is_here(query)
        if context is not None and query.context is not None:
            here = here and torch.equal(query.context.cpu(), context.cpu())
        outcome, x = history.outcome(query.id), query.x.cpu()
        if outcome is not None:
            (found.told if here else found.elsewhere).append((x, outcome))
        elif here and history.state(query.id) == "pending":
            found.pending.append(x)
        elif here and history.state(query.id) == "failed":
            found.failed.append(x)
    return found


def _observed(model: Any) -> Tensor | None:
    return observed_inputs(model) if hasattr(model, "train_inputs") else None


def inputs_of(model: Any, X: Tensor, context: Any) -> Tensor:
    """Return a model's inputs at ``n x d`` points: the round, if any, the context and the points.

    Raises:
        ValueError: If the model has another number of columns.
    """
    front = torch.empty(0, dtype=DTYPE) if context is None else check_vector("context", context)
    inputs = _observed(model)
    columns = X.shape[-1] + len(front)
    needed = columns if inputs is None else inputs.shape[-1]
    now = getattr(model, "current_round", None)
    if now is not None and needed == columns + 1:
        front, columns = torch.cat([torch.tensor([float(now)], dtype=DTYPE), front.cpu()]), needed
    if needed != columns:
        raise ValueError(
            f"model takes {needed} columns, but the domain has {X.shape[-1]} and context has "
            f"{len(front)}. Pass the domain that the model is over, and with context= the values "
            "of the columns before the point: the context, and before it the round if the model's "
            "kernel varies in time."
        )
    return torch.cat([front.cpu().expand(len(X), -1), X], dim=-1)


def read_posterior(model: Any, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return posterior mean and standard deviation at ``n x d`` inputs, on the CPU.

    Raises:
        TypeError: If they are not float64.
        ValueError: If the model has more than one output or a batch, or a value is not finite.
    """
    inputs = _observed(model)
    if inputs is not None:
        X = X.to(check_double("model.train_inputs[0]", inputs).device)
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


def values_along(box: Box, i: int, num_points: int) -> tuple[Tensor, bool]:
    """Return values of one coordinate, and whether they are all that it can have."""
    grid = box.coordinates.grids.get(i)
    if grid is not None and (not grid.has_order or grid.count <= MOST_VALUES):
        return torch.tensor(grid.values(), dtype=DTYPE), True
    low, high = box.bounds[:, i].tolist()
    return torch.linspace(low, high, num_points, dtype=DTYPE), False


def _read_domain(domain: Any, high: float | None) -> Box | Arms:
    if high is not None:
        return Box(read_bounds("bounds", [(domain, high)]))
    return domain if isinstance(domain, Box | Arms) else Box(read_bounds("bounds", domain))


def _slice(
    domain: Box | Arms, at: Mapping[str, Any] | None
) -> tuple[tuple[int, ...], Tensor, bool]:
    """Return the coordinates that are drawn, ``n x d`` points, and whether they are discrete."""
    held: Mapping[str, Any] = {}
    if at is not None:
        if not domain.names:
            raise TypeError(f"at is {at!r}, but the domain has no names; pass a Space, or no at.")
        held = check_instance("at", at, Mapping, "Pass a dictionary of values by name.")
    names = domain.names or range(domain.dim)
    free = tuple(i for i, name in enumerate(names) if name not in held)
    if len(free) not in (1, 2):
        raise ValueError(
            f"{len(free)} of the {domain.dim} dimensions of domain vary, but a figure draws one or "
            "two. Of a Space, hold the others with at={name: value, ...}; of another domain, pass "
            "the bounds of the last one or two, and fix those before them with context=."
        )
    if domain.choices is not None:
        choices = domain.choices.cpu()
        return free, choices.sort(dim=0).values if domain.dim == 1 else choices, True
    point = domain.bounds[0].cpu()
    if isinstance(domain, Space):
        point = domain.encode({**domain.decode(point), **held}).cpu()
    num_points = POINTS_ON_A_LINE if len(free) == 1 else POINTS_ON_A_SIDE
    sides = [values_along(domain, i, num_points) for i in free]
    grid = torch.cartesian_prod(*(side for side, _ in sides)).reshape(-1, len(free))
    X = point.repeat(len(grid), 1)
    X[:, list(free)] = grid
    return free, X, sides[0][1]


def _draw_plane(
    domain: Box | Arms,
    X: Tensor,
    free: tuple[int, ...],
    values: tuple[Tensor, Tensor],
    queries: Queries,
    name: str,
    axes: Any,
) -> Any:
    """Draw mean and standard deviation side by side; see :func:`plot_posterior`.

    Args:
        domain: The domain.
        X: ``n x d`` points: those of a grid, the first free dimension slowest, or arms.
        free: The two coordinates that are drawn.
        values: Mean and standard deviation, ``n`` each.
        queries: The queries to mark.
        name: The name of an outcome.
        axes: A pair of axes, or None for new ones.
    """
    panels = np.asarray(new_figure(1, 2, width=9.0, height=4.2)[1] if axes is None else axes)
    if panels.size != 2:
        raise ValueError(f"ax is {axes!r}; two dimensions need a pair of axes.")
    panels = panels.reshape(-1)
    x, y = X[:, list(free)].T.numpy()
    for ax, z, title in zip(panels, values, ("mean", "standard deviation"), strict=True):
        if domain.choices is not None:
            colors = ax.scatter(x, y, c=z.numpy(), cmap=COLORS, marker="s", s=90)
        else:
            shape = (len(X[:, free[0]].unique()), -1)
            grid = (v.reshape(shape) for v in (x, y, z.numpy()))
            colors = ax.pcolormesh(*grid, cmap=COLORS, shading="nearest", rasterized=True)
        ax.figure.colorbar(colors, ax=ax).set_label(f"posterior {title} ({name})", fontsize=SMALL)
        for points, look, label in (
            ([x for x, _ in queries.elsewhere], ELSEWHERE, "told elsewhere"),
            ([x for x, _ in queries.told], {**TOLD, "mec": "white", "mfc": "black"}, "told"),
            (queries.failed, FAILED, "failed"),
            (queries.pending, PENDING, "pending"),
        ):
            pairs = [(float(x[free[0]]), float(x[free[1]])) for x in points]
            plot_points(ax, pairs, look, label=label, clip_on=False)
        for axis, i in zip((ax.xaxis, ax.yaxis), free, strict=True):
            label_axis(axis, domain, i, X.shape[-1])
        ax.grid(False)
    if panels[0].get_legend_handles_labels()[0]:
        panels[0].legend(fontsize=SMALL)
    return panels

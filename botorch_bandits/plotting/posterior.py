"""The posterior over a domain of one or two dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_callable,
    check_double,
    check_finite,
    check_matrix,
    check_nonnegative,
    check_number,
    check_vector,
)
from botorch_bandits.domains import Arms, Box, Domain
from botorch_bandits.history import History
from botorch_bandits.plotting.plane import draw_plane
from botorch_bandits.plotting.queries import PlacedQueries, place_queries
from botorch_bandits.plotting.rounds import check_history
from botorch_bandits.plotting.style import SMALL, axes_or_new

POINTS_ON_A_LINE, POINTS_ON_A_SIDE = 400, 60

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
) -> Any:
    """Draw the posterior over a domain of one or two dimensions, and the queries.

    In one dimension it is the mean with its confidence band; on arms each has a point and a bar. In
    two dimensions there are contours of the mean on the left and of the standard deviation on the
    right; on arms, points in shades of grey.

    Args:
        model: A BoTorch model of one output.
        domain: A :class:`~botorch_bandits.Box`, :class:`~botorch_bandits.Arms` or ``2 x d`` bounds;
            or the left end of an interval.
        high: Its right end.
        width: Half the height of the band, in posterior standard deviations; one dimension only.
        history: Its queries are marked: filled where the outcome was told, open where it is
            pending. Those of another context are small crosses.
        function: The true reward (maps an ``n x d`` tensor to ``n`` values), drawn dashed; in two
            dimensions at the levels of the mean. On arms it is drawn in one dimension only.
        ax: Axes to draw on, a pair of them in two dimensions; new ones if omitted.
        context: Where the model's inputs have columns before the point (a context, or the round):
            their values, the same everywhere.
        next_query: The point that is to be asked next: a star.
        constraint: A constraint function, like ``function``; at most 0 is feasible. What it
            excludes is hatched, up to a dash-dotted boundary; excluded arms are crossed out.

    Returns:
        The axes; in two dimensions an array of two.

    Raises:
        TypeError: If the domain is of another kind, or a tensor is not float64.
        ValueError: If the domain has more than two dimensions, the model has more outputs or other
            inputs, or a value is not finite.
    """
    X, is_arms = _points(domain, high)
    dim = X.shape[-1]
    width = check_nonnegative("width", width)
    front = torch.empty(0, dtype=DTYPE) if context is None else check_vector("context", context)
    _check_columns(model, dim, front)
    mean, deviation = read_posterior(model, torch.cat([front.expand(len(X), -1), X], dim=-1))
    true_values = None if function is None else _evaluate("function", function, X)
    excluded = None if constraint is None else _evaluate("constraint", constraint, X)
    queries = PlacedQueries()
    if history is not None:
        queries = place_queries(check_history(history), dim, front)
    star = None if next_query is None else check_vector("next_query", next_query, length=dim)
    if dim == 2:
        return draw_plane(X, mean, deviation, true_values, excluded, queries, star, ax, is_arms)
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
        ax.plot(x, true_values.numpy(), color="black", lw=1.0, label="reward function", **style)
    if excluded is not None:
        _hatch(ax, X.squeeze(-1), excluded, middle, is_arms)
    queries.draw_on_line(ax, lambda points: _mean_at(model, points, front))
    if star is not None:
        y = float(_mean_at(model, star.unsqueeze(0), front))
        ax.plot(float(star), y, "*", color="black", mfc="white", ms=13, label="next query")
    ax.set_xlabel("x")
    ax.set_ylabel("reward")
    ax.legend(fontsize=SMALL)
    return ax


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


def _points(domain: Any, high: Any) -> tuple[Tensor, bool]:
    """Return the points to look at, and whether they are arms."""
    if high is not None:
        if not isinstance(domain, int | float | Tensor):
            raise TypeError(
                f"high is {high!r}, the right end of an interval, but domain is a "
                f"{type(domain).__name__}; leave high out, and pass width= by its name."
            )
        left, right = check_number("domain", domain), check_number("high", high)
        bounds = torch.tensor([[left], [right]], dtype=DTYPE)
    elif isinstance(domain, Arms):
        _check_dim(domain.dim)
        return domain.choices.cpu(), True
    elif isinstance(domain, Box):
        bounds = domain.bounds.cpu()
    elif isinstance(domain, Domain | int | float):
        raise TypeError(
            f"domain is {domain!r}; pass a Box, Arms, bounds (2 x d), or both ends of an interval."
        )
    else:
        bounds = check_matrix("domain", domain).cpu()
    if bounds.shape[0] != 2 or not bool((bounds[0] < bounds[1]).all()):
        raise ValueError(
            f"domain has the bounds {bounds.tolist()}; give a row of lower and a row of upper "
            "ends, each lower one below its upper one."
        )
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


def _check_columns(model: Any, dim: int, front: Tensor) -> None:
    inputs = getattr(model, "train_inputs", None)
    if not inputs or not isinstance(inputs[0], Tensor):
        return
    needed = inputs[0].shape[-1]
    if needed != dim + len(front):
        raise ValueError(
            f"model takes {needed} columns, but the domain has {dim} and context has {len(front)}. "
            f"Pass context= with the values of the {needed - dim} columns before the point."
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


def _mean_at(model: Any, points: Tensor, front: Tensor) -> Tensor:
    return read_posterior(model, torch.cat([front.expand(len(points), -1), points], dim=-1))[0]


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
        share = float(values[i] / (values[i] - values[i + 1]))  # where a line would cross 0
        edge = float(x[i] + share * (x[i + 1] - x[i]))
        ax.axvline(edge, color="black", ls="-.", lw=1.0)

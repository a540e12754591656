"""Regret against rounds, to compare methods: means over replicates with a band."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_double,
    check_finite,
    check_instance,
    check_one_of,
    check_probability,
    is_list,
)
from botorch_bandits.plotting.style import LINE_STYLES, SMALL, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = {
    "cumulative": "cumulative regret",
    "average": "cumulative regret / round",
    "simple": "simple regret",
}


def plot_regret(
    results: Mapping[str, Any],
    kind: str = "cumulative",
    *,
    band: tuple[float, float] | None = None,
    logarithmic: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw regret over rounds: one line per method, with the spread of its replicates shaded.

    Args:
        results: At most 8 methods by name. A method is the result of
            :func:`~botorch_bandits.run` or of :func:`~botorch_bandits.simulate`, a tensor of
            the regrets of single rounds (``num_replicates x num_rounds``, or ``num_rounds``), or a
            list of these, which are then replicates.
        kind: ``"cumulative"``, the sum up to each round; ``"average"``, that divided by the round;
            or ``"simple"``, the smallest so far (for results of ``run`` among the outcomes that
            have arrived; nothing is drawn before the first has in every replicate).
        band: A pair of probabilities, such as ``(0.25, 0.75)``, draws the median between these
            quantiles. If omitted, the line is the mean, with one standard error on either side. A
            single replicate has no band.
        logarithmic: Whether axes are logarithmic; regrets that are not positive are then left out.
        ax: Axes to draw on; new ones if omitted.

    Raises:
        TypeError: If a result is of another kind, or a tensor is not float64.
        ValueError: If a tensor has another shape, an entry is not finite, or replicates have
            different numbers of rounds.

    Example:
        >>> import torch
        >>> regret = torch.tensor([[1.0, 0.5, 0.0], [3.0, 0.5, 1.0]], dtype=torch.float64)
        >>> ax = plot_regret({"a method": regret})
        >>> ax.get_lines()[0].get_ydata().tolist()
        [2.0, 2.5, 3.0]
    """
    check_instance("results", results, Mapping, "Pass a dictionary of results by name.")
    if not 1 <= len(results) <= len(LINE_STYLES):
        raise ValueError(
            f"results has {len(results)} methods; pass 1 to {len(LINE_STYLES)} of them, and draw "
            "more in several panels with ax=."
        )
    check_one_of("kind", kind, tuple(LABELS))
    quantiles = None if band is None else _check_band(band)
    curves = {name: _read(name, method, kind) for name, method in results.items()}
    ax = axes_or_new(ax)
    for (name, regret), style in zip(curves.items(), LINE_STYLES, strict=False):
        rounds = torch.arange(1, regret.shape[-1] + 1).numpy()
        middle, low, high = _summarize(regret, quantiles)
        if len(regret) > 1:
            ax.fill_between(
                rounds, low.numpy(), high.numpy(), color=style["color"], alpha=0.2, lw=0
            )
        is_shown = middle > 0.0 if logarithmic else middle.isfinite()
        ax.plot(rounds, torch.where(is_shown, middle, torch.nan).numpy(), label=name, **style)
    ax.set_xlabel("round")
    ax.set_ylabel(LABELS[kind])
    if logarithmic:
        ax.set_xscale("log")
        ax.set_yscale("log")
    ax.margins(x=0.0)
    ax.legend(fontsize=SMALL)
    return ax


def _summarize(regret: Tensor, quantiles: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the line and both edges of its band, ``num_rounds`` each."""
    if quantiles is not None:
        low, middle, high = regret.quantile(quantiles, dim=0)
        return middle, low, high
    mean = regret.mean(dim=0)
    error = regret.std(dim=0) / len(regret) ** 0.5 if len(regret) > 1 else torch.zeros_like(mean)
    return mean, mean - error, mean + error


def _read(name: str, method: Any, kind: str) -> Tensor:
    """Return ``num_replicates x num_rounds`` regrets of a kind."""
    parts = method if is_list(method) else [method]
    rows = [_read_one(f"results[{name!r}]", part, kind) for part in parts]
    sizes = sorted({row.shape[-1] for row in rows})
    if len(sizes) != 1:
        raise ValueError(
            f"results[{name!r}] has {len(rows)} replicates of {sizes} rounds; pass at least one, "
            "and cut them to the same number of rounds or give them different names."
        )
    return torch.cat(rows)


def _read_one(where: str, part: Any, kind: str) -> Tensor:
    given = getattr(part, "regret", part)
    if not isinstance(given, Tensor):
        raise TypeError(
            f"{where} is a {type(part).__name__}; pass the result of run or simulate, or a tensor "
            "num_replicates x num_rounds of regrets."
        )
    regret = check_finite(f"regret of {where}", check_double(where, given.detach().cpu()))
    if regret.dim() not in (1, 2) or regret.numel() == 0:
        raise ValueError(
            f"{where} has shape {tuple(regret.shape)}; regrets must be num_replicates x num_rounds "
            "or num_rounds, with at least one round."
        )
    regret = regret.reshape(-1, regret.shape[-1])
    if kind == "simple":
        if given is part:
            return regret.cummin(dim=-1).values
        simple: Tensor = part.simple_regret.detach().cpu()  # it accounts for late outcomes
        return simple.reshape(regret.shape)
    total = regret.cumsum(dim=-1)
    if kind == "cumulative":
        return total
    return total / torch.arange(1, total.shape[-1] + 1, dtype=DTYPE)


def _check_band(band: tuple[float, float]) -> Tensor:
    """Return lower, middle and upper probability."""
    low, high = (check_probability("band", value) for value in band)
    if low >= 0.5 or high <= 0.5:
        raise ValueError(f"band is {band!r}; give one probability below and one above one half.")
    return torch.tensor([low, 0.5, high], dtype=DTYPE)

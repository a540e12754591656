"""Regret against rounds, to compare methods and to see how fast it grows.

Curves are means over replicates, with bands of their standard error, and powers of the round for
comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_double,
    check_finite,
    check_integer,
    check_one_of,
    check_probability,
)
from botorch_bandits.plotting.labels import label_lines
from botorch_bandits.plotting.style import SMALL, axes_or_new, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = {
    "cumulative": "cumulative regret",
    "average": "cumulative regret / round",
    "simple": "simple regret",
}
STANDARD_ERROR = "standard_error"


def plot_regret(
    results: Any,
    kind: str = "cumulative",
    *,
    labels: Sequence[str] | None = None,
    band: str | tuple[float, float] | None = STANDARD_ERROR,
    logarithmic: bool = False,
    fit_from: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw regret over rounds: one line per method, with the spread of its replicates shaded.

    Args:
        results: One method or several, by name in a dictionary or in a list. A method is the result
            of :func:`~botorch_bandits.run` or of :func:`~botorch_bandits.simulate`, a tensor of
            the regrets of single rounds (``num_replicates x num_rounds``, or ``num_rounds``), or a
            list of these, which are then replicates.
        kind: ``"cumulative"``, the sum up to each round; ``"average"``, that divided by the round;
            or ``"simple"``, the smallest so far (for results of ``run`` among the outcomes that
            have arrived; nothing is drawn before the first has in every replicate).
        labels: One per method, if ``results`` is a list.
        band: ``"standard_error"`` draws the mean with one standard error on either side. A pair of
            probabilities, such as ``(0.25, 0.75)``, draws the median between these quantiles. None
            draws only the mean. A single replicate has no band.
        logarithmic: Whether axes are logarithmic; regrets that are not positive are then left out.
        fit_from: Fit a power of the round to each line by least squares in logarithms, from this
            round on, and draw it over all rounds; the exponent is in the legend. None fits nothing.
        ax: Axes to draw on; new ones if omitted. Names are written at the ends of the lines if the
            figure has a layout that makes room for them, such as a constrained one; otherwise there
            is a legend.

    Raises:
        TypeError: If a result is of another kind, or a tensor is not float64.
        ValueError: If a tensor has another shape, an entry is not finite, replicates have different
            numbers of rounds, or nothing can be fitted.

    Example:
        >>> import torch
        >>> regret = torch.tensor([[1.0, 0.5, 0.0], [3.0, 0.5, 1.0]], dtype=torch.float64)
        >>> ax = plot_regret({"a method": regret})
        >>> ax.get_lines()[0].get_ydata().tolist()
        [2.0, 2.5, 3.0]
    """
    check_one_of("kind", kind, tuple(LABELS))
    quantiles = _check_band(band)
    curves = {name: _read(name, method, kind) for name, method in _named(results, labels).items()}
    if fit_from is not None:
        fit_from = check_integer("fit_from", fit_from, minimum=1)
    ax = axes_or_new(ax)
    for i, (name, regret) in enumerate(curves.items()):
        rounds = torch.arange(1, regret.shape[-1] + 1, dtype=DTYPE)
        middle, low, high = _summarize(regret, quantiles)
        if len(regret) > 1 and band is not None:
            color = line_style(i)["color"]
            ax.fill_between(rounds.numpy(), low.numpy(), high.numpy(), color=color, alpha=0.2, lw=0)
        is_shown = middle > 0.0 if logarithmic else middle.isfinite()
        shown = torch.where(is_shown & middle.isfinite(), middle, torch.nan)
        ax.plot(rounds.numpy(), shown.numpy(), lw=1.5, label=name, **line_style(i))
        if fit_from is not None:
            _draw_power(ax, name, middle, fit_from, i)
    ax.set_xlabel("round")
    ax.set_ylabel(LABELS[kind])
    if logarithmic:
        ax.set_xscale("log")
        ax.set_yscale("log")
    ax.margins(x=0.0)
    if ax.figure.get_layout_engine() is None:  # there is no room beside the axes
        ax.legend(fontsize=SMALL)
    else:
        label_lines(ax)
    return ax


@dataclass(frozen=True)
class _Power:
    """``factor * t ** exponent``."""

    factor: float
    exponent: float

    @classmethod
    def fit(cls, rounds: Tensor, values: Tensor) -> _Power:
        x, y = rounds.log(), values.log()
        exponent = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
        return cls(float((y.mean() - exponent * x.mean()).exp()), float(exponent))


def _draw_power(ax: Axes, name: str, middle: Tensor, fit_from: int, number: int) -> None:
    rounds = torch.arange(1, len(middle) + 1, dtype=DTYPE)
    values = middle[fit_from - 1 :]
    if len(values) < 2 or not bool(((values > 0.0) & values.isfinite()).all()):
        raise ValueError(
            f"fit_from is {fit_from}, but {name!r} has {len(middle)} rounds, and a power is fitted "
            "to at least two rounds of positive finite regret. Pass a smaller fit_from, or a "
            "larger one if the first regrets are not positive."
        )
    power = _Power.fit(rounds[fit_from - 1 :], values)
    ax.plot(
        rounds.numpy(),
        (power.factor * rounds**power.exponent).numpy(),
        color=line_style(number)["color"],
        lw=0.9,
        ls=(0, (6, 1.5) + (1, 1.5) * (number + 2)),  # the number of dots distinguishes the fits
        label=f"{name}: exponent {power.exponent:.2f}, fitted from round {fit_from}",
    )


def _summarize(regret: Tensor, quantiles: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the line and both edges of its band, ``num_rounds`` each."""
    if quantiles is not None:
        low, middle, high = regret.quantile(quantiles, dim=0)
        return middle, low, high
    mean = regret.mean(dim=0)
    error = regret.std(dim=0) / len(regret) ** 0.5 if len(regret) > 1 else torch.zeros_like(mean)
    return mean, mean - error, mean + error


def _named(results: Any, labels: Sequence[str] | None) -> dict[str, Any]:
    """Return methods by name."""
    if isinstance(results, Mapping):
        if labels is not None:
            raise ValueError("labels goes with a list; the dictionary results has names already.")
        named = {str(name): method for name, method in results.items()}
    else:
        methods = list(results) if isinstance(results, list | tuple) else [results]
        names = [f"method {i + 1}" for i in range(len(methods))] if labels is None else list(labels)
        if len(methods) == 1 and labels is None:
            names = ["regret"]
        if isinstance(labels, str) or len(names) != len(methods) or len(set(names)) != len(names):
            raise ValueError(
                f"labels is {labels!r}; give one name for each of the {len(methods)} results, all "
                "different."
            )
        named = dict(zip(names, methods, strict=True))
    if not named:
        raise ValueError("results is empty; pass the result of run or simulate, or a tensor.")
    return named


def _read(name: str, method: Any, kind: str) -> Tensor:
    """Return ``num_replicates x num_rounds`` regrets of a kind."""
    parts = method if isinstance(method, list | tuple) else [method]
    if not parts:
        raise ValueError(f"results[{name!r}] is empty; leave it out, or pass its replicates.")
    rows = [_read_one(f"results[{name!r}]", part, kind) for part in parts]
    sizes = sorted({row.shape[-1] for row in rows})
    if len(sizes) > 1:
        raise ValueError(
            f"results[{name!r}] has replicates of {', '.join(map(str, sizes))} rounds; cut them to "
            "the same number, or give them different names."
        )
    return torch.cat(rows)


def _read_one(where: str, part: Any, kind: str) -> Tensor:
    has_own = not isinstance(part, Tensor)
    regret = getattr(part, "regret", None) if has_own else part
    if not isinstance(regret, Tensor):
        raise TypeError(
            f"{where} is a {type(part).__name__}; pass the result of run or simulate, or a tensor "
            "num_replicates x num_rounds of regrets."
        )
    regret = check_finite(f"regret of {where}", check_double(where, regret.detach().cpu()))
    if regret.dim() not in (1, 2) or regret.numel() == 0:
        raise ValueError(
            f"{where} has shape {tuple(regret.shape)}; regrets must be num_replicates x num_rounds "
            "or num_rounds, with at least one round."
        )
    regret = regret.reshape(-1, regret.shape[-1])
    if kind == "simple":
        if not has_own:
            return regret.cummin(dim=-1).values
        simple: Tensor = part.simple_regret.detach().cpu()  # it accounts for late outcomes
        return simple.reshape(regret.shape)
    total = regret.cumsum(dim=-1)
    if kind == "cumulative":
        return total
    return total / torch.arange(1, total.shape[-1] + 1, dtype=DTYPE)


def _check_band(band: Any) -> Tensor | None:
    """Return lower, middle and upper probability, or None for a mean."""
    if band is None or band == STANDARD_ERROR:
        return None
    if not isinstance(band, tuple | list) or len(band) != 2:
        raise ValueError(
            f"band is {band!r}; it must be {STANDARD_ERROR!r}, None or two probabilities such as "
            "(0.25, 0.75)."
        )
    low, high = (check_probability("band", value) for value in band)
    if low >= 0.5 or high <= 0.5:
        raise ValueError(f"band is {band!r}; give one probability below and one above one half.")
    return torch.tensor([low, 0.5, high], dtype=DTYPE)

"""The table of curves, which has what figures show at a selection of rounds.

Every figure of an experiment can be drawn from it and the other tables without playing anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from papers.shi import averages
from papers.trials import ArmsExperiment, Curves

CURVES_TABLE = "curves"
"""The name of the table, without ``.csv``."""

MOST_ROUNDS = 60
"""The approximate largest number of rounds of a curve in the table."""

DIGITS = 5
"""The digits of the numbers in the table, which are only drawn."""


def over_rounds(experiment: ArmsExperiment, curve: Curves) -> dict[str, Tensor]:
    """Return what a figure shows over the rounds by name, each ``num_trials x num_rounds``.

    A run has NaN after it has stopped, and no finite simple regret before its first outcome.

    Args:
        experiment: A panel.
        curve: The result of one of its methods.
    """
    if "constraint" in curve.others:
        if experiment.totals:
            cost = curve.others["constraint"]
            totals = (curve.regret.cumsum(-1), cost.cumsum(-1))
            return dict(zip(("cumulative regret", "cumulative cost"), totals, strict=True))
        known = averages(curve)
        after = torch.arange(1, experiment.num_rounds + 1) > known.stopped.unsqueeze(1)
        return {
            f"time-averaged {name}": getattr(known, name).masked_fill(after, torch.nan)
            for name in ("regret", "violation")
        }
    if curve.simple_regret is not None:
        return {"simple regret": curve.simple_regret}
    total = curve.regret.cumsum(-1)
    if experiment.average:
        return {"mean regret a round": total / torch.arange(1, total.shape[1] + 1)}
    return {"cumulative regret": total}


def shown_rounds(num_rounds: int, logarithmic: bool = False, most: int = MOST_ROUNDS) -> list[int]:
    """Return evenly spaced rounds from the first to the last one.

    Args:
        num_rounds: The last round.
        logarithmic: Whether to space them evenly on a logarithmic axis.
        most: The largest number of rounds.
    """
    if num_rounds <= most:
        return list(range(1, num_rounds + 1))
    last = torch.tensor(float(num_rounds), dtype=torch.float64)
    grid = torch.linspace(0, float(last.log()), most, dtype=torch.float64).exp()
    if not logarithmic:
        grid = torch.linspace(1, float(last), most, dtype=torch.float64)
    return [int(t) for t in grid.round().to(torch.int64).unique()]


def tabulate_curves(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]]
) -> list[dict[str, Any]]:
    """Return one row per panel, method, quantity and round: mean, standard error and median.

    They are over the runs that have not stopped before the round, as long as these are at least
    half of all runs. The standard error is empty with a single run.

    Args:
        experiments: The panels.
        curves: Their results.
    """
    return [
        {"experiment": experiment.name, "method": method, "quantity": quantity, **row}
        for experiment, results in zip(experiments, curves, strict=True)
        for method, curve in results.items()
        for quantity, values in over_rounds(experiment, curve).items()
        for row in _rows(values, experiment.logarithmic)
    ]


def _rows(values: Tensor, logarithmic: bool) -> Iterator[dict[str, Any]]:
    values = values.to(torch.float64)
    enough = values.isfinite().sum(0) >= (len(values) + 1) // 2
    last = int(enough.nonzero()[-1]) + 1 if bool(enough.any()) else 0
    for t in shown_rounds(last, logarithmic):
        if not bool(enough[t - 1]):
            continue
        going = values[:, t - 1]
        going = going[going.isfinite()]
        error = _short(going.std() / len(going) ** 0.5) if len(going) > 1 else ""
        yield {
            "round": t,
            "mean": _short(going.mean()),
            "standard_error": error,
            "median": _short(going.quantile(0.5)),
        }


def _short(value: Tensor) -> float:
    return float(f"{float(value):.{DIGITS}g}")

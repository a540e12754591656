"""Tables of experiments on arms, and the files they are written to.

A table has means, standard errors and medians over trials, with one row per method. Files are
replaced as a whole.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.cli import write_atomically
from papers.trials import ArmsExperiment, Curves

REPORTED_ROUND = 80
"""The round at which simple regrets are also tabulated."""

_FIRST_COLUMNS = (
    ("mean", ("mean", 12, ".5g")),
    ("std. error", ("standard_error", 12, ".3g")),
    ("median", ("median", 12, ".5g")),
)
COLUMNS = (
    *_FIRST_COLUMNS,
    ("simple", ("final_simple_regret", 12, ".3g")),
    ("covered", ("covered", 9, ".3f")),
)
SIMPLE_COLUMNS = (
    *_FIRST_COLUMNS,
    (f"round {REPORTED_ROUND}", (f"round_{REPORTED_ROUND}_mean", 12, ".5g")),
    ("cumulative", ("cumulative_mean", 12, ".5g")),
)
"""Title, key, width and format of the printed columns."""


def tabulate(experiment: ArmsExperiment, curves: Mapping[str, Curves]) -> list[dict[str, Any]]:
    """Return one row per method: mean, standard error and median of the final regret."""
    rows = []
    for name, curve in curves.items():
        row: dict[str, Any] = {
            "experiment": experiment.name,
            "method": name,
            "trials": len(curve.regret),
            "rounds": experiment.num_rounds,
        }
        total = curve.regret.sum(-1)
        if curve.simple_regret is not None:
            rows.append(row | _tabulate_simple(curve.simple_regret, total))
            continue
        if experiment.average:
            total = total / experiment.num_rounds
        rows.append(
            row
            | {
                "regret": "R_T / T" if experiment.average else "R_T",
                "mean": float(total.mean()),
                "standard_error": _standard_error(total),
                "median": float(total.quantile(0.5)),
                "final_simple_regret": float(curve.regret.amin(-1).mean()),
                "covered": ""
                if curve.covered is None
                else float(curve.covered.to(torch.float64).mean()),
                "mean_width": "" if curve.mean_width is None else curve.mean_width,
            }
        )
        for quantity in experiment.tabulated:
            values = curve.others[quantity].to(total.dtype)
            rows[-1][f"{quantity}_mean"] = float(values.mean())
            rows[-1][f"{quantity}_standard_error"] = _standard_error(values)
    return rows


def _tabulate_simple(simple: Tensor, total: Tensor) -> dict[str, Any]:
    final = simple[:, -1]
    early = simple[:, REPORTED_ROUND - 1] if simple.shape[1] >= REPORTED_ROUND else None
    at = f"round_{REPORTED_ROUND}"
    return {
        "regret": "simple",
        "mean": float(final.mean()),
        "standard_error": _standard_error(final),
        "median": float(final.quantile(0.5)),
        f"{at}_mean": "" if early is None else float(early.mean()),
        f"{at}_standard_error": "" if early is None else _standard_error(early),
        f"{at}_median": "" if early is None else float(early.quantile(0.5)),
        "cumulative_mean": float(total.mean()),
        "cumulative_standard_error": _standard_error(total),
    }


def _standard_error(values: Tensor) -> float:
    return float(values.std() / len(values) ** 0.5) if len(values) > 1 else 0.0


def format_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as text with aligned columns."""
    columns = SIMPLE_COLUMNS if rows[0]["regret"] == "simple" else COLUMNS
    lines = [f"{'method':<28}" + "".join(f"{title:>{width}}" for title, (_, width, _) in columns)]
    for row in rows:
        cells = [
            f"{'' if row[key] == '' else format(row[key], digits):>{width}}"
            for _, (key, width, digits) in columns
        ]
        lines.append(f"{row['method']:<28}" + "".join(cells))
    return "\n".join(lines)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as a CSV file, replacing the whole file; missing entries of a row are empty."""
    text = io.StringIO()
    columns = dict.fromkeys(column for row in rows for column in row)
    writer = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.10g}" if isinstance(v, float) else v for k, v in row.items()})
    write_atomically(path, text.getvalue())

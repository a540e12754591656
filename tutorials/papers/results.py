"""Tables and figures of experiments on arms, and the files they are written to.

A table has means, standard errors and medians over trials, one row a method; a figure has the mean
regret with a band of one standard error on either side. Files are replaced as a whole.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.cli import replaced_at_the_end, write_atomically
from botorch_bandits.plotting import LINE_STYLES, new_figure
from papers.trials import ArmsExperiment, Curves

REPORTED_ROUND = 80
"""Simple regrets are tabulated at this round, too."""

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
"""Title, key, width and format of what is printed."""


def tabulate(experiment: ArmsExperiment, curves: Mapping[str, Curves]) -> list[dict[str, Any]]:
    """Return one row a method: mean, standard error and median of the final regret."""
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


def plot_curves(
    experiments: Sequence[ArmsExperiment],
    curves: Sequence[Mapping[str, Curves]],
    num_columns: int = 5,
) -> Any:
    """Draw one panel an experiment, as the papers do: regret over rounds, one line a method.

    Bands are one standard error wide on either side.

    Args:
        experiments: One panel each.
        curves: Their results.
        num_columns: At most so many panels stand side by side.

    Returns:
        An array of axes.
    """
    num_columns = min(len(experiments), num_columns)
    num_rows = -(-len(experiments) // num_columns)
    _, axes = new_figure(num_rows, num_columns, width=5.2 * num_columns, height=3.6 * num_rows)
    panels = axes.reshape(-1)
    for ax in panels[len(experiments) :]:
        ax.remove()
    panels = panels[: len(experiments)]
    for ax, experiment, results in zip(panels, experiments, curves, strict=True):
        label = "mean regret a round" if experiment.average else "cumulative regret"
        for (name, curve), style in zip(results.items(), itertools.cycle(LINE_STYLES)):
            rounds = torch.arange(1, curve.regret.shape[1] + 1)
            shown = curve.regret.cumsum(-1)
            shown = shown / rounds if experiment.average else shown
            if curve.simple_regret is not None:
                shown, label = curve.simple_regret, "simple regret"
            mean = shown.mean(0)
            ax.plot(rounds, mean, label=name, lw=1.4, **style)
            if len(shown) > 1:
                error = shown.std(0) / len(shown) ** 0.5
                ax.fill_between(rounds, mean - error, mean + error, color="0.5", alpha=0.2, lw=0)
        ax.set_title(experiment.title, fontsize=9)
        ax.set_xlabel("round")
        ax.set_ylabel(label)
        if experiment.logarithmic:
            ax.set_xscale("log")
            ax.set_yscale("log")
        else:
            ax.set_ylim(bottom=0)
        ax.legend(fontsize=7)
    return panels


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as a CSV file, replaced as a whole; what a row lacks is empty."""
    text = io.StringIO()
    columns = dict.fromkeys(column for row in rows for column in row)
    writer = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.10g}" if isinstance(v, float) else v for k, v in row.items()})
    write_atomically(path, text.getvalue())


def save_figure(figure: Any, path: Path) -> None:
    """Save a figure as a PNG of few colors, replaced as a whole, and close it."""
    import matplotlib.pyplot as plt
    from PIL import Image  # which matplotlib brings

    picture = io.BytesIO()
    figure.savefig(picture, dpi=110, format="png")
    plt.close(figure)
    with replaced_at_the_end(path) as file:
        # lines in gray need no more, and pages hold many pictures
        Image.open(picture).convert("RGB").quantize(32).save(file, format="PNG", optimize=True)

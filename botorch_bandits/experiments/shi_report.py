"""What the figures of Shi and Eryilmaz say in numbers: regret with its violation, fitted powers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE
from botorch_bandits.experiments.arms_experiment import ArmsExperiment, Curves
from botorch_bandits.experiments.results import save_figure, write_csv
from botorch_bandits.plotting import LINE_STYLES, new_figure
from botorch_bandits.random_streams import generator

NUM_RESAMPLES = 2000
"""Of the bootstrap."""

NUM_BOXES = 10


@dataclass(frozen=True)
class Growth:
    """A fitted power with its 95% interval.

    Attributes:
        power: Of ``mean total = constant * rounds ** power``.
        lower: Lower end of the interval.
        upper: Its upper end.
    """

    power: float
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class Averages:
    """Time averages of one method, ``num_trials x num_rounds`` each.

    Attributes:
        regret: Can be negative where the constraint is violated.
        violation: Signed: the positive part of the sum, over the rounds.
        rectified: The sum of positive parts, over the rounds.
        stopped: ``num_trials``; the round after which a method had nothing more to do.
    """

    regret: Tensor
    violation: Tensor
    rectified: Tensor
    stopped: Tensor

    def at(self, name: str, round_number: int) -> Tensor:
        """Return a quantity after a round, or after the stop of runs that stopped before.

        Args:
            name: ``"regret"``, ``"violation"`` or ``"rectified"``.
            round_number: From 1.
        """
        rows = self.stopped.clamp_max(round_number) - 1
        values: Tensor = getattr(self, name)
        return values.gather(1, rows.unsqueeze(1)).squeeze(1)

    @property
    def last_round(self) -> int:
        """The last round in which at least half of the runs had not stopped."""
        return int(self.stopped.sort(descending=True).values[(len(self.stopped) - 1) // 2])

    def running_mean(self, name: str) -> Tensor:
        """Return the mean over runs that have not stopped, up to :attr:`last_round`.

        Args:
            name: As for :meth:`at`.
        """
        values: Tensor = getattr(self, name)[:, : self.last_round]
        runs = torch.arange(1, self.last_round + 1) <= self.stopped.unsqueeze(1)
        return (values * runs).sum(0) / runs.sum(0)


def averages(curve: Curves) -> Averages:
    """Return the time averages of a result of ``play_with_constraints``."""
    rounds = torch.arange(1, curve.regret.shape[1] + 1, dtype=DTYPE)
    constraint = curve.others["constraint"]
    return Averages(
        curve.regret.cumsum(1) / rounds,
        constraint.cumsum(1).clamp_min(0.0) / rounds,
        constraint.clamp_min(0.0).cumsum(1) / rounds,
        curve.others["stopped"],
    )


def fit_growth(sizes: Sequence[int], totals: Tensor, seed: int = 0) -> Growth | None:
    """Fit ``log(mean total) = log(constant) + power * log(size)`` by least squares.

    The interval is that of the percentile bootstrap over runs. Sizes are rounds of the same runs,
    so a run is drawn with all of its sizes.

    Args:
        sizes: At least two different ones.
        totals: ``num_runs x len(sizes)``.
        seed: Seeds the bootstrap.

    Returns:
        None where a mean is not positive, in the data or in more than 2.5% of the resamples: there
        is no power to fit then.
    """
    logs = torch.tensor(sizes, dtype=DTYPE).log()
    centred = logs - logs.mean()
    weights = centred / centred.square().sum()
    means = totals.mean(0)
    if not bool((means > 0.0).all()):
        return None
    rows = torch.randint(
        len(totals), (NUM_RESAMPLES, len(totals)), generator=generator(seed, 0, "bootstrap")
    )
    drawn = totals[rows].mean(1)
    usable = (drawn > 0.0).all(-1)
    if float(usable.to(DTYPE).mean()) < 0.975:
        return None
    slopes = drawn[usable].log() @ weights
    lower, upper = slopes.quantile(torch.tensor([0.025, 0.975], dtype=DTYPE)).tolist()
    return Growth(float(means.log() @ weights), lower, upper)


def tabulate_violation(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]]
) -> list[dict[str, Any]]:
    """Return two rows a panel and method: half way, and at the end."""
    rows = []
    for experiment, results in zip(experiments, curves, strict=True):
        for name, curve in results.items():
            known = averages(curve)
            for t in sorted({max(experiment.num_rounds // 2, 1), experiment.num_rounds}):
                row: dict[str, Any] = {
                    "experiment": experiment.name,
                    "method": name,
                    "trials": len(curve.regret),
                    "round": t,
                }
                for quantity in ("regret", "violation", "rectified"):
                    values = known.at(quantity, t)
                    row[f"{quantity}_mean"] = float(values.mean())
                    row[f"{quantity}_standard_error"] = _standard_error(values)
                    row[f"{quantity}_median"] = float(values.quantile(0.5))
                row["mean_stop"] = float(known.stopped.clamp_max(t).to(DTYPE).mean())
                multiplier = curve.others["multiplier"]
                row["median_last_multiplier"] = (
                    "" if bool(multiplier.isnan().any()) else float(multiplier.quantile(0.5))
                )
                rows.append(row)
    return rows


def tabulate_growth(experiment: ArmsExperiment, results: Mapping[str, Curves]) -> list[Any]:
    """Return the fitted powers of a panel over a quarter, half and all of its rounds.

    Three totals are fitted: the positive part of each run's regret, the signed violation, and the
    priced regret ``sum_t max_x (f - price g)(x) - (f - price g)(x_t)`` with the optimal multiplier
    of the box as the price, which is never negative.
    """
    assert experiment.settings is not None
    sizes = [experiment.num_rounds // 4, experiment.num_rounds // 2, experiment.num_rounds]
    rows = []
    for name, curve in results.items():
        regret, constraint = curve.regret.cumsum(1), curve.others["constraint"].cumsum(1)
        price = experiment.settings["price"]
        # of the grid for our methods; on the box the largest priced value is the optimal one
        shift = 0.0
        if not name.startswith("OCO"):
            largest = experiment.settings["largest_priced_value_of_grid"]
            shift = largest - experiment.settings["optimal_value_of_grid"]
        rounds = torch.arange(1, regret.shape[1] + 1, dtype=DTYPE)
        totals = {
            "regret": regret.clamp_min(0.0),
            "violation": constraint.clamp_min(0.0),
            "priced regret": shift * rounds + regret + price * constraint,
        }
        for quantity, values in totals.items():
            at = values[:, [size - 1 for size in sizes]]
            fit = fit_growth(sizes, at)
            means = {f"mean_total_{i + 1}": float(v) for i, v in enumerate(at.mean(0))}
            rows.append(
                {
                    "experiment": experiment.name,
                    "method": name,
                    "quantity": quantity,
                    "trials": len(at),
                    "first_round": sizes[0],
                    "last_round": sizes[-1],
                    **means,
                    "power": "" if fit is None else fit.power,
                    "lower": "" if fit is None else fit.lower,
                    "upper": "" if fit is None else fit.upper,
                }
            )
    return rows


def report(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]], folder: Path
) -> Any:
    """Print regrets with their violations and the fitted powers; draw the paper's figures.

    Writes ``violation.csv`` and ``growth.csv``, and box plots as ``boxes.png``.

    Args:
        experiments: The panels of ``shi-gardner`` or ``shi-rates``.
        curves: Their results.
        folder: Where files go.

    Returns:
        The axes of the figure of means.
    """
    rows = tabulate_violation(experiments, curves)
    write_csv(folder / "violation.csv", rows)
    quantities = ("regret", "violation", "rectified")
    print(f"\n{'time averages: mean (standard error)':<58}{'round':>6}", end="")
    print("".join(f"{quantity:>18}" for quantity in quantities))
    for row in rows:
        cells = [f"{row[f'{q}_mean']:.3f} ({row[f'{q}_standard_error']:.3f})" for q in quantities]
        name = f"{row['experiment']}, {row['method']}"
        print(f"{name:<58}{row['round']:>6}" + "".join(f"{cell:>18}" for cell in cells))
    growth = [
        row
        for experiment, results in zip(experiments, curves, strict=True)
        if experiment.name.endswith("-powers") and experiment.num_rounds >= 4
        for row in tabulate_growth(experiment, results)
    ]
    if growth:
        write_csv(folder / "growth.csv", growth)
        print("\nfitted powers of totals, with 95% intervals (bootstrap over runs)")
        for row in growth:
            words = "not positive throughout: no power"
            if row["power"] != "":
                words = f"{row['power']:.2f} ({row['lower']:.2f} to {row['upper']:.2f})"
            print(f"{row['method']:<24}{row['quantity']:<16}{words}")
    save_figure(_draw_boxes(_compared(experiments, curves, ("",))), folder / "boxes.png")
    return _draw_means(_compared(experiments, curves, ("", "slow")))


def _compared(
    experiments: Sequence[ArmsExperiment],
    curves: Sequence[Mapping[str, Curves]],
    parts: tuple[str, ...],
) -> dict[str, dict[str, Averages]]:
    """Return the averages of compared methods, without noise on the constraint and with it."""
    found: dict[str, dict[str, Averages]] = {}
    for experiment, results in zip(experiments, curves, strict=True):
        kind, _, rest = experiment.name.split("-", 2)[2].partition("-")
        if kind in ("noiseless", "noisy") and rest in parts:
            known = {name: averages(curve) for name, curve in results.items()}
            found.setdefault(kind, {}).update(known)
    return found


def _draw_means(compared: Mapping[str, Mapping[str, Averages]]) -> Any:
    """One row with exact and one with noisy constraint values: mean regret and violation."""
    _, axes = new_figure(len(compared), 2, width=10.0, height=3.4 * len(compared))
    for row, (kind, methods) in zip(axes, compared.items(), strict=True):
        for ax, quantity in zip(row, ("regret", "violation"), strict=True):
            for (name, known), style in zip(methods.items(), itertools.cycle(LINE_STYLES)):
                mean = known.running_mean(quantity)
                ax.plot(range(1, len(mean) + 1), mean, label=name, lw=1.4, **style)
            ax.axhline(0.0, color="0.7", lw=0.8, zorder=0)
            ax.set_title(f"constraint {kind}", fontsize=9)
            ax.set_xlabel("round")
            ax.set_ylabel(f"time-averaged {quantity}")
        row[0].legend(fontsize=7)
    return axes.reshape(-1)


def _draw_boxes(compared: Mapping[str, Mapping[str, Averages]]) -> Any:
    """One row a method, as in the paper: box plots over runs at several rounds."""
    shown = [(kind, *pair) for kind, methods in compared.items() for pair in methods.items()]
    figure, axes = new_figure(len(shown), 2, width=10.0, height=1.9 * len(shown))
    for row, (kind, name, known) in zip(axes, shown, strict=True):
        last = known.last_round
        times = sorted({max(last * i // NUM_BOXES, 1) for i in range(1, NUM_BOXES + 1)})
        for ax, quantity in zip(row, ("regret", "violation"), strict=True):
            boxes = [known.at(quantity, t)[known.stopped >= t].numpy() for t in times]
            ax.boxplot(boxes, medianprops={"color": "black"}, flierprops={"ms": 2})
            ax.set_xticks(range(1, len(times) + 1), [str(t) for t in times], fontsize=7)
            ax.axhline(0.0, color="0.7", lw=0.8, zorder=0)
            ax.set_title(f"{name}, constraint {kind}", fontsize=8)
            ax.set_ylabel(quantity, fontsize=8)
    for ax in axes[-1]:
        ax.set_xlabel("round")
    return figure


def _standard_error(values: Tensor) -> float:
    return float(values.std() / len(values) ** 0.5) if len(values) > 1 else 0.0

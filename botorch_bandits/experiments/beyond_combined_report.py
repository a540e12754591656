"""What the combined experiment shows, and how much its detector can see."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from botorch_bandits.domains import Arms
from botorch_bandits.experiments.arms_experiment import ArmsExperiment, Curves
from botorch_bandits.experiments.beyond_combined import restart_rule
from botorch_bandits.experiments.beyond_scenario import NOISE_STD, arms, draw_scenario, pairs
from botorch_bandits.experiments.results import write_csv
from botorch_bandits.plotting import LINE_STYLES, new_figure
from botorch_bandits.random_streams import derive_seed, generator

FURTHER_SAMPLES = (8, 16, 32)
"""Uniform samples behind the change for which the power of the detector is measured."""


def detection_power(num_rounds: int, num_streams: int = 100) -> list[dict[str, float]]:
    """Return how often the detector sees the change in so many uniform samples behind it.

    Streams are without delay, and as long before the change as the uniform queries of a run are.

    Args:
        num_rounds: The horizon of the threshold.
        num_streams: Scenarios, none of which is among the trials.
    """
    restart, most = restart_rule(num_rounds), FURTHER_SAMPLES[-1]
    assert restart.exploration is not None
    before = int(restart.exploration * (num_rounds // 2) ** 0.5) + 1
    engine = restart.detector.on(Arms(arms()))
    first = []
    for stream in range(num_streams):
        seed = derive_seed(stream, 0, "detection power")
        scenario = draw_scenario(2 * (before + most), seed)
        drawn = generator(seed, 0, "uniform")
        rows = torch.randint(len(pairs()), (before + most,), generator=drawn)
        noise = NOISE_STD * torch.randn(len(rows), dtype=torch.float64, generator=drawn)
        period = (torch.arange(len(rows)) >= before).long()
        Y = scenario.rewards.reshape(2, -1)[period, rows] + noise
        X = pairs()[rows]
        seen = (
            after
            for after in range(1, most + 1)
            if engine.test(
                X[: before + after, 1:], Y[: before + after], contexts=X[: before + after, :1]
            ).detected
        )
        first.append(next(seen, most + 1))
    return [
        {
            "samples_before": before,
            "samples_after": after,
            "streams": num_streams,
            "detected": sum(found <= after for found in first) / num_streams,
        }
        for after in FURTHER_SAMPLES
    ]


def report(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]], folder: Path
) -> Any:
    """Print regret and violation and draw both over the rounds.

    Writes ``power.csv``: what the detector of the policies sees, played by none.

    Args:
        experiments: The panel.
        curves: Its results.
        folder: Where it goes.

    Returns:
        The axes of the figure.
    """
    (experiment,), (results,) = experiments, curves
    quantities = experiment.tabulated
    print("\nmeans (standard errors)\n" + " " * 28 + "".join(f"{q:>18}" for q in quantities))
    for name, curve in results.items():
        cells = []
        for quantity in quantities:
            values = curve.others[quantity].double()
            error = float(values.std() / len(values) ** 0.5) if len(values) > 1 else 0.0
            cells.append(f"{float(values.mean()):.3f} ({error:.3f})")
        print(f"{name:<28}" + "".join(f"{cell:>18}" for cell in cells))
    power = detection_power(experiment.num_rounds)
    write_csv(folder / "power.csv", power)
    for row in power:
        print(f"{row['samples_after']} uniform samples behind the change: ", end="")
        print(f"seen in {row['detected']:.0%} of {row['streams']} streams")
    _, axes = new_figure(1, 2, width=11.0, height=4.2)
    shown = (("cumulative regret", "regret"), ("cumulative cost (0 is the limit)", "constraint"))
    for ax, (label, quantity) in zip(axes.reshape(-1), shown, strict=True):
        for (name, curve), style in zip(results.items(), itertools.cycle(LINE_STYLES)):
            values = curve.regret if quantity == "regret" else curve.others[quantity]
            totals = values.cumsum(-1)
            mean, rounds = totals.mean(0), range(1, totals.shape[1] + 1)
            ax.plot(rounds, mean, label=name, lw=1.4, **style)
            if len(totals) > 1:
                error = totals.std(0) / len(totals) ** 0.5
                ax.fill_between(rounds, mean - error, mean + error, color="0.5", alpha=0.2, lw=0)
        ax.axvline(experiment.num_rounds // 2 + 0.5, color="0.7", lw=0.8, zorder=0)
        ax.axhline(0.0, color="0.7", lw=0.8, zorder=0)
        ax.set_xlabel("round")
        ax.set_ylabel(label)
    axes.reshape(-1)[0].legend(fontsize=7)
    return axes.reshape(-1)

"""Avanesov 2020 with one factor changed, for the claims of Figures 2 and 3 that fail.

The paper does not give ``c``. In addition to the judged settings, this experiment plays settings
that its text names or that follow from its Remark 3.1: the integral in place of the mean (2.4), the
noise variance of (3.4), other ridges, the one that cross-validation chooses among them, and a
calibrated threshold. The file also contains the calibration of the published threshold on streams
without a change, which motivates the ridge of the judged experiments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from botorch_bandits.change_points import (
    PowerThreshold,
    calibrate_threshold,
    cross_validated_ridge,
    estimate_false_alarm_rate,
)
from botorch_bandits.problems import evenly_spaced_change_points, gp_draws_of_periods
from botorch_bandits.random_streams import derive_seed, generator
from papers.avanesov import (
    NOISE_STD,
    NUM_ARMS,
    PERIODS,
    PUBLISHED,
    Statistic,
    arms_of,
    changed_panel,
    count_detections,
    detector,
    fit_power,
    kernel,
    report_comparison,
)
from papers.changed_factors import Changed, FactorRow, mean_of, write_factors
from papers.trials import ArmsExperiment, Curves

FEW_ALARMS = 0.5
"""Fewer false alarms per run than this count as few."""

POWER_CLAIM = "regret grows with the power 0.282, interval 0.21 to 0.35, of K"
ALARMS_CLAIM = f"few false alarms of the detector (here: less than {FEW_ALARMS:g} a run)"

JUDGED = Changed("none", "as judged: c = 1, mean, noise variance", "ours")
VARIANTS: dict[Changed, tuple[float, Statistic, float | str]] = {
    JUDGED: (1.0, "mean", "noise"),
    Changed("ridge of the detector", "c = 0.3", "(3.5), any positive c"): (0.3, "mean", "noise"),
    Changed("ridge of the detector", "c = 3", "(3.5), any positive c"): (3.0, "mean", "noise"),
    Changed("ridge of the detector", "c = 2", "(3.5), any positive c"): (2.0, "mean", "noise"),
    Changed("ridge of the detector", "c = 0.0025, as cross-validation has it", "Remark 3.1"): (
        0.0025,
        "mean",
        "noise",
    ),
    Changed("statistic", "integral over the domain", "(2.4)"): (1.0, "integral", "noise"),
    Changed("regularization of the bound", "6 g^2 ln T", "(3.4)"): (1.0, "mean", "theorem"),
}
"""Ridge, statistic and noise variance of each setting."""

OF_POWERS = 3
"""The number of these settings that are also played for Figure 2, which takes longer."""


def factors(
    num_trials: int = 64,
    num_rounds: int = 2700,
    seed: int = 0,
    num_arms: int = NUM_ARMS,
    chunk: int = 16,
) -> list[ArmsExperiment]:
    """Return a panel for each number of periods of Figure 2, and one for Figure 3.

    The functions and the noise are those of the first trials of the judged experiments.

    Args:
        num_trials: Runs per setting.
        num_rounds: The horizon of Figure 2, to which that of Figure 3 keeps its ratio.
        seed: Seeds functions, noise and draws.
        num_arms: Evenly spaced points of [0, 5].
        chunk: Trials per file.
    """
    size = (num_trials, seed, num_arms, chunk)
    powers = dict(list(VARIANTS.items())[:OF_POWERS])
    compared = num_rounds * 1200 // 2700
    return [
        *(
            changed_panel(
                f"avanesov-factors-periods-{K}",
                f"Figure 2 with {K} periods, one factor changed",
                num_rounds,
                K,
                {changed.name: options for changed, options in powers.items()},
                size,
                functions=f"avanesov-periods-{K}",
            )
            for K in PERIODS
        ),
        changed_panel(
            "avanesov-factors-compare",
            "Figure 3, one factor changed",
            compared,
            4,
            {changed.name: options for changed, options in VARIANTS.items()},
            size,
            functions="avanesov-compare",
        ),
    ]


def tabulate_factors(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]]
) -> list[FactorRow]:
    """Return the rows of both figures.

    Args:
        experiments: The panels of :func:`factors`.
        curves: Their results.
    """
    letter, published = PUBLISHED["periods"]
    rows = []
    for changed in list(VARIANTS)[:OF_POWERS]:
        totals = [results[changed.name].regret.sum(-1) for results in curves[:-1]]
        fit = fit_power(PERIODS, totals)
        agrees = (
            fit.lower <= published.power <= fit.upper
            or published.lower <= fit.power <= published.upper
        )
        rows.append(
            FactorRow(
                "avanesov-2",
                changed.factor,
                changed.setting,
                POWER_CLAIM,
                f"power {fit.power:.3f} of {letter}, interval {fit.lower:.3f} to {fit.upper:.3f}",
                fit.power - published.power,
                (fit.upper - fit.lower) / (2.0 * 1.96),  # of the bootstrap
                "yes" if agrees else "no",
                len(totals[0]),
                changed.source,
            )
        )
    panel, results = experiments[-1], curves[-1]
    change_points = evenly_spaced_change_points(panel.num_rounds, 4)
    for changed in VARIANTS:
        curve = results[changed.name]
        found = count_detections(curve.others["resets"], change_points)
        alarms, error = mean_of(found.false_alarms)
        missed = float(found.missed.mean()) / len(change_points)
        rows.append(
            FactorRow(
                "avanesov-3",
                changed.factor,
                changed.setting,
                ALARMS_CLAIM,
                f"{alarms:.2f} a run; {missed:.0%} of the changes missed, "
                f"regret {float(curve.regret.sum(-1).mean()):.0f}",
                alarms - FEW_ALARMS,
                error,
                "yes" if alarms < FEW_ALARMS else "no",
                len(curve.regret),
                changed.source,
            )
        )
    return rows


def report(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]], folder: Path
) -> None:
    """Write ``factors.csv`` and ``detections.csv``.

    Args:
        experiments: The panels of :func:`factors`.
        curves: Their results.
        folder: The folder for the files.
    """
    write_factors(folder, tabulate_factors(experiments, curves))
    report_comparison(experiments, curves, folder)


CALIBRATED: tuple[tuple[Statistic, float], ...] = (
    *(("mean", c) for c in (0.0025, 0.1, 0.3, 1.0, 2.0, 3.0, 10.0)),
    *(("integral", c) for c in (1.0, 10.0, 30.0)),
)
"""The statistic and the ridge of each row of the calibration."""

CALM_SAMPLES = 30
"""The number of uniform samples in 300 rounds without a reset, at the published exploration."""

SAMPLES_AFTER = 12
"""The number of uniform samples in the next 300 rounds."""

ALARM_RATE = 0.05

CANDIDATES = (1e-4, 3e-4, 1e-3, 2.5e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0)
"""The ridges among which cross-validation chooses."""


def calibration(num_trials: int = 200, seed: int = 0) -> list[dict[str, Any]]:
    """Return how the published threshold performs with several ridges, one row each.

    Nothing is played. Streams of uniform samples are drawn with the functions, the domain and the
    noise of the experiments: as many samples as the policy explores in 300 rounds without a change,
    followed by those of 300 rounds after one. The columns are the share of streams with an alarm
    before the change, its Clopper-Pearson bounds, the share with an alarm at the samples after the
    change, the threshold's scale for which :data:`ALARM_RATE` of the streams without a change would
    alarm, with the share of alarms after the change then, and the share of streams for which
    cross-validation before the change chooses a ridge of this size at most.

    Args:
        num_trials: The number of streams of either kind.
        seed: The seed of the streams.
    """
    arms = arms_of(NUM_ARMS)
    seeds = [derive_seed(seed, i, "environment") for i in range(num_trials)]
    functions = gp_draws_of_periods(kernel(), arms, 2, seeds)
    stream = generator(seed, 0, "calibration of the published threshold")
    total = CALM_SAMPLES + SAMPLES_AFTER
    drawn = torch.randint(NUM_ARMS, (num_trials, total), generator=stream)
    noise = torch.randn(num_trials, total, dtype=torch.float64, generator=stream)
    chosen = torch.tensor(_chosen_ridges(min(num_trials, 50), seed), dtype=torch.float64)
    is_late = (torch.arange(total) >= CALM_SAMPLES).long()
    rewards = functions[torch.arange(num_trials).unsqueeze(-1), is_late, drawn] + NOISE_STD * noise
    simulated: dict[str, Any] = {
        "horizon": CALM_SAMPLES,
        "noise_std": NOISE_STD,
        "num_simulations": num_trials,
        "progress": False,
    }
    rows = []
    for statistic, ridge in CALIBRATED:
        tested = detector(ridge, statistic)
        engine = tested.on(arms)
        calm = estimate_false_alarm_rate(tested, arms, **simulated)
        threshold = calibrate_threshold(
            tested, arms, false_alarm_rate=ALARM_RATE, confidence=None, **simulated
        )
        scale = threshold.levels[0]
        level = PowerThreshold(scale)
        is_seen = torch.zeros(2, dtype=torch.float64)
        for row, values in zip(drawn, rewards, strict=True):
            # the largest ratio of statistic and threshold over the tests after the change
            ratios = []
            for n in range(CALM_SAMPLES + 1, total + 1):
                test = engine.test(arms=row[:n], Y=values[:n])
                ratios.append(float((test.statistics / test.thresholds).max()))
            largest = max(ratios)
            is_seen += torch.tensor(
                [largest > 1.0, largest * PowerThreshold().scale > level.scale],
                dtype=torch.float64,
            )
        seen = (is_seen / num_trials).tolist()
        rows.append(
            {
                "statistic": statistic,
                "ridge": ridge,
                "trials": num_trials,
                "alarms": calm.rate,
                "alarms_low": calm.lower,
                "alarms_high": calm.upper,
                "seen": seen[0],
                "calibrated_scale": scale,
                "seen_calibrated": seen[1],
                "chosen_at_most": float((chosen <= ridge).double().mean()),
            }
        )
    return rows


def _chosen_ridges(num_trials: int, seed: int) -> list[float]:
    """Return the ridge that cross-validation chooses from 30 uniform samples, for each stream."""
    arms = arms_of(NUM_ARMS)
    seeds = [derive_seed(seed, i, "environment") for i in range(num_trials)]
    functions = gp_draws_of_periods(kernel(), arms, 1, seeds)[:, 0]
    stream = generator(seed, 0, "cross-validation of the ridge")
    chosen = []
    for function in functions:
        drawn = torch.randint(NUM_ARMS, (CALM_SAMPLES,), generator=stream)
        noise = torch.randn(CALM_SAMPLES, dtype=torch.float64, generator=stream)
        found = cross_validated_ridge(
            detector(),
            arms,
            arms.choices[drawn],
            function[drawn] + NOISE_STD * noise,
            CANDIDATES,
        )
        chosen.append(found.ridge)
    return chosen

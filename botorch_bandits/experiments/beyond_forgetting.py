"""Beyond the papers: restarting against models that forget.

Every method plays the same upper confidence bound with the same constant width on the right kernel.
The environment switches between independent draws of a Gaussian process, drifts as TV-GP-UCB models
it, or stays as it is. Each way to forget has two settings, as has the detector. They are stated
beforehand: a window of the length of a period and half of that, weights that fade at the same
pace, the drift's own rate and three times that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from botorch_bandits.acquisition import GPUpperConfidenceBound
from botorch_bandits.change_points import (
    ChangePointRestart,
    NeverRestart,
    OracleRestart,
    Restart,
)
from botorch_bandits.experiments.arms_experiment import ArmsExperiment, Curves
from botorch_bandits.experiments.arms_study import ArmsStudy
from botorch_bandits.experiments.avanesov import detector
from botorch_bandits.experiments.avanesov_study import NOISE_STD, arms_of, kernel, prior_of
from botorch_bandits.experiments.beyond_forgetting_study import (
    EnvironmentStudy,
    NonStationaryMethod,
    play_environments,
)
from botorch_bandits.experiments.calibrated_restart import calibrated_restart
from botorch_bandits.experiments.results import plot_curves
from botorch_bandits.forgetting import (
    ExponentialWeights,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.problems import (
    ChangingProblem,
    DriftingGP,
    evenly_spaced_change_points,
    switching_gp_draws,
)
from botorch_bandits.random_streams import derive_seed

NUM_ARMS, NUM_PERIODS, WIDTH = 100, 4, 2.0
DRIFT = 0.01
"""The covariance of two rounds halves in 138 rounds."""

FALSE_ALARM_RATE, NUM_SIMULATIONS = 0.1, 500
"""Of the calibrated threshold, over the uniform queries of a run without a reset."""

NEVER = "never restarts"
PANELS = {
    "abrupt": f"{NUM_PERIODS} periods",
    "drift": f"drift of rate {DRIFT:g}",
    "stationary": "no change",
}


def forgetting(
    num_trials: int = 30,
    num_rounds: int = 400,
    seed: int = 0,
    num_arms: int = NUM_ARMS,
    chunk: int = 15,
) -> list[ArmsExperiment]:
    """Return a panel of abrupt changes, one of a drift and one without a change.

    Args:
        num_trials: Environments a panel.
        num_rounds: The horizon.
        seed: Seeds environments, noise and draws.
        num_arms: Evenly spaced points of [0, 5].
        chunk: Trials in one file.
    """
    settings = {
        "seed": seed,
        "num_arms": num_arms,
        "num_periods": NUM_PERIODS,
        "drift": DRIFT,
        "noise_std": NOISE_STD,
        "width": WIDTH,
        "calibration": (FALSE_ALARM_RATE, NUM_SIMULATIONS),
    }
    return [
        ArmsExperiment(
            name=f"beyond-forgetting-{kind}",
            title=title,
            published="",
            num_trials=num_trials,
            num_rounds=num_rounds,
            make_study=partial(_make_study, kind, num_rounds, num_arms, seed),
            make_methods=_methods,
            player=play_environments,
            chunk=chunk,
            settings=settings,
            tabulated=("resets", "explored"),
        )
        for kind, title in PANELS.items()
    ]


def _make_study(
    kind: str, num_rounds: int, num_arms: int, seed: int, first: int, count: int
) -> EnvironmentStudy:
    own = derive_seed(seed, 0, f"beyond-forgetting-{kind}")
    arms = arms_of(num_arms)
    num_periods = NUM_PERIODS if kind == "abrupt" and num_rounds >= NUM_PERIODS else 1
    changes = evenly_spaced_change_points(num_rounds, num_periods)
    environments: list[ChangingProblem] = []
    for trial in range(first, first + count):
        drawn = derive_seed(own, trial, "environment")
        if kind == "drift":
            environments.append(DriftingGP(kernel(), arms, DRIFT, drawn, NOISE_STD))
        else:
            environments.append(switching_gp_draws(kernel(), arms, changes, drawn, NOISE_STD))
    matrix = prior_of(num_arms).matrix
    assert matrix is not None
    return EnvironmentStudy(
        kernel_matrix=matrix,
        values=torch.zeros(count, 1, dtype=torch.float64),
        noise_std=NOISE_STD,
        num_rounds=num_rounds,
        seed=own,
        first_trial=first,
        environments=environments,
        change_points=changes,
    )


def _methods(study: ArmsStudy) -> list[NonStationaryMethod]:
    assert isinstance(study, EnvironmentStudy)
    recipe = GPUpperConfidenceBound.with_options(width=WIDTH)
    method = partial(NonStationaryMethod, acquisition=recipe, width=WIDTH, lam=NOISE_STD**2)
    methods = [
        method(NEVER),
        method("explores, never restarts", restart=lambda study: NeverRestart()),
        method("restart, published threshold", restart=_published),
        method("restart, calibrated threshold", restart=_calibrated),
    ]
    if study.change_points:
        methods.append(method("restart, oracle", restart=_oracle))
    for length in (50, 100):
        methods.append(method(f"window {length}", forgetting=SlidingWindow(length)))
    for discount in (0.98, 0.99):
        methods.append(method(f"weights {discount}", forgetting=ExponentialWeights(discount)))
    for rate in (DRIFT, 3 * DRIFT):
        methods.append(method(f"time kernel {rate:g}", forgetting=TimeVaryingKernel(rate)))
    return methods


def _published(study: EnvironmentStudy) -> Restart:
    return ChangePointRestart(detector=detector())


def _calibrated(study: EnvironmentStudy) -> Restart:
    return _calibrated_restart(len(study.kernel_matrix), study.num_rounds)


@cache
def _calibrated_restart(num_arms: int, num_rounds: int) -> Restart:
    return calibrated_restart(
        detector(),
        arms_of(num_arms),
        num_rounds,
        noise_std=NOISE_STD,
        false_alarm_rate=FALSE_ALARM_RATE,
        num_simulations=NUM_SIMULATIONS,
    )


def _oracle(study: EnvironmentStudy) -> Restart:
    return OracleRestart(change_points=study.change_points, exploration=None)


def report(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]], folder: Path
) -> Any:
    """Draw restarting methods in one row and forgetting ones in another.

    Args:
        experiments: The panels.
        curves: Their results.
        folder: Not used.

    Returns:
        The axes of the figure.
    """
    rows = []
    for words in ((NEVER, "explores", "restart"), (NEVER, "window", "weights", "time kernel")):
        for results in curves:
            rows.append({n: c for n, c in results.items() if n.startswith(words)})
    return plot_curves([*experiments, *experiments], rows, num_columns=len(experiments))

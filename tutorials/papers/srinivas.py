"""The experiments of Srinivas et al. 2010, section 6 (Figure 5).

GP-UCB with its width divided by the square root of 5 is compared with expected improvement, the
most probable improvement, the mean alone and the variance alone on draws of a Gaussian process and
on readings of temperature and traffic sensors.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_bandits.acquisition import (
    GPUpperConfidenceBound,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
    MeanOnly,
    VarianceOnly,
)
from botorch_bandits.models import double_kernel
from botorch_bandits.random_streams import generator
from papers.environments import SensorData, load_readings
from papers.runner import ArmsExperiment, ArmsStudy, Entry, Method

DELTA = 0.1
BETA_DIVISOR = 5.0
"""The paper divides beta by 5, and therefore the width by the square root of 5."""
MARGIN = 0.1
"""The margin of MPI in (average) prior standard deviations, which the paper does not specify."""


def figure_methods(
    noise_variance: float, margin: float, incumbent: str, beta_divisor: float, study: ArmsStudy
) -> list[Method]:
    """Return the methods of Figure 5.

    Args:
        noise_variance: The regularization of every posterior.
        margin: The margin of MPI, in outcome units; without one, it never explores.
        incumbent: What EI and MPI improve on, ``"posterior_mean"`` or ``"observed"``.
        beta_divisor: Divides beta, the square of GP-UCB's width.
        study: The study to play.
    """
    acquisitions = {
        "GP-UCB (beta / 5)": GPUpperConfidenceBound.with_options(
            delta=DELTA, scale=beta_divisor**-0.5
        ),
        "EI": LogExpectedImprovement.with_options(incumbent=incumbent),
        "MPI": LogProbabilityOfImprovement.with_options(incumbent=incumbent, margin=margin),
        "mean only": MeanOnly.with_options(),
        "variance only": VarianceOnly.with_options(),
    }
    return [Method(name, recipe, noise_variance) for name, recipe in acquisitions.items()]


def synthetic(
    num_trials: int = 30,
    num_rounds: int = 1000,
    seed: int = 0,
    margin: float = MARGIN,
    incumbent: str = "posterior_mean",
    beta_divisor: float = BETA_DIVISOR,
    noise_variance: float = 0.025,
) -> list[ArmsExperiment]:
    """Return Figure 5a: draws of a squared-exponential GP on 1000 points of [0, 1]."""
    num_arms = 1000
    choices = torch.linspace(0, 1, num_arms, dtype=torch.float64).unsqueeze(-1)
    with torch.no_grad():
        kernel_matrix = double_kernel(RBFKernel(), lengthscale=0.2)(choices).to_dense()
    eigenvalues, eigenvectors = torch.linalg.eigh(kernel_matrix)
    root = eigenvectors * eigenvalues.clamp_min(0.0).sqrt()

    def make_study(first: int, count: int) -> ArmsStudy:
        rows = [
            torch.randn(num_arms, dtype=torch.float64, generator=generator(seed, trial, "function"))
            for trial in range(first, first + count)
        ]
        values = torch.stack(rows) @ root.T
        return ArmsStudy(kernel_matrix, values, noise_variance**0.5, num_rounds, seed, first)

    return [
        ArmsExperiment(
            name="srinivas-synthetic",
            title="squared-exponential GP draws, 1000 arms (Figure 5a)",
            published="GP-UCB on par with EI and MPI; mean only and variance only clearly worse",
            num_trials=num_trials,
            num_rounds=num_rounds,
            make_study=make_study,
            make_methods=partial(figure_methods, noise_variance, margin, incumbent, beta_divisor),
            average=True,
            chunk=5,
            settings={
                "seed": seed,
                "noise_variance": noise_variance,
                "margin": margin,
                "incumbent": incumbent,
                "beta_divisor": beta_divisor,
            },
        )
    ]


def sensors(
    data: Path,
    num_trials: int = 2000,
    num_rounds: int | None = None,
    seed: int = 0,
    margin: float = MARGIN,
) -> list[ArmsExperiment]:
    """Return Figure 5b: the warmest of 46 sensors.

    Args:
        data: ``.npz`` with the array ``temperature`` (times x sensors). Its first five days of
            144 readings are used, two thirds of them for the kernel.
        num_trials: The number of reward functions; later readings are used again with fresh noise
            once all have been used.
        num_rounds: The number of sensors if omitted.
        seed: Seeds noise.
        margin: The margin of MPI in average prior standard deviations.
    """
    experiment = sensor_experiment(
        load_readings(data, "temperature")[:720], num_trials, num_rounds, seed, margin, 0.5
    )
    return [
        replace(
            experiment,
            name="srinivas-sensors",
            title="sensor temperatures (Figure 5b)",
            published="GP-UCB and EI best, no significant difference between them",
        )
    ]


def traffic(
    data: Path,
    num_trials: int = 900,
    num_rounds: int | None = None,
    seed: int = 0,
    margin: float = MARGIN,
) -> list[ArmsExperiment]:
    """Return Figure 5c, the slowest road sensor; arguments as for ``sensors``.

    The data are a CSV file with the time in the first column and one column of speeds per sensor.
    """
    experiment = sensor_experiment(
        load_readings(data), num_trials, num_rounds, seed, margin, 4.78, negate=True
    )
    return [
        replace(
            experiment,
            name="srinivas-traffic",
            title="slowest road sensor (Figure 5c)",
            published="GP-UCB, EI and MPI alike, mean only and variance only worse",
        )
    ]


def sensor_experiment(
    readings: Tensor,
    num_trials: int,
    num_rounds: int | None,
    seed: int,
    margin: float,
    noise_variance: float,
    negate: bool = False,
) -> ArmsExperiment:
    """Return an experiment on readings: the earlier two thirds give the kernel, the others rewards.

    The margin is in average prior standard deviations.
    """
    split = len(readings) * 2 // 3
    table = SensorData(readings[:split], readings[split:])
    kernel_matrix = table.kernel_matrix()
    rewards = table.rewards(negate=negate)
    rounds = num_rounds or table.num_sensors

    def make_study(first: int, count: int) -> ArmsStudy:
        rows = torch.arange(first, first + count) % len(rewards)
        return ArmsStudy(kernel_matrix, rewards[rows], noise_variance**0.5, rounds, seed, first)

    margin = margin * table.average_variance() ** 0.5
    return ArmsExperiment(
        name="",
        title="",
        published="",
        num_trials=num_trials,
        num_rounds=rounds,
        make_study=make_study,
        make_methods=partial(
            figure_methods, noise_variance, margin, "posterior_mean", BETA_DIVISOR
        ),
        average=True,
        chunk=100,
        settings={
            "seed": seed,
            "noise_variance": noise_variance,
            "margin": margin,
            "data": float(kernel_matrix.sum() + rewards.sum()),
        },
    )


EXPERIMENTS = {
    "srinivas-synthetic": Entry(synthetic, "Srinivas et al. 2010, Figure 5a"),
    "srinivas-sensors": Entry(
        sensors,
        "Srinivas et al. 2010, Figure 5b",
        ("temperatures (.npz, array 'temperature': times x sensors)",),
        1,
    ),
    "srinivas-traffic": Entry(
        traffic,
        "Srinivas et al. 2010, Figure 5c",
        ("road speeds (CSV: time, then one column per sensor)",),
        1,
    ),
}

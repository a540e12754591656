"""The experiments of Srinivas et al. 2010, section 6 (Figure 5).

GP-UCB with its width divided by the square root of 5 is compared with expected improvement, the
most probable improvement, the mean alone and the variance alone on draws of a Gaussian process and
on readings of temperature and traffic sensors.
"""

from __future__ import annotations

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
from papers.trials import ArmsExperiment, ArmsStudy, Method

DELTA = 0.1
BETA_DIVISOR = 5.0
"""The paper divides beta by 5, and therefore the width by the square root of 5."""
MARGIN = 0.1
"""The margin of MPI in (average) prior standard deviations, which the paper does not specify."""


def figure_methods(noise_variance: float, margin: float, study: ArmsStudy) -> list[Method]:
    """Return the methods of Figure 5.

    Args:
        noise_variance: The regularization of every posterior.
        margin: The margin of MPI, in outcome units; without one, it never explores.
        study: The study to play.
    """
    acquisitions = {
        "GP-UCB (beta / 5)": GPUpperConfidenceBound.with_options(
            delta=DELTA, scale=BETA_DIVISOR**-0.5
        ),
        "EI": LogExpectedImprovement.with_options(),
        "MPI": LogProbabilityOfImprovement.with_options(margin=margin),
        "mean only": MeanOnly.with_options(),
        "variance only": VarianceOnly.with_options(),
    }
    return [Method(name, recipe, noise_variance) for name, recipe in acquisitions.items()]


def synthetic(num_trials: int = 30, num_rounds: int = 1000, seed: int = 0) -> list[ArmsExperiment]:
    """Return Figure 5a: draws of a squared-exponential GP on 1000 points of [0, 1]."""
    noise_variance, num_arms = 0.025, 1000
    choices = torch.linspace(0, 1, num_arms, dtype=torch.float64).unsqueeze(-1)
    with torch.no_grad():
        kernel_matrix = double_kernel(RBFKernel(), lengthscale=0.2)(choices).to_dense()
    eigenvalues, eigenvectors = torch.linalg.eigh(kernel_matrix)
    root = eigenvectors * eigenvalues.clamp_min(0.0).sqrt()

    def make_study(first: int, count: int) -> ArmsStudy:
        normal = _rows(seed, first, count, num_arms)
        return ArmsStudy(
            kernel_matrix, normal @ root.T, noise_variance**0.5, num_rounds, seed, first
        )

    return [
        ArmsExperiment(
            name="srinivas-synthetic",
            title="squared-exponential GP draws, 1000 arms (Figure 5a)",
            published="GP-UCB on par with EI and MPI; mean only and variance only clearly worse",
            num_trials=num_trials,
            num_rounds=num_rounds,
            make_study=make_study,
            make_methods=partial(figure_methods, noise_variance, MARGIN),
            average=True,
            chunk=5,
            settings={"seed": seed, "noise_variance": noise_variance, "margin": MARGIN},
        )
    ]


def sensors(
    data: Path,
    num_trials: int = 2000,
    num_rounds: int | None = None,
    seed: int = 0,
    center: bool = True,
    ridge: float = 0.0,
) -> list[ArmsExperiment]:
    """Return Figure 5b: the warmest of 46 sensors.

    Args:
        data: ``.npz`` with the array ``temperature`` (times x sensors). Its first five days of
            144 readings are used, two thirds of them for the kernel.
        num_trials: The number of reward functions; later readings are used again with fresh noise
            once all have been used.
        num_rounds: The number of sensors if omitted.
        seed: Seeds noise.
        center: Subtract each sensor's past mean.
        ridge: Added to the kernel's diagonal.
    """
    readings = load_readings(data, "temperature")[:720]
    split = len(readings) * 2 // 3
    table = SensorData(readings[:split], readings[split:])
    return [
        sensor_experiment(
            "srinivas-sensors",
            "sensor temperatures (Figure 5b)",
            "GP-UCB and EI best, no significant difference between them",
            table,
            num_trials,
            num_rounds,
            seed,
            noise_variance=0.5,
            center=center,
            ridge=ridge,
        )
    ]


def traffic(
    data: Path,
    num_trials: int = 900,
    num_rounds: int | None = None,
    seed: int = 0,
    center: bool = True,
    ridge: float = 0.0,
) -> list[ArmsExperiment]:
    """Return Figure 5c: the slowest road sensor.

    Args:
        data: A CSV file with the time in the first column and one column of speeds per sensor. Two
            thirds of its rows are used for the kernel.
        num_trials: The number of reward functions; later rows are used again with fresh noise once
            all have been used.
        num_rounds: The number of sensors if omitted.
        seed: Seeds noise.
        center: Subtract each sensor's past mean.
        ridge: Added to the kernel's diagonal.
    """
    readings = load_readings(data)
    split = len(readings) * 2 // 3
    return [
        sensor_experiment(
            "srinivas-traffic",
            "slowest road sensor (Figure 5c)",
            "GP-UCB, EI and MPI alike, mean only and variance only worse",
            SensorData(readings[:split], readings[split:]),
            num_trials,
            num_rounds,
            seed,
            noise_variance=4.78,
            center=center,
            ridge=ridge,
            negate=True,
        )
    ]


def sensor_experiment(
    name: str,
    title: str,
    published: str,
    table: SensorData,
    num_trials: int,
    num_rounds: int | None,
    seed: int,
    noise_variance: float,
    center: bool,
    ridge: float,
    negate: bool = False,
) -> ArmsExperiment:
    """Return the experiment on a sensor table with the methods of Figure 5."""
    kernel_matrix = table.kernel_matrix(ridge)
    rewards = table.rewards(center, negate)
    rounds = num_rounds or table.num_sensors

    def make_study(first: int, count: int) -> ArmsStudy:
        rows = torch.arange(first, first + count) % len(rewards)
        return ArmsStudy(kernel_matrix, rewards[rows], noise_variance**0.5, rounds, seed, first)

    margin = MARGIN * table.average_variance() ** 0.5
    return ArmsExperiment(
        name=name,
        title=title,
        published=published,
        num_trials=num_trials,
        num_rounds=rounds,
        make_study=make_study,
        make_methods=partial(figure_methods, noise_variance, margin),
        average=True,
        chunk=100,
        settings={
            "seed": seed,
            "noise_variance": noise_variance,
            "margin": margin,
            "center": center,
            "ridge": ridge,
            "data": float(kernel_matrix.sum() + rewards.sum()),
        },
    )


def _rows(seed: int, first: int, count: int, size: int) -> Tensor:
    return torch.stack(
        [
            torch.randn(size, dtype=torch.float64, generator=generator(seed, trial, "function"))
            for trial in range(first, first + count)
        ]
    )

"""Experiments of Chowdhury and Gopalan 2017, section 6 (Figures 3 and 4)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_bandits.confidence import gp_ucb_rkhs_width, igp_ucb_width
from botorch_bandits.confidence.maximal_information_gain import GainBound, RateGain
from botorch_bandits.experiments.arms_experiment import ArmsExperiment, Method
from botorch_bandits.experiments.arms_study import (
    ArmsStudy,
    ImprovementPolicy,
    ThompsonPolicy,
    WidthPolicy,
)
from botorch_bandits.models.recipe import double_kernel
from botorch_bandits.problems.sensors import SensorData, load_readings
from botorch_bandits.problems.synthetic import Hartmann3Reward, RosenbrockReward
from botorch_bandits.random_streams import generator

DELTA = 0.1


class ConstantGain(GainBound):
    """A fixed number in place of the maximal information gain, as the paper's Figure 4 has it.

    Args:
        value: In nats.
    """

    is_upper_bound = False

    def __init__(self, value: float) -> None:
        """See the class."""
        self.value = value

    def _bound(self, num_observations: int) -> float:
        return self.value


def figure_methods(noise_std: float, gain: GainBound, study: ArmsStudy) -> list[Method]:
    """Return the methods of Figures 1 to 4.

    The widths use ``lam = R^2`` as the paper does, which the theorems do not cover. ``B`` cannot
    be known for these rewards; ``f' (K + R^2 I)^-1 f`` of each function stands for its square, a
    LOWER bound on the squared norm, so no method has a guarantee here.

    Args:
        noise_std: ``R``.
        gain: What stands for the maximal information gain.
        study: What is played.
    """
    noise_variance = noise_std**2
    bound = estimate_norms(study.kernel_matrix, study.values, noise_variance)

    def igp(t: int, realized: Tensor) -> Tensor:
        return igp_ucb_width(bound, noise_std, gain(t - 1), DELTA)

    def thompson(t: int, realized: Tensor) -> Tensor:
        return igp_ucb_width(bound, noise_std, gain(t - 1), DELTA / 2)

    def srinivas(t: int, realized: Tensor) -> Tensor:
        return gp_ucb_rkhs_width(bound, gain(t), t, DELTA)

    return [
        Method("GP-UCB (Theorem 3)", WidthPolicy(srinivas), noise_variance),
        Method("IGP-UCB", WidthPolicy(igp), noise_variance),
        Method("GP-TS", ThompsonPolicy(thompson), noise_variance),
        Method("GP-EI", ImprovementPolicy("expected"), noise_variance),
        Method("GP-PI", ImprovementPolicy("probability", margin=0.01), noise_variance),
    ]


def estimate_norms(kernel_matrix: Tensor, values: Tensor, ridge: float) -> Tensor:
    """Return ``sqrt(f' (K + ridge I)^-1 f)`` of each row, a lower bound on the RKHS norm.

    Args:
        kernel_matrix: ``num_arms x num_arms``.
        values: ``num_functions x num_arms``.
        ridge: Greater than 0; without it the solution is numerically hopeless.
    """
    regularised = kernel_matrix + ridge * torch.eye(len(kernel_matrix), dtype=kernel_matrix.dtype)
    solution = torch.linalg.solve(regularised, values.T).T
    return (values * solution).sum(-1).clamp_min(0.0).sqrt()


def functions(num_trials: int = 25, num_rounds: int = 1000, seed: int = 0) -> list[ArmsExperiment]:
    """Figure 3: Rosenbrock and Hartmann on ``100 d`` random points.

    Rewards are rescaled to mean 0 and range 1 over the arms, inputs to the unit cube. ``R^2`` is
    1% of the range. The paper does not say how many rounds; the default is 1000.
    """
    experiments = []
    for name, reward in (("rosenbrock", RosenbrockReward(dim=2)), ("hartmann3", Hartmann3Reward())):
        noise_std = 0.1  # R^2 = 1% of a range of 1
        bounds, dim = reward.bounds, reward.dim
        stream = generator(seed, 0, name)
        unit = torch.rand(100 * dim, dim, dtype=torch.float64, generator=stream)
        with torch.no_grad():
            values = reward(bounds[0] + (bounds[1] - bounds[0]) * unit, noise=False)
            kernel_matrix = double_kernel(RBFKernel(), lengthscale=0.2)(unit).to_dense()
        values = (values - values.mean()) / (values.max() - values.min())

        def make_study(
            first: int, count: int, K: Tensor = kernel_matrix, f: Tensor = values
        ) -> ArmsStudy:
            return ArmsStudy(K, f.expand(count, -1), 0.1, num_rounds, seed, first)

        experiments.append(
            ArmsExperiment(
                name=f"chowdhury-{name}",
                title=f"{name} on {100 * dim} arms (Figure 3)",
                published="EI and PI best, IGP-UCB and GP-TS competitive",
                num_trials=num_trials,
                num_rounds=num_rounds,
                make_study=make_study,
                make_methods=partial(figure_methods, noise_std, RateGain("rbf", dim)),
                chunk=25,
                settings={"seed": seed, "noise_std": noise_std},
            )
        )
    return experiments


def sensors(
    temperature: Path,
    light: Path | None = None,
    num_rounds: int = 200,
    num_trials: int | None = None,
    seed: int = 0,
    ridge: float | None = None,
) -> list[ArmsExperiment]:
    """Figure 4: the largest reading of temperature and of light sensors.

    ``R^2`` is 5% of the average variance, and every width has 1 for the information gain.
    Temperatures are those between 8 and 9 am: five days make the kernel (30 readings, so it needs
    a ridge), two days the rewards.

    Args:
        temperature: ``.npz`` with the array ``temperature``, 144 readings a day.
        light: ``.npz`` with the arrays ``train_raw`` and ``test_raw``; left out if omitted.
        num_rounds: The paper does not say; the default is 200.
        num_trials: Reward functions; all later readings if omitted.
        seed: Seeds noise and draws.
        ridge: Added to the kernels' diagonals; 1% of the average variance if omitted.
    """
    readings = load_readings(temperature, "temperature")
    hours = [144 * day + 48 + i for day in range(7) for i in range(6)]
    morning = readings[hours]
    tables = {"temperature": SensorData(morning[:30], morning[30:])}
    if light is not None:
        past, later = load_readings(light, "train_raw"), load_readings(light, "test_raw")
        tables["light"] = SensorData(past, later)
    experiments = []
    for name, table in tables.items():
        unit = table.average_variance() ** 0.5
        share = 0.01 if ridge is None else ridge / unit**2
        # in units of the average prior standard deviation
        kernel_matrix = table.kernel_matrix(share * unit**2) / unit**2
        rewards = table.rewards() / unit

        def make_study(
            first: int, count: int, K: Tensor = kernel_matrix, f: Tensor = rewards
        ) -> ArmsStudy:
            rows = torch.arange(first, first + count) % len(f)
            return ArmsStudy(K, f[rows], 0.05**0.5, num_rounds, seed, first)

        experiments.append(
            ArmsExperiment(
                name=f"chowdhury-{name}",
                title=f"{name} sensors (Figure 4), rewards in average standard deviations",
                published="GP-TS best; IGP-UCB and GP-UCB the same on temperature"
                if name == "temperature"
                else "GP-TS best; IGP-UCB better than EI and PI",
                num_trials=num_trials or len(rewards),
                num_rounds=num_rounds,
                make_study=make_study,
                make_methods=partial(figure_methods, 0.05**0.5, ConstantGain(1.0)),
                chunk=50,
                settings={
                    "seed": seed,
                    "ridge": share,
                    "data": float(kernel_matrix.sum() + rewards.sum()),
                },
            )
        )
    return experiments

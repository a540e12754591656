"""Experiments of Chowdhury and Gopalan 2017, section 6 (Figures 1 to 4).

IGP-UCB and GP-TS are compared with GP-UCB, expected improvement and the probability of improvement
on functions of known norm, draws of a Gaussian process, two standard functions and readings of
sensors.
"""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import torch
from botorch.test_functions import Rosenbrock
from gpytorch.kernels import MaternKernel, RBFKernel
from torch import Tensor

from botorch_bandits.acquisition import (
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
)
from botorch_bandits.confidence import GainBound, RateGain
from botorch_bandits.models import ArmsPrior, double_kernel
from botorch_bandits.problems import Hartmann3Reward
from botorch_bandits.random_streams import generator
from papers.environments import SensorData, load_readings
from papers.trials import ArmsExperiment, ArmsStudy, Method

DELTA = 0.1
SHARE_OF_RANGE = 0.01
"""The noise variance, as a share of a function's range."""


class ConstantGain(GainBound):
    """A fixed number in place of the maximal information gain, as the paper's Figure 4 has it.

    Args:
        value: The information gain in nats.
    """

    is_upper_bound = False

    def __init__(self, value: float) -> None:
        """See the class."""
        self.value = value

    def _bound(self, num_observations: int) -> float:
        return self.value


def figure_methods(noise_std: float, gain: GainBound, study: ArmsStudy) -> list[Method]:
    """Return the methods of Figures 1 to 4.

    The widths use ``lam = R^2`` as the paper does, which the theorems do not cover. ``B`` is not
    known for these rewards. Its square is replaced by ``f' (K + R^2 I)^-1 f`` of each function,
    which is a LOWER bound on the squared norm, so no method has a guarantee here.

    Args:
        noise_std: ``R``.
        gain: The replacement for the maximal information gain.
        study: The study to play.
    """
    noise_variance = noise_std**2
    bound = estimate_norms(study.kernel_matrix, study.values, noise_variance)
    return methods_with_bounds(bound, noise_std, gain)


def methods_with_bounds(
    rkhs_bound: Tensor, noise_std: float | Tensor, gain: GainBound
) -> list[Method]:
    """Return the methods of Figures 1 to 4 for given norms.

    Args:
        rkhs_bound: ``B`` of each function.
        noise_std: ``R``.
        gain: The replacement for the maximal information gain.
    """
    noise_variance = noise_std**2
    widths: dict[str, Any] = {"rkhs_bound": rkhs_bound, "information_gain": gain, "delta": DELTA}
    acquisitions = {
        "GP-UCB (Theorem 3)": GPUpperConfidenceBound.with_options(**widths),
        "IGP-UCB": ImprovedUpperConfidenceBound.with_options(**widths, noise_bound=noise_std),
        "GP-TS": GPThompsonSampling.with_options(**widths, noise_bound=noise_std),
        "GP-EI": LogExpectedImprovement.with_options(),
        "GP-PI": LogProbabilityOfImprovement.with_options(margin=0.01),
    }
    return [Method(name, recipe, noise_variance) for name, recipe in acquisitions.items()]


def rkhs(num_trials: int = 25, num_rounds: int = 30000, seed: int = 0) -> list[ArmsExperiment]:
    """Return Figures 1 and 2: functions in the RKHS and draws of the process, on 100 random points.

    ``R^2`` is 1% of each function's range and the regularization of every posterior. A function of
    Figure 1 is the posterior mean of a draw on all arms (with 1% of the draw's range as noise
    variance, which the paper does not specify), so its norm is known. Draws of Figure 2 have no
    norm; see :func:`figure_methods`. The gain is the paper's growth rate. In addition to the
    paper's methods, the panels have DMM, and EI and PI with the best noisy outcome as incumbent,
    because the paper does not say which incumbent it uses.
    """
    stream = generator(seed, 0, "chowdhury arms")
    choices = torch.rand(100, 1, dtype=torch.float64, generator=stream)
    kernels = {
        "se": ("squared exponential", RBFKernel(), RateGain("rbf", 1)),
        "matern": ("Matern 5/2", MaternKernel(nu=2.5), RateGain("matern", 1, nu=2.5)),
    }
    experiments = []
    for figure, (short, (words, kernel, gain)) in itertools.product((1, 2), kernels.items()):
        with torch.no_grad():
            kernel_matrix = double_kernel(kernel, lengthscale=0.2)(choices).to_dense()
        what = "functions in the RKHS" if figure == 1 else "draws of the process"
        experiments.append(
            ArmsExperiment(
                name=f"chowdhury-rkhs-{short}-figure{figure}",
                title=f"{what}, {words} (Figure {figure})",
                published="IGP-UCB best, GP-TS next, both far ahead of GP-UCB; EI and PI worse",
                num_trials=num_trials,
                num_rounds=num_rounds,
                make_study=partial(_rkhs_study, kernel_matrix, figure, num_rounds, seed),
                make_methods=partial(_rkhs_methods, kernel_matrix, figure, gain, seed),
                logarithmic=True,
                chunk=25,
                settings={"seed": seed, "figure": figure, "kernel": short},
            )
        )
    return experiments


def _rkhs_functions(
    kernel_matrix: Tensor, figure: int, seed: int, first: int, count: int
) -> tuple[Tensor, Tensor | None]:
    """Return the functions, ``count x num_arms``, and their norms if they have any."""
    prior = ArmsPrior.from_matrix(kernel_matrix)
    normal = torch.stack(
        [
            torch.randn(
                len(prior.root), dtype=torch.float64, generator=generator(seed, trial, "function")
            )
            for trial in range(first, first + count)
        ]
    )
    draws = normal @ prior.root
    if figure == 2:
        return draws, None
    ridges = SHARE_OF_RANGE * (draws.amax(-1) - draws.amin(-1))
    identity = torch.eye(len(kernel_matrix), dtype=torch.float64)
    weights = torch.linalg.solve(kernel_matrix + ridges[:, None, None] * identity, draws)
    functions = weights @ kernel_matrix
    return functions, (weights * functions).sum(-1).sqrt()


def _rkhs_study(
    kernel_matrix: Tensor, figure: int, num_rounds: int, seed: int, first: int, count: int
) -> ArmsStudy:
    values, _ = _rkhs_functions(kernel_matrix, figure, seed, first, count)
    noise = (SHARE_OF_RANGE * (values.amax(-1) - values.amin(-1))).sqrt()
    return ArmsStudy(kernel_matrix, values, noise, num_rounds, seed, first)


def _rkhs_methods(
    kernel_matrix: Tensor, figure: int, gain: GainBound, seed: int, study: ArmsStudy
) -> list[Method]:
    noise = torch.as_tensor(study.noise_std, dtype=torch.float64)
    _, norms = _rkhs_functions(kernel_matrix, figure, seed, study.first_trial, len(study.values))
    bound = estimate_norms(kernel_matrix, study.values, noise**2) if norms is None else norms
    beside = {
        "GP-EI, best outcome": LogExpectedImprovement.with_options(incumbent="observed"),
        "GP-PI, best outcome": LogProbabilityOfImprovement.with_options(
            incumbent="observed", margin=0.01
        ),
        "DMM": DMMUpperConfidenceBound.with_options(
            rkhs_bound=bound, noise_bound=noise, delta=DELTA
        ),
    }
    return [
        *methods_with_bounds(bound, noise, gain),
        *(Method(name, recipe, noise**2) for name, recipe in beside.items()),
    ]


def estimate_norms(kernel_matrix: Tensor, values: Tensor, ridge: float | Tensor) -> Tensor:
    """Return ``sqrt(f' (K + ridge I)^-1 f)`` of each row, a lower bound on the RKHS norm.

    Args:
        kernel_matrix: ``num_arms x num_arms``.
        values: ``num_functions x num_arms``.
        ridge: Greater than 0, one number or one per row; without it, the solution is numerically
            unstable.
    """
    identity = torch.eye(len(kernel_matrix), dtype=kernel_matrix.dtype)
    ridges = torch.as_tensor(ridge, dtype=values.dtype).expand(len(values))
    solution = torch.linalg.solve(kernel_matrix + ridges[:, None, None] * identity, values)
    return (values * solution).sum(-1).clamp_min(0.0).sqrt()


def functions(num_trials: int = 25, num_rounds: int = 30000, seed: int = 0) -> list[ArmsExperiment]:
    """Return Figure 3: Rosenbrock and Hartmann on ``100 d`` random points.

    Rewards are rescaled to mean 0 and range 1 over the arms, and inputs to the unit cube. ``R^2``
    is 1% of the range. The paper sets "all parameters exactly as in previous experiment", which has
    30000 rounds (section 6).
    """
    experiments = []
    for name, reward in (
        ("rosenbrock", Rosenbrock(dim=2, negate=True)),
        ("hartmann3", Hartmann3Reward()),
    ):
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


def sensor_tables(temperature: Path, light: Path | None = None) -> dict[str, SensorData]:
    """Return the readings of Figure 4, split into those for the kernel and those for the rewards.

    Args:
        temperature: See :func:`sensors`.
        light: See :func:`sensors`.
    """
    readings = load_readings(temperature, "temperature")
    hours = [144 * day + 48 + i for day in range(7) for i in range(6)]
    morning = readings[hours]
    tables = {"temperature": SensorData(morning[:30], morning[30:])}
    if light is not None:
        past, later = load_readings(light, "train_raw"), load_readings(light, "test_raw")
        tables["light"] = SensorData(past, later)
    return tables


def sensors(
    temperature: Path,
    light: Path | None = None,
    num_rounds: int = 200,
    num_trials: int | None = None,
    seed: int = 0,
    ridge: float | None = None,
) -> list[ArmsExperiment]:
    """Return Figure 4: the largest reading of temperature and of light sensors.

    ``R^2`` is 5% of the average variance, and every width uses 1 as the information gain.
    Temperatures are those between 8 and 9 am: five days give the kernel (30 readings, so it needs a
    ridge), and two days give the rewards.

    Args:
        temperature: ``.npz`` with the array ``temperature``, 144 readings a day.
        light: ``.npz`` with the arrays ``train_raw`` and ``test_raw``; left out if omitted.
        num_rounds: The number of rounds, which the paper does not specify; the default is 200.
        num_trials: The number of reward functions; all later readings if omitted.
        seed: Seeds noise and draws.
        ridge: Added to the kernels' diagonals; 1% of the average variance if omitted.
    """
    tables = sensor_tables(temperature, light)
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

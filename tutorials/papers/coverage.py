"""What a guarantee costs: coverage and regret of every width, side by side.

Rewards of known RKHS norm serve the widths of Chowdhury and Gopalan and of Flynn and Reeb, and
draws of the Gaussian process serve those of Srinivas et al. A width that claims ``1 - delta`` must
contain the whole reward function in all rounds for at least that share of functions. Further panels
have another kernel, more noise, and a norm that is overstated threefold. The noise is Gaussian
except for Theorem 3 of Srinivas et al., which needs bounded noise and has noise of plus or minus
the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor

from botorch_bandits.acquisition import (
    AMMUpperConfidenceBound,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    RandomizedUpperConfidenceBound,
)
from botorch_bandits.confidence import WaterFillingGain
from botorch_bandits.models import double_kernel
from botorch_bandits.random_streams import generator
from papers.trials import ArmsExperiment, ArmsStudy, Method

NUM_ARMS, LENGTHSCALE = 200, 0.15
RKHS_NORM, NOISE_STD, DELTA = 2.0, 0.1, 0.05
NUM_CENTERS = 30


@dataclass(frozen=True, eq=False)
class _Setting:
    """The setting in which widths are compared.

    Attributes:
        kernel_matrix: ``num_arms x num_arms``.
        noise_std: Standard deviation of the noise.
        rkhs_bound: The bound that the widths are given on the norm, which is :data:`RKHS_NORM`.
    """

    kernel_matrix: Tensor
    noise_std: float = NOISE_STD
    rkhs_bound: float = RKHS_NORM


def coverage(num_trials: int = 200, num_rounds: int = 100, seed: int = 0) -> list[ArmsExperiment]:
    """Return studies of functions of known norm, and of draws of the Gaussian process.

    Args:
        num_trials: The number of functions per panel.
        num_rounds: The number of rounds of each.
        seed: Seeds functions, noise and draws.
    """
    smooth, rough = _Setting(_matrix(RBFKernel())), _Setting(_matrix(MaternKernel(nu=2.5)))
    loud = replace(smooth, noise_std=5.0 * NOISE_STD)
    overstated = replace(smooth, rkhs_bound=3.0 * RKHS_NORM)
    known, draws = f"functions of norm {RKHS_NORM:g}", "draws of the Gaussian process"
    usual = f"{NUM_ARMS} arms, delta = {DELTA:g}"
    matern = {"kernel": "Matern 5/2"}

    def panel(
        name: str,
        title: str,
        setting: _Setting,
        make_study: Callable[..., ArmsStudy] = _of_known_norm,
        make_methods: Callable[..., Sequence[Method]] = _norm_methods,
        further: Mapping[str, Any] | None = None,
    ) -> ArmsExperiment:
        settings = {"seed": seed, "norm": RKHS_NORM, "noise_std": setting.noise_std, "delta": DELTA}
        return ArmsExperiment(
            name=f"coverage-{name}",
            title=title,
            published="",
            num_trials=num_trials,
            num_rounds=num_rounds,
            make_study=partial(make_study, setting, num_rounds, seed),
            make_methods=partial(make_methods, setting),
            chunk=50,
            settings={**settings, **(further or {})},
        )

    return [
        panel("rkhs", f"{known}, {usual}", smooth),
        panel("gp", f"{draws}, {usual}", smooth, _of_the_process, _process_methods),
        panel("gp-random", f"{draws}, rules that draw", smooth, _of_the_process, _random_methods),
        panel("rkhs-matern", f"{known}, Matern 5/2", rough, further=matern),
        panel("rkhs-noise", f"{known}, noise {loud.noise_std:g}", loud),
        panel(
            "rkhs-overstated",
            f"{known}, stated as {overstated.rkhs_bound:g}",
            overstated,
            further={"rkhs_bound": overstated.rkhs_bound},
        ),
    ]


def _matrix(kernel: Kernel) -> Tensor:
    choices = torch.linspace(0, 1, NUM_ARMS, dtype=torch.float64).unsqueeze(-1)
    with torch.no_grad():
        matrix: Tensor = double_kernel(kernel, lengthscale=LENGTHSCALE)(choices).to_dense()
    return matrix


def _of_known_norm(
    setting: _Setting, num_rounds: int, seed: int, first: int, count: int
) -> ArmsStudy:
    matrix = setting.kernel_matrix
    rows = []
    for trial in range(first, first + count):
        stream = generator(seed, trial, "rkhs function")
        centers = torch.randperm(NUM_ARMS, generator=stream)[:NUM_CENTERS]
        weights = torch.randn(NUM_CENTERS, dtype=torch.float64, generator=stream)
        squared_norm = weights @ matrix[centers][:, centers] @ weights
        rows.append(RKHS_NORM / squared_norm.sqrt() * (matrix[:, centers] @ weights))
    return ArmsStudy(matrix, torch.stack(rows), setting.noise_std, num_rounds, seed, first)


def _of_the_process(
    setting: _Setting, num_rounds: int, seed: int, first: int, count: int
) -> ArmsStudy:
    eigenvalues, eigenvectors = torch.linalg.eigh(setting.kernel_matrix)
    root = eigenvectors * eigenvalues.clamp_min(0.0).sqrt()
    rows = [
        root @ torch.randn(NUM_ARMS, dtype=torch.float64, generator=generator(seed, t, "gp draw"))
        for t in range(first, first + count)
    ]
    values = torch.stack(rows)
    return ArmsStudy(setting.kernel_matrix, values, setting.noise_std, num_rounds, seed, first)


def _norm_methods(setting: _Setting, study: ArmsStudy) -> list[Method]:
    """Return widths for rewards of known norm, whose names give their regularization."""
    small, one_plus = setting.noise_std**2, 1.0 + 2.0 / study.num_rounds
    bounds = {"rkhs_bound": setting.rkhs_bound, "noise_bound": setting.noise_std, "delta": DELTA}
    printed = ImprovedUpperConfidenceBound.with_options(**bounds)
    any_lambda = ImprovedUpperConfidenceBound.with_options(**bounds, any_lambda=True)
    theorem_three = GPUpperConfidenceBound.with_options(
        rkhs_bound=setting.rkhs_bound,
        information_gain=WaterFillingGain(setting.kernel_matrix, small),
        delta=DELTA,
    )
    return [
        Method("DMM", DMMUpperConfidenceBound.with_options(**bounds), small),
        Method("AMM", AMMUpperConfidenceBound.with_options(**bounds), small),
        Method("IGP-UCB, any lam", any_lambda, small),
        Method("IGP-UCB, lam = 1 + 2/T", printed, one_plus),
        Method("IGP-UCB printed, lam = R^2", printed, small),
        Method("GP-TS, lam = 1 + 2/T", GPThompsonSampling.with_options(**bounds), one_plus),
        Method("GP-UCB Theorem 3, bounded noise", theorem_three, small, bounded_noise=True),
        Method("fixed width 2", GPUpperConfidenceBound.with_options(width=2.0), small),
    ]


def _process_methods(setting: _Setting, study: ArmsStudy) -> list[Method]:
    """Return widths for draws of the Gaussian process."""
    lam = setting.noise_std**2
    full = GPUpperConfidenceBound.with_options(delta=DELTA)
    divided = GPUpperConfidenceBound.with_options(delta=DELTA, scale=5.0**-0.5)
    return [
        Method("GP-UCB Theorem 1", full, lam),
        Method("GP-UCB Theorem 1, beta / 5", divided, lam),
        Method("fixed width 2", GPUpperConfidenceBound.with_options(width=2.0), lam),
    ]


def _random_methods(setting: _Setting, study: ArmsStudy) -> list[Method]:
    """Return rules with a guarantee on the expected regret, which have no bounds to cover."""
    lam = setting.noise_std**2
    return [
        Method("IRGP-UCB", RandomizedUpperConfidenceBound.with_options(), lam),
        Method("Thompson sampling", GPThompsonSampling.with_options(width=1.0), lam),
        *_process_methods(setting, study)[:1],
    ]

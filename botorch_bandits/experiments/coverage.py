"""What a guarantee costs: coverage and regret of every width, side by side.

Rewards of known RKHS norm for the widths of Chowdhury and Gopalan and of Flynn and Reeb, draws of
the Gaussian process for those of Srinivas et al. A width that claims ``1 - delta`` must hold the
whole reward function in all rounds in at least that share of functions.
"""

from __future__ import annotations

from functools import partial

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_bandits.acquisition import (
    AMMUpperConfidenceBound,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.confidence.maximal_information_gain import WaterFillingGain
from botorch_bandits.experiments.arms_experiment import ArmsExperiment
from botorch_bandits.experiments.arms_study import ArmsStudy, Method
from botorch_bandits.models.recipe import double_kernel
from botorch_bandits.random_streams import generator

NUM_ARMS, LENGTHSCALE = 200, 0.15
RKHS_NORM, NOISE_STD, DELTA = 2.0, 0.1, 0.05
NUM_CENTERS = 30


def coverage(num_trials: int = 200, num_rounds: int = 100, seed: int = 0) -> list[ArmsExperiment]:
    """Return the two studies: functions of known norm, and draws of the Gaussian process."""
    choices = torch.linspace(0, 1, NUM_ARMS, dtype=torch.float64).unsqueeze(-1)
    with torch.no_grad():
        kernel_matrix = double_kernel(RBFKernel(), lengthscale=LENGTHSCALE)(choices).to_dense()
    eigenvalues, eigenvectors = torch.linalg.eigh(kernel_matrix)
    root = eigenvectors * eigenvalues.clamp_min(0.0).sqrt()

    def of_known_norm(first: int, count: int) -> ArmsStudy:
        rows = []
        for trial in range(first, first + count):
            stream = generator(seed, trial, "rkhs function")
            centers = torch.randperm(NUM_ARMS, generator=stream)[:NUM_CENTERS]
            weights = torch.randn(NUM_CENTERS, dtype=torch.float64, generator=stream)
            squared_norm = weights @ kernel_matrix[centers][:, centers] @ weights
            rows.append(RKHS_NORM / squared_norm.sqrt() * (kernel_matrix[:, centers] @ weights))
        return ArmsStudy(kernel_matrix, torch.stack(rows), NOISE_STD, num_rounds, seed, first)

    def of_the_process(first: int, count: int) -> ArmsStudy:
        rows = [
            root
            @ torch.randn(NUM_ARMS, dtype=torch.float64, generator=generator(seed, t, "gp draw"))
            for t in range(first, first + count)
        ]
        return ArmsStudy(kernel_matrix, torch.stack(rows), NOISE_STD, num_rounds, seed, first)

    settings = {"seed": seed, "norm": RKHS_NORM, "noise_std": NOISE_STD, "delta": DELTA}
    common = {"num_trials": num_trials, "num_rounds": num_rounds, "chunk": 50, "settings": settings}
    return [
        ArmsExperiment(
            name="coverage-rkhs",
            title=f"functions of norm {RKHS_NORM:g}, {NUM_ARMS} arms, delta = {DELTA:g}",
            published="",
            make_study=of_known_norm,
            make_methods=partial(_norm_methods, kernel_matrix),
            **common,  # type: ignore[arg-type]
        ),
        ArmsExperiment(
            name="coverage-gp",
            title=f"draws of the Gaussian process, {NUM_ARMS} arms, delta = {DELTA:g}",
            published="",
            make_study=of_the_process,
            make_methods=_process_methods,
            **common,  # type: ignore[arg-type]
        ),
    ]


def _norm_methods(kernel_matrix: Tensor, study: ArmsStudy) -> list[Method]:
    """Widths for rewards of known norm; the names say which regularisation they use."""
    small, one_plus = NOISE_STD**2, 1.0 + 2.0 / study.num_rounds
    bounds = {"rkhs_bound": RKHS_NORM, "noise_bound": NOISE_STD, "delta": DELTA}
    printed = ImprovedUpperConfidenceBound.with_options(**bounds)
    any_lambda = ImprovedUpperConfidenceBound.with_options(**bounds, any_lambda=True)
    theorem_three = GPUpperConfidenceBound.with_options(
        rkhs_bound=RKHS_NORM,
        information_gain=WaterFillingGain(kernel_matrix, small),
        delta=DELTA,
    )
    return [
        Method("DMM", DMMUpperConfidenceBound.with_options(**bounds), small),
        Method("AMM", AMMUpperConfidenceBound.with_options(**bounds), small),
        Method("IGP-UCB, any lam", any_lambda, small),
        Method("IGP-UCB, lam = 1 + 2/T", printed, one_plus),
        Method("IGP-UCB printed, lam = R^2", printed, small),
        Method("GP-TS, lam = 1 + 2/T", GPThompsonSampling.with_options(**bounds), one_plus),
        Method("GP-UCB Theorem 3", theorem_three, small),
        Method("fixed width 2", GPUpperConfidenceBound.with_options(width=2.0), small),
    ]


def _process_methods(study: ArmsStudy) -> list[Method]:
    """Widths for draws of the Gaussian process."""
    lam = NOISE_STD**2
    full = GPUpperConfidenceBound.with_options(delta=DELTA)
    divided = GPUpperConfidenceBound.with_options(delta=DELTA, scale=5.0**-0.5)
    return [
        Method("GP-UCB Theorem 1", full, lam),
        Method("GP-UCB Theorem 1, beta / 5", divided, lam),
        Method("fixed width 2", GPUpperConfidenceBound.with_options(width=2.0), lam),
    ]

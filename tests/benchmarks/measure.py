"""How a ratio is measured: interleaved repeats, processor time, medians, equal results.

Absolute times depend on the machine and on what else it does. A ratio of two ways to do the same
work, measured in turn in one process on one thread, does so far less. No ratio is reported
without the largest difference between the results of both ways.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Generic, TypeVar

import torch
from botorch.models import SingleTaskGP
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, MaternKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Tensor

from botorch_bandits.models import double_kernel

Result = TypeVar("Result")


@dataclass(frozen=True)
class Scale:
    """How much work a benchmark does.

    Attributes:
        repeats: Interleaved repeats; the median counts.
        size: A factor on rounds and rows, at most 1. Goals are stated for 1.
        seed: Seeds the data.
    """

    repeats: int = 7
    size: float = 1.0
    seed: int = 0

    def of(self, full: int, smallest: int) -> int:
        """Return a number of rounds or rows at this scale.

        Args:
            full: The number at full scale.
            smallest: What is never gone below.
        """
        return max(smallest, round(full * self.size))


@dataclass(frozen=True)
class Measurement:
    """One line of the table.

    Attributes:
        name: Which benchmark, with its sizes.
        ratio: Processor time of the ordinary way over ours.
        difference: The largest difference between the results of both.
        tolerance: What the difference may be.
        unit: What one unit of work is.
        ordinary_seconds: A unit, the ordinary way.
        our_seconds: A unit, our way.
        at_least: The ratio that was promised, if one was.
        aim: The ratio that was aimed at, if one was.
        note: What else was found.
    """

    name: str
    ratio: float
    difference: float
    tolerance: float
    unit: str
    ordinary_seconds: float
    our_seconds: float
    at_least: float | None = None
    aim: float | None = None
    note: str = ""

    @property
    def agrees(self) -> bool:
        """Whether both ways gave the same results."""
        return self.difference <= self.tolerance


@dataclass(frozen=True)
class Benchmark:
    """A named comparison.

    Attributes:
        name: As the command line has it.
        description: What is compared.
        run: Does it; may return several lines.
    """

    name: str
    description: str
    run: Callable[[Scale], list[Measurement]]


@dataclass(frozen=True)
class Timing(Generic[Result]):
    """Medians of both ways, a unit of work, and what they returned last."""

    ordinary_seconds: float
    our_seconds: float
    ordinary_result: Result
    our_result: Result

    @property
    def ratio(self) -> float:
        """Ordinary over ours; NaN if the clock did not move in ours."""
        return self.ordinary_seconds / self.our_seconds if self.our_seconds > 0.0 else math.nan


def compare(
    ordinary: Callable[[], Result],
    ours: Callable[[], Result],
    repeats: int,
    units: tuple[int, int] = (1, 1),
) -> Timing[Result]:
    """Time two ways in turn.

    Args:
        ordinary: One pass of the ordinary way.
        ours: One pass of ours.
        repeats: How often each; the first pass of each is thrown away if there are several.
        units: Units of work in a pass of each.
    """
    times: tuple[list[float], list[float]] = ([], [])
    results: list[Any] = [None, None]
    for _ in range(repeats + (1 if repeats > 1 else 0)):
        for i, way in enumerate((ordinary, ours)):
            start = time.process_time()
            results[i] = way()
            times[i].append((time.process_time() - start) / units[i])
    measured = [median(t[1:] if repeats > 1 else t) for t in times]
    return Timing(measured[0], measured[1], results[0], results[1])


def growth_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the slope of log seconds over log sizes: 1 for cost in proportion to size."""
    x = torch.tensor(sizes, dtype=torch.float64).log()
    y = torch.tensor(seconds, dtype=torch.float64).log()
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / (x * x).sum())


def ordinary_model(X: Tensor, Y: Tensor, kernel: Kernel, noise: float) -> SingleTaskGP:
    """Return what a BoTorch user rebuilds every round: fixed hyperparameters, zero mean."""
    likelihood = GaussianLikelihood(noise_constraint=GreaterThan(1e-10)).to(X)
    likelihood.noise = torch.tensor(noise, dtype=X.dtype)
    model = SingleTaskGP(
        X,
        Y,
        likelihood=likelihood,
        covar_module=double_kernel(kernel),
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    model.requires_grad_(False)
    return model.eval()


def standard_kernel(lengthscale: float = 0.2) -> Kernel:
    """Return the Matern 5/2 kernel of the benchmarks, float64."""
    return double_kernel(MaternKernel(nu=2.5), lengthscale)


def smooth_data(num_rows: int, dim: int, seed: int, noise: float = 1e-2) -> tuple[Tensor, Tensor]:
    """Return random inputs in the unit cube and outcomes of a smooth function with noise."""
    stream = torch.Generator().manual_seed(seed)
    X = torch.rand(num_rows, dim, dtype=torch.float64, generator=stream)
    normal = torch.randn(num_rows, 1, dtype=torch.float64, generator=stream)
    Y = torch.sin(5.0 * X[:, :1]) + torch.cos(3.0 * X).sum(-1, keepdim=True) + noise**0.5 * normal
    return X, Y

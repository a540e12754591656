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
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, MaternKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Tensor

from botorch_bandits.models import double_kernel
from botorch_bandits.random_streams import seeded_globally

Result = TypeVar("Result")

NOISE, WIDTH = 0.01, 2.0
"""The noise variance and the width of confidence bounds that are constant."""

NUM_RESTARTS, RAW_SAMPLES = 10, 256
"""Of the maximization of acquisition functions, on both sides."""


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

    @property
    def few_repeats(self) -> int:
        """Repeats of what takes long."""
        return min(self.repeats, 3)

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
        ordinary: Seconds for a unit of work in the ordinary way, or what was promised.
        ours: Seconds for a unit of work in our way, or what was found.
        goals: The ratios that were promised and aimed at, as far as there are any.
        difference: The largest difference between the results of both.
        tolerance: What the difference may be.
        note: What else was found.
    """

    name: str
    ordinary: float
    ours: float
    goals: tuple[float, ...] = ()
    difference: float = 0.0
    tolerance: float = 0.0
    note: str = ""

    @property
    def ratio(self) -> float:
        """Ordinary over ours; NaN if the clock did not move in ours."""
        return self.ordinary / self.ours if self.ours > 0.0 else math.nan

    @property
    def agrees(self) -> bool:
        """Whether both ways gave the same results."""
        return self.difference <= self.tolerance


Benchmark = Callable[[Scale], list[Measurement]]
"""Does some work both ways; may return several lines."""


@dataclass(frozen=True)
class Timing(Generic[Result]):
    """Medians of both ways in seconds a unit of work, and what they returned last."""

    ordinary: float
    ours: float
    ordinary_result: Result
    our_result: Result

    @property
    def difference(self) -> float:
        """The largest difference of two tensors."""
        found, expected = torch.as_tensor(self.our_result), torch.as_tensor(self.ordinary_result)
        return float((found - expected).abs().max())

    def line(self, name: str, *goals: float, **more: Any) -> Measurement:
        """Return the line of the table.

        Args:
            name: Which benchmark, with its sizes.
            *goals: The ratios that were promised and aimed at.
            **more: Other attributes of the line.
        """
        return Measurement(name, self.ordinary, self.ours, goals, **more)


def timed(
    work: Callable[[], Result], clock: Callable[[], float] = time.process_time
) -> tuple[float, Result]:
    """Return how many seconds some work took, and what it returned.

    Args:
        work: Called once.
        clock: Processor time if omitted.
    """
    start = clock()
    result = work()
    return clock() - start, result


def compare(
    ordinary: Callable[[], Result],
    ours: Callable[[], Result],
    repeats: int,
    units: tuple[int, int] = (1, 1),
    clock: Callable[[], float] = time.process_time,
) -> Timing[Result]:
    """Time two ways in turn.

    Args:
        ordinary: One pass of the ordinary way.
        ours: One pass of ours.
        repeats: How often each; the first pass of each is thrown away if there are several.
        units: Units of work in a pass of each.
        clock: Processor time if omitted.
    """
    passes = [(timed(ordinary, clock), timed(ours, clock)) for _ in range(repeats + (repeats > 1))]
    kept = passes[1:] if repeats > 1 else passes
    theirs, own = (median(each[i][0] for each in kept) / units[i] for i in (0, 1))
    return Timing(theirs, own, passes[-1][0][1], passes[-1][1][1])


def growth_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the slope of log seconds over log sizes: 1 for cost in proportion to size."""
    x = torch.tensor(sizes, dtype=torch.float64).log()
    y = torch.tensor(seconds, dtype=torch.float64).log()
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / (x * x).sum())


def ordinary_model(
    X: Tensor, Y: Tensor, kernel: Kernel, noise: float, variances: Tensor | None = None
) -> SingleTaskGP:
    """Return what a BoTorch user rebuilds every round: fixed hyperparameters, zero mean.

    Args:
        X: ``n x d`` inputs.
        Y: ``n x 1`` outcomes.
        kernel: Over the inputs.
        noise: The noise variance of each row.
        variances: ``n`` of them, where rows differ.
    """
    likelihood = None
    if variances is None:
        likelihood = GaussianLikelihood(noise_constraint=GreaterThan(1e-10)).to(X)
        likelihood.noise = torch.tensor(noise, dtype=X.dtype)
    model = SingleTaskGP(
        X,
        Y,
        train_Yvar=None if variances is None else variances.unsqueeze(-1),
        likelihood=likelihood,
        covar_module=double_kernel(kernel),
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    model.requires_grad_(False)
    return model.eval()


def moments(model: Model, points: Tensor) -> Tensor:
    """Return posterior means and variances, one above the other."""
    with torch.no_grad():
        posterior = model.posterior(points)
        return torch.stack([posterior.mean.reshape(-1), posterior.variance.reshape(-1)])


def maximize(
    acquisition: Any,
    bounds: Tensor,
    seed: int,
    num_restarts: int = NUM_RESTARTS,
    raw_samples: int = RAW_SAMPLES,
    **more: Any,
) -> tuple[Tensor, Tensor]:
    """Return the point and the value that ``optimize_acqf`` finds.

    Args:
        acquisition: On the box.
        bounds: ``2 x d``.
        seed: Of the starting points.
        num_restarts: All of them are moved in one batch.
        raw_samples: Likewise.
        **more: Other arguments of ``optimize_acqf``.
    """
    options = {"batch_limit": num_restarts, "init_batch_limit": raw_samples}
    with seeded_globally(seed):
        found: tuple[Tensor, Tensor] = optimize_acqf(
            acquisition,
            bounds,
            q=1,
            num_restarts=num_restarts,
            raw_samples=raw_samples,
            options=options,
            **more,
        )
    return found


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


def smooth_reward(x: Tensor) -> Tensor:
    """Return the reward of the benchmarks at points ``... x 2``, without noise."""
    return torch.sin(6.0 * x[..., 0]) + torch.cos(4.0 * x[..., 1])


def normal_noise(number: int, seed: int) -> list[float]:
    """Return noise of the variance :data:`NOISE`."""
    stream = torch.Generator().manual_seed(seed)
    normal = torch.randn(number, dtype=torch.float64, generator=stream)
    return (NOISE**0.5 * normal).tolist()

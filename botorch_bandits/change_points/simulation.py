"""Streams without a change: inputs, functions and noise, from seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from botorch_bandits.change_points.engine import DetectorEngine
from botorch_bandits.change_points.scan import scan_statistics
from botorch_bandits.change_points.spaces import UnitKernel
from botorch_bandits.checks import (
    check_finite,
    check_matrix,
    check_nonnegative,
    check_vector,
    store_checked,
)
from botorch_bandits.domains import Arms
from botorch_bandits.random_streams import generator

Functions = Tensor | Sequence[Callable[[Tensor], Tensor]]
"""Function values on arms, one function a row, or functions of ``n x d`` points."""


@dataclass(frozen=True, eq=False)
class NullStreams:
    """Random streams of uniform samples of one function.

    Attributes:
        engine: The detector on its domain.
        horizon: Samples a stream.
        noise_std: Standard deviation of Gaussian noise; unused with ``residuals``.
        functions: Given functions, one is drawn for each stream; drawn from the prior if None.
        residuals: Noise is drawn from these, if given.
        seed: Of everything.
    """

    engine: DetectorEngine
    horizon: int
    noise_std: float = 0.0
    functions: Functions | None = None
    residuals: Tensor | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check what the user gave."""
        store_checked(self, noise_std=check_nonnegative("noise_std", self.noise_std))
        domain, functions = self.engine.domain, self.functions
        if isinstance(functions, Tensor):
            if not isinstance(domain, Arms):
                raise TypeError(
                    "functions is a tensor, which holds values on arms, but the domain is "
                    f"{domain!r}. Pass a list of functions of n x d points."
                )
            check_matrix("functions", functions, num_columns=domain.num_arms)
        if functions is not None and not isinstance(functions, Tensor | list | tuple):
            raise TypeError(
                f"functions is {functions!r}; pass a list of functions of n x d points, such as "
                "[function], or on arms a matrix with one function's values a row."
            )
        if functions is not None and len(functions) == 0:
            raise ValueError("functions is empty; give at least one, or None for prior draws.")

    def draw(self, number: int) -> tuple[Tensor, Tensor]:
        """Return inputs (``horizon x d``, or arm numbers) and outcomes of one stream."""
        random = generator(self.seed, number, "null stream")
        domain = self.engine.domain
        if isinstance(domain, Arms):
            inputs = torch.randint(domain.num_arms, (self.horizon,), generator=random)
            inputs = inputs.to(domain.choices.device)
        else:
            inputs = domain.sample(self.horizon, random)
        values = self._values(inputs, random)
        if self.residuals is not None:
            chosen = torch.randint(len(self.residuals), (self.horizon,), generator=random)
            noise = self.residuals[chosen.to(self.residuals.device)]
        else:
            noise = self.noise_std * torch.randn(
                self.horizon, dtype=torch.float64, generator=random
            )
        return inputs, values + noise.to(values)

    def ratios(self, number: int, shape: Tensor) -> Tensor:
        """Return the largest ratio of statistic to ``shape`` for each half size.

        Args:
            number: Of the stream.
            shape: Positive, one for each ``n = 1 .. horizon // 2``.
        """
        engine = self.engine
        inputs, outcomes = self.draw(number)
        located = engine.space.locate(inputs)
        kernel, gram = engine.space.matrices(located, located)
        scans = scan_statistics(
            kernel,
            gram,
            outcomes - engine.detector.prior_mean,
            engine.ridges(self.horizon // 2),
        )
        return torch.stack([scan.max() for scan in scans]) * engine.factor / shape

    def _values(self, inputs: Tensor, random: torch.Generator) -> Tensor:
        functions = self.functions
        if functions is None:
            return self._prior_draw(inputs, random)
        chosen = int(torch.randint(len(functions), (), generator=random))
        if isinstance(functions, Tensor):
            return functions[chosen].to(inputs.device)[inputs]
        domain = self.engine.domain
        points = domain.choices[inputs] if isinstance(domain, Arms) else inputs
        values = functions[chosen](points)
        return check_finite("a function's values", check_vector("values", values, len(inputs)))

    def _prior_draw(self, inputs: Tensor, random: torch.Generator) -> Tensor:
        engine = self.engine
        points = engine.measure.points[inputs] if inputs.dim() == 1 else inputs
        unit: UnitKernel = engine.space.kernel
        # eigenvectors: the matrix of a smooth kernel is singular up to rounding
        eigenvalues, vectors = torch.linalg.eigh(unit(points, points))
        normal = torch.randn(len(points), dtype=torch.float64, generator=random).to(vectors)
        draw = vectors @ (eigenvalues.clamp_min(0.0).sqrt() * normal)
        return draw * engine.prior_variance**0.5 + engine.detector.prior_mean

"""Functions and noise that meet the stated assumptions at their edge.

A :class:`World` belongs to a setting: it has the kernel, the inputs and how functions and noise
are drawn. Functions of bounded norm have exactly that norm; draws are exact ones of the prior.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

from botorch_bandits import Arms, Box
from botorch_bandits.domains import Domain
from claims.settings import Setting

OUTPUT_SCALES = {"none": None, "small": 0.04, "large": 25.0}
"""Output scales of the kernel, by name."""

NUM_CONTEXTS = {"random": 4, "adversarial": 25}
"""How many different contexts there are."""

NUM_FEATURES = 70
"""Of the expansion of the Gaussian kernel in one dimension."""

Function = Callable[[Tensor], Tensor]


def kernel_of(setting: Setting) -> Kernel:
    """Return the kernel of a setting in double precision."""
    nus = {"Matern 1/2": 0.5, "Matern 3/2": 1.5, "Matern 5/2": 2.5}
    parts: dict[str, Callable[[], Kernel]] = {
        "RBF": RBFKernel,
        "periodic": PeriodicKernel,
        "linear": LinearKernel,
        "product": lambda: RBFKernel() * PeriodicKernel(),
        "sum": lambda: ScaleKernel(RBFKernel()) + ScaleKernel(MaternKernel(nu=0.5)),
    }
    name = setting.kernel
    kernel = MaternKernel(nu=nus[name]) if name in nus else parts[name]()
    kernel = kernel.double()
    for part in kernel.modules():
        if isinstance(part, RBFKernel | MaternKernel | PeriodicKernel):
            part.lengthscale = setting.lengthscale
        if isinstance(part, PeriodicKernel):
            part.period_length = 0.7
        if isinstance(part, LinearKernel):
            part.variance = 0.8
        if isinstance(part, ScaleKernel):
            part.outputscale = 0.7
    scale = OUTPUT_SCALES[setting.output_scale]
    if scale is None:
        return kernel
    scaled = ScaleKernel(kernel).double()
    scaled.outputscale = scale
    return scaled


@dataclass(frozen=True)
class Noise:
    """Noise of one run.

    Attributes:
        kind: One of the values of the axis ``noise``.
        bound: Of sub-Gaussian noise: a standard deviation.
        stream: Where random numbers come from.
    """

    kind: str
    bound: float
    stream: np.random.Generator

    def draw(self, largest_so_far: float = 0.0) -> float:
        """Return the noise of one outcome.

        Args:
            largest_so_far: The sum of the noise so far, on which noise "by the past" depends.
        """
        R, stream = self.bound, self.stream
        if self.kind == "Gaussian":
            return R * float(stream.standard_normal())
        if self.kind == "uniform":  # on [-R, R]: R-sub-Gaussian, as everything of this length
            return R * float(stream.uniform(-1.0, 1.0))
        if self.kind == "skewed":
            return two_point(-0.4 * R, 1.6 * R, stream)
        if self.kind == "by the past" and largest_so_far < 0.0:
            return two_point(-1.6 * R, 0.4 * R, stream)
        return R if stream.random() < 0.5 else -R


def two_point(low: float, high: float, stream: np.random.Generator) -> float:
    """Return ``low`` or ``high``, with mean 0; it is ``(high - low) / 2``-sub-Gaussian."""
    return high if stream.random() < -low / (high - low) else low


class World:
    """What a setting is played in.

    Args:
        setting: Its axes.
    """

    def __init__(self, setting: Setting) -> None:
        """See the class."""
        self.setting = setting
        self.kernel = kernel_of(setting)
        self.context_dim = int(setting.contexts != "none")
        self.dim = setting.dim
        stream = np.random.default_rng([7, setting.number])
        self.contexts = np.sort(stream.random(NUM_CONTEXTS.get(setting.contexts, 1)))
        if setting.is_box:
            bounds = [[0.0] * self.dim, [1.0] * self.dim]
            self.domain: Domain = Box(bounds, num_restarts=2, raw_samples=24)
            self.points = self._grid(41 if self.dim == 1 else 8)
            self._fine = self._grid(401 if self.dim == 1 else 31)
        else:
            if self.dim == 1:
                arms = torch.linspace(0.0, 1.0, setting.num_arms, dtype=torch.float64).unsqueeze(-1)
            else:
                arms = torch.from_numpy(stream.random((setting.num_arms, self.dim)))
            self.domain = Arms(arms)
            self.points = arms
        with torch.no_grad():
            one = self.inputs[:1]
            if self.kernel.is_stationary:
                variance = float(self.kernel(one, diag=True))
            elif isinstance(self.kernel, ScaleKernel):
                variance = float(self.kernel.outputscale)
            else:
                variance = 1.0
        self.prior_variance = variance
        self.unit = math.sqrt(variance)  # the prior standard deviation

    def _grid(self, side: int) -> Tensor:
        line = torch.linspace(0.0, 1.0, side, dtype=torch.float64)
        return torch.cartesian_prod(*([line] * self.dim)).reshape(-1, self.dim)

    def with_contexts(self, points: Tensor) -> Tensor:
        """Return ``contexts * n`` inputs of ``n`` points, context by context."""
        if self.context_dim == 0:
            return points
        rows = [
            torch.cat([torch.full((len(points), 1), float(c), dtype=torch.float64), points], dim=-1)
            for c in self.contexts
        ]
        return torch.cat(rows)

    @cached_property
    def inputs(self) -> Tensor:
        """The inputs at which bands are looked at: those of all arms, or of a grid."""
        return self.with_contexts(self.points)

    @cached_property
    def fine_inputs(self) -> Tensor:
        """The inputs over which the best point is searched."""
        return self.inputs if not self.setting.is_box else self.with_contexts(self._fine)

    def covariance(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return the kernel in its unit-variance form."""
        with torch.no_grad():
            return self.kernel(X, Z).to_dense() / self.prior_variance

    @cached_property
    def _spectrum(self) -> tuple[Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(self._of_centers)
        return values.clamp_min(0.0), vectors

    @property
    def _centers(self) -> Tensor:
        step = 1 if not self.setting.is_box else max(len(self.inputs) // 40, 1)
        return self.inputs[::step]

    @cached_property
    def index(self) -> dict[tuple[float, ...], int]:
        """The numbers of the inputs."""
        return {tuple(x): i for i, x in enumerate(self.inputs.tolist())}

    @cached_property
    def _of_centers(self) -> Tensor:
        return self.covariance(self._centers, self._centers)

    # --- functions ------------------------------------------------------------------------------

    def of_norm(self, norm: float, stream: np.random.Generator, shape: str) -> Function:
        """Return a function whose norm in the unit-variance kernel is exactly this.

        Args:
            norm: The norm.
            stream: Where random numbers come from.
            shape: One of the values of the axis ``shape``.
        """
        centers = self._centers
        n = len(centers)
        weights = torch.zeros(n, dtype=torch.float64)
        sign = 1.0 if stream.random() < 0.5 else -1.0
        if shape == "bump":
            weights[int(stream.integers(n))] = sign
        elif shape == "opposite bumps":
            i = int(stream.integers(n))
            weights[i], weights[(i + 1) % n] = sign, -sign
        elif shape == "random":
            weights = torch.from_numpy(stream.standard_normal(n))
        else:
            values, vectors = self._spectrum
            # of rough eigenvectors the norm is too large a multiple to be computed
            rank = int((values > 1e-6 * values[-1]).sum())
            pick = n - 1 if shape == "top eigenvector" else n - 1 - int(stream.integers(rank))
            weights = sign * vectors[:, pick]
        squared = weights @ (self._of_centers @ weights)
        if float(squared) <= 1e-10 * float(weights @ weights):
            return self.of_norm(norm, stream, "bump" if shape != "bump" else "random")
        weights = norm * weights / squared.sqrt()
        return lambda X: self.covariance(X, centers) @ weights

    def positive_of_norm(self, norm: float, stream: np.random.Generator) -> Function:
        """Return a function of this norm that is nowhere negative, for positive kernels."""
        centers = self._centers
        weights = torch.zeros(len(centers), dtype=torch.float64)
        for _ in range(int(stream.integers(1, 4))):
            weights[int(stream.integers(len(centers)))] += float(stream.random())
        squared = weights @ (self._of_centers @ weights)
        weights = norm * weights / squared.sqrt()
        return lambda X: (self.covariance(X, centers) @ weights).clamp_min(0.0)

    def drawn(self, stream: np.random.Generator) -> Function:
        """Return an exact draw of the unit-variance prior, at all points.

        On arms it is known there alone. On boxes the kernel must be Gaussian: its expansion
        ``k(x, z) = sum_n phi_n(x) phi_n(z)``, ``phi_n(x) = exp(-x^2 / 2) x^n / sqrt(n!)``, is cut
        off where it has converged to rounding.
        """
        if not self.setting.is_box:
            values, vectors = self._spectrum
            root = vectors * values.sqrt()
            at_inputs = root @ torch.from_numpy(stream.standard_normal(len(values)))
            return lambda X: torch.stack([at_inputs[self.index[tuple(x)]] for x in X.tolist()])
        dim = self.dim + self.context_dim
        weights = torch.from_numpy(stream.standard_normal((NUM_FEATURES,) * dim))

        def function(X: Tensor) -> Tensor:
            with torch.no_grad():
                each = [self._features(X[:, j]) for j in range(dim)]
            if dim == 1:
                return each[0] @ weights
            return ((each[0] @ weights) * each[1]).sum(-1)

        return function

    def _features(self, x: Tensor) -> Tensor:
        z = (x.unsqueeze(-1) - 0.5) / self.setting.lengthscale
        n = torch.arange(NUM_FEATURES, dtype=torch.float64)
        size = torch.exp(n * z.abs().clamp_min(1e-300).log() - 0.5 * torch.lgamma(n + 1.0))
        sign = torch.where((z < 0.0) & (n % 2 == 1), -1.0, 1.0)
        return sign * size * torch.exp(-0.5 * z**2)

    @property
    def smoothness(self) -> tuple[float, float]:
        """``a`` and ``b`` of Theorem 2 for the Gaussian kernel on the unit interval.

        The derivative is a stationary process of standard deviation ``s / l``, whose upcrossings
        of a level are counted by Rice's formula: ``P(sup |f'| > L)`` is at most
        ``(1 + sqrt(3) / (pi l)) exp(-(L / b)^2)`` with ``b = sqrt(2) s / l``.
        """
        return self.smoothness_at(self.setting.lengthscale, self.unit)

    def smoothness_at(self, lengthscale: float, unit: float) -> tuple[float, float]:
        """Return what :attr:`smoothness` is at another lengthscale and standard deviation."""
        a = 1.0 + math.sqrt(3.0) / (math.pi * lengthscale)
        return a, math.sqrt(2.0) * unit / lengthscale

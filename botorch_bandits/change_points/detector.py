r"""The recipe of a detector of changes in regression.

Source: Avanesov 2020, algorithm 1, with the ridge of (3.5).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Literal

from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits.change_points.thresholds import PowerThreshold, Threshold, rate_exponent
from botorch_bandits.checks import (
    check_integer,
    check_number,
    check_one_of,
    check_positive,
    store_checked,
)
from botorch_bandits.domains import Domain
from botorch_bandits.models.kernels import double_kernel, fingerprint_kernel

if TYPE_CHECKING:
    from botorch_bandits.change_points.engine import DetectorEngine


@dataclass(frozen=True, eq=False)
class ChangePointDetector:
    r"""Tests whether a stream of inputs and outcomes comes from one function.

    For each ``n`` up to half of the samples, the last ``2 n`` samples are halved, a Gaussian
    process is fitted to each half, and the squared difference of both posterior means, averaged
    over the domain :math:`D`, is compared with a threshold :math:`\theta_n`:

    .. math:: \frac{1}{|D|} \int_D \bigl(\mu^{(1)}_n(x) - \mu^{(2)}_n(x)\bigr)^2 dx > \theta_n

    (``statistic="integral"`` is without :math:`1 / |D|`). Only means are used. The ridge of a fit
    to ``n`` samples is

    .. math:: n \rho_n = c \, n^{1 - r}, \qquad r = \frac{2 a + d}{2 a + d + 1},

    :math:`c\, n^{1/7}` for a Matern 5/2 kernel in one dimension. Inputs must be uniformly
    distributed on the domain: the queries of a bandit are not, except those that explore.

    The kernel is scaled to unit prior variance; with prior variance :math:`s^2` thresholds in prior
    units are multiplied by :math:`s^2`. ``prior_mean`` is taken off the outcomes.

    Two detectors are equal if they test equally.

    Args:
        kernel: A GPyTorch kernel, copied to float64; with contexts it is on ``[context, input]``.
        ridge: ``c``. With the mean over the domain 0.3 to 1 reproduce Avanesov 2020; less raises
            more false alarms.
        statistic: ``"mean"`` over the domain, as in the experiments, or the ``"integral"``, as in
            the text. They differ by the volume, so their thresholds do too.
        threshold: Compared with the squared difference; ``n`` is the half size.
        smoothness: ``a``. If None, read from a Matern kernel (its ``nu``) or a squared exponential
            one (infinity: a constant ridge).
        prior_mean: Of the reward function, a constant.
        volume: For ``statistic="integral"``: the measure of the domain. If None, the box's volume
            or the number of arms. Arms that stand for an interval have its length.
        seed: Seeds the points that integrate over boxes of more than two dimensions.
        lengthscale: Set on the kernel, in float64; not kept.

    Raises:
        TypeError: If the kernel is not a kernel, or a number is not one.
        ValueError: If a number is out of range, or the smoothness is needed and not known.

    Example:
        >>> import torch
        >>> from botorch_bandits import Arms
        >>> arms = Arms(torch.linspace(0, 5, 50, dtype=torch.float64).unsqueeze(-1))
        >>> X = arms.sample(40, torch.Generator().manual_seed(0))
        >>> y = torch.sin(X[:, 0])
        >>> y[24:] *= -1.0
        >>> engine = ChangePointDetector(MaternKernel(nu=2.5), lengthscale=1.0).on(arms)
        >>> result = engine.test(X, y)
        >>> result.detected, result.num_samples - result.half_size == result.location
        (True, True)
        >>> engine.test(X[:24], y[:24]).detected
        False
    """

    kernel: Kernel
    ridge: float = 1.0
    statistic: Literal["mean", "integral"] = "mean"
    threshold: Threshold = field(default_factory=PowerThreshold)
    smoothness: float | None = None
    prior_mean: float = 0.0
    volume: float | None = None
    seed: int = 0
    lengthscale: InitVar[float | None] = None

    def __post_init__(self, lengthscale: float | None) -> None:
        """Check the settings."""
        object.__setattr__(self, "kernel", double_kernel(self.kernel, lengthscale))
        store_checked(self, ridge=check_positive("ridge", self.ridge))
        check_one_of("statistic", self.statistic, ("mean", "integral"))
        if not isinstance(self.threshold, Threshold):
            raise TypeError(
                f"threshold is {self.threshold!r}; pass a Threshold, for example "
                "PowerThreshold(scale=2.6, exponent=-6/7) or what calibrate_threshold returns."
            )
        if self.smoothness is not None:
            smoothness = check_positive("smoothness", self.smoothness, or_infinite=True)
            store_checked(self, smoothness=smoothness)
        store_checked(self, prior_mean=check_number("prior_mean", self.prior_mean))
        if self.volume is not None:
            store_checked(self, volume=check_positive("volume", self.volume))
            if self.statistic == "mean":
                raise ValueError(
                    f"volume is {self.volume}, but statistic='mean' does not depend on it. Pass "
                    "statistic='integral', or leave volume out."
                )
        store_checked(self, seed=check_integer("seed", self.seed, minimum=0))
        if self.known_smoothness is None:
            raise ValueError(
                f"smoothness is not given and cannot be read from {type(self.kernel).__name__}. "
                "Pass smoothness=: the nu of a Matern kernel that is about as smooth, or "
                "math.inf for a constant ridge."
            )

    def on(self, domain: Domain) -> DetectorEngine:
        """Prepare the detector for a domain: matrices on arms, points that integrate on boxes.

        Args:
            domain: Where inputs are uniformly distributed, without contexts.
        """
        from botorch_bandits.change_points.engine import DetectorEngine

        return DetectorEngine(self, domain)

    @property
    def known_smoothness(self) -> float | None:
        """``a``, given or read from the kernel, None if neither is possible."""
        if self.smoothness is not None:
            return float(self.smoothness)
        kernel = self.kernel
        while isinstance(kernel, ScaleKernel):
            kernel = kernel.base_kernel
        if isinstance(kernel, MaternKernel):
            return float(kernel.nu)
        return math.inf if isinstance(kernel, RBFKernel) else None

    def ridges(self, half_sizes: Tensor, dim: int) -> Tensor:
        r"""Return :math:`n \rho_n = c \, n^{1 - r}` for half sizes ``n``.

        Args:
            half_sizes: ``n``, positive, float64.
            dim: ``d``, contexts included.
        """
        assert self.known_smoothness is not None
        return self.ridge * half_sizes ** (1.0 - rate_exponent(self.known_smoothness, dim))

    def thresholds(self, half_sizes: Tensor, dim: int, prior_variance: float) -> Tensor:
        """Return the thresholds in squared outcome units.

        Args:
            half_sizes: ``n``, positive, float64.
            dim: ``d``, contexts included.
            prior_variance: That of the kernel.
        """
        values = self.threshold.values(half_sizes, self.known_smoothness, dim)
        return values * prior_variance if self.threshold.units == "prior" else values

    def fingerprint(self) -> str:
        """Return a digest that is equal for detectors that test equally."""
        settings = (
            self.ridge,
            self.statistic,
            self.threshold,
            self.smoothness,
            self.prior_mean,
            self.volume,
            self.seed,
        )
        text = fingerprint_kernel(self.kernel) + repr(settings)
        return hashlib.sha256(text.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        """Compare by fingerprint."""
        if not isinstance(other, ChangePointDetector):
            return NotImplemented
        return self.fingerprint() == other.fingerprint()

    def __hash__(self) -> int:
        """Hash what cannot change: the numbers."""
        return hash((self.ridge, self.statistic, self.smoothness, self.prior_mean, self.seed))

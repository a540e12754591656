r"""The change-point detector that compares the fits to two halves of the newest samples.

:class:`ChangePointDetector` holds the settings. On a given domain, it creates a
:class:`DetectorEngine`, which tests samples.

After each outcome, the detector asks whether two halves of the latest data were drawn from the same
function. After ``N`` samples, every tail of ``2 n`` samples is tested, ``n = 1 .. N // 2``. A
change is detected if the statistic of a tail, the squared distance between the fits to its two
halves, exceeds the threshold for ``n``. The fit to ``n`` samples is kernel ridge regression with
the ridge :math:`\rho_n = c \, n^{-r}`, which enters as :math:`K + n \rho_n I`.

**One tail.** With the kernel matrices :math:`K_1` and :math:`K_2` of the halves, the statistic of
the tail of ``2 n`` samples is the mean square over the domain :math:`D` of a kernel expansion:

.. math::
   \int (\mu_1 - \mu_2)^2 \, d\nu = \int \Bigl( \sum_i c_i \, k(x_i, x) \Bigr)^2 d\nu(x), \qquad
   c = \bigl( (K_1 + n \rho_n I)^{-1} y_1, \; -(K_2 + n \rho_n I)^{-1} y_2 \bigr).

**All tails.** In this module, samples are in reverse order, the newest first, and a window is a run
of neighbors. The tail of ``2 n`` samples consists of the windows of size ``n`` that begin at 0 and
at ``n``. Windows of similar size share one batched factorization: the Cholesky factor of a block
contains those of all its leading blocks, so shorter windows only need zeros in the right-hand
sides.

**Contexts.** With contexts, the kernel is on pairs of context and input. For a tail with the
contexts :math:`z_1 .. z_{2n}`,

.. math::
   \hat\Delta^2 = \frac{1}{2n} \sum_{i=1}^{2n} \int (\mu_1 - \mu_2)^2(z_i, x) \, d\nu(x).

Each half learns only from its own contexts. Contexts that come in blocks make the halves disagree
even without a change.

**The mean over the domain.** Arms are their own points, and the mean over them is exact. Boxes with
few dimensions use a product of Gauss-Legendre rules (of all integers in integer dimensions), other
boxes a scrambled Sobol set.

Source: Avanesov 2020, algorithm 1, with (2.4) and the ridge of (3.5); for thresholds theorem 3.1
and (3.6), one of which prints ``g`` in place of ``g^2``, and remark 3.1 for calibration.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property

import numpy as np
import torch
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor
from torch.nn.functional import one_hot

from botorch_bandits.checks import (
    DTYPE,
    check_instance,
    check_integer,
    check_matrix,
    check_number,
    check_positive,
    check_vector,
    double_kernel,
    store_checked,
)
from botorch_bandits.core.kernels import (
    kernel_function,
    smoothness_of,
)
from botorch_bandits.domains import Arms, Box, Domain
from botorch_bandits.fingerprints import are_equal
from botorch_bandits.random_streams import derive_seed

# --- Thresholds, as functions of the half size ``n`` ----------------------------------------------
# The statistic is a squared difference, and so is a threshold. It is given for a kernel of unit
# prior variance; for a model with prior variance :math:`s^2`, it is :math:`s^2 \theta_n`. Theorem
# 3.1 has
#
#     theta_n = C (F^2 + g^2 ln^2 T) n^(-(2 a + d) / (2 a + d + 1))
#
# in outcome units, with a bound ``F`` on the norm of every function, the sub-Gaussian bound ``g``
# of the noise and the horizon ``T``, but not the constant ``C``.


def rate_exponent(smoothness: float, dim: int) -> float:
    r"""Return :math:`(2 a + d) / (2 a + d + 1)`, the rate of the ridge and of the threshold.

    Args:
        smoothness: ``a``, the ``nu`` of a Matern kernel; infinity for the squared exponential
            kernel.
        dim: ``d``, the number of input dimensions, contexts included.

    Example:
        >>> round(rate_exponent(2.5, 1) * 7, 12)
        6.0
    """
    if math.isinf(smoothness):
        return 1.0
    return (2.0 * smoothness + dim) / (2.0 * smoothness + dim + 1.0)


class Threshold(ABC):
    """The threshold for the statistic of a tail of ``2 n`` samples."""

    @abstractmethod
    def values(self, half_sizes: Tensor, smoothness: float, dim: int) -> Tensor:
        """Return one threshold for each half size.

        Args:
            half_sizes: ``n``, positive, float64.
            smoothness: ``a``, the smoothness of the detector's kernel.
            dim: The number of input dimensions, contexts included.
        """


@dataclass(frozen=True)
class PowerThreshold(Threshold):
    r"""A power of the half size; by default the threshold of the experiments of Avanesov 2020.

    .. math:: \theta_n = \mathrm{scale} \cdot n^{\mathrm{exponent}}, \qquad 2.6 \, n^{-6/7}

    The published values are for one dimension, a Matern 5/2 kernel, ``statistic="mean"`` and a
    kernel of unit variance.

    Args:
        scale: The threshold of ``n = 1``, positive. Infinity never detects a change.
        exponent: Usually negative; ``-(2 a + d) / (2 a + d + 1)`` in theory.

    Raises:
        ValueError: If the scale is not positive or the exponent is not finite.

    Example:
        >>> n = torch.tensor([1.0, 128.0], dtype=torch.float64)
        >>> PowerThreshold().values(n, 2.5, 1)
        tensor([2.6000, 0.0406], dtype=torch.float64)
    """

    scale: float = 2.6
    exponent: float = -6.0 / 7.0

    def __post_init__(self) -> None:
        """Check the arguments."""
        store_checked(self, scale=check_positive("scale", self.scale, or_infinite=True))
        store_checked(self, exponent=check_number("exponent", self.exponent))

    def values(self, half_sizes: Tensor, smoothness: float, dim: int) -> Tensor:
        return self.scale * half_sizes**self.exponent


@dataclass(frozen=True)
class CalibratedThreshold(Threshold):
    """A threshold whose level was found by simulation, returned by :func:`calibrate_threshold`.

    Attributes:
        levels: One for each ``n = 1 .. horizon // 2``, for a kernel of unit variance.
        exponent: Beyond the horizon, the last level is continued with this power of ``n``. No rate
            is claimed there.
        horizon: The number of uniform samples since the last reset for which the rate is claimed.
        false_alarm_rate: The desired probability of any alarm within the horizon.
        confidence: With at least this probability over the simulations, the true rate is at most
            ``false_alarm_rate``. If None, this holds on average over the simulations.
        num_simulations: The number of simulated streams without a change.
        num_alarms: The number of these that raise an alarm at these levels. The level was chosen on
            the same streams: for an unbiased check, simulate again with
            :func:`estimate_false_alarm_rate`.
        seed: The seed of the simulations.
        source: The source of functions and noise, in words.
    """

    levels: tuple[float, ...]
    exponent: float
    horizon: int
    false_alarm_rate: float
    confidence: float | None
    num_simulations: int
    num_alarms: int
    seed: int
    source: str

    def values(self, half_sizes: Tensor, smoothness: float, dim: int) -> Tensor:
        levels = torch.tensor(self.levels, dtype=half_sizes.dtype, device=half_sizes.device)
        largest = float(len(levels))
        calibrated = levels[half_sizes.clamp(max=largest).long() - 1]
        return calibrated * (half_sizes.clamp(min=largest) / largest) ** self.exponent


# --- The test: two fits to the halves of each tail ------------------------------------------------


BUCKET = 16
"""Tails that share a factorization; more waste arithmetic, fewer cost more calls."""

CHUNK_ENTRIES = 2**20
"""Entries of the systems that are factorized together."""


def window_weights(
    kernel: Tensor, outcomes: Tensor, ridges: Tensor, starts: Tensor, sizes: Tensor
) -> Tensor:
    """Return the weights of kernel ridge regression on windows of samples.

    Args:
        kernel: ``N x N``.
        outcomes: ``N``, less the prior mean.
        ridges: ``n rho_n`` for the sizes ``n = 1, 2, ...``.
        starts: ``w``, the first sample of each window. The largest size must fit behind each.
        sizes: ``w``.

    Returns:
        ``w x n`` weights, where ``n`` is the largest size, with zeros behind the size of each.

    Raises:
        ValueError: If the ridge is below what float64 can resolve.
    """
    n = int(sizes.max())
    # (N - n + 1) x n x n: the blocks along the diagonal, without copies
    blocks = kernel.unfold(0, n, 1).unfold(1, n, 1).diagonal(0, 0, 1).movedim(-1, 0)
    systems = blocks[starts]
    systems.diagonal(dim1=-2, dim2=-1).add_(ridges[sizes - 1].unsqueeze(-1))
    factor, info = torch.linalg.cholesky_ex(systems)
    if bool(info.any()):
        raise ValueError(
            "ridge is too small: K + n rho_n I cannot be factorized in float64. Values from 0.3 to "
            "1 are usual."
        )
    right = outcomes.unfold(0, n, 1)[starts].unsqueeze(-1)  # w x n x 1
    solved = torch.linalg.solve_triangular(factor, right, upper=False)
    inside = torch.arange(n, device=sizes.device) < sizes.unsqueeze(-1)  # w x n
    solved = torch.where(inside.unsqueeze(-1), solved, 0.0)
    return torch.linalg.solve_triangular(factor.mT, solved, upper=True).squeeze(-1)


def _differences(newer: Tensor, older: Tensor, starts: Tensor, sizes: Tensor, num: int) -> Tensor:
    """Return the coefficients of ``mu_1 - mu_2`` of pairs of neighboring windows.

    Args:
        newer: ``w x n`` weights of the newer windows.
        older: Those of the older windows.
        starts: ``w``, where the newer windows begin.
        sizes: ``w``; the older windows begin so much further back.
        num: ``N``.

    Returns:
        ``w x N``.
    """
    at = starts.unsqueeze(-1) + torch.arange(newer.shape[-1], device=starts.device)  # w x n
    found = newer.new_zeros(len(newer), num).scatter_add_(1, at, -newer)
    return found.scatter_add_(1, at + sizes.unsqueeze(-1), older)


def tail_coefficients(kernel: Tensor, outcomes: Tensor, ridges: Tensor) -> Tensor:
    """Return the coefficients ``c`` of ``mu_1 - mu_2`` for every tail.

    Args:
        kernel: ``N x N``, newest sample first.
        outcomes: ``N``, newest first, less the prior mean.
        ridges: One for each ``n = 1 .. N // 2``.

    Returns:
        ``N // 2 x N`` coefficients, newest first.
    """
    rows = [kernel[:0]]
    sizes = torch.arange(1, len(ridges) + 1, device=kernel.device)
    for n in sizes.split(BUCKET) if len(sizes) else ():
        starts = torch.cat([0 * n, n])  # the newer windows of all tails, then the older ones
        newer, older = window_weights(kernel, outcomes, ridges, starts, n.repeat(2)).chunk(2)
        rows.append(_differences(newer, older, 0 * n, n, len(outcomes)))
    return torch.cat(rows)


def largest_statistics(kernel: Tensor, gram: Tensor, outcomes: Tensor, ridges: Tensor) -> Tensor:
    """Return the largest statistic of each half size in all tests of a growing stream.

    Args:
        kernel: ``N x N``.
        gram: ``N x N``; the mean square of ``sum_i c_i k(x_i, .)`` is ``c' gram c``.
        outcomes: ``N``, less the prior mean.
        ridges: ``n rho_n`` for ``n = 1 .. N // 2``.

    Returns:
        ``N // 2`` numbers.
    """
    largest, num_samples = [], len(outcomes)
    for n in range(1, len(ridges) + 1):
        starts = torch.arange(num_samples - n + 1, device=kernel.device)
        sizes = torch.full_like(starts, n)
        pieces = starts.split(max(1, CHUNK_ENTRIES // n**2))
        weights = torch.cat(
            [window_weights(kernel, outcomes, ridges, at, sizes[: len(at)]) for at in pieces]
        )
        pairs = num_samples - 2 * n + 1  # each window, and the one that it follows
        c = _differences(weights[:pairs], weights[n:], starts[:pairs], sizes[:pairs], num_samples)
        largest.append(((c @ gram) * c).sum(-1).amax())
    return torch.stack(largest)


PRODUCT_NODES = {0: 1, 1: 256, 2: 48}
"""Gauss-Legendre nodes per dimension, by the number of continuous dimensions."""

LARGEST_PRODUCT = 4096
"""With more nodes than this, integers included, Sobol points are used instead."""

SOBOL_POINTS = 4096
"""The number of points of a scrambled Sobol set."""


def averaging_rule(domain: Domain, seed: int) -> tuple[Tensor, Tensor]:
    """Return points (``q x d``) and weights (``q``, with the sum 1) that average over a domain.

    Args:
        domain: Arms or a box.
        seed: The seed of the scrambling of Sobol points.

    Raises:
        TypeError: If the domain is neither.
        ValueError: If it is a box with constraints.
    """
    if isinstance(domain, Arms):
        even = torch.full_like(domain.choices[:, 0], 1.0 / domain.num_arms)
        return domain.choices, even
    if not isinstance(domain, Box):
        raise TypeError(
            f"domain is a {type(domain).__name__}; the change test knows only Arms and Box. "
            "For a domain of your own, use arms: Arms(domain.sample(1000))."
        )
    if domain.constraints:
        raise ValueError(
            f"domain has {', '.join(domain.constraints)}, but the change test integrates over "
            "a whole box. Use EvidenceRestart(...), or Arms of feasible points."
        )
    low, high = domain.bounds
    is_whole = torch.zeros_like(low, dtype=torch.bool)
    is_whole[list(domain.integer_dims)] = True
    nodes = PRODUCT_NODES.get(int((~is_whole).sum()), LARGEST_PRODUCT + 1)
    counts = torch.where(is_whole, high - low + 1.0, float(nodes))
    if float(counts.prod()) <= LARGEST_PRODUCT:
        abscissae, gauss = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(nodes))
        lines, weights = [], []
        for whole, first, last in zip(is_whole.tolist(), low.tolist(), high.tolist(), strict=True):
            inner = first + 0.5 * (last - first) * (abscissae + 1.0)
            line = torch.arange(first, last + 1.0, dtype=DTYPE) if whole else inner
            lines.append(line)
            weights.append(torch.full_like(line, 1.0 / len(line)) if whole else 0.5 * gauss)
        points = torch.cartesian_prod(*lines).reshape(-1, domain.dim)
        products = torch.cartesian_prod(*weights).reshape(-1, domain.dim).prod(-1)
        return points.to(low), products.to(low)
    cube = torch.tensor([[0.0], [1.0]], dtype=DTYPE).expand(2, domain.dim)
    seed = derive_seed(seed, 0, "change test") % 2**31
    unit = draw_sobol_samples(cube, n=SOBOL_POINTS, q=1, seed=seed).squeeze(-2).to(low)
    # every integer gets an equal share of [0, 1)
    integers = low + torch.floor(unit * (high - low + 1.0))
    points = torch.where(is_whole, integers, low + (high - low) * unit)
    return torch.minimum(points, high), torch.full_like(unit[:, 0], 1.0 / SOBOL_POINTS)


LARGEST_TABLE = 2048
"""Number of arms up to which covariances of all arms are kept."""


class UnitKernel:
    """A kernel divided by its prior variance, evaluated outside autograd.

    Args:
        kernel: A float64 kernel without batch shape.
        points: ``n x d`` points at which the prior variance is read; the largest one is used.
    """

    def __init__(self, kernel: Kernel, points: Tensor) -> None:
        """See the class."""
        self._function = kernel_function(copy.deepcopy(kernel).to(points), points.shape[-1])
        with torch.no_grad():
            self.prior_variance = float(self._function.diagonal(points).max())

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return the ``n x p`` matrix of ``n x d`` and ``p x d`` inputs."""
        with torch.no_grad():
            return self._function(X, Z) / self.prior_variance


@dataclass(frozen=True, eq=False)
class ChangePointTest:
    """The result of testing every even tail of a stream.

    If a change is detected, the tail is the shortest one whose statistic exceeds its threshold, at
    which the scan of Avanesov 2020 stops. Otherwise, it is the tail nearest to an alarm, with the
    largest ratio of statistic to threshold.

    Attributes:
        num_samples: ``N``, the number of samples in the stream.
        statistic: The squared difference of both posterior means, in squared outcome units; 0
            without any tail.
        threshold: The threshold of the statistic, in the same units; infinity without any tail.
        half_size: ``n``; the tail has ``2 n`` samples. 0 without any tail (``N < 2``).
        location: Index in the stream of the first sample after the estimated change, ``N - n``.
        detected: Whether any statistic exceeds its threshold.
        statistics: One for each ``n = 1 .. N // 2``.
        thresholds: One for each ``n``.
    """

    num_samples: int
    statistic: float
    threshold: float
    half_size: int
    location: int
    detected: bool
    statistics: Tensor
    thresholds: Tensor

    @classmethod
    def of(cls, num_samples: int, statistics: Tensor, thresholds: Tensor) -> ChangePointTest:
        """Return the result, given the statistics and the thresholds of all tails.

        Args:
            num_samples: ``N``.
            statistics: One per tail, shortest tail first.
            thresholds: One per tail, positive; infinity never alarms.
        """
        alarms = statistics > thresholds
        detected = bool(alarms.any())
        if len(statistics) == 0:
            return cls(num_samples, 0.0, math.inf, 0, num_samples, False, statistics, thresholds)
        # the first of equal entries
        tail = int((alarms.double() if detected else statistics / thresholds).argmax())
        return cls(
            num_samples=num_samples,
            statistic=float(statistics[tail]),
            threshold=float(thresholds[tail]),
            half_size=tail + 1,
            location=num_samples - tail - 1,
            detected=detected,
            statistics=statistics,
            thresholds=thresholds,
        )


class DetectorEngine:
    """Tests streams of samples on one domain; made by :meth:`ChangePointDetector.on`.

    Args:
        detector: The settings.
        domain: The domain on which inputs are uniformly distributed, without contexts.

    Raises:
        TypeError: If the domain is neither arms nor a box.
    """

    def __init__(self, detector: ChangePointDetector, domain: Domain) -> None:
        """See the class."""
        self.detector, self.domain = detector, domain
        self.points, weights = averaging_rule(domain, detector.seed)  # q x d, q
        self._roots = weights.sqrt()
        self.are_arms = isinstance(domain, Arms)

    @cached_property
    def kernel(self) -> UnitKernel:
        """The kernel on the domain, without contexts."""
        return UnitKernel(self.detector.kernel, self.points)

    @cached_property
    def _table(self) -> Tensor:
        """The kernel values of all arms with each other."""
        return self.kernel(self.points, self.points)

    def matrices(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the kernel matrix of samples, ``n x n``, and their features, ``n x q``.

        Features are the kernel values with the points that average over the domain, times the roots
        of their weights, so that ``sum_i c_i k(x_i, .)`` has the mean square ``|c features|^2``.

        Args:
            inputs: ``n x d`` points of a box, or ``n`` arm numbers.
        """
        if self.are_arms and len(self.points) <= LARGEST_TABLE:
            rows = self._table[inputs]
            return rows[:, inputs], rows * self._roots
        points = self.points_of(inputs)
        return self.kernel(points, points), self.kernel(points, self.points) * self._roots

    def points_of(self, inputs: Tensor) -> Tensor:
        """Return ``n x d`` points for ``inputs``: points of a box, or ``n`` arm numbers."""
        return self.points[inputs] if self.are_arms else inputs

    def test(
        self, X: Tensor, Y: Tensor | Sequence[float], *, contexts: Tensor | None = None
    ) -> ChangePointTest:
        """Test every even tail of a stream, oldest sample first.

        Args:
            X: ``N x d`` inputs of the domain, drawn uniformly; or ``N`` arm numbers (int64).
            Y: ``N`` outcomes, or a column of them.
            contexts: ``N x c``, if the kernel is on ``[context, input]``. The statistic of a tail
                then averages over its contexts as well. This requires contexts that are drawn
                independently from one distribution: if they come in blocks, the two halves see
                different contexts, and the statistic is large without any change.

        Raises:
            TypeError: If a tensor has a dtype other than float64 (arm numbers: int64).
            ValueError: If shapes do not match, an entry is not finite, or a point is not in the
                domain.
        """
        outcomes = self.check_outcomes(Y).flip(0)
        inputs = self.check_inputs(X, len(outcomes)).flip(0)  # newest first
        half_sizes = self.half_sizes(len(outcomes))
        dim = self.domain.dim
        if contexts is None:
            ridges, variance = self.detector.ridges(half_sizes, dim), self.kernel.prior_variance
            kernel, features = self.matrices(inputs)
            squares = (tail_coefficients(kernel, outcomes, ridges) @ features).square().sum(-1)
        else:
            given = check_matrix("contexts", contexts).detach().to(outcomes.device).flip(0)
            if len(given) != len(outcomes):
                raise ValueError(
                    f"contexts has {len(given)} rows, but Y has {len(outcomes)}; they must agree."
                )
            dim += given.shape[-1]
            ridges = self.detector.ridges(half_sizes, dim)
            squares, variance = self._in_contexts(inputs, outcomes, given, ridges)
        thresholds = self.detector.thresholds(half_sizes, dim, variance)
        return ChangePointTest.of(len(outcomes), squares, thresholds)

    def _in_contexts(
        self, inputs: Tensor, outcomes: Tensor, contexts: Tensor, ridges: Tensor
    ) -> tuple[Tensor, float]:
        """Return the mean square of each tail, and the prior variance.

        This costs ``N^2 q`` kernel values for ``N`` distinct contexts and ``q`` points.
        """
        samples = torch.cat([contexts, self.points_of(inputs)], dim=-1)
        unit = UnitKernel(self.detector.kernel, samples)
        coefficients = tail_coefficients(unit(samples, samples), outcomes, ridges)
        distinct, which = contexts.unique(dim=0, return_inverse=True)
        # how often each context is in the newest 2, 4, ... samples, N // 2 x num_distinct
        counts = one_hot(which, len(distinct)).cumsum(0)[1::2]
        totals = torch.zeros_like(ridges)
        for context, count in zip(distinct, counts.unbind(-1), strict=True):
            points = torch.cat([context.expand(len(self.points), -1), self.points], dim=-1)
            features = unit(samples, points) * self._roots
            totals += count * (coefficients @ features).square().sum(-1)
        return totals / counts.sum(-1), unit.prior_variance

    def half_sizes(self, num_samples: int) -> Tensor:
        """Return ``n = 1 .. num_samples // 2`` in float64."""
        return torch.arange(1, num_samples // 2 + 1, dtype=DTYPE, device=self.points.device)

    def check_outcomes(self, Y: Tensor | Sequence[float]) -> Tensor:
        """Return ``N`` finite outcomes less the prior mean.

        Args:
            Y: ``N`` outcomes.
        """
        if torch.is_tensor(Y) and Y.dim() == 2 and Y.shape[-1] == 1:
            Y = Y.squeeze(-1)
        return check_vector("Y", Y).detach().to(self.points.device) - self.detector.prior_mean

    def check_inputs(self, X: Tensor, num_samples: int) -> Tensor:
        """Return ``N x d`` inputs of a box, or ``N`` arm numbers.

        Args:
            X: Inputs, or arm numbers if the domain is a set of arms.
            num_samples: ``N``.
        """
        device = self.points.device
        if self.are_arms and torch.is_tensor(X) and X.dtype == torch.long:
            inputs = X.reshape(-1).to(device)
            outside = (inputs < 0) | (inputs >= len(self.points))
            if bool(outside.any()):
                raise ValueError(
                    f"X has the arm number {int(inputs[outside][0])}; arms are numbered from 0 to "
                    f"{len(self.points) - 1}."
                )
        elif isinstance(self.domain, Arms):
            inputs = self.domain.index_of(X).to(device)
        else:
            inputs = check_matrix("X", X, num_columns=self.domain.dim).detach().to(device)
            low, high = self.domain.input_bounds.to(inputs)
            outside = ((inputs < low) | (inputs > high)).any(-1)
            for i in outside.nonzero()[:1, 0].tolist():
                self.domain.check_point(f"X[{i}]", inputs[i])  # says what is wrong
        if len(inputs) != num_samples:
            raise ValueError(
                f"X has {len(inputs)} samples, but Y has {num_samples}; they must agree."
            )
        return inputs


@dataclass(frozen=True)
class ChangePointDetector:
    r"""Tests whether a stream of inputs and outcomes comes from one function.

    For each ``n`` up to half of the samples, the last ``2 n`` samples are halved, a Gaussian
    process is fitted to each half, and the squared difference of both posterior means, averaged
    over the domain :math:`D`, is compared with a threshold :math:`\theta_n`:

    .. math:: \frac{1}{|D|} \int_D \bigl(\mu^{(1)}_n(x) - \mu^{(2)}_n(x)\bigr)^2 dx > \theta_n

    which the published threshold is for; the integral of (2.4), without the factor
    :math:`1 / |D|`, is the same test with the threshold divided by the volume of the domain. Only
    means are used. The ridge of a fit to ``n`` samples is

    .. math:: n \rho_n = c \, n^{1 - r}, \qquad r = \frac{2 a + d}{2 a + d + 1},

    which is :math:`c\, n^{1/7}` for a Matern 5/2 kernel in one dimension. Inputs must be uniformly
    distributed on the domain, which the queries of a bandit are not, except those that explore.

    The kernel is scaled to unit prior variance; with prior variance :math:`s^2`, thresholds
    are multiplied by :math:`s^2`. ``prior_mean`` is subtracted from the outcomes.

    Two detectors are equal if their tests are equal.

    Args:
        kernel: A GPyTorch kernel, copied to float64; with contexts it is on ``[context, input]``.
        ridge: ``c``, any positive number in (3.5) of Avanesov 2020, whose experiments do not state
            theirs. With the published threshold, the mean and their setting, 0.3 raises a false
            alarm in 0.38 of 300 rounds without a change, 1 in 0.15 and 3 in 0.03, and 0.92, 0.75
            and 0.48 of the changes are detected within 300 rounds. A smaller ridge, as chosen by
            :func:`~botorch_bandits.change_points.cross_validated_ridge`, detects more at the same
            rate of false alarms, with a threshold that is calibrated for it.
        threshold: The threshold of the squared difference; ``n`` is the half size.
        smoothness: ``a``. If None, it is read from a Matern kernel (its ``nu``) or a squared
            exponential kernel (infinity: a constant ridge).
        prior_mean: The prior mean of the reward function, a constant.
        seed: The seed of the points that average over boxes of more than two dimensions.
        lengthscale: A lengthscale to set on the kernel, in float64; it is not kept.

    Raises:
        TypeError: If the kernel is not a GPyTorch kernel, or a number has the wrong type.
        ValueError: If a number is out of range, or the smoothness is needed and not known.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import MaternKernel
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

    kernel: Kernel = field(hash=False)
    ridge: float = 1.0
    threshold: Threshold = field(default_factory=PowerThreshold)
    smoothness: float | None = None
    prior_mean: float = 0.0
    seed: int = 0
    lengthscale: InitVar[float | None] = None

    def __post_init__(self, lengthscale: float | None) -> None:
        """Check the settings."""
        store_checked(
            self,
            kernel=double_kernel(self.kernel, lengthscale),
            ridge=check_positive("ridge", self.ridge),
            prior_mean=check_number("prior_mean", self.prior_mean),
            seed=check_integer("seed", self.seed, minimum=0),
        )
        check_instance(
            "threshold",
            self.threshold,
            Threshold,
            "Pass a Threshold, such as PowerThreshold(scale=2.6, exponent=-6/7) or what "
            "calibrate_threshold returns.",
        )
        if self.smoothness is not None:
            store_checked(
                self, smoothness=check_positive("smoothness", self.smoothness, or_infinite=True)
            )
        _ = self.known_smoothness  # raises unless it is known

    def __eq__(self, other: object) -> bool:
        """Compare the settings, and the kernels by their content, which can change."""
        return isinstance(other, ChangePointDetector) and are_equal(vars(self), vars(other))

    def on(self, domain: Domain) -> DetectorEngine:
        """Prepare the detector for a domain: matrices on arms, points for integration on boxes.

        Args:
            domain: The domain on which inputs are uniformly distributed, without contexts.
        """
        return DetectorEngine(self, domain)

    @property
    def known_smoothness(self) -> float:
        """``a``, given or read from the kernel."""
        if self.smoothness is not None:
            return self.smoothness
        kernel = self.kernel
        while isinstance(kernel, ScaleKernel):
            kernel = kernel.base_kernel
        known = smoothness_of(kernel)
        if known is None:
            raise ValueError(
                f"smoothness is not given and cannot be read from {type(self.kernel).__name__}. "
                "Pass smoothness=: the nu of a Matern kernel that is about as smooth, or "
                "math.inf for a constant ridge."
            )
        return known

    def ridges(self, half_sizes: Tensor, dim: int) -> Tensor:
        r"""Return :math:`n \rho_n = c \, n^{1 - r}` for half sizes ``n``.

        Args:
            half_sizes: ``n``, positive, float64.
            dim: ``d``, contexts included.
        """
        return self.ridge * half_sizes ** (1.0 - rate_exponent(self.known_smoothness, dim))

    def thresholds(self, half_sizes: Tensor, dim: int, prior_variance: float) -> Tensor:
        """Return the thresholds in squared outcome units.

        Args:
            half_sizes: ``n``, positive, float64.
            dim: ``d``, contexts included.
            prior_variance: The prior variance of the kernel.
        """
        return prior_variance * self.threshold.values(half_sizes, self.known_smoothness, dim)

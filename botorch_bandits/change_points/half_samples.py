r"""The change-point detector that compares the fits to two halves of the newest samples.

:class:`ChangePointDetector` holds the settings. On a given domain, it creates a
:class:`DetectorEngine`, which tests samples; a :class:`DetectorStream` takes them one by one.

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

**All tails.** In this module, samples are in reverse order, the newest first. The newer halves of
all tails are then leading blocks of ``K``, the older halves lie along its diagonal, and no block
has to be gathered. Tails of similar size share one batched factorization: the Cholesky factor of a
block contains those of all its leading blocks, so shorter halves only need zeros in the right-hand
sides.

**Contexts.** With contexts, the kernel is on pairs of context and input. For a tail with the
contexts :math:`z_1 .. z_{2n}`,

.. math::
   \hat\Delta^2 = \frac{1}{2n} \sum_{i=1}^{2n} \int (\mu_1 - \mu_2)^2(z_i, x) \, d\nu(x).

Each half learns only from its own contexts. Contexts that come in blocks make the halves disagree
even without a change.

**The mean over the domain.** Arms are their own points, and the mean over them is exact. Boxes with
few dimensions use a product of Gauss-Legendre rules (of all integers in integer dimensions), and a
second product with half as many nodes, which yields the error. Other boxes use several
independently scrambled Sobol sets, whose scatter yields the error.

Source: Avanesov 2020, algorithm 1, with (2.4) and the ridge of (3.5).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Literal, cast

import numpy as np
import torch
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from botorch_bandits.change_points.thresholds import PowerThreshold, Threshold, rate_exponent
from botorch_bandits.checks import (
    DTYPE,
    check_instance,
    check_integer,
    check_matrix,
    check_number,
    check_one_of,
    check_positive,
    check_vector,
    store_checked,
)
from botorch_bandits.core.kernels import (
    double_kernel,
    fingerprint_kernel,
    kernel_function,
    smoothness_of,
)
from botorch_bandits.domains import Arms, Box, Domain
from botorch_bandits.random_streams import derive_seed


def bucket_size(half_size: int) -> int:
    """Return the number of tails, from this half size on, that share a factorization."""
    return 16 if half_size <= 32 else 8


def factorize(systems: Tensor) -> Tensor:
    """Return the Cholesky factors of ``K + n rho_n I``, ``... x n x n``.

    Raises:
        ValueError: If the ridge is below what float64 can resolve.
    """
    factor, info = torch.linalg.cholesky_ex(systems)
    if bool(info.any()):
        raise ValueError(
            "ridge is too small: K + n rho_n I cannot be factorized in float64. Values from 0.3 to "
            "1 are usual."
        )
    return factor


def half_weights(kernel: Tensor, outcomes: Tensor, ridges: Tensor, first: int, last: int) -> Tensor:
    """Return the weights of both halves of several tails.

    Args:
        kernel: ``N x N``, newest sample first.
        outcomes: ``N``, newest first, less the prior mean.
        ridges: ``n rho_n`` for ``n = 1 .. N // 2``.
        first: The smallest ``n``.
        last: The largest ``n``.

    Returns:
        A ``2 x (last - first + 1) x last`` tensor with the newer halves (samples ``0 .. n``) before
        the older ones (``n .. 2 n``), and zeros after the ``n`` weights of each row.
    """
    count = last - first + 1
    systems = kernel.new_empty(2, count, last, last)
    right = outcomes.new_empty(2, count, last)
    rows, columns = kernel.stride()
    stride = outcomes.stride(0)
    for half in range(2):  # older halves begin one sample further back in every row
        systems[half] = kernel.as_strided(
            (count, last, last),
            (half * (rows + columns), rows, columns),
            kernel.storage_offset() + half * first * (rows + columns),
        )
        right[half] = outcomes.as_strided(
            (count, last),
            (half * stride, stride),
            outcomes.storage_offset() + half * first * stride,
        )
    systems.diagonal(dim1=-2, dim2=-1).add_(ridges[first - 1 : last].unsqueeze(-1))
    factor = factorize(systems)
    solved = torch.linalg.solve_triangular(factor, right.unsqueeze(-1), upper=False)
    # row i has n = first + i, so later entries of the half must not enter
    solved = solved.squeeze(-1).tril(first - 1).unsqueeze(-1)
    return torch.linalg.solve_triangular(factor.mT, solved, upper=True).squeeze(-1)


def tail_coefficients(kernel: Tensor, outcomes: Tensor, ridges: Tensor) -> Tensor:
    """Return the coefficients ``c`` of ``mu_1 - mu_2`` for every tail.

    Args:
        kernel: ``N x N``, newest sample first.
        outcomes: ``N``, newest first, less the prior mean.
        ridges: One for each ``n = 1 .. N // 2``.

    Returns:
        ``N // 2 x N`` coefficients, newest first.
    """
    num_samples, num_tails = len(outcomes), len(outcomes) // 2
    coefficients = kernel.new_zeros(num_tails, num_samples)
    first = 1
    while first <= num_tails:
        last = min(first + bucket_size(first) - 1, num_tails)
        newer, older = half_weights(kernel, outcomes, ridges, first, last)
        # row n - 1 takes them from column n on, one column further in every row
        coefficients.as_strided(
            (last - first + 1, last),
            (num_samples + 1, 1),
            (first - 1) * num_samples + first,
        ).copy_(older)
        coefficients[first - 1 : last, :last] -= newer
        first = last + 1
    return coefficients


PRODUCT_NODES = {1: 256, 2: 48}
"""Gauss-Legendre nodes per dimension, by the number of continuous dimensions."""

LARGEST_PRODUCT = 4096
"""With more nodes than this, integers included, Sobol points are used instead."""

SOBOL_POINTS, SCRAMBLINGS = 512, 8
"""The number of points of one scrambled Sobol set, and the number of sets."""


@dataclass(frozen=True, eq=False)
class Measure:
    """One or more rules that average functions over a domain, one after the other.

    Attributes:
        points: ``q x d``, the points of all rules.
        roots: ``q`` square roots of weights; the squares sum to 1 within each rule.
        sizes: The number of points of each rule.
        is_random: Whether the rules are independent and equally good: the value is then their mean,
            and the error its standard error. Otherwise, the first rule gives the value and the
            second the error.
    """

    points: Tensor
    roots: Tensor
    sizes: tuple[int, ...]
    is_random: bool = False

    @classmethod
    def of(cls, domain: Domain, seed: int) -> Measure:
        """Choose the rules for a domain.

        Args:
            domain: Arms or a box.
            seed: The seed of the scrambling of Sobol points.

        Raises:
            TypeError: If the domain is neither.
        """
        if isinstance(domain, Arms):
            even = torch.full_like(domain.choices[:, 0], domain.num_arms**-0.5)
            return cls(domain.choices, even, (domain.num_arms,))
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
        continuous = domain.dim - len(domain.integer_dims)
        nodes = PRODUCT_NODES.get(continuous, 1)
        sides = [
            int(high - low) + 1 if i in domain.integer_dims else nodes
            for i, (low, high) in enumerate(domain.bounds.T.tolist())
        ]
        if continuous <= max(PRODUCT_NODES) and math.prod(sides) <= LARGEST_PRODUCT:
            rules = [_product(domain, nodes)]
            if continuous:
                rules.append(_product(domain, nodes // 2))
        else:
            seeds = [derive_seed(seed, i, "change test") for i in range(SCRAMBLINGS)]
            rules = [_sobol_set(domain, one) for one in seeds]
        return cls(
            torch.cat([points for points, _ in rules]),
            torch.cat([weights for _, weights in rules]).sqrt(),
            tuple(len(points) for points, _ in rules),
            is_random=len(rules) > 2,
        )

    def gram(self, features: Tensor) -> Tensor:
        """Return the matrix of a form whose value is the mean square, ``n x n``.

        Args:
            features: ``n x q`` values of ``n`` functions, times :attr:`roots`.
        """
        if self.is_random:
            return features @ features.mT / len(self.sizes)
        counting = features[:, : self.sizes[0]]
        return counting @ counting.mT

    def means_of_squares(self, weighted: Tensor) -> Tensor:
        """Return the mean square of functions by each rule.

        Args:
            weighted: ``... x q`` values, times :attr:`roots`.

        Returns:
            One mean per rule, ``... x num_rules``.
        """
        parts = weighted.square().split(list(self.sizes), dim=-1)
        return torch.stack([part.sum(-1) for part in parts], dim=-1)

    def value(self, means: Tensor) -> Tensor:
        """Return the mean, given those by all rules in the last dimension."""
        return means.mean(-1) if self.is_random else means[..., 0]

    def error(self, means: Tensor) -> float:
        """Return the estimated error of a value, given the means by all rules."""
        if len(self.sizes) == 1:
            return 0.0
        if not self.is_random:
            return float((means[0] - means[1]).abs())
        return float(means.std()) / math.sqrt(len(self.sizes))


def _product(box: Box, nodes: int) -> tuple[Tensor, Tensor]:
    lines, weights = [], []
    abscissae, gauss = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(nodes))
    for i, (low, high) in enumerate(box.bounds.T.tolist()):
        if i in box.integer_dims:
            line = torch.arange(low, high + 1.0, dtype=DTYPE)
            lines.append(line)
            weights.append(torch.full_like(line, 1.0 / len(line)))
        else:
            lines.append(low + 0.5 * (high - low) * (abscissae + 1.0))
            weights.append(0.5 * gauss)
    points = torch.stack(torch.meshgrid(*lines, indexing="ij"), dim=-1).reshape(-1, box.dim)
    product = torch.stack(torch.meshgrid(*weights, indexing="ij"), dim=-1).prod(-1).reshape(-1)
    return points.to(box.bounds), product.to(box.bounds)


def _sobol_set(box: Box, seed: int) -> tuple[Tensor, Tensor]:
    unit = torch.tensor([[0.0], [1.0]], dtype=DTYPE).expand(2, box.dim)
    points = draw_sobol_samples(unit, n=SOBOL_POINTS, q=1, seed=seed % 2**31).squeeze(-2)
    points = points.to(box.bounds)
    low, high = box.bounds
    scaled = low + (high - low) * points
    for i in box.integer_dims:
        # every integer gets an equal share of [0, 1)
        scaled[:, i] = low[i] + torch.floor(points[:, i] * (high[i] - low[i] + 1.0))
    return torch.minimum(scaled, high), torch.full_like(points[:, 0], 1.0 / SOBOL_POINTS)


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
        self._function = kernel_function(kernel, points.shape[-1])
        with torch.no_grad():
            self.prior_variance = float(self._function.diagonal(points[:1024]).max())

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return the ``n x p`` matrix of ``n x d`` and ``p x d`` inputs."""
        with torch.no_grad():
            return self._function(X, Z) / self.prior_variance


CHUNK_ENTRIES = 2**20
"""Entries of the systems that are factorized together."""


def scan_statistics(kernel: Tensor, gram: Tensor, outcomes: Tensor, ridges: Tensor) -> list[Tensor]:
    """Return the statistics of all even windows of a stream, oldest sample first.

    Args:
        kernel: ``N x N``, contiguous.
        gram: ``N x N``, contiguous.
        outcomes: ``N``, less the prior mean.
        ridges: ``n rho_n`` for ``n = 1 .. N // 2``.

    Returns:
        For each ``n``, the ``N - 2 n + 1`` statistics of the windows that start at sample 0, 1,
        ...; window ``i`` is the tail of ``2 n`` samples up to sample ``i + 2 n``.
    """
    num_samples = len(outcomes)
    scans = []
    for n in range(1, num_samples // 2 + 1):
        weights = _window_weights(kernel, outcomes, ridges[n - 1], n)
        own = _forms(gram, 0, weights, weights)
        last = num_samples - 2 * n + 1
        crossed = _forms(gram, n, weights[:last], weights[n:])
        scans.append((own[:last] + own[n:] - 2.0 * crossed).clamp_min_(0.0))
    return scans


def _window_weights(kernel: Tensor, outcomes: Tensor, ridge: Tensor, n: int) -> Tensor:
    """Return the weights of all windows of ``n`` samples, ``N - n + 1 x n``."""
    systems = _blocks(kernel, 0, n)
    right = outcomes.unfold(0, n, 1).unsqueeze(-1)
    parts = []
    for rows, values in zip(_chunks(systems, n), _chunks(right, n), strict=True):
        system = rows.clone(memory_format=torch.contiguous_format)
        system.diagonal(dim1=-2, dim2=-1).add_(ridge)
        factor = factorize(system)
        parts.append(torch.cholesky_solve(values, factor).squeeze(-1))
    return torch.cat(parts)


def _forms(gram: Tensor, offset: int, left: Tensor, right: Tensor) -> Tensor:
    """Return ``left_i' G[i.., i + offset..] right_i`` for all windows ``i``."""
    n = left.shape[-1]
    blocks = _blocks(gram, offset, n)
    parts = [
        (b @ r.unsqueeze(-1)).squeeze(-1)
        for b, r in zip(_chunks(blocks, n), _chunks(right, n), strict=True)
    ]
    return (torch.cat(parts) * left).sum(-1)


def _blocks(matrix: Tensor, offset: int, n: int) -> Tensor:
    """Return a view of the ``n x n`` blocks from row ``i`` and column ``i + offset`` on."""
    num_samples = len(matrix)
    return matrix.as_strided(
        (num_samples - n - offset + 1, n, n), (num_samples + 1, num_samples, 1), offset
    )


def _chunks(rows: Tensor, n: int) -> tuple[Tensor, ...]:
    return rows.split(max(1, CHUNK_ENTRIES // (n * n)))


@dataclass(frozen=True, eq=False)
class ChangePointTest:
    """The result of testing every even tail of a stream.

    If a change is detected, the tail is the shortest one whose statistic exceeds its threshold, at
    which the scan of Avanesov 2020 stops. Otherwise, it is the tail nearest to an alarm, with the
    largest ratio of statistic to threshold.

    Attributes:
        num_samples: ``N``, the number of samples in the stream.
        statistic: The squared difference of both posterior means, in squared outcome units.
        threshold: The threshold of the statistic, in the same units.
        half_size: ``n``; the tail has ``2 n`` samples. 0 without any tail (``N < 2``).
        location: Index in the stream of the first sample after the estimated change, ``N - n``.
        detected: Whether any statistic exceeds its threshold.
        statistics: One for each ``n = 1 .. N // 2``.
        thresholds: One for each ``n``.
        integration_error: The estimated error of ``statistic``; 0 on arms, where it is exact.
    """

    num_samples: int
    statistic: float
    threshold: float
    half_size: int
    location: int
    detected: bool
    statistics: Tensor
    thresholds: Tensor
    integration_error: float = 0.0

    @classmethod
    def of_no_tail(cls, num_samples: int, device: torch.device | None = None) -> ChangePointTest:
        """Return the result for fewer than two samples: nothing is detected.

        Args:
            num_samples: The number of samples.
            device: The device of the tensors of the result.
        """
        nothing = torch.empty(0, dtype=DTYPE, device=device)
        return cls(num_samples, 0.0, math.inf, 0, num_samples, False, nothing, nothing)


def deciding_tail(statistics: Tensor, thresholds: Tensor) -> tuple[int, bool]:
    """Return the position of the tail that is reported, and whether it is an alarm.

    Args:
        statistics: One per tail, at least one, shortest tail first.
        thresholds: One per tail, positive; infinity never alarms.
    """
    alarms = statistics > thresholds
    if bool(alarms.any()):
        return int(alarms.to(torch.int8).argmax()), True  # the first of equal entries
    return int((statistics / thresholds).argmax()), False


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
        self.measure = Measure.of(domain, detector.seed)  # points and weights for averages
        self.are_arms = isinstance(domain, Arms)
        self.factor = 1.0
        if detector.statistic == "integral":
            self.factor = domain.volume if detector.volume is None else detector.volume

    @cached_property
    def kernel(self) -> UnitKernel:
        """The kernel on the domain, without contexts."""
        return UnitKernel(self.detector.kernel, self.measure.points)

    @cached_property
    def _table(self) -> Tensor:
        """The kernel values of all arms with each other."""
        return self.kernel(self.measure.points, self.measure.points)

    def matrices(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the kernel matrix of samples, ``n x n``, and their features, ``n x q``.

        Features are the kernel values with the points of the measure, times the roots of their
        weights.

        Args:
            inputs: ``n x d`` points of a box, or ``n`` arm numbers.
        """
        points = self.points_of(inputs)
        if self.are_arms and len(self.measure.points) <= LARGEST_TABLE:
            rows = self._table[inputs]
            return rows[:, inputs], rows * self.measure.roots
        features = self.kernel(points, self.measure.points) * self.measure.roots
        return self.kernel(points, points), features

    def points_of(self, inputs: Tensor) -> Tensor:
        """Return ``n x d`` points for ``inputs``: points of a box, or ``n`` arm numbers."""
        return self.measure.points[inputs] if self.are_arms else inputs

    def test(
        self,
        X: Tensor | None = None,
        Y: Tensor | Sequence[float] | None = None,
        *,
        arms: Tensor | None = None,
        contexts: Tensor | None = None,
    ) -> ChangePointTest:
        """Test every even tail of a stream, oldest sample first.

        Args:
            X: ``N x d`` inputs of the domain, drawn uniformly. On arms, ``arms`` is faster.
            Y: ``N`` outcomes, or a column of them.
            arms: ``N`` arm numbers (int64) instead of ``X``.
            contexts: ``N x c``, if the kernel is on ``[context, input]``. The statistic of a tail
                then averages over its contexts as well. This requires contexts that are drawn
                independently from one distribution: if they come in blocks, the two halves see
                different contexts, and the statistic is large without any change.

        Raises:
            TypeError: If a tensor has a dtype other than float64 (arms: int64), or both or neither
                of ``X`` and ``arms`` are given.
            ValueError: If shapes do not match, an entry is not finite, or a point is not in the
                domain.
        """
        outcomes = self.check_outcomes(Y).flip(0)
        num_samples, num_tails = len(outcomes), len(outcomes) // 2
        inputs = self.check_inputs(X, arms, num_samples).flip(0)  # newest first
        dim = 0
        if contexts is not None:
            contexts = check_matrix("contexts", contexts).detach().to(self._device).flip(0)
            dim = contexts.shape[-1]
            if len(contexts) != num_samples:
                raise ValueError(
                    f"contexts has {len(contexts)} rows, but Y has {num_samples}; they must agree."
                )
        if num_samples < 2:
            return ChangePointTest.of_no_tail(num_samples, outcomes.device)
        ridges = self.ridges(num_tails, dim)
        if contexts is None:
            variance = self.kernel.prior_variance
            matrix, features = self.matrices(inputs)
            coefficients = tail_coefficients(matrix, outcomes, ridges)
            by_rule = self.measure.means_of_squares(coefficients @ features)
        else:
            by_rule, variance = self._in_contexts(inputs, outcomes, contexts, ridges)
        statistics = self.measure.value(by_rule) * self.factor
        thresholds = self.thresholds(num_tails, dim, variance)
        tail, detected = deciding_tail(statistics, thresholds)
        return ChangePointTest(
            num_samples=num_samples,
            statistic=float(statistics[tail]),
            threshold=float(thresholds[tail]),
            half_size=tail + 1,
            location=num_samples - tail - 1,
            detected=detected,
            statistics=statistics,
            thresholds=thresholds,
            integration_error=self.measure.error(by_rule[tail]) * self.factor,
        )

    def _in_contexts(
        self, inputs: Tensor, outcomes: Tensor, contexts: Tensor, ridges: Tensor
    ) -> tuple[Tensor, float]:
        """Return the mean square of each tail by each rule, and the prior variance.

        This costs ``N^2 q`` kernel values for ``N`` distinct contexts and ``q`` points of the
        measure.
        """
        measure, num_samples, num_tails = self.measure, len(outcomes), len(ridges)
        samples = torch.cat([contexts, self.points_of(inputs)], dim=-1)
        unit = UnitKernel(self.detector.kernel, samples)
        coefficients = tail_coefficients(unit(samples, samples), outcomes, ridges)
        distinct, which = contexts.unique(dim=0, return_inverse=True)
        sizes = 2 * torch.arange(1, num_tails + 1, device=self._device)
        # in_tail[t, i]: whether sample i, counted from the newest, is in tail t
        in_tail = torch.arange(num_samples, device=self._device) < sizes.unsqueeze(-1)
        totals = coefficients.new_zeros(num_tails, len(measure.sizes))
        for number, context in enumerate(distinct):
            count = (in_tail & (which == number)).sum(-1)
            first = int((count == 0).sum())  # shorter tails do not have this context
            points = torch.cat([context.expand(len(measure.points), -1), measure.points], dim=-1)
            features = unit(samples, points) * measure.roots
            means = measure.means_of_squares(coefficients[first:] @ features)
            totals[first:] += count[first:].unsqueeze(-1) * means
        return totals / sizes.unsqueeze(-1), unit.prior_variance

    def stream(self) -> DetectorStream:
        """Return an empty stream: samples are added one by one, with a test after each."""
        return DetectorStream(self)

    def ridges(self, num_tails: int, context_dim: int = 0) -> Tensor:
        """Return ``n rho_n`` for ``n = 1 .. num_tails``.

        Args:
            num_tails: The number of tails.
            context_dim: The dimension of the contexts.
        """
        dim = self.domain.dim + context_dim
        return self.detector.ridges(self._half_sizes(num_tails), dim)

    def thresholds(self, num_tails: int, context_dim: int, prior_variance: float) -> Tensor:
        """Return the thresholds of ``n = 1 .. num_tails`` in squared outcome units.

        Args:
            num_tails: The number of tails.
            context_dim: The dimension of the contexts.
            prior_variance: The largest variance of the kernel.
        """
        dim = self.domain.dim + context_dim
        return self.detector.thresholds(self._half_sizes(num_tails), dim, prior_variance)

    def check_outcomes(self, Y: Tensor | Sequence[float] | None) -> Tensor:
        """Return ``N`` finite outcomes less the prior mean.

        Args:
            Y: ``N`` outcomes.
        """
        if Y is None:
            raise TypeError("Y is missing: pass one outcome for each sample.")
        if isinstance(Y, Tensor) and Y.dim() == 2 and Y.shape[-1] == 1:
            Y = Y.squeeze(-1)
        return check_vector("Y", Y).detach().to(self._device) - self.detector.prior_mean

    def check_inputs(self, X: Tensor | None, arms: Tensor | None, num_samples: int) -> Tensor:
        """Return ``N x d`` inputs of a box, or ``N`` arm numbers.

        Args:
            X: Inputs, if the domain is a box.
            arms: Arm numbers, if it is a set of arms.
            num_samples: ``N``.
        """
        if (X is None) == (arms is None):
            raise TypeError("pass either X (inputs) or arms (arm numbers), not both or neither.")
        if arms is None:
            inputs = check_matrix("X", X, num_columns=self.domain.dim).detach().to(self._device)
            if self.are_arms:
                inputs = cast(Arms, self.domain).index_of(inputs)
            else:
                self._check_inside(inputs)
        else:
            inputs = self._check_arms(arms)
        if len(inputs) != num_samples:
            name = "X" if arms is None else "arms"
            raise ValueError(
                f"{name} has {len(inputs)} samples, but Y has {num_samples}; they must agree."
            )
        return inputs

    @property
    def _device(self) -> torch.device:
        return self.measure.points.device

    def _half_sizes(self, num_tails: int) -> Tensor:
        return torch.arange(1, num_tails + 1, dtype=DTYPE, device=self._device)

    def _check_arms(self, arms: Tensor) -> Tensor:
        if not self.are_arms:
            raise TypeError(f"arms are given, but the domain is {self.domain!r}. Pass X.")
        if not isinstance(arms, Tensor) or arms.dtype != torch.long or arms.dim() != 1:
            raise TypeError("arms must be a vector of arm numbers (a tensor of int64).")
        num_arms = len(self.measure.points)
        outside = (arms < 0) | (arms >= num_arms)
        if bool(outside.any()):
            first = int(outside.to(torch.int8).argmax())
            raise ValueError(
                f"arms[{first}] is {int(arms[first])}; arms are numbered from 0 to {num_arms - 1}."
            )
        return arms.to(self._device)

    def _check_inside(self, X: Tensor) -> None:
        box = cast(Box, self.domain)
        bad = ((box.bounds[0] > X) | (box.bounds[1] < X)).any(-1)
        whole = X[:, list(box.integer_dims)]
        bad |= (whole != whole.round()).any(-1)
        if bool(bad.any()):
            first = int(bad.to(torch.int8).argmax())
            box.check_point(f"X[{first}]", X[first])  # says what is wrong


class DetectorStream:
    """Samples since the last reset, oldest first; made by :meth:`DetectorEngine.stream`.

    Results are those of :meth:`DetectorEngine.test` on all samples since the last reset.

    Args:
        engine: The detector on a domain.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits import Box, ChangePointDetector
        >>> detector = ChangePointDetector(MaternKernel(nu=2.5), lengthscale=0.3)
        >>> stream = detector.on(Box([[0.0], [1.0]])).stream()
        >>> inputs = [(7 * i % 10) / 10 for i in range(20)]
        >>> tests = [stream.observe([x], 1.0 if i < 12 else -1.0) for i, x in enumerate(inputs)]
        >>> first = [test.detected for test in tests].index(True)
        >>> first, tests[first].location
        (14, 12)
    """

    def __init__(self, engine: DetectorEngine) -> None:
        """See the class."""
        self._engine = engine
        self.reset()

    @property
    def num_samples(self) -> int:
        """The number of samples since the last reset."""
        return len(self._samples)

    def reset(self) -> None:
        """Forget all samples."""
        self._samples: list[tuple[Tensor, float, Tensor | None]] = []

    def observe(
        self, x: Tensor | list[float], y: float, context: Tensor | list[float] | None = None
    ) -> ChangePointTest:
        """Add one more sample and test all tails.

        Args:
            x: ``d`` numbers, a point of the domain.
            y: The outcome.
            context: ``c`` numbers; for all samples since the last reset or for none.

        Raises:
            TypeError: If a tensor has a dtype other than float64.
            ValueError: If the point is not in the domain, a number is not finite, or only some
                samples have contexts.
        """
        sample = (
            check_vector("x", x, length=self._engine.domain.dim),
            check_number("y", y),
            None if context is None else check_vector("context", context),
        )
        if len({-1 if known is None else len(known) for *_, known in (*self._samples, sample)}) > 1:
            raise ValueError(
                "context must be given with every sample since the reset, or with none, and have "
                "the same length."
            )
        points, outcomes, contexts = zip(*self._samples, sample, strict=True)
        given = None if context is None else torch.stack(contexts)
        test = self._engine.test(torch.stack(points), outcomes, contexts=given)
        self._samples.append(sample)
        return test


@dataclass(frozen=True, eq=False)
class ChangePointDetector:
    r"""Tests whether a stream of inputs and outcomes comes from one function.

    For each ``n`` up to half of the samples, the last ``2 n`` samples are halved, a Gaussian
    process is fitted to each half, and the squared difference of both posterior means, averaged
    over the domain :math:`D`, is compared with a threshold :math:`\theta_n`:

    .. math:: \frac{1}{|D|} \int_D \bigl(\mu^{(1)}_n(x) - \mu^{(2)}_n(x)\bigr)^2 dx > \theta_n

    (``statistic="integral"`` omits the factor :math:`1 / |D|`). Only means are used. The ridge of a
    fit to ``n`` samples is

    .. math:: n \rho_n = c \, n^{1 - r}, \qquad r = \frac{2 a + d}{2 a + d + 1},

    which is :math:`c\, n^{1/7}` for a Matern 5/2 kernel in one dimension. Inputs must be uniformly
    distributed on the domain, which the queries of a bandit are not, except those that explore.

    The kernel is scaled to unit prior variance; with prior variance :math:`s^2`, thresholds in
    prior units are multiplied by :math:`s^2`. ``prior_mean`` is subtracted from the outcomes.

    Two detectors are equal if their tests are equal.

    Args:
        kernel: A GPyTorch kernel, copied to float64; with contexts it is on ``[context, input]``.
        ridge: ``c``, any positive number in (3.5) of Avanesov 2020, whose experiments do not state
            theirs. With the published threshold, the mean and their setting, 0.3 raises a false
            alarm in 0.38 of 300 rounds without a change, 1 in 0.15 and 3 in 0.03, and 0.92, 0.75
            and 0.48 of the changes are detected within 300 rounds. A smaller ridge, as chosen by
            :func:`~botorch_bandits.change_points.cross_validated_ridge`, detects more at the same
            rate of false alarms, with a threshold that is calibrated for it.
        statistic: ``"mean"`` over the domain, which the published threshold is for, or the
            ``"integral"`` of (2.4). They differ by the volume, and so do their thresholds.
        threshold: The threshold of the squared difference; ``n`` is the half size.
        smoothness: ``a``. If None, it is read from a Matern kernel (its ``nu``) or a squared
            exponential kernel (infinity: a constant ridge).
        prior_mean: The prior mean of the reward function, a constant.
        volume: For ``statistic="integral"``: the measure of the domain. If None, the box's volume
            or the number of arms. For arms that represent an interval, pass its length.
        seed: The seed of the points that integrate over boxes of more than two dimensions.
        lengthscale: A lengthscale to set on the kernel, in float64; it is not kept.

    Raises:
        TypeError: If the kernel is not a GPyTorch kernel, or a number has the wrong type.
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
        check_instance(
            "threshold",
            self.threshold,
            Threshold,
            "Pass a Threshold, such as PowerThreshold(scale=2.6, exponent=-6/7) or what "
            "calibrate_threshold returns.",
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
        """Prepare the detector for a domain: matrices on arms, points for integration on boxes.

        Args:
            domain: The domain on which inputs are uniformly distributed, without contexts.
        """
        return DetectorEngine(self, domain)

    @property
    def known_smoothness(self) -> float | None:
        """``a``, given or read from the kernel; None if neither is possible."""
        if self.smoothness is not None:
            return float(self.smoothness)
        kernel = self.kernel
        while isinstance(kernel, ScaleKernel):
            kernel = kernel.base_kernel
        return smoothness_of(kernel)

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
            prior_variance: The prior variance of the kernel.
        """
        values = self.threshold.values(half_sizes, self.known_smoothness, dim)
        return values * prior_variance if self.threshold.units == "prior" else values

    def fingerprint(self) -> str:
        """Return a digest that is equal for detectors whose tests are equal."""
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
        """Hash the numbers, which cannot change."""
        return hash((self.ridge, self.statistic, self.smoothness, self.prior_mean, self.seed))

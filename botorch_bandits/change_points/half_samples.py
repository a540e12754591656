r"""The statistic of the change-point detector: how far the fits to two halves of samples differ.

The first part computes it for all tails of a stream at once, the second averages it over contexts,
and the third takes the mean over the domain, either exactly or from points with a known error.

**One tail.** With ``K`` the kernel matrix of the samples and
:math:`G_{ij} = \int k(x_i, x) k(x, x_j) \, d\nu(x)` their Gram matrix under the domain's
measure, the statistic of the tail of ``2 n`` samples is a quadratic form:

.. math::
   \int (\mu_1 - \mu_2)^2 \, d\nu = c^\top G c, \qquad
   c = \bigl( (K_1 + n \rho_n I)^{-1} y_1, \; -(K_2 + n \rho_n I)^{-1} y_2 \bigr).

**All tails.** In this module, samples are in reverse order, the newest first. The newer halves of
all tails are then leading blocks of ``K``, the older halves lie along its diagonal, and no block
has to be gathered. Tails of similar size share one batched factorization: the Cholesky factor of a
block contains those of all its leading blocks, so shorter halves only need zeros in the right-hand
sides. In a stream, a half that is the newer one in one test is the older one ``n`` samples later,
so each window is fitted only once.

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

Source: Avanesov 2020, algorithm 1 and (2.4); the quadratic form is our own.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.checks import DTYPE
from botorch_bandits.core.kernels import StationaryKernel
from botorch_bandits.core.priors import Table
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


def half_weights(
    kernel: Tensor, outcomes: Tensor, ridges: Tensor, first: int, last: int, num_halves: int
) -> Tensor:
    """Return the weights of the halves of several tails.

    Args:
        kernel: ``N x N``, newest sample first.
        outcomes: ``N``, newest first, less the prior mean.
        ridges: ``n rho_n`` for ``n = 1 .. N // 2``.
        first: The smallest ``n``.
        last: The largest ``n``.
        num_halves: 2 for both halves, 1 for the newer ones only.

    Returns:
        A ``num_halves x (last - first + 1) x last`` tensor with the newer halves (samples ``0 ..
        n``) before the older ones (``n .. 2 n``), and zeros after the ``n`` weights of each row.
    """
    count = last - first + 1
    systems = kernel.new_empty(num_halves, count, last, last)
    right = outcomes.new_empty(num_halves, count, last)
    rows, columns = kernel.stride()
    stride = outcomes.stride(0)
    for half in range(num_halves):  # older halves begin one sample further back in every row
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


def tail_coefficients(
    kernel: Tensor, outcomes: Tensor, ridges: Tensor, older: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the coefficients ``c`` of ``mu_1 - mu_2`` for every tail.

    Args:
        kernel: ``N x N``, newest sample first.
        outcomes: ``N``, newest first, less the prior mean.
        ridges: One for each ``n = 1 .. N // 2``.
        older: Weights of the older halves of the shortest tails if they are known, ``r x r``,
            newest first, with zeros after the ``n`` weights of each row.

    Returns:
        ``N // 2 x N`` coefficients, newest first, and the weights of the newer halves,
        ``N // 2 x N // 2``.
    """
    num_samples, num_tails = len(outcomes), len(outcomes) // 2
    num_fitted = 0 if older is None else len(older)
    coefficients = kernel.new_zeros(num_tails, num_samples)
    newer = kernel.new_zeros(num_tails, num_tails)
    first = 1
    while first <= num_tails:
        last = min(first + bucket_size(first) - 1, num_tails)
        if first <= num_fitted < last:
            last = num_fitted
        is_fitted = last <= num_fitted
        weights = half_weights(kernel, outcomes, ridges, first, last, 1 if is_fitted else 2)
        newer[first - 1 : last, :last] = weights[0]
        old = weights[-1]
        if is_fitted:
            assert older is not None
            old = older[first - 1 : last, :last]
        # row n - 1 takes them from column n on, one column further in every row
        coefficients.as_strided(
            (last - first + 1, last),
            (num_samples + 1, 1),
            (first - 1) * num_samples + first,
        ).copy_(old)
        first = last + 1
    coefficients[:, :num_tails] -= newer
    return coefficients, newer


def quadratic_forms(gram: Tensor, coefficients: Tensor) -> Tensor:
    """Return ``c' G c`` for each row ``c``, at least 0 (rounding may make it negative)."""
    return ((coefficients @ gram) * coefficients).sum(-1).clamp_min_(0.0)


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

    @property
    def num_counting(self) -> int:
        """The number of points, from the first, that determine the value."""
        return sum(self.sizes) if self.is_random else self.sizes[0]

    @property
    def share(self) -> float:
        """The factor of the sum of squares over these points."""
        return 1.0 / len(self.sizes) if self.is_random else 1.0

    def means_of_squares(self, weighted: Tensor) -> Tensor:
        """Return the mean square of functions by each rule.

        Args:
            weighted: ``... x q`` values, times :attr:`roots`.

        Returns:
            One mean per rule, ``... x num_rules``.
        """
        parts = weighted.square().split(list(self.sizes), dim=-1)
        return torch.stack([part.sum(-1) for part in parts], dim=-1)

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


class Located(NamedTuple):
    """Samples, with the ingredients of their matrices.

    Attributes:
        points: ``n x d`` inputs, or ``n`` arm numbers if tables are looked up.
        features: ``n x q`` kernel values with the measure's points, times its roots; ``n x 0`` if
            matrices are looked up.
    """

    points: Tensor
    features: Tensor


class UnitKernel:
    """A kernel divided by its prior variance, evaluated outside autograd.

    Args:
        kernel: A float64 kernel without batch shape.
        points: ``n x d`` points at which the prior variance is read; the largest one is used.
    """

    def __init__(self, kernel: Kernel, points: Tensor) -> None:
        """See the class."""
        self._kernel = copy.deepcopy(kernel).to(points.device)
        self._stationary = StationaryKernel.read(self._kernel)
        with torch.no_grad():
            self.prior_variance = float(self._kernel(points[:1024], diag=True).max())

    def on_arms(self, points: Tensor) -> Table:
        """Return the undivided covariances of all arms, which models with this kernel share."""
        return Table.from_kernel(self._kernel, points)

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return the ``n x p`` matrix of ``n x d`` and ``p x d`` inputs."""
        with torch.no_grad():
            if self._stationary is not None:
                values = self._stationary.matrix(X, Z)
            else:
                values = self._kernel(X, Z).to_dense()
        return values / self.prior_variance


class Space:
    """Samples of a box, or of more arms than tables are kept for.

    Args:
        kernel: A kernel of unit variance, on the measure's points.
        measure: The rules that average over the domain.
    """

    def __init__(self, kernel: UnitKernel, measure: Measure) -> None:
        """See the class."""
        self.kernel, self.measure = kernel, measure

    def locate(self, X: Tensor) -> Located:
        """Return ``n x d`` inputs, or ``n`` arm numbers, with their features."""
        if X.dim() == 1:
            X = self.measure.points[X]
        return Located(X, self.kernel(X, self.measure.points) * self.measure.roots)

    def matrices(self, a: Located, b: Located) -> tuple[Tensor, Tensor]:
        """Return the kernel and the Gram matrix between samples, ``n x p`` each."""
        count = self.measure.num_counting
        gram = a.features[:, :count] @ b.features[:, :count].mT
        return self.kernel(a.points, b.points), gram * self.measure.share

    def error(self, located: Located, coefficients: Tensor) -> float:
        """Return the estimated error of the mean square of ``sum_i c_i k(x_i, .)``."""
        return self.measure.error(self.measure.means_of_squares(coefficients @ located.features))


class TableSpace(Space):
    """Samples of arms, whose matrices are looked up without approximation.

    Covariances are those that models with the same kernel keep. The rows of the Gram matrix are
    kept for all arms that were requested.
    """

    def __init__(self, kernel: UnitKernel, measure: Measure) -> None:
        """See the class."""
        super().__init__(kernel, measure)
        self._prior = kernel.on_arms(measure.points)
        nowhere = torch.full((len(measure.points),), -1, device=measure.points.device)
        # the position of each arm's row, and the rows
        self._gram = nowhere, measure.points.new_empty(0, len(nowhere))

    def locate(self, X: Tensor) -> Located:
        """Return ``n`` arm numbers as they are."""
        return Located(X, self.measure.points.new_empty(len(X), 0))

    def matrices(self, a: Located, b: Located) -> tuple[Tensor, Tensor]:
        table, num_arms = self._covariances, len(self.measure.points)
        kernel = table.take(a.points.unsqueeze(-1) * num_arms + b.points)
        slots, rows = self._gram_rows(a.points)
        gram = rows.take(slots[a.points].unsqueeze(-1) * num_arms + b.points)
        return kernel / self.kernel.prior_variance, gram

    @property
    def _covariances(self) -> Tensor:
        assert self._prior.matrix is not None
        return self._prior.matrix

    def _gram_rows(self, arms: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows of the Gram matrix, including those of some arms, and their positions."""
        slots, rows = self._gram
        new = arms[slots[arms] < 0].unique()
        if len(new):
            table = self._covariances
            share = 1.0 / (len(table) * self.kernel.prior_variance**2)
            slots = slots.clone()
            slots[new] = torch.arange(len(rows), len(rows) + len(new), device=slots.device)
            rows = torch.cat([rows, (table[new] * share) @ table])
            self._gram = slots, rows  # both at once, for the sake of threads
        return slots, rows

    def error(self, located: Located, coefficients: Tensor) -> float:
        """Exactly 0."""
        return 0.0


def space_of(domain: Domain, kernel: Kernel, measure: Measure) -> Space:
    """Return the space of a domain without contexts.

    Args:
        domain: Arms or a box.
        kernel: A float64 kernel.
        measure: The measure of the domain.
    """
    unit = UnitKernel(kernel, measure.points)
    if isinstance(domain, Arms) and domain.num_arms <= LARGEST_TABLE:
        return TableSpace(unit, measure)
    return Space(unit, measure)


class MeansInContexts(NamedTuple):
    """Mean squares of all tails.

    Attributes:
        means: One per tail.
        means_by_rule: The mean by each rule of the measure, ``num_tails x num_rules``.
        prior_variance: The prior variance of the kernel, read at the samples.
    """

    means: Tensor
    means_by_rule: Tensor
    prior_variance: float


def means_in_contexts(
    kernel: Kernel,
    measure: Measure,
    inputs: Tensor,
    outcomes: Tensor,
    contexts: Tensor,
    ridges: Tensor,
) -> MeansInContexts:
    """Return the mean squared difference of both posterior means for every tail.

    This costs ``N^2 q`` kernel values for ``N`` distinct contexts and ``q`` points of the measure.

    Args:
        kernel: A kernel on ``[context, input]``.
        measure: The rules that average over the domain of inputs.
        inputs: ``N x d`` points or ``N`` numbers of the measure's points, newest first.
        outcomes: ``N``, newest first, less the prior mean.
        contexts: ``N x c``, newest first.
        ridges: One for each ``n = 1 .. N // 2``.
    """
    if inputs.dim() == 1:
        inputs = measure.points[inputs]
    samples = torch.cat([contexts, inputs], dim=-1)
    unit = UnitKernel(kernel, samples)
    coefficients, _ = tail_coefficients(unit(samples, samples), outcomes, ridges)
    distinct, which = contexts.unique(dim=0, return_inverse=True)
    num_tails, num_samples = coefficients.shape
    sizes = 2 * torch.arange(1, num_tails + 1, device=contexts.device)
    # in_tail[t, i]: whether sample i, counted from the newest, is in tail t
    in_tail = torch.arange(num_samples, device=contexts.device) < sizes.unsqueeze(-1)
    totals = coefficients.new_zeros(num_tails, len(measure.sizes))
    for number, context in enumerate(distinct):
        count = (in_tail & (which == number)).sum(-1)
        first = int((count == 0).sum())  # shorter tails do not have this context
        if first == num_tails:  # an odd sample that is left over
            continue
        points = torch.cat([context.expand(len(measure.points), -1), measure.points], dim=-1)
        features = unit(samples, points) * measure.roots
        means = measure.means_of_squares(coefficients[first:] @ features)
        totals[first:] += count[first:].unsqueeze(-1) * means
    by_rule = totals / sizes.unsqueeze(-1)
    means = by_rule.mean(-1) if measure.is_random else by_rule[:, 0]
    return MeansInContexts(means, by_rule, unit.prior_variance)


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

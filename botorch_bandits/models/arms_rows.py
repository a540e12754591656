r"""The exact posterior on arms in one round, from rows with weights, contexts or times.

Row :math:`i` has the covariances :math:`C_i` with all arms in the present round, a mean outcome
:math:`y_i` and a noise variance :math:`\nu_i`. With :math:`\Sigma` the covariance of the rows,
:math:`\nu` on its diagonal, and its Cholesky factor :math:`L`,

.. math::
   \mu = C^\top \Sigma^{-1} y, \qquad v = \mathrm{diag}(K) - \sum_i (L^{-1} C)_i^2, \qquad
   \gamma = \sum_i \ln L_{ii} - \tfrac12 \sum_i \ln \nu_i .

**Rows that stay.** :class:`~botorch_bandits.models.row_factors.GrowingFactor` keeps the inverse of
:math:`L`, to which a row is added in :math:`n^2` operations. If rows leave, or their noise changes,
:class:`~botorch_bandits.models.row_factors.FreshFactor` recomputes :math:`L`.

**Variances.** With :math:`C = \sum_l D_l E K_l`, where :math:`E` says which of the :math:`p`
distinct arms each row has, :math:`K_l` holds the :math:`p` rows of these arms in a prior matrix and
:math:`D_l` the numbers that multiply the rows
(:class:`~botorch_bandits.models.front_kernels.SumOfProducts`), the sum of squares equals that of
:math:`\sum_l (L^{-1} D_l E) K_l`, and :math:`L^{-1} D_l E` has only :math:`p` columns. An upper
confidence bound needs the largest value of ``mean + width * deviation``: an arm needs no exact
variance if a cheaper upper bound on its variance shows that it cannot reach the largest value
(:meth:`RowsPosterior.screened_variance`).

**Draws** are exact. A function :math:`f` is drawn from the prior of the arms, through a root that
is computed once, together with simulated outcomes of the rows, and corrected by kriging (Matheron's
rule). In a sum of products, the rows depend on :math:`f` only through its values at their own arms:
given these, the simulated outcomes have the covariance :math:`\Sigma - \sum_l (s_l s_l^\top /
\kappa_l) \circ K_l`, where :math:`s_l` are the factors between the fronts of the rows and the
present front, and :math:`\kappa_l` is the factor of the present front with itself.

A stationary kernel of all columns has no such structure, but its prior on the arms is the same with
every front: with :math:`U` the root of its covariance at the pivots, the covariances of the rows
with the normal numbers :math:`z` of :math:`f = A^\top z` are :math:`W = C_{\text{pivots}} U^{-1}`,
and given these numbers, simulated outcomes have the covariance :math:`\Sigma - W W^\top`. Other
kernels need the posterior covariance of all arms and its Cholesky factor in every round.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtrs
from torch import Tensor

from botorch_bandits.models.front_kernels import (
    Array,
    FrontCovariance,
    Index,
    JointStationary,
    SumOfProducts,
)
from botorch_bandits.models.roots import cholesky, root_of
from botorch_bandits.models.row_factors import (
    GROWTH,
    SMALLEST_ROOM,
    ExtendedFactor,
    GrowingFactor,
    RowFactor,
)
from botorch_bandits.models.telling_rows import TellingRows

GROUPED = 0.6
"""Rows are grouped by arm if there are fewer distinct arms than this share of the rows."""

FEW_OPERATIONS = 8e6
"""If the exact variances of all arms take fewer, they cost no more than bounds on them."""

FIRST_CANDIDATES = 16
"""The number of arms whose variances are computed exactly first."""

MANY_CANDIDATES = 0.6
"""If more than this share of the arms may have the largest value, all variances are computed."""

CHUNK_OF_ROWS = 64
"""Rows of a matrix that are changed at once, to save memory."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows, given by the arms that were played and their fronts.

    Attributes:
        arms: ``n`` arm numbers.
        fronts: ``n x num_front``.
        noise: ``n`` noise variances.
    """

    arms: Index
    fronts: Array
    noise: Array

    def is_same(self, other: Rows) -> bool:
        """Whether all numbers are equal."""
        return (
            np.array_equal(self.arms, other.arms)
            and np.array_equal(self.noise, other.noise)
            and np.array_equal(self.fronts, other.fronts)
        )

    def followed_by(self, other: Rows) -> Rows:
        """Return these rows and then others."""
        parts = zip(
            (self.arms, self.fronts, self.noise),
            (other.arms, other.fronts, other.noise),
            strict=True,
        )
        return Rows(*(np.concatenate(pair) for pair in parts))


class GrowingRows:
    """Rows that are never removed, with their factor; repeated observations are collapsed.

    Each observation is its own row at first. When many are repeats, everything is recomputed with
    one row for each distinct pair of arm and front. The state is a function of the observations and
    their order.

    Args:
        covariance: The prior.
        lam: The noise variance of one outcome.
    """

    def __init__(self, covariance: FrontCovariance, lam: float) -> None:
        """See the class."""
        self._covariance, self._lam = covariance, lam
        self.factor = GrowingFactor()
        self._pairs: dict[tuple[int, bytes], int] = {}
        self._pair_of: list[int] = []  # one per observation
        self._row_of: list[int] = []
        self._noise: list[float] = []
        self._arms = np.zeros(SMALLEST_ROOM, dtype=np.int64)
        self._fronts = np.zeros((SMALLEST_ROOM, covariance.num_front))
        self._limit = SMALLEST_ROOM
        self._products: list[Array] = []  # of the rows with each other, one matrix per prior
        self._among, self._num_among = np.zeros((0, 0)), 0

    @property
    def num_observations(self) -> int:
        """The number of observations."""
        return len(self._row_of)

    @property
    def rows(self) -> Rows:
        """The rows of the factor."""
        n = self.factor.num_rows
        return Rows(self._arms[:n], self._fronts[:n], np.array(self._noise))

    def is_start_of(self, arms: Index, fronts: Array) -> bool:
        """Return whether the observations so far are the first of the given ones.

        Args:
            arms: One per observation.
            fronts: ``num_front`` numbers for each observation.
        """
        n = self.num_observations
        if n > len(arms):
            return False
        observed = list(self._pairs)
        pairs = [observed[pair] for pair in self._pair_of]
        known = np.array([arm for arm, _ in pairs], dtype=np.int64)
        return np.array_equal(known, arms[:n]) and all(
            front == other.tobytes() for (_, front), other in zip(pairs, fronts[:n], strict=True)
        )

    def observe(self, arm: int, front: Array) -> None:
        """Add an observation.

        Args:
            arm: The arm's number.
            front: ``num_front``; its front.
        """
        if self.factor.num_rows == self._limit:
            if 4 * len(self._pairs) <= 3 * self.factor.num_rows:
                self._collapse()
            self._limit = max(SMALLEST_ROOM, 2 * self.factor.num_rows)
        self._pair_of.append(self._pairs.setdefault((arm, front.tobytes()), len(self._pairs)))
        self._row_of.append(self.factor.num_rows)
        self._add(arm, front, self._lam)

    def matrices(self) -> tuple[Array, list[Array]]:
        """Return the covariance of the rows, noise included, and their prior matrices.

        There is one ``n x n`` prior matrix for each product of a sum of products, without the
        factors of the rows' fronts. They are kept from the first request on.
        """
        n, start, covariance = self.factor.num_rows, self._num_among, self._covariance
        count = len(covariance.priors) if isinstance(covariance, SumOfProducts) else 0
        if n > len(self._among) or len(self._products) < count:
            size = math.ceil(GROWTH * n)
            room = [np.zeros((size, size)) for _ in range(1 + count)]
            for new, old in zip(room, (self._among, *self._products), strict=False):
                new[:start, :start] = old[:start, :start]
            self._among, *self._products = room
        for i in range(start, n):  # row by row, so that bits do not depend on when this is called
            arms, fronts = self._arms[: i + 1], self._fronts[: i + 1]
            known = covariance.with_rows(arms, fronts, int(arms[i]), fronts[i])
            known[i] += self._noise[i]
            self._among[i, : i + 1] = self._among[: i + 1, i] = known
            for number, product in enumerate(self._products):
                assert isinstance(covariance, SumOfProducts)
                row = covariance.block_of(number, arms[i:], arms)[0]
                product[i, : i + 1] = product[: i + 1, i] = row
        self._num_among = n
        return self._among[:n, :n], [product[:n, :n] for product in self._products]

    def mean_outcomes(self, outcomes: Array) -> Array:
        """Return the mean outcome of each row.

        Args:
            outcomes: One per observation, or one row per observation with a column for each output.
        """
        if self.factor.num_rows == len(outcomes):
            return outcomes
        row_of, num_rows = np.array(self._row_of), self.factor.num_rows
        counts = np.bincount(row_of, minlength=num_rows)
        return sums_of_groups(row_of, outcomes, num_rows) / along_rows(counts, outcomes)

    def _add(self, arm: int, front: Array, noise: float) -> None:
        n = self.factor.num_rows
        if n == len(self._arms):
            self._arms = np.concatenate([self._arms, np.zeros_like(self._arms)])
            self._fronts = np.concatenate([self._fronts, np.zeros_like(self._fronts)])
        self._arms[n], self._fronts[n] = arm, front
        known = self._covariance.with_rows(self._arms[: n + 1], self._fronts[: n + 1], arm, front)
        self.factor.append(known[:n], float(known[n]), noise)
        self._noise.append(noise)

    def _collapse(self) -> None:
        counts: list[int] = np.bincount(self._pair_of).tolist()
        self.factor, self._noise, self._row_of = GrowingFactor(), [], self._pair_of.copy()
        self._num_among = 0
        for (arm, front), count in zip(self._pairs, counts, strict=True):
            self._add(arm, np.frombuffer(front), self._lam / count)


def along_rows(values: NDArray[Any], like: Array) -> NDArray[Any]:
    """Shape one number per row so that it broadcasts against rows of one or several numbers.

    Args:
        values: ``n``.
        like: ``n``, or ``n x num_outputs``.
    """
    return values if like.ndim == 1 else values[:, None]


def sums_of_groups(groups: Index, values: Array, num_groups: int) -> Array:
    """Return the sums of values by group, ``num_groups`` or ``num_groups x num_outputs``.

    Args:
        groups: ``n`` group numbers.
        values: ``n``, or ``n x num_outputs``.
        num_groups: The number of groups.
    """
    if values.ndim == 1:
        return np.asarray(np.bincount(groups, values, num_groups), dtype=np.float64)
    return np.stack([np.bincount(groups, column, num_groups) for column in values.T], axis=1)


class RowsPosterior:
    """The posterior of all arms with the front of the present round.

    Args:
        covariance: The prior.
        front: ``num_front``; the front of the present round.
        rows: The observed rows.
        outcomes: ``n`` mean outcomes of the rows, minus the prior mean; ``n x num_outputs`` if
            several outputs have this prior.
        factor: The factor of the rows, or a function that returns it when needed.
        lam: The noise variance of one outcome.
        pending: Rows whose outcomes have not arrived. They count as known (hallucination), but only
            in variances and draws.
        normal: A function that returns the requested number of standard normal numbers of this
            round, for draws.
        matrices: See :meth:`GrowingRows.matrices`; needed for draws if rows have fronts.
        played: The ``n`` arms that were played, if they differ from those of the rows.

    Example:
        >>> import numpy as np, torch
        >>> from botorch_bandits.models.front_kernels import SumOfProducts
        >>> from botorch_bandits.models.row_factors import FreshFactor
        >>> from botorch_bandits.models.prior_on_arms import ArmsPrior
        >>> prior = SumOfProducts.behind_time(ArmsPrior.from_matrix(torch.eye(2).double()), None)
        >>> nothing = np.empty(0)
        >>> rows = Rows(np.array([0]), np.empty((1, 0)), np.array([1.0]))
        >>> factor = FreshFactor(prior.among(rows.arms, rows.fronts) + 1.0 * np.eye(1))
        >>> posterior = RowsPosterior(prior, nothing, rows, np.array([2.0]), factor, 1.0)
        >>> posterior.mean.round(decimals=9).tolist()
        [1.0, 0.0]
    """

    batch_shape = torch.Size(())
    device = torch.device("cpu")

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        covariance: FrontCovariance,
        front: Array,
        rows: Rows,
        outcomes: Array,
        factor: RowFactor | Callable[[], RowFactor],
        lam: float,
        pending: Rows | None = None,
        normal: Callable[..., Array] | None = None,
        matrices: Callable[[], tuple[Array, list[Array]]] | None = None,
        played: Index | None = None,
    ) -> None:
        """See the class."""
        self.lam, self.num_arms = lam, covariance.num_arms
        self.covariance, self.front = covariance, front
        self.rows, self.outcomes, self._given_factor = rows, outcomes, factor
        self._seen = rows  # including pending rows
        self._normal, self._observed = normal, rows.arms if played is None else played
        self._matrices_of_rows = matrices
        self._added: Array | None = None  # covariances of pending rows with all, with noise
        if pending is not None and len(pending.arms):
            self._seen = rows.followed_by(pending)
            n = len(rows.arms)
            columns = np.stack(
                [
                    covariance.with_rows(self._seen.arms, self._seen.fronts, arm, own)
                    for arm, own in zip(pending.arms.tolist(), pending.fronts, strict=True)
                ],
                axis=1,
            )
            columns[n:] += np.diag(pending.noise)
            self._added = columns

    @cached_property
    def _factor(self) -> RowFactor:
        """The factor of the rows."""
        given = self._given_factor
        return given if isinstance(given, RowFactor) else given()

    @cached_property
    def _seen_factor(self) -> RowFactor:
        """The factor of the rows, including pending ones."""
        if self._added is None:
            return self._factor
        n = len(self.rows.arms)
        return ExtendedFactor(self._factor, self._added[:n], self._added[n:])

    @property
    def regularization(self) -> Tensor:
        """A scalar; the noise variance of one outcome."""
        return torch.tensor(self.lam, dtype=torch.float64)

    @property
    def has_pending(self) -> bool:
        """Whether there are rows whose outcomes have not arrived."""
        return self._added is not None

    @property
    def largest_variance(self) -> Array:
        """``num_arms``; upper bounds on the variances, which are exact if there are few rows."""
        bound = self._bounds_on_variance()
        if bound is None:
            return self.variance.numpy()
        if self._telling is None:
            return bound
        return self._telling.sharper(np.arange(self.num_arms))

    @property
    def observed_variance(self) -> Tensor:
        """``num_arms``; the variances without pending rows, at least 0."""
        if self._added is None:
            return self.variance
        halves = self._factor.half(self._columns[: self._factor.num_rows])
        known = np.einsum("ij,ij->j", halves, halves)
        return torch.from_numpy(np.maximum(self.prior_variances - known, 0.0))

    @property
    def counts(self) -> Tensor:
        """``num_arms``; how often each arm was played, float64."""
        return torch.from_numpy(np.bincount(self._observed, minlength=self.num_arms)).double()

    @cached_property
    def information_gain(self) -> Tensor:
        """A scalar; the realized information gain of the rows, without pending ones, in nats."""
        logs = float(np.log(self.rows.noise).sum())
        return torch.tensor(0.5 * (self._factor.log_determinant - logs), dtype=torch.float64)

    @cached_property
    def mean(self) -> Tensor:
        """``num_arms``; the posterior mean less the prior mean, of the first output."""
        return self.means[0]

    @cached_property
    def means(self) -> Tensor:
        """``num_outputs x num_arms``; the posterior means less the prior mean."""
        gains = self._gains(self._factor, self.outcomes)
        return torch.from_numpy(gains.reshape(-1, self.num_arms))

    @cached_property
    def variance(self) -> Tensor:
        """``num_arms``; the posterior variances, at least 0."""
        return torch.from_numpy(np.maximum(self.prior_variances - self._known_of_all(), 0.0))

    def clamped_variance(self, smallest: float) -> Tensor:
        """Return the variances, ``num_arms``, at least ``smallest``."""
        return self.variance.clamp_min(smallest)

    def variance_at(self, arms: Index) -> Array:
        """Return the variances of some arms, at least 0."""
        columns = self._halves(arms)
        known = np.einsum("ij,ij->j", columns, columns)
        return np.maximum(self.prior_variances[arms] - known, 0.0)

    def variance_of_rows(self, arms: Index, fronts: Array) -> Array:
        """Return variances with fronts other than the present one, ``m``, at least 0.

        Args:
            arms: ``m`` arms.
            fronts: ``m x num_front``; the front of each.
        """
        return self._known_of_rows(arms, fronts)[1]

    def moments_of_rows(self, arms: Index, fronts: Array) -> tuple[Array, Array]:
        """Return the means less the prior mean and the variances, ``m`` each, without pending rows.

        Args:
            arms: See :meth:`variance_of_rows`.
            fronts: See :meth:`variance_of_rows`.
        """
        halves, variance = self._known_of_rows(arms, fronts)
        first = self.outcomes if self.outcomes.ndim == 1 else self.outcomes[:, 0]
        return halves.T @ self._factor.half(first[:, None])[:, 0], variance

    def _known_of_rows(self, arms: Index, fronts: Array) -> tuple[Array, Array]:
        covariance, rows = self.covariance, self._seen
        columns = np.zeros((len(rows.arms), len(arms)))
        prior = np.zeros(len(arms))
        for j, (arm, front) in enumerate(zip(arms.tolist(), fronts, strict=True)):
            columns[:, j] = covariance.with_rows(rows.arms, rows.fronts, arm, front)
            prior[j] = covariance.at_own(arms[j : j + 1], fronts[j : j + 1], front)[0]
        halves = self._seen_factor.half(columns)
        return halves, np.maximum(prior - np.einsum("ij,ij->j", halves, halves), 0.0)

    def screened_variance(
        self,
        mean: Array,
        width: float,
        smallest: float,
        tolerance: Callable[[float], float],
        among: Tensor | None = None,
    ) -> Tensor:
        """Return variances that are exact only where they need to be: near the largest upper bound.

        The others are too large, but not so much that ``mean + width * deviation`` would come
        within the tolerance of the largest value. The largest values, and all that count as equal
        to them, therefore agree with :attr:`variance`.

        Args:
            mean: ``num_arms``; the deviations are added to it.
            width: At least 0.
            smallest: Variances below this are replaced with it.
            tolerance: A function of the largest value: how far below it a value still counts as
                equal.
            among: The arms among which the largest value is sought; all if omitted.
        """
        bound = self._bounds_on_variance()
        if bound is None:
            return self.variance
        value = mean + width * np.sqrt(np.maximum(bound, smallest))
        is_exact, is_sharp = np.zeros(self.num_arms, dtype=bool), self._telling is None
        if among is not None:  # the others are left out
            is_exact[:] = True
            is_exact[among.numpy()] = False
        largest, count = -math.inf, FIRST_CANDIDATES
        while True:
            threshold = largest - 2.0 * tolerance(largest) if largest > -math.inf else largest
            left = np.flatnonzero(~is_exact & (value >= threshold))
            if not len(left):
                return torch.from_numpy(bound)
            if largest > -math.inf and not is_sharp:
                assert self._telling is not None
                bound[left], is_sharp = self._telling.sharper(left), True
                value[left] = mean[left] + width * np.sqrt(np.maximum(bound[left], smallest))
                continue
            if largest > -math.inf and len(left) > MANY_CANDIDATES * self.num_arms:
                return self.variance
            if len(left) > count:  # the most promising first: they may rule out the others
                left = left[np.argpartition(value[left], -count)[-count:]]
            bound[left] = self.variance_at(left)
            value[left] = mean[left] + width * np.sqrt(np.maximum(bound[left], smallest))
            is_exact[left] = True
            largest = max(largest, float(value[left].max()))
            count *= 4

    @property
    def num_normals(self) -> int:
        """The number of standard normal numbers that a draw takes, besides those of the rows."""
        return self.covariance.num_normals

    @property
    def simulate_prior(self) -> Callable[[Tensor], Tensor]:
        """The function that turns normal numbers into what :meth:`correct` needs.

        It may outlive this posterior; see :meth:`.FrontCovariance.simulate`.
        """
        return self.covariance.simulate

    def redrawn(self, number: int) -> RowsPosterior:
        """Return the same posterior with other random numbers for the rows of a draw.

        Args:
            number: The number of the repetition, from 1.
        """
        assert self._normal is not None
        other = copy.copy(self)
        other._normal = partial(self._normal, purpose=f"thompson rows redrawn {number}")
        return other

    def covariance_columns(self, index: Tensor) -> Tensor:
        """Return covariances of some arms with all, ``k x num_arms``; pending rows count as known.

        Args:
            index: ``k`` numbers of arms.
        """
        arms, every = index.numpy(), np.arange(self.num_arms)
        fronts = self.front[None].repeat(len(arms), 0)
        prior = self.covariance.columns(arms, fronts, self.front, every)
        halves = self._seen_factor.half(self._columns)
        return torch.from_numpy(prior - halves[:, arms].T @ halves)

    def correct(self, simulation: Tensor) -> Tensor:
        """Turn a draw from the prior into a joint draw from the posterior, ``num_arms``.

        Args:
            simulation: From :meth:`simulate_prior`.
        """
        assert self._normal is not None
        deviation = self.deviations_of_draws(simulation[None], [self._normal])[0]
        return self.mean + deviation

    def deviations_of_draws(
        self, simulations: Tensor, normals: Sequence[Callable[[int], Array]]
    ) -> Tensor:
        """Return deviations of joint draws of several outputs from their means, ``k x num_arms``.

        All outputs share one factorization.

        Args:
            simulations: ``k x ...``, from :meth:`simulate_prior`; one per output.
            normals: One function per output, which returns the requested number of standard normal
                numbers of this round.
        """
        covariance = self.covariance
        if isinstance(covariance, JointStationary):
            rank = len(covariance.root[0])
            numbers = simulations.numpy()
            functions = numbers[:, rank:]
            simulated = self._simulated_by_root(covariance, numbers[:, :rank], normals)
        elif isinstance(covariance, SumOfProducts):
            parts, front = simulations.numpy(), self.front[None]
            here = [float(own[0, 0]) for own in covariance.scales(front, front)]
            functions = np.zeros((len(parts), self.num_arms))
            for i, own in enumerate(here):
                functions += math.sqrt(own) * parts[:, i]
            simulated = self._simulated_outcomes(covariance, here, parts, normals)
        else:
            known = self._seen_factor.half(self._columns)
            root = root_of(torch.from_numpy(covariance.matrix(self.front) - known.T @ known))
            return simulations[:, : root.shape[1]] @ root.T
        if len(simulated) == 1:  # a vector takes fewer operations than a matrix of one column
            return torch.from_numpy(functions - self._gains(self._seen_factor, simulated[0]))
        return torch.from_numpy(functions - self._gains(self._seen_factor, simulated.T))

    def _simulated_by_root(
        self,
        covariance: JointStationary,
        numbers: Array,
        normals: Sequence[Callable[[int], Array]],
    ) -> Array:
        """Return outcomes of the rows that match the normal numbers of functions, ``k x n``."""
        factor, order = covariance.root
        rank, seen = len(factor), self._seen
        columns = self._columns.take(order[:rank], axis=1).T
        # in this layout LAPACK copies neither of the two
        known = dtrtrs(factor[:, :rank].T, columns, lower=1, overwrite_b=1)[0].T
        left = self._covariance_of_seen()
        left -= known @ known.T
        rest = np.stack([normal(len(seen.arms)) for normal in normals])
        simulated: Array = numbers @ known.T + rest @ cholesky(left).numpy().T
        return simulated

    def _covariance_of_seen(self) -> Array:
        """Return a new copy of the covariance of the rows, with pending ones, noise included."""
        if self._matrices_of_rows is None:
            among = self.covariance.among(self.rows.arms, self.rows.fronts)
            among[np.diag_indices_from(among)] += self.rows.noise
        else:
            among = self._matrices_of_rows()[0]
        if self._added is None:
            return among.copy()
        n = len(among)
        left = np.empty((len(self._seen.arms),) * 2)
        left[:n, :n] = among
        left[:, n:], left[n:, :n] = self._added, self._added[:n].T
        return left

    def _simulated_outcomes(
        self,
        covariance: SumOfProducts,
        here: list[float],
        parts: Array,
        normals: Sequence[Callable[[int], Array]],
    ) -> Array:
        """Return outcomes of the rows that match functions drawn from the prior, ``k x n``."""
        seen = self._seen
        rest = np.stack([normal(len(seen.arms)) for normal in normals])
        if covariance.num_front == 0:
            return parts[:, 0, seen.arms] + np.sqrt(seen.noise) * rest
        assert self._matrices_of_rows is not None
        left, products = self._covariance_of_seen(), self._matrices_of_rows()[1]
        if self._added is not None:
            products = [
                covariance.block_of(number, seen.arms, seen.arms) for number in range(len(products))
            ]
        mean = np.zeros(rest.shape)
        for i, (scale, own, product) in enumerate(zip(self._scales, here, products, strict=True)):
            if own > 0.0:
                share = scale / math.sqrt(own)
                mean += share * parts[:, i, seen.arms]
                for start in range(0, len(left), CHUNK_OF_ROWS):
                    some = slice(start, start + CHUNK_OF_ROWS)
                    left[some] -= product[some] * share * share[some, None]
        return mean + rest @ cholesky(left).numpy().T

    @cached_property
    def prior_variances(self) -> Array:
        """``num_arms``; the prior variances."""
        return self.covariance.variances(self.front)

    @cached_property
    def _scales(self) -> list[Array]:
        """In a sum of products: the factor of each row due to the fronts, ``n`` per product."""
        assert isinstance(self.covariance, SumOfProducts)
        every = self.covariance.scales(self._seen.fronts, self.front[None])
        return [scale[:, 0] for scale in every]

    @cached_property
    def _played(self) -> tuple[Index, Index]:
        """The ``p`` distinct arms in order of their first rows, and the position of each row."""
        arms = self._seen.arms
        rows, first = np.arange(len(arms)), np.empty(self.num_arms, dtype=np.int64)
        first[arms[::-1]] = rows[::-1]
        played = arms[first[arms] == rows]
        first[played] = np.arange(len(played))
        return played, first[arms]

    @cached_property
    def _prior_rows(self) -> Array:
        """In a sum of products: the prior rows of the distinct arms, stacked by product."""
        assert isinstance(self.covariance, SumOfProducts)
        played, _ = self._played
        parts = [self.covariance.rows_of(i, played) for i in range(len(self.covariance.priors))]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @cached_property
    def _columns(self) -> Array:
        """The covariances of the rows with all arms."""
        return self._columns_at(None)

    def _columns_at(self, arms: Index | None) -> Array:
        if arms is None:
            return self.covariance.columns(self._seen.arms, self._seen.fronts, self.front)
        if "_columns" in vars(self):
            return self._columns[:, arms]
        if isinstance(self.covariance, SumOfProducts):
            return self._columns_of_products(None, arms)
        return self.covariance.columns(self._seen.arms, self._seen.fronts, self.front, arms)

    def _columns_of_products(self, rows: Index | None, arms: Index | None) -> Array:
        """Return covariances of some or all rows with some or all arms.

        They are read from the prior rows of the distinct arms, which computing the means has just
        brought into the cache, rather than from the matrix of all arms.
        """
        played, slots = self._played
        total: Array | None = None
        for i, scale in enumerate(self._scales):
            prior = self._prior_rows[i * len(played) : (i + 1) * len(played)]
            if rows is not None:
                slot, scale = slots[rows], scale[rows]
                own = prior[slot] if arms is None else prior[slot[:, None], arms]
            else:
                own = (prior if arms is None else prior.take(arms, axis=1))[slots]
            if self.covariance.num_front:
                own *= scale[:, None]
            total = own if total is None else total + own
        assert total is not None
        return total

    @cached_property
    def _is_grouped(self) -> bool:
        """Whether there are so few distinct arms that grouping the rows by arm pays."""
        if not isinstance(self.covariance, SumOfProducts):
            return False
        num_groups = len(self.covariance.priors) * len(self._played[0])
        return num_groups < GROUPED * len(self._seen.arms)

    @cached_property
    def _groups(self) -> Array:
        """``L^-1 D_l E`` of all products side by side, ``n x (num_products p)``."""
        played, slots = self._played
        factor, count = self._seen_factor, len(played)
        parts = [factor.half_of_groups(slots, scale, count) for scale in self._scales]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _halves(self, arms: Index) -> Array:
        """Return ``L^-1 C`` for some arms."""
        if "_groups" in vars(self):
            return self._groups @ self._prior_rows[:, arms]
        return self._seen_factor.half(self._columns_at(arms))

    def _known_of_all(self) -> Array:
        """Return by how much the rows lower the variance of each arm."""
        if self._is_grouped:
            triangle = np.linalg.qr(self._groups, mode="r")
            halves = triangle @ self._prior_rows
        else:
            halves = self._seen_factor.half(self._columns)
        return np.einsum("ij,ij->j", halves, halves)

    def _gains(self, factor: RowFactor, outcomes: Array) -> Array:
        """Return ``C' Sigma^-1 outcomes`` for as many rows as the factor has.

        Args:
            factor: The factor of the rows.
            outcomes: ``n``, or ``n x k``.

        Returns:
            ``num_arms``, or ``k x num_arms``.
        """
        n = factor.num_rows
        weights = factor.whole(outcomes).T
        if not isinstance(self.covariance, SumOfProducts):
            return weights @ self._columns[:n]
        played, slots = self._played
        parts = [
            sums_of_groups(slots[:n], (scale[:n] * weights).T, len(played)).T
            for scale in self._scales
        ]
        gains: Array = np.concatenate(parts, axis=-1) @ self._prior_rows
        return gains

    def _bounds_on_variance(self) -> Array | None:
        """Return new upper bounds on the variances; None if exact variances cost no more."""
        seen = self._seen
        if self.num_arms * len(seen.arms) ** 2 < FEW_OPERATIONS:
            return None
        if self._is_grouped:
            # the products of groups may lose half of the digits, which the bound allows for
            products, rows = self._groups.T @ self._groups, self._prior_rows
            known = np.einsum("ij,ij->j", rows, products @ rows)
            sizes = np.sqrt(products.diagonal()) @ np.abs(rows)
            sizes *= sizes
            sizes *= len(self._groups) * np.finfo(np.float64).eps
            return np.maximum(self.prior_variances - known + sizes, 0.0)
        assert self._telling is not None
        return self._telling.bound.copy()

    @cached_property
    def _telling(self) -> TellingRows | None:
        """The rows that tell most about the arms; None if rows are grouped by arm."""
        if self._is_grouped:
            return None
        seen = self._seen
        return TellingRows(
            self.covariance,
            seen.arms,
            seen.fronts,
            seen.noise,
            self.front,
            self.prior_variances,
            self._columns_of,
        )

    def _columns_of(self, rows: Index, arms: Index | None) -> Array:
        """Return the covariances of some rows with some arms, or with all."""
        if "_columns" in vars(self):
            columns = self._columns[rows]
            return columns if arms is None else columns[:, arms]
        if isinstance(self.covariance, SumOfProducts):
            return self._columns_of_products(rows, arms)
        seen = self._seen
        return self.covariance.columns(seen.arms[rows], seen.fronts[rows], self.front, arms)

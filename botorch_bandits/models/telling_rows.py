r"""Upper bounds on the variances of all arms in a round, from the most informative rows.

Observing a row can only lower a variance, so the posterior given some of the rows bounds the
posterior variance given all rows from above. Two things are separated: how informative a row is
about its own arm now, and how much of that other rows reveal already. With :math:`\tau_i` the share
of variance that row :math:`i` explains of its own arm and :math:`k` a covariance of the arms, a
pivoted Cholesky factorization of :math:`\sqrt{\tau_i \tau_j} k_{ij} / \sqrt{k_{ii} k_{jj}}` selects
in each step the row that is most informative in addition to those before it, and stops when no row
adds much. Of hundreds of rows, some tens are left. With few rows (:data:`ALONE`), only the first
criterion is used, which costs less.

Bounds for all arms are computed from the first few of these rows; arms that these bounds do not
rule out get bounds from all of them (:meth:`TellingRows.sharper`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg.lapack import dpstrf, dtrtri

from botorch_bandits.models.front_kernels import Array, FrontCovariance, Index
from botorch_bandits.models.roots import cholesky

FIRST_ROWS = 24
"""Rows from which bounds on all arms are computed."""

MOST_ROWS = 64
"""Rows for bounds on the remaining arms, or an eighth of all rows if this is more."""

ALONE = 400
"""With fewer rows, examining what other rows already reveal costs more than it saves."""

POOL = 128
"""Rows that are compared in pairs, or a quarter of all rows if this is more."""

NEGLIGIBLE_SHARE = 1e-3
"""Rows are no longer added when each explains less than this share of its arm's variance."""


class TellingRows:
    """Upper bounds on the variances of all arms with the front of the present round.

    Args:
        covariance: The prior.
        arms: ``n`` arms of the rows.
        fronts: ``n x num_front``; their fronts.
        noise: ``n`` noise variances.
        front: ``num_front``; the current front of the arms.
        prior_variances: ``num_arms``; the prior variances with this front.
        columns: A function from ``k`` rows and ``m`` arms (None for all arms) to their covariances.

    Attributes:
        rows: The selected rows, in the order of selection.
        bound: ``num_arms``; upper bounds on the variances.
    """

    def __init__(
        self,
        covariance: FrontCovariance,
        arms: Index,
        fronts: Array,
        noise: Array,
        front: Array,
        prior_variances: Array,
        columns: Callable[[Index, Index | None], Array],
    ) -> None:
        """See the class."""
        self.rows = telling_rows(covariance, arms, fronts, noise, front, prior_variances)
        self._columns = columns
        among = covariance.among(arms[self.rows], fronts[self.rows])
        among[np.diag_indices_from(among)] += noise[self.rows]
        self._inverse: Array = dtrtri(cholesky(among).numpy().T, lower=0)[0].T
        # rounding must not make a bound too small
        epsilon = np.finfo(np.float64).eps
        self._most = prior_variances * (1.0 + len(self.rows) * epsilon)
        first = self.rows[:FIRST_ROWS]
        halves = self._inverse[:FIRST_ROWS, :FIRST_ROWS] @ columns(first, None)
        self.bound = np.maximum(self._most - np.einsum("ij,ij->j", halves, halves), 0.0)

    def sharper(self, arms: Index) -> Array:
        """Return bounds on the variances of some arms, from all selected rows.

        Args:
            arms: ``m`` arms.
        """
        if len(self.rows) <= FIRST_ROWS:
            return self.bound[arms]
        halves = self._inverse[FIRST_ROWS:] @ self._columns(self.rows, arms)
        bound: Array = np.maximum(self.bound[arms] - np.einsum("ij,ij->j", halves, halves), 0.0)
        return bound


def telling_rows(
    covariance: FrontCovariance,
    arms: Index,
    fronts: Array,
    noise: Array,
    front: Array,
    prior_variances: Array,
) -> Index:
    """Return the rows that reveal most about the arms now, each in addition to those before it.

    At most one row of each arm is selected. The arguments are those of :class:`TellingRows`.
    """
    at_own = covariance.at_own(arms, fronts, front)
    told = at_own * at_own / (noise + prior_variances[arms])
    order = np.argsort(told, kind="stable")
    last = np.full(covariance.num_arms, -1)
    last[arms[order]] = order  # the last entry remains: the most informative row
    kept = last[last >= 0]
    most, pool = max(MOST_ROWS, len(arms) // 8), max(POOL, len(arms) // 4)
    if len(arms) < ALONE:
        ranked: Index = kept[np.argsort(-told[kept], kind="stable")[:most]]
        return ranked
    if len(kept) > pool:
        kept = kept[np.argpartition(told[kept], -pool)[-pool:]]
    alike = covariance.alike(arms[kept], front)
    own = alike.diagonal()
    share = told[kept] / np.maximum(prior_variances[arms[kept]], np.finfo(np.float64).tiny)
    root = np.sqrt(share / np.maximum(own, np.finfo(np.float64).tiny))
    alike *= root
    alike *= root[:, None]
    _, pivots, rank, _ = dpstrf(alike.T, tol=NEGLIGIBLE_SHARE, lower=1, overwrite_a=1)
    taken: Index = kept[pivots[: min(max(rank, 1), most)] - 1]
    return taken

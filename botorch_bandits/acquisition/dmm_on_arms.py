r"""The DMM bound on arms, in a round of one stream: exact where it matters, at a constant cost.

The quantities that DMM needs at every ridge ``a`` follow from the eigenvectors of the kernel matrix
of all observations. The cost of these eigenvectors is cubic in the number of arms played. Here, the
eigenvectors are recomputed only every 32 rounds, from the counts at that time. The posterior at
each ridge is then conditioned on the arms ``J`` observed since, with counts :math:`\Delta`:

.. math::
   S_a = K_{JJ} - \Phi_J (\Lambda + a)^{-1} \Phi_J^\top + a \, \mathrm{diag}(1 / \Delta), \qquad
   \mu_a \mathrel{+}= W_a S_a^{-1} (\bar y_J - \mu_{a, J}), \qquad
   s_a^2 \mathrel{-}= \mathrm{diag}(W_a S_a^{-1} W_a^\top)

where :math:`\Phi` contains the features of the arms in the basis of the eigenvectors, and
:math:`W_a = K_{\cdot J} - \Phi (\Lambda + a)^{-1} \Phi_J^\top`. Both parts of an arm's outcomes are
set to the mean of the arm, which does not change the radicand, because the variation among the
outcomes of an arm cancels.

Most arms need not be evaluated: see :mod:`botorch_bandits.acquisition.ridge_search`.
"""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.acquisition.ridge_search import Array, Index, RidgeSearch
from botorch_bandits.confidence.changed_basis import ChangedBasis, Spectrum
from botorch_bandits.confidence.dmm import radicands_of, ridge_grid
from botorch_bandits.models.arms import ArmsPosterior

FEWEST_ARMS = 48
"""With fewer arms in the basis, everything is recomputed in each round, which is faster."""


class Basis:
    """Eigenvectors of the kernel matrix at some counts, and the features of all arms.

    Args:
        posterior: The posterior, which provides the prior and the counts.
        unit: The prior standard deviation.
    """

    def __init__(self, posterior: ArmsPosterior, unit: float) -> None:
        """See the class."""
        self.counts = posterior.counts_before[0].numpy()
        self.unit = unit
        self.arms = np.flatnonzero(self.counts)
        self.root = np.sqrt(self.counts[self.arms])
        columns = posterior.prior.columns(torch.from_numpy(self.arms)).numpy()
        columns = columns / unit**2 * self.root[:, None]
        self.spectrum = Spectrum.of(columns[:, self.arms] * self.root)
        self.features = columns.T @ self.spectrum.eigenvectors  # num_arms x p


_bases: WeakKeyDictionary[ArmsPosterior, Basis] = WeakKeyDictionary()


def basis_of(posterior: ArmsPosterior, unit: float) -> Basis | None:
    """Return the basis of the last multiple of 32 rounds; None with few arms.

    Args:
        posterior: The posterior of one stream, on the CPU.
        unit: The prior standard deviation.
    """
    if posterior.batch_shape or posterior.device.type != "cpu":
        return None
    counts = posterior.counts_before[0].numpy()
    if np.count_nonzero(counts) < FEWEST_ARMS:
        return None
    known = _bases.get(posterior)
    if known is None or known.unit != unit or not np.array_equal(known.counts, counts):
        known = _bases[posterior] = Basis(posterior, unit)
    return known


class ArmsInRidges(RidgeSearch):
    """Means and deviations at all ridges, for the requested arms.

    Args:
        posterior: The posterior of one stream.
        basis: The result of :func:`basis_of`.
        rkhs_bound: ``B`` in prior standard deviations.
        noise_bound: ``R`` in prior standard deviations.
        delta: The set fails to contain the reward with at most this probability.
        num_ridges: The size of the grid.
        doubles: See :meth:`~botorch_bandits.confidence.RidgeConfidenceSet.from_data`.
    """

    def __init__(
        self,
        posterior: ArmsPosterior,
        basis: Basis,
        rkhs_bound: Tensor,
        noise_bound: Tensor,
        delta: float,
        num_ridges: int,
        doubles: bool,
    ) -> None:
        """See the class."""
        unit = basis.unit
        counts = posterior.counts.numpy()
        means = posterior.sums.numpy() / np.where(counts > 0.0, counts, 1.0) / unit
        new = counts - basis.counts
        since = np.flatnonzero(new)
        self._basis, self._root = basis, np.sqrt(new[since])[:, None]
        base = torch.as_tensor(posterior.lam / unit**2, dtype=torch.float64)
        prior_variance = posterior.prior.diagonal / unit**2
        trace = torch.from_numpy(counts) @ prior_variance
        ridges = ridge_grid(base.reshape(1), trace.reshape(1), num_ridges)
        columns = posterior.prior.columns(torch.from_numpy(since)).numpy()
        self._columns = columns * (self._root / unit**2)  # d x num_arms
        self._changed = ChangedBasis(
            basis.spectrum,
            ridges.numpy(),
            basis.features[since] * self._root,
            0,
            self._columns[:, since] * self._root.T,
            basis.root * means[basis.arms],
            self._root[:, 0] * means[since],
        )
        fits = torch.from_numpy(self._changed.fits)
        # the model's ridge is the last one
        radius = base * fits[-1:] + noise_bound**2 * 2.0 * (
            posterior.information_gain + math.log(1.0 / delta)
        )
        radicands, _, bound, _ = radicands_of(radius, ridges, fits, rkhs_bound, doubles)
        super().__init__(
            posterior.mean.numpy(),
            posterior.variance.numpy(),
            prior_variance.numpy(),
            unit,
            radicands.numpy(),
            float(bound),
        )

    def moments(self, arms: Index, ridges: Index | slice) -> tuple[Array, Array]:
        return self._changed.moments(self._basis.features[arms], self._columns[:, arms], ridges)

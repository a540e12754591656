r"""The bound of DMM on arms, in a round of one stream: exact where it matters, at a flat cost.

What DMM needs at every ridge ``a`` follows from the eigenvectors of the kernel matrix of all
observations, which cost the cube of the arms that were played. Here they are those of the counts of
the last multiple of 32 rounds. The arms ``J`` that were observed since then are conditioned on at
each ridge, with counts :math:`\Delta`:

.. math::
   S_a = K_{JJ} - \Phi_J (\Lambda + a)^{-1} \Phi_J^\top + a \, \mathrm{diag}(1 / \Delta), \qquad
   \mu_a \mathrel{+}= W_a S_a^{-1} (\bar y_J - \mu_{a, J}), \qquad
   s_a^2 \mathrel{-}= \mathrm{diag}(W_a S_a^{-1} W_a^\top)

with the features :math:`\Phi` of the arms in the basis of the eigenvectors and
:math:`W_a = K_{\cdot J} - \Phi (\Lambda + a)^{-1} \Phi_J^\top`. Both parts of an arm's outcomes
have its mean, which leaves the radicand as it is: by how much outcomes of an arm differ cancels.

The bound is the least one over the ridges. So the bound at any ridge is above it, and an arm whose
bound at one ridge is below the least of another arm need not be looked at: first the ridge of the
model, whose posterior is at hand, then a few, then all.
"""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from botorch_bandits.confidence.dmm import radicands_of, ridge_grid
from botorch_bandits.confidence.width_rules import MINIMUM_VARIANCE
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.models.arms import ArmsPosterior

FEWEST_ARMS = 48
"""With fewer arms in the basis everything is computed afresh in each round, which costs less."""

NUM_PROBES = 16
"""So many arms with the largest means, and with the largest bounds at one ridge, are looked at
first."""

STEP = 4
"""Every so many ridges are looked at before all of them."""

SMALLEST_RADICAND = 0.05
"""Below this share of the squared norm the set is nearly empty, and everything is computed."""


class Basis:
    """Eigenvectors of the kernel matrix at some counts, and the features of all arms.

    Args:
        posterior: Gives prior and counts.
        unit: The prior standard deviation.
    """

    def __init__(self, posterior: ArmsPosterior, unit: float) -> None:
        """See the class."""
        self.counts = posterior.counts_before[0]
        self.unit = unit
        self.arms = torch.nonzero(self.counts).squeeze(-1)
        self.root = self.counts[self.arms].sqrt()
        columns = posterior.prior.columns(self.arms) / unit**2 * self.root.unsqueeze(-1)
        block = columns[:, self.arms] * self.root
        eigenvalues, self.vectors = torch.linalg.eigh(block)
        self.eigenvalues = eigenvalues.clamp_min(0.0)
        self.features = columns.T @ self.vectors  # num_arms x p


_bases: WeakKeyDictionary[ArmsPosterior, Basis] = WeakKeyDictionary()


def basis_of(posterior: ArmsPosterior, unit: float) -> Basis | None:
    """Return the basis of the last multiple of 32 rounds; None with few arms.

    Args:
        posterior: Of one stream.
        unit: The prior standard deviation.
    """
    if posterior.batch_shape or int((posterior.counts_before > 0).sum()) < FEWEST_ARMS:
        return None
    known = _bases.get(posterior)
    counts = posterior.counts_before[0]
    if known is None or known.unit != unit or not torch.equal(known.counts, counts):
        known = _bases[posterior] = Basis(posterior, unit)
    return known


class ArmsInRidges:
    """Means and deviations at all ridges, of the arms that are asked for.

    Args:
        posterior: Of one stream.
        basis: From :func:`basis_of`.
        rkhs_bound: ``B`` in prior standard deviations.
        noise_bound: ``R``, likewise.
        delta: The set fails to hold the reward with at most this probability.
        num_ridges: Size of the grid.
        doubles: See :meth:`~botorch_bandits.confidence.RidgeConfidenceSet.from_data`.

    Attributes:
        unit: The prior standard deviation; everything else is in units of it.
        radicands: ``num_ridges``; the radicand at each ridge.
        rkhs_bound: ``B``; after doubling, if that was asked for.
        smallest_rkhs_bound: The data refute every smaller ``B``.
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
        self._posterior, self._basis = posterior, basis
        self.unit = unit = basis.unit
        counts = posterior.counts
        means = posterior.sums / counts.clamp_min(1.0) / unit
        new = counts - basis.counts
        self._since = torch.nonzero(new).squeeze(-1)
        base = torch.as_tensor(posterior.lam / unit**2, dtype=means.dtype)
        variance = posterior.prior.diagonal / unit**2
        ridges = ridge_grid(base.reshape(1), (counts * variance).sum().reshape(1), num_ridges)
        projected = (basis.root * means[basis.arms]) @ basis.vectors
        self._inverse = 1.0 / (basis.eigenvalues.unsqueeze(-1) + ridges)  # p x num_ridges
        self._mean_weights = projected.unsqueeze(-1) * self._inverse
        fits = projected.square() @ self._inverse
        since = basis.features[self._since]  # d x p
        self._columns = posterior.prior.columns(self._since) / unit**2  # d x num_arms
        scaled = self._inverse.T.unsqueeze(1) * since  # num_ridges x d x p
        self._scaled = scaled
        together = scaled.reshape(-1, since.shape[-1]) @ since.T
        block = self._columns[:, self._since] - together.reshape(*scaled.shape[:2], len(since))
        block.diagonal(dim1=-2, dim2=-1).add_(ridges.unsqueeze(-1) / new[self._since])
        self._factor = torch.linalg.cholesky(block)
        away = means[self._since] - (since @ self._mean_weights).T  # num_ridges x d
        self._away = torch.linalg.solve_triangular(
            self._factor, away.unsqueeze(-1), upper=False
        ).squeeze(-1)
        fits = fits + self._away.square().sum(-1)
        self._variance = variance
        # the model's ridge is the last one
        radius = base * fits[-1:] + noise_bound**2 * 2.0 * (
            posterior.information_gain + math.log(1.0 / delta)
        )
        self.radicands, self.smallest_rkhs_bound, self.rkhs_bound, _ = radicands_of(
            radius, ridges, fits, rkhs_bound, doubles
        )

    @property
    def is_refuted(self) -> Tensor:
        """Whether the data refute kernel, ``B`` and ``R`` at level ``delta``."""
        return (self.radicands < 0.0).any(-1)

    @property
    def is_nearly_empty(self) -> bool:
        """Whether the set is so small that its ends may meet."""
        return float(self.radicands.min()) < SMALLEST_RADICAND * float(self.rkhs_bound) ** 2

    def ends(self, arms: Tensor, ridges: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the lower and upper bound at some arms, the tightest of all or some ridges.

        Args:
            arms: ``k`` arm numbers.
            ridges: The numbers of the ridges; all if omitted.
        """
        inverse, weights, scaled = self._inverse, self._mean_weights, self._scaled
        factor, away, radicands = self._factor, self._away, self.radicands
        if ridges is not None:
            inverse, weights, scaled = inverse[:, ridges], weights[:, ridges], scaled[ridges]
            factor, away, radicands = factor[ridges], away[ridges], radicands[ridges]
        features = self._basis.features[arms]
        mean = features @ weights
        explained = features.square() @ inverse
        if len(self._since):
            size = scaled.shape[:-1]  # ridges x d
            cross = (scaled.reshape(-1, scaled.shape[-1]) @ features.T).reshape(*size, len(arms))
            cross = self._columns[:, arms] - cross
            solved = torch.linalg.solve_triangular(factor, cross, upper=False)
            mean = mean + (away.unsqueeze(1) @ solved).squeeze(1).T
            explained = explained + solved.square().sum(1).T
        prior = self._variance[arms]
        variance = (prior.unsqueeze(-1) - explained).clamp_min_(MINIMUM_VARIANCE)
        deviation = variance.sqrt_() * radicands.clamp_min(0.0).sqrt()
        at_infinity = self.rkhs_bound * prior.sqrt()
        least, self._tightest = (mean + deviation).min(-1)
        upper = torch.minimum(least, at_infinity)
        return torch.maximum((mean - deviation).amax(-1), -at_infinity), upper

    def scores(self, sign: float) -> Tensor | None:
        """Return the bounds where they may be the largest, and larger numbers elsewhere.

        Args:
            sign: 1 for upper bounds, -1 for minus the lower ones.

        Returns:
            ``num_arms``: no arm whose number is not its bound has the largest one, by far more than
            rounding. None if the set is nearly empty.
        """
        if self.is_nearly_empty:
            return None
        posterior, unit = self._posterior, self._basis.unit
        mean = posterior.mean * (sign / unit)
        variance = (posterior.variance / unit**2).clamp_min_(MINIMUM_VARIANCE)
        at_model = self.radicands[-1].clamp_min(0.0).sqrt()
        scores = torch.minimum(
            mean + variance.sqrt_() * at_model, self.rkhs_bound * self._variance.sqrt()
        )
        count = min(NUM_PROBES, len(mean))
        probes = torch.cat([mean.topk(count).indices, scores.topk(count).indices]).unique()
        if not self._refine(scores, probes, sign, torch.arange(0, len(self.radicands), STEP)):
            return None
        best = probes[scores[probes].topk(min(NUM_FIRST, len(probes))).indices]
        if not self._refine(scores, best, sign, None):
            return None
        largest, place = scores[best].max(0)
        # others are likely to have their least bounds where the best has its own
        tightest = int(self._tightest[place])
        near = torch.tensor([tightest - 2, tightest, tightest + 2]).clamp(
            0, len(self.radicands) - 1
        )
        for looked_at, ridges in ((probes, near.unique()), (best, None)):
            is_left = scores >= largest - MARGIN
            is_left[looked_at] = False
            left = torch.nonzero(is_left).squeeze(-1)
            if len(left) and not self._refine(scores, left, sign, ridges):
                return None
        return scores

    def _refine(self, scores: Tensor, arms: Tensor, sign: float, ridges: Tensor | None) -> bool:
        """Lower the numbers of some arms to their bounds; return whether no ends crossed."""
        lower, upper = self.ends(arms, ridges)
        scores[arms] = torch.minimum(scores[arms], upper if sign > 0.0 else -lower)
        return not bool((lower > upper).any())


NUM_FIRST = 4
"""All ridges are looked at for so many of these arms then."""

MARGIN = 1e-6
"""Arms whose numbers are so near the largest bound are looked at, in prior standard deviations."""


fill_in_docstrings(__name__)

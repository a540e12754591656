r"""Posteriors of the same rows at many ridges, from one eigendecomposition.

At ridge ``a``, row ``i`` has the noise variance ``a / w_i``. With ``K`` the covariance of the rows,
``W^(1/2) K W^(1/2) = Q E Q'``, ``f(x) = Q' W^(1/2) k(x)`` and ``g = Q' W^(1/2) y``,

.. math::
   \mu_a(x) = f^\top (E + a)^{-1} g, \qquad
   \sigma_a^2(x) = k(x, x) - f^\top (E + a)^{-1} f, \qquad
   y^\top (K + a W^{-1})^{-1} y = g^\top (E + a)^{-1} g .

**Rows that change.** Eigenvectors of ``n`` rows cost ``n^3`` operations, so they are kept
while few rows change. All rows may fade by a common factor, which multiplies ``E``. Rows that were
added and rows that have left border the system, which one small matrix ``S_a`` for each ridge takes
into account:

.. math::
   H = \bigl( Q^\top W^{1/2} K_{\text{added}}, \; Q_{\text{left}}^\top \bigr), \quad
   C_a = \begin{pmatrix} K_{\text{added}} + a & 0 \\ 0 & 0 \end{pmatrix}, \quad
   S_a = C_a - H^\top (E + a)^{-1} H, \quad
   r_a(x) = \begin{pmatrix} k_{\text{added}}(x) \\ 0 \end{pmatrix} - H^\top (E + a)^{-1} f

and ``f' (E + a)^-1 f + r' S^-1 r`` is what outcomes explain of the variance. The columns of rows
that have left demand that their coefficients be 0, with the entries of the solution as Lagrange
multipliers. (A row of negative weight would do the same, but at small ridges its pivot cancels.)

Source: the inverse of a matrix in two by two blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

FEWEST_KEPT = 256
"""With fewer rows, eigenvectors take less than 4 ms and are computed in every round."""

MOST_CHANGES = 32
"""With more changed rows, eigenvectors are computed again: at 1000 rows and points, a border of 32
costs as much as its share of an eigendecomposition."""

NUM_RIDGES = 48
"""``R``, the size of the grid of ridges."""

KEPT = "eigenvectors of rows"
"""The name under which eigenvectors are kept."""

EQUAL = 1e-12
"""Weights whose ratios differ by less have faded by the same factor."""

SMALLEST_SHARE = 1e-18
"""The share of the prior variance that replaces smaller posterior variances."""

TINY = 1e-300
"""The smallest variance."""

LARGEST_BLOCK = 1 << 23
"""The largest number of values in memory at once, of points times ridges."""


class Ridges:
    """Means and variances at many ridges.

    Args:
        places: ``... x n x c`` numbers that say where the rows are.
        weight: ``... x n``; the noise variance of a row is the ridge over its weight. A row of
            weight 0 does not count.
        outcomes: ``... x n`` outcomes less the prior mean.
        covariance: Maps ``... x n x c`` and ``... x m x c`` places to ``... x n x m`` covariances.
        base_ridge: ``...``; the ridge of the model, which is the last one of the grid.
        kept: Where eigenvectors are kept from round to round, for one prior and rows without a
            batch; None to keep nothing.

    Attributes:
        places: ``... x N x c``; the rows whose covariances with points are needed. They are the
            given ones, unless eigenvectors were kept.
        ridges: ``... x R``.
        fits: ``... x R``; ``y' (K + a W^-1)^-1 y``.
        information_gain: ``...``; ``1/2 ln det(I + W^(1/2) K W^(1/2) / a)`` at the base ridge.
    """

    def __init__(
        self,
        places: Tensor,
        weight: Tensor,
        outcomes: Tensor,
        covariance: Callable[[Tensor, Tensor], Tensor],
        base_ridge: Tensor,
        kept: dict[str, Any] | None = None,
    ) -> None:
        """See the class."""
        basis, change = _basis_of(places, weight, outcomes, covariance, kept)
        self._vectors, values = basis.vectors, change.scale * basis.values  # ... x p
        num_added, self._num_left = change.weight.shape[-1], len(change.left)
        self.places = torch.cat([basis.places, change.places], dim=-2)
        self._root = torch.cat(
            [change.scale * basis.weight, change.weight], dim=-1
        ).sqrt()  # ... x N

        # H' of ... x c x p, and C without ridges of ... x c x c, of added rows and then those left
        among = self._root.unsqueeze(-2)[..., :0, :]  # ... x added x N
        if num_added:
            among = covariance(change.places, self.places) * self._root[-num_added:, None]
        of_added, corner = self._split(among)
        of_left = basis.vectors[..., change.left, :]
        self._cross = torch.cat([of_added, of_left], dim=-2)
        corner = pad(corner, (0, 0, 0, self._num_left))
        # the rows that have left have the weighted variances (Q E Q')_ii
        trace = values.sum(-1) - (of_left.square() * values.unsqueeze(-2)).sum((-1, -2))
        trace = trace + corner.diagonal(dim1=-2, dim2=-1).sum(-1)
        # a geometric grid around the base ridge, up to where the data no longer matter
        base = base_ridge.expand(trace.shape).unsqueeze(-1)
        low, high = 1e-2 * base, 1e2 * (base + trace.unsqueeze(-1))
        steps = torch.linspace(0.0, 1.0, NUM_RIDGES - 1, dtype=base.dtype, device=base.device)
        self.ridges = torch.cat([low * (high / low) ** steps, base], dim=-1)  # ... x R

        # (E + a)^-1 of all ridges, and the inverse of S
        self._shrunk = 1.0 / (values.unsqueeze(-2) + self.ridges.unsqueeze(-1))  # ... x R x p
        whole = self._shrunk.unsqueeze(-2) * self._cross.unsqueeze(-3)  # ... x R x c x p
        self._sizes, self._cross_of_all = whole.shape[-3:-1], whole.flatten(-3, -2)  # ... x R c x p
        schur = self._missed(self._cross, corner)  # ... x R x c x c
        schur.diagonal(dim1=-2, dim2=-1)[..., :num_added] += self.ridges.unsqueeze(-1)
        self._inverse = torch.linalg.inv(schur)

        projected, own = self._split(change.outcomes.unsqueeze(-2))  # ... x 1 x p, ... x 1 x c
        missed = self._missed(projected, own)
        pulled = missed @ self._inverse  # ... x R x 1 x c
        self.fits = (projected.square() * self._shrunk).sum(-1) + (missed * pulled).sum((-1, -2))
        # a mean is covariances times these
        self._coefficients = self._weights(
            projected, pulled.squeeze(-2), self._shrunk
        )  # ... x R x N

        # ln det(I + E / a) + ln |det S|, less one ln a for each row more
        gain = torch.log1p(values / base).sum(-1)
        gain = gain + torch.linalg.slogdet(schur[..., -1, :, :])[1]
        more = num_added - self._num_left
        self.information_gain = 0.5 * (gain - more * base.squeeze(-1).log())

    def moments(self, cross: Tensor) -> tuple[Tensor, Tensor]:
        """Return means, and what outcomes explain of variances, ``... x P x R`` each.

        Args:
            cross: ``... x P x N`` covariances of points with ``places``.
        """
        features, border = self._split(cross)
        explained = features.square() @ self._shrunk.mT
        if border.shape[-1]:  # without rows that came or left, a third of an evaluation is nothing
            missed = self._missed(features, border)
            explained = explained + (missed @ self._inverse * missed).sum(-1).mT
        return cross @ self._coefficients.mT, explained

    def weights(self, cross: Tensor) -> Tensor:
        """Return the numbers whose products with ``cross`` are what outcomes explain.

        Args:
            cross: ``... x P x N`` covariances of points with ``places``.

        Returns:
            ``... x P x N``. Their products with the ``cross`` of any points are what outcomes at
            the base ridge explain of covariances with these points.
        """
        features, border = self._split(cross)
        pulled = (self._missed(features, border) @ self._inverse)[..., -1, :, :]  # ... x P x c
        return self._weights(features, pulled, self._shrunk[..., -1:, :])

    def ends(
        self, cross: Tensor, prior_variance: Tensor, radicand: Tensor, norm: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        r"""Return the tightest lower and upper ends over all ridges, and the base ridge's variance.

        The ends at ridge ``a`` are :math:`\mu_a \pm \sigma_a \sqrt{\rho_a}`, and those at infinity
        :math:`\pm B \sqrt{k(x, x)}`. Ends that cross are both put in the middle.

        Args:
            cross: ``... x P x N`` covariances of points with ``places``; differentiable.
            prior_variance: ``... x P``; differentiable.
            radicand: ``... x R``; a negative one counts as 0.
            norm: ``...``; ``B``.

        Returns:
            Three tensors of shape ``... x P``.
        """
        furthest = norm.unsqueeze(-1) * prior_variance.sqrt()
        spread = radicand.clamp_min(0.0).sqrt()
        at_once = max(1, LARGEST_BLOCK // (spread.numel() * (2 + self._inverse.shape[-1])))
        pairs = zip(cross.split(at_once, -2), prior_variance.split(at_once, -1), strict=True)
        parts = [self._tightest(some, prior, spread) for some, prior in pairs]
        lower, upper, variance = (torch.cat(each, dim=-1) for each in zip(*parts, strict=True))
        lower, upper = torch.maximum(lower, -furthest), torch.minimum(upper, furthest)
        middle = 0.5 * (lower + upper)  # where ends cross, no function fits the data
        return torch.minimum(lower, middle), torch.maximum(upper, middle), variance

    def _tightest(self, cross: Tensor, prior: Tensor, spread: Tensor) -> tuple[Tensor, ...]:
        mean, explained = self.moments(cross)
        prior = prior.unsqueeze(-1)
        # the slope of a root at 0 would be infinite, and 0 times that for ridges without a share
        variance = torch.maximum(prior - explained, (SMALLEST_SHARE * prior).clamp_min(TINY))
        half = variance.sqrt() * spread.unsqueeze(-2)  # ... x P x R
        return (mean - half).amax(-1), (mean + half).amin(-1), variance[..., -1]

    def _split(self, cross: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``f`` and the border's values for ``... x P x N`` covariances, or for outcomes."""
        weighted, p = cross * self._root.unsqueeze(-2), self._vectors.shape[-1]
        return weighted[..., :p] @ self._vectors, pad(weighted[..., p:], (0, self._num_left))

    def _weights(self, features: Tensor, pulled: Tensor, shrunk: Tensor) -> Tensor:
        """Return ``W^(1/2)`` times the solution for ``... x P x p`` features, ``... x P x N``."""
        own = shrunk * (features - pulled @ self._cross)  # ... x P x p
        # rows that have left have no weight beyond that in the basis
        beyond = pulled[..., : pulled.shape[-1] - self._num_left]
        return torch.cat([own @ self._vectors.mT, beyond], dim=-1) * self._root.unsqueeze(-2)

    def _missed(self, features: Tensor, border: Tensor) -> Tensor:
        """Return ``r`` for all ridges, ``... x R x P x c``."""
        known = (features @ self._cross_of_all.mT).unflatten(-1, self._sizes)
        return (border.unsqueeze(-2) - known).transpose(-3, -2)


class _Basis(NamedTuple):
    """Rows with the eigenvectors of their weighted covariance.

    Attributes:
        places: ``... x p x c``; where the rows are.
        weight: ``... x p``; ``W``.
        values: ``... x p``; ``E``, at least 0.
        vectors: ``... x p x p``; ``Q``.
    """

    places: Tensor
    weight: Tensor
    values: Tensor
    vectors: Tensor


class _Change(NamedTuple):
    """How rows differ from those of a basis.

    Attributes:
        scale: The factor by which most weights have been multiplied.
        left: ``r`` numbers of rows of the basis that no longer count.
        places: ``... x d x c``; where weight was added.
        weight: ``... x d``; how much.
        outcomes: ``... x N`` outcomes of the rows of the basis, then of the added ones.
    """

    scale: float
    left: Tensor
    places: Tensor
    weight: Tensor
    outcomes: Tensor

    @classmethod
    def since(
        cls, basis: _Basis, slot: Tensor, places: Tensor, weight: Tensor, outcomes: Tensor
    ) -> _Change:
        """Compare ``n`` rows with those of a basis.

        Args:
            basis: The basis.
            slot: ``n``; the number of each row in the basis, -1 for rows that are not there.
            places: ``n x c``.
            weight: ``n``.
            outcomes: ``n``.
        """
        then, is_known = basis.weight[slot], slot >= 0
        scale = float((weight / then)[is_known].median()) if bool(is_known.any()) else 1.0
        # a row that lost weight leaves and is added again; one that gained is added with its gain
        stays = is_known & (weight > (1.0 - EQUAL) * scale * then)
        extra = torch.where(stays, weight - scale * then, weight)
        added = (extra >= EQUAL * weight).nonzero().squeeze(-1)
        is_left = torch.ones_like(basis.weight, dtype=torch.bool)
        is_left[slot[stays]] = False
        # the coefficients of rows that have left are 0, whatever their outcomes
        known = torch.zeros_like(basis.weight).index_copy(0, slot[stays], outcomes[stays])
        left = is_left.nonzero().squeeze(-1)
        return cls(scale, left, places[added], extra[added], torch.cat([known, outcomes[added]]))


def _basis_of(
    places: Tensor,
    weight: Tensor,
    outcomes: Tensor,
    covariance: Callable[[Tensor, Tensor], Tensor],
    kept: dict[str, Any] | None,
) -> tuple[_Basis, _Change]:
    """Return the eigenbasis of these rows, or of earlier ones and what has changed since."""
    numbers: dict[tuple[bytes, int], int] = {}
    if kept is not None and weight.shape[-1] >= FEWEST_KEPT:
        # a name is the place of a row, and how many rows before it are there
        times: Counter[bytes] = Counter()
        for place in (row.tobytes() for row in places.cpu().numpy()):
            numbers[place, times[place]] = len(numbers)
            times[place] += 1
        if KEPT in kept:
            basis, then = kept[KEPT]
            slot = torch.tensor([then.get(name, -1) for name in numbers], device=weight.device)
            change = _Change.since(basis, slot, places, weight, outcomes)
            if len(change.left) + len(change.weight) <= MOST_CHANGES:
                return basis, change
    root = weight.sqrt()
    matrix = covariance(places, places) * root.unsqueeze(-1) * root.unsqueeze(-2)
    values, vectors = torch.linalg.eigh(matrix)  # rounding makes some values negative
    basis = _Basis(places, weight, values.clamp_min(0.0), vectors)
    if kept is not None and numbers:
        kept[KEPT] = (basis, numbers)
    none = torch.empty(0, dtype=torch.long, device=weight.device)
    return basis, _Change(1.0, none, places[..., :0, :], weight[..., :0], outcomes)

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
multipliers. ``S_a`` is indefinite, but well conditioned once its diagonal is 1 or -1.

Source: the inverse of a matrix in two by two blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

FEWEST_KEPT = 256
"""With fewer rows, eigenvectors take less than 4 ms and are computed in every round."""

MOST_CHANGES = 32
"""With more rows that were added or have left, eigenvectors are computed again: at 1000 rows and
points, a border of 32 costs as much as its share of an eigendecomposition."""

KEPT = "eigenvectors of rows"
"""The name under which eigenvectors are kept."""

EQUAL = 1e-12
"""Weights whose ratios differ by less have faded by the same factor."""

SMALLEST_SHARE = 1e-18
"""The share of the prior variance that replaces smaller posterior variances."""

FIRST = 32
"""Points whose scores are computed first, where the largest is sought."""

LARGEST_BLOCK = 1 << 23
"""The largest number of values in memory at once, of points times ridges."""


@dataclass(frozen=True, eq=False)
class Eigenbasis:
    """Rows with the eigenvectors of their weighted covariance ``W^(1/2) K W^(1/2)``.

    Attributes:
        places: ``... x p x c``; where the rows are.
        weight: ``... x p``; ``W``.
        outcomes: ``... x p``.
        values: ``... x p``; ``E``, at least 0.
        vectors: ``... x p x p``; ``Q``.
    """

    places: Tensor
    weight: Tensor
    outcomes: Tensor
    values: Tensor
    vectors: Tensor

    @classmethod
    def of(
        cls,
        places: Tensor,
        weight: Tensor,
        outcomes: Tensor,
        covariance: Callable[[Tensor, Tensor], Tensor],
    ) -> Eigenbasis:
        """Decompose the weighted covariance of rows; see :class:`Ridges` for the arguments."""
        root = weight.sqrt()
        matrix = covariance(places, places) * root.unsqueeze(-1) * root.unsqueeze(-2)
        values, vectors = torch.linalg.eigh(matrix)  # rounding makes some values negative
        return cls(places, weight, outcomes, values.clamp_min(0.0), vectors)


def faded(values: Tensor, features: Tensor, scale: float, lam: Tensor) -> Tensor:
    r"""Return the rows of a posterior whose observed rows have all faded by a factor.

    With :math:`V = (s / (s E + \lambda))^{1/2} Q^\top W^{1/2} K` and ``z`` the same of outcomes,
    the mean is ``z' V``, and the variance is the prior one minus the sum of the squares of ``V``.

    Args:
        values: ``... x p``; ``E`` of an :class:`Eigenbasis`.
        features: ``... x p x k``; ``Q' W^(1/2)`` times covariances with points, or outcomes.
        scale: ``s``, by which all weights have been multiplied since.
        lam: ``...``; the noise variance of a row of weight 1.

    Returns:
        ``... x p x k``.
    """
    return (scale / (scale * values + lam.unsqueeze(-1))).sqrt().unsqueeze(-1) * features


def ridge_grid(base_ridge: Tensor, trace: Tensor, num_ridges: int) -> Tensor:
    """Return a geometric grid around the base ridge, up to where the data no longer matter.

    Args:
        base_ridge: ``...``; it is the last ridge of the grid.
        trace: ``...``; the trace of ``W^(1/2) K W^(1/2)``.
        num_ridges: The size of the grid.

    Returns:
        ``... x num_ridges``.
    """
    base = base_ridge.expand(trace.shape).unsqueeze(-1)
    if num_ridges == 1:
        return base
    low, high = 1e-2 * base, 1e2 * (base + trace.unsqueeze(-1))
    steps = torch.linspace(0.0, 1.0, num_ridges - 1, dtype=base.dtype, device=base.device)
    return torch.cat([low * (high / low) ** steps, base], dim=-1)


class Ridges:
    """Means and variances at many ridges.

    Args:
        places: ``... x n x c`` numbers that say where the rows are.
        weight: ``... x n``; the noise variance of a row is the ridge over its weight. A row of
            weight 0 does not count.
        outcomes: ``... x n`` outcomes less the prior mean.
        covariance: Maps ``... x n x c`` and ``... x m x c`` places to ``... x n x m`` covariances.
        base_ridge: ``...``; the ridge of the model, which is the last one.
        num_ridges: ``R``, the size of the grid.
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
        num_ridges: int = 48,
        kept: dict[str, Any] | None = None,
    ) -> None:
        """See the class."""
        basis, change = _basis_of(places, weight, outcomes, covariance, kept)
        self._vectors, values = basis.vectors, change.scale * basis.values  # ... x p
        num_added, num_left = len(change.added), len(change.left)
        self._num_left = num_left
        self.places = torch.cat([basis.places, places[..., change.added, :]], dim=-2)
        extra = change.extra.expand(*weight.shape[:-1], num_added)
        self._root = torch.cat([change.scale * basis.weight, extra], dim=-1).sqrt()  # ... x N

        # H' of ... x c x p, and C without ridges of ... x c x c; c = d + r
        among = self._root.unsqueeze(-2)[..., :0, :]  # ... x d x N
        if num_added:
            among = covariance(places[..., change.added, :], self.places)
            among = among * extra.sqrt().unsqueeze(-1)
        of_added, corner = self._split(among)
        of_left = basis.vectors[..., change.left, :]
        cross = torch.cat([of_added, of_left], dim=-2)
        corner = pad(corner, (0, 0, 0, num_left))
        # the rows that have left have the weighted variances (Q E Q')_ii
        trace = values.sum(-1) - (of_left.square() * values.unsqueeze(-2)).sum((-1, -2))
        trace = trace + corner.diagonal(dim1=-2, dim2=-1).sum(-1)
        self.ridges = ridge_grid(base_ridge, trace, num_ridges)
        inverse = 1.0 / (values.unsqueeze(-2) + self.ridges.unsqueeze(-1))  # ... x R x p
        self._shrunk = inverse.mT

        # H' (E + a)^-1 of all ridges in ... x R c x p, and the inverse of S of ... x R x c x c
        whole = inverse.unsqueeze(-2) * cross.unsqueeze(-3)
        self._cross, self._cross_of_all = cross, whole.flatten(-3, -2)  # ... x R c x p
        products = (self._cross_of_all @ cross.mT).unflatten(-2, whole.shape[-3:-1])
        schur = corner.unsqueeze(-3) - products
        diagonal = schur.diagonal(dim1=-2, dim2=-1)
        diagonal[..., :num_added] += self.ridges.unsqueeze(-1)
        unit = diagonal.abs().rsqrt()
        schur = schur * unit.unsqueeze(-1) * unit.unsqueeze(-2)
        self._inverse = torch.linalg.inv(schur) * unit.unsqueeze(-1) * unit.unsqueeze(-2)

        # means are features times the first weights, plus border values times the second
        known = basis.outcomes.index_copy(-1, change.slot, outcomes[..., change.same])
        both = torch.cat([known, outcomes[..., change.added]], dim=-1).unsqueeze(-2)
        projected, own = (each.mT for each in self._split(both))  # ... x p x 1, ... x c x 1
        missed = own - cross @ (self._shrunk * projected)  # ... x c x R
        self._of_border = (self._inverse @ missed.mT.unsqueeze(-1)).squeeze(-1).mT
        self._of_features = self._shrunk * (projected - cross.mT @ self._of_border)  # ... x p x R
        self.fits = (projected.square() * self._shrunk).sum(-2) + (missed * self._of_border).sum(-2)

        # ln det S at the base ridge, for which the diagonal was made 1
        base, unit = self.ridges[..., -1], unit[..., -1, :]
        of_border = torch.linalg.slogdet(schur[..., -1, :, :])[1] - 2.0 * unit.log().sum(-1)
        of_border = of_border - (num_added - num_left) * base.log()
        self.information_gain = 0.5 * (torch.log1p(values / base.unsqueeze(-1)).sum(-1) + of_border)

    def moments(self, cross: Tensor) -> tuple[Tensor, Tensor]:
        """Return means, and what outcomes explain of variances, ``... x P x R`` each.

        Args:
            cross: ``... x P x N`` covariances of points with ``places``.
        """
        return self._moments(*self._split(cross))

    def _moments(self, features: Tensor, border: Tensor) -> tuple[Tensor, Tensor]:
        # r of ... x R x P x c, in one product for all ridges
        known = features @ self._cross_of_all.mT
        missed = border.unsqueeze(-2) - known.unflatten(-1, self._inverse.shape[-3:-1])
        missed = missed.transpose(-3, -2)
        explained = features.square() @ self._shrunk
        explained = explained + ((missed @ self._inverse) * missed).sum(-1).mT
        return features @ self._of_features + border @ self._of_border, explained

    def ends(
        self, cross: Tensor, prior_variance: Tensor, radicand: Tensor, norm: Tensor
    ) -> tuple[Tensor, Tensor]:
        r"""Return the tightest lower and upper ends over all ridges.

        The ends at ridge ``a`` are :math:`\mu_a \pm \sigma_a \sqrt{\rho_a}`, and those at infinity
        :math:`\pm B \sqrt{k(x, x)}`. Ends that cross are both put in the middle.

        Args:
            cross: ``... x P x N`` covariances of points with ``places``; differentiable, once.
            prior_variance: ``... x P``; differentiable.
            radicand: ``... x R``; a negative one counts as 0.
            norm: ``...``; ``B``.

        Returns:
            Two tensors of shape ``... x P``.
        """
        furthest = norm.unsqueeze(-1) * prior_variance.sqrt()
        if self.places.shape[-2] == 0:
            return -furthest, furthest
        spread = radicand.clamp_min(0.0).sqrt()
        at_once = max(1, LARGEST_BLOCK // (spread.numel() * (2 + self._inverse.shape[-1])))
        pairs = zip(cross.split(at_once, -2), prior_variance.split(at_once, -1), strict=True)
        parts = [_Tightest.apply(some, prior, spread, self) for some, prior in pairs]
        lower, upper = (torch.cat(each, dim=-1) for each in zip(*parts, strict=True))
        lower, upper = torch.maximum(lower, -furthest), torch.minimum(upper, furthest)
        if bool((lower > upper).any()):  # no function fits the data
            middle = 0.5 * (lower + upper)
            lower, upper = torch.minimum(lower, middle), torch.maximum(upper, middle)
        return lower, upper

    def _split(self, cross: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``f`` and the border's values for ``... x P x N`` covariances or outcomes."""
        weighted, p = cross * self._root.unsqueeze(-2), self._vectors.shape[-1]
        return weighted[..., :p] @ self._vectors, pad(weighted[..., p:], (0, self._num_left))


class _Tightest(torch.autograd.Function):
    """The ends over the grid: slopes are those at the tightest ridge, so that others need none."""

    @staticmethod
    def forward(
        ctx: Any, cross: Tensor, prior: Tensor, spread: Tensor, ridges: Ridges
    ) -> tuple[Tensor, Tensor]:
        features, border = ridges._split(cross)
        mean, explained = ridges._moments(features, border)
        smallest = SMALLEST_SHARE * prior.unsqueeze(-1)
        deviation = torch.maximum(prior.unsqueeze(-1) - explained, smallest).sqrt()
        half = deviation * spread.unsqueeze(-2)  # ... x P x R
        (lower, lowest), (upper, highest) = (mean - half).max(-1), (mean + half).min(-1)
        ctx.ridges, ctx.smallest = ridges, smallest.sqrt()
        ctx.save_for_backward(features, border, spread, deviation, lowest, highest)
        ctx.set_materialize_grads(False)  # an end that nobody uses costs nothing
        return lower, upper

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor | None) -> tuple[Tensor | None, ...]:
        features, border, spread, deviation, *tightest = ctx.saved_tensors
        ridges: Ridges = ctx.ridges
        slope = features.new_zeros(*features.shape[:-1], ridges._root.shape[-1])
        slope_of_prior = torch.zeros_like(features[..., 0])
        num_added = border.shape[-1] - ridges._num_left
        for side, number, share in zip((-1.0, 1.0), tightest, outer, strict=True):
            if share is None:
                continue
            at = number.unsqueeze(-1)  # ... x P x 1
            of_features, of_border, shrunk = (
                each.mT.take_along_dim(at, -2)  # ... x P x p or c
                for each in (ridges._of_features, ridges._of_border, ridges._shrunk)
            )
            # r = b - H' (E + a)^-1 f and u = S^-1 r; half the slope of the explained variance in f
            # is (E + a)^-1 (f - H u), and that in the border's values is u
            missed = border - (features * shrunk) @ ridges._cross.mT
            inverse = ridges._inverse.take_along_dim(at.unsqueeze(-1), -3)  # ... x P x c x c
            pulled = (inverse @ missed.unsqueeze(-1)).squeeze(-1)
            own = deviation.take_along_dim(at, -1)
            factor = side * spread.unsqueeze(-2).take_along_dim(at, -1) / own
            factor = torch.where(own > ctx.smallest, factor, 0.0)
            of_features = of_features - factor * shrunk * (features - pulled @ ridges._cross)
            of_border = (of_border - factor * pulled)[..., :num_added]
            whole = torch.cat([of_features @ ridges._vectors.mT, of_border], dim=-1)
            slope = slope + share.unsqueeze(-1) * whole * ridges._root.unsqueeze(-2)
            slope_of_prior = slope_of_prior + 0.5 * share * factor.squeeze(-1)
        return slope, slope_of_prior, None, None


def largest_first(scores: Tensor, exact: Callable[[Tensor], Tensor], margin: float) -> Tensor:
    """Replace upper bounds on scores by scores, as long as one of the others may be the largest.

    Args:
        scores: ``A`` upper bounds on scores.
        exact: Maps the numbers of some of them to their scores.
        margin: Bounds this close to the largest score are replaced, too.

    Returns:
        ``A`` numbers: one that is not a score is below the largest score by more than the margin.
    """
    scores, is_left = scores.clone(), torch.ones_like(scores, dtype=torch.bool)
    first = scores.topk(min(FIRST, len(scores))).indices
    scores[first], is_left[first] = exact(first), False
    others = (is_left & (scores >= scores[first].max() - margin)).nonzero().squeeze(-1)
    if len(others):
        scores[others] = exact(others)
    return scores


class _Change(NamedTuple):
    """How rows differ from those of an eigenbasis.

    Attributes:
        scale: The factor by which most weights have been multiplied.
        same: ``k`` numbers of rows that are in the basis.
        slot: ``k``; their numbers in the basis.
        left: ``r`` rows of the basis that no longer count.
        added: ``d`` numbers of rows that count beyond that.
        extra: ``d``; with what weight.
    """

    scale: float
    same: Tensor
    slot: Tensor
    left: Tensor
    added: Tensor
    extra: Tensor

    @classmethod
    def none(cls, weight: Tensor) -> _Change:
        """Return that the rows are those of the basis."""
        every = torch.arange(weight.shape[-1], device=weight.device)
        return cls(1.0, every, every, every[:0], every[:0], weight.new_empty(0))

    @classmethod
    def of(cls, then: Tensor, numbers: dict[Any, int], names: list[Any], weight: Tensor) -> _Change:
        """Compare weighted rows with those of a basis.

        Args:
            then: ``p`` weights of the basis.
            numbers: The number of each of its rows, by name.
            names: ``n`` names of the rows now.
            weight: ``n`` weights now.
        """
        slot = torch.tensor([numbers.get(name, -1) for name in names], device=weight.device)
        same = (slot >= 0).nonzero().squeeze(-1)
        ratio = weight[same] / then[slot[same]]
        scale = float(ratio.median()) if len(same) else 1.0
        # a row that lost weight leaves and is added again; one that gained is added with its gain
        same = same[ratio > (1.0 - EQUAL) * scale]
        slot, extra = slot[same], weight.clone()
        extra[same] -= scale * then[slot]
        extra[extra < EQUAL * weight] = 0.0
        # what is not found again has left
        is_left = torch.ones_like(then, dtype=torch.bool)
        is_left[slot] = False
        left, added = is_left.nonzero().squeeze(-1), extra.nonzero().squeeze(-1)
        return cls(scale, same, slot, left, added, extra[added])


def _basis_of(
    places: Tensor,
    weight: Tensor,
    outcomes: Tensor,
    covariance: Callable[[Tensor, Tensor], Tensor],
    kept: dict[str, Any] | None,
) -> tuple[Eigenbasis, _Change]:
    """Return the eigenbasis of these rows, or of earlier ones and what has changed since."""
    if kept is None or weight.shape[-1] < FEWEST_KEPT:
        return Eigenbasis.of(places, weight, outcomes, covariance), _Change.none(weight)
    # a name is the place of a row, and how many rows before it are there
    times: Counter[bytes] = Counter()
    names = []
    for place in (row.tobytes() for row in places.cpu().numpy()):
        names.append((place, times[place]))
        times[place] += 1
    if KEPT in kept:
        basis, numbers = kept[KEPT]
        change = _Change.of(basis.weight, numbers, names, weight)
        if len(change.left) + len(change.added) <= MOST_CHANGES:
            return basis, change
    basis = Eigenbasis.of(places, weight, outcomes, covariance)
    kept[KEPT] = (basis, {name: i for i, name in enumerate(names)})
    return basis, _Change.none(weight)

r"""The eigenvectors of a kernel matrix that grows row by row, reused for most of the rows.

With :math:`K_{11} = Q \Lambda Q^\top` of the first rows and :math:`Z = Q^\top K_{12}`, for every
ridge ``a``

.. math::
   S_a = K_{22} + a I - Z^\top (\Lambda + a I)^{-1} Z

is the Schur complement of the last rows, and with :math:`f = Q^\top k_1(x)`,
:math:`r_a = k_2(x) - Z^\top (\Lambda + a I)^{-1} f`,

.. math::
   k(x)^\top (K + a I)^{-1} k(x) = f^\top (\Lambda + a I)^{-1} f + r_a^\top S_a^{-1} r_a.

The eigenvectors of the first rows and a small factorization for each ridge thus serve all ridges.
The basis is recomputed after every 16 rows, which depends only on the rows: a loop rebuilt from its
history has the same basis.

**Rows that have left.** Rows ``R`` of the basis that have since left a window are removed from it
as in :mod:`botorch_bandits.confidence.changed_basis`. With :math:`G^\top = (-Q_R^\top, Z)`, the
same formulas hold with the rows of one triangular matrix

.. math::
   L_a L_a^\top = \begin{pmatrix} Q_R (\Lambda + a I)^{-1} Q_R^\top & \cdot \\ \cdot & S_a + \ldots
   \end{pmatrix}

where the rows of ``R`` count with a negative sign. **Rows that fade** by a common factor keep the
eigenvectors: the factor of their weights multiplies the eigenvalues.

Source: the inverse of a matrix in two by two blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

FEWEST_KEPT_ROWS = 256
"""With fewer rows the eigenvectors are computed in every round, at a cost of a few milliseconds."""

STRIDE = 16
"""The number of rows after which the basis is recomputed."""

_NAME = "eigenvectors of the first rows"


class Spectrum(NamedTuple):
    """Eigenvectors of the rows of a basis.

    Attributes:
        points: The rows, with their weights, used to check whether they are the same.
        eigenvalues: ``n_1``, at prior variance 1.
        eigenvectors: ``n_1 x n_1``.
    """

    points: Tensor
    eigenvalues: Tensor
    eigenvectors: Tensor


@dataclass(frozen=True, eq=False)
class Fading:
    """The development of the weights of rows that all fade by a common factor.

    Attributes:
        memo: The store that keeps the eigenvectors from round to round.
        then: A function from a number of first rows to their weights in the round after the last of
            them, and to the factor by which these have been multiplied since.
    """

    memo: dict[str, Any]
    then: Callable[[int], tuple[Tensor, float]]


@dataclass(frozen=True, eq=False)
class Border:
    """The changes at each ridge due to rows that have left the basis and rows that have been added.

    Attributes:
        num_rows: The number of added rows, ``d``.
        cross: ``G^T``, ``n_1 x (r + d)``, of ``r`` rows that have left and the added rows.
        roots: ``num_ridges x (r + d) x (r + d)``; the inverses of the triangular matrices.
        from_features: ``(num_ridges (r + d)) x n_1``; what is subtracted from the whitened rows.
        mean_weights: ``d x num_ridges``.
    """

    num_rows: int
    cross: Tensor
    roots: Tensor
    from_features: Tensor
    mean_weights: Tensor

    @property
    def num_left(self) -> int:
        """``r``."""
        return self.cross.shape[-1] - self.num_rows

    def whiten(self, features: Tensor, last: Tensor) -> Tensor:
        """Return the whitened rows, ``p x num_ridges x (r + d)``.

        Args:
            features: ``p x n_1``, ``f``.
            last: ``p x d`` kernel values with the added rows.
        """
        of_last = self.roots[..., self.num_left :].reshape(-1, self.num_rows)
        both = last @ of_last.mT - features @ self.from_features.mT
        return both.reshape(*features.shape[:-1], -1, self.cross.shape[-1])

    def explained(self, whitened: Tensor) -> Tensor:
        """Return how much lower variances are than under the basis, ``p x num_ridges``.

        Args:
            whitened: The result of :meth:`whiten`.
        """
        squares = whitened.square()
        if self.num_left == 0:
            return squares.sum(-1)
        left, came = squares.split([self.num_left, self.num_rows], dim=-1)
        return came.sum(-1) - left.sum(-1)

    def unwhiten(self, whitened: Tensor, ridge: Tensor) -> Tensor:
        """Return the factor of the slope of the explained variance, ``p x (r + d)``.

        Args:
            whitened: ``p x (r + d)``.
            ridge: ``p``, the number of the ridge at each point.
        """
        return ((whitened * self.signs).unsqueeze(-2) @ self.roots[ridge]).squeeze(-2)

    @property
    def signs(self) -> Tensor:
        """``r + d``; -1 for rows that have left."""
        signs = self.cross.new_ones(self.cross.shape[-1])
        signs[: self.num_left] = -1.0
        return signs


class Solved(NamedTuple):
    """The quantities that follow from the outcomes at each ridge.

    Attributes:
        fits: ``num_ridges``; ``y' (K + a I)^-1 y``.
        log_determinant: ``ln det(K + a I)`` at the last ridge.
        mean_weights: ``n_1 x num_ridges``.
        variance_weights: ``n_1 x num_ridges``; the inverse of ``Lambda + a I``.
        border: The changes due to other rows; None if there are none.
    """

    fits: Tensor
    log_determinant: Tensor
    mean_weights: Tensor
    variance_weights: Tensor
    border: Border | None


@dataclass(frozen=True, eq=False)
class BorderedBasis:
    """A kernel matrix, represented by the eigenvectors of some current and some former rows.

    Attributes:
        eigenvalues: ``n_1``.
        eigenvectors: ``n_1 x n_1``; the rows that have left come first.
        num_left: The number of rows that have left.
        cross: ``Z``, ``n_1 x n_2``.
        block: ``n_2 x n_2``.
    """

    eigenvalues: Tensor
    eigenvectors: Tensor
    num_left: int
    cross: Tensor
    block: Tensor

    @classmethod
    def of(cls, growing: Any, weight: float, fading: Fading | None = None) -> BorderedBasis:
        """Return the basis of a model's rows.

        Args:
            growing: The model's closed form, which keeps the eigenvectors.
            weight: The factor that multiplies all rows, in addition to their own weights.
            fading: The fading of their own weights, if they have any; it keeps the eigenvectors.
        """
        num_rows, scale = growing.num_rows, weight**2 / growing.outputscale
        num_deleted = 0 if growing.deleted is None else len(growing.deleted)
        # numbers of rows include those that have left since the model's factor was computed
        last = (num_deleted + num_rows) // STRIDE * STRIDE
        start = max(0, last - num_rows)  # a basis has up to 15 rows fewer than the model
        num_left, first = num_deleted - start, last - num_deleted
        points, since, memo = growing.points[:first], 1.0, growing.memo
        if num_left:
            points = torch.cat([growing.deleted[start:], points])
        if fading is not None:
            weights, since = fading.then(first)
            points, memo = points.clone(), fading.memo
            points[:, -1] = weights.sqrt()
        spectrum = _spectrum(growing, points, memo)
        values, vectors = spectrum.eigenvalues * (weight**2 * since), spectrum.eigenvectors
        if first == num_rows:
            nothing = vectors.new_zeros(len(points), 0)
            return cls(values, vectors, num_left, nothing, vectors.new_zeros(0, 0))
        cross, block = growing.prior_covariance(first, num_rows)
        return cls(
            values, vectors, num_left, vectors[num_left:].mT @ (scale * cross).mT, scale * block
        )

    @property
    def trace(self) -> Tensor:
        """The trace of the kernel matrix."""
        known = self.eigenvalues.sum() + self.block.trace()
        if self.num_left == 0:
            return known
        return known - (self.eigenvectors[: self.num_left].square() @ self.eigenvalues).sum()

    def solve(self, ridges: Tensor, outcomes: Tensor) -> Solved:
        """Return the quantities that follow from outcomes.

        Args:
            ridges: ``num_ridges`` positive numbers.
            outcomes: ``n``.
        """
        num_came, r = self.cross.shape[-1], self.num_left
        first = len(outcomes) - num_came
        projected = outcomes[:first] @ self.eigenvectors[r:]
        shrunk = 1.0 / (self.eigenvalues.unsqueeze(-1) + ridges)
        fits = projected.square() @ shrunk
        log_determinant = -shrunk[:, -1].log().sum()
        if r + num_came == 0:
            weights = projected.unsqueeze(-1) * shrunk
            return Solved(fits, log_determinant, weights, shrunk, None)
        whole = torch.cat([-self.eigenvectors[:r].mT, self.cross], dim=-1)
        shrunk_cross = whole.mT * shrunk.mT.unsqueeze(-2)  # num_ridges x (r + d) x n_1
        factor = _triangles(shrunk_cross @ whole, r, self.block, ridges)
        identity = torch.eye(r + num_came, dtype=factor.dtype, device=factor.device)
        roots = torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
        known = torch.cat([outcomes.new_zeros(r), outcomes[first:]]) - shrunk_cross @ projected
        misses = (roots @ known.unsqueeze(-1)).squeeze(-1)
        border = Border(num_came, whole, roots, (roots @ shrunk_cross).flatten(0, 1), misses[:0])
        signed = misses * border.signs
        weights = (signed.unsqueeze(-2) @ roots).squeeze(-2).mT  # (r + d) x num_ridges
        return Solved(
            fits + (signed * misses).sum(-1),
            log_determinant + 2.0 * factor[-1].diagonal().log().sum(),
            shrunk * (projected.unsqueeze(-1) - whole @ weights),
            shrunk,
            replace(border, mean_weights=weights[r:]),
        )


def _triangles(products: Tensor, num_left: int, block: Tensor, ridges: Tensor) -> Tensor:
    """Return the triangular matrices of all ridges, ``num_ridges x (r + d) x (r + d)``.

    Args:
        products: ``G (Lambda + a I)^-1 G^T`` for all ridges, of the same shape.
        num_left: ``r``.
        block: ``d x d`` kernel values among the added rows.
        ridges: ``num_ridges``.
    """
    r = num_left
    came = block - products[:, r:, r:]
    came.diagonal(dim1=-2, dim2=-1).add_(ridges.unsqueeze(-1))
    if r == 0:
        return torch.linalg.cholesky(came)
    factor = torch.zeros_like(products)
    factor[:, :r, :r] = torch.linalg.cholesky(products[:, :r, :r])
    half = torch.linalg.solve_triangular(
        factor[:, :r, :r], products[:, :r, r:].contiguous(), upper=False
    )
    if came.shape[-1]:
        factor[:, r:, :r] = half.mT
        factor[:, r:, r:] = torch.linalg.cholesky(came + half.mT @ half)
    return factor


def _spectrum(growing: Any, points: Tensor, memo: dict[str, Any]) -> Spectrum:
    """Return the eigenvectors of some rows, kept or computed."""
    known = memo.get(_NAME)
    if known is not None and torch.equal(known.points, points):
        kept: Spectrum = known
        return kept
    _, matrix = growing.prior_covariance(0, len(points), points)
    values, vectors = torch.linalg.eigh(matrix / growing.outputscale)
    memo[_NAME] = found = Spectrum(points, values.clamp_min(0.0), vectors)
    return found

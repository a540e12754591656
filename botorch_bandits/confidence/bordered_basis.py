r"""The eigenvectors of a kernel matrix that grows by rows, kept for most of them.

With :math:`K_{11} = Q \Lambda Q^\top` of the first rows and :math:`Z = Q^\top K_{12}`, for every
ridge ``a``

.. math::
   S_a = K_{22} + a I - Z^\top (\Lambda + a I)^{-1} Z

is what is left of the last rows, and with :math:`f = Q^\top k_1(x)`,
:math:`r_a = k_2(x) - Z^\top (\Lambda + a I)^{-1} f`,

.. math::
   k(x)^\top (K + a I)^{-1} k(x) = f^\top (\Lambda + a I)^{-1} f + r_a^\top S_a^{-1} r_a.

So all ridges are served by the eigenvectors of the first rows and a small factorization for each. A
basis is computed anew after every 16 rows, a number that depends on the rows alone: a loop that is
built again from its history has the same one.

Source: the inverse of a matrix in two by two blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from botorch_bandits.docstrings import fill_in_docstrings

FEWEST_KEPT_ROWS = 256
"""With fewer rows the eigenvectors are computed in every round, at a cost of a few milliseconds."""

STRIDE = 16
"""After so many rows a basis is computed anew."""

_NAME = "eigenvectors of the first rows"


class Spectrum(NamedTuple):
    """Eigenvectors of the first rows.

    Attributes:
        points: The rows, to tell whether they are the same.
        eigenvalues: ``n_1``, at prior variance 1.
        eigenvectors: ``n_1 x n_1``.
    """

    points: Tensor
    eigenvalues: Tensor
    eigenvectors: Tensor


@dataclass(frozen=True, eq=False)
class Border:
    """What the last rows add at each ridge.

    Attributes:
        cross: ``Z``, ``n_1 x n_2``.
        roots: ``num_ridges x n_2 x n_2``; the inverse Cholesky factors of ``S_a``.
        from_features: ``(num_ridges n_2) x n_1``; what is taken off the whitened last rows.
        mean_weights: ``n_2 x num_ridges``.
    """

    cross: Tensor
    roots: Tensor
    from_features: Tensor
    mean_weights: Tensor

    @property
    def num_rows(self) -> int:
        """``n_2``."""
        return self.cross.shape[-1]

    def whiten(self, features: Tensor, last: Tensor) -> Tensor:
        """Return ``S_a^-1/2 r_a``, ``p x num_ridges x n_2``.

        Args:
            features: ``p x n_1``, ``f``.
            last: ``p x n_2`` kernel values with the last rows.
        """
        count = self.num_rows
        both = last @ self.roots.reshape(-1, count).mT - features @ self.from_features.mT
        return both.reshape(*features.shape[:-1], -1, count)

    def unwhiten(self, whitened: Tensor, ridge: Tensor) -> Tensor:
        """Return ``S_a^-1 r_a`` for one ridge a point, ``p x n_2``.

        Args:
            whitened: ``p x n_2``.
            ridge: ``p``; which ridge.
        """
        return (whitened.unsqueeze(-2) @ self.roots[ridge]).squeeze(-2)


class Solved(NamedTuple):
    """What follows from the outcomes at each ridge.

    Attributes:
        fits: ``num_ridges``; ``y' (K + a I)^-1 y``.
        log_determinant: ``ln det(K + a I)`` at the last ridge.
        mean_weights: ``n_1 x num_ridges``.
        variance_weights: ``n_1 x num_ridges``; the inverse of ``Lambda + a I``.
        border: What the last rows add; None if there are none.
    """

    fits: Tensor
    log_determinant: Tensor
    mean_weights: Tensor
    variance_weights: Tensor
    border: Border | None


@dataclass(frozen=True, eq=False)
class BorderedBasis:
    """A kernel matrix by the eigenvectors of its first rows.

    Attributes:
        eigenvalues: ``n_1``.
        eigenvectors: ``n_1 x n_1``.
        cross: ``Z``, ``n_1 x n_2``.
        block: ``n_2 x n_2``.
    """

    eigenvalues: Tensor
    eigenvectors: Tensor
    cross: Tensor
    block: Tensor

    @classmethod
    def of(cls, growing: Any, weight: float) -> BorderedBasis:
        """Return that of a model's rows.

        Args:
            growing: The model's closed form, which keeps the eigenvectors.
            weight: What all rows are multiplied with.
        """
        num_rows, scale = growing.num_rows, weight**2 / growing.outputscale
        first = num_rows // STRIDE * STRIDE
        spectrum = _spectrum(growing, first)
        values, vectors = spectrum.eigenvalues * weight**2, spectrum.eigenvectors
        if first == num_rows:
            nothing = vectors.new_zeros(first, 0)
            return cls(values, vectors, nothing, vectors.new_zeros(0, 0))
        cross, block = growing.prior_covariance(first, num_rows)
        return cls(values, vectors, vectors.mT @ (scale * cross).mT, scale * block)

    @property
    def trace(self) -> Tensor:
        """Of the kernel matrix."""
        return self.eigenvalues.sum() + self.block.trace()

    def solve(self, ridges: Tensor, outcomes: Tensor) -> Solved:
        """Return what follows from outcomes.

        Args:
            ridges: ``num_ridges`` positive numbers.
            outcomes: ``n``.
        """
        first = len(self.eigenvalues)
        projected = outcomes[:first] @ self.eigenvectors
        shrunk = 1.0 / (self.eigenvalues.unsqueeze(-1) + ridges)
        fits = projected.square() @ shrunk
        log_determinant = -shrunk[:, -1].log().sum()
        if self.cross.shape[-1] == 0:
            weights = projected.unsqueeze(-1) * shrunk
            return Solved(fits, log_determinant, weights, shrunk, None)
        shrunk_cross = self.cross.mT * shrunk.mT.unsqueeze(-2)  # num_ridges x n_2 x n_1
        left = self.block - shrunk_cross @ self.cross
        left.diagonal(dim1=-2, dim2=-1).add_(ridges.unsqueeze(-1))
        factor = torch.linalg.cholesky(left)
        identity = torch.eye(left.shape[-1], dtype=left.dtype, device=left.device)
        roots = torch.linalg.solve_triangular(factor, identity.expand_as(left), upper=False)
        misses = (roots @ (outcomes[first:] - shrunk_cross @ projected).unsqueeze(-1)).squeeze(-1)
        last = (misses.unsqueeze(-2) @ roots).squeeze(-2).mT  # n_2 x num_ridges
        border = Border(self.cross, roots, (roots @ shrunk_cross).flatten(0, 1), last)
        return Solved(
            fits + misses.square().sum(-1),
            log_determinant + 2.0 * factor[-1].diagonal().log().sum(),
            shrunk * (projected.unsqueeze(-1) - self.cross @ last),
            shrunk,
            border,
        )


def _spectrum(growing: Any, first: int) -> Spectrum:
    """Return the eigenvectors of the first rows, kept or computed."""
    points, known = growing.points[:first], growing.memo.get(_NAME)
    if known is not None and torch.equal(known.points, points):
        kept: Spectrum = known
        return kept
    _, matrix = growing.prior_covariance(0, first)
    values, vectors = torch.linalg.eigh(matrix / growing.outputscale)
    growing.memo[_NAME] = found = Spectrum(points, values.clamp_min(0.0), vectors)
    return found


fill_in_docstrings(__name__)

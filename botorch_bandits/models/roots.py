"""Roots of covariances that may be singular to rounding.

Exact draws multiply them by normal numbers.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf
from torch import Tensor


def cholesky(matrix: NDArray[np.float64]) -> Tensor:
    """Return a lower Cholesky factor, of a matrix raised as little as rounding errors require.

    Args:
        matrix: Symmetric, positive semi-definite up to rounding.
    """
    own = torch.from_numpy(matrix)
    factor, info = torch.linalg.cholesky_ex(own)
    share = 1e-14
    while int(info) != 0:
        raised = own.clone()
        raised.diagonal().add_(share * float(own.diagonal().abs().max()))
        factor, info = torch.linalg.cholesky_ex(raised)
        share *= 10.0
    return factor


def root_of(covariance: Tensor) -> Tensor:
    """Return a matrix ``A`` whose product ``A A'`` is a covariance, up to rounding.

    Covariances of smooth kernels are singular up to rounding. If a Cholesky factorization fails, a
    pivoted one stops at the rank, on the CPU, so that draws from one seed do not depend on the
    device; in a batch, eigenvectors are used instead. There is no jitter.

    Args:
        covariance: ``batch_shape x n x n``, positive semi-definite.

    Returns:
        ``batch_shape x n x r`` with ``r`` at most ``n``.
    """
    root, info = torch.linalg.cholesky_ex(covariance)
    if not bool(info.any()):
        return root
    if covariance.dim() > 2:
        eigenvalues, eigenvectors = torch.linalg.eigh(covariance)
        return eigenvectors * eigenvalues.clamp_min(0.0).sqrt().unsqueeze(-2)
    # LAPACK stops by itself when only rounding errors of the largest variance are left
    factor, pivots, rank, _ = dpstrf(covariance.detach().cpu().numpy(), lower=1)
    root = torch.zeros(len(factor), rank, dtype=covariance.dtype)
    root[torch.from_numpy(pivots).long() - 1] = torch.from_numpy(np.tril(factor[:, :rank]))
    return root.to(covariance.device)

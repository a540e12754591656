"""Kernel copies, Gram matrices and their square roots."""

from __future__ import annotations

import copy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

# A Gram matrix of a valid kernel has eigenvalues >= 0 up to rounding. One this
# far below zero, relative to the largest, is not rounding.
_INDEFINITE_TOLERANCE = 1e-6


def frozen_double_copy(kernel: Kernel, device: torch.device) -> Kernel:
    """Return a private float64 copy of a kernel whose parameters need no gradient.

    A copy, because a problem's true function must not move when the caller
    goes on to fit the kernel that was passed in.

    Args:
        kernel: Any GPyTorch kernel with a single output and no batch shape.
        device: The device of the copy.

    Raises:
        TypeError: If ``kernel`` is not a GPyTorch kernel.
        ValueError: If the kernel is batched.
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"kernel must be a gpytorch.kernels.Kernel, got {type(kernel).__name__}; "
            "pass e.g. gpytorch.kernels.RBFKernel()."
        )
    if len(kernel.batch_shape) > 0:
        raise ValueError(
            f"kernel must not be batched, got batch shape {tuple(kernel.batch_shape)}; "
            "pass one kernel for one problem."
        )
    duplicate = copy.deepcopy(kernel).to(device=device, dtype=torch.float64)
    return duplicate.requires_grad_(False).eval()


def cross_covariance(kernel: Kernel, left: Tensor, right: Tensor) -> Tensor:
    """Return the dense matrix ``k(left_i, right_j)``.

    Args:
        kernel: A kernel from ``frozen_double_copy``.
        left: Points, ``n x d``.
        right: Points, ``m x d``.

    Returns:
        The covariances, ``n x m``.

    Raises:
        ValueError: If the kernel does not accept points with d columns, or gives
            something other than one finite number for a pair of points.
    """
    dim = left.shape[-1]
    try:
        matrix: Tensor = kernel(left, right).to_dense()
    except RuntimeError as error:
        raise ValueError(
            f"kernel ({type(kernel).__name__}) cannot be evaluated on points with {dim} "
            f"columns; check its ard_num_dims and active_dims. GPyTorch said: {error}"
        ) from error
    if matrix.shape != (left.shape[0], right.shape[0]):
        raise ValueError(
            f"kernel ({type(kernel).__name__}) gave a matrix of shape {tuple(matrix.shape)} "
            f"for {left.shape[0]} and {right.shape[0]} points; pass a kernel with one output "
            "(no multitask or gradient kernel)."
        )
    if not bool(torch.isfinite(matrix.detach()).all()):
        raise ValueError(
            f"kernel ({type(kernel).__name__}) gave NaN or infinite covariances; "
            "check its hyperparameters."
        )
    return matrix


def gram_matrix(kernel: Kernel, points: Tensor) -> Tensor:
    """Return the symmetric Gram matrix ``k(points_i, points_j)``, ``n x n``, without gradient."""
    with torch.no_grad():
        matrix = cross_covariance(kernel, points, points)
        return 0.5 * (matrix + matrix.mT)


def clamped_eigh(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues, clamped at 0, and eigenvectors of a Gram matrix.

    Smooth kernels give Gram matrices whose numerical rank is far below their
    size. Cholesky fails on those; an eigendecomposition does not.

    Args:
        gram: A symmetric matrix, ``n x n``.

    Returns:
        Eigenvalues ``(n,)``, ascending and >= 0, and eigenvectors as columns, ``n x n``.

    Raises:
        ValueError: If an eigenvalue is negative by more than rounding.
    """
    eigenvalues, eigenvectors = torch.linalg.eigh(gram)
    smallest, largest = eigenvalues[0].item(), eigenvalues[-1].item()
    if smallest < -_INDEFINITE_TOLERANCE * max(largest, 0.0):
        raise ValueError(
            f"kernel is not positive semi-definite on choices: the Gram matrix has "
            f"eigenvalues from {smallest} to {largest}; pass a valid covariance function."
        )
    return eigenvalues.clamp_min(0.0), eigenvectors

r"""Information gain: how much the observed inputs tell about the reward function.

.. math:: I(X) = \tfrac12 \ln\det(I + K / \lambda)
           = \tfrac12 \sum_s \ln(1 + \sigma_{s-1}^2(x_s) / \lambda)

in nats, with the same regularisation ``lam`` as the posterior. The realised gain of the inputs
in the posterior may stand for the maximal gain in the widths of Chowdhury and Gopalan 2017
(Theorem 2): it is never larger, and free from a Cholesky factor.
"""

from __future__ import annotations

import torch
from botorch.exceptions.errors import ModelFittingError
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from botorch_bandits.checks import check_double


def realized_information_gain(kernel_matrix: Tensor, lam: Tensor | float) -> Tensor:
    r"""Return ``1/2 ln det(I + K / lam)`` of the inputs in the posterior.

    Source: Srinivas et al. 2010, section 2 and Lemma 5.3. Rows count as often as they occur.

    Args:
        kernel_matrix: ``batch_shape x n x n``, float64; ``n = 0`` has gain 0.
        lam: The modelled noise variance in the kernel's units; scalar or ``batch_shape``.

    Returns:
        A ``batch_shape`` float64 tensor, in nats.

    Raises:
        TypeError: If ``kernel_matrix`` is not float64.
        ValueError: If ``lam`` is not positive.
        ModelFittingError: If the matrix is not positive semi-definite.

    Example:
        >>> K = torch.ones(2, 2, dtype=torch.float64)
        >>> torch.isclose(realized_information_gain(K, 0.5), torch.tensor(5.0).double().log() / 2)
        tensor(True)
    """
    check_double("kernel_matrix", kernel_matrix)
    lam = torch.as_tensor(lam, dtype=kernel_matrix.dtype, device=kernel_matrix.device)
    if not (lam > 0).all():
        raise ValueError(f"lam is {lam.tolist()}; it is a noise variance and must be positive.")
    scaled = kernel_matrix / lam[..., None, None]
    scaled = scaled + torch.eye(scaled.shape[-1], dtype=scaled.dtype, device=scaled.device)
    if scaled.shape[-1] == 0:
        return scaled.new_zeros(scaled.shape[:-2])
    try:
        factor = psd_safe_cholesky(scaled)
    except NotPSDError as error:
        raise ModelFittingError(
            "I + K / lam of the observed inputs is not positive definite, so the information "
            f"gain does not exist. The kernel is not positive semi-definite, or lam = "
            f"{lam.tolist()} is too small for float64."
        ) from error
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1).clamp_min(0.0)

r"""The exact posterior on a finite set of arms, updated one observation at a time.

.. math::
   \mu \leftarrow \mu + \frac{y - \mu_i}{v_i + \lambda} s_i, \qquad
   S \leftarrow S - \frac{s_i s_i^\top}{v_i + \lambda}

with ``s_i`` the column of arm ``i`` in the posterior covariance ``S`` and ``v_i`` its variance. The
cost of a round does not depend on how many came before. A leading batch dimension holds
independent replicates.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from botorch_bandits.checks import check_double, check_finite, check_positive


class ArmsPosterior:
    """Posterior mean and covariance of all arms, with a running information gain.

    Args:
        kernel_matrix: ``num_arms x num_arms`` prior covariance, float64; the prior mean is 0.
        lam: The regularisation (modelled noise variance), in the same units.
        batch_shape: Shape of the independent replicates; they share prior and regularisation.

    Attributes:
        mean: ``batch_shape x num_arms``.
        covariance: ``batch_shape x num_arms x num_arms``.
        information_gain: ``batch_shape``; ``1/2 ln det(I + K / lam)`` of the observed arms, in
            nats.

    Example:
        >>> posterior = ArmsPosterior(torch.eye(2, dtype=torch.float64), lam=1.0)
        >>> posterior.observe(torch.tensor(0), torch.tensor(2.0, dtype=torch.float64))
        >>> posterior.mean.tolist(), posterior.variance.tolist()
        ([1.0, 0.0], [0.5, 1.0])
    """

    def __init__(self, kernel_matrix: Tensor, lam: float, batch_shape: Sequence[int] = ()) -> None:
        """See the class."""
        check_finite("kernel_matrix", check_double("kernel_matrix", kernel_matrix))
        if kernel_matrix.dim() != 2 or kernel_matrix.shape[0] != kernel_matrix.shape[1]:
            raise ValueError(
                f"kernel_matrix has shape {tuple(kernel_matrix.shape)}; it must be num_arms x "
                "num_arms."
            )
        self.lam = check_positive("lam", lam)
        num_arms = len(kernel_matrix)
        self.covariance = kernel_matrix.expand(*batch_shape, num_arms, num_arms).clone()
        self.mean = kernel_matrix.new_zeros(*batch_shape, num_arms)
        self.information_gain = kernel_matrix.new_zeros(batch_shape)

    @property
    def variance(self) -> Tensor:
        """``batch_shape x num_arms``; at least 0."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0)

    @property
    def standard_deviation(self) -> Tensor:
        """``batch_shape x num_arms``."""
        return self.variance.sqrt()

    def observe(self, arm: Tensor, outcome: Tensor) -> None:
        """Take in one outcome a replicate.

        Args:
            arm: ``batch_shape`` indices.
            outcome: ``batch_shape`` outcomes, float64.
        """
        index = arm.unsqueeze(-1)
        column = self.covariance.gather(
            -1, index.unsqueeze(-2).expand(*self.mean.shape, 1)
        ).squeeze(-1)
        variance = column.gather(-1, index).clamp_min(0.0)
        residual = outcome.unsqueeze(-1) - self.mean.gather(-1, index)
        scaled = column / (variance + self.lam)
        self.information_gain = self.information_gain + 0.5 * torch.log1p(
            variance / self.lam
        ).squeeze(-1)
        self.mean = self.mean + residual * scaled
        if self.mean.dim() == 2:
            self.covariance.baddbmm_(scaled.unsqueeze(-1), column.unsqueeze(-2), alpha=-1.0)
        else:
            self.covariance -= scaled.unsqueeze(-1) * column.unsqueeze(-2)

    def sample(self, normal: Tensor) -> Tensor:
        """Draw jointly over all arms, one draw a replicate; ``batch_shape x num_arms``.

        Covariances of smooth kernels are singular to rounding, so their root is taken from an
        eigendecomposition.

        Args:
            normal: ``batch_shape x num_arms`` independent standard normal numbers.
        """
        eigenvalues, eigenvectors = torch.linalg.eigh(self.covariance)
        weighted = eigenvalues.clamp_min(0.0).sqrt() * normal
        return self.mean + (eigenvectors @ weighted.unsqueeze(-1)).squeeze(-1)

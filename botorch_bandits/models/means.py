"""Constant prior means: a fixed one that is never learned, and reading the constant of any mean.

GPyTorch's constant mean is a parameter, which a fit would change; the mean here is a buffer.
"""

from __future__ import annotations

import torch
from gpytorch.means import ConstantMean, Mean, ZeroMean
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_number


class FixedMean(Mean):
    """The same prior mean at all points, stored as a buffer so that no fit changes it.

    Args:
        constant: The prior mean, in the units of the model's outcomes.
        batch_shape: The batch shape of the Gaussian process.

    Example:
        >>> mean = FixedMean(-1.5)
        >>> mean(torch.zeros(2, 3, dtype=torch.float64)).tolist()
        [-1.5, -1.5]
    """

    constant: Tensor

    def __init__(self, constant: float, batch_shape: torch.Size | None = None) -> None:
        """See the class."""
        super().__init__()
        self.batch_shape = torch.Size() if batch_shape is None else batch_shape
        self.register_buffer("constant", torch.tensor(constant, dtype=DTYPE))

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean at ``... x n x d`` points: ``... x n``."""
        shape = torch.broadcast_shapes(x.shape[:-1], (*self.batch_shape, 1))
        return self.constant.to(x).expand(shape)


def prior_mean_module(prior_mean: float, batch_shape: torch.Size) -> Mean:
    """Return the GPyTorch mean module of a constant prior mean.

    Args:
        prior_mean: The constant, in the units of the outcomes.
        batch_shape: The batch shape of the Gaussian process.

    Raises:
        TypeError: If ``prior_mean`` is not a number.
        ValueError: If it is not finite.
    """
    constant = check_number("prior_mean", prior_mean)
    if constant == 0.0:
        return ZeroMean(batch_shape=batch_shape)
    return FixedMean(constant, batch_shape)


def read_prior_mean(mean: Mean) -> float | None:
    """Return the constant of a fixed mean module; None for any other mean."""
    if type(mean) is ZeroMean:
        return 0.0
    return mean.constant.item() if type(mean) is FixedMean else None


def read_constant_mean(mean: Mean) -> float | None:
    """Return the constant of a mean module, fixed or learned; None for any other mean."""
    if has_learned_constant(mean):
        return float(mean.raw_constant.item())
    return read_prior_mean(mean)


def has_learned_constant(mean: Mean) -> bool:
    """Return whether a mean is GPyTorch's learned constant: one number, unconstrained."""
    return (
        type(mean) is ConstantMean
        and mean.raw_constant.numel() == 1
        and not hasattr(mean, "raw_constant_constraint")
    )

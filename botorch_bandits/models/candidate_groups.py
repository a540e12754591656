"""Groups of entries of a list of priors that share a factor, and their joint bounds and mixtures.

Entries with the same kernel up to the output scale, the same noise ratio and the same prior mean
form one group: their means agree and their variances are multiples of each other.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np
import torch
from botorch.models.transforms.input import InputTransform
from gpytorch.kernels import Kernel, ScaleKernel
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.checks import check_positive
from botorch_bandits.confidence.candidates import log_densities
from botorch_bandits.core.kernels import StationaryKernel, fingerprint_kernel


class Prior(Protocol):
    """The attributes of an entry of a list, as in :class:`~botorch_bandits.BanditGPRecipe`."""

    @property
    def kernel(self) -> Kernel:
        """The kernel with its output scale."""

    @property
    def noise(self) -> float:
        """The noise variance."""

    @property
    def prior_mean(self) -> float:
        """The constant prior mean."""

    @property
    def input_transform(self) -> InputTransform | None:
        """The transform applied to inputs before the kernel."""

    def __call__(self, X: Tensor, Y: Tensor) -> Any:
        """Return the model of this entry on its own."""


def split_scale(kernel: Kernel) -> tuple[Kernel, float]:
    """Return a kernel without the output scale of a ``ScaleKernel`` around it, and that scale."""
    if type(kernel) is ScaleKernel and not kernel.batch_shape and kernel.active_dims is None:
        return kernel.base_kernel, float(kernel.outputscale.detach())
    return kernel, 1.0


class CandidateGroups:
    """Groups of entries that share a factor: their kernels, noise ratios and prior means agree.

    Args:
        priors: The entries.

    Attributes:
        kernels: The kernel of each group, without its output scale.
        lam: Noise variance over output scale, one per group.
        prior_means: One per group.
        group_of: The group of each entry.
        scales: The output scale of each entry.
        first_of: The first entry of each group.
    """

    def __init__(self, priors: Sequence[Prior]) -> None:
        """See the class."""
        numbers: dict[tuple[object, str, float], int] = {}
        kernels: list[Kernel] = []
        lam: list[float] = []
        means: list[float] = []
        group_of, scales, first_of = [], [], []
        for index, prior in enumerate(priors):
            kernel, scale = split_scale(prior.kernel)
            ratio = prior.noise / scale
            read = StationaryKernel.read(kernel)
            # a fingerprint takes long, so it is taken only of other kernels
            told: object = (
                fingerprint_kernel(kernel)
                if read is None
                else (read.smoothness, *read.lengthscale.tolist())
            )
            key = (told, f"{ratio:.11e}", prior.prior_mean)
            if key not in numbers:
                numbers[key] = len(kernels)
                kernels.append(copy.deepcopy(kernel).requires_grad_(False))
                lam.append(ratio)
                means.append(prior.prior_mean)
                first_of.append(index)
            group_of.append(numbers[key])
            scales.append(scale)
        self.kernels = tuple(kernels)
        self.lam, self.prior_means = np.array(lam), np.array(means)
        self.group_of, self.scales = np.array(group_of), np.array(scales)
        self.first_of = tuple(first_of)

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.kernels)

    def factors(
        self, widths: float | NDArray[np.float64], in_force: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Return the factor of each group's unit deviation in the widest band of its entries.

        Args:
            widths: The width of each entry's band, or one for all, in units of its own deviation.
            in_force: The entries whose bands count.

        Returns:
            One number per group; minus infinity if no entry of it counts.
            One number per group; minus infinity where no entry counts.
        """
        each = np.where(in_force, widths * np.sqrt(self.scales), -np.inf)
        largest = np.full(len(self), -np.inf)
        np.maximum.at(largest, self.group_of, each)
        return largest

    def least_noise_ratio(
        self, variances: NDArray[np.float64], in_force: NDArray[np.bool_]
    ) -> float:
        """Return the smallest ratio of noise to posterior variance of the entries that count.

        Args:
            variances: The posterior variance of each group at a point, at output scale 1. An entry
                has the same ratio of noise variance to posterior variance at its own scale.
            in_force: The entries that count.

        Returns:
            The ratio; infinity if no variance is positive.
        """
        groups = np.unique(self.group_of[in_force])
        with np.errstate(divide="ignore"):
            return float((self.lam[groups] / np.maximum(variances[groups], 0.0)).min())

    def mixture_weights(
        self, posterior_weights: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the probability of each group, and its sum of probability times output scale.

        Args:
            posterior_weights: The probability of each entry.
        """
        size = len(self)
        shares, scales = np.zeros(size), np.zeros(size)
        np.add.at(shares, self.group_of, posterior_weights)
        np.add.at(scales, self.group_of, posterior_weights * self.scales)
        return shares, scales

    def log_densities(
        self,
        outcome: float | NDArray[np.float64],
        means: NDArray[np.float64],
        variances: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the logarithm of the predictive density of an outcome under each entry.

        Args:
            outcome: In raw units; ``n x 1`` for several outcomes.
            means: ``... x G``; the predictive mean of each group.
            variances: ``... x G``; the predictive variance of each group at output scale 1,
                including noise.
        """
        index = self.group_of
        return log_densities(outcome, means[..., index], self.scales * variances[..., index])


def one_each(name: str, value: float | Sequence[float], count: int) -> NDArray[np.float64]:
    """Return one positive number for each prior on a list.

    Args:
        name: The name of the argument, for error messages.
        value: One number for all, or one per prior.
        count: The number of priors.

    Raises:
        ValueError: If the number of entries differs, or one is not positive.
    """
    is_number = value.dim() == 0 if isinstance(value, Tensor) else hasattr(value, "__float__")
    values: list[Any] = [value] * count if is_number else list(cast(Any, value))
    if len(values) != count:
        raise ValueError(
            f"{name} has {len(values)} entries, but {count} priors are on the list; give one "
            "number for all, or one per prior."
        )
    return np.array([check_positive(name, each) for each in values])


def bounds_of_groups(
    means: Tensor, deviations: Tensor, factors: NDArray[np.float64]
) -> tuple[Tensor, Tensor]:
    """Turn ``... x G`` moments into the least lower and the largest upper bound, ``...`` each."""
    counts = np.isfinite(factors)
    half = deviations[..., counts] * torch.from_numpy(factors[counts]).to(deviations)
    means = means[..., counts]
    return (means - half).amin(-1), (means + half).amax(-1)


def mixture_of_groups(
    means: Tensor, variances: Tensor, weight: NDArray[np.float64], scale: NDArray[np.float64]
) -> tuple[Tensor, Tensor]:
    """Turn ``... x G`` moments of groups into those of the mixture, ``...`` each."""
    shares, scales = (torch.from_numpy(each).to(means) for each in (weight, scale))
    mean = means @ shares
    between = (means - mean.unsqueeze(-1)).square() @ shares
    return mean, variances @ scales + between

"""The noise of a model: the smallest that float64 allows, and that of repeated inputs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from linear_operator.operators import DiagLinearOperator, LinearOperator
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_finite, check_positive
from botorch_bandits.random_streams import usual_dtype

# --- The smallest modeled noise, and the range of outcome scales on boxes -------------------------
# Whether float64 can factorize a matrix depends only on the ratio of the noise variance to the
# kernel's output scale, so outcomes of any scale have the same floor for this ratio. All recipes
# and models, on arms and on boxes, use it.


SMALLEST_RATIO = 1e-10
"""Modeled noise variance over output scale must be above this; float64 cannot factorize kernel
matrices much below it."""


def output_scale_of(kernel: Kernel) -> Tensor:
    """Return the factor in front of a kernel, of its batch shape.

    It is multiplied through ``ScaleKernel`` and products, added over sums, and is 1 for every other
    kernel. For stationary kernels, it is the prior variance.

    Args:
        kernel: Any GPyTorch kernel.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> float(output_scale_of(RBFKernel() + RBFKernel()))
        2.0
    """
    if isinstance(kernel, ScaleKernel):
        return kernel.outputscale.detach().to(DTYPE) * output_scale_of(kernel.base_kernel)
    if isinstance(kernel, AdditiveKernel | ProductKernel):
        scales = torch.stack(
            torch.broadcast_tensors(*(output_scale_of(part) for part in kernel.kernels))
        )
        return scales.sum(0) if isinstance(kernel, AdditiveKernel) else scales.prod(0)
    base = getattr(kernel, "base_kernel", None)
    if isinstance(base, Kernel):  # of a kernel that only changes inputs or correlations
        return output_scale_of(base)
    parameter = next(kernel.parameters(), torch.empty(0))
    return torch.ones((), dtype=DTYPE, device=parameter.device)


def check_noise(noise: Any, output_scale: Tensor) -> float:
    """Return the smallest noise variance, after checking all against the output scale.

    Args:
        noise: A number, or a tensor that broadcasts against the output scales.
        output_scale: From :func:`output_scale_of`.

    Raises:
        TypeError: If the noise is not a number.
        ValueError: If a noise variance is not finite, not positive, or too small.
    """
    if not isinstance(noise, Tensor):
        noise = torch.tensor(check_positive("noise", noise), dtype=DTYPE)
    smallest = check_positive("noise", float(check_finite("noise", noise).min()))
    scales = check_finite("the kernel's output scale", output_scale.to(noise.device))
    levels, scales = torch.broadcast_tensors(noise.detach(), scales)
    worst = int((levels / scales).argmin())
    level, scale = (float(each.reshape(-1)[worst]) for each in (levels, scales))
    if level / scale <= SMALLEST_RATIO:
        raise ValueError(
            f"noise is {level:g} and the kernel's output scale {scale:g}: their ratio is "
            f"{level / scale:.3g}, but it must be above {SMALLEST_RATIO:g}, or float64 "
            "cannot factorize the kernel matrix. Model a noise variance above "
            f"{SMALLEST_RATIO * scale:g}; both are variances, in squared outcome units."
        )
    return smallest


def constraint_floor(output_scale: Tensor) -> float:
    """Return the lower bound of the noise parameter of a likelihood.

    Args:
        output_scale: From :func:`output_scale_of`.
    """
    # GPyTorch keeps bounds in float32: rounded up, one might exclude a noise that was accepted
    return (1.0 - 1e-6) * SMALLEST_RATIO * float(output_scale.min())


SMALLEST_DEVIATION, LARGEST_DEVIATION = 1e-8, 1e8
"""Prior standard deviations up to which suggestions on boxes are tested to equal those at 1."""

LARGEST_PRIOR_MEAN = 1e6
"""Largest prior mean on boxes, in prior deviations; beyond it, rounding hides small slopes."""


def check_range_on_box(kernel: Kernel, prior_mean: float) -> None:
    """Raise an error unless optimizers on boxes can handle the scale of the outcomes.

    Args:
        kernel: The kernel of the recipe.
        prior_mean: The prior mean of the recipe.

    Raises:
        ValueError: If the prior standard deviation or the prior mean is beyond the range.
    """
    scales = output_scale_of(kernel)
    smallest, largest = (math.sqrt(float(end)) for end in (scales.min(), scales.max()))
    slack = 1.0 + 1e-6  # GPyTorch rounds output scales
    for deviation in (smallest, largest):
        if not SMALLEST_DEVIATION / slack <= deviation <= LARGEST_DEVIATION * slack:
            raise ValueError(
                f"the kernel's output scale is {deviation**2:g}, a prior standard deviation of "
                f"{deviation:g}; on a box this must lie between {SMALLEST_DEVIATION:g} and "
                f"{LARGEST_DEVIATION:g}. Rescale the outcomes (divide them by {deviation:g}), and "
                "with them kernel, noise, bounds and prior_mean; or use Arms, which support any "
                "scale."
            )
    if abs(prior_mean) > LARGEST_PRIOR_MEAN * slack * smallest:
        raise ValueError(
            f"prior_mean is {prior_mean:g} (with Censored, the minimum); on a box it must be at "
            f"most {LARGEST_PRIOR_MEAN:g} prior standard deviations of {smallest:g} in size. "
            "Subtract a constant from the outcomes and from prior_mean or minimum, or use Arms."
        )


# --- The likelihood of repeated inputs, whose observations count as one observation of their mean -
# :math:`n_i` observations of an input are replaced by
#
# .. math:: \bar y_i = f(x_i) + \text{noise of variance } \lambda / n_i ,
#
# which gives exactly the posterior of all raw observations. The two marginal likelihoods differ by
# a term that depends only on the noise, through the sum of squared deviations from the means.


class RepeatedNoise(HomoskedasticNoise):
    """The noise of :class:`RepeatedGaussianLikelihood`; BoTorch's pathwise draws use it directly.

    Args:
        repeats: ``batch_shape x n`` numbers of observations.
        kwargs: As for ``HomoskedasticNoise``.
    """

    repeats: Tensor

    def __init__(self, repeats: Tensor, **kwargs: Any) -> None:
        """See the class."""
        super().__init__(**kwargs)
        # not persistent, so that hyperparameters can be loaded into a model with other rows
        self.register_buffer("repeats", repeats, persistent=False)

    def forward(
        self, *params: Any, shape: torch.Size | None = None, **kwargs: Any
    ) -> LinearOperator:
        """Return the noise covariance of the number of rows that ``shape`` gives."""
        if "noise" not in kwargs and shape is not None and shape[-1] == self.repeats.shape[-1]:
            return DiagLinearOperator((self.noise / self.repeats).expand(shape))
        return super().forward(*params, shape=shape, **kwargs)


class RepeatedGaussianLikelihood(GaussianLikelihood):
    """Gaussian noise whose variance at a training row is divided by its number of repeats.

    As with GPyTorch's ``FixedNoiseGaussianLikelihood``, rows are recognized by their number.

    Args:
        repeats: ``batch_shape x n`` numbers of observations.
        kwargs: As for ``GaussianLikelihood``.
    """

    def __init__(self, repeats: Tensor, **kwargs: Any) -> None:
        """See the class."""
        super().__init__(**kwargs)
        self.noise_covar = RepeatedNoise(repeats, **kwargs)

    @property
    def repeats(self) -> Tensor:
        """``batch_shape x n``; the number of observations of which each row is the mean."""
        return self.noise_covar.repeats


def gaussian_likelihood(repeats: Tensor | None, **settings: Any) -> GaussianLikelihood:
    """Return a likelihood of Gaussian noise.

    Args:
        repeats: The number of observations of which each row is the mean; None if all are single.
        settings: As for ``GaussianLikelihood``.
    """
    with usual_dtype():
        if repeats is None:
            return GaussianLikelihood(**settings)
        return RepeatedGaussianLikelihood(repeats, **settings)


class CollapsedRows(NamedTuple):
    """One row for each distinct input, which gives the posterior of all rows.

    Attributes:
        X: ``n x d`` distinct inputs.
        Y: ``n x m`` weighted means of their outcomes.
        weights: ``n`` sums of weights.
        squares: The weighted sum of squared deviations from the means, over all outputs.
    """

    X: Tensor
    Y: Tensor
    weights: Tensor
    squares: float


def collapse(
    X: Tensor, Y: Tensor, weights: Tensor | None = None, places: Tensor | None = None
) -> CollapsedRows:
    """Replace repeated inputs with distinct ones.

    Args:
        X: ``N x d`` inputs.
        Y: ``N x m`` outcomes.
        weights: ``N``; row ``i`` has the noise variance ``noise / weights[i]``. All are 1 if
            omitted.
        places: From :func:`places_of`, if they are known.
    """
    places = places_of(X) if places is None else places
    weights = torch.ones_like(Y[:, 0]) if weights is None else weights
    n = int(places.max()) + 1 if len(places) else 0
    total = weights.new_zeros(n).index_add_(0, places, weights)
    sums = Y.new_zeros(n, Y.shape[-1]).index_add_(0, places, weights[:, None] * Y)
    means = sums / total.unsqueeze(-1)  # n x m
    inputs = X.new_empty(n, X.shape[1])
    inputs[places] = X
    deviations = weights.sqrt()[:, None] * (Y - means[places])  # N x m
    return CollapsedRows(inputs, means, total, float(deviations.square().sum()))


def places_of(X: Tensor) -> Tensor:
    """Return ``n`` numbers from 0, equal for equal rows of ``n x d`` inputs."""
    rows = (X.detach().cpu() + 0.0).contiguous().numpy()  # -0.0 becomes 0.0
    # bytes are compared several times as fast as columns
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[-1]))).reshape(len(rows))
    return torch.from_numpy(np.unique(keys, return_inverse=True)[1]).to(X.device)

r"""The likelihood of repeated inputs, whose observations count as one observation of their mean.

:math:`n_i` observations of an input are replaced by

.. math:: \bar y_i = f(x_i) + \text{noise of variance } \lambda / n_i ,

which gives exactly the posterior of all raw observations. The two marginal likelihoods differ by a
term that depends only on the noise, through the sum of squared deviations from the means.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from linear_operator.operators import DiagLinearOperator, LinearOperator
from torch import Tensor

from botorch_bandits.random_streams import usual_dtype


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

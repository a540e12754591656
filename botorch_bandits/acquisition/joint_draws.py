"""Exact draws of several outputs on finitely many points, jointly where they are correlated."""

from __future__ import annotations

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models import ModelListGP
from botorch.models.gpytorch import BatchedMultiOutputGPyTorchModel
from botorch.models.model import Model
from botorch.posteriors.multitask import MultitaskGPPosterior
from botorch.posteriors.posterior import Posterior
from gpytorch.distributions import MultitaskMultivariateNormal
from torch import Tensor

from botorch_bandits.acquisition.lagrangian_options import select_output
from botorch_bandits.acquisition.seeded_draw import check_gaussian, draw_deviation
from botorch_bandits.random_streams import derive_seed, seeded_globally


def draw_outputs(
    model: Model, choices: Tensor, posterior_transform: PosteriorTransform | None, seed: int
) -> tuple[Tensor, Tensor]:
    """Draw every output of a model on a finite set of points.

    The cost is cubic in points times outputs that are correlated.

    Args:
        model: With a Gaussian posterior; no batch, no ensemble.
        choices: ``num_points x d`` points.
        posterior_transform: Applied to the posterior first, if given.
        seed: Of the draw.

    Returns:
        Mean and the draw's deviation from it, ``num_points x num_outputs`` each.

    Raises:
        UnsupportedError: If the posterior is not Gaussian.
    """
    with torch.no_grad():
        parts = [
            _draw(posterior, derive_seed(seed, j, "output"))
            for j, posterior in enumerate(_independent(model, choices, posterior_transform))
        ]
    return torch.cat([part[0] for part in parts], -1), torch.cat([part[1] for part in parts], -1)


def _independent(
    model: Model, choices: Tensor, posterior_transform: PosteriorTransform | None
) -> list[Posterior]:
    """Return the posteriors of groups of outputs that do not depend on one another."""
    if posterior_transform is None and isinstance(model, ModelListGP):
        return [submodel.posterior(choices) for submodel in model.models]
    if posterior_transform is None and isinstance(model, BatchedMultiOutputGPyTorchModel):
        num_outputs = model.num_outputs
        return [
            model.posterior(choices, posterior_transform=select_output(j, num_outputs))
            for j in range(num_outputs)
        ]
    return [model.posterior(choices, posterior_transform=posterior_transform)]


def _draw(posterior: Posterior, seed: int) -> tuple[Tensor, Tensor]:
    posterior = check_gaussian(posterior)
    mean = posterior.mean
    if isinstance(posterior, MultitaskGPPosterior):
        # of a Kronecker model: its distribution holds variances only, its samples are joint
        with seeded_globally(seed):
            return mean, posterior.rsample(torch.Size([1])).squeeze(0) - mean
    distribution = posterior.distribution
    deviation = draw_deviation(distribution.covariance_matrix, seed)
    if isinstance(distribution, MultitaskMultivariateNormal) and not distribution._interleaved:
        return mean, deviation.reshape(mean.shape[-1], mean.shape[-2]).T
    return mean, deviation.reshape(mean.shape)

"""The recipe of a model that forgets: with a time-varying kernel, the round is a further input.

Windows and weights change the rows of a view instead. The settings, with their sources, are in
:mod:`botorch_bandits.forgetting`.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from botorch.models.transforms.input import InputTransform
from torch import Tensor

from botorch_bandits.confidence.prior_reading import learns_input_scale
from botorch_bandits.core.kernels import TimeDecayKernel
from botorch_bandits.forgetting import Forgetting
from botorch_bandits.models.bandit_gp import BanditGPRecipe


class BehindTime(InputTransform, torch.nn.Module):
    """Applies an input transform to all columns but the first, which is the time.

    Args:
        transform: The transform, which is copied. It must not learn from the data.
    """

    def __init__(self, transform: InputTransform) -> None:
        """See the class."""
        super().__init__()
        self.inner = copy.deepcopy(transform)
        self.transform_on_train = transform.transform_on_train
        self.transform_on_eval = transform.transform_on_eval
        self.transform_on_fantasize = transform.transform_on_fantasize
        self.is_one_to_many = transform.is_one_to_many

    def transform(self, X: Tensor) -> Tensor:
        """Transform ``... x n x (1 + d)`` inputs."""
        return torch.cat([X[..., :1], self.inner.transform(X[..., 1:])], dim=-1)


def forgetful_recipe(recipe: BanditGPRecipe, forgetting: Forgetting) -> BanditGPRecipe:
    """Return the recipe of models that forget: of ``(round, x)`` with a time-varying kernel.

    Args:
        recipe: The kernel and noise, with fixed hyperparameters.
        forgetting: How old outcomes are forgotten.

    Raises:
        ValueError: If hyperparameters are to be learned, or an input transform learns its scale.
    """
    transform = recipe.input_transform
    if recipe.refit_every is not None or learns_input_scale(transform):
        raise ValueError(
            "forgetting needs fixed hyperparameters, but the model has "
            f"refit_every={recipe.refit_every} or an input transform that learns its scale. "
            "Fix both, and state the bounds of Normalize."
        )
    if forgetting.drift_rate is None:
        return recipe
    return replace(
        recipe,
        kernel=TimeDecayKernel(recipe.kernel, forgetting.drift_rate),
        input_transform=None if transform is None else BehindTime(transform),
    )

"""Models of Gaussian-process bandits that forget, built from the settings of a loop.

All of them are ordinary models in which rows are left out, have weights, or have the round as an
additional input. With weights, and when rows leave a window, a model is rebuilt at the cost of one
factorization; otherwise, it grows row by row. The settings, with their sources, are in
:mod:`botorch_bandits.forgetting`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from botorch.models.transforms.input import InputTransform
from torch import Tensor

from botorch_bandits.confidence.prior_reading import learns_input_scale
from botorch_bandits.core.kernels import TimeDecayKernel
from botorch_bandits.forgetting import ExponentialWeights, Forgetting
from botorch_bandits.models.bandit_gp import BanditGPRecipe
from botorch_bandits.models.reading import submodels

NEGLIGIBLE_WEIGHT = 1e-18
"""Rows with smaller weights are left out; next to the latest row, they are rounding error."""


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


def forgetful_models(
    recipe: BanditGPRecipe, forgetting: Forgetting, merges: bool = False
) -> ForgettingModels:
    """Return what builds the models of a loop with this recipe.

    Args:
        recipe: See :func:`forgetful_recipe`.
        forgetting: How old outcomes are forgotten.
        merges: Whether to merge all observations of an input into one row if there are few inputs.
    """
    return ForgettingModels(forgetting, forgetful_recipe(recipe, forgetting).builder(0, merges))


class ForgettingModels:
    """Builds the models of a loop that forgets.

    Args:
        forgetting: How old outcomes are forgotten.
        build: Builds a model from ``n x d`` inputs, ``n x m`` outcomes and, if rows have weights,
            ``n`` of them; it may extend its last model.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import BanditGP, SlidingWindow
        >>> build = BanditGP.with_kernel(RBFKernel(), noise=0.01).builder(seed=0)
        >>> models = ForgettingModels(SlidingWindow(length=2), build)
        >>> X = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
        >>> models.build(X, X.sin(), torch.tensor([1, 2, 3]), round_number=4).num_rows
        2
    """

    def __init__(self, forgetting: Forgetting, build: Callable[..., Any]) -> None:
        """See the class."""
        self._forgetting, self._build = forgetting, build

    def inputs(self, X: Tensor, rounds: Tensor) -> Tensor:
        """Return the model's inputs: with a time-varying kernel, the rounds come first.

        Args:
            X: ``n x d`` inputs.
            rounds: ``n`` rounds in which they were queried.
        """
        if self._forgetting.drift_rate is None:
            return X
        return torch.cat([rounds.to(X).unsqueeze(-1), X], dim=-1)

    def build(
        self,
        X: Tensor,
        Y: Tensor,
        rounds: Tensor,
        round_number: int,
        own_weights: Tensor | None = None,
    ) -> Any:
        """Return the model of a round.

        Args:
            X: ``n x d`` inputs; ``n`` may be 0.
            Y: ``n x m`` outcomes.
            rounds: ``n`` rounds in which they were queried, from 1.
            round_number: The round being chosen.
            own_weights: ``n``; before fading, row ``i`` has the noise variance
                ``noise / own_weights[i]``. All are 1 if omitted.

        Returns:
            A model of ``x``, or of ``(round, x)`` with a time-varying kernel; see :meth:`inputs`.
            The latter has the round that was last asked for as its attribute ``current_round``.
        """
        rounds, forgetting = rounds.to(X.device), self._forgetting
        kept, weights = forgetting.keeps(rounds, round_number), own_weights
        if isinstance(forgetting, ExponentialWeights):
            fading = forgetting.weights(rounds, round_number)
            kept = fading > NEGLIGIBLE_WEIGHT
            weights = fading if own_weights is None else fading * own_weights
        rows = [self.inputs(X, rounds), Y] + ([] if weights is None else [weights])
        model = self._build(*(each[kept] for each in rows))
        for each in submodels(model):
            if forgetting.fades and own_weights is None:
                each.num_outcomes = None  # faded outcomes count in proportion to their weights
            if forgetting.drift_rate is not None:
                each.current_round = round_number  # where figures evaluate it
        return model

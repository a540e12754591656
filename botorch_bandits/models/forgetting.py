"""Models of Gaussian-process bandits that forget, built from the settings of a loop.

All of them are ordinary :class:`~botorch_bandits.BanditGP` models in which rows are left out, have
weights, or have the round as an additional input. With weights, and when rows leave a window, a
model is rebuilt at the cost of one factorization; otherwise, it grows row by row. The settings,
with their sources, are in :mod:`botorch_bandits.forgetting`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from botorch.models import ModelListGP
from botorch.models.model import Model, ModelList
from botorch.models.transforms.input import InputTransform
from torch import Tensor

from botorch_bandits.confidence.prior_reading import learns_input_scale
from botorch_bandits.core.kernels import TimeDecayKernel
from botorch_bandits.forgetting import (
    ExponentialWeights,
    Forgetting,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.models.bandit_gp import BanditGP, BanditGPRecipe
from botorch_bandits.models.growing import (
    units_of_columns,
)

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

    def units_of_columns(self, like: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return side and origin of each column; None if the other transform is not affine.

        Args:
            like: ``1 + d`` numbers.
        """
        inner = units_of_columns(self.inner, like[1:])
        if inner is None:
            return None
        side, origin = torch.ones_like(like), torch.zeros_like(like)
        side[1:], origin[1:] = inner
        return side, origin


class WindowModels:
    """Builds models of the rows in a window.

    Args:
        window: The window.
        build: Builds a model from ``n x d`` inputs and ``n x m`` outcomes; it may extend its last
            model.
    """

    def __init__(self, window: Forgetting, build: Callable[..., Any]) -> None:
        """See the class."""
        self._window, self._build = window, build

    def inputs(self, X: Tensor, rounds: Tensor) -> Tensor:
        """Return the model's inputs, which are those of the loop."""
        return X

    def build(self, X: Tensor, Y: Tensor, rounds: Tensor, round_number: int, *own: Tensor) -> Any:
        """Return the model of a round.

        Args:
            X: ``n x d`` inputs.
            Y: ``n x m`` outcomes.
            rounds: ``n`` rounds in which they were queried.
            round_number: The round being chosen.
            own: The ``n`` weights of rows, if they have any.
        """
        kept = self._window.keeps(rounds, round_number)
        return self._build(*(rows[kept] for rows in (X, Y, *own)))


class ForgettingModels:
    """Builds the models of a loop that forgets.

    Args:
        recipe: The kernel and noise, with fixed hyperparameters.
        forgetting: How old outcomes are forgotten.
        collapses: Whether to merge all observations of an input into one row (unless time is an
            input).
        separates_outputs: Whether to build one model for each of several outputs.

    Raises:
        ValueError: If hyperparameters are to be learned, or an input transform learns its scale.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> recipe = BanditGP.with_kernel(RBFKernel(), noise=0.01)
        >>> models = ForgettingModels(recipe, SlidingWindow(length=2))
        >>> X = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
        >>> models.build(X, X.sin(), torch.tensor([1, 2, 3]), round_number=4).num_rows
        2
    """

    def __init__(
        self,
        recipe: BanditGPRecipe,
        forgetting: Forgetting,
        collapses: bool = False,
        separates_outputs: bool = True,
    ) -> None:
        """See the class."""
        if recipe.refit_every is not None or learns_input_scale(recipe.input_transform):
            raise ValueError(
                "forgetting needs fixed hyperparameters, but the model has "
                f"refit_every={recipe.refit_every} or an input transform that learns its scale. "
                "Fix both, and state the bounds of Normalize."
            )
        if isinstance(forgetting, TimeVaryingKernel):
            transform = recipe.input_transform
            recipe = replace(
                recipe,
                kernel=TimeDecayKernel(recipe.kernel, forgetting.rate),
                input_transform=None if transform is None else BehindTime(transform),
            )
            collapses = False
        self.recipe, self.forgetting = recipe, forgetting
        self._collapses = collapses
        self._kept: dict[str, Any] = {}  # what others keep from round to round, for one output
        # rows with weights have a model for each output in any case
        separates = isinstance(forgetting, ExponentialWeights) or separates_outputs
        # it extends its last model if rows only come, as where time is an input
        self._build = recipe.builder(0, collapses, separates)

    def inputs(self, X: Tensor, rounds: Tensor) -> Tensor:
        """Return the model's inputs: with a time-varying kernel, the rounds come first.

        Args:
            X: ``n x d`` inputs.
            rounds: ``n`` rounds in which they were queried.
        """
        if not isinstance(self.forgetting, TimeVaryingKernel):
            return X
        return torch.cat([rounds.to(X).unsqueeze(-1), X], dim=-1)

    def build(
        self,
        X: Tensor,
        Y: Tensor,
        rounds: Tensor,
        round_number: int,
        own_weights: Tensor | None = None,
    ) -> Model:
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
            With several columns of ``Y``, it is a ``ModelListGP`` with one model for each if
            outputs are separated, and with weights (``ExponentialWeights``) in any case.
        """
        rounds = rounds.to(X.device)
        own = () if own_weights is None else (own_weights,)
        if isinstance(self.forgetting, SlidingWindow):
            window = WindowModels(self.forgetting, self._build)
            model: Model = window.build(X, Y, rounds, round_number, *own)
            if isinstance(model, BanditGP):
                model.kept = self._kept
            return model
        if isinstance(self.forgetting, ExponentialWeights):
            return self._faded(X, Y, rounds, round_number, own_weights)
        model = self._build(self.inputs(X, rounds), Y, *own)
        for each in (model, *(model.models if isinstance(model, ModelList) else ())):
            each.current_round = round_number  # where figures evaluate it
        return model

    def _faded(
        self, X: Tensor, Y: Tensor, rounds: Tensor, round_number: int, own_weights: Tensor | None
    ) -> Model:
        assert isinstance(self.forgetting, ExponentialWeights)
        weights = self.forgetting.weights(rounds, round_number)
        kept = weights > NEGLIGIBLE_WEIGHT
        weights = weights if own_weights is None else weights * own_weights
        model: Model = self._build(X[kept], Y[kept], weights[kept])
        if own_weights is None:
            for each in model.models if isinstance(model, ModelListGP) else [model]:
                each.num_outcomes = None  # faded outcomes count in proportion to their weights
            if isinstance(model, BanditGP):
                model.kept = self._kept
        return model

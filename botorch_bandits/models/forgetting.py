"""Models of Gaussian-process bandits that forget, built from the settings of a loop.

All are ordinary :class:`~botorch_bandits.BanditGP`: rows are left out, have weights, or have the
round as a further input. Weights, and windows that rows leave, are built afresh in every round, at
the cost of one factorization; before that, and with a time-varying kernel, the model grows row by
row. Where the kernel has no closed form, GPyTorch, as BoTorch sets it, solves from 4096 rows on by
conjugate gradients, which keep fewer digits. The settings, with their sources, are in
:mod:`botorch_bandits.forgetting`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.confidence.width_rules import learns_input_scale
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.forgetting import (
    ExponentialWeights,
    Forgetting,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.models.bandit_gp import BanditGP, BanditGPRecipe
from botorch_bandits.models.composed_kernels import FirstColumnDecay
from botorch_bandits.models.growing import units_of_columns

NEGLIGIBLE_WEIGHT = 1e-18
"""Rows of a smaller weight are left out: beside the latest row they are rounding error."""


class TimeDecayKernel(FirstColumnDecay):
    r"""``k(x, x') (1 - rate)^{|t - t'| / 2}`` on inputs ``(t, x)``: the time comes first.

    Args:
        base_kernel: The kernel ``k`` of the other columns; copied.
        rate: In (0, 1).

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> kernel = TimeDecayKernel(RBFKernel().double(), rate=0.19)
        >>> X = torch.tensor([[1.0, 0.5], [3.0, 0.5]], dtype=torch.float64)
        >>> round(kernel(X).to_dense()[0, 1].item(), 12)
        0.81
    """

    def __init__(self, base_kernel: Kernel, rate: float) -> None:
        """See the class."""
        super().__init__()
        self.base_kernel = copy.deepcopy(base_kernel)
        self.rate = rate

    @property
    def decay_length(self) -> float:
        """How many rounds apart two values of one function are whose correlation is ``1/e``."""
        return -2.0 / math.log1p(-self.rate)

    @property
    def is_stationary(self) -> bool:
        """Whether the base kernel is."""
        return bool(self.base_kernel.is_stationary)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariances of ``... x n x (1 + d)`` and ``... x m x (1 + d)`` inputs."""
        if diag:
            gap = x1[..., 0] - x2[..., 0]
            base = self.base_kernel(x1[..., 1:], x2[..., 1:], diag=True, **params)
        else:
            gap = x1[..., :, None, 0] - x2[..., None, :, 0]
            base = self.base_kernel(x1[..., 1:], x2[..., 1:], **params).to_dense()
        decayed: Tensor = torch.exp(0.5 * math.log1p(-self.rate) * gap.abs()) * base
        return decayed


class BehindTime(InputTransform, torch.nn.Module):
    """Applies an input transform to all columns but the first, which is the time.

    Args:
        transform: Copied. It must not learn from the data.
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
        """Return side and origin of each column; None if the other transform is no affine map.

        Args:
            like: ``1 + d`` numbers.
        """
        inner = units_of_columns(self.inner, like[1:])
        if inner is None:
            return None
        side, origin = torch.ones_like(like), torch.zeros_like(like)
        side[1:], origin[1:] = inner
        return side, origin


class ForgettingModels:
    """Builds the models of a loop that forgets.

    Args:
        recipe: Kernel and noise, with fixed hyperparameters.
        forgetting: What becomes of old outcomes.
        collapses: Make one row of all observations of an input (not where time is an input).
        separates_outputs: Build one model for each output where there are several; ``"together"``
            if they are to be drawn as one model.

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
        separates_outputs: bool | str = True,
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
        self._collapses, self._separates_outputs = collapses, separates_outputs
        # as long as no row leaves a window, its model grows; it is the same to the last bit
        self._first: Tensor | None = None
        self._in_window: Callable[[Tensor, Tensor], Any] = self._builder()
        # with a time as an input rows never change: one builder continues its last model
        self._growing = self._builder() if isinstance(forgetting, TimeVaryingKernel) else None

    def inputs(self, X: Tensor, rounds: Tensor) -> Tensor:
        """Return the model's inputs: with a time-varying kernel, the rounds come first.

        Args:
            X: ``n x d`` inputs.
            rounds: ``n`` rounds in which they were asked.
        """
        if not isinstance(self.forgetting, TimeVaryingKernel):
            return X
        return torch.cat([rounds.to(X).unsqueeze(-1), X], dim=-1)

    def build(self, X: Tensor, Y: Tensor, rounds: Tensor, round_number: int) -> Model:
        """Return the model of a round.

        Args:
            X: ``n x d`` inputs; ``n`` may be 0.
            Y: ``n x m`` outcomes; weights (``ExponentialWeights``) need ``m = 1``.
            rounds: ``n`` rounds in which they were asked, from 1.
            round_number: The round that is chosen.

        Returns:
            A model of ``x``, or of ``(round, x)`` with a time-varying kernel; see :meth:`inputs`.
            With several outcomes in a row of ``Y`` it is a ``ModelListGP`` of one model for each,
            if outputs are separated.
        """
        rounds = rounds.to(X.device)
        if isinstance(self.forgetting, SlidingWindow):
            kept = self.forgetting.keeps(rounds, round_number)
            X, Y = X[kept], Y[kept]
            if self._first is None or not torch.equal(self._first, X[:1]):
                # a row left: nothing can be continued, and what was built is let go
                self._first, self._in_window = X[:1].clone(), self._builder()
            return self._in_window(X, Y)
        if isinstance(self.forgetting, ExponentialWeights):
            weights = self.forgetting.weights(rounds, round_number)
            kept = weights > NEGLIGIBLE_WEIGHT
            return self._weighted(X[kept], Y[kept], weights[kept])
        assert self._growing is not None
        return self._growing(self.inputs(X, rounds), Y)

    def _builder(self) -> Callable[[Tensor, Tensor], Any]:
        return self.recipe.builder(0, self._collapses, self._separates_outputs)

    def _weighted(self, X: Tensor, Y: Tensor, weights: Tensor) -> BanditGP:
        if self._collapses and len(X):
            # several observations of an input are one of their weighted mean
            X, index = torch.unique(X, dim=0, return_inverse=True)
            total = weights.new_zeros(len(X)).index_add_(0, index, weights)
            sums = weights.new_zeros(len(X)).index_add_(0, index, weights * Y[:, 0])
            Y, weights = (sums / total).unsqueeze(-1), total
        recipe = self.recipe
        return recipe.model_class(
            X,
            Y,
            kernel=recipe.kernel,
            noise=recipe.noise,
            input_transform=recipe.input_transform,
            repeats=weights,
            prior_mean=recipe.prior_mean,
        )


fill_in_docstrings(__name__)

"""Models of Gaussian-process bandits that forget, built from the settings of a loop.

All of them are ordinary :class:`~botorch_bandits.BanditGP` models in which rows are left out, have
weights, or have the round as an additional input. With weights, a model is rebuilt in every round,
at the cost of one factorization; with a time-varying kernel, it grows row by row. If the kernel has
no closed form, GPyTorch, with BoTorch's settings, solves by conjugate gradients from 4096 rows on,
which lose more digits. The settings, with their sources, are in :mod:`botorch_bandits.forgetting`.

**Windows.** At every 32nd round at which a window begins, the rows from that round on are
factorized. Until the next such round, the factor grows row by row, and the model of a round is
obtained from it by removing the first rows, which have left the window
(:mod:`botorch_bandits.models.row_deletion`), in ``n^2`` operations per row. A model thus depends
only on rows and rounds, and not on the models before it: a loop rebuilt from its history has the
same model, to the last bit.
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
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.confidence.width_rules import learns_input_scale
from botorch_bandits.core.kernels import TimeDecayKernel, kernel_of_output
from botorch_bandits.forgetting import (
    ExponentialWeights,
    Forgetting,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.models.bandit_gp import BanditGP, BanditGPRecipe
from botorch_bandits.models.growing import (
    IncrementalGP,
    has_closed_posterior,
    units_of_columns,
)
from botorch_bandits.models.likelihoods import collapse_weights

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


FEWEST_ROWS = 64
"""With fewer rows in a window, they are factorized in every round in which a row leaves."""

STRIDE = 32
"""Rounds between two factorizations if rows leave a window."""


class WindowModels:
    """Builds the models of a window, as rows enter and leave it.

    Args:
        window: The window, which determines the rows of a model.
        new_builder: A function that returns a builder of models from ``n x d`` inputs, ``n x m``
            outcomes, and the number of rows that are best added at once; the builder extends its
            last model if the rows of that model come first.
    """

    def __init__(
        self,
        window: SlidingWindow,
        new_builder: Callable[[], Callable[[Tensor, Tensor, int], Any]],
    ) -> None:
        """See the class."""
        self._window, self._new_builder = window, new_builder
        self._build: Callable[[Tensor, Tensor, int], Any] = new_builder()
        self._first: Tensor | None = None  # the first row that the builder was given
        self._can_delete = True

    def build(self, X: Tensor, Y: Tensor, rounds: Tensor, round_number: int) -> Any:
        """Return the model of a round.

        Args:
            X: ``n x d`` inputs of all rows, or of the rows from :meth:`first_round` on.
            Y: ``n x m`` outcomes.
            rounds: ``n`` rounds in which they were queried.
            round_number: The round being chosen.
        """
        kept = self._window.keeps(rounds, round_number)
        first_round = self.first_round(round_number)
        begun = rounds >= first_round
        num_left = int(begun.sum()) - int(kept.sum())
        if num_left and (
            not self._can_delete
            or int(kept.sum()) < FEWEST_ROWS
            or bool(kept[begun][:num_left].any())  # some rows have left before earlier ones
        ):
            return self._continued(X[kept], Y[kept])
        at_first = begun & (rounds < first_round + self._window.length)
        # before the window is full, there is no last factorization
        num_first = int(at_first.sum()) if first_round > 0 else 0
        model = self._continued(X[begun], Y[begun], num_first)
        if not num_left:
            return model
        left = without_first_rows(model, num_left)
        if left is None:
            self._can_delete = has_closed_form(model)
            return self._continued(X[kept], Y[kept])
        return left

    def first_round(self, round_number: int) -> int:
        """Return the first round whose rows are factorized for a round.

        Args:
            round_number: The round being chosen.
        """
        return (round_number - self._window.length) // STRIDE * STRIDE

    def _continued(self, X: Tensor, Y: Tensor, num_first: int = 0) -> Any:
        if self._first is None or not torch.equal(self._first, X[:1]):
            # nothing can be continued, so the previous models are released
            self._first, self._build = X[:1].clone(), self._new_builder()
        return self._build(X, Y, num_first)


def has_closed_form(model: Any) -> bool:
    """Return whether all models of a list, or a single model, are of a kind with a closed form.

    Args:
        model: A model, or a list of models of several outputs.
    """
    models = model.models if isinstance(model, ModelList) else [model]
    return all(not isinstance(each, IncrementalGP) or has_closed_posterior(each) for each in models)


def without_first_rows(model: Any, num_rows: int) -> Any:
    """Return a model without its first rows; None if that needs a factorization.

    Args:
        model: A model, or a list of models of several outputs.
        num_rows: The number of rows to leave out.
    """
    if not isinstance(model, ModelList):
        leave_out = getattr(model, "without_first_rows", None)
        return None if leave_out is None else leave_out(num_rows)
    done: list[Any] = []
    for each in model.models:
        first = model.models[0]
        is_shared = bool(done) and isinstance(first, IncrementalGP) and first.has_factor_of(each)
        if is_shared:
            done.append(each.without_first_rows(num_rows, done[0]))
        else:
            done.append(without_first_rows(each, num_rows))
    return None if any(each is None for each in done) else type(model)(*done)


class ForgettingModels:
    """Builds the models of a loop that forgets.

    Args:
        recipe: The kernel and noise, with fixed hyperparameters.
        forgetting: How old outcomes are forgotten.
        collapses: Whether to merge all observations of an input into one row (unless time is an
            input).
        separates_outputs: Whether to build one model for each of several outputs; ``"together"`` if
            they are to be drawn as one model.

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
        self._window = (
            WindowModels(forgetting, self._window_builder)
            if isinstance(forgetting, SlidingWindow)
            else None
        )
        self._kept: dict[str, Any] = {}  # eigenvectors of rows that fade, from round to round
        # with time as an input, rows never change, so that one builder continues its last model
        self._growing = self._builder() if isinstance(forgetting, TimeVaryingKernel) else None

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
        if self._window is not None:
            if own_weights is None:
                return self._window.build(X, Y, rounds, round_number)
            assert isinstance(self.forgetting, SlidingWindow)
            kept = self.forgetting.keeps(rounds, round_number)
            return self._builder()(X[kept], Y[kept], own_weights[kept])
        if isinstance(self.forgetting, ExponentialWeights):
            weights = self.forgetting.weights(rounds, round_number)
            kept = weights > NEGLIGIBLE_WEIGHT
            if own_weights is None:
                model = self._weighted(X[kept], Y[kept], weights[kept])
                if isinstance(model, BanditGP):
                    model.kept = self._kept
                return model
            model = self._weighted(X[kept], Y[kept], (weights * own_weights)[kept])
            for each in model.models if isinstance(model, ModelListGP) else [model]:
                each.num_outcomes = int(kept.sum())
            return model
        assert self._growing is not None
        own = () if own_weights is None else (own_weights,)
        grown: Model = self._growing(self.inputs(X, rounds), Y, *own)
        for each in (grown, *(grown.models if isinstance(grown, ModelList) else ())):
            each.current_round = round_number  # where figures evaluate it
        return grown

    def _window_builder(self) -> Callable[[Tensor, Tensor, int], Any]:
        build = self._builder()
        return lambda X, Y, num_first: build(X, Y)

    def _builder(self) -> Callable[..., Any]:
        return self.recipe.builder(0, self._collapses, self._separates_outputs)

    def _weighted(self, X: Tensor, Y: Tensor, weights: Tensor) -> Model:
        if self._collapses and len(X):
            X, Y, weights = collapse_weights(X, Y, weights)
        if Y.shape[-1] == 1:
            return self._weighted_output(X, Y, weights, self.recipe.kernel)
        # all outcomes of a query have the same age, and outputs are independent
        columns = enumerate(Y.split(1, dim=-1))
        kernel = self.recipe.kernel
        return ModelListGP(
            *(self._weighted_output(X, y, weights, kernel_of_output(kernel, j)) for j, y in columns)
        )

    def _weighted_output(self, X: Tensor, Y: Tensor, weights: Tensor, kernel: Kernel) -> BanditGP:
        recipe = self.recipe
        return recipe.model_class(
            X,
            Y,
            kernel=kernel,
            noise=recipe.noise,
            input_transform=recipe.input_transform,
            repeats=weights,
            prior_mean=recipe.prior_mean,
        )

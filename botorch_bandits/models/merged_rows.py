r"""Exact merging of rows on boxes if the inputs take few distinct values.

Observations :math:`y_1, \dots, y_c` at one place are equivalent to one observation of their mean
with the noise variance :math:`\lambda / c`: the posterior, the realized information gain and, with
the squared deviations from the means, the marginal likelihood are those of all rows. A loop that
returns to ``m`` places therefore pays for only ``m`` rows, regardless of the number of outcomes.

**When rows are merged** depends only on the inputs and their order, so that a loop that is rebuilt
from its history computes the same bits. From :data:`FEWEST_ROWS` rows on, there are checkpoints;
see :func:`next_checkpoint`. Merging begins at the first one with at most half as many places as
rows, and continues from there on. The rows up to the last checkpoint are merged and factorized at
once; later ones remain separate rows, each of which costs ``m^2`` operations. There are so few of
them that a factorization, spread over the rounds up to the next checkpoint, costs ``m^2`` per round
as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from botorch.models import ModelListGP
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.core.kernels import StationaryKernel
from botorch_bandits.models.bandit_gp import BanditGP, ModelBuilder, keeps_rows_apart
from botorch_bandits.models.closed_form import ClosedForm

FEWEST_ROWS = 256
"""With fewer rows, nothing is merged, because there is little to gain."""

FEWEST_BETWEEN = 64
"""The smallest number of rows between two checkpoints."""

MOST_PLACES = 0.5
"""Merging begins when there are at most this many places per row."""


def next_checkpoint(num_rows: int, num_places: int) -> int:
    """Return the number of rows at the checkpoint that follows a given one.

    Args:
        num_rows: The number of rows at the given checkpoint.
        num_places: The number of distinct places of these rows.

    Example:
        >>> next_checkpoint(256, 20), next_checkpoint(20000, 1000)
        (320, 20250)
    """
    return num_rows + max(FEWEST_BETWEEN, num_places // 4)


class Places:
    """The distinct places of rows in order of first appearance; further rows may be appended."""

    def __init__(self) -> None:
        """Begin without rows."""
        self._rows: Tensor | None = None
        self._numbers: dict[bytes, int] = {}
        self._place_of_row: list[int] = []
        self._checkpoint, self._next = 0, FEWEST_ROWS
        self._merges = False

    def num_merged(self, X: Tensor) -> int:
        """Take in the rows and return how many of them are to be merged; 0 for none.

        Args:
            X: ``n x d``: the rows of the last call, followed by further ones; any others start
                over.
        """
        known = self._rows
        if known is not None and not (
            known.shape[1:] == X.shape[1:]
            and len(known) <= len(X)
            and torch.equal(X[: len(known)], known)
        ):
            self.__init__()  # type: ignore[misc]
        start = len(self._place_of_row)
        new = X[start:].detach().cpu() + 0.0  # -0.0 becomes 0.0
        for row in new.numpy():
            number = self._numbers.setdefault(row.tobytes(), len(self._numbers))
            self._place_of_row.append(number)
            if len(self._place_of_row) == self._next:
                self._look()
        self._rows = X.clone()  # the caller may reuse the memory
        return self._checkpoint if self._merges else 0

    def of_rows(self, num_rows: int) -> Tensor:
        """Return the places of the first rows, ``num_rows`` integers."""
        return torch.tensor(self._place_of_row[:num_rows])

    def _look(self) -> None:
        num_rows, num_places = len(self._place_of_row), len(self._numbers)
        self._checkpoint, self._next = num_rows, next_checkpoint(num_rows, num_places)
        self._merges = self._merges or num_places <= MOST_PLACES * num_rows


def merge(X: Tensor, Y: Tensor, places: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
    """Return one row per place instead of one per observation.

    Args:
        X: ``N x d`` inputs.
        Y: ``N x 1`` outcomes.
        places: ``N`` integers from 0, in order of first appearance; rows at one place have equal
            inputs.

    Returns:
        ``m x d`` inputs in the order of the places; the ``m x 1`` means of their outcomes; ``m``
        counts, float64; the sum of squared deviations from the means.
    """
    places = places.to(Y.device)
    num_places = int(places.max()) + 1
    counts = torch.bincount(places, minlength=num_places).to(Y)
    means = torch.zeros_like(counts).index_add_(0, places, Y[:, 0]) / counts
    inputs = X.new_empty(num_places, X.shape[1])
    inputs[places] = X
    deviations = Y[:, 0] - means[places]
    return inputs, means.unsqueeze(-1), counts, float(deviations @ deviations)


@dataclass(frozen=True, eq=False)
class MergedModel:
    """A model with merged rows and what it was built from.

    Attributes:
        num_merged: The number of rows that were merged.
        Y: ``n x 1`` outcomes, before merging.
        kernel: The source of its hyperparameters; the same object implies the same hyperparameters.
        base: The posterior of the merged rows alone; None if it has no closed form.
        closed_form: The posterior of all rows.
        model: The model.
    """

    num_merged: int
    Y: Tensor
    kernel: Kernel
    base: ClosedForm | None
    closed_form: ClosedForm | None
    model: BanditGP


class MergingBuilder(ModelBuilder):
    """A :class:`ModelBuilder` that merges rows if they take few distinct places.

    Otherwise it builds the same models as its base class, to the last bit.

    Args:
        *args: As for the base class.
        **kwargs: As for the base class.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See the class."""
        super().__init__(*args, **kwargs)
        self._places = Places()
        self._latest_merged: list[MergedModel | None] = []
        self._keeps_apart = keeps_rows_apart(self._input_transform)

    def __call__(
        self, X: Tensor, Y: Tensor, weights: Tensor | None = None
    ) -> BanditGP | ModelListGP:
        if weights is not None:
            self._latest_merged = []
            return self._weighted(X, Y, weights)
        num_outputs = Y.shape[-1]
        # a joint draw takes as many random numbers as there are rows
        can_merge = self._can_merge and (num_outputs == 1 or self._separates_outputs is True)
        num_merged = self._places.num_merged(X) if can_merge else 0
        if num_merged == 0:
            self._latest_merged = []
            return super().__call__(X, Y)
        self._latest = None
        kernel, noise = self._hyperparameters(X, Y)
        if len(self._latest_merged) != num_outputs:
            self._latest_merged = [None] * num_outputs
        if num_outputs == 1:
            return self._merged(0, X, Y, num_merged, kernel, noise)
        assert self._build_outputs is not None
        self._build_outputs.forget()
        kernels = self._build_outputs.kernels(kernel, num_outputs)
        return ModelListGP(
            *(
                self._merged(
                    j,
                    X,
                    Y[:, j : j + 1],
                    num_merged,
                    kernels[j],
                    noise[j] if isinstance(noise, Tensor) and noise.dim() else noise,
                )
                for j in range(num_outputs)
            )
        )

    def _merges_weighted(self, X: Tensor) -> bool:
        if not self._can_merge or len(X) < FEWEST_ROWS:
            return False
        return len(torch.unique(X, dim=0)) <= MOST_PLACES * len(X)

    def distinct(self, X: Tensor) -> Tensor:
        """Return the inputs of the last model's rows if there are fewer of them, otherwise ``X``.

        Args:
            X: ``n x d``; the inputs from which the last model was built.
        """
        if not self._latest_merged or self._latest_merged[0] is None:
            return X
        return self._latest_merged[0].model._raw_inputs

    def _merged(
        self, output: int, X: Tensor, Y: Tensor, num_merged: int, kernel: Kernel, noise: Any
    ) -> BanditGP:
        """Return the model of one output, and keep it for the next round."""
        places = self._places.of_rows(num_merged)
        inputs, means, repeats, squares = merge(X[:num_merged], Y[:num_merged], places)
        build = self._builder_of(kernel, noise, squares)
        known = self._latest_merged[output]
        is_known = known is not None and known.num_merged == num_merged and known.kernel is kernel
        model = build(
            torch.cat([inputs, X[num_merged:]]),
            torch.cat([means, Y[num_merged:]]),
            torch.cat([repeats, repeats.new_ones(len(X) - num_merged)]),
        )
        base = closed_form = None
        if self._keeps_apart:
            num_places = len(inputs)
            if is_known and known is not None and known.base is not None:
                base = known.base.with_outcomes(means.squeeze(-1))
            else:
                base = build(inputs, means, repeats).factored
            start, closed_form = num_merged, base
            if (
                is_known
                and known is not None
                and known.closed_form is not None
                and torch.equal(known.Y, Y[: len(known.Y)])
            ):
                start, closed_form = len(known.Y), known.closed_form
            if closed_form is not None and start < len(X):
                points = model.train_inputs[0][num_places + start - num_merged :]
                closed_form = closed_form.with_rows(points, Y[start:, 0])
            if closed_form is not None:
                model._remember(closed_form)
        self._latest_merged[output] = MergedModel(
            num_merged, Y.clone(), kernel, base, closed_form, model
        )
        return model

    def _builder_of(
        self, kernel: Kernel, noise: Any, squares: float
    ) -> Callable[[Tensor, Tensor, Tensor], BanditGP]:
        def build(X: Tensor, Y: Tensor, repeats: Tensor) -> BanditGP:
            given = {"repeats": repeats, "within_sum_of_squares": squares}
            return self._build(X, Y, kernel, noise, **given)

        return build

    def _refit(self, X: Tensor, Y: Tensor) -> tuple[Kernel, Tensor]:
        """Fit to one row per place if the rows to be fitted take few places."""
        self._fits_collapsed = (
            self._can_merge
            and Y.shape[-1] == 1
            and len(X) >= FEWEST_ROWS
            and StationaryKernel.read(self._first_kernel) is not None
            and len(torch.unique(X, dim=0)) <= MOST_PLACES * len(X)
        )
        return super()._refit(X, Y)

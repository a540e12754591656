r"""Exact merging of rows on boxes if the inputs take few distinct values.

Observations :math:`y_1, \dots, y_c` at one place are equivalent to one observation of their mean
with the noise variance :math:`\lambda / c`: the posterior, the realized information gain and, with
the squared deviations from the means, the marginal likelihood are those of all rows. A loop that
returns to ``m`` places therefore pays for only ``m`` rows, regardless of the number of outcomes.
Whether rows are merged depends only on the inputs.
"""

from __future__ import annotations

from typing import Any

import torch
from botorch.models import ModelListGP
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.core.kernels import StationaryKernel
from botorch_bandits.models.bandit_gp import BanditGP, ModelBuilder
from botorch_bandits.models.likelihoods import CollapsedRows, collapse

FEWEST_ROWS = 256
"""With fewer rows, nothing is merged, because there is little to gain."""

MOST_PLACES = 0.5
"""Rows are merged if there are at most this many places per row."""


class Places:
    """The distinct places of rows in order of first appearance, for rows that only come."""

    def __init__(self) -> None:
        """Begin without rows."""
        self._rows: Tensor | None = None
        self._numbers: dict[bytes, int] = {}
        self._of_rows: list[int] = []

    def of(self, X: Tensor) -> Tensor:
        """Return the places of ``n x d`` rows, ``n`` integers.

        Args:
            X: The rows of the last call, followed by further ones; any others start over.
        """
        known = self._rows
        if known is not None and not torch.equal(X[: len(known)], known):
            self._numbers, self._of_rows = {}, []
        new = X[len(self._of_rows) :].detach().cpu() + 0.0  # -0.0 becomes 0.0
        self._of_rows += [
            self._numbers.setdefault(row.tobytes(), len(self._numbers)) for row in new.numpy()
        ]
        self._rows = X.clone()  # the caller may reuse the memory
        return torch.tensor(self._of_rows, dtype=torch.long, device=X.device)


class MergingBuilder(ModelBuilder):
    """A :class:`ModelBuilder` that merges rows if they take few distinct places.

    Args:
        *args: As for the base class.
        **kwargs: As for the base class.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See the class."""
        super().__init__(*args, **kwargs)
        self._places = Places()
        self._merged_inputs: Tensor | None = None

    def __call__(
        self, X: Tensor, Y: Tensor, weights: Tensor | None = None
    ) -> BanditGP | ModelListGP:
        self._merged_inputs = None
        num_outputs = Y.shape[-1]
        is_plain = weights is None and (num_outputs == 1 or self._separates_outputs)
        if not is_plain or not self._merges(X):
            return super().__call__(X, Y, weights)
        self._latest = None
        kernel, noise = self._hyperparameters(X, Y)
        kernels, levels = [kernel], [noise]
        if num_outputs > 1:
            assert self._build_outputs is not None
            self._build_outputs.forget()
            kernels = self._build_outputs.kernels(kernel, num_outputs)
            levels = list(torch.as_tensor(noise).expand(num_outputs))
        columns = zip(Y.split(1, dim=-1), kernels, levels, strict=True)
        models = [self._build_collapsed(X, *column) for column in columns]
        self._merged_inputs = models[0]._raw_inputs
        return models[0] if num_outputs == 1 else ModelListGP(*models)

    def distinct(self, X: Tensor) -> Tensor:
        return X if self._merged_inputs is None else self._merged_inputs

    def _merges(self, X: Tensor) -> bool:
        if not self._can_merge or len(X) < FEWEST_ROWS:
            return False
        return int(self._places.of(X).max()) + 1 <= MOST_PLACES * len(X)

    def _merges_weighted(self, X: Tensor) -> bool:
        return self._merges(X)

    def _collapsed(self, X: Tensor, Y: Tensor) -> CollapsedRows:
        return collapse(X, Y, places=self._places.of(X))

    def _refit(self, X: Tensor, Y: Tensor) -> tuple[Kernel, Tensor]:
        """Fit to one row per place if the rows to be fitted take few places."""
        is_stationary = StationaryKernel.read(self._first_kernel) is not None
        self._fits_collapsed = Y.shape[-1] == 1 and is_stationary and self._merges(X)
        return super()._refit(X, Y)

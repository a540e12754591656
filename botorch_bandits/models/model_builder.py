"""Model builders: from rows of data to a model, again and again, refitted only when it is due.

A loop builds its model anew whenever its data change. A builder continues the last model row by row
where that gives the same model to the last bit, and learns hyperparameters in a chain of fits that
depends on the data alone, so that a rebuilt loop has the same ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP
from botorch.models.transforms.input import InputTransform, Normalize
from gpytorch.kernels import Kernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bandits.confidence.prior import learns_input_scale
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.models.growing import IncrementalGP
from botorch_bandits.models.kernels import StationaryKernel, kernel_of_output
from botorch_bandits.models.likelihoods import collapse_repeats
from botorch_bandits.models.marginal_likelihood import log_marginal_likelihood
from botorch_bandits.random_streams import derive_seed, seeded_globally


@dataclass(frozen=True, eq=False)
class BuiltModel:
    """A model and what it was built from.

    Attributes:
        X: ``n x d``.
        Y: ``n x m``.
        kernel: Where its hyperparameters came from; the same object means the same ones.
        model: The model.
        parameters: Copies of its parameters as they were built.
    """

    X: Tensor
    Y: Tensor
    kernel: Kernel
    model: IncrementalGP
    parameters: list[Tensor]

    @classmethod
    def remember(cls, X: Tensor, Y: Tensor, kernel: Kernel, model: IncrementalGP) -> BuiltModel:
        """Copy what may change under a builder's hands: the caller may reuse the memory."""
        parameters = [parameter.detach().clone() for parameter in model.parameters()]
        return cls(X.clone(), Y.clone(), kernel, model, parameters)

    def continued(
        self, X: Tensor, Y: Tensor, kernel: Kernel, transform: InputTransform | None
    ) -> IncrementalGP | None:
        """Return the model that would be built from ``X`` and ``Y``, to the last bit.

        Rows are added or outcomes replaced in ``n^2`` operations.

        Args:
            X: ``n' x d`` inputs.
            Y: ``n' x m`` outcomes.
            kernel: Where the hyperparameters now come from.
            transform: The input transform of the model.

        Returns:
            None if this model cannot become it: other hyperparameters, other first inputs, or a
            model that does not grow row by row.
        """
        num_known = self.X.shape[0]
        if (
            kernel is not self.kernel
            or not _keeps_rows_apart(transform)
            or not all(isinstance(rows, Tensor) and rows.dtype == self.X.dtype for rows in (X, Y))
            or X.shape[1:] != self.X.shape[1:]
            or Y.shape != (X.shape[0], 1)
            or X.shape[0] < num_known
            or not torch.equal(X[:num_known], self.X)
            or not self._is_left_as_it_was()
            or not self.model.grows()
        ):
            return None
        model = self.model
        if X.shape[0] == num_known or not torch.equal(Y[:num_known], self.Y):
            model = model.with_outcomes(Y[:num_known])
        if X.shape[0] > num_known:
            grown = model.condition_on_observations(X[num_known:], Y[num_known:])
            model = cast(IncrementalGP, grown)
        return model

    def _is_left_as_it_was(self) -> bool:
        found = list(self.model.parameters())
        return len(found) == len(self.parameters) and all(map(torch.equal, found, self.parameters))


def _keeps_rows_apart(transform: InputTransform | None) -> bool:
    """Whether a transformed row is the same, to the last bit, whatever the other rows are."""
    return transform is None or (type(transform) is Normalize and not learns_input_scale(transform))


class RefitWarning(RuntimeWarning):
    """A marginal-likelihood fit failed; the starting hyperparameters are used instead."""


class ModelBuilder:
    """Builds models from rows, continues the last one and remembers its refits.

    Args:
        model_class: What builds a model from inputs, outcomes, ``kernel=``, ``noise=`` and, for
            rows that are means, ``repeats=`` and ``within_sum_of_squares=``.
        kernel: With its starting hyperparameters.
        noise: The noise variance, or its starting value.
        refit_every: Rows between refits of the hyperparameters; None for never.
        input_transform: What ``model_class`` applies to inputs.
        seed: Seeds what a fit may draw when it retries.
        collapses: Make one row of all observations of an input, for one output.
        separates_outputs: Build one model for each output where there are several.
    """

    def __init__(
        self,
        model_class: Callable[..., IncrementalGP],
        kernel: Kernel,
        noise: float,
        *,
        refit_every: int | None,
        input_transform: InputTransform | None,
        seed: int,
        collapses: bool = False,
        separates_outputs: bool = False,
    ) -> None:
        """See the class."""
        # what a transform learns from the rows may depend on how often each is there
        collapses = collapses and not learns_input_scale(input_transform)
        self._collapses = collapses
        # BoTorch's own fit knows nothing of repeated rows
        self._fits_collapsed = collapses and StationaryKernel.read(kernel) is not None
        self._model_class = model_class
        self._first_kernel = kernel
        self._first_noise = noise
        self._refit_every = refit_every
        self._input_transform = input_transform
        self._seed = seed
        self._rows: tuple[Tensor, Tensor] | None = None
        self._fitted: list[tuple[Kernel, Tensor]] = []  # to refit_every rows, twice as many, ...
        self._latest: BuiltModel | None = None
        self._separates_outputs = separates_outputs
        self._latest_of_outputs: list[BuiltModel | None] = []
        self._kernel_of_all: Kernel | None = None  # the one that those of the outputs came from
        self._kernels: list[Kernel] = []

    @property
    def latest_fit(self) -> tuple[int, Kernel, Tensor] | None:
        """To how many rows hyperparameters were last fitted, and which; None before that."""
        every = self._refit_every
        if every is None or not self._fitted:
            return None
        return (len(self._fitted) * every, *self._fitted[-1])

    def __call__(self, X: Tensor, Y: Tensor) -> IncrementalGP | ModelListGP:
        """Return the model of ``n x d`` inputs and ``n x m`` outcomes."""
        kernel: Kernel = self._first_kernel
        noise: float | Tensor = self._first_noise
        every = self._refit_every
        num_fitted = 0 if every is None else X.shape[0] // every * every
        if num_fitted > 0:
            kernel, noise = self._fit(X[:num_fitted], Y[:num_fitted])
        if self._collapses and Y.shape[-1] == 1:
            return self._build_collapsed(X, Y, kernel, noise)
        if self._separates_outputs and Y.shape[-1] > 1:
            return self._build_separately(X, Y, kernel, noise)
        self._latest = self._continue(self._latest, X, Y, kernel, noise)
        return self._latest.model

    def _continue(
        self,
        latest: BuiltModel | None,
        X: Tensor,
        Y: Tensor,
        kernel: Kernel,
        noise: float | Tensor,
    ) -> BuiltModel:
        model: IncrementalGP | None = None
        if latest is not None:
            model = latest.continued(X, Y, kernel, self._input_transform)
        if model is None:
            # the caller may reuse the memory, which later models continue
            model = self._build(_own(X), _own(Y), kernel, noise)
        return BuiltModel.remember(X, Y, kernel, model)

    def _build_separately(
        self, X: Tensor, Y: Tensor, kernel: Kernel, noise: float | Tensor
    ) -> ModelListGP:
        """Return one model for each output, with its part of the hyperparameters of all."""
        columns = Y.split(1, dim=-1)
        if kernel is not self._kernel_of_all or len(columns) != len(self._kernels):
            self._kernel_of_all = kernel
            self._kernels = [kernel_of_output(kernel, j) for j in range(len(columns))]
            self._latest_of_outputs = [None] * len(columns)
        built = [
            self._continue(
                self._latest_of_outputs[j],
                X,
                column,
                self._kernels[j],
                noise[j] if isinstance(noise, Tensor) and noise.dim() else noise,
            )
            for j, column in enumerate(columns)
        ]
        self._latest_of_outputs = list(built)
        return ModelListGP(*(each.model for each in built))

    def _build(
        self, X: Tensor, Y: Tensor, kernel: Kernel, noise: float | Tensor, **repeats: Any
    ) -> IncrementalGP:
        return self._model_class(X, Y, kernel=kernel, noise=noise, **repeats)

    def _build_collapsed(
        self, X: Tensor, Y: Tensor, kernel: Kernel, noise: float | Tensor
    ) -> IncrementalGP:
        distinct, means, repeats, squares = collapse_repeats(X, Y)
        return self._build(
            distinct, means, kernel, noise, repeats=repeats, within_sum_of_squares=squares
        )

    def _fit(self, X: Tensor, Y: Tensor) -> tuple[Kernel, Tensor]:
        every = self._refit_every
        assert every is not None
        del self._fitted[self._count_known_rows(X, Y) // every :]
        self._rows = (X.clone(), Y.clone())  # the caller may reuse the memory
        for num_rows in range((len(self._fitted) + 1) * every, X.shape[0] + 1, every):
            self._fitted.append(self._refit(X[:num_rows], Y[:num_rows]))
        return self._fitted[X.shape[0] // every - 1]

    def _count_known_rows(self, X: Tensor, Y: Tensor) -> int:
        """Return how many of the first rows are those of the last call."""
        if self._rows is None or self._rows[1].shape[1:] != Y.shape[1:]:
            return 0
        known_X, known_Y = (rows[: X.shape[0]] for rows in self._rows)
        num_known = known_X.shape[0]
        changed = (known_X != X[:num_known]).any(-1) | (known_Y != Y[:num_known]).any(-1)
        return int(changed.int().argmax()) if bool(changed.any()) else num_known

    def _refit(self, X: Tensor, Y: Tensor) -> tuple[Kernel, Tensor]:
        build = self._build_collapsed if self._fits_collapsed else self._build
        model = build(X, Y, self._first_kernel, self._first_noise)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        if self._fitted:
            previous = build(X, Y, *self._fitted[-1])
            previous_mll = ExactMarginalLogLikelihood(previous.likelihood, previous)
            if log_marginal_likelihood(previous_mll) > log_marginal_likelihood(mll):
                model, mll = previous, previous_mll
        try:
            with seeded_globally(derive_seed(self._seed, X.shape[0], "refit")):
                fit_gpytorch_mll(mll)
        except ModelFittingError as error:
            warnings.warn(
                f"the marginal-likelihood fit to {X.shape[0]} rows failed ({error}); the recipe's "
                "starting hyperparameters are used. A ScaleKernel, other starting values or "
                "rescaled rewards usually help.",
                RefitWarning,
                stacklevel=5,
            )
            model = build(X, Y, self._first_kernel, self._first_noise)
        noise = model.likelihood.noise.detach()
        lowest = model.likelihood.noise_covar.raw_noise_constraint.lower_bound
        # a fit may round to the open end of the interval, where no model can be built
        noise = noise.clamp_min(torch.nextafter(lowest, lowest + 1.0))
        return model.covar_module, noise.squeeze(-1)


def _own(rows: Tensor) -> Tensor:
    return rows.clone() if isinstance(rows, Tensor) else rows


fill_in_docstrings(__name__)

r"""Builds the models of a loop from its rows, extends the last one, and remembers fits.

**Rows of one place.** Observations :math:`y_1, \dots, y_c` at one place are equivalent to one
observation of their mean with the noise variance :math:`\lambda / c`: the posterior, the realized
information gain and, with the squared deviations from the means, the marginal likelihood are those
of all rows. A loop that returns to ``m`` places therefore pays for only ``m`` rows, regardless of
the number of outcomes. Whether rows are merged depends only on the inputs.

**Fits.** The hyperparameters for ``n`` rows come from a chain of fits, to the first ``refit_every``
rows, the first ``2 * refit_every`` and so on. Each starts from the recipe's starting values or from
the fit before it, whichever has the greater likelihood at its rows. Hyperparameters thus depend on
the data alone, not on which models were built before. Fits are kept by a digest of their rows, so
that only those are made again whose rows have changed. A loop that is opened again continues from
the last recorded fit, if its digest is that of the rows.

**Several outputs** are independent, so that each has a model of its own. Outputs that share a fixed
prior differ only in their outcomes and share the factor of the kernel matrix.
"""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP
from gpytorch.kernels import Kernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bandits.confidence.prior_reading import learns_input_scale
from botorch_bandits.core.box import BoxPosterior
from botorch_bandits.core.kernels import kernel_of_output, smoothness_of_whole
from botorch_bandits.models.fits import log_marginal_likelihood
from botorch_bandits.models.likelihoods import collapse, places_of
from botorch_bandits.models.noise_floor import SMALLEST_RATIO, output_scale_of
from botorch_bandits.random_streams import derive_seed, seeded_globally

if TYPE_CHECKING:
    from botorch_bandits.models.bandit_gp import BanditGP, BanditGPRecipe

FEWEST_ROWS = 16
"""With fewer rows, nothing is merged, because there is little to gain."""

MOST_PLACES = 0.5
"""Rows are merged if there are at most this many places per row."""

RECORDED = ("num_rows", "kernel", "noise", "digest")
"""What is recorded of a fit."""

Hyperparameters = tuple[Kernel, float | Tensor]


class RefitWarning(RuntimeWarning):
    """A marginal-likelihood fit failed; the starting hyperparameters are used instead."""


class ModelBuilder:
    """Builds models from rows, extends the last model and remembers its refits.

    Args:
        recipe: Everything about the models except the data.
        seed: The seed of the random numbers that a fit may draw when it retries.
        merges: Whether to merge all observations of an input into one row if the inputs take few
            places.
    """

    def __init__(self, recipe: BanditGPRecipe, seed: int, merges: bool = False) -> None:
        """See the class."""
        self._recipe, self._seed = recipe, seed
        # otherwise a transformed row depends on the other rows, and on how often each occurs
        self._keeps_rows_apart = not learns_input_scale(recipe.input_transform)
        self._merges = merges and self._keeps_rows_apart
        self._has_one_prior = recipe.refit_every is None and not recipe.kernel.batch_shape
        self._of_outputs: list[ModelBuilder] = []
        # the last model, the source of its hyperparameters, and its posterior as it was built
        self._latest: tuple[BanditGP, Kernel, BoxPosterior | None] | None = None
        self._first: Hyperparameters = recipe.kernel, recipe.noise
        self._fits: dict[str, Hyperparameters] = {}  # by a digest of their rows
        self._last_fit: tuple[int, str] | None = None  # the number of its rows, and their digest

    def __call__(self, X: Tensor, Y: Tensor, weights: Tensor | None = None) -> Any:
        """Return the model of ``n x d`` inputs and ``n x m`` outcomes, a list if ``m > 1``.

        With ``n`` weights, row ``i`` has the noise variance ``noise / weights[i]``. Such a model is
        rebuilt in each call, and its hyperparameters are fixed.
        """
        columns = Y.split(1, dim=-1)
        if len(columns) > 1 and not self._has_one_prior:
            builders = self._builders(len(columns))
            pairs = zip(builders, columns, strict=True)
            return ModelListGP(*(builder(X, column, weights) for builder, column in pairs))
        kernel, noise = self._hyperparameters(X, Y)
        num_outcomes = None if weights is None else len(X)
        places = self._places(X)
        if places is not None:
            X, Y, weights, squares = collapse(X, Y, weights, places)
        if weights is None:
            model = self._continued(X, Y[:, :1], kernel, noise)
        else:
            squares = 0.0 if places is None else squares
            model = self._model(X, Y[:, :1], (kernel, noise), weights, squares)
            model.num_outcomes = num_outcomes
        others = [model.with_outcomes(column) for column in Y.split(1, dim=-1)[1:]]
        return ModelListGP(model, *others) if others else model

    def latest_fit(self) -> dict[str, Any] | None:
        """Return the last fit and its rows as exact plain values; None before any fit.

        Several outputs have a list of each value.
        """
        if self._of_outputs:
            fits = [builder.latest_fit() or {} for builder in self._of_outputs]
            return {name: [fit[name] for fit in fits] for name in fits[0]} or None
        if self._last_fit is None:
            return None
        num_rows, digest = self._last_fit
        kernel, noise = self._fits[digest]
        # raw, as in PyTorch
        raw = {name: value.tolist() for name, value in kernel.named_parameters()}
        return {"num_rows": num_rows, "kernel": raw, "noise": float(noise), "digest": digest}

    def restore_fit(self, fit: Mapping[str, Any], X: Tensor, Y: Tensor) -> bool:
        """Continue from a recorded fit if it was made to these rows.

        Args:
            fit: From :meth:`latest_fit`.
            X: ``n x d`` inputs, the first of which are those of the fit.
            Y: ``n x m`` outcomes.

        Returns:
            Whether the builder continues from the fit.
        """
        columns = Y.split(1, dim=-1)
        if len(columns) > 1:
            own = [{name: fit[name][j] for name in RECORDED} for j in range(len(columns))]
            of_each = zip(self._builders(len(columns)), own, columns, strict=True)
            done = [builder.restore_fit(part, X, column) for builder, part, column in of_each]
            return all(done)
        num_rows, digest = fit["num_rows"], fit["digest"]
        if digest != _digest(X[:num_rows], Y[:num_rows]):
            return False
        kernel = copy.deepcopy(self._recipe.kernel).to(X)
        for name, parameter in kernel.named_parameters():
            parameter.data = X.new_tensor(fit["kernel"][name])
        self._fits[digest] = kernel, X.new_tensor(fit["noise"])
        self._last_fit = num_rows, digest
        return True

    def _builders(self, num_outputs: int) -> list[ModelBuilder]:
        if len(self._of_outputs) != num_outputs:
            kernels = (kernel_of_output(self._recipe.kernel, j) for j in range(num_outputs))
            self._of_outputs = [
                ModelBuilder(replace(self._recipe, kernel=kernel), self._seed, self._merges)
                for kernel in kernels
            ]
        return self._of_outputs

    def _places(self, X: Tensor) -> Tensor | None:
        """Return the places of the rows (``n``) if they are to be merged."""
        if not self._merges or len(X) < FEWEST_ROWS:
            return None
        places = places_of(X)
        return places if int(places.max()) + 1 <= MOST_PLACES * len(X) else None

    def _model(
        self,
        X: Tensor,
        y: Tensor,
        hyperparameters: Hyperparameters,
        repeats: Tensor | None = None,
        squares: float = 0.0,
    ) -> BanditGP:
        recipe, (kernel, noise) = self._recipe, hyperparameters
        return recipe.model_class(
            X.clone(),  # the caller may reuse the memory, which later models continue
            y.clone(),
            kernel=kernel,
            noise=noise,
            learn_hyperparameters=recipe.refit_every is not None,
            input_transform=recipe.input_transform,
            repeats=repeats,
            within_sum_of_squares=squares,
            prior_mean=recipe.prior_mean,
        )

    def _continued(self, X: Tensor, y: Tensor, kernel: Kernel, noise: float | Tensor) -> BanditGP:
        """Return the model of ``n x d`` inputs and ``n x 1`` outcomes.

        If it continues the last one, rows are added or outcomes replaced in ``n^2`` operations.
        """
        model: BanditGP | None = None
        if self._latest is not None and self._latest[1] is kernel and self._keeps_rows_apart:
            last, _, box = self._latest
            n = last.num_rows
            if n and box is not None and last.closed_form is box:
                if torch.equal(X, last.raw_inputs):
                    model = last.with_outcomes(y)
                elif torch.equal(X[:n], last.raw_inputs):
                    present = y[:n, 0]
                    model = last.with_rows(X[n:], y[n:], box.with_outcomes(present), present)
        if model is None:
            model = self._model(X, y, (kernel, noise))
        self._latest = model, kernel, model.closed_form
        return model

    def _hyperparameters(self, X: Tensor, y: Tensor) -> Hyperparameters:
        every, found = self._recipe.refit_every, self._first
        if every is None:
            return found
        missing: list[tuple[int, str]] = []
        for n in range(len(X) // every * every, 0, -every):
            place = n, _digest(X[:n], y[:n])
            if not missing:
                self._last_fit = place
            if place[1] in self._fits:
                found = self._fits[place[1]]
                break
            missing.append(place)
        for n, digest in reversed(missing):
            found = self._fits[digest] = self._refit(X[:n], y[:n], found)
        return found

    def _refit(self, X: Tensor, y: Tensor, previous: Hyperparameters) -> Hyperparameters:
        num_rows, repeats, squares = len(X), None, 0.0
        # BoTorch's own fit does not support repeated rows
        is_stationary = smoothness_of_whole(self._recipe.kernel) is not None
        places = self._places(X) if is_stationary else None
        if places is not None:
            X, y, repeats, squares = collapse(X, y, None, places)
        starts = (self._first, previous)
        models = [self._model(X, y, start, repeats, squares) for start in starts]
        # the first of equally likely ones
        mll = max(
            (ExactMarginalLogLikelihood(model.likelihood, model) for model in models),
            key=log_marginal_likelihood,
        )
        model: Any = mll.model
        try:
            with seeded_globally(derive_seed(self._seed, num_rows, "refit")):
                fit_gpytorch_mll(mll)
        except ModelFittingError as error:
            warnings.warn(
                f"the marginal-likelihood fit to {num_rows} rows failed ({error}); the recipe's "
                "starting hyperparameters are used. A ScaleKernel, other starting values or "
                "rescaled rewards usually help.",
                RefitWarning,
                stacklevel=5,
            )
            model = self._model(X, y, self._first, repeats, squares)
        # a fit may round to the smallest noise, with which no model can be built
        lowest = (1.0 + 1e-6) * SMALLEST_RATIO * output_scale_of(model.covar_module)
        noise = torch.maximum(model.likelihood.noise.detach(), lowest)
        return model.covar_module, noise.squeeze(-1)


def _digest(X: Tensor, Y: Tensor) -> str:
    rows = torch.cat([X, Y], dim=-1).detach().cpu()
    return hashlib.sha256(rows.numpy().tobytes()).hexdigest()

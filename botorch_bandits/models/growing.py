"""Exact Gaussian processes whose posterior is a function of points, and grows row by row.

This applies to models without batches and with fixed inputs. In all other cases, BoTorch and
GPyTorch handle the same data as for any ``SingleTaskGP``. Several outputs are independent, so that
they are a ``ModelListGP`` with one such model each.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Self

import botorch.settings
import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.mlls import MarginalLogLikelihood
from linear_operator.operators import DenseLinearOperator
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_double, check_finite
from botorch_bandits.confidence.prior_reading import outcome_units, part_of, read_prior
from botorch_bandits.confidence.width_rules import PriorSummary
from botorch_bandits.core.box import BoxPosterior, IndefiniteError
from botorch_bandits.core.kernels import kernel_function
from botorch_bandits.models.fits import fit_marginal_likelihood


class LeanPosterior(GPyTorchPosterior):
    """BoTorch's posterior of one output, from marginals that are already known.

    Analytic acquisition functions need only mean and variance; building a GPyTorch distribution
    would take longer than computing them. Sampling, quantiles and posterior transforms work as with
    any ``GPyTorchPosterior``.

    Args:
        mean: ``batch_shape x q``.
        variance: ``batch_shape x q``, with the observation noise if that was requested.
        covariance: Computes the ``batch_shape x q x q`` covariance; not needed at ``q = 1``.
    """

    def __init__(
        self, mean: Tensor, variance: Tensor, covariance: Callable[[], Tensor] | None = None
    ) -> None:
        """See the class."""
        self._marginal_mean = mean
        self._marginal_variance = variance
        self._covariance = covariance
        self._is_mt = False
        self._device = mean.device
        self._dtype = mean.dtype

    @cached_property
    def distribution(self) -> MultivariateNormal:
        """The joint distribution, built on first use."""
        alone = self._marginal_variance.unsqueeze(-1)
        covariance = alone if self._covariance is None else self._covariance()
        return MultivariateNormal(self._marginal_mean, DenseLinearOperator(covariance))

    @property
    def mean(self) -> Tensor:
        """The posterior mean, ``batch_shape x q x 1``."""
        return self._marginal_mean.unsqueeze(-1)

    @property
    def variance(self) -> Tensor:
        """The posterior variance, ``batch_shape x q x 1``."""
        return self._marginal_variance.unsqueeze(-1)


def closed_form_of(model: Any) -> BoxPosterior | None:
    """Return the posterior of raw outcomes as a function of raw points, if it has that form.

    Args:
        model: Any model; it is put into evaluation mode, as its own ``posterior`` does.
    """
    if isinstance(model, IncrementalGP):
        return model.eval().closed_form
    is_stock = type(model) is SingleTaskGP  # a subclass may have another posterior
    return box_posterior_of(model.eval()) if is_stock else None


def box_posterior_of(model: SingleTaskGP) -> BoxPosterior | None:
    """Condition on the rows of a model whose posterior follows from them by textbook formulas.

    It must be in evaluation mode and have one output, no batches, float64 data, a prior that can be
    read, a constant mean, and input transforms that map each row to one row both in training and in
    evaluation.

    Args:
        model: The model.

    Returns:
        The posterior of raw outcomes at raw points; None if it is not such a model, or the kernel
        matrix cannot be factorized in float64.
    """
    inputs, targets = model.train_inputs[0], model.train_targets
    transform = part_of(model, "input_transform")
    if (
        model.training
        or model.num_outputs != 1
        or model.covar_module.batch_shape
        or (inputs.dim(), targets.dim()) != (2, 1)
        or inputs.dtype != DTYPE
        or inputs.requires_grad
        or targets.requires_grad
        or (transform is not None and not _keeps_rows(transform))
    ):
        return None
    # results that are computed in inference mode must be usable outside of it
    with torch.inference_mode(False), torch.no_grad():
        try:
            (prior,), (scale, offset) = read_prior(model), outcome_units(model)
            if prior.prior_mean is None:
                return None
            # another unit of outcomes changes a Gaussian process the same way
            variance, rows = scale.square(), prior.row_noise
            level = variance * (prior.noise_variance if rows is None else rows.mean())
            repeats = part_of(model, "repeats")
            if repeats is not None:
                rows = prior.noise_variance / repeats
            return BoxPosterior.of(
                kernel_function(model.covar_module, inputs.shape[-1], float(variance)),
                inputs,
                offset + scale * targets,
                level,
                offset + scale * prior.prior_mean,
                None if rows is None else variance * rows,
                transform,
            )
        except ValueError:  # the prior cannot be read, or the matrix is indefinite
            return None


def _keeps_rows(transform: Any) -> bool:
    is_always_on = transform.transform_on_train and transform.transform_on_eval
    return bool(is_always_on and not transform.is_one_to_many)


class IncrementalGP(SingleTaskGP):
    """Exact Gaussian process whose posterior grows by one row in ``n^2`` operations.

    The posterior is computed with its first use, and again whenever the data or a parameter has
    changed since. Other changes, such as that of a buffer, of an outcome transform or of the
    smoothness of a kernel, count from the next call of ``train()`` on. Values have first-order
    gradients with respect to the inputs; gradients with respect to hyperparameters need ``train()``
    mode, as with any BoTorch model.
    """

    learn_hyperparameters: bool
    within_sum_of_squares: float | None = 0.0
    """Squared deviations of observations from the means that are rows; None if unknown."""

    _cached: tuple[BoxPosterior | None, Tensor] | None = None

    def __init__(self, train_X: Tensor, train_Y: Tensor, *args: Any, **kwargs: Any) -> None:
        """Build the model from the arguments of ``SingleTaskGP``.

        Args:
            train_X: ``batch_shape x n x d`` inputs.
            train_Y: ``batch_shape x n x 1`` outcomes.
            args: Further arguments of ``SingleTaskGP``.
            kwargs: Likewise, by name.

        Raises:
            ValueError: If there are several outputs.
        """
        if train_Y.shape[-1] != 1:
            raise ValueError(
                f"train_Y has shape {tuple(train_Y.shape)}, but {type(self).__name__} has one "
                "output, whose outcomes are batch_shape x n x 1. Pass a ModelListGP with one model "
                "for each output."
            )
        super().__init__(train_X, train_Y, *args, **kwargs)
        # GPyTorch's hook does nothing for a module without parameters of its own, but it refers to
        # the model, whose matrix would stay in memory until the garbage is collected
        self._load_state_dict_pre_hooks.clear()

    @property
    def num_rows(self) -> int:
        """The number of rows in the model (in each batch)."""
        return int(self.train_targets.shape[-1])

    @property
    def repeats(self) -> Tensor | None:
        """The number of observations of which each row is the mean; None if all are single."""
        return getattr(self.likelihood, "repeats", None)

    @property
    def closed_form(self) -> BoxPosterior | None:
        """The posterior of raw outcomes as a function of raw points.

        None if GPyTorch must compute it: in training mode, with batches, and with outcome
        transforms other than ``Standardize``.
        """
        if self.training or settings.prior_mode.on() or botorch.settings.propagate_grads.on():
            return None
        state = self._state()
        if self._cached is None or not _are_equal(self._cached[1], state):
            self._cached = box_posterior_of(self), state
        return self._cached[0]

    @property
    def information_gain(self) -> Tensor:
        """The realized gain ``1/2 ln det(I + K / lam)`` in nats, ``batch_shape``."""
        gain = PriorSummary(self).realized_information_gain()
        assert gain is not None
        return gain

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GPyTorchPosterior:
        """Return the posterior at ``X``; see BoTorch.

        Args:
            X: ``batch_shape x q x d``, raw. Each ``q x d`` is one joint distribution.
            output_indices: The outputs; all by default.
            observation_noise: Whether to add the noise variance, or a tensor of variances.
            posterior_transform: Applied to the posterior.
        """
        box = None if isinstance(observation_noise, Tensor) else self.closed_form
        if box is None or not self._can_answer(box, X):
            if observation_noise is True and self.repeats is not None:
                # the noise of one observation, even if there are as many points as rows
                observation_noise = self.likelihood.noise.expand(*X.shape[:-1], 1)
            return super().posterior(X, output_indices, observation_noise, posterior_transform)
        mean, variance = (each.view(X.shape[:-1]) for each in box.moments(X.flatten(0, -2)))
        # at prior variance 1, this is the smallest variance of GPyTorch
        lowest = settings.min_variance.value(X.dtype) * box.outputscale
        variance = (variance + box.noise if observation_noise else variance).clamp_min(lowest)
        joint = partial(_covariance, box, X, variance, torch.is_grad_enabled())
        posterior = LeanPosterior(mean, variance, joint if X.shape[-2] > 1 else None)
        if posterior_transform is not None:
            return posterior_transform(posterior=posterior, X=X)
        return posterior

    def _can_answer(self, box: BoxPosterior, X: Tensor) -> bool:
        is_alike = X.dtype == DTYPE and X.device == box.X.device
        return bool(
            is_alike and X.dim() > 1 and X.numel() and X.shape[-1] == self.raw_inputs.shape[-1]
        )

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> Model:
        """Return a new model with the rows ``(X, Y)`` added, as single observations.

        Args:
            X: ``batch_shape x n' x d`` inputs, raw.
            Y: ``batch_shape' x n' x 1`` outcomes; further leading dimensions are fantasies.
            kwargs: Passed on to BoTorch; if there are any, nothing is reused.
        """
        is_plain = not kwargs and X.dim() == Y.dim() == 2 and Y.shape[-1] == 1
        is_fixed = type(self.likelihood) is FixedNoiseGaussianLikelihood
        if is_plain and not (X.requires_grad or Y.requires_grad or is_fixed):
            box = self.closed_form
            if box is not None:
                return self.with_rows(X, Y, box, self.train_targets)
        if self.prediction_strategy is None:
            with torch.no_grad():  # GPyTorch extends only its own caches
                super().posterior(X[..., :1, :])
        return super().condition_on_observations(X, Y, **kwargs)

    def custom_fit(self, mll: MarginalLogLikelihood, **kwargs: Any) -> MarginalLogLikelihood:
        """Fit the hyperparameters; BoTorch's ``fit_gpytorch_mll`` calls this.

        It does nothing if nothing can be fitted (fixed hyperparameters, or no data). Otherwise it
        fits with closed-form gradients (see ``fit_marginal_likelihood``), or as BoTorch fits any
        other model where there is no closed form.

        Args:
            mll: The marginal log likelihood to maximize.
            **kwargs: The other arguments of ``fit_gpytorch_mll``.

        Returns:
            ``mll`` in evaluation mode.
        """
        if not self.learn_hyperparameters or self.num_rows == 0:
            return mll.eval()
        return fit_marginal_likelihood(mll, **kwargs)

    def with_outcomes(self, Y: Tensor) -> Self:
        """Return a new model with the same inputs and all outcomes replaced.

        This takes ``n^2`` operations, because the factor of the kernel matrix does not depend on
        outcomes.

        Args:
            Y: ``batch_shape x n x 1`` outcomes, float64.

        Raises:
            TypeError: If ``Y`` is not a float64 tensor.
            ValueError: If its shape differs from that of the present outcomes, or an entry is not
                finite.
        """
        check_finite("Y", check_double("Y", Y))
        if Y.shape != self.outcomes.shape:
            raise ValueError(
                f"Y has shape {tuple(Y.shape)}, but the outcomes it replaces have shape "
                f"{tuple(self.outcomes.shape)}; give one row for each input of the model."
            )
        box = self.closed_form
        with torch.inference_mode(False), torch.no_grad():
            targets = self._standardized(Y).squeeze(-1).clone()
            sibling = self._sibling(self.train_inputs[0], targets)
            if box is not None:
                sibling._cached = box.with_outcomes(Y.squeeze(-1)), sibling._state()
        return sibling

    def with_rows(self, X: Tensor, Y: Tensor, box: BoxPosterior, targets: Tensor) -> Self:
        """Return a new model with single observations added to present rows.

        Args:
            X: ``n' x d`` inputs, raw.
            Y: ``n' x 1`` outcomes.
            box: The closed form of the present rows.
            targets: ``n`` outcomes of the present rows, in the model's own units.
        """
        check_finite("X", check_double("X", X))
        check_finite("Y", check_double("Y", Y))
        raw = self.raw_inputs
        if X.shape[-1] != raw.shape[-1] or len(X) != len(Y):
            raise ValueError(
                f"X has shape {tuple(X.shape)} and Y {tuple(Y.shape)}; they must be n' x "
                f"{raw.shape[-1]} and n' x 1, because the model's inputs have {raw.shape[-1]} "
                "columns. A single point x becomes one row with x.unsqueeze(0)."
            )
        with torch.inference_mode(False), torch.no_grad():
            points = self.transform_inputs(X)
            inputs = torch.cat([self.train_inputs[0], points])
            targets = torch.cat([targets, self._standardized(Y).squeeze(-1)])
            sibling = self._sibling(inputs, targets)
            if raw is not self.train_inputs[0]:
                sibling._original_train_inputs = torch.cat([raw, X])
            if self.repeats is not None:
                ones = self.repeats.new_ones(len(X))
                sibling.likelihood.noise_covar.repeats = torch.cat([self.repeats, ones])
            try:
                grown = box.with_rows(points, Y.squeeze(-1))
            except IndefiniteError:  # the new model leaves it to GPyTorch
                grown = None
            sibling._cached = grown, sibling._state()
        return sibling

    def _sibling(self, inputs: Tensor, targets: Tensor) -> Self:
        """Return a model with other data and its own copies of the same hyperparameters."""
        sibling = copy.deepcopy(self)
        sibling.train_inputs, sibling.train_targets = (inputs,), targets
        return sibling

    @property
    def raw_inputs(self) -> Tensor:
        """``batch_shape x n x d`` inputs, before any transform."""
        # in evaluation mode, BoTorch keeps transformed inputs and stores the raw ones separately
        raw = None if self.training else vars(self).get("_original_train_inputs")
        return self.train_inputs[0] if raw is None else raw

    @property
    def outcomes(self) -> Tensor:
        """``batch_shape x n x 1`` outcomes in the model's own units."""
        return self.train_targets.unsqueeze(-1)

    def _standardized(self, Y: Tensor) -> Tensor:
        """Outcomes in the model's own units, without changing what the transform has learned."""
        # batch_shape x 1 x 1
        scale, shift = (each[..., None, None] for each in outcome_units(self))
        return (Y - shift) / scale

    def _state(self) -> Tensor:
        """Return the rows and the parameters, in one vector."""
        parts = (self.train_inputs[0], self.train_targets, *self.parameters())
        return torch.cat([each.detach().reshape(-1) for each in parts])

    def _clear_cache(self) -> None:
        super()._clear_cache()
        self._cached = None

    def __getstate__(self) -> dict[str, Any]:
        """Keep copies small: they factorize again on first use, maybe with other parameters."""
        return vars(self) | {"_cached": None, "prediction_strategy": None}


def _are_equal(one: Tensor, other: Tensor) -> bool:
    is_alike = one.dtype == other.dtype and one.device == other.device
    return is_alike and torch.equal(one, other)


def _covariance(box: BoxPosterior, points: Tensor, variance: Tensor, has_graph: bool) -> Tensor:
    """Return the joint covariance of ``... x q x d`` points, with these variances."""
    with torch.set_grad_enabled(has_graph):
        covariance = box.mean_and_covariance(points)[1]
        return covariance.diagonal_scatter(variance, dim1=-2, dim2=-1)

r"""The Gaussian-process model of the bandit literature as a BoTorch model, and its recipe.

:class:`BanditGP` is the model. :class:`BanditGPRecipe` holds all its settings except the data. A
loop creates a :class:`ModelBuilder` from it, which rebuilds the
model whenever data arrive.

Prior mean 0, kernel ``k`` and regularization ``lam`` (the modeled noise variance):

.. math::
   \mu_t(x) = k_t(x)^\top (K_t + \lambda I)^{-1} y, \qquad
   \sigma_t^2(x) = k(x, x) - k_t(x)^\top (K_t + \lambda I)^{-1} k_t(x)

A constant prior mean ``m`` is a shift: ``y`` is replaced by ``y - m``, and ``m`` is added to the
posterior mean.

Source: Srinivas et al. 2010, section 2; Chowdhury and Gopalan 2017, section 3.
"""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import botorch.settings
import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from botorch.posteriors import GPyTorchPosterior
from gpytorch import settings
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from linear_operator.operators import DenseLinearOperator
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_batch_shape,
    check_double,
    check_finite,
    check_instance,
    check_integer,
    check_matrix,
    check_number,
    check_weights,
    double_kernel,
    store_checked,
)
from botorch_bandits.confidence.prior_reading import (
    constant_prior_mean,
    learns_input_scale,
    outcome_units,
    part_of,
    read_prior,
)
from botorch_bandits.confidence.width_rules import PriorSummary
from botorch_bandits.core.box import BoxPosterior, IndefiniteError
from botorch_bandits.core.kernels import (
    expand_kernel,
    kernel_function,
    kernel_of_output,
    smoothness_of_whole,
)
from botorch_bandits.fingerprints import are_equal
from botorch_bandits.models.candidates import CandidatesRecipe
from botorch_bandits.models.fits import fit_marginal_likelihood, log_marginal_likelihood
from botorch_bandits.models.noise import (
    SMALLEST_RATIO,
    check_noise,
    collapse,
    constraint_floor,
    gaussian_likelihood,
    output_scale_of,
    places_of,
)
from botorch_bandits.random_streams import derive_seed, seeded_globally, usual_dtype

# --- Exact Gaussian processes whose posterior is a function of points, and grows row by row -------
# This applies to models without batches and with fixed inputs. In all other cases, BoTorch and
# GPyTorch handle the same data as for any ``SingleTaskGP``. Several outputs are independent, so
# that they are a ``ModelListGP`` with one such model each.


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


# --- The model and its recipe ---------------------------------------------------------------------


class BanditGP(IncrementalGP):
    r"""Exact Gaussian process with a given kernel, noise variance and constant prior mean.

    The hyperparameters are fixed (their parameters are frozen) unless ``learn_hyperparameters`` is
    set; the theorems require them to be fixed. Without data (``n = 0``), the model is the prior.
    Outcomes are never transformed: rewards, bounds and widths share the user's units.

    Args:
        train_X: ``batch_shape x n x d`` inputs, float64; ``n`` may be 0.
        train_Y: ``batch_shape x n x 1`` outcomes, float64. For several outputs, build a
            ``ModelListGP`` with one model each, as recipes do.
        kernel: Any GPyTorch kernel. It is copied, so later changes to it do not affect the model.
        noise: The modeled noise variance ``lam``, a VARIANCE in squared outcome units; above 1e-10
            times the kernel's output scale.
        learn_hyperparameters: Whether to leave the parameters of kernel and noise free for
            ``fit_gpytorch_mll``.
        input_transform: A transform applied to inputs before the kernel, as in ``SingleTaskGP``. It
            is copied.
        repeats: ``batch_shape x n``, float64: the number of observations of which
            each row of ``train_Y`` is the mean, each with the noise variance ``noise``. Fractions
            act as weights: a row's noise variance is ``noise / repeats``.
        within_sum_of_squares: The sum of squared deviations of those observations from the mean of
            their row, which the marginal likelihood needs.
        prior_mean: A constant, in outcome units. It is never learned. Bounds on the norm are then
            bounds for the reward minus this constant; widths do not change.

    Raises:
        TypeError: If a tensor is not float64 or ``kernel`` is not a GPyTorch kernel.
        ValueError: If shapes disagree, an entry is not finite, ``noise`` is not positive or too
            small for the kernel's output scale, or ``input_transform`` learns from the rows but
            there are none.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> X = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> Y = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
        >>> model = BanditGP(X, Y, kernel=RBFKernel(), noise=0.01)
        >>> model.posterior(X).mean.shape
        torch.Size([2, 1])
        >>> prior = BanditGP(X[:0], Y[:0], kernel=RBFKernel(), noise=0.01)
        >>> prior.posterior(X).variance.squeeze(-1).tolist()
        [1.0, 1.0]
    """

    num_outcomes: int | None = None  # the number of reported outcomes, if rows have weights

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        train_X: Tensor,
        train_Y: Tensor,
        kernel: Kernel,
        noise: float | Tensor = 0.01,
        learn_hyperparameters: bool = False,
        input_transform: InputTransform | None = None,
        repeats: Tensor | None = None,
        within_sum_of_squares: float = 0.0,
        prior_mean: float = 0.0,
    ) -> None:
        """See the class."""
        check_finite("train_X", check_double("train_X", train_X))
        check_finite("train_Y", check_double("train_Y", train_Y))
        if train_X.dim() < 2 or train_Y.shape[:-1] != train_X.shape[:-1]:
            raise ValueError(
                f"train_X has shape {tuple(train_X.shape)} and train_Y {tuple(train_Y.shape)}; "
                "they must be batch_shape x n x d and batch_shape x n x 1. A vector y becomes "
                "train_Y with y.unsqueeze(-1)."
            )
        kernel = double_kernel(kernel).to(train_X)
        batch_shape = train_X.shape[:-2]
        check_batch_shape("kernel", kernel.batch_shape, batch_shape)
        levels = torch.as_tensor(noise, dtype=train_X.dtype, device=train_X.device)
        if levels.numel() == 1:
            levels = levels.reshape(())
        check_batch_shape("noise", levels.shape, batch_shape)
        output_scale = output_scale_of(kernel)
        check_noise(levels, output_scale)
        levels = levels.expand(batch_shape)
        if repeats is not None:
            repeats = check_weights("repeats", repeats, train_Y, "train_Y")
        with usual_dtype():
            floor = GreaterThan(constraint_floor(output_scale))
        likelihood = gaussian_likelihood(
            repeats, noise_constraint=floor, batch_shape=batch_shape
        ).to(train_X)
        likelihood.noise = levels.unsqueeze(-1)
        if batch_shape:  # pathwise sampling needs the kernel's batch shape to be the model's
            expand_kernel(kernel, batch_shape)
        if train_X.shape[-2] == 0 and learns_input_scale(input_transform):
            raise ValueError(
                "input_transform learns its scale from the rows of train_X, and there are none. "
                "Give it the bounds of the domain, as in Normalize(d, bounds=bounds)."
            )
        super().__init__(
            train_X,
            train_Y,
            likelihood=likelihood,
            covar_module=kernel,
            mean_module=ConstantMean(batch_shape=batch_shape).to(train_X),
            outcome_transform=None,
            input_transform=copy.deepcopy(input_transform),
        )
        self.mean_module.raw_constant.data.fill_(check_number("prior_mean", prior_mean))
        self.within_sum_of_squares = within_sum_of_squares
        self.learn_hyperparameters = learn_hyperparameters
        self.requires_grad_(learn_hyperparameters)
        self.mean_module.requires_grad_(False)
        self.eval()

    @classmethod
    def with_kernel(
        cls,
        kernel: Kernel,
        noise: float = 0.01,
        *,
        lengthscale: float | None = None,
        refit_every: int | None = None,
        input_transform: InputTransform | None = None,
        prior_mean: float = 0.0,
    ) -> BanditGPRecipe:
        """Return a recipe, which contains everything except the data.

        On arms, outcomes may have any scale: if outcomes, bounds and margin are multiplied by
        ``s``, kernel and noise by ``s**2``, and ``prior_mean`` is changed accordingly, the same
        arms are played. On a box, the prior standard deviation (the square root of the kernel's
        output scale) must lie between 1e-8 and 1e8, and ``prior_mean`` must be at most 1e6 of them
        from 0; a loop rejects other values. In that case, rescale the outcomes.

        Args:
            kernel: Any GPyTorch kernel, which is copied.
            noise: The modeled noise variance ``lam``; the starting value if it is learned. It must
                be above 1e-10 times the kernel's output scale.
            lengthscale: A lengthscale to set on the kernel (or its base kernel) in double
                precision. Kernels are created in float32, where 0.2 is 0.200000003.
            refit_every: If given, kernel parameters and noise are learned by marginal likelihood
                whenever the number of rows reaches a multiple of this; None keeps everything fixed.
            input_transform: A transform applied to inputs before the kernel, which is copied.
            prior_mean: A constant, never learned.

        Raises:
            TypeError: If a numeric argument is not a number.
            ValueError: If a number is infeasible, or ``noise`` is too small for the kernel.

        Example:
            >>> from gpytorch.kernels import MaternKernel
            >>> recipe = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.2)
            >>> X = torch.rand(3, 1, dtype=torch.float64)
            >>> recipe(X, X.sin()).num_outputs
            1
        """
        return BanditGPRecipe(
            model_class=cls,
            kernel=double_kernel(kernel, lengthscale),
            noise=noise,
            refit_every=refit_every,
            input_transform=input_transform,
            prior_mean=prior_mean,
        )

    @classmethod
    def with_candidates(
        cls,
        candidates: Sequence[BanditGPRecipe],
        weights: Sequence[float] | None = None,
        *,
        names: Sequence[str] | None = None,
        num_skipped: int = 0,
    ) -> CandidatesRecipe:
        """Return the recipe of a list of priors, one of which is right, without knowing which.

        The outcomes show which priors predict worst: those are eliminated, and a theorem covers the
        remaining ones; see :class:`~botorch_bandits.CandidatesUpperConfidenceBound`. The list and
        the weights must be fixed before the data. Entries that differ only in their output scale
        (with the same ratio of noise variance to output scale) cost no more than one of them.

        Args:
            candidates: Recipes from :meth:`with_kernel`, without refits.
            weights: One positive weight per entry; equal ones if omitted.
            names: The names of the entries in tables.
            num_skipped: How many of the first outcomes the evidence leaves out because the list or
                its weights were chosen based on them. They remain in every posterior.

        Raises:
            TypeError: If an entry is not a recipe.
            ValueError: If the list is empty, an entry refits, input transforms differ, or weights
                or names do not match the entries.

        Example:
            >>> from gpytorch.kernels import RBFKernel
            >>> scales = [0.1, 0.3]
            >>> priors = [BanditGP.with_kernel(RBFKernel(), lengthscale=each) for each in scales]
            >>> BanditGP.with_candidates(priors).names
            ('SE, lengthscale 0.1, scale 1, noise 0.01', 'SE, lengthscale 0.3, scale 1, noise 0.01')
        """
        for index, entry in enumerate(candidates):
            check_instance(
                f"candidates[{index}]",
                entry,
                BanditGPRecipe,
                "Pass recipes, as BanditGP.with_kernel(...) returns them.",
            )
        return CandidatesRecipe(
            tuple(candidates),
            () if weights is None else tuple(weights),
            () if names is None else tuple(names),
            num_skipped,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> MultivariateNormal:
        """Return the prior if there are no data, otherwise GPyTorch's posterior."""
        if self.num_rows == 0 and not self.training:
            (X,) = args
            batch_shape = torch.broadcast_shapes(X.shape[:-2], self.train_inputs[0].shape[:-2])
            with settings.prior_mode(True):
                prior = super().__call__(X.expand(*batch_shape, *X.shape[-2:]), **kwargs)
            # a stationary prior does not depend on X, but its gradient, which is zero, must exist
            mean = prior.mean + 0.0 * X.sum(-1)
            return MultivariateNormal(mean, prior.lazy_covariance_matrix)
        return super().__call__(*args, **kwargs)

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> Model:
        """Return a new model with the rows ``(X, Y)`` added; this model is not changed.

        Plain rows (``n' x d`` and ``n' x 1``) cost ``n^2`` operations each. The new model has its
        own copies of the hyperparameters.

        Args:
            X: ``batch_shape x n' x d`` inputs, raw.
            Y: ``batch_shape' x n' x 1`` outcomes; further leading dimensions are fantasies.
            kwargs: Passed on to BoTorch.

        Returns:
            A :class:`BanditGP` (in BoTorch's sense batched, if ``X`` or ``Y`` is).

        Raises:
            TypeError: If plain rows are not float64.
            ValueError: If plain rows have the wrong shape, ``Y`` has several columns, or an entry
                is not finite.
        """
        if Y.shape[-1] != 1:
            raise ValueError(
                f"Y has shape {tuple(Y.shape)}, but its last dimension must be 1, for the output "
                "of the model. A vector y becomes Y with y.unsqueeze(-1)."
            )
        is_batch = bool(self.batch_shape) or X.dim() > 2 or Y.dim() > 2
        grows = self.closed_form is not None and not is_batch
        # BoTorch cannot extend a prior or repeated rows, and what GPyTorch adds for stability when
        # it extends its caches is absolute
        if self.num_rows == 0 or not (
            grows or (self.repeats is None and (kwargs or is_batch or X.requires_grad))
        ):
            grown: Any = self._appended(X, Y)
        else:
            grown = super().condition_on_observations(X, Y, **kwargs)
        if self.num_outcomes is not None:
            grown.num_outcomes = self.num_outcomes + X.shape[-2]
        model: Model = grown
        return model

    def censored(self, X: Tensor, minimum: float) -> Model:
        """Return a view: the model with pending queries at the known minimum.

        This model is not changed. Each plain row costs ``n^2`` operations if the kernel's closed
        form is known. When an outcome arrives, :meth:`with_outcomes` replaces the pseudo-outcome
        and keeps the factor of the kernel matrix; a query that is lost keeps the minimum.

        Source: Verma, Dai and Low 2022, section 3.1. The theorem assumes that the prior mean equals
        the minimum: pass ``prior_mean=minimum`` to the model.

        Args:
            X: ``n' x d`` pending queries, raw, float64.
            minimum: The smallest possible outcome, in outcome units.

        Raises:
            TypeError: If ``X`` is not float64.
            ValueError: If ``X`` is not a finite matrix, or ``minimum`` is not finite.

        Example:
            >>> import torch
            >>> from gpytorch.kernels import RBFKernel
            >>> from botorch_bandits import BanditGP
            >>> X = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
            >>> Y = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
            >>> model = BanditGP(X, Y, kernel=RBFKernel(), noise=0.01)
            >>> waiting = model.censored(torch.tensor([[3.0]], dtype=torch.float64), minimum=0.0)
            >>> waiting.train_targets.tolist()
            [1.0, 2.0, 0.0]
            >>> arrived = waiting.with_outcomes(torch.cat([Y, Y[:1]]))
            >>> arrived.train_targets.tolist()
            [1.0, 2.0, 1.0]
        """
        X = check_matrix("X", check_double("X", X))
        shape = (*self.batch_shape, len(X), 1)
        pseudo = X.new_full(shape, check_number("minimum", minimum))
        return self.condition_on_observations(X, pseudo) if len(X) else self

    def since(self, row: int) -> Self:
        """Return a view: the model of the data from a given row on, as after a reset.

        Args:
            row: The first row that is kept, from 0. If it equals the number of rows, none is kept,
                which leaves the prior.

        Raises:
            TypeError: If ``row`` is not an integer.
            ValueError: If there is no such row, or if rows are means of several observations, which
                have no order in time.

        Example:
            >>> import torch
            >>> from gpytorch.kernels import RBFKernel
            >>> from botorch_bandits import BanditGP
            >>> X = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
            >>> model = BanditGP(X, X.sin(), kernel=RBFKernel(), noise=0.01)
            >>> model.since(1).train_inputs[0].tolist()
            [[1.0], [2.0]]
        """
        if check_integer("row", row, minimum=0) > self.num_rows:
            raise ValueError(
                f"row is {row}, but the model has {self.num_rows} rows, numbered from 0."
            )
        if self.repeats is not None:
            raise ValueError(
                "the model has repeats=: its rows are means of several observations, which have no "
                "order in time. Build the model from single observations."
            )
        return self._with_data(self.raw_inputs[..., row:, :], self.outcomes[..., row:, :])

    @property
    def prior_mean(self) -> float:
        """The prior mean, the same at all points."""
        constant = constant_prior_mean(self)
        assert constant is not None
        return constant

    @property
    def num_observations(self) -> int:
        """The number of observations in the model, counting repeats (in each batch).

        If a builder gave the rows weights, it is the number of outcomes that were reported.
        """
        repeats = self.repeats
        if self.num_outcomes is not None:
            return self.num_outcomes
        return self.num_rows if repeats is None else int(repeats.sum(-1).max())

    def _appended(self, X: Tensor, Y: Tensor) -> Self:
        """Return a model that is built from the rows of this one and others, in any batch."""
        shape = torch.broadcast_shapes(X.shape[:-2], Y.shape[:-2], self.batch_shape)
        options: dict[str, Any] = {}
        if self.repeats is not None:
            repeats = self.repeats.expand(*shape, -1)
            ones = repeats.new_ones(*shape, X.shape[-2])
            options["repeats"] = torch.cat([repeats, ones], dim=-1)
            options["within_sum_of_squares"] = self.within_sum_of_squares
        pairs = ((self.raw_inputs, check_double("X", X)), (self.outcomes, check_double("Y", Y)))
        rows = (
            torch.cat([part.expand(*shape, *part.shape[-2:]) for part in pair], dim=-2)
            for pair in pairs
        )
        return self._with_data(*rows, **options)

    def _with_data(self, X: Tensor, Y: Tensor, **options: Any) -> Self:
        """Return a model of the same prior that is built from other rows."""
        settings_of_prior = {
            "kernel": self.covar_module,
            "noise": self.likelihood.noise.detach().squeeze(-1),
            "learn_hyperparameters": self.learn_hyperparameters,
            "input_transform": self._modules.get("input_transform"),
            "prior_mean": self.prior_mean,
        }
        return type(self)(X, Y, **(settings_of_prior | options))


@dataclass(frozen=True, eq=False)
class BanditGPRecipe:
    """Everything that a :class:`BanditGP` needs except its data: comparable, and safe to share.

    Two recipes are equal if they build equal models. Kernels are compared by class, parameters and
    values at fixed probe points, because two GPyTorch kernels can differ while their printed forms
    do not.

    :meth:`BanditGP.with_kernel` creates recipes; calling one with data builds the model.

    Attributes:
        model_class: The class to build.
        kernel: The kernel with its starting parameters, float64.
        noise: The modeled noise variance, or its starting value.
        refit_every: The number of rows between refits of the hyperparameters; None for never.
        input_transform: Applied to inputs before the kernel.
        prior_mean: A constant, never learned.

    The kernel and the input transform are copied, so later changes to the originals do not affect
    the recipe.

    Raises:
        TypeError: If a numeric argument is not a number.
        ValueError: If a number is infeasible.
    """

    model_class: type[BanditGP]
    kernel: Kernel
    noise: float
    refit_every: int | None = None
    input_transform: InputTransform | None = None
    prior_mean: float = 0.0

    def __post_init__(self) -> None:
        """Check the numbers and copy the modules."""
        every = self.refit_every
        store_checked(
            self,
            kernel=copy.deepcopy(self.kernel),
            noise=check_noise(self.noise, output_scale_of(self.kernel)),
            refit_every=None if every is None else check_integer("refit_every", every, minimum=1),
            input_transform=copy.deepcopy(self.input_transform),
            prior_mean=check_number("prior_mean", self.prior_mean),
        )

    def __call__(self, X: Tensor, Y: Tensor) -> Any:
        """Build the model for ``n x d`` inputs and ``n x m`` outcomes (``n`` may be 0).

        Several outputs, which are independent, get a model each in a ``ModelListGP``.
        """
        return self.builder(seed=0)(X, Y)

    def builder(self, seed: int, merges: bool = False) -> ModelBuilder:
        """Return a function that builds models and refits only when it must.

        Args:
            seed: The seed of the random numbers that the fit may draw when it retries.
            merges: Whether to merge all observations of an input into one row if the inputs take
                few places; see :class:`~botorch_bandits.models.bandit_gp.ModelBuilder`.
        """
        return ModelBuilder(self, seed, merges)

    def __eq__(self, other: object) -> bool:
        """Return whether both build equal models."""
        if not isinstance(other, BanditGPRecipe):
            return NotImplemented
        mine, theirs = (
            (str(each.model_class), each.noise, each.refit_every, each.prior_mean)
            for each in (self, other)
        )
        pairs = ((self.kernel, other.kernel), (self.input_transform, other.input_transform))
        return mine == theirs and all(are_equal(*pair) for pair in pairs)

    def __hash__(self) -> int:
        """Hash the numbers and the name of the class, which cannot change."""
        name = self.model_class.__qualname__
        return hash((name, self.noise, self.refit_every, self.prior_mean))


# --- Builds the models of a loop from its rows, extends the last one, and remembers fits ----------
# **Rows of one place.** Observations :math:`y_1, \dots, y_c` at one place are equivalent to one
# observation of their mean with the noise variance :math:`\lambda / c`: the posterior, the realized
# information gain and, with the squared deviations from the means, the marginal likelihood are
# those of all rows. A loop that returns to ``m`` places therefore pays for only ``m`` rows,
# regardless of the number of outcomes. Whether rows are merged depends only on the inputs.
#
# **Fits.** The hyperparameters for ``n`` rows come from a chain of fits, to the first
# ``refit_every`` rows, the first ``2 * refit_every`` and so on. Each starts from the recipe's
# starting values or from the fit before it, whichever has the greater likelihood at its rows.
# Hyperparameters thus depend on the data alone, not on which models were built before. Fits are
# kept by a digest of their rows, so that only those are made again whose rows have changed. A loop
# that is opened again continues from the last recorded fit, if its digest is that of the rows.
#
# **Several outputs** are independent, so that each has a model of its own. Outputs that share a
# fixed prior differ only in their outcomes and share the factor of the kernel matrix.


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

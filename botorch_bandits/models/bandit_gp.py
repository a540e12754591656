r"""The Gaussian-process model of the bandit literature as a BoTorch model, its recipe and builder.

:class:`BanditGP` is the model. :class:`BanditGPRecipe` holds all its settings except the data. A
loop creates a :class:`ModelBuilder` from it, which rebuilds the model whenever data arrive, row by
row where that gives the same model to the last bit, and refits the hyperparameters when due.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, cast

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform, Normalize
from botorch.posteriors import GPyTorchPosterior
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from torch import Tensor

from botorch_bandits.checks import (
    check_batch_shape,
    check_double,
    check_finite,
    check_instance,
    check_integer,
    check_number,
    store_checked,
)
from botorch_bandits.confidence import realized_information_gain
from botorch_bandits.confidence.prior_reading import learns_input_scale
from botorch_bandits.core.kernels import (
    StationaryKernel,
    describe_module,
    double_kernel,
    expand_kernel,
    fingerprint_kernel,
    kernel_of_output,
)
from botorch_bandits.core.marginal_likelihood import (
    fit_marginal_likelihood,
    log_marginal_likelihood,
)
from botorch_bandits.models.candidates import CandidatesRecipe
from botorch_bandits.models.growing import DataViews
from botorch_bandits.models.likelihoods import (
    CollapsedRows,
    check_repeats,
    collapse,
    noise_likelihood,
)
from botorch_bandits.models.means import prior_mean_module, read_prior_mean
from botorch_bandits.models.noise_floor import (
    SMALLEST_ORDINARY_SCALE,
    check_noise,
    constraint_floor,
    output_scale_of,
    smallest_noise,
)
from botorch_bandits.models.several_outputs import OutputsBuilder
from botorch_bandits.random_streams import derive_seed, seeded_globally


class BanditGP(DataViews):
    r"""Exact Gaussian process with a given kernel, noise variance and constant prior mean.

    The hyperparameters are fixed (their parameters are frozen) unless ``learn_hyperparameters`` is
    set; the theorems require them to be fixed. Without data (``n = 0``), the model is the prior.
    Outcomes are never transformed: rewards, bounds and widths share the user's units.

    Args:
        train_X: ``batch_shape x n x d`` inputs, float64; ``n`` may be 0.
        train_Y: ``batch_shape x n x m`` outcomes, float64. The outputs are independent and share
            the kernel and the noise unless these have a batch shape.
        kernel: Any GPyTorch kernel. It is copied, so later changes to it do not affect the model.
        noise: The modeled noise variance ``lam``, a VARIANCE in squared outcome units; above 1e-10
            times the kernel's output scale.
        learn_hyperparameters: Whether to leave the parameters of kernel and noise free for
            ``fit_gpytorch_mll``.
        input_transform: A transform applied to inputs before the kernel, as in ``SingleTaskGP``. It
            is copied.
        repeats: ``batch_shape x n``, float64, for one output: the number of observations of which
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
                "they must be batch_shape x n x d and batch_shape x n x m. A vector y becomes "
                "train_Y with y.unsqueeze(-1)."
            )
        levels = torch.as_tensor(noise, dtype=train_X.dtype, device=train_X.device)
        kernel = double_kernel(kernel).to(train_X)
        output_scale = output_scale_of(kernel)
        check_noise(levels, output_scale)
        if levels.numel() == 1:
            levels = levels.reshape(())
        aug_batch_shape = self.get_batch_dimensions(train_X, train_Y)[1]
        check_batch_shape("noise", levels.shape, aug_batch_shape)
        levels = levels.expand(aug_batch_shape)
        if repeats is not None:
            repeats = check_repeats(repeats, train_Y)
        likelihood = noise_likelihood(levels, constraint_floor(levels, output_scale), repeats)
        likelihood = likelihood.to(train_X)
        likelihood.noise = levels.unsqueeze(-1)
        check_batch_shape("kernel", kernel.batch_shape, aug_batch_shape)
        if aug_batch_shape:  # pathwise sampling needs the kernel's batch shape to be the model's
            expand_kernel(kernel, aug_batch_shape)
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
            mean_module=prior_mean_module(prior_mean, aug_batch_shape).to(train_X),
            outcome_transform=None,
            input_transform=copy.deepcopy(input_transform),
        )
        self.within_sum_of_squares = within_sum_of_squares
        self.learn_hyperparameters = learn_hyperparameters
        self.requires_grad_(learn_hyperparameters)
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

    @property
    def num_rows(self) -> int:
        """The number of observations in the model (in each batch)."""
        return int(self.train_targets.shape[-1])

    def __call__(self, *args: Any, **kwargs: Any) -> MultivariateNormal:
        """Return the prior if there are no data, otherwise GPyTorch's posterior."""
        if self.num_rows == 0 and not self.training:
            (X,) = args
            batch_shape = torch.broadcast_shapes(X.shape[:-2], self.train_inputs[0].shape[:-2])
            with settings.prior_mode(True):
                prior = super().__call__(X.expand(*batch_shape, *X.shape[-2:]), **kwargs)
            # a stationary prior does not depend on X, but its gradient, which is zero, must exist
            mean = prior.mean + 0.0 * X.sum(-1)
            covariance = prior.lazy_covariance_matrix
            if self.num_outputs > 1:  # GPyTorch cannot slice every kernel by output
                covariance = covariance.evaluate_kernel()
            return MultivariateNormal(mean, covariance)
        return super().__call__(*args, **kwargs)

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> Model:
        """Return a new model with the rows ``(X, Y)`` added; this model is not changed.

        Plain rows (``n' x d`` and ``n' x 1``) cost ``n^2`` operations each with a kernel whose
        closed form is known. The new model has its own copies of the hyperparameters.

        Args:
            X: ``batch_shape x n' x d`` inputs, raw.
            Y: ``batch_shape' x n' x m`` outcomes; further leading dimensions are fantasies.
            kwargs: Passed on to BoTorch.

        Returns:
            A :class:`BanditGP` (in BoTorch's sense batched, if ``X`` or ``Y`` is).

        Raises:
            TypeError: If plain rows are not float64.
            ValueError: If plain rows have the wrong shape, the number of outputs of ``Y`` differs
                from that of the model, or an entry is not finite.
        """
        if Y.dim() > 1 and Y.shape[-1] != self.num_outputs:
            raise ValueError(
                f"Y has shape {tuple(Y.shape)}, but the model's number of outputs is "
                f"{self.num_outputs}; the last dimension of Y must have one entry per output."
            )
        if self.num_rows == 0:
            return self._with_data(X, Y)
        is_batch = bool(self.batch_shape) or X.dim() > 2 or Y.dim() > 2
        if self.repeats is not None and (is_batch or not self.grows()):
            return self._with_distinct_rows(X, Y, self.repeats)
        if not kwargs and not is_batch and not self.grows() and self._is_tiny:
            # what GPyTorch adds for stability when it extends its caches is absolute
            old = self.train_targets.reshape(self.num_outputs, -1).mT
            return self._with_data(torch.cat([self._raw_inputs, X]), torch.cat([old, Y]))
        grown: Any = super().condition_on_observations(X, Y, **kwargs)
        if self.num_outcomes is not None:
            grown.num_outcomes = self.num_outcomes + X.shape[-2]
        return cast(Model, grown)

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
        if self.repeats is None or observation_noise is not True:
            return super().posterior(X, output_indices, observation_noise, posterior_transform)
        lean = self._lean_posterior(X, True, posterior_transform)
        if lean is not None:
            return lean
        # the noise of one observation, even if there are as many points as rows
        latent = super().posterior(X).distribution
        covariance = latent.lazy_covariance_matrix.add_diagonal(self.likelihood.noise)
        posterior = GPyTorchPosterior(MultivariateNormal(latent.mean, covariance))
        return posterior if posterior_transform is None else posterior_transform(posterior, X)

    def subset_output(self, idcs: list[int]) -> BanditGP:
        """Return a new model of some of the outputs, with the same hyperparameters.

        Args:
            idcs: The outputs, numbered from 0, each once and in the desired order.

        Raises:
            ValueError: If the list is empty, has duplicates, or has an output that the model does
                not have.
        """
        if not idcs or len(set(idcs)) < len(idcs) or not set(idcs) <= set(range(self.num_outputs)):
            raise ValueError(
                f"idcs must name outputs from 0 to {self.num_outputs - 1}, each once and at least "
                f"one; got {idcs}."
            )
        if list(idcs) == list(range(self.num_outputs)):
            return copy.deepcopy(self)
        index: Any = idcs[0] if len(idcs) == 1 else list(idcs)
        X = self._raw_inputs[..., 0, :, :]  # the same for all outputs
        Y = self.train_targets[..., list(idcs), :].mT
        subset = type(self)(
            X,
            Y,
            kernel=kernel_of_output(self.covar_module, index, len(self.batch_shape)),
            noise=self.likelihood.noise.detach().squeeze(-1)[..., index],
            learn_hyperparameters=self.learn_hyperparameters,
            input_transform=getattr(self, "input_transform", None),
            prior_mean=self.prior_mean,
        )
        return subset.train(self.training)

    @property
    def prior_mean(self) -> float:
        """The prior mean, the same at all points."""
        constant = read_prior_mean(self.mean_module)
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

    @property
    def running_information_gain(self) -> Tensor | None:
        """The realized information gain of all observations, if it needs no kernel matrix."""
        repeats, known = self.repeats, super().running_information_gain
        if repeats is None or known is not None:
            return known
        if self.num_rows == 0:
            return self.likelihood.noise.detach().squeeze(-1) * 0.0
        with torch.no_grad():
            root = repeats.sqrt()
            matrix = self.covar_module(self.transform_inputs(self._raw_inputs)).to_dense()
            scaled = root.unsqueeze(-1) * matrix * root.unsqueeze(-2)
            return realized_information_gain(scaled, self.likelihood.noise.squeeze(-1))

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

    @property
    def _raw_inputs(self) -> Tensor:
        # in evaluation mode, BoTorch keeps transformed inputs and stores the raw ones separately
        raw = getattr(self, "_original_train_inputs", None)
        return self.train_inputs[0] if raw is None else raw

    @property
    def _is_tiny(self) -> bool:
        scale = output_scale_of(self.covar_module)
        return bool((scale < SMALLEST_ORDINARY_SCALE).any())

    def _with_distinct_rows(self, X: Tensor, Y: Tensor, repeats: Tensor) -> BanditGP:
        shape = torch.broadcast_shapes(X.shape[:-2], Y.shape[:-2], self.batch_shape)
        old_X, old_Y = self._raw_inputs, self.train_targets.unsqueeze(-1)
        ones = torch.ones(*shape, X.shape[-2], dtype=repeats.dtype, device=repeats.device)
        grown = type(self)(
            torch.cat([t.expand(*shape, *t.shape[-2:]) for t in (old_X, X)], dim=-2),
            torch.cat([t.expand(*shape, *t.shape[-2:]) for t in (old_Y, Y)], dim=-2),
            kernel=self.covar_module,
            noise=self.likelihood.noise.detach().squeeze(-1),
            learn_hyperparameters=self.learn_hyperparameters,
            input_transform=getattr(self, "input_transform", None),
            repeats=torch.cat([repeats.expand(*shape, -1), ones], dim=-1),
            within_sum_of_squares=self.within_sum_of_squares,
            prior_mean=self.prior_mean,
        )
        if self.num_outcomes is not None:
            grown.num_outcomes = self.num_outcomes + X.shape[-2]
        return grown

    def _with_data(self, X: Tensor, Y: Tensor) -> Self:
        batch_shape = torch.broadcast_shapes(X.shape[:-2], Y.shape[:-2], self.batch_shape)
        return type(self)(
            X.expand(*batch_shape, *X.shape[-2:]),
            Y.expand(*batch_shape, *Y.shape[-2:]),
            kernel=self.covar_module,
            noise=self.likelihood.noise.detach().squeeze(-1),
            learn_hyperparameters=self.learn_hyperparameters,
            input_transform=getattr(self, "input_transform", None),
            prior_mean=self.prior_mean,
        )


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

    def __call__(self, X: Tensor, Y: Tensor) -> BanditGP:
        """Build the model for ``n x d`` inputs and ``n x m`` outcomes (``n`` may be 0)."""
        model: BanditGP = self.builder(seed=0)(X, Y)
        return model

    def builder(
        self,
        seed: int,
        collapses: bool = False,
        separates_outputs: bool = False,
        kind: type[ModelBuilder] | None = None,
    ) -> ModelBuilder:
        """Return a function that builds models and refits only when it must.

        The hyperparameters for ``n`` rows come from a chain of fits, to the first ``refit_every``
        rows, the first ``2 * refit_every`` and so on. Each starts from the recipe's starting
        values or from the fit before it, whichever has the greater likelihood at its rows.
        Hyperparameters thus depend on the data alone, not on which models were built before. A
        builder remembers its fits and repeats only those whose rows have changed; a new builder
        must make all ``n // refit_every`` fits.

        Args:
            seed: The seed of the random numbers that the fit may draw when it retries.
            collapses: Whether to merge all observations of an input into one row, for one output:
                on arms, the cost then depends on the number of distinct arms played, not on the
                number of rounds.
            separates_outputs: Whether to build a ``ModelListGP`` with one model for each of several
                outputs. Its posterior is that of the model with several outputs, because these are
                independent, but it takes a small fraction of the time and memory.
            kind: The class of the function; :class:`ModelBuilder` if None.

        Returns:
            A function from ``n x d`` inputs, ``n x m`` outcomes and, where rows have weights, ``n``
            of them (see :class:`ModelBuilder`), to a model.
        """
        build_model = partial(
            self.model_class,
            learn_hyperparameters=self.refit_every is not None,
            input_transform=self.input_transform,
            prior_mean=self.prior_mean,
        )
        return (kind or ModelBuilder)(
            build_model,
            self.kernel,
            self.noise,
            refit_every=self.refit_every,
            input_transform=self.input_transform,
            seed=seed,
            collapses=collapses,
            separates_outputs=separates_outputs,
        )

    def fingerprint(self) -> str:
        """Return a digest that is equal for recipes that build equal models."""
        parts = [
            f"{self.model_class.__module__}.{self.model_class.__qualname__}",
            repr(self.noise),
            repr(self.refit_every),
            fingerprint_kernel(self.kernel),
            "" if self.input_transform is None else describe_module(self.input_transform),
            repr(self.prior_mean),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        """Compare by fingerprint."""
        if not isinstance(other, BanditGPRecipe):
            return NotImplemented
        return self.fingerprint() == other.fingerprint()

    def __hash__(self) -> int:
        """Hash the numbers and the name of the class, which cannot change."""
        name = self.model_class.__qualname__
        return hash((name, self.noise, self.refit_every, self.prior_mean))


@dataclass(frozen=True, eq=False)
class BuiltModel:
    """A model and the data and settings from which it was built.

    Attributes:
        X: ``n x d``.
        Y: ``n x m``.
        kernel: The source of its hyperparameters; the same object means the same values.
        model: The model.
        parameters: Copies of its parameters at construction.
    """

    X: Tensor
    Y: Tensor
    kernel: Kernel
    model: BanditGP
    parameters: list[Tensor]

    @classmethod
    def remember(cls, X: Tensor, Y: Tensor, kernel: Kernel, model: BanditGP) -> BuiltModel:
        """Copy what the caller may change later, because the caller may reuse the memory."""
        parameters = [parameter.detach().clone() for parameter in model.parameters()]
        return cls(X.clone(), Y.clone(), kernel, model, parameters)

    def continued(
        self, X: Tensor, Y: Tensor, kernel: Kernel, transform: InputTransform | None
    ) -> BanditGP | None:
        """Return the model that would be built from ``X`` and ``Y``, to the last bit.

        Rows are added or outcomes replaced in ``n^2`` operations.

        Args:
            X: ``n' x d`` inputs.
            Y: ``n' x m`` outcomes.
            kernel: The current source of the hyperparameters.
            transform: The input transform of the model.

        Returns:
            None if this model cannot be extended to it: hyperparameters or first inputs differ, or
            the model does not grow row by row.
        """
        num_known = self.X.shape[0]
        if (
            kernel is not self.kernel
            or not keeps_rows_apart(transform)
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
            model = cast(BanditGP, grown)
        return model

    def _is_left_as_it_was(self) -> bool:
        found = list(self.model.parameters())
        return len(found) == len(self.parameters) and all(map(torch.equal, found, self.parameters))


def keeps_rows_apart(transform: InputTransform | None) -> bool:
    """Whether a transformed row is the same, to the last bit, regardless of the other rows."""
    return transform is None or (type(transform) is Normalize and not learns_input_scale(transform))


class RefitWarning(RuntimeWarning):
    """A marginal-likelihood fit failed; the starting hyperparameters are used instead."""


class ModelBuilder:
    """Builds models from rows, extends the last model and remembers its refits.

    Args:
        model_class: A callable that builds a model from inputs, outcomes, ``kernel=``, ``noise=``
            and, for rows that are means, ``repeats=`` and ``within_sum_of_squares=``.
        kernel: The kernel with its starting hyperparameters.
        noise: The noise variance, or its starting value.
        refit_every: The number of rows between refits of the hyperparameters; None for never.
        input_transform: The transform that ``model_class`` applies to inputs.
        seed: The seed of the random numbers that a fit may draw when it retries.
        collapses: Whether to merge all observations of an input into one row, for one output.
        separates_outputs: Whether to build one model for each of several outputs.
    """

    def __init__(
        self,
        model_class: Callable[..., BanditGP],
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
        # what a transform learns from the rows may depend on how often each occurs
        self._can_merge = not learns_input_scale(input_transform)
        collapses = self._collapses = collapses and self._can_merge
        # BoTorch's own fit does not support repeated rows
        self._fits_collapsed = collapses and StationaryKernel.read(kernel) is not None
        self._model_class = model_class
        self._first_kernel = kernel
        self._first_noise = noise
        self._refit_every = refit_every
        self._input_transform = input_transform
        self._seed = seed
        self._rows: tuple[Tensor, Tensor] | None = None
        self._fitted: list[tuple[Kernel, Tensor]] = []  # to refit_every rows, twice as many, ...
        self._num_taken = 0  # the number of these fits that another builder made
        self._latest: BuiltModel | None = None
        self._separates_outputs = separates_outputs
        self._build_outputs: OutputsBuilder | None = None
        if separates_outputs:
            self._build_outputs = OutputsBuilder(self._continue, BuiltModel.remember)

    @property
    def latest_fit(self) -> tuple[Tensor, Tensor, Kernel, Tensor] | None:
        """The inputs and outcomes of the last fit of hyperparameters; None before any fit."""
        every = self._refit_every
        if every is None or not self._fitted or self._rows is None:
            return None
        X, Y = (rows[: len(self._fitted) * every] for rows in self._rows)
        return (X, Y, *self._fitted[-1])

    def take_fit(self, X: Tensor, Y: Tensor, parameters: dict[str, Tensor], noise: Tensor) -> None:
        """Continue from a fit to these rows that another builder made."""
        build = self._build_collapsed if self._fits_collapsed else self._build
        kernel = build(X, Y, self._first_kernel, self._first_noise).covar_module
        for name, parameter in kernel.named_parameters():
            parameter.data = parameters[name]
        self._rows, self._num_taken = (X.clone(), Y.clone()), len(X) // (self._refit_every or 1)
        self._fitted = [(kernel, noise)] * self._num_taken  # only the last one is the actual fit

    def __call__(
        self, X: Tensor, Y: Tensor, weights: Tensor | None = None
    ) -> BanditGP | ModelListGP:
        """Return the model of ``n x d`` inputs and ``n x m`` outcomes.

        With ``n`` weights, row ``i`` has the noise variance ``noise / weights[i]``. Such a model is
        rebuilt in each call, and its hyperparameters are fixed.
        """
        if weights is not None:
            return self._weighted(X, Y, weights)
        kernel, noise = self._hyperparameters(X, Y)
        if self._collapses and Y.shape[-1] == 1:
            return self._build_collapsed(X, Y, kernel, noise)
        if self._build_outputs is not None and Y.shape[-1] > 1:
            return self._build_outputs(X, Y, kernel, noise)
        self._latest = self._continue(self._latest, X, Y, kernel, noise)
        return self._latest.model

    def distinct(self, X: Tensor) -> Tensor:
        """Return the inputs of the last model's rows if they were merged, otherwise ``X``.

        Args:
            X: ``n x d``; the inputs from which the last model was built.
        """
        return X

    def _weighted(self, X: Tensor, Y: Tensor, weights: Tensor) -> BanditGP | ModelListGP:
        assert self._refit_every is None
        self._latest, num_outputs = None, Y.shape[-1]
        if self._build_outputs is None or num_outputs == 1:
            return self._build_weighted(X, Y, weights, self._first_kernel)
        kernels = self._build_outputs.kernels(self._first_kernel, num_outputs)
        self._build_outputs.forget()
        outputs = zip(Y.split(1, dim=-1), kernels, strict=True)
        return ModelListGP(*(self._build_weighted(X, y, weights, each) for y, each in outputs))

    def _build_weighted(self, X: Tensor, Y: Tensor, weights: Tensor, kernel: Kernel) -> BanditGP:
        num_outcomes = len(X)
        if self._merges_weighted(X):
            X, Y, weights, _ = collapse(X, Y, weights)
        model = self._build(X, Y, kernel, self._first_noise, repeats=weights)
        model.num_outcomes = num_outcomes
        return model

    def _merges_weighted(self, X: Tensor) -> bool:
        """Whether rows of one input are merged, which depends only on the inputs."""
        return self._collapses

    def _hyperparameters(self, X: Tensor, Y: Tensor) -> tuple[Kernel, float | Tensor]:
        every = self._refit_every
        num_fitted = 0 if every is None else X.shape[0] // every * every
        if num_fitted > 0:
            return self._fit(X[:num_fitted], Y[:num_fitted])
        return self._first_kernel, self._first_noise

    def _continue(
        self,
        latest: BuiltModel | None,
        X: Tensor,
        Y: Tensor,
        kernel: Kernel,
        noise: float | Tensor,
    ) -> BuiltModel:
        model: BanditGP | None = None
        if latest is not None:
            model = latest.continued(X, Y, kernel, self._input_transform)
        if model is None:
            # the caller may reuse the memory, which later models continue
            model = self._build(_own(X), _own(Y), kernel, noise)
        return BuiltModel.remember(X, Y, kernel, model)

    def _build(
        self, X: Tensor, Y: Tensor, kernel: Kernel, noise: float | Tensor, **repeats: Any
    ) -> BanditGP:
        return self._model_class(X, Y, kernel=kernel, noise=noise, **repeats)

    def _build_collapsed(
        self, X: Tensor, Y: Tensor, kernel: Kernel, noise: float | Tensor
    ) -> BanditGP:
        rows = self._collapsed(X, Y)
        return self._build(
            rows.X, rows.Y, kernel, noise, repeats=rows.weights, within_sum_of_squares=rows.squares
        )

    def _collapsed(self, X: Tensor, Y: Tensor) -> CollapsedRows:
        return collapse(X, Y)

    def _fit(self, X: Tensor, Y: Tensor) -> tuple[Kernel, Tensor]:
        every = self._refit_every
        assert every is not None
        num_known = self._count_known_rows(X, Y) // every
        if num_known < self._num_taken:
            num_known = self._num_taken = 0
        del self._fitted[num_known:]
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
        scale = output_scale_of(model.covar_module).unsqueeze(-1)
        noise = torch.maximum(noise, smallest_noise(scale))
        return model.covar_module, noise.squeeze(-1)


def _own(rows: Tensor) -> Tensor:
    return rows.clone() if isinstance(rows, Tensor) else rows

r"""The Gaussian-process model of the bandit literature as a BoTorch model, and its recipe.

:class:`BanditGP` is the model. :class:`BanditGPRecipe` holds all its settings except the data. A
loop creates a :class:`~botorch_bandits.models.builder.ModelBuilder` from it, which rebuilds the
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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from gpytorch import settings
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean
from torch import Tensor

from botorch_bandits.checks import (
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
from botorch_bandits.confidence.prior_reading import constant_prior_mean, learns_input_scale
from botorch_bandits.core.kernels import expand_kernel
from botorch_bandits.fingerprints import are_equal
from botorch_bandits.models.builder import ModelBuilder
from botorch_bandits.models.candidates import CandidatesRecipe
from botorch_bandits.models.growing import IncrementalGP
from botorch_bandits.models.likelihoods import gaussian_likelihood
from botorch_bandits.models.noise_floor import check_noise, constraint_floor, output_scale_of
from botorch_bandits.random_streams import usual_dtype


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
                few places; see :class:`~botorch_bandits.models.builder.ModelBuilder`.
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

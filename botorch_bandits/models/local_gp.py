r"""A Gaussian process for many distinct rows, where each point uses only its nearest rows.

The posterior at ``x`` is the exact one given the set ``N`` of the ``k`` rows nearest to ``x``.
Distances are in lengthscales, so that these rows have the largest prior correlation:

.. math::
   \mu(x) = m + k_N(x)^\top (K_N + \Lambda_N)^{-1} (y_N - m), \qquad
   \sigma^2(x) = k(x, x) - k_N(x)^\top (K_N + \Lambda_N)^{-1} k_N(x)

Rows with the same input are merged first: their mean counts as one observation with the noise
variance ``noise / count``, which is exact. If ``k`` is at least the number of distinct inputs, the
whole posterior is exact. Otherwise it is an approximation: the variance is never below the exact
one, because less is known, but the error of the mean is unbounded, and both jump where the set of
nearest rows changes. No theorem on confidence or regret covers it, and none is claimed.

No factor of all rows is kept: building a model takes one pass over the rows, and evaluating a point
takes ``n d`` operations for its neighbors and ``k^3 / 3`` for their Cholesky factor, which is not
kept either.

Source: Urtasun and Darrell 2008 (local Gaussian processes by nearest neighbors).
"""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from botorch.posteriors import GPyTorchPosterior
from gpytorch.kernels import Kernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_bandits.checks import (
    check_double,
    check_finite,
    check_integer,
    check_number,
    store_checked,
)
from botorch_bandits.confidence.width_rules import learns_input_scale
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.models.closed_form import LeanPosterior, marginals
from botorch_bandits.models.growing import TransformedClosedForm
from botorch_bandits.models.kernels import (
    StationaryKernel,
    describe_module,
    double_kernel,
    fingerprint_kernel,
)
from botorch_bandits.models.likelihoods import check_repeats, collapse_repeats
from botorch_bandits.models.noise_floor import check_noise, output_scale_of

NUM_NEIGHBORS = 100
"""The default number of rows that a point uses."""

CHUNK_ENTRIES = 2**22
"""The number of entries of an array of distances or of local matrices in memory at a time."""

NUM_INCUMBENTS = 256
"""The number of rows, with extreme outcomes, among which the best posterior mean is sought."""

MOST_STEPS = 100
"""The largest number of steps of a local search, which at a jump would never end."""

MOST_JOINT = 4000
"""The largest number of rows on which a joint posterior is based."""


class LocalForm:
    """Posterior mean and variance at points, with gradients, given their nearest rows.

    Args:
        module: The stationary kernel.
        noise: The noise variance of one observation.
        points: ``n x d`` distinct rows, as the kernel sees them.
        outcomes: ``n`` means of outcomes.
        counts: ``n``; the number of observations in each mean.
        prior_mean: The prior mean, the same at all points.
        num_neighbors: The number of rows that a point uses.

    Attributes:
        kernel: The kernel with unit lengthscale.
        outputscale: The prior variance.
        num_rows: ``n``.
        most_steps: The maximal number of steps of a local search.
    """

    most_steps = MOST_STEPS

    def __init__(
        self,
        module: Kernel,
        noise: float,
        points: Tensor,
        outcomes: Tensor,
        counts: Tensor,
        prior_mean: float,
        num_neighbors: int,
    ) -> None:
        """See the class."""
        kernel = StationaryKernel.read(module)
        assert kernel is not None
        self._module, self._points = module, points
        self.kernel = StationaryKernel(
            kernel.smoothness, points.new_ones(1), kernel.outputscale.to(points)
        )
        self.lengthscale = kernel.lengthscale.to(points)
        self.outputscale = float(kernel.outputscale)
        self.noise, self.prior_mean = noise, prior_mean
        self.num_rows = len(points)
        self._center = points[0].clone() if len(points) else points.new_zeros(points.shape[-1])
        self._rows = (points - self._center) / self.lengthscale
        self._norms = self._rows.square().sum(-1)
        self._outcomes = outcomes - prior_mean
        self._noise_of_rows = noise / counts
        self._num_neighbors = min(num_neighbors, len(points))

    def mean_and_variance(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior mean and variance, ``b`` each, at ``b x d`` points."""
        parts = [self._evaluate(part, False)[:2] for part in self._chunks(X.detach())]
        mean, variance = (torch.cat(each) for each in zip(*parts, strict=True))
        return mean, variance

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return mean, variance and their gradients, at ``b x d`` points."""
        parts = [self._evaluate(part, True) for part in self._chunks(X.detach())]
        mean, variance, of_mean, of_variance = (
            torch.cat(each) for each in zip(*parts, strict=True)
        )
        return mean, variance, of_mean, of_variance

    def covariance(self, X: Tensor) -> Tensor:
        """Return the covariance of ``... x q x d`` points, ``... x q x q``.

        All ``q`` points are given the same rows: all those that one of them uses. Gradients are
        supported.

        Args:
            X: The points.

        Raises:
            UnsupportedError: If there are more than :data:`MOST_JOINT` of these rows.
        """
        if self.num_rows == 0:
            prior: Tensor = self._module(X).to_dense()
            return prior
        flat = X.reshape(-1, *X.shape[-2:])
        return torch.stack([self._covariance(each) for each in flat]).reshape(
            *X.shape[:-1], X.shape[-2]
        )

    def _covariance(self, X: Tensor) -> Tensor:
        with torch.no_grad():
            nearest = self._neighbors((X - self._center) / self.lengthscale).unique()
            if len(nearest) > MOST_JOINT:
                raise UnsupportedError(
                    f"the joint posterior of {len(X)} points depends on {len(nearest)} rows, more "
                    f"than the {MOST_JOINT} that a LocalGP supports. Ask for fewer points, or for "
                    "separate points with X.unsqueeze(-2)."
                )
            factor = self._factor(self._rows[nearest], nearest)
        cross = self._module(self._points[nearest], X).to_dense()  # r x q
        solved = torch.linalg.solve_triangular(factor, cross, upper=False)
        covariance: Tensor = self._module(X).to_dense() - solved.mT @ solved
        return covariance

    def _chunks(self, X: Tensor) -> tuple[Tensor, ...]:
        entries = max(self.num_rows, self._num_neighbors**2, 1)
        return X.split(max(1, CHUNK_ENTRIES // entries))

    def _neighbors(self, U: Tensor) -> Tensor:
        """Return the numbers of the nearest rows, ``b x k``."""
        squared = torch.addmm(self._norms, U, self._rows.mT, alpha=-2.0)
        return squared.topk(self._num_neighbors, largest=False, sorted=False).indices

    def _factor(self, rows: Tensor, nearest: Tensor) -> Tensor:
        matrix = self.kernel.matrix(rows, rows)
        diagonal = matrix.diagonal(dim1=-2, dim2=-1)
        diagonal.copy_(self.outputscale + self._noise_of_rows[nearest])
        factor, info = torch.linalg.cholesky_ex(matrix)
        return psd_safe_cholesky(matrix) if bool(info.any()) else factor

    def _evaluate(self, X: Tensor, with_gradient: bool) -> tuple[Tensor, ...]:
        U = (X - self._center) / self.lengthscale
        if self.num_rows == 0:
            mean = torch.full_like(U[:, 0], self.prior_mean)
            values = (mean, torch.full_like(mean, self.outputscale))
            return (*values, torch.zeros_like(X), torch.zeros_like(X)) if with_gradient else values
        nearest = self._neighbors(U)
        rows = self._rows[nearest]  # b x k x d
        away = U.unsqueeze(-2) - rows
        cross, slope = self.kernel.of_squared_distance(away.square().sum(-1), with_gradient)
        factor = self._factor(rows, nearest)
        both = torch.stack([self._outcomes[nearest], cross], dim=-1)  # b x k x 2
        solved = torch.linalg.solve_triangular(factor, both, upper=False)
        of_outcomes, of_values = solved.unbind(-1)
        mean = self.prior_mean + (of_outcomes * of_values).sum(-1)
        variance = (self.outputscale - of_values.square().sum(-1)).clamp_min_(0.0)
        if not with_gradient:
            return mean, variance
        assert slope is not None
        weights = torch.linalg.solve_triangular(factor.mT, solved, upper=True)  # b x k x 2
        sums = ((weights * slope.unsqueeze(-1)).mT @ away) / self.lengthscale  # b x 2 x d
        return mean, variance, sums[:, 0], -2.0 * sums[:, 1]


class LocalGP(Model):
    r"""Approximate Gaussian process: the exact posterior given the rows nearest to each point.

    It is meant for loops with many thousands of distinct rows, where an exact model takes seconds
    per round; see the module. The hyperparameters are fixed. Without data (``n = 0``), the model is
    the prior. It works with upper confidence bounds of a given width and with improvement. Thompson
    sampling does not accept it, because a draw is one function, and the posteriors at two points
    are based on different rows.

    Args:
        train_X: ``n x d`` inputs, float64; ``n`` may be 0.
        train_Y: ``n x 1`` outcomes, float64.
        kernel: ``RBFKernel`` or ``MaternKernel`` on all columns, alone or in a ``ScaleKernel``.
            It is copied.
        noise: The modeled noise variance, in squared outcome units; above 1e-10 times the kernel's
            output scale.
        num_neighbors: The number of nearest rows that a point uses, at least 1.
        input_transform: A transform applied to inputs before the kernel, which maps each row to one
            row. It is copied.
        prior_mean: A constant, in outcome units.
        repeats: ``n``, float64: the number of observations of which each row of ``train_Y`` is the
            mean.

    Attributes:
        approximation: A description of what is approximate.

    Raises:
        TypeError: If a tensor is not float64 or ``kernel`` is not a GPyTorch kernel.
        ValueError: If shapes disagree, an entry is not finite, the kernel is not supported, or a
            number is infeasible.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> X = torch.rand(500, 2, dtype=torch.float64)
        >>> model = LocalGP(X, X.sum(-1, keepdim=True), MaternKernel(), num_neighbors=50)
        >>> model.posterior(X[:3]).mean.shape
        torch.Size([3, 1])
        >>> model
        LocalGP(approximate: 50 nearest of 500 rows)
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        kernel: Kernel,
        noise: float = 0.01,
        num_neighbors: int = NUM_NEIGHBORS,
        input_transform: InputTransform | None = None,
        prior_mean: float = 0.0,
        repeats: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__()
        check_finite("train_X", check_double("train_X", train_X))
        check_finite("train_Y", check_double("train_Y", train_Y))
        if train_X.dim() != 2 or train_Y.shape != (len(train_X), 1):
            raise ValueError(
                f"train_X has shape {tuple(train_X.shape)} and train_Y {tuple(train_Y.shape)}; a "
                "LocalGP needs n x d and n x 1, one output without batches. Build one model for "
                "each output, or use BanditGP."
            )
        kernel = check_local_kernel(kernel, train_X.shape[-1] if input_transform is None else None)
        self.covar_module = kernel.to(train_X).requires_grad_(False)
        self.noise = check_noise(noise, output_scale_of(kernel))
        self.num_neighbors = check_integer("num_neighbors", num_neighbors, minimum=1)
        self.prior_mean = check_number("prior_mean", prior_mean)
        _check_transform(input_transform)
        transform = None if input_transform is None else copy.deepcopy(input_transform).eval()
        self._transform = transform  # under its own name, BoTorch would keep transformed inputs
        self.train_inputs, self.train_targets = (train_X,), train_Y.squeeze(-1)
        if repeats is None:
            X, means, counts, _ = collapse_repeats(train_X, train_Y)
            self.num_observations = len(train_X)
        else:
            X, means, counts = train_X, train_Y, check_repeats(repeats, train_Y)
            self.num_observations = int(counts.sum())
        self._places, self._means, self._counts = X, means.squeeze(-1), counts
        points = X if transform is None else transform(X)
        self._form = LocalForm(
            self.covar_module,
            self.noise,
            points.detach(),
            self._means,
            counts,
            self.prior_mean,
            self.num_neighbors,
        )
        self.eval()

    @classmethod
    def with_kernel(
        cls,
        kernel: Kernel,
        noise: float = 0.01,
        *,
        lengthscale: float | None = None,
        num_neighbors: int = NUM_NEIGHBORS,
        input_transform: InputTransform | None = None,
        prior_mean: float = 0.0,
    ) -> LocalGPRecipe:
        """Return a recipe: everything but the data.

        Args:
            kernel: ``RBFKernel`` or ``MaternKernel``, alone or in a ``ScaleKernel``; copied.
            noise: The modeled noise variance.
            lengthscale: Set on the kernel (or its base kernel) in double precision.
            num_neighbors: The number of nearest rows that a point uses, at least 1.
            input_transform: Applied to inputs before the kernel; copied.
            prior_mean: A constant.

        Raises:
            TypeError: If a numeric argument is not a number.
            ValueError: If a number is infeasible, or the kernel is not supported.

        Example:
            >>> from gpytorch.kernels import MaternKernel
            >>> LocalGP.with_kernel(MaternKernel(nu=2.5), lengthscale=0.2).num_neighbors
            100
        """
        return LocalGPRecipe(
            double_kernel(kernel, lengthscale), noise, num_neighbors, input_transform, prior_mean
        )

    @property
    def approximation(self) -> str:
        """A description of what is approximate."""
        return approximation_of(self.num_neighbors)

    @property
    def num_outputs(self) -> int:
        """The number of outputs, which is 1."""
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape, which is empty."""
        return torch.Size()

    @property
    def closed_form(self) -> LocalForm | TransformedClosedForm:
        """The posterior as plain functions of raw inputs."""
        if self._transform is None:
            return self._form
        form: Any = self._form  # has all that a closed form needs there
        transformed = TransformedClosedForm(form, self._transform)
        transformed.most_steps = MOST_STEPS
        return transformed

    def promising_rows(self) -> Tensor:
        """Return the rows with the largest and the smallest mean outcomes, at most 256 x d.

        The best posterior mean at a row is sought among them.
        """
        if len(self._means) <= NUM_INCUMBENTS:
            return self._places
        order = self._means.argsort()
        half = NUM_INCUMBENTS // 2
        return self._places[torch.cat([order[:half], order[-half:]])]

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GPyTorchPosterior:
        """Return the posterior at ``X``; see BoTorch.

        Args:
            X: ``batch_shape x q x d``, raw. Means and variances are those of each point on its own.
                The covariance of ``q`` points, which samples need, is given all rows that any of
                them uses.
            output_indices: The one output, or None.
            observation_noise: Whether to add the noise variance.
            posterior_transform: Applied to the posterior.

        Raises:
            UnsupportedError: If ``observation_noise`` is a tensor.
        """
        if isinstance(observation_noise, Tensor):
            raise UnsupportedError("observation_noise is a tensor; a LocalGP takes True or False.")
        points = X if self._transform is None else self._transform(X)
        noise = self.noise if observation_noise else 0.0
        flat = points.reshape(-1, points.shape[-1])
        mean, variance = marginals(self._form, flat, noise)  # type: ignore[arg-type]
        shape = X.shape[:-1]

        def covariance() -> Tensor:
            found = self._form.covariance(points)
            return found + noise * torch.eye(X.shape[-2]).to(found)

        posterior = LeanPosterior(mean.view(shape), variance.view(shape), covariance)
        return posterior if posterior_transform is None else posterior_transform(posterior, X)

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> LocalGP:
        """Return a new model with the rows ``(X, Y)`` added; this model is not changed.

        Args:
            X: ``n' x d`` inputs, raw.
            Y: ``n' x 1`` outcomes.
            kwargs: Not supported.

        Raises:
            UnsupportedError: If there are further arguments, such as ``noise``.
        """
        if kwargs:
            raise UnsupportedError(f"LocalGP cannot be conditioned with {', '.join(kwargs)}.")
        return type(self)(
            torch.cat([self._places, X]),
            torch.cat([self._means.unsqueeze(-1), Y]),
            self.covar_module,
            self.noise,
            self.num_neighbors,
            self._transform,
            self.prior_mean,
            torch.cat([self._counts, self._counts.new_ones(len(X))]),
        )

    def __repr__(self) -> str:
        """Say that it is approximate."""
        return f"LocalGP(approximate: {self.num_neighbors} nearest of {self._form.num_rows} rows)"


def approximation_of(num_neighbors: int) -> str:
    """Say what is approximate.

    Args:
        num_neighbors: The number of rows that a point uses.
    """
    return (
        f"LocalGP is an approximate model (each point uses only its {num_neighbors} nearest "
        "rows), and no theorem covers it"
    )


def check_drawable(name: str, model: Any) -> None:
    """Raise an error if no function can be drawn from a model or a recipe.

    Args:
        name: The name of what wants to draw, for the error message.
        model: Any model or model builder.

    Raises:
        UnsupportedError: If it is a LocalGP or the recipe of one.
    """
    if isinstance(model, LocalGP | LocalGPRecipe):
        raise UnsupportedError(
            f"{name} draws one function, but a LocalGP has none: the posteriors at two points are "
            "based on different rows. Use an upper confidence bound such as "
            "GPUpperConfidenceBound.with_options(width=2.0), or a BanditGP."
        )


def check_local_kernel(kernel: Any, num_columns: int | None = None) -> Kernel:
    """Return a float64 copy of a kernel if its distances determine which rows matter most.

    Args:
        kernel: Any kernel.
        num_columns: The number of columns of the inputs, if it is known.

    Raises:
        TypeError: If it is not a kernel.
        ValueError: If it is not an ``RBFKernel`` or ``MaternKernel``, alone or in a
            ``ScaleKernel``, or has lengthscales for other columns.
    """
    kernel = double_kernel(kernel)
    form = StationaryKernel.read(kernel)
    if form is None:
        raise ValueError(
            f"kernel is {type(kernel).__name__}, but a LocalGP needs one for which the nearest "
            "rows are the most informative: RBFKernel or MaternKernel on all columns, alone or in "
            "a ScaleKernel. Use one of them, or BanditGP.with_kernel(...)."
        )
    if num_columns is not None and len(form.lengthscale) not in (1, num_columns):
        raise ValueError(
            f"kernel has {len(form.lengthscale)} lengthscales, but the inputs have {num_columns} "
            f"columns. Build it with ard_num_dims={num_columns}."
        )
    return kernel


def _check_transform(transform: InputTransform | None) -> None:
    if transform is not None and (learns_input_scale(transform) or transform.is_one_to_many):
        raise ValueError(
            f"input_transform is {type(transform).__name__}, which learns its scale from the rows "
            "or makes several rows of one. Give it the bounds of the domain, as in "
            "Normalize(d, bounds=bounds)."
        )


@dataclass(frozen=True, eq=False)
class LocalGPRecipe:
    """Everything that a :class:`LocalGP` needs except its data; see :meth:`LocalGP.with_kernel`.

    Attributes:
        kernel: The kernel, float64.
        noise: The modeled noise variance.
        num_neighbors: The number of nearest rows that a point uses.
        input_transform: Applied to inputs before the kernel.
        prior_mean: A constant.

    Raises:
        TypeError: If a numeric argument is not a number.
        ValueError: If a number is infeasible, or the kernel is not supported.
    """

    kernel: Kernel
    noise: float = 0.01
    num_neighbors: int = NUM_NEIGHBORS
    input_transform: InputTransform | None = None
    prior_mean: float = 0.0

    def __post_init__(self) -> None:
        """Check the numbers and copy the modules."""
        kernel = check_local_kernel(self.kernel)
        _check_transform(self.input_transform)
        store_checked(
            self,
            kernel=kernel,
            noise=check_noise(self.noise, output_scale_of(kernel)),
            num_neighbors=check_integer("num_neighbors", self.num_neighbors, minimum=1),
            input_transform=copy.deepcopy(self.input_transform),
            prior_mean=check_number("prior_mean", self.prior_mean),
        )

    def __call__(self, X: Tensor, Y: Tensor) -> LocalGP:
        """Build the model for ``n x d`` inputs and ``n x 1`` outcomes (``n`` may be 0)."""
        return LocalGP(
            X,
            Y,
            self.kernel,
            self.noise,
            self.num_neighbors,
            self.input_transform,
            self.prior_mean,
        )

    def fingerprint(self) -> str:
        """Return a digest that is equal for recipes that build equal models."""
        parts = [
            repr((self.noise, self.num_neighbors, self.prior_mean)),
            fingerprint_kernel(self.kernel),
            "" if self.input_transform is None else describe_module(self.input_transform),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        """Compare by fingerprint."""
        if not isinstance(other, LocalGPRecipe):
            return NotImplemented
        return self.fingerprint() == other.fingerprint()

    def __hash__(self) -> int:
        """Hash the numbers, which cannot change."""
        return hash((self.noise, self.num_neighbors, self.prior_mean))


fill_in_docstrings(__name__)

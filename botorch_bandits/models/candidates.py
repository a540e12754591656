r"""A list of priors instead of one: their posteriors, their evidence, and an ensemble for BoTorch.

The reward is a draw from one of the priors on a list; see
:mod:`botorch_bandits.confidence.candidates` for what is proved about such lists. There are two
forms:

* :class:`CandidatesModel`, a BoTorch ensemble on any inputs,
* :class:`~botorch_bandits.acquisition.player.Player`, on a finite set of arms, where each group of
  entries is a batch index of :class:`~botorch_bandits.core.posterior.Posterior`.

**The output scale costs nothing.** With :math:`k = s k_1` and the noise variance :math:`s \lambda`,

.. math::
   \mu(x) = m + k_1(x)^\top (K_1 + \lambda I)^{-1} (y - m), \qquad
   \sigma^2(x) = s \, \bigl( k_1(x, x) - k_1(x)^\top (K_1 + \lambda I)^{-1} k_1(x) \bigr),

so that entries of the list with the same kernel :math:`k_1`, noise ratio :math:`\lambda` and prior
mean :math:`m` share a factor, regardless of their scales :math:`s`.

**The evidence** counts one outcome at a time, in the order of the rows, each against the prediction
from the rows before it.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from botorch.posteriors import GPyTorchPosterior
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    MaternKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from linear_operator.operators import DenseLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import ModuleList

from botorch_bandits.checks import (
    check_double,
    check_finite,
    check_matrix,
    check_positive,
    store_checked,
)
from botorch_bandits.confidence.candidates import (
    CandidateEvidence,
    check_num_skipped,
)
from botorch_bandits.confidence.prior_reading import (
    constant_prior_mean,
    learns_input_scale,
    read_prior,
)
from botorch_bandits.core.box import BoxPosterior
from botorch_bandits.core.kernels import (
    KernelList,
    StationaryKernel,
    describe_module,
    fingerprint_kernel,
    kernel_function,
)
from botorch_bandits.models.candidate_groups import (
    CandidateGroups,
    bounds_of_groups,
    mixture_of_groups,
    split_scale,
)
from botorch_bandits.models.ensembles import LeanMixture
from botorch_bandits.models.reading import condition, observed_inputs, observed_outcomes

NUM_MEMBERS = 64
"""Members of the ensemble that BoTorch's own acquisition functions see."""


@dataclass(frozen=True, eq=False)
class OwnModel:
    """A user's model as an entry of a list.

    Attributes:
        model: An exact Gaussian process of one output; it is not changed.
        kernel: Its kernel.
        noise: Its noise variance.
        prior_mean: Its prior mean.
        input_transform: Its input transform.
        learned: A description of what was, or could have been, learned from the same data.
    """

    model: Model
    kernel: Kernel
    noise: float
    prior_mean: float
    input_transform: InputTransform | None
    learned: tuple[str, ...]

    @classmethod
    def read(cls, index: int, model: Model) -> OwnModel:
        """Read the prior of a model.

        Args:
            index: Its position in the list, for error messages.
            model: See the class.

        Raises:
            ValueError: If it has several outputs or batches, an outcome transform, or a prior that
                cannot be read.
        """
        name = f"models[{index}] ({type(model).__name__})"
        if model.num_outputs != 1 or model.batch_shape:
            raise ValueError(f"{name} has several outputs or batches; pass models of one output.")
        if getattr(model, "outcome_transform", None) is not None:
            raise ValueError(
                f"{name} has an outcome transform, which learns from later outcomes what the "
                "evidence of earlier ones would need. Pass outcome_transform=None, and a kernel "
                "and a noise variance in the units of the outcomes."
            )
        (prior,) = read_prior(model)
        mean = constant_prior_mean(cast(Any, model))
        if mean is None or prior.row_noise is not None:
            raise ValueError(
                f"{name} has no constant mean, or noise that differs from row to row; pass a "
                "model with a ConstantMean or ZeroMean and one noise variance."
            )
        learned = prior.learned if prior.is_given else (*prior.learned, "frozen parameters")
        return cls(
            model=model,
            kernel=cast(Kernel, model.covar_module),
            noise=float(prior.noise_variance),
            prior_mean=mean,
            input_transform=getattr(model, "input_transform", None),
            learned=learned,
        )

    def __call__(self, X: Tensor, Y: Tensor) -> Model:
        """Return the model with the rows that it does not have yet."""
        num_rows = int(cast(Any, self.model).train_targets.shape[-1])
        if len(X) == num_rows:
            return self.model
        return condition(self.model, X[num_rows:], Y[num_rows:])


@dataclass(frozen=True, eq=False)
class CandidatesRecipe:
    """A list of priors and their weights; calling it with data builds the model.

    :meth:`BanditGP.with_candidates` creates it. Two recipes are equal if they build equal models.

    Attributes:
        candidates: The priors, without refits, all with the same input transform.
        weights: One positive weight each; they are divided by their sum.
        names: The names of the priors in tables.
        num_skipped: How many of the first outcomes the evidence leaves out because the list or its
            weights were chosen based on them. They remain in every posterior.

    Raises:
        TypeError: If an entry is not a recipe.
        ValueError: If the list is empty, an entry refits, input transforms differ or learn from
            data, or weights or names do not match the entries.
    """

    candidates: tuple[Any, ...]
    weights: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    num_skipped: int = 0

    def __post_init__(self) -> None:
        """Check the list and complete weights and names."""
        entries = tuple(self.candidates)
        if not entries:
            raise ValueError("candidates is empty; give at least one prior.")
        for index, entry in enumerate(entries):
            _check_entry(index, entry, entries[0])
        weights = tuple(self.weights) or (1.0 / len(entries),) * len(entries)
        names = tuple(self.names) or _distinct([_describe(entry) for entry in entries])
        for name, given in (("weights", weights), ("names", names)):
            if len(given) != len(entries):
                raise ValueError(
                    f"{name} has {len(given)} entries and candidates {len(entries)}; give one per "
                    f"prior, or leave out {name}=."
                )
        checked = tuple(check_positive(f"weights[{i}]", w) for i, w in enumerate(weights))
        store_checked(
            self,
            candidates=entries,
            weights=checked,
            names=names,
            num_skipped=check_num_skipped(self.num_skipped),
        )

    def __repr__(self) -> str:
        """Show the number of priors and the names of the first and the last."""
        shown = ", ".join(map(repr, self.names[:2]))
        if len(self.names) > 2:
            shown += f"{', ...' if len(self.names) > 3 else ''}, {self.names[-1]!r}"
        skipped = f", num_skipped={self.num_skipped}" if self.num_skipped else ""
        return f"{type(self).__name__}({len(self.names)} priors: {shown}{skipped})"

    @cached_property
    def groups(self) -> CandidateGroups:
        """The entries in groups that share a factor."""
        return CandidateGroups(self.candidates)

    @property
    def num_candidates(self) -> int:
        """The number of priors on the list."""
        return len(self.candidates)

    @property
    def input_transform(self) -> InputTransform | None:
        """The transform applied to inputs before the kernels."""
        transform: InputTransform | None = self.candidates[0].input_transform
        return transform

    def new_evidence(self) -> CandidateEvidence:
        """Return the evidence before the data."""
        return CandidateEvidence(self.weights, self.names)

    def __call__(self, X: Tensor, Y: Tensor) -> CandidatesModel:
        """Build the model.

        Args:
            X: ``n x d`` inputs in the order in which their outcomes arrived; ``n`` may be 0.
            Y: ``n x 1`` outcomes.

        Raises:
            TypeError: If a tensor is not float64.
            ValueError: If shapes do not match, or a covariance cannot be factorized.
        """
        return CandidatesModel(self, X, Y)

    def builder(self) -> CandidatesBuilder:
        """Return a builder of the models of a loop, each with more rows than the previous one."""
        return CandidatesBuilder(self)

    def fingerprint(self) -> str:
        """Return a digest that is equal for recipes that build equal models."""
        parts = [_fingerprint(entry) for entry in self.candidates]
        names = self.names
        if names == _distinct([_describe(entry) for entry in self.candidates]):
            # journals have fingerprints of default names that did not describe the parts
            names = _distinct([_describe(entry, parts=False) for entry in self.candidates])
        parts += [repr(self.weights), repr(names), repr(self.num_skipped)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        """Compare by fingerprint."""
        if not isinstance(other, CandidatesRecipe):
            return NotImplemented
        return self.fingerprint() == other.fingerprint()

    def __hash__(self) -> int:
        """Hash the weights."""
        return hash((self.weights, self.num_skipped))


def _check_entry(index: int, entry: Any, first: Any) -> None:
    needed = ("kernel", "noise", "prior_mean", "input_transform")
    if isinstance(entry, Kernel) or not all(hasattr(entry, name) for name in needed):
        raise TypeError(
            f"candidates[{index}] is {entry!r}; pass recipes, as BanditGP.with_kernel(...) "
            "returns them."
        )
    if getattr(entry, "refit_every", None) is not None:
        raise ValueError(
            f"candidates[{index}] has refit_every={entry.refit_every}; a prior on a list is fixed. "
            "Leave out refit_every=."
        )
    if entry.kernel.batch_shape:
        raise ValueError(
            f"candidates[{index}] has a kernel with batch shape {tuple(entry.kernel.batch_shape)}; "
            "give each kernel an entry of its own."
        )
    if learns_input_scale(entry.input_transform):
        raise ValueError(
            f"candidates[{index}] has an input transform that learns its scale from the rows, "
            "which would change earlier predictions. Give it the bounds of the domain."
        )
    if _describe_transform(entry) != _describe_transform(first):
        raise ValueError(
            f"the input transforms of candidates[{index}] and candidates[0] differ; give all the "
            "same one."
        )


def _describe_transform(entry: Any) -> str:
    return "" if entry.input_transform is None else describe_module(entry.input_transform)


def _fingerprint(entry: Any) -> str:
    if hasattr(entry, "fingerprint"):
        return str(entry.fingerprint())
    parts = (fingerprint_kernel(entry.kernel), entry.noise, entry.prior_mean)
    return "\n".join([*map(repr, parts), _describe_transform(entry)])


def _describe(entry: Any, parts: bool = True) -> str:
    """Return the default name of a prior.

    Args:
        entry: Its recipe.
        parts: Whether kernels that are neither Matern nor SE are described part by part; otherwise
            only by the name of their class.
    """
    kernel, scale = split_scale(entry.kernel)
    told = _describe_kernel(kernel, parts)
    told += f", scale {scale:.3g}, noise {entry.noise:.3g}"
    return told + (f", mean {entry.prior_mean:.3g}" if entry.prior_mean else "")


def _describe_kernel(kernel: Kernel, parts: bool) -> str:
    read = StationaryKernel.read(kernel)
    if read is not None:
        kind = "SE" if read.smoothness == math.inf else f"Matern {read.smoothness:g}"
        return f"{kind}, lengthscale {_listed(read.lengthscale)}"
    told = type(kernel).__name__
    if not parts:
        return told
    if type(kernel) in (ProductKernel, AdditiveKernel):
        sign = " x " if type(kernel) is ProductKernel else " + "
        return sign.join(f"({_describe_kernel(part, parts)})" for part in kernel.kernels)
    if type(kernel) is ScaleKernel:
        inner = _describe_kernel(kernel.base_kernel, parts)
        return f"{_listed(kernel.outputscale)} x ({inner})"
    if type(kernel) in (RBFKernel, MaternKernel):  # on some of the columns
        told = "SE" if type(kernel) is RBFKernel else f"Matern {kernel.nu:g}"
    if hasattr(kernel, "period_length"):
        told += f", period {_listed(kernel.period_length)}"
    if kernel.has_lengthscale:
        told += f", lengthscale {_listed(kernel.lengthscale)}"
    return told


def _listed(values: Tensor) -> str:
    return ", ".join(f"{value:.3g}" for value in values.detach().reshape(-1).tolist())


def _distinct(names: list[str]) -> tuple[str, ...]:
    if len(set(names)) == len(names):
        return tuple(names)
    return tuple(f"{i}: {name}" for i, name in enumerate(names))


class CandidatesModel(Model):
    """The posteriors of a list of priors, as a BoTorch ensemble.

    BoTorch's own acquisition functions see :data:`NUM_MEMBERS` members of equal weight: BoTorch
    averages over the members of an ensemble with equal weights, so each entry is repeated in
    proportion to its posterior weight, rounded to a multiple of 1/64. The acquisition functions of
    this package use the exact weights.

    Args:
        recipe: The list.
        train_X: ``n x d`` inputs, float64, in the order in which their outcomes arrived.
        train_Y: ``n x 1`` outcomes, float64.

    Attributes:
        recipe: The list.
        evidence: What the outcomes say about each prior.
        train_inputs: The raw inputs, in a tuple as in BoTorch.
        train_targets: ``n`` outcomes.

    Raises:
        TypeError: If a tensor is not float64.
        ValueError: If shapes do not match, an entry is not finite or a covariance cannot be
            factorized.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import BanditGP
        >>> scales = [0.1, 0.5]
        >>> priors = [BanditGP.with_kernel(RBFKernel(), lengthscale=each) for each in scales]
        >>> X = torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1)
        >>> model = BanditGP.with_candidates(priors)(X, X.sin())
        >>> [round(weight, 2) for weight in model.evidence.posterior_weights.tolist()]
        [0.0, 1.0]
    """

    _is_ensemble = True

    def __init__(self, recipe: CandidatesRecipe, train_X: Tensor, train_Y: Tensor) -> None:
        """See the class."""
        super().__init__()
        X, Y = _check_rows(train_X, train_Y)
        self.recipe = recipe
        self.train_inputs: tuple[Tensor, ...] = (X,)
        self.train_targets = Y.squeeze(-1)
        self.kernels = ModuleList([copy.deepcopy(each).to(X) for each in recipe.groups.kernels])
        transform = copy.deepcopy(recipe.input_transform)
        # not under BoTorch's name, under which BoTorch would replace the raw inputs with others
        self._encoder = None if transform is None else transform.to(X)
        self.evidence = recipe.new_evidence()
        self.num_hallucinated = 0
        self.eval()
        with torch.no_grad():
            groups, points = recipe.groups, self._transformed(X)
            lam, means = (torch.from_numpy(each).to(X) for each in (groups.lam, groups.prior_means))
            kernels = [cast(Kernel, each) for each in self.kernels]
            functions = KernelList([kernel_function(each, points.shape[-1]) for each in kernels])
            outcomes = self.train_targets.expand(len(lam), -1)
            self._rows = BoxPosterior.of(functions, points, outcomes, lam, means)  # *g is G
            self._count(first=0)

    @property
    def num_outputs(self) -> int:
        """The number of outputs, which is 1."""
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        """The members of the ensemble, as BoTorch counts them."""
        return torch.Size([NUM_MEMBERS])

    @property
    def num_rows(self) -> int:
        """The number of outcomes that have arrived; hallucinated rows do not count."""
        return len(self.train_targets)

    @property
    def X_baseline(self) -> Tensor:
        """``n x d`` raw inputs, near which an acquisition function may be largest."""
        return self.train_inputs[0]

    @cached_property
    def members(self) -> tuple[int, ...]:
        """The entry of each member of the ensemble, :data:`NUM_MEMBERS` of them."""
        shares = self.evidence.numpy_posterior_weights() * NUM_MEMBERS
        counts = np.floor(shares).astype(int)
        missing = NUM_MEMBERS - int(counts.sum())
        # the largest remainders, and the first of equal ones
        order = np.argsort(-(shares - counts), kind="stable")
        counts[order[:missing]] += 1
        return tuple(np.repeat(np.arange(len(counts)), counts).tolist())

    @cached_property
    def _rows_of_members(self) -> BoxPosterior:
        """The posteriors of the groups that have members, in order."""
        groups = np.unique(self.recipe.groups.group_of[list(self.members)]).tolist()
        is_all = len(groups) == len(self.recipe.groups)
        return self._rows if is_all else self._rows.select(groups)

    def has_rows(self, X: Tensor, Y: Tensor) -> bool:
        """Return whether the given rows begin with the rows of this model.

        Args:
            X: ``n x d`` inputs, at least as many as this model has.
            Y: ``n x 1`` outcomes.
        """
        n = self.num_rows
        return torch.equal(self.train_inputs[0], X[:n]) and torch.equal(
            self.train_targets, Y[:n].squeeze(-1)
        )

    def group_moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior moments of each group of entries at single points.

        Args:
            X: ``... x d`` raw points.

        Returns:
            Means and variances at output scale 1, ``... x G`` each.
        """
        points = self._transformed(X.reshape(-1, X.shape[-1]))
        mean, variance = self._rows.moments(points)
        shape = (*X.shape[:-1], len(self.recipe.groups))
        return mean.mT.reshape(shape), variance.clamp_min(0.0).mT.reshape(shape)

    def least_noise_ratio(self, x: Tensor, in_force: NDArray[np.bool_]) -> float:
        """Return the smallest ratio of noise variance to posterior variance at a point.

        Args:
            x: ``d``, raw.
            in_force: The entries that count.
        """
        with torch.no_grad():
            _, variances = self.group_moments(x)
        return self.recipe.groups.least_noise_ratio(variances.cpu().numpy(), in_force)

    def group_moments_one_by_one(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the moments of each group at each point given the points before it.

        Means are unchanged, as with :meth:`hallucinated`.

        Args:
            X: ``... x q x d`` raw points.

        Returns:
            Means and variances at output scale 1, ``... x q x G`` each.
        """
        mean, covariance = self._rows.mean_and_covariance(self._transformed(X))
        noisy = covariance + torch.diag_embed(self._rows.noise.unsqueeze(-1).expand_as(mean))
        earlier = psd_safe_cholesky(noisy).tril(-1)
        variance = covariance.diagonal(dim1=-2, dim2=-1) - earlier.square().sum(-1)
        return mean.mT, variance.clamp_min(0.0).mT

    def bounds(
        self, X: Tensor, widths: float | NDArray[np.float64], in_force: NDArray[np.bool_]
    ) -> tuple[Tensor, Tensor]:
        """Return the smallest lower and the largest upper bound of some entries.

        Args:
            X: ``... x d`` raw points.
            widths: The width of each entry's band, or one for all.
            in_force: The entries whose bands count, such as the survivors.

        Returns:
            ``...`` each.
        """
        return self.bounds_from(*self.group_moments(X), widths, in_force)

    def bounds_from(
        self,
        mean: Tensor,
        variance: Tensor,
        widths: float | NDArray[np.float64],
        in_force: NDArray[np.bool_],
    ) -> tuple[Tensor, Tensor]:
        """Return the bounds that follow from the moments of the groups; see :meth:`bounds`.

        Args:
            mean: ``... x G``.
            variance: ``... x G``, at output scale 1.
            widths: The width of each entry's band, or one for all.
            in_force: The entries whose bands count.
        """
        deviation = variance.clamp_min(1e-30).sqrt()
        return bounds_of_groups(mean, deviation, self.recipe.groups.factors(widths, in_force))

    def mixture(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the mixture of all entries by their posterior weights.

        Args:
            X: ``... x d`` raw points.

        Returns:
            ``...`` each; the variance of the reward, without noise.
        """
        return self.mixture_from(*self.group_moments(X))

    def mixture_from(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mixture that follows from the moments of the groups; see :meth:`mixture`.

        Args:
            mean: ``... x G``.
            variance: ``... x G``, at output scale 1.
        """
        posterior = self.evidence.numpy_posterior_weights()
        return mixture_of_groups(mean, variance, *self.recipe.groups.mixture_weights(posterior))

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GaussianMixturePosterior:
        """Return the posterior of the ensemble; see BoTorch.

        Args:
            X: ``batch_shape x q x d``, raw. Each ``q x d`` is one joint distribution.
            output_indices: The single output, or None.
            observation_noise: Whether to add the noise variance, or a tensor of variances.
            posterior_transform: Applied to the posterior.

        Returns:
            A mixture with the members in dimension -3 of its mean.
        """
        rows, points = self._rows_of_members, self._transformed(X)
        entries = np.array(self.members)
        scales = torch.from_numpy(self.recipe.groups.scales[entries]).to(X)
        index = torch.from_numpy(
            np.unique(self.recipe.groups.group_of[entries], return_inverse=True)[1]
        )
        index = index.to(X.device)
        mode = torch.enable_grad if torch.is_grad_enabled() else torch.no_grad
        flat = points.reshape(-1, points.shape[-1])

        def of_members(values: Tensor) -> Tensor:  # groups x points to ... x members x q
            return values.unflatten(-1, points.shape[:-1]).movedim(0, -2)[..., index, :]

        def variance() -> Tensor:
            with mode():
                found = of_members(rows.moments(flat)[1]) * scales[:, None]
                found = found.clamp_min(1e-10 * scales[:, None])
                if observation_noise is True:
                    return found + (scales * rows.noise[index])[:, None]
                if isinstance(observation_noise, Tensor):
                    return found + observation_noise.squeeze(-1).unsqueeze(-2)
                return found

        def covariance() -> Tensor:
            with mode():
                _, of_groups = rows.mean_and_covariance(points)
                own = of_groups[..., index, :, :] * scales[:, None, None]
                return own.diagonal_scatter(variance(), dim1=-2, dim2=-1)

        mean = of_members(rows.mean(flat))
        if posterior_transform is not None:
            distribution = MultivariateNormal(mean, DenseLinearOperator(covariance()))
            joint = cast(GPyTorchPosterior, posterior_transform(GPyTorchPosterior(distribution), X))
            return GaussianMixturePosterior(distribution=joint.distribution)
        return LeanMixture(mean, variance, covariance)

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> CandidatesModel:
        """Return a new model with additional outcomes, which also count in the evidence.

        Args:
            X: ``n' x d`` inputs in the order in which their outcomes arrived.
            Y: ``n' x 1`` outcomes.
            kwargs: No options are supported.

        Raises:
            UnsupportedError: If this model has hallucinated rows, or there are options.
            TypeError: If a tensor is not float64.
            ValueError: If shapes do not match or an entry is not finite.
        """
        if self.num_hallucinated or kwargs:
            raise UnsupportedError(
                "outcomes are added to a model without hallucinated rows, and without options "
                f"(this one has {self.num_hallucinated} such rows; options: {sorted(kwargs)})."
            )
        X, Y = _check_rows(X, Y, self.train_inputs[0].shape[-1])
        new = self._copied()
        new.evidence = self.evidence.copied()
        with torch.no_grad():
            y = Y.squeeze(-1)
            new._rows = new._rows.with_rows(self._transformed(X), y.expand(len(self.kernels), -1))
            new.train_inputs = (torch.cat([self.train_inputs[0], X]),)
            new.train_targets = torch.cat([self.train_targets, y])
            new._count(first=self.num_rows)
        return new

    def hallucinated(self, X: Tensor) -> CandidatesModel:
        """Return a new model in which pending points have their posterior means as outcomes.

        Under each prior, means are unchanged and variances shrink. The evidence does not change,
        because no outcome has arrived.

        Args:
            X: ``n' x d`` pending points.
        """
        X = check_matrix("X", check_double("X", X), num_columns=self.train_inputs[0].shape[-1])
        new = self._copied()
        new.num_hallucinated = self.num_hallucinated + len(X)
        with torch.no_grad():
            new._rows = new._rows.with_rows(self._transformed(X), None)
        return new

    def member(self, index: int) -> Any:
        """Return the model of a single entry, given the outcomes that have arrived.

        Args:
            index: The entry, from 0.
        """
        return self.recipe.candidates[index](self.train_inputs[0], self.train_targets.unsqueeze(-1))

    @classmethod
    def from_models(
        cls,
        models: Sequence[Model],
        weights: Sequence[float] | None = None,
        names: Sequence[str] | None = None,
        num_skipped: int = 0,
    ) -> CandidatesModel:
        """Return the ensemble of a list of your own models of the same rows.

        The rows must be in the order in which their outcomes arrived, and hyperparameters must have
        been fixed before them: hyperparameters fitted to the same rows do not define a prior.

        Args:
            models: Exact Gaussian processes of one output, such as ``SingleTaskGP`` with
                ``outcome_transform=None``. They are not changed.
            weights: One positive weight per model, before the data; equal ones if omitted.
            names: The names of the models in tables.
            num_skipped: How many of the first outcomes the evidence leaves out; see
                :meth:`BanditGP.with_candidates`.

        Raises:
            ValueError: If there is no model, rows differ, or a prior cannot be read.
        """
        given = list(models)
        if not given:
            raise ValueError("models is empty; give at least one model.")
        entries = [OwnModel.read(index, model) for index, model in enumerate(given)]
        first = None
        for index, model in enumerate(given):
            inputs, outcomes = observed_inputs(model), observed_outcomes(model)
            if inputs is None or outcomes is None:
                raise ValueError(f"models[{index}] does not show its rows.")
            rows = torch.cat([inputs, outcomes[0].unsqueeze(-1)], dim=-1)
            first = rows if first is None else first
            if rows.shape != first.shape or not torch.equal(rows, first):
                raise ValueError(
                    f"the rows of models[{index}] and models[0] differ; give all the same rows in "
                    "the same order."
                )
        assert first is not None
        recipe = CandidatesRecipe(
            tuple(entries), tuple(weights or ()), tuple(names or ()), num_skipped
        )
        return cls(recipe, first[:, :-1].contiguous(), first[:, -1:].contiguous())

    def _transformed(self, X: Tensor) -> Tensor:
        transform = self._encoder
        if transform is None:
            return X
        transformed: Tensor = cast(Callable[[Tensor], Tensor], transform)(X)
        return transformed

    def _copied(self) -> CandidatesModel:
        new = copy.copy(self)
        for name in ("members", "_rows_of_members"):
            new.__dict__.pop(name, None)
        return new

    def _count(self, first: int) -> None:
        """Add the outcomes from a row on to the evidence, except for those that are left out."""
        start = max(first, self.recipe.num_skipped)
        outcomes = self.train_targets[start:].unsqueeze(-1).cpu().numpy()
        moments = (each.mT[start:].cpu().numpy() for each in self._rows.predictions())
        self.evidence.update_all(self.recipe.groups.log_densities(outcomes, *moments))


class CandidatesBuilder:
    """Builds models from a growing set of rows, extending the last model if its rows come first.

    Args:
        recipe: The list of priors.
    """

    def __init__(self, recipe: CandidatesRecipe) -> None:
        """See the class."""
        self._recipe = recipe
        self._last: CandidatesModel | None = None

    def __call__(self, X: Tensor, Y: Tensor) -> CandidatesModel:
        """Build the model, as the recipe does up to rounding.

        Args:
            X: ``n x d`` inputs in the order in which their outcomes arrived.
            Y: ``n x 1`` outcomes.
        """
        last = self._last
        if last is None or last.num_rows > len(X) or not last.has_rows(X, Y):
            self._last = self._recipe(X, Y)
        elif last.num_rows < len(X):
            new = slice(last.num_rows, None)
            self._last = last.condition_on_observations(X[new], Y[new])
        assert self._last is not None
        return self._last


def _check_rows(X: Tensor, Y: Tensor, num_columns: int | None = None) -> tuple[Tensor, Tensor]:
    X = check_matrix("train_X", check_double("train_X", X), num_columns=num_columns)
    Y = check_finite("train_Y", check_double("train_Y", Y))
    if Y.shape != (len(X), 1):
        raise ValueError(
            f"train_X has shape {tuple(X.shape)} and train_Y {tuple(Y.shape)}; they must be n x d "
            "and n x 1. A vector y becomes train_Y with y.unsqueeze(-1)."
        )
    return X.detach().clone(), Y.detach().clone()

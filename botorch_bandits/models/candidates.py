r"""A list of priors instead of one: their posteriors, their evidence, and an ensemble for BoTorch.

The reward is a draw from one of the priors on a list; see
:mod:`botorch_bandits.confidence.candidates` for what is proved about such lists. There are two
forms:

* :class:`CandidatesModel`, a BoTorch ensemble on any inputs,
* :class:`~botorch_bandits.acquisition.rules.Player`, on a finite set of arms, where each group of
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
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Identity

from botorch_bandits.checks import (
    DTYPE,
    check_double,
    check_finite,
    check_integer,
    check_matrix,
    check_positive,
    check_weights,
    store_checked,
)
from botorch_bandits.confidence.candidates import (
    CandidateEvidence,
)
from botorch_bandits.confidence.prior_reading import (
    constant_prior_mean,
    learns_input_scale,
    part_of,
    read_prior,
    refuse_several,
)
from botorch_bandits.core.box import BoxPosterior
from botorch_bandits.core.kernels import (
    KernelList,
    kernel_function,
    smoothness_of,
    unit_prior,
)
from botorch_bandits.fingerprints import are_equal
from botorch_bandits.models.reading import (
    LEAST_VARIANCE,
    JointMoments,
    MomentsModel,
    observed_inputs,
)

NUM_MEMBERS = 64
"""Members of the ensemble that BoTorch's own acquisition functions see."""

MOST_STARTS = 200
"""Searches start near the best of so many rows: BoTorch takes their joint covariance, which has
``NUM_MEMBERS n^2`` entries."""


class CandidateGroups:
    """Groups of entries that share a factor: their kernels, noise ratios and prior means agree.

    Args:
        priors: The entries, with ``kernel``, ``noise`` and ``prior_mean``.

    Attributes:
        kernels: The kernel of each group, without its output scale.
        lam: Noise variance over output scale, one per group.
        prior_means: One per group.
        group_of: The group of each entry.
        scales: The output scale of each entry.
    """

    def __init__(self, priors: Sequence[Any]) -> None:
        """See the class."""
        units = [unit_prior(prior.kernel, prior.noise) for prior in priors]
        means = [prior.prior_mean for prior in priors]
        groups = {
            (key, mean): (kernel, ratio, mean)
            for (key, kernel, ratio, _), mean in zip(units, means, strict=True)
        }
        kernels, *numbers = zip(*groups.values(), strict=True)
        self.kernels = tuple(copy.deepcopy(each).requires_grad_(False) for each in kernels)
        self.lam, self.prior_means = torch.tensor(numbers, dtype=DTYPE)
        number = {key: i for i, key in enumerate(groups)}
        self.group_of = np.array(
            [number[unit[0], mean] for unit, mean in zip(units, means, strict=True)]
        )
        self.scales = np.array([scale for *_, scale in units])

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.kernels)

    def bounds(
        self,
        mean: Tensor,
        variance: Tensor,
        widths: float | NDArray[np.float64],
        in_force: NDArray[np.bool_],
    ) -> tuple[Tensor, Tensor]:
        """Return the smallest lower and the largest upper bound of some entries, ``...`` each.

        Args:
            mean: ``G x ...``.
            variance: ``G x ...``.
            widths: The width of each entry's band, or one for all, in units of its own deviation.
            in_force: The entries whose bands count, such as the survivors.
        """
        # the widest band of each group's entries, in units of the group's deviation
        each = np.where(in_force, widths * np.sqrt(self.scales), -np.inf)
        factors = np.full(len(self), -np.inf)
        np.maximum.at(factors, self.group_of, each)
        counts = np.isfinite(factors)
        factor = torch.from_numpy(factors[counts]).to(variance)
        deviation = variance[counts].clamp_min(LEAST_VARIANCE).sqrt()
        half = torch.einsum("g,g...->g...", factor, deviation)
        return (mean[counts] - half).amin(0), (mean[counts] + half).amax(0)

    def mixture(
        self, mean: Tensor, variance: Tensor, posterior_weights: NDArray[np.float64]
    ) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the mixture of all entries, ``...`` each.

        Args:
            mean: ``G x ...``.
            variance: ``G x ...``; those of the reward, without noise.
            posterior_weights: The probability of each entry.
        """
        # the probability of each group, and its sum of probability times output scale
        weights = (posterior_weights, posterior_weights * self.scales)
        shares, scales = (
            torch.from_numpy(np.bincount(self.group_of, each)).to(mean) for each in weights
        )
        center = torch.tensordot(shares, mean, dims=1)
        between = torch.tensordot(shares, (mean - center).square(), dims=1)
        total = torch.tensordot(scales, variance, dims=1) + between
        return center, total.clamp_min(LEAST_VARIANCE)

    def least_noise_ratio(self, variances: Tensor, in_force: NDArray[np.bool_]) -> float:
        """Return the smallest ratio of noise to posterior variance of the entries that count.

        Args:
            variances: The posterior variance of each group at a point. An entry has the same ratio
                of noise variance to posterior variance at its own scale.
            in_force: The entries that count.

        Returns:
            The ratio; infinity if no variance is positive.
        """
        ratios = self.lam.to(variances) / variances.clamp_min(0.0)
        return float(ratios[self.group_of[in_force]].min())

    def log_densities(
        self,
        outcomes: float | NDArray[np.float64],
        means: NDArray[np.float64],
        variances: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the logarithms of the predictive densities of outcomes, one column per entry.

        Args:
            outcomes: ``n``, or a single one, in raw units.
            means: ``G x n``, or ``G``; the predictive mean of each group.
            variances: The same of its predictive variance, including noise.
        """
        residual = np.expand_dims(outcomes, -1) - means[self.group_of].T
        variance = self.scales * variances[self.group_of].T
        with np.errstate(over="ignore"):  # an overflow becomes minus infinity, which is refused
            squares = residual * residual / variance
        return np.asarray(-0.5 * (squares + np.log(2.0 * math.pi * variance)))


@dataclass(frozen=True, repr=False)
class CandidatesRecipe:
    """A list of priors and their weights; calling it with data builds the model.

    :meth:`BanditGP.with_candidates` creates it. Two recipes are equal if they build equal models.

    Attributes:
        candidates: The priors, without refits, all with the same input transform.
        weights: One positive weight each; they are divided by their sum.
        names: The names of the priors in tables.
        num_skipped: How many of the first outcomes the evidence leaves out because the list or its
            weights were chosen based on them. They remain in every posterior.
        learned: For each of a user's own models, a description of what was, or could have been,
            learned from the same data.

    Raises:
        ValueError: If the list is empty, an entry refits, input transforms differ or learn from
            data, or weights or names do not match the entries.
    """

    candidates: tuple[Any, ...]
    weights: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    num_skipped: int = 0
    learned: tuple[tuple[str, ...], ...] = ()

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
            num_skipped=check_integer("num_skipped", self.num_skipped, minimum=0),
        )

    def __repr__(self) -> str:
        """Show the number of priors and the names of the first and the last."""
        shown = list(map(repr, self.names))
        if len(shown) > 3:
            shown[2:-1] = ["..."]
        skipped = f", num_skipped={self.num_skipped}" if self.num_skipped else ""
        return f"{type(self).__name__}({len(self.names)} priors: {', '.join(shown)}{skipped})"

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

    def flipped(self) -> CandidatesRecipe:
        """Return the list for minus the outcomes, with the same names."""
        flipped = tuple(
            replace(entry, prior_mean=0.0 - entry.prior_mean) if entry.prior_mean else entry
            for entry in self.candidates
        )
        return replace(self, candidates=flipped)

    def new_evidence(self) -> CandidateEvidence:
        """Return the evidence before the data."""
        return CandidateEvidence(self.weights, self.names)

    def __call__(self, X: Tensor, Y: Tensor, weights: Tensor | None = None) -> CandidatesModel:
        """Build the model; see :class:`CandidatesModel` for arguments and errors."""
        return CandidatesModel(self, X, Y, weights)

    def builder(self) -> CandidatesBuilder:
        """Return a builder of the models of a loop, each with more rows than the previous one."""
        return CandidatesBuilder(self)


def _check_entry(index: int, entry: Any, first: Any) -> None:
    if entry.refit_every is not None:
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
    if not are_equal(entry.input_transform, first.input_transform):
        raise ValueError(
            f"the input transforms of candidates[{index}] and candidates[0] differ; give all the "
            "same one."
        )


def _describe(entry: Any) -> str:
    """Return the default name of a prior: its kernel with all its numbers, scale, noise, mean."""
    _, kernel, _, scale = unit_prior(entry.kernel, entry.noise)
    nu = smoothness_of(kernel)
    kind = type(kernel).__name__ if nu is None else "SE" if nu == math.inf else f"Matern {nu:g}"
    parts = [kind]
    for name, raw, constraint in kernel.named_parameters_and_constraints():
        values = raw if constraint is None else constraint.transform(raw)
        numbers = ", ".join(f"{value:.3g}" for value in values.detach().reshape(-1).tolist())
        parts.append(f"{name.replace('raw_', '')} {numbers}")
    parts += [f"scale {scale:.3g}", f"noise {entry.noise:.3g}"]
    return ", ".join([*parts, f"mean {entry.prior_mean:.3g}"] if entry.prior_mean else parts)


def _distinct(names: list[str]) -> tuple[str, ...]:
    if len(set(names)) == len(names):
        return tuple(names)
    return tuple(f"{i}: {name}" for i, name in enumerate(names))


class CandidatesModel(MomentsModel):
    """The posteriors of a list of priors, as a BoTorch ensemble.

    BoTorch's own acquisition functions see :data:`NUM_MEMBERS` members of equal weight: BoTorch
    averages over the members of an ensemble with equal weights, so each entry is repeated in
    proportion to its posterior weight, rounded to a multiple of 1/64. The acquisition functions of
    this package use the exact weights.

    Args:
        recipe: The list.
        train_X: ``n x d`` inputs, float64, in the order in which their outcomes arrived; ``n`` may
            be 0.
        train_Y: ``n x 1`` outcomes, float64.
        weights: ``n``: under each prior, row ``i`` has its noise variance divided by
            ``weights[i]``, as the mean of so many outcomes does. All are 1 if omitted.

    Attributes:
        recipe: The list.
        weights: ``n``.
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
    num_outputs = 1
    batch_shape = torch.Size([NUM_MEMBERS])

    def __init__(
        self,
        recipe: CandidatesRecipe,
        train_X: Tensor,
        train_Y: Tensor,
        weights: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__()
        X, Y, self.weights = _check_rows(train_X, train_Y, weights)
        self.recipe = recipe
        self.train_inputs = (X,)
        self.train_targets = Y.squeeze(-1)
        transform = Identity() if recipe.input_transform is None else recipe.input_transform
        # not under BoTorch's name, under which BoTorch would replace the raw inputs with others
        self._encoder = copy.deepcopy(transform).to(X)
        self.evidence = recipe.new_evidence()
        self.eval()
        with torch.no_grad():
            groups, points = recipe.groups, self._encoder(X)
            lam, means = groups.lam.to(X), groups.prior_means.to(X)
            kernels = [copy.deepcopy(each).to(X) for each in groups.kernels]
            functions = KernelList([kernel_function(each, points.shape[-1]) for each in kernels])
            outcomes = self.train_targets.expand(len(lam), -1)
            # *g is G
            given = lam, means, lam[:, None] / self.weights, self._encoder
            self._rows = BoxPosterior.of(functions, points, outcomes, *given)
            self._count(first=0)

    @property
    def num_rows(self) -> int:
        """The number of outcomes that have arrived; hallucinated rows do not count."""
        return len(self.train_targets)

    @property
    def X_baseline(self) -> Tensor:
        """Raw inputs near which an acquisition function may be largest, ``n x d`` at most."""
        best = self.train_targets.topk(min(MOST_STARTS, self.num_rows)).indices
        return self.train_inputs[0][best]

    @cached_property
    def members(self) -> tuple[int, ...]:
        """The entry of each member of the ensemble, :data:`NUM_MEMBERS` of them."""
        # in the middle of each of so many equal shares of the probability
        shares = (np.arange(NUM_MEMBERS) + 0.5) / NUM_MEMBERS
        weights = self.evidence.posterior_weights
        return tuple(np.searchsorted(weights.cumsum(), shares).tolist())

    @cached_property
    def _groups_of_members(self) -> tuple[BoxPosterior, Tensor, Tensor]:
        """The posteriors of groups with members, and the group and the scale of each member."""
        entries, groups = list(self.members), self.recipe.groups
        some, index = np.unique(groups.group_of[entries], return_inverse=True)
        rows, scales = self._rows.select(some.tolist()), groups.scales[entries]
        return rows, torch.from_numpy(index).to(rows.X.device), torch.from_numpy(scales).to(rows.X)

    def group_moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior moments of each group of entries at single points.

        Args:
            X: ``... x d`` raw points.

        Returns:
            Means and variances at output scale 1, ``G x ...`` each.
        """
        mean, variance = self._rows.moments(X.reshape(-1, X.shape[-1]))
        shape = (len(mean), *X.shape[:-1])
        return mean.reshape(shape), variance.clamp_min(0.0).reshape(shape)

    def least_noise_ratio(self, x: Tensor, in_force: NDArray[np.bool_]) -> float:
        """Return the smallest ratio of noise variance to posterior variance at a point.

        Args:
            x: ``d``, raw.
            in_force: The entries that count.
        """
        with torch.no_grad():
            _, variances = self.group_moments(x)
        return self.recipe.groups.least_noise_ratio(variances, in_force)

    def group_moments_one_by_one(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the moments of each group at each point given the points before it.

        Means are unchanged, as with :meth:`hallucinated`.

        Args:
            X: ``... x q x d`` raw points.

        Returns:
            Means and variances at output scale 1, ``G x ... x q`` each.
        """
        mean, covariance = self._rows.mean_and_covariance(X)
        moments = JointMoments(mean.unsqueeze(-1), covariance[..., :, None, :, None])
        noise = self._rows.noise[:, None, None].expand(moments.mean.shape)
        variance = moments.one_by_one(noise).variance.reshape(mean.shape)  # ... x G x q
        return mean.movedim(-2, 0), variance.clamp_min(0.0).movedim(-2, 0)

    def mixture(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the mixture of all entries by their posterior weights.

        Args:
            X: ``... x d`` raw points.

        Returns:
            ``...`` each; the variance of the reward, without noise.
        """
        weights = self.evidence.posterior_weights
        return self.recipe.groups.mixture(*self.group_moments(X), weights)

    def _moments(self, X: Tensor, observation_noise: bool | Tensor) -> JointMoments:
        """Return the joint moments of the members, ``... x members`` times those of each."""
        rows, index, scales = self._groups_of_members
        mean, covariance = rows.mean_and_covariance(X)  # ... x groups x q, ... x groups x q x q
        covariance = covariance[..., index, :, None, :, None] * scales[:, None, None, None, None]
        moments = JointMoments(mean[..., index, :].unsqueeze(-1), covariance, is_mixture=True)
        if observation_noise is False:
            return moments
        if observation_noise is True:
            return moments.with_noise((scales * rows.noise[index])[:, None, None])
        return moments.with_noise(torch.as_tensor(observation_noise).unsqueeze(-3))

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, weights: Tensor | None = None
    ) -> CandidatesModel:
        """Return a new model with additional outcomes, which also count in the evidence.

        Args:
            X: ``n' x d`` inputs in the order in which their outcomes arrived.
            Y: ``n' x 1`` outcomes.
            weights: ``n'``; see the class.

        Raises:
            UnsupportedError: If this model has hallucinated rows.
            TypeError: If a tensor is not float64.
            ValueError: If shapes do not match or an entry is not finite.
        """
        if self._rows.num_rows > self.num_rows:
            raise UnsupportedError(
                "outcomes are added to a model without hallucinated rows, but this one has "
                f"{self._rows.num_rows - self.num_rows} such rows. Add them to the model before."
            )
        X, Y, weights = _check_rows(X, Y, weights, self.train_inputs[0].shape[-1])
        y, row_noise = Y.squeeze(-1), self._rows.noise[:, None] / weights
        new = self._with_rows(X, y.expand(len(row_noise), -1), row_noise)
        new.evidence, new.weights = self.evidence.copied(), torch.cat([self.weights, weights])
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
        columns = self.train_inputs[0].shape[-1]
        return self._with_rows(check_matrix("X", check_double("X", X), num_columns=columns), None)

    def _with_rows(
        self, X: Tensor, y: Tensor | None, row_noise: Tensor | None = None
    ) -> CandidatesModel:
        new = copy.copy(self)
        for name in ("members", "_groups_of_members"):
            new.__dict__.pop(name, None)
        with torch.no_grad():
            new._rows = self._rows.with_rows(self._encoder(X), y, row_noise)
        return new

    def member(self, index: int) -> Any:
        """Return the model of a single entry, given the outcomes that have arrived.

        Args:
            index: The entry, from 0.
        """
        builder, given = self.recipe.candidates[index].builder(seed=0), self.train_inputs[0]
        weights = None if bool((self.weights == 1.0).all()) else self.weights
        return builder(given, self.train_targets.unsqueeze(-1), weights)

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
        from botorch_bandits.models.bandit_gp import BanditGP  # it imports this module

        if not models:
            raise ValueError("models is empty; give at least one model.")
        entries, learned, rows = [], [], []
        for index, model in enumerate(models):
            refuse_several("list", model)
            (prior,), own = read_prior(model), cast(Any, model)
            mean = constant_prior_mean(own)
            if (
                part_of(model, "outcome_transform") is not None
                or mean is None
                or prior.row_noise is not None
            ):
                raise ValueError(
                    f"models[{index}] ({type(model).__name__}) has an outcome transform, which "
                    "learns from later outcomes what the evidence of earlier ones would need, no "
                    "constant mean, or noise that differs from row to row. Pass a model with "
                    "outcome_transform=None, a ConstantMean or ZeroMean, and one noise variance."
                )
            entries.append(
                BanditGP.with_kernel(
                    own.covar_module,
                    noise=float(prior.noise_variance),
                    prior_mean=mean,
                    input_transform=part_of(model, "input_transform"),
                )
            )
            frozen = () if prior.is_given else ("frozen parameters",)
            learned.append((*prior.learned, *frozen))
            X = cast(Tensor, observed_inputs(model))
            rows.append(torch.cat([X, own.train_targets.unsqueeze(-1)], dim=-1))
            if not torch.equal(rows[index], rows[0]):
                raise ValueError(
                    f"the rows of models[{index}] and models[0] differ; give all the same rows in "
                    "the same order."
                )
        given = (tuple(weights or ()), tuple(names or ()), num_skipped, tuple(learned))
        recipe = CandidatesRecipe(tuple(entries), *given)
        return cls(recipe, rows[0][:, :-1].contiguous(), rows[0][:, -1:].contiguous())

    def _count(self, first: int) -> None:
        """Add the outcomes from a row on to the evidence, except for those that are left out."""
        start = max(first, self.recipe.num_skipped)
        outcomes = self.train_targets[start:].cpu().numpy()
        moments = (each[:, start:].cpu().numpy() for each in self._rows.predictions())
        self.evidence.update(self.recipe.groups.log_densities(outcomes, *moments))


class CandidatesBuilder:
    """Builds models from a growing set of rows, extending the last model if its rows come first.

    Args:
        recipe: The list of priors.
    """

    def __init__(self, recipe: CandidatesRecipe) -> None:
        """See the class."""
        self._recipe = recipe
        self._last: CandidatesModel | None = None

    def __call__(self, X: Tensor, Y: Tensor, weights: Tensor | None = None) -> CandidatesModel:
        """Build the model, as the recipe does up to rounding; see :class:`CandidatesModel`."""
        last, n = self._last, 0 if self._last is None else self._last.num_rows
        weights = torch.ones_like(Y[:, 0]) if weights is None else weights
        if last is None or not (
            torch.equal(last.train_inputs[0], X[:n])
            and torch.equal(last.train_targets, Y[:n].squeeze(-1))
            and torch.equal(last.weights, weights[:n])
        ):
            last = self._recipe(X, Y, weights)
        elif n < len(X):
            last = last.condition_on_observations(X[n:], Y[n:], weights[n:])
        self._last = last
        return last


def _check_rows(
    X: Tensor, Y: Tensor, weights: Tensor | None, num_columns: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    X = check_matrix("train_X", check_double("train_X", X), num_columns=num_columns)
    Y = check_finite("train_Y", check_double("train_Y", Y))
    if Y.shape != (len(X), 1):
        raise ValueError(
            f"train_X has shape {tuple(X.shape)} and train_Y {tuple(Y.shape)}; they must be n x d "
            "and n x 1. A vector y becomes train_Y with y.unsqueeze(-1)."
        )
    weights = torch.ones_like(Y[:, 0]) if weights is None else weights
    return X.detach().clone(), Y.detach().clone(), check_weights("weights", weights, Y, "train_Y")

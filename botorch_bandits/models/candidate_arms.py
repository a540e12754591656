"""A list of priors on a finite set of arms, with one batch index of the engine per group.

The arithmetic is that of :mod:`botorch_bandits.models.arms`, where a batch index is a replicate
with its own outcomes; here it is a group of entries with its own prior. Entries that differ only in
their output scale form one group; see :mod:`botorch_bandits.models.candidates`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.checks import check_integer, check_number
from botorch_bandits.confidence.candidates import CandidateEvidence
from botorch_bandits.domains import Arms
from botorch_bandits.models.arms import SMALLEST_BUFFER, ArmsFactor
from botorch_bandits.models.candidate_groups import mixture_of_groups
from botorch_bandits.models.candidates import CandidatesRecipe
from botorch_bandits.models.prior_on_arms import ArmsPrior

LARGEST_DENSE = 2**26
"""Entries of the covariances of all groups up to which rows are folded into them (512 MiB)."""


class PriorsOfGroups(ArmsPrior):
    """The priors of all groups on the same arms, at output scale 1.

    Args:
        priors: One per group.

    Attributes:
        priors: One per group.
    """

    def __init__(self, priors: Sequence[ArmsPrior]) -> None:
        """See the class."""
        super().__init__(torch.stack([prior.diagonal for prior in priors]), None)
        self.priors = tuple(priors)
        self._by_arm: dict[int, Tensor] = {}

    @property
    def num_arms(self) -> int:
        """The number of arms."""
        return self.diagonal.shape[-1]

    def columns(self, index: Tensor) -> Tensor:
        """Return the covariances of some arms with all arms.

        Args:
            index: ``k`` arm numbers, the same in all groups, or ``G x k``.

        Returns:
            A ``G x k x num_arms`` tensor.
        """
        if index.dim() == 1:
            return torch.stack([prior.columns(index) for prior in self.priors])
        if index.shape[-1] == 1:  # needed for one outcome, and again whenever the arm is played
            arm = int(index[0, 0])
            if arm not in self._by_arm:
                self._by_arm[arm] = self.columns(index[0])
            return self._by_arm[arm].clone()  # the engine works in place
        each = zip(self.priors, index, strict=True)
        return torch.stack([prior.columns(arms) for prior, arms in each])


class CandidateArms(ArmsFactor):
    """The posteriors of a list of priors on arms, and the evidence of each.

    See :class:`ArmsFactor` for the other arguments.

    Args:
        recipe: The list.
        choices: ``num_arms x d`` points, float64.
        priors: The priors of the same list on the same arms, to be shared; they are computed if
            omitted.

    Attributes:
        recipe: The list.
        evidence: What the outcomes say about each prior.
        domain: The arms.
        priors: The covariances under each prior.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import BanditGP
        >>> scales = [0.1, 0.5]
        >>> priors = [BanditGP.with_kernel(RBFKernel(), lengthscale=each) for each in scales]
        >>> choices = torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1)
        >>> arms = CandidateArms(BanditGP.with_candidates(priors), choices)
        >>> for arm, x in enumerate(choices.squeeze(-1).tolist()):
        ...     arms.observe(arm, x * x)
        >>> [round(weight, 2) for weight in arms.evidence.posterior_weights.tolist()]
        [0.0, 1.0]
    """

    def __init__(
        self, recipe: CandidatesRecipe, choices: Tensor, priors: PriorsOfGroups | None = None
    ) -> None:
        """See the class."""
        self.recipe = recipe
        self.domain = Arms(choices)
        inputs = self.domain.choices
        groups = recipe.groups
        with torch.no_grad():
            if recipe.input_transform is not None:
                transform = copy.deepcopy(recipe.input_transform).to(inputs).eval()
                inputs = transform(inputs)
            if priors is None:
                kernels = [copy.deepcopy(kernel).to(inputs) for kernel in groups.kernels]
                priors = PriorsOfGroups([ArmsPrior.from_kernel(each, inputs) for each in kernels])
        self.priors = priors
        super().__init__(priors, torch.from_numpy(groups.lam).to(inputs).unsqueeze(-1))
        self._prior_means = torch.from_numpy(groups.prior_means).to(inputs)
        self.evidence: CandidateEvidence = recipe.new_evidence()
        self.num_outcomes = 0
        self._rounds_between = max(1024, 4 * self.num_arms)

    @cached_property
    def _all_groups(self) -> Tensor:
        return torch.arange(len(self.recipe.groups), device=self.device)

    @property
    def means(self) -> Tensor:
        """``G x num_arms``; the posterior means of the groups."""
        return self._mean + self._prior_means.unsqueeze(-1)

    @property
    def variances(self) -> Tensor:
        """``G x num_arms``; the posterior variances at output scale 1, at least 0."""
        return self._variance.clamp_min(0.0)

    def observe(self, arm: int, outcome: float) -> None:
        """Add an outcome.

        Args:
            arm: The number of the arm.
            outcome: In raw units.

        Raises:
            TypeError: If ``arm`` is not an integer. In this case, nothing is changed.
            ValueError: If there is no such arm, or the outcome is not finite or too far from the
                prediction of a prior. In this case, nothing is changed.
        """
        number = check_integer("arm", arm, minimum=0)
        if number >= self.num_arms:
            raise ValueError(
                f"arm is {number}, but the {self.num_arms} arms are numbered from 0 to "
                f"{self.num_arms - 1}."
            )
        value = check_number("outcome", outcome)
        groups = self.recipe.groups
        if self.num_outcomes >= self.recipe.num_skipped:
            mean = (self._mean[:, number] + self._prior_means).cpu().numpy()
            variance = self._variance[:, number].clamp_min(0.0).cpu().numpy() + groups.lam
            self.evidence.update(groups.log_densities(value, mean, variance))
        index = self._all_groups.new_full((len(groups),), number)
        self._observe_batch(index, value - self._prior_means, None)
        self.num_outcomes += 1
        if self.num_outcomes % self._rounds_between == 0:
            self.refactorize()

    def observe_many(self, arms: Sequence[int], outcomes: Sequence[float]) -> None:
        """Add a record, one outcome after the other.

        Args:
            arms: Arm numbers in the order in which outcomes arrived.
            outcomes: Their outcomes.

        Raises:
            ValueError: If the numbers of outcomes and arms differ, or an outcome cannot be added.
        """
        if len(arms) != len(outcomes):
            raise ValueError(
                f"arms has {len(arms)} entries and outcomes {len(outcomes)}; give one outcome for "
                "each arm that was played."
            )
        for arm, outcome in zip(arms, outcomes, strict=True):
            self.observe(arm, outcome)

    def variances_given(self, pending: Sequence[int] | Tensor) -> Tensor:
        """Return the variances after observing some arms once more, whatever the outcomes.

        Args:
            pending: Arm numbers, repeats allowed.

        Returns:
            ``G x num_arms``, at output scale 1, at least 0.
        """
        arms = torch.as_tensor(pending, dtype=torch.long, device=self.device)
        if len(arms) == 0:
            return self.variances
        index = arms.expand(len(self._all_groups), -1)
        columns = self._columns(index)
        block = columns.gather(-1, index.unsqueeze(-2).expand(*index.shape, len(arms)))
        block.diagonal(dim1=-2, dim2=-1).add_(self._lam)
        factor = torch.linalg.cholesky(block)
        rows = torch.linalg.solve_triangular(factor, columns, upper=False)
        return (self._variance - rows.square().sum(-2)).clamp_min(0.0)

    def bounds(
        self,
        widths: float | NDArray[np.float64],
        in_force: NDArray[np.bool_],
        pending: Sequence[int] | Tensor = (),
    ) -> tuple[Tensor, Tensor]:
        """Return the smallest lower and the largest upper bound of some entries on all arms.

        Args:
            widths: The width of each entry's band, or one for all.
            in_force: The entries whose bands count, such as the survivors.
            pending: Arms that count as known at their posterior means. The result is then not a
                bound, because the outcomes have not arrived.

        Returns:
            ``num_arms`` each.
        """
        factors = self.recipe.groups.factors(widths, in_force)
        counts = np.isfinite(factors)
        means, half = self.means, self.variances_given(pending).sqrt_()
        if not counts.all():
            means, half = means[counts], half[counts]
        # group by group, which follows the layout in memory
        half.mul_(torch.from_numpy(factors[counts]).to(half).unsqueeze(-1))
        upper = torch.add(means, half).amax(0)
        return torch.sub(means, half, out=half).amin(0), upper

    def least_noise_ratio(self, arm: int, in_force: NDArray[np.bool_]) -> float:
        """Return the smallest ratio of noise variance to posterior variance at an arm.

        Args:
            arm: Its number.
            in_force: The entries that count.
        """
        return self.recipe.groups.least_noise_ratio(self._variance[:, arm].cpu().numpy(), in_force)

    def mixture_at(self, arm: int) -> tuple[float, float]:
        """Return mean and variance of the mixture at one arm; see :meth:`mixture`.

        Args:
            arm: Its number.
        """
        shares = self.recipe.groups.mixture_weights(self.evidence.numpy_posterior_weights())
        means = self._mean[:, arm] + self._prior_means
        mean, variance = mixture_of_groups(means, self._variance[:, arm].clamp_min(0.0), *shares)
        return float(mean), float(variance)

    def mixture(self, pending: Sequence[int] | Tensor = ()) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the mixture of all entries by their posterior weights.

        Args:
            pending: See :meth:`bounds`.

        Returns:
            ``num_arms`` each; the variance of the reward, without noise.
        """
        shares = self.recipe.groups.mixture_weights(self.evidence.numpy_posterior_weights())
        return mixture_of_groups(self.means.mT, self.variances_given(pending).mT, *shares)

    def sample(self, entry: int, normal: Tensor) -> Tensor:
        """Draw a function from the posterior of one entry, jointly on all arms, exactly.

        Args:
            entry: The number of the entry.
            normal: At least ``2 * num_arms`` independent standard normal numbers.

        Returns:
            ``num_arms`` values.
        """
        group = int(self.recipe.groups.group_of[entry])
        root = self.priors.priors[group].root
        function = normal[: len(root)] @ root
        noise = (self._lam[group] / self._counts[group].clamp_min(1.0)).sqrt()
        simulated = function + noise * normal[len(root) : len(root) + self.num_arms]
        # subtract the mean that the posterior would have if this draw were the truth (Matheron's
        # rule)
        every = torch.zeros_like(self._mean)
        every[group] = simulated
        deviation = function - self._gains_of(every)[group]
        scale = float(self.recipe.groups.scales[entry]) ** 0.5
        mean: Tensor = self._mean[group] + self._prior_means[group] + scale * deviation
        return mean

    def reset(self) -> None:
        """Forget all outcomes and the evidence."""
        self._forget_all()
        self.evidence = self.recipe.new_evidence()
        self.num_outcomes = 0

    def _choose_form(self) -> None:
        """Keep rows if the covariances of all groups would be too large."""
        if len(self._gain) * self.num_arms**2 > LARGEST_DENSE:
            self._row_limit = max(SMALLEST_BUFFER, 2 * self._num_rows)
            return
        super()._choose_form()

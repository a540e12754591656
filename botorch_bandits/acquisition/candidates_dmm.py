r"""DMM on a list of kernels, with one radius for all of them.

For at least one entry of a list, the reward minus the prior mean of the entry has norm at most
:math:`B_\theta` in the space of the entry's kernel; it is not known for which one. With the radius
``r`` of the list, which :mod:`botorch_bandits.confidence.dmm` derives, the bound is

.. math:: U(x) = \max_\theta \; U_\theta(x), \qquad L(x) = \min_\theta \; L_\theta(x)

where :math:`\theta` ranges over the kernels whose set of functions is not known to be empty; the
set contains the members of the ball with :math:`\|f(X) - y\|^2 \le r^2`. Kernels are used without
their output scales, as in :class:`~botorch_bandits.DMMUpperConfidenceBound`: an entry's noise
divided by its scale is its :math:`a_\theta`, fixed before the data.

Source: Flynn and Reeb, *Tighter confidence bounds for sequential kernel regression*, arXiv
2403.12732, 2024, for each kernel; the radius of the list is ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.base import (
    of_acquisition,
)
from botorch_bandits.acquisition.candidates import BoundOfList, check_list_model
from botorch_bandits.acquisition.candidates_widths import (
    reasons_learned,
    with_pending,
)
from botorch_bandits.checks import (
    check_integer,
    check_one_of,
    check_positive,
    check_probability,
)
from botorch_bandits.confidence import RidgeConfidenceSet
from botorch_bandits.confidence.dmm import narrow, report_refutation
from botorch_bandits.confidence.guarantee import (
    AS_OBSERVED,
    FIXED_LIST,
    SUB_GAUSSIAN_NOISE,
    Guarantee,
    RegretStatement,
    Statement,
    of_any_round,
)
from botorch_bandits.confidence.width_rules import check_assume
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.domains import Domain, ValueScale
from botorch_bandits.models.candidate_groups import one_each
from botorch_bandits.models.candidates import CandidatesModel
from botorch_bandits.models.kernels import StationaryKernel


class CandidatesDMMUpperConfidenceBound(BoundOfList):
    r"""Upper confidence bound by DMM on a list of kernels, with one radius for all of them.

    The bound holds for every fixed function in at least one of the balls, on any domain, without
    averaging over a prior. The norm is not learned: the bound ``B`` must be correct for the true
    kernel.

    Every evaluation needs one eigendecomposition of the distinct inputs for each kernel.

    Args:
        model: From :meth:`BanditGP.with_candidates`, or ``CandidatesModel.from_models``. Its
            weights are used as the weights of the bets from which the radius is derived.
        rkhs_bound: ``B``, in outcome units: a bound on the norm of the reward minus the prior mean
            of an entry, in the space of its kernel without output scale. One number, or one per
            entry.
        noise_bound: ``R`` of R-sub-Gaussian noise, positive, in outcome units.
        delta: The bounds fail with at most this probability.
        num_ridges: Size of the grid of ridges; any grid gives a valid bound.
        on_refuted: ``"warn"`` or ``"raise"``: what to do when the data refute every ball.
        maximize: If False, the reward is minimized: the value is minus the least lower bound.
        assume: Assumptions that you vouch for because they cannot be read from a model.
            ``"fixed prior"``: the frozen parameters of your own models were fixed before the data.
        X_pending: ``n x d`` points whose outcomes have not arrived. They shrink the deviations
            under each kernel; no theorem covers the bound in that case.

    Raises:
        TypeError: If ``model`` is not a list of priors, or a tensor is not float64.
        ValueError: If a bound is not positive, or the number of bounds differs from the number of
            entries.

    Warns:
        AssumptionRefutedWarning: If every ball is refuted. All of them are then used.

    Example:
        >>> from botorch_bandits import BanditGP
        >>> from botorch_bandits.models import candidate_grid
        >>> X = torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1)
        >>> model = BanditGP.with_candidates(candidate_grid([0.1, 0.5]))(X, X**2)
        >>> acqf = CandidatesDMMUpperConfidenceBound(model, rkhs_bound=2.0, noise_bound=0.1)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([5])
        >>> acqf.guarantee().holds
        True
    """

    def __init__(
        self,
        model: Model,
        *,
        rkhs_bound: float | Sequence[float],
        noise_bound: float,
        delta: float = 0.1,
        num_ridges: int = 48,
        on_refuted: str = "warn",
        maximize: bool = True,
        assume: str | tuple[str, ...] = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(check_list_model(model))
        self.base_model = check_list_model(model)
        self.rkhs_bounds = one_each("rkhs_bound", rkhs_bound, self.base_model.recipe.num_candidates)
        self.noise_bound = check_positive("noise_bound", noise_bound)
        self.delta = check_probability("delta", delta)
        self.maximize = check_one_of("maximize", maximize, (True, False))
        self.assume = check_assume(assume)
        self._num_ridges = check_integer("num_ridges", num_ridges, minimum=1)
        on_refuted = check_one_of("on_refuted", on_refuted, ("warn", "raise"))
        self._read()
        if self.is_refuted:
            report_refutation(
                self.delta,
                float(self.rkhs_bounds.max()),
                self.noise_bound,
                float(self._set.smallest_rkhs_bound.min()),
                on_refuted,
                kernels="a kernel of the list",
                remedy="Give the list other kernels, or larger bounds.",
            )
        self.set_X_pending(X_pending)

    @classmethod
    def check_options(cls, options: Mapping[str, Any], domain: Domain | None) -> None:
        """See the base class."""
        complete = cls.complete_options(options, domain)
        for name in ("rkhs_bound", "noise_bound"):
            if complete[name] is None:
                raise ValueError(f"{name}= is missing; give a positive number in outcome units.")
        bounds = complete["rkhs_bound"]
        for bound in bounds if isinstance(bounds, tuple | list) else (bounds,):
            check_positive("rkhs_bound", bound)
        check_positive("noise_bound", complete["noise_bound"])
        check_probability("delta", complete["delta"])
        check_integer("num_ridges", complete["num_ridges"], minimum=1)
        check_one_of("on_refuted", complete["on_refuted"], ("warn", "raise"))
        check_one_of("maximize", complete["maximize"], (True, False))
        check_assume(complete["assume"])

    @property
    def is_optimistic(self) -> bool:
        """See the base class."""
        return True

    @property
    def value_scale(self) -> ValueScale:
        """See the base class."""
        return ValueScale(unit=math.sqrt(float(self.base_model.recipe.groups.scales.max())))

    @property
    def survivors(self) -> Tensor:
        """Which entries of the list have balls that the data do not refute, one ``bool`` each."""
        groups = self.base_model.recipe.groups
        smallest = self._set.smallest_rkhs_bound.cpu().numpy()[groups.group_of]
        return torch.from_numpy(self.rkhs_bounds >= smallest)

    @property
    def is_refuted(self) -> bool:
        """Whether the data refute every ball of the list at level ``delta``."""
        return bool(self._set.is_refuted.all())

    def _values(self, X: Tensor) -> Tensor:
        after = None
        if X.shape[-2] > 1 or self.X_pending is not None:
            after = self.model.group_moments_one_by_one(X)[1]  # ... x q x G
        lower, upper = self._narrowed(X, after)
        return upper if self.maximize else -lower

    def _bounds(self, model: CandidatesModel, X: Tensor) -> tuple[Tensor, Tensor]:
        return self._narrowed(X, None)

    def _narrowed(self, X: Tensor, variance_after: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the bounds at ``... x d`` points, narrowed by pending points."""
        points = X.reshape(-1, X.shape[-1])
        cross, prior_variance = self.base_model.group_covariances(points, self._distinct)
        lower, upper = self._set.bounds(cross * self._root, prior_variance)  # G x r
        if variance_after is not None:
            before = self.base_model.group_moments(points)[1].mT
            lower, upper = narrow(lower, upper, before, variance_after.reshape(len(points), -1).mT)
        means = torch.from_numpy(self.base_model.recipe.groups.prior_means).to(X).unsqueeze(-1)
        counts = self._in_force
        lower, upper = ((means + end)[counts] for end in (lower, upper))
        return lower.amin(0).reshape(X.shape[:-1]), upper.amax(0).reshape(X.shape[:-1])

    def _read(self) -> None:
        """Compute the sets of all groups of entries from the rows that have arrived."""
        model, groups = self.base_model, self.base_model.recipe.groups
        X, y = model.train_inputs[0], model.train_targets
        with torch.no_grad():
            # n_i outcomes at one input count as their mean, kernel and outcome times sqrt(n_i);
            # their variation is the same for all kernels, and cancels in the radicands
            distinct, place = torch.unique(X, dim=0, return_inverse=True)
            counts = torch.zeros(len(distinct)).to(y).index_add(0, place, torch.ones_like(y))
            sums = torch.zeros_like(counts).index_add(0, place, y)
            self._distinct, self._root = distinct, counts.sqrt()
            lam, means = (torch.from_numpy(v).to(X) for v in (groups.lam, groups.prior_means))
            kernel_matrix, _ = model.group_covariances(distinct, distinct)
            residuals = sums / self._root - means.unsqueeze(-1) * self._root
            # among entries that differ only in their scales, the largest ball contains the others
            bounds = np.zeros(len(groups))
            np.maximum.at(bounds, groups.group_of, self.rkhs_bounds)
            weights = np.zeros(len(groups))
            np.add.at(weights, groups.group_of, model.recipe.weights)
            self._set = RidgeConfidenceSet.from_data(
                kernel_matrix * (self._root * self._root.unsqueeze(-1)),
                residuals,
                torch.from_numpy(bounds).to(X),
                self.noise_bound,
                self.delta,
                lam,
                self._num_ridges,
            ).of_list(torch.from_numpy(weights / weights.sum()).to(X), self.noise_bound, self.delta)
            refuted = self._set.is_refuted
            self._in_force = torch.ones_like(refuted) if bool(refuted.all()) else ~refuted

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers this bound with this list, or why none does."""
        recipe = self.base_model.recipe
        distance = "the distance of the bounds at the point that it chose, which is twice the "
        bounds = sorted(set(self.rkhs_bounds.tolist()))
        stated = f"{bounds[0]:g}" if len(bounds) == 1 else "that of the kernel"
        has_unit_variance = all(StationaryKernel.read(each) for each in recipe.groups.kernels)
        most = 2.0 * bounds[-1] if has_unit_variance else None
        guarantee = Guarantee(
            method="DMM on a list of kernels",
            theorem="Ville's inequality for the mixture over the list of the martingales of Flynn "
            "and Reeb 2024, over a grid of ridges",
            bands=Statement(
                "with {probability} the reward lies between the bounds, at all points and in all "
                "rounds",
                delta=self.delta,
                reach="everywhere",
            ),
            regret=RegretStatement(
                "with {probability}, on the same event, the regret of every round that maximizes "
                f"the upper confidence bound is at most {distance}effective width times standard "
                f"deviation{of_any_round(most)}",
                delta=self.delta,
                factor=2.0,
                largest=most,
            ),
            assumptions=(
                "for at least one entry of the list the reward less its prior mean has at most "
                f"the norm {stated} in the space of its kernel without output scale",
                FIXED_LIST,
                SUB_GAUSSIAN_NOISE,
                AS_OBSERVED,
            ),
            constants={
                "delta": self.delta,
                "rkhs_bound": bounds[-1],
                "noise_bound": self.noise_bound,
                "num_candidates": float(recipe.num_candidates),
                "num_survivors": float(self.survivors.sum()),
            },
        )
        for entry in recipe.candidates:
            guarantee = guarantee.with_gaps(*reasons_learned(entry, self.assume))
        if recipe.num_skipped:
            guarantee = guarantee.with_gaps(
                f"the list was chosen by the first {recipe.num_skipped} outcomes, which are in the "
                "radius, too"
            )
        if self.is_refuted:
            guarantee = guarantee.with_gaps("the data refute every ball of the list at this level")
        guarantee = with_pending(guarantee, self.X_pending)
        guarantee = guarantee if self.maximize else guarantee.for_minimizing()
        return of_acquisition(self, guarantee)


fill_in_docstrings(__name__)

"""DMM on arms: the confidence set from sufficient statistics.

Observations of one arm enter through their mean. With ``N`` the counts of the distinct arms, the
nonzero eigenvalues of the kernel matrix of all observations are those of ``N^1/2 K N^1/2``. By how
much the outcomes of one arm differ among each other cancels in the radicand.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from botorch_bandits.acquisition.arms_rules import ArmsRound, ArmsRule
from botorch_bandits.confidence.confidence_sets import (
    AssumptionRefutedWarning,
    RidgeConfidenceSet,
)
from botorch_bandits.confidence.rules import fit_to_batch


@dataclass(frozen=True, eq=False)
class DMMArmsRule(ArmsRule):
    """The upper bound of DMM; minus the lower one when minimising.

    Attributes:
        rkhs_bound: ``B``, in outcome units; a number, or one a replicate.
        noise_bound: ``R``, likewise.
        delta: The bounds fail with at most this probability.
        num_ridges: Size of the grid of ridges.
        doubles: Whether a refuted ``B`` is doubled until it is not refuted.
        on_refuted: ``"warn"`` or ``"raise"``.
        maximize: If False, the reward is minimised.
    """

    rkhs_bound: float | Tensor
    noise_bound: float | Tensor
    delta: float
    num_ridges: int = 48
    doubles: bool = False
    on_refuted: str = "warn"
    maximize: bool = True

    def scores(self, seen: ArmsRound) -> Tensor:
        """See the base class."""
        lower, upper = self.bounds(seen)
        return upper if self.maximize else -lower

    def bounds(self, seen: ArmsRound) -> tuple[Tensor, Tensor]:
        """See the base class."""
        lower, upper = self._evaluate(seen)[:2]
        if seen.pending is not None:
            # as much narrower as the posterior is with the pending arms known
            before = seen.posterior.variance.clamp_min(1e-18)
            shrinkage = (seen.variance.clamp_min(1e-18) / before).sqrt_()
            half = 0.5 * (upper - lower) * (1.0 - shrinkage)
            lower, upper = lower + half, upper - half
        return lower, upper

    def describe(self, seen: ArmsRound, arm: Tensor) -> dict[str, Tensor]:
        """See the base class."""
        index = arm.unsqueeze(-1)
        lower, upper = (end.gather(-1, index).squeeze(-1) for end in self.bounds(seen))
        deviation = seen.standard_deviation(1e-18).gather(-1, index).squeeze(-1)
        return {
            "is_refuted": self._evaluate(seen)[2].to(upper),
            "width": 0.5 * (upper - lower) / deviation,
            "information_gain": seen.posterior.information_gain,
        }

    def _evaluate(self, seen: ArmsRound) -> tuple[Tensor, Tensor, Tensor]:
        if "ends" not in seen.known:
            seen.known["ends"] = self._compute(seen)
        return seen.known["ends"]

    def _compute(self, seen: ArmsRound) -> tuple[Tensor, Tensor, Tensor]:
        posterior = seen.posterior
        unit = float(seen.reading.active_priors[0].standard_deviation)
        played = posterior.counts > 0
        p = int(played.sum(-1).max())
        index = torch.sort(played.to(torch.int8), dim=-1, descending=True, stable=True).indices
        index = index[..., :p]
        counts = posterior.counts.gather(-1, index)  # 0 where a replicate played fewer arms
        root = counts.sqrt()
        columns = posterior.prior.columns(index) / unit**2 * root.unsqueeze(-1)
        block = columns.gather(-1, index.unsqueeze(-2).expand(*index.shape, p))
        outcomes = posterior.sums.gather(-1, index) / counts.clamp_min(1.0).sqrt() / unit

        rkhs_bound, noise_bound = (
            fit_to_batch(name, level, posterior.batch_shape) if isinstance(level, Tensor) else level
            for name, level in (
                ("rkhs_bound", self.rkhs_bound),
                ("noise_bound", self.noise_bound),
            )
        )

        def build(bound: float | Tensor) -> RidgeConfidenceSet:
            return RidgeConfidenceSet.from_data(
                block * root.unsqueeze(-2),
                outcomes,
                bound,
                noise_bound / unit,
                self.delta,
                posterior.lam / unit**2,
                self.num_ridges,
            )

        bound = rkhs_bound / unit
        confidence_set = build(bound)
        refuted = confidence_set.is_refuted
        if bool(refuted.any()):
            if self.doubles:
                needed = (confidence_set.smallest_rkhs_bound / bound).clamp_min(1.0)
                confidence_set = build(bound * 2.0 ** torch.ceil(torch.log2(needed)))
                refuted = confidence_set.is_refuted
            else:
                self._report(float(confidence_set.smallest_rkhs_bound.max()) * unit)
        prior_variance = (posterior.prior.diagonal / unit**2).expand_as(posterior.mean)
        lower, upper = confidence_set.bounds(columns.mT, prior_variance)
        return lower * unit + seen.prior_mean, upper * unit + seen.prior_mean, refuted

    def _report(self, smallest: float) -> None:
        message = (
            f"the data refute the assumptions at level {self.delta:g} (the norm would have to "
            f"exceed {smallest:.4g}). Check kernel, rkhs_bound and noise_bound, or pass "
            "double_rkhs_bound=True."
        )
        if self.on_refuted == "raise":
            raise ValueError(message)
        warnings.warn(message, AssumptionRefutedWarning, stacklevel=2)

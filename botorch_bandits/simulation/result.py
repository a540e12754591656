"""What replicates did."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """What each replicate did. Tensors are on the CPU.

    Attributes:
        arms: ``num_replicates x num_rounds`` arm numbers; None on a box.
        outcomes: ``num_replicates x num_rounds`` noisy outcomes.
        regret: ``num_replicates x num_rounds``; regret of each round, from noiseless rewards.
        seeds: One a replicate.
        covered: ``num_replicates``; whether the confidence bounds held at all arms in all rounds.
            None on a box and for a policy without bounds.
        mean_width: ``num_rounds``; the mean half-distance of the bounds over arms, or None.
        points: ``num_replicates x num_rounds x d`` points on a box; None on arms.
    """

    arms: Tensor | None
    outcomes: Tensor
    regret: Tensor
    seeds: tuple[int, ...]
    covered: Tensor | None = None
    mean_width: Tensor | None = None
    points: Tensor | None = None

    @property
    def cumulative_regret(self) -> Tensor:
        """``num_replicates x num_rounds``; the sum of regrets up to each round."""
        return self.regret.cumsum(-1)

    @property
    def simple_regret(self) -> Tensor:
        """``num_replicates x num_rounds``; the smallest regret up to each round."""
        return self.regret.cummin(-1).values if self.regret.shape[-1] else self.regret

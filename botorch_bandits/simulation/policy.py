"""What a replicate plays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch
from botorch_bandits.domains import Domain
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGPRecipe


@dataclass(frozen=True)
class Policy:
    """What a loop is made of, but domain and seed.

    Attributes:
        model: Kernel and noise, such as ``BanditGP.with_kernel(...)``.
        acquisition: What is played, such as ``ImprovedUpperConfidenceBound.with_options(...)``.
        num_initial: Rounds at the start that choose uniformly at random.
    """

    model: BanditGPRecipe
    acquisition: AcquisitionRecipe | RandomSearch
    num_initial: int = 0

    def loop(self, domain: Domain, seed: int, **options: Any) -> BanditLoop:
        """Return a loop that plays this policy.

        Args:
            domain: Where.
            seed: Seeds everything that is drawn.
            options: Further arguments of :class:`~botorch_bandits.BanditLoop`.
        """
        return BanditLoop(
            domain,
            self.model,
            self.acquisition,
            num_initial=self.num_initial,
            seed=seed,
            **options,
        )

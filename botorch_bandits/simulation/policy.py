"""What a replicate plays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch
from botorch_bandits.change_points import Restart
from botorch_bandits.checks import check_integer, store_checked
from botorch_bandits.constraints import MultiplierRule
from botorch_bandits.domains import Domain
from botorch_bandits.forgetting import Forgetting
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGPRecipe


@dataclass(frozen=True)
class Policy:
    """What a loop is made of, but domain and seed.

    Attributes:
        model: Kernel and noise, such as ``BanditGP.with_kernel(...)``.
        acquisition: What is played, such as ``ImprovedUpperConfidenceBound.with_options(...)``.
        num_initial: Rounds at the start, and after each reset, that choose uniformly at random.
        forgetting: What becomes of old outcomes; None keeps all. Loops only, not ``simulate``.
        restart: When it begins anew because the reward function changes:
            ``ChangePointRestart(...)``, or one of the baselines; None never does.
        constraints: What must hold on average, by a rule for multipliers such as
            ``AdditiveEpochs(...)``; None without constraints.
    """

    model: BanditGPRecipe
    acquisition: AcquisitionRecipe | RandomSearch
    num_initial: int = 0
    forgetting: Forgetting | None = None
    restart: Restart | None = None
    constraints: MultiplierRule | None = None

    def __post_init__(self) -> None:
        """Check the number."""
        number = check_integer("num_initial", self.num_initial, minimum=0)
        store_checked(self, num_initial=number)

    def loop(self, domain: Domain, seed: int, **options: Any) -> BanditLoop:
        """Return a loop that plays this policy.

        Args:
            domain: Where.
            seed: Seeds everything that is drawn.
            options: Further arguments of :class:`~botorch_bandits.BanditLoop`.
        """
        options = {
            "num_initial": self.num_initial,
            "forgetting": self.forgetting,
            "restart": self.restart,
            "constraints": self.constraints,
            **options,
        }
        return BanditLoop(domain, self.model, self.acquisition, seed=seed, **options)

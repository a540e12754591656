"""The guarantee of a loop whose epochs have different models: the proofs need one for each epoch.

The bands of a guarantee are about the running epoch, but regret and violation are sums over all
epochs, so a statement about them that does not hold for one model does not hold at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import Guarantee, PriorSummary
from botorch_bandits.confidence.facts import Facts
from botorch_bandits.domains import Domain
from botorch_bandits.loop.acquisitions import bandit
from botorch_bandits.loop.aspects import Multipliers
from botorch_bandits.loop.minimizing import settings_of_model
from botorch_bandits.loop.settings import LoopSettings


class SettingsOfEpochs:
    """The settings of a loop epoch by epoch, for outcomes in the sign of the model.

    Args:
        settings: The settings as the user gave them.

    Attributes:
        differ: Whether epochs have different models.
    """

    def __init__(self, settings: LoopSettings) -> None:
        """See the class."""
        self._settings = settings
        self.differ = bool(settings.models_of_epochs)

    def now(self, multipliers: Multipliers | None) -> LoopSettings:
        """Return the settings of the running epoch.

        Args:
            multipliers: The state of the multipliers, if there are constraints.
        """
        if multipliers is None or not self.differ:
            return self.in_epoch()
        return self.in_epoch(multipliers.epoch)

    def in_epoch(self, epoch: int = 1) -> LoopSettings:
        """Return the settings of an epoch.

        Args:
            epoch: The number of the epoch in its segment, from 1.
        """
        settings = self._settings.in_epoch(epoch)
        return settings if settings.maximize else settings_of_model(settings)

    def others(
        self, multipliers: Multipliers | None, domain: Domain, facts: Facts
    ) -> list[OtherEpoch] | None:
        """Return earlier epochs with other models; None if there is one model for all epochs.

        Args:
            multipliers: See :meth:`now`.
            domain: The domain on which the acquisition function of the next round is maximized.
            facts: The facts of an epoch without data.
        """
        if not self.differ or multipliers is None:
            return None
        if self._settings.restart is not None:
            return []  # then no statement covers all epochs
        return other_epochs(self.in_epoch, multipliers, domain, facts)


@dataclass(frozen=True)
class OtherEpoch:
    """An earlier epoch whose model differs from that of the running one.

    Attributes:
        number: The number of the epoch, from 1.
        guarantee: The guarantee of the acquisition function on its model without data.
        prior_deviation: The prior standard deviation of its model, in raw outcome units.
    """

    number: int
    guarantee: Guarantee
    prior_deviation: float


def other_epochs(
    settings_in: Callable[[int], LoopSettings],
    multipliers: Multipliers,
    domain: Domain,
    facts: Facts,
) -> list[OtherEpoch]:
    """Return one earlier epoch for each model that differs from that of the running epoch.

    Args:
        settings_in: A function from an epoch's number to the loop's settings in it.
        multipliers: The multipliers of a loop that never restarted: epochs are counted once.
        domain: The domain on which the acquisition function of the next round is maximized.
        facts: The facts of an epoch without data.
    """
    *earlier, latest = multipliers.updates
    now = settings_in(latest.epoch)
    seen, found = [now.recipe], []
    for update in earlier:
        settings = settings_in(update.epoch)
        recipe, played = settings.recipe, settings.played
        if recipe is None or recipe in seen:
            continue
        seen.append(recipe)
        if played is None:
            continue  # no theorem is stated for it
        dim = settings.context_dim + settings.domain.dim
        empty = recipe(torch.empty(0, dim, dtype=DTYPE), torch.empty(0, 1, dtype=DTYPE))
        built = bandit(played.build(empty, domain, round_number=1))
        if built is not None:
            (prior,) = PriorSummary(empty).active.values()
            deviation = float(prior.standard_deviation)
            found.append(OtherEpoch(update.epoch, built.guarantee(facts), deviation))
    return found

"""What a loop whose epochs have models of their own promises: the proofs need that of each epoch.

The bands of a guarantee are about the running epoch, but regret and violation are sums over all, so
that what one model lacks takes them away for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from botorch_bandits.acquisition import AcquisitionRecipe, BanditAcquisition
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import Guarantee, PriorSummary
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.domains import Domain
from botorch_bandits.loop.minimizing import settings_of_model
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.loop.state import Multipliers
from botorch_bandits.models import BanditGPRecipe, EpochModels


class SettingsOfEpochs:
    """The settings of a loop epoch by epoch, for outcomes in the sign of the model.

    Args:
        settings: As its user gave them.

    Attributes:
        differ: Whether epochs have models of their own.
    """

    def __init__(self, settings: LoopSettings) -> None:
        """See the class."""
        self._settings = settings
        self.differ = isinstance(settings.model, EpochModels)

    def now(self, multipliers: Multipliers | None) -> LoopSettings:
        """Return those of the running epoch.

        Args:
            multipliers: What the loop follows its history with, if there are constraints.
        """
        if multipliers is None or not self.differ:
            return self.in_epoch()
        return self.in_epoch(multipliers.epoch, multipliers.values.tolist())

    def in_epoch(self, epoch: int = 1, multipliers: Sequence[float] | None = None) -> LoopSettings:
        """Return those of an epoch.

        Args:
            epoch: Its number in its segment, from 1.
            multipliers: In force in it; the initial ones if omitted.
        """
        settings = self._settings.in_epoch(epoch, multipliers)
        return settings if settings.maximize else settings_of_model(settings)

    def others(self, multipliers: Multipliers | None, domain: Domain) -> list[OtherEpoch] | None:
        """Return earlier epochs with other models; None where one model is for all.

        Args:
            multipliers: See :meth:`now`.
            domain: Where the acquisition function of the next round is maximized.
        """
        if not self.differ or multipliers is None:
            return None
        if self._settings.restart is not None:
            return []  # no statement is made of all epochs then
        return other_epochs(self.in_epoch, multipliers, domain)


@dataclass(frozen=True)
class OtherEpoch:
    """An earlier epoch whose model is not that of the running one.

    Attributes:
        number: From 1.
        guarantee: What the acquisition function promises on its model without data.
        prior_deviation: The prior standard deviation of its model, in raw outcome units.
    """

    number: int
    guarantee: Guarantee
    prior_deviation: float


def other_epochs(
    settings_in: Callable[[int, Sequence[float]], LoopSettings],
    multipliers: Multipliers,
    domain: Domain,
) -> list[OtherEpoch]:
    """Return one earlier epoch for each model that is not that of the running epoch.

    Args:
        settings_in: From an epoch's number and multipliers to the loop's settings in it.
        multipliers: Of a loop that never restarted, so that epochs are counted once.
        domain: Where the acquisition function of the next round is maximized.
    """
    *earlier, latest = multipliers.updates
    now = settings_in(latest.epoch, latest.multipliers)
    seen, found = [now.model], []
    for update in earlier:
        settings = settings_in(update.epoch, update.multipliers)
        recipe, acquisition = settings.model, settings.acquisition
        if recipe in seen or not isinstance(recipe, BanditGPRecipe):
            continue
        seen.append(recipe)
        if not isinstance(acquisition, AcquisitionRecipe):
            continue  # no theorem is stated for it
        dim = settings.context_dim + settings.domain.dim
        empty = recipe(torch.empty(0, dim, dtype=DTYPE), torch.empty(0, 1, dtype=DTYPE))
        built = acquisition.build(empty, domain, round_number=1)
        if isinstance(built, BanditAcquisition):
            (prior,) = PriorSummary(empty).active_priors
            deviation = float(prior.standard_deviation)
            found.append(OtherEpoch(update.epoch, built.guarantee().of_loop(), deviation))
    return found


def with_other_epochs(guarantee: Guarantee, others: Sequence[OtherEpoch]) -> Guarantee:
    """Return a guarantee of penalized functions with what the models of earlier epochs lack.

    Args:
        guarantee: Of the loop, with the model of the running epoch.
        others: The earlier ones.
    """
    about = "the penalized function of each epoch"
    guarantee = guarantee.with_assumptions(
        "each epoch has a model of its own, which was fixed before the outcomes of the epoch; what "
        "is assumed of the penalized function of an epoch is meant in the kernel of that model"
    )
    for other in others:
        told = other.guarantee.about(about)
        guarantee = guarantee.with_assumptions(*told.assumptions)
        for statement in ("regret", "violation"):
            gaps = [f"in epoch {other.number}: {gap}" for gap in told.gaps]
            guarantee = guarantee.with_gaps(*gaps, of=statement)
    return guarantee


fill_in_docstrings(__name__)

"""Upper confidence bounds and Thompson sampling on a list of priors, played on arms.

The engine plays what the drop-in classes of ``candidates.py`` evaluate, without a BoTorch model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.acquisition.base import AcquisitionRecipe, BanditAcquisition
from botorch_bandits.acquisition.candidates import (
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
)
from botorch_bandits.acquisition.candidates_widths import INGREDIENTS, make_widths
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence.candidates import LEVEL_OF_SURVIVORS
from botorch_bandits.domains import Arms, ValueScale, first_of_the_largest
from botorch_bandits.models.candidate_arms import CandidateArms, PriorsOfGroups
from botorch_bandits.models.candidates import CandidatesRecipe
from botorch_bandits.random_streams import derive_seed


@dataclass(eq=False)
class CandidatesRound:
    """The state of a round on arms.

    Attributes:
        scores: ``num_arms`` scores, which are maximized.
        bounds: ``num_arms`` each, from the outcomes that have arrived; None if they still have to
            be computed.
        scale: The unit in which scores are compared.
        draw: The number of the prior that was drawn, or None.
        round_number: The number of the round, from 1.
        among: The arms that may be chosen, in order; None for all.
    """

    scores: Tensor
    bounds: tuple[Tensor, Tensor] | None
    scale: ValueScale
    draw: int | None
    round_number: int
    among: Tensor | None = None


class CandidatesEngine:
    """Plays a list of priors on arms, without a BoTorch model.

    Args:
        arms: The posteriors, without outcomes.
        acquisition: The acquisition class to play.
        options: All options of its constructor.
        seed: The seed of the draws.
    """

    rule = None
    prior_mean = 0.0

    def __init__(
        self,
        arms: CandidateArms,
        acquisition: type[BanditAcquisition],
        options: Mapping[str, Any],
        seed: int,
    ) -> None:
        """See the class."""
        self.arms = arms
        self.draws = issubclass(acquisition, CandidatesThompsonSampling)
        self._seed = seed
        self.maximize = options.get("maximize", True)
        self.form = options.get("form", "survivors")
        if not self.draws:
            ingredients = tuple(options[name] for name in INGREDIENTS)
            self.widths = make_widths(self.form, ingredients, options["width"], options["delta"])
        self._posterior_scale = float(arms.recipe.groups.scales.max()) ** 0.5

    def look(
        self,
        round_number: int,
        pending: Tensor | None = None,
        draw_round: int | None = None,
        rule: Any = None,
    ) -> CandidatesRound:
        """Return the state of a round.

        Args:
            round_number: The number of the round, from 1; widths grow with it.
            pending: ``k`` arms whose outcomes have not arrived, or None.
            draw_round: The round whose random numbers are drawn; ``round_number`` if omitted.
            rule: Not used.

        Warns:
            RefutedListWarning: If no prior survives.
        """
        scale = ValueScale(unit=self._posterior_scale)
        if self.draws:
            number = round_number if draw_round is None else draw_round
            seed = derive_seed(self._seed, number, "candidate")
            generator = torch.Generator().manual_seed(seed)
            weights = self.arms.evidence.posterior_weights
            entry = int(torch.multinomial(weights, 1, generator=generator))
            normal = torch.randn(2 * self.arms.num_arms, dtype=DTYPE, generator=generator)
            values = self.arms.sample(entry, normal.to(self.arms.device))
            values = values if self.maximize else -values
            return CandidatesRound(values, None, scale, entry, round_number)
        lower, upper = self.bounds(round_number, () if pending is None else pending)
        scores = upper if self.maximize else -lower
        known = (lower, upper) if pending is None else None
        return CandidatesRound(scores, known, scale, None, round_number)

    def choose(self, seen: CandidatesRound, check: bool = True) -> Tensor:
        """Return the arm to play.

        Args:
            seen: The round, from :meth:`look`.
            check: Whether to reject scores that are not finite.
        """
        return first_of_the_largest(seen.scores, check, seen.scale, seen.among)

    def observe_many(self, arms: Sequence[int], outcomes: Sequence[float]) -> None:
        """Add a record; see :meth:`CandidateArms.observe_many`."""
        self.arms.observe_many(arms, outcomes)

    def relabel(self, arms: Sequence[int], outcomes: Sequence[float]) -> None:
        """Start over with all outcomes at their current values.

        Args:
            arms: Arm numbers in the order in which outcomes arrived.
            outcomes: Their outcomes.
        """
        self.arms.reset()
        self.arms.observe_many(arms, outcomes)

    def describe(self, seen: CandidatesRound, arm: Tensor) -> dict[str, float]:
        """Return the diagnostics of an arm, by name, as the acquisition function reports them.

        Args:
            seen: The round, from :meth:`look`.
            arm: The arm.
        """
        index = int(arm)
        mean, variance = self.arms.mixture_at(index)
        deviation = math.sqrt(max(variance, 1e-30))
        known = {
            "mean": mean,
            "standard_deviation": deviation,
            "acquisition_value": float(seen.scores[index]),
        }
        if seen.draw is not None:
            return {**known, "candidate": float(seen.draw)}
        bounds = self.bounds(seen.round_number, ()) if seen.bounds is None else seen.bounds
        lower, upper = (float(bound[index]) for bound in bounds)
        survivors = self.arms.evidence.numpy_survivors(self.widths.level)
        return {
            **known,
            "width": 0.5 * (upper - lower) / deviation,
            "lower_bound": lower,
            "upper_bound": upper,
            "num_survivors": float(survivors.sum()),
            "is_refuted": float(self.form == "survivors" and not survivors.any()),
        }

    def noise_ratio_at(self, x: Tensor) -> float:
        """Return the smallest ratio of noise to posterior variance at an arm among the survivors.

        Args:
            x: The arm's point.
        """
        arm = int(self.arms.domain.index_of(x.unsqueeze(0))[0])
        level = LEVEL_OF_SURVIVORS if self.draws else self.widths.level
        return self.arms.least_noise_ratio(arm, self.arms.evidence.numpy_in_force(level))

    def bounds(self, round_number: int, pending: Any = ()) -> tuple[Tensor, Tensor]:
        """Return lower and upper confidence bounds of all arms, ``num_arms`` each.

        Args:
            round_number: The number of the round, from 1; widths grow with it.
            pending: Arms that count as known at their posterior means.
        """
        width = self.widths.in_round(round_number, self.arms.recipe.groups.scales)
        if self.form == "mixture":
            mean, variance = self.arms.mixture(pending)
            half = variance.clamp_min(1e-30).sqrt() * float(width)
            return mean - half, mean + half
        in_force = self.arms.evidence.in_force(self.widths.level)
        return self.arms.bounds(width, in_force, pending)


def build_candidates_engine(
    recipe: CandidatesRecipe,
    acquisition: AcquisitionRecipe,
    domain: Arms,
    seed: int,
    priors: PriorsOfGroups | None = None,
) -> CandidatesEngine | None:
    """Return the engine that plays a list of priors on arms, without a BoTorch model.

    Args:
        recipe: The recipe of the list.
        acquisition: The acquisition function to play.
        domain: The arms.
        seed: The seed of the draws.
        priors: The priors of the same list on the same arms, to be shared; they are computed if
            omitted.

    Returns:
        None for acquisition functions that need the model.
    """
    played = acquisition.acquisition_class
    if played not in (CandidatesUpperConfidenceBound, CandidatesThompsonSampling):
        return None
    options = played.complete_options(acquisition.options, domain)
    if played is CandidatesThompsonSampling and not torch.equal(options["choices"], domain.choices):
        return None
    arms = CandidateArms(recipe, domain.choices, priors)
    return CandidatesEngine(arms, played, options, seed)

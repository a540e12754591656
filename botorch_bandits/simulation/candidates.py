"""Replicates of a list of priors on arms: one engine each, behind the interface of one engine.

The evidence of different replicates eliminates different priors, so their arithmetic is not
batched; they only share the prior covariances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from botorch_bandits.acquisition.base import AcquisitionRecipe
from botorch_bandits.acquisition.baselines import RandomSearch
from botorch_bandits.acquisition.candidates_engine import (
    CandidatesEngine,
    CandidatesRound,
    build_candidates_engine,
)
from botorch_bandits.domains import Arms
from botorch_bandits.models import CandidatesRecipe
from botorch_bandits.random_streams import RandomBlocks


@dataclass(frozen=True, eq=False)
class ReplicatesRound:
    """The state of each replicate in a round.

    Attributes:
        rounds: One per replicate.
    """

    rounds: tuple[CandidatesRound, ...]

    @property
    def rule(self) -> ReplicatesRound:
        """The object itself, which provides the bounds that a rule provides elsewhere."""
        return self

    def bounds(self, seen: ReplicatesRound) -> tuple[Tensor, Tensor] | None:
        """Return lower and upper bounds, ``num_replicates x num_arms`` each; None for draws.

        Args:
            seen: The round.
        """
        known = [each.bounds for each in seen.rounds if each.bounds is not None]
        if len(known) < len(seen.rounds):
            return None
        return torch.stack([lower for lower, _ in known]), torch.stack([u for _, u in known])


@dataclass(frozen=True, eq=False)
class MixtureOfReplicates:
    """The posterior mixtures of all replicates.

    Attributes:
        engines: One per replicate.
    """

    engines: tuple[CandidatesEngine, ...]

    @property
    def mean(self) -> Tensor:
        """``num_replicates x num_arms``."""
        return torch.stack([engine.arms.mixture()[0] for engine in self.engines])


class CandidatesReplicates:
    """Plays a list of priors on arms, with separate evidence for each replicate.

    Args:
        recipe: The recipe of the list.
        acquisition: The acquisition that is played, which must have an engine on arms; see
            :func:`~botorch_bandits.acquisition.build_candidates_engine`.
        arms: The arms.
        seeds: One per replicate.

    Raises:
        ValueError: If the acquisition needs a BoTorch model.
    """

    rule = True  # it is not random search

    def __init__(
        self,
        recipe: CandidatesRecipe,
        acquisition: AcquisitionRecipe | RandomSearch,
        arms: Arms,
        seeds: Sequence[int],
    ) -> None:
        """See the class."""
        engines: list[CandidatesEngine] = []
        for seed in seeds:
            if not isinstance(acquisition, AcquisitionRecipe):
                break
            shared = engines[0].arms.priors if engines else None
            engine = build_candidates_engine(recipe, acquisition, arms, seed, shared)
            if engine is not None:
                engines.append(engine)
        if not engines:
            raise ValueError(
                f"policy ({acquisition!r}) cannot be simulated in a batch with a list of priors, "
                "unless it is CandidatesUpperConfidenceBound, or CandidatesThompsonSampling on all "
                "arms. Run policy.loop(...) for each seed instead."
            )
        self.engines = tuple(engines)
        self.posterior = MixtureOfReplicates(self.engines)
        self._uniform = RandomBlocks(tuple(seeds), "sample", (), "uniform")
        self._num_arms, self._device = arms.num_arms, arms.choices.device

    def look(self, round_number: int) -> ReplicatesRound:
        """Return the state of all replicates in a round.

        Args:
            round_number: The number of the round, from 1, with which widths grow.
        """
        return ReplicatesRound(tuple(engine.look(round_number) for engine in self.engines))

    def choose(self, seen: ReplicatesRound, check: bool = True) -> Tensor:
        """Return the arm to play, ``num_replicates``.

        Args:
            seen: The round from :meth:`look`.
            check: Whether to refuse scores that are not finite.
        """
        each = zip(self.engines, seen.rounds, strict=True)
        return torch.stack([engine.choose(known, check) for engine, known in each])

    def choose_uniformly(self, round_number: int) -> Tensor:
        """Return one uniformly random arm per replicate.

        Args:
            round_number: The number of the round, from 1; the draw is a function of this number and
                the replicate's seed.
        """
        return (self._uniform.at(round_number) * self._num_arms).long().to(self._device)

    def observe(self, arm: Tensor | int, outcome: Tensor | float) -> None:
        """Add one outcome per replicate.

        Args:
            arm: ``num_replicates`` numbers of the arms that were played; a plain number for one
                replicate.
            outcome: ``num_replicates`` outcomes; a plain number for one replicate.
        """
        arms = [arm] if isinstance(arm, int) else arm.tolist()
        outcomes = outcome.tolist() if isinstance(outcome, Tensor) else [outcome]
        for engine, played, heard in zip(self.engines, arms, outcomes, strict=True):
            engine.arms.observe(played, heard)

"""A penalized reward on arms with contexts, windows or a time dimension, without a BoTorch model.

:class:`LagrangianRowsEngine` is to
:class:`~botorch_bandits.acquisition.lagrangian_on_arms.LagrangianEngine` what
:class:`~botorch_bandits.acquisition.rows_engine.RowsEngine` is to the engine of plain arms.
The reward and the constraints are observed in the same rows. Outputs with the same kernel share one
factor, one covariance between the rows and all arms, and one variance; each has its own column of
outcomes and its own draw from the same roots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.acquisition.base import AcquisitionRecipe
from botorch_bandits.acquisition.lagrangian_on_arms import (
    LagrangianRound,
    PenalizedEngine,
    Weights,
    has_scale,
    read_outputs,
)
from botorch_bandits.acquisition.rows_engine import RowsEngine, build_rows
from botorch_bandits.domains import Arms
from botorch_bandits.forgetting import Forgetting
from botorch_bandits.models import BanditGPRecipe
from botorch_bandits.models.arms_rows import Rows, RowsPosterior
from botorch_bandits.models.changed_rows import Record
from botorch_bandits.models.front_kernels import Array, FrontCovariance


class LagrangianRowsEngine(PenalizedEngine):
    """Plays a penalized reward on the rows that count in each round.

    Args:
        groups: Engines without a rule, one for each kernel.
        outputs: The indices of the outputs in each group; the reward is output 0.
        options: All constructor options of the acquisition function.
        draws: Whether the reward is drawn (Thompson sampling) rather than bounded.
        name: The name of the acquisition class, for error messages.
    """

    def __init__(
        self,
        groups: Sequence[RowsEngine],
        outputs: Sequence[Sequence[int]],
        options: Mapping[str, Any],
        draws: bool,
        name: str,
    ) -> None:
        """See the class."""
        super().__init__(groups, outputs, options, draws, name)
        self._groups = tuple(groups)
        self._posteriors: tuple[RowsPosterior, ...] = ()

    @property
    def covariances(self) -> tuple[FrontCovariance, ...]:
        """The prior of each group of outputs with the same kernel."""
        return tuple(each.covariance for each in self._groups)

    @property
    def num_front(self) -> int:
        """The number of columns in front of the arms."""
        return self._groups[0].covariance.num_front

    @property
    def rule_domain(self) -> Arms:
        """The arms with the columns in front of them."""
        return self._groups[0].rule_domain

    def transformed_contexts(self, contexts: Tensor) -> Array:
        """Return contexts in the form that the kernels expect.

        Args:
            contexts: ``n x num_contexts``.
        """
        return self._groups[0].transformed_contexts(contexts)

    def look(
        self,
        round_number: int,
        front: Array,
        record: Record,
        pending: Rows | None = None,
        draw_round: int | None = None,
        rule: Weights | None = None,
    ) -> LagrangianRound:
        """Return the state of a round.

        Args:
            round_number: The number of the round, from 1.
            front: ``num_front``; the current front of the arms.
            record: The record of observations, with ``num_outputs`` outcomes per row.
            pending: The arms whose outcomes have not arrived, or None. Draws ignore them.
            draw_round: The round whose random numbers are drawn; ``round_number`` if omitted.
            rule: The weights in use; the initial ones if omitted.
        """
        self._posteriors = tuple(
            engine.posterior_of(
                front,
                replace(record, outcomes=record.outcomes[:, list(outputs)]),
                None if self.draws else pending,
                draws=self.draws,
            )
            for engine, outputs in zip(self._groups, self._outputs, strict=True)
        )
        return self._round(
            [posterior.means for posterior in self._posteriors],
            self._variances,
            round_number if draw_round is None else draw_round,
            rule,
        )

    def _variances(self, index: int | None) -> list[Tensor]:
        if index is None:
            return [posterior.variance for posterior in self._posteriors]
        arm = np.array([index])
        return [torch.from_numpy(each.variance_at(arm)) for each in self._posteriors]

    def deviations_of_draw(self, draw_round: int) -> Tensor:
        drawn = self.prior_variances.new_empty(
            len(self.prior_variances), self._posteriors[0].num_arms
        )
        for engine, posterior, outputs in zip(
            self._groups, self._posteriors, self._outputs, strict=True
        ):
            simulations = [
                engine.draw(
                    draw_round,
                    f"lagrangian thompson, output {j}",
                    (posterior.num_normals,),
                    "normal",
                    posterior.simulate_prior,
                )
                for j in outputs
            ]
            normals = [
                partial(engine.normal, draw_round, purpose=f"lagrangian thompson rows, output {j}")
                for j in outputs
            ]
            drawn[list(outputs)] = posterior.deviations_of_draws(torch.stack(simulations), normals)
        return drawn


def build_lagrangian_rows_engine(
    model: BanditGPRecipe,
    acquisition: AcquisitionRecipe,
    domain: Arms,
    num_contexts: int,
    forgetting: Forgetting | None,
    seed: int,
    covariances: Sequence[FrontCovariance] = (),
) -> LagrangianRowsEngine | None:
    """Return an engine for a penalized reward on arms with contexts, or a model that forgets.

    Args:
        model: Kernel and noise, the same for reward and constraints unless the kernel has a batch
            shape.
        acquisition: The acquisition function to play, with multipliers.
        domain: The arms.
        num_contexts: The number of context columns.
        forgetting: How old outcomes are forgotten.
        seed: The seed of the draws.
        covariances: The covariances of an earlier engine with the same model and domain, to save
            their computation.

    Returns:
        None if the settings need the model itself; see
        :func:`~botorch_bandits.acquisition.rows_engine.build_rows_engine`.
    """
    settings = read_outputs(model, acquisition, domain)
    if settings is None:
        return None
    groups: list[RowsEngine] = []
    known: Sequence[FrontCovariance | None] = covariances or [None] * len(settings.models)
    for recipe, covariance in zip(settings.models, known, strict=True):
        engine = build_rows(recipe, None, domain, num_contexts, forgetting, seed, covariance)
        if engine is None or not has_scale(engine):
            return None
        groups.append(engine)
    return LagrangianRowsEngine(
        groups, settings.outputs, settings.options, settings.draws, settings.name
    )

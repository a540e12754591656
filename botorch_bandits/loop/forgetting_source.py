"""What a loop's acquisition function is built from where the model forgets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import Guarantee
from botorch_bandits.domains import Domain
from botorch_bandits.feedback import Censored, Feedback, Ignored
from botorch_bandits.forgetting import Forgetting, SlidingWindow, TimeVaryingKernel
from botorch_bandits.history import History, Query
from botorch_bandits.loop.acquisition_source import (
    AcquisitionFactory,
    AcquisitionSource,
    ModelFactory,
)
from botorch_bandits.models import BanditGPRecipe
from botorch_bandits.models.forgetting import ForgettingModels
from botorch_bandits.random_streams import seeded_globally


class ForgettingSource(AcquisitionSource):
    """Builds the model of each round from what has not been forgotten.

    With a time-varying kernel the model's inputs are ``(round, context, point)``; see
    :meth:`domain_in`.

    Args:
        model: As for :class:`AcquisitionSource`.
        acquisition: Likewise.
        history: Likewise.
        feedback: Likewise, but not censored.
        seed: Likewise.
        collapses: Likewise.
        rounds_before: Likewise.
        forgetting: What becomes of old outcomes.
    """

    def __init__(
        self,
        model: BanditGPRecipe | ModelFactory | None,
        acquisition: AcquisitionRecipe | RandomSearch | AcquisitionFactory,
        history: History,
        feedback: Feedback,
        seed: int,
        collapses: bool,
        rounds_before: int,
        forgetting: Forgetting,
    ) -> None:
        """See the class."""
        super().__init__(model, acquisition, history, feedback, seed, collapses, rounds_before)
        self._forgetting = forgetting
        self._models = (
            ForgettingModels(model, forgetting, collapses)
            if isinstance(model, BanditGPRecipe)
            else None
        )

    def has_no_data(self) -> bool:
        """See :meth:`AcquisitionSource.has_no_data`; a window may be empty again."""
        if self._models is not None:
            return False
        return len(self._arrived(self._history.num_queries + 1)[0]) == 0

    def model(self, round_number: int, now: float) -> Model:
        """See :meth:`AcquisitionSource.model`."""
        key = (self._history.num_arrived, round_number, self._history.version)
        if self._known_model is None or self._known_model[0] != key:
            X, Y, rounds = self._arrived(round_number)
            if self._models is None:
                model = self._call_factory(X, Y)
            else:
                model = self._models.build(X, Y, rounds, round_number)
            self._known_model = (key, model)
        return self._known_model[1]

    def build(self, round_number: int, domain: Domain, now: float) -> AcquisitionFunction:
        """See :meth:`AcquisitionSource.build`."""
        model = self.model(round_number, now)
        X_pending = self._pending(round_number)
        seed = self._seed_of(round_number)
        if isinstance(self._acquisition, AcquisitionRecipe):
            X, Y, rounds = self._arrived(round_number)
            return self._acquisition.build(
                model,
                domain,
                round_number=round_number,
                X_pending=X_pending,
                seed=seed,
                X_observed=self._inputs(X, rounds),
                Y_observed=Y,
            )
        assert not isinstance(self._acquisition, RandomSearch)
        with seeded_globally(seed):
            return self._acquisition(model, X_pending)

    def domain_in(self, domain: Domain, context: Tensor | None, round_number: int) -> Domain:
        """Return the domain of the model's inputs in a round, of which only points are chosen.

        Args:
            domain: Of the points.
            context: The context, or None.
            round_number: From 1.
        """
        fixed = [] if context is None else [context]
        if isinstance(self._forgetting, TimeVaryingKernel):
            fixed.insert(0, torch.tensor([float(round_number)], dtype=DTYPE))
        return domain.in_context(torch.cat(fixed)) if fixed else domain

    def _arrived(self, round_number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, outcomes and rounds of what arrived, in that order, less what left the window."""
        X, Y = self._history.arrived()
        queries = [self._history.query(o.query_id) for o in self._history.outcomes]
        rounds = _rounds(queries).to(X.device)
        if isinstance(self._forgetting, SlidingWindow):
            kept = self._forgetting.keeps(rounds, round_number)
            X, Y, rounds = X[kept], Y[kept], rounds[kept]
        return X, Y, rounds

    def _pending(self, round_number: int) -> Tensor | None:
        if isinstance(self._feedback, Ignored):
            return None
        X = self._history.pending_inputs()
        rounds = _rounds(self._history.pending()).to(X.device)
        if isinstance(self._forgetting, SlidingWindow):
            kept = self._forgetting.keeps(rounds, round_number)
            X, rounds = X[kept], rounds[kept]
        return self._inputs(X, rounds) if len(X) else None

    def _inputs(self, X: Tensor, rounds: Tensor) -> Tensor:
        return X if self._models is None else self._models.inputs(X, rounds)


def check_forgetting(
    forgetting: Any, model: Any, feedback: Feedback, draws_on_paths: bool
) -> Forgetting | None:
    """Return the forgetting of a loop if model, feedback and acquisition go with it.

    Args:
        forgetting: Whatever the user gave.
        model: The loop's.
        feedback: The loop's.
        draws_on_paths: Whether the acquisition draws functions on a whole box.

    Raises:
        TypeError: If it is no forgetting.
        ValueError: If the model cannot forget in this way, feedback is censored, or functions
            cannot be drawn.
    """
    if forgetting is None:
        return None
    if not isinstance(forgetting, Forgetting):
        raise TypeError(
            f"forgetting is {forgetting!r}; pass SlidingWindow(...), ExponentialWeights(...) or "
            "TimeVaryingKernel(...)."
        )
    if isinstance(feedback, Censored):
        raise ValueError(
            f"forgetting is {forgetting!r}, which does not go with feedback=Censored(...): lost "
            "queries keep their pseudo-value for good. Use Hallucinated() or Ignored()."
        )
    if draws_on_paths and isinstance(forgetting, TimeVaryingKernel):
        raise ValueError(
            f"forgetting is {forgetting!r}, whose kernel has no random features for Thompson "
            "sampling on a box. Use an upper confidence bound, SlidingWindow(...) or Arms."
        )
    if model is None:
        raise ValueError(f"forgetting is {forgetting!r}, but random search has no model to forget.")
    if isinstance(model, BanditGPRecipe):
        ForgettingModels(model, forgetting)
    elif not isinstance(forgetting, SlidingWindow):
        raise ValueError(
            f"forgetting is {forgetting!r}, which changes the noise or the kernel, but the model "
            "is a function of yours. Pass BanditGP.with_kernel(...), or use SlidingWindow."
        )
    return forgetting


def with_forgetting(guarantee: Guarantee) -> Guarantee:
    """Return what is left of a guarantee when the model forgets."""
    return replace(guarantee, regret_bound=None).with_gaps(
        "no theorem is stated here for a model that forgets"
    )


def _rounds(queries: list[Query] | tuple[Query, ...]) -> Tensor:
    return torch.tensor([query.round_number for query in queries], dtype=torch.long)

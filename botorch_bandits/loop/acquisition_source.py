"""What a loop's acquisition function of a round is built from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    GPThompsonSampling,
    RandomSearch,
    WidthUpperConfidenceBound,
)
from botorch_bandits.acquisition.censored_loop import (
    PendingWidth,
    censored_rule,
    set_width_rule,
)
from botorch_bandits.checks import DTYPE
from botorch_bandits.domains import Domain
from botorch_bandits.feedback import Censored, CensoredView, Feedback, Ignored
from botorch_bandits.history import History
from botorch_bandits.models import BanditGPRecipe, condition
from botorch_bandits.random_streams import derive_seed, seeded_globally

ModelFactory = Callable[[Tensor, Tensor], Model]
AcquisitionFactory = Callable[[Model, Tensor | None], AcquisitionFunction]


class AcquisitionSource:
    """Builds models and acquisition functions from a history; remembers the last model.

    Args:
        model: A recipe, a user's function, or None.
        acquisition: A recipe, a user's function, or random search.
        history: What happened; it grows as the loop goes on.
        feedback: What is made of pending queries.
        seed: Seeds everything that is drawn.
        collapses: Whether a recipe's model has one row for all observations of an input.
    """

    def __init__(
        self,
        model: BanditGPRecipe | ModelFactory | None,
        acquisition: AcquisitionRecipe | RandomSearch | AcquisitionFactory,
        history: History,
        feedback: Feedback,
        seed: int,
        collapses: bool,
    ) -> None:
        """See the class."""
        self._given, self._acquisition = model, acquisition
        self._history, self._feedback, self._seed = history, feedback, seed
        self._build_model = (
            model.builder(seed, collapses)
            if isinstance(model, BanditGPRecipe)
            else self._call_factory
        )
        self._known_model: tuple[Any, Model] | None = None

    def has_no_data(self) -> bool:
        """Return whether a user's model cannot be built yet."""
        if isinstance(self._given, BanditGPRecipe):
            return False
        if isinstance(self._feedback, Censored):
            outcomes = self._history.outcomes
            queries = (self._history.query(outcome.query_id) for outcome in outcomes)
            return all(map(self._feedback.is_late, queries, outcomes))
        return self._history.num_arrived == 0

    def model(self, round_number: int, now: float) -> Model:
        """Return the model with which a round's query is chosen.

        Args:
            round_number: From 1.
            now: Clock reading in seconds.
        """
        if isinstance(self._feedback, Censored):
            view = self._feedback.view(self._history, round_number, now)
            return self._censored_model(self._feedback, view)
        num_arrived = self._history.num_arrived
        if self._known_model is None or self._known_model[0] != num_arrived:
            self._known_model = (num_arrived, self._build_model(*self._history.arrived()))
        return self._known_model[1]

    def build(self, round_number: int, domain: Domain, now: float) -> AcquisitionFunction:
        """Build the acquisition function of a round.

        Args:
            round_number: From 1.
            domain: Where it will be maximised.
            now: Clock reading in seconds.
        """
        if isinstance(self._feedback, Censored):
            return self._build_censored(self._feedback, round_number, domain, now)
        model = self.model(round_number, now)
        X_pending = None
        if self._history.num_pending and not isinstance(self._feedback, Ignored):
            X_pending = self._history.pending_inputs()
        if isinstance(self._acquisition, AcquisitionRecipe):
            X, Y = self._history.arrived()
            return self._acquisition.build(
                model,
                domain,
                round_number=round_number,
                X_pending=X_pending,
                seed=derive_seed(self._seed, round_number, "acquisition"),
                X_observed=X,
                Y_observed=Y,
            )
        assert not isinstance(self._acquisition, RandomSearch)
        with seeded_globally(derive_seed(self._seed, round_number, "acquisition")):
            return self._acquisition(model, X_pending)

    def _censored_model(self, feedback: Censored, view: CensoredView) -> Model:
        """All queries in asking order; where the model is a user's, pseudo-values join it."""
        minimum = feedback.current_minimum(self._history)
        key = (view.rewards, minimum)
        if self._known_model is None or self._known_model[0] != key:
            X = self._history.inputs()
            labels = [minimum if reward is None else reward for reward in view.rewards]
            Y = torch.tensor(labels, dtype=DTYPE, device=X.device).unsqueeze(-1)
            if isinstance(self._given, BanditGPRecipe):
                model = self._build_model(X, Y)
            else:
                told = torch.tensor([reward is not None for reward in view.rewards])
                model = self._build_model(X[told], Y[told])
                if not bool(told.all()):
                    model = condition(model, X[~told], Y[~told])
            self._known_model = (key, model)
        return self._known_model[1]

    def _build_censored(
        self, feedback: Censored, round_number: int, domain: Domain, now: float
    ) -> AcquisitionFunction:
        """The acquisition on the censored model, with the width of censored feedback."""
        view = feedback.view(self._history, round_number, now)
        model = self._censored_model(feedback, view)
        assert isinstance(self._acquisition, AcquisitionRecipe)
        acquisition = self._acquisition.build(
            model,
            domain,
            round_number=round_number,
            seed=derive_seed(self._seed, round_number, "acquisition"),
        )
        assert isinstance(acquisition, WidthUpperConfidenceBound | GPThompsonSampling)
        deviation_sum = torch.zeros((), dtype=DTYPE)
        ids = feedback.summed(view, round_number)
        if ids:
            with torch.no_grad():
                variance = model.posterior(self._history.inputs()[ids].unsqueeze(-2)).variance
            deviation_sum = variance.clamp_min(0.0).sqrt().sum()
        rule = censored_rule(acquisition.rule, feedback.outcome_bound)
        set_width_rule(acquisition, PendingWidth(rule, deviation_sum))
        return acquisition

    def _call_factory(self, X: Tensor, Y: Tensor) -> Model:
        assert callable(self._given)
        # a user's fit may draw from the global generator
        with seeded_globally(derive_seed(self._seed, len(X), "model")):
            return self._given(X, Y)

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
    BanditAcquisition,
    RandomSearch,
)
from botorch_bandits.acquisition.censored_loop import (
    PendingWidth,
    censor_acquisition,
    censored_rule,
)
from botorch_bandits.acquisition.censoring import Censoring
from botorch_bandits.checks import DTYPE
from botorch_bandits.domains import Domain
from botorch_bandits.feedback import Censored, CensoredView, Feedback, Ignored
from botorch_bandits.history import History
from botorch_bandits.models import BanditGPRecipe, condition
from botorch_bandits.models.observed import prior_means
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
        rounds_before: How many rounds were asked before this history; random numbers go on.
    """

    def __init__(
        self,
        model: BanditGPRecipe | ModelFactory | None,
        acquisition: AcquisitionRecipe | RandomSearch | AcquisitionFactory,
        history: History,
        feedback: Feedback,
        seed: int,
        collapses: bool,
        rounds_before: int = 0,
    ) -> None:
        """See the class."""
        self._given, self._acquisition = model, acquisition
        self._history, self._feedback, self._seed = history, feedback, seed
        self._rounds_before = rounds_before
        self._build_model = (
            model.builder(seed, collapses, separates_outputs=True)
            if isinstance(model, BanditGPRecipe)
            else self._call_factory
        )
        self._known_model: tuple[Any, Model] | None = None

    def play(self, acquisition: AcquisitionRecipe | RandomSearch | AcquisitionFactory) -> None:
        """Build from other settings from now on, with the same models."""
        self._acquisition = acquisition

    def latest_fit(self) -> dict[str, Any] | None:
        """Return a recipe's hyperparameters and to how many rows they were fitted; None if never.

        Plain values, exact; parameters are raw, as PyTorch has them.
        """
        fit = getattr(self._build_model, "latest_fit", None)
        if fit is None:
            return None
        num_rows, kernel, noise = fit
        return {
            "num_rows": num_rows,
            "kernel": {name: value.tolist() for name, value in kernel.named_parameters()},
            "noise": noise.tolist(),
        }

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
        key = (self._history.num_arrived, self._history.version)
        if self._known_model is None or self._known_model[0] != key:
            self._known_model = (key, self._build_model(*self._history.arrived()))
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
                seed=self._seed_of(round_number),
                X_observed=X,
                Y_observed=Y,
            )
        assert not isinstance(self._acquisition, RandomSearch)
        with seeded_globally(self._seed_of(round_number)):
            return self._acquisition(model, X_pending)

    def _censored_model(self, feedback: Censored, view: CensoredView) -> Model:
        """The model with a row a query; censored ones are at their pseudo-value.

        A recipe has all queries as rows in asking order. Pseudo-values join the model of what
        arrived in time where it is a user's, which must not be fitted to them, and where it says
        what they are (an unknown minimum).
        """
        minimum = feedback.current_minimum(self._history)
        key = (view.rewards, minimum)
        if self._known_model is not None and self._known_model[0] == key:
            return self._known_model[1]
        X, rewards = self._history.inputs(), view.rewards
        is_recipe = isinstance(self._given, BanditGPRecipe)
        if is_recipe and minimum is not None:
            model = self._build_model(
                X, _column([minimum if reward is None else reward for reward in rewards], X)
            )
        else:
            told = [i for i, reward in enumerate(rewards) if reward is not None]
            censored = [i for i, reward in enumerate(rewards) if reward is None]
            if is_recipe:  # in order of arrival, rows are appended only
                order = [outcome.query_id for outcome in self._history.outcomes]
                told = [i for i in order if rewards[i] is not None]
            model = self._build_model(X[told], _column([rewards[i] for i in told], X))
            if censored and minimum is None:
                proxy = Censoring(minimum_proxy=feedback.minimum_proxy)
                (minimum,) = proxy.proxy(model, (1.0,), X[told or censored])
            if censored:
                model = condition(model, X[censored], _column([minimum] * len(censored), X))
        self._known_model = (key, model)
        return model

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
            seed=self._seed_of(round_number),
        )
        assert isinstance(acquisition, BanditAcquisition)
        deviation_sum = torch.zeros((), dtype=DTYPE)
        ids = feedback.summed(view.pending, round_number)
        if ids:
            with torch.no_grad():
                variance = model.posterior(
                    self._history.inputs()[ids].unsqueeze(-2),
                    observation_noise=feedback.predictive,
                ).variance
            deviation_sum = variance.clamp_min(0.0).sqrt().sum()
        rule = censored_rule(acquisition.rule, feedback.outcome_bound)
        gaps = self._censoring_gaps(feedback, view, model, getattr(rule, "units", "outcome"))
        width = PendingWidth(rule, deviation_sum, round_number, gaps)
        return censor_acquisition(acquisition, width, feedback.predictive)

    def _censoring_gaps(
        self, feedback: Censored, view: CensoredView, model: Model, units: str
    ) -> tuple[str, ...]:
        """Why the theorem does not cover this feedback, beside what the width rule knows."""
        gaps = []
        if feedback.predictive:
            gaps.append("standard deviations include the noise")
        minimum = feedback.current_minimum(self._history)
        if minimum is None:
            return (*gaps, "the minimum is unknown; a lower confidence bound is in its place")
        if minimum != feedback.minimum:
            gaps.append("the minimum was lowered to an observed outcome")
        means = prior_means(model)
        if means is None:
            gaps.append("the prior mean cannot be read; it must equal the minimum")
        elif any(
            float((mean - minimum).abs().max()) > 1e-6 * (1.0 + abs(minimum)) for mean in means
        ):
            gaps.append(f"the prior mean differs from the minimum, {minimum:g}")
        bound = feedback.outcome_bound
        farthest = max((r - minimum for r in view.rewards if r is not None), default=0.0)
        if units == "outcome" and bound is not None and farthest > bound * (1.0 + 1e-9):
            gaps.append(
                f"an observed outcome is {farthest:.4g} from the minimum, more than "
                f"outcome_bound = {bound:.4g}"
            )
        return tuple(gaps)

    def _seed_of(self, round_number: int) -> int:
        return derive_seed(self._seed, self._rounds_before + round_number, "acquisition")

    def _call_factory(self, X: Tensor, Y: Tensor) -> Model:
        assert callable(self._given)
        # a user's fit may draw from the global generator
        with seeded_globally(derive_seed(self._seed, self._rounds_before + len(X), "model")):
            return self._given(X, Y)


def _column(values: list[float | None], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=DTYPE, device=like.device).unsqueeze(-1)

"""What a loop's acquisition function of a round is built from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    RandomSearch,
)
from botorch_bandits.acquisition.upper_confidence_bound import WidthUpperConfidenceBound
from botorch_bandits.change_points import ChangePointRestart
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import Guarantee
from botorch_bandits.confidence.censored import censored_rule
from botorch_bandits.constraints import MultiplicativeEpochs, MultiplierRule, PrimalDual
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.domains import Domain
from botorch_bandits.feedback import Censored, CensoredView, Feedback, Ignored
from botorch_bandits.forgetting import Forgetting, SlidingWindow, TimeVaryingKernel
from botorch_bandits.history import History, Query
from botorch_bandits.loop.state import Multipliers
from botorch_bandits.models import BanditGPRecipe, condition
from botorch_bandits.models.censoring import least_lower_bounds
from botorch_bandits.models.condition import prior_means
from botorch_bandits.models.forgetting import ForgettingModels
from botorch_bandits.random_streams import derive_seed, seeded_globally

ModelFactory = Callable[[Tensor, Tensor], Model]
AcquisitionFactory = Callable[[Model, Tensor | None], AcquisitionFunction]


class AcquisitionBuilder:
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
            now: Clock time in seconds.
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
            domain: Where it will be maximized.
            now: Clock time in seconds.
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
                assert feedback.minimum_proxy is not None
                known = X[told or censored]
                (minimum,) = least_lower_bounds(model, feedback.minimum_proxy, (1.0,), known)
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
        assert isinstance(acquisition, WidthUpperConfidenceBound | GPThompsonSampling)
        deviation_sum = torch.zeros((), dtype=DTYPE)
        ids = feedback.summed(view.pending, round_number - 1)
        if ids:
            with torch.no_grad():
                variance = model.posterior(
                    self._history.inputs()[ids].unsqueeze(-2),
                    observation_noise=feedback.predictive,
                ).variance
            deviation_sum = variance.clamp_min(0.0).sqrt().sum()
        rule = censored_rule(acquisition.rule, feedback.outcome_bound)
        minimum = feedback.current_minimum(self._history)
        observed = [reward for reward in view.rewards if reward is not None]
        gaps = feedback.gaps(
            () if minimum is None else (minimum,),
            prior_means(model),
            (torch.tensor(observed, dtype=DTYPE),),
            rule.censored.units,
        )
        width = rule.in_round(deviation_sum, round_number, tuple(gaps))
        if isinstance(acquisition, GPThompsonSampling):
            acquisition.set_rule(width)
        else:
            acquisition.set_rule(width, feedback.predictive)
        return acquisition

    def _seed_of(self, round_number: int) -> int:
        return derive_seed(self._seed, self._rounds_before + round_number, "acquisition")

    def _call_factory(self, X: Tensor, Y: Tensor) -> Model:
        assert callable(self._given)
        # a user's fit may draw from the global generator
        with seeded_globally(derive_seed(self._seed, self._rounds_before + len(X), "model")):
            return self._given(X, Y)


def _column(values: list[float | None], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=DTYPE, device=like.device).unsqueeze(-1)


class ForgettingBuilder(AcquisitionBuilder):
    """Builds the model of each round from what has not been forgotten.

    With a time-varying kernel the model's inputs are ``(round, context, point)``; see
    :meth:`domain_in`.

    Args:
        model: As for :class:`AcquisitionBuilder`.
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
        """See :meth:`AcquisitionBuilder.has_no_data`; a window may be empty again."""
        if self._models is not None:
            return False
        return len(self._arrived(self._history.num_queries + 1)[0]) == 0

    def model(self, round_number: int, now: float) -> Model:
        """See :meth:`AcquisitionBuilder.model`."""
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
        """See :meth:`AcquisitionBuilder.build`."""
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


LAGRANGIAN = (LagrangianUpperConfidenceBound, LagrangianThompsonSampling)


def check_constraints(rule: Any, acquisition: Any, feedback: Feedback, restart: Any) -> None:
    """Raise unless the rest of a loop goes with its constraints.

    Args:
        rule: For the multipliers, or None without constraints.
        acquisition: What is played.
        feedback: What is made of pending queries.
        restart: When the loop begins anew.

    Raises:
        TypeError: If they are no rule for multipliers.
        ValueError: If acquisition, feedback or restart do not go with the rule.
    """
    detectors = restart.constraint_detectors if isinstance(restart, ChangePointRestart) else ()
    if detectors and len(detectors) != getattr(rule, "num_constraints", 0):
        raise ValueError(
            f"restart has {len(detectors)} constraint_detectors, but there are "
            f"{getattr(rule, 'num_constraints', 0)} constraints; give one for each, or none."
        )
    is_lagrangian = (
        isinstance(acquisition, AcquisitionRecipe) and acquisition.acquisition_class in LAGRANGIAN
    )
    if rule is None:
        if is_lagrangian:
            raise ValueError(
                "the acquisition weighs constraints, but the loop has none. Pass constraints=, for "
                "example AdditiveEpochs(..., surrogate='separate')."
            )
        return
    if not isinstance(rule, MultiplierRule):
        raise TypeError(
            f"constraints is {rule!r}; pass a rule for multipliers: AdditiveEpochs(...), "
            "MultiplicativeEpochs(...) or PrimalDual(...)."
        )
    if isinstance(feedback, Censored):
        raise ValueError(
            "feedback=Censored(...) does not go with constraints=: the smallest penalized outcome "
            "changes with the multipliers. Use feedback=Hallucinated(), the default."
        )
    if rule.surrogate_in_use == "fresh" and restart is not None:
        raise ValueError(
            "constraints= has surrogate='fresh', which forgets at the end of each epoch; with "
            "restart= use 'relabelled' or 'separate'."
        )
    if isinstance(acquisition, RandomSearch):
        return
    if is_lagrangian and acquisition.options.get("multipliers") is not None:
        raise ValueError(
            f"the acquisition has multipliers={acquisition.options['multipliers']!r}, but in a "
            "loop the rule in constraints= gives them. Leave them out."
        )
    if rule.surrogate_in_use == "separate" and not is_lagrangian:
        raise ValueError(
            f"constraints={type(rule).__name__}(...) models reward and constraints separately, so "
            "the acquisition must weigh them: use LagrangianUpperConfidenceBound.with_options(...) "
            "or LagrangianThompsonSampling.with_options(...), or surrogate='relabelled'."
        )
    if rule.surrogate_in_use != "separate" and is_lagrangian:
        raise ValueError(
            f"constraints={type(rule).__name__}(...) models the penalized outcome, which the "
            "acquisition must not penalize again: use surrogate='separate', or an acquisition such "
            "as ImprovedUpperConfidenceBound."
        )


def at_multipliers(
    recipe: AcquisitionRecipe, multipliers: Multipliers, horizon: int | None
) -> AcquisitionRecipe:
    """Return a recipe as it is played with the multipliers in force.

    Args:
        recipe: As the user gave it, at its segment's share of ``delta``.
        multipliers: The rule and its state.
        horizon: The number of rounds, if it is known; epochs then share ``delta`` evenly.
    """
    rule, values = multipliers.rule, multipliers.values
    num_epochs = None
    if horizon is not None:
        num_epochs = max(math.ceil(horizon / rule.rounds_per_update), multipliers.epoch)
    if rule.surrogate_in_use == "separate":
        options = {
            **recipe.options,
            "multipliers": tuple(values.tolist()),
            "penalty": rule.penalty_in_use,
        }
        is_bound = recipe.acquisition_class is LagrangianUpperConfidenceBound
        if isinstance(rule, PrimalDual) and is_bound:
            options["separate_bounds"] = True
            for name in ("reward_bound", "constraint_bound"):
                if getattr(rule, name) is not None:
                    options[name] = getattr(rule, name)
        return AcquisitionRecipe(recipe.acquisition_class, options)
    factor = float(rule.noise_factor(values))
    return in_epoch(recipe, rule, multipliers.epoch, factor, num_epochs)


def in_epoch(
    recipe: AcquisitionRecipe,
    rule: MultiplierRule,
    epoch: int,
    noise_factor: float,
    num_epochs: int | None = None,
) -> AcquisitionRecipe:
    """Return a recipe as it is played on penalized outcomes in an epoch.

    Args:
        recipe: As the user gave it.
        rule: Of the multipliers.
        epoch: Its number, from 1.
        noise_factor: By what the noise bound is multiplied.
        num_epochs: How many there will be, if that is known.
    """
    recipe = recipe.at_share_of_delta(lambda d: rule.delta(d, epoch, num_epochs))
    noise_bound = recipe.options.get("noise_bound")
    if noise_bound is None or noise_factor == 1.0:
        return recipe
    options = {**recipe.options, "noise_bound": noise_bound * noise_factor}
    return AcquisitionRecipe(recipe.acquisition_class, options)


def with_constraints(
    guarantee: Guarantee, rule: MultiplierRule, acquisition_class: type | None
) -> Guarantee:
    """Return what a loop with constraints promises.

    Args:
        guarantee: Of its acquisition in the running epoch.
        rule: Of the multipliers.
        acquisition_class: What is played.
    """
    promised = rule.guarantee()
    gaps = [*promised.gaps, *guarantee.gaps]
    if rule.surrogate_in_use != "separate" and not _is_covered(rule, acquisition_class):
        gaps.append(
            f"the theorem's inner algorithm is IGP-UCB, not {guarantee.method}"
            + (
                "; Remark 1 allows GP-TS for Algorithm 2 only"
                if _is_thompson(acquisition_class)
                else ""
            )
        )
    if rule.surrogate_in_use != "separate":  # what the surrogate models is penalized
        guarantee = guarantee.about("the penalized function of each epoch")
    return replace(
        promised,
        method=f"{promised.method}, played by {guarantee.method}",
        assumptions=tuple(dict.fromkeys((*promised.assumptions, *guarantee.assumptions))),
        constants={**guarantee.constants, **promised.constants},
        gaps=tuple(dict.fromkeys(gaps)),
        regret_bound=None,
    )


def _is_thompson(acquisition_class: type | None) -> bool:
    return acquisition_class is GPThompsonSampling


def _is_covered(rule: MultiplierRule, acquisition_class: type | None) -> bool:
    allows_thompson = isinstance(rule, MultiplicativeEpochs)
    return acquisition_class is ImprovedUpperConfidenceBound or (
        allows_thompson and _is_thompson(acquisition_class)
    )


fill_in_docstrings(__name__)

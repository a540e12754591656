"""The settings of a loop, checked: each one alone, and whether they go together.

:class:`LoopSettings` is the single list of them. The loop, its storage and everything that
is derived from a history take them from there.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    AMMUpperConfidenceBound,
    BanditAcquisition,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    RandomizedUpperConfidenceBound,
    RandomSearch,
)
from botorch_bandits.acquisition.base import ONE_A_PRIOR, default_options
from botorch_bandits.acquisition.rules import WidthArmsRule
from botorch_bandits.change_points import ChangePointRestart, EvidenceRestart, Restart
from botorch_bandits.checks import (
    DTYPE,
    LARGEST_OUTCOME,
    check_instance,
    check_integer,
    check_kept_exactly,
    check_kernel_columns,
    check_matrix,
    check_number,
    is_list,
    is_listed,
    is_number,
    level_of_users_line,
    name_of,
    shown_value,
    store_checked,
    without_labels,
)
from botorch_bandits.confidence import GainBound, ModelCheck
from botorch_bandits.confidence.censored import CensoredWidth
from botorch_bandits.confidence.ingredients import output_rules
from botorch_bandits.confidence.prior_reading import learns_input_scale
from botorch_bandits.confidence.repeats import check_factor
from botorch_bandits.constraints import MultiplierOverflowError, MultiplierRule
from botorch_bandits.core.kernels import TimeDecayKernel
from botorch_bandits.domains import Arms, Box, Domain, PartOfBox, choices_of
from botorch_bandits.feasible_sets import Condition, FeasibleSet
from botorch_bandits.history import Outcome, Query
from botorch_bandits.loop.view import Censored, Feedback, Forgetting, Hallucinated
from botorch_bandits.models import (
    BanditGPRecipe,
    CandidatesRecipe,
    DefaultCandidates,
    FittedSingleTaskGP,
)
from botorch_bandits.models.noise import SMALLEST_RATIO, check_range_on_box, output_scale_of

ModelFactory = Callable[[Tensor, Tensor], Model]
"""A user's function from inputs and rewards to a model."""

AcquisitionFactory = Callable[[Model, Tensor | None, float | None], AcquisitionFunction]
"""A user's function from a model, pending points and the best outcome to an acquisition function.

The best outcome is the largest one that the model has: a reward, minus a cost, or a penalized
reward; None before the first.
"""


OBJECTIVES = ("best", "earned")
"""What a loop may be for, in place of an acquisition; see :func:`default_acquisition`."""

DEFAULT_INITIAL = 5
"""Uniform rounds at the start of a loop without a given acquisition."""


DEFAULT_WIDTH = 2.0
"""The posterior standard deviations of the default acquisition if it is a bound."""

EARNING_WIDTH = 1.0
"""The same with ``acquisition="earned"``."""

SEARCH = LogExpectedImprovement.with_options(augmented=True)
"""The acquisition that looks for a good point, where it can."""

EARNING = GPUpperConfidenceBound.with_options(width=EARNING_WIDTH)
"""The acquisition that collects reward."""


def default_acquisition(settings: LoopSettings) -> AcquisitionRecipe:
    """Return the acquisition of a loop whose user says only what it is for.

    The two were chosen by measurement (``docs/league.md``). Expected improvement needs one
    incumbent, and censored feedback and separate constraints need a width, so other settings use
    the bound.

    Args:
        settings: The settings, whose acquisition is ``"best"``: find a good point; or ``"earned"``:
            collect reward during the run.

    Raises:
        ValueError: If it is neither of the two.
    """
    if settings.acquisition not in OBJECTIVES:
        raise ValueError(
            f"acquisition is {settings.acquisition!r}; the only names are 'best' and 'earned'. "
            "Others are recipes, such as GPUpperConfidenceBound.with_options(width=2.0)."
        )
    if _is_separate(settings):
        return LagrangianUpperConfidenceBound.with_options(width=DEFAULT_WIDTH)
    if settings.acquisition == "earned":
        return EARNING
    if settings.context_dim or settings.feedback.censored is not None:
        return GPUpperConfidenceBound.with_options(width=DEFAULT_WIDTH)
    return SEARCH


def default_model(domain: Domain) -> ModelFactory:
    """Return the model of a loop whose user names none.

    Args:
        domain: The domain of the loop.

    Raises:
        TypeError: If it has no bounds with which inputs could be normalized.
    """
    try:
        return FittedSingleTaskGP.for_domain(domain)
    except TypeError as error:
        raise TypeError(
            f"model is None, and the default cannot be built: {error} Pass "
            "BanditGP.with_kernel(...) or a callable (X, Y) -> BoTorch model."
        ) from error


def check_loop_model(model: Any, domain: Domain, needed: bool) -> Any:
    """Return the model of a loop if it is a recipe or a function, the default one if None."""
    if model is None:
        return default_model(domain) if needed else None
    if isinstance(model, torch.nn.Module):
        raise TypeError(
            f"model is a built {type(model).__name__}, but the loop builds a fresh one when data "
            "arrive. Pass BanditGP.with_kernel(...) or a callable (X, Y) -> BoTorch model."
        )
    if not callable(model):
        remedy = " Pass BanditGP.with_candidates([...]) for a list of priors."
        raise TypeError(
            "model must be BanditGP.with_kernel(...) or a callable (X, Y) -> BoTorch model, got "
            f"{model!r:.200}.{remedy * is_list(model)}"
        )
    return model


KINDS: dict[str, tuple[type, str]] = {
    "feedback": (Feedback, "Pass Hallucinated(), Ignored() or Censored(...)."),
    "constraints": (
        MultiplierRule,
        "Pass a rule for multipliers: AdditiveEpochs(...), MultiplicativeEpochs(...) or "
        "PrimalDual(...).",
    ),
    "restart": (
        Restart,
        "Pass EvidenceRestart(...), ChangePointRestart(detector=...), OracleRestart(...) or "
        "NeverRestart(...), which also say what is kept and how much is explored.",
    ),
    "forgetting": (
        Forgetting,
        "Pass SlidingWindow(...), ExponentialWeights(...) or TimeVaryingKernel(...).",
    ),
}
"""The class of each setting that may be left out, and what to pass."""


def _check_values(settings: LoopSettings) -> None:
    """Raise an error unless numbers of one setting fit those of another.

    Raises:
        TypeError: If it is not a kind of forgetting.
        ValueError: If a count differs, a width lacks a number, or the first pseudo-value of
            censored feedback is too large.
    """
    rule, censored, played = settings.constraints, settings.feedback.censored, settings.played
    detectors = () if settings.detection is None else settings.detection.constraint_detectors
    if detectors and len(detectors) != settings.num_constraints:
        raise ValueError(
            f"restart has {len(detectors)} constraint_detectors, but there are "
            f"{settings.num_constraints} constraints; give one for each, or none."
        )
    listed = settings.listed
    needs_list = played is not None and issubclass(played.acquisition_class, OF_LISTS)
    for name in ONE_A_PRIOR if listed is not None and needs_list else ():
        given = settings.options.get(name)
        if is_list(given) and listed is not None and len(given) != listed.num_candidates:
            raise ValueError(
                f"{name} has {len(given)} entries, but {listed.num_candidates} priors are on the "
                "list; give one number for all, or one per prior."
            )
    if settings.forgetting is not None and settings.recipe is not None:
        forgetful_recipe(settings.recipe, settings.forgetting)
    if censored is not None and played is not None:
        _check_censored_widths(censored, played, rule, settings.domain)
    if censored is not None and rule is not None and rule.surrogate != "separate":
        _check_first_pseudo_value(censored, rule)


def _check_censored_widths(
    feedback: Censored, played: AcquisitionRecipe, rule: MultiplierRule | None, domain: Domain
) -> None:
    """Raise an error unless each width has the numbers that the terms of censoring need."""
    cls, num_constraints = played.acquisition_class, 0 if rule is None else rule.num_constraints
    form = feedback.sum_form
    if cls.played_as in LAGRANGIAN:
        options = cls.complete_options(played.options, None)
        rules = output_rules(cls.__name__, 1 + num_constraints, options)
        bounds = feedback.outcome_bounds(num_constraints)
        for of_output, bound in zip(rules, bounds, strict=True):
            CensoredWidth(of_output, bound, sum_form=form)
        return
    options = cls.complete_options(played.options, domain)
    if options["posterior_transform"] is None:
        arms_rule = cls.arms_rule(options)
        assert isinstance(arms_rule, WidthArmsRule)
        bound = feedback.bound_on_sum(cls.played_as is GPThompsonSampling)
        CensoredWidth(arms_rule.rule, bound, sum_form=form)


def _check_first_pseudo_value(feedback: Censored, rule: MultiplierRule) -> None:
    """Raise an error if the smallest penalized outcome is too large at the first multipliers."""
    assert feedback.minimum is not None
    largest = torch.tensor([[high for _, high in feedback.constraint_bounds or ()]], dtype=DTYPE)
    minimum = torch.tensor([feedback.minimum], dtype=DTYPE)
    try:
        least = float(rule.penalized(minimum, largest, rule.multipliers(rule.init())))
    except MultiplierOverflowError:
        least = -float("inf")
    if abs(least) > LARGEST_OUTCOME:
        raise ValueError(
            f"feedback=Censored(...) has constraint_bounds={feedback.constraint_bounds!r}, which "
            f"{type(rule).__name__} turns into a pseudo-value of {least:.3g} at its first "
            f"multipliers; it must be at least {-LARGEST_OUTCOME:g}. Pass smaller bounds, or a "
            "penalty that grows more slowly."
        )


OWNED = (
    AcquisitionRecipe,
    BanditGPRecipe,
    CandidatesRecipe,
    Feedback,
    Restart,
    MultiplierRule,
    Forgetting,
)
"""The settings that a loop copies, so that later changes to the originals do not affect it."""


@dataclass(frozen=True, eq=False)
class LoopSettings:
    """The settings of a loop; suggestions depend only on them and the history.

    They are checked when the object is created, and the settings in :data:`OWNED` are copied. A
    storage has each field under its name.

    Attributes:
        domain: The domain of the points.
        model: The model's recipe, the recipes of epochs, or the user's function; None for random
            search. With a known minimum of censored feedback, the minimum is the prior mean of a
            recipe.
        acquisition: The acquisition; a name in :data:`OBJECTIVES` becomes a recipe.
        horizon: The number of rounds, if it is known.
        feedback: How queries without an outcome are treated.
        restart: When the loop starts over, if ever.
        constraints: How multipliers follow from constraint values, if there are constraints.
        forgetting: How the model treats old outcomes; None keeps all of them.
        num_initial: Rounds at the start, and after each reset, that choose uniformly at random.
        context_dim: The dimension of the contexts.
        seed: The seed of everything that is drawn at random.
        maximize: Whether large rewards are sought; if False, least costs.
        repeats: The factor by which the bound on regret may grow for points that are played several
            times; None if every round makes a choice.

    Raises:
        TypeError: If a setting has the wrong type.
        ValueError: If a setting is infeasible, or two of them cannot be combined.
    """

    domain: Domain
    model: BanditGPRecipe | ModelFactory | None
    acquisition: AcquisitionRecipe | RandomSearch | AcquisitionFactory | str
    horizon: int | None = None
    feedback: Feedback = field(default_factory=Hallucinated)
    restart: Restart | None = None
    constraints: MultiplierRule | None = None
    forgetting: Forgetting | None = None
    num_initial: int = 0
    context_dim: int = 0
    seed: int = 0
    maximize: bool = True
    repeats: float | None = None

    def __post_init__(self) -> None:
        """Check the settings one by one, then together, and take copies."""
        for name, (kind, remedy) in KINDS.items():
            if (given := vars(self)[name]) is not None:
                check_instance(name, given, kind, remedy)
        if isinstance(self.acquisition, str):
            store_checked(self, acquisition=default_acquisition(self))
        if self.models_of_epochs:
            self._check_epochs(self.models_of_epochs)
            return
        domain, acquisition = self.domain, self.acquisition
        if not isinstance(domain, Domain):
            raise TypeError(
                "domain must be a Box or Arms, a Space (named parameters: Space({'C': Float(0.1, "
                "10.0)})), or a subclass of Domain of your own, got "
                f"{type(domain).__name__}."
            )
        check_integer("domain.dim", domain.dim, minimum=1)
        context_dim = check_integer("context_dim", self.context_dim, minimum=0)
        check_acquisition(acquisition, domain)
        if context_dim and self.played is not None:
            # the dimension in the options is compared with the model's in every round
            there = domain.in_context(torch.zeros(context_dim, dtype=DTYPE))
            self.played.acquisition_class.check_options(self.played.options, there)
        store_checked(self, model=check_loop_model(self.model, domain, not self.is_random))
        minimum = None if self.feedback.censored is None else self.feedback.censored.minimum
        if minimum is not None and self.recipe is not None:
            store_checked(self, model=replace(self.recipe, prior_mean=float(minimum)))
        is_searched = isinstance(domain, Box)
        for prior in self.priors:
            if is_searched:
                check_range_on_box(prior.kernel, prior.prior_mean)
            _check_columns(prior, domain, context_dim)
        for prior in self.priors[:1]:  # priors on a list have the same input transform
            _warn_if_not_encoded(domain, prior)
        check_instance("maximize", self.maximize, bool, "Pass True or False.")
        if self.repeats is not None:
            store_checked(self, repeats=check_factor("repeats", self.repeats))
        check_pairs(self)
        _check_values(self)
        store_checked(
            self,
            horizon=None if self.horizon is None else check_integer("horizon", self.horizon, 1),
            num_initial=check_integer("num_initial", self.num_initial, minimum=0),
            context_dim=context_dim,
            seed=check_integer("seed", self.seed, minimum=0),
        )
        store_checked(self, **{name: _own(name, value) for name, value in vars(self).items()})

    @property
    def recipe(self) -> BanditGPRecipe | None:
        """The model, if it is one prior; None otherwise."""
        return self.model if isinstance(self.model, BanditGPRecipe) else None

    @property
    def listed(self) -> CandidatesRecipe | None:
        """The model, if it is a list of priors; None otherwise."""
        return self.model if isinstance(self.model, CandidatesRecipe) else None

    @property
    def learned(self) -> FittedSingleTaskGP | None:
        """The model, if it is this package's that learns from the data; None otherwise."""
        return self.model if isinstance(self.model, FittedSingleTaskGP) else None

    @property
    def priors(self) -> tuple[BanditGPRecipe, ...]:
        """The priors of the model; none if a function makes it."""
        return _priors_of(self.model)

    @property
    def has_fixed_noise(self) -> bool:
        """Whether the model is one prior whose kernel and noise variance are known."""
        return self.recipe is not None and self.recipe.refit_every is None

    @property
    def fits(self) -> bool:
        """Whether hyperparameters are fitted to the outcomes, as far as is known."""
        return not self.priors or any(prior.refit_every is not None for prior in self.priors)

    @property
    def noise(self) -> float:
        """The noise variance of one observation; 1 if no other one can be told."""
        return self.priors[0].noise if self.priors else 1.0

    @property
    def played(self) -> AcquisitionRecipe | None:
        """The acquisition, if it is a recipe; None otherwise."""
        return self.acquisition if isinstance(self.acquisition, AcquisitionRecipe) else None

    @property
    def played_class(self) -> type[BanditAcquisition] | None:
        """The class of the acquisition, if it is a recipe; None otherwise."""
        return None if self.played is None else self.played.acquisition_class

    @property
    def played_as(self) -> type[Any] | None:
        """The class whose rule it plays, if it is a recipe of a known one; None otherwise."""
        return None if self.played_class is None else self.played_class.played_as

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the acquisition as given; none unless it is a recipe."""
        return {} if self.played is None else self.played.options

    @property
    def complete_options(self) -> dict[str, Any]:
        """The options of the acquisition, as given or by default; none unless it is a recipe."""
        known = self.played_class
        return {} if known is None else {**default_options(known), **self.options}

    @property
    def is_random(self) -> bool:
        """Whether points are drawn without a model."""
        return isinstance(self.acquisition, RandomSearch)

    @property
    def evidence(self) -> EvidenceRestart | None:
        """The restart rule, if it weighs all outcomes; None otherwise."""
        return self.restart if isinstance(self.restart, EvidenceRestart) else None

    @property
    def detection(self) -> ChangePointRestart | None:
        """The restart rule, if it tests uniform draws; None otherwise."""
        return self.restart if isinstance(self.restart, ChangePointRestart) else None

    @property
    def outcomes_are_alike(self) -> bool:
        """Whether outcomes that count do so alike, however old they are."""
        return self.forgetting is None or self.forgetting.window is not None

    @property
    def restarts(self) -> bool:
        """Whether the loop may start over."""
        return self.restart is not None and self.restart.starts_over

    @property
    def window(self) -> int | None:
        """The number of the last rounds whose outcomes count; None if all do."""
        return None if self.forgetting is None else self.forgetting.window

    @property
    def drift_rate(self) -> float | None:
        """The rate at which the reward drifts; None if it does not."""
        return None if self.forgetting is None else self.forgetting.drift_rate

    @property
    def models_of_epochs(self) -> tuple[BanditGPRecipe, ...]:
        """The recipes of the epochs; empty if one model serves all of them."""
        return () if self.constraints is None else tuple(self.constraints.models)

    def _check_epochs(self, models: Sequence[BanditGPRecipe]) -> None:
        """Check the settings of each epoch, and take copies."""
        if self.model is not None and self.model != models[0]:
            raise ValueError(
                f"model is {self.model!r:.200}, but constraints has models=, a model for each "
                "epoch. Leave out one of the two."
            )
        if self.evidence is not None:
            raise ValueError(
                "restart=EvidenceRestart(...) weighs outcomes of several epochs under one model, "
                "but constraints has models=, several of them. Use ChangePointRestart(...), or "
                "one BanditGP.with_kernel(...)."
            )
        first, *_ = [self.in_epoch(epoch) for epoch in range(1, len(models) + 1)]
        own = {**vars(first), "constraints": _own("constraints", self.constraints)}
        store_checked(self, **own)

    def in_epoch(self, epoch: int = 1) -> LoopSettings:
        """Return the settings with the model of an epoch; unchanged if one model serves all epochs.

        Args:
            epoch: The number of the epoch in its segment, from 1.
        """
        models, rule = self.models_of_epochs, self.constraints
        if rule is None or not models:
            return self
        model = models[min(epoch, len(models)) - 1]
        return replace(self, model=model, constraints=rule.of_one_model())

    @property
    def default_search(self) -> str | None:
        """What a default search is for, ``"best"`` or ``"earned"``; None for other loops.

        It is a loop in which the default model serves a default acquisition function, and only one
        function is to be learned; see :mod:`botorch_bandits.default_search`.
        """
        others = (self.restart, self.constraints, self.forgetting)
        is_plain = not self.context_dim and all(other is None for other in others)
        # a subclass may treat outcomes differently; censored ones have another acquisition
        if not is_plain or type(self.model) is not FittedSingleTaskGP:
            return None
        if self.acquisition == SEARCH:
            return "best"
        return "earned" if self.acquisition == EARNING else None

    @property
    def noise_and_range(self) -> tuple[float | None, float | None]:
        """The bounds on noise and on the range of outcomes that are stated in their units."""
        noise_bound, censored = self.options.get("noise_bound"), self.feedback.censored
        if censored is None or self.options.get("units") == "prior":
            return None, None
        return noise_bound if is_number(noise_bound) else None, censored.outcome_bound

    @property
    def num_constraints(self) -> int:
        """How many constraint values come with each reward."""
        return 0 if self.constraints is None else self.constraints.num_constraints

    @property
    def history_sizes(self) -> tuple[int, int, int, bool]:
        """The arguments of the loop's :class:`.History`."""
        return self.domain.dim, self.context_dim, self.num_constraints, self.maximize


def _priors_of(model: Any) -> tuple[BanditGPRecipe, ...]:
    """Return the priors of a model that is made of recipes; none for a user's function."""
    if isinstance(model, CandidatesRecipe):
        return model.candidates
    return (model,) if isinstance(model, BanditGPRecipe) else ()


def _check_columns(prior: BanditGPRecipe, domain: Domain, context_dim: int) -> None:
    """Raise an error unless a recipe's kernel fits the columns of contexts and points."""
    num_columns, transform = context_dim + domain.dim, prior.input_transform
    if transform is not None:
        if learns_input_scale(transform):
            return  # it needs rows to be built
        point = domain.sample(1, torch.Generator().manual_seed(0))
        context = point.new_zeros(1, context_dim)
        try:
            with torch.no_grad():
                rows = copy.deepcopy(transform).eval()(torch.cat([context, point], dim=-1))
        except Exception:  # a user's class may need something else: the model reports it
            return
        num_columns = rows.shape[-1]
    check_kernel_columns(prior.kernel, num_columns)


def _warn_if_not_encoded(domain: Domain, model: BanditGPRecipe) -> None:
    """Warn if a model treats a category's position in the list as a number."""
    unordered = [domain.names[i] for i in domain.unordered_dims]
    if unordered and model.input_transform is None:
        warnings.warn(
            f"the model treats the position of a value of {unordered[0]!r} in its list as a "
            "number, as if neighboring values were similar. Build it with "
            "input_transform=space.input_transform() and a kernel with "
            "ard_num_dims=space.num_columns, or give the category ordered=True.",
            UserWarning,
            stacklevel=level_of_users_line(),
        )


def _own(name: str, setting: Any) -> Any:
    """Return a copy of a recipe or a rule, which its user cannot change; functions are kept.

    Raises:
        TypeError: If it cannot be copied.
    """
    if not isinstance(setting, OWNED):
        return setting
    try:
        return copy.deepcopy(setting)
    except Exception as error:
        raise TypeError(
            f"{name} is {setting!r}, which cannot be copied ({error}), but a loop keeps a copy of "
            "its own. Build it from plain values, detached tensors and functions."
        ) from error


# --- What a loop takes as its acquisition: a recipe, random search, or a user's function ----------
#
# Classes and built acquisition functions are refused with what to pass instead of them.


def check_acquisition(acquisition: Any, domain: Domain) -> Any:
    """Return the acquisition of a loop if it is one, and feasible on the domain."""
    if isinstance(acquisition, AcquisitionRecipe):
        acquisition.acquisition_class.check_options(acquisition.options, domain)
    elif isinstance(acquisition, type):
        _refuse_class(acquisition)
    elif isinstance(acquisition, AcquisitionFunction):
        raise TypeError(
            f"acquisition is a built {type(acquisition).__name__}, but the loop builds a fresh one "
            f"each round. Pass {type(acquisition).__name__}.with_options(...), or a callable "
            "(model, X_pending, best) -> acquisition function."
        )
    elif not isinstance(acquisition, RandomSearch) and not callable(acquisition):
        raise TypeError(
            "acquisition must be a recipe (Class.with_options(...)), RandomSearch() or a callable "
            f"(model, X_pending, best) -> acquisition function, got {acquisition!r}."
        )
    return acquisition


def model_of(acquisition: AcquisitionFunction) -> Any:
    """Return the model of an acquisition function without pending points; None if it has none."""
    own = getattr(acquisition, "base_model", None)
    return getattr(acquisition, "model", None) if own is None else own


def _refuse_class(given: type) -> None:
    """Raise if a class cannot be called with a model, pending points and the best outcome."""
    name = given.__name__
    if issubclass(given, BanditAcquisition):
        raise TypeError(f"acquisition is the class {name}; pass {name}.with_options(...).")
    if issubclass(given, AcquisitionFunction) and given.__module__.startswith("botorch."):
        raise TypeError(
            f"acquisition is BoTorch's class {name}, which the loop would call with the model, the "
            "pending points and the best outcome. Pass a function that builds it, "
            f"lambda model, X_pending, best: {name}(model, ...), or a class of botorch_bandits, "
            "such as GPUpperConfidenceBound.with_options(beta=4.0), which takes the pending points "
            "into account."
        )


# --- The recipe of a model that forgets: with a time-varying kernel, the round is a further input -
#
# Windows and weights change the rows of a view instead. The settings, with their sources, are in
# :mod:`botorch_bandits.loop.view`.


class BehindTime(InputTransform, torch.nn.Module):
    """Applies an input transform to all columns but the first, which is the time.

    Args:
        transform: The transform, which is copied. It must not learn from the data.
    """

    def __init__(self, transform: InputTransform) -> None:
        """See the class."""
        super().__init__()
        self.inner = copy.deepcopy(transform)
        self.transform_on_train = transform.transform_on_train
        self.transform_on_eval = transform.transform_on_eval
        self.transform_on_fantasize = transform.transform_on_fantasize
        self.is_one_to_many = transform.is_one_to_many

    def transform(self, X: Tensor) -> Tensor:
        """Transform ``... x n x (1 + d)`` inputs."""
        return torch.cat([X[..., :1], self.inner.transform(X[..., 1:])], dim=-1)


def forgetful_recipe(recipe: BanditGPRecipe, forgetting: Forgetting) -> BanditGPRecipe:
    """Return the recipe of models that forget: of ``(round, x)`` with a time-varying kernel.

    Args:
        recipe: The kernel and noise, with fixed hyperparameters.
        forgetting: How old outcomes are forgotten.

    Raises:
        ValueError: If hyperparameters are to be learned, or an input transform learns its scale.
    """
    transform = recipe.input_transform
    if recipe.refit_every is not None or learns_input_scale(transform):
        raise ValueError(
            "forgetting needs fixed hyperparameters, but the model has "
            f"refit_every={recipe.refit_every} or an input transform that learns its scale. "
            "Fix both, and state the bounds of Normalize."
        )
    if forgetting.drift_rate is None:
        return recipe
    return replace(
        recipe,
        kernel=TimeDecayKernel(recipe.kernel, forgetting.drift_rate),
        input_transform=None if transform is None else BehindTime(transform),
    )


# --- Outcomes that are means of several, or have their own noise: what a loop can do with them ----
#
# An outcome of weight ``w``, told with ``count=w`` or with ``noise=`` a ``w``-th of the modeled
# noise variance ``lam``, is a row with the noise variance ``lam / w``. If a part of the loop
# treats each outcome as one observation, :func:`check_weighted` refuses it before anything is
# recorded.


def check_weighted(settings: LoopSettings, outcome: Outcome, others: Sequence[Outcome]) -> None:
    """Raise an error unless the loop can take in an outcome with the noise that it has.

    Args:
        settings: The settings of the loop.
        outcome: The outcome, which is about to be recorded.
        others: Those on record.

    Raises:
        ValueError: If it cannot, with the reason and what to do.
    """
    has_noise = outcome.noise is not None
    given = f"noise is {outcome.noise:g}" if has_noise else f"count is {outcome.count}"
    is_learned = settings.learned is not None
    if is_learned and any((other.noise is not None) != has_noise for other in others[:1]):
        raise ValueError(
            f"noise is {outcome.noise}, but the outcomes before have "
            f"{'none' if has_noise else 'one each'}. The default model learns one factor of all "
            "noise variances that are told, or the noise variance of all observations. Tell "
            "noise= with every outcome or with none, or pass BanditGP.with_kernel(...)."
        )
    if not outcome.is_weighted or settings.is_random:
        return
    reason = reason_of_one(settings)
    models = settings.model, None if settings.evidence is None else settings.evidence.candidates
    if reason is None and has_noise:
        reason = next(filter(None, map(_reason_against_noise, filter(None, models))), None)
    if reason is not None:
        raise ValueError(f"{given}, but {reason}.")
    for prior in _priors_of_tests(settings):
        smallest = SMALLEST_RATIO * float(output_scale_of(prior.kernel).max())
        level = prior.noise / outcome.weight(prior.noise)
        if level <= smallest:
            raise ValueError(
                f"{given}, which makes the noise variance of the row {level:.3g}; it must be above "
                f"{smallest:.3g}, {SMALLEST_RATIO:g} times the kernel's output scale, or float64 "
                "cannot factorize the kernel matrix. Tell a smaller count or a larger noise: below "
                "that nothing changes."
            )


def _reason_against_noise(model: Any) -> str | None:
    """Return why a noise variance cannot be compared with that of a model; None if it can."""
    noises = {prior.noise for prior in _priors_of(model)}
    if len(noises) == 1 or isinstance(model, FittedSingleTaskGP):
        return None
    return (
        "the priors on the list have different noise variances, so that it has no single ratio to "
        "them. Give all of them the same noise=, or tell a mean with count="
    )


# --- A loop that minimizes: the one place where outcomes, settings and answers change their sign --
#
# History and storage have the user's own numbers. Models, widths, tests and multipliers see minus
# these numbers, so that all other modules maximize and do not know about it: the choices are
# those of a loop that maximizes and is told the negatives. Constraint values keep their sign. A
# number x becomes 0 - x, so that 0 stays 0.


def settings_in_epoch(settings: LoopSettings, epoch: int = 1) -> LoopSettings:
    """Return the settings of an epoch, for outcomes in the sign of the model.

    Args:
        settings: The settings as the user gave them.
        epoch: The number of the epoch in its segment, from 1.
    """
    settings = settings.in_epoch(epoch)
    return settings if settings.maximize else settings_of_model(settings)


def settings_of_model(settings: LoopSettings) -> LoopSettings:
    """Return settings for outcomes of the opposite sign: everything stated about a cost is negated.

    These are the prior mean (of a family, too), the ``minimum`` of censored feedback and
    ``best_f``.

    Args:
        settings: The settings of a loop that minimizes, checked by :func:`check_minimizing`.
    """
    changed: dict[str, Any] = {"maximize": True}
    censored = settings.feedback.censored
    detection, evidence = settings.detection, settings.evidence
    if settings.recipe is not None:
        changed["model"] = _with_turned_mean(settings.recipe)
    if settings.listed is not None:
        changed["model"] = settings.listed.flipped()
    if settings.played is not None and settings.options.get("best_f") is not None:
        options = {**settings.options, "best_f": 0.0 - settings.options["best_f"]}
        changed["acquisition"] = AcquisitionRecipe(settings.played.acquisition_class, options)
    if censored is not None and censored.minimum is not None:
        changed["feedback"] = replace(censored, minimum=0.0 - censored.minimum)
    if detection is not None:
        changed["restart"] = replace(detection, detector=_with_turned_mean(detection.detector))
    if evidence is not None and evidence.candidates is not None:
        changed["restart"] = replace(evidence, candidates=evidence.candidates.flipped())
    told = copy.copy(settings)
    store_checked(told, **changed)
    return told


def _with_turned_mean(settings: Any) -> Any:
    mean = settings.prior_mean
    return replace(settings, prior_mean=0.0 - mean) if mean else settings


def turned_check(check: ModelCheck) -> ModelCheck:
    """Return a check of a model of minus the outcomes as a check of a model of the outcomes.

    Args:
        check: The check, which is not changed.
    """
    return replace(check, one_step=0.0 - check.one_step, left_out=0.0 - check.left_out)


# --- Settings of a loop that do not go together, as one table: when, and why not ------------------
# :func:`check_pairs` goes through :data:`REFUSED` when a loop is built, and :func:`reason_of_one`
# through :data:`WEIGHS_ALIKE` when an outcome comes with a count or its own noise. What is wrong
# with a single setting is checked where the setting is.


CENSORABLE = (
    ImprovedUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    AMMUpperConfidenceBound,
    RandomizedUpperConfidenceBound,
)
"""Acquisitions with a width to which censored feedback can add its terms."""

LAGRANGIAN = (LagrangianUpperConfidenceBound, LagrangianThompsonSampling)
"""Acquisitions that weigh constraints themselves, with a width for each of separate models."""

OF_LISTS = (CandidatesUpperConfidenceBound, CandidatesThompsonSampling)
"""Acquisitions that use the evidence for the priors of a list."""

NO_EVIDENCE = (
    "pseudo-values are no evidence for a prior, and the reward times the share of outcomes that "
    "arrive, which a censored model learns, is not a draw of a prior on the list"
)
"""Why lists of priors cannot be combined with censored feedback."""


@dataclass(frozen=True)
class Refusal:
    """Settings that do not go together.

    Attributes:
        when: Whether it concerns some settings.
        because: The reason and the remedy; fields in braces are the settings, ``s``, and what
            :func:`_words` says of them.
        error: The kind of error.
    """

    when: Callable[[LoopSettings], Any]
    because: str
    error: type[Exception] = ValueError


def check_pairs(settings: LoopSettings) -> None:
    """Raise the error of the first refusal that concerns some settings.

    Args:
        settings: The settings, each of which is checked already.

    Raises:
        TypeError: If a list of priors is needed, and the model is not one.
        ValueError: If two of them do not go together.
    """
    for refusal in REFUSED:
        if refusal.when(settings):
            raise refusal.error(refusal.because.format(**_words(settings)))


def reason_of_one(settings: LoopSettings) -> str | None:
    """Return why a loop takes each outcome as one observation; None if outcomes may have weights.

    Args:
        settings: The settings of the loop.
    """
    for refusal in WEIGHS_ALIKE:
        if refusal.when(settings):
            return refusal.because.format(**_words(settings))
    return None


def _words(settings: LoopSettings) -> dict[str, Any]:
    """Return what messages say of settings, by name."""
    censored = settings.feedback.censored
    means = [prior.prior_mean for prior in _priors_of_tests(settings) if prior.prior_mean]
    built = [p.prior_mean for p in _priors_of_tests(settings) if _is_built(p) and p.prior_mean]
    pairs = None if censored is None else censored.constraint_bounds
    known = 0 if pairs is None else len(pairs)
    of_model = "your own function"
    if settings.listed is not None:
        of_model = "a list of priors"
    elif settings.learned is not None:
        of_model = "FittedSingleTaskGP, the default model, which learns from the data"
    return {
        "s": settings,
        "acquisition": name_of(settings.played_class or settings.acquisition),
        "censorable": ", ".join(each.__name__ for each in CENSORABLE),
        "constraints": type(settings.constraints).__name__,
        "feedback": type(settings.feedback).__name__,
        "restart": type(settings.restart).__name__,
        "model": type(settings.model).__name__,
        "of_model": of_model,
        "pairs": f"constraint_bounds= for {known}" if known else "no constraint_bounds=",
        "lowers": "on_lower='lower'"
        if censored and censored.minimum is not None
        else "minimum_proxy=",
        "mean": next(iter(means), 0.0),
        "built_mean": next(iter(built), 0.0),
    }


# --- conditions -----------------------------------------------------------------------------------


def _has(name: str) -> Callable[[LoopSettings], bool]:
    """Return whether an option of the acquisition is given."""
    return lambda s: s.options.get(name) is not None


def _is_censored(settings: LoopSettings) -> bool:
    return settings.feedback.censored is not None and not settings.is_random


def _is_a(*classes: type[Any]) -> Callable[[LoopSettings], bool]:
    return lambda s: s.played_class is not None and issubclass(s.played_class, classes)


def _is_separate(settings: LoopSettings) -> bool:
    return settings.constraints is not None and settings.constraints.surrogate == "separate"


def _is_penalized(settings: LoopSettings) -> bool:
    return settings.constraints is not None and not _is_separate(settings)


def _is_lagrangian(settings: LoopSettings) -> bool:
    """Whether it is one of :data:`LAGRANGIAN`, or a subclass that changes nothing."""
    return settings.played_as in LAGRANGIAN


def _weighs_constraints(settings: LoopSettings) -> bool:
    """Whether the acquisition needs the multipliers of a rule in ``constraints=``."""
    is_own = _is_a(*LAGRANGIAN)(settings)
    gives_none = settings.complete_options.get("multipliers", ()) is None
    return _is_lagrangian(settings) or (is_own and gives_none)


def _cannot_add_noise(settings: LoopSettings) -> bool:
    """Whether the width has no place for the noise that predictive deviations include."""
    censored, kind = settings.feedback.censored, settings.played_as
    if censored is None or not censored.predictive:
        return False
    draws = kind is GPThompsonSampling
    is_published = kind not in LAGRANGIAN and (not draws or censored.sum_form == "published")
    return not is_published or kind is RandomizedUpperConfidenceBound


def _needs_pairs(settings: LoopSettings) -> bool:
    """Whether each output lacks the terms that its width needs if constraints are censored."""
    censored, rule = settings.feedback.censored, settings.constraints
    if censored is None or rule is None:
        return False
    known = None if censored.constraint_bounds is None else len(censored.constraint_bounds)
    if _is_separate(settings):
        is_needed = known is not None or censored.outcome_bound is not None
        return _is_lagrangian(settings) and known != rule.num_constraints and is_needed
    return known != rule.num_constraints


def _priors_of_tests(settings: LoopSettings) -> tuple[Any, ...]:
    tests = settings.evidence
    listed = None if tests is None else tests.candidates
    return (*settings.priors, *(() if listed is None else getattr(listed, "candidates", ())))


def _is_built(prior: Any) -> bool:
    return not isinstance(prior, BanditGPRecipe)


def _shares_prior_mean(settings: LoopSettings) -> bool:
    """Whether the cost and the constraints have one prior mean, which is not 0."""
    tests, is_separate = settings.evidence, _is_separate(settings)
    shared = is_separate or (settings.constraints is not None and tests is not None)
    if is_separate and settings.feedback.censored is not None:  # 0 for constraints
        shared = tests is not None and tests.candidates is not None
    return shared and any(prior.prior_mean for prior in _priors_of_tests(settings))


def _lacks_fixed_noise(settings: LoopSettings) -> bool:
    is_list = settings.listed is not None or isinstance(settings.model, DefaultCandidates)
    return not (is_list or settings.has_fixed_noise)


# --- the tables -----------------------------------------------------------------------------------

REFUSED: tuple[Refusal, ...] = (
    # pending queries, each of which is known to have the posterior mean
    Refusal(
        lambda s: not s.feedback.hallucinates and "pending" in s.options,
        "the acquisition has pending={s.options[pending]!r}, but with feedback={feedback} it never "
        "sees pending points. Leave pending= out.",
    ),
    # censored feedback, which adds terms to the width of one reward function
    Refusal(
        lambda s: (
            _is_censored(s) and _is_a(CensoredUpperConfidenceBound, CensoredThompsonSampling)(s)
        ),
        "feedback=Censored(...) with {acquisition}, which censors pending points itself, would "
        "censor them twice. Use one of {censorable}, or feedback=Hallucinated().",
    ),
    Refusal(
        lambda s: _is_censored(s) and _is_a(*OF_LISTS)(s),
        f"feedback=Censored(...) does not go with {{acquisition}}: {NO_EVIDENCE}. Use "
        "Hallucinated() or Ignored(), or one prior.",
    ),
    Refusal(
        lambda s: _is_censored(s) and s.played_as not in (*CENSORABLE, *LAGRANGIAN),
        "feedback=Censored(...) has no width for the acquisition {acquisition}, to which it could "
        "add its terms. Use one of {censorable}, or feedback=Hallucinated().",
    ),
    Refusal(
        lambda s: _is_censored(s) and s.options.get("maximize") is False,
        "{acquisition} has maximize=False, but feedback=Censored(...) is for rewards: the minimum "
        "must be the worst outcome. Pass maximize=False to the loop in its place.",
    ),
    Refusal(
        lambda s: _is_censored(s) and s.options.get("variation"),
        "feedback=Censored(...) does not go with variation={s.options[variation]:g}: the theorem "
        "on censored outcomes is for one reward function. Leave variation= out, or use "
        "Hallucinated() or Ignored().",
    ),
    Refusal(
        lambda s: _is_censored(s) and _cannot_add_noise(s),
        "predictive=True is for upper confidence bounds as published, not for {acquisition}. Leave "
        "it out.",
    ),
    Refusal(
        lambda s: (
            (censored := s.feedback.censored) is not None
            and censored.fills_in
            and s.options.get("units") == "prior"
        ),
        "fill={s.feedback.fill!r} needs outcome_bound= in the units of outcomes, but {acquisition} "
        "has units='prior', which makes it a multiple of the prior standard deviation. State all "
        'bounds in the units of outcomes, or use fill="minimum".',
    ),
    # lists of priors, which are weighed by what was observed
    Refusal(
        lambda s: _is_a(*OF_LISTS)(s) and (s.recipe is not None or s.learned is not None),
        "acquisition is {s.played!r}, which needs a list of priors, but model is a {model}. Pass "
        "BanditGP.with_candidates([...]).",
        TypeError,
    ),
    Refusal(
        lambda s: s.listed is not None and s.feedback.censored is not None,
        f"feedback=Censored(...) does not go with BanditGP.with_candidates(...): {NO_EVIDENCE}. "
        "Use Hallucinated() or Ignored().",
    ),
    Refusal(
        lambda s: s.listed is not None and s.constraints is not None,
        "constraints={constraints}(...) does not go with BanditGP.with_candidates(...): penalized "
        "outcomes change with the multipliers, and with them what they say about the priors. Use "
        "BanditGP.with_kernel(...).",
    ),
    # constraints: either the outcomes are penalized, or the acquisition penalizes
    Refusal(
        lambda s: (
            s.constraints is None and s.feedback.censored and s.feedback.censored.constraint_bounds
        ),
        "feedback=Censored(...) has constraint_bounds=, but the loop has no constraints. Leave "
        "them out, or pass constraints=.",
    ),
    Refusal(
        lambda s: s.constraints is None and _weighs_constraints(s),
        "the acquisition weighs constraints, but the loop has none. Pass constraints=, for example "
        "AdditiveEpochs(..., surrogate='separate').",
    ),
    Refusal(
        lambda s: (
            (censored := s.feedback.censored) is not None
            and _is_penalized(s)
            and (censored.minimum is None or censored.on_lower == "lower")
        ),
        "feedback=Censored(...) has {lowers}, which does not go with constraints=: the smallest "
        "penalized outcome follows from a known minimum of the reward. Pass minimum= with "
        "on_lower='error', or use feedback=Hallucinated(), the default.",
    ),
    Refusal(
        lambda s: _is_penalized(s) and _needs_pairs(s),
        "feedback=Censored(...) has {pairs}, but there are {s.num_constraints} constraints: "
        "without the largest value of each, the smallest penalized outcome is not known. Pass "
        "constraint_bounds=((least, largest), ...), or feedback=Hallucinated(), the default.",
    ),
    Refusal(
        lambda s: _is_separate(s) and _needs_pairs(s),
        "feedback=Censored(...) has {pairs}, but there are {s.num_constraints} constraints: the "
        "width of each grows with the distance of its values from 0, as the reward's does with "
        "outcome_bound. Pass constraint_bounds=((least, largest), ...), or feedback="
        "Hallucinated(), the default.",
    ),
    Refusal(
        lambda s: (
            _is_separate(s)
            and _is_lagrangian(s)
            and s.feedback.censored
            and _has("posterior_transform")(s)
        ),
        "{acquisition} has posterior_transform=, which does not go with feedback=Censored(...): "
        "pseudo-values and their bounds are for reward and constraints as they are told. Tell them "
        "as they are to be modeled, and leave it out.",
    ),
    Refusal(
        lambda s: _is_penalized(s) and isinstance(s.options.get("noise_bound"), str),
        "noise_bound is {s.options[noise_bound]!r}, but constraints={constraints}(...) models the "
        "penalized outcome, whose noise grows with the multipliers. Pass a number, in the units of "
        "the outcomes, or use surrogate='separate'.",
    ),
    Refusal(
        lambda s: s.constraints is not None and _is_lagrangian(s) and _has("multipliers")(s),
        "the acquisition has multipliers={s.options[multipliers]!r}, but in a loop the rule in "
        "constraints= gives them. Leave them out.",
    ),
    Refusal(
        lambda s: (
            s.constraints is not None
            and _is_lagrangian(s)
            and s.options.get("maximize") not in (None, True)
        ),
        "the acquisition has maximize={s.options[maximize]!r}, but in a loop values are maximized. "
        "Leave it out, or pass maximize=False to the loop.",
    ),
    Refusal(
        lambda s: _is_separate(s) and not s.is_random and not _is_lagrangian(s),
        "constraints={constraints}(...) models reward and constraints separately, so the "
        "acquisition must weigh them: use LagrangianUpperConfidenceBound.with_options(...) or "
        "LagrangianThompsonSampling.with_options(...), or surrogate='relabeled'.",
    ),
    Refusal(
        lambda s: _is_penalized(s) and _weighs_constraints(s),
        "constraints={constraints}(...) models the penalized outcome, which the acquisition must "
        "not penalize again: use surrogate='separate', or an acquisition such as "
        "ImprovedUpperConfidenceBound.",
    ),
    # minus a cost: what refers to outcomes as the model has them would change its meaning
    Refusal(
        lambda s: not s.maximize and _has("maximize")(s),
        "the acquisition has maximize={s.options[maximize]}, and the loop maximize=False, which "
        "flips the sign of the outcomes themselves. Leave maximize= out of the acquisition.",
    ),
    Refusal(
        lambda s: not s.maximize and _has("posterior_transform")(s),
        "the acquisition has posterior_transform={s.options[posterior_transform]!r}, which refers "
        "to outcomes as the model has them, and with maximize=False these are minus the told ones. "
        "Tell the transformed cost, and leave it out.",
    ),
    Refusal(
        lambda s: not s.maximize and _has("minimum")(s),
        "the acquisition has minimum={s.options[minimum]!r}, which refers to outcomes as the model "
        "has them, and with maximize=False these are minus the told ones. Pass "
        "feedback=Censored(minimum=...) and an acquisition without minimum=.",
    ),
    Refusal(
        lambda s: (
            not s.maximize and any(_is_built(p) and p.prior_mean for p in _priors_of_tests(s))
        ),
        "a model on the list of priors has the prior mean {built_mean:g}, whose sign "
        "maximize=False cannot flip in a model that is built already. Put "
        "BanditGP.with_kernel(..., prior_mean=...) on the list.",
    ),
    Refusal(
        lambda s: not s.maximize and _shares_prior_mean(s),
        "prior_mean is {mean:g} for the cost and for each constraint, but with maximize=False only "
        "the sign of the cost's would have to be flipped. Subtract that number from the cost and "
        "from the constraints, and leave prior_mean= out.",
    ),
    # forgetting: weights are factors of a known noise, and a drift is one of a known kernel
    Refusal(
        lambda s: s.forgetting is not None and s.model is None,
        "forgetting is {s.forgetting!r}, but random search has no model to forget.",
    ),
    Refusal(
        lambda s: s.forgetting is not None and s.recipe is None and s.forgetting.window is None,
        "forgetting is {s.forgetting!r}, which changes the noise or the kernel, but the model is "
        "{of_model}. Pass BanditGP.with_kernel(...), or use SlidingWindow.",
    ),
    # repeats: how often a point is played follows from one deviation and one noise
    Refusal(
        lambda s: s.repeats is not None and _lacks_fixed_noise(s),
        "repeats is {s.repeats:g}, but the model does not have a fixed kernel and noise variance, "
        "which determine the number of plays. Pass BanditGP.with_kernel(..., noise=...) without "
        "refit_every=, a list of priors (BanditGP.with_candidates([...])), or leave repeats= out.",
    ),
    Refusal(
        lambda s: s.repeats is not None and s.played is None,
        "repeats is {s.repeats:g}, but the acquisition does not say with which standard deviation "
        "a point is chosen. Pass a recipe, such as ImprovedUpperConfidenceBound.with_options(...), "
        "or leave repeats= out.",
    ),
    Refusal(
        lambda s: s.repeats is not None and s.drift_rate is not None,
        "repeats is {s.repeats:g}, but with {s.forgetting!r} the reward of a point drifts while it "
        "is played, so its outcomes say less about it than repeats would. Leave repeats= out.",
    ),
    Refusal(
        lambda s: s.repeats is not None and s.constraints is not None,
        "repeats is {s.repeats:g}, but with constraints= the multipliers change while a point is "
        "played, and it was chosen for the multipliers of one round. Leave repeats= out.",
    ),
)
"""What is refused when a loop is built, by the part that refuses it; the first row counts."""

WEIGHS_ALIKE: tuple[Refusal, ...] = (
    Refusal(
        lambda s: s.feedback.censored is not None,
        "feedback=Censored(...) uses the pseudo-value of one observation for what is pending, and "
        "its width counts it as one. Use Hallucinated() or Ignored()",
    ),
    Refusal(
        lambda s: s.detection is not None,
        "restart={restart}(...) compares outcomes that all have the noise of one observation. If "
        "outcomes have about the same noise, leave count= and noise= out and give it to the model; "
        "otherwise use EvidenceRestart",
    ),
    Refusal(
        lambda s: s.models_of_epochs,
        "constraints has models=, with a different noise variance in each epoch, so the weight of "
        "the outcome in later ones is not known yet. Pass one BanditGP.with_kernel(...) for all, "
        "or tell each outcome by itself",
    ),
    Refusal(
        lambda s: isinstance(s.options.get("information_gain"), GainBound),
        "information_gain= bounds the gain of as many single observations as there are outcomes. "
        "Leave it out: the realized gain accounts for the noise of each row",
    ),
    # a subclass of FittedSingleTaskGP may treat its rows differently
    Refusal(
        lambda s: s.recipe is not None and not s.has_fixed_noise,
        "the model has refit_every={s.recipe.refit_every}, whose fits treat each outcome as one "
        "observation. Use fixed hyperparameters, or tell each outcome by itself",
    ),
    Refusal(
        lambda s: not s.priors and type(s.model) not in (FittedSingleTaskGP, DefaultCandidates),
        "the model is {model}, a function of inputs and outcomes that sees no weights. Pass "
        "BanditGP.with_kernel(...), or tell each outcome by itself",
    ),
)
"""Why a loop takes each outcome as one observation, without a count or a noise of its own."""


# --- What a round may choose from: available arms, fixed coordinates, points to avoid -------------
# :func:`read_restriction` turns the arguments of :meth:`.BanditLoop.ask` into a
# :class:`Restriction`: the set :math:`D_t` of the round as a separate domain. The round maximizes
# over this set the acquisition function that would otherwise be maximized over the whole domain,
# and uniform draws are taken from this set.
#
# On a box, points are avoided within the distance :math:`\rho = 0.01`. With :math:`p` the point
# that is avoided and :math:`s_i` the sides of the box, the condition is
#
# .. math:: \sqrt{\sum_{i \text{ continuous}} \Bigl(\frac{x_i - p_i}{s_i}\Bigr)^2 + \#\{i \text{
# discrete} : x_i \ne p_i\}} < \rho .


AVOIDED_WITHIN = 0.01
"""The least distance of a query from an avoided point, in sides of the box."""


@dataclass(frozen=True, eq=False)
class Restriction:
    """What one round may choose from.

    Attributes:
        record: The restriction in plain values, as in a storage and :attr:`.Query.restriction`.
        part: The set of the round; all arms if :attr:`among` lists some of them.
        among: On arms, the indices of those that may be chosen, in order; otherwise None.
    """

    record: dict[str, Any]
    part: Arms | Box
    among: Tensor | None = None

    @cached_property
    def domain(self) -> Arms | Box:
        """The set of the round; most engines on arms avoid it, because sorting arms is slow."""
        if self.among is None or self.part.choices is None:
            return self.part
        return Arms(self.part.choices[self.among])


def read_restriction(
    settings: LoopSettings, available: Any = None, fixed: Any = None, avoid: Any = None
) -> Restriction | None:
    """Return what a round may choose from; None for the whole domain.

    Args:
        settings: The settings of the loop.
        available: See :meth:`.BanditLoop.ask`.
        fixed: See :meth:`.BanditLoop.ask`.
        avoid: See :meth:`.BanditLoop.ask`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a value is not in the domain, nothing is left to choose from, or the loop
            does not support the restriction.
    """
    fixed = fixed.to_dict() if hasattr(fixed, "to_dict") else fixed
    fixed, avoid = (None if each is None or _is_empty(each) else each for each in (fixed, avoid))
    if available is None and fixed is None and avoid is None:
        return None
    if settings.detection is not None:
        raise ValueError(
            "available=, fixed= and avoid= cannot go with ChangePointRestart, whose test compares "
            "uniform draws from the whole domain. Use EvidenceRestart, which looks at all outcomes "
            "wherever they were chosen."
        )
    domain = settings.domain
    if domain.arms is not None:
        return _restricted_arms(domain.arms, available, fixed, avoid)
    if not isinstance(domain, Box):
        raise ValueError(
            f"{type(domain).__name__} is a domain of your own, which cannot be restricted for a "
            "round. Leave out available=, fixed= and avoid=, or use Arms, a Box or a Space."
        )
    return _restricted_box(domain, available, fixed, avoid)


def recorded_restriction(
    settings: LoopSettings, record: Mapping[str, Any] | None
) -> Restriction | None:
    """Return the restriction of a round that is on record.

    Args:
        settings: The settings of the loop.
        record: :attr:`.Query.restriction`.
    """
    if record is None:
        return None
    fixed = record.get("fixed")
    if fixed is not None and not settings.domain.names:
        fixed = {int(column): value for column, value in fixed.items()}
    among = record.get("arms", record.get("points"))
    return read_restriction(settings, among, fixed, record.get("avoid"))


def points_within(query: Query, domain: Domain) -> Tensor | None:
    """Return the points that a restricted round could choose from, ``n x d``.

    Args:
        query: The query of the round, whose restriction is not None.
        domain: The domain of the loop.

    Returns:
        None if there are not finitely many.
    """
    record = query.restriction or {}
    if (choices := domain.choices) is not None:
        return choices[record["arms"]]
    if "points" not in record:
        return None
    return query.x.new_tensor(record["points"])


def _restricted_arms(domain: Arms, available: Any, fixed: Any, avoid: Any) -> Restriction | None:
    there = np.ones(domain.num_arms, dtype=np.bool_)
    told = []
    if available is not None:
        there[:] = False
        there[_read_arms("available", available, domain)] = True
        told.append("available")
    if fixed is not None:
        for column, value in _read_columns(fixed, domain.dim).items():
            held = (domain.choices[:, column] == value).cpu().numpy()
            if not held.any():
                known = domain.choices[:, column].unique().tolist()
                raise ValueError(
                    f"fixed is {dict(fixed)}, but no arm has {value} in column {column}; there are "
                    f"{', '.join(f'{v:g}' for v in known[:8])}{', ...' if len(known) > 8 else ''}."
                )
            there &= held
        told.append("fixed")
    if avoid is not None:
        there[_read_arms("avoid", avoid, domain)] = False
        told.append("avoid")
    if not there.any():
        raise ValueError(
            f"{', '.join(told)} leave{'s' if len(told) == 1 else ''} none of the "
            f"{domain.num_arms} arms to choose from. Leave some, or do not ask in this round."
        )
    if there.all():
        return None
    among = torch.from_numpy(np.flatnonzero(there)).to(domain.choices.device)
    return Restriction({"arms": among.tolist()}, domain, among)


def _is_empty(given: Any) -> bool:
    try:
        return not isinstance(given, str) and len(given) == 0
    except TypeError:  # it has no length
        return False


def _read_arms(name: str, given: Any, domain: Arms) -> NDArray[np.int64]:
    """Return the numbers of arms that a user names by number, mask or point."""
    remedy = (
        f"pass numbers of arms (0 to {domain.num_arms - 1}), {domain.num_arms} truth values, or "
        "points as rows."
    )
    given = without_labels(given)
    if not is_listed(given):
        raise TypeError(f"{name} is {shown_value(given)}; {remedy}")
    is_plain = not hasattr(given, "ndim")  # neither a tensor nor an array
    if is_plain:
        given = list(given)
        if given and all(isinstance(each, Tensor) and each.dim() == 1 for each in given):
            given = torch.stack(given)  # the points
    check_kept_exactly(name, given)
    array = given.detach().cpu().numpy() if isinstance(given, Tensor) else _as_array(name, given)
    if array.size == 0:
        raise ValueError(f"{name} is empty, so that there is nothing to choose from; {remedy}")
    if array.ndim == 2 and array.dtype != np.bool_:
        rows = array.tolist() if is_plain else given
        points = check_matrix(name, rows, domain.dim, "points as rows")
        return domain.index_of(points, name).cpu().numpy()
    if array.ndim == 1 and array.dtype == np.bool_:
        if len(array) != domain.num_arms:
            raise ValueError(
                f"{name} has {len(array)} truth values, but there are {domain.num_arms} arms; "
                f"{remedy}"
            )
        return np.flatnonzero(array)
    is_mixed = is_plain and any(isinstance(i, bool | np.bool_) for i in given)
    if array.ndim != 1 or array.dtype.kind not in "iu" or is_mixed:
        raise TypeError(
            f"{name} has the shape {array.shape} and the kind {array.dtype.name}; {remedy}"
        )
    outside = array[(array < 0) | (array >= domain.num_arms)]
    if len(outside):
        raise ValueError(f"{name} names arm {outside[0]}, which does not exist; {remedy}")
    return array.astype(np.int64)


def _as_array(name: str, given: Sequence[Any]) -> Any:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise ValueError(f"{name} has rows of different lengths: {error}") from None


def _read_columns(fixed: Any, dim: int) -> dict[int, float]:
    """Return values by column."""
    remedy = f"Pass a dict from columns (0 to {dim - 1}) to values."
    check_instance("fixed", fixed, Mapping, remedy)
    found = {}
    for column, value in fixed.items():
        if isinstance(column, str):
            raise TypeError(
                f"fixed names {column!r}, but the domain has no names; give the number of the "
                f"column, 0 to {dim - 1}, or build the loop on a Space."
            )
        place = check_integer("a column of fixed", column, minimum=0)
        if place >= dim:
            raise ValueError(f"fixed names column {place}; the columns are 0 to {dim - 1}.")
        found[place] = check_number(f"fixed[{place}]", value)
    return found


def _restricted_box(domain: Box, available: Any, fixed: Any, avoid: Any) -> Restriction | None:
    record: dict[str, Any] = {}
    values: dict[int, float] = {}
    if fixed is not None:
        values, record["fixed"] = _read_fixed(fixed, domain)
    away = None
    if avoid is not None:
        points = _read_points("avoid", avoid, domain)
        away = _Away(points, domain.coordinates.sides, tuple(domain.coordinates.grids))
    if available is None and not values and away is None:
        return None  # only dimensions that never vary are fixed
    part: Box | Arms = domain
    if available is not None:
        points = distinct(_read_points("available", available, domain))
        part = Arms(_kept(points, values, "available and fixed leave no point"))
    elif values:
        part = _slice_of(domain, values, record["fixed"])
    elif (few := domain.few_points()) is not None:
        part = few
    if away is not None:
        if isinstance(part, Box):
            part = _Apart(part, away.condition)
            away.check_leaves_points(part)
        else:
            part = Arms(away.kept(part.choices))
    if available is not None and part.choices is not None:
        return Restriction({"points": part.choices.tolist()}, part)
    if away is not None:
        record["avoid"] = away.points.tolist()
    return Restriction(record, part)


def distinct(points: Tensor) -> Tensor:
    """Return rows without repeats, in their order."""
    return points.new_tensor([list(row) for row in dict.fromkeys(map(tuple, points.tolist()))])


def _kept(points: Tensor, values: Mapping[int, float], problem: str) -> Tensor:
    """Return the rows with given values in some columns."""
    kept = points
    if values:
        held = points[:, list(values)] == points.new_tensor(list(values.values()))
        kept = points[held.all(-1)]
    if len(kept) == 0:
        raise ValueError(f"{problem}. Leave some, or do not ask in this round.")
    return kept


def _read_points(name: str, given: Any, domain: Box) -> Tensor:
    """Return points of a box as rows, each checked."""
    given = without_labels(given, by_name=bool(domain.names))
    if not is_listed(given):
        raise TypeError(f"{name} is {shown_value(given)}; pass points of the domain in a list.")
    rows = list(check_matrix(name, given, domain.dim) if hasattr(given, "ndim") else given)
    if not rows:
        raise ValueError(f"{name} is empty, so that there is nothing to choose from. Leave it out.")
    return torch.stack([domain.check_point(f"{name}[{i}]", row) for i, row in enumerate(rows)])


def _read_fixed(fixed: Any, domain: Box) -> tuple[dict[int, float], dict[str, Any]]:
    """Return the values by column, and the record of them."""
    if not domain.names:
        values = _read_columns(fixed, domain.dim)
        for column, value in values.items():
            low, high = domain.bounds[:, column].tolist()
            if not low <= value <= high:
                raise ValueError(
                    f"fixed[{column}] is {value}, outside [{low}, {high}]. Fix a value inside, or "
                    "widen the box."
                )
            if column in domain.integer_dims and value != round(value):
                raise ValueError(f"fixed[{column}] is {value}; this dimension takes whole numbers.")
        return values, {str(column): value for column, value in values.items()}
    check_instance("fixed", fixed, Mapping, "Pass a dict from names to values.")
    known = domain.parameters
    values, told = {}, {}
    for name, value in fixed.items():
        if name not in known:
            raise ValueError(
                f"fixed names {name!r}, which is not a parameter; the space has {', '.join(known)}."
            )
        told[name] = known[name].check(name, value)
        if name in domain.names:
            values[domain.names.index(name)] = known[name].encode(told[name])
    return values, told


def _slice_of(domain: Box, values: Mapping[int, float], told: Mapping[str, Any]) -> Box | Arms:
    """Return the part of a box in which some coordinates have given values."""
    try:
        feasible = None if domain.feasible is None else domain.feasible.holding(values)
        found = PartOfBox(domain, domain.coordinates.holding(values), feasible)
        points = found.few_points()
        if points is None and feasible is not None:
            if (only := feasible.only_point()) is not None:
                return Arms(only.unsqueeze(0))
            feasible.check_not_empty()
    except ValueError as error:
        raise ValueError(f"fixed is {dict(told)}, which leaves no point: {error}") from error
    return found if points is None else points


@dataclass(frozen=True, eq=False)
class _Away:
    """The constraint that points keep a distance from avoided ones.

    Attributes:
        points: ``n x d``, the points that are avoided.
        sides: ``d``, the sides of the box.
        discrete: The coordinates that count 1 if they differ.
    """

    points: Tensor
    sides: Tensor
    discrete: tuple[int, ...]

    def __call__(self, X: Tensor) -> Tensor:
        """Return the distance from the nearest avoided point over the least distance, minus 1.

        Args:
            X: ``... x d``.
        """
        difference = X.unsqueeze(-2) - self.points
        squares = (difference / self.sides).square()
        if self.discrete:
            is_discrete = torch.zeros_like(self.sides, dtype=torch.bool)
            is_discrete[list(self.discrete)] = True
            squares = torch.where(is_discrete, (difference != 0.0).to(squares), squares)
        # the square root has no derivative at 0
        nearest = squares.sum(-1).amin(-1).clamp_min(1e-18 * AVOIDED_WITHIN**2)
        return nearest.sqrt() / AVOIDED_WITHIN - 1.0

    @property
    def condition(self) -> Condition:
        """The constraint as one of a feasible set."""
        return Condition(self, "avoid", takes_rows=True)

    def kept(self, X: Tensor) -> Tensor:
        """Return the rows that are away.

        Args:
            X: ``n x d``.

        Raises:
            ValueError: If no row is left.
        """
        kept = X[self.condition.holds(X)]
        if len(kept) == 0:
            raise ValueError(
                f"avoid leaves no point: all {len(X)} candidates lie within "
                f"{AVOIDED_WITHIN} of an avoided point. Avoid fewer."
            )
        return kept

    def check_leaves_points(self, part: Box) -> None:
        """Raise an error if a part of a box, away from the points, is empty.

        Args:
            part: The part.
        """
        try:
            part.sample(1, torch.Generator().manual_seed(0))
        except ValueError as error:
            raise ValueError(f"avoid leaves no point: {error} Or avoid fewer points.") from error


class _Apart(PartOfBox):
    """The part of a box that is away from some points.

    The result of the box's own search is taken if it is away from all of them, because it is the
    maximum of the part as well. Otherwise the part is searched like any other feasible set.
    """

    def __init__(self, box: Box, away: Condition) -> None:
        self._box, self._away = box, away
        known = box.feasible or FeasibleSet(box.coordinates)
        apart = replace(known, nonlinear=(*known.nonlinear, away))
        super().__init__(box, box.coordinates, apart)

    def maximize(self, acquisition: AcquisitionFunction, seed: int = 0) -> tuple[Tensor, float]:
        if choices_of(acquisition) is None:
            x, value = self._box.maximize(acquisition, seed)
            if bool(self._away.holds(x.unsqueeze(0))):
                return x, value
        return super().maximize(acquisition, seed)

    def in_context(self, context: Tensor) -> Box:
        return _Apart(self._box.in_context(context), self._away.behind(len(context)))

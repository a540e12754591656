"""The settings of a loop, checked: each one alone, and whether they go together.

:class:`LoopSettings` is the single list of them. The loop, its storage and everything that
is derived from a history take them from there.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    BanditAcquisition,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    RandomSearch,
)
from botorch_bandits.acquisition.base import ONE_A_PRIOR
from botorch_bandits.acquisition.rules import WidthArmsRule
from botorch_bandits.change_points import ChangePointRestart, EvidenceRestart, Restart
from botorch_bandits.checks import (
    DTYPE,
    LARGEST_OUTCOME,
    check_instance,
    check_integer,
    check_kernel_columns,
    is_list,
    is_number,
    level_of_users_line,
    store_checked,
)
from botorch_bandits.confidence import ModelCheck
from botorch_bandits.confidence.censored import censored_rule
from botorch_bandits.confidence.ingredients import output_rules
from botorch_bandits.confidence.prior_reading import learns_input_scale
from botorch_bandits.confidence.repeats import check_factor
from botorch_bandits.constraints import MultiplierOverflowError, MultiplierRule
from botorch_bandits.core.kernels import TimeDecayKernel
from botorch_bandits.domains import Box, Domain
from botorch_bandits.feedback import Censored, Feedback, Hallucinated, OutcomeScale
from botorch_bandits.forgetting import Forgetting
from botorch_bandits.history import Outcome
from botorch_bandits.loop.refusals import LAGRANGIAN, OF_LISTS, check_pairs, reason_of_one
from botorch_bandits.models import (
    BanditGPRecipe,
    CandidatesRecipe,
    FittedSingleTaskGP,
)
from botorch_bandits.models.noise_floor import SMALLEST_RATIO, check_range_on_box, output_scale_of

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


def default_acquisition(
    objective: str,
    *,
    is_censored: bool = False,
    weighs_constraints: bool = False,
    has_contexts: bool = False,
) -> AcquisitionRecipe:
    """Return the acquisition of a loop whose user says only what it is for.

    The two were chosen by measurement (``docs/league.md``). Expected improvement needs one
    incumbent, and censored feedback and separate constraints need a width, so other settings use
    the bound.

    Args:
        objective: ``"best"``: find a good point. ``"earned"``: collect reward during the run.
        is_censored: Whether pending outcomes are censored.
        weighs_constraints: Whether reward and constraints are modeled separately.
        has_contexts: Whether the best point depends on a context that is known before the choice.

    Raises:
        ValueError: If the objective is neither of the two.
    """
    if objective not in OBJECTIVES:
        raise ValueError(
            f"acquisition is {objective!r}; the only names are 'best' and 'earned'. Others are "
            "recipes, such as GPUpperConfidenceBound.with_options(width=2.0)."
        )
    if weighs_constraints:
        return LagrangianUpperConfidenceBound.with_options(width=DEFAULT_WIDTH)
    if objective == "earned":
        return GPUpperConfidenceBound.with_options(width=EARNING_WIDTH)
    if has_contexts or is_censored:
        return GPUpperConfidenceBound.with_options(width=DEFAULT_WIDTH)
    return LogExpectedImprovement.with_options(augmented=True)


DEFAULT_WIDTH = 2.0
"""The posterior standard deviations of the default acquisition if it is a bound."""

EARNING_WIDTH = 1.0
"""The same with ``acquisition="earned"``."""


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


def check_feedback(feedback: Any) -> Feedback:
    """Return the feedback of a loop, hallucination by default.

    Raises:
        TypeError: If it is not a feedback.
    """
    if feedback is None:
        return Hallucinated()
    remedy = "Pass Hallucinated(), Ignored() or Censored(...)."
    found: Feedback = check_instance("feedback", feedback, Feedback, remedy)
    return found


def check_rule(constraints: Any) -> MultiplierRule | None:
    """Return the rule for the multipliers of a loop, or None without constraints.

    Raises:
        TypeError: If it is not a rule for multipliers.
    """
    if constraints is None:
        return None
    remedy = (
        "Pass a rule for multipliers: AdditiveEpochs(...), MultiplicativeEpochs(...) or "
        "PrimalDual(...)."
    )
    found: MultiplierRule = check_instance("constraints", constraints, MultiplierRule, remedy)
    return found


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


def check_restart(restart: Any) -> Restart | None:
    """Return the restart rule of a loop if it is one.

    Raises:
        TypeError: If it is not a restart rule.
    """
    if restart is None:
        return None
    remedy = (
        "Pass EvidenceRestart(...), ChangePointRestart(detector=...), OracleRestart(...) or "
        "NeverRestart(...), which also say what is kept and how much is explored."
    )
    found: Restart = check_instance("restart", restart, Restart, remedy)
    return found


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
            censored_rule(of_output, bound, sum_form=form)
        return
    options = cls.complete_options(played.options, domain)
    if options["posterior_transform"] is None:
        arms_rule = cls.arms_rule(options)
        assert isinstance(arms_rule, WidthArmsRule)
        bound = feedback.bound_on_sum(cls.played_as is GPThompsonSampling)
        censored_rule(arms_rule.rule, bound, sum_form=form)


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
        acquisition: The acquisition, as given.
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
    acquisition: AcquisitionRecipe | RandomSearch | AcquisitionFactory
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
        check_rule(self.constraints)
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
        check_restart(self.restart)
        check_instance("maximize", self.maximize, bool, "Pass True or False.")
        if self.forgetting is not None:
            remedy = "Pass SlidingWindow(...), ExponentialWeights(...) or TimeVaryingKernel(...)."
            check_instance("forgetting", self.forgetting, Forgetting, remedy)
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
    def noise(self) -> float:
        """The noise variance of one observation; 1 if no other one can be told."""
        return 1.0 if self.recipe is None else self.recipe.noise

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
    def model_in_use(self) -> BanditGPRecipe | ModelFactory | None:
        """The recipe with which models are built.

        This is ``model``. However, if the default model serves the default search for the best
        point, and only one function is to be learned, it sees rewards whose low tail is raised.
        """
        is_search = self.acquisition == default_acquisition("best")
        others = (self.restart, self.constraints, self.forgetting)
        is_plain = not self.context_dim and all(other is None for other in others)
        # a subclass may treat outcomes differently; censored ones have another acquisition
        if is_search and is_plain and type(self.model) is FittedSingleTaskGP:
            return self.model.on_winsorized
        return self.model

    @property
    def outcome_scale(self) -> OutcomeScale:
        """The size of noise and outcomes as stated by the acquisition."""
        noise_bound = self.options.get("noise_bound")
        in_outcomes = self.options.get("units") != "prior"
        is_known = in_outcomes and is_number(noise_bound)
        return OutcomeScale(noise_bound if is_known else None, in_outcomes)

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


def bandit(acquisition: AcquisitionFunction) -> BanditAcquisition | None:
    """Return an acquisition function if it is one of this package's, which states its widths."""
    return acquisition if isinstance(acquisition, BanditAcquisition) else None


def is_played_as(acquisition_class: type[Any] | None, parent: type) -> bool:
    """Return whether a rule of a class plays an acquisition function.

    Args:
        acquisition_class: The class of the acquisition function, if it is known.
        parent: The class with the rule.
    """
    return acquisition_class is not None and acquisition_class.played_as is parent


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
# :mod:`botorch_bandits.forgetting`.


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


def check_weighted(settings: LoopSettings, outcome: Outcome) -> None:
    """Raise an error unless the loop can take in an outcome with a ``count`` or a ``noise``.

    Args:
        settings: The settings of the loop.
        outcome: The outcome, which is about to be recorded.

    Raises:
        ValueError: If it cannot, with the reason and what to do.
    """
    if not outcome.is_weighted or settings.is_random:
        return
    given = f"count is {outcome.count}"
    if outcome.count is None:
        given = f"noise is {outcome.noise:g}"
    reason = reason_of_one(settings)
    if reason is None and outcome.noise is not None and settings.constraints is not None:
        reason = (
            "noise= is the variance of the reward's noise alone, and the loop has constraint "
            "values, too. If all are means of n observations, tell count=n"
        )
    if reason is None and outcome.noise is not None and not settings.has_fixed_noise:
        reason = (
            "the noise that it would be compared with is learned from the outcomes. Pass "
            "BanditGP.with_kernel(...) with fixed hyperparameters, or tell a mean with count="
        )
    if reason is not None:
        raise ValueError(f"{given}, but {reason}.")
    recipe = settings.recipe
    if recipe is not None:
        smallest = SMALLEST_RATIO * float(output_scale_of(recipe.kernel).max())
        level = recipe.noise / outcome.weight(recipe.noise)
        if level <= smallest:
            raise ValueError(
                f"{given}, which makes the noise variance of the row {level:.3g}; it must be above "
                f"{smallest:.3g}, {SMALLEST_RATIO:g} times the kernel's output scale, or float64 "
                "cannot factorize the kernel matrix. Tell a smaller count or a larger noise: below "
                "that nothing changes."
            )


# --- A loop that minimizes: the one place where outcomes, settings and answers change their sign --
#
# History and storage have the user's own numbers. Models, widths, tests and multipliers see minus
# these numbers, so that all other modules maximize and do not know about it: the choices are
# those of a loop that maximizes and is told the negatives. Constraint values keep their sign.


def turned(value: float) -> float:
    """Return minus a value; 0 stays 0."""
    return 0.0 - value


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
        options = {**settings.options, "best_f": turned(settings.options["best_f"])}
        changed["acquisition"] = AcquisitionRecipe(settings.played.acquisition_class, options)
    if censored is not None and censored.minimum is not None:
        changed["feedback"] = replace(censored, minimum=turned(censored.minimum))
    if detection is not None:
        changed["restart"] = replace(detection, detector=_with_turned_mean(detection.detector))
    if evidence is not None and evidence.candidates is not None:
        changed["restart"] = replace(evidence, candidates=evidence.candidates.flipped())
    told = copy.copy(settings)
    store_checked(told, **changed)
    return told


def _with_turned_mean(settings: Any) -> Any:
    mean = settings.prior_mean
    return replace(settings, prior_mean=turned(mean)) if mean else settings


def turned_check(check: ModelCheck) -> ModelCheck:
    """Return a check of a model of minus the outcomes as a check of a model of the outcomes.

    Args:
        check: The check, which is not changed.
    """
    return replace(check, one_step=0.0 - check.one_step, left_out=0.0 - check.left_out)

"""Settings of a loop that do not go together, as one table: when, and why not.

:func:`check_pairs` goes through :data:`REFUSED` when a loop is built, and :func:`reason_of_one`
through :data:`WEIGHS_ALIKE` when an outcome comes with a count or its own noise. What is wrong with
a single setting is checked where the setting is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botorch_bandits.acquisition import (
    AMMUpperConfidenceBound,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    RandomizedUpperConfidenceBound,
)
from botorch_bandits.acquisition.base import default_options
from botorch_bandits.checks import name_of
from botorch_bandits.confidence import GainBound
from botorch_bandits.models import BanditGPRecipe, DefaultCandidates, FittedSingleTaskGP

if TYPE_CHECKING:
    from botorch_bandits.loop.settings import LoopSettings

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
    if _is_lagrangian(settings) or settings.played_class is None:
        return _is_lagrangian(settings)
    complete = {**default_options(settings.played_class), **settings.options}
    return _is_a(*LAGRANGIAN)(settings) and complete.get("multipliers", ()) is None


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
        lambda s: s.detection is not None or s.evidence is not None,
        "restart={restart}(...) compares outcomes that all have the noise of one observation. If "
        "outcomes have about the same noise, leave count= and noise= out and give it to the model; "
        "otherwise use OracleRestart",
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
        lambda s: s.listed is not None,
        "the model is a list of priors, whose evidence treats each outcome as one observation. "
        "Pass BanditGP.with_kernel(...), or tell each outcome by itself",
    ),
    Refusal(
        lambda s: s.recipe is None and type(s.model) is not FittedSingleTaskGP,
        "the model is {model}, a function of inputs and outcomes that sees no weights. Pass "
        "BanditGP.with_kernel(...), or tell each outcome by itself",
    ),
)
"""Why a loop takes each outcome as one observation, without a count or a noise of its own."""

"""What the theorems say about a loop before its run, from its settings and its horizon.

The papers bound the regret of a horizon ``T`` in terms of the maximal information gain. A loop that
knows ``T`` also knows everything else in these bounds: norm, noise, kernel and domain. The numbers
hold under the assumptions of the guarantee that contains them if the remaining rounds are chosen as
it states. They are larger than the sum of a run's own widths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from botorch_bandits.acquisition import ImprovedUpperConfidenceBound
from botorch_bandits.acquisition.base import default_options
from botorch_bandits.change_points import OracleRestart, Reset
from botorch_bandits.checks import is_number
from botorch_bandits.confidence import (
    AMMWidth,
    BoundedNorm,
    BoxGain,
    DesignGain,
    Forecast,
    Guarantee,
    KernelizedWidth,
    PriorSummary,
    UnreadablePriorError,
    WidthRule,
    censored_regret_bound,
    censored_ts_regret_bound,
    change_point_rate,
    change_point_spacing,
    exact_constraints_bounds,
    exact_violation_bound,
    gp_ts_regret_bound,
    noisy_constraints_bounds,
    regret_bound_of_width,
    regret_exponent,
    smallest_slater_margin,
)
from botorch_bandits.confidence.censored import PendingWidth
from botorch_bandits.confidence.gp_ucb import ChangePointWidth
from botorch_bandits.confidence.prior_reading import inputs_of_kernel
from botorch_bandits.constraints import AdditiveEpochs, MultiplicativeEpochs
from botorch_bandits.history import History
from botorch_bandits.loop.settings import LoopSettings, bandit, model_of
from botorch_bandits.models import BanditGPRecipe

LARGEST_DESIGN = 1200
"""For more arms than this, the gain is bounded as for points without any correlation."""

MOST_ROUNDS_OF_DRAWS = 50_000
"""The bounds of draws are sums over rounds, which take part of a second for this many."""

CHOWDHURY, SRINIVAS = "Chowdhury and Gopalan 2017", "Srinivas et al. 2010"
VERMA, SHI = "Verma, Dai and Low 2022", "Shi and Eryilmaz 2022"
AVANESOV = "Avanesov"


@dataclass(frozen=True)
class Gains:
    """Bounds on the maximal information gain of a loop's domain.

    Attributes:
        bound: The tightest bound that is available.
        name: A description of that bound.
    """

    bound: Callable[[int], float]
    name: str


def gains_of(settings: LoopSettings, lam: float, is_stationary: bool = True) -> Gains | None:
    """Return bounds on the gain of any observations in the loop's domain.

    Args:
        settings: The settings of the loop.
        lam: The noise variance over the prior variance.
        is_stationary: Whether the prior variance is the same at all points.

    Returns:
        None if the prior variance may be larger at some point than ``lam`` implies.
    """
    unrelated = None
    if is_stationary:
        unrelated = Gains(lambda n: 0.5 * n * math.log1p(1.0 / lam), "points that share nothing")
    recipe, choices, bounds = settings.recipe, settings.domain.choices, settings.domain.bounds
    if recipe is None or settings.context_dim:
        return unrelated
    if choices is not None and len(choices) <= LARGEST_DESIGN:
        matrix = _matrix_of(recipe, choices)
        if float(matrix.diagonal().max()) > recipe.noise / lam * (1.0 + 1e-9):
            return unrelated
        return Gains(DesignGain(matrix, recipe.noise), "the best design on the arms")
    is_plain = recipe.input_transform is None and recipe.kernel.is_stationary
    if bounds is not None and is_plain and not recipe.kernel.batch_shape:
        gain = BoxGain(bounds, recipe.kernel, recipe.noise)
        return Gains(gain, "the best design on a grid of the box, and what lies between")
    return unrelated


def _matrix_of(recipe: BanditGPRecipe, choices: Tensor) -> Tensor:
    inputs = choices
    empty = recipe(choices[:0], choices[:0, :1])
    with torch.no_grad():
        if recipe.input_transform is not None:
            inputs = inputs_of_kernel(empty, choices)
        matrix: Tensor = recipe.kernel(inputs).to_dense().detach()
    return 0.5 * (matrix + matrix.mT)


@dataclass(frozen=True)
class _Loop:
    """The quantities from which numbers are computed; bounds are in prior standard deviations.

    Attributes:
        settings: The settings of the loop, in the running epoch.
        horizon: ``T``.
        gains: The bounds on the gain for the domain.
        deviation: The prior standard deviation, in raw outcome units.
        lam: The regularization.
    """

    settings: LoopSettings
    horizon: int
    gains: Gains
    deviation: float
    lam: float

    def in_prior_units(self, bound: float, units: str) -> float:
        """Return a bound in prior standard deviations.

        Args:
            bound: The bound in the units of the rule.
            units: ``"outcome"`` or ``"prior"``.
        """
        return bound if units == "prior" else bound / self.deviation


def with_forecasts(
    guarantee: Guarantee,
    acquisition: AcquisitionFunction,
    settings: LoopSettings,
    history: History,
    *,
    cache: dict[Any, Gains | None],
    has_several_models: bool,
) -> Guarantee:
    """Return a guarantee with the numbers that are known before the run.

    Args:
        guarantee: The guarantee of the loop; only what it states as guaranteed has a number.
        acquisition: The acquisition of the next round.
        settings: The settings of the loop, in the running epoch.
        history: The history of all rounds.
        cache: Bounds on the gain by recipe, to which new ones are added.
        has_several_models: Whether epochs have different models.
    """
    known = bandit(acquisition)
    if settings.horizon is None or known is None:
        return guarantee
    regret = guarantee.regret
    is_plain = not (history.is_weighted or history.num_retracted or settings.restarts)
    if regret is None or not regret.holds or guarantee.theorem is None or not is_plain:
        return guarantee
    if settings.forgetting is not None or len(known.width_rules) != 1:
        return guarantee
    if history.num_failed and not regret.covers_pending:
        return guarantee  # rounds without an outcome gain no information
    try:
        summary = PriorSummary(model_of(known))
        (prior,) = summary.active.values()
        lam, deviation = float(prior.lam), float(prior.standard_deviation)
    except (UnreadablePriorError, ValueError):
        return guarantee
    if prior.row_noise is not None:
        return guarantee  # the noise of future rows is unknown
    if settings.model not in cache:
        cache[settings.model] = gains_of(settings, lam, prior.is_stationary)
    gains = cache[settings.model]
    if gains is None:
        return guarantee
    loop = _Loop(settings, settings.horizon, gains, deviation, lam)
    (rule,) = known.width_rules
    told = list(_forecasts(guarantee, rule, loop, summary, has_several_models))
    return replace(guarantee, forecasts=(*guarantee.forecasts, *told))


def _forecasts(
    guarantee: Guarantee,
    rule: WidthRule,
    loop: _Loop,
    summary: PriorSummary,
    has_several_models: bool,
) -> Iterator[Forecast]:
    T, gains = loop.horizon, loop.gains
    if loop.settings.constraints is not None:
        if loop.settings.constraints.surrogate == "fresh":
            yield from _of_epochs(loop, rule, has_several_models)
        return
    yield Forecast(
        gains.name,
        f"the information gain of any {T} rounds is at most",
        gains.bound(T),
    )
    found = _regret_of_horizon(guarantee, rule, loop, summary)
    if found is None:
        return
    theorem, bound = found
    regret = guarantee.regret
    assert regret is not None
    if loop.settings.repeats is not None:
        if regret.tail or regret.num_points is not None:
            return
        bound *= loop.settings.repeats
    if regret.num_others:
        if regret.largest is None:
            return
        bound += regret.largest * regret.num_others
    if regret.largest is not None:
        bound = min(bound, regret.largest * T)
    at_hand = "" if regret.covers_pending else " with every outcome at hand"
    others = f" (and {regret.num_others} others so far)" if regret.num_others else ""
    times = "rho_m times the" if regret.quantity != "the regret" else "the"
    what = f"{times} cumulative regret of {T} rounds that the method chooses{at_hand}{others}"
    yield Forecast(theorem, f"{what} is at most", bound)


def _regret_of_horizon(
    guarantee: Guarantee, rule: WidthRule, loop: _Loop, summary: PriorSummary
) -> tuple[str, float] | None:
    """Return the theorem and its number in raw outcome units, if there is one for this width."""
    T, gain, lam, s = loop.horizon, loop.gains.bound, loop.lam, loop.deviation
    regret = guarantee.regret
    assert regret is not None
    of_gain = rule.bound_on_gain()
    if of_gain is not None:
        gain = of_gain
    if isinstance(rule, PendingWidth):
        return _of_censored(guarantee, rule, loop)
    if rule.theorem_of_srinivas is not None:
        width = float(rule.width(summary, T))
        tail = math.pi**2 / 6.0 * regret.tail
        return f"{SRINIVAS}, Theorem {rule.theorem_of_srinivas}", s * regret_bound_of_width(
            width, T, gain, lam
        ) + tail
    if isinstance(rule, AMMWidth) and _is_plain(rule):
        B, R = (loop.in_prior_units(float(b), rule.units) for b in _numbers(rule))
        bounds = BoundedNorm(B, R, rule.delta, lam)
        width = float(bounds.mixture_width(gain(T - 1) if T > 1 else 0.0))
        return "Flynn and Reeb 2024, with the sum of deviations by the gain", s * (
            regret_bound_of_width(width, T, gain, lam)
        )
    if not isinstance(rule, KernelizedWidth) or not _is_plain(rule):
        return None
    B, R = (loop.in_prior_units(float(b), rule.units) for b in _numbers(rule))
    if regret.factor is None:
        if regret.num_points is None or regret.delta is None or T > MOST_ROUNDS_OF_DRAWS:
            return None
        some, points = _at_some_rounds(gain, T), regret.num_points
        bound = gp_ts_regret_bound(T, some, B, R, regret.delta, lam, points, rule.any_lambda)
        return f"{CHOWDHURY}, Theorem 4", s * bound
    before = gain(T - 1) if T > 1 else 0.0
    variation = loop.in_prior_units(rule.variation, rule.units)
    width = float(BoundedNorm(B, R, rule.delta, lam, rule.any_lambda).width(before))
    width += variation * math.sqrt((T - 1) / lam)
    bound = regret_bound_of_width(width, T, gain, lam) + 2.0 * variation * T
    return f"{CHOWDHURY}, Theorem 3", s * bound


def _at_some_rounds(gain: Callable[[int], float], horizon: int) -> Callable[[int], float]:
    """Return a bound that is evaluated at rounds 1% apart; it does not decrease with rounds."""
    known: dict[int, float] = {}

    def bound(number: int) -> float:
        at = number
        if number > 100:
            at = min(math.ceil(1.01 ** math.ceil(math.log(number, 1.01) - 1e-9)), horizon)
        at = max(at, number)
        if at not in known:
            known[at] = gain(at)
        return known[at]

    return bound


def _is_plain(rule: KernelizedWidth | AMMWidth) -> bool:
    """Return whether its bounds are one number each, and are in the units of outcomes."""
    return not rule.not_given and all(map(is_number, _numbers(rule)))


def _numbers(rule: KernelizedWidth | AMMWidth) -> tuple[Any, Any]:
    return rule.rkhs_bound, rule.noise_bound


def _of_censored(guarantee: Guarantee, rule: PendingWidth, loop: _Loop) -> tuple[str, float] | None:
    feedback, terms = loop.settings.feedback.censored, rule.censored
    regret = guarantee.regret
    assert regret is not None
    assert feedback is not None
    given = [terms.rkhs_bound, terms.noise_bound, terms.outcome_bound]
    bounds = [loop.in_prior_units(b, terms.units) for b in given if is_number(b)]
    is_theorem = rule.uncovered is None and terms.constant is None and not terms.not_given
    in_rounds = feedback.unit == "rounds" and feedback.max_delay is not None
    if not (is_theorem and in_rounds and len(bounds) == 3) or regret.delta is None:
        return None
    assert feedback.max_delay is not None
    B, R, B_y = bounds
    m, delta = math.ceil(feedback.max_delay), regret.delta
    args = loop.horizon, loop.gains.bound, B, R, B_y, m, 1.0, delta, loop.lam  # rho_m: below
    with_contexts = " and 4" if loop.settings.context_dim else ""
    plural = "s" if with_contexts else ""
    if regret.factor is not None:
        bound = censored_regret_bound(*args, any_lambda=terms.any_lambda)
        return f"{VERMA}, Theorem{plural} 2{with_contexts}", loop.deviation * bound
    if regret.num_points is None or loop.horizon > MOST_ROUNDS_OF_DRAWS:
        return None
    some = _at_some_rounds(loop.gains.bound, loop.horizon)
    args = (args[0], some, *args[2:])
    bound = censored_ts_regret_bound(*args, regret.num_points, terms.any_lambda)
    return f"{VERMA}, Theorem{plural} 3{with_contexts}", loop.deviation * bound


# --- constraints --------------------------------------------------------------------------------


def _of_epochs(loop: _Loop, rule: WidthRule, has_several_models: bool) -> Iterator[Forecast]:
    """Yield the bounds of both algorithms for all epochs of the horizon."""
    constraints, played = loop.settings.constraints, loop.settings.played
    if played is None or played.acquisition_class.played_as is not ImprovedUpperConfidenceBound:
        return
    options = {**default_options(played.acquisition_class), **played.options}
    bounds = options["rkhs_bound"], options["noise_bound"]
    if not all(map(is_number, bounds)):
        return
    if has_several_models:
        yield Forecast(SHI, "no number is known if epochs have different models")
        return
    B, R, v = (
        loop.in_prior_units(float(bound), options["units"])
        for bound in (*bounds, options["variation"])
    )
    assert constraints is not None
    length = constraints.epoch_length
    epochs = math.ceil(loop.horizon / length)
    of_run = f"of {epochs * length} rounds, {epochs} epochs of {length},"
    of_inner: dict[str, Any] = {
        "num_epochs": epochs,
        "epoch_length": length,
        "information_gain": loop.gains.bound,
        "noise_bound": R,
        "delta": options["delta"],
        "lam": loop.lam,
        "num_constraints": constraints.num_constraints,
        "any_lambda": options["any_lambda"],
    }
    of_function: dict[str, Any] = {"rkhs_bound": B, "variation": v}
    if isinstance(constraints, MultiplicativeEpochs):
        yield from _of_exact(loop, constraints, of_run, {**of_inner, **of_function})
    elif isinstance(constraints, AdditiveEpochs):
        needed = loop.deviation * smallest_slater_margin(**of_inner)
        of_length = f"it needs, with epochs of {length}, a Slater margin above"
        yield Forecast(f"{SHI}, Theorem 2", of_length, needed)
        yield from _of_noisy(loop, constraints, of_run, needed, {**of_inner, **of_function})


def _of_exact(
    loop: _Loop, rule: MultiplicativeEpochs, of_run: str, given: dict[str, Any]
) -> Iterator[Forecast]:
    gap = rule.unconstrained_gap
    bounds = exact_constraints_bounds(**given, penalty=rule.penalty, unconstrained_gap=0.0)
    regret = loop.deviation * bounds.regret
    yield Forecast(f"{SHI}, (11)", f"the regret {of_run} is at most", regret)
    if gap is None:
        needed = "the violation has a number if unconstrained_gap= is given, the amount by which "
        needed += "the largest reward exceeds the best feasible one"
        yield Forecast(f"{SHI}, (12)", needed)
        return
    epochs, many = given["num_epochs"], rule.num_constraints
    worst = exact_violation_bound(epochs, rule.epoch_length, regret, rule.penalty, gap, many)
    yield Forecast(f"{SHI}, (12)", f"the violation {of_run} is at most", worst)


def _of_noisy(
    loop: _Loop, rule: AdditiveEpochs, of_run: str, needed: float, given: dict[str, Any]
) -> Iterator[Forecast]:
    """Divide all functions by the prior deviation, which leaves the multipliers as they are."""
    s, name = loop.deviation, f"{SHI}, Theorem 2"
    margin, largest = rule.slater_margin, rule.largest_constraint
    if margin is None or largest is None:
        missing = "regret and violation have numbers with slater_margin= and largest_constraint="
        yield Forecast(name, missing)
        return
    if margin <= needed:
        yield Forecast(name, f"a margin of {margin:g} is too small; longer epochs need less")
        return
    # in the first epoch the penalized function is the reward itself, so that B bounds it
    reward = given["rkhs_bound"]
    if rule.largest_reward is not None:
        reward = rule.largest_reward / s
    bounds = noisy_constraints_bounds(
        **given,
        step_size=rule.step_size * s,
        slater_margin=margin / s,
        reward_bound=reward,
        constraint_bound=largest / s,
    )
    yield Forecast(name, f"the regret {of_run} is at most", s * bounds.regret)
    yield Forecast(name, f"the violation {of_run} is at most", s * bounds.violation)
    assert bounds.realized_violation is not None
    assert bounds.multiplier is not None
    of_observed = f"the violation {of_run}, of constraint values as observed, is at most"
    yield Forecast(f"{SHI}, Appendix D", of_observed, s * bounds.realized_violation)
    yield Forecast(f"{name}, (33)", "the norm of the multipliers is at most", bounds.multiplier)


# --- change-points ------------------------------------------------------------------------------


def with_change_points(
    guarantee: Guarantee,
    acquisition: AcquisitionFunction,
    settings: LoopSettings,
    resets: Sequence[Reset],
    num_rounds: int,
) -> Guarantee:
    """Return a guarantee with conditions and rate of Avanesov's theorem, (3.8) to (3.10).

    These are not bounds: the conditions are asymptotic, and the constant of the rate is unknown.

    Args:
        guarantee: The guarantee of the loop.
        acquisition: The acquisition of the next round.
        settings: The settings of the loop.
        resets: The resets so far.
        num_rounds: The number of rounds so far.
    """
    restart, detection, known_one = settings.restart, settings.detection, bandit(acquisition)
    rules = () if known_one is None else known_one.width_rules
    width = next((rule for rule in rules if isinstance(rule, ChangePointWidth)), None)
    smoothness, dim, change = None, settings.domain.dim + settings.context_dim, None
    if detection is not None:
        smoothness, change = detection.detector.known_smoothness, detection.smallest_change
    if width is not None:
        smoothness, dim = width.smoothness, width.dim
    known = settings.horizon or (None if width is None else width.horizon)
    if isinstance(restart, OracleRestart):
        horizon, changes = known or num_rounds, list(restart.change_points)
        of = "of the periods that were given"
    elif detection is not None:
        horizon, changes = num_rounds, [reset.after_round for reset in resets]
        of = "of the periods so far, as detected"
    else:
        return guarantee
    ends = [0, *(change for change in changes if 0 < change < horizon), horizon]
    periods = [end - start for start, end in pairwise(ends)]
    if smoothness is None or not math.isfinite(smoothness) or horizon < 1:
        return guarantee
    told = [
        Forecast(
            f"{AVANESOV}, (3.10)",
            f"sqrt(max T_i) / min T_i {of}, which should tend to 0, is",
            change_point_spacing(periods, None, smoothness, dim),
        )
    ]
    if change is not None:
        told.append(
            Forecast(
                f"{AVANESOV}, (3.8)",
                f"with Delta = {change:g} and its logarithm, this is",
                change_point_spacing(periods, change, smoothness, dim),
            )
        )
    if width is not None:
        exponent = regret_exponent(smoothness, dim)
        power = 2.0 + 2.0 / (2.0 * smoothness + dim)
        rest = "" if change is not None else f" Delta^-{power:.4g}"
        told.append(
            Forecast(
                f"{AVANESOV}, (3.9)",
                f"the expected regret grows as the lengths of periods to the power {exponent:.4g}: "
                f"{of} it is an unknown constant times",
                change_point_rate(periods, change or 1.0, smoothness, dim),
                rest,
            )
        )
    return replace(guarantee, forecasts=(*guarantee.forecasts, *told))

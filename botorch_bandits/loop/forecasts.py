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
from functools import cache as cached
from itertools import pairwise
from typing import Any, NamedTuple

from botorch.acquisition import AcquisitionFunction

from botorch_bandits.acquisition import ImprovedUpperConfidenceBound
from botorch_bandits.acquisition.base import bandit, default_options
from botorch_bandits.change_points import OracleRestart, Reset
from botorch_bandits.checks import is_number
from botorch_bandits.confidence import (
    BoundedNorm,
    BoxGain,
    DesignGain,
    Forecast,
    Guarantee,
    KernelizedWidth,
    PriorSummary,
    RegretStatement,
    UnreadablePriorError,
    WidthRule,
    change_point_rate,
    change_point_spacing,
    exact_constraints_bounds,
    exact_violation_bound,
    gp_ts_regret_bound,
    igp_ucb_regret_bound,
    noisy_constraints_bounds,
    regret_bound_of_width,
    regret_exponent,
    smallest_slater_margin,
)
from botorch_bandits.confidence.censored import CensoredWidth
from botorch_bandits.confidence.gp_ucb import ChangePointWidth
from botorch_bandits.confidence.information_gain import is_stationary
from botorch_bandits.confidence.prior_reading import inputs_of_kernel
from botorch_bandits.constraints import AdditiveEpochs, MultiplicativeEpochs
from botorch_bandits.history import History
from botorch_bandits.loop.settings import LoopSettings, model_of

LARGEST_DESIGN = 1200
"""For more arms than this, the gain is bounded as for points without any correlation."""

MOST_ROUNDS_OF_DRAWS = 50_000
"""The bounds of draws are sums over rounds, which take part of a second for this many."""

CHOWDHURY, SRINIVAS = "Chowdhury and Gopalan 2017", "Srinivas et al. 2010"
VERMA, SHI = "Verma, Dai and Low 2022", "Shi and Eryilmaz 2022"
AVANESOV = "Avanesov"


class Gains(NamedTuple):
    """Bounds on the maximal information gain of a loop's domain.

    Attributes:
        bound: The tightest bound that is available.
        name: A description of that bound.
    """

    bound: Callable[[int], float]
    name: str


def gains_of(settings: LoopSettings, lam: float, is_level: bool = True) -> Gains | None:
    """Return bounds on the gain of any observations in the loop's domain.

    Args:
        settings: The settings of the loop.
        lam: The noise variance over the prior variance.
        is_level: Whether the prior variance is the same at all points.

    Returns:
        None if the prior variance may be larger at some point than ``lam`` implies.
    """
    unrelated = None
    if is_level:
        unrelated = Gains(lambda n: 0.5 * n * math.log1p(1.0 / lam), "points that share nothing")
    recipe, choices, bounds = settings.recipe, settings.domain.choices, settings.domain.bounds
    if recipe is None or settings.context_dim:
        return unrelated
    kernel, transform, noise = recipe.kernel, recipe.input_transform, recipe.noise
    if choices is not None and len(choices) <= LARGEST_DESIGN:
        if transform is not None:
            choices = inputs_of_kernel(recipe(choices[:0], choices[:0, :1]), choices).detach()
        if float(kernel(choices, diag=True).detach().max()) > noise / lam * (1.0 + 1e-9):
            return unrelated
        return Gains(DesignGain.on(choices, kernel, noise), "the best design on the arms")
    if bounds is None or transform is not None or kernel.batch_shape:
        return unrelated
    if not is_stationary(kernel, bounds.shape[-1]):
        return unrelated
    between = "the best design on a grid of the box, and what lies between"
    return Gains(BoxGain(bounds, kernel, noise), between)


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

    def assumed(
        self, bounds: Sequence[Any], units: str, delta: float, **form: bool
    ) -> BoundedNorm | None:
        """Return what is assumed of the function; None if a bound is not one number.

        Args:
            bounds: Of norm, noise and censored outcomes.
            units: ``"outcome"`` or ``"prior"``, the units of the bounds.
            delta: Bounds fail with at most this probability.
            **form: The form of widths; see :class:`.BoundedNorm`.
        """
        given = [bound for bound in bounds if bound is not None]
        if not all(map(is_number, given)):
            return None
        B, R, *others = (float(bound) / self.unit(units) for bound in given)
        outcome_bound = others[0] if others else None
        return BoundedNorm(B, R, delta, self.lam, outcome_bound=outcome_bound, **form)

    def unit(self, units: str) -> float:
        """Return the prior standard deviation in the units of bounds.

        Args:
            units: ``"outcome"`` or ``"prior"``.
        """
        return 1.0 if units == "prior" else self.deviation


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
    known, regret = bandit(acquisition), guarantee.regret
    if settings.horizon is None or known is None or len(known.width_rules) != 1:
        return guarantee
    changes = settings.restarts or settings.forgetting is not None
    if regret is None or not regret.holds or guarantee.theorem is None or changes:
        return guarantee
    # rounds without an outcome gain no information
    is_lost = history.num_failed and not regret.covers_pending
    if history.num_weighted or history.num_retracted or is_lost:
        return guarantee
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
    if settings.constraints is None:
        told = _of_regret(regret, known.width_rules[0], loop, summary)
    elif settings.constraints.surrogate == "fresh":
        told = _of_epochs(loop, has_several_models)
    else:
        return guarantee
    return replace(guarantee, forecasts=(*guarantee.forecasts, *told))


def _of_regret(
    regret: RegretStatement, rule: WidthRule, loop: _Loop, summary: PriorSummary
) -> Iterator[Forecast]:
    """Yield the bounds on gain and regret without constraints."""
    T, gains, repeats = loop.horizon, loop.gains, loop.settings.repeats
    of_gain = f"the information gain of any {T} rounds is at most"
    yield Forecast(gains.name, of_gain, gains.bound(T))
    found = _regret_of_horizon(regret, rule, loop, summary)
    has_extras = regret.tail or regret.num_points is not None
    if found is None or (repeats is not None and has_extras):
        return
    theorem, bound = found
    bound *= repeats or 1.0
    if regret.num_others and regret.largest is None:
        return
    if regret.largest is not None:
        bound = min(bound + regret.largest * regret.num_others, regret.largest * T)
    at_hand = "" if regret.covers_pending else " with every outcome at hand"
    others = f" (and {regret.num_others} others so far)" if regret.num_others else ""
    times = "rho_m times the" if regret.quantity != "the regret" else "the"
    what = f"{times} cumulative regret of {T} rounds that the method chooses{at_hand}{others}"
    yield Forecast(theorem, f"{what} is at most", bound)


def _regret_of_horizon(
    regret: RegretStatement, rule: WidthRule, loop: _Loop, summary: PriorSummary
) -> tuple[str, float] | None:
    """Return the theorem and its number in raw outcome units, if there is one for this width."""
    T, gain, lam, s = loop.horizon, loop.gains.bound, loop.lam, loop.deviation
    gain = rule.bound_on_gain() or gain
    if rule.theorem_of_srinivas is not None:
        bound = s * regret_bound_of_width(rule.width(summary, T), T, gain, lam)
        tail = math.pi**2 / 6.0 * regret.tail
        return f"{SRINIVAS}, Theorem {rule.theorem_of_srinivas}", bound + tail
    delta, max_delay, outcome_bound = regret.delta, 0, None
    names = f"{CHOWDHURY}, Theorem 3", f"{CHOWDHURY}, Theorem 4"
    if isinstance(rule, CensoredWidth):
        feedback = loop.settings.feedback.censored
        assert feedback is not None
        if not rule.is_covered or feedback.unit != "rounds" or feedback.max_delay is None:
            return None
        max_delay = math.ceil(feedback.max_delay)  # and rho_m = 1, as it is of rho_m times regret
        plural, more = ("s", " and 4") if loop.settings.context_dim else ("", "")
        names = f"{VERMA}, Theorem{plural} 2{more}", f"{VERMA}, Theorem{plural} 3{more}"
        outcome_bound, rule = rule.outcome_bound, rule.inner
    if delta is None or not isinstance(rule, KernelizedWidth) or rule.not_given:
        return None
    given = rule.rkhs_bound, rule.noise_bound, outcome_bound
    form = {"any_lambda": rule.any_lambda, "is_mixture": rule.is_mixture}
    assumed = loop.assumed(given, rule.units, delta, **form)
    if assumed is None:
        return None
    if rule.is_mixture:
        width = assumed.width(gain(T - 1) if T > 1 else 0.0)
        name = "Flynn and Reeb 2024, with the sum of deviations by the gain"
        return name, s * regret_bound_of_width(width, T, gain, lam)
    variation = rule.variation / loop.unit(rule.units)
    if regret.factor is not None:
        return names[0], s * igp_ucb_regret_bound(T, gain, assumed, variation, max_delay)
    if regret.num_points is None or T > MOST_ROUNDS_OF_DRAWS:
        return None
    some, points = _at_some_rounds(gain, T), regret.num_points
    return names[1], s * gp_ts_regret_bound(T, some, assumed, points, max_delay=max_delay)


def _at_some_rounds(gain: Callable[[int], float], horizon: int) -> Callable[[int], float]:
    """Return a bound that is evaluated at rounds 1% apart; it does not decrease with rounds."""
    known = cached(gain)

    def bound(number: int) -> float:
        if number <= 100:
            return known(number)
        later = math.ceil(1.01 ** math.ceil(math.log(number, 1.01) - 1e-9))
        return known(max(min(later, horizon), number))

    return bound


# --- constraints --------------------------------------------------------------------------------


def _of_epochs(loop: _Loop, has_several_models: bool) -> Iterator[Forecast]:
    """Yield the bounds of both algorithms for all epochs of the horizon."""
    constraints, played, s = loop.settings.constraints, loop.settings.played, loop.deviation
    if played is None or played.acquisition_class.played_as is not ImprovedUpperConfidenceBound:
        return
    options = {**default_options(played.acquisition_class), **played.options}
    units, given = options["units"], (options["rkhs_bound"], options["noise_bound"])
    assumed = loop.assumed(given, units, options["delta"], any_lambda=options["any_lambda"])
    if assumed is None:
        return
    if has_several_models:
        yield Forecast(SHI, "no number is known if epochs have different models")
        return
    assert constraints is not None
    length, m, v = constraints.epoch_length, constraints.num_constraints, options["variation"]
    epochs = math.ceil(loop.horizon / length)
    of_run = f"of {epochs * length} rounds, {epochs} epochs of {length},"
    given_epochs = epochs, length, loop.gains.bound, assumed
    v = v / loop.unit(units)
    if isinstance(constraints, MultiplicativeEpochs):
        penalty, gap = constraints.penalty, constraints.unconstrained_gap
        bounds = exact_constraints_bounds(*given_epochs, penalty, 0.0, m, v)
        regret = s * bounds.regret
        yield Forecast(f"{SHI}, (11)", f"the regret {of_run} is at most", regret)
        if gap is None:
            needed = "the violation has a number if unconstrained_gap= is given, the amount by "
            needed += "which the largest reward exceeds the best feasible one"
            yield Forecast(f"{SHI}, (12)", needed)
            return
        worst = exact_violation_bound(epochs, length, regret, penalty, gap, m)
        yield Forecast(f"{SHI}, (12)", f"the violation {of_run} is at most", worst)
    elif isinstance(constraints, AdditiveEpochs):
        yield from _of_noisy(loop, constraints, of_run, given_epochs, v)


def _of_noisy(
    loop: _Loop,
    rule: AdditiveEpochs,
    of_run: str,
    given: tuple[int, int, Callable[[int], float], BoundedNorm],
    variation: float,
) -> Iterator[Forecast]:
    """Divide all functions by the prior deviation, which leaves the multipliers as they are."""
    s, name, m = loop.deviation, f"{SHI}, Theorem 2", rule.num_constraints
    needed = s * smallest_slater_margin(*given, m)
    of_length = f"it needs, with epochs of {rule.epoch_length}, a Slater margin above"
    yield Forecast(name, of_length, needed)
    margin, largest = rule.slater_margin, rule.largest_constraint
    if margin is None or largest is None:
        missing = "regret and violation have numbers with slater_margin= and largest_constraint="
        yield Forecast(name, missing)
        return
    if margin <= needed:
        yield Forecast(name, f"a margin of {margin:g} is too small; longer epochs need less")
        return
    # in the first epoch the penalized function is the reward itself, so that B bounds it
    reward = given[3].rkhs_bound if rule.largest_reward is None else rule.largest_reward / s
    bounds = noisy_constraints_bounds(
        *given, rule.step_size * s, margin / s, float(reward), largest / s, m, variation
    )
    assert bounds.realized_violation is not None
    yield Forecast(name, f"the regret {of_run} is at most", s * bounds.regret)
    yield Forecast(name, f"the violation {of_run} is at most", s * bounds.violation)
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
    spacing = f"sqrt(max T_i) / min T_i {of}, which should tend to 0, is"
    value = change_point_spacing(periods, None, smoothness, dim)
    told = [Forecast(f"{AVANESOV}, (3.10)", spacing, value)]
    if change is not None:
        spacing = f"with Delta = {change:g} and its logarithm, this is"
        value = change_point_spacing(periods, change, smoothness, dim)
        told.append(Forecast(f"{AVANESOV}, (3.8)", spacing, value))
    if width is not None:
        power = 2.0 + 2.0 / (2.0 * smoothness + dim)
        grows = (
            "the expected regret grows as the lengths of periods to the power "
            f"{regret_exponent(smoothness, dim):.4g}: {of} it is an unknown constant times"
        )
        value = change_point_rate(periods, change or 1.0, smoothness, dim)
        rest = "" if change is not None else f" Delta^-{power:.4g}"
        told.append(Forecast(f"{AVANESOV}, (3.9)", grows, value, rest))
    return replace(guarantee, forecasts=(*guarantee.forecasts, *told))

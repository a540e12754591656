r"""Which point to deploy, and a bound on its regret: :meth:`.BanditLoop.recommend`.

The largest observed outcome is the largest of noisy numbers: it is biased upward, and many points
could have produced it. If confidence bounds ``L <= f <= U`` hold at all points at once, the point
with the largest ``L`` is within

.. math:: \max_z U(z) - L(x)

of the best one, and this number is the certificate. If they also hold in all rounds at once, it
remains valid when the loop is stopped because of it, as in the elimination rules of best-arm
identification. Otherwise the point with the largest posterior mean is recommended (where
hyperparameters are fitted, a point that was not played has to be clearly ahead), with the reason
why there is no certificate.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model, ModelList
from torch import Tensor

from botorch_bandits.acquisition.base import BanditAcquisition, Bounds, moments_at
from botorch_bandits.checks import check_one_of, counted, level_of_users_line
from botorch_bandits.confidence import EvidenceTable, Guarantee, ModelCheck, check_model
from botorch_bandits.domains import Domain, ValueScale, first_of_the_largest
from botorch_bandits.history import Event, Failure, History, Outcome, Query, Retraction, point_text
from botorch_bandits.loop.aspects import NOTHING_DECIDED, Decided
from botorch_bandits.loop.chooser import Chooser
from botorch_bandits.loop.settings import LoopSettings, distinct, model_of, recorded_restriction
from botorch_bandits.loop.view import View
from botorch_bandits.models import CandidatesModel
from botorch_bandits.models.reading import submodels
from botorch_bandits.progress import progress_bar
from botorch_bandits.random_streams import derive_seed

AMONG = ("all", "played")
"""The points among which one is recommended: the whole domain, or those with an outcome."""

POINTS_AT_ONCE = 4096
"""The number of points that are evaluated together."""

WEIGHT_OF_VIOLATION = 10.0
"""In a search, the cost of a constraint's prior standard deviation in those of the reward."""

EXCLUDES = 1e30
"""The weight of violations that leaves a point out if another one meets the constraints."""

DOUBT = 2.0
"""How many posterior standard deviations a point that was not played must be ahead of those played.

With the hyperparameters right, the probability that it is not better is at most 2.3%.
"""

NOT_MET = "no point is known to meet all constraints; the point that comes closest is recommended"
"""Why there is no certificate if every upper bound of some constraint is positive."""

NEXT_CHANGES = (
    "restart= says that the reward changes with the next round, of which nothing is observed yet. "
    "Once it is asked, there is a certificate"
)

ON_SEARCH = (
    "no point of the domain has a better bound than the best that was found by a numerical "
    "search: if one has, the certificate is too small by the difference"
)
"""What the certificate of a domain that is no list of points assumes."""

NEGATED = {
    "mean": "mean",
    "lower_bound": "upper_bound",
    "upper_bound": "lower_bound",
    "best_possible": "best_possible",
}
"""What each number is the negative of, if the sign of the outcomes changes."""

Told = tuple[Query, Outcome]


@dataclass(frozen=True, eq=False)
class Recommendation:
    """The point to deploy, and the certificate that comes with it.

    If the bounds hold, the point has the largest lower confidence bound (if a cost is minimized,
    the smallest upper one), otherwise the largest (smallest) posterior mean. With constraints that
    have their own models, only points that meet them according to their upper bounds are considered
    or, without bounds, according to their posterior means; if there is none, it is the point that
    comes closest. With penalized constraints, the posterior mean is that of the penalized reward,
    and the point may exceed its limits; ``print`` shows what was observed there.

    Attributes:
        x: The point, ``d`` numbers.
        arm: On arms, its index; otherwise None.
        parameters: On a :class:`~botorch_bandits.Space`, its values by name; otherwise None.
        context: The context for which it is recommended, or None without contexts.
        mean: The posterior mean at the point, in the unit of outcomes. With penalized constraints,
            it is that of the penalized reward.
        standard_deviation: The posterior standard deviation at the point, without noise.
        certificate: How much better the best point of the domain can be than this one according to
            the bounds, in the unit of outcomes: ``best_possible`` minus ``lower_bound`` (if a cost
            is minimized, ``upper_bound`` minus ``best_possible``). It bounds the regret of
            deploying the point with probability ``1 - delta``, at all times at once, including a
            time that was chosen because of it. It is never larger than ``trivial_certificate``. If
            it is None, ``reasons`` say why.
        delta: The level of the certificate; None without one.
        lower_bound: ``L`` at the point; None without bounds that hold.
        upper_bound: ``U`` at the point; None without bounds that hold.
        best_possible: The largest ``U`` over the domain, with constraints over the points that may
            meet them; if a cost is minimized, the smallest ``L``. On arms it is exact; otherwise it
            is the best that a numerical search found, as ``assumptions`` state.
        constraint_bounds: The upper confidence bound of each constraint at the point; empty without
            constraints, or without bounds that hold.
        among: ``"all"`` or ``"played"``, the points among which it was sought. The certificate is
            relative to all points.
        theorem: The source of the bounds; None without a certificate.
        assumptions: The assumptions of the certificate; empty without one.
        reasons: Why there is no certificate; empty with one.
        trivial_certificate: ``2 B`` in the unit of outcomes, the most by which any two points can
            differ if the assumptions of the theorem hold, whatever the outcomes are. A certificate
            that is equal to it says nothing about this point in particular. None without a
            certificate, or if no such number is known.
        may_come: If there is no certificate, whether there may be one later, because it only lacks
            pending outcomes, or a point that is known to meet the constraints.
        is_penalized: Whether ``mean`` and ``standard_deviation`` are those of the penalized reward.
        constraint_means: The posterior mean of each constraint at the point; with censored
            feedback, times the share of outcomes that arrive. Empty without models of the
            constraints.
        observed_constraints: For each constraint, the average of the values that were observed at
            this very point (in this context, since the last reset, within a window); empty if there
            are none. Single values are noisy, so an average of at most 0 does not show that the
            point meets the constraint.
        num_observed: The number of outcomes in these averages.
    """

    x: Tensor
    arm: int | None
    parameters: Mapping[str, Any] | None
    context: Tensor | None
    mean: float
    standard_deviation: float
    certificate: float | None = None
    delta: float | None = None
    lower_bound: float | None = None
    upper_bound: float | None = None
    best_possible: float | None = None
    constraint_bounds: tuple[float, ...] = ()
    among: str = "all"
    theorem: str | None = None
    assumptions: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    trivial_certificate: float | None = None
    may_come: bool = False
    is_penalized: bool = False
    constraint_means: tuple[float, ...] = ()
    observed_constraints: tuple[float, ...] = ()
    num_observed: int = 0

    @property
    def point(self) -> Any:
        """The argument of a function on the domain: named values, or a list of numbers."""
        return self.x.tolist() if self.parameters is None else dict(self.parameters)

    def __str__(self) -> str:
        """Return the recommendation as a few lines of text."""
        arm = "" if self.arm is None else f" (arm {self.arm})"
        name = "mean of the penalized reward" if self.is_penalized else "mean"
        lines = [
            f"deploy {self.point}{arm}: {name} {self.mean:.6g}, "
            f"standard deviation {self.standard_deviation:.6g}",
            *_against_limit("posterior mean", self.constraint_means),
        ]
        many = self.num_observed > 1
        here = f"mean of {self.num_observed} outcomes here" if many else "observed once here:"
        lines += _against_limit(here, self.observed_constraints)
        if self.is_penalized:
            if not self.num_observed:
                lines.append("no constraint value was observed here, so it may exceed its limits")
            lines.append(
                "a violation lowers the penalized reward but does not exclude a point; to exclude "
                "points whose posterior means exceed a limit, attach the outcomes to a loop with "
                "surrogate='separate' and recommend from that"
            )
        lines.append(self._claim())
        lines += [f"assumes: {assumption}" for assumption in self.assumptions]
        lines += [f"because: {reason}" for reason in self.reasons]
        return "\n  ".join(lines)

    @property
    def exceeded(self) -> tuple[int, ...]:
        """The numbers, from 1, of the constraints that the point seems to exceed.

        These are the ones whose ``constraint_bounds``, ``constraint_means`` or
        ``observed_constraints`` are positive. An empty tuple does not show that the point meets
        the constraints.
        """
        known = (self.constraint_bounds, self.constraint_means, self.observed_constraints)
        return tuple(sorted({j + 1 for each in known for j, g in enumerate(each) if g > 0.0}))

    def _claim(self) -> str:
        if self.certificate is None or self.delta is None:
            return "no certificate"
        if self.certificate == self.trivial_certificate:
            return (
                f"certificate: {self.certificate:.6g}, but this is 2 B, by which no two points can "
                f"differ more; the outcomes say nothing beyond that yet; {self.theorem}"
            )
        return (
            f"certificate: no point is better by more than {self.certificate:.6g}, with "
            f"probability {1.0 - self.delta:.6g}; {self.theorem}"
        )


def _against_limit(name: str, values: tuple[float, ...]) -> list[str]:
    """Return a line for each constraint that compares a number with its limit, which is 0."""
    return [
        f"constraint {j}: {name} {value:.4g}, {'' if value > 0.0 else 'not '}above its limit of 0"
        for j, value in enumerate(values, start=1)
    ]


def recommendation_now(
    settings: LoopSettings,
    history: History,
    chooser: Chooser,
    context: Tensor | None,
    among: str,
    now: float,
) -> Recommendation:
    """Return the point to deploy; see :meth:`.BanditLoop.recommend`.

    Args:
        settings: The settings of the loop.
        history: The history of all rounds.
        chooser: The loop's chooser, which has resets, multipliers and the model.
        context: The context for which it is recommended; None in a loop without contexts.
        among: One of :data:`AMONG`.
        now: The time in seconds.

    Raises:
        RuntimeError: If there is no model, or a played point is requested and there is none.
        ValueError: If ``among`` is another string.
    """
    check_one_of("among", among, AMONG)
    if settings.is_random or settings.model is None:
        raise RuntimeError(
            "random search has no model, so no point has a mean. loop.best() is the query with the "
            "largest reward."
        )
    chooser.check_data()
    acquisition, domain = chooser.acquisition_now(context, now)
    guarantee = chooser.guarantee_of(acquisition, domain, of_choices=False)
    lasting = tuple(_reasons_against(guarantee, settings))
    num_pending = sum(query.id >= chooser.segments.first for query in history.pending())
    reasons = (*lasting, *_waiting_for(guarantee, acquisition, num_pending))
    restart = settings.restart
    if restart is not None and restart.is_told_of_change(history.num_queries + 1):
        reasons += (NEXT_CHANGES,)
    rule = settings.constraints
    is_penalized = rule is not None and rule.surrogate != "separate"
    arrived = chooser.arrived(now, context)
    front = arrived.front
    played, only_played = _played(arrived, among == "played", is_penalized)
    names = ("mean",) if reasons else ("lower", "upper")
    ends = [EndOfBounds(acquisition, chooser.model(now), name, settings) for name in names]
    seed = partial(derive_seed, settings.seed, history.num_queries)
    points = domain.choices
    if points is None:
        best = [domain.maximize(end, seed(f"recommend {end.name}"))[0] for end in ends]
        points = torch.stack(best)
    num_played = 0
    if played:
        at_played = _inputs(front, _points(played))
        points, num_played = torch.cat([at_played, points]), len(at_played)
    known = ends[0].look(points)
    candidates = slice(num_played) if only_played else slice(None)
    judged = known
    if reasons and settings.fits:
        model = None if settings.learned is None else chooser.model_of_search(now)
        judged = _in_doubt(known, points, num_played, model, ends[0].maximizes)
    place = ends[0].choose(judged.at(candidates))
    x, here = points[place, -settings.domain.dim :].clone(), known.at(place)
    found: dict[str, Any] = {"mean": float(here.mean), "reasons": reasons}
    if here.constraint_mean is not None:
        found["constraint_means"] = tuple(here.constraint_mean.tolist())
    if not reasons:
        found |= _certificate(here, ends[1], known, domain, guarantee)
    if settings.maximize != ends[0].maximizes:
        found |= {name: 0.0 - found[of] for name, of in NEGATED.items() if of in found}
    told = _told(settings, history, chooser) if settings.num_constraints else []
    observed = [outcome.constraints for query, outcome in told if _is_here(query, x, context)]
    return Recommendation(
        x=x,
        arm=settings.domain.arm_of(x),
        parameters=settings.domain.decode(x),
        context=context,
        standard_deviation=float(here.deviation),
        among=among,
        may_come=bool(found["reasons"]) and not lasting,
        is_penalized=is_penalized,
        observed_constraints=tuple(map(fmean, zip(*observed, strict=True))),
        num_observed=len(observed),
        **found,
    )


def _played(arrived: View, only_played: bool, is_penalized: bool) -> tuple[list[Query], bool]:
    """Return the queries at whose points the model has outcomes, and whether to use no others.

    Args:
        arrived: The view of the outcomes that count.
        only_played: Whether others are not wanted.
        is_penalized: Whether the model is of penalized rewards.
    """
    history = arrived.history
    played = [history.query(i) for i in arrived.ids.tolist()]
    if is_penalized and not played:
        # the surrogate of penalized rewards starts over and has not seen an outcome yet
        played = [history.query(outcome.query_id) for outcome in history.outcomes]
        only_played = only_played or bool(played)
    if only_played and not played:
        raise RuntimeError(
            "no outcome has arrived, so no point was played. Tell an outcome with "
            "loop.tell(query.id, reward), or recommend among all points."
        )
    return played, only_played


def _in_doubt(
    known: Bounds, points: Tensor, num_played: int, learned: Model | None, maximizes: bool
) -> Bounds:
    """Return what is known with means that depend less on hyperparameters that were fitted.

    These may be wrong where nobody looked, so that points which were not played have to beat those
    that were by :data:`DOUBT` posterior standard deviations. Where a few very low outcomes make the
    differences at the top look like noise, played points are compared by the model that chooses
    points, which raises them. Outcomes without noise count as such.

    Args:
        known: What is known at the points, first those that were played.
        points: ``n x d`` inputs of the model.
        num_played: The number of points that were played.
        learned: The model with which points are chosen if it is :class:`.FittedSingleTaskGP`'s;
            None otherwise.
        maximizes: Whether the means have the sign of the model.
    """
    mean, new = known.mean.clone(), slice(num_played, None)
    mean[new] -= DOUBT * known.deviation[new]
    if learned is not None:
        model, played = submodels(learned)[0], points[:num_played]
        is_row, values = model.values_without_noise(played)
        with torch.no_grad():
            values = model.posterior(played).mean.squeeze(-1).masked_scatter(is_row, values)
        mean[:num_played] = values if maximizes else -values
    return known._replace(mean=mean)


def _certificate(
    here: Bounds, upper: EndOfBounds, known: Bounds, domain: Domain, guarantee: Guarantee
) -> dict[str, Any]:
    """Return bounds and certificate of a point, or why it has none.

    Args:
        here: What is known at the point.
        upper: The upper end of the bounds.
        known: What is known at all points that were evaluated.
        domain: The domain of the model's inputs.
        guarantee: The guarantee of the bounds.
    """
    assert here.lower is not None
    assert here.upper is not None
    assert guarantee.bands is not None
    # the bounds are on one function, from which the reward of a round may differ
    variation = 0.0 if guarantee.regret is None else 0.5 * guarantee.regret.added
    lower, worst = float(here.lower) - variation, here.constraint_upper
    found: dict[str, Any] = {"lower_bound": lower, "upper_bound": float(here.upper) + variation}
    if worst is not None:
        found["constraint_bounds"] = tuple(worst.tolist())
        if bool((worst > 0.0).any()):
            return {**found, "reasons": (NOT_MET,)}
    # between the points that were evaluated only the penalized bound is known to be largest
    is_list = domain.choices is not None
    of_points = upper.values(known, EXCLUDES if is_list else WEIGHT_OF_VIOLATION)
    largest = float(of_points.max()) + variation
    # the bounds hold only if B does, and then no two points differ by more than 2 B
    trivial = None if guarantee.regret is None else guarantee.regret.largest
    return {
        **found,
        "best_possible": largest,
        "certificate": min(largest - lower, math.inf if trivial is None else trivial),
        "trivial_certificate": trivial,
        "delta": guarantee.bands.delta,
        "theorem": guarantee.theorem,
        "assumptions": guarantee.assumptions + (() if is_list else (ON_SEARCH,)),
    }


def _reasons_against(guarantee: Guarantee, settings: LoopSettings) -> Iterator[str]:
    """Yield the reasons why the bounds of a loop give no certificate; none if they may."""
    rule, bands = settings.constraints, guarantee.bands
    if rule is not None and rule.surrogate != "separate":
        yield (
            "the model is of the penalized reward, whose bounds say nothing about the reward of "
            "points that meet the constraints; surrogate='separate' has bounds on each"
        )
    if bands is None:
        stated = (f"no confidence bounds are stated for {guarantee.method}",)
        yield from guarantee.gaps or stated
        return
    yield from dict.fromkeys((*guarantee.gaps, *bands.gaps))
    if settings.feedback.censored is not None:
        yield (
            "with censored feedback the bounds are on the reward times the probability that its "
            "outcome arrives in time, which is not known"
        )
    elif bands.reach is None:
        yield (
            "the confidence bounds hold at the points of the rounds, and not at all points at once"
        )
    if bands.reach == "arms" and settings.context_dim:
        yield (
            "the confidence bounds hold in the contexts of the rounds, and this need not be one of "
            "them"
        )


def _waiting_for(guarantee: Guarantee, acquisition: Any, num_pending: int) -> Iterator[str]:
    """Yield the reason if a certificate has to wait for pending outcomes."""
    on_arms = guarantee.bands is not None and guarantee.bands.reach == "arms"
    rules = getattr(acquisition, "width_rules", ())
    if num_pending and (on_arms or any(each.needs_round for each in rules)):
        yield (
            f"{counted(num_pending, 'outcome is', 'outcomes are')} pending, and the width of a "
            "round is valid for one set of outcomes only. Once all have arrived, or failed, there "
            "is a certificate"
        )


def _inputs(front: Tensor, X: Tensor) -> Tensor:
    """Return ``n x d`` points as inputs of the model, with round and context in front."""
    return torch.cat([front.to(X).expand(len(X), -1), X], dim=-1)


class EndOfBounds(AcquisitionFunction):
    """One end of the confidence bounds on the reward, or its mean, as an acquisition function.

    With constraints, a weight times the positive parts of constraint values is subtracted. These
    values are the upper bounds of the lower end, the means, or the lower bounds of the upper end.
    The maximum of the upper end over a domain is, for any weights, at least the largest upper bound
    among the points that may meet all constraints. If the acquisition function minimizes, all ends
    are those of minus the reward.

    Args:
        acquisition: Provides the bounds, without pending points.
        model: Its model, if it does not have one itself.
        name: ``"lower"``, ``"mean"`` or ``"upper"``.
        settings: The settings of the loop.
    """

    def __init__(
        self, acquisition: AcquisitionFunction, model: Model, name: str, settings: LoopSettings
    ) -> None:
        """See the class."""
        own = model_of(acquisition)
        super().__init__(model if own is None else own)
        self._of, self.name = [acquisition], name  # not part of the state
        self.maximizes = bool(getattr(acquisition, "maximize", True))
        units = getattr(acquisition, "_prior_variances", None)
        # lists of priors have no single scale
        variances = torch.ones(1 + settings.num_constraints) if units is None else units()
        self._units = (variances[0] / variances[1:]).sqrt()

    @property
    def value_scale(self) -> ValueScale | None:
        """The scale of the reward, taken from the acquisition function if it knows it."""
        (of,) = self._of
        return of.outcome_scale if isinstance(of, BanditAcquisition) else None

    def look(self, X: Tensor) -> Bounds:
        """Return what is known at ``n x d`` points, without gradients."""
        with torch.no_grad():
            columns = zip(*map(self._known_at, X.split(POINTS_AT_ONCE)), strict=True)
            return Bounds._make(None if each[0] is None else torch.cat(each) for each in columns)

    def _known_at(self, X: Tensor) -> Bounds:
        """Return what acquisition function and model know at ``n x d`` points."""
        (of,) = self._of
        if isinstance(of, BanditAcquisition):
            known = of.known_at(X)
        else:
            transform = getattr(of, "posterior_transform", None)
            known = Bounds(*moments_at(self.model, X, transform))
        if self.maximizes:
            return known
        lower, upper = (None if each is None else -each for each in (known.upper, known.lower))
        return known._replace(mean=-known.mean, lower=lower, upper=upper)

    def values(self, known: Bounds, weight: float = WEIGHT_OF_VIOLATION) -> Tensor:
        """Return the value of each point.

        Args:
            known: What is known at ``n`` points.
            weight: The weight of violations, in prior standard deviations.
        """
        value, limits = {
            "lower": (known.lower, known.constraint_upper),
            "mean": (known.mean, known.constraint_mean),
            "upper": (known.upper, known.constraint_lower),
        }[self.name]
        assert value is not None
        if limits is None:
            return value
        return value - weight * (self._units.to(limits) * limits.clamp_min(0.0)).sum(-1)

    def choose(self, known: Bounds) -> int:
        """Return the number of the point with the largest value that meets the constraints.

        It is the first of equals, and the one that comes closest if none meets them.
        """
        scale = self.value_scale
        if scale is None:
            scale = ValueScale(float(known.mean.mean()), float(known.deviation.max()) or 1.0)
        return int(first_of_the_largest(self.values(known, EXCLUDES), scale=scale))

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the penalized value.

        Args:
            X: ``batch_shape x 1 x d`` points, float64.

        Returns:
            ``batch_shape`` values.
        """
        points = X.reshape(-1, X.shape[-1])
        # without data nothing depends on X; the zero gradient must exist
        values = self.values(self._known_at(points)) + 0.0 * points.sum(-1)
        return values.reshape(X.shape[:-2])


# --- What is best now: the answer of :meth:`.BanditLoop.best` -------------------------------------
#
# If the reward is the same in all rounds, the best is the largest reward that was observed. If it
# is not, only what still counts is considered: the rounds since a reset, the rounds within a
# sliding window, and, if contexts or the age of an outcome matter, the model's means at the
# played points.


def best_now(
    settings: LoopSettings,
    history: History,
    chooser: Chooser,
    context: Tensor | None,
    now: float,
) -> Told | None:
    """Return the query that is best now and its outcome, if there is one.

    Of several outcomes at the point with the largest posterior mean, it is the latest in this
    context, or else the latest of all.

    Args:
        settings: The settings of the loop.
        history: The history of all rounds.
        chooser: The loop's chooser, which has resets, multipliers and the model.
        context: The context for which it is best; None in a loop without contexts.
        now: The time in seconds.
    """
    told = [
        pair
        for pair in _told(settings, history, chooser)
        if max(pair[1].constraints, default=0.0) <= 0.0
    ]
    # a surrogate that starts over in each epoch may not have seen an outcome yet
    by_model = context is not None or not settings.outcomes_are_alike
    arrived = chooser.arrived(now, context)
    if not (by_model and settings.model is not None and len(arrived.ids)):
        told = [pair for pair in told if _is_here(pair[0], pair[0].x, context)]
        return max(told, key=lambda pair: history.rank(pair[1]), default=None)
    if not told or chooser.has_no_data(arrived):
        return None
    points = _points([query for query, _ in told])
    with torch.no_grad():
        means, _ = moments_at(chooser.model(now), _inputs(arrived.front, points))
    best = points[means.argmax()]
    here = [pair for pair in told if torch.equal(pair[0].x, best)]
    return ([pair for pair in here if _is_here(pair[0], best, context)] or here)[-1]


def _told(settings: LoopSettings, history: History, chooser: Chooser) -> list[Told]:
    """Return the queries since the last reset, within the window, that have outcomes."""
    first = chooser.restarts.first
    if settings.window is not None:
        first = max(first, history.num_queries - settings.window)
    return [(history.query(o.query_id), o) for o in history.outcomes if o.query_id >= first]


def _points(queries: list[Query]) -> Tensor:
    """Return the distinct points of queries, ``n x d``, in the order in which they came first."""
    return distinct(torch.stack([query.x for query in queries]))


def _is_here(query: Query, x: Tensor, context: Tensor | None) -> bool:
    """Return whether a query was asked at a point and in a context, to the last bit."""
    if context is not None and not (
        query.context is not None and torch.equal(query.context.to(context), context)
    ):
        return False
    return torch.equal(query.x.to(x), x)


# --- How the outcomes of a loop agree with its model, and with each prior on a list ---------------
# The check of the loop's model refuses rows that are not outcomes as they were told.


ALIKE = (
    "the model fades old outcomes, but the check treats all of them equally, as if the reward did "
    "not change"
)
"""What the check of a model with exponential weights does not take into account."""


def check_of_loop(settings: LoopSettings, model: Model, view: View) -> ModelCheck:
    """Return how the outcomes since the last reset agree with the model of the reward.

    Args:
        settings: The settings of the loop.
        model: The loop's model now.
        view: The view of the outcomes that count, ``n`` rows.

    Raises:
        RuntimeError: If the model's rows are not outcomes.
    """
    check, rounds = _check_rows(settings, model, view), view.ids + 1
    # of a list of priors, the first outcomes may be left out; merged rows have no single round
    rounds = rounds[max(len(rounds) - len(check.one_step), 0) :]
    return check if len(rounds) != len(check.one_step) else replace(check, rounds=rounds)


def _check_rows(settings: LoopSettings, model: Model, view: View) -> ModelCheck:
    if settings.feedback.censored is not None:
        raise RuntimeError(
            "with censored feedback the model has pseudo-values for missing outcomes, and how it "
            "predicts those says nothing about it. Pass outcomes and a model of them to "
            "botorch_bandits.confidence.check_model."
        )
    if isinstance(model, ModelList):  # the model of the reward, then of the constraints
        model = model.models[0]
    if isinstance(model, CandidatesModel):
        return check_model(model, weights=view.weight)
    repeats = getattr(model, "repeats", None)
    if repeats is None:
        return check_model(model)
    if settings.constraints is not None and settings.constraints.surrogate != "separate":
        if len(repeats) == len(view.ids):  # weights of outcomes none of which were merged
            return check_model(model, weights=repeats)
        raise RuntimeError(
            "the model's rows are means of penalized rewards, whose order is lost. Use "
            "surrogate='separate', or a domain whose points are not repeated."
        )
    X, weights = view.inputs(view.ids), view.weight  # n x (context_dim + d)
    Y = view.Y[:, :1].to(X.device)
    if settings.drift_rate is not None:
        return check_model(model, weights=repeats)  # its rows, with their times
    if weights is not None and settings.learned is not None:
        weights = weights * (repeats.sum() / weights.sum())  # only ratios of counts matter there
    check = check_model(model, X, Y, weights)
    if view.fading is not None:
        return replace(check, cautions=(ALIKE,))
    return check


def evidence_of_loop(
    settings: LoopSettings, chooser: Chooser, now: float, level: float | None
) -> EvidenceTable:
    """Return the evidence of the outcomes since the last reset for each prior on the list.

    Args:
        settings: The settings of the loop.
        chooser: The chooser of the loop.
        now: The time in seconds.
        level: See :meth:`.BanditLoop.evidence`.

    Raises:
        RuntimeError: If the loop's model is not a list of priors, or a user's model lacks data.
    """
    model = None if settings.model is None else chooser.model(now)
    if not isinstance(model, CandidatesModel):
        remedy = "Pass BanditGP.with_candidates([...]) as model="
        if settings.drift_rate is not None:
            remedy = (
                f"forgetting=TimeVaryingKernel({settings.drift_rate:g}) needs one fixed prior; to "
                "compare several, attach the outcomes to one loop for each and compare their "
                "check_model().log_likelihood"
            )
        if settings.evidence is not None and settings.evidence.candidates is not None:
            remedy += (
                ". The list of EvidenceRestart(candidates=...) has its posterior weights in "
                "loop.change_tests[-1].candidate_weights"
            )
        raise RuntimeError(f"the loop's model is not a list of priors. {remedy}.")
    level = 0.5 * chooser.delta_now(0.1) if level is None else level
    table = model.evidence.table(level)
    return replace(table, outcome_name="reward" if settings.maximize else "cost")


def warn_of_drift_rate(settings: LoopSettings) -> None:
    """Warn if the model drifts and the test for changes assumes another drift, or none.

    Args:
        settings: The settings of the loop.

    Warns:
        UserWarning: Naming both rates.
    """
    rate, evidence = settings.drift_rate, settings.evidence
    if rate is None or evidence is None or evidence.drift_rate == rate:
        return
    tested = evidence.drift_rate
    effect = (
        "steady drift counts as a change"
        if tested is None or tested < rate
        else "changes are harder to detect"
    )
    warnings.warn(
        f"forgetting=TimeVaryingKernel({rate:g}) drifts, but restart=EvidenceRestart(...) has "
        f"drift_rate={tested if tested is None else format(tested, 'g')}, so that {effect}. Pass "
        f"EvidenceRestart(drift_rate={rate:g}).",
        UserWarning,
        stacklevel=level_of_users_line(),
    )


# --- The warning of a loop that keeps asking for a point at which every evaluation fails ----------
#
# A failure that is reported without ``avoid=True`` is treated as chance: the model does not
# change, so the same point maximizes the acquisition function again.


MOST_AT_A_POINT = 3
"""The number of consecutive failures at one point after which a loop warns."""

SAME_POINT = 1e-3
"""Points of a box count as the same if they differ by at most this share of each range."""


class RepeatedFailureWarning(RuntimeWarning):
    """A point fails each time it is asked for, and the loop was not told to avoid it."""


def warn_of_repeated_failures(settings: LoopSettings, history: History) -> None:
    """Warn if the last three evaluations failed at one point that the loop does not avoid.

    Args:
        settings: The settings of the loop.
        history: The history, which ends with a failure. Further failures in the same series are not
            reported again.
    """
    # otherwise avoid=True would change nothing
    if not settings.feedback.hallucinates or settings.is_random:
        return
    events = history.events[-MOST_AT_A_POINT - 1 :]
    row, before = events[-MOST_AT_A_POINT:], events[:-MOST_AT_A_POINT]
    if len(row) < MOST_AT_A_POINT:
        return
    query = history.query(row[-1].query_id)
    tolerance: float | Tensor = 0.0
    if settings.domain.bounds is not None:
        lower, upper = settings.domain.bounds
        tolerance = SAME_POINT * (upper - lower)

    def is_there(x: Tensor) -> bool:
        return bool(((x - query.x).abs() <= tolerance).all())

    def failed_there(event: Event) -> bool:
        is_failure = event.state == Failure.state and not event.avoided
        return is_failure and is_there(history.query(event.query_id).x)

    if not all(map(failed_there, row)):
        return
    if any(map(failed_there, before)):
        return  # the warning was issued before
    if any(is_there(history.query(outcome.query_id).x) for outcome in history.outcomes):
        return
    warnings.warn(
        f"the point ({point_text(query)}) failed {MOST_AT_A_POINT} times in a row and never gave "
        "an outcome, and the loop will go on asking for it. If the point is the cause, pass "
        "avoid=True: loop.fail(query.id, reason, avoid=True).",
        RepeatedFailureWarning,
        stacklevel=level_of_users_line(),
    )


# --- Whether a machine makes the choices that are on record: a run is played again from its log ---


SAME_CHOICE = 1e-6
"""Two searches of a box end within so much of its sides of the same maximum."""


def differences_of_replay(
    settings: LoopSettings, history: History, decided: Decided, progress: bool | None = None
) -> tuple[str, ...]:
    """Return where the choices of a run, made again, differ from those on record.

    Args:
        settings: The settings of the loop.
        history: The history.
        decided: The resets on record.
        progress: Whether to show a progress bar; None shows it if tqdm is installed.
    """
    replayed = History(*settings.history_sizes)
    # a retraction moves resets, and what was on record before it is not known any more
    known = NOTHING_DECIDED if history.retractions else decided
    chooser = Chooser(settings, replayed, known)
    found: list[str] = []
    with progress_bar(history.num_queries, "check_log", progress) as advance:
        for entry in _in_order_of_recording(history):
            if isinstance(entry, Query) and entry.origin != "attached":
                found += _differences(settings, chooser, entry)
                advance()
            replayed.record(entry)
            if isinstance(entry, Retraction):
                chooser = Chooser(settings, replayed)
            else:
                chooser.hear([entry])
    own = Chooser(settings, history).restarts
    if decided != NOTHING_DECIDED and not own.agrees_with(decided):
        rounds, recorded = (
            [each["after_round"] for each in resets] for resets in (own.decisions, decided.resets)
        )
        found.append(
            f"tests decide on resets after rounds {rounds} here, and after {recorded} on record."
        )
    return tuple(found)


def _in_order_of_recording(history: History) -> list[Query | Event]:
    """Return what was asked, told and withdrawn, in the order in which it counts."""
    rows: list[tuple[int, Query | Event]] = [(q.round_number, q) for q in history.queries]
    rows += [(e.arrived_round, e.ever_told or e) for e in history.events]
    rows += [(r.retracted_round, r) for r in history.retractions]
    return [entry for _, entry in sorted(rows, key=lambda row: row[0])]


def _differences(settings: LoopSettings, chooser: Chooser, query: Query) -> list[str]:
    limits = recorded_restriction(settings, query.restriction)
    x, origin, _ = chooser.choose(query.context, query.asked_at, limits)
    if origin != query.origin:
        return [f"query {query.id} is on record as {query.origin!r}, and is {origin!r} here."]
    if _are_equal(settings, x, query.x):
        return []
    return [f"query {query.id} is at {query.x.tolist()} on record, and at {x.tolist()} here."]


def _are_equal(settings: LoopSettings, one: Tensor, other: Tensor) -> bool:
    if settings.domain.bounds is None or settings.domain.choices is not None:
        return torch.equal(one, other)
    lower, upper = settings.domain.bounds
    return bool(((one - other).abs() <= SAME_CHOICE * (upper - lower)).all())

r"""Which point to deploy, and a bound on its regret: :meth:`.BanditLoop.recommend`.

The largest observed outcome is the largest of noisy numbers: it is biased upward, and many points
could have produced it. If confidence bounds ``L <= f <= U`` hold at all points at once, the point
with the largest ``L`` is within

.. math:: \max_z U(z) - L(x)

of the best one, and this number is the certificate. If they also hold in all rounds at once, it
remains valid when the loop is stopped because of it, as in the elimination rules of best-arm
identification. Otherwise the point with the largest posterior mean is recommended, with the reason
why there is no certificate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from botorch_bandits.acquisition.scores import Bounds
from botorch_bandits.checks import check_one_of, counted
from botorch_bandits.confidence import Guarantee
from botorch_bandits.domains import Domain, ValueScale, first_of_the_largest, value_scale_of
from botorch_bandits.history import History, Query
from botorch_bandits.loop.settings import LoopSettings, model_of
from botorch_bandits.random_streams import derive_seed

if TYPE_CHECKING:
    from botorch_bandits.loop.chooser import Chooser


from typing import TYPE_CHECKING

from botorch_bandits.checks import DTYPE
from botorch_bandits.history import Outcome

if TYPE_CHECKING:
    from botorch_bandits.loop.chooser import Chooser


from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model

from botorch_bandits.acquisition.base import BanditAcquisition
from botorch_bandits.acquisition.scores import moments_at

AMONG = ("all", "played")
"""The points among which one is recommended: the whole domain, or those with an outcome."""

POINTS_AT_ONCE = 4096
"""The number of arms evaluated together if they have no statistics of their own."""

WEIGHT_OF_VIOLATION = 10.0
"""In a search, the cost of a constraint's prior standard deviation in those of the reward."""

NOT_MET = "no point is known to meet all constraints; the point that comes closest is recommended"
"""Why there is no certificate if every upper bound of some constraint is positive."""


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
            f"standard deviation {self.standard_deviation:.6g}"
        ]
        lines += [f"  {line}" for line in self._of_constraints()]
        lines.append(f"  {self._claim()}")
        lines += [f"  assumes: {assumption}" for assumption in self.assumptions]
        lines += [f"  because: {reason}" for reason in self.reasons]
        return "\n".join(lines)

    @property
    def exceeded(self) -> tuple[int, ...]:
        """The numbers, from 1, of the constraints that the point seems to exceed.

        These are the ones whose ``constraint_bounds``, ``constraint_means`` or
        ``observed_constraints`` are positive. An empty tuple does not show that the point meets
        the constraints.
        """
        known = (self.constraint_bounds, self.constraint_means, self.observed_constraints)
        return tuple(sorted({j + 1 for each in known for j, g in enumerate(each) if g > 0.0}))

    def _of_constraints(self) -> list[str]:
        """Return what is known about the constraints at the point, a line for each statement."""
        lines: list[str] = []
        if self.constraint_means:
            lines += _against_limit("posterior mean", self.constraint_means)
        if self.observed_constraints:
            many = self.num_observed > 1
            name = f"mean of {self.num_observed} outcomes here" if many else "observed once here:"
            lines += _against_limit(name, self.observed_constraints)
        elif self.is_penalized:
            lines.append("no constraint value was observed here, so it may exceed its limits")
        if self.is_penalized:
            lines.append(
                "a violation lowers the penalized reward but does not exclude a point; to exclude "
                "points whose posterior means exceed a limit, attach the outcomes to a loop with "
                "surrogate='separate' and recommend from that"
            )
        return lines

    def _claim(self) -> str:
        if self.certificate is None:
            return "no certificate"
        assert self.delta is not None
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
        f"constraint {j}: {name} {value:.4g}, "
        + ("above its limit of 0" if value > 0.0 else "not above its limit of 0")
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
    if chooser.has_no_data():
        raise RuntimeError(
            "no outcome has arrived, so the model cannot be built. Tell the first outcome with "
            "loop.tell(query.id, reward)."
        )
    acquisition, domain = chooser.acquisition_now(context, now)
    guarantee = chooser.guarantee_of(acquisition, domain, of_choices=False)
    reasons = lasting = tuple(reasons_against(guarantee, settings))
    num_pending = sum(query.id >= chooser.first for query in history.pending())
    reasons += tuple(_waiting_for(guarantee, acquisition, num_pending))
    search = _Search(
        settings, history, chooser, acquisition, domain, context, now, is_certain=not reasons
    )
    place, known = search.best(among == "played")
    x = place[-settings.domain.dim :].clone()
    found: dict[str, Any] = {}
    if not reasons:
        found, reasons = search.certified(known)
        if not reasons:
            assert guarantee.bands is not None
            # the bounds hold only if B does, and then no two points differ by more than 2 B
            trivial = None if guarantee.regret is None else guarantee.regret.largest
            if trivial is not None:
                found["certificate"] = min(found["certificate"], trivial)
                found["trivial_certificate"] = trivial
            found |= {"delta": guarantee.bands.delta, "theorem": guarantee.theorem}
            found["assumptions"] = (*guarantee.assumptions, *search.assumptions)
    rule = settings.constraints
    if known.constraint_mean is not None:
        found["constraint_means"] = tuple(known.constraint_mean.tolist())
    observed = _constraints_observed(settings, history, chooser, x, context)
    if len(observed):
        found["observed_constraints"] = tuple(observed.mean(0).tolist())
        found["num_observed"] = len(observed)
    arms = settings.domain.arms
    found_here = Recommendation(
        x=x,
        arm=None if arms is None else int(arms.index_of(x.unsqueeze(0))),
        parameters=settings.domain.decode(x),
        context=context,
        mean=float(known.mean),
        standard_deviation=float(known.deviation),
        among=among,
        reasons=reasons,
        may_come=bool(reasons) and not lasting,
        is_penalized=rule is not None and rule.surrogate != "separate",
        **found,
    )
    return found_here if settings.maximize else _turned(found_here)


def _constraints_observed(
    settings: LoopSettings, history: History, chooser: Chooser, x: Tensor, context: Tensor | None
) -> Tensor:
    """Return the constraint values that count and were observed at a point, one row each."""
    if settings.num_constraints == 0:
        return torch.zeros(0, 0, dtype=x.dtype)
    first = chooser.restarts.first
    if settings.window is not None:
        first = max(first, history.num_queries - settings.window)
    rows = []
    for outcome in history.outcomes:
        query = history.query(outcome.query_id)
        is_here = torch.equal(query.x, x.to(query.x)) and (
            context is None or (query.context is not None and torch.equal(query.context, context))
        )
        if query.id >= first and is_here:
            rows.append(outcome.constraints)
    return torch.tensor(rows, dtype=x.dtype).reshape(-1, settings.num_constraints)


def _turned(found: Recommendation) -> Recommendation:
    """Return the recommendation of a loop that minimizes, in the sign of its costs.

    Args:
        found: The recommendation for minus the cost.
    """

    def minus(value: float | None) -> float | None:
        return None if value is None else 0.0 - value

    return replace(
        found,
        mean=0.0 - found.mean,
        lower_bound=minus(found.upper_bound),
        upper_bound=minus(found.lower_bound),
        best_possible=minus(found.best_possible),
    )


def reasons_against(guarantee: Guarantee, settings: LoopSettings) -> Iterator[str]:
    """Yield the reasons why the bounds of a loop give no certificate; none if they may.

    Args:
        guarantee: The guarantee of the bounds from the outcomes that arrived.
        settings: The settings of the loop.
    """
    rule = settings.constraints
    if rule is not None and rule.surrogate != "separate":
        yield (
            "the model is of the penalized reward, whose bounds say nothing about the reward of "
            "points that meet the constraints; surrogate='separate' has bounds on each"
        )
    bands = guarantee.bands
    yield from guarantee.gaps
    if bands is None:
        if not guarantee.gaps:
            yield f"no confidence bounds are stated for {guarantee.method}"
        return
    yield from (gap for gap in bands.gaps if gap not in guarantee.gaps)
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
    bands = guarantee.bands
    rules = getattr(acquisition, "width_rules", ())
    is_finite = bands is not None and bands.reach == "arms"
    by_round = is_finite or any(each.needs_round for each in rules)
    if num_pending and by_round:
        yield (
            f"{counted(num_pending, 'outcome is', 'outcomes are')} pending, and the width of a "
            "round is valid for one set of outcomes only. Once all have arrived, or failed, there "
            "is a certificate"
        )


class _Search:
    """Searches for the point to deploy, and for the best value that any point may have.

    Args:
        settings: The settings of the loop.
        history: The history of all rounds.
        chooser: The loop's chooser.
        acquisition: The acquisition of the next round, without pending points.
        domain: The domain of the model's inputs in the context.
        context: The context, or None.
        now: The time in seconds.
        is_certain: Whether the confidence bounds hold.
    """

    def __init__(
        self,
        settings: LoopSettings,
        history: History,
        chooser: Chooser,
        acquisition: Any,
        domain: Domain,
        context: Tensor | None,
        now: float,
        is_certain: bool,
    ) -> None:
        """See the class."""
        self._settings, self._history, self._chooser = settings, history, chooser
        self._acquisition, self._domain, self._context = acquisition, domain, context
        self._is_certain, self._now = is_certain, now
        self._maximize = bool(getattr(acquisition, "maximize", True))
        self._side = "lower" if is_certain else "mean"
        self._played, self._only_played = self._told(), False
        rule = settings.constraints
        if rule is not None and rule.surrogate != "separate" and not self._played:
            # the surrogate of penalized rewards starts over and has not seen an outcome yet
            self._played = [history.query(outcome.query_id) for outcome in history.outcomes]
            self._only_played = bool(self._played)
        self._points, self._known = self._look()

    def best(self, among_played: bool) -> tuple[Tensor, Bounds]:
        """Return the point to deploy, as an input of the model, with its statistics.

        Args:
            among_played: Whether only points with an outcome may be deployed.
        """
        points, known = self._points, self._known
        if among_played or self._only_played:
            rows = self._played_rows()
            points, known = points[rows], known.at(rows)
        index = self._choose(known)
        return points[index], known.at(index)

    def certified(self, known: Bounds) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return bounds and certificate of a point, or why it has none.

        Args:
            known: The statistics at the point.
        """
        assert known.lower is not None
        assert known.upper is not None
        found: dict[str, Any] = {
            "lower_bound": float(known.lower),
            "upper_bound": float(known.upper),
        }
        worst = known.constraint_upper
        if worst is not None:
            found["constraint_bounds"] = tuple(worst.tolist())
            if bool((worst > 0.0).any()):
                return found, (NOT_MET,)
        top = self._best_possible()
        sign = 1.0 if self._maximize else -1.0
        least = sign * float(known.lower if self._maximize else known.upper)
        return {**found, "best_possible": sign * top, "certificate": top - least}, ()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions that the search adds to those of the bounds."""
        if self._settings.domain.arms is not None:
            return ()
        return (
            "no point of the domain has a better bound than the best that was found by a numerical "
            "search: if one has, the certificate is too small by the difference",
        )

    def _look(self) -> tuple[Tensor, Bounds]:
        """Return the points that are evaluated, with their statistics."""
        domain = self._domain
        with torch.no_grad():
            if domain.choices is not None:
                quick = None
                if self._context is None and self._settings.forgetting is None:
                    quick = self._chooser.bounds_on_arms()
                return domain.choices, self._at(domain.choices) if quick is None else quick
            points = self._with_front(torch.stack([q.x for q in self._played] or [self._found()]))
        sides = (self._side, "upper") if self._is_certain else (self._side,)
        # the first search is for the point to deploy
        self._searched = {side: self._maximize_side(side, points) for side in sides}
        points = torch.cat([points, *(x.unsqueeze(0) for x in self._searched.values())])
        with torch.no_grad():
            return points, self._at(points)

    def _found(self) -> Tensor:
        """Return a point of the domain, if none was played."""
        return self._settings.domain.sample(1, torch.Generator().manual_seed(0)).squeeze(0)

    def _maximize_side(self, side: str, played: Tensor) -> Tensor:
        """Return the best point that a search of the domain finds, for one end of the bounds."""
        bound = BoundOfReward(
            self._acquisition, self._model, side, self._maximize, self._weights(played)
        )
        seed = derive_seed(self._settings.seed, self._history.num_queries, f"recommend {side}")
        return self._domain.maximize(bound, seed)[0].to(played)

    def _weights(self, played: Tensor) -> Tensor | None:
        """Return the cost of a violation in a search; None without separate constraints."""
        units = getattr(self._acquisition, "_prior_variances", None)
        if self._settings.num_constraints == 0:
            return None
        with torch.no_grad():
            known = self._at(played[:1])
        if known.constraint_mean is None:
            return None
        if units is None:  # lists of priors, which have no single scale
            return WEIGHT_OF_VIOLATION * torch.ones_like(known.constraint_mean[0])
        deviations = units().sqrt()
        return WEIGHT_OF_VIOLATION * deviations[0] / deviations[1:]

    @property
    def _model(self) -> Any:
        own = model_of(self._acquisition)
        return self._chooser.model(self._now) if own is None else own

    def _at(self, points: Tensor) -> Bounds:
        parts = [
            bounds_at(self._acquisition, self._model, part) for part in points.split(POINTS_AT_ONCE)
        ]
        columns = zip(*parts, strict=True)
        return Bounds._make(None if each[0] is None else torch.cat(each) for each in columns)

    def _choose(self, known: Bounds) -> int:
        """Return the number of the point to deploy, the first of equals."""
        bound = BoundOfReward(self._acquisition, self._model, self._side, self._maximize)
        values = bound.values(known)
        scale = value_scale_of(self._acquisition) or ValueScale(
            unit=float(known.deviation.max()) or 1.0
        )
        side = known.constraint_upper if self._is_certain else known.constraint_mean
        if side is not None:
            meets = (side <= 0.0).all(-1)
            if not bool(meets.any()):
                return int(side.clamp_min(0.0).square().sum(-1).argmin())
            values = values.where(meets, values.min() - 1.0 - scale.unit)
        return int(first_of_the_largest(values, scale=scale))

    def _best_possible(self) -> float:
        """Return the largest upper bound of the domain, of minus the reward when minimizing."""
        known = self._known
        bound = BoundOfReward(self._acquisition, self._model, "upper", self._maximize)
        values = bound.values(known)
        if self._domain.choices is not None:
            if known.constraint_lower is not None:
                values = values[(known.constraint_lower <= 0.0).all(-1)]
            return float(values.max())
        weights = self._weights(self._points)
        penalized = BoundOfReward(self._acquisition, self._model, "upper", self._maximize, weights)
        return float(penalized.values(known).max())

    def _told(self) -> list[Query]:
        """Return the queries since the last reset, within the window, whose outcomes arrived."""
        ids = self._chooser.arrived(self._now).ids
        return [self._history.query(i) for i in ids.tolist()]

    def _played_rows(self) -> Tensor:
        """Return the indices of the evaluated points that were played."""
        if not self._played:
            raise RuntimeError(
                "no outcome has arrived, so no point was played. Tell an outcome with "
                "loop.tell(query.id, reward), or recommend among all points."
            )
        domain = self._settings.domain.arms
        if domain is None:
            return torch.arange(len(self._points) - len(self._searched))
        return domain.index_of(torch.stack([query.x for query in self._played])).unique()

    def _with_front(self, points: Tensor) -> Tensor:
        """Put context and round in front of points, as in the model's inputs."""
        if self._domain is self._settings.domain:
            return points
        front = self._domain.sample(1, torch.Generator().manual_seed(0))[:, : -points.shape[-1]]
        return torch.cat([front.to(points).expand(len(points), -1), points], dim=-1)


# --- What is best now: the answer of :meth:`.BanditLoop.best` -------------------------------------
#
# If the reward is the same in all rounds, the best is the largest reward that was observed. If it
# is not, only what still counts is considered: the rounds since a reset, the rounds within a
# sliding window, and, if contexts or the age of an outcome matter, the model's means at the
# played points.


Told = tuple[Query, Outcome]


def best_now(
    settings: LoopSettings,
    history: History,
    chooser: Chooser,
    context: Tensor | None,
    now: float,
) -> Told | None:
    """Return the query that is best now and its outcome, if there is one.

    Args:
        settings: The settings of the loop.
        history: The history of all rounds.
        chooser: The loop's chooser, which has resets, multipliers and the model.
        context: The context for which it is best; None in a loop without contexts.
        now: The time in seconds.
    """
    first_id, window = chooser.restarts.first, settings.window
    if context is None and settings.forgetting is None and first_id == 0:
        if chooser.multipliers is None:
            return history.best()
        best = chooser.multipliers.best
        return None if best is None else (history.query(best.query_id), best)
    if window is not None:
        first_id = max(first_id, history.num_queries - window)
    told = [
        (history.query(outcome.query_id), outcome)
        for outcome in history.outcomes
        if outcome.query_id >= first_id and max(outcome.constraints, default=0.0) <= 0.0
    ]
    is_by_model = context is not None or not settings.outcomes_are_alike
    # a surrogate that starts over in each epoch may not have seen an outcome yet
    if is_by_model and settings.model is not None and len(chooser.arrived(now).ids):
        return _best_of_model(told, chooser, context, settings, now)
    if context is not None:
        told = [(query, outcome) for query, outcome in told if is_in(query, context)]
    return max(told, key=lambda pair: history.rank(pair[1]), default=None)


def is_in(query: Query, context: Tensor) -> bool:
    """Return whether a query was asked in a context, to the last bit."""
    asked_in = query.context
    return asked_in is not None and torch.equal(asked_in.to(context), context)


def _best_of_model(
    told: list[Told], chooser: Chooser, context: Tensor | None, settings: LoopSettings, now: float
) -> Told | None:
    """Return the point with the largest posterior mean among those that were played.

    Of several outcomes there, it is the latest in this context, or else the latest of all.
    """
    if not told or chooser.has_no_data():
        return None
    points: dict[tuple[float, ...], list[Told]] = {}
    for pair in told:
        points.setdefault(tuple(pair[0].x.tolist()), []).append(pair)
    X = torch.stack([pairs[0][0].x for pairs in points.values()])
    front = [] if context is None else [context.to(X)]
    if settings.drift_rate is not None:
        next_round = float(chooser.local_round)
        front.insert(0, torch.tensor([next_round], dtype=DTYPE, device=X.device))
    if front:
        X = torch.cat([torch.cat(front).expand(len(X), -1), X], dim=-1)
    with torch.no_grad():
        means = chooser.model(now).posterior(X).mean[:, 0]
    pairs = list(points.values())[int(means.argmax())]
    here = [pair for pair in pairs if context is not None and is_in(pair[0], context)]
    return (here or pairs)[-1]


# --- One end of the confidence bounds on the reward, as a function that a domain can maximize -----
#
# An acquisition function returns one number for each point. To decide when to stop, or which
# point to deploy, a user also needs the lower bound, the bounds of the constraints and the mean.
# :class:`BoundOfReward` turns them into a function that a domain can maximize. ``guarantee()``
# reports whether the bounds hold.


def bounds_at(acquisition: AcquisitionFunction, model: Model, X: Tensor) -> Bounds:
    """Return what an acquisition function and its model know at some points.

    Pending points must not have been passed to the acquisition function.

    Args:
        acquisition: One from this package, or any other, of which only the model is asked.
        model: Its model. If it has several outputs, the first one is the reward.
        X: ``n x d`` points, float64.

    Raises:
        UnsupportedError: If the model has no posterior mean and variance.
    """
    if isinstance(acquisition, BanditAcquisition):
        return acquisition.known_at(X)
    return Bounds(*moments_at(model, X, getattr(acquisition, "posterior_transform", None)))


class BoundOfReward(AcquisitionFunction):
    """A confidence bound on the reward, or its mean, as an acquisition function.

    With constraints, ``weights`` times the positive parts of constraint values is subtracted. These
    values are the upper bounds with ``side="lower"``, the means with ``"mean"``, and the lower
    bounds with ``"upper"``. With ``"upper"``, the maximum over a domain is, for any weights, at
    least the largest upper bound among the points that may meet all constraints.

    Args:
        acquisition: The acquisition function that provides the bounds, without pending points.
        model: Its model.
        side: ``"lower"``, ``"mean"`` or ``"upper"``: the pessimistic end of the bounds, the mean,
            or the other end. If the reward is minimized, all three refer to minus the reward.
        maximize: If False, the bound is on minus the reward, whose lower bound is minus the upper
            one.
        weights: One for each constraint; None without constraints.
    """

    def __init__(
        self,
        acquisition: AcquisitionFunction,
        model: Model,
        side: str,
        maximize: bool = True,
        weights: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(model)
        self._of, self._side, self._weights = [acquisition], side, weights  # not part of the state
        self._sign = 1.0 if maximize else -1.0

    @property
    def value_scale(self) -> ValueScale | None:
        """The scale of the reward, taken from the acquisition function."""
        return value_scale_of(self._of[0])

    def values(self, known: Bounds) -> Tensor:
        """Return ``n`` values from what is known at ``n`` points.

        Args:
            known: The result of :func:`bounds_at`, with bounds unless the side is the mean.
        """
        of_reward, of_constraints = {
            "lower": (known.lower if self._sign > 0.0 else known.upper, known.constraint_upper),
            "mean": (known.mean, known.constraint_mean),
            "upper": (known.upper if self._sign > 0.0 else known.lower, known.constraint_lower),
        }[self._side]
        assert of_reward is not None
        value = self._sign * of_reward
        if self._weights is None:
            return value
        assert of_constraints is not None
        return value - (self._weights * of_constraints.clamp_min(0.0)).sum(-1)

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the bound.

        Args:
            X: ``batch_shape x 1 x d`` points, float64.

        Returns:
            ``batch_shape`` values.
        """
        points = X.reshape(-1, X.shape[-1])
        # without data nothing depends on X; the zero gradient must exist
        values = self.values(bounds_at(self._of[0], self.model, points)) + 0.0 * points.sum(-1)
        return values.reshape(X.shape[:-2])

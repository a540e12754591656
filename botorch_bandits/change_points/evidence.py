r"""Change detection by evidence: every outcome counts, and the level needs no calibration.

Before each outcome, a model of the data since the last reset (the null) and fresh models of the
data since each of several later starts (the alternatives) predict it. With the one-step predictive
densities :math:`p_i` and :math:`q_{j,i}` of outcome ``i``,

.. math::
   E_j(n) = \prod_{i=j}^{n} \frac{q_{j,i}(y_i)}{p_i(y_i)}, \qquad
   M_n = \sum_{j=2}^{n} w_j E_j(n) + r_n, \qquad
   w_j = \frac{J}{(j - 2 + J) (j - 1 + J)}, \qquad r_n = \frac{J}{n - 1 + J} .

As long as nothing changes, each :math:`E_j`, and therefore also :math:`M_n`, is a product of
conditional densities divided by the density of the data. So :math:`M_n` is a martingale that starts
at 1, regardless of the rule that chose the inputs, and by Ville's inequality it ever reaches
:math:`1/\alpha` with probability at most :math:`\alpha`. The rest :math:`r_n` is the weight of the
starts to come.

**Few starts.** A start of age :math:`a = n - j + 1` is kept if :math:`2^e` divides ``j``, with
:math:`e = \max(0, \lfloor \log_2 (a / 2) \rfloor)`, which keeps two for every doubling of the age.
What a dropped start has won goes to the next later start that is kept. This bet is decided before
the next outcome, so the sum remains a martingale and nothing is lost.

**Several segments.** The clock starts over with each reset, and segment ``k`` has the level
:math:`6 \alpha / (\pi k)^2`.

**Late outcomes.** A start opens when its query is issued. An outcome changes only the starts up to
its own query, and is predicted from the outcomes that had arrived before it.

**A null that is a family.** With members :math:`h`, likelihoods :math:`L_h` and fixed weights, the
null predicts with their mixture :math:`\bar L`, and the statistic is

.. math:: \ln M_n + \ln \bar L(y_{1..n}) - \max_h \ln L_h(y_{1..n}),

which for each member is at most the logarithm of a martingale. The members of the robust form have
more noise and heavier tails than the model; the composite form has one member for each prior on a
list.

The robust form over a list combines both: each prior with each of these members. An alternative is
then the mixture over the list of fresh models, each with its best member before the outcome. This
is a product of densities that are fixed beforehand, whatever the members, so that :math:`e^{\ln M_n
+ \ln \bar L - \ln L_h}` is a martingale for every prior on the list as it stands (the member
without more noise), and the level is exact for each of them.

**A null that drifts** has the covariance :math:`k(x, x') (1 - \epsilon)^{|t - t'| / 2}` between
rounds, both in the null and in the alternatives. All of the above holds for draws from that
process, because it does not depend on how the predictions are made.

**A null that is a ball.** For a fixed function :math:`f` and R-sub-Gaussian noise, if the models
have the noise variance :math:`R^2`,

.. math:: \ln M_n + \ln p(y_{1..n}) - \max_{\|f\|_k \le B} \sum_i \ln N(y_i; f(x_i), R^2)

is at most the logarithm of a supermartingale: the predictions are mixtures of :math:`N(g, R^2)`
that are fixed beforehand, and the mean of :math:`\exp((g - f) (y_i - f) / R^2 - (g - f)^2 / (2
R^2))` is at most 1. Only outcomes since the reset count, so it does not matter which rows the null
has kept.

Source: Ville 1939 for the inequality; Shin, Ramdas and Rinaldo 2022 for such processes in change
detection. The weights, the choice of the starts that are kept, and the families are our own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from botorch.models.transforms.input import InputTransform
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.change_points.fit_in_ball import log_likelihood_in_ball
from botorch_bandits.checks import (
    DTYPE,
    check_instance,
    check_integer,
    check_observed,
    check_positive,
    check_probability,
    check_vector,
    store_bounds,
    store_checked,
)
from botorch_bandits.confidence.prior_reading import learns_input_scale
from botorch_bandits.core.kernels import TimeDecayKernel, kernel_of_output
from botorch_bandits.core.suffixes import Suffixes, SuffixPrior
from botorch_bandits.domains import Domain
from botorch_bandits.models.bandit_gp import BanditGP, BanditGPRecipe
from botorch_bandits.models.candidates import CandidatesRecipe
from botorch_bandits.models.prior_lists import DefaultCandidates
from botorch_bandits.random_streams import generator

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]

Models: TypeAlias = BanditGPRecipe | Sequence[BanditGPRecipe] | CandidatesRecipe | DefaultCandidates
"""One prior, a list of priors, or a list whose output scales the first outcomes determine."""

AT_ONCE = 32
"""Outcomes on record that are weighed at a time."""

NEAR_THE_BEST = 3.0
"""A start counts as the change if its evidence is within this many nats of the largest."""

NOISE_FACTORS = (1.0, 1.5, 2.25, 3.4)
"""The factors by which members of the robust null multiply the noise variance."""

OUTLIER_SHARES = (0.001, 0.01, 0.05)
"""The shares of outliers among the outcomes in members of the robust null."""

OUTLIER_FACTOR = 36.0
"""The further factor of the noise variance of an outlier."""

ROBUST_MEMBERS = ((1.0, 0.0), *itertools.product(NOISE_FACTORS, OUTLIER_SHARES))
"""Noise factor and share of outliers of each member; the first one is the model itself."""


def log_normal(residuals: Array, variances: Array) -> Array:
    """Return the log densities of ``N(0, variance)``, entry by entry."""
    density: Array = -0.5 * (np.log(2.0 * math.pi * variances) + residuals**2 / variances)
    return density


def log_mixture(residuals: Array, variances: Array, noise: Array, members: Array) -> Array:
    """Return the log densities of outcomes under members of the null, entry by entry.

    With factor ``c`` and share ``e``, it is that of ``(1 - e) N(0, v + c noise) + e N(0, v + 36 c
    noise)``.

    Args:
        residuals: Outcomes less their means.
        variances: ``v``, the variances of the function.
        noise: The noise variances of the model.
        members: ``c``, ``ln(1 - e)`` and ``ln e``, ``3 x ...``.
    """
    factors, log_inner, log_outer = members
    inner: Array = log_inner + log_normal(residuals, variances + factors * noise)
    if np.all(np.isneginf(log_outer)):
        return inner
    outer = log_outer + log_normal(residuals, variances + OUTLIER_FACTOR * factors * noise)
    return np.logaddexp(inner, outer)


def log_sum(values: Array) -> Array:
    """Return the logarithm of the sum of exponentials over the last dimension."""
    largest = values.max(-1)
    total: Array = largest + np.log(np.exp(values - largest[..., None]).sum(-1))
    return total


def _passed_on(log_masses: Array, kept: NDArray[np.bool_]) -> Array:
    """Return the masses after those of starts that are dropped went to the next that is kept."""
    # groups of starts that end with one that is kept; the newest one always is
    first = np.append(0, np.flatnonzero(kept)[:-1] + 1)
    passed = np.full(len(kept), -math.inf)
    passed[kept] = np.logaddexp.reduceat(log_masses, first)
    return passed


def _summed(first: Array, added: Array) -> Array:
    """Return ``first`` and its sums with one, two, ... of ``b`` summands, ``(b + 1) x ...``."""
    return np.cumsum(np.concatenate([first[None], added]), axis=0)


def is_kept(starts: Numbers, num_issued: Numbers) -> NDArray[np.bool_]:
    """Return which starts, counted from the segment's first query, are still needed, broadcast."""
    power = starts & -starts  # the largest power of two that divides a start
    kept: NDArray[np.bool_] = num_issued - starts < 4 * power - 1
    return kept


@dataclass(frozen=True)
class EvidenceTest:
    """The evidence for a change after an outcome.

    Attributes:
        num_outcomes: The number of outcomes that have counted since the last reset.
        statistic: The logarithm of what the bets against the null have won, in nats.
        threshold: ``ln(1 / level)`` of the segment.
        detected: Whether the statistic has reached the threshold.
        change: The number of the query that is taken to be the first after the change: the latest
            start whose evidence is within 3 nats of the largest. None before the second query.
        starts: The starts that are kept, by the numbers of their queries.
        log_evidences: ``ln E_j`` of each of them, counted from its own start.
        segment: The number of the segment, from 1.
        candidate_weights: The posterior weight of each candidate of a list, for the first output,
            given the outcomes since the reset and those that it has kept; (1.0,) without a list.
    """

    num_outcomes: int
    statistic: float
    threshold: float
    detected: bool
    change: int | None
    starts: tuple[int, ...]
    log_evidences: tuple[float, ...]
    segment: int
    candidate_weights: tuple[float, ...] = (1.0,)


@dataclass(frozen=True, kw_only=True)
class EvidenceDetector:
    r"""Detects changes by the evidence of all outcomes, wherever the queries were.

    It compares the one-step predictions of a model of the data since the last reset with those of
    models that begin at later starts; :meth:`on` computes them with Gaussian processes.

    Before any change in the first segment, if the reward function is a draw from the Gaussian
    process and the noise is Gaussian, the probability that an alarm is ever raised is at most the
    level :math:`6 \alpha / \pi^2`. This probability averages over the prior and is not claimed for
    each single function. Given the past, the inputs, contexts, delays and the order of arrival must
    carry no further information about the function or the noise. A later segment that continues
    with the rows since the estimated change is exact if the estimate is the true change, and
    approximate otherwise. A segment that keeps nothing is also approximate, because the dropped
    rows have already shown the new function.

    With ``rkhs_bound`` (the ball form), nothing is averaged: in each segment, whichever rows the
    null began with, the level holds until there is a change in a function from which the outcomes
    come. It holds for every fixed function such that the norm of the function minus the prior mean
    is at most ``B``, and for R-sub-Gaussian noise.

    It cannot detect a change at points that are not queried. It treats steady drift as a sequence
    of changes, unless the null drifts as well (``drift_rate``). Changes of two standard deviations
    of the noise take seven to twenty outcomes on average, smaller changes take more.

    Args:
        alpha: The probability of a false alarm, for all segments together.
        robust: Whether the null may have up to 3.4 times the model's noise variance and up to 5% of
            outliers. The level at the model itself is the same; at noise of other scales and tails,
            the level is kept approximately.
        change_scale: ``J``, the number of rounds within which a change is expected.
        rkhs_bound: ``B``, a bound on the norm of each function in the space of its kernel. An
            outcome then costs one eigendecomposition of the distinct inputs since the reset.
        noise_bound: ``R`` of R-sub-Gaussian noise; the model's noise variance must be its square.
        drift_rate: ``epsilon`` of a null that drifts: functions of rounds ``t`` and ``t'`` have the
            covariance ``k(x, x') (1 - epsilon)^(abs(t - t') / 2)``, where rounds are numbers of
            queries, and so do the functions of the alternatives. None for functions that do not
            drift.

    Raises:
        TypeError: If a number has the wrong type.
        ValueError: If a number is out of range or missing, or two forms are requested at once.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits import Arms
        >>> arms = Arms(torch.linspace(0, 2, 5, dtype=torch.float64).unsqueeze(-1))
        >>> prior = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=1.0)
        >>> stream = EvidenceDetector(robust=False).on(arms, prior)
        >>> outcomes = [(0.0, 0.3), (1.0, 0.8), (2.0, -0.2), (1.0, 0.85), (1.0, 0.9), (1.0, 0.1)]
        >>> tests = [stream.observe([x], y) for x, y in outcomes]
        >>> tests[-1].detected, tests[-1].change
        (True, 6)
    """

    alpha: float = 0.05
    robust: bool = True
    change_scale: float = 100.0
    rkhs_bound: float | None = None
    noise_bound: float | None = None
    drift_rate: float | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        store_checked(
            self,
            alpha=check_probability("alpha", self.alpha),
            change_scale=check_positive("change_scale", self.change_scale),
        )
        check_instance("robust", self.robust, bool, "Pass True or False.")
        if self.drift_rate is not None:
            store_checked(self, drift_rate=check_probability("drift_rate", self.drift_rate))
        store_bounds(self, rkhs_bound=self.rkhs_bound, noise_bound=self.noise_bound)
        bounds = {"rkhs_bound": self.rkhs_bound, "noise_bound": self.noise_bound}
        if len({bound is None for bound in bounds.values()}) > 1:
            raise ValueError(f"one of {bounds} is None. Pass both numbers, or neither.")
        if self.rkhs_bound is None:
            return
        if self.drift_rate is not None:
            raise ValueError(
                f"rkhs_bound is {self.rkhs_bound!r} and drift_rate {self.drift_rate!r}, but the "
                "ball contains functions that do not drift. Leave one of the two out."
            )
        if self.robust:
            raise ValueError(
                f"rkhs_bound is {self.rkhs_bound!r}, which only the plain form supports. "
                "Pass robust=False."
            )

    def level(self, segment: int) -> float:
        """Return the level of a segment, whose number is from 1."""
        return 6.0 * self.alpha / (math.pi * segment) ** 2

    def on(
        self, domain: Domain, models: Models, num_outputs: int = 1, context_dim: int = 0
    ) -> EvidenceStream:
        """Return an empty stream on a domain, to which queries and outcomes are added one by one.

        Args:
            domain: The domain of the queries.
            models: The prior, with fixed hyperparameters; or a list of priors, one of which is true
                (the composite form), as a sequence or from :meth:`.BanditGP.with_candidates`, which
                also takes weights; or a :class:`~botorch_bandits.DefaultCandidates`. The first
                ``num_skipped`` outcomes of a list are not tested, and the level of the first
                segment is conditional on them. A kernel with a batch shape has an entry for each
                output; otherwise, outputs share it.
            num_outputs: The number of outcomes of each query, which are independent of each other.
            context_dim: The dimension of the contexts; the kernels are on ``[context, point]``.

        Raises:
            TypeError: If an entry of a list is not a recipe.
            ValueError: If hyperparameters are learned or unknown, the list does not support several
                outputs or a ball, or the noise variance is not the square of ``noise_bound``.
        """
        return EvidenceStream(self, domain, models, num_outputs, context_dim)


def candidates_of(models: Models, outcomes: Sequence[float] = ()) -> CandidatesRecipe | None:
    """Return the list of priors that is tested; None if it is one prior.

    Args:
        models: See :meth:`EvidenceDetector.on`.
        outcomes: The first outcomes of the run, which determine the scales of some lists.
    """
    if isinstance(models, DefaultCandidates):
        return models.list_of(torch.tensor(outcomes, dtype=DTYPE))
    if isinstance(models, list | tuple):
        return BanditGP.with_candidates(models)
    return models if isinstance(models, CandidatesRecipe) else None


class Priors(NamedTuple):
    """What an engine predicts with, for ``c`` candidates and ``m`` outputs.

    Attributes:
        each: All outputs of the first candidate, then of the second one, ...; ``c m`` priors.
        noise: ``m x c``.
        log_weights: ``c``, the logarithms of the weights of the candidates.
        num_skipped: The number of first outcomes that are not tested.
        transform: What turns context and point into inputs of the kernels, if anything does.
    """

    each: list[SuffixPrior]
    noise: Array
    log_weights: Array
    num_skipped: int
    transform: InputTransform | None


class Row(NamedTuple):
    """An outcome.

    Attributes:
        query: The number of its query.
        x: The input as the kernels see it.
        y: ``m`` numbers.
        issued: The number of queries that were issued before it came.
        weight: The factor by which its noise variance is smaller than the model's.
    """

    query: int
    x: Tensor
    y: Array
    issued: int
    weight: float


class EvidenceStream:
    """Gaussian processes on a domain, and their bets on one stream of queries and outcomes.

    :meth:`EvidenceDetector.on` makes it, without queries. They are numbered from 1 over all
    segments, and outcomes may come in any order.

    Args:
        detector: The settings.
        domain: The domain of the queries.
        models: See :meth:`EvidenceDetector.on`, also for the errors.
        num_outputs: ``m``, the number of outcomes of each query.
        context_dim: The dimension of the contexts.

    Attributes:
        num_issued: The number of queries so far.
    """

    _starts: Numbers  # s: those that were kept when outcomes were weighed last, ascending
    _won: Array  # 2 x s: of each start the logarithm of its mass, and ln E_j
    _own: Array  # s x m x c: the logarithms of the densities that it gave to the outcomes

    def __init__(
        self,
        detector: EvidenceDetector,
        domain: Domain,
        models: Models,
        num_outputs: int = 1,
        context_dim: int = 0,
    ) -> None:
        """See the class."""
        self._detector, self._domain, self._models = detector, domain, models
        self._num_outputs = check_integer("num_outputs", num_outputs, minimum=1)
        self._context_dim = check_integer("context_dim", context_dim, minimum=0)
        if num_outputs > 1 and isinstance(models, DefaultCandidates):
            raise ValueError(
                f"the evidence uses {models!r}, but with constraints= each entry of the list "
                "has one noise variance for reward and constraints, whose scales differ. Pass "
                "EvidenceRestart(candidates=[BanditGP.with_kernel(...), ...]), or "
                "outputs='reward' to test the reward alone."
            )
        self._priors = self._priors_given(())
        self._dim = self._check_predictions()
        members = ROBUST_MEMBERS if detector.robust else ROBUST_MEMBERS[:1]
        columns = [(c, math.log1p(-e), math.log(e) if e else -math.inf) for c, e in members]
        self._members = np.array(columns).T  # 3 x h
        self.num_issued, self._segment = 0, 1
        self._pending: dict[int, Tensor] = {}
        self._first: list[Row] = []  # outcomes that are not tested
        self._begin(1, [], self._priors.log_weights)

    def _check_predictions(self) -> int:
        """Return the number of columns that the kernels see, if they can predict on the domain."""
        X, context = self._domain.sample(2, generator(0, 0, "detector check")), None
        if self._context_dim:
            context = torch.zeros(self._context_dim, dtype=DTYPE)
        try:
            points = torch.stack([self._locate(x, context, 1) for x in X])
            outcomes = np.zeros((2, self._priors.noise.size))
            Suffixes(self._priors.each, points.shape[-1]).observe(points, outcomes, [1, 1], ())
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"the evidence has models that cannot predict at points with {self._context_dim} "
                f"context and {self._domain.dim} other dimensions ({error}). Their kernels must be "
                "on the context and the point together."
            ) from error
        return points.shape[-1]

    def _priors_given(self, outcomes: Sequence[float]) -> Priors:
        """Return the priors.

        Args:
            outcomes: The first outcomes of the run, which determine the scales of some lists.
        """
        listed = candidates_of(self._models, outcomes)
        models = (self._models,) if listed is None else listed.candidates
        _check_models(self._detector, models)
        weights = np.array([1.0] if listed is None else listed.weights)
        return Priors(
            [prior for model in models for prior in self._priors_of(model)],
            np.array([[model.noise for model in models]] * self._num_outputs),
            np.log(weights / weights.sum()),
            0 if listed is None else listed.num_skipped,
            models[0].input_transform,  # the same one for all entries of a list
        )

    @property
    def noise(self) -> float:
        """The noise variance of one observation under the first prior."""
        return float(self._priors.noise[0, 0])

    @property
    def has_one_prior(self) -> bool:
        """Whether a segment needs only rows of those before it, and no weights of a list."""
        return self._priors.num_skipped == 0 and self._priors.noise.shape[1] == 1

    def issue(self, x: Any, context: Any = None, is_checked: bool = False) -> int:
        """Record that a query is issued, which opens a start at it and may end some others.

        Args:
            x: A point of the domain.
            context: Its context, if there are contexts.
            is_checked: Whether ``x`` is known to be a point of the domain.

        Returns:
            Its number, from 1 over all segments.
        """
        located = self._locate(x, context, self.num_issued + 1, is_checked)
        self.num_issued += 1
        self._pending[self.num_issued] = located
        return self.num_issued

    def tell(
        self,
        query: int,
        y: float | Sequence[float] | Tensor,
        bets: bool = True,
        tests: bool = True,
        weight: float = 1.0,
    ) -> EvidenceTest | None:
        """Add the outcome of a query.

        Args:
            query: Its number.
            y: One number for each output.
            bets: Whether it is a bet. If not, it is only one of the rows that a reset may keep,
                which comes before the next outcome that is a bet.
            tests: Whether the evidence is compared with the threshold.
            weight: The factor by which the noise variance of the outcome is smaller than that of
                the model, such as ``n`` for the mean of ``n`` observations. It must be known before
                the noise.

        Returns:
            None if the query was issued before what the last reset has kept; in this case, nothing
            changes. Also None without a test, and for the first outcomes of a list that are not
            tested; they are rows of every posterior, but not bets.

        Raises:
            ValueError: If the query is not pending or a number is not finite.
        """
        if query not in self._pending:
            raise ValueError(
                f"query is {query}, which is not pending: it was never issued, or its outcome "
                "has already been told."
            )
        outcome = self._checked(y)
        row = Row(query, self._pending.pop(query), outcome, self.num_issued, weight)
        if len(self._first) < self._priors.num_skipped:
            self._first.append(row)
            if len(self._first) == self._priors.num_skipped:
                self._weigh()
                self._priors = self._priors_given([first.y[0] for first in self._first])
                kept = [first for first in self._first if first.query >= self._first_counted]
                self._use(kept)
            return None
        if query < self._first_counted:
            return None
        if bets:
            self._waiting.append(row)
            if len(self._waiting) == AT_ONCE:
                self._weigh()
        else:
            self._rows.append(row)
        return self.test() if bets and tests else None

    def forget(self, query: int) -> None:
        """Record that the outcome of a query will never come.

        Args:
            query: Its number.
        """
        self._pending.pop(query, None)

    def observe(
        self, x: Any, y: float | Sequence[float] | Tensor, context: Any = None
    ) -> EvidenceTest | None:
        """Issue a query and add its outcome at once; see :meth:`issue` and :meth:`tell`.

        Args:
            x: A point of the domain.
            y: One number for each output.
            context: Its context, if there are contexts.
        """
        self._checked(y)
        return self.tell(self.issue(x, context), y)

    def reset(self, keep_from: int | None = None) -> None:
        """Begin a new segment at the next query.

        Args:
            keep_from: The start whose data the next null has; late outcomes from there on still
                count. None drops everything.

        Raises:
            ValueError: If it is not one of the starts.
        """
        log_weights, starts = self._priors.log_weights, self.starts
        if keep_from is not None:
            if keep_from not in starts:
                raise ValueError(
                    f"keep_from is {keep_from}; it must be one of the starts {starts}."
                )
            log_weights = log_weights + self._own[starts.index(keep_from)]
        self._segment += 1
        first = self.num_issued + 1 if keep_from is None else keep_from
        self._begin(first, [row for row in self._rows if row.query >= first], log_weights)

    @property
    def starts(self) -> tuple[int, ...]:
        """The starts that are kept, by the numbers of their queries, ascending."""
        self._weigh()
        return tuple(self._starts.tolist())

    def test(self) -> EvidenceTest:
        """Return the present evidence."""
        starts = self.starts
        scale, (log_masses, log_evidences) = self._detector.change_scale, self._won
        rest = math.log(scale / (max(self.num_issued - self._offset, 1) - 1.0 + scale))
        statistic = float(log_sum(np.append(log_masses, rest)))
        statistic += float((self._log_nulls - self._log_best()).sum())
        threshold = -math.log(self._detector.level(self._segment))
        change = None
        if starts:
            near = np.flatnonzero(log_evidences >= log_evidences.max() - NEAR_THE_BEST)
            change = starts[int(near[-1])]
        weights = log_sum(self._weights[0] + self._fits[0])  # c
        return EvidenceTest(
            num_outcomes=len(self._rows) - self._num_kept,
            statistic=statistic,
            threshold=threshold,
            detected=change is not None and statistic >= threshold,
            change=change,
            starts=starts,
            log_evidences=tuple(log_evidences.tolist()),
            segment=self._segment,
            candidate_weights=tuple(np.exp(weights - log_sum(weights)).tolist()),
        )

    def _begin(self, first_counted: int, rows: list[Row], log_weights: Array) -> None:
        """Begin a segment.

        Args:
            first_counted: The first query whose outcome counts.
            rows: The rows with which the null begins.
            log_weights: ``c`` or ``m x c``, the weights of the candidates up to a factor.
        """
        self._first_counted, self._offset = first_counted, self.num_issued
        self._num_opened = self.num_issued + 1  # the null begins with the first query
        self._starts, self._won = np.zeros(0, dtype=np.int64), np.zeros((2, 0))
        self._use(rows, log_weights)

    def _use(self, rows: list[Row], log_weights: Array | None = None) -> None:
        """Begin the bets with the priors at hand and with rows that are not bets."""
        shape = self._priors.noise.shape  # m x c
        log_weights = self._priors.log_weights if log_weights is None else log_weights
        log_weights = np.broadcast_to(log_weights, shape)
        num_members = self._members.shape[-1]
        spread = log_weights - log_sum(log_weights)[:, None] - math.log(num_members)
        self._weights = np.broadcast_to(spread[..., None], (*shape, num_members))
        self._fits = np.zeros(self._weights.shape)  # ln L_h of each member, m x c x h
        self._log_nulls = np.zeros(shape[0])  # of the mixtures, m
        self._own = np.zeros((len(self._starts), *shape))
        self._rows: list[Row] = []
        self._waiting: list[Row] = []  # outcomes that are told and not weighed
        self._suffixes = Suffixes(self._priors.each, self._dim)
        for i in range(0, len(rows), AT_ONCE):
            self._predict(rows[i : i + AT_ONCE], self._starts)
        self._num_kept = len(rows)

    def _predict(self, rows: Sequence[Row], starts: Numbers) -> tuple[Array, Array]:
        """Add rows to the posteriors; return means and variances, ``b x (1 + s) x m x c`` each.

        The null comes first, and then the ``s`` starts.
        """
        self._rows += rows
        m, c = self._priors.noise.shape
        X, Y = torch.stack([row.x for row in rows]), np.tile([row.y for row in rows], c)
        weights = np.array([row.weight for row in rows])
        found = self._suffixes.observe(X, Y, [row.query for row in rows], starts, weights)
        means, variances = (each.reshape(*each.shape[:2], c, m).swapaxes(2, 3) for each in found)
        return means, variances

    def _weigh(self) -> None:
        """Open and drop starts, and weigh the outcomes that were told since the last time."""
        rows, self._waiting = self._waiting, []
        opened = np.arange(max(self._num_opened, self._offset + 1), self.num_issued) + 1
        n, scale, self._num_opened = (
            opened - self._offset,
            self._detector.change_scale,
            self.num_issued,
        )
        weights = np.log(scale / ((n - 2.0 + scale) * (n - 1.0 + scale)))
        starts = np.append(self._starts, opened)
        log_masses, log_evidences = np.append(self._won, [weights, 0.0 * weights], axis=1)
        own = np.zeros((len(starts), *self._priors.noise.shape))
        own[: len(self._own)] = self._own
        # of the starts so far, those that are kept at each outcome, and now
        issued = np.array([*(row.issued for row in rows), self.num_issued])[:, None]
        kept = is_kept(starts - self._offset, issued - self._offset - 1)  # (b + 1) x s
        if rows:
            used = np.flatnonzero(kept[:-1].any(0))
            moves = kept[:-1, used] & (starts[used] <= [[row.query] for row in rows])
            won, own[used] = self._bet(rows, starts[used], own[used], moves)
            log_evidences[used] += won.sum(0)
        for i, still in enumerate(kept):
            if not still.all():
                log_masses = _passed_on(log_masses, still)
            if i < len(rows):
                log_masses[used] += won[i]
        self._starts, self._own = starts[still], own[still]
        self._won = np.stack([log_masses[still], log_evidences[still]])

    def _bet(
        self, rows: Sequence[Row], starts: Numbers, own: Array, moves: NDArray[np.bool_]
    ) -> tuple[Array, Array]:
        """Update the fits with outcomes, one after the other.

        Args:
            rows: ``b`` outcomes.
            starts: ``s`` starts.
            own: The logarithms of the densities that they gave to earlier outcomes, ``s x m x c``.
            moves: The starts that an outcome changes, ``b x s``.

        Returns:
            What each outcome adds to the evidence of each start, ``b x s``, and ``own`` after them.
        """
        means, variances = self._predict(rows, starts)
        residuals = np.stack([row.y for row in rows])[:, None, :, None] - means
        weights = np.array([row.weight for row in rows])[:, None, None]
        noise = self._priors.noise / weights  # b x m x c
        null = residuals[:, 0, ..., None], variances[:, 0, ..., None], noise[..., None]
        found = log_mixture(*null, self._members[:, None, None])  # b x m x c x h
        fits = _summed(self._fits, found)  # (b + 1) x m x c x h
        # a start bets with the best member of each candidate before the outcome
        best = self._members[:, fits[:-1].argmax(-1)]  # 3 x b x m x c
        each = log_mixture(residuals[:, 1:], variances[:, 1:], noise[:, None], best[:, :, None])
        each[~moves] = 0.0  # b x s x m x c
        # and with the mixture over the candidates
        owns = _summed(own, each)  # (b + 1) x s x m x c
        alternatives = np.diff(log_sum(self._priors.log_weights + owns), axis=0).sum(-1)  # b x s
        log_nulls = log_sum(log_sum(self._weights + fits))  # (b + 1) x m
        self._fits, self._log_nulls = fits[-1], log_nulls[-1]
        won = np.where(moves, alternatives - np.diff(log_nulls, axis=0).sum(-1, keepdims=True), 0.0)
        return won, owns[-1]

    def _log_best(self) -> Array:
        """Return the logarithm of the largest likelihood in the null, ``m``."""
        bets = self._rows[self._num_kept :]
        if self._detector.rkhs_bound is None or not bets:
            largest: Array = self._fits.max((1, 2))
            return largest
        X, places = torch.unique(torch.stack([row.x for row in bets]), dim=0, return_inverse=True)
        Y = np.stack([row.y for row in bets], axis=1)  # m x n
        given = zip(self._suffixes.covariances(X), Y, self._priors.each, strict=True)
        bound, weights = self._detector.rkhs_bound, np.array([row.weight for row in bets])
        return np.array(
            [
                log_likelihood_in_ball(
                    K, places.numpy(), y - prior.prior_mean, prior.noise, bound, weights
                )
                for K, y, prior in given
            ]
        )

    def _locate(self, x: Any, context: Any, query: int, is_checked: bool = False) -> Tensor:
        """Return a query as the kernels see it: round (if the null drifts), context and point.

        Args:
            x: A point of the domain.
            context: Its context, if there are contexts.
            query: Its number.
            is_checked: Whether ``x`` is known to be a point of the domain.
        """
        if not is_checked:
            x = self._domain.check_point("x", x)
        point = x.cpu()  # all arithmetic is on the host
        if self._context_dim and context is None:
            raise ValueError(
                f"context is missing; each query needs a context of {self._context_dim} numbers."
            )
        if self._context_dim:
            given = check_vector("context", context, length=self._context_dim)
            point = torch.cat([given.cpu(), point])
        elif context is not None:
            raise ValueError(
                f"context is {context!r}, but the detector was prepared without contexts. Pass "
                "context_dim= where it is created."
            )
        if self._priors.transform is not None:
            point = self._priors.transform.eval()(point[None])[0]
        if self._detector.drift_rate is not None:
            point = torch.cat([point.new_tensor([float(query)]), point])
        return point

    def _priors_of(self, model: BanditGPRecipe) -> list[SuffixPrior]:
        """Return the priors of all outputs of one candidate."""
        shape, m, rate = model.kernel.batch_shape, self._num_outputs, self._detector.drift_rate
        if len(shape) and m > 1 and tuple(shape) != (m,):
            raise ValueError(
                f"the kernel has the batch shape {tuple(shape)}, but a query has {m} outcomes; the "
                f"shape must be ({m},) or empty."
            )
        kernels = [model.kernel]
        if len(shape):  # one output of several is the first one, the reward
            kernels = [kernel_of_output(model.kernel, output) for output in range(m)]
        if rate is not None:
            kernels = [TimeDecayKernel(kernel, rate) for kernel in kernels]
        if len(kernels) < m:  # outputs with one kernel share its matrices
            kernels *= m
        return [SuffixPrior(kernel, model.noise, model.prior_mean) for kernel in kernels]

    def _checked(self, y: float | Sequence[float] | Tensor) -> Array:
        values = y if np.ndim(y) else [y]
        return np.array(check_observed("y", values, self._num_outputs))


def _check_models(detector: EvidenceDetector, models: Sequence[Any]) -> None:
    for i, model in enumerate(models):
        is_known = isinstance(model, BanditGPRecipe) and model.refit_every is None
        if not is_known or learns_input_scale(model.input_transform):
            raise ValueError(
                f"models[{i}] is {model!r}, whose hyperparameters are learned or unknown, but the "
                "test needs predictions that were made before the outcomes. Pass "
                "EvidenceRestart(candidates=[BanditGP.with_kernel(...), ...]), a list that was "
                "fixed before the data, or candidates=DefaultCandidates(bounds), whose scales the "
                "first outcomes determine; to a detector's on(), pass these models themselves. "
                "Input transforms need their bounds."
            )
    if detector.rkhs_bound is None:
        return
    if len(models) > 1:
        raise ValueError(
            f"rkhs_bound is {detector.rkhs_bound!r}, which only one prior supports, but there is a "
            f"list of {len(models)}. Pass one of them, or leave out rkhs_bound=."
        )
    bound, noise = detector.noise_bound, models[0].noise
    if bound is not None and not math.isclose(noise, bound**2, rel_tol=1e-9):
        raise ValueError(
            f"noise_bound is {bound!r}, but the model has the noise variance {noise!r}, which must "
            f"be its square for the level to hold. Pass noise={bound**2!r} to the model."
        )

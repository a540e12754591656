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
from typing import Any

import numpy as np
import torch
from botorch.models.transforms.input import Normalize
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_instance,
    check_integer,
    check_positive,
    check_probability,
    check_vector,
    store_checked,
)
from botorch_bandits.confidence.prior_reading import learns_input_scale
from botorch_bandits.core.kernels import TimeDecayKernel, describe_module, kernel_of_output
from botorch_bandits.core.suffixes import BallFit, Suffixes, SuffixPrior
from botorch_bandits.domains import Domain
from botorch_bandits.models.bandit_gp import BanditGPRecipe
from botorch_bandits.models.forgetting import BehindTime
from botorch_bandits.models.prior_lists import DefaultCandidates

Array = NDArray[np.float64]

NEAR_THE_BEST = 3.0
"""A start counts as the change if its evidence is within this many nats of the largest."""

NEEDS_KERNEL = "{} is {!r}, which needs a kernel. Use the methods of on(domain, model).stream()."

NOISE_FACTORS = (1.0, 1.5, 2.25, 3.4)
"""The factors by which members of the robust null multiply the noise variance."""

OUTLIER_SHARES = (0.001, 0.01, 0.05)
"""The shares of outliers among the outcomes in members of the robust null."""

OUTLIER_FACTOR = 36.0
"""The further factor of the noise variance of an outlier."""

ROBUST_MEMBERS = ((1.0, 0.0), *itertools.product(NOISE_FACTORS, OUTLIER_SHARES))
"""Noise factor and share of outliers of each member; the first one is the model itself."""

# factors of the noise, and logarithms of the shares of other outcomes and of outliers
_ROBUST = tuple(
    np.array(column)
    for column in zip(
        *((c, math.log1p(-e), math.log(e) if e else -math.inf) for c, e in ROBUST_MEMBERS),
        strict=True,
    )
)


def log_normal(residuals: Array, variances: Array) -> Array:
    """Return the log densities of ``N(0, variance)``, entry by entry."""
    density: Array = -0.5 * (np.log(2.0 * math.pi * variances) + residuals**2 / variances)
    return density


def log_robust(residuals: Array, variances: Array, noise: Array, members: Any) -> Array:
    """Return the log densities of outcomes under robust members.

    Args:
        residuals: ``... x m x h``.
        variances: The variances of the function, ``... x m x h``.
        noise: ``m x 1``.
        members: ``m x h`` or ``h`` numbers of members.
    """
    factors, log_inner, log_outer = (column[members] for column in _ROBUST)
    inner = log_normal(residuals, variances + factors * noise)
    outer = log_normal(residuals, variances + OUTLIER_FACTOR * factors * noise)
    mixed: Array = np.logaddexp(log_inner + inner, log_outer + outer)
    return mixed


def log_sum(values: Array) -> Array:
    """Return the logarithm of the sum of exponentials over the last dimension."""
    largest = values.max(-1)
    total: Array = largest + np.log(np.exp(values - largest[..., None]).sum(-1))
    return total


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


@dataclass(frozen=True)
class EvidenceDetector:
    r"""Detects changes by the evidence of all outcomes, wherever the queries were.

    It needs one-step predictions of a model of the data since the last reset and of models that
    begin at later starts. :meth:`stream` takes predictions of any models; :meth:`on` computes those
    of Gaussian processes itself.

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
        weights: Prior weights of a list of candidate priors, positive; they are scaled to sum to 1.
            The null is then that one of the priors is true (the composite form), and predictions
            are given for each.
        change_scale: ``J``, the number of rounds within which a change is expected.
        rkhs_bound: ``B``, a bound on the norm of each function in the space of its kernel. An
            outcome then costs one eigendecomposition of the distinct inputs since the reset.
        noise_bound: ``R`` of R-sub-Gaussian noise; the model's noise variance must be its square.
        num_skipped: The number of first outcomes that are not tested, because models or weights
            were chosen based on them. The models learn from them, and the level of the first
            segment is conditional on them.
        drift_rate: ``epsilon`` of a null that drifts: functions of rounds ``t`` and ``t'`` have the
            covariance ``k(x, x') (1 - epsilon)^(abs(t - t') / 2)``, where rounds are numbers of
            queries, and so do the functions of the alternatives. None for functions that do not
            drift.

    Raises:
        TypeError: If a number has the wrong type.
        ValueError: If a number is out of range or missing, or two forms are requested at once.

    Example:
        >>> detector = EvidenceDetector(alpha=0.05, robust=False)
        >>> stream = detector.stream()
        >>> outcomes = [0.1, -0.1, 0.2, 3.1, 2.9, 3.0]
        >>> for y in outcomes:  # the mean was 0; after a change it is N(0, 9)
        ...     query = stream.issue()
        ...     seen = [outcomes[start - 1 : query - 1] for start in stream.starts]
        ...     variances = [1 / (1 / 9 + len(rows) / 0.1) for rows in seen]
        ...     means = [v * sum(rows) / 0.1 for v, rows in zip(variances, seen)]
        ...     test = stream.observe(query, y, 0.0, 0.0, means, variances, noise=0.1)
        >>> test.detected, test.change
        (True, 4)
    """

    alpha: float = 0.05
    robust: bool = True
    weights: tuple[float, ...] | None = None
    change_scale: float = 100.0
    rkhs_bound: float | None = None
    noise_bound: float | None = None
    num_skipped: int = 0
    drift_rate: float | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        store_checked(
            self,
            alpha=check_probability("alpha", self.alpha),
            change_scale=check_positive("change_scale", self.change_scale),
            num_skipped=check_integer("num_skipped", self.num_skipped, minimum=0),
        )
        check_instance("robust", self.robust, bool, "Pass True or False.")
        if self.weights is not None:
            weights = [check_positive("weights", weight) for weight in self.weights]
            if not weights:
                raise ValueError("weights is empty; give one positive number for each candidate.")
            total = math.fsum(weights)
            store_checked(self, weights=tuple(weight / total for weight in weights))
        if self.drift_rate is not None:
            store_checked(self, drift_rate=check_probability("drift_rate", self.drift_rate))
        if self.rkhs_bound is None and self.noise_bound is None:
            return
        if self.rkhs_bound is None or self.noise_bound is None:
            bounds = {"rkhs_bound": self.rkhs_bound, "noise_bound": self.noise_bound}
            raise ValueError(f"one of {bounds} is None. Pass both numbers, or neither.")
        store_checked(
            self,
            rkhs_bound=check_positive("rkhs_bound", self.rkhs_bound),
            noise_bound=check_positive("noise_bound", self.noise_bound),
        )
        if self.drift_rate is not None:
            raise ValueError(
                f"rkhs_bound is {self.rkhs_bound!r} and drift_rate {self.drift_rate!r}, but the "
                "ball contains functions that do not drift. Leave one of the two out."
            )
        if self.robust or self.weights is not None:
            raise ValueError(
                f"rkhs_bound is {self.rkhs_bound!r}, which only the plain form supports. "
                "Pass robust=False and leave out weights=."
            )

    @property
    def num_candidates(self) -> int:
        """The number of priors that predict; 1 without a list of priors."""
        return 1 if self.weights is None else len(self.weights)

    def level(self, segment: int) -> float:
        """Return the level of a segment, whose number is from 1."""
        return 6.0 * self.alpha / (math.pi * segment) ** 2

    def stream(self, num_outputs: int = 1) -> EvidenceStream:
        """Return an empty stream, which takes predictions of any models.

        Args:
            num_outputs: The number of outcomes of each query, which change together or not at all.
        """
        for name, value in (("rkhs_bound", self.rkhs_bound), ("drift_rate", self.drift_rate)):
            if value is not None:
                raise ValueError(NEEDS_KERNEL.format(name, value))
        return EvidenceStream(self, num_outputs)

    def on(
        self,
        domain: Domain,
        models: BanditGPRecipe | Sequence[BanditGPRecipe] | DefaultCandidates,
        num_outputs: int = 1,
        context_dim: int = 0,
    ) -> EvidenceEngine:
        """Prepare the detector for Gaussian processes on a domain.

        Args:
            domain: The domain of the queries.
            models: The prior, with fixed hyperparameters; with ``weights``, a list with one prior
                for each, or a list whose scales the first outcomes determine. A kernel with a batch
                shape has an entry for each output; otherwise, outputs share it.
            num_outputs: The number of outcomes of each query, which are independent of each other.
            context_dim: The dimension of the contexts; the kernels are on ``[context, point]``.
        """
        return EvidenceEngine(self, domain, models, num_outputs, context_dim)


class EvidenceStream:
    """The bookkeeping of the bets, for predictions of any models.

    Queries are numbered from 1 over all segments. Each outcome comes with the predictions that were
    made before it; outcomes may come in any order.

    Args:
        detector: The settings.
        num_outputs: ``m``, the number of outcomes of each query.
    """

    _log_masses: Array  # of starts, with what dropped ones left to them
    _log_evidences: Array
    _own: Array  # starts x outputs x candidates
    _fits: Array  # outputs x members of the null

    def __init__(self, detector: EvidenceDetector, num_outputs: int = 1) -> None:
        """See the class."""
        self.detector = detector
        self.num_outputs = check_integer("num_outputs", num_outputs, minimum=1)
        self.num_issued, self._segment = 0, 1
        self._num_skipped = 0
        # of the null's members: those of the first candidate, then those of the second one, ...
        members = np.full(len(ROBUST_MEMBERS) if detector.robust else 1, 1.0)
        candidates = np.array([1.0] if detector.weights is None else detector.weights)
        weights = np.outer(candidates, members).reshape(-1)
        self._prior_weights = np.log(weights / weights.sum())
        self._log_candidates = np.log(candidates / candidates.sum())
        self._begin(np.broadcast_to(self._prior_weights, (self.num_outputs, len(weights))))

    @property
    def starts(self) -> tuple[int, ...]:
        """The starts that are kept, by the numbers of their queries."""
        return tuple(self._offset + start for start in self._starts)

    @property
    def threshold(self) -> float:
        """``ln(1 / level)`` of the segment."""
        return -math.log(self.detector.level(self._segment))

    @property
    def is_skipping(self) -> bool:
        """Whether the next outcome is not a bet; see ``num_skipped`` of the detector."""
        return self._num_skipped < self.detector.num_skipped

    @property
    def candidate_weights(self) -> tuple[float, ...]:
        """The posterior weight of each candidate for the first output; they sum to 1.

        It counts the outcomes since the reset, and those that the reset has kept.
        """
        if self.detector.weights is None:
            return (1.0,)
        members = (self._weights + self._fits)[0].reshape(self.detector.num_candidates, -1)
        weights = log_sum(members)
        return tuple(np.exp(weights - log_sum(weights)).tolist())

    def issue(self) -> int:
        """Record that a query is issued, drop starts that are not needed, and open one at it.

        Returns:
            Its number, which :meth:`observe` needs.
        """
        self._prune()
        self.num_issued += 1
        n = self.num_issued - self._offset
        if n >= 2:
            self._starts.append(n)
            self._log_masses = np.append(self._log_masses, self._log_weight(n))
            self._log_evidences = np.append(self._log_evidences, 0.0)
            shape = (1, self.num_outputs, self.detector.num_candidates)
            self._own = np.concatenate([self._own, np.zeros(shape)])
        return self.num_issued

    def counts(self, query: int) -> bool:
        """Return whether an outcome of a query still counts, given what resets have kept.

        Args:
            query: Its number.
        """
        self._check_query(query)
        return query >= self._first_counted

    def starts_moved_by(self, query: int) -> tuple[int, ...]:
        """Return the starts whose models predict the outcome of a query: those up to it.

        Args:
            query: Its number.
        """
        return tuple(start for start in self.starts if start <= query)

    def observe(
        self,
        query: int,
        y: float | Sequence[float] | Tensor | Array,
        mean: Any,
        variance: Any,
        start_means: Any,
        start_variances: Any,
        *,
        noise: Any,
    ) -> EvidenceTest:
        """Add an outcome with the predictions that were made before it.

        Dimensions of size 1 may be omitted everywhere.

        Args:
            query: The number of its query.
            y: ``m`` outcomes.
            mean: The mean under the null, ``m``; with candidates ``num_candidates x m``.
            variance: The variance of the function under the null, without noise, in the same shape.
            start_means: The means of the starts in :meth:`starts_moved_by`, in this order: ``s x
                m``, with candidates ``s x num_candidates x m``.
            start_variances: Their variances, without noise, in the same shape.
            noise: The noise variance, ``m``; with candidates ``num_candidates x m``.

        Raises:
            ValueError: If a shape is wrong, a variance negative, a number not finite, the outcome
                does not count, or the detector has an ``rkhs_bound`` or a ``drift_rate``.
        """
        if not self.counts(query):
            raise ValueError(
                f"query is {query}, but outcomes of queries before {self._first_counted} no longer "
                "count: a reset has dropped them. Ask counts(query) first."
            )
        num_moved = len(self.starts_moved_by(query))
        one = (self.detector.num_candidates, self.num_outputs)
        many = (num_moved, *one)
        outcome = numbers_of("y", y, (self.num_outputs,))
        noises = numbers_of("noise", noise, one, spread=True)
        null = numbers_of("mean", mean, one), numbers_of("variance", variance, one)
        fresh = (
            numbers_of("start_means", start_means, many),
            numbers_of("start_variances", start_variances, many),
        )
        for name, values in (("variance", null[1]), ("start_variances", fresh[1])):
            if (values < 0.0).any():
                raise ValueError(f"{name} has {values.min():g}; a variance must not be negative.")
        if (noises <= 0.0).any():
            raise ValueError(f"noise has {noises.min():g}; a noise variance must be positive.")
        return self._take_in(outcome, null, fresh, noises)

    def reset(self, keep_from: int | None = None) -> None:
        """Begin a new segment at the next query.

        Args:
            keep_from: The start whose data the next null has; late outcomes from there on still
                count. None drops everything.

        Raises:
            ValueError: If it is not one of the starts.
        """
        weights = np.broadcast_to(self._prior_weights, self._fits.shape)
        if keep_from is not None:
            if keep_from not in self.starts:
                raise ValueError(
                    f"keep_from is {keep_from}; it must be one of the starts {self.starts}."
                )
            if self.detector.weights is not None:
                own = self._own[self.starts.index(keep_from)]
                num_members = weights.shape[-1] // self.detector.num_candidates
                weights = weights + np.repeat(own, num_members, axis=-1)
        self._segment += 1
        self._begin(weights - log_sum(weights)[..., None])
        if keep_from is not None:
            self._first_counted = keep_from

    def test(self) -> EvidenceTest:
        """Return the present evidence."""
        statistic = self._statistic()
        change: int | None = None
        if self._starts:
            near = np.flatnonzero(self._log_evidences >= self._log_evidences.max() - NEAR_THE_BEST)
            change = self._offset + self._starts[int(near[-1])]
        return EvidenceTest(
            num_outcomes=self._num_outcomes,
            statistic=statistic,
            threshold=self.threshold,
            detected=change is not None and statistic >= self.threshold,
            change=change,
            starts=self.starts,
            log_evidences=tuple(self._log_evidences.tolist()),
            segment=self._segment,
            candidate_weights=self.candidate_weights,
        )

    def _begin(self, weights: Array) -> None:
        self._offset = self.num_issued
        self._first_counted = self._offset + 1
        self._num_outcomes = 0
        self._starts: list[int] = []  # counted from the segment's first query
        self._log_masses, self._log_evidences = np.zeros(0), np.zeros(0)
        self._weights = np.array(weights)
        self._fits = np.zeros_like(self._weights)
        self._ball_fits = None if self.detector.rkhs_bound is None else np.zeros(self.num_outputs)
        self._own = np.zeros((0, self.num_outputs, self.detector.num_candidates))

    def _check_query(self, query: int) -> None:
        if not 1 <= query <= self.num_issued:
            raise ValueError(
                f"query is {query}; the queries issued so far have the numbers 1 to "
                f"{self.num_issued}. Call issue() for each query before its outcome."
            )

    def _log_weight(self, start: int) -> float:
        scale = self.detector.change_scale
        return math.log(scale / ((start - 2.0 + scale) * (start - 1.0 + scale)))

    def _take_in(
        self,
        y: Array,
        null: tuple[Array, Array],
        fresh: tuple[Array, Array],
        noise: Array,
        ball_fits: Array | None = None,
    ) -> EvidenceTest:
        """Update fits, evidences and masses with one outcome.

        Args:
            y: ``m``.
            null: Mean and variance, ``num_candidates x m`` each.
            fresh: The same for the starts, ``s x num_candidates x m`` each.
            noise: ``num_candidates x m``.
            ball_fits: ``m``; the largest log likelihoods in the ball.
        """
        if self.is_skipping:
            self._num_skipped += 1
            return self.test()
        self._ball_fits = ball_fits
        num_moved = len(fresh[0])
        if self.detector.robust:
            # the best member of each candidate before the outcome
            best = self._fits.reshape(self.num_outputs, *noise.shape[:1], -1).argmax(-1)
            everyone = np.arange(len(ROBUST_MEMBERS))
            residuals, variances = (y - null[0]).T[..., None], null[1].T[..., None]
            members = log_robust(residuals, variances, noise.T[..., None], everyone)
            members = members.reshape(self.num_outputs, -1)
            residuals, variances = ((y - fresh[0]).swapaxes(-1, -2), fresh[1].swapaxes(-1, -2))
            each = log_robust(residuals, variances, noise.T, best)
        else:
            members = log_normal(y - null[0], null[1] + noise).T
            each = log_normal(y - fresh[0], fresh[1] + noise).swapaxes(-1, -2)
        if self.detector.num_candidates == 1:
            alternatives = each[..., 0]  # s x m
        else:
            own = self._log_candidates + self._own[:num_moved]
            alternatives = log_sum(own + each) - log_sum(own)
            self._own[:num_moved] += each
        before = log_sum(self._weights + self._fits)
        self._fits += members
        predicted = log_sum(self._weights + self._fits) - before  # m
        gains = alternatives.sum(-1) - predicted.sum()
        self._log_evidences[:num_moved] += gains
        self._log_masses[:num_moved] += gains
        self._num_outcomes += 1
        return self.test()

    def _statistic(self) -> float:
        scale = self.detector.change_scale
        num_issued = max(self.num_issued - self._offset, 1)
        rest = math.log(scale / (num_issued - 1.0 + scale))
        best = self._fits.max(-1) if self._ball_fits is None else self._ball_fits
        own = log_sum(self._weights + self._fits) - best
        return float(log_sum(np.append(self._log_masses, rest)) + own.sum())

    def _prune(self) -> None:
        """Give the masses of starts that are not needed to the next later start that is kept."""
        n = self.num_issued - self._offset
        kept = [_is_kept(start, n) for start in self._starts]
        if all(kept):
            return
        for i, is_kept in enumerate(kept):
            if not is_kept:  # the newest one is always kept, so there is a next one
                self._log_masses[i + 1] = np.logaddexp(self._log_masses[i + 1], self._log_masses[i])
        self._starts = list(itertools.compress(self._starts, kept))
        self._log_masses = self._log_masses[kept]
        self._log_evidences = self._log_evidences[kept]
        self._own = self._own[kept]


def _is_kept(start: int, num_issued: int) -> bool:
    """Return whether a start, counted from the segment's first query, is still needed."""
    age = num_issued - start + 1
    exponent = max(0, age.bit_length() - 2)  # floor(log2(age / 2))
    return start % 2**exponent == 0


def numbers_of(name: str, value: Any, shape: tuple[int, ...], spread: bool = False) -> Array:
    """Return numbers in a given shape; dimensions of size 1 may be missing.

    Args:
        name: The name of the argument.
        value: The numbers.
        shape: The desired shape.
        spread: Whether one number may stand for all.
    """
    if isinstance(value, Tensor):
        value = value.detach().cpu().to(DTYPE).numpy()
    try:
        found = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}; pass numbers of the shape {shape}.") from None
    if spread and found.size == 1:
        found = np.full(shape, float(found.reshape(())))
    wanted = [size for size in shape if size != 1]
    if [size for size in found.shape if size != 1] != wanted:
        raise ValueError(f"{name} has the shape {found.shape}; it must be {shape}.")
    if not np.isfinite(found).all():
        raise ValueError(f"{name} has an entry that is not finite.")
    return found.reshape(shape)


class EvidenceEngine:
    """Gaussian processes that predict for a detector on one domain; created by its method ``on``.

    Args:
        detector: The settings.
        domain: The domain of the queries.
        models: The prior, or one for each candidate; a list whose output scales the first outcomes
            determine is known when they have come.
        num_outputs: ``m``, the number of outcomes of each query.
        context_dim: The dimension of the contexts.

    Raises:
        TypeError: If a model is not a recipe of a :class:`~botorch_bandits.BanditGP`.
        ValueError: If hyperparameters are learned, there is not one model for each candidate, or
            the noise variance is not the square of the detector's ``noise_bound``.
    """

    def __init__(
        self,
        detector: EvidenceDetector,
        domain: Domain,
        models: BanditGPRecipe | Sequence[BanditGPRecipe] | DefaultCandidates,
        num_outputs: int = 1,
        context_dim: int = 0,
    ) -> None:
        """See the class."""
        self.detector, self.domain = detector, domain
        self.num_outputs = check_integer("num_outputs", num_outputs, minimum=1)
        self.context_dim = check_integer("context_dim", context_dim, minimum=0)
        self._listed = models
        # of a list that outcomes complete: how many, and its priors for outcomes of unit variance
        self.num_first = models.num_first if isinstance(models, DefaultCandidates) else 0
        self.priors = self.priors_given([])

    def priors_given(self, outcomes: Sequence[float]) -> list[SuffixPrior]:
        """Return the priors: all outputs of the first candidate, then of the second one, ...

        Args:
            outcomes: The first outcomes of the run, which determine the scales of some lists.
        """
        listed = self._listed
        if isinstance(listed, DefaultCandidates):
            listed = listed.list_of(torch.tensor(outcomes, dtype=DTYPE)).candidates
        models = _check_models(self.detector, listed)
        shared: dict[object, Any] = {}
        return [prior for model in models for prior in self._priors_of(model, shared)]

    def stream(self) -> EvidenceModelStream:
        """Return an empty stream, to which queries and outcomes are added one by one."""
        return EvidenceModelStream(self)

    def locate(self, x: Any, context: Any, query: int) -> Tensor:
        """Return a query as the kernels see it: round (if the null drifts), context and point.

        Args:
            x: A point of the domain.
            context: Its context, if there are contexts.
            query: Its number.
        """
        parts = [self.domain.check_point("x", x)]
        if self.context_dim and context is None:
            raise ValueError(
                f"context is missing; each query needs a context of {self.context_dim} numbers."
            )
        if self.context_dim:
            parts.insert(0, check_vector("context", context, length=self.context_dim))
        elif context is not None:
            raise ValueError(
                f"context is {context!r}, but the detector was prepared without contexts. Pass "
                "context_dim= where it is created."
            )
        if self.detector.drift_rate is not None:
            parts.insert(0, torch.tensor([float(query)], dtype=DTYPE))
        return torch.cat([part.cpu() for part in parts])  # all arithmetic is on the host

    def _priors_of(self, model: BanditGPRecipe, shared: dict[object, Any]) -> list[SuffixPrior]:
        """Return the priors of one candidate; equal transforms are one object in ``shared``."""
        shape = model.kernel.batch_shape
        if len(shape) > 0 and tuple(shape) != (self.num_outputs,):
            raise ValueError(
                f"the kernel has the batch shape {tuple(shape)}, but a query has "
                f"{self.num_outputs} outcomes; the shape must be ({self.num_outputs},) or empty."
            )
        kernels = [model.kernel]
        if len(shape):
            kernels = [kernel_of_output(model.kernel, output) for output in range(shape[0])]
        transform = model.input_transform
        rate = self.detector.drift_rate
        if rate is not None:
            kernels = [TimeDecayKernel(kernel, rate) for kernel in kernels]
        if transform is not None:
            # only what numbers describe fully is compared by them
            is_known = all(type(part) is Normalize for part in transform.modules())
            key = describe_module(transform) if is_known else id(transform)
            known = transform if rate is None else BehindTime(transform)
            transform = shared.setdefault(key, known.eval())
        if not len(shape):  # outputs with one kernel share its matrices
            kernels *= self.num_outputs
        return [SuffixPrior(kernel, model.noise, model.prior_mean, transform) for kernel in kernels]


class EvidenceModelStream:
    """Queries and outcomes of one stream, with the predictions of Gaussian processes.

    Args:
        engine: The priors on a domain.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits import Arms, BanditGP
        >>> arms = Arms(torch.linspace(0, 2, 5, dtype=torch.float64).unsqueeze(-1))
        >>> prior = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=1.0)
        >>> stream = EvidenceDetector(robust=False).on(arms, prior).stream()
        >>> outcomes = [(0.0, 0.3), (1.0, 0.8), (2.0, -0.2), (1.0, 0.85), (1.0, 0.9), (1.0, 0.1)]
        >>> tests = [stream.observe([x], y) for x, y in outcomes]
        >>> tests[-1].detected, tests[-1].change
        (True, 6)
    """

    def __init__(self, engine: EvidenceEngine) -> None:
        """See the class."""
        self._engine = engine
        self.bets = EvidenceStream(engine.detector, engine.num_outputs)
        self._pending: dict[int, Tensor] = {}
        self._first: list[tuple[int, Tensor, Array]] = []  # outcomes that determine the priors
        self._priors = engine.priors
        self._begin()

    def issue(self, x: Any, context: Any = None) -> int:
        """Record that a query is issued.

        Args:
            x: A point of the domain.
            context: Its context, if there are contexts.

        Returns:
            Its number, from 1 over all segments.
        """
        located = self._engine.locate(x, context, self.bets.num_issued + 1)
        query = self.bets.issue()
        self._pending[query] = located
        return query

    def tell(self, query: int, y: float | Sequence[float] | Tensor) -> EvidenceTest | None:
        """Add the outcome of a query.

        Args:
            query: Its number.
            y: One number for each output.

        Returns:
            None if the query was issued before what the last reset has kept; in this case, nothing
            changes. Also None while a list waits for its first outcomes, which are rows of every
            posterior, but not bets.

        Raises:
            ValueError: If the query is not pending or a number is not finite.
        """
        if query not in self._pending:
            raise ValueError(
                f"query is {query}, which is not pending: it was never issued, or its outcome "
                "has already been told."
            )
        outcome = numbers_of("y", y, (self._engine.num_outputs,))
        located = self._pending.pop(query)
        if len(self._first) < self._engine.num_first:
            self._first.append((query, located, outcome))
            if len(self._first) == self._engine.num_first:
                outcomes = [float(first[0]) for *_, first in self._first]
                self._priors = self._engine.priors_given(outcomes)
                self._begin()
                for number, point, first in self._first:
                    self._take_in(number, point, first)
            return None
        return self._take_in(query, located, outcome)

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
        numbers_of("y", y, (self._engine.num_outputs,))
        return self.tell(self.issue(x, context), y)

    def reset(self, keep_from: int | None = None) -> None:
        """Begin a new segment at the next query.

        Args:
            keep_from: The start whose data are kept for the next null. None drops everything.
        """
        self.bets.reset(keep_from)
        self._begin(None if keep_from is None else self._suffixes)
        if keep_from is not None:
            self._suffixes.keep_from(keep_from)

    def _begin(self, suffixes: Suffixes | None = None) -> None:
        """Begin a segment, without rows unless they are given."""
        bound, m = self._engine.detector.rkhs_bound, self._engine.num_outputs
        self._suffixes = suffixes or Suffixes(self._priors)
        self._balls = [] if bound is None else [BallFit(p.noise, bound) for p in self._priors]
        self._noise = np.array([prior.noise for prior in self._priors]).reshape(-1, m)

    def _take_in(self, query: int, located: Tensor, outcome: Array) -> EvidenceTest | None:
        if not self.bets.counts(query):
            return None
        num_candidates, m = self._noise.shape
        every = np.tile(outcome, num_candidates)
        found = self._suffixes.observe(located, every, query, self.bets.starts)
        # the null first, then the starts up to the query: (1 + s) x num_candidates x m
        means, variances = (values.reshape(-1, num_candidates, m) for values in found)
        ball_fits = None
        if self._balls and not self.bets.is_skipping:
            suffixes, fits = self._suffixes, []
            slot = suffixes.places.slot_of(located)
            covariances = suffixes.places.covariances[suffixes.kernel_of]
            for ball, prior, y, own, scale in zip(
                self._balls, self._priors, outcome, covariances, suffixes.scales, strict=True
            ):
                ball.add(slot, float(y) - prior.prior_mean)
                fits.append(ball.log_likelihood(scale * own))
            ball_fits = np.array(fits)
        return self.bets._take_in(
            outcome, (means[0], variances[0]), (means[1:], variances[1:]), self._noise, ball_fits
        )


def _check_models(
    detector: EvidenceDetector, models: BanditGPRecipe | Sequence[BanditGPRecipe]
) -> tuple[BanditGPRecipe, ...]:
    listed = (models,) if isinstance(models, BanditGPRecipe) else models
    check_instance(
        "models", listed, (tuple, list), "Pass BanditGP.with_kernel(...), or a list of such."
    )
    for i, model in enumerate(listed):
        check_instance(
            f"models[{i}]", model, BanditGPRecipe, "Pass BanditGP.with_kernel(kernel, noise)."
        )
        if model.refit_every is not None or learns_input_scale(model.input_transform):
            raise ValueError(
                f"models[{i}] learns from the outcomes that are tested, so its predictions of them "
                "were not made beforehand. Leave out refit_every= and give input transforms their "
                "bounds, or pass a list of fixed candidates."
            )
    if len(listed) != detector.num_candidates:
        raise ValueError(
            f"models has {len(listed)} entries, but the detector has {detector.num_candidates} "
            "candidate(s); give one recipe for each entry of weights=, or one without weights."
        )
    bound = detector.noise_bound
    if bound is not None and not math.isclose(listed[0].noise, bound**2, rel_tol=1e-9):
        raise ValueError(
            f"noise_bound is {bound!r}, but the model has the noise variance {listed[0].noise!r}, "
            f"which must be its square for the level to hold. Pass noise={bound**2!r} to the model."
        )
    return tuple(listed)

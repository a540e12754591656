r"""Change detection by evidence: every outcome counts, and the level needs no calibration.

Before each outcome, a model of the data since the last reset (the null) and fresh models of the
data since each of several later starts (the alternatives) predict it. With the one-step predictive
densities :math:`p_i` and :math:`q_{j,i}` of outcome ``i``,

.. math::
   E_j(n) = \prod_{i=j}^{n} \frac{q_{j,i}(y_i)}{p_i(y_i)}, \qquad
   M_n = \sum_{j=2}^{n} w_j E_j(n) + r_n, \qquad
   w_j = \frac{J}{(j - 2 + J) (j - 1 + J)}, \qquad r_n = \frac{J}{n - 1 + J} .

While nothing changes, each :math:`E_j` and with them :math:`M_n` are products of conditional
densities over the density that the data have. So :math:`M_n` is a martingale that starts at 1,
whatever rule chose the inputs, and by Ville's inequality it reaches :math:`1/\alpha` at any time
with probability :math:`\alpha` at most. The rest :math:`r_n` is the weight of the starts to come.

**Few starts.** A start of age :math:`a = n - j + 1` is kept if :math:`2^e` divides ``j``, with
:math:`e = \max(0, \lfloor \log_2 (a / 2) \rfloor)`: two for every doubling of the age. What a
dropped start has won goes to the next later one that is kept. That is a bet that was decided before
the next outcome, so the sum remains a martingale and nothing is lost.

**Several segments.** The clock begins anew with each reset, and segment ``k`` has the level
:math:`6 \alpha / (\pi k)^2`.

**Outcomes that come late.** A start opens when its query is asked. An outcome moves only the
starts up to its own query, and is predicted from what had arrived before it.

**A null that is a family.** With members :math:`h`, likelihoods :math:`L_h` and fixed weights, the
null predicts with their mixture :math:`\bar L`, and the statistic is

.. math:: \ln M_n + \ln \bar L(y_{1..n}) - \max_h \ln L_h(y_{1..n}),

which for each member is at most the logarithm of a martingale. The robust form has members with
more noise and heavier tails than the model; the composite form has one for each prior of a list.

**A null that is a ball.** For a fixed function :math:`f` and R-sub-Gaussian noise, where the models
have the noise variance :math:`R^2`,

.. math:: \ln M_n + \ln p(y_{1..n}) - \max_{\|f\|_k \le B} \sum_i \ln N(y_i; f(x_i), R^2)

is at most the logarithm of a supermartingale: what was predicted is a mixture of :math:`N(g, R^2)`
fixed beforehand, and :math:`\exp((g - f) (y_i - f) / R^2 - (g - f)^2 / (2 R^2))` has at most the
mean 1. Only outcomes since the reset count, so that it is no matter which rows the null had kept.

Source: Ville 1939 for the inequality; Shin, Ramdas and Rinaldo 2022 for such processes in the
detection of changes. The weights, the starts that are kept and the families are ours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.change_points.null_members import (
    ROBUST_MEMBERS,
    log_normal,
    log_robust,
    log_sum,
)
from botorch_bandits.checks import (
    DTYPE,
    check_instance,
    check_integer,
    check_one_of,
    check_positive,
    check_probability,
    check_vector,
    store_checked,
)
from botorch_bandits.confidence.width_rules import learns_input_scale
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.domains import Arms, Domain
from botorch_bandits.models.bandit_gp import BanditGPRecipe
from botorch_bandits.models.kernels import kernel_of_output
from botorch_bandits.models.suffixes import (
    ArmsSuffixes,
    BallFit,
    RowsSuffixes,
    SuffixPosteriors,
    SuffixPrior,
)

Array = NDArray[np.float64]

NEAR_THE_BEST = 3.0
"""A start counts as the change if its evidence is within so many nats of the largest."""

_NEEDS_KERNEL = (
    "rkhs_bound is {!r}, which needs a kernel. Use the methods of on(domain, model).stream()."
)


@dataclass(frozen=True)
class EvidenceTest:
    """What the evidence for a change is after an outcome.

    Attributes:
        num_outcomes: How many outcomes have counted since the last reset.
        statistic: In nats: the logarithm of what the bets against the null have won.
        threshold: ``ln(1 / level)`` of the segment.
        detected: Whether the statistic has reached the threshold.
        change: The number of the query that is taken for the first after the change: the latest
            start whose evidence is within 3 nats of the largest. None before the second query.
        starts: The starts that are kept, by the numbers of their queries.
        log_evidences: ``ln E_j`` of each of them, from its own start alone.
        segment: From 1.
    """

    num_outcomes: int
    statistic: float
    threshold: float
    detected: bool
    change: int | None
    starts: tuple[int, ...]
    log_evidences: tuple[float, ...]
    segment: int


@dataclass(frozen=True)
class EvidenceDetector:
    r"""Detects changes by the evidence of all outcomes, wherever the queries were.

    It needs one-step predictions of a model of the data since the last reset and of models that
    begin at later starts. :meth:`stream` takes predictions of any models; :meth:`on` makes those of
    Gaussian processes itself.

    What holds before any change in the first segment, for a reward function that is a draw from the
    Gaussian process, and Gaussian noise: the probability of an alarm at any time is at most the
    level :math:`6 \alpha / \pi^2`. It averages over the prior, and is not claimed for each function
    alone. Given the past, inputs, contexts, delays and the order of arrival must carry no further
    information on the function or the noise. A later segment that goes on with the rows since the
    estimated change is exact where the estimate is the change, and approximate otherwise. One that
    keeps nothing is approximate, too: the rows that it drops showed the new function already. It
    is exact with ``spending="rounds"``, where its queries rest on its own rows alone and the
    changes come at times that do not depend on the new function.

    With ``rkhs_bound`` (the ball form) nothing is averaged: the level holds in each segment, until
    a function changes that its outcomes come from, whichever rows the null began with, for every
    fixed function whose norm less the prior mean is at most ``B``, and R-sub-Gaussian noise.

    It cannot see a change where nobody looks. Steady drift is a sequence of changes to it: there, a
    null that varies in time is the better model. Changes of two standard deviations of the noise
    take seven to twenty outcomes on average, smaller ones more.

    Args:
        alpha: The probability of a false alarm, for all segments together.
        robust: Whether the null may have up to 3.4 times the model's noise variance and up to 5% of
            outliers. The level at the model itself is the same; that it is kept at noise of other
            scales and tails is approximate.
        weights: Prior weights of a list of candidate priors, positive; scaled to sum 1. The null is
            then that one of them is true (the composite form), and predictions are given for each.
        change_scale: ``J``, on which number of rounds a change is expected.
        statistic: ``"mixture"`` is ``M_n``. ``"shiryaev_roberts"`` is the sum of all ``E_j`` and
            ``"cusum"`` the largest. They alarm at :math:`1 / \alpha`, on average not before
            :math:`1 / \alpha` queries, and :math:`\alpha` is no probability then.
        spending: How ``alpha`` is spent. ``"segments"``: :math:`6 \alpha / (\pi k)^2` in segment
            ``k``. ``"rounds"``: :math:`6 \alpha / (\pi s)^2` in the segment that begins with query
            ``s``: a union over all rounds at which a test might begin.
        keeps_all_starts: Whether every start is kept; the cost of an outcome then grows with their
            number.
        rkhs_bound: ``B``, a bound on the norm of each function in the space of its kernel. An
            outcome then costs one eigendecomposition of the distinct inputs since the reset.
        noise_bound: ``R`` of R-sub-Gaussian noise; the model's noise variance must be its square.
        num_skipped: How many first outcomes are no bets, because models or weights were chosen by
            them. The models learn from them, and the level of the first segment is conditional on
            them.

    Raises:
        TypeError: If a number is not one.
        ValueError: If a number is out of range or missing, or two forms are asked for at once.

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
    statistic: Literal["mixture", "shiryaev_roberts", "cusum"] = "mixture"
    spending: Literal["segments", "rounds"] = "segments"
    keeps_all_starts: bool = False
    rkhs_bound: float | None = None
    noise_bound: float | None = None
    num_skipped: int = 0

    def __post_init__(self) -> None:
        """Check the settings."""
        store_checked(
            self,
            alpha=check_probability("alpha", self.alpha),
            change_scale=check_positive("change_scale", self.change_scale),
            num_skipped=check_integer("num_skipped", self.num_skipped, minimum=0),
        )
        check_instance("robust", self.robust, bool, "Pass True or False.")
        check_one_of("statistic", self.statistic, ("mixture", "shiryaev_roberts", "cusum"))
        check_one_of("spending", self.spending, ("segments", "rounds"))
        if self.weights is not None:
            weights = [check_positive("weights", weight) for weight in self.weights]
            if not weights:
                raise ValueError("weights is empty; give one positive number for each candidate.")
            total = math.fsum(weights)
            store_checked(self, weights=tuple(weight / total for weight in weights))
        if self.robust and self.weights is not None:
            raise ValueError(
                "robust is True, but the evidence is of a list of priors with weights; no "
                "statistic is known that is both robust and over several priors. Pass robust=False."
            )
        if self.statistic != "mixture" and (self.robust or self.weights is not None):
            raise ValueError(
                f"statistic is {self.statistic!r}, which is known for one null only. Pass "
                "robust=False without weights, or statistic='mixture'."
            )
        self._check_ball()

    def _check_ball(self) -> None:
        bounds = {name: getattr(self, name) for name in ("rkhs_bound", "noise_bound")}
        missing = [bound is None for bound in bounds.values()]
        if any(missing):
            if not all(missing):
                raise ValueError(f"one of {bounds} is None. Pass both numbers, or none of them.")
            return
        store_checked(self, **{name: check_positive(name, b) for name, b in bounds.items()})
        if self.robust or self.weights is not None or self.statistic != "mixture":
            raise ValueError(
                f"rkhs_bound is {self.rkhs_bound!r}, which is known for the plain mixture only. "
                "Pass robust=False and leave weights= and statistic= out."
            )

    @property
    def num_candidates(self) -> int:
        """How many priors predict; 1 without a list of them."""
        return 1 if self.weights is None else len(self.weights)

    def level(self, segment: int, first_query: int = 1) -> float:
        """Return the level of a segment.

        Args:
            segment: From 1.
            first_query: The number of its first query, over all segments.
        """
        if self.statistic != "mixture":
            return self.alpha
        spent = segment if self.spending == "segments" else first_query
        return 6.0 * self.alpha / (math.pi * spent) ** 2

    def stream(self, num_outputs: int = 1) -> EvidenceStream:
        """Return an empty stream, which takes predictions of any models.

        Args:
            num_outputs: How many outcomes each query has; they change together or not at all.
        """
        if self.rkhs_bound is not None:
            raise ValueError(_NEEDS_KERNEL.format(self.rkhs_bound))
        return EvidenceStream(self, num_outputs)

    def on(
        self,
        domain: Domain,
        models: BanditGPRecipe | Sequence[BanditGPRecipe],
        num_outputs: int = 1,
        context_dim: int = 0,
    ) -> EvidenceEngine:
        """Prepare the detector for Gaussian processes on a domain.

        Args:
            domain: Where the queries are.
            models: The prior, with fixed hyperparameters; with ``weights`` a list of as many. A
                kernel with a batch shape has an entry for each output; otherwise outputs share it.
            num_outputs: How many outcomes each query has, independent of each other.
            context_dim: The dimension of the contexts; the kernels are on ``[context, point]``.
        """
        return EvidenceEngine(self, domain, models, num_outputs, context_dim)


class EvidenceStream:
    """The bookkeeping of the bets, for predictions of any models.

    Queries are numbered from 1 over all segments. Each outcome comes with the predictions that were
    made before it; outcomes may come in any order.

    Args:
        detector: The settings.
        num_outputs: ``m``, how many outcomes each query has.
    """

    _log_masses: Array
    _log_evidences: Array
    _own: Array
    _ball_fits: Array | None

    def __init__(self, detector: EvidenceDetector, num_outputs: int = 1) -> None:
        """See the class."""
        self.detector = detector
        self.num_outputs = check_integer("num_outputs", num_outputs, minimum=1)
        self._num_issued, self._segment = 0, 1
        self._num_skipped = 0
        self._kept_from: int | None = None
        weights = np.full(len(ROBUST_MEMBERS) if detector.robust else 1, 1.0)
        if detector.weights is not None:
            weights = np.array(detector.weights)
        self._prior_weights = np.log(weights / weights.sum())
        self._begin(np.broadcast_to(self._prior_weights, (self.num_outputs, len(weights))))

    @property
    def num_issued(self) -> int:
        """How many queries were asked, in all segments."""
        return self._num_issued

    @property
    def segment(self) -> int:
        """The number of the segment, from 1."""
        return self._segment

    @property
    def first_query(self) -> int:
        """The number of the segment's first query."""
        return self._offset + 1

    @property
    def starts(self) -> tuple[int, ...]:
        """The starts that are kept, by the numbers of their queries."""
        return tuple(self._offset + start for start in self._starts)

    @property
    def threshold(self) -> float:
        """``ln(1 / level)`` of the segment."""
        return -math.log(self.detector.level(self._segment, self.first_query))

    @property
    def log_masses(self) -> tuple[float, ...]:
        """The logarithms of what each kept start has, with what dropped ones have left to it."""
        return tuple(self._log_masses.tolist())

    @property
    def is_skipping(self) -> bool:
        """Whether the next outcome is no bet; see ``num_skipped`` of the detector."""
        return self._num_skipped < self.detector.num_skipped

    @property
    def likeliest_candidate(self) -> int:
        """The candidate with the largest posterior weight for the first output, from 0.

        It counts the outcomes since the reset, and those that the reset has kept.
        """
        weights = (self._weights + self._fits)[0]
        return 0 if self.detector.weights is None else int(weights.argmax())

    def issue(self) -> int:
        """Note that a query is asked, drop starts that are not needed, and open one at it.

        Returns:
            Its number, which :meth:`observe` wants.
        """
        if not self.detector.keeps_all_starts:
            self._prune()
        self._num_issued += 1
        n = self._num_issued - self._offset
        if n >= 2:
            self._starts.append(n)
            self._log_masses = np.append(self._log_masses, self._log_weight(n))
            self._log_evidences = np.append(self._log_evidences, 0.0)
            shape = (1, self.num_outputs, self.detector.num_candidates)
            self._own = np.concatenate([self._own, np.zeros(shape)])
        return self._num_issued

    def counts(self, query: int) -> bool:
        """Return whether an outcome still counts: not of a query before what a reset has kept.

        Args:
            query: Its number.
        """
        self._check_query(query)
        first = self.first_query if self._kept_from is None else self._kept_from
        return query >= first

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
        """Take in an outcome with the predictions that were made before it.

        Dimensions of size 1 may be left out everywhere.

        Args:
            query: The number of its query.
            y: ``m`` outcomes.
            mean: The null's, ``m``; with candidates ``num_candidates x m``.
            variance: The null's variance of the function, without noise, likewise.
            start_means: Those of :meth:`starts_moved_by`, in this order: ``s x m``, with
                candidates ``s x num_candidates x m``.
            start_variances: Their variances, without noise, likewise.
            noise: The noise variance, ``m``; with candidates ``num_candidates x m``.

        Raises:
            ValueError: If a shape is wrong, a variance negative, a number not finite, the outcome
                does not count, or the detector has an ``rkhs_bound``.
        """
        if self.detector.rkhs_bound is not None:
            raise ValueError(_NEEDS_KERNEL.format(self.detector.rkhs_bound))
        if not self.counts(query):
            raise ValueError(
                f"query is {query}, but outcomes of queries before "
                f"{self.first_query if self._kept_from is None else self._kept_from} no longer "
                "count: a reset has dropped them. Ask counts(query) first."
            )
        num_moved = len(self.starts_moved_by(query))
        one = (self.detector.num_candidates, self.num_outputs)
        many = (num_moved, *one)
        outcome = _array("y", y, (self.num_outputs,))
        noises = _array("noise", noise, one, spread=True)
        null = _array("mean", mean, one), _array("variance", variance, one)
        fresh = (
            _array("start_means", start_means, many),
            _array("start_variances", start_variances, many),
        )
        for name, values in (("variance", null[1]), ("start_variances", fresh[1])):
            if (values < 0.0).any():
                raise ValueError(f"{name} has {values.min():g}; a variance must not be negative.")
        if (noises <= 0.0).any():
            raise ValueError(f"noise has {noises.min():g}; a noise variance must be positive.")
        return self._take_in(outcome, null, fresh, noises)

    def reset(self, keep_from: int | None = None) -> None:
        """Begin a new segment, at the next query.

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
                weights = weights + self._own[self.starts.index(keep_from)]
        self._kept_from = keep_from
        self._segment += 1
        self._begin(weights - log_sum(weights)[..., None])

    def test(self) -> EvidenceTest:
        """Return what the evidence is now."""
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
        )

    def _begin(self, weights: Array) -> None:
        self._offset = self._num_issued
        self._num_outcomes = 0
        self._starts: list[int] = []  # counted from the segment's first query
        self._log_masses, self._log_evidences = np.zeros(0), np.zeros(0)
        # of outputs and members
        self._weights = np.array(weights)
        self._fits = np.zeros_like(self._weights)
        self._ball_fits = None if self.detector.rkhs_bound is None else np.zeros(self.num_outputs)
        # of starts, outputs and candidates
        self._own = np.zeros((0, self.num_outputs, self.detector.num_candidates))

    def _check_query(self, query: int) -> None:
        if not 1 <= query <= self._num_issued:
            raise ValueError(
                f"query is {query}; the queries that were asked have the numbers 1 to "
                f"{self._num_issued}. Call issue() for each query before its outcome."
            )

    def _log_weight(self, start: int) -> float:
        if self.detector.statistic != "mixture":
            return 0.0
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
        """Move fits, evidences and masses by one outcome.

        Args:
            y: ``m``.
            null: Mean and variance, ``num_candidates x m`` each.
            fresh: The same of the starts, ``s x num_candidates x m`` each.
            noise: ``num_candidates x m``.
            ball_fits: ``m``, the largest log likelihoods in the ball.
        """
        if self.is_skipping:
            self._num_skipped += 1
            return self.test()
        self._ball_fits = ball_fits
        num_moved = len(fresh[0])
        best = self._fits.argmax(-1)  # before the outcome
        if self.detector.robust:
            level = noise[0][:, None]
            everyone = np.arange(len(ROBUST_MEMBERS))
            members = log_robust((y - null[0][0])[:, None], null[1][0][:, None], level, everyone)
            alternatives = log_robust(
                (y - fresh[0][:, 0])[..., None], fresh[1][:, 0, :, None], level, best[:, None]
            )[..., 0]
        else:
            members = log_normal(y - null[0], null[1] + noise).T
            each = log_normal(y - fresh[0], fresh[1] + noise).swapaxes(-1, -2)
            own = self._prior_weights + self._own[:num_moved]
            alternatives = log_sum(own + each) - log_sum(own)  # s x m
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
        masses = self._log_masses
        if self.detector.statistic == "cusum":
            return float(masses.max(initial=-math.inf))
        if self.detector.statistic == "shiryaev_roberts":
            return float(log_sum(masses)) if len(masses) else -math.inf
        scale = self.detector.change_scale
        num_issued = max(self._num_issued - self._offset, 1)
        rest = math.log(scale / (num_issued - 1.0 + scale))
        best = self._fits.max(-1) if self._ball_fits is None else self._ball_fits
        own = log_sum(self._weights + self._fits) - best
        return float(log_sum(np.append(masses, rest)) + own.sum())

    def _prune(self) -> None:
        """Give the masses of starts that are not needed to the next later one that is kept."""
        n = self._num_issued - self._offset
        kept = [_is_kept(start, n) for start in self._starts]
        if all(kept):
            return
        joins = np.maximum if self.detector.statistic == "cusum" else np.logaddexp
        for i, is_kept in enumerate(kept):
            if not is_kept:  # the newest is always kept, so there is a next one
                self._log_masses[i + 1] = joins(self._log_masses[i + 1], self._log_masses[i])
        self._starts = list(itertools.compress(self._starts, kept))
        self._log_masses = self._log_masses[kept]
        self._log_evidences = self._log_evidences[kept]
        self._own = self._own[kept]


class EvidenceEngine:
    """Gaussian processes that predict for a detector on one domain; made by its method ``on``.

    Args:
        detector: The settings.
        domain: Where the queries are.
        models: The prior, or one for each candidate.
        num_outputs: ``m``, how many outcomes each query has.
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
        models: BanditGPRecipe | Sequence[BanditGPRecipe],
        num_outputs: int = 1,
        context_dim: int = 0,
    ) -> None:
        """See the class."""
        self.detector, self.domain = detector, domain
        self.num_outputs = check_integer("num_outputs", num_outputs, minimum=1)
        self.context_dim = check_integer("context_dim", context_dim, minimum=0)
        self.models = _check_models(detector, models)
        # the outputs of the first candidate, of the second one, ...
        self.priors = [prior for model in self.models for prior in self._priors_of(model)]

    def stream(self) -> EvidenceModelStream:
        """Return an empty stream: queries are asked and outcomes told one by one."""
        return EvidenceModelStream(self)

    def balls(self) -> list[BallFit]:
        """Return a fit for each output, of no rows; none without an ``rkhs_bound``."""
        bound = self.detector.rkhs_bound
        return [] if bound is None else [BallFit(prior, bound) for prior in self.priors]

    def posteriors(self) -> SuffixPosteriors:
        """Return the posteriors of no rows."""
        if isinstance(self.domain, Arms) and self.context_dim == 0:
            return ArmsSuffixes(self.priors, self.domain.choices)
        return RowsSuffixes(self.priors)

    def locate(self, x: Any, context: Any = None) -> Tensor:
        """Return a query as the posteriors want it.

        Args:
            x: A point of the domain.
            context: Its context, if there are contexts.
        """
        point = self.domain.check_point("x", x)
        if self.context_dim:
            if context is None:
                raise ValueError(
                    f"context is missing; each query needs one of {self.context_dim} numbers."
                )
            return torch.cat([check_vector("context", context, length=self.context_dim), point])
        if context is not None:
            raise ValueError(
                f"context is {context!r}, but the detector was prepared without contexts. Pass "
                "context_dim= where it is made."
            )
        if isinstance(self.domain, Arms):
            return self.domain.index_of(point.unsqueeze(0))[0]
        return point

    def _priors_of(self, model: BanditGPRecipe) -> list[SuffixPrior]:
        shape = model.kernel.batch_shape
        if len(shape) > 0 and tuple(shape) != (self.num_outputs,):
            raise ValueError(
                f"the kernel has the batch shape {tuple(shape)}, but a query has "
                f"{self.num_outputs} outcomes; the shape must be ({self.num_outputs},) or empty."
            )
        kernels = [
            kernel_of_output(model.kernel, output) if len(shape) else model.kernel
            for output in range(self.num_outputs)
        ]
        transform = model.input_transform
        if transform is not None:
            transform.eval()
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
        self._bets = EvidenceStream(engine.detector, engine.num_outputs)
        self._posteriors, self._balls = engine.posteriors(), engine.balls()
        self._pending: dict[int, Tensor] = {}
        shape = (engine.detector.num_candidates, engine.num_outputs)
        self._noise = np.array([prior.noise for prior in engine.priors]).reshape(shape)

    @property
    def bets(self) -> EvidenceStream:
        """The statistic's bookkeeping."""
        return self._bets

    @property
    def likeliest_model(self) -> BanditGPRecipe:
        """The prior; of a list the one with the largest posterior weight."""
        return self._engine.models[self._bets.likeliest_candidate]

    def issue(self, x: Any, context: Any = None) -> int:
        """Note that a query is asked.

        Args:
            x: A point of the domain.
            context: Its context, if there are contexts.

        Returns:
            Its number, from 1 over all segments.
        """
        located = self._engine.locate(x, context)
        before = self._bets.starts
        query = self._bets.issue()
        kept = set(self._bets.starts)
        for position in reversed(range(len(before))):
            if before[position] not in kept:
                self._posteriors.drop(position + 1)  # the null is the first
        if len(self._bets.starts) == self._posteriors.num_suffixes:
            self._posteriors.open()
        self._pending[query] = located
        return query

    def tell(self, query: int, y: float | Sequence[float] | Tensor) -> EvidenceTest | None:
        """Take in the outcome of a query.

        Args:
            query: Its number.
            y: One number for each output.

        Returns:
            None if the query was asked before what the last reset has kept: nothing changes then.

        Raises:
            ValueError: If the query is not pending or a number is not finite.
        """
        if query not in self._pending:
            raise ValueError(
                f"query is {query}, which is not pending: it was never asked, or its outcome is "
                "there already."
            )
        outcome = _array("y", y, (self._engine.num_outputs,))
        located = self._pending.pop(query)
        if not self._bets.counts(query):
            return None
        num_moved = len(self._bets.starts_moved_by(query))
        shape = (num_moved + 1, self._engine.detector.num_candidates, self._engine.num_outputs)
        every = np.tile(outcome, self._engine.detector.num_candidates)
        means, variances = self._posteriors.observe(located, every, num_moved + 1)
        means, variances = means.reshape(shape), variances.reshape(shape)
        ball_fits = None
        if self._balls and not self._bets.is_skipping:
            domain = self._engine.domain  # arms without contexts are located by their number
            if isinstance(domain, Arms) and located.dim() == 0:
                located = domain.choices[located]
            for ball, value in zip(self._balls, outcome, strict=True):
                ball.add(located, float(value))
            ball_fits = np.array([ball.log_likelihood() for ball in self._balls])
        return self._bets._take_in(
            outcome, (means[0], variances[0]), (means[1:], variances[1:]), self._noise, ball_fits
        )

    def forget(self, query: int) -> None:
        """Note that the outcome of a query will never come.

        Args:
            query: Its number.
        """
        self._pending.pop(query, None)

    def observe(
        self, x: Any, y: float | Sequence[float] | Tensor, context: Any = None
    ) -> EvidenceTest:
        """Ask a query and tell its outcome at once.

        Args:
            x: A point of the domain.
            y: One number for each output.
            context: Its context, if there are contexts.
        """
        _array("y", y, (self._engine.num_outputs,))
        test = self.tell(self.issue(x, context), y)
        assert test is not None
        return test

    def reset(self, keep_from: int | None = None) -> None:
        """Begin a new segment, at the next query.

        Args:
            keep_from: The start whose data are kept, which then are the next null's. None drops
                everything.
        """
        position = 0 if keep_from is None else self._bets.starts.index(keep_from) + 1
        self._bets.reset(keep_from)
        self._balls = self._engine.balls()
        if keep_from is None:
            self._posteriors = self._engine.posteriors()
        else:
            self._posteriors.keep_only(position)


def _is_kept(start: int, num_issued: int) -> bool:
    """Return whether a start, counted from the segment's first query, is still needed."""
    age = num_issued - start + 1
    exponent = max(0, age.bit_length() - 2)  # floor(log2(age / 2))
    return start % 2**exponent == 0


def _array(name: str, value: Any, shape: tuple[int, ...], spread: bool = False) -> Array:
    """Return numbers in a shape; dimensions of size 1 may be missing.

    Args:
        name: Of the argument.
        value: Numbers.
        shape: What is wanted.
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
                f"models[{i}] learns from the outcomes that are tested, so its predictions are no "
                "bets made beforehand. Leave refit_every= out and give input transforms their "
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


fill_in_docstrings(__name__)

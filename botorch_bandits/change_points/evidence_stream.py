r"""The bookkeeping of the bets of evidence: starts, their masses, and the statistic.

What is counted, and why it keeps its level, is explained in
:mod:`botorch_bandits.change_points.evidence`. This module keeps the numbers of one stream, for
predictions of any models.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.change_points.null_members import (
    ROBUST_MEMBERS,
    log_normal,
    log_robust,
    log_sum,
)
from botorch_bandits.checks import DTYPE, check_integer

Array = NDArray[np.float64]

NEAR_THE_BEST = 3.0
"""A start counts as the change if its evidence is within this many nats of the largest."""

NEEDS_KERNEL = "{} is {!r}, which needs a kernel. Use the methods of on(domain, model).stream()."


class EvidenceRules(Protocol):
    """The settings that a stream needs, which :class:`.EvidenceDetector` has."""

    @property
    def robust(self) -> bool:
        """Whether the null has members with more noise and with outliers."""

    @property
    def weights(self) -> tuple[float, ...] | None:
        """Prior weights of candidates, which sum to 1."""

    @property
    def change_scale(self) -> float:
        """The number of rounds within which a change is expected."""

    @property
    def keeps_all_starts(self) -> bool:
        """Whether no start is dropped."""

    @property
    def rkhs_bound(self) -> float | None:
        """The largest norm, if the null is a ball."""

    @property
    def drift_rate(self) -> float | None:
        """The rate at which the null drifts, if it does."""

    @property
    def num_skipped(self) -> int:
        """The number of first outcomes that are not bets."""

    @property
    def num_candidates(self) -> int:
        """The number of priors that predict."""

    def level(self, segment: int, first_query: int = 1) -> float:
        """Return the level of a segment."""
        ...


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


class EvidenceStream:
    """The bookkeeping of the bets, for predictions of any models.

    Queries are numbered from 1 over all segments. Each outcome comes with the predictions that were
    made before it; outcomes may come in any order.

    Args:
        detector: The settings.
        num_outputs: ``m``, the number of outcomes of each query.
    """

    _log_masses: Array
    _log_evidences: Array
    _own: Array
    _ball_fits: Array | None

    def __init__(self, detector: EvidenceRules, num_outputs: int = 1) -> None:
        """See the class."""
        self.detector = detector
        self.num_outputs = check_integer("num_outputs", num_outputs, minimum=1)
        self._num_issued, self._segment = 0, 1
        self._num_skipped = 0
        self._kept_from: int | None = None
        # of the null's members: those of the first candidate, then those of the second one, ...
        members = np.full(len(ROBUST_MEMBERS) if detector.robust else 1, 1.0)
        candidates = np.array([1.0] if detector.weights is None else detector.weights)
        weights = np.outer(candidates, members).reshape(-1)
        self._prior_weights = np.log(weights / weights.sum())
        self._log_candidates = np.log(candidates / candidates.sum())
        self._begin(np.broadcast_to(self._prior_weights, (self.num_outputs, len(weights))))

    @property
    def num_issued(self) -> int:
        """The number of queries that were issued, in all segments."""
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
        """The logarithms of what each kept start has won, with what dropped ones left to it."""
        return tuple(self._log_masses.tolist())

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
        """Return whether an outcome of a query still counts, given what resets have kept.

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
        for name in ("rkhs_bound", "drift_rate"):
            if getattr(self.detector, name) is not None:
                raise ValueError(NEEDS_KERNEL.format(name, getattr(self.detector, name)))
        if not self.counts(query):
            raise ValueError(
                f"query is {query}, but outcomes of queries before "
                f"{self.first_query if self._kept_from is None else self._kept_from} no longer "
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
        self._kept_from = keep_from
        self._segment += 1
        self._begin(weights - log_sum(weights)[..., None])

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
                f"query is {query}; the queries issued so far have the numbers 1 to "
                f"{self._num_issued}. Call issue() for each query before its outcome."
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
        num_issued = max(self._num_issued - self._offset, 1)
        rest = math.log(scale / (num_issued - 1.0 + scale))
        best = self._fits.max(-1) if self._ball_fits is None else self._ball_fits
        own = log_sum(self._weights + self._fits) - best
        return float(log_sum(np.append(self._log_masses, rest)) + own.sum())

    def _prune(self) -> None:
        """Give the masses of starts that are not needed to the next later start that is kept."""
        n = self._num_issued - self._offset
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

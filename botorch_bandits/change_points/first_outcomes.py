"""Evidence of changes for a list of priors that the first outcomes complete.

A :class:`~botorch_bandits.DefaultCandidates` determines its output scales when a few
outcomes have arrived. Until then, nothing is tested. Then the list is fixed for all segments, and
all queries and outcomes so far are added: the first outcomes are rows of every posterior, but not
bets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from botorch_bandits.change_points.evidence import EvidenceEngine, EvidenceModelStream
from botorch_bandits.change_points.evidence_stream import EvidenceTest
from botorch_bandits.checks import DTYPE
from botorch_bandits.domains import Domain
from botorch_bandits.models.candidates import CandidatesRecipe
from botorch_bandits.models.prior_lists import DefaultCandidates


class LateEvidenceEngine:
    """Creates streams whose list of priors the first outcomes determine.

    Args:
        listed: The list.
        engine_of: A function from the completed list to the engine that predicts with it.

    Attributes:
        sample: The engine of a list for outcomes of unit variance, used to check the domain.
    """

    def __init__(
        self, listed: DefaultCandidates, engine_of: Callable[[CandidatesRecipe], EvidenceEngine]
    ) -> None:
        """See the class."""
        self.listed, self.engine_of = listed, engine_of
        self.sample = engine_of(listed.list_of(torch.empty(0, dtype=DTYPE)))

    @property
    def domain(self) -> Domain:
        """The domain of the queries."""
        return self.sample.domain

    def stream(self) -> LateEvidenceStream:
        """Return an empty stream, to which queries and outcomes are added one by one."""
        return LateEvidenceStream(self)


class LateEvidenceStream:
    """An :class:`.EvidenceModelStream` that begins when its list of priors is known.

    Args:
        engine: The list and its detector.
    """

    def __init__(self, engine: LateEvidenceEngine) -> None:
        """See the class."""
        self._engine = engine
        self._stream: EvidenceModelStream | None = None
        self._outcomes: list[float] = []  # in the order of arrival
        self._waiting: list[Callable[[EvidenceModelStream], Any]] = []  # what to do when it begins

    def issue(self, x: Any, context: Any = None) -> None:
        """Record that a query is issued; see :meth:`.EvidenceModelStream.issue`.

        Args:
            x: A point of the domain.
            context: Its context, if there are contexts.
        """
        self._do(lambda stream: stream.issue(x, context))

    def tell(self, query: int, y: Sequence[float]) -> EvidenceTest | None:
        """Add the outcome of a query; see :meth:`.EvidenceModelStream.tell`.

        Args:
            query: Its number, from 1.
            y: One number.

        Returns:
            None also until there is a list.
        """
        if self._stream is not None:
            return self._stream.tell(query, y)
        (outcome,) = y
        self._outcomes.append(float(outcome))
        self._do(lambda stream: stream.tell(query, y))
        if len(self._outcomes) == self._engine.listed.num_first:
            outcomes = torch.tensor(self._outcomes, dtype=DTYPE)
            listed = self._engine.listed.list_of(outcomes)
            self._stream = self._engine.engine_of(listed).stream()
            for act in self._waiting:
                act(self._stream)
            self._waiting = []
        return None

    def forget(self, query: int) -> None:
        """Record that the outcome of a query will never come.

        Args:
            query: Its number.
        """
        self._do(lambda stream: stream.forget(query))

    def reset(self, keep_from: int | None = None) -> None:
        """Begin a new segment; see :meth:`.EvidenceModelStream.reset`.

        Args:
            keep_from: The start whose data are kept.
        """
        self._do(lambda stream: stream.reset(keep_from))

    def _do(self, act: Callable[[EvidenceModelStream], Any]) -> None:
        """Apply an action to the stream as soon as there is one."""
        if self._stream is None:
            self._waiting.append(act)
        else:
            act(self._stream)

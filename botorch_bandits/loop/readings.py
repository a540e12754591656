"""What can be read off a loop; see :class:`LoopReadings`."""

from __future__ import annotations

import threading
from collections.abc import Callable

from botorch.models.model import Model

from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch
from botorch_bandits.change_points import Reset
from botorch_bandits.checks import check_positive
from botorch_bandits.confidence import Guarantee
from botorch_bandits.constraints import Ledger
from botorch_bandits.domains import Domain
from botorch_bandits.feedback import Censored, CensoredView, Feedback
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.loop.acquisition_source import AcquisitionFactory, ModelFactory
from botorch_bandits.loop.chooser import Chooser
from botorch_bandits.loop.detector_reading import DetectorReading
from botorch_bandits.loop.feasibility import Feasibility
from botorch_bandits.loop.recorder import Recorder
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.models import BanditGPRecipe


class LoopReadings:
    """The part of :class:`~botorch_bandits.BanditLoop` that changes nothing.

    What is derived from the history is read under the loop's lock: a thread that looks on waits
    while another asks or tells, and never sees or builds half of a round.

    Attributes:
        settings: The arguments, checked.
    """

    settings: LoopSettings
    _clock: Callable[[], float]
    _lock: threading.RLock
    _recorder: Recorder
    _known_chooser: Chooser | None  # None: it is to be built from the history
    _num_given: int

    def feedback_view(self) -> CensoredView:
        """Return what censored feedback makes of the queries now: pending, lost, late.

        After a reset it is about the queries since then, whose ids are those of the history.

        Raises:
            RuntimeError: If feedback is not censored.
        """
        if not isinstance(self.feedback, Censored):
            raise RuntimeError("the loop has no censored feedback; pass feedback=Censored(...).")
        with self._lock:
            current = self._chooser.current
            view = self.feedback.view(current, current.num_queries + 1, self._clock())
            return view.shifted(self._chooser.rounds_before)

    def best(self) -> tuple[Query, Outcome] | None:
        """Return the query with the largest observed reward and its outcome, if any.

        With constraints it is the best of those whose observed values meet all of them, or None
        without one; see :meth:`feasibility` for the nearest then.
        """
        with self._lock:
            segments = self._chooser.segments
            if segments is None or segments.multipliers is None:
                return self.history.best()
            best = segments.multipliers.best
            return None if best is None else (self.history.query(best.query_id), best)

    @property
    def resets(self) -> tuple[Reset, ...]:
        """When the loop began anew and why, in order; see ``restart=``."""
        with self._lock:
            segments = self._chooser.segments
            return () if segments is None else tuple(segments.resets)

    @property
    def multipliers(self) -> tuple[float, ...]:
        """The multipliers in force, one a constraint; empty without constraints."""
        with self._lock:
            segments = self._chooser.segments
            if segments is None or segments.multipliers is None:
                return ()
            return tuple(segments.multipliers.values.tolist())

    def ledger(self) -> Ledger:
        """Return what was violated and by how much, by constraint and epoch.

        It is of observed values, in order of arrival.

        Raises:
            RuntimeError: If there are no constraints.
        """
        with self._lock:
            segments = self._chooser.segments
            if segments is None or segments.multipliers is None:
                raise RuntimeError("the loop has no constraints; pass constraints=.")
            return segments.multipliers.ledger()

    def feasibility(self, width: float | None = None) -> Feasibility:
        """Return whether the constraints can be met, as far as the data say.

        It fits a model of each constraint and searches the domain for its smallest lower
        confidence bound; with contexts that is averaged over the last ten. The loop does the same
        at the end of an epoch where multipliers keep growing, and warns
        (:class:`~botorch_bandits.InfeasibleConstraintsWarning`).

        Args:
            width: The factor of the standard deviation; that of the acquisition, at ``delta / (1 +
                num_constraints)``, if omitted.

        Raises:
            RuntimeError: If there are no constraints, or the loop forgets.
            ValueError: If there is no model, or the acquisition has no width and none is given.
        """
        self.ledger()
        if self.settings.forgetting is not None:
            raise RuntimeError("the loop forgets, so there is no one bound for all rounds.")
        if width is not None:
            width = check_positive("width", width)
        with self._lock:
            return self._chooser.feasibility(self._clock(), width)

    @property
    def detector_readings(self) -> tuple[DetectorReading, ...]:
        """What each test for a change said, in order; see ``restart=``."""
        with self._lock:
            segments = self._chooser.segments
            return () if segments is None else tuple(segments.readings)

    def guarantee(self) -> Guarantee:
        """Return which theorem covers the loop as set up, its constants and current bound.

        The regret bound is ``sum_t 2 w_t sigma_{t-1}(x_t)`` over the rounds so far: it holds
        whenever the confidence bound holds in every round and each round was played by the
        optimistic rule with every outcome at hand.
        """
        if isinstance(self.acquisition, RandomSearch):
            return Guarantee(method="random search", gaps=("it does not look at outcomes",))
        with self._lock:
            if self._chooser.has_no_data():
                return Guarantee(
                    method="a user's model", gaps=("without data the model cannot be built",)
                )
            return self._chooser.guarantee(self._clock(), self._num_given)

    def current_model(self) -> Model:
        """Return the model of what arrived since the last reset; it is shared: do not change it.

        With censored feedback it is the model of what arrived in time and of pseudo-values.

        Raises:
            RuntimeError: If the loop has no model, or a user's model lacks data.
        """
        if self.model is None:
            raise RuntimeError("random search has no model.")
        with self._lock:
            if self._chooser.has_no_data():
                raise RuntimeError(
                    "no outcome has arrived, so the model cannot be built; tell one."
                )
            return self._chooser.model(self._clock())

    @property
    def history(self) -> History:
        """What was asked and told; do not add to it."""
        return self._recorder.history

    @property
    def domain(self) -> Domain:
        """Where points are chosen."""
        return self.settings.domain

    @property
    def model(self) -> BanditGPRecipe | ModelFactory | None:
        """The model's recipe or the user's function; see :meth:`current_model`."""
        return self.settings.model

    @property
    def acquisition(self) -> AcquisitionRecipe | RandomSearch | AcquisitionFactory:
        """What is played, as it was given."""
        return self.settings.acquisition

    @property
    def feedback(self) -> Feedback:
        """What is made of queries without an outcome."""
        return self.settings.feedback

    @property
    def horizon(self) -> int | None:
        """The number of rounds, if it is known."""
        return self.settings.horizon

    @property
    def context_dim(self) -> int:
        """The dimension of the contexts."""
        return self.settings.context_dim

    @property
    def seed(self) -> int:
        """Seeds everything that is drawn."""
        return self.settings.seed

    @property
    def _chooser(self) -> Chooser:
        """What is derived from the history; to be used while the lock is held."""
        with self._lock:
            if self._known_chooser is None:
                self._known_chooser = Chooser(self.settings, self.history)
            return self._known_chooser

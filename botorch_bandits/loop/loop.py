"""The loop that a user asks and tells: :class:`BanditLoop`.

A suggestion is a pure function of settings, history and seed. The loop keeps a history and
derives everything else from it, so a loop that is rebuilt from the same history suggests the
same point, to the last bit on the same platform.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from botorch.models.model import Model

from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch
from botorch_bandits.change_points import Reset, Restart
from botorch_bandits.checks import (
    check_all_carried,
    check_context,
    check_positive,
    level_of_users_line,
)
from botorch_bandits.confidence import EvidenceTable, Guarantee
from botorch_bandits.constraints import Ledger, MultiplierOverflowError, MultiplierRule
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.domains import Domain
from botorch_bandits.feedback import Censored, CensoredView, Feedback, Hallucinated
from botorch_bandits.forgetting import Forgetting
from botorch_bandits.history import Failure, History, Outcome, Query, Retraction
from botorch_bandits.journal import JournalError
from botorch_bandits.journal.files import HandlersOnHold
from botorch_bandits.loop.attaching import AttachesPoints
from botorch_bandits.loop.best import best_now
from botorch_bandits.loop.checking import (
    check_given,
    check_of_loop,
    check_request,
    checked_clock,
    evidence_of_loop,
    too_large_in,
)
from botorch_bandits.loop.descriptions import settings_in_words
from botorch_bandits.loop.feasibility import Feasibility
from botorch_bandits.loop.journal import LoopJournal
from botorch_bandits.loop.minimizing import turned_check, turned_view
from botorch_bandits.loop.recommendation import Recommendation, recommendation_now
from botorch_bandits.loop.restrictions import read_restriction
from botorch_bandits.loop.settings import (
    DEFAULT_INITIAL,
    AcquisitionFactory,
    LoopSettings,
    ModelFactory,
    check_history,
    default_acquisition,
)
from botorch_bandits.loop.state import ChangeTestRecord
from botorch_bandits.loop.weighted import check_weighted, check_weighted_history
from botorch_bandits.markup import Markup, display
from botorch_bandits.models import BanditGPRecipe, EpochModels, ModelCheck


class BanditLoop(AttachesPoints):
    """Sequential decisions under uncertainty: :meth:`ask`, evaluate, :meth:`tell`, repeat.

    The reward is maximized, or with ``maximize=False`` a cost minimized. Any number of queries may
    be asked before an outcome is told, and outcomes may be told in any order; queries without an
    outcome are passed to the acquisition function as pending points. Several threads may ask, tell
    and read on one loop; they take turns. Recipes and rules are copied: later changes to those that
    were passed do not reach the loop.

    With ``journal=``, or :meth:`open`, whatever is asked or told is on disk before the call
    returns, and a loop that is opened again goes on as if nothing had happened.

    Args:
        domain: Where points are chosen: :class:`~botorch_bandits.Space` (named parameters),
            :class:`~botorch_bandits.Box`, :class:`~botorch_bandits.Arms`, or a
            :class:`~botorch_bandits.Domain` of your own.
        model: A recipe such as ``BanditGP.with_kernel(...)``; one an epoch of multipliers
            (:class:`.EpochModels`); or any callable from inputs ``n x d`` and rewards ``n x 1``
            that arrived to a BoTorch model (called once a change of the data, with ``n > 0``). If
            omitted, a :class:`~botorch_bandits.FittedSingleTaskGP`, which learns from the data.
        acquisition: A recipe such as ``ImprovedUpperConfidenceBound.with_options(...)``,
            ``RandomSearch()``, or any callable that takes a model and pending points (``n x d``
            or None) and returns a BoTorch acquisition function. If omitted, ``objective`` chooses.
        objective: What the loop is for, where no acquisition is given: ``"best"`` (the default)
            finds a good point, ``"earned"`` collects reward on the way. Both were chosen by
            measurement; neither comes with a theorem.
        horizon: The number of rounds, if it is known. Asking for more is an error.
        feedback: What is made of queries without an outcome: ``Hallucinated()`` (the default),
            ``Ignored()`` or ``Censored(...)``. With censored feedback and ``BanditGP`` the prior
            mean is the minimum, if that is known.
        forgetting: What the model makes of old outcomes where the reward function changes:
            ``SlidingWindow(...)``, ``ExponentialWeights(...)`` or ``TimeVaryingKernel(...)``; None
            keeps all. With a time-varying kernel the model's inputs have the round in front.
        context_dim: The dimension of the contexts; see :meth:`ask`. The model's inputs are then
            ``(context, point)``, and its kernel is over both.
        restart: When the loop begins anew because the reward function changes:
            ``ChangePointRestart(...)``, or one of the baselines. It goes with any acquisition.
        constraints: What must hold on average, by a rule for multipliers: ``AdditiveEpochs(...)``,
            ``MultiplicativeEpochs(...)`` or ``PrimalDual(...)``. Outcomes then come with constraint
            values.
        num_initial: Rounds at the start, and after each reset, that choose uniformly at random; 0
            if omitted, 5 if no acquisition is given.
        seed: Seeds everything that is drawn.
        maximize: If False, what is told is a cost, and the loop minimizes it. History, journal,
            :meth:`best`, diagnostics and plots have the numbers as they are told; a prior mean and
            the ``minimum`` of ``Censored`` (the largest cost) are in the same sign. Models, also
            those of a function of yours, see minus the cost. Constraints keep their sign.
        repeats: If 1.1, a point is played as often as the bound on regret grows by 10 percent at
            most, before the next one is chosen. Rounds then cost what their few points cost.
        clock: Returns the time in seconds; passed in so that tests and replays are exact.
        history: Continue from this history; it is used, not copied.
        journal: The path of a file in which everything is recorded. If it is there already, the
            loop continues from it.
        verify: With a journal: ``"all"`` reads and checks each record and compares the snapshot
            with them, ``"tail"`` reads what follows the snapshot.
        durability: With a journal, what is on disk if the machine stops: ``"record"`` (the
            default), everything; ``"round"``, everything up to the last outcome or failure;
            ``"batch"``, what :meth:`sync` put there. If only the process dies, all is there.

    Raises:
        TypeError: If an argument is of the wrong kind, or a setting cannot be written to a journal
            (:class:`~botorch_bandits.fingerprints.UnnamedSettingError`).
        ValueError: If a setting is infeasible on this domain, or the journal was begun with other
            settings (:class:`~botorch_bandits.DifferentSettingsError`).
        JournalError: If the journal cannot be used; see :mod:`botorch_bandits.journal`.

    Warns:
        EnvironmentWarning: If the journal was begun with another processor, versions or threads.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits import Box, BanditGP, ImprovedUpperConfidenceBound
        >>> model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.2)
        >>> rule = ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.1)
        >>> loop = BanditLoop(Box([[0.0], [1.0]]), model, rule, seed=0)
        >>> for _ in range(3):
        ...     query = loop.ask()
        ...     outcome = loop.tell(query.id, reward=-float((query.x - 0.3) ** 2))
        >>> loop.history
        History(3 queries, 3 arrived)
    """

    def __init__(
        self,
        domain: Domain,
        model: BanditGPRecipe | EpochModels | ModelFactory | None = None,
        acquisition: AcquisitionRecipe | RandomSearch | AcquisitionFactory | None = None,
        *,
        objective: str | None = None,
        horizon: int | None = None,
        feedback: Feedback | None = None,
        restart: Restart | None = None,
        constraints: MultiplierRule | None = None,
        forgetting: Forgetting | None = None,
        num_initial: int | None = None,
        context_dim: int = 0,
        seed: int = 0,
        maximize: bool = True,
        repeats: float | None = None,
        clock: Callable[[], float] = time.time,
        history: History | None = None,
        journal: str | Path | None = None,
        verify: str = "tail",
        durability: str | None = None,
    ) -> None:
        """See the class."""
        if num_initial is None:
            num_initial = DEFAULT_INITIAL if acquisition is None else 0
        if acquisition is None:
            acquisition = default_acquisition(
                "best" if objective is None else objective,
                is_censored=isinstance(feedback, Censored),
                weighs_constraints=getattr(constraints, "surrogate_in_use", None) == "separate",
                has_contexts=bool(context_dim),
            )
        elif objective is not None:
            raise ValueError(
                f"objective is {objective!r}, but it chooses an acquisition where none is given. "
                "Leave out objective= or acquisition=."
            )
        self.settings = settings = LoopSettings(
            domain=domain,
            model=model,
            acquisition=acquisition,
            horizon=horizon,
            feedback=Hallucinated() if feedback is None else feedback,
            restart=restart,
            constraints=constraints,
            forgetting=forgetting,
            num_initial=num_initial,
            context_dim=context_dim,
            seed=seed,
            maximize=maximize,
            repeats=repeats,
        )
        self._clock = checked_clock(clock)
        super().__init__()
        sizes = settings.history_sizes
        self._history = History(*sizes) if history is None else check_history(history, *sizes)
        for query in self._history.queries:
            check_given(settings.domain, query)
        check_weighted_history(settings, self._history)
        self._history.name_points(settings.domain.decode)
        self._num_given = self._history.num_queries
        if journal is None:
            if (verify, durability) != ("tail", None):
                raise ValueError("verify and durability go with journal=. Leave them out.")
            self._begin()
            return
        self._journal = LoopJournal(journal, settings, history, verify, durability)
        try:
            self._read_journal()
            self._num_given = self._journal.num_given
            self._begin()
        except BaseException:
            self._journal.close()
            raise

    @classmethod
    def open(
        cls,
        path: str | Path,
        domain: Domain,
        model: BanditGPRecipe | EpochModels | ModelFactory | None = None,
        acquisition: AcquisitionRecipe | RandomSearch | AcquisitionFactory | None = None,
        **settings: Any,
    ) -> Self:
        """Continue the loop whose journal this is, or begin one.

        Args:
            path: The path of the journal.
            domain: As for the class.
            model: As for the class.
            acquisition: As for the class.
            **settings: The other arguments of the class, but for ``journal``. They must be those
                with which the journal was begun.

        Example:
            >>> import tempfile
            >>> from botorch_bandits import Box
            >>> path = Path(tempfile.mkdtemp()) / "run.journal"
            >>> settings = dict(domain=Box([[0.0], [1.0]]), model=None, acquisition=RandomSearch())
            >>> with BanditLoop.open(path, **settings) as loop:
            ...     outcome = loop.tell(loop.ask().id, reward=1.0)
            >>> with BanditLoop.open(path, **settings) as loop:
            ...     loop.history
            History(1 queries, 1 arrived)
        """
        return cls(domain, model, acquisition, journal=path, **settings)

    def __repr__(self) -> str:
        """Say what is played where, and how far."""
        played = self.settings.acquisition
        kind = getattr(played, "acquisition_class", None) or played
        name = getattr(kind, "__name__", type(kind).__name__)
        with HandlersOnHold(), self._lock:
            return f"BanditLoop({self.settings.domain!r}, {name}, {self._history!r})"

    def _repr_html_(self) -> str:
        """Show settings and the last rows, in a notebook."""
        with HandlersOnHold(), self._lock:
            return display(
                type(self).__name__,
                dict(settings_in_words(self.settings)) | {"journal": self.journal_path},
                Markup(self._history._repr_html_()),
            )

    @property
    def journal_path(self) -> Path | None:
        """Where the loop's journal is, or None without one."""
        return None if self._journal is None else self._journal.path

    def sync(self) -> None:
        """Put what was asked and told on disk; see ``durability=``."""
        with HandlersOnHold(), self._lock:
            if self._journal is not None:
                self._journal.sync()

    def close(self) -> None:
        """Give the journal back, if there is one; a second call does nothing."""
        with HandlersOnHold(), self._lock:
            if self._journal is not None:
                self._journal.close()

    def __enter__(self) -> Self:
        """Return the loop itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the journal."""
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the lock.

        Raises:
            TypeError: If the loop has a journal, which has one writer.
        """
        if self._journal is not None:
            raise TypeError(
                "a loop with a journal cannot be copied or sent to another process, for a journal "
                "has one writer. Copy loop.history, or send queries."
            )
        return self._state_to_copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make a lock of one's own."""
        vars(self).update(state)
        self._begin_turns()

    def ask(
        self,
        context: Any = None,
        request_id: str | None = None,
        *,
        available: Any = None,
        fixed: Mapping[Any, Any] | None = None,
        avoid: Any = None,
        avoid_within: float | None = None,
    ) -> Query:
        """Choose the next point, record the query and return it.

        With ``available``, ``fixed`` or ``avoid`` the acquisition function is maximized over what
        they leave, and a uniform draw is one from that; nothing else changes. Regret is then
        against the best point that was left, and :meth:`guarantee` says what that takes.

        Args:
            context: ``context_dim`` numbers that are known before the choice; only the point is
                chosen. None without contexts.
            request_id: A name of the caller's for this request. A second call with the same name
                returns the same query, also after a restart, whatever has become of it.
            available: What there is in this round: numbers of arms, one truth value an arm, or
                points as rows; on a box or a space a list of its points.
            fixed: Values that are given in this round, by the name of a parameter on a space, by
                the number of a column elsewhere.
            avoid: Arms, named like those that are available, or points that are not to be chosen
                in this round, such as those of queries that are running; none if empty.
            avoid_within: On a box or a space, how far from points to avoid the query must be: in
                sides of the box, where whole numbers and categories count 1 if they differ; 0.01
                if omitted.

        Returns:
            A :class:`~botorch_bandits.Query`; evaluate the reward at ``query.x``, or at
            ``query.parameters`` under a :class:`~botorch_bandits.Space`, and tell it with
            ``query.id``.

        Raises:
            RuntimeError: If ``horizon`` rounds were asked already.
            TypeError: If the context is a tensor of another dtype than float64, or an argument is
                of another kind.
            ValueError: If the context is missing, not wanted, of the wrong length or not finite; if
                nothing is left to choose from, something is not in the domain, or the loop cannot
                have it; or the request was made before with other arguments. Nothing is recorded
                then.
            JournalError: If the query cannot be written to the journal. Nothing is recorded then.

        Example:
            >>> from botorch_bandits import Arms
            >>> loop = BanditLoop(Arms([[0.0], [0.5], [1.0]]), None, RandomSearch())
            >>> loop.ask(available=[0, 2], avoid=[2]).x
            tensor([0.], dtype=torch.float64)
        """
        context = check_context(self.settings.context_dim, context)
        given, limits = (available, fixed, avoid, avoid_within), None
        if any(each is not None for each in given):
            limits = read_restriction(self.settings, *given)
        record = None if limits is None else limits.record
        with HandlersOnHold(), self._lock:
            self._catch_up()
            if request_id is not None:
                answered = self._history.query_of_request(request_id)
                if answered is not None:
                    return check_request(answered, context, restriction=record)
            round_number = self._next_round()
            now = self._clock()
            with self._derived_state() as chooser:
                x, origin, diagnostics = chooser.choose(round_number, context, now, limits)
                named = self.settings.domain.decode(x)
                told = now, context, diagnostics, request_id, named, record
                query = self._history.new_query(x, origin, *told)
                self._record(query, fit=chooser.latest_fit())
                chooser.add_query(query)
            return query

    def tell(
        self,
        query_id: int,
        reward: Any,
        constraints: Any = None,
        *,
        count: int | None = None,
        noise: float | None = None,
    ) -> Outcome:
        """Record the reward of a query.

        With ``restart=``, the outcome of a uniform query may bring a reset; see :attr:`resets`.

        Telling the same again does nothing and returns the outcome that is known.

        Args:
            query_id: The id of a query that :meth:`ask` returned.
            reward: Any finite real number of at most 1e50 in size: of Python, of numpy, or a tensor
                with one entry, of any precision; True and False are 1 and 0.
            constraints: One such number for each constraint, or a float64 tensor; at most 0 is
                feasible. None without constraints.
            count: Of how many observations these are the means, such as clicks of ``count``
                impressions; it must not depend on them.
            noise: The variance of this reward's noise, if it is not the model's; known before it.

        Raises:
            KeyError: If the id was never asked.
            TypeError: If the reward is not one real number, or ``count`` not an integer.
            ValueError: If the reward or a constraint value is NaN, infinite or larger than 1e50 in
                size, or makes a multiplier or a penalized outcome that is; if constraint values
                are missing or too many; if the query has another reward already, failed, or was
                retracted. Nothing is recorded then. Likewise if it is below the minimum of
                censored feedback by more than noise explains, or if ``count`` or ``noise`` is not
                positive, both are given, or a part of the loop cannot have them.
            JournalError: If the outcome cannot be written to the journal. Nothing is recorded then.
        """
        with HandlersOnHold(), self._lock:
            self._catch_up()
            told = self._history.outcome(query_id)
            if told is not None:
                given = (told.arrived_at, told.arrived_round, constraints, count, noise)
                if told == self._history.outcome_of(told.query_id, reward, *given):
                    return told
            now = self._clock()
            outcome = self._history.new_outcome(
                query_id, reward, now, constraints, count=count, noise=noise
            )
            self._check_told(outcome, self._history.query(query_id), now)
            with self._derived_state() as chooser:
                chooser.check_outcome(outcome)
                self._record(outcome)
                chooser.add_outcome(outcome)
            return outcome

    def tell_failed(self, query_id: int, reason: str | None = None, avoid: bool = False) -> Failure:
        """Record that no outcome of a query will come.

        The query is no longer pending, and no model sees it, so that its point may be chosen again
        at once. With ``avoid=True`` the acquisition function keeps it among its pending points: it
        counts as known to have the posterior mean. With censored feedback a failed query is lost:
        it keeps the minimum. Its round remains. Telling it again does nothing and returns the
        failure that is known.

        Args:
            query_id: The id of a query that :meth:`ask` returned.
            reason: Why.
            avoid: Whether the point is to be kept away from, because it is at fault. It makes a
                difference with ``Hallucinated`` feedback only.

        Raises:
            KeyError: If the id was never asked.
            TypeError: If the reason is no text.
            ValueError: If the query has a reward, or had one that was retracted.
            JournalError: If the failure cannot be written to the journal. Nothing is recorded then.
        """
        with HandlersOnHold(), self._lock:
            self._catch_up()
            told = self._history.failure(query_id)
            if told is not None:
                return told
            avoided = avoid and isinstance(self.settings.feedback, Hallucinated)
            failure = self._history.new_failure(query_id, self._clock(), reason, avoided)
            with self._derived_state() as chooser:
                self._record(failure)
                chooser.add_failure(failure)
            return failure

    def retract(self, query_id: int, reason: str) -> Retraction:
        """Withdraw an outcome that was told, because it is wrong.

        The outcome stays on record with the reason, and counts no more: it is out of the model, of
        :meth:`best`, of multipliers and ledger, and of the tests for a change. The query counts as
        one that failed when its outcome arrived; its round remains. What follows from the history
        is made anew from the outcomes that are kept, so that a reset or an epoch may fall
        otherwise than it did. A retraction is final: attach the point to tell the right value.

        The theorems hold if why an outcome is withdrawn does not depend on its noise: a typing
        error or a broken sensor does not, a value that looks too good or too bad does.
        :meth:`guarantee` says so.

        Args:
            query_id: The id of a query whose outcome was told, or attached.
            reason: Why; it is recorded.

        Raises:
            KeyError: If the id was never asked.
            TypeError: If the reason is no text.
            ValueError: If the reason is blank, or the query is pending, failed, or was retracted
                before.
            JournalError: If it cannot be written to the journal. Nothing is recorded then.
        """
        with HandlersOnHold(), self._lock:
            self._catch_up()
            retraction = self._history.new_retraction(query_id, reason, self._clock())
            self._cached_chooser = None  # to be built anew: this outcome may break it
            try:
                self._record(retraction)
            except BaseException:
                with suppress(JournalError):  # the next call tries again
                    self._catch_up()
                raise
            return retraction

    @property
    def history(self) -> History:
        """What was asked and told; do not add to it."""
        return self._history

    def feedback_view(self) -> CensoredView:
        """Return what censored feedback makes of the queries now: pending, lost, late.

        After a reset it is about the queries since then, whose ids are those of the history.

        Raises:
            RuntimeError: If feedback is not censored.
        """
        feedback = self.settings.feedback
        if not isinstance(feedback, Censored):
            raise RuntimeError("the loop has no censored feedback; pass feedback=Censored(...).")
        with HandlersOnHold(), self._lock:
            current = self._chooser.current
            view = feedback.view(current, current.num_queries + 1, self._clock())
            view = view if self.settings.maximize else turned_view(view)
            return view.shifted(self._chooser.rounds_before)

    def best(self, context: Any = None) -> tuple[Query, Outcome] | None:
        """Return the query that is best now and its outcome, if there is one.

        It is the one with the largest observed reward, or least cost; with constraints, of those
        that meet all of them as observed (:meth:`feasibility` has the nearest). Where the reward is
        not the same in all rounds, what counts now counts:

        * After a reset only queries since then do.
        * With ``SlidingWindow`` only those in the window do.
        * With contexts, ``ExponentialWeights`` or ``TimeVaryingKernel`` it is, of the points that
          were played, the one with the largest posterior mean now, in the context that is asked
          for. The outcome is the latest one there, if possible in that context, and may be far from
          that mean. Without a model only outcomes in the same context count.

        The largest of all rewards is ``loop.history.best()``.

        Args:
            context: With contexts, ``context_dim`` numbers: for which context the point is to be
                the best. None without contexts.

        Raises:
            TypeError: If the context is a tensor of another dtype than float64.
            ValueError: If the context is missing, not wanted, of the wrong length or not finite.
        """
        if context is None and self.settings.context_dim:
            raise ValueError(
                f"context is missing: the loop has context_dim={self.settings.context_dim}, and "
                "which point is best depends on the context. Ask with best(context=...); the "
                "largest of all rewards is history.best()."
            )
        context = check_context(self.settings.context_dim, context)
        with HandlersOnHold(), self._lock:
            chooser = self._chooser
            best = best_now(self.settings, chooser.history, chooser, context, self._clock())
            return None if best is None else self._as_told(best[0].id)

    def recommend(self, context: Any = None, among: str = "all") -> Recommendation:
        """Return the point to deploy, and by how much another one can be better.

        Where :meth:`guarantee` has confidence bounds that hold at all points at once, it is the
        point with the largest lower bound, and the certificate is ``max U - L(x)``; elsewhere the
        point with the largest posterior mean, and why there is no certificate. ``print`` says it.
        Pending points do not enter. Nothing is recorded, and no later choice changes.

        Args:
            context: With contexts, in which of them it is recommended; None without contexts.
            among: ``"all"`` points of the domain, or those that were ``"played"`` (since the last
                reset, within a window), of which Ax speaks as in-sample.

        Raises:
            RuntimeError: If the loop has no model, a user's model lacks data, or no outcome has
                arrived and ``among`` is ``"played"``.
            TypeError: If the context is a tensor of another dtype than float64.
            ValueError: If the context is missing, not wanted, of the wrong length or not finite.
            UnsupportedError: If the model has no posterior mean and variance.

        Example:
            >>> from gpytorch.kernels import RBFKernel
            >>> from botorch_bandits import Arms, BanditGP, GPUpperConfidenceBound, run
            >>> arms = Arms([[0.0], [0.5], [1.0]])
            >>> model = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.3)
            >>> loop = BanditLoop(arms, model, GPUpperConfidenceBound.with_options(delta=0.1))
            >>> result = run(loop, lambda x: float(x), 60, progress=False)
            >>> found = loop.recommend()
            >>> found.point, round(found.certificate, 2), found.delta
            ([1.0], 0.13, 0.1)
        """
        context = check_context(self.settings.context_dim, context, "recommend")
        with HandlersOnHold(), self._lock:
            given = self._clock(), self._num_given
            args = self.settings, self._history, self._chooser
            return recommendation_now(*args, context, among, *given)

    @property
    def resets(self) -> tuple[Reset, ...]:
        """When the loop began anew and why, in order; see ``restart=``."""
        with HandlersOnHold(), self._lock:
            segments = self._chooser.segments
            return () if segments is None else tuple(segments.resets)

    @property
    def multipliers(self) -> tuple[float, ...]:
        """The multipliers in force, one a constraint; empty without constraints."""
        with HandlersOnHold(), self._lock:
            multipliers = self._chooser.multipliers
            return () if multipliers is None else tuple(multipliers.values.tolist())

    def ledger(self) -> Ledger:
        """Return what was violated and by how much, by constraint and epoch.

        It is of observed values, in order of arrival.

        Raises:
            RuntimeError: If there are no constraints.
        """
        with HandlersOnHold(), self._lock:
            multipliers = self._chooser.multipliers
            if multipliers is None:
                raise RuntimeError("the loop has no constraints; pass constraints=.")
            return multipliers.ledger()

    def feasibility(self, width: float | None = None) -> Feasibility:
        """Return whether the constraints can be met, as far as the data say.

        It fits a model of each constraint and searches the domain for its smallest lower
        confidence bound; with contexts that is averaged over the last ten. The loop does the same
        at the end of an epoch where multipliers keep growing, and warns
        (:class:`~botorch_bandits.constraints.InfeasibleConstraintsWarning`).

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
        with HandlersOnHold(), self._lock:
            found = self._chooser.feasibility(self._clock(), width)
            if found.nearest is None:
                return found
            return replace(found, nearest=self._as_told(found.nearest[0].id))

    def _as_told(self, query_id: int) -> tuple[Query, Outcome]:
        """Return a query and its outcome from the history itself, for the chooser's may be turned.

        It has that outcome.
        """
        outcome = self._history.outcome(query_id)
        assert outcome is not None
        return self._history.query(query_id), outcome

    @property
    def change_tests(self) -> tuple[ChangeTestRecord, ...]:
        """What each test for a change said, in order; see ``restart=``."""
        with HandlersOnHold(), self._lock:
            segments = self._chooser.segments
            return () if segments is None else tuple(segments.change_tests)

    def guarantee(self) -> Guarantee:
        """Return what a theorem says of the rounds so far: bounds, regret and violation.

        The statement on regret covers the rounds that the method chose with every earlier outcome
        at hand; for upper confidence bounds its number is the sum of ``2 w_t sigma_{t-1}(x_t)``
        over them. Other rounds are counted beside, where they are bounded at all.
        """
        if isinstance(self.settings.acquisition, RandomSearch):
            return Guarantee(method="random search", gaps=("it does not look at outcomes",))
        with HandlersOnHold(), self._lock:
            if self._chooser.has_no_data():
                return Guarantee(
                    method="a user's model", gaps=("without data the model cannot be built",)
                )
            return self._chooser.guarantee(self._clock(), self._num_given)

    def check_model(self) -> ModelCheck:
        """Return whether the outcomes since the last reset are what the model expects of them.

        ``print`` says it in one sentence. :meth:`.ModelCheck.coverage` has the share of outcomes
        within their predicted intervals, outcome by outcome, and
        :func:`~botorch_bandits.plotting.plot_leave_one_out` draws each outcome beside what all
        others predict of it. Kernel and noise are those of the model as it is now.

        Raises:
            RuntimeError: If the loop has no model or no data, feedback is censored, rows are means
                of penalized rewards, or the model is a list of priors (see :meth:`evidence`).
            ValueError: If the model is no exact Gaussian process
                (:class:`~botorch_bandits.confidence.UnreadablePriorError`).

        Example:
            >>> from botorch_bandits import Box, run
            >>> loop = BanditLoop(Box([[0.0], [1.0]]), seed=0)
            >>> result = run(loop, lambda x: float((9.0 * x).sin()), 12, progress=False)
            >>> len(loop.check_model().one_step)
            12
        """
        with HandlersOnHold(), self._lock:
            check = check_of_loop(self.settings, self.current_model(), self._chooser.current)
            return check if self.settings.maximize else turned_check(check)

    def evidence(self, level: float | None = None, output: int = 0) -> EvidenceTable:
        """Return what the outcomes since the last reset say of each prior on the list.

        Args:
            level: The true prior is ever thrown out with at most this probability: half of the
                ``delta`` that the acquisition has now if omitted, or 0.05 if it has none. With
                constraints each output has its share of it.
            output: With constraints, whose list: 0 is the reward's, ``j`` that of constraint ``j``.

        Raises:
            RuntimeError: If the loop's model is no list of priors, or a user's model lacks data.
        """
        with HandlersOnHold(), self._lock:
            return evidence_of_loop(self.settings, self._chooser, self._clock(), level, output)

    def current_model(self) -> Model:
        """Return the model of what arrived since the last reset; it is shared: do not change it.

        With censored feedback it is the model of what arrived in time and of pseudo-values. With
        ``maximize=False`` it is the model of minus the cost.

        Raises:
            RuntimeError: If the loop has no model, or a user's model lacks data.
        """
        if self.settings.model is None:
            raise RuntimeError("random search has no model.")
        with HandlersOnHold(), self._lock:
            if self._chooser.has_no_data():
                raise RuntimeError(
                    "no outcome has arrived, so the model cannot be built; tell one."
                )
            return self._chooser.model(self._clock())

    def _begin(self) -> None:
        """Derive what follows from the history; outcomes that cannot be carried are no obstacle."""
        problem = too_large_in(self._history)
        if problem is None:
            try:
                _ = self._chooser
                return
            except MultiplierOverflowError as error:  # as after outcomes were withdrawn
                problem = (
                    f"the outcomes on record make multipliers overflow ({error}), so that best()"
                )
        warnings.warn(
            f"{problem} and ask() raise. Withdraw them with loop.retract(query_id, reason).",
            RuntimeWarning,
            stacklevel=level_of_users_line(),
        )

    def _check_told(self, outcome: Outcome, query: Query, now: float) -> None:
        check_all_carried(outcome.reward, outcome.constraints)
        if outcome.is_weighted:
            check_weighted(self.settings, outcome)
        if isinstance(feedback := self.settings.feedback, Censored):
            scale, arrived = self.settings.outcome_scale, outcome.arrived_round
            feedback.check_outcome(query, outcome.reward, arrived, now, self._history, scale)

    def _next_round(self) -> int:
        round_number = self._history.num_queries + 1
        horizon = self.settings.horizon
        if horizon is not None and round_number > horizon:
            raise RuntimeError(
                f"horizon={horizon} rounds were asked already. Build a loop with a larger "
                "horizon and history=loop.history to go on."
            )
        return round_number


fill_in_docstrings(__name__)

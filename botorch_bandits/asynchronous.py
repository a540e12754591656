"""Run a loop against a function that workers evaluate.

All queries are asked and told in the thread that calls :func:`run_async`. A result is told when it
arrives; a query whose evaluation finally fails is recorded as failed.
"""

from __future__ import annotations

import numbers
import pickle
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.checks import (
    check_callable,
    check_instance,
    check_integer,
    check_observed,
    check_one_of,
    check_positive,
    check_reward,
    explains_arguments,
    shown_value,
)
from botorch_bandits.evaluation import (
    ByRound,
    Contexts,
    Restrictions,
    check_contexts,
    context_of,
    limits_of,
    progress_of,
)
from botorch_bandits.history import Event, History, Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.processes import one_thread_each, processes_of
from botorch_bandits.progress import ProgressBar
from botorch_bandits.queries import argument_of
from botorch_bandits.stopping import (
    MOST_FAILURES_IN_A_ROW,
    ONE_NUMBER,
    Endings,
    ErrorPolicy,
    EvaluationError,
    FailureKeeper,
    NotARewardError,
    StopRun,
    kind_of,
    reason_of,
)

__all__ = ["AsyncResult", "TaskReport", "one_thread_each", "run_async"]


class Workers:
    """An executor that is replaced when it breaks, if possible.

    Args:
        given: The executor, or a function that creates one.
    """

    def __init__(self, given: Executor | Callable[[], Executor]) -> None:
        self._make: Callable[[], Executor] | None
        self._own: list[Executor] = []
        if isinstance(given, Executor):
            self._make, self.current = _maker_of(given), given
        else:
            check_callable(
                "executor",
                given,
                "Pass an executor, such as ThreadPoolExecutor(4) or client.get_executor() of a "
                "Dask client, or a function that creates one.",
            )
            self._make, self.current = given, given()
            self._own.append(self.current)
        self._retired: list[Executor] = []  # executors in which a task hangs
        self._hung: list[Executor] = []
        self.num_replaced = 0

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Submit to a working executor."""
        try:
            return self.current.submit(function, *arguments)
        except BrokenExecutor as error:
            if self._make is None:
                raise RuntimeError(
                    f"the executor {self.current!r} broke, and it is not known how to create "
                    "another. The queries in flight are pending; pass a function that creates an "
                    "executor, and call run_async again."
                ) from error
            self._replace(self._make)
            return self.current.submit(function, *arguments)

    def retire(self, executor: Executor) -> None:
        """Use another executor from now on, if one can be created; a task of this one hangs."""
        if executor is self.current and self._make is not None:
            self._replace(self._make)
            self._retired.append(executor)

    def kill_retired(self, in_use: set[Executor | None]) -> None:
        """Kill the processes of executors in which only hanging tasks are left."""
        for executor in [each for each in self._retired if each not in in_use]:
            self._retired.remove(executor)
            self._hung.append(executor)
            for process in processes_of(executor):
                process.kill()

    def close(self) -> None:
        """Shut down the executors that were created here."""
        self.kill_retired(set())
        for executor in self._own:
            executor.shutdown(wait=executor not in self._hung, cancel_futures=True)

    def _replace(self, make: Callable[[], Executor]) -> None:
        self.current = make()
        self._own.append(self.current)
        self.num_replaced += 1


def _maker_of(executor: Executor) -> Callable[[], Executor] | None:
    """Return a function that creates executors like this one; None for other libraries' ones."""
    attributes = vars(executor)
    names = {"_max_workers": "max_workers", "_initializer": "initializer", "_initargs": "initargs"}
    if type(executor) is ProcessPoolExecutor:
        names["_mp_context"] = "mp_context"
    elif type(executor) is not ThreadPoolExecutor:
        return None
    options = {
        public: attributes[private] for private, public in names.items() if private in attributes
    }
    return lambda: type(executor)(**options)


STATES = ("told", "failed", "pending", "retracted")


@dataclass(frozen=True)
class TaskReport:
    """The report on one query.

    Attributes:
        query_id: The query's id.
        state: ``"told"``, ``"failed"``, ``"retracted"`` or, if the run was stopped, ``"pending"``.
        num_tries: The number of times that its evaluation was started.
        reasons: The reasons why tries failed, in order.
    """

    query_id: int
    state: str
    num_tries: int
    reasons: tuple[str, ...]

    @property
    def is_retried(self) -> bool:
        """Whether it was told after a try that failed through no fault of another query."""
        return self.state == "told" and any(map(_is_own, self.reasons))


BESIDE = "a worker died beside it"
"""Why a try that did not fail by itself was ended."""

DROPPED = "a second result was dropped: "
"""How a note begins on a result that arrived when another caller had told the query."""


def _is_own(reason: str) -> bool:
    """Whether a reason says that a try failed by itself."""
    return reason != BESIDE and not reason.startswith(DROPPED)


@dataclass(frozen=True, eq=False)
class AsyncResult:
    """The result of a run on workers.

    Attributes:
        history: The loop's history.
        tasks: One report per query, in the order in which they were asked.
        num_replaced: The number of times that the workers were replaced because one died or hung.
        stopped: The reason why the run ended before ``num_rounds``, if
            :class:`~botorch_bandits.StopRun`, ``stop_after_no_gain`` or ``stop_below`` ended it;
            otherwise None.
    """

    history: History
    tasks: tuple[TaskReport, ...]
    num_replaced: int
    stopped: str | None = None

    def __repr__(self) -> str:
        """Show counts, because a run may have thousands of tasks."""
        shown = [state for state in STATES if state != "retracted" or self.count(state)]
        counts = ", ".join(f"{self.count(state)} {state}" for state in shown)
        if self.num_retried:
            counts += f", {self.num_retried} told after another try"
        stopped = "" if self.stopped is None else f", stopped: {self.stopped}"
        return f"AsyncResult({counts}, workers replaced {self.num_replaced} times{stopped})"

    @property
    def num_retried(self) -> int:
        """The number of queries that were told after a failed try; see :attr:`tasks`."""
        return sum(task.is_retried for task in self.tasks)

    def count(self, state: str) -> int:
        """Return how many queries are ``"told"``, ``"failed"``, ``"pending"`` or ``"retracted"``.

        Raises:
            ValueError: If the state is none of these.
        """
        check_one_of("state", state, STATES)
        return Counter(task.state for task in self.tasks)[state]


@explains_arguments(
    n_jobs="Pass an executor and max_pending=.",
    retries="Pass on_error='retry:N'.",
    workers="Pass an executor and max_pending=.",
)
def run_async(  # noqa: PLR0913 - options, each with a name
    loop: BanditLoop,
    function: Callable[[Any], Any] | ByRound,
    executor: Executor | Callable[[], Executor],
    max_pending: int,
    num_rounds: int,
    *,
    contexts: Contexts | None = None,
    restriction: Restrictions | None = None,
    timeout: float | None = None,
    on_error: str = "retry:1",
    avoid_failed: bool = True,
    stop_after_no_gain: int | None = None,
    stop_below: float | None = None,
    progress: bool = True,
    on_round: Callable[[Query, Event], Any] | None = None,
    shown: Callable[[BanditLoop], Mapping[str, float | str]] = progress_of,
) -> AsyncResult:
    """Ask, have workers evaluate, and tell, with several queries in flight at once.

    An evaluation fails if the function raises, if it returns something that is not a reward, or if
    its worker dies. ``on_error`` sets what happens then, as in :func:`run`; the default tries once
    more, records a second failure and continues. (:func:`run` and the command line end with the
    error by default.) As long as no outcome has arrived, something of another type than a number,
    such as None, ends the run in any case, because the function itself is then at fault. If a
    worker of a process pool dies, all tasks of the pool die with it; they are run again one by one,
    so that only those at fault are counted. A result that arrives after its query failed is
    dropped.

    Results are told before each point is chosen. One that arrives while a point is being chosen is
    told right after that.

    Queries that are pending in the loop's history are evaluated first. If the run is interrupted,
    the queries in flight stay pending. Another call, also on a loop that was reopened from its
    journal, continues the run.

    Args:
        loop: The loop; it continues from its history.
        function: Maps the argument that :func:`run` gives (a dictionary of named values on a
            :class:`~botorch_bandits.Space`, otherwise a float64 tensor of one dimension, with the
            context, if any, in front) to a reward, or to a pair of reward and constraint values.
            Wrapped in :class:`~botorch_bandits.evaluation.ByRound`, it also receives the round. It
            should draw its random numbers from a generator of its own, because threads share
            PyTorch's global generator with the loop, which seeds it.
        executor: A ``concurrent.futures`` executor of threads or processes,
            ``client.get_executor()`` of ``dask.distributed``, or a function that creates an
            executor. Executors of the standard library, and those that a function creates, are
            replaced when
            they break or a task hangs.
        max_pending: The number of queries that may be in flight at once; at most the number of
            workers, because a waiting task counts as running. With ``Censored`` feedback, queries
            that were given up do not count.
        num_rounds: The number of rounds to add, in addition to the queries that were left pending.
        contexts: For a loop with contexts: one row per round (the first row is round 1 of the
            loop), or a function from the round to its context.
        restriction: The points or arms among which rounds may choose; see :func:`run`.
        timeout: The number of seconds after which a task counts as failed, without another try. A
            process that hangs is killed when the other tasks of its pool have ended; a thread
            cannot be killed.
        on_error: ``"raise"``, ``"skip"`` or ``"retry:N"``; see :func:`run`. If failures are
            recorded, ``2 * max_pending`` of them in a row, and at least ten, end the run. Before an
            error ends it, the evaluations that are running finish, and are told or recorded.
        avoid_failed: Whether the acquisition function avoids the point of a failed query; see
            :func:`run`.
        stop_after_no_gain: Ask no further query while the last ``stop_after_no_gain`` rounds have
            brought no better reward; see :func:`run`. The run first waits for the queries in
            flight, which may change that.
        stop_below: Ask no further query while the certificate of what arrived is at most this
            number; see :func:`run`. The run first waits for the queries in flight, which may change
            that.
        progress: Show a progress bar with the best reward so far and counts of queries.
        on_round: Called with each query and its outcome or failure. Raising
            :class:`~botorch_bandits.StopRun` in it ends the run after the queries in flight.
        shown: What the progress bar shows in addition to the number of pending queries.

    Warns:
        EvaluationFailedWarning: If a query failed and the run continues, and at the end of the run
            if evaluations worked only when they were tried again. A query also fails if the
            loop rejects what the function returned (no constraint values, or an outcome below the
            minimum of ``Censored``).

    Raises:
        RuntimeError: If the executor breaks and cannot be replaced. The queries in flight stay
            pending.
        EvaluationError: If too many evaluations in a row failed, or the run ends with three
            failures or more and no outcome in the whole history.
        Exception: The error that the function raised, if ``on_error`` is ``"raise"``.
        TypeError: If an argument has the wrong type, or the function cannot be sent to the
            processes of the executor. In this case, nothing is asked.
        ValueError: If there are fewer rounds left than requested, or contexts are missing, not
            expected or too few. In this case, nothing is asked.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from botorch_bandits import Box, RandomSearch
        >>> loop = BanditLoop(Box([[0.0], [1.0]]), None, RandomSearch())
        >>> with ThreadPoolExecutor(2) as threads:
        ...     result = run_async(
        ...         loop, lambda x: -float(x**2), threads, max_pending=2, num_rounds=5,
        ...         progress=False,
        ...     )
        >>> result.count("told")
        5
    """
    max_pending = check_integer("max_pending", max_pending, minimum=1)
    num_rounds = check_integer("num_rounds", num_rounds, minimum=0)
    policy = ErrorPolicy.read(on_error)
    if timeout is not None:
        timeout = check_positive("timeout", timeout)
    check_instance("loop", loop, BanditLoop, "Pass the BanditLoop that is to be run.")
    if not isinstance(function, ByRound):
        check_callable(
            "function",
            function,
            "Pass a function from a point to a reward, or to a pair with constraints.",
        )
    if on_round is not None:
        check_callable("on_round", on_round, "Pass a function (query, event), or leave it out.")
    if restriction is not None:
        check_callable("restriction", restriction, "Pass a function of the round, or leave it out.")
    num_asked = loop.history.num_queries
    contexts = check_contexts(contexts, loop.settings.context_dim, num_asked, num_rounds)
    horizon = loop.settings.horizon
    if horizon is not None and num_asked + num_rounds > horizon:
        raise ValueError(
            f"num_rounds is {num_rounds}, but {num_asked} of the horizon={horizon} rounds have "
            "already been asked. Ask for fewer, or build a loop with a larger horizon."
        )
    endings = Endings(loop, stop_after_no_gain, stop_below)
    left = loop.history.pending()
    most_in_a_row = max(MOST_FAILURES_IN_A_ROW, 2 * max_pending)
    check_instance("avoid_failed", avoid_failed, bool, "Pass True or False.")
    keeper = FailureKeeper(loop, policy, left, most_in_a_row, avoid_failed)
    bar = ProgressBar(num_asked + num_rounds, "rounds", progress, num_asked - len(left))
    with bar:
        workers = Workers(executor)
        try:
            check_sendable(function, workers.current)
        except TypeError:
            workers.close()
            raise
        run = _Run(loop, function, workers, max_pending, timeout, keeper, endings, bar)
        run.on_round, run.shown, run.restriction = on_round, shown, restriction
        return run.play(left, num_rounds, contexts)


class _Task:
    """A query and the tries to evaluate it."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.num_tries = 0
        self.reasons: list[str] = []
        self.started = 0.0
        self.is_alone = False  # whether no other task runs at the same time
        self.executor: Executor | None = None


class _Run:
    """One call of :func:`run_async`."""

    def __init__(
        self,
        loop: BanditLoop,
        function: Callable[[Any], Any] | ByRound,
        workers: Workers,
        max_pending: int,
        timeout: float | None,
        keeper: FailureKeeper,
        endings: Endings,
        bar: ProgressBar,
    ) -> None:
        self.loop, self.function, self.workers = loop, function, workers
        self.max_pending, self.timeout, self.keeper = max_pending, timeout, keeper
        self.endings, self.bar = endings, bar
        self.on_round: Callable[[Query, Event], Any] | None = None
        self.restriction: Restrictions | None = None
        self.shown: Callable[[BanditLoop], Mapping[str, float | str]] = progress_of
        self.stopped: str | None = None
        self.error: Exception | None = None  # ends the run after telling the results that arrived
        self.run_id = uuid.uuid4().hex  # Dask treats equal calls as one
        self.tasks: list[_Task] = []
        self.running: dict[Future[Any], _Task] = {}
        self.waiting: deque[_Task] = deque()
        self.suspects: deque[_Task] = deque()  # tasks that were running when a worker died

    def play(
        self,
        left: tuple[Query, ...],
        num_rounds: int,
        contexts: Contexts | None,
    ) -> AsyncResult:
        self.waiting.extend(self._new_task(query) for query in left)
        no_gain: str | None = None
        try:
            while True:
                self._end_all_done()
                while (
                    self.stopped is None
                    and self.error is None
                    and (
                        (task := self._next_waiting()) is not None
                        or (num_rounds > 0 and self._has_room())
                    )
                ):
                    if task is None:
                        no_gain = self.endings.reason()
                        if no_gain is not None:  # the queries in flight may change this
                            break
                        num_rounds -= 1
                        round_number = self.loop.history.num_queries + 1
                        context = context_of(contexts, round_number)
                        limits = limits_of(self.restriction, round_number)
                        task = self._new_task(self.loop.ask(context, **limits))
                    self._start(task)
                    self._end_all_done()  # what arrived while this point was chosen
                    self.bar.show(**self._shown())
                if not self.running:
                    break
                wait(self.running, self._patience(), FIRST_COMPLETED)
                self._give_up_overdue()
            self.keeper.warn_of_retries()
            if self.error is not None:  # all that was in flight has been told or recorded
                raise self.error
            if self.stopped is None:
                self.keeper.check_any()
        except BaseException:
            self._tell_all_done()
            raise
        finally:
            for future in self.running:
                future.cancel()
            self.workers.close()
        state = self.loop.history.state
        return AsyncResult(
            self.loop.history,
            tuple(
                TaskReport(task.query.id, state(task.query.id), task.num_tries, tuple(task.reasons))
                for task in self.tasks
            ),
            self.workers.num_replaced,
            self.stopped or no_gain,
        )

    def _new_task(self, query: Query) -> _Task:
        self.tasks.append(_Task(query))
        return self.tasks[-1]

    def _has_room(self) -> bool:
        if self.suspects or any(task.is_alone for task in self.running.values()):
            return False
        occupied = {task.query.id for task in self.running.values()}
        if self.loop.settings.feedback.censored is not None:
            occupied &= set(self.loop.feedback_view().pending)
        return len(occupied) < self.max_pending

    def _next_waiting(self) -> _Task | None:
        if self.suspects and not self.running:
            task = self.suspects.popleft()
            task.is_alone = True
            return task
        return self.waiting.popleft() if self.waiting and self._has_room() else None

    def _start(self, task: _Task) -> None:
        arguments: tuple[Any, ...] = (as_plain(argument_of(task.query)),)
        function: Callable[..., Any] = self.function  # type: ignore[assignment]
        if isinstance(self.function, ByRound):
            function = self.function.function
            arguments = (*arguments, task.query.round_number)
        task.num_tries += 1
        task.started = time.monotonic()
        task.is_alone = task.is_alone or self.max_pending == 1
        name = f"{self.run_id}-{task.query.id}-{task.num_tries}"
        future = self.workers.submit(_evaluate, name, function, *arguments)
        task.executor = self.workers.current
        self.running[future] = task

    def _end_all_done(self) -> None:
        """Tell every result that has arrived, in the order of asking."""
        done = [future for future in self.running if future.done()]
        for future in sorted(done, key=lambda future: self.running[future].query.id):
            self._end(future, self.running.pop(future))
        if self.error is not None:  # only what a worker has already begun is still awaited
            for future in [future for future in self.running if future.cancel()]:
                self.running.pop(future)

    def _tell_all_done(self) -> None:
        """Tell the results that have arrived when the run ends at once, and nothing else."""
        for future, task in sorted(self.running.items(), key=lambda each: each[1].query.id):
            if future.done() and not future.cancelled() and future.exception() is None:
                with suppress(Exception):
                    self.loop.tell(task.query.id, *future.result())

    def _end(self, future: Future[Any], task: _Task) -> None:
        was_alone, task.is_alone = task.is_alone, False
        try:
            told = future.result()
        except BrokenExecutor:
            if was_alone:
                died = EvaluationError("its worker died")
                self._fail_try(task, died, "its worker died", self.suspects)
            else:
                task.reasons.append(BESIDE)
                self.suspects.append(task)
        except CancelledError:
            self._fail_try(
                task, EvaluationError("it was canceled"), "it was canceled", self.waiting
            )
        except StopRun as stop:
            self.stopped = str(stop) or "StopRun"
        except Exception as error:
            self._fail_try(task, error, reason_of(error), self.waiting)
        else:
            self.keeper.note_success()
            self._tell(task, *told)

    def _tell(self, task: _Task, reward: float, constraints: list[float] | None) -> None:
        loop, query_id = self.loop, task.query.id
        try:
            outcome = loop.tell(query_id, reward, constraints)
        except (TypeError, ValueError) as error:
            if loop.history.state(query_id) == "pending":
                is_other = (constraints is None) == bool(loop.history.num_constraints)
                hint = f" {ONE_NUMBER}" if is_other and constraints is not None else ""
                reason = f"the loop refused the result: {error}{hint}"
                self._fail(task, reason, NotARewardError(reason) if is_other else None)
            else:  # another caller has told it, or told that it failed
                task.reasons.append(f"{DROPPED}{error}")
                self.bar.advance(1, **self._shown())
        else:
            own = [reason for reason in task.reasons if _is_own(reason)]
            if own:
                self.keeper.note_retry(task.query, own[-1])
            self._note(task, outcome)

    def _fail_try(self, task: _Task, error: Exception, reason: str, queue: deque[_Task]) -> None:
        num_failed = 1 + sum(map(_is_own, task.reasons))
        if num_failed > self.keeper.policy.num_retries:
            self._fail(task, reason, error)
        else:
            task.reasons.append(reason)
            queue.appendleft(task)

    def _fail(self, task: _Task, reason: str, error: Exception | None = None) -> None:
        """Record that a query failed, or end the run with its error."""
        task.reasons.append(reason)
        state = self.loop.history.state(task.query.id)
        if state == "failed":  # another caller has recorded it
            self._note(task, self.loop.tell_failed(task.query.id))
        if state != "pending":  # told in the meantime, and perhaps retracted
            return
        try:
            self.keeper.check(task.query, error or EvaluationError(reason))
            self._note(task, self.keeper.record(task.query, reason))
        except Exception as ending:
            self.error = self.error or ending

    def _note(self, task: _Task, event: Event) -> None:
        self.bar.advance(1, **self._shown())
        if self.on_round is not None:
            try:
                self.on_round(task.query, event)
            except StopRun as stop:
                self.stopped = str(stop) or "StopRun"

    def _patience(self) -> float | None:
        if self.timeout is None:
            return None
        first = min(task.started for task in self.running.values())
        return max(first + self.timeout - time.monotonic(), 0.0)

    def _give_up_overdue(self) -> None:
        if self.timeout is None:
            return
        now = time.monotonic()
        overdue = [f for f, t in self.running.items() if now - t.started >= self.timeout]
        for future in overdue:
            if future.done():  # it arrived at the last moment; the next turn handles it
                continue
            future.cancel()
            task = self.running.pop(future)
            task.is_alone = False
            self._fail(task, f"no result after {self.timeout:g} seconds")
            assert task.executor is not None
            self.workers.retire(task.executor)
        self.workers.kill_retired({task.executor for task in self.running.values()})

    def _shown(self) -> dict[str, float | str]:
        return {**self.shown(self.loop), "pending": self.loop.history.num_pending}


def check_sendable(function: Callable[..., Any] | ByRound, executor: Executor) -> None:
    """Raise an error if a function cannot be sent to the processes of an executor.

    Args:
        function: The function of a run.
        executor: Its executor; only the processes of the standard library are checked.

    Raises:
        TypeError: If it cannot be pickled.
    """
    if not isinstance(executor, ProcessPoolExecutor):
        return
    try:
        pickle.dumps(function)
    except Exception as error:  # pickle raises errors of many kinds
        raise TypeError(
            f"function {shown_value(function)} cannot be sent to processes: {error}. Define it "
            "with def at the top level of a module, or pass an executor of threads."
        ) from error


def _converted(argument: Any, kind: type, convert: Callable[[Any], Any]) -> Any:
    """Return an argument, or each value of a dictionary, converted if it is of a kind."""
    if isinstance(argument, kind):
        return convert(argument)
    return {n: convert(v) if isinstance(v, kind) else v for n, v in argument.items()}


def as_plain(argument: Tensor | dict[str, Any]) -> Any:
    """Return a function's argument in the form sent to a worker, with NumPy arrays for tensors."""
    return _converted(argument, Tensor, lambda tensor: tensor.cpu().numpy())


def from_plain(plain: Any) -> Tensor | dict[str, Any]:
    """Undo :func:`as_plain`, in the worker."""
    found: Tensor | dict[str, Any] = _converted(plain, np.ndarray, torch.from_numpy)
    return found


def outcome_of(returned: Any) -> tuple[float, list[float] | None]:
    """Return what a function returned as plain numbers: a reward and constraint values.

    Raises:
        TypeError: If it is neither a real number nor a pair of a number and constraint values.
        ValueError: If a number is not finite.
    """
    if isinstance(returned, tuple) and len(returned) == 2:
        reward, constraints = returned
        if isinstance(constraints, numbers.Real):
            raise TypeError(
                f"constraints must be a list, such as [g], got {shown_value(constraints)}. "
                f"{ONE_NUMBER}"
            )
        return check_reward("reward", reward), check_observed("constraints", constraints)
    return check_reward("reward", returned), None


def _evaluate(
    name: str, function: Callable[..., Any], plain: Any, *round_number: int
) -> tuple[float, list[float] | None]:
    """Evaluate in a worker, and return plain numbers or raise an error.

    Args:
        name: A name that differs in each call.
        function: The user's function.
        plain: Its argument, see :func:`as_plain`.
        round_number: The round, if the function receives it.
    """
    try:
        returned = function(from_plain(plain), *round_number)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # it could not be sent back, which would break the process pool
            raise RuntimeError(reason_of(error)) from None
        raise
    try:
        return outcome_of(returned)
    except (TypeError, ValueError) as error:
        raise kind_of(error)(f"the function returned {shown_value(returned)}: {error}") from None

"""Run a loop against a function: ask, evaluate here or on workers, tell, until it is over.

Everything is asked and told in the thread that calls :func:`run`. Evaluations are futures of an
executor, such as those of ``concurrent.futures``, joblib and Dask, or of one that evaluates each
query when it is submitted.
"""

from __future__ import annotations

import heapq
import io
import multiprocessing
import os
import pickle
import queue
import signal
import socket
import threading
import time
import traceback
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from botorch.test_functions.base import BaseTestProblem
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_instance,
    check_integer,
    check_matrix,
    check_observed,
    check_positive,
    check_told,
    entries_of,
    explains_arguments,
    is_list,
    level_of_users_line,
    shown_value,
)
from botorch_bandits.history import Event, History, Query, argument_of, input_of
from botorch_bandits.loop import BanditLoop
from botorch_bandits.loop.settings import points_within
from botorch_bandits.problems import ChangingProblem, Delays
from botorch_bandits.problems.changing import in_round, is_on_arms
from botorch_bandits.progress import progress_bar
from botorch_bandits.random_streams import RandomBlocks, derive_seed, seeded_globally

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ByRound",
    "EvaluationError",
    "NoGain",
    "RunResult",
    "SmallCertificate",
    "best_arrived",
    "end_with_parent",
    "run",
]

MOST_FAILURES_IN_A_ROW = 10
"""So many evaluations that fail one after the other end a run: the function itself is at fault."""


class EvaluationError(ValueError):
    """The function returned a number that is no reward, or too many evaluations in a row failed."""


@dataclass(frozen=True)
class ByRound:
    """A function that also receives the round.

    Attributes:
        function: Called with the argument of a plain function (see :func:`run`) and the round (from
            1) in which the query was asked; returns what a plain function would return.

    Example:
        >>> from botorch_bandits import Arms, BanditLoop, RandomSearch, run
        >>> arms = Arms(torch.zeros(1, 1, dtype=torch.float64))
        >>> rewards = ByRound(lambda x, round_number: 10.0 * round_number)
        >>> run(BanditLoop(arms, None, RandomSearch()), rewards, 3, progress=False).rewards
        tensor([10., 20., 30.], dtype=torch.float64)
    """

    function: Callable[[Any, int], Any]


Contexts: TypeAlias = Callable[[int], Tensor] | Sequence[Any] | Tensor
"""A function from the round (from 1) to its context, or a matrix with a row for each round."""

Restriction: TypeAlias = Callable[[int], Mapping[str, Any] | None]
"""Maps the round (from 1) to arguments of :meth:`.BanditLoop.ask` that restrict it."""

Rule: TypeAlias = Callable[[BanditLoop], Any]
"""Says of a loop why no other query is to be asked; None, or False, if there is no reason."""


# --- when a run is over -------------------------------------------------------------------------


@dataclass(frozen=True)
class NoGain:
    """A rule for ``stop=``: so many rounds have ended since the best reward, or cost, so far.

    A round ends with its outcome or its failure. Initial rounds and attached points do not count,
    nor do, after a reset, the rounds before those that it kept. With constraints, the best reward
    is taken among the outcomes that meet them. The count follows from the history, so a run that
    goes on with a larger number continues.

    Attributes:
        num_rounds: The number of rounds.

    Example:
        >>> from botorch_bandits import BanditLoop, Box, RandomSearch, run
        >>> loop = BanditLoop(Box([(0.0, 1.0)]), None, RandomSearch())
        >>> run(loop, lambda x: 0.5, 100, stop=NoGain(4), progress=False).stopped
        'no better reward in 4 rounds'
    """

    num_rounds: int

    def __post_init__(self) -> None:
        """Check the number."""
        check_integer("num_rounds", self.num_rounds, minimum=1)

    def __call__(self, loop: BanditLoop) -> str | None:
        """Return the reason to stop, or None.

        Args:
            loop: The loop.

        Raises:
            ValueError: If rewards of this loop cannot be compared across rounds.
        """
        settings, history = loop.settings, loop.history
        if settings.context_dim or settings.forgetting is not None:
            raise ValueError(
                f"stop is {self}, but the loop has context_dim= or forgetting=, so that rewards of "
                "different rounds cannot be compared. Pass a function of the loop that says when "
                "it is time to stop."
            )
        first = loop.resets[-1].num_before if loop.resets else 0
        best, count = None, 0
        for event in history.events:
            asked, outcome = history.query(event.query_id), event.counted
            if asked.id < first:
                continue
            if (
                outcome is not None
                and max(outcome.constraints, default=0.0) <= 0.0
                and (best is None or history.is_better(outcome.reward, best))
            ):
                best, count = outcome.reward, 0
            elif asked.origin not in ("initial", "attached"):
                count += 1
        if count < self.num_rounds:
            return None
        return f"no better {history.outcome_name} in {self.num_rounds} rounds"


@dataclass(frozen=True)
class SmallCertificate:
    """A rule for ``stop=``: no point can be much better than the recommended one.

    With the probability of the certificate of :meth:`.BanditLoop.recommend`, no point is better
    than the recommended one by more than ``at_most``: best-arm identification with a fixed
    confidence.

    Attributes:
        at_most: The largest certificate that ends the run, in the unit of outcomes.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import Arms, BanditGP, BanditLoop, GPUpperConfidenceBound, run
        >>> model = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.3)
        >>> rule = GPUpperConfidenceBound.with_options(delta=0.1)
        >>> loop = BanditLoop(Arms([[0.0], [0.5], [1.0]]), model, rule)
        >>> result = run(loop, lambda x: float(x), 99, stop=SmallCertificate(0.3), progress=False)
        >>> len(result.queries) < 99, loop.recommend().certificate <= 0.3
        (True, True)
    """

    at_most: float

    def __post_init__(self) -> None:
        """Check the number."""
        check_positive("at_most", self.at_most)

    def __call__(self, loop: BanditLoop) -> str | None:
        """Return the reason to stop, or None.

        Args:
            loop: The loop.

        Raises:
            ValueError: If this loop cannot have a certificate, or ``at_most`` is at least the
                ``2 B`` by which any two points can differ.
        """
        if loop.settings.learned is not None:
            self._refuse("its model learns the prior from the outcomes")
        try:
            found = loop.recommend()
        except RuntimeError:  # the model of a user's function takes data
            if loop.settings.is_random or loop.history.num_arrived:
                raise
            return None
        if found.certificate is None:
            if not found.may_come:
                self._refuse("; ".join(found.reasons))
            return None
        trivial = found.trivial_certificate
        if trivial is not None and self.at_most >= trivial:
            raise ValueError(
                f"stop is {self}, but any two points differ by at most 2 B = {trivial:.6g}, so the "
                "run would end at once. Pass a smaller number."
            )
        if found.certificate > self.at_most:
            return None
        return f"certificate {found.certificate:.6g} at {found.point}"

    def _refuse(self, reason: str) -> None:
        raise ValueError(
            f"stop is {self}, but this loop cannot have a certificate: {reason}. Pass another "
            "rule, or give the acquisition what guarantee() needs for confidence bounds."
        )


# --- what a run returns -------------------------------------------------------------------------


def best_arrived(values: Tensor, arrivals: Tensor) -> Tensor:
    """Return the largest value that had arrived by each round; minus infinity before the first.

    Args:
        values: One per round.
        arrivals: The round in which each of them arrived, infinite if it has not.

    Example:
        >>> best_arrived(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([3.0, 2.0, torch.inf]))
        tensor([-inf, 1., 3.])
    """
    order = arrivals.argsort(stable=True)
    rounds = torch.arange(1, len(values) + 1, dtype=arrivals.dtype)
    count = torch.searchsorted(arrivals[order].contiguous(), rounds, right=True)
    return torch.cat([values.new_full((1,), -torch.inf), values[order]]).cummax(0).values[count]


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run found, and its regret round by round if the problem knows it.

    Tensors have one entry for each round of the run, and say what is known now.

    Attributes:
        loop: The loop.
        queries: The queries that this run evaluated.
        problem: The test problem that was played; None for a user's function.
        stopped: What ``stop`` said; None if all rounds were played.

    Example:
        >>> from botorch_bandits import Arms, RandomSearch, run
        >>> loop = BanditLoop(Arms([[0.0], [0.5], [1.0]]), None, RandomSearch())
        >>> result = run(loop, lambda x: 1.0 - x[0], 20, progress=False)
        >>> result, result.best_parameters, result.best_reward
        (RunResult(20 rounds, History(20 queries, 20 arrived)), [0.0], 1.0)
    """

    loop: BanditLoop
    queries: tuple[Query, ...]
    problem: Any = None
    stopped: str | None = None

    def __repr__(self) -> str:
        """Show counts."""
        stopped = "" if self.stopped is None else f", stopped: {self.stopped}"
        return f"RunResult({len(self.queries)} rounds, {self.history!r}{stopped})"

    @property
    def history(self) -> History:
        """The loop's history."""
        return self.loop.history

    @property
    def best_parameters(self) -> Any:
        """The best point of :meth:`.BanditLoop.best`, by names or as a list; None without one."""
        best = self.loop.best()
        return None if best is None else best[0].parameters or best[0].x.tolist()

    @property
    def best_reward(self) -> float | None:
        """The reward, or cost, that was observed there; with noise, it is partly luck."""
        best = self.loop.best()
        return None if best is None else best[1].reward

    def to_dataframe(self) -> pd.DataFrame:
        """Return the history as a pandas DataFrame, one row per query."""
        return self.history.to_dataframe()

    def plot(self, **options: Any) -> Any:
        """Draw the run; see :func:`botorch_bandits.plotting.plot_run` for options and result."""
        from botorch_bandits.plotting import plot_run

        return plot_run(self.loop, **options)

    def guarantee(self) -> Any:
        """Return what a theorem states about the loop; see :meth:`.BanditLoop.guarantee`."""
        return self.loop.guarantee()

    def _told(self, value_of: Callable[[Any], Any], missing: Any) -> Tensor:
        found = [self.history.outcome(each.id) for each in self.queries]
        rows = [missing if each is None else value_of(each) for each in found]
        return torch.tensor(rows, dtype=DTYPE)

    @property
    def rewards(self) -> Tensor:
        """Observed rewards; NaN if the outcome has not arrived."""
        return self._told(lambda outcome: outcome.reward, torch.nan)

    @property
    def arrivals(self) -> Tensor:
        """How many rounds of this run had been asked when each outcome arrived; else infinite."""
        before = self.queries[0].round_number - 1 if self.queries else 0
        return self._told(lambda outcome: outcome.arrived_round - before, torch.inf)

    @property
    def constraints(self) -> Tensor:
        """Observed constraint values, ``num_rounds x num_constraints``; NaN without an outcome."""
        missing = [torch.nan] * self.history.num_constraints
        told = self._told(lambda outcome: outcome.constraints, missing)  # n x num_constraints
        return told.reshape(len(self.queries), self.history.num_constraints)

    @cached_property
    def values(self) -> Tensor:
        """Noiseless rewards.

        Raises:
            ValueError: If the problem does not know them.
        """
        self._check_known()
        return torch.tensor([float(self._value(each)) for each in self.queries], dtype=DTYPE)

    @cached_property
    def constraint_values(self) -> Tensor:
        """Noiseless constraint values, ``num_rounds x num_constraints``.

        Raises:
            ValueError: If the problem does not know them.
        """
        self._check_known()
        rows = [self._limits(each, input_of(each)[None])[0] for each in self.queries]
        return torch.stack(rows) if rows else torch.empty(0, self.history.num_constraints)

    @cached_property
    def regret(self) -> Tensor:
        """The regret of each round: optimal minus noiseless value, never from noisy rewards.

        With ``maximize=False``, it is the noiseless cost minus the smallest cost. If the reward
        depends on the round, this is the dynamic regret, against the optimum of the round in which
        the query was asked. A round that could choose only from some arms or points is compared
        with the best of these. With constraints, it is compared with the best feasible point, so it
        can be negative; consider ``constraint_values`` as well.

        Raises:
            ValueError: If the problem does not know its optimum.
        """
        try:
            optima = torch.tensor([self._optimum(each) for each in self.queries], dtype=DTYPE)
        except (
            NotImplementedError,
            ValueError,
        ) as error:  # BoTorch does not know; none is feasible
            raise ValueError(
                "regret needs a problem that knows its noiseless values and optimum, such as "
                "those in botorch_bandits.problems, no contexts, and no rounds that were "
                "restricted other than to some arms or points."
            ) from error
        return self._sign * (optima - self.values)

    @property
    def cumulative_regret(self) -> Tensor:
        """The sum of regrets up to each round."""
        return self.regret.cumsum(0)

    @property
    def simple_regret(self) -> Tensor:
        """The smallest regret among outcomes that had arrived by each round; else infinite."""
        return -best_arrived(-self.regret, self.arrivals)

    @property
    def best_so_far(self) -> Tensor:
        """The best reward, or cost, that had arrived by each round; infinitely bad before."""
        return self._sign * best_arrived(self._sign * self.rewards, self.arrivals)

    @property
    def _sign(self) -> float:
        return 1.0 if self.history.maximize else -1.0

    def _check_known(self) -> None:
        if self.problem is None:
            raise ValueError(
                "a function of yours has no noiseless values. Run a test problem, such as those in "
                "botorch_bandits.problems."
            )

    def _value(self, asked: Query, X: Tensor | None = None) -> Tensor:
        """Return noiseless rewards at points ``n x d``, or at the query's own, in its round."""
        known = in_round(self.problem, asked.round_number)
        with torch.no_grad():
            values: Tensor = known(input_of(asked)[None] if X is None else X, noise=False)
        return values

    def _limits(self, asked: Query, X: Tensor) -> Tensor:
        """Return noiseless constraint values at points ``n x d``, ``n x num_constraints``."""
        with torch.no_grad():
            if isinstance(self.problem, ChangingProblem):
                return self.problem.constraint_values(X, asked.round_number)
            limits: Tensor = -self.problem.evaluate_slack_true(X)
        return limits

    def _optimum(self, asked: Query) -> float:
        """Return the best noiseless value among the points that a round could choose from."""
        self._check_known()
        if self.loop.settings.context_dim:
            raise NotImplementedError  # it depends on the context
        if asked.is_restricted:
            points = points_within(asked, self.loop.settings.domain)
            if points is None:
                raise NotImplementedError
            values = self._sign * self._value(asked, points)
            if self.history.num_constraints:
                is_feasible = (self._limits(asked, points) <= 0.0).all(-1)
                values = values[is_feasible]
            return self._sign * float(values.max()) if len(values) else torch.nan
        if isinstance(self.problem, ChangingProblem):
            return self.problem.optimal_value(asked.round_number)
        return float(self.problem.optimal_value)


# --- evaluations --------------------------------------------------------------------------------


class _InTurn(Executor):
    """Evaluates at once, in the thread that submits."""

    _max_workers = 1

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See :class:`concurrent.futures.Executor`."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def end_with_parent() -> None:
    """End this process with an interrupt, and when its parent ends, even if that was killed.

    Pass it as ``initializer=`` of a ``ProcessPoolExecutor``, whose processes otherwise stay forever
    if the script is killed, and print a traceback each if it is interrupted.

    Example:
        >>> from concurrent.futures import ProcessPoolExecutor
        >>> processes = ProcessPoolExecutor(4, initializer=end_with_parent)
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()

    def wait() -> None:
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _double(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=DTYPE)


class _Plain(pickle.Pickler):
    """Pickles tensors as lists: that is fast, and processes do not share their memory."""

    dispatch_table = {Tensor: lambda x: (_double, (x.tolist(),))}  # noqa: RUF012


def _evaluate(
    function: Callable[..., Any], arguments: bytes, num_constraints: int, key: str
) -> tuple[float, list[float] | None]:
    """Evaluate in a worker, and return plain numbers: a reward and constraint values.

    Args:
        function: The user's function.
        arguments: Its arguments, pickled by :class:`_Plain`.
        num_constraints: The number of constraint values that it returns as well.
        key: It differs in each call, because Dask takes equal calls for one.
    """
    returned = function(*pickle.loads(arguments))
    if num_constraints and not is_list(returned, 2):
        raise TypeError(
            f"the function returned {shown_value(returned)}, but the loop has constraints; return "
            f"a pair of the reward and the {num_constraints} constraint values, such as (reward, "
            "[g]). At most 0 is feasible."
        )
    reward, limits = returned if num_constraints else (returned, None)
    try:
        told = check_told(reward)
        if limits is None:
            return told, None
        observed = check_observed("constraints", limits, num_constraints)
        return told, observed
    except ValueError as error:
        raise EvaluationError(f"the function returned {shown_value(returned)}: {error}") from error


def _observer(problem: Any, loop: BanditLoop) -> Callable[[Query], Any]:
    """Return a function from a query to what a test problem returns there.

    Its noise depends only on the seed and the round; on arms, it is that of a simulated replicate.
    """
    seed, has_constraints = loop.settings.seed, loop.history.num_constraints > 0
    noise = RandomBlocks([seed], "noise")

    def observe(asked: Query) -> Any:
        t, x = asked.round_number, input_of(asked)[None]
        known = in_round(problem, t)
        with torch.no_grad(), seeded_globally(derive_seed(seed, t, "noise")):
            if is_on_arms(problem):
                scale = problem.noise_std or 0.0
                reward = float(known(x, noise=False)) + scale * float(noise.at(t))
            else:
                reward = known(x)
        if not has_constraints:
            return reward
        with torch.no_grad(), seeded_globally(derive_seed(seed, t, "constraint noise")):
            if isinstance(problem, ChangingProblem):
                return reward, [in_round(each, t)(x) for each in problem.constraints]
            return reward, -problem.evaluate_slack(x)[0]

    return observe


def _check_problem(loop: BanditLoop, problem: Any) -> None:
    """Raise an error if a test problem has another direction, or other constraints, than a loop."""
    name, maximize = type(problem).__name__, loop.settings.maximize
    if problem.is_minimization_problem == maximize:
        goals = ("minimized", "maximized") if maximize else ("maximized", "minimized")
        raise ValueError(
            f"problem ({name}) is to be {goals[0]}, but in this loop outcomes are {goals[1]}. "
            f"Build it with another negate=, or the loop with maximize={not maximize}."
        )
    wanted, found = loop.history.num_constraints, getattr(problem, "num_constraints", 0)
    if wanted not in (0, found):
        raise ValueError(
            f"problem ({name}) has {found} constraints, but the loop has {wanted}. Build the rule "
            f"for the multipliers with num_constraints={found}, or leave constraints= out of the "
            "loop if there are none."
        )


# --- the run ------------------------------------------------------------------------------------


def _context_of(contexts: Contexts | None, loop: BanditLoop, last: int) -> Callable[[int], Any]:
    """Return a function from the round to its context, where rounds up to ``last`` are played."""
    if contexts is None:
        return lambda t: None
    if callable(contexts):
        return contexts
    rows = check_matrix("contexts", contexts, loop.settings.context_dim or None)
    if last > len(rows):
        raise ValueError(
            f"contexts has {len(rows)} rows, but rounds up to {last} are to be played; give one "
            "row per round, counted from the loop's first."
        )
    return lambda t: rows[t - 1]


def _pool_of(executor: Any, workers: int | None) -> tuple[Any, int]:
    """Return what evaluates, and how many queries at once."""
    if executor is None:
        executor = _InTurn() if workers is None else ThreadPoolExecutor(workers)
    most = workers or getattr(executor, "_max_workers", None)  # the name that all libraries have
    if most is None:
        raise ValueError(
            f"workers is missing: {executor!r} does not tell how many queries it evaluates at "
            "once. Pass workers=."
        )
    return executor, most


@explains_arguments(n_jobs="Pass workers=.", on_error="Pass catch=(ValueError,).")
def run(  # noqa: PLR0913 - options, each with a name
    loop: BanditLoop,
    f: Callable[..., Any] | BaseTestProblem | ChangingProblem | ByRound,
    num_rounds: int,
    *,
    workers: int | None = None,
    executor: Any = None,
    catch: type[Exception] | tuple[type[Exception], ...] = (),
    callbacks: Sequence[Callable[[Query, Event], Any]] = (),
    stop: Rule | None = None,
    lease: float | None = None,
    contexts: Contexts | None = None,
    restriction: Restriction | None = None,
    delays: Delays | None = None,
    progress: bool | None = None,
) -> RunResult:
    """Ask, evaluate and tell for a number of rounds.

    Queries that are pending in the loop's history are evaluated first, so that a run that was
    interrupted goes on; those of another process that may still be running are left to it. Ctrl-C
    ends a run at any moment: what has arrived is told, and the queries that are being evaluated
    stay pending.

    Args:
        loop: The loop; it continues from its history.
        f: A function of one argument that returns one real number. On a
            :class:`~botorch_bandits.Space`, the argument is a dictionary of named values; on a
            :class:`~botorch_bandits.Box` or :class:`~botorch_bandits.Arms`, it is a one-dimensional
            float64 tensor, with the context, if any, in front. Wrapped in :class:`ByRound`, the
            function also receives the round. If the loop has constraints, it returns a pair of the
            reward and the constraint values. Alternatively, a BoTorch test problem or an
            environment (:class:`~botorch_bandits.problems.ChangingProblem`) with the direction and
            the constraints of the loop: its noise is drawn from a stream of the loop's seed, its
            slacks are minus the constraint values, and the result has the regret.
        num_rounds: The number of rounds to add, in addition to the queries that were left pending.
        workers: How many queries are evaluated at once, by threads unless ``executor`` is given. If
            both are omitted, they are evaluated one after the other in this thread. Functions in
            threads should draw random numbers from a generator of their own, because the loop seeds
            the global ones of PyTorch and Python.
        executor: What evaluates: a ``ProcessPoolExecutor``, joblib's ``get_reusable_executor()``,
            a Dask ``Client``, or whatever else has ``submit`` and returns futures. It is not shut
            down. ``workers`` may be omitted if it knows the number of its workers, as the first two
            do.
        catch: Errors, such as ``(ValueError,)``, after which the run goes on: the query is recorded
            as failed, with the traceback as its reason, and its point is avoided. Any other error
            ends the run when the evaluations that are running have been told, and its query stays
            pending. A number that is no reward is an :class:`EvaluationError`, a ValueError;
            something else than a number is a TypeError. Ten failures in a row end the run.
        callbacks: Functions that are called with each query and its outcome or failure, once that
            is on record.
        stop: A function of the loop, called before each query is asked. What it returns, if it is
            true, ends the run and is in ``stopped``; :class:`NoGain` and :class:`SmallCertificate`
            are two.
        lease: The number of seconds after which a query that nobody has answered fails, whoever
            asked it. The time counts from when it was asked. Its point may be chosen again.
        contexts: For a loop with contexts: one row per round (the first row is round 1 of the
            loop), or a function from the round to its context.
        restriction: A function from the round to arguments of :meth:`.BanditLoop.ask` that limit
            what it may choose, such as ``{"available": [0, 3]}``, or to None.
        delays: The number of rounds after which outcomes are told, such as ``PoissonDelay(10)``,
            for simulations in this thread. Outcomes due in the same round are told in the order of
            their queries; those that are not due at the end stay pending.
        progress: Whether to show a progress bar with the best reward so far. If omitted, it is
            shown if tqdm is installed.

    Returns:
        What was found; see :class:`RunResult`.

    Raises:
        ValueError: If the problem does not match the loop, contexts are missing or too few, or
            options cannot be combined. In these cases, nothing is asked.
        TypeError: If an argument has the wrong type.
        EvaluationError: If the function returned a number that is no reward, or too many
            evaluations in a row failed.
        Exception: Any error of the function that is not in ``catch``.

    Example:
        >>> from botorch_bandits import Float, Space
        >>> loop = BanditLoop(Space({"rate": Float(1e-3, 1.0, log=True)}), seed=0)
        >>> def score(p):
        ...     if p["rate"] > 0.5:
        ...         raise ArithmeticError("diverged")
        ...     return 1.0 - (p["rate"] - 0.1) ** 2
        >>> result = run(loop, score, 12, workers=2, catch=(ArithmeticError,), progress=False)
        >>> len(result.queries), abs(result.best_parameters["rate"] - 0.1) < 0.1
        (12, True)
    """
    num_rounds = check_integer("num_rounds", num_rounds, minimum=0)
    check_instance("loop", loop, BanditLoop, "Pass the BanditLoop that is to be run.")
    for name, given in (("stop", stop), ("restriction", restriction)):
        if given is not None:
            check_instance(name, given, Callable, "Pass a function, or leave it out.")
    for each in entries_of(callbacks):
        check_instance(
            "callbacks", each, Callable, "Pass functions (query, event), or leave it out."
        )
    problem: Any = f if isinstance(f, BaseTestProblem | ChangingProblem) else None
    function: Any = f.function if isinstance(f, ByRound) else f
    if problem is not None:
        _check_problem(loop, problem)
        function = _observer(problem, loop)
    check_instance(
        "f", function, Callable, "Pass a test problem or a function from a point to a number."
    )
    context_of = _context_of(contexts, loop, loop.history.num_queries + num_rounds)
    if workers is not None:
        check_integer("workers", workers, minimum=1)
    simulates = problem is not None or delays is not None
    if simulates and not (workers is None and executor is None):
        raise ValueError(
            "workers= or executor= is given for a test problem or with delays=, which are "
            "simulated in this thread. Leave it out."
        )
    pool, most = _pool_of(executor, workers)

    def arguments_of(asked: Query) -> tuple[Any, ...]:
        if problem is not None:
            return (asked,)
        given = (argument_of(asked), asked.round_number)
        return given if isinstance(f, ByRound) else given[:1]

    def ask() -> Query:
        t = loop.history.num_queries + 1
        limits = (restriction(t) if restriction is not None else None) or {}
        return loop.ask(context_of(t), **limits)

    played = _Run(
        loop,
        pool,
        most,
        function,
        arguments_of,
        ask,
        num_rounds,
        catch,
        entries_of(callbacks),
        stop,
        None if lease is None else check_positive("lease", lease),
        delays,
    )
    try:
        played.play(progress)
    finally:
        for future in played.running.values():
            future.cancel()
        if executor is None:
            pool.shutdown(wait=False, cancel_futures=True)
    return RunResult(loop, tuple(played.queries), problem, played.stopped)


@dataclass
class _Run:
    """One call of :func:`run`: what is in evaluation, and the outcomes that are to be told."""

    loop: BanditLoop
    pool: Any
    most: int  # so many are evaluated at once
    function: Callable[..., Any]
    arguments_of: Callable[[Query], tuple[Any, ...]]
    ask: Callable[[], Query]
    num_rounds: int  # still to be asked
    catch: Any
    callbacks: Sequence[Callable[[Query, Event], Any]]
    stop: Rule | None
    lease: float | None
    delays: Delays | None
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    queries: list[Query] = field(default_factory=list)
    left: list[Query] = field(default_factory=list)  # by an earlier run
    running: dict[int, Any] = field(default_factory=dict)  # futures by query
    done: queue.SimpleQueue[tuple[Query, Any]] = field(default_factory=queue.SimpleQueue)
    # the round before which it is told, the query's id, the query and its future
    due: list[tuple[float, int, Query, Any]] = field(default_factory=list)
    stopped: str | None = None
    error: BaseException | None = None  # ends the run
    num_in_a_row: int = 0  # failures

    def play(self, progress: bool | None) -> None:
        """Play the queries that are left, and the rounds."""
        self.left = [each for each in self.loop.pending if not may_be_running(each.asked_by)]
        num_asked = self.loop.history.num_queries
        given = (num_asked + self.num_rounds, "rounds", progress, num_asked - len(self.left))
        with progress_bar(*given) as self.advance:
            try:
                while True:
                    self._tell_arrived(0.0)
                    self._fail_expired()
                    asked = self._next()
                    if asked is not None:
                        self._start(asked)
                    elif self.running:
                        self._tell_arrived(self._patience())
                    else:
                        break
            except BaseException:
                self.callbacks = ()  # what has arrived is told, and nothing else happens
                with suppress(Exception):
                    self._tell_arrived(0.0)
                raise
        if self.error is not None:
            raise self.error

    def _next(self) -> Query | None:
        """Return the query to be evaluated next, if there is one and room for it."""
        state = self.loop.history.state  # others may have told what was left
        self.left = [each for each in self.left if state(each.id) == "pending"]
        if self.error is not None or len(self.running) >= self.most:
            return None
        if self.left:
            return self.left.pop(0)
        if self.num_rounds == 0 or self.stopped is not None:
            return None
        reason = None if self.stop is None else self.stop(self.loop)
        if reason:
            self.stopped = str(reason)
            return None
        self.num_rounds -= 1
        return self.ask()

    def _start(self, asked: Query) -> None:
        self.queries.append(asked)
        arguments = io.BytesIO()
        _Plain(arguments).dump(self.arguments_of(asked))
        given = (self.function, arguments.getvalue(), self.loop.history.num_constraints)
        key = f"{self.key}-{asked.id}"
        self.running[asked.id] = future = self.pool.submit(_evaluate, *given, key)
        future.add_done_callback(lambda done: self.done.put((asked, done)))

    def _tell_arrived(self, patience: float | None) -> None:
        """Wait for a result, at most so many seconds, and tell all that are there and due."""
        with suppress(queue.Empty):
            while True:
                asked, future = self.done.get(timeout=patience)
                self.running.pop(asked.id, None)
                patience, due = 0.0, 0.0
                if self.delays is not None:
                    seed, t = self.loop.settings.seed, asked.round_number
                    due = t + max(self.delays.of_query(asked.x, seed, t), 1.0)
                heapq.heappush(self.due, (due, asked.id, asked, future))
        while self.due and self.due[0][0] <= self.loop.history.num_queries + 1:
            self._tell(*heapq.heappop(self.due)[2:])

    def _tell(self, asked: Query, future: Any) -> None:
        if self.loop.history.state(asked.id) != "pending":  # somebody else told it, or it expired
            return
        try:
            told = future.result()
        except self.catch as error:
            self._record_failure(asked, error)
        except Exception as error:
            error.add_note(
                f"Query {asked.id} at {shown_value(argument_of(asked))} stays pending, and the "
                f"next run evaluates it once more. With catch=({type(error).__name__},), a run "
                "records such failures and goes on; "
                f"loop.fail({asked.id}) gives up this query alone."
            )
            self.error = self.error or error
        except BaseException as error:  # the interrupt of a worker
            self.error = self.error or error
        else:
            self.num_in_a_row = 0
            self._note(asked, self._record(asked, self.loop.tell, *told))

    def _record_failure(self, asked: Query, error: Exception) -> None:
        where = f"query {asked.id} at {shown_value(argument_of(asked))} failed"
        reason = "".join(traceback.format_exception_only(error)).strip()
        steps = "".join(traceback.format_exception(error))
        told = f"{reason}\n\n{steps}", None, True  # its point is avoided
        failure = self._record(asked, self.loop.fail, *told)
        self.num_in_a_row += 1
        if self.num_in_a_row >= max(MOST_FAILURES_IN_A_ROW, 2 * self.most):
            self.error = EvaluationError(
                f"{self.num_in_a_row} evaluations in a row failed; the last one: {where}: "
                f"{reason}. They are on record as failed. Repair the function and run again, "
                "which goes on with other points."
            )
        warnings.warn(
            f"{where}: {reason}. It is recorded as failed, and the run goes on.",
            RuntimeWarning,
            stacklevel=level_of_users_line(),
        )
        self._note(asked, failure)

    def _record(self, asked: Query, tell: Callable[..., Event], *told: Any) -> Event | None:
        """Tell an outcome or a failure, and return it; None if another process was first."""
        try:
            return tell(asked.id, *told)
        except ValueError:
            if self.loop.history.state(asked.id) == "pending":
                raise
            return None

    def _note(self, asked: Query, event: Event | None) -> None:
        if event is None:
            return
        history, settings = self.loop.history, self.loop.settings
        shown: dict[str, Any] = {"failed": history.num_failed, "pending": history.num_pending}
        if settings.outcomes_are_alike and not settings.context_dim:
            best = self.loop.best()
            shown["best"] = None if best is None else f"{best[1].reward:.6g}"
        self.advance(1, **{name: value for name, value in shown.items() if value})
        for callback in self.callbacks:
            callback(asked, event)

    def _fail_expired(self) -> None:
        if self.lease is None:
            return
        for asked in self.loop.history.pending():
            if time.time() - asked.asked_at >= self.lease:
                self.running.pop(asked.id, None)
                reason = f"no answer within {self.lease:g} seconds"
                self._note(asked, self._record(asked, self.loop.fail, reason))

    def _patience(self) -> float | None:
        """Return the seconds until the lease of a query ends."""
        if self.lease is None:
            return None
        first = min((each.asked_at for each in self.loop.history.pending()), default=time.time())
        return max(first + self.lease - time.time(), 0.0)


def may_be_running(name: str | None) -> bool:
    """Return whether another process than this one may be running.

    Args:
        name: Its number and host, as in ``"4242@host"``; None is this one. Of another host nothing
            is known.
    """
    process, _, host = (name or "").partition("@")
    if not process or host != socket.gethostname():
        return bool(process)
    if int(process) == os.getpid() or os.name == "nt":  # where signal 0 is an interrupt
        return False
    try:
        os.kill(int(process), 0)
        # what has ended, and nobody has waited for, still has an entry
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except (FileNotFoundError, PermissionError):
        return True
    return state != "Z"

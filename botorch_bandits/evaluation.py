"""Run a loop against a function, and account for regret.

:func:`run` asks, evaluates and tells, with delays if there are any; a :class:`RunResult` holds the
queries, their outcomes, and the regret if the optimum is known.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeAlias

import torch
from botorch.test_functions.base import BaseTestProblem, ConstrainedBaseTestProblem
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_callable,
    check_instance,
    check_integer,
    check_matrix,
    check_one_of,
    explains_arguments,
    shown_value,
)
from botorch_bandits.feedback import BelowMinimumError
from botorch_bandits.history import Event, History, Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.loop.restrictions import points_within
from botorch_bandits.problems import ChangingProblem, Delays
from botorch_bandits.problems.changing import in_round, is_on_arms
from botorch_bandits.progress import ProgressBar
from botorch_bandits.queries import argument_of, input_of
from botorch_bandits.random_streams import RandomBlocks, derive_seed, seeded_globally
from botorch_bandits.stopping import (
    DEADLY,
    Endings,
    ErrorPolicy,
    EvaluationError,
    EvaluationMark,
    FailureKeeper,
    StopRun,
    check_told,
    mark_of,
    reason_of,
)

__all__ = ["ByRound", "RunResult", "progress_of", "run"]


Contexts: TypeAlias = Callable[[int], Tensor]
"""A function from the round (from 1) to its context."""


def check_contexts(
    contexts: Any, context_dim: int, num_asked: int, num_rounds: int
) -> Contexts | None:
    """Return the contexts of a run if they match the loop.

    Args:
        contexts: A matrix with a row per round, a function from the round to its context, or None.
        context_dim: The dimension of the loop's contexts.
        num_asked: The number of rounds for which the loop has been asked.
        num_rounds: The number of rounds to be played.

    Raises:
        TypeError: If they are neither numbers nor a function, or a tensor with another dtype.
        ValueError: If they are missing or not expected, not finite rows of ``context_dim`` numbers,
            or too few.
    """
    if context_dim == 0:
        if contexts is not None:
            raise ValueError(
                "contexts are given, but the loop has context_dim=0. Build it with context_dim= "
                "set to the number of context features, or leave out contexts=."
            )
        return None
    if num_rounds == 0:
        return None  # queries that were left pending have their contexts
    if contexts is None:
        raise ValueError(
            f"contexts is missing: the loop has context_dim={context_dim}. Pass a matrix with one "
            "row per round, or a function from the round to its context."
        )
    if callable(contexts):
        function: Contexts = contexts
        return function
    rows = check_matrix("contexts", contexts, context_dim)
    if num_asked + num_rounds > len(rows):
        raise ValueError(
            f"contexts has {len(rows)} rows, but rounds up to {num_asked + num_rounds} are to be "
            "played; give one row per round, counted from the loop's first."
        )
    return lambda round_number: rows[round_number - 1]


def context_of(contexts: Contexts | None, round_number: int) -> Tensor | None:
    """Return the context of a round, or None without contexts.

    Args:
        contexts: What :func:`check_contexts` returned.
        round_number: From 1, counted from the loop's first round.
    """
    return None if contexts is None else contexts(round_number)


Restrictions: TypeAlias = Callable[[int], Mapping[str, Any] | None]
"""Maps the round (from 1) to those of the arguments ``available``, ``fixed``, ``avoid`` and
``avoid_within`` of :meth:`.BanditLoop.ask` that restrict it."""


def limits_of(restriction: Restrictions | None, round_number: int) -> dict[str, Any]:
    """Return the restriction of a round, as arguments of ``ask``.

    Args:
        restriction: The restriction that :func:`run` was given.
        round_number: The number of the round, from 1, counted from the loop's first round.

    Raises:
        TypeError: If the function returned neither a dictionary nor None.
        ValueError: If the dictionary has another key.
    """
    told = None if restriction is None else restriction(round_number)
    if told is None:
        return {}
    check_instance(
        f"restriction({round_number})",
        told,
        Mapping,
        f"Return a dict with some of {', '.join(LIMITS)}, or None.",
    )
    for name in told:
        check_one_of(f"a name in restriction({round_number})", name, LIMITS)
    return dict(told)


LIMITS = ("available", "fixed", "avoid", "avoid_within")
"""Arguments of ``ask`` that restrict a round."""


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


Problem: TypeAlias = Callable[..., Any] | ChangingProblem | ByRound
"""A BoTorch test problem, an environment whose reward depends on the round, or a function of one
argument (see :func:`argument_of`) to one number. With constraints, a function returns a pair of
the reward and the constraint values."""

Told: TypeAlias = tuple[Any, Any]
"""A reward and its constraint values, or None instead of these without constraints."""


def check_constraints(loop: BanditLoop, problem: Problem) -> None:
    """Raise an error if a problem that states its number of constraints does not match the loop."""
    wanted = loop.history.num_constraints
    if wanted == 0 or not isinstance(problem, BaseTestProblem | ChangingProblem):
        return
    found = len(problem.constraints) if isinstance(problem, ChangingProblem) else 0
    if isinstance(problem, ConstrainedBaseTestProblem):
        found = problem.num_constraints
    if found != wanted:
        raise ValueError(
            f"problem ({type(problem).__name__}) has {found} constraints, but the loop has "
            f"{wanted}. Build the rule for the multipliers with "
            f"num_constraints={found}, or leave constraints= out of the loop if there are none."
        )


def evaluate_query(loop: BanditLoop, problem: Problem, query: Query) -> Told:
    """Return the outcome of a query: reward, and constraint values if the loop has any."""
    if isinstance(problem, ByRound):
        return read_told(loop, problem.function(argument_of(query), query.round_number))
    asked: Any = in_round(problem, query.round_number)
    if not isinstance(asked, BaseTestProblem):
        return read_told(loop, asked(argument_of(query)))
    with (
        torch.no_grad(),
        seeded_globally(derive_seed(loop.settings.seed, query.round_number, "noise")),
    ):
        reward = asked(input_of(query).unsqueeze(0)).squeeze(0)
    return reward, observe_constraints(loop, problem, query)


def read_told(loop: BanditLoop, returned: Any) -> Told:
    """Return what a function returned as a reward and constraint values."""
    if loop.history.num_constraints == 0:
        return returned, None
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise TypeError(
            f"the function returned {shown_value(returned)}, but the loop has constraints; return "
            f"a pair of the reward and the {loop.history.num_constraints} constraint values, such "
            "as (reward, [g]). At most 0 is feasible."
        )
    return returned


def check_direction(loop: BanditLoop, problem: Any) -> None:
    """Raise an error if a problem is to be maximized and the loop minimizes, or vice versa.

    Args:
        loop: The loop.
        problem: Any problem; a user's function may be for either.

    Raises:
        ValueError: If that is the case.
    """
    name, maximize = type(problem).__name__, loop.settings.maximize
    is_reward: bool | None = None  # of a user's function, it is not known
    if isinstance(problem, BaseTestProblem):
        is_reward = not problem.is_minimization_problem
    elif isinstance(problem, ChangingProblem):
        is_reward = True
    if is_reward is False and maximize:
        raise ValueError(
            f"problem ({name}) is to be minimized, but a bandit maximizes. Build it with "
            "negate=True, or the loop with maximize=False."
        )
    if is_reward and not maximize:
        raise ValueError(
            f"problem ({name}) is to be maximized, but the loop has maximize=False. Leave "
            "out maximize=, or pass a problem whose values are costs."
        )


def observe_constraints(loop: BanditLoop, problem: Problem, query: Query) -> Tensor | None:
    """Return noisy constraint values, whose noise depends only on the seed and the round."""
    if loop.history.num_constraints == 0:
        return None
    point = input_of(query).unsqueeze(0)
    seed = derive_seed(loop.settings.seed, query.round_number, "constraint noise")
    with torch.no_grad(), seeded_globally(seed):
        if isinstance(problem, ConstrainedBaseTestProblem):
            return -problem.evaluate_slack(point).squeeze(0)
        known: Any = problem  # which has as many constraints as the loop
        values = [in_round(c, query.round_number)(point).squeeze(0) for c in known.constraints]
    return torch.stack(values)


def true_constraints(problem: Problem, X: Tensor, rounds: list[int]) -> Tensor | None:
    """Return noiseless constraint values, one row per round, if the problem knows them."""
    if isinstance(problem, ConstrainedBaseTestProblem):
        with torch.no_grad():
            return -problem.evaluate_slack_true(X)
    if not isinstance(problem, ChangingProblem):
        return None
    rows = [problem.constraint_values(x.unsqueeze(0), t) for x, t in zip(X, rounds, strict=True)]
    return torch.cat(rows) if rows else X.new_empty(0, len(problem.constraints))


def arms_evaluator(problem: Any, loop: BanditLoop) -> Callable[[BanditLoop, Problem, Query], Told]:
    """Return a function that evaluates queries with the noise of a simulated replicate."""
    noise_std = problem.noise_std or 0.0
    noise = RandomBlocks([loop.settings.seed], "noise")

    def evaluate(loop: BanditLoop, _: Problem, query: Query) -> Told:
        point = input_of(query).unsqueeze(0)
        value = float(in_round(problem, query.round_number)(point, noise=False))
        reward = value + noise_std * float(noise.at(query.round_number))
        return reward, observe_constraints(loop, problem, query)

    return evaluate


def replay(problem: ChangingProblem, X: Tensor, rounds: list[int]) -> tuple[Tensor, Tensor | None]:
    """Return noiseless rewards of given rounds, and the largest possible ones if they are known."""
    if not rounds:
        return X.new_empty(0), X.new_empty(0)
    values = [
        problem.evaluate_true(x.unsqueeze(0), t).squeeze(0) for x, t in zip(X, rounds, strict=True)
    ]
    try:
        optima = [problem.optimal_value(t) for t in rounds]
    except NotImplementedError:  # BoTorch's way of saying that it is not known
        return torch.stack(values), None
    return torch.stack(values), torch.tensor(optima, dtype=DTYPE, device=X.device)


def known_optimum(problem: Problem) -> float | None:
    """Return the largest noiseless reward, or the smallest cost, if the problem knows it."""
    if not isinstance(problem, BaseTestProblem):
        return None
    try:
        return float(problem.optimal_value)
    except NotImplementedError:  # BoTorch's way of saying that it is not known
        return None
    except ValueError:  # no arm is feasible
        if isinstance(problem, ConstrainedBaseTestProblem):
            return None
        raise


def optima_within(
    loop: BanditLoop, problem: Problem, queries: list[Query], known: Tensor | float | None
) -> Tensor | float | None:
    """Return the best noiseless value of each round among the points that it could choose.

    Args:
        loop: The loop.
        problem: The problem of the run; it knows its noiseless values unless it is a plain
            function.
        queries: The queries of the rounds.
        known: The best values on the whole domain, one per round or one number; None if not known.

    Returns:
        ``known`` if no round was restricted. None if ``known`` is None, or if a round was
        restricted other than to some arms or points. NaN if none of these is feasible.
    """
    restricted = [i for i, query in enumerate(queries) if query.is_restricted]
    if known is None or not restricted:
        return known
    sign = 1.0 if loop.settings.maximize else -1.0
    optima = torch.as_tensor(known, dtype=DTYPE).expand(len(queries)).clone()
    for i in restricted:
        points = points_within(queries[i], loop.settings.domain)
        if points is None:
            return None
        with torch.no_grad():
            values = sign * in_round(problem, queries[i].round_number)(points, noise=False)
        constraints = true_constraints(problem, points, [queries[i].round_number] * len(points))
        if loop.history.num_constraints and constraints is not None:
            values = values.masked_fill((constraints > 0.0).any(-1), -torch.inf)
        best = float(values.max())
        optima[i] = sign * best if best > -torch.inf else torch.nan
    return optima


@dataclass(frozen=True, eq=False)
class RunResult:
    """The result of a run, round by round. Every tensor has one entry per round.

    Attributes:
        history: The loop's history.
        rewards: Observed rewards; NaN if the outcome has not arrived.
        values: Noiseless rewards if the problem knows them, otherwise None.
        optimal_value: The largest noiseless reward if the problem knows it, otherwise None. In a
            loop with ``maximize=False``, rewards are costs, and this is the least one.
        optimal_values: If the reward depends on the round, or rounds could choose only from some
            arms or points, the largest noiseless reward of each round; otherwise None.
        arrivals: The number of rounds of this run that had been asked when each outcome arrived;
            infinite if it has not arrived. Without delays, this is the round itself.
        constraints: Observed constraint values, one row per round; NaN if the outcome has not
            arrived. None for a loop without constraints.
        constraint_values: Noiseless constraint values in the same shape if the problem knows them;
            otherwise None.
        stopped: The reason why the run ended before ``num_rounds``, if
            :class:`~botorch_bandits.StopRun`, ``stop_after_no_gain`` or ``stop_below`` ended it;
            otherwise None.
    """

    history: History
    rewards: Tensor
    values: Tensor | None = None
    optimal_value: float | None = None
    arrivals: Tensor | None = None
    optimal_values: Tensor | None = None
    constraints: Tensor | None = None
    constraint_values: Tensor | None = None
    stopped: str | None = None

    def __repr__(self) -> str:
        """Show the number of rounds instead of the tensors, which may be long."""
        stopped = "" if self.stopped is None else f", stopped: {self.stopped}"
        return f"RunResult({len(self.rewards)} rounds, {self.history!r}{stopped})"

    @property
    def best_so_far(self) -> Tensor:
        """The largest reward that had arrived by each round; minus infinity before the first.

        With ``maximize=False``, this is the least cost, and infinity before the first outcome.
        """
        return self._sign * self._best_arrived(self._sign * self.rewards)

    @property
    def _sign(self) -> float:
        """The sign that turns an outcome into a reward."""
        return 1.0 if self.history.maximize else -1.0

    @property
    def regret(self) -> Tensor:
        """The regret of each round: optimal minus noiseless value, never from noisy rewards.

        With ``maximize=False``, it is the noiseless cost minus the smallest cost.

        If the reward depends on the round, this is the dynamic regret: the optimum is that of the
        function in the round in which the query was asked. A round that could choose only from some
        arms or points is compared with the best of these. With constraints, it is compared with the
        best feasible point, so the regret can be negative; consider ``constraint_values`` as well.

        Raises:
            ValueError: If the problem does not know both.
        """
        if self.values is not None and self.optimal_values is not None:
            return self._sign * (self.optimal_values - self.values)
        if self.values is None or self.optimal_value is None:
            raise ValueError(
                "regret needs a problem that knows its noiseless values and optimum, such as "
                "those in botorch_bandits.problems, no contexts, and no rounds that were "
                "restricted other than to some arms or points."
            )
        return self._sign * (self.optimal_value - self.values)

    @property
    def cumulative_regret(self) -> Tensor:
        """The sum of regrets up to each round."""
        return self.regret.cumsum(0)

    @property
    def simple_regret(self) -> Tensor:
        """The smallest regret among outcomes that had arrived by each round; else infinite."""
        return -self._best_arrived(-self.regret)

    def _best_arrived(self, values: Tensor) -> Tensor:
        rounds = torch.arange(1, len(values) + 1, dtype=DTYPE, device=values.device)
        arrivals = rounds if self.arrivals is None else self.arrivals.to(values.device)
        order = arrivals.argsort(stable=True)
        count = torch.searchsorted(arrivals[order].contiguous(), rounds, right=True)
        lowest = values.new_full((1,), -torch.inf)
        best = torch.cat([lowest, values[order]]).cummax(0).values
        return best[count]


SEVERAL = (
    "run evaluates one query at a time; run_async(loop, function, executor, max_pending, "
    "num_rounds) evaluates several."
)
"""What to call instead of :func:`run` with workers."""


@explains_arguments(executor=SEVERAL, max_pending=SEVERAL, n_jobs=SEVERAL, workers=SEVERAL)
def run(  # noqa: PLR0913 - options, each with a name
    loop: BanditLoop,
    problem: Problem,
    num_rounds: int,
    *,
    contexts: Contexts | None = None,
    restriction: Restrictions | None = None,
    delays: Delays | None = None,
    on_error: str = "raise",
    avoid_failed: bool = True,
    stop_after_no_gain: int | None = None,
    stop_below: float | None = None,
    progress: bool = True,
    on_round: Callable[[Query, Event], Any] | None = None,
    shown: Callable[[BanditLoop], Mapping[str, float | str]] | None = None,
) -> RunResult:
    """Ask, evaluate and tell for a number of rounds.

    If the run is interrupted, the loop keeps everything that was told. Calling ``run`` again
    continues from there: it first evaluates the queries that were left without an outcome, so that
    the result is the same as without the interruption.

    An evaluation fails if the function raises, or returns something other than a finite real
    number. ``on_error`` sets what happens then. A failed query is recorded with the reason, and the
    acquisition function avoids its point (see :meth:`.BanditLoop.tell_failed`), unless
    ``avoid_failed`` is False.
    ``KeyboardInterrupt`` and ``SystemExit`` always end the run. If the loop has a journal and
    ``on_error`` is ``"skip"`` or ``"retry:N"``, a query during whose evaluation two processes ended
    (by ``SystemExit``, a segmentation fault or a lack of memory) also counts as failed, and the
    third run continues. The file ``<journal>.evaluating`` exists while a query is evaluated.

    Args:
        loop: The loop; it continues from its history.
        problem: A BoTorch test problem to be maximized, or minimized if the loop has
            ``maximize=False`` (its noise is drawn from a stream of the
            loop's seed), an environment (:class:`~botorch_bandits.problems.ChangingProblem`, whose
            function in each round determines the outcome of the query asked in that round, even if
            it is told later), or a function of one argument that returns one real number. On a
            :class:`~botorch_bandits.Space`, the argument is a dictionary of named values; on a
            :class:`~botorch_bandits.Box` or :class:`~botorch_bandits.Arms`, it is a one-dimensional
            float64 tensor (``x.tolist()`` makes it a list). Wrapped in :class:`ByRound`, the
            function also receives the round. If the loop has constraints, the problem must have
            them as well; BoTorch's slacks are ``-g``. A function then returns the reward and the
            constraint values.
        num_rounds: The number of rounds to add, in addition to the queries that were left pending.
        contexts: For a loop with contexts: one row per round (the first row is round 1 of the
            loop), or a function from the round to its context. The problem is evaluated at
            ``(context, point)``.
        restriction: The points or arms among which rounds may choose, if not the whole domain: a
            function from the round (from 1) to arguments of :meth:`.BanditLoop.ask`, such as
            ``{"available": [0, 3]}``. It is called again for the rounds of a run that continues.
        delays: The number of rounds after which outcomes are told, such as ``PoissonDelay(10)``; if
            omitted, they are told at once. Outcomes due in the same round are told in the order of
            their queries. Queries whose outcomes have not arrived at the end stay pending.
        on_error: ``"raise"`` ends the run with the error of an evaluation that failed, and leaves
            its query pending; the next call evaluates it once more, and if it fails again, records
            the failure and continues. ``"skip"`` records each failure, with a warning
            (:class:`~botorch_bandits.stopping.EvaluationFailedWarning`), and continues; ten
            failures in a row end the run. ``"retry:N"`` does the same after N more tries. As long
            as no outcome has arrived, something of another type than a number ends the run in any
            case, because the function itself is then at fault.
        avoid_failed: Whether the acquisition function avoids the point of a failed query from then
            on. Pass False if failures are not the point's fault, as when a machine broke: the point
            may then be asked for again, and no confidence bound becomes void.
        stop_after_no_gain: Ask no further query once this number of rounds has brought no better
            reward; see :func:`.rounds_without_gain`. The count follows from the history, so a call
            with a larger number continues the run.
        stop_below: Ask no further query once the certificate of :meth:`.BanditLoop.recommend` is at
            most this number, in the unit of outcomes: with the probability of the certificate, no
            point is then better than the recommended one by more. The certificate follows from the
            history, so a continued run stops at the same round.
        progress: Show a progress bar with the best reward so far and, with delays, the number of
            pending queries.
        on_round: Called with each query and its outcome or failure, once that is on record.
            Raising :class:`~botorch_bandits.StopRun` in it ends the run.
        shown: What the progress bar shows; :func:`progress_of` if omitted. With delays, the number
            of pending queries is always shown.

    Returns:
        The rounds that were evaluated.

    Raises:
        ValueError: If the problem is to be minimized and the loop maximizes, or vice versa; if the
            problem and the loop have different numbers of constraints; if ``on_error`` is another
            string; if ``stop_after_no_gain`` is given and the loop has contexts or forgets; if
            ``stop_below`` is given and the loop cannot have a certificate (with a model of your
            own, this is known after the first outcome).
        EvaluationError: If the function returned no usable reward and ``on_error`` is ``"raise"``,
            ten evaluations in a row failed, or a run ends with three failures or more and no
            outcome in the whole history.
        BelowMinimumError: If a reward is below the minimum of ``Censored`` feedback, regardless of
            ``on_error``; its query stays pending.
        TypeError: If the loop has constraints, and a function does not return a pair.
        Exception: Any error that the function raised, if ``on_error`` is ``"raise"``.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import Arms, BanditGP, GPUpperConfidenceBound
        >>> from botorch_bandits.problems import gp_draw_on_arms
        >>> choices = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> loop = BanditLoop(
        ...     Arms(choices),
        ...     BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2),
        ...     GPUpperConfidenceBound.with_options(delta=0.1),
        ... )
        >>> kernel = RBFKernel().double()
        >>> problem = gp_draw_on_arms(kernel, choices, seed=0, noise_std=0.1)
        >>> result = run(loop, problem, num_rounds=5, progress=False)
        >>> result.cumulative_regret.shape
        torch.Size([5])
    """
    num_rounds = check_integer("num_rounds", num_rounds, minimum=0)
    check_instance("loop", loop, BanditLoop, "Pass the BanditLoop that is to be run.")
    check_direction(loop, problem)
    if not isinstance(problem, ChangingProblem | ByRound):
        check_callable(
            "problem", problem, "Pass a test problem or a function from a point to a number."
        )
    contexts = check_contexts(
        contexts, loop.settings.context_dim, loop.history.num_queries, num_rounds
    )
    if restriction is not None:
        check_callable("restriction", restriction, "Pass a function of the round, or leave it out.")
    check_constraints(loop, problem)
    evaluate: Callable[[BanditLoop, Problem, Query], Told] = evaluate_query
    if is_on_arms(problem):
        evaluate = arms_evaluator(problem, loop)
    if on_round is not None:
        check_callable("on_round", on_round, "Pass a function (query, event), or leave it out.")
    endings = Endings(loop, stop_after_no_gain, stop_below)
    left = loop.history.pending()
    check_instance("avoid_failed", avoid_failed, bool, "Pass True or False.")
    keeper = FailureKeeper(loop, ErrorPolicy.read(on_error), left, avoids=avoid_failed)
    mark = mark_of(loop, keeper.policy)
    num_asked = loop.history.num_queries
    bar = ProgressBar(num_asked + num_rounds, "rounds", progress, num_asked - len(left))
    with bar:
        run = _Run(loop, problem, evaluate, delays, keeper, mark, endings, bar)
        run.on_round, run.shown = on_round, shown or progress_of
        run.restriction = restriction
        return run.play(list(left), num_rounds, contexts)


class _Run:
    """One call of :func:`run`: the queries asked, and those in flight."""

    def __init__(
        self,
        loop: BanditLoop,
        problem: Problem,
        evaluate: Callable[[BanditLoop, Problem, Query], Told],
        delays: Delays | None,
        keeper: FailureKeeper,
        mark: EvaluationMark | None,
        endings: Endings,
        bar: ProgressBar,
    ) -> None:
        self.loop, self.problem, self.evaluate = loop, problem, evaluate
        self.delays, self.keeper, self.endings, self.bar = delays, keeper, endings, bar
        self.mark = mark
        self.on_round: Callable[[Query, Event], Any] | None = None
        self.shown: Callable[[BanditLoop], Mapping[str, float | str]] = progress_of
        self.restriction: Restrictions | None = None
        self.queries: list[Query] = []
        # the round before which it is due, the id, and the result or the reason of the failure
        self.on_their_way: list[tuple[float, int, Told | str]] = []
        self.stopped: str | None = None

    def play(self, left: list[Query], num_rounds: int, contexts: Contexts | None) -> RunResult:
        history = self.loop.history
        try:
            for query in left:
                if self.stopped is None:
                    self._start(query)
            for _ in range(num_rounds):
                round_number = history.num_queries + 1
                self._deliver(round_number)
                self.stopped = self.stopped or self.endings.reason()
                if self.stopped is not None:
                    break
                limits = limits_of(self.restriction, round_number)
                self._start(self.loop.ask(context_of(contexts, round_number), **limits))
        except StopRun as stop:  # raised in the function
            self.stopped = str(stop) or "StopRun"
        self._deliver(history.num_queries + 1)
        self.bar.show(**self._shown())
        self.keeper.warn_of_retries()
        if self.stopped is None:
            self.keeper.check_any()
        return self._result()

    def _start(self, query: Query) -> None:
        self.queries.append(query)
        told = self._evaluate(query)
        delay = 1.0
        if self.delays is not None:
            delay = self.delays.of_query(query.x, self.loop.settings.seed, query.round_number)
        heapq.heappush(self.on_their_way, (query.round_number + max(delay, 1.0), query.id, told))
        if delay <= 1.0:
            self._deliver(query.round_number + 1)
        self.bar.advance(1, **self._shown())

    def _evaluate(self, query: Query) -> Told | str:
        """Return the result, or the reason why the query failed."""
        if self.mark is not None and self.mark.is_fatal(query):
            self.keeper.check(query, EvaluationError(DEADLY))
            self.mark.forget(query.round_number)
            return DEADLY
        failed: Exception | None = None  # the last try
        for num_left in range(self.keeper.policy.num_retries, -1, -1):
            try:
                with self._marked(query):
                    told = self.evaluate(self.loop, self.problem, query)
                told = check_told(self.loop, query, told)
            except StopRun:
                raise
            except Exception as error:
                if num_left == 0:
                    self.keeper.check(query, error)
                    return reason_of(error)
                failed = error
            else:
                self.keeper.note_success()
                if failed is not None:
                    self.keeper.note_retry(query, reason_of(failed))
                return told
        raise AssertionError

    def _marked(self, query: Query) -> AbstractContextManager[None]:
        if self.mark is None:
            return nullcontext()
        return self.mark.around(argument_of(query), query.round_number)

    def _shown(self) -> dict[str, float | str]:
        shown = dict(self.shown(self.loop))
        if self.delays is not None:
            shown["pending"] = self.loop.history.num_pending
        return shown

    def _deliver(self, round_number: int) -> None:
        """Tell the outcomes that are due before the query of this round is chosen."""
        while self.on_their_way and self.on_their_way[0][0] <= round_number:
            _, query_id, told = heapq.heappop(self.on_their_way)
            query = self.loop.history.query(query_id)
            event = self._tell(query, told)
            if self.on_round is not None:
                try:
                    self.on_round(query, event)
                except StopRun as stop:  # the other outcomes that are due are still told
                    self.stopped = str(stop) or "StopRun"

    def _tell(self, query: Query, told: Told | str) -> Event:
        if isinstance(told, str):
            return self.keeper.record(query, told)
        try:
            return self.loop.tell(query.id, *told)
        except BelowMinimumError:  # a setting is wrong, not the evaluation
            raise
        except (TypeError, ValueError) as error:
            if self.loop.history.state(query.id) != "pending":  # another caller has told it
                raise
            reason = f"the loop refused the result: {error}"
            self.keeper.check(query, EvaluationError(reason))
            return self.keeper.record(query, reason)

    def _result(self) -> RunResult:
        loop, problem = self.loop, self.problem
        history = loop.history
        outcomes = [history.outcome(query.id) for query in self.queries]
        first = self.queries[0].round_number - 1 if self.queries else 0
        rounds = [query.round_number for query in self.queries]
        values = optimal_values = None
        dim = loop.settings.context_dim + loop.settings.domain.dim
        points = [input_of(query) for query in self.queries]
        X = torch.stack(points) if points else torch.empty(0, dim, dtype=DTYPE)
        observed = constraint_values = None
        if loop.history.num_constraints:
            missing = [torch.nan] * loop.history.num_constraints
            rows = [list(o.constraints) if o else missing for o in outcomes]
            observed = torch.tensor(rows, dtype=DTYPE).reshape(len(rows), len(missing))
            constraint_values = true_constraints(problem, X, [q.round_number for q in self.queries])
        if isinstance(problem, BaseTestProblem):
            with torch.no_grad():
                values = problem(X, noise=False)
        elif isinstance(problem, ChangingProblem):
            values, optimal_values = replay(problem, X, rounds)
        # the best reward depends on the context
        optimum = None if loop.settings.context_dim else known_optimum(problem)
        optimal_values = None if loop.settings.context_dim else optimal_values
        known = optimum if optimal_values is None else optimal_values
        within = None if values is None else optima_within(loop, problem, self.queries, known)
        if isinstance(within, Tensor) or within is None:
            optimal_values, optimum = within, None if within is None else optimum
        return RunResult(
            history,
            torch.tensor([o.reward if o else torch.nan for o in outcomes], dtype=DTYPE),
            values,
            optimum,
            torch.tensor(
                [o.arrived_round - first if o else torch.inf for o in outcomes], dtype=DTYPE
            ),
            optimal_values,
            observed,
            constraint_values,
            self.stopped,
        )


NUM_LAST = 20
"""The number of outcomes whose mean is shown if no best outcome is defined."""


def progress_of(loop: BanditLoop) -> dict[str, float | str]:
    """Return what a progress bar shows for a loop: best reward, reset, failures, multipliers.

    The best reward is that of :meth:`.BanditLoop.best`. With contexts, or if old outcomes fade, no
    reward is the best for all rounds, so the mean of the last ones is shown instead.
    """
    shown: dict[str, float | str] = {}
    if loop.settings.outcomes_are_alike and not loop.settings.context_dim:
        best = loop.best()
        if best is not None:
            shown["best"] = f"{best[1].reward:.6g}"
    else:
        last = loop.history.outcomes_since(max(loop.history.num_arrived - NUM_LAST, 0))
        if last:
            mean = fmean(outcome.reward for outcome in last)
            shown[f"mean of the last {len(last)}"] = f"{mean:.6g}"
    if loop.resets:
        shown["reset"] = f"after round {loop.resets[-1].after_round}"
    if loop.history.num_failed:
        shown["failed"] = loop.history.num_failed
    for j, multiplier in enumerate(loop.multipliers):
        shown["multiplier" if len(loop.multipliers) == 1 else f"multiplier {j + 1}"] = (
            f"{multiplier:.3g}"
        )
    return shown

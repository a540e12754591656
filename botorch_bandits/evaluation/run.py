"""Run a loop against a function."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping

import torch
from botorch.test_functions.base import BaseTestProblem

from botorch_bandits.checks import DTYPE, check_callable, check_instance, check_integer
from botorch_bandits.evaluation.outcomes import (
    ByRound,
    Problem,
    Told,
    arms_evaluator,
    check_constraints,
    evaluate_query,
    input_of,
    known_optimum,
    replay,
    true_constraints,
)
from botorch_bandits.evaluation.result import RunResult
from botorch_bandits.history import Outcome, Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.loop.contexts import Contexts, check_contexts, context_of
from botorch_bandits.problems import ArmsProblem, ChangingProblem, Delays
from botorch_bandits.progress import ProgressBar


def run(
    loop: BanditLoop,
    problem: Problem,
    num_rounds: int,
    *,
    contexts: Contexts | None = None,
    delays: Delays | None = None,
    progress: bool = True,
    on_round: Callable[[Query, Outcome], None] | None = None,
    shown: Callable[[BanditLoop], Mapping[str, float | str]] | None = None,
) -> RunResult:
    """Ask, evaluate and tell for a number of rounds.

    If the problem raises, or the run is interrupted, the loop keeps everything that was told.
    Calling ``run`` again goes on from there: it first evaluates the queries that were left
    without an outcome, so that the run ends up as if nothing had happened.

    Args:
        loop: The loop; it continues from its history.
        problem: A BoTorch test problem to be maximised (its noise is drawn from a stream of the
            loop's seed), an environment (:class:`~botorch_bandits.problems.ChangingProblem`, whose
            function of a round answers the query that is asked in it, whenever that is told), or a
            function from a ``d``-dimensional point to one number (in :class:`ByRound`, of the
            round too). If the loop has constraints, so must the problem; BoTorch's slacks are
            ``-g``. A function returns the reward and the constraint values then.
        num_rounds: How many rounds to add, beside the queries that were left pending.
        contexts: For a loop with contexts: one row a round (the first row is round 1 of the
            loop), or a function from the round to its context. The problem is evaluated at
            ``(context, point)``.
        delays: After how many rounds outcomes are told, such as ``PoissonDelay(10)``; at once if
            omitted. Outcomes of one round are told in the order of their queries. What has not
            arrived at the end stays pending.
        progress: Show a progress bar with the best reward so far and, with delays, the number of
            pending queries.
        on_round: Called after each outcome.
        shown: What the progress bar shows; :func:`progress_of` if omitted. With delays the number
            of pending queries is always there.

    Returns:
        The rounds that were evaluated.

    Raises:
        ValueError: If the problem is one that BoTorch minimises, or has not as many constraints as
            the loop.
        TypeError: If the loop has constraints, and a function returns no pair.

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
    if isinstance(problem, BaseTestProblem) and problem.is_minimization_problem:
        raise ValueError(
            f"problem ({type(problem).__name__}) is to be minimised, but a bandit maximises. Build "
            "it with negate=True."
        )
    check_instance("loop", loop, BanditLoop, "Pass the BanditLoop that is to be run.")
    if not isinstance(problem, ChangingProblem | ByRound):
        check_callable(
            "problem", problem, "Pass a test problem or a function from a point to a number."
        )
    contexts = check_contexts(contexts, loop.context_dim, loop.history.num_queries, num_rounds)
    check_constraints(loop, problem)
    evaluate: Callable[[BanditLoop, Problem, Query], Told] = evaluate_query
    if isinstance(problem, ArmsProblem) or (
        isinstance(problem, ChangingProblem) and problem.choices is not None
    ):
        evaluate = arms_evaluator(problem, loop)
    left = loop.history.pending()
    bar = ProgressBar(len(left) + num_rounds, "rounds", progress)
    with bar:
        return _Run(loop, problem, evaluate, delays, bar, on_round, shown or progress_of).play(
            list(left), num_rounds, contexts
        )


class _Run:
    """One call of :func:`run`: what was asked, and what is on its way."""

    def __init__(
        self,
        loop: BanditLoop,
        problem: Problem,
        evaluate: Callable[[BanditLoop, Problem, Query], Told],
        delays: Delays | None,
        bar: ProgressBar,
        on_round: Callable[[Query, Outcome], None] | None,
        shown: Callable[[BanditLoop], Mapping[str, float | str]],
    ) -> None:
        self.loop, self.problem, self.evaluate = loop, problem, evaluate
        self.delays, self.bar, self.on_round, self.shown = delays, bar, on_round, shown
        self.queries: list[Query] = []
        self.on_their_way: list[tuple[float, int, Told]] = []  # due before this round, id

    def play(self, left: list[Query], num_rounds: int, contexts: Contexts | None) -> RunResult:
        history = self.loop.history
        for query in left:
            self._start(query)
        for _ in range(num_rounds):
            round_number = history.num_queries + 1
            self._deliver(round_number)
            self._start(self.loop.ask(context_of(contexts, round_number)))
        self._deliver(history.num_queries + 1)
        self.bar.show(**self._shown())
        return self._result()

    def _start(self, query: Query) -> None:
        self.queries.append(query)
        told = self.evaluate(self.loop, self.problem, query)
        delay = 1.0
        if self.delays is not None:
            delay = self.delays.of_query(query.x, self.loop.seed, query.round_number)
        heapq.heappush(self.on_their_way, (query.round_number + max(delay, 1.0), query.id, told))
        if delay <= 1.0:
            self._deliver(query.round_number + 1)
        self.bar.advance(1, **self._shown())

    def _shown(self) -> dict[str, float | str]:
        shown = dict(self.shown(self.loop))
        if self.delays is not None:
            shown["pending"] = self.loop.history.num_pending
        return shown

    def _deliver(self, round_number: int) -> None:
        """Tell what can be used when the query of this round is chosen."""
        while self.on_their_way and self.on_their_way[0][0] <= round_number:
            _, query_id, (reward, constraints) = heapq.heappop(self.on_their_way)
            outcome = self.loop.tell(query_id, reward, constraints)
            if self.on_round is not None:
                self.on_round(self.loop.history.query(query_id), outcome)

    def _result(self) -> RunResult:
        loop, problem = self.loop, self.problem
        history = loop.history
        outcomes = [history.outcome(query.id) for query in self.queries]
        first = self.queries[0].round_number - 1 if self.queries else 0
        rounds = [query.round_number for query in self.queries]
        values = optimal_values = None
        dim = loop.context_dim + loop.domain.dim
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
            # in a context the best reward is another one
            optimal_values = None if loop.context_dim else optimal_values
        return RunResult(
            history,
            torch.tensor([o.reward if o else torch.nan for o in outcomes], dtype=DTYPE),
            values,
            # in a context the best reward is another one
            None if loop.context_dim else known_optimum(problem),
            torch.tensor(
                [o.arrived_round - first if o else torch.inf for o in outcomes], dtype=DTYPE
            ),
            optimal_values,
            observed,
            constraint_values,
        )


def progress_of(loop: BanditLoop) -> dict[str, float | str]:
    """Return what a progress bar shows of a loop: the best reward, the last reset, multipliers."""
    best = loop.best()
    shown: dict[str, float | str] = {} if best is None else {"best": f"{best[1].reward:.6g}"}
    if loop.resets:
        shown["reset"] = f"after round {loop.resets[-1].after_round}"
    for j, multiplier in enumerate(loop.multipliers):
        shown["multiplier" if len(loop.multipliers) == 1 else f"multiplier {j + 1}"] = (
            f"{multiplier:.3g}"
        )
    return shown

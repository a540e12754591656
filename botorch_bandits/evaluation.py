"""Run a loop against a function, and account for regret."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from botorch.test_functions.base import BaseTestProblem
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_integer
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.problems import ArmsProblem, Delays
from botorch_bandits.progress import ProgressBar
from botorch_bandits.random_streams import RandomBlocks, derive_seed, seeded_globally

Problem: TypeAlias = Callable[..., Any]
"""A BoTorch test problem, or a function from a ``d``-dimensional point to one number."""


Contexts: TypeAlias = Tensor | Callable[[int], Tensor]
"""``num_rounds x context_dim``, or a function from the round (from 1) to its context."""


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run did, round by round. Every tensor has one entry a round.

    Attributes:
        history: The loop's history.
        rewards: Observed rewards; NaN where the outcome has not arrived.
        values: Noiseless rewards where the problem knows them, otherwise None.
        optimal_value: The largest noiseless reward where the problem knows it, otherwise None.
        arrivals: How many rounds of this run had been asked when each outcome arrived; infinite
            where it has not. Without delays that is the round itself.
    """

    history: History
    rewards: Tensor
    values: Tensor | None = None
    optimal_value: float | None = None
    arrivals: Tensor | None = None

    @property
    def best_so_far(self) -> Tensor:
        """The largest reward that had arrived by each round; minus infinity before the first."""
        return self._best_arrived(self.rewards)

    @property
    def regret(self) -> Tensor:
        """The regret of each round: optimal minus noiseless value, never from noisy rewards.

        Raises:
            ValueError: If the problem does not know both.
        """
        if self.values is None or self.optimal_value is None:
            raise ValueError(
                "regret needs a problem that knows its noiseless values and optimum, such as "
                "those in botorch_bandits.problems, and no contexts."
            )
        return self.optimal_value - self.values

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


def run(
    loop: BanditLoop,
    problem: Problem,
    num_rounds: int,
    *,
    contexts: Contexts | None = None,
    delays: Delays | None = None,
    progress: bool = True,
    on_round: Callable[[Query, Outcome], None] | None = None,
) -> RunResult:
    """Ask, evaluate and tell for a number of rounds.

    If the problem raises, or the run is interrupted, the loop keeps everything that was told.
    Calling ``run`` again goes on from there: it first evaluates the queries that were left
    without an outcome, so that the run ends up as if nothing had happened.

    Args:
        loop: The loop; it continues from its history.
        problem: A BoTorch test problem to be maximised (its noise is drawn from a stream of the
            loop's seed), or a function from a ``d``-dimensional point to one number.
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

    Returns:
        The rounds that were evaluated.

    Raises:
        ValueError: If the problem is one that BoTorch minimises.

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
    evaluate = _arms_evaluator(problem, loop) if isinstance(problem, ArmsProblem) else _evaluate
    left = loop.history.pending()
    bar = ProgressBar(len(left) + num_rounds, "rounds", progress)
    with bar:
        return _Run(loop, problem, evaluate, delays, bar, on_round).play(
            list(left), num_rounds, contexts
        )


class _Run:
    """One call of :func:`run`: what was asked, and what is on its way."""

    def __init__(
        self,
        loop: BanditLoop,
        problem: Problem,
        evaluate: Callable[[Problem, Query, int], Any],
        delays: Delays | None,
        bar: ProgressBar,
        on_round: Callable[[Query, Outcome], None] | None,
    ) -> None:
        self.loop, self.problem, self.evaluate = loop, problem, evaluate
        self.delays, self.bar, self.on_round = delays, bar, on_round
        self.queries: list[Query] = []
        self.on_their_way: list[tuple[float, int, Any]] = []  # due before this round, id, reward

    def play(self, left: list[Query], num_rounds: int, contexts: Contexts | None) -> RunResult:
        history = self.loop.history
        for query in left:
            self._start(query)
        for _ in range(num_rounds):
            round_number = history.num_queries + 1
            self._deliver(round_number)
            self._start(self.loop.ask(_context_of(contexts, round_number)))
        self._deliver(history.num_queries + 1)
        self.bar.show(**self._shown())
        return self._result()

    def _start(self, query: Query) -> None:
        self.queries.append(query)
        reward = self.evaluate(self.problem, query, self.loop.seed)
        delay = 1.0
        if self.delays is not None:
            delay = self.delays.of_query(query.x, self.loop.seed, query.round_number)
        heapq.heappush(self.on_their_way, (query.round_number + max(delay, 1.0), query.id, reward))
        if delay <= 1.0:
            self._deliver(query.round_number + 1)
        self.bar.advance(1, **self._shown())

    def _shown(self) -> dict[str, float | str]:
        best = self.loop.best()
        shown: dict[str, float | str] = {} if best is None else {"best": f"{best[1].reward:.6g}"}
        if self.delays is not None:
            shown["pending"] = self.loop.history.num_pending
        return shown

    def _deliver(self, round_number: int) -> None:
        """Tell what can be used when the query of this round is chosen."""
        while self.on_their_way and self.on_their_way[0][0] <= round_number:
            _, query_id, reward = heapq.heappop(self.on_their_way)
            outcome = self.loop.tell(query_id, reward)
            if self.on_round is not None:
                self.on_round(self.loop.history.query(query_id), outcome)

    def _result(self) -> RunResult:
        loop, problem = self.loop, self.problem
        history = loop.history
        outcomes = [history.outcome(query.id) for query in self.queries]
        first = self.queries[0].round_number - 1 if self.queries else 0
        values = None
        if isinstance(problem, BaseTestProblem):
            dim = loop.context_dim + loop.domain.dim
            points = [_input_of(query) for query in self.queries]
            X = torch.stack(points) if points else torch.empty(0, dim, dtype=DTYPE)
            with torch.no_grad():
                values = problem(X, noise=False)
        return RunResult(
            history,
            torch.tensor([o.reward if o else torch.nan for o in outcomes], dtype=DTYPE),
            values,
            # in a context the best reward is another one
            None if loop.context_dim else _optimal_value(problem),
            torch.tensor(
                [o.arrived_round - first if o else torch.inf for o in outcomes], dtype=DTYPE
            ),
        )


def _context_of(contexts: Contexts | None, round_number: int) -> Tensor | None:
    if contexts is None or callable(contexts):
        return None if contexts is None else contexts(round_number)
    if round_number > len(contexts):
        raise ValueError(
            f"contexts has {len(contexts)} rows, but round {round_number} is to be played; give "
            "one row a round, counted from the loop's first."
        )
    return contexts[round_number - 1]


def _input_of(query: Query) -> Tensor:
    context = query.context
    return query.x if context is None else torch.cat([context, query.x])


def _evaluate(problem: Problem, query: Query, seed: int) -> Any:
    point = _input_of(query)
    if not isinstance(problem, BaseTestProblem):
        return problem(point)
    with torch.no_grad(), seeded_globally(derive_seed(seed, query.round_number, "noise")):
        return problem(point.unsqueeze(0)).squeeze(0)


def _arms_evaluator(
    problem: ArmsProblem, loop: BanditLoop
) -> Callable[[Problem, Query, int], float]:
    """Return what evaluates queries with the noise that a simulated replicate has."""
    noise_std = problem.noise_std or 0.0
    noise = RandomBlocks([loop.seed], "noise")

    def evaluate(_: Problem, query: Query, seed: int) -> float:
        value = float(problem.evaluate_true(_input_of(query).unsqueeze(0)))
        return value + noise_std * float(noise.at(query.round_number))

    return evaluate


def _optimal_value(problem: Problem) -> float | None:
    if not isinstance(problem, BaseTestProblem):
        return None
    try:
        return float(problem.optimal_value)
    except NotImplementedError:  # BoTorch's way to say that it is not known
        return None

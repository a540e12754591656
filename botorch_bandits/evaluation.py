"""Run a loop against a function, and account for regret."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from botorch.test_functions.base import BaseTestProblem
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_integer
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.problems import ArmsProblem
from botorch_bandits.progress import ProgressBar
from botorch_bandits.random_streams import RandomBlocks, derive_seed, seeded_globally

Problem: TypeAlias = Callable[..., Any]
"""A BoTorch test problem, or a function from a ``d``-dimensional point to one number."""


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run did, round by round. Every tensor has one entry a round.

    Attributes:
        history: The loop's history.
        rewards: Observed rewards.
        values: Noiseless rewards where the problem knows them, otherwise None.
        optimal_value: The largest noiseless reward where the problem knows it, otherwise None.
    """

    history: History
    rewards: Tensor
    values: Tensor | None = None
    optimal_value: float | None = None

    @property
    def best_so_far(self) -> Tensor:
        """The largest observed reward up to each round."""
        return self.rewards.cummax(0).values if len(self.rewards) else self.rewards

    @property
    def regret(self) -> Tensor:
        """The regret of each round: optimal minus noiseless value, never from noisy rewards.

        Raises:
            ValueError: If the problem does not know both.
        """
        if self.values is None or self.optimal_value is None:
            raise ValueError(
                "regret needs a problem that knows its noiseless values and optimum, such as "
                "those in botorch_bandits.problems."
            )
        return self.optimal_value - self.values

    @property
    def cumulative_regret(self) -> Tensor:
        """The sum of regrets up to each round."""
        return self.regret.cumsum(0)

    @property
    def simple_regret(self) -> Tensor:
        """The smallest regret up to each round."""
        return self.regret.cummin(0).values if len(self.rewards) else self.regret


def run(
    loop: BanditLoop,
    problem: Problem,
    num_rounds: int,
    *,
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
        progress: Show a progress bar with the best reward so far.
        on_round: Called after each round.

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
    rewards: list[float] = []
    points: list[Tensor] = []
    left = loop.history.pending()
    with ProgressBar(len(left) + num_rounds, "rounds", progress) as bar:
        for i in range(len(left) + num_rounds):
            query = left[i] if i < len(left) else loop.ask()
            outcome = loop.tell(query.id, evaluate(problem, query, loop.seed))
            rewards.append(outcome.reward)
            points.append(query.x)
            best = loop.best()
            assert best is not None
            bar.advance(best=f"{best[1].reward:.6g}")
            if on_round is not None:
                on_round(query, outcome)
    values = None
    if isinstance(problem, BaseTestProblem):
        X = torch.stack(points) if points else torch.empty(0, loop.domain.dim, dtype=DTYPE)
        with torch.no_grad():
            values = problem(X, noise=False)
    return RunResult(
        loop.history, torch.tensor(rewards, dtype=DTYPE), values, _optimal_value(problem)
    )


def _evaluate(problem: Problem, query: Query, seed: int) -> Any:
    if not isinstance(problem, BaseTestProblem):
        return problem(query.x)
    with torch.no_grad(), seeded_globally(derive_seed(seed, query.round_number, "noise")):
        return problem(query.x.unsqueeze(0)).squeeze(0)


def _arms_evaluator(
    problem: ArmsProblem, loop: BanditLoop
) -> Callable[[Problem, Query, int], float]:
    """Return what evaluates queries with the noise that a simulated replicate has."""
    noise_std = problem.noise_std or 0.0
    noise = RandomBlocks([loop.seed], "noise")

    def evaluate(_: Problem, query: Query, seed: int) -> float:
        value = float(problem.evaluate_true(query.x.unsqueeze(0)))
        return value + noise_std * float(noise.at(query.round_number))

    return evaluate


def _optimal_value(problem: Problem) -> float | None:
    if not isinstance(problem, BaseTestProblem):
        return None
    try:
        return float(problem.optimal_value)
    except NotImplementedError:  # BoTorch's way to say that it is not known
        return None

"""The environment of the combined experiment, and how a loop plays it."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from botorch_bandits.loop import BanditLoop
from botorch_bandits.problems import GeometricDelay
from botorch_bandits.problems.kernel_matrices import clamped_eigh
from botorch_bandits.random_streams import RandomBlocks, generator

NUM_CONTEXTS, NUM_ARMS = 5, 40
LENGTHSCALES = (0.5, 0.2)
"""Of the Matern 5/2 kernel, in context and arm, both in [0, 1]."""

CORRELATION = 0.5**0.5
"""Of reward and cost."""

NOISE_STD = 0.1
DELAYS, CUT_OFF = GeometricDelay(10.0), 30
"""In rounds; about one outcome in twenty comes later than the cut-off."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """One environment.

    Attributes:
        rewards: ``2 x NUM_CONTEXTS x NUM_ARMS``; before and after the change.
        costs: ``NUM_CONTEXTS x NUM_ARMS``; at most 0 is feasible.
        contexts: The number of each round's context.
        change_point: The last round before the change.
    """

    rewards: Tensor
    costs: Tensor
    contexts: Sequence[int]
    change_point: int

    @property
    def best(self) -> Tensor:
        """``2 x NUM_CONTEXTS``; the largest reward of a feasible arm."""
        return self.rewards.masked_fill(self.costs > 0.0, -torch.inf).amax(-1)

    def period(self, round_number: int) -> int:
        """Return 0 up to the change, 1 behind it."""
        return int(round_number > self.change_point)


def draw_scenario(num_rounds: int, seed: int) -> Scenario:
    """Draw an environment in which each context has a feasible arm.

    Args:
        num_rounds: The horizon.
        seed: Seeds it.
    """
    stream = generator(seed, 0, "scenario")
    root = _root()
    shape = NUM_CONTEXTS, NUM_ARMS
    for _ in range(1000):
        costs = root @ torch.randn(len(root), dtype=torch.float64, generator=stream)
        if bool((costs.reshape(shape) <= 0.0).any(-1).all()):
            break
    own = torch.randn(2, len(root), dtype=torch.float64, generator=stream) @ root.mT
    rewards = CORRELATION * costs + (1.0 - CORRELATION**2) ** 0.5 * own
    contexts = torch.randint(NUM_CONTEXTS, (num_rounds,), generator=stream).tolist()
    return Scenario(rewards.reshape(2, *shape), costs.reshape(shape), contexts, num_rounds // 2)


def play_scenario(
    scenario: Scenario, loop: BanditLoop, num_rounds: int, seed: int, sees_context: bool
) -> list[int]:
    """Play one environment and return the arms, one a round.

    The outcome of round s with delay d is told before round ``s + max(d, 1)``; if d is beyond the
    cut-off, the query is given up before round ``s + CUT_OFF``.

    Args:
        scenario: The environment.
        loop: The policy, before its first round.
        num_rounds: How long.
        seed: Seeds noise and delays.
        sees_context: See :class:`Variant`.
    """
    noise = RandomBlocks([seed], "noise", (2,))
    on_their_way: list[tuple[float, int, tuple[float, float] | None]] = []  # due, id, outcome
    constrained = loop.history.num_constraints > 0
    played = []
    for t in range(1, num_rounds + 1):
        while on_their_way and on_their_way[0][0] <= t:
            _, query_id, outcome = heapq.heappop(on_their_way)
            if outcome is None:
                loop.tell_failed(query_id)
            else:
                loop.tell(query_id, outcome[0], outcome[1:] if constrained else None)
        z = scenario.contexts[t - 1]
        query = loop.ask(contexts()[z : z + 1] if sees_context else [0.5])
        arm = round(float(query.x) * (NUM_ARMS - 1))
        played.append(arm)
        of_reward, of_cost = noise.at(t)[0].tolist()
        reward = float(scenario.rewards[scenario.period(t), z, arm]) + NOISE_STD * of_reward
        value = float(scenario.costs[z, arm]) + NOISE_STD * of_cost
        delay = DELAYS.of_query(query.x, seed, t)
        outcome = (reward, value) if delay <= CUT_OFF else None
        heapq.heappush(on_their_way, (t + min(max(delay, 1.0), CUT_OFF), query.id, outcome))
    return played


def kernel() -> MaternKernel:
    """Return the kernel of reward and cost, on pairs of context and arm."""
    made = MaternKernel(nu=2.5, ard_num_dims=2).double()
    made.lengthscale = torch.tensor(LENGTHSCALES, dtype=torch.float64)
    return made


def contexts() -> Tensor:
    """Return all contexts."""
    return torch.linspace(0.0, 1.0, NUM_CONTEXTS, dtype=torch.float64)


def arms() -> Tensor:
    """Return the arms, a column."""
    return torch.linspace(0.0, 1.0, NUM_ARMS, dtype=torch.float64).unsqueeze(-1)


def pairs() -> Tensor:
    """Return all pairs of context and arm."""
    return torch.cartesian_prod(contexts(), arms().squeeze(-1))


@cache
def _root() -> Tensor:
    """The symmetric root of the prior covariance of all pairs of context and arm."""
    with torch.no_grad():
        eigenvalues, eigenvectors = clamped_eigh(kernel()(pairs()).to_dense())
    return (eigenvectors * eigenvalues.sqrt()) @ eigenvectors.mT

"""What a run did, and its regret."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE
from botorch_bandits.history import History


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run did, round by round. Every tensor has one entry a round.

    Attributes:
        history: The loop's history.
        rewards: Observed rewards; NaN where the outcome has not arrived.
        values: Noiseless rewards where the problem knows them, otherwise None.
        optimal_value: The largest noiseless reward where the problem knows it, otherwise None.
        optimal_values: Where the reward depends on the round, the largest noiseless reward of each
            round's function; otherwise None.
        arrivals: How many rounds of this run had been asked when each outcome arrived; infinite
            where it has not. Without delays that is the round itself.
        constraints: Observed constraint values, one row a round; NaN where the outcome has not
            arrived. None for a loop without constraints.
        constraint_values: Noiseless constraint values where the problem knows them, likewise;
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

    def __repr__(self) -> str:
        """Say how long it was, since its tensors may be long."""
        return f"RunResult({len(self.rewards)} rounds, {self.history!r})"

    @property
    def best_so_far(self) -> Tensor:
        """The largest reward that had arrived by each round; minus infinity before the first."""
        return self._best_arrived(self.rewards)

    @property
    def regret(self) -> Tensor:
        """The regret of each round: optimal minus noiseless value, never from noisy rewards.

        Where the reward depends on the round this is the dynamic regret: the optimum is that of the
        function of the round in which the query was asked. With constraints it is measured against
        the best feasible point, so it can be negative; look at ``constraint_values`` beside it.

        Raises:
            ValueError: If the problem does not know both.
        """
        if self.values is not None and self.optimal_values is not None:
            return self.optimal_values - self.values
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

"""What random search finds: the best of a number of points that are drawn uniformly at random.

A method has to beat it, and it needs few evaluations: rewards measured once at many random points
tell what searches of every length find on average.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from botorch_bandits.checks import (
    check_instance,
    check_integer,
    check_probability,
    check_reward,
)

__all__ = ["RandomBaseline"]


class RandomBaseline:
    """What random search finds, from rewards at points that were drawn uniformly at random.

    A random search of ``n`` rounds is ``n`` of these rewards, drawn without replacement. Results
    are means and quantiles over all such draws, by formula rather than by simulation, and therefore
    unbiased for every ``n`` up to the number of rewards.

    Args:
        rewards: One for each point, in any order.
        maximize: If False, they are costs, and the best is the smallest.

    Attributes:
        rewards: The same rewards, smallest first.
        maximize: Whether the largest is the best, or the smallest.

    Raises:
        TypeError: If one is not a number.
        ValueError: If there are none, or one is not finite.

    Example:
        >>> baseline = RandomBaseline([1.0, 2.0, 3.0, 4.0])
        >>> round(baseline.expected_best(1), 6), baseline.expected_best(4)
        (2.5, 4.0)
        >>> baseline.quantile(2, 0.5)
        3.0
        >>> round(baseline.chance(2, 4.0), 6)
        0.5
    """

    def __init__(self, rewards: Iterable[float], maximize: bool = True) -> None:
        """See the class."""
        checked = [check_reward(f"rewards[{i}]", y) for i, y in enumerate(rewards)]
        if not checked:
            raise ValueError("rewards is empty; give the reward of at least one random point.")
        self.rewards = tuple(sorted(checked))
        self.maximize = check_instance("maximize", maximize, bool, "Pass True or False.")
        sign = 1.0 if maximize else -1.0
        self._sign, self._ascending = sign, tuple(sorted(sign * y for y in checked))

    def __len__(self) -> int:
        """Return the number of rewards."""
        return len(self.rewards)

    def __repr__(self) -> str:
        """Show the number of rewards, and the best."""
        best = self._sign * self._ascending[-1]
        return f"RandomBaseline({len(self)} rewards, the best {best:g})"

    def expected_best(self, num_rounds: int) -> float:
        """Return the mean of the best reward after a number of rounds.

        Args:
            num_rounds: From 1 to the number of rewards.

        Raises:
            ValueError: If it is not within that range.
        """
        below = self._chances_below(num_rounds)
        return self._sign * float(np.diff(below, prepend=0.0) @ np.array(self._ascending))

    def quantile(self, num_rounds: int, level: float) -> float:
        """Return the value that the best reward does not exceed in a share ``level`` of searches.

        For costs, the smallest cost is at least this value in such a share.

        Args:
            num_rounds: From 1 to the number of rewards.
            level: Between 0 and 1.

        Raises:
            ValueError: If one of them is out of its range.
        """
        level = check_probability("level", level)
        below = self._chances_below(num_rounds)
        return self._sign * self._ascending[int(np.searchsorted(below, level * (1.0 - 1e-12)))]

    def chance(self, num_rounds: int, reward: float) -> float:
        """Return the share of searches whose best reward is at least as good as this one.

        Args:
            num_rounds: From 1 to the number of rewards.
            reward: The reward to be reached.

        Raises:
            ValueError: If ``num_rounds`` is out of its range.
        """
        value = self._sign * check_reward("reward", reward)
        below = self._chances_below(num_rounds)
        # sums of the same numbers in another order count as equal
        num_below = int(np.searchsorted(self._ascending, value - 1e-12 * abs(value)))
        return 1.0 - float(below[num_below - 1]) if num_below else 1.0

    def _chances_below(self, num_rounds: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return for each reward the share of searches that find at best it or a worse one."""
        n, total = check_integer("num_rounds", num_rounds, minimum=1), len(self)
        if n > total:
            raise ValueError(
                f"num_rounds is {n}, but there are rewards of only {total} random points; ask for "
                "fewer rounds, or measure more points."
            )
        # C(i, n) / C(total, n), as a product of n ratios
        i, shares = np.arange(1, total + 1), np.ones(total)
        for k in range(n):
            shares *= np.maximum(i - k, 0) / (total - k)
        return shares

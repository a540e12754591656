r"""Restarting: when a policy explores uniformly, and when it begins anew.

Two lists are kept since the last reset: all queries, and those that were drawn uniformly at random.
A round is an exploration round if

.. math:: |\mathrm{uniform}| \le \xi \sqrt{|\mathrm{history}|},

and otherwise belongs to the policy. When the outcome of a uniform query arrives, the detector looks
at the uniform queries. On a detection both lists are cleared: the policy begins anew, with the
round number 1 and without any of the old data.

Source: Avanesov, *How to gamble with non-stationary X-armed bandits and have no
regrets*, arXiv 1908.07636, Algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from botorch_bandits.change_points.detector import ChangePointDetector
from botorch_bandits.checks import check_instance, check_integer, check_nonnegative, store_checked
from botorch_bandits.docstrings import fill_in_docstrings

PUBLISHED_EXPLORATION = math.sqrt(3.0)
"""``xi`` of the paper's experiments."""


def explores(
    exploration: float, num_uniform: int | Tensor, num_history: int | Tensor
) -> bool | Tensor:
    """Return whether the next round draws uniformly at random.

    Squares are compared, with a margin for their rounding: ``sqrt(3) * sqrt(3)`` falls below 3 in
    floating point, and the paper's ``xi`` meets equality at 3, 12, 48, ... queries.

    Args:
        exploration: ``xi``; 0 explores in the first round after each reset only.
        num_uniform: Uniform queries since the last reset; a tensor has one entry a replicate.
        num_history: All queries since the last reset, likewise.

    Example:
        >>> explores(3**0.5, num_uniform=3, num_history=3)
        True
    """
    return num_uniform * num_uniform <= exploration * exploration * num_history * (1.0 + 1e-12)


@dataclass(frozen=True, kw_only=True)
class Restart:
    r"""A rule by which a policy begins anew; see :class:`ChangePointRestart`.

    A round explores if :math:`|\mathrm{uniform}| \le \xi \sqrt{|\mathrm{history}|}`, both counted
    from the last reset. With ``split_delta`` segment ``k`` has

    .. math:: \delta_k = \frac{6 \delta}{\pi^2 k^2}, \qquad \sum_{k \ge 1} \delta_k = \delta.

    Attributes:
        exploration: ``xi``, how much is explored uniformly; None never explores.
        split_delta: Whether segment ``k`` (from 1) has ``6 delta / (pi k) ** 2`` for its width, so
            that the segments together fail with probability ``delta`` at most.
        keep_multipliers: With constraints, whether the multipliers stay as they are.
    """

    exploration: float | None = PUBLISHED_EXPLORATION
    split_delta: bool = True
    keep_multipliers: bool = False

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.exploration is not None:
            store_checked(self, exploration=check_nonnegative("exploration", self.exploration))

    def explores(self, num_uniform: int | Tensor, num_history: int | Tensor) -> bool | Tensor:
        """Return whether the next round draws uniformly; see :func:`explores`."""
        if self.exploration is None:
            return (
                torch.zeros_like(num_uniform, dtype=torch.bool)
                if isinstance(num_uniform, Tensor)
                else False
            )
        return explores(self.exploration, num_uniform, num_history)

    def is_told_of_change(self, round_number: int) -> bool:
        """Return whether a reset is due before this round, whatever the data say.

        Args:
            round_number: The round that is about to be played, from 1.
        """
        return False

    def share_of_delta(self, delta: float, segment: int) -> float:
        """Return what a segment has of ``delta``.

        Args:
            delta: For all segments together.
            segment: Counts segments from 0.
        """
        return 6.0 * delta / (math.pi * (segment + 1)) ** 2 if self.split_delta else delta


@dataclass(frozen=True, kw_only=True)
class NeverRestart(Restart):
    """Explores as :class:`ChangePointRestart` does, and never begins anew: a baseline.

    It tells what the exploration alone costs.
    """


@dataclass(frozen=True)
class OracleRestart(Restart):
    """Begins anew when told: a baseline that knows the change-points.

    Attributes:
        change_points: The last rounds before each change: the reward function of round
            ``tau + 1`` is the first of the new ones.
    """

    change_points: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        check_instance(
            "change_points",
            self.change_points,
            Iterable,
            "Pass the last rounds before each change, such as change_points=(60,).",
        )
        checked = [check_integer("change_points", tau, minimum=1) for tau in self.change_points]
        if checked != sorted(set(checked)):
            raise ValueError(
                f"change_points is {self.change_points}; give increasing numbers of rounds."
            )
        object.__setattr__(self, "change_points", tuple(checked))

    def is_told_of_change(self, round_number: int) -> bool:
        """See the base class."""
        return round_number - 1 in self.change_points


@dataclass(frozen=True, kw_only=True)
class ChangePointRestart(Restart):
    """Begins anew when a detector sees a change in the uniform queries: Avanesov, Algorithm 2.

    It goes with any policy: what is played between the uniform queries is the loop's acquisition.

    Attributes:
        detector: Tests the uniform queries since the last reset whenever one of their outcomes
            arrives.
        constraint_detectors: With constraints, one for each of them: their values are tested too,
            and any detection counts. Empty tests the reward alone.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits import Arms, BanditGP, BanditLoop, ChangePointDetector
        >>> from botorch_bandits import GPUpperConfidenceBound
        >>> import torch
        >>> loop = BanditLoop(
        ...     Arms(torch.linspace(0, 5, 100, dtype=torch.float64).unsqueeze(-1)),
        ...     BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.0025, lengthscale=1.0),
        ...     GPUpperConfidenceBound.with_options(delta=0.1),
        ...     restart=ChangePointRestart(
        ...         detector=ChangePointDetector(MaternKernel(nu=2.5), lengthscale=1.0)
        ...     ),
        ... )
        >>> loop.ask().origin
        'exploration'
    """

    detector: ChangePointDetector
    constraint_detectors: tuple[ChangePointDetector, ...] = ()

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        remedy = "Pass ChangePointDetector(kernel, ...), without .on(domain)."
        check_instance("detector", self.detector, ChangePointDetector, remedy)
        check_instance(
            "constraint_detectors",
            self.constraint_detectors,
            (tuple, list),
            "Pass a tuple with one ChangePointDetector(kernel, ...) for each constraint.",
        )
        for i, detector in enumerate(self.constraint_detectors):
            check_instance(f"constraint_detectors[{i}]", detector, ChangePointDetector, remedy)
        object.__setattr__(self, "constraint_detectors", tuple(self.constraint_detectors))


@dataclass(frozen=True)
class Reset:
    """A beginning anew.

    Attributes:
        after_round: How many rounds had been asked: the next one is the first of the new segment.
        num_dropped: How many queries the segment had that ended.
        num_uniform: How many of them were drawn uniformly.
        reason: ``"detection"`` or ``"oracle"``.
        statistic: Of the test that detected; NaN otherwise. So are the following.
        threshold: What it exceeded.
        half_size: ``n``: the tail of ``2 n`` uniform queries was tested, half against half.
        change_round: The round of the first query that the detector takes for one after the change.
        quantity: What changed: ``"reward"``, or ``"constraint 1"``, ``"constraint 2"``, ...
    """

    after_round: int
    num_dropped: int
    num_uniform: int
    reason: str
    statistic: float = math.nan
    threshold: float = math.nan
    half_size: int | None = None
    change_round: int | None = None
    quantity: str | None = None


fill_in_docstrings(__name__)

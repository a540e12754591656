"""Noiseless rewards of replicates on arms, round by round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from botorch_bandits.checks import check_double, check_finite
from botorch_bandits.problems import ArmsProblem, ChangingProblem, SwitchingProblem


class ArmRewards(ABC):
    """The reward functions of replicates, one a replicate and round."""

    @abstractmethod
    def at(self, round_number: int) -> Tensor:
        """Return ``num_replicates x num_arms`` rewards of a round (from 1).

        The same tensor as in the round before says that nothing has changed.

        Args:
            round_number: From 1.
        """


class PeriodRewards(ArmRewards):
    """Rewards that are constant in each period.

    Args:
        values: ``num_replicates x num_periods x num_arms``, float64.
        change_points: The last round of each period but the last one, which all replicates share;
            or one such sequence a replicate. Each is increasing; fewer change points than
            ``num_periods - 1`` leave the last periods out.

    Raises:
        TypeError: If ``values`` is not float64.
        ValueError: If shapes disagree, or change points do not increase.

    Example:
        >>> values = torch.tensor([[[1.0, 2.0], [4.0, 3.0]]], dtype=torch.float64)
        >>> rewards = PeriodRewards(values, [10])
        >>> rewards.at(10).tolist(), rewards.at(11).tolist()
        ([[1.0, 2.0]], [[4.0, 3.0]])
    """

    def __init__(
        self, values: Tensor, change_points: Sequence[int] | Sequence[Sequence[int]]
    ) -> None:
        """See the class."""
        check_finite("values", check_double("values", values))
        if values.dim() != 3:
            raise ValueError(
                f"values has shape {tuple(values.shape)}; it must be num_replicates x num_periods "
                "x num_arms."
            )
        shared = all(isinstance(entry, int) for entry in change_points)
        lists = [list(change_points)] * len(values) if shared else list(change_points)
        if len(lists) != len(values):
            raise ValueError(
                f"change_points has {len(lists)} sequences for {len(values)} replicates; give one "
                "a replicate, or one that all share."
            )
        self._values = values
        # row b, column k: the last round of period k of replicate b
        self._ends = torch.full((len(values), max(values.shape[1] - 1, 0)), torch.inf)
        for row, points in zip(self._ends, lists, strict=True):
            ends = torch.tensor(points, dtype=row.dtype)
            if len(ends) > len(row) or bool((ends[1:] <= ends[:-1]).any() | (ends < 1).any()):
                raise ValueError(
                    f"change_points has {points}; they must increase, be at least 1 and at most "
                    f"{len(row)} for {values.shape[1]} periods."
                )
            row[: len(ends)] = ends
        self._changes = {int(end) + 1 for end in self._ends.flatten().tolist() if end < torch.inf}
        self._now: tuple[int, Tensor] | None = None

    def at(self, round_number: int) -> Tensor:
        """See :meth:`ArmRewards.at`."""
        known = self._now
        if known is not None and (
            round_number == known[0]
            or (round_number == known[0] + 1 and round_number not in self._changes)
        ):
            self._now = (round_number, known[1])
            return known[1]
        periods = (self._ends < round_number).sum(-1).to(self._values.device)
        rows = torch.arange(len(periods), device=periods.device)
        current = self._values[rows, periods]
        self._now = (round_number, current)
        return current


class EnvironmentRewards(ArmRewards):
    """Rewards of environments on arms, one a replicate or one for all.

    Args:
        environments: Environments and fixed problems, all on the same arms.
        num_replicates: How many.
        device: Where the rewards go.
    """

    def __init__(
        self,
        environments: Sequence[ChangingProblem | ArmsProblem],
        num_replicates: int,
        device: torch.device | str,
    ) -> None:
        """See the class."""
        self._environments = tuple(environments)
        self._num_replicates, self._device = num_replicates, device
        self._sources: list[Tensor] = []
        self._stacked = torch.empty(0)

    def at(self, round_number: int) -> Tensor:
        """See :meth:`ArmRewards.at`."""
        sources = [
            e.arm_values(round_number) if isinstance(e, ChangingProblem) else e.values
            for e in self._environments
        ]
        if len(self._sources) != len(sources) or any(
            new is not old for new, old in zip(sources, self._sources, strict=True)
        ):
            self._sources = sources
            self._stacked = torch.stack(sources).to(self._device)
            self._stacked = self._stacked.expand(self._num_replicates, -1)
        return self._stacked


def rewards_of(
    problems: Sequence[ChangingProblem | ArmsProblem],
    num_replicates: int,
    device: torch.device | str,
) -> Tensor | ArmRewards:
    """Return the rewards of problems on arms: a matrix where none of them changes.

    Args:
        problems: One a replicate, or one for all.
        num_replicates: How many.
        device: Where the rewards go.
    """
    fixed = [p for p in problems if isinstance(p, ArmsProblem)]
    if len(fixed) == len(problems):
        values = torch.stack([p.values for p in fixed]).to(device)
        return values.expand(num_replicates, -1)
    switching = [p for p in problems if isinstance(p, SwitchingProblem)]
    if len(switching) == len(problems):
        num_periods = max(len(p.problems) for p in switching)
        tables = []
        for p in switching:
            rows = [p.arm_values(tau) for tau in p.change_points]
            rows.append(p.arm_values(p.change_points[-1] + 1 if p.change_points else 1))
            # periods that a replicate does not have are never played
            tables.append(torch.stack(rows + rows[-1:] * (num_periods - len(rows))))
        values = torch.stack(tables).to(device).expand(num_replicates, -1, -1)
        points = [p.change_points for p in switching]
        return PeriodRewards(values, points * (num_replicates // len(points)))
    return EnvironmentRewards(problems, num_replicates, device)

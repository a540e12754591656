r"""Rewards and constraints that each vary around one function, and how much they vary.

Shi and Eryilmaz 2022 (Appendices B and D) count regret and violation in realized functions,
:math:`f^t = f + \varepsilon^t` and :math:`g^t = g + \varepsilon'^t`. The works that they cite (Chen
and Giannakis 2018, Cao and Liu 2018) let :math:`f^t` and :math:`g^t` be arbitrary and measure how
much they vary. :class:`VaryingProblem` makes functions of either kind, :func:`variation_budget`
measures their variation, and :func:`best_fixed_arm` finds the arm that regret is relative to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from botorch.test_functions.base import BaseTestProblem
from torch import Tensor

from botorch_bandits.checks import (
    check_integer,
    check_nonnegative,
    check_one_of,
    check_positive,
)
from botorch_bandits.problems.base import ArmsProblem
from botorch_bandits.problems.changing import (
    BoxSnapshot,
    ChangingProblem,
    check_reward,
    check_same_domain,
)
from botorch_bandits.random_streams import RandomBlocks

KINDS = ("waves", "shocks")
"""How the coefficient of a round is generated; see :class:`VaryingProblem`."""


class VaryingProblem(ChangingProblem):
    r"""A function that varies around its mean by a bounded amount.

    .. math:: f^t(x) = f(x) + v \, a_t \, h(x), \qquad |a_t| \le 1, \quad |h(x)| \le 1

    With ``kind="waves"``, :math:`a_t = \sin(2 \pi t / \text{period})`. With ``"shocks"`` each
    :math:`a_t` is 1 or -1 with equal probability, independently: :math:`f^t` is then a realization
    of ``f`` with ``v``-sub-Gaussian noise that all points of a round share. Observation noise is
    added to this. As a constraint of another environment, the function varies in the same way.

    Args:
        mean: ``f``, with its observation noise.
        amplitude: ``v``.
        kind: ``"waves"`` or ``"shocks"``.
        period: The period of waves, in rounds.
        seed: The seed of shocks.
        shape: ``h``, on the same domain with values in [-1, 1]; 1 at all points if omitted.
        constraints: See :class:`ChangingProblem`.

    Raises:
        TypeError: If a problem is not a BoTorch test problem.
        ValueError: If a number is out of its range, the domains differ, or ``h`` leaves [-1, 1].

    Example:
        >>> choices = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> mean = ArmsProblem(choices, torch.tensor([1.0, 2.0], dtype=torch.float64))
        >>> environment = VaryingProblem(mean, amplitude=0.5, period=4.0)
        >>> [environment.arm_values(t).tolist() for t in (1, 3)]
        [[1.5, 2.5], [0.5, 1.5]]
    """

    def __init__(
        self,
        mean: BaseTestProblem,
        amplitude: float,
        kind: str = "waves",
        period: float = 20.0,
        seed: int = 0,
        shape: BaseTestProblem | None = None,
        constraints: Sequence[BaseTestProblem | ChangingProblem] = (),
    ) -> None:
        """See the class."""
        check_reward("mean", mean)
        super().__init__(mean, constraints)
        self.mean, self.shape = mean, shape
        self.amplitude = check_nonnegative("amplitude", amplitude)
        self.kind = check_one_of("kind", kind, KINDS)
        self.period = check_positive("period", period)
        self.seed = check_integer("seed", seed, minimum=0)
        if shape is not None:
            check_reward("shape", shape)
            check_same_domain("shape", shape, self)
        if isinstance(shape, ArmsProblem) and float(shape.values.abs().max()) > 1.0:
            raise ValueError(
                f"shape has the value {float(shape.values.abs().max()):g} at an arm; divide its "
                "values by that, and multiply amplitude."
            )
        self._shocks = RandomBlocks([self.seed], "shock", (), "uniform")

    @property
    def variation(self) -> float:
        """The largest difference of the function of a round from the mean, at any point."""
        if isinstance(self.shape, ArmsProblem):
            return self.amplitude * float(self.shape.values.abs().max())
        return self.amplitude

    def coefficient(self, round_number: int) -> float:
        """Return ``a_t``.

        Args:
            round_number: The number of the round, from 1.
        """
        round_number = check_integer("round_number", round_number, minimum=1)
        if self.kind == "waves":
            return math.sin(2.0 * math.pi * round_number / self.period)
        return 1.0 if float(self._shocks.at(round_number)) < 0.5 else -1.0

    def arm_values(self, round_number: int) -> Tensor:
        if not isinstance(self.mean, ArmsProblem):
            return super().arm_values(round_number)
        added = self.amplitude * self.coefficient(round_number)
        if self.shape is None:
            return self.mean.values + added
        assert isinstance(self.shape, ArmsProblem)
        return self.mean.values + added * self.shape.values

    def at(self, round_number: int) -> BaseTestProblem:
        if self.choices is not None:
            return ArmsProblem(self.choices, self.arm_values(round_number), self.noise_std)
        added = self.amplitude * self.coefficient(round_number)

        def function(points: Tensor) -> Tensor:
            value: Tensor = self.mean(points, noise=False)
            return value + (
                added if self.shape is None else added * self.shape(points, noise=False)
            )

        return BoxSnapshot(function, self.bounds, self.noise_std, seed=0)

    def optimal_value(self, round_number: int) -> float:
        """See :meth:`ChangingProblem.optimal_value`; if the variation is shared, the mean's."""
        if self.shape is None:
            best = float(self.mean.optimal_value)
            return best + self.amplitude * self.coefficient(round_number)
        return super().optimal_value(round_number)


class VariationBudget(NamedTuple):
    r"""How much the functions of an environment vary over a run.

    Attributes:
        reward: :math:`\sum_{t=2}^T \max_x |f^t(x) - f^{t-1}(x)|`, the path length.
        constraints: The path length of each constraint.
        widest: :math:`\max_t \max_x |f^t(x) - \bar f(x)|`, around the mean over the rounds.
        widest_constraints: The same for each constraint.
    """

    reward: float
    constraints: tuple[float, ...]
    widest: float
    widest_constraints: tuple[float, ...]


def variation_budget(environment: ChangingProblem, num_rounds: int) -> VariationBudget:
    """Return how much reward and constraints vary, on arms.

    Args:
        environment: An environment on arms.
        num_rounds: The number of rounds of the run.

    Raises:
        ValueError: On a box, or without rounds.

    Example:
        >>> choices = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> mean = ArmsProblem(choices, torch.tensor([1.0, 2.0], dtype=torch.float64))
        >>> budget = variation_budget(VaryingProblem(mean, 0.5, period=4.0), 5)
        >>> budget.reward, budget.constraints
        (2.0, ())
    """
    rewards, constraints = _tables(environment, num_rounds)
    paths, widths = zip(*(_variation(table) for table in (rewards, *constraints)), strict=True)
    return VariationBudget(paths[0], paths[1:], widths[0], widths[1:])


def best_fixed_arm(
    environment: ChangingProblem, num_rounds: int, meets: str = "every round"
) -> tuple[int, Tensor]:
    """Return the arm of the largest summed reward among those that meet the constraints.

    Args:
        environment: An environment on arms.
        num_rounds: The number of rounds of the run.
        meets: ``"every round"``: the constraints of each round. ``"on average"``: their sums.

    Returns:
        The number of the arm, the first of equals, and its noiseless rewards, one per round.

    Raises:
        ValueError: On a box, without rounds, or if no arm meets the constraints.

    Example:
        >>> choices = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> mean = ArmsProblem(choices, torch.tensor([1.0, 2.0], dtype=torch.float64))
        >>> cost = ArmsProblem(choices, torch.tensor([-1.0, 0.2], dtype=torch.float64))
        >>> environment = VaryingProblem(mean, 0.1, constraints=[cost])
        >>> best_fixed_arm(environment, 10)[0]
        0
    """
    check_one_of("meets", meets, ("every round", "on average"))
    rewards, constraints = _tables(environment, num_rounds)
    feasible = torch.ones(rewards.shape[1], dtype=torch.bool, device=rewards.device)
    for table in constraints:
        feasible &= (table.sum(0) <= 0.0) if meets == "on average" else (table <= 0.0).all(0)
    if not bool(feasible.any()):
        raise ValueError(
            f"no arm meets the constraints ({meets}) in {num_rounds} rounds; relax them, or pass "
            "meets='on average'."
        )
    best = int(rewards.sum(0).masked_fill(~feasible, -torch.inf).argmax())
    return best, rewards[:, best]


def _tables(environment: ChangingProblem, num_rounds: int) -> tuple[Tensor, list[Tensor]]:
    """Return noiseless rewards, ``num_rounds x num_arms``, and those of each constraint."""
    num_rounds = check_integer("num_rounds", num_rounds, minimum=1)
    choices = environment.choices
    if choices is None:
        raise ValueError(
            f"{type(environment).__name__} is on a box; all values are known only on arms. Put it "
            "on arms."
        )
    rounds = range(1, num_rounds + 1)
    rewards = torch.stack([environment.arm_values(t) for t in rounds])
    values = torch.stack([environment.constraint_values(choices, t) for t in rounds])
    return rewards, list(values.unbind(-1))


def _variation(table: Tensor) -> tuple[float, float]:
    path = float(table.diff(dim=0).abs().amax(-1).sum())
    return path, float((table - table.mean(0)).abs().max())

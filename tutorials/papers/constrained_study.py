"""Methods for long-term constraints, ours and others', played in turns by the experiments.

A method proposes a point and is told the reward and constraint values. This module plays the loop
of this package and models of reward and constraints on arms; the methods of other authors are in
:mod:`papers.constrained_methods`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.checks import (
    check_double,
    check_finite,
    check_integer,
    check_number,
    check_vector,
    store_checked,
)
from botorch_bandits.confidence import igp_ucb_width
from botorch_bandits.constraints import AdditiveEpochs, MultiplicativeEpochs, PrimalDual
from botorch_bandits.domains import first_of_the_largest
from botorch_bandits.history import Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import ArmsPosterior, ArmsPrior, double_kernel
from botorch_bandits.problems import ConstrainedProblem
from botorch_bandits.random_streams import RandomBlocks, generator
from papers.trials import ArmsStudy


class ConstrainedBaseline(Protocol):
    """A method that is asked for points and told the observations, in turns."""

    def choose(self, round_number: int) -> Tensor:
        """Return the point to play.

        Args:
            round_number: From 1.

        Returns:
            ``d`` numbers, float64.
        """

    def observe(self, x: Tensor, reward: float, constraints: Tensor) -> None:
        """Take the outcome of the point that was chosen last.

        Args:
            x: The point, ``d`` numbers.
            reward: The observed reward.
            constraints: ``num_constraints`` observed constraint values, feasible if at most 0.
        """


@dataclass(frozen=True, eq=False)
class ConstrainedRecord:
    r"""The points played under long-term constraints, and their cost.

    All quantities are without noise. Regret can be negative if constraints are violated, so it
    should be shown together with the violation.

    Attributes:
        points: ``batch_shape x n x d``; the points that were played.
        values: ``batch_shape x n``; their rewards :math:`f(x_t)`.
        constraints: ``batch_shape x n x num_constraints``; their :math:`g(x_t)`.
        optimal_value: The reward of the best feasible fixed point.

    Example:
        >>> record = ConstrainedRecord(
        ...     points=torch.zeros(2, 1, dtype=torch.float64),
        ...     values=torch.tensor([1.0, 0.0], dtype=torch.float64),
        ...     constraints=torch.tensor([[1.0], [-2.0]], dtype=torch.float64),
        ...     optimal_value=0.5,
        ... )
        >>> record.average_regret.tolist()
        [-0.5, 0.0]
        >>> record.average_signed_violation.tolist(), record.average_rectified_violation.tolist()
        ([1.0, 0.0], [1.0, 0.5])
    """

    points: Tensor
    values: Tensor
    constraints: Tensor
    optimal_value: float

    def __post_init__(self) -> None:
        """Check the shapes."""
        for name in ("points", "values", "constraints"):
            check_finite(name, check_double(name, getattr(self, name)))
        shape = tuple(self.values.shape)
        if not shape or self.constraints.shape[:-1] != shape or self.points.shape[:-1] != shape:
            raise ValueError(
                f"values has shape {shape}, constraints {tuple(self.constraints.shape)} and points "
                f"{tuple(self.points.shape)}; they must be batch_shape x n, batch_shape x n x "
                "num_constraints and batch_shape x n x d."
            )
        store_checked(self, optimal_value=check_number("optimal_value", self.optimal_value))

    @property
    def num_rounds(self) -> int:
        """The number of rounds played."""
        return int(self.values.shape[-1])

    @property
    def regret(self) -> Tensor:
        """``batch_shape x n``; the regret of each round, ``f(x*) - f(x_t)``."""
        return self.optimal_value - self.values

    @property
    def cumulative_regret(self) -> Tensor:
        """``batch_shape x n``; the cumulative regret up to each round."""
        return self.regret.cumsum(-1)

    @property
    def signed_violation(self) -> Tensor:
        """``batch_shape x n``; after each round the norm of ``[sum of g]^+``, the papers' ``V_t``.

        The positive part is taken of the sum, and the Euclidean norm over the constraints.
        """
        return self.constraints.cumsum(-2).clamp_min(0.0).norm(dim=-1)

    @property
    def rectified_violation(self) -> Tensor:
        """``batch_shape x n``; after each round the norm of ``sum of [g]^+``."""
        return self.constraints.clamp_min(0.0).cumsum(-2).norm(dim=-1)

    @property
    def average_regret(self) -> Tensor:
        """``batch_shape x n``; :attr:`cumulative_regret` over the rounds so far."""
        return self.cumulative_regret / self._rounds

    @property
    def average_signed_violation(self) -> Tensor:
        """``batch_shape x n``; :attr:`signed_violation` over the rounds so far."""
        return self.signed_violation / self._rounds

    @property
    def average_rectified_violation(self) -> Tensor:
        """``batch_shape x n``; :attr:`rectified_violation` over the rounds so far."""
        return self.rectified_violation / self._rounds

    @property
    def _rounds(self) -> Tensor:
        return torch.arange(
            1, self.num_rounds + 1, dtype=self.values.dtype, device=self.values.device
        )

    @staticmethod
    def stack(records: Sequence[ConstrainedRecord]) -> ConstrainedRecord:
        """Return the records of replicates as one record with an additional batch dimension.

        Args:
            records: Records of the same shape on the same problem.

        Raises:
            ValueError: If there are none, or if they differ in shape or optimum.
        """
        if not records:
            raise ValueError("records is empty; give at least one.")
        first = records[0]
        for i, record in enumerate(records):
            if (
                record.constraints.shape != first.constraints.shape
                or record.optimal_value != first.optimal_value
            ):
                raise ValueError(
                    f"records[{i}] has constraints of shape {tuple(record.constraints.shape)} and "
                    f"optimum {record.optimal_value}, records[0] has "
                    f"{tuple(first.constraints.shape)} and {first.optimal_value}; they must agree."
                )
        return ConstrainedRecord(
            points=torch.stack([record.points for record in records]),
            values=torch.stack([record.values for record in records]),
            constraints=torch.stack([record.constraints for record in records]),
            optimal_value=first.optimal_value,
        )


def play_constrained(
    baseline: ConstrainedBaseline,
    problem: ConstrainedProblem,
    num_rounds: int,
    seed: int = 0,
    on_round: Callable[[int], None] | None = None,
) -> ConstrainedRecord:
    """Play a baseline for a number of rounds.

    Observations have the problem's noise, which depends only on the seed and the round, so methods
    that are played with the same seed see the same noise. The record has the values without noise.

    Args:
        baseline: The method, before its first round.
        problem: A problem with constraints.
        num_rounds: The number of rounds.
        seed: Seeds the noise of observations. The baseline has its own seed.
        on_round: Called with the number of each finished round.

    Returns:
        The record, without a batch dimension.

    Raises:
        TypeError: If the problem has no constraints in the sense of this package.
        ValueError: If the baseline leaves the problem's domain.

    Example:
        >>> from papers.constrained_methods import BanditSaddlePoint
        >>> from botorch_bandits.problems import GardnerProblem
        >>> problem = GardnerProblem(noise_std=0.1)
        >>> record = play_constrained(BanditSaddlePoint(problem.bounds, seed=1), problem, 10)
        >>> record.average_regret.shape, record.average_signed_violation.shape
        (torch.Size([10]), torch.Size([10]))
    """
    num_rounds = check_integer("num_rounds", num_rounds, minimum=1)
    if not isinstance(problem, ConstrainedProblem):
        raise TypeError(
            f"problem must be a ConstrainedProblem, got {type(problem).__name__}; see "
            "botorch_bandits.problems."
        )
    played = []
    for round_number in range(1, num_rounds + 1):
        x = check_vector("x", baseline.choose(round_number), length=problem.dim)
        reward, observed = problem.observe(x, generator(seed, round_number, "constrained noise"))
        played.append(x.clone())
        baseline.observe(x, float(reward), observed)
        if on_round is not None:
            on_round(round_number)
    points = torch.stack(played)
    with torch.no_grad():
        values, constraints = problem.evaluate_true(points), problem.constraint_values(points)
    return ConstrainedRecord(points, values, constraints, float(problem.optimal_value))


class Observations:
    """The observations of a baseline: a growing table with one row per round.

    Args:
        dim: The dimension of points.
        num_constraints: The number of constraint values that come with each reward.
    """

    def __init__(self, dim: int, num_constraints: int) -> None:
        """See the class."""
        self.points = torch.empty(0, dim, dtype=torch.float64)
        self.rewards = torch.empty(0, dtype=torch.float64)
        self.constraints = torch.empty(0, num_constraints, dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.rewards)

    def append(self, x: Tensor, reward: float, constraints: Tensor | list[float]) -> None:
        """Add a row.

        Args:
            x: ``dim`` numbers.
            reward: A number.
            constraints: ``num_constraints`` numbers.

        Raises:
            TypeError: If a tensor is not float64.
            ValueError: If a shape is wrong or an entry is not finite.
        """
        x = check_vector("x", x, length=self.points.shape[1])
        row = check_vector("constraints", constraints, length=self.constraints.shape[1])
        value = x.new_tensor([check_number("reward", reward)])
        self.points = torch.cat([self.points, x.unsqueeze(0)])
        self.rewards = torch.cat([self.rewards, value])
        self.constraints = torch.cat([self.constraints, row.unsqueeze(0)])

    @property
    def best_row(self) -> int:
        """The feasible row with the largest reward, or else the row with the smallest violation.

        The choice uses the observed values, which may be noisy.
        """
        feasible = (self.constraints <= 0.0).all(-1)
        if bool(feasible.any()):
            return int(self.rewards.masked_fill(~feasible, -torch.inf).argmax())
        return int(self.constraints.clamp_min(0.0).norm(dim=-1).argmin())


class PlayedLoop:
    """A loop with the interface of baselines; see :class:`ConstrainedBaseline`.

    Args:
        loop: A loop with ``constraints=``, before its first round.
    """

    def __init__(self, loop: BanditLoop) -> None:
        """See the class."""
        self.loop = loop
        self._query: Query | None = None

    @property
    def multipliers(self) -> tuple[float, ...]:
        """Those in force."""
        return self.loop.multipliers

    def choose(self, round_number: int) -> Tensor:
        """Ask the loop.

        Args:
            round_number: Not used; the loop counts its rounds itself.
        """
        self._query = self.loop.ask()
        return self._query.x

    def observe(self, x: Tensor, reward: float, constraints: Tensor) -> None:
        """Tell the loop.

        Args:
            x: The point that was chosen last.
            reward: The observed reward.
            constraints: The observed constraint values.
        """
        assert self._query is not None
        self.loop.tell(self._query.id, reward, constraints=constraints.tolist())


class SeparateArms:
    r"""Separate models of reward and constraints on many arms, at an affordable cost.

    It plays the same arms as a loop with :class:`LagrangianUpperConfidenceBound` in which all
    models have the same kernel and regularization. All models are then observed at the same points
    and share one standard deviation.

    Args:
        choices: The arms, ``num_arms x d``.
        kernel: The kernel, with prior variance 1.
        lam: The regularization of each model.
        rule: The rule that changes the multipliers; its surrogate must be separate.
        rkhs_bound: ``B`` of the reward and of each constraint.
        noise_bound: ``R`` of each.
        delta: The failure probability, shared evenly among the models.
        num_initial: The number of initial rounds that choose uniformly at random.
        seed: Seeds the initial rounds.
        prior: The prior of an earlier object with the same arms and kernel.

    Raises:
        ValueError: If the rule's surrogate is not separate.
    """

    def __init__(
        self,
        choices: Tensor,
        kernel: Kernel,
        lam: float,
        rule: MultiplicativeEpochs | AdditiveEpochs | PrimalDual,
        *,
        rkhs_bound: float,
        noise_bound: float,
        delta: float = 0.1,
        num_initial: int = 1,
        seed: int = 0,
        prior: ArmsPrior | None = None,
    ) -> None:
        """See the class."""
        if rule.surrogate_in_use != "separate":
            raise ValueError(
                f"rule has surrogate={rule.surrogate_in_use!r}; it must be 'separate'."
            )
        prior = ArmsPrior.from_kernel(double_kernel(kernel), choices) if prior is None else prior
        self.rule = rule
        self._choices, self._num_initial = choices, num_initial
        self._models = [ArmsPosterior(prior, lam) for _ in range(1 + rule.num_constraints)]
        self._bounds = rkhs_bound, noise_bound, delta / len(self._models)
        self._state = rule.init()
        self._uniform = RandomBlocks([seed], "sample", (), "uniform")
        self._arm = 0
        self._lower = torch.empty(0, dtype=torch.float64)

    @property
    def multipliers(self) -> tuple[float, ...]:
        """Those in force."""
        return tuple(self.rule.multipliers(self._state).tolist())

    def choose(self, round_number: int) -> Tensor:
        """Return the arm to play; see :class:`ConstrainedBaseline`.

        Args:
            round_number: From 1.
        """
        if round_number > 1:
            self._state = self.rule.advance(self._state)
        if round_number <= self._num_initial:
            uniform = self._uniform.at(round_number)
            self._arm = int(uniform * len(self._choices))
            return self._choices[self._arm]
        self._arm = int(first_of_the_largest(self._scores()))
        if self.rule.observes == "lower_bounds":
            self._state = self.rule.observe(self._state, self._lower[:, self._arm])
        return self._choices[self._arm]

    def observe(self, x: Tensor, reward: float, constraints: Tensor) -> None:
        """Take an outcome; see :class:`ConstrainedBaseline`.

        Args:
            x: The point that was chosen last.
            reward: The observed reward.
            constraints: The observed constraint values.
        """
        for model, value in zip(self._models, [reward, *constraints.tolist()], strict=True):
            model.observe(self._arm, value)
        if self.rule.observes == "outcomes":
            self._state = self.rule.observe(self._state, constraints)

    def _scores(self) -> Tensor:
        reward, *constraints = self._models
        # the same for all models, because they were observed at the same points
        deviation = reward.clamped_variance(1e-18).sqrt()
        rkhs_bound, noise_bound, delta = self._bounds
        width = igp_ucb_width(rkhs_bound, noise_bound, reward.information_gain, delta)
        means = torch.stack([model.mean for model in constraints])
        multipliers = self.rule.multipliers(self._state)
        self._lower = means - width * deviation
        upper = reward.mean + width * deviation
        if isinstance(self.rule, PrimalDual):
            if self.rule.reward_bound is not None:
                upper = upper.clamp(-self.rule.reward_bound, self.rule.reward_bound)
            if self.rule.constraint_bound is not None:
                bound = self.rule.constraint_bound
                self._lower = self._lower.clamp(-bound, bound)
            return upper - multipliers @ self._lower
        if self.rule.penalty_in_use.is_linear:
            factor = (1.0 + (multipliers > 0).sum()).sqrt() * (
                1.0 + multipliers.square().sum()
            ) ** 0.5
            return reward.mean - multipliers @ means + width * factor * deviation
        return upper - multipliers @ self.rule.penalty_in_use.excess(self._lower)


@dataclass(frozen=True, eq=False)
class ConstrainedMethod:
    """A method with its name and the problem that it plays.

    Attributes:
        name: The name in the figure's legend.
        problem: A problem on a box or on arms; regret is against its own optimum.
        build: Maps a seed to the method, before its first round.
    """

    name: str
    problem: ConstrainedProblem
    build: Callable[[int], ConstrainedBaseline]


def play_with_constraints(
    study: ArmsStudy, method: ConstrainedMethod, on_round: Callable[[int], None]
) -> dict[str, Any]:
    """Play the trials of a study with one method, one after the other.

    A trial is seeded only by its number, so every method meets the same noise.

    Args:
        study: Gives the numbers of trials and rounds; the method has the problem.
        method: The method to play.
        on_round: Called with the numbers of rounds, as often as a round of all trials has been
            played.

    Returns:
        ``regret`` and the constraint's noiseless values ``constraint``, each ``num_trials x
        num_rounds``; the last ``multiplier``, NaN without one, and the round ``stopped`` after
        which a method had nothing more to do (the last round if there is none), each
        ``num_trials``.
    """
    records, multipliers, stops = [], [], []
    num_trials, num_rounds = len(study.seeds), study.num_rounds
    for i, seed in enumerate(study.seeds):
        player = method.build(seed)
        records.append(play_constrained(player, method.problem, num_rounds, seed=seed))
        known: Any = getattr(player, "multipliers", ())
        multipliers.append(float(known[0]) if len(known) else float("nan"))
        stops.append(getattr(player, "stopped_after", None) or num_rounds)
        for t in range(num_rounds * i // num_trials, num_rounds * (i + 1) // num_trials):
            on_round(t + 1)
    return {
        "regret": torch.stack([record.regret for record in records]).numpy(),
        "constraint": torch.stack([record.constraints for record in records])[..., 0].numpy(),
        "multiplier": np.array(multipliers),
        "stopped": np.array(stops),
    }

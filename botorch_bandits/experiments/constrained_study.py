"""Methods for long-term constraints, ours and others', played in turns: what experiments share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.confidence.rkhs_widths import igp_ucb_width
from botorch_bandits.constraints import AdditiveEpochs, MultiplicativeEpochs, PrimalDual
from botorch_bandits.domains import first_of_the_largest
from botorch_bandits.experiments.arms_study import ArmsStudy
from botorch_bandits.experiments.constrained_baselines import ConstrainedBaseline, play_constrained
from botorch_bandits.history import Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models.arms_posterior import ArmsPosterior
from botorch_bandits.models.arms_prior import ArmsPrior
from botorch_bandits.models.kernels import double_kernel
from botorch_bandits.problems import ConstrainedProblem
from botorch_bandits.random_streams import RandomBlocks


class PlayedLoop:
    """A loop that is asked and told as baselines are; see :class:`ConstrainedBaseline`.

    Args:
        loop: With ``constraints=``, before its first round.
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
    r"""Separate models of reward and constraints on many arms, at a cost that experiments can bear.

    It plays what a loop on these arms with :class:`LagrangianUpperConfidenceBound` plays, where all
    models have the same kernel and regularisation. All are then observed at the same points, so one
    standard deviation serves all of them.

    Args:
        choices: The arms, ``num_arms x d``.
        kernel: Of prior variance 1.
        lam: The regularisation of each model.
        rule: Changes the multipliers; its surrogate must be separate.
        rkhs_bound: ``B`` of the reward and of each constraint.
        noise_bound: ``R`` of each.
        delta: Shared evenly among the models.
        num_initial: Rounds at the start that choose uniformly at random.
        seed: Seeds these.
        prior: That of an earlier object of the same arms and kernel.

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
        # the same at all models: they were observed at the same points
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
    """A method with its name, and the problem that it plays.

    Attributes:
        name: As the figure's legend has it.
        problem: On a box or on arms; regret is against its own optimum.
        build: From a seed to the method, before its first round.
    """

    name: str
    problem: ConstrainedProblem
    build: Callable[[int], ConstrainedBaseline]


def play_with_constraints(
    study: ArmsStudy, method: ConstrainedMethod, on_round: Callable[[int], None]
) -> dict[str, Any]:
    """Play every trial of a study with one method, one after the other.

    A trial is seeded by its number alone, so every method meets the same noise.

    Args:
        study: How many trials of how many rounds; the method has the problem.
        method: What is played.
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

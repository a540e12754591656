"""Shi and Eryilmaz 2022, Appendices B and D: regret and violation of realized functions.

The appendices state that Algorithms 2 and 3 keep the order of their bounds if regret is counted in
realized rewards (B) and violation in realized constraints (D). Both are played on functions of
known norm on arms: each round's reward, or reward and constraint, is shocked by noise that all arms
share, and the same method also plays the functions without shocks. Two further panels go beyond the
appendices: functions that vary in quick waves, and a drift that does not end within the run. In all
environments, the best arm overall violates the constraint.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.acquisition import ImprovedUpperConfidenceBound
from botorch_bandits.constraints import AdditiveEpochs, MultiplicativeEpochs
from botorch_bandits.domains import Arms
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGP
from botorch_bandits.problems import ArmsProblem
from botorch_bandits.random_streams import derive_seed, generator
from papers.beyond_varying import (
    DELTA,
    EPOCH_LENGTH,
    KINDS,
    LAM,
    MAX_MULTIPLIER,
    NOISE_STD,
    NUM_ROUNDS,
    STEP_SIZE,
    Kind,
    compared_with,
    environment,
    kernel,
)
from papers.environments import VaryingProblem, best_fixed_arm
from papers.results import write_csv
from papers.shi import tabulate_violation
from papers.trials import ArmsExperiment, ArmsStudy, Curves

REWARDS_ALONE = Kind("rewards", "shocks", 0.3, 0.0, 1.0, True, 0.0)
"""Appendix B: rewards are realized, and constraints do not vary."""

BINDS_BY = 0.1
"""The smallest amount by which the best arm overall violates the mean constraint."""


@dataclass(frozen=True)
class VaryingMethod:
    """A method in an environment.

    Attributes:
        name: The name in the figure's legend.
        kind: How functions vary.
        algorithm: Algorithm 2 or 3 of the paper.
        surrogate: What the model is fitted to.
        is_told: Whether its width is told how much functions vary.
        is_stationary: Whether it plays the functions without variation.
    """

    name: str
    kind: Kind
    algorithm: int = 3
    surrogate: str = "fresh"
    is_told: bool = False
    is_stationary: bool = False

    @property
    def played(self) -> Kind:
        """How the functions that it plays vary."""
        return replace(self.kind, reward=0.0, constraint=0.0) if self.is_stationary else self.kind


def varying(
    num_trials: int = 20, num_rounds: int = NUM_ROUNDS, seed: int = 0
) -> list[ArmsExperiment]:
    """Return four panels: realized rewards, realized constraints, waves, and a drift.

    Args:
        num_trials: The number of environments of each kind, the same for each method.
        num_rounds: The number of rounds of each.
        seed: Seeds functions, shocks and noise.
    """
    shocks, waves, drift = KINDS
    panels = [
        (
            "rewards",
            "Appendix B: Algorithm 2, rewards as realized",
            "regret of realized rewards has the order of Theorem 1",
            [
                VaryingMethod("Algorithm 2", REWARDS_ALONE, 2),
                VaryingMethod("without shocks", REWARDS_ALONE, 2, is_stationary=True),
                VaryingMethod("relabeled", REWARDS_ALONE, 2, "relabeled"),
            ],
        ),
        (
            "constraints",
            "Appendix D: Algorithm 3, constraints as realized",
            "violation of realized constraints has the order of Theorem 2",
            [
                VaryingMethod("Algorithm 3", shocks),
                VaryingMethod("without shocks", shocks, is_stationary=True),
                VaryingMethod("relabeled", shocks, 3, "relabeled"),
            ],
        ),
    ]
    for kind, words in ((waves, "waves of 7 rounds"), (drift, "a drift")):
        methods = [
            VaryingMethod("Algorithm 3", kind),
            VaryingMethod("without variation", kind, is_stationary=True),
            VaryingMethod("told of the variation", kind, is_told=True),
            VaryingMethod("relabeled", kind, 3, "relabeled"),
        ]
        panels.append((kind.name, f"beyond the appendices: {words}", "", methods))
    return [_panel(*panel, num_trials, num_rounds, seed) for panel in panels]


def _panel(
    name: str,
    title: str,
    published: str,
    methods: list[VaryingMethod],
    num_trials: int,
    num_rounds: int,
    seed: int,
) -> ArmsExperiment:
    def make_study(first: int, count: int) -> ArmsStudy:
        # the methods have the environments; the study gives the trials and their seeds
        nothing = torch.empty(0, 0, dtype=torch.float64)
        return ArmsStudy(nothing, nothing.new_zeros(count, 1), NOISE_STD, num_rounds, seed, first)

    return ArmsExperiment(
        name=f"shi-varying-{name}",
        title=title,
        published=published,
        num_trials=num_trials,
        num_rounds=num_rounds,
        make_study=make_study,
        make_methods=lambda study: methods,
        average=True,
        player=play_varying,
        settings={
            "seed": seed,
            "epoch_length": EPOCH_LENGTH,
            "step_size": STEP_SIZE,
            "lam": LAM,
            "binds_by": BINDS_BY,
            "methods": [repr(method) for method in methods],
        },
    )


def play_varying(
    study: ArmsStudy, method: VaryingMethod, on_round: Callable[[int], None]
) -> dict[str, Any]:
    """Play the trials of a study with one method, one after the other.

    Args:
        study: Gives the numbers of trials and rounds.
        method: The method and its environment.
        on_round: Called with the numbers of rounds, once for each round of all trials that has been
            played.

    Returns:
        Arrays as from :func:`~papers.constrained_study.play_with_constraints`, for the functions of
        the rounds.
    """
    regrets, constraints, multipliers = [], [], []
    num_trials, num_rounds = len(study.seeds), study.num_rounds
    for i in range(num_trials):
        seed = binding_seed(study.seed, study.first_trial + i)
        regret, constraint, multiplier = play_in_environment(method, num_rounds, seed)
        regrets.append(regret)
        constraints.append(constraint)
        multipliers.append(multiplier)
        for t in range(num_rounds * i // num_trials, num_rounds * (i + 1) // num_trials):
            on_round(t + 1)
    return {
        "regret": np.array(regrets),
        "constraint": np.array(constraints),
        "multiplier": np.array(multipliers),
        "stopped": np.full(num_trials, num_rounds),
    }


@cache
def binding_seed(seed: int, trial: int) -> int:
    """Return the seed of an environment whose best arm overall violates the mean constraint.

    In other environments, violation says nothing about a method. The arm must violate the
    constraint by at least :data:`BINDS_BY`.

    Args:
        seed: The seed of the experiment.
        trial: The number of the trial.
    """
    for attempt in itertools.count():
        found = derive_seed(seed, trial, f"varying {attempt}")
        problem, _ = environment(KINDS[0], found)
        (constraint,) = problem.constraints
        assert isinstance(constraint, VaryingProblem)
        assert isinstance(problem.mean, ArmsProblem)
        assert isinstance(constraint.mean, ArmsProblem)
        best = int(problem.mean.values.argmax())
        if float(constraint.mean.values[best]) >= BINDS_BY:
            return found
    raise AssertionError  # the count has no end


def play_in_environment(
    method: VaryingMethod, num_rounds: int, seed: int
) -> tuple[list[float], list[float], float]:
    """Play one run.

    Args:
        method: The method and its environment.
        num_rounds: The number of rounds.
        seed: Seeds the environment, the noise and the method.

    Returns:
        Each round's regret and constraint value for the functions of that round, and the largest
        multiplier.
    """
    kind = method.played
    problem, norms = environment(kind, seed, None if method.algorithm == 2 else NOISE_STD)
    assert problem.choices is not None
    rule = (
        MultiplicativeEpochs(1, EPOCH_LENGTH, surrogate=method.surrogate)
        if method.algorithm == 2
        else AdditiveEpochs(1, EPOCH_LENGTH, STEP_SIZE, surrogate=method.surrogate)
    )
    arms = Arms(problem.choices)
    loop = BanditLoop(
        arms,
        BanditGP.with_kernel(kernel(), noise=LAM),
        ImprovedUpperConfidenceBound.with_options(
            rkhs_bound=norms[0] + MAX_MULTIPLIER * norms[1],
            noise_bound=kind.noise_bound,
            delta=DELTA,
            any_lambda=True,
            variation=kind.variation if method.is_told else 0.0,
        ),
        constraints=rule,
        horizon=num_rounds,
        seed=seed % 2**31,
    )
    # compute all values at once, because a separate problem per round would dominate the time
    rewards, constraints = values_of_rounds(problem, num_rounds)
    _, best = best_fixed_arm(compared_with(problem, kind), num_rounds)
    noise = NOISE_STD * torch.randn(
        num_rounds, 2, dtype=torch.float64, generator=generator(seed, 0, "varying noise")
    )
    if method.algorithm == 2:
        noise[:, 1] = 0.0
    regret, values, largest = [], [], 0.0
    for t in range(num_rounds):
        query = loop.ask()
        arm = int(arms.index_of(query.x.unsqueeze(0)))
        reward, value = float(rewards[t, arm]), float(constraints[t, arm])
        loop.tell(query.id, reward + float(noise[t, 0]), [value + float(noise[t, 1])])
        regret.append(float(best[t]) - reward)
        values.append(value)
        largest = max(largest, query.diagnostics["multiplier_1"])
    return regret, values, largest


def values_of_rounds(problem: VaryingProblem, num_rounds: int) -> tuple[Tensor, Tensor]:
    """Return noiseless rewards and constraint values, each ``num_rounds x num_arms``.

    Args:
        problem: A problem with one constraint, on arms.
        num_rounds: The number of rounds.
    """
    (constraint,) = problem.constraints
    assert isinstance(constraint, VaryingProblem)
    tables = [
        torch.stack([each.arm_values(t) for t in range(1, num_rounds + 1)])
        for each in (problem, constraint)
    ]
    return tables[0], tables[1]


def report(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]], folder: Path
) -> None:
    """Write ``violation.csv``.

    Args:
        experiments: The panels of :func:`varying`.
        curves: Their results.
        folder: The folder for the files.
    """
    write_csv(folder / "violation.csv", tabulate_violation(experiments, curves))

"""Beyond the papers: delay, change, constraint and context at once, each switched off in turn.

A campaign of spending: each round shows one of a few kinds of customer, and a level of effort is
chosen. Reward and cost are draws of one Gaussian process over kind and effort, and they are
correlated: what earns more costs more. The cost must be at most 0 on average. Outcomes arrive late,
and those that are late beyond a cut-off are lost. Half way the reward becomes another function with
the same correlation; the cost stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from botorch_bandits.acquisition import GPUpperConfidenceBound, RandomSearch
from botorch_bandits.change_points import (
    ChangePointDetector,
    ChangePointRestart,
    NeverRestart,
    OracleRestart,
)
from botorch_bandits.constraints import AdditiveEpochs
from botorch_bandits.domains import Arms
from botorch_bandits.experiments.arms_experiment import ArmsExperiment
from botorch_bandits.experiments.arms_study import ArmsStudy
from botorch_bandits.experiments.beyond_scenario import (
    CORRELATION,
    CUT_OFF,
    DELAYS,
    LENGTHSCALES,
    NOISE_STD,
    NUM_ARMS,
    NUM_CONTEXTS,
    arms,
    draw_scenario,
    kernel,
    pairs,
    play_scenario,
)
from botorch_bandits.experiments.calibrated_restart import calibrated_restart
from botorch_bandits.feedback import Hallucinated, Ignored
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGP
from botorch_bandits.random_streams import derive_seed

WIDTH, EPOCH_LENGTH, STEP_SIZE = 2.0, 10, 0.5
FALSE_ALARM_RATE, NUM_SIMULATIONS = 0.1, 500
TABULATED = ("violation", "rectified", "before", "after", "resets_before", "resets_after")


@dataclass(frozen=True)
class Variant:
    """The full policy, or what is left of it.

    Attributes:
        name: As the figure's legend has it.
        switched: Arguments of the loop that differ from those of the full policy.
        sees_context: Whether it is told the context; in place of it there is 0.5 otherwise.
        is_random: Whether it chooses at random instead.
    """

    name: str
    switched: Mapping[str, Any]
    sees_context: bool = True
    is_random: bool = False


def combined(
    num_trials: int = 20, num_rounds: int = 300, seed: int = 0, chunk: int = 10
) -> list[ArmsExperiment]:
    """Return the panel.

    Args:
        num_trials: Environments.
        num_rounds: The horizon; the change is half way.
        seed: Seeds environments, contexts, noise and delays, which are the same for every method.
        chunk: Trials in one file.
    """
    own = derive_seed(seed, 0, "beyond-combined")
    change_point = num_rounds // 2

    def make_study(first: int, count: int) -> ArmsStudy:
        # the player draws the scenarios; a study says how many trials, and seeds them
        nothing = torch.empty(0, 0, dtype=torch.float64)
        return ArmsStudy(nothing, nothing.new_zeros(count, 1), NOISE_STD, num_rounds, own, first)

    def make_methods(study: ArmsStudy) -> Any:
        return variants(change_point)

    return [
        ArmsExperiment(
            name="beyond-combined",
            title="delay, change, constraint and context",
            published="",
            num_trials=num_trials,
            num_rounds=num_rounds,
            make_study=make_study,
            make_methods=make_methods,
            average=True,
            chunk=chunk,
            player=play_scenarios,
            tabulated=TABULATED,
            settings={
                "seed": seed,
                "sizes": (NUM_CONTEXTS, NUM_ARMS),
                "lengthscales": LENGTHSCALES,
                "correlation": CORRELATION,
                "noise_std": NOISE_STD,
                "delays": (repr(DELAYS), CUT_OFF),
                "policy": (WIDTH, EPOCH_LENGTH, STEP_SIZE),
                "calibration": (FALSE_ALARM_RATE, NUM_SIMULATIONS),
            },
        )
    ]


def variants(change_point: int) -> list[Variant]:
    """Return the full policy, those with one component switched off, and random search.

    Args:
        change_point: For the policy that is told of it.
    """
    return [
        Variant("all components", {}),
        Variant("pending ignored", {"feedback": Ignored()}),
        Variant("never restarts", {"restart": NeverRestart()}),
        Variant("never restarts or explores", {"restart": None}),
        Variant("no constraint rule", {"constraints": None}),
        Variant("context withheld", {}, sees_context=False),
        Variant("told of the change", {"restart": OracleRestart(change_points=(change_point,))}),
        Variant("random search", {"restart": None, "constraints": None}, is_random=True),
    ]


def build_loop(variant: Variant, num_rounds: int, seed: int) -> BanditLoop:
    """Return a policy before its first round.

    Args:
        variant: Which one.
        num_rounds: The horizon.
        seed: Seeds what it draws.
    """
    full = {
        "feedback": Hallucinated(),
        "restart": restart_rule(num_rounds),
        "constraints": AdditiveEpochs(1, EPOCH_LENGTH, step_size=STEP_SIZE),
    }
    return BanditLoop(
        Arms(arms()),
        None if variant.is_random else BanditGP.with_kernel(kernel(), noise=NOISE_STD**2),
        RandomSearch() if variant.is_random else GPUpperConfidenceBound.with_options(width=WIDTH),
        context_dim=1,
        seed=seed,
        clock=lambda: 0.0,
        **{**full, **variant.switched},
    )


def play_scenarios(
    study: ArmsStudy, variant: Variant, on_round: Callable[[int], None]
) -> dict[str, Any]:
    """Play every trial of a study, one after the other.

    Returns:
        ``num_trials x num_rounds`` arrays: ``regret`` against the best feasible arm of the context
        and period, and the cost as ``constraint``, both noiseless. Means a round of each trial:
        ``violation`` (the positive part of the sum), ``rectified`` (the sum of positive parts),
        ``before`` and ``after`` (the regret on either side of the change). How often it began anew
        on either side: ``resets_before`` and ``resets_after``. ``stopped`` is the last round.
    """
    count, rounds = len(study.seeds), study.num_rounds
    regret = torch.zeros(count, rounds, dtype=torch.float64)
    cost = torch.zeros_like(regret)
    resets = torch.zeros(count, 2)
    for i, seed in enumerate(study.seeds):
        scenario = draw_scenario(rounds, seed)
        loop = build_loop(variant, rounds, seed)
        played = play_scenario(scenario, loop, rounds, seed, variant.sees_context)
        for t, arm in enumerate(played):
            period, z = scenario.period(t + 1), scenario.contexts[t]
            regret[i, t] = scenario.best[period, z] - scenario.rewards[period, z, arm]
            cost[i, t] = scenario.costs[z, arm]
        for reset in loop.resets:
            resets[i, scenario.period(reset.after_round + 1)] += 1.0
        for t in range(rounds * i // count, rounds * (i + 1) // count):
            on_round(t + 1)
    half = max(rounds // 2, 1)
    found = {
        "regret": regret,
        "constraint": cost,
        "violation": cost.mean(-1).clamp_min(0.0),
        "rectified": cost.clamp_min(0.0).mean(-1),
        "before": regret[:, :half].mean(-1),
        "after": regret[:, -half:].mean(-1),
        "resets_before": resets[:, 0],
        "resets_after": resets[:, 1],
        "stopped": torch.full((count,), rounds),
    }
    return {name: values.numpy() for name, values in found.items()}


@cache
def restart_rule(num_rounds: int) -> ChangePointRestart:
    """Return restarts with a threshold for uniformly distributed pairs of context and arm.

    Args:
        num_rounds: The horizon.
    """
    return calibrated_restart(
        ChangePointDetector(kernel()),
        Arms(pairs()),
        num_rounds,
        noise_std=NOISE_STD,
        false_alarm_rate=FALSE_ALARM_RATE,
        num_simulations=NUM_SIMULATIONS,
    )

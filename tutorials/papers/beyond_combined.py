"""Beyond the papers: delay, change, constraint and context at once.

The scenario is a spending campaign: each round shows one of a few kinds of customer, and a level of
effort is chosen. Reward and cost are draws of one Gaussian process over kind and effort, and they
are correlated, so that what earns more also costs more. The cost must be at most 0 on average.
Outcomes arrive late, and those later than a cut-off are lost. Halfway through, the reward becomes
another function with the same correlation, while the cost stays the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from botorch_bandits.acquisition import GPUpperConfidenceBound, RandomSearch
from botorch_bandits.change_points import (
    ChangePointDetector,
    ChangePointRestart,
    EvidenceRestart,
    OracleRestart,
)
from botorch_bandits.constraints import AdditiveEpochs
from botorch_bandits.domains import Arms
from botorch_bandits.feedback import Hallucinated, Ignored
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGP
from botorch_bandits.problems import GeometricDelay, clamped_eigh
from botorch_bandits.random_streams import RandomBlocks, derive_seed, generator
from papers.avanesov import calibrated_restart
from papers.results import write_csv
from papers.trials import ArmsExperiment, ArmsStudy, Curves

NUM_CONTEXTS, NUM_ARMS = 5, 40
LENGTHSCALES = (0.5, 0.2)
"""Lengthscales of the Matern 5/2 kernel in context and arm, both in [0, 1]."""

CORRELATION = 0.5**0.5
"""The correlation of reward and cost."""

NOISE_STD = 0.1
DELAYS, CUT_OFF = GeometricDelay(10.0), 30
"""In rounds; about one outcome in twenty arrives after the cut-off."""


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
        """Return 0 up to the change and 1 after it."""
        return int(round_number > self.change_point)


def draw_scenario(num_rounds: int, seed: int) -> Scenario:
    """Draw an environment in which each context has a feasible arm.

    Args:
        num_rounds: The horizon.
        seed: Seeds the environment.
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
    """Play one environment and return the arms, one per round.

    The outcome of round s with delay d is told before round ``s + max(d, 1)``; if d exceeds the
    cut-off, the query is given up before round ``s + CUT_OFF``.

    Args:
        scenario: The environment.
        loop: The policy, before its first round.
        num_rounds: The number of rounds.
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


WIDTH, EPOCH_LENGTH, STEP_SIZE = 2.0, 10, 0.5
FALSE_ALARM_RATE, NUM_SIMULATIONS = 0.1, 500
TABULATED = ("violation", "rectified", "before", "after", "resets_before", "resets_after")


@dataclass(frozen=True)
class Variant:
    """The full policy, or a variant of it.

    Attributes:
        name: The name in the figure's legend.
        switched: Arguments of the loop that differ from those of the full policy.
        sees_context: Whether it is told the context; otherwise it is given 0.5 in its place.
        is_random: Whether it chooses at random.
    """

    name: str
    switched: Mapping[str, Any]
    sees_context: bool = True
    is_random: bool = False


def combined(
    num_trials: int = 40, num_rounds: int = 300, seed: int = 0, chunk: int = 10
) -> list[ArmsExperiment]:
    """Return the panel.

    Args:
        num_trials: The number of environments.
        num_rounds: The horizon; the change is halfway.
        seed: Seeds environments, contexts, noise and delays, which are the same for every method.
        chunk: Trials per file.
    """
    own = derive_seed(seed, 0, "beyond-combined")

    def make_study(first: int, count: int) -> ArmsStudy:
        # the player draws the scenarios; the study only gives the number of trials and their seeds
        nothing = torch.empty(0, 0, dtype=torch.float64)
        return ArmsStudy(nothing, nothing.new_zeros(count, 1), NOISE_STD, num_rounds, own, first)

    def make_methods(study: ArmsStudy) -> Any:
        return variants(num_rounds)

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
            totals=True,
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


def variants(num_rounds: int) -> list[Variant]:
    """Return the full policy, variants with one component switched off or replaced, and chance.

    Args:
        num_rounds: The horizon; the change is halfway.
    """
    told = OracleRestart(change_points=(num_rounds // 2,), exploration=None)
    return [
        Variant("all components", {}),
        Variant("pending ignored", {"feedback": Ignored()}),
        Variant("never restarts", {"restart": None}),
        Variant("no constraint rule", {"constraints": None}),
        Variant("context withheld", {}, sees_context=False),
        Variant("half-samples", {"restart": half_samples(num_rounds)}),
        Variant("told of the change", {"restart": told}),
        Variant("random search", {"restart": None, "constraints": None}, is_random=True),
    ]


def build_loop(variant: Variant, num_rounds: int, seed: int) -> BanditLoop:
    """Return a policy before its first round.

    Args:
        variant: The policy.
        num_rounds: The horizon.
        seed: Seeds the draws of the policy.
    """
    full = {
        "feedback": Hallucinated(),
        "restart": EvidenceRestart(),
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
    """Play the trials of a study one after the other.

    Returns:
        ``num_trials x num_rounds`` arrays: ``regret`` against the best feasible arm of the context
        and period, and the cost as ``constraint``, both noiseless. Per-round means of each trial:
        ``violation`` (the positive part of the sum), ``rectified`` (the sum of positive parts),
        ``before`` and ``after`` (the regret on either side of the change). The numbers of restarts
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
def half_samples(num_rounds: int) -> ChangePointRestart:
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


FURTHER_SAMPLES = (8, 16, 32)
"""The numbers of uniform samples after the change for which the detector's power is measured."""


def detection_power(num_rounds: int, num_streams: int = 100) -> list[dict[str, float]]:
    """Return how often the detector sees the change, by the number of uniform samples after it.

    The streams have no delay, and before the change they are as long as the uniform queries of a
    run.

    Args:
        num_rounds: The horizon of the threshold.
        num_streams: The number of scenarios, none of which is among the trials.
    """
    restart, most = half_samples(num_rounds), FURTHER_SAMPLES[-1]
    assert restart.exploration is not None
    before = int(restart.exploration * (num_rounds // 2) ** 0.5) + 1
    engine = restart.detector.on(Arms(arms()))
    first = []
    for stream in range(num_streams):
        seed = derive_seed(stream, 0, "detection power")
        scenario = draw_scenario(2 * (before + most), seed)
        drawn = generator(seed, 0, "uniform")
        rows = torch.randint(len(pairs()), (before + most,), generator=drawn)
        noise = NOISE_STD * torch.randn(len(rows), dtype=torch.float64, generator=drawn)
        period = (torch.arange(len(rows)) >= before).long()
        Y = scenario.rewards.reshape(2, -1)[period, rows] + noise
        X = pairs()[rows]
        seen = (
            after
            for after in range(1, most + 1)
            if engine.test(
                X[: before + after, 1:], Y[: before + after], contexts=X[: before + after, :1]
            ).detected
        )
        first.append(next(seen, most + 1))
    return [
        {
            "samples_before": before,
            "samples_after": after,
            "streams": num_streams,
            "detected": sum(found <= after for found in first) / num_streams,
        }
        for after in FURTHER_SAMPLES
    ]


def report(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]], folder: Path
) -> None:
    """Print regret and violation.

    Writes ``power.csv``, which has the power of the policies' detector on separate streams.

    Args:
        experiments: The panel.
        curves: Its results.
        folder: The folder for the file.
    """
    (experiment,), (results,) = experiments, curves
    quantities = experiment.tabulated
    print("\nmeans (standard errors)\n" + " " * 28 + "".join(f"{q:>18}" for q in quantities))
    for name, curve in results.items():
        cells = []
        for quantity in quantities:
            values = curve.others[quantity].double()
            error = float(values.std() / len(values) ** 0.5) if len(values) > 1 else 0.0
            cells.append(f"{float(values.mean()):.3f} ({error:.3f})")
        print(f"{name:<28}" + "".join(f"{cell:>18}" for cell in cells))
    power = detection_power(experiment.num_rounds)
    write_csv(folder / "power.csv", power)
    for row in power:
        print(f"{row['samples_after']} uniform samples after the change: ", end="")
        print(f"seen in {row['detected']:.0%} of {row['streams']} streams")

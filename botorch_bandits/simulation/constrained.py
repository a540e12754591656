"""Replicates on arms under long-term constraints, with separate multipliers and common epochs.

This module keeps for all replicates at once what the loop keeps in
:class:`~botorch_bandits.loop.state.Multipliers` for one stream of rounds. Multiplier rules are
folds over tensors, so the rule is the loop's. Every outcome is told in its round and nothing starts
over, so that all replicates are always in the same epoch.

Source of the rules: Shi and Eryilmaz 2022, Algorithms 2 and 3.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch
from botorch_bandits.acquisition.engines import ArmsEngine
from botorch_bandits.acquisition.scores import ArmsRule, ThompsonArmsRule, WidthArmsRule
from botorch_bandits.checks import DTYPE, check_finite
from botorch_bandits.confidence import Guarantee, PriorSummary, WidthRule
from botorch_bandits.constraints import MultiplierRule, NoisyConstraintsWarning
from botorch_bandits.domains import Arms
from botorch_bandits.feedback import Hallucinated
from botorch_bandits.loop.settings import check_constraints
from botorch_bandits.loop.state import in_epoch
from botorch_bandits.problems import ChangingProblem, ConstrainedArmsProblem
from botorch_bandits.random_streams import RandomBlocks, generator
from botorch_bandits.simulation.problems import Policy, SimulationResult


def check_constrained(policy: Policy, problems: Sequence[object]) -> None:
    """Raise an error unless a policy's constraints fit the rest of it and these problems.

    Args:
        policy: A policy with ``constraints``.
        problems: One per replicate, or one for all.

    Raises:
        TypeError: If the constraints are not a rule for multipliers.
        ValueError: If they do not fit the policy, or a problem has a different number of them.

    Warns:
        NoisyConstraintsWarning: If the rule is for exact constraint values, and they are noisy.
    """
    rule = policy.constraints
    check_constraints(rule, policy.acquisition, Hallucinated(), policy.restart)
    assert rule is not None
    for problem in problems:
        if isinstance(problem, ChangingProblem):
            found = len(problem.constraints)
        else:
            found = getattr(problem, "num_constraints", 0)
        if found != rule.num_constraints:
            raise ValueError(
                f"problem ({type(problem).__name__}) has {found} constraints, but policy's rule "
                f"has num_constraints={rule.num_constraints}."
            )
    is_noisy = any(getattr(problem, "constraint_noise_std", None) for problem in problems)
    if rule.expects_exact_constraints and is_noisy:
        warnings.warn(
            f"problem has noisy constraints, but {type(rule).__name__} is for exact values: psi "
            "amplifies noise. Use AdditiveEpochs.",
            NoisyConstraintsWarning,
            stacklevel=3,
        )


def is_played_in_step(policy: Policy, problems: Sequence[object], arms: Arms) -> bool:
    """Return whether :func:`play_constrained_arms` plays the policy.

    It does if all replicates are always in the same epoch, one model contains everything that is to
    be learned, and noise bounds that differ between replicates belong to a width.

    Args:
        policy: A policy with ``constraints``.
        problems: One per replicate, or one for all.
        arms: The arms.
    """
    rule, acquisition = policy.constraints, policy.acquisition
    assert rule is not None
    if rule.surrogate_in_use == "separate" or policy.restart is not None:
        return False
    if not all(isinstance(problem, ConstrainedArmsProblem) for problem in problems):
        return False
    if isinstance(acquisition, RandomSearch) or acquisition.options.get("noise_bound") is None:
        return True
    has_factors = type(rule).noise_factor is not MultiplierRule.noise_factor
    played = acquisition.arms_rule(arms) if has_factors else None
    return not has_factors or isinstance(played, WidthArmsRule | ThompsonArmsRule)


def play_constrained_arms(
    engine: ArmsEngine,
    policy: Policy,
    arms: Arms,
    problems: Sequence[ConstrainedArmsProblem],
    num_rounds: int,
    seeds: Sequence[int],
    with_bounds: bool = True,
    on_round: Callable[[int], None] | None = None,
) -> SimulationResult:
    """Let an engine play problems with constraints, one per replicate.

    Args:
        engine: An engine with one seed per replicate, which plays by another rule in every epoch.
        policy: The policy that is played, accepted by :func:`check_constrained`.
        arms: The arms, on the engine's device.
        problems: One per replicate, or one for all.
        num_rounds: The number of rounds.
        seeds: The seeds of the noise, one per replicate.
        with_bounds: Whether to compute ``covered`` and ``mean_width`` for the penalized reward.
        on_round: Called with the number of each finished round.
    """
    rule, device = policy.constraints, arms.choices.device
    assert rule is not None
    count = len(seeds)
    values = torch.stack([p.values for p in problems]).to(device).expand(count, -1)
    table = torch.stack([p.constraint_table for p in problems]).to(device).expand(count, -1, -1)
    best = torch.tensor([[p.optimal_value] for p in problems], dtype=DTYPE, device=device)
    noise = RandomBlocks(seeds, "noise", device=device)
    level = problems[0].noise_std or 0.0
    constraint_noise = _constraint_noise(problems, num_rounds, seeds).to(device)
    shape = (count, num_rounds)
    played = torch.zeros(shape, dtype=torch.long, device=device)
    rewards = torch.zeros(shape, dtype=DTYPE, device=device)
    observed = torch.zeros(*shape, rule.num_constraints, dtype=DTYPE, device=device)
    rows = torch.arange(count, device=device)
    state = rule.init((count,), device)
    in_force: list[Tensor] = []
    epochs: list[int] = []
    start = 0  # number of rounds before the data that count
    covered = torch.ones(count, dtype=torch.bool, device=device)
    widths: list[Tensor] = []
    truth = values
    arms_rule: ArmsRule | None = None
    for t in range(num_rounds):
        if t > 0:
            state = rule.advance(state)
        if t % rule.rounds_per_update == 0:
            kappa = rule.multipliers(state)
            in_force.append(kappa)
            truth = rule.penalized(values, table, kappa)
            arms_rule = rule_in_epoch(policy.acquisition, rule, arms, len(in_force), kappa)
            if t > 0 and rule.surrogate_in_use == "fresh":
                engine.reset(torch.ones(count, dtype=torch.bool, device=device))
                start = t
            elif t > 0:
                targets = rule.penalized(rewards[:, :t], observed[:, :t], kappa)
                engine.relabel(played[:, :t], targets)
        epochs.append(len(in_force))
        if t - start < policy.num_initial or arms_rule is None:
            arm = engine.choose_uniformly(t + 1)
        else:
            seen = engine.look(t - start + 1, draw_round=t + 1, rule=arms_rule)
            arm = engine.choose(seen)
            bounds = arms_rule.bounds(seen) if with_bounds else None
            if bounds is not None:
                lower, upper = bounds
                covered &= ((lower <= truth) & (truth <= upper)).all(-1)
                widths.append(0.5 * (upper - lower).mean())
        played[:, t] = arm
        rewards[:, t] = values[rows, arm] + level * noise.at(t + 1)
        observed[:, t] = table[rows, arm] - constraint_noise[:, t]
        state = rule.observe(state, observed[:, t])
        targets = rule.penalized(rewards[:, t : t + 1], observed[:, t : t + 1], kappa)
        engine.observe(arm, targets.squeeze(-1))
        if on_round is not None:
            on_round(t + 1)
    if num_rounds:
        check_finite("the posterior mean", engine.posterior.mean)
    index = played.unsqueeze(-1).expand(-1, -1, rule.num_constraints)
    in_force = in_force or [rule.multipliers(state)]
    return SimulationResult(
        arms=played.cpu(),
        outcomes=rewards.cpu(),
        regret=(best - values.gather(-1, played)).cpu(),
        seeds=tuple(seeds),
        covered=covered.cpu() if widths else None,
        mean_width=torch.stack(widths).cpu() if widths else None,
        constraints=observed.cpu(),
        constraint_values=table.gather(1, index).cpu(),
        multipliers=torch.stack(in_force, dim=1).cpu(),
        epochs=torch.tensor(epochs, dtype=torch.long),
    )


def rule_in_epoch(
    acquisition: AcquisitionRecipe | RandomSearch,
    rule: MultiplierRule,
    arms: Arms,
    epoch: int,
    multipliers: Tensor,
) -> ArmsRule | None:
    """Return what is played in an epoch, with each replicate's own noise bound.

    Args:
        acquisition: The acquisition as the user gave it.
        rule: The rule for the multipliers.
        arms: The arms.
        epoch: The number of the epoch, from 1.
        multipliers: ``num_replicates x num_constraints``.

    Returns:
        None for random search. If noise bounds differ, the rule must be based on a width; see
        :func:`is_played_in_step`.
    """
    if isinstance(acquisition, RandomSearch):
        return None
    factors = rule.noise_factor(multipliers).tolist()
    if acquisition.options.get("noise_bound") is None:
        factors = [1.0] * len(factors)
    different = {
        factor: in_epoch(acquisition, rule, epoch, factor).arms_rule(arms)
        for factor in dict.fromkeys(factors)
    }
    first = different[factors[0]]
    if len(different) == 1:
        return first
    width_rules = {}
    for factor, of_factor in different.items():
        assert isinstance(of_factor, WidthArmsRule | ThompsonArmsRule)
        width_rules[factor] = of_factor.rule
    assert isinstance(first, WidthArmsRule | ThompsonArmsRule)
    return replace(first, rule=ReplicateWidth([width_rules[factor] for factor in factors]))


class ReplicateWidth(WidthRule):
    """A width rule for each replicate.

    Args:
        rules: One per replicate; equal ones should be the same object, which is evaluated once.
    """

    def __init__(self, rules: Sequence[WidthRule]) -> None:
        """See the class."""
        self._rules = tuple(rules)

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        different = {id(rule): rule for rule in self._rules}
        known = {key: rule.width(summary, round_number) for key, rule in different.items()}
        widths = [known[id(rule)] for rule in self._rules]
        return torch.stack([w if w.dim() == 0 else w.reshape(-1)[b] for b, w in enumerate(widths)])

    def guarantee(self, summary: PriorSummary, round_number: int) -> Guarantee:
        """Return the guarantee of the first replicate's rule."""
        return self._rules[0].guarantee(summary, round_number)

    def information_gain(self, summary: PriorSummary) -> Tensor | None:
        return self._rules[0].information_gain(summary)


def _constraint_noise(
    problems: Sequence[ConstrainedArmsProblem], num_rounds: int, seeds: Sequence[int]
) -> Tensor:
    """Return what :func:`botorch_bandits.run` adds to the slacks of each replicate and round."""
    num_constraints = problems[0].num_constraints
    noise = torch.zeros(len(seeds), num_rounds, num_constraints, dtype=DTYPE)
    like = torch.zeros(1, num_constraints, dtype=DTYPE)
    for b, seed in enumerate(seeds):
        problem = problems[b % len(problems)]
        if problem.constraint_noise_std:
            for t in range(num_rounds):
                stream = generator(seed, t + 1, "constraint noise")
                noise[b, t] = problem.constraint_noise(like, stream)[0]
    return noise

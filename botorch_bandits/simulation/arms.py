"""Replicates on arms: the rules of the loop, on tensors with one more dimension.

:func:`play_arms` lets an engine play one reward function per replicate. Each replicate has its own
noise and initial rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from botorch_bandits.acquisition.rules import Replicates
from botorch_bandits.checks import check_finite
from botorch_bandits.random_streams import RandomBlocks
from botorch_bandits.simulation.problems import SimulationResult


def play_arms(  # noqa: PLR0913 - one round of every setting
    engine: Replicates,
    values: Tensor | Callable[[int], Tensor],
    noise_std: float | Tensor,
    num_rounds: int,
    seeds: Sequence[int],
    num_initial: int = 0,
    with_bounds: bool = True,
    on_round: Callable[[int], None] | None = None,
    bounded_noise: bool = False,
) -> SimulationResult:
    """Let an engine play reward functions, one per replicate.

    Args:
        engine: An engine with one seed per replicate.
        values: ``num_replicates x num_arms`` noiseless rewards, on the engine's device; or a
            function that maps the number of a round, from 1, to them. If it returns the same object
            as for the round before, nothing has changed.
            The regret of a round is then relative to the largest reward of that round.
        noise_std: Standard deviation of the Gaussian noise, one number or one per replicate.
        num_rounds: The number of rounds.
        seeds: The seeds of the noise, one per replicate.
        num_initial: Rounds at the start that choose uniformly at random.
        with_bounds: Whether to compute ``covered`` and ``mean_width``.
        on_round: Called with the number of each finished round.
        bounded_noise: Use noise of plus or minus ``noise_std`` with equal probability instead of
            Gaussian noise, for theorems that need noise of at most that size.
    """
    arms: list[Tensor] = []
    outcomes: list[Tensor] = []
    regrets: list[Tensor] = []
    schedule = (lambda _: values) if isinstance(values, Tensor) else values
    current = schedule(1)  # num_replicates x num_arms
    best = current.amax(-1)
    signs = torch.sign if bounded_noise else None
    noise = RandomBlocks(seeds, "noise", device=current.device, transform=signs)
    level = torch.as_tensor(noise_std, dtype=current.dtype, device=current.device)
    covered: Tensor | None = None
    widths: list[Tensor] = []
    on_cpu = current.device.type == "cpu"
    for t in range(1, num_rounds + 1):
        if (latest := schedule(t)) is not current:
            current, best = latest, latest.amax(-1)
        if t <= num_initial or engine.rule is None:
            arm = engine.choose_uniformly(t)
        else:
            seen = engine.look(t)
            # a check in every round would wait for the GPU each time
            arm = engine.choose(seen, check=on_cpu or t % 256 == 1)
            known = seen.rule.known(seen) if with_bounds else None
            if known is not None and known.lower is not None and known.upper is not None:
                lower, upper = known.lower, known.upper
                inside = ((lower <= current) & (current <= upper)).all(-1)
                covered = inside if covered is None else covered.logical_and_(inside)
                widths.append(0.5 * (upper - lower).mean())
        value = current.gather(-1, arm.unsqueeze(-1)).squeeze(-1)  # num_replicates
        outcome = torch.addcmul(value, noise.at(t), level)
        engine.observe(arm, outcome)
        arms.append(arm)
        outcomes.append(outcome)
        regrets.append(best - value)
        if on_round is not None:
            on_round(t)
    if num_rounds:
        check_finite("the posterior mean", engine.posterior.mean)
    empty = current[:, :0]
    played = torch.stack(arms, -1) if arms else empty.long()
    heard, regret = (torch.stack(each, -1) if each else empty for each in (outcomes, regrets))
    return SimulationResult(
        arms=played.cpu(),
        outcomes=heard.cpu(),
        regret=regret.cpu(),
        seeds=tuple(seeds),
        covered=None if covered is None else covered.cpu(),
        mean_width=torch.stack(widths).cpu() if widths else None,
    )

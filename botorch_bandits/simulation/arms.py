"""Replicates on arms: the rules of the loop, on tensors with one more dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from botorch_bandits.acquisition.arms_player import ArmsPlayer
from botorch_bandits.checks import check_finite
from botorch_bandits.random_streams import RandomBlocks
from botorch_bandits.simulation.result import SimulationResult


def play_arms(
    player: ArmsPlayer,
    values: Tensor,
    noise_std: float | Tensor,
    num_rounds: int,
    seeds: Sequence[int],
    num_initial: int = 0,
    with_bounds: bool = True,
    on_round: Callable[[int], None] | None = None,
) -> SimulationResult:
    """Let a player play reward functions, one a replicate.

    Args:
        player: With one seed a replicate.
        values: ``num_replicates x num_arms`` noiseless rewards, on the player's device.
        noise_std: Standard deviation of the Gaussian noise, one number or one a replicate.
        num_rounds: How long.
        seeds: Seed the noise, one a replicate.
        num_initial: Rounds at the start that choose uniformly at random.
        with_bounds: Compute ``covered`` and ``mean_width``.
        on_round: Called with the number of each finished round.
    """
    arms: list[Tensor | int] = []
    outcomes: list[Tensor | float] = []
    # plain numbers for a single replicate: each small tensor would cost more than its arithmetic
    alone = values[0].tolist() if len(values) == 1 and values.device.type == "cpu" else None
    noise = RandomBlocks(seeds, "noise", device=values.device)
    level = torch.as_tensor(noise_std, dtype=values.dtype, device=values.device)
    covered: Tensor | None = None
    widths: list[Tensor] = []
    on_cpu = values.device.type == "cpu"
    for t in range(num_rounds):
        if t < num_initial:
            arm = player.choose_uniformly(t + 1)
        else:
            seen = player.look(t + 1)
            # a GPU would have to be waited for in every round
            arm = player.choose(seen, check=on_cpu or t % 256 == 0)
            bounds = player.rule.bounds(seen) if with_bounds and player.rule is not None else None
            if bounds is not None:
                lower, upper = bounds
                inside = ((lower <= values) & (values <= upper)).all(-1)
                covered = inside if covered is None else covered.logical_and_(inside)
                widths.append(0.5 * (upper - lower).mean())
        if alone is not None:
            number = int(arm)
            heard = alone[number] + float(level) * float(noise.at(t + 1))
            player.observe(number, heard)
            arms.append(number)
            outcomes.append(heard)
        else:
            outcome = values.gather(-1, arm.unsqueeze(-1)).squeeze(-1)
            outcome = outcome.addcmul_(noise.at(t + 1), level)
            player.observe(arm, outcome)
            arms.append(arm)
            outcomes.append(outcome)
        if on_round is not None:
            on_round(t + 1)
    if num_rounds:
        check_finite("the posterior mean", player.posterior.mean)
    empty = values[:, :0]
    played = _columns(arms, empty.long())
    regret = values.amax(-1, keepdim=True) - values.gather(-1, played)
    return SimulationResult(
        arms=played.cpu(),
        outcomes=_columns(outcomes, empty).cpu(),
        regret=regret.cpu(),
        seeds=tuple(seeds),
        covered=None if covered is None else covered.cpu(),
        mean_width=torch.stack(widths).cpu() if widths else None,
    )


def _columns(rounds: Sequence[Tensor | int | float], empty: Tensor) -> Tensor:
    """Rounds of one number a replicate, or of plain numbers, to ``num_replicates x num_rounds``."""
    if rounds and isinstance(rounds[0], Tensor):
        return torch.stack(rounds, -1)  # type: ignore[arg-type]
    return torch.tensor([rounds], dtype=empty.dtype) if rounds else empty

"""Replicates on arms: the rules of the loop, on tensors with one more dimension.

:func:`play_arms` lets an engine play one reward function per replicate. Each replicate has its own
noise and initial rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from botorch_bandits.acquisition.player import Replicates
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
    arms: list[Tensor | int] = []
    outcomes: list[Tensor | float] = []
    schedule = None if isinstance(values, Tensor) else values
    values = values if isinstance(values, Tensor) else values(1)
    alone = _numbers_alone(values)
    regrets: list[Tensor] = []  # up to the last change of the rewards
    start = 0  # number of rounds before that change
    signs = torch.sign if bounded_noise else None
    noise = RandomBlocks(seeds, "noise", device=values.device, transform=signs)
    level = torch.as_tensor(noise_std, dtype=values.dtype, device=values.device)
    one_level = 0.0 if alone is None else float(level)
    covered: Tensor | None = None
    widths: list[Tensor] = []
    on_cpu = values.device.type == "cpu"
    for t in range(num_rounds):
        if schedule is not None and (current := schedule(t + 1)) is not values:
            regrets.append(_regret(values, arms[start:]))
            values, alone, start = current, _numbers_alone(current), t
        if t < num_initial or engine.rule is None:
            arm = engine.choose_uniformly(t + 1)
        else:
            seen = engine.look(t + 1)
            # a check in every round would wait for the GPU each time
            arm = engine.choose(seen, check=on_cpu or t % 256 == 0)
            known = seen.rule.known(seen) if with_bounds else None
            if known is not None and known.lower is not None and known.upper is not None:
                lower, upper = known.lower, known.upper
                inside = ((lower <= values) & (values <= upper)).all(-1)
                covered = inside if covered is None else covered.logical_and_(inside)
                widths.append(0.5 * (upper - lower).mean())
        if alone is not None:
            number = int(arm)
            heard = alone[number] + one_level * noise.number_at(t + 1)
            engine.observe(number, heard)
            arms.append(number)
            outcomes.append(heard)
        else:
            outcome = values.gather(-1, arm.unsqueeze(-1)).squeeze(-1)
            outcome = outcome.addcmul_(noise.at(t + 1), level)
            engine.observe(arm, outcome)
            arms.append(arm)
            outcomes.append(outcome)
        if on_round is not None:
            on_round(t + 1)
    if num_rounds:
        check_finite("the posterior mean", engine.posterior.mean)
    empty = values[:, :0]
    played = _columns(arms, empty.long())
    regrets.append(_regret(values, arms[start:]))
    return SimulationResult(
        arms=played.cpu(),
        outcomes=_columns(outcomes, empty).cpu(),
        regret=torch.cat(regrets, -1).cpu(),
        seeds=tuple(seeds),
        covered=None if covered is None else covered.cpu(),
        mean_width=torch.stack(widths).cpu() if widths else None,
    )


def _numbers_alone(values: Tensor) -> list[float] | None:
    """Return plain numbers for a single replicate, for which small tensors are slower."""
    if len(values) > 1 or values.device.type != "cpu":
        return None
    numbers: list[float] = values[0].tolist()
    return numbers


def _regret(values: Tensor, arms: Sequence[Tensor | int]) -> Tensor:
    """Return the regret of rounds with the same rewards, ``num_replicates x len(arms)``."""
    played = _columns(arms, values[:, :0].long())
    return values.amax(-1, keepdim=True) - values.gather(-1, played)


def _columns(rounds: Sequence[Tensor | int | float], empty: Tensor) -> Tensor:
    """Stack rounds of tensors per replicate, or of numbers, to ``num_replicates x num_rounds``."""
    if rounds and isinstance(rounds[0], Tensor):
        return torch.stack(rounds, -1)  # type: ignore[arg-type]
    return torch.tensor([rounds], dtype=empty.dtype) if rounds else empty

"""Replicates of a bandit on arms as one tensor program.

The rules are those of the loop, on tensors with one more dimension. A replicate draws what a loop
with its seed draws and so plays the same arms, up to ties that rounding decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch
from botorch_bandits.acquisition.arms_player import ArmsPlayer, build_arms_player
from botorch_bandits.checks import check_finite, check_integer
from botorch_bandits.domains import Arms, Domain
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGPRecipe
from botorch_bandits.problems import ArmsProblem
from botorch_bandits.progress import ProgressBar
from botorch_bandits.random_streams import RandomBlocks, derive_seed


@dataclass(frozen=True)
class Policy:
    """What a loop is made of, but domain and seed.

    Attributes:
        model: Kernel and noise, such as ``BanditGP.with_kernel(...)``.
        acquisition: What is played, such as ``ImprovedUpperConfidenceBound.with_options(...)``.
        num_initial: Rounds at the start that choose uniformly at random.
    """

    model: BanditGPRecipe
    acquisition: AcquisitionRecipe | RandomSearch
    num_initial: int = 0

    def loop(self, domain: Domain, seed: int, **options: Any) -> BanditLoop:
        """Return a loop that plays this policy.

        Args:
            domain: Where.
            seed: Seeds everything that is drawn.
            options: Further arguments of :class:`~botorch_bandits.BanditLoop`.
        """
        return BanditLoop(
            domain,
            self.model,
            self.acquisition,
            num_initial=self.num_initial,
            seed=seed,
            **options,
        )


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """What each replicate did. Tensors are on the CPU.

    Attributes:
        arms: ``num_replicates x num_rounds`` arm numbers.
        outcomes: ``num_replicates x num_rounds`` noisy outcomes.
        regret: ``num_replicates x num_rounds``; regret of each round, from noiseless rewards.
        seeds: One a replicate.
        covered: ``num_replicates``; whether the confidence bounds held at all arms in all rounds.
            None for a policy without bounds.
        mean_width: ``num_rounds``; the mean half-distance of the bounds over arms, or None.
    """

    arms: Tensor
    outcomes: Tensor
    regret: Tensor
    seeds: tuple[int, ...]
    covered: Tensor | None = None
    mean_width: Tensor | None = None

    @property
    def cumulative_regret(self) -> Tensor:
        """``num_replicates x num_rounds``; the sum of regrets up to each round."""
        return self.regret.cumsum(-1)

    @property
    def simple_regret(self) -> Tensor:
        """``num_replicates x num_rounds``; the smallest regret up to each round."""
        return self.regret.cummin(-1).values if self.regret.shape[-1] else self.regret


def simulate(
    problem: ArmsProblem | Sequence[ArmsProblem],
    policy: Policy,
    num_rounds: int,
    num_replicates: int | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    with_bounds: bool = True,
    progress: bool = True,
) -> SimulationResult:
    """Play independent replicates of a bandit on arms at once.

    ``run(policy.loop(Arms(problem.choices), seed=result.seeds[b]), problem, num_rounds)`` plays
    what replicate ``b`` does. On a CPU, replicates share the calls, not the arithmetic: batching
    pays most below some hundred arms, and on a GPU.

    Args:
        problem: The arms, their rewards and the noise; or one problem a replicate, all on the same
            arms with the same noise.
        policy: What is played.
        num_rounds: How long.
        num_replicates: How many; the number of problems if omitted.
        seed: Replicate ``b`` has the seed ``derive_seed(seed, b, "replicate")``.
        device: Where the arithmetic runs. Random numbers are drawn on the CPU.
        with_bounds: Compute ``covered`` and ``mean_width``, which costs some of the time.
        progress: Show a progress bar.

    Raises:
        TypeError: If the problem is not on arms.
        ValueError: If problems differ in arms or noise, or the policy cannot be played from the
            posterior on arms (learned hyperparameters, an acquisition without such a rule).

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import BanditGP, GPUpperConfidenceBound
        >>> from botorch_bandits.problems import gp_draw_on_arms
        >>> choices = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> problem = gp_draw_on_arms(RBFKernel().double(), choices, noise_std=0.1)
        >>> policy = Policy(
        ...     BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2),
        ...     GPUpperConfidenceBound.with_options(delta=0.1),
        ... )
        >>> result = simulate(problem, policy, num_rounds=20, num_replicates=3, progress=False)
        >>> result.regret.shape
        torch.Size([3, 20])
    """
    problems = [problem] if isinstance(problem, ArmsProblem) else list(problem)
    _check_problems(problems)
    count = len(problems) if num_replicates is None else num_replicates
    count = check_integer("num_replicates", count, minimum=1)
    if len(problems) not in (1, count):
        raise ValueError(
            f"num_replicates is {count}, but there are {len(problems)} problems; give one problem, "
            "or one a replicate."
        )
    num_rounds = check_integer("num_rounds", num_rounds, minimum=0)
    seeds = tuple(derive_seed(seed, b, "replicate") for b in range(count))
    arms = Arms(problems[0].choices.to(device))
    player = build_arms_player(policy.model, policy.acquisition, arms, seeds)
    if player is None:
        raise ValueError(
            f"policy ({policy.acquisition!r}) cannot be simulated in a batch: it needs a plain "
            "BanditGP with fixed hyperparameters and an acquisition with a rule on arms. Run "
            "policy.loop(...) for each seed instead."
        )
    values = torch.stack([p.values for p in problems]).to(device).expand(count, -1)
    with ProgressBar(num_rounds, "rounds", progress) as bar:
        return play_arms(
            player,
            values,
            problems[0].noise_std or 0.0,
            num_rounds,
            seeds,
            policy.num_initial,
            with_bounds,
            lambda t: bar.advance(),
        )


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
    arms: list[Tensor] = []
    outcomes: list[Tensor] = []
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
    played = torch.stack(arms, -1) if arms else empty.long()
    regret = values.amax(-1, keepdim=True) - values.gather(-1, played)
    return SimulationResult(
        arms=played.cpu(),
        outcomes=(torch.stack(outcomes, -1) if outcomes else empty).cpu(),
        regret=regret.cpu(),
        seeds=tuple(seeds),
        covered=None if covered is None else covered.cpu(),
        mean_width=torch.stack(widths).cpu() if widths else None,
    )


def _check_problems(problems: list[ArmsProblem]) -> None:
    for problem in problems:
        if not isinstance(problem, ArmsProblem):
            raise TypeError(
                f"problem must be an ArmsProblem, got {type(problem).__name__}. "
                "restrict_to_arms(problem, choices) makes one of any test problem."
            )
    if not problems:
        raise ValueError("problem is an empty list; give at least one problem.")
    first = problems[0]
    for i, other in enumerate(problems):
        if not torch.equal(other.choices, first.choices) or other.noise_std != first.noise_std:
            raise ValueError(f"problem {i} has other arms or another noise_std than problem 0.")

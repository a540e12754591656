"""Beyond the papers: the evidence of all outcomes where changes are hard to see or absent.

Three experiments share one study: changes that are frequent, faint or hidden, or a drift; long runs
without any change; and runs without a change whose noise or functions are not those of the model.
Models have the kernel of Avanesov's experiments, Matern 5/2 with lengthscale 1, and know the noise
unless the setting says otherwise.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache, cached_property, partial
from math import isqrt, pi
from typing import Literal

import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from botorch_bandits.acquisition import GPUpperConfidenceBound
from botorch_bandits.change_points import PUBLISHED_EXPLORATION, EvidenceRestart, Restart
from botorch_bandits.confidence import PUBLISHED_WIDTH_CONSTANT
from botorch_bandits.domains import Arms
from botorch_bandits.models import ArmsPrior, double_kernel
from botorch_bandits.problems import DriftingGP, evenly_spaced_change_points, gp_draws_of_periods
from botorch_bandits.random_streams import RandomBlocks, derive_seed, generator
from botorch_bandits.simulation import ArmRewards, rewards_of
from papers.avanesov import (
    LENGTHSCALE,
    NOISE_STD,
    NUM_ARMS,
    SMOOTHNESS,
    ChangingStudy,
    RestartMethod,
    acquisition,
    arms_of,
    kernel,
)
from papers.beyond_changes import (
    HALVES,
    NEVER,
    ORACLE,
    PLAIN,
    ROBUST,
    TIME_KERNEL,
    WINDOW,
    play,
    ways_to_follow_changes,
)
from papers.beyond_forgetting import DRIFT, WIDTH
from papers.environments import PeriodRewards
from papers.trials import ArmsExperiment, ArmsStudy, Method

SIDE = 3.0
"""The side of the square in two dimensions."""

EXPLORES = f"{ROBUST}, explores"
NO_FORGETTING = (PLAIN, ROBUST, NEVER)
DETECTED = (ORACLE, *NO_FORGETTING)
FOLLOWED = (ORACLE, PLAIN, ROBUST, WINDOW, TIME_KERNEL, NEVER)


@dataclass(frozen=True)
class Setting:
    """The setting of a panel.

    Attributes:
        title: A title in words.
        num_periods: The number of periods, all of the same length.
        kind: What a change is. ``"draws"``: another draw of the process. ``"fall"``: the peak falls
            by ``fall`` deviations of the noise. ``"hidden"``: a peak rises elsewhere, to 1 above
            the largest value, and nothing changes near the old one. ``"drift"``: the functions
            drift from round to round.
        fall: See ``kind``.
        dimension: 1 is [0, 5], 2 a square.
        noise_std: Standard deviation of the noise that the models assume.
        noise_ratio: Standard deviation of the outcomes' noise, divided by ``noise_std``.
        is_heavy_tailed: Whether the noise has a Student distribution with 3 degrees of freedom, of
            the same standard deviation, in place of a Gaussian one.
        lengthscale: Lengthscale of the functions; the models use 1.
        methods: The beginnings of the names of the methods.
        has_published_width: Whether methods that do not forget play the upper confidence bound of
            Avanesov's Theorem 3.1, in place of two deviations above the mean.
    """

    title: str
    num_periods: int = 1
    kind: Literal["draws", "fall", "hidden", "drift"] = "draws"
    fall: float = 0.0
    dimension: int = 1
    noise_std: float = NOISE_STD
    noise_ratio: float = 1.0
    is_heavy_tailed: bool = False
    lengthscale: float = LENGTHSCALE
    methods: tuple[str, ...] = FOLLOWED
    has_published_width: bool = False


HARD = {
    "frequent": Setting("12 periods of 100 rounds", 12, methods=(*FOLLOWED, HALVES)),
    "very-frequent": Setting("24 periods of 50 rounds", 24, methods=(*FOLLOWED, HALVES)),
    "plane": Setting("two dimensions, 4 periods of 300 rounds", 4, dimension=2),
    "loud": Setting("loud noise, 4 periods of 300 rounds", 4, noise_std=0.3),
    "fall-2": Setting(
        "the peak falls by 2 noise deviations", 2, "fall", 2.0, noise_std=0.3, methods=DETECTED
    ),
    "fall-1": Setting(
        "the peak falls by 1 noise deviation", 2, "fall", 1.0, noise_std=0.3, methods=DETECTED
    ),
    "hidden": Setting(
        "a peak rises where nobody looks",
        2,
        "hidden",
        methods=(*FOLLOWED, EXPLORES, HALVES),
    ),
    "drift": Setting(f"drift of rate {DRIFT:g}", kind="drift", methods=FOLLOWED[1:]),
}
"""The settings of ``beyond-changes-hard``, by the end of the panels' names."""

CALM = Setting("no change", methods=NO_FORGETTING, has_published_width=True)
_UNSEEN = partial(Setting, methods=(PLAIN, ROBUST), has_published_width=True)
MISSPECIFIED = {
    "long": _UNSEEN("the model's lengthscale is 1.5 times too long", lengthscale=1.0 / 1.5),
    "short": _UNSEEN("the model's lengthscale is 1.5 times too short", lengthscale=1.5),
    "noise-1.5": _UNSEEN("noise 1.5 times that of the model", noise_ratio=1.5),
    "noise-2": _UNSEEN("noise 2 times that of the model", noise_ratio=2.0),
    "t-3": _UNSEEN("noise with 3 degrees of freedom", is_heavy_tailed=True),
}
"""The settings of ``beyond-misspecified``, by the end of the panels' names."""


class ShiftedRewards(ArmRewards):
    """Rewards with their own noise, which shifts all arms of a round equally.

    The shift does not affect regrets, but it does affect outcomes, whose noise may thus have any
    distribution.

    Args:
        rewards: The rewards without noise.
        shifts: ``num_replicates`` numbers per round.
        scale: The factor of the shifts.
    """

    def __init__(self, rewards: ArmRewards, shifts: RandomBlocks, scale: float) -> None:
        """See the class."""
        self._rewards, self._shifts, self._scale = rewards, shifts, scale

    def at(self, round_number: int) -> Tensor:
        """See the base class."""
        shift = self._scale * self._shifts.at(round_number)
        return self._rewards.at(round_number) + shift.unsqueeze(-1)


def student(normal: Tensor) -> Tensor:
    """Return numbers with a Student distribution of 3 degrees of freedom and variance 1.

    Args:
        normal: ``... x 4`` standard normal numbers.
    """
    return normal[..., 0] / normal[..., 1:].square().sum(-1).sqrt()  # t(3) has the variance 3


@dataclass(frozen=True, eq=False, kw_only=True)
class HardStudy(ChangingStudy):
    """Environments of a setting.

    Attributes:
        setting: The setting of the panel.
        points: ``num_arms x dimension``; the arms.
        drifts: One per trial, in place of ``periods``, if the functions drift.
    """

    setting: Setting
    points: Tensor
    drifts: tuple[DriftingGP, ...] = ()

    @property
    def arms(self) -> Arms:
        """The arms."""
        return Arms(self.points)

    @cached_property
    def prior(self) -> ArmsPrior:
        """The prior of the arms."""
        return ArmsPrior.from_kernel(kernel(), self.points)

    @property
    def rewards(self) -> ArmRewards:
        """The rewards of each round."""
        if self.drifts:
            drifting = rewards_of(self.drifts, len(self.drifts), "cpu")
            assert isinstance(drifting, ArmRewards)
            return drifting
        rewards = PeriodRewards(self.periods, self.change_points)
        if not self.setting.is_heavy_tailed:
            return rewards
        shifts = RandomBlocks(self.seeds, "heavy tails", (4,), transform=student)
        return ShiftedRewards(rewards, shifts, self.setting.noise_std * self.setting.noise_ratio)


def points_of(dimension: int, num_arms: int) -> Tensor:
    """Return evenly spaced points of [0, 5], or a grid of a square.

    Args:
        dimension: 1 or 2.
        num_arms: The largest number of arms; a grid has as many rows as columns.
    """
    if dimension == 1:
        return arms_of(num_arms).choices
    side = torch.linspace(0.0, SIDE, isqrt(num_arms), dtype=torch.float64)
    return torch.cartesian_prod(side, side)


def bump(points: Tensor, center: Tensor) -> Tensor:
    """Return a smooth function that is 1 at a point and 0 wherever the distance is at least 1.

    Args:
        points: ``num_arms x dimension``.
        center: ``dimension``.

    Returns:
        ``num_arms`` values.
    """
    distance = (points - center).norm(dim=-1).clamp_max(1.0)
    return 0.5 + 0.5 * (pi * distance).cos()


def changed(setting: Setting, points: Tensor, values: Tensor, seed: int) -> Tensor:
    """Return a function after a change that leaves most of it unchanged.

    Args:
        setting: Its ``kind`` is ``"fall"`` or ``"hidden"``.
        points: ``num_arms x dimension``.
        values: ``num_arms``; the function before the change.
        seed: Seeds the location of a hidden peak, at least 1.5 from the old one.
    """
    peak = int(values.argmax())
    if setting.kind == "fall":
        return values - setting.fall * setting.noise_std * bump(points, points[peak])
    far = torch.nonzero((points - points[peak]).norm(dim=-1) >= 1.5).squeeze(-1)
    chosen = torch.randint(len(far), (), generator=generator(seed, 0, "hidden peak"))
    top = far[chosen]
    return values + (values[peak] + 1.0 - values[top]) * bump(points, points[top])


def make_study(
    name: str,
    setting: Setting,
    num_rounds: int,
    num_arms: int,
    num_trials: int,
    seed: int,
    first: int,
    count: int,
) -> HardStudy:
    """Return the study of some trials, whose functions do not depend on the other trials.

    Args:
        name: The name of the panel; panels have independent functions.
        setting: The setting to play.
        num_rounds: The horizon.
        num_arms: See :func:`points_of`.
        num_trials: The number of trials of the whole panel.
        seed: Seeds functions and noise.
        first: The number of the first trial.
        count: The number of trials.
    """
    own = derive_seed(seed, 0, name)
    trials = range(max(num_trials, first + count))
    seeds = tuple(derive_seed(own, trial, "environment") for trial in trials)
    points = points_of(setting.dimension, num_arms)
    num_periods = min(setting.num_periods, num_rounds)
    num_draws = num_periods if setting.kind == "draws" else 1
    # draw all at once, because rounding depends on how many are drawn together
    periods = _draws(setting.dimension, num_arms, setting.lengthscale, num_draws, seeds)
    periods, seeds = periods[first : first + count], seeds[first : first + count]
    drifts: tuple[DriftingGP, ...] = ()
    if setting.kind in ("fall", "hidden"):
        later = [changed(setting, points, row[0], s) for row, s in zip(periods, seeds, strict=True)]
        periods = torch.cat([periods, torch.stack(later).unsqueeze(1)], 1)
    if setting.kind == "drift":
        drifts = tuple(DriftingGP(kernel(), Arms(points), DRIFT, s) for s in seeds)
    return HardStudy(
        kernel_matrix=torch.empty(0, 0, dtype=torch.float64),  # the prior is made of the kernel
        values=periods[:, 0],
        noise_std=0.0 if setting.is_heavy_tailed else setting.noise_std * setting.noise_ratio,
        num_rounds=num_rounds,
        seed=own,
        first_trial=first,
        periods=periods,
        change_points=evenly_spaced_change_points(num_rounds, num_periods),
        setting=setting,
        points=points,
        drifts=drifts,
    )


@cache
def _draws(
    dimension: int, num_arms: int, lengthscale: float, num_draws: int, seeds: tuple[int, ...]
) -> Tensor:
    of_functions = double_kernel(MaternKernel(nu=SMOOTHNESS), lengthscale=lengthscale)
    arms = Arms(points_of(dimension, num_arms))
    return gp_draws_of_periods(of_functions, arms, num_draws, seeds)


def make_methods(setting: Setting, num_rounds: int, study: ArmsStudy) -> list[Method]:
    """Return the methods of a setting.

    Args:
        setting: The setting to play.
        num_rounds: The horizon.
        study: Not used.
    """
    recipe = GPUpperConfidenceBound.with_options(width=WIDTH)
    if setting.has_published_width:
        recipe = acquisition(num_rounds, PUBLISHED_WIDTH_CONSTANT)
    lam, window = setting.noise_std**2, max(num_rounds // max(setting.num_periods, 4) // 2, 1)
    known = ways_to_follow_changes(recipe, lam, window)
    rule = EvidenceRestart(exploration=PUBLISHED_EXPLORATION)
    known.insert(3, RestartMethod(EXPLORES, recipe, lam, restart=partial(_same, rule)))
    wanted = tuple(name for name in setting.methods if name in (WINDOW, TIME_KERNEL))
    return [m for m in known if m.name in setting.methods or m.name.startswith(wanted)]


def _same(restart: Restart, change_points: tuple[int, ...]) -> Restart:
    return restart


def hard(
    num_trials: int = 24,
    num_rounds: int = 1200,
    seed: int = 0,
    num_arms: int = 225,
    chunk: int = 12,
) -> list[ArmsExperiment]:
    """Return changes that are frequent, faint or hidden, in two dimensions, and a drift.

    Args:
        num_trials: Environments per panel.
        num_rounds: The horizon.
        seed: Seeds functions, noise and draws.
        num_arms: See :func:`points_of`.
        chunk: Trials per file.
    """
    size = (num_trials, num_rounds, seed, num_arms, chunk)
    return [_panel(f"beyond-changes-hard-{end}", each, *size) for end, each in HARD.items()]


def misspecified(
    num_trials: int = 24,
    num_rounds: int = 1500,
    seed: int = 0,
    num_arms: int = 225,
    chunk: int = 12,
) -> list[ArmsExperiment]:
    """Return runs without a change and with a wrong model; arguments as for :func:`hard`."""
    size = (num_trials, num_rounds, seed, num_arms, chunk)
    return [_panel(f"beyond-misspecified-{end}", each, *size) for end, each in MISSPECIFIED.items()]


def calm(
    num_trials: int = 24,
    num_rounds: int = 5000,
    seed: int = 0,
    num_arms: int = NUM_ARMS,
    chunk: int = 4,
) -> list[ArmsExperiment]:
    """Return long runs without any change, in which every alarm is false.

    The arguments are those of :func:`hard`.
    """
    return [_panel("beyond-calm", CALM, num_trials, num_rounds, seed, num_arms, chunk)]


def _panel(
    name: str,
    setting: Setting,
    num_trials: int,
    num_rounds: int,
    seed: int,
    num_arms: int,
    chunk: int,
) -> ArmsExperiment:
    return ArmsExperiment(
        name=name,
        title=setting.title,
        published="",
        num_trials=num_trials,
        num_rounds=num_rounds,
        make_study=partial(make_study, name, setting, num_rounds, num_arms, num_trials, seed),
        make_methods=partial(make_methods, setting, num_rounds),
        player=play,
        chunk=chunk,
        settings={
            **{k: v for k, v in asdict(setting).items() if k not in ("title", "methods")},
            "seed": seed,
            "num_arms": num_arms,
            "num_periods": min(setting.num_periods, num_rounds),
            "drift": DRIFT,
            "width": WIDTH,
            "side": SIDE,
        },
    )

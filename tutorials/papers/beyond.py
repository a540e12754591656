"""Beyond the papers: changes, pending queries, constraints, lists of priors, and all at once.

Environments and settings were fixed before the runs. Every experiment is small and says what is
compared in its own docstring.
"""

from __future__ import annotations

import heapq
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property, partial
from math import isqrt, pi
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch
from botorch.exceptions.warnings import BotorchWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bandits import run
from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    RandomSearch,
    Replicates,
)
from botorch_bandits.change_points import (
    PUBLISHED_EXPLORATION,
    ChangePointRestart,
    EvidenceRestart,
    NeverRestart,
    OracleRestart,
    Restart,
)
from botorch_bandits.confidence import PUBLISHED_WIDTH_CONSTANT
from botorch_bandits.confidence.prior_reading import read_prior
from botorch_bandits.constraints import AdditiveEpochs, MultiplicativeEpochs, PrimalDual
from botorch_bandits.domains import Arms, first_of_the_largest
from botorch_bandits.loop import (
    BanditLoop,
    Censored,
    ExponentialWeights,
    Feedback,
    Forgetting,
    Hallucinated,
    Ignored,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.models import (
    RINGING_TOLERANCE,
    BanditGP,
    candidate_grid,
    condition,
    hallucinate,
    posterior_rise,
    probe_points,
)
from botorch_bandits.problems import (
    ArmsProblem,
    DriftingGP,
    PoissonDelay,
    evenly_spaced_change_points,
    switching_gp_draws,
)
from botorch_bandits.problems.base import clamped_eigh
from botorch_bandits.random_streams import RandomBlocks, derive_seed, generator, seeded_globally
from botorch_bandits.simulation import play_arms
from papers import verma
from papers.avanesov import (
    NOISE_STD,
    ChangingStudy,
    RestartMethod,
    acquisition,
    arms_of,
    detector,
    given_restart,
    kernel,
    make_study,
    play_changing,
    report_comparison,
)
from papers.environments import (
    CandidatesReplicates,
    GardnerProblem,
    GeometricDelay,
    RatesProblem,
    VaryingProblem,
    best_fixed_arm,
    gp_draws_of_periods,
)
from papers.runner import (
    ArmsExperiment,
    ArmsStudy,
    Curves,
    Entry,
    Method,
    Row,
    standard_error,
    write_csv,
)
from papers.shi import (
    RATE_NOISE,
    STEP_SIZE,
    ConstrainedMethod,
    Setting,
    panel,
    tabulate_violation,
)

# --- rewards that change

WIDTH, DRIFT = 2.0, 0.01
"""The deviations above the mean of models that forget, and the rate of drifts and time kernels."""
NEVER, ORACLE, HALVES = "never restarts", "told of the changes", "half-samples"
PLAIN, ROBUST = "evidence, plain", "evidence, robust"
EXPLORES = f"{ROBUST}, explores"
WINDOW, TIME_KERNEL = "window", "time kernel"


def _never(change_points: tuple[int, ...]) -> Restart:
    return NeverRestart(exploration=0.0)


def _oracle(change_points: tuple[int, ...]) -> Restart:
    return OracleRestart(change_points=change_points, exploration=None)


def ways_to_follow(
    recipe: AcquisitionRecipe, lam: float, window: int, wanted: Sequence[str] = ()
) -> list[RestartMethod]:
    """Return the compared methods whose names begin with what is wanted, or all but exploring."""
    method = partial(RestartMethod, acquisition=recipe, lam=lam)
    narrow = GPUpperConfidenceBound.with_options(width=WIDTH)
    forgets = partial(RestartMethod, acquisition=narrow, lam=lam)
    explores = EvidenceRestart(exploration=PUBLISHED_EXPLORATION)
    known = [
        method(ORACLE, restart=_oracle),
        method(PLAIN, restart=partial(given_restart, EvidenceRestart(robust=False))),
        method(ROBUST, restart=partial(given_restart, EvidenceRestart())),
        method(EXPLORES, restart=partial(given_restart, explores)),
        method(HALVES, restart=partial(given_restart, ChangePointRestart(detector=detector()))),
        forgets(f"{WINDOW} {window}", forgetting=SlidingWindow(window)),
        forgets(f"{TIME_KERNEL} {DRIFT:g}", forgetting=TimeVaryingKernel(DRIFT)),
        method(NEVER, restart=_never),
    ]
    begins = tuple(each for each in wanted if each in (WINDOW, TIME_KERNEL))
    if not wanted:
        return [each for each in known if each.name != EXPLORES]
    return [each for each in known if each.name in wanted or each.name.startswith(begins)]


def _experiment(name: str, title: str, size: tuple[int, int, int], **more: Any) -> ArmsExperiment:
    """Return a panel of ``size`` trials, rounds and seed."""
    num_trials, num_rounds, seed = size
    settings = {"seed": seed, **more.pop("settings", {})}
    return ArmsExperiment(name, title, "", num_trials, num_rounds, settings=settings, **more)


def changes(
    num_trials: int = 24, num_rounds: int = 1200, seed: int = 0, num_arms: int = 1000
) -> list[ArmsExperiment]:
    """Compare evidence with other ways in the setting of Avanesov's Figure 3.

    Policies that forget play two deviations above the mean, because with Avanesov's width of 7 to
    20, a model whose deviation does not vanish would explore forever.
    """
    recipe = acquisition(num_rounds, PUBLISHED_WIDTH_CONSTANT)
    methods = ways_to_follow(recipe, NOISE_STD**2, max(num_rounds // 8, 1))
    of_trials = partial(make_study, "avanesov-compare", num_rounds, 4, num_arms, num_trials, seed)
    return [
        _experiment(
            "beyond-changes-4",
            f"4 periods of {num_rounds // 4}",
            (num_trials, num_rounds, seed),
            make_study=of_trials,
            make_methods=lambda study: methods,
            player=play_changing,
            chunk=4,
            settings={"num_arms": num_arms, "num_periods": 4},
        )
    ]


FOLLOWED = (ORACLE, PLAIN, ROBUST, WINDOW, TIME_KERNEL, NEVER)
DETECTED = (ORACLE, PLAIN, ROBUST, NEVER)


@dataclass(frozen=True)
class Change:
    """The setting of a panel.

    Attributes:
        title: A title in words.
        num_periods: The number of periods, all of the same length.
        kind: What a change is. ``"draws"``: another draw of the process. ``"fall"``: the peak falls
            by ``fall`` deviations of the noise. ``"hidden"``: a peak rises elsewhere, to 1 above
            the largest value, and nothing changes near the old one. ``"drift"``: the functions
            drift from round to round.
        fall: See ``kind``.
        dimension: 1 is [0, 5], 2 a square with sides of 3.
        noise_std: Standard deviation of the noise.
        methods: The beginnings of the names of the methods.
    """

    title: str
    num_periods: int = 1
    kind: Literal["draws", "fall", "hidden", "drift"] = "draws"
    fall: float = 0.0
    dimension: int = 1
    noise_std: float = NOISE_STD
    methods: tuple[str, ...] = FOLLOWED


HARD = {
    "frequent": Change("12 periods of 100 rounds", 12, methods=(*FOLLOWED, HALVES)),
    "very-frequent": Change("24 periods of 50 rounds", 24, methods=(*FOLLOWED, HALVES)),
    "plane": Change("two dimensions, 4 periods of 300 rounds", 4, dimension=2),
    "loud": Change("loud noise, 4 periods of 300 rounds", 4, noise_std=0.3),
    "fall-2": Change("the peak falls by 2 deviations", 2, "fall", 2.0, 1, 0.3, DETECTED),
    "fall-1": Change("the peak falls by 1 deviation", 2, "fall", 1.0, 1, 0.3, DETECTED),
    "hidden": Change(
        "a peak rises where nobody looks", 2, "hidden", methods=(*FOLLOWED, EXPLORES, HALVES)
    ),
    "drift": Change(f"drift of rate {DRIFT:g}", kind="drift", methods=FOLLOWED[1:]),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class FollowStudy(ChangingStudy):
    """Environments on any points, whose rewards may change in every round.

    Attributes:
        points: ``num_arms x d``.
        environments: The environments; those of ``periods`` if empty.
    """

    points: Tensor
    environments: tuple[Any, ...] = ()

    @property
    def arms(self) -> Arms:
        """The arms."""
        return Arms(self.points)

    @cached_property
    def problems(self) -> tuple[Any, ...]:
        """The environments."""
        return self.environments or super().problems


def points_of(dimension: int, num_arms: int) -> Tensor:
    """Return evenly spaced points of [0, 5] or of a square."""
    if dimension == 1:
        return arms_of(num_arms).choices
    side = torch.linspace(0.0, 3.0, isqrt(num_arms), dtype=torch.float64)
    return torch.cartesian_prod(side, side)


def bump(points: Tensor, center: Tensor) -> Tensor:
    """Return a function that falls from 1 at a center to 0 at a distance of 1."""
    distance = (points - center).norm(dim=-1).clamp_max(1.0)
    return 0.5 + 0.5 * (pi * distance).cos()


def changed(change: Change, points: Tensor, values: Tensor, seed: int) -> Tensor:
    """Return the values after a fall of the peak, or after another peak has risen."""
    peak = int(values.argmax())
    if change.kind == "fall":
        return values - change.fall * change.noise_std * bump(points, points[peak])
    far = torch.nonzero((points - points[peak]).norm(dim=-1) >= 1.5).squeeze(-1)
    top = far[torch.randint(len(far), (), generator=generator(seed, 0, "hidden peak"))]
    return values + (values[peak] + 1.0 - values[top]) * bump(points, points[top])


def _hard_study(
    name: str, change: Change, size: tuple[int, int, int], num_arms: int, first: int, count: int
) -> FollowStudy:
    num_trials, num_rounds, seed = size
    own = derive_seed(seed, 0, name)
    trials = range(max(num_trials, first + count))
    seeds = tuple(derive_seed(own, trial, "environment") for trial in trials)
    points, num_periods = points_of(change.dimension, num_arms), min(change.num_periods, num_rounds)
    num_draws = num_periods if change.kind == "draws" else 1
    periods = _draws(change.dimension, num_arms, num_draws, seeds)[first : first + count]
    seeds, environments = seeds[first : first + count], list[DriftingGP]()
    if change.kind in ("fall", "hidden"):
        later = [changed(change, points, row[0], s) for row, s in zip(periods, seeds, strict=True)]
        periods = torch.cat([periods, torch.stack(later).unsqueeze(1)], 1)
    if change.kind == "drift":
        environments = [
            DriftingGP(kernel(), Arms(points), DRIFT, s, change.noise_std) for s in seeds
        ]
    return FollowStudy(
        kernel_matrix=torch.empty(0, 0, dtype=torch.float64),  # loops make their priors
        values=periods[:, 0],
        noise_std=change.noise_std,
        num_rounds=num_rounds,
        seed=own,
        first_trial=first,
        periods=periods,
        change_points=evenly_spaced_change_points(num_rounds, num_periods),
        points=points,
        environments=tuple(environments),
    )


@cache
def _draws(dimension: int, num_arms: int, num_draws: int, seeds: tuple[int, ...]) -> Tensor:
    return gp_draws_of_periods(kernel(), Arms(points_of(dimension, num_arms)), num_draws, seeds)


def hard(
    num_trials: int = 24, num_rounds: int = 1200, seed: int = 0, num_arms: int = 225
) -> list[ArmsExperiment]:
    """Compare changes that are frequent, faint or hidden, in two dimensions, and a drift."""
    recipe, size = GPUpperConfidenceBound.with_options(width=WIDTH), (num_trials, num_rounds, seed)
    panels = []
    for end, change in HARD.items():
        window = max(num_rounds // max(change.num_periods, 4) // 2, 1)
        methods = ways_to_follow(recipe, change.noise_std**2, window, change.methods)
        panels.append(
            _hard_panel(f"beyond-changes-hard-{end}", change, methods, size, num_arms, 12)
        )
    return panels


def calm(
    num_trials: int = 24, num_rounds: int = 5000, seed: int = 0, num_arms: int = 1000
) -> list[ArmsExperiment]:
    """Count false alarms where nothing changes, with the published width."""
    recipe = acquisition(num_rounds, PUBLISHED_WIDTH_CONSTANT)
    methods = ways_to_follow(recipe, NOISE_STD**2, 1, (PLAIN, ROBUST, NEVER))
    size = num_trials, num_rounds, seed
    return [_hard_panel("beyond-calm", Change("no change"), methods, size, num_arms, 4)]


def _hard_panel(
    name: str,
    change: Change,
    methods: Sequence[RestartMethod],
    size: tuple[int, int, int],
    num_arms: int,
    chunk: int,
) -> ArmsExperiment:
    known = asdict(change) | {"num_arms": num_arms, "methods": [each.name for each in methods]}
    return _experiment(
        name,
        change.title,
        size,
        make_study=partial(_hard_study, name, change, size, num_arms),
        make_methods=lambda study: methods,
        player=play_changing,
        chunk=chunk,
        settings=known | {"num_periods": min(change.num_periods, size[1])},
    )


def forgetting(
    num_trials: int = 30, num_rounds: int = 400, seed: int = 0, num_arms: int = 100
) -> list[ArmsExperiment]:
    """Compare restarts with models that forget: 4 periods, a drift, and no change.

    Every way of forgetting has two settings.
    """
    size = num_trials, num_rounds, seed
    titles = {"abrupt": "4 periods", "drift": f"drift of rate {DRIFT:g}", "stationary": "no change"}
    return [
        _experiment(
            f"beyond-forgetting-{kind}",
            title,
            size,
            make_study=partial(_forgetting_study, kind, num_rounds, seed, num_arms),
            make_methods=_forgetting_methods,
            player=follow_and_count,
            chunk=15,
            settings={"num_arms": num_arms},
            tabulated=("resets", "explored"),
        )
        for kind, title in titles.items()
    ]


def _forgetting_study(
    kind: str, num_rounds: int, seed: int, num_arms: int, first: int, count: int
) -> FollowStudy:
    own, arms = derive_seed(seed, 0, f"beyond-forgetting-{kind}"), arms_of(num_arms)
    num_periods = 4 if kind == "abrupt" and num_rounds >= 4 else 1
    points = evenly_spaced_change_points(num_rounds, num_periods)
    seeds = [derive_seed(own, trial, "environment") for trial in range(first, first + count)]
    environments = tuple(
        DriftingGP(kernel(), arms, DRIFT, drawn, NOISE_STD)
        if kind == "drift"
        else switching_gp_draws(kernel(), arms, points, drawn, NOISE_STD)
        for drawn in seeds
    )
    nothing = torch.zeros(count, 1, dtype=torch.float64)
    return FollowStudy(
        kernel_matrix=torch.empty(0, 0, dtype=torch.float64),
        values=nothing,
        noise_std=NOISE_STD,
        num_rounds=num_rounds,
        seed=own,
        first_trial=first,
        periods=nothing.unsqueeze(1),
        change_points=points,
        points=arms.choices,
        environments=environments,
    )


def _forgetting_methods(study: FollowStudy) -> list[RestartMethod]:
    recipe = GPUpperConfidenceBound.with_options(width=WIDTH)
    method = partial(RestartMethod, acquisition=recipe, lam=NOISE_STD**2)
    methods = [
        method(NEVER, forgetting=SlidingWindow(study.num_rounds)),  # nothing is forgotten
        method("explores, never restarts", restart=partial(given_restart, NeverRestart())),
        method(
            "restart, published threshold",
            restart=partial(given_restart, ChangePointRestart(detector=detector())),
        ),
    ]
    if study.change_points:
        methods.append(method("restart, oracle", restart=_oracle))
    ways: list[tuple[str, Forgetting]] = [
        *((f"window {length}", SlidingWindow(length)) for length in (50, 100)),
        *((f"weights {share}", ExponentialWeights(share)) for share in (0.98, 0.99)),
        *((f"time kernel {rate:g}", TimeVaryingKernel(rate)) for rate in (DRIFT, 3 * DRIFT)),
    ]
    return [*methods, *(method(name, forgetting=way) for name, way in ways)]


def follow_and_count(study: FollowStudy, method: RestartMethod) -> dict[str, Any]:
    """Play a study, and count restarts and uniform rounds of each run."""
    played = play_changing(study, method)
    counts = {name: played[name].sum(-1) for name in ("resets", "explored")}
    return {"regret": played["regret"], **counts}


# --- pending queries


def fills(num_trials: int = 50, num_rounds: int = 100, seed: int = 0) -> list[ArmsExperiment]:
    """Compare what pending queries are filled in with, on the functions of ``verma-synthetic``.

    *Given* and *theory* have the kernel of the functions with ``lam = 0.01`` and 1.1; *learned* has
    hyperparameters that are fitted to what arrived, after 5 uniform points.
    """
    choices, limit = verma.process()[0], 2 * verma.MEAN_DELAY
    k = torch.arange(4 * verma.MEAN_DELAY, dtype=torch.float64)
    shares = (k * math.log(verma.MEAN_DELAY) - verma.MEAN_DELAY - (k + 1).lgamma()).exp().tolist()
    stated = {"delay_distribution": (*shares[:-1], 1.0 - math.fsum(shares[:-1]))}
    named: list[tuple[str, str, dict[str, Any]]] = [
        ("minimum", "minimum", {}),
        ("soft", "soft", {}),
        ("soft, stated delays", "soft", stated),
        ("middle", "middle", {}),
        ("lower bound", "lower_bound", {}),
    ]
    ways: list[tuple[str, Feedback]] = [
        (name, Censored(0.0, 1.0, limit, fill=fill, **more)) for name, fill, more in named
    ]
    ways += [("hallucinated", Hallucinated()), ("ignored", Ignored())]
    starts = {
        "given": verma.Learned((verma.LENGTHSCALE,), 1.0, verma.LAM),
        "theory": verma.Learned((verma.LENGTHSCALE,), 1.0, verma.THEORY_LAM),
        "learned": verma.Learned((0.1,)),
    }
    delays = PoissonDelay(verma.MEAN_DELAY)

    def make(trial: int) -> Callable[[Tensor], float]:
        values = verma.draw_reward(seed, trial)
        return lambda x: float(values[round(float(x) * (verma.NUM_ARMS - 1))])

    return [
        verma.late_panel(
            f"beyond-fills-{kind}",
            f"functions, {kind}",
            "",
            partial(verma.play_loops, Arms(choices), make, num_initial=count),
            [
                verma.LateMethod(
                    name,
                    "",
                    delays,
                    max_delay=limit if isinstance(way, Censored) else None,
                    start=start,
                    learns=kind == "learned",
                    feedback=way,
                )
                for name, way in ways
            ],
            (num_trials, num_rounds, seed),
        )
        for (kind, start), count in zip(starts.items(), (0, 0, verma.NUM_INITIAL), strict=True)
    ]


TOP, GRID_SIZE = 4.5, 61
"""Rewards of ``ringing`` lie between 0 and ``TOP``, on a grid of the unit square."""
NUM_OBSERVED, NUM_PENDING, NUM_CHOICES, SPREAD = 15, 4, 4, 0.04

Build = Callable[[Tensor, Tensor, int], Model]
Fill = Callable[[Model, Tensor], Model]


@cache
def _grid() -> Tensor:
    ticks = torch.linspace(0.0, 1.0, GRID_SIZE, dtype=torch.float64)
    return torch.cartesian_prod(ticks, ticks)


def _reward(stream: torch.Generator) -> Callable[[Tensor], Tensor]:
    """Draw a squared exponential process by random Fourier features, scaled on the grid."""
    frequencies = torch.randn(2, 200, dtype=torch.float64, generator=stream) / 0.25
    phases = 2.0 * torch.pi * torch.rand(200, dtype=torch.float64, generator=stream)
    weights = torch.randn(200, dtype=torch.float64, generator=stream)

    def draw(X: Tensor) -> Tensor:
        return torch.cos(X @ frequencies + phases) @ weights

    values = draw(_grid())
    low, high = values.min(), values.max()
    return lambda X: TOP * (draw(X) - low) / (high - low)


def _learned(X: Tensor, Y: Tensor, seed: int, has_minimum: bool = False) -> Model:
    """Return BoTorch's default model, fitted, with prior mean 0 if it has the minimum."""
    model = SingleTaskGP(X, Y)
    if has_minimum:
        transform: Any = model.outcome_transform
        model.mean_module.constant.data.copy_((-transform.means / transform.stdvs).squeeze())
        model.mean_module.requires_grad_(False)
    with warnings.catch_warnings(), seeded_globally(derive_seed(seed, 0, "fit")):
        warnings.simplefilter("ignore", BotorchWarning)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model.eval()


def _given(lam: float, prior_mean: float = 0.0) -> Build:
    """Return the correct kernel's model, where ``lam`` is the noise over the prior variance."""
    variance = (TOP / 4.0) ** 2

    def build(X: Tensor, Y: Tensor, seed: int) -> Model:
        kernel = ScaleKernel(RBFKernel()).double()
        kernel.outputscale = torch.tensor(variance, dtype=torch.float64)
        kernel.base_kernel.lengthscale = torch.tensor(0.25, dtype=torch.float64)
        return BanditGP(X, Y, kernel=kernel, noise=lam * variance, prior_mean=prior_mean)

    return build


def _filled(noise: float, model: Model, X: Tensor) -> Model:
    """Fill in 0, with this many prior variances of extra noise on the pseudo-rows."""
    (prior,) = read_prior(model)
    extra = noise * prior.standard_deviation.square()
    return condition(model, X, torch.zeros_like(X[:, :1]), extra_noise=extra)


def _cases() -> list[tuple[str, str, Build, Fill]]:
    at_minimum, tiny, half = partial(_learned, has_minimum=True), "given, lam = 1e-4", TOP / 2.0
    middle, fill, loud = _given(1e-4, half), partial(_filled, 0.0), partial(_filled, 1.0)
    theory = _given(1.1)
    return [
        ("learned", "fill", _learned, fill),
        ("learned", "fill, extra noise 0.1 s^2", _learned, partial(_filled, 0.1)),
        ("learned", "fill, extra noise s^2", _learned, loud),
        ("learned", "fill, prior mean 0", at_minimum, fill),
        ("learned", "fill, prior mean 0, extra noise s^2", at_minimum, loud),
        ("learned", "hallucinate", _learned, hallucinate),
        ("learned", "ignore", _learned, lambda model, X: model),
        (tiny, "fill", middle, fill),
        (tiny, "fill, extra noise s^2", middle, loud),
        (tiny, "fill, prior mean 0", _given(1e-4), fill),
        (tiny, "hallucinate", middle, hallucinate),
        ("given, lam = 0.1", "fill, prior mean 0", _given(0.1), fill),
        ("given, lam = 0.1", "hallucinate", _given(0.1, half), hallucinate),
        ("given, lam = 1.1", "fill, prior mean 0", theory, fill),
        ("given, lam = 1.1", "hallucinate", theory, hallucinate),
    ]


def ringing(num_trials: int = 40, seed: int = 0) -> list[Row]:
    """Measure when filling pending queries at the minimum makes the posterior ring.

    Fifteen random points are observed, and four queries near the optimum are pending. The theory of
    censored feedback has ``lam > 1``, whereas models in practice learn a noise variance close to 0
    and must pass through every pseudo-value.

    Returns:
        One row per case: the median of the largest posterior mean without pending queries
        (``top_before``), with them (``top_after``; also the worst), and after four further choices
        (``top_later``); the shares of trials in which it rose by more than the tolerance of the
        loop's warning (``rings``), in which that warning would have been issued (``warns``) and in
        which both agree (``agree``); the median rewards of the next choice and of the best of four;
        and the median distance of the next choice to the nearest pending query.
    """
    cases = _cases()
    trials: list[list[dict[str, float]]] = [[] for _ in cases]
    for trial in range(num_trials):
        for runs, outcome in zip(trials, _ring(cases, seed, trial), strict=True):
            runs.append(outcome)
    rows = []
    for (model, remedy, _, _), runs in zip(cases, trials, strict=True):
        rises = [
            r["top_after"] - r["top_before"] > RINGING_TOLERANCE * r["top_before"] for r in runs
        ]
        warns = [r["probed"] > RINGING_TOLERANCE for r in runs]
        middle = {name: median(r[name] for r in runs) for name in runs[0]}
        row: Row = {"model": model, "pending": remedy, "trials": len(runs)}
        row |= {name: middle[name] for name in ("top_before", "top_after")}
        row |= {"worst_top_after": max(r["top_after"] for r in runs)}
        row |= {"top_later": middle["top_later"], "rings": sum(rises) / len(runs)}
        agree = sum(a == b for a, b in zip(rises, warns, strict=True))
        row |= {"warns": sum(warns) / len(runs), "agree": agree / len(runs)}
        rows.append(
            row | {name: middle[name] for name in ("next_reward", "best_reward", "distance")}
        )
    return rows


def _ring(
    cases: Sequence[tuple[str, str, Build, Fill]], seed: int, trial: int
) -> Iterator[dict[str, float]]:
    stream = generator(seed, trial, "ringing")
    reward, grid = _reward(stream), _grid()
    X = torch.rand(NUM_OBSERVED, 2, dtype=torch.float64, generator=stream)
    noise = torch.randn(NUM_PENDING, 2, dtype=torch.float64, generator=stream)
    pending = (grid[reward(grid).argmax()] + SPREAD * noise).clamp(0.0, 1.0)
    models: dict[Build, Model] = {}
    for _, _, build, fill in cases:
        if build not in models:
            models[build] = build(X, reward(X).unsqueeze(-1), seed)
        base, waiting = models[build], pending
        outcome, rewards = {"top_before": _top(base)}, list[float]()
        for _ in range(NUM_CHOICES):
            model = fill(base, waiting)
            with torch.no_grad():
                posterior = model.posterior(grid.unsqueeze(-2))
                values = posterior.mean + WIDTH * posterior.variance.clamp_min(0.0).sqrt()
            chosen = grid[values.reshape(-1).argmax()]
            if not rewards:
                rise = posterior_rise(base, model, probe_points(pending, X), 0.0)
                outcome |= {"top_after": float(posterior.mean.max()), "probed": rise.share}
                outcome["distance"] = float((chosen - pending).norm(dim=-1).min())
            rewards.append(float(reward(chosen.unsqueeze(0))))
            waiting = torch.cat([waiting, chosen.unsqueeze(0)])
        outcome["top_later"] = _top(fill(base, waiting))
        yield outcome | {"next_reward": rewards[0], "best_reward": max(rewards)}


def _top(model: Model) -> float:
    with torch.no_grad():
        return float(model.posterior(_grid().unsqueeze(-2)).mean.max())


# --- constraints

LARGEST_MULTIPLIER = 1e40
"""Multiplicative epochs of one round would overflow without a bound."""


def multipliers(
    num_trials: int = 20, num_rounds: int = 350, seed: int = 0, num_points: Sequence[int] = (41, 7)
) -> list[ArmsExperiment]:
    """Compare multipliers that change every round with those that change once an epoch.

    The problems are those of :mod:`papers.shi`; ``num_points`` are the points of their grids.
    """
    gardner, rates = (7.0, 1.95, 0.05), (4.0, 3.2, 2.0)
    cases: list[tuple[str, Any, tuple[float, float, float], int]] = [
        ("gardner-exact", GardnerProblem(NOISE), gardner, num_points[0]),
        ("gardner-noisy", GardnerProblem(NOISE, NOISE), gardner, num_points[0]),
        ("rates-exact", RatesProblem(NOISE), rates, num_points[1]),
        ("rates-noisy", RatesProblem(NOISE, RATE_NOISE), rates, num_points[1]),
    ]
    panels = []
    for kind, box, bounds, points in cases:
        setting = Setting("beyond-multipliers", box, points, ((20, 2),) * 2, bounds, num_rounds)
        methods = _multiplier_methods(setting, kind.endswith("exact"))
        panels.append(panel(setting, kind, kind, "", methods, num_trials, seed))
    return panels


def _multiplier_methods(setting: Setting, exact: bool) -> list[ConstrainedMethod]:
    methods = [setting.every_round("every round, theory")]
    reward, constraint, _ = setting.bounds
    for step in (0.05, 0.2, 1.0, 5.0):
        rule = PrimalDual(1, 20.0, 1.0 / step, reward, constraint)
        methods.append(setting.loop(f"every round, step {step:g}", rule))
    for surrogate in ("separate", "relabeled"):
        for length in (1, 5, 10, 20, 35):
            epochs: MultiplicativeEpochs | AdditiveEpochs = (
                MultiplicativeEpochs(
                    1, length, surrogate=surrogate, max_multiplier=LARGEST_MULTIPLIER
                )
                if exact
                else AdditiveEpochs(1, length, step_size=STEP_SIZE, surrogate=surrogate)
            )
            methods.append(setting.loop(f"epochs, {surrogate}, S = {length}", epochs))
    return methods


def report_priced(
    panels: Sequence[ArmsExperiment], results: Sequence[Mapping[str, Curves]], folder: Path
) -> None:
    """Write time averages with the priced regret, which is never negative."""
    rows = tabulate_violation(panels, results)
    known = {
        (each.name, name): (each.settings or {}, curve)
        for each, found in zip(panels, results, strict=True)
        for name, curve in found.items()
    }
    for row in rows:
        settings, curve = known[row["experiment"], row["method"]]
        shift = settings["largest_priced_value_of_grid"] - settings["optimal_value_of_grid"]
        constraint = curve.others["constraint"][:, : row["round"]].mean(-1)
        priced = shift + curve.regret[:, : row["round"]].mean(-1) + settings["price"] * constraint
        row["priced_mean"], row["priced_standard_error"] = (
            float(priced.mean()),
            standard_error(priced),
        )
    write_csv(folder / "violation.csv", rows)


NOISE, DELTA = 0.1, 0.1
EPOCH, EPOCH_ROUNDS, MAX_MULTIPLIER = 50, 500, 1.0
"""Of ``varying``: epochs and rounds, and the multiplier up to which the width is valid."""


@dataclass(frozen=True)
class Variation:
    """How reward and constraint vary: see :class:`~papers.environments.VaryingProblem`.

    Attributes:
        kind: ``"shocks"`` or ``"waves"``.
        reward: The amplitude of the reward's variation.
        constraint: The amplitude of the constraint's variation.
        period: The period of waves, in rounds.
        within: The share of the amplitudes by which functions vary within an epoch.
    """

    kind: str
    reward: float
    constraint: float
    period: float
    within: float

    @property
    def noise_bound(self) -> float:
        """Shocks that all arms of a round share are noise."""
        shock = max(self.reward, self.constraint) if self.kind == "shocks" else 0.0
        return math.hypot(NOISE, shock)

    @property
    def variation(self) -> float:
        """What a method that is told has in its width."""
        return self.within * (self.reward + MAX_MULTIPLIER * self.constraint)


VARIATIONS = {
    "shocks": Variation("shocks", 0.3, 0.3, 1.0, 0.0),
    "waves": Variation("waves", 0.05, 0.05, 7.0, 1.0),
    "drift": Variation(
        "waves",
        0.5,
        0.2,
        4.0 * EPOCH_ROUNDS,
        2.0 * math.sin(math.pi * EPOCH / (8.0 * EPOCH_ROUNDS)),
    ),
}


def varying(num_trials: int = 20, seed: int = 0) -> list[Row]:
    """Play rewards and constraints that vary with the round, and hold them against the guarantee.

    Returns:
        A row per kind and method: means of the averages over time, how often a guarantee was
        stated, the mean bounds and how often they were exceeded.
    """
    methods = (
        ("fresh, told of the variation", "fresh", True),
        ("fresh, not told", "fresh", False),
        ("relabeled, not told", "relabeled", False),
    )
    rows = []
    for kind, variation in VARIATIONS.items():
        for name, surrogate, is_told in methods:
            if is_told and not variation.variation:
                continue
            seeds = [derive_seed(seed, trial, "varying") for trial in range(num_trials)]
            played = [play_varying(variation, surrogate, is_told, each) for each in seeds]
            row: Row = {"kind": kind, "method": name, "trials": num_trials}
            for quantity in ("regret", "violation", "multiplier"):
                values = torch.tensor([each[quantity] for each in played], dtype=torch.float64)
                row[f"{quantity}_mean"] = round(float(values.mean()), 4)
                row[f"{quantity}_standard_error"] = round(standard_error(values), 4)
            held = [each for each in played if "regret_bound" in each]
            row["guaranteed"] = len(held)
            for quantity in ("regret", "violation"):
                bounds = [each[f"{quantity}_bound"] for each in held]
                row[f"{quantity}_bound"] = round(sum(bounds) / len(bounds), 4) if bounds else ""
                exceeded = sum(each[quantity] > each[f"{quantity}_bound"] for each in held)
                row[f"{quantity}_exceeded"] = exceeded if held else ""
            rows.append(row)
    return rows


def varying_kernel() -> MaternKernel:
    """Return the kernel of both functions."""
    made = MaternKernel(nu=2.5).double()
    made.lengthscale = torch.tensor(0.2, dtype=torch.float64)
    return made


def environment(variation: Variation, seed: int) -> tuple[VaryingProblem, tuple[float, float]]:
    """Return a reward of norm 1.5 with a constraint that some arm meets by 0.5, and their norms."""
    choices = torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(-1)
    matrix = varying_kernel()(choices).to_dense().detach()
    means, norms, shapes = [], [], []
    for j in range(2):
        stream = generator(seed, j, "varying function")
        weights = torch.zeros(40, dtype=torch.float64)
        centers = torch.randperm(40, generator=stream)[:8]
        weights[centers] = torch.randn(8, dtype=torch.float64, generator=stream)
        function = matrix @ weights
        norm = float(weights @ matrix @ weights) ** 0.5
        if j and float(function.min()) > -float(function.max()):
            function = -function
        scale = 0.5 / -float(function.min()) if j else 1.5 / norm
        means.append(ArmsProblem(choices, scale * function, NOISE))
        norms.append(scale * norm)
        shape = matrix @ torch.randn(40, dtype=torch.float64, generator=stream)
        is_shared = variation.kind == "shocks"
        shapes.append(None if is_shared else ArmsProblem(choices, shape / shape.abs().max()))
    made: list[VaryingProblem] = []
    given = ((variation.constraint, means[1], shapes[1]), (variation.reward, means[0], shapes[0]))
    for j, (amplitude, mean, shaped) in enumerate(given):
        moves = variation.kind, variation.period, derive_seed(seed, j, "shocks"), shaped
        made.append(VaryingProblem(mean, amplitude, *moves, constraints=tuple(made)))
    return made[1], (norms[0], norms[1])


def play_varying(
    variation: Variation, surrogate: str, is_told: bool, seed: int
) -> dict[str, float]:
    """Play one environment; regret is against the best arm that meets the constraint throughout."""
    problem, norms = environment(variation, seed)
    assert problem.choices is not None
    acquisition = ImprovedUpperConfidenceBound.with_options(
        rkhs_bound=norms[0] + MAX_MULTIPLIER * norms[1],
        noise_bound=variation.noise_bound,
        delta=DELTA,
        any_lambda=True,
        variation=variation.variation if is_told else 0.0,
    )
    loop = BanditLoop(
        Arms(problem.choices),
        BanditGP.with_kernel(varying_kernel(), noise=0.25),
        acquisition,
        constraints=AdditiveEpochs(1, EPOCH, 0.2, surrogate=surrogate),
        horizon=EPOCH_ROUNDS,
        seed=seed % 2**31,
    )
    run(loop, problem, EPOCH_ROUNDS, progress=False)
    rows = list(zip(loop.history.inputs(), range(1, EPOCH_ROUNDS + 1), strict=True))
    earned = sum(float(problem.evaluate_true(x, t)) for x, t in rows)
    summed = sum(float(problem.constraint_values(x, t)) for x, t in rows)
    compared = problem
    if variation.kind == "shocks":  # the mean constraint
        (constraint,) = problem.constraints
        assert isinstance(constraint, VaryingProblem)
        moves = problem.kind, problem.period, problem.seed, problem.shape, (constraint.mean,)
        compared = VaryingProblem(problem.mean, problem.amplitude, *moves)
    best = best_fixed_arm(compared, EPOCH_ROUNDS)[1]
    told = loop.guarantee()
    found = {
        "regret": (float(best.sum()) - earned) / EPOCH_ROUNDS,
        "violation": max(summed, 0.0) / EPOCH_ROUNDS,
        "multiplier": max(q.diagnostics["multiplier_1"] for q in loop.history.queries),
    }
    is_true = is_told or not variation.variation
    if told.holds and is_true and found["multiplier"] <= MAX_MULTIPLIER:
        assert told.regret is not None
        assert told.violation is not None
        found["regret_bound"] = float(told.regret.bound or 0.0) / EPOCH_ROUNDS
        found["violation_bound"] = float(told.violation.bound or 0.0) / EPOCH_ROUNDS
    return found


# --- priors that are not known

LENGTHSCALES, RATIOS, SCALES = (0.05, 0.1, 0.2, 0.4), (1e-3, 0.01, 0.1), (0.25, 1.0, 4.0)
FITTED_LENGTHSCALES = torch.logspace(math.log10(0.02), 0.0, 24, dtype=torch.float64)
FITTED_RATIOS = torch.logspace(-4.0, 0.0, 9, dtype=torch.float64)
"""The grid of the marginal likelihood; the best scale of each entry is known in closed form."""
NEGLIGIBLE = 1e-4
"""Entries of the grid whose likelihood is this share of the largest one are left out."""


@dataclass(frozen=True)
class Truth:
    """The process of the functions: its kernel, and the noise variance over its scale."""

    title: str
    lengthscale: float
    scale: float
    ratio: float
    smoothness: float = math.inf

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        scales, smoothness = [self.scale], [self.smoothness]
        (entry,) = candidate_grid([self.lengthscale], scales=scales, smoothness=smoothness)
        return entry.kernel


TRUTHS = {
    "listed": Truth("lengthscale 0.1, scale 1: on the list", 0.1, 1.0, 0.01),
    "rough": Truth("lengthscale 0.05, scale 4: on the list", 0.05, 4.0, 0.01),
    "between": Truth("lengthscale 0.14, scale 2: between its entries", 0.14, 2.0, 0.03),
    "matern": Truth("Matern 5/2, lengthscale 0.2: another kernel", 0.2, 1.0, 0.01, 2.5),
}


@dataclass(frozen=True)
class PriorMethod(Method):
    """A method with what it knows of the prior.

    Attributes:
        form: ``"oracle"``, ``"list"``, ``"fitted"`` by marginal likelihood, or ``"integrated"``
            over it.
        bounds: Whether to tabulate the coverage of its bounds.
    """

    form: str = "oracle"
    bounds: bool = False


@cache
def unit_arms(num_arms: int) -> Arms:
    """Return evenly spaced points of [0, 1]."""
    return Arms(torch.linspace(0.0, 1.0, num_arms, dtype=torch.float64).unsqueeze(-1))


@cache
def list_of_priors() -> Any:
    """Return the model with all entries."""
    return BanditGP.with_candidates(
        candidate_grid(LENGTHSCALES, RATIOS, SCALES, smoothness=[math.inf])
    )


def play_priors(study: ArmsStudy, method: PriorMethod) -> dict[str, Any]:
    """Play a study with a method."""
    if method.form in ("fitted", "integrated"):
        return {"regret": _play_fitted(study, method.form == "integrated").numpy()}
    arms, seeds = unit_arms(len(study.kernel_matrix)), study.seeds
    engine: Any
    if method.form == "list":
        engine = CandidatesReplicates(list_of_priors(), method.acquisition, arms, seeds)
    else:
        assert isinstance(method.acquisition, AcquisitionRecipe)
        rule = method.acquisition.arms_rule(arms)
        engine = Replicates(rule, [study.prior], method.lam, [1.0], seeds)
    played = play_arms(
        engine, study.values, study.noise_std, study.num_rounds, seeds, with_bounds=method.bounds
    )
    piece: dict[str, Any] = {"regret": played.regret.numpy()}
    if played.covered is not None and played.mean_width is not None:
        piece |= {"covered": played.covered.numpy(), "mean_width": played.mean_width.numpy()}
    return piece


def fitted_posterior(
    X: Tensor, y: Tensor, points: Tensor, is_integrated: bool = False
) -> tuple[Tensor, Tensor]:
    """Return mean and variance with hyperparameters from the grid of the marginal likelihood.

    Args:
        X: ``n`` inputs.
        y: ``n x 1`` outcomes.
        points: ``num_points``.
        is_integrated: Whether to weight entries by their likelihood, in place of the best one.
    """
    n = len(y)
    squared = (X.unsqueeze(-1) - X).square()
    kernels = torch.exp(-0.5 * squared / FITTED_LENGTHSCALES.reshape(-1, 1, 1, 1).square())
    noise = FITTED_RATIOS.reshape(-1, 1, 1) * torch.eye(n, dtype=torch.float64)
    factors = torch.linalg.cholesky(kernels + noise).reshape(-1, n, n)
    half = torch.linalg.solve_triangular(factors, y.expand(len(factors), n, 1), upper=False)
    # the best scale is the mean square of the whitened outcomes
    scales = half.squeeze(-1).square().sum(-1).clamp_min(1e-300) / n
    fits = -0.5 * n * scales.log() - factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    if is_integrated:
        kept = (fits > fits.max() + math.log(NEGLIGIBLE)).nonzero().squeeze(-1)
        scales = scales * (n / max(n - 2, 1))
    else:
        kept = fits.argmax().reshape(1)
    lengthscales = FITTED_LENGTHSCALES[kept // len(FITTED_RATIOS)].reshape(-1, 1, 1)
    cross = torch.exp(-0.5 * ((X.unsqueeze(-1) - points) / lengthscales).square())
    rows = torch.linalg.solve_triangular(factors[kept], cross, upper=False)
    means = (rows * half[kept]).sum(-2)
    variances = (1.0 - rows.square().sum(-2)).clamp_min(0.0) * scales[kept].unsqueeze(-1)
    weights = fits[kept].softmax(0)
    mean = weights @ means
    return mean, weights @ (variances + (means - mean).square())


def _play_fitted(study: ArmsStudy, is_integrated: bool) -> Tensor:
    points = unit_arms(len(study.kernel_matrix)).choices.squeeze(-1)
    count, rounds = len(study.values), study.num_rounds
    noise = RandomBlocks(study.seeds, "noise")
    arms = torch.zeros(count, rounds, dtype=torch.long)
    outcomes = torch.zeros(count, rounds, dtype=torch.float64)
    arms[:, 0] = (RandomBlocks(study.seeds, "sample", (), "uniform").at(1) * len(points)).long()
    for t in range(rounds):
        for b in range(count if t else 0):
            X, y = points[arms[b, :t]], outcomes[b, :t].unsqueeze(-1)
            mean, variance = fitted_posterior(X, y, points, is_integrated)
            arms[b, t] = first_of_the_largest(mean + WIDTH * variance.sqrt())
        values = study.values.gather(-1, arms[:, t : t + 1]).squeeze(-1)
        outcomes[:, t] = values + study.noise_std * noise.at(t + 1)
    return study.values.amax(-1, keepdim=True) - study.values.gather(-1, arms)


def priors(
    num_trials: int = 20, num_rounds: int = 80, seed: int = 0, num_arms: int = 200
) -> list[ArmsExperiment]:
    """Compare lists of priors, marginal likelihood and the oracle, for four true processes."""
    return [
        _experiment(
            f"beyond-priors-{kind}",
            truth.title,
            (num_trials, num_rounds, seed),
            make_study=partial(_prior_study, kind, num_rounds, num_arms, seed),
            make_methods=partial(_prior_methods, truth),
            player=play_priors,
            chunk=20,
            settings={"num_arms": num_arms, "list": (LENGTHSCALES, RATIOS, SCALES)},
        )
        for kind, truth in TRUTHS.items()
    ]


def _prior_study(
    kind: str, num_rounds: int, num_arms: int, seed: int, first: int, count: int
) -> ArmsStudy:
    own, truth = derive_seed(seed, 0, f"beyond-priors-{kind}"), TRUTHS[kind]
    with torch.no_grad():
        matrix = truth.kernel(unit_arms(num_arms).choices).to_dense()
    values, vectors = torch.linalg.eigh(matrix)
    root = vectors * values.clamp_min(0.0).sqrt()
    seeds = [derive_seed(own, trial, "reward") for trial in range(first, first + count)]
    normal = RandomBlocks(seeds, "reward", (num_arms,)).at(1)
    noise_std = math.sqrt(truth.ratio * truth.scale)
    return ArmsStudy(matrix, normal @ root.mT, noise_std, num_rounds, own, first)


def _prior_methods(truth: Truth, study: ArmsStudy) -> list[PriorMethod]:
    method = partial(PriorMethod, lam=truth.ratio * truth.scale)
    ours, oracle = CandidatesUpperConfidenceBound, GPUpperConfidenceBound
    two, theorem = oracle.with_options(width=WIDTH), oracle.with_options(delta=DELTA)
    survivors = ours.with_options(delta=DELTA)
    mixture = ours.with_options(form="mixture", width=WIDTH)
    draws = CandidatesThompsonSampling.with_options()
    return [
        method("oracle, Theorem 1", theorem, bounds=True),
        method("survivors", survivors, form="list", bounds=True),
        method("oracle, width 2", two),
        method("mixture, width 2", mixture, form="list"),
        method("Thompson sampling", draws, form="list"),
        method("marginal likelihood, width 2", two, form="fitted"),
        method("fully Bayesian, width 2", two, form="integrated"),
    ]


def report_worst(
    panels: Sequence[ArmsExperiment], results: Sequence[Mapping[str, Curves]], folder: Path
) -> None:
    """Write the largest regret of each method."""
    rows = [
        {"experiment": each.name, "method": name, "worst": float(curve.regret.sum(-1).max())}
        for each, found in zip(panels, results, strict=True)
        for name, curve in found.items()
    ]
    write_csv(folder / "worst.csv", rows)


# --- all at once

NUM_CONTEXTS, NUM_ACTIONS = 5, 40
CORRELATION = 0.5**0.5
"""Between the reward and the cost, so that the constraint binds."""
DELAYS, CUT_OFF = GeometricDelay(10.0), 30
"""Outcomes that take longer are told as failed."""
TABULATED = ("violation", "rectified", "before", "after", "resets_before", "resets_after")


@dataclass(frozen=True, eq=False)
class Scenario:
    """A change in the middle of a run with contexts and a constraint.

    Attributes:
        rewards: ``2 x num_contexts x num_actions``, before and after the change.
        costs: ``num_contexts x num_actions``; the constraint, to be at most 0.
        contexts: The context of each round.
        change_point: The last round before the change.
    """

    rewards: Tensor
    costs: Tensor
    contexts: Sequence[int]
    change_point: int

    @property
    def best(self) -> Tensor:
        """The best reward of a feasible action, ``2 x num_contexts``."""
        return self.rewards.masked_fill(self.costs > 0.0, -torch.inf).amax(-1)

    def period(self, round_number: int) -> int:
        """Return 0 before the change and 1 after it."""
        return int(round_number > self.change_point)


def pair_kernel() -> MaternKernel:
    """Return the kernel over pairs of context and action."""
    made = MaternKernel(nu=2.5, ard_num_dims=2).double()
    made.lengthscale = torch.tensor((0.5, 0.2), dtype=torch.float64)
    return made


def pairs() -> Tensor:
    """Return all pairs of context and action."""
    contexts = torch.linspace(0.0, 1.0, NUM_CONTEXTS, dtype=torch.float64)
    return torch.cartesian_prod(contexts, unit_arms(NUM_ACTIONS).choices.squeeze(-1))


@cache
def _root() -> Tensor:
    with torch.no_grad():
        eigenvalues, eigenvectors = clamped_eigh(pair_kernel()(pairs()).to_dense())
    return eigenvectors * eigenvalues.sqrt() @ eigenvectors.mT


def draw_scenario(num_rounds: int, seed: int) -> Scenario:
    """Draw a scenario in which every context has a feasible action."""
    stream, root, shape = generator(seed, 0, "scenario"), _root(), (NUM_CONTEXTS, NUM_ACTIONS)
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
    """Return the actions that a loop plays."""
    noise = RandomBlocks([seed], "noise", (2,))
    on_their_way: list[tuple[float, int, tuple[float, float] | None]] = []
    constrained = loop.history.num_constraints > 0
    played = []
    for t in range(1, num_rounds + 1):
        while on_their_way and on_their_way[0][0] <= t:
            _, query_id, outcome = heapq.heappop(on_their_way)
            if outcome is None:
                loop.fail(query_id)
            else:
                loop.tell(query_id, outcome[0], outcome[1:] if constrained else None)
        z = scenario.contexts[t - 1]
        query = loop.ask([z / (NUM_CONTEXTS - 1)] if sees_context else [0.5])
        arm = round(float(query.x) * (NUM_ACTIONS - 1))
        played.append(arm)
        of_reward, of_cost = noise.at(t)[0].tolist()
        reward = float(scenario.rewards[scenario.period(t), z, arm]) + NOISE * of_reward
        value = float(scenario.costs[z, arm]) + NOISE * of_cost
        delay = DELAYS.of_query(query.x, seed, t)
        outcome = (reward, value) if delay <= CUT_OFF else None
        heapq.heappush(on_their_way, (t + min(max(delay, 1.0), CUT_OFF), query.id, outcome))
    return played


@dataclass(frozen=True)
class Variant:
    """The full loop with something switched: options of the loop that differ."""

    name: str
    switched: Mapping[str, Any]
    sees_context: bool = True
    is_random: bool = False


def variants(num_rounds: int) -> list[Variant]:
    """Return what is compared."""
    return [
        Variant("all components", {}),
        Variant("pending ignored", {"feedback": Ignored()}),
        Variant("never restarts", {"restart": None}),
        Variant("no constraint rule", {"constraints": None}),
        Variant("context withheld", {}, sees_context=False),
        Variant("told of the change", {"restart": _oracle((num_rounds // 2,))}),
        Variant("random search", {"restart": None, "constraints": None}, is_random=True),
    ]


def build_loop(variant: Variant, seed: int) -> BanditLoop:
    """Return the loop of a variant."""
    full = {
        "feedback": Hallucinated(),
        "restart": EvidenceRestart(),
        "constraints": AdditiveEpochs(1, 10, step_size=0.5),
    }
    model = BanditGP.with_kernel(pair_kernel(), noise=NOISE**2)
    return BanditLoop(
        unit_arms(NUM_ACTIONS),
        None if variant.is_random else model,
        RandomSearch() if variant.is_random else GPUpperConfidenceBound.with_options(width=WIDTH),
        context_dim=1,
        seed=seed,
        **{**full, **variant.switched},
    )


def play_scenarios(study: ArmsStudy, variant: Variant) -> dict[str, Any]:
    """Play the scenarios of a study one after the other."""
    count, rounds = len(study.seeds), study.num_rounds
    regret, cost = torch.zeros(2, count, rounds, dtype=torch.float64)
    resets = torch.zeros(count, 2)
    for i, seed in enumerate(study.seeds):
        scenario, loop = draw_scenario(rounds, seed), build_loop(variant, seed)
        played = play_scenario(scenario, loop, rounds, seed, variant.sees_context)
        for t, arm in enumerate(played):
            period, z = scenario.period(t + 1), scenario.contexts[t]
            regret[i, t] = scenario.best[period, z] - scenario.rewards[period, z, arm]
            cost[i, t] = scenario.costs[z, arm]
        for reset in loop.resets:
            resets[i, scenario.period(reset.after_round + 1)] += 1.0
    half = max(rounds // 2, 1)
    found = {
        "regret": regret,
        "violation": cost.mean(-1).clamp_min(0.0),
        "rectified": cost.clamp_min(0.0).mean(-1),
        "before": regret[:, :half].mean(-1),
        "after": regret[:, -half:].mean(-1),
        "resets_before": resets[:, 0],
        "resets_after": resets[:, 1],
    }
    return {name: values.numpy() for name, values in found.items()}


def combined(num_trials: int = 40, num_rounds: int = 300, seed: int = 0) -> list[ArmsExperiment]:
    """Play delay, change, constraint and context at once, each switched off in turn."""
    own = derive_seed(seed, 0, "beyond-combined")

    def of_trials(first: int, count: int) -> ArmsStudy:
        nothing = torch.empty(0, 0, dtype=torch.float64)
        return ArmsStudy(nothing, nothing.new_zeros(count, 1), NOISE, num_rounds, own, first)

    return [
        _experiment(
            "beyond-combined",
            "delay, change, constraint and context",
            (num_trials, num_rounds, seed),
            make_study=of_trials,
            make_methods=lambda study: variants(num_rounds),
            average=True,
            player=play_scenarios,
            tabulated=TABULATED,
        )
    ]


EXPERIMENTS = {
    "beyond-changes": Entry(
        changes,
        "the evidence of all outcomes against other ways to follow changes",
        report=report_comparison,
    ),
    "beyond-changes-hard": Entry(
        hard, "changes that are frequent, faint or hidden, and a drift", report=report_comparison
    ),
    "beyond-calm": Entry(calm, "false alarms where nothing changes", report=report_comparison),
    "beyond-forgetting": Entry(forgetting, "restarting against models that forget"),
    "beyond-fills": Entry(fills, "what pending queries are filled in with"),
    "beyond-multipliers": Entry(
        multipliers, "multipliers: once an epoch against every round", report=report_priced
    ),
    "beyond-priors": Entry(priors, "a prior that is not known", report=report_worst),
    "beyond-combined": Entry(combined, "delay, change, constraint and context at once"),
}
TABLES = {"beyond-varying": varying, "ringing": ringing}

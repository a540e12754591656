"""Experiments of Avanesov 2020, section 4 (Figures 1 to 3): restarts where rewards change.

GP-UCB-CPD, which restarts when a detector sees a change, is compared with an oracle that is told
the changes and with policies that never restart. This file contains the setting, the methods, the
tables of detections and the fitted powers of regret.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Literal

import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    ChangePointUpperConfidenceBound,
)
from botorch_bandits.change_points import (
    PUBLISHED_EXPLORATION,
    ChangePointDetector,
    ChangePointRestart,
    EvidenceRestart,
    NeverRestart,
    OracleRestart,
    PowerThreshold,
    Restart,
    calibrate_threshold,
    cross_validated_ridge,
    estimate_false_alarm_rate,
)
from botorch_bandits.checks import DTYPE, check_one_of, check_positive
from botorch_bandits.confidence import PUBLISHED_WIDTH_CONSTANT
from botorch_bandits.domains import Arms
from botorch_bandits.loop import Forgetting
from botorch_bandits.models import BanditGP, double_kernel
from botorch_bandits.problems import (
    ArmsProblem,
    SwitchingProblem,
    evenly_spaced_change_points,
)
from botorch_bandits.random_streams import derive_seed, generator
from botorch_bandits.simulation import (
    Policy,
    play_loops,
)
from papers.environments import gp_draws_of_periods
from papers.runner import (
    ArmsExperiment,
    ArmsStudy,
    Entry,
    Method,
    Results,
    Row,
    format_table,
    write_csv,
)

SMOOTHNESS, LENGTHSCALE, LENGTH = 2.5, 1.0, 5.0
NOISE_STD = 0.05
NUM_ARMS = 1000


@dataclass(frozen=True, eq=False, kw_only=True)
class ChangingStudy(ArmsStudy):
    """Environments on the same arms whose rewards change at the same times.

    Attributes:
        periods: ``num_functions x num_periods x num_arms`` noiseless rewards, in place of
            ``values``.
        change_points: The last round of each period except the last one.
    """

    periods: Tensor
    change_points: tuple[int, ...]

    @property
    def arms(self) -> Arms:
        """The arms."""
        return arms_of(self.periods.shape[-1])

    @cached_property
    def problems(self) -> tuple[Any, ...]:
        """The environments."""
        table = partial(ArmsProblem, self.arms.choices, noise_std=float(self.noise_std))
        rows = [[table(values) for values in row] for row in self.periods]
        return tuple(SwitchingProblem(row, self.change_points) for row in rows)


@dataclass(frozen=True, kw_only=True)
class RestartMethod(Method):
    """A method that restarts, or whose model forgets.

    Attributes:
        restart: Maps the change points, which only an oracle uses, to the restart rule; None if it
            never restarts.
        forgetting: How old outcomes are treated; None keeps all of them.
    """

    restart: Callable[[tuple[int, ...]], Restart] | None = None
    forgetting: Forgetting | None = None


@cache
def arms_of(num_arms: int) -> Arms:
    """Return evenly spaced points of [0, 5]."""
    return Arms(torch.linspace(0.0, LENGTH, num_arms, dtype=torch.float64).unsqueeze(-1))


def kernel() -> MaternKernel:
    """Return the kernel of the functions and of every model, Matern 5/2 with lengthscale 1."""
    made = double_kernel(MaternKernel(nu=SMOOTHNESS), lengthscale=LENGTHSCALE)
    assert isinstance(made, MaternKernel)
    return made


def acquisition(horizon: int, width_constant: float) -> AcquisitionRecipe:
    """Return the upper confidence bound of Theorem 3.1."""
    return ChangePointUpperConfidenceBound.with_options(
        horizon=horizon, smoothness=SMOOTHNESS, width_constant=width_constant
    )


def make_study(
    name: str,
    num_rounds: int,
    num_periods: int,
    num_arms: int,
    num_trials: int,
    seed: int,
    first: int,
    count: int,
) -> ChangingStudy:
    """Return the study of some trials, whose functions do not depend on the other trials.

    Args:
        name: The name of the panel; panels have independent functions.
        num_rounds: The horizon.
        num_periods: The number of periods, all of the same length.
        num_arms: The number of arms.
        num_trials: The number of trials of the whole experiment.
        seed: Seeds functions and noise.
        first: The number of the first trial.
        count: The number of trials.
    """
    own = derive_seed(seed, 0, name)
    periods = _functions(own, num_arms, num_periods, max(num_trials, first + count))
    periods = periods[first : first + count]
    return ChangingStudy(
        kernel_matrix=torch.empty(0, 0, dtype=torch.float64),  # loops make their priors
        values=periods[:, 0],
        noise_std=NOISE_STD,
        num_rounds=num_rounds,
        seed=own,
        first_trial=first,
        periods=periods,
        change_points=evenly_spaced_change_points(num_rounds, num_periods),
    )


@cache
def _functions(seed: int, num_arms: int, num_periods: int, num_trials: int) -> Tensor:
    seeds = [derive_seed(seed, trial, "environment") for trial in range(num_trials)]
    return gp_draws_of_periods(kernel(), arms_of(num_arms), num_periods, seeds)


def play_changing(study: ChangingStudy, method: RestartMethod) -> dict[str, Any]:
    """Play a study with a method.

    Returns:
        ``num_functions x num_rounds`` arrays: ``regret`` against the best arm of the round,
        ``resets`` (whether the method restarted after the round) and ``explored`` (whether it drew
        its arm uniformly).
    """
    model = BanditGP.with_kernel(kernel(), noise=float(method.lam))
    restart = None if method.restart is None else method.restart(study.change_points)
    policy = Policy(model, method.acquisition, restart=restart, forgetting=method.forgetting)
    played = play_loops(study.problems, policy, study.num_rounds, study.seeds)
    resets = torch.zeros(played.regret.shape, dtype=torch.bool)
    for row, own in zip(resets, played.resets or (), strict=restart is not None):
        for reset in own:
            row[reset.after_round - 1] = True
    explored = torch.zeros_like(resets) if played.explored is None else played.explored
    return {
        "regret": played.regret.numpy(),
        "resets": resets.numpy(),
        "explored": explored.numpy(),
    }


NUM_RESAMPLES = 10000
"""The number of resamples of the bootstrap."""


@dataclass(frozen=True)
class Power:
    """A curve ``constant * size ** power`` with a 95% interval of the power.

    Attributes:
        constant: The factor.
        power: The power.
        lower: Lower end of the 95% interval of the power.
        upper: Upper end of the interval.
    """

    constant: float
    power: float
    lower: float
    upper: float


PUBLISHED = {
    "horizon": ("T", Power(1.86, 0.74, 0.64, 0.84)),
    "periods": ("K", Power(502.0, 0.282, 0.21, 0.35)),
}
"""The published fits of Figures 1 and 2; the paper gives no intervals for the constants."""


@dataclass(frozen=True, eq=False)
class Detections:
    """How a policy responded to changes.

    A reset is a detection if a change lies within the segment that it ends, and a false alarm
    otherwise. The delay is the number of rounds since the latest of these changes, which need not
    be the one that was detected. A change is missed if nothing is detected before the next one (or
    the end), unless the segment began at the change, so that there was nothing to detect.

    Attributes:
        delays: The delays of all detections in all runs.
        missed: ``num_runs``; the number of missed changes.
        false_alarms: ``num_runs``; the number of false alarms.
    """

    delays: Tensor
    missed: Tensor
    false_alarms: Tensor


def fit_power(sizes: Sequence[int], totals: Sequence[Tensor], seed: int = 0) -> Power:
    """Fit ``log(mean total) = log(constant) + power * log(size)`` by least squares.

    The interval is from the percentile bootstrap, in which the runs of each size are resampled
    independently.

    Args:
        sizes: At least two different ones.
        totals: One vector per size with the cumulative regrets of its runs.
        seed: Seeds the bootstrap.
    """
    logs = torch.tensor(sizes, dtype=DTYPE).log()
    centered = logs - logs.mean()
    weights = (
        centered / centered.square().sum()
    )  # weights of the slope in the logarithms of the means
    means = torch.stack([total.mean() for total in totals]).log()
    power = float(weights @ means)
    drawn = []
    for i, total in enumerate(totals):
        rows = torch.randint(
            len(total),
            (NUM_RESAMPLES, len(total)),
            generator=generator(seed, i, "bootstrap"),
        )
        drawn.append(total[rows].mean(-1).log())
    slopes = torch.stack(drawn, -1) @ weights
    lower, upper = slopes.quantile(torch.tensor([0.025, 0.975], dtype=DTYPE)).tolist()
    constant = float((means.mean() - power * logs.mean()).exp())
    return Power(constant, power, lower, upper)


def count_detections(resets: Tensor, change_points: Sequence[int]) -> Detections:
    """Classify resets as detections or false alarms.

    Args:
        resets: ``num_runs x num_rounds``, bool; whether a run restarted after a round.
        change_points: The last round of each period except the last one.
    """
    num_rounds = resets.shape[-1]
    ends = [*change_points, num_rounds][1:]
    delays: list[int] = []
    missed, false_alarms = [], []
    for row in resets:
        detections, beginnings, alarms = [], {0}, 0
        start = 0  # the last round before the segment
        for r in (torch.nonzero(row).squeeze(-1) + 1).tolist():
            within = [tau for tau in change_points if start < tau < r]
            if within:
                detections.append(r)
                delays.append(r - within[-1])
            else:
                alarms += 1
            start = r
            beginnings.add(r)
        missed.append(
            sum(
                tau not in beginnings and not any(tau < r <= end for r in detections)
                for tau, end in zip(change_points, ends, strict=True)
            )
        )
        false_alarms.append(alarms)
    return Detections(
        torch.tensor(delays, dtype=DTYPE),
        torch.tensor(missed, dtype=DTYPE),
        torch.tensor(false_alarms, dtype=DTYPE),
    )


def tabulate_detections(experiments: Sequence[ArmsExperiment], curves: Results) -> list[Row]:
    """Return one row for each panel and method with a detector."""
    rows = []
    for experiment, results in zip(experiments, curves, strict=True):
        change_points = _change_points(experiment)
        for method in experiment.make_methods(experiment.make_study(0, 1)):
            if not isinstance(method, RestartMethod) or method.restart is None:
                continue
            if not isinstance(method.restart(change_points), (ChangePointRestart, EvidenceRestart)):
                continue
            name, curve = method.name, results[method.name]
            found = count_detections(curve.others["resets"], change_points)
            many = len(found.delays) > 1
            rows.append(
                {
                    "experiment": experiment.name,
                    "method": name,
                    "runs": len(curve.regret),
                    "rounds": experiment.num_rounds,
                    "changes": len(change_points),
                    "mean_regret": float(curve.regret.sum(-1).mean()),
                    "detections": len(found.delays),
                    "mean_delay": float(found.delays.mean()) if many else "",
                    "sd_delay": float(found.delays.std()) if many else "",
                    "missed": int(found.missed.sum()),
                    "missed_share": float(found.missed.mean()) / len(change_points)
                    if change_points
                    else "",
                    "false_alarms_per_run": float(found.false_alarms.mean()),
                    "runs_with_false_alarm": int((found.false_alarms > 0).sum()),
                    "explored_per_run": float(curve.others["explored"].sum(-1).double().mean()),
                }
            )
    return rows


def report_power(experiments: Sequence[ArmsExperiment], curves: Results, folder: Path) -> None:
    """Print and write the fitted and the published power, as ``power.csv``, and the detections.

    Args:
        experiments: The panels of ``avanesov-horizon`` or ``avanesov-periods``.
        curves: Their results.
        folder: The folder for the files.
    """
    kind = experiments[0].name.split("-")[1]
    letter, published = PUBLISHED[kind]
    sizes = [int(experiment.name.split("-")[2]) for experiment in experiments]
    fit = fit_power(sizes, [results[CPD].regret.sum(-1) for results in curves])
    fits = (("fitted", fit), ("published", published))
    rows = [{"source": name, "variable": letter, **vars(power)} for name, power in fits]
    write_csv(folder / "power.csv", rows)
    print(f"\nmean regret as constant * size ** power\n{format_table(rows)}")
    report_comparison(experiments, curves, folder)


def report_comparison(experiments: Sequence[ArmsExperiment], curves: Results, folder: Path) -> None:
    """Print what the detectors did, and write ``detections.csv``.

    Args:
        experiments: The panels.
        curves: Their results.
        folder: The folder for the files.
    """
    rows = tabulate_detections(experiments, curves)
    write_csv(folder / "detections.csv", rows)
    print(f"\nwhat the detectors did\n{format_table(rows)}")


def _change_points(experiment: ArmsExperiment) -> tuple[int, ...]:
    assert experiment.settings is not None
    return evenly_spaced_change_points(experiment.num_rounds, experiment.settings["num_periods"])


HORIZONS = (900, 1275, 1650, 2025, 2400)
PERIODS = tuple(range(3, 10))
CPD, ORACLE, PLAIN, NEVER = "GP-UCB-CPD", "GP-UCB-Oracle", "GP-UCB", "GP-UCB-NO-Detector"

Statistic = Literal["mean", "integral"]


def detector(ridge: float = 1.0, statistic: Statistic = "mean") -> ChangePointDetector:
    """Return the paper's detector, threshold ``2.6 n^(-6/7)``.

    Args:
        ridge: ``c``, which the paper does not specify.
        statistic: ``"integral"``, as in the paper's text, or ``"mean"``, which reproduces its
            figures. The integral is the mean times the length of the interval.
    """
    check_one_of("statistic", statistic, ("mean", "integral"))
    scale = 2.6 / LENGTH if statistic == "integral" else 2.6
    return ChangePointDetector(kernel(), ridge=ridge, threshold=PowerThreshold(scale))


def model_noise(noise_variance: float | str, num_rounds: int) -> float:
    """Return the regularization of the upper confidence bound.

    Args:
        noise_variance: A number; ``"noise"`` for the variance of the noise, which the figures need;
            or ``"theorem"`` for ``6 g^2 ln T``.
        num_rounds: ``T``.
    """
    if isinstance(noise_variance, str):
        check_one_of("noise_variance", noise_variance, ("noise", "theorem"))
        by_theorem = 6.0 * NOISE_STD**2 * math.log(num_rounds)
        return NOISE_STD**2 if noise_variance == "noise" else by_theorem
    return check_positive("noise_variance", noise_variance)


def horizon(
    num_trials: int = 64,
    num_rounds: int = HORIZONS[-1],
    seed: int = 0,
    ridge: float = 1.0,
    statistic: Statistic = "mean",
    noise_variance: float | str = "noise",
    num_arms: int = NUM_ARMS,
    chunk: int = 16,
) -> list[ArmsExperiment]:
    """Return Figure 1: how the regret of three periods grows with the horizon.

    Args:
        num_trials: The number of environments per horizon.
        num_rounds: The longest horizon; the others keep their ratio to it.
        seed: Seeds functions, noise and draws.
        ridge: See :func:`detector`.
        statistic: See :func:`detector`.
        noise_variance: See :func:`model_noise`.
        num_arms: Evenly spaced points of [0, 5].
        chunk: Trials per file.
    """
    return [
        _panel(
            f"avanesov-horizon-{T}",
            f"T = {T}, 3 periods",
            "",
            T,
            3,
            [_cpd(CPD, T, ridge, statistic, noise_variance)],
            {"ridge": ridge, "statistic": statistic, "noise_variance": noise_variance},
            (num_trials, seed, num_arms, chunk),
        )
        for T in (num_rounds * T // HORIZONS[-1] for T in HORIZONS)
    ]


def periods(
    num_trials: int = 64,
    num_rounds: int = 2700,
    seed: int = 0,
    ridge: float = 1.0,
    statistic: Statistic = "mean",
    noise_variance: float | str = "noise",
    num_arms: int = NUM_ARMS,
    chunk: int = 16,
) -> list[ArmsExperiment]:
    """Return Figure 2: how the regret grows with the periods; arguments as for ``horizon``."""
    return [
        _panel(
            f"avanesov-periods-{K}",
            f"T = {num_rounds}, {K} periods",
            "",
            num_rounds,
            K,
            [_cpd(CPD, num_rounds, ridge, statistic, noise_variance)],
            {"ridge": ridge, "statistic": statistic, "noise_variance": noise_variance},
            (num_trials, seed, num_arms, chunk),
        )
        for K in PERIODS
    ]


def compare(
    num_trials: int = 64,
    num_rounds: int = 1200,
    seed: int = 0,
    ridge: float = 1.0,
    statistic: Statistic = "mean",
    noise_variance: float | str = "noise",
    num_arms: int = NUM_ARMS,
    chunk: int = 16,
) -> list[ArmsExperiment]:
    """Return Figure 3: four periods with and without a detector; arguments as for ``horizon``.

    The plain GP-UCB is Algorithm 2 with ``xi = 0``, which explores in the first round only.
    """
    plain = _method(PLAIN, num_rounds, _plain, noise_variance)
    methods = [
        _method(ORACLE, num_rounds, _oracle, noise_variance),
        _cpd(CPD, num_rounds, ridge, statistic, noise_variance),
        plain,
        _method(NEVER, num_rounds, _never, noise_variance),
    ]
    return [
        _panel(
            "avanesov-compare",
            f"T = {num_rounds}, 4 periods (Figure 3)",
            "oracle best, CPD second, GP-UCB only marginally better than without detector",
            num_rounds,
            4,
            methods,
            {"ridge": ridge, "statistic": statistic, "noise_variance": noise_variance},
            (num_trials, seed, num_arms, chunk),
        )
    ]


def _panel(
    name: str,
    title: str,
    published: str,
    num_rounds: int,
    num_periods: int,
    methods: Sequence[RestartMethod],
    settings: dict[str, Any],
    size: tuple[int, int, int, int],
) -> ArmsExperiment:
    num_trials, seed, num_arms, chunk = size
    return ArmsExperiment(
        name=name,
        title=title,
        published=published,
        num_trials=num_trials,
        num_rounds=num_rounds,
        make_study=partial(make_study, name, num_rounds, num_periods, num_arms, num_trials, seed),
        make_methods=partial(_given, methods),
        player=play_changing,
        chunk=chunk,
        settings={
            "seed": seed,
            "num_arms": num_arms,
            "num_periods": num_periods,
            "noise_std": NOISE_STD,
            "exploration": PUBLISHED_EXPLORATION,
            "width_constant": PUBLISHED_WIDTH_CONSTANT,
            **settings,
        },
    )


def _given(methods: Sequence[RestartMethod], study: ArmsStudy) -> Sequence[RestartMethod]:
    return methods


def _cpd(
    name: str, num_rounds: int, ridge: float, statistic: Statistic, noise_variance: float | str
) -> RestartMethod:
    restart = ChangePointRestart(detector=detector(ridge, statistic))
    return _method(name, num_rounds, partial(given_restart, restart), noise_variance)


def _method(name: str, num_rounds: int, restart: Any, noise_variance: float | str) -> RestartMethod:
    recipe = acquisition(num_rounds, PUBLISHED_WIDTH_CONSTANT)
    return RestartMethod(name, recipe, model_noise(noise_variance, num_rounds), restart=restart)


def given_restart(restart: Restart, change_points: tuple[int, ...]) -> Restart:
    """Return a restart rule that does not depend on the change points."""
    return restart


def _oracle(change_points: tuple[int, ...]) -> Restart:
    return OracleRestart(change_points=change_points)


def _plain(change_points: tuple[int, ...]) -> Restart:
    return NeverRestart(exploration=0.0)


def _never(change_points: tuple[int, ...]) -> Restart:
    return NeverRestart()


# --- The ridge of the detector --------------------------------------------------------------------

CALIBRATED: tuple[tuple[Statistic, float], ...] = (
    *(("mean", c) for c in (0.0025, 0.1, 0.3, 1.0, 2.0, 3.0, 10.0)),
    *(("integral", c) for c in (1.0, 10.0, 30.0)),
)
"""The statistic and the ridge of each row of the calibration."""

CALM_SAMPLES = 30
"""The number of uniform samples in 300 rounds without a reset, at the published exploration."""

SAMPLES_AFTER = 12
"""The number of uniform samples in the next 300 rounds."""

ALARM_RATE = 0.05

CANDIDATES = (1e-4, 3e-4, 1e-3, 2.5e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0)
"""The ridges among which cross-validation chooses."""


def calibration(num_trials: int = 200, seed: int = 0) -> list[Row]:
    """Return how the published threshold performs with several ridges, one row each.

    Nothing is played. Streams of uniform samples are drawn with the functions, the domain and the
    noise of the experiments: as many samples as the policy explores in 300 rounds without a change,
    followed by those of 300 rounds after one. The columns are the share of streams with an alarm
    before the change, its Clopper-Pearson bounds, the share with an alarm at the samples after the
    change, the threshold's scale for which :data:`ALARM_RATE` of the streams without a change would
    alarm, with the share of alarms after the change then, and the share of streams for which
    cross-validation before the change chooses a ridge of this size at most.

    Args:
        num_trials: The number of streams of either kind.
        seed: The seed of the streams.
    """
    arms = arms_of(NUM_ARMS)
    seeds = [derive_seed(seed, i, "environment") for i in range(num_trials)]
    functions = gp_draws_of_periods(kernel(), arms, 2, seeds)
    stream = generator(seed, 0, "calibration of the published threshold")
    total = CALM_SAMPLES + SAMPLES_AFTER
    drawn = torch.randint(NUM_ARMS, (num_trials, total), generator=stream)
    noise = torch.randn(num_trials, total, dtype=torch.float64, generator=stream)
    chosen = torch.tensor(_chosen_ridges(min(num_trials, 50), seed), dtype=torch.float64)
    is_late = (torch.arange(total) >= CALM_SAMPLES).long()
    rewards = functions[torch.arange(num_trials).unsqueeze(-1), is_late, drawn] + NOISE_STD * noise
    simulated: dict[str, Any] = {
        "horizon": CALM_SAMPLES,
        "noise_std": NOISE_STD,
        "num_simulations": num_trials,
        "progress": False,
    }
    rows = []
    for statistic, ridge in CALIBRATED:
        tested = detector(ridge, statistic)
        engine = tested.on(arms)
        calm = estimate_false_alarm_rate(tested, arms, **simulated)
        threshold = calibrate_threshold(
            tested, arms, false_alarm_rate=ALARM_RATE, confidence=None, **simulated
        )
        scale = threshold.levels[0] * (LENGTH if statistic == "integral" else 1.0)
        is_seen = torch.zeros(2, dtype=torch.float64)
        for row, values in zip(drawn, rewards, strict=True):
            # the largest ratio of statistic and threshold over the tests after the change
            ratios = []
            for n in range(CALM_SAMPLES + 1, total + 1):
                test = engine.test(row[:n], values[:n])
                ratios.append(float((test.statistics / test.thresholds).max()))
            largest = max(ratios)
            is_seen += torch.tensor(
                [largest > 1.0, largest * PowerThreshold().scale > scale],
                dtype=torch.float64,
            )
        seen = (is_seen / num_trials).tolist()
        rows.append(
            {
                "statistic": statistic,
                "ridge": ridge,
                "trials": num_trials,
                "alarms": calm.rate,
                "alarms_low": calm.lower,
                "alarms_high": calm.upper,
                "seen": seen[0],
                "calibrated_scale": scale,
                "seen_calibrated": seen[1],
                "chosen_at_most": float((chosen <= ridge).double().mean()),
            }
        )
    return rows


def _chosen_ridges(num_trials: int, seed: int) -> list[float]:
    """Return the ridge that cross-validation chooses from 30 uniform samples, for each stream."""
    arms = arms_of(NUM_ARMS)
    seeds = [derive_seed(seed, i, "environment") for i in range(num_trials)]
    functions = gp_draws_of_periods(kernel(), arms, 1, seeds)[:, 0]
    stream = generator(seed, 0, "cross-validation of the ridge")
    chosen = []
    for function in functions:
        drawn = torch.randint(NUM_ARMS, (CALM_SAMPLES,), generator=stream)
        noise = torch.randn(CALM_SAMPLES, dtype=torch.float64, generator=stream)
        found = cross_validated_ridge(
            detector(),
            arms,
            arms.choices[drawn],
            function[drawn] + NOISE_STD * noise,
            CANDIDATES,
        )
        chosen.append(found.ridge)
    return chosen


EXPERIMENTS = {
    "avanesov-horizon": Entry(horizon, "Avanesov 2020, Figure 1", report=report_power),
    "avanesov-periods": Entry(periods, "Avanesov 2020, Figure 2", report=report_power),
    "avanesov-compare": Entry(compare, "Avanesov 2020, Figure 3", report=report_comparison),
}
TABLES = {"avanesov-calibration": calibration}

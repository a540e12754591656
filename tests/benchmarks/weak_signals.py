"""Jumps in noisy, slowly drifting rewards: which ones the evidence finds, and what is lost.

``python tests/benchmarks weak-signals jumps`` plays an upper confidence bound that keeps all
outcomes, with the true kernel, noise and drift rate, and counts how soon each form of the test sees
a jump in the outcomes, with the true noise variance or another one. ``python tests/benchmarks
weak-signals checks`` asks the check of the true model after runs with and without a jump, and
``python tests/benchmarks weak-signals regret`` plays loops that forget or restart. All go on where
the table ends.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel

from benchmarks.without_bounds import Study, parser_of_studies, start_study
from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    EvidenceDetector,
    EvidenceRestart,
    ExponentialWeights,
    GPUpperConfidenceBound,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.models import BanditGPRecipe

RATE = 0.002
"""After a round, the function is ``sqrt(1 - RATE)`` times itself, plus a draw of variance RATE."""

WIDTH = 2.0
"""The upper confidence bound is so many standard deviations above the mean."""

JITTER = {"line": 1e-9, "calm": 1e-9, "clicks": 1e-8}
"""What is added to the diagonal of the kernel matrix, from whose factor functions are drawn."""

JUMP = {"line": 100, "calm": 1000, "clicks": 200}
"""The last round before the jump, which is after the end of a calm run."""

LENGTH = {"line": 250, "calm": 250, "clicks": 400}
"""The number of rounds."""

SOON = 20
"""A jump is found soon if the alarm comes at most so many rounds after it."""

HOURS, NUM_BANNERS = 24, 60


def matern(lengthscale: float, **columns: Any) -> MaternKernel:
    """Return a Matern 5/2 kernel.

    Args:
        lengthscale: Its lengthscale.
        **columns: Its ``active_dims``, if it does not read all columns.
    """
    kernel = MaternKernel(nu=2.5, **columns).double()
    kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return kernel


def prior(noise_variance: float, lengthscale: float = 0.2) -> BanditGPRecipe:
    """Return the model on the line.

    Args:
        noise_variance: That of the model.
        lengthscale: Of its kernel.
    """
    return BanditGP.with_kernel(MaternKernel(nu=2.5), noise=noise_variance, lengthscale=lengthscale)


def kernel_of_clicks() -> Kernel:
    """Return a kernel over the hour of the day and three features of a banner."""
    hour = PeriodicKernel(active_dims=(0,)).double()
    hour.period_length = torch.tensor(float(HOURS), dtype=torch.float64)
    hour.lengthscale = torch.tensor(2.0, dtype=torch.float64)
    return (hour * matern(0.6, active_dims=(1, 2, 3))).double()


def points_on_the_line() -> torch.Tensor:
    """Return 30 points on ``[0, 1]``."""
    return torch.linspace(0, 1, 30, dtype=torch.float64).unsqueeze(-1)


@cache
def played(
    setting: str, noise_variance: float, seed: int
) -> tuple[torch.Tensor, list[int], list[float]]:
    """Play the bound with the true prior, in dense algebra.

    Args:
        setting: ``"line"`` (30 arms), ``"calm"`` (the same without a jump) or ``"clicks"`` (60 arms
            in three dimensions, with the hour of the day as the context).
        noise_variance: The true one.
        seed: Of the functions and the noise.

    Returns:
        The features of the arms, the row that was played in each round, and the outcomes. A row is
        an arm, or ``60 * hour + arm``.
    """
    draws = np.random.default_rng(seed)
    if setting != "clicks":
        features, kernel, periods = points_on_the_line(), matern(0.2), 1
        inputs = features
    else:
        features, kernel = torch.from_numpy(draws.random((NUM_BANNERS, 3))), kernel_of_clicks()
        periods = HOURS
        rows = [[hour, *row] for hour in range(HOURS) for row in features.tolist()]
        inputs = torch.tensor(rows, dtype=torch.float64)
    num_arms, n = len(features), len(inputs)
    K = kernel(inputs).to_dense().detach().numpy()
    factor = np.linalg.cholesky(K + JITTER[setting] * np.eye(n))
    f = factor @ draws.standard_normal(n)
    queries: list[int] = []
    outcomes: list[float] = []
    for t in range(1, LENGTH[setting] + 1):
        if t == JUMP[setting] + 1:
            f = factor @ draws.standard_normal(n)
        now = (t - 1) % periods * num_arms + np.arange(num_arms)
        if t == 1:
            arm = int(draws.integers(num_arms))
        else:
            past, times = np.array(queries), np.arange(1, t)
            decay = (1 - RATE) ** (abs(times[:, None] - times) / 2)
            A = K[np.ix_(past, past)] * decay + noise_variance * np.eye(t - 1)
            c = K[np.ix_(now, past)] * (1 - RATE) ** ((t - times) / 2)
            solved = np.linalg.solve(A, np.c_[np.array(outcomes), c.T])
            variance = 1 - (c * solved[:, 1:].T).sum(1)
            arm = int(np.argmax(c @ solved[:, 0] + WIDTH * np.sqrt(np.maximum(variance, 0.0))))
        queries.append(int(now[arm]))
        outcomes.append(f[now[arm]] + math.sqrt(noise_variance) * draws.standard_normal())
        f = math.sqrt(1 - RATE) * f + math.sqrt(RATE) * (factor @ draws.standard_normal(n))
    return features, queries, outcomes


@dataclass(frozen=True)
class JumpRow:
    """One run: when the test raised its first alarm.

    Attributes:
        setting: ``"line"`` or ``"clicks"``.
        noise_variance: The true one.
        told: The one of the model in the test.
        form: ``"robust"`` or ``"plain"``.
        seed: Of the run.
        alarm: The round of the first alarm; 0 if there was none.
    """

    setting: str
    noise_variance: str
    told: str
    form: str
    seed: int
    alarm: int


def play_jump(
    setting: str, noise_variance: str, told: str, form: str, seed: int, num_rounds: int = 0
) -> JumpRow:
    """Show the outcomes of one run to a test.

    Args:
        setting: See :class:`JumpRow`.
        noise_variance: See :class:`JumpRow`.
        told: See :class:`JumpRow`.
        form: See :class:`JumpRow`.
        seed: See :class:`JumpRow`.
        num_rounds: Show no more than these; 0 for all.
    """
    points, queries, outcomes = played(setting, float(noise_variance), seed)
    robust, noise = form == "robust", float(told)
    if setting == "line":
        detector = EvidenceDetector(robust=robust, weights=(1, 1, 1), drift_rate=RATE)
        priors = [prior(noise, lengthscale) for lengthscale in (0.1, 0.2, 0.4)]
        stream = detector.on(Arms(points), priors).stream()
    else:
        detector = EvidenceDetector(robust=robust, drift_rate=RATE)
        model = BanditGP.with_kernel(kernel_of_clicks(), noise=noise)
        stream = detector.on(Arms(points), model, context_dim=1).stream()
    end = num_rounds or len(outcomes)
    for t, (query, outcome) in enumerate(zip(queries[:end], outcomes[:end], strict=True), start=1):
        hour, arm = divmod(query, len(points))
        context = {} if setting == "line" else {"context": [float(hour)]}
        if stream.observe(points[arm], outcome, **context).detected:
            return JumpRow(setting, noise_variance, told, form, seed, t)
    return JumpRow(setting, noise_variance, told, form, seed, 0)


def _summarize_jumps(rows: Sequence[JumpRow]) -> Iterator[str]:
    """Yield the lines of the page's table."""
    yield "| Setting | Noise variance | Told | Robust: soon | early | Plain: soon | early |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    keys = dict.fromkeys((row.setting, row.noise_variance, row.told) for row in rows)
    for key in keys:
        cells = []
        for form in ("robust", "plain"):
            same = [
                r for r in rows if (r.setting, r.noise_variance, r.told, r.form) == (*key, form)
            ]
            found = sum(0 < row.alarm - JUMP[row.setting] <= SOON for row in same)
            early = sum(0 < row.alarm <= JUMP[row.setting] for row in same)
            cells += [f"{found} of {len(same)}", f"{early}"]
        yield f"| {' | '.join([*key, *cells])} |"


@dataclass(frozen=True)
class CheckRow:
    """What the check of the true model finds after one run without a test.

    Attributes:
        noise_variance: The true one.
        setting: ``"line"``, with a jump, or ``"calm"``.
        seed: Of the run.
        finding: See :attr:`~botorch_bandits.models.ModelCheck.finding`.
        first: The round from which the residuals are said to have grown; 0 if they are not.
    """

    noise_variance: str
    setting: str
    seed: int
    finding: str
    first: int


def play_check(noise_variance: str, setting: str, seed: int, num_rounds: int = 0) -> CheckRow:
    """Check the true model after a run.

    Args:
        noise_variance: See :class:`CheckRow`.
        setting: See :class:`CheckRow`.
        seed: See :class:`CheckRow`.
        num_rounds: Ignored; a run has its own length.
    """
    points, queries, outcomes = played(setting, float(noise_variance), seed)
    loop = BanditLoop(
        Arms(points), prior(float(noise_variance)), forgetting=TimeVaryingKernel(RATE)
    )
    for arm, outcome in zip(queries, outcomes, strict=True):
        loop.attach(points[arm], outcome)
    check = loop.check_model()
    first = check.growth[0] + 1 if check.finding == "changed" and check.growth else 0
    return CheckRow(noise_variance, setting, seed, check.finding, first)


def _summarize_checks(rows: Sequence[CheckRow]) -> Iterator[str]:
    """Yield a line for each setting."""
    for key in dict.fromkeys((row.noise_variance, row.setting) for row in rows):
        same = [row for row in rows if (row.noise_variance, row.setting) == key]
        named = sorted(row.first for row in same if row.first)
        rounds = f", from rounds {named[0]} to {named[-1]}" if named else ""
        yield f"noise variance {key[0]}, {key[1]}: {len(named)} of {len(same)} changed{rounds}"


JUMPS = (
    ("line", "0.03", "0.03"),
    ("line", "0.3", "0.3"),
    ("line", "1", "1"),
    ("line", "2", "2"),
    ("line", "0.3", "0.133"),
    ("line", "1", "0.444"),
    ("line", "0.3", "0.675"),
    ("clicks", "0.33", "0.33"),
    ("clicks", "0.33", "0.165"),
)

METHODS: dict[str, dict[str, Any]] = {
    "keeps everything": {},
    "`SlidingWindow(50)`": {"forgetting": SlidingWindow(50)},
    "`ExponentialWeights(0.98)`": {"forgetting": ExponentialWeights(0.98)},
    "`TimeVaryingKernel(0.002)`, the true rate": {"forgetting": TimeVaryingKernel(RATE)},
    "`TimeVaryingKernel(0.01)`": {"forgetting": TimeVaryingKernel(0.01)},
    "`EvidenceRestart()`": {"restart": EvidenceRestart()},
    "`TimeVaryingKernel(0.002)`, `EvidenceRestart(drift_rate=0.002)`": {
        "forgetting": TimeVaryingKernel(RATE),
        "restart": EvidenceRestart(drift_rate=RATE),
    },
    "the same with `robust=False`": {
        "forgetting": TimeVaryingKernel(RATE),
        "restart": EvidenceRestart(drift_rate=RATE, robust=False),
    },
}

NUM_ROUNDS = 240
"""Of a run whose regret is counted; the function is replaced after each third of it."""


@dataclass(frozen=True)
class RegretRow:
    """One run of a loop.

    Attributes:
        noise_variance: The true one, which the model has.
        method: What the loop forgets, and when it restarts.
        seed: Of the functions, the noise and the loop.
        regret: The cumulative regret.
        num_resets: How often it restarted.
    """

    noise_variance: str
    method: str
    seed: int
    regret: float
    num_resets: int


def play_regret(
    noise_variance: str, method: str, seed: int, num_rounds: int = NUM_ROUNDS
) -> RegretRow:
    """Play one loop on a function that drifts and is replaced twice.

    Args:
        noise_variance: See :class:`RegretRow`.
        method: See :class:`RegretRow`.
        seed: See :class:`RegretRow`.
        num_rounds: The rounds.
    """
    points, noise = points_on_the_line(), math.sqrt(float(noise_variance))
    K = matern(0.2)(points).to_dense().detach().numpy()
    factor = np.linalg.cholesky(K + JITTER["line"] * np.eye(len(K)))
    draws = np.random.default_rng(seed)
    f = factor @ draws.standard_normal(len(K))
    errors = noise * np.random.default_rng(1000 + seed).standard_normal(num_rounds)
    loop = BanditLoop(
        Arms(points),
        prior(float(noise_variance)),
        GPUpperConfidenceBound.with_options(width=WIDTH),
        seed=seed,
        **METHODS[method],
    )
    regret = 0.0
    for t in range(1, num_rounds + 1):
        if t in (num_rounds // 3 + 1, 2 * num_rounds // 3 + 1):
            f = factor @ draws.standard_normal(len(K))
        query = loop.ask()
        arm = int((points - query.x).abs().argmin())
        regret += float(f.max() - f[arm])
        loop.tell(query.id, float(f[arm] + errors[t - 1]))
        f = math.sqrt(1 - RATE) * f + math.sqrt(RATE) * (factor @ draws.standard_normal(len(K)))
    return RegretRow(noise_variance, method, seed, regret, len(loop.resets))


def _summarize_regret(rows: Sequence[RegretRow]) -> Iterator[str]:
    """Yield the lines of the page's table, and how much less than others the plain form loses."""
    noises = list(dict.fromkeys(row.noise_variance for row in rows))
    yield f"| Method | {' | '.join(f'Noise variance {noise}' for noise in noises)} |"
    yield f"| --- |{' --- |' * len(noises)}"
    lost = {
        key: [row.regret for row in rows if (row.noise_variance, row.method) == key]
        for key in dict.fromkeys((row.noise_variance, row.method) for row in rows)
    }
    for method in dict.fromkeys(row.method for row in rows):
        yield f"| {method} | {' | '.join(_mean(lost.get((n, method), [])) for n in noises)} |"
    plain = "the same with `robust=False`"
    for other in list(METHODS)[4:7]:
        less = []
        for noise in noises:
            pairs = zip(lost.get((noise, other), []), lost.get((noise, plain), []), strict=False)
            less.append(_mean([a - b for a, b in pairs]))
        yield f"{plain}: less than {other} by {', '.join(less)}"


def _mean(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "".join(f"{value:.1f}" for value in values)
    return f"{fmean(values):.1f} ± {stdev(values) / math.sqrt(len(values)):.1f}"


STUDIES = {
    "jumps": Study(
        play_jump,
        tuple((*key, form) for key in JUMPS for form in ("robust", "plain")),
        JumpRow,
        "weak-signals-jumps.csv",
        _summarize_jumps,
    ),
    "checks": Study(
        play_check,
        (("0.3", "line"), ("0.3", "calm")),
        CheckRow,
        "weak-signals-checks.csv",
        _summarize_checks,
    ),
    "regret": Study(
        play_regret,
        tuple((noise, method) for noise in ("0.03", "0.3") for method in METHODS),
        RegretRow,
        "weak-signals-regret.csv",
        _summarize_regret,
    ),
}


def build_parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command.

    Args:
        program: How it is started.
    """
    parser = parser_of_studies(
        program,
        STUDIES,
        "Jumps in noisy, slowly drifting rewards: how soon the plain and the robust form of the "
        "evidence find them, and what loops lose that forget or restart.",
        num_seeds=20,
    )
    parser.set_defaults(start=start)
    return parser


def start(options: argparse.Namespace) -> int:
    """Play a study and print its table.

    Returns:
        The exit code: 0.
    """
    num_rounds = NUM_ROUNDS if options.study == "regret" else 0
    return start_study(STUDIES[options.study], options, num_rounds)

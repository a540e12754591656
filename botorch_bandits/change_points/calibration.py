"""Thresholds with a stated rate of false alarms, by simulation of streams without a change.

Streams are simulated from a fit to data, or from a Gaussian process, and a threshold of a given
shape is raised until few enough of them raise an alarm. The number of alarms is only an estimate,
so the rate is kept with a stated confidence.

**The level.** The threshold has a given shape in ``n`` and a single level. For each simulated
stream, the largest ratio of statistic to shape over all tests within the horizon is kept: the
stream raises an alarm if and only if the level is below this ratio. With ``M`` streams and the
level at the ``j``-th largest ratio, the true rate of alarms has the distribution ``Beta(j, M - j +
1)``. The largest ``j`` whose quantile is at most the desired rate gives a level that keeps the rate
with the stated confidence.

**Residuals of a fit.** With the smoother :math:`H = K (K + r I)^{-1}`, the prediction error at a
sample that is left out is :math:`e_i / (1 - H_{ii})`, where :math:`e = (I - H) y`; the ridge is
chosen by cross-validation with these errors. Residuals are centered and scaled by :math:`(1 -
H_{ii})^{-1/2}`, which gives them the variance of the noise if the fit is unbiased and ``H`` is
nearly a projection.

Source: Avanesov 2020, remark 3.1, which proposes cross-validation and calibration; Rasmussen and
Williams 2006, (5.12); Clopper and Pearson 1934 and Wilks 1941 for the confidence. The result that
the rate is kept is our own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import betaincinv
from torch import Tensor

from botorch_bandits.change_points.half_samples import (
    CalibratedThreshold,
    ChangePointDetector,
    DetectorEngine,
    largest_statistics,
    rate_exponent,
)
from botorch_bandits.checks import (
    DTYPE,
    check_finite,
    check_instance,
    check_integer,
    check_matrix,
    check_nonnegative,
    check_positive,
    check_probability,
    check_vector,
)
from botorch_bandits.domains import Domain
from botorch_bandits.progress import progress_bar
from botorch_bandits.random_streams import generator

Function = Callable[[Tensor], Tensor]
"""A function of ``n x d`` points."""

Functions = Tensor | Sequence[Function]
"""Function values on arms, one function per row, or functions of ``n x d`` points."""


@dataclass(frozen=True, eq=False)
class DataFit:
    """A fit to ``N`` samples.

    Attributes:
        ridge: ``c`` of the schedule: the ridge of the fit is ``c N^(1 - r)``.
        residuals: ``N``, with mean 0.
        mean: The fitted function, including the prior mean.
    """

    ridge: float
    residuals: Tensor
    mean: Function


def fit_to_data(
    engine: DetectorEngine, X: Tensor, Y: Tensor, candidates: Sequence[float] | None = None
) -> DataFit:
    """Fit samples with the ridge that predicts best when each sample is left out.

    Args:
        engine: A detector on a domain.
        X: ``N x d`` inputs, at least 3.
        Y: ``N`` outcomes.
        candidates: Values of ``c``; 25 from 0.001 to 1000 if None.

    Raises:
        ValueError: If there are fewer than 3 samples or no candidates.
    """
    outcomes = engine.check_outcomes(Y)
    points = engine.points_of(engine.check_inputs(X, len(outcomes)))
    if len(points) < 3:
        raise ValueError(f"data has {len(points)} samples; at least 3 are needed.")
    if candidates is None:
        candidates = torch.logspace(-3.0, 3.0, 25, dtype=DTYPE).tolist()
    if not candidates:
        raise ValueError("candidates is empty; give at least one ridge.")
    checked = [check_positive("candidates", candidate) for candidate in candidates]
    exponent = rate_exponent(engine.detector.known_smoothness, engine.domain.dim)
    # c N^(1 - r), c x 1
    ridges = len(points) ** (1.0 - exponent) * outcomes.new_tensor(checked).unsqueeze(-1)
    eigenvalues, vectors = torch.linalg.eigh(engine.kernel(points, points))
    kept = ridges / (eigenvalues.clamp_min(0.0) + ridges)  # c x N, the eigenvalues of I - H
    errors = (kept * (vectors.mT @ outcomes)) @ vectors.mT  # c x N, (I - H) y
    leverage_left = (kept @ vectors.mT.square()).clamp_min(1e-12)  # c x N, 1 - H_ii
    best = int((errors / leverage_left).square().mean(-1).argmin())
    residuals = errors[best] / leverage_left[best].sqrt()
    weights = errors[best] / ridges[best]

    def mean(at: Tensor) -> Tensor:
        return engine.kernel(at, points) @ weights + engine.detector.prior_mean

    return DataFit(checked[best], residuals - residuals.mean(), mean)


@dataclass(frozen=True, eq=False)
class NullStreams:
    """Random streams of uniform samples of one function.

    Attributes:
        engine: The detector on its domain.
        horizon: The number of samples in a stream.
        noise: Standard deviation of Gaussian noise, or numbers from which noise is drawn.
        functions: The functions, one of which is drawn for each stream; if None, functions are
            drawn from the prior.
        seed: The seed of everything.
    """

    engine: DetectorEngine
    horizon: int
    noise: float | Tensor
    functions: Sequence[Function] | None = None
    seed: int = 0

    def draw(self, number: int) -> tuple[Tensor, Tensor]:
        """Return ``horizon x d`` inputs and ``horizon`` outcomes of one stream."""
        random = generator(self.seed, number, "null stream")
        X = self.engine.domain.sample(self.horizon, random)
        if self.functions is None:
            values = self._prior_draw(X, random)
        else:
            chosen = int(torch.randint(len(self.functions), (), generator=random))
            values = check_vector("values", self.functions[chosen](X), len(X))
            values = check_finite("a function's values", values)
        if torch.is_tensor(self.noise):
            drawn = torch.randint(len(self.noise), (self.horizon,), generator=random)
            return X, values + self.noise[drawn.to(self.noise.device)].to(values)
        noise = torch.randn(self.horizon, dtype=DTYPE, generator=random)
        return X, values + self.noise * noise.to(values)

    def largest_ratios(
        self, shape: Tensor, num_streams: int, advance: Callable[..., None]
    ) -> Tensor:
        """Return the largest ratio of statistic to ``shape`` for each stream and half size.

        Args:
            shape: Positive numbers, one for each ``n = 1 .. horizon // 2``.
            num_streams: The number of streams.
            advance: Called after each stream.

        Returns:
            ``num_streams x horizon // 2``.
        """
        engine, found = self.engine, []
        half_sizes = engine.half_sizes(self.horizon)
        ridges = engine.detector.ridges(half_sizes, engine.domain.dim)
        for number in range(num_streams):
            X, Y = self.draw(number)
            kernel, features = engine.matrices(engine.check_inputs(X, len(Y)))
            outcomes = Y - engine.detector.prior_mean
            largest = largest_statistics(kernel, features @ features.mT, outcomes, ridges)
            found.append(largest / shape)
            advance()
        return torch.stack(found).cpu()

    def _prior_draw(self, X: Tensor, random: torch.Generator) -> Tensor:
        unit = self.engine.kernel
        # by eigenvectors, because the matrix of a smooth kernel is singular up to rounding
        eigenvalues, vectors = torch.linalg.eigh(unit(X, X))
        normal = torch.randn(len(X), dtype=DTYPE, generator=random).to(vectors)
        draw = vectors @ (eigenvalues.clamp_min(0.0).sqrt() * normal)
        return draw * unit.prior_variance**0.5 + self.engine.detector.prior_mean


@dataclass(frozen=True)
class FalseAlarms:
    """How often streams without a change raise an alarm.

    Attributes:
        num_alarms: The number of streams with any alarm within the horizon.
        num_simulations: The number of streams.
        rate: Their ratio.
        lower: Clopper-Pearson lower bound on the true rate, with the error ``(1 - 0.95) / 2``.
        upper: Clopper-Pearson upper bound on the true rate, with the same error.
    """

    num_alarms: int
    num_simulations: int
    rate: float
    lower: float
    upper: float


def binomial_interval(
    num_alarms: int, num_simulations: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson 1934 for a probability.

    Args:
        num_alarms: The number of occurrences.
        num_simulations: The number of trials.
        confidence: The probability that the interval contains the true probability.

    Example:
        >>> [round(bound, 4) for bound in binomial_interval(5, 100)]
        [0.0164, 0.1128]
    """
    num_simulations = check_integer("num_simulations", num_simulations, minimum=1)
    num_alarms = check_integer("num_alarms", num_alarms, minimum=0)
    if num_alarms > num_simulations:
        raise ValueError(f"num_alarms is {num_alarms}, more than {num_simulations} simulations.")
    tail = (1.0 - check_probability("confidence", confidence)) / 2.0
    others = num_simulations - num_alarms
    lower = betaincinv(num_alarms, others + 1, tail) if num_alarms else 0.0
    upper = betaincinv(num_alarms + 1, others, 1.0 - tail) if others else 1.0
    return float(lower), float(upper)


def calibrate_threshold(  # noqa: PLR0913 - options, each with a name
    detector: ChangePointDetector,
    domain: Domain,
    *,
    horizon: int,
    false_alarm_rate: float,
    noise_std: float | None = None,
    functions: Functions | None = None,
    data: tuple[Tensor, Tensor] | None = None,
    num_simulations: int = 1000,
    confidence: float | None = 0.95,
    seed: int = 0,
    progress: bool | None = None,
) -> CalibratedThreshold:
    r"""Return a threshold that keeps a rate of false alarms over a horizon.

    The rate is the probability that a stream of ``horizon`` uniform samples of one function raises
    any alarm, when it is tested after each sample. It holds for the functions and the noise that
    are simulated.

    Args:
        detector: The detector, whose own threshold does not matter. To use the new threshold, call
            ``dataclasses.replace(detector, threshold=...)``.
        domain: The domain on which inputs are uniformly distributed.
        horizon: The number of uniform samples between resets, at least 2.
        false_alarm_rate: The desired rate, in (0, 1).
        noise_std: Standard deviation of Gaussian noise, in outcome units.
        functions: The functions without change: values on arms (one function per row) or functions
            of ``n x d`` points. If None, they are drawn from the Gaussian-process prior of the
            detector.
        data: ``N x d`` inputs and ``N`` outcomes without a change, instead of ``noise_std`` and
            ``functions``: the function is a fit whose ridge is cross-validated, and noise is drawn
            from its residuals.
        num_simulations: ``M``.
        confidence: The probability, over the simulations, that the rate is kept. If None, it is
            kept on average, and the level is lower.
        seed: The seed of everything.
        progress: Whether to show a progress bar; if omitted, it is shown if tqdm is installed.

    Raises:
        ValueError: If there are too few simulations for the rate and confidence, or the source of
            functions and noise is not specified.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits import Arms
        >>> arms = Arms(torch.linspace(0, 1, 20, dtype=torch.float64).unsqueeze(-1))
        >>> detector = ChangePointDetector(MaternKernel(nu=2.5), lengthscale=0.3)
        >>> threshold = calibrate_threshold(
        ...     detector, arms, horizon=10, false_alarm_rate=0.1, noise_std=0.1,
        ...     num_simulations=100, progress=False,
        ... )
        >>> threshold.num_alarms
        4
    """
    check_instance(
        "detector", detector, ChangePointDetector, "Pass the detector itself, without .on(domain)."
    )
    horizon = check_integer("horizon", horizon, minimum=2)
    false_alarm_rate = check_probability("false_alarm_rate", false_alarm_rate)
    num_simulations = check_integer("num_simulations", num_simulations, minimum=1)
    seed = check_integer("seed", seed, minimum=0)
    if confidence is not None:
        confidence = check_probability("confidence", confidence)
    streams, source = _null_streams(detector, domain, horizon, noise_std, functions, data, seed)
    rank = level_rank(num_simulations, false_alarm_rate, confidence)
    exponent = -rate_exponent(detector.known_smoothness, domain.dim)
    shape = streams.engine.half_sizes(horizon) ** exponent
    with progress_bar(num_simulations, "calibrate_threshold", progress) as advance:
        largest = streams.largest_ratios(shape, num_simulations, advance).amax(-1)
    level = float(largest.sort(descending=True).values[rank - 1])
    num_alarms = int((largest > level).sum())
    return CalibratedThreshold(
        levels=tuple((level * shape / streams.engine.kernel.prior_variance).tolist()),
        exponent=exponent,
        horizon=horizon,
        false_alarm_rate=false_alarm_rate,
        confidence=confidence,
        num_simulations=len(largest),
        num_alarms=num_alarms,
        seed=seed,
        source=source,
    )


def estimate_false_alarm_rate(  # noqa: PLR0913 - options, each with a name
    detector: ChangePointDetector,
    domain: Domain,
    *,
    horizon: int,
    noise_std: float | None = None,
    functions: Functions | None = None,
    data: tuple[Tensor, Tensor] | None = None,
    num_simulations: int = 1000,
    seed: int = 1,
    progress: bool | None = None,
) -> FalseAlarms:
    """Simulate streams without a change and count those with an alarm.

    The detector's own threshold is used.

    Args:
        detector: The detector, with its threshold.
        domain: See :func:`calibrate_threshold`.
        horizon: See :func:`calibrate_threshold`.
        noise_std: See :func:`calibrate_threshold`.
        functions: See :func:`calibrate_threshold`.
        data: See :func:`calibrate_threshold`.
        num_simulations: The number of streams.
        seed: The seed of all draws; use another one than for the calibration.
        progress: Whether to show a progress bar; if omitted, it is shown if tqdm is installed.

    Returns:
        The rate with its 95% binomial interval.
    """
    horizon = check_integer("horizon", horizon, minimum=2)
    num_simulations = check_integer("num_simulations", num_simulations, minimum=1)
    streams, _ = _null_streams(detector, domain, horizon, noise_std, functions, data, seed)
    half_sizes, variance = streams.engine.half_sizes(horizon), streams.engine.kernel.prior_variance
    thresholds = detector.thresholds(half_sizes, domain.dim, variance)
    with progress_bar(num_simulations, "estimate_false_alarm_rate", progress) as advance:
        ratios = streams.largest_ratios(thresholds, num_simulations, advance)
    num_alarms = int((ratios > 1.0).any(-1).sum())
    bounds = binomial_interval(num_alarms, num_simulations)
    return FalseAlarms(num_alarms, num_simulations, num_alarms / num_simulations, *bounds)


def cross_validated_ridge(
    detector: ChangePointDetector,
    domain: Domain,
    X: Tensor,
    Y: Tensor,
    candidates: Sequence[float] | None = None,
) -> ChangePointDetector:
    """Return the detector with the ridge ``c`` that predicts best when each sample is left out.

    Source: Avanesov 2020, remark 3.1.

    Args:
        detector: The detector, whose kernel and schedule are kept.
        domain: The domain of the inputs.
        X: ``N x d`` inputs without a change, at least 3.
        Y: ``N`` outcomes.
        candidates: Values of ``c``; 25 from 0.001 to 1000 if None.
    """
    fit = fit_to_data(detector.on(domain), X, Y, candidates)
    return dataclasses.replace(detector, ridge=fit.ridge)


def level_rank(num_simulations: int, rate: float, confidence: float | None) -> int:
    """Return the ``j`` for which the level is the ``j``-th largest ratio.

    Args:
        num_simulations: ``M``.
        rate: The desired probability of an alarm.
        confidence: The probability that it is kept; None for keeping it on average.

    Raises:
        ValueError: If no level keeps the rate.
    """
    if confidence is None:
        rank, needed = int(rate * (num_simulations + 1) + 1e-9), 1.0 / rate - 1.0
    else:
        ranks = np.arange(1, num_simulations + 1)
        bounds = betaincinv(ranks, num_simulations - ranks + 1, confidence)
        rank, needed = int((bounds <= rate).sum()), math.log(1.0 - confidence) / math.log1p(-rate)
    if rank < 1:
        raise ValueError(
            f"{num_simulations} simulations are too few for false_alarm_rate={rate} with "
            f"confidence={confidence}; at least {math.ceil(needed)} are needed to choose the level."
        )
    return rank


def _functions(engine: DetectorEngine, given: Functions) -> Sequence[Function]:
    """Return functions of points for these, or for values on arms."""
    check_instance(
        "functions",
        given,
        (Tensor, list, tuple),
        "Pass a list of functions of n x d points, such as [function], or on arms a matrix with "
        "one function's values per row.",
    )
    if len(given) == 0:
        raise ValueError("functions is empty; give at least one, or None for prior draws.")
    if not torch.is_tensor(given):
        return given
    if not engine.are_arms:
        raise TypeError(
            "functions is a tensor, which holds values on arms, but the domain is "
            f"{engine.domain!r}. Pass a list of functions of n x d points."
        )
    values = check_matrix("functions", given, num_columns=len(engine.points)).to(engine.points)

    def on_arms(row: Tensor) -> Function:
        return lambda X: row[engine.check_inputs(X, len(X))]

    return list(map(on_arms, values))


def _null_streams(
    detector: ChangePointDetector,
    domain: Domain,
    horizon: int,
    noise_std: float | None,
    functions: Functions | None,
    data: tuple[Tensor, Tensor] | None,
    seed: int,
) -> tuple[NullStreams, str]:
    """Return the streams that are meant, and the source of functions and noise in words."""
    engine = detector.on(domain)
    if data is not None:
        if noise_std is not None or functions is not None:
            raise ValueError("data replaces noise_std and functions; leave these out.")
        check_instance("data", data, (tuple, list), "Pass a pair (X, y) of inputs and outcomes.")
        fit = fit_to_data(engine, *data)
        streams = NullStreams(engine, horizon, fit.residuals, [fit.mean], seed)
        return streams, f"a fit to {len(fit.residuals)} samples, noise from its residuals"
    if noise_std is None:
        raise ValueError("noise_std is missing: pass it, or data= to learn from samples.")
    noise_std = check_nonnegative("noise_std", noise_std)
    known = None if functions is None else _functions(engine, functions)
    given = "prior draws" if known is None else f"{len(known)} given functions"
    source = f"{given}, Gaussian noise with standard deviation {noise_std}"
    return NullStreams(engine, horizon, noise_std, known, seed), source

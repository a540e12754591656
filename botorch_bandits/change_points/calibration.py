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
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from scipy.special import betaincinv
from torch import Tensor

from botorch_bandits.change_points.half_samples import (
    ChangePointDetector,
    DetectorEngine,
    UnitKernel,
    scan_statistics,
)
from botorch_bandits.change_points.thresholds import CalibratedThreshold, rate_exponent
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
    store_checked,
)
from botorch_bandits.domains import Arms, Domain
from botorch_bandits.progress import ProgressBar
from botorch_bandits.random_streams import generator


@dataclass(frozen=True, eq=False)
class DataFit:
    """A fit to ``N`` samples.

    Attributes:
        ridge: ``c`` of the schedule: the ridge of the fit is ``c N^(1 - r)``.
        residuals: ``N``, with mean 0.
        points: ``N x d``.
        weights: ``N``.
        kernel: The kernel, scaled to unit variance.
        prior_mean: The prior mean, which is added to predictions.
    """

    ridge: float
    residuals: Tensor
    points: Tensor
    weights: Tensor
    kernel: UnitKernel
    prior_mean: float

    def mean(self, X: Tensor) -> Tensor:
        """Return the fitted function at ``n x d`` points."""
        return self.kernel(X, self.points) @ self.weights + self.prior_mean


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
    points = engine.check_inputs(X, None, len(outcomes))
    points = engine.points_of(points)
    if len(points) < 3:
        raise ValueError(f"data has {len(points)} samples; at least 3 are needed.")
    if candidates is None:
        candidates = torch.logspace(-3.0, 3.0, 25, dtype=DTYPE).tolist()
    if not candidates:
        raise ValueError("candidates is empty; give at least one ridge.")
    smoothness = engine.detector.known_smoothness
    assert smoothness is not None
    growth = len(points) ** (1.0 - rate_exponent(smoothness, engine.domain.dim))
    eigenvalues, vectors = torch.linalg.eigh(engine.kernel(points, points))
    rotated = vectors.mT @ outcomes
    best: tuple[float, float, Tensor, Tensor] | None = None
    for candidate in candidates:
        ridge = check_positive("candidates", candidate) * growth
        kept = ridge / (eigenvalues.clamp_min(0.0) + ridge)  # the eigenvalues of I - H
        errors = vectors @ (kept * rotated)
        leverage_left = (vectors.square() @ kept).clamp_min(1e-12)
        loss = float((errors / leverage_left).square().mean())
        if best is None or loss < best[0]:
            best = loss, candidate, errors / leverage_left.sqrt(), errors / ridge
    assert best is not None
    _, chosen, residuals, weights = best
    return DataFit(
        float(chosen),
        residuals - residuals.mean(),
        points,
        weights,
        engine.kernel,
        engine.detector.prior_mean,
    )


Functions = Tensor | Sequence[Callable[[Tensor], Tensor]]
"""Function values on arms, one function per row, or functions of ``n x d`` points."""


@dataclass(frozen=True, eq=False)
class NullStreams:
    """Random streams of uniform samples of one function.

    Attributes:
        engine: The detector on its domain.
        horizon: The number of samples in a stream.
        noise_std: Standard deviation of Gaussian noise; unused with ``residuals``.
        functions: Given functions of inputs (points of a box, or arm numbers), one of which is
            drawn for each stream; if None, functions are drawn from the prior.
        residuals: If given, noise is drawn from these.
        seed: The seed of everything.
    """

    engine: DetectorEngine
    horizon: int
    noise_std: float = 0.0
    functions: Sequence[Callable[[Tensor], Tensor]] | None = None
    residuals: Tensor | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the user's arguments."""
        store_checked(self, noise_std=check_nonnegative("noise_std", self.noise_std))

    def draw(self, number: int) -> tuple[Tensor, Tensor]:
        """Return inputs (``horizon x d``, or arm numbers) and outcomes of one stream."""
        random = generator(self.seed, number, "null stream")
        domain = self.engine.domain
        if isinstance(domain, Arms):
            inputs = torch.randint(domain.num_arms, (self.horizon,), generator=random)
            inputs = inputs.to(domain.choices.device)
        else:
            inputs = domain.sample(self.horizon, random)
        values = self._values(inputs, random)
        if self.residuals is not None:
            chosen = torch.randint(len(self.residuals), (self.horizon,), generator=random)
            noise = self.residuals[chosen.to(self.residuals.device)]
        else:
            noise = self.noise_std * torch.randn(
                self.horizon, dtype=torch.float64, generator=random
            )
        return inputs, values + noise.to(values)

    def ratios(self, number: int, shape: Tensor) -> Tensor:
        """Return the largest ratio of statistic to ``shape`` for each half size.

        Args:
            number: The number of the stream.
            shape: Positive numbers, one for each ``n = 1 .. horizon // 2``.
        """
        engine = self.engine
        inputs, outcomes = self.draw(number)
        kernel, features = engine.matrices(inputs)
        scans = scan_statistics(
            kernel,
            engine.measure.gram(features),
            outcomes - engine.detector.prior_mean,
            engine.ridges(self.horizon // 2),
        )
        return torch.stack([scan.max() for scan in scans]) * engine.factor / shape

    def _values(self, inputs: Tensor, random: torch.Generator) -> Tensor:
        if self.functions is None:
            return self._prior_draw(inputs, random)
        chosen = int(torch.randint(len(self.functions), (), generator=random))
        values = check_vector("values", self.functions[chosen](inputs), len(inputs))
        return check_finite("a function's values", values)

    def _prior_draw(self, inputs: Tensor, random: torch.Generator) -> Tensor:
        engine = self.engine
        points, unit = engine.points_of(inputs), engine.kernel
        # by eigenvectors, because the matrix of a smooth kernel is singular up to rounding
        eigenvalues, vectors = torch.linalg.eigh(unit(points, points))
        normal = torch.randn(len(points), dtype=torch.float64, generator=random).to(vectors)
        draw = vectors @ (eigenvalues.clamp_min(0.0).sqrt() * normal)
        return draw * engine.kernel.prior_variance**0.5 + engine.detector.prior_mean


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
    progress: bool = True,
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
        progress: Whether to show a progress bar.

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
    n = torch.arange(1, horizon // 2 + 1, dtype=DTYPE)
    assert detector.known_smoothness is not None
    exponent = -rate_exponent(detector.known_smoothness, domain.dim)
    base = n**exponent
    with ProgressBar(num_simulations, "calibrate_threshold", progress) as bar:
        largest = _simulate(streams, num_simulations, base, bar).amax(-1)
    level = float(largest.sort(descending=True).values[rank - 1])
    num_alarms = int((largest > level).sum())
    return CalibratedThreshold(
        levels=tuple((level * base / streams.engine.kernel.prior_variance).tolist()),
        exponent=exponent,
        horizon=horizon,
        false_alarm_rate=false_alarm_rate,
        confidence=confidence,
        num_simulations=len(largest),
        num_alarms=num_alarms,
        rate_bounds=binomial_interval(num_alarms, len(largest)),
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
    progress: bool = True,
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
        progress: Whether to show a progress bar, if ``tqdm`` is installed.

    Returns:
        The rate with its 95% binomial interval.
    """
    horizon = check_integer("horizon", horizon, minimum=2)
    num_simulations = check_integer("num_simulations", num_simulations, minimum=1)
    streams, _ = _null_streams(detector, domain, horizon, noise_std, functions, data, seed)
    thresholds = streams.engine.thresholds(
        horizon // 2, 0, streams.engine.kernel.prior_variance
    ).cpu()
    with ProgressBar(num_simulations, "estimate_false_alarm_rate", progress) as bar:
        ratios = _simulate(streams, num_simulations, thresholds, bar)
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
        rank = int(rate * (num_simulations + 1) + 1e-9)
        needed = int(1.0 / rate + 0.999) - 1
    else:
        ranks = torch.arange(1, num_simulations + 1, dtype=DTYPE).numpy()
        bounds = betaincinv(ranks, num_simulations - ranks + 1, confidence)
        rank = int((bounds <= rate).sum())
        needed = _fewest_simulations(rate, confidence)
    if rank < 1:
        raise ValueError(
            f"{num_simulations} simulations are too few for false_alarm_rate={rate} with "
            f"confidence={confidence}; at least {needed} are needed to choose the level."
        )
    return rank


def _fewest_simulations(rate: float, confidence: float) -> int:
    number = torch.log(torch.tensor(1.0 - confidence, dtype=DTYPE)) / torch.log1p(
        torch.tensor(-rate, dtype=DTYPE)
    )
    return int(number.ceil())


def _simulate(streams: NullStreams, number: int, shape: Tensor, bar: ProgressBar) -> Tensor:
    """Return the largest ratio of each stream and half size, ``number x horizon // 2``."""
    rows = []
    for i in range(number):
        rows.append(streams.ratios(i, shape.to(streams.engine.measure.points)).cpu())
        bar.advance()
    return torch.stack(rows)


def _of_inputs(engine: DetectorEngine, given: Functions) -> list[Callable[[Tensor], Tensor]]:
    """Return functions of inputs for values on arms, or for functions of points."""
    check_instance(
        "functions",
        given,
        (Tensor, list, tuple),
        "Pass a list of functions of n x d points, such as [function], or on arms a matrix with "
        "one function's values per row.",
    )
    if len(given) == 0:
        raise ValueError("functions is empty; give at least one, or None for prior draws.")
    if isinstance(given, Tensor):
        if not engine.are_arms:
            raise TypeError(
                "functions is a tensor, which holds values on arms, but the domain is "
                f"{engine.domain!r}. Pass a list of functions of n x d points."
            )
        values = check_matrix("functions", given, num_columns=len(engine.measure.points))
        return [row.to(engine.measure.points.device).__getitem__ for row in values]

    def of_points(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda inputs: function(engine.points_of(inputs))

    return list(map(of_points, given))


def _null_streams(
    detector: ChangePointDetector,
    domain: Domain,
    horizon: int,
    noise_std: float | None,
    functions: Functions | None,
    data: tuple[Tensor, Tensor] | None,
    seed: int,
) -> tuple[NullStreams, str]:
    engine = detector.on(domain)
    if data is not None:
        if noise_std is not None or functions is not None:
            raise ValueError("data replaces noise_std and functions; leave these out.")
        check_instance("data", data, (tuple, list), "Pass a pair (X, y) of inputs and outcomes.")
        fit = fit_to_data(engine, *data)
        fitted = _of_inputs(engine, [fit.mean])
        streams = NullStreams(engine, horizon, functions=fitted, residuals=fit.residuals, seed=seed)
        return streams, f"a fit to {len(fit.residuals)} samples, noise from its residuals"
    if noise_std is None:
        raise ValueError("noise_std is missing: pass it, or data= to learn from samples.")
    known = None if functions is None else _of_inputs(engine, functions)
    streams = NullStreams(engine, horizon, noise_std, known, seed=seed)
    given = "prior draws" if functions is None else f"{len(functions)} given functions"
    return streams, f"{given}, Gaussian noise with standard deviation {noise_std}"

r"""The detector of changes in a regression function: its settings, its engine and its streams.

:class:`ChangePointDetector` holds the settings and tests a sample at once. On a given domain, it
creates a :class:`DetectorEngine`, which has computed whatever does not depend on the outcomes; the
engine creates a :class:`DetectorStream`, which takes samples one by one, as they come in a loop.

After each outcome, the detector asks whether two halves of the latest data were drawn from the same
function. After ``N`` samples, every tail of ``2 n`` samples is tested, ``n = 1 .. N // 2``. A
change is detected if the statistic of a tail, the squared distance between the fits to its two
halves, exceeds the threshold for ``n``. The fit to ``n`` samples is kernel ridge regression with
the ridge :math:`\rho_n = c \, n^{-r}`, which enters as :math:`K + n \rho_n I`.

Source: Avanesov 2020, algorithm 1, with the ridge of (3.5).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Literal, cast

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits.change_points.half_samples import (
    Located,
    Measure,
    Space,
    means_in_contexts,
    quadratic_forms,
    space_of,
    tail_coefficients,
)
from botorch_bandits.change_points.thresholds import PowerThreshold, Threshold, rate_exponent
from botorch_bandits.checks import (
    DTYPE,
    check_integer,
    check_matrix,
    check_number,
    check_one_of,
    check_positive,
    check_vector,
    store_checked,
)
from botorch_bandits.core.kernels import double_kernel, fingerprint_kernel
from botorch_bandits.domains import Arms, Box, Domain


@dataclass(frozen=True, eq=False)
class ChangePointTest:
    """The result of testing every even tail of a stream.

    If a change is detected, the tail is the shortest one whose statistic exceeds its threshold, at
    which the scan of Avanesov 2020 stops. Otherwise, it is the tail nearest to an alarm, with the
    largest ratio of statistic to threshold.

    Attributes:
        num_samples: ``N``, the number of samples in the stream.
        statistic: The squared difference of both posterior means, in squared outcome units.
        threshold: The threshold of the statistic, in the same units.
        half_size: ``n``; the tail has ``2 n`` samples. 0 without any tail (``N < 2``).
        location: Index in the stream of the first sample after the estimated change, ``N - n``.
        detected: Whether any statistic exceeds its threshold.
        statistics: One for each ``n = 1 .. N // 2``.
        thresholds: One for each ``n``.
        integration_error: The estimated error of ``statistic``; 0 on arms, where it is exact.
    """

    num_samples: int
    statistic: float
    threshold: float
    half_size: int
    location: int
    detected: bool
    statistics: Tensor
    thresholds: Tensor
    integration_error: float = 0.0

    @classmethod
    def of_no_tail(cls, num_samples: int, device: torch.device | None = None) -> ChangePointTest:
        """Return the result for fewer than two samples: nothing is detected.

        Args:
            num_samples: The number of samples.
            device: The device of the tensors of the result.
        """
        nothing = torch.empty(0, dtype=DTYPE, device=device)
        return cls(num_samples, 0.0, math.inf, 0, num_samples, False, nothing, nothing)


def deciding_tail(statistics: Tensor, thresholds: Tensor) -> tuple[int, bool]:
    """Return the position of the tail that is reported, and whether it is an alarm.

    Args:
        statistics: One per tail, at least one, shortest tail first.
        thresholds: One per tail, positive; infinity never alarms.
    """
    alarms = statistics > thresholds
    if bool(alarms.any()):
        return int(alarms.to(torch.int8).argmax()), True  # the first of equal entries
    return int((statistics / thresholds).argmax()), False


class DetectorEngine:
    """Tests streams of samples on one domain; made by :meth:`ChangePointDetector.on`.

    It is immutable: no test changes it.

    Args:
        detector: The settings.
        domain: The domain on which inputs are uniformly distributed, without contexts.

    Raises:
        TypeError: If the domain is neither arms nor a box.
    """

    def __init__(self, detector: ChangePointDetector, domain: Domain) -> None:
        """See the class."""
        self.detector, self.domain = detector, domain
        self.measure = Measure.of(domain, detector.seed)  # points and weights for averages
        self._ridges: dict[int, Tensor] = {}  # by dimension, as many as have been needed
        self._thresholds: dict[int, Tensor] = {}
        self.factor = 1.0
        if detector.statistic == "integral":
            self.factor = domain.volume if detector.volume is None else detector.volume

    @cached_property
    def space(self) -> Space:
        """Kernel and Gram matrices on the domain, without contexts."""
        return space_of(self.domain, self.detector.kernel, self.measure)

    @property
    def prior_variance(self) -> float:
        """The prior variance of the kernel on the domain."""
        return self.space.kernel.prior_variance

    def test(
        self,
        X: Tensor | None = None,
        Y: Tensor | Sequence[float] | None = None,
        *,
        arms: Tensor | None = None,
        contexts: Tensor | None = None,
    ) -> ChangePointTest:
        """Test every even tail of a stream, oldest sample first.

        Args:
            X: ``N x d`` inputs of the domain, drawn uniformly. On arms, ``arms`` is faster.
            Y: ``N`` outcomes, or a column of them.
            arms: ``N`` arm numbers (int64) instead of ``X``.
            contexts: ``N x c``, if the kernel is on ``[context, input]``. The statistic of a tail
                then averages over its contexts as well. This requires contexts that are drawn
                independently from one distribution: if they come in blocks, the two halves see
                different contexts, and the statistic is large without any change.

        Raises:
            TypeError: If a tensor has a dtype other than float64 (arms: int64), or both or neither
                of ``X`` and ``arms`` are given.
            ValueError: If shapes do not match, an entry is not finite, or a point is not in the
                domain.
        """
        outcomes = self.check_outcomes(Y)
        inputs = self.check_inputs(X, arms, len(outcomes))
        if contexts is not None:
            return self._test_in_contexts(inputs, outcomes, contexts)
        if len(outcomes) < 2:
            return ChangePointTest.of_no_tail(len(outcomes), outcomes.device)
        # newest first
        located = self.space.locate(inputs.flip(0))
        kernel, gram = self.space.matrices(located, located)
        ridges = self.ridges(len(outcomes) // 2)
        coefficients, _ = tail_coefficients(kernel, outcomes.flip(0), ridges)
        return self.result(gram, coefficients, located)

    def _test_in_contexts(
        self, inputs: Tensor, outcomes: Tensor, contexts: Tensor
    ) -> ChangePointTest:
        contexts = check_matrix("contexts", contexts).detach().to(self._device)
        num_samples, dim = len(outcomes), contexts.shape[-1]
        if len(contexts) != num_samples:
            raise ValueError(
                f"contexts has {len(contexts)} rows, but Y has {num_samples}; they must agree."
            )
        if num_samples < 2:
            return ChangePointTest.of_no_tail(num_samples, outcomes.device)
        num_tails = num_samples // 2
        found = means_in_contexts(
            self.detector.kernel,
            self.measure,
            inputs.flip(0),
            outcomes.flip(0),
            contexts.flip(0),
            self.ridges(num_tails, dim),
        )
        statistics = found.means * self.factor
        thresholds = self.thresholds(num_tails, dim, found.prior_variance)
        tail, _ = decision = deciding_tail(statistics, thresholds)
        error = self.measure.error(found.means_by_rule[tail]) * self.factor
        return self.make_result(num_samples, statistics, thresholds, decision, error)

    def stream(self) -> DetectorStream:
        """Return an empty stream: samples are added one by one, with a test after each."""
        return DetectorStream(self)

    def ridges(self, num_tails: int, context_dim: int = 0) -> Tensor:
        """Return ``n rho_n`` for ``n = 1 .. num_tails``.

        Args:
            num_tails: The number of tails.
            context_dim: The dimension of the contexts.
        """
        dim = self.domain.dim + context_dim
        if len(self._ridges.get(dim, ())) < num_tails:
            self._ridges[dim] = self.detector.ridges(self._half_sizes(num_tails), dim)
        return self._ridges[dim][:num_tails]

    def thresholds(
        self, num_tails: int, context_dim: int = 0, prior_variance: float | None = None
    ) -> Tensor:
        """Return the thresholds of ``n = 1 .. num_tails`` in squared outcome units.

        Args:
            num_tails: The number of tails.
            context_dim: The dimension of the contexts.
            prior_variance: The largest variance of the kernel; the detector's own if omitted.
        """
        dim = self.domain.dim + context_dim
        if prior_variance is not None:
            return self.detector.thresholds(self._half_sizes(num_tails), dim, prior_variance)
        if len(self._thresholds.get(dim, ())) < num_tails:
            self._thresholds[dim] = self.detector.thresholds(
                self._half_sizes(num_tails), dim, self.prior_variance
            )
        return self._thresholds[dim][:num_tails]

    def result(self, gram: Tensor, coefficients: Tensor, located: Located) -> ChangePointTest:
        """Return the result of all tails, with the newest sample first everywhere.

        Args:
            gram: ``N x N``.
            coefficients: ``N // 2 x N``.
            located: The samples.
        """
        num_tails, num_samples = coefficients.shape
        statistics = quadratic_forms(gram, coefficients) * self.factor
        thresholds = self.thresholds(num_tails)
        tail, _ = decision = deciding_tail(statistics, thresholds)
        error = self.space.error(located, coefficients[tail]) * self.factor
        return self.make_result(num_samples, statistics, thresholds, decision, error)

    def make_result(
        self,
        num_samples: int,
        statistics: Tensor,
        thresholds: Tensor,
        decision: tuple[int, bool],
        error: float,
    ) -> ChangePointTest:
        """Assemble a result.

        Args:
            num_samples: The number of samples that were tested.
            statistics: The statistic of each tail.
            thresholds: The threshold of each tail.
            decision: The tail that decides and whether it is above its threshold, as
                :func:`deciding_tail` returns them.
            error: A bound on the error of the statistics.
        """
        tail, detected = decision
        return ChangePointTest(
            num_samples=num_samples,
            statistic=float(statistics[tail]),
            threshold=float(thresholds[tail]),
            half_size=tail + 1,
            location=num_samples - tail - 1,
            detected=detected,
            statistics=statistics,
            thresholds=thresholds,
            integration_error=error,
        )

    def check_outcomes(self, Y: Tensor | Sequence[float] | None) -> Tensor:
        """Return ``N`` finite outcomes less the prior mean.

        Args:
            Y: ``N`` outcomes.
        """
        if Y is None:
            raise TypeError("Y is missing: pass one outcome for each sample.")
        if isinstance(Y, Tensor) and Y.dim() == 2 and Y.shape[-1] == 1:
            Y = Y.squeeze(-1)
        return check_vector("Y", Y).detach().to(self._device) - self.detector.prior_mean

    def check_inputs(self, X: Tensor | None, arms: Tensor | None, num_samples: int) -> Tensor:
        """Return ``N x d`` inputs of a box, or ``N`` arm numbers.

        Args:
            X: Inputs, if the domain is a box.
            arms: Arm numbers, if it is a set of arms.
            num_samples: ``N``.
        """
        if (X is None) == (arms is None):
            raise TypeError("pass either X (inputs) or arms (arm numbers), not both or neither.")
        if arms is None:
            inputs = check_matrix("X", X, num_columns=self.domain.dim).detach().to(self._device)
            if isinstance(self.domain, Arms):
                inputs = self.domain.index_of(inputs)
            else:
                self._check_inside(inputs)
        else:
            inputs = self._check_arms(arms)
        if len(inputs) != num_samples:
            name = "X" if arms is None else "arms"
            raise ValueError(
                f"{name} has {len(inputs)} samples, but Y has {num_samples}; they must agree."
            )
        return inputs

    @property
    def _device(self) -> torch.device:
        return self.measure.points.device

    def _half_sizes(self, num_tails: int) -> Tensor:
        return torch.arange(1, num_tails + 1, dtype=DTYPE, device=self._device)

    def _check_arms(self, arms: Tensor) -> Tensor:
        if not isinstance(self.domain, Arms):
            raise TypeError(f"arms are given, but the domain is {self.domain!r}. Pass X.")
        if not isinstance(arms, Tensor) or arms.dtype != torch.long or arms.dim() != 1:
            raise TypeError("arms must be a vector of arm numbers (a tensor of int64).")
        outside = (arms < 0) | (arms >= self.domain.num_arms)
        if bool(outside.any()):
            first = int(outside.to(torch.int8).argmax())
            raise ValueError(
                f"arms[{first}] is {int(arms[first])}; arms are numbered from 0 to "
                f"{self.domain.num_arms - 1}."
            )
        return arms.to(self._device)

    def _check_inside(self, X: Tensor) -> None:
        box = cast(Box, self.domain)
        bad = ((box.bounds[0] > X) | (box.bounds[1] < X)).any(-1)
        whole = X[:, list(box.integer_dims)]
        bad |= (whole != whole.round()).any(-1)
        if bool(bad.any()):
            first = int(bad.to(torch.int8).argmax())
            box.check_point(f"X[{first}]", X[first])  # says what is wrong


REMEMBERED = 64
"""Halves up to this size are fitted once: a newer half is an older one ``n`` samples later."""


class DetectorStream:
    """Samples since the last reset, oldest first; made by :meth:`DetectorEngine.stream`.

    Results are those of :meth:`DetectorEngine.test` on all samples since the last reset, up to
    rounding. Each further sample costs one row of each matrix, and the fits of halves that were not
    fitted before.

    Args:
        engine: The detector on a domain.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits import Box, ChangePointDetector
        >>> detector = ChangePointDetector(MaternKernel(nu=2.5), lengthscale=0.3)
        >>> stream = detector.on(Box([[0.0], [1.0]])).stream()
        >>> inputs = [(7 * i % 10) / 10 for i in range(20)]
        >>> tests = [stream.observe([x], 1.0 if i < 12 else -1.0) for i, x in enumerate(inputs)]
        >>> first = [test.detected for test in tests].index(True)
        >>> first, tests[first].location
        (14, 12)
    """

    def __init__(self, engine: DetectorEngine) -> None:
        """See the class."""
        self._engine = engine
        self.reset()

    @property
    def num_samples(self) -> int:
        """The number of samples since the last reset."""
        return self._count

    def reset(self) -> None:
        """Forget all samples."""
        self._count = 0
        nothing = self._engine.measure.points.new_empty
        # newest first, so that samples fill their buffers from the end
        self._kernel, self._gram, self._outcomes = nothing(0, 0), nothing(0, 0), nothing(0)
        self._located: Located | None = None
        self._inputs: list[Tensor] = []
        self._contexts: list[Tensor] = []
        self._weights: Tensor | None = None

    def observe(
        self, x: Tensor | list[float], y: float, context: Tensor | list[float] | None = None
    ) -> ChangePointTest:
        """Add one more sample and test all tails.

        Args:
            x: ``d`` numbers, a point of the domain.
            y: The outcome.
            context: ``c`` numbers; for all samples since the last reset or for none. With contexts,
                everything is recomputed after each sample.

        Raises:
            TypeError: If a tensor has a dtype other than float64.
            ValueError: If the point is not in the domain, a number is not finite, or only some
                samples have contexts.
        """
        point = check_vector("x", x, length=self._engine.domain.dim)
        outcome = check_number("y", y)
        inputs = self._engine.check_inputs(point.unsqueeze(0), None, 1)
        if context is not None:
            context = check_vector("context", context)
        self._check_contexts(context)
        return self._observe(inputs, outcome, context)

    def observe_arm(self, arm: int, y: float) -> ChangePointTest:
        """Add the outcome of an arm, given by its number, and test all tails.

        Args:
            arm: The number of the arm.
            y: Its outcome.

        Raises:
            TypeError: If the domain is not a set of arms.
            ValueError: If there is no such arm or the outcome is not finite.
        """
        inputs = self._engine.check_inputs(None, torch.tensor([arm]), 1)
        outcome = check_number("y", y)
        self._check_contexts(None)
        return self._observe(inputs, outcome, None)

    def _check_contexts(self, context: Tensor | None) -> None:
        if self._count == 0:
            return
        first = self._contexts[0] if self._contexts else None
        if (first is None) != (context is None):
            raise ValueError(
                "context must be given with every sample since the reset, or with none."
            )
        if first is not None and context is not None and len(first) != len(context):
            raise ValueError(f"context has {len(context)} numbers; earlier ones had {len(first)}.")

    def _observe(self, inputs: Tensor, outcome: float, context: Tensor | None) -> ChangePointTest:
        try:
            return self._take_in(inputs, outcome, context)
        except Exception:
            self._take_back()
            raise

    def _take_in(self, inputs: Tensor, outcome: float, context: Tensor | None) -> ChangePointTest:
        engine = self._engine
        self._count_before = self._count
        if context is not None:
            return self._observe_in_context(inputs, outcome, context)
        located = engine.space.locate(inputs)
        if self._count == len(self._outcomes):
            self._grow(located)
        assert self._located is not None
        self._count += 1
        at = len(self._outcomes) - self._count
        self._located.points[at] = located.points[0]
        self._located.features[at] = located.features[0]
        samples = Located(self._located.points[at:], self._located.features[at:])
        kernel, gram = engine.space.matrices(located, samples)
        for matrix, row in ((self._kernel, kernel[0]), (self._gram, gram[0])):
            matrix[at, at:] = row
            matrix[at:, at] = row
        self._outcomes[at] = outcome - engine.detector.prior_mean
        if self._count < 2:
            return ChangePointTest.of_no_tail(self._count, self._outcomes.device)
        coefficients, newer = tail_coefficients(
            self._kernel[at:, at:],
            self._outcomes[at:],
            engine.ridges(self._count // 2),
            self._older_weights(),
        )
        self._remember(newer)
        return engine.result(self._gram[at:, at:], coefficients, samples)

    def _take_back(self) -> None:
        """Remove a sample that could not be tested."""
        if self._count == self._count_before:
            return
        self._count = self._count_before
        if len(self._contexts) > self._count:
            del self._contexts[self._count :], self._inputs[self._count :]
            self._outcomes = self._outcomes[: self._count]

    def _observe_in_context(
        self, inputs: Tensor, outcome: float, context: Tensor
    ) -> ChangePointTest:
        engine = self._engine
        self._inputs.append(inputs)
        self._contexts.append(context)
        outcomes = self._outcomes
        self._outcomes = torch.cat([outcomes, outcomes.new_tensor([outcome])])
        self._count += 1
        inputs = torch.cat(self._inputs)
        given = {"arms": inputs} if inputs.dim() == 1 else {"X": inputs}
        return engine.test(Y=self._outcomes, contexts=torch.stack(self._contexts), **given)

    def _grow(self, like: Located) -> None:
        """Double the memory; samples stay at the end."""
        old, count = len(self._outcomes), self._count
        room = max(32, 2 * old)

        def larger(rows: Tensor, *shape: int) -> Tensor:
            new = rows.new_zeros(room, *shape)
            new[room - count :] = rows[old - count :]
            return new

        kernel, gram = (m.new_zeros(room, room) for m in (self._kernel, self._gram))
        if count:
            kernel[-count:, -count:] = self._kernel[-count:, -count:]
            gram[-count:, -count:] = self._gram[-count:, -count:]
        self._kernel, self._gram = kernel, gram
        self._outcomes = larger(self._outcomes)
        kept = self._located or Located(like.points[:0], like.features[:0])
        self._located = Located(
            larger(kept.points, *like.points.shape[1:]),
            larger(kept.features, *like.features.shape[1:]),
        )

    def _older_weights(self) -> Tensor | None:
        """The weights of older halves that have been newer halves, for ``n = 1 .. r``."""
        size = min(self._count // 3, REMEMBERED)
        if self._weights is None or size == 0:
            return None
        n = torch.arange(1, size + 1, device=self._weights.device)
        return self._weights[(self._count - n) % REMEMBERED, n - 1, :size]

    def _remember(self, newer: Tensor) -> None:
        if self._weights is None:
            self._weights = newer.new_zeros(REMEMBERED, REMEMBERED, REMEMBERED)
        size = min(len(newer), REMEMBERED)
        self._weights[self._count % REMEMBERED, :size, :size] = newer[:size, :size]


@dataclass(frozen=True, eq=False)
class ChangePointDetector:
    r"""Tests whether a stream of inputs and outcomes comes from one function.

    For each ``n`` up to half of the samples, the last ``2 n`` samples are halved, a Gaussian
    process is fitted to each half, and the squared difference of both posterior means, averaged
    over the domain :math:`D`, is compared with a threshold :math:`\theta_n`:

    .. math:: \frac{1}{|D|} \int_D \bigl(\mu^{(1)}_n(x) - \mu^{(2)}_n(x)\bigr)^2 dx > \theta_n

    (``statistic="integral"`` omits the factor :math:`1 / |D|`). Only means are used. The ridge of a
    fit to ``n`` samples is

    .. math:: n \rho_n = c \, n^{1 - r}, \qquad r = \frac{2 a + d}{2 a + d + 1},

    which is :math:`c\, n^{1/7}` for a Matern 5/2 kernel in one dimension. Inputs must be uniformly
    distributed on the domain, which the queries of a bandit are not, except those that explore.

    The kernel is scaled to unit prior variance; with prior variance :math:`s^2`, thresholds in
    prior units are multiplied by :math:`s^2`. ``prior_mean`` is subtracted from the outcomes.

    Two detectors are equal if their tests are equal.

    Args:
        kernel: A GPyTorch kernel, copied to float64; with contexts it is on ``[context, input]``.
        ridge: ``c``, any positive number in (3.5) of Avanesov 2020, whose experiments do not state
            theirs. With the published threshold, the mean and their setting, 0.3 raises a false
            alarm in 0.38 of 300 rounds without a change, 1 in 0.15 and 3 in 0.03, and 0.92, 0.75
            and 0.48 of the changes are detected within 300 rounds. A smaller ridge, as chosen by
            :func:`~botorch_bandits.change_points.cross_validated_ridge`, detects more at the same
            rate of false alarms, with a threshold that is calibrated for it.
        statistic: ``"mean"`` over the domain, which the published threshold is for, or the
            ``"integral"`` of (2.4). They differ by the volume, and so do their thresholds.
        threshold: The threshold of the squared difference; ``n`` is the half size.
        smoothness: ``a``. If None, it is read from a Matern kernel (its ``nu``) or a squared
            exponential kernel (infinity: a constant ridge).
        prior_mean: The prior mean of the reward function, a constant.
        volume: For ``statistic="integral"``: the measure of the domain. If None, the box's volume
            or the number of arms. For arms that represent an interval, pass its length.
        seed: The seed of the points that integrate over boxes of more than two dimensions.
        lengthscale: A lengthscale to set on the kernel, in float64; it is not kept.

    Raises:
        TypeError: If the kernel is not a GPyTorch kernel, or a number has the wrong type.
        ValueError: If a number is out of range, or the smoothness is needed and not known.

    Example:
        >>> import torch
        >>> from botorch_bandits import Arms
        >>> arms = Arms(torch.linspace(0, 5, 50, dtype=torch.float64).unsqueeze(-1))
        >>> X = arms.sample(40, torch.Generator().manual_seed(0))
        >>> y = torch.sin(X[:, 0])
        >>> y[24:] *= -1.0
        >>> engine = ChangePointDetector(MaternKernel(nu=2.5), lengthscale=1.0).on(arms)
        >>> result = engine.test(X, y)
        >>> result.detected, result.num_samples - result.half_size == result.location
        (True, True)
        >>> engine.test(X[:24], y[:24]).detected
        False
    """

    kernel: Kernel
    ridge: float = 1.0
    statistic: Literal["mean", "integral"] = "mean"
    threshold: Threshold = field(default_factory=PowerThreshold)
    smoothness: float | None = None
    prior_mean: float = 0.0
    volume: float | None = None
    seed: int = 0
    lengthscale: InitVar[float | None] = None

    def __post_init__(self, lengthscale: float | None) -> None:
        """Check the settings."""
        object.__setattr__(self, "kernel", double_kernel(self.kernel, lengthscale))
        store_checked(self, ridge=check_positive("ridge", self.ridge))
        check_one_of("statistic", self.statistic, ("mean", "integral"))
        if not isinstance(self.threshold, Threshold):
            raise TypeError(
                f"threshold is {self.threshold!r}; pass a Threshold, for example "
                "PowerThreshold(scale=2.6, exponent=-6/7) or what calibrate_threshold returns."
            )
        if self.smoothness is not None:
            smoothness = check_positive("smoothness", self.smoothness, or_infinite=True)
            store_checked(self, smoothness=smoothness)
        store_checked(self, prior_mean=check_number("prior_mean", self.prior_mean))
        if self.volume is not None:
            store_checked(self, volume=check_positive("volume", self.volume))
            if self.statistic == "mean":
                raise ValueError(
                    f"volume is {self.volume}, but statistic='mean' does not depend on it. Pass "
                    "statistic='integral', or leave volume out."
                )
        store_checked(self, seed=check_integer("seed", self.seed, minimum=0))
        if self.known_smoothness is None:
            raise ValueError(
                f"smoothness is not given and cannot be read from {type(self.kernel).__name__}. "
                "Pass smoothness=: the nu of a Matern kernel that is about as smooth, or "
                "math.inf for a constant ridge."
            )

    def on(self, domain: Domain) -> DetectorEngine:
        """Prepare the detector for a domain: matrices on arms, points for integration on boxes.

        Args:
            domain: The domain on which inputs are uniformly distributed, without contexts.
        """
        return DetectorEngine(self, domain)

    @property
    def known_smoothness(self) -> float | None:
        """``a``, given or read from the kernel; None if neither is possible."""
        if self.smoothness is not None:
            return float(self.smoothness)
        kernel = self.kernel
        while isinstance(kernel, ScaleKernel):
            kernel = kernel.base_kernel
        if isinstance(kernel, MaternKernel):
            return float(kernel.nu)
        return math.inf if isinstance(kernel, RBFKernel) else None

    def ridges(self, half_sizes: Tensor, dim: int) -> Tensor:
        r"""Return :math:`n \rho_n = c \, n^{1 - r}` for half sizes ``n``.

        Args:
            half_sizes: ``n``, positive, float64.
            dim: ``d``, contexts included.
        """
        assert self.known_smoothness is not None
        return self.ridge * half_sizes ** (1.0 - rate_exponent(self.known_smoothness, dim))

    def thresholds(self, half_sizes: Tensor, dim: int, prior_variance: float) -> Tensor:
        """Return the thresholds in squared outcome units.

        Args:
            half_sizes: ``n``, positive, float64.
            dim: ``d``, contexts included.
            prior_variance: The prior variance of the kernel.
        """
        values = self.threshold.values(half_sizes, self.known_smoothness, dim)
        return values * prior_variance if self.threshold.units == "prior" else values

    def fingerprint(self) -> str:
        """Return a digest that is equal for detectors whose tests are equal."""
        settings = (
            self.ridge,
            self.statistic,
            self.threshold,
            self.smoothness,
            self.prior_mean,
            self.volume,
            self.seed,
        )
        text = fingerprint_kernel(self.kernel) + repr(settings)
        return hashlib.sha256(text.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        """Compare by fingerprint."""
        if not isinstance(other, ChangePointDetector):
            return NotImplemented
        return self.fingerprint() == other.fingerprint()

    def __hash__(self) -> int:
        """Hash the numbers, which cannot change."""
        return hash((self.ridge, self.statistic, self.smoothness, self.prior_mean, self.seed))

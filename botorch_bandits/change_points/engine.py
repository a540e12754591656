"""A detector on a domain: what can be prepared once is prepared once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from botorch_bandits.change_points.contextual import means_in_contexts
from botorch_bandits.change_points.measure import Measure
from botorch_bandits.change_points.result import ChangePointTest, deciding_tail
from botorch_bandits.change_points.spaces import Located, Space, space_of
from botorch_bandits.change_points.tails import quadratic_forms, tail_coefficients
from botorch_bandits.checks import DTYPE, check_matrix, check_vector
from botorch_bandits.domains import Arms, Box, Domain

if TYPE_CHECKING:
    from botorch_bandits.change_points.detector import ChangePointDetector
    from botorch_bandits.change_points.stream import DetectorStream


class DetectorEngine:
    """Tests streams of samples on one domain; made by :meth:`ChangePointDetector.on`.

    It is a value: no test changes it.

    Args:
        detector: The settings.
        domain: Where inputs are uniformly distributed, without contexts.

    Raises:
        TypeError: If the domain is neither arms nor a box.
    """

    def __init__(self, detector: ChangePointDetector, domain: Domain) -> None:
        """See the class."""
        self.detector, self.domain = detector, domain
        self.measure = Measure.of(domain, detector.seed)  # points and weights for averages
        self._ridges: dict[int, Tensor] = {}  # by dimension, as many as were needed
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
        """Of the kernel, on the domain."""
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
            X: ``N x d`` inputs of the domain, drawn uniformly. On arms ``arms`` is faster.
            Y: ``N`` outcomes, or a column of them.
            arms: ``N`` arm numbers (int64) in place of ``X``.
            contexts: ``N x c``, if the kernel is on ``[context, input]``. The statistic of a tail
                then averages over its contexts as well. That needs contexts which come
                independently and from one distribution: where they come in blocks, both halves see
                different contexts, and the statistic is large without any change.

        Raises:
            TypeError: If a tensor has another dtype than float64 (arms: int64), or both or neither
                of ``X`` and ``arms`` are given.
            ValueError: If shapes do not fit, an entry is not finite, or a point is not in the
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
        """Return an empty stream: samples come one by one, with a test after each."""
        from botorch_bandits.change_points.stream import DetectorStream

        return DetectorStream(self)

    def ridges(self, num_tails: int, context_dim: int = 0) -> Tensor:
        """Return ``n rho_n`` for ``n = 1 .. num_tails``.

        Args:
            num_tails: How many.
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
            num_tails: How many.
            context_dim: The dimension of the contexts.
            prior_variance: The kernel's largest variance; the detector's own if omitted.
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
        """Make the result of all tails, newest sample first everywhere.

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
        """Put a result together; see :func:`deciding_tail` for the decision."""
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
            X: Inputs, where the domain is a box.
            arms: Arm numbers, where it is a set of arms.
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

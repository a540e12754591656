"""A stream of samples, tested after each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from botorch_bandits.change_points.result import ChangePointTest
from botorch_bandits.change_points.spaces import Located
from botorch_bandits.change_points.tails import tail_coefficients
from botorch_bandits.checks import check_number, check_vector

if TYPE_CHECKING:
    from botorch_bandits.change_points.engine import DetectorEngine

REMEMBERED = 64
"""Halves up to this size are fitted once: the newer half is the older one ``n`` samples later."""


class DetectorStream:
    """Samples since the last reset, oldest first; made by :meth:`DetectorEngine.stream`.

    Results are those of :meth:`DetectorEngine.test` on all samples since the last reset, up to
    rounding. One sample more costs one row of each matrix, and the fits of halves that were not
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
        """How many samples came since the last reset."""
        return self._count

    def reset(self) -> None:
        """Forget all samples."""
        self._count = 0
        nothing = self._engine.measure.points.new_empty
        # newest first: samples fill their buffers from the end
        self._kernel, self._gram, self._outcomes = nothing(0, 0), nothing(0, 0), nothing(0)
        self._located: Located | None = None
        self._inputs: list[Tensor] = []
        self._contexts: list[Tensor] = []
        self._weights: Tensor | None = None

    def observe(
        self, x: Tensor | list[float], y: float, context: Tensor | list[float] | None = None
    ) -> ChangePointTest:
        """Take one sample more and test all tails.

        Args:
            x: ``d`` numbers, a point of the domain.
            y: The outcome.
            context: ``c`` numbers; for all samples since the last reset or for none. With contexts
                everything is computed afresh after each sample.

        Raises:
            TypeError: If a tensor has another dtype than float64.
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
        """Take the outcome of an arm, given by its number, and test all tails.

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
        known = self._contexts[0] if self._contexts else None
        if (known is None) != (context is None):
            raise ValueError(
                "context must be given with every sample since the reset or with none."
            )
        if known is not None and context is not None and len(known) != len(context):
            raise ValueError(f"context has {len(context)} numbers; earlier ones had {len(known)}.")

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
        """Forget a sample that could not be tested."""
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
        """Double the room, samples stay at the end."""
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
        """The weights of older halves that were newer halves, for ``n = 1 .. r``."""
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

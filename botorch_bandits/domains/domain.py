"""What every domain does, and how equal acquisition values are told apart."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from botorch_bandits.checks import check_finite

TIE_TOLERANCE = 1e-9
"""Acquisition values closer than this (relative to max(1, |largest|)) count as equal."""


@dataclass(frozen=True)
class Integral:
    """The integral of a function over a domain.

    Attributes:
        value: The integral.
        standard_error: An estimate of its error; exactly 0 on arms.
    """

    value: float
    standard_error: float


class Domain(ABC):
    """A set of points in ``d`` dimensions from which the bandit chooses.

    A set of your own is a subclass with ``dim``, :meth:`sample`, :meth:`maximize` and
    :meth:`check_point`. The rest is needed where its description says so. A journal records its
    class and attributes, so keep in attributes what tells two sets apart.

    Attributes:
        dim: ``d``.
    """

    dim: int

    @property
    def volume(self) -> float:
        """The volume of a box, the number of arms of a finite set."""
        raise self._lacks("volume")

    @abstractmethod
    def sample(self, num_points: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw points uniformly at random, with replacement.

        Args:
            num_points: How many.
            generator: A CPU generator; torch's global one if omitted.

        Returns:
            A ``num_points x d`` float64 tensor.
        """

    @abstractmethod
    def maximize(self, acquisition: AcquisitionFunction, seed: int = 0) -> tuple[Tensor, float]:
        """Maximise a ``q = 1`` acquisition function over the domain.

        The caller's random numbers are left alone: equal seeds give equal answers.

        Args:
            acquisition: Evaluated on ``b x 1 x d`` tensors.
            seed: Seeds whatever the optimiser draws.

        Returns:
            The maximiser, a ``d``-dimensional tensor, and the value there.
        """

    def in_context(self, context: Tensor) -> Domain:
        """Return the domain of ``(context, point)`` with this context; only points are chosen.

        Needed for contexts, and for ``TimeVaryingKernel``.

        Args:
            context: ``c`` numbers, float64.

        Returns:
            A domain in ``c + d`` dimensions, the context's first.
        """
        raise self._lacks("in_context")

    def integrate(self, function: Callable[[Tensor], Tensor], seed: int = 0) -> Integral:
        """Integrate a function over the domain (Lebesgue on boxes, a sum over arms).

        The mean over the domain is the integral divided by :attr:`volume`.

        Args:
            function: Maps an ``n x d`` tensor to ``n`` values.
            seed: Seeds the scrambling of the quasi-random points on a box.
        """
        raise self._lacks("integrate")

    @abstractmethod
    def check_point(self, name: str, x: Any) -> Tensor:
        """Return ``x`` as a ``d``-dimensional float64 tensor if it lies in the domain.

        Args:
            name: Of the argument, for errors.
            x: A point: a float64 tensor or a list of numbers.

        Raises:
            TypeError: If it is a tensor of another dtype.
            ValueError: If it has another shape, is not finite, or lies outside.
        """

    def _lacks(self, name: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} has no {name}, which is needed here. Define it, or take "
            "arms: Arms(domain.sample(1000))."
        )


def evaluate(function: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    """Return a function's values at points, one finite value a point."""
    values = function(points)
    if values.shape != points.shape[:1]:
        raise ValueError(
            f"the function's values have shape {tuple(values.shape)} at {len(points)} points; they "
            f"must have shape ({len(points)},). A column becomes that with values.squeeze(-1)."
        )
    return check_finite("the function's values", values)


def first_of_the_largest(values: Tensor, check: bool = True) -> Tensor:
    """Return the first index whose value is within the tie tolerance of the largest.

    Args:
        values: ``batch_shape x num_arms`` acquisition values.
        check: Refuse values that are not finite; a GPU must be waited for then.

    Returns:
        ``batch_shape`` indices (int64).

    Raises:
        ValueError: If a value is NaN or infinite.

    Example:
        >>> int(first_of_the_largest(torch.tensor([0.0, 1.0 - 1e-12, 1.0], dtype=torch.float64)))
        1
    """
    if values.numel() == values.shape[-1] and values.device.type == "cpu":
        # numpy on the same memory: many small calls of torch cost more than the search
        row = values.detach().numpy().reshape(-1)
        top = float(row.max())  # NaN if any entry is
        if not (math.isfinite(top) and math.isfinite(row.min())):
            check_finite("the acquisition's values", values)
        close = row >= top - TIE_TOLERANCE * max(abs(top), 1.0)
        return torch.full(values.shape[:-1], int(close.argmax()))
    if check:
        check_finite("the acquisition's values", values)
    largest = values.amax(-1, keepdim=True)
    threshold = largest - TIE_TOLERANCE * largest.abs().clamp_min(1.0)
    index = torch.arange(values.shape[-1], device=values.device)
    return torch.where(values >= threshold, index, values.shape[-1]).amin(-1)

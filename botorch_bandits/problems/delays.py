"""Delays after which outcomes arrive, counted in rounds.

The outcome of round ``s`` with delay ``d`` can be used when the query of round ``t`` is chosen if
``d <= t - s``. Delays 0 and 1 are the same, because a query is never chosen with its own outcome
available (Verma, Dai and Low 2022, section 3.1).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from botorch_bandits.checks import check_integer, check_nonnegative, store_checked
from botorch_bandits.random_streams import generator

NEVER = math.inf
"""The delay of an outcome that never arrives: infinity. Its query stays pending."""


class Delays(ABC):
    """Draws the delay of each query; a pure function of seed, round and point.

    Subclass it for delays that depend on the point; no theorem for censoring covers them.
    """

    @abstractmethod
    def draw(self, x: Tensor, stream: torch.Generator) -> float:
        """Return one delay: a whole number of rounds, or :data:`NEVER`.

        Args:
            x: The point that was queried, ``d``-dimensional.
            stream: The source of random numbers.
        """

    def of_query(self, x: Tensor, seed: int, round_number: int) -> float:
        """Return the delay of one query.

        Args:
            x: The point that was queried, ``d``-dimensional.
            seed: The seed of the run.
            round_number: The round in which it was asked, from 1.
        """
        return self.draw(x, generator(seed, round_number, "delay"))


@dataclass(frozen=True)
class ConstantDelay(Delays):
    """The same delay for every query; ``b - 1`` makes batches of ``b`` that overlap.

    Attributes:
        delay: The delay in rounds, at least 0.
    """

    delay: int

    def __post_init__(self) -> None:
        """Check the delay."""
        store_checked(self, delay=check_integer("delay", self.delay, minimum=0))

    def draw(self, x: Tensor, stream: torch.Generator) -> float:
        """See :meth:`Delays.draw`."""
        return float(self.delay)


@dataclass(frozen=True)
class PoissonDelay(Delays):
    """Poisson-distributed delays, as in the experiments of Verma, Dai and Low 2022.

    Attributes:
        mean: The mean in rounds, at least 0.
    """

    mean: float

    def __post_init__(self) -> None:
        """Check the mean."""
        store_checked(self, mean=check_nonnegative("mean", self.mean))

    def draw(self, x: Tensor, stream: torch.Generator) -> float:
        """See :meth:`Delays.draw`."""
        rate = torch.tensor(self.mean, dtype=torch.float64)
        return float(torch.poisson(rate, generator=stream))

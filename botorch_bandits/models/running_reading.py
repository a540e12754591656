"""What a width needs to know of a prior, with the information gain of the present round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from torch import Tensor

from botorch_bandits.confidence.readable_prior import OutputPrior, PriorReading
from botorch_bandits.models.batched_closed_form import BatchedClosedForm


class RunningPosterior(Protocol):
    """A posterior that takes in outcomes and keeps its information gain."""

    @property
    def information_gain(self) -> Tensor:
        """The realised information gain of all observations, ``batch_shape``, in nats."""


@dataclass(frozen=True)
class RunningOutputPrior(OutputPrior):
    """The prior of the one output; its information gain is that of the present round."""

    posterior: RunningPosterior = field(kw_only=True)

    @property
    def information_gain(self) -> Tensor:
        """The realised information gain of all observations, ``batch_shape``, in nats."""
        return self.posterior.information_gain


class RunningReading(PriorReading, ABC):
    """Reads a posterior that takes in outcomes, so that width rules work on it as on any model.

    Args:
        posterior: Its information gain is read anew whenever it is asked for.
        noise_variance: The regularisation, a scalar or ``batch_shape``.
        prior_variance: The prior variance that bounds are measured in.
    """

    def __init__(
        self, posterior: RunningPosterior, noise_variance: Tensor, prior_variance: float
    ) -> None:
        """See the class."""
        self.posterior_transform = None
        self._running = posterior
        self._noise_variance = noise_variance
        self._prior_variance = prior_variance

    @abstractmethod
    def kernel_matrix(self) -> Tensor:
        """Return the prior covariance of the inputs, ``batch_shape x n x n``."""

    @property
    @abstractmethod
    def num_rows(self) -> int | Tensor:  # type: ignore[override]
        """How many observations there are: a number, or one a replicate where they differ."""

    @property
    def num_outputs(self) -> int:
        """One."""
        return 1

    @cached_property
    def priors(self) -> tuple[OutputPrior, ...]:
        """See :class:`PriorReading`."""
        scalar = self._noise_variance.new_tensor
        return (
            RunningOutputPrior(
                kernel_matrix=self.kernel_matrix,
                noise_variance=self._noise_variance,
                prior_variance=scalar(self._prior_variance),
                outcome_scale=scalar(1.0),
                learned=(),
                posterior=self._running,
            ),
        )

    @cached_property
    def active_outputs(self) -> tuple[int, ...]:
        """The one output."""
        return (0,)


class ReplicatesReading(RunningReading):
    """Reads the posteriors of replicates on a box.

    Args:
        posterior: Of all replicates; the prior variance is that of its kernel.
    """

    def __init__(self, posterior: BatchedClosedForm) -> None:
        """See the class."""
        self._posterior = posterior
        noise_variance = posterior.centre.new_tensor(posterior.noise)
        super().__init__(posterior, noise_variance, posterior.outputscale)

    def kernel_matrix(self) -> Tensor:
        """See the base class."""
        return self._posterior.kernel_matrix()

    @property
    def num_rows(self) -> int:
        """How many rows each replicate has."""
        return self._posterior.num_rows

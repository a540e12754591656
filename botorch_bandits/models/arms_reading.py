"""What a width needs to know of a prior on arms, with the running information gain."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from botorch_bandits.confidence.readable_prior import OutputPrior, PriorReading
from botorch_bandits.models.arms_posterior import ArmsPosterior


@dataclass(frozen=True)
class ArmsOutputPrior(OutputPrior):
    """The prior of the one output on arms; its information gain is that of the present round."""

    posterior: ArmsPosterior = field(kw_only=True)

    @property
    def information_gain(self) -> Tensor:
        """The realised information gain of all observations, ``batch_shape``, in nats."""
        return self.posterior.information_gain


class ArmsReading(PriorReading):
    """Reads a posterior on arms, so that width rules work on it as on any model.

    Args:
        posterior: It is read anew whenever it is asked.
        prior_variance: The prior variance that bounds are measured in.
    """

    def __init__(self, posterior: ArmsPosterior, prior_variance: float = 1.0) -> None:
        """See the class."""
        self.posterior_transform = None
        self._posterior = posterior
        self._prior_variance = prior_variance

    @property
    def num_outputs(self) -> int:
        """One."""
        return 1

    @cached_property
    def priors(self) -> tuple[OutputPrior, ...]:
        """See :class:`PriorReading`."""
        posterior = self._posterior
        scalar = posterior.prior.diagonal.new_tensor
        return (
            ArmsOutputPrior(
                kernel_matrix=lambda: posterior.prior.columns(posterior.all_arms),
                noise_variance=posterior.regularisation,
                prior_variance=scalar(self._prior_variance),
                outcome_scale=scalar(1.0),
                learned=(),
                posterior=posterior,
            ),
        )

    @cached_property
    def active_outputs(self) -> tuple[int, ...]:
        """The one output."""
        return (0,)

    @property
    def num_rows(self) -> int | Tensor:  # type: ignore[override]
        """How many observations there are: a number, or one a replicate where they differ."""
        total = self._posterior.counts.sum(-1)
        first = total.reshape(-1)[0]
        return int(first) if bool((total == first).all()) else total

"""What a width needs to know of a prior on arms, with the running information gain."""

from __future__ import annotations

from torch import Tensor

from botorch_bandits.models.arms_posterior import ArmsPosterior
from botorch_bandits.models.running_reading import RunningReading


class ArmsReading(RunningReading):
    """Reads a posterior on arms, so that width rules work on it as on any model.

    Args:
        posterior: It is read anew whenever it is asked.
        prior_variance: The prior variance that bounds are measured in.
    """

    def __init__(self, posterior: ArmsPosterior, prior_variance: float = 1.0) -> None:
        """See the class."""
        self._posterior = posterior
        super().__init__(posterior, posterior.regularisation, prior_variance)

    def kernel_matrix(self) -> Tensor:
        """See the base class."""
        return self._posterior.prior.columns(self._posterior.all_arms)

    @property
    def num_rows(self) -> int | Tensor:  # type: ignore[override]
        """How many observations there are: a number, or one a replicate where they differ."""
        total = self._posterior.counts.sum(-1)
        first = total.reshape(-1)[0]
        return int(first) if bool((total == first).all()) else total

"""What acquisition functions of a penalised reward have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.affine_outcomes import AffineOutcomes
from botorch_bandits.acquisition.lagrangian_options import (
    OutputWidths,
    check_multipliers,
    check_outputs,
    check_penalty,
)
from botorch_bandits.acquisition.recipe import BanditAcquisition
from botorch_bandits.confidence import Guarantee
from botorch_bandits.penalties import Linear, Penalty


class LagrangianAcquisition(BanditAcquisition):
    """Multipliers, a penalty, and a width for each output of the model."""

    multipliers: Tensor
    widths: Tensor
    penalty: Penalty
    delta: float
    posterior_transform: PosteriorTransform | None
    _output_widths: OutputWidths

    def _prepare_outputs(
        self,
        model: Model,
        multipliers: Tensor | Sequence[float],
        penalty: Penalty | None,
        posterior_transform: PosteriorTransform | None,
        scale: float,
        **options: Any,
    ) -> None:
        """Take what the constructor was given; ``options`` are those of the widths."""
        name = type(self).__name__
        self.penalty = Linear() if penalty is None else check_penalty(penalty)
        self.posterior_transform = posterior_transform
        here = next(model.parameters(), torch.empty(0)).device
        self.register_buffer("multipliers", check_multipliers(multipliers).to(here))
        num_outputs = 1 + len(self.multipliers)
        check_outputs(name, model, num_outputs, posterior_transform)
        self._output_widths = OutputWidths(
            name, model, num_outputs, posterior_transform, scale, **options
        )
        self.register_buffer("widths", self._output_widths.compute().to(here))

    @property
    def num_constraints(self) -> int:
        """How many constraints there are."""
        return len(self.multipliers)

    def _compute_widths(self) -> None:
        self.widths = self._output_widths.compute().to(self.widths.device)

    def _base_guarantee(self, method: str) -> Guarantee:
        """Return what the widths of all outputs promise together."""
        guarantee = self._output_widths.guarantee(method, self.delta)
        if isinstance(self.posterior_transform, AffineOutcomes | None):
            return guarantee
        return guarantee.with_gaps("posterior_transform changes what is modelled")

    def _penalised(self, reward: Tensor, constraints: Tensor) -> Tensor:
        """Return ``f - sum_j kappa_j (psi(g_j) - 1)``.

        Args:
            reward: ``batch_shape`` values ``f``.
            constraints: ``batch_shape x num_constraints`` values ``g``.
        """
        return reward - (self.multipliers * self.penalty.excess(constraints)).sum(dim=-1)


def check_no_overflow(values: Tensor) -> Tensor:
    """Return values of a penalised reward if they are finite or NaN.

    Raises:
        OverflowError: If one is infinite.
    """
    if bool(torch.isinf(values).any()):
        raise OverflowError(
            "a penalty is too large for float64. Use penalty=Polynomial(c, n), which grows "
            "more slowly, a smaller c, or smaller multipliers."
        )
    return values

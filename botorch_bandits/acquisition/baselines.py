"""Baselines that the papers compare with, in the same loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, LogExpectedImprovement
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.recipe import (
    BanditAcquisition,
    check_model,
    check_pending,
    check_single_point,
)
from botorch_bandits.checks import check_double, check_number, check_one_of
from botorch_bandits.confidence import Guarantee
from botorch_bandits.domains import Domain
from botorch_bandits.models.condition import hallucinate

INCUMBENTS = ("posterior_mean", "observed")


@dataclass(frozen=True)
class RandomSearch:
    """Choose every point uniformly at random, whatever comes back."""


class ExpectedImprovement(BanditAcquisition, LogExpectedImprovement):
    """BoTorch's logarithmic expected improvement, with a choice of incumbent and pending points.

    Under noise the largest OBSERVED reward drifts above the optimum and expected improvement
    goes flat; the largest posterior mean at an observed point does not.

    Args:
        model: A fitted BoTorch model in float64.
        best_f: The incumbent's value; computed if omitted.
        incumbent: ``"posterior_mean"`` or ``"observed"``; how ``best_f`` is computed.
        X_observed: ``n x d`` observed inputs; needed for ``"posterior_mean"``.
        Y_observed: ``n x m`` observed outcomes of the model's ``m`` outputs; needed for
            ``"observed"``.
        posterior_transform: Needed for a model with several outputs.
        maximize: If False, the reward is minimised.
        X_pending: ``n x d`` points whose outcomes have not arrived; they enter at the posterior
            mean.

    Example:
        >>> from botorch.models import SingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> acqf = ExpectedImprovement(SingleTaskGP(X, X.sin()), X_observed=X)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    def __init__(
        self,
        model: Model,
        *,
        best_f: float | None = None,
        incumbent: str = "posterior_mean",
        X_observed: Tensor | None = None,
        Y_observed: Tensor | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        check_one_of("incumbent", incumbent, INCUMBENTS)
        check_model(model)
        super().__init__(
            model,
            best_f=_best(model, incumbent, X_observed, Y_observed, posterior_transform, maximize)
            if best_f is None
            else torch.tensor(check_number("best_f", best_f), dtype=torch.float64),
            posterior_transform=posterior_transform,
            maximize=maximize,
        )
        self.base_model = model
        self.set_X_pending(X_pending)

    @classmethod
    def complete_options(cls, options: dict[str, Any], domain: Domain | None) -> dict[str, Any]:
        """Check the options; see the base class."""
        check_one_of("incumbent", options.get("incumbent", "posterior_mean"), INCUMBENTS)
        if options.get("best_f") is not None:
            check_number("best_f", options["best_f"])
        return options

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Take points as pending, starting again from the user's model.

        Args:
            X_pending: ``n x d`` points, or None.
        """
        pending = check_pending(X_pending)
        if pending is not None:
            pending = pending.detach().clone()
        # first what may be refused: a refusal leaves the old points and their model in place
        self.model = self.base_model if pending is None else hallucinate(self.base_model, pending)
        AcquisitionFunction.set_X_pending(self, pending)

    def guarantee(self) -> Guarantee:
        """Say that there is none."""
        return Guarantee(
            method="expected improvement",
            gaps=("no width is involved, so no theorem here applies",),
        )

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the logarithm of the expected improvement.

        Args:
            X: ``batch_shape x 1 x d`` points, float64.

        Returns:
            ``batch_shape`` values.
        """
        check_single_point(self, X)
        return super().forward(X)


def _best(
    model: Model,
    incumbent: str,
    X_observed: Tensor | None,
    Y_observed: Tensor | None,
    posterior_transform: PosteriorTransform | None,
    maximize: bool,
) -> Tensor:
    name, rows = (
        ("Y_observed", Y_observed) if incumbent == "observed" else ("X_observed", X_observed)
    )
    if rows is None:
        raise ValueError(
            f"ExpectedImprovement with incumbent={incumbent!r} needs {name}= or best_f=."
        )
    check_double(name, rows)
    if rows.shape[-2] == 0:
        return rows.new_zeros(())  # nothing observed: improvement over the prior mean
    if incumbent == "observed":
        values = (
            rows.squeeze(-1) if posterior_transform is None else posterior_transform.evaluate(rows)
        )
    else:
        with torch.no_grad():
            posterior = model.posterior(rows, posterior_transform=posterior_transform)
            values = posterior.mean.squeeze(-1)
    # ``members x 1``, one incumbent a member, for an ensemble or a batched model
    keepdim = values.dim() > 1
    return values.amax(-1, keepdim=keepdim) if maximize else values.amin(-1, keepdim=keepdim)

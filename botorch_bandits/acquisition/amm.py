r"""AMM: a plain width that is tighter than IGP-UCB's.

.. math:: w_t = \sqrt{B^2 + c \ln\det(I + K / \lambda) + 2 c \ln(1/\delta)}, \qquad c = R^2/\lambda

Source: Flynn and Reeb, *Tighter confidence bounds for sequential kernel regression*, arXiv
2403.12732, 2024.
"""

from __future__ import annotations

from typing import Any

from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.arms_rules import ArmsRule, width_arms_rule
from botorch_bandits.acquisition.recipe import check_required
from botorch_bandits.acquisition.width_upper_confidence_bound import WidthUpperConfidenceBound
from botorch_bandits.confidence import AMMWidth
from botorch_bandits.confidence.widths import check_scale
from botorch_bandits.domains import Domain


class AMMUpperConfidenceBound(WidthUpperConfidenceBound):
    r"""Upper confidence bound with the AMM width at the model's own regularisation.

    It holds for every ``lam``, under the assumptions of IGP-UCB: norm at most ``B`` in the
    UNIT-VARIANCE kernel, R-sub-Gaussian noise, both in raw outcome units.
    :class:`~botorch_bandits.DMMUpperConfidenceBound` is tighter still, at the price of an
    eigendecomposition.

    Args:
        model: A fitted BoTorch model in float64 whose prior can be read.
        rkhs_bound: ``B``. One number, or one an output.
        noise_bound: ``R``, a standard deviation for Gaussian noise. One number, or one an output.
        delta: The bound fails with at most this probability.
        scale: See :class:`WidthUpperConfidenceBound`.
        posterior_transform: See :class:`WidthUpperConfidenceBound`.
        maximize: See :class:`WidthUpperConfidenceBound`.
        X_pending: See :class:`WidthUpperConfidenceBound`.

    Example:
        >>> import torch
        >>> from botorch.models import SingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = SingleTaskGP(X, X.sin())
        >>> acqf = AMMUpperConfidenceBound(model, rkhs_bound=2.0, noise_bound=0.1)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    def __init__(
        self,
        model: Model,
        *,
        rkhs_bound: float | tuple[float, ...],
        noise_bound: float | tuple[float, ...],
        delta: float = 0.1,
        scale: float = 1.0,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(
            model,
            AMMWidth(rkhs_bound, noise_bound, delta),
            scale=scale,
            posterior_transform=posterior_transform,
            maximize=maximize,
            X_pending=X_pending,
        )

    @classmethod
    def complete_options(cls, options: dict[str, Any], domain: Domain | None) -> dict[str, Any]:
        """Check the ingredients; see the base class."""
        check_required(cls.__name__, options, ("rkhs_bound", "noise_bound"))
        check_scale(options.get("scale", 1.0))
        AMMWidth(options["rkhs_bound"], options["noise_bound"], options.get("delta", 0.1))
        return options

    @classmethod
    def arms_rule(cls, options: dict[str, Any]) -> ArmsRule | None:
        """See the base class."""
        delta = options.get("delta", 0.1)
        rule = AMMWidth(options["rkhs_bound"], options["noise_bound"], delta)
        return width_arms_rule(rule, options)

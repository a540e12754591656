r"""GP-UCB-CPD: the upper confidence bound of a policy that restarts.

.. math:: w_t = \sqrt{D \, t^{d(d+1) / (2a + d(d+1))} \ln^4 T}

Source: Avanesov, *How to gamble with non-stationary X-armed bandits and have no
regrets*, arXiv 1908.07636, Theorem 3.1. The restarts are those of
:class:`~botorch_bandits.change_points.ChangePointRestart`, which goes with any other acquisition
function as well.
"""

from __future__ import annotations

from typing import Any

from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.arms_rules import ArmsRule, width_arms_rule
from botorch_bandits.acquisition.recipe import check_domain_size, check_required
from botorch_bandits.acquisition.width_upper_confidence_bound import WidthUpperConfidenceBound
from botorch_bandits.confidence.change_point_widths import (
    PUBLISHED_CONSTANT,
    ChangePointWidth,
)
from botorch_bandits.domains import Domain

INGREDIENTS = ("horizon", "smoothness", "dim", "width_constant")


class ChangePointUpperConfidenceBound(WidthUpperConfidenceBound):
    """The upper confidence bound of GP-UCB-CPD (Avanesov, Theorem 3.1).

    Its width grows with the queries in the model, hence starts again small after a reset.

    Args:
        model: A fitted BoTorch model in float64, of the data since the last reset.
        horizon: ``T``, the number of rounds in all.
        smoothness: ``a``, the ``nu`` of the Matern kernel.
        dim: ``d``; in a loop it may be omitted.
        width_constant: ``D``; 0.02 in the paper's experiments.
        scale: See :class:`WidthUpperConfidenceBound`.
        round_number: The round since the last reset; see :class:`WidthUpperConfidenceBound`.
        posterior_transform: See :class:`WidthUpperConfidenceBound`.
        maximize: See :class:`WidthUpperConfidenceBound`.
        X_pending: See :class:`WidthUpperConfidenceBound`.

    Example:
        >>> import torch
        >>> from botorch.models import SingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> acqf = ChangePointUpperConfidenceBound(
        ...     SingleTaskGP(X, X.sin()), horizon=1200, smoothness=2.5, dim=1
        ... )
        >>> round(float(acqf.width), 4)
        8.3172
    """

    def __init__(
        self,
        model: Model,
        *,
        horizon: int,
        smoothness: float,
        dim: int,
        width_constant: float = PUBLISHED_CONSTANT,
        scale: float = 1.0,
        round_number: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(
            model,
            ChangePointWidth(horizon, smoothness, dim, width_constant),
            scale=scale,
            round_number=round_number,
            posterior_transform=posterior_transform,
            maximize=maximize,
            X_pending=X_pending,
        )

    @classmethod
    def complete_options(cls, options: dict[str, Any], domain: Domain | None) -> dict[str, Any]:
        """Take the dimension from the domain; see the base class."""
        if options.get("dim") is None:
            if domain is None:
                ChangePointWidth(**{"dim": 1, **_ingredients(cls, options, needs_dim=False)})
                return options
            options["dim"] = domain.dim
        ChangePointWidth(**_ingredients(cls, options))
        check_domain_size(cls.__name__, {"dim": options["dim"]}, domain)
        return options

    @classmethod
    def arms_rule(cls, options: dict[str, Any]) -> ArmsRule | None:
        """See the base class."""
        return width_arms_rule(ChangePointWidth(**_ingredients(cls, options)), options)


def _ingredients(cls: type, options: dict[str, Any], needs_dim: bool = True) -> dict[str, Any]:
    check_required(cls.__name__, options, ("horizon", "smoothness", *(("dim",) * needs_dim)))
    return {name: options[name] for name in INGREDIENTS if options.get(name) is not None}

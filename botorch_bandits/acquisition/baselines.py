"""Rules that only exploit, only explore, or do not look: what every paper compares with."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import average_over_ensemble_models, t_batch_mode_transform
from torch import Tensor

from botorch_bandits.acquisition.arms_rules import ArmsRule, OneMomentArmsRule
from botorch_bandits.acquisition.pending import HallucinatesPending
from botorch_bandits.acquisition.recipe import check_model, check_single_point
from botorch_bandits.confidence import Guarantee


@dataclass(frozen=True)
class RandomSearch:
    """Choose every point uniformly at random, whatever comes back."""


class _OneMoment(HallucinatesPending, AnalyticAcquisitionFunction):
    """What the two rules share."""

    def __init__(
        self,
        model: Model,
        *,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(check_model(model), posterior_transform=posterior_transform)
        self.maximize = maximize
        self.base_model = model
        self.set_X_pending(X_pending)

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the rule.

        Args:
            X: ``batch_shape x 1 x d`` points, float64.

        Returns:
            ``batch_shape`` values.
        """
        check_single_point(self, X)
        return self._evaluate(X)

    @t_batch_mode_transform(expected_q=1)
    @average_over_ensemble_models
    def _evaluate(self, X: Tensor) -> Tensor:
        mean, sigma = self._mean_and_sigma(X, min_var=1e-18)
        assert sigma is not None
        return self._choose(mean, sigma).squeeze(-1)

    @abstractmethod
    def _choose(self, mean: Tensor, sigma: Tensor) -> Tensor: ...

    def guarantee(self) -> Guarantee:
        """Say that there is none."""
        return Guarantee(
            method=type(self).__name__,
            gaps=("it does not weigh exploration against exploitation",),
        )


class MeanOnly(_OneMoment):
    """Choose the largest posterior mean: exploit, never explore.

    Args:
        model: A fitted BoTorch model in float64.
        posterior_transform: Needed for a model with several outputs.
        maximize: If False, the reward is minimised.
        X_pending: ``n x d`` points whose outcomes have not arrived; they do not move the mean.

    Example:
        >>> import torch
        >>> from botorch.models import SingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> MeanOnly(SingleTaskGP(X, X.sin()))(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    def _choose(self, mean: Tensor, sigma: Tensor) -> Tensor:
        return mean if self.maximize else -mean

    @classmethod
    def arms_rule(cls, options: dict[str, Any]) -> ArmsRule | None:
        """See the base class."""
        if options.get("posterior_transform") is not None:
            return None
        return OneMomentArmsRule(uses_mean=True, maximize=options.get("maximize", True))


class VarianceOnly(_OneMoment):
    """Choose the largest posterior standard deviation: explore, never exploit.

    Args:
        model: A fitted BoTorch model in float64.
        posterior_transform: Needed for a model with several outputs.
        maximize: If False, the value is minus the standard deviation, as in BoTorch.
        X_pending: ``n x d`` points whose outcomes have not arrived; they count as known.

    Example:
        >>> import torch
        >>> from botorch.models import SingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> VarianceOnly(SingleTaskGP(X, X.sin()))(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    def _choose(self, mean: Tensor, sigma: Tensor) -> Tensor:
        # without data sigma does not depend on X; its zero gradient must exist
        sigma = sigma + 0.0 * mean
        return sigma if self.maximize else -sigma

    @classmethod
    def arms_rule(cls, options: dict[str, Any]) -> ArmsRule | None:
        """See the base class."""
        if options.get("posterior_transform") is not None:
            return None
        return OneMomentArmsRule(uses_mean=False, maximize=options.get("maximize", True))

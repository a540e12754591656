r"""Thompson sampling for delayed feedback: pending queries are censored at the minimum.

Source: Verma, Dai and Low, *Bayesian optimization under stochastic delayed feedback*, ICML 2022:
GP-TS-SDF, Theorem 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.censored_state import (
    CensorsPending,
    build_settings,
    check_censored_options,
)
from botorch_bandits.acquisition.ringing import DEFAULT_TOLERANCE
from botorch_bandits.acquisition.thompson_sampling import GPThompsonSampling
from botorch_bandits.confidence import Guarantee
from botorch_bandits.domains import Domain


class CensoredThompsonSampling(CensorsPending, GPThompsonSampling):
    r"""GP-TS-SDF (Verma, Dai and Low 2022): a draw of the censored posterior, scaled by ``nu_t``.

    .. math:: f_t \sim GP(\mu_{t-1}, \nu_t^2 k_{t-1})

    with ``delta / 2`` in place of ``delta`` in the width: the printed form has ``ln(4/delta)``.
    Each :meth:`set_X_pending` censors these points, starting from the user's model, and draws
    again.

    Args:
        model: See :class:`~botorch_bandits.CensoredUpperConfidenceBound`.
        minimum: See there.
        minimum_proxy: See there.
        outcome_bound: See there.
        rkhs_bound: See there.
        noise_bound: See there.
        delta: The confidence bound fails with at most half of this probability.
        any_lambda: See there.
        bounded_outcomes: See there.
        window: See there.
        max_delay: See there.
        units: See there.
        width: See there; 1 without ``outcome_bound`` is plain Thompson sampling of the censored
            posterior.
        scale: A factor on the scale of the draw.
        pseudo_noise: See there.
        on_lower: See there.
        ringing_tolerance: See there.
        X_observed: See there.
        Y_observed: See there.
        choices: ``num_points x d`` points to draw on exactly; only they can be evaluated then.
        posterior_transform: See there.
        X_pending: See there.
        seed: See :class:`~botorch_bandits.GPThompsonSampling`.

    Raises:
        TypeError: If the model, ``choices`` or ``X_pending`` is not float64.
        ValueError: If an ingredient is missing or infeasible, an outcome is below the minimum, or
            the model's outcome transform maps the minimum to no finite number (as ``Log`` does
            with 0).
        UnsupportedError: If the model cannot be conditioned or drawn from.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import BanditGP
        >>> X = torch.tensor([[0.1], [0.6]], dtype=torch.float64)
        >>> model = BanditGP(X, X.sin(), kernel=RBFKernel(), noise=1.1)
        >>> acqf = CensoredThompsonSampling(model, minimum=0.0, width=1.0, X_pending=X, seed=0)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([2])
    """

    as_theorem: ClassVar[Mapping[str, Any]] = MappingProxyType({"window": "all"})
    """Options as printed: the sum has the last ``m`` queries; pass ``max_delay=m``."""

    as_published: ClassVar[Mapping[str, Any]] = MappingProxyType({"width": 1.0})
    """Options of the authors' code: draws without ``nu_t`` (leave ``outcome_bound`` out)."""

    def __init__(
        self,
        model: Model,
        *,
        minimum: float | tuple[float, ...] | None = None,
        minimum_proxy: float | None = None,
        outcome_bound: float | tuple[float, ...] | None = None,
        rkhs_bound: float | tuple[float, ...] | None = None,
        noise_bound: float | tuple[float, ...] | None = None,
        delta: float = 0.1,
        any_lambda: bool = False,
        bounded_outcomes: bool = False,
        window: str = "pending",
        max_delay: int | None = None,
        units: str = "outcome",
        width: float | None = None,
        scale: float = 1.0,
        pseudo_noise: float = 0.0,
        on_lower: str = "error",
        ringing_tolerance: float | None = DEFAULT_TOLERANCE,
        X_observed: Tensor | None = None,
        Y_observed: Tensor | None = None,
        choices: Tensor | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        seed: int | None = None,
    ) -> None:
        """See the class."""
        censoring, rule = build_settings(
            minimum=minimum,
            minimum_proxy=minimum_proxy,
            outcome_bound=outcome_bound,
            rkhs_bound=rkhs_bound,
            noise_bound=noise_bound,
            delta=delta,
            any_lambda=any_lambda,
            bounded_outcomes=bounded_outcomes,
            window=window,
            max_delay=max_delay,
            units=units,
            width=width,
            pseudo_noise=pseudo_noise,
            on_lower=on_lower,
            ringing_tolerance=ringing_tolerance,
            halves_delta=True,
        )
        super().__init__(
            model,
            width=1.0,
            delta=delta,
            scale=scale,
            choices=choices,
            posterior_transform=posterior_transform,
            seed=seed,
        )
        self.rule = rule
        self._censoring = censoring
        self._X_observed, self._Y_observed = X_observed, Y_observed
        self._num_draws = -1
        self.set_X_pending(X_pending)

    @classmethod
    def complete_options(cls, options: dict[str, Any], domain: Domain | None) -> dict[str, Any]:
        """Check the ingredients, and draw on the arms of a finite domain.

        Args:
            options: Constructor arguments.
            domain: Where the acquisition will be maximised; None if that is not known yet.
        """
        check_censored_options(options)
        plain = {"choices": options["choices"]} if "choices" in options else {}
        completed = super().complete_options({"width": 1.0, **plain}, domain)
        return {**options, **{k: v for k, v in completed.items() if k == "choices"}}

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Censor these points, starting again from the user's model, and draw again.

        Args:
            X_pending: ``n x d`` points, or None.
        """
        if self._censoring is not None:  # the base class calls this before all is there
            width = self._censor(self.base_model, X_pending, maximize=True)
            self.width = width.to(self.width.device)
            X_pending = self.X_pending
        GPThompsonSampling.set_X_pending(self, X_pending)

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers this draw with this model, or why none does."""
        guarantee = self.rule.guarantee(self._gain_reading(), 1)
        gaps = list(self._censoring_gaps())
        if self.arms is None:
            gaps.append(
                "Theorem 3 draws on a finite set; a pathwise draw approximates a draw on the box"
            )
        return self._of_draws(guarantee).with_gaps(*gaps)

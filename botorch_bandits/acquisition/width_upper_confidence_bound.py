r"""The upper confidence bound of any width rule: what GP-UCB, IGP-UCB and their kin share.

.. math:: a_t(x) = \mu_{t-1}(x) + w_t \, \sigma_{t-1}(x)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.generation import gen_candidates_batched
from botorch_bandits.acquisition.pending import HallucinatesPending
from botorch_bandits.acquisition.recipe import (
    check_model,
    check_pending,
    check_single_point,
)
from botorch_bandits.checks import check_integer
from botorch_bandits.confidence import Guarantee, PriorReading, UnreadablePriorError, WidthRule
from botorch_bandits.confidence.rules import WIDTH, fit_to_batch
from botorch_bandits.confidence.widths import check_scale

MINIMUM_VARIANCE = 1e-18
"""Posterior variances are clamped here: a wide bound would make a larger clamp visible."""


MAXIMUM_ROWS_FOR_DIFFERENCES = 256
"""Above it an evaluation's cost, quadratic in the rows, outweighs what a step costs otherwise."""


class ClosedFormBound:
    """An upper confidence bound without automatic differentiation.

    Args:
        posterior: A model's :class:`~botorch_bandits.models.closed_form.ClosedForm`, or that of
            replicates: points, values and gradients then have a first dimension for these.
        width: The factor of the standard deviation; for replicates ``num_replicates x 1``.
        sign: 1 to maximise the reward, -1 to minimise it.
    """

    def __init__(self, posterior: Any, width: float | Tensor, sign: float) -> None:
        """See the class."""
        self.posterior = posterior
        self.width = width
        self.sign = sign

    @property
    def has_cheap_gradients(self) -> bool:
        """Whether ``d`` more gradients at each point cost less than the steps that they save.

        The kinks of a Matern kernel with ``nu = 1/2`` would spoil their differences.
        """
        is_smooth = self.posterior.kernel.smoothness > 0.5
        return is_smooth and self.posterior.num_rows <= MAXIMUM_ROWS_FOR_DIFFERENCES

    def value(self, X: Tensor) -> Tensor:
        """Return the ``b`` values at ``b x d`` points."""
        mean, variance = self.posterior.mean_and_variance(X)
        sigma: Tensor = variance.clamp_min(MINIMUM_VARIANCE).sqrt_()
        return sigma.mul_(self.width).add_(mean, alpha=self.sign)

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ``b`` values and ``b x d`` gradients at ``b x d`` points."""
        mean, variance, mean_gradient, variance_gradient = self.posterior.value_and_gradient(X)
        if self.sign < 0.0:
            mean, mean_gradient = -mean, -mean_gradient
        sigma = variance.clamp_min(MINIMUM_VARIANCE).sqrt()
        slope = torch.where(variance >= MINIMUM_VARIANCE, 0.5 * self.width / sigma, 0.0)
        gradient = torch.addcmul(mean_gradient, slope.unsqueeze(-1), variance_gradient)
        return sigma.mul_(self.width).add_(mean), gradient


class WidthUpperConfidenceBound(HallucinatesPending, UpperConfidenceBound):
    r"""Upper confidence bound whose width is a :class:`~botorch_bandits.confidence.WidthRule`.

    The user's model is never changed. Pending points shrink the posterior variance as if their
    outcomes were known to equal the posterior mean (hallucination, as in GP-BUCB); the width
    keeps the information gain of the observed data. No theorem covers the bound then.

    Args:
        model: A fitted BoTorch model in float64.
        rule: Computes the width from the model's prior and the round.
        scale: A factor on the width. Only 1 keeps a guarantee.
        round_number: The round ``t`` of the first point that is chosen; the model's rows plus
            pending points plus 1 if omitted.
        posterior_transform: Needed for a model with several outputs.
        maximize: If False, the reward is minimised: the value is ``-mean + width * sigma``.
        X_pending: ``n x d`` points whose outcomes have not arrived.

    Raises:
        TypeError: If the model or ``X_pending`` is not float64.
        ValueError: If an ingredient is infeasible or the model's prior is needed but cannot be
            read.
        UnsupportedError: If points are pending and the model cannot be conditioned.
    """

    beta: Tensor

    def __init__(
        self,
        model: Model,
        rule: WidthRule,
        *,
        scale: float = 1.0,
        round_number: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(
            check_model(model),
            beta=torch.zeros((), dtype=torch.float64),
            posterior_transform=posterior_transform,
            maximize=maximize,
        )
        self.base_model = model
        self.rule = rule
        self.scale = check_scale(scale)
        self._reading = PriorReading(model, posterior_transform)
        pending = check_pending(X_pending)
        self._first_round = (
            None
            if round_number is None
            else check_integer("round_number", round_number, minimum=1)
            - (0 if pending is None else len(pending))
        )
        self.set_X_pending(X_pending)

    @property
    def is_optimistic(self) -> bool:
        """See the base class."""
        return self.rule.is_uniform

    @property
    def width(self) -> Tensor:
        """The factor of the posterior standard deviation; the model's batch shape."""
        return self.beta.sqrt().squeeze(-1) if self.beta.dim() else self.beta.sqrt()

    @property
    def closed_form(self) -> ClosedFormBound | None:
        """The bound's values and gradients in closed form; None if the model has none.

        A model has one if it offers a ``closed_form`` of its posterior mean and variance, as
        :class:`~botorch_bandits.BanditGP` does for stationary kernels. There is none with a
        ``posterior_transform``, nor for a subclass that evaluates something else.
        """
        posterior = getattr(self.model, "closed_form", None)
        evaluated = (type(self).forward, type(self)._mean_and_sigma)
        if (
            posterior is None
            or self.posterior_transform is not None
            or self.beta.numel() != 1
            or evaluated
            != (WidthUpperConfidenceBound.forward, WidthUpperConfidenceBound._mean_and_sigma)
        ):
            return None
        width = float(self.beta.detach().sqrt())
        return ClosedFormBound(posterior, width, 1.0 if self.maximize else -1.0)

    @property
    def gen_candidates(self) -> Callable[..., tuple[Tensor, Tensor]] | None:
        """The generator for ``optimize_acqf`` that suits the bound; None for BoTorch's own."""
        return None if self.closed_form is None else gen_candidates_batched

    @property
    def round_number(self) -> int:
        """The round of the next point: rows plus pending points plus 1, unless given.

        Raises:
            ValueError: If it was not given and the model does not show its rows.
        """
        num_pending = 0 if self.X_pending is None else len(self.X_pending)
        if self._first_round is not None:
            return max(self._first_round + num_pending, 1)
        try:
            return self._reading.num_rows + num_pending + 1
        except UnreadablePriorError as error:
            raise ValueError(f"round_number is needed: {error}. Pass round_number=.") from error

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Take points as pending, starting again from the user's model.

        Args:
            X_pending: ``n x d`` points, or None.

        Raises:
            TypeError: If they are not float64.
            ValueError: If they are not an ``n x d`` matrix of finite numbers.
            UnsupportedError: If the model cannot be conditioned.
        """
        super().set_X_pending(X_pending)
        round_number = self.round_number if self.rule.needs_round else 1
        width = self.scale * self.rule.width(self._reading, round_number)
        if width.dim():
            width = fit_to_batch(WIDTH, width, self.base_model.batch_shape)
        # ``batch_shape x 1`` lines up with BoTorch's ``batch_shape x m`` means and deviations
        beta = (width**2).unsqueeze(-1) if width.dim() else width**2
        self.beta = beta.to(self.beta.device)

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers this bound with this model, or why none does."""
        round_number = self.round_number if self.rule.needs_round else 1
        guarantee = self.rule.guarantee(self._reading, round_number)
        if self.scale != 1.0:
            guarantee = guarantee.with_gaps(f"the width is scaled by {self.scale:g}")
        if is_ensemble(self.base_model):
            guarantee = guarantee.with_gaps("the bound is averaged over the members of an ensemble")
        if self.X_pending is not None:
            guarantee = guarantee.with_gaps(
                f"{len(self.X_pending)} pending points enter at the posterior mean"
            )
        return guarantee

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return mean, standard deviation, width and information gain at one point.

        Args:
            x: A ``d``-dimensional point. The model must not be batched.
        """
        with torch.no_grad():
            value = self(x.unsqueeze(0))  # refuses float32, to which BoTorch would cast the model
            mean, sigma = self._mean_and_sigma(x.unsqueeze(0))
        assert sigma is not None
        known = {
            "mean": float(mean.mean()),
            "standard_deviation": float(sigma.mean()),
            "width": float(self.width.mean()),
            "acquisition_value": float(value),
        }
        gain = self.rule.information_gain(self._reading)
        if gain is not None:
            known["information_gain"] = float(gain.mean())
        return known

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the bound.

        Args:
            X: ``batch_shape x 1 x d`` points, float64.

        Returns:
            ``batch_shape`` values.

        Raises:
            TypeError: If ``X`` is not float64.
            UnsupportedError: If points are to be evaluated jointly (``q > 1``).
        """
        check_single_point(self, X)
        return super().forward(X)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was read of the prior: it cannot be pickled, and is read again."""
        return {
            **self.__dict__,
            "_reading": PriorReading(self.base_model, self.posterior_transform),
        }

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._reading = PriorReading(self.base_model, self.posterior_transform)

    def _mean_and_sigma(
        self, X: Tensor, compute_sigma: bool = True, min_var: float = MINIMUM_VARIANCE
    ) -> tuple[Tensor, Tensor | None]:
        return super()._mean_and_sigma(X, compute_sigma, min_var)

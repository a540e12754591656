r"""Upper confidence bound of a penalised reward, on a model of the reward and its constraints.

.. math:: F(x) = f(x) - \sum_j \kappa_j (\psi(g_j(x)) - 1), \qquad g_j(x) \le 0 \text{ is feasible}

Sources: Shi and Eryilmaz 2022 (the penalised reward); Zhou and Ji 2022 (bounds of ``f`` and of
each ``g_j`` apart, clipped; from memory of that paper).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.posteriors.multitask import MultitaskGPPosterior
from botorch.posteriors.posterior import Posterior
from botorch.utils.transforms import average_over_ensemble_models, t_batch_mode_transform
from torch import Tensor

from botorch_bandits.acquisition.lagrangian_base import LagrangianAcquisition, check_no_overflow
from botorch_bandits.acquisition.lagrangian_options import (
    check_lagrangian_options,
    check_num_outputs,
)
from botorch_bandits.acquisition.pending import HallucinatesPending
from botorch_bandits.acquisition.recipe import check_model, check_single_point
from botorch_bandits.acquisition.width_upper_confidence_bound import MINIMUM_VARIANCE
from botorch_bandits.checks import check_one_of, check_positive, check_probability
from botorch_bandits.confidence import GainBound, Guarantee
from botorch_bandits.domains import Domain
from botorch_bandits.penalties import Penalty


class LagrangianUpperConfidenceBound(LagrangianAcquisition, HallucinatesPending):
    r"""Upper confidence bound of ``f - sum_j kappa_j (psi(g_j) - 1)``.

    The model's first output is the reward ``f``, the others are the constraints ``g_j``; as in
    BoTorch, ``g_j <= 0`` is feasible. Two forms:

    * Linear penalty: the exact scalarisation with weights ``(1, -kappa)``. Its variance counts the
      correlations between outputs. Its width is ``sqrt(w_0^2 + sum of w_j^2)`` over the
      constraints with ``kappa_j > 0``, which suffices for independent outputs (Cauchy-Schwarz).
    * Other penalties, ``separate_bounds=True`` or clipping: the optimistic plug-in

    .. math:: \mu_0 + w_0 \sigma_0 - \sum_j \kappa_j (\psi(\mu_j - w_j \sigma_j) - 1).

      It is a bound whenever each of the outputs' bounds is, because ``psi`` never decreases.

    Widths are those of IGP-UCB with ``delta / (1 + number of constraints)`` for each output, valid
    for all multipliers at once. With one constant ``width`` for all outputs, the scalarisation uses
    that number itself.

    Args:
        model: A fitted BoTorch model in float64 with ``1 + num_constraints`` outputs, or a
            ``ModelListGP``.
        multipliers: ``kappa``, one number at least 0 for each constraint. In a loop the rule in
            use gives them.
        penalty: What is charged for a violation; see :mod:`botorch_bandits.penalties`.
        rkhs_bound: ``B``; one number, or one an output. See
            :class:`~botorch_bandits.ImprovedUpperConfidenceBound`.
        noise_bound: ``R``; likewise.
        delta: All bounds together fail with at most this probability.
        any_lambda: Use the form of the width that holds for every ``lam``.
        information_gain: An explicit gain of each output in place of the realised one.
        units: ``"outcome"`` or ``"prior"``; see there.
        width: A constant width in place of all this; one number, or one an output.
        scale: A factor on every width.
        separate_bounds: Use the plug-in for the linear penalty too.
        reward_bound: Clip the upper bound of ``f`` to plus and minus this (per-round multipliers).
            Gradients vanish where it clips.
        constraint_bound: Clip the lower bound of each ``g_j`` likewise.
        posterior_transform: Applied to the posterior first; it must leave ``1 + num_constraints``
            outputs. :class:`~botorch_bandits.acquisition.AffineOutcomes` makes them of metrics in
            another order, sign or scale. The prior cannot be read through any other: give ``width``
            or ``information_gain``.
        X_pending: ``n x d`` points whose outcomes have not arrived. They enter a copy of the model
            at the posterior mean; widths keep the gain of the observed data.

    Raises:
        TypeError: If the model or ``X_pending`` is not float64.
        ValueError: If the number of outputs is wrong or an ingredient is infeasible.
        UnsupportedError: If points are pending and the model cannot be conditioned, or the
            posterior transform leaves one output only.

    Example:
        >>> import torch
        >>> from botorch.models import ModelListGP, SingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = ModelListGP(SingleTaskGP(X, X.sin()), SingleTaskGP(X, X - 0.5))
        >>> acqf = LagrangianUpperConfidenceBound(model, multipliers=[2.0], width=1.0)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    def __init__(
        self,
        model: Model,
        *,
        multipliers: Tensor | Sequence[float],
        penalty: Penalty | None = None,
        rkhs_bound: float | tuple[float, ...] | None = None,
        noise_bound: float | tuple[float, ...] | None = None,
        delta: float = 0.1,
        any_lambda: bool = False,
        information_gain: float | GainBound | None = None,
        units: str = "outcome",
        width: float | tuple[float, ...] | None = None,
        scale: float = 1.0,
        separate_bounds: bool = False,
        reward_bound: float | None = None,
        constraint_bound: float | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(check_model(model))
        self.base_model = model
        self.delta = check_probability("delta", delta)
        self.separate_bounds = check_one_of("separate_bounds", separate_bounds, (True, False))
        self.reward_bound = _check_clip("reward_bound", reward_bound)
        self.constraint_bound = _check_clip("constraint_bound", constraint_bound)
        self._prepare_outputs(
            model,
            multipliers,
            penalty,
            posterior_transform,
            scale,
            rkhs_bound=rkhs_bound,
            noise_bound=noise_bound,
            delta=delta,
            any_lambda=any_lambda,
            information_gain=information_gain,
            units=units,
            width=width,
        )
        self.set_X_pending(X_pending)

    @classmethod
    def complete_options(cls, options: dict[str, Any], domain: Domain | None) -> dict[str, Any]:
        """Check the ingredients; see the base class."""
        check_lagrangian_options(cls.__name__, options)
        for name in ("reward_bound", "constraint_bound"):
            _check_clip(name, options.get(name))
        return options

    @property
    def is_scalarised(self) -> bool:
        """Whether the value is the exact bound of one weighted sum of the outputs."""
        clips = self.reward_bound is not None or self.constraint_bound is not None
        return self.penalty.is_linear and not self.separate_bounds and not clips

    @property
    def width(self) -> Tensor:
        """The factor of the standard deviation of the weighted sum; the model's batch shape."""
        if self._output_widths.is_one_number:
            return self.widths[..., 0]
        active = torch.cat([self.multipliers.new_ones(1), (self.multipliers > 0.0).double()])
        return (active * self.widths.square()).sum(dim=-1).sqrt()

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
        self._compute_widths()

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the bound.

        Args:
            X: ``batch_shape x 1 x d`` points, float64.

        Returns:
            ``batch_shape`` values.

        Raises:
            TypeError: If ``X`` is not float64.
            UnsupportedError: If points are to be evaluated jointly (``q > 1``), or a weighted sum
                is needed of outputs whose joint posterior the model does not give.
            OverflowError: If a penalty is too large for float64.
        """
        check_single_point(self, X)
        return check_no_overflow(self._evaluate(X))

    def constraint_lower_bounds(self, X: Tensor) -> Tensor:
        """Return the lower confidence bounds of the constraints, clipped if that was asked for.

        They drive per-round multipliers, and show whether a constraint can be met at all.

        Args:
            X: ``batch_shape x 1 x d`` points, float64; the model must be no batch or ensemble.

        Returns:
            ``batch_shape x num_constraints``.
        """
        check_single_point(self, X)
        mean, sigma = self._moments(self._posterior(X))
        return self._bounds(mean, sigma)[1]

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers the bounds with this model, or why none does."""
        form = "of a weighted sum of outputs" if self.is_scalarised else "from bounds of each"
        guarantee = self._base_guarantee(f"upper confidence bound of a penalised reward, {form}")
        if self.reward_bound is not None or self.constraint_bound is not None:
            clipped = "reward and constraints lie within the bounds at which theirs are clipped"
            guarantee = replace(guarantee, assumptions=(*guarantee.assumptions, clipped))
        if self.X_pending is not None:
            guarantee = guarantee.with_gaps(
                f"{len(self.X_pending)} pending points enter at the posterior mean"
            )
        return guarantee

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return the moments of the reward and the lower bounds of the constraints at one point.

        Args:
            x: A ``d``-dimensional point. The model must not be batched.
        """
        with torch.no_grad():
            value = self(x.unsqueeze(0))
            mean, sigma = self._moments(self._posterior(x.unsqueeze(0)))
            lower = self._bounds(mean, sigma)[1]
        known = {
            "mean": float(mean[..., 0].mean()),
            "standard_deviation": float(sigma[..., 0].mean()),
            "width": float(self.widths[..., 0].mean()),
            "acquisition_value": float(value),
        }
        for j in range(self.num_constraints):
            known[f"constraint_mean_{j + 1}"] = float(mean[..., j + 1].mean())
            known[f"constraint_lower_bound_{j + 1}"] = float(lower[..., j].mean())
        return known

    @t_batch_mode_transform(expected_q=1)
    @average_over_ensemble_models
    def _evaluate(self, X: Tensor) -> Tensor:
        posterior = self._posterior(X)
        if self.is_scalarised:
            return self._scalarised(posterior)
        mean, sigma = self._moments(posterior)
        return self._penalised(*self._bounds(mean, sigma))

    def _posterior(self, X: Tensor) -> Posterior:
        return self.model.posterior(X, posterior_transform=self.posterior_transform)

    def _scalarised(self, posterior: Posterior) -> Tensor:
        check_num_outputs(type(self).__name__, posterior.mean.shape[-1], 1 + self.num_constraints)
        # BoTorch's posterior of a Kronecker model holds variances only: the sum's would be wrong
        if not isinstance(posterior, GPyTorchPosterior) or isinstance(
            posterior, MultitaskGPPosterior
        ):
            raise UnsupportedError(
                "a weighted sum of outputs needs their joint Gaussian posterior, got "
                f"{type(posterior).__name__} of {type(self.model).__name__}. Pass "
                "separate_bounds=True (for correlated outputs, MultiTaskGP has what is needed)."
            )
        weights = torch.cat([self.multipliers.new_ones(1), -self.multipliers])
        scalar = ScalarizedPosteriorTransform(weights)(posterior)
        mean = scalar.mean.squeeze(-1).squeeze(-1)
        sigma = scalar.variance.clamp_min(MINIMUM_VARIANCE).sqrt().reshape(mean.shape)
        return mean + self.width * sigma

    def _moments(self, posterior: Posterior) -> tuple[Tensor, Tensor]:
        """Return means and standard deviations, ``batch_shape x num_outputs`` each."""
        mean = posterior.mean.squeeze(-2)
        check_num_outputs(type(self).__name__, mean.shape[-1], 1 + self.num_constraints)
        sigma = posterior.variance.clamp_min(MINIMUM_VARIANCE).sqrt().reshape(mean.shape)
        return mean, sigma

    def _bounds(self, mean: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """Return the upper bound of the reward and the lower bounds of the constraints."""
        deviation = self.widths * sigma
        upper = mean[..., 0] + deviation[..., 0]
        lower = mean[..., 1:] - deviation[..., 1:]
        if self.reward_bound is not None:
            upper = upper.clamp(-self.reward_bound, self.reward_bound)
        if self.constraint_bound is not None:
            lower = lower.clamp(-self.constraint_bound, self.constraint_bound)
        return upper, lower

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._output_widths.forget()


def _check_clip(name: str, bound: float | None) -> float | None:
    return None if bound is None else check_positive(name, bound)

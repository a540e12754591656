r"""Thompson sampling of a penalised reward: one joint draw of the reward and its constraints.

.. math:: \tilde f(x) - \sum_j \kappa_j (\psi(\tilde g_j(x)) - 1)

Shi and Eryilmaz 2022, Remark 1: in Algorithm 2 GP-TS may take the place of IGP-UCB. Remark 2:
Algorithm 3 is not covered then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.affine_outcomes import AffineOutcomes
from botorch_bandits.acquisition.joint_draws import draw_outputs
from botorch_bandits.acquisition.lagrangian_base import LagrangianAcquisition, check_no_overflow
from botorch_bandits.acquisition.lagrangian_options import (
    check_lagrangian_options,
    check_num_outputs,
)
from botorch_bandits.acquisition.recipe import (
    check_model,
    check_pending,
    check_single_point,
)
from botorch_bandits.acquisition.seeded_draw import SeededDraw
from botorch_bandits.checks import check_probability
from botorch_bandits.confidence import GainBound, Guarantee
from botorch_bandits.domains import Arms, Domain
from botorch_bandits.penalties import Penalty


class LagrangianThompsonSampling(LagrangianAcquisition, SeededDraw):
    r"""One joint draw of reward and constraints, scored ``f - sum_j kappa_j (psi(g_j) - 1)``.

    Each output's draw is scaled about its mean by its own width. The same draw answers every
    evaluation until :meth:`set_X_pending` is called: each pending set has a draw of its own.

    Args:
        model: A fitted BoTorch model in float64 with ``1 + num_constraints`` outputs (the reward
            first), or a ``ModelListGP``. No batch of models, no ensemble.
        multipliers: ``kappa``, one number at least 0 for each constraint.
        penalty: What is charged for a violation.
        rkhs_bound: See :class:`LagrangianUpperConfidenceBound`.
        noise_bound: See there.
        delta: As in GP-TS, half is for the confidence bounds and half for the draws.
        any_lambda: See there.
        information_gain: See there.
        units: See there.
        width: A constant scale; one number, or one an output. 1 is plain Thompson sampling.
        scale: A factor on every scale.
        choices: ``num_points x d`` points to draw on exactly; only they can be evaluated then. In a
            loop on arms these are the arms. Without choices the draw is pathwise.
        posterior_transform: See there; any but ``AffineOutcomes`` only with ``choices``.
        X_pending: ``n x d`` points whose outcomes have not arrived. They do not enter the model;
            each set of them has another draw.
        seed: Makes the draws reproducible; taken from torch's global generator if omitted.

    Raises:
        TypeError: If the model, ``choices`` or ``X_pending`` is not float64.
        ValueError: If the number of outputs is wrong or an ingredient is infeasible.
        UnsupportedError: If the model is a batch or an ensemble, its posterior is not Gaussian, or
            BoTorch has no pathwise draws for it (pass ``choices`` then).

    Example:
        >>> import torch
        >>> from botorch.models import ModelListGP, SingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = ModelListGP(SingleTaskGP(X, X.sin()), SingleTaskGP(X, X - 0.5))
        >>> acqf = LagrangianThompsonSampling(model, multipliers=[2.0], width=1.0, seed=0)
        >>> bool((acqf(X.unsqueeze(-2)) == acqf(X.unsqueeze(-2))).all())
        True
    """

    stream = "lagrangian thompson"

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
        choices: Tensor | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        seed: int | None = None,
    ) -> None:
        """See the class."""
        super().__init__(check_model(model))
        if is_ensemble(model) or len(model.batch_shape) > 0:
            raise UnsupportedError(
                f"{type(self).__name__} draws from one model, got {type(model).__name__} with "
                f"batch shape {tuple(model.batch_shape)}. Use LagrangianUpperConfidenceBound for "
                "these."
            )
        if not isinstance(posterior_transform, AffineOutcomes | None) and choices is None:
            raise UnsupportedError(
                "a pathwise draw cannot go through posterior_transform; pass choices= to draw on."
            )
        self.delta = check_probability("delta", delta)
        self._prepare_outputs(
            model,
            multipliers,
            penalty,
            posterior_transform,
            scale,
            rkhs_bound=rkhs_bound,
            noise_bound=noise_bound,
            delta=self.delta / 2,
            any_lambda=any_lambda,
            information_gain=information_gain,
            units=units,
            width=width,
        )
        self._prepare_draws(choices, seed)
        self.set_X_pending(X_pending)

    @classmethod
    def complete_options(cls, options: dict[str, Any], domain: Domain | None) -> dict[str, Any]:
        """Draw on the arms of a finite domain; see the base class."""
        check_lagrangian_options(cls.__name__, options)
        if options.get("choices") is not None:
            Arms(options["choices"])
        elif isinstance(domain, Arms):
            options["choices"] = domain.choices
        return options

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Take points as pending and draw again.

        Args:
            X_pending: ``n x d`` points, or None.

        Raises:
            TypeError: If they are not float64.
            ValueError: If they are not an ``n x d`` matrix of finite numbers.
        """
        AcquisitionFunction.set_X_pending(self, check_pending(X_pending))
        self._compute_widths()
        self._begin_draw()

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the score of the draw.

        Args:
            X: ``batch_shape x 1 x d`` points, float64.

        Returns:
            ``batch_shape`` scores.

        Raises:
            TypeError: If ``X`` is not float64.
            UnsupportedError: If points are to be evaluated jointly (``q > 1``).
            OverflowError: If a penalty is too large for float64.
        """
        drawn = self.draw(X)
        return check_no_overflow(self._penalised(drawn[..., 0], drawn[..., 1:]))

    def draw(self, X: Tensor) -> Tensor:
        """Evaluate the draw of every output.

        Args:
            X: ``batch_shape x 1 x d`` points, float64.

        Returns:
            ``batch_shape x (1 + num_constraints)`` values, the reward's first.

        Raises:
            TypeError: If ``X`` is not float64.
            UnsupportedError: If points are to be evaluated jointly (``q > 1``).
        """
        check_single_point(self, X)
        X = X if X.dim() > 2 else X.unsqueeze(0)
        if self.arms is not None:
            if self._values is None:
                self._values = self._draw_on_arms(self.arms.choices)
            index = self.arms.index_of(X.reshape(-1, X.shape[-1])).reshape(X.shape[:-2])
            return self._values[index]
        values: Tensor = self._current_path()(X).squeeze(-2)  # ``batch_shape x m``
        if isinstance(self.posterior_transform, AffineOutcomes):
            values = self.posterior_transform.evaluate(values)
        if self._output_widths.are_one:
            return values
        posterior = self.model.posterior(X, posterior_transform=self.posterior_transform)
        mean = posterior.mean.squeeze(-2)
        return mean + self.widths * (values - mean)

    def guarantee(self) -> Guarantee:
        """Return what theorem covers this draw, or why none does."""
        guarantee = self._base_guarantee("Thompson sampling of a penalised reward")
        if guarantee.theorem is not None:
            guarantee = replace(
                guarantee, statement=f"{guarantee.statement}; half of delta is for the draws"
            )
            # Remark 1 has one draw of the penalised reward; draws of f and g are another method
            guarantee = guarantee.with_gaps(
                "the confidence bounds hold, but no theorem bounds the regret of joint draws of "
                "reward and constraints"
            )
        if self.X_pending is not None:
            guarantee = guarantee.with_gaps(f"{len(self.X_pending)} outcomes are pending")
        return guarantee

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return moments of the reward and, of the constraints, means, draws and lower bounds.

        Args:
            x: A ``d``-dimensional point.
        """
        with torch.no_grad():
            value = self(x.unsqueeze(0))
            drawn = self.draw(x.unsqueeze(0)).reshape(-1)
            posterior = self.model.posterior(
                x.unsqueeze(0), posterior_transform=self.posterior_transform
            )
            mean, variance = posterior.mean.reshape(-1), posterior.variance.reshape(-1)
        known = {
            "mean": float(mean[0]),
            "standard_deviation": float(variance[0].clamp_min(0.0).sqrt()),
            "width": float(self.widths[0]),
            "acquisition_value": float(value),
        }
        for j in range(1, 1 + self.num_constraints):
            known[f"constraint_mean_{j}"] = float(mean[j])
            known[f"constraint_draw_{j}"] = float(drawn[j])
            deviation = float(variance[j].clamp_min(0.0).sqrt())
            known[f"constraint_lower_bound_{j}"] = (
                known[f"constraint_mean_{j}"] - float(self.widths[j]) * deviation
            )
        return known

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._output_widths.forget()

    def _draw_on_arms(self, choices: Tensor) -> Tensor:
        """Return the scaled draw of every output, ``num_points x (1 + num_constraints)``."""
        mean, deviation = draw_outputs(
            self.model, choices, self.posterior_transform, self._seed_of("arms")
        )
        check_num_outputs(type(self).__name__, mean.shape[-1], 1 + self.num_constraints)
        return mean + self.widths * deviation

"""How a model handles censored feedback: pending queries become rows at the known minimum.

This module contains what :class:`~botorch_bandits.CensoredUpperConfidenceBound` and
:class:`~botorch_bandits.CensoredThompsonSampling` do with a user's model: the pseudo-values, the
rows, the sum of deviations that enters the width, and a warning when the posterior rings. The
options that they share with the loop are in :mod:`botorch_bandits.confidence.censored`.

A model with little noise must pass through every pseudo-value. If neighboring outcomes are high, it
drops to the minimum and overshoots on the other side: its maximum rises because of values that were
never observed, and the next query is placed there. :mod:`papers.beyond` measures it.

Source: Verma, Dai and Low, *Bayesian optimization under stochastic delayed feedback*, ICML 2022.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from botorch.acquisition.objective import (
    ExpectationPosteriorTransform,
    PosteriorTransform,
    ScalarizedPosteriorTransform,
)
from botorch.models.model import Model
from gpytorch import settings
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    BelowMinimumWarning,
    MinimumLoweredWarning,
    check_nonnegative,
    check_one_of,
    counted,
    level_of_users_line,
    store_checked,
)
from botorch_bandits.confidence.censored import Censoring
from botorch_bandits.confidence.fills import share_of_bound
from botorch_bandits.confidence.width_rules import pick_bound
from botorch_bandits.models.reading import (
    condition,
    moments_of_outputs,
    observed_inputs,
    observed_outcomes,
    on_device_of,
    prior_variances_of_outputs,
    shape_of_batch,
    submodels,
)

STEPS = (0.0625, 0.125, 0.25, 0.5)
"""Steps from a pending point, as fractions of the range of all known points in that dimension."""

NUM_SPREAD = 1024
"""Points spread evenly over the range of all known points."""

MAXIMUM_STAR = 4096
"""A larger star is cut: the arms around the oldest pending points are left out."""

RINGING_TOLERANCE = 0.05
"""The share of its height above the minimum by which the maximum may rise without a warning."""


class RingingWarning(RuntimeWarning):
    """Pseudo-values at the minimum have raised the maximum of the posterior mean."""


@dataclass(frozen=True)
class PosteriorRise:
    """How far pseudo-values have raised the largest posterior mean over some probe points.

    Attributes:
        before: The largest posterior mean of the user's model, in raw units of the objective.
        after: That of the model with pseudo-values.
        minimum: The pseudo-value.
    """

    before: float
    after: float
    minimum: float

    @property
    def share(self) -> float:
        """The rise as a share of the height above the minimum; 0 if there is no height."""
        height = self.before - self.minimum
        return (self.after - self.before) / height if height > 0.0 else 0.0


def probe_points(X_pending: Tensor, X_observed: Tensor | None) -> Tensor:
    """Return the probes: all known points, points between them, a star around each pending point.

    Evenly spread points (of a Sobol sequence) detect ringing in few dimensions; the star, with
    :data:`STEPS` along each dimension in both directions, detects it in many. No probe lies beyond
    the range of the known points, where the optimizer may not be allowed to go.

    Args:
        X_pending: ``p x d`` points, ``p >= 1``, oldest first.
        X_observed: ``n x d`` observed inputs, if they are known.

    Returns:
        ``num_probes x d`` points.
    """
    dim = X_pending.shape[-1]
    known = X_pending if X_observed is None else torch.cat([X_observed.to(X_pending), X_pending])
    low, high = known.amin(0), known.amax(0)
    steps = torch.tensor([s for step in STEPS for s in (step, -step)]).to(X_pending)
    offsets = steps.reshape(-1, 1, 1) * torch.diag(high - low)  # ``steps x d x d``
    centers = X_pending[-max(1, MAXIMUM_STAR // (len(steps) * dim)) :]
    star = (centers.reshape(-1, 1, 1, dim) + offsets).reshape(-1, dim)
    spread = spread_points(dim, NUM_SPREAD).to(X_pending)
    return torch.cat([known, low + (high - low) * spread, star.clamp(low, high)])


@cache
def spread_points(dim: int, num_points: int) -> Tensor:
    """Return points that are spread evenly over the unit cube, the same ones each time.

    Args:
        dim: The number of dimensions.
        num_points: The number of points.
    """
    engine = torch.quasirandom.SobolEngine(dim, scramble=True, seed=0)
    return engine.draw(num_points, dtype=torch.float64)


def posterior_rise(
    base_model: Model,
    model: Model,
    probes: Tensor,
    minimum: float,
    posterior_transform: PosteriorTransform | None = None,
    maximize: bool = True,
) -> PosteriorRise:
    """Compare the largest posterior means of two models over probe points.

    It costs one posterior mean of each model at every probe.

    Args:
        base_model: The model without pseudo-values.
        model: The model with pseudo-values.
        probes: ``num_probes x d`` points at which both means are compared.
        minimum: The pseudo-value of the objective.
        posterior_transform: The transform that combines several outputs into one.
        maximize: If False, the check is mirrored: does the smallest mean decrease?

    Returns:
        The rise; for an ensemble or a batch, that of the member with the largest rise.
    """
    sign = 1.0 if maximize else -1.0
    tops = []
    # a joint covariance of all probes would cost more than the means
    with (
        torch.no_grad(),
        settings.skip_posterior_variances(True),
        settings.min_variance(double_value=0.0),
    ):
        for each in (base_model, model):
            posterior = each.posterior(probes, posterior_transform=posterior_transform)
            means = sign * posterior.mean.squeeze(-1)  # batch_shape x num_probes
            tops.append(means.amax(-1).reshape(-1))
    before, after = torch.broadcast_tensors(*tops)
    worst = int((after - before).argmax())
    return PosteriorRise(float(before[worst]), float(after[worst]), sign * minimum)


RELATIVE_TOLERANCE = 1e-9
"""Outcome transforms round, so an outcome that is below the minimum by less counts as the minimum;
relative to the largest outcome and the minimum."""


@dataclass(frozen=True)
class DropInCensoring(Censoring):
    """How a drop-in fills in pending queries; see :class:`CensoredUpperConfidenceBound`.

    Attributes:
        pseudo_noise: A number added to the noise variance of pseudo-rows.
        units: The units of ``pseudo_noise``: ``"outcome"`` (squared) or ``"prior"`` (prior
            variances).
        ringing_tolerance: The relative rise of the maximum above which to warn; None for never.
        noise_bound: ``R`` in outcome units, one number or one per output; None if it is not known.
    """

    noise_bound: float | tuple[float, ...] | None = None
    pseudo_noise: float = 0.0
    units: str = "outcome"
    ringing_tolerance: float | None = RINGING_TOLERANCE

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        if self.fills_in and self.units == "prior":
            raise ValueError(
                f"fill={self.fill!r} needs outcome_bound= in the units of outcomes, but units is "
                "'prior', which makes it a multiple of the prior standard deviation. State all "
                'bounds in the units of outcomes, or use fill="minimum".'
            )
        if self.fill == "soft" and self.delay_distribution is None:
            raise ValueError(
                "fill='soft' needs delay_distribution= here: X_pending does not say after which "
                "delays outcomes have come so far. Pass the probabilities of delays 0, 1, 2, ... "
                "or a cumulative distribution function, or use BanditLoop, which estimates it."
            )
        store_checked(self, pseudo_noise=check_nonnegative("pseudo_noise", self.pseudo_noise))
        check_one_of("units", self.units, ("outcome", "prior"))
        if self.ringing_tolerance is not None:
            tolerance = check_nonnegative("ringing_tolerance", self.ringing_tolerance)
            store_checked(self, ringing_tolerance=tolerance)

    def pseudo_values(
        self, model: Model, signs: Sequence[float], X_pending: Tensor | None
    ) -> tuple[float, ...] | None:
        """Return the pseudo-value of each output, in raw units.

        Args:
            model: The user's model.
            signs: For each output, 1 if more of it is better, -1 if less is better, 0 if it has no
                weight.
            X_pending: ``p x d`` points for an unknown minimum if nothing has been observed.

        Returns:
            None if the minimum is unknown, nothing has been observed yet and nothing is pending.

        Raises:
            ValueError: If an observed outcome is worse than the minimum, or their numbers differ.
        """
        num_outputs = len(signs)
        if self.minimum is None:
            X = observed_inputs(model)
            if X is None:
                raise ValueError(
                    "minimum_proxy= needs the observed inputs, which the model does not show. Pass "
                    "minimum=."
                )
            points = X if len(X) else X_pending
            if points is None:
                return None
            return least_lower_bounds(model, self.minimum_proxy, signs, points)
        stated = [
            float(pick_bound("minimum", self.minimum, j, num_outputs)) for j in range(num_outputs)
        ]
        outcomes = observed_outcomes(model)
        if outcomes is None:
            return tuple(stated)
        each = enumerate(zip(stated, signs, outcomes, strict=True))
        return tuple(self._respect(*own, j, num_outputs) for j, own in each)

    def fill_in(
        self, model: Model, X_pending: Tensor, minima: Sequence[float], signs: Sequence[float]
    ) -> tuple[Tensor, Tensor]:
        r"""Return the values that fill in pending queries, and their shares of ``outcome_bound``.

        The queries are assumed to be in the order of issue: the last one was issued one round ago.
        Those that are ``max_delay`` rounds old were given up and are set to the minimum.

        Args:
            model: The user's model, given the outcomes that have arrived.
            X_pending: ``p x d``.
            minima: From :meth:`pseudo_values`.
            signs: See :meth:`pseudo_values`.

        Returns:
            ``batch_shape x p x m`` values in raw units, and :math:`b_s / B_y` of the same shape.
        """
        mean, deviation = moments_of_outputs(model, X_pending)
        assert self.outcome_bound is not None
        m, limit, count = len(minima), self.max_delay, len(X_pending)
        bound = mean.new_tensor(
            [pick_bound("outcome_bound", self.outcome_bound, j, m) for j in range(m)]
        )
        side = mean.new_tensor([-1.0 if sign < 0.0 else 1.0 for sign in signs])
        least, ages = mean.new_tensor(minima), range(count, 0, -1)
        still_waits = mean.new_tensor([limit is None or age < limit for age in ages]).unsqueeze(-1)
        shares = still_waits
        if self.fill == "soft":
            shares = mean.new_tensor(self.shares_at_ages(ages, {}, 0, limit)).unsqueeze(-1)
        heights = self.heights(bound, side * (mean - least), deviation, shares) * still_waits
        return least + side * heights, share_of_bound(heights, bound)

    def censor(
        self,
        model: Model,
        X_pending: Tensor,
        values: Sequence[float] | Tensor,
        with_noise: bool = True,
    ) -> Model:
        """Return the model with pending rows at their pseudo-values; ``model`` is not changed.

        Args:
            model: The user's model.
            X_pending: ``p x d``.
            values: One per output, or ``batch_shape x p x m``.
            with_noise: Whether pseudo-rows get the extra noise.

        Raises:
            UnsupportedError: If the model cannot be conditioned.
        """
        # a deterministic model has no batch shape, and is rejected by name
        batch_shape = shape_of_batch(model)
        row = torch.as_tensor(values, dtype=X_pending.dtype, device=X_pending.device)
        Y = row.expand(*batch_shape, len(X_pending), row.shape[-1])
        extra: float | Tensor = self.pseudo_noise if with_noise else 0.0
        if self.units == "prior" and extra:
            units = prior_variances_of_outputs(model)
            extra = extra if units is None else extra * units
        return condition(model, X_pending, Y, extra)

    def deviation_sums(
        self,
        base_model: Model,
        model: Model,
        X_pending: Tensor | None,
        shares: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Return the sums of current posterior standard deviations that enter the width.

        ``X_pending`` is assumed to be in the order of issue, after the rows of the user's model.

        Args:
            base_model: The user's model.
            model: The censored model.
            X_pending: ``p x d``, or None.
            shares: ``batch_shape x p x m``, from :meth:`fill_in`, the factors on the deviations at
                pending queries; None for 1.

        Returns:
            One tensor per output, of the model's batch shape, in raw outcome units.

        Raises:
            ValueError: If the width sums over all queries and the model does not show them.
        """
        parts = [] if X_pending is None else [X_pending]
        if self.window == "all" and self.outcome_bound is not None:
            rows = observed_inputs(base_model)
            num_targets = submodels(base_model)[0].train_targets.shape[-1]
            if rows is None or len(rows) != num_targets:
                raise ValueError(
                    'window="all" needs one set of inputs, which the model does not show: leave it '
                    "out."
                )
            parts = [rows, *parts]
        num_queries = sum(map(len, parts))
        num_rows = num_queries - (0 if X_pending is None else len(X_pending))
        which = self.summed(range(num_rows, num_queries), num_queries)
        if not which:
            return (torch.zeros((), dtype=DTYPE),) * int(model.num_outputs)
        _, deviations = moments_of_outputs(model, torch.cat(parts)[which], self.predictive)
        if shares is not None:
            of_rows = shares.new_ones(*shares.shape[:-2], num_rows, shares.shape[-1])
            deviations = deviations * torch.cat([of_rows, shares], dim=-2)[..., which, :]
        return deviations.sum(dim=-2).unbind(-1)  # batch_shape each

    def warn_of_ringing(
        self,
        base_model: Model,
        model: Model,
        X_pending: Tensor,
        values: Sequence[float],
        posterior_transform: PosteriorTransform | None,
        maximize: bool,
    ) -> None:
        """Warn if the pseudo-values have raised the largest posterior mean noticeably."""
        if self.ringing_tolerance is None:
            return
        if isinstance(posterior_transform, ExpectationPosteriorTransform):
            return  # it has no means without covariances
        X = observed_inputs(base_model)
        if X is None or len(X) == 0:
            return
        lowest = X_pending.new_tensor([values])
        if posterior_transform is not None:
            lowest = posterior_transform.evaluate(lowest)
        rise = posterior_rise(
            base_model,
            model,
            probe_points(X_pending, X),
            float(lowest.reshape(-1)[0]),
            posterior_transform,
            maximize,
        )
        if rise.share > self.ringing_tolerance:
            sign = 1.0 if maximize else -1.0
            where = f"with fill={self.fill!r}" if self.fills_in else f"at {sign * rise.minimum:.4g}"
            warnings.warn(
                f"filling {counted(len(X_pending), 'pending query', 'pending queries')} in {where} "
                f"moved the posterior's best mean from {sign * rise.before:.4g} to "
                f"{sign * rise.after:.4g}: the model has so little noise that it rings. Use "
                "hallucination (ImprovedUpperConfidenceBound with X_pending), or "
                'pseudo_noise=1.0 with units="prior" (outside the theorem); see '
                "docs/delayed-feedback.md.",
                RingingWarning,
                stacklevel=4,
            )

    def below(
        self, values: Sequence[float], signs: Sequence[float], outcomes: Sequence[Tensor]
    ) -> tuple[int, float]:
        """Return how many outcomes are worse than the minimum, and the largest shortfall.

        Args:
            values: The minimum in use, one per output.
            signs: See :meth:`pseudo_values`.
            outcomes: The observed outcomes, one tensor per output.
        """
        lacks = [torch.zeros(1, dtype=DTYPE)]
        for value, sign, column in zip(values, signs, outcomes, strict=True):
            lacks.append((sign * (value - column)).reshape(-1).cpu())  # 0 without weight
        each = torch.cat(lacks)
        return int((each > 0.0).sum()), float(each.max())

    def _respect(
        self, stated: float, sign: float, outcomes: Tensor, output: int, num_outputs: int
    ) -> float:
        """Return the minimum, lowered to the worst outcome if that was requested."""
        heights = (sign * (outcomes.reshape(-1) - stated)).sort().values.tolist()  # 0 if no weight
        size = abs(stated) + float(outcomes.abs().max()) if heights else 0.0
        if not heights or heights[0] >= -RELATIVE_TOLERANCE * size:
            return stated
        worst = float(outcomes.min() if sign > 0.0 else outcomes.max())
        side, kind = ("below", "minimum") if sign > 0.0 else ("above", "maximum")
        text = f"an observed outcome, {worst:.6g}, is {side} the known {kind}, {stated:.6g}"
        if self.on_lower == "lower":
            warnings.warn(
                f"{text}; pending queries are filled in at {worst:.6g}. No theorem covers this.",
                MinimumLoweredWarning,
                stacklevel=6,
            )
            return worst
        of_outcomes = self.outcome_bound if self.units == "outcome" else None
        noise_bound, outcome_bound = (
            None if bound is None else float(pick_bound(name, bound, output, num_outputs))
            for name, bound in (("noise_bound", self.noise_bound), ("outcome_bound", of_outcomes))
        )
        # besides the one at issue
        tolerated = self.tolerated(noise_bound, outcome_bound, heights[1:])
        if -heights[0] > tolerated:
            raise ValueError(
                f"{text}, by more than the {tolerated:.4g} that noise explains. State "
                f"minimum={worst:.6g} or beyond, or pass tolerance= or on_lower='lower'."
            )
        warnings.warn(  # the same text in each round, so that Python shows it once
            f"outcomes are {side} the known {kind}, {stated:.6g}, by no more than noise "
            "explains. They are used unchanged; pending queries stay at it.",
            BelowMinimumWarning,
            stacklevel=level_of_users_line(),
        )
        return stated


def least_lower_bounds(
    model: Model, factor: float | None, signs: Sequence[float], X: Tensor
) -> tuple[float, ...]:
    """Return the smallest ``mean - factor * standard_deviation`` of each output over some points.

    Args:
        model: A model without pseudo-rows.
        factor: ``minimum_proxy``.
        signs: For each output 1, or -1 if smaller is better, in which case the result is the
            largest upper bound.
        X: ``n x d`` points.
    """
    assert factor is not None
    mean, deviation = moments_of_outputs(model, on_device_of(model, X))
    side = mean.new_tensor([-1.0 if sign < 0.0 else 1.0 for sign in signs])
    lowest = (side * mean - factor * deviation).reshape(-1, len(signs)).amin(0)
    return tuple((side * lowest).tolist())


def output_signs(
    model: Model, posterior_transform: PosteriorTransform | None, maximize: bool
) -> tuple[float, ...]:
    """Return for each output whether more of it is better (1), worse (-1), or neither (0)."""
    sign = 1.0 if maximize else -1.0
    if not isinstance(posterior_transform, ScalarizedPosteriorTransform):
        return (sign,) * int(model.num_outputs)
    weights = posterior_transform.weights.sign().tolist()
    if len(weights) != model.num_outputs:
        raise ValueError(
            f"posterior_transform has {len(weights)} weights, but model "
            f"({type(model).__name__}) has {model.num_outputs} outputs; give one weight per output."
        )
    return tuple(sign * weight for weight in weights)

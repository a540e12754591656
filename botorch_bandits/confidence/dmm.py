r"""DMM (Flynn and Reeb 2024), the set of functions that fit the data and have a small norm.

With probability ``1 - delta``, in all rounds,

.. math:: \|f(X) - y\|^2 \le r^2 = a_0 y^\top (K + a_0 I)^{-1} y
          + R^2 \ln\det(I + K / a_0) + 2 R^2 \ln(1/\delta), \qquad a_0 = R^2 / c.

Any such ``f`` with norm at most ``B`` obeys, for EVERY ``a > 0``,

.. math:: |f(x) - \mu_a(x)| \le s_a(x) \sqrt{(r^2 + a B^2 - a y^\top (K + a I)^{-1} y) / a}

with ``mu_a`` and ``s_a`` the posterior with ridge ``a`` and prior variance 1. The tightest of these
over ``a`` is the bound of DMM; ``a = infinity`` is the prior bound ``B sqrt(k(x, x))``. One
eigendecomposition serves all ridges. A negative radicand at some ``a`` means that the set is empty:
at level ``delta``, the data refute the combination of kernel, ``B`` and ``R``.

If the noise of row ``i`` has its own bound ``R_i``, known before the outcome, all of this applies
to rows divided by ``R_i`` (the kernel matrix on both sides) with ``R = 1``:
:math:`\|D (f(X) - y)\|^2 \le r^2` with ``D = diag(1/R_i)``. The posterior with ridge ``a`` then has
the noise variances ``a R_i^2``. See :mod:`botorch_bandits.confidence.igp_ucb`.

Source: Flynn and Reeb, *Tighter confidence bounds for sequential kernel regression*, arXiv
2403.12732, 2024.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from torch import Tensor

from botorch_bandits.checks import check_positive, check_probability
from botorch_bandits.confidence.igp_ucb import NormBounds
from botorch_bandits.confidence.prior_reading import (
    OutputPrior,
    UnreadablePriorError,
    inputs_of_kernel,
    kernel_inputs,
    outcome_units,
    part_of,
    prior_mean_at,
    read_prior,
)
from botorch_bandits.confidence.width_rules import (
    MINIMUM_VARIANCE,
    MODEL_NOISE,
    check_all_nonnegative,
    fit_to_batch,
)
from botorch_bandits.core.kernels import kernel_function
from botorch_bandits.core.priors import cholesky
from botorch_bandits.core.ridges import Ridges


class AssumptionRefutedWarning(RuntimeWarning):
    """The data refute the assumptions of a theorem at the level in use."""


@dataclass(frozen=True, eq=False)
class RowsOfOutput:
    """The rows of one output as a theorem sees them, in the model's (transformed) outcome units.

    Attributes:
        prior: The prior.
        places: ``batch_shape x n x d``; where the rows are, such as inputs as the kernel sees them.
        counts: ``batch_shape x n``; how many observations each row is the mean of.
        outcomes: ``batch_shape x n`` outcomes minus the prior mean.
        covariance: Maps two sets of places to their prior covariances; differentiable.
        kept: Where eigenvectors are kept from round to round; None to keep nothing.
    """

    prior: OutputPrior
    places: Tensor
    counts: Tensor
    outcomes: Tensor
    covariance: Callable[[Tensor, Tensor], Tensor]
    kept: dict[str, Any] | None

    def noise(self, by_noise: bool) -> Tensor:
        """Return the noise of single observations over the ridge, ``batch_shape x n`` or ``x 1``.

        Args:
            by_noise: Whether the noise of each row has a bound of its own, the root of its variance
                in the model; outcomes are divided by it, and the base ridge is 1.
        """
        level = self.prior.noise_variance.unsqueeze(-1)
        if not by_noise:
            return torch.ones_like(level)
        return level if self.prior.row_noise is None else self.prior.row_noise

    def ridges(self, by_noise: bool = False) -> Ridges:
        """Return the posteriors of these rows at a grid of ridges; see :meth:`noise`."""
        base = self.prior.first_lam * self.prior.prior_variance
        base = torch.ones_like(base) if by_noise else base
        weight = self.counts / self.noise(by_noise)
        with torch.no_grad():
            return Ridges(self.places, weight, self.outcomes, self.covariance, base, self.kept)


@dataclass(frozen=True, eq=False)
class OutputData(RowsOfOutput):
    """The rows of one output of a model, and how it sees raw points.

    Attributes:
        points: Maps ``b x d`` raw points to places, and to their prior variances
            (``batch_shape x b``); differentiable.
        to_raw: Maps ``batch_shape x b`` values and the places there to raw outcome units, with the
            prior mean.
    """

    points: Callable[[Tensor], tuple[Tensor, Tensor]]
    to_raw: Callable[[Tensor, Tensor], Tensor]

    def given(self, ridges: Ridges, pending: Tensor | None, noise: Tensor) -> Callable[..., Tensor]:
        """Return what outcomes at pending points would explain of variances.

        Args:
            ridges: The posterior of these rows, at the base ridge.
            pending: ``p x d`` raw points; None for none.
            noise: ``batch_shape``; the noise variance of an outcome.

        Returns:
            A function from ``batch_shape x b q x d`` places, their ``batch_shape x b q x N``
            covariances with the rows and ``q`` to what pending points, and those before a point in
            its batch of ``q``, explain of its posterior variance, ``batch_shape x b q``.
        """

        def root_of(covariance: Tensor) -> Tensor:
            levels = noise.unsqueeze(-1).expand(covariance.shape[:-1])
            return cholesky(covariance + torch.diag_embed(levels))

        if pending is not None:
            places, _ = self.points(pending)
            far = self.covariance(places, ridges.places)  # ... x p x N
            # c(x, z) = k(x, z) - k(x)' (K + Lambda)^-1 k(z)
            weights = ridges.weights(far)
            inverse = torch.linalg.inv(root_of(self.covariance(places, places) - far @ weights.mT))

        def explained(points: Tensor, cross: Tensor, num_points: int) -> Tensor:
            half = cross[..., :0]  # ... x b q x p
            if pending is not None:
                half = (self.covariance(points, places) - cross @ weights.mT) @ inverse.mT
            known = half.square().sum(-1)
            if num_points > 1:
                # b x batch_shape x q x (d, N, N, p)
                own, near, by, shared = (
                    each.unflatten(-2, (-1, num_points)).movedim(-3, 0)
                    for each in (points, cross, ridges.weights(cross), half)
                )
                left = self.covariance(own, own) - near @ by.mT - shared @ shared.mT
                earlier = root_of(left).tril(-1).square().sum(-1)  # b x batch_shape x q
                known = known + earlier.movedim(0, -2).flatten(-2)
            return known

        return explained


def read_data(model: Model) -> tuple[OutputData, ...]:
    """Read the data of each output of an exact Gaussian-process model.

    Args:
        model: An ensemble has one more batch dimension in everything, its members. It is not
            changed, and stays in training or evaluation mode.

    Raises:
        UnreadablePriorError: If the model's prior cannot be read, or it is a batch of models that
            is not an ensemble.
    """
    if isinstance(model, ModelListGP):
        return tuple(data for submodel in model.models for data in read_data(submodel))
    priors, num_outputs = read_prior(model), model.num_outputs
    if len(model.batch_shape) > 0 and not is_ensemble(model):
        raise UnreadablePriorError(
            f"{type(model).__name__} is a batch of {tuple(model.batch_shape)} models, each with "
            "its own data; use one acquisition function for each of them"
        )
    kernel, inputs = model.covar_module, kernel_inputs(model)
    has_batch = len(kernel.batch_shape) > 0
    function = None if has_batch else kernel_function(kernel, inputs.shape[-1])
    # row-wise noise levels are already those of the means
    has_levels = isinstance(model.likelihood, FixedNoiseGaussianLikelihood)
    repeats = None if has_levels else getattr(model, "repeats", None)
    counts = torch.ones_like(model.train_targets) if repeats is None else repeats
    scale, shift = outcome_units(model)
    with torch.no_grad():
        residual = model.train_targets - prior_mean_at(model, inputs)
    box = part_of(model, "closed_form")
    kept = None if box is None else box.memo

    def read_output(j: int, prior: OutputPrior) -> OutputData:
        def select(values: Tensor, event_dims: int = 1) -> Tensor:
            """Pick this output from the last batch dimension."""
            return values if num_outputs == 1 else values.select(-event_dims - 1, j)

        factor, offset = (
            select(each.unsqueeze(-1)) if each.dim() else each for each in (scale, shift)
        )

        def points(X: Tensor) -> tuple[Tensor, Tensor]:
            Z = inputs_of_kernel(model, X)
            if function is not None:
                return Z, function.diagonal(Z)
            # as many points as members look like a matrix to GPyTorch, if points have no batch
            Z = Z.expand(*torch.broadcast_shapes(Z.shape[:-2], kernel.batch_shape), *Z.shape[-2:])
            return Z, select(kernel(Z, diag=True))

        def covariance(Z: Tensor, others: Tensor) -> Tensor:
            if function is not None:
                return function(Z, others)
            if others.shape[-2] == 0:
                return select(Z[..., :0] @ others[..., :0].mT, 2)
            return select(kernel(Z, others).to_dense(), 2)

        def to_raw(values: Tensor, Z: Tensor) -> Tensor:
            return offset + factor * (values + select(prior_mean_at(model, Z)))

        rows = (inputs, select(counts), select(residual), covariance, kept)
        return OutputData(prior, *rows, points, to_raw)

    return tuple(read_output(j, prior) for j, prior in enumerate(priors))


@dataclass(frozen=True, eq=False)
class RidgeConfidenceSet:
    """The functions that fit the data and have a small norm; every tensor has their batch shape.

    Attributes:
        ridges: Posteriors at a grid of ridges (``a = infinity`` is added).
        radicands: ``batch_shape x num_ridges``; the radicand at each ridge.
        rkhs_bound: ``B``, after doubling if that was requested.
        smallest_rkhs_bound: The smallest ``B`` that the data do not refute.
    """

    ridges: Ridges
    radicands: Tensor
    rkhs_bound: Tensor
    smallest_rkhs_bound: Tensor

    @classmethod
    def of(
        cls,
        ridges: Ridges,
        rkhs_bound: float | Tensor,
        noise_bound: float | Tensor,
        delta: float,
        doubles: bool = False,
    ) -> RidgeConfidenceSet:
        """Compute the set from posteriors of the observed data.

        Args:
            ridges: The posteriors of outcomes as observed (not censored, not relabeled). The base
                ridge is ``a_0 = R^2 / c``, fixed before any data (the model's noise, say).
            rkhs_bound: ``B`` in the norm of the kernel as it is, of any variance: a number, or
                ``batch_shape``.
            noise_bound: ``R`` of R-sub-Gaussian noise, in the units of the outcomes.
            delta: The set fails to contain the reward with at most this probability.
            doubles: Whether to guess and double: a ``B`` that the data refute is replaced by the
                first of ``2 B, 4 B, ...`` that they do not refute. No theorem covers that.
        """
        device, fits, a = ridges.ridges.device, ridges.fits, ridges.ridges
        bound = check_all_nonnegative("rkhs_bound", rkhs_bound).to(device)
        variance = check_all_nonnegative("noise_bound", noise_bound).to(device) ** 2
        level = math.log(1.0 / check_probability("delta", delta))
        # r^2, where the base ridge is the last one
        radius = a[..., -1] * fits[..., -1] + 2.0 * variance * (ridges.information_gain + level)
        least = fits - radius.unsqueeze(-1) / a  # B^2 must be at least this
        smallest = least.clamp_min(0.0).amax(-1).sqrt()
        bound = bound.expand_as(smallest)
        if doubles:
            is_refuted = (bound**2).unsqueeze(-1) < least
            needed = torch.ceil(torch.log2((smallest / bound).clamp_min(1.0)))
            bound = bound * torch.where(is_refuted.any(-1), 2.0**needed, 1.0)
        return cls(ridges, (bound**2).unsqueeze(-1) - least, bound, smallest)

    @property
    def is_refuted(self) -> Tensor:
        """Whether the data refute kernel, ``B`` and ``R`` at level ``delta``; ``batch_shape``."""
        return (self.radicands < 0.0).any(-1)

    def bounds(self, cross: Tensor, prior_variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return lower and upper bounds and base variances, ``batch_shape x p`` each.

        A negative radicand counts as 0, so that a refuted set gives numbers, never NaN.

        Args:
            cross: ``batch_shape x p x n`` covariances of the points with the rows at
                ``ridges.places``; differentiable.
            prior_variance: ``batch_shape x p``.
        """
        return self.ridges.ends(cross, prior_variance, self.radicands, self.rkhs_bound)


@dataclass(frozen=True)
class RidgeTerms(NormBounds):
    """What is known of the function and the noise, and how the set is computed from it.

    See :class:`~botorch_bandits.confidence.igp_ucb.NormBounds` for the bounds and their units.

    Attributes:
        doubles: See :meth:`RidgeConfidenceSet.of`.
    """

    doubles: bool = False

    def __post_init__(self) -> None:
        """Check the ingredients."""
        super().__post_init__()
        if not isinstance(self.rkhs_bound, Tensor):  # one per replicate, on arms
            check_positive("rkhs_bound", self.rkhs_bound)

    @property
    def is_by_noise(self) -> bool:
        """Whether the noise of each row has a bound of its own."""
        return self.noise_bound == MODEL_NOISE

    def confidence_set(self, rows: RowsOfOutput, num_outputs: int = 1) -> RidgeConfidenceSet:
        """Return the set of an output, with norms in prior standard deviations.

        Args:
            rows: The rows of the output.
            num_outputs: The number of outputs among which ``delta`` is split.
        """
        of_norm, of_noise = self.units_of(rows.prior)
        batch_shape = rows.outcomes.shape[:-1]
        norm = _of_each("rkhs_bound", self.rkhs_bound, batch_shape).to(rows.outcomes) / of_norm
        noise = torch.ones_like(norm)
        if not self.is_by_noise:
            noise = _of_each("noise_bound", self.noise_bound, batch_shape).to(rows.outcomes)
            noise = noise / of_noise * rows.prior.prior_variance.sqrt()
        return RidgeConfidenceSet.of(
            rows.ridges(self.is_by_noise),
            norm,
            noise,
            self.delta / num_outputs,
            self.doubles,
        )

    def report_refutation(self, found: RidgeConfidenceSet, unit: float | Tensor) -> None:
        """Report if the data refute the assumptions.

        Args:
            found: The set of an output.
            unit: The prior standard deviation in raw outcome units.

        Warns:
            AssumptionRefutedWarning: If they do.
        """
        if self.doubles or not bool(found.is_refuted.any()):
            return
        norm = _stated(self.rkhs_bound)
        noise = self.noise_bound if self.is_by_noise else _stated(self.noise_bound)
        needed = f"{float((found.smallest_rkhs_bound * unit).max()):.4g}"
        if self.is_relative:
            smallest = float(found.smallest_rkhs_bound.max())
            needed = f"{smallest:.4g} prior standard deviations"
        warnings.warn(
            f"the data refute the assumptions at level {self.delta:g}: no function of norm {norm} "
            f"in this kernel fits them under noise_bound={noise} (the norm would have to exceed "
            f"{needed}). Check kernel, rkhs_bound and noise_bound, or pass double_rkhs_bound=True.",
            AssumptionRefutedWarning,
            stacklevel=3,
        )


def _of_each(name: str, bound: Any, batch_shape: torch.Size) -> Tensor:
    return fit_to_batch(name, torch.as_tensor(bound, dtype=torch.float64), batch_shape)


def _stated(bound: Any) -> str:
    return "that of its replicate" if torch.as_tensor(bound).dim() else f"{float(bound):g}"


def narrow(
    lower: Tensor, upper: Tensor, variance: Tensor, variance_with_pending: Tensor
) -> tuple[Tensor, Tensor]:
    """Return bounds narrowed as much as pending points shrink the deviation.

    Args:
        lower: Lower confidence bounds from the observed data.
        upper: Upper confidence bounds from the observed data.
        variance: Posterior variances, of the same shape, in prior variances.
        variance_with_pending: The same if the outcomes of pending points were known.
    """
    before, after = (each.clamp_min(MINIMUM_VARIANCE) for each in (variance, variance_with_pending))
    half = 0.5 * (upper - lower) * (1.0 - (after / before).sqrt())
    return lower + half, upper - half

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
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from torch import Tensor

from botorch_bandits.checks import check_double, check_finite, check_integer, check_probability
from botorch_bandits.confidence.bordered_basis import Border, BorderedBasis, Fading
from botorch_bandits.confidence.kernel_reading import prior_mean_at
from botorch_bandits.confidence.width_rules import (
    MINIMUM_VARIANCE,
    OutputPrior,
    UnreadablePriorError,
    check_all_nonnegative,
    inputs_of_kernel,
    kernel_inputs,
    outcome_units,
    read_prior,
)

NEGLIGIBLE_SHARE = 0.1
"""Eigenvectors whose eigenvalue is at most this share of the base ridge are left out of a coarse
set."""


class AssumptionRefutedWarning(RuntimeWarning):
    """The data refute the assumptions of a theorem at the level in use."""


@dataclass(frozen=True, eq=False)
class OutputData:
    """The data of one output as a theorem sees them, with unit-variance kernel and prior mean 0.

    Attributes:
        prior: The prior with which they were read.
        compute_matrix: Computes :attr:`kernel_matrix`.
        outcomes: ``batch_shape x n`` outcomes minus the prior mean, in prior standard deviations.
        cross: Maps ``b x d`` raw inputs to ``batch_shape x b x n`` kernel values with the data and
            ``batch_shape x b`` kernel values with themselves; differentiable.
        to_outcome_units: Maps ``batch_shape x b`` values in prior standard deviations and their
            ``b x d`` raw inputs to raw outcome units (the prior mean is added).
        growing: The closed form of the model, if it has one.
        weight: The factor that multiplies its rows, in addition to their own weights.
        fading: How these weights have developed, if all rows fade by a common factor.
    """

    prior: OutputPrior
    compute_matrix: Callable[[], Tensor]
    outcomes: Tensor
    cross: Callable[[Tensor], tuple[Tensor, Tensor]]
    to_outcome_units: Callable[[Tensor, Tensor], Tensor]
    growing: Any = None
    weight: float = 1.0
    fading: Fading | None = None

    @cached_property
    def kernel_matrix(self) -> Tensor:
        """``batch_shape x n x n``; the batch consists of the members of an ensemble."""
        return self.compute_matrix()

    def whitened(self) -> OutputData:
        """Return the data with each row divided by the square root of its ``lam``.

        With ``D`` the diagonal matrix of these inverse roots the kernel matrix becomes ``D K D``,
        the outcomes ``D y``, and the kernel values of a point with the data are multiplied by
        ``D`` as well. The noise of every row is then 1, if its variance was that of the model. The
        function space, hence the norm of the reward, is unchanged.
        """
        lam = self.prior.lam.unsqueeze(-1)
        if self.prior.row_noise is not None:
            lam = self.prior.row_noise / self.prior.prior_variance.unsqueeze(-1)
        root = lam.rsqrt()

        def cross(X: Tensor) -> tuple[Tensor, Tensor]:
            values, prior_variance = self.cross(X)
            return values * root.unsqueeze(-2), prior_variance

        has_one = self.growing is not None and root.numel() == 1
        return replace(
            self,
            compute_matrix=lambda: self.kernel_matrix * root.unsqueeze(-1) * root.unsqueeze(-2),
            outcomes=self.outcomes * root,
            cross=cross,
            growing=self.growing if has_one else None,
            weight=float(root) if has_one else 1.0,
        )


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
    priors = read_prior(model)
    if len(model.batch_shape) > 0 and not is_ensemble(model):
        raise UnreadablePriorError(
            f"{type(model).__name__} is a batch of {tuple(model.batch_shape)} models, each with "
            "its own data; use one acquisition function for each of them"
        )
    kernel: Kernel = model.covar_module
    num_outputs = model.num_outputs
    inputs = kernel_inputs(model)
    # row-wise noise levels are already those of the means
    has_levels = isinstance(model.likelihood, FixedNoiseGaussianLikelihood)
    repeats = None if has_levels else getattr(model, "repeats", None)
    growing = None if has_levels else getattr(model, "factored", None)

    def select(values: Tensor, output: int, event_dims: int = 1) -> Tensor:
        """Pick an output from the last batch dimension."""
        return values if num_outputs == 1 else values.select(-event_dims - 1, output)

    def transformed(X: Tensor) -> Tensor:
        Z = inputs_of_kernel(model, X)
        return Z if num_outputs == 1 else Z.expand(num_outputs, *Z.shape)

    def read_output(j: int, prior: OutputPrior) -> OutputData:
        unit = prior.prior_variance.unsqueeze(-1)
        # n_i observations of one input count as one with sqrt(n_i) times kernel and outcome
        targets = select(model.train_targets, j)
        root = torch.ones_like(targets) if repeats is None else select(repeats.sqrt(), j)

        def cross(X: Tensor) -> tuple[Tensor, Tensor]:
            Z = transformed(X)
            # as many points as members look like a matrix to GPyTorch, if points have no batch
            batch = torch.broadcast_shapes(Z.shape[:-2], kernel.batch_shape)
            variances = kernel(Z.expand(*batch, *Z.shape[-2:]), diag=True)
            prior_variance = select(variances, j) / unit
            if inputs.shape[-2] == 0:
                values = X.new_zeros(*prior_variance.shape, 0)
            else:
                values = select(kernel(Z, inputs).to_dense(), j, 2) / unit.unsqueeze(-1)
            return values * root.unsqueeze(-2), prior_variance

        def to_outcome_units(values: Tensor, X: Tensor) -> Tensor:
            values = values * unit.sqrt() + select(prior_mean_at(model, transformed(X)), j)
            scale, shift = outcome_units(model)
            if scale.dim():
                if num_outputs > 1:
                    scale, shift = scale[..., j], shift[..., j]
                scale, shift = scale.unsqueeze(-1), shift.unsqueeze(-1)
            return shift + scale * values

        with torch.no_grad():
            residual = targets - select(prior_mean_at(model, inputs), j)
        return OutputData(
            prior,
            lambda: (
                prior.kernel_matrix()
                / unit.unsqueeze(-1)
                * (root.unsqueeze(-1) * root.unsqueeze(-2))
            ),
            residual / unit.sqrt() * root,
            cross,
            to_outcome_units,
            growing,
            fading=getattr(model, "fading", None),
        )

    return tuple(read_output(j, prior) for j, prior in enumerate(priors))


@dataclass(frozen=True, eq=False)
class RidgeConfidenceSet:
    """Upper and lower confidence bounds that are the tightest over a grid of ridges.

    Use :meth:`from_data` to create it. Everything is in units of the prior standard deviation, and
    every tensor starts with the batch shape of the data.

    Attributes:
        ridges: ``batch_shape x num_ridges``; the grid of ``a`` (``a = infinity`` is added).
        radicands: ``batch_shape x num_ridges``; the radicand at each ridge.
        rkhs_bound: ``B``, scalar or ``batch_shape``; after doubling if that was requested.
        eigenvectors: ``batch_shape x n x n``; of the kernel matrix.
        mean_weights: ``batch_shape x n x num_ridges``; eigenfeatures times this are the means.
        variance_weights: ``batch_shape x n x num_ridges``; squared eigenfeatures times this are
            the explained variances.
        smallest_rkhs_bound: ``batch_shape``; the smallest ``B`` that the data do not refute.
        information_gain: ``batch_shape``; ``1/2 ln det(I + K / a_0)``, in nats.
        doubling: The power of two by which ``B`` was multiplied, scalar or ``batch_shape``.
        border: The changes due to other rows, if the eigenvectors are not those of all rows.
    """

    ridges: Tensor
    radicands: Tensor
    rkhs_bound: Tensor
    eigenvectors: Tensor
    mean_weights: Tensor
    variance_weights: Tensor
    smallest_rkhs_bound: Tensor
    information_gain: Tensor
    doubling: Tensor
    border: Border | None = None

    @classmethod
    def from_data(
        cls,
        kernel_matrix: Tensor,
        outcomes: Tensor,
        rkhs_bound: float | Tensor,
        noise_bound: float | Tensor,
        delta: float,
        base_ridge: float | Tensor,
        num_ridges: int = 48,
        doubles: bool = False,
    ) -> RidgeConfidenceSet:
        """Compute the set from the observed data.

        Args:
            kernel_matrix: ``batch_shape x n x n``, unit variance; ``n`` may be 0.
            outcomes: ``batch_shape x n`` outcomes as observed (not censored, not relabeled), in
                units of the prior standard deviation, less the prior mean.
            rkhs_bound: ``B``, in the same units; a number, or ``batch_shape``.
            noise_bound: ``R`` of R-sub-Gaussian noise, in the same units.
            delta: The set fails to contain the reward with at most this probability.
            base_ridge: ``a_0 = R^2 / c``, fixed before any data (the model's ``lam``, say); a
                number, or ``batch_shape``.
            num_ridges: Size of the grid; any grid gives a valid bound.
            doubles: Whether to guess and double: a ``B`` that the data refute is replaced by the
                first of ``2 B, 4 B, ...`` that they do not refute. No theorem covers that.
        """
        check_finite("kernel_matrix", check_double("kernel_matrix", kernel_matrix))
        check_finite("outcomes", check_double("outcomes", outcomes))
        rkhs_bound = check_all_nonnegative("rkhs_bound", rkhs_bound).to(kernel_matrix.device)
        variance = check_all_nonnegative("noise_bound", noise_bound).to(kernel_matrix.device) ** 2
        delta = check_probability("delta", delta)
        base = check_all_nonnegative("base_ridge", base_ridge).to(kernel_matrix.device)
        if not bool((base > 0.0).all()):
            raise ValueError(f"base_ridge is {base.tolist()}; it must be positive.")
        num_ridges = check_integer("num_ridges", num_ridges, minimum=1)
        eigenvalues, eigenvectors = torch.linalg.eigh(kernel_matrix)
        eigenvalues = eigenvalues.clamp_min(0.0)  # batch_shape x n
        projected = (outcomes.unsqueeze(-2) @ eigenvectors).squeeze(-2)
        base = base.expand(eigenvalues.shape[:-1]).unsqueeze(-1)  # batch_shape x 1
        log_determinant = torch.log1p(eigenvalues / base).sum(-1)
        radius = (
            (base * projected**2 / (eigenvalues + base)).sum(-1)
            + variance * log_determinant
            + 2.0 * variance * math.log(1.0 / delta)
        ).unsqueeze(-1)
        ridges = ridge_grid(base, eigenvalues.sum(-1, keepdim=True), num_ridges)
        shrunk = 1.0 / (eigenvalues.unsqueeze(-1) + ridges.unsqueeze(-2))
        fits = (projected.unsqueeze(-1) ** 2 * shrunk).sum(-2)  # batch_shape x num_ridges
        radicands, smallest, rkhs_bound, doubling = radicands_of(
            radius, ridges, fits, rkhs_bound, doubles
        )
        return cls(
            ridges=ridges,
            radicands=radicands,
            rkhs_bound=rkhs_bound,
            eigenvectors=eigenvectors,
            mean_weights=projected.unsqueeze(-1) * shrunk,
            variance_weights=shrunk,
            smallest_rkhs_bound=smallest,
            information_gain=0.5 * log_determinant,
            doubling=doubling,
        )

    @classmethod
    def of_growing(  # noqa: PLR0913 - options, each with a name
        cls,
        growing: Any,
        outcomes: Tensor,
        rkhs_bound: float,
        noise_bound: float,
        delta: float,
        base_ridge: float,
        num_ridges: int = 48,
        doubles: bool = False,
        weight: float = 1.0,
        fading: Fading | None = None,
    ) -> RidgeConfidenceSet:
        """Compute the set of a model that grows by rows, from a basis kept for most of them.

        Args:
            growing: The closed form of the model.
            outcomes: ``n`` outcomes, in units of the prior standard deviation, less the prior mean,
                times the weight.
            rkhs_bound: ``B``, in the same units.
            noise_bound: ``R`` of R-sub-Gaussian noise, in the same units.
            delta: The set fails to contain the reward with at most this probability.
            base_ridge: ``a_0 = R^2 / c``, fixed before any data.
            num_ridges: Size of the grid.
            doubles: Guess and double; see :meth:`from_data`.
            weight: The factor that multiplies all rows.
            fading: The fading of rows with their own weights, which multiply outcomes, too.
        """
        whole = BorderedBasis.of(growing, weight, fading)
        base, variance = outcomes.new_tensor([base_ridge]), noise_bound**2
        trace = whole.trace.reshape(1)
        ridges = ridge_grid(base, trace, num_ridges)  # the last one is the base ridge
        solved = whole.solve(ridges, outcomes)
        log_determinant = solved.log_determinant - growing.num_rows * math.log(base_ridge)
        radius = base * solved.fits[-1:] + variance * (
            log_determinant + 2.0 * math.log(1.0 / check_probability("delta", delta))
        )
        bound = check_all_nonnegative("rkhs_bound", rkhs_bound).to(outcomes.device)
        radicands, smallest, bound, doubling = radicands_of(
            radius, ridges, solved.fits, bound, doubles
        )
        return cls(
            ridges=ridges,
            radicands=radicands,
            rkhs_bound=bound,
            eigenvectors=whole.eigenvectors[whole.num_left :],
            mean_weights=solved.mean_weights,
            variance_weights=solved.variance_weights,
            smallest_rkhs_bound=smallest,
            information_gain=0.5 * log_determinant,
            doubling=doubling,
            border=solved.border,
        )

    @cached_property
    def leading(self) -> RidgeConfidenceSet | None:
        r"""A coarse set without eigenvectors that hardly matter, for sets without a batch.

        The part of the prior variance that eigenvectors with eigenvalues up to :math:`\Lambda`
        explain at ridge ``a`` is at most :math:`\Lambda / (\Lambda + a)`, because
        :math:`\sum_i f_i^2 / \lambda_i \le k(x, x)`. They are left out if :math:`\\Lambda` is
        :data:`NEGLIGIBLE_SHARE` of the base ridge. None if more than half of them would be left, or
        if rows have left: the features, which have zeros in their places, are not small for small
        eigenvalues.
        """
        if self.border is not None and self.border.num_left:
            return None
        base = self.ridges[-1]
        eigenvalues = self.variance_weights[:, -1].reciprocal() - base
        num_kept = int((eigenvalues > NEGLIGIBLE_SHARE * base).sum())
        if num_kept == 0 or 2 * num_kept > len(eigenvalues):
            return None
        kept = eigenvalues.topk(num_kept).indices.sort().values
        border = self.border
        if border is not None:
            border = replace(  # the inverse factors are those of all rows
                border, cross=border.cross[kept], from_features=border.from_features[:, kept]
            )
        return replace(
            self,
            eigenvectors=self.eigenvectors[:, kept],
            mean_weights=self.mean_weights[kept],
            variance_weights=self.variance_weights[kept],
            border=border,
        )

    @property
    def is_refuted(self) -> Tensor:
        """Whether the data refute kernel, ``B`` and ``R`` at level ``delta``; ``batch_shape``."""
        return (self.radicands < 0.0).any(-1)

    def bounds(self, cross: Tensor, prior_variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and upper confidence bound at some points.

        A negative radicand counts as 0, so that a refuted set gives numbers, never NaN.

        Args:
            cross: ``batch_shape x p x n`` kernel values between points and data, unit variance.
            prior_variance: ``batch_shape x p`` kernel values of the points with themselves.

        Returns:
            Two tensors of shape ``batch_shape x p``.
        """
        mean, variance = self.moments(cross, prior_variance)[:2]
        deviation = variance.sqrt() * self.radicands.clamp_min(0.0).sqrt().unsqueeze(-2)
        prior_bound = self.rkhs_bound.unsqueeze(-1) * prior_variance.sqrt()  # a = infinity
        upper = torch.minimum((mean + deviation).amin(-1), prior_bound)
        lower = torch.maximum((mean - deviation).amax(-1), -prior_bound)
        # an empty set has no bounds: its ends meet in the middle
        middle = 0.5 * (lower + upper)
        return torch.minimum(lower, middle), torch.maximum(upper, middle)

    def moments(
        self, cross: Tensor, prior_variance: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return means and variances at all ridges, ``batch_shape x p x num_ridges`` each.

        Args:
            cross: ``batch_shape x p x n`` kernel values between points and data, unit variance.
            prior_variance: ``batch_shape x p`` kernel values of the points with themselves.

        Returns:
            Means and variances, followed by the quantities that :meth:`slopes` needs.
        """
        border = self.border
        num_came = 0 if border is None else border.num_rows
        rows = cross[..., : cross.shape[-1] - num_came]
        features = rows @ self.eigenvectors  # batch_shape x p x n
        mean = features @ self.mean_weights  # batch_shape x p x num_ridges
        explained = features**2 @ self.variance_weights
        whitened = None
        if border is not None:
            last = cross[..., cross.shape[-1] - num_came :]
            whitened = border.whiten(features, last)
            mean = mean + last @ border.mean_weights
            explained = explained + border.explained(whitened)
        variance = (prior_variance.unsqueeze(-1) - explained).clamp_min(MINIMUM_VARIANCE)
        return mean, variance, features, whitened

    def slopes(
        self, features: Tensor, whitened: Tensor | None, ridge: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the factors of kernel values in the slopes of means and variances.

        Args:
            features: ``p x n``, from :meth:`moments`; without a batch.
            whitened: The last result of :meth:`moments`.
            ridge: ``p``, the number of the ridge at each point.

        Returns:
            ``p x n`` weights of the mean, and half of what explains the variance.
        """
        of_mean = self.mean_weights.mT[ridge]
        shrunk = self.variance_weights.mT[ridge]
        if self.border is None or whitened is None:
            return of_mean @ self.eigenvectors.mT, (shrunk * features) @ self.eigenvectors.mT
        index = torch.arange(len(ridge), device=ridge.device)
        last = self.border.unwhiten(whitened[index, ridge], ridge)
        rows = torch.stack([of_mean, shrunk * (features - last @ self.border.cross.mT)])
        first = rows @ self.eigenvectors.mT
        came = last[..., self.border.num_left :]
        both = torch.stack([self.border.mean_weights.mT[ridge], came])
        of_mean, of_variance = torch.cat([first, both], dim=-1)
        return of_mean, of_variance


def radicands_of(
    radius: Tensor, ridges: Tensor, fits: Tensor, rkhs_bound: Tensor, doubles: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the radicands, the smallest norm bound, and the one in use with its doubling.

    Args:
        radius: ``batch_shape x 1``; ``r_t^2``.
        ridges: ``batch_shape x num_ridges``.
        fits: ``batch_shape x num_ridges``; ``y' (K + a I)^-1 y`` at each ridge.
        rkhs_bound: ``B``, scalar or ``batch_shape``.
        doubles: See :meth:`RidgeConfidenceSet.from_data`.
    """
    smallest = (fits - radius / ridges).clamp_min(0.0).amax(-1).sqrt()
    doubling = torch.ones_like(rkhs_bound)
    radicands = radius / ridges + rkhs_bound.unsqueeze(-1) ** 2 - fits
    if doubles and bool((radicands < 0.0).any()):
        needed = (smallest / rkhs_bound).clamp_min(1.0)
        doubling = 2.0 ** torch.ceil(torch.log2(needed))
        rkhs_bound = rkhs_bound * doubling
        radicands = radius / ridges + rkhs_bound.unsqueeze(-1) ** 2 - fits
    return radicands, smallest, rkhs_bound, doubling


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


def report_refutation(
    delta: float,
    rkhs_bound: float | Tensor,
    noise_bound: float | Tensor | str,
    smallest_rkhs_bound: float,
    on_refuted: str,
    in_prior_units: bool = False,
    kernels: str = "this kernel",
    remedy: str = "Check kernel, rkhs_bound and noise_bound, or pass double_rkhs_bound=True.",
) -> None:
    """Report that the data refute the assumptions.

    Args:
        delta: The level at which they do.
        rkhs_bound: ``B``; a number, or one per replicate.
        noise_bound: ``R``; a number, one per replicate, or ``"model"``.
        smallest_rkhs_bound: The value that ``B`` would have to exceed, in the same units.
        on_refuted: ``"warn"`` or ``"raise"``.
        in_prior_units: Whether bounds are in prior standard deviations instead of outcome units.
        kernels: A description of the kernels that were tried.
        remedy: What the user can do.

    Raises:
        ValueError: If ``on_refuted`` is ``"raise"``.

    Warns:
        AssumptionRefutedWarning: Otherwise.
    """
    norm, noise = (
        "that of its replicate"
        if isinstance(each, Tensor)
        else (each if isinstance(each, str) else f"{each:g}")
        for each in (rkhs_bound, noise_bound)
    )
    unit = " prior standard deviations" if in_prior_units else ""
    message = (
        f"the data refute the assumptions at level {delta:g}: no function of norm {norm} in "
        f"{kernels} fits them under noise_bound={noise} (the norm would have to exceed "
        f"{smallest_rkhs_bound:.4g}{unit}). {remedy}"
    )
    if on_refuted == "raise":
        raise ValueError(message)
    warnings.warn(message, AssumptionRefutedWarning, stacklevel=3)


def ridge_grid(base_ridge: Tensor, trace: Tensor, num_ridges: int) -> Tensor:
    """Return a geometric grid around the base ridge, up to where the data no longer matter.

    Args:
        base_ridge: ``batch_shape x 1``; it is the last ridge of the grid.
        trace: ``batch_shape x 1``; the trace of the kernel matrix of all observations.
        num_ridges: Size of the grid.

    Returns:
        ``batch_shape x num_ridges``.
    """
    if num_ridges == 1:
        return base_ridge
    low, high = 1e-2 * base_ridge, 1e2 * (base_ridge + trace)
    steps = torch.linspace(0.0, 1.0, num_ridges - 1, dtype=low.dtype, device=low.device)
    return torch.cat([low * (high / low) ** steps, base_ridge], dim=-1)

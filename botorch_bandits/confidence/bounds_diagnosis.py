r"""What the data of a model say about bounds on norm and noise, the basis of every guarantee.

No data can show that a bound holds, but data can refute one. :func:`diagnose_bounds` reports which
pairs of a norm bound ``B`` and a noise bound ``R`` they refute, based on the confidence set of DMM
(see :mod:`botorch_bandits.confidence.dmm`): with probability ``1 - delta`` the reward obeys

.. math:: \|f(X) - y\|^2 \le r^2 = a_0 y^\top (K + a_0 I)^{-1} y + R^2 L, \qquad
          L = \ln\det(I + K / a_0) + 2 \ln(1/\delta),

with ``a_0`` the model's noise variance over its prior variance. A function with norm at most ``B``
can do so only if, for every ``a > 0``,

.. math:: B^2 \ge y^\top (K + a I)^{-1} y - r^2 / a.

The largest right-hand side is the square of the smallest ``B`` that the data do not refute; solved
for ``R`` it gives the smallest ``R``. A grid of ``a`` refutes no more than all ``a > 0`` do.

The regret bound is that of the width for every regularization (Chowdhury and Gopalan 2017, Theorem
3 with that width): with ``T`` rows chosen by upper confidence bounds in any order, ``gamma`` their
information gain and ``kappa`` the largest prior variance at a row,

.. math:: 2 w \sqrt{T \frac{2 \kappa \gamma}{\ln(1 + \kappa / a_0)}}, \qquad
          w = B + \frac{R}{\sqrt{a_0}} \sqrt{2 (\gamma + \ln(1/\delta))},

because the posterior variances before each row obey ``sum ln(1 + s^2 / a_0) = 2 gamma`` and
``s^2 <= kappa``. If ``k(x, x) = kappa`` for all points, the regret of a round is also at most
``2 B sqrt(kappa)``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.checks import check_nonnegative, check_positive, check_probability
from botorch_bandits.confidence.dmm import RidgeConfidenceSet, read_data
from botorch_bandits.confidence.igp_ucb import any_lambda_width
from botorch_bandits.confidence.prior_reading import UnreadablePriorError, refuse_several

NOISE_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The multiples of the noise bound at which the smallest norm bound is also reported."""


@dataclass(frozen=True)
class BoundsDiagnosis:
    """Which bounds the data refute, and what larger ones would cost; see :func:`diagnose_bounds`.

    Everything except ``delta`` and the counts is in the units of the outcomes.

    Attributes:
        noise_bound: ``R``, as given or read from the model.
        rkhs_bound: The smallest ``B`` that the data do not refute together with ``noise_bound``.
        rkhs_bound_by_noise: The smallest ``B`` for several ``R``.
        noise_bound_by_norm: The smallest ``R`` for several multiples of ``rkhs_bound``.
        regret_bounds: For these multiples, a bound on the cumulative regret of the model's rows if
            they had been chosen by upper confidence bounds with this ``B`` and ``noise_bound``.
        delta: The probability with which, at most, a pair of bounds that holds and was fixed before
            the data is refuted; each regret bound fails with at most this probability as well.
        num_rows: The number of outcomes. If they have weights, it is the number of outcomes with
            the noise of the model that would weigh the same, rounded up.
        information_gain: The information gain of the rows, in nats.
        caveats: The reasons why the level may not be exact, and what was counted.
    """

    noise_bound: float
    rkhs_bound: float
    rkhs_bound_by_noise: Mapping[float, float]
    noise_bound_by_norm: Mapping[float, float]
    regret_bounds: Mapping[float, float]
    delta: float
    num_rows: int
    information_gain: float
    caveats: tuple[str, ...] = ()

    def refutes(self, rkhs_bound: float) -> bool:
        """Return whether the data refute a norm bound, together with ``noise_bound``.

        Args:
            rkhs_bound: ``B``, in the units of the outcomes.
        """
        return check_nonnegative("rkhs_bound", rkhs_bound) < self.rkhs_bound

    def __str__(self) -> str:
        """Return the diagnosis as a few lines of text."""
        lines = [
            self._headline(),
            *(f"  with R = {R:.4g}: B >= {B:.4g}" for R, B in self.rkhs_bound_by_noise.items()),
            *(
                f"  with B = {B:.4g}: R >= {self.noise_bound_by_norm[B]:.4g}; "
                f"regret at most {bound:.4g} with R = {self.noise_bound:.4g}"
                for B, bound in self.regret_bounds.items()
            ),
            *(f"  caution: {caveat}" for caveat in self.caveats),
        ]
        return "\n".join(lines)

    def _headline(self) -> str:
        return (
            f"{self.num_rows} outcomes refute, at level {self.delta:g}, every norm bound below "
            f"{self.rkhs_bound:.4g} together with the noise bound {self.noise_bound:.4g}"
        )


def diagnose_bounds(
    model: Model,
    noise_bound: float | None = None,
    delta: float = 0.05,
    factors: Sequence[float] = (1.0, 2.0, 4.0),
) -> BoundsDiagnosis:
    """Report which bounds on norm and noise the data refute, and what larger ones would cost.

    Use it to choose ``rkhs_bound`` and ``noise_bound``, preferably on data other than those of the
    run: no theorem covers a bound that was chosen using the data to which it is then applied. Data
    can refute bounds that are too small but never those that are too large, so you must choose a
    margin; ``regret_bounds`` shows its cost.

    Args:
        model: An exact Gaussian-process model of one output with data and one noise level, such as
            a :class:`~botorch_bandits.BanditGP`. Its prior mean is subtracted: ``B`` bounds the
            norm of the reward minus that mean. The model is not changed.
        noise_bound: ``R`` of R-sub-Gaussian noise, in the units of the outcomes; the standard
            deviation of the model's noise if omitted.
        delta: The level.
        factors: The multiples of the smallest ``B`` for which regret bounds are reported.

    Raises:
        TypeError: If ``model`` is not a BoTorch model.
        ValueError: If the model is a list of priors, has no data, several outputs, a batch
            dimension or noise that differs from row to row; if its prior cannot be read
            (:class:`~botorch_bandits.confidence.UnreadablePriorError`); or if an argument is out of
            range.

    Source: Flynn and Reeb, *Tighter confidence bounds for sequential kernel regression*, arXiv
    2403.12732, 2024; Chowdhury and Gopalan, *On kernelized multi-armed bandits*, ICML 2017.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import BanditGP
        >>> X = torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1)
        >>> model = BanditGP(X, torch.sin(8.0 * X), kernel=RBFKernel().double(), noise=1e-4)
        >>> found = diagnose_bounds(model)
        >>> found.refutes(0.5), found.refutes(1e6)
        (True, False)
    """
    delta = check_probability("delta", delta)
    factors = [check_positive("a factor", factor) for factor in factors]
    refuse_several("diagnose", model)
    (data,) = read_data(model)
    prior = data.prior
    if prior.row_noise is not None:
        raise UnreadablePriorError(
            "model has noise that differs from row to row, which one noise bound does not "
            "describe. Pass a model with one noise level."
        )
    if data.outcomes.shape[-1] == 0:
        raise ValueError("model has no data, so nothing can be refuted. Pass one with outcomes.")
    unit, lam = float(prior.standard_deviation), prior.first_lam
    if noise_bound is None:
        noise = float(lam.sqrt())
    else:
        noise = check_nonnegative("noise_bound", noise_bound) / unit
    with torch.no_grad():
        # the values for B = R = 0, from which all others follow
        empty = RidgeConfidenceSet.of(data.ridges(), 0.0, 0.0, delta)
        gain, variance = float(empty.ridges.information_gain), float(prior.prior_variance)
        rate = 2.0 * gain + 2.0 * math.log(1.0 / delta)
        limits = _Limits(empty.ridges.ridges / variance, empty.radicands, rate)
        norm, counts = limits.norm(noise), data.counts
        weight = float(counts.sum())
        are_counts = bool((counts == counts.round()).all())
        num_rows = round(weight) if are_counts else max(1, math.ceil(weight))
        largest = float(data.covariance(data.places, data.places).diagonal().max()) / variance
    deviations = math.sqrt(
        num_rows * 2.0 * largest * gain / math.log1p(largest / float(lam)) if gain > 0.0 else 0.0
    )

    def regret(B: float) -> float:
        width = float(any_lambda_width(B, noise, gain, delta, lam))
        if prior.is_stationary:
            return min(2.0 * width * deviations, 2.0 * B * math.sqrt(largest) * num_rows)
        return 2.0 * width * deviations

    levels = [factor * noise for factor in NOISE_FACTORS] if noise > 0.0 else [0.0]
    norms = [factor * norm for factor in factors]
    return BoundsDiagnosis(
        noise_bound=noise * unit,
        rkhs_bound=norm * unit,
        rkhs_bound_by_noise={R * unit: limits.norm(R) * unit for R in levels},
        noise_bound_by_norm={B * unit: limits.noise(B) * unit for B in norms},
        regret_bounds={B * unit: regret(B) * unit for B in norms},
        delta=delta,
        num_rows=num_rows,
        information_gain=gain,
        caveats=tuple(_caveats(prior.learned, None if are_counts else weight)),
    )


def _caveats(learned: Sequence[str], weight: float | None) -> Iterator[str]:
    """Yield reasons why the level may be inexact, and what is counted if rows have weights."""
    if learned:
        yield (
            "the level is stated for a model that was fixed before the data, but of this one "
            f"{', '.join(learned)} can have been learned from them"
        )
    if weight is not None:
        yield (
            "outcomes have their own noise variances, or fade: they weigh as much as "
            f"{weight:.3g} outcomes with the noise of the model, which is the number that is "
            "counted and that regret bounds are for"
        )


@dataclass(frozen=True)
class _Limits:
    """The norms and noises that are not refuted, in prior standard deviations.

    Attributes:
        ridges: The grid of ``a``, in prior variances.
        radicands: The radicand for each ridge, with ``B = R = 0``.
        rate: ``L``, the rate at which ``r^2`` grows with ``R^2``.
    """

    ridges: Tensor
    radicands: Tensor
    rate: float

    def norm(self, noise: float) -> float:
        """Return the smallest norm bound for a noise bound."""
        least = -(self.radicands + noise**2 * self.rate / self.ridges).min()
        return math.sqrt(max(0.0, float(least)))  # 0.0 rather than -0.0

    def noise(self, norm: float) -> float:
        """Return the smallest noise bound for a norm bound."""
        least = -(self.ridges * (self.radicands + norm**2)).min() / self.rate
        return math.sqrt(max(0.0, float(least)))  # 0.0 rather than -0.0

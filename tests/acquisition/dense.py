"""Textbook Gaussian processes in numpy: what the acquisition functions are compared with.

Nothing here calls GPyTorch or the package. Kernels are explicit formulas, posteriors are explicit
linear algebra, and units are spelled out: ``raw outcome = shift + unit * transformed outcome``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log, pi, sqrt

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import erfcx, ndtr

Array = np.ndarray
Bound = float | tuple[float, ...]


def squared_exponential(lengthscale: object) -> Callable[[Array, Array], Array]:
    """``exp(-r**2 / 2)`` with ``r`` the distance after division by the lengthscale(s)."""
    return lambda A, B: np.exp(-0.5 * _distance(A, B, lengthscale) ** 2)


def matern_five_halves(lengthscale: object) -> Callable[[Array, Array], Array]:
    """``(1 + sqrt(5) r + 5 r**2 / 3) exp(-sqrt(5) r)``."""

    def kernel(A: Array, B: Array) -> Array:
        r = sqrt(5.0) * _distance(A, B, lengthscale)
        return (1.0 + r + r**2 / 3.0) * np.exp(-r)

    return kernel


def _distance(A: Array, B: Array, lengthscale: object) -> Array:
    scale = np.asarray(lengthscale, dtype=float).reshape(-1)
    difference = A[:, None, :] / scale - B[None, :, :] / scale
    return np.sqrt((difference**2).sum(-1))


def information_gain(K: Array, noise: Array | float) -> float:
    """``1/2 ln det(I + D K D)`` with one over the root of each row's noise variance in ``D``."""
    root = np.sqrt(np.broadcast_to(noise, len(K)))
    return 0.5 * float(np.linalg.slogdet(np.eye(len(K)) + K / np.outer(root, root))[1])


def ridge_bounds(
    K: Array,
    cross: Array,
    y: Array,
    rkhs_bound: float,
    noise_bound: float,
    delta: float,
    base: float,
) -> tuple[Array, Array, Array]:
    """DMM by its definition, over 48 ridges and infinity: lower ends, upper ends, deviations.

    Of a prior variance of 1. ``cross`` are covariances of the points with the rows; the deviations
    are those at the base ridge, which is the last one.
    """
    identity = np.eye(len(y))
    radius = base * y @ np.linalg.solve(K + base * identity, y)
    radius += 2.0 * noise_bound**2 * (information_gain(K, base) + log(1.0 / delta))
    lower, upper = np.full(len(cross), -rkhs_bound), np.full(len(cross), rkhs_bound)
    for a in [*np.geomspace(1e-2 * base, 1e2 * (base + np.trace(K)), 47), base]:
        L = np.linalg.cholesky(K + a * identity)
        at_points, seen = (solve_triangular(L, each, lower=True) for each in (cross.T, y))
        mean, variance = seen @ at_points, 1.0 - np.square(at_points).sum(0)
        deviation = np.sqrt(np.clip(variance, 1e-18, None))
        half = deviation * sqrt(max(radius / a + rkhs_bound**2 - seen @ seen, 0.0))
        lower, upper = np.maximum(lower, mean - half), np.minimum(upper, mean + half)
    return lower, upper, deviation


@dataclass(frozen=True)
class DenseGP:
    """One output of one Gaussian process.

    ``Y`` is transformed; ``noise`` holds one variance a row in transformed units; new rows get
    the mean of these. ``low`` and ``high`` are the ends of the input normalization, if any.
    """

    X: Array  # n x d, raw
    Y: Array  # n
    kernel: Callable[[Array, Array], Array]
    noise: Array  # n
    new_noise: float
    outputscale: float = 1.0
    prior_mean: float = 0.0
    shift: float = 0.0
    unit: float = 1.0
    low: Array | float = 0.0
    high: Array | float = 1.0

    def covariance(self, A: Array, B: Array) -> Array:
        width = np.asarray(self.high) - np.asarray(self.low)
        return self.outputscale * self.kernel((A - self.low) / width, (B - self.low) / width)

    def posterior(self, x: Array) -> tuple[Array, Array]:
        """Mean and covariance at the rows of ``x``, in raw outcome units."""
        K = self.covariance(self.X, self.X) + np.diag(self.noise)
        cross = self.covariance(self.X, x)
        weights = np.linalg.solve(K, cross) if len(self.X) else cross
        mean = self.prior_mean + weights.T @ (self.Y - self.prior_mean)
        covariance = self.covariance(x, x) - weights.T @ cross
        return self.shift + self.unit * mean, self.unit**2 * covariance

    def hallucinate(self, x: Array) -> DenseGP:
        """The same process with rows ``x`` whose outcomes are the posterior mean there."""
        Y = (self.posterior(x)[0] - self.shift) / self.unit
        return replace(
            self,
            X=np.vstack([self.X, x]),
            Y=np.concatenate([self.Y, Y]),
            noise=np.concatenate([self.noise, np.full(len(x), self.new_noise)]),
        )

    def censor(self, x: Array, minimum: Array | float, extra_noise: float = 0.0) -> DenseGP:
        """The same process with rows ``x`` at a raw outcome; extra noise in squared raw units."""
        level = self.new_noise + extra_noise / self.unit**2
        return replace(
            self,
            X=np.vstack([self.X, x]),
            Y=np.concatenate([self.Y, np.full(len(x), (minimum - self.shift) / self.unit)]),
            noise=np.concatenate([self.noise, np.full(len(x), level)]),
        )

    def deviations(self, x: Array) -> Array:
        """Posterior standard deviations at the rows of ``x``, in raw outcome units."""
        return np.sqrt(np.clip(np.diagonal(self.posterior(x)[1]), 0.0, None))

    @property
    def standard_deviation(self) -> float:
        """The prior's, in raw outcome units."""
        return sqrt(self.outputscale) * self.unit

    @property
    def lam(self) -> float:
        """The smallest noise variance of a row over the prior variance."""
        return min([*self.noise, self.new_noise]) / self.outputscale

    @property
    def information_gain(self) -> float:
        return information_gain(self.covariance(self.X, self.X), self.noise)

    def ridge_bounds(
        self, x: Array, rkhs_bound: float, noise_bound: float | Array, delta: float
    ) -> tuple[Array, Array]:
        """The ends of DMM; ``noise_bound`` is one number, or one for each row."""
        s = self.standard_deviation
        of_rows = np.broadcast_to(noise_bound, len(self.X)) / s
        base = self.unit**2 * self.noise[0] / (s * of_rows[0]) ** 2 if len(self.X) else self.lam
        K = self.covariance(self.X, self.X) / self.outputscale / np.outer(of_rows, of_rows)
        cross = self.covariance(x, self.X) / self.outputscale / of_rows
        y = (self.Y - self.prior_mean) / sqrt(self.outputscale) / of_rows
        lower, upper, _ = ridge_bounds(K, cross, y, rkhs_bound / s, 1.0, delta, base)
        middle = self.shift + self.unit * self.prior_mean
        return middle + s * lower, middle + s * upper


@dataclass(frozen=True)
class Reference:
    """A model as its members (one, or those of a batch or an ensemble) and their outputs.

    The scalar that is maximized is ``offset + sum_j weights[j] * output_j``.
    """

    members: tuple[tuple[DenseGP, ...], ...]
    weights: tuple[float, ...] = (1.0,)
    offset: float = 0.0

    @property
    def num_rows(self) -> int:
        return len(self.members[0][0].X)

    def moments(self, x: Array) -> tuple[Array, Array]:
        """Mean (``members x n``) and covariance (``members x n x n``) of the scalar."""
        means, covariances = [], []
        for outputs in self.members:
            posteriors = [output.posterior(x) for output in outputs]
            pairs = list(zip(self.weights, posteriors, strict=True))
            means.append(self.offset + sum(w * mean for w, (mean, _) in pairs))
            covariances.append(sum(w**2 * covariance for w, (_, covariance) in pairs))
        return np.stack(means), np.stack(covariances)

    def mean_and_sd(self, x: Array) -> tuple[Array, Array]:
        means, covariances = self.moments(x)
        variances = np.diagonal(covariances, axis1=-2, axis2=-1)
        return means, np.sqrt(np.clip(variances, 1e-18, None))

    def hallucinate(self, x: Array | None) -> Reference:
        if x is None or len(x) == 0:
            return self
        members = tuple(
            tuple(output.hallucinate(x) for output in outputs) for outputs in self.members
        )
        return replace(self, members=members)

    def censor(self, x: Array, minima: tuple[float, ...], extra_noise: float = 0.0) -> Reference:
        """Every member with rows ``x`` at the raw minimum of each output."""
        members = tuple(
            tuple(
                output.censor(x, minimum, extra_noise)
                for output, minimum in zip(outputs, minima, strict=True)
            )
            for outputs in self.members
        )
        return replace(self, members=members)

    def widths(self, delta: float, of_output: Callable[[DenseGP, int, float], float]) -> Array:
        """The width of each member: of its outputs in use, which share ``delta``.

        ``of_output`` is called with the output, its place and ``ln(1 / delta)``.
        """
        active = [j for j, weight in enumerate(self.weights) if weight != 0.0]
        radius = log(len(active) / delta)
        return np.array(
            [
                sqrt(sum(of_output(outputs[j], j, radius) ** 2 for j in active))
                for outputs in self.members
            ]
        )

    def censored_width(
        self,
        window: Array,
        rkhs_bound: float,
        noise_bound: float,
        outcome_bound: float,
        delta: float,
        form: str = "printed",
    ) -> Array:
        """``nu_t`` of an already censored reference, with the sum over the rows of ``window``."""

        def of_output(output: DenseGP, j: int, radius: float) -> float:
            s, lam, gain = output.standard_deviation, output.lam, output.information_gain
            B, R, B_y = rkhs_bound / s, noise_bound / s, outcome_bound / s
            total = (output.deviations(window) / s).sum()
            if form == "printed":
                return B_y * total + B + (R + B_y) * sqrt(2.0 * (gain + 1.0 + log(2.0) + radius))
            if form == "any lambda":
                noise = (R + B_y) / sqrt(lam) * sqrt(2.0 * (gain + log(2.0) + radius))
                return B_y / lam * total + B + noise
            if form == "constant":
                return B_y / lam * total
            return B_y / lam * total + B + B_y / (2.0 * sqrt(lam)) * sqrt(2.0 * (gain + radius))

        widths = self.widths(delta, of_output)
        # a width of 1.5 for the scalarization, in place of the other terms
        return 1.5 + widths if form == "constant" else widths

    def kernelized_width(
        self,
        rkhs_bound: Bound,
        noise_bound: Bound,
        delta: float,
        any_lambda: bool = False,
        information_gain: float | None = None,
    ) -> Array:
        """Width of IGP-UCB for each member."""

        def of_output(output: DenseGP, j: int, radius: float) -> float:
            s = output.standard_deviation
            gain = output.information_gain if information_gain is None else information_gain
            noise = _of(noise_bound, j) / s * sqrt(2.0 * (gain + 1.0 + radius))
            if any_lambda:
                noise = _of(noise_bound, j) / s * sqrt(2.0 * (gain + radius) / output.lam)
            return _of(rkhs_bound, j) / s + noise

        return self.widths(delta, of_output)

    def mixture_width(self, rkhs_bound: Bound, noise_bound: Bound, delta: float) -> Array:
        """Width of AMM with ``c = R**2 / lam``."""

        def of_output(output: DenseGP, j: int, radius: float) -> float:
            s = output.standard_deviation
            c = (_of(noise_bound, j) / s) ** 2 / output.lam
            determinant = 2.0 * output.information_gain
            return sqrt((_of(rkhs_bound, j) / s) ** 2 + c * determinant + 2.0 * c * radius)

        return self.widths(delta, of_output)

    def ridge_bounds(
        self, x: Array, rkhs_bound: float, noise_bound: float, delta: float, pending: Array
    ) -> tuple[Array, Array]:
        """DMM's bounds on the scalar, one ridge at a time: ``members x n`` each.

        Pending points narrow the bounds of each output as they shrink its deviation.
        """
        active = [j for j, weight in enumerate(self.weights) if weight != 0.0]
        lower, upper = [], []
        for outputs in self.members:
            total = [np.full(len(x), self.offset), np.full(len(x), self.offset)]
            for j in active:
                ends = outputs[j].ridge_bounds(x, rkhs_bound, noise_bound, delta / len(active))
                ratio = outputs[j].hallucinate(pending).deviations(x) / outputs[j].deviations(x)
                middle, half = 0.5 * (ends[0] + ends[1]), 0.5 * ratio * (ends[1] - ends[0])
                ends = middle - half, middle + half
                low, high = ends if self.weights[j] > 0.0 else ends[::-1]
                total[0] = total[0] + self.weights[j] * low
                total[1] = total[1] + self.weights[j] * high
            lower.append(total[0])
            upper.append(total[1])
        return np.stack(lower), np.stack(upper)

    def finite_arms_width(self, num_arms: int, round_number: int, delta: float) -> Array:
        """Width of GP-UCB, Srinivas et al. 2010, Theorem 1."""
        width = sqrt(2.0 * log(num_arms * round_number**2 * pi**2 / (6.0 * delta)))
        return np.full(len(self.members), width)

    def upper_bound(self, x: Array, width: Array, maximize: bool = True) -> Array:
        """``(+/-) mean + width * sd`` of each member at the rows of ``x``."""
        mean, sd = self.mean_and_sd(x)
        return (mean if maximize else -mean) + np.asarray(width).reshape(-1, 1) * sd

    def log_expected_improvement(self, x: Array, best: Array, maximize: bool = True) -> Array:
        """``log E[max(f - best, 0)]`` of each member; ``best`` is one number per member."""
        mean, sd = self.mean_and_sd(x)
        u = (mean - np.asarray(best).reshape(-1, 1)) / sd * (1.0 if maximize else -1.0)
        return np.log(sd) + _log_h(u)


def _of(bound: Bound, j: int) -> float:
    return bound[j] if isinstance(bound, tuple) else bound


def _log_h(u: Array) -> Array:
    """``log(phi(u) + u Phi(u))``, without underflow for ``u`` far below 0."""
    log_density = -0.5 * u**2 - 0.5 * log(2.0 * pi)
    low = np.minimum(u, 0.0)
    far_below = log_density + np.log1p(low * sqrt(pi / 2.0) * erfcx(-low / sqrt(2.0)))
    with np.errstate(divide="ignore"):
        return np.where(u < 0.0, far_below, np.log(np.exp(log_density) + u * ndtr(u)))

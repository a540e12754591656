r"""What the rows of a model say against the model, and against bounds on norm and noise.

:func:`check_model` compares outcomes with the model's predictions of them. :func:`diagnose_bounds`
reports which bounds on norm and noise, on which every guarantee is based, the outcomes refute.

**Residuals.** If the outcomes were drawn from the model, ``y ~ N(m, A)`` with ``A = K + N``,
subtract from each outcome what the model predicts from the rows before it, and divide by the
predicted standard deviation (noise included): the results are independent draws from N(0, 1). These
one-step-ahead residuals are ``L^{-1} (y - m)`` with ``A = L L^T``, even if the points were chosen
based on the outcomes before them. The prediction of row ``i`` from all other rows (leave one out)
has mean ``y_i - (A^{-1}(y - m))_i / (A^{-1})_{ii}`` and variance ``1 / (A^{-1})_{ii}``, so that its
residual is ``(A^{-1}(y - m))_i / sqrt((A^{-1})_{ii})`` standard deviations. The squares of the
one-step-ahead residuals sum to ``(y - m)^T A^{-1} (y - m)``; leaving out row ``i`` lowers this by
the square of its residual from that prediction.

**Over time.** If the model is right up to one scale of all its predicted standard deviations, the
residuals are exchangeable. Each block of :data:`FEWEST` outcomes, of twice as many, and so on, and
each tail, is compared with the other outcomes by the likelihood ratio of two variances to one,
where the block has the larger one. The largest of these ratios is compared with the same for random
permutations of the residuals, which is an exact test for exchangeable residuals, whatever their
distribution. Residuals grow after a change of the reward that the model does not account for.

**Bounds.** No data can show that a bound holds, but data can refute one. Which pairs of a norm
bound ``B`` and a noise bound ``R`` they refute follows from the confidence set of DMM (see
:mod:`botorch_bandits.confidence.dmm`): with probability ``1 - delta`` the reward obeys

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

Source: Rasmussen and Williams, *Gaussian processes for machine learning*, MIT Press 2006, section
5.4.2, equations 5.12; Dawid, *Statistical theory: the prequential approach*, 1984. The search over
blocks is our own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist

import torch
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_matrix,
    check_nonnegative,
    check_positive,
    check_probability,
    check_weights,
    counted,
)
from botorch_bandits.confidence.dmm import RidgeConfidenceSet, read_data
from botorch_bandits.confidence.igp_ucb import BoundedNorm
from botorch_bandits.confidence.prior_reading import (
    UnreadablePriorError,
    part_of,
    refuse_several,
)

# --- residuals ------------------------------------------------------------------------------------

FEWEST = 8
"""With fewer outcomes, nothing is said about the model."""

LEAST_CORRELATION = 0.01
"""If half of the points are correlated less with all others, outcomes say nothing about these."""

LEVEL = 0.01
"""Each of the four tests behind a verdict errs with at most this probability."""

PERMUTATIONS = 999
"""With so many permutations, a p-value of 1/1000 can be reached."""


@dataclass(frozen=True, eq=False, repr=False)
class ModelCheck:
    """The predictions of a model for its outcomes, one per outcome; see :func:`check_model`.

    Attributes:
        one_step: One-step-ahead residuals in predicted standard deviations, in the order of the
            rows.
        left_out: The residuals of the predictions from all other rows, in their predicted standard
            deviations.
        one_step_deviations: The standard deviations of the one-step-ahead predictions, noise
            included, in raw outcome units.
        cautions: A description of what the check ignores. What may have been learned from the same
            outcomes makes the residuals smaller than those in the rounds themselves.
        nearest_correlation: The absolute prior correlation between an input and the other one to
            which it is correlated most, in the median over all inputs; None if all are equal. If it
            is nearly 0, outcomes say nothing about other points, as happens if lengthscales are in
            other units than the inputs.
        rounds: The rounds of the outcomes, in a loop; None otherwise.
    """

    one_step: Tensor
    left_out: Tensor
    one_step_deviations: Tensor
    cautions: tuple[str, ...] = ()
    nearest_correlation: float | None = None
    rounds: Tensor | None = None

    @property
    def log_likelihood(self) -> float:
        """The logarithm of the density that the model gave to its outcomes, in nats.

        It is the sum over one-step-ahead predictions, in raw outcome units, and equals the log
        marginal likelihood. Of two models with the same outcomes, the one with the larger value
        has predicted them better, by so many nats.
        """
        z, deviations = self.one_step, self.one_step_deviations
        return float(-0.5 * (z @ z) - deviations.log().sum() - 0.5 * len(z) * math.log(2 * math.pi))

    @cached_property
    def growth(self) -> tuple[int, int] | None:
        """The outcomes, from the first index up to the second, whose residuals are larger.

        They are the block whose residuals are most clearly larger than all of them together. At
        least 8 outcomes come before it. None if the test over time does not reject, at level 0.01,
        that the residuals are exchangeable.
        """
        n, squares = len(self.one_step), self.one_step.detach().double().cpu() ** 2
        if n < 2 * FEWEST:
            return None
        begins = torch.arange(FEWEST, n - FEWEST + 1)
        # blocks of 8, 16, 32, ... outcomes, cut at the end: num_begins x num_lengths
        ends = (begins[:, None] + FEWEST * 2 ** torch.arange(n.bit_length())).clamp_max(n)
        ratios = _likelihood_ratios(squares, begins, ends)
        best, generator = int(ratios.argmax()), torch.Generator().manual_seed(0)
        num_larger = 0
        for _ in range(PERMUTATIONS):
            shuffled = squares[torch.randperm(n, generator=generator)]
            num_larger += bool(_likelihood_ratios(shuffled, begins, ends).max() >= ratios.max())
            if 1 + num_larger > LEVEL * (1 + PERMUTATIONS):
                return None
        return int(begins[best // ends.shape[1]]), int(ends.flatten()[best])

    def coverage(self, level: float = 0.95) -> Tensor:
        """Return the share of outcomes, up to each, that were within their predicted intervals.

        Args:
            level: The probability of the interval under the model.

        Returns:
            One share per outcome; the last one is that of all outcomes.
        """
        level = check_probability("level", level)
        width = NormalDist().inv_cdf(0.5 * (1.0 + level))
        inside = (self.one_step.abs() <= width).to(self.one_step)
        return inside.cumsum(0) / torch.arange(1, len(inside) + 1).to(inside)

    @property
    def verdict(self) -> str:
        """What the residuals say about the model, in one sentence."""
        return self._judged[1]

    @property
    def finding(self) -> str:
        """The verdict in a word or two, for programs.

        It is ``"too few"`` (outcomes), ``"outlier"``, ``"changed"``, ``"overconfident"``, ``"too
        cautious"``, ``"mean off"`` or ``"agrees"``. ``"changed"`` means that residuals grew beyond
        what the model predicts, as they do after a change of the reward (:attr:`growth`), and that
        the model was not overconfident before. Bounds are too narrow or in the wrong place if the
        model is overconfident, its mean is off, or the reward has changed.
        """
        return self._judged[0]

    @property
    def is_uncorrelated(self) -> bool:
        """Whether half of at least eight points are nearly independent of all others."""
        nearest = self.nearest_correlation
        return len(self.one_step) >= FEWEST and nearest is not None and nearest < LEAST_CORRELATION

    @cached_property
    def _judged(self) -> tuple[str, str]:
        """Return the finding, and the sentence that explains it."""
        n, z = len(self.one_step), self.one_step
        if n < FEWEST:
            few = counted(n, "outcome is", "outcomes are")
            return "too few", f"{few} too few to say anything about the model."
        square = float(z @ z)
        share, times = _share_below(square, n), f"{math.sqrt(square / n):.3g} times as much as it"
        k, far = int(self.left_out.abs().argmax()), float(self.left_out.abs().max())
        is_alone = _share_below(max(square - far**2, 0.0), n - 1) <= 1.0 - LEVEL / 2.0
        if n * math.erfc(far / math.sqrt(2.0)) < LEVEL and is_alone:
            return (
                "outlier",
                f"Outcome {k + 1} is {far:.3g} standard deviations from what all others predict, "
                "while the others are as expected: look at that one first.",
            )
        grew = ""
        if self.growth is not None:
            first, end = self.growth
            earlier, grown = z[:first], float(z[first:end].square().mean().sqrt())
            known = float(earlier @ earlier)
            # the model is wrong without that if residuals were too large before, or never are
            if grown > 1.0 and _share_below(known, first) <= 1.0 - LEVEL / 2.0:
                return (
                    "changed",
                    f"The reward may have changed about {self._at(first)}: the {end - first} "
                    f"outcomes from there on vary {grown:.3g} times as much as the model predicts, "
                    f"and those before {math.sqrt(known / first):.3g} times. After a change, the "
                    "model needs to restart or to forget faster, and more noise only hides the "
                    "change. If there was none, the noise grew, or the lengthscale is too large.",
                )
            at = self._at(first)
            grew = f" They vary more from {at} on, as they do after a change of the reward."
        if share > 1.0 - LEVEL / 2.0:
            return (
                "overconfident",
                f"The model is overconfident: outcomes vary {times} predicts. Its noise or its "
                f"prior variance is too small, or its lengthscale too large.{grew}",
            )
        if share < LEVEL / 2.0:
            return (
                "too cautious",
                f"The model is too cautious: outcomes vary {times} predicts. Its noise or its "
                f"prior variance is too large.{grew}",
            )
        mean = float(z.mean())
        if math.erfc(abs(mean) * math.sqrt(n / 2.0)) < LEVEL:
            side = "above" if mean > 0.0 else "below"
            return (
                "mean off",
                f"Outcomes lie {side} what the model predicts, by {abs(mean):.3g} predicted "
                "standard deviations on average: its prior mean is off, or its lengthscale too "
                "short for outcomes to correct it.",
            )
        return (
            "agrees",
            f"Nothing speaks against the model: {float(self.coverage()[-1]):.0%} of outcomes were "
            "in their 95% intervals.",
        )

    def _at(self, index: int) -> str:
        """Name an outcome by its round, or by its number."""
        return f"outcome {index + 1}" if self.rounds is None else f"round {int(self.rounds[index])}"

    def __repr__(self) -> str:
        """Return the verdict and what limits it."""
        cautions = list(self.cautions)
        if self.is_uncorrelated:
            cautions.append(
                "half of the points have a prior correlation of at most "
                f"{self.nearest_correlation:.2g} with every other, so that outcomes say nothing "
                "about other points; are the lengthscales in the units of the inputs?"
            )
        return "\n".join([self.verdict, *(f"  caution: {c}" for c in cautions)])


def _likelihood_ratios(squares: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    """Return twice the log likelihood ratio of two variances to one, where a block's is larger.

    Args:
        squares: ``n`` squared residuals.
        begins: ``num_begins`` first outcomes of blocks.
        ends: ``num_begins x num_lengths``; the outcomes after their last ones.
    """
    n, begins, sums = len(squares), begins[:, None], squares.new_zeros(len(squares) + 1)
    sums[1:] = squares.cumsum(0)
    lengths, inside = ends - begins, sums[ends] - sums[begins]
    inner, outer, one = (
        each.clamp_min(torch.finfo(DTYPE).tiny)
        for each in (inside / lengths, (sums[-1] - inside) / (n - lengths), sums[-1] / n)
    )
    # n ln s^2 - k ln s_block^2 - (n - k) ln s_others^2
    ratios = n * one.log() - lengths * inner.log() - (n - lengths) * outer.log()
    return torch.where(inner > outer, ratios, 0.0)


def _share_below(square: float, count: int) -> float:
    """Return the probability of a smaller sum of squares of standard normal draws."""
    half, value = (torch.tensor(each, dtype=DTYPE) / 2.0 for each in (count, square))
    return float(torch.special.gammainc(half, value))


def check_model(
    model: Model,
    X: Tensor | None = None,
    Y: Tensor | None = None,
    weights: Tensor | None = None,
) -> ModelCheck:
    """Compare outcomes with what an exact Gaussian-process model predicted.

    Kernel, noise and mean are the model's current ones. :attr:`ModelCheck.verdict` is a sentence.

    Args:
        model: A model of one output. It is not changed. Of a list of priors, the one with the
            largest posterior weight is checked; :attr:`ModelCheck.cautions` name it. Outcomes that
            chose the list (its ``num_skipped``) are left out.
        X: ``n x d`` raw inputs in the order of their outcomes; the model's rows if omitted.
        Y: ``n`` raw outcomes.
        weights: ``n`` positive numbers: the noise variance of outcome ``i`` is that of the model
            divided by ``weights[i]``, as for a mean of so many outcomes; 1 if omitted. Without
            ``X`` and ``Y``, each row of the model counts as one outcome: ``weights=model.repeats``.

    Raises:
        TypeError: If ``model`` is not a BoTorch model, or a tensor has another dtype.
        ValueError: If the model has several outputs or a batch dimension, its prior cannot be read
            (:class:`~botorch_bandits.confidence.UnreadablePriorError`), its rows are means of
            several outcomes and neither ``X`` and ``Y`` nor ``weights`` are given, or ``weights``
            do not match the outcomes.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import BanditGP
        >>> X = torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1)
        >>> kernel = RBFKernel().double()
        >>> model = BanditGP(X, 30.0 * torch.sin(9.0 * X), kernel=kernel, noise=0.01)
        >>> check_model(model).verdict.partition(":")[0]
        'The model is overconfident'
    """
    evidence = part_of(model, "evidence")
    if evidence is not None:
        likeliest = int(evidence.posterior_weights.argmax())
        check = check_model(model.member(likeliest), X, Y, weights)
        which = (
            f"prior {evidence.names[likeliest]!r}, which is checked, is the likeliest of "
            f"{evidence.num_candidates} given the same outcomes"
        )
        later = slice(model.recipe.num_skipped if X is None else 0, None)  # others chose the list
        return replace(
            check,
            one_step=check.one_step[later],
            left_out=check.left_out[later],
            one_step_deviations=check.one_step_deviations[later],
            cautions=(*check.cautions, which),
        )
    refuse_several("check", model)
    (data,) = read_data(model)
    prior, places, residuals = data.prior, data.places, data.outcomes
    if (X is None) != (Y is None):
        raise ValueError("X and Y go together: pass both, or neither.")
    noise = prior.noise_variance if prior.row_noise is None else prior.row_noise
    with torch.no_grad():
        if X is not None and Y is not None:
            if prior.row_noise is not None:
                raise UnreadablePriorError(
                    "model has a noise variance for each of its rows, so that of other rows "
                    "is not known. Leave X and Y out."
                )
            places, _ = data.points(check_matrix("X", X))
            outcomes = check_matrix("Y", Y.reshape(-1, 1)).squeeze(-1)
            # less the prior mean, in the units of the model
            at_mean = data.to_raw(torch.zeros_like(outcomes), places)
            residuals = (outcomes - at_mean) / prior.outcome_scale
        elif weights is None and part_of(model, "repeats") is not None:
            raise ValueError(
                "model has rows that are means of several outcomes, whose order is lost. Pass "
                "single outcomes as X and Y, or weights=model.repeats to count each row as one."
            )
        if weights is not None:
            noise = noise / check_weights("weights", weights, residuals.unsqueeze(-1))
        K = model.covar_module(places).to_dense()
        # A = K + N = L L'
        L = torch.linalg.cholesky(K + torch.diag(noise.expand(len(places))))
        inverse, residuals = torch.cholesky_inverse(L), residuals.unsqueeze(-1)
        return ModelCheck(
            one_step=torch.linalg.solve_triangular(L, residuals, upper=False).squeeze(-1),
            left_out=(inverse @ residuals).squeeze(-1) * inverse.diagonal().rsqrt(),
            cautions=tuple(f"learned from the same outcomes: {each}" for each in prior.learned),
            nearest_correlation=_nearest_correlation(places, K),
            one_step_deviations=prior.outcome_scale * L.diagonal(),
        )


def _nearest_correlation(Z: Tensor, K: Tensor) -> float | None:
    """Return the median over the rows of ``Z`` of the largest correlation with another point."""
    is_same = (Z.unsqueeze(-2) == Z).all(-1)
    if bool(is_same.all()):
        return None
    deviations = K.diagonal().clamp_min(torch.finfo(DTYPE).tiny).sqrt()
    correlations = K.abs() / (deviations.unsqueeze(-1) * deviations)
    return float(correlations.masked_fill(is_same, 0.0).amax(-1).median())


# --- bounds on norm and noise ---------------------------------------------------------------------

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
            f"{self.num_rows} outcomes refute, at level {self.delta:g}, every norm bound below "
            f"{self.rkhs_bound:.4g} together with the noise bound {self.noise_bound:.4g}",
            *(f"  with R = {R:.4g}: B >= {B:.4g}" for R, B in self.rkhs_bound_by_noise.items()),
            *(
                f"  with B = {B:.4g}: R >= {self.noise_bound_by_norm[B]:.4g}; "
                f"regret at most {bound:.4g} with R = {self.noise_bound:.4g}"
                for B, bound in self.regret_bounds.items()
            ),
            *(f"  caution: {caveat}" for caveat in self.caveats),
        ]
        return "\n".join(lines)


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
        ridges, radicands = empty.ridges.ridges / variance, empty.radicands
        counts = data.counts
        weight = float(counts.sum())
        are_counts = bool((counts == counts.round()).all())
        num_rows = round(weight) if are_counts else max(1, math.ceil(weight))
        largest = float(data.covariance(data.places, data.places).diagonal().max()) / variance
    deviations = math.sqrt(
        num_rows * 2.0 * largest * gain / math.log1p(largest / float(lam)) if gain > 0.0 else 0.0
    )

    def smallest_norm(R: float) -> float:
        return _root(-(radicands + R**2 * rate / ridges).min())

    def smallest_noise(B: float) -> float:
        return _root(-(ridges * (radicands + B**2)).min() / rate)

    def regret(B: float) -> float:
        width = float(BoundedNorm(B, noise, delta, lam, any_lambda=True).width(gain))
        if prior.is_stationary:
            return min(2.0 * width * deviations, 2.0 * B * math.sqrt(largest) * num_rows)
        return 2.0 * width * deviations

    levels = [factor * noise for factor in NOISE_FACTORS] if noise > 0.0 else [0.0]
    norm, caveats = smallest_norm(noise), []
    norms = [factor * norm for factor in factors]
    if prior.learned:
        caveats.append(
            "the level is stated for a model that was fixed before the data, but of this one "
            f"{', '.join(prior.learned)} can have been learned from them"
        )
    if not are_counts:
        caveats.append(
            "outcomes have their own noise variances, or fade: they weigh as much as "
            f"{weight:.3g} outcomes with the noise of the model, which is the number that is "
            "counted and that regret bounds are for"
        )
    return BoundsDiagnosis(
        noise_bound=noise * unit,
        rkhs_bound=norm * unit,
        rkhs_bound_by_noise={R * unit: smallest_norm(R) * unit for R in levels},
        noise_bound_by_norm={B * unit: smallest_noise(B) * unit for B in norms},
        regret_bounds={B * unit: regret(B) * unit for B in norms},
        delta=delta,
        num_rows=num_rows,
        information_gain=gain,
        caveats=tuple(caveats),
    )


def _root(value: Tensor) -> float:
    """Return the square root of a number, 0 if it is negative."""
    return math.sqrt(max(0.0, float(value)))  # 0.0 rather than -0.0

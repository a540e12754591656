r"""Check whether outcomes match the predictions of a model: residuals, coverage and a verdict.

If the outcomes were drawn from the model, ``y ~ N(m, A)`` with ``A = K + N``, subtract from each
outcome what the model predicts from the rows before it, and divide by the predicted standard
deviation (noise included): the results are independent draws from N(0, 1). These one-step-ahead
residuals are ``L^{-1} (y - m)`` with ``A = L L^T``, even if the points were chosen based on the
outcomes before them. The prediction of row ``i`` from all other rows (leave one out) has mean ``y_i
- (A^{-1}(y - m))_i / (A^{-1})_{ii}`` and variance ``1 / (A^{-1})_{ii}``. The squares of the
one-step-ahead residuals sum to ``(y - m)^T A^{-1} (y - m)``; leaving out row ``i`` lowers this by
the square of its residual from that prediction.

Source: Rasmussen and Williams, *Gaussian processes for machine learning*, MIT Press 2006, section
5.4.2, equations 5.12; Dawid, *Statistical theory: the prequential approach*, 1984.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.checks import check_matrix, check_probability, counted
from botorch_bandits.confidence.kernel_reading import prior_mean_at, refuse_several
from botorch_bandits.confidence.width_rules import (
    UnreadablePriorError,
    inputs_of_kernel,
    kernel_inputs,
    outcome_units,
    read_prior,
)
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.markup import display
from botorch_bandits.models.candidates import CandidatesModel
from botorch_bandits.models.likelihoods import check_weights

FEWEST = 8
"""With fewer outcomes, nothing is said about the model."""

LEAST_CORRELATION = 0.01
"""If half of the points are correlated less with all others, outcomes say nothing about these."""

LEVEL = 0.01
"""Each of the three tests behind a verdict errs with at most this probability."""


@dataclass(frozen=True, eq=False)
class ModelCheck:
    """The predictions of a model for its outcomes, one per outcome; see :func:`check_model`.

    Attributes:
        outcomes: The outcomes of the model, in raw outcome units.
        one_step: One-step-ahead residuals in predicted standard deviations, in the order of the
            rows.
        left_out_means: The predictions from all other rows, in raw outcome units.
        left_out_deviations: The standard deviations of these predictions, noise included.
        learned: A description of what may have been learned from the same outcomes; this makes the
            residuals smaller than those in the rounds themselves.
        cautions: A description of other aspects of the model that the check ignores.
        nearest_correlation: The absolute prior correlation between an input and the one to which it
            is correlated most, in the median over all different inputs; None if there is only one.
            If it is nearly 0, outcomes say nothing about other points, as happens if lengthscales
            are in other units than the inputs.
    """

    outcomes: Tensor
    one_step: Tensor
    left_out_means: Tensor
    left_out_deviations: Tensor
    learned: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    nearest_correlation: float | None = None

    def coverage(self, level: float = 0.95) -> Tensor:
        """Return the share of outcomes, up to each, that were within their predicted intervals.

        Args:
            level: The probability of the interval under the model.

        Returns:
            One share per outcome; the last one is that of all outcomes.
        """
        level = check_probability("level", level)
        width = math.sqrt(2.0) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))
        inside = (self.one_step.abs() <= width).to(self.one_step)
        return inside.cumsum(0) / torch.arange(1, len(inside) + 1).to(inside)

    @property
    def verdict(self) -> str:
        """What the residuals say about the model, in one sentence."""
        return self._judged[1]

    @property
    def finding(self) -> str:
        """The verdict in a word or two, for programs.

        It is ``"too few"`` (outcomes), ``"outlier"``, ``"overconfident"``, ``"too cautious"``,
        ``"mean off"`` or ``"agrees"``. Bounds of an overconfident model, or of one whose mean is
        off, are too narrow or in the wrong place.
        """
        return self._judged[0]

    @property
    def is_uncorrelated(self) -> bool:
        """Whether half of at least eight points are nearly independent of all others."""
        nearest = self.nearest_correlation
        return len(self.one_step) >= FEWEST and nearest is not None and nearest < LEAST_CORRELATION

    @property
    def _judged(self) -> tuple[str, str]:
        """Return the finding, and the sentence that explains it."""
        n, z = len(self.one_step), self.one_step
        if n < FEWEST:
            few = counted(n, "outcome is", "outcomes are")
            return "too few", f"{few} too few to say anything about the model."
        square = float(z @ z)
        share, ratio = _share_below(square, n), math.sqrt(square / n)
        left_out = (self.outcomes - self.left_out_means) / self.left_out_deviations
        k = int(left_out.abs().argmax())
        far = abs(float(left_out[k]))
        is_alone = _share_below(max(square - far**2, 0.0), n - 1) <= 1.0 - LEVEL / 2.0
        if n * math.erfc(far / math.sqrt(2.0)) < LEVEL and is_alone:
            return (
                "outlier",
                f"Outcome {k + 1} is {far:.3g} standard deviations from what all others predict, "
                "while the others are as expected: look at that one first.",
            )
        if share > 1.0 - LEVEL / 2.0:
            return (
                "overconfident",
                f"The model is overconfident: outcomes vary {ratio:.3g} times as much as it "
                "predicts. Its noise or its prior variance is too small, or its lengthscale too "
                "large.",
            )
        if share < LEVEL / 2.0:
            return (
                "too cautious",
                f"The model is too cautious: outcomes vary {ratio:.3g} times as much as it "
                "predicts. Its noise or its prior variance is too large.",
            )
        mean = float(z.mean()) * math.sqrt(n)
        if math.erfc(abs(mean) / math.sqrt(2.0)) < LEVEL:
            side = "above" if mean > 0.0 else "below"
            return (
                "mean off",
                f"Outcomes lie {side} what the model predicts, by {abs(float(z.mean())):.3g} "
                "predicted standard deviations on average: its prior mean is off"
                + (", or its lengthscale too short." if self.is_uncorrelated else "."),
            )
        covered = float(self.coverage()[-1])
        return (
            "agrees",
            f"Nothing speaks against the model: {covered:.0%} of outcomes were in their 95% "
            "intervals.",
        )

    def __str__(self) -> str:
        """Return the verdict and what limits it."""
        learned = [f"  learned from the same outcomes: {each}" for each in self.learned]
        cautions = list(self.cautions)
        if self.is_uncorrelated:
            cautions.append(
                "half of the points have a prior correlation of at most "
                f"{self.nearest_correlation:.2g} with every other, so that outcomes say nothing "
                "about other points; are the lengthscales in the units of the inputs?"
            )
        return "\n".join([self.verdict, *learned, *(f"  caution: {c}" for c in cautions)])

    def _repr_html_(self) -> str:
        """Show the verdict with its numbers in a notebook."""
        n = len(self.one_step)
        facts = {
            "outcomes": n,
            "in their 95% intervals": f"{float(self.coverage()[-1]):.0%}" if n else None,
            "root mean square of residuals": f"{float((self.one_step**2).mean().sqrt()):.3g}"
            if n
            else None,
            "learned from the same outcomes": ", ".join(self.learned) or None,
            "caution": "; ".join(self.cautions) or None,
        }
        return display(self.verdict, facts)


def _share_below(square: float, count: int) -> float:
    """Return the probability of a smaller sum of squares of standard normal draws."""
    half, value = (torch.tensor(each, dtype=torch.float64) for each in (count / 2.0, square / 2.0))
    return float(torch.special.gammainc(half, value))


def check_model(
    model: Model,
    X: Tensor | None = None,
    Y: Tensor | None = None,
    weights: Tensor | None = None,
) -> ModelCheck:
    """Compare outcomes with what an exact Gaussian-process model predicted.

    Kernel, noise and mean are the model's current ones. :attr:`ModelCheck.verdict` is a sentence;
    :func:`~botorch_bandits.plotting.plot_leave_one_out` plots each outcome next to what the others
    predict for it.

    Args:
        model: A model of one output. It is not changed. Of a list of priors, the one with the
            largest posterior weight is checked; :attr:`ModelCheck.learned` names it. Outcomes that
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
    if isinstance(model, CandidatesModel):
        likeliest = int(model.evidence.posterior_weights.argmax())
        name, count = model.evidence.names[likeliest], model.evidence.num_candidates
        check = check_model(model.member(likeliest), X, Y, weights)
        which = f"that prior {name!r}, which is checked, is the likeliest of {count}"
        skipped = model.recipe.num_skipped if X is None else 0  # they chose the list
        return ModelCheck(
            outcomes=check.outcomes[skipped:],
            one_step=check.one_step[skipped:],
            left_out_means=check.left_out_means[skipped:],
            left_out_deviations=check.left_out_deviations[skipped:],
            learned=(*check.learned, which),
            cautions=check.cautions,
            nearest_correlation=check.nearest_correlation,
        )
    refuse_several("check", model)
    (prior,) = read_prior(model)
    if (X is None) != (Y is None):
        raise ValueError("X and Y go together: pass both, or neither.")
    with torch.no_grad():
        if X is None or Y is None:
            if getattr(model, "repeats", None) is not None and weights is None:
                raise ValueError(
                    "model has rows that are means of several outcomes, whose order is lost. Pass "
                    "single outcomes as X and Y, or weights=model.repeats to count each row as one."
                )
            Z, own = kernel_inputs(model), model.train_targets
            noise = prior.noise_variance if prior.row_noise is None else prior.row_noise
            scale, shift = outcome_units(model)
        else:
            if prior.row_noise is not None:
                raise UnreadablePriorError(
                    "model has a noise variance for each of its rows, so that of other rows "
                    "is not known. Leave X and Y out."
                )
            Z = inputs_of_kernel(model, check_matrix("X", X))
            scale, shift = outcome_units(model)
            own = (check_matrix("Y", Y.reshape(-1, 1)).squeeze(-1) - shift) / scale
            noise = prior.noise_variance
        if weights is not None:
            noise = noise / check_weights("weights", weights, own.unsqueeze(-1))
        n = own.shape[-1]
        if n == 0:
            empty = own.new_empty(0)
            return ModelCheck(empty, empty, empty, empty, prior.learned)
        residuals = own - prior_mean_at(model, Z)
        K = model.covar_module(Z).to_dense()
        A = K + torch.diag(noise.expand(n))
        L = torch.linalg.cholesky(A)
        one_step = torch.linalg.solve_triangular(L, residuals.unsqueeze(-1), upper=False)
        inverse = torch.cholesky_inverse(L)
        precision = inverse.diagonal()
        left_out = own - (inverse @ residuals) / precision
        return ModelCheck(
            outcomes=shift + scale * own,
            one_step=one_step.squeeze(-1),
            left_out_means=shift + scale * left_out,
            left_out_deviations=scale * precision.rsqrt(),
            learned=tuple(prior.learned),
            nearest_correlation=_nearest_correlation(Z, K),
        )


def _nearest_correlation(Z: Tensor, K: Tensor) -> float | None:
    """Return the median over different rows of ``Z`` of the largest correlation with another."""
    rows, place = torch.unique(Z, dim=0, return_inverse=True)
    if len(rows) < 2:
        return None
    one_each = torch.zeros(len(rows), dtype=torch.long, device=Z.device)
    one_each.scatter_(0, place, torch.arange(len(Z), device=Z.device))
    unlike = K[one_each][:, one_each].abs()
    deviations = unlike.diagonal().clamp_min(torch.finfo(K.dtype).tiny).sqrt()
    unlike = (unlike / (deviations.unsqueeze(-1) * deviations)).fill_diagonal_(0.0)
    return float(unlike.amax(-1).median())


fill_in_docstrings(__name__)

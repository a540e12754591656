"""One suggestion in the ordinary BoTorch way: rebuild the model of the rows, maximize, done.

The hyperparameters are fixed, the widths are those that our loop computed, and the penalized
outcomes are made for nothing: what is compared is the work that both do. Where BoTorch has nothing
of its kind, the nearest recipe of its parts stands here, and the documentation names it:

* several outcomes are several ``SingleTaskGP`` in a ``ModelListGP``;
* weights are ``train_Yvar``;
* pending points are further rows at the posterior mean, or at the pseudo-outcome where they are
  censored;
* a drifting reward has a product of two kernels, with the round as a further input;
* a Thompson draw on a box is ``PathwiseThompsonSampling``, and where BoTorch has no features for
  the kernel, ``MaxPosteriorSampling`` on 1000 quasi-random points;
* a list of priors is one ``SingleTaskGP`` for each, with its marginal likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from botorch.acquisition import (
    AcquisitionFunction,
    PosteriorMean,
    PosteriorStandardDeviation,
    UpperConfidenceBound,
)
from botorch.acquisition.analytic import LogExpectedImprovement, LogProbabilityOfImprovement
from botorch.acquisition.objective import LinearMCObjective, ScalarizedPosteriorTransform
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.generation import MaxPosteriorSampling
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.optim import optimize_acqf_discrete
from botorch.utils.sampling import draw_sobol_samples
from botorch.utils.transforms import t_batch_mode_transform
from gpytorch.kernels import Kernel, ProductKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.measure import maximize, ordinary_model
from botorch_bandits import Arms, Box
from botorch_bandits.random_streams import seeded_globally

POINTS_FOR_DRAWS = 1000
"""Quasi-random points where BoTorch cannot draw a path."""

Prior = tuple[Kernel, float]
"""A kernel over all inputs and a noise variance."""

Suggestion = tuple[Tensor, AcquisitionFunction | None]
"""The point alone, and what it maximizes; None for draws."""


@dataclass(frozen=True)
class Request:
    """What one suggestion is made from.

    Attributes:
        acquisition: A key of :data:`WAYS`.
        domain: Where points are chosen.
        priors: One, or a list of which nobody knows which.
        X: ``n x d`` inputs, what is known before the choice in front.
        Y: ``n x m`` outcomes, less the prior mean.
        pending: ``p x d`` inputs without outcomes.
        variances: Noise variances of the rows; None for that of the prior.
        pseudo_outcome: Of pending inputs; the posterior mean if None.
        in_front: What is known before the choice: the round, the context.
        width: What our loop had.
        multipliers: One a constraint; none without separate models of them.
        bounds_apart: Whether reward and constraints have bounds of their own.
        seed: Of starting points and draws.
    """

    acquisition: str
    domain: Arms | Box
    priors: tuple[Prior, ...]
    X: Tensor
    Y: Tensor
    pending: Tensor
    variances: Tensor | None = None
    pseudo_outcome: float | None = None
    in_front: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    width: float = 1.0
    multipliers: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    bounds_apart: bool = False
    seed: int = 0

    @property
    def weights(self) -> Tensor:
        """Of reward and constraints."""
        return torch.cat([self.multipliers.new_ones(1), -self.multipliers])

    def behind(self, points: Tensor) -> Tensor:
        """Return inputs: points, with what is known before the choice in front."""
        return torch.cat([self.in_front.expand(len(points), -1), points], dim=-1)


def suggest(request: Request) -> Suggestion:
    """Return the point that the ordinary way chooses.

    Args:
        request: What it is made from.
    """
    return WAYS[request.acquisition](request)


def value_of(request: Request, acquisition: AcquisitionFunction, x: Tensor) -> float:
    """Return the acquisition value of a point.

    Args:
        request: Whose inputs have something in front.
        acquisition: What was maximized.
        x: The point.
    """
    with torch.no_grad():
        return float(acquisition(request.behind(x.unsqueeze(0))))


# --- models ------------------------------------------------------------------------------------


def build(request: Request, prior: Prior) -> Model:
    """Return the model of all rows, the pending ones included.

    Args:
        request: With ``m`` outcomes a row.
        prior: Of each outcome.
    """
    models, pending, variances = [], request.pending, request.variances
    for column in request.Y.split(1, dim=-1):
        model = ordinary_model(request.X, column, *prior, variances)
        if len(pending):
            with torch.no_grad():
                added = model.posterior(pending).mean
            if request.pseudo_outcome is not None:
                added = torch.full_like(added, request.pseudo_outcome)
            every = None
            if variances is not None:
                every = torch.cat([variances, variances.new_full((len(pending),), prior[1])])
            X = torch.cat([request.X, pending])
            model = ordinary_model(X, torch.cat([column, added]), *prior, every)
        models.append(model)
    return models[0] if len(models) == 1 else ModelListGP(*models)


def _models(request: Request) -> tuple[list[Model], Tensor]:
    """One model a prior, and the logarithm of the posterior weight of each."""
    models = [build(request, prior) for prior in request.priors]
    if len(models) == 1:
        return models, torch.zeros(1, dtype=torch.float64)
    evidence = []
    for model in models:
        total = request.Y.new_zeros(())
        for each in model.models if isinstance(model, ModelListGP) else [model]:
            likelihood = ExactMarginalLogLikelihood(each.likelihood, each)
            each.train()
            with torch.no_grad():
                total = total + likelihood(each(*each.train_inputs), each.train_targets)
            each.eval()
        evidence.append(total * len(request.X))
    return models, torch.stack(evidence).log_softmax(0)


# --- acquisition functions ----------------------------------------------------------------------


class BoundsApart(AcquisitionFunction):
    """The upper bound of the reward, less the multipliers times the lower bounds of constraints.

    Args:
        model: With one output each.
        weights: ``1`` and minus the multipliers.
        width: Of every bound.
    """

    def __init__(self, model: Model, weights: Tensor, width: float) -> None:
        """See the class."""
        super().__init__(model)
        self.weights, self.width = weights, width

    @t_batch_mode_transform(expected_q=1)
    def forward(self, X: Tensor) -> Tensor:
        """Return the values of ``b x 1 x d`` points."""
        posterior = self.model.posterior(X)
        deviation = posterior.variance.clamp_min(1e-12).sqrt()
        values = posterior.mean @ self.weights + self.width * deviation @ self.weights.abs()
        return values.squeeze(-1)


class LargestBound(AcquisitionFunction):
    """The largest upper bound of several models.

    Args:
        bounds: One a model.
    """

    def __init__(self, bounds: Sequence[AcquisitionFunction]) -> None:
        """See the class."""
        super().__init__(bounds[0].model)
        self.bounds = torch.nn.ModuleList(bounds)

    def forward(self, X: Tensor) -> Tensor:
        """Return the values of ``b x 1 x d`` points."""
        return torch.stack([bound(X) for bound in self.bounds]).amax(0)


def _bound_of(request: Request, model: Model) -> AcquisitionFunction:
    if request.bounds_apart:
        return BoundsApart(model, request.weights, request.width)
    has_several = len(request.multipliers) > 0
    transform = ScalarizedPosteriorTransform(request.weights) if has_several else None
    return UpperConfidenceBound(model, beta=request.width**2, posterior_transform=transform)


def _bound(request: Request) -> Suggestion:
    models, weights = _models(request)
    likely = weights > math.log(1e-3)
    bounds = [_bound_of(request, model) for model, kept in zip(models, likely, strict=True) if kept]
    return _maximize(request, bounds[0] if len(bounds) == 1 else LargestBound(bounds))


def _improvement(
    kind: type[LogExpectedImprovement | LogProbabilityOfImprovement], request: Request
) -> Suggestion:
    model = build(request, request.priors[0])
    with torch.no_grad():
        best = model.posterior(torch.cat([request.X, request.pending])).mean.max()
    return _maximize(request, kind(model, best_f=best))


def _moment(kind: type[PosteriorMean | PosteriorStandardDeviation], request: Request) -> Suggestion:
    return _maximize(request, kind(build(request, request.priors[0])))


def _draw(request: Request) -> Suggestion:
    models, weights = _models(request)
    domain, is_product = request.domain, isinstance(request.priors[0][0], ProductKernel)
    with seeded_globally(request.seed):
        model = models[int(torch.multinomial(weights.exp(), 1))]
        if isinstance(domain, Arms):
            return _draw_on(request, model, domain.choices)
        if is_product:
            points = draw_sobol_samples(domain.bounds, POINTS_FOR_DRAWS, 1).squeeze(-2)
            return _draw_on(request, model, points)
    objective = LinearMCObjective(request.weights) if len(request.multipliers) else None
    path = PathwiseThompsonSampling(model, objective=objective)
    return _maximize(request, path)[0], None


def _draw_on(request: Request, model: Model, points: Tensor) -> Suggestion:
    choices = request.behind(points)
    with torch.no_grad():
        if not len(request.multipliers):
            chosen = MaxPosteriorSampling(model, replacement=False)(choices, num_samples=1)
            return chosen[0, len(request.in_front) :], None
        assert isinstance(model, ModelListGP)
        drawn = [each.posterior(choices).rsample().reshape(-1) for each in model.models]
        return points[int((torch.stack(drawn, dim=-1) @ request.weights).argmax())], None


def _maximize(request: Request, acquisition: AcquisitionFunction) -> Suggestion:
    domain, before = request.domain, len(request.in_front)
    if isinstance(domain, Arms):
        choices = request.behind(domain.choices)
        with torch.no_grad():
            chosen, _ = optimize_acqf_discrete(acquisition, q=1, choices=choices)
    else:
        bounds = request.behind(domain.bounds)
        bounds[1, :before] += 1.0  # what is in front is fixed
        sizes = request.seed, domain.num_restarts, domain.raw_samples
        given = dict(enumerate(request.in_front.tolist())) or None
        chosen, _ = maximize(acquisition, bounds, *sizes, fixed_features=given)
    return chosen.reshape(-1)[before:], acquisition


WAYS: dict[str, Callable[[Request], Suggestion]] = {
    "upper bound": _bound,
    "expected improvement": partial(_improvement, LogExpectedImprovement),
    "probability of improvement": partial(_improvement, LogProbabilityOfImprovement),
    "mean": partial(_moment, PosteriorMean),
    "deviation": partial(_moment, PosteriorStandardDeviation),
    "draw": _draw,
}
"""What is maximized, by name."""

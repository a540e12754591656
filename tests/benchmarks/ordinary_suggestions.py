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
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.model import Model
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from botorch.utils.sampling import draw_sobol_samples
from botorch.utils.transforms import t_batch_mode_transform
from gpytorch.kernels import Kernel, ProductKernel
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.measure import ordinary_model
from botorch_bandits import Arms, Box
from botorch_bandits.models import double_kernel
from botorch_bandits.random_streams import seeded_globally

POINTS_FOR_DRAWS = 1000
"""Quasi-random points where BoTorch cannot draw a path."""


@dataclass(frozen=True)
class Prior:
    """A kernel and a noise variance.

    Attributes:
        kernel: Over all inputs.
        noise: The variance.
    """

    kernel: Kernel
    noise: float


@dataclass(frozen=True)
class Request:
    """What one suggestion is made from.

    Attributes:
        acquisition: A key of :data:`WAYS`.
        domain: Where points are chosen.
        priors: One, or a list of which nobody knows which.
        X: ``n x d`` inputs, what is known before the choice in front.
        Y: ``n x m`` outcomes, less the prior mean.
        variances: Noise variances of the rows; None for that of the prior.
        pending: ``p x d`` inputs without outcomes.
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


@dataclass(frozen=True)
class Suggestion:
    """What the ordinary way comes to.

    Attributes:
        x: The point alone.
        acquisition: What it maximizes; None for draws.
    """

    x: Tensor
    acquisition: AcquisitionFunction | None


def suggest(request: Request) -> Suggestion:
    """Return the point that the ordinary way chooses.

    Args:
        request: What it is made from.
    """
    return WAYS[request.acquisition](request)


def value_of(request: Request, suggestion: Suggestion, x: Tensor) -> float:
    """Return the acquisition value of a point.

    Args:
        request: Whose inputs have something in front.
        suggestion: What was maximized.
        x: The point.
    """
    assert suggestion.acquisition is not None
    with torch.no_grad():
        return float(suggestion.acquisition(torch.cat([request.in_front, x]).unsqueeze(0)))


# --- models ------------------------------------------------------------------------------------


def build(request: Request, prior: Prior) -> Model:
    """Return the model of all rows, the pending ones included.

    Args:
        request: With ``m`` outcomes a row.
        prior: Of each outcome.
    """
    models = []
    for column in request.Y.split(1, dim=-1):
        model = _of_rows(request.X, column, request.variances, prior)
        if len(request.pending):
            if request.pseudo_outcome is None:
                with torch.no_grad():
                    added = model.posterior(request.pending).mean
            else:
                added = torch.full((len(request.pending), 1), request.pseudo_outcome).to(column)
            variances = request.variances
            if variances is not None:
                variances = torch.cat([variances, torch.full((len(added),), prior.noise).to(added)])
            X = torch.cat([request.X, request.pending])
            model = _of_rows(X, torch.cat([column, added]), variances, prior)
        models.append(model)
    return models[0] if len(models) == 1 else ModelListGP(*models)


def _of_rows(X: Tensor, Y: Tensor, variances: Tensor | None, prior: Prior) -> SingleTaskGP:
    if variances is None:
        return ordinary_model(X, Y, prior.kernel, prior.noise)
    model = SingleTaskGP(
        X,
        Y,
        train_Yvar=variances.unsqueeze(-1),
        covar_module=double_kernel(prior.kernel),
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    model.requires_grad_(False)
    return model.eval()


def _weights(request: Request) -> Tensor:
    return torch.cat([request.multipliers.new_ones(1), -request.multipliers])


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
    if not len(request.multipliers):
        return UpperConfidenceBound(model, beta=request.width**2)
    weights = _weights(request)
    if request.bounds_apart:
        return BoundsApart(model, weights, request.width)
    return UpperConfidenceBound(
        model,
        beta=request.width**2,
        posterior_transform=ScalarizedPosteriorTransform(weights),
    )


def _bound(request: Request) -> Suggestion:
    return _maximize(request, _bound_of(request, build(request, request.priors[0])))


def _improvement(
    kind: type[LogExpectedImprovement | LogProbabilityOfImprovement], request: Request
) -> Suggestion:
    model = build(request, request.priors[0])
    with torch.no_grad():
        best = model.posterior(torch.cat([request.X, request.pending])).mean.max()
    return _maximize(request, kind(model, best_f=best))


def _moment(kind: type[PosteriorMean | PosteriorStandardDeviation], request: Request) -> Suggestion:
    return _maximize(request, kind(build(request, request.priors[0])))


def _evidence(request: Request) -> tuple[list[Model], Tensor]:
    """One model a prior, and the logarithm of the evidence of each."""
    models, evidence = [], []
    for prior in request.priors:
        model = build(request, prior)
        models.append(model)
        total = request.Y.new_zeros(())
        for each in model.models if isinstance(model, ModelListGP) else [model]:
            likelihood = ExactMarginalLogLikelihood(each.likelihood, each)
            each.train()
            with torch.no_grad():
                total = total + likelihood(each(*each.train_inputs), each.train_targets)
            each.eval()
        evidence.append(total * len(request.X))
    return models, torch.stack(evidence)


def _bound_of_list(request: Request) -> Suggestion:
    models, evidence = _evidence(request)
    likely = evidence - evidence.logsumexp(0) > math.log(1e-3)
    bounds = [_bound_of(request, model) for model, kept in zip(models, likely, strict=True) if kept]
    return _maximize(request, bounds[0] if len(bounds) == 1 else LargestBound(bounds))


# --- draws --------------------------------------------------------------------------------------


def _draw(request: Request) -> Suggestion:
    return _draw_of(request, build(request, request.priors[0]))


def _draw_of_list(request: Request) -> Suggestion:
    models, evidence = _evidence(request)
    with seeded_globally(request.seed):
        index = int(torch.multinomial(evidence.softmax(0), 1))
    return _draw_of(request, models[index])


def _draw_of(request: Request, model: Model) -> Suggestion:
    domain = request.domain
    with seeded_globally(request.seed):
        if isinstance(domain, Arms):
            return _draw_on(request, model, domain.choices)
        if isinstance(request.priors[0].kernel, ProductKernel):
            points = draw_sobol_samples(domain.bounds, POINTS_FOR_DRAWS, 1).squeeze(-2)
            return _draw_on(request, model, points)
    objective = LinearMCObjective(_weights(request)) if len(request.multipliers) else None
    path = PathwiseThompsonSampling(model, objective=objective)
    return Suggestion(_maximize(request, path).x, None)


def _draw_on(request: Request, model: Model, points: Tensor) -> Suggestion:
    choices = _behind(request, points)
    with torch.no_grad():
        if not len(request.multipliers):
            chosen = MaxPosteriorSampling(model, replacement=False)(choices, num_samples=1)
            return Suggestion(chosen[0, len(request.in_front) :], None)
        assert isinstance(model, ModelListGP)
        weights = _weights(request)
        drawn = sum(
            weight * each.posterior(choices).rsample().reshape(-1)
            for weight, each in zip(weights, model.models, strict=True)
        )
        return Suggestion(points[int(torch.as_tensor(drawn).argmax())], None)


# --- maximization -------------------------------------------------------------------------------


def _behind(request: Request, points: Tensor) -> Tensor:
    if not len(request.in_front):
        return points
    return torch.cat([request.in_front.expand(len(points), -1), points], dim=-1)


def _maximize(request: Request, acquisition: AcquisitionFunction) -> Suggestion:
    domain, before = request.domain, len(request.in_front)
    if isinstance(domain, Arms):
        with torch.no_grad():
            chosen, _ = optimize_acqf_discrete(
                acquisition, q=1, choices=_behind(request, domain.choices)
            )
        return Suggestion(chosen.reshape(-1)[before:], acquisition)
    bounds = torch.cat([request.in_front.expand(2, -1), domain.bounds], dim=-1)
    bounds[1, :before] += 1.0  # what is in front is fixed
    with seeded_globally(request.seed):
        chosen, _ = optimize_acqf(
            acquisition,
            bounds,
            q=1,
            num_restarts=domain.num_restarts,
            raw_samples=domain.raw_samples,
            fixed_features=dict(enumerate(request.in_front.tolist())) or None,
            options={"batch_limit": domain.num_restarts, "init_batch_limit": domain.raw_samples},
        )
    return Suggestion(chosen.reshape(-1)[before:], acquisition)


WAYS: dict[str, Callable[[Request], Suggestion]] = {
    "upper bound": _bound,
    "expected improvement": partial(_improvement, LogExpectedImprovement),
    "probability of improvement": partial(_improvement, LogProbabilityOfImprovement),
    "mean": partial(_moment, PosteriorMean),
    "deviation": partial(_moment, PosteriorStandardDeviation),
    "draw": _draw,
    "upper bound of a list": _bound_of_list,
    "draw of a list": _draw_of_list,
}
"""What is maximized, by name."""

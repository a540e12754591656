"""One suggestion in the ordinary BoTorch way: rebuild the model of the rows, maximize, done.

The hyperparameters are fixed, and widths and multipliers are those that our loop computed: what is
compared is the work that both do. Where BoTorch has nothing of its kind, the nearest recipe of its
parts stands here, and the documentation names it:

* several outcomes are several ``SingleTaskGP`` in a ``ModelListGP``;
* weights are ``train_Yvar``;
* a drifting reward has a product of two kernels, with the round as a further input;
* a Thompson draw on a box is ``PathwiseThompsonSampling``, on arms ``MaxPosteriorSampling``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from botorch.acquisition import AcquisitionFunction, UpperConfidenceBound
from botorch.acquisition.objective import LinearMCObjective, ScalarizedPosteriorTransform
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.generation import MaxPosteriorSampling
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.optim import optimize_acqf_discrete
from gpytorch.kernels import Kernel
from torch import Tensor

from benchmarks.measure import maximize, ordinary_model
from botorch_bandits import Arms, Box
from botorch_bandits.random_streams import seeded_globally

Suggestion = tuple[Tensor, AcquisitionFunction | None]
"""The point alone, and what it maximizes; None for draws."""


@dataclass(frozen=True)
class Request:
    """What one suggestion is made from.

    Attributes:
        domain: Where points are chosen.
        kernel: Over all inputs, of each outcome.
        noise: The noise variance.
        X: ``n x d`` inputs, what is known before the choice in front.
        Y: ``n x m`` outcomes: the reward, and constraints with models of their own.
        variances: Noise variances of the rows; None for that of the prior.
        in_front: What is known before the choice: the round, the context.
        weights: ``m``: 1 and minus the multipliers.
        width: What our loop had; None for a draw.
        seed: Of starting points and draws.
    """

    domain: Arms | Box
    kernel: Kernel
    noise: float
    X: Tensor
    Y: Tensor
    variances: Tensor | None
    in_front: Tensor
    weights: Tensor
    width: float | None
    seed: int

    def behind(self, points: Tensor) -> Tensor:
        """Return inputs: points, with what is known before the choice in front."""
        return torch.cat([self.in_front.expand(len(points), -1), points], dim=-1)


def suggest(request: Request) -> Suggestion:
    """Return the point that the ordinary way chooses.

    Args:
        request: What it is made from.
    """
    columns = request.Y.split(1, dim=-1)
    models = [
        ordinary_model(request.X, each, request.kernel, request.noise, request.variances)
        for each in columns
    ]
    model: Model = models[0] if len(models) == 1 else ModelListGP(*models)
    several = len(models) > 1
    if request.width is not None:
        transform = ScalarizedPosteriorTransform(request.weights) if several else None
        bound = UpperConfidenceBound(model, request.width**2, posterior_transform=transform)
        return _maximize(request, bound)
    with seeded_globally(request.seed):
        if isinstance(request.domain, Arms):
            return _draw_on_arms(request, model), None
    objective = LinearMCObjective(request.weights) if several else None
    return _maximize(request, PathwiseThompsonSampling(model, objective=objective))[0], None


def value_of(request: Request, acquisition: AcquisitionFunction, x: Tensor) -> float:
    """Return the acquisition value of a point.

    Args:
        request: Whose inputs have something in front.
        acquisition: What was maximized.
        x: The point.
    """
    with torch.no_grad():
        return float(acquisition(request.behind(x.unsqueeze(0))))


def _draw_on_arms(request: Request, model: Model) -> Tensor:
    assert isinstance(request.domain, Arms)
    choices = request.behind(request.domain.choices)
    with torch.no_grad():
        if not isinstance(model, ModelListGP):
            chosen = MaxPosteriorSampling(model, replacement=False)(choices, num_samples=1)
            return chosen[0, len(request.in_front) :]
        drawn = [each.posterior(choices).rsample().reshape(-1) for each in model.models]
        return request.domain.choices[int((torch.stack(drawn, dim=-1) @ request.weights).argmax())]


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

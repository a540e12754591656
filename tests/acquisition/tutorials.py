"""The loops of BoTorch's tutorials in our own words and a small size, with one line changed.

Each case has the model, the acquisition function and the call of the optimizer that a tutorial has,
built on a function of our own with fewer points, dimensions and restarts. What is the same line in
BoTorch's tutorial and here is what :class:`Tutorial` names in ``line``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gpytorch
import torch
from botorch.acquisition import (
    AcquisitionFunction,
    AnalyticAcquisitionFunction,
    ExpectedImprovement,
    UpperConfidenceBound,
    analytic,
    qExpectedImprovement,
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
)
from botorch.acquisition.objective import GenericMCObjective, ScalarizedPosteriorTransform
from botorch.fit import fit_gpytorch_mll
from botorch.generation.sampling import ConstrainedMaxPosteriorSampling, MaxPosteriorSampling
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.ensemble import EnsembleModel
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.kernels import InfiniteWidthBNNKernel
from botorch.models.model import Model
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.models.transforms.input import Warp
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from botorch.optim.initializers import initialize_q_batch_nonneg
from gpytorch.constraints import Interval
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import MaternKernel, RBFKernel, RFFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, LikelihoodList
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from linear_operator.operators import PsdSumLinearOperator
from torch import Tensor

from botorch_bandits import (
    GPThompsonSampling,
    GPUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
)

from .cases import uniform
from .sampled_models import sampled

EQUAL = "same values, and candidates that are as good"
SAMPLED = "the same values for one point, up to sampling; the value of several points is a sum"
DRAWS = "draws from the same distribution, with different random numbers"
RUNS = "runs, with a different acquisition function"
"""What can come out."""

BATCH_OPTIONS = {"batch_limit": 5, "maxiter": 15}


@dataclass(frozen=True)
class Loop:
    """One step of a tutorial's loop.

    Attributes:
        theirs: BoTorch's acquisition function, or what takes its place.
        ours: What the changed line builds.
        bounds: Of the search.
        q: How many points are asked for.
        optimize: The optimizer, from an acquisition function to candidates and values.
        choices: The points among which candidates must be, where there are such.
        optimize_theirs: If BoTorch's line asks another way.
    """

    theirs: Any
    ours: AcquisitionFunction
    bounds: Tensor
    q: int
    optimize: Callable[[Any], tuple[Tensor, Tensor]]
    choices: Tensor | None = None
    optimize_theirs: Callable[[Any], tuple[Tensor, Tensor]] | None = None


@dataclass(frozen=True)
class Tutorial:
    """A tutorial and what becomes of it.

    Attributes:
        name: Its folder in BoTorch's repository.
        uses: Model, acquisition function and optimizer.
        line: What stands in the line that changes, before and after.
        build: Makes the step of its loop.
        result: What must come out.
    """

    name: str
    uses: str
    line: tuple[str, str]
    build: Callable[[], Loop]
    result: str


def unit_box(dim: int) -> Tensor:
    return torch.stack([torch.zeros(dim), torch.ones(dim)]).double()


def data(num_rows: int, dim: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Rows in the unit box and a reward with several bumps."""
    X = uniform(num_rows, dim, seed=seed)
    away = (X - 0.35) * torch.linspace(1.0, 0.4, dim).double()
    return X, torch.cos(5.0 * away).sum(-1, keepdim=True) - 2.0 * away.square().sum(-1, True)


def fitted(model: Any) -> Any:
    fit_gpytorch_mll(
        ExactMarginalLogLikelihood(model.likelihood, model),
        optimizer_kwargs={"options": {"maxiter": 15}},
    )
    return model


def on_box(dim: int, q: int, **more: Any) -> dict[str, Any]:
    bounds = more.pop("bounds", unit_box(dim))

    def optimize(acqf: AcquisitionFunction) -> tuple[Tensor, Tensor]:
        return optimize_acqf(
            acqf,
            bounds=bounds,
            q=q,
            num_restarts=2,
            raw_samples=32,
            **{"options": {"maxiter": 30}, **more},
        )

    return {"bounds": bounds, "q": q, "optimize": optimize}


# --- loops ----------------------------------------------------------------------------------


def constrained_loop() -> Loop:
    X, Y = data(10, 3)
    noise = torch.full_like(Y, 0.25**2)
    parts = [
        SingleTaskGP(X, outcomes, noise, input_transform=Normalize(d=3))
        for outcomes in (Y, X.sum(-1, keepdim=True) - 1.5)
    ]
    model = ModelListGP(*parts)
    theirs = qLogNoisyExpectedImprovement(
        model,
        X_baseline=X,
        objective=GenericMCObjective(lambda Z, X=None: Z[..., 0]),
        constraints=[lambda Z: Z[..., 1]],
    )
    ours = LagrangianUpperConfidenceBound(model, multipliers=[2.0])
    return Loop(theirs, ours, **on_box(3, 3, options=BATCH_OPTIONS))


def trust_region_model(X: Tensor, Y: Tensor) -> Model:
    """ARD Matern with bounds on lengthscales and noise; bounds are built in single precision."""
    kernel = ScaleKernel(
        MaternKernel(nu=2.5, ard_num_dims=X.shape[-1], lengthscale_constraint=Interval(0.005, 4.0))
    )
    likelihood = GaussianLikelihood(noise_constraint=Interval(1e-8, 1e-3))
    return fitted(SingleTaskGP(X, Y, covar_module=kernel, likelihood=likelihood)).eval()


def trust_region(model: Model, X: Tensor, Y: Tensor) -> Tensor:
    weights = model.covar_module.base_kernel.lengthscale.squeeze().detach()
    weights = weights / weights.log().mean().exp()
    center = X[Y.argmax()]
    return torch.stack([center - 0.4 * weights, center + 0.4 * weights]).clamp(0.0, 1.0)


def improvement_in_trust_region() -> Loop:
    X, Y = data(12, 3)
    model = trust_region_model(X, (Y - Y.mean()) / Y.std())
    best = ((Y - Y.mean()) / Y.std()).max()
    return Loop(
        qLogExpectedImprovement(model, best),
        LogExpectedImprovement(model, best),
        **on_box(3, 2, bounds=trust_region(model, X, Y)),
    )


def on_choices(model: Model, choices: Tensor, q: int, bounds: Tensor) -> Loop:
    strategy = MaxPosteriorSampling(model=model, replacement=False)
    return Loop(
        strategy,
        GPThompsonSampling(model, choices=choices, seed=0),
        bounds,
        q,
        lambda acqf: optimize_acqf_discrete(acqf, q=q, choices=choices),
        choices,
        lambda draw: (draw(choices, num_samples=q), torch.zeros(q)),
    )


def draws_in_trust_region() -> Loop:
    X, Y = data(12, 3)
    model = trust_region_model(X, (Y - Y.mean()) / Y.std())
    bounds = trust_region(model, X, Y)
    candidates = bounds[0] + (bounds[1] - bounds[0]) * uniform(200, 3, seed=5)
    mask = uniform(200, 3, seed=6) <= 0.7
    choices = torch.where(mask, candidates, X[Y.argmax()])
    return on_choices(model, choices[mask.any(-1)], 4, bounds)


def draws_in_subspace() -> Loop:
    """The search box is [-1, 1] of a space that is embedded in the one of the function."""
    X = 2.0 * uniform(12, 2, seed=1) - 1.0
    Y = data(12, 5)[1]
    model = trust_region_model(X, (Y - Y.mean()) / Y.std())
    bounds = torch.stack([-torch.ones(2), torch.ones(2)]).double()
    return on_choices(model, 2.0 * uniform(200, 2, seed=5) - 1.0, 2, bounds)


def draws_under_constraints() -> Loop:
    X, Y = data(12, 3)
    model = trust_region_model(X, (Y - Y.mean()) / Y.std())
    constraints = [
        trust_region_model(X, outcomes) for outcomes in (X[:, :1] - 0.6, X[:, 1:2] - 0.7)
    ]
    choices = uniform(200, 3, seed=5)
    strategy = ConstrainedMaxPosteriorSampling(
        model=model, constraint_model=ModelListGP(*constraints), replacement=False
    )
    ours = LagrangianThompsonSampling(
        ModelListGP(model, *constraints), multipliers=[5.0, 5.0], choices=choices, seed=0
    )
    return Loop(
        strategy,
        ours,
        unit_box(3),
        4,
        lambda acqf: optimize_acqf_discrete(acqf, q=4, choices=choices),
        choices,
        lambda draw: (draw(choices, num_samples=4), torch.zeros(4)),
    )


def fully_bayesian() -> Loop:
    model = sampled("SaasFullyBayesianSingleTaskGP, Normalize and Standardize, by NUTS")
    best = model.posterior(uniform(8, 2, seed=1)).mixture_mean.max().detach()
    theirs = qLogExpectedImprovement(model=model, best_f=best)
    ours = LogExpectedImprovement(model=model, best_f=best)
    return Loop(theirs, ours, **on_box(2, 2))


class PerCost(AnalyticAcquisitionFunction):
    """Expected improvement over a cost that is learned."""

    def __init__(self, model: Model, costs: Model, improvement: Callable[[Tensor], Tensor]) -> None:
        super().__init__(model)
        self.costs, self.improvement = costs, improvement

    def forward(self, X: Tensor) -> Tensor:
        return self.improvement(X) / self.costs.posterior(X).mean.squeeze(-1).squeeze(-1)


def improvement_per_cost() -> Loop:
    X, Y = data(6, 1)
    model = fitted(SingleTaskGP(X, (Y - Y.mean()) / Y.std()))
    costs = SingleTaskGP(X, 200.0 * (1.1 - X) ** 2, outcome_transform=Log())
    best = ((Y - Y.mean()) / Y.std()).max()
    log_improvement = LogExpectedImprovement(model, best)
    return Loop(
        PerCost(model, costs, ExpectedImprovement(model, best_f=best)),
        PerCost(model, costs, lambda X: log_improvement(X).exp()),
        **on_box(1, 1),
    )


def warped_inputs() -> Loop:
    X, Y = data(10, 2)
    warp = Warp(
        d=2,
        indices=[0, 1],
        concentration1_prior=LogNormalPrior(0.0, 0.75**0.5),
        concentration0_prior=LogNormalPrior(0.0, 0.75**0.5),
    )
    model = SingleTaskGP(
        X, (Y - Y.mean()) / Y.std(), torch.full_like(Y, 0.01), input_transform=warp
    )
    fitted(model)
    theirs = qLogNoisyExpectedImprovement(model, X_baseline=X, prune_baseline=True)
    return Loop(theirs, LogExpectedImprovement(model), **on_box(2, 3, options=BATCH_OPTIONS))


def many_choices() -> Loop:
    X, Y = data(10, 3)
    kernel = ScaleKernel(RBFKernel(ard_num_dims=3))
    model = fitted(SingleTaskGP(X, Y, covar_module=kernel)).eval()
    return on_choices(model, uniform(1000, 3, seed=5), 5, unit_box(3))


def random_features() -> Loop:
    X, Y = data(10, 3)
    kernel = ScaleKernel(RFFKernel(ard_num_dims=3, num_samples=64))
    return on_choices(
        SingleTaskGP(X, Y, covar_module=kernel).eval(), uniform(300, 3, seed=5), 5, unit_box(3)
    )


def wide_network() -> Loop:
    X, Y = data(10, 3)
    kernel = ScaleKernel(InfiniteWidthBNNKernel(3))
    model = fitted(SingleTaskGP(X, Y, outcome_transform=Standardize(m=1), covar_module=kernel))
    return Loop(
        analytic.LogExpectedImprovement(model, best_f=Y.max()),
        LogExpectedImprovement(model, best_f=Y.max()),
        **on_box(3, 1),
    )


class CustomGP(gpytorch.models.ExactGP, GPyTorchModel):
    """A Gaussian process of one's own."""

    _num_outputs = 1

    def __init__(self, X: Tensor, Y: Tensor) -> None:
        super().__init__(X, Y.squeeze(-1), GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = ScaleKernel(RBFKernel(ard_num_dims=X.shape[-1]))
        self.to(X)

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def custom_gp() -> Loop:
    X, Y = data(10, 2)
    model = fitted(CustomGP(X, Y))
    return Loop(
        analytic.LogExpectedImprovement(model, best_f=Y.max()),
        LogExpectedImprovement(model, best_f=Y.max()),
        **on_box(2, 1),
    )


class Trees(EnsembleModel):
    """Piecewise constant functions, each of other pieces, as a random forest has them."""

    _num_outputs = 1

    def __init__(self, X: Tensor, Y: Tensor) -> None:
        super().__init__()
        self.X, self.Y = X, Y

    def forward(self, X: Tensor) -> Tensor:
        nearest = [torch.cdist(X, self.X[k:]).argmin(-1) + k for k in range(5)]
        return torch.stack([self.Y[index] for index in nearest], dim=-3)


def forest() -> Loop:
    X, Y = data(10, 2)
    model = Trees(X, Y)
    return Loop(
        qLogExpectedImprovement(model, best_f=Y.max()),
        LogExpectedImprovement(model, best_f=Y.max()),
        **on_box(2, 1, options={"with_grad": False, "maxiter": 20}),
    )


def weighted_outcomes() -> Loop:
    X = uniform(20, 2, seed=1)
    Y = torch.stack([torch.sin(X[:, 0]), torch.cos(X[:, 1])], -1)
    model = fitted(SingleTaskGP(X, Y))
    weights = ScalarizedPosteriorTransform(weights=torch.tensor([0.1, 0.5]).double())
    return Loop(
        UpperConfidenceBound(model, beta=0.1, posterior_transform=weights),
        GPUpperConfidenceBound(model, beta=0.1, posterior_transform=weights),
        **on_box(2, 1),
    )


def analytic_and_sampled() -> Loop:
    X, Y = data(10, 3)
    model = fitted(SingleTaskGP(X, Y, outcome_transform=Standardize(m=1)))
    return Loop(
        analytic.LogExpectedImprovement(model, best_f=Y.max()),
        LogExpectedImprovement(model, best_f=Y.max()),
        **on_box(3, 1),
    )


def evolution() -> Loop:
    """A population is asked for, valued without gradients, and told, as with CMA-ES."""
    X = 2.0 * uniform(20, 3, seed=1) - 1.0
    model = fitted(SingleTaskGP(X, 1.0 - X.norm(dim=-1, keepdim=True)))
    bounds = torch.stack([-torch.ones(3), torch.ones(3)]).double()

    def evolve(acqf: AcquisitionFunction) -> tuple[Tensor, Tensor]:
        stream = torch.Generator().manual_seed(0)
        center, spread = torch.full((3,), 0.1).double(), 0.5
        for _ in range(12):
            steps = torch.randn(30, 3, generator=stream, dtype=torch.float64)
            population = (center + spread * steps).clamp(-1.0, 1.0)
            with torch.no_grad():
                values = acqf(population.unsqueeze(-2)).view(-1)
            center, spread = population[values.topk(8).indices].mean(0), 0.85 * spread
        return center.unsqueeze(0), acqf(center.unsqueeze(0)).detach()

    return Loop(
        UpperConfidenceBound(model, beta=0.1),
        GPUpperConfidenceBound(model, beta=0.1),
        bounds,
        1,
        evolve,
    )


def stochastic_steps() -> Loop:
    """Adam on q points together; the tutorial's data are in single precision."""
    X = 2.0 * uniform(20, 3, seed=1) - 1.0
    Y = 1.0 - X.norm(dim=-1, keepdim=True)
    model = fitted(SingleTaskGP(X, Y))
    bounds = torch.stack([-torch.ones(3), torch.ones(3)]).double()

    def descend(acqf: AcquisitionFunction) -> tuple[Tensor, Tensor]:
        raw = bounds[0] + (bounds[1] - bounds[0]) * uniform(40, 2, 3, seed=7)
        values = acqf(raw).detach()
        x, _ = initialize_q_batch_nonneg(raw, (values - values.max()).exp(), 3)
        x.requires_grad_(True)
        optimizer = torch.optim.Adam([x], lr=0.01)
        for _ in range(20):
            optimizer.zero_grad()
            (-acqf(x)).sum().backward()
            optimizer.step()
            x.data.clamp_(-1.0, 1.0)
        values = acqf(x).detach()
        return x.detach()[values.argmax()], values.max()

    best = Y.max()
    return Loop(
        qExpectedImprovement(model, best_f=best),
        LogExpectedImprovement(model, best_f=best),
        bounds,
        2,
        descend,
    )


class Ranked(gpytorch.models.GP, GPyTorchModel):
    """A weighted sum of Gaussian processes of earlier tasks and of this one."""

    _num_outputs = 1

    def __init__(self, models: list[Model], weights: Tensor) -> None:
        super().__init__()
        self.models = torch.nn.ModuleList(models)
        self.weights = weights
        self.likelihood = LikelihoodList(*(model.likelihood for model in models))

    def forward(self, x: Tensor) -> MultivariateNormal:
        posteriors = [model.posterior(x) for model in self.models]
        weighted = list(zip(self.weights, posteriors, strict=True))
        mean = sum(weight * each.mean.squeeze(-1) for weight, each in weighted)
        covariance = PsdSumLinearOperator(
            *(each.distribution.lazy_covariance_matrix * weight**2 for weight, each in weighted)
        )
        return MultivariateNormal(mean, covariance)


def ranked_ensemble() -> Loop:
    models = []
    for task in range(3):
        X = uniform(8, 1, seed=task + 1)
        Y = torch.sin(6.0 * X + 0.3 * task)
        noise = torch.full_like(Y, 0.05**2)
        models.append(SingleTaskGP(X, Y, noise, outcome_transform=Standardize(1)).eval())
    model = Ranked(models, torch.tensor([0.2, 0.3, 0.5]).double()).eval()
    return Loop(
        qLogNoisyExpectedImprovement(model, X_baseline=X, prune_baseline=False, cache_root=False),
        LogExpectedImprovement(model, X_observed=X),
        **on_box(1, 1),
    )


def latent_space() -> Loop:
    """The score of what a decoder makes of latent points; the decoder is a stand-in."""
    X = uniform(8, 5, seed=1)
    decoder = torch.randn(5, 10, generator=torch.Generator().manual_seed(0)).double()
    Y = (-2.0 * ((12.0 * X - 6.0) @ decoder).softmax(-1).square()).exp().mean(-1, keepdim=True)
    model = fitted(SingleTaskGP(X, Y))
    return Loop(
        qExpectedImprovement(model, best_f=Y.max()),
        LogExpectedImprovement(model, best_f=Y.max()),
        **on_box(5, 3),
    )


def composite_baseline() -> Loop:
    X, Y = data(10, 3)
    model = fitted(SingleTaskGP(X, Y, input_transform=Normalize(3)))
    return Loop(
        qExpectedImprovement(model, best_f=Y.max()),
        LogExpectedImprovement(model, best_f=Y.max()),
        **on_box(3, 2),
    )


IMPROVEMENT = "`LogExpectedImprovement(model, best_f)`, from `botorch_bandits`"
DRAW = (
    "`strategy(X_cand, num_samples=q)`",
    "`optimize_acqf_discrete(GPThompsonSampling(model, choices=X_cand), q=q, choices=X_cand)`",
)

INSIDE = (
    Tutorial(
        "closed_loop_botorch_only",
        "`ModelListGP` of reward and constraint with `train_Yvar`; noisy EI, `q = 3` together",
        (
            "`qLogNoisyExpectedImprovement(model, X_baseline, objective=, constraints=)`",
            "`LagrangianUpperConfidenceBound(model, multipliers=[2.0])`",
        ),
        constrained_loop,
        RUNS,
    ),
    Tutorial(
        "turbo_1",
        "Matern kernel with bounds on lengthscales and noise; EI in a moving box",
        ("`qLogExpectedImprovement(model, best_f)`", IMPROVEMENT),
        improvement_in_trust_region,
        SAMPLED,
    ),
    Tutorial(
        "turbo_1",
        "the same model; Thompson sampling on perturbed points",
        DRAW,
        draws_in_trust_region,
        DRAWS,
    ),
    Tutorial(
        "baxus",
        "the same in a growing subspace; Thompson sampling",
        DRAW,
        draws_in_subspace,
        DRAWS,
    ),
    Tutorial(
        "scalable_constrained_bo",
        "separate models of the reward and of each constraint; constrained Thompson sampling",
        (
            DRAW[0],
            "`optimize_acqf_discrete(LagrangianThompsonSampling(ModelListGP(model, *constraints), "
            "multipliers=, choices=X_cand), q=q, choices=X_cand)`",
        ),
        draws_under_constraints,
        RUNS,
    ),
    Tutorial(
        "saasbo",
        "`SaasFullyBayesianSingleTaskGP`; EI, `q > 1` together",
        ("`qLogExpectedImprovement(model, best_f)`", IMPROVEMENT),
        fully_bayesian,
        SAMPLED,
    ),
    Tutorial(
        "cost_aware_bayesian_optimization",
        "EI divided by a learned cost, in a custom class",
        (
            "`ExpectedImprovement(model, best_f)(X)`",
            "`LogExpectedImprovement(model, best_f)(X).exp()`",
        ),
        improvement_per_cost,
        EQUAL,
    ),
    Tutorial(
        "bo_with_warped_gp",
        "`Warp` of the inputs, `train_Yvar`; noisy EI, `q = 3` together",
        (
            "`qLogNoisyExpectedImprovement(model, X_baseline)`",
            "`LogExpectedImprovement(model)`, from `botorch_bandits`",
        ),
        warped_inputs,
        RUNS,
    ),
    Tutorial(
        "thompson_sampling",
        "RBF kernel; `MaxPosteriorSampling` on many points",
        DRAW,
        many_choices,
        DRAWS,
    ),
    Tutorial(
        "thompson_sampling", "random features as the kernel; the same", DRAW, random_features, DRAWS
    ),
    Tutorial(
        "ibnn_bo",
        "`InfiniteWidthBNNKernel`, `Standardize`; analytic EI",
        ("`LogExpectedImprovement(model, best_f)`", IMPROVEMENT),
        wide_network,
        EQUAL,
    ),
    Tutorial(
        "custom_model",
        "a custom `ExactGP`; EI",
        ("`LogExpectedImprovement(model, best_f)`", IMPROVEMENT),
        custom_gp,
        EQUAL,
    ),
    Tutorial(
        "custom_model",
        "an ensemble of trees, searched without gradients; EI",
        ("`qLogExpectedImprovement(model, best_f)`", IMPROVEMENT),
        forest,
        RUNS,
    ),
    Tutorial(
        "custom_acquisition",
        "two outputs with `ScalarizedPosteriorTransform`; UCB",
        (
            "`UpperConfidenceBound(model, beta=0.1, posterior_transform=)`",
            "`GPUpperConfidenceBound(model, beta=0.1, posterior_transform=)`",
        ),
        weighted_outcomes,
        EQUAL,
    ),
    Tutorial(
        "compare_mc_analytic_acquisition",
        "`SingleTaskGP`; analytic EI",
        ("`LogExpectedImprovement(model, best_f)`", IMPROVEMENT),
        analytic_and_sampled,
        EQUAL,
    ),
    Tutorial(
        "optimize_with_cmaes",
        "`SingleTaskGP`; UCB, evaluated in batches for CMA-ES",
        ("`UpperConfidenceBound(model, beta=0.1)`", "`GPUpperConfidenceBound(model, beta=0.1)`"),
        evolution,
        EQUAL,
    ),
    Tutorial(
        "optimize_stochastic",
        "EI of `q = 2` points with `torch.optim.Adam`; the tutorial's data are float32, which is "
        "refused: set `torch.set_default_dtype(torch.double)`, too",
        ("`qExpectedImprovement(model, best_f, sampler)`", IMPROVEMENT),
        stochastic_steps,
        SAMPLED,
    ),
    Tutorial(
        "meta_learning_with_rgpe",
        "a weighted ensemble of Gaussian processes in a custom class; noisy EI",
        (
            "`qLogNoisyExpectedImprovement(model, X_baseline)`",
            "`LogExpectedImprovement(model, X_observed=X_baseline)`, from `botorch_bandits`",
        ),
        ranked_ensemble,
        RUNS,
    ),
    Tutorial(
        "vae_mnist",
        "scores of decoded latent points (here with a stand-in for the decoder, whose weights are "
        "a download); EI, `q = 3` together",
        ("`qExpectedImprovement(model, best_f)`", IMPROVEMENT),
        latent_space,
        SAMPLED,
    ),
    Tutorial(
        "composite_bo_with_hogp",
        "its comparison with one output (in double precision); EI, `q > 1` together",
        ("`qExpectedImprovement(model, best_f)`", IMPROVEMENT),
        composite_baseline,
        SAMPLED,
    ),
)
"""Tutorials with one objective and UCB, EI or Thompson sampling."""

_SEVERAL = "several objectives"
_PREFERENCES = "outcomes are comparisons, not rewards"
_GRADIENT = "the knowledge gradient looks one step ahead, and the package has no such class"
_ENTROPY = "entropy search, for which the package has no class"
_RISK = "a risk measure of sampled outcomes is not a Gaussian objective"
_NONE = "it uses no acquisition function"

OUTSIDE = {
    "preference_bo": _PREFERENCES,
    "bope": _PREFERENCES,
    "Multi_objective_multi_fidelity_BO": _SEVERAL,
    "multi_objective_bo": _SEVERAL,
    "constrained_multi_objective_bo": _SEVERAL,
    "robust_multi_objective_bo": _SEVERAL,
    "decoupled_mobo": _SEVERAL,
    "fit_model_with_torch_optimizer": _NONE,
    "batch_mode_cross_validation": _NONE,
    "orthogonal_additive_gp": _NONE,
    "relevance_pursuit_robust_regression": _NONE + "; its model has a row in {doc}`compatibility`",
    "one_shot_kg": _GRADIENT,
    "multi_fidelity_bo": _GRADIENT,
    "discrete_multi_fidelity_bo": _GRADIENT,
    "max_value_entropy": _ENTROPY,
    "GIBBON_for_efficient_batch_entropy_search": _ENTROPY,
    "information_theoretic_acquisition_functions": _ENTROPY,
    "risk_averse_bo_with_environmental_variables": _RISK,
    "risk_averse_bo_with_input_perturbations": _RISK,
    "constraint_active_search": "it looks for points that cover a region, and not for a best point",
    "composite_bo_with_hogp": "its `HigherOrderGP` has tensors as outcomes, and the objective is a "
    "nonlinear function of them",
    "composite_mtbo": "the objective is a nonlinear function of several outputs, which is known "
    "only through samples",
}
"""The others of BoTorch 0.18.1, and why they are outside."""

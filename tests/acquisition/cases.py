"""What the harness crosses: model families, acquisition functions, BoTorch's optimizers.

The lists are data, free of pytest.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.ensemble import EnsembleModel
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.map_saas import EnsembleMapSaasSingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms import Normalize
from botorch.optim import (
    optimize_acqf,
    optimize_acqf_cyclic,
    optimize_acqf_discrete,
    optimize_acqf_mixed,
)
from botorch.optim.optimize import optimize_acqf_discrete_local_search, optimize_acqf_list
from botorch.optim.optimize_mixed import optimize_acqf_mixed_alternating
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ExactGP
from models.textbook import double, uniform
from scipy.special import log_ndtr
from torch import Tensor

from botorch_bandits import (
    AMMUpperConfidenceBound,
    BanditGP,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
    MeanOnly,
    RandomizedUpperConfidenceBound,
    VarianceOnly,
    WidthUpperConfidenceBound,
)
from botorch_bandits.confidence import Guarantee, PriorSummary, WidthRule
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.random_streams import generator

from .dense import DenseGP, Reference, matern_five_halves, squared_exponential

SEED = 5
RKHS_BOUND, NOISE_BOUND, DELTA, NUM_ARMS = 2.0, 0.1, 0.1, 50
OUTCOME_BOUND = 7.0


class OwnGP(ExactGP, GPyTorchModel):
    """As in BoTorch's tutorial on models of one's own."""

    _num_outputs = 1

    def __init__(self, train_X: Tensor, train_Y: Tensor) -> None:
        super().__init__(train_X, train_Y.squeeze(-1), GaussianLikelihood())
        self.mean_module = ConstantMean()
        self.covar_module = ScaleKernel(RBFKernel(ard_num_dims=train_X.shape[-1]))
        self.to(train_X)

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Waves(EnsembleModel):
    """A deterministic ensemble, as of neural networks."""

    _num_outputs = 1

    def forward(self, X: Tensor) -> Tensor:
        return torch.stack([torch.sin((3 + i) * X.sum(-1, keepdim=True)) for i in range(6)], -3)


# --- data -----------------------------------------------------------------------------------

UNIT_BOX = double([[0.0, 0.0], [1.0, 1.0]])
WIDE_BOX = double([[-5.0, 0.0], [10.0, 15.0]])


def rows(num_rows: int = 7, bounds: Tensor = UNIT_BOX) -> tuple[Tensor, Tensor]:
    """Inputs in the box and two outcomes with a bump inside, on a scale that is not 1."""
    unit = uniform(num_rows, 2, seed=1)
    squared = [((unit - double(c)) ** 2).sum(-1, keepdim=True) for c in ([0.4, 0.55], [0.6, 0.3])]
    first = 3.0 + 2.0 * (-8.0 * squared[0]).exp()
    second = 0.5 - (-6.0 * squared[1]).exp()
    return bounds[0] + (bounds[1] - bounds[0]) * unit, torch.cat([first, second], dim=-1)


def outputs_of(model: Any, X: Tensor, Y: Tensor) -> list[tuple[DenseGP, ...]]:
    """Dense processes with the hyperparameters of a model, from its raw rows, member by member.

    ``X`` is ``n x d`` or ``members x n x d``, and ``Y`` has the outputs in its last dimension.
    """
    kernel = model.covar_module
    base, m = getattr(kernel, "base_kernel", kernel), Y.shape[-1]
    count = m * max(model.batch_shape.numel(), 1)

    def each(value: Tensor, *size: int) -> np.ndarray:
        return value.detach().reshape(-1, *size).expand(count, *size).numpy()

    lengthscales = each(base.lengthscale, base.lengthscale.shape[-1])
    noises = each(model.likelihood.noise, model.likelihood.noise.shape[-1])
    scales = each(kernel.outputscale) if isinstance(kernel, ScaleKernel) else np.ones(count)
    means = each(model.mean_module.constant)
    form = matern_five_halves if isinstance(base, MaternKernel) else squared_exponential
    members = []
    for k in range(count // m):
        x, ys = ((rows if rows.dim() == 2 else rows[k]).numpy() for rows in (X, Y))
        ends = {}
        if isinstance(getattr(model, "input_transform", None), Normalize):
            ends = {"low": x.min(0), "high": x.max(0)}
        outputs = []
        for j, y in enumerate(ys.T):
            i, shift, unit = k * m + j, 0.0, 1.0
            if getattr(model, "outcome_transform", None) is not None:
                shift, unit = float(y.mean()), float(y.std(ddof=1))
            outputs.append(
                DenseGP(
                    X=x,
                    Y=(y - shift) / unit,
                    kernel=form(lengthscales[i]),
                    noise=np.broadcast_to(noises[i], len(x)),
                    new_noise=float(noises[i].mean()),
                    outputscale=float(scales[i]),
                    prior_mean=float(means[i]),
                    shift=shift,
                    unit=unit,
                    **ends,
                )
            )
        members.append(tuple(outputs))
    return members


def _set(model: SingleTaskGP, lengthscale: Any, noise: Any, constant: Any) -> SingleTaskGP:
    """Give a model known hyperparameters (in float64: GPyTorch rounds Python numbers)."""
    kernel = getattr(model.covar_module, "base_kernel", model.covar_module)
    kernel.lengthscale = double(lengthscale)
    model.likelihood.noise = double(noise)
    model.mean_module.constant = double(constant)
    return model.eval()


# --- model families -------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelCase:
    """A model family, how to use it, and its textbook counterpart.

    Attributes:
        name: For humans.
        build: Makes a fresh model.
        data: The raw rows of each of its parts; those of one output if omitted.
        weights: Of the ``ScalarizedPosteriorTransform`` that goes with it, if any.
        offset: Likewise.
        bounds: The box to optimize in.
        kind: ``"single"``, ``"ensemble"`` (values are averaged over members) or ``"batch"``
            (one value per member: can be evaluated, but BoTorch's optimizers want one value).
    """

    name: str
    build: Callable[[], Model]
    data: tuple[tuple[Tensor, Tensor], ...] = ()
    weights: tuple[float, ...] | None = None
    offset: float = 0.0
    bounds: Tensor = UNIT_BOX
    kind: str = "single"

    def reference(self, model: Model) -> Reference:
        """The dense computation that belongs to a model made by ``build``."""
        X, Y = rows(bounds=self.bounds)
        parts = model.models if isinstance(model, ModelListGP) else [model]
        each = [
            outputs_of(part, *data)
            for part, data in zip(parts, self.data or ((X, Y[:, :1]),), strict=True)
        ]
        members = tuple(sum(outputs, start=()) for outputs in zip(*each, strict=True))
        if self.weights is None:
            return Reference(members)
        return Reference(members, self.weights, self.offset)

    @property
    def posterior_transform(self) -> ScalarizedPosteriorTransform | None:
        if self.weights is None:
            return None
        return ScalarizedPosteriorTransform(double(list(self.weights)), self.offset)

    def points(self, num_points: int, seed: int) -> Tensor:
        unit = uniform(num_points, 2, seed=seed)
        return self.bounds[0] + (self.bounds[1] - self.bounds[0]) * unit

    @property
    def choices(self) -> Tensor:
        """A 5 x 5 grid on the box."""
        ticks = torch.linspace(0.0, 1.0, 5, dtype=torch.float64)
        unit = torch.cartesian_prod(ticks, ticks)
        return self.bounds[0] + (self.bounds[1] - self.bounds[0]) * unit

    @property
    def observed(self) -> Tensor:
        """The observed inputs."""
        X, _ = rows(bounds=self.bounds)
        return X[:0] if "no data" in self.name else X


def _standardized() -> SingleTaskGP:
    X, Y = rows()
    return _set(SingleTaskGP(X, Y[:, :1]), [[0.3, 0.5]], [0.02], 0.3)


def _normalized() -> SingleTaskGP:
    X, Y = rows(bounds=WIDE_BOX)
    model = SingleTaskGP(X, Y[:, :1], outcome_transform=None, input_transform=Normalize(2))
    return _set(model, [[0.4, 0.6]], [0.05], 2.5)


@cache
def _fit_once() -> SingleTaskGP:
    X, Y = rows()
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2))
    model = SingleTaskGP(X, Y[:, :1], covar_module=kernel)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model.eval()


def _fitted() -> SingleTaskGP:
    return copy.deepcopy(_fit_once())


def _noise_of_rows(X: Tensor) -> Tensor:
    return 0.002 + 0.01 * X[:, :1]


def _noise_by_row() -> SingleTaskGP:
    X, Y = rows()
    model = SingleTaskGP(X, Y[:, :1], _noise_of_rows(X))
    model.covar_module.lengthscale = double([[0.3, 0.5]])
    model.mean_module.constant = double(-0.2)
    return model.eval()


def _two_outputs() -> SingleTaskGP:
    X, Y = rows()
    return _set(SingleTaskGP(X, Y), [[[0.3, 0.5]], [[0.8, 0.4]]], [[0.02], [0.1]], [0.3, -0.1])


def _model_list() -> ModelListGP:
    X, Y = rows()
    second = SingleTaskGP(
        X[:5],
        Y[:5, 1:],
        covar_module=ScaleKernel(MaternKernel(nu=2.5)).double(),
        outcome_transform=None,
    )
    second.covar_module.outputscale = double(1.7)
    return ModelListGP(_standardized(), _set(second, 0.6, [0.03], 0.1)).eval()


def _own() -> OwnGP:
    X, Y = rows()
    model = OwnGP(X, Y[:, :1])
    model.covar_module.outputscale = double(1.7)
    return _set(model, [[0.4, 0.5]], [0.04], 3.4)


ENSEMBLE_LENGTHSCALES = ([0.2, 0.3], [0.7, 0.4], [1.5, 2.0])


def _ensemble() -> EnsembleMapSaasSingleTaskGP:
    X, Y = rows()
    taus = double([0.1, 0.3, 1.0])
    model = EnsembleMapSaasSingleTaskGP(X, Y[:, :1], num_taus=3, taus=taus)
    model.covar_module.outputscale = double([0.8, 1.5, 2.5])
    lengthscale = [[length] for length in ENSEMBLE_LENGTHSCALES]
    return _set(model, lengthscale, [[0.01], [0.02], [0.05]], [0.0, 0.2, -0.3])


def _batched() -> SingleTaskGP:
    X, Y = rows()
    model = SingleTaskGP(torch.stack([X, X.flip(-1)]), torch.stack([Y[:, :1], Y[:, 1:]]))
    return _set(model, [[[0.3, 0.5]], [[0.6, 0.6]]], [[0.02], [0.08]], [0.3, 0.0])


def bandit_gp(num_rows: int = 7, noise: float = 0.05) -> BanditGP:
    X, Y = rows()
    kernel = ScaleKernel(MaternKernel(nu=2.5)).double()
    kernel.outputscale = double(2.0)
    kernel.base_kernel.lengthscale = double(0.4)
    return BanditGP(X[:num_rows], Y[:num_rows, 1:], kernel=kernel, noise=noise)


def bandit_gp_reference(num_rows: int = 7, noise: float = 0.05) -> Reference:
    X, Y = rows()
    model = bandit_gp(num_rows, noise)
    return Reference(tuple(outputs_of(model, X[:num_rows], Y[:num_rows, 1:])))


_X, _Y = rows()
MODELS = (
    ModelCase("SingleTaskGP, Standardize", _standardized),
    ModelCase("SingleTaskGP, Normalize", _normalized, bounds=WIDE_BOX),
    ModelCase("SingleTaskGP, ScaleKernel, fitted", _fitted),
    ModelCase("SingleTaskGP, train_Yvar", _noise_by_row),
    ModelCase("SingleTaskGP, weight -1", _standardized, weights=(-1.0,)),
    ModelCase(
        "SingleTaskGP, two outputs, scalarized",
        _two_outputs,
        ((_X, _Y),),
        weights=(0.7, -1.2),
        offset=0.4,
    ),
    ModelCase(
        "ModelListGP, scalarized",
        _model_list,
        ((_X, _Y[:, :1]), (_X[:5], _Y[:5, 1:])),
        weights=(0.5, 1.5),
        offset=-1.0,
    ),
    ModelCase("EnsembleMapSaasSingleTaskGP", _ensemble, kind="ensemble"),
    ModelCase(
        "SingleTaskGP, batched",
        _batched,
        ((torch.stack([_X, _X.flip(-1)]), torch.stack([_Y[:, :1], _Y[:, 1:]])),),
        kind="batch",
    ),
    ModelCase("a GPyTorch model of one's own", _own),
    ModelCase("BanditGP", bandit_gp, ((_X, _Y[:, 1:]),)),
    ModelCase("BanditGP, no data", lambda: bandit_gp(num_rows=0), ((_X[:0], _Y[:0, 1:]),)),
)


def snapshot(model: Model) -> dict[str, Any]:
    """All that a user could miss if it changed."""
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for name, module in model.named_modules():
        state[f"{name} training"] = torch.tensor(module.training)
        for i, inputs in enumerate(getattr(module, "train_inputs", None) or ()):
            if isinstance(inputs, Tensor):
                state[f"{name} train_inputs {i}"] = inputs.clone()
        if isinstance(getattr(module, "train_targets", None), Tensor):
            state[f"{name} train_targets"] = module.train_targets.clone()
    for name, parameter in model.named_parameters():
        state[f"{name} requires_grad"] = torch.tensor(parameter.requires_grad)
        state[f"{name} grad"] = torch.tensor(parameter.grad is None)
    return state


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert before.keys() == after.keys()
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert changed == []


# --- acquisition functions ------------------------------------------------------------------


@dataclass(frozen=True)
class RootOfRound(WidthRule):
    """A width rule from outside the package: the square root of the round."""

    needs_round = True

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        return double(round_number).sqrt()

    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        return Guarantee(method="the square root of the round")


@dataclass(frozen=True)
class AcquisitionCase:
    """An acquisition function with its options, and its textbook value.

    Attributes:
        name: For humans.
        build: Called with the model case, the model and further constructor arguments.
        expected: From the model case, the dense reference, pending points and points (both
            numpy) to a ``members x n`` array of values of each member. None for random draws.
        scale_of_draw: For random draws: from the dense reference to ``v`` of each member.
        log: Whether values are logarithms (they are averaged as such over an ensemble).
        on_choices: Whether only the model case's choices can be evaluated.
        refuses: Kinds of models that it cannot work with, by design.
    """

    name: str
    build: Callable[..., AcquisitionFunction]
    expected: Callable[..., np.ndarray] | None = None
    scale_of_draw: Callable[[Reference], np.ndarray] | None = None
    log: bool = False
    on_choices: bool = False
    refuses: tuple[str, ...] = ()

    def make(
        self, case: ModelCase, model: Model | None = None, **options: Any
    ) -> AcquisitionFunction:
        """Build it for a model family, with the family's posterior transform."""
        model = case.build() if model is None else model
        return self.build(case, model, posterior_transform=case.posterior_transform, **options)

    def values(
        self, case: ModelCase, reference: Reference, x: Tensor, X_pending: Tensor | None = None
    ) -> Tensor:
        """The textbook values at the rows of ``x``: ``n``, or ``n x members`` for a batch."""
        assert self.expected is not None
        pending = np.zeros((0, 2)) if X_pending is None else X_pending.numpy()
        members = self.expected(case, reference, pending, x.numpy())
        if case.kind == "batch":
            return torch.from_numpy(members.T)
        if self.log:
            return torch.from_numpy(np.logaddexp.reduce(members, axis=0) - np.log(len(members)))
        return torch.from_numpy(members.mean(axis=0))


def _gp_ucb_values(case, reference, pending, x):
    round_number = reference.num_rows + len(pending) + 1
    width = reference.finite_arms_width(NUM_ARMS, round_number, DELTA)
    return reference.hallucinate(pending).upper_bound(x, width)


def _constant_values(case, reference, pending, x):
    return reference.hallucinate(pending).upper_bound(x, np.full(len(reference.members), 1.0))


def _igp_values(case, reference, pending, x):
    width = reference.kernelized_width(RKHS_BOUND, NOISE_BOUND, DELTA)
    return reference.hallucinate(pending).upper_bound(x, width)


def _any_lambda_values(case, reference, pending, x):
    width = 0.5 * reference.kernelized_width(RKHS_BOUND, NOISE_BOUND, DELTA, any_lambda=True)
    return reference.hallucinate(pending).upper_bound(x, width)


def _root_values(case, reference, pending, x):
    width = np.sqrt(reference.num_rows + len(pending) + 1.0)
    return reference.hallucinate(pending).upper_bound(x, np.full(len(reference.members), width))


def _improvement_values(case, reference, pending, x):
    observed = case.observed.numpy()
    # the incumbent is the largest posterior mean at an observed or pending point, each member's own
    best = reference.moments(observed)[0].max(axis=-1) if len(observed) else np.zeros(1)
    if len(pending):
        best = np.maximum(best, reference.moments(pending)[0].max(axis=-1))
    return reference.hallucinate(pending).log_expected_improvement(x, best)


def _mixture_values(case, reference, pending, x):
    width = reference.mixture_width(RKHS_BOUND, NOISE_BOUND, DELTA)
    return reference.hallucinate(pending).upper_bound(x, width)


def _ridge_values(case, reference, pending, x):
    return reference.ridge_bounds(x, RKHS_BOUND, NOISE_BOUND, DELTA, pending)[1]


def _randomized_values(case, reference, pending, x):
    stream = generator(SEED, reference.num_rows + len(pending) + 1, "IRGP-UCB")
    draw = float(torch.empty((), dtype=torch.float64).exponential_(generator=stream))
    width = np.sqrt(2.0 * np.log(NUM_ARMS / 2.0) + 2.0 * draw)
    return reference.hallucinate(pending).upper_bound(x, np.full(len(reference.members), width))


def _probability_values(case, reference, pending, x):
    observed = case.observed.numpy()
    best = reference.moments(observed)[0].max(axis=-1) if len(observed) else np.zeros(1)
    if len(pending):
        best = np.maximum(best, reference.moments(pending)[0].max(axis=-1))
    mean, sd = reference.hallucinate(pending).mean_and_sd(x)
    return log_ndtr((mean - best.reshape(-1, 1) - 0.02) / sd)


def _mean_values(case, reference, pending, x):
    return reference.mean_and_sd(x)[0]


def _deviation_values(case, reference, pending, x):
    return reference.hallucinate(pending).mean_and_sd(x)[1]


def _draw_scale(reference: Reference) -> np.ndarray:
    # Theorem 4: half of delta is for the draw
    return reference.kernelized_width(RKHS_BOUND, NOISE_BOUND, DELTA / 2)


def minima(case: ModelCase) -> tuple[float, ...]:
    """The known minimum of each output; where less is better, the known maximum."""
    return tuple(-1.0 if weight > 0.0 else 6.0 for weight in case.weights or (1.0,))


def _censored_options(case: ModelCase) -> dict[str, Any]:
    return {
        "minimum": minima(case),
        "outcome_bound": OUTCOME_BOUND,
        "rkhs_bound": RKHS_BOUND,
        "noise_bound": NOISE_BOUND,
        "delta": DELTA,
    }


def _censored_values(case, reference, pending, x):
    censored = reference.censor(pending, minima(case))
    bounds = (RKHS_BOUND, NOISE_BOUND, OUTCOME_BOUND)
    return censored.upper_bound(x, censored.censored_width(pending, *bounds, DELTA))


def _censored_draw_scale(reference: Reference) -> np.ndarray:
    nothing = np.zeros((0, 2))
    return reference.censored_width(
        nothing, RKHS_BOUND, NOISE_BOUND, OUTCOME_BOUND, DELTA / 2, "any lambda"
    )


ACQUISITIONS = (
    AcquisitionCase(
        "GP-UCB",
        lambda case, model, **kw: GPUpperConfidenceBound(
            model, num_arms=NUM_ARMS, delta=DELTA, **kw
        ),
        _gp_ucb_values,
    ),
    AcquisitionCase(
        "GP-UCB, constant width",
        lambda case, model, **kw: GPUpperConfidenceBound(model, width=2.0, scale=0.5, **kw),
        _constant_values,
    ),
    AcquisitionCase(
        "IGP-UCB",
        lambda case, model, **kw: ImprovedUpperConfidenceBound(
            model, rkhs_bound=RKHS_BOUND, noise_bound=NOISE_BOUND, delta=DELTA, **kw
        ),
        _igp_values,
    ),
    AcquisitionCase(
        "IGP-UCB, any lambda, scaled",
        lambda case, model, **kw: ImprovedUpperConfidenceBound(
            model,
            rkhs_bound=RKHS_BOUND,
            noise_bound=NOISE_BOUND,
            delta=DELTA,
            any_lambda=True,
            scale=0.5,
            **kw,
        ),
        _any_lambda_values,
    ),
    AcquisitionCase(
        "UCB with a width rule",
        lambda case, model, **kw: WidthUpperConfidenceBound(model, RootOfRound(), **kw),
        _root_values,
    ),
    AcquisitionCase(
        "EI",
        lambda case, model, **kw: LogExpectedImprovement(model, X_observed=case.observed, **kw),
        _improvement_values,
        log=True,
    ),
    AcquisitionCase(
        "AMM",
        lambda case, model, **kw: AMMUpperConfidenceBound(
            model, rkhs_bound=RKHS_BOUND, noise_bound=NOISE_BOUND, delta=DELTA, **kw
        ),
        _mixture_values,
    ),
    AcquisitionCase(
        "DMM",
        lambda case, model, **kw: DMMUpperConfidenceBound(
            model, rkhs_bound=RKHS_BOUND, noise_bound=NOISE_BOUND, delta=DELTA, **kw
        ),
        _ridge_values,
        refuses=("batch",),
    ),
    AcquisitionCase(
        "IRGP-UCB",
        lambda case, model, **kw: RandomizedUpperConfidenceBound(
            model, num_arms=NUM_ARMS, seed=SEED, **kw
        ),
        _randomized_values,
    ),
    AcquisitionCase(
        "PI",
        lambda case, model, **kw: LogProbabilityOfImprovement(
            model, X_observed=case.observed, margin=0.02, **kw
        ),
        _probability_values,
        log=True,
    ),
    AcquisitionCase("mean only", lambda case, model, **kw: MeanOnly(model, **kw), _mean_values),
    AcquisitionCase(
        "variance only", lambda case, model, **kw: VarianceOnly(model, **kw), _deviation_values
    ),
    AcquisitionCase(
        "GP-TS",
        lambda case, model, **kw: GPThompsonSampling(
            model,
            **{
                "rkhs_bound": RKHS_BOUND,
                "noise_bound": NOISE_BOUND,
                "delta": DELTA,
                "seed": SEED,
                **kw,
            },
        ),
        scale_of_draw=_draw_scale,
    ),
    AcquisitionCase(
        "GP-TS on choices",
        lambda case, model, **kw: GPThompsonSampling(
            model,
            **{
                "rkhs_bound": RKHS_BOUND,
                "noise_bound": NOISE_BOUND,
                "delta": DELTA,
                "seed": SEED,
                "choices": case.choices,
                **kw,
            },
        ),
        scale_of_draw=_draw_scale,
        on_choices=True,
    ),
    AcquisitionCase(
        "censored UCB",
        lambda case, model, **kw: CensoredUpperConfidenceBound(
            model, **_censored_options(case), **kw
        ),
        _censored_values,
    ),
    AcquisitionCase(
        "censored TS",
        lambda case, model, **kw: CensoredThompsonSampling(
            model, **{**_censored_options(case), "any_lambda": True, "seed": SEED, **kw}
        ),
        scale_of_draw=_censored_draw_scale,
    ),
)


def evaluate(acquisition: AcquisitionFunction, case: ModelCase, x: Tensor) -> Tensor:
    """Values at the rows of ``x``: ``n``, or ``n x members`` for a batched model."""
    X = x.unsqueeze(-2)
    return acquisition(X.unsqueeze(-3) if case.kind == "batch" else X)


def named(cases: Sequence[Any], name: str) -> Any:
    """The case of that name."""
    (found,) = (case for case in cases if case.name == name)
    return found


# --- optimizers -----------------------------------------------------------------------------

EFFORT = {"num_restarts": 2, "raw_samples": 16}
OPTIONS = {"init_batch_limit": 16, "maxiter": 5}


@dataclass(frozen=True)
class OptimizerCase:
    """One of BoTorch's optimizers.

    Attributes:
        name: Its name in BoTorch.
        run: From acquisition functions (one, or ``q`` where ``takes_list``), ``q`` and the model
            case to candidates (``q x d``) and their values.
        searches: ``"box"``, ``"choices"`` or ``"mixed"``.
        values_together: Whether several candidates come with one value together.
        takes_list: Whether it takes one acquisition function per point.
        value_of_last_only: The other values were computed before later candidates moved.
        restores_pending: Whether BoTorch puts ``X_pending`` back.
    """

    name: str
    run: Callable[[list[AcquisitionFunction], int, ModelCase], tuple[Tensor, Tensor]]
    searches: str
    values_together: bool = False
    takes_list: bool = False
    value_of_last_only: bool = False
    restores_pending: bool = True


def first_ticks(case: ModelCase) -> list[float]:
    """The values that the first dimension may take in a mixed search."""
    return case.choices[:, 0].unique().tolist()[::2]


def _run_optimize_acqf(acqfs, q, case):
    return optimize_acqf(acqfs[0], case.bounds, q=q, sequential=q > 1, options=OPTIONS, **EFFORT)


def _run_together(acqfs, q, case):
    return optimize_acqf(acqfs[0], case.bounds, q=q, options=OPTIONS, **EFFORT)


def _run_discrete(acqfs, q, case):
    return optimize_acqf_discrete(acqfs[0], q=q, choices=case.choices)


def _run_local_search(acqfs, q, case):
    ticks = [column.unique() for column in case.choices.T]
    return optimize_acqf_discrete_local_search(acqfs[0], ticks, q=q, **EFFORT)


def _run_mixed(acqfs, q, case):
    return optimize_acqf_mixed(
        acqfs[0],
        case.bounds,
        q=q,
        fixed_features_list=[{0: value} for value in first_ticks(case)],
        options=OPTIONS,
        **EFFORT,
    )


def _run_mixed_alternating(acqfs, q, case):
    return optimize_acqf_mixed_alternating(
        acqfs[0],
        case.bounds,
        q=q,
        discrete_dims={0: first_ticks(case)},
        options={"maxiter_alternating": 1, "maxiter_discrete": 1, "maxiter_continuous": 3},
        **EFFORT,
    )


def _run_cyclic(acqfs, q, case):
    return optimize_acqf_cyclic(
        acqfs[0], case.bounds, q=q, options=OPTIONS, cyclic_options={"maxiter": 2}, **EFFORT
    )


def _run_list(acqfs, q, case):
    return optimize_acqf_list(acqfs, case.bounds, options=OPTIONS, **EFFORT)


OPTIMIZERS = (
    OptimizerCase("optimize_acqf, sequential=True", _run_optimize_acqf, "box"),
    OptimizerCase("optimize_acqf", _run_together, "box", values_together=True),
    OptimizerCase("optimize_acqf_discrete", _run_discrete, "choices"),
    OptimizerCase("optimize_acqf_discrete_local_search", _run_local_search, "choices", True),
    OptimizerCase("optimize_acqf_mixed", _run_mixed, "mixed", True),
    OptimizerCase("optimize_acqf_mixed_alternating", _run_mixed_alternating, "mixed", True),
    OptimizerCase("optimize_acqf_cyclic", _run_cyclic, "box", value_of_last_only=True),
    OptimizerCase("optimize_acqf_list", _run_list, "box", takes_list=True, restores_pending=False),
)


def can_be_optimized(
    acquisition: AcquisitionCase, model: ModelCase, optimizer: OptimizerCase, q: int
) -> bool:
    """Whether an optimizer, which wants one value a point, can search with it."""
    if model.kind == "batch" or model.kind in acquisition.refuses:
        return False
    return not acquisition.on_choices or optimizer.searches == "choices"

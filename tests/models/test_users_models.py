"""Models of users and of BoTorch beside ``SingleTaskGP``: what is read is the kernel and the data.

References are dense linear algebra in numpy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from acquisition.cases import OwnGP
from acquisition.dense import ridge_bounds
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.fit import fit_gpytorch_mll
from botorch.models import MultiTaskGP, SingleTaskGP
from botorch.models.deterministic import GenericDeterministicModel
from botorch.models.robust_relevance_pursuit_model import RobustRelevancePursuitSingleTaskGP
from botorch.models.transforms.outcome import StratifiedStandardize
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import LinearKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bandits import (
    AMMUpperConfidenceBound,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
)
from botorch_bandits.confidence import UnreadablePriorError
from botorch_bandits.confidence.prior_reading import read_prior

from .textbook import double

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")

B, R, DELTA = 2.0, 0.1, 0.1
NOISE, LENGTHSCALE, OUTPUTSCALE, MEAN = 0.04, 0.4, 1.7, 0.3
X = torch.linspace(0.02, 0.97, 18, dtype=torch.float64).reshape(9, 2)
X[:, 1] = X[:, 1].sin()
Y = (4.0 * X[:, :1]).sin() + X[:, 1:]
POINTS = double([[0.1, 0.7], [0.55, 0.2], [0.9, 0.9]])
PENDING = double([[0.3, 0.5], [0.75, 0.4]])
BOUNDS: dict[str, Any] = {"rkhs_bound": B, "noise_bound": R, "delta": DELTA}


class Doubled(OwnGP):
    """Its kernel is not the one that it shows."""

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), 2.0 * self.covar_module(x))


class Shifted(OwnGP):
    """Its mean is not the one that it shows."""

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x) + x.sum(-1), self.covar_module(x))


def with_parameters(model: Any) -> Any:
    model.covar_module.base_kernel.lengthscale = torch.full((2,), LENGTHSCALE).double()
    model.covar_module.outputscale = torch.tensor(OUTPUTSCALE).double()
    model.mean_module.constant = torch.tensor(MEAN).double()
    model.likelihood.noise = torch.tensor([NOISE]).double()
    return model


def test_a_users_model_is_the_single_task_gp_with_its_modules() -> None:
    own = with_parameters(OwnGP(X, Y))
    theirs = SingleTaskGP(
        X,
        Y,
        covar_module=own.covar_module,
        mean_module=own.mean_module,
        likelihood=own.likelihood,
        outcome_transform=None,
    )
    censored = {"minimum": -2.0, "outcome_bound": 4.0, "X_pending": PENDING}
    for cls, options in (
        (DMMUpperConfidenceBound, {}),
        (CensoredUpperConfidenceBound, censored),
        (GPThompsonSampling, {"choices": POINTS, "seed": 0}),
    ):
        values = [
            cls(model, **BOUNDS, **options)(POINTS.unsqueeze(-2)).detach()
            for model in (own, theirs)
        ]
        assert torch.allclose(*values, rtol=1e-8, atol=1e-8)
    frozen = ImprovedUpperConfidenceBound(
        own.requires_grad_(False),
        **BOUNDS,
        any_lambda=True,
        assume=("fixed prior", "centered bound"),
    )
    assert frozen.guarantee().holds


@pytest.mark.parametrize("cls", [Doubled, Shifted])
def test_a_forward_with_another_prior_is_not_read(cls: Any) -> None:
    reason = (
        rf"{cls.__name__}\.forward computes a different prior than its mean_module and covar_mod"
    )
    with pytest.raises(UnreadablePriorError, match=reason):
        read_prior(cls(X, Y))
    with pytest.raises(ValueError, match=rf"{reason}.*Pass information_gain="):
        ImprovedUpperConfidenceBound(cls(X, Y), **BOUNDS)


@pytest.mark.parametrize("cls", [OwnGP, Doubled])
def test_reading_changes_no_mode(cls: Any) -> None:
    for training in (True, False):
        model = cls(X, Y)
        model.train(training)
        try:
            read_prior(model)
        except UnreadablePriorError:
            assert cls is Doubled
        assert model.training is training


# --- outliers -----------------------------------------------------------------------------------


def test_a_robust_model_has_bounds_of_constant_width() -> None:
    """Its rows have noise of their own, learned from the outcomes, which no width can use."""
    Y_bad = Y.clone()
    Y_bad[4] += 8.0
    model = RobustRelevancePursuitSingleTaskGP(X, Y_bad)
    fit_gpytorch_mll(
        ExactMarginalLogLikelihood(model.likelihood, model), numbers_of_outliers=[0, 1]
    )
    with pytest.raises(UnreadablePriorError, match=r"SparseOutlier.*Pass information_gain= .*or"):
        ImprovedUpperConfidenceBound(model, **BOUNDS)
    bounds = GPUpperConfidenceBound(model, width=2.0)
    for acqf in (bounds, LogExpectedImprovement(model), GPThompsonSampling(model, seed=0)):
        assert bool(acqf(POINTS.unsqueeze(-2)).isfinite().all())
    with pytest.raises(UnsupportedError, match=r"pending points.*X_pending"):
        GPUpperConfidenceBound(model, width=2.0, X_pending=POINTS[:2])


# --- several tasks ------------------------------------------------------------------------------

TASKS = torch.tensor([0, 1, 1, 0, 2, 0, 1, 2, 0]).double().unsqueeze(-1)


def with_tasks(column: int = -1, output: int = 0, Yvar: Tensor | None = None) -> MultiTaskGP:
    parts = [X, TASKS] if column == -1 else [X[:, :1], TASKS, X[:, 1:]]
    torch.manual_seed(3)  # of the covariance of the tasks
    model = MultiTaskGP(
        torch.cat(parts, -1),
        Y + 0.3 * TASKS,
        task_feature=column,
        train_Yvar=Yvar,
        output_tasks=[output],
    )
    model.covar_module.kernels[0].lengthscale = torch.full((2,), LENGTHSCALE).double()
    for j, mean in enumerate(model.mean_module.base_means):
        mean.constant = torch.tensor(0.2 * (j + 1)).double()
    if Yvar is None:
        model.likelihood.noise = torch.tensor([0.04, 0.09, 0.02]).double()
    return model


@pytest.mark.parametrize("column", [-1, 1])
@pytest.mark.parametrize("output", [0, 2])
@pytest.mark.parametrize("known_noise", [False, True])
@pytest.mark.parametrize("num_pending", [0, 2])
def test_one_of_several_tasks_has_the_values_of_the_joint_kernel(
    num_pending: int, known_noise: bool, output: int, column: int
) -> None:
    Yvar = 0.02 + 0.05 * X[:, :1] if known_noise else None
    model = with_tasks(column, output, Yvar)
    pending = PENDING[:num_pending].numpy()
    of_tasks = model.covar_module.kernels[1].covar_matrix.to_dense().detach().numpy()
    lengthscale = model.covar_module.kernels[0].lengthscale.detach().numpy()
    means = np.array([float(each.constant) for each in model.mean_module.base_means])
    raw = (Y + 0.3 * TASKS).numpy().reshape(-1)
    shift, unit = raw.mean(), raw.std(ddof=1)
    y, tasks = (raw - shift) / unit, TASKS.numpy().reshape(-1).astype(int)
    if known_noise:
        levels = Yvar.numpy().reshape(-1) / unit**2
        new_level = levels[tasks == output].mean()
    else:
        levels = model.likelihood.noise.detach().numpy().reshape(-1)[tasks]
        new_level = levels[tasks == output][0]

    def k(a: Any, ta: Any, b: Any, tb: Any) -> Any:
        squared = (((a[:, None, :] - b[None, :, :]) / lengthscale) ** 2).sum(-1)
        return np.exp(-0.5 * squared) * of_tasks[np.ix_(ta, tb)]

    def posterior(rows: Any, t: Any, y: Any, v: Any, points: Any) -> tuple[Any, Any]:
        at = np.full(len(points), output)
        weights = np.linalg.solve(k(rows, t, rows, t) + np.diag(v), k(rows, t, points, at))
        variance = np.diagonal(k(points, at, points, at) - weights.T @ k(rows, t, points, at))
        return means[output] + weights.T @ (y - means[t]), np.sqrt(variance)

    rows = X.numpy()
    d = 1.0 / np.sqrt(levels)
    gain = 0.5 * np.linalg.slogdet(np.eye(9) + d[:, None] * k(rows, tasks, rows, tasks) * d)[1]
    filled = posterior(rows, tasks, y, levels, pending)[0] if num_pending else np.zeros(0)
    center, deviation = posterior(
        np.vstack([rows, pending]),
        np.concatenate([tasks, np.full(num_pending, output)]),
        np.concatenate([y, filled]),
        np.concatenate([levels, np.full(num_pending, new_level)]),
        POINTS.numpy(),
    )
    s2 = of_tasks[output, output]
    s, lam = math.sqrt(s2) * unit, levels.min() / s2
    log = math.log(1.0 / DELTA)
    widths = {
        ImprovedUpperConfidenceBound: B / s + R / s * math.sqrt(2.0 * (gain + 1.0 + log)),
        AMMUpperConfidenceBound: math.sqrt((B / s) ** 2 + 2.0 * (R / s) ** 2 / lam * (gain + log)),
    }
    for cls, width in widths.items():
        acqf = cls(model, X_pending=PENDING[:num_pending], **BOUNDS)
        found = acqf(POINTS.unsqueeze(-2)).detach().numpy()
        expected = shift + unit * (center + width * deviation)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
        guarantee = acqf.guarantee()
        assert not guarantee.holds
        assert any("functions of all tasks together" in each for each in guarantee.assumptions)
    best = posterior(rows, tasks, y, levels, rows[tasks == output])[0].max()
    improvement = LogExpectedImprovement(model)
    assert float(improvement.best_f) == pytest.approx(shift + unit * best, abs=1e-8)
    seen = LogExpectedImprovement(model, incumbent="observed")
    assert float(seen.best_f) == pytest.approx(raw[tasks == output].max(), abs=1e-8)


@pytest.mark.parametrize("training", [True, False])
def test_bounds_of_dmm_on_one_of_several_tasks(training: bool) -> None:
    """The definition over the grid of ridges, on the joint kernel."""
    model = with_tasks(output=1)
    model.train(training)
    data = torch.cat([X, TASKS], -1)
    points = torch.cat([POINTS, torch.ones(3, 1).double()], -1)
    with torch.no_grad():
        joint = model.covar_module(torch.cat([points, data])).to_dense()
        s2 = joint[0, 0]
        K, cross = joint[3:, 3:] / s2, joint[:3, 3:] / s2
        constants = torch.stack([each.constant for each in model.mean_module.base_means])
        y = model.train_targets - constants[TASKS.long().squeeze(-1)]
        base = float(model.likelihood.noise.reshape(-1)[0] / s2)  # of the first row, of task 0
        unit = model.outcome_transform.stdvs.item() * float(s2.sqrt())
        rows = (each.numpy() for each in (K, cross, y / s2.sqrt()))
        lower, upper, _ = map(
            torch.from_numpy, ridge_bounds(*rows, B / unit, R / unit, DELTA, base)
        )
        center = model.outcome_transform.means.item()
        center += model.outcome_transform.stdvs.item() * float(constants[1])
    acqf = DMMUpperConfidenceBound(model, **BOUNDS)
    ends = acqf.bounds(POINTS)
    assert torch.allclose(ends[0].detach(), lower * unit + center, rtol=1e-8, atol=1e-8)
    assert torch.allclose(ends[1].detach(), upper * unit + center, rtol=1e-8, atol=1e-8)
    assert model.training is training


def test_censored_feedback_on_one_of_several_tasks() -> None:
    model = with_tasks(output=1)
    options: dict[str, Any] = {"outcome_bound": 6.0, **BOUNDS}
    lowest = float((Y + 0.3 * TASKS)[TASKS == 1.0].min())
    acqf = CensoredUpperConfidenceBound(
        model, minimum=lowest - 0.01, X_pending=PENDING, tolerance=0.0, **options
    )  # outcomes of other tasks may be lower
    assert bool(acqf(POINTS.unsqueeze(-2)).isfinite().all())
    with pytest.raises(ValueError, match="below the known minimum"):
        CensoredUpperConfidenceBound(model, minimum=lowest + 0.1, tolerance=0.0, **options)


@pytest.mark.parametrize("cls", [CensoredUpperConfidenceBound, CensoredThompsonSampling])
def test_several_output_tasks_say_what_to_do(cls: Any) -> None:
    model = MultiTaskGP(torch.cat([X, TASKS], -1), Y, task_feature=-1)
    weights = ScalarizedPosteriorTransform(torch.tensor([1.0, 0.5, -0.2]).double())
    options: dict[str, Any] = {"minimum": -9.0, "posterior_transform": weights}
    # where an output has a negative weight, its minimum is the largest outcome
    for more, error in (
        ({"width": 1.0, "X_pending": PENDING}, UnsupportedError),
        ({"outcome_bound": 30.0, **BOUNDS}, ValueError),
    ):
        with pytest.raises(error, match=r"tasks.*build it with output_tasks=\[one"):
            cls(model, **options, **more)


def test_what_of_several_tasks_is_not_read_says_why() -> None:
    data = torch.cat([X, TASKS], -1)
    strata = StratifiedStandardize(stratification_idx=-1, all_task_values=torch.arange(3))
    linear = MultiTaskGP(
        data, Y, task_feature=-1, output_tasks=[0], covar_module=ScaleKernel(LinearKernel())
    )
    for model, reason in (
        (
            MultiTaskGP(data, Y, task_feature=-1, output_tasks=[0], outcome_transform=strata),
            "the outcome transform StratifiedStandardize is not affine",
        ),
        (linear, "not a product of a stationary kernel and a task kernel"),
    ):
        with pytest.raises(UnreadablePriorError, match=reason):
            read_prior(model)
        acqf = GPUpperConfidenceBound(model, width=2.0)
        assert bool(acqf(POINTS.unsqueeze(-2)).isfinite().all())


def test_float32_data_are_still_refused() -> None:
    with pytest.raises(TypeError, match=r"torch\.float32 numbers, but float64"):
        ImprovedUpperConfidenceBound(SingleTaskGP(X.float(), Y.float()), **BOUNDS)
    model = SingleTaskGP(X, Y)
    bounds = model.covar_module.raw_lengthscale_constraint
    bounds.lower_bound = bounds.lower_bound.float()  # which some models of GPyTorch have
    ImprovedUpperConfidenceBound(model, **BOUNDS)
    model.covar_module.raw_lengthscale.data = model.covar_module.raw_lengthscale.data.float()
    with pytest.raises(TypeError, match=r"torch\.float32 numbers, but float64"):
        ImprovedUpperConfidenceBound(model, **BOUNDS)


@pytest.mark.parametrize("cls", [CensoredUpperConfidenceBound, CensoredThompsonSampling])
def test_deterministic_models_are_refused_by_name(cls: Any) -> None:
    model = GenericDeterministicModel(lambda X: X.sum(-1, keepdim=True))
    with pytest.raises(UnsupportedError, match=r"GenericDeterministicModel cannot take pseudo-obs"):
        cls(model, minimum=0.0, width=1.0, X_pending=PENDING)
    with pytest.raises(ValueError, match=r"needs X_observed=, or best_f="):
        LogExpectedImprovement(model)

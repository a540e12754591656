"""The closed-form marginal likelihood against GPyTorch's, and its fit against BoTorch's."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import botorch.fit
import numpy as np
import pytest
import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP
from botorch.models.transforms import Normalize, Warp
from gpytorch.constraints import GreaterThan, Interval, LessThan
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import LinearMean
from gpytorch.mlls import (
    ExactMarginalLogLikelihood,
    LeaveOneOutPseudoLikelihood,
    SumMarginalLogLikelihood,
)
from gpytorch.priors import GammaPrior, LogNormalPrior
from linear_operator.utils.errors import NanError, NotPSDError
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from botorch_bandits import BanditGP
from botorch_bandits.models import bandit_gp
from botorch_bandits.models import marginal_likelihood as marginal_likelihood_fit
from botorch_bandits.models.marginal_likelihood import (
    MarginalLikelihood,
    MarginalLikelihoodObjective,
    fit_ordinarily,
    has_closed_form,
    log_marginal_likelihood,
    minimize_objective,
)
from botorch_bandits.models.means import has_learned_constant

from .textbook import double, uniform

BASES: dict[str, Callable[..., Kernel]] = {
    "se": RBFKernel,
    "matern 1/2": lambda **kwargs: MaternKernel(nu=0.5, **kwargs),
    "matern 3/2": lambda **kwargs: MaternKernel(nu=1.5, **kwargs),
    "matern 5/2": lambda **kwargs: MaternKernel(nu=2.5, **kwargs),
}
every_kernel = pytest.mark.parametrize("name", list(BASES))


def build(
    kernel: Kernel, num_rows: int = 30, dim: int = 3, seed: int = 0, **kwargs: Any
) -> ExactMarginalLogLikelihood:
    X = uniform(num_rows, dim, seed=seed)
    generator = torch.Generator().manual_seed(seed + 100)
    errors = torch.randn(num_rows, 1, dtype=torch.float64, generator=generator)
    Y = 1.5 * (5.0 * X[:, :1]).sin() + X.square().sum(-1, keepdim=True) + 0.3 * errors
    arguments: dict[str, Any] = {"noise": 0.1, "learn_hyperparameters": True} | kwargs
    model = BanditGP(X, Y, kernel, **arguments)
    return ExactMarginalLogLikelihood(model.likelihood, model).train()


def autograd(mll: ExactMarginalLogLikelihood) -> tuple[float, np.ndarray]:
    """Return what BoTorch minimizes, and its gradient in the free parameters."""
    model = mll.model
    kernel = model.covar_module
    base = kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel
    parameters = [base.raw_lengthscale]
    parameters += [kernel.raw_outputscale] if isinstance(kernel, ScaleKernel) else []
    parameters += [model.likelihood.noise_covar.raw_noise]
    parameters += (
        [model.mean_module.raw_constant] if has_learned_constant(model.mean_module) else []
    )
    free = [parameter for parameter in parameters if parameter.requires_grad]
    value = -mll(model(*model.train_inputs), model.train_targets)
    gradient = torch.autograd.grad(value, free)
    return value.item(), torch.cat([part.reshape(-1) for part in gradient]).numpy()


def assert_equal(
    objective: MarginalLikelihoodObjective,
    mll: ExactMarginalLogLikelihood,
    seed: int = 0,
    tolerance: float = 1e-8,
    step: float | None = None,
) -> None:
    """Compare objective and gradient at the start, and a step or at random further on."""
    further = np.random.default_rng(seed).normal(size=len(objective.start))
    if step is not None:
        further = np.full(len(objective.start), step)
    for raw in (objective.start, objective.start + further):
        value, gradient = objective(raw)
        objective.write(raw)
        expected, expected_gradient = autograd(mll)
        assert value == pytest.approx(expected, rel=tolerance, abs=tolerance)
        np.testing.assert_allclose(gradient, expected_gradient, rtol=tolerance, atol=tolerance)


def is_left_to_botorch(model: BanditGP) -> bool:
    """Whether ``custom_fit`` calls what fits a model without one."""
    mll, calls = ExactMarginalLogLikelihood(model.likelihood, model), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bandit_gp, "fit_ordinarily", lambda mll, **kwargs: calls.append(mll) or mll)
        patch.setattr(bandit_gp, "fit_marginal_likelihood", lambda mll, **kwargs: mll)
        assert fit_gpytorch_mll(mll) is mll
    return calls == [mll]


def state(model: BanditGP) -> dict[str, Tensor]:
    return copy.deepcopy(dict(model.named_parameters()))


# --- objective and gradient -----------------------------------------------------------------------


@every_kernel
@pytest.mark.parametrize("ard", [None, 3])
@pytest.mark.parametrize("num_rows", [1, 2, 3, 17, 40])
def test_value_and_gradient_are_those_of_autograd(
    name: str, ard: int | None, num_rows: int
) -> None:
    for kernel in (BASES[name](ard_num_dims=ard), ScaleKernel(BASES[name](ard_num_dims=ard))):
        mll = build(kernel, num_rows, seed=num_rows)
        assert has_closed_form(mll.model)
        assert_equal(MarginalLikelihoodObjective(mll), mll)


@every_kernel
@pytest.mark.parametrize("ard", [None, 3])
def test_priors_are_added(name: str, ard: int | None) -> None:
    base = BASES[name](ard_num_dims=ard, lengthscale_prior=GammaPrior(3.0, 6.0))
    mll = build(ScaleKernel(base, outputscale_prior=LogNormalPrior(0.5, 1.0)), num_rows=9)
    mll.likelihood.noise_covar.register_prior(
        "noise_prior", GammaPrior(1.1, 0.05), lambda module: module.noise
    )
    assert_equal(MarginalLikelihoodObjective(mll), mll)


def test_a_prior_on_a_frozen_parameter_only_shifts_the_value() -> None:
    mll = build(ScaleKernel(RBFKernel(lengthscale_prior=GammaPrior(3.0, 6.0))))
    mll.model.covar_module.base_kernel.raw_lengthscale.requires_grad_(False)
    assert_equal(MarginalLikelihoodObjective(mll), mll)


@pytest.mark.parametrize(
    "constraint",
    [
        GreaterThan(0.1),
        GreaterThan(0.1, transform=torch.exp, inv_transform=torch.log),
        GreaterThan(0.1, transform=None, initial_value=0.7),
        Interval(0.05, 3.0),
        LessThan(4.0),
    ],
)
@every_kernel
def test_every_constraint_is_kept(name: str, constraint: Interval) -> None:
    kernel = ScaleKernel(BASES[name](ard_num_dims=3, lengthscale_constraint=constraint))
    mll = build(kernel, input_transform=None)
    assert_equal(MarginalLikelihoodObjective(mll), mll, step=0.2)


@every_kernel
def test_gradients_are_slopes(name: str) -> None:
    mll = build(ScaleKernel(BASES[name](ard_num_dims=3)), num_rows=25)
    objective = MarginalLikelihoodObjective(mll)
    _, gradient = objective(objective.start)
    for i in range(len(gradient)):
        step = np.zeros_like(gradient)
        step[i] = 1e-5
        above, below = objective(objective.start + step)[0], objective(objective.start - step)[0]
        assert gradient[i] == pytest.approx((above - below) / 2e-5, abs=1e-8)


@every_kernel
@pytest.mark.parametrize("ard", [None, 2])
def test_repeated_rows_and_far_offsets_do_no_harm(name: str, ard: int | None) -> None:
    inputs = uniform(12, 2, seed=0)
    inputs[6:] = inputs[:6]
    y = inputs.sum(-1).sin() + 0.1 * torch.arange(12)
    smoothness = {"se": math.inf, "matern 1/2": 0.5, "matern 3/2": 1.5}.get(name, 2.5)
    lengthscale = np.full(ard or 1, 0.3)

    def evaluate(X: Tensor, lengthscale: np.ndarray) -> Any:
        return MarginalLikelihood(X, y, smoothness, len(lengthscale))(lengthscale, 2.0, 0.1)

    near, far = evaluate(inputs, lengthscale), evaluate(inputs + 1000.0, lengthscale)
    assert near.value == pytest.approx(far.value, abs=1e-8)
    np.testing.assert_allclose(near.lengthscale, far.lengthscale, atol=1e-7)
    for i in range(len(lengthscale)):
        step = np.zeros_like(lengthscale)
        step[i] = 1e-5
        above, below = (evaluate(inputs, lengthscale + s).value for s in (step, -step))
        assert near.lengthscale[i] == pytest.approx((above - below) / 2e-5, abs=1e-6)


def test_inputs_are_transformed_as_in_training() -> None:
    bounds = double([[-1.0] * 3, [3.0] * 3])
    for transform in (Normalize(3, bounds=bounds), Normalize(3)):
        transform.transform_on_train = True
        mll = build(ScaleKernel(MaternKernel(nu=2.5)), input_transform=transform)
        mll.eval()
        mll.train()
        assert_equal(MarginalLikelihoodObjective(mll), mll)


def test_jitter_is_added_as_gpytorch_adds_it() -> None:
    # 60 points in a smooth kernel with hardly any noise: singular in float64
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale = double(3.0)
    kernel.outputscale = double(1e6)
    mll = build(kernel, num_rows=60, dim=1, noise=1e-3)
    mll.likelihood.noise = 2e-10  # a recipe with so little is refused
    objective = MarginalLikelihoodObjective(mll)
    with pytest.warns(NumericalWarning, match="added jitter") as found:
        value, gradient = objective(objective.start)
    with pytest.warns(NumericalWarning, match="added jitter") as expected:
        theirs, their_gradient = autograd(mll)
    assert [str(w.message) for w in found] == [str(w.message) for w in expected]
    # the matrix is so ill conditioned that two roundings of it differ by more
    assert value == pytest.approx(theirs, rel=0.1)
    assert np.linalg.norm(gradient - their_gradient) < 0.1 * np.linalg.norm(their_gradient)


def test_jitter_enters_the_gradient() -> None:
    # two equal rows without noise but for the jitter
    X = torch.zeros(2, 1, dtype=torch.float64)
    likelihood = MarginalLikelihood(X, double([1.0, 1.0]), math.inf, 1)
    with pytest.warns(NumericalWarning, match=r"jitter of 1\.0e-08"):
        evidence = likelihood(np.ones(1), 1.0, 0.0)
    # eigenvalues 2 + 1e-8 and 1e-8; the outcomes lie along the first eigenvector
    eigenvalues = double([2.0 + 1e-8, 1e-8])
    expected = -0.5 * (2.0 / eigenvalues[0] + eigenvalues.log().sum()) - math.log(2.0 * math.pi)
    assert evidence.value == pytest.approx(expected.item(), abs=1e-6)
    slope = 0.5 * (4.0 / eigenvalues[0] ** 2 - 2.0 / eigenvalues[0])
    assert evidence.outputscale == pytest.approx(slope.item(), abs=1e-6)


def test_matrices_without_a_factor_are_errors() -> None:
    y = double([1.0, 2.0])
    likelihood = MarginalLikelihood(double([[0.0], [1.0]]), y, math.inf, 1)
    with (
        pytest.warns(NumericalWarning, match="added jitter"),
        pytest.raises(NotPSDError, match=r"even with 1\.0e-03"),
    ):
        likelihood(np.ones(1), 1.0, -5.0)
    with pytest.raises(NanError, match="not finite"):
        likelihood(np.ones(1), math.nan, 1.0)
    mll = build(ScaleKernel(RBFKernel()))
    objective = MarginalLikelihoodObjective(mll)
    value, gradient = objective(np.array([-1e4, 0.0, 0.0]))  # the lengthscale underflows
    assert math.isnan(value)
    assert np.isnan(gradient).all()


def test_an_output_scale_of_nothing_is_no_error() -> None:
    for name in BASES:
        objective = MarginalLikelihoodObjective(build(ScaleKernel(BASES[name]())))
        value, gradient = objective(np.array([0.0, -1e4, 0.0]))
        assert math.isfinite(value)
        assert np.isfinite(gradient).all()


# --- rows that are means --------------------------------------------------------------------------


@every_kernel
@pytest.mark.parametrize("ard", [None, 2])
@pytest.mark.parametrize("prior", [False, True])
def test_means_of_repeats_have_the_likelihood_of_all_observations(
    name: str, ard: int | None, prior: bool
) -> None:
    generator = torch.Generator().manual_seed(3)
    points = uniform(9, 2, seed=1)
    repeats = torch.tensor([1, 4, 2, 1, 7, 3, 1, 1, 5])
    raw_X = points.repeat_interleave(repeats, 0)
    raw_Y = raw_X.sum(-1).sin() + torch.randn(25, dtype=torch.float64, generator=generator)
    groups = raw_Y.split(repeats.tolist())
    means = torch.stack([group.mean() for group in groups]).unsqueeze(-1)
    within = sum(float((group - group.mean()).square().sum()) for group in groups)
    mlls = []
    for X, Y in ((raw_X, raw_Y.unsqueeze(-1)), (points, means)):
        kernel = ScaleKernel(
            BASES[name](ard_num_dims=ard, lengthscale_prior=GammaPrior(3.0, 6.0) if prior else None)
        )
        model = BanditGP(X, Y, kernel, 0.4, learn_hyperparameters=True)
        mlls.append(ExactMarginalLogLikelihood(model.likelihood, model).train())
    expanded = MarginalLikelihoodObjective(mlls[0])
    collapsed = MarginalLikelihoodObjective(mlls[1], repeats.double(), within)
    rng = np.random.default_rng(0)
    for raw in (expanded.start, *rng.normal(size=(3, len(expanded.start)))):
        value, gradient = collapsed(raw)
        expected, expected_gradient = expanded(raw)
        assert value == pytest.approx(expected, abs=1e-8)
        np.testing.assert_allclose(gradient, expected_gradient, atol=1e-8)
    assert minimize_objective(expanded, None, None)
    assert minimize_objective(collapsed, None, None)
    found, expected = (o(o.start)[0] for o in (collapsed, expanded))
    assert found == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"repeats": torch.ones(3).double()}, ValueError, "repeats must be a vector of length 4"),
        ({"repeats": double([1.0, 0.0, 1.0, 1.0])}, ValueError, r"repeats\[1\] is 0.0"),
        ({"repeats": double([1.0, 1.5, 1.0, 1.0])}, ValueError, r"repeats\[1\] is 1.5.*whole"),
        ({"within_sum_of_squares": 1.0}, ValueError, "is 1.0, but repeats is None"),
        ({"within_sum_of_squares": -1.0}, ValueError, "within_sum_of_squares is -1.0"),
    ],
)
def test_malformed_repeats_are_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    mll = build(RBFKernel(), num_rows=4)
    with pytest.raises(error, match=message):
        MarginalLikelihoodObjective(mll, **arguments)


# --- fitting --------------------------------------------------------------------------------------


@every_kernel
@pytest.mark.parametrize("num_rows", [8, 25, 40])
@pytest.mark.parametrize("prior", [False, True])
def test_a_fit_is_as_good_as_the_ordinary_one(name: str, num_rows: int, prior: bool) -> None:
    values = []
    for fit in (fit_gpytorch_mll, fit_ordinarily):
        base = BASES[name](
            ard_num_dims=2, lengthscale_prior=GammaPrior(3.0, 6.0) if prior else None
        )
        mll = build(ScaleKernel(base), num_rows, dim=2, seed=num_rows)
        start = log_marginal_likelihood(mll)
        fit(mll)
        assert not mll.training
        assert not mll.model.training
        values.append(log_marginal_likelihood(mll))
    assert values[0] >= values[1] - 1e-5
    assert values[0] > start


def test_the_closed_form_is_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(botorch.fit, "_fit_fallback", None)
    mll = build(ScaleKernel(MaternKernel(nu=2.5)))
    assert fit_gpytorch_mll(mll) is mll


def test_predictions_are_made_with_what_was_learned() -> None:
    mll = build(ScaleKernel(RBFKernel()), input_transform=Normalize(3))
    points = uniform(4, 3, seed=9)
    model = mll.eval().model
    before = model.posterior(points).mean
    fit_gpytorch_mll(mll)
    found = model.posterior(points)
    twin = BanditGP(
        model._original_train_inputs,
        model.train_targets.unsqueeze(-1),
        model.covar_module,
        model.likelihood.noise.detach().squeeze(-1),
        input_transform=model.input_transform,
    ).posterior(points)
    assert torch.allclose(found.mean, twin.mean, rtol=0, atol=1e-9)
    assert torch.allclose(found.variance, twin.variance, rtol=0, atol=1e-9)
    assert not torch.allclose(found.mean, before, atol=1e-3)


@pytest.mark.parametrize("frozen", ["lengthscale", "outputscale", "noise"])
def test_frozen_parameters_stay(frozen: str) -> None:
    mll = build(ScaleKernel(MaternKernel(nu=1.5)))
    for name, parameter in mll.model.named_parameters():
        parameter.requires_grad_(not name.endswith(f"raw_{frozen}"))
    before = state(mll.model)
    assert_equal(MarginalLikelihoodObjective(mll), mll)
    mll.model.load_state_dict(before, strict=False)
    fit_gpytorch_mll(mll)
    for name, parameter in mll.model.named_parameters():
        assert torch.equal(parameter, before[name]) == name.endswith(f"raw_{frozen}")


def test_bounds_hold() -> None:
    base = RBFKernel(lengthscale_constraint=GreaterThan(2.0, transform=None, initial_value=2.5))
    mlls = [build(ScaleKernel(copy.deepcopy(base))) for _ in range(2)]
    fit_gpytorch_mll(mlls[0])
    fit_ordinarily(mlls[1])
    found, expected = (mll.model.covar_module.base_kernel.lengthscale.item() for mll in mlls)
    assert found == pytest.approx(2.0, abs=1e-7)
    assert found == pytest.approx(expected, abs=1e-7)


def test_a_warm_start_takes_fewer_evaluations() -> None:
    cold = build(ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=3)), num_rows=40)
    objective = MarginalLikelihoodObjective(cold)
    assert minimize_objective(objective, None, None)
    again = MarginalLikelihoodObjective(cold)
    assert minimize_objective(again, None, None)
    assert again.num_evaluations < 0.5 * objective.num_evaluations


def test_lists_of_models_are_fitted_one_by_one() -> None:
    alone, *both = [build(ScaleKernel(RBFKernel())) for _ in range(3)]
    together = ModelListGP(*(mll.model for mll in both))
    fit_gpytorch_mll(SumMarginalLogLikelihood(together.likelihood, together))
    fit_gpytorch_mll(alone)
    for mll in both:
        assert all(torch.equal(p, state(alone.model)[n]) for n, p in mll.model.named_parameters())


def test_limits_are_honored() -> None:
    for settings in ({"options": {"maxiter": 1}}, {"timeout_sec": 0.0}):
        mlls = [build(ScaleKernel(RBFKernel())) for _ in range(2)]
        fit_gpytorch_mll(mlls[0], optimizer_kwargs=settings)
        fit_ordinarily(mlls[1], optimizer_kwargs=settings)
        values = [log_marginal_likelihood(mll) for mll in mlls]
        assert values[0] == pytest.approx(values[1], abs=1e-8)
        fit_gpytorch_mll(mlls[0])
        assert log_marginal_likelihood(mlls[0]) > values[0] + 1e-3


# --- what BoTorch does in its ordinary way --------------------------------------------------------


def warped(dim: int) -> Warp:
    return Warp(d=dim, indices=list(range(dim)), batch_shape=torch.Size())


@pytest.mark.parametrize(
    ("kernel", "changes"),
    [
        (LinearKernel(), {}),
        (RBFKernel() + MaternKernel(), {}),
        (ScaleKernel(ScaleKernel(RBFKernel())), {}),
        (RBFKernel(active_dims=(0,)), {}),
        (RBFKernel(), {"input_transform": warped(3)}),
    ],
)
def test_other_models_are_fitted_by_botorch(kernel: Kernel, changes: dict[str, Any]) -> None:
    mll = build(kernel, num_rows=8, **changes)
    assert not has_closed_form(mll.model)
    assert is_left_to_botorch(mll.model)
    before = log_marginal_likelihood(mll)
    fit_gpytorch_mll(mll)
    assert log_marginal_likelihood(mll) > before


def test_batches_outputs_and_other_parts_have_no_closed_form() -> None:
    X, Y = uniform(2, 5, 2, seed=0), uniform(2, 5, 2, seed=1)
    for inputs, outcomes in ((X, Y[..., :1]), (X[0], Y[0])):
        model = BanditGP(inputs, outcomes, RBFKernel(), learn_hyperparameters=True)
        assert is_left_to_botorch(model)
    model = BanditGP(X[0], Y[0, :, :1], RBFKernel(), learn_hyperparameters=True)
    model.mean_module = LinearMean(2).double()
    assert is_left_to_botorch(model)
    model = BanditGP(X[0], Y[0, :, :1], RBFKernel(), learn_hyperparameters=True)
    assert not is_left_to_botorch(model)
    model.requires_grad_(False)
    assert is_left_to_botorch(model)


@pytest.mark.parametrize(
    "special",
    [
        {"optimizer": botorch.fit.fit_gpytorch_mll_scipy},
        {"pick_best_of_all_attempts": True, "max_attempts": 1},
        {"optimizer_kwargs": {"method": "SLSQP"}},
        {"optimizer_kwargs": {"callback": lambda parameters, result: None}},
    ],
)
def test_special_wishes_are_left_to_botorch(
    special: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marginal_likelihood_fit, "MarginalLikelihoodObjective", None)
    mll = build(ScaleKernel(RBFKernel()), num_rows=10)
    assert fit_gpytorch_mll(mll, **special) is mll
    assert not is_left_to_botorch(mll.model)


def test_another_objective_is_left_to_botorch() -> None:
    models = [build(ScaleKernel(RBFKernel()), num_rows=10).model for _ in range(2)]
    for model, fit in zip(models, (fit_gpytorch_mll, fit_ordinarily), strict=True):
        fit(LeaveOneOutPseudoLikelihood(model.likelihood, model))
    assert all(torch.equal(p, state(models[1])[n]) for n, p in models[0].named_parameters())


@pytest.mark.parametrize("failure", ["error", "nan"])
def test_a_failed_attempt_is_left_to_botorch_from_the_same_start(
    failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = MarginalLikelihood.__call__
    calls = []

    def failing(self: Any, *args: Any) -> Any:
        calls.append(args)
        evidence = plain(self, *args)
        if len(calls) > 3 and failure == "error":
            raise NotPSDError("no factor")
        if len(calls) > 3:
            object.__setattr__(evidence, "value", math.nan)
        return evidence

    monkeypatch.setattr(MarginalLikelihood, "__call__", failing)
    mlls = [build(ScaleKernel(RBFKernel())) for _ in range(2)]
    fit_gpytorch_mll(mlls[0])
    fit_ordinarily(mlls[1])
    assert len(calls) > 3
    assert all(
        torch.equal(parameter, state(mlls[1].model)[name])
        for name, parameter in mlls[0].model.named_parameters()
    )
    assert not is_left_to_botorch(mlls[0].model)


def test_a_failure_of_both_is_botorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    mll = build(ScaleKernel(RBFKernel()))

    def failing(*args: Any, **kwargs: Any) -> Any:
        raise NotPSDError("no factor")

    monkeypatch.setattr(MarginalLikelihood, "__call__", failing)
    monkeypatch.setattr(BanditGP, "forward", failing)
    monkeypatch.setattr(marginal_likelihood_fit, "has_closed_form", lambda model: True)
    with pytest.raises(ModelFittingError):
        marginal_likelihood_fit.fit_marginal_likelihood(mll)
    assert log_marginal_likelihood(mll) == -math.inf


def test_without_a_closed_form_the_likelihood_is_gpytorchs() -> None:
    mll = build(RBFKernel(active_dims=(0, 1)))
    with torch.no_grad():
        expected = mll(mll.model(*mll.model.train_inputs), mll.model.train_targets).item()
    assert log_marginal_likelihood(mll) == expected

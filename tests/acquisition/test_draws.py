"""One draw of a posterior: its law on choices and on boxes, for every kind of model and kernel."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models import (
    MixedSingleTaskGP,
    ModelListGP,
    MultiTaskGP,
    SingleTaskGP,
    SingleTaskMultiFidelityGP,
)
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms.input import Warp
from botorch.optim import optimize_acqf
from botorch.utils.testing import MockModel, MockPosterior
from gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from scipy.stats import chi2
from torch import Tensor

from botorch_bandits import (
    BanditGP,
    Categorical,
    Exponential,
    Float,
    GPThompsonSampling,
    LagrangianThompsonSampling,
    Space,
)
from botorch_bandits.acquisition import draws
from botorch_bandits.core.kernels import TimeDecayKernel
from botorch_bandits.core.priors import root_of
from botorch_bandits.models.fitted import LearnedGP
from botorch_bandits.penalties import Linear
from botorch_bandits.random_streams import generator

from .cases import UNIT_BOX, bandit_gp, double, rows, uniform

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")

# Seeds are fixed, so a test passes or fails for good; a right sampler fails at this rate when
# the seeds change.
FALSE_ALARM = 1e-4

X = uniform(30, 3, seed=0)
Y = (5.0 * X).sin().sum(-1, keepdim=True) + 2.0
POINTS = uniform(6, 3, seed=1)
CHOICES = uniform(12, 2, seed=3)


def check_law(sample: Tensor, mean: Tensor, covariance: Tensor) -> None:
    """Two statistics are chi-squared if the rows have this mean and this covariance.

    Whitened rows have independent standard normal entries: ``num * |mean|**2`` has one degree of
    freedom an entry, and so has ``num`` times each squared entry of (second moment - identity),
    after division by its variance (2 on the diagonal, 1 off it).
    """
    num, n = sample.shape
    root = np.linalg.cholesky(covariance.detach().numpy())
    white = np.linalg.solve(root, (sample - mean).detach().numpy().T).T
    assert num * (white.mean(0) ** 2).sum() < chi2.isf(FALSE_ALARM, n)
    error = white.T @ white / num - np.eye(n)
    entries = (np.diag(error) ** 2).sum() / 2.0 + (np.triu(error, 1) ** 2).sum()
    assert num * entries < chi2.isf(FALSE_ALARM, n * (n + 1) / 2)


# --- on choices -----------------------------------------------------------------------------


class Own(SingleTaskGP):
    """Its posterior may be another one."""

    def posterior(self, X: Tensor, *args: Any, **options: Any) -> Any:
        return super().posterior(X, *args, **options)


def plain(outcome_transform: Any = None, **more: Any) -> SingleTaskGP:
    X, Y = rows(8)
    model = SingleTaskGP(X, Y[:, :1], outcome_transform=outcome_transform, **more)
    model.likelihood.noise = double(0.05)
    model.mean_module.constant = double(0.7)
    return model.eval()


def close_pairs() -> SingleTaskGP:
    return plain(covar_module=RBFKernel().double())


ROWS = rows(8)[0], rows(8)[1][:, :1]
ROUNDED = torch.cat([ROWS[0][:, :1], ROWS[0][:, 1:].round()], dim=-1)
BOUNDS = double([[0.0, -1.0], [1.0, 2.0]])
ON_CHOICES: dict[str, tuple[Any, Tensor]] = {
    "plain": (plain, CHOICES),
    "Matern, standardized": (
        lambda: plain(Standardize(1), covar_module=MaternKernel(nu=2.5).double()),
        CHOICES,
    ),
    "normalized": (
        lambda: plain(Standardize(1), input_transform=Normalize(2, bounds=BOUNDS)),
        CHOICES,
    ),
    "ours": (bandit_gp, CHOICES),
    "without rows": (lambda: bandit_gp(0), CHOICES),
    "warped": (lambda: plain(input_transform=Warp(2, [0])), CHOICES),
    "no closed form": (lambda: plain(covar_module=RBFKernel() + LinearKernel()), CHOICES),
    "variances of rows": (lambda: SingleTaskGP(*ROWS, 0.1 + ROWS[0][:, :1]).eval(), CHOICES),
    "a class of one's own": (lambda: Own(*ROWS).eval(), CHOICES),
    "categories": (lambda: MixedSingleTaskGP(ROUNDED, ROWS[1], cat_dims=[1]), CHOICES.round()[:2]),
    "fewer choices than rows": (plain, CHOICES[:5]),
    "training mode": (lambda: plain().train(), CHOICES),
    "close pairs, singular": (close_pairs, torch.cat([CHOICES, CHOICES + 1e-13])),
}


@pytest.mark.parametrize("name", ON_CHOICES)
def test_a_draw_on_choices_is_a_root_of_the_posterior_times_normal_numbers(name: str) -> None:
    build, choices = ON_CHOICES[name]
    choices = choices.unique(dim=0)
    acqf = GPThompsonSampling(build(), choices=choices, width=2.0, seed=5)
    found = acqf(choices.unsqueeze(-2)).detach()
    posterior = build().posterior(choices)
    root = root_of(posterior.distribution.covariance_matrix.detach())
    normal = torch.randn(
        len(choices), dtype=torch.float64, generator=generator(5, 0, "thompson arms")
    )
    expected = posterior.mean.squeeze(-1).detach() + 2.0 * root @ normal[: root.shape[-1]]
    if "singular" in name:  # another root of the same covariance
        assert torch.allclose(found[0::2], found[1::2], rtol=0.0, atol=1e-4)
        assert root.shape[-1] < len(choices)
        # it lies in the span of the covariance, and is not the mean
        eigenvalues, vectors = torch.linalg.eigh(posterior.distribution.covariance_matrix.detach())
        along = vectors.mT @ (found - posterior.mean.squeeze(-1).detach())
        assert float(along[eigenvalues < 1e-9].abs().max()) < 1e-3
        assert float(along.abs().max()) > 1e-2
    else:
        assert torch.allclose(found, expected, rtol=0.0, atol=1e-6)


def test_only_the_choices_can_be_evaluated() -> None:
    acqf = GPThompsonSampling(bandit_gp(), width=1.0, choices=CHOICES, seed=0)
    with pytest.raises(ValueError, match="one of the 12"):
        acqf(CHOICES[:1] + 1e-12)
    with pytest.raises(ValueError, match=r"Take rows of Arms\.choices"):
        optimize_acqf(acqf, UNIT_BOX, q=1, num_restarts=2, raw_samples=4)
    values = acqf(CHOICES.flip(0).unsqueeze(-2))
    assert torch.equal(values.flip(0), acqf(CHOICES.unsqueeze(-2)))


def test_an_exact_draw_needs_a_gaussian_posterior() -> None:
    posterior = MockPosterior(mean=torch.zeros(6, 1).double(), variance=torch.ones(6, 1).double())
    acqf = GPThompsonSampling(MockModel(posterior), width=1.0, choices=CHOICES)
    with pytest.raises(UnsupportedError, match="Gaussian posterior, got MockPosterior"):
        acqf(CHOICES.unsqueeze(-2))


# --- on boxes: waves and kernel values --------------------------------------------------------

PRODUCT = ScaleKernel(MaternKernel(nu=1.5, active_dims=[0])) * RBFKernel(active_dims=[1, 2])
KERNELS: dict[str, Any] = {
    "Matern 5/2": ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=3)),
    "Matern 1/2": MaternKernel(nu=0.5),
    "squared exponential": RBFKernel(),
    "some columns": ScaleKernel(MaternKernel(nu=1.5, active_dims=[2, 0])),
    "product": PRODUCT,
    "sum": PRODUCT + ScaleKernel(MaternKernel(nu=2.5, active_dims=[1])),
    "time": TimeDecayKernel(MaternKernel(nu=2.5), rate=0.2),
}
KERNELS["Matern 5/2"].base_kernel.lengthscale = torch.tensor([[0.3, 0.5, 0.8]])
KERNELS["Matern 5/2"].outputscale = 1.7
WEIGHTS = torch.linspace(0.2, 2.0, len(X), dtype=torch.float64)


def learned(kernel: Any, cls: Any) -> Any:
    bounds = double([[-1.0, 0.0, 0.2], [2.0, 1.5, 1.0]])
    transforms = {"input_transform": Normalize(3, bounds=bounds)}
    return cls(X, Y, covar_module=kernel, outcome_transform=Standardize(1), **transforms).eval()


ON_BOX: dict[str, Any] = {
    "given": lambda k: BanditGP(X, Y, kernel=k, noise=0.05, prior_mean=0.5),
    "weights": lambda k: BanditGP(X, Y, kernel=k, noise=0.05, repeats=WEIGHTS),
    "learned": lambda k: learned(k, LearnedGP),
    "stock": lambda k: learned(k, SingleTaskGP),
}


def on_box(which: str, name: str) -> Any:
    return ON_BOX[which](copy.deepcopy(KERNELS[name]).double())


@pytest.mark.parametrize("which", ON_BOX)
@pytest.mark.parametrize("name", KERNELS)
def test_a_scaled_draw_deviates_from_the_mean_by_its_width(name: str, which: str) -> None:
    model = on_box(which, name)
    points = POINTS.clone().requires_grad_()
    plain, scaled = (
        sign * GPThompsonSampling(model, width=w, maximize=sign > 0.0, seed=5)(points.unsqueeze(-2))
        for w, sign in ((1.0, 1.0), (1.7, -1.0))
    )
    mean = model.posterior(points).mean.squeeze(-1)
    expected = mean + 1.7 * (plain - mean)
    assert torch.allclose(scaled, expected, rtol=0.0, atol=1e-9)
    slopes = [torch.autograd.grad(each.sum(), points)[0] for each in (scaled, expected)]
    assert torch.allclose(*slopes, rtol=0.0, atol=1e-8)
    assert torch.autograd.gradcheck(GPThompsonSampling(model, seed=5), (points[:2].unsqueeze(-2),))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("which", ["given", "stock"])
def test_draws_on_boxes_have_the_joint_law_of_the_posterior(name: str, which: str) -> None:
    model = on_box(which, name)
    posterior = model.posterior(POINTS)
    sample = torch.stack(
        [
            draws.draw_on_box(model, generator(seed, 0, "law"))(POINTS, False)[0].squeeze(-1)
            for seed in range(250)
        ]
    )
    covariance = posterior.distribution.covariance_matrix
    check_law(sample, posterior.mean.squeeze(-1), covariance)


def test_draws_pass_through_the_data_where_there_is_no_noise() -> None:
    space = Space({"x": Float(0.0, 1.0), "kind": Categorical(["a", "b", "c"])})
    X = double([[x, kind] for x in (0.1, 0.5, 0.9) for kind in (0.0, 1.0, 2.0)])
    Y = (X[:, :1] * 3.0).sin() + double([0.0, 2.0, -1.0])[X[:, 1].long()].unsqueeze(-1)
    models = [
        SingleTaskGP(
            X,
            sign * Y,
            torch.full_like(Y, 1e-6),
            covar_module=RBFKernel(ard_num_dims=4),
            input_transform=space.input_transform(),
        )
        for sign in (1.0, -1.0)
    ]
    acqf = GPThompsonSampling(models[0], width=3.0, seed=0)
    assert torch.allclose(acqf(X.unsqueeze(-2)), Y[:, 0], atol=0.05)
    both = LagrangianThompsonSampling(ModelListGP(*models), multipliers=[1.0], seed=0)
    assert torch.allclose(both.draw(X.unsqueeze(-2)), torch.cat([Y, -Y], dim=-1), atol=0.05)


# --- on boxes: several outputs ----------------------------------------------------------------

OUTPUTS = torch.cat([Y, X.cos().prod(-1, keepdim=True), X[:, :1] - X[:, 1:2]], dim=-1)


def kernel_each() -> ScaleKernel:
    shape = torch.Size([3])
    kernel = ScaleKernel(RBFKernel(batch_shape=shape), batch_shape=shape).double()
    kernel.base_kernel.lengthscale = double([0.2, 0.4, 0.8]).view(-1, 1, 1)
    kernel.outputscale = double([1.0, 2.0, 0.5])
    return kernel


SEVERAL = {
    "one prior": BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.05, lengthscale=0.3),
    "a kernel each": BanditGP.with_kernel(kernel_each(), noise=0.05, prior_mean=1.5),
    "product": BanditGP.with_kernel(copy.deepcopy(PRODUCT).double(), noise=0.05),
}


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("penalty", [Linear(), Exponential(0.5)], ids=["linear", "exponential"])
def test_outputs_are_drawn_independently_and_scaled_each(name: str, penalty: Any) -> None:
    widths = (0.5, 1.5, 2.0)
    options = {"multipliers": double([0.7, 0.0]), "penalty": penalty, "maximize": False, "seed": 5}
    points, drawn = POINTS[:4].unsqueeze(-2), []
    for model in (
        SEVERAL[name](X, OUTPUTS),
        SEVERAL[name].builder(seed=0)(X, OUTPUTS),
    ):
        plain, scaled = (
            LagrangianThompsonSampling(model, width=w, **options) for w in (1.0, widths)
        )
        mean = model.posterior(points).mean.squeeze(-2)
        values = mean + double(widths) * (plain.draw(points) - mean)
        g = values[:, 1:]
        excess = g if penalty.is_linear else (0.5 * g.clamp_min(0.0)).exp() - 1.0
        expected = -values[:, 0] - (options["multipliers"] * excess).sum(-1)
        assert torch.allclose(scaled(points), expected, rtol=0.0, atol=1e-8)
        drawn.append(plain.draw(points))
    # one model of all outputs and a list of models are the same
    assert torch.allclose(*drawn, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("on_choices", [False, True], ids=["box", "choices"])
def test_outputs_have_their_joint_law(on_choices: bool) -> None:
    model, points = SEVERAL["a kernel each"](X, OUTPUTS), POINTS[:3]
    posterior = model.posterior(points)
    covariance = posterior.distribution.covariance_matrix.detach()
    order = torch.arange(9).reshape(3, 3).T.reshape(-1)
    if not posterior.distribution._interleaved:
        covariance = covariance[order][:, order]
    acqf = LagrangianThompsonSampling(
        model, multipliers=[0.5, 0.5], width=1.0, seed=1, choices=points if on_choices else None
    )
    sample = []
    for _ in range(200):
        sample.append(acqf.draw(points.unsqueeze(-2)).detach().reshape(-1))
        acqf.set_X_pending(None)
    check_law(torch.stack(sample), posterior.mean.reshape(-1), covariance)


# --- on boxes: other kernels ---------------------------------------------------------------------

UNUSUAL = {
    "product": lambda X, Y: SingleTaskGP(X, Y, covar_module=PeriodicKernel() * RBFKernel()),
    "linear": lambda X, Y: SingleTaskGP(X, Y, covar_module=LinearKernel()),
    "spectral": lambda X, Y: SingleTaskGP(
        X, Y, covar_module=SpectralMixtureKernel(num_mixtures=2, ard_num_dims=2)
    ),
    "fidelities": lambda X, Y: SingleTaskMultiFidelityGP(X, Y, data_fidelities=[1]),
    "categories": lambda X, Y: MixedSingleTaskGP(X.round(decimals=0), Y, cat_dims=[1]),
    "several tasks": lambda X, Y: MultiTaskGP(
        torch.cat([X, torch.arange(len(X)).remainder(2).to(X).unsqueeze(-1)], dim=-1),
        Y,
        task_feature=-1,
        output_tasks=[0],
    ),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_kernels_without_random_features_are_drawn_on_choices_only(name: str) -> None:
    X, Y = rows()
    model = UNUSUAL[name](X, Y[:, :1])
    with pytest.raises(UnsupportedError, match=r"no random features, .*Pass choices=, .* Arms"):
        GPThompsonSampling(model, seed=0)(CHOICES.unsqueeze(-2))
    choices = CHOICES.round()[:2] if name == "categories" else CHOICES
    assert (
        GPThompsonSampling(model, seed=0, choices=choices)(choices.unsqueeze(-2)).isfinite().all()
    )

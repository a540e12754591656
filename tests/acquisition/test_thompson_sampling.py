"""Thompson sampling: what is drawn, when it is drawn again, and what it promises."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import (
    MixedSingleTaskGP,
    ModelListGP,
    MultiTaskGP,
    SingleTaskGP,
    SingleTaskMultiFidelityGP,
)
from botorch.models.map_saas import EnsembleMapSaasSingleTaskGP
from botorch.optim import optimize_acqf, optimize_acqf_discrete, optimize_acqf_mixed
from botorch.sampling.pathwise import get_matheron_path_model
from botorch.utils.sampling import draw_sobol_samples
from botorch.utils.testing import MockModel, MockPosterior
from gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    SpectralMixtureKernel,
)
from scipy.stats import chi2
from torch import Tensor

from botorch_bandits import (
    BanditGP,
    Categorical,
    Float,
    GPThompsonSampling,
    LagrangianThompsonSampling,
    Space,
)
from botorch_bandits.acquisition.draws import (
    PointwiseDraw,
    draw_path,
    factor_in_place,
    root_of,
)
from botorch_bandits.confidence import ConstantWidth

from .cases import (
    ENSEMBLE_LENGTHSCALES,
    MODELS,
    UNIT_BOX,
    bandit_gp,
    bandit_gp_reference,
    double,
    named,
    rows,
    uniform,
)

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")

ARMS = uniform(6, 2, seed=12)
BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1, "delta": 0.1}
# Seeds are fixed, so a test passes or fails for good; a right sampler fails at this rate when
# the seeds change.
FALSE_ALARM = 1e-4


def draws(num_seeds: int, x: Tensor, model: Any, **options: Any) -> np.ndarray:
    """One draw a seed at the rows of ``x``: ``num_seeds x n``."""
    X = x.unsqueeze(-2)
    with torch.no_grad():
        values = [GPThompsonSampling(model, seed=s, **options)(X) for s in range(num_seeds)]
    return torch.stack(values).numpy()


def moment_statistics(sample: np.ndarray, mean: np.ndarray, covariance: np.ndarray):
    """Two statistics that are chi-squared if the rows have this mean and this covariance.

    Whitened rows have independent standard normal entries: ``num * |mean|**2`` has one degree of
    freedom an entry, and so has ``num`` times each squared entry of (second moment - identity),
    after division by its variance (2 on the diagonal, 1 off it).
    """
    num, n = sample.shape
    white = np.linalg.solve(np.linalg.cholesky(covariance), (sample - mean).T).T
    about_mean = num * (white.mean(0) ** 2).sum()
    error = white.T @ white / num - np.eye(n)
    diagonal = (np.diag(error) ** 2).sum() / 2.0
    above = (np.triu(error, 1) ** 2).sum()
    return about_mean, num * (diagonal + above)


# --- draws on arms --------------------------------------------------------------------------


@pytest.mark.slow
def test_draws_on_arms_have_the_joint_moments_of_the_posterior() -> None:
    v, num = 3.0, 2000
    model, reference = bandit_gp(noise=0.3), bandit_gp_reference(noise=0.3)
    means, covariances = reference.moments(ARMS.numpy())
    mean, covariance = means[0], v**2 * covariances[0]
    n = len(ARMS)
    limits = chi2.isf(FALSE_ALARM, n), chi2.isf(FALSE_ALARM, n * (n + 1) / 2)

    sample = draws(num, ARMS, model, width=v, choices=ARMS)
    about_mean, about_covariance = moment_statistics(sample, mean, covariance)
    assert about_mean < limits[0]
    assert about_covariance < limits[1]

    # The test has the power to tell what looks plausible but is wrong: independent draws with
    # the right marginals, and the right correlations with v in place of v**2.
    generator = np.random.default_rng(0)
    normal = generator.standard_normal((num, n))
    independent = mean + normal * np.sqrt(np.diag(covariance))
    assert moment_statistics(independent, mean, covariance)[1] > 10 * limits[1]
    too_narrow = mean + (sample - mean) / math.sqrt(v)
    assert moment_statistics(too_narrow, mean, covariance)[1] > 10 * limits[1]


@pytest.mark.slow
def test_draws_on_arms_of_a_scalarization_have_its_moments() -> None:
    case = named(MODELS, "SingleTaskGP, two outputs, scalarized")
    model = case.build()
    means, covariances = case.reference(model).moments(ARMS.numpy())
    sample = draws(
        250,
        ARMS,
        model,
        width=1.0,
        choices=ARMS,
        posterior_transform=case.posterior_transform,
    )
    n = len(ARMS)
    about_mean, about_covariance = moment_statistics(sample, means[0], covariances[0])
    assert about_mean < chi2.isf(FALSE_ALARM, n)
    assert about_covariance < chi2.isf(FALSE_ALARM, n * (n + 1) / 2)


def test_a_singular_covariance_is_drawn_from() -> None:
    # 1000 points of a squared exponential kernel: about 18 eigenvalues are above rounding, the
    # smallest is negative, and a Cholesky factorization of the covariance fails
    x = torch.linspace(0.0, 1.0, 1000, dtype=torch.float64).unsqueeze(-1)
    kernel = RBFKernel().double()
    kernel.lengthscale = double(0.2)
    prior = BanditGP(x[:0], x[:0], kernel=kernel, noise=0.01)
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.cholesky(kernel(x).to_dense())
    with torch.no_grad():
        acqf = GPThompsonSampling(prior, width=1.0, choices=x, seed=0)
        values = acqf(x.unsqueeze(-2))
    # a draw is as smooth as the kernel: E[(f(x) - f(x + h))^2] = 2 (1 - k(h)), here (0.005)^2
    steps = values.diff().square().mean().sqrt()
    assert 0.001 < float(steps) < 0.02
    assert 0.2 < float(values.std()) + abs(float(values.mean())) < 4.0
    # the draw lies in the span of the smooth eigenvectors: its components along the others are
    # rounding
    eigenvectors = torch.linalg.eigh(kernel(x).to_dense().detach())[1]
    assert (eigenvectors.T @ values)[:960].abs().max() < 1e-6


@pytest.mark.parametrize("lengthscale", [0.02, 0.2, 5.0])
@pytest.mark.parametrize("batch_shape", [(), (2, 3)])
def test_a_root_of_a_covariance(lengthscale: float, batch_shape: tuple[int, ...]) -> None:
    x = torch.rand(*batch_shape, 60, 1, dtype=torch.float64)
    covariance = (-0.5 * ((x - x.transpose(-1, -2)) / lengthscale).square()).exp()
    root = root_of(covariance)
    assert root.shape[:-1] == covariance.shape[:-1]
    assert (root @ root.mT - covariance).abs().max() < 1e-13
    if lengthscale == 5.0 and not batch_shape:
        assert root.shape[-1] < 15  # its numerical rank, no eigenvalue of rounding


def test_draws_of_one_posterior_are_from_one_factorization(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    factored = []

    def count(covariance: Tensor) -> Tensor | None:
        factored.append(covariance)
        return factor_in_place(covariance)

    monkeypatch.setattr("botorch_bandits.acquisition.draws.factor_in_place", count)
    model = SingleTaskGP(ARMS[:3], ARMS[:3].sum(-1, keepdim=True).sin())
    acqf = GPThompsonSampling(model, width=1.0, choices=ARMS, seed=0)
    first = acqf(ARMS.unsqueeze(-2))
    optimize_acqf_discrete(acqf, q=3, choices=ARMS)
    assert len(factored) == 1
    fresh = GPThompsonSampling(model, width=1.0, choices=ARMS, seed=0)
    assert torch.equal(fresh(ARMS.unsqueeze(-2)), first)
    assert len(factored) == 2
    # whatever changes the posterior is seen by the next draw
    for change in (
        lambda: setattr(model.likelihood, "noise", 0.5),
        lambda: setattr(model.covar_module, "lengthscale", 0.3),
        lambda: model.set_train_data(targets=model.train_targets + 1.0, strict=False),
    ):
        change()
        acqf.set_X_pending(None)
        draw = acqf(ARMS.unsqueeze(-2)).detach()
        again = GPThompsonSampling(model, width=1.0, choices=ARMS, seed=0)
        for _ in range(acqf._num_draws):
            again.set_X_pending(None)
        assert torch.equal(draw, again(ARMS.unsqueeze(-2)))
        factored.pop()
        assert factored.pop() is not None
    assert len(factored) == 2


def test_only_the_choices_can_be_evaluated() -> None:
    acqf = GPThompsonSampling(bandit_gp(), width=1.0, choices=ARMS, seed=0)
    off = ARMS[:1] + 1e-12
    with pytest.raises(ValueError, match="one of the 6"):
        acqf(off)
    with pytest.raises(ValueError, match=r"Take rows of Arms\.choices"):
        optimize_acqf(acqf, UNIT_BOX, q=1, num_restarts=2, raw_samples=4)
    values = acqf(ARMS.flip(0).unsqueeze(-2))
    assert torch.equal(values.flip(0), acqf(ARMS.unsqueeze(-2)))


# --- pathwise draws -------------------------------------------------------------------------


def test_pathwise_draws_have_v_times_the_posterior_deviation() -> None:
    # 20 places so far apart that they are independent, each with two rows, a point between them
    # and one beside them: 60 draws give 1200 values of either kind, and a standard error of their
    # deviation of 1 / sqrt(2 * 1200) = 2 %.
    v, num, num_places = 3.0, 60, 20
    at = 12.0 * torch.arange(num_places, dtype=torch.float64).unsqueeze(-1)
    X = torch.cat([at, at + 0.6])
    model = BanditGP(X, X.sin(), kernel=RBFKernel(), noise=0.1)
    x = torch.cat([at + 0.3, at + 2.0])
    with torch.no_grad():
        posterior = model.posterior(x)
        mean, sd = posterior.mean.squeeze(-1).numpy(), posterior.variance.sqrt().squeeze(-1)
    assert sd[0] < 0.5 < 0.9 < sd[-1]
    deviations = (draws(num, x, model, width=v) - mean) / sd.numpy()
    between, beside = deviations[:, :num_places], deviations[:, num_places:]
    assert math.sqrt((deviations**2).mean()) == pytest.approx(v, rel=0.03)
    assert math.sqrt((between**2).mean()) == pytest.approx(v, rel=0.06)
    assert math.sqrt((beside**2).mean()) == pytest.approx(v, rel=0.06)
    # the mean of each kind: standard error v / sqrt(1200)
    assert abs(between.mean()) < 4.0 * v / math.sqrt(1200)
    assert abs(beside.mean()) < 4.0 * v / math.sqrt(1200)


def test_pathwise_draws_pass_through_the_data_where_there_is_no_noise() -> None:
    X, Y = rows()
    kernel = RBFKernel().double()
    kernel.lengthscale = double(0.3)
    model = BanditGP(X, Y[:, :1], kernel=kernel, noise=1e-8)
    for seed in range(3):
        values = GPThompsonSampling(model, width=3.0, seed=seed)(X.unsqueeze(-2))
        assert torch.allclose(values, Y[:, 0], atol=5e-3)


def test_outputs_of_one_path_are_scalarized_linearly() -> None:
    # the same seed draws the same functions: a scalarization is linear in them. BoTorch's own
    # pathwise sampler returns a 0-dimensional value here.
    model = named(MODELS, "SingleTaskGP, two outputs, scalarized").build()
    x = uniform(4, 2, seed=3).unsqueeze(-2)

    def draw(weights: list[float], offset: float = 0.0) -> Tensor:
        transform = ScalarizedPosteriorTransform(double(weights), offset)
        return GPThompsonSampling(model, width=1.0, seed=1, posterior_transform=transform)(x)

    first, second = draw([1.0, 0.0]), draw([0.0, 1.0])
    assert first.shape == (4,)
    assert not torch.allclose(first, second)
    assert torch.allclose(draw([0.7, -1.2], 0.4), 0.4 + 0.7 * first - 1.2 * second, atol=1e-10)


def kind_space_model(on_columns: bool) -> tuple[Space, Callable[[Tensor], Tensor], BanditGP]:
    """A model on a number and three kinds; the map of its inputs, which it may be behind of."""
    space = Space({"x": Float(0.0, 1.0), "kind": Categorical(["a", "b", "c"])})
    encode = space.input_transform()
    assert encode is not None
    X, Y = space.sample(9, torch.Generator().manual_seed(3)), uniform(9, 1, seed=4)
    model = BanditGP(
        encode(X) if on_columns else X,
        Y,
        kernel=MaternKernel(nu=2.5, ard_num_dims=space.num_columns).double(),
        noise=0.01,
        input_transform=None if on_columns else encode,
    )
    return space, encode if on_columns else Tensor.clone, model


@pytest.mark.parametrize("pending", [None, [[0.3, 2.0]]], ids=["observed", "hallucinated"])
def test_a_path_on_categories_is_that_on_their_columns(pending: list[list[float]] | None) -> None:
    """BoTorch counts a model's columns before its transform, which makes three of the kinds."""
    found = []
    for on_columns in (False, True):
        space, see, model = kind_space_model(on_columns)
        points = None if pending is None else see(double(pending))
        x = see(space.sample(7, torch.Generator().manual_seed(5))).unsqueeze(-2)
        acqf = GPThompsonSampling(model, width=2.0, pending="hallucinate", X_pending=points, seed=1)
        found.append(acqf(x).detach())
    assert float((found[0] - found[1]).abs().max()) < 1e-8


def test_a_path_on_categories_passes_through_the_data_of_each_kind() -> None:
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
    acqf = GPThompsonSampling(models[0], width=1.0, seed=0)
    assert torch.allclose(acqf(X.unsqueeze(-2)), Y[:, 0], atol=0.05)
    both = LagrangianThompsonSampling(ModelListGP(*models), multipliers=[1.0], seed=0)
    assert torch.allclose(both.draw(X.unsqueeze(-2)), torch.cat([Y, -Y], dim=-1), atol=0.05)


def test_without_an_encoding_paths_are_those_of_botorch() -> None:
    """Models of BoTorch bit for bit; ours to rounding, for they have a factor of their own."""
    model = named(MODELS, "SingleTaskGP, two outputs, scalarized").build()
    single = bandit_gp()
    x = uniform(5, 2, seed=3)
    for each in (model, single, ModelListGP(single, bandit_gp(noise=0.3))):
        with torch.no_grad():
            drawn = []
            for draw in (draw_path, get_matheron_path_model):
                torch.manual_seed(7)
                drawn.append(draw(each)(x))
        assert torch.allclose(*drawn, rtol=0.0, atol=0.0 if each is model else 1e-11)


@pytest.mark.parametrize("groups", [[6], [1, 1, 4], [3, 3]], ids=str)
def test_a_draw_point_by_point_is_a_joint_draw(groups: list[int]) -> None:
    X, Y = rows()
    model = BanditGP(X, Y[:, :1], kernel=PeriodicKernel() * RBFKernel(), noise=0.1)
    draw = PointwiseDraw(model, seed=3)
    parts = [draw(part.unsqueeze(-2)).reshape(-1) for part in ARMS.split(groups)]
    values = torch.cat(parts)
    posterior = model.posterior(ARMS)
    covariance = posterior.distribution.covariance_matrix.detach()
    # the draw is an affine function of independent normal numbers
    assert (draw._root @ draw._root.T - covariance).abs().max() < 1e-8
    expected = posterior.mean.squeeze(-1) + draw._root @ draw._normal
    assert (values - expected).abs().max() < 1e-10
    assert torch.equal(draw(ARMS.flip(0)).squeeze(-1).flip(0), values)  # asked again
    other = PointwiseDraw(model, seed=4)(ARMS).squeeze(-1)
    assert (other - values).abs().max() > 1e-3
    # with gradients: the mean given these values, by the textbook
    point = torch.tensor([[0.37, 0.11]], dtype=torch.float64, requires_grad=True)
    found = draw(point).squeeze()
    joint = model.posterior(torch.cat([point.detach(), ARMS])).distribution
    block = joint.covariance_matrix.detach()
    weights = torch.linalg.solve(block[1:, 1:], values - joint.mean[1:])
    assert float(found) == pytest.approx(float(joint.mean[0] + block[0, 1:] @ weights), abs=1e-7)
    (slope,) = torch.autograd.grad(found, point)
    step = torch.tensor([[1e-5, 0.0]], dtype=torch.float64)
    ahead, behind = (
        draw((point.detach() + sign * step).requires_grad_()).detach() for sign in (1.0, -1.0)
    )
    assert float(slope[0, 0]) == pytest.approx(float((ahead - behind) / 2e-5), rel=1e-4)


def test_draws_of_smooth_functions_have_hundreds_of_points(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = rows()
    model = SingleTaskGP(X, Y[:, :1], covar_module=RBFKernel() + LinearKernel())
    draw = PointwiseDraw(model, seed=0)
    points = torch.rand(300, 2, dtype=torch.float64)
    first = draw(points[:150])
    both = draw(points)
    assert torch.equal(both[:150], first)
    assert both.isfinite().all()
    monkeypatch.setattr("botorch_bandits.acquisition.draws.LARGEST_DRAW", 300)
    further = draw(points + 1e-6)
    assert (further - both).abs().max() < 1e-3  # a smooth function through what was drawn
    assert len(draw._values) == 300


UNUSUAL = {
    "product": lambda X, Y: SingleTaskGP(X, Y, covar_module=PeriodicKernel() * RBFKernel()),
    "linear": lambda X, Y: SingleTaskGP(X, Y, covar_module=LinearKernel()),
    "spectral": lambda X, Y: SingleTaskGP(
        X, Y, covar_module=SpectralMixtureKernel(num_mixtures=2, ard_num_dims=2)
    ),
    "fidelities": lambda X, Y: SingleTaskMultiFidelityGP(X, Y, data_fidelities=[1]),
    "categories": lambda X, Y: MixedSingleTaskGP(X.round(decimals=0), Y, cat_dims=[1]),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_kernels_without_random_features_are_drawn_on_boxes(name: str) -> None:
    X, Y = rows()
    model = UNUSUAL[name](X, Y[:, :1])
    acqf = GPThompsonSampling(model, seed=0)
    options = {"num_restarts": 2, "raw_samples": 16, "options": {"maxiter": 5}}
    if name == "categories":
        features = [{1: 0.0}, {1: 1.0}]
        best, value = optimize_acqf_mixed(
            acqf, UNIT_BOX, 1, fixed_features_list=features, **options
        )
        assert best[0, 1] in (0.0, 1.0)
    else:
        best, value = optimize_acqf(acqf, UNIT_BOX, 1, **options)
    raw = draw_sobol_samples(UNIT_BOX, n=16, q=1, seed=0)
    assert float(value) == pytest.approx(float(acqf(best)), abs=1e-6)
    assert acqf(raw).isfinite().all()


def test_a_model_without_any_draw_on_a_box_names_the_way_out() -> None:
    X, Y = rows()
    Z = torch.cat([X, torch.arange(len(X)).remainder(2).to(X).unsqueeze(-1)], dim=-1)
    model = MultiTaskGP(Z, Y[:, :1], task_feature=-1)
    acqf = GPThompsonSampling(
        model, seed=0, posterior_transform=ScalarizedPosteriorTransform(double([1.0, 0.5]))
    )
    with pytest.raises(UnsupportedError, match="Pass choices=, a finite"):
        acqf(X[:1])


# --- one draw, and another ------------------------------------------------------------------

KINDS = pytest.mark.parametrize("options", [{}, {"choices": ARMS}], ids=["pathwise", "on arms"])


@KINDS
def test_one_draw_answers_until_the_pending_points_are_set(options: dict[str, Any]) -> None:
    X = ARMS.unsqueeze(-2)
    acqf = GPThompsonSampling(bandit_gp(), width=2.0, seed=4, **options)
    first = acqf(X)
    assert torch.equal(acqf(X), first)
    assert torch.allclose(torch.cat([acqf(row) for row in ARMS.split(1)]), first, atol=1e-12)
    values = [first]
    for X_pending in (None, ARMS[:1], ARMS[:1]):  # also for equal sets
        acqf.set_X_pending(X_pending)
        values.append(acqf(X))
        assert torch.equal(acqf(X), values[-1])
    assert torch.pdist(torch.stack(values).detach()).min() > 1e-2


@KINDS
def test_seeds_make_draws_reproducible(options: dict[str, Any]) -> None:
    X, model = ARMS.unsqueeze(-2), bandit_gp()

    def two_draws(seed: int) -> Tensor:
        acqf = GPThompsonSampling(model, width=2.0, seed=seed, **options)
        first = acqf(X)
        acqf.set_X_pending(ARMS[:1])
        return torch.cat([first, acqf(X)]).detach()

    torch.manual_seed(0)
    before = two_draws(7)
    torch.manual_seed(1)
    torch.rand(3)
    assert torch.equal(two_draws(7), before)
    assert not torch.allclose(two_draws(8), before)


@KINDS
def test_a_seed_leaves_the_callers_random_numbers_alone(options: dict[str, Any]) -> None:
    torch.manual_seed(3)
    expected = torch.rand(5)
    torch.manual_seed(3)
    acqf = GPThompsonSampling(bandit_gp(), width=2.0, seed=4, **options)
    acqf(ARMS.unsqueeze(-2))
    acqf.set_X_pending(ARMS[:1])
    acqf(ARMS.unsqueeze(-2))
    assert torch.equal(torch.rand(5), expected)


@KINDS
def test_without_a_seed_the_global_generator_decides(options: dict[str, Any]) -> None:
    X, model = ARMS.unsqueeze(-2), bandit_gp()

    def draw() -> Tensor:
        return GPThompsonSampling(model, width=2.0, **options)(X).detach()

    torch.manual_seed(0)
    first, second = draw(), draw()
    torch.manual_seed(0)
    assert torch.equal(draw(), first)
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("options", [{}, {"choices": ARMS}])
def test_another_rule_scales_the_same_draw_anew(options: dict[str, Any]) -> None:
    model = bandit_gp()
    acqf = GPThompsonSampling(model, width=1.0, seed=3, **options)
    acqf(ARMS.unsqueeze(-2))
    acqf.set_rule(ConstantWidth(5.0))
    expected = GPThompsonSampling(model, width=5.0, seed=3, **options)
    assert torch.allclose(
        acqf(ARMS.unsqueeze(-2)), expected(ARMS.unsqueeze(-2)), atol=1e-12, rtol=0.0
    )


def test_several_picks_are_maximizers_of_several_draws() -> None:
    acqf = GPThompsonSampling(bandit_gp(num_rows=1), width=3.0, seed=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        candidates, values = optimize_acqf(
            acqf, UNIT_BOX, q=3, num_restarts=2, raw_samples=32, sequential=True
        )
    fresh = GPThompsonSampling(bandit_gp(num_rows=1), width=3.0, seed=0)
    grid = uniform(400, 2, seed=9).unsqueeze(-2)
    for i in range(3):
        assert torch.allclose(fresh(candidates[i : i + 1]), values[i], atol=1e-8)
        # the local search may stop at a local maximum, but not below most of the square
        assert (fresh(grid) <= values[i]).double().mean() > 0.9
        fresh.set_X_pending(candidates[: i + 1])


# --- ensembles ------------------------------------------------------------------------------

MEMBERS = len(ENSEMBLE_LENGTHSCALES)


def ensemble(noise: float, shared_inputs: bool = False) -> EnsembleMapSaasSingleTaskGP:
    X, Y = rows()
    taus = double([0.1, 0.3, 1.0])
    model = EnsembleMapSaasSingleTaskGP(X, Y[:, :1], num_taus=MEMBERS, taus=taus)
    model.covar_module.outputscale = double([0.8, 1.5, 2.5])
    model.covar_module.base_kernel.lengthscale = double([[r] for r in ENSEMBLE_LENGTHSCALES])
    model.mean_module.constant = double([0.0, 0.2, -0.3])
    model.likelihood.noise = double([[noise]] * MEMBERS)
    if shared_inputs:  # as fully Bayesian models have them: one copy of X for all members
        model.set_train_data(X, model.train_targets, strict=False)
    return model.eval()


@pytest.mark.parametrize("shared_inputs", [False, True], ids=["copied X", "shared X"])
def test_a_draw_of_an_ensemble_is_one_members_whole_draw(shared_inputs: bool) -> None:
    # A member's prior path with another member's update would miss the data, and far from the data
    # each member has a mean of its own, 10 and more standard deviations from the others'.
    X, Y = rows()
    model = ensemble(noise=1e-4, shared_inputs=shared_inputs)
    constants = double([0.0, 20.0, -20.0])
    model.mean_module.constant = constants
    far = double([[200.0, -300.0]])
    members = set()
    for seed in range(8):
        acqf = GPThompsonSampling(model, width=1.0, seed=seed)
        members.add(acqf._member)
        assert torch.allclose(acqf(X.unsqueeze(-2)), Y[:, 0], atol=0.05)
        standardized = (acqf(far) - Y[:, 0].mean()) / Y[:, 0].std()
        assert (standardized.detach() - constants).abs().argmin() == acqf._member
    assert members == set(range(MEMBERS))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="pathwise", marks=pytest.mark.slow),
        pytest.param({"choices": ARMS}, id="on arms"),
    ],
)
def test_draws_of_each_ensemble_member_have_its_moments(options: dict[str, Any]) -> None:
    case = named(MODELS, "EnsembleMapSaasSingleTaskGP")
    model = case.build()
    v, n = 2.0, len(ARMS)
    means, covariances = case.reference(model).moments(ARMS.numpy())
    samples: dict[int, list[np.ndarray]] = {m: [] for m in range(MEMBERS)}
    num = 120
    for seed in range(num):
        acqf = GPThompsonSampling(model, width=v, seed=seed, **options)
        with torch.no_grad():
            samples[acqf._member].append(acqf(ARMS.unsqueeze(-2)).numpy())
    counts = np.array([len(sample) for sample in samples.values()])
    expected = num / MEMBERS
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(FALSE_ALARM, MEMBERS - 1)
    for m, sample in samples.items():
        statistics = moment_statistics(np.stack(sample), means[m], v**2 * covariances[m])
        assert statistics[0] < chi2.isf(FALSE_ALARM, n)
        assert statistics[1] < chi2.isf(FALSE_ALARM, n * (n + 1) / 2)
    # neighbors' moments would not do
    wrong = moment_statistics(np.stack(samples[0]), means[2], v**2 * covariances[2])
    assert wrong[1] > 3 * chi2.isf(FALSE_ALARM, n * (n + 1) / 2)


def test_each_members_own_scale_is_used() -> None:
    case = named(MODELS, "EnsembleMapSaasSingleTaskGP")
    model = case.build()
    widths = case.reference(model).kernelized_width(2.0, 0.1, 0.05)
    assert np.ptp(widths) > 0.1
    X, seeds = ARMS.unsqueeze(-2), range(6)
    used = set()
    for seed in seeds:
        scaled = GPThompsonSampling(model, **BOUNDS, seed=seed)
        plain = GPThompsonSampling(model, width=1.0, seed=seed)
        mean = torch.from_numpy(case.reference(model).moments(ARMS.numpy())[0][scaled._member])
        ratio = (scaled(X) - mean) / (plain(X) - mean)
        assert ratio.detach().numpy() == pytest.approx(widths[scaled._member], rel=1e-6)
        used.add(scaled._member)
    assert len(used) > 1


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"rkhs_bound": 1.0},
            ValueError,
            "GPThompsonSampling needs rkhs_bound= and noise_bound=",
        ),
        ({"rkhs_bound": 1.0, "noise_bound": 0.1, "width": 1.0}, ValueError, "not both"),
        ({"width": 1.0, "delta": 2.0}, ValueError, "delta is 2.0"),
        ({"width": 1.0, "scale": -1.0}, ValueError, "scale is -1.0"),
        ({"width": 1.0, "seed": -1}, ValueError, "seed is -1"),
        ({"width": 1.0, "seed": 0.5}, TypeError, "seed must be an integer"),
        ({"width": 1.0, "choices": ARMS.float()}, TypeError, "choices has dtype torch.float32"),
        ({"width": 1.0, "choices": ARMS[[0, 0]]}, ValueError, "rows 0 and 1 are the same point"),
        ({"width": 1.0, "choices": ARMS[0]}, ValueError, "choices must be a matrix"),
    ],
)
def test_infeasible_options_are_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        GPThompsonSampling(bandit_gp(), **options)


def test_several_outputs_need_a_transform() -> None:
    model = named(MODELS, "SingleTaskGP, two outputs, scalarized").build()
    with pytest.raises(UnsupportedError, match="outputs; pass a posterior_transform"):
        GPThompsonSampling(model, width=1.0)


def test_an_exact_draw_needs_a_gaussian_posterior() -> None:
    posterior = MockPosterior(mean=torch.zeros(6, 1).double(), variance=torch.ones(6, 1).double())
    acqf = GPThompsonSampling(MockModel(posterior), width=1.0, choices=ARMS)
    with pytest.raises(UnsupportedError, match="Gaussian posterior, got MockPosterior"):
        acqf(ARMS.unsqueeze(-2))


# --- promises and descriptions --------------------------------------------------------------


def test_a_draw_on_arms_with_theorem_4s_scale_is_guaranteed() -> None:
    acqf = GPThompsonSampling(bandit_gp(noise=3.0), **BOUNDS, choices=ARMS, seed=0)
    guarantee = acqf.guarantee()
    assert guarantee.holds
    assert guarantee.method == "GP-TS"
    assert "Theorem 4" in guarantee.theorem
    assert guarantee.constants["delta"] == 0.1
    # the confidence bound may fail with delta / 2, the draw with the other half
    assert "probability 0.95" in guarantee.statement
    gain = bandit_gp_reference(noise=3.0).members[0][0].information_gain
    v = (2.0 + 0.1 * math.sqrt(2.0 * (gain + 1.0 + math.log(2.0 / 0.1)))) / math.sqrt(2.0)
    assert float(acqf.width) == pytest.approx(v, rel=1e-9)


@pytest.mark.parametrize(
    ("options", "gap"),
    [
        ({**BOUNDS}, "a pathwise draw approximates"),
        ({**BOUNDS, "choices": ARMS, "scale": 0.5}, "multiplied by 0.5"),
        ({**BOUNDS, "choices": ARMS, "X_pending": ARMS[:2]}, "2 outcomes are pending"),
        ({"width": 1.0, "choices": ARMS}, "heuristic"),
    ],
    ids=["pathwise", "scaled", "pending", "constant"],
)
def test_why_a_draw_is_not_guaranteed(options: dict[str, Any], gap: str) -> None:
    guarantee = GPThompsonSampling(bandit_gp(noise=3.0), seed=0, **options).guarantee()
    assert not guarantee.holds
    assert len(guarantee.reasons) == 1
    assert gap in guarantee.reasons[0]
    assert ("Thompson" if "width" in options else "GP-TS") in guarantee.method


def test_description_at_a_point() -> None:
    model, reference = bandit_gp(), bandit_gp_reference()
    acqf = GPThompsonSampling(model, **BOUNDS, seed=0)
    means, sds = reference.mean_and_sd(ARMS[:1].numpy())
    known = acqf.describe(ARMS[0])
    assert known["mean"] == pytest.approx(means[0, 0], abs=1e-8)
    assert known["standard_deviation"] == pytest.approx(sds[0, 0], abs=1e-8)
    assert known["width"] == pytest.approx(float(acqf.width))
    assert known["acquisition_value"] == pytest.approx(float(acqf(ARMS[:1])), abs=1e-12)
    gain = reference.members[0][0].information_gain
    assert known["information_gain"] == pytest.approx(gain, abs=1e-8)


def test_an_unfitted_model_in_training_mode_is_drawn_from_like_in_evaluation_mode() -> None:
    # nothing was evaluated before the first path is drawn
    X, Y = rows()
    values = []
    for mode in (True, False):
        model = SingleTaskGP(X, Y[:, :1]).train(mode)
        values.append(GPThompsonSampling(model, width=1.0, seed=2)(ARMS.unsqueeze(-2)))
    assert torch.allclose(*values, atol=1e-10)

"""The local model: exact with all rows as neighbors, labeled and without claims otherwise."""

import warnings

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.transforms.input import Normalize
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel

from botorch_bandits import (
    AdditiveEpochs,
    BanditGP,
    BanditLoop,
    Box,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LocalGP,
    LogExpectedImprovement,
)
from botorch_bandits.loop import ManyRowsWarning, chooser, many_rows
from botorch_bandits.loop.descriptions import settings_in_words
from botorch_bandits.models import condition, hallucinate

BOX = Box([[0.0, 0.0], [1.0, 2.0]])


def rows(num_rows: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    stream = torch.Generator().manual_seed(seed)
    X = BOX.bounds[1] * torch.rand(num_rows, 2, generator=stream, dtype=torch.float64)
    noise = torch.randn(num_rows, 1, generator=stream, dtype=torch.float64)
    return X, torch.sin(4.0 * X.sum(-1, keepdim=True)) + 0.1 * noise


def kernel(kind: type = MaternKernel) -> ScaleKernel:
    built = ScaleKernel(kind(ard_num_dims=2)).double()
    built.base_kernel.lengthscale = torch.tensor([0.3, 0.5], dtype=torch.float64)
    built.outputscale = torch.tensor(1.7, dtype=torch.float64)
    return built


def dense(
    module: ScaleKernel, X: torch.Tensor, Y: torch.Tensor, at: torch.Tensor, mean: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and covariance from all rows, with noise 0.01."""
    with torch.no_grad():
        noisy = module(X).to_dense() + 0.01 * torch.eye(len(X), dtype=torch.float64)
        cross = module(at, X).to_dense()
        solved = torch.linalg.solve(noisy, torch.cat([Y - mean, cross.mT], dim=-1))
        covariance = module(at).to_dense() - cross @ solved[:, 1:]
    return mean + cross @ solved[:, 0], covariance


@pytest.mark.parametrize("kind", [MaternKernel, RBFKernel])
def test_with_all_rows_as_neighbors_it_is_exact(kind: type) -> None:
    X, Y = rows(90)
    X = torch.cat([X, X[:30]])  # some places are there twice
    Y = torch.cat([Y, Y[:30] + 0.3])
    at = rows(12, seed=3)[0]
    mean, covariance = dense(kernel(kind), X, Y, at, 0.4)
    model = LocalGP(X, Y, kernel(kind), num_neighbors=90, prior_mean=0.4)
    alone = model.posterior(at.unsqueeze(-2))
    torch.testing.assert_close(alone.mean.flatten(), mean, rtol=0, atol=1e-8)
    torch.testing.assert_close(alone.variance.flatten(), covariance.diagonal(), rtol=0, atol=1e-8)
    joint = model.posterior(at).distribution.covariance_matrix
    torch.testing.assert_close(joint, covariance, rtol=0, atol=1e-7)


def test_a_point_sees_its_nearest_rows_in_lengthscales() -> None:
    X, Y = rows(400)
    at = rows(5, seed=3)[0]
    model = LocalGP(X, Y, kernel(), num_neighbors=40)
    found = model.posterior(at.unsqueeze(-2), observation_noise=True)
    for i, point in enumerate(at):
        distances = ((X - point) / torch.tensor([0.3, 0.5])).square().sum(-1)
        nearest = distances.argsort()[:40]
        mean, covariance = dense(kernel(), X[nearest], Y[nearest], at[i : i + 1])
        torch.testing.assert_close(found.mean[i, 0], mean, rtol=0, atol=1e-8)
        torch.testing.assert_close(found.variance[i, 0], covariance[0] + 0.01, rtol=0, atol=1e-8)


def test_its_variance_is_never_below_the_exact_one() -> None:
    X, Y = rows(300)
    at = rows(200, seed=3)[0].unsqueeze(-2)
    exact = BanditGP(X, Y, kernel(), noise=0.01).posterior(at).variance
    assert bool(
        (LocalGP(X, Y, kernel(), num_neighbors=20).posterior(at).variance > exact - 1e-9).all()
    )


@pytest.mark.parametrize("transform", [None, Normalize(2, bounds=BOX.bounds)])
def test_gradients(transform: Normalize | None) -> None:
    X, Y = rows(200)
    model = LocalGP(X, Y, kernel(), num_neighbors=200, input_transform=transform)
    at = rows(4, seed=5)[0].unsqueeze(-2).requires_grad_()
    _, _, of_mean, of_variance = model.closed_form.value_and_gradient(at.detach().squeeze(-2))
    posterior = model.posterior(at)
    (by_hand,) = torch.autograd.grad((posterior.mean + 2.0 * posterior.variance).sum(), at)
    torch.testing.assert_close(by_hand.squeeze(-2), of_mean + 2.0 * of_variance)
    step = 1e-5
    for j in range(2):
        shift = torch.zeros(2, dtype=torch.float64)
        shift[j] = step
        with torch.no_grad():
            up, down = (model.posterior(at + sign * shift) for sign in (1.0, -1.0))
        slope = (up.mean - down.mean).flatten() / (2.0 * step)
        torch.testing.assert_close(of_mean[:, j], slope, rtol=1e-5, atol=1e-6)


def test_without_rows_it_is_the_prior() -> None:
    X, Y = rows(0)
    model = LocalGP(X, Y, kernel(), prior_mean=0.3)
    posterior = model.posterior(rows(3)[0].unsqueeze(-2))
    assert posterior.mean.flatten().tolist() == pytest.approx([0.3] * 3)
    assert posterior.variance.flatten().tolist() == pytest.approx([1.7] * 3)
    assert model.posterior(rows(3)[0]).distribution.covariance_matrix.shape == (3, 3)


def test_conditioning_adds_rows() -> None:
    X, Y = rows(60)
    more_X, more_Y = rows(4, seed=9)
    at = rows(5, seed=3)[0]
    model = LocalGP(X, Y, kernel(), num_neighbors=100)
    mean, covariance = dense(kernel(), torch.cat([X, more_X]), torch.cat([Y, more_Y]), at)
    found = condition(model, more_X, more_Y).posterior(at.unsqueeze(-2))
    torch.testing.assert_close(found.mean.flatten(), mean, rtol=0, atol=1e-8)
    torch.testing.assert_close(found.variance.flatten(), covariance.diagonal(), rtol=0, atol=1e-8)
    pending = hallucinate(model, more_X).posterior(at.unsqueeze(-2))
    torch.testing.assert_close(pending.mean, model.posterior(at.unsqueeze(-2)).mean)
    torch.testing.assert_close(pending.variance.flatten(), covariance.diagonal(), rtol=0, atol=1e-8)


def test_drop_in_bounds_and_improvement() -> None:
    X, Y = rows(300)
    model = LocalGP(X, Y, kernel(), num_neighbors=30)
    at = rows(5, seed=3)[0].unsqueeze(-2)
    posterior = model.posterior(at)
    bound = GPUpperConfidenceBound(model, width=2.0)
    expected = posterior.mean.flatten() + 2.0 * posterior.variance.flatten().sqrt()
    torch.testing.assert_close(bound(at), expected)
    improvement = LogExpectedImprovement(model)
    best = model.posterior(model.promising_rows().unsqueeze(-2)).mean.max()
    assert float(improvement.best_f) == pytest.approx(float(best))
    assert len(model.promising_rows()) == 256
    assert bool(torch.isfinite(improvement(at)).all())


def test_no_claim_is_made() -> None:
    X, Y = rows(300)
    model = LocalGP(X, Y, kernel(), num_neighbors=30)
    given = {"rkhs_bound": 2.0, "noise_bound": 0.1, "information_gain": 20.0}
    guarantee = ImprovedUpperConfidenceBound(model, **given).guarantee()
    assert not guarantee.holds
    assert any("approximate model" in gap and "no theorem" in gap for gap in guarantee.gaps)
    assert not any(statement.holds for statement in guarantee.statements.values())
    with pytest.raises(ValueError, match="information_gain"):
        ImprovedUpperConfidenceBound(model, rkhs_bound=2.0, noise_bound=0.1)


def test_thompson_sampling_refuses() -> None:
    X, Y = rows(30)
    with pytest.raises(UnsupportedError, match=r"LocalGP has none.*upper confidence"):
        GPThompsonSampling(LocalGP(X, Y, kernel()))
    with pytest.raises(UnsupportedError, match="LocalGP has none"):
        BanditLoop(BOX, LocalGP.with_kernel(kernel()), GPThompsonSampling.with_options(width=1.0))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"num_neighbors": 0}, ValueError, "num_neighbors"),
        ({"num_neighbors": 2.5}, TypeError, "num_neighbors"),
        ({"noise": -1.0}, ValueError, "noise"),
        ({"kernel": LinearKernel()}, ValueError, "LinearKernel.*RBFKernel or MaternKernel"),
        ({"input_transform": Normalize(2)}, ValueError, "input_transform.*bounds=bounds"),
        ({"prior_mean": float("nan")}, ValueError, "prior_mean"),
    ],
)
def test_bad_settings(options: dict[str, object], error: type, text: str) -> None:
    given = {"kernel": MaternKernel(), **options}
    with pytest.raises(error, match=text):
        LocalGP.with_kernel(**given)
    with pytest.raises(error, match=text):
        LocalGP(*rows(5), **given)


def test_bad_data() -> None:
    X, Y = rows(5)
    with pytest.raises(ValueError, match="one output"):
        LocalGP(X, Y.expand(-1, 2), MaternKernel())
    with pytest.raises(TypeError, match="float64"):
        LocalGP(X.float(), Y, MaternKernel())
    with pytest.raises(ValueError, match="ard_num_dims=2"):
        LocalGP(X, Y, MaternKernel(ard_num_dims=3))
    model = LocalGP(X, Y, MaternKernel())
    with pytest.raises(UnsupportedError, match="noise"):
        model.condition_on_observations(X, Y, noise=Y)
    transformed = model.posterior(
        X, posterior_transform=ScalarizedPosteriorTransform(torch.ones(1, dtype=torch.float64))
    )
    assert transformed.mean.shape == (5, 1)


def test_constraints_of_their_own_models_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one output.*relabeled"):
        many_rows.check_local_model(
            LocalGP.with_kernel(kernel()),
            None,
            AdditiveEpochs(num_constraints=1, epoch_length=5, surrogate="separate"),
        )


def settings() -> dict[str, object]:
    return {
        "domain": BOX,
        "model": LocalGP.with_kernel(kernel(), num_neighbors=15),
        "acquisition": GPUpperConfidenceBound.with_options(width=2.0),
    }


def test_a_journal_goes_on(tmp_path) -> None:
    with BanditLoop(**settings(), journal=tmp_path / "a") as loop:
        for _ in range(25):
            query = loop.ask()
            loop.tell(query.id, float(torch.sin(3.0 * query.x.sum())))
        expected = BanditLoop(**settings(), history=loop.history).ask().x
        gaps = loop.guarantee().gaps
    assert any("no theorem covers it" in gap for gap in gaps)
    with BanditLoop(**settings(), journal=tmp_path / "a") as loop:
        assert torch.equal(loop.ask().x, expected)
        assert isinstance(loop.current_model(), LocalGP)
        assert "approximate" in repr(loop.current_model())
        (told,) = (text for name, text in settings_in_words(loop.settings) if name == "model")
    assert told.startswith("LocalGP(approximate")
    other = {**settings(), "model": LocalGP.with_kernel(kernel(), num_neighbors=16)}
    with pytest.raises(ValueError, match="num_neighbors"):
        BanditLoop(**other, journal=tmp_path / "a")


def test_recipes_are_equal_if_their_models_are() -> None:
    recipe = LocalGP.with_kernel(kernel(), num_neighbors=15)
    assert recipe == LocalGP.with_kernel(kernel(), num_neighbors=15)
    assert hash(recipe) == hash(LocalGP.with_kernel(kernel(), num_neighbors=15))
    assert recipe != LocalGP.with_kernel(kernel(), num_neighbors=16)
    assert recipe != LocalGP.with_kernel(kernel(RBFKernel), num_neighbors=15)


def test_many_rows_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_rows, "MANY_ROWS", 4)
    monkeypatch.setattr(chooser, "MANY_FITTED_ROWS", 1)
    recipe = BanditGP.with_kernel(kernel())
    loop = BanditLoop(BOX, recipe, GPUpperConfidenceBound.with_options(width=2.0))
    for _ in range(4):
        loop.tell(loop.ask().id, 1.0)
    with pytest.warns(ManyRowsWarning, match=r"has 4 rows.*LocalGP\.with_kernel"):
        loop.tell(loop.ask().id, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop.ask()

"""One-step-ahead and leave-one-out predictions against models that are conditioned row by row."""

from __future__ import annotations

import matplotlib
import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from reading_html import Reader
from torch import Tensor

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    ExponentialWeights,
    GPUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    RandomSearch,
    SlidingWindow,
    run,
)
from botorch_bandits.models import check_model
from botorch_bandits.plotting import plot_leave_one_out

matplotlib.use("Agg")
DTYPE = torch.float64
WEIGHED = LagrangianUpperConfidenceBound.with_options(width=2.0)
UCB = GPUpperConfidenceBound.with_options(width=2.0)


def draw(seed: int, n: int = 20, noise: float = 0.04, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return points in order and outcomes drawn from a GP with lengthscale 0.3."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=generator, dtype=DTYPE)
    K = torch.exp(-0.5 * (torch.cdist(X, X) / 0.3) ** 2)
    L = torch.linalg.cholesky(K + noise * torch.eye(n, dtype=DTYPE))
    return X, scale * (L @ torch.randn(n, 1, generator=generator, dtype=DTYPE))


def gp(X: Tensor, Y: Tensor, noise: float = 0.04, **options: float) -> BanditGP:
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(options.pop("lengthscale", 0.3), dtype=DTYPE)
    return BanditGP(X, Y, kernel=kernel, noise=noise, **options)


def predicted(K: Tensor, k: Tensor, y: Tensor, noise: float) -> tuple[float, float]:
    """Return the textbook's mean and standard deviation of a noisy outcome."""
    A = K + noise * torch.eye(len(y), dtype=DTYPE)
    weights = torch.linalg.solve(A, k)
    return float(weights @ y), float(1.0 + noise - weights @ k) ** 0.5


def test_residuals_against_the_textbook_row_by_row() -> None:
    X, Y = draw(0)
    check = check_model(gp(X, Y + 5.0, prior_mean=5.0))
    K, y = torch.exp(-0.5 * (torch.cdist(X, X) / 0.3) ** 2), Y.squeeze(-1)
    for i in range(len(X)):
        mean, deviation = predicted(K[:i, :i], K[:i, i], y[:i], 0.04)
        assert float(check.one_step[i]) == pytest.approx((float(y[i]) - mean) / deviation, abs=1e-9)
        rest = [j for j in range(len(X)) if j != i]
        mean, deviation = predicted(K[rest][:, rest], K[rest, i], y[rest], 0.04)
        assert float(check.left_out_means[i]) == pytest.approx(mean + 5.0, abs=1e-9)
        assert float(check.left_out_deviations[i]) == pytest.approx(deviation, rel=1e-9)
    torch.testing.assert_close(check.outcomes, y + 5.0)
    inside = (check.one_step.abs() <= 0.6744897501960817).double()
    assert check.coverage(0.5).tolist() == pytest.approx(
        [float(inside[: i + 1].mean()) for i in range(20)]
    )


@pytest.mark.parametrize("has_levels", [False, True])
def test_botorch_models_with_transforms_and_given_variances(has_levels: bool) -> None:
    X, Y = draw(1, n=12, scale=30.0)
    levels = torch.linspace(1.0, 9.0, 12, dtype=DTYPE).unsqueeze(-1) if has_levels else None

    model = SingleTaskGP(
        X, Y, levels, covar_module=ScaleKernel(MaternKernel(nu=2.5)),
        outcome_transform=Standardize(1), input_transform=Normalize(2),
    ).eval()  # fmt: skip
    check = check_model(model)
    scale, shift = float(Y.std()), float(Y.mean())
    with torch.no_grad():
        Z = model.input_transform(X)
        K = model.covar_module(Z).to_dense()
        noise = torch.diag(model.likelihood.noise.expand(12))
        y = (Y.squeeze(-1) - shift) / scale - model.mean_module(Z)
        for i in range(12):
            rest = [j for j in range(12) if j != i]
            A = (K + noise)[rest][:, rest]
            mean = float(K[i, rest] @ torch.linalg.solve(A, y[rest]))
            mean += float(model.mean_module(Z)[i])
            assert float(check.left_out_means[i]) == pytest.approx(shift + scale * mean, rel=1e-6)
    torch.testing.assert_close(check.outcomes, Y.squeeze(-1))
    assert check.learned


def test_verdicts() -> None:
    """Of draws from the model, few are spoken against; of others, the verdict names the fault."""
    fine = sum("Nothing" in check_model(gp(*draw(seed))).verdict for seed in range(60))
    assert fine >= 56
    X, Y = draw(3, n=40)
    assert "overconfident" in check_model(gp(X, 5.0 * Y)).verdict
    assert "too cautious" in check_model(gp(X, 0.1 * Y)).verdict
    spoiled = Y.clone()
    spoiled[17] += 6.0
    assert check_model(gp(X, spoiled)).verdict.startswith("Outcome 18 is")
    assert "too few" in check_model(gp(X[:3], Y[:3])).verdict
    assert "0 outcomes" in check_model(gp(X[:0], Y[:0])).verdict
    page = Reader(check_model(gp(X, Y))._repr_html_())
    assert "in their 95%" in page.text


def test_an_offset_is_named() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.linspace(0.0, 100.0, 60, dtype=DTYPE).unsqueeze(-1)  # far apart: independent
    Y = 0.6 + 0.9 * torch.randn(60, 1, generator=generator, dtype=DTYPE)
    check = check_model(gp(X, Y))
    assert check.verdict.startswith("Outcomes lie above what the model predicts")


def test_the_loop_on_a_box_on_arms_and_in_a_window() -> None:
    recipe = BanditGP.with_kernel(RBFKernel(), noise=0.04, lengthscale=0.3)
    loop = BanditLoop(Box([[0.0], [1.0]]), recipe, UCB, num_initial=3)
    run(loop, lambda x: float((6.0 * x).sin()), 12, progress=False)
    check = loop.check_model()
    X, Y = loop.history.arrived()
    torch.testing.assert_close(check.one_step, check_model(gp(X, Y)).one_step)
    windowed = BanditLoop(Box([[0.0], [1.0]]), recipe, UCB, forgetting=SlidingWindow(5))
    run(windowed, lambda x: float((6.0 * x).sin()), 12, progress=False)
    assert len(windowed.check_model().one_step) == 5
    arms = BanditLoop(Arms([[0.0], [0.5], [1.0]]), recipe, UCB)
    run(arms, lambda x: float(x), 20, progress=False)
    X, Y = arms.history.arrived()
    torch.testing.assert_close(arms.check_model().one_step, check_model(gp(X, Y)).one_step)
    arms = BanditLoop(arms.settings.domain, recipe, UCB, forgetting=SlidingWindow(5))
    run(arms, lambda x: float(x), 20, progress=False)
    X, Y = (each[-5:] for each in arms.history.arrived())
    torch.testing.assert_close(arms.check_model().one_step, check_model(gp(X, Y)).one_step)
    arms = BanditLoop(arms.settings.domain, recipe, UCB, forgetting=ExponentialWeights(0.9))
    run(arms, lambda x: float(x), 20, progress=False)
    assert "caution: the model fades old outcomes" in str(arms.check_model())
    merged = BanditGP(
        X, Y, kernel=gp(X, Y).covar_module, noise=0.04, repeats=torch.full((5,), 2.0).double()
    )
    with pytest.raises(ValueError, match="Pass X and Y"):
        check_model(merged)
    ax = plot_leave_one_out(check)
    assert ax.get_xlabel() == "outcome"
    assert ax.get_legend_handles_labels()[1] == ["within its 95%: 12"]


def test_what_cannot_be_checked() -> None:
    box = Box([[0.0], [1.0]])
    with pytest.raises(RuntimeError, match="no model"):
        BanditLoop(box, None, RandomSearch()).check_model()
    recipe = BanditGP.with_kernel(RBFKernel(), noise=0.04)
    censored = BanditLoop(box, recipe, UCB, feedback=Censored(minimum=0.0))
    censored.tell(censored.ask().id, 1.0)
    with pytest.raises(RuntimeError, match="pseudo-values"):
        censored.check_model()
    listed = BanditLoop(box, BanditGP.with_candidates([recipe, recipe], weights=[0.5, 0.5]))
    listed.tell(listed.ask().id, 1.0)
    with pytest.raises(RuntimeError, match=r"loop\.evidence"):
        listed.check_model()
    X, Y = draw(0)
    with pytest.raises(ValueError, match="2 outputs"):
        check_model(SingleTaskGP(X, torch.cat([Y, Y], -1)))
    with pytest.raises(ValueError, match="go together"):
        check_model(gp(X, Y), X)
    with pytest.raises(TypeError, match="check is"):
        plot_leave_one_out(Y)

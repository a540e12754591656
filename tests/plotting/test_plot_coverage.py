"""Width against error, and information gain, against numbers worked out here."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    History,
    ImprovedUpperConfidenceBound,
    RandomSearch,
    run,
)
from botorch_bandits.confidence import GreedyGain
from botorch_bandits.plotting import plot_information_gain, plot_width_against_error
from botorch_bandits.problems import ArmsProblem

CHOICES = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
VALUES = (5.0 * CHOICES.squeeze(-1)).sin()


def lines_of(ax: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in ax.get_lines()}


@pytest.fixture(scope="module")
def model() -> BanditGP:
    X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
    y = torch.tensor([[0.4], [-0.2], [0.3]], dtype=torch.float64)
    return BanditGP(X, y, kernel=RBFKernel().double(), noise=0.05)


def dense_posterior(X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and deviation of the fixture's model by the textbook formulas."""
    lengthscale = math.log(2.0)  # gpytorch's default

    def k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (-0.5 * ((a - b.T) / lengthscale) ** 2).exp()

    seen = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
    y = torch.tensor([0.4, -0.2, 0.3], dtype=torch.float64)
    inverse = (k(seen, seen) + 0.05 * torch.eye(3, dtype=torch.float64)).inverse()
    cross = k(X, seen)
    variance = 1.0 - (cross @ inverse * cross).sum(-1)
    return cross @ inverse @ y, variance.sqrt()


@pytest.mark.parametrize("as_function", [False, True], ids=["values", "function"])
def test_points_of_a_model(model: BanditGP, as_function: bool) -> None:
    truth = (lambda X: (5.0 * X).sin()) if as_function else VALUES
    ax = plot_width_against_error(model, CHOICES, truth, 1.5)
    mean, deviation = dense_posterior(CHOICES)
    half, error = 1.5 * deviation, (VALUES - mean).abs()
    covered = error <= half
    count = int(covered.sum())
    assert 0 < count < 9
    lines = lines_of(ax)
    inside = lines[f"covered ({count} of 9, {count / 9:.1%})"]
    outside = lines[f"not covered ({9 - count})"]
    assert inside.get_xdata() == pytest.approx(half[covered].numpy(), abs=1e-8)
    assert inside.get_ydata() == pytest.approx(error[covered].numpy(), abs=1e-8)
    assert outside.get_xdata() == pytest.approx(half[~covered].numpy(), abs=1e-8)
    assert outside.get_ydata() == pytest.approx(error[~covered].numpy(), abs=1e-8)
    assert inside.get_marker() != outside.get_marker()
    diagonal = lines["error = half-width"]
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata())
    assert "standard deviation" in ax.get_xlabel()


def test_rounds_of_a_run() -> None:
    loop = BanditLoop(
        Arms(CHOICES),
        BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2),
        ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.1),
        num_initial=2,
    )
    problem = ArmsProblem(CHOICES, VALUES, noise_std=0.1)
    first = run(loop, problem, 5, progress=False)
    plot_width_against_error(first)
    second = run(loop, problem, 4, progress=False)
    ax = plot_width_against_error(second, logarithmic=True)
    rows = []
    for query in loop.history.queries[5:]:
        known = query.diagnostics
        (arm,) = (query.x == CHOICES).nonzero()[:, 0].tolist()
        error = abs(float(VALUES[arm]) - known["mean"])
        rows.append((known["width"] * known["standard_deviation"], error))
    assert all(error <= half for half, error in rows)
    inside = lines_of(ax)["covered (4 of 4, 100.0%)"]
    halves, errors = zip(*rows, strict=True)
    assert inside.get_xdata() == pytest.approx(halves)
    assert inside.get_ydata() == pytest.approx(errors)
    assert ax.get_xscale() == ax.get_yscale() == "log"
    with pytest.raises(ValueError, match="history, which has continued"):
        plot_width_against_error(first)
    with pytest.raises(TypeError, match="the result of run is passed alone"):
        plot_width_against_error(second, CHOICES)


def test_results_that_do_not_say_enough() -> None:
    random = BanditLoop(Arms(CHOICES), None, RandomSearch())
    result = run(random, ArmsProblem(CHOICES, VALUES), 3, progress=False)
    with pytest.raises(ValueError, match="this method has none"):
        plot_width_against_error(result)
    with pytest.raises(ValueError, match="no noiseless values"):
        plot_width_against_error(run(random, lambda x: float(x), 3, progress=False))
    with pytest.raises(TypeError, match="model is a int"):
        plot_width_against_error(3)
    constrained = BanditLoop(
        Arms(CHOICES),
        BanditGP.with_kernel(RBFKernel(), noise=0.01),
        ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.1),
        constraints=AdditiveEpochs(num_constraints=1, epoch_length=2),
    )
    result = run(constrained, lambda x: (float(x), [0.0]), 3, progress=False)
    known = SimpleNamespace(history=result.history, rewards=result.rewards, values=VALUES[:3])
    with pytest.raises(ValueError, match="penalized reward"):
        plot_width_against_error(known)


@pytest.mark.parametrize(
    ("X", "truth", "width", "error", "message"),
    [
        (None, VALUES, 1.0, TypeError, "X is missing"),
        (CHOICES, None, None, TypeError, "truth, width is missing"),
        (CHOICES.squeeze(-1), VALUES, 1.0, ValueError, r"X must be a matrix"),
        (CHOICES[:0], VALUES[:0], 1.0, ValueError, "X has no rows"),
        (CHOICES, VALUES[:4], 1.0, ValueError, "truth must be a vector of length 9"),
        (CHOICES, VALUES * math.nan, 1.0, ValueError, r"truth\[0\] is nan"),
        (CHOICES, VALUES, -1.0, ValueError, "width is -1.0"),
        (CHOICES.float(), VALUES, 1.0, TypeError, "X has dtype torch.float32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named(
    model: BanditGP, X: Any, truth: Any, width: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plot_width_against_error(model, X, truth, width)


def gain_history(gains: list[float | None], segments: list[int] | None = None) -> History:
    history = History(dim=1)
    for t, gain in enumerate(gains):
        known = {} if gain is None else {"information_gain": gain}
        if segments is not None:
            known["segment"] = float(segments[t])
        history.add_query(torch.zeros(1, dtype=torch.float64), "acquisition", 0.0, None, known)
    return history


def test_gain_and_bound_begin_anew_at_a_reset() -> None:
    gains = [0.0, 1.0, 1.5, None, 0.25, 0.75]
    history = gain_history(gains, [0, 0, 0, 1, 1, 1])
    ax = plot_information_gain(history, lambda n: 2.0 * n)
    lines = lines_of(ax)
    x, y = lines["realized gain"].get_xdata().tolist(), lines["realized gain"].get_ydata().tolist()
    assert x[:3] == [1.0, 2.0, 3.0]
    assert y[:3] == gains[:3]
    assert math.isnan(y[3])  # not joined
    assert (x[4:], y[4:]) == ([5.0, 6.0], [0.25, 0.75])
    bound = lines["bound"].get_ydata().tolist()
    assert bound[:3] == [0.0, 2.0, 4.0]
    assert math.isnan(bound[3])
    assert bound[4:] == [0.0, 2.0, 4.0]
    assert list(lines["restart"].get_xdata()) == [3.5, 3.5]
    assert ax.get_ylabel() == "information gain (nats)"
    # what is given counts before what is on record
    given = lines_of(plot_information_gain(history, resets=[SimpleNamespace(after_round=2)]))
    assert list(given["restart"].get_xdata()) == [2.5, 2.5]
    assert "restart" not in lines_of(plot_information_gain(history, resets=[]))


def test_greedy_bound_is_above_the_gain_of_a_run() -> None:
    kernel = RBFKernel().double()
    loop = BanditLoop(
        Arms(CHOICES),
        BanditGP.with_kernel(kernel, noise=0.01),
        ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.1),
    )
    run(loop, ArmsProblem(CHOICES, VALUES), 8, progress=False)
    greedy = GreedyGain(kernel(CHOICES).to_dense().detach(), lam=0.01)
    lines = lines_of(plot_information_gain(loop.history, {"greedy": greedy, "none": lambda n: 0}))
    # the gain of a query is half the log-determinant of what was told before it
    X = torch.stack([query.x for query in loop.history.queries])
    K = kernel(X).to_dense().detach() / 0.01
    wanted = [
        0.5 * float(torch.logdet(torch.eye(t, dtype=torch.float64) + K[:t, :t])) if t else 0.0
        for t in range(8)
    ]
    realized = lines["realized gain"].get_ydata()
    assert realized == pytest.approx(wanted, abs=1e-8)
    assert (realized <= lines["greedy"].get_ydata() + 1e-9).all()
    assert lines["greedy"].get_ydata().tolist() == [greedy(n) for n in range(8)]


def test_no_gain_and_no_function() -> None:
    ax = plot_information_gain(gain_history([None, None]))
    assert ax.texts[0].get_text() == "this method has none"
    with pytest.raises(TypeError, match="bounds is 3"):
        plot_information_gain(gain_history([1.0]), {"a": 3})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"Pass the loop, its history"):
        plot_information_gain([1.0])  # type: ignore[arg-type]

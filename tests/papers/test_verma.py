"""The players of late outcomes and the tuned models, against dense computations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models.textbook import double
from torch.nn import functional

from botorch_bandits.problems import PoissonDelay
from botorch_bandits.random_streams import generator
from papers import verma
from papers.verma import Contexts, LateMethod, Learned, Line, Rows, play_late

DELAYS, SEED, ROUNDS = PoissonDelay(3.0), 5, 45
ACTIONS = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(-1)
STAGES = double([[0.1, 0.9], [0.4, 0.2]])


def line() -> Line:
    x = np.linspace(0.0, 1.0, 50)
    return Line(0.5 + 0.5 * np.sin(14.0 * x) * x)


def contexts() -> Contexts:
    values = torch.rand(2, 6, dtype=torch.float64, generator=generator(3, 0, "values"))
    return Contexts(STAGES, ACTIONS, values, (1, 0), SEED)


def points(problem: Line | Contexts) -> np.ndarray:
    if isinstance(problem, Line):
        return np.linspace(0.0, 1.0, len(problem.values))[:, None]
    return np.array([[*stage, *action] for stage in STAGES.tolist() for action in ACTIONS.tolist()])


def dense(
    problem: Line | Contexts, learned: Learned, rows: list[int], labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of all arms, by a solve."""
    scaled = points(problem) / np.array(learned.lengthscale)
    squares = ((scaled[:, None] - scaled[None, :]) ** 2).sum(-1)
    prior = learned.prior_variance * np.exp(-0.5 * squares)
    noisy = prior[np.ix_(rows, rows)] + learned.noise * np.eye(len(rows))
    weights = np.linalg.solve(noisy, prior[rows]).T
    return weights @ labels, prior - weights @ prior[rows]


def known(t: int, limit: int | None) -> list[int]:
    """Return the queries, from 0, whose outcomes are known in round ``t``."""
    nowhere = torch.zeros(1, dtype=torch.float64)
    delays = [max(DELAYS.of_query(nowhere, SEED, s), 1.0) for s in range(1, t)]
    return [s for s, d in enumerate(delays) if s + 1 + d <= t and (limit is None or d <= limit)]


@pytest.mark.parametrize("way", verma.WAYS)
@pytest.mark.parametrize("make", [line, contexts])
def test_every_choice_is_that_of_the_dense_posterior(make, way: str) -> None:
    problem = make()
    dims = points(problem).shape[1]
    learned = Learned((0.15,) * dims, 0.3, 0.02)
    limit = 4 if way == "censored" else None
    method = LateMethod("", way, DELAYS, max_delay=limit, start=learned, learns=False)
    played = play_late(problem, method, SEED, ROUNDS)
    for t in range(problem.num_initial + 2, ROUNDS + 1):
        arms, told, window = played.arms[: t - 1], known(t, limit), problem.window(t)
        heard = [arms[s] for s in told]
        mean, covariance = dense(problem, learned, heard, problem.values[heard])
        if way != "ignored":
            labels = [problem.values[arm] if s in told else 0.0 for s, arm in enumerate(arms)]
            filled, covariance = dense(problem, learned, arms, np.array(labels))
            mean = filled if way == "censored" else mean
        deviation = np.sqrt(np.maximum(covariance.diagonal(), 0.0) + learned.noise)
        # the released code adds the plain sum over the last m queries to the width
        width = 1.0 + (deviation[arms[-4:]].sum() if way == "censored" else 0.0)
        score = (mean + width * deviation)[window]
        assert score[played.arms[t - 1] - window.start] == pytest.approx(score.max(), abs=1e-9)


@pytest.mark.parametrize("make", [line, contexts])
def test_draws_have_the_posterior_covariance(make) -> None:
    problem = make()
    learned = Learned((0.3,) * points(problem).shape[1], 0.3, 0.05)
    window = problem.window(1)
    rows = Rows(problem, learned, 10, window)
    arms = [0, 3, len(problem.values) - 1, 3]
    for arm in arms:
        rows.append(arm)
    drawn = np.stack([problem.draw(rows, seed, 1) for seed in range(4000)])
    expected = dense(problem, learned, arms, np.zeros(4))[1][window, window]
    assert np.abs(drawn.mean(0)).max() < 5 * np.sqrt(0.3 / 4000)
    assert np.abs(np.cov(drawn.T) - expected).max() < 7 * 0.3 / np.sqrt(4000)


def test_the_evidence_is_that_of_a_gaussian_and_fits_have_the_largest() -> None:
    arms = [3, 10, 11, 25, 40, 47, 10]
    problem = line()
    y = problem.values[arms]
    squares = (np.subtract.outer(np.array(arms), np.array(arms)) / 49.0) ** 2

    def loss(logarithms: torch.Tensor) -> torch.Tensor:
        length, variance, noise = logarithms.exp()
        matrix = variance * torch.exp(-0.5 * torch.from_numpy(squares) / length**2)
        matrix = matrix + noise * torch.eye(7, dtype=torch.float64)
        zero = torch.zeros(7, dtype=torch.float64)
        density = torch.distributions.MultivariateNormal(zero, matrix)
        return -2.0 * density.log_prob(torch.from_numpy(y)) - 7 * np.log(2 * np.pi)

    at = torch.tensor([-1.5, -0.7, -3.0], dtype=torch.float64, requires_grad=True)
    value, gradient = verma.negative_evidence(at.detach().numpy(), squares, y)
    assert value == pytest.approx(float(loss(at)))
    torch.testing.assert_close(torch.from_numpy(gradient), torch.autograd.grad(loss(at), at)[0])
    found = problem.learn(arms, y, Learned((0.1,)), 0)
    best = np.log([found.lengthscale[0], found.prior_variance, found.noise])
    bounds = np.log([found.bounds, verma.PRIOR_VARIANCES, verma.NOISES])
    assert (best >= bounds[:, 0] - 1e-9).all()
    assert (best <= bounds[:, 1] + 1e-9).all()
    drawn = bounds[:, 0] + (bounds[:, 1] - bounds[:, 0]) * np.random.default_rng(0).random((300, 3))
    least = verma.negative_evidence(best, squares, y)[0]
    assert all(verma.negative_evidence(each, squares, y)[0] >= least - 1e-6 for each in drawn)


def test_simple_regret_counts_what_arrived_in_time() -> None:
    problem = line()
    method = LateMethod("", "censored", DELAYS, max_delay=2, learns=False)
    played = play_late(problem, method, SEED, ROUNDS)
    for t in (1, 4, 17, ROUNDS):
        heard = [played.regret[s] for s in known(t + 1, 2)]
        assert played.simple_regret[t - 1] == min([1.0 * np.ptp(problem.values), *heard])


def test_only_censored_feedback_has_zeros_and_only_baselines_start_uniformly() -> None:
    censored, *others = verma.compared("UCB", DELAYS, 20, zeros=True)
    assert censored.fitted_to_zeros
    assert not any(each.fitted_to_zeros for each in others)
    assert (censored.max_delay, censored.uniform_until) == (20, 0)
    assert all((each.max_delay, each.uniform_until) == (None, 2) for each in others)
    problem = line()
    own, zeros = (
        play_late(problem, replace(censored, fitted_to_zeros=each), SEED, 25).arms
        for each in (False, True)
    )
    assert own[:10] == zeros[:10]  # before the first fit
    assert own != zeros


def test_logistic_regression_against_automatic_gradients() -> None:
    stream = np.random.default_rng(0)
    X, Z = stream.normal(size=(70, 3)), stream.normal(size=(30, 3))
    y, z = (X[:, 0] > 0).astype(int), (Z[:, 0] > 0).astype(int)
    weights = verma.uniform(4, "weights", (4,), 3).requires_grad_()
    inputs = torch.from_numpy(np.concatenate([X, np.ones((70, 1))], 1))
    for step, rows in enumerate(verma.batches(70, 4, 20, 32)):
        at = torch.from_numpy(rows)
        loss = functional.binary_cross_entropy_with_logits(
            inputs[at] @ weights, torch.from_numpy(y)[at].double()
        )
        (slope,) = torch.autograd.grad(loss, weights)
        weights = (weights - 0.3 / (1.0 + 0.01 * step) * slope).detach().requires_grad_()
    chosen = torch.from_numpy(Z) @ weights[:3] + weights[3] > 0
    expected = float((chosen.numpy() == (z == 1)).mean())
    assert verma.logistic(4, X, y, Z, z)((32.0, 0.3, 0.01)) == expected


def test_the_network_against_torch_layers() -> None:
    stream = np.random.default_rng(1)
    X, Z = 16.0 * stream.random((60, 64)), 16.0 * stream.random((40, 64))
    y, z = stream.integers(0, 3, 60), stream.integers(0, 3, 40)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(3),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 8),
        torch.nn.ReLU(),
        torch.nn.Linear(8, 3),
    ).double()
    fans = (9, 9, 32, 32, 8, 8)
    for i, (parameter, fan) in enumerate(zip(layers.parameters(), fans, strict=True)):
        drawn = verma.uniform(2, f"weights {i}", tuple(parameter.shape), fan)
        parameter.data.copy_(drawn)
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.02)
    images, held = (torch.from_numpy(part / 16.0).reshape(-1, 1, 8, 8) for part in (X, Z))
    for step, rows in enumerate(verma.batches(60, 2, 10, 25)):
        optimizer.param_groups[0]["lr"] = 0.02 / (1.0 + 0.1 * step)
        at = torch.from_numpy(rows)
        optimizer.zero_grad()
        functional.cross_entropy(layers(images[at]), torch.from_numpy(y)[at]).backward()
        optimizer.step()
    expected = float((layers(held).argmax(-1).numpy() == z).mean())
    assert verma.network(2, X, y, Z, z)((25.0, 0.02, 0.1)) == expected


def test_a_tuning_plays_its_accuracies_in_a_loop() -> None:
    domain, make = verma.tuned("logistic", None, 0)
    reward = make(1)
    (method, *_) = verma.compared("UCB", DELAYS, 6, start=verma.START)
    seen: list[float] = []

    def noted(x: Any) -> float:
        seen.append(reward(x))
        return seen[-1]

    regret, simple = verma.play_loop(domain, noted, 1.0, method, 3, 12)
    accuracies = seen[-12:]  # those of the regret come last
    np.testing.assert_allclose(regret, 1.0 - np.array(accuracies))
    assert float(simple[-1]) >= 1.0 - max(accuracies)
    assert 0.5 < max(accuracies) <= 1.0
    low, high = (
        np.array(ends) for ends in (verma.TASKS["logistic"].low, verma.TASKS["logistic"].high)
    )
    sizes = low[0] + (high - low)[0] * domain.choices[:, 0].numpy()
    np.testing.assert_allclose(sizes, sizes.round())  # batches have whole numbers of rows


def test_bad_task_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "tasks.npz"
    np.savez(
        path, context=np.zeros((3, 2)), hyperparameters=np.zeros((4, 1)), accuracy=np.ones((4, 3))
    )
    (panel, *_) = verma.contextual(path, num_trials=1, num_rounds=5)
    study = panel.make_study(0, 1)
    with pytest.raises(ValueError, match=r"accuracy.*\(4, 3\)"):
        panel.player(study, panel.make_methods(study)[0])

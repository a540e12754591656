"""Training by stochastic gradients, against the same training written another way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from torch import nn

from botorch_bandits.random_streams import generator
from papers.verma_problems import ConvolutionalNetworkTuning, LogisticRegressionTuning, _network

CANCER, DIGITS = load_breast_cancer(return_X_y=True), load_digits(return_X_y=True)
SETTINGS = {"batch_size": 50, "learning_rate": 0.3, "decay": 0.02}


def order_of(seed: int, epoch: int, num_rows: int) -> Any:
    return torch.randperm(num_rows, generator=generator(seed, epoch, "training order"))


def uniform(seed: int, purpose: str, shape: tuple[int, ...], fan_in: int) -> torch.Tensor:
    drawn = torch.rand(shape, dtype=torch.float64, generator=generator(seed, 0, purpose))
    return (2 * drawn - 1) / fan_in**0.5


def test_logistic_regression_against_automatic_gradients() -> None:
    problem = LogisticRegressionTuning(*CANCER, seed=3, num_epochs=4)
    X = torch.from_numpy(problem.train_inputs)
    y = torch.from_numpy(problem.train_labels).to(torch.float64)
    w = uniform(3, "weights", (31,), 30).requires_grad_()
    optimizer = torch.optim.SGD([w], lr=SETTINGS["learning_rate"])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1 / (1 + 0.02 * k))
    num_steps = 0
    for epoch in range(1, 5):
        for rows in order_of(3, epoch, len(X)).split(50):
            optimizer.zero_grad()
            logits = X[rows] @ w[:-1] + w[-1]
            nn.functional.binary_cross_entropy_with_logits(logits, y[rows]).backward()
            optimizer.step()
            schedule.step()
            num_steps += 1
    assert num_steps == 4 * 8
    expected = w.detach().numpy()
    assert np.allclose(problem.train(**SETTINGS), expected, atol=1e-12, rtol=0)
    predicted = problem.test_inputs @ expected[:-1] + expected[-1] > 0
    accuracy = (predicted == (problem.test_labels == 1)).mean()
    assert problem.accuracy(**SETTINGS) == pytest.approx(accuracy, abs=1e-12)


def dense_network(weights: list[np.ndarray], image: np.ndarray) -> np.ndarray:
    """The network on one 8 x 8 image, entry by entry."""
    maps = np.zeros((8, 6, 6))
    for c in range(8):
        for i in range(6):
            for j in range(6):
                patch = image[i : i + 3, j : j + 3]
                maps[c, i, j] = max(0.0, (weights[0][c, 0] * patch).sum() + weights[1][c])
    pooled = [
        maps[c, 3 * i : 3 * i + 3, 3 * j : 3 * j + 3].max()
        for c in range(8)
        for i in range(2)
        for j in range(2)
    ]
    hidden = np.maximum(weights[2] @ np.array(pooled) + weights[3], 0.0)
    return weights[4] @ hidden + weights[5]


def test_the_network_entry_by_entry() -> None:
    stream = generator(0, 0, "test")
    shapes = [(8, 1, 3, 3), (8,), (8, 32), (8,), (10, 8), (10,)]
    weights = [torch.randn(s, dtype=torch.float64, generator=stream) for s in shapes]
    images = torch.rand(5, 1, 8, 8, dtype=torch.float64, generator=stream)
    expected = [dense_network([w.numpy() for w in weights], x[0].numpy()) for x in images]
    assert np.allclose(_network(weights, images).numpy(), np.stack(expected), atol=1e-12, rtol=0)


def test_convolutional_network_against_torch_layers_and_adam_by_hand() -> None:
    problem = ConvolutionalNetworkTuning(*DIGITS, seed=5, num_epochs=8)
    network = nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten()),
        *(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 10)),
    ).double()
    parameters = list(network.parameters())
    with torch.no_grad():
        for number, (p, fan_in) in enumerate(zip(parameters, (9, 9, 32, 32, 8, 8), strict=True)):
            p.copy_(uniform(5, f"weights {number}", tuple(p.shape), fan_in))
    images = torch.from_numpy(problem.train_inputs).reshape(-1, 1, 8, 8)
    labels = torch.from_numpy(problem.train_labels)
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
    step = 0
    for epoch in range(1, 9):
        for rows in order_of(5, epoch, len(images)).split(200):
            loss = nn.functional.cross_entropy(network(images[rows]), labels[rows])
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for p, g, (m, v) in zip(parameters, gradients, moments, strict=True):
                    m.mul_(0.9).add_(0.1 * g)
                    v.mul_(0.999).add_(0.001 * g * g)
                    first, second = m / (1 - 0.9 ** (step + 1)), v / (1 - 0.999 ** (step + 1))
                    p.sub_(0.05 / (1 + 0.01 * step) * first / (second.sqrt() + 1e-8))
            step += 1
    test_images = torch.from_numpy(problem.test_inputs).reshape(-1, 1, 8, 8)
    with torch.no_grad():
        predicted = network(test_images).argmax(-1).numpy()
    expected = (predicted == problem.test_labels).mean()
    assert 0.3 < expected < 0.95  # it has learned something, and not everything
    found = problem.accuracy(batch_size=200, learning_rate=0.05, decay=0.01)
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("problem_class", "data"),
    [(LogisticRegressionTuning, CANCER), (ConvolutionalNetworkTuning, DIGITS)],
    ids=["logistic regression", "network"],
)
def test_evaluations_are_functions_of_hyperparameters_and_seed(
    problem_class: type, data: tuple[Any, Any]
) -> None:
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    problem = problem_class(*data, seed=1, num_epochs=2)
    low, high = problem.box.bounds
    x = low + torch.tensor([0.5, 0.8, 0.2], dtype=torch.float64) * (high - low)
    x[0] = x[0].round()
    with torch.no_grad():
        value = problem(x)
    problem(high)
    assert problem(x) == value == problem_class(*data, seed=1, num_epochs=2)(x)
    others = [problem_class(*data, seed=s, num_epochs=2)(x) for s in (2, 3, 4)]
    assert any(other != value for other in others)
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()
    for corner in (low, high):
        assert 0.0 <= problem(corner) <= 1.0


def test_boxes_have_the_published_ranges() -> None:
    for problem, smallest, largest in (
        (LogisticRegressionTuning(*CANCER), 32, 128),
        (ConvolutionalNetworkTuning(*DIGITS), 128, 512),
    ):
        bounds = [[smallest, -6.0, -6.0], [largest, 0.0, 0.0]]
        assert torch.allclose(problem.box.bounds, torch.tensor(bounds, dtype=torch.float64))
        assert problem.box.integer_dims == (0,)
        decoded = problem.decode([128.0, -1.0, -2.0])
        assert list(decoded) == ["batch_size", "learning_rate", "decay"]
        assert isinstance(decoded["batch_size"], int)


def test_bad_arguments_are_named() -> None:
    problem = LogisticRegressionTuning(*CANCER)
    with pytest.raises(ValueError, match="batch_size is 0"):
        problem.accuracy(batch_size=0, learning_rate=0.1, decay=0.1)
    with pytest.raises(TypeError, match="batch_size must be an integer"):
        problem.accuracy(batch_size=3.5, learning_rate=0.1, decay=0.1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="learning_rate is -1"):
        problem.accuracy(batch_size=32, learning_rate=-1.0, decay=0.1)
    with pytest.raises(ValueError, match="decay is inf"):
        problem.accuracy(batch_size=32, learning_rate=0.1, decay=float("inf"))
    with pytest.raises(ValueError, match="3 classes; 2 are needed"):
        LogisticRegressionTuning(*load_iris(return_X_y=True))
    with pytest.raises(ValueError, match="30 columns"):
        ConvolutionalNetworkTuning(*CANCER)
    with pytest.raises(ValueError, match="num_epochs is 0"):
        ConvolutionalNetworkTuning(*DIGITS, num_epochs=0)

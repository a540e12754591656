"""Tuning problems of Verma, Dai and Low 2022: accuracy on a held-out part of the data.

As in the experiments of the paper (appendix C.2), 70 % of the rows are used for training and the
other 30 % give the accuracy. An evaluation is a pure function of the hyperparameters and the seed;
no global random state is used. By default, features are standardized, and rates and penalties are
searched over their logarithms; the authors' released code does neither.

A support vector machine has ``C`` and ``gamma`` to tune. Logistic regression and a convolutional
network have the batch size, the learning rate and its decay, and are trained with stochastic
gradients. The paper does not say how the learning rate decays; here, step ``k`` (from 0) uses
``learning_rate / (1 + decay k)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from botorch_bandits import Float, Integer, Space
from botorch_bandits.checks import check_integer, check_nonnegative, check_positive
from botorch_bandits.problems import (
    check_labeled_data,
    need_scikit_learn,
)
from botorch_bandits.random_streams import generator
from papers.environments import AccuracyProblem

FloatArray = NDArray[np.float64]


class HoldOutTuning(AccuracyProblem):
    """The accuracy on held-out rows as a function of hyperparameters.

    Args:
        inputs: ``n x p`` features.
        labels: ``n`` class labels.
        seed: Seeds the split of the rows and the draws of the training; all evaluations share both.
        standardizes: Whether to standardize features with the training rows.
        logarithmic: Whether to search over logarithms if a range spans several orders of magnitude.

    Attributes:
        space: The hyperparameters that are tuned.
        train_labels: Class numbers, from 0, of the training rows.
        test_labels: Class numbers of the held-out rows.

    Raises:
        ValueError: If the data are not two-dimensional and finite with one label per row, or if the
            training rows lack a class.
    """

    def __init__(
        self,
        inputs: FloatArray,
        labels: NDArray[Any],
        seed: int = 0,
        *,
        standardizes: bool = True,
        logarithmic: bool = True,
    ) -> None:
        """See the class."""
        self.seed = check_integer("seed", seed, minimum=0)
        self.standardizes = standardizes
        if not logarithmic:
            self.space = _without_logarithms(self.space)
        inputs, labels = check_labeled_data(inputs, labels)
        classes, numbers = np.unique(labels, return_inverse=True)
        train, test = self._split(numbers)
        self.num_classes = len(classes)
        if len(classes) < 2 or len(np.unique(numbers[train])) < len(classes) or len(test) == 0:
            raise ValueError(
                f"labels have {len(classes)} classes in {len(labels)} rows; at least 2 are needed, "
                "each among the rows to train on. Is the target column a class?"
            )
        self.train_inputs, self.test_inputs = self._scale(inputs[train], inputs[test])
        self.train_labels, self.test_labels = numbers[train], numbers[test]

    def _split(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the training rows and the held-out rows."""
        order = torch.randperm(len(numbers), generator=generator(self.seed, 0, "split")).numpy()
        train, test = np.split(order, [round(0.7 * len(numbers))])
        return train, test

    def _scale(self, train: FloatArray, test: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Standardize both parts with the training rows, if requested."""
        if not self.standardizes:
            return train, test
        mean, deviation = train.mean(0), train.std(0)
        deviation[deviation == 0.0] = 1.0
        return (train - mean) / deviation, (test - mean) / deviation

    def batches(self, num_epochs: int, batch_size: int) -> Iterator[NDArray[np.int64]]:
        """Yield the training rows of each step.

        Args:
            num_epochs: The number of passes through all rows, each in its own order.
            batch_size: The number of rows per step; the last step of an epoch may have fewer.
        """
        for epoch in range(1, num_epochs + 1):
            stream = generator(self.seed, epoch, "training order")
            order = torch.randperm(len(self.train_labels), generator=stream).numpy()
            for first in range(0, len(order), batch_size):
                yield order[first : first + batch_size]

    def uniform(self, purpose: str, shape: tuple[int, ...], fan_in: int) -> Tensor:
        """Return starting weights, uniform within ``1 / sqrt(fan_in)`` of 0.

        Args:
            purpose: A word that distinguishes weights.
            shape: The shape of the weights.
            fan_in: The number of inputs of a node.
        """
        stream = generator(self.seed, 0, purpose)
        uniform = torch.rand(shape, dtype=torch.float64, generator=stream)
        return (2.0 * uniform - 1.0) / fan_in**0.5


def _without_logarithms(space: Space) -> Space:
    return Space(
        {
            name: replace(p, log=False) if isinstance(p, Float) else p
            for name, p in space.parameters.items()
        }
    )


class SupportVectorTuning(HoldOutTuning):
    """A support vector machine with an RBF kernel (scikit-learn's).

    Example:
        >>> from sklearn.datasets import load_iris
        >>> problem = SupportVectorTuning(*load_iris(return_X_y=True))
        >>> 0.9 < problem.accuracy(C=1.0, gamma=0.1) <= 1.0
        True
    """

    space = Space({"C": Float(1e-4, 100.0, log=True), "gamma": Float(1e-4, 10.0, log=True)})

    def accuracy(self, C: float, gamma: float) -> float:  # type: ignore[override]
        """Return the accuracy on the held-out rows.

        Args:
            C: The penalty parameter.
            gamma: The parameter of the RBF kernel ``exp(-gamma |x - z|^2)``.

        Raises:
            ImportError: If scikit-learn is not installed.
        """
        need_scikit_learn()
        from sklearn.svm import SVC

        machine = SVC(C=check_positive("C", C), gamma=check_positive("gamma", gamma))
        machine.fit(self.train_inputs, self.train_labels)
        return float((machine.predict(self.test_inputs) == self.test_labels).mean())


class StratifiedSupportVectorTuning(SupportVectorTuning):
    """The same with scikit-learn's stratified split, as in the authors' released code.

    Raises:
        ImportError: If scikit-learn is not installed.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> problem = StratifiedSupportVectorTuning(*load_iris(return_X_y=True))
        >>> np.bincount(problem.test_labels).tolist()
        [15, 15, 15]
    """

    def _split(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        need_scikit_learn()
        from sklearn.model_selection import train_test_split

        rows = np.arange(len(numbers))
        train, test = train_test_split(
            rows, test_size=0.3, stratify=numbers, random_state=self.seed
        )
        return train, test


def _sgd_space(smallest: int, largest: int) -> Space:
    return Space(
        {
            "batch_size": Integer(smallest, largest),
            "learning_rate": Float(1e-6, 1.0, log=True),
            "decay": Float(1e-6, 1.0, log=True),
        }
    )


def _check_sgd(batch_size: int, learning_rate: float, decay: float) -> tuple[int, float, float]:
    return (
        check_integer("batch_size", batch_size, minimum=1),
        check_positive("learning_rate", learning_rate),
        check_nonnegative("decay", decay),
    )


class LogisticRegressionTuning(HoldOutTuning):
    """Logistic regression by stochastic gradient descent.

    The weights ``w`` and the offset start at random, uniform within ``1 / sqrt(p)`` of 0. Each step
    moves them against the mean gradient of the logistic loss on its mini-batch.

    Args:
        inputs: ``n x p`` features.
        labels: ``n`` labels of two classes.
        seed: Seeds the split, the starting weights and the mini-batches.
        num_epochs: How often the training goes through the rows.
        options: See :class:`HoldOutTuning`.

    Raises:
        ValueError: If there are more than two classes, or the data are unsuitable.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> problem = LogisticRegressionTuning(*load_breast_cancer(return_X_y=True))
        >>> problem.accuracy(batch_size=32, learning_rate=0.1, decay=1e-4) > 0.95
        True
    """

    space = _sgd_space(32, 128)

    def __init__(
        self,
        inputs: FloatArray,
        labels: NDArray[Any],
        seed: int = 0,
        num_epochs: int = 20,
        **options: bool,
    ) -> None:
        """See the class."""
        super().__init__(inputs, labels, seed, **options)
        self.num_epochs = check_integer("num_epochs", num_epochs, minimum=1)
        if self.num_classes != 2:
            raise ValueError(f"labels have {self.num_classes} classes; 2 are needed.")

    def accuracy(  # type: ignore[override]
        self, batch_size: int, learning_rate: float, decay: float
    ) -> float:
        """Return the accuracy on the held-out rows.

        Args:
            batch_size: Rows of a mini-batch; the last one of an epoch may be smaller.
            learning_rate: The learning rate of the first step.
            decay: How fast the learning rate falls.
        """
        weights = self.train(batch_size, learning_rate, decay)
        positive = self.test_inputs @ weights[:-1] + weights[-1] > 0.0
        return float((positive == (self.test_labels == 1)).mean())

    def train(self, batch_size: int, learning_rate: float, decay: float) -> FloatArray:
        """Return the ``p`` weights, followed by the offset."""
        batch_size, learning_rate, decay = _check_sgd(batch_size, learning_rate, decay)
        num_rows, dim = self.train_inputs.shape
        inputs = np.concatenate([self.train_inputs, np.ones((num_rows, 1))], axis=1)
        weights: FloatArray = self.uniform("weights", (dim + 1,), dim).numpy()
        for step, rows in enumerate(self.batches(self.num_epochs, batch_size)):
            batch = inputs[rows]
            # the logistic function in a form that does not overflow
            probability = 0.5 * (1.0 + np.tanh(0.5 * (batch @ weights)))
            gradient = batch.T @ (probability - self.train_labels[rows]) / len(rows)
            weights = weights - learning_rate / (1.0 + decay * step) * gradient
        return weights


class ConvolutionalNetworkTuning(HoldOutTuning):
    """A small convolutional network on 8 x 8 images, trained by Adam.

    The network of Verma, Dai and Low 2022: one convolution (8 channels, 3 x 3), max-pooling of size
    3, a fully connected layer of 8 nodes, ReLU activations, and one output per class.

    Args:
        inputs: ``n x 64`` pixels from 0 to 16, as in scikit-learn's digits.
        labels: ``n`` class labels.
        seed: Seeds the split, the starting weights and the mini-batches.
        num_epochs: How often the training goes through the rows.
        options: See :class:`HoldOutTuning`.

    Raises:
        ValueError: If there are not 64 pixels, or the data are unsuitable.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> problem = ConvolutionalNetworkTuning(*load_digits(return_X_y=True), num_epochs=4)
        >>> problem.accuracy(batch_size=128, learning_rate=0.03, decay=1e-4) > 0.3
        True
    """

    space = _sgd_space(128, 512)

    def __init__(
        self,
        inputs: FloatArray,
        labels: NDArray[Any],
        seed: int = 0,
        num_epochs: int = 10,
        **options: bool,
    ) -> None:
        """See the class."""
        super().__init__(inputs, labels, seed, **options)
        self.num_epochs = check_integer("num_epochs", num_epochs, minimum=1)
        if self.train_inputs.shape[1] != 64:
            raise ValueError(
                f"inputs have {self.train_inputs.shape[1]} columns; images of 8 x 8 pixels have 64."
            )

    def accuracy(  # type: ignore[override]
        self, batch_size: int, learning_rate: float, decay: float
    ) -> float:
        """Return the accuracy on the held-out images.

        Args:
            batch_size: Images of a mini-batch; the last one of an epoch may be smaller.
            learning_rate: The learning rate of the first step.
            decay: How fast the learning rate falls.
        """
        batch_size, learning_rate, decay = _check_sgd(batch_size, learning_rate, decay)
        images, labels = _as_images(self.train_inputs), torch.from_numpy(self.train_labels)
        weights = [
            self.uniform(f"weights {number}", shape, fan_in).requires_grad_()
            for number, (shape, fan_in) in enumerate(self._shapes())
        ]
        optimizer = torch.optim.Adam(weights, lr=learning_rate)
        with torch.enable_grad():
            for step, rows in enumerate(self.batches(self.num_epochs, batch_size)):
                optimizer.param_groups[0]["lr"] = learning_rate / (1.0 + decay * step)
                batch = torch.from_numpy(rows)
                optimizer.zero_grad()
                functional.cross_entropy(_network(weights, images[batch]), labels[batch]).backward()
                optimizer.step()
        with torch.no_grad():
            predicted = _network(weights, _as_images(self.test_inputs)).argmax(-1).numpy()
        return float((predicted == self.test_labels).mean())

    def _scale(self, train: FloatArray, test: FloatArray) -> tuple[FloatArray, FloatArray]:
        return train / 16.0, test / 16.0

    def _shapes(self) -> list[tuple[tuple[int, ...], int]]:
        """Return the shapes and the numbers of inputs of weights and offsets, layer by layer."""
        layers: list[tuple[tuple[int, ...], int]] = [
            ((8, 1, 3, 3), 9),
            ((8, 32), 32),
            ((self.num_classes, 8), 8),
        ]
        return [part for shape, fan in layers for part in ((shape, fan), ((shape[0],), fan))]


def _as_images(pixels: FloatArray) -> Tensor:
    return torch.from_numpy(pixels).reshape(-1, 1, 8, 8)


def _network(weights: list[Tensor], images: Tensor) -> Tensor:
    """Return one number per class for each image (its log odds, up to a constant)."""
    hidden = functional.relu(functional.conv2d(images, weights[0], weights[1]))
    hidden = functional.max_pool2d(hidden, 3).flatten(1)
    hidden = functional.relu(functional.linear(hidden, weights[2], weights[3]))
    return functional.linear(hidden, weights[4], weights[5])

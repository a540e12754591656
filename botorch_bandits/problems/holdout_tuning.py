"""Hyperparameter tuning with the accuracy on a held-out part of the data as reward.

As in the experiments of Verma, Dai and Low 2022 (appendix C.2), 70 % of the rows are trained on and
the other 30 % give the accuracy. An evaluation is a pure function of the hyperparameters and the
seed; no global random state is used. :mod:`~botorch_bandits.problems.sgd_tuning` has models that
are trained by stochastic gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.checks import check_integer, check_positive
from botorch_bandits.problems.hyperparameters import (
    AccuracyProblem,
    Hyperparameter,
    check_labelled_data,
    need_scikit_learn,
)
from botorch_bandits.random_streams import generator

FloatArray = NDArray[np.float64]


class HoldOutTuning(AccuracyProblem):
    """The accuracy on held-out rows as a function of hyperparameters.

    Args:
        inputs: ``n x p`` features.
        labels: ``n`` class labels.
        seed: Seeds the split of the rows and whatever the training draws; all evaluations share
            both.

    Attributes:
        hyperparameters: What is tuned, in the order of the coordinates.
        train_labels: Class numbers from 0 of the rows to train on.
        test_labels: Class numbers of the held-out rows.

    Raises:
        ValueError: If the data are not two-dimensional and finite with one label a row, or if the
            training rows lack a class.
    """

    def __init__(self, inputs: FloatArray, labels: NDArray[Any], seed: int = 0) -> None:
        """See the class."""
        self.seed = check_integer("seed", seed, minimum=0)
        inputs, labels = check_labelled_data(inputs, labels)
        classes, numbers = np.unique(labels, return_inverse=True)
        order = torch.randperm(len(inputs), generator=generator(seed, 0, "split")).numpy()
        train, test = np.split(order, [round(0.7 * len(inputs))])
        self.num_classes = len(classes)
        if len(classes) < 2 or len(np.unique(numbers[train])) < len(classes) or len(test) == 0:
            raise ValueError(
                f"labels have {len(classes)} classes in {len(labels)} rows; at least 2 are needed, "
                "each among the rows to train on. Is the target column a class?"
            )
        self.train_inputs, self.test_inputs = self._scale(inputs[train], inputs[test])
        self.train_labels, self.test_labels = numbers[train], numbers[test]

    def _scale(self, train: FloatArray, test: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Standardise both parts by what the training rows say."""
        mean, deviation = train.mean(0), train.std(0)
        deviation[deviation == 0.0] = 1.0
        return (train - mean) / deviation, (test - mean) / deviation

    def batches(self, num_epochs: int, batch_size: int) -> Iterator[NDArray[np.int64]]:
        """Yield the training rows of each step.

        Args:
            num_epochs: How often all rows are gone through, each time in an order of its own.
            batch_size: Rows a step; the last one of an epoch may have fewer.
        """
        for epoch in range(1, num_epochs + 1):
            stream = generator(self.seed, epoch, "training order")
            order = torch.randperm(len(self.train_labels), generator=stream).numpy()
            for first in range(0, len(order), batch_size):
                yield order[first : first + batch_size]

    def uniform(self, purpose: str, shape: tuple[int, ...], fan_in: int) -> Tensor:
        """Return starting weights, uniform within ``1 / sqrt(fan_in)`` of 0.

        Args:
            purpose: A word that keeps weights apart.
            shape: Of the weights.
            fan_in: How many inputs a node has.
        """
        stream = generator(self.seed, 0, purpose)
        uniform = torch.rand(shape, dtype=torch.float64, generator=stream)
        return (2.0 * uniform - 1.0) / fan_in**0.5


class SupportVectorTuning(HoldOutTuning):
    """A support vector machine with RBF kernel on standardised features (scikit-learn's).

    Example:
        >>> from sklearn.datasets import load_iris
        >>> problem = SupportVectorTuning(*load_iris(return_X_y=True))
        >>> 0.9 < problem.accuracy(C=1.0, gamma=0.1) <= 1.0
        True
    """

    hyperparameters = (
        Hyperparameter("C", 1e-4, 100.0, "log10"),
        Hyperparameter("gamma", 1e-4, 10.0, "log10"),
    )

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

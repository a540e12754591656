"""Hyperparameter tuning of scikit-learn classifiers on real data, as a bandit's reward.

The reward is the accuracy in cross-validation with fixed folds. Points live in a box whose
coordinates are the hyperparameters, logarithms to base 10 where that is the natural scale.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from botorch_bandits.checks import check_integer
from botorch_bandits.problems.hyperparameters import (
    AccuracyProblem,
    Hyperparameter,
    check_labelled_data,
    need_scikit_learn,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Task:
    """A kind of classifier and the hyperparameters to tune.

    Attributes:
        title: The classifier in words.
        hyperparameters: What is tuned.
        build: Makes the estimator from the hyperparameters (none: scikit-learn's defaults).
    """

    title: str
    hyperparameters: tuple[Hyperparameter, ...]
    build: Callable[..., Any]


class TuningProblem(AccuracyProblem):
    """The cross-validated accuracy of a classifier as a function of its hyperparameters.

    Args:
        task: ``"svm"``, ``"logistic-regression"`` or ``"gradient-boosting"``.
        inputs: ``n x p`` features.
        labels: ``n`` class labels.
        num_folds: Folds of the stratified cross-validation.
        fold_seed: Seeds their shuffling; all evaluations share the folds.

    Raises:
        ImportError: If scikit-learn is not installed.
        ValueError: If the task is unknown, or the data do not allow stratified folds.

    Example:
        >>> import torch
        >>> from sklearn.datasets import load_iris
        >>> problem = TuningProblem("svm", *load_iris(return_X_y=True))
        >>> [h.name for h in problem.hyperparameters]
        ['C', 'gamma']
        >>> accuracy = problem(torch.tensor([0.0, -1.0], dtype=torch.float64))  # C = 1, gamma = 0.1
        >>> 0.9 < accuracy <= 1.0
        True
    """

    def __init__(
        self,
        task: str,
        inputs: NDArray[np.float64],
        labels: NDArray[Any],
        num_folds: int = 5,
        fold_seed: int = 0,
    ) -> None:
        """See the class."""
        need_scikit_learn()
        from sklearn.model_selection import StratifiedKFold

        tasks = make_tasks()
        if task not in tasks:
            raise ValueError(f"task is {task!r}; it must be one of {', '.join(tasks)}.")
        self.task = tasks[task]
        self.task_name, self._fold_seed = task, fold_seed
        num_folds = check_integer("num_folds", num_folds, minimum=2)
        inputs, labels = check_labelled_data(inputs, labels)
        classes, counts = np.unique(labels, return_counts=True)
        if len(classes) < 2 or counts.min() < num_folds:
            raise ValueError(
                f"labels have {len(classes)} classes, the rarest with {counts.min()} rows; "
                f"{num_folds}-fold cross-validation needs at least 2 classes with {num_folds} rows "
                "each. Is the target column a class?"
            )
        self.inputs, self.labels = inputs, labels
        self._folds = StratifiedKFold(num_folds, shuffle=True, random_state=fold_seed)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how other processes make it: a task's functions cannot be pickled."""
        args = (self.task_name, self.inputs, self.labels, self.num_folds, self._fold_seed)
        return type(self), args

    @property
    def num_folds(self) -> int:
        """How many folds the cross-validation has."""
        return int(self._folds.get_n_splits())

    def on_rows(self, rows: NDArray[np.bool_]) -> TuningProblem:
        """Return the same problem on some of the rows; folds are made anew."""
        rest = (self.num_folds, self._fold_seed)
        return TuningProblem(self.task_name, self.inputs[rows], self.labels[rows], *rest)

    @property
    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """What is tuned, in the order of the coordinates."""
        return self.task.hyperparameters

    def default_accuracy(self) -> float:
        """Return the accuracy of scikit-learn's default hyperparameters on the same folds."""
        return self.accuracy()

    def accuracy(self, **hyperparameters: float | int) -> float:
        """Return the cross-validated accuracy of explicit hyperparameters."""
        return float(self.cross_validate(hyperparameters)["test_score"].mean())

    def cross_validate(self, hyperparameters: dict[str, float | int]) -> dict[str, Any]:
        """Return what scikit-learn's ``cross_validate`` does, with the models of the folds."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.model_selection import cross_validate

        with warnings.catch_warnings():
            # a model that stopped early still has an accuracy, and that is what is tuned
            warnings.simplefilter("ignore", ConvergenceWarning)
            scores: dict[str, Any] = cross_validate(
                self.task.build(**hyperparameters),
                self.inputs,
                self.labels,
                cv=self._folds,
                return_estimator=True,
            )
        return scores


def make_tasks() -> dict[str, Task]:
    """Return the tasks by name. The SVM's ranges are those of Verma, Dai and Low 2022."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    return {
        "svm": Task(
            "support vector machine with RBF kernel on standardised features",
            (Hyperparameter("C", 1e-4, 100.0, "log10"), Hyperparameter("gamma", 1e-4, 10, "log10")),
            lambda **h: make_pipeline(StandardScaler(), SVC(**h)),
        ),
        "logistic-regression": Task(
            "logistic regression with elastic net on standardised features",
            (Hyperparameter("C", 1e-4, 100.0, "log10"), Hyperparameter("l1_ratio", 0.0, 1.0)),
            lambda **h: make_pipeline(
                StandardScaler(),
                LogisticRegression(**h, solver="saga", max_iter=300, random_state=0),
            ),
        ),
        "gradient-boosting": Task(
            "histogram gradient boosting",
            (
                Hyperparameter("learning_rate", 1e-3, 1.0, "log10"),
                Hyperparameter("max_leaf_nodes", 2, 64, "integer"),
                Hyperparameter("l2_regularization", 1e-4, 100.0, "log10"),
            ),
            lambda **h: HistGradientBoostingClassifier(
                **{"max_iter": 50, **h}, early_stopping=False, random_state=0
            ),
        ),
    }


TASK_NAMES = ("svm", "logistic-regression", "gradient-boosting")
DATASETS = ("breast-cancer", "digits", "wine", "iris")


def load_dataset(name: str) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return features and labels of a data set that scikit-learn bundles.

    Args:
        name: ``"breast-cancer"``, ``"digits"``, ``"wine"`` or ``"iris"``.

    Raises:
        ImportError: If scikit-learn is not installed.
        ValueError: If the name is unknown.
    """
    need_scikit_learn()
    from sklearn import datasets

    if name not in DATASETS:
        raise ValueError(f"dataset is {name!r}; it must be one of {', '.join(DATASETS)}.")
    inputs, labels = getattr(datasets, f"load_{name.replace('-', '_')}")(return_X_y=True)
    return inputs, labels


def load_csv(path: str | Path, target: str) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return features and labels of a CSV file with a header.

    Text columns become one indicator a category; rows with missing values are refused.

    Args:
        path: The file.
        target: The column with the class labels.

    Raises:
        ImportError: If pandas is not installed.
        ValueError: If the file cannot be read, the column does not exist, or a value is missing.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            "reading a CSV file needs pandas: pip install 'botorch_bandits[tune]'."
        ) from error
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"data file {path} cannot be read: {error}") from error
    if target not in table.columns:
        known = ", ".join(map(str, table.columns))
        raise ValueError(f"target column {target!r} is not in {path}; it has {known}.")
    missing = table.isna().sum()
    if missing.any():
        column = missing.idxmax()
        raise ValueError(
            f"column {column!r} of {path} lacks {missing[column]} values; fill or drop them first."
        )
    if table.shape[1] == 1:
        raise ValueError(f"{path} has no column beside the target {target!r}.")
    features = pd.get_dummies(table.drop(columns=[target]), dtype=float)
    return features.to_numpy(dtype=np.float64), table[target].to_numpy()

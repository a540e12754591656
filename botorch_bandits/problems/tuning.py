"""Hyperparameter tuning of scikit-learn classifiers on real data, as a bandit's reward.

The reward is the accuracy in cross-validation with fixed folds, as a function on a space of named
hyperparameters, logarithmic where that is the natural scale.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from botorch_bandits.checks import check_integer
from botorch_bandits.spaces import Float, Integer, Space

if TYPE_CHECKING:
    from numpy.typing import NDArray


def check_labeled_data(inputs: Any, labels: Any) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return features and labels as arrays, ``n x p`` and ``n``.

    Args:
        inputs: ``n x p`` features, finite numbers.
        labels: ``n`` classes.

    Raises:
        ValueError: If they are not two-dimensional and finite with one label per row.
    """
    inputs, labels = np.asarray(inputs, dtype=np.float64), np.asarray(labels)
    if inputs.ndim != 2 or labels.shape != (len(inputs),):
        raise ValueError(
            f"inputs have shape {inputs.shape} and labels {labels.shape}; they must be n x p and n."
        )
    if not np.isfinite(inputs).all():
        row, column = np.argwhere(~np.isfinite(inputs))[0]
        raise ValueError(
            f"inputs[{row}, {column}] is {inputs[row, column]}; fill or drop missing values."
        )
    return inputs, labels


def need_scikit_learn() -> None:
    """Raise an error if scikit-learn is missing.

    Raises:
        ImportError: With the command that installs it.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "tuning needs scikit-learn: pip install 'botorch_bandits[tune]'."
        ) from error


@dataclass(frozen=True)
class Task:
    """A kind of classifier and the hyperparameters to tune.

    Attributes:
        title: The classifier in words.
        space: The hyperparameters to tune.
        build: Makes the estimator from hyperparameters (none: scikit-learn's defaults).
    """

    title: str
    space: Space
    build: Callable[..., Any]

    def check_space(self, space: Space) -> Space:
        """Return a space if the classifier has an argument for each of its parameters.

        Raises:
            ValueError: If it does not.
        """
        built = self.build()
        known = getattr(built, "steps", [("", built)])[-1][1].get_params()
        for name in space.parameters:
            if name not in known:
                raise ValueError(
                    f"parameter {name!r} is not an argument of {self.title}; it has "
                    f"{', '.join(sorted(known))}."
                )
        return space


class TuningProblem:
    """The cross-validated accuracy of a classifier as a function of its hyperparameters.

    Args:
        task: ``"svm"``, ``"logistic-regression"`` or ``"gradient-boosting"``.
        inputs: ``n x p`` features.
        labels: ``n`` class labels.
        num_folds: Folds of the stratified cross-validation.
        fold_seed: The seed of their shuffling; all evaluations share the folds.
        space: The hyperparameters to tune; those of the task if omitted. Names are arguments of the
            classifier.

    Raises:
        ImportError: If scikit-learn is not installed.
        ValueError: If the task is unknown, the classifier has no argument of a parameter's name, or
            the data do not allow stratified folds.

    Example:
        >>> import torch
        >>> from sklearn.datasets import load_iris
        >>> problem = TuningProblem("svm", *load_iris(return_X_y=True))
        >>> problem.space
        Space({'C': Float(0.0001, 100.0, log=True), 'gamma': Float(0.0001, 10.0, log=True)})
        >>> accuracy = problem({"C": 1.0, "gamma": 0.1})
        >>> 0.9 < accuracy <= 1.0
        True
        >>> accuracy == problem(torch.tensor([0.0, -1.0], dtype=torch.float64))  # logarithms
        True
    """

    def __init__(
        self,
        task: str,
        inputs: NDArray[np.float64],
        labels: NDArray[Any],
        num_folds: int = 5,
        fold_seed: int = 0,
        space: Space | None = None,
    ) -> None:
        """See the class."""
        need_scikit_learn()
        from sklearn.model_selection import StratifiedKFold

        tasks = make_tasks()
        if task not in tasks:
            raise ValueError(f"task is {task!r}; it must be one of {', '.join(tasks)}.")
        self.task = tasks[task]
        self.space = self.task.space if space is None else self.task.check_space(space)
        self.task_name, self._fold_seed = task, fold_seed
        num_folds = check_integer("num_folds", num_folds, minimum=2)
        inputs, labels = check_labeled_data(inputs, labels)
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
        """Return how other processes build it, because a task's functions cannot be pickled."""
        rest = (self.num_folds, self._fold_seed, self.space)
        return type(self), (self.task_name, self.inputs, self.labels, *rest)

    @property
    def box(self) -> Space:
        """The space from which points are chosen."""
        return self.space

    def __call__(self, x: Any) -> float:
        """Return the accuracy at a point of the space: coordinates, or values by name."""
        return self.accuracy(**self.space.decode(x))

    @property
    def num_folds(self) -> int:
        """The number of folds of the cross-validation."""
        return int(self._folds.get_n_splits())

    def default_accuracy(self) -> float:
        """Return the accuracy of scikit-learn's default hyperparameters on the same folds."""
        return self.accuracy()

    def describe_estimator(self, hyperparameters: Mapping[str, Any]) -> str:
        """Return the classifier as a Python expression in one line.

        Args:
            hyperparameters: Values by name, which may lie outside the ranges.
        """
        return " ".join(repr(self.task.build(**hyperparameters)).split())

    def accuracy(self, **hyperparameters: float | int) -> float:
        """Return the cross-validated accuracy of given hyperparameters, also outside the ranges."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.model_selection import cross_val_score

        with warnings.catch_warnings():
            # a model that stopped early still has an accuracy, which is what is tuned
            warnings.simplefilter("ignore", ConvergenceWarning)
            scores = cross_val_score(
                self.task.build(**hyperparameters), self.inputs, self.labels, cv=self._folds
            )
        return float(scores.mean())


def make_tasks() -> dict[str, Task]:
    """Return the tasks by name. The SVM's ranges are those of Verma, Dai and Low 2022."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    return {
        "svm": Task(
            "support vector machine on standardized features",
            Space({"C": Float(1e-4, 100.0, log=True), "gamma": Float(1e-4, 10.0, log=True)}),
            lambda **h: make_pipeline(StandardScaler(), SVC(**h)),
        ),
        "logistic-regression": Task(
            "logistic regression with elastic net on standardized features",
            Space({"C": Float(1e-4, 100.0, log=True), "l1_ratio": Float(0.0, 1.0)}),
            lambda **h: make_pipeline(
                StandardScaler(),
                LogisticRegression(**{"solver": "saga", "max_iter": 300, "random_state": 0, **h}),
            ),
        ),
        "gradient-boosting": Task(
            "histogram gradient boosting",
            Space(
                {
                    "learning_rate": Float(1e-3, 1.0, log=True),
                    "max_leaf_nodes": Integer(2, 64),
                    "l2_regularization": Float(1e-4, 100.0, log=True),
                }
            ),
            lambda **h: HistGradientBoostingClassifier(
                **{"max_iter": 50, "early_stopping": False, "random_state": 0, **h}
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


MOST_CSV_ENTRIES = 2**26
"""The most numbers of a table with one indicator per category, so that none fills the memory."""


def load_csv(path: str | Path, target: str) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return features and labels of a CSV file with a header.

    Text columns become one indicator per category. A column in which most cells are numbers, but
    not all of them, is refused: read as text, each of its numbers would become a category. So are
    rows with missing values.

    Args:
        path: The file.
        target: The column with the class labels.

    Raises:
        ImportError: If pandas is not installed.
        ValueError: If the file cannot be read, for example if it is damaged, or it has no rows,
            the column does not exist, a value is missing, or a column of numbers has a cell that
            is not a number.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            "reading a CSV file needs pandas: pip install 'botorch_bandits[tune]'."
        ) from error
    try:
        path = Path(path)
        packing = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zip": "zip"}
        with path.open("rb") as file:  # not by its name, which could be an address
            table = pd.read_csv(file, compression=packing.get(path.suffix.lower()))
    except Exception as error:  # each kind of compression has its own errors
        reason = str(error).rstrip(".") or type(error).__name__
        raise ValueError(
            f"data file {path} cannot be read: {reason:.500}. It "
            "must be a CSV file in UTF-8 with a header, plain or compressed as its ending says "
            "(.gz, .bz2, .xz, .zip)."
        ) from error
    if target not in table.columns:
        known = ", ".join(map(str, table.columns))
        raise ValueError(f"target column {target!r} is not in {path}; it has {known:.500}.")
    if len(table) == 0:
        raise ValueError(f"data file {path} has a header and no rows below it; add the data.")
    missing = table.isna().sum()
    if missing.any():
        column = missing.idxmax()
        raise ValueError(
            f"column {column!r:.80} of {path} lacks {missing[column]} values; fill or drop them "
            "first."
        )
    if table.shape[1] == 1:
        raise ValueError(f"{path} has no column besides the target {target!r}.")
    texts = table.drop(columns=[target]).select_dtypes(exclude="number")
    for name in texts:
        is_number = pd.to_numeric(texts[name], errors="coerce").notna()
        others = texts[name][~is_number]
        if 0 < len(others) < is_number.sum():
            raise ValueError(
                f"column {name!r:.80} of {path} has numbers in all but {len(others)} of its "
                f"{len(table)} rows; the first exception is {others.iloc[0]!r:.80} in data row "
                f"{others.index[0] + 1}. Correct or drop these rows; if the column holds "
                "categories, put a letter in front of each number."
            )
    num_columns = table.shape[1] + sum(texts[name].nunique() for name in texts)
    if table.shape[0] * num_columns > MOST_CSV_ENTRIES:
        raise ValueError(
            f"{path} has {table.shape[0]} rows, and with one indicator per category {num_columns} "
            f"columns: more than {MOST_CSV_ENTRIES} entries. Leave columns out that name each row."
        )
    features = pd.get_dummies(table.drop(columns=[target]), dtype=float)
    return features.to_numpy(dtype=np.float64), table[target].to_numpy()

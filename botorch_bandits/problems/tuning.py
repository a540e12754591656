"""Hyperparameter tuning of scikit-learn classifiers on real data, as a bandit's reward.

The reward is the accuracy in cross-validation with fixed folds, as a function on a space of named
hyperparameters, logarithmic where that is the natural scale.

**Costs.** A budget ``cost <= limit`` is the constraint ``g = cost / limit - 1``, which must be at
most 0 on average. It has no unit: 0 is on the budget, 1 is twice the budget, and nothing is below
-1.

**Shifts.** One feature splits the rows into two populations: those up to its median, and those
above. The reward is the accuracy on the first population until a change point, and on the second
afterwards.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import pickle
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from botorch_bandits.checks import check_integer, check_number, store_checked
from botorch_bandits.journal.files import read_bounded
from botorch_bandits.spaces import Float, Integer, Space

if TYPE_CHECKING:
    from numpy.typing import NDArray


class AccuracyProblem(ABC):
    """The accuracy of a classifier as a function of its hyperparameters.

    Attributes:
        space: The hyperparameters to tune.
    """

    space: Space

    @abstractmethod
    def accuracy(self, **hyperparameters: Any) -> float:
        """Return the accuracy of given hyperparameters, which may lie outside the ranges."""

    @property
    def box(self) -> Space:
        """The space from which points are chosen."""
        return self.space

    def decode(self, x: Any) -> dict[str, Any]:
        """Return the estimator's arguments; see :meth:`.Space.decode`.

        Args:
            x: ``d`` coordinates, one per hyperparameter, or values by name.
        """
        return self.space.decode(x)

    def __call__(self, x: Any) -> float:
        """Return the accuracy at a point of the space: coordinates, or values by name."""
        return self.accuracy(**self.decode(x))


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


class TuningProblem(AccuracyProblem):
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
    def num_folds(self) -> int:
        """The number of folds of the cross-validation."""
        return int(self._folds.get_n_splits())

    def on_rows(self, rows: NDArray[np.bool_]) -> TuningProblem:
        """Return the same problem on some of the rows; folds are made again."""
        rest = (self.num_folds, self._fold_seed, self.space)
        return TuningProblem(self.task_name, self.inputs[rows], self.labels[rows], *rest)

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
        """Return the cross-validated accuracy of given hyperparameters."""
        return float(self.cross_validate(hyperparameters)["test_score"].mean())

    def cross_validate(self, hyperparameters: dict[str, float | int]) -> dict[str, Any]:
        """Return what scikit-learn's ``cross_validate`` does, with the models of the folds.

        Args:
            hyperparameters: Values by name, which may lie outside the ranges.
        """
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.model_selection import cross_validate

        with warnings.catch_warnings():
            # a model that stopped early still has an accuracy, which is what is tuned
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


MOST_CSV_BYTES = 2**28
MOST_CSV_ENTRIES = 2**26
"""The largest number of bytes that is read, so that no file can fill the memory."""


def _read_csv(path: Path) -> bytes:
    """Return the unpacked content of a CSV file; not by its name, which could be an address.

    Args:
        path: The path of the file.

    Raises:
        ValueError: If it has more bytes than are read, packed or unpacked.
    """
    packed = io.BytesIO(read_bounded(path, MOST_CSV_BYTES))
    unpackers: dict[str, Callable[[io.BytesIO], Any]] = {
        ".gz": lambda file: gzip.GzipFile(fileobj=file),
        ".bz2": bz2.BZ2File,
        ".xz": lzma.LZMAFile,
        ".zip": _only_member,
    }
    unpacker = unpackers.get(path.suffix.lower())
    if unpacker is None:
        return packed.getvalue()
    with unpacker(packed) as file:
        whole: bytes = file.read(MOST_CSV_BYTES + 1)
    if len(whole) > MOST_CSV_BYTES:
        raise ValueError(f"unpacked, it has more than {MOST_CSV_BYTES} bytes, which is the limit")
    return whole


def _only_member(packed: io.BytesIO) -> Any:
    archive = zipfile.ZipFile(packed)
    names = archive.namelist()
    if len(names) != 1:
        raise ValueError(f"the archive has {len(names)} files, but must have one")
    return archive.open(names[0])


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
        table = pd.read_csv(io.BytesIO(_read_csv(Path(path))))
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


@dataclass(frozen=True)
class Cost:
    """Something that is measured at each evaluation.

    Attributes:
        title: A description of the cost.
        measure: Reads it from what scikit-learn's ``cross_validate`` returned.
        is_exact: Whether the same hyperparameters always cost the same.
        tasks: The names of the tasks that have it; empty for all.
    """

    title: str
    measure: Callable[[Mapping[str, Any]], float]
    is_exact: bool
    tasks: tuple[str, ...] = ()


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _support_vectors(scores: Mapping[str, Any]) -> float:
    return _mean([float(model[-1].n_support_.sum()) for model in scores["estimator"]])


def _model_size(scores: Mapping[str, Any]) -> float:
    return _mean([float(len(pickle.dumps(model, protocol=5))) for model in scores["estimator"]])


COSTS: dict[str, Cost] = {
    "fit_seconds": Cost(
        "wall time of fitting one model, mean over the folds",
        lambda scores: _mean(scores["fit_time"]),
        is_exact=False,
    ),
    "predict_seconds": Cost(
        "wall time of predicting one fold's held-out rows, mean over the folds",
        lambda scores: _mean(scores["score_time"]),
        is_exact=False,
    ),
    "model_size": Cost(
        "bytes of one pickled model, mean over the folds", _model_size, is_exact=True
    ),
    "support_vectors": Cost(
        "support vectors of one model, mean over the folds",
        _support_vectors,
        is_exact=True,
        tasks=("svm",),
    ),
}
"""The costs by name."""


@dataclass(frozen=True)
class Budget:
    """The limit of a cost, on average.

    Attributes:
        cost: A key of :data:`COSTS`.
        limit: The limit, positive, in the unit of the cost.

    Raises:
        ValueError: If there is no such cost, or the limit is not positive.

    Example:
        >>> budget = Budget.parse("fit_seconds<=0.05")
        >>> budget.constraint(0.1), budget.amount(1.0)
        (1.0, 0.1)
    """

    cost: str
    limit: float

    def __post_init__(self) -> None:
        """Check the budget."""
        if self.cost not in COSTS:
            raise ValueError(
                f"budget names the unknown cost {self.cost!r}; known are {', '.join(COSTS)}."
            )
        store_checked(self, limit=check_number(f"limit of {self.cost}", self.limit))
        if self.limit <= 0.0:
            raise ValueError(f"budget of {self.cost} is {self.limit}; it must be positive.")

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Return the budget that a text such as ``fit_seconds<=0.05`` names.

        Raises:
            ValueError: If the text does not name a budget.
        """
        name, sign, number = text.partition("<=")
        try:
            limit = float(number)
        except ValueError:
            sign = ""
        if not sign:
            raise ValueError(
                f"budget is {text!r}; it must be COST<=NUMBER, as in 'fit_seconds<=0.05', in "
                f"quotes because of the shell. Costs are {', '.join(COSTS)}."
            )
        return cls(name.strip(), limit)

    def __str__(self) -> str:
        """Return the text that :meth:`parse` reads."""
        return f"{self.cost}<={self.limit!r}"

    def constraint(self, amount: float) -> float:
        """Return ``amount / limit - 1``, which must be at most 0 on average."""
        return amount / self.limit - 1.0

    def amount(self, constraint: float) -> float:
        """Return the cost that has this constraint value."""
        return self.limit * (1.0 + constraint)


class CostlyTuningProblem:
    """The cross-validated accuracy of a classifier, and what it costs against budgets.

    Both come from the same fits. The first call fits once more, so that the time it takes to
    import libraries is not measured.

    Args:
        problem: The classifier and the data.
        budgets: One or more, each for a different cost.

    Raises:
        ValueError: If there is no budget, two are for the same cost, or the task does not have it.

    Example:
        >>> import torch
        >>> from sklearn.datasets import load_iris
        >>> problem = TuningProblem("svm", *load_iris(return_X_y=True))
        >>> costly = CostlyTuningProblem(problem, [Budget("support_vectors", 40.0)])
        >>> accuracy, (g,) = costly(torch.tensor([0.0, -1.0], dtype=torch.float64))
        >>> accuracy == problem(torch.tensor([0.0, -1.0], dtype=torch.float64))
        True
    """

    def __init__(self, problem: TuningProblem, budgets: Sequence[Budget]) -> None:
        """See the class."""
        self.problem, self.budgets = problem, tuple(budgets)
        names = [budget.cost for budget in self.budgets]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"budgets are of {names}; give at least one, each for another cost.")
        for name in names:
            tasks = COSTS[name].tasks
            if tasks and problem.task_name not in tasks:
                raise ValueError(
                    f"the task {problem.task_name} has no {name}; only {', '.join(tasks)} has."
                )
        self._is_warm = False

    def __call__(self, x: Any) -> tuple[float, list[float]]:
        """Return the accuracy at a point of the space, and a constraint value for each budget."""
        hyperparameters = self.problem.decode(x)
        if not self._is_warm:
            self.problem.cross_validate(hyperparameters)
            self._is_warm = True
        scores = self.problem.cross_validate(hyperparameters)
        amounts = [COSTS[budget.cost].measure(scores) for budget in self.budgets]
        constraints = [b.constraint(a) for b, a in zip(self.budgets, amounts, strict=True)]
        return float(scores["test_score"].mean()), constraints


def split_by_feature(
    inputs: NDArray[np.float64],
    labels: NDArray[Any],
    num_folds: int,
    feature: int | None = None,
) -> tuple[NDArray[np.bool_], int]:
    """Split rows at the median of a feature.

    Args:
        inputs: ``n x p`` features.
        labels: ``n`` class labels.
        num_folds: Each half must have at least two classes, each with at least this many rows.
        feature: A column, from 0. None takes the first one whose halves allow the folds and have
            all classes.

    Returns:
        Which rows are up to the median, and the column.

    Raises:
        ValueError: If there is no such column, or its halves do not allow the folds.

    Example:
        >>> inputs = np.arange(8.0).reshape(8, 1)
        >>> first, feature = split_by_feature(inputs, np.array([0, 1] * 4), num_folds=2)
        >>> first.tolist(), feature
        ([True, True, True, True, False, False, False, False], 0)
    """
    inputs, labels = np.asarray(inputs, dtype=np.float64), np.asarray(labels)
    num_features = inputs.shape[1]
    if feature is not None and check_integer("feature", feature, minimum=0) >= num_features:
        raise ValueError(
            f"feature is {feature}, but the data have {num_features} features, from 0."
        )
    all_classes = np.unique(labels)
    for column in range(num_features) if feature is None else (feature,):
        first = inputs[:, column] <= np.median(inputs[:, column])
        halves = [labels[first], labels[~first]]
        counts = [np.array([(half == c).sum() for c in all_classes]) for half in halves]
        if feature is None and all(c.min() >= num_folds for c in counts):
            return first, column
        if feature is not None and all(
            (c > 0).sum() >= 2 and c[c > 0].min() >= num_folds for c in counts
        ):
            return first, column
    which = "no feature has that" if feature is None else f"feature {feature} does not"
    raise ValueError(
        f"a shift needs a feature at whose median both halves have {num_folds} rows of each class; "
        f"{which}. Use fewer folds or another feature."
    )


class ShiftingTuning:
    """Accuracy on data that change once; the function of the round answers each query.

    Args:
        functions: The functions before and after the change, from a point to its evaluation.
        change_point: The last round of the first one.
    """

    def __init__(
        self, functions: tuple[Callable[[Any], Any], Callable[[Any], Any]], change_point: int
    ) -> None:
        """See the class."""
        self.functions = functions
        self.change_point = check_integer("change_point", change_point, minimum=1)

    def __call__(self, x: Any, round_number: int) -> Any:
        """Return what the function of a round returns at a point.

        Args:
            x: A point, as the functions accept it.
            round_number: The number of the round, from 1.
        """
        return self.functions[int(round_number > self.change_point)](x)


def shift_problem(
    problem: TuningProblem, feature: int | None = None
) -> tuple[TuningProblem, TuningProblem, int]:
    """Return the problems of both populations, and the feature that splits them.

    Args:
        problem: The problem with all data.
        feature: See :func:`split_by_feature`.
    """
    first, column = split_by_feature(problem.inputs, problem.labels, problem.num_folds, feature)
    return problem.on_rows(first), problem.on_rows(~first), column

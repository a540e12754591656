"""Hyperparameter tuning of scikit-learn classifiers on real data, as a bandit's reward.

The reward is the accuracy in cross-validation with fixed folds, as a function on a space of named
hyperparameters, logarithmic where that is the natural scale.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from botorch_bandits.checks import check_integer, level_of_users_line
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
        return float(np.mean(self.fold_accuracies(**hyperparameters)))

    def fold_accuracies(self, **hyperparameters: float | int) -> list[float]:
        """Return the accuracy of given hyperparameters on each fold."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.model_selection import cross_val_score

        with warnings.catch_warnings():
            # a model that stopped early still has an accuracy, which is what is tuned
            warnings.simplefilter("ignore", ConvergenceWarning)
            scores: list[float] = cross_val_score(
                self.task.build(**hyperparameters), self.inputs, self.labels, cv=self._folds
            ).tolist()
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


MOST_CSV_ENTRIES = 2**26
"""The most numbers of a table with one indicator per category, so that none fills the memory."""


_WHOLE = r"\d+|[1-9]\d{{0,2}}(?:{0}\d{{3}})+"
_WITH_POINT, _WITH_COMMA = (
    re.compile(rf"(?:{_WHOLE.format(group)})(?:{mark}\d*)?|{mark}\d+")
    for group, mark in ((",", r"\."), (r"\.", ","))
)
_NUMBER = (
    r"([-+]?)([$€£¥₹]|(?:USD|EUR|GBP|CHF|JPY) ?)? ?([-+]?)"
    rf"({_WITH_POINT.pattern}|{_WITH_COMMA.pattern})((?:[eE][-+]?\d+)?)"
    r" ?([%‰°€$£¥₹]|°[CFK]|[^\W\d_]+(?:[ /*.·^-]?[^\W\d_]+)*[23²³]?)?"
)
"""A number in a cell: sign, currency, sign, digits, exponent and unit. Other letters in front of it
make it text."""

_DATE = r"\d{4}|\d:\d\d|\d[-/.]\d+[-/.]\d"
"""What dates and times have, but not other words that a parser of dates accepts, such as "may"."""

FEWEST_NAMES = 10
"""With at most so many values, text in which not all rows differ is a category."""


def _numbers_of(column: str, cells: Any) -> NDArray[np.float64] | None:
    """Return the numbers in a column of text, with a warning that says how; None if it is text.

    The decimal mark is the one that all cells agree with. ``1,094`` is more than a thousand next to
    ``1,094,000`` or ``1,094.5``, and next to whole numbers below 1000 without a comma, because
    decimals would have the same number of digits or end at different ones. It is little more than 1
    next to ``33,6`` or ``0,627``.

    Args:
        column: The name of the column and of its file, for messages.
        cells: The column as a series of strings.

    Raises:
        ValueError: If only some cells are numbers, or they can be read in more than one way.
    """
    plain = cells.str.strip().str.replace("\u2212", "-")  # a minus sign
    plain = plain.str.replace(r"(?<=\d)[ '\u2019\u00a0\u202f](?=\d{3}(?!\d))", "", regex=True)
    parts = plain.str.extract(f"^{_NUMBER}$").fillna("")
    digits, units = parts[3], (parts[1] + parts[5]).str.strip()
    others = cells[digits == ""]
    if 2 * len(others) >= len(cells):
        return None
    remedy = "If the column holds categories, put a letter in front of each number."
    if len(others):
        raise ValueError(
            f"column {column} has numbers in all but {len(others)} of its {len(cells)} rows; "
            f"the first exception is {others.iloc[0]!r:.80} in data row {others.index[0] + 1}. "
            f"Correct or drop these rows. {remedy}"
        )
    if (differ := units != units.iloc[0]).any():
        raise ValueError(
            f"column {column} has numbers in several units, as in {cells.iloc[0]!r:.80} and "
            f"{cells[differ].iloc[0]!r:.80}. Convert them to one unit. {remedy}"
        )
    ways = [digits.str.fullmatch(mark).all() for mark in (_WITH_POINT, _WITH_COMMA)]
    has_comma = digits.str.contains(",")
    if all(ways) and has_comma.any():
        rest = digits[~has_comma]
        ways = [len(rest) > 0 and rest.str.fullmatch(r"\d{1,3}").all(), False]
    if not any(ways):
        raise ValueError(
            f"column {column} has the number {cells[has_comma].iloc[0]!r:.80}, and its other cells "
            "do not say whether commas separate thousands or decimals. Write numbers with a "
            f"decimal point and no other separators, as in 1094 or 1.094. {remedy}"
        )
    group, mark = (",", ".") if ways[0] else (".", ",")
    rules = [f"with {mark!r} before decimals, and {group!r} at most between thousands"]
    rules = rules if digits.str.contains("[.,]").any() else []
    rules += [f"without the unit {units.iloc[0]!r:.40}"] if units.iloc[0] else []
    texts = digits.str.replace(group, "").str.replace(mark, ".")
    numbers: NDArray[np.float64] = (parts[0] + parts[2] + texts + parts[4]).to_numpy(np.float64)
    warnings.warn(
        f"column {column} is read as numbers {' and '.join(rules) or 'without separators'}: "
        f"{cells.iloc[0]!r:.80} is {numbers[0]:.10g}. {remedy}",
        UserWarning,
        stacklevel=level_of_users_line(),
    )
    return numbers


def _check_categories(column: str, cells: Any, to_dates: Callable[..., Any]) -> None:
    """Raise an error for a column of text with dates, or with a name for each row.

    Args:
        column: The name of the column and of its file, for messages.
        cells: The column as a series of strings.
        to_dates: pandas' parser of dates.

    Raises:
        ValueError: With what to do.
    """
    dates = cells[cells.str.contains(_DATE)]
    dates = dates[to_dates(dates, errors="coerce", format="mixed", utc=True).notna()]
    if 2 * len(dates) > len(cells):
        raise ValueError(
            f"column {column} has dates, such as {dates.iloc[0]!r:.80}. Turn them into numbers, "
            "such as days since the first one, or leave the column out. If it holds categories, "
            "put a letter in front of each."
        )
    num_values = cells.nunique()
    if num_values == len(cells) or 2 * num_values > max(len(cells), 2 * FEWEST_NAMES):
        raise ValueError(
            f"column {column} has {num_values} different texts in {len(cells)} rows, such as "
            f"{cells.iloc[0]!r:.80}: they name rows instead of sorting them into categories. Leave "
            "the column out, or turn it into numbers."
        )


def _check_header(path: Path, names: Any) -> None:
    """Raise an error if a name in the header of a file is empty or occurs twice."""
    names = names.fillna("").str.strip()
    wrong = names[names.duplicated() | (names == "")]
    if len(wrong) and wrong.iloc[0]:
        raise ValueError(
            f"the header of {path} has {wrong.iloc[0]!r:.80} twice. Rename or drop one of the two "
            "columns."
        )
    if len(wrong):
        raise ValueError(
            f"the header of {path} has no name for column {wrong.index[0] + 1}. Name it, or leave "
            "it out; pandas writes row numbers there unless index=False."
        )


def load_csv(path: str | Path, target: str) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return features and labels of a CSV file with a header.

    Text columns of numbers, such as ``1,094,000``, ``33,6``, ``50%``, ``$5`` or ``3.5 kg``, are
    read as numbers. Other text columns become one indicator per category. What could be read in
    several ways, or would become a category for each row, is refused: columns in which most cells
    are numbers but not all, several units, dates, names of rows, and rows with missing values.

    Args:
        path: The file.
        target: The column with the class labels.

    Raises:
        ImportError: If pandas is not installed.
        ValueError: If the file cannot be read, for example if it is damaged, or it has no rows,
            the column does not exist, two columns have the same name or one has none, a row is
            longer than the header, a value is missing, or a column cannot be read as numbers or
            categories.

    Warns:
        UserWarning: For each text column that is read as numbers, with the rule.
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
        given: Any = {"compression": packing.get(path.suffix.lower())}
        with path.open("rb") as file:  # not by its name, which could be an address
            header = pd.read_csv(file, header=None, nrows=1, dtype=str, **given).iloc[0]
            file.seek(0)
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)  # rows that are too long
                table = pd.read_csv(file, index_col=False, **given)
    except Exception as error:  # each kind of compression has its own errors
        reason = str(error).rstrip(".") or type(error).__name__
        raise ValueError(
            f"data file {path} cannot be read: {reason:.500}. It "
            "must be a CSV file in UTF-8 with a header, plain or compressed as its ending says "
            "(.gz, .bz2, .xz, .zip), with quotation marks around cells that have a comma."
        ) from error
    _check_header(path, header)
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
    texts = table.drop(columns=[target]).select_dtypes(exclude=["number", "bool"]).astype(str)
    num_columns = table.shape[1]
    for name, cells in texts.items():
        column = f"{name!r:.80} of {path}"
        if (numbers := _numbers_of(column, cells)) is not None:
            table[name] = numbers
            continue
        _check_categories(column, cells, pd.to_datetime)
        num_columns += cells.nunique()
    if table.shape[0] * num_columns > MOST_CSV_ENTRIES:
        raise ValueError(
            f"{path} has {table.shape[0]} rows, and with one indicator per category {num_columns} "
            f"columns: more than {MOST_CSV_ENTRIES} entries. Leave columns out that name each row."
        )
    features = pd.get_dummies(table.drop(columns=[target]), dtype=float)
    return features.to_numpy(dtype=np.float64), table[target].to_numpy()

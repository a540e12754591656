"""Tuning problems: rewards are scikit-learn's own, on fixed folds."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from models.textbook import double
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from botorch_bandits import Integer, Space
from botorch_bandits.problems.tuning import TuningProblem, load_csv, load_dataset


def test_svm_reward_is_the_cross_validated_accuracy() -> None:
    inputs, labels = load_breast_cancer(return_X_y=True)
    problem = TuningProblem("svm", inputs, labels)
    x = double([0.7, -1.9])
    expected = cross_val_score(
        make_pipeline(StandardScaler(), SVC(C=10**0.7, gamma=10**-1.9)),
        inputs,
        labels,
        cv=StratifiedKFold(5, shuffle=True, random_state=0),
    ).mean()
    assert problem(x) == pytest.approx(expected, abs=1e-12)
    default = cross_val_score(
        make_pipeline(StandardScaler(), SVC()),
        inputs,
        labels,
        cv=StratifiedKFold(5, shuffle=True, random_state=0),
    ).mean()
    assert problem.default_accuracy() == pytest.approx(default, abs=1e-12)


def test_a_space_of_ones_own_is_handed_to_the_classifier() -> None:
    data = load_iris(return_X_y=True)
    known = TuningProblem("svm", *data).space
    given = Space.parse(["C=log:0.1:10", "kernel=choice:poly,linear", "degree=fixed:2"])
    space = Space({**known.parameters, **given.parameters})
    assert list(space.parameters) == ["C", "gamma", "kernel", "degree"]
    assert space.parameters["gamma"] == known.parameters["gamma"]
    problem = pickle.loads(pickle.dumps(TuningProblem("svm", *data, space=space)))
    assert problem.space == space
    expected = cross_val_score(
        make_pipeline(StandardScaler(), SVC(C=0.5, gamma=0.2, kernel="poly", degree=2)),
        *data,
        cv=StratifiedKFold(5, shuffle=True, random_state=0),
    ).mean()
    values = {"C": 0.5, "gamma": 0.2, "kernel": "poly"}
    assert problem(values) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match="parameter 'depth' is not"):
        TuningProblem("svm", *data, space=Space({"depth": Integer(1, 3)}))


def test_bad_data_are_named() -> None:
    inputs, labels = load_iris(return_X_y=True)
    holed = inputs.copy()
    holed[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"inputs\[3, 1\] is nan"):
        TuningProblem("svm", holed, labels)
    with pytest.raises(ValueError, match="Is the target column"):
        TuningProblem("svm", inputs, np.arange(len(inputs)))
    with pytest.raises(ValueError, match=r"have shape \(150, 4\)"):
        TuningProblem("svm", inputs, labels[:10])
    with pytest.raises(ValueError, match="task is 'tree'"):
        TuningProblem("tree", inputs, labels)
    with pytest.raises(ValueError, match="dataset is 'mnist'"):
        load_dataset("mnist")


def test_csv_files(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,kind,label\n1.5,red,yes\n2.5,blue,no\n")
    inputs, labels = load_csv(path, "label")
    assert inputs.tolist() == [[1.5, 0.0, 1.0], [2.5, 1.0, 0.0]]
    assert labels.tolist() == ["yes", "no"]
    with pytest.raises(ValueError, match="'target' is not in"):
        load_csv(path, "target")
    path.write_text("a,label\n1.5,yes\n,no\n")
    with pytest.raises(ValueError, match="column 'a' of"):
        load_csv(path, "label")
    with pytest.raises(ValueError, match="cannot be read"):
        load_csv(tmp_path / "missing.csv", "label")
    path.write_text("a,label\n1.5,yes\n2.5,no\n2 .5,yes\n3e1,no\n?,no\n")
    expected = r"'a' of .* numbers in all but 2 of its 5 rows; the first exception is '2 .5' in"
    with pytest.raises(ValueError, match=expected + " data row 3. Correct"):
        load_csv(path, "label")
    path.write_text("a,label\n1,yes\n2+,no\n")  # not more numbers than texts: categories
    assert load_csv(path, "label")[0].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    path.write_text("a,label\n1,1\n2,1\n3,1\n4,one\n")  # the labels may be of any kind
    assert load_csv(path, "label")[1].tolist() == ["1", "1", "1", "one"]
    path.write_text("label\nyes\n")
    with pytest.raises(ValueError, match="no column besides"):
        load_csv(path, "label")


def test_values_by_name_and_coordinates_are_the_same_point() -> None:
    problem = TuningProblem("svm", *load_iris(return_X_y=True))
    x = double([0.3, -1.2])
    assert problem(problem.space.decode(x)) == problem(x)
    assert problem.space.decode(x) == {"C": 10.0**0.3, "gamma": 10.0**-1.2}
    assert problem.space.decode(problem.box.bounds[1]) == {"C": 100.0, "gamma": 10.0}
    with pytest.raises(ValueError, match=r"parameter .gamma. is 11.0"):
        problem({"C": 1.0, "gamma": 11.0})

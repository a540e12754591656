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
    path.write_text("a,kind,label\n1.5,red,yes\n2.5,blue,no\n1.0,red,no\n")
    inputs, labels = load_csv(path, "label")
    assert inputs.tolist() == [[1.5, 0.0, 1.0], [2.5, 1.0, 0.0], [1.0, 0.0, 1.0]]
    assert labels.tolist() == ["yes", "no", "no"]
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
    path.write_text("a,label\n1,yes\n2+,no\n2+,no\n1,no\n")  # not more numbers than texts
    assert load_csv(path, "label")[0][:2].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    path.write_text("a,label\n1,1\n2,1\n3,1\n4,one\n")  # the labels may be of any kind
    assert load_csv(path, "label")[1].tolist() == ["1", "1", "1", "one"]
    path.write_text("label\nyes\n")
    with pytest.raises(ValueError, match="no column besides"):
        load_csv(path, "label")


POINT, COMMA = "with '.' before decimals, and ',' at most", "with ',' before decimals, and '.' at"


@pytest.mark.parametrize(
    ("cells", "wanted", "rule"),
    [
        (("1,094", "12", "1,094,000"), (1094, 12, 1094000), POINT),
        (("1,094", "12", "906"), (1094, 12, 906), POINT),
        (("1,094.5", "-3", "1,000"), (1094.5, -3, 1000), POINT),
        (("1 094", "12", "1\u202f094\u202f000"), (1094, 12, 1094000), "without separators"),
        (("33,6", "1,094", "2"), (33.6, 1.094, 2), COMMA),
        (("0,627", "1,094", "-,5"), (0.627, 1.094, -0.5), COMMA),
        (("1.094.000", "12,5", "3"), (1094000, 12.5, 3), COMMA),
        (("50%", "20 %", "\u22127.5%"), (50, 20, -7.5), "without the unit '%'"),
        (("$5", "-$7.50", "$1,094"), (5, -7.5, 1094), POINT + ".* without the unit '\\$'"),
        (("EUR 5", "EUR 6", "EUR 7"), (5, 6, 7), "without the unit 'EUR'"),
        (("3.5 kg", "2 kg", "1e3kg"), (3.5, 2, 1000), "without the unit 'kg'"),
        (("5 km/h", "6 km/h", "+7 km/h"), (5, 6, 7), "without the unit 'km/h'"),
    ],
)
def test_text_is_read_as_numbers_with_a_note(
    tmp_path: Path, cells: tuple[str, ...], wanted: tuple[float, ...], rule: str
) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,y\n" + "".join(f'"{cell}",u\n' for cell in cells), encoding="utf-8")
    with pytest.warns(UserWarning, match=rf"column 'a' of .*table.csv is read as .*{rule}"):
        inputs, _ = load_csv(path, "y")
    assert inputs[:, 0].tolist() == list(wanted)


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ("1,094 2,500 9,999", "column 'a' .*'1,094', and .* thousands or decimals. Write numbers"),
        ("1,094 1094 2", "thousands or decimals"),
        ("33,6 1,094.5 2", "thousands or decimals"),
        ("3.5kg 2g 1kg", "column 'a' .* several units, as in '3.5kg' and '2g'. Convert"),
        ("50% 20 30%", "several units"),
        ("1st 2nd 3rd", "put a letter in front of each number"),
        ("2020-01-31 2020-02-01 2020-02-01", "column 'a' .* dates, such as '2020-01-31'. Turn"),
        ("12:30 12:31 12:30", "column 'a' .* dates"),
        ("u1 u2 u3", "column 'a' .* 3 different texts in 3 rows, such as 'u1'.* Leave the column"),
    ],
)
def test_what_could_be_read_in_several_ways_is_refused(
    tmp_path: Path, cells: str, says: str
) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,y\n" + "".join(f'"{cell}",u\n' for cell in cells.split()))
    with pytest.raises(ValueError, match=says):
        load_csv(path, "y")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,y, y\n1,u,u\n2,v,v\n", "has 'y' twice. Rename"),
        ("a,a,y\n1,2,u\n2,3,v\n", "has 'a' twice"),
        (",a,y\n0,2,u\n1,3,v\n", "no name for column 1. Name it"),
        ("a,y\n1,094,u\n2,133,v\n", "with quotation marks around cells that have a comma"),
    ],
)
def test_headers_and_rows_that_do_not_fit_are_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        load_csv(path, "y")


def test_text_that_looks_like_a_number_or_a_date_can_be_a_category(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    for a, b in (("may", "march"), ("10-20", "20-30"), ("A1", "A2"), ("<5", ">5"), ("1,2,3", "4")):
        path.write_text("a,y\n" + f'"{a}",u\n"{b}",v\n' * 2)
        assert len(load_csv(path, "y")[0][0]) == 2


def test_values_by_name_and_coordinates_are_the_same_point() -> None:
    problem = TuningProblem("svm", *load_iris(return_X_y=True))
    x = double([0.3, -1.2])
    assert problem(problem.space.decode(x)) == problem(x)
    assert problem.space.decode(x) == {"C": 10.0**0.3, "gamma": 10.0**-1.2}
    assert problem.space.decode(problem.box.bounds[1]) == {"C": 100.0, "gamma": 10.0}
    with pytest.raises(ValueError, match=r"parameter .gamma. is 11.0"):
        problem({"C": 1.0, "gamma": 11.0})

"""Accuracies on held-out rows: the split, the scaling and the support vector machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from botorch_bandits.random_streams import generator
from papers.verma_problems import SupportVectorTuning

INPUTS, LABELS = load_breast_cancer(return_X_y=True)


def split_of(seed: int, num_rows: int) -> tuple[Any, Any]:
    order = torch.randperm(num_rows, generator=generator(seed, 0, "split")).numpy()
    count = round(0.7 * num_rows)
    return order[:count], order[count:]


def test_the_reward_is_the_accuracy_on_the_rows_that_were_not_trained_on() -> None:
    problem = SupportVectorTuning(INPUTS, LABELS, seed=4)
    train, test = split_of(4, len(INPUTS))
    assert len(train) == 398
    assert sorted([*train, *test]) == list(range(len(INPUTS)))
    for c, g in ((0.7, -1.9), (2.0, -4.0), (-4.0, 1.0)):
        machine = make_pipeline(StandardScaler(), SVC(C=10**c, gamma=10**g))
        expected = machine.fit(INPUTS[train], LABELS[train]).score(INPUTS[test], LABELS[test])
        x = torch.tensor([c, g], dtype=torch.float64)
        assert problem(x) == pytest.approx(expected, abs=1e-12)
    assert problem.box.bounds.tolist() == [[-4.0, -4.0], [2.0, 1.0]]


def test_the_seed_alone_decides_the_split() -> None:
    state = torch.random.get_rng_state()
    first, again, other = (SupportVectorTuning(INPUTS, LABELS, seed=s) for s in (1, 1, 2))
    assert np.array_equal(first.train_inputs, again.train_inputs)
    assert not np.array_equal(first.train_inputs, other.train_inputs)
    assert torch.equal(state, torch.random.get_rng_state())


def test_scaling_looks_at_training_rows_only_and_takes_constant_columns() -> None:
    inputs = np.concatenate([INPUTS, np.full((len(INPUTS), 1), 3.0)], axis=1)
    problem = SupportVectorTuning(inputs, LABELS, seed=0)
    assert np.allclose(problem.train_inputs.mean(0), 0.0, atol=1e-12)
    assert np.allclose(problem.train_inputs[:, :-1].std(0), 1.0, atol=1e-12)
    assert not problem.train_inputs[:, -1].any()
    assert abs(problem.test_inputs.mean(0)).max() > 1e-3


def test_bad_data_and_hyperparameters_are_named() -> None:
    inputs, labels = load_iris(return_X_y=True)
    holed = inputs.copy()
    holed[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"inputs\[3, 1\] is nan"):
        SupportVectorTuning(holed, labels)
    with pytest.raises(ValueError, match=r"shape \(150, 4\) and labels \(10,\)"):
        SupportVectorTuning(inputs, labels[:10])
    with pytest.raises(ValueError, match="labels have 1 classes"):
        SupportVectorTuning(inputs, np.zeros(150))
    with pytest.raises(ValueError, match="Is the target column a class"):
        SupportVectorTuning(inputs, np.arange(150))
    with pytest.raises(ValueError, match="seed is -1"):
        SupportVectorTuning(inputs, labels, seed=-1)
    problem = SupportVectorTuning(inputs, labels)
    with pytest.raises(ValueError, match=r"C is 0\.0; it must be greater than 0"):
        problem.accuracy(C=0.0, gamma=1.0)
    with pytest.raises(ValueError, match="gamma is nan"):
        problem.accuracy(C=1.0, gamma=float("nan"))
    with pytest.raises(ValueError, match="x"):
        problem(torch.tensor([3.0, 0.0], dtype=torch.float64))
    with pytest.raises(TypeError, match="float32"):
        problem(torch.tensor([0.0, 0.0]))

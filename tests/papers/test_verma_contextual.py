"""The experiments with contexts and delays: data, regret, resumption, the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.svm import SVC

from botorch_bandits.feedback import Censored
from botorch_bandits.problems import PoissonDelay
from botorch_bandits.random_streams import derive_seed
from papers import (
    build_experiments,
    verma_contextual,
)
from papers import (
    contextual_studies as contextual_data,
)
from papers import (
    contextual_studies as contextual_study,
)
from papers.contextual_studies import (
    ContextualMethod,
    ContextualStudy,
    ContextualTask,
    growing_accuracies,
    load_tasks,
)
from papers.trials import ArmsExperiment, run_arms_experiment


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Four tasks of which two share a context."""
    numbers = np.random.default_rng(0)
    context = numbers.random((4, 2))
    context[3] = context[1]
    arrays = {"accuracy": numbers.random((4, 7)), "hyperparameters": numbers.random((7, 3))}
    np.savez(tmp_path / "tasks.npz", context=context, **arrays)
    return tmp_path / "tasks.npz"


@pytest.fixture
def growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """260 rows of two classes, and a small grid."""
    monkeypatch.setattr(contextual_data, "RANGES", ((0.1, 10.0), (0.01, 1.0)))
    monkeypatch.setattr(contextual_data, "GRID", (2, 3))
    numbers = np.random.default_rng(1)
    X = numbers.normal(size=(260, 3))
    y = (X[:, 0] + 0.5 * numbers.normal(size=260) > 0).astype(int)
    rows = "\n".join(",".join(map(repr, [*x.tolist(), int(c)])) for x, c in zip(X, y, strict=True))
    (tmp_path / "growing.csv").write_text(f"a,b,c,Outcome\n{rows}\n")
    return tmp_path / "growing.csv"


def task_of(experiment: ArmsExperiment, trial: int) -> ContextualTask:
    study = experiment.make_study(trial, 1)
    assert isinstance(study, ContextualStudy)
    return study.make_task(study.seeds[0])


def panels(*files: Path, **options: Any) -> dict[str, ArmsExperiment]:
    return {e.name: e for e in build_experiments("verma-contextual", files, **options)}


def test_settings_are_those_of_the_paper(tasks: Path, growing: Path) -> None:
    found = panels(growing, tasks)  # in any order
    assert len(found) == 8
    for name, experiment in found.items():
        assert experiment.num_rounds == 30 * (4 if "tasks" in name else 20)
        assert experiment.num_trials >= 10
        methods = experiment.make_methods(experiment.make_study(0, 1))
        for method in methods:
            assert isinstance(method, ContextualMethod)
            assert method.width == 1.0
            assert method.draws == ("-ts-" in name)
            assert method.delays == PoissonDelay(3)
            assert not method.divides_the_sum
            assert method.predictive
            assert not method.scales_draws
            assert not method.learns_from_pseudo_values
            assert bool(method.refit_rounds) == name.endswith("learned")
            assert method.refit_rounds[:10] in ((), tuple(range(10, 101, 10)))
        censored = methods[0].feedback
        assert censored == Censored(minimum=0.0, outcome_bound=1.0, max_delay=6, window="all")


@pytest.mark.filterwarnings("ignore:no file with the growing data")
def test_tasks_come_in_random_order_and_have_their_own_best(tasks: Path) -> None:
    experiment = panels(tasks)["verma-tasks-ucb-poisson"]
    orders = []
    for trial in range(3):
        task = task_of(experiment, trial)
        blocks = torch.tensor(task.sequence).reshape(4, 30)
        assert bool((blocks == blocks[:, :1]).all())
        assert sorted(blocks[:, 0].tolist()) == [0, 1, 2, 3]
        orders.append(blocks[:, 0].tolist())
    assert orders[0] != orders[1] or orders[0] != orders[2]
    contexts, choices, values = load_tasks(tasks)
    assert torch.equal(task.contexts, contexts)
    assert torch.equal(task.choices, choices)
    # tasks 1 and 3 share a context, not their best configuration
    with np.load(tasks) as file:
        accuracy = file["accuracy"]
    assert np.array_equal(values, accuracy)
    assert np.array_equal(task.regrets, accuracy.max(1, keepdims=True) - accuracy)
    assert task.regrets[1].argmin() != task.regrets[3].argmin()


@pytest.mark.filterwarnings("ignore:no file with the SVM tasks")
def test_parts_grow_and_are_trained_apart(growing: Path) -> None:
    inputs, labels = contextual_data.load_growing(growing)
    table = growing_accuracies(inputs, labels, seed=3)
    scaled = growing_accuracies(inputs, labels, seed=3, logarithmic=True, standardizes=True)
    assert table.shape == scaled.shape == (20, 6)
    order = np.random.default_rng(derive_seed(3, 0, "order of rows")).permutation(260)
    for part, size in ((1, 13), (12, 156), (20, 260)):
        rows = order[:size]
        held = np.arange(size) % 10 >= 7
        X, y = inputs[rows], labels[rows]
        mean, std = X[~held].mean(0), X[~held].std(0)
        for Z, gammas, found in (
            (X, (0.01, 0.505, 1.0), table),
            ((X - mean) / std, (0.01, 0.1, 1.0), scaled),
        ):
            for i, (c, gamma) in enumerate((c, g) for c in (0.1, 10.0) for g in gammas):
                machine = SVC(C=c, gamma=gamma).fit(Z[~held], y[~held])
                assert found[part - 1, i] == pytest.approx(machine.score(Z[held], y[held]))
    experiment = panels(growing)["verma-growing-ts-poisson"]
    first, second = task_of(experiment, 0), task_of(experiment, 1)
    assert first.sequence == second.sequence == tuple(t // 30 for t in range(600))
    assert not torch.equal(first.values, second.values)
    assert first.contexts.squeeze(-1).tolist() == pytest.approx([part / 19 for part in range(20)])
    # the grid in the order of the table
    assert first.choices.tolist() == [[c, g] for c in (0.0, 1.0) for g in (0.0, 0.5, 1.0)]


def test_a_part_of_one_class_has_the_share_of_that_class() -> None:
    inputs = np.random.default_rng(0).normal(size=(200, 2))
    labels = np.zeros(200, dtype=int)
    table = growing_accuracies(inputs, labels, seed=0)
    assert bool((table == 1.0).all())


@pytest.mark.filterwarnings("ignore:no file with the growing data")
def test_chunks_interruptions_and_other_data(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = {"num_trials": 3, "num_rounds": 32}
    monkeypatch.setattr(verma_contextual, "REFIT_ROUNDS", (12,))
    monkeypatch.setattr(contextual_study, "MOST_ITERATIONS", 3)
    for name in ("verma-tasks-ucb-poisson", "verma-tasks-ts-poisson-learned"):
        whole = run_arms_experiment(panels(tasks, **size)[name], tmp_path / "whole", False)
        pieces = replace(panels(tasks, **size)[name], chunk=2)
        parts = run_arms_experiment(pieces, tmp_path / "parts", False)
        for path in sorted((tmp_path / "parts" / "trials").iterdir())[::2]:
            path.unlink()
        again = run_arms_experiment(pieces, tmp_path / "parts", False)
        for method, curve in whole.items():
            assert curve.regret.shape == (3, 32)
            assert bool((curve.regret >= 0.0).all())
            assert torch.equal(curve.regret, parts[method].regret)
            assert torch.equal(curve.regret, again[method].regret)
    before = len(list((tmp_path / "whole" / "trials").iterdir()))
    with np.load(tasks) as file:
        changed = {key: file[key].copy() for key in file}
    changed["accuracy"][0, 0] *= 0.5
    np.savez(tasks, **changed)
    run_arms_experiment(panels(tasks, **size)["verma-tasks-ucb-poisson"], tmp_path / "whole", False)
    assert len(list((tmp_path / "whole" / "trials").iterdir())) == before + 3


def test_a_missing_file_leaves_its_panels_out(tasks: Path, growing: Path) -> None:
    with pytest.warns(UserWarning, match="no file with the growing data: those panels are left"):
        assert all(name.startswith("verma-tasks") for name in panels(tasks))
    with pytest.warns(UserWarning, match="no file with the SVM tasks"):
        assert all(name.startswith("verma-growing") for name in panels(growing))


@pytest.mark.filterwarnings("ignore:no file with")
def test_bad_files_are_named(tasks: Path, growing: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"give an \.npz file with the SVM tasks"):
        panels(tasks, tasks)
    with pytest.raises(ValueError, match=r"give an \.npz file with the SVM tasks"):
        panels(tmp_path / "tasks.txt")
    with pytest.raises(ValueError, match=r"no\.npz cannot be used"):
        load_tasks(tmp_path / "no.npz")
    with np.load(tasks) as file:
        good = {key: file[key].copy() for key in file}
    for change, expected in (
        ({"accuracy": good["accuracy"][:3]}, "it must be 4 x 7"),
        ({"accuracy": 100.0 * good["accuracy"]}, "give shares, not percentages"),
        ({"context": np.full((4, 2), np.nan)}, r"context in .*bad\.npz\[0, 0\] is nan"),
    ):
        np.savez(tmp_path / "bad.npz", **{**good, **change})
        with pytest.raises(ValueError, match=expected):
            load_tasks(tmp_path / "bad.npz")
    np.savez(tmp_path / "bad.npz", accuracy=good["accuracy"])
    with pytest.raises(ValueError, match="it has no array 'hyperparameters'"):
        load_tasks(tmp_path / "bad.npz")
    lines = growing.read_text().splitlines()
    growing.write_text("\n".join(lines[:150]) + "\n")
    with pytest.raises(ValueError, match="has 149 rows; 20 growing parts need at least 200"):
        panels(growing)
    growing.write_text("\n".join(line.replace("Outcome", "class") for line in lines) + "\n")
    with pytest.raises(ValueError, match="target column 'Outcome' is not in"):
        panels(growing)

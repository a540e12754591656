"""Figures 2 to 4 of Verma, Dai and Low with one factor changed: what is compared with what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from botorch_bandits.domains import Arms, Box
from botorch_bandits.feedback import Censored
from botorch_bandits.problems import load_csv
from papers.contextual_studies import ContextualMethod
from papers.tuning_studies import TuningMethod
from papers.verma_factors import FactorPanel
from papers.verma_problems import StratifiedSupportVectorTuning
from papers.verma_tuning_factors import SHORT_ROUNDS, contextual_factors, tuning_factors


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """220 rows of two classes and three tasks."""
    folder = tmp_path_factory.mktemp("data")
    numbers = np.random.default_rng(0)
    rows = [f"{x!r},{int(x > 0.5)}" for x in numbers.random(220).tolist()]
    (folder / "diabetes.csv").write_text("\n".join(["a,Outcome", *rows]) + "\n")
    arrays = {"accuracy": (3, 5), "hyperparameters": (5, 2), "context": (3, 2)}
    np.savez(folder / "tasks.npz", **{name: numbers.random(size) for name, size in arrays.items()})
    return {"diabetes": folder / "diabetes.csv", "tasks": folder / "tasks.npz"}


@pytest.fixture(scope="module")
def panels(files: dict[str, Path]) -> list[FactorPanel]:
    return [*tuning_factors(files, 30, None, 0), *contextual_factors(files, 30, None, 0)]


def methods_of(panel: FactorPanel) -> dict[str, Any]:
    return {method.name: method for method in panel.make_methods(panel.make_study(0, 1))}


def test_claims_name_methods_and_each_figure_begins_as_judged(panels: list[FactorPanel]) -> None:
    seen: dict[str, str] = {}
    assert len({panel.name for panel in panels}) == len(panels)
    for panel in panels:
        known = methods_of(panel)
        for setting in panel.compared:
            seen.setdefault(setting.figure, setting.factor)
            assert len(setting.claims) == 2
            for claim in setting.claims:
                assert {claim.better, claim.worse} <= known.keys(), claim
                # variants of the methods that are claimed to differ
                better, _, rest = claim.words.partition(" ")
                assert claim.better.split(", ")[0] == better
                assert rest.partition(", ")[0].split(" ")[-1] == claim.worse.split(", ")[0]
    assert seen == dict.fromkeys(
        ("verma-2ad", "verma-2eh", "verma-3", "verma-4ab", "verma-4cd"), "none"
    )


def test_one_factor_differs(panels: list[FactorPanel]) -> None:
    """The judged method with one attribute changed, or the judged methods on another problem."""
    by_name = {panel.name: panel for panel in panels}
    judged = by_name["verma-tuning-svm-ucb-poisson"]
    known = methods_of(judged)
    own = known["GP-UCB-SDF"]
    assert isinstance(own, TuningMethod)
    assert isinstance(own.feedback, Censored)
    divided = replace(own.feedback, sum_form="theorem")
    for name, expected in (
        ("GP-UCB-SDF, fitted to all", replace(own, learns_from_pseudo_values=True)),
        ("GP-UCB-SDF, divided", replace(own, feedback=divided)),
        ("GP-UCB, common start", replace(known["GP-UCB"], uniform_until=0)),
    ):
        assert known[name] == replace(expected, name=name)
    assert isinstance(judged.player.domain, Box)  # type: ignore[union-attr]
    points = by_name["verma-tuning-svm-ucb-poisson-points"]
    assert isinstance(points.player.domain, Arms)  # type: ignore[union-attr]
    assert by_name["verma-tuning-svm-ucb-poisson-short"].num_rounds == SHORT_ROUNDS == 35
    for name, expected in (
        ("verma-growing-ucb-poisson", {"divides_the_sum": True}),
        ("verma-growing-ts-poisson", {"scales_draws": True}),
        ("verma-growing-ts-poisson-learned", {"learns_from_pseudo_values": True}),
    ):
        *_, changed = methods_of(by_name[name]).values()
        assert isinstance(changed, ContextualMethod)
        first = next(iter(methods_of(by_name[name]).values()))
        assert changed == replace(first, name=changed.name, **expected)


def test_other_problems(panels: list[FactorPanel], files: dict[str, Path]) -> None:
    """On a logarithmic scale the middle of a box is the geometric mean of its ends."""
    by_name = {panel.name: panel for panel in panels}
    middle = torch.full((2,), 0.5, dtype=torch.float64)
    decoded = {}
    for key, options in (
        ("", {"standardizes": False, "logarithmic": False}),
        ("-logarithmic", {"standardizes": False, "logarithmic": True}),
        ("-standardized", {"standardizes": True, "logarithmic": False}),
    ):
        player: Any = by_name[f"verma-tuning-svm-ucb-poisson{key}"].player
        decoded[key] = player.make(0).reward(middle)
        inputs, labels = load_csv(files["diabetes"], "Outcome")
        problem = StratifiedSupportVectorTuning(inputs, labels, **options)
        c, gamma = (0.1, 10**-1.5) if options["logarithmic"] else (50.00005, 5.00005)
        assert decoded[key] == problem.accuracy(C=c, gamma=gamma)
    # points of the box have the accuracies of the box, with the same split
    player = by_name["verma-tuning-svm-ucb-poisson-points"].player
    box: Any = by_name["verma-tuning-svm-ucb-poisson"].player
    point = player.domain.choices[7]
    assert player.make(3).reward(point) == box.make(0).reward(point)
    grids = [
        by_name[f"verma-growing-ucb-poisson{key}"].settings["grid"]  # type: ignore[index]
        for key in decoded
    ]
    assert grids == [
        "linear, features as they come",
        "logarithmic, features as they come",
        "linear, features standardized",
    ]


def test_without_files_nothing_needs_them() -> None:
    assert contextual_factors({}, 2, None, 0) == []

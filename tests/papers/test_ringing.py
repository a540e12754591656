"""When pending queries at the minimum make the posterior ring, and what helps."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from papers.commands import main
from papers.ringing import CASES, TOP, ringing

TABLE = Path(__file__).parents[2] / "docs" / "results" / "ringing.csv"


def test_filling_at_the_minimum_rings_on_models_with_little_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("papers.ringing.GRID_SIZE", 31)  # a fourth of the points
    rows = {(row["model"], row["pending"]): row for row in ringing(num_trials=6, seed=1)}
    assert len(rows) == len(CASES)
    for model in ("learned", "given, lam = 1e-4"):
        filled = rows[model, "fill"]
        assert filled["rings"] >= 0.5
        assert filled["worst_top_after"] > 1.2 * TOP
        # a prior mean at the minimum alone is no cure
        assert rows[model, "fill, prior mean 0"]["worst_top_after"] > 1.2 * TOP
        noisy = rows[model, "fill, extra noise s^2"]
        assert noisy["rings"] < filled["rings"]
        assert noisy["worst_top_after"] < filled["worst_top_after"]
        assert rows[model, "hallucinate"]["rings"] == 0.0
        assert rows[model, "hallucinate"]["best_reward"] > filled["best_reward"]
    assert rows["given, lam = 1.1", "fill, prior mean 0"]["rings"] == 0.0
    # the cheap check of the drop-ins sees what a grid sees
    agreement = [row["agree"] for row in rows.values()]
    assert sum(agreement) / len(agreement) > 0.9


def test_the_command_writes_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["experiment", "ringing", "--trials", "1", "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    with (tmp_path / "out" / "table.csv").open() as file, TABLE.open() as committed:
        found, known = list(csv.DictReader(file)), list(csv.DictReader(committed))
    assert list(found[0]) == list(known[0])
    assert [row["pending"] for row in found] == [row["pending"] for row in known]
    assert "hallucinate" in capsys.readouterr().out
    assert main([*arguments, "--rounds", "3"]) == 2
    assert "does not take --rounds" in capsys.readouterr().err


def test_the_page_shows_the_committed_table() -> None:
    page = (TABLE.parents[1] / "delayed-feedback.md").read_text(encoding="utf-8")
    with TABLE.open() as file:
        for row in csv.DictReader(file):
            shown = [f"{float(row[name]):.2f}" for name in ("rings", "top_before", "top_after")]
            shown += [f"{float(row['worst_top_after']):.1f}", f"{float(row['best_reward']):.2f}"]
            line = f"| {row['model']} | {row['pending']} | {' | '.join(shown)} |"
            assert line in page, line

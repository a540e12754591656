"""The benchmark of all combinations: what it covers, and that both ways make the same suggestions.

No test looks at a time.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import combinations_command
from benchmarks.combinations import (
    PRIMAL_DUAL,
    SEPARATE,
    SEQUENTIAL,
    WAYS,
    Combination,
    Player,
    Row,
    all_combinations,
    documented,
    measure,
)
from benchmarks.combinations_command import Rows
from benchmarks.combinations_table import page, summary
from benchmarks.commands import main
from benchmarks.measure import Timing
from benchmarks.peak_memory import kept_bytes, peak_bytes, peak_bytes_since
from benchmarks.settings import plain

RELABELED, NO_CONSTRAINTS = '`"relabeled"`', "no constraints"


def test_every_documented_combination_is_a_row():
    found = {
        (one.feedback, one.restart, one.forgetting, one.constraints, one.contexts, one.domain)
        for one in all_combinations([200])
        if one.acquisition == "IGP-UCB"
    }
    text = documented().TABLE.read_text(encoding="utf-8")
    total, refused = map(int, re.findall(r"Of (\d+) combinations, (\d+) are rejected", text)[0])
    documented_ones = [
        parts for parts in found if parts[0] != SEQUENTIAL and parts[4] in documented().CONTEXTS
    ]
    assert len(documented_ones) == total - refused
    assert {one.acquisition for one in all_combinations([200])} == set(WAYS)


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"acquisition": "EI"},
        {"acquisition": "AMM", "feedback": "`Hallucinated()`"},
        {"feedback": "`Ignored()`", "contexts": "with contexts"},
        {"feedback": "`Censored(...)`", "restart": "`ChangePointRestart(...)`"},
        {"feedback": "`Censored(...)`", "constraints": RELABELED},
        {"forgetting": "`SlidingWindow(...)`", "constraints": RELABELED},
        {"forgetting": "`ExponentialWeights(...)`", "feedback": "`Hallucinated()`"},
        {"forgetting": "`TimeVaryingKernel(...)`", "contexts": "with contexts, product kernel"},
        {"constraints": SEPARATE, "forgetting": "`TimeVaryingKernel(...)`"},
        {"constraints": PRIMAL_DUAL, "restart": "`EvidenceRestart()`"},
        {"constraints": SEPARATE, "feedback": "`Censored(...)`"},
        {"constraints": PRIMAL_DUAL, "feedback": "`Censored(...)`", "contexts": "with contexts"},
        {"acquisition": "GP-TS", "constraints": SEPARATE},
        {"acquisition": "list of priors, TS"},
        {"domain": "on a box", "contexts": "with contexts"},
    ],
    ids=str,
)
def test_both_ways_choose_the_same_arm(others):
    row = measure(plain(12, **others), 2, num_arms=40)
    assert min(row.ratio, row.ordinary_bytes, row.our_bytes) > 0
    if row.combination.on_arms and WAYS[row.combination.acquisition].is_compared:
        assert max(row.worse, row.better) <= 1e-9
    else:
        assert math.isnan(row.worse) or row.combination.domain == "on a box"
    assert math.isnan(row.test_seconds) == ("ChangePoint" not in row.combination.restart)


def test_rounds_in_which_the_clock_did_not_move_are_not_counted(monkeypatch):
    measure(plain(12, constraints=PRIMAL_DUAL), 2, 20)  # what is played once in a process is played
    times = iter([0.0, 1.0, 0.0, 1.0, 0.0, 0.5, 0.0, 1.5])
    play = Player.round

    def stopped(self):
        return next(times, 1.0), *play(self)[1:]

    monkeypatch.setattr(Player, "round", stopped)
    row = measure(plain(12, constraints=PRIMAL_DUAL), 2, 20)
    assert row.our_seconds == 1.0  # behind two rounds that are not counted
    assert Timing(1.0, 0.0, None, None).ratio != Timing(1.0, 0.5, None, None).ratio == 2.0


def test_memory_of_torch_and_numpy_is_counted():
    size = 8 * 500 * 500

    def multiply():
        matrix = torch.ones(500, 500, dtype=torch.float64)
        return (matrix @ matrix).sum()

    assert 2 * size <= peak_bytes(multiply) < 2 * size + 50_000
    assert size <= peak_bytes(lambda: np.ones((500, 500)).sum()) < size + 50_000
    whole = torch.zeros(500, 500, dtype=torch.float64)
    array = np.zeros((100, 100))
    held = {"views": [whole[0], whole.T], "arrays": (array, array[1:])}
    assert kept_bytes(held) == size + array.nbytes
    assert kept_bytes(lambda: whole) == size


def test_memory_that_a_round_frees_is_taken_off():
    size = 8 * 500 * 500

    def build():
        parts = {"torch": torch.zeros(4, 500, 500, dtype=torch.float64)}
        parts |= {"numpy": np.zeros((2, 500, 500)), "objects": [str(i) for i in range(10_000)]}
        return parts

    def replace(parts):
        del parts["torch"], parts["numpy"]
        parts["torch"] = torch.ones(3, 500, 500, dtype=torch.float64)
        parts["numpy"] = np.ones((3, 500, 500))

    counted = peak_bytes_since(build, replace)  # four and then three, two and then three
    assert 4 * size + 3 * size <= counted < 4 * size + 3 * size + 500_000
    assert 6 * size <= peak_bytes_since(build, len) < 6 * size + 500_000


def row_of(one: Combination, ratio: float = 2.0, our_bytes: int = 10) -> Row:
    return Row(one, ratio, 0.002, 0.001, math.nan, 0.0, 1e-12, 8, our_bytes, 20)


def test_rows_survive_writing_and_reading(tmp_path):
    path = tmp_path / "rows.csv"
    rows = Rows(path)
    first, second = plain(200), plain(1000)
    rows.add(row_of(second))
    rows.add(row_of(first, ratio=0.5))
    again = Rows(path)
    assert [row.combination for row in again] == [second, first]
    assert first in again
    assert list(again)[1].ratio == 0.5
    again.keep([first, plain(3)])
    assert [row.combination for row in again] == [first]


def test_what_is_slower_or_larger_is_named():
    rows = [
        row_of(plain(200)),
        row_of(plain(1000), ratio=0.5),
        row_of(plain(200, constraints=SEPARATE), our_bytes=21),
    ]
    text = page(rows)
    assert "| 2 / **0.5** | " in text
    assert "| 2* / - | " in text
    assert "Slower than the ordinary way: 1 rows" in text
    assert "3 combinations, 1 slower than BoTorch, 1 too large" in summary(rows)
    assert "Slower than the ordinary way: none." in page(rows[:1])


def test_a_second_start_measures_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[str] = []

    def counting(one: Combination, num_rounds: int, num_arms: int) -> Row:
        measured.append(one.key)
        if "DMM" in one.key:
            raise RuntimeError("broken\nin two lines")
        return row_of(one)

    monkeypatch.setattr(combinations_command, "measure", counting)
    command = ["combinations", "--quiet", "--out", str(tmp_path / "rows.csv")]
    plain = ["--only", "*nothing pending | none | none | no constraints | without*on arms | 200"]
    assert main([*command, *plain, "--only", "EI"]) == 0
    assert len(measured) == 1
    assert main([*command, *plain]) == 1
    assert len(measured) == len(set(measured)) == len(WAYS)
    assert "failed: DMM" in capsys.readouterr().err
    assert main([*command, *plain, "--only", "EI", "--again"]) == 0
    assert len(measured) == len(WAYS) + 1
    table = tmp_path / "page.md"
    assert main([*command, "--table", "--page", str(table)]) == 0
    assert len(measured) == len(WAYS) + 1
    assert "| EI | without contexts |" in table.read_text(encoding="utf-8")
    assert main([*command, "--only", "fly"]) == 2
    assert main([*command, "--list", "--only", "PI | "]) == 0
    assert (
        capsys.readouterr()
        .out.strip()
        .endswith(
            "PI | nothing pending | none | none | "
            "no constraints | without contexts | "
            "on a box | 1000"
        )
    )


def test_the_page_has_the_rows_that_are_committed():
    rows = list(Rows(combinations_command.TABLE))
    assert combinations_command.PAGE.read_text(encoding="utf-8") == page(rows)
    known = {one.key for one in all_combinations()}
    assert {row.combination.key for row in rows} <= known
    assert all(
        max(row.worse, row.better) <= 1e-9
        for row in rows
        if row.combination.on_arms and not math.isnan(row.worse)
    )

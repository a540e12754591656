"""Both ways of every benchmark give the same results; how fast they are is measured on request.

    python -m pytest tests/test_benchmarks.py -m slow -s -p no:xdist

runs them at full size. No test looks at a time.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import BENCHMARKS, PARTS, Measurement, Scale
from benchmarks.commands import main, table
from benchmarks.devices import on_device
from benchmarks.measure import compare, growth_exponent
from benchmarks.tables import as_text


def check(lines: list[Measurement]) -> None:
    assert lines
    for line in lines:
        assert line.agrees, f"{line.name} differs by {line.difference}"
        assert line.ratio > 0.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BENCHMARKS | PARTS)
def test_both_ways_agree(name: str) -> None:
    size = 0.005 if name == "rounds-without-end" else 0.04
    check((BENCHMARKS | PARTS)[name](Scale(repeats=1, size=size, seed=3)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BENCHMARKS)
def test_measure(name: str, benchmark: Any) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        lines = benchmark.pedantic(BENCHMARKS[name], args=(Scale(),), rounds=1)
    finally:
        torch.set_num_threads(threads)
    check(lines)
    for line in lines:
        benchmark.extra_info[line.name] = {"ratio": line.ratio, "difference": line.difference}
    print("\n" + as_text(table(lines)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_devices_agree() -> None:
    for lines in on_device(Scale(repeats=1, size=0.1)).values():
        check(lines)


def test_program_for_devices_runs_on_the_cpu() -> None:
    for lines in on_device(Scale(repeats=1, size=0.05), "cpu").values():
        check(lines)


def test_comparison_counts_units_and_alternates() -> None:
    order = []

    def way(name: str, loops: int) -> str:
        order.append(name)
        sum(range(loops))
        return name

    timing = compare(lambda: way("a", 400_000), lambda: way("b", 400_000), 3, (1, 10))
    assert order == ["a", "b"] * 4
    assert (timing.ordinary_result, timing.our_result) == ("a", "b")
    assert timing.ordinary > timing.ours  # the same work counts as ten units
    assert growth_exponent([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx(2.0)


def test_folder_starts_from_anywhere(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[1]
    program = [sys.executable, str(root / "tests" / "benchmarks"), "--help"]
    path = {**os.environ, "PYTHONPATH": str(root)}  # the package need not be installed
    assert "chain-500" in subprocess.check_output(program, cwd=tmp_path, env=path, text=True)


def test_command_prints_and_writes_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.csv"
    arguments = ["chain-500", "--quick", "--repeats", "1", "--quiet"]
    assert main([*arguments, "--out", str(table)]) == 0
    output = capsys.readouterr().out
    assert "chain-500" in output
    assert "ratio" in output
    with table.open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert float(row["difference"]) <= float(row["tolerance"])
    assert float(row["at_least"]) == 15.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "benchmark is 'fly'"),
        (["--repeats", "0"], "--repeats is 0"),
        (["chain-500", "--device", "cpu"], "leave the names out"),
    ],
)
def test_bad_arguments_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1

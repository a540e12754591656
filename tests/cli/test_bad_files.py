"""What users' files have wrong with them is said in one line, with the file and the remedy."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from botorch_bandits.cli import main
from botorch_bandits.problems import load_csv, tuning
from botorch_bandits.problems.changing import load_readings

TABLE = b"a,b,y\n1,2,0\n2,3,1\n"

FUNCTIONS = {
    "sound": "def f(p):\n    return -(p['x'] ** 2)\n",
    "unclosed": "def f(p):\n    return p[\n",
    "importing": "import unclosed\n\n\ndef f(p):\n    return 1.0\n",
    "dividing": "def g():\n    return 1 / 0\n\n\ng()\n\n\ndef f(p):\n    return 1.0\n",
    "late": "def f(p):\n    import unclosed\n    return 1.0\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FUNCTIONS.items():
        (tmp_path / f"{name}_of_mine.py").write_text(text.replace("unclosed", "unclosed_of_mine"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def optimize(name: str, *more: str, rounds: int = 3, out: str = "run") -> list[str]:
    arguments = ["optimize", f"{name}_of_mine:f", "--param", "x=float:0:1", "--quiet"]
    return [*arguments, "--rounds", str(rounds), "--out", out, *more]


@pytest.mark.parametrize(
    ("name", "files", "reason"),
    [
        ("unclosed", ["unclosed"], "SyntaxError: '[' was never closed (unclosed_of_mine.py, line"),
        ("importing", ["importing", "unclosed"], "SyntaxError: '[' was never closed"),
        ("dividing", ["dividing", "dividing"], "ZeroDivisionError: division by zero."),
    ],
)
def test_a_module_that_cannot_be_imported_has_a_short_traceback(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, files: list[str], reason: str
) -> None:
    """It was that of this package and of the import system."""
    assert main(optimize(name)) == 2
    *shown, last = capsys.readouterr().err.splitlines()
    known = [line for line in shown if line.startswith("  File ")]
    assert [line.split('"')[1] for line in known] == [
        str(folder / f"{each}_of_mine.py") for each in files
    ]
    assert last.startswith("botorch-bandits optimize: error: module ")
    assert f"{name}_of_mine' cannot be imported: {reason}" in last
    assert not (folder / "run").exists()


def test_a_module_that_is_imported_late_is_shown_before_the_summary(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(optimize("late")) == 1
    told = capsys.readouterr()
    assert told.err.count("  File ") == 2  # of the function, and of the error in the other module
    assert "SyntaxError: '[' was never closed" in told.err
    assert "0 of 3" in told.out


DAMAGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no x": (lambda h: h["queries"][0].pop("x"), r"records\[0\] has no 'x'"),
    "no clock": (lambda h: h["queries"][1].pop("asked_at"), r"records\[1\] has no 'asked_at'"),
    "two entries": (
        lambda h: [h["queries"][1].pop(name) for name in ("reward", "origin")],
        r"records\[1\] has no 'origin', 'reward'",
    ),
    "no entry of a retraction": (
        lambda h: h["queries"][0].update(state="retracted"),
        r"records\[0\] has no 'retraction_order', 'retracted_at'",
    ),
    "a number for a query": (lambda h: h["queries"].insert(0, 3), r"records\[0\] is 3, which"),
    "a number for queries": (lambda h: h.update(queries=3), "records is 3, which is not a list"),
    "a number for settings": (lambda h: h.update(settings=3), "settings is 3"),
    "a number for diagnostics": (
        lambda h: h["queries"][0].update(diagnostics=3),
        r"records\[0\]\['diagnostics'\] is 3, which is not a dict",
    ),
    "a text for an order": (
        lambda h: h["queries"][0].update(arrival_order="a"),
        r"records\[0\]\['arrival_order'\] is 'a', which is not an integer",
    ),
    "a text for a point": (lambda h: h["queries"][0].update(x="a"), r"records\[0\]\['x'\] must"),
    "a list for a reward": (lambda h: h["queries"][0].update(reward=[1]), "reward must be one"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_history_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    """A missing entry was a ``KeyError`` with a traceback."""
    damage, message = DAMAGES[case]
    assert main(optimize("sound", rounds=2)) == 0
    path = folder / "run" / "history.json"
    known = json.loads(path.read_text())
    damage(known)
    path.write_text(json.dumps(known))
    before = path.read_bytes()
    capsys.readouterr()
    assert main(optimize("sound")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "run/history.json is damaged (" in line
    assert re.search(message, line), line
    assert line.endswith("or start over with --overwrite.")
    assert path.read_bytes() == before


def test_a_history_with_other_line_ends_goes_on(folder: Path) -> None:
    assert main(optimize("sound", rounds=2)) == 0
    path = folder / "run" / "history.json"
    known = json.loads(path.read_text())
    path.write_bytes(json.dumps(known, indent=1).replace("\n", "\r\n").encode())
    assert main(optimize("sound")) == 0
    assert json.loads(path.read_text())["queries"][:2] == known["queries"]


@pytest.mark.parametrize("command", ["optimize", "compare"])
def test_a_folder_that_cannot_be_written_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (folder / "file").write_text("")
    out = ("--rounds", "1", "--out", "file/run")
    arguments = optimize("sound", out="file/run")
    if command == "compare":
        pytest.importorskip("sklearn")
        arguments = ["compare", "--dataset", "iris", *out, "--quiet"]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "output folder file/run cannot be used: " in line
    assert line.endswith("Choose another --out folder, or make this one writable.")


def _zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.csv", TABLE)


SOUND: dict[str, Callable[[Path], Any]] = {
    "data.csv": lambda path: path.write_bytes(TABLE),
    "crlf.csv": lambda path: path.write_bytes(TABLE.replace(b"\n", b"\r\n")),
    "cr.csv": lambda path: path.write_bytes(TABLE.replace(b"\n", b"\r")),
    "mark.csv": lambda path: path.write_bytes(b"\xef\xbb\xbf" + TABLE),
    "data.csv.gz": lambda path: path.write_bytes(gzip.compress(TABLE)),
    "data.csv.bz2": lambda path: path.write_bytes(bz2.compress(TABLE)),
    "data.csv.xz": lambda path: path.write_bytes(lzma.compress(TABLE)),
    "data.csv.zip": _zipped,
}


@pytest.mark.parametrize("name", SOUND)
def test_line_ends_and_compression_make_no_difference(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    SOUND[name](path)
    inputs, labels = load_csv(path, "y")
    assert inputs.tolist() == [[1.0, 2.0], [2.0, 3.0]]
    assert labels.tolist() == [0, 1]


GZIPPED = gzip.compress(TABLE, mtime=0)
"""Without the time, so that all workers of pytest-xdist give the tests the same names."""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((f"data.csv.{ending}", TABLE) for ending in ("gz", "bz2", "xz", "zip")),
        ("data.csv.zst", bytes.fromhex("28b52ffd240671000078790a312c320a") + TABLE),
        ("cut.csv.gz", GZIPPED[:-9]),
        ("cut.csv.bz2", bz2.compress(TABLE)[:-9]),
        ("cut.csv.xz", lzma.compress(TABLE)[:-9]),
        ("flipped.csv.gz", GZIPPED[:14] + b"\0\0\0\0" + GZIPPED[18:]),
        ("utf16.csv", TABLE.decode().encode("utf-16")),
        ("empty.csv", b""),
        ("quoted.csv", b'a,b,y\n1,"2,3\n'),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    """Each kind of compression has errors of its own, some of which had a traceback."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"file {path} cannot be read: .*\. It must be a CSV"):
        load_csv(path, "y")


@pytest.mark.parametrize("name", ["large.csv.gz", "large.csv.zip", "two.csv.zip"])
def test_what_is_not_read_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(tuning, "MOST_CSV_BYTES", 1000)
    path, large = tmp_path / name, TABLE + b"5,6,1\n" * 1000
    if name.endswith("gz"):
        path.write_bytes(gzip.compress(large))
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for i in range(1 + name.startswith("two")):
                archive.writestr(f"{i}.csv", large)
    assert path.stat().st_size < 1000
    reason = "the archive has 2 files" if "two" in name else "unpacked, it has more than 1000 bytes"
    with pytest.raises(ValueError, match=f"cannot be read: {reason}"):
        load_csv(path, "y")


def test_a_header_alone_is_no_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "header.csv").write_text("a,b,y\n")
    pytest.importorskip("sklearn")
    assert main(["tune", "--data", "header.csv", "--target", "y", "--quiet"]) == 2
    assert "header.csv has a header and no rows below it; add the data." in capsys.readouterr().err


READINGS = "time,a,b\n1,0.5,2\n2,1.5,3\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("header.csv", b"time,a,b\n", "has a header and no rows below it"),
        ("empty.csv", b"", "it is empty"),
        ("ragged.csv", b"time,a,b\n1,2,3\n2,3\n", "row 3 has 2 entries, and the header 3"),
        ("words.csv", b"time,a,b\n1,2,3\n2,x,4\n", "row 3: could not convert string to float: 'x'"),
        ("gap.csv", b"time,a\n1,2\n2,\n", r"readings in .*\[1, 0\] is nan"),
        ("data.npz", b"PK\x03\x04", "cannot be used"),
        ("none.npz", b"", "cannot be used"),
    ],
)
def test_readings_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_readings(path, array="readings")


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r", "\n\n"])
def test_readings_have_any_line_ends(tmp_path: Path, ends: str) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(READINGS.replace("\n", ends).encode())
    assert load_readings(path).tolist() == [[0.5, 2.0], [1.5, 3.0]]

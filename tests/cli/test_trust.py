"""What a file names is not run unasked, and what it says cannot fool a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forked import Forked

from botorch_bandits import BanditLoop, Box, RandomSearch
from botorch_bandits.cli import main
from botorch_bandits.journal import Journal

FUNCTION = """
from pathlib import Path
Path("was_run").touch()

def reward(x):
    return 1 - float(x[0] - 0.3) ** 2
"""
OPTIMIZE = ["optimize", "trusted_module:reward", "--bounds", "0:1", "--initial", "2", "--quiet"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "trusted_module.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "trusted_module", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.fixture
def begun(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal of two rounds, and a folder in which the function has not been run since."""
    arguments = [*OPTIMIZE, "--method", "random", "--rounds", "2", "--out", "run"]
    assert main([*arguments, "--journal", "run.journal"]) == 0
    forget(folder, monkeypatch)
    return folder / "run.journal"


def forget(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "was_run").unlink(missing_ok=True)
    monkeypatch.delitem(sys.modules, "trusted_module", raising=False)


def rewrite(path: Path, **command: Any) -> Path:
    """Return a journal with the same records and another command."""
    known = Journal.read(path)
    other = path.with_name("other.journal")
    header = known.header
    header["command"] = {**header["command"], **command}
    with Journal.create(other, header) as journal:
        for record in known.records():
            journal.append(record)
    return other


def test_without_a_terminal_nothing_is_run(
    begun: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    before = sorted((path.name, path.stat().st_mtime_ns) for path in begun.parent.rglob("*"))
    assert main(["resume", str(begun), "--rounds", "3"]) == 2
    said = capsys.readouterr().err
    for words in ("trusted_module:reward", str(begun.parent), "--trust", "no terminal"):
        assert words in said
    assert not (begun.parent / "was_run").exists()
    after = sorted((path.name, path.stat().st_mtime_ns) for path in begun.parent.rglob("*"))
    assert [each for each in after if "__pycache__" not in each[0]] == [
        each for each in before if "__pycache__" not in each[0]
    ]
    assert main(["resume", str(begun), "--rounds", "3", "--trust", "--quiet"]) == 0
    assert (begun.parent / "was_run").exists()
    assert Journal.read(begun).num_records == 6


def test_what_the_user_names_need_not_be_confirmed(
    begun: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    resume = ["resume", str(begun), "--rounds", "3", "--quiet"]
    capsys.readouterr()
    assert main([*resume, "--function", "another_module:reward"]) == 2
    assert "not with optimize another_module:reward" in capsys.readouterr().err
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert main([*resume, "--function", "trusted_module:reward", "--folder", str(elsewhere)]) == 2
    monkeypatch.chdir(elsewhere)
    assert main([*resume, "--function", "trusted_module:reward"]) == 2
    assert not (begun.parent / "was_run").exists()
    named = ["--function", "trusted_module:reward", "--folder", str(begun.parent)]
    assert main([*resume, *named]) == 0
    assert (begun.parent / "was_run").exists()


@pytest.mark.parametrize("out", ["/etc/somewhere", "../outside", "--out=/etc", "~/out"])
def test_a_named_function_does_not_vouch_for_files_elsewhere(
    begun: Path, capsys: pytest.CaptureFixture[str], out: str
) -> None:
    arguments = Journal.read(begun).header["command"]["arguments"]
    hostile = rewrite(begun, arguments=[*arguments, "--out", out])
    resume = ["resume", str(hostile), "--quiet", "--function", "trusted_module:reward"]
    assert main(resume) == 2
    assert "no terminal" in capsys.readouterr().err
    assert not (begun.parent / "was_run").exists()


@pytest.mark.parametrize(
    "command",
    [
        {"arguments": ["compare"]},
        {"arguments": []},
        {"arguments": "tune"},
        {"arguments": ["tune", 3]},
        {"arguments": None},
        {"folder": 7},
        {"settings": "[" * 10**5},
        {"settings": "[]"},
        {"settings": None},
    ],
)
def test_a_header_that_names_no_command_is_refused(
    begun: Path, capsys: pytest.CaptureFixture[str], command: dict[str, Any]
) -> None:
    hostile = rewrite(begun, **command)
    for more in (["--trust"], []):
        assert main(["resume", str(hostile), *more]) == 2
        assert "does not say how its run was begun" in capsys.readouterr().err


def on_a_terminal(arguments: list[str], answer: str) -> tuple[int, str]:
    """Run a command on a terminal of its own, and type an answer."""
    ours, theirs = pty.openpty()
    process = Forked(main, arguments, terminal=theirs)
    os.close(theirs)
    said, is_answered = b"", False
    while True:
        try:
            part = os.read(ours, 10_000)
        except OSError:
            break
        if not part:
            break
        said += part
        if b"[y/N]" in said and not is_answered:
            is_answered = True
            os.write(ours, answer.encode())
    os.close(ours)
    return process.wait(timeout=120), said.decode(errors="replace")


def test_on_a_terminal_it_is_shown_and_asked(begun: Path) -> None:
    hostile = rewrite(
        begun, arguments=[*Journal.read(begun).header["command"]["arguments"], "--out", "\x1b[2Jx"]
    )
    resume = ["resume", str(hostile), "--rounds", "3", "--quiet"]
    code, said = on_a_terminal(resume, "n\n")
    assert code == 2
    assert "trusted_module:reward" in said
    assert "\x1b[2J" not in said
    assert "nothing was run" in said
    assert not (begun.parent / "was_run").exists()
    code, said = on_a_terminal([*resume[:1], str(begun), *resume[2:]], "y\n")
    assert code == 0, said
    assert (begun.parent / "was_run").exists()


HOSTILE_TEXT = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202egnp.exe Übung \u65e5"


@pytest.fixture
def told(folder: Path) -> Path:
    path = folder / "run.journal"
    with BanditLoop.open(path, Box([[0.0], [1.0]]), None, RandomSearch()) as loop:
        for _ in range(30):
            loop.tell(loop.ask().id, 1.0)
        loop.tell_failed(loop.ask().id, HOSTILE_TEXT)
        loop.retract(0, HOSTILE_TEXT)
    return path


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_show_spells_control_characters_out(
    told: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    assert main(["show", str(told), "--all"]) == 0
    text = written.getvalue().decode(encoding)
    for letter in "\x1b\x07\r\x9b\u202e":
        assert letter not in text
    assert "\\x1b[2J" in text
    assert ("Übung" if encoding == "utf-8" else "\\xdcbung") in text


def test_errors_spell_control_characters_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "some.journal"
    path.write_bytes(HOSTILE_TEXT.encode())
    assert main(["show", str(path)]) == 2
    assert "\x1b" not in capsys.readouterr().err


# An interpreter that ends as it does for a user.
SHOW = """
import os, sys
import botorch_bandits.cli.commands
from botorch_bandits.cli import main
child = os.fork()
if not child:
    sys.exit(main(["show", sys.argv[1], "--all"]))
status = os.waitpid(child, 0)[1]
sys.exit(status)
"""


def test_a_pipe_that_nobody_reads_is_no_error(told: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [sys.executable, "-c", SHOW, str(told)],
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=300,
        check=False,
    )
    os.close(writing)
    assert (result.returncode, result.stderr) == (0, b"")


@pytest.mark.parametrize("kind", ["a pipe", "a giant", "deep", "a list", "no queries", "absurd"])
@pytest.mark.parametrize("name", ["history.json", "journal.txt", "evaluating.json"])
def test_a_prepared_folder_of_results_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    arguments = [*OPTIMIZE, "--method", "random", "--rounds", "2", "--out", "run"]
    path = folder / "run" / name
    path.parent.mkdir()
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a giant":
        path.touch()
        os.truncate(path, 2**40)
    else:
        content = {
            "deep": "[" * 10**6,
            "a list": "[1, 2]",
            "no queries": json.dumps({"settings": 3, "queries": {}}),
            "absurd": json.dumps({"settings": {}, "queries": [{"id": 0, "x": [1e400] * 9}]}),
        }[kind]
        path.write_text(content)
    code = main(arguments)
    said = capsys.readouterr().err
    if name == "history.json" or (name == "journal.txt" and kind in ("a pipe", "a giant", "deep")):
        assert code == 2
        assert "Choose another --out" in said
        assert not (folder / "run" / "history.csv").exists()
    else:  # it says nothing that can be used
        assert code == 0

"""``check`` and ``salvage``: what is wrong with a journal, and what is left of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from benchmarks.fault_cases import SETTING_NAMES, build, derived, num_steps, play
from botorch_bandits.cli import main
from botorch_bandits.journal import Journal, JournalError, SnapshotAheadError
from botorch_bandits.loop import journal as loop_journal

pytestmark = pytest.mark.filterwarnings("ignore::botorch_bandits.journal.SnapshotWarning")


def played(folder: Path, name: str, total: int = 30, with_retraction: bool = True) -> Path:
    path = folder / "run.journal"
    with build(name, journal=path) as loop:
        play(loop, total)
        if with_retraction:
            loop.retract(loop.history.outcomes[1].query_id, "the sensor was broken")
        play(loop, total + 8)
    return path


def line_ends(path: Path) -> list[int]:
    content = path.read_bytes()
    return [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]


def digests(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.is_file()
    }


@pytest.fixture
def frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_journal, "SNAPSHOT_EVERY", 20)


@pytest.mark.usefixtures("frequent")
def test_a_whole_journal_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = played(tmp_path, "arms, ucb")
    before = digests(tmp_path)
    assert main(["check", str(path)]) == 0
    said = capsys.readouterr().out
    assert "a journal of a loop" in said
    assert "problem" not in said
    with open(path, "ab") as file:
        file.write(b"12 torn")
    assert main(["check", str(path)]) == 0
    assert "7 bytes after them are not a whole record: their writing was" in capsys.readouterr().out
    path.write_bytes(path.read_bytes()[:-7])
    assert digests(tmp_path) == before
    other = tmp_path / "other.journal"
    with Journal.create(other, {"mine": 1}) as journal:
        journal.append({"x": 1})
    assert main(["check", str(other)]) == 0
    assert "of another program, 1 whole records" in capsys.readouterr().out


@pytest.mark.usefixtures("frequent")
@pytest.mark.parametrize("name", SETTING_NAMES)
def test_what_the_snapshot_has_beyond_a_damaged_journal_is_written(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cut off before the snapshot's place, or damaged there; attached, failed and retracted too."""
    path = played(tmp_path, name)
    with build(name, journal=path) as loop:
        whole, seen = loop.history.to_records(), repr(derived(loop))
    content, ends = path.read_bytes(), line_ends(path)
    snapshot = Journal.read(path).read_snapshot()
    assert snapshot is not None
    assert snapshot.num_records < len(ends) - 2
    covered = snapshot.num_records
    for number in (0, 3, covered - 1):
        flipped = bytearray(content)
        flipped[ends[number + 1] + 50] ^= 1  # in the record after so many
        path.write_bytes(bytes(flipped))
        assert main(["check", str(path)]) == 1
        assert f"line {number + 3} of" in capsys.readouterr().out
        before, new = digests(tmp_path), tmp_path / f"new-{number}.journal"
        assert main(["salvage", str(path), "--out", str(new)]) == 0
        said = capsys.readouterr().out
        assert f"{number} records from before the damage" in said
        assert f"{len(ends) - 2 - covered} from after its position" in said
        with build(name, journal=new, verify="all") as loop:
            assert loop.history.to_records() == whole
            assert repr(derived(loop)) == seen
        assert {k: v for k, v in digests(tmp_path).items() if k in before} == before
        # cut off: what came behind the snapshot is lost, and nothing else
        path.write_bytes(content[: ends[number + 1]])
        with pytest.raises(SnapshotAheadError):
            build(name, journal=path)
        assert main(["check", str(path)]) == 1
        assert f"only {number} are whole" in capsys.readouterr().out
        cut = tmp_path / f"cut-{number}.journal"
        assert main(["salvage", str(path), "--out", str(cut)]) == 0
        with build(name, journal=cut, verify="all") as loop:
            assert num_steps(loop.history) > 0
            assert loop.history.num_queries <= len(whole)
            known = [query["x"] for query in loop.history.to_records()]
            assert known == [query["x"] for query in whole[: len(known)]]
        assert main(["salvage", str(path), "--out", str(cut)]) == 2
        assert "already exists" in capsys.readouterr().err


@pytest.mark.usefixtures("frequent")
def test_a_snapshot_that_says_otherwise_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = played(tmp_path, "arms, ucb")
    snapshot = Journal.read(path).read_snapshot()
    assert snapshot is not None
    told = next(query for query in snapshot.state["history"] if query["reward"] is not None)
    told["reward"] += 1.0
    with Journal.open(path) as journal:
        journal.write_snapshot(snapshot.state, snapshot.num_records)
    build("arms, ucb", journal=path).close()  # nothing is compared
    with pytest.raises(JournalError, match=r"differ: query .* has reward"):
        build("arms, ucb", journal=path, verify="all")
    assert main(["check", str(path)]) == 1
    assert "differ: query" in capsys.readouterr().out


def test_of_another_program_the_prefix_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.journal"
    with Journal.create(path, {"mine": 1}) as journal:
        for i in range(6):
            journal.append({"i": i})
        journal.write_snapshot({"sum": 15}, 6)
    path.write_bytes(path.read_bytes()[: line_ends(path)[4]])
    assert main(["salvage", str(path), "--out", str(tmp_path / "new")]) == 0
    assert "only the program that wrote it can read its content" in capsys.readouterr().out
    assert list(Journal.read(tmp_path / "new").records()) == [{"i": i} for i in range(3)]
    (tmp_path / "none").write_bytes(b"hello")
    assert main(["check", str(tmp_path / "none")]) == 2
    assert main(["check", str(tmp_path / "missing")]) == 2

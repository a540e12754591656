"""Mutated files are opened: none may hang, take much memory, write elsewhere or be half read.

Journals, their snapshots, folders of results and CSV files are changed at random: bytes, lines, and
entries of records whose checksums are made right again, as somebody would who wants to be believed.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import json
import os
import random
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.fault_cases import SETTING_NAMES, build, play
from botorch_bandits.cli.command_line import printable
from botorch_bandits.cli.summary import describe
from botorch_bandits.journal import Journal, JournalError
from botorch_bandits.journal.lines import _checksum, first_checksum, format_line
from botorch_bandits.journal.salvage import read_remains
from botorch_bandits.loop.salvage import check_remains, write_salvage
from botorch_bandits.problems.tuning import load_csv

KINDS = ("journal", "snapshot", "csv")
CLEAR = (JournalError, OSError, ValueError, TypeError)
"""What a refusal may be; the command line prints it in place of a traceback."""
LONGEST_SECONDS = 30
_ABSURD: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2**31, 2**63, 2**64, 10**30, 10**400, 1e308, -1e308, 5e-324, 0.1,
    "", "x", "\x1b[2J", "float:nan", "float:inf", "../../outside", "/etc/passwd", "A" * 5000,
    [], {}, [0.5], [[]], [None], [1e308] * 3, [0.1] * 2000, {"class": "os:system"},
    {"class": "botorch_bandits:Censored", "minimum": None}, [[[[[[[[[[[[[[[1]]]]]]]]]]]]]]],
)  # fmt: skip


@dataclass
class HostileCount:
    """What mutated files of one kind did.

    Attributes:
        kind: Of file.
        opened: How many were opened.
        refused: How many with an error that says why.
        crashed: How many with another error.
        hung: How many took longer than half a minute.
        elsewhere: How many changed a file beside the folder.
        changed: How many journals were changed by reading them.
        megabytes: What the process needed at most beyond what it had before.
        first: The first error that is no refusal, for whoever has to mend it.
    """

    kind: str
    opened: int = 0
    refused: int = 0
    crashed: int = 0
    hung: int = 0
    elsewhere: int = 0
    changed: int = 0
    megabytes: float = 0.0
    first: str = field(default="", compare=False)

    @property
    def is_clean(self) -> bool:
        """Whether every file was read or refused, and nothing else happened."""
        is_small = self.megabytes < 200.0
        return is_small and not (self.crashed or self.hung or self.elsewhere or self.changed)


class _HungError(BaseException):
    """A file took too long."""


def count_hostile(
    kind: str, num_files: int, seed: int = 0, on_file: Callable[[], None] | None = None
) -> HostileCount:
    """Open mutated files of one kind.

    Args:
        kind: One of ``KINDS``.
        num_files: How many.
        seed: Of the mutations.
        on_file: Called after each.
    """
    chance, count = random.Random(f"{seed} {kind}"), HostileCount(kind)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outside = Path(name)
        (outside / "victim").write_bytes(b"a file of the user\n")
        samples = _samples(kind, outside / "samples", seed)
        for sample in samples:  # what reading imports is not what a file takes
            _open(kind, _prepare(kind, sample, sample.content, outside / "work"), sample, chance)
        before = _begin_peak()
        watched = _state_of(outside)
        for _ in range(num_files):
            sample = chance.choice(samples)
            folder = _prepare(kind, sample, _mutate(sample, chance), outside / "work")
            content = _state_of(folder)
            count.opened += 1
            try:
                with _time_limit():
                    _open(kind, folder, sample, chance)
            except _HungError:
                count.hung += 1
            except CLEAR as error:
                count.refused += 1
                if len(str(error)) > 5000:
                    count.crashed += 1
                    count.first = count.first or f"{len(str(error))} letters: {error}"[:500]
            except Exception as error:
                count.crashed += 1
                count.first = count.first or "".join(traceback.format_exception(error))[-900:]
            if kind in ("journal", "snapshot"):
                after = {n: c for n, c in _state_of(folder).items() if n in content}
                count.changed += after != content
            count.elsewhere += _state_of(outside) != watched
            if on_file is not None:
                on_file()
        count.megabytes = _peak() - before
    return count


@dataclass(frozen=True)
class _Sample:
    name: str
    content: bytes
    beside: bytes | None = None


def _samples(kind: str, folder: Path, seed: int) -> list[_Sample]:
    folder.mkdir()
    if kind == "csv":
        rows = [f"{0.1 * i},{i % 7},{'abc'[i % 3]},{i % 2}" for i in range(60)]
        return [_Sample("data.csv", "\n".join(["a,b,c,label", *rows]).encode())]
    samples = []
    for name in SETTING_NAMES:
        path = folder / "run.journal"
        with build(name, journal=path) as loop:
            play(loop, 24)
            records = loop.history.to_records()
        with Journal.open(path) as journal:
            state = {"given": 0, "fit": None, "history": _plain(records)}
            journal.write_snapshot(state, after=journal.num_records)
        with build(name, journal=path) as loop:
            play(loop, 30)
        beside = path.with_name("run.journal.snapshot")
        content, snapshot = path.read_bytes(), beside.read_bytes()
        for left in folder.iterdir():
            left.unlink()
        if kind == "journal":
            samples.append(_Sample(name, content, snapshot if seed % 2 else None))
        elif kind == "snapshot":
            samples.append(_Sample(name, snapshot, content))
    return samples


def _plain(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    plain: list[dict[str, Any]] = json.loads(json.dumps(records))
    return plain


def _prepare(kind: str, sample: _Sample, content: bytes, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for left in folder.iterdir():
        left.unlink()
    main, beside = {
        "journal": ("run.journal", "run.journal.snapshot"),
        "snapshot": ("run.journal.snapshot", "run.journal"),
    }.get(kind, (sample.name, ""))
    size = len(content)
    if content.endswith(_HOLE):
        content, size = content.removesuffix(_HOLE), 2**40
    (folder / main).write_bytes(content)
    if size > len(content):
        os.truncate(folder / main, size)
    if sample.beside is not None and beside:
        (folder / beside).write_bytes(sample.beside)
    return folder


_HOLE = b"a hole of a terabyte"


def _mutate(sample: _Sample, chance: random.Random) -> bytes:
    """Return content that is changed in one or a few places."""
    content = sample.content
    lot = chance.random()
    if lot < 0.4 and content.startswith((b"{", b"botorch_bandits")):
        return _mutate_entries(content, chance)
    if lot < 0.41:
        return content[: chance.randrange(len(content))] + _HOLE
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 5, 20))):
        at = chance.randrange(len(changed) + 1)
        end = min(len(changed), at + chance.choice((1, 2, 10, 100, 3000)))
        how = chance.randrange(6)
        if how == 0 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        elif how == 1:
            del changed[at:end]
        elif how == 2:
            changed[at:at] = changed[at:end]
        elif how == 3:
            changed[at:end] = chance.randbytes(end - at)
        elif how == 4:
            changed[at:at] = chance.choice((b"\n", b"\0" * 500, b"9" * 30, b"[" * 3000, b'","'))
        else:
            del changed[at:]
        if not changed:
            return b""
    if chance.random() < 0.2:
        rows = bytes(changed).splitlines(keepends=True)
        chance.shuffle(rows)
        return b"".join(rows)
    return bytes(changed)


def _mutate_entries(content: bytes, chance: random.Random) -> bytes:
    """Return content with other entries, and checksums that are right."""
    if content.startswith(b"{"):
        known = json.loads(content)
        _change_somewhere(known, chance)
        return json.dumps(known).encode()
    kind = "journal" if content.startswith(format_line("journal")) else "snapshot"
    payloads = [line.split(b" ", 2)[2] for line in content.splitlines()[1:]]
    records = [json.loads(payload) for payload in payloads]
    for _ in range(chance.choice((1, 1, 2, 4))):
        number = chance.randrange(len(records)) if chance.random() < 0.7 else 0
        how = chance.random()
        if how < 0.8:
            _change_somewhere(records[number], chance)
        elif how < 0.9:
            records.insert(number, copy.deepcopy(chance.choice(records)))
        elif len(records) > 1:
            del records[number]
    made, previous = [format_line(kind)], first_checksum(kind)
    for record in records:
        payload = json.dumps(record, separators=(",", ":")).encode()
        previous = _checksum(payload, previous)
        made.append(b"%d %s %s\n" % (len(payload), previous.encode(), payload))
    return b"".join(made)


def _change_somewhere(record: Any, chance: random.Random) -> None:
    """Change one entry at some depth: replace, remove or rename it."""
    while True:
        if isinstance(record, dict) and record:
            key: Any = chance.choice(list(record))
        elif isinstance(record, list) and record:
            key = chance.randrange(len(record))
        else:
            return
        if isinstance(record[key], dict | list) and record[key] and chance.random() < 0.75:
            record = record[key]
            continue
        how = chance.random()
        if how < 0.75:
            record[key] = copy.deepcopy(chance.choice(_ABSURD))
        elif how < 0.9:
            del record[key]
        elif isinstance(record, dict):
            record["new"] = record.pop(key)
        return


def _open(kind: str, folder: Path, sample: _Sample, chance: random.Random) -> None:
    """Do with a file what commands and loops do, as far as it is not refused."""
    if kind == "csv":
        load_csv(folder / "data.csv", "label")
        return
    path = folder / "run.journal"
    lot = chance.random()
    if lot < 0.75:  # as show does
        reader = Journal.read(path)
        printable(describe(reader))
    elif lot < 0.93:  # as check and salvage do
        remains = read_remains(path)
        check_remains(remains)
        if chance.random() < 0.3:
            write_salvage(remains, folder / "new.journal")
            Journal.read(folder / "new.journal", verify="all")
    else:
        content = path.read_bytes() if path.stat().st_size < 2**30 else None
        try:
            with build(sample.name, journal=path, verify=chance.choice(("tail", "all"))) as loop:
                loop.history.to_records()
        finally:
            if content is not None and path.stat().st_size < len(content):
                # a torn tail was cut off: it is kept
                (kept,) = folder.glob("run.journal.cut-*")
                assert path.read_bytes() + kept.read_bytes() == content
                path.write_bytes(content)


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise _HungError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _state_of(folder: Path) -> dict[str, str]:
    """Return what is in a folder, without the one that is worked in."""
    found = {}
    for path in folder.rglob("*"):
        if "work" in path.relative_to(folder).parts or not path.is_file():
            continue
        size = path.stat().st_size
        content = path.read_bytes() if size < 2**20 else b""
        found[path.name] = f"{size} {hashlib.sha256(content).hexdigest()}"
    return found


def _begin_peak() -> float:
    """Begin to watch for the most memory that the process takes; return what it has now, in MB."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _peak() -> float:
    return _memory("VmHWM")


def _memory(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise AssertionError(name)

"""Kill, cut off and reopen durable loops, and count what was lost or changed.

What a loop writes is compared, byte by byte, with the journal of a run that nothing happened to.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

from botorch.exceptions.warnings import InputDataWarning
from records import ON_BOXES, differ

from benchmarks.fault_cases import SETTING_NAMES, build, cut, num_steps, play, step
from botorch_bandits.checks import check_integer, check_one_of
from botorch_bandits.feedback import LateOutcomeWarning
from botorch_bandits.journal import Journal, TornTailWarning

LONGEST_LIFE = {"arms": 0.1, "box": 1.0}
"""Seconds after which a process that has its journal open is killed, at most."""

NUM_RECORDS_CUT = {"arms": 40, "box": 16}
"""How many records the journals have that are cut off."""


@dataclass(frozen=True)
class FaultCount:
    """What faults did to a loop with one of the settings.

    Attributes:
        setting: Its name.
        kills: How often a process that played was killed.
        cuts: At how many bytes a journal was cut off.
        records: How many records the killed processes wrote.
        torn: How many kills or cuts left an incomplete line.
        lost_outcomes: Outcomes that are not on record, or with other values, although their
            ``tell`` returned.
        changed_suggestions: Suggestions that differ from the uninterrupted run's in the point or
            in anything that is recorded with it.
        other_changes: Further lines that differ or are missing.
    """

    setting: str
    kills: int
    cuts: int
    records: int
    torn: int
    lost_outcomes: int
    changed_suggestions: int
    other_changes: int

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost and nothing changed."""
        return not (self.lost_outcomes or self.changed_suggestions or self.other_changes)


@dataclass
class _Tally:
    lost: int = 0
    changed: int = 0
    others: int = 0
    torn: int = 0
    records: int = 0

    def add(self, journal: bytes, whole: bytes) -> None:
        lost, changed, others = compare_journals(journal, whole)
        self.lost, self.changed = self.lost + lost, self.changed + changed
        self.others += others


def count_faults(
    setting: str,
    num_kills: int,
    num_cuts: int,
    seed: int = 0,
    on_fault: Callable[[], None] | None = None,
) -> FaultCount:
    """Kill and cut off a loop again and again, and compare it with one that was left alone.

    Args:
        setting: One of ``SETTING_NAMES``.
        num_kills: How often a process that plays is killed (SIGKILL), each time at a random moment.
        num_cuts: How often a journal is cut off at a random byte, and continued.
        seed: Of moments and bytes.
        on_fault: Called after each.

    Raises:
        ValueError: If there is no such setting, or processes cannot be killed on this system.
    """
    check_one_of("setting", setting, SETTING_NAMES)
    check_integer("num_kills", num_kills, minimum=0)
    check_integer("num_cuts", num_cuts, minimum=0)
    if "forkserver" not in multiprocessing.get_all_start_methods():
        raise ValueError("the fault campaign needs SIGKILL and a fork server, as on Linux.")
    chance, tally, done = random.Random(f"{seed} {setting}"), _Tally(), on_fault or (lambda: None)
    with tempfile.TemporaryDirectory() as folder, _quiet():
        if num_kills:
            _kill(setting, Path(folder), num_kills, chance, tally, done)
        if num_cuts:
            _cut_off(setting, Path(folder), num_cuts, chance, tally, done)
    return FaultCount(
        setting,
        num_kills,
        num_cuts,
        tally.records,
        tally.torn,
        tally.lost,
        tally.changed,
        tally.others,
    )


def compare_journals(journal: bytes, whole: bytes) -> tuple[int, int, int]:
    """Compare two journals line by line, numbers up to the rounding of a rebuilt loop.

    A line that only one of them has differs.

    Args:
        journal: Of a run with faults.
        whole: Of one without, as long as the other should be.

    Returns:
        How many lines differ: outcomes, failures and attached points; suggestions; others.
    """
    lines, wanted = (_payloads(content) for content in (journal, whole))
    differing = [0, 0, 0]
    for k in range(max(len(lines), len(wanted))):
        line = lines[k] if k < len(lines) else None
        expected = wanted[k] if k < len(wanted) else None
        if line is None or expected is None or differ(_read(line), _read(expected), ON_BOXES):
            differing[_kind_of(expected if expected is not None else line)] += 1
    return differing[0], differing[1], differing[2]


def kill_once(
    setting: str, path: Path, delay: float, context: BaseContext | None = None
) -> tuple[list[int], bool]:
    """Have a process play on a journal, and kill it.

    Args:
        setting: One of ``SETTING_NAMES``.
        path: Of the journal.
        delay: When, in seconds after the journal is open.
        context: How the process starts; by a fork server if omitted.

    Returns:
        The numbers of records that it said were written, one after each step, and whether the
        journal's last line is incomplete.
    """
    context = context or _fork_server()
    receiving, sending = context.Pipe(duplex=False)
    player = context.Process(  # type: ignore[attr-defined]
        target=play_for_ever, args=(setting, path, sending)
    )
    player.start()
    sending.close()
    told: list[int] = []
    try:
        told.append(receiving.recv())  # the journal is open
        time.sleep(delay)
    finally:
        player.kill()
        player.join()
    try:
        while True:
            told.append(receiving.recv())
    except (EOFError, OSError):
        receiving.close()
    num_records = Journal.read(path).num_records
    return told, len(cut(path.read_bytes(), num_records)) < path.stat().st_size


def play_for_ever(setting: str, path: Path, answers: Connection) -> None:
    """In a process of its own: go on, and say after each step how many records there are."""
    with _quiet():
        loop = build(setting, journal=path)
        answers.send(num_steps(loop.history))
        while True:
            step(loop)
            answers.send(num_steps(loop.history))


def play_whole(setting: str, path: Path, total: int) -> None:
    """Play up to so many records without a fault."""
    with _quiet(), build(setting, journal=path) as loop:
        play(loop, total)


def _kill(
    setting: str,
    folder: Path,
    num_kills: int,
    chance: random.Random,
    tally: _Tally,
    done: Callable[[], None],
) -> None:
    context, path, num_known = _fork_server(), folder / "killed.journal", 0
    for _ in range(num_kills):
        life = chance.uniform(0.0, LONGEST_LIFE[setting.split(",")[0]])
        told, is_torn = kill_once(setting, path, life, context)
        tally.torn += is_torn
        num_records = Journal.read(path).num_records
        # what was answered is on disk, and at most one record more; nothing came in between
        tally.lost += max(told[-1] - num_records, 0)
        if told != list(range(num_known, told[-1] + 1)) or num_records - told[-1] > 1:
            tally.others += 1
        num_known = num_records
        done()
    whole = folder / "whole.journal"
    # in a process as the others are: a journal's header has the number of threads
    player = context.Process(  # type: ignore[attr-defined]
        target=play_whole, args=(setting, whole, num_known)
    )
    player.start()
    player.join()
    if player.exitcode != 0:
        raise RuntimeError(f"the uninterrupted run of {setting!r} ended with {player.exitcode}.")
    tally.add(cut(path.read_bytes(), num_known), cut(whole.read_bytes(), num_known))
    tally.records = num_known


def _cut_off(
    setting: str,
    folder: Path,
    num_cuts: int,
    chance: random.Random,
    tally: _Tally,
    done: Callable[[], None],
) -> None:
    """Cut a journal off at random bytes; reopened and played on it must become what it was."""
    total = NUM_RECORDS_CUT[setting.split(",")[0]]
    whole, path = folder / "uncut.journal", folder / "cut.journal"
    play_whole(setting, whole, total)
    content = cut(whole.read_bytes(), total)
    for _ in range(num_cuts):
        size = chance.randrange(len(cut(content, 0)), len(content))
        path.write_bytes(content[:size])
        num_whole = content[:size].count(b"\n") - 2
        tally.torn += not content[:size].endswith(b"\n")
        with build(setting, journal=path) as loop:
            tally.lost += max(num_whole - num_steps(loop.history), 0)
            play(loop, total)
        tally.add(cut(path.read_bytes(), total), content)
        for left in folder.glob("cut.journal*"):
            left.unlink()
        done()


def _fork_server() -> BaseContext:
    """Return a server that has this module loaded, so that a process of it starts at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    before = os.environ.get("PYTHONPATH")
    # the server does not get this process's path, and would leave the module to each process
    path = [str(Path(__file__).resolve().parents[1]), *([before] if before else [])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    return context


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        for category in (TornTailWarning, LateOutcomeWarning, InputDataWarning):
            warnings.simplefilter("ignore", category)
        yield


def _payloads(journal: bytes) -> list[bytes]:
    """Return what lines say; checksums of all lines differ behind one that differs."""
    return [line.split(b" ", 2)[2] for line in journal.splitlines()[1:]]


def _read(line: bytes) -> dict[str, Any]:
    """Return what a line says but the digest of the rows of a fit, which has their last bits."""
    record: dict[str, Any] = json.loads(line)
    record.get("fit", {}).pop("digest", None)
    return record


def _kind_of(line: bytes | None) -> int:
    kind = json.loads(line or b"{}").get("kind")
    if kind in ("told", "failed", "attached"):
        return 0
    return 1 if kind == "asked" else 2

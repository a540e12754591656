"""Kill and reopen durable loops, and count what was lost or changed.

What a loop writes is compared, event by event, with a run that nothing happened to.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

from botorch.exceptions.warnings import InputDataWarning
from records import ON_BOXES, differ

from benchmarks.fault_cases import SETTING_NAMES, build, num_steps, play, step
from botorch_bandits.checks import check_integer, check_one_of
from botorch_bandits.loop import LateOutcomeWarning, read_store

LONGEST_LIFE = {"arms": 0.1, "box": 1.0}
"""Seconds after which a process that has its loop open is killed, at most."""


@dataclass(frozen=True)
class FaultCount:
    """What faults did to a loop with one of the settings.

    Attributes:
        setting: Its name.
        kills: How often a process that played was killed.
        steps: How many steps the killed processes took.
        lost_outcomes: Outcomes that are not on record, or with other values, although their
            ``tell`` returned.
        changed_suggestions: Suggestions that differ from the uninterrupted run's in the point or
            in anything that is recorded with it.
        other_changes: Further events that differ or are missing.
    """

    setting: str
    kills: int
    steps: int
    lost_outcomes: int
    changed_suggestions: int
    other_changes: int

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost and nothing changed."""
        return not (self.lost_outcomes or self.changed_suggestions or self.other_changes)


def count_faults(setting: str, num_kills: int, seed: int = 0) -> FaultCount:
    """Kill a loop again and again, and compare it with one that was left alone.

    Args:
        setting: One of ``SETTING_NAMES``.
        num_kills: How often a process that plays is killed (SIGKILL), each time at a random moment.
        seed: Of the moments.

    Raises:
        ValueError: If there is no such setting, or processes cannot be killed on this system.
    """
    check_one_of("setting", setting, SETTING_NAMES)
    check_integer("num_kills", num_kills, minimum=0)
    if "forkserver" not in multiprocessing.get_all_start_methods():
        raise ValueError("the fault campaign needs SIGKILL and a fork server, as on Linux.")
    chance, context = random.Random(f"{seed} {setting}"), _fork_server()
    lost = others = num_known = 0
    with tempfile.TemporaryDirectory() as folder, _quiet():
        path, whole = Path(folder) / "killed.db", Path(folder) / "whole.db"
        for _ in range(num_kills):
            life = chance.uniform(0.0, LONGEST_LIFE[setting.split(",")[0]])
            told, num_steps_now = kill_once(setting, path, life, context)
            # what was answered is on disk, and at most one step more; nothing came in between
            lost += max(told[-1] - num_steps_now, 0)
            others += told != list(range(num_known, told[-1] + 1)) or num_steps_now - told[-1] > 1
            num_known = num_steps_now
        player = context.Process(  # type: ignore[attr-defined]
            target=play_whole, args=(setting, whole, num_known)
        )
        player.start()
        player.join()
        if player.exitcode != 0:
            raise RuntimeError(f"the run of {setting!r} ended with {player.exitcode}.")
        found = compare_runs(path, whole)
    return FaultCount(setting, num_kills, num_known, lost + found[0], found[1], others + found[2])


def compare_runs(path: Path, whole: Path) -> tuple[int, int, int]:
    """Compare two runs event by event, numbers up to the rounding of a rebuilt loop.

    An event that only one of them has differs.

    Args:
        path: Of a run with faults.
        whole: Of one without, of as many steps.

    Returns:
        How many events differ: outcomes and failures; suggestions; others.
    """
    differing = [0, 0, 0]
    for found, expected in zip_longest(read_store(path)[1], read_store(whole)[1]):
        if None in (found, expected) or differ(_parts(found), _parts(expected), ON_BOXES):
            kind = (expected or found).kind
            differing[{"told": 0, "failed": 0, "asked": 1}.get(kind, 2)] += 1
    return differing[0], differing[1], differing[2]


def kill_once(
    setting: str, path: Path, delay: float, context: BaseContext | None = None
) -> tuple[list[int], int]:
    """Have a process play on a run, and kill it.

    Args:
        setting: One of ``SETTING_NAMES``.
        path: Of the run.
        delay: When, in seconds after the loop is open.
        context: How the process starts; by a fork server if omitted.

    Returns:
        The numbers of steps that it said were recorded, one after each step, and that on record.
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
        told.append(receiving.recv())  # the loop is open
        time.sleep(delay)
    finally:
        player.kill()
        player.join()
    try:
        while True:
            told.append(receiving.recv())
    except (EOFError, OSError):
        receiving.close()
    events = read_store(path)[1]
    # an attached point and its outcome are one step
    return told, len(events) - sum(e.body.get("origin") == "attached" for e in events)


def play_for_ever(setting: str, path: Path, answers: Connection) -> None:
    """In a process of its own: go on, and say after each step how many there were."""
    with _quiet():
        loop = build(setting, storage=path)
        answers.send(num_steps(loop.history))
        while True:
            step(loop)
            answers.send(num_steps(loop.history))


def play_whole(setting: str, path: Path, total: int) -> None:
    """Play so many steps without a fault."""
    with _quiet(), build(setting, storage=path) as loop:
        play(loop, total)


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
        for category in (LateOutcomeWarning, InputDataWarning):
            warnings.simplefilter("ignore", category)
        yield


def _parts(event: Any) -> Any:
    """Return what an event says but who wrote it, and the digest of the rows of a fit."""
    body = dict(event.body)
    body["fit"] = {k: v for k, v in body.get("fit", {}).items() if k != "digest"}
    return event.seq, event.kind, event.query, event.at, body

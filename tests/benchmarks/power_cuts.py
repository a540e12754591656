"""A simulated file system: what a power cut may leave of what was written, as POSIX has it.

Everything that a program does to the files of a folder is noted. After each step the power may go:
what was synchronized since is there, and of the rest any part may be, in any order. A write may be
missing, there by half, or there as zeros; an entry of a folder (a file made, linked, renamed or
removed) may be missing until the folder itself was synchronized. Each such state is written to a
folder of its own, which is opened again.
"""

from __future__ import annotations

import itertools
import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_REAL = {
    name: getattr(os, name)
    for name in (
        "open", "write", "fsync", "ftruncate", "link", "rename", "replace", "unlink", "mkdir",
    )
}  # fmt: skip
MOST_STATES = 200
"""Of one moment, so many are looked at, drawn at random where there are more."""


@dataclass
class _File:
    """What is on disk of a file, and what may be."""

    safe: bytearray = field(default_factory=bytearray)
    waiting: list[tuple[str, int, bytes]] = field(default_factory=list)


class PowerCuts:
    """Notes what is done below a folder.

    Args:
        folder: It is there, and empty, on disk.
    """

    def __init__(self, folder: Path) -> None:
        """See the class."""
        self.folder = folder.resolve()
        self.steps: list[tuple[Any, ...]] = []
        self._numbers: dict[int, int] = {}  # of files, by inode
        self._count = 0

    @contextmanager
    def recording(self) -> Iterator[PowerCuts]:
        """Note everything that is done in here."""
        for name in _REAL:
            setattr(os, name, getattr(self, f"_{name}"))
        try:
            yield self
        finally:
            for name, real in _REAL.items():
                setattr(os, name, real)

    def promise(self, value: Any) -> None:
        """Note that the program was told so much; see :meth:`states`."""
        self.steps.append(("promise", value))

    def states(self, target: Path, seed: int = 0) -> Iterator[tuple[Path, list[Any]]]:
        """Write each state that a power cut may leave into a folder, one after the other.

        Args:
            target: Folders are made in it.
            seed: Of the states that are drawn where there are many.

        Yields:
            The folder, and what had been promised before the power went.
        """
        chance, seen = random.Random(seed), set()
        for end in range(len(self.steps) + 1):
            files, safe, waiting, promised = self._replay(self.steps[:end])
            for chosen in _choices(files, waiting, chance):
                state = self._state(files, safe, chosen)
                key = (tuple(sorted(state.items())), len(promised))
                if key in seen:
                    continue
                seen.add(key)
                folder = target / f"{len(seen)}"
                _write_state(folder, state)
                yield folder, promised

    def _replay(
        self, steps: list[tuple[Any, ...]]
    ) -> tuple[dict[int, _File], dict[str, int], list[tuple[Any, ...]], list[Any]]:
        files: dict[int, _File] = {}
        safe: dict[str, int] = {}
        waiting: list[tuple[Any, ...]] = []
        promised = []
        for kind, *rest in steps:
            if kind == "promise":
                promised.append(rest[0])
            elif kind in ("write", "truncate"):
                files.setdefault(rest[0], _File()).waiting.append((kind, *rest[1:]))
            elif kind == "sync":
                file = files.setdefault(rest[0], _File())
                for step in file.waiting:
                    _apply(file.safe, step, "whole")
                file.waiting.clear()
            elif kind == "sync folder":
                for step in waiting:
                    if _parent(step) == rest[0]:
                        _apply_entry(safe, step)
                waiting = [step for step in waiting if _parent(step) != rest[0]]
            else:
                waiting.append((kind, *rest))
        return files, safe, waiting, promised

    def _state(
        self, files: dict[int, _File], safe: dict[str, int], chosen: tuple[Any, Any]
    ) -> dict[str, bytes | None]:
        entries, contents = dict(safe), {}
        for step in chosen[0]:
            _apply_entry(entries, step)
        for number, file in files.items():
            content = bytearray(file.safe)
            for step, how in zip(file.waiting, chosen[1].get(number, ()), strict=False):
                _apply(content, step, how)
            contents[number] = bytes(content)
        return {
            path: None if number < 0 else contents.get(number, b"")
            for path, number in entries.items()
            if _is_reachable(path, entries)
        }

    def _name(self, path: Any) -> str | None:
        """Return a path below the folder; None for others."""
        absolute = Path(os.path.abspath(os.fspath(path))) if not isinstance(path, int) else None
        if absolute is None or self.folder not in (absolute, *absolute.parents):
            return None
        return absolute.relative_to(self.folder).as_posix()

    def _number(self, descriptor: int) -> int | None:
        return self._numbers.get(os.fstat(descriptor).st_ino)

    def _open(self, path: Any, flags: int, *rest: Any, **options: Any) -> int:
        name = self._name(path)
        is_new = name is not None and not os.path.lexists(path)
        descriptor: int = _REAL["open"](path, flags, *rest, **options)
        if name is not None and is_new:
            self._count += 1
            self._numbers[os.fstat(descriptor).st_ino] = self._count
            self.steps.append(("make", name, self._count))
        if flags & os.O_TRUNC and (number := self._number(descriptor)) is not None:
            self.steps.append(("truncate", number, 0, b""))
        return descriptor

    def _write(self, descriptor: int, content: Any) -> int:
        at = os.lseek(descriptor, 0, os.SEEK_CUR) if self._number(descriptor) else 0
        written: int = _REAL["write"](descriptor, content)
        if (number := self._number(descriptor)) is not None:
            self.steps.append(("write", number, at, bytes(content[:written])))
        return written

    def _ftruncate(self, descriptor: int, size: int) -> None:
        _REAL["ftruncate"](descriptor, size)
        if (number := self._number(descriptor)) is not None:
            self.steps.append(("truncate", number, size, b""))

    def _fsync(self, descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            name = self._name(os.readlink(f"/proc/self/fd/{descriptor}"))
            if name is not None:
                self.steps.append(("sync folder", name))
        elif (number := self._number(descriptor)) is not None:
            self.steps.append(("sync", number))

    def _link(self, source: Any, target: Any, **options: Any) -> None:
        number = self._numbers[os.stat(source).st_ino]
        _REAL["link"](source, target, **options)
        self.steps.append(("make", self._name(target), number))

    def _rename(self, source: Any, target: Any, **options: Any) -> None:
        number = self._numbers[os.stat(source).st_ino]
        _REAL["replace"](source, target, **options)
        self.steps.append(("rename", self._name(target), number, self._name(source)))

    _replace = _rename

    def _unlink(self, path: Any, **options: Any) -> None:
        _REAL["unlink"](path, **options)
        if (name := self._name(path)) is not None:
            self.steps.append(("remove", name))

    def _mkdir(self, path: Any, *rest: Any, **options: Any) -> None:
        _REAL["mkdir"](path, *rest, **options)
        if (name := self._name(path)) is not None:
            self.steps.append(("make", name, -1))


def _parent(step: tuple[Any, ...]) -> str:
    return Path(step[1]).parent.as_posix()


def _is_reachable(path: str, entries: dict[str, int]) -> bool:
    return all(
        entries.get(parent.as_posix(), 0) < 0
        for parent in Path(path).parents
        if parent != Path(".")
    )


def _apply_entry(entries: dict[str, int], step: tuple[Any, ...]) -> None:
    kind, name, *rest = step
    if kind == "remove":
        entries.pop(name, None)
        return
    if kind == "rename":
        entries.pop(rest[1], None)
    entries[name] = rest[0]


def _apply(content: bytearray, step: tuple[str, int, bytes], how: str) -> None:
    kind, at, written = step
    if how == "missing":
        return
    if kind == "truncate":
        if at <= len(content):
            del content[at:]
        else:
            content.extend(bytes(at - len(content)))
        return
    if how == "half":
        written = written[: len(written) // 2]
    if how == "zeros":
        written = bytes(len(written))
    if at > len(content):
        content.extend(bytes(at - len(content)))
    content[at : at + len(written)] = written


def _choices(
    files: dict[int, _File], waiting: list[tuple[Any, ...]], chance: random.Random
) -> Iterator[tuple[list[tuple[Any, ...]], dict[int, tuple[str, ...]]]]:
    """Return what may have reached the disk: of the folder's entries, and of each file's writes."""
    numbers = [number for number, file in files.items() if file.waiting]
    options: list[tuple[Any, ...]] = [(False, True)] * len(waiting)
    for number in numbers:
        for kind, _, _ in files[number].waiting:
            options.append(
                ("missing", "whole")
                if kind == "truncate"
                else ("missing", "half", "zeros", "whole")
            )
    total = 1
    for each in options:
        total *= len(each)
    picks: Any = itertools.product(*options)
    if total > MOST_STATES:
        picks = (tuple(chance.choice(each) for each in options) for _ in range(MOST_STATES))
    for pick in picks:
        entries = [step for step, is_there in zip(waiting, pick, strict=False) if is_there]
        rest, contents = list(pick[len(waiting) :]), {}
        for number in numbers:
            size = len(files[number].waiting)
            contents[number], rest = tuple(rest[:size]), rest[size:]
        yield entries, contents


def _write_state(folder: Path, state: dict[str, bytes | None]) -> None:
    folder.mkdir(parents=True)
    for name, content in sorted(state.items()):
        path = folder / name
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)


def cut_power(
    folder: Path,
    program: Callable[[Path, PowerCuts], None],
    check: Callable[[Path, list[Any]], None],
) -> int:
    """Have a program run, cut the power at each moment, and check what is left each time.

    Args:
        folder: Empty; folders are made in it.
        program: Works in the folder that it is given, and says what it was promised.
        check: Opens what is left, and raises if a promise is broken.

    Returns:
        How many states were checked.
    """
    (folder / "program").mkdir()
    cuts, count = PowerCuts(folder / "program"), 0
    with cuts.recording():
        program(folder / "program", cuts)
    for state, promised in cuts.states(folder / "states"):
        check(state, promised)
        count += 1
    return count

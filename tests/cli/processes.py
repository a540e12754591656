"""Commands in processes of their own, which are forked: that spares each the imports of seconds."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from botorch_bandits.cli import main


class Running:
    """A command that was started; like :class:`subprocess.Popen`, as far as tests need it.

    Args:
        arguments: Of the command line.
        environment: What is added to the environment.
    """

    def __init__(self, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._paths = [Path(self._folder.name) / name for name in ("output", "errors")]
        self._process = multiprocessing.get_context("fork").Process(
            target=_run, args=(arguments, environment, self._paths)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code; of a process that was killed, minus the signal."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Wait for the end, and return what was printed to the two streams."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, "the command goes on"
        output, errors = (path.read_text(encoding="utf-8") for path in self._paths)
        return output, errors


def _run(arguments: tuple[str, ...], environment: dict[str, str], paths: list[Path]) -> None:
    os.setpgrp()  # so that signals to the group meet this process and its workers alone
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    torch.set_num_threads(1)  # threads do not survive a fork
    for descriptor, path in enumerate(paths, 1):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, descriptor)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.exit(main(arguments))


def start(*arguments: str, **environment: str) -> Running:
    """Start a command."""
    return Running(arguments, environment)


def finish(*arguments: str) -> str:
    """Run a command to its end, and return what it printed.

    In a process: bit identity is promised for equal thread counts only.
    """
    process = start(*arguments)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output + errors


def fork_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the workers of commands, which are spawned otherwise and import for seconds each."""
    forking = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method=None: forking)

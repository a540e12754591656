"""Functions that run in processes of their own, which are forked: that spares each the imports.

A new interpreter imports PyTorch and BoTorch for seconds before a test has begun. What a process
must not have from this one, such as locks that are held here, needs a new interpreter.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch


class Forked:
    """A function that was started; like :class:`subprocess.Popen`, as far as tests need it.

    Args:
        function: What runs. Its process ends with 1 if it raises.
        arguments: Of the function.
        environment: What is added to the environment.
        terminal: A descriptor of a terminal that the process is to have for its streams; without
            one, they are files.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        environment: Mapping[str, str] | None = None,
        terminal: int | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._paths = [Path(self._folder.name) / name for name in ("output", "errors")]
        self._process = multiprocessing.get_context("fork").Process(
            target=_run, args=(function, arguments, environment or {}, self._paths, terminal)
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

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        self._process.kill()
        self._process.join()

    def wait(self, timeout: float) -> int:
        """Wait for the end, and return the exit code."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, "the process goes on"
        return self._process.exitcode

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Wait for the end, and return what was printed to the two streams."""
        self.wait(timeout)
        return self._printed(0), self._printed(1)

    def _printed(self, stream: int) -> str:
        path = self._paths[stream]
        return path.read_text(encoding="utf-8") if path.exists() else ""


def _run(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    environment: Mapping[str, str],
    paths: list[Path],
    terminal: int | None,
) -> None:
    if terminal is None:
        os.setpgrp()  # so that signals to the group meet this process and its workers alone
        opened = [os.open(path, os.O_WRONLY | os.O_CREAT) for path in paths]
    else:
        os.setsid()
        os.dup2(terminal, 0)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        opened = [terminal, terminal]
    for descriptor, each in enumerate(opened, 1):
        os.dup2(each, descriptor)
    for each in {*opened} - {0, 1, 2}:
        os.close(each)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    torch.set_num_threads(1)  # threads do not survive a fork
    sys.exit(function(*arguments))

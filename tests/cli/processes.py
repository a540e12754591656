"""Commands in processes of their own, which are forked: that spares each the imports of seconds."""

from __future__ import annotations

import multiprocessing

import pytest
from forked import Forked

from botorch_bandits.cli import main


def start(*arguments: str, **environment: str) -> Forked:
    """Start a command."""
    return Forked(main, arguments, environment=environment)


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

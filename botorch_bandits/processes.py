"""What all process pools of the package share: one thread each, and no process outlives its run.

Worker processes import this file first, so it imports only what it needs.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

__all__ = [
    "end_with_parent",
    "interrupts_on_hold",
    "one_thread_each",
    "processes_of",
    "terminate",
]


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Give one thread to each process that starts inside, because libraries read this at import."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


@contextmanager
def interrupts_on_hold() -> Iterator[None]:
    """Let a process that starts inside take no interrupt before it is ready for one."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """In a worker: leave interrupts to the parent, and end when it has ended, even if killed."""
    # a terminal interrupts all processes; the first process stops the others, with a signal that
    # a forked worker must not pass to a handler that it inherited from its parent
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    assert parent is not None
    if not parent.is_alive():  # it was killed while this worker was importing
        os._exit(1)
    threading.Thread(target=_wait_and_end, args=(parent,), daemon=True).start()


def _wait_and_end(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)


def processes_of(executor: Executor) -> list[multiprocessing.process.BaseProcess]:
    """Return the processes of an executor; none if it has none.

    Args:
        executor: Any executor.
    """
    return list((getattr(executor, "_processes", None) or {}).values())


def terminate(executor: Executor) -> None:
    """End the processes of an executor, even in the middle of a task.

    Args:
        executor: An executor with processes.
    """
    for process in processes_of(executor):
        process.terminate()

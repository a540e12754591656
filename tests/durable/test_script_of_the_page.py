"""The script of docs/how-to/run.md with processes: killed, it leaves none, and it goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from botorch_bandits.loop.store import read_store

ROOT = Path(__file__).parents[2]
PROC = Path("/proc")


def script_of_the_page() -> str:
    text = (ROOT / "docs" / "how-to" / "run.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"^```text\n(from concurrent\.futures .*?)^```$", text, re.M | re.S)
    return str(script)


def num_told(path: Path) -> int:
    if not path.exists():
        return 0
    return kinds(path).count("told")


def kinds(path: Path) -> list[str]:
    return [event.kind for event in read_store(path)[1]]


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.1)
    return condition()


def children_of(parent: int) -> list[int]:
    """The processes that are running now and have this parent."""
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[1]) == parent:
                found.append(int(entry.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not PROC.is_dir(), reason="children are found in /proc")
def test_the_script_of_the_page_survives_a_kill(tmp_path: Path) -> None:
    (tmp_path / "search.py").write_text(script_of_the_page(), encoding="utf-8")
    storage = tmp_path / "search.db"
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "search.py"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment)
    try:
        assert wait_for(lambda: num_told(storage) >= 3, 600.0)
        workers = children_of(process.pid)
        assert len(workers) >= 4
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert wait_for(lambda: not any((PROC / str(worker)).exists() for worker in workers), 60.0)
    before = num_told(storage)
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "deploy" in done.stdout
    found = kinds(storage)
    assert found.count("asked") == 30
    assert found.count("told") + found.count("failed") == 30
    assert found.count("told") > before

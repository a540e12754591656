"""Write the journals of ``journals_0_1``, and what loops that continue from them suggest.

It was run once, with version 0.1: later versions must read what that one wrote. From the root of
the project, with the package of that version and ``tests`` in ``PYTHONPATH``::

    OMP_NUM_THREADS=1 python -m durable.write_journals tests/durable/journals_0_1
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from botorch_bandits.loop import journal as loop_journal

from . import journal_settings as cases


def write(name: str, folder: Path) -> dict[str, Any]:
    """Play a loop, keep its journal and return what it suggests next."""
    path = folder / cases.file_name(name)
    usual = loop_journal.SNAPSHOT_EVERY
    loop_journal.SNAPSHOT_EVERY = cases.settings()[name].get("snapshots", usual)
    with cases.build(name, path, is_new=True) as loop:
        cases.play(loop, cases.length(name))
    loop_journal.SNAPSHOT_EVERY = usual
    with tempfile.TemporaryDirectory() as elsewhere:
        for part in (path, path.with_name(path.name + ".snapshot")):
            if part.exists():
                shutil.copy(part, elsewhere)
        with cases.build(name, Path(elsewhere) / path.name) as loop:
            return cases.go_on(loop)


def write_all(folder: Path, wanted: list[str]) -> None:
    """Write every journal, or those whose names have one of some words in them."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    expected = folder / "expected.json"
    known = json.loads(expected.read_text()) if wanted and expected.exists() else {}
    for name in cases.settings():
        if wanted and not any(word in name for word in wanted):
            continue
        for part in folder.glob(cases.file_name(name) + "*"):
            part.unlink()
        started = time.process_time()
        known[name] = write(name, folder)
        print(f"{time.process_time() - started:6.2f} s {name}  {known[name].get('resets', '')}")
    for lock in folder.glob("*.lock"):
        lock.unlink()
    expected.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    write_all(Path(sys.argv[1]), sys.argv[2:])

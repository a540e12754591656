"""The commands ``check`` and ``salvage``: verify a journal, and recover a damaged one.

Neither of them changes the journal or needs the user's code.
"""

from __future__ import annotations

import argparse

from botorch_bandits.cli.command_line import printable
from botorch_bandits.journal.salvage import Remains, read_remains
from botorch_bandits.loop.salvage import check_remains, is_of_loop, write_salvage

DAMAGED = 1
"""The exit code of ``check`` if something is damaged or missing."""


def run_check(options: argparse.Namespace) -> int:
    """Verify everything in a journal; returns the exit code."""
    remains = read_remains(options.file)
    problems = check_remains(remains)
    for problem in problems:
        print(printable(f"problem: {problem}"))
    print(printable("\n".join(_facts(remains))))
    if problems:
        print(f"\nto recover what is left: botorch-bandits salvage {options.file} --out NEW")
    return DAMAGED if problems else 0


def run_salvage(options: argparse.Namespace) -> int:
    """Write what is left of a journal to a new one; returns the exit code."""
    remains = read_remains(options.file)
    found = write_salvage(remains, options.out)
    print(printable("\n".join(_facts(remains))))
    for note in found.notes:
        print(printable(f"note: {note}"))
    print(
        f"{options.out}: {found.num_records} records from before the damage, "
        f"{found.num_from_snapshot} from the snapshot, {found.num_behind} from after its position"
    )
    return 0


def _facts(remains: Remains) -> list[str]:
    of_loop = "of a loop" if is_of_loop(remains) else "of another program"
    facts = [f"{remains.path}: a journal {of_loop}, {len(remains.records)} whole records"]
    if remains.snapshot is not None:
        facts.append(f"its snapshot covers {remains.snapshot.num_records} records")
    if remains.num_left_bytes:
        facts.append(
            f"{remains.num_left_bytes} bytes after them are not a whole record"
            + ("" if remains.damage else ": their writing was interrupted")
        )
    return facts

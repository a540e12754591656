"""A durable, append-only journal: one record a line, on disk before the writer goes on.

It knows nothing of bandits: records are plain values, and snapshots spare reading all of them.
"""

from botorch_bandits.journal.files import Snapshot
from botorch_bandits.journal.journal import Journal, JournalReader
from botorch_bandits.journal.lines import (
    FORMAT_VERSION,
    JournalCorruptionError,
    JournalError,
    JournalFormatError,
    JournalLockedError,
    JournalWriteError,
    SnapshotWarning,
    TornTailWarning,
)

__all__ = [
    "FORMAT_VERSION",
    "Journal",
    "JournalCorruptionError",
    "JournalError",
    "JournalFormatError",
    "JournalLockedError",
    "JournalReader",
    "JournalWriteError",
    "Snapshot",
    "SnapshotWarning",
    "TornTailWarning",
]

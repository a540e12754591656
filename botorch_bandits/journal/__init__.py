"""A durable, append-only journal: one record a line, on disk before the writer goes on.

:class:`Journal` writes and :class:`JournalReader` reads, also while somebody else writes. All that
can go wrong is a :class:`JournalError` or one of its kinds; warnings say what was repaired.
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
    SnapshotAheadError,
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
    "SnapshotAheadError",
    "SnapshotWarning",
    "TornTailWarning",
]

"""A durable, append-only journal: one record per line, on disk before the writer continues.

:class:`Journal` writes and :class:`JournalReader` reads, even while another process writes. All
failures are a :class:`JournalError` or one of its subclasses; warnings say what was repaired.
"""

from botorch_bandits.journal.journal import Journal, JournalReader
from botorch_bandits.journal.lines import (
    FORMAT_VERSION,
    JournalCorruptionError,
    JournalError,
    JournalFormatError,
    JournalLockedError,
    JournalWriteError,
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
    "TornTailWarning",
]

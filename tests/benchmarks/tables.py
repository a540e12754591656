"""Tables as aligned text and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from botorch_bandits.cli import write_atomically


def as_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows with aligned columns under their names.

    Args:
        rows: With the same names.
    """
    lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    sizes = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{size}}" for cell, size in zip(line, sizes, strict=True)).rstrip()
        for line in lines
    )


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as CSV, all at once.

    Args:
        path: Of the file; folders are made.
        columns: Names, in order; what rows have beside them is left out.
        rows: By name.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue())

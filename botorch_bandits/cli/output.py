"""What a run leaves behind: ``history.csv``, ``result.json`` and a picture."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from botorch_bandits.history import History, flatten_record

Decode = Callable[[list[float]], Mapping[str, Any]]


class OutputFolder:
    """Writes the files of one run; each is replaced as a whole, so none is ever half written.

    Args:
        path: The folder; created if it does not exist.
        decode: Turns a point into named parameters, for the table and the result.

    Raises:
        ValueError: If the folder cannot be written.
    """

    def __init__(self, path: str | Path, decode: Decode) -> None:
        """See the class."""
        self.path = Path(path)
        self._decode = decode
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path / "history.csv", "")
        except OSError as error:
            raise ValueError(f"output folder {path} cannot be written: {error}") from error

    def write_history(self, history: History) -> None:
        """Write one row a query: names of parameters, reward, rounds, times, diagnostics."""
        rows = []
        for record in history.to_records():
            row = flatten_record({**record, "x": None})
            rows.append({**row, **self._decode(record["x"])})
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(self.path / "history.csv", text.getvalue())

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write the summary as JSON."""
        write_atomically(self.path / "result.json", json.dumps(result, indent=2) + "\n")

    def write_picture(self, history: History, title: str, reference: float | None) -> None:
        """Draw the run; says so if matplotlib is not installed."""
        try:
            import matplotlib
        except ImportError:
            print("no picture: pip install 'botorch_bandits[plot]'")
            return
        matplotlib.use("Agg")
        from botorch_bandits.plotting import plot_run

        axes = plot_run(history, title, reference)
        target = self.path / "run.png"
        temporary = target.with_name(f".{target.name}.tmp.png")
        axes[0].figure.savefig(temporary, dpi=130)
        os.replace(temporary, target)
        import matplotlib.pyplot as plt

        plt.close(axes[0].figure)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old one or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)

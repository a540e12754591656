"""What a run leaves behind: its history, ``result.json`` and pictures."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from botorch_bandits.cli.journals import refuse_other_settings
from botorch_bandits.history import History, flatten_record
from botorch_bandits.loop import BanditLoop

HISTORY_FILE = "history.json"
JOURNAL_FILE = "journal.txt"
"""Names the journal of the run whose results the folder has, where there is one."""

Decode = Callable[[list[float]], Mapping[str, Any]]


class OutputFolder:
    """Writes the files of one run; each is replaced as a whole, so none is ever half written.

    A folder that holds a run with the same settings is continued; one with other settings is
    refused, so that no outcome is ever overwritten by accident.

    Args:
        path: The folder; created if it does not exist.
        decode: Turns a point into named parameters, for the table and the result.
        settings: What determines the run, by name.
        overwrite: Start afresh whatever the folder holds.
        journal: Where queries and outcomes are written down instead of ``history.json``, if
            anywhere. The other files say what the journal says.

    Raises:
        ValueError: If the folder cannot be written, or holds a run with other settings.
    """

    def __init__(
        self,
        path: str | Path,
        decode: Decode,
        settings: Mapping[str, Any],
        overwrite: bool = False,
        journal: str | None = None,
    ) -> None:
        """See the class."""
        self.path = Path(path)
        self._has_journal = journal is not None
        self._decode = decode
        self._settings = json.loads(json.dumps(dict(settings)))
        self._known: dict[str, Any] | None = None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if (self.path / HISTORY_FILE).exists() and not overwrite:
                known = json.loads((self.path / HISTORY_FILE).read_text(encoding="utf-8"))
                if not isinstance(known, dict) or not {"settings", "queries"} <= set(known):
                    raise ValueError("it is no history of a run")
                self._known = known
            write_atomically(self.path / ".writable", "")
            (self.path / ".writable").unlink()
        except OSError as error:
            raise ValueError(f"output folder {path} cannot be used: {error}") from error
        except ValueError as error:
            raise ValueError(
                f"{self.path / HISTORY_FILE} is damaged ({error}). Choose another --out folder, or "
                "start afresh with --overwrite."
            ) from error
        if not overwrite:
            self._refuse_other_journal(journal)
        if journal is not None:
            if self._known is not None:
                raise ValueError(
                    f"{self.path} holds a run without a journal, and --journal is {journal}. "
                    "Choose another --out folder, or start afresh with --overwrite."
                )
            (self.path / HISTORY_FILE).unlink(missing_ok=True)  # a run has one record
            write_atomically(self.path / JOURNAL_FILE, f"{Path(journal).resolve()}\n")
        else:
            (self.path / JOURNAL_FILE).unlink(missing_ok=True)
        if self._known is not None:
            self._refuse_other_settings(self._known["settings"])

    def load_history(self, dim: int, num_constraints: int = 0) -> History | None:
        """Return the history of the run that the folder holds, if any.

        Args:
            dim: The dimension of its points.
            num_constraints: How many constraint values come with each reward.
        """
        if self._known is None:
            return None
        return History.from_records(self._known["queries"], dim, num_constraints=num_constraints)

    def _refuse_other_journal(self, journal: str | None) -> None:
        """Raise if the folder has the results of a run that is recorded in another place."""
        marker = self.path / JOURNAL_FILE
        if not marker.exists():
            return
        known = marker.read_text(encoding="utf-8").strip()
        is_same = journal is not None and str(Path(journal).resolve()) == known
        if not is_same and Path(known).exists():
            raise ValueError(
                f"{self.path} holds the results of the run with the journal {known}. Continue it "
                f"with botorch-bandits resume {known}, choose another --out folder, or write over "
                "the results with --overwrite."
            )

    def _refuse_other_settings(self, known: Mapping[str, Any]) -> None:
        refuse_other_settings(
            str(self.path),
            known,
            self._settings,
            "Choose another --out folder, or start afresh with --overwrite.",
        )

    def write_history(self, history: History) -> None:
        """Write every query: as a table (``history.csv``), and exactly (``history.json``).

        The latter is left out where there is a journal.

        A row of the table has parameters, reward, rounds, clock readings and diagnostics.
        """
        records = history.to_records()
        if not self._has_journal:
            write_atomically(
                self.path / HISTORY_FILE,
                json.dumps({"settings": self._settings, "queries": records}) + "\n",
            )
        rows = []
        for record in records:
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

    def write_pictures(
        self,
        loop: BanditLoop,
        title: str,
        reference: float | None,
        pending: bool = False,
        change_points: Sequence[int] = (),
        costs: Sequence[str] = (),
    ) -> None:
        """Draw the run; says so if matplotlib is not installed.

        Args:
            loop: What to draw.
            title: A title.
            reference: A reward to compare with, if any.
            pending: Draw what was pending, too.
            change_points: The last round before each known change. These and resets are marked, and
                drawn with what the detector said.
            costs: Names of the constraints; their ledger is drawn, too.
        """
        try:
            import matplotlib
        except ImportError:
            print("no picture: pip install 'botorch_bandits[plot]'")
            return
        matplotlib.use("Agg")
        from botorch_bandits.plotting import plot_ledger, plot_pending, plot_run, plot_timeline

        history = loop.history
        panels = plot_run(history, title, reference, loop.resets, change_points)
        self._save(panels, "run.png")
        if pending:
            in_rounds = getattr(loop.feedback, "unit", "") == "rounds"
            max_delay = getattr(loop.feedback, "max_delay", None) if in_rounds else None
            self._save(plot_pending(history, title, max_delay), "pending.png")
        if change_points or loop.resets or loop.detector_readings:
            readings = loop.detector_readings
            panels = plot_timeline(history, loop.resets, readings, change_points, title)
            self._save(panels, "timeline.png")
        if costs:
            self._save(plot_ledger(loop.ledger(), costs, title), "ledger.png")

    def _save(self, axes: Any, name: str) -> None:
        import matplotlib.pyplot as plt

        temporary = self.path / f".{name}.tmp.png"
        axes[0].figure.savefig(temporary, dpi=130)
        os.replace(temporary, self.path / name)
        plt.close(axes[0].figure)


def known_settings(path: str | Path) -> dict[str, Any]:
    """Return the settings of the run that a folder holds; empty if it holds none that is whole."""
    try:
        known = json.loads((Path(path) / HISTORY_FILE).read_text(encoding="utf-8"))
        return dict(known["settings"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # whoever opens the folder says what is wrong


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old one or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)

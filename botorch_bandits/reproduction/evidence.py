"""What an experiment's folder says, and how to look things up in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from botorch_bandits.experiments.running import read_rows, read_settings

Row = Mapping[str, str]


class MissingRowsError(LookupError):
    """A judge asked for rows that the experiment did not write: its panel was not run."""


@dataclass(frozen=True)
class Estimate:
    """A mean over trials.

    Attributes:
        mean: The mean.
        standard_error: Infinite with a single trial, which says nothing of the spread.
    """

    mean: float
    standard_error: float

    def __str__(self) -> str:
        """Return the mean and its standard error."""
        if math.isinf(self.standard_error):
            return f"{self.mean:.3g} (one trial)"
        mean = self.mean if abs(self.mean) > 1e-9 * self.standard_error else 0.0  # rounding
        return f"{mean:.3g} ± {self.standard_error:.2g}"

    @property
    def signed(self) -> str:
        """The same for a difference: with its sign."""
        return f"{self}" if self.mean < 0.0 else f"+{self}"

    def __sub__(self, other: Estimate) -> Estimate:
        """Return the difference of independent estimates."""
        spread = math.hypot(self.standard_error, other.standard_error)
        return Estimate(self.mean - other.mean, spread)


@dataclass(frozen=True)
class Evidence:
    """The tables of one experiment.

    Attributes:
        tables: Rows by the name of their file, without ``.csv``.
        settings: What ``settings.json`` says.
    """

    tables: Mapping[str, Sequence[Row]]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_folder(cls, folder: Path) -> Evidence:
        """Read the folder of an experiment.

        Args:
            folder: What :func:`~botorch_bandits.experiments.running.run_experiment` wrote.
        """
        tables = {path.stem: read_rows(path) for path in sorted(folder.glob("*.csv"))}
        return cls(tables, read_settings(folder))

    def rows(self, table: str, panel: str = "*", **columns: str | int) -> list[Row]:
        """Return the rows of a table.

        Args:
            table: Its name.
            panel: A pattern of panels, with ``*``.
            columns: Values that the rows have.

        Raises:
            MissingRowsError: If there are none.
        """
        found = [
            row
            for row in self.tables.get(table, ())
            if fnmatchcase(row.get("experiment", ""), panel)
            and all(row.get(name) == str(value) for name, value in columns.items())
        ]
        if not found:
            wanted = ", ".join([panel, *map(str, columns.values())])
            raise MissingRowsError(f"no rows of {wanted} in the table {table!r}")
        return found

    def panels(self, patterns: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return what the settings say of panels, in the order of the patterns.

        Args:
            patterns: Of their names.
        """
        known = self.settings.get("panels", ())
        return [panel for p in patterns for panel in known if fnmatchcase(panel["name"], p)]

    def mean(self, panel: str, method: str, quantity: str = "regret") -> Estimate:
        """Return the mean of what methods of a panel are compared by.

        Args:
            panel: Its name.
            method: The method's name.
            quantity: ``"regret"``, ``"simple regret"``, ``"simple regret, middle"``, or a column
                such as ``"violation"`` of the tables with constraints, at the last round.
        """
        if "violation" in self.tables:
            row = self.rows("violation", panel, method=method)[-1]
            return estimate(row, f"{quantity}_mean", f"{quantity}_standard_error")
        row = self.rows("table", panel, method=method)[0]
        if row["regret"] != "simple" or quantity == "simple regret":
            return estimate(row, "mean", "standard_error")
        if quantity == "regret":
            return estimate(row, "cumulative_mean", "cumulative_standard_error")
        raise MissingRowsError(f"{panel} has no column of the {quantity}")

    def difference(self, panel: str, worse: str, better: str, quantity: str = "regret") -> Estimate:
        """Return how much more one method has than another over the same trials.

        Args:
            panel: Its name.
            worse: The method that should have more.
            better: The method that should have less.
            quantity: See :meth:`mean`.
        """
        for first, second, sign in ((worse, better, 1.0), (better, worse, -1.0)):
            columns = {"method": first, "less": second, "quantity": quantity}
            try:
                (row,) = self.rows("differences", panel, **columns)
            except MissingRowsError:
                continue
            found = estimate(row, "mean", "standard_error")
            return Estimate(sign * found.mean, found.standard_error)
        raise MissingRowsError(f"no {quantity} of {worse} and {better} in {panel}")


def estimate(row: Row, mean: str, standard_error: str) -> Estimate:
    """Return two columns of a row as an estimate.

    Args:
        row: A row of a table.
        mean: The column of the mean.
        standard_error: The column of its standard error; empty or of one trial is infinite.
    """
    one = row.get("trials") == "1" or row[standard_error] == ""
    return Estimate(float(row[mean]), math.inf if one else float(row[standard_error]))

"""Sensor problems from a file: which sensor reads the largest value?

The kernel is the empirical covariance of past readings, the reward functions are later ones
(Srinivas et al. 2010, section 6; Chowdhury and Gopalan 2017, section 6).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.checks import check_integer, check_matrix, check_nonnegative
from botorch_bandits.problems.arms import ArmsProblem


@dataclass(frozen=True, eq=False)
class SensorData:
    """Readings of the same sensors at many times, split into past and later ones.

    Attributes:
        past: ``num_past x num_sensors``; they make the kernel.
        later: ``num_later x num_sensors``; each row is a reward function.
    """

    past: Tensor
    later: Tensor

    def __post_init__(self) -> None:
        """Check the shapes."""
        check_matrix("past", self.past)
        check_matrix("later", self.later, num_columns=self.past.shape[1])
        if len(self.past) < 2:
            raise ValueError(f"past has {len(self.past)} rows; a covariance needs at least 2.")

    @property
    def num_sensors(self) -> int:
        """How many sensors there are."""
        return self.past.shape[1]

    def kernel_matrix(self, ridge: float = 0.0) -> Tensor:
        """Return the empirical covariance of the past readings, ``num_sensors x num_sensors``.

        Args:
            ridge: Added to its diagonal; needed where there are fewer times than sensors.
        """
        covariance = torch.cov(self.past.T, correction=1)
        return covariance + check_nonnegative("ridge", ridge) * torch.eye(
            self.num_sensors, dtype=covariance.dtype
        )

    def average_variance(self) -> float:
        """Return the variance of a sensor's past readings, averaged over sensors."""
        return float(self.past.var(0).mean())

    def rewards(self, centre: bool = True, negate: bool = False) -> Tensor:
        """Return the reward functions, ``num_later x num_sensors``.

        Args:
            centre: Subtract each sensor's past mean: the model's prior mean is 0.
            negate: Turn the search for the smallest reading into one for the largest.
        """
        values = self.later - self.past.mean(0) if centre else self.later
        return -values if negate else values

    def problem(self, row: int, noise_std: float | None = None, centre: bool = True) -> ArmsProblem:
        """Return one reward function as a problem on arms (the arms are sensor numbers).

        Args:
            row: Which later reading.
            noise_std: Standard deviation of the observation noise.
            centre: See :meth:`rewards`.
        """
        row = check_integer("row", row, minimum=0)
        if row >= len(self.later):
            raise ValueError(f"row is {row}, but there are {len(self.later)} later readings.")
        arms = torch.arange(self.num_sensors, dtype=torch.float64).unsqueeze(-1)
        return ArmsProblem(arms, self.rewards(centre)[row], noise_std=noise_std)


def load_readings(path: str | Path, array: str | None = None) -> Tensor:
    """Return a table of readings, one time a row and one sensor a column.

    Args:
        path: A CSV file with a header whose first column is the time, or a NumPy ``.npz`` file.
        array: The array's name in a ``.npz`` file.

    Raises:
        ValueError: If the file cannot be read, or a reading is missing.
    """
    path = Path(path)
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                if array not in file:
                    raise ValueError(f"it has no array {array!r}, but {', '.join(file.files)}")
                table = np.asarray(file[array], dtype=np.float64)
        else:
            with path.open(newline="", encoding="utf-8") as lines:
                rows = list(csv.reader(lines))[1:]
            table = np.array([[float(v or "nan") for v in row[1:]] for row in rows])
    except (OSError, ValueError) as error:
        raise ValueError(f"data file {path} cannot be used: {error}.") from error
    return check_matrix(f"readings in {path}", torch.from_numpy(table))

"""What all problems of hyperparameter tuning have: hyperparameters in a box, data with labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from botorch_bandits.domains import Box

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Hyperparameter:
    """One hyperparameter and its range.

    Attributes:
        name: The estimator's argument.
        low: Smallest value.
        high: Largest value.
        scale: ``"linear"``, ``"log10"`` (searched over the logarithm) or ``"integer"``.
    """

    name: str
    low: float
    high: float
    scale: str = "linear"

    @property
    def bounds(self) -> tuple[float, float]:
        """The range as the box has it."""
        if self.scale == "log10":
            return float(np.log10(self.low)), float(np.log10(self.high))
        return float(self.low), float(self.high)

    def decode(self, coordinate: float) -> float | int:
        """Turn a coordinate of the box into the estimator's argument."""
        if self.scale == "log10":
            return float(10.0**coordinate)
        return round(coordinate) if self.scale == "integer" else float(coordinate)


class AccuracyProblem(ABC):
    """The accuracy of a classifier as a function on a box of hyperparameters."""

    @property
    @abstractmethod
    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """What is tuned, in the order of the coordinates."""

    @abstractmethod
    def accuracy(self, **hyperparameters: Any) -> float:
        """Return the accuracy of explicit hyperparameters; the box's ranges do not bind."""

    @property
    def box(self) -> Box:
        """Where points are chosen."""
        bounds = np.array([h.bounds for h in self.hyperparameters]).T
        integer = [i for i, h in enumerate(self.hyperparameters) if h.scale == "integer"]
        return Box(bounds.tolist(), integer_dims=integer)

    def decode(self, x: Tensor | Sequence[float]) -> dict[str, float | int]:
        """Turn a point of the box into the estimator's arguments."""
        coordinates = x.tolist() if isinstance(x, Tensor) else list(x)
        return {
            h.name: h.decode(value)
            for h, value in zip(self.hyperparameters, coordinates, strict=True)
        }

    def __call__(self, x: Tensor) -> float:
        """Return the accuracy at a point of the box."""
        return self.accuracy(**self.decode(self.box.check_point("x", x)))


def check_labelled_data(inputs: Any, labels: Any) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return features and labels as arrays, ``n x p`` and ``n``.

    Raises:
        ValueError: If they are not two-dimensional and finite with one label a row.
    """
    inputs, labels = np.asarray(inputs, dtype=np.float64), np.asarray(labels)
    if inputs.ndim != 2 or labels.shape != (len(inputs),):
        raise ValueError(
            f"inputs have shape {inputs.shape} and labels {labels.shape}; they must be n x p and n."
        )
    if not np.isfinite(inputs).all():
        row, column = np.argwhere(~np.isfinite(inputs))[0]
        raise ValueError(
            f"inputs[{row}, {column}] is {inputs[row, column]}; fill or drop missing values."
        )
    return inputs, labels


def need_scikit_learn() -> None:
    """Raise if scikit-learn is missing.

    Raises:
        ImportError: With the command that installs it.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "tuning needs scikit-learn: pip install 'botorch_bandits[tune]'."
        ) from error

"""The problems of the league: what is maximized, over which parameters, and against which optimum.

A point is a tuple of coordinates, one a parameter: the number itself, the logarithm to base 10 of
a parameter on a logarithmic scale, a whole number, or the index of a choice. Methods that know
parameters by name get native values.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from botorch.test_functions.synthetic import (
    Ackley,
    Hartmann,
    Levy,
    Michalewicz,
    Rosenbrock,
    SyntheticTestFunction,
)
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_bandits import Box, Categorical, Float, Integer, Space
from botorch_bandits.domains import Domain
from botorch_bandits.problems import (
    BraninReward,
    TuningProblem,
    load_dataset,
    need_scikit_learn,
)
from botorch_bandits.random_streams import derive_seed, generator

Coordinates = tuple[float, ...]
"""A point as the league has it."""

NUM_INITIAL = 5
"""Initial points, the same for all methods."""

NUM_EVALUATIONS = 60
"""Evaluations of a run, the initial ones included."""

SMALLEST_REGRET = 1e-8
"""Regrets below this count as this, so that they have logarithms."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a problem.

    Attributes:
        name: As methods with names know it.
        low: Smallest coordinate.
        high: Largest coordinate.
        kind: ``"float"``, ``"log"`` (its coordinate is the logarithm to base 10), ``"integer"`` or
            ``"choice"`` (its coordinate is the index).
        choices: Of a choice.
    """

    name: str
    low: float
    high: float
    kind: str = "float"
    choices: tuple[str, ...] = ()

    @classmethod
    def choice(cls, name: str, *choices: str) -> Parameter:
        """Return a categorical parameter."""
        return cls(name, 0.0, len(choices) - 1.0, "choice", choices)

    @property
    def is_whole(self) -> bool:
        """Whether coordinates are whole numbers."""
        return self.kind in ("integer", "choice")

    @property
    def values(self) -> list[float]:
        """The coordinates of an integer or a choice."""
        return [float(i) for i in range(round(self.low), round(self.high) + 1)]

    def at(self, share: float) -> float:
        """Return the coordinate at a share of the range, in [0, 1]."""
        if not self.is_whole:
            return self.low + share * (self.high - self.low)
        number = len(self.values)
        return self.low + min(math.floor(share * number), number - 1)

    def native(self, coordinate: float) -> Any:
        """Return the value that a coordinate stands for."""
        if self.kind == "choice":
            return self.choices[round(coordinate)]
        if self.kind == "integer":
            return round(coordinate)
        return 10.0**coordinate if self.kind == "log" else coordinate

    def coordinate(self, value: Any) -> float:
        """Return the coordinate of a native value."""
        if self.kind == "choice":
            return float(self.choices.index(value))
        number = math.log10(value) if self.kind == "log" else float(value)
        return min(max(number, self.low), self.high)  # rounding may leave the range


@dataclass(frozen=True)
class LeagueProblem:
    """A function to maximize.

    Attributes:
        name: As the command line has it.
        title: In words.
        parameters: What is chosen.
        make: Returns the function of native values by name; called once a process.
        optimum: What regret is counted from: the largest value, or what :data:`REFERENCES` has in
            its place.
        noise_std: Standard deviation of the normal noise on what methods are told.
        smallest_regret: Regrets below this count as this.
        is_core: Whether it is played without ``--full``.
    """

    name: str
    title: str
    parameters: tuple[Parameter, ...]
    make: Callable[[], Callable[..., float]] = field(repr=False)
    optimum: float
    noise_std: float = 0.0
    smallest_regret: float = SMALLEST_REGRET
    is_core: bool = True

    @property
    def bounds(self) -> Tensor:
        """Lower and upper bounds of the coordinates, ``2 x d``."""
        rows = [[p.low for p in self.parameters], [p.high for p in self.parameters]]
        return torch.tensor(rows, dtype=torch.float64)

    def domain(self) -> Domain:
        """Return the domain on which loops of this package play."""
        if any(p.kind == "choice" for p in self.parameters):
            return space_of(self.parameters)
        whole = [i for i, p in enumerate(self.parameters) if p.is_whole]
        return Box(self.bounds, integer_dims=whole)

    def native(self, x: Coordinates) -> dict[str, Any]:
        """Return a point's values by name."""
        return {p.name: p.native(c) for p, c in zip(self.parameters, x, strict=True)}

    def coordinates(self, values: dict[str, Any]) -> Coordinates:
        """Return the point of values by name."""
        return tuple(p.coordinate(values[p.name]) for p in self.parameters)

    def value(self, x: Coordinates) -> float:
        """Return the value at a point, without noise."""
        return float(function_of(self)(**self.native(x)))

    def noise(self, seed: int) -> list[float]:
        """Return the noise of all evaluations of a seed, the same for all methods."""
        normal = torch.randn(
            NUM_EVALUATIONS, generator=generator(seed, 0, "noise"), dtype=torch.float64
        )
        return (self.noise_std * normal).tolist()

    def initial_points(self, seed: int) -> list[Coordinates]:
        """Return the first points of a seed: scrambled Sobol points, the same for all methods."""
        engine = SobolEngine(
            len(self.parameters), scramble=True, seed=derive_seed(seed, 0, "initial points")
        )
        return [_point(self, row) for row in engine.draw(NUM_INITIAL, dtype=torch.float64)]


def space_of(parameters: Sequence[Parameter]) -> Space:
    """Return the domain of parameters of which some are choices.

    Args:
        parameters: Of a problem.
    """
    made: dict[str, Any] = {}
    for p in parameters:
        if p.kind == "choice":
            made[p.name] = Categorical(list(p.choices))
        elif p.kind == "integer":
            made[p.name] = Integer(round(p.low), round(p.high))
        else:
            made[p.name] = Float(p.native(p.low), p.native(p.high), log=p.kind == "log")
    return Space(made)


@cache
def function_of(problem: LeagueProblem) -> Callable[..., float]:
    """Return a problem's function; this process makes it once."""
    return problem.make()


class Hartmann6Reward(Hartmann):
    """The six-dimensional Hartmann function with its sign changed, its constants in float64."""

    def __init__(self) -> None:
        """Round the constants, which are published with two decimals at most, in float64."""
        super().__init__(dim=6, negate=True)
        for name in ("ALPHA", "A", "P"):
            setattr(self, name, getattr(self, name).double().round(decimals=2))


HARTMANN6_OPTIMUM = 3.3223680114155152
"""The largest value of Hartmann6, to the last digit that float64 has; published as 3.32237."""


@dataclass(frozen=True)
class Synthetic:
    """A test function of BoTorch as a function of values by name."""

    function: SyntheticTestFunction

    def __call__(self, **values: float) -> float:
        """Return the value without noise."""
        x = torch.tensor([list(values.values())], dtype=torch.float64)
        return float(self.function(x, noise=False))


def synthetic(
    name: str,
    title: str,
    make: Callable[[], SyntheticTestFunction],
    sides: Sequence[tuple[float, float]],
    optimum: float = 0.0,
    **more: Any,
) -> LeagueProblem:
    """Return a problem on a box whose optimum is known.

    Args:
        name: As the command line has it.
        title: In words.
        make: Returns the function to maximize.
        sides: The box, one ``(low, high)`` pair a dimension.
        optimum: The largest value.
        **more: Other attributes of the problem.
    """
    parameters = tuple(Parameter(f"x{i}", *side) for i, side in enumerate(sides))
    return LeagueProblem(name, title, parameters, lambda: Synthetic(make()), optimum, **more)


@dataclass(frozen=True)
class Remembered:
    """A function that computes a point once; methods come back to points on plateaus."""

    function: Callable[..., float]
    known: dict[tuple[Any, ...], float] = field(default_factory=dict)

    def __call__(self, **values: Any) -> float:
        """Return the value, from memory if this process has computed it."""
        key = tuple(values.items())
        if key not in self.known:
            self.known[key] = self.function(**values)
        return self.known[key]


def tuning(name: str, title: str, task: str, parameters: tuple[Parameter, ...], **more: Any) -> Any:
    """Return the problem to tune a classifier on scikit-learn's breast-cancer data.

    Args:
        name: As the command line has it.
        title: In words.
        task: Of :class:`~botorch_bandits.problems.TuningProblem`.
        parameters: Those of the task.
        **more: Other attributes of the problem.
    """

    def make() -> Callable[..., float]:
        return Remembered(TuningProblem(task, *load_dataset("breast-cancer")).accuracy)

    # one row of 569 is the smallest step of the accuracy, up to the sizes of the folds
    return LeagueProblem(
        name,
        title,
        parameters,
        make,
        REFERENCES[name],
        smallest_regret=0.5 / 569,
        **more,
    )


def negative_log_loss(**values: Any) -> float:
    """Return minus the cross-validated log loss of a small neural network on the wine data.

    Args:
        **values: Arguments of scikit-learn's ``MLPClassifier``.
    """
    need_scikit_learn()
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPClassifier(
        (values["units"],),
        activation=values["activation"],
        alpha=values["alpha"],
        learning_rate_init=values["learning_rate"],
        max_iter=50,
        random_state=0,
    )
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 50 epochs are what is tuned
        scores = cross_val_score(
            make_pipeline(StandardScaler(), network),
            *load_dataset("wine"),
            cv=folds,
            scoring="neg_log_loss",
        )
    return float(scores.mean())


def negative_error(**values: Any) -> float:
    """Return minus the cross-validated root mean squared error on the diabetes data.

    Args:
        **values: Arguments of scikit-learn's ``SVR``.
    """
    need_scikit_learn()
    from sklearn.datasets import load_diabetes
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    scores = cross_val_score(
        make_pipeline(StandardScaler(), SVR(**values)),
        *load_diabetes(return_X_y=True),
        cv=KFold(5, shuffle=True, random_state=0),
        scoring="neg_root_mean_squared_error",
    )
    return float(scores.mean())


REFERENCES: dict[str, float] = {
    "svm": 0.9841794752367644,
    "svr": -53.38733410954999,
    "gradient-boosting": 1.0,
    "mlp": 0.0,
}
"""What regret is counted from where nobody knows the largest value. For the two SVMs it is the best
that :func:`search_reference` found, with 4000 points for ``svm`` and
2000 for ``svr``. For the others, which have no rows yet, it is what cannot be exceeded: accuracy 1,
log loss 0."""

PROBLEMS: dict[str, LeagueProblem] = {
    problem.name: problem
    for problem in (
        synthetic(
            "branin",
            "Branin, 2 dimensions",
            BraninReward,
            [(-5.0, 10.0), (0.0, 15.0)],
            -5.0 / (4.0 * math.pi),
        ),
        synthetic(
            "hartmann6",
            "Hartmann, 6 dimensions",
            Hartmann6Reward,
            [(0.0, 1.0)] * 6,
            HARTMANN6_OPTIMUM,
        ),
        synthetic(
            "noisy-hartmann6",
            "Hartmann, 6 dimensions, with normal noise of standard deviation 0.1",
            Hartmann6Reward,
            [(0.0, 1.0)] * 6,
            HARTMANN6_OPTIMUM,
            noise_std=0.1,
        ),
        # a box that is not centered at the optimum, which some methods would try first
        synthetic(
            "ackley5",
            "Ackley, 5 dimensions",
            lambda: Ackley(dim=5, negate=True, bounds=[(-5.0, 10.0)] * 5),
            [(-5.0, 10.0)] * 5,
        ),
        tuning(
            "svm",
            "a support vector machine on the breast-cancer data",
            "svm",
            (Parameter("C", -4.0, 2.0, "log"), Parameter("gamma", -4.0, 1.0, "log")),
        ),
        synthetic(
            "rosenbrock4",
            "Rosenbrock, 4 dimensions",
            lambda: Rosenbrock(dim=4, negate=True),
            [(-5.0, 10.0)] * 4,
        ),
        LeagueProblem(
            "svr",
            "a support vector machine for regression on the diabetes data",
            (
                Parameter("C", -1.0, 4.0, "log"),
                Parameter("gamma", -5.0, 1.0, "log"),
                Parameter("epsilon", -1.0, 2.0, "log"),
            ),
            lambda: Remembered(negative_error),
            REFERENCES["svr"],
            smallest_regret=1e-3,
        ),
        synthetic(
            "michalewicz5",
            "Michalewicz, 5 dimensions",
            lambda: Michalewicz(dim=5, negate=True),
            [(0.0, math.pi)] * 5,
            4.687658179088147,  # a sum of functions of one coordinate, each maximized
        ),
        synthetic(
            "levy10",
            "Levy, 10 dimensions",
            lambda: Levy(dim=10, negate=True),
            [(-10.0, 10.0)] * 10,
            is_core=False,
        ),
        tuning(
            "gradient-boosting",
            "gradient boosting on the breast-cancer data",
            "gradient-boosting",
            (
                Parameter("learning_rate", -3.0, 0.0, "log"),
                Parameter("max_leaf_nodes", 2.0, 64.0, "integer"),
                Parameter("l2_regularization", -4.0, 2.0, "log"),
            ),
            is_core=False,
        ),
        LeagueProblem(
            "mlp",
            "a neural network with one hidden layer on the wine data",
            (
                Parameter("units", 2.0, 32.0, "integer"),
                Parameter("alpha", -5.0, 1.0, "log"),
                Parameter("learning_rate", -4.0, -1.0, "log"),
                Parameter.choice("activation", "identity", "logistic", "tanh", "relu"),
            ),
            lambda: Remembered(negative_log_loss),
            REFERENCES["mlp"],
            smallest_regret=1e-5,
            is_core=False,
        ),
    )
}
"""The problems by name."""

CHOSEN_ON = ("branin", "hartmann6", "svm")
"""The default was chosen on these."""

PROMPTED_A_CHANGE = ("noisy-hartmann6", "rosenbrock4")
"""These showed a weakness of the default, which was mended on other functions than these."""

ADDED_AFTER_THE_CHOICE = ("svr", "michalewicz5")
"""Nobody looked at these before the default was chosen."""


def search_reference(problem: LeagueProblem, num_points: int) -> tuple[float, Coordinates]:
    """Return the best value that a fixed search finds, and where.

    Half of the points are Sobol points of the whole range; the others lie within a twentieth of it
    around the best of these.

    Args:
        problem: Any.
        num_points: How many points there are, even.
    """
    shares = SobolEngine(len(problem.parameters)).draw(num_points // 2, dtype=torch.float64)
    value, best = _best_of(problem, shares)
    near = (best + (shares - 0.5) / 10.0).clamp(0.0, 1.0)
    near_value, near_best = _best_of(problem, near)
    if near_value > value:
        value, best = near_value, near_best
    return value, _point(problem, best)


def _best_of(problem: LeagueProblem, shares: Tensor) -> tuple[float, Tensor]:
    values = [problem.value(_point(problem, row)) for row in shares]
    index = max(range(len(values)), key=values.__getitem__)
    return values[index], shares[index]


def _point(problem: LeagueProblem, shares: Tensor) -> Coordinates:
    return tuple(p.at(u) for p, u in zip(problem.parameters, shares.tolist(), strict=True))

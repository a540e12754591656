"""The problems of the league: what is chosen, what it is worth, and against what regret is counted.

A point is a tuple of coordinates, one a parameter: the number itself, the logarithm to base 10 of
a parameter on a logarithmic scale, a whole number, or the index of a choice. Methods that know
parameters by name get native values. A problem is a world for each seed: what a point is worth in a
round, against which best value, at which cost, and what is known before the choice. All methods get
the same worlds, the same first points, and the same noise and delay in the same round.
"""

from __future__ import annotations

import itertools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from botorch.test_functions.synthetic import (
    Ackley,
    Hartmann,
    Levy,
    Michalewicz,
    Rosenbrock,
    Shekel,
    SyntheticTestFunction,
)
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_bandits import Arms, Box, Categorical, Float, Integer, Space
from botorch_bandits.domains import Domain
from botorch_bandits.problems import (
    BraninReward,
    PoissonDelay,
    TuningProblem,
    load_dataset,
)
from botorch_bandits.problems.tuning import need_scikit_learn
from botorch_bandits.random_streams import derive_seed, generator

Coordinates = tuple[float, ...]
"""A point as the league has it."""

NUM_INITIAL = 5
"""Initial points, the same for all methods."""

NUM_ROUNDS = 60
"""Rounds of a run, the initial points included."""

SMALLEST_REGRET = 1e-8
"""Regrets below this count as this, so that they have logarithms."""

MEAN_DELAY = 10.0
"""Of the Poisson distribution of delays, in rounds."""

MAX_DELAY = 20
"""Rounds after which a query without an outcome is given up."""

LOST = 0.1
"""The probability with which an outcome never comes."""


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


class World(ABC):
    """What a method meets with one seed. Rounds count from 1."""

    @abstractmethod
    def reward(self, x: Coordinates, round_number: int) -> float:
        """Return the reward at a point, without noise."""

    @abstractmethod
    def best(self, round_number: int) -> float:
        """Return what regret is counted from in a round."""

    def constraint(self, x: Coordinates, round_number: int) -> float | None:
        """Return what must be at most 0 on average, without noise; None without a budget."""
        return None

    def context(self, round_number: int) -> Coordinates:
        """Return what is known before the choice of a round."""
        return ()


@dataclass(frozen=True)
class Situation:
    """A problem and what goes with it.

    Attributes:
        name: As the command line has it.
        kind: ``"still"``, ``"delays"``, ``"changes"``, ``"budget"`` or ``"contexts"``.
        parameters: What is chosen.
        make: Makes the world of a seed; it is given the folder of ``--data``, too.
        num_rounds: The common first points included.
        noise_std: Standard deviation of the normal noise on rewards and constraint values.
        contexts: What is known before each choice.
        data: The file in the folder of ``--data`` that it needs.
        least: A reward below which there is none, where methods ask for it.
        smallest_regret: Regrets below this count as this.
        is_core: Whether it is played where no problem is named.
    """

    name: str
    kind: str
    parameters: tuple[Parameter, ...]
    make: Callable[[int, Any], World] = field(repr=False)
    num_rounds: int = NUM_ROUNDS
    noise_std: float = 0.0
    contexts: tuple[Parameter, ...] = ()
    data: str = ""
    least: float | None = None
    smallest_regret: float = SMALLEST_REGRET
    is_core: bool = True

    @property
    def bounds(self) -> Tensor:
        """Lower and upper bounds of the coordinates, ``2 x d``."""
        return bounds_of(self.parameters)

    @property
    def choices(self) -> Tensor | None:
        """All points, one a row, if there are finitely many."""
        if not all(p.is_whole for p in self.parameters):
            return None
        rows = list(itertools.product(*(p.values for p in self.parameters)))
        return torch.tensor(rows, dtype=torch.float64)

    def domain(self) -> Domain:
        """Return the domain on which loops of this package play."""
        if self.choices is not None:
            return Arms(self.choices)
        if any(p.kind == "choice" for p in self.parameters):
            return space_of(self.parameters)
        whole = [i for i, p in enumerate(self.parameters) if p.is_whole]
        return Box(self.bounds, integer_dims=whole)

    def world(self, seed: int, data: Path | None = None) -> World:
        """Return the world of a seed.

        Raises:
            ValueError: If the data are not there.
        """
        if self.data and (data is None or not (data / self.data).is_file()):
            raise ValueError(
                f"{self.name} needs --data, a folder with {self.data}; docs/league.md "
                "says where it is from."
            )
        return self.make(seed, data)

    def initial_points(self, seed: int) -> list[Coordinates]:
        """Return the first points of a seed: scrambled Sobol points."""
        engine = SobolEngine(
            len(self.parameters), scramble=True, seed=derive_seed(seed, 0, "initial points")
        )
        return [self.at(row) for row in engine.draw(NUM_INITIAL, dtype=torch.float64)]

    def noise(self, seed: int) -> list[tuple[float, float]]:
        """Return the noise of each round on the reward and on the constraint value."""
        size = self.num_rounds, 1 if self.kind == "still" else 2
        normal = torch.randn(size, generator=generator(seed, 0, "noise"), dtype=torch.float64)
        return [(row[0], row[-1]) for row in (self.noise_std * normal).tolist()]

    def delays(self, seed: int) -> list[float]:
        """Return the delay of each round's outcome in rounds; infinite where it never comes."""
        if self.kind != "delays":
            return [0.0] * self.num_rounds
        poisson, nowhere = PoissonDelay(MEAN_DELAY), torch.zeros(1, dtype=torch.float64)
        shares = torch.rand(self.num_rounds, generator=generator(seed, 0, "lost")).tolist()
        drawn = [poisson.of_query(nowhere, seed, t + 1) for t in range(self.num_rounds)]
        return [math.inf if share < LOST else d for share, d in zip(shares, drawn, strict=True)]

    def at(self, shares: Tensor) -> Coordinates:
        """Return the point at shares of the ranges, in [0, 1]."""
        return tuple(p.at(u) for p, u in zip(self.parameters, shares.tolist(), strict=True))

    def native(self, x: Coordinates, context: Coordinates = ()) -> dict[str, Any]:
        """Return the values of a point, and of a context, by name."""
        parameters = (*self.contexts, *self.parameters) if context else self.parameters
        return {p.name: p.native(c) for p, c in zip(parameters, (*context, *x), strict=True)}

    def coordinates(self, values: dict[str, Any]) -> Coordinates:
        """Return the point of values by name."""
        return tuple(p.coordinate(values[p.name]) for p in self.parameters)


def bounds_of(parameters: Sequence[Parameter]) -> Tensor:
    """Return lower and upper bounds, ``2 x d``.

    Args:
        parameters: In order.
    """
    rows = [[p.low for p in parameters], [p.high for p in parameters]]
    return torch.tensor(rows, dtype=torch.float64)


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


# ------------------------------------------------------------------------- problems that stay


class StillWorld(World):
    """A function of native values that stays as it is.

    Args:
        parameters: Of the function.
        make: Returns the function; called when it is first needed.
        optimum: What regret is counted from: the largest value, or what :data:`REFERENCES` has in
            its place.
    """

    def __init__(
        self,
        parameters: tuple[Parameter, ...],
        make: Callable[[], Callable[..., float]],
        optimum: float,
    ) -> None:
        """See the class."""
        self._parameters, self._make, self._optimum = parameters, make, optimum

    @cached_property
    def _function(self) -> Callable[..., float]:
        return self._make()

    def reward(self, x: Coordinates, round_number: int) -> float:
        """See the base class."""
        named = zip(self._parameters, x, strict=True)
        return float(self._function(**{p.name: p.native(c) for p, c in named}))

    def best(self, round_number: int) -> float:
        """See the base class."""
        return self._optimum


def still(
    name: str,
    parameters: tuple[Parameter, ...],
    make: Callable[[], Callable[..., float]],
    optimum: float,
    **more: Any,
) -> Situation:
    """Return the problem to maximize a function.

    Args:
        name: As the command line has it.
        parameters: What is chosen.
        make: Returns the function of native values by name; called once a process.
        optimum: What regret is counted from.
        **more: Other attributes of the problem.
    """
    world = StillWorld(parameters, make, optimum)
    return Situation(name, "still", parameters, lambda seed, data: world, **more)


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
    make: Callable[[], SyntheticTestFunction],
    sides: Sequence[tuple[float, float]],
    optimum: float = 0.0,
    **more: Any,
) -> Situation:
    """Return a problem on a box whose optimum is known.

    Args:
        name: As the command line has it.
        make: Returns the function to maximize.
        sides: The box, one ``(low, high)`` pair a dimension.
        optimum: The largest value.
        **more: Other attributes of the problem.
    """
    parameters = tuple(Parameter(f"x{i}", *side) for i, side in enumerate(sides))
    return still(name, parameters, lambda: Synthetic(make()), optimum, **more)


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


def tuning(task: str, parameters: tuple[Parameter, ...], **more: Any) -> Situation:
    """Return the problem to tune a classifier on scikit-learn's breast-cancer data.

    Args:
        task: Its name, and that of the task of :class:`~botorch_bandits.problems.TuningProblem`.
        parameters: Those of the task.
        **more: Other attributes of the problem.
    """

    def make() -> Callable[..., float]:
        return Remembered(TuningProblem(task, *load_dataset("breast-cancer")).accuracy)

    # one row of 569 is the smallest step of the accuracy, up to the sizes of the folds
    return still(task, parameters, make, REFERENCES[task], smallest_regret=0.5 / 569, **more)


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


def langermann(x: Tensor) -> Tensor:
    """Return the Langermann function of two coordinates in [0, 10], to be maximized."""
    centers = x.new_tensor([[3.0, 5.0], [5.0, 2.0], [2.0, 1.0], [1.0, 4.0], [7.0, 9.0]])
    weights = x.new_tensor([1.0, 2.0, 5.0, 2.0, 3.0])
    squared = (x - centers).square().sum(-1)
    return (weights * torch.exp(-squared / math.pi) * torch.cos(math.pi * squared)).sum()


def gramacy_lee(x: Tensor) -> Tensor:
    """Return minus the function of Gramacy and Lee (2012) of a number in [0.5, 2.5]."""
    (u,) = x
    return -(torch.sin(10.0 * math.pi * u) / (2.0 * u) + (u - 1.0) ** 4)


def ellipsoid(x: Tensor) -> Tensor:
    """Return minus a sum of squares around .3, whose weights range from 1 to 1e4."""
    return -(torch.logspace(0.0, 4.0, len(x), dtype=x.dtype) * (x - 0.3).square()).sum()


def mixture(dim: int) -> Callable[[Tensor], Tensor]:
    """Return a mixture of ten Gaussian bumps in the unit cube; the first is the largest.

    Args:
        dim: The number of coordinates.
    """
    source = generator(dim, 0, "mixture of the league")
    centers = 0.15 + 0.7 * torch.rand(10, dim, dtype=torch.float64, generator=source)
    widths = 0.1 * math.sqrt(dim) * (0.75 + torch.rand(10, dtype=torch.float64, generator=source))
    heights = torch.cat([centers.new_ones(1), centers.new_full((9,), 0.6)])

    def value(x: Tensor) -> Tensor:
        squared = (x - centers).square().sum(-1) / widths.square()
        return (heights * torch.exp(-0.5 * squared)).amax()

    return value


@dataclass(frozen=True)
class OfArray:
    """A function of an array as a function of values by name."""

    function: Callable[[Tensor], Tensor]

    def __call__(self, **values: float) -> float:
        """Return the value."""
        return float(self.function(torch.tensor(list(values.values()), dtype=torch.float64)))


def of_array(
    name: str,
    function: Callable[[Tensor], Tensor],
    sides: Sequence[tuple[float, float]],
    optimum: float,
) -> Situation:
    """Return a problem on a box that is played where it is named.

    Args:
        name: As the command line has it.
        function: The function to maximize.
        sides: The box, one ``(low, high)`` pair a dimension.
        optimum: The largest value.
    """
    parameters = tuple(Parameter(f"x{i}", *side) for i, side in enumerate(sides))
    return still(name, parameters, lambda: OfArray(function), optimum, is_core=False)


def shekel(shift: int) -> Situation:
    """Return Shekel's function with ten peaks on a box that is shifted by at most 2 each way.

    Args:
        shift: The number of the shift; 0 for none.
    """
    source = generator(shift, 0, "shift of the league")
    moved = (4.0 * torch.rand(4, dtype=torch.float64, generator=source) - 2.0).tolist()
    sides = [(low, low + 10.0) for low in (moved if shift else [0.0] * 4)]
    make = partial(Shekel, negate=True, bounds=sides)
    return synthetic(f"shekel4-{shift}", make, sides, SHEKEL_OPTIMUM, is_core=False)


SHEKEL_OPTIMUM = 10.536443153052808
"""The largest value of Shekel's function with ten peaks; published as 10.5364."""

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

PROBLEMS: dict[str, Situation] = {
    problem.name: problem
    for problem in (
        synthetic(
            "branin",
            BraninReward,
            [(-5.0, 10.0), (0.0, 15.0)],
            -5.0 / (4.0 * math.pi),
        ),
        synthetic(
            "hartmann6",
            Hartmann6Reward,
            [(0.0, 1.0)] * 6,
            HARTMANN6_OPTIMUM,
        ),
        synthetic(
            "noisy-hartmann6",
            Hartmann6Reward,
            [(0.0, 1.0)] * 6,
            HARTMANN6_OPTIMUM,
            noise_std=0.1,
        ),
        # a box that is not centered at the optimum, which some methods would try first
        synthetic(
            "ackley5",
            lambda: Ackley(dim=5, negate=True, bounds=[(-5.0, 10.0)] * 5),
            [(-5.0, 10.0)] * 5,
        ),
        tuning(
            "svm",
            (Parameter("C", -4.0, 2.0, "log"), Parameter("gamma", -4.0, 1.0, "log")),
        ),
        synthetic(
            "rosenbrock4",
            lambda: Rosenbrock(dim=4, negate=True),
            [(-5.0, 10.0)] * 4,
        ),
        still(
            "svr",
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
            lambda: Michalewicz(dim=5, negate=True),
            [(0.0, math.pi)] * 5,
            4.687658179088147,  # a sum of functions of one coordinate, each maximized
        ),
        synthetic(
            "levy10",
            lambda: Levy(dim=10, negate=True),
            [(-10.0, 10.0)] * 10,
            is_core=False,
        ),
        tuning(
            "gradient-boosting",
            (
                Parameter("learning_rate", -3.0, 0.0, "log"),
                Parameter("max_leaf_nodes", 2.0, 64.0, "integer"),
                Parameter("l2_regularization", -4.0, 2.0, "log"),
            ),
            is_core=False,
        ),
        still(
            "mlp",
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
        # many peaks, or scales that differ: where a search may be stuck
        *(shekel(shift) for shift in range(5)),
        of_array("langermann2", langermann, [(0.0, 10.0)] * 2, 5.162126159963983),
        of_array("gramacy-lee1", gramacy_lee, [(0.5, 2.5)], 0.8690111349895002),
        of_array("ellipsoid6", ellipsoid, [(-1.0, 1.0)] * 6, 0.0),
        of_array("mixture2", mixture(2), [(0.0, 1.0)] * 2, 1.0),
        of_array("mixture4", mixture(4), [(0.0, 1.0)] * 4, 1.0),
        of_array("mixture8", mixture(8), [(0.0, 1.0)] * 8, 1.0),
        synthetic(
            "michalewicz2",
            lambda: Michalewicz(dim=2, negate=True),
            [(0.0, math.pi)] * 2,
            1.801303410098554,
            is_core=False,
        ),
        synthetic(
            "noisy-hartmann3",
            lambda: Hartmann(dim=3, negate=True),
            [(0.0, 1.0)] * 3,
            3.8627798609743063,
            noise_std=0.1,
            is_core=False,
        ),
    )
}
"""The problems by name."""


def search_reference(problem: Situation, num_points: int) -> tuple[float, Coordinates]:
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
    return value, problem.at(best)


def _best_of(problem: Situation, shares: Tensor) -> tuple[float, Tensor]:
    world = problem.world(0)
    values = [world.reward(problem.at(row), 1) for row in shares]
    index = max(range(len(values)), key=values.__getitem__)
    return values[index], shares[index]

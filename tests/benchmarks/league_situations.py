"""The situations of the league: outcomes that come late, changes, budgets and contexts.

Each has one synthetic problem and one on real data.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from benchmarks.league_problems import PROBLEMS, Coordinates, Parameter, Situation, World
from botorch_bandits.problems import RKHSFunction
from botorch_bandits.problems.tuning import need_scikit_learn
from botorch_bandits.random_streams import derive_seed, generator
from papers.environments import Hartmann3Reward

TASKS_FILE = "svm-tasks.npz"
"""In the folder of ``--data``: arrays ``accuracy``, ``hyperparameters`` and ``context``."""

TEMPERATURES_FILE = "temperatures.npz"
"""Likewise: arrays ``temperature`` (144 rows a day, a column a sensor) and ``xy_m``."""


# ------------------------------------------------------------------------------------------ delays


def late(name: str, least: float) -> Situation:
    """Return a problem of the league whose outcomes come late.

    Args:
        name: Of the problem.
        least: A reward below which there is none.
    """
    return replace(PROBLEMS[name], name=f"delays-{name}", kind="delays", least=least)


# ----------------------------------------------------------------------------------------- changes

UNIT_SQUARE = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def smooth_function(seed: int) -> RKHSFunction:
    """Return a random function on the unit square, with values of a few units.

    Args:
        seed: Of the function.
    """
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = torch.tensor(0.25, dtype=torch.float64)
    return RKHSFunction(kernel, UNIT_SQUARE, rkhs_norm=4.0, seed=seed)


def at_point(function: RKHSFunction, x: Coordinates) -> float:
    """Return the value of a function at one point."""
    return float(function.evaluate_true(torch.tensor([x], dtype=torch.float64)))


class SwitchingWorld(World):
    """Three functions that have nothing to do with each other, one after another.

    Args:
        seed: Of the functions and of the rounds after which they change.
    """

    FIRST, SECOND = (20, 28), (44, 52)

    def __init__(self, seed: int) -> None:
        """Draw functions and change-points."""
        seeds = [derive_seed(seed, period, "changing reward") for period in range(3)]
        self._functions = [smooth_function(s % 2**31) for s in seeds]
        stream = generator(seed, 0, "change-points")
        self.change_points = tuple(
            int(torch.randint(low, high + 1, (), generator=stream))
            for low, high in (self.FIRST, self.SECOND)
        )

    def _of(self, round_number: int) -> RKHSFunction:
        return self._functions[sum(round_number > last for last in self.change_points)]

    def reward(self, x: Coordinates, round_number: int) -> float:
        """See the base class."""
        return at_point(self._of(round_number), x)

    def best(self, round_number: int) -> float:
        """See the base class."""
        return float(self._of(round_number).optimal_value)


class SensorsWorld(World):
    """The temperature at the sensor next to a point of a laboratory, a round every 20 minutes.

    Args:
        seed: The first round is 16 hours later for each.
        data: The folder with :data:`TEMPERATURES_FILE`.
    """

    ROWS_A_ROUND, ROWS_A_SEED = 2, 96

    def __init__(self, seed: int, data: Path) -> None:
        """Read the table."""
        path = data / TEMPERATURES_FILE
        tables = np.load(path)
        self._readings = torch.from_numpy(tables["temperature"].astype(np.float64))
        self._places = torch.from_numpy(tables["xy_m"].astype(np.float64))
        rows = len(self._readings) - self.ROWS_A_ROUND * CHANGING_ROUNDS
        if rows < 0 or len(self._places) != self._readings.shape[1]:
            raise ValueError(
                f"{path} has {tuple(self._readings.shape)} temperatures and "
                f"{len(self._places)} places; it needs a place a column, and "
                f"{self.ROWS_A_ROUND * CHANGING_ROUNDS} rows or more."
            )
        self._start = self.ROWS_A_SEED * seed % (rows + 1)

    def _row(self, round_number: int) -> Tensor:
        return self._readings[self._start + self.ROWS_A_ROUND * (round_number - 1)]

    def reward(self, x: Coordinates, round_number: int) -> float:
        """See the base class."""
        distances = (self._places - torch.tensor(x, dtype=torch.float64)).square().sum(dim=-1)
        return float(self._row(round_number)[int(distances.argmin())])

    def best(self, round_number: int) -> float:
        """See the base class."""
        return float(self._row(round_number).max())


CHANGING_ROUNDS = 72
"""Rounds of the problems that change: a day, of 20 minutes each."""


# ------------------------------------------------------------------------------------------ budget


class BudgetWorld(World):
    """A random function, and a random cost that its best point exceeds.

    Args:
        seed: Of both.
    """

    FEASIBLE = 0.35
    """The share of the square that meets the constraint."""

    def __init__(self, seed: int) -> None:
        """Draw both, and find the best point that meets the constraint on a fine grid."""
        self._reward, self._cost = (
            smooth_function(derive_seed(seed, 0, name) % 2**31) for name in ("reward", "cost")
        )
        side = torch.linspace(0.0, 1.0, 201, dtype=torch.float64)
        grid = torch.cartesian_prod(side, side)
        rewards, costs = self._reward.evaluate_true(grid), self._cost.evaluate_true(grid)
        at_best = float(costs[rewards.argmax()])
        self._sign = 1.0 if at_best >= float(costs.median()) else -1.0
        self._limit = float((self._sign * costs).quantile(self.FEASIBLE))
        self._best = float(rewards[self._sign * costs <= self._limit].max())

    def reward(self, x: Coordinates, round_number: int) -> float:
        """See the base class."""
        return at_point(self._reward, x)

    def constraint(self, x: Coordinates, round_number: int) -> float:
        """See the base class."""
        return self._sign * at_point(self._cost, x) - self._limit

    def best(self, round_number: int) -> float:
        """See the base class."""
        return self._best


SUPPORT_SHARE = 0.4
"""The share of rows that may be support vectors, on average."""

BUDGET_REFERENCE = -54.585300291618616
"""The best reward within the budget that ``--situations --reference budget-svr`` found."""


@cache
def _svr_data() -> Any:
    need_scikit_learn()
    from sklearn.datasets import load_diabetes

    return load_diabetes(return_X_y=True)


@cache
def svr_scores(C: float, gamma: float, epsilon: float) -> tuple[float, float]:
    """Return minus the error of an SVM for regression, and its share of support vectors.

    Both are means over the same three fits on scikit-learn's diabetes data. Each prediction costs
    one kernel evaluation a support vector.

    Args:
        C: The argument of scikit-learn's ``SVR``.
        gamma: Likewise.
        epsilon: Likewise.
    """
    need_scikit_learn()
    from sklearn.model_selection import KFold, cross_validate
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    inputs, outcomes = _svr_data()
    scores = cross_validate(
        make_pipeline(StandardScaler(), SVR(C=C, gamma=gamma, epsilon=epsilon)),
        inputs,
        outcomes,
        cv=KFold(3, shuffle=True, random_state=0),
        scoring="neg_root_mean_squared_error",
        return_estimator=True,
    )
    vectors = sum(len(fitted[-1].support_) for fitted in scores["estimator"])
    return float(scores["test_score"].mean()), vectors / (2.0 * len(inputs))


class SupportVectorsWorld(World):
    """Minus the error of an SVM for regression, whose support vectors have a budget."""

    def _scores(self, x: Coordinates) -> tuple[float, float]:
        return svr_scores(*(p.native(c) for p, c in zip(SVR_PARAMETERS, x, strict=True)))

    def reward(self, x: Coordinates, round_number: int) -> float:
        """See the base class."""
        return self._scores(x)[0]

    def constraint(self, x: Coordinates, round_number: int) -> float:
        """See the base class."""
        return self._scores(x)[1] / SUPPORT_SHARE - 1.0

    def best(self, round_number: int) -> float:
        """See the base class."""
        return BUDGET_REFERENCE


SVR_PARAMETERS = (
    Parameter("C", -1.0, 4.0, "log"),
    Parameter("gamma", -5.0, 1.0, "log"),
    Parameter("epsilon", 0.0, 2.0, "log"),
)


# ---------------------------------------------------------------------------------------- contexts


class GivenCoordinateWorld(World):
    """Hartmann's function of three variables, of which the first is given.

    Args:
        seed: Of the contexts, uniform in [0, 1].
    """

    def __init__(self, seed: int) -> None:
        """Draw the contexts."""
        stream = generator(seed, 0, "contexts")
        self._contexts = torch.rand(1000, generator=stream, dtype=torch.float64).tolist()

    def context(self, round_number: int) -> Coordinates:
        """See the base class."""
        return (self._contexts[round_number],)

    def reward(self, x: Coordinates, round_number: int) -> float:
        """See the base class."""
        point = torch.tensor([self.context(round_number) + x], dtype=torch.float64)
        return float(hartmann3().evaluate_true(point))

    def best(self, round_number: int) -> float:
        """See the base class."""
        return best_hartmann3(self.context(round_number)[0])


@cache
def hartmann3() -> Hartmann3Reward:
    """Return the function, without noise."""
    return Hartmann3Reward()


@cache
def best_hartmann3(given: float) -> float:
    """Return the largest value where the first coordinate is given: ever finer grids.

    Args:
        given: The first coordinate.
    """
    center, width, value = torch.full((2,), 0.5, dtype=torch.float64), 0.5, -math.inf
    side = torch.linspace(-1.0, 1.0, 41, dtype=torch.float64)
    while width > 1e-7:
        points = (center + width * torch.cartesian_prod(side, side)).clamp(0.0, 1.0)
        first = torch.full((len(points), 1), given, dtype=torch.float64)
        values = hartmann3().evaluate_true(torch.cat([first, points], dim=-1))
        index = int(values.argmax())
        value, center = max(value, float(values[index])), points[index]
        width /= 10.0
    return value


class TasksWorld(World):
    """The accuracy of an SVM on one of ten data sets, tabulated; its description is the context.

    Args:
        seed: Which ten data sets there are, and which is met in which round.
        data: The folder with :data:`TASKS_FILE`.
    """

    NUM_TASKS = 10

    def __init__(self, seed: int, data: Path) -> None:
        """Read the table."""
        path = data / TASKS_FILE
        with np.load(path, allow_pickle=False) as file:
            missing = {"accuracy", "hyperparameters", "context"}.difference(file.files)
            if missing:
                raise ValueError(f"{path} has no array {min(missing)!r}; it has {file.files}.")
            accuracy, settings = file["accuracy"], file["hyperparameters"]
            described = file["context"]
        # columns: is it a radial kernel, polynomial, linear; log2(C) / 6, log10(gamma) / 4
        is_radial = settings[:, 0] == 1.0
        self._columns = {
            (float(round(c * 6.0)), float(_gamma_index(g))): j
            for j, (c, g) in enumerate(settings[:, 3:5])
            if is_radial[j]
        }
        stream = generator(seed, 0, "contexts")
        tasks = torch.randperm(len(accuracy), generator=stream)[: self.NUM_TASKS]
        drawn = torch.randint(self.NUM_TASKS, (1000,), generator=stream)
        self._tasks = tasks[drawn].tolist()
        self._accuracy, self._described = accuracy, described
        radial = list(self._columns.values())
        self._best = accuracy[:, radial].max(axis=1)

    def context(self, round_number: int) -> Coordinates:
        """See the base class."""
        return tuple(self._described[self._tasks[round_number]].tolist())

    def reward(self, x: Coordinates, round_number: int) -> float:
        """See the base class."""
        return float(self._accuracy[self._tasks[round_number], self._columns[(x[0], x[1])]])

    def best(self, round_number: int) -> float:
        """See the base class."""
        return float(self._best[self._tasks[round_number]])


GAMMAS = (1e-4, 1e-3, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1e3)
"""Of the tabulated radial kernels; the coordinate is the index."""


def _gamma_index(scaled: float) -> int:
    return min(range(len(GAMMAS)), key=lambda i: abs(math.log10(GAMMAS[i]) - 4.0 * scaled))


SIDES = (Parameter("x0", 0.0, 1.0), Parameter("x1", 0.0, 1.0))

SITUATIONS: dict[str, Situation] = {
    situation.name: situation
    for situation in (
        late("branin", -308.13),
        late("svm", 0.0),
        Situation(
            "changes-functions",
            "changes",
            SIDES,
            lambda seed, data: SwitchingWorld(seed),
            num_rounds=CHANGING_ROUNDS,
            noise_std=0.1,
        ),
        Situation(
            "changes-temperatures",
            "changes",
            (Parameter("x", 0.0, 41.0), Parameter("y", 0.0, 32.0)),
            SensorsWorld,
            num_rounds=CHANGING_ROUNDS,
            data=TEMPERATURES_FILE,
        ),
        Situation(
            "budget-functions",
            "budget",
            SIDES,
            lambda seed, data: BudgetWorld(seed),
            noise_std=0.1,
        ),
        Situation(
            "budget-svr",
            "budget",
            SVR_PARAMETERS,
            lambda seed, data: SupportVectorsWorld(),
        ),
        Situation(
            "contexts-hartmann3",
            "contexts",
            SIDES,
            lambda seed, data: GivenCoordinateWorld(seed),
            noise_std=0.1,
            contexts=(Parameter("given", 0.0, 1.0),),
        ),
        Situation(
            "contexts-tasks",
            "contexts",
            (
                Parameter("log2_C", -5.0, 6.0, "integer"),
                Parameter("gamma_index", 0.0, len(GAMMAS) - 1.0, "integer"),
            ),
            TasksWorld,
            contexts=tuple(Parameter(f"feature{i}", 0.0, 1.0) for i in range(6)),
            data=TASKS_FILE,
        ),
    )
}
"""The problems by name, two a situation."""

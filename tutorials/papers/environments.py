"""Problems that only the papers' experiments use, and replicates of lists of priors.

In the sensors' problem, the kernel is the empirical covariance of past measurements, and the reward
functions are later ones (Srinivas et al. 2010, section 6; Chowdhury and Gopalan 2017, section 6).
Shi and Eryilmaz 2022 (Appendices B and D) count regret and violation in realized functions, which
:class:`VaryingProblem` makes and :func:`best_fixed_arm` compares with one arm.
"""

from __future__ import annotations

import csv
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from botorch.test_functions.synthetic import Hartmann
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits import Arms
from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch
from botorch_bandits.acquisition.base import Bounds
from botorch_bandits.acquisition.rules import Player, Seen, player_of
from botorch_bandits.checks import (
    DTYPE,
    check_integer,
    check_matrix,
    check_nonnegative,
    check_one_of,
    check_positive,
    store_checked,
)
from botorch_bandits.core.posterior import Rows
from botorch_bandits.models import CandidatesRecipe
from botorch_bandits.problems import (
    ArmsProblem,
    ChangingProblem,
    ConstrainedArmsProblem,
    ConstrainedProblem,
    Delays,
)
from botorch_bandits.problems.base import (
    RewardProblem,
    clamped_eigh,
    frozen_double_copy,
    gram_matrix,
)
from botorch_bandits.random_streams import RandomBlocks, derive_seed


@dataclass(frozen=True, eq=False)
class SensorData:
    """Readings of the same sensors at many times, divided into past and later ones.

    Attributes:
        past: ``num_past x num_sensors``; the kernel is computed from them.
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
        """The number of sensors."""
        return self.past.shape[1]

    def kernel_matrix(self, ridge: float = 0.0) -> Tensor:
        """Return the empirical covariance of the past readings, ``num_sensors x num_sensors``.

        Args:
            ridge: The number added to its diagonal; needed if there are fewer times than sensors.
        """
        covariance = torch.cov(self.past.T, correction=1)
        return covariance + check_nonnegative("ridge", ridge) * torch.eye(
            self.num_sensors, dtype=covariance.dtype
        )

    def average_variance(self) -> float:
        """Return the variance of a sensor's past readings, averaged over sensors."""
        return float(self.past.var(0).mean())

    def rewards(self, center: bool = True, negate: bool = False) -> Tensor:
        """Return the reward functions, ``num_later x num_sensors``.

        Args:
            center: Whether to subtract each sensor's past mean: the model's prior mean is 0.
            negate: Whether the smallest reading is sought instead of the largest.
        """
        values = self.later - self.past.mean(0) if center else self.later
        return -values if negate else values


def load_readings(path: str | Path, array: str | None = None) -> Tensor:
    """Return a table of readings, with one row per time and one column per sensor.

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
                rows = [row for row in csv.reader(lines) if row]
            table = _numbers_of(rows)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, csv.Error) as error:
        raise ValueError(f"data file {path} cannot be used: {error}.") from error
    return check_matrix(f"readings in {path}", torch.from_numpy(table))


def _numbers_of(rows: list[list[str]]) -> NDArray[np.float64]:
    """Return the rows of a CSV file below the header, without their first column."""
    if len(rows) < 2:
        raise ValueError("it has a header and no rows below it" if rows else "it is empty")
    table = []
    for i, row in enumerate(rows[1:], 2):
        if len(row) != len(rows[0]):
            raise ValueError(f"row {i} has {len(row)} entries, and the header {len(rows[0])}")
        try:
            table.append([float(value or "nan") for value in row[1:]])
        except ValueError as error:
            raise ValueError(f"row {i}: {error}") from error
    return np.array(table, dtype=np.float64)


@dataclass(frozen=True)
class GeometricDelay(Delays):
    """Geometrically distributed delays on 0, 1, 2, ...: in each round the outcome may arrive.

    Attributes:
        mean: The mean in rounds, at least 0.
    """

    mean: float

    def __post_init__(self) -> None:
        """Check the mean."""
        store_checked(self, mean=check_nonnegative("mean", self.mean))

    def draw(self, x: Tensor, stream: torch.Generator) -> float:
        """See :meth:`Delays.draw`."""
        stay = self.mean / (1.0 + self.mean)
        uniform = float(torch.rand((), dtype=torch.float64, generator=stream))
        return 0.0 if stay == 0.0 else float(math.floor(math.log1p(-uniform) / math.log(stay)))


class Hartmann3Reward(RewardProblem, Hartmann):
    """The three-dimensional Hartmann function with its sign changed, on ``[0, 1]^3``.

    Two numbers differ from BoTorch's. The constants of the function are float64
    (BoTorch rounds them to the default dtype), and the optimum is that of the function
    as BoTorch defines it, in full precision: 3.86277979 (the published 3.86278 is
    rounded up and reached nowhere, which would leave every point with some regret).

    Args:
        noise_std: Standard deviation of the Gaussian observation noise, in units of
            the reward. None means no noise.

    See :class:`RewardProblem` for the other arguments.

    Raises:
        TypeError: If ``noise_std`` is not one number.
        ValueError: If it is negative or not finite.

    Example:
        >>> problem = Hartmann3Reward()
        >>> problem.dim, problem.is_minimization_problem
        (3, False)
        >>> round(problem.optimal_value, 6)
        3.86278
    """

    ALPHA: Tensor
    A: Tensor

    def __init__(self, noise_std: float | None = None) -> None:
        """Build the problem on its usual box."""
        super().__init__(dim=3, noise_std=noise_std)
        self._optimal_value = 3.8627797873326625
        self._optimizers = [(0.11458887665506896, 0.5556488946169301, 0.8525469846866774)]
        # In place, because BoTorch makes `optimizers` a read-only property here.
        self.optimizers.copy_(torch.tensor(self._optimizers, dtype=torch.float64))
        # Published with one decimal, so rounding in float64 restores them.
        for name in ("ALPHA", "A", "P"):
            setattr(self, name, getattr(self, name).double().round(decimals=1))

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return -super()._evaluate_true(X)


NOISE_DISTRIBUTIONS = ("normal", "uniform")
"""The distributions of the noise of constraints; both are centered."""


class PublishedProblem(ConstrainedProblem):
    """A constrained problem with the noise of a paper, normal or uniform on the constraints.

    Attributes:
        constraint_noise_distribution: ``"normal"`` or ``"uniform"``.
    """

    constraint_noise_distribution: str = "normal"

    def _set_constraint_noise(self, std: float | None, distribution: str = "normal") -> None:
        """Check and store the noise on constraint values."""
        check_one_of("constraint_noise_distribution", distribution, NOISE_DISTRIBUTIONS)
        self.constraint_noise_distribution = distribution
        self.constraint_noise_std = (
            None if std is None else check_nonnegative("constraint_noise_std", std)
        )

    def observe(self, X: Tensor, stream: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw noisy outcomes.

        The noise does not depend on the points, so two methods that are given the same stream
        see the same noise.

        Args:
            X: Points, ``batch_shape x d``, float64.
            stream: A CPU generator; torch's global one if omitted.

        Returns:
            Rewards, ``batch_shape``, and constraint values, ``batch_shape x num_constraints``.

        Raises:
            TypeError: If ``X`` is not a float64 tensor.
            ValueError: If ``X`` is not finite, does not have d columns, or lies outside the domain.
        """
        with torch.no_grad():
            rewards, constraints = self.evaluate_true(X), self.constraint_values(X)
        # drawn even if unused: the constraints' noise must not depend on the reward's noise
        noise = torch.randn(rewards.shape, dtype=X.dtype, generator=stream).to(X.device)
        rewards = rewards + (self.noise_std or 0.0) * noise
        return rewards, constraints + self.constraint_noise(constraints, stream)

    def evaluate_slack(self, X: Tensor, noise: bool = True) -> Tensor:
        """Evaluate BoTorch's slacks ``-g_j``.

        Args:
            X: Points, ``batch_shape x d``, float64.
            noise: Whether to add noise, from torch's global generator.

        Returns:
            ``batch_shape x num_constraints``.
        """
        slack = self.evaluate_slack_true(X)
        return slack + self.constraint_noise(slack, None) if noise else slack

    def constraint_noise(self, like: Tensor, stream: torch.Generator | None = None) -> Tensor:
        """Draw the noise that :meth:`evaluate_slack` adds.

        Args:
            like: A tensor with the shape and device of the noise.
            stream: A CPU generator; torch's global one if omitted.
        """
        std = self.constraint_noise_std
        if std is None:
            return torch.zeros_like(like)
        if self.constraint_noise_distribution == "normal":
            draws = torch.randn(like.shape, dtype=like.dtype, generator=stream)
        else:
            uniform = torch.rand(like.shape, dtype=like.dtype, generator=stream)
            draws = math.sqrt(3.0) * (2.0 * uniform - 1.0)
        return std * draws.to(like.device)


class GridProblem(PublishedProblem, ConstrainedArmsProblem):
    """A :class:`PublishedProblem` on arms; see :func:`on_grid`."""


class GardnerProblem(PublishedProblem):
    r"""A small feasible region in two dimensions.

    .. math:: f(x) = -\sin x_1 - x_2, \qquad g(x) = \sin x_1 \sin x_2 + 0.95 \le 0
        \quad \text{on } [0, 6]^2

    The optimum is ``1 - arcsin 0.95 = -0.253236`` at ``(3 pi / 2, arcsin 0.95)``. Less than 2% of
    the box is feasible: a disc that contains the optimum, and another one around
    ``(pi / 2, 3 pi / 2)``, where ``f`` is about -5.4. Without the constraint the reward reaches 1.
    With the linear penalty ``optimal_multiplier * g`` the optimum of the box stays the same.

    Source: Gardner et al. 2014 (they minimize ``-f``); Shi and Eryilmaz 2022, appendix E.1, where
    the noise variance is 0.01 for the reward and, in E.1.2, for the constraint.

    Args:
        noise_std: Standard deviation of the Gaussian noise on rewards; 0.1 in the paper. None
            means no noise.
        constraint_noise_std: The same for constraint values; 0.1 in E.1.2. None means no noise.

    Attributes:
        optimal_multiplier: The ``kappa`` for which the optimum also maximizes ``f - kappa
            g`` on the box, so that no random choice of points is better on average.

    See :class:`RewardProblem` for the other arguments.

    Raises:
        TypeError: If a standard deviation is not one number.
        ValueError: If it is negative or not finite.

    Example:
        >>> problem = GardnerProblem()
        >>> round(problem.optimal_value, 6), [round(x, 5) for x in problem.optimizers[0].tolist()]
        (-0.253236, [4.71239, 1.25324])
        >>> round(on_grid(problem, 61).optimal_value, 3)
        -0.3
    """

    dim = 2
    num_constraints = 1
    continuous_inds: ClassVar[list[int]] = [0, 1]
    _bounds: ClassVar[list[tuple[float, float]]] = [(0.0, 6.0), (0.0, 6.0)]
    optimal_value = 1.0 - math.asin(0.95)
    optimal_multiplier = 1.0 / math.cos(math.asin(0.95))

    def __init__(
        self, noise_std: float | None = None, constraint_noise_std: float | None = None
    ) -> None:
        """See the class."""
        super().__init__(noise_std=noise_std)
        self._set_constraint_noise(constraint_noise_std)
        point = [1.5 * math.pi, math.asin(0.95)]
        self._optimizers = [tuple(point)]
        self.register_buffer("optimizers", torch.tensor([point], dtype=torch.float64))

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return -X[..., 0].sin() - X[..., 1]

    def _evaluate_constraints(self, X: Tensor) -> Tensor:
        return (X[..., :1].sin() * X[..., 1:].sin()) + 0.95


def on_grid(problem: PublishedProblem, num_points: int) -> GridProblem:
    """Tabulate a problem on a grid that contains the corners of its box.

    The grid has its own optimum, the best of its feasible points, against which regret on it
    must be measured. It may be far below the optimum of the box.

    Args:
        problem: The problem, on a box.
        num_points: The number of points per dimension, at least 2.

    Returns:
        The problem on ``num_points ** d`` arms, with the noise of the one on the box.
    """
    lines = [
        torch.linspace(low, high, num_points, dtype=DTYPE)
        for low, high in problem.bounds.T.tolist()
    ]
    choices = torch.cartesian_prod(*lines)
    with torch.no_grad():
        values, constraints = problem.evaluate_true(choices), problem.constraint_values(choices)
    grid = GridProblem(choices, values, constraints, noise_std=problem.noise_std)
    grid._set_constraint_noise(problem.constraint_noise_std, problem.constraint_noise_distribution)
    return grid


class RatesProblem(PublishedProblem):
    r"""Data rates of four servers under a budget for electricity.

    .. math:: f(x) = \sum_i U_i(x_i), \qquad
        g(x) = 0.2 x_1 + 0.4 x_2 + 0.8 x_3 + 1.2 x_4 - 2 \le 0 \quad \text{on } [0, 2]^4

    Servers 1 and 3 have utility ``c / (1 + exp(-a (x - b))) + c d``, servers 2 and 4
    ``c ln(a x + b) + c d``.

    The constants are a SUBSTITUTE: Shi and Eryilmaz 2022, appendix E.2, take theirs from Lee,
    Mazumdar and Shroff 2005, which was not available. With the constants here, ``U_i(0) = 0`` and
    ``U_i(2) = 1``, so the reward lies in [0, 4]; values are not comparable with the paper's. There
    are four local optima under the constraint.

    Args:
        noise_std: Standard deviation of the Gaussian noise on rewards; 0.1 in the paper. None
            means no noise.
        constraint_noise_half_width: Noise on the constraint is uniform between minus and plus this;
            0.2 in appendix E.2.2. None means no noise.

    Attributes:
        optimal_multiplier: As in :class:`GardnerProblem`.

    Raises:
        TypeError: If an argument is not one number.
        ValueError: If it is negative or not finite.

    Example:
        >>> problem = RatesProblem(noise_std=0.1, constraint_noise_half_width=0.2)
        >>> round(problem.optimal_value, 6), problem.constraint_noise_distribution
        (3.057417, 'uniform')
    """

    dim = 4
    num_constraints = 1
    continuous_inds: ClassVar[list[int]] = [0, 1, 2, 3]
    _bounds: ClassVar[list[tuple[float, float]]] = [(0.0, 2.0)] * 4
    optimal_value = 3.057417245937211
    optimal_multiplier = 0.7474524819459596

    # c and d in closed form: a logistic curve (servers 1, 3) and a logarithm (2, 4), each scaled
    # so that U(0) = 0 and U(2) = 1
    _a: ClassVar[tuple[float, ...]] = (6.0, 5.0, 8.0, 5.0)
    _b: ClassVar[tuple[float, ...]] = (1.0, 1.0, 0.8, 1.0)
    _c: ClassVar[tuple[float, ...]] = (
        1.004969823313689,
        0.4170323914242463,
        1.001729511274645,
        0.4170323914242463,
    )
    _d: ClassVar[tuple[float, ...]] = (-0.0024726231566347743, 0.0, -0.0016588010801744215, 0.0)
    _weights: ClassVar[tuple[float, ...]] = (0.2, 0.4, 0.8, 1.2)
    _budget: ClassVar[float] = 2.0

    def __init__(
        self, noise_std: float | None = None, constraint_noise_half_width: float | None = None
    ) -> None:
        """See the class."""
        super().__init__(noise_std=noise_std)
        width = constraint_noise_half_width
        if width is not None:
            width = check_nonnegative("constraint_noise_half_width", width) / math.sqrt(3.0)
        self._set_constraint_noise(width, "uniform")
        # the last digit is below that of the exact optimum, so that rounding leaves it feasible
        point = [1.607617179809572, 1.1948458313313803, 1.1032498737162302, 0.2649486104437905]
        self._optimizers = [tuple(point)]
        self.register_buffer("optimizers", torch.tensor([point], dtype=torch.float64))

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return self.utilities(X).sum(-1)

    def utilities(self, X: Tensor) -> Tensor:
        """Return the utility of each server, ``batch_shape x 4``.

        Args:
            X: Data rates, ``batch_shape x 4``, float64.
        """
        a, b, c, d = (X.new_tensor(row) for row in (self._a, self._b, self._c, self._d))
        logistic = torch.sigmoid(a * (X - b))
        # rates are at least 0 and b is at least 0.8, so the logarithm exists for all servers
        logarithm = (a * X + b).log()
        is_logistic = torch.tensor([True, False, True, False], device=X.device)
        return c * (torch.where(is_logistic, logistic, logarithm) + d)

    def _evaluate_constraints(self, X: Tensor) -> Tensor:
        return (X @ X.new_tensor(self._weights) - self._budget).unsqueeze(-1)


KINDS = ("waves", "shocks")
"""How the coefficient of a round is generated; see :class:`VaryingProblem`."""


class VaryingProblem(ChangingProblem):
    r"""A function on arms that varies around its mean by a bounded amount.

    .. math:: f^t(x) = f(x) + v \, a_t \, h(x), \qquad |a_t| \le 1, \quad |h(x)| \le 1

    With ``kind="waves"``, :math:`a_t = \sin(2 \pi t / \text{period})`. With ``"shocks"`` each
    :math:`a_t` is 1 or -1 with equal probability, independently: :math:`f^t` is then a realization
    of ``f`` with ``v``-sub-Gaussian noise that all points of a round share. Observation noise is
    added to this. As a constraint of another environment, the function varies in the same way.

    Args:
        mean: ``f``, with its observation noise.
        amplitude: ``v``.
        kind: ``"waves"`` or ``"shocks"``.
        period: The period of waves, in rounds.
        seed: The seed of shocks.
        shape: ``h``, on the same arms with values in [-1, 1]; 1 at all points if omitted.
        constraints: See :class:`ChangingProblem`.

    Raises:
        ValueError: If a number is out of its range, or ``h`` leaves [-1, 1].

    Example:
        >>> choices = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> mean = ArmsProblem(choices, torch.tensor([1.0, 2.0], dtype=torch.float64))
        >>> environment = VaryingProblem(mean, amplitude=0.5, period=4.0)
        >>> [environment.arm_values(t).tolist() for t in (1, 3)]
        [[1.5, 2.5], [0.5, 1.5]]
    """

    def __init__(
        self,
        mean: ArmsProblem,
        amplitude: float,
        kind: str = "waves",
        period: float = 20.0,
        seed: int = 0,
        shape: ArmsProblem | None = None,
        constraints: Sequence[ArmsProblem | ChangingProblem] = (),
    ) -> None:
        """See the class."""
        super().__init__(mean, constraints)
        self.mean, self.shape = mean, shape
        self.amplitude = check_nonnegative("amplitude", amplitude)
        self.kind = check_one_of("kind", kind, KINDS)
        self.period = check_positive("period", period)
        self.seed = check_integer("seed", seed, minimum=0)
        if shape is not None and float(shape.values.abs().max()) > 1.0:
            raise ValueError(
                f"shape has the value {float(shape.values.abs().max()):g} at an arm; divide its "
                "values by that, and multiply amplitude."
            )
        self._shocks = RandomBlocks([self.seed], "shock", (), "uniform")

    def coefficient(self, round_number: int) -> float:
        """Return ``a_t``.

        Args:
            round_number: The number of the round, from 1.
        """
        round_number = check_integer("round_number", round_number, minimum=1)
        if self.kind == "waves":
            return math.sin(2.0 * math.pi * round_number / self.period)
        return 1.0 if float(self._shocks.at(round_number)) < 0.5 else -1.0

    def arm_values(self, round_number: int) -> Tensor:
        """See :meth:`ChangingProblem.arm_values`."""
        added = self.amplitude * self.coefficient(round_number)
        if self.shape is None:
            return self.mean.values + added
        return self.mean.values + added * self.shape.values

    def at(self, round_number: int) -> ArmsProblem:
        """See :meth:`ChangingProblem.at`."""
        return ArmsProblem(self.mean.choices, self.arm_values(round_number), self.noise_std)

    def optimal_value(self, round_number: int) -> float:
        """See :meth:`ChangingProblem.optimal_value`; if the variation is shared, the mean's."""
        if self.shape is None:
            best = float(self.mean.optimal_value)
            return best + self.amplitude * self.coefficient(round_number)
        return super().optimal_value(round_number)


def best_fixed_arm(
    environment: ChangingProblem, num_rounds: int, meets: str = "every round"
) -> tuple[int, Tensor]:
    """Return the arm of the largest summed reward among those that meet the constraints.

    Args:
        environment: An environment on arms.
        num_rounds: The number of rounds of the run.
        meets: ``"every round"``: the constraints of each round. ``"on average"``: their sums.

    Returns:
        The number of the arm, the first of equals, and its noiseless rewards, one per round.

    Raises:
        ValueError: On a box, without rounds, or if no arm meets the constraints.

    Example:
        >>> choices = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> mean = ArmsProblem(choices, torch.tensor([1.0, 2.0], dtype=torch.float64))
        >>> cost = ArmsProblem(choices, torch.tensor([-1.0, 0.2], dtype=torch.float64))
        >>> environment = VaryingProblem(mean, 0.1, constraints=[cost])
        >>> best_fixed_arm(environment, 10)[0]
        0
    """
    check_one_of("meets", meets, ("every round", "on average"))
    rewards, constraints = _tables(environment, num_rounds)
    feasible = torch.ones(rewards.shape[1], dtype=torch.bool, device=rewards.device)
    for table in constraints:
        feasible &= (table.sum(0) <= 0.0) if meets == "on average" else (table <= 0.0).all(0)
    if not bool(feasible.any()):
        raise ValueError(
            f"no arm meets the constraints ({meets}) in {num_rounds} rounds; relax them, or pass "
            "meets='on average'."
        )
    best = int(rewards.sum(0).masked_fill(~feasible, -torch.inf).argmax())
    return best, rewards[:, best]


def _tables(environment: ChangingProblem, num_rounds: int) -> tuple[Tensor, list[Tensor]]:
    """Return noiseless rewards, ``num_rounds x num_arms``, and those of each constraint."""
    num_rounds = check_integer("num_rounds", num_rounds, minimum=1)
    choices = environment.choices
    if choices is None:
        raise ValueError(
            f"{type(environment).__name__} is on a box; all values are known only on arms. Put it "
            "on arms."
        )
    rounds = range(1, num_rounds + 1)
    rewards = torch.stack([environment.arm_values(t) for t in rounds])
    values = torch.stack([environment.constraint_values(choices, t) for t in rounds])
    return rewards, list(values.unbind(-1))


@dataclass(frozen=True, eq=False)
class ReplicatesRound:
    """The state of each replicate in a round.

    Attributes:
        rounds: One per replicate.
    """

    rounds: tuple[Seen, ...]

    @property
    def rule(self) -> ReplicatesRound:
        """The object itself, which says what is known as a rule does elsewhere."""
        return self

    def known(self, seen: ReplicatesRound) -> Bounds:
        """Return what is known of all arms, ``num_replicates x num_arms``; no bounds for draws.

        Args:
            seen: The round.
        """
        each = zip(*(one.rule.known(one) for one in seen.rounds), strict=True)
        return Bounds._make(None if part[0] is None else torch.stack(part) for part in each)


@dataclass(frozen=True, eq=False)
class MixtureOfReplicates:
    """The posterior mixtures of all replicates.

    Attributes:
        rounds: The last round of each replicate.
    """

    rounds: tuple[Seen, ...]

    @property
    def mean(self) -> Tensor:
        """``num_replicates x num_arms``."""
        return torch.stack([seen.rule.known(seen).mean for seen in self.rounds])


class CandidatesReplicates:
    """Plays a list of priors on arms, with separate evidence for each replicate.

    Args:
        recipe: The recipe of the list.
        acquisition: The acquisition that is played, which must have a rule on arms; see
            :func:`~botorch_bandits.acquisition.player_of`.
        arms: The arms.
        seeds: One per replicate.

    Raises:
        ValueError: If the acquisition needs a BoTorch model.
    """

    rule = True  # it is not random search

    def __init__(
        self,
        recipe: CandidatesRecipe,
        acquisition: AcquisitionRecipe | RandomSearch,
        arms: Arms,
        seeds: Sequence[int],
    ) -> None:
        """See the class."""
        players: list[Player] = []
        for seed in seeds:
            known = players[0].posterior.prior.priors if players else ()
            player = player_of(recipe, acquisition, arms, seed, known=known)
            if player is None:
                raise ValueError(
                    f"policy ({acquisition!r}) cannot be simulated in a batch with a list of "
                    "priors, unless it is CandidatesUpperConfidenceBound, or "
                    "CandidatesThompsonSampling on all arms. Run policy.loop(...) for each seed "
                    "instead."
                )
            players.append(player)
        self.players = tuple(players)
        self._rows = [Rows.empty(1, arms.choices) for _ in seeds]
        self._uniform = RandomBlocks(tuple(seeds), "sample", (), "uniform")
        self._num_arms, self._device = arms.num_arms, arms.choices.device

    def look(self, round_number: int) -> ReplicatesRound:
        """Return the state of all replicates in a round.

        Args:
            round_number: The number of the round, from 1, with which widths grow.
        """
        return ReplicatesRound(self._looks(round_number))

    @property
    def posterior(self) -> MixtureOfReplicates:
        """The mixtures of all replicates now."""
        return MixtureOfReplicates(self._looks(1))

    def _looks(self, round_number: int) -> tuple[Seen, ...]:
        each = zip(self.players, self._rows, strict=True)
        return tuple(player.look(round_number, rows) for player, rows in each)

    def choose(self, seen: ReplicatesRound, check: bool = True) -> Tensor:
        """Return the arm to play, ``num_replicates``.

        Args:
            seen: The round from :meth:`look`.
            check: Whether to refuse scores that are not finite.
        """
        each = zip(self.players, seen.rounds, strict=True)
        return torch.stack([player.choose(known, check) for player, known in each])

    def choose_uniformly(self, round_number: int) -> Tensor:
        """Return one uniformly random arm per replicate.

        Args:
            round_number: The number of the round, from 1; the draw is a function of this number and
                the replicate's seed.
        """
        return (self._uniform.at(round_number) * self._num_arms).long().to(self._device)

    def observe(self, arm: Tensor | int, outcome: Tensor | float) -> None:
        """Add one outcome per replicate.

        Args:
            arm: ``num_replicates`` numbers of the arms that were played; a plain number for one
                replicate.
            outcome: ``num_replicates`` outcomes; a plain number for one replicate.
        """
        arms = [arm] if isinstance(arm, int) else arm.tolist()
        outcomes = outcome.tolist() if isinstance(outcome, Tensor) else [outcome]
        for b, (played, heard) in enumerate(zip(arms, outcomes, strict=True)):
            one = torch.ones(1, dtype=DTYPE)
            row = Rows(torch.tensor([played]), one.unsqueeze(-1) * heard, one)
            self._rows[b] = self._rows[b].followed_by(row)


def gp_draws_of_periods(
    kernel: Kernel, domain: Arms, num_periods: int, seeds: Sequence[int]
) -> Tensor:
    """Draw independent functions from GP(0, k) on arms, for many replicates at once.

    Entry ``b`` has the functions of ``switching_gp_draws`` with the seed ``seeds[b]``, up to
    rounding. One eigendecomposition, which costs the cube of the number of arms, serves them all.

    Args:
        kernel: Any GPyTorch kernel with one output and no batch shape. Copied.
        domain: The arms.
        num_periods: The number of functions of each replicate.
        seeds: One per replicate.

    Returns:
        ``num_replicates x num_periods x num_arms`` rewards.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> arms = Arms(torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1))
        >>> gp_draws_of_periods(RBFKernel(), arms, num_periods=3, seeds=[0, 1]).shape
        torch.Size([2, 3, 50])
    """
    choices = domain.choices
    gram = gram_matrix(frozen_double_copy(kernel, choices.device), choices)
    eigenvalues, eigenvectors = clamped_eigh(gram)
    normal = torch.stack(
        [
            torch.randn(
                len(choices),
                generator=torch.Generator().manual_seed(derive_seed(seed, k, "period")),
                dtype=torch.float64,
            )
            for seed in seeds
            for k in range(num_periods)
        ]
    ).to(choices.device)
    # the symmetric root does not depend on the signs of the eigenvectors
    values = (normal @ eigenvectors * eigenvalues.sqrt()) @ eigenvectors.mT
    return values.reshape(len(seeds), num_periods, len(choices))

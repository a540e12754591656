r"""Methods of other authors for long-term constraints, with which experiments compare ours.

Three classes: :class:`ConstrainedImprovement` (constrained expected improvement),
:class:`BanditSaddlePoint` (bandit online convex optimization, OCO) and :class:`ADMMBO`. They are
played by :func:`papers.constrained_study.play_constrained`.

**Constrained expected improvement.** Source: Gardner et al. 2014, in the logarithmic form of Ament
et al. 2023, as in BoTorch. Expected improvement over the best feasible point is weighted by the
probability that all constraints hold; reward and constraints have independent models. As long as no
observed point is feasible, the probability alone is maximized.

**Bandit saddle point.** After Cao and Liu, "Online convex optimization with time-varying
constraints and bandit feedback" (published online in 2018). WRITTEN FROM MEMORY of the paper: the
scheme is certain, a projected primal-dual method on a regularized Lagrangian with gradients
estimated from several values per step, but constants may differ. In our orientation, rewards to be
maximized and ``g_j <= 0``, the Lagrangian is

.. math:: L(x, \lambda) = f(x) - \lambda^\top g(x) + \tfrac{\rho \eta}{2} \|\lambda\|^2,

and a step on the cube ``[0, 1]^d`` (the box, scaled) shrunk by ``r`` on each side is

.. math::
   x \leftarrow \Pi [x + \eta (\hat\nabla f(x) - \textstyle\sum_j \lambda_j \hat\nabla g_j(x))],
   \qquad \lambda \leftarrow [(1 - \rho \eta \mu) \lambda + \mu \bar g]^+ .

In the paper, :math:`\mu = \eta`. A separate step for the multipliers is our addition.

The two-point estimate of a gradient is :math:`\frac{d}{2 r} (f(x + r u) - f(x - r u)) u` with ``u``
uniform on the sphere. It is unbiased for the gradient of ``f`` averaged over the ball of radius
``r``, and therefore for the gradient of a quadratic function at ``x``. The estimate averages ``k``
directions that are orthogonal to each other, each with its pair of points; with ``k = d``, it is
the central difference quotient in a random frame.

Here, each evaluation is a round: a step takes ``2 k`` rounds, and :math:`\bar g` is the mean of
their constraint values.

**ADMMBO.** Source: Ariafar, Coll-Font, Brooks and Dy 2019; constants as in the authors' released
code. With ``F = -f``, the problem is: minimize ``F(x) + M sum_j 1[g_j(z_j) > 0]`` subject to ``x =
z_j``. One iteration of the alternating direction method of multipliers performs in turn

.. math::
   x &= \arg\min F(x) + \tfrac{m \rho}{2} \|x - \bar z + \bar y / \rho\|^2 \\
   z_j &= \arg\min 1[g_j(z) > 0] + \tfrac{\rho}{2 M} \|x - z + y_j / \rho\|^2 \\
   y_j &\leftarrow y_j + \rho (x - z_j)

with means over the ``m`` constraints. Each minimization consists of a few steps of expected
improvement, and its solution is the best observed point. ``rho`` is doubled or halved when one
residual is ten times the other.

There are two differences from the authors' program. In our setting, each query reveals both reward
and constraints, so both surrogates learn from all queries; and the probability that a constraint
holds uses the posterior standard deviation, where their code has the variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import (
    LogConstrainedExpectedImprovement,
    LogProbabilityOfFeasibility,
)
from botorch.models import ModelListGP
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.checks import (
    check_double,
    check_finite,
    check_integer,
    check_nonnegative,
    check_number,
    check_positive,
    check_vector,
)
from botorch_bandits.domains import Box, Domain
from botorch_bandits.random_streams import derive_seed, generator
from papers.constrained_study import Observations


class ConstrainedImprovement:
    """Constrained expected improvement with a choice of models.

    Under noise the best observed value drifts upwards, so the incumbent is the largest posterior
    mean of the reward at an observed point where the posterior mean of every constraint is at
    most 0.

    Args:
        domain: A box or arms.
        model: Builds the reward's model from ``n x d`` points and ``n x 1`` values, such as
            ``BanditGP.with_kernel(...)``.
        num_constraints: The number of constraints.
        constraint_model: Builds the model of each constraint; ``model`` if omitted.
        num_initial: The number of uniformly drawn initial points, at least 1.
        seed: Seeds the initial points and BoTorch's optimizer.

    Attributes:
        observations: What was observed.

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If it is too small.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits.domains import Box
        >>> from botorch_bandits.models import BanditGP
        >>> from papers.constrained_study import play_constrained
        >>> from botorch_bandits.problems import GardnerProblem
        >>> problem = GardnerProblem(noise_std=0.1)
        >>> model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01)
        >>> method = ConstrainedImprovement(Box(problem.bounds), model)
        >>> play_constrained(method, problem, num_rounds=3).num_rounds
        3
    """

    def __init__(
        self,
        domain: Domain,
        model: Callable[[Tensor, Tensor], Model],
        num_constraints: int = 1,
        *,
        constraint_model: Callable[[Tensor, Tensor], Model] | None = None,
        num_initial: int = 2,
        seed: int = 0,
    ) -> None:
        """See the class."""
        self.domain = domain
        self.model = model
        self.constraint_model = model if constraint_model is None else constraint_model
        self.num_constraints = check_integer("num_constraints", num_constraints, minimum=1)
        self.num_initial = check_integer("num_initial", num_initial, minimum=1)
        self.seed = check_integer("seed", seed, minimum=0)
        self.observations = Observations(domain.dim, self.num_constraints)

    def choose(self, round_number: int) -> Tensor:
        """Return the point to play; see :class:`ConstrainedBaseline`.

        Args:
            round_number: From 1.
        """
        if len(self.observations) < self.num_initial:
            return self.domain.sample(1, generator(self.seed, round_number, "initial points"))[0]
        seed = derive_seed(self.seed, round_number, "constrained improvement")
        return self.domain.maximize(self.acquisition(), seed)[0]

    def observe(self, x: Tensor, reward: float, constraints: Tensor | list[float]) -> None:
        """Take an outcome; see :class:`ConstrainedBaseline`.

        Args:
            x: The point, ``d`` numbers.
            reward: The observed reward.
            constraints: ``num_constraints`` observed constraint values.
        """
        self.observations.append(x, reward, constraints)

    def acquisition(self) -> AcquisitionFunction:
        """Build BoTorch's acquisition function from all observations, at least one."""
        data = self.observations
        rows = data.points
        models = [self.model(rows, data.rewards.unsqueeze(-1))]
        models += [self.constraint_model(rows, g.unsqueeze(-1)) for g in data.constraints.T]
        model = ModelListGP(*models)
        bounds = dict.fromkeys(range(1, 1 + self.num_constraints), (None, 0.0))
        with torch.no_grad():
            means = model.posterior(rows).mean
        feasible = (means[:, 1:] <= 0.0).all(-1)
        if not bool(feasible.any()):
            return LogProbabilityOfFeasibility(model, constraints=bounds)
        return LogConstrainedExpectedImprovement(
            model, best_f=means[feasible, 0].max(), objective_index=0, constraints=bounds
        )


def orthonormal_directions(dim: int, num_directions: int, stream: torch.Generator) -> Tensor:
    """Draw orthonormal vectors, each of which is uniform on the sphere.

    Args:
        dim: ``d``.
        num_directions: ``k``, at most ``d``.
        stream: A CPU generator.

    Returns:
        ``k x d``.

    Example:
        >>> U = orthonormal_directions(3, 2, torch.Generator().manual_seed(0))
        >>> torch.allclose(U @ U.T, torch.eye(2, dtype=torch.float64))
        True
    """
    gaussian = torch.randn(dim, dim, dtype=torch.float64, generator=stream)
    frame, upper = torch.linalg.qr(gaussian)
    # the signs of a QR decomposition are a convention; this choice makes the frame uniform
    return (frame * upper.diagonal().sign()).T[:num_directions]


def estimate_gradient(ahead: Tensor, behind: Tensor, directions: Tensor, radius: float) -> Tensor:
    """Estimate a gradient from pairs of values, ``f(x + r u)`` and ``f(x - r u)``.

    Args:
        ahead: ``k`` or ``k x m`` values at ``x + r u_i``, of ``m`` functions.
        behind: The same at ``x - r u_i``.
        directions: ``k x d`` unit vectors ``u_i``.
        radius: ``r``.

    Returns:
        ``d`` or ``m x d``.

    Example:
        >>> U = torch.eye(2, dtype=torch.float64)
        >>> ahead, behind = [((1 + s * U) ** 2).sum(-1) for s in (0.5, -0.5)]
        >>> estimate_gradient(ahead, behind, U, 0.5)
        tensor([2., 2.], dtype=torch.float64)
    """
    num_directions, dim = directions.shape
    slopes = (ahead - behind) * (dim / (2.0 * radius * num_directions))
    return slopes.movedim(0, -1) @ directions


class BanditSaddlePoint:
    """Bandit online convex optimization with long-term constraints, after Cao and Liu 2018.

    See the module docstring for the algorithm and its source. In theory, the step is of order ``1 /
    sqrt(T)`` and the radius is far smaller. With observation noise, however, an estimated gradient
    has a standard deviation of order ``noise_std / radius``, so neither can be small. The defaults
    come from a coarse search on the two problems of Shi and Eryilmaz 2022 with 350 rounds. All
    lengths are on the box scaled to ``[0, 1]^d``.

    Args:
        bounds: The box, ``2 x d``.
        num_constraints: The number of constraints.
        step_size: ``eta``.
        multiplier_step_size: ``mu``; ``eta`` if omitted.
        radius: ``r``; at most 0.5.
        num_directions: ``k``; None for all ``d``.
        regularization: ``rho``, the rate at which multipliers decay.
        start: The first ``x``, in the box; drawn uniformly if omitted.
        seed: Seeds the start and the directions.

    Raises:
        TypeError: If an argument has the wrong type or dtype.
        ValueError: If one is out of range.

    Example:
        >>> method = BanditSaddlePoint([[0.0], [4.0]], radius=0.1, start=[2.0], seed=0)
        >>> first = method.choose(1)
        >>> method.observe(first, reward=1.0, constraints=[0.0])
        >>> round(float(first + method.choose(2)), 9)  # a pair around the start
        4.0
    """

    def __init__(
        self,
        bounds: Tensor | list[list[float]],
        num_constraints: int = 1,
        *,
        step_size: float = 0.02,
        multiplier_step_size: float | None = None,
        radius: float = 0.1,
        num_directions: int | None = 1,
        regularization: float = 1.0,
        start: Tensor | list[float] | None = None,
        seed: int = 0,
    ) -> None:
        """See the class."""
        box = Box(bounds)
        self._lower, self._width = box.bounds[0], box.bounds[1] - box.bounds[0]
        self.dim = box.dim
        self.num_constraints = check_integer("num_constraints", num_constraints, minimum=1)
        self.step_size = check_positive("step_size", step_size)
        self.multiplier_step_size = (
            self.step_size
            if multiplier_step_size is None
            else check_positive("multiplier_step_size", multiplier_step_size)
        )
        self.radius = check_positive("radius", radius)
        if self.radius > 0.5:
            raise ValueError(f"radius is {radius}; on the unit cube it must be at most 0.5.")
        self.num_directions = check_integer(
            "num_directions", self.dim if num_directions is None else num_directions, minimum=1
        )
        if self.num_directions > self.dim:
            raise ValueError(
                f"num_directions is {num_directions}; at most {self.dim} are orthogonal in "
                f"{self.dim} dimensions."
            )
        self.regularization = check_nonnegative("regularization", regularization)
        self._keep = 1.0 - self.regularization * self.step_size * self.multiplier_step_size
        if self._keep < 0.0:
            raise ValueError(
                f"regularization is {regularization}; its product with step_size="
                f"{self.step_size} and multiplier_step_size={self.multiplier_step_size} must be at "
                "most 1, or multipliers change sign."
            )
        self.seed = check_integer("seed", seed, minimum=0)
        if start is None:
            unit = torch.rand(self.dim, dtype=torch.float64, generator=generator(seed, 0, "start"))
        else:
            unit = (box.check_point("start", start) - self._lower) / self._width
        self._x = self._project(unit)
        self.multipliers = torch.zeros(self.num_constraints, dtype=torch.float64)
        self.num_steps = 0
        self._plan()

    @property
    def x(self) -> Tensor:
        """The iterate, ``d`` numbers in the box, around which points are played."""
        return self._lower + self._width * self._x

    def choose(self, round_number: int) -> Tensor:
        """Return the next of the points around the iterate; see :class:`ConstrainedBaseline`.

        Args:
            round_number: Not used; the points follow from the observations.
        """
        side, row = divmod(len(self._values), self.num_directions)
        shift = self.radius * self._directions[row]
        unit = self._x - shift if side else self._x + shift
        # rounding can push a point past a face by one unit in the last place
        return torch.minimum(
            self._lower + self._width * unit.clamp(0.0, 1.0), self._lower + self._width
        )

    def observe(self, x: Tensor, reward: float, constraints: Tensor | list[float]) -> None:
        """Take an outcome, and take the step after the last of its points.

        Args:
            x: The point that was chosen last.
            reward: The observed reward.
            constraints: ``num_constraints`` observed constraint values.

        Raises:
            ValueError: If ``x`` is not the point that was chosen last.
        """
        if not torch.equal(check_finite("x", check_double("x", x)), self.choose(0)):
            raise ValueError(
                f"x is {x.tolist()}, but {self.choose(0).tolist()} was chosen; a gradient is "
                "estimated from values at the chosen points only."
            )
        row = check_vector("constraints", constraints, length=self.num_constraints)
        self._values.append(torch.cat([row.new_tensor([check_number("reward", reward)]), row]))
        if len(self._values) == 2 * self.num_directions:
            self._step(torch.stack(self._values))

    def _plan(self) -> None:
        """Draw the directions of the next step."""
        stream = generator(self.seed, self.num_steps + 1, "directions")
        self._directions = orthonormal_directions(self.dim, self.num_directions, stream)
        self._values: list[Tensor] = []  # each has the reward, then the constraints

    def _step(self, values: Tensor) -> None:
        ahead, behind = values[: self.num_directions], values[self.num_directions :]
        gradients = estimate_gradient(ahead, behind, self._directions, self.radius)
        ascent = gradients[0] - self.multipliers @ gradients[1:]
        self._x = self._project(self._x + self.step_size * ascent)
        step = self.multiplier_step_size * values[:, 1:].mean(0)
        self.multipliers = (self._keep * self.multipliers + step).clamp_min(0.0)
        self.num_steps += 1
        self._plan()

    def _project(self, unit: Tensor) -> Tensor:
        return unit.clamp(self.radius, 1.0 - self.radius)


ABSOLUTE_TOLERANCE = RELATIVE_TOLERANCE = 0.05
RELAXATION = 1.5
"""Constants of the rule that stops the iterations."""

RESIDUAL_RATIO, PENALTY_FACTOR = 10.0, 2.0
"""The penalty is changed by this factor when the residuals differ by more than this ratio."""


@dataclass(frozen=True, eq=False)
class Splitting:
    """The variables of the alternating direction method.

    Attributes:
        x: ``d``; the solution of the objective's subproblem.
        z: ``m x d``; the solutions of the constraints' subproblems.
        y: ``m x d``; the multipliers of ``x = z_j``.
        penalty: ``rho``.
        weight: ``M``, the cost of a violation.
    """

    x: Tensor
    z: Tensor
    y: Tensor
    penalty: float = 0.1
    weight: float = 50.0

    def objective_penalty(self, points: Tensor) -> Tensor:
        """Return the term that the objective's subproblem adds to ``-f``.

        Args:
            points: ``n x d``.

        Returns:
            ``n`` values.
        """
        center = self.z.mean(0) - self.y.mean(0) / self.penalty
        return 0.5 * len(self.z) * self.penalty * (points - center).square().sum(-1)

    def feasibility_penalty(self, points: Tensor, j: int) -> Tensor:
        """Return what the subproblem of constraint ``j`` adds to the indicator of a violation.

        Args:
            points: ``n x d``.
            j: From 0.

        Returns:
            ``n`` values.
        """
        center = self.x + self.y[j] / self.penalty
        return 0.5 * self.penalty / self.weight * (points - center).square().sum(-1)

    def with_feasible_point(self, j: int, z: Tensor) -> Splitting:
        """Return the variables after the subproblem of constraint ``j``, with a new multiplier.

        Args:
            j: From 0.
            z: ``d``; the subproblem's solution.
        """
        points, multipliers = self.z.clone(), self.y.clone()
        points[j] = z
        multipliers[j] += self.penalty * (self.x - z)
        return replace(self, z=points, y=multipliers)

    def residuals(self, previous_z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the norms of the primal and dual residuals, ``m`` each.

        Args:
            previous_z: ``m x d``; the points before the iteration.
        """
        primal = (self.x - self.z).norm(dim=-1)
        return primal, self.penalty * (self.z - previous_z).norm(dim=-1)

    def has_converged(self, previous_z: Tensor) -> bool:
        """Return whether all residuals are within the authors' tolerances.

        Args:
            previous_z: ``m x d``; the points before the iteration.
        """
        primal, dual = self.residuals(previous_z)
        absolute = math.sqrt(len(self.x)) * ABSOLUTE_TOLERANCE
        scale = torch.maximum(self.x.norm(), self.z.norm(dim=-1))
        relative = RELAXATION * RELATIVE_TOLERANCE
        is_primal = primal < absolute + relative * scale
        is_dual = dual < absolute + relative * (self.penalty * self.y).norm(dim=-1)
        return bool((is_primal & is_dual).all())

    def with_adapted_penalty(self, previous_z: Tensor) -> Splitting:
        """Return the variables with the penalty adapted to the residuals of an iteration.

        Args:
            previous_z: ``m x d``; the points before the iteration.
        """
        primal, dual = (float(norms.mean()) for norms in self.residuals(previous_z))
        if primal > RESIDUAL_RATIO * dual:
            return replace(self, penalty=self.penalty * PENALTY_FACTOR)
        if dual > RESIDUAL_RATIO * primal:
            return replace(self, penalty=self.penalty / PENALTY_FACTOR)
        return self


def objective_improvement(mean: Tensor, std: Tensor, penalty: Tensor, best: Tensor) -> Tensor:
    """Return the expected amount by which ``-f + penalty`` falls below ``best``.

    Args:
        mean: ``n`` posterior means of the reward ``f``.
        std: ``n`` posterior standard deviations.
        penalty: ``n`` known numbers.
        best: The smallest ``-f + penalty`` so far.

    Returns:
        ``n`` expected improvements.
    """
    gain = best - penalty + mean
    normal = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    u = gain / std
    return std * normal.log_prob(u).exp() + gain * normal.cdf(u)


def feasibility_improvement(mean: Tensor, std: Tensor, penalty: Tensor, best: Tensor) -> Tensor:
    """Return the expected amount by which ``1[g > 0] + penalty`` falls below ``best``.

    Args:
        mean: ``n`` posterior means of the constraint ``g``.
        std: ``n`` posterior standard deviations.
        penalty: ``n`` known numbers.
        best: The smallest ``1[g > 0] + penalty`` so far.

    Returns:
        ``n`` expected improvements.
    """
    normal = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    holds = normal.cdf(-mean / std)
    gain = best - penalty
    return holds * gain.clamp_min(0.0) + (1.0 - holds) * (gain - 1.0).clamp_min(0.0)


class ADMMBO:
    """ADMMBO of Ariafar et al. 2019 on a box; see the module docstring.

    The defaults are those of the authors' program for the problem with a small feasible region
    (:class:`~botorch_bandits.problems.GardnerProblem`); for their problem in four dimensions, the
    program has ``objective_steps=(20, 2)`` and ``feasibility_steps=(20, 2)``. When the iterations
    have converged, the best feasible observed point is played; the paper's curves end there.

    Args:
        bounds: The box, ``2 x d``; the penalty is on lengths in its units.
        model: Builds a model from ``n x d`` points and ``n x 1`` values, such as
            ``BanditGP.with_kernel(...)``; called for the reward and for each constraint.
        num_constraints: ``m``.
        penalty: The first ``rho``.
        weight: ``M``.
        objective_steps: Queries of the objective's subproblem in the first and in later iterations.
        feasibility_steps: Queries of each constraint's subproblem, likewise.
        num_initial: The number of uniformly drawn initial points, at least 1.
        num_candidates: The number of uniform points among which each query is chosen.
        stops: If False, the iterations continue after they have converged.
        seed: Seeds all draws.

    Attributes:
        splitting: The variables.
        num_iterations: The number of completed iterations.
        stopped_after: The round after which the iterations had converged; None before.
        observations: What was observed.

    Raises:
        TypeError: If an argument has the wrong type or dtype.
        ValueError: If one is out of range.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits.models import BanditGP
        >>> from papers.constrained_study import play_constrained
        >>> from botorch_bandits.problems import GardnerProblem
        >>> problem = GardnerProblem(noise_std=0.1)
        >>> model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01)
        >>> play_constrained(ADMMBO(problem.bounds, model), problem, num_rounds=5).num_rounds
        5
    """

    def __init__(
        self,
        bounds: Tensor | list[list[float]],
        model: Callable[[Tensor, Tensor], Model],
        num_constraints: int = 1,
        *,
        penalty: float = 0.1,
        weight: float = 50.0,
        objective_steps: tuple[int, int] = (10, 5),
        feasibility_steps: tuple[int, int] = (50, 5),
        num_initial: int = 2,
        num_candidates: int = 2048,
        stops: bool = True,
        seed: int = 0,
    ) -> None:
        """See the class."""
        self._box = Box(bounds)
        self.model = model
        m = check_integer("num_constraints", num_constraints, minimum=1)
        self.objective_steps = _check_steps("objective_steps", objective_steps)
        self.feasibility_steps = _check_steps("feasibility_steps", feasibility_steps)
        self.num_initial = check_integer("num_initial", num_initial, minimum=1)
        self.num_candidates = check_integer("num_candidates", num_candidates, minimum=1)
        self.stops = stops
        self.seed = check_integer("seed", seed, minimum=0)
        corner = self._box.bounds[1]
        self.splitting = Splitting(
            x=corner,
            z=corner.expand(m, -1).clone(),
            y=torch.zeros(m, self._box.dim, dtype=corner.dtype),
            penalty=check_positive("penalty", penalty),
            weight=check_positive("weight", weight),
        )
        self.num_iterations = 0
        self.stopped_after: int | None = None
        self.observations = Observations(self._box.dim, m)
        self._previous_z = self.splitting.z
        self._subproblem = 0  # 0 is the objective's subproblem, and j that of constraint j
        self._left = self.objective_steps[0]

    def choose(self, round_number: int) -> Tensor:
        """Return the point to play; see :class:`ConstrainedBaseline`.

        Args:
            round_number: From 1; each round draws new candidates.
        """
        data = self.observations
        stream = generator(self.seed, round_number, "candidates")
        if len(data) < self.num_initial:
            return self._box.sample(1, stream)[0]
        if self.stopped_after is not None:
            return data.points[data.best_row]
        candidates = self._box.sample(self.num_candidates, stream)
        return candidates[self.expected_improvement(candidates).argmax()]

    def expected_improvement(self, points: Tensor) -> Tensor:
        """Return the expected improvement in the current subproblem, from all observations.

        Args:
            points: ``n x d``.

        Returns:
            ``n`` values.
        """
        data, j = self.observations, self._subproblem - 1
        observed = data.rewards if j < 0 else data.constraints[:, j]
        with torch.no_grad():
            posterior = self.model(data.points, observed.unsqueeze(-1)).posterior(
                points.unsqueeze(-2)
            )
            mean = posterior.mean.reshape(-1)
            std = posterior.variance.clamp_min(1e-20).sqrt().reshape(-1)
        best = self._costs().min()
        if j < 0:
            return objective_improvement(mean, std, self.splitting.objective_penalty(points), best)
        penalty = self.splitting.feasibility_penalty(points, j)
        return feasibility_improvement(mean, std, penalty, best)

    def observe(self, x: Tensor, reward: float, constraints: Tensor | list[float]) -> None:
        """Take an outcome, and move to the next subproblem after the last query of one.

        Args:
            x: The point, ``d`` numbers.
            reward: The observed reward.
            constraints: ``num_constraints`` observed constraint values.
        """
        is_initial = len(self.observations) < self.num_initial
        self.observations.append(x, reward, constraints)
        if is_initial or self.stopped_after is not None:
            return
        self._left -= 1
        if self._left == 0:
            self._close_subproblem()

    def _costs(self) -> Tensor:
        """Return the cost of each observed point in the current subproblem."""
        data, j = self.observations, self._subproblem - 1
        if j < 0:
            return -data.rewards + self.splitting.objective_penalty(data.points)
        violated = (data.constraints[:, j] > 0.0).to(data.points)
        return violated + self.splitting.feasibility_penalty(data.points, j)

    def _close_subproblem(self) -> None:
        solution = self.observations.points[self._costs().argmin()]
        if self._subproblem == 0:
            self._previous_z = self.splitting.z
            self.splitting = replace(self.splitting, x=solution)
        else:
            self.splitting = self.splitting.with_feasible_point(self._subproblem - 1, solution)
        self._subproblem += 1
        if self._subproblem > len(self.splitting.z):
            self._subproblem = 0
            self.num_iterations += 1
            if self.stops and self.splitting.has_converged(self._previous_z):
                self.stopped_after = len(self.observations)
            self.splitting = self.splitting.with_adapted_penalty(self._previous_z)
        is_first = self.num_iterations == 0
        steps = self.objective_steps if self._subproblem == 0 else self.feasibility_steps
        self._left = steps[0] if is_first else steps[1]


def _check_steps(name: str, steps: tuple[int, int]) -> tuple[int, int]:
    if len(steps) != 2:
        raise ValueError(
            f"{name} is {steps!r}; it must be two numbers, for the first and for later iterations."
        )
    return (
        check_integer(f"{name}[0]", steps[0], minimum=1),
        check_integer(f"{name}[1]", steps[1], minimum=1),
    )

"""Reward problems on arms and on boxes: noise, optimum and regret.

They are BoTorch test problems whose values are to be maximized. Their optimum is given or found by
a search, so that regret can be computed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from botorch.test_functions.base import (
    BaseTestProblem,
)
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_bandits.checks import (
    check_covariance,
    check_double,
    check_finite,
    check_nonnegative,
    check_vector,
)
from botorch_bandits.domains import Arms
from botorch_bandits.optim import maximize_locally, values_and_slopes


def frozen_double_copy(kernel: Kernel, device: torch.device) -> Kernel:
    """Return a private float64 copy of a kernel whose parameters need no gradient.

    A copy, because a problem's true function must not move when the caller
    goes on to fit the kernel that was passed in.

    Args:
        kernel: Any GPyTorch kernel with a single output and no batch shape.
        device: The device of the copy.

    Raises:
        TypeError: If ``kernel`` is not a GPyTorch kernel.
        ValueError: If the kernel is batched.
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"kernel must be a gpytorch.kernels.Kernel, got {type(kernel).__name__}; "
            "pass e.g. gpytorch.kernels.RBFKernel()."
        )
    if len(kernel.batch_shape) > 0:
        raise ValueError(
            f"kernel must not be batched, got batch shape {tuple(kernel.batch_shape)}; "
            "pass one kernel for one problem."
        )
    duplicate = copy.deepcopy(kernel).to(device=device, dtype=torch.float64)
    return duplicate.requires_grad_(False).eval()


def cross_covariance(kernel: Kernel, left: Tensor, right: Tensor) -> Tensor:
    """Return the dense matrix ``k(left_i, right_j)``.

    Args:
        kernel: A kernel from ``frozen_double_copy``.
        left: Points, ``n x d``.
        right: Points, ``m x d``.

    Returns:
        The covariances, ``n x m``.

    Raises:
        ValueError: If the kernel does not accept points with d columns, or gives
            something other than one finite number for a pair of points.
    """
    dim = left.shape[-1]
    try:
        matrix: Tensor = kernel(left, right).to_dense()
    except RuntimeError as error:
        raise ValueError(
            f"kernel ({type(kernel).__name__}) cannot be evaluated on points with {dim} "
            f"columns; check its ard_num_dims and active_dims. GPyTorch said: {error}"
        ) from error
    if matrix.shape != (left.shape[0], right.shape[0]):
        raise ValueError(
            f"kernel ({type(kernel).__name__}) gave a matrix of shape {tuple(matrix.shape)} "
            f"for {left.shape[0]} and {right.shape[0]} points; pass a kernel with one output "
            "(no multitask or gradient kernel)."
        )
    if not bool(torch.isfinite(matrix.detach()).all()):
        raise ValueError(
            f"kernel ({type(kernel).__name__}) gave NaN or infinite covariances; "
            "check its hyperparameters."
        )
    return matrix


def gram_matrix(kernel: Kernel, points: Tensor) -> Tensor:
    """Return the symmetric Gram matrix ``k(points_i, points_j)``, ``n x n``, without gradient."""
    with torch.no_grad():
        matrix = cross_covariance(kernel, points, points)
        return 0.5 * (matrix + matrix.mT)


def clamped_eigh(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues, clamped at 0, and eigenvectors of a Gram matrix.

    Smooth kernels give Gram matrices whose numerical rank is far below their
    size. Cholesky fails on those; an eigendecomposition does not.

    Args:
        gram: A symmetric matrix, ``n x n``.

    Returns:
        Eigenvalues ``(n,)``, ascending and >= 0, and eigenvectors as columns, ``n x n``.

    Raises:
        ValueError: If an eigenvalue is negative by more than rounding.
    """
    check_covariance("kernel", gram)
    eigenvalues, eigenvectors = torch.linalg.eigh(gram)
    return eigenvalues.clamp_min(0.0), eigenvectors


def prior_root(kernel: Kernel, choices: Tensor) -> Tensor:
    """Return the symmetric square root of a kernel's Gram matrix, ``num_arms x num_arms``.

    It does not depend on the signs that the eigenvectors got. See :func:`clamped_eigh`.

    Args:
        kernel: Any GPyTorch kernel with one output and no batch shape.
        choices: Arms, ``num_arms x d``.
    """
    gram = gram_matrix(frozen_double_copy(kernel, choices.device), choices)
    eigenvalues, eigenvectors = clamped_eigh(gram)
    return (eigenvectors * eigenvalues.sqrt()) @ eigenvectors.mT


class RewardProblem(BaseTestProblem):
    """A BoTorch test problem whose values are rewards, to be maximized.

    The reward orientation is built into ``_evaluate_true``, and ``negate`` stays
    False. Hence ``problem.evaluate_true(X)`` and ``problem(X, noise=False)`` agree;
    in BoTorch they have opposite signs when ``negate=True``.

    All inputs are float64.

    Args:
        noise_std: Standard deviation of the Gaussian observation noise, in units of
            the reward. None means no noise.
        options: Passed on to BoTorch.
    """

    _is_minimization_by_default = False
    num_objectives: int = 1
    bounds: Tensor

    def __init__(self, noise_std: float | None = None, **options: Any) -> None:
        """See the class."""
        if noise_std is not None:
            noise_std = check_nonnegative("noise_std", noise_std)
        super().__init__(noise_std=noise_std, **options)

    def evaluate_true(self, X: Tensor) -> Tensor:
        """Evaluate the reward without noise.

        Args:
            X: Points, ``batch_shape x d``, float64.

        Returns:
            Rewards, ``batch_shape``.

        Raises:
            TypeError: If ``X`` is not a float64 tensor.
            ValueError: If ``X`` is not finite, does not have d columns, or lies outside the
                problem's domain.
        """
        self._check_input(X)
        return super().evaluate_true(X)

    def _check_input(self, X: Tensor) -> None:
        """Check dtype, entries and the last dimension of points to evaluate."""
        check_finite("X", check_double("X", X))
        if X.dim() < 1 or X.shape[-1] != self.dim:
            raise ValueError(
                f"X must have shape batch_shape x {self.dim}, got {tuple(X.shape)}; "
                f"put the {self.dim} coordinates of a point in the last dimension."
            )


class ArmsProblem(RewardProblem):
    """A reward function known on a finite set of arms.

    A point is evaluated by looking it up among the arms, entry by entry and
    without any tolerance. A point that is not an arm is refused.

    ``bounds`` is the smallest box that holds all arms.

    See :class:`RewardProblem` for the other arguments.

    Args:
        choices: The arms, ``num_arms x d``, float64, no row twice.
        values: The reward of each arm, ``(num_arms,)``, float64.
        noise_std: Standard deviation of the Gaussian observation noise, in units of
            the reward. None means no noise.
        rkhs_norm: The RKHS norm of the function, if it is known.

    Attributes:
        choices: The arms (buffer, ``num_arms x d``).
        values: Their rewards (buffer, ``(num_arms,)``).
        optimizers: All arms of maximal reward (buffer, ``num_best x d``).
        rkhs_norm: The RKHS norm, or None if it is unknown.

    Raises:
        TypeError: If ``choices`` or ``values`` is not float64, or ``noise_std`` not a number.
        ValueError: If a shape or an entry is wrong, or ``choices`` has two equal rows.

    Example:
        >>> import torch
        >>> choices = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)
        >>> values = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)
        >>> problem = ArmsProblem(choices, values)
        >>> problem.optimal_value, problem.optimal_arm
        (3.0, 1)
        >>> problem(choices[1:]).tolist()
        [3.0, 2.0]
    """

    choices: Tensor
    values: Tensor
    optimizers: Tensor

    def __init__(
        self,
        choices: Tensor,
        values: Tensor,
        noise_std: float | None = None,
        *,
        rkhs_norm: float | None = None,
    ) -> None:
        """Check the arms and store a copy of them."""
        self._arms = Arms(choices)
        choices = self._arms.choices
        values = check_vector("values", values, length=self._arms.num_arms).detach().clone()
        self.dim = choices.shape[1]
        self.continuous_inds = list(range(self.dim))
        self._bounds = list(
            zip(choices.amin(dim=0).tolist(), choices.amax(dim=0).tolist(), strict=True)
        )
        super().__init__(noise_std=noise_std)
        self.rkhs_norm = rkhs_norm
        self.register_buffer("choices", choices)
        self.register_buffer("values", values)
        self.register_buffer("optimizers", choices[values == values.max()])
        self.to(choices.device)

    @property
    def num_arms(self) -> int:
        """The number of arms."""
        return self.choices.shape[0]

    @property
    def optimal_value(self) -> float:
        """The largest reward of any arm, exact."""
        return float(self.values.max().item())

    @property
    def optimal_arm(self) -> int:
        """The row of the first arm of maximal reward."""
        return int((self.values == self.values.max()).nonzero()[0].item())

    def arm_indices(self, X: Tensor) -> Tensor:
        """Find the row of ``choices`` that each point equals.

        Args:
            X: Arms, ``batch_shape x d``, float64.

        Returns:
            Row indices (int64), ``batch_shape``.

        Raises:
            ValueError: If a point is not an arm.
        """
        self._check_input(X)
        rows = self._arms.index_of(X.reshape(-1, self.dim))
        return rows.reshape(X.shape[:-1]).to(self.values.device)

    def evaluate_true(self, X: Tensor) -> Tensor:
        """Look up rewards without noise.

        Args:
            X: Arms, ``batch_shape x d``, float64.

        Returns:
            Rewards, ``batch_shape``.

        Raises:
            TypeError: If ``X`` is not a float64 tensor.
            ValueError: If a row of ``X`` is not an arm.
        """
        return self._evaluate_true(X)

    def _evaluate_true(self, X: Tensor) -> Tensor:
        # take() copies even for a single point, where indexing would return a view that
        # BoTorch then adds the noise to in place.
        return self.values.take(self.arm_indices(X))


_NUM_SOBOL_POINTS = 4096
_NUM_STARTS = 16
_CHUNK_SIZE = 1024


def maximize_on_box(
    function: Callable[[Tensor], Tensor],
    bounds: Tensor,
    seed: int,
    extra_points: Tensor | None = None,
) -> tuple[Tensor, float]:
    """Maximize a differentiable function on a box from many starts.

    The function is evaluated on a dense Sobol set. The local search of acquisition functions then
    climbs from the best points that are apart from each other.

    Args:
        function: Maps points ``n x d`` to values ``(n,)``.
        bounds: The box, ``2 x d``.
        seed: Seed of the scrambled Sobol set; the global random state is not used.
        extra_points: Further candidates, ``m x d``, e.g. known centers of peaks.

    Returns:
        The best point found, ``(d,)``, and its value.

    Raises:
        ValueError: If a value is not finite.
    """
    lower, width = bounds[0], bounds[1] - bounds[0]
    engine = SobolEngine(bounds.shape[1], scramble=True, seed=seed)
    unit = engine.draw(_NUM_SOBOL_POINTS, dtype=torch.float64).to(bounds.device)
    if extra_points is not None:
        unit = torch.cat([unit, (extra_points - lower) / width])

    def from_unit(unit_points: Tensor) -> Tensor:
        # Rounding can push a point past the upper corner by one unit in the last place.
        return (lower + width * unit_points).clamp(min=bounds[0], max=bounds[1])

    with torch.no_grad():
        values = torch.cat([function(from_unit(part)) for part in torch.split(unit, _CHUNK_SIZE)])
    starts = from_unit(unit[_separated_best(unit, values)])
    X, low, high = (each.expand_as(starts).cpu().numpy() for each in (starts, *bounds))
    evaluate = values_and_slopes(lambda X: function(X.squeeze(-2)), bounds.device)
    found = maximize_locally(evaluate, X, low, high, has_cheap_gradients=True)
    if found is None:
        raise ValueError("the function is not finite on the box; check the kernel.")
    points, largest = (torch.from_numpy(each).to(bounds) for each in found)
    best = int(largest.argmax())
    return points[best], float(function(points[best].unsqueeze(0)))


def _separated_best(unit: Tensor, values: Tensor) -> list[int]:
    """Pick the best points of the unit cube, skipping those close to a better one.

    The plain best points would often all sit on the same peak.
    """
    radius = 0.25 * _NUM_STARTS ** (-1.0 / unit.shape[1])
    is_open = torch.ones_like(values, dtype=torch.bool)
    chosen: list[int] = []
    while len(chosen) < _NUM_STARTS and bool(is_open.any()):
        best = int(values.masked_fill(~is_open, -torch.inf).argmax().item())
        chosen.append(best)
        is_open &= (unit - unit[best]).norm(dim=-1) > radius
    return chosen

"""Reward functions: BoTorch's test functions, draws of a Gaussian process, and sums of kernels.

Each of them states its domain, its noise and its optimum, so that regret can be computed. Sums of
kernels also state their norm in the reproducing kernel Hilbert space, which widths need.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from botorch.test_functions.synthetic import Branin
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.checks import check_integer, check_one_of, check_positive
from botorch_bandits.domains import Arms, Box
from botorch_bandits.problems.base import (
    ArmsProblem,
    RewardProblem,
    cross_covariance,
    frozen_double_copy,
    gram_matrix,
    maximize_on_box,
    prior_root,
)


class BraninReward(RewardProblem, Branin):
    """The Branin function with its sign changed, on ``[-5, 10] x [0, 15]``.

    The largest reward is ``-5 / (4 pi)``, about -0.397887, at three points. It is stored
    in full precision, so that no point has negative regret beyond rounding.

    Args:
        noise_std: Standard deviation of the Gaussian observation noise, in units of
            the reward. None means no noise.

    See :class:`RewardProblem` for the other arguments.

    Raises:
        TypeError: If ``noise_std`` is not one number.
        ValueError: If it is negative or not finite.

    Example:
        >>> problem = BraninReward()
        >>> problem.is_minimization_problem
        False
        >>> round(problem.optimal_value, 6)
        -0.397887
    """

    _optimal_value = -5.0 / (4.0 * math.pi)
    _optimizers: ClassVar = [(-math.pi, 12.275), (math.pi, 2.275), (3.0 * math.pi, 2.475)]

    def __init__(self, noise_std: float | None = None) -> None:
        """Build the problem on its usual box."""
        super().__init__(noise_std=noise_std)

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return -super()._evaluate_true(X)


def gp_draw_on_arms(
    kernel: Kernel,
    choices: Tensor,
    seed: int = 0,
    noise_std: float | None = None,
    rescale: Literal["unit_interval"] | None = None,
) -> ArmsProblem:
    """Draw rewards jointly from GP(0, k) on a finite set of arms.

    The draw is exact: the symmetric square root of the Gram matrix times a standard
    normal vector. Draws from the prior are the test functions of Srinivas et al.
    (2010), whose Theorem 1 bounds the regret of GP-UCB on them.

    Args:
        kernel: Any GPyTorch kernel with one output and no batch shape. It is copied
            to float64.
        choices: The arms, ``num_arms x d``, float64, no row twice. Time grows with the
            cube of ``num_arms``.
        seed: Seed of the draw. The global random state is not used.
        noise_std: Standard deviation of the Gaussian observation noise, in units of
            the reward after any rescaling. None means no noise.
        rescale: With "unit_interval" the rewards are mapped affinely so that the
            smallest is 0 and the largest is 1.

    Returns:
        The problem on the arms, with an exact optimum.

    Raises:
        TypeError: If an argument has the wrong type, or a tensor is not float64.
        ValueError: If an argument is out of its range, the kernel is not positive
            semi-definite, or a constant draw is to be rescaled.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> choices = torch.linspace(0, 1, 1000, dtype=torch.float64).unsqueeze(-1)
        >>> problem = gp_draw_on_arms(RBFKernel(), choices, rescale="unit_interval")
        >>> problem.optimal_value
        1.0
    """
    check_one_of("rescale", rescale, (None, "unit_interval"))
    choices = Arms(choices).choices
    generator = torch.Generator().manual_seed(check_integer("seed", seed, minimum=0))
    normal = torch.randn(len(choices), generator=generator, dtype=torch.float64)
    values = prior_root(kernel, choices) @ normal.to(choices.device)
    if rescale == "unit_interval":
        smallest, largest = values.min(), values.max()
        if not bool(largest > smallest):
            raise ValueError(
                f"rescale = 'unit_interval' needs rewards that differ, but all "
                f"{values.numel()} arms have reward {largest.item()}; pass rescale=None."
            )
        values = (values - smallest) / (largest - smallest)
    return ArmsProblem(choices, values, noise_std)


# Below this share of its terms, the sum alpha' K alpha is all rounding error.
_CANCELLATION_LIMIT = 1e-12


class RKHSFunction(RewardProblem):
    r"""A random function of known RKHS norm on a box.

    The function is

    .. math:: f(x) = \sum_i \alpha_i k(c_i, x)

    with centers :math:`c_i` uniform in the box and weights :math:`\alpha` standard
    normal, then rescaled so that the norm :math:`\sqrt{\alpha^\top K \alpha}`, with
    :math:`K_{ij} = k(c_i, c_j)`, equals ``rkhs_norm`` up to rounding. Regret bounds for
    GP-UCB and for IGP-UCB and GP-TS assume such a function with a known bound on its
    norm (Srinivas et al. 2010, Theorem 3; Chowdhury and Gopalan 2017).

    The norm is that of the kernel given, its scale included. It is not computed from
    function values, since :math:`f^\top K^{-1} f` is lost in rounding for smooth kernels.

    References:
        N. Srinivas, A. Krause, S. Kakade and M. Seeger. Gaussian process optimization
        in the bandit setting: no regret and experimental design. ICML 2010.

        S. R. Chowdhury and A. Gopalan. On kernelized multi-armed bandits. ICML 2017.

    Args:
        kernel: Any GPyTorch kernel with one output and no batch shape. A float64 copy
            is kept; a float32 hyperparameter keeps its float32 value in the copy.
        bounds: The box, ``2 x d``, float64.
        num_centers: The number of centers.
        rkhs_norm: The norm of the function.
        seed: Seed of centers and weights. The global random state is not used.
        noise_std: Standard deviation of the Gaussian observation noise, in units of
            the reward. None means no noise.

    Attributes:
        kernel: The float64 copy of the kernel.
        centers: The centers (buffer, ``num_centers x d``).
        weights: The weights (buffer, ``(num_centers,)``).
        rkhs_norm: The norm.
        optimal_value: The largest reward found on the box by many-start gradient
            ascent. It is numerical, hence a lower bound on the true maximum.
        optimizers: The point at which it was found (buffer, ``1 x d``).

    See :class:`RewardProblem` for the other arguments.

    Raises:
        TypeError: If an argument has the wrong type, or a tensor is not float64.
        ValueError: If an argument is out of its range.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> problem = RKHSFunction(RBFKernel(), bounds, rkhs_norm=2.0, seed=1)
        >>> problem.rkhs_norm
        2.0
        >>> abs(problem(problem.optimizers).item() - problem.optimal_value) < 1e-12
        True
    """

    # The optimum may lie on the boundary, where the gradient need not vanish.
    _check_grad_at_opt = False
    optimal_value: float
    optimizers: Tensor
    centers: Tensor
    weights: Tensor

    def __init__(
        self,
        kernel: Kernel,
        bounds: Tensor,
        num_centers: int = 30,
        rkhs_norm: float = 1.0,
        seed: int = 0,
        noise_std: float | None = None,
    ) -> None:
        """Draw centers and weights and find the optimum."""
        bounds = Box(bounds).bounds
        self.dim = bounds.shape[1]
        self.continuous_inds = list(range(self.dim))
        self._bounds = [(lower, upper) for lower, upper in bounds.T.tolist()]
        super().__init__(noise_std=noise_std)
        self.to(bounds.device)
        num_centers = check_integer("num_centers", num_centers, minimum=1)
        self.rkhs_norm = check_positive("rkhs_norm", rkhs_norm)
        seed = check_integer("seed", seed, minimum=0)
        generator = torch.Generator().manual_seed(seed)
        unit = torch.rand(num_centers, self.dim, generator=generator, dtype=torch.float64)
        lower, upper = self.bounds
        centers = (lower + (upper - lower) * unit.to(lower.device)).clamp(min=lower, max=upper)
        self.kernel = frozen_double_copy(kernel, self.bounds.device)
        weights = _draw_weights(gram_matrix(self.kernel, centers), self.rkhs_norm, generator)
        self.register_buffer("centers", centers)
        self.register_buffer("weights", weights)
        point, self.optimal_value = maximize_on_box(
            self._evaluate_true, self.bounds, seed, extra_points=centers
        )
        self.register_buffer("optimizers", point.unsqueeze(0))

    def _evaluate_true(self, X: Tensor) -> Tensor:
        points = X.reshape(-1, self.dim)
        values = cross_covariance(self.kernel, points, self.centers) @ self.weights
        return values.reshape(X.shape[:-1])

    @classmethod
    def on_arms(
        cls,
        kernel: Kernel,
        choices: Tensor,
        num_centers: int = 30,
        rkhs_norm: float = 1.0,
        seed: int = 0,
        noise_std: float | None = None,
    ) -> ArmsProblem:
        """Draw a function of known RKHS norm on a finite set of arms.

        This is the same as the class itself, but the centers are drawn uniformly, with replacement,
        among the arms, and the optimum is exact.

        Args:
            kernel: As for the class.
            choices: The arms, ``num_arms x d``, float64, no row twice.
            num_centers: The number of centers.
            rkhs_norm: The norm of the function.
            seed: Seed of centers and weights.
            noise_std: As for the class.

        Returns:
            The problem on the arms, with attribute ``rkhs_norm``.

        Raises:
            TypeError: If an argument has the wrong type, or a tensor is not float64.
            ValueError: If an argument is out of its range.

        Example:
            >>> import torch
            >>> from gpytorch.kernels import MaternKernel
            >>> choices = torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)
            >>> problem = RKHSFunction.on_arms(MaternKernel(), choices, rkhs_norm=3.0)
            >>> problem.num_arms, problem.rkhs_norm
            (5, 3.0)
        """
        choices = Arms(choices).choices
        num_centers = check_integer("num_centers", num_centers, minimum=1)
        rkhs_norm = check_positive("rkhs_norm", rkhs_norm)
        generator = torch.Generator().manual_seed(check_integer("seed", seed, minimum=0))
        rows = torch.randint(choices.shape[0], (num_centers,), generator=generator)
        centers = choices[rows.to(choices.device)]
        kernel = frozen_double_copy(kernel, choices.device)
        weights = _draw_weights(gram_matrix(kernel, centers), rkhs_norm, generator)
        with torch.no_grad():
            values = cross_covariance(kernel, choices, centers) @ weights
        return ArmsProblem(choices, values, noise_std, rkhs_norm=rkhs_norm)


def _draw_weights(gram: Tensor, rkhs_norm: float, generator: torch.Generator) -> Tensor:
    """Draw standard normal weights ``(n,)`` and rescale them to the norm asked for."""
    normal = torch.randn(gram.shape[0], generator=generator, dtype=torch.float64)
    weights = normal.to(gram.device)
    squared_norm = (weights @ gram @ weights).item()
    size_of_terms = (weights.abs() @ gram.abs() @ weights.abs()).item()
    if not squared_norm > _CANCELLATION_LIMIT * size_of_terms:
        raise ValueError(
            f"kernel gives the drawn function a squared norm of {squared_norm}, so it "
            f"cannot be rescaled to rkhs_norm = {rkhs_norm}; pass a kernel that is not "
            "zero on the domain, or another seed."
        )
    return weights * (rkhs_norm / math.sqrt(squared_norm))

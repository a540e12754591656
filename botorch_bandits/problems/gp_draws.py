"""Reward functions drawn from a Gaussian process prior."""

from __future__ import annotations

from typing import Literal

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.sampling.pathwise import GeneralizedLinearPath, gen_kernel_features
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.checks import check_integer, check_one_of, check_positive
from botorch_bandits.domains import Arms
from botorch_bandits.problems.arms import ArmsProblem
from botorch_bandits.problems.box_problem import BoxProblem
from botorch_bandits.problems.kernel_matrices import clamped_eigh, frozen_double_copy, gram_matrix


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
    eigenvalues, eigenvectors, projection = _draw_in_eigenbasis(kernel, choices, seed)
    values = eigenvectors @ (eigenvalues.sqrt() * projection)
    if rescale == "unit_interval":
        smallest, largest = values.min(), values.max()
        if not bool(largest > smallest):
            raise ValueError(
                f"rescale = 'unit_interval' needs rewards that differ, but all "
                f"{values.numel()} arms have reward {largest.item()}; pass rescale=None."
            )
        values = (values - smallest) / (largest - smallest)
    return ArmsProblem(choices, values, noise_std)


def posterior_mean_of_gp_draw(
    kernel: Kernel,
    choices: Tensor,
    ridge: float,
    seed: int = 0,
    noise_std: float | None = None,
) -> ArmsProblem:
    r"""Smooth a draw from GP(0, k) into a function of known RKHS norm.

    A draw from the prior is almost surely not in the RKHS of k. The posterior mean
    given the draw h on all arms is, as in the experiments of Chowdhury and Gopalan
    (2017):

    .. math:: f = K \alpha, \qquad \alpha = (K + \text{ridge} \cdot I)^{-1} h

    with squared RKHS norm :math:`\alpha^\top K \alpha`. The draw h is that of
    ``gp_draw_on_arms`` with the same kernel, arms and seed.

    Args:
        kernel: Any GPyTorch kernel with one output and no batch shape. It is copied
            to float64.
        choices: The arms, ``num_arms x d``, float64, no row twice.
        ridge: The ridge, i.e. the noise variance of the posterior, in squared units of
            the reward. Positive.
        seed: Seed of the draw.
        noise_std: Standard deviation of the Gaussian observation noise, in units of
            the reward. None means no noise.

    Returns:
        The problem on the arms, with attribute ``rkhs_norm``.

    Raises:
        TypeError: If an argument has the wrong type, or a tensor is not float64.
        ValueError: If an argument is out of its range, or the kernel is not
            positive semi-definite.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> choices = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> problem = posterior_mean_of_gp_draw(RBFKernel(), choices, ridge=0.01)
        >>> problem.rkhs_norm > 0
        True
    """
    ridge = check_positive("ridge", ridge)
    eigenvalues, eigenvectors, projection = _draw_in_eigenbasis(kernel, choices, seed)
    coefficients = eigenvalues.sqrt() * projection / (eigenvalues + ridge)
    values = eigenvectors @ (eigenvalues * coefficients)
    rkhs_norm = (eigenvalues * coefficients.square()).sum().sqrt().item()
    return ArmsProblem(choices, values, noise_std, rkhs_norm=rkhs_norm)


def _draw_in_eigenbasis(
    kernel: Kernel, choices: Tensor, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return eigenvalues, eigenvectors and a projected standard normal vector.

    Projecting the normal vector on the eigenvectors gives the symmetric square root of
    the Gram matrix. Unlike the eigenvectors themselves, it does not depend on the signs
    that the linear algebra library chose.
    """
    choices = Arms(choices).choices
    generator = torch.Generator().manual_seed(check_integer("seed", seed, minimum=0))
    gram = gram_matrix(frozen_double_copy(kernel, choices.device), choices)
    eigenvalues, eigenvectors = clamped_eigh(gram)
    normal = torch.randn(choices.shape[0], generator=generator, dtype=torch.float64)
    return eigenvalues, eigenvectors, eigenvectors.mT @ normal.to(choices.device)


class GPDraw(BoxProblem):
    """A function drawn from GP(0, k) on a box, through BoTorch's pathwise sampling.

    The path is a weighted sum of random Fourier features. Over seeds its covariance is
    that of the kernel; a single path has only ``num_features`` degrees of freedom. For an
    exact draw, or a kernel without features, use ``gp_draw_on_arms``.

    Args:
        kernel: A kernel that BoTorch has features for: RBF or Matern, alone or in a
            ScaleKernel. It is copied to float64.
        bounds: The box, ``2 x d``, float64.
        seed: Seed of the path. The global random state is left as it was.
        noise_std: Standard deviation of the Gaussian observation noise, in units of
            the reward. None means no noise.
        num_features: The number of features, even.

    Attributes:
        path: The sample path.
        optimal_value: The largest reward found on the box by many-start gradient
            ascent. It is numerical, hence a lower bound on the true maximum.
        optimizers: The point at which it was found (buffer, ``1 x d``).

    Raises:
        TypeError: If an argument has the wrong type, or a tensor is not float64.
        ValueError: If an argument is out of its range.
        UnsupportedError: If BoTorch has no features for the kernel.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import MaternKernel
        >>> bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        >>> problem = GPDraw(MaternKernel(nu=2.5), bounds, seed=3, num_features=256)
        >>> problem(bounds, noise=False).shape
        torch.Size([2])
    """

    def __init__(
        self,
        kernel: Kernel,
        bounds: Tensor,
        seed: int = 0,
        noise_std: float | None = None,
        num_features: int = 2048,
    ) -> None:
        """Draw the path and find its optimum."""
        super().__init__(bounds, noise_std)
        seed = check_integer("seed", seed, minimum=0)
        num_features = check_integer("num_features", num_features, minimum=2)
        if num_features % 2:
            raise ValueError(
                f"num_features must be even, as features come in pairs of sine and cosine, "
                f"got {num_features}; pass {num_features + 1}."
            )
        kernel = frozen_double_copy(kernel, self.bounds.device)
        # Also refuses kernels that do not fit the dimension or have several outputs.
        gram_matrix(kernel, self.bounds)
        # BoTorch takes the features from the global CPU generator. torch.manual_seed
        # would also reseed the accelerators, which are not forked here.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            try:
                features = gen_kernel_features(
                    kernel, num_inputs=self.dim, num_outputs=num_features
                )
            except (NotImplementedError, UnsupportedError) as error:
                raise UnsupportedError(
                    f"kernel ({type(kernel).__name__}) has no random features in BoTorch; "
                    "use an RBF or Matern kernel (a ScaleKernel around it is fine), or draw "
                    "on a finite set of arms with gp_draw_on_arms, which takes any kernel."
                ) from error
            # From the same stream as the features, so that the two are independent.
            weight = torch.randn(num_features, dtype=torch.float64)
        self.path = GeneralizedLinearPath(
            feature_map=features, weight=weight.to(self.bounds.device)
        )
        self._find_optimum(seed)

    def _evaluate_rows(self, points: Tensor) -> Tensor:
        rewards: Tensor = self.path(points)
        return rewards

r"""A family of Gaussian-process priors with continuous hyperparameters, evaluated in batches.

A member is :math:`\theta = (\ln \ell_1, \dots, \ln s, \ln v)`: lengthscales, output scale and noise
variance of a stationary kernel. With :math:`L L^\top = s K_\ell(X, X) + v I` and :math:`z = L^{-1}
(y - m)`, the successive outcomes have the densities

.. math::
   \ln p_\theta(y_i | y_1, \dots, y_{i-1})
   = -\tfrac12 z_i^2 - \ln L_{ii} - \tfrac12 \ln 2\pi,

whose sum is the log marginal likelihood. Everything is differentiable with respect to
hyperparameters and points.

Source: Rasmussen and Williams 2006, algorithm 2.1 and equation 5.8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_integer,
    check_number,
    check_one_of,
    check_positive,
    store_checked,
)
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.models.bandit_gp import BanditGP, BanditGPRecipe
from botorch_bandits.models.prior_lists import SMOOTHNESS
from botorch_bandits.models.shared_rows import correlation


@dataclass(frozen=True)
class PriorFamily:
    """The priors of one kernel with all hyperparameters in a box.

    Attributes:
        lengthscales: The smallest and the largest lengthscale, in units of the raw inputs.
        scales: The smallest and the largest output scale, a variance in squared outcome units.
        noises: The smallest and the largest noise variance, in squared outcome units.
        smoothness: ``nu`` of a Matern kernel (0.5, 1.5 or 2.5), or infinity for the squared
            exponential one.
        num_lengthscales: 1 (one for all columns of the inputs), or the number of columns.
        prior_mean: The prior mean, the same for all members and points.

    Raises:
        TypeError: If a numeric argument is not a number.
        ValueError: If a range does not consist of positive numbers, or the smoothness is unknown.

    Example:
        >>> family = PriorFamily((0.05, 2.0), scales=(0.1, 10.0), noises=(0.001, 1.0))
        >>> X = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)
        >>> theta = family.hyperparameters(lengthscales=(0.5,), scale=1.0, noise=0.01)
        >>> family.log_likelihoods(theta.unsqueeze(0), X, X.squeeze(-1)).shape
        torch.Size([1])
    """

    lengthscales: tuple[float, float]
    scales: tuple[float, float]
    noises: tuple[float, float]
    smoothness: float = 2.5
    num_lengthscales: int = 1
    prior_mean: float = 0.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("lengthscales", "scales", "noises"):
            given: Any = getattr(self, name)
            if not isinstance(given, tuple | list) or len(given) != 2:
                raise ValueError(
                    f"{name} is {given!r}; give a pair of the smallest and the largest value."
                )
            least, largest = (check_positive(name, each) for each in given)
            if least > largest:
                raise ValueError(f"{name} is {given!r}; the first must not exceed the second.")
            store_checked(self, **{name: (least, largest)})
        check_one_of("smoothness", self.smoothness, SMOOTHNESS)
        store_checked(
            self,
            smoothness=float(self.smoothness),
            num_lengthscales=check_integer("num_lengthscales", self.num_lengthscales, minimum=1),
            prior_mean=check_number("prior_mean", self.prior_mean),
        )

    @property
    def size(self) -> int:
        """The number of hyperparameters, ``k``: lengthscales, scale and noise."""
        return self.num_lengthscales + 2

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hyperparameters, in order."""
        if self.num_lengthscales == 1:
            return ("lengthscale", "scale", "noise")
        each = (f"lengthscale_{i + 1}" for i in range(self.num_lengthscales))
        return (*each, "scale", "noise")

    @property
    def box(self) -> Tensor:
        """``2 x k``; the smallest and the largest logarithm of each hyperparameter."""
        ranges = [*[self.lengthscales] * self.num_lengthscales, self.scales, self.noises]
        return torch.tensor(ranges, dtype=DTYPE).log().mT

    def hyperparameters(
        self, lengthscales: tuple[float, ...], scale: float, noise: float
    ) -> Tensor:
        """Return the logarithms of hyperparameters, ``k``, be they in the box or not.

        Args:
            lengthscales: One value for each lengthscale of the family.
            scale: The output scale.
            noise: The noise variance.

        Raises:
            ValueError: If the number of lengthscales is wrong, or a number is not positive.
        """
        if len(lengthscales) != self.num_lengthscales:
            raise ValueError(
                f"lengthscales has {len(lengthscales)} entries; this family has "
                f"{self.num_lengthscales}."
            )
        named = [("lengthscales", each) for each in lengthscales]
        named += [("scale", scale), ("noise", noise)]
        return torch.tensor([check_positive(*each) for each in named], dtype=DTYPE).log()

    def recipe(self, theta: Tensor) -> BanditGPRecipe:
        """Return the prior of one member as the recipe of a model.

        Args:
            theta: ``k`` logarithms.
        """
        *lengthscales, scale, noise = theta.detach().exp().tolist()
        kernel: Kernel = (
            RBFKernel() if self.smoothness == math.inf else MaternKernel(nu=self.smoothness)
        )
        if len(lengthscales) > 1:
            kernel = type(kernel)(
                ard_num_dims=len(lengthscales),
                **({} if self.smoothness == math.inf else {"nu": self.smoothness}),
            )
        scaled = ScaleKernel(kernel).to(DTYPE)
        scaled.base_kernel.lengthscale = torch.tensor([lengthscales], dtype=DTYPE)
        scaled.outputscale = torch.tensor(scale, dtype=DTYPE)
        return BanditGP.with_kernel(scaled, noise=noise, prior_mean=self.prior_mean)

    def covariances(self, theta: Tensor, X: Tensor, Z: Tensor) -> Tensor:
        """Return the covariances of the function, ``P x ... x r x n``.

        Args:
            theta: ``P x k`` logarithms.
            X: ``... x r x d`` points.
            Z: ``... x n x d`` points.
        """
        inverse = torch.exp(-2.0 * theta[:, : self.num_lengthscales])  # P x 1 or P x d
        gaps = (X.unsqueeze(-2) - Z.unsqueeze(-3)).square()  # ... x r x n x d
        if self.num_lengthscales == 1:
            gaps = gaps.sum(-1, keepdim=True)
        squared = (gaps @ inverse.mT).movedim(-1, 0)
        scale = theta[:, -2].exp().reshape(-1, *[1] * (squared.dim() - 1))
        return scale * correlation(self.smoothness, squared)

    def factors(self, theta: Tensor, X: Tensor) -> Tensor:
        """Return the Cholesky factors of the outcomes' covariances, ``P x n x n``.

        Args:
            theta: ``P x k`` logarithms.
            X: ``n x d`` inputs.

        Raises:
            ValueError: If one cannot be factorized.
        """
        noise = theta[:, -1].exp()[:, None, None]
        matrix = self.covariances(theta, X, X) + noise * torch.eye(len(X)).to(X)
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if bool(failed.any()):
            worst = theta[int(failed.to(torch.int8).argmax())].detach().exp().tolist()
            raise ValueError(
                f"the covariance of the outcomes cannot be factorized with "
                f"{dict(zip(self.names, worst, strict=True))}. Raise the least noise variance "
                f"(noises is {self.noises}) or lower the largest scale."
            )
        return factor

    def log_densities(self, theta: Tensor, X: Tensor, y: Tensor) -> Tensor:
        """Return the log density of each outcome given those before it, ``P x n``.

        Args:
            theta: ``P x k`` logarithms.
            X: ``n x d`` inputs, in the order in which their outcomes arrived.
            y: ``n`` outcomes.
        """
        factor = self.factors(theta, X)
        residuals = (y - self.prior_mean).expand(len(theta), -1).unsqueeze(-1)
        z = torch.linalg.solve_triangular(factor, residuals, upper=False).squeeze(-1)
        return (
            -0.5 * (z.square() + math.log(2.0 * math.pi)) - factor.diagonal(dim1=-2, dim2=-1).log()
        )

    def log_likelihoods(self, theta: Tensor, X: Tensor, y: Tensor, num_skipped: int = 0) -> Tensor:
        """Return the log marginal likelihoods, ``P``, given the first outcomes.

        Args:
            theta: ``P x k`` logarithms.
            X: ``n x d`` inputs, in the order in which their outcomes arrived.
            y: ``n`` outcomes.
            num_skipped: The number of first outcomes to condition on.
        """
        return self.log_densities(theta, X, y)[:, num_skipped:].sum(-1)

    def posterior(
        self,
        theta: Tensor,
        X: Tensor,
        y: Tensor,
        points: Tensor,
        pending: Tensor | None = None,
        factor: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return posterior means and deviations of the function, ``P x ... x q`` each.

        For each of the ``q`` points, the points before it count as pending.

        Args:
            theta: ``P x k`` logarithms.
            X: ``n x d`` inputs.
            y: ``n`` outcomes.
            points: ``... x q x d``.
            pending: ``p x d`` points without outcomes. They shrink deviations but do not change
                means.
            factor: The result of :meth:`factors` for ``X`` followed by the pending points, if
                known.
        """
        inputs = X if pending is None else torch.cat([X, pending])
        factor = self.factors(theta, inputs) if factor is None else factor
        num_points, shape = points.shape[-2], points.shape[:-2]
        flat = points.reshape(-1, points.shape[-1])
        cross = self.covariances(theta, inputs, flat)  # P x N x m
        solved = torch.linalg.solve_triangular(factor, cross, upper=False)
        n = len(X)
        residuals = (y - self.prior_mean).expand(len(theta), -1).unsqueeze(-1)
        z = torch.linalg.solve_triangular(factor[:, :n, :n], residuals, upper=False)
        mean = self.prior_mean + (solved[:, :n].mT @ z).squeeze(-1)
        scale, noise = theta[:, -2].exp(), theta[:, -1].exp()
        if num_points == 1:
            variance = scale.unsqueeze(-1) - solved.square().sum(-2)
        else:
            solved = solved.mT.reshape(len(theta), -1, num_points, len(inputs))
            among = self.covariances(theta, points, points).reshape(
                len(theta), -1, num_points, num_points
            )
            covariance = among - solved @ solved.mT
            eye = torch.eye(num_points).to(points)
            earlier = torch.linalg.cholesky(covariance + noise[:, None, None, None] * eye)
            variance = covariance.diagonal(dim1=-2, dim2=-1)
            variance = variance - earlier.tril(-1).square().sum(-1)
        smallest = 1e-12 * scale.reshape(-1, *[1] * (variance.dim() - 1))
        deviation = torch.maximum(variance, smallest).sqrt()
        each = (len(theta), *shape, num_points)
        return mean.reshape(each), deviation.reshape(each)


fill_in_docstrings(__name__)

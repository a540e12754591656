r"""Stationary kernels in closed form: values, slopes in the inputs and in the hyperparameters.

With the scaled distance :math:`r = \|(x - z) / \ell\|`, output scale :math:`s` and :math:`h(r)` the
derivative of :math:`k` with respect to :math:`r^2 / 2`,

.. math::
   k(x, z) = s \, \varphi(r), \qquad
   \frac{\partial k}{\partial x_j} = h \, \frac{x_j - z_j}{\ell_j^2}, \qquad
   \frac{\partial k}{\partial \ln \ell_j} = -h \, \frac{(x_j - z_j)^2}{\ell_j^2}, \qquad
   \frac{\partial k}{\partial \ln s} = k.

====================  =========================================  ==================================
kernel                :math:`\varphi`                            :math:`h / s`
====================  =========================================  ==================================
squared exponential   :math:`e^{-r^2/2}`                         :math:`-e^{-r^2/2}`
Matern 1/2            :math:`e^{-r}`                             :math:`-e^{-r} / r`
Matern 3/2            :math:`(1 + a) e^{-a}, a = \sqrt{3} r`     :math:`-3 e^{-a}`
Matern 5/2            :math:`(1 + a + a^2/3) e^{-a},`            :math:`-\tfrac53 (1 + a) e^{-a}`
                      :math:`a = \sqrt{5} r`
====================  =========================================  ==================================

Source: Rasmussen and Williams 2006, section 4.2, with the derivatives worked out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

SMALLEST_DISTANCE = 1e-15
"""Where Matern 1/2 has a kink its slope is taken as 0, as GPyTorch does."""


@dataclass(frozen=True, eq=False)
class StationaryKernel:
    """A kernel whose closed form this package knows.

    Attributes:
        smoothness: ``nu`` of a Matern kernel (0.5, 1.5, 2.5), infinity for squared exponential.
        lengthscale: ``d`` lengthscales, or one for all dimensions.
        outputscale: The prior variance, a scalar.
    """

    smoothness: float
    lengthscale: Tensor
    outputscale: Tensor

    @classmethod
    def read(cls, kernel: Kernel) -> StationaryKernel | None:
        """Return the closed form of a GPyTorch kernel with its present hyperparameters.

        Returns:
            None for every kernel that is not exactly an ``RBFKernel`` or ``MaternKernel``, alone or
            in one ``ScaleKernel``, without a batch shape and on all dimensions.
        """
        outputscale: Tensor | None = None
        if type(kernel) is ScaleKernel and not kernel.batch_shape and kernel.active_dims is None:
            outputscale = kernel.outputscale.detach()
            kernel = kernel.base_kernel
        if kernel.batch_shape or kernel.active_dims is not None:
            return None
        if type(kernel) is RBFKernel:
            smoothness = math.inf
        elif type(kernel) is MaternKernel:
            smoothness = float(kernel.nu)
        else:
            return None
        lengthscale = kernel.lengthscale.detach().reshape(-1)
        if outputscale is None:
            outputscale = lengthscale.new_ones(())
        return cls(smoothness, lengthscale, outputscale)

    def matrix(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return the ``... x n x p`` kernel values of ``... x n x d`` and ``... x p x d``."""
        if self.smoothness == 0.5:
            squared = self._distance(X, Z).square_()
        else:
            squared = self._squared_distance(X, Z)
        return self.of_squared_distance(squared, with_slope=False)[0]

    def of_augmented(
        self, queries: Tensor, points: Tensor, with_slope: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the kernel values, and ``h`` if asked, from rows whose product is ``r^2``.

        Args:
            queries: ``... x n x (d + 2)`` rows ``(-2u, |u|^2, 1)`` of scaled points ``u``.
            points: ``... x p x (d + 2)`` rows ``(v, 1, |v|^2)``.
            with_slope: Whether ``h`` is wanted.
        """
        if self.smoothness == 0.5:
            # differences before squares: near points keep their distance, which the kink shows
            squared = torch.cdist(
                queries[..., :-2] * -0.5,
                points[..., :-2],
                compute_mode="donot_use_mm_for_euclid_dist",
            ).square_()
        else:
            squared = (queries @ points.mT).clamp_min_(0.0)
        return self.of_squared_distance(squared, with_slope)

    def of_squared_distance(
        self, squared: Tensor, with_slope: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the kernel values, and ``h`` if asked, at scaled squared distances ``r^2``.

        Args:
            squared: Any shape, non-negative; it is overwritten.
            with_slope: Whether to return ``h`` too, None otherwise.
        """
        # in place where possible: fresh memory for large matrices costs more than the arithmetic
        slope: Tensor | None
        if self.smoothness == math.inf:
            value = squared.mul_(-0.5).exp_().mul_(self.outputscale)
            return value, value.neg() if with_slope else None
        if self.smoothness == 0.5:
            distance = squared.sqrt_()
            value = distance.neg().exp_().mul_(self.outputscale)
            if not with_slope:
                return value, None
            is_kink = distance < SMALLEST_DISTANCE
            return value, value.div(distance).neg_().masked_fill_(is_kink, 0.0)
        # a = sqrt(2 nu) r
        scaled = squared.mul_(2.0 * self.smoothness).sqrt_()
        decay = scaled.neg().exp_().mul_(self.outputscale)
        if self.smoothness == 1.5:
            slope = decay.mul(-3.0) if with_slope else None
            return scaled.add_(1.0).mul_(decay), slope
        one_plus = scaled.add(1.0)
        value = torch.addcmul(one_plus, scaled, scaled, value=1.0 / 3.0).mul_(decay)
        return value, one_plus.mul_(decay).mul_(-5.0 / 3.0) if with_slope else None

    def _distance(self, X: Tensor, Z: Tensor) -> Tensor:
        # differences before squares: near points keep their distance, which the kink shows
        return torch.cdist(
            X / self.lengthscale, Z / self.lengthscale, compute_mode="donot_use_mm_for_euclid_dist"
        )

    def _squared_distance(self, X: Tensor, Z: Tensor) -> Tensor:
        centre = Z.reshape(-1, Z.shape[-1])[:1]  # rounding grows with the distance from the origin
        X, Z = (X - centre) / self.lengthscale, (Z - centre) / self.lengthscale
        squared = X @ (-2.0 * Z).mT
        squared += X.square().sum(-1, keepdim=True)
        squared += Z.square().sum(-1).unsqueeze(-2)
        return squared.clamp_min_(0.0)

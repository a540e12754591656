r"""The prior on a finite set of arms: covariances, and a root to draw functions with.

Up to :data:`LARGEST_MATRIX` arms the covariance matrix is kept; beyond, the columns of arms that
were asked for are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.checks import check_double, check_finite
from botorch_bandits.models.stationary_kernel import StationaryKernel

LARGEST_MATRIX = 4096
"""Number of arms up to which the whole prior covariance matrix is kept (128 MiB)."""

NEGLIGIBLE = 1e-15
"""A root leaves out prior variance below this share of the largest: it is rounding error."""


class ArmsPrior:
    """Zero-mean Gaussian prior on arms that are numbered from 0.

    Make it with :meth:`from_matrix` or :meth:`from_kernel`.

    Attributes:
        diagonal: ``num_arms`` prior variances.
        matrix: The ``num_arms x num_arms`` covariance, or None where it is not kept.
    """

    def __init__(
        self,
        diagonal: Tensor,
        matrix: Tensor | None,
        evaluate: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """See the class."""
        self.diagonal = diagonal
        self.matrix = matrix
        self._evaluate = evaluate
        self._columns = diagonal.new_empty(0, len(diagonal))
        self._slots: dict[int, int] = {}

    @classmethod
    def from_matrix(cls, kernel_matrix: Tensor) -> ArmsPrior:
        """Take a covariance matrix.

        Args:
            kernel_matrix: ``num_arms x num_arms``, float64, symmetric positive semi-definite.

        Raises:
            TypeError: If it is not float64.
            ValueError: If it is not square, not symmetric, not positive semi-definite or not
                finite.
        """
        check_finite("kernel_matrix", check_double("kernel_matrix", kernel_matrix))
        if kernel_matrix.dim() != 2 or kernel_matrix.shape[0] != kernel_matrix.shape[1]:
            raise ValueError(
                f"kernel_matrix has shape {tuple(kernel_matrix.shape)}; it must be num_arms x "
                "num_arms."
            )
        if kernel_matrix.numel() == 0:
            raise ValueError("kernel_matrix has shape (0, 0); at least one arm is needed.")
        size = float(kernel_matrix.abs().max())
        if float((kernel_matrix - kernel_matrix.T).abs().max()) > 1e-8 * size:
            raise ValueError("kernel_matrix is not symmetric; a covariance matrix must be.")
        # a copy: later changes to the caller's matrix do not reach the prior
        matrix = kernel_matrix.detach().clone(memory_format=torch.contiguous_format)
        diagonal = matrix.diagonal().clone()
        raised = matrix.clone()
        raised.diagonal().add_(1e-8 * size)
        if size > 0.0 and int(torch.linalg.cholesky_ex(raised).info) != 0:
            raise ValueError(
                "kernel_matrix is not positive semi-definite; a covariance matrix must be. Its "
                f"smallest eigenvalue is {float(torch.linalg.eigvalsh(matrix)[0]):.3g}."
            )
        return cls(diagonal, matrix)

    @classmethod
    def from_kernel(cls, kernel: Kernel, inputs: Tensor) -> ArmsPrior:
        """Take a kernel and the inputs of the arms.

        Args:
            kernel: Without batch shape, float64, on the device of ``inputs``.
            inputs: ``num_arms x d``, as the kernel wants them (transformed, if the model does).
        """
        evaluate = partial(_evaluate, kernel, StationaryKernel.read(kernel), inputs)
        with torch.no_grad():
            diagonal = kernel(inputs, diag=True)
        if len(inputs) > LARGEST_MATRIX:
            return cls(diagonal, None, evaluate)
        return cls(diagonal, evaluate(torch.arange(len(inputs), device=inputs.device)))

    @property
    def num_arms(self) -> int:
        """How many arms there are."""
        return len(self.diagonal)

    def columns(self, index: Tensor) -> Tensor:
        """Return the covariances of some arms with all arms.

        Args:
            index: ``...`` arm numbers.

        Returns:
            A ``... x num_arms`` tensor.
        """
        if self.matrix is not None:
            return self.matrix[index]
        missing = [arm for arm in index.unique().tolist() if arm not in self._slots]
        if missing:
            self._slots.update(zip(missing, range(len(self._slots), self.num_arms), strict=False))
            new = self._evaluate(torch.tensor(missing, device=index.device))  # type: ignore[misc]
            self._columns = torch.cat([self._columns, new])
        slots = [self._slots[arm] for arm in index.reshape(-1).tolist()]
        return self._columns[slots].reshape(*index.shape, self.num_arms)

    def column(self, arm: int) -> Tensor:
        """Return the ``num_arms`` covariances of one arm with all arms, not to be changed."""
        if self.matrix is not None:
            return self.matrix[arm]
        if arm not in self._slots:
            self.columns(torch.tensor([arm], device=self.diagonal.device))
        return self._columns[self._slots[arm]]

    @cached_property
    def root(self) -> Tensor:
        """A ``rank x num_arms`` matrix ``A`` with ``A' A`` the prior covariance.

        It comes from a Cholesky factorisation with pivots that stops at rounding error, without
        any jitter; the rank of a smooth kernel is far below the number of arms.
        """
        residual = self.diagonal.clone()
        smallest = NEGLIGIBLE * float(residual.max())
        rows = residual.new_empty(min(64, self.num_arms), self.num_arms)
        for rank in range(self.num_arms):
            pivot = int(residual.argmax())
            variance = float(residual[pivot])
            if variance <= smallest:
                return rows[:rank].clone()
            if rank == len(rows):
                rows = torch.cat([rows, torch.empty_like(rows)])
            column = self.column(pivot)
            row = torch.addmv(column, rows[:rank].T, rows[:rank, pivot], alpha=-1.0)
            rows[rank] = row.div_(variance**0.5)
            residual.addcmul_(row, row, value=-1.0).clamp_min_(0.0)
            residual[pivot] = 0.0
        return rows[: self.num_arms].clone()


def _evaluate(
    kernel: Kernel, known: StationaryKernel | None, inputs: Tensor, index: Tensor
) -> Tensor:
    with torch.no_grad():
        if known is not None:
            return known.matrix(inputs[index], inputs)
        return kernel(inputs[index], inputs).to_dense()

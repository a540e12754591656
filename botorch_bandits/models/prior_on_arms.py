"""The prior covariance of a finite set of arms, shared by all users of the same kernel and arms.

A prior belongs to a kernel and arms, not to a loop. It never changes, accounts for most of the
memory of an engine on arms, and is the same for loops that run side by side, for the segments
between resets and for replicates. :meth:`ArmsPrior.from_kernel` returns the existing one if it is
in use anywhere. Only its users keep it alive.

**Memory.** Up to :data:`LARGEST_MATRIX` arms, the covariance matrix is kept; beyond that, the
columns of the arms that were requested are kept, each in memory of its own, so that adding a column
copies none.
"""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import Any
from weakref import WeakValueDictionary

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.checks import check_double, check_finite
from botorch_bandits.core.kernels import (
    StationaryKernel,
    check_kernel_columns,
    fingerprint_kernel,
)

LARGEST_MATRIX = 4096
"""Number of arms up to which the whole prior covariance matrix is kept (128 MiB)."""

NEGLIGIBLE = 1e-15
"""A root leaves out prior variance below this share of the largest, which is rounding error."""

ROUNDING = 1e-6
"""A negative eigenvalue below this share of the largest value is a kernel's rounding error."""

NUM_LOOKED_AT = 512
"""Arms, evenly spaced in their order, whose covariance is checked if the matrix is not kept."""

_shared: WeakValueDictionary[tuple[Any, ...], ArmsPrior] = WeakValueDictionary()
_lock = threading.RLock()  # loops of several threads share priors


class ArmsPrior:
    """Zero-mean Gaussian prior on arms that are numbered from 0; it never changes.

    Create it with :meth:`from_matrix` or :meth:`from_kernel`.

    Args:
        diagonal: ``num_arms`` prior variances.
        matrix: The ``num_arms x num_arms`` covariance, or None if it is not kept.
        evaluate: A function from ``k`` arm numbers to their ``k x num_arms`` covariances with all
            arms; needed if the matrix is not kept.

    Attributes:
        diagonal: ``num_arms`` prior variances.
        matrix: The ``num_arms x num_arms`` covariance, or None if it is not kept.
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
        self._kept: dict[int, Tensor] = {}  # columns by arm, if the matrix is not kept

    @classmethod
    def from_matrix(cls, kernel_matrix: Tensor) -> ArmsPrior:
        """Return the prior with a given covariance matrix.

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
        # a copy, so that later changes to the caller's matrix do not affect the prior
        matrix = kernel_matrix.detach().clone(memory_format=torch.contiguous_format)
        diagonal = matrix.diagonal().clone()
        if (smallest := _negative_eigenvalue(matrix, 1e-8 * size)) is not None:
            raise ValueError(
                "kernel_matrix is not positive semi-definite; a covariance matrix must be. Its "
                f"smallest eigenvalue is {smallest:.3g}."
            )
        return cls(diagonal, matrix)

    @classmethod
    def from_kernel(cls, kernel: Kernel, inputs: Tensor) -> ArmsPrior:
        """Return the prior of arms under a kernel; users of the same kernel and arms share it.

        Args:
            kernel: A float64 kernel without batch shape, on the device of ``inputs``. Later changes
                to it do not affect the prior.
            inputs: ``num_arms x d``, as the kernel sees them (transformed, if the model transforms
                them). Later changes to them do not affect the prior.

        Raises:
            ValueError: If the kernel is for another number of columns, or its values are not
                finite, not symmetric or not positive semi-definite; a posterior computed from them
                would have meaningless variances. Stationary kernels with a known closed form are
                positive semi-definite on any arms and are not checked; with more than
                :data:`LARGEST_MATRIX` arms, only :data:`NUM_LOOKED_AT` of them are checked.
        """
        check_kernel_columns(kernel, inputs.shape[-1])
        stationary = StationaryKernel.read(kernel)
        key = (_name_of(kernel, stationary), *_name_of_inputs(inputs))
        with torch.no_grad():
            diagonal = kernel(inputs, diag=True)
        with _lock:
            found = _shared.get(key)
            # a fingerprint may miss what a user's own kernel hides
            if found is not None and (
                stationary is not None or found._is_of(kernel, inputs, diagonal)
            ):
                return found
            if len(inputs) > LARGEST_MATRIX:
                if stationary is None:
                    some = torch.linspace(0, len(inputs) - 1, NUM_LOOKED_AT, device=inputs.device)
                    among = inputs[some.long()]
                    _check_covariance(kernel, _evaluate(kernel, None, among, slice(None)), diagonal)
                own, points = copy.deepcopy(kernel), inputs.detach().clone()
                prior = cls(diagonal, None, _evaluator_of_columns(own, points))
            else:
                everything = torch.arange(len(inputs), device=inputs.device)
                matrix = _evaluate(kernel, stationary, inputs, everything)
                if stationary is None:
                    _check_covariance(kernel, matrix, diagonal)
                prior = cls(diagonal, matrix)
            _shared[key] = prior
        return prior

    def __deepcopy__(self, memo: dict[int, Any]) -> ArmsPrior:
        """Return the prior itself, because it never changes."""
        return self

    def _is_of(self, kernel: Kernel, inputs: Tensor, diagonal: Tensor) -> bool:
        """Whether the variances and some columns are those of a kernel."""
        some = torch.linspace(0, self.num_arms - 1, 3, device=inputs.device).long().unique()
        columns = _evaluate(kernel, None, inputs, some)
        if self.matrix is not None:
            own = self.matrix[some]
        else:
            assert self._evaluate is not None
            own = self._evaluate(some)
        tolerance = 1e-12 * float(self.diagonal.abs().max())
        is_close = torch.allclose(own, columns, rtol=0.0, atol=tolerance)
        return is_close and torch.equal(self.diagonal, diagonal)

    @property
    def num_arms(self) -> int:
        """The number of arms."""
        return len(self.diagonal)

    @property
    def num_columns_kept(self) -> int:
        """The number of arms whose columns are kept, if the matrix is not."""
        return len(self._kept)

    def columns(self, index: Tensor) -> Tensor:
        """Return the covariances of some arms with all arms.

        Args:
            index: ``...`` arm numbers.

        Returns:
            A ``... x num_arms`` tensor.
        """
        if self.matrix is not None:
            return self.matrix[index]
        arms = index.reshape(-1).tolist()
        self._keep(arms)
        columns = torch.stack([self._kept[arm] for arm in arms]) if arms else self._no_columns()
        return columns.reshape(*index.shape, self.num_arms)

    def column(self, arm: int) -> Tensor:
        """Return the ``num_arms`` covariances of one arm with all; they must not be changed."""
        if self.matrix is not None:
            return self.matrix[arm]
        if arm not in self._kept:
            self._keep([arm])
        return self._kept[arm]

    def column_once(self, arm: int) -> Tensor:
        """Return the covariances of one arm as :meth:`column` does, without keeping them."""
        if self.matrix is not None or arm in self._kept:
            return self.column(arm)
        assert self._evaluate is not None
        return self._evaluate(torch.tensor([arm], device=self.diagonal.device)).squeeze(0)

    def _keep(self, arms: Iterable[int]) -> None:
        for arm in arms:
            if arm not in self._kept:
                # one by one: each column is the same to the last bit, whatever is requested
                # together with
                # it
                column = self.column_once(arm)
                with _lock:
                    self._kept.setdefault(arm, column)

    def _no_columns(self) -> Tensor:
        return self.diagonal.new_empty(0, self.num_arms)

    @cached_property
    def root(self) -> Tensor:
        """A ``rank x num_arms`` matrix ``A`` such that ``A' A`` is the prior covariance.

        It comes from a pivoted Cholesky factorization that stops at rounding error, without any
        jitter; the rank of a smooth kernel is far below the number of arms.
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


def _check_covariance(kernel: Kernel, matrix: Tensor, diagonal: Tensor) -> None:
    """Raise an error unless the values of a kernel are a covariance."""
    name = f"the values of the kernel ({type(kernel).__name__}) on the arms"
    check_finite(name, diagonal)
    check_finite(name, matrix)
    size = float(matrix.abs().max())
    difference = float((matrix - matrix.T).abs().max())
    if difference > ROUNDING * size:
        raise ValueError(
            f"{name} are not symmetric: k(x, z) and k(z, x) differ by up to {difference:.3g}, "
            "but a prior covariance is symmetric. Pass a symmetric kernel."
        )
    if (smallest := _negative_eigenvalue(matrix, ROUNDING * size)) is not None:
        raise ValueError(
            f"{name} are not positive semi-definite: an eigenvalue is {smallest:.3g}, so some "
            "combination of arms would have a negative variance, and they are not a prior "
            "covariance. Pass a positive semi-definite kernel, such as MaternKernel, or a sum or "
            "product of such kernels."
        )


def _negative_eigenvalue(matrix: Tensor, tolerance: float) -> float | None:
    """Return the smallest eigenvalue of a symmetric matrix if it is below minus a tolerance."""
    if tolerance == 0.0:
        return None
    raised = matrix.clone()
    raised.diagonal().add_(tolerance)
    if int(torch.linalg.cholesky_ex(raised).info) == 0:
        return None
    return float(torch.linalg.eigvalsh(matrix)[0])


def _name_of(kernel: Kernel, stationary: StationaryKernel | None) -> tuple[Any, ...]:
    if stationary is None:
        return (fingerprint_kernel(kernel),)
    numbers = (stationary.lengthscale, stationary.outputscale)
    return (stationary.smoothness, *(tuple(each.reshape(-1).tolist()) for each in numbers))


def _name_of_inputs(inputs: Tensor) -> tuple[Any, ...]:
    values = inputs.detach().cpu().contiguous().numpy()
    digest = hashlib.blake2b(values.tobytes(), digest_size=32).digest()
    return tuple(inputs.shape), inputs.dtype, str(inputs.device), digest


def _evaluator_of_columns(kernel: Kernel, inputs: Tensor) -> Callable[[Tensor], Tensor]:
    stationary = StationaryKernel.read(kernel)
    if stationary is None or stationary.smoothness == 0.5:
        return partial(_evaluate, kernel, stationary, inputs)
    return _StationaryColumns(stationary, inputs)


class _StationaryColumns:
    """Columns of a stationary kernel, one by one; what they share is computed once.

    Args:
        kernel: A kernel with differentiable values; the exponential kernel needs exact distances.
        inputs: ``num_arms x d``.
    """

    def __init__(self, kernel: StationaryKernel, inputs: Tensor) -> None:
        """See the class."""
        self._kernel = kernel
        # rounding errors grow with the distance from the origin
        self._points = ((inputs - inputs[:1]) / kernel.lengthscale).T.contiguous()
        self._squared = self._points.square().sum(0)

    def __call__(self, index: Tensor) -> Tensor:
        """Return the covariances of ``k`` arms with all arms, ``k x num_arms``."""
        points = self._points[:, index]
        squared = torch.addmm(self._squared, points.T, self._points, alpha=-2.0)
        squared += self._squared[index].unsqueeze(-1)
        return self._kernel.of_squared_distance(squared.clamp_min_(0.0), with_slope=False)[0]


def _evaluate(
    kernel: Kernel, stationary: StationaryKernel | None, inputs: Tensor, index: Tensor | slice
) -> Tensor:
    with torch.no_grad():
        if stationary is not None:
            return stationary.matrix(inputs[index], inputs)
        return kernel(inputs[index], inputs).to_dense()

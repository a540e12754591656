r"""Kernels: copies in double precision, fingerprints, and stationary kernels in closed form.

A fingerprint distinguishes kernels whose printed forms are equal. Kernels are copied without
``copy.deepcopy``, which would take longer than adding a row to a model.

**Stationary kernels.** With the scaled distance :math:`r = \|(x - z) / \ell\|`, output scale
:math:`s` and :math:`h(r)` the derivative of :math:`k` with respect to :math:`r^2 / 2`,

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

import copy
import functools
import hashlib
import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    MaternKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor
from torch.nn import Module

from botorch_bandits.checks import DTYPE, check_positive


def double_kernel(kernel: Kernel, lengthscale: float | None = None) -> Kernel:
    """Return a float64 copy of a kernel.

    Args:
        kernel: Any GPyTorch kernel.
        lengthscale: Set in float64 on the kernel that has one, also inside a ``ScaleKernel``.

    Raises:
        TypeError: If ``kernel`` is not a GPyTorch kernel.
        ValueError: If a lengthscale is given but the kernel has none, or it is not positive.
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"kernel must be a gpytorch.kernels.Kernel instance, got {kernel!r}. For example "
            "MaternKernel(nu=2.5)."
        )
    if any(p.dtype != DTYPE and bool((p != 0).any()) for p in kernel.parameters()):
        # An untouched raw parameter is exactly 0; anything else was rounded to float32.
        warnings.warn(
            "the kernel's parameters were set in float32, which keeps 7 digits (0.2 becomes "
            "0.200000003). Call kernel = kernel.double(), then set float64 tensors, or pass "
            "lengthscale=.",
            UserWarning,
            stacklevel=3,
        )
    kernel = copy.deepcopy(kernel).to(DTYPE)
    if lengthscale is not None:
        lengthscale = check_positive("lengthscale", lengthscale)
        target = kernel
        while not target.has_lengthscale and isinstance(
            getattr(target, "base_kernel", None), Kernel
        ):
            target = target.base_kernel
        if not target.has_lengthscale:
            raise ValueError(
                f"lengthscale is {lengthscale}, but {type(kernel).__name__} has no single "
                "lengthscale; set its parts before passing it."
            )
        # GPyTorch would round a Python number to float32
        target.lengthscale = torch.tensor(lengthscale, dtype=DTYPE)
    return kernel


def check_kernel_columns(kernel: Kernel, num_columns: int, name: str = "kernel") -> None:
    """Raise an error unless a kernel fits inputs with so many columns.

    GPyTorch does not check the kernel inside a ``ScaleKernel``: if its number of lengthscales
    differs, they are broadcast against the columns, which makes it a different kernel.

    Args:
        kernel: Any GPyTorch kernel. Except for sums, products and scaled kernels, only the
            outermost kernel is checked, because it may change the inputs of those inside it.
        num_columns: The number of columns of the inputs, after any transform.
        name: The name of the kernel in error messages.

    Raises:
        ValueError: If it has ``ard_num_dims`` or ``active_dims`` for other columns.

    Example:
        >>> from gpytorch.kernels import RBFKernel, ScaleKernel
        >>> kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
        >>> check_kernel_columns(kernel, 3)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: kernel has a RBFKernel with ard_num_dims=2 on 3 columns. Build it with ...
    """
    _check_columns(kernel, num_columns, name, is_called=True)


def _check_columns(kernel: Kernel, num_columns: int, name: str, is_called: bool) -> None:
    own = type(kernel).__name__
    active = kernel.active_dims
    if active is not None and is_called:  # a ScaleKernel selects the columns of its base kernel
        largest = max(active.tolist(), default=-1)
        if largest >= num_columns:
            raise ValueError(
                f"{name} has a {own} with active_dims={tuple(active.tolist())}, but the inputs "
                f"have {num_columns} columns, numbered from 0. Build it with others; contexts "
                "come before points."
            )
        num_columns = len(active)
    if kernel.ard_num_dims is not None and kernel.ard_num_dims != num_columns:
        raise ValueError(
            f"{name} has a {own} with ard_num_dims={kernel.ard_num_dims} on {num_columns} columns. "
            f"Build it with ard_num_dims={num_columns}, or with one lengthscale for all (no "
            "ard_num_dims). The columns are those of the context, then those of the point."
        )
    if isinstance(kernel, ScaleKernel):
        _check_columns(kernel.base_kernel, num_columns, name, is_called=False)
    elif isinstance(kernel, AdditiveKernel | ProductKernel):
        for part in kernel.kernels:
            _check_columns(part, num_columns, name, is_called=True)


def fingerprint_kernel(kernel: Kernel) -> str:
    """Return a digest of a kernel: classes, settings, parameters, values at fixed probe points.

    Settings are plain attributes, such as the ``nu`` of a Matern kernel. The values distinguish
    kernels that differ in something hidden elsewhere.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> a, b = MaternKernel(nu=1.5).double(), MaternKernel(nu=2.5).double()
        >>> fingerprint_kernel(a) == fingerprint_kernel(b)
        False
    """
    text = describe_module(kernel) + repr(_probe(kernel))
    return hashlib.sha256(text.encode()).hexdigest()


def describe_module(module: Module) -> str:
    """Return classes, settings and parameters of a module and its parts, one per line."""
    lines = []
    for name, part in module.named_modules():
        lines.append(f"{name}: {type(part).__module__}.{type(part).__qualname__}")
        lines += [
            f"{name}.{key}: {value!r}"
            for key, value in sorted(vars(part).items())
            if isinstance(value, bool | int | float | str) and key != "training"
        ]
    lines += [
        f"{name} = {value.detach().cpu().reshape(-1).tolist()} {tuple(value.shape)}"
        for name, value in sorted(module.state_dict().items())
    ]
    return "\n".join(lines)


def _probe(kernel: Kernel) -> list[Any]:
    kernel = copy.deepcopy(kernel).to("cpu")
    generator = torch.Generator().manual_seed(0)
    for dim in range(1, 33):
        points = torch.rand(4, dim, dtype=DTYPE, generator=generator)
        try:
            with torch.no_grad():
                values: list[Any] = kernel(points).to_dense().tolist()
        except (RuntimeError, IndexError, ValueError, AssertionError):
            continue  # the kernel needs another number of dimensions
        return values
    return []


def kernel_of_output(kernel: Kernel, output: int) -> Kernel:
    """Return a copy of a kernel with the parameters of one output.

    Args:
        kernel: A kernel without a batch shape, or with one batch entry per output.
        output: The number of the output, from 0.
    """
    kernel = copy.deepcopy(kernel)
    for part in kernel.modules():
        if isinstance(part, Kernel) and len(part._batch_shape) > 0:
            for parameter in part.parameters(recurse=False):
                index = output if parameter.shape[0] > 1 else 0
                parameter.data = parameter.data[index].clone()
            part.batch_shape = torch.Size()
    return kernel


def kernel_of_outputs(kernel: Kernel, index: int | list[int], num_batch_dims: int) -> Kernel:
    """Return a copy of a kernel with the parameters of some outputs, in every batch of the model.

    Args:
        kernel: A kernel in which each part has the batch shape of the model, followed by one entry
            per output.
        index: The outputs, from 0; a number instead of a list removes their dimension.
        num_batch_dims: The number of dimensions of the model's batch shape.
    """
    kernel = copy.deepcopy(kernel)
    every = (slice(None),) * num_batch_dims
    for part in kernel.modules():
        if isinstance(part, Kernel):
            kept = () if isinstance(index, int) else (len(index),)
            for parameter in part.parameters(recurse=False):
                parameter.data = parameter.data[(*every, index)].clone()
            part.batch_shape = torch.Size((*part._batch_shape[:num_batch_dims], *kept))
    return kernel


SMALLEST_DISTANCE = 1e-15
"""At the kink of the Matern 1/2 kernel, its slope is taken to be 0, as in GPyTorch."""


class PreparedRows(NamedTuple):
    """Points as a stationary kernel uses them.

    Attributes:
        center: ``... x 1 x d``; the first point.
        with_ones: ``... x p x (d + 1)`` scaled points ``v``, and ones.
        right: ``... x (d + 2) x p`` columns ``(-2 v, 1, |v|^2)``.
    """

    center: Tensor
    with_ones: Tensor
    right: Tensor


@dataclass(frozen=True, eq=False)
class StationaryKernel:
    """A kernel with a known closed form.

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
        smoothness = smoothness_of(kernel)
        if smoothness is None:
            return None
        lengthscale = kernel.lengthscale.detach().reshape(-1)
        if outputscale is None:
            outputscale = lengthscale.new_ones(())
        return cls(smoothness, lengthscale, outputscale)

    def matrix(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return the kernel values between two sets of points, without gradients.

        Args:
            X: ``... x n x d`` points.
            Z: ``... x p x d`` points.

        Returns:
            A ``... x n x p`` tensor.
        """
        return self.values(X, self.prepared(Z))

    def prepared(self, Z: Tensor) -> PreparedRows:
        """Return what :meth:`values` needs of ``... x p x d`` points ``Z``."""
        # rounding errors grow with the distance from the origin; the sum of no row is 0
        center = Z[..., :1, :].sum(-2, keepdim=True)
        v = (Z - center) / self.lengthscale
        ones = torch.ones_like(v[..., :1])
        right = torch.cat([-2.0 * v, ones, v.square().sum(-1, keepdim=True)], dim=-1)
        return PreparedRows(center, torch.cat([v, ones], dim=-1), right.mT)

    def values(self, X: Tensor, rows: PreparedRows) -> Tensor:
        """Return :meth:`matrix` of ``... x n x d`` points ``X`` and of prepared ``rows``."""
        squared = self._squared_distances((X - rows.center) / self.lengthscale, rows)
        return self.of_squared_distance(squared, with_slope=False)[0]

    def values_and_pullback(self, X: Tensor, rows: PreparedRows) -> tuple[Tensor, Pullback]:
        """Return :meth:`values` of ``X`` and ``rows``, and how derivatives flow to ``X``."""
        u = (X - rows.center) / self.lengthscale
        values, slope = self.of_squared_distance(self._squared_distances(u, rows), with_slope=True)
        assert slope is not None

        def pullback(outer: Tensor) -> Tensor:
            # sum_j c_ij h_ij (u_i - v_j) / l is one product of n x p and p x (d + 1)
            sums = (outer * slope) @ rows.with_ones
            return torch.addcmul(-sums[..., :-1], sums[..., -1:], u).div_(self.lengthscale)

        return values, pullback

    def _squared_distances(self, u: Tensor, rows: PreparedRows) -> Tensor:
        """Return ``r^2`` of ``... x n x d`` scaled points, ``... x n x p``."""
        if self.smoothness == 0.5:
            # differences before squares keep the distances of near points, which the kink reveals
            v = rows.with_ones[..., :-1]
            return torch.cdist(u, v, compute_mode="donot_use_mm_for_euclid_dist").square_()
        # r^2 = |u|^2 + |v|^2 - 2 u.v, in one product of n x (d + 2) and (d + 2) x p
        left = torch.cat([u, u.square().sum(-1, keepdim=True), torch.ones_like(u[..., :1])], dim=-1)
        return (left @ rows.right).clamp_min_(0.0)

    def of_squared_distance(
        self,
        squared: Tensor,
        with_slope: bool,
        out: tuple[Tensor | None, Tensor | None] = (None, None),
    ) -> tuple[Tensor, Tensor | None]:
        """Return the kernel values, and ``h`` on request, at scaled squared distances ``r^2``.

        Args:
            squared: Any shape, non-negative; it is overwritten.
            with_slope: Whether to return ``h`` as well, otherwise None.
            out: Memory for both, because new memory for large matrices costs more than the
                arithmetic.
        """
        if self.smoothness == math.inf:
            value = torch.mul(squared, -0.5, out=out[0]).exp_().mul_(self.outputscale)
            return value, torch.neg(value, out=out[1]) if with_slope else None
        # a = sqrt(2 nu) r
        a = squared.mul_(2.0 * self.smoothness).sqrt_()
        # s exp(-a) = exp(ln s - a), which saves a product
        decay = torch.sub(self.outputscale.log(), a, out=out[1]).exp_()
        if self.smoothness == 0.5:
            if not with_slope:
                return decay, None
            value = torch.add(decay, 0.0, out=out[0])
            return value, decay.div_(a).neg_().masked_fill_(a < SMALLEST_DISTANCE, 0.0)
        if self.smoothness == 1.5:
            value = torch.addcmul(decay, decay, a, out=out[0])
            return value, decay.mul_(-3.0) if with_slope else None
        value = torch.addcmul(a, a, a, value=1.0 / 3.0, out=out[0])
        value = torch.addcmul(decay, decay, value, out=out[0])
        return value, decay.addcmul_(decay, a).mul_(-5.0 / 3.0) if with_slope else None


def smoothness_of(kernel: Kernel) -> float | None:
    """Return ``nu`` of a Matern kernel, infinity of a squared exponential, None of all others."""
    if type(kernel) is RBFKernel:
        return math.inf
    return float(kernel.nu) if type(kernel) is MaternKernel else None


class TimeDecayKernel(Kernel):
    r"""``k(x, x') (1 - rate)^{|t - t'| / 2}`` on inputs ``(t, x)``, where the time comes first.

    Args:
        base_kernel: The kernel ``k`` of the other columns; it is copied.
        rate: In (0, 1).

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> kernel = TimeDecayKernel(RBFKernel().double(), rate=0.19)
        >>> X = torch.tensor([[1.0, 0.5], [3.0, 0.5]], dtype=torch.float64)
        >>> round(kernel(X).to_dense()[0, 1].item(), 12)
        0.81
    """

    def __init__(self, base_kernel: Kernel, rate: float) -> None:
        """See the class."""
        super().__init__()
        self.base_kernel = copy.deepcopy(base_kernel)
        self.rate = rate

    @property
    def decay_length(self) -> float:
        """The number of rounds after which the correlation of a function falls to ``1/e``."""
        return -2.0 / math.log1p(-self.rate)

    @property
    def is_stationary(self) -> bool:
        """Whether the base kernel is stationary."""
        return bool(self.base_kernel.is_stationary)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariances of ``... x n x (1 + d)`` and ``... x m x (1 + d)`` inputs."""
        if diag:
            gap = x1[..., 0] - x2[..., 0]
            base = self.base_kernel(x1[..., 1:], x2[..., 1:], diag=True, **params)
        else:
            gap = x1[..., :, None, 0] - x2[..., None, :, 0]
            base = self.base_kernel(x1[..., 1:], x2[..., 1:], **params).to_dense()
        decayed: Tensor = torch.exp(0.5 * math.log1p(-self.rate) * gap.abs()) * base
        return decayed


Pullback = Callable[[Tensor], Tensor]
"""Turns ``... x n x p`` derivatives in kernel values into ``... x n x d`` ones in the points."""


class KernelFunction(Protocol):
    """A kernel as a plain function of points, with hyperparameters that never change."""

    @property
    def smoothness(self) -> float:
        """The smallest ``nu`` of its parts; 0.5, which promises nothing, if that is not known."""

    def prepared(self, Z: Tensor) -> Any:
        """Return what the other methods need of the rows, ``... x p x d``."""

    def values(self, X: Tensor, rows: Any) -> Tensor:
        """Return ``... x n x p`` values at ``... x n x d`` points and prepared rows."""

    def values_and_pullback(self, X: Tensor, rows: Any) -> tuple[Tensor, Pullback]:
        """Return the same values, and how derivatives flow from them to ``X``."""

    def diagonal(self, X: Tensor) -> Tensor:
        """Return the prior variances at ``... x n x d`` points, ``... x n``, differentiable."""

    def select(self, index: Any) -> KernelFunction:
        """Return the kernel of some posteriors of a batch, which may share one."""


class _Differentiable(torch.autograd.Function):
    """Kernel values that autograd can follow to both sets of points, once."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, Z: Tensor, kernel: KernelFunction) -> Tensor:
        """Return the ``... x n x p`` values."""
        ctx.kernel = kernel
        ctx.save_for_backward(X, Z)
        return kernel.values(X, kernel.prepared(Z))

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Return the gradients of ``X`` and ``Z``; the kernel is symmetric."""
        X, Z = ctx.saved_tensors
        gradients: list[Tensor | None] = [None, None]
        pairs = (X, Z, outer), (Z, X, outer.mT)
        for i in range(2):
            if ctx.needs_input_grad[i]:
                points, others, own = pairs[i]
                with torch.no_grad():
                    rows = ctx.kernel.prepared(others)
                    gradient = ctx.kernel.values_and_pullback(points, rows)[1](own)
                gradients[i] = only_once(gradient, X, Z, outer)
        return gradients[0], gradients[1], None


def only_once(gradient: Tensor, *inputs: Tensor) -> Tensor:
    """Return a gradient that raises an error where autograd differentiates it again.

    It would otherwise count as a constant, which is wrong without a word.

    Args:
        gradient: What the backward pass of a function found.
        inputs: Everything that it depends on.
    """
    if not torch.is_grad_enabled():
        return gradient
    found: Tensor = _OnlyOnce.apply(gradient, *inputs)
    return found


class _OnlyOnce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *inputs: Tensor) -> Tensor:
        ctx.num_inputs = len(inputs)
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> Any:
        raise RuntimeError(
            "this posterior can be differentiated only once, and this call asks for a second "
            "derivative. Inside botorch.settings.propagate_grads(True), the posterior comes from "
            "GPyTorch, which supports it."
        )


def differentiable_values(kernel: KernelFunction, X: Tensor, Z: Tensor) -> Tensor:
    """Return kernel values whose first derivatives autograd can compute."""
    values: Tensor = _Differentiable.apply(X, Z, kernel)
    return values


class Factor(NamedTuple):
    """A stationary kernel on some columns; it is a decay in time if ``is_decay``."""

    columns: tuple[int, ...]
    kernel: StationaryKernel
    is_decay: bool = False


@dataclass(frozen=True, eq=False)
class SumOfProducts:
    r""":math:`k(x, z) = \sum_i \prod_{j \in T_i} k_j(x_j, z_j)` with stationary :math:`k_j`.

    Attributes:
        factors: The kernels :math:`k_j`. Those of a stack have ``G x 1 x d`` lengthscales and
            ``G x 1 x 1`` output scales, and give ``... x G x n x p`` values at ``... x 1 x n x d``
            points.
        terms: The numbers :math:`T_i` of the factors of each product.

    Source: Rasmussen and Williams 2006, section 4.2.4.
    """

    factors: tuple[Factor, ...]
    terms: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, products: Sequence[Sequence[Factor]]) -> SumOfProducts:
        """Return the sum of these products; a factor of several of them is computed once."""
        numbers: dict[int, int] = {}
        factors: list[Factor] = []
        terms = []
        for product in products:
            for factor in product:
                if numbers.setdefault(id(factor.kernel), len(factors)) == len(factors):
                    factors.append(factor)
            terms.append(tuple(numbers[id(factor.kernel)] for factor in product))
        return cls(tuple(factors), tuple(terms))

    @property
    def smoothness(self) -> float:
        """See :class:`KernelFunction`. Decays count only alone: no search moves in time."""
        seen = [f.kernel.smoothness for f in self.factors if not f.is_decay]
        return min(seen, default=0.5)

    def prepared(self, Z: Tensor) -> list[PreparedRows]:
        """See :class:`KernelFunction`."""
        return [f.kernel.prepared(columns_of(Z, f.columns)) for f in self.factors]

    def values(self, X: Tensor, rows: list[PreparedRows]) -> Tensor:
        """See :class:`KernelFunction`."""
        pairs = zip(self.factors, rows, strict=True)
        return self._combined([f.kernel.values(columns_of(X, f.columns), own) for f, own in pairs])

    def values_and_pullback(self, X: Tensor, rows: list[PreparedRows]) -> tuple[Tensor, Pullback]:
        """See :class:`KernelFunction`."""
        found = [
            f.kernel.values_and_pullback(columns_of(X, f.columns), own)
            for f, own in zip(self.factors, rows, strict=True)
        ]
        if len(found) == 1 and self.factors[0].columns == tuple(range(X.shape[-1])):
            return found[0]
        known = [values for values, _ in found]

        def pullback(outer: Tensor) -> Tensor:
            gradient = outer.new_zeros(*outer.shape[:-1], X.shape[-1])
            for term in self.terms:
                for i, number in enumerate(term):
                    # the derivative of a product in one factor is the product of the others
                    others = [known[other] for other in (*term[:i], *term[i + 1 :])]
                    share = found[number][1](_product([outer, *others]))
                    columns = self.factors[number].columns
                    for column, own in zip(columns, share.unbind(-1), strict=True):
                        gradient[..., column] += own  # a column may occur twice
            return gradient

        return self._combined(known), pullback

    def diagonal(self, X: Tensor) -> Tensor:
        """See :class:`KernelFunction`."""
        total = self._combined([factor.kernel.outputscale for factor in self.factors])
        # torch.broadcast_shapes would import sympy
        return total.squeeze(-1) + X.new_zeros(()).expand(X.shape[:-1])

    def select(self, index: Any) -> SumOfProducts:
        """See :class:`KernelFunction`."""
        return self

    def _combined(self, known: list[Tensor]) -> Tensor:
        products = [_product([known[number] for number in term]) for term in self.terms]
        return functools.reduce(torch.add, products)


def columns_of(X: Tensor, columns: tuple[int, ...]) -> Tensor:
    """Return some columns of ``... x d`` points; columns in order are not copied."""
    first, count = columns[0], len(columns)
    is_run = columns == tuple(range(first, first + count))
    return X[..., first : first + count] if is_run else X[..., list(columns)]


def _product(values: Sequence[Tensor]) -> Tensor:
    return functools.reduce(torch.mul, values)


def read_products(kernel: Kernel, dim: int) -> list[tuple[Factor, ...]] | None:
    """Return a GPyTorch kernel as products to be added, with copies of its hyperparameters.

    Args:
        kernel: Any kernel.
        dim: The number of columns of a point.

    Returns:
        None unless it is made of ``RBFKernel`` and ``MaternKernel`` by sums, products,
        ``ScaleKernel`` and :class:`TimeDecayKernel`, without batches; any of them may have
        ``active_dims``.
    """
    with torch.no_grad():
        terms = _read(kernel, tuple(range(dim)))
        return None if terms is None else [_merged(term) for term in terms]


Terms = list[tuple[Factor, ...]]


def _read(kernel: Kernel, columns: tuple[int, ...], is_called: bool = True) -> Terms | None:
    """Read a kernel on some columns; ``forward`` without a call does not choose among them."""
    if kernel.batch_shape or not columns:
        return None
    if is_called and kernel.active_dims is not None:
        chosen = kernel.active_dims.reshape(-1).tolist()
        if not all(-len(columns) <= i < len(columns) for i in chosen):
            return None
        columns = tuple(columns[i] for i in chosen)
    if type(kernel) is ScaleKernel:
        inner = _read(kernel.base_kernel, columns, is_called=False)
        scale = kernel.outputscale.detach()
        return None if inner is None else [(_scaled(t[0], scale), *t[1:]) for t in inner]
    if type(kernel) is TimeDecayKernel:
        inner = _read(kernel.base_kernel, columns[1:])
        one = torch.ones(1, dtype=DTYPE, device=_device_of(kernel))
        decay = StationaryKernel(0.5, one * kernel.decay_length, one.squeeze())
        factor = Factor(columns[:1], decay, is_decay=True)
        return None if inner is None else [(factor, *term) for term in inner]
    if type(kernel) in (AdditiveKernel, ProductKernel):
        members = [_read(part, columns) for part in kernel.kernels]
        known = [member for member in members if member is not None]
        if not known or len(known) < len(members):
            return None
        if type(kernel) is AdditiveKernel:
            return list(itertools.chain(*known))
        return [tuple(itertools.chain(*each)) for each in itertools.product(*known)]
    smoothness = smoothness_of(kernel)
    if smoothness is None:
        return None
    lengthscale = kernel.lengthscale.detach().reshape(-1)
    if len(lengthscale) not in (1, len(columns)):
        return None
    own = lengthscale.expand(len(columns)).clone()
    return [(Factor(columns, StationaryKernel(smoothness, own, own.new_ones(()))),)]


def _device_of(kernel: Kernel) -> torch.device | None:
    return next((parameter.device for parameter in kernel.parameters()), None)


def _scaled(factor: Factor, scale: Tensor) -> Factor:
    kernel = replace(factor.kernel, outputscale=factor.kernel.outputscale * scale)
    return factor._replace(kernel=kernel)


def _merged(term: tuple[Factor, ...]) -> tuple[Factor, ...]:
    """Merge squared exponentials, whose squared distances add up, into the first of them."""
    smooth = [factor for factor in term if factor.kernel.smoothness == math.inf]
    if len(smooth) < 2:
        return term
    whole = StationaryKernel(
        math.inf,
        torch.cat([factor.kernel.lengthscale for factor in smooth]),
        _product([factor.kernel.outputscale for factor in smooth]),
    )
    first = Factor(tuple(itertools.chain(*(factor.columns for factor in smooth))), whole)
    return (first, *(factor for factor in term if factor.kernel.smoothness != math.inf))


class AnyKernel:
    """Any kernel, evaluated by GPyTorch.

    Args:
        kernel: The kernel, which is copied.
        scale: Multiplies the kernel.
    """

    smoothness = 0.5

    def __init__(self, kernel: Kernel, scale: float = 1.0) -> None:
        """See the class."""
        self._scale = scale
        self._kernel = copy.deepcopy(kernel).requires_grad_(False)

    def prepared(self, Z: Tensor) -> Tensor:
        """See :class:`KernelFunction`."""
        return Z

    def values(self, X: Tensor, rows: Tensor) -> Tensor:
        """See :class:`KernelFunction`."""
        if rows.shape[-2] == 0:
            return X[..., :1] * rows[..., :, 0].unsqueeze(-2)
        values: Tensor = self._kernel(X, rows).to_dense() * self._scale
        return values

    def values_and_pullback(self, X: Tensor, rows: Tensor) -> tuple[Tensor, Pullback]:
        """See :class:`KernelFunction`."""
        with torch.enable_grad():
            points = X.detach().requires_grad_()
            # with one point more, as GPyTorch takes equal sets of points to be the same variable
            longer = torch.cat([points, points[..., :1, :]], dim=-2)
            values = self.values(longer, rows.detach())[..., :-1, :]
        options = {"retain_graph": True, "materialize_grads": True}
        return values.detach(), lambda outer: torch.autograd.grad(values, points, outer, **options)[
            0
        ]

    def diagonal(self, X: Tensor) -> Tensor:
        """See :class:`KernelFunction`."""
        values: Tensor = self._kernel(X, diag=True) * self._scale
        return values

    def select(self, index: Any) -> AnyKernel:
        """See :class:`KernelFunction`."""
        return self


def kernel_function(kernel: Kernel, dim: int, scale: float = 1.0) -> KernelFunction:
    """Return any kernel without batches as a function, with its present hyperparameters.

    Args:
        kernel: The kernel.
        dim: The number of columns of a point.
        scale: Multiplies the kernel.
    """
    products = read_products(kernel, dim)
    if products is None:
        return AnyKernel(kernel, scale)
    if scale != 1.0:
        factor = torch.as_tensor(scale, dtype=DTYPE, device=_device_of(kernel))
        products = [(_scaled(term[0], factor), *term[1:]) for term in products]
    return SumOfProducts.of(products)


class KernelList:
    """Several kernels on the same points: ``... x G x n x p`` values.

    Args:
        functions: ``G`` of them; those that differ only in hyperparameters are evaluated at once.
    """

    def __init__(self, functions: Sequence[KernelFunction]) -> None:
        """See the class."""
        self.functions = tuple(functions)
        alike: dict[Any, list[int]] = {}
        for i, each in enumerate(functions):
            alike.setdefault(_structure(each), []).append(i)
        self._stacks = [_stack([functions[i] for i in group]) for group in alike.values()]
        # the place of each kernel in the stacks, one after the other
        places = torch.tensor(list(itertools.chain(*alike.values()))).argsort()
        self._order = None if len(alike) == 1 else places

    @property
    def smoothness(self) -> float:
        """See :class:`KernelFunction`."""
        return min(each.smoothness for each in self.functions)

    def select(self, index: Any) -> KernelFunction:
        """Return one of the kernels, or a list of some by their numbers."""
        if isinstance(index, int):
            return self.functions[index]
        return KernelList([self.functions[i] for i in index])

    def prepared(self, Z: Tensor) -> list[Any]:
        """See :class:`KernelFunction`."""
        return [stack.prepared(Z.unsqueeze(-3)) for stack in self._stacks]

    def values(self, X: Tensor, rows: list[Any]) -> Tensor:
        """See :class:`KernelFunction`."""
        X = X.unsqueeze(-3)
        pairs = zip(self._stacks, rows, strict=True)
        values = torch.cat([stack.values(X, own) for stack, own in pairs], dim=-3)
        return values if self._order is None else values[..., self._order, :, :]

    def values_and_pullback(self, X: Tensor, rows: list[Any]) -> tuple[Tensor, Pullback]:
        """See :class:`KernelFunction`."""
        X = X.unsqueeze(-3)
        pairs = zip(self._stacks, rows, strict=True)
        found = [stack.values_and_pullback(X, own) for stack, own in pairs]
        values = torch.cat([each for each, _ in found], dim=-3)

        def pullback(outer: Tensor) -> Tensor:
            if self._order is not None:
                outer = torch.empty_like(outer).index_copy_(-3, self._order, outer)
            parts = outer.split([each.shape[-3] for each, _ in found], dim=-3)
            shares = [pull(part) for (_, pull), part in zip(found, parts, strict=True)]
            return torch.cat(shares, dim=-3).sum(-3)

        return values if self._order is None else values[..., self._order, :, :], pullback

    def diagonal(self, X: Tensor) -> Tensor:
        """See :class:`KernelFunction`."""
        values = torch.cat([stack.diagonal(X.unsqueeze(-3)) for stack in self._stacks], dim=-2)
        return values if self._order is None else values[..., self._order, :]


def _structure(function: KernelFunction) -> Any:
    """What kernels that can be stacked have in common."""
    if not isinstance(function, SumOfProducts):
        return id(function)
    kinds = tuple((factor.columns, factor.kernel.smoothness) for factor in function.factors)
    return kinds, function.terms


def _stack(functions: list[KernelFunction]) -> KernelFunction:
    first = functions[0]
    if not isinstance(first, SumOfProducts):
        return first
    factors = []
    for j, factor in enumerate(first.factors):
        kernels = [each.factors[j].kernel for each in functions]  # type: ignore[attr-defined]
        lengthscale = torch.stack([k.lengthscale for k in kernels]).unsqueeze(-2)
        scale = torch.stack([k.outputscale for k in kernels]).reshape(-1, 1, 1)
        kernel = StationaryKernel(factor.kernel.smoothness, lengthscale, scale)
        factors.append(factor._replace(kernel=kernel))
    return SumOfProducts(tuple(factors), first.terms)

r"""Kernels as plain functions of points with pullbacks, and what is read from GPyTorch's kernels.

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

**Pullbacks.** Derivatives :math:`c_{ij}` in the values :math:`k(x_i, z_j)` become derivatives in
the points by the vector-Jacobian product :math:`\sum_j c_{ij} \nabla k(x_i, z_j)`. It is kept with
the values, so that nothing is computed again where autograd goes back.

Source: Rasmussen and Williams 2006, sections 4.2 and 4.2.4, with the derivatives worked out.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

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

from botorch_bandits.checks import check_probability

# --- kernels as functions -------------------------------------------------------------------------

Pullback = Callable[[Tensor], Tensor]
"""Turns ``... x n x p`` derivatives in kernel values into ``... x n x d`` ones in the points."""


class KernelFunction(ABC):
    """A kernel as a plain function of points, with hyperparameters that never change."""

    terms: tuple[tuple[StationaryKernel, ...], ...] = ()
    """The products of stationary kernels that it is the sum of; empty if they are not known."""

    columns: tuple[int, ...] = ()
    """The numbers of the columns that the kernel reads; empty for all."""

    @property
    def factors(self) -> tuple[StationaryKernel, ...]:
        """The different kernels in all products."""
        return tuple(dict.fromkeys(itertools.chain(*self.terms)))

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return the kernel values of two sets of points; autograd can differentiate them once.

        Args:
            X: ``... x n x d`` points.
            Z: ``... x p x d`` points.

        Returns:
            A ``... x n x p`` tensor.
        """
        values: Tensor = _Values.apply(X, Z, self)  # ... x n x p
        return values

    @abstractmethod
    def evaluate(self, X: Tensor, Z: Tensor, with_pullback: bool) -> tuple[Tensor, Pullback]:
        """Return the values at two sets of points, and how derivatives flow from them to X.

        The pullback can be called only if it was asked for (``with_pullback``).
        """

    @abstractmethod
    def diagonal(self, X: Tensor) -> Tensor:
        """Return prior variances, ``... x n``, at points ``X``, ``... x n x d``, differentiable."""

    def select(self, index: Any) -> KernelFunction:
        """Return the kernel of some posteriors of a batch (``index``), which may share one."""
        return self


def _chosen(X: Tensor, columns: tuple[int, ...]) -> Tensor:
    """Return some columns of ``... x n x d`` points; all of them if none are named."""
    return X if columns in ((), tuple(range(X.shape[-1]))) else X[..., list(columns)]


class _Values(torch.autograd.Function):
    """Kernel values that autograd can follow to both sets of points, once."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, Z: Tensor, kernel: KernelFunction) -> Tensor:
        """Return the ``... x n x p`` values."""
        ctx.kernel = kernel
        ctx.save_for_backward(X, Z)
        values, ctx.pullback = kernel.evaluate(X, Z.detach(), ctx.needs_input_grad[0])
        return values

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Return the gradients of ``X`` and ``Z``; the kernel is symmetric."""
        if torch.is_grad_enabled():  # the gradient would count as a constant without a word
            raise RuntimeError(
                "this posterior can be differentiated only once, and create_graph=True asks for "
                "more. Inside botorch.settings.propagate_grads(True), the posterior comes from "
                "GPyTorch, which supports it."
            )
        X, Z = ctx.saved_tensors
        of_X = ctx.pullback(outer) if ctx.needs_input_grad[0] else None  # ... x n x d
        if not ctx.needs_input_grad[1]:
            return of_X, None, None
        # k(z, x) = k(x, z): the same with the points exchanged
        return of_X, ctx.kernel.evaluate(Z, X.detach(), True)[1](outer.mT), None


BLOCK = 32768
"""The number of kernel values (256 KiB) that a core computes at once."""
SMALLEST_DISTANCE = 1e-15
"""At the kink of the Matern 1/2 kernel, its slope is taken to be 0, as in GPyTorch."""


@dataclass(frozen=True, eq=False)
class StationaryKernel(KernelFunction):
    """A kernel with a known closed form, on some of the columns.

    Attributes:
        smoothness: ``nu`` of a Matern kernel (0.5, 1.5, 2.5), infinity for squared exponential.
        lengthscale: ``d`` lengthscales, or one for all dimensions; ``G x 1 x d`` for a stack of
            kernels, which gives ``... x G x n x p`` values at ``... x 1 x n x d`` points.
        outputscale: The prior variance, a scalar; ``G x 1 x 1`` for a stack.
        columns: The numbers of the columns that the kernel reads; empty for all.
    """

    smoothness: float
    lengthscale: Tensor
    outputscale: Tensor
    columns: tuple[int, ...] = ()

    @property
    def terms(self) -> tuple[tuple[StationaryKernel, ...], ...]:  # type: ignore[override]
        """One product of one kernel."""
        return ((self,),)

    def evaluate(self, X: Tensor, Z: Tensor, with_pullback: bool) -> tuple[Tensor, Pullback]:
        """See :class:`KernelFunction`."""
        Z = _chosen(Z, self.columns)
        # rounding errors grow with the distance from the origin; the sum of no row is 0
        center = Z[..., :1, :].sum(-2, keepdim=True)
        u = (_chosen(X, self.columns) - center) / self.lengthscale  # ... x n x d
        v = (Z - center) / self.lengthscale  # ... x p x d
        # r^2 = |u|^2 + |v|^2 - 2 u.v, in one product of n x (d + 2) and (d + 2) x p
        left = torch.cat([u, _squared_norm(u), torch.ones_like(u[..., :1])], dim=-1)
        right = torch.cat([-2.0 * v, torch.ones_like(v[..., :1]), _squared_norm(v)], dim=-1).mT
        values = u.new_empty(*u.shape[:-1], v.shape[-2])
        slope = torch.empty_like(values) if with_pullback else None
        count = max(len(u), 1)
        if u.dim() == v.dim() == 2 and u.device.type == "cpu":
            # a block for each thread stays in its cache through all steps, three times as fast
            count = max(BLOCK * torch.get_num_threads() // max(len(v), 1), 1)
        for i in range(0, len(u), count):
            some = slice(i, i + count)
            if self.smoothness == 0.5:
                # differences before squares keep the distances of near points, which the kink shows
                plain = "donot_use_mm_for_euclid_dist"
                squared = torch.cdist(u[some], v, compute_mode=plain).square_()
            else:
                squared = (left[some] @ right).clamp_min_(0.0)
            out = values[some], None if slope is None else slope[some]
            self.of_squared_distance(squared, with_pullback, out)

        def pullback(outer: Tensor) -> Tensor:
            assert slope is not None
            # sum_j c_ij h_ij (u_i - v_j) / l, ... x n x d
            sums = outer * slope
            own = (sums.sum(-1, keepdim=True) * u).sub_(sums @ v).div_(self.lengthscale)
            if own.shape == X.shape and self.columns in ((), tuple(range(X.shape[-1]))):
                return own
            columns = torch.tensor(self.columns, device=X.device)  # one may occur twice
            shape = (*own.shape[:-1], X.shape[-1])
            return own.new_zeros(shape).index_add_(-1, columns, own)

        return values, pullback

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
            # k = s exp(-r^2 / 2), h = -k
            value = torch.mul(squared, -0.5, out=out[0]).exp_().mul_(self.outputscale)
            return value, torch.neg(value, out=out[1]) if with_slope else None
        # a = sqrt(2 nu) r
        a = squared.mul_(2.0 * self.smoothness).sqrt_()
        # s exp(-a) = exp(ln s - a), which saves a product
        decay = torch.sub(self.outputscale.log(), a, out=out[1]).exp_()
        if self.smoothness == 0.5:
            # k = s exp(-a), h = -k / a
            value = torch.add(decay, 0.0, out=out[0])
            if not with_slope:
                return value, None
            return value, decay.div_(a).neg_().masked_fill_(a < SMALLEST_DISTANCE, 0.0)
        if self.smoothness == 1.5:
            # k = s (1 + a) exp(-a), h = -3 s exp(-a)
            value = torch.addcmul(decay, decay, a, out=out[0])
            return value, decay.mul_(-3.0) if with_slope else None
        # k = s (1 + a + a^2 / 3) exp(-a), h = -5/3 s (1 + a) exp(-a)
        value = torch.addcmul(a, a, a, value=1.0 / 3.0, out=out[0])
        value = torch.addcmul(decay, decay, value, out=out[0])
        return value, decay.addcmul_(decay, a).mul_(-5.0 / 3.0) if with_slope else None

    def diagonal(self, X: Tensor) -> Tensor:
        """See :class:`KernelFunction`."""
        # torch.broadcast_shapes would import sympy
        return self.outputscale.squeeze(-1) + X.new_zeros(()).expand(X.shape[:-1])


def _squared_norm(points: Tensor) -> Tensor:
    return points.square().sum(-1, keepdim=True)


@dataclass(frozen=True, eq=False)
class SumOfProducts(KernelFunction):
    r""":math:`k(x, z) = \sum_i \prod_{j \in T_i} k_j(x, z)` with stationary :math:`k_j`.

    Attributes:
        terms: The products; a factor of several of them is computed once.
    """

    terms: tuple[tuple[StationaryKernel, ...], ...]

    def evaluate(self, X: Tensor, Z: Tensor, with_pullback: bool) -> tuple[Tensor, Pullback]:
        """See :class:`KernelFunction`."""
        found = {factor: factor.evaluate(X, Z, with_pullback) for factor in self.factors}

        def pullback(outer: Tensor) -> Tensor:
            shares = []
            for term in self.terms:
                for i, factor in enumerate(term):
                    # the derivative of a product in one factor is the product of the others
                    others = [found[other][0] for other in (*term[:i], *term[i + 1 :])]
                    shares.append(found[factor][1](_product([outer, *others])))
            return _sum(shares)

        # ... x n x p
        return _sum([_product([found[each][0] for each in term]) for term in self.terms]), pullback

    def diagonal(self, X: Tensor) -> Tensor:
        """See :class:`KernelFunction`."""
        return _sum([_product([factor.diagonal(X) for factor in term]) for term in self.terms])


def _product(values: Sequence[Tensor]) -> Tensor:
    return functools.reduce(torch.mul, values)


def _sum(values: Sequence[Tensor]) -> Tensor:
    return functools.reduce(torch.add, values)


class AnyKernel(KernelFunction):
    """Any kernel, evaluated by GPyTorch.

    Args:
        kernel: The kernel, which is copied.
        scale: Multiplies the kernel.
    """

    def __init__(self, kernel: Kernel, scale: float = 1.0) -> None:
        """See the class."""
        self._scale = scale
        self._kernel = copy.deepcopy(kernel).requires_grad_(False)

    def evaluate(self, X: Tensor, Z: Tensor, with_pullback: bool) -> tuple[Tensor, Pullback]:
        """See :class:`KernelFunction`."""
        if Z.shape[-2] == 0:  # GPyTorch cannot evaluate a kernel without rows
            return X[..., :1] * Z[..., :, 0].unsqueeze(-2), lambda _: torch.zeros_like(X)
        with torch.set_grad_enabled(with_pullback):
            points = X.detach().requires_grad_(with_pullback)
            # with one point more, as GPyTorch takes equal sets of points to be the same variable
            longer = torch.cat([points, points[..., :1, :]], dim=-2) if with_pullback else points
            values = self._kernel(longer, Z).to_dense() * self._scale
            values = values[..., : X.shape[-2], :]  # ... x n x p

        def pullback(outer: Tensor) -> Tensor:
            # the graph is kept, because mean and variance may ask one after the other
            options = {"retain_graph": True, "materialize_grads": True}
            return torch.autograd.grad(values, points, outer, **options)[0]

        return values.detach(), pullback

    def diagonal(self, X: Tensor) -> Tensor:
        """See :class:`KernelFunction`."""
        values: Tensor = self._kernel(X, diag=True) * self._scale
        return values


class KernelList(KernelFunction):
    """Several kernels on the same points: ``... x G x n x p`` values.

    Args:
        functions: ``G`` of them; neighbors that differ only in hyperparameters are evaluated at
            once.
    """

    def __init__(self, functions: Sequence[KernelFunction]) -> None:
        """See the class."""
        self.functions = tuple(functions)
        runs = [list(run) for _, run in itertools.groupby(functions, structure_of)]
        self._sizes, self._stacks = list(map(len, runs)), list(map(_stack, runs))

    def select(self, index: Any) -> KernelFunction:
        """Return one of the kernels, or a list of some by their numbers."""
        if isinstance(index, int):
            return self.functions[index]
        return KernelList([self.functions[i] for i in index])

    def evaluate(self, X: Tensor, Z: Tensor, with_pullback: bool) -> tuple[Tensor, Pullback]:
        """See :class:`KernelFunction`."""
        X, Z = X.unsqueeze(-3), Z.unsqueeze(-3)
        found = [stack.evaluate(X, Z, with_pullback) for stack in self._stacks]

        def pullback(outer: Tensor) -> Tensor:
            # ... x G x n x p: each stack gets the derivatives of its kernels
            parts = zip(outer.split(self._sizes, -3), found, strict=True)
            return _sum([pull(part).sum(-3) for part, (_, pull) in parts])

        return torch.cat([values for values, _ in found], dim=-3), pullback

    def diagonal(self, X: Tensor) -> Tensor:
        """See :class:`KernelFunction`."""
        return torch.cat([stack.diagonal(X.unsqueeze(-3)) for stack in self._stacks], dim=-2)


def structure_of(function: KernelFunction) -> Any:
    """Return what kernels that can be stacked have in common."""
    numbers = {factor: i for i, factor in enumerate(function.factors)}
    kinds = tuple((factor.columns, factor.smoothness) for factor in numbers)
    return (kinds, *(tuple(map(numbers.get, t)) for t in function.terms)) if kinds else id(function)


def _stack(functions: list[KernelFunction]) -> KernelFunction:
    first = functions[0]
    stacked = {}
    for factor, *others in zip(*(each.factors for each in functions), strict=True):
        lengthscale = torch.stack([k.lengthscale for k in (factor, *others)])
        scale = torch.stack([k.outputscale for k in (factor, *others)])
        # G x 1 x d and G x 1 x 1
        stacked[factor] = replace(
            factor, lengthscale=lengthscale.unsqueeze(-2), outputscale=scale.reshape(-1, 1, 1)
        )
    terms = tuple(tuple(stacked[factor] for factor in term) for term in first.terms)
    return SumOfProducts(terms) if terms else first


# --- kernels of GPyTorch --------------------------------------------------------------------------


Term = tuple[StationaryKernel, ...]
"""A product of kernels."""


def kernel_function(kernel: Kernel, dim: int, scale: float = 1.0) -> KernelFunction:
    """Return any kernel without batches as a function, with its present hyperparameters.

    It is a sum of products if it is made of ``RBFKernel`` and ``MaternKernel`` by sums, products,
    ``ScaleKernel`` and :class:`TimeDecayKernel`; any of them may have ``active_dims``.

    Args:
        kernel: The kernel.
        dim: The number of columns of a point.
        scale: Multiplies the kernel.
    """
    with torch.no_grad():
        terms = _read(kernel, tuple(range(dim)))
    if terms is None:
        return AnyKernel(kernel, scale)
    scaled = tuple(_scaled(term, scale) for term in terms)
    return scaled[0][0] if len(scaled) == len(scaled[0]) == 1 else SumOfProducts(scaled)


def _scaled(term: Term, scale: float | Tensor) -> Term:
    first, *others = term
    return replace(first, outputscale=first.outputscale * scale), *others


def _read(kernel: Kernel, columns: tuple[int, ...], is_called: bool = True) -> list[Term] | None:
    """Read a kernel on some columns; ``forward`` without a call does not choose among them."""
    kind = type(kernel)
    if kernel.batch_shape or not columns:
        return None
    if is_called and kernel.active_dims is not None:
        # columns are counted among those that the kernel around it reads
        chosen = kernel.active_dims.reshape(-1).tolist()
        if not all(-len(columns) <= i < len(columns) for i in chosen):
            return None
        columns = tuple(columns[i] for i in chosen)
    if kind is ScaleKernel:
        inner = _read(kernel.base_kernel, columns, is_called=False)
        return inner and [_scaled(term, kernel.outputscale.detach()) for term in inner]
    if kind is TimeDecayKernel:
        inner = _read(kernel.base_kernel, columns[1:])
        if inner is None:
            return None
        # exp(-|t - t'| / length) is a Matern 1/2 kernel
        length = inner[0][0].lengthscale.new_tensor([kernel.decay_length])
        decay = StationaryKernel(0.5, length, torch.ones_like(length[0]), columns[:1])
        return [(decay, *term) for term in inner]
    if kind in (AdditiveKernel, ProductKernel):
        members = [_read(part, columns) or [] for part in kernel.kernels]
        if not all(members):
            return None
        if kind is AdditiveKernel:
            return list(itertools.chain(*members))  # the terms of a sum are those of its parts
        # (a + b) c = a c + b c
        return [tuple(itertools.chain(*each)) for each in itertools.product(*members)]
    smoothness = smoothness_of(kernel)
    if smoothness is None:
        return None
    lengthscale = kernel.lengthscale.detach().reshape(-1)
    if len(lengthscale) not in (1, len(columns)):
        return None
    own = lengthscale.expand(len(columns)).clone()
    return [(StationaryKernel(smoothness, own, own.new_ones(()), columns),)]


def smoothness_of(kernel: Kernel) -> float | None:
    """Return ``nu`` of a Matern kernel, infinity of a squared exponential, None of all others."""
    if type(kernel) is RBFKernel:
        return math.inf
    return float(kernel.nu) if type(kernel) is MaternKernel else None


def smoothness_of_whole(kernel: Kernel) -> float | None:
    """Return :func:`smoothness_of` a kernel that reads all columns, alone or in a ``ScaleKernel``.

    None for kernels with a batch shape or ``active_dims`` as well.
    """
    parts = [kernel, kernel.base_kernel] if type(kernel) is ScaleKernel else [kernel]
    is_plain = all(not part.batch_shape and part.active_dims is None for part in parts)
    return smoothness_of(parts[-1]) if is_plain else None


def unit_prior(kernel: Kernel, noise: float) -> tuple[object, Kernel, float, float]:
    """Return a prior at output scale 1, at which posteriors of all scales share their factors.

    Args:
        kernel: A kernel without a batch shape.
        noise: The noise variance.

    Returns:
        A key that is equal for equal priors at output scale 1, the kernel without its output scale,
        the noise variance divided by that scale, and the scale.
    """
    scale = 1.0
    if type(kernel) is ScaleKernel and kernel.active_dims is None:
        kernel, scale = kernel.base_kernel, float(kernel.outputscale.detach())
    ratio = noise / scale
    key: tuple[object, ...] = (id(kernel),)  # kernels without a closed form may hide settings
    if (smoothness := smoothness_of(kernel)) is not None:
        columns = None if kernel.active_dims is None else tuple(kernel.active_dims.tolist())
        key = (smoothness, columns, *kernel.lengthscale.detach().reshape(-1).tolist())
    return (key, f"{ratio:.11e}"), kernel, ratio, scale


class TimeDecayKernel(Kernel):
    r"""``k(x, x') (1 - rate)^{|t - t'| / 2}`` on inputs ``(t, x)``, where the time comes first.

    Args:
        base_kernel: The kernel ``k`` of the other columns; it is copied.
        rate: In (0, 1).

    Raises:
        ValueError: If the rate is not between 0 and 1.

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
        self.rate = check_probability("rate", rate)

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


def kernel_of_output(kernel: Kernel, output: int) -> Kernel:
    """Return a copy of a kernel with the parameters of one output.

    Args:
        kernel: A kernel without a batch shape, which all outputs share, or one whose parts have one
            entry per output.
        output: The output, from 0.
    """
    kernel = copy.deepcopy(kernel)
    for part in kernel.modules():
        shape = part._batch_shape if isinstance(part, Kernel) else ()
        if shape:
            for parameter in part.parameters(recurse=False):
                # of all entries, also where a parameter has one for all of them
                every = parameter.data.expand(*shape, *parameter.shape[len(shape) :])
                parameter.data = every[output].clone()
            part.batch_shape = torch.Size(shape[1:])
    return kernel


def expand_kernel(kernel: Kernel, batch_shape: torch.Size) -> None:
    """Give every part of a kernel the batch shape, with parameters of its own in each batch.

    GPyTorch's ``expand_batch`` also expands ``active_dims`` (which breaks them), and leaves the
    parts of sums and products as they were.

    Args:
        kernel: The kernel, which is changed.
        batch_shape: The batch shape to give it.
    """
    for part in kernel.modules():
        if isinstance(part, Kernel):
            num_batch_dims = len(part._batch_shape)
            for parameter in part.parameters(recurse=False):
                shape = batch_shape + parameter.shape[num_batch_dims:]
                parameter.data = parameter.data.expand(shape).contiguous()
            part.batch_shape = batch_shape

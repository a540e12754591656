r"""Sums and products of stationary kernels in closed form, each on its own columns.

.. math:: k(x, z) = \sum_i \prod_j k_{ij}(x_{ij}, z_{ij})

Sums and products may be nested, and a ``ScaleKernel`` may wrap any of them. With :math:`h_{ij}` the
slope of a part (see :mod:`botorch_bandits.core.kernels`), its share of the gradient is

.. math::
   \frac{\partial k}{\partial k_{ij}} \, h_{ij} \, \frac{x_{ij} - z_{ij}}{\ell_{ij}^2},

where the derivative follows from the rules for sums and products. The squared exponentials of one
product are combined into one, because their squared distances add up.

Source: Rasmussen and Williams 2006, section 4.2.4, with the derivatives worked out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

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

from botorch_bandits.core.kernels import StationaryKernel, TimeDecayKernel


@dataclass(frozen=True, eq=False)
class Part:
    """One stationary kernel on some columns.

    Attributes:
        kernel: The kernel with unit lengthscale, because inputs are scaled first.
        columns: The columns that it sees.
        lengthscale: One for each of these columns.
        is_decay: Whether it is the decay of a :class:`TimeDecayKernel`.
        number: Its position among the parts.
        start: The first of its columns in :meth:`ComposedKernel.augment`.
    """

    kernel: StationaryKernel
    columns: tuple[int, ...]
    lengthscale: Tensor
    is_decay: bool = False
    number: int = 0
    start: int = 0

    @property
    def width(self) -> int:
        """The number of its columns in :meth:`ComposedKernel.augment`."""
        return len(self.columns) + 2

    @cached_property
    def place(self) -> slice | list[int]:
        """Its columns as an index; if they are in order, a slice, which copies nothing."""
        first, count = self.columns[0], len(self.columns)
        is_run = self.columns == tuple(range(first, first + count))
        return slice(first, first + count) if is_run else list(self.columns)

    def scaled_by(self, factor: Tensor) -> Part:
        """Return this part times a number.

        Args:
            factor: A scalar, at least 0.
        """
        kernel = replace(self.kernel, outputscale=self.kernel.outputscale * factor)
        return replace(self, kernel=kernel)


@dataclass(frozen=True, eq=False)
class Combination:
    """A sum or a product of parts.

    Attributes:
        members: The parts, at least two.
        is_product: Whether they are multiplied rather than added.
    """

    members: tuple[Part | Combination, ...]
    is_product: bool

    def scaled_by(self, factor: Tensor) -> Combination:
        """Return this combination times a number.

        Args:
            factor: A scalar, at least 0.
        """
        first, *others = self.members
        if not self.is_product:
            others = [member.scaled_by(factor) for member in others]
        return replace(self, members=(first.scaled_by(factor), *others))


class QueryRows(NamedTuple):
    """Points as seen by one part.

    Attributes:
        scaled: ``... x n x d`` scaled points ``u``.
        rows: ``... x n x (d + 2)`` rows ``(-2u, |u|^2, 1)``. If all rows are equal, as in a search
            with a fixed time or context, a single row represents them.
    """

    scaled: Tensor
    rows: Tensor


@dataclass(frozen=True, eq=False)
class ComposedKernel:
    """A kernel composed of stationary kernels, whose closed form is known.

    Attributes:
        root: The parts and how they are combined.
        parts: The stationary kernels, each with its number.
        dim: The number of columns of a point.
    """

    root: Part | Combination
    parts: tuple[Part, ...]
    dim: int

    @classmethod
    def read(cls, kernel: Kernel, dim: int) -> ComposedKernel | None:
        """Return the closed form of a GPyTorch kernel with its present hyperparameters.

        Args:
            kernel: Sums (``AdditiveKernel``) and products (``ProductKernel``) of ``RBFKernel`` and
                ``MaternKernel``, with or without ``active_dims``; any of them may be wrapped in a
                ``ScaleKernel``. Also :class:`TimeDecayKernel` of these.
            dim: The number of columns of its inputs.

        Returns:
            None for every other kernel, and for kernels with a batch shape.
        """
        with torch.no_grad():
            found = _read(kernel, tuple(range(dim)))
            if found is None:
                return None
            parts: list[Part] = []
            root = _numbered(_simplified(found), parts)
        return cls(root, tuple(parts), dim)

    @property
    def smoothness(self) -> float:
        """The smallest ``nu`` among its parts.

        Parts that decay in the first column count only if there are no others.
        """
        seen = [part.kernel.smoothness for part in self.parts if not part.is_decay]
        return min(seen, default=0.5)

    @property
    def width(self) -> int:
        """The number of columns that :meth:`augment` returns."""
        return sum(part.width for part in self.parts)

    @property
    def outputscale(self) -> Tensor:
        """The prior variance, a scalar."""
        return _value(self.root, [part.kernel.outputscale for part in self.parts])

    def scaled_by(self, factor: float) -> ComposedKernel:
        """Return this kernel times a number.

        Args:
            factor: At least 0.
        """
        parts: list[Part] = []
        scale = self.parts[0].lengthscale.new_tensor(factor)
        return replace(self, root=_numbered(self.root.scaled_by(scale), parts), parts=tuple(parts))

    def of_inputs_in_units(self, side: Tensor) -> ComposedKernel:
        """Return this kernel as a function of inputs in other units.

        Args:
            side: ``d`` numbers; the factors that turn the new inputs into the present ones.
        """
        parts = tuple(
            replace(part, lengthscale=part.lengthscale * side[part.place]) for part in self.parts
        )
        return replace(self, parts=parts)

    def to(self, like: Tensor) -> ComposedKernel:
        """Return this kernel with copies of its hyperparameters on another device.

        Args:
            like: A tensor on that device.
        """
        parts: tuple[Part, ...] = tuple(
            replace(
                part,
                kernel=StationaryKernel(
                    part.kernel.smoothness,
                    like.new_ones(1),
                    part.kernel.outputscale.to(like, copy=True),
                ),
                lengthscale=part.lengthscale.to(like, copy=True),
            )
            for part in self.parts
        )
        return replace(self, parts=parts)

    def augment(self, points: Tensor) -> Tensor:
        """Return rows ``(v, 1, |v|^2)`` of each part, side by side.

        Each entry is computed on its own, so that a single row gets the same bits.

        Args:
            points: ``n x d``.

        Returns:
            ``n x width``.
        """
        columns = []
        for part in self.parts:
            scaled = points[:, part.place] / part.lengthscale
            first, *others = scaled.square().unbind(-1)
            for column in others:
                first = first + column
            columns += [scaled, torch.ones_like(scaled[:, :1]), first.unsqueeze(-1)]
        return torch.cat(columns, dim=-1)

    def of_part(self, points: Tensor, part: Part) -> Tensor:
        """Return the columns of a part, ``... x n x (d + 2)``.

        Args:
            points: From :meth:`augment`.
            part: One of :attr:`parts`.
        """
        return points[..., part.start : part.start + part.width]

    def queries(self, X: Tensor) -> list[QueryRows]:
        """Return points in the form in which each part sees them.

        Args:
            X: ``n x d``.
        """
        found = []
        for part in self.parts:
            scaled = X[:, part.place] / part.lengthscale
            if len(scaled) > 1 and bool((scaled == scaled[:1]).all()):
                scaled = scaled[:1]
            squares = scaled.square().sum(-1, keepdim=True)
            rows = torch.cat([-2.0 * scaled, squares, torch.ones_like(squares)], dim=-1)
            found.append(QueryRows(scaled, rows))
        return found

    def queries_of_augmented(self, points: Tensor) -> list[QueryRows]:
        """Return rows of :meth:`augment` as queries.

        Args:
            points: ``n x width``.
        """
        found = []
        for part in self.parts:
            own = self.of_part(points, part)
            scaled, squares = own[:, :-2], own[:, -1:]
            rows = torch.cat([-2.0 * scaled, squares, torch.ones_like(squares)], dim=-1)
            found.append(QueryRows(scaled, rows))
        return found

    def values(
        self, queries: Sequence[QueryRows], points: Tensor, num_queries: int
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the values of the kernel and of its parts.

        Args:
            queries: From :meth:`queries`, one entry per part.
            points: ``p x width``, from :meth:`augment`.
            num_queries: ``n``.

        Returns:
            A contiguous ``n x p`` tensor, which may be overwritten unless the others are used, and
            one tensor per part.
        """
        values = [
            part.kernel.of_augmented(query.rows, self.of_part(points, part), with_slope=False)[0]
            for part, query in zip(self.parts, queries, strict=True)
        ]
        return self._of_parts(values, num_queries), values

    def values_and_slopes(
        self, queries: Sequence[QueryRows], points: Tensor, num_queries: int
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the kernel values and, for each part, the factor of ``(x - z) / l^2``.

        Args:
            queries: From :meth:`queries`, one entry per part.
            points: ``p x width``, from :meth:`augment`.
            num_queries: ``n``.

        Returns:
            A contiguous ``n x p`` tensor, and one such tensor per part, with a single row if all
            rows agree.
        """
        values, slopes = [], []
        for part, query in zip(self.parts, queries, strict=True):
            value, slope = part.kernel.of_augmented(
                query.rows, self.of_part(points, part), with_slope=True
            )
            assert slope is not None
            values.append(value)
            slopes.append(slope)
        _chain(self.root, values, None, slopes)
        return self._of_parts(values, num_queries), slopes

    def _of_parts(self, values: list[Tensor], num_queries: int) -> Tensor:
        value = _value(self.root, values)
        return value.expand(num_queries, -1).contiguous()

    def matrix(self, X: Tensor) -> Tensor:
        """Return the kernel values among points.

        Args:
            X: ``... x n x d``.

        Returns:
            ``... x n x n``.
        """
        # rounding errors grow with the distance from the origin
        X = X - X.reshape(-1, self.dim)[:1]
        values = []
        for part in self.parts:
            unit = StationaryKernel(
                part.kernel.smoothness, part.lengthscale, part.kernel.outputscale
            )
            own = X[..., part.place]
            values.append(unit.matrix(own, own))
        return _value(self.root, values)


def _read(kernel: Kernel, columns: tuple[int, ...]) -> Part | Combination | None:
    """Read a kernel that is called with some columns."""
    if kernel.active_dims is not None:
        chosen = kernel.active_dims.reshape(-1).tolist()
        if not all(-len(columns) <= i < len(columns) for i in chosen):
            return None
        columns = tuple(columns[i] for i in chosen)
    return _read_forward(kernel, columns)


def _read_forward(kernel: Kernel, columns: tuple[int, ...]) -> Part | Combination | None:
    """Read a kernel whose ``forward`` is called directly, without its ``active_dims``."""
    if kernel.batch_shape or not columns:
        return None
    if type(kernel) is ScaleKernel:
        inner = _read_forward(kernel.base_kernel, columns)
        return None if inner is None else inner.scaled_by(kernel.outputscale.detach())
    if type(kernel) in (AdditiveKernel, ProductKernel):
        members = [_read(part, columns) for part in kernel.kernels]
        found = tuple(member for member in members if member is not None)
        if not found or len(found) < len(members):
            return None
        return found[0] if len(found) == 1 else Combination(found, type(kernel) is ProductKernel)
    if isinstance(kernel, TimeDecayKernel):
        if len(columns) < 2:
            return None
        inner = _read(kernel.base_kernel, columns[1:])
        if inner is None:
            return None
        one = next(kernel.parameters()).detach().new_ones(())
        decay = Part(
            StationaryKernel(0.5, one.reshape(1), one),
            columns[:1],
            one.reshape(1) * kernel.decay_length,
            is_decay=True,
        )
        return Combination((decay, inner), is_product=True)
    if type(kernel) is RBFKernel:
        smoothness = math.inf
    elif type(kernel) is MaternKernel:
        smoothness = float(kernel.nu)
    else:
        return None
    lengthscale = kernel.lengthscale.detach().reshape(-1)
    if len(lengthscale) not in (1, len(columns)):
        return None
    one = lengthscale.new_ones(())
    unit = StationaryKernel(smoothness, one.reshape(1), one)
    return Part(unit, columns, lengthscale.expand(len(columns)))


def _simplified(node: Part | Combination) -> Part | Combination:
    """Merge sums in sums, products in products, and the squared exponentials of a product."""
    if isinstance(node, Part):
        return node
    members: list[Part | Combination] = []
    for member in map(_simplified, node.members):
        is_alike = isinstance(member, Combination) and member.is_product == node.is_product
        members += member.members if is_alike else [member]  # type: ignore[union-attr]
    if node.is_product:
        smooth = [m for m in members if isinstance(m, Part) and m.kernel.smoothness == math.inf]
        if len(smooth) > 1:
            first = smooth[0]
            for other in smooth[1:]:
                first = replace(
                    first.scaled_by(other.kernel.outputscale),
                    columns=first.columns + other.columns,
                    lengthscale=torch.cat([first.lengthscale, other.lengthscale]),
                )
            members = [first, *(m for m in members if not any(m is s for s in smooth))]
    return members[0] if len(members) == 1 else Combination(tuple(members), node.is_product)


def _numbered(node: Part | Combination, parts: list[Part]) -> Part | Combination:
    """Number the parts in order and list them."""
    if isinstance(node, Part):
        start = parts[-1].start + parts[-1].width if parts else 0
        node = replace(node, number=len(parts), start=start)
        parts.append(node)
        return node
    return replace(node, members=tuple(_numbered(member, parts) for member in node.members))


def _value(node: Part | Combination, values: Sequence[Tensor]) -> Tensor:
    """Combine the values of the parts."""
    if isinstance(node, Part):
        return values[node.number]
    first, *others = node.members
    value = _value(first, values)
    for member in others:
        other = _value(member, values)
        value = value * other if node.is_product else value + other
    return value


def _chain(
    node: Part | Combination,
    values: Sequence[Tensor],
    outer: Tensor | None,
    slopes: list[Tensor],
) -> None:
    """Multiply the slope of each part by the derivative of the whole kernel in this part."""
    if isinstance(node, Part):
        if outer is not None:
            slopes[node.number] = slopes[node.number] * outer
        return
    if not node.is_product:
        for member in node.members:
            _chain(member, values, outer, slopes)
        return
    factors = [_value(member, values) for member in node.members]
    for i, member in enumerate(node.members):
        inner = outer
        for j, factor in enumerate(factors):
            if j != i:
                inner = factor if inner is None else inner * factor
        _chain(member, values, inner, slopes)

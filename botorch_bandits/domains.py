"""Domains: the sets from which a bandit chooses.

A domain can sample from itself, and maximize an acquisition function over itself.
"""

from __future__ import annotations

import inspect
import itertools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions.warnings import BadInitialCandidatesWarning
from botorch.models.transforms.input import InputTransform
from botorch.optim import optimize_acqf, optimize_acqf_mixed
from torch import Tensor

from botorch_bandits.bounds import (
    ONE_DIMENSION,
    check_coordinates,
    check_no_names,
    read_bounds,
    rows_in_lists,
)
from botorch_bandits.checks import (
    DTYPE,
    check_finite,
    check_instance,
    check_integer,
    check_matrix,
    is_listed,
    without_labels,
)
from botorch_bandits.feasible_sets import (
    FeasibleSet,
    Search,
    constraints_text,
    read_linear,
    read_nonlinear,
)
from botorch_bandits.optim import (
    MAXIMUM_DIMENSION,
    Coordinates,
    InUnits,
    ToBox,
    Whole,
    gen_candidates_batched,
    maximize_mixed,
)
from botorch_bandits.random_streams import derive_seed, generator, seeded_globally

__all__ = [
    "TIE_TOLERANCE",
    "Arms",
    "Box",
    "Domain",
    "ValueScale",
    "first_of_the_largest",
]


TIE_TOLERANCE = 1e-9
"""Acquisition values closer than this count as equal. It is relative to the size of the largest
value less the offset, and at least to the unit; see :class:`ValueScale`."""

ROUNDING = 8.0 * torch.finfo(DTYPE).eps
"""The relative error that adding an offset may cause."""


class ValueScale(NamedTuple):
    """The unit and the origin of acquisition values.

    An acquisition function provides them in its attribute ``value_scale``; see
    :func:`first_of_the_largest`. The functions of this package in outcome units count prior
    standard deviations from the prior mean.

    Attributes:
        offset: The value without information, such as the prior mean.
        unit: A difference that matters; positive.
    """

    offset: float = 0.0
    unit: float = 1.0

    def tolerance(self, largest: float) -> float:
        """Return how far a value may be below the largest and still count as equal.

        Args:
            largest: The largest value.
        """
        relative = TIE_TOLERANCE * max(abs(largest - self.offset), self.unit)
        return max(relative, ROUNDING * abs(self.offset))


def choices_of(acquisition: AcquisitionFunction) -> Tensor | None:
    """Return the points on which an acquisition function is defined; None if on all of them."""
    choices: Tensor | None = getattr(acquisition, "choices", None)
    return choices


def value_scale_of(acquisition: AcquisitionFunction) -> ValueScale | None:
    """Return the scale of an acquisition function's values, if it states one.

    Args:
        acquisition: An acquisition function of this package or any other.
    """
    scale: ValueScale | None = getattr(acquisition, "value_scale", None)
    return scale


class Domain(ABC):
    """A set of points in ``d`` dimensions from which the bandit chooses.

    To define your own set, write a subclass with ``dim``, :meth:`sample`, :meth:`maximize` and
    :meth:`check_point`. The descriptions of the other methods say when they are needed. A storage
    records the class and its attributes, so attributes must distinguish two sets.

    Attributes:
        dim: ``d``.
        choices: ``num_arms x d``; all points, if it is a list of them, otherwise None.
        bounds: ``2 x d``; the least and the largest coordinates, if they are known.
        feasible: The constraints that points of a box meet; None if there are none.
        integer_dims: The coordinates that take whole numbers.
        names: The names of the coordinates; empty if they have none.
    """

    dim: int = 0
    choices: Tensor | None = None
    bounds: Tensor | None = None
    feasible: FeasibleSet | None = None
    integer_dims: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def search_assumptions(self) -> tuple[str, ...]:
        """What theorems assume about :meth:`maximize`, and about regret under constraints."""
        return ("the acquisition is maximized exactly by domain.maximize",)

    @property
    def arms(self) -> Arms | None:
        """The set itself if it is a list of points, otherwise None; see also :meth:`few_points`."""
        return None

    @property
    def parameters(self) -> Mapping[str, Any]:
        """All named parameters, fixed ones included; none without names."""
        return {}

    @property
    def unordered_dims(self) -> tuple[int, ...]:
        """The coordinates whose values have no order."""
        return ()

    @property
    def volume(self) -> float:
        """The volume of a box, the number of arms of a finite set."""
        raise self._lacks("volume")

    @abstractmethod
    def sample(self, num_points: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw points uniformly at random, with replacement.

        Args:
            num_points: The number of points.
            generator: A CPU generator; torch's global one if omitted.

        Returns:
            A ``num_points x d`` float64 tensor.
        """

    @abstractmethod
    def maximize(self, acquisition: AcquisitionFunction, seed: int = 0) -> tuple[Tensor, float]:
        """Maximize a ``q = 1`` acquisition function over the domain.

        The global random state is not used: equal seeds give equal results.

        Args:
            acquisition: The acquisition function, which is evaluated on ``b x 1 x d`` tensors.
            seed: The seed of everything that the optimizer draws.

        Returns:
            The maximizer, a ``d``-dimensional tensor, and the value there.
        """

    def in_context(self, context: Tensor) -> Domain:
        """Return the domain of ``(context, point)`` with this context; only points are chosen.

        This is needed for contexts, and for ``TimeVaryingKernel``.

        Args:
            context: ``c`` numbers, float64.

        Returns:
            A domain in ``c + d`` dimensions, of which the context's come first.
        """
        raise self._lacks("in_context")

    @abstractmethod
    def check_point(self, name: str, x: Any) -> Tensor:
        """Return ``x`` as a ``d``-dimensional float64 tensor if it lies in the domain.

        Args:
            name: The name of the argument, for error messages.
            x: A point: a float64 tensor or a list of numbers.

        Raises:
            TypeError: If it is a tensor with another dtype.
            ValueError: If it has another shape, is not finite, or lies outside.
        """

    def decode(self, x: Any) -> dict[str, Any] | None:
        """Return the native values of a point by name; None if the domain has no names.

        Args:
            x: A point, ``d``-dimensional.
        """
        return None

    def arm_of(self, x: Tensor) -> int | None:
        """Return the index of a point if the set is a list of arms; otherwise None.

        Args:
            x: A point of the set, ``d``-dimensional.
        """
        return None

    def few_points(self) -> Arms | None:
        """Return all points if they are few enough to evaluate all, as arms are; otherwise None."""
        return None

    def even_point(self, index: int, seed: int) -> Tensor:
        """Return a point of a sequence that covers the set evenly, or of uniform draws.

        Args:
            index: The place in the sequence, from 0.
            seed: The seed of the sequence.

        Returns:
            ``d`` coordinates.
        """
        return self.sample(1, generator(seed, index, "even")).squeeze(0)

    def instead_of(self, x: Tensor, seed: int) -> Arms:
        """Return points among which to look for another one than a given one.

        Args:
            x: The point, ``d`` coordinates.
            seed: The seed of the points that are drawn if not all can be listed.
        """
        draws = self.sample(FEW_POINTS, generator(seed, 0, "instead"))
        return Arms(torch.unique(draws, dim=0))

    def facts(self) -> dict[str, Any]:
        """Return what an acquisition function may need to know, by the name of its option."""
        return {"dim": self.dim}

    @property
    def input_bounds(self) -> Tensor:
        """``2 x d`` bounds with which a model can normalize points: the range of arms.

        Raises:
            TypeError: If the set shows no ``bounds``.
        """
        if self.bounds is None:
            raise TypeError(
                f"{type(self).__name__} shows no bounds with which inputs could be normalized."
            )
        return self.bounds

    def input_transform(self, context_bounds: Any = None) -> InputTransform | None:
        """Return the transform that encodes points for a model; None if ``Normalize`` is enough.

        Args:
            context_bounds: ``2 x c`` bounds of the context, if inputs begin with one.
        """
        return None

    def recorded_parts(self) -> dict[str, Any]:
        """Return the parts that identify this set, by name; a storage records them.

        These are the attributes with the names of the constructor's arguments, or all of them.
        """
        known = inspect.signature(type(self)).parameters
        parts = {key: getattr(self, key) for key in known if hasattr(self, key)}
        return parts or dict(vars(self))

    def _lacks(self, name: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} has no {name}, which is needed here. Define it, or use "
            "arms: Arms(domain.sample(1000))."
        )


def first_of_the_largest(
    values: Tensor,
    check: bool = True,
    scale: ValueScale | None = None,
    among: Tensor | None = None,
) -> Tensor:
    """Return the first index whose value is within the tie tolerance of the largest.

    The tolerance is ``1e-9 * max(unit, |largest - offset|)``, or eight roundings of the offset if
    these are more.

    Args:
        values: ``batch_shape x num_arms`` acquisition values.
        check: Whether to reject values that are not finite, which for a GPU means waiting.
        scale: The unit and the offset of the values; 1 and 0 if omitted.
        among: Indices (int64), in order, to choose from; other values do not matter.

    Returns:
        ``batch_shape`` indices (int64).

    Raises:
        ValueError: If a value is NaN or infinite.

    Example:
        >>> int(first_of_the_largest(torch.tensor([0.0, 1.0 - 1e-12, 1.0], dtype=torch.float64)))
        1
    """
    scale = ValueScale() if scale is None else scale
    if among is not None:
        return among[first_of_the_largest(values[..., among], check, scale)]
    if values.numel() == values.shape[-1] and values.device.type == "cpu":
        # NumPy on the same memory, because many small calls of PyTorch cost more than the search
        row = values.detach().numpy().reshape(-1)
        top = float(row.max())  # NaN if any entry is
        if not (math.isfinite(top) and math.isfinite(row.min())):
            check_finite("the acquisition's values", values)
        close = row >= top - scale.tolerance(top)
        return torch.full(values.shape[:-1], int(close.argmax()))
    if check:
        check_finite("the acquisition's values", values)
    largest = values.amax(-1, keepdim=True)
    relative = TIE_TOLERANCE * (largest - scale.offset).abs().clamp_min(scale.unit)
    threshold = largest - relative.clamp_min(ROUNDING * abs(scale.offset))
    index = torch.arange(values.shape[-1], device=values.device)
    return torch.where(values >= threshold, index, values.shape[-1]).amin(-1)


class Arms(Domain):
    """A finite set of points.

    Ties of an acquisition function are broken toward the smallest index: the chosen arm is the
    first whose value is within ``1e-9 * max(unit, |largest value - offset|)`` of the largest. Two
    correct programs that round differently therefore choose the same arm. For acquisition functions
    in outcome units the unit is the prior standard deviation and the offset the prior mean, so that
    the choice does not depend on the unit of the outcomes. A function that does not state its scale
    (see :class:`ValueScale`) has the offset 0 and the unit 1, or its largest absolute value if this
    is smaller.

    Args:
        choices: A ``num_arms x d`` tensor, array, table or nested sequence, one arm per row, all
            distinct.

    Raises:
        TypeError: If ``choices`` is a tensor whose dtype is not float64.
        ValueError: If it is empty, not a matrix, not finite, or two rows are equal.

    Example:
        >>> arms = Arms([[0.0], [0.5], [1.0]])
        >>> arms.num_arms, arms.dim
        (3, 1)
        >>> arms.index_of(torch.tensor([[1.0], [0.0]], dtype=torch.float64)).tolist()
        [2, 0]
    """

    choices: Tensor

    def __init__(self, choices: Tensor | Sequence[Sequence[float]]) -> None:
        """See the class."""
        self.choices = check_matrix("choices", choices).detach() + 0.0  # -0.0 and 0.0 are the same
        if self.choices.numel() == 0:
            shape, what = tuple(self.choices.shape), "arm" if len(self.choices) == 0 else "column"
            raise ValueError(f"choices has shape {shape}; at least one {what} is needed.")
        self.num_arms, self.dim = self.choices.shape
        self._keys, self._order = _hash_rows(self.choices).sort(stable=True)
        if bool((self._keys[1:] == self._keys[:-1]).any()):
            _ = self._index  # which distinguishes equal rows from equal hashes

    def __repr__(self) -> str:
        """Show the number of arms."""
        return f"Arms({self.num_arms} arms in {self.dim} dimensions)"

    @property
    def search_assumptions(self) -> tuple[str, ...]:
        return ()

    @property
    def arms(self) -> Arms:
        return self

    @property
    def volume(self) -> float:
        """The number of arms (integrals over arms are sums)."""
        return float(self.num_arms)

    def sample(self, num_points: int, generator: torch.Generator | None = None) -> Tensor:
        num_points = check_integer("num_points", num_points, minimum=0)
        index = torch.randint(self.num_arms, (num_points,), generator=generator)
        return self.choices[index.to(self.choices.device)]

    def maximize(self, acquisition: AcquisitionFunction, seed: int = 0) -> tuple[Tensor, float]:
        """Evaluate every arm and take the first of the largest; see :meth:`Domain.maximize`.

        An acquisition function with a tensor ``choices`` is evaluated at those that are arms.
        """
        points, choices = self.choices, choices_of(acquisition)
        if choices is not None and not torch.equal(choices, points):
            points = _kept(choices, self._find(choices)[1])
        with torch.no_grad(), seeded_globally(derive_seed(seed, 0, "maximize")):
            values = torch.cat([acquisition(c.unsqueeze(-2)) for c in points.split(4096)])
        scale = value_scale_of(acquisition)
        if scale is None:
            largest = float(values.abs().max()) if values.numel() else 1.0
            scale = ValueScale(unit=min(largest, 1.0)) if math.isfinite(largest) else ValueScale()
        index = int(first_of_the_largest(values, scale=scale))
        return points[index].clone(), float(values[index])

    def few_points(self) -> Arms:
        """Return the set itself, whatever its size."""
        return self

    def instead_of(self, x: Tensor, seed: int) -> Arms:
        """Return the set itself.

        Args:
            x: The point, ``d`` coordinates.
            seed: Not used.
        """
        return self

    def facts(self) -> dict[str, Any]:
        return {"num_arms": self.num_arms, "dim": self.dim, "choices": self.choices}

    @property
    def input_bounds(self) -> Tensor:
        low, high = self.choices.aminmax(dim=0)
        # a column with a single value is without information
        return torch.stack([low, torch.where(low == high, low + 1.0, high)])

    def in_context(self, context: Tensor) -> Arms:
        context = context.to(self.choices.device)
        return Arms(torch.cat([context.expand(self.num_arms, -1), self.choices], dim=-1))

    def check_point(self, name: str, x: Any) -> Tensor:
        point = check_coordinates(name, x, self.dim).to(self.choices.device)
        return self.choices[self.index_of(point.unsqueeze(0), name)].squeeze(0)

    def arm_of(self, x: Tensor) -> int:
        return self._index[tuple(x.tolist())]

    def index_of(self, X: Tensor, name: str = "X") -> Tensor:
        """Return the arm indices of the rows of ``X``.

        Args:
            X: An ``n x d`` tensor whose rows are arms, to the last bit.
            name: The name of ``X`` in error messages.

        Returns:
            ``n`` indices (int64).

        Raises:
            ValueError: If a row is not an arm.
        """
        X = check_matrix(name, X, num_columns=self.dim)
        if len(X) > _FEW_ROWS:
            found, are_arms = self._find(X)
            if bool(are_arms.all()):
                return found
        rows = X.tolist()
        try:
            index = [self._index[tuple(row)] for row in rows]
        except KeyError as error:
            row = list(error.args[0])
            distances = (self.choices - self.choices.new_tensor(row)).norm(dim=-1)
            nearest = int(distances.argmin())
            raise ValueError(
                f"{name} has the row {row}, which is not one of the {self.num_arms} arms (arm "
                f"{nearest} is nearest, at distance {float(distances[nearest]):.3g}). Take rows of "
                "Arms.choices unchanged, or make it an arm: Arms(torch.cat([choices, X]))."
            ) from None
        return torch.tensor(index, dtype=torch.long, device=self.choices.device)

    def _find(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return which arms the rows are, and whether they are arms, ``n`` indices and booleans."""
        X = X.to(self.choices.device)
        place = torch.searchsorted(self._keys, _hash_rows(X)).clamp_max(self.num_arms - 1)
        found = self._order[place]
        return found, (self.choices[found] == X).all(-1)

    @cached_property
    def _index(self) -> dict[tuple[float, ...], int]:
        index: dict[tuple[float, ...], int] = {}
        for i, row in enumerate(self.choices.tolist()):
            first = index.setdefault(tuple(row), i)
            if first != i:
                raise ValueError(
                    f"choices rows {first} and {i} are the same point {row}; each arm may be "
                    "listed once. Remove repeats with torch.unique(choices, dim=0)."
                )
        return index


def _kept(choices: Tensor, inside: Tensor) -> Tensor:
    """Return the points of an acquisition function that are in the domain."""
    if not bool(inside.any()):
        raise ValueError(
            "none of the points in choices= of the acquisition function is in the domain, or in "
            "what available=, fixed= and avoid= leave of it. Leave some of them, or leave out the "
            "option."
        )
    return choices[inside]


def _hash_rows(X: Tensor) -> Tensor:
    """Return a 64-bit number for each row, the same for equal numbers (also 0.0 and -0.0)."""
    bits = (X + 0.0).contiguous().view(torch.int64)
    bits = (bits ^ (bits >> 32)) * _HASH_FACTOR
    places = torch.full((X.shape[-1],), _HASH_FACTOR, device=X.device).cumprod(0)
    return ((bits ^ (bits >> 29)) * places).sum(-1)


_FEW_ROWS = 16  # up to this number, a dictionary is faster than a search in an array

_HASH_FACTOR = 0x1E3779B97F4A7C15
"""An odd number whose bits look random; products wrap around."""


class Box(Domain):
    """A box ``[low, high]^d``, optionally with integer dimensions.

    Args:
        bounds: One ``(low, high)`` tuple per dimension, as in ``[(-5.0, 10.0), (0.0, 15.0)]``; or
            BoTorch's layout, lower bounds first: a ``2 x d`` tensor, array, table or nested list.
            A list of two pairs that could be either is refused. See :meth:`from_pairs` for pairs
            that are not tuples.
        integer_dims: Indices of the integer dimensions; their bounds must be integers.
        num_restarts: The number of starting points of the acquisition's local optimization.
        raw_samples: The number of quasi-random points from which these are chosen.
        inequality_constraints: In the format of ``optimize_acqf``: ``(indices, coefficients, rhs)``
            triples, each for ``sum(coefficients * x[indices]) >= rhs``.
        equality_constraints: Triples for ``sum(coefficients * x[indices]) == rhs``, on continuous
            dimensions.
        nonlinear_inequality_constraints: ``(function, True)`` pairs; the function maps a point, a
            vector of ``d`` coordinates, to a number that is at least 0 if it is feasible, and uses
            PyTorch, so that it has a gradient. A storage records its name: define it in a module.

    Raises:
        TypeError: If ``bounds`` is a tensor with a dtype other than float64.
        ValueError: If a bound is not finite, a lower bound is not below its upper bound, an
            integer dimension does not exist or has a fractional bound, or no point meets all
            constraints.

    Example:
        >>> box = Box([(0.0, 1.0), (-5.0, 5.0)])
        >>> box.dim, box.volume
        (2, 10.0)
        >>> box.bounds.tolist()
        [[0.0, -5.0], [1.0, 5.0]]
    """

    def __init__(
        self,
        bounds: Tensor | Sequence[Sequence[float]],
        integer_dims: Sequence[int] = (),
        num_restarts: int = 10,
        raw_samples: int = 256,
        *,
        inequality_constraints: Sequence[Any] | None = None,
        equality_constraints: Sequence[Any] | None = None,
        nonlinear_inequality_constraints: Sequence[Any] | None = None,
    ) -> None:
        """See the class."""
        self.bounds = read_bounds("bounds", bounds)
        self.dim = self.bounds.shape[1]
        remedy = f"Give the indices of the dimensions in a list, as in [{integer_dims!r}]."
        check_instance("integer_dims", integer_dims, Iterable, remedy)
        self.integer_dims = tuple(
            sorted({check_integer("integer_dims entry", i, minimum=0) for i in integer_dims})
        )
        for i in self.integer_dims:
            if i >= self.dim:
                raise ValueError(
                    f"integer_dims names dimension {i}, but the box has {self.dim} "
                    f"(numbered from 0)."
                )
            if not torch.equal(self.bounds[:, i], self.bounds[:, i].round()):
                raise ValueError(
                    f"bounds of integer dimension {i} are {self.bounds[:, i].tolist()}; they must "
                    "be whole numbers. The rows of nested lists are the lower bounds, then the "
                    "upper bounds; one (low, high) pair per dimension is a list of tuples."
                )
        ends = self.bounds.T.tolist()
        grids = {i: Whole(int(ends[i][0]), int(ends[i][1])) for i in self.integer_dims}
        self.coordinates = Coordinates(self.bounds, grids)
        self.num_restarts = check_integer("num_restarts", num_restarts, minimum=1)
        self.raw_samples = check_integer("raw_samples", raw_samples, minimum=num_restarts)
        given = (inequality_constraints, equality_constraints, nonlinear_inequality_constraints)
        if any(each is not None for each in given):
            self._constrain(*given)

    bounds: Tensor

    @property
    def search_assumptions(self) -> tuple[str, ...]:
        numerically = "the acquisition is maximized exactly (on a box it is numerically)"
        if self.feasible is None:
            return (numerically,)
        against = (
            "regret is against the best point that meets the constraints of the domain, which "
            "were fixed before the data"
        )
        return (numerically, against)

    def _constrain(
        self, inequality: Any, equality: Any, nonlinear: Any, names: tuple[str, ...] = ()
    ) -> None:
        """Set the constraints; :attr:`feasible` is None without any."""
        limits = read_linear(inequality, self.dim, False) + read_linear(equality, self.dim, True)
        conditions = read_nonlinear(nonlinear)
        if limits or conditions:
            self.feasible = FeasibleSet(self.coordinates, limits, conditions, names)
            self.feasible.check_not_empty()

    @property
    def constraints(self) -> dict[str, Any]:
        """The given constraints by the names of their arguments."""
        return {} if self.feasible is None else self.feasible.given

    def recorded_parts(self) -> dict[str, Any]:
        return {**super().recorded_parts(), **self.constraints}

    @classmethod
    def from_pairs(
        cls,
        pairs: Tensor | Iterable[Sequence[float]],
        integer_dims: Sequence[int] = (),
        num_restarts: int = 10,
        raw_samples: int = 256,
        **constraints: Any,
    ) -> Box:
        """Return the box of one ``(low, high)`` pair per dimension.

        Args:
            pairs: A ``d x 2`` tensor or array, or pairs in any iterable, such as a list of lists or
                ``zip(low, high)``.
            integer_dims: As for the class.
            num_restarts: As for the class.
            raw_samples: As for the class.
            constraints: ``inequality_constraints=``, ``equality_constraints=`` and
                ``nonlinear_inequality_constraints=``, in the forms that the class accepts.

        Raises:
            TypeError: If ``pairs`` is a tensor with a dtype other than float64.
            ValueError: If it is not ``d x 2``, or as for the class.

        Example:
            >>> Box.from_pairs([[-5.0, 10.0], [0.0, 15.0]])
            Box([(-5.0, 10.0), (0.0, 15.0)])
        """
        check_no_names("pairs", pairs)
        pairs = without_labels(pairs)
        if is_listed(pairs) and not hasattr(pairs, "dtype"):
            pairs = rows_in_lists("pairs", list(pairs))
        rows = check_matrix("pairs", pairs, 2, "one (low, high) pair per row", ONE_DIMENSION)
        read_bounds("pairs", [tuple(pair) for pair in rows.tolist()])
        return Box(rows.T.contiguous(), integer_dims, num_restarts, raw_samples, **constraints)

    def __repr__(self) -> str:
        """Show the box as Python code."""
        integer = f", integer_dims={self.integer_dims}" if self.integer_dims else ""
        pairs = [*map(tuple, self.bounds.T.tolist())]
        return f"Box({pairs}{integer}{constraints_text(self.constraints)})"

    def facts(self) -> dict[str, Any]:
        """Return the dimension and the longest side; see :meth:`Domain.facts`."""
        return {
            "dim": self.dim,
            "side_length": float((self.bounds[1] - self.bounds[0]).max()),
        }

    @property
    def unordered_dims(self) -> tuple[int, ...]:
        """The dimensions of categories without an order."""
        return self.coordinates.unordered

    def few_points(self) -> Arms | None:
        """Return all points if there are at most 1000, otherwise None."""
        return self._few

    @cached_property
    def _few(self) -> Arms | None:
        points = self.coordinates.all_points(FEW_POINTS)
        if points is None:
            return None
        if self.feasible is not None:
            points = points[self.feasible.contains(points)]
        if len(points) == 0:
            raise ValueError("what is left of the box violates its constraints.")
        return Arms(points)

    def even_point(self, index: int, seed: int) -> Tensor:
        """Return a point of a scrambled Sobol sequence; a uniform draw under constraints.

        Args:
            index: The place in the sequence, from 0.
            seed: The seed of the sequence.
        """
        if self.feasible is not None:
            return super().even_point(index, seed)
        scrambled = derive_seed(seed, 0, "even") % 2**31
        sobol = torch.quasirandom.SobolEngine(self.dim, scramble=True, seed=scrambled)
        unit = sobol.fast_forward(index).draw(1, dtype=self.bounds.dtype).squeeze(0)
        # the draw may be 1, which is outside of the grid of a discrete dimension
        return self.coordinates.from_unit(unit.clamp_max(1.0 - 2.0**-53).to(self.bounds.device))

    def instead_of(self, x: Tensor, seed: int) -> Arms:
        """Return all points if they are few; otherwise draws, half of them changes of the point.

        Args:
            x: The point, ``d`` coordinates.
            seed: The seed of the draws.
        """
        if (few := self.few_points()) is not None:
            return few
        draws = super().instead_of(x, seed).choices
        # of the coordinates of a change, each is that of the point or that of a draw
        stays = torch.rand(draws.shape, generator=generator(seed, 0, "stays")) < 0.5
        stays[::2] = False
        points = torch.unique(torch.where(stays.to(x.device), x, draws), dim=0)
        return Arms(points if self.feasible is None else points[self.feasible.contains(points)])

    @property
    def volume(self) -> float:
        """The product of the side lengths; a discrete dimension counts the number of its values.

        Constraints do not count.
        """
        sides = self.coordinates.sides
        for i, grid in self.coordinates.grids.items():
            sides[i] = grid.count
        return float(sides.prod())

    def sample(self, num_points: int, generator: torch.Generator | None = None) -> Tensor:
        num_points = check_integer("num_points", num_points, minimum=0)
        if self.feasible is not None:
            return self.feasible.sample(num_points, generator)
        uniform = torch.rand(num_points, self.dim, dtype=self.bounds.dtype, generator=generator)
        return self.coordinates.from_unit(uniform.to(self.bounds.device))

    def maximize(self, acquisition: AcquisitionFunction, seed: int = 0) -> tuple[Tensor, float]:  # noqa: C901, PLR0915 - one search after the other, as long as a bound is missed
        """Maximize with BoTorch's optimizers; see :meth:`Domain.maximize`.

        Without discrete dimensions, this is ``optimize_acqf``. With at most 16 combinations of
        discrete values, it is ``optimize_acqf_mixed`` over all of them, otherwise a local search by
        turns in the discrete and in the continuous dimensions. At most 1000 points are all
        evaluated. An acquisition function with a tensor ``choices`` can be evaluated only at these
        points, and is maximized over those that are in the box. Local searches are those of
        :func:`~botorch_bandits.gen_candidates_batched` where BoTorch takes them. An acquisition
        function with an ``X_baseline`` is also evaluated near the best of these points,
        as often as at random points. Under constraints, it is ``optimize_acqf`` with these
        constraints, from feasible points.
        """
        choices = choices_of(acquisition)
        if choices is not None:  # it is defined only on a finite set of points
            inside = self.coordinates.has(choices)
            if self.feasible is not None:
                inside &= self.feasible.contains(choices)
            return Arms(_kept(choices, inside)).maximize(acquisition, seed)
        if (few := self.few_points()) is not None:
            return few.maximize(acquisition, seed)
        common: dict[str, Any] = {
            "q": 1,
            "num_restarts": self.num_restarts,
            "raw_samples": self.raw_samples,
            # one evaluation of all raw samples; the local searches run side by side
            "options": {"batch_limit": self.num_restarts, "init_batch_limit": self.raw_samples},
        }
        own: dict[str, Any] = {"gen_candidates": gen_candidates_batched}
        rows, near = getattr(acquisition, "X_baseline", None), dict[str, Any]()
        if rows is not None and len(rows):  # BoTorch needs one
            near = {"sample_around_best": True, "sample_around_best_sigma": NEAR}
            near["init_batch_limit"] = 2 * self.raw_samples
        scale = value_scale_of(acquisition) or ValueScale()
        is_ordinary = 1.0 / ORDINARY <= scale.unit <= ORDINARY and abs(scale.offset) <= ORDINARY
        if is_ordinary:  # unchanged, to the last bit
            scale = ValueScale()
        else:
            acquisition = InUnits(acquisition, *scale)
        fixed, grids = self.coordinates.held, self.coordinates.grids
        draws = derive_seed(seed, 0, "maximize")
        if self.feasible is not None:
            search = Search(self.feasible, self.num_restarts, self.raw_samples)
            source = torch.Generator().manual_seed(draws % 2**63)
            with _searching(draws):
                x, found = search.maximize(acquisition, source, rows)
            return x, scale.offset + scale.unit * found
        if math.prod(grid.count for grid in grids.values()) > LARGEST_MIXED:
            with _searching(draws):
                starts = self._starts(acquisition, rows)
                x, found = maximize_mixed(acquisition, starts, self.coordinates)
            return x, scale.offset + scale.unit * found
        bounds, to_box = self.bounds, None
        if near:
            common["options"] |= near
        if self.dim > MAXIMUM_DIMENSION:  # BoTorch's searches ignore side lengths
            to_box = self._cube(grids)
        if to_box is not None:
            acquisition = InUnits(acquisition, to_box=to_box)
            bounds = to_box.inverse(self.bounds)
        with _searching(draws):
            if not grids:
                common |= {"fixed_features": fixed or None, **own}
                candidate, value = optimize_acqf(acquisition, bounds, **common)
            else:
                values = (grid.values() for grid in grids.values())
                grid = [
                    {**fixed, **dict(zip(grids, each, strict=True))}
                    for each in itertools.product(*values)
                ]
                if near:  # each combination has starting points near the best
                    # a share of each of the searches, which together take twice the usual
                    own["num_restarts"] = max(2, -(-2 * self.num_restarts // len(grid)))
                    own["raw_samples"] = max(16, -(-2 * self.raw_samples // len(grid)))
                candidate, value = optimize_acqf_mixed(
                    acquisition, bounds, fixed_features_list=grid, **{**common, **own}
                )
        candidate = candidate.detach().reshape(self.dim)
        candidate = candidate if to_box is None else to_box(candidate)
        found = scale.offset + scale.unit * float(value)
        return self.coordinates.snap(candidate), found

    def _starts(self, acquisition: AcquisitionFunction, rows: Tensor | None) -> Tensor:
        """Return starting points of a mixed search: the best of uniform draws, and of changed rows.

        Args:
            acquisition: The function to maximize.
            rows: ``n x d`` points near which it may be largest, or None.
        """
        uniform = torch.rand(self.raw_samples, self.dim, dtype=self.bounds.dtype)
        draws = self.coordinates.from_unit(uniform.to(self.bounds.device))
        sets = [draws]
        if rows is not None and len(rows):
            grids = self.coordinates.grids
            around = rows[torch.randint(len(rows), (len(draws),))]
            around = around + NEAR * self.coordinates.sides * torch.randn_like(draws)
            # of the discrete coordinates, each is replaced with the same probability
            redrawn = torch.rand_like(draws) < 1.0 / len(grids)
            redrawn[:, [i for i in range(self.dim) if i not in grids]] = False
            sets.append(self.coordinates.snap(torch.where(redrawn, draws, around)))
        best = []
        for points in sets:
            with torch.no_grad():
                values = acquisition(points.unsqueeze(-2)).nan_to_num(nan=-math.inf)
            most = min(-(-self.num_restarts // len(sets)), len(points))
            best.append(points[values.topk(most).indices])
        return torch.cat(best)

    def in_context(self, context: Tensor) -> Box:
        coordinates = self.coordinates.behind(context)
        feasible = None if self.feasible is None else self.feasible.behind(coordinates)
        part, few = PartOfBox(self, coordinates, feasible), self.few_points()
        if few is not None:  # which need not be listed again in each context
            part._few = few.in_context(context)
        return part

    def check_point(self, name: str, x: Any) -> Tensor:
        point = check_coordinates(name, x, self.dim).to(self.bounds.device)
        for i, value in enumerate(point.tolist()):
            low, high = self.bounds[:, i].tolist()
            if not low <= value <= high:
                raise ValueError(
                    f"{name}[{i}] is {value}, outside [{low}, {high}]. Widen the box, or leave the "
                    "point out; an outcome that was measured there is not that of the bound."
                )
            if i in self.integer_dims and value != round(value):
                raise ValueError(f"{name}[{i}] is {value}; this dimension takes whole numbers.")
        if self.feasible is not None:
            self.feasible.check(name, point)
        return point

    def _cube(self, listed: Iterable[int]) -> ToBox | None:
        """Return the map from a box with sides of 1; None if all sides are of ordinary length.

        Args:
            listed: Discrete dimensions, which are left as they are.
        """
        side, low = self.coordinates.sides, self.bounds[0].clone()
        kept = side == 0.0  # dimensions with a single value
        kept[list(listed)] = True
        low[kept], side[kept] = 0.0, 1.0
        if bool(((side >= 1.0 / ORDINARY_SIDE) & (side <= ORDINARY_SIDE) | kept).all()):
            return None
        return ToBox(low, side)


FEW_POINTS = 1000
"""With at most this many points in all, each of them is evaluated."""

LARGEST_MIXED = 16
"""With at most this many combinations of discrete values, the rest is optimized for each."""

NEAR = 0.02
"""Standard deviation of starting points around the best points, in sides of the box."""

ORDINARY = 10.0
"""Units from a tenth of 1 up to this, and offsets up to this, suit BoTorch's optimizers unchanged,
whose tolerances are absolute."""


ORDINARY_SIDE = 100.0
"""Sides from a hundredth up to this suit BoTorch's optimizers unchanged, which stop when the slope
per unit of the coordinate is small."""


@contextmanager
def _searching(draws: int) -> Iterator[None]:
    """Draw from seeds of its own, and leave out warnings that need nothing to be done."""
    with seeded_globally(draws), warnings.catch_warnings():
        # a prior without data is flat, so every starting point is as good as any other
        warnings.simplefilter("ignore", BadInitialCandidatesWarning)
        # for a line search that stops at rounding error, the best point so far is taken
        warnings.filterwarnings("ignore", "Optimization failed", RuntimeWarning)
        warnings.filterwarnings("ignore", "Because you specified", RuntimeWarning)
        yield


class PartOfBox(Box):
    """A part of a box, or a box behind a context, made of what has been checked.

    Args:
        box: The box, whose sizes of the search count.
        coordinates: The coordinates of the part.
        feasible: The constraints of the part; None if there are none.
    """

    def __init__(
        self, box: Box, coordinates: Coordinates, feasible: FeasibleSet | None = None
    ) -> None:
        """See the class."""
        self.coordinates, self.feasible = coordinates, feasible
        self.bounds, self.dim = coordinates.bounds, coordinates.dim
        self.num_restarts, self.raw_samples = box.num_restarts, box.raw_samples

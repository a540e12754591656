"""The domain of named parameters: :class:`Space`.

A space is a box whose coordinates have names; points are read and written as native values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from botorch.models.transforms import ChainedInputTransform, Normalize
from botorch.models.transforms.input import InputTransform, NumericToCategoricalEncoding
from torch import Tensor
from torch.nn.functional import one_hot

from botorch_bandits.checks import (
    DTYPE,
    check_instance,
    check_matrix,
    check_text,
    is_list,
    without_labels,
)
from botorch_bandits.domains import Box
from botorch_bandits.feasible_sets import constraints_text, read_indices
from botorch_bandits.optim import Coordinates
from botorch_bandits.spaces.conversions import of_configspace, of_optuna, parse_parameter
from botorch_bandits.spaces.parameters import Parameter


class Space(Box):
    """A domain of named parameters: numbers, categories and fixed values.

    Args:
        parameters: :class:`Float`, :class:`Integer`, :class:`Categorical` and :class:`Fixed`
            parameters by name. Their order is the order of the coordinates.
        num_restarts: Starting points of the acquisition's local optimization.
        raw_samples: Quasi-random points from which the starting points are chosen.
        inequality_constraints: As for :class:`Box`, with parameter names or positions as indices.
            They apply to numbers that are not on a logarithmic scale, and to the positions of
            ordered categories.
        equality_constraints: Triples for equalities in the same format, on ``Float`` parameters.
        nonlinear_inequality_constraints: ``(function, True)`` pairs; the function maps the ``d``
            coordinates to a number that is at least 0 if the point is feasible.

    Attributes:
        names: The names of the coordinates, in order.

    Raises:
        TypeError: If a value is not a parameter, or a name is not a string.
        ValueError: If no parameter varies.

    Example:
        >>> from botorch_bandits import Categorical, Float, Integer
        >>> space = Space({
        ...     "C": Float(1e-3, 1e3, log=True),
        ...     "depth": Integer(2, 12),
        ...     "kernel": Categorical(["rbf", "poly"]),
        ... })
        >>> x = space.encode({"C": 0.01, "depth": 3, "kernel": "poly"})
        >>> x.tolist()
        [-2.0, 3.0, 1.0]
        >>> space.decode(x)
        {'C': 0.01, 'depth': 3, 'kernel': 'poly'}
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        num_restarts: int = 10,
        raw_samples: int = 256,
        *,
        inequality_constraints: Sequence[Any] | None = None,
        equality_constraints: Sequence[Any] | None = None,
        nonlinear_inequality_constraints: Sequence[Any] | None = None,
    ) -> None:
        """See the class."""
        check_instance("parameters", parameters, Mapping, "Pass a dict from names to parameters.")
        for name, parameter in parameters.items():
            if not check_text("a parameter's name", name, "give it some letters.").strip():
                raise ValueError(f"a parameter's name is {name!r}; give it some letters.")
            check_instance(
                f"parameter {name!r}",
                parameter,
                Parameter,
                "Pass Float(low, high), Integer(low, high), Categorical(values) or Fixed(value).",
            )
        self._parameters = dict(parameters)
        self._varied = {n: p for n, p in self._parameters.items() if p.varies}
        if not self._varied:
            raise ValueError(
                f"parameters is {self._parameters}, where nothing varies. Give at least one Float, "
                "Integer or Categorical."
            )
        self.names = tuple(self._varied)
        varied = list(self._varied.values())
        super().__init__(
            torch.tensor([p.bounds for p in varied], dtype=DTYPE).T,
            [i for i, p in enumerate(varied) if p.grid is not None and not p.log],
            num_restarts,
            raw_samples,
        )
        grids = {i: p.grid for i, p in enumerate(varied) if p.grid is not None}
        self._logarithms = [i for i in grids if varied[i].log]
        self.coordinates = Coordinates(self.bounds, grids)
        given = (inequality_constraints, equality_constraints, nonlinear_inequality_constraints)
        if any(each is not None for each in given):
            inequality = self._by_place("inequality_constraints", inequality_constraints)
            equality = self._by_place("equality_constraints", equality_constraints)
            self._constrain(inequality, equality, nonlinear_inequality_constraints, self.names)

    def _by_place(self, name: str, given: Any) -> Any:
        """Return linear constraints with positions as indices instead of names.

        Raises:
            ValueError: If a parameter is unknown, or a sum with its values makes no sense.
        """
        if not is_list(given):
            return given
        told = []
        for k, triple in enumerate(given):
            if not is_list(triple, 3):
                told.append(triple)  # rejected later
                continue
            indices = read_indices(f"{name}[{k}]", triple[0])
            numbers = {known: i for i, known in enumerate(self.names)}
            places = [numbers.get(one, one) for one in indices]
            for one in places:
                if isinstance(one, str):
                    raise ValueError(
                        f"{name}[{k}] names {one!r}; the parameters that vary are "
                        f"{', '.join(self.names)}."
                    )
            for i in (place for place in places if place in range(self.dim)):
                is_logarithm = self._varied[self.names[i]].log
                if is_logarithm or i in self.unordered_dims:
                    what = "a logarithmic scale" if is_logarithm else "values without an order"
                    raise ValueError(
                        f"{name}[{k}] is on {self.names[i]!r}, which has {what}, so its coordinate "
                        "cannot be added to others. Write "
                        "nonlinear_inequality_constraints=[(function, True)] with a function of "
                        "the coordinates."
                    )
            told.append((places, triple[1], triple[2]))
        return told

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Space:
        """Return the space that strings in the format of the command line's ``--param`` describe.

        Values in lists are Python numbers, ``True``, ``False``, ``None`` and quoted strings;
        anything else is also a string. They are separated by commas; a string with a comma needs
        quotes.

        Args:
            texts: One string per parameter: ``NAME=float:LOW:HIGH``, ``NAME=log:LOW:HIGH`` (real,
                on a logarithmic scale), ``NAME=int:LOW:HIGH``, ``NAME=log-int:LOW:HIGH``,
                ``NAME=choice:A,B,...``, ``NAME=ordered:A,B,...`` or ``NAME=fixed:VALUE``.

        Raises:
            TypeError: If ``texts`` is not a list of strings.
            ValueError: If the strings do not describe a space.

        Example:
            >>> Space.parse(["C=log:1e-3:1e3", "depth=int:2:12", "kernel=choice:rbf,poly"])
            Space({'C': Float(0.001, 1000.0, log=True), 'depth': Integer(2, 12),
            'kernel': Categorical(['rbf', 'poly'])})
        """
        if isinstance(texts, str):
            raise TypeError(f"texts is {texts!r}; pass a list of strings, one per parameter.")
        parameters: dict[str, Parameter] = {}
        for text in texts:
            name, parameter = parse_parameter(check_text("a parameter", text))
            if name in parameters:
                raise ValueError(f"{name!r} is described twice; give each parameter once.")
            parameters[name] = parameter
        return cls(parameters)

    @classmethod
    def from_optuna(cls, distributions: Mapping[str, Any]) -> Space:
        """Return the space of Optuna's distributions.

        A distribution with a step becomes an ordered category of its values, which is exact. A
        single value becomes a fixed parameter.

        Args:
            distributions: ``FloatDistribution``, ``IntDistribution`` and
                ``CategoricalDistribution`` by name, such as ``trial.distributions``.

        Raises:
            ImportError: If Optuna is not installed.
            TypeError: If a value is not a distribution, or a choice is not a plain value.
            ValueError: If a step leads to more than 1000 values, or nothing varies.

        Example:
            >>> from optuna.distributions import FloatDistribution, IntDistribution
            >>> Space.from_optuna({
            ...     "lr": FloatDistribution(1e-4, 1.0, log=True),
            ...     "units": IntDistribution(16, 64, step=16),
            ... })
            Space({'lr': Float(0.0001, 1.0, log=True),
            'units': Categorical([16, 32, 48, 64], ordered=True)})
        """
        check_instance("distributions", distributions, Mapping, "Pass a dict from names to them.")
        return cls({name: of_optuna(name, known) for name, known in distributions.items()})

    @classmethod
    def from_configspace(cls, space: Any) -> Space:
        """Return the space that corresponds to a ``ConfigurationSpace`` of the package ConfigSpace.

        Defaults are left out: attach a point that was evaluated before with
        :meth:`.BanditLoop.attach`.

        Args:
            space: A space of uniform floats and integers, categories, ordinals and constants,
                without conditions, forbidden clauses and weights.

        Raises:
            ImportError: If ConfigSpace is not installed.
            TypeError: If it is not a ``ConfigurationSpace``, or a value is not plain.
            ValueError: If it has something that a :class:`Space` does not have; the error says what
                to do.

        Example:
            >>> from ConfigSpace import ConfigurationSpace
            >>> Space.from_configspace(ConfigurationSpace({"x": (0.0, 1.0), "kind": ["a", "b"]}))
            Space({'kind': Categorical(['a', 'b']), 'x': Float(0.0, 1.0)})
        """
        return cls(of_configspace(space))

    def __repr__(self) -> str:
        """Show the space as Python code."""
        further = "".join(
            f", {name}={value}"
            for name, value, default in (
                ("num_restarts", self.num_restarts, 10),
                ("raw_samples", self.raw_samples, 256),
            )
            if value != default
        )
        return f"Space({self._parameters}{further}{constraints_text(self.constraints)})"

    def __eq__(self, other: object) -> bool:
        """Whether another space has the same parameters in the same order."""
        return type(other) is type(self) and repr(other) == repr(self)

    def __hash__(self) -> int:
        """Return the same number for equal spaces."""
        return hash(repr(self))

    @property
    def parameters(self) -> dict[str, Parameter]:
        """All parameters by name, in order; a copy."""
        return dict(self._parameters)

    def decode(self, x: Any) -> dict[str, Any]:
        """Return the native values of a point by name, fixed ones included.

        Args:
            x: ``d`` coordinates, or values that are already by name.

        Raises:
            TypeError: If it is a tensor whose dtype is not float64.
            ValueError: If it is not in the space.
        """
        x = without_labels(x, by_name=True)
        if isinstance(x, Mapping):
            return self.check_parameters(x)
        coordinates = iter(self.check_point("x", x).tolist())
        return {
            name: p.decode(next(coordinates) if p.varies else 0.0)
            for name, p in self._parameters.items()
        }

    def encode(self, parameters: Mapping[str, Any]) -> Tensor:
        """Return the point with these values, ``d``-dimensional, float64.

        Args:
            parameters: Values by name, also as a row of a data frame; fixed ones may be omitted.

        Raises:
            TypeError: If a value has the wrong type.
            ValueError: If a name is missing or unknown, or a value is outside its range or not one
                of the categories.
        """
        values = self.check_parameters(parameters)
        coordinates = [p.encode(values[name]) for name, p in self._varied.items()]
        return torch.tensor(coordinates, dtype=DTYPE, device=self.bounds.device)

    def check_parameters(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by name, in order and in their native types, fixed ones included.

        Args:
            parameters: See :meth:`encode`.

        Raises:
            TypeError: See :meth:`encode`.
            ValueError: See :meth:`encode`.
        """
        parameters = without_labels(parameters, by_name=True)
        unknown = [name for name in parameters if name not in self._parameters]
        if unknown:
            raise ValueError(
                f"parameter {unknown[0]!r} is not known; the space has "
                f"{', '.join(self._parameters)}."
            )
        missing = [name for name in self._varied if name not in parameters]
        if missing:
            raise ValueError(
                f"parameter {missing[0]!r} is missing; give a value for {', '.join(self._varied)}."
            )
        return {
            name: p.check(name, parameters[name]) if name in parameters else p.value  # type: ignore[attr-defined]
            for name, p in self._parameters.items()
        }

    def check_point(self, name: str, x: Any) -> Tensor:
        """Return a point of the space as coordinates.

        Args:
            name: The name of the argument, for error messages.
            x: Values by name, or ``d`` coordinates.

        Raises:
            TypeError: If it has the wrong type.
            ValueError: If it lies outside, or violates a constraint; see :meth:`encode` for values
                by name.
        """
        x = without_labels(x, by_name=True)
        if isinstance(x, Mapping):
            point = self.encode(x)
            if self.feasible is not None:
                self.feasible.check(name, point)
            return point
        point = super().check_point(name, x)
        nearest = self.coordinates.snap(point)
        for i in self._logarithms:
            whole, found = round(float(10.0 ** nearest[i])), float(10.0 ** point[i])
            if abs(found - whole) > 1e-9 * whole:  # logarithms may round differently elsewhere
                raise ValueError(
                    f"{name}[{i}] is {float(point[i])}, the logarithm of {found:.6g}, but "
                    f"{self.names[i]!r} takes whole numbers. Pass values by name."
                )
        return nearest

    def input_transform(self, context_bounds: Any = None) -> InputTransform | None:
        """Return the input transform that a model should apply to points before its kernel.

        This is BoTorch's one-hot encoding of categories without an order, followed by ``Normalize``
        over the resulting columns. A kernel with one lengthscale per column needs
        ``ard_num_dims=``:attr:`num_columns`.

        Args:
            context_bounds: ``2 x c`` bounds of the context, if the model's inputs begin with ``c``
                columns of a context, which are normalized with these bounds.

        Returns:
            None if every category has an order; ``Normalize`` with :attr:`bounds` is then
            sufficient.

        Example:
            >>> from botorch_bandits import Categorical, Float
        >>> space = Space({"x": Float(0.0, 2.0), "kernel": Categorical(["rbf", "poly"])})
            >>> X = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
            >>> space.input_transform()(X)
            tensor([[0.5000, 0.0000, 1.0000]], dtype=torch.float64)
        """
        bounds = self.bounds
        if context_bounds is not None:
            front = check_matrix("context_bounds", context_bounds)
            if len(front) != 2 or not bool((front[0] < front[1]).all()):
                raise ValueError(
                    f"context_bounds is {front.tolist()}; pass a row of lower bounds and a row of "
                    "upper bounds, each lower bound below its upper bound."
                )
            bounds = torch.cat([front.to(bounds), bounds], dim=-1)
        behind = bounds.shape[-1] - self.dim
        sizes = {behind + i: self.coordinates.grids[i].count for i in self.unordered_dims}
        if not sizes:
            return None
        encoding = NumericToCategoricalEncoding(
            dim=bounds.shape[-1],
            categorical_features=sizes,
            encoders={i: partial(one_hot, num_classes=size) for i, size in sizes.items()},
        )
        unit = bounds.new_tensor([[0.0], [1.0]])
        columns = [
            unit.expand(2, sizes[i]) if i in sizes else bounds[:, i : i + 1]
            for i in range(bounds.shape[-1])
        ]
        encoded = torch.cat(columns, dim=-1)
        normalize = Normalize(encoded.shape[-1], bounds=encoded)
        return ChainedInputTransform(encode=encoding, normalize=normalize)

    @property
    def num_columns(self) -> int:
        """The number of columns of a point after :meth:`input_transform`."""
        counts = [self.coordinates.grids[i].count for i in self.unordered_dims]
        return self.dim + sum(counts) - len(counts)

    def recorded_parts(self) -> dict[str, Any]:
        """See :meth:`Domain.recorded_parts`."""
        return {
            "parameters": self._parameters,
            "names": list(self._parameters),  # a mapping does not record the order
            "num_restarts": self.num_restarts,
            "raw_samples": self.raw_samples,
            **self.constraints,
        }

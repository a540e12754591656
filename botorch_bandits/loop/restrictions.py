r"""What a round may choose from: available arms, fixed coordinates, points to avoid.

:func:`read_restriction` turns the arguments of :meth:`.BanditLoop.ask` into a :class:`Restriction`:
the set :math:`D_t` of the round as a separate domain. The round maximizes over this set the
acquisition function that would otherwise be maximized over the whole domain, and uniform draws are
taken from this set.

On a box, points are avoided within the distance :math:`\rho = 0.01`. With :math:`p` the point that
is avoided and :math:`s_i` the sides of the box, the condition is

.. math:: \sqrt{\sum_{i \text{ continuous}} \Bigl(\frac{x_i - p_i}{s_i}\Bigr)^2
    + \#\{i \text{ discrete} : x_i \ne p_i\}} < \rho .
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.checks import (
    check_instance,
    check_integer,
    check_kept_exactly,
    check_matrix,
    check_number,
    is_listed,
    shown_value,
)
from botorch_bandits.domains import Arms, Box, Domain, PartOfBox, choices_of
from botorch_bandits.feasible_sets import Condition, FeasibleSet
from botorch_bandits.history import Query
from botorch_bandits.loop.settings import LoopSettings

AVOIDED_WITHIN = 0.01
"""The least distance of a query from an avoided point, in sides of the box."""


@dataclass(frozen=True, eq=False)
class Restriction:
    """What one round may choose from.

    Attributes:
        record: The restriction in plain values, as in a storage and :attr:`.Query.restriction`.
        part: The set of the round; all arms if :attr:`among` lists some of them.
        among: On arms, the indices of those that may be chosen, in order; otherwise None.
    """

    record: dict[str, Any]
    part: Arms | Box
    among: Tensor | None = None

    @cached_property
    def domain(self) -> Arms | Box:
        """The set of the round; most engines on arms avoid it, because sorting arms is slow."""
        if self.among is None or self.part.choices is None:
            return self.part
        return Arms(self.part.choices[self.among])


def read_restriction(
    settings: LoopSettings, available: Any = None, fixed: Any = None, avoid: Any = None
) -> Restriction | None:
    """Return what a round may choose from; None for the whole domain.

    Args:
        settings: The settings of the loop.
        available: See :meth:`.BanditLoop.ask`.
        fixed: See :meth:`.BanditLoop.ask`.
        avoid: See :meth:`.BanditLoop.ask`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a value is not in the domain, nothing is left to choose from, or the loop
            does not support the restriction.
    """
    fixed, avoid = (None if each is None or _is_empty(each) else each for each in (fixed, avoid))
    if available is None and fixed is None and avoid is None:
        return None
    if settings.detection is not None:
        raise ValueError(
            "available=, fixed= and avoid= cannot go with ChangePointRestart, whose test compares "
            "uniform draws from the whole domain. Use EvidenceRestart, which looks at all outcomes "
            "wherever they were chosen."
        )
    domain = settings.domain
    if domain.arms is not None:
        return _restricted_arms(domain.arms, available, fixed, avoid)
    if not isinstance(domain, Box):
        raise ValueError(
            f"{type(domain).__name__} is a domain of your own, which cannot be restricted for a "
            "round. Leave out available=, fixed= and avoid=, or use Arms, a Box or a Space."
        )
    return _restricted_box(domain, available, fixed, avoid)


def recorded_restriction(
    settings: LoopSettings, record: Mapping[str, Any] | None
) -> Restriction | None:
    """Return the restriction of a round that is on record.

    Args:
        settings: The settings of the loop.
        record: :attr:`.Query.restriction`.
    """
    if record is None:
        return None
    fixed = record.get("fixed")
    if fixed is not None and not settings.domain.names:
        fixed = {int(column): value for column, value in fixed.items()}
    among = record.get("arms", record.get("points"))
    return read_restriction(settings, among, fixed, record.get("avoid"))


def points_within(query: Query, domain: Domain) -> Tensor | None:
    """Return the points that a restricted round could choose from, ``n x d``.

    Args:
        query: The query of the round, whose restriction is not None.
        domain: The domain of the loop.

    Returns:
        None if there are not finitely many.
    """
    record = query.restriction or {}
    if (choices := domain.choices) is not None:
        return choices[record["arms"]]
    if "points" not in record:
        return None
    return query.x.new_tensor(record["points"])


def _restricted_arms(domain: Arms, available: Any, fixed: Any, avoid: Any) -> Restriction | None:
    there = np.ones(domain.num_arms, dtype=np.bool_)
    told = []
    if available is not None:
        there[:] = False
        there[_read_arms("available", available, domain)] = True
        told.append("available")
    if fixed is not None:
        for column, value in _read_columns(fixed, domain.dim).items():
            held = (domain.choices[:, column] == value).cpu().numpy()
            if not held.any():
                known = domain.choices[:, column].unique().tolist()
                raise ValueError(
                    f"fixed is {dict(fixed)}, but no arm has {value} in column {column}; there are "
                    f"{', '.join(f'{v:g}' for v in known[:8])}{', ...' if len(known) > 8 else ''}."
                )
            there &= held
        told.append("fixed")
    if avoid is not None:
        there[_read_arms("avoid", avoid, domain)] = False
        told.append("avoid")
    if not there.any():
        raise ValueError(
            f"{', '.join(told)} leave{'s' if len(told) == 1 else ''} none of the "
            f"{domain.num_arms} arms to choose from. Leave some, or do not ask in this round."
        )
    if there.all():
        return None
    among = torch.from_numpy(np.flatnonzero(there)).to(domain.choices.device)
    return Restriction({"arms": among.tolist()}, domain, among)


def _is_empty(given: Any) -> bool:
    try:
        return not isinstance(given, str) and len(given) == 0
    except TypeError:  # it has no length
        return False


def _read_arms(name: str, given: Any, domain: Arms) -> NDArray[np.int64]:
    """Return the numbers of arms that a user names by number, mask or point."""
    remedy = (
        f"pass numbers of arms (0 to {domain.num_arms - 1}), {domain.num_arms} truth values, or "
        "points as rows."
    )
    if not is_listed(given):
        raise TypeError(f"{name} is {shown_value(given)}; {remedy}")
    is_plain = not hasattr(given, "ndim")  # neither a tensor nor an array
    if is_plain:
        given = list(given)
        if given and all(isinstance(each, Tensor) and each.dim() == 1 for each in given):
            given = torch.stack(given)  # the points
    check_kept_exactly(name, given)
    array = given.detach().cpu().numpy() if isinstance(given, Tensor) else _as_array(name, given)
    if array.size == 0:
        raise ValueError(f"{name} is empty, so that there is nothing to choose from; {remedy}")
    if array.ndim == 2 and array.dtype != np.bool_:
        rows = array.tolist() if is_plain else given
        points = check_matrix(name, rows, domain.dim, "points as rows")
        return domain.index_of(points, name).cpu().numpy()
    if array.ndim == 1 and array.dtype == np.bool_:
        if len(array) != domain.num_arms:
            raise ValueError(
                f"{name} has {len(array)} truth values, but there are {domain.num_arms} arms; "
                f"{remedy}"
            )
        return np.flatnonzero(array)
    is_mixed = is_plain and any(isinstance(i, bool | np.bool_) for i in given)
    if array.ndim != 1 or array.dtype.kind not in "iu" or is_mixed:
        raise TypeError(
            f"{name} has the shape {array.shape} and the kind {array.dtype.name}; {remedy}"
        )
    outside = array[(array < 0) | (array >= domain.num_arms)]
    if len(outside):
        raise ValueError(f"{name} names arm {outside[0]}, which does not exist; {remedy}")
    return array.astype(np.int64)


def _as_array(name: str, given: Sequence[Any]) -> Any:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise ValueError(f"{name} has rows of different lengths: {error}") from None


def _read_columns(fixed: Any, dim: int) -> dict[int, float]:
    """Return values by column."""
    remedy = f"Pass a dict from columns (0 to {dim - 1}) to values."
    check_instance("fixed", fixed, Mapping, remedy)
    found = {}
    for column, value in fixed.items():
        if isinstance(column, str):
            raise TypeError(
                f"fixed names {column!r}, but the domain has no names; give the number of the "
                f"column, 0 to {dim - 1}, or build the loop on a Space."
            )
        place = check_integer("a column of fixed", column, minimum=0)
        if place >= dim:
            raise ValueError(f"fixed names column {place}; the columns are 0 to {dim - 1}.")
        found[place] = check_number(f"fixed[{place}]", value)
    return found


def _restricted_box(domain: Box, available: Any, fixed: Any, avoid: Any) -> Restriction | None:
    record: dict[str, Any] = {}
    values: dict[int, float] = {}
    if fixed is not None:
        values, record["fixed"] = _read_fixed(fixed, domain)
    away = None
    if avoid is not None:
        points = _read_points("avoid", avoid, domain)
        away = _Away(points, domain.coordinates.sides, tuple(domain.coordinates.grids))
    if available is None and not values and away is None:
        return None  # only dimensions that never vary are fixed
    part: Box | Arms = domain
    if available is not None:
        points = _distinct(_read_points("available", available, domain))
        part = Arms(_kept(points, values, "available and fixed leave no point"))
    elif values:
        part = _slice_of(domain, values, record["fixed"])
    elif (few := domain.few_points()) is not None:
        part = few
    if away is not None:
        if isinstance(part, Box):
            part = _Apart(part, away.condition)
            away.check_leaves_points(part)
        else:
            part = Arms(away.kept(part.choices))
    if available is not None and part.choices is not None:
        return Restriction({"points": part.choices.tolist()}, part)
    if away is not None:
        record["avoid"] = away.points.tolist()
    return Restriction(record, part)


def _distinct(points: Tensor) -> Tensor:
    """Return rows without repeats, in their order."""
    return points.new_tensor([list(row) for row in dict.fromkeys(map(tuple, points.tolist()))])


def _kept(points: Tensor, values: Mapping[int, float], problem: str) -> Tensor:
    """Return the rows with given values in some columns."""
    kept = points
    if values:
        held = points[:, list(values)] == points.new_tensor(list(values.values()))
        kept = points[held.all(-1)]
    if len(kept) == 0:
        raise ValueError(f"{problem}. Leave some, or do not ask in this round.")
    return kept


def _read_points(name: str, given: Any, domain: Box) -> Tensor:
    """Return points of a box as rows, each checked."""
    if not is_listed(given):
        raise TypeError(f"{name} is {shown_value(given)}; pass points of the domain in a list.")
    rows = list(check_matrix(name, given, domain.dim) if hasattr(given, "ndim") else given)
    if not rows:
        raise ValueError(f"{name} is empty, so that there is nothing to choose from. Leave it out.")
    return torch.stack([domain.check_point(f"{name}[{i}]", row) for i, row in enumerate(rows)])


def _read_fixed(fixed: Any, domain: Box) -> tuple[dict[int, float], dict[str, Any]]:
    """Return the values by column, and the record of them."""
    if not domain.names:
        values = _read_columns(fixed, domain.dim)
        for column, value in values.items():
            low, high = domain.bounds[:, column].tolist()
            if not low <= value <= high:
                raise ValueError(
                    f"fixed[{column}] is {value}, outside [{low}, {high}]. Clamp it or widen the "
                    "box."
                )
            if column in domain.integer_dims and value != round(value):
                raise ValueError(f"fixed[{column}] is {value}; this dimension takes whole numbers.")
        return values, {str(column): value for column, value in values.items()}
    check_instance("fixed", fixed, Mapping, "Pass a dict from names to values.")
    known = domain.parameters
    values, told = {}, {}
    for name, value in fixed.items():
        if name not in known:
            raise ValueError(
                f"fixed names {name!r}, which is not a parameter; the space has {', '.join(known)}."
            )
        told[name] = known[name].check(name, value)
        if name in domain.names:
            values[domain.names.index(name)] = known[name].encode(told[name])
    return values, told


def _slice_of(domain: Box, values: Mapping[int, float], told: Mapping[str, Any]) -> Box | Arms:
    """Return the part of a box in which some coordinates have given values."""
    try:
        feasible = None if domain.feasible is None else domain.feasible.holding(values)
        found = PartOfBox(domain, domain.coordinates.holding(values), feasible)
        points = found.few_points()
        if points is None and feasible is not None:
            feasible.check_not_empty()
    except ValueError as error:
        raise ValueError(f"fixed is {dict(told)}, which leaves no point: {error}") from error
    return found if points is None else points


@dataclass(frozen=True, eq=False)
class _Away:
    """The constraint that points keep a distance from avoided ones.

    Attributes:
        points: ``n x d``, the points that are avoided.
        sides: ``d``, the sides of the box.
        discrete: The coordinates that count 1 if they differ.
    """

    points: Tensor
    sides: Tensor
    discrete: tuple[int, ...]

    def __call__(self, X: Tensor) -> Tensor:
        """Return the distance from the nearest avoided point over the least distance, minus 1.

        Args:
            X: ``... x d``.
        """
        difference = X.unsqueeze(-2) - self.points
        squares = (difference / self.sides).square()
        if self.discrete:
            is_discrete = torch.zeros_like(self.sides, dtype=torch.bool)
            is_discrete[list(self.discrete)] = True
            squares = torch.where(is_discrete, (difference != 0.0).to(squares), squares)
        # the square root has no derivative at 0
        nearest = squares.sum(-1).amin(-1).clamp_min(1e-18 * AVOIDED_WITHIN**2)
        return nearest.sqrt() / AVOIDED_WITHIN - 1.0

    @property
    def condition(self) -> Condition:
        """The constraint as one of a feasible set."""
        return Condition(self, "avoid", takes_rows=True)

    def kept(self, X: Tensor) -> Tensor:
        """Return the rows that are away.

        Args:
            X: ``n x d``.

        Raises:
            ValueError: If no row is left.
        """
        kept = X[self.condition.holds(X)]
        if len(kept) == 0:
            raise ValueError(
                f"avoid leaves no point: all {len(X)} candidates lie within "
                f"{AVOIDED_WITHIN} of an avoided point. Avoid fewer."
            )
        return kept

    def check_leaves_points(self, part: Box) -> None:
        """Raise an error if a part of a box, away from the points, is empty.

        Args:
            part: The part.
        """
        try:
            part.sample(1, torch.Generator().manual_seed(0))
        except ValueError as error:
            raise ValueError(f"avoid leaves no point: {error} Or avoid fewer points.") from error


class _Apart(PartOfBox):
    """The part of a box that is away from some points.

    The result of the box's own search is taken if it is away from all of them, because it is the
    maximum of the part as well. Otherwise the part is searched like any other feasible set.
    """

    def __init__(self, box: Box, away: Condition) -> None:
        self._box, self._away = box, away
        known = box.feasible or FeasibleSet(box.coordinates)
        apart = replace(known, nonlinear=(*known.nonlinear, away))
        super().__init__(box, box.coordinates, apart)

    def maximize(self, acquisition: AcquisitionFunction, seed: int = 0) -> tuple[Tensor, float]:
        if choices_of(acquisition) is None:
            x, value = self._box.maximize(acquisition, seed)
            if bool(self._away.holds(x.unsqueeze(0))):
                return x, value
        return super().maximize(acquisition, seed)

    def in_context(self, context: Tensor) -> Box:
        return _Apart(self._box.in_context(context), self._away.behind(len(context)))

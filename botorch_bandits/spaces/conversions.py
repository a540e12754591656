"""Parameters from strings of the command line, from Optuna and from ConfigSpace.

Anything that a :class:`.Space` does not support is rejected, and the error says what to do.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

from botorch_bandits.checks import check_instance
from botorch_bandits.spaces.parameters import (
    LARGEST_CATEGORICAL,
    Categorical,
    Fixed,
    Float,
    Integer,
    Parameter,
    Plain,
    check_plain,
)


def parse_parameter(text: str) -> tuple[str, Parameter]:
    """Return the name and the parameter that a string describes; see :meth:`.Space.parse`.

    Args:
        text: The description, such as ``C=log:1e-3:1e3``.

    Raises:
        ValueError: If the string does not describe a parameter.
    """
    name, equals, description = text.partition("=")
    name = name.strip()
    kind, _, rest = description.partition(":")
    if not (name and equals and kind in _KINDS):
        raise ValueError(
            f"{text!r} does not describe a parameter; write NAME=KIND:..., as in C=log:1e-3:1e3, "
            f"depth=int:2:12 or kernel=choice:rbf,poly. Kinds are {', '.join(_KINDS)}."
        )
    try:
        return name, _KINDS[kind](rest)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r}: {error}") from error


def _read_value(text: str) -> Plain:
    """Return the value that a string represents: a number, a boolean, None, or a string."""
    text = text.strip()
    if not text:
        raise ValueError("a value is empty; leave out the comma, or write '' in quotes.")
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = ...
    if value is None or isinstance(value, str | int | float):
        return value
    if text[0] in "'\"([{":
        raise ValueError(
            f"{text} is not a plain value; write a number, True, False, None or a string. A string "
            "that contains a comma or starts with a quote or a bracket needs quotes, as in 'a,b'."
        )
    return text


_VALUES = re.compile(r"""(\s*(?:'[^']*'|"[^"]*")\s*|[^,]*),""")
"""A value of a list and the comma after it; a comma in quotes is part of the value."""


def _read_values(text: str) -> list[Plain]:
    return [_read_value(part) for part in _VALUES.findall(f"{text},")]


def _read_range(text: str, number: Callable[[str], Any]) -> tuple[Any, Any]:
    low, _, high = text.partition(":")
    try:
        return number(low), number(high)
    except ValueError:
        kind = "whole numbers" if number is int else "numbers"
        raise ValueError(f"the range is {text!r}; write two {kind}, as in 2:12.") from None


_KINDS: dict[str, Callable[[str], Parameter]] = {
    "float": lambda text: Float(*_read_range(text, float)),
    "log": lambda text: Float(*_read_range(text, float), log=True),
    "int": lambda text: Integer(*_read_range(text, int)),
    "log-int": lambda text: Integer(*_read_range(text, int), log=True),
    "choice": lambda text: Categorical(_read_values(text)),
    "ordered": lambda text: Categorical(_read_values(text), ordered=True),
    "fixed": lambda text: Fixed(_read_value(text)),
}


def of_optuna(name: str, known: Any) -> Parameter:
    """Return the parameter of a distribution; see :meth:`.Space.from_optuna`.

    Args:
        name: The name of the parameter, for error messages.
        known: The distribution.
    """
    try:
        from optuna import distributions as optuna
    except ImportError as error:
        raise ImportError(
            "Space.from_optuna needs Optuna: pip install 'botorch_bandits[spaces]'."
        ) from error
    kinds = (optuna.FloatDistribution, optuna.IntDistribution, optuna.CategoricalDistribution)
    check_instance(
        f"distribution {name!r}",
        known,
        kinds,
        "Pass FloatDistribution(...), IntDistribution(...) or CategoricalDistribution(...).",
    )
    if isinstance(known, optuna.CategoricalDistribution):
        values = [check_plain(f"choice {i} of {name!r}", v) for i, v in enumerate(known.choices)]
        return Fixed(values[0]) if len(values) == 1 else Categorical(values)
    low, high, step = known.low, known.high, known.step
    if low == high:
        return Fixed(low)
    whole = isinstance(known, optuna.IntDistribution)
    if step is None or (whole and step == 1):
        return Integer(low, high, known.log) if whole else Float(low, high, known.log)
    count = round((high - low) / step) + 1  # Optuna has made the range a multiple of the step
    if count > LARGEST_CATEGORICAL:
        raise ValueError(
            f"distribution {name!r} has {count} values because of its step {step}; a Space lists "
            f"at most {LARGEST_CATEGORICAL}. Leave out the step, and let the function round."
        )
    grid = [min(low + k * step, high) for k in range(count)]
    return Categorical(grid, ordered=True) if count > 1 else Fixed(low)


def of_configspace(space: Any) -> dict[str, Parameter]:
    """Return the parameters of a ``ConfigurationSpace``; see :meth:`.Space.from_configspace`.

    Args:
        space: The ``ConfigurationSpace``.
    """
    try:
        import ConfigSpace
    except ImportError as error:
        raise ImportError(
            "Space.from_configspace needs ConfigSpace: pip install 'botorch_bandits[spaces]'."
        ) from error
    check_instance("space", space, ConfigSpace.ConfigurationSpace, "Pass a ConfigurationSpace.")
    for what, found, remedy in (
        ("condition", space.conditions, "let the function ignore what is not in use"),
        ("forbidden clause", space.forbidden_clauses, "let the function return a low reward"),
    ):
        if found:
            raise ValueError(
                f"space has the {what} {found[0]}, but in a Space every parameter takes every "
                f"value. Leave it out and {remedy}, or make one Space for each case."
            )
    return {name: _of_hyperparameter(ConfigSpace, name, known) for name, known in space.items()}


def _of_hyperparameter(ConfigSpace: Any, name: str, known: Any) -> Parameter:
    if isinstance(known, ConfigSpace.UniformFloatHyperparameter):
        return Float(known.lower, known.upper, known.log)
    if isinstance(known, ConfigSpace.UniformIntegerHyperparameter):
        return Integer(known.lower, known.upper, known.log)
    if isinstance(known, ConfigSpace.Constant):
        return Fixed(check_plain(f"constant {name!r}", known.value))
    ordered = isinstance(known, ConfigSpace.OrdinalHyperparameter)
    if ordered or isinstance(known, ConfigSpace.CategoricalHyperparameter):
        if not ordered and known.weights is not None and len(set(known.weights)) > 1:
            raise ValueError(
                f"parameter {name!r} has the weights {tuple(known.weights)}, but a Space has none: "
                "the model finds out where to search. Leave them out."
            )
        given = known.sequence if ordered else known.choices
        values = [check_plain(f"value {i} of {name!r}", v) for i, v in enumerate(given)]
        return Fixed(values[0]) if len(values) == 1 else Categorical(values, ordered)
    raise ValueError(
        f"parameter {name!r} is a {type(known).__name__}, which a Space does not support: it "
        "only has ranges, and the model finds out where to search. Make it uniform, with "
        "log=True if the scale is logarithmic."
    )

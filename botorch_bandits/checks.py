"""Checks of what users pass in.

Every check either returns the value in the one form that the package works with (float64 tensors,
Python numbers) or raises an error that names the argument, the value and the remedy. Checks run
before anything is recorded.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import functools
import inspect
import math
import operator
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar, cast

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from torch import Tensor

__all__ = [
    "DTYPE",
    "LARGEST_OUTCOME",
    "MinimumLoweredWarning",
    "check_covariance",
    "check_double",
    "check_finite",
    "check_instance",
    "check_integer",
    "check_kernel_columns",
    "check_matrix",
    "check_nonnegative",
    "check_number",
    "check_one_of",
    "check_positive",
    "check_probability",
    "check_reward",
    "check_vector",
    "double_kernel",
    "explains_arguments",
    "store_checked",
]

DTYPE = torch.float64

LARGEST_OUTCOME = 1e50
"""The largest size of a reward, a constraint value or a penalized outcome that a loop accepts.

Float64 ends at 1.8e308. The highest power of an outcome that is computed is the third: the
curvature times the squared gradient in the quasi-Newton search of an acquisition function, and the
square of a multiplier that follows from a constraint value, times another value. Sums of squares
occur in likelihoods, data norms and tests for a change. The third power of this bound is 1e150,
which leaves a factor of 1e158 for the number of rows, the inverses of the noise variance, of the
prior variance and of the lengthscale, and the width. The exponent is a round number; next to values
that large, other values lose every digit in a sum anyway.
"""


FEW_NUMBERS = 32
"""Up to this many numbers are checked one by one in Python."""


class MinimumLoweredWarning(RuntimeWarning):
    """An observed outcome is below the stated minimum, which was lowered to it."""


class BelowMinimumWarning(RuntimeWarning):
    """An observed outcome is below the stated minimum by no more than noise explains."""


def is_list(value: Any, length: int | None = None) -> TypeGuard[Sequence[Any]]:
    """Return whether a value is a list or a tuple, of a certain length if one is given."""
    return isinstance(value, list | tuple) and length in (None, len(value))


def entries_of(value: Any) -> tuple[Any, ...]:
    """Return the entries of a list or a tuple; anything else is the only entry."""
    return tuple(value) if is_list(value) else (value,)


def is_listed(value: Any) -> bool:
    """Return whether a value has entries that can be read one by one, and is no text or mapping."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def without_labels(value: Any, by_name: bool = False) -> Any:
    """Return the numbers of a column or a table, such as those of pandas; others unchanged.

    A value is a table if it has ``to_numpy``, so that the package need not import its library.

    Args:
        value: Anything; in a list, each entry that is a column is read.
        by_name: Whether entries with text as labels are read as values by label: a column becomes
            a dict, and a table one dict for each row.

    Returns:
        An array of the caller's own; lists if the entries are objects.

    Example:
        >>> import pandas as pd
        >>> row = pd.Series({"C": 0.5, "kernel": "rbf"})
        >>> without_labels(row), without_labels(row, by_name=True)
        ([0.5, 'rbf'], {'C': 0.5, 'kernel': 'rbf'})
    """
    if is_list(value) and any(hasattr(each, "to_numpy") for each in value):
        return [np.array(v).tolist() if hasattr(v, "to_numpy") else v for v in value]
    if not hasattr(value, "to_numpy"):
        return value
    labels = value.keys() if by_name and hasattr(value, "keys") else [None]
    if all(isinstance(label, str) for label in labels):
        return value.to_dict() if value.ndim == 1 else value.to_dict("records")
    array = np.array(value)  # a copy, as the table may change
    return array.tolist() if array.dtype.hasobject else array


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is a Python number, and not True or False."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def in_lists(value: Any) -> Any:
    """Return the numbers of a tensor in lists, and anything else unchanged."""
    return value.tolist() if isinstance(value, Tensor) else value


def name_of(value: Any) -> str:
    """Return the name of a function or a class, and that of the class of anything else."""
    return str(getattr(value, "__name__", type(value).__name__))


def _kind_of_entries(value: Any) -> str:
    """Return NumPy's letter for the kind of numbers, such as ``"c"``; "" outside of NumPy."""
    return str(getattr(getattr(value, "dtype", None), "kind", ""))


def check_double(name: str, value: Tensor) -> Tensor:
    """Return ``value`` unchanged if it is a float64 tensor.

    Args:
        name: The name of the argument, for error messages.
        value: A tensor of any shape.

    Raises:
        TypeError: If ``value`` is not a tensor or has another dtype.
    """
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a torch.Tensor, got {type(value).__name__}.{_as_tensor(name, value)}"
        )
    if value.dtype != DTYPE:
        check_real(name, value)
        raise TypeError(
            f"{name} has dtype {value.dtype}, but float64 is needed: Gaussian-process algebra "
            f"loses most of its digits in lower precision. Pass {name}.double()."
        )
    return value


def _as_tensor(name: str, value: Any) -> str:
    """Return how to turn points that are not a tensor into one, after a space."""
    if is_list(value, 0):
        return " Pass None if there are no points."
    if is_list(value) and all(isinstance(each, Tensor) for each in value):
        return f" Pass torch.stack({name}) if each of its entries is one point."
    if hasattr(value, "to_numpy"):
        name += ".to_numpy()"
    if is_list(value) or hasattr(value, "to_numpy") or _kind_of_entries(value):
        return f" Pass torch.as_tensor({name}, dtype=torch.float64)."
    if is_number(value):
        return f" Pass torch.tensor([{float(value)}], dtype=torch.float64)."
    return ""


def check_finite(name: str, value: Tensor) -> Tensor:
    """Return ``value`` unchanged if every entry is finite.

    Args:
        name: The name of the argument, for error messages.
        value: The tensor that was passed in.

    Raises:
        ValueError: If an entry is not finite; the error names the first such entry.
    """
    is_short = value.dim() == 1 and value.shape[0] <= FEW_NUMBERS  # calls of PyTorch cost more
    if is_short and all(map(math.isfinite, value.tolist())):
        return value
    bad = ~torch.isfinite(value)
    if bad.any():
        index = tuple(int(i) for i in bad.nonzero()[0])
        where = f"{name}[{', '.join(map(str, index))}]" if index else name
        raise ValueError(
            f"{where} is {value[index].item()}; every entry of {name} must be finite. "
            "Drop or repair the entry."
        )
    return value


def check_weights(name: str, weights: Tensor, Y: Tensor, name_of_outcomes: str = "Y") -> Tensor:
    """Return a copy of the weights of rows, checked.

    Args:
        name: The name of the argument.
        weights: ``batch_shape x n``.
        Y: ``batch_shape x n x 1`` outcomes.
        name_of_outcomes: The name of that argument.

    Raises:
        TypeError: If they are not a float64 tensor.
        ValueError: If they do not match the outcomes, or one is not finite and positive.
    """
    check_finite(name, check_double(name, weights))
    if Y.shape[-1] != 1 or weights.shape != Y.shape[:-1]:
        raise ValueError(
            f"{name} has shape {tuple(weights.shape)} and {name_of_outcomes} {tuple(Y.shape)}; "
            f"{name} must be one number per row, for a single output."
        )
    if bool((weights <= 0).any()):
        raise ValueError(f"{name} has the entry {float(weights.min())}; each must be positive.")
    return weights.detach().clone()


def check_batch_shape(name: str, shape: torch.Size, data_shape: torch.Size) -> None:
    """Raise an error unless a batch shape broadcasts to that of the data.

    Args:
        name: The name of the argument with this shape, for error messages.
        shape: The batch shape.
        data_shape: The batch shape of the data.

    Raises:
        ValueError: If it does not.
    """
    try:
        fits = torch.broadcast_shapes(shape, data_shape) == data_shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name} has batch shape {tuple(shape)}, which does not fit the data's batch shape "
            f"{tuple(data_shape)}. Expand the data first."
        )


def check_matrix(
    name: str,
    value: Any,
    num_columns: int | None = None,
    rows: str = "one point per row",
    remedy: str = "A single point x becomes one row with x.unsqueeze(0).",
) -> Tensor:
    """Return ``value`` as a finite float64 matrix.

    Args:
        name: The name of the argument, for error messages.
        value: A two-dimensional float64 tensor, or nested sequences of numbers.
        num_columns: The number of columns required, if any.
        rows: What its rows are, for error messages.
        remedy: What to do about another shape, for error messages.

    Raises:
        TypeError: If it is a tensor with another dtype, or not numeric.
        ValueError: If the shape is wrong or an entry is not finite.
    """
    tensor = _as_double(name, value)
    if tensor.dim() != 2 or (num_columns is not None and tensor.shape[-1] != num_columns):
        wanted = "a matrix" if num_columns is None else f"a matrix with {num_columns} columns"
        raise ValueError(
            f"{name} must be {wanted} ({rows}), got shape {tuple(tensor.shape)}. {remedy}"
        )
    return check_finite(name, tensor)


def check_vector(name: str, value: Any, length: int | None = None) -> Tensor:
    """Return ``value`` as a finite float64 vector.

    Args:
        name: The name of the argument, for error messages.
        value: A one-dimensional float64 tensor, or a sequence of numbers.
        length: The length required, if any.

    Raises:
        TypeError: If it is a tensor with another dtype, or not numeric.
        ValueError: If the shape is wrong or an entry is not finite.
    """
    tensor = value if type(value) is Tensor and value.dtype == DTYPE else _as_double(name, value)
    if tensor.dim() != 1 or (length is not None and tensor.shape[0] != length):
        wanted = "a vector" if length is None else f"a vector of length {length}"
        raise ValueError(f"{name} must be {wanted}, got shape {tuple(tensor.shape)}.")
    return check_finite(name, tensor)


def check_number(name: str, value: Any) -> float:
    """Return ``value`` as a finite Python float.

    Args:
        name: The name of the argument, for error messages.
        value: A Python or NumPy number, or a tensor with exactly one entry in float64.

    Raises:
        TypeError: If ``value`` is not a single number, or is one in lower precision.
        ValueError: If it is NaN or infinite.
    """
    number = value if type(value) is float else convert_number(name, value)
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}; it must be finite.")
    return number


_NOT_REAL = ("c", "m", "M")
"""NumPy's letters for complex numbers and times, which it would convert."""


def convert_number(name: str, value: Any) -> float:
    """Return ``value`` as a Python float, which may be infinite or NaN.

    Args:
        name: The name of the argument, for error messages.
        value: A Python or NumPy number, or a tensor with exactly one entry in float64.

    Raises:
        TypeError: If ``value`` is not a single number, or is one in lower precision.
        ValueError: If it is too large for float64.
    """
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise TypeError(
                f"{name} must be one number, got a tensor of shape {tuple(value.shape)}."
            )
        if value.is_floating_point():
            check_double(name, value)
        value = value.item()
    if isinstance(value, complex) or _kind_of_entries(value) in _NOT_REAL:
        raise TypeError(f"{name} must be one real number, got {shown_value(value)}.")
    if isinstance(value, str | bytes):
        raise TypeError(f"{name} must be one number, got the text {shown_value(value)}.")
    check_kept_exactly(name, value)
    try:
        return float(value)
    except OverflowError as error:
        shown = shown_value(value)
        raise ValueError(f"{name} is {shown}, which is too large for float64.") from error
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be one number, got {shown_value(value)}.") from error


def check_reward(name: str, value: Any) -> float:
    """Return an observed value, which may be any finite real number, as a Python float.

    Unlike a setting, it may be a number in lower precision, which is exact in float64, and True and
    False count as 1 and 0.

    Args:
        name: The name of the argument, for error messages.
        value: A Python number, a ``Fraction`` or a ``Decimal``; a NumPy number, or a tensor or an
            array, of any library, with exactly one entry of any real dtype. A gradient is dropped.

    Raises:
        TypeError: If it is not a single real number.
        ValueError: If it is NaN, infinite or too large for float64.

    Example:
        >>> check_reward("reward", torch.tensor([0.1]))
        0.10000000149011612
    """
    if type(value) is float:
        return check_number(name, value)
    # times, complex and masked numbers are not real, and item() may turn them into real numbers
    is_real = _kind_of_entries(value) not in _NOT_REAL and not _is_hidden(value)
    if hasattr(value, "item") and is_real:
        with contextlib.suppress(RuntimeError, TypeError, ValueError):  # it has several entries
            value = value.item()
    return check_number(name, value)


def check_told(value: Any) -> float:
    """Return a reward that is told to a loop, as :func:`check_reward` does.

    Args:
        value: As for :func:`check_reward`.

    Raises:
        TypeError: As for :func:`check_reward`.
        ValueError: As for :func:`check_reward`; for NaN and infinity, the error says what to do
            with an evaluation that failed, and those above :data:`LARGEST_OUTCOME` as well.
    """
    if type(value) is float and abs(value) <= LARGEST_OUTCOME:  # not NaN
        return value
    try:
        return check_carried("reward", check_reward("reward", value))
    except ValueError as error:
        if "must be finite" not in str(error):
            raise
        raise ValueError(
            f"{error} If the evaluation failed, report it with fail(query_id), or leave out "
            "the row that you attach."
        ) from None


LONGEST_SHOWN = 160
"""Characters of a value in an error message; a history keeps these as reasons of failures."""


def check_arguments(cls: type, args: Sequence[Any], given: Mapping[str, Any]) -> None:
    """Raise an error that says what to do if an acquisition class does not have an argument.

    Python's own error for a missing argument says enough.

    Args:
        cls: A class whose first argument is a model.
        args: The arguments by position.
        given: The arguments by name.

    Raises:
        TypeError: If an argument is unknown, or there are too many by position.
    """
    parameters = inspect.signature(cls).parameters.values()
    names, kinds = [each.name for each in parameters], [each.kind for each in parameters]
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        check_names(cls.__name__, "argument", given, names)
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    by_position = [parameter.name for parameter in parameters if parameter.kind is either]
    if len(args) <= len(by_position) or inspect.Parameter.VAR_POSITIONAL in kinds:
        return
    extra = args[len(by_position)]
    by_name = ", ".join(f"{name}=" for name in names if name not in by_position)
    told = f" Pass the others by name: {by_name}."
    if by_position == ["model"] and (is_number(extra) or isinstance(extra, Tensor)):
        told = f" If {shown_value(extra)} is BoTorch's beta: {_instead_of_beta(names)}{told}"
    raise TypeError(
        f"{cls.__name__} takes {', '.join(by_position)} by position, but got {len(args)} "
        f"positional arguments.{told}"
    )


def check_names(owner: str, kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise an error that says what to do if an acquisition class does not have a name.

    Args:
        owner: What has the names.
        kind: What they are, such as ``"option"``.
        given: The names that were given.
        known: Those that exist.

    Raises:
        TypeError: If one is unknown.
    """
    for name in given:
        if name not in known:
            told = f" {_instead_of_beta(known)}" if name == "beta" else remedy_of_name(name, known)
            raise TypeError(f"{owner} has no {kind} {name!r}; it has {', '.join(known)}.{told}")


def _instead_of_beta(known: Iterable[str]) -> str:
    """Return what to pass instead of BoTorch's ``beta``, the square of a width."""
    constant = "GPUpperConfidenceBound takes beta="
    if "width" in known:
        constant = "For a constant width pass width=, which is the square root of beta"
    return f"The class computes its width from its other arguments. {constant}."


def remedy_of_name(name: str, known: Iterable[str]) -> str:
    """Return what to write instead of an argument that does not exist, after a space.

    Args:
        name: The argument.
        known: The arguments that exist.

    Example:
        >>> remedy_of_name("rkhs_bond", ["rkhs_bound", "noise_bound"])
        " Did you mean 'rkhs_bound'?"
    """
    if name == "best_f" and "best_f" not in known:
        return " Leave it out: only the classes of an improvement compare with an incumbent."
    alike = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {alike[0]!r}?" if alike else ""


def counted(count: int, one: str, many: str) -> str:
    """Return a number and the words that agree with it.

    Args:
        count: The number.
        one: The words if it is 1.
        many: The words otherwise.

    Example:
        >>> counted(1, "point is pending", "points are pending")
        '1 point is pending'
    """
    return f"{count} {one if count == 1 else many}"


_Function = TypeVar("_Function", bound=Callable[..., Any])


def explains_arguments(name: str = "", **remedies: str) -> Callable[[_Function], _Function]:
    """Return a decorator for a function whose error about an unknown argument says what to do.

    Args:
        name: The name of the function in the error; its own name if empty.
        **remedies: What to do instead of passing an argument that users expect, in a sentence.

    Example:
        >>> @explains_arguments(minimize="Pass maximize=False.")
        ... def search(maximize=True): ...
        >>> search(minimize=True)
        Traceback (most recent call last):
            ...
        TypeError: search has no argument 'minimize'. Pass maximize=False.
    """

    def decorate(function: _Function) -> _Function:
        parameters = inspect.signature(function).parameters.values()
        by_place = inspect.Parameter.POSITIONAL_ONLY
        known = [one.name for one in parameters if one.kind is not by_place and one.name != "self"]

        @functools.wraps(function)
        def explained(*args: Any, **given: Any) -> Any:
            for each in given:
                if each not in known:
                    told = f" {remedies[each]}" if each in remedies else remedy_of_name(each, known)
                    told = told or f" It has {', '.join(known)}."
                    raise TypeError(f"{name or function.__name__} has no argument {each!r}.{told}")
            return function(*args, **given)

        return cast(_Function, explained)

    return decorate


def shown_value(value: Any) -> str:
    """Return how an error message shows a value: its representation in one line, cut if it is long.

    Args:
        value: Anything.

    Example:
        >>> shown_value([0.5, 1.0]), len(shown_value([0] * 1000))
        ('[0.5, 1.0]', 160)
    """
    try:
        shown = " ".join(repr(value).split())
    except Exception:  # in a user's class, or for an integer with too many digits
        return f"an object of the class {type(value).__name__}"
    return shown if len(shown) <= LONGEST_SHOWN else f"{shown[: LONGEST_SHOWN - 3]}..."


def check_text(name: str, value: Any, remedy: str = "leave it out or give it some letters.") -> str:
    """Return a string that is not empty.

    Args:
        name: The name of the argument, for error messages.
        value: Anything.
        remedy: What to do about an empty string.

    Raises:
        TypeError: If it is not a string.
        ValueError: If it is empty.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {value!r}.")
    if not value:
        raise ValueError(f"{name} is empty; {remedy}")
    return value


def check_positive(name: str, value: Any, or_infinite: bool = False) -> float:
    """Return ``value`` as a finite Python float greater than zero.

    Args:
        name: The name of the argument, for error messages.
        value: A number as for :func:`check_number`.
        or_infinite: Whether to allow infinity.

    Raises:
        TypeError: If it is not a single number.
        ValueError: If it is not finite or not greater than zero.
    """
    if or_infinite and convert_number(name, value) == math.inf:
        return math.inf
    number = check_number(name, value)
    if number <= 0:
        raise ValueError(f"{name} is {number}; it must be greater than 0.")
    return number


def check_nonnegative(name: str, value: Any) -> float:
    """Return ``value`` as a finite Python float of at least zero.

    Args:
        name: The name of the argument, for error messages.
        value: What was passed in.

    Raises:
        TypeError: If it is not a single number.
        ValueError: If it is not finite or below zero.
    """
    number = check_number(name, value)
    if number < 0:
        raise ValueError(f"{name} is {number}; it must be at least 0.")
    return number


def check_probability(name: str, value: Any) -> float:
    """Return ``value`` as a Python float strictly between zero and one.

    Args:
        name: The name of the argument, for error messages.
        value: What was passed in.

    Raises:
        TypeError: If it is not a single number.
        ValueError: If it is not strictly between 0 and 1.
    """
    number = check_number(name, value)
    if not 0 < number < 1:
        raise ValueError(f"{name} is {number}; it must lie strictly between 0 and 1.")
    return number


def check_carried(name: str, value: float) -> float:
    """Return an outcome if sums of its powers are finite in float64; see :data:`LARGEST_OUTCOME`.

    Args:
        name: The name of the argument, for error messages.
        value: A finite number.

    Raises:
        ValueError: If it is too large.
    """
    if abs(value) > LARGEST_OUTCOME:
        raise ValueError(
            f"{name} is {value:.6g}; its absolute value must be at most {LARGEST_OUTCOME:g}, or "
            "the squares and sums of the models overflow. Tell it in a larger unit, or, if it "
            "stands for a failed evaluation, use fail(query_id, reason=...)."
        )
    return value


def check_context(context_dim: int, context: Any, verb: str = "ask") -> Tensor | None:
    """Return a context as a float64 vector, or None if the loop has none.

    Args:
        context_dim: The dimension of the loop's contexts.
        context: The context that the user gave.
        verb: The method that was called, for error messages.

    Raises:
        TypeError: If the context is a tensor with a dtype other than float64.
        ValueError: If it is missing, not expected, of the wrong length or not finite.
    """
    if context_dim == 0:
        if context is not None:
            is_count = verb == "ask" and is_number(context)
            several = " For several points, call ask() once for each." if is_count else ""
            raise ValueError(
                f"context is {context}, but the loop has context_dim=0. Build it with context_dim= "
                f"set to the number of context features.{several}"
            )
        return None
    if context is None:
        raise ValueError(
            f"context is missing: the loop has context_dim={context_dim}. Ask with "
            f"{verb}(context=...)."
        )
    return check_vector("context", context, length=context_dim)


def check_integer(name: str, value: Any, minimum: int) -> int:
    """Return ``value`` as a Python integer of at least ``minimum``.

    Args:
        name: The name of the argument, for error messages.
        value: What was passed in.
        minimum: The smallest value allowed.

    Raises:
        TypeError: If it is not an integer (booleans are rejected as well).
        ValueError: If it is below ``minimum``.
    """
    number = value if type(value) is int else None
    if number is None:
        if _is_hidden(value):  # operator.index would return the value behind the mask
            check_kept_exactly(name, value)
        with contextlib.suppress(TypeError):
            number = operator.index(value)
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if number < minimum:
        raise ValueError(f"{name} is {number}; it must be at least {minimum}.")
    return number


def check_count(count: Any, noise: Any = None) -> int | None:
    """Return the number of observations of which an outcome is the mean; None for one observation.

    Args:
        count: An integer of at least 1.
        noise: The noise variance that was given with it, if any.

    Raises:
        TypeError: If it is not an integer (booleans are rejected as well).
        ValueError: If it is below 1, or both are given.
    """
    if noise is not None:
        raise ValueError(
            f"count is {shown_value(count)} and noise is {shown_value(noise)}; give only one of "
            "them. The mean of n outcomes whose noise has the variance v has noise=v / n."
        )
    try:
        number = check_integer("count", count, minimum=1)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"{error} It is the number of outcomes of which the reward is the mean; leave it out "
            "if it is one."
        ) from None
    return None if number == 1 else number


def check_noise_variance(noise: Any) -> float:
    """Return the variance of the noise of a single outcome.

    Args:
        noise: A positive number of at most :data:`LARGEST_OUTCOME`.

    Raises:
        TypeError: If it is not a single number.
        ValueError: If it is not finite, not positive or too large.
    """
    if isinstance(noise, bool):
        raise TypeError(
            f"noise is {noise}; it must be a number: the variance of this outcome's noise."
        )
    try:
        return check_carried("noise", check_positive("noise", noise))
    except ValueError as error:
        raise ValueError(
            f"{error} It is the variance of this outcome's noise, in squared outcome units; leave "
            "it out if the model's noise applies."
        ) from None


def check_one_of(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """Return ``value`` if it is one of ``allowed``.

    Args:
        name: The name of the argument, for error messages.
        value: What was passed in.
        allowed: All allowed values.

    Raises:
        ValueError: If it is not; the error lists the allowed values.
    """
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, allowed))}.")
    return value


def check_instance(name: str, value: Any, kinds: Any, remedy: str) -> Any:
    """Return ``value`` if it is an instance of one of the given classes.

    Args:
        name: The name of the argument, for error messages.
        value: Anything.
        kinds: The allowed class, or a tuple of classes; ``Callable`` for whatever can be called.
        remedy: A sentence that says what to pass.

    Raises:
        TypeError: If it is something else, or a class instead of an instance of it.
    """
    if isinstance(value, kinds):
        return value
    shown = (
        f"the class {value.__name__}" if isinstance(value, type) else " ".join(repr(value).split())
    )
    if len(shown) > 80:
        shown = f"a {type(value).__name__}"
    raise TypeError(f"{name} is {shown}. {remedy}")


def check_observed(name: str, values: Any, length: int | None = None) -> list[float]:
    """Return observed constraint values as Python floats.

    Args:
        name: The name of the argument, for error messages.
        values: A float64 tensor or array, a tensor or array with one entry of any real dtype, or a
            sequence of numbers that :func:`check_reward` accepts.
        length: The required number of values, if that is known.

    Raises:
        TypeError: If they have another dtype, or are not numeric.
        ValueError: If they are too few or too many, or one is not finite or too large.
    """
    is_flat = is_list(values) and not any(map(is_list, values))
    if is_flat or getattr(values, "shape", None) == (1,):
        values = [check_reward(f"{name}[{i}]", value) for i, value in enumerate(values)]
    found: list[float] = check_vector(name, values, length).tolist()
    return [check_carried(f"{name}[{i}]", value) for i, value in enumerate(found)]


def check_constraint_values(constraints: Any, num_constraints: int) -> tuple[float, ...]:
    """Return the constraint values of an outcome.

    Args:
        constraints: The constraint values that were told; None if they are missing.
        num_constraints: The required number of values.

    Raises:
        TypeError: If one is not a real number.
        ValueError: If they are missing, not expected, too few or too many, or one is not finite or
            too large.
    """
    if num_constraints == 0:
        raise ValueError(
            f"constraints is {constraints}, but there are no constraints. Build the loop with "
            "constraints= and a rule for the multipliers."
        )
    if constraints is None:
        raise ValueError(
            "constraints is missing: each outcome has "
            f"{counted(num_constraints, 'constraint value', 'constraint values')}. Pass "
            "constraints=[...]; at most 0 is feasible. A reward whose constraint values are not "
            "known cannot be told."
        )
    return tuple(check_observed("constraints", constraints, num_constraints))


def store_checked(settings: Any, **values: Any) -> None:
    """Store checked values in a frozen dataclass, in place of what the user passed.

    Args:
        settings: The object that holds the settings.
        **values: The checked values, by the names of their attributes.
    """
    for name, value in values.items():
        object.__setattr__(settings, name, value)


def store_bounds(settings: Any, **bounds: float | None) -> None:
    """Store positive numbers that may be left out in a frozen dataclass.

    Args:
        settings: The object that holds the settings.
        **bounds: The numbers, or None, by the names of their attributes.

    Raises:
        ValueError: If one is neither None nor positive.
    """
    known = {name: bound for name, bound in bounds.items() if bound is not None}
    store_checked(settings, **{name: check_positive(name, bound) for name, bound in known.items()})


def level_of_users_line() -> int:
    """Return the ``stacklevel`` with which the caller's warning names the user's line.

    This is the nearest line outside of the package, because the depth at which a warning is raised
    may change.
    """
    package = f"{__name__.partition('.')[0]}."
    level = 0
    for frame, _ in traceback.walk_stack(inspect.currentframe()):
        if not frame.f_globals.get("__name__", "").startswith(package):
            break
        level += 1
    return level


def _as_double(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return check_double(name, value)
    value = without_labels(value)
    check_kept_exactly(name, value)
    try:
        return torch.as_tensor(value, dtype=DTYPE)
    except OverflowError as error:
        raise ValueError(f"{name} has an entry too large for float64: {value!r}.") from error
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name} must be a float64 tensor or nested sequences of numbers, got {value!r}."
        ) from error


def check_kept_exactly(name: str, value: Any) -> None:
    """Raise an error if a conversion to float64 would silently change the numbers in a value.

    This is the case for masked and complex numbers, and for numbers rounded to less than float64.

    Args:
        name: The name of the argument, for error messages.
        value: An array, nested sequences, or anything else, which is accepted.

    Raises:
        TypeError: If that is the case.
    """
    if is_list(value):
        for i, entry in enumerate(value):
            if type(entry) not in (float, int):
                check_kept_exactly(f"{name}[{i}]", entry)
        return
    if isinstance(value, Tensor):
        if value.is_floating_point():
            check_double(name, value)
    elif _is_hidden(value):
        if not value.shape:
            raise TypeError(
                f"{name} is masked, so it is not a number. Pass a number, or leave out the row."
            )
        first = [int(i) for i in np.argwhere(np.ma.getmaskarray(value))[0]]
        raise TypeError(
            f"{name} is an array with {int(np.ma.count_masked(value))} masked entries, the first "
            f"at {first}: a masked entry is not a number. Leave out those rows, or fill them: "
            f"{name}.filled(...)."
        )
    elif _kind_of_entries(value) == "f" and value.dtype.itemsize < 8:
        if not value.shape:
            raise TypeError(
                f"{name} is a {value.dtype} number, but float64 is needed. Pass float({name}) if "
                "its rounding is accepted."
            )
        raise TypeError(
            f"{name} has dtype {value.dtype}, but float64 is needed. Pass {name}.astype('float64')."
        )
    check_real(name, value)


def check_real(name: str, value: Any) -> None:
    """Raise an error for complex numbers.

    Args:
        name: The name of the argument, for error messages.
        value: A tensor, an array or anything else.

    Raises:
        TypeError: If it is a complex number, or has complex entries.
    """
    is_complex = value.is_complex() if isinstance(value, Tensor) else isinstance(value, complex)
    if is_complex or _kind_of_entries(value) == "c":
        told = f"is {value}" if type(value) is complex else f"has dtype {value.dtype}"
        raise TypeError(
            f"{name} {told}, but numbers must be real. Pass {name}.real if that is meant."
        )


def _is_hidden(value: Any) -> bool:
    """Return whether a value is a masked array, or a number from one, with a masked entry."""
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))


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


ROUNDING = 1e-6
"""A negative eigenvalue below this share of the largest value is a kernel's rounding error."""


def check_covariance(name: str, matrix: Tensor) -> None:
    """Raise an error unless a matrix is finite, symmetric and positive semi-definite.

    Args:
        name: What it is, for error messages.
        matrix: ``n x n``.

    Raises:
        ValueError: If it is not, up to rounding.
    """
    check_finite(name, matrix)
    size = float(matrix.abs().max())
    difference = float((matrix - matrix.mT).abs().max())
    if difference > ROUNDING * size:
        raise ValueError(
            f"{name} is not symmetric: k(x, z) and k(z, x) differ by up to {difference:.3g}, but a "
            "prior covariance is symmetric. Pass a symmetric kernel."
        )
    # the smallest eigenvalue is above -ROUNDING max(K) if this has a factor
    raised = matrix.clone()
    raised.diagonal().add_(ROUNDING * size)
    if size > 0.0 and int(torch.linalg.cholesky_ex(raised).info):
        smallest = float(torch.linalg.eigvalsh(matrix)[0])
        raise ValueError(
            f"{name} is not positive semi-definite: an eigenvalue is {smallest:.3g}, so some "
            "combination of arms would have a negative variance, and it is not a prior covariance. "
            "Pass a positive semi-definite kernel, such as MaternKernel, or a sum or product of "
            "such kernels."
        )


def check_kernel_columns(
    kernel: Kernel, num_columns: int, name: str = "kernel", is_called: bool = True
) -> None:
    """Raise an error unless a kernel fits inputs with so many columns.

    GPyTorch does not check the kernel inside a ``ScaleKernel``: if its number of lengthscales
    differs, they are broadcast against the columns, which makes it a different kernel.

    Args:
        kernel: Any GPyTorch kernel. Except for sums, products and scaled kernels, only the
            outermost kernel is checked, because it may change the inputs of those inside it.
        num_columns: The number of columns of the inputs, after any transform.
        name: The name of the kernel in error messages.
        is_called: Whether the kernel selects its columns; a ``ScaleKernel`` selects those of its
            base kernel.

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
    own = type(kernel).__name__
    active = kernel.active_dims
    if active is not None and is_called:
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
        check_kernel_columns(kernel.base_kernel, num_columns, name, is_called=False)
    elif isinstance(kernel, AdditiveKernel | ProductKernel):
        for part in kernel.kernels:
            check_kernel_columns(part, num_columns, name)

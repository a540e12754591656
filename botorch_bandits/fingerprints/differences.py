"""How two fingerprints differ, in lines for people.

Parameters of modules and values of kernels are compared up to rounding: a parameter passes through
a transform that may round differently on another machine. All else is compared exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from botorch_bandits.fingerprints.settings import (
    PARAMETERS,
    PROBES,
    UnnamedSettingError,
    fingerprint,
)

TOLERANCES = {PARAMETERS: 1e-12, PROBES: 1e-9}  # relative


def difference(old: Any, new: Any) -> list[str]:
    """Return how two fingerprints differ, a line for each difference; empty if they do not.

    Args:
        old: What :func:`fingerprint` returned, or its copy from a file.
        new: Likewise.
    """
    return _difference("", old, new)


def are_equal(one: Any, other: Any) -> bool:
    """Return whether two settings are made of the same parts.

    What has no name, such as a lambda, is equal to itself alone.

    Args:
        one: A value of any kind.
        other: Likewise.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> are_equal(MaternKernel(nu=1.5), MaternKernel(nu=1.5))
        True
        >>> are_equal(MaternKernel(nu=1.5), MaternKernel(nu=2.5))
        False
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    try:
        return not difference(fingerprint({"it": one}), fingerprint({"it": other}))
    except UnnamedSettingError:
        equal = one == other
        return equal if isinstance(equal, bool) else False


def _difference(path: str, old: Any, new: Any) -> list[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return _difference_of_mappings(path, old, new)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            line
            for i, parts in enumerate(zip(old, new, strict=True))
            for line in _difference(f"{path}[{i}]", *parts)
        ]
    is_same = old == new and isinstance(old, bool) == isinstance(new, bool)
    return [] if is_same else [f"{path or 'settings'}: was {_short(old)}, is {_short(new)}"]


def _difference_of_mappings(path: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    if _is_tensor(old) and _is_tensor(new):
        is_same = old == new
        return [] if is_same else [f"{path}: was {_short(old)}, is {_short(new)}"]
    lines = []
    for key in [*old, *(key for key in new if key not in old)]:
        here = f"{path}.{key}" if path else key
        if key not in new:
            lines.append(f"{here}: was {_short(old[key])}, is not set")
        elif key not in old:
            lines.append(f"{here}: was not set, is {_short(new[key])}")
        elif key == PARAMETERS:
            lines += _difference_of_parameters(path, old[key], new[key])
        elif key == PROBES:
            if not lines and not _are_close(old[key], new[key], TOLERANCES[PROBES]):
                lines.append(f"{path}: has other {PROBES}")
        else:
            lines += _difference(here, old[key], new[key])
    return lines


def _difference_of_parameters(
    path: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[str]:
    lines = []
    for key in sorted({*old, *new}):
        was, now = old.get(key), new.get(key)
        if was is None or now is None or not _are_close(was, now, TOLERANCES[PARAMETERS]):
            lines.append(f"{path}.{key}: was {_short(was)}, is {_short(now)}")
    return lines


def _are_close(old: Any, new: Any, tolerance: float) -> bool:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return old.keys() == new.keys() and all(
            _are_close(old[key], new[key], tolerance) for key in old
        )
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(
            _are_close(*parts, tolerance) for parts in zip(old, new, strict=True)
        )
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=tolerance, abs_tol=1e-300)
    return bool(old == new)


def _is_tensor(described: Mapping[str, Any]) -> bool:
    return "dtype" in described and "shape" in described


def _short(described: Any) -> str:
    """Return a description as a user reads it."""
    if described is None:
        return "None"
    if isinstance(described, Mapping):
        if "entries" in described and _is_tensor(described):
            dtype = "" if described["dtype"] == "float64" else f", {described['dtype']}"
            text = f"tensor({_rounded(described['entries'])}{dtype})"
        elif "sha256" in described and _is_tensor(described):
            text = f"a tensor of shape {tuple(described['shape'])} ({described['sha256'][:8]})"
        elif "class" in described:
            text = str(described["class"]).rpartition(":")[2]
        else:
            text = str(dict(described))
    else:
        text = repr(described)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _rounded(entries: Any) -> Any:
    """Return numbers without the digits that a transform of 0.2 and back leaves behind."""
    if isinstance(entries, list):
        return [_rounded(entry) for entry in entries]
    return float(f"{entries:.14g}") if isinstance(entries, float) else entries

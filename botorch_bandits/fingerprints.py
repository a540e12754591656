"""Settings as plain values, so that a file can hold them and two of them can be compared.

A loop that is continued from a file must have the settings with which it began. Objects cannot be
compared across processes, and many compare badly within one: equal ``functools.partial`` objects
are unequal, and two Matern kernels with different ``nu`` print alike. A fingerprint therefore
states what an object is made of:

* plain values, lists and dictionaries unchanged, tensors by their entries (large ones by a digest),
* objects by class and attributes: those of a dataclass that its comparison includes, what
  ``recorded_parts()`` returns where a class has this method, otherwise all,
* modules by class, settings, parameters and parts,
* functions and classes as ``module:qualname``. What a function does is not examined.

Numbers are compared up to a relative difference of 1e-9, because parameters pass through transforms
that may round differently on another machine, and objects compute some attributes from others.

Equal settings give equal suggestions, bit for bit, on one platform only. Another version of
PyTorch, another processor or another number of threads may round differently.

Settings record the classes of this package as ``botorch_bandits:ClassName``, without the module.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import math
import platform
import types
from collections.abc import Mapping, Set
from pathlib import Path, PurePath
from typing import Any

import botorch
import gpytorch
import linear_operator
import numpy as np
import scipy
import torch
from torch import Tensor
from torch.nn import Module, ModuleList

from botorch_bandits.checks import is_list, is_number
from botorch_bandits.version import __version__

__all__ = [
    "EnvironmentWarning",
    "UnnamedSettingError",
    "are_equal",
    "difference",
    "environment",
    "environment_warnings",
    "fingerprint",
]


LARGEST_TENSOR = 1024
"""Tensors with more entries than this are recorded by a digest."""

TOLERANCE = 1e-9
"""The relative difference up to which numbers are equal."""

_OWN_PACKAGE = __name__.partition(".")[0]
_KNOWN_PACKAGES = ("torch", "gpytorch", "botorch", "linear_operator", _OWN_PACKAGE)


class UnnamedSettingError(TypeError):
    """A setting has no name under which another process finds it, for example a lambda."""


def fingerprint(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as plain values that a JSON file holds exactly.

    Args:
        settings: The settings by name; any objects.

    Raises:
        UnnamedSettingError: If a function is a lambda or defined inside another function, or an
            object cannot be examined.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits import BanditGP
        >>> from botorch_bandits.fingerprints import difference
        >>> recipes = [BanditGP.with_kernel(MaternKernel(nu=nu), noise=0.1) for nu in (1.5, 2.5)]
        >>> difference(*[fingerprint({"seed": 0, "model": recipe}) for recipe in recipes])
        ['model.kernel.nu: was 1.5, is 2.5']
    """
    return {name: _describe(name, value, ()) for name, value in settings.items()}


def _describe(name: str, value: Any, above: tuple[int, ...]) -> Any:
    """Return the description of a value.

    Args:
        name: Its position in the settings, for error messages.
        value: Anything.
        above: Identities of the objects that contain it.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return f"float:{value}"
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, enum.Enum):
        return f"{_name_of(type(value))}.{value.name}"
    if isinstance(value, _WITHOUT_PARTS):
        return f"{type(value).__name__}:{value!s}"
    if isinstance(value, Tensor | np.ndarray):
        return _describe_tensor(name, value)
    if id(value) in above:
        raise UnnamedSettingError(f"{name} contains itself; pass settings without cycles.")
    above = (*above, id(value))
    if isinstance(value, Mapping):
        return _describe_parts(name, value, above)
    if isinstance(value, Set):
        return sorted((_describe(name, part, above) for part in value), key=repr)
    if is_list(value) or isinstance(value, ModuleList):
        return [_describe(f"{name}[{i}]", part, above) for i, part in enumerate(value)]
    if hasattr(value, "__qualname__") and not isinstance(value, types.MethodType):
        return _named(name, value)  # functions and classes
    return {"class": _named(name, type(value))} | _describe_parts(name, _parts(name, value), above)


_WITHOUT_PARTS = (bytes, int, float, str, torch.dtype, torch.device, PurePath)
"""Values that their text describes."""


def _describe_parts(name: str, parts: Mapping[Any, Any], above: tuple[int, ...]) -> dict[str, Any]:
    described = {}
    for key, part in parts.items():
        label = key if isinstance(key, str) else f"[{_describe(name, key, above)!r}]"
        described[label] = _describe(_inside(name, label), part, above)
    return described


def _inside(path: str, label: str) -> str:
    """Return the position of a part in the settings."""
    return f"{path}{label}" if label.startswith("[") or not path else f"{path}.{label}"


def _parts(name: str, value: Any) -> dict[str, Any]:
    """Return the parts of an object by name."""
    if isinstance(value, types.MethodType):
        return {"function": value.__func__, "of": value.__self__}
    if isinstance(value, functools.partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    if isinstance(value, Module):
        return _parts_of_module(value)
    if hasattr(value, "recorded_parts"):
        return dict(value.recorded_parts())
    if dataclasses.is_dataclass(value):
        fields = [field for field in dataclasses.fields(value) if field.compare]
        return {field.name: getattr(value, field.name) for field in fields}
    try:
        return dict(sorted(vars(value).items()))
    except TypeError as error:
        raise UnnamedSettingError(
            f"{name} is {value!r}, which cannot be examined. Pass a dataclass, or a function "
            "that is defined in a module."
        ) from error


_FUNCTIONS = (type, types.FunctionType, types.MethodType, functools.partial)
_SETTINGS = (bool, int, float, str, Tensor, Mapping, *_FUNCTIONS)
"""The kinds of attributes of modules that are settings."""


def _parts_of_module(module: Module) -> dict[str, Any]:
    parts = {
        key: part for key, part in sorted(vars(module).items()) if _is_setting(module, key, part)
    }
    parts |= dict(module.named_children())
    for key, value in [*module.named_parameters("", False), *module.named_buffers("", False)]:
        public = key.removeprefix("raw_")
        known = getattr(module, public, None)  # a lengthscale says more than a raw parameter
        parts |= {public: known} if isinstance(known, Tensor) else {key: value}
    return parts


def _is_setting(module: Module, key: str, value: Any) -> bool:
    if key == "training" or key in vars(Module()):
        return False
    # private attributes of the underlying libraries change from version to version
    if key.startswith("_") and type(module).__module__.partition(".")[0] in _KNOWN_PACKAGES:
        return False
    entries = value if is_list(value) else [value]
    return all(isinstance(e, _SETTINGS) or dataclasses.is_dataclass(e) for e in entries)


def _describe_tensor(name: str, value: Tensor | np.ndarray) -> dict[str, Any]:
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    described = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if array.dtype.hasobject:
        raise UnnamedSettingError(f"{name} is an array of objects; pass an array of numbers.")
    if array.size <= LARGEST_TENSOR:
        return {**described, "entries": _describe(name, array.tolist(), ())}
    text = str((array + array.dtype.type(0)).tolist())  # -0.0 becomes 0.0
    return {**described, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _name_of(value: Any) -> str:
    module = value.__module__ or "builtins"
    # where a class is within this package may change
    own = module.partition(".")[0] == _OWN_PACKAGE
    return f"{_OWN_PACKAGE if own else module}:{value.__qualname__}"


def _named(name: str, value: Any) -> str:
    if "<" in value.__qualname__:  # <lambda>, <locals>
        raise UnnamedSettingError(
            f"{name} is {value.__module__}:{value.__qualname__}, which another process cannot tell "
            "from other functions. Define it by name at the top level of a module, and fix "
            "arguments with functools.partial."
        )
    return _name_of(value)


def are_equal(one: Any, other: Any) -> bool:
    """Return whether two settings are made of the same parts.

    Objects without a name, such as a lambda, are equal only to themselves.

    Args:
        one: A value of any kind.
        other: The value to compare it with.

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


_NOT_SET = object()
"""Stands for a setting that only the other fingerprint has."""


def difference(old: Any, new: Any, path: str = "") -> list[str]:
    """Return how two fingerprints differ, with one line per difference; empty if they agree.

    Args:
        old: The result of :func:`fingerprint`, or its copy from a file.
        new: Another such fingerprint.
        path: Where they are within larger ones.
    """
    if _have_parts(old, new):
        lines: list[str] = []
        for label in dict.fromkeys([*old, *new]):
            if label not in old and new[label] is None:
                continue  # a setting that came with a later version, and is not used
            pair = old.get(label, _NOT_SET), new.get(label, _NOT_SET)
            lines += difference(*pair, _inside(path, label))
        return lines
    if is_list(old) and is_list(new) and len(old) == len(new) and all(map(_have_parts, old, new)):
        pairs = enumerate(zip(old, new, strict=True))
        return [line for i, pair in pairs for line in difference(*pair, f"{path}[{i}]")]
    if _are_close(old, new):
        return []
    return [f"{path or 'settings'}: was {_short(old)}, is {_short(new)}"]


def _have_parts(*described: Any) -> bool:
    """Return whether these describe mappings or objects, and not tensors or plain values."""
    return all(
        isinstance(each, Mapping) and not {"dtype", "shape"} <= each.keys() for each in described
    )


def _are_close(old: Any, new: Any) -> bool:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return old.keys() == new.keys() and all(_are_close(old[key], new[key]) for key in old)
    if is_list(old) and is_list(new):
        return len(old) == len(new) and all(map(_are_close, old, new))
    if is_number(old) and is_number(new):
        return math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=1e-300)
    return type(old) is type(new) and bool(old == new)


def _short(described: Any) -> str:
    """Return a description in a form for users."""
    text = repr(_rounded(described))
    if described is _NOT_SET:
        text = "not set"
    elif isinstance(described, Mapping) and "class" in described:
        text = described["class"].rpartition(":")[2]
    elif isinstance(described, Mapping) and "entries" in described:
        dtype = "" if described["dtype"] == "float64" else f", {described['dtype']}"
        text = f"tensor({_rounded(described['entries'])}{dtype})"
    elif isinstance(described, Mapping) and "sha256" in described:
        text = f"a tensor of shape {tuple(described['shape'])} ({described['sha256'][:8]})"
    return text if len(text) <= 120 else f"{text[:117]}..."


def _rounded(entries: Any) -> Any:
    """Return numbers without the digits that transforming 0.2 and back leaves behind."""
    if is_list(entries):
        return [_rounded(entry) for entry in entries]
    return float(f"{entries:.14g}") if isinstance(entries, float) else entries


class EnvironmentWarning(RuntimeWarning):
    """A run is continued in an environment where suggestions may differ in their last bits."""


def environment(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Return versions, number of threads and processor as plain values.

    Args:
        device: The device on which the run computes.

    Example:
        >>> known = environment()
        >>> environment_warnings(known, environment())
        []
        >>> environment_warnings(known | {"number of threads": 99}, known)[0].startswith(
        ...     "number of threads was 99"
        ... )
        True
    """
    device = torch.device(device)
    libraries = (torch, gpytorch, botorch, linear_operator, np, scipy)
    return {
        "botorch_bandits": __version__,
        **{library.__name__: str(library.__version__) for library in libraries},
        "python": platform.python_version(),
        "number of threads": torch.get_num_threads(),
        "processor": _processor(),
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
        "system": f"{platform.system()} on {platform.machine()}",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }


def environment_warnings(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return how two environments differ, with one line per difference; empty if they agree.

    Args:
        old: The result of :func:`environment`, or its copy from a file.
        new: Another such environment.
    """
    return [
        f"{name} was {old.get(name, 'not known')} and is {new.get(name, 'not known')}: suggestions "
        "may differ in their last bits from those of a run that was not interrupted."
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    names = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()

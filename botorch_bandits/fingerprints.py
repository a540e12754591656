"""Settings as plain values, so that a file can hold them and two of them can be compared.

A loop that is continued from a file must have the settings with which it began. Objects cannot be
compared across processes, and many compare badly within one: equal ``functools.partial`` objects
are unequal, and two Matern kernels with different ``nu`` print alike. A fingerprint therefore
states what an object is made of:

* plain values, lists and dictionaries unchanged, tensors by their entries (large ones by a digest),
* dataclasses and other objects by class and attributes, domains by class and constructor arguments,
* kernels and other modules by their classes, settings and parameters, kernels also by their values
  at fixed points,
* functions and classes as ``module:qualname``. What a function does is not examined.

Attributes of a dataclass that are excluded from its comparison are ignored.

Parameters of modules and values of kernels are compared up to rounding, because a parameter passes
through a transform that may round differently on another machine. The same holds for tensors in
private attributes, such as eigenvalues, which objects compute from their arguments. Everything else
is compared exactly.

Equal settings give equal suggestions, bit for bit, on one platform only. Another version of
PyTorch, another processor or another number of threads may round differently.

Settings record the classes of this package as ``botorch_bandits:ClassName``, without the module.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import hashlib
import itertools
import math
import platform
import types
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path, PurePath
from typing import Any

import botorch
import gpytorch
import linear_operator
import numpy as np
import scipy
import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn import Module

from botorch_bandits.checks import DTYPE, is_list
from botorch_bandits.domains import Domain
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


LARGEST_TENSOR = 64
"""Tensors with more entries than this are recorded by a digest."""

LARGEST_PARAMETER = 4096
"""The same limit for parameters of modules, which a digest cannot compare up to rounding."""

PARAMETERS, PROBES = "parameters of the module", "values at fixed points"
LARGEST_PROBE_DIM, PROBE_SCALES = 32, (0.01, 1.0, 100.0, 10000.0)
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
    if value is None or type(value) in (bool, int, str):
        return value
    for kinds, describe_plain in _PLAIN:
        if isinstance(value, kinds):
            return describe_plain(value)
    if id(value) in above:
        raise UnnamedSettingError(f"{name} contains itself; pass settings without cycles.")
    for kinds, describe in _NESTED:
        if isinstance(value, kinds):
            return describe(name, value, (*above, id(value)))
    if hasattr(value, "__qualname__"):  # functions, built in or not, and their wrappers
        return _named(name, value)
    parts = dict(sorted(_parts(name, value).items()))
    described = _describe_mapping(name, parts, (*above, id(value)))
    return {"class": _named(name, type(value)), **described}


def _describe_mapping(name: str, value: Mapping[Any, Any], above: tuple[int, ...]) -> Any:
    if all(isinstance(key, str) for key in value):
        return {str(key): _describe(f"{name}.{key}", part, above) for key, part in value.items()}
    return {
        repr(_describe(f"a key of {name}", key, above)): _describe(f"{name}[{key!r}]", part, above)
        for key, part in value.items()
    }


def _describe_sequence(name: str, value: Sequence[Any], above: tuple[int, ...]) -> Any:
    return [_describe(f"{name}[{i}]", part, above) for i, part in enumerate(value)]


def _describe_set(name: str, value: Set[Any], above: tuple[int, ...]) -> Any:
    return sorted((_describe(name, part, above) for part in value), key=repr)


def _describe_method(name: str, value: types.MethodType, above: tuple[int, ...]) -> Any:
    owner = value.__self__
    if isinstance(owner, type):
        return _named(name, value)
    return {"method": value.__name__, "of": _describe(f"{name}.__self__", owner, above)}


def _describe_partial(name: str, value: functools.partial[Any], above: tuple[int, ...]) -> Any:
    return {
        "partial": _describe(f"{name}.func", value.func, above),
        "arguments": _describe(f"{name}.args", value.args, above),
        "keywords": _describe(f"{name}.keywords", value.keywords, above),
    }


def _parts(name: str, value: Any) -> dict[str, Any]:
    """Return the parts of an object of an ordinary class."""
    if dataclasses.is_dataclass(value):
        fields = [field for field in dataclasses.fields(value) if field.compare]
        return {field.name: getattr(value, field.name) for field in fields}
    try:
        return value.recorded_parts() if isinstance(value, Domain) else dict(vars(value))
    except TypeError as error:
        raise UnnamedSettingError(
            f"{name} is {value!r}, which cannot be examined. Pass a dataclass, or a function "
            "that is defined in a module."
        ) from error


# --- modules --------------------------------------------------------------------------------


def _describe_module(name: str, module: Module, above: tuple[int, ...]) -> dict[str, Any]:
    module = copy.deepcopy(module).to("cpu")
    settings: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    for path, part in module.named_modules():
        prefix = f"{path}." if path else ""
        settings[f"{prefix}class"] = _named(f"{name}.{prefix}class", type(part))
        for key, value in sorted(vars(part).items()):
            if _is_setting(part, key, value):
                settings[prefix + key] = _describe(f"{name}.{prefix}{key}", value, above)
        for key, value in [*part.named_parameters(recurse=False), *part.named_buffers("", False)]:
            public = key.removeprefix("raw_")
            known = getattr(part, public, None)  # a lengthscale says more than a raw parameter
            if not isinstance(known, Tensor):
                public, known = key, value
            parameters[prefix + public] = _describe_tensor(name, known, LARGEST_PARAMETER)
    described = {**settings, PARAMETERS: dict(sorted(parameters.items()))}
    if isinstance(module, Kernel):
        described[PROBES] = _probe(module)
    return described


_FUNCTIONS = (type, types.FunctionType, types.MethodType, functools.partial)
_SETTINGS = (bool, int, float, str, Tensor, *_FUNCTIONS)
"""The kinds of attributes of modules that are settings."""


def _is_setting(part: Module, key: str, value: Any) -> bool:
    if key == "training" or key in vars(Module()):
        return False
    # private attributes of the underlying libraries change from version to version
    if key.startswith("_") and type(part).__module__.partition(".")[0] in _KNOWN_PACKAGES:
        return False
    if is_list(value):
        return all(_is_setting(part, key, entry) for entry in value)
    return isinstance(value, _SETTINGS)


def _probe(kernel: Kernel) -> list[Any]:
    """Return a kernel's values between points of several sizes, in as few dimensions as possible.

    Points of different sizes are kept apart, because small distances between large points are
    inexact.
    """
    for dim in range(1, LARGEST_PROBE_DIM + 1):
        steps = torch.arange(1, 4, dtype=DTYPE).unsqueeze(-1)
        # by arithmetic that is the same everywhere
        points = (steps * torch.arange(2, dim + 2, dtype=DTYPE).sqrt()).frac()
        try:
            with torch.no_grad():
                values = [kernel(scale * points).to_dense().double() for scale in PROBE_SCALES]
        except (RuntimeError, IndexError, ValueError, AssertionError):
            continue  # the kernel needs another number of dimensions
        return [_describe_number(number) for number in torch.stack(values).reshape(-1).tolist()]
    return []


# --- numbers and names ----------------------------------------------------------------------


def _describe_number(number: float) -> Any:
    return number if math.isfinite(number) else f"float:{number}"


_PLAIN: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (float | np.floating, lambda value: _describe_number(float(value))),
    (np.bool_ | np.integer, lambda value: value.item()),
    (enum.Enum, lambda value: f"{_name_of(type(value))}.{value.name}"),
    (int, int.__int__),  # of a user's own class
    (str, str.__str__),
    (torch.dtype | torch.device | PurePath, lambda value: f"{type(value).__name__}:{value}"),
    (bytes, lambda value: f"bytes:{value.hex()}"),
)
"""How values without parts are described, by their kind; the first that fits counts."""


def _describe_tensor(name: str, value: Tensor | np.ndarray, largest: int) -> dict[str, Any]:
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    described = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if array.dtype.hasobject:
        raise UnnamedSettingError(f"{name} is an array of objects; pass an array of numbers.")
    if array.size <= largest:
        return {**described, "entries": _describe(name, array.tolist(), ())}
    little = np.ascontiguousarray(array + array.dtype.type(0))  # -0.0 becomes 0.0
    little = little.astype(array.dtype.newbyteorder("<"))
    return {**described, "sha256": hashlib.sha256(little.tobytes()).hexdigest()}


_NESTED: tuple[tuple[Any, Callable[[str, Any, tuple[int, ...]], Any]], ...] = (
    (Tensor | np.ndarray, lambda name, value, _: _describe_tensor(name, value, LARGEST_TENSOR)),
    (Mapping, _describe_mapping),
    (list | tuple, _describe_sequence),
    (Set, _describe_set),
    (type, lambda name, value, _: _named(name, value)),
    (types.MethodType, _describe_method),
    (functools.partial, _describe_partial),
    (Module, _describe_module),
)
"""The same for values that are made of parts, or have a name."""


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


COMPUTED = "tensors in private attributes"
TOLERANCES = {PARAMETERS: 1e-12, PROBES: 1e-9, COMPUTED: 1e-9}  # relative


def difference(old: Any, new: Any) -> list[str]:
    """Return how two fingerprints differ, with one line per difference; empty if they agree.

    Args:
        old: The result of :func:`fingerprint`, or its copy from a file.
        new: Another such fingerprint.
    """
    return _difference("", old, new)


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


def _are_both(kind: Any, old: Any, new: Any) -> bool:
    return isinstance(old, kind) and isinstance(new, kind)


def _difference(path: str, old: Any, new: Any) -> list[str]:
    if _are_both(Mapping, old, new):
        return _difference_of_mappings(path, old, new)
    if _are_both(list, old, new) and len(old) == len(new):
        pairs = list(zip(old, new, strict=True))
        if not all(_are_both(str, *pair) for pair in pairs):  # words are shown together
            named = (_difference(f"{path}[{i}]", *pair) for i, pair in enumerate(pairs))
            return [line for lines in named for line in lines]
    is_same = old == new and isinstance(old, bool) == isinstance(new, bool)
    return [] if is_same else [f"{path or 'settings'}: was {_short(old)}, is {_short(new)}"]


def _difference_of_mappings(path: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    if _is_tensor(old) and _is_tensor(new):
        is_computed = path.rpartition(".")[2].startswith("_")
        is_same = old == new or (is_computed and _round_alike(old, new))
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
    if _are_both(Mapping, old, new):
        return old.keys() == new.keys() and all(
            _are_close(old[key], new[key], tolerance) for key in old
        )
    if _are_both(list, old, new):
        return len(old) == len(new) and all(
            _are_close(*parts, tolerance) for parts in zip(old, new, strict=True)
        )
    if _are_both(float, old, new):
        return math.isclose(old, new, rel_tol=tolerance, abs_tol=1e-300)
    return bool(old == new)


def _round_alike(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether vectors agree up to rounding, relative to the largest entry of both.

    Entries at the end that are rounding errors may be missing, because where eigenvalues are cut
    off is also a matter of rounding.
    """
    one, other = (tensor.get("entries", []) for tensor in (old, new))
    if old["dtype"] != new["dtype"] or len(old["shape"]) != 1 or not (one and other):
        return False
    if not all(_are_both(float, entry, entry) for entry in [*one, *other]):
        return False
    largest = max(abs(entry) for entry in [*one, *other])
    pairs = itertools.zip_longest(one, other, fillvalue=0.0)
    return all(abs(a - b) <= TOLERANCES[COMPUTED] * largest for a, b in pairs)


def _is_tensor(described: Mapping[str, Any]) -> bool:
    return "dtype" in described and "shape" in described


def _short(described: Any) -> str:
    """Return a description in a form for users."""
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
    """Return numbers without the digits that transforming 0.2 and back leaves behind."""
    if isinstance(entries, list):
        return [_rounded(entry) for entry in entries]
    return float(f"{entries:.14g}") if isinstance(entries, float) else entries


_WORDS = {
    "num_threads": "the number of threads",
    "processor": "the processor",
    "instructions": "the processor's vector instructions",
    "machine": "the architecture",
    "system": "the operating system",
    "device": "the device",
}


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
        >>> environment_warnings(known | {"num_threads": 99}, known)[0].startswith(
        ...     "the number of threads was 99"
        ... )
        True
    """
    device = torch.device(device)
    is_cuda = device.type == "cuda"
    return {
        "botorch_bandits": __version__,
        "torch": str(torch.__version__),
        "gpytorch": str(gpytorch.__version__),
        "botorch": str(botorch.__version__),
        "linear_operator": str(linear_operator.__version__),
        "numpy": str(np.__version__),
        "scipy": str(scipy.__version__),
        "python": platform.python_version(),
        "num_threads": torch.get_num_threads(),
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "machine": platform.machine(),
        "system": platform.system(),
        "device": torch.cuda.get_device_name(device) if is_cuda else device.type,
    }


def environment_warnings(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return how two environments differ, with one line per difference; empty if they agree.

    Args:
        old: The result of :func:`environment`, or its copy from a file.
        new: Another such environment.
    """
    return [
        f"{_WORDS.get(name, name)} was {old.get(name, 'not known')} and is "
        f"{new.get(name, 'not known')}: suggestions may differ in their last bits from those of a "
        "run that was not interrupted."
        for name in [*old, *(name for name in new if name not in old)]
        if old.get(name) != new.get(name)
    ]


def _processor() -> str:
    """Return the processor's name and generation as far as the system reports them.

    Rented machines give the same name to processors of several generations.
    """
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    pairs = [line.partition(":") for line in text.split("\n\n")[0].splitlines()]
    known = {name.strip(): value.strip() for name, _, value in pairs}
    name = known.get("model name") or platform.processor() or platform.machine()
    details = [f"{key} {known[key]}" for key in ("cpu family", "model", "stepping") if key in known]
    return f"{name} ({', '.join(details)})" if details else name

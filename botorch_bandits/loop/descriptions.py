"""Settings of a loop as a user would write them, from the header of its storage.

Tables and pages show them, so they are short: large tensors are shown by their shapes, and
uninteresting parts are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from botorch_bandits.feasible_sets import CONSTRAINTS
from botorch_bandits.fingerprints import PARAMETERS, PROBES

SHOWN_ENTRIES = 8
"""Tensors with more entries are shown by their shapes."""

SHOWN_PARTS = 3
"""Lists of more objects than this, such as priors, are shown by their first and last."""

NAMES = (
    "domain",
    "model",
    "acquisition",
    "feedback",
    "restart",
    "forgetting",
    "constraints",
    "repeats",
)
INNER = {"model": ("kernel",), "restart": ("detector", "constraint_detectors")}
"""The settings that have rows of their own."""

_CLASS_NAMES = ("acquisition_class", "model_class", "class")


def setting_rows(settings: Mapping[str, Any]) -> list[list[str]]:
    """Return a name and a description for each setting that is in use.

    Args:
        settings: The settings in the header of a run.
    """
    rows = []
    for name in NAMES:
        setting = settings.get(name)
        if setting is None:
            continue
        if isinstance(setting, Mapping) and {"parameters", "names"} <= setting.keys():
            limits = {name: setting[name] for name in CONSTRAINTS if name in setting}
            setting = {"class": setting["class"], **setting["parameters"], **limits}  # a space
        if name != "domain":
            setting = _without_domain(setting, settings.get("domain"))
        inner = INNER.get(name, ()) if isinstance(setting, Mapping) else ()
        own = {k: v for k, v in setting.items() if k not in inner} if inner else setting
        rows.append([name, describe_setting(own)])
        rows += [
            [part.replace("_", " "), describe_setting(setting[part])]
            for part in inner
            if setting.get(part)
        ]
    rows += [
        [name, str(settings[name])]
        for name in ("horizon", "num_initial", "context_dim")
        if settings.get(name)
    ]
    rows += [] if settings.get("maximize", True) else [["maximize", "False"]]
    return [*rows, ["seed", str(settings["seed"])]]


def _without_domain(setting: Any, domain: Any) -> Any:
    """Return a setting with the name of its space in place of the space of the first row."""
    if isinstance(setting, list):
        return [_without_domain(part, domain) for part in setting]
    if not isinstance(setting, Mapping):
        return setting
    if "parameters" in setting and setting == domain:
        return "domain"
    return {name: _without_domain(part, domain) for name, part in setting.items()}


def describe_setting(setting: Any) -> str:
    """Return a setting as a user would write it, if that is short.

    Args:
        setting: The description that :func:`~botorch_bandits.fingerprints.fingerprint` makes.

    Example:
        >>> describe_setting({"class": "botorch_bandits:SlidingWindow", "size": 40})
        'SlidingWindow(size=40)'
    """
    if isinstance(setting, list):
        if len(setting) > SHOWN_PARTS and all(isinstance(part, Mapping) for part in setting):
            first, last = describe_setting(setting[0]), describe_setting(setting[-1])
            return f"[{first}, ..., {last}] ({len(setting)} in all)"
        return f"[{', '.join(describe_setting(part) for part in setting)}]"
    if isinstance(setting, float):
        return f"{setting:.6g}"
    if isinstance(setting, str):
        return setting.removeprefix("float:").rpartition(":")[2]
    if not isinstance(setting, Mapping):
        return str(setting)
    if "dtype" in setting and "shape" in setting:
        shape = setting["shape"]
        if "entries" in setting and math.prod(shape) <= SHOWN_ENTRIES:
            entries = setting["entries"]
            while isinstance(entries, list) and len(entries) == 1:
                (entries,) = entries
            return describe_setting(entries)
        return " x ".join(map(str, shape))
    if PARAMETERS in setting:
        return _describe_module(setting)
    name = next((describe_setting(setting[n]) for n in _CLASS_NAMES if n in setting), "")
    values = {k: v for k, v in setting.items() if k not in (*_CLASS_NAMES, "options")}
    values |= setting.get("options") or {}
    shown = [f"{k}={describe_setting(v)}" for k, v in values.items() if v not in (None, [], {})]
    return f"{name}({', '.join(shown)})" if shown or not name else name


def _describe_module(flat: Mapping[str, Any], prefix: str = "") -> str:
    """Return a kernel, or another module, whose parts are recorded under dotted names."""
    values = {**flat, **flat[PARAMETERS]}
    own = {
        name.removeprefix(prefix): value
        for name, value in values.items()
        if name.startswith(prefix) and name not in (PARAMETERS, PROBES)
    }
    parts = [
        _describe_module(flat, f"{prefix}{name.removesuffix('class')}")
        for name in own
        if name.endswith(".class") and name.count(".") == 1 and not _is_side(name)
    ]
    shown = [
        f"{name}={describe_setting(value)}"
        for name, value in own.items()
        if "." not in name and name != "class" and value is not None and not _is_side(name)
    ]
    name = describe_setting(own.get("class", "?"))
    if name == "ModuleList":
        return ", ".join(parts)
    return f"{name}({', '.join(parts + shown)})" if parts or shown else name


def _is_side(name: str) -> bool:
    """Return whether a part of a module is uninteresting: a constraint or prior of a parameter."""
    return any(part.endswith(("_constraint", "_prior")) for part in name.split("."))

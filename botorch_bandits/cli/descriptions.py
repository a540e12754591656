"""Settings of a run in short, from the header of its storage."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import Any

SHOWN_ENTRIES = 8
"""Tensors with more entries are shown by their shapes."""

SHOWN_CHARACTERS = 400
"""Longer descriptions are cut."""

_CLASS_NAMES = ("acquisition_class", "model_class", "class")
_HIDDEN = (*_CLASS_NAMES, "options")


def setting_rows(settings: Mapping[str, Any]) -> list[list[str]]:
    """Return a name and a description for each setting that is in use.

    Args:
        settings: The settings in the header of a run.
    """
    used = {name: setting for name, setting in settings.items() if setting not in (None, [])}
    return [
        [name, textwrap.shorten(describe_setting(setting), SHOWN_CHARACTERS, placeholder="...")]
        for name, setting in used.items()
    ]


def describe_setting(setting: Any) -> str:
    """Return a setting as a user would write it, without details such as priors of parameters.

    Args:
        setting: The description that :func:`~botorch_bandits.fingerprints.fingerprint` makes.

    Example:
        >>> describe_setting({"class": "botorch_bandits:SlidingWindow", "size": 40})
        'SlidingWindow(size=40)'
    """
    if isinstance(setting, list):
        return f"[{', '.join(map(describe_setting, setting))}]"
    if isinstance(setting, float):
        return f"{setting:.6g}"
    if isinstance(setting, str):
        return setting.removeprefix("float:").rpartition(":")[2]
    if not isinstance(setting, Mapping):
        return str(setting)
    if {"dtype", "shape"} <= setting.keys():
        shape = setting["shape"]
        is_short = math.prod(shape) <= SHOWN_ENTRIES
        return describe_setting(setting["entries"]) if is_short else " x ".join(map(str, shape))
    name = next((describe_setting(setting[key]) for key in _CLASS_NAMES if key in setting), "")
    values = {key: value for key, value in setting.items() if key not in _HIDDEN}
    shown = [
        f"{key}={describe_setting(value)}"
        for key, value in (values | (setting.get("options") or {})).items()
        if value not in (None, [], {}) and not key.endswith(("_constraint", "_prior"))
    ]
    return f"{name}({', '.join(shown)})" if shown or not name else name

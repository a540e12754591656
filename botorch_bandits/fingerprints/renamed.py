"""Names of settings that have changed since journals were first written.

A journal records the settings of its loop by name. This module has the one table of names that
have changed, so that an old journal opens and continues as it would have under the old names.
Settings record the classes of this package as ``botorch_bandits:ClassName``, without the module, so
that a class may move to another module of the package without an entry here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

RENAMED_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "ExpectedImprovement": "LogExpectedImprovement",
        "ProbabilityOfImprovement": "LogProbabilityOfImprovement",
    }
)
"""From the old name of a class or function of this package to its present one."""

RENAMED_OPTIONS: Mapping[str, Mapping[str, str]] = MappingProxyType({})
"""For a class, by its present name: from old names of its options to their present ones.

The settings of the loop itself are listed under ``"LoopSettings"``.
"""

_PREFIX = f"{__name__.partition('.')[0]}:"
_LOOP = "LoopSettings"


def translate_settings(
    settings: Mapping[str, Any],
    classes: Mapping[str, str] = RENAMED_CLASSES,
    options: Mapping[str, Mapping[str, str]] = RENAMED_OPTIONS,
) -> dict[str, Any]:
    """Return recorded settings under the names that classes and options have today.

    Args:
        settings: Of a loop, as :func:`~botorch_bandits.fingerprints.fingerprint` described them;
            they are not changed.
        classes: From old names of classes to present ones.
        options: From the present name of a class to the new names of its options.

    Example:
        >>> old = {"acquisition_class": "botorch_bandits:ExpectedImprovement", "options": {}}
        >>> translate_settings({"acquisition": old})["acquisition"]["acquisition_class"]
        'botorch_bandits:LogExpectedImprovement'
    """
    translated = {key: _translate(value, classes, options) for key, value in settings.items()}
    return _rename_keys(translated, options.get(_LOOP, {}))


def _translate(
    value: Any, classes: Mapping[str, str], options: Mapping[str, Mapping[str, str]]
) -> Any:
    if isinstance(value, str):
        return _translate_name(value, classes)
    if isinstance(value, list):
        return [_translate(part, classes, options) for part in value]
    if not isinstance(value, Mapping):
        return value
    translated = {key: _translate(part, classes, options) for key, part in value.items()}
    played = translated.get("acquisition_class")
    if isinstance(played, str) and isinstance(translated.get("options"), dict):
        translated["options"] = _rename_keys(translated["options"], _options_of(played, options))
    return _rename_keys(translated, _options_of(translated.get("class"), options))


def _translate_name(text: str, classes: Mapping[str, str]) -> str:
    """Translate ``botorch_bandits:ClassName``, or a method or member of a class."""
    if not text.startswith(_PREFIX):
        return text
    name, dot, member = text.removeprefix(_PREFIX).partition(".")
    return f"{_PREFIX}{classes.get(name, name)}{dot}{member}"


def _options_of(name: Any, options: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    if not isinstance(name, str) or not name.startswith(_PREFIX):
        return {}
    return options.get(name.removeprefix(_PREFIX), {})


def _rename_keys(settings: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in settings.items()}

"""Settings as the header of a journal has them: described, and some of them built again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from botorch_bandits.change_points import OracleRestart
from botorch_bandits.constraints import (
    AdditiveEpochs,
    Ledger,
    MultiplicativeEpochs,
    MultiplierRule,
    PrimalDual,
)
from botorch_bandits.domains import Box
from botorch_bandits.feedback import Censored, Hallucinated
from botorch_bandits.fingerprints.settings import PARAMETERS, PROBES
from botorch_bandits.history import History
from botorch_bandits.loop.segments import Segments
from botorch_bandits.penalties import Exponential, Linear, Polynomial
from botorch_bandits.plotting.rounds import resets_on_record

SHOWN_ENTRIES = 8
"""Tensors with more entries are shown by their shapes."""

NAMES = ("domain", "model", "acquisition", "feedback", "restart", "forgetting", "constraints")
INNER = {"model": ("kernel",), "restart": ("detector", "constraint_detectors")}
"""What has a row of its own."""

_CLASS_NAMES = ("acquisition_class", "model_class", "class")
_CLASSES = {
    kind.__name__: kind
    for kind in (
        AdditiveEpochs,
        MultiplicativeEpochs,
        PrimalDual,
        Exponential,
        Linear,
        Polynomial,
        Censored,
    )
}
"""What can be built again, for it is made of plain values."""


class _UnknownClassError(Exception):
    """A setting is of a class that cannot be built from its record."""


def setting_rows(settings: Mapping[str, Any]) -> list[list[str]]:
    """Return a name and a description for each setting that is in use.

    Args:
        settings: Of a journal's header.
    """
    rows = []
    for name in NAMES:
        setting = settings.get(name)
        if setting is None:
            continue
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
    return [*rows, ["seed", str(settings["seed"])]]


def describe_setting(setting: Any) -> str:
    """Return a setting as a user would write it, as far as that is short.

    Args:
        setting: As :func:`~botorch_bandits.fingerprints.fingerprint` describes it.

    Example:
        >>> describe_setting({"class": "botorch_bandits:SlidingWindow", "size": 40})
        'SlidingWindow(size=40)'
    """
    if isinstance(setting, list):
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


def censored_feedback(settings: Mapping[str, Any]) -> Censored | None:
    """Return the censored feedback of a loop, if it has that.

    Args:
        settings: Of a journal's header.
    """
    try:
        feedback = _build(settings["feedback"])
    except _UnknownClassError:
        return None
    return feedback if isinstance(feedback, Censored) else None


def reset_reason(settings: Mapping[str, Any]) -> str:
    """Return why a loop begins anew, as :attr:`.Reset.reason` has it; empty if that is not known.

    Args:
        settings: Of a journal's header.
    """
    restart = settings.get("restart") or {}
    reasons = {"ChangePointRestart": "detection", "OracleRestart": "oracle"}
    return reasons.get(describe_setting(restart.get("class", "")), "")


def rebuild_ledger(settings: Mapping[str, Any], history: History) -> Ledger | None:
    """Return the ledger that a loop with constraints has, without the loop.

    Resets are where the queries have them on record: an outcome that came between a detection and
    the next query counts in the epoch that the detection ended.

    Args:
        settings: Of a journal's header.
        history: What the journal says.

    Returns:
        None if the multiplier rule cannot be built from its record, or does not give the
        multipliers that are on record.
    """
    try:
        rule = _build(settings["constraints"])
    except _UnknownClassError:
        return None
    assert isinstance(rule, MultiplierRule)
    restart = settings.get("restart")
    resets = resets_on_record(history)
    stand_in = None
    if restart is not None:
        keeps = bool(restart.get("keep_multipliers", False))
        stand_in = OracleRestart(change_points=tuple(resets), keep_multipliers=keeps)
    box = Box(torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, history.dim))
    segments = Segments(stand_in, box, Hallucinated(), history.context_dim, rule)
    segments.replay(history)
    assert segments.multipliers is not None
    updates = segments.multipliers.updates
    for epoch, multipliers in _recorded_multipliers(history, rule.num_constraints):
        if epoch > len(updates) or not all(
            math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
            for a, b in zip(updates[epoch - 1].multipliers, multipliers, strict=True)
        ):
            return None
    return segments.multipliers.ledger()


def _recorded_multipliers(
    history: History, num_constraints: int
) -> Iterator[tuple[int, list[float]]]:
    """Return the epoch of each query, and the multipliers in force."""
    for query in history.queries:
        known = query.diagnostics
        if "epoch" in known:
            names = [f"multiplier_{j + 1}" for j in range(num_constraints)]
            yield int(known["epoch"]), [known[name] for name in names]


def _build(setting: Any) -> Any:
    """Build an object again.

    Raises:
        _UnknownClassError: If it, or a part of it, is of another class than those above.
    """
    if isinstance(setting, str) and setting.startswith("float:"):
        return float(setting.removeprefix("float:"))
    if not isinstance(setting, Mapping):
        return setting
    package, _, name = str(setting.get("class", "")).partition(":")
    if package != __name__.partition(".")[0] or name not in _CLASSES:
        raise _UnknownClassError(name)
    return _CLASSES[name](**{k: _build(v) for k, v in setting.items() if k != "class"})


def _describe_module(flat: Mapping[str, Any], prefix: str = "") -> str:
    """Return a kernel, or another module, whose parts are recorded by names with dots."""
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
    """Return whether a part of a module is of no interest: a constraint or prior of a parameter."""
    return any(part.endswith(("_constraint", "_prior")) for part in name.split("."))

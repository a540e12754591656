"""The largest memory that a piece of work holds at once: every allocation counted, none estimated.

Torch's allocator reports each block to the profiler, the workspaces of factorizations included,
and ``tracemalloc`` has what numpy and Python take. Resident memory would depend on what the process
did before.
"""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would report that it runs

import numpy as np
import torch
from torch import Tensor


def peak_bytes(work: Callable[[], Any]) -> int:
    """Return how many bytes a piece of work held at most, beyond what there was before it.

    That is the largest sum of torch's blocks, plus the largest sum of what numpy and Python hold:
    an upper bound, since both need not be at their largest at once.

    Args:
        work: Called once.
    """
    gc.collect()
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        with torch.autograd.profiler.profile(profile_memory=True, use_kineto=True) as profile:
            work()
        elsewhere = tracemalloc.get_traced_memory()[1] - before
    finally:
        if not was_tracing:
            tracemalloc.stop()
    events = profile.kineto_results.events()
    blocks = [event for event in events if event.name() == "[memory]"]
    blocks.sort(key=lambda event: event.start_ns())
    held = largest = 0
    for block in blocks:
        held += block.nbytes()
        largest = max(largest, held)
    return largest + elsewhere


def kept_bytes(value: Any) -> int:
    """Return the memory of all tensors and arrays that can be reached, each storage once.

    Args:
        value: An object; attributes, containers and what closures hold are followed.
    """
    seen: set[int] = set()
    blocks: dict[int, int] = {}
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, type | str | bytes | int | float | bool):
            continue
        seen.add(id(each))
        if isinstance(each, Tensor):
            storage = each.untyped_storage()
            blocks[storage.data_ptr()] = storage.nbytes()
        elif isinstance(each, np.ndarray):
            whole = each
            while isinstance(whole.base, np.ndarray):
                whole = whole.base
            address = whole.__array_interface__["data"][0]
            blocks.setdefault(address, whole.nbytes)
        elif isinstance(each, Mapping):
            waiting += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset):
            waiting += list(each)
        waiting += _parts_of(each)
    return sum(blocks.values())


def _parts_of(value: Any) -> list[Any]:
    parts: list[Any] = list(vars(value).values()) if hasattr(value, "__dict__") else []
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            parts.append(getattr(value, slot, None))
    function = getattr(value, "__func__", value)
    parts += [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    if hasattr(value, "__self__"):
        parts.append(value.__self__)
    return parts

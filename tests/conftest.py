"""How tests are collected: without the garbage collector, and products of parameters in part.

The tests and the libraries that they import create millions of objects, none of which is garbage.
Scanning them repeatedly took a quarter of the collection time.

A test with several ``parametrize`` marks is a product. By day each value of each mark is played at
least once; the other cases are marked ``slow``, like the tests that take minutes, and are played at
night. Rows of one mark, such as those of :mod:`pairwise`, are all played.
"""

from __future__ import annotations

import gc
import os
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # each worker has a core, and threads do not survive a fork


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect the tests without looking for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def values_of(item: pytest.Item) -> set[tuple[str, tuple[Any, ...]]]:
    """Return the value of each ``parametrize`` mark, with the names of its arguments."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    values = set()
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if isinstance(mark.args[0], str) else ",".join(mark.args[0])
        row = tuple(params.get(name.strip()) for name in names.split(","))
        plain = tuple(v if isinstance(v, bool | int | float | str) else id(v) for v in row)
        values.add((names, plain))
    return values


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what repeats, in other combinations, values that other cases have."""
    cases = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append((item, values_of(item)))
    for group in cases.values():
        if len(group[0][1]) < 2:  # no product
            continue
        seen: set[Any] = set()
        while group:
            best = max(range(len(group)), key=lambda i: len(group[i][1] - seen))
            item, values = group.pop(best)
            if not values - seen:
                item.add_marker(pytest.mark.slow)
            seen |= values


@pytest.fixture(scope="module")
def quick_disk() -> Iterator[None]:
    """Leave out synchronizing, which takes long and changes nothing that a living system sees."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield

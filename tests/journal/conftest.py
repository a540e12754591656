"""Fixtures of the journal's tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def quick_disk() -> Iterator[None]:
    """Leave out synchronizing, which takes long and changes nothing that a living system sees."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield

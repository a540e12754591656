"""Fixtures of the tests of spaces."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture
def quick_disk() -> Iterator[None]:
    """Leave out synchronizing, which takes long and changes nothing that a living system sees."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield

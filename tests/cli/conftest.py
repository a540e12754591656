"""Runs draw their pictures in every test; few tests wait until they are rendered."""

from __future__ import annotations

from typing import Any

import pytest

from botorch_bandits.cli.session import OutputFolder


@pytest.fixture
def rendered() -> None:
    """Ask for pictures with pixels."""


@pytest.fixture(autouse=True)
def pictures_without_pixels(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leave a picture that was drawn empty: its pixels take most of the time of a short run."""
    if "rendered" in request.fixturenames:
        return

    def save(output: OutputFolder, axes: Any, name: str) -> None:
        import matplotlib.pyplot as plt

        (output.path / name).touch()
        plt.close(axes[0].figure)

    monkeypatch.setattr(OutputFolder, "_save", save)

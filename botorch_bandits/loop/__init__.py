"""The loop: ask for a point, tell what came back."""

from botorch_bandits.loop.builders import AcquisitionFactory, ModelFactory
from botorch_bandits.loop.journal import DifferentSettingsError
from botorch_bandits.loop.loop import BanditLoop

__all__ = ["AcquisitionFactory", "BanditLoop", "DifferentSettingsError", "ModelFactory"]

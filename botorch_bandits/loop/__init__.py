"""The loop: ask for a point, tell what came back."""

from botorch_bandits.loop.journal import DifferentSettingsError
from botorch_bandits.loop.loop import BanditLoop
from botorch_bandits.loop.settings import AcquisitionFactory, ModelFactory

__all__ = ["AcquisitionFactory", "BanditLoop", "DifferentSettingsError", "ModelFactory"]

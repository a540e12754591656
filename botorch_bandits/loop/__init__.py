"""The loop: ask for a point, tell what came back."""

from botorch_bandits.loop.loop import AcquisitionFactory, BanditLoop, ModelFactory

__all__ = ["AcquisitionFactory", "BanditLoop", "ModelFactory"]

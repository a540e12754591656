"""The loop: ask for a point, evaluate it, tell what came back, and repeat.

:class:`BanditLoop` is what users build. The other files of this folder hold its settings, what is
derived from its history, how points are chosen, what is guaranteed, and its storage.
"""

from botorch_bandits.loop.checking import RepeatedFailureWarning
from botorch_bandits.loop.log import DifferentSettingsError
from botorch_bandits.loop.loop import BanditLoop
from botorch_bandits.loop.settings import AcquisitionFactory, ModelFactory
from botorch_bandits.loop.store import StorageError, StorageWriteError, TurnTimeout, read_store

__all__ = [
    "AcquisitionFactory",
    "BanditLoop",
    "DifferentSettingsError",
    "ModelFactory",
    "RepeatedFailureWarning",
    "StorageError",
    "StorageWriteError",
    "TurnTimeout",
    "read_store",
]

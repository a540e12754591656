"""The loop: ask for a point, evaluate it, tell what came back, and repeat.

:class:`BanditLoop` is what users build. The other files of this folder hold its settings, what a
round sees and the features that change it, how points are chosen, what is reported, and the
storage.
"""

from botorch_bandits.loop.loop import BanditLoop, DifferentSettingsError
from botorch_bandits.loop.reports import RepeatedFailureWarning
from botorch_bandits.loop.settings import AcquisitionFactory, ModelFactory
from botorch_bandits.loop.store import StorageError, StorageWriteError, TurnTimeout, read_store
from botorch_bandits.loop.view import (
    BelowMinimumError,
    Censored,
    CensoredView,
    ExponentialWeights,
    Feedback,
    Forgetting,
    Hallucinated,
    Ignored,
    LateOutcomeWarning,
    SlidingWindow,
    TimeVaryingKernel,
)

__all__ = [
    "AcquisitionFactory",
    "BanditLoop",
    "BelowMinimumError",
    "Censored",
    "CensoredView",
    "DifferentSettingsError",
    "ExponentialWeights",
    "Feedback",
    "Forgetting",
    "Hallucinated",
    "Ignored",
    "LateOutcomeWarning",
    "ModelFactory",
    "RepeatedFailureWarning",
    "SlidingWindow",
    "StorageError",
    "StorageWriteError",
    "TimeVaryingKernel",
    "TurnTimeout",
    "read_store",
]

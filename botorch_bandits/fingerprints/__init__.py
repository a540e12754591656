"""Settings as plain values, so that a file can hold them and two of them can be compared."""

from botorch_bandits.fingerprints.differences import are_equal, difference
from botorch_bandits.fingerprints.environment import (
    EnvironmentWarning,
    environment,
    environment_warnings,
)
from botorch_bandits.fingerprints.renamed import translate_settings
from botorch_bandits.fingerprints.settings import UnnamedSettingError, fingerprint

__all__ = [
    "EnvironmentWarning",
    "UnnamedSettingError",
    "are_equal",
    "difference",
    "environment",
    "environment_warnings",
    "fingerprint",
    "translate_settings",
]

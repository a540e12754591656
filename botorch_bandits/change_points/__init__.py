"""Changes of the reward function: a detector, its thresholds, and policies that start over.

One detector compares the fits to two halves of the newest uniform samples (Avanesov 2020). The
other weighs the evidence of all outcomes, wherever the queries were. A restart policy determines
when a loop explores for the sake of a detector, and resets the loop when a change is detected.
"""

from botorch_bandits.change_points.calibration import (
    FalseAlarms,
    calibrate_threshold,
    cross_validated_ridge,
    estimate_false_alarm_rate,
)
from botorch_bandits.change_points.evidence import (
    EvidenceDetector,
    EvidenceStream,
    EvidenceTest,
)
from botorch_bandits.change_points.half_samples import (
    CalibratedThreshold,
    ChangePointDetector,
    ChangePointTest,
    DetectorEngine,
    PowerThreshold,
    Threshold,
)
from botorch_bandits.change_points.restart import (
    PUBLISHED_EXPLORATION,
    ChangePointRestart,
    EvidenceRestart,
    NeverRestart,
    OracleRestart,
    Reset,
    Restart,
)

__all__ = [
    "PUBLISHED_EXPLORATION",
    "CalibratedThreshold",
    "ChangePointDetector",
    "ChangePointRestart",
    "ChangePointTest",
    "DetectorEngine",
    "EvidenceDetector",
    "EvidenceRestart",
    "EvidenceStream",
    "EvidenceTest",
    "FalseAlarms",
    "NeverRestart",
    "OracleRestart",
    "PowerThreshold",
    "Reset",
    "Restart",
    "Threshold",
    "calibrate_threshold",
    "cross_validated_ridge",
    "estimate_false_alarm_rate",
]

"""Restarts whose threshold keeps a rate of false alarms over an experiment's horizon."""

from __future__ import annotations

from dataclasses import replace

from botorch_bandits.change_points import (
    ChangePointDetector,
    ChangePointRestart,
    calibrate_threshold,
)
from botorch_bandits.domains import Domain


def calibrated_restart(
    detector: ChangePointDetector,
    domain: Domain,
    num_rounds: int,
    *,
    noise_std: float,
    false_alarm_rate: float,
    num_simulations: int,
) -> ChangePointRestart:
    """Return restarts by a detector with a threshold for as many samples as a run explores.

    With the published exploration ``xi``, a run of ``T`` rounds draws at most
    ``xi sqrt(T) + 1`` queries uniformly.

    Args:
        detector: Its own threshold does not matter.
        domain: Where uniform samples are drawn.
        num_rounds: ``T``.
        noise_std: Standard deviation of the noise, in outcome units.
        false_alarm_rate: The probability of any alarm without a change, in (0, 1).
        num_simulations: See :func:`~botorch_bandits.change_points.calibrate_threshold`.
    """
    rule = ChangePointRestart(detector=detector)
    assert rule.exploration is not None
    threshold = calibrate_threshold(
        detector,
        domain,
        horizon=max(int(rule.exploration * num_rounds**0.5) + 1, 2),
        false_alarm_rate=false_alarm_rate,
        noise_std=noise_std,
        num_simulations=num_simulations,
        progress=False,
    )
    return replace(rule, detector=replace(detector, threshold=threshold))

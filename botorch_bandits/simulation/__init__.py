"""Replicates of a bandit: as one tensor program on arms, in lockstep on a box, or as loops.

Policies are the recipes of the loop, and they make the choices that the loop would make.
"""

from botorch_bandits.simulation.arms import play_arms
from botorch_bandits.simulation.candidates import CandidatesReplicates
from botorch_bandits.simulation.problems import (
    ArmRewards,
    PeriodRewards,
    Policy,
    SimulationResult,
    rewards_of,
)
from botorch_bandits.simulation.replicates import play_box, simulate
from botorch_bandits.simulation.restarts import ReplicateSegments

__all__ = [
    "ArmRewards",
    "CandidatesReplicates",
    "PeriodRewards",
    "Policy",
    "ReplicateSegments",
    "SimulationResult",
    "play_arms",
    "play_box",
    "rewards_of",
    "simulate",
]

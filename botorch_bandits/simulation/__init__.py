"""Replicates of a bandit: as one tensor program on arms, in lockstep on a box, or as loops.

Policies are the recipes of the loop, and they make the choices that the loop would make.
"""

from botorch_bandits.simulation.arms import play_arms
from botorch_bandits.simulation.loops import play_loops
from botorch_bandits.simulation.problems import (
    Policy,
    SimulationResult,
    rewards_of,
)
from botorch_bandits.simulation.replicates import simulate

__all__ = [
    "Policy",
    "SimulationResult",
    "play_arms",
    "play_loops",
    "rewards_of",
    "simulate",
]

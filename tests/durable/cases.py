"""Loops and the script that plays them; :mod:`benchmarks.faults` uses the same."""

from benchmarks.fault_cases import build, derived, num_steps, play, settings, step

SETTINGS = settings()
ARMS = SETTINGS["arms, ucb"]["domain"]
BOX = SETTINGS["box, ucb"]["domain"]
MODEL = SETTINGS["arms, ucb"]["model"]
UCB = SETTINGS["arms, ucb"]["acquisition"]

__all__ = [
    "ARMS",
    "BOX",
    "MODEL",
    "SETTINGS",
    "UCB",
    "build",
    "derived",
    "num_steps",
    "play",
    "step",
]

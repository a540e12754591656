"""Reward problems for Gaussian-process bandits, with optima for comparison.

All problems are BoTorch test problems whose values are to be maximized. The exceptions are those
that change with the round (:class:`ChangingProblem`), which give one test problem for each round.
They work in float64 and take their randomness from a ``seed`` argument; only the observation noise
of ``problem(X)`` uses torch's global random state, as everywhere in BoTorch.
"""

from botorch_bandits.problems.base import ArmsProblem
from botorch_bandits.problems.changing import (
    ChangingProblem,
    DriftingGP,
    SwitchingProblem,
    evenly_spaced_change_points,
    switching_gp_draws,
)
from botorch_bandits.problems.constrained import (
    ConstrainedArmsProblem,
    ConstrainedProblem,
)
from botorch_bandits.problems.delays import (
    ConstantDelay,
    Delays,
    PoissonDelay,
)
from botorch_bandits.problems.functions import (
    BraninReward,
    RKHSFunction,
    gp_draw_on_arms,
)
from botorch_bandits.problems.tuning import (
    TuningProblem,
    load_csv,
    load_dataset,
)

__all__ = [
    "ArmsProblem",
    "BraninReward",
    "ChangingProblem",
    "ConstantDelay",
    "ConstrainedArmsProblem",
    "ConstrainedProblem",
    "Delays",
    "DriftingGP",
    "PoissonDelay",
    "RKHSFunction",
    "SwitchingProblem",
    "TuningProblem",
    "evenly_spaced_change_points",
    "gp_draw_on_arms",
    "load_csv",
    "load_dataset",
    "switching_gp_draws",
]

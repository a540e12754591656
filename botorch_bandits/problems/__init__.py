"""Reward problems to run Gaussian-process bandits on.

All problems are BoTorch test problems whose values are to be maximised. They work
in float64 and take their randomness from a ``seed`` argument; only the observation
noise of ``problem(X)`` uses torch's global random state, as everywhere in BoTorch.
"""

from botorch_bandits.problems.arms import ArmsProblem, restrict_to_arms
from botorch_bandits.problems.delays import (
    ConstantDelay,
    Delays,
    GeometricDelay,
    HeavyTailedDelay,
    InputDependentDelay,
    PoissonDelay,
    parse_delays,
)
from botorch_bandits.problems.gp_draws import GPDraw, gp_draw_on_arms, posterior_mean_of_gp_draw
from botorch_bandits.problems.rkhs import RKHSFunction
from botorch_bandits.problems.synthetic import BraninReward, Hartmann3Reward, RosenbrockReward

__all__ = [
    "ArmsProblem",
    "BraninReward",
    "ConstantDelay",
    "Delays",
    "GPDraw",
    "GeometricDelay",
    "Hartmann3Reward",
    "HeavyTailedDelay",
    "InputDependentDelay",
    "PoissonDelay",
    "RKHSFunction",
    "RosenbrockReward",
    "gp_draw_on_arms",
    "parse_delays",
    "posterior_mean_of_gp_draw",
    "restrict_to_arms",
]

"""Reward problems to run Gaussian-process bandits on.

All problems are BoTorch test problems whose values are to be maximised. They work
in float64 and take their randomness from a `seed` argument; only the observation
noise of `problem(X)` uses torch's global random state, as everywhere in BoTorch.
"""

from .arms import ArmsProblem, restrict_to_arms
from .gp_draws import GPDraw, gp_draw_on_arms, posterior_mean_of_gp_draw
from .rkhs import RKHSFunction
from .synthetic import BraninReward, Hartmann3Reward, RosenbrockReward

__all__ = [
    "ArmsProblem",
    "BraninReward",
    "GPDraw",
    "Hartmann3Reward",
    "RKHSFunction",
    "RosenbrockReward",
    "gp_draw_on_arms",
    "posterior_mean_of_gp_draw",
    "restrict_to_arms",
]

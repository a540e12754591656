"""Models: the bandit's Gaussian process, its recipe, and conditioning of any BoTorch model.

:class:`BanditGP` and :class:`FittedSingleTaskGP` are what users choose between. The closed forms
on boxes and on arms, which make a round fast, are BoTorch models' numbers computed another way.
"""

from botorch_bandits.models.arms import ArmsPosterior, ArmsPrior
from botorch_bandits.models.bandit_gp import BanditGP, BanditGPRecipe, RefitWarning
from botorch_bandits.models.censoring import DEFAULT_TOLERANCE as RINGING_TOLERANCE
from botorch_bandits.models.censoring import posterior_rise, probe_points
from botorch_bandits.models.condition import condition, hallucinate
from botorch_bandits.models.fitted import (
    FittedSingleTaskGP,
    LearnedGP,
    default_kernel,
    default_likelihood,
)
from botorch_bandits.models.kernels import StationaryKernel, double_kernel, fingerprint_kernel
from botorch_bandits.models.marginal_likelihood import fit_ordinarily

__all__ = [
    "RINGING_TOLERANCE",
    "ArmsPosterior",
    "ArmsPrior",
    "BanditGP",
    "BanditGPRecipe",
    "FittedSingleTaskGP",
    "LearnedGP",
    "RefitWarning",
    "StationaryKernel",
    "condition",
    "default_kernel",
    "default_likelihood",
    "double_kernel",
    "fingerprint_kernel",
    "fit_ordinarily",
    "hallucinate",
    "posterior_rise",
    "probe_points",
]

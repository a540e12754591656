"""Models: the bandit's Gaussian process, its recipes, and conditioning of any BoTorch model."""

from botorch_bandits.models.bandit_gp import BanditGP
from botorch_bandits.models.condition import condition, hallucinate
from botorch_bandits.models.fitted import FittedSingleTaskGP
from botorch_bandits.models.kernels import fingerprint_kernel
from botorch_bandits.models.recipe import BanditGPRecipe, RefitWarning

__all__ = [
    "BanditGP",
    "BanditGPRecipe",
    "FittedSingleTaskGP",
    "RefitWarning",
    "condition",
    "fingerprint_kernel",
    "hallucinate",
]

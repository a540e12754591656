"""Models: the bandit's Gaussian process, its recipe, and conditioning of any BoTorch model.

Users choose between :class:`BanditGP` and :class:`FittedSingleTaskGP`. The closed forms on boxes
and on arms, which make a round fast, compute the same numbers as the BoTorch models in another way.
"""

from botorch_bandits.checks import double_kernel
from botorch_bandits.models.bandit_gp import BanditGP, BanditGPRecipe, RefitWarning
from botorch_bandits.models.candidates import CandidatesModel, CandidatesRecipe
from botorch_bandits.models.censoring import RINGING_TOLERANCE, posterior_rise, probe_points
from botorch_bandits.models.fitted import (
    FittedSingleTaskGP,
    LearnedGP,
    default_kernel,
    default_likelihood,
    winsorized,
)
from botorch_bandits.models.prior_lists import (
    DefaultCandidates,
    candidate_grid,
    draw_lengthscales,
    lengthscale_ladder,
)
from botorch_bandits.models.reading import condition, hallucinate

__all__ = [
    "RINGING_TOLERANCE",
    "BanditGP",
    "BanditGPRecipe",
    "CandidatesModel",
    "CandidatesRecipe",
    "DefaultCandidates",
    "FittedSingleTaskGP",
    "LearnedGP",
    "RefitWarning",
    "candidate_grid",
    "condition",
    "default_kernel",
    "default_likelihood",
    "double_kernel",
    "draw_lengthscales",
    "hallucinate",
    "lengthscale_ladder",
    "posterior_rise",
    "probe_points",
    "winsorized",
]

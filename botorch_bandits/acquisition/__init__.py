"""Acquisition functions: drop-ins for BoTorch's optimizers, and recipes for the loop.

Each file contains one family: its classes for BoTorch tensors and its rules on arms.
"""

from botorch_bandits.acquisition.base import AcquisitionRecipe, BanditAcquisition, RandomSearch
from botorch_bandits.acquisition.baselines import (
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
    MeanOnly,
    VarianceOnly,
)
from botorch_bandits.acquisition.candidates import (
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
)
from botorch_bandits.acquisition.censored import (
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
)
from botorch_bandits.acquisition.dmm import DMMUpperConfidenceBound
from botorch_bandits.acquisition.input_constructors import register_input_constructor
from botorch_bandits.acquisition.lagrangian import (
    AffineOutcomes,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
)
from botorch_bandits.acquisition.rules import Player, Replicates, player_of
from botorch_bandits.acquisition.thompson_sampling import (
    GPThompsonSampling,
    TopTwoThompsonSampling,
)
from botorch_bandits.acquisition.upper_confidence_bound import (
    AMMUpperConfidenceBound,
    ChangePointUpperConfidenceBound,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    RandomizedUpperConfidenceBound,
    WideConfidenceWarning,
    WidthUpperConfidenceBound,
)
from botorch_bandits.checks import BelowMinimumWarning, MinimumLoweredWarning
from botorch_bandits.confidence.dmm import AssumptionRefutedWarning
from botorch_bandits.models.censoring import RingingWarning
from botorch_bandits.optim import gen_candidates_batched

__all__ = [
    "AMMUpperConfidenceBound",
    "AcquisitionRecipe",
    "AffineOutcomes",
    "AssumptionRefutedWarning",
    "BanditAcquisition",
    "BelowMinimumWarning",
    "CandidatesThompsonSampling",
    "CandidatesUpperConfidenceBound",
    "CensoredThompsonSampling",
    "CensoredUpperConfidenceBound",
    "ChangePointUpperConfidenceBound",
    "DMMUpperConfidenceBound",
    "GPThompsonSampling",
    "GPUpperConfidenceBound",
    "ImprovedUpperConfidenceBound",
    "LagrangianThompsonSampling",
    "LagrangianUpperConfidenceBound",
    "LogExpectedImprovement",
    "LogProbabilityOfImprovement",
    "MeanOnly",
    "MinimumLoweredWarning",
    "Player",
    "RandomSearch",
    "RandomizedUpperConfidenceBound",
    "Replicates",
    "RingingWarning",
    "TopTwoThompsonSampling",
    "VarianceOnly",
    "WideConfidenceWarning",
    "WidthUpperConfidenceBound",
    "gen_candidates_batched",
    "player_of",
    "register_input_constructor",
]

"""Acquisition functions: drop-ins for BoTorch's optimisers, and recipes of them for the loop."""

from botorch_bandits.acquisition.affine_outcomes import AffineOutcomes
from botorch_bandits.acquisition.amm import AMMUpperConfidenceBound
from botorch_bandits.acquisition.baselines import MeanOnly, RandomSearch, VarianceOnly
from botorch_bandits.acquisition.censored import CensoredUpperConfidenceBound
from botorch_bandits.acquisition.censored_thompson import CensoredThompsonSampling
from botorch_bandits.acquisition.change_point import ChangePointUpperConfidenceBound
from botorch_bandits.acquisition.discretization import GrowingDiscretization
from botorch_bandits.acquisition.dmm import DMMUpperConfidenceBound
from botorch_bandits.acquisition.generation import gen_candidates_batched
from botorch_bandits.acquisition.improvement import (
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
)
from botorch_bandits.acquisition.input_constructors import (
    register_all,
    register_input_constructor,
)
from botorch_bandits.acquisition.irgp import RandomizedUpperConfidenceBound
from botorch_bandits.acquisition.lagrangian import LagrangianUpperConfidenceBound
from botorch_bandits.acquisition.lagrangian_thompson import LagrangianThompsonSampling
from botorch_bandits.acquisition.recipe import AcquisitionRecipe, BanditAcquisition
from botorch_bandits.acquisition.ringing import RingingWarning
from botorch_bandits.acquisition.thompson_sampling import GPThompsonSampling
from botorch_bandits.acquisition.upper_confidence_bound import (
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.acquisition.width_upper_confidence_bound import WidthUpperConfidenceBound
from botorch_bandits.checks import MinimumLoweredWarning
from botorch_bandits.confidence.confidence_sets import AssumptionRefutedWarning

# What can be built from a model and its training data: BoTorch's registry and Ax find it.
register_all(
    (
        AMMUpperConfidenceBound,
        CensoredThompsonSampling,
        CensoredUpperConfidenceBound,
        ChangePointUpperConfidenceBound,
        DMMUpperConfidenceBound,
        LogExpectedImprovement,
        GPThompsonSampling,
        GPUpperConfidenceBound,
        ImprovedUpperConfidenceBound,
        LagrangianThompsonSampling,
        LagrangianUpperConfidenceBound,
        MeanOnly,
        LogProbabilityOfImprovement,
        RandomizedUpperConfidenceBound,
        VarianceOnly,
        WidthUpperConfidenceBound,
    )
)

__all__ = [
    "AMMUpperConfidenceBound",
    "AcquisitionRecipe",
    "AffineOutcomes",
    "AssumptionRefutedWarning",
    "BanditAcquisition",
    "CensoredThompsonSampling",
    "CensoredUpperConfidenceBound",
    "ChangePointUpperConfidenceBound",
    "DMMUpperConfidenceBound",
    "GPThompsonSampling",
    "GPUpperConfidenceBound",
    "GrowingDiscretization",
    "ImprovedUpperConfidenceBound",
    "LagrangianThompsonSampling",
    "LagrangianUpperConfidenceBound",
    "LogExpectedImprovement",
    "LogProbabilityOfImprovement",
    "MeanOnly",
    "MinimumLoweredWarning",
    "RandomSearch",
    "RandomizedUpperConfidenceBound",
    "RingingWarning",
    "VarianceOnly",
    "WidthUpperConfidenceBound",
    "gen_candidates_batched",
    "register_input_constructor",
]

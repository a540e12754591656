"""Acquisition functions: drop-ins for BoTorch's optimisers, and recipes of them for the loop."""

from botorch_bandits.acquisition.baselines import ExpectedImprovement, RandomSearch
from botorch_bandits.acquisition.recipe import AcquisitionRecipe, BanditAcquisition
from botorch_bandits.acquisition.thompson_sampling import GPThompsonSampling
from botorch_bandits.acquisition.upper_confidence_bound import (
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.acquisition.width_upper_confidence_bound import WidthUpperConfidenceBound

__all__ = [
    "AcquisitionRecipe",
    "BanditAcquisition",
    "ExpectedImprovement",
    "GPThompsonSampling",
    "GPUpperConfidenceBound",
    "ImprovedUpperConfidenceBound",
    "RandomSearch",
    "WidthUpperConfidenceBound",
]

"""Gaussian-process bandits with guarantees, for BoTorch and GPyTorch."""

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    BanditAcquisition,
    ExpectedImprovement,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    RandomSearch,
    WidthUpperConfidenceBound,
)
from botorch_bandits.confidence import Guarantee
from botorch_bandits.domains import Arms, Box, Domain
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.models import BanditGP, BanditGPRecipe
from botorch_bandits.version import __version__

__all__ = [
    "AcquisitionRecipe",
    "Arms",
    "BanditAcquisition",
    "BanditGP",
    "BanditGPRecipe",
    "Box",
    "Domain",
    "ExpectedImprovement",
    "GPThompsonSampling",
    "GPUpperConfidenceBound",
    "Guarantee",
    "History",
    "ImprovedUpperConfidenceBound",
    "Outcome",
    "Query",
    "RandomSearch",
    "WidthUpperConfidenceBound",
    "__version__",
]

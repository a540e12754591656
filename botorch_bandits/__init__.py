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
from botorch_bandits.evaluation import RunResult, run
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGP, BanditGPRecipe, FittedSingleTaskGP
from botorch_bandits.version import __version__

__all__ = [
    "AcquisitionRecipe",
    "Arms",
    "BanditAcquisition",
    "BanditGP",
    "BanditGPRecipe",
    "BanditLoop",
    "Box",
    "Domain",
    "ExpectedImprovement",
    "FittedSingleTaskGP",
    "GPThompsonSampling",
    "GPUpperConfidenceBound",
    "Guarantee",
    "History",
    "ImprovedUpperConfidenceBound",
    "Outcome",
    "Query",
    "RandomSearch",
    "RunResult",
    "WidthUpperConfidenceBound",
    "__version__",
    "run",
]

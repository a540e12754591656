"""Gaussian-process bandits with guarantees, for BoTorch and GPyTorch."""

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    AMMUpperConfidenceBound,
    AssumptionRefutedWarning,
    BanditAcquisition,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
    DMMUpperConfidenceBound,
    ExpectedImprovement,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    MeanOnly,
    MinimumLoweredWarning,
    ProbabilityOfImprovement,
    RandomizedUpperConfidenceBound,
    RandomSearch,
    RingingWarning,
    VarianceOnly,
    WidthUpperConfidenceBound,
    gen_candidates_batched,
)
from botorch_bandits.confidence import Guarantee
from botorch_bandits.domains import Arms, Box, Domain
from botorch_bandits.evaluation import RunResult, run
from botorch_bandits.feedback import Censored, Feedback, Hallucinated, Ignored
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGP, BanditGPRecipe, FittedSingleTaskGP
from botorch_bandits.simulation import Policy, SimulationResult, simulate
from botorch_bandits.version import __version__

__all__ = [
    "AMMUpperConfidenceBound",
    "AcquisitionRecipe",
    "Arms",
    "AssumptionRefutedWarning",
    "BanditAcquisition",
    "BanditGP",
    "BanditGPRecipe",
    "BanditLoop",
    "Box",
    "Censored",
    "CensoredThompsonSampling",
    "CensoredUpperConfidenceBound",
    "DMMUpperConfidenceBound",
    "Domain",
    "ExpectedImprovement",
    "Feedback",
    "FittedSingleTaskGP",
    "GPThompsonSampling",
    "GPUpperConfidenceBound",
    "Guarantee",
    "Hallucinated",
    "History",
    "Ignored",
    "ImprovedUpperConfidenceBound",
    "MeanOnly",
    "MinimumLoweredWarning",
    "Outcome",
    "Policy",
    "ProbabilityOfImprovement",
    "Query",
    "RandomSearch",
    "RandomizedUpperConfidenceBound",
    "RingingWarning",
    "RunResult",
    "SimulationResult",
    "VarianceOnly",
    "WidthUpperConfidenceBound",
    "__version__",
    "gen_candidates_batched",
    "run",
    "simulate",
]

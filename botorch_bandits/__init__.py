"""Gaussian-process bandits with guarantees, for BoTorch and GPyTorch.

The names that most users type are here; the rest is in the package's modules, such as
``botorch_bandits.penalties``. A name is imported when it is first used, so that ``import
botorch_bandits`` loads neither PyTorch nor BoTorch.
"""

from typing import TYPE_CHECKING

from botorch_bandits.late_imports import import_late
from botorch_bandits.version import __version__

if TYPE_CHECKING:
    from botorch_bandits.acquisition import (
        AcquisitionRecipe,
        AMMUpperConfidenceBound,
        BanditAcquisition,
        CandidatesThompsonSampling,
        CandidatesUpperConfidenceBound,
        CensoredThompsonSampling,
        CensoredUpperConfidenceBound,
        ChangePointUpperConfidenceBound,
        DMMUpperConfidenceBound,
        GPThompsonSampling,
        GPUpperConfidenceBound,
        ImprovedUpperConfidenceBound,
        LagrangianThompsonSampling,
        LagrangianUpperConfidenceBound,
        LogExpectedImprovement,
        LogProbabilityOfImprovement,
        MeanOnly,
        RandomizedUpperConfidenceBound,
        RandomSearch,
        TopTwoThompsonSampling,
        VarianceOnly,
        WidthUpperConfidenceBound,
        gen_candidates_batched,
    )
    from botorch_bandits.change_points import (
        ChangePointDetector,
        ChangePointRestart,
        EvidenceDetector,
        EvidenceRestart,
        NeverRestart,
        OracleRestart,
    )
    from botorch_bandits.confidence import Guarantee, diagnose_bounds
    from botorch_bandits.constraints import AdditiveEpochs, MultiplicativeEpochs, PrimalDual
    from botorch_bandits.domains import Arms, Box, Domain
    from botorch_bandits.feedback import Censored, Hallucinated, Ignored
    from botorch_bandits.forgetting import ExponentialWeights, SlidingWindow, TimeVaryingKernel
    from botorch_bandits.history import History, Query
    from botorch_bandits.in_ax import ax_strategy, register_with_ax
    from botorch_bandits.loop import BanditLoop, DifferentSettingsError, StorageError
    from botorch_bandits.models import (
        BanditGP,
        BanditGPRecipe,
        DefaultCandidates,
        FittedSingleTaskGP,
    )
    from botorch_bandits.penalties import Exponential
    from botorch_bandits.running import EvaluationError, run
    from botorch_bandits.simulation import Policy, simulate
    from botorch_bandits.spaces import Categorical, Fixed, Float, Integer, Space

__all__ = [
    "AMMUpperConfidenceBound",
    "AcquisitionRecipe",
    "AdditiveEpochs",
    "Arms",
    "BanditAcquisition",
    "BanditGP",
    "BanditGPRecipe",
    "BanditLoop",
    "Box",
    "CandidatesThompsonSampling",
    "CandidatesUpperConfidenceBound",
    "Categorical",
    "Censored",
    "CensoredThompsonSampling",
    "CensoredUpperConfidenceBound",
    "ChangePointDetector",
    "ChangePointRestart",
    "ChangePointUpperConfidenceBound",
    "DMMUpperConfidenceBound",
    "DefaultCandidates",
    "DifferentSettingsError",
    "Domain",
    "EvaluationError",
    "EvidenceDetector",
    "EvidenceRestart",
    "Exponential",
    "ExponentialWeights",
    "FittedSingleTaskGP",
    "Fixed",
    "Float",
    "GPThompsonSampling",
    "GPUpperConfidenceBound",
    "Guarantee",
    "Hallucinated",
    "History",
    "Ignored",
    "ImprovedUpperConfidenceBound",
    "Integer",
    "LagrangianThompsonSampling",
    "LagrangianUpperConfidenceBound",
    "LogExpectedImprovement",
    "LogProbabilityOfImprovement",
    "MeanOnly",
    "MultiplicativeEpochs",
    "NeverRestart",
    "OracleRestart",
    "Policy",
    "PrimalDual",
    "Query",
    "RandomSearch",
    "RandomizedUpperConfidenceBound",
    "SlidingWindow",
    "Space",
    "StorageError",
    "TimeVaryingKernel",
    "TopTwoThompsonSampling",
    "VarianceOnly",
    "WidthUpperConfidenceBound",
    "__version__",
    "ax_strategy",
    "diagnose_bounds",
    "gen_candidates_batched",
    "register_with_ax",
    "run",
    "simulate",
]

_MODULE_OF = {
    "AMMUpperConfidenceBound": "acquisition",
    "AcquisitionRecipe": "acquisition",
    "AdditiveEpochs": "constraints",
    "Arms": "domains",
    "BanditAcquisition": "acquisition",
    "BanditGP": "models",
    "BanditGPRecipe": "models",
    "BanditLoop": "loop",
    "Box": "domains",
    "CandidatesThompsonSampling": "acquisition",
    "CandidatesUpperConfidenceBound": "acquisition",
    "Categorical": "spaces",
    "Censored": "feedback",
    "CensoredThompsonSampling": "acquisition",
    "CensoredUpperConfidenceBound": "acquisition",
    "ChangePointDetector": "change_points",
    "ChangePointRestart": "change_points",
    "ChangePointUpperConfidenceBound": "acquisition",
    "DMMUpperConfidenceBound": "acquisition",
    "DefaultCandidates": "models",
    "DifferentSettingsError": "loop",
    "Domain": "domains",
    "EvaluationError": "running",
    "EvidenceDetector": "change_points",
    "EvidenceRestart": "change_points",
    "Exponential": "penalties",
    "ExponentialWeights": "forgetting",
    "FittedSingleTaskGP": "models",
    "Fixed": "spaces",
    "Float": "spaces",
    "GPThompsonSampling": "acquisition",
    "GPUpperConfidenceBound": "acquisition",
    "Guarantee": "confidence",
    "Hallucinated": "feedback",
    "History": "history",
    "Ignored": "feedback",
    "ImprovedUpperConfidenceBound": "acquisition",
    "Integer": "spaces",
    "LagrangianThompsonSampling": "acquisition",
    "LagrangianUpperConfidenceBound": "acquisition",
    "LogExpectedImprovement": "acquisition",
    "LogProbabilityOfImprovement": "acquisition",
    "MeanOnly": "acquisition",
    "MultiplicativeEpochs": "constraints",
    "NeverRestart": "change_points",
    "OracleRestart": "change_points",
    "Policy": "simulation",
    "PrimalDual": "constraints",
    "Query": "history",
    "RandomSearch": "acquisition",
    "RandomizedUpperConfidenceBound": "acquisition",
    "SlidingWindow": "forgetting",
    "Space": "spaces",
    "StorageError": "loop",
    "TimeVaryingKernel": "forgetting",
    "TopTwoThompsonSampling": "acquisition",
    "VarianceOnly": "acquisition",
    "WidthUpperConfidenceBound": "acquisition",
    "ax_strategy": "in_ax",
    "diagnose_bounds": "confidence",
    "gen_candidates_batched": "acquisition",
    "register_with_ax": "in_ax",
    "run": "running",
    "simulate": "simulation",
}
"""The module from which each name comes."""

_MODULES = (
    "acquisition",
    "asynchronous",
    "change_points",
    "confidence",
    "constraints",
    "domains",
    "evaluation",
    "feedback",
    "forgetting",
    "history",
    "in_ax",
    "in_optuna",
    "loop",
    "model_selection",
    "models",
    "optim",
    "penalties",
    "plotting",
    "problems",
    "simulation",
    "spaces",
    "stopping",
)
"""Modules that need no import of their own, as in ``botorch_bandits.penalties.Linear``."""

if not TYPE_CHECKING:  # otherwise, any name would belong to the package for a type checker
    __getattr__, __dir__ = import_late(__name__, _MODULE_OF, _MODULES)

"""Gaussian-process bandits with guarantees, for BoTorch and GPyTorch.

The names that most users type are here; the rest is in the package's modules, such as
``botorch_bandits.penalties``. A name is imported when it is first used, so that ``import
botorch_bandits`` loads neither PyTorch nor BoTorch.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

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
    from botorch_bandits.history import History, Query
    from botorch_bandits.in_ax import ax_strategy, register_with_ax
    from botorch_bandits.loop import (
        BanditLoop,
        Censored,
        DifferentSettingsError,
        ExponentialWeights,
        Hallucinated,
        Ignored,
        SlidingWindow,
        StorageError,
        TimeVaryingKernel,
    )
    from botorch_bandits.model_selection import BanditSearchCV
    from botorch_bandits.models import (
        BanditGP,
        BanditGPRecipe,
        DefaultCandidates,
        FittedSingleTaskGP,
    )
    from botorch_bandits.penalties import Exponential
    from botorch_bandits.rates import rate
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
    "BanditSearchCV",
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
    "rate",
    "register_with_ax",
    "run",
    "simulate",
]

_NAMES_OF = {
    "acquisition": (
        "AMMUpperConfidenceBound",
        "AcquisitionRecipe",
        "BanditAcquisition",
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
        "RandomSearch",
        "RandomizedUpperConfidenceBound",
        "TopTwoThompsonSampling",
        "VarianceOnly",
        "WidthUpperConfidenceBound",
        "gen_candidates_batched",
    ),
    "change_points": (
        "ChangePointDetector",
        "ChangePointRestart",
        "EvidenceDetector",
        "EvidenceRestart",
        "NeverRestart",
        "OracleRestart",
    ),
    "confidence": (
        "Guarantee",
        "diagnose_bounds",
    ),
    "constraints": (
        "AdditiveEpochs",
        "MultiplicativeEpochs",
        "PrimalDual",
    ),
    "domains": (
        "Arms",
        "Box",
        "Domain",
    ),
    "history": (
        "History",
        "Query",
    ),
    "in_ax": (
        "ax_strategy",
        "register_with_ax",
    ),
    "loop": (
        "BanditLoop",
        "Censored",
        "DifferentSettingsError",
        "ExponentialWeights",
        "Hallucinated",
        "Ignored",
        "SlidingWindow",
        "StorageError",
        "TimeVaryingKernel",
    ),
    "model_selection": ("BanditSearchCV",),
    "models": (
        "BanditGP",
        "BanditGPRecipe",
        "DefaultCandidates",
        "FittedSingleTaskGP",
    ),
    "penalties": ("Exponential",),
    "rates": ("rate",),
    "running": (
        "EvaluationError",
        "run",
    ),
    "simulation": (
        "Policy",
        "simulate",
    ),
    "spaces": (
        "Categorical",
        "Fixed",
        "Float",
        "Integer",
        "Space",
    ),
}
"""The names that come from each module."""

_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}


def _get(name: str) -> object:
    """Return a name of the package, or one of its modules, which is imported for it.

    Raises:
        AttributeError: If there is neither.
    """
    if name in _MODULE_OF:
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        globals()[name] = value  # found without this function the next time
        return value
    if name in _list_modules():
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _list_modules() -> set[str]:
    names = {module.name for module in iter_modules(__path__)}
    return names - {"__main__"}  # importing it runs the command line


if not TYPE_CHECKING:  # otherwise, any name would belong to the package for a type checker
    __getattr__ = _get

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULE_OF, *_list_modules()})

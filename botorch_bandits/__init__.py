"""Gaussian-process bandits with guarantees, for BoTorch and GPyTorch.

What most users type is here; the rest is in the package's modules, such as
``botorch_bandits.penalties``. A name is imported when it is first asked for, so that
``import botorch_bandits`` loads neither torch nor BoTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from botorch_bandits.version import __version__

if TYPE_CHECKING:
    from botorch_bandits.acquisition import (
        AcquisitionRecipe,
        AMMUpperConfidenceBound,
        AssumptionRefutedWarning,
        BanditAcquisition,
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
        MinimumLoweredWarning,
        RandomizedUpperConfidenceBound,
        RandomSearch,
        RingingWarning,
        VarianceOnly,
        WidthUpperConfidenceBound,
        gen_candidates_batched,
    )
    from botorch_bandits.asynchronous import AsyncResult, TaskReport, run_async
    from botorch_bandits.change_points import (
        CalibratedThreshold,
        ChangePointDetector,
        ChangePointRestart,
        ChangePointTest,
        NeverRestart,
        OracleRestart,
        PowerThreshold,
        Reset,
        Restart,
        TheoreticalThreshold,
        calibrate_threshold,
        estimate_false_alarm_rate,
    )
    from botorch_bandits.confidence import Guarantee
    from botorch_bandits.constraints import (
        AdditiveEpochs,
        InfeasibleConstraintsWarning,
        Ledger,
        MultiplicativeEpochs,
        MultiplierOverflowError,
        NoisyConstraintsWarning,
        PrimalDual,
    )
    from botorch_bandits.domains import Arms, Box, Domain
    from botorch_bandits.evaluation import RunResult, run
    from botorch_bandits.feedback import Censored, Feedback, Hallucinated, Ignored
    from botorch_bandits.forgetting import (
        ExponentialWeights,
        Forgetting,
        SlidingWindow,
        TimeVaryingKernel,
    )
    from botorch_bandits.history import Failure, History, Outcome, Query, Retraction
    from botorch_bandits.loop import BanditLoop, DifferentSettingsError
    from botorch_bandits.models import BanditGP, BanditGPRecipe, FittedSingleTaskGP
    from botorch_bandits.penalties import CustomPenalty, Exponential, Linear, Penalty, Polynomial
    from botorch_bandits.simulation import Policy, SimulationResult, simulate

__all__ = [
    "AMMUpperConfidenceBound",
    "AcquisitionRecipe",
    "AdditiveEpochs",
    "Arms",
    "AssumptionRefutedWarning",
    "AsyncResult",
    "BanditAcquisition",
    "BanditGP",
    "BanditGPRecipe",
    "BanditLoop",
    "Box",
    "CalibratedThreshold",
    "Censored",
    "CensoredThompsonSampling",
    "CensoredUpperConfidenceBound",
    "ChangePointDetector",
    "ChangePointRestart",
    "ChangePointTest",
    "ChangePointUpperConfidenceBound",
    "CustomPenalty",
    "DMMUpperConfidenceBound",
    "DifferentSettingsError",
    "Domain",
    "Exponential",
    "ExponentialWeights",
    "Failure",
    "Feedback",
    "FittedSingleTaskGP",
    "Forgetting",
    "GPThompsonSampling",
    "GPUpperConfidenceBound",
    "Guarantee",
    "Hallucinated",
    "History",
    "Ignored",
    "ImprovedUpperConfidenceBound",
    "InfeasibleConstraintsWarning",
    "LagrangianThompsonSampling",
    "LagrangianUpperConfidenceBound",
    "Ledger",
    "Linear",
    "LogExpectedImprovement",
    "LogProbabilityOfImprovement",
    "MeanOnly",
    "MinimumLoweredWarning",
    "MultiplicativeEpochs",
    "MultiplierOverflowError",
    "NeverRestart",
    "NoisyConstraintsWarning",
    "OracleRestart",
    "Outcome",
    "Penalty",
    "Policy",
    "Polynomial",
    "PowerThreshold",
    "PrimalDual",
    "Query",
    "RandomSearch",
    "RandomizedUpperConfidenceBound",
    "Reset",
    "Restart",
    "Retraction",
    "RingingWarning",
    "RunResult",
    "SimulationResult",
    "SlidingWindow",
    "TaskReport",
    "TheoreticalThreshold",
    "TimeVaryingKernel",
    "VarianceOnly",
    "WidthUpperConfidenceBound",
    "__version__",
    "calibrate_threshold",
    "estimate_false_alarm_rate",
    "gen_candidates_batched",
    "run",
    "run_async",
    "simulate",
]

_MODULE_OF = {
    "AMMUpperConfidenceBound": "acquisition",
    "AcquisitionRecipe": "acquisition",
    "AdditiveEpochs": "constraints",
    "Arms": "domains",
    "AssumptionRefutedWarning": "acquisition",
    "AsyncResult": "asynchronous",
    "BanditAcquisition": "acquisition",
    "BanditGP": "models",
    "BanditGPRecipe": "models",
    "BanditLoop": "loop",
    "Box": "domains",
    "CalibratedThreshold": "change_points",
    "Censored": "feedback",
    "CensoredThompsonSampling": "acquisition",
    "CensoredUpperConfidenceBound": "acquisition",
    "ChangePointDetector": "change_points",
    "ChangePointRestart": "change_points",
    "ChangePointTest": "change_points",
    "ChangePointUpperConfidenceBound": "acquisition",
    "CustomPenalty": "penalties",
    "DMMUpperConfidenceBound": "acquisition",
    "DifferentSettingsError": "loop",
    "Domain": "domains",
    "Exponential": "penalties",
    "ExponentialWeights": "forgetting",
    "Failure": "history",
    "Feedback": "feedback",
    "FittedSingleTaskGP": "models",
    "Forgetting": "forgetting",
    "GPThompsonSampling": "acquisition",
    "GPUpperConfidenceBound": "acquisition",
    "Guarantee": "confidence",
    "Hallucinated": "feedback",
    "History": "history",
    "Ignored": "feedback",
    "ImprovedUpperConfidenceBound": "acquisition",
    "InfeasibleConstraintsWarning": "constraints",
    "LagrangianThompsonSampling": "acquisition",
    "LagrangianUpperConfidenceBound": "acquisition",
    "Ledger": "constraints",
    "Linear": "penalties",
    "LogExpectedImprovement": "acquisition",
    "LogProbabilityOfImprovement": "acquisition",
    "MeanOnly": "acquisition",
    "MinimumLoweredWarning": "acquisition",
    "MultiplicativeEpochs": "constraints",
    "MultiplierOverflowError": "constraints",
    "NeverRestart": "change_points",
    "NoisyConstraintsWarning": "constraints",
    "OracleRestart": "change_points",
    "Outcome": "history",
    "Penalty": "penalties",
    "Policy": "simulation",
    "Polynomial": "penalties",
    "PowerThreshold": "change_points",
    "PrimalDual": "constraints",
    "Query": "history",
    "RandomSearch": "acquisition",
    "RandomizedUpperConfidenceBound": "acquisition",
    "Reset": "change_points",
    "Restart": "change_points",
    "Retraction": "history",
    "RingingWarning": "acquisition",
    "RunResult": "evaluation",
    "SimulationResult": "simulation",
    "SlidingWindow": "forgetting",
    "TaskReport": "asynchronous",
    "TheoreticalThreshold": "change_points",
    "TimeVaryingKernel": "forgetting",
    "VarianceOnly": "acquisition",
    "WidthUpperConfidenceBound": "acquisition",
    "calibrate_threshold": "change_points",
    "estimate_false_alarm_rate": "change_points",
    "gen_candidates_batched": "acquisition",
    "run": "evaluation",
    "run_async": "asynchronous",
    "simulate": "simulation",
}
"""Where each name comes from."""

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
    "journal",
    "loop",
    "models",
    "optim",
    "penalties",
    "plotting",
    "problems",
    "simulation",
)
"""Modules that need no import of their own, as in ``botorch_bandits.penalties.Linear``."""

if not TYPE_CHECKING:  # for a type checker, any name would then be there

    def __getattr__(name: str) -> object:
        """Import what is asked for: a name of ``__all__``, or a module of the package."""
        if name in _MODULE_OF:
            value = getattr(import_module(f"botorch_bandits.{_MODULE_OF[name]}"), name)
        elif name in _MODULES:
            return import_module(f"botorch_bandits.{name}")
        else:
            raise AttributeError(f"module 'botorch_bandits' has no attribute {name!r}")
        globals()[name] = value  # the next time it is found without this function
        return value


def __dir__() -> list[str]:
    """List what can be asked for, imported or not."""
    return sorted({*globals(), *__all__, *_MODULES})

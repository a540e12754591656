"""Long-term constraints: multiplier rules, and the ledger of what was violated."""

from botorch_bandits.constraints.feasibility import (
    InfeasibleConstraintsWarning,
    NoisyConstraintsWarning,
    recognise_infeasibility,
    warn_if_noisy,
)
from botorch_bandits.constraints.ledger import Ledger
from botorch_bandits.constraints.rules import (
    SURROGATES,
    AdditiveEpochs,
    MultiplicativeEpochs,
    MultiplierOverflowError,
    MultiplierRule,
    MultiplierState,
    PrimalDual,
    penalise,
)

__all__ = [
    "SURROGATES",
    "AdditiveEpochs",
    "InfeasibleConstraintsWarning",
    "Ledger",
    "MultiplicativeEpochs",
    "MultiplierOverflowError",
    "MultiplierRule",
    "MultiplierState",
    "NoisyConstraintsWarning",
    "PrimalDual",
    "penalise",
    "recognise_infeasibility",
    "warn_if_noisy",
]

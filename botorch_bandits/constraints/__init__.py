"""Long-term constraints: multiplier rules, and the ledger of violations.

A rule sets what a violation costs from one epoch to the next; the ledger and the warnings show how
well this works.
"""

from botorch_bandits.constraints.ledger import Ledger
from botorch_bandits.constraints.rules import (
    SURROGATES,
    AdditiveEpochs,
    InfeasibleConstraintsWarning,
    MultiplicativeEpochs,
    MultiplierOverflowError,
    MultiplierRule,
    MultiplierState,
    NoisyConstraintsWarning,
    PrimalDual,
    recognize_infeasibility,
    warn_if_noisy,
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
    "recognize_infeasibility",
    "warn_if_noisy",
]

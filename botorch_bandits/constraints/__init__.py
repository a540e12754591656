"""Long-term constraints: multiplier rules, and the ledger of violations.

A rule sets what a violation costs from one epoch to the next; the ledger and the warnings show how
well this works.
"""

from botorch_bandits.constraints.feasibility import (
    InfeasibleConstraintsWarning,
    NoisyConstraintsWarning,
    recognize_infeasibility,
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

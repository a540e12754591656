"""Confidence: widths, information gain and what they promise. Numbers only, no loop."""

from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.information_gain import realized_information_gain
from botorch_bandits.confidence.readable_prior import (
    OutputPrior,
    PriorReading,
    UnreadablePriorError,
)
from botorch_bandits.confidence.rules import (
    ConstantWidth,
    FiniteArmsWidth,
    KernelizedWidth,
    WidthRule,
)
from botorch_bandits.confidence.widths import (
    any_lambda_width,
    constant_width,
    gp_ucb_finite_width,
    igp_ucb_width,
)

__all__ = [
    "ConstantWidth",
    "FiniteArmsWidth",
    "Guarantee",
    "KernelizedWidth",
    "OutputPrior",
    "PriorReading",
    "UnreadablePriorError",
    "WidthRule",
    "any_lambda_width",
    "constant_width",
    "gp_ucb_finite_width",
    "igp_ucb_width",
    "realized_information_gain",
]

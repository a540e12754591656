"""Confidence widths, information gain and guarantees.

This package deals only with numbers; it does not know the loop.
"""

from botorch_bandits.confidence.candidates import (
    CandidateEvidence,
    CandidateStatus,
    EvidenceTable,
    RefutedListWarning,
)
from botorch_bandits.confidence.censored import (
    CensoredWidth,
)
from botorch_bandits.confidence.diagnosis import (
    BoundsDiagnosis,
    ModelCheck,
    check_model,
    diagnose_bounds,
)
from botorch_bandits.confidence.dmm import RidgeConfidenceSet
from botorch_bandits.confidence.gp_ucb import (
    PUBLISHED_WIDTH_CONSTANT,
    ChangePointWidth,
    CompactBoxWidth,
    FiniteArmsWidth,
    RandomizedWidth,
    change_point_rate,
    change_point_spacing,
    gp_ucb_compact_width,
    gp_ucb_cpd_width,
    gp_ucb_finite_width,
    irgp_ucb_width,
    regret_exponent,
)
from botorch_bandits.confidence.guarantee import (
    Forecast,
    Guarantee,
    RegretStatement,
    Statement,
)
from botorch_bandits.confidence.horizon import (
    PenalizedBounds,
    exact_constraints_bounds,
    exact_violation_bound,
    gp_ts_regret_bound,
    igp_ucb_regret_bound,
    noisy_constraints_bounds,
    realized_ts_regret_bound,
    regret_bound_of_width,
    smallest_slater_margin,
)
from botorch_bandits.confidence.igp_ucb import (
    BoundedNorm,
    KernelizedWidth,
    RKHSWidth,
    gp_ucb_rkhs_width,
    realized_regret_bound,
    width_of_variation,
)
from botorch_bandits.confidence.information_gain import (
    BoxGain,
    DesignGain,
    GainBound,
    GreedyGain,
    WaterFillingGain,
    realized_information_gain,
)
from botorch_bandits.confidence.prior_reading import OutputPrior, UnreadablePriorError
from botorch_bandits.confidence.repeats import (
    most_choices,
    num_plays,
    num_plays_at,
)
from botorch_bandits.confidence.width_rules import ConstantWidth, PriorSummary, WidthRule

__all__ = [
    "PUBLISHED_WIDTH_CONSTANT",
    "BoundedNorm",
    "BoundsDiagnosis",
    "BoxGain",
    "CandidateEvidence",
    "CandidateStatus",
    "CensoredWidth",
    "ChangePointWidth",
    "CompactBoxWidth",
    "ConstantWidth",
    "DesignGain",
    "EvidenceTable",
    "FiniteArmsWidth",
    "Forecast",
    "GainBound",
    "GreedyGain",
    "Guarantee",
    "KernelizedWidth",
    "ModelCheck",
    "OutputPrior",
    "PenalizedBounds",
    "PriorSummary",
    "RKHSWidth",
    "RandomizedWidth",
    "RefutedListWarning",
    "RegretStatement",
    "RidgeConfidenceSet",
    "Statement",
    "UnreadablePriorError",
    "WaterFillingGain",
    "WidthRule",
    "change_point_rate",
    "change_point_spacing",
    "check_model",
    "diagnose_bounds",
    "exact_constraints_bounds",
    "exact_violation_bound",
    "gp_ts_regret_bound",
    "gp_ucb_compact_width",
    "gp_ucb_cpd_width",
    "gp_ucb_finite_width",
    "gp_ucb_rkhs_width",
    "igp_ucb_regret_bound",
    "irgp_ucb_width",
    "most_choices",
    "noisy_constraints_bounds",
    "num_plays",
    "num_plays_at",
    "realized_information_gain",
    "realized_regret_bound",
    "realized_ts_regret_bound",
    "regret_bound_of_width",
    "regret_exponent",
    "smallest_slater_margin",
    "width_of_variation",
]

"""Reward problems for Gaussian-process bandits, with optima for comparison.

All problems are BoTorch test problems whose values are to be maximized. The exceptions are those
that change with the round (:class:`ChangingProblem`), which give one test problem for each round.
They work in float64 and take their randomness from a ``seed`` argument; only the observation noise
of ``problem(X)`` uses torch's global random state, as everywhere in BoTorch.
"""

from botorch_bandits.problems.base import ArmsProblem, clamped_eigh, restrict_to_arms
from botorch_bandits.problems.changing import (
    ChangingProblem,
    DriftingGP,
    DriftingProblem,
    SensorData,
    SwitchingProblem,
    TabulatedProblem,
    evenly_spaced_change_points,
    gp_draws_of_periods,
    load_readings,
    sensor_day,
    switching_gp_draws,
    switching_rkhs,
)
from botorch_bandits.problems.constrained import (
    ConstrainedArmsProblem,
    ConstrainedProblem,
    GardnerProblem,
    RatesProblem,
)
from botorch_bandits.problems.delays import (
    ConstantDelay,
    Delays,
    GeometricDelay,
    HeavyTailedDelay,
    InputDependentDelay,
    PoissonDelay,
    parse_delays,
)
from botorch_bandits.problems.functions import (
    BraninReward,
    GPDraw,
    Hartmann3Reward,
    RKHSFunction,
    RosenbrockReward,
    gp_draw_on_arms,
    posterior_mean_of_gp_draw,
)
from botorch_bandits.problems.tuning import (
    AccuracyProblem,
    Budget,
    CostlyTuningProblem,
    ShiftingTuning,
    TuningProblem,
    check_labeled_data,
    load_csv,
    load_dataset,
    need_scikit_learn,
    shift_problem,
)
from botorch_bandits.problems.varying import (
    VariationBudget,
    VaryingProblem,
    best_fixed_arm,
    variation_budget,
)

__all__ = [
    "AccuracyProblem",
    "ArmsProblem",
    "BraninReward",
    "Budget",
    "ChangingProblem",
    "ConstantDelay",
    "ConstrainedArmsProblem",
    "ConstrainedProblem",
    "CostlyTuningProblem",
    "Delays",
    "DriftingGP",
    "DriftingProblem",
    "GPDraw",
    "GardnerProblem",
    "GeometricDelay",
    "Hartmann3Reward",
    "HeavyTailedDelay",
    "InputDependentDelay",
    "PoissonDelay",
    "RKHSFunction",
    "RatesProblem",
    "RosenbrockReward",
    "SensorData",
    "ShiftingTuning",
    "SwitchingProblem",
    "TabulatedProblem",
    "TuningProblem",
    "VariationBudget",
    "VaryingProblem",
    "best_fixed_arm",
    "check_labeled_data",
    "clamped_eigh",
    "evenly_spaced_change_points",
    "gp_draw_on_arms",
    "gp_draws_of_periods",
    "load_csv",
    "load_dataset",
    "load_readings",
    "need_scikit_learn",
    "parse_delays",
    "posterior_mean_of_gp_draw",
    "restrict_to_arms",
    "sensor_day",
    "shift_problem",
    "switching_gp_draws",
    "switching_rkhs",
    "variation_budget",
]

"""Differences of methods over the same trials, with the standard errors of the differences.

Methods of a panel meet the same functions, noise and delays, so the differences vary less than the
regrets do.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from botorch_bandits.experiments.arms_experiment import ArmsExperiment, Curves
from botorch_bandits.experiments.results import REPORTED_ROUND
from botorch_bandits.experiments.shi_report import averages


def middle_round(num_rounds: int) -> int:
    """Return the round at which simple regrets are compared, beside the last.

    Args:
        num_rounds: Of the experiment.
    """
    return REPORTED_ROUND if num_rounds >= REPORTED_ROUND else max(num_rounds * 3 // 5, 1)


def quantities(experiment: ArmsExperiment, curve: Curves) -> dict[str, Tensor]:
    """Return what methods are compared by: one number a trial, by name.

    The cumulative regret is ``regret``, a mean over rounds where the experiment has it so; what the
    experiment tabulates further is beside it. Where outcomes wait, ``simple regret`` is that of the
    last round and ``simple regret, middle`` that of :func:`middle_round`. With a constraint,
    ``regret`` and ``violation`` are time averages at the end, up to the stop of runs that stopped
    before.

    Args:
        experiment: A panel.
        curve: The result of one of its methods.
    """
    last = experiment.num_rounds
    if "constraint" in curve.others:
        known = averages(curve)
        return {name: known.at(name, last) for name in ("regret", "violation")}
    total = curve.regret.sum(-1)
    if curve.simple_regret is None:
        further = {name: curve.others[name].to(total.dtype) for name in experiment.tabulated}
        return {"regret": total / last if experiment.average else total, **further}
    simple = curve.simple_regret
    return {
        "simple regret": simple[:, -1],
        "simple regret, middle": simple[:, middle_round(last) - 1],
        "regret": total,
    }


def tabulate_differences(
    experiment: ArmsExperiment, curves: Mapping[str, Curves]
) -> list[dict[str, Any]]:
    """Return one row a quantity and pair of methods: the first method's less the second's.

    The standard error is empty with a single trial, which has none.
    """
    known = {name: quantities(experiment, curve) for name, curve in curves.items()}
    rows = []
    for (first, ours), (second, theirs) in itertools.combinations(known.items(), 2):
        for quantity in ours.keys() & theirs.keys():
            difference = ours[quantity] - theirs[quantity]
            count = len(difference)
            rows.append(
                {
                    "experiment": experiment.name,
                    "quantity": quantity,
                    "method": first,
                    "less": second,
                    "trials": count,
                    "mean": float(difference.mean()),
                    "standard_error": float(difference.std() / count**0.5) if count > 1 else "",
                }
            )
    return sorted(rows, key=lambda row: row["quantity"])

"""Settings beside the plain ones: constraints, forgetting, contexts, DMM and draws.

The same rounds as those of :mod:`benchmarks.combinations`, more of them, with what was promised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.combinations import (
    NO_CONSTRAINTS,
    SEPARATE,
    SEQUENTIAL,
    Combination,
    measure,
)
from benchmarks.measure import Measurement, Scale

WINDOW, WEIGHTS = "`SlidingWindow(...)`", "`ExponentialWeights(...)`"
TIME = "`TimeVaryingKernel(...)`"
CONTEXTS, PRODUCT = "with contexts", "with contexts, product kernel"
ARMS, BOX, BOX_6 = "on arms", "on a box", "on a box in 6 dimensions"

FOR_A_LOOK, EVERY = 0.05, 6
"""Below this scale one of so many settings is measured."""

TOLERANCE_ON_ARMS = 1e-8
"""By how much the acquisition value of the arm that is chosen may be less."""

NUM_ARMS = 1000


@dataclass(frozen=True)
class Goal:
    """What was promised of a combination.

    Attributes:
        name: Of the settings.
        settings: Parts of a :class:`~benchmarks.combinations.Combination` beside the plain ones.
        sizes: Numbers of rows.
        at_least: The promised ratio.
        aim: The ratio that was aimed at.
    """

    name: str
    settings: dict[str, str]
    sizes: tuple[int, ...]
    at_least: float
    aim: float


def plain(num_rows: int, **others: str) -> Combination:
    """Return IGP-UCB on arms, with nothing else.

    Args:
        num_rows: ``n``.
        **others: What is not plain.
    """
    parts = {
        "acquisition": "IGP-UCB",
        "feedback": SEQUENTIAL,
        "restart": "none",
        "forgetting": "none",
        "constraints": NO_CONSTRAINTS,
        "contexts": "without contexts",
        "domain": ARMS,
    }
    return Combination(**{**parts, **others}, num_rows=num_rows)


_DRAW = {"acquisition": "GP-TS"}
_BOX = {"domain": BOX}

GOALS = (
    Goal("constraints apart, arms", {"constraints": SEPARATE}, (200, 1000), 50.0, 100.0),
    Goal("constraints apart, box", {**_BOX, "constraints": SEPARATE}, (1000,), 3.0, 5.0),
    Goal("draws with a window, arms", {**_DRAW, "forgetting": WINDOW}, (200,), 50.0, 100.0),
    Goal("draws with weights, arms", {**_DRAW, "forgetting": WEIGHTS}, (200,), 50.0, 100.0),
    Goal("draws with contexts, arms", {**_DRAW, "contexts": CONTEXTS}, (200,), 50.0, 100.0),
    Goal("contexts, arms", {"contexts": CONTEXTS}, (200, 1000), 10.0, 50.0),
    Goal("contexts in a product, arms", {"contexts": PRODUCT}, (200, 1000), 10.0, 50.0),
    Goal("drift, arms", {"forgetting": TIME}, (200, 1000), 10.0, 50.0),
    Goal("weights, arms", {"forgetting": WEIGHTS}, (200, 1000), 10.0, 50.0),
    Goal("window, arms", {"forgetting": WINDOW}, (200, 1000), 10.0, 50.0),
    Goal("drift, box", {**_BOX, "forgetting": TIME}, (200,), 4.0, 6.0),
    Goal("contexts in a product, box", {**_BOX, "contexts": PRODUCT}, (200,), 4.0, 6.0),
    Goal("weights, box", {**_BOX, "forgetting": WEIGHTS}, (200,), 4.0, 6.0),
    Goal("DMM, box, against one width", {**_BOX, "acquisition": "DMM"}, (1000,), 1.0, 4.0),
    Goal("DMM, arms, against one width", {"acquisition": "DMM"}, (1000,), 1.0, 10.0),
    Goal("draws, box", {**_DRAW, **_BOX}, (200,), 4.0, 8.0),
    Goal("draws, box in 6 dimensions", {**_DRAW, "domain": BOX_6}, (200,), 4.0, 8.0),
)


def suggestions_of_settings(scale: Scale) -> list[Measurement]:
    """Measure a suggestion under each of the settings.

    Args:
        scale: Of the rows and arms.
    """
    lines = []
    num_arms = scale.of(NUM_ARMS, 40)
    for goal in GOALS if scale.size >= FOR_A_LOOK else GOALS[::EVERY]:
        for size in goal.sizes:
            one = plain(scale.of(size, 10), **goal.settings)
            row = measure(one, max(2, scale.repeats - scale.repeats % 2), num_arms)
            on_arms = one.on_arms and not math.isnan(row.worse)
            notes = [row.note] if row.note else []
            if not on_arms and not math.isnan(row.worse):
                notes.append(f"our point was worse by {row.worse:.0e}, better by {row.better:.0e}")
            if row.is_larger:
                notes.append("needs more memory than allowed")
            lines.append(
                Measurement(
                    name=f"settings: {goal.name}, n = {one.num_rows}",
                    ratio=row.ratio,
                    difference=row.worse if on_arms else 0.0,
                    tolerance=TOLERANCE_ON_ARMS,
                    unit="round",
                    ordinary_seconds=row.ordinary_seconds,
                    our_seconds=row.our_seconds,
                    at_least=goal.at_least,
                    aim=goal.aim,
                    note="; ".join(notes),
                )
            )
    return lines

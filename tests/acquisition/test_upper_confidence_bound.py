"""Upper confidence bounds: widths, units, rounds, pending points, promises."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from botorch.optim import optimize_acqf_discrete
from torch import Tensor

from botorch_bandits import (
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    WidthUpperConfidenceBound,
)

from .cases import (
    RootOfRound,
    bandit_gp,
    uniform,
)

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")

BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1, "delta": 0.1}


# --- rounds ---------------------------------------------------------------------------------


def test_an_optimizer_counts_the_rounds_on() -> None:
    rounds = []

    class Spy(RootOfRound):
        def width(self, summary: Any, round_number: int) -> Tensor:
            rounds.append(round_number)
            return super().width(summary, round_number)

    acqf = WidthUpperConfidenceBound(bandit_gp(), Spy(), round_number=20)
    optimize_acqf_discrete(acqf, q=3, choices=uniform(20, 2, seed=5))
    assert rounds[:3] == [20, 21, 22]
    assert rounds[-1] == 20  # X_pending restored
    assert acqf.round_number == 20


# --- what is refused ------------------------------------------------------------------------


IGP, GP = ImprovedUpperConfidenceBound, GPUpperConfidenceBound


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (IGP, {**BOUNDS, "width": 2.0}, "not both"),
        (IGP, {**BOUNDS, "rkhs_bound": -1.0}, "rkhs_bound is -1.0; it must be at least 0"),
        (IGP, {**BOUNDS, "noise_bound": math.nan}, "noise_bound is nan"),
        (IGP, {**BOUNDS, "delta": 1.0}, "delta is 1.0; it must lie strictly between 0 and 1"),
        (IGP, {**BOUNDS, "information_gain": -1.0}, "information_gain is -1.0"),
        (IGP, {**BOUNDS, "units": "raw"}, "units is 'raw'"),
        (IGP, {"width": -2.0}, "width is -2.0"),
        (IGP, {"width": 2.0, "scale": 0.0}, "scale is 0.0"),
        (GP, {"rkhs_bound": 1.0}, "exactly one"),
        (GP, {"num_arms": 3, "width": 1.0}, "exactly one"),
        (GP, {"num_arms": 0}, "num_arms is 0"),
        (GP, {"num_arms": 3, "delta": 0.0}, "delta is 0.0"),
        (GP, {"beta": 4.0, "width": 2.0}, "exactly one width"),
        (GP, {"beta": -4.0}, "beta is -4.0"),
        (GP, {"beta": math.nan}, "beta is nan"),
    ],
)
def test_infeasible_ingredients_are_refused_at_once(
    cls: Any, options: dict[str, Any], message: str
) -> None:
    for build in (lambda: cls(bandit_gp(), **options), lambda: cls.with_options(**options)):
        with pytest.raises(ValueError, match=re.escape(message)):
            build()


@pytest.mark.parametrize(
    ("number", "error"), [(0, ValueError), (True, TypeError), (2.5, TypeError)]
)
def test_a_round_is_a_whole_number_from_one(number: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="round_number"):
        GPUpperConfidenceBound(bandit_gp(), width=1.0, round_number=number)

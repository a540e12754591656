"""Recipes do not change, and what their user changes afterwards does not reach a loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from gpytorch.kernels import MaternKernel
from models.textbook import double, line

from botorch_bandits import (
    AcquisitionRecipe,
    Arms,
    BanditGP,
    BanditGPRecipe,
    BanditLoop,
    Box,
    ChangePointDetector,
    ChangePointRestart,
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
    OracleRestart,
    SlidingWindow,
)
from botorch_bandits.change_points import PowerThreshold

CHOICES = line(0.0, 1.0, 12)
BOX = Box([[0.0], [1.0]])
BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1}


def model(**options: Any) -> BanditGPRecipe:
    return BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.2, **options)


def play(loop: BanditLoop, num_rounds: int) -> list[float]:
    """Play rounds and return the points."""
    points = []
    for _ in range(num_rounds):
        query = loop.ask()
        x = float(query.x[0])
        constraints = [x - 0.5] if loop.settings.constraints is not None else None
        loop.tell(query.id, -((x - 0.7) ** 2), constraints=constraints)
        points.append(x)
    return points


# --- options are read only --------------------------------------------------------------------


def test_options_cannot_be_changed() -> None:
    recipe = ImprovedUpperConfidenceBound.with_options(**BOUNDS)
    options: Any = recipe.options
    with pytest.raises(TypeError, match="does not support item"):
        options["scale"] = 0.1
    with pytest.raises(TypeError, match="does not support item"):
        del options["rkhs_bound"]
    assert dict(options) == BOUNDS


def test_a_dictionary_that_was_passed_can_be_changed_afterwards() -> None:
    given: dict[str, Any] = dict(BOUNDS)
    recipe = AcquisitionRecipe(ImprovedUpperConfidenceBound, given)
    given["scale"] = 0.001
    assert recipe == ImprovedUpperConfidenceBound.with_options(**BOUNDS)


# --- a loop has copies of its own -------------------------------------------------------------


def lengthen(kernel: Any) -> None:
    kernel.lengthscale = double(5.0)


DETECTOR = {"ridge": 0.5, "threshold": PowerThreshold(0.05)}
CHANGES: dict[str, tuple[Callable[[], dict[str, Any]], Callable[[dict[str, Any]], None]]] = {
    "model": (dict, lambda s: lengthen(s["model"].kernel)),
    "model of the next segment": (
        lambda: {"restart": OracleRestart(change_points=(5,), exploration=None)},
        lambda s: lengthen(s["model"].kernel),
    ),
    "model that learns": (
        lambda: {"model": model(refit_every=4)},
        lambda s: lengthen(s["model"].kernel),
    ),
    "options": (
        lambda: {
            "acquisition": ImprovedUpperConfidenceBound.with_options(
                rkhs_bound=double([2.0]), noise_bound=0.1
            )
        },
        lambda s: s["acquisition"].options["rkhs_bound"].zero_(),
    ),
    "choices": (
        lambda: {
            "acquisition": GPThompsonSampling.with_options(width=1.0, choices=CHOICES.clone())
        },
        lambda s: s["acquisition"].options["choices"].mul_(0.1),
    ),
    "detector": (
        lambda: {
            "restart": ChangePointRestart(
                detector=ChangePointDetector(MaternKernel(nu=2.5), lengthscale=0.2, **DETECTOR),
                exploration=2.0,
            )
        },
        lambda s: lengthen(s["restart"].detector.kernel),
    ),
}


def settings_of(name: str) -> dict[str, Any]:
    acquisition = ImprovedUpperConfidenceBound.with_options(**BOUNDS)
    return {"model": model(), "acquisition": acquisition, **CHANGES[name][0]()}


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        (name, domain)
        for name in CHANGES
        for domain in ("arms", "box")
        if (name, domain) != ("choices", "arms")  # choices are those of a box
    ],
)
def test_what_a_user_changes_after_five_rounds_changes_no_loop(name: str, domain: str) -> None:
    """The live loop goes on as a loop that is built anew from settings nobody touched."""
    where = Arms(CHOICES) if domain == "arms" else BOX
    settings = settings_of(name)
    loop = BanditLoop(where, seed=3, **settings)
    first = play(loop, 5)
    CHANGES[name][1](settings)
    later = play(loop, 6)
    assert play(BanditLoop(where, seed=3, **settings_of(name)), 11) == first + later


@dataclass(frozen=True)
class LockedWindow(SlidingWindow):
    """A user's rule that holds something that cannot be copied."""

    lock: Any = field(default_factory=threading.Lock, compare=False)


def test_a_rule_that_cannot_be_copied_is_refused_by_name() -> None:
    acquisition = ImprovedUpperConfidenceBound.with_options(**BOUNDS)
    with pytest.raises(TypeError, match=r"forgetting is LockedWindow.*cannot be"):
        BanditLoop(BOX, model(), acquisition, forgetting=LockedWindow(3))

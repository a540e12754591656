"""An exact model of too many distinct rows is refused before anything is recorded."""

from __future__ import annotations

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel

from botorch_bandits import BanditGP, BanditLoop, Box, ExponentialWeights, SlidingWindow
from botorch_bandits import GPUpperConfidenceBound as Bound
from botorch_bandits.loop import engines

BOX = Box([[0.0], [1.0]])
RECIPE = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.3)
WIDTH = Bound.with_options(width=2.0)


def loop_with(places: list[float], **settings: object) -> BanditLoop:
    loop = BanditLoop(BOX, **{"model": RECIPE, "acquisition": WIDTH, "seed": 0, **settings})
    for place in places:
        loop.attach(torch.tensor([place], dtype=torch.float64), place)
    return loop


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "MOST_ROWS", 5)


@pytest.mark.parametrize(
    "settings",
    [{}, {"model": None}, {"forgetting": ExponentialWeights(0.9)}],
    ids=["recipe", "default", "weights"],
)
def test_too_many_distinct_rows_are_refused(settings: dict[str, object]) -> None:
    places = [0.0, 0.2, 0.2, 0.4, 0.4, 0.6]
    loop = loop_with(places, **settings)
    loop.tell(loop.ask().id, 0.5)  # four distinct points, and then five
    with pytest.raises(ValueError, match=r"5 distinct.*model=.*SingleTaskVariationalGP"):
        loop.ask()
    assert (loop.history.num_queries, loop.history.num_arrived) == (7, 7)


def test_a_window_and_an_own_model_go_on() -> None:
    places = [i / 10 for i in range(9)]
    loop_with(places, forgetting=SlidingWindow(4)).ask()
    loop_with(places, model=SingleTaskGP).ask()

"""The league in situations: worlds, delays that are kept, and what the table says."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from benchmarks.league import STEP, Row, play
from benchmarks.league_methods import Method
from benchmarks.league_players import Outcome, Player
from benchmarks.league_problems import MAX_DELAY, NUM_INITIAL, Coordinates, Situation
from benchmarks.league_situations import SITUATIONS

WITHOUT_DATA = [name for name, situation in SITUATIONS.items() if not situation.data]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ------------------------------------------------------------------------------------------ worlds


@pytest.mark.parametrize("name", [n for n in WITHOUT_DATA if not n.endswith(("svm", "svr"))])
def test_no_point_is_better_than_what_regret_is_counted_from(name):
    situation = SITUATIONS[name]
    world = situation.world(3, None)
    stream = torch.Generator().manual_seed(0)
    for t in (1, situation.num_rounds // 2, situation.num_rounds):
        shares = torch.rand(100, len(situation.parameters), generator=stream, dtype=torch.float64)
        for x in map(situation.at, shares):
            if (world.constraint(x, t) or 0.0) <= 0.0:
                assert world.reward(x, t) <= world.best(t) + 1e-3  # a grid under a budget


# ----------------------------------------------------------------------------------------- playing


class Recorder(Player):
    """Asks for one point ever again, and keeps when it was told what."""

    def __init__(self, situation: Situation, seed: int) -> None:
        super().__init__(situation, seed)
        self.now = NUM_INITIAL + 1
        self.told: dict[int, int] = {}
        self.given_up: dict[int, int] = {}
        self.contexts: dict[int, Coordinates] = {}

    def attach(self, t: int, x: Coordinates, context: Coordinates, outcome: Outcome) -> None:
        super().attach(t, x, context, outcome)
        self.contexts[t] = context

    def suggestion(self, t: int, context: Coordinates) -> Coordinates:
        assert t == self.now
        self.now, self.contexts[t] = t + 1, context
        return (0.5, 0.5)

    def tell(self, t: int, outcome: Outcome) -> None:
        super().tell(t, outcome)
        self.told[t] = self.now

    def give_up(self, t: int) -> None:
        self.given_up[t] = self.now


def numbers(row: Row, name: str) -> list[float]:
    return [float(number) for number in row[name].split()]


def record(name: str, seed: int = 0) -> tuple[Recorder, Row]:
    situation, players = SITUATIONS[name], []

    def make(situation: Situation, seed: int) -> Recorder:
        players.append(Recorder(situation, seed))
        return players[0]

    method = Method("recorder", "torch", {situation.kind: make})
    row = play(situation, method, seed)
    return players[0], row


def test_outcomes_come_after_their_delays_and_some_never():
    player, row = record("delays-branin")
    delays = SITUATIONS["delays-branin"].delays(0)
    assert 8.0 < np.mean([d for d in delays if math.isfinite(d)]) < 12.0
    lost = [t for t in range(NUM_INITIAL + 1, 61) if math.isinf(delays[t - 1])]
    assert 1 <= len(lost) <= 12
    for t in range(NUM_INITIAL + 1, 61):
        due = t + max(1, delays[t - 1])
        if due <= 60 and delays[t - 1] <= MAX_DELAY:
            assert player.told[t] == due
            assert t not in player.given_up
        else:
            assert t not in player.told
            assert player.given_up.get(t) == (t + MAX_DELAY + 1 if t + MAX_DELAY < 60 else None)
    # the same point ever again: after the first rounds regret grows by the same amount
    steps = np.diff(numbers(row, "curve"))
    assert steps[1:] == pytest.approx([steps[-1]] * (len(steps) - 1), rel=1e-3)
    values = {t: o.reward for t, o in player.outcomes.items()}
    optimum = -5.0 / (4.0 * math.pi)
    assert numbers(row, "simple") == pytest.approx([optimum - max(values.values())], rel=1e-4)


def test_violations_by_hand():
    player, row = record("budget-functions", 2)
    situation = SITUATIONS["budget-functions"]
    world = situation.world(2, None)
    points = [*situation.initial_points(2), *[(0.5, 0.5)] * 55]
    costs = [world.constraint(x, 1) for x in points]
    expected = {
        "signed": [np.mean(costs)],
        "rectified": [np.maximum(costs, 0.0).mean()],
        "violations": [np.mean(costs[:t]) for t in range(6, 61, 6)],
    }
    regrets = [world.best(1) - world.reward(x, 1) for x in points]
    expected["curve"] = list(np.cumsum(regrets)[STEP - 1 :: STEP])
    for name, values in expected.items():
        assert numbers(row, name) == pytest.approx(values, rel=1e-4), name
    noise = situation.noise(2)
    for t, outcome in player.outcomes.items():
        assert outcome.reward == pytest.approx(world.reward(points[t - 1], 1) + noise[t - 1][0])
        assert outcome.constraint == pytest.approx(costs[t - 1] + noise[t - 1][1])


# -------------------------------------------------------------------------------------- the command

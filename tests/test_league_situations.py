"""The league in situations: worlds, delays that are kept, and what the table says."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.commands import main
from benchmarks.league import IN_SITUATIONS, STEP, Row, Rows, listed, play
from benchmarks.league_methods import METHODS, Method, method_of
from benchmarks.league_players import Outcome, Player
from benchmarks.league_problems import MAX_DELAY, NUM_INITIAL, Coordinates, Situation
from benchmarks.league_situations import GAMMAS, SITUATIONS, TASKS_FILE, TEMPERATURES_FILE

WITHOUT_DATA = [name for name, situation in SITUATIONS.items() if not situation.data]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Made files in the layout of the real ones."""
    numbers = np.random.default_rng(0)
    pairs = list(itertools.product(range(-5, 7), range(len(GAMMAS))))
    radial = [[1.0, 0.0, 0.0, c / 6.0, math.log10(GAMMAS[g]) / 4.0, 0.0] for c, g in pairs]
    others = [[0.0, 0.0, 1.0, c / 6.0, 0.0, 0.0] for c in range(-5, 7)]
    np.savez(
        tmp_path / TASKS_FILE,
        # what a task is, and what is chosen, can be read from the accuracy
        accuracy=np.arange(12.0)[:, None] + np.arange(180.0)[None, :] / 1000.0,
        hyperparameters=np.array([*radial, *others]),
        context=np.arange(72.0).reshape(12, 6) / 72.0,
    )
    np.savez(
        tmp_path / TEMPERATURES_FILE,
        temperature=numbers.uniform(15.0, 30.0, (300, 4)),
        xy_m=np.array([[1.0, 1.0], [1.0, 30.0], [40.0, 1.0], [40.0, 30.0]]),
    )
    return tmp_path


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


def test_functions_change_after_rounds_that_seeds_choose():
    worlds = [SITUATIONS["changes-functions"].world(seed, None) for seed in range(3)]
    x = (0.3, 0.6)
    for world in worlds:
        first, second = world.change_points
        assert 20 <= first <= 28 < 44 <= second <= 52
        values = [world.reward(x, t) for t in (1, first, first + 1, second, second + 1, 72)]
        assert values[0] == values[1] != values[2] == values[3] != values[4] == values[5]
    assert len({world.change_points for world in worlds}) > 1


def test_a_budget_excludes_the_best_point():
    for seed in range(2):
        world = SITUATIONS["budget-functions"].world(seed, None)
        side = torch.linspace(0.0, 1.0, 21).tolist()
        points = list(itertools.product(side, side))
        best = max(points, key=lambda x: world.reward(x, 1))
        assert world.constraint(best, 1) > 0.0
        share = sum(world.constraint(x, 1) <= 0.0 for x in points) / len(points)
        assert share == pytest.approx(0.35, abs=0.06)


def test_tasks_are_read_from_the_table(data):
    world = SITUATIONS["contexts-tasks"].world(0, data)
    met = set()
    for t in range(1, 61):
        task = round(world.context(t)[0] * 72.0 / 6.0)
        met.add(task)
        # log2(C) = 2 and gamma = 0.1 is row 7 * 14 + 4 of the radial ones
        assert world.reward((2.0, 4.0), t) == pytest.approx(task + (7 * 14 + 4) / 1000.0)
        assert world.best(t) == pytest.approx(task + 167 / 1000.0)  # no other kernels
    assert len(met) == 10


def test_temperatures_are_those_of_the_next_sensor(data):
    with np.load(data / TEMPERATURES_FILE) as file:
        readings = file["temperature"]
    world = SITUATIONS["changes-temperatures"].world(1, data)
    assert world.reward((38.0, 4.0), 5) == readings[96 + 8, 2]
    assert world.best(5) == readings[96 + 8].max()
    np.savez(data / TEMPERATURES_FILE, temperature=readings[:100], xy_m=np.zeros((4, 2)))
    with pytest.raises(ValueError, match=r"100, 4\) temperatures"):
        SITUATIONS["changes-temperatures"].world(1, data)


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


def test_contexts_are_common():
    player, _ = record("contexts-hartmann3", 1)
    again, _ = record("contexts-hartmann3", 1)
    other, _ = record("contexts-hartmann3", 2)
    assert player.contexts == again.contexts != other.contexts
    assert len(set(player.contexts.values())) == 60


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if {*m.makes} - {"still"}])
def test_methods_play_with_seeds(name, data):
    method = METHODS[name]
    number = NUM_INITIAL + (3 if name in ("random", "optuna-tpe") else 1)
    for kind in {*method.makes} - {"still"}:
        if (name, kind) == ("botorch", "changes"):
            continue  # as botorch-window does
        names = [n for n, s in SITUATIONS.items() if s.kind == kind]
        for problem in names if kind == "contexts" else names[:1]:
            first = play(SITUATIONS[problem], method, 7, data, number)
            if name in ("ours-best", "botorch-ucb", "optuna-gp", "optuna-tpe", "random"):
                again = play(SITUATIONS[problem], method, 7, data, number)
                assert {**first, "seconds": ""} == {**again, "seconds": ""}
            assert len(numbers(first, "curve")) == number // STEP
            assert bool(first["signed"]) == (kind == "budget")


def test_pending_points_keep_botorch_away():
    situation = SITUATIONS["delays-branin"]
    x = {}
    for pending in (False, True):
        player = METHODS["botorch"].makes["delays"](situation, 0)
        for t, point in enumerate(situation.initial_points(0), start=1):
            player.attach(t, point, (), Outcome(-float(np.square(point).sum())))
        asked = player.ask(6, ())
        if not pending:
            player.give_up(6)
        x[pending] = math.dist(player.ask(7, ()), asked)
    assert x[True] > x[False]


# -------------------------------------------------------------------------------------- the command


class Here:
    """What stands for processes, which the other half of the league tests."""

    def __init__(self, *args, **kwargs) -> None: ...

    def submit(self, function, *args):
        future = Future()
        future.set_result(function(*args))
        return future

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None: ...


def test_the_command_goes_on_where_it_stopped(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.league.ProcessPoolExecutor", Here)
    table = tmp_path / "rows.csv"
    arguments = ["league", "--situations", "--problems", "budget-functions", "--quiet"]
    arguments += ["--methods", "random", "--out", str(table)]
    assert main([*arguments, "--seeds", "1"]) == 0
    assert "random" in capsys.readouterr().out
    (row,) = Rows(IN_SITUATIONS, table)
    expected = play(SITUATIONS["budget-functions"], METHODS["random"], 0)
    assert {**row, "seconds": ""} == {**expected, "seconds": ""}
    text = table.read_text(encoding="utf-8")
    monkeypatch.setattr("benchmarks.league._play_in_worker", None)
    assert main([*arguments, "--seeds", "1"]) == 0  # plays nothing
    assert table.read_text(encoding="utf-8") == text


def test_runs_go_seed_by_seed_and_only_where_a_method_plays():
    runs = listed(["delays-svm", "budget-svr"], ["ours", "ours-best"], range(2))
    one = [("delays-svm", "ours"), ("delays-svm", "ours-best"), ("budget-svr", "ours")]
    assert runs == [(seed, *pair) for seed in range(2) for pair in one]
    with pytest.raises(ValueError, match="method is 'luck'"):
        method_of("luck")

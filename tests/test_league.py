"""The league: common starts, rows that are kept, and who is behind whom."""

from __future__ import annotations

import math
import multiprocessing

import pytest
import torch

from benchmarks.league import (
    IN_SITUATIONS,
    STILL,
    Rows,
    Run,
    of_still,
    play,
    play_all,
    simple_regret,
    simple_regret_trace,
    trace_of,
)
from benchmarks.league_methods import METHODS, Method
from benchmarks.league_players import Player
from benchmarks.league_problems import (
    NUM_INITIAL,
    PROBLEMS,
    Coordinates,
    Parameter,
    Situation,
)

BRANIN = PROBLEMS["branin"]


def branin(x: Coordinates) -> float:
    return BRANIN.world(0).reward(x, 1)


def make_row(method: str, seed: int, simple: float) -> dict[str, str]:
    run = Run([5.0, simple], {1: 0.0, 2: 1.0}, [])
    common = {"problem": "branin", "method": method, "seed": str(seed), "version": "made 1.0"}
    return {**common, "seconds": "0.5", **of_still(run)}


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --------------------------------------------------------------------------------------- problems


@pytest.mark.parametrize("name", [n for n, p in PROBLEMS.items() if p.smallest_regret == 1e-8])
def test_no_point_is_better_than_the_optimum(name):
    problem, world = PROBLEMS[name], PROBLEMS[name].world(0)
    stream = torch.Generator().manual_seed(0)
    shares = torch.rand(300, len(problem.parameters), generator=stream, dtype=torch.float64)
    assert max(world.reward(problem.at(row), 1) for row in shares) < world.best(1)


def test_points_and_native_values_are_the_same():
    for problem in PROBLEMS.values():
        for x in problem.initial_points(3):
            native = problem.native(x)
            assert problem.coordinates(native) == pytest.approx(x, abs=1e-12)
            for p, c in zip(problem.parameters, x, strict=True):
                assert p.low <= c <= p.high
                assert not p.is_whole or c in p.values
    whole = Parameter("n", 2.0, 4.0, "integer")
    assert [whole.at(u) for u in (0.0, 0.3, 0.4, 0.99, 1.0)] == [2.0, 2.0, 3.0, 4.0, 4.0]
    log = Parameter("C", -4.0, 2.0, "log")
    assert (log.native(-4.0), log.coordinate(1e-4 * (1 - 1e-12))) == (pytest.approx(1e-4), -4.0)


# ----------------------------------------------------------------------------------------- playing


class Recorder(Player):
    """Asks for the same point ever again and keeps what it is told."""

    def suggestion(self, t: int, context: Coordinates) -> Coordinates:
        return (0.5,) * len(self.situation.parameters)


def recorded(problem: str, seed: int) -> list[tuple[Coordinates, float]]:
    players = []

    def make(problem: Situation, seed: int) -> Recorder:
        players.append(Recorder(problem, seed))
        return players[-1]

    play(PROBLEMS[problem], Method("recorder", "torch", {"still": make}), seed, num_rounds=13)
    (player,) = players
    return [(player.inputs[t], outcome.reward) for t, outcome in player.outcomes.items()]


def test_starts_and_noise_are_common_and_differ_between_seeds():
    told = recorded("noisy-hartmann6", 4)
    assert told == recorded("noisy-hartmann6", 4)
    exact = recorded("hartmann6", 4)
    assert [x for x, _ in told] == [x for x, _ in exact]
    noise = [a - b for (_, a), (_, b) in zip(told, exact, strict=True)]
    assert noise == pytest.approx(
        [n for n, _ in PROBLEMS["noisy-hartmann6"].noise(4)[:12]], abs=1e-12
    )
    assert len(set(noise)) == 12
    assert 0.02 < torch.tensor(noise).std() < 0.2
    other = recorded("noisy-hartmann6", 5)
    assert all(a[0] != b[0] for a, b in zip(told[:NUM_INITIAL], other[:NUM_INITIAL], strict=True))


def test_simple_regret_is_that_of_the_point_with_the_largest_observed_value():
    # the second point looks best and is not: regret rises, as the third is not recommended
    trace = simple_regret_trace([3.0, 5.0, 1.0, 0.5], [0.0, 2.0, 1.0, 2.5])
    assert trace == ((1, 3.0), (2, 5.0), (4, 0.5))
    assert [simple_regret(trace, n) for n in (1, 2, 3, 4, 60)] == [3.0, 5.0, 5.0, 0.5, 0.5]
    row = of_still(Run([3.0, 5.0, 1.0, 0.5], {1: 0.0, 2: 2.0, 3: 1.0, 4: 2.5}, []))
    assert (row["simple_20"], row["cumulative_60"]) == ("0.5", "9.5")
    assert trace_of(row) == trace


SLOWER = ("optuna-gp", "botorch-logei", "candidates-ucb", "candidates-ts")


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "name",
    [
        "random",
        "optuna-tpe",
        *(pytest.param(name, marks=pytest.mark.slow) for name in SLOWER),
    ],
)
def test_methods_play_with_seeds(name):
    method = METHODS[name]
    number = NUM_INITIAL + (2 if name in ("random", "optuna-tpe", "optuna-gp") else 1)
    first, again, other = (play(BRANIN, method, seed, num_rounds=number) for seed in (7, 7, 8))
    assert {**first, "seconds": ""} == {**again, "seconds": ""}
    assert first["cumulative_60"] != other["cumulative_60"]
    assert float(first["seconds"]) > 0.0
    regret = -5.0 / (4.0 * math.pi) - branin(BRANIN.initial_points(7)[0])
    assert trace_of(first)[0] == (1, pytest.approx(regret, rel=1e-4))


# -------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("table", [STILL, IN_SITUATIONS], ids=["still", "situations"])
def test_rows_survive_writing_and_reading(table, tmp_path):
    path = tmp_path / "new" / "league.csv"
    rows = Rows(table, path)
    for method, seed in (("random", 10), ("random", 9), ("random", 2), ("optuna-gp", 0)):
        rows.add({**dict.fromkeys(table[1], ""), **make_row(method, seed, 0.125 * seed)})
    read = Rows(table, path)
    assert [{name: row[name] for name in table[1]} for row in rows] == list(read)
    keys = [("optuna-gp", "0"), ("random", "2"), ("random", "9"), ("random", "10")]
    assert [(row["method"], row["seed"]) for row in read] == keys
    assert ("branin", "random", 9) in read
    assert ("branin", "random", 0) not in read


def test_a_second_start_plays_what_is_missing(tmp_path, monkeypatch):
    forking = multiprocessing.get_context("fork")  # which spares each process its imports
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: forking)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # it is set for the processes
    path = tmp_path / "league.csv"
    rows = Rows(STILL, path)
    kept = make_row("random", 1, 123.0)
    rows.add(kept)
    done: list[str] = []
    monkeypatch.setitem(METHODS, "broken", Method("broken", "torch", {"still": Player}))
    failed = play_all(rows, ["branin"], ["broken", "random"], [0, 1], done=done.append)
    assert sorted(each.run for each in failed) == ["branin broken 0", "branin broken 1"]
    assert "Error" in failed[0].error
    assert sorted(done)[2:] == ["branin random 0", "branin random 1"]
    read = Rows(STILL, path)
    assert [row["seed"] for row in read] == ["0", "1"]
    assert read.of("branin", "random")[1] == kept
    expected = play(BRANIN, METHODS["random"], 0)
    assert {**read.of("branin", "random")[0], "seconds": ""} == {**expected, "seconds": ""}
    text = path.read_text(encoding="utf-8")
    assert play_all(read, ["branin"], ["random"], [0, 1]) == []
    assert path.read_text(encoding="utf-8") == text

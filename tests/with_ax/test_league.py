"""The league's player of Ax, in the environment that has it."""

import sys

import pytest

from benchmarks.league import play
from benchmarks.league_methods import method_of
from benchmarks.league_problems import NUM_INITIAL, PROBLEMS, still
from benchmarks.league_situations import SITUATIONS

pytest.importorskip("ax.api.client")


def test_ax_plays_integers_choices_and_logarithms():
    points = []

    def function(**values: object) -> float:
        points.append(values)
        return float(values["units"]) + (values["activation"] == "tanh")

    method = method_of(f"ax={sys.executable}")
    problem = still("made", PROBLEMS["mlp"].parameters, lambda: function, 33.0)
    row = play(problem, method, 0, num_rounds=NUM_INITIAL + 3)
    assert row["version"].startswith("ax-platform 1.")
    assert float(row["seconds"]) > 0.0
    assert len(points) == NUM_INITIAL + 3
    for values in points:
        assert isinstance(values["units"], int)
        assert values["activation"] in ("identity", "logistic", "tanh", "relu")
        assert 1e-5 * (1 - 1e-9) <= values["alpha"] <= 10.0 * (1 + 1e-9)


@pytest.mark.parametrize("name", ["delays-branin", "budget-functions", "contexts-hartmann3"])
def test_ax_plays_in_situations(name):
    situation = SITUATIONS[name]
    method = method_of(f"ax={sys.executable}")
    row = play(situation, method, 0, num_rounds=NUM_INITIAL + 2)
    assert row["version"].startswith("ax-platform 1.")
    assert " " not in row["curve"]
    assert bool(row["signed"]) == (situation.kind == "budget")
    assert float(row["seconds"]) > 0.0

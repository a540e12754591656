"""A history as a study of Optuna: states, values, distributions and constraints of each query."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from models.textbook import double

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditLoop,
    Box,
    Categorical,
    Fixed,
    Float,
    Integer,
    RandomSearch,
    Space,
    run,
)
from botorch_bandits.in_optuna import to_optuna

optuna = pytest.importorskip("optuna")
STATES = optuna.trial.TrialState
SPACE = Space(
    {
        "rate": Float(1e-4, 1.0, log=True),
        "x": Float(-1.0, 1.0),
        "depth": Integer(1, 9),
        "units": Integer(1, 512, log=True),
        "kind": Categorical(["a", None, True, 2.5]),
        "seed": Fixed(7),
    }
)


def loop_with_everything() -> BanditLoop:
    loop = BanditLoop(SPACE, None, RandomSearch(), seed=5)
    for reward in range(5):
        now = 1000.0 + 20.0 * reward
        loop.tell(loop.ask(at=now).id, float(reward), at=now + 10.0)
    loop.fail(loop.ask(at=1100.0).id, "no license", at=1110.0)
    loop.retract(4, "told in grams", at=1120.0)
    loop.ask(at=1130.0)
    return loop


def test_states_values_times_and_reasons() -> None:
    loop = loop_with_everything()
    study = to_optuna(loop, study_name="mine")
    trials, history = study.trials, loop.history
    assert study.study_name == "mine"
    assert study.direction == optuna.study.StudyDirection.MAXIMIZE
    assert [trial.number for trial in trials] == [query.id for query in history.queries]
    wanted = {
        "told": STATES.COMPLETE,
        "pending": STATES.RUNNING,
        "failed": STATES.FAIL,
        "retracted": STATES.FAIL,
    }
    for trial, query in zip(trials, history.queries, strict=True):
        outcome = history.outcome(query.id)
        assert trial.state == wanted[history.state(query.id)]
        assert trial.value == (None if outcome is None else outcome.reward)
        assert trial.params == query.parameters
        assert trial.datetime_start == datetime.fromtimestamp(query.asked_at)
        assert trial.user_attrs["origin"] == query.origin
        if outcome is not None:
            assert trial.datetime_complete == datetime.fromtimestamp(outcome.arrived_at)
    assert trials[4].user_attrs["reason"] == "told in grams"
    assert trials[4].user_attrs["retracted_reward"] == 4.0
    assert trials[5].user_attrs["reason"] == "no license"
    assert trials[6].datetime_complete is None
    assert study.best_value == 3.0  # 4 was withdrawn


def test_distributions_are_those_that_make_the_same_space() -> None:
    known = to_optuna(loop_with_everything()).trials[0].distributions
    assert known["rate"] == optuna.distributions.FloatDistribution(1e-4, 1.0, log=True)
    assert known["units"] == optuna.distributions.IntDistribution(1, 512, log=True)
    assert known["kind"].choices == ("a", None, True, 2.5)
    assert Space.from_optuna(known) == SPACE


def test_constraints_are_where_optuna_keeps_them() -> None:
    rule = AdditiveEpochs(2, 5)
    loop = BanditLoop(Box([[0.0], [1.0]]), None, RandomSearch(), constraints=rule)
    for reward, first in ((1.0, -1.0), (3.0, 0.5), (2.0, 0.0)):
        loop.tell(loop.ask().id, reward, [first, -1.0])
    study = to_optuna(loop)
    # Optuna leaves out what is not feasible by the values that it finds
    assert study.best_trial.value == 2.0
    # releases before 5 have them among the system attributes alone
    known = [getattr(t, "constraints", None) or t.system_attrs["constraints"] for t in study.trials]
    values = [list(each.values()) if isinstance(each, dict) else each for each in known]
    assert values == [[-1.0, -1.0], [0.5, -1.0], [0.0, -1.0]]


@pytest.mark.parametrize("kind", ["box", "arms"])
def test_points_without_names(kind: str) -> None:
    domain = Box([[0.0, -2.0], [1.0, 5.0]], integer_dims=[1])
    if kind == "arms":
        domain = Arms([[0.0, 1.0], [1.0, 3.0]])
    loop = BanditLoop(domain, None, RandomSearch(), context_dim=1)
    contexts = double([[0.5], [0.75]])
    run(loop, lambda x: 1.0, 2, contexts=contexts, progress=False)
    study = to_optuna(loop)
    trial, query = study.trials[1], loop.history.queries[1]
    assert list(trial.params.values()) == query.x.tolist()
    assert trial.user_attrs["context"] == [0.75]
    if kind == "box":
        assert trial.distributions["x1"] == optuna.distributions.IntDistribution(-2, 5)


def test_it_goes_into_a_database_for_the_dashboard(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'run.db'}"
    to_optuna(loop_with_everything(), storage=url, study_name="mine")
    read = optuna.load_study(study_name="mine", storage=url)
    assert len(read.trials) == 7
    assert read.trials[0].params == to_optuna(loop_with_everything()).trials[0].params
    with pytest.raises(ValueError, match="study_name is 'mine'"):
        to_optuna(loop_with_everything(), storage=url, study_name="mine")
    optuna.delete_study(study_name="mine", storage=url)
    assert len(to_optuna(loop_with_everything(), storage=url, study_name="mine").trials) == 7


def test_an_empty_history_and_wrong_arguments() -> None:
    assert to_optuna(BanditLoop(SPACE, None, RandomSearch())).trials == []
    with pytest.raises(TypeError, match="BanditLoop"):
        to_optuna(loop_with_everything().history)  # type: ignore[arg-type]

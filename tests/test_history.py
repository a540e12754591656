"""The history against a list of plain dictionaries, under any sequence of calls."""

from __future__ import annotations

import copy
import json
import math
import pickle
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models.textbook import double
from torch import Tensor

from botorch_bandits import History
from botorch_bandits.checks import LARGEST_OUTCOME
from botorch_bandits.history import Growing

NAN = float("nan")
DIM, CONTEXT_DIM = 2, 1

finite = st.floats(-LARGEST_OUTCOME, LARGEST_OUTCOME)
queries = st.tuples(
    st.just("ask"),
    st.lists(finite, min_size=DIM, max_size=DIM),
    st.lists(finite, min_size=CONTEXT_DIM, max_size=CONTEXT_DIM),
    st.sampled_from(["initial", "acquisition", "random"]),
    finite,
    st.dictionaries(st.sampled_from(["mean", "width", "acquisition_value"]), finite),
)
outcomes = st.tuples(st.just("tell"), st.integers(0, 10), finite, finite, finite)
calls = st.lists(st.one_of(queries, queries, outcomes), max_size=20)


def inputs_to_avoid(history: History) -> Tensor:
    return history.inputs(torch.tensor(history.pending_or_avoided()).long())


def play(sequence: list[Any]) -> tuple[History, list[dict[str, Any]]]:
    """Make the calls on a history, and keep a plain table beside it."""
    history, table, num_arrived = History(DIM, CONTEXT_DIM, num_constraints=1), [], 0
    for call in sequence:
        if call[0] == "ask":
            _, x, context, origin, asked_at, known = call
            history.record(history.new_query(double(x), origin, asked_at, double(context), known))
            table.append(
                {
                    "id": len(table),
                    "round_number": len(table) + 1,
                    "origin": origin,
                    "x": x,
                    "context": context,
                    "asked_at": asked_at,
                    "state": "pending",
                    **dict.fromkeys(("reward", "constraints", "arrived_at", "arrived_round")),
                    **dict.fromkeys(("arrival_order", "reason")),
                    "diagnostics": known,
                }
            )
            continue
        _, query_id, reward, value, arrived_at = call
        if query_id >= len(table):
            with pytest.raises(KeyError, match=f"query_id {query_id} was never asked"):
                history.new_outcome(query_id, reward, arrived_at, [value])
        elif (table[query_id]["reward"], table[query_id]["constraints"]) == (reward, [value]):
            told = history.outcome(query_id)  # the record stays, though the times differ
            assert history.new_outcome(query_id, reward, arrived_at, [value]) is told
        elif table[query_id]["reward"] is not None:
            with pytest.raises(ValueError, match=f"query_id {query_id} already has the reward"):
                history.new_outcome(query_id, reward, arrived_at, [value])
        else:
            history.record(history.new_outcome(query_id, reward, arrived_at, [value]))
            table[query_id].update(
                state="told",
                reward=reward,
                constraints=[value],
                arrived_at=arrived_at,
                arrived_round=len(table),
                arrival_order=num_arrived,
            )
            num_arrived += 1
    return history, table


@given(calls)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_views_are_those_of_a_plain_table(sequence: list[Any]) -> None:
    history, table = play(sequence)
    told = sorted(
        (row for row in table if row["reward"] is not None), key=lambda row: row["arrival_order"]
    )
    waiting = [row for row in table if row["reward"] is None]
    assert history.to_records() == json.loads(json.dumps(history.to_records())) == table
    assert (history.num_queries, history.num_arrived) == (len(table), len(told))
    X, Y = history.arrived()
    assert X.shape == (len(told), CONTEXT_DIM + DIM)
    assert Y.shape == (len(told), 1)
    assert X.tolist() == [row["context"] + row["x"] for row in told]
    assert Y.squeeze(-1).tolist() == [row["reward"] for row in told]
    assert history.constraints().tolist() == [row["constraints"] for row in told]
    avoided = inputs_to_avoid(history)
    assert avoided.shape == (len(waiting), CONTEXT_DIM + DIM)
    assert avoided.tolist() == [row["context"] + row["x"] for row in waiting]
    assert [query.id for query in history.pending()] == [row["id"] for row in waiting]
    assert [outcome.query_id for outcome in history.outcomes] == [row["id"] for row in told]
    for query, row in zip(history.queries, table, strict=True):
        assert query is history.query(row["id"])
        assert query.x.tolist() == row["x"]
        assert query.context is not None
        assert query.context.tolist() == row["context"]
        outcome = history.outcome(row["id"])
        assert (None if outcome is None else outcome.reward) == row["reward"]
    best = history.best()
    assert (best is None) == (not told)
    if best is not None:
        largest = max(row["reward"] for row in told)
        first = next(row["id"] for row in table if row["reward"] == largest)
        assert (best[0].id, best[1].reward) == (first, largest)


def example(**options: Any) -> History:
    """Three queries, of which the last two have outcomes, told in reverse order."""
    history = History(DIM, **options)
    context = double([7.0]) if options.get("context_dim") else None
    for i in range(3):
        x, known = double([0.1 * i, 1.0]), {"width": 2.0 + i}
        history.record(history.new_query(x, "acquisition", float(i), context, known))
    constraints = [0.25] if options.get("num_constraints") else None
    history.record(history.new_outcome(2, 0.5, 10.0, constraints))
    history.record(history.new_outcome(1, 0.7, 11.0, constraints))
    return history


QUERIES: list[tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = [
    ({}, {"x": double([0.0])}, ValueError, r"x must be a vector of length 2, got shape \(1,\)"),
    ({}, {"x": double([0.0, NAN])}, ValueError, r"x\[1\] is nan"),
    ({}, {"x": torch.zeros(2)}, TypeError, "float32"),
    ({}, {"origin": "guess"}, ValueError, "origin is 'guess'; it must be one of initial"),
    ({}, {"context": double([1.0])}, ValueError, "context_dim is 0"),
    ({"context_dim": 1}, {}, ValueError, "but context_dim is 1"),
    ({"context_dim": 1}, {"context": double([1.0, 2.0])}, ValueError, "vector of length 1"),
]


@pytest.mark.parametrize(("options", "arguments", "error", "message"), QUERIES)
def test_a_refused_query_changes_nothing(
    options: dict[str, Any], arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    history = example(**options)
    before = history.to_records()
    valid: dict[str, Any] = {"x": double([0.0, 0.0]), "origin": "random", "asked_at": 0.0}
    with pytest.raises(error, match=message):
        history.record(history.new_query(**(valid | arguments)))
    assert history.to_records() == before


OUTCOMES: list[tuple[int, tuple[Any, ...], type[Exception], str]] = [
    (0, (0, NAN, 1.0), ValueError, "reward is nan; it must be finite"),
    (0, (0, double([0.5, 0.6]), 1.0), TypeError, r"one number, got a tensor of shape \(2,\)"),
    (0, (0, None, 1.0), TypeError, "reward must be one number, got None"),
    (0, (1, 0.5, 1.0), ValueError, "query_id 1 already has the reward 0.7"),
    (0, (3, 0.5, 1.0), KeyError, r"query_id 3 was never asked \(asked so far: 0 to 2\)"),
    (0, (-1, 0.5, 1.0), ValueError, "query_id is -1"),
    (0, (0.0, 0.5, 1.0), TypeError, "query_id must be an integer"),
    (0, (True, 0.5, 1.0), TypeError, "query_id must be an integer"),
    (0, (0, 0.5, 1.0, [0.5]), ValueError, "there are no constraints"),
    *(
        (1, (0, 0.5, 1.0, values), error, "constraints")
        for values, error in (
            (None, ValueError),
            ([1.0, 2.0], ValueError),
            ([NAN], ValueError),
            ([math.inf], ValueError),
            ([[1.0]], ValueError),
        )
    ),
    (2, (0, 0.5, 1.0, torch.zeros(2)), TypeError, r"constraints has dtype torch\.float32"),
]


@pytest.mark.parametrize(("num_constraints", "arguments", "error", "message"), OUTCOMES)
def test_a_refused_outcome_changes_nothing(
    num_constraints: int, arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    history = example(num_constraints=num_constraints) if num_constraints < 2 else History(2, 0, 2)
    if num_constraints == 2:
        history.record(history.new_query(double([0.0, 0.0]), "random", 0.0))
    before = history.to_records()
    with pytest.raises(error, match=message):
        history.record(history.new_outcome(*arguments))
    assert history.to_records() == before


@pytest.mark.parametrize(
    "constraints",
    [
        (np.float32(0.5),),
        [torch.tensor(0.5, requires_grad=True)],
        torch.tensor([0.5]),
        np.array([0.5], dtype=np.float32),
        double([0.5]).requires_grad_(),
    ],
    ids=repr,
)
def test_single_values_may_have_any_precision(constraints: Any) -> None:
    history = example(num_constraints=1)
    outcome = history.record(history.new_outcome(0, double([[2.0]]), 12, constraints=constraints))
    assert (outcome.reward, outcome.constraints) == (2.0, (0.5,))


@pytest.mark.parametrize(("dim", "context_dim"), [(0, 0), (1, -1)])
def test_bad_dimensions_are_refused(dim: int, context_dim: int) -> None:
    with pytest.raises(ValueError, match="dim is"):
        History(dim, context_dim)
    with pytest.raises(KeyError, match="asked so far: none"):
        History(1).query(0)


def test_nothing_that_was_handed_in_or_out_can_change_it() -> None:
    x, context, known = double([0.5]).requires_grad_(True), double([2.0]), {"width": 1.0}
    history = History(1, context_dim=1)
    query = history.record(history.new_query(x, "random", 0.0, context, known))
    assert not query.x.requires_grad
    history.record(history.new_outcome(query.id, 3.0, 1.0))
    history.record(history.new_query(x, "random", 0.0, context, known))
    before = history.to_records()
    # an evaluation may well work in place, and must not move the point that it evaluates
    for tensor in (
        x.detach(),
        context,
        query.x,
        query.context,
        history.query(0).x,
        history.queries[0].x,
        history.pending()[0].x,
        history.best()[0].x,  # type: ignore[index]
        *history.arrived(),
        inputs_to_avoid(history),
    ):
        assert tensor is not None
        tensor.add_(100.0)
    known["width"] = -1.0
    query.diagnostics["width"] = -1.0
    record = history.to_records()[0]
    record["x"][0] = -1.0
    record["diagnostics"]["width"] = -1.0
    assert history.to_records() == before
    for entry, name in ((query, "round_number"), (query, "x"), (history.outcomes[0], "reward")):
        with pytest.raises(AttributeError):
            setattr(entry, name, 7.0)


def test_of_equal_rewards_the_first_query_is_best() -> None:
    history = example()
    history.record(history.new_outcome(0, 0.7, 12.0))  # told last, asked first
    best = history.best()
    assert best is not None
    assert best[0].id == 0


def test_histories_travel_between_processes() -> None:
    history = example()
    for twin in (copy.deepcopy(history), pickle.loads(pickle.dumps(history))):
        assert twin.to_records() == history.to_records()
        twin.record(twin.new_outcome(0, 1.0, 0.0))
    assert history.num_arrived == 2
    assert repr(history) == "History(3 queries, 2 arrived)"
    assert repr(history.query(0)) == "Query(id=0, x=[0.0, 1.0], origin='acquisition')"


def test_the_data_frame_has_one_row_a_query_and_one_column_a_coordinate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = example(context_dim=1).to_dataframe()
    assert list(frame.columns) == [
        *("id", "round_number", "origin", "x0", "x1", "context0", "asked_at", "state", "reward"),
        *("arrived_at", "arrived_round", "arrival_order", "reason", "width"),
    ]
    assert frame["x0"].tolist() == [0.0, 0.1, 0.2]
    assert frame["context0"].tolist() == [7.0] * 3
    assert math.isnan(frame["reward"][0])
    assert frame["reward"].tolist()[1:] == [0.7, 0.5]
    assert frame["width"].tolist() == [2.0, 3.0, 4.0]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"botorch_bandits\[dataframe\].*to_records"):
        example().to_dataframe()


def test_errors_about_a_told_query_name_all_that_belongs_to_it() -> None:
    history = History(1, context_dim=2, num_constraints=1)
    for _ in range(3):
        history.record(history.new_query(double([0.5]), "initial", 0.0, double([1.0, 2.0])))
    history.record(history.new_outcome(0, 0.3, 1.0, constraints=[-0.2]))
    history.record(history.new_failure(1, 1.0, "no power"))
    message = r"query_id 0 already has the reward 0\.3 and constraints \[-0\.2\]"
    message += r", and was now told 0\.3 and \[0\.1\]; the history"
    with pytest.raises(ValueError, match=message):
        history.record(history.new_outcome(0, 0.3, 2.0, constraints=[0.1]))
    message = r"loop\.attach\(query\.x, reward, context=query\.context, constraints=\[\.\.\.\]\)\.$"
    with pytest.raises(ValueError, match=message):
        history.record(history.new_outcome(1, 0.3, 2.0, constraints=[0.1]))


def test_an_interrupt_while_a_query_or_an_outcome_is_recorded_shifts_no_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history, append = History(1), Growing.append

    def interrupted(self: Growing, *given: Any) -> None:
        append(self, *given)
        raise KeyboardInterrupt

    def record(entry: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Growing, "append", interrupted)
            with pytest.raises(KeyboardInterrupt):
                history.record(entry)
        history.record(entry)

    for number in (1.0, 2.0):
        record(history.new_query(double([number]), "initial", 0.0))
        record(history.new_outcome(history.num_queries - 1, number, 1.0))
    X, Y = history.arrived()
    assert X.tolist() == Y.tolist() == history.inputs().tolist() == [[1.0], [2.0]]

"""Loops on a space: queries, histories, tables and storages have names and native values."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel

from botorch_bandits import (
    BanditGP,
    BanditLoop,
    Box,
    Categorical,
    DifferentSettingsError,
    FittedSingleTaskGP,
    Fixed,
    Float,
    GPUpperConfidenceBound,
    Integer,
    RandomSearch,
    Space,
)
from botorch_bandits.history import flatten_records

SPACE = Space(
    {
        "C": Float(1e-3, 1e3, log=True),
        "depth": Integer(2, 4),
        "kernel": Categorical(["rbf", "poly", None]),
        "data": Fixed("digits"),
    },
    num_restarts=2,
    raw_samples=16,
)
GIVEN = {"C": 0.3, "depth": 4, "kernel": None}


def reward(C: float, depth: int, kernel: str | None, data: str) -> float:
    return -((math.log10(C) - 1.0) ** 2) - (depth - 7) ** 2 / 30.0 - (kernel != "poly") / 2.0


def make_loop(domain: Any = SPACE, **settings: Any) -> BanditLoop:
    kernel = MaternKernel(nu=2.5, ard_num_dims=SPACE.num_columns)
    model = BanditGP.with_kernel(
        kernel, noise=0.01, lengthscale=0.5, input_transform=SPACE.input_transform()
    )
    acquisition = GPUpperConfidenceBound.with_options(width=2.0)
    return BanditLoop(domain, model, acquisition, num_initial=2, **settings)


def play(loop: BanditLoop, num_rounds: int) -> None:
    for _ in range(num_rounds):
        query = loop.ask()
        assert query.parameters is not None
        loop.tell(query.id, reward(**query.parameters))


def test_queries_have_names_and_native_values() -> None:
    loop = make_loop()
    play(loop, 5)
    for query in loop.history.queries:
        named = query.parameters
        assert named == SPACE.decode(query.x)
        assert [type(named[name]) for name in ("C", "depth", "data")] == [float, int, str]
        named["C"] = 7.0  # a copy
        assert query.parameters != named
    best = loop.best()
    assert best is not None
    assert f"parameters={best[0].parameters}" in repr(best[0])
    assert BanditLoop(Box([[0.0], [1.0]]), None, RandomSearch()).ask().parameters is None


def test_a_point_is_attached_by_name_and_stays_as_it_was_given() -> None:
    loop = make_loop()
    loop.attach(GIVEN, 1.5)
    query = loop.history.queries[0]
    assert query.parameters == {**GIVEN, "data": "digits"}
    assert query.x.tolist() == [math.log10(0.3), 4.0, 2.0]
    loop.attach(query.x, 1.0)  # coordinates do, too
    again = loop.history.queries[1].parameters
    assert again is not None
    assert again.pop("C") == pytest.approx(0.3, rel=1e-14)
    assert again == {"depth": 4, "kernel": None, "data": "digits"}


def test_a_model_that_takes_categories_for_numbers_is_warned_of() -> None:
    model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01)
    acquisition = GPUpperConfidenceBound.with_options(width=2.0)
    with pytest.warns(UserWarning, match=r"its list .* input_transform="):
        BanditLoop(SPACE, model, acquisition)
    ordered = {**SPACE.parameters, "kernel": Categorical(["rbf", "poly"], ordered=True)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BanditLoop(Space(ordered), model, acquisition)
        make_loop()


# --- histories ------------------------------------------------------------------------------


def test_a_category_that_is_none_stays_none_in_a_table() -> None:
    space = Space({"weight": Categorical([None, "balanced"]), "state": Categorical([None, 1])})
    loop = BanditLoop(space, None, RandomSearch())
    points = [
        {"weight": weight, "state": state} for weight in (None, "balanced") for state in (None, 1)
    ]
    for point in points:
        loop.attach(point, 0.0)
    table = loop.history.to_dataframe()
    assert table["weight"].tolist() == [point["weight"] for point in points]
    assert table["parameter_state"].tolist() == [point["state"] for point in points]
    assert table["state"].tolist() == ["told"] * 4


def test_a_parameter_that_is_called_as_another_column_has_one_of_its_own() -> None:
    """``width`` is a diagnostic from the third round on, but a parameter in all."""
    space = Space({"width": Integer(8, 64), "reward": Float(0.0, 1.0)}, 2, 16)
    model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.5)
    acquisition = GPUpperConfidenceBound.with_options(width=2.0)
    loop = BanditLoop(space, model, acquisition, num_initial=2)
    for _ in range(3):
        loop.tell(loop.ask().id, 0.5)
    rows = flatten_records(loop.history.to_records())
    for row, query in zip(rows, loop.history.queries, strict=True):
        assert row["parameter_width"] == query.parameters["width"]
        assert row["parameter_reward"] == query.parameters["reward"]
        assert row["reward"] == 0.5
    assert [row.get("width") for row in rows] == [None, None, 2.0]


# --- storages -------------------------------------------------------------------------------


NAMED = {"C": Float(0.01, 100.0, log=True), "leaves": Integer(2, 64)}


@pytest.mark.usefixtures("quick_disk")
def test_a_refused_storage_lists_the_domain_and_counts_what_follows_from_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.db"
    space = Space({**NAMED, "kernel": Categorical(["rbf", "poly"])})
    with BanditLoop(space, seed=0, storage=path) as loop:
        loop.attach({"C": 1.0, "leaves": 4, "kernel": "rbf"}, 1.0)
    wider = Space({**space.parameters, "C": Float(0.001, 100.0, log=True)})
    with pytest.raises(DifferentSettingsError) as refused:
        BanditLoop(wider, seed=0, maximize=False, storage=path)
    hidden = [line for line in refused.value.differences if line.startswith("model.")]
    assert any(line.startswith("model.encode.") for line in hidden)
    _, *lines, _ = str(refused.value).splitlines()
    assert sorted(lines) == [
        "  domain.parameters.C.low: was 0.01, is 0.001",
        "  maximize: was True, is False",
        f"  model: encodes the points of that domain (further differences: {len(hidden)}; the "
        "attribute differences of this error lists them all)",
    ]


# --- the default model ----------------------------------------------------------------------


@pytest.mark.parametrize("context", [None, [0.5]])
def test_the_default_model_encodes_categories(context: list[float] | None) -> None:
    """Of three values it sees three columns, beside the other parameters and the context."""
    X = SPACE.sample(12, torch.Generator().manual_seed(0))
    if context is not None:
        X = torch.cat([torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1), X], dim=-1)
    model = FittedSingleTaskGP.for_domain(SPACE)(X, X.sum(-1, keepdim=True))
    seen = model.transform_inputs(X)
    num_columns = SPACE.num_columns + (context is not None)
    assert seen.shape[-1] == num_columns == model.covar_module.base_kernel.ard_num_dims
    names = X[:, -1:] == torch.arange(3.0, dtype=torch.float64)
    assert torch.equal(seen[:, -3:], names.double())
    assert float(seen.min()) >= 0.0
    assert float(seen.max()) <= 1.0


def test_a_loop_alone_plays_a_space_with_many_combinations() -> None:
    space = Space({**SPACE.parameters, "depth": Integer(2, 12)}, 2, 16)  # 33 of them
    loop = BanditLoop(space, num_initial=3)
    play(loop, 6)
    assert loop.history.queries[-1].origin == "acquisition"
    assert loop.history.queries[-1].parameters == space.decode(loop.history.queries[-1].x)

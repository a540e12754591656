"""Spaces from texts, from Optuna's distributions and from ConfigSpace, and what is refused."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import ConfigSpace
import numpy as np
import optuna
import pytest
from ConfigSpace import ConfigurationSpace
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from botorch_bandits import Categorical, Fixed, Float, Integer, Space

TEXTS = [
    "C=log:1e-3:1e3",
    "shift=float:-5:0.5",
    "depth=int:-2:12",
    "units=log-int:1:1000",
    "kernel=choice:rbf, poly,None,True,2,2.5,'7'",
    "batch=ordered:16,32,64",
    "data=fixed:digits",
    "folds=fixed:5",
]


def test_texts_describe_a_space() -> None:
    assert Space.parse(TEXTS) == Space(
        {
            "C": Float(1e-3, 1e3, log=True),
            "shift": Float(-5.0, 0.5),
            "depth": Integer(-2, 12),
            "units": Integer(1, 1000, log=True),
            "kernel": Categorical(["rbf", "poly", None, True, 2, 2.5, "7"]),
            "batch": Categorical([16, 32, 64], ordered=True),
            "data": Fixed("digits"),
            "folds": Fixed(5),
        }
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("C", "'C' does not describe a parameter; write NAME=KIND:..., as in C=log:1e-3:1e3"),
        ("=log:1:2", "'=log:1:2' does not describe a parameter"),
        ("C=ln:1:2", "Kinds are float, log, int, log-int, choice, ordered, fixed"),
        ("C=0:1", "'C=0:1' does not describe a parameter"),
        ("C=float:1", "'C=float:1': the range is '1'; write two numbers, as in 2:12"),
        ("C=int:1:2.5", "'C=int:1:2.5': the range is '1:2.5'; write two whole numbers"),
        ("C=log:0:1", "'C=log:0:1': low is 0.0, but log=True needs a positive one"),
        ("k=choice:a", "'k=choice:a': .* a category has at least two"),
        ("k=choice:a,,b", "'k=choice:a,,b': a value is empty; leave out the comma"),
        ("k=choice:'a,b", "'a is not a plain value; write a number, True, False, None or a string"),
        ("k=choice:(1,2),(3,4)", r"\(1 is not a plain value; .* needs quotes, as in 'a,b'"),
        ("k=fixed:[1]", r"\[1\] is not a plain value"),
        ("k=choice:1,True", r"'k=choice:1,True': values\[0\] and values\[1\] are 1 and True"),
    ],
)
def test_texts_that_describe_nothing_name_themselves_and_the_remedy(
    text: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Space.parse([text])


def test_a_value_in_quotes_may_have_a_comma() -> None:
    space = Space.parse(["k=choice: 'a,b' ,\"c,'d'\",it's,'',e"])
    assert space.parameters["k"] == Categorical(["a,b", "c,'d'", "it's", "", "e"])


def test_texts_are_a_list() -> None:
    with pytest.raises(TypeError, match="texts is 'C=log:1:2'; pass"):
        Space.parse("C=log:1:2")
    with pytest.raises(TypeError, match="a string, got 3"):
        Space.parse([3])  # type: ignore[list-item]


def test_a_name_is_described_once() -> None:
    with pytest.raises(ValueError, match="'C' is described twice"):
        Space.parse(["C=float:0:1", "C=int:0:1"])


# --- Optuna ---------------------------------------------------------------------------------

DISTRIBUTIONS: dict[str, BaseDistribution] = {
    "x": FloatDistribution(0.0, 1.0),
    "C": FloatDistribution(1e-3, 1e3, log=True),
    "share": FloatDistribution(0.1, 0.9, step=0.2),
    "depth": IntDistribution(2, 12),
    "units": IntDistribution(1, 1000, log=True),
    "batch": IntDistribution(16, 64, step=16),
    "kernel": CategoricalDistribution(["rbf", None, True, 2.5]),
    "one": CategoricalDistribution(["only"]),
    "still": FloatDistribution(2.0, 2.0),
}


def test_distributions_of_optuna_become_the_same_space() -> None:
    assert Space.from_optuna(DISTRIBUTIONS) == Space(
        {
            "x": Float(0.0, 1.0),
            "C": Float(1e-3, 1e3, log=True),
            "share": Categorical([0.1 + k * 0.2 for k in range(5)], ordered=True),
            "depth": Integer(2, 12),
            "units": Integer(1, 1000, log=True),
            "batch": Categorical([16, 32, 48, 64], ordered=True),
            "kernel": Categorical(["rbf", None, True, 2.5]),
            "one": Fixed("only"),
            "still": Fixed(2.0),
        }
    )


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        is_number = isinstance(value, float)
        assert found[name] == (pytest.approx(value, rel=1e-13) if is_number else value)
        native = value.item() if isinstance(value, np.generic) else value  # of ConfigSpace
        assert type(found[name]) is type(native)


def test_values_on_a_grid_are_found_as_people_type_them() -> None:
    space = Space.from_optuna({"x": FloatDistribution(0.0, 1.0, step=0.1)})
    assert space.encode({"x": 0.3}).tolist() == [3.0]  # 3 * 0.1 is another float
    with pytest.raises(ValueError, match=r"parameter 'x' is 0.31"):
        space.encode({"x": 0.31})


def test_optuna_and_the_space_have_the_same_values() -> None:
    """Every value that Optuna draws is one of the space, and the other way around."""
    space = Space.from_optuna(DISTRIBUTIONS)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(30):
        drawn = study.ask(DISTRIBUTIONS).params
        assert_same(space.decode(space.encode(drawn)), drawn)
    for x in space.sample(30):
        for name, value in space.decode(x).items():
            known = DISTRIBUTIONS[name]
            assert known._contains(known.to_internal_repr(value)), (name, value)


@pytest.mark.parametrize(
    ("distribution", "kind", "message"),
    [
        (
            FloatDistribution(0.0, 1.0, step=1e-6),
            ValueError,
            "'p' has 1000001 values because of its step",
        ),
        (IntDistribution(0, 4000, step=2), ValueError, "Leave out the step, and let the function"),
        (0.5, TypeError, r"distribution 'p' is 0.5. Pass FloatDistribution\(...\)"),
    ],
)
def test_what_a_space_cannot_have_of_optuna_is_refused(
    distribution: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        Space.from_optuna({"p": distribution})


def test_choices_of_optuna_that_are_no_plain_values_are_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        known = CategoricalDistribution([1, (2, 3)])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"'p' is \(2, 3\)"):
        Space.from_optuna({"p": known})
    with pytest.raises(TypeError, match="Pass a dict from"):
        Space.from_optuna([known])  # type: ignore[arg-type]


# --- ConfigSpace ----------------------------------------------------------------------------


def test_a_space_of_configspace_becomes_the_same_space() -> None:
    known = ConfigurationSpace(
        {
            "a": (0.1, 1.0),
            "b": ConfigSpace.Float("b", (1e-3, 1.0), log=True),
            "c": (1, 10),
            "d": ConfigSpace.Integer("d", (1, 100), log=True),
            "e": ["x", "y"],
            "f": ConfigSpace.OrdinalHyperparameter("f", [1, 2, 4]),
            "g": ConfigSpace.Constant("g", 5),
            "h": ConfigSpace.Categorical("h", ["p", "q"], weights=[2, 2]),
        }
    )
    space = Space.from_configspace(known)
    assert space == Space(
        {
            "a": Float(0.1, 1.0),
            "b": Float(1e-3, 1.0, log=True),
            "c": Integer(1, 10),
            "d": Integer(1, 100, log=True),
            "e": Categorical(["x", "y"]),
            "f": Categorical([1, 2, 4], ordered=True),
            "g": Fixed(5),
            "h": Categorical(["p", "q"]),
        }
    )
    for configuration in known.sample_configuration(20):
        drawn = dict(configuration)
        assert_same(space.decode(space.encode(drawn)), drawn)
    for x in space.sample(20):
        ConfigSpace.Configuration(known, values=space.decode(x)).check_valid_configuration()


def with_condition(space: ConfigurationSpace) -> None:
    space.add(ConfigSpace.EqualsCondition(space["x"], space["k"], "a"))


def with_clause(space: ConfigurationSpace) -> None:
    space.add(ConfigSpace.ForbiddenEqualsClause(space["k"], "b"))


def with_weights(space: ConfigurationSpace) -> None:
    space.add(ConfigSpace.Categorical("w", ["p", "q"], weights=[1, 3]))


def with_normal(space: ConfigurationSpace) -> None:
    space.add(ConfigSpace.Float("n", (0.0, 1.0), distribution=ConfigSpace.Normal(0.5, 0.1)))


def with_objects(space: ConfigurationSpace) -> None:
    space.add(ConfigSpace.OrdinalHyperparameter("o", [(1, 2), (3, 4)]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_condition, "the condition x . k == 'a', but in a Space every parameter takes every"),
        (with_clause, "the forbidden clause .* Leave it out and let the function return a low"),
        (with_weights, r"parameter 'w' has the weights \(1, 3\), but a Space has none"),
        (with_normal, "parameter 'n' is a NormalFloat.*Make it uniform"),
        (with_objects, r"value 0 of 'o' is \(1, 2\), but values must be plain"),
    ],
)
def test_what_a_space_cannot_have_of_configspace_is_refused(change: Any, message: str) -> None:
    known = ConfigurationSpace({"x": (0.0, 1.0), "k": ["a", "b"]})
    change(known)
    with pytest.raises((TypeError, ValueError), match=message):
        Space.from_configspace(known)


@pytest.mark.parametrize(
    ("package", "convert"),
    [
        ("ConfigSpace", lambda: Space.from_configspace(ConfigurationSpace({"x": (0.0, 1.0)}))),
        ("optuna", lambda: Space.from_optuna(DISTRIBUTIONS)),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    package: str, convert: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install 'botorch_bandits\[spaces\]'"):
        convert()


def test_only_a_space_of_configspace_is_converted() -> None:
    with pytest.raises(TypeError, match=r"space is \{'x': 1\}"):
        Space.from_configspace({"x": 1})

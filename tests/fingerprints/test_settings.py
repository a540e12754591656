"""What a fingerprint tells apart, what it takes for equal, and what it refuses."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.transforms import Normalize
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior
from torch import Tensor

from botorch_bandits import Arms, BanditGP, FittedSingleTaskGP, RandomSearch
from botorch_bandits.fingerprints import (
    UnnamedSettingError,
    difference,
    fingerprint,
)

from .cases import double, scaled_matern


class HiddenPower(Kernel):
    """A kernel whose setting no attribute of a plain kind shows."""

    def __init__(self, power: float) -> None:
        super().__init__()
        self._hidden = {"power": power}

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: Any) -> Tensor:
        values = (-(self.covar_dist(x1, x2, diag=diag) ** self._hidden["power"])).exp()
        return values


class TwoDimensional(RBFKernel):
    def forward(self, x1: Tensor, x2: Tensor, **keywords: Any) -> Tensor:
        if x1.shape[-1] != 2:
            raise ValueError("two columns, please")
        return super().forward(x1, x2, **keywords)


@dataclass(frozen=True)
class Rates:
    slow: float = 0.1
    table: Tensor = field(default_factory=lambda: double([1.0, 2.0]))
    seen: int = field(default=0, compare=False)


class OfRates(RBFKernel):
    """A kernel with a setting that is a dataclass."""

    def __init__(self, slow: float) -> None:
        super().__init__()
        self.rates = Rates(slow)


class Policy:
    def __init__(self, rate: float) -> None:
        self.rate = rate

    def act(self, model: Any, X_pending: Any) -> None:
        """Do nothing."""

    def __call__(self, model: Any, X_pending: Any) -> None:
        """Do nothing."""


def build(model: Any, X_pending: Any, width: float = 1.0) -> None:
    """Do nothing."""


def build_otherwise(model: Any, X_pending: Any) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: MaternKernel(nu=1.5), lambda: MaternKernel(nu=2.5)),
        (lambda: RBFKernel(), lambda: MaternKernel()),
        (lambda: RBFKernel(), lambda: RBFKernel(active_dims=(0,))),
        (lambda: RBFKernel(active_dims=(0,)), lambda: RBFKernel(active_dims=(1,))),
        (lambda: RBFKernel(), lambda: RBFKernel(lengthscale_prior=GammaPrior(3.0, 6.0))),
        (
            lambda: RBFKernel(lengthscale_prior=GammaPrior(2.0, 6.0)),
            lambda: RBFKernel(lengthscale_prior=GammaPrior(3.0, 6.0)),
        ),
        (lambda: RBFKernel(), lambda: RBFKernel(lengthscale_constraint=GreaterThan(0.1))),
        (lambda: RBFKernel() + MaternKernel(), lambda: RBFKernel() * MaternKernel()),
        (lambda: PeriodicKernel(), lambda: ScaleKernel(PeriodicKernel())),
        (lambda: HiddenPower(1.0), lambda: HiddenPower(1.5)),
        (lambda: OfRates(0.1), lambda: OfRates(0.2)),
        (lambda: RBFKernel(), lambda: TwoDimensional()),
    ],
    ids=[
        "nu",
        "class",
        "columns",
        "other columns",
        "prior",
        "prior's shape",
        "constraint",
        "sum and product",
        "scale",
        "hidden setting",
        "dataclass",
        "class that takes two columns",
    ],
)
def test_kernels_that_differ_are_told_apart(
    one: Callable[[], Kernel], other: Callable[[], Kernel]
) -> None:
    again = [fingerprint({"kernel": make().double()}) for make in (one, one)]
    assert difference(*again) == []
    lines = difference(again[0], fingerprint({"kernel": other().double()}))
    assert lines
    assert all(line.startswith("kernel") for line in lines)


def test_a_kernel_is_left_as_it_is() -> None:
    kernel = scaled_matern()
    before = {name: value.clone() for name, value in kernel.state_dict().items()}
    state = torch.random.get_rng_state()
    fingerprint({"kernel": kernel})
    assert kernel.training
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in kernel.state_dict().items())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (1.0, 1.0 + 2e-9),
        (True, 1),
        (0, False),
        (None, 0),
        ("1", 1),
        ([1.0], [1.0, 2.0]),
        (math.inf, -math.inf),
        (double([1.0, 2.0]), double([1.0, 2.5])),
        (double([1.0]), double([1.0]).float()),
        (double([[1.0]]), double([1.0])),
        (torch.zeros(100), torch.eye(10).reshape(-1)),
        (Arms([[0.0], [1.0]]), Arms([[1.0], [0.0]])),
        (np.array([1, 2]), np.array([1, 3])),
        (RandomSearch(), None),
        (FittedSingleTaskGP([[0.0], [1.0]]), FittedSingleTaskGP([[0.0], [2.0]])),
        (Rates(), Rates(slow=0.2)),
        (Rates(), Rates(table=double([1.0, 3.0]))),
        (Policy(1.0), Policy(2.0)),
        (Policy(1.0).act, Policy(2.0).act),
        (build, build_otherwise),
        (functools.partial(build, width=1.0), functools.partial(build, width=2.0)),
        (Normalize(d=2), Normalize(d=2, bounds=double([[0.0, 0.0], [1.0, 2.0]]))),
        (
            ScalarizedPosteriorTransform(double([1.0, 0.0])),
            ScalarizedPosteriorTransform(double([0.0, 1.0])),
        ),
        ({"a": 1}, {"b": 1}),
        ({0: 1.0}, {1: 1.0}),
        ({1, 2}, {1, 3}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_different_values_are_told_apart(old: Any, new: Any) -> None:
    was, now = (json.loads(json.dumps(fingerprint({"a": value}))) for value in (old, new))
    assert difference(was, was) == []
    assert difference(now, now) == []
    lines = difference(was, now)
    assert lines
    assert all(line.startswith("a") for line in lines)


def test_equal_values_of_different_kinds_are_equal() -> None:
    for one, other in [
        (1, 1.0),
        (np.float64(0.1), 0.1),
        (np.int64(3), 3),
        ((1, 2), [1, 2]),
        (0.0 * torch.ones(100), -0.0 * torch.ones(100)),
        (functools.partial(build, width=1.0), functools.partial(build, width=1.0)),
        (Rates(seen=1), Rates(seen=2)),
        (double([1.0]), double([1.0]).requires_grad_()),
    ]:
        assert difference(fingerprint({"a": one}), fingerprint({"a": other})) == []


def test_callables_are_named_by_module_and_name() -> None:
    assert fingerprint({"build": build, "policy": Policy, "sin": math.sin, "gp": BanditGP}) == {
        "build": f"{__name__}:build",
        "policy": f"{__name__}:Policy",
        "sin": "math:sin",
        "gp": "botorch_bandits:BanditGP",
    }


def local() -> Callable[[], None]:
    def inside() -> None:
        """Do nothing."""

    return inside


class Cyclic:
    def __init__(self) -> None:
        self.own = [self]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": lambda X, Y: None}, r"^model is .*<lambda>.*top level of a module"),
        ({"model": local()}, r"^model is .*local.<locals>.inside"),
        ({"options": {"f": [1, lambda: 0]}}, r"^options\.f\[1\] is"),
        ({"f": functools.partial(lambda: 0)}, r"^f\.func is"),
        ({"rates": Rates(slow=lambda: 0)}, r"^rates\.slow is"),  # type: ignore[arg-type]
        ({"policy": Cyclic()}, "contains itself"),
        ({"source": iter([1])}, "cannot be examined"),
        ({"array": np.array([{}])}, "array of objects"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_what_another_process_cannot_find_is_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnnamedSettingError, match=message):
        fingerprint(settings)


def test_a_setting_that_came_with_a_later_version_differs_only_if_it_is_used() -> None:
    assert difference({"seed": 0}, {"seed": 0, "waits_at": None}) == []
    assert difference({"seed": 0}, {"seed": 0, "waits_at": 3}) == ["waits_at: was not set, is 3"]
    assert difference({"seed": 0, "waits_at": None}, {"seed": 0}) != []

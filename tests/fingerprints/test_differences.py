"""Equal settings have equal fingerprints, and every difference is named."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from gpytorch.kernels import Kernel
from models.textbook import double

from botorch_bandits import (
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    GPUpperConfidenceBound,
    Hallucinated,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.confidence import WaterFillingGain
from botorch_bandits.fingerprints import difference, fingerprint

from .cases import loop_settings, scaled_matern


def build(model: Any, X_pending: Any) -> None:
    """Do nothing."""


def test_a_fingerprint_survives_a_file() -> None:
    described = fingerprint(loop_settings() | {"bound": math.inf, "large": torch.rand(100, 3)})
    read = json.loads(json.dumps(described, allow_nan=False))
    assert read == described
    assert difference(read, described) == []


def test_equal_settings_have_equal_fingerprints() -> None:
    BanditLoop(**loop_settings())  # they are settings of a loop
    one, other = fingerprint(loop_settings()), fingerprint(loop_settings())
    assert json.dumps(one) == json.dumps(other)
    assert difference(one, other) == []


def model(kernel: Kernel, **settings: Any) -> Any:
    return BanditGP.with_kernel(kernel, **({"noise": 0.01, "refit_every": 10} | settings))


CHANGES: list[tuple[str, Any, str]] = [
    ("seed", 1, "seed: was 0, is 1"),
    ("horizon", 50, "horizon: was None, is 50"),
    (
        "domain",
        Box([[0.0, -1.0], [1.0, 2.0]]),
        "domain.bounds: was tensor([[0.0, -1.0], [1.0, 1.0]]), "
        "is tensor([[0.0, -1.0], [1.0, 2.0]])",
    ),
    (
        "domain",
        Box([[0.0, -1.0], [1.0, 1.0]], num_restarts=3),
        "domain.num_restarts: was 10, is 3",
    ),
    (
        "domain",
        Box([[0.0, -1.0], [1.0, 1.0]], integer_dims=[1]),
        "domain.integer_dims: was [], is [1]",
    ),
    ("model", model(scaled_matern(), noise=0.02), "model.noise: was 0.01, is 0.02"),
    ("model", model(scaled_matern(), refit_every=None), "model.refit_every: was 10, is None"),
    ("model", model(scaled_matern(nu=1.5)), "model.kernel.base_kernel.nu: was 2.5, is 1.5"),
    (
        "model",
        model(scaled_matern(lengthscale=0.25)),
        "model.kernel.base_kernel.lengthscale: was tensor([[0.2, 0.3]]), is tensor([[0.25, 0.3]])",
    ),
    (
        "model",
        model(scaled_matern(scale=2.0)),
        "model.kernel.outputscale: was tensor(1.0), is tensor(2.0)",
    ),
    (
        "acquisition",
        ImprovedUpperConfidenceBound.with_options(rkhs_bound=3.0, noise_bound=0.1),
        "acquisition.options.rkhs_bound: was 2.0, is 3.0",
    ),
    (
        "acquisition",
        ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.1, delta=0.1),
        "acquisition.options.delta: was not set, is 0.1",
    ),
    (
        "feedback",
        Censored(minimum=0.0, outcome_bound=1.0, max_delay=21),
        "feedback.max_delay: was 20, is 21",
    ),
    ("acquisition", build, "acquisition: was AcquisitionRecipe, is '"),
]


@pytest.mark.parametrize(
    ("name", "value", "line"), CHANGES, ids=[line.partition(":")[0] for _, _, line in CHANGES]
)
def test_one_change_is_named_in_one_line(name: str, value: Any, line: str) -> None:
    old, new = fingerprint(loop_settings()), fingerprint(loop_settings(**{name: value}))
    (found,) = difference(json.loads(json.dumps(old)), new)
    assert found.startswith(line) if line.endswith("'") else found == line
    assert len(difference(new, old)) == 1


def test_several_changes_have_a_line_each() -> None:
    old = fingerprint(loop_settings())
    new = fingerprint(
        loop_settings(
            feedback=Hallucinated(),
            seed=7,
            acquisition=GPUpperConfidenceBound.with_options(width=2.0),
        )
    )
    lines = difference(old, new)
    assert (
        "acquisition.acquisition_class: was 'botorch_bandits:ImprovedUpperConfidenceBound', "
        "is 'botorch_bandits:GPUpperConfidenceBound'" in lines
    )
    assert "acquisition.options.rkhs_bound: was 2.0, is not set" in lines
    assert "feedback.class: was 'botorch_bandits:Censored', is 'botorch_bandits:Hallucinated'" in (
        lines
    )
    assert "seed: was 0, is 7" in lines


def test_rounding_of_parameters_is_no_difference() -> None:
    """The same lengthscale may round differently in another version of torch."""
    kernel = scaled_matern()
    old = fingerprint({"kernel": kernel})
    with torch.no_grad():
        kernel.base_kernel.raw_lengthscale.mul_(1.0 + 4e-16)
    assert fingerprint({"kernel": kernel}) != old
    assert difference(old, fingerprint({"kernel": kernel})) == []
    with torch.no_grad():
        kernel.base_kernel.raw_lengthscale.mul_(1.0 + 1e-8)
    (line,) = difference(old, fingerprint({"kernel": kernel}))
    assert line.startswith("kernel.base_kernel.lengthscale: was")


def test_rounding_of_a_gain_bound_is_no_difference() -> None:
    """A bound is compared by its values, because another processor computes other eigenvalues."""
    points = torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1)
    with torch.no_grad():
        matrix = scaled_matern()(points).to_dense()
    known = fingerprint({"gain": WaterFillingGain(matrix, 0.05)})
    rounded = fingerprint({"gain": WaterFillingGain(matrix * (1.0 + 4e-16), 0.05)})
    assert difference(known, rounded) == []
    (line,) = difference(known, fingerprint({"gain": WaterFillingGain(matrix * 1.0001, 0.05)}))
    assert line.startswith("gain.values: was [")


def test_entries_of_a_tensor_are_compared_up_to_rounding() -> None:
    one, same, other = (
        fingerprint({"x": double([1e-9, 1e9]) * v}) for v in (1.0, 1.0 + 1e-12, 1.0 + 1e-7)
    )
    assert difference(one, same) == []
    (line,) = difference(one, other)
    assert line == "x: was tensor([1e-09, 1000000000.0]), is tensor([1.0000001e-09, 1000000100.0])"

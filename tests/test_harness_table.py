"""``docs/make_harness_table.py`` reports what tests in the form of BoTorch's say.

BoTorch's own are not here; a small stand-in of their form is written by the tests.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "results" / "botorch-harness.md"

MIXINS = """
from dataclasses import dataclass, field

import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import SingleTaskGP


@dataclass
class AcquisitionSpec:
    cls: type
    required_kwargs: dict = field(default_factory=dict)
    q_dim: int = 1


class AnalyticAcquisitionTestMixin:
    def _make_model(self, spec, dtype, m=1):
        return SingleTaskGP(torch.rand(5, 2, dtype=dtype), torch.rand(5, m, dtype=dtype))

    def values(self, dtype, **options):
        for spec in self.acquisition_specs:
            model = self._make_model(spec, dtype)
            X = torch.rand(4, spec.q_dim, 2, dtype=dtype)
            yield spec.cls(model=model, **spec.required_kwargs, **options)(X)

    def test_dtype(self):
        for value in self.values(torch.float):
            self.assertEqual(value.dtype, torch.float)

    def test_output_shapes(self):
        for value in self.values(torch.double):
            self.assertEqual(value.shape, torch.Size([4]))

    def test_fixed_noise(self):
        for value in self.values(torch.double):
            self.assertEqual(value.shape, torch.Size([5]))

    def test_maximize(self):
        for value in self.values(torch.double, maximize=False):
            self.assertTrue(torch.isfinite(value).all())
"""

SAMPLED = """

@dataclass
class MCAcquisitionSpec(AcquisitionSpec):
    q: int = 2


class MCAcquisitionTestMixin(AnalyticAcquisitionTestMixin):
    def test_q_greater_than_one(self):
        for spec in self.acquisition_specs:
            model = self._make_model(spec, torch.double)
            X = torch.rand(4, 3, 2, dtype=torch.double)
            self.assertEqual(spec.cls(model=model, **spec.required_kwargs)(X).shape, X.shape[:1])

    def test_X_pending(self):
        for spec in self.acquisition_specs:
            acqf = spec.cls(model=self._make_model(spec, torch.double), **spec.required_kwargs)
            acqf.set_X_pending(torch.rand(2, 2, dtype=torch.double))
            self.assertEqual(acqf.X_pending.shape, torch.Size([2, 2]))

    def test_sampler_base_samples(self):
        self.assertTrue(all("sampler" in str(spec) for spec in self.acquisition_specs))


@dataclass
class InputConstructorSpec:
    cls: type
    constructor_kwargs: dict = field(default_factory=dict)
    supports_posterior_transform: bool = False
    expected_defaults: dict = field(default_factory=dict)


class InputConstructorTestMixin:
    def _make_constructor_inputs(self, spec):
        X = torch.rand(5, 2, dtype=torch.double)
        return {"model": SingleTaskGP(X, X[:, :1].sin()), **spec.constructor_kwargs}

    def built(self, spec, **more):
        given = {**self._make_constructor_inputs(spec), **more}
        return get_acqf_input_constructor(spec.cls)(**given)

    def test_input_constructor_basic(self):
        for spec in self.input_constructor_specs:
            X = torch.rand(3, 1, 2, dtype=torch.double)
            self.assertTrue(spec.cls(**self.built(spec))(X).isfinite().all())

    def test_propagation(self):
        for spec in self.input_constructor_specs:
            weight = ScalarizedPosteriorTransform(torch.ones(1, dtype=torch.double))
            given = self.built(spec, posterior_transform=weight)
            self.assertTrue(spec.supports_posterior_transform)
            self.assertIs(given["posterior_transform"], weight)

    def test_defaults(self):
        for spec in self.input_constructor_specs:
            acqf = spec.cls(**self.built(spec))
            for name, value in spec.expected_defaults.items():
                self.assertEqual(getattr(acqf, name), value)
"""

MODELS = """
import itertools

import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Log
from botorch.utils.testing import BotorchTestCase


class TestSingleTaskGP(BotorchTestCase):
    def test_settings(self):
        settings = itertools.product((torch.float, torch.double), (1, 2), (None, Log()))
        for dtype, m, transform in settings:
            X = torch.rand(5, 1, dtype=dtype)
            Y = torch.rand(5, m, dtype=dtype) + 1.0
            model = SingleTaskGP(X, Y, outcome_transform=transform)
            assert len(list(itertools.product((1, 2), (3, 4)))) == 4
            self.assertEqual(model.num_outputs, m)

    def test_class(self):
        self.assertIs(type(SingleTaskGP(torch.rand(5, 1), torch.rand(5, 1))), SingleTaskGP.fixed)


class TestSingleTaskGPFixedNoise(BotorchTestCase):
    def test_noise(self):
        X = torch.rand(5, 1)
        SingleTaskGP(X, X, train_Yvar=0.1 * X, outcome_transform=None)
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "make_harness_table", DOCS / "make_harness_table.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    harness = tmp_path / "test" / "acquisition" / "harness"
    harness.mkdir(parents=True)
    (harness / "__init__.py").write_text("from .mixins import *\n", encoding="utf-8")
    (harness / "mixins.py").write_text(MIXINS + SAMPLED, encoding="utf-8")
    (tmp_path / "test" / "models").mkdir()
    path = tmp_path / "test" / "models" / "test_gp_regression.py"
    path.write_text(MODELS, encoding="utf-8")
    return tmp_path


def cells_of(table: str) -> dict[str, list[str]]:
    """Return the cells of each row by its first one; a name has a row in several tables."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    found: dict[str, list[str]] = {}
    for name, *cells in filter(None, rows):
        found.setdefault(name.strip("`"), []).extend(cells)
    return {name: row for name, row in found.items() if name not in ("Class", "Check", "---")}


def test_every_acquisition_function_is_run(script: Any, checkout: Path) -> None:
    assert set(script.OPTIONS) == set(script.acquisition_classes()), "see make_harness_table.py"
    rows = cells_of(script.acquisition_table(checkout))
    assert set(script.OPTIONS) < set(rows)
    single_point = rows.pop("BoTorch's UpperConfidenceBound")
    assert single_point == ["passes", "passes", "fails", "passes", "fails", "passes"]
    assert rows.pop("BoTorch's qUpperConfidenceBound")[3:] == [
        "does not apply (no `maximize`)",
        "passes",
        "passes",
    ]
    for name, (dtype, shapes, wrong, maximize, joint, single) in rows.items():
        assert dtype == shapes == joint == "passes", name
        assert wrong == "fails: `AssertionError`, torch.Size([4]) != torch.Size([5])", name
        assert maximize in ("passes", "does not apply (no `maximize`)"), name
        assert single == "refused, `TypeError`", name


def test_checks_of_sampled_functions_and_of_the_registry(script: Any, checkout: Path) -> None:
    rows = cells_of(script.sampled_table(checkout))
    assert set(script.OPTIONS) < set(rows)
    single_point = rows.pop("BoTorch's UpperConfidenceBound")
    assert single_point == ["fails", "fails", "does not apply (no `sampler`)", *["passes"] * 3]
    assert rows.pop("BoTorch's qUpperConfidenceBound")[:2] == ["passes", "passes"]
    for name, (several, pending, sampler, basic, transform, defaults) in rows.items():
        assert several == pending == basic == defaults == "passes", name
        assert sampler == "does not apply (no `sampler`)", name
        assert transform == "passes" or transform.startswith("does not apply ("), name


def test_each_setting_of_a_test_of_models_is_a_case(script: Any, checkout: Path) -> None:
    rows = cells_of(script.model_table(checkout))
    assert rows["test_settings"] == ["passes", "passes (without `outcome_transform`)", "passes"]
    assert rows["test_class"][0] == "fails"
    assert set(rows["test_class"][1:]) <= {"also fails with BoTorch's class"} | {
        cell for cell in rows["test_class"] if cell.startswith("fails: `AttributeError`")
    }
    noise = rows["test_noise`, `train_Yvar"]
    assert noise == ["passes", "does not apply (without `train_Yvar`)", "passes"]


def test_a_folder_without_the_tests_is_refused(script: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"--botorch has no .*harness"):
        script.acquisition_table(tmp_path)


def test_nothing_fails_in_the_table_of_the_documentation(script: Any) -> None:
    rows = cells_of(PAGE.read_text(encoding="utf-8"))
    for name, cells in rows.items():
        if name.startswith("BoTorch's"):
            continue
        own = cells[1:] if name.startswith("test_") else cells
        assert not any(cell.startswith("fails:") for cell in own), name
    names = {name for name in rows if name.endswith(("Bound", "Sampling", "Improvement", "Only"))}
    own = {name for name in names if not name.startswith("BoTorch's")}
    assert own <= set(script.acquisition_classes())

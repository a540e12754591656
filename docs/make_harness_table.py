"""Runs BoTorch's own tests on the package's classes and writes the results.

``python docs/make_harness_table.py --botorch PATH`` writes ``docs/results/botorch-harness.md``.
``PATH`` is a checkout of https://github.com/meta-pytorch/botorch, whose tests are not part of the
installed package: ``test/acquisition/harness`` has checks that any acquisition function of BoTorch
must pass, and ``test/models/test_gp_regression.py`` those of ``SingleTaskGP``. Nothing of them is
copied here; they are imported from ``PATH`` and run as they are, but for two things: they run in
double precision also where they ask for single precision, which is a column of its own, and each
setting of a test's loop is a case of its own. Take a checkout of the version of BoTorch that is
installed; where a check fails for BoTorch's own class, too, the table says so.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import inspect
import itertools
import subprocess
import sys
import unittest
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import botorch
import torch
from botorch.acquisition import UpperConfidenceBound, qUpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.utils.testing import BotorchTestCase
from botorch.utils.types import DEFAULT
from gpytorch.kernels import RBFKernel
from gpytorch.means import ConstantMean
from torch import Tensor

import botorch_bandits.acquisition
from botorch_bandits import BanditGP, FittedSingleTaskGP, TopTwoThompsonSampling
from botorch_bandits.acquisition import BanditAcquisition
from botorch_bandits.confidence import ConstantWidth
from botorch_bandits.models import LearnedGP

TABLE = Path(__file__).parent / "results" / "botorch-harness.md"
HARNESS = Path("test", "acquisition", "harness")
MODEL_TESTS = Path("test", "models", "test_gp_regression.py")

OPTIONS: dict[str, dict[str, Any]] = {
    "AMMUpperConfidenceBound": {},
    "CandidatesThompsonSampling": {"seed": 0},
    "CandidatesUpperConfidenceBound": {},
    "CensoredThompsonSampling": {"minimum_proxy": 2.0, "outcome_bound": 5.0, "seed": 0},
    "CensoredUpperConfidenceBound": {"minimum_proxy": 2.0, "outcome_bound": 5.0},
    "ChangePointUpperConfidenceBound": {"horizon": 100, "smoothness": 2.5, "dim": 2},
    "DMMUpperConfidenceBound": {},
    "GPThompsonSampling": {"seed": 0},
    "GPUpperConfidenceBound": {"beta": 0.2},
    "ImprovedUpperConfidenceBound": {},
    "LagrangianThompsonSampling": {"multipliers": (1.0,), "seed": 0},
    "LagrangianUpperConfidenceBound": {"multipliers": (1.0,)},
    "LogExpectedImprovement": {"best_f": 0.0},
    "LogProbabilityOfImprovement": {"best_f": 0.0},
    "MeanOnly": {},
    "RandomizedUpperConfidenceBound": {"num_arms": 50, "seed": 0},
    "VarianceOnly": {},
    "WidthUpperConfidenceBound": {"rule": ConstantWidth(2.0)},
}
"""What each acquisition function is built with, beside the model: no more than it needs."""

NUM_OUTPUTS = {name: 2 for name in OPTIONS if "Lagrangian" in name}
"""Outputs of the model, where there is not one."""

ACQUISITION_CHECKS = ("test_dtype", "test_output_shapes", "test_fixed_noise", "test_maximize")

SAMPLED_CHECKS = ("test_q_greater_than_one", "test_X_pending", "test_sampler_base_samples")
"""Checks of BoTorch's Monte Carlo acquisition functions: several points, and pending ones."""

CONSTRUCTOR_CHECKS = ("test_input_constructor_basic", "test_propagation", "test_defaults")
"""Checks of what BoTorch's registry, and so Ax, builds."""

JOINT_CHECK = ("test_output_shapes", 3)
"""The check that is repeated with several points together, and how many."""

NOT_APPLICABLE = {
    ("BanditGP", "test_default_transforms"): "it never transforms outcomes",
    ("BanditGP", "test_custom_init"): "its constructor takes a kernel and numbers, but no modules",
}
"""Checks of settings that a class does not have."""


@dataclass
class Outcome:
    """What came out of one check.

    Attributes:
        passed: How many cases of it passed.
        failed: The messages of the others.
        inapplicable: Why cases were left out.
    """

    passed: int
    failed: list[str]
    inapplicable: list[str]

    def __str__(self) -> str:
        """Show it as a cell of a table."""
        reasons = "; ".join(dict.fromkeys(self.inapplicable))
        if self.failed:
            return f"fails: {'; '.join(dict.fromkeys(self.failed))}"
        if self.passed:
            return f"passes ({reasons})" if reasons else "passes"
        return f"does not apply ({reasons})"


class InDouble(ModuleType):
    """PyTorch as the tests see it when single precision is to be double precision, too."""

    def __getattr__(self, name: str) -> Any:
        """Return what PyTorch has, but for single precision."""
        return torch.double if name in ("float", "float32") else getattr(torch, name)


@contextmanager
def precision(module: ModuleType, single: bool) -> Iterator[None]:
    """Let ``torch.float`` mean single precision in a module of tests, or double precision."""
    usual = torch.get_default_dtype()
    vars(module)["torch"] = torch if single else InDouble("torch")
    torch.set_default_dtype(torch.float if single else torch.double)
    try:
        yield
    finally:
        vars(module)["torch"] = torch
        torch.set_default_dtype(usual)


def load(name: str, path: Path) -> ModuleType:
    """Import a file, or a folder with its ``__init__.py``, under a name of its own.

    Raises:
        SystemExit: If it is not there.
    """
    file = path / "__init__.py" if path.suffix != ".py" else path
    if not file.is_file():
        raise SystemExit(
            f"--botorch has no {file}. Pass a checkout of "
            "https://github.com/meta-pytorch/botorch; its installed package has no tests."
        )
    folders = [str(path)] if file != path else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def outcome_of(case: unittest.TestCase) -> Outcome:
    """Run one check in a random stream of its own."""
    torch.manual_seed(0)
    result = unittest.TestResult()
    case.run(result)
    failed = [_message(text) for _, text in (*result.failures, *result.errors)]
    skipped = [reason for _, reason in result.skipped]
    return Outcome(0 if failed or skipped else 1, failed, skipped)


def _message(traceback: str) -> str:
    lines = [line for line in traceback.strip().splitlines() if line and not line[0].isspace()]
    last = next((line for line in reversed(lines) if "Error" in line.split(":")[0]), lines[-1])
    kind, _, text = last.partition(": ")
    return f"`{kind.rsplit('.', 1)[-1]}`, {text[:160]}".replace("|", "/").replace("\n", " ")


# --- acquisition functions ------------------------------------------------------------------


def acquisition_classes() -> dict[str, type[BanditAcquisition]]:
    """Return the public acquisition functions of a model that can be evaluated anywhere."""
    return {
        name: found
        for name in sorted(botorch_bandits.acquisition.__all__)
        if inspect.isclass(found := getattr(botorch_bandits.acquisition, name))
        and issubclass(found, BanditAcquisition)
        and found not in (BanditAcquisition, TopTwoThompsonSampling)  # the last is on finite sets
    }


Builder = Callable[[Tensor, Tensor], Model]

MODELS: dict[str, Builder | None] = {
    "SingleTaskGP": None,  # as the harness itself makes it
    "BanditGP": lambda X, Y: BanditGP(X, Y, kernel=RBFKernel(), noise=0.05),
    "FittedSingleTaskGP": lambda X, Y: FittedSingleTaskGP([[0.0, 0.0], [1.0, 1.0]])(X, Y),
}


def takes_priors(name: str) -> bool:
    """Return whether an acquisition function takes a model of a list of priors."""
    return name.startswith(("Candidates", "Region"))


def models_of(cls: type) -> list[tuple[str, Builder | None]]:
    """Return the models that an acquisition function is checked with, by name."""
    if takes_priors(cls.__name__):
        return [("a list of priors", None)]
    return list(MODELS.items())


def _build_model(name: str, builder: Builder | None, made: Model) -> Model:
    """Return the model of one acquisition function from the data of the harness's model."""
    X = made.train_inputs[0] if made.num_outputs == 1 else made.train_inputs[0][0]
    Y = made.train_targets.reshape(made.num_outputs, -1).mT
    if takes_priors(name):
        priors = [BanditGP.with_kernel(RBFKernel(), lengthscale=each) for each in (0.2, 0.5)]
        return BanditGP.with_candidates(priors)(X, Y)
    return made if builder is None else builder(X, Y)


def run_acquisition(
    harness: ModuleType,
    check: str,
    cls: type,
    options: dict[str, Any],
    builder: Builder | None,
    q: int = 1,
) -> Outcome:
    """Run one check of the harness on one acquisition function.

    Args:
        harness: The harness, imported.
        check: The name of the check.
        cls: The acquisition function.
        options: Those of its constructor.
        builder: Of the model; None for the harness's own.
        q: How many points are evaluated jointly.
    """
    parameters = inspect.signature(cls).parameters
    if check == "test_maximize" and "maximize" not in parameters:
        return Outcome(0, [], ["no `maximize`"])
    if check == "test_sampler_base_samples" and "sampler" not in parameters:
        return Outcome(0, [], ["no `sampler`"])
    spec_class, mixin = harness.AcquisitionSpec, harness.AnalyticAcquisitionTestMixin
    if check in SAMPLED_CHECKS:
        spec_class, mixin = harness.MCAcquisitionSpec, harness.MCAcquisitionTestMixin
    names = {each.name for each in fields(spec_class)}  # two of them differ between versions
    class_field = "cls" if "cls" in names else "acqf_class"
    q_field = "q_dim" if "q_dim" in names else "q"

    class Case(mixin, BotorchTestCase):  # type: ignore[misc, valid-type]
        """The harness with one acquisition function."""

        @property
        def acquisition_specs(self) -> list[Any]:
            """Return the one."""
            return [spec_class(**{class_field: cls, q_field: q}, required_kwargs=dict(options))]

        def _make_model(self, spec: Any, dtype: torch.dtype, m: int = 1) -> Model:
            m = NUM_OUTPUTS.get(cls.__name__, m)
            made = super()._make_model(spec, dtype, m)
            return _build_model(cls.__name__, builder, made)

    return outcome_of(Case(check))


def run_constructor(
    harness: ModuleType, check: str, cls: type, options: dict[str, Any], builder: Builder | None
) -> Outcome:
    """Run one check of the harness on what BoTorch's registry builds.

    Args:
        harness: The harness, imported.
        check: The name of the check.
        cls: The acquisition function.
        options: What the registry is given, beside model and training data.
        builder: Of the model; None for the harness's own.
    """
    name = cls.__name__
    takes_transform = "posterior_transform" in inspect.signature(cls).parameters
    if check == "test_propagation" and name in NUM_OUTPUTS:
        return Outcome(0, [], ["the objective is one of several outputs"])
    if check == "test_propagation" and not takes_transform:
        return Outcome(0, [], ["no `posterior_transform`"])
    defaults = {} if cls in BOTORCHS else {"maximize": True, "X_pending": None}

    class Case(harness.InputConstructorTestMixin, BotorchTestCase):  # type: ignore[misc, name-defined]
        """The harness with one acquisition function."""

        @property
        def input_constructor_specs(self) -> list[Any]:
            """Return the one."""
            return [
                harness.InputConstructorSpec(
                    cls,
                    constructor_kwargs=dict(options),
                    supports_posterior_transform=takes_transform,
                    expected_defaults=defaults,
                )
            ]

        def _make_constructor_inputs(self, spec: Any) -> dict[str, Any]:
            inputs = super()._make_constructor_inputs(spec)
            made, m = inputs["model"], NUM_OUTPUTS.get(name, 1)
            if m > 1:
                made = SingleTaskGP(made.train_inputs[0], torch.rand(5, m, dtype=torch.double))
            return {**inputs, "model": _build_model(name, builder, made)}

    return outcome_of(Case(check))


# --- models ---------------------------------------------------------------------------------


class AsSingleTaskGP(BanditGP):
    """``BanditGP`` with the constructor of ``SingleTaskGP``, as far as it has its arguments.

    Raises:
        unittest.SkipTest: If it lacks one that is used.
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        outcome_transform: Any = DEFAULT,
        input_transform: Any = None,
        **own: Any,
    ) -> None:
        """See the class."""
        if own:  # made by a method of the class, not by a test
            super().__init__(train_X, train_Y, input_transform=input_transform, **own)
            return
        if train_Yvar is not None:
            raise unittest.SkipTest("without `train_Yvar`")
        if outcome_transform is not DEFAULT and outcome_transform is not None:
            raise unittest.SkipTest("without `outcome_transform`")
        shape = self.get_batch_dimensions(train_X, train_Y)[1]
        super().__init__(
            train_X,
            train_Y,
            kernel=get_covar_module_with_dim_scaled_prior(train_X.shape[-1], batch_shape=shape),
            noise=torch.full(shape, 0.05, dtype=train_X.dtype),
            learn_hyperparameters=True,
            input_transform=input_transform,
        )


MODEL_CLASSES: dict[str, type[Model]] = {
    "SingleTaskGP": SingleTaskGP,
    "BanditGP": AsSingleTaskGP,
    "FittedSingleTaskGP": LearnedGP,  # whose models it builds
}
"""What takes the place of ``SingleTaskGP`` in its tests, by the name in the table."""


class OneCase(ModuleType):
    """``itertools`` for a test that goes through a product of settings: one of them at a time.

    Attributes:
        number: Which one, from 0.
        total: How many there are; 1 in a test without a product.
    """

    number = 0
    total = 1
    _is_outermost = True

    def __getattr__(self, name: str) -> Any:
        """Return what ``itertools`` has."""
        return getattr(itertools, name)

    def product(self, *settings: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return one combination at the first call, all of them at later ones."""
        combinations = list(itertools.product(*settings))
        if not self._is_outermost:
            return combinations
        self._is_outermost = False
        self.total = len(combinations)
        return combinations[self.number : self.number + 1]


def run_model(tests: ModuleType, group: str, check: str, name: str) -> Outcome:
    """Run one check of ``SingleTaskGP``, with each of its settings, on another class.

    Args:
        tests: The module of the tests.
        group: The class of tests in it.
        check: Its method.
        name: Of :data:`MODEL_CLASSES`.
    """
    if (name, check) in NOT_APPLICABLE:
        return Outcome(0, [], [NOT_APPLICABLE[name, check]])

    class Case(getattr(tests, group)):  # type: ignore[misc]
        """The tests of one group."""

        def assertIsInstance(self, obj: Any, cls: Any, msg: Any = None) -> None:
            """Let ``BanditGP`` have the mean that it is given, which is no parameter."""
            if not (name == "BanditGP" and cls is ConstantMean):
                super().assertIsInstance(obj, cls, msg)  # noqa: PT009

    outcome = Outcome(0, [], [])
    cases = OneCase("itertools")
    usual = vars(tests)["SingleTaskGP"]
    vars(tests).update(SingleTaskGP=MODEL_CLASSES[name], itertools=cases)
    try:
        while cases.number < cases.total:
            cases._is_outermost = True
            each = outcome_of(Case(check))
            outcome.passed += each.passed
            outcome.failed += each.failed
            outcome.inapplicable += each.inapplicable
            cases.number += 1
    finally:
        vars(tests).update(SingleTaskGP=usual, itertools=itertools)
    return outcome


# --- tables ---------------------------------------------------------------------------------


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def merged(outcomes: dict[str, Outcome]) -> str:
    """Return one cell for the outcomes with several models."""
    cells = {name: str(outcome) for name, outcome in outcomes.items()}
    if len(set(cells.values())) == 1:
        return next(iter(cells.values()))
    return "; ".join(f"{name}: {cell}" for name, cell in cells.items())


BOTORCHS: dict[type, str] = {
    UpperConfidenceBound: "BoTorch's UpperConfidenceBound",
    qUpperConfidenceBound: "BoTorch's qUpperConfidenceBound",
}
"""BoTorch's own classes, for comparison, and what the tables call them."""


def _all_classes() -> Iterator[tuple[str, type, dict[str, Any]]]:
    """Yield names in the tables, classes and options: BoTorch's, then the package's."""
    for cls, name in BOTORCHS.items():
        yield name, cls, {"beta": 0.2}
    for name, cls in acquisition_classes().items():
        yield f"`{name}`", cls, OPTIONS[name]


def acquisition_table(root: Path) -> str:
    """Return the table of acquisition functions: what came out with every model."""
    harness = load("botorch_harness", root / HARNESS)
    mixins = sys.modules["botorch_harness.mixins"]
    rows = []
    for name, cls, options in _all_classes():
        cells = []
        for check, q in (*((each, 1) for each in ACQUISITION_CHECKS), JOINT_CHECK):
            with precision(mixins, single=False):
                outcomes = {
                    model: run_acquisition(harness, check, cls, options, builder, q)
                    for model, builder in models_of(cls)
                }
            cell = merged(outcomes)
            cells.append("fails" if cls in BOTORCHS and "fails" in cell else cell)
        with precision(mixins, single=True):
            single = run_acquisition(harness, "test_dtype", cls, options, None)
        cells.append(_in_single(single))
        rows.append([name, *cells])
    header = [*(f"`{each}`" for each in ACQUISITION_CHECKS), "`{}`, `q = {}`".format(*JOINT_CHECK)]
    return _table(["Class", *header, "float32"], rows)


def sampled_table(root: Path) -> str:
    """Return the table of the checks of sampled acquisition functions and of the registry."""
    harness = load("botorch_harness", root / HARNESS)
    mixins = sys.modules["botorch_harness.mixins"]
    rows = []
    for name, cls, options in _all_classes():
        cells = []
        for check in (*SAMPLED_CHECKS, *CONSTRUCTOR_CHECKS):
            run = run_constructor if check in CONSTRUCTOR_CHECKS else run_acquisition
            with precision(mixins, single=False):
                outcomes = {
                    model: run(harness, check, cls, options, builder)
                    for model, builder in models_of(cls)
                }
            cell = merged(outcomes)
            cells.append("fails" if cls in BOTORCHS and "fails" in cell else cell)
        rows.append([name, *cells])
    checks = [f"`{each}`" for each in (*SAMPLED_CHECKS, *CONSTRUCTOR_CHECKS)]
    return _table(["Class", *checks], rows)


def _in_single(outcome: Outcome) -> str:
    kinds = sorted({text.split(",")[0] for text in outcome.failed})
    if kinds:
        return f"refused, {' '.join(kinds)}"
    return "passes" if outcome.passed else "does not apply"


def model_table(root: Path) -> str:
    """Return the table of the tests of ``SingleTaskGP``, one column per class."""
    tests = load("botorch_model_tests", root / MODEL_TESTS)
    groups = {"TestSingleTaskGP": "", "TestSingleTaskGPFixedNoise": ", `train_Yvar`"}
    rows = []
    for group, suffix in groups.items():
        for check in unittest.TestLoader().getTestCaseNames(getattr(tests, group)):
            with precision(tests, single=False):
                outcomes = [run_model(tests, group, check, name) for name in MODEL_CLASSES]
            known = outcomes[0].failed
            cells = [
                "also fails with BoTorch's class" if known and each.failed == known else str(each)
                for each in outcomes
            ]
            rows.append([f"`{check}`{suffix}", "fails" if known else cells[0], *cells[1:]])
    header = ["BoTorch's `SingleTaskGP`", "`BanditGP`", "models of `FittedSingleTaskGP`"]
    return _table(["Check", *header], rows)


def render(root: Path, revision: str) -> str:
    """Return the page: which version was checked, and the tables."""
    versions = (
        f"BoTorch {botorch.__version__}, GPyTorch {importlib.metadata.version('gpytorch')}, "
        f"PyTorch {torch.__version__.split('+')[0]}; tests of BoTorch's repository at {revision}."
    )
    tables = [acquisition_table(root), sampled_table(root), model_table(root)]
    return "\n\n".join([versions, *tables]) + "\n"


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--botorch", type=Path, required=True, help="checkout of BoTorch")
    parser.add_argument("--revision", help="what the checkout is called; asked from git if omitted")
    given = parser.parse_args()
    revision = given.revision or subprocess.check_output(
        ["git", "-C", given.botorch, "describe", "--tags", "--always"], text=True
    )
    torch.set_num_threads(1)
    TABLE.write_text(render(given.botorch, revision.strip()), encoding="utf-8")


if __name__ == "__main__":
    main()

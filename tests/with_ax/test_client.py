"""Ax's Client runs experiments through the acquisition functions of this package.

Needs the extra ``ax``, in an environment of its own: CONTRIBUTING.md says how.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from models.textbook import double

pytest.importorskip(
    "ax.api.client", reason="needs Ax, the extra ax: pip install -c constraints.txt -e '.[ax]'"
)

from ax.adapter.registry import Generators, MBM_X_trans
from ax.api.client import Client
from ax.api.configs import RangeParameterConfig
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generators.torch.botorch_modular.acquisition import Acquisition
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Standardize

import botorch_bandits
from botorch_bandits import (
    BanditAcquisition,
    CensoredUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    register_with_ax,
)
from botorch_bandits.confidence import ConstantWidth

register_with_ax()

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    # a handful of rows of a parabola, and a penalty with a kink
    pytest.mark.filterwarnings("ignore:Optimization failed:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::botorch_bandits.acquisition.RingingWarning"),
    pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.BotorchWarning"),
    pytest.mark.filterwarnings("ignore::gpytorch.utils.warnings.NumericalWarning"),
]

BOUNDS = {"rkhs_bound": 40.0, "noise_bound": 0.5}
CENSORED = {"minimum": 150.0, "outcome_bound": 100.0, "ringing_tolerance": None}
OPTIONS: dict[str, dict[str, Any]] = {
    "AMMUpperConfidenceBound": BOUNDS,
    "CensoredThompsonSampling": {**BOUNDS, **CENSORED, "any_lambda": True},
    "CensoredUpperConfidenceBound": {**BOUNDS, **CENSORED},
    "ChangePointUpperConfidenceBound": {"horizon": 50, "smoothness": 2.5},
    "DMMUpperConfidenceBound": {"rkhs_bound": 500.0, "noise_bound": 5.0},
    "LogExpectedImprovement": {},
    "GPThompsonSampling": BOUNDS,
    "GPUpperConfidenceBound": {"smoothness_a": 1.0, "smoothness_b": 10.0},
    "ImprovedUpperConfidenceBound": BOUNDS,
    "LagrangianThompsonSampling": {"multipliers": [20.0], "width": 1.0},
    "LagrangianUpperConfidenceBound": {**BOUNDS, "multipliers": [20.0]},
    "MeanOnly": {},
    "LogProbabilityOfImprovement": {},
    "RandomizedUpperConfidenceBound": {"num_arms": 50},
    "VarianceOnly": {},
    "WidthUpperConfidenceBound": {"rule": ConstantWidth(2.0)},
}
LOWER, UPPER = -5.0, 5.0


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Ax logs every trial."""
    logging.disable(logging.INFO)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[BanditAcquisition]:
    """The acquisition functions that Ax builds, as it goes along."""
    made: list[BanditAcquisition] = []
    constructor = Acquisition.__init__

    def record(self: Acquisition, *args: Any, **kwargs: Any) -> None:
        constructor(self, *args, **kwargs)
        made.append(self.acqf)

    monkeypatch.setattr(Acquisition, "__init__", record)
    return made


def outcomes(x: float) -> dict[str, float]:
    """The loss is least at 1; the level, a metric that Ax lists before it, must be at least 3."""
    return {"loss": 100.0 + 2.0 * (x - 1.0) ** 2, "level": x + 0.1 * math.sin(2.0 * x)}


def bandit_node(cls: type, options: dict[str, Any], standardized: bool = False) -> GenerationNode:
    """A node of raw outcomes, or of outcomes standardized by Ax, as is its default."""
    transforms = {} if standardized else {"transforms": MBM_X_trans}
    model = ModelConfig(
        botorch_model_class=SingleTaskGP,
        outcome_transform_classes=None if standardized else [Standardize],
    )
    return GenerationNode(
        name="bandit",
        generator_specs=[
            GeneratorSpec(
                generator_enum=Generators.BOTORCH_MODULAR,
                generator_kwargs={
                    "surrogate_spec": SurrogateSpec(model_configs=[model]),
                    "botorch_acqf_class": cls,
                    "botorch_acqf_options": options,
                    **transforms,
                },
                # enough in one dimension
                generator_gen_kwargs={
                    "model_gen_options": {
                        "optimizer_kwargs": {"num_restarts": 2, "raw_samples": 64}
                    }
                },
            )
        ],
    )


def make_client(*nodes: GenerationNode, constraints: list[str] | None = None) -> Client:
    client = Client(random_seed=0)
    client.configure_experiment(
        parameters=[RangeParameterConfig(name="x", parameter_type="float", bounds=(LOWER, UPPER))]
    )
    client.configure_optimization(objective="-loss", outcome_constraints=constraints)
    client.set_generation_strategy(GenerationStrategy(name="bandits", nodes=list(nodes)))
    return client


def observe(client: Client, points: list[float], metrics: tuple[str, ...] = ("loss",)) -> None:
    for x in points:
        index = client.attach_trial({"x": x})
        client.complete_trial(index, {name: outcomes(x)[name] for name in metrics})


def ask(client: Client) -> tuple[int, float]:
    ((index, parameters),) = client.get_next_trials(max_trials=1).items()
    x = parameters["x"]
    assert isinstance(x, float)
    assert LOWER <= x <= UPPER
    return index, x


def grid() -> torch.Tensor:
    return torch.linspace(LOWER, UPPER, 401, dtype=torch.float64).reshape(-1, 1, 1)


def test_there_are_options_for_every_acquisition() -> None:
    classes = {
        name
        for name in botorch_bandits.__all__
        if isinstance(value := getattr(botorch_bandits, name), type)
        and issubclass(value, BanditAcquisition)
    }
    of_lists = {"CandidatesThompsonSampling", "CandidatesUpperConfidenceBound"}  # of priors
    on_finite_sets = {"TopTwoThompsonSampling"}  # and Ax searches a box
    others = {"BanditAcquisition"} | of_lists | on_finite_sets
    assert set(OPTIONS) == classes - others  # Ax fits a model of its own


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_ax_builds_and_maximizes_it(name: str, built: list[BanditAcquisition]) -> None:
    # minimizing, with a pending trial, and under a constraint where there are multipliers
    cls = getattr(botorch_bandits, name)
    constrained = "multipliers" in OPTIONS[name]
    metrics = ("loss", "level") if constrained else ("loss",)
    constraints = ["level >= 3.0"] if constrained else None
    client = make_client(bandit_node(cls, OPTIONS[name]), constraints=constraints)
    observe(client, [-4.0, -1.0, 2.0, 4.5], metrics)
    client.attach_trial({"x": 0.5})  # running: its outcome is pending
    _, x = ask(client)
    acqf = built[-1]
    assert type(acqf) is cls
    assert acqf.X_pending.tolist() == [[0.5]]
    weights = acqf.posterior_transform.weights
    assert weights.tolist() == ([[0.0, -1.0], [-1.0, 0.0]] if constrained else [-1.0])
    if constrained:  # minimize the second metric; 3 - level <= 0
        assert acqf.posterior_transform.offsets.tolist() == [0.0, 3.0]
    with torch.no_grad():
        values = acqf(grid())
        here = acqf(double([[[x]]]))
    assert here >= values.max() - 0.01 * (values.max() - values.min())


def test_the_known_minimum_of_a_loss_is_its_largest_value(
    built: list[BanditAcquisition],
) -> None:
    # pending queries enter at the worst outcome, so they are avoided where a loss is minimized
    client = make_client(bandit_node(CensoredUpperConfidenceBound, {**CENSORED, "width": 1.0}))
    observe(client, [-4.0, -1.0, 2.0, 4.5])
    client.attach_trial({"x": 0.5})
    ask(client)
    assert built[-1].pseudo_values == (150.0,)
    pending = double([[0.5]])
    with torch.no_grad():
        before = float(built[-1].base_model.posterior(pending).mean)
        after = float(built[-1].model.posterior(pending).mean)
    assert before < 120.0 < after


def test_outcome_constraints_are_not_passed_over() -> None:
    client = make_client(
        bandit_node(ImprovedUpperConfidenceBound, {"width": 1.0}), constraints=["level >= 3.0"]
    )
    observe(client, [-4.0, -1.0, 2.0], ("loss", "level"))
    with pytest.raises(UnsupportedError, match=r"no outcome constraints.*Lagrangian"):
        ask(client)

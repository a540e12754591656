"""Ax in one call: strategies of every acquisition are stored, resumed and get over failures.

Needs the extra ``ax``, in an environment of its own: CONTRIBUTING.md says how.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from models.textbook import double

pytest.importorskip(
    "ax.api.client", reason="needs Ax, the extra ax: pip install -c constraints.txt -e '.[ax]'"
)

from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from ax.core.trial_status import TrialStatus
from ax.exceptions.storage import JSONEncodeError
from ax.generators.torch.botorch_modular.utils import ModelConfig
from ax.storage.botorch_modular_registry import CLASS_TO_REVERSE_REGISTRY
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition import LogExpectedImprovement as OfBoTorch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel, ScaleKernel

import botorch_bandits
from botorch_bandits import (
    BanditAcquisition,
    BanditGP,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    MeanOnly,
    WidthUpperConfidenceBound,
    ax_strategy,
    register_with_ax,
)
from botorch_bandits.acquisition import (
    register_input_constructor,
)
from botorch_bandits.confidence import KernelizedWidth
from botorch_bandits.penalties import CustomPenalty, Polynomial

from .test_client import (
    LOWER,
    OPTIONS,
    UPPER,
    bandit_node,
    grid,
    make_client,
    observe,
    outcomes,
    pytestmark,  # noqa: F401 - the same warnings
)

QUICK = {"num_restarts": 2, "raw_samples": 64}  # enough in one dimension
MINIMUM = {"minimum": 190.0}  # of the censored ones: no loss here is larger


def options_of(name: str) -> dict[str, Any]:
    return {**OPTIONS[name], **(MINIMUM if "minimum" in OPTIONS[name] else {})}


def start(cls: type[BanditAcquisition], **given: Any) -> Client:
    """A client without a seed of its own, which minimizes the loss."""
    client = Client()
    client.configure_experiment(
        parameters=[RangeParameterConfig(name="x", parameter_type="float", bounds=(LOWER, UPPER))]
    )
    constraints = ["level >= 3.0"] if "multipliers" in given else None
    client.configure_optimization(objective="-loss", outcome_constraints=constraints)
    given = {"initial_trials": 3, "optimizer": QUICK, **given}
    client.set_generation_strategy(ax_strategy(cls, **given))
    return client


def ask(client: Client) -> tuple[int, float]:
    ((index, parameters),) = client.get_next_trials(max_trials=1).items()
    x = parameters["x"]
    assert isinstance(x, float)
    assert LOWER <= x <= UPPER
    return index, x


def tell(client: Client, index: int, x: float) -> None:
    both = outcomes(x)
    is_constrained = bool(client._experiment.optimization_config.outcome_constraints)
    client.complete_trial(index, both if is_constrained else {"loss": both["loss"]})


def agree(ours: tuple[BanditAcquisition, float], theirs: tuple[BanditAcquisition, float]) -> bool:
    """Whether two acquisition functions are the same, and their suggestions as good.

    Which of two hills of the same height a search found does not matter.
    """
    points = [double([[[x]]]) for x in (ours[1], theirs[1])]
    X = torch.cat([grid(), *points])
    with torch.no_grad():
        here, there = ours[0](X), theirs[0](X)
    size = float((here.max() - here.min()).clamp_min(1e-6))
    is_same = bool(torch.allclose(here, there, rtol=0.0, atol=1e-3 * size))
    return is_same and abs(float(here[-1] - here[-2])) <= 1e-2 * size


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_it_goes_on_after_storage_and_after_failures(
    name: str, tmp_path: Path, built: list[BanditAcquisition]
) -> None:
    cls = getattr(botorch_bandits, name)
    client = start(cls, **options_of(name))
    for _ in range(5):
        tell(client, *ask(client))
    path = str(tmp_path / "experiment.json")
    client.save_to_json_file(path)
    loaded = Client.load_from_json_file(path)
    (index, x), ours = ask(client), built[-1]
    (same_index, same), theirs = ask(loaded), built[-1]
    assert index == same_index
    assert agree((ours, x), (theirs, same))  # outcomes are stored with 10 decimals
    tried = [same]
    for _ in range(2):
        loaded.mark_trial_failed(index)
        index, x = ask(loaded)
        assert all(abs(x - other) > 1e-5 for other in tried)
        tried.append(x)
    loaded.complete_trial(index, outcomes(x) if "multipliers" in OPTIONS[name] else {"loss": 110.0})
    ask(loaded)


def test_failed_points_are_pending_unless_they_were_told(built: list[BanditAcquisition]) -> None:
    client = start(ImprovedUpperConfidenceBound, width=1.5)
    for _ in range(3):
        tell(client, *ask(client))
    failed, x = ask(client)
    client.mark_trial_failed(failed)
    ask(client)
    assert built[-1].X_pending.tolist() == [[x]]
    again = client.attach_trial({"x": x})  # somebody evaluates it all the same
    tell(client, again, x)
    running = [trial for trial, each in client._experiment.trials.items() if each.status.is_running]
    ask(client)
    assert len(built[-1].X_pending) == len(running)
    assert [x] not in built[-1].X_pending.tolist()


def test_where_pending_points_change_nothing_another_point_is_drawn() -> None:
    client = start(MeanOnly)
    for _ in range(3):
        tell(client, *ask(client))
    tried = []
    for _ in range(3):
        index, x = ask(client)
        tried.append(x)
        client.mark_trial_failed(index)
    assert min(abs(a - b) for i, a in enumerate(tried) for b in tried[:i]) > 1e-3
    node = client._generation_strategy._curr
    assert node.generator_to_gen_from_name == "Fallback_Sobol"
    tell(client, *ask(client))
    ask(client)
    assert client._generation_strategy._generator_runs[-1]._generator_key == "BoTorch"


def test_first_trials_that_fail_do_not_count() -> None:
    client = start(ImprovedUpperConfidenceBound, width=1.0)
    for _ in range(4):
        client.mark_trial_failed(ask(client)[0])
    tell(client, *ask(client))
    for _ in range(3):
        ask(client)  # running: three trials are there, but only one has been completed
    runs = client._generation_strategy._generator_runs
    assert {run._generation_node_name for run in runs} == {"quasi-random"}
    tell(client, 5, 0.25)
    ask(client)
    assert runs[-1]._generation_node_name == "ImprovedUpperConfidenceBound"


def test_suggestions_are_those_of_the_seed() -> None:
    def play(seed: int, num_trials: int = 5) -> list[float]:
        client = start(botorch_bandits.GPThompsonSampling, width=1.0, seed=seed)
        found = []
        for _ in range(num_trials):
            torch.rand(3)  # the global generator is of no account
            index, x = ask(client)
            found.append(x)
            tell(client, index, x)
        return found

    first, second, other = play(0), play(0), play(1)
    assert first == second
    assert all(a != b for a, b in zip(first, other, strict=True))
    state = torch.random.get_rng_state()
    play(2, 4)
    torch.rand(3 * 4)
    expected = torch.random.get_rng_state()
    torch.random.set_rng_state(state)
    torch.rand(3 * 4)
    torch.rand(3 * 4)
    assert torch.equal(torch.random.get_rng_state(), expected)


def test_two_at_once_and_bounds_in_units_of_the_metric(built: list[BanditAcquisition]) -> None:
    bounds = {"rkhs_bound": 40.0, "noise_bound": 0.5}
    client = start(ImprovedUpperConfidenceBound, **bounds)
    for _ in range(4):
        tell(client, *ask(client))
    ours = float(built[-1].width)
    first, second = (p["x"] for p in client.get_next_trials(max_trials=2).values())
    assert abs(first - second) > 1e-3
    assert built[-1].X_pending.tolist() == [[first]]
    other = make_client(bandit_node(ImprovedUpperConfidenceBound, bounds))
    observe(
        other, [trial.arm.parameters["x"] for trial in list(client._experiment.trials.values())[:3]]
    )
    ask(other)  # as docs/ax.md writes it out
    assert ours == pytest.approx(float(built[-1].width), rel=1e-3)


def test_another_process_loads_it_after_registering(
    tmp_path: Path, built: list[BanditAcquisition]
) -> None:
    rule = KernelizedWidth((40.0,), (0.5,), 0.1, any_lambda=True)
    client = start(WidthUpperConfidenceBound, rule=rule)
    for _ in range(4):
        tell(client, *ask(client))
    path = tmp_path / "experiment.json"
    client.save_to_json_file(str(path))
    code = f"""
import logging
logging.disable(logging.INFO)
from ax.api.client import Client
from botorch_bandits import register_with_ax
register_with_ax()
client = Client.load_from_json_file({str(path)!r})
spec = client._generation_strategy._nodes[1].generator_specs[0]
print(spec.generator_kwargs["botorch_acqf_options"]["rule"].rkhs_bound)
print(*(parameters["x"] for parameters in client.get_next_trials(max_trials=1).values()))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr
    bound, x = told.stdout.splitlines()[-2:]
    assert bound == "(40.0,)"
    ours = ask(client)[1]
    assert agree((built[-1], ours), (built[-1], float(x)))


def test_classes_that_share_a_name_with_botorchs_are_stored_under_their_own(
    tmp_path: Path,
) -> None:
    client = start(LogExpectedImprovement)
    client.save_to_json_file(str(tmp_path / "ours.json"))
    loaded = Client.load_from_json_file(str(tmp_path / "ours.json"))
    kwargs = loaded._generation_strategy._nodes[1].generator_specs[0].generator_kwargs
    assert kwargs["botorch_acqf_class"] is LogExpectedImprovement
    by_name = CLASS_TO_REVERSE_REGISTRY[AcquisitionFunction]
    assert by_name["LogExpectedImprovement"] is OfBoTorch
    register_with_ax()  # again: nothing changes
    assert by_name["LogExpectedImprovement"] is OfBoTorch


def test_penalties_are_stored(tmp_path: Path) -> None:
    options = {"multipliers": [20.0], "penalty": Polynomial(1.0, 2.0), "width": (1.0, 0.5)}
    client = start(LagrangianUpperConfidenceBound, **options)
    client.save_to_json_file(str(tmp_path / "constrained.json"))
    loaded = Client.load_from_json_file(str(tmp_path / "constrained.json"))
    for _ in range(4):
        tell(loaded, *ask(loaded))
    client = start(
        LagrangianUpperConfidenceBound,
        multipliers=[20.0],
        penalty=CustomPenalty(lambda x: x.clamp_min(0.0).exp()),
    )
    with pytest.raises(JSONEncodeError, match=r"function .* is not"):
        client.save_to_json_file(str(tmp_path / "constrained.json"))


class FixedGP(BanditGP):
    """A model of fixed hyperparameters, as in docs/ax.md."""

    @classmethod
    def construct_inputs(cls, training_data: Any, **options: Any) -> dict[str, Any]:
        kernel = ScaleKernel(MaternKernel(nu=2.5)).double()
        kernel.base_kernel.lengthscale = double(0.3)
        kernel.outputscale = double(30.0**2)
        data = {"train_X": training_data.X, "train_Y": training_data.Y}
        return {**data, "kernel": kernel, "noise": 1.0, "prior_mean": 120.0, **options}


@pytest.mark.parametrize("model", [FixedGP, ModelConfig(botorch_model_class=FixedGP)])
def test_a_model_of_ones_own(model: Any, built: list[BanditAcquisition], tmp_path: Path) -> None:
    given = {
        "rkhs_bound": 100.0,
        "noise_bound": 1.0,
        "any_lambda": True,
        "assume": "centered bound",
    }
    client = start(ImprovedUpperConfidenceBound, model=model, **given)
    for _ in range(4):
        tell(client, *ask(client))
    assert built[-1].guarantee().holds
    client.save_to_json_file(str(tmp_path / "fixed.json"))
    loaded = Client.load_from_json_file(str(tmp_path / "fixed.json"))
    ours, theirs = (ask(each)[1] for each in (client, loaded))
    assert agree((built[-2], ours), (built[-1], theirs))
    assert isinstance(built[-1].base_model, FixedGP)


def test_choices_and_integers(built: list[BanditAcquisition]) -> None:
    client = Client()
    client.configure_experiment(
        parameters=[
            RangeParameterConfig(name="n", parameter_type="int", bounds=(1, 4)),
            ChoiceParameterConfig(
                name="kind", values=["a", "b"], parameter_type="str", is_ordered=False
            ),
        ]
    )
    client.configure_optimization(objective="-loss")
    client.set_generation_strategy(ax_strategy(MeanOnly, initial_trials=3))
    failed = []
    for t in range(7):
        ((index, parameters),) = client.get_next_trials(max_trials=1).items()
        if t < 4:
            loss = float(parameters["n"]) + (parameters["kind"] == "b")
            client.complete_trial(index, {"loss": loss})
        else:
            assert parameters not in failed
            failed.append(parameters)
            client.mark_trial_failed(index)
    statuses = [trial.status for trial in client._experiment.trials.values()]
    assert statuses.count(TrialStatus.FAILED) == 3


class Mine(ImprovedUpperConfidenceBound):
    """A user's."""


def test_a_subclass_is_stored_too(tmp_path: Path) -> None:
    register_input_constructor(Mine)
    client = start(Mine, width=1.0)
    for _ in range(4):
        tell(client, *ask(client))
    client.save_to_json_file(str(tmp_path / "mine.json"))
    ask(Client.load_from_json_file(str(tmp_path / "mine.json")))


@pytest.mark.parametrize(
    ("cls", "options", "error", "message"),
    [
        (
            ImprovedUpperConfidenceBound,
            {"wdith": 1.0},
            TypeError,
            r"no option 'wdith'; it has.*width",
        ),
        (
            ImprovedUpperConfidenceBound,
            {"maximize": False},
            TypeError,
            r"no maximize= in Ax: Ax itself",
        ),
        (ImprovedUpperConfidenceBound, {"X_pending": None}, TypeError, r"no X_pending= in Ax"),
        (ImprovedUpperConfidenceBound, {"width": -1.0}, ValueError, r"width is -1"),
        (ImprovedUpperConfidenceBound, {"rkhs_bound": 1.0}, ValueError, r"noise_bound"),
        (WidthUpperConfidenceBound, {}, ValueError, r"WidthUpperConfidenceBound needs rule="),
        (LagrangianUpperConfidenceBound, {"width": 1.0}, ValueError, r"needs multipliers="),
        (botorch_bandits.RandomizedUpperConfidenceBound, {}, ValueError, r"needs num_arms="),
        (botorch_bandits.CandidatesUpperConfidenceBound, {}, ValueError, r"needs a list of priors"),
        (botorch_bandits.TopTwoThompsonSampling, {}, ValueError, r"but Ax searches a box"),
        (SingleTaskGP, {}, TypeError, r"acquisition is .*SingleTaskGP.*pass a class"),
        ("MeanOnly", {}, TypeError, r"acquisition is 'MeanOnly'"),
        (MeanOnly, {"initial_trials": 0}, ValueError, r"initial_trials"),
        (MeanOnly, {"seed": -1}, ValueError, r"seed"),
        (MeanOnly, {"model": "SingleTaskGP"}, TypeError, r"model.*Pass a ModelConfig"),
    ],
)
def test_mistakes_are_named_at_once(
    cls: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ax_strategy(cls, **options)

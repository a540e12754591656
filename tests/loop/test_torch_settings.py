"""What a user sets in torch, for the process or a thread, changes no bit of what a loop does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from torch.quasirandom import SobolEngine

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Categorical,
    Float,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    Integer,
    Policy,
    Space,
    simulate,
)
from botorch_bandits.models.fitted import default_kernel, default_likelihood
from botorch_bandits.problems import ArmsProblem, BraninReward
from botorch_bandits.random_streams import seeded_globally, usual_dtype

from .rounds import Setting
from .test_rounds import UNKNOWN

EFFORT: dict[str, Any] = {"num_restarts": 2, "raw_samples": 16}
SQUARE = Box([[0.0, 0.0], [1.0, 1.0]], **EFFORT)
POINTS = torch.rand(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
KNOWN: dict[str, Any] = {"rkhs_bound": 2.0, "noise_bound": 0.1}
WIDTH = GPUpperConfidenceBound.with_options(width=2.0)
IGP = ImprovedUpperConfidenceBound.with_options(**KNOWN)


def a_model(**options: Any) -> Any:
    return BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.3, **options)


ON_BOTH: dict[str, Callable[[], dict[str, Any]]] = {
    "default": dict,
    "earned": lambda: {"acquisition": "earned"},
    "least cost": lambda: {"maximize": False},
    "default with constraints": lambda: {
        "constraints": AdditiveEpochs(num_constraints=2, epoch_length=3, surrogate="separate")
    },
    "IGP-UCB": lambda: {"model": a_model(), "acquisition": IGP},
    "width": lambda: {"model": a_model(), "acquisition": WIDTH},
    "composed": lambda: {
        "model": BanditGP.with_kernel(ScaleKernel(RBFKernel() + MaternKernel()), refit_every=4),
        "acquisition": WIDTH,
    },
}


DOMAINS: dict[str, Callable[[], Any]] = {
    "whole numbers": lambda: Box([[0.0, 0.0], [1.0, 5.0]], integer_dims=[1], **EFFORT),
    "part of a box": lambda: Box(
        SQUARE.bounds, inequality_constraints=[([0, 1], [-1.0, -1.0], -1.2)], **EFFORT
    ),
    "space": lambda: Space(
        {"a": Float(0.1, 1.0, log=True), "b": Integer(1, 9), "c": Categorical(["x", "y", "z"])},
        **EFFORT,
    ),
}

CASES: dict[str, Callable[[], dict[str, Any]]] = {
    **{f"{n} on a box": (lambda s=s: {"domain": SQUARE, **s()}) for n, s in ON_BOTH.items()},
    **{f"{n} on arms": (lambda s=s: {"domain": Arms(POINTS), **s()}) for n, s in ON_BOTH.items()},
    **{name: (lambda d=d: {"domain": d()}) for name, d in DOMAINS.items()},
}
SETTINGS: dict[str, tuple[Setting, dict[str, Any]]] = {
    **UNKNOWN,
    "draws, weights": (Setting("box", "draws", "weights", "censored"), {}),
    "epochs, drift": (Setting("arms", "igp", "drift", rule="exact", contexts=1), {}),
    "separate, window": (Setting("box", "draws", "window", rule="separate"), {}),
}
CASES |= dict.fromkeys(SETTINGS, dict)


def a_loop(case: str) -> BanditLoop:
    if case in SETTINGS:
        setting, options = SETTINGS[case]
        return setting.loop(**options)
    return BanditLoop(**{"seed": 1, **CASES[case]()})


def play(loop: BanditLoop, num_rounds: int = 7, case: str = "") -> list[Any]:
    """Play a few rounds, and return all that the loop says of them."""
    rule = "separate" if "constraints" in case else "none"
    setting = SETTINGS[case][0] if case in SETTINGS else Setting(rule=rule)
    found: list[Any] = []
    for _ in range(num_rounds):
        setting.tell(loop)
        query = setting.ask(loop)
        found += [query.x.tolist(), sorted(query.diagnostics.items())]
    found += [str(loop.guarantee()), loop.multipliers]
    return found


@pytest.fixture
def default_dtype() -> Iterator[Callable[[torch.dtype], None]]:
    before = torch.get_default_dtype()
    yield torch.set_default_dtype
    torch.set_default_dtype(before)


_usual: dict[str, list[Any]] = {}


def usual(case: str) -> list[Any]:
    """What comes out where nothing is set; to be called first."""
    assert torch.get_default_dtype() == torch.float32
    if case not in _usual:
        _usual[case] = play(a_loop(case), case=case)
    return _usual[case]


FEW = ("default on a box", "list on a box", "default on arms", "IGP-UCB on arms", *DOMAINS)


def with_one_for_few(most: Any, few: Any, names: tuple[str, str]) -> pytest.MarkDecorator:
    """Every fourth case with one setting, and a few with another; the others are slow."""
    runs = []
    for i, case in enumerate(CASES):
        by_day: Any = [] if case in FEW or i % 4 == 0 else pytest.mark.slow
        runs.append(pytest.param(case, most, id=f"{case}-{names[0]}", marks=by_day))
        marks: Any = [] if case in FEW else pytest.mark.slow
        runs.append(pytest.param(case, few, id=f"{case}-{names[1]}", marks=marks))
    return pytest.mark.parametrize(("case", "given"), runs)


# What float64 rounds otherwise than float32 does, float16 rounds otherwise, too.
@pytest.mark.filterwarnings("ignore")
@with_one_for_few(torch.float16, torch.float64, ("float16", "float64"))
def test_the_default_dtype_changes_nothing(
    default_dtype: Callable[[torch.dtype], None], case: str, given: torch.dtype
) -> None:
    """Priors, bounds of noise and first points of Sobol sequences were rounded otherwise."""
    expected = usual(case)
    default_dtype(given)
    assert play(a_loop(case), case=case) == expected
    assert torch.get_default_dtype() == given


# In inference mode there are no gradients either, and tensors of it are refused by more.
@pytest.mark.filterwarnings("ignore")
@with_one_for_few(torch.inference_mode, torch.no_grad, ("inference_mode", "no_grad"))
def test_gradients_are_there_where_they_are_needed(
    case: str, given: Callable[[], AbstractContextManager[Any]]
) -> None:
    """Searches on boxes had nothing to follow."""
    expected, loop = usual(case), a_loop(case)
    with given():
        assert play(loop, case=case) == expected
        assert not torch.is_grad_enabled()


@pytest.mark.filterwarnings("ignore")
def test_replicates_do_not_depend_on_it_either(
    default_dtype: Callable[[torch.dtype], None],
) -> None:
    problem = ArmsProblem(POINTS, -(POINTS - 0.3).square().sum(-1), noise_std=0.1)

    def replicates() -> list[Any]:
        of_arms = simulate(problem, Policy(a_model(), IGP), 12, 3, progress=False)
        of_box = simulate(BraninReward(noise_std=0.1), Policy(a_model(), IGP), 4, 2, progress=False)
        return [of_arms.regret.tolist(), of_box.points.tolist()]

    expected = replicates()
    for dtype in (torch.float64, torch.float16):
        default_dtype(dtype)
        assert replicates() == expected
    default_dtype(torch.float32)
    with torch.no_grad():
        assert replicates() == expected


def test_only_the_thread_that_builds_has_the_usual_dtype(
    default_dtype: Callable[[torch.dtype], None],
) -> None:
    """It is no setting of the process, which other threads need as it is."""
    default_dtype(torch.float64)
    seen: list[torch.dtype] = []
    with usual_dtype(), seeded_globally(0):
        thread = threading.Thread(target=lambda: seen.append(torch.zeros(1).dtype))
        thread.start()
        thread.join()
        assert torch.get_default_dtype() == torch.float64
        assert torch.zeros(1).dtype == torch.tensor(0.5).dtype == torch.float32
        assert torch.tensor([1, 2]).dtype == torch.int64
        assert torch.tensor(POINTS[0].tolist(), dtype=torch.float16).dtype == torch.float16
    assert seen == [torch.float64]
    assert torch.zeros(1).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_what_is_built_is_the_same_to_the_last_bit(
    default_dtype: Callable[[torch.dtype], None], dtype: torch.dtype
) -> None:
    def built() -> list[Any]:
        parts = [default_kernel(3), default_likelihood(), default_likelihood(POINTS[:, 0] + 1.0)]
        numbers = [
            [name, str(value.dtype), value.tolist()]
            for part in parts
            for name, value in sorted(part.state_dict().items())
        ]
        with seeded_globally(5):
            points = SobolEngine(3, scramble=True).draw(4, dtype=torch.float64)
        return [numbers, points.tolist()]

    expected = built()
    default_dtype(dtype)
    assert built() == expected


def test_gradients_of_the_caller_stay_as_they_were() -> None:
    loop = BanditLoop(**CASES["width on a box"]())
    for within in (nullcontext, torch.no_grad, torch.enable_grad):
        with within():
            before = torch.is_grad_enabled()
            loop.tell(loop.ask().id, 1.0)
            with pytest.raises(TypeError, match="reward"):
                loop.tell(loop.ask().id, "text")
            assert torch.is_grad_enabled() == before

"""What a user sets in torch, for the process or a thread, changes no bit of what a loop does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from pairwise import by_day
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
    Integer,
    Policy,
    Space,
    simulate,
)
from botorch_bandits.models.fitted import default_kernel, default_likelihood
from botorch_bandits.problems import ArmsProblem, BraninReward
from botorch_bandits.random_streams import seeded_globally, usual_dtype

from .rounds import METHODS, Setting
from .test_rounds import UNKNOWN

EFFORT: dict[str, Any] = {"num_restarts": 2, "raw_samples": 16}
SQUARE = Box([[0.0, 0.0], [1.0, 1.0]], **EFFORT)
POINTS = torch.rand(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
WIDTH = GPUpperConfidenceBound.with_options(width=2.0)
MODEL = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.3)
PARAMETERS = {
    "a": Float(0.1, 1.0, log=True), "b": Integer(1, 9), "c": Categorical(["x", "y", "z"])
}  # fmt: skip
HALF: Any = [([0, 1], [-1.0, -1.0], -1.2)]
SEPARATE = AdditiveEpochs(num_constraints=2, epoch_length=3, surrogate="separate")
COMPOSED = ScaleKernel(RBFKernel() + MaternKernel())


def default(domain: Any) -> Callable[..., BanditLoop]:
    """Return a builder of the loop of who passes no model and no acquisition."""
    return lambda **options: BanditLoop(**{"domain": domain(), "seed": 1, **options})


CASES: dict[str, tuple[Setting, Callable[..., BanditLoop], dict[str, Any]]] = {
    "box": (Setting(), default(lambda: SQUARE), {}),
    "arms": (Setting(), default(lambda: Arms(POINTS)), {}),
    "whole numbers": (
        Setting(), default(lambda: Box([[0.0, 0.0], [1.0, 5.0]], integer_dims=[1], **EFFORT)), {}
    ),
    "part of a box": (
        Setting(), default(lambda: Box(SQUARE.bounds, inequality_constraints=HALF, **EFFORT)), {}
    ),
    "space": (Setting(), default(lambda: Space(PARAMETERS, **EFFORT)), {}),
    "earned": (Setting(), default(lambda: SQUARE), {"acquisition": "earned"}),
    "least cost": (Setting(), default(lambda: SQUARE), {"maximize": False}),
    "constraints": (
        Setting(rule="separate"), default(lambda: SQUARE), {"constraints": SEPARATE}
    ),
    "composed": (
        Setting(),
        default(lambda: SQUARE),
        {"model": BanditGP.with_kernel(COMPOSED, refit_every=4), "acquisition": WIDTH},
    ),
    **{
        name: (setting, setting.loop, options)
        for name, (setting, options) in {
            "IGP-UCB": (Setting(), {}),
            "draws, weights": (Setting("box", "draws", "weights", "censored"), {}),
            "epochs, drift": (Setting("arms", "igp", "drift", rule="exact", contexts=1), {}),
            "separate, window": (Setting("box", "draws", "window", rule="separate"), {}),
            **UNKNOWN,
        }.items()
    },
}  # fmt: skip


def play(case: str, loop: BanditLoop) -> list[Any]:
    """Play a few rounds, and return all that the loop says of them."""
    setting, found = CASES[case][0], []
    for _ in range(7):
        setting.tell(loop)
        query = setting.ask(loop)
        found += [query.x.tolist(), sorted(query.diagnostics.items())]
    return [*found, loop.guarantee().explain(), loop.multipliers]


def a_loop(case: str) -> BanditLoop:
    _, build, options = CASES[case]
    return build(**options)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(before)


@contextmanager
def without_gradients(mode: Any) -> Iterator[None]:
    with mode():
        yield
        assert not torch.is_grad_enabled()


STATES: dict[str, Callable[[], Any]] = {
    "float16": lambda: default_dtype(torch.float16),
    "float64": lambda: default_dtype(torch.float64),
    "inference mode": lambda: without_gradients(torch.inference_mode),
    "no gradients": lambda: without_gradients(torch.no_grad),
}


# What float64 rounds otherwise than float32 does, float16 rounds otherwise, too; and in inference
# mode there are no gradients either, and tensors of it are refused by more.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("case", "states"),
    by_day(
        [(case, (first, second)) for first, second in (("float16", "inference mode"),
                                                       ("float64", "no gradients"))
         for case in CASES],
        every=2,
    ),
)  # fmt: skip
def test_settings_of_torch_change_nothing(case: str, states: tuple[str, ...]) -> None:
    """Priors, bounds of noise and first points of Sobol sequences were rounded otherwise."""
    expected = play(case, a_loop(case))
    for state in states:
        loop = a_loop(case)
        with STATES[state]():
            loop = a_loop(case) if state.startswith("float") else loop
            assert play(case, loop) == expected, state


@pytest.mark.filterwarnings("ignore")
def test_replicates_do_not_depend_on_it_either() -> None:
    problem = ArmsProblem(POINTS, -(POINTS - 0.3).square().sum(-1), noise_std=0.1)
    policy = Policy(MODEL, METHODS["igp"])

    def replicates() -> list[Any]:
        of_arms = simulate(problem, policy, 12, 3, progress=False)
        of_box = simulate(BraninReward(noise_std=0.1), policy, 4, 2, progress=False)
        return [of_arms.regret.tolist(), of_box.points.tolist()]

    expected = replicates()
    for state in STATES:
        if state != "inference mode":
            with STATES[state]():
                assert replicates() == expected


def test_only_the_thread_that_builds_has_the_usual_dtype() -> None:
    """It is no setting of the process, which other threads need as it is."""
    seen: list[torch.dtype] = []
    with default_dtype(torch.float64):
        with usual_dtype(), seeded_globally(0):
            thread = threading.Thread(target=lambda: seen.append(torch.zeros(1).dtype))
            thread.start()
            thread.join()
            assert torch.get_default_dtype() == torch.float64
            assert torch.zeros(1).dtype == torch.tensor(0.5).dtype == torch.float32
            assert torch.tensor([1, 2]).dtype == torch.int64
            assert torch.tensor([0.5], dtype=torch.float16).dtype == torch.float16
        assert seen == [torch.float64]
        assert torch.zeros(1).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_what_is_built_is_the_same_to_the_last_bit(dtype: torch.dtype) -> None:
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
    with default_dtype(dtype):
        assert built() == expected


def test_gradients_and_random_numbers_of_the_caller_stay_as_they_were() -> None:
    loop = BanditLoop(SQUARE, MODEL, WIDTH)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    for within in (nullcontext, torch.no_grad, torch.enable_grad):
        with within():
            before = torch.is_grad_enabled()
            loop.tell(loop.ask().id, 1.0)
            with pytest.raises(TypeError, match="reward"):
                loop.tell(loop.ask().id, "text")
            assert torch.is_grad_enabled() == before
    assert torch.equal(torch.rand(3), expected)

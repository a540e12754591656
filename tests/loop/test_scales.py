"""What is chosen does not depend on the unit in which outcomes are counted, nor on their offset."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.models import ModelListGP
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from pairwise import by_day
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    DMMUpperConfidenceBound,
    ExponentialWeights,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
    MeanOnly,
    Policy,
    RandomizedUpperConfidenceBound,
    SlidingWindow,
    TimeVaryingKernel,
    VarianceOnly,
    simulate,
)
from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.domains import Domain
from botorch_bandits.problems import ArmsProblem
from botorch_bandits.simulation.boxes import build_box_engine

GENERATOR = torch.Generator().manual_seed(1)
CHOICES = torch.rand(25, 2, dtype=torch.float64, generator=GENERATOR)
ARMS = Arms(CHOICES)
LENGTHSCALE, NOISE = 0.3, 0.2
KERNEL_MATRIX = torch.exp(-0.5 * torch.cdist(CHOICES, CHOICES).square() / LENGTHSCALE**2)
REWARDS = torch.linalg.cholesky(KERNEL_MATRIX + 1e-9 * torch.eye(25).double()) @ torch.randn(
    25, dtype=torch.float64, generator=GENERATOR
)
ERRORS = torch.randn(100, dtype=torch.float64, generator=GENERATOR)
CONTEXTS = torch.rand(60, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(5))

Method = Callable[[float, float], AcquisitionRecipe]


def bounds(s: float) -> dict[str, Any]:
    return {"rkhs_bound": 3.0 * s, "noise_bound": NOISE * s}


METHODS: dict[str, Method] = {
    "IGP-UCB": lambda s, o: ImprovedUpperConfidenceBound.with_options(**bounds(s), any_lambda=True),
    "IGP-UCB, minimizing": lambda s, o: ImprovedUpperConfidenceBound.with_options(
        **bounds(s), any_lambda=True, maximize=False
    ),
    "AMM": lambda s, o: AMMUpperConfidenceBound.with_options(**bounds(s)),
    "DMM": lambda s, o: DMMUpperConfidenceBound.with_options(**bounds(s)),
    "GP-UCB": lambda s, o: GPUpperConfidenceBound.with_options(delta=0.1),
    "constant width": lambda s, o: GPUpperConfidenceBound.with_options(width=2.0),
    "IRGP-UCB": lambda s, o: RandomizedUpperConfidenceBound.with_options(),
    "Thompson": lambda s, o: GPThompsonSampling.with_options(width=1.0),
    "GP-TS": lambda s, o: GPThompsonSampling.with_options(**bounds(s), any_lambda=True),
    "EI": lambda s, o: LogExpectedImprovement.with_options(),
    "EI, observed": lambda s, o: LogExpectedImprovement.with_options(incumbent="observed"),
    "EI, given": lambda s, o: LogExpectedImprovement.with_options(best_f=o + 0.5 * s),
    "PI": lambda s, o: LogProbabilityOfImprovement.with_options(margin=0.01 * s),
    "variance only": lambda s, o: VarianceOnly.with_options(),
    "mean only": lambda s, o: MeanOnly.with_options(),
}

UNITS = (1e-12, 1e-8, 1e-4, 1.0, 1e4, 1e8, 1e12)
OFFSETS = (0.0, 1e3, -1e3)
FEW = ((1e-12, 0.0), (1e-12, 1e-9), (1e-8, -1e-5), (1e-4, 0.1), (1e8, 0.0), (1e12, -1e15))
ENDS = (FEW[0], FEW[3], FEW[5])


def scaled_kernel(s: float) -> Kernel:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
    kernel.outputscale = torch.tensor(s * s, dtype=torch.float64)
    return kernel


def sum_of_kernels(s: float) -> Kernel:
    """A kernel that only GPyTorch evaluates."""
    kernel = ScaleKernel(RQKernel() + MaternKernel(nu=1.5)).double()
    kernel.outputscale = torch.tensor(0.5 * s * s, dtype=torch.float64)
    return kernel


def play(
    method: Method,
    s: float,
    o: float,
    num_rounds: int = 25,
    delay: int = 0,
    with_contexts: bool = False,
    kernel: Callable[[float], Kernel] = scaled_kernel,
    with_constraints: bool = False,
    **settings: Any,
) -> list[int]:
    """Play a loop whose outcomes are ``s`` times those at scale 1, plus ``o``; return its arms."""
    model = BanditGP.with_kernel(kernel(s), noise=NOISE**2 * s * s, prior_mean=o)
    if with_contexts:
        settings["context_dim"] = 1
    loop = BanditLoop(ARMS, model, method(s, o), seed=3, num_initial=2, **settings)
    arms: list[int] = []
    waiting = []
    for t in range(num_rounds):
        query = loop.ask(CONTEXTS[t]) if with_contexts else loop.ask()
        arms.append(int(ARMS.index_of(query.x.unsqueeze(0))))
        waiting.append(query)
        if t < delay:
            continue
        told = waiting.pop(0)
        arm, row = arms[t - delay], t - delay
        reward = REWARDS[arm] + NOISE * ERRORS[row]
        if with_contexts:
            reward = reward + CONTEXTS[row, 0] * CHOICES[arm, 0]
        extra = {"constraints": [float(CHOICES[arm, 0]) - 0.5]} if with_constraints else {}
        loop.tell(told.id, float(s * reward + o), **extra)
    return arms


@pytest.mark.parametrize("name", by_day(METHODS))
def test_arms_are_those_at_scale_1(name: str) -> None:
    """Every method in every unit; every pair of a unit and an offset with some methods."""
    expected = play(METHODS[name], 1.0, 0.0, num_rounds=60)
    number = list(METHODS).index(name)
    for i, s in enumerate(UNITS):
        r = OFFSETS[(number + i) % len(OFFSETS)]
        assert play(METHODS[name], s, r * s, num_rounds=60) == expected, (s, r)
    assert len(set(expected)) > 1


VARIANTS: dict[str, dict[str, Any]] = {
    "contexts": {"with_contexts": True},
    "pending": {"delay": 3},
    "pending in contexts": {"delay": 3, "with_contexts": True},
    "a kernel of GPyTorch": {"kernel": sum_of_kernels, "delay": 3, "with_contexts": True},
    "window": {"forgetting": SlidingWindow(8)},
    "weights": {"forgetting": ExponentialWeights(0.95)},
    "time": {"forgetting": TimeVaryingKernel(0.05)},
    "censored": {"delay": 3},
    "censored in contexts": {"delay": 3, "with_contexts": True},
}
CENSORED_METHODS = ("IGP-UCB", "GP-TS", "constant width")


def can_be_played(name: str, variant: str) -> bool:
    given = name != "EI, given" or "contexts" not in variant
    return given and (not variant.startswith("censored") or name in CENSORED_METHODS)


@pytest.mark.parametrize(
    ("name", "variant"),
    by_day(
        (name, variant)
        for i, name in enumerate(METHODS)
        for variant in [*VARIANTS][i % 2 :: 2]
        if can_be_played(name, variant)
    ),
)
def test_arms_in_other_settings_are_those_at_scale_1(name: str, variant: str) -> None:
    def found(s: float, o: float) -> list[int]:
        settings: dict[str, Any] = {"num_rounds": 16, **VARIANTS[variant]}  # twice the window
        if variant.startswith("censored"):
            censored = Censored(minimum=o - 4.0 * s, max_delay=5, outcome_bound=9.0 * s)
            settings["feedback"] = censored
        return play(METHODS[name], s, o, **settings)

    expected = found(1.0, 0.0)
    for s, o in ENDS:
        assert found(s, o) == expected, (s, o)


@pytest.mark.parametrize("separate_bounds", [None, False, True])
def test_arms_under_constraints_are_those_at_scale_1(separate_bounds: bool | None) -> None:
    """Multipliers have the unit of the reward: their steps are scaled with it."""
    surrogate = "relabeled" if separate_bounds is None else "separate"

    def method(s: float, o: float) -> AcquisitionRecipe:
        if separate_bounds is None:
            return METHODS["constant width"](s, o)
        return LagrangianUpperConfidenceBound.with_options(
            width=2.0, separate_bounds=separate_bounds
        )

    def found(s: float, o: float) -> list[int]:
        rule = AdditiveEpochs(1, 5, 0.5 * s, surrogate=surrogate)
        return play(method, s, o, constraints=rule, with_constraints=True)

    expected = found(1.0, 0.0)
    units = FEW if separate_bounds is None else [(s, o) for s, o in FEW if s > 1e-3]
    for s, o in units:
        assert found(s, o) == expected, (s, o)


@pytest.mark.parametrize("name", ["IGP-UCB", "DMM", "GP-TS", "EI", "PI"])
def test_replicates_at_any_scale_play_what_loops_play(name: str) -> None:
    rounds = 20
    played = {}
    for s, o in ((1.0, 0.0), *FEW):
        model = BanditGP.with_kernel(scaled_kernel(s), noise=NOISE**2 * s * s, prior_mean=o)
        policy = Policy(model, METHODS[name](s, o), num_initial=2)
        problem = ArmsProblem(CHOICES, s * REWARDS + o, noise_std=NOISE * s)
        result = simulate(problem, policy, rounds, 2, seed=4, progress=False)
        assert result.arms is not None
        played[s, o] = result.arms.tolist()
        assert played[s, o] == played[1.0, 0.0], (s, o)
    for b, seed in enumerate(result.seeds):
        loop = policy.loop(ARMS, seed=seed)
        for t in range(rounds):
            query = loop.ask()
            assert int(ARMS.index_of(query.x.unsqueeze(0))) == played[s, o][b][t]
            loop.tell(query.id, float(result.outcomes[b, t]))


def test_moments_of_a_drop_in_at_a_tiny_scale() -> None:
    """GPyTorch's smallest variance is 1e-10 at any scale; here it is in prior variances."""
    s, o = 1e-9, 1e-6
    rows = torch.arange(0, 25, 4)
    Y = (s * REWARDS[rows] + o).unsqueeze(-1)
    K = s * s * KERNEL_MATRIX
    gains = torch.linalg.solve(
        K[rows][:, rows] + 0.04 * s * s * torch.eye(len(rows)).double(), K[rows]
    )
    mean = o + gains.mT @ (Y.squeeze(-1) - o)
    deviation = (K.diagonal() - (K[rows] * gains).sum(0)).sqrt()
    model = BanditGP(CHOICES[rows], Y, scaled_kernel(s), 0.04 * s * s, prior_mean=o)
    acqf = GPUpperConfidenceBound(model, width=2.0)
    error = acqf(CHOICES.unsqueeze(-2)) - (mean + 2.0 * deviation)
    assert float(error.abs().max()) < 1e-8 * s
    assert acqf.value_scale is not None
    assert acqf.value_scale == pytest.approx((o, s), rel=1e-9)
    # several outputs, as Lagrangian acquisition functions have them
    pair = ModelListGP(model, model)
    lagrangian = LagrangianUpperConfidenceBound(
        pair, multipliers=[0.0], width=2.0, separate_bounds=True
    )
    error = lagrangian(CHOICES.unsqueeze(-2)) - (mean + 2.0 * deviation)
    assert float(error.abs().max()) < 1e-8 * s


BOX = Box([[0.0, 0.0], [1.0, 1.0]], num_restarts=4, raw_samples=64)


def play_box(method: Method, s: float, o: float, num_rounds: int = 7) -> Tensor:
    model = BanditGP.with_kernel(scaled_kernel(s), noise=NOISE**2 * s * s, prior_mean=o)
    loop = BanditLoop(BOX, model, method(s, o), seed=3, num_initial=3)
    points = []
    for t in range(num_rounds):
        query = loop.ask()
        points.append(query.x)
        a, b = query.x.tolist()
        reward = math.sin(5.0 * a) * math.cos(3.0 * b) + a + NOISE * float(ERRORS[t])
        loop.tell(query.id, s * reward + o)
    return torch.stack(points)


@pytest.mark.parametrize(
    "name", ["IGP-UCB", "AMM", "DMM", "Thompson", "EI", "PI", "variance only", "mean only"]
)
def test_points_of_a_box_are_those_at_scale_1(name: str) -> None:
    """At both ends of the range that is stated, to the tolerance of the optimizers."""
    expected = play_box(METHODS[name], 1.0, 0.0)
    for s, o in ((1e-8, 0.0), (1e-8, 1e-2), (1e8, 0.0), (1e8, -1e14)):
        difference = float((play_box(METHODS[name], s, o) - expected).abs().max())
        assert difference < (1e-5 if o == 0.0 else 1e-3), (s, o)


@pytest.mark.parametrize("name", ["IGP-UCB", "Thompson", "EI"])
@pytest.mark.parametrize(
    ("s", "o", "told"),
    [
        (0.99e-8, 0.0, "kernel's output scale is 9.8.*e-17.*between 1e-08 and 1e\\+08.*Rescale"),
        (1.01e8, 0.0, "kernel's output scale is 1.02.*e\\+16.*between 1e-08 and 1e\\+08.*Rescale"),
        (1.0, 1.01e6, "prior_mean is 1.01e\\+06.*at most 1e\\+06 prior.*Subtract"),
        (1e-8, -1.01e-2, "prior_mean is -0.0101.*at most 1e\\+06 prior.*Subtract"),
    ],
)
def test_other_scales_are_refused_on_boxes(name: str, s: float, o: float, told: str) -> None:
    model = BanditGP.with_kernel(scaled_kernel(s), noise=0.04 * s * s, prior_mean=o)
    with pytest.raises(ValueError, match=told):
        BanditLoop(BOX, model, METHODS[name](s, o))
    domain: Domain = ARMS
    BanditLoop(domain, model, METHODS[name](s, o)).ask()


def test_nothing_is_recorded_of_a_scale_that_is_refused(tmp_path: Any) -> None:
    model = BanditGP.with_kernel(scaled_kernel(1e-9), noise=0.04e-18)
    with pytest.raises(ValueError, match="kernel's output scale"):
        BanditLoop(BOX, model, METHODS["EI"](1.0, 0.0), storage=tmp_path / "loop.jsonl")
    assert list(tmp_path.iterdir()) == []


def box_replicates(s: float, o: float) -> Tensor:
    model = BanditGP.with_kernel(scaled_kernel(s), noise=NOISE**2 * s * s, prior_mean=o)
    engine = build_box_engine(model, METHODS["IGP-UCB"](s, o), BOX, [0, 1])
    assert engine is not None
    points = torch.tensor([[0.2, 0.7], [0.9, 0.4]], dtype=torch.float64)
    chosen = []
    for t in range(1, 6):
        rewards = (5.0 * points[:, 0]).sin() * (3.0 * points[:, 1]).cos() + NOISE * ERRORS[t]
        engine.observe(points, s * rewards + o)
        points, _ = engine.choose(t + 1)
        chosen.append(points)
    return torch.cat(chosen)


def test_replicates_on_a_box_have_the_same_range() -> None:
    expected = box_replicates(1.0, 0.0)
    for s, o in ((1e-8, 0.0), (1e-8, 1e-2), (1e8, 0.0), (1e8, -1e14)):
        difference = float((box_replicates(s, o) - expected).abs().max())
        assert difference < (1e-5 if o == 0.0 else 1e-3), (s, o)
    with pytest.raises(ValueError, match="kernel's output scale"):
        box_replicates(1e9, 0.0)

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
from botorch_bandits.problems import ArmsProblem
from tests.models.textbook import double, posterior, squared_exponential

GENERATOR = torch.Generator().manual_seed(1)
CHOICES = torch.rand(25, 2, dtype=torch.float64, generator=GENERATOR)
ARMS, BOX = Arms(CHOICES), Box([[0.0, 0.0], [1.0, 1.0]], num_restarts=4, raw_samples=64)
LENGTHSCALE, NOISE = 0.3, 0.2
REWARDS = (5.0 * CHOICES[:, 0]).sin() * (3.0 * CHOICES[:, 1]).cos() + CHOICES[:, 0]
ERRORS = torch.randn(100, dtype=torch.float64, generator=GENERATOR)
CONTEXTS = torch.rand(60, 1, dtype=torch.float64, generator=GENERATOR)


def scaled(cls: Any, **options: Any) -> Callable[[float, float], Any]:
    """Return the recipe as a function of unit and offset, in which bounds are given."""
    norms = {"rkhs_bound": 3.0, "noise_bound": NOISE, "margin": 0.01}

    def recipe(s: float, o: float) -> Any:
        given = {
            name: norms[name] * s if options[name] is ... else options[name] for name in options
        }
        return cls.with_options(**given)

    return recipe


NORM: dict[str, Any] = {"rkhs_bound": ..., "noise_bound": ...}
METHODS: dict[str, Callable[[float, float], Any]] = {
    "IGP-UCB": scaled(ImprovedUpperConfidenceBound, **NORM, any_lambda=True),
    "minimizing": scaled(ImprovedUpperConfidenceBound, **NORM, any_lambda=True, maximize=False),
    "AMM": scaled(AMMUpperConfidenceBound, **NORM),
    "DMM": scaled(DMMUpperConfidenceBound, **NORM),
    "GP-UCB": scaled(GPUpperConfidenceBound, delta=0.1),
    "constant width": scaled(GPUpperConfidenceBound, width=2.0),
    "IRGP-UCB": scaled(RandomizedUpperConfidenceBound),
    "Thompson": scaled(GPThompsonSampling, width=1.0),
    "GP-TS": scaled(GPThompsonSampling, **NORM, any_lambda=True),
    "EI": scaled(LogExpectedImprovement),
    "EI, observed": scaled(LogExpectedImprovement, incumbent="observed"),
    "EI, given": lambda s, o: LogExpectedImprovement.with_options(best_f=o + 0.5 * s),
    "PI": scaled(LogProbabilityOfImprovement, margin=...),
    "variance only": scaled(VarianceOnly),
    "mean only": scaled(MeanOnly),
    "bounds of both": scaled(LagrangianUpperConfidenceBound, width=2.0),
    "bounds apart": scaled(LagrangianUpperConfidenceBound, width=2.0, separate_bounds=True),
}
UNITS = (1e-12, 1e-8, 1e-4, 1.0, 1e4, 1e8, 1e12)
OFFSETS = (0.0, 1e3, -1e3)
ENDS = ((1e-12, 0.0), (1e-4, 0.1), (1e12, -1e15))


def scaled_kernel(s: float) -> Kernel:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = double([LENGTHSCALE, s * s])
    return kernel


def sum_of_kernels(s: float) -> Kernel:
    """A kernel that only GPyTorch evaluates."""
    kernel = ScaleKernel(RQKernel() + MaternKernel(nu=1.5)).double()
    kernel.outputscale = double(0.5 * s * s)
    return kernel


def model_of(s: float, o: float, kernel: Callable[[float], Kernel] = scaled_kernel) -> Any:
    return BanditGP.with_kernel(kernel(s), noise=NOISE**2 * s * s, prior_mean=o)


def play(
    name: str,
    unit: tuple[float, float],
    num_rounds: int = 16,
    delay: int = 0,
    domain: Any = ARMS,
    kernel: Callable[[float], Kernel] = scaled_kernel,
    rule: str = "",
    is_censored: bool = False,
    **settings: Any,
) -> Tensor:
    """Play a loop with outcomes ``s`` times those at scale 1, plus ``o``; return its points.

    Multipliers have the unit of the reward: their steps are scaled with it.
    """
    s, o = unit
    if rule:
        settings["constraints"] = AdditiveEpochs(1, 5, 0.5 * s, surrogate=rule)
    if is_censored:
        settings["feedback"] = Censored(o - 4.0 * s, max_delay=5, outcome_bound=9.0 * s)
    recipe = METHODS[name](s, o)
    num_initial = 2 if domain is ARMS else 3
    given = {"seed": 3, "num_initial": num_initial, **settings}
    loop = BanditLoop(domain, model_of(s, o, kernel), recipe, **given)
    queries = []
    for t in range(num_rounds):
        queries.append(loop.ask(CONTEXTS[t]) if "context_dim" in settings else loop.ask())
        if t < delay:
            continue
        query, error = queries[t - delay], float(ERRORS[t - delay])
        a, b = query.x.tolist()
        reward = math.sin(5.0 * a) * math.cos(3.0 * b) + a + NOISE * error
        if query.context is not None:
            reward += a * float(query.context)
        extra = {"constraints": [a - 0.5]} if rule else {}
        loop.tell(query.id, s * reward + o, **extra)
    return torch.stack([query.x for query in queries])


PLAIN = [name for name in METHODS if not name.startswith("bounds")]


@pytest.mark.parametrize("name", by_day(PLAIN))
def test_arms_are_those_at_scale_1(name: str) -> None:
    """Every method in every unit; every pair of a unit and an offset with some methods."""
    expected = play(name, (1.0, 0.0), num_rounds=40)
    number = PLAIN.index(name)
    for i, s in enumerate(UNITS):
        o = s * OFFSETS[(number + i) % len(OFFSETS)]
        assert torch.equal(play(name, (s, o), num_rounds=40), expected), (s, o)
    assert len(expected.unique(dim=0)) > 1


VARIANTS: dict[str, dict[str, Any]] = {
    "contexts": {"context_dim": 1},
    "pending": {"delay": 3},
    "pending in contexts": {"delay": 3, "context_dim": 1},
    "a kernel of GPyTorch": {"kernel": sum_of_kernels, "delay": 3, "context_dim": 1},
    "window": {"forgetting": SlidingWindow(8)},
    "weights": {"forgetting": ExponentialWeights(0.95)},
    "time": {"forgetting": TimeVaryingKernel(0.05)},
    "censored": {"delay": 3, "is_censored": True},
    "censored in contexts": {"delay": 3, "is_censored": True, "context_dim": 1},
    "penalized": {"rule": "relabeled"},
    "separate": {"rule": "separate"},
}


def can_be_played(name: str, variant: str) -> bool:
    if name.startswith("bounds") or variant == "separate":
        return name.startswith("bounds") and variant == "separate"
    if variant.startswith("censored"):
        return name in ("IGP-UCB", "GP-TS", "constant width")
    return name != "EI, given" or "contexts" not in variant


@pytest.mark.parametrize(
    ("name", "variant"),
    by_day(
        (name, variant)
        for i, name in enumerate(METHODS)
        for variant in [*VARIANTS][i % 2 :: 2]
        if can_be_played(name, variant) and (variant != "penalized" or name == "constant width")
    ),
)
def test_arms_in_other_settings_are_those_at_scale_1(name: str, variant: str) -> None:
    expected = play(name, (1.0, 0.0), **VARIANTS[variant])
    # with models of both outputs, constraints stay in their own unit
    for s, o in ENDS[2:] if variant == "separate" else ENDS:
        assert torch.equal(play(name, (s, o), **VARIANTS[variant]), expected), (s, o)


@pytest.mark.parametrize(
    "name", ["IGP-UCB", "AMM", "DMM", "Thompson", "EI", "PI", "variance only", "mean only"]
)
def test_points_of_a_box_are_those_at_scale_1(name: str) -> None:
    """At both ends of the range that is stated, to the tolerance of the optimizers."""
    expected = play(name, (1.0, 0.0), 7, domain=BOX)
    for s, o in ((1e-8, 0.0), (1e-8, 1e-2), (1e8, 0.0), (1e8, -1e14)):
        difference = float((play(name, (s, o), 7, domain=BOX) - expected).abs().max())
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
def test_other_scales_are_refused_on_boxes(
    name: str, s: float, o: float, told: str, tmp_path: Any
) -> None:
    with pytest.raises(ValueError, match=told):
        BanditLoop(BOX, model_of(s, o), METHODS[name](s, o), storage=tmp_path / "run.db")
    assert list(tmp_path.iterdir()) == []
    BanditLoop(ARMS, model_of(s, o), METHODS[name](s, o)).ask()


@pytest.mark.parametrize("name", ["IGP-UCB", "DMM", "GP-TS", "EI", "PI"])
def test_replicates_at_any_scale_play_what_loops_play(name: str) -> None:
    played = []
    for s, o in ((1.0, 0.0), *ENDS):
        policy = Policy(model_of(s, o), METHODS[name](s, o), num_initial=2)
        problem = ArmsProblem(CHOICES, s * REWARDS + o, noise_std=NOISE * s)
        result = simulate(problem, policy, 20, 2, seed=4, progress=False)
        assert result.arms is not None
        played.append(result.arms.tolist())
        assert played[-1] == played[0], (s, o)
    for b, seed in enumerate(result.seeds):
        loop = policy.loop(ARMS, seed=seed)
        for t, arm in enumerate(played[-1][b]):
            query = loop.ask()
            assert torch.equal(query.x, CHOICES[arm])
            loop.tell(query.id, float(result.outcomes[b, t]))


def test_moments_of_a_drop_in_at_a_tiny_scale() -> None:
    """GPyTorch's smallest variance is 1e-10 at any scale; here it is in prior variances."""
    s, o = 1e-9, 1e-6
    X, y = CHOICES[::4], REWARDS[::4]
    mean, covariance = posterior(squared_exponential(LENGTHSCALE), X, y, 0.04, CHOICES)
    expected = o + s * (mean + 2.0 * covariance.diagonal().clamp_min(0.0).sqrt())
    model = BanditGP(X, (s * y + o).unsqueeze(-1), scaled_kernel(s), 0.04 * s * s, prior_mean=o)
    acqf = GPUpperConfidenceBound(model, width=2.0)
    assert float((acqf(CHOICES.unsqueeze(-2)) - expected).abs().max()) < 1e-8 * s
    assert acqf.value_scale == pytest.approx((o, s), rel=1e-9)
    # several outputs, as Lagrangian acquisition functions have them
    lagrangian = LagrangianUpperConfidenceBound(
        ModelListGP(model, model), multipliers=[0.0], width=2.0, separate_bounds=True
    )
    assert float((lagrangian(CHOICES.unsqueeze(-2)) - expected).abs().max()) < 1e-8 * s

"""What ``guarantee()`` says before a run: each number of a theorem written out again."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, ScaleKernel

import botorch_bandits as bandits
from botorch_bandits import BanditGP, BanditLoop, ImprovedUpperConfidenceBound
from botorch_bandits.confidence import (
    BoundedNorm,
    BoxGain,
    DesignGain,
    Forecast,
    WaterFillingGain,
)
from botorch_bandits.confidence.horizon import (
    gp_ts_regret_bound,
    igp_ucb_regret_bound,
    noisy_constraints_bounds,
)

ARMS = bandits.Arms(torch.linspace(0.0, 1.0, 14, dtype=torch.float64).unsqueeze(-1))
BOX = bandits.Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
T, VARIANCE, LAM = 300, 4.0, 1.5
B, R, DELTA = 2.0, 0.3, 0.1
BOUNDS: dict[str, Any] = {"rkhs_bound": B, "noise_bound": R, "delta": DELTA}


def scaled(variance: float = VARIANCE) -> Any:
    kernel: Any = ScaleKernel(MaternKernel(nu=2.5)).double()
    numbers = torch.tensor([0.4, variance], dtype=torch.float64)
    kernel.base_kernel.lengthscale, kernel.outputscale = numbers
    return kernel


MODEL = BanditGP.with_kernel(scaled(), noise=LAM * VARIANCE)
MATRIX = scaled()(ARMS.choices).to_dense().detach()
GAIN = DesignGain(MATRIX, LAM * VARIANCE)
S = math.sqrt(VARIANCE)
C1 = 2.0 / math.log(1.0 + 1.0 / LAM)


def total(width: float, gain: Any = GAIN, rounds: int = T) -> float:
    """``2 w C_1 sqrt(T gamma_T)``, in prior standard deviations."""
    return 2.0 * width * math.sqrt(rounds * min(C1 * gain(rounds), rounds))


def play(loop: BanditLoop, num_rounds: int = 4) -> dict[str, Forecast]:
    """Play a few rounds; return what is known before the run, by theorem."""
    for _ in range(num_rounds):
        query = loop.ask()
        given = {"constraints": [float(query.x[0]) - 0.5]} if loop.settings.constraints else {}
        loop.tell(query.id, float(query.x[0]), **given)
    guarantee = loop.guarantee()
    for forecast in guarantee.forecasts:
        assert f"before the run: {forecast}" in guarantee.explain(10_000)
    return {forecast.theorem: forecast for forecast in guarantee.forecasts}


def loop_of(acquisition: Any, **settings: Any) -> BanditLoop:
    given: dict[str, Any] = {"horizon": T, "seed": 0, **settings}
    domain, model = given.pop("domain", ARMS), given.pop("model", MODEL)
    return BanditLoop(domain, model, acquisition, **given)


# --- regret -------------------------------------------------------------------------------------


@pytest.mark.parametrize("any_lambda", [True, False])
@pytest.mark.parametrize("units", ["outcome", "prior"])
@pytest.mark.parametrize("variation", [0.0, 0.01])
def test_theorem_3_of_igp_ucb(any_lambda: bool, units: str, variation: float) -> None:
    rule = ImprovedUpperConfidenceBound.with_options(
        **BOUNDS, any_lambda=any_lambda, units=units, variation=variation
    )
    loop = loop_of(rule)
    found = play(loop)["Chowdhury and Gopalan 2017, Theorem 3"]
    unit = 1.0 if units == "prior" else S
    noise = R / unit / (math.sqrt(LAM) if any_lambda else 1.0)
    one = 0.0 if any_lambda else 1.0
    width = B / unit + noise * math.sqrt(2.0 * (GAIN(T - 1) + one + math.log(1.0 / DELTA)))
    width += variation / unit * math.sqrt((T - 1) / LAM)
    expected = S * (total(width) + 2.0 * variation / unit * T)
    largest = 2.0 * (B + variation) * S / unit
    assert found.value == pytest.approx(min(expected, largest * T), rel=1e-9)
    # what the run sums up of its own widths is less
    so_far = loop.guarantee().regret_bound
    assert so_far is not None
    assert so_far <= largest * 4 + 1e-9


def test_a_whole_run_stays_below_what_was_said_before_it() -> None:
    loop = loop_of(ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True))
    found = play(loop, T)["Chowdhury and Gopalan 2017, Theorem 3"]
    so_far = loop.guarantee().regret_bound
    assert so_far is not None
    assert found.value is not None
    assert so_far <= found.value


def test_theorem_4_of_gp_ts_has_the_number_of_its_function() -> None:
    found = play(loop_of(bandits.GPThompsonSampling.with_options(**BOUNDS)))
    theorem = found["Chowdhury and Gopalan 2017, Theorem 4"]
    assert theorem.value == pytest.approx(2.0 * B * T)  # far below what it could say
    # two arms that are alike and no noise, where it says something
    lam, rounds = 0.05, 50_000
    kernel: Any = MaternKernel(nu=2.5).double()
    kernel.lengthscale = torch.tensor(50.0, dtype=torch.float64)
    two = bandits.Arms([[0.0], [1.0]])
    rule = bandits.GPThompsonSampling.with_options(
        rkhs_bound=B, noise_bound=0.0, delta=DELTA, any_lambda=True
    )
    model = BanditGP.with_kernel(kernel, noise=lam)
    loop = loop_of(rule, domain=two, model=model, horizon=rounds)
    gain = DesignGain(kernel(two.choices).to_dense().detach(), lam)
    (theorem,) = [f for f in loop.guarantee().forecasts if f.theorem.endswith("Theorem 4")]
    expected = gp_ts_regret_bound(rounds, gain, BoundedNorm(B, 0.0, DELTA, lam, True), 2)
    assert expected < 2.0 * B * rounds
    assert theorem.value == pytest.approx(expected, rel=1e-9)


def test_amm_sums_its_own_width() -> None:
    found = play(loop_of(bandits.AMMUpperConfidenceBound.with_options(**BOUNDS)))
    (theorem,) = [f for name, f in found.items() if "Flynn" in name]
    squared = (B / S) ** 2 + (R / S) ** 2 / LAM * 2.0 * (GAIN(T - 1) + math.log(1.0 / DELTA))
    assert theorem.value == pytest.approx(min(S * total(math.sqrt(squared)), 2 * B * T), rel=1e-9)


def test_theorems_of_gp_ucb_and_the_gains_that_they_rest_on() -> None:
    found = play(loop_of(bandits.GPUpperConfidenceBound.with_options(delta=DELTA)))
    width = math.sqrt(2.0 * math.log(14 * T**2 * math.pi**2 / (6.0 * DELTA)))
    theorem = found["Srinivas et al. 2010, Theorem 1"]
    assert theorem.value == pytest.approx(S * total(width), rel=1e-9)
    assert found["the best design on the arms"].value == pytest.approx(GAIN(T), rel=1e-9)

    gain = WaterFillingGain.on(ARMS.choices, scaled(), LAM * VARIANCE)
    rule = bandits.GPUpperConfidenceBound.with_options(
        rkhs_bound=0.01, information_gain=gain, delta=DELTA
    )
    third = play(loop_of(rule, horizon=20))["Srinivas et al. 2010, Theorem 3"]
    width = math.sqrt(2.0 * (0.01 / S) ** 2 + 300.0 * gain(20) * math.log(20 / DELTA) ** 3)
    assert third.value == pytest.approx(min(S * total(width, gain, 20), 0.02 * 20), rel=1e-9)


def test_theorem_2_on_a_box() -> None:
    rule = bandits.GPUpperConfidenceBound.with_options(
        smoothness_a=1.0, smoothness_b=2.0, delta=DELTA
    )
    found = play(loop_of(rule, domain=BOX), 2)
    gain = BoxGain(BOX.bounds, scaled(), LAM * VARIANCE)
    assert found["the best design on a grid of the box, and what lies between"].value == (
        pytest.approx(gain(T), rel=1e-9)
    )
    b = 2.0 / S
    squared = 2.0 * math.log(T**2 * 2.0 * math.pi**2 / (3.0 * DELTA))
    squared += 2.0 * math.log(T**2 * b * math.sqrt(math.log(4.0 / DELTA)))
    expected = S * (total(math.sqrt(squared), gain) + math.pi**2 / 6.0)
    assert found["Srinivas et al. 2010, Theorem 2"].value == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("contexts", [0, 1])
def test_theorems_of_censored_feedback(contexts: int) -> None:
    feedback = bandits.Censored(minimum=0.0, outcome_bound=2.5, max_delay=2)
    rule = ImprovedUpperConfidenceBound.with_options(**BOUNDS)
    loop = loop_of(rule, feedback=feedback, context_dim=contexts, horizon=100_000)
    if contexts:
        loop.tell(loop.ask(context=[0.3]).id, 0.5)
    (theorem,) = [f for f in loop.guarantee().forecasts if f.theorem.startswith("Verma")]
    assert theorem.theorem.endswith("Theorem 2 (with contexts also Theorem 4)")
    assert theorem.wording.startswith("rho_m times the cumulative regret")
    rounds = 100_000

    def gain(n: int) -> float:
        return 0.5 * n * math.log1p(1.0 / LAM) if contexts else GAIN(n)

    assumed = BoundedNorm(B / S, R / S, DELTA, LAM, outcome_bound=2.5 / S)
    expected = igp_ucb_regret_bound(rounds, gain, assumed, max_delay=2)
    assert theorem.value == pytest.approx(S * expected, rel=1e-9)
    if not contexts:
        assert theorem.value is not None
        assert theorem.value < 2.0 * B * rounds


# --- constraints --------------------------------------------------------------------------------


def test_bounds_11_and_12_of_algorithm_2() -> None:
    rule = bandits.MultiplicativeEpochs(1, 50, surrogate="fresh", unconstrained_gap=0.4)
    acquisition = ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)
    found = play(loop_of(acquisition, constraints=rule, horizon=290))
    L, length = 6, 50
    noise = R / S / math.sqrt(LAM)
    width = B / S + noise * math.sqrt(2.0 * (GAIN(length - 1) + math.log(L / DELTA)))
    U = S * L * min(total(width, GAIN, length), 2.0 * B / S * length)
    assert found["Shi and Eryilmaz 2022, (11)"].value == pytest.approx(U, rel=1e-9)
    expected = length * math.log(1.0 + L * 0.4 + U / length)
    assert found["Shi and Eryilmaz 2022, (12)"].value == pytest.approx(expected, rel=1e-9)
    other = bandits.MultiplicativeEpochs(1, 50, surrogate="fresh")
    without = play(loop_of(acquisition, constraints=other))["Shi and Eryilmaz 2022, (12)"]
    assert without.value is None
    assert "unconstrained_gap=" in without.wording


def test_theorem_2_of_algorithm_3_with_a_slater_margin() -> None:
    L, length, mu, eps, M = 5, 3000, 0.2, 1.5, 2.0
    rule = bandits.AdditiveEpochs(
        1, length, mu, surrogate="fresh", slater_margin=eps, largest_constraint=M
    )
    acquisition = ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)
    loop = loop_of(acquisition, constraints=rule, horizon=L * length)
    for _ in range(2):
        query = loop.ask()
        loop.tell(query.id, 0.1, constraints=[-0.2])
    values = [f.value for f in loop.guarantee().forecasts]
    # in prior standard deviations; multipliers times constraints are rewards, so that the step in
    # them is mu s^2 in units of s
    assumed = BoundedNorm(B / S, R / S, DELTA, LAM, any_lambda=True)
    found = noisy_constraints_bounds(L, length, GAIN, assumed, mu * S, eps / S, B / S, M / S)
    assert found.realized_violation is not None
    expected = [S * found.regret, S * found.violation, S * found.realized_violation]
    assert values[1:] == pytest.approx([*expected, found.multiplier], rel=1e-9)
    # the margin that it takes, in raw units
    share = DELTA / (2 * L)
    term = R / math.sqrt(LAM) * math.sqrt(2.0 * (GAIN(length - 1) + math.log(1.0 / share)))
    W = 2.0 * math.sqrt(C1 * GAIN(length) / length)
    needed = W * term + 2.0 * R * (2.0 + math.sqrt(math.log(1.0 / share))) / math.sqrt(length)
    assert values[0] == pytest.approx(needed, rel=1e-9)


def test_a_margin_that_is_missing_or_too_small_is_told() -> None:
    acquisition = ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)
    for given, words in (
        ({}, "slater_margin= and largest_constraint="),
        ({"slater_margin": 0.01, "largest_constraint": 1.0}, "a margin of 0.01 is too small"),
    ):
        rule = bandits.AdditiveEpochs(1, 30, 0.2, surrogate="fresh", **given)
        loop = loop_of(acquisition, constraints=rule)
        play(loop)
        needed, told = loop.guarantee().forecasts
        assert needed.value is not None
        assert needed.value > 0.01
        assert words in told.wording
        assert told.value is None


# --- change-points ------------------------------------------------------------------------------


def test_spacing_and_rate_of_changes() -> None:
    rule = bandits.ChangePointUpperConfidenceBound.with_options(horizon=90, smoothness=2.5)
    loop = loop_of(rule, restart=bandits.OracleRestart((20, 60)), horizon=90)
    found = play(loop)
    assert found["Avanesov, (3.10)"].value == pytest.approx(math.sqrt(40) / 20, rel=1e-12)
    exponent = (5.0 + 3.0 * 2.0) / (10.0 + 2.0 * 2.0)
    rate = (20**exponent + 40**exponent + 30**exponent) * math.log(90) ** 3
    assert found["Avanesov, (3.9)"].value == pytest.approx(rate, rel=1e-12)
    assert found["Avanesov, (3.9)"].rest.startswith(" Delta^-2.333")
    assert not loop.guarantee().holds

    detector = bandits.ChangePointDetector(scaled(1.0), smoothness=2.5, lengthscale=None)
    restart = bandits.ChangePointRestart(exploration=1.0, detector=detector, smallest_change=0.5)
    found = play(loop_of(rule, restart=restart, horizon=90), 25)
    spacing = math.sqrt(25) / 25
    power = 2.0 + 2.0 / 6.0
    assert found["Avanesov, (3.10)"].value == pytest.approx(spacing, rel=1e-12)
    steep = (math.log(25) / 0.5) ** power * spacing
    assert found["Avanesov, (3.8)"].value == pytest.approx(steep, rel=1e-12)
    assert found["Avanesov, (3.9)"].value == pytest.approx(
        0.5**-power * 25**exponent * math.log(25) ** 3, rel=1e-12
    )


# --- where there is none ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"horizon": None},
        {"forgetting": bandits.SlidingWindow(10)},
        {"acquisition": ImprovedUpperConfidenceBound.with_options(width=2.0)},
        {"acquisition": ImprovedUpperConfidenceBound.with_options()},
        {"restart": bandits.OracleRestart((3,))},
        {"model": BanditGP.with_kernel(scaled(), noise=1.0, refit_every=3)},
    ],
)
def test_nothing_is_said_where_nothing_is_guaranteed(changed: dict[str, Any]) -> None:
    given = {"acquisition": ImprovedUpperConfidenceBound.with_options(**BOUNDS), **changed}
    loop = loop_of(given.pop("acquisition"), **given)
    assert not any("regret" in f.wording for f in play(loop).values())


def test_a_prior_variance_that_grows_with_the_point_is_looked_at() -> None:
    kernel: Any = LinearKernel().double()
    kernel.variance = torch.tensor(1.0, dtype=torch.float64)
    model = BanditGP.with_kernel(kernel, noise=1.5)
    rule = ImprovedUpperConfidenceBound.with_options(**BOUNDS)
    small = play(loop_of(rule, model=model, horizon=2000))  # arms in [0, 1]: at most 1
    gain = DesignGain(kernel(ARMS.choices).to_dense().detach(), 1.5)
    assert small["the best design on the arms"].value == pytest.approx(gain(2000), rel=1e-9)
    large = bandits.Arms(3.0 * ARMS.choices)
    for settings in ({"domain": large}, {"domain": BOX}):
        assert play(loop_of(rule, model=model, **settings)) == {}


def test_rounds_that_fail_gain_nothing_so_that_nothing_is_said() -> None:
    loop = loop_of(ImprovedUpperConfidenceBound.with_options(**BOUNDS))
    assert play(loop)
    loop.fail(loop.ask().id, reason="power cut")
    assert loop.guarantee().holds
    assert loop.guarantee().forecasts == ()


def test_rounds_of_others_add_what_they_can_cost() -> None:
    rule = ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)
    name = "Chowdhury and Gopalan 2017, Theorem 3"
    plain = play(loop_of(rule, horizon=3000))[name]
    others = play(loop_of(rule, horizon=3000, num_initial=3), 5)[name]
    assert plain.value is not None
    assert others.value == pytest.approx(plain.value + 3 * 2.0 * B, rel=1e-9)
    assert "(and 3 others so far)" in others.wording
    repeated = play(loop_of(rule, horizon=3000, repeats=1.5))[name]
    assert repeated.value == pytest.approx(1.5 * plain.value, rel=1e-9)


def test_epochs_with_models_of_their_own_have_no_number() -> None:
    rule = bandits.MultiplicativeEpochs(
        1, 4, surrogate="fresh", unconstrained_gap=0.1, models=[MODEL]
    )
    acquisition = ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)
    found = play(loop_of(acquisition, model=None, constraints=rule))
    assert found["Shi and Eryilmaz 2022"].value is None


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, "much"])
def test_bad_knowledge_is_named(value: Any) -> None:
    for name in ("slater_margin", "largest_reward", "largest_constraint"):
        with pytest.raises((TypeError, ValueError), match=name):
            bandits.AdditiveEpochs(1, 4, **{name: value})
    if value != 0.0:
        with pytest.raises((TypeError, ValueError), match="unconstrained_gap"):
            bandits.MultiplicativeEpochs(1, 4, unconstrained_gap=value)
    detector = bandits.ChangePointDetector(MaternKernel(nu=2.5))
    with pytest.raises((TypeError, ValueError), match="smallest_change"):
        bandits.ChangePointRestart(exploration=1.0, detector=detector, smallest_change=value)

"""A loop whose user names neither a model nor an acquisition."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Categorical,
    Censored,
    FittedSingleTaskGP,
    Float,
    GPUpperConfidenceBound,
    Integer,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    OracleRestart,
    PrimalDual,
    RandomSearch,
    SlidingWindow,
    Space,
)
from botorch_bandits.confidence import check_model
from botorch_bandits.default_search import FlatOutcomesWarning
from botorch_bandits.fingerprints import fingerprint
from botorch_bandits.loop.settings import DEFAULT_WIDTH, EARNING_WIDTH, OBJECTIVES
from botorch_bandits.models import winsorized
from tests.records import rebuilt


def box() -> Box:
    return Box([(-1.0, 2.0), (0.0, 10.0)], num_restarts=3, raw_samples=32)


def reward(x: Tensor) -> float:
    """The best point is (0.5, 3), where it is 20."""
    return 20.0 - 5.0 * float(x[0] - 0.5) ** 2 - 0.3 * float(x[1] - 3.0) ** 2


def make(domain: Any = None, **options: Any) -> BanditLoop:
    return BanditLoop(box() if domain is None else domain, **{"seed": 3} | options)


def play(loop: BanditLoop, num_rounds: int) -> list[list[float]]:
    while loop.history.num_queries < num_rounds:
        query = loop.ask()
        loop.tell(query.id, reward(query.x))
    return [query.x.tolist() for query in loop.history.queries]


# --- what is played -------------------------------------------------------------------------------


def test_the_best_point_is_sought_by_expected_improvement_of_the_fitted_model() -> None:
    loop = make()
    played = play(loop, 8)
    origins = [query.origin for query in loop.history.queries]
    assert origins == ["initial"] * 5 + ["acquisition"] * 3
    X = torch.tensor(played, dtype=torch.float64)
    Y = torch.tensor([[reward(x)] for x in X], dtype=torch.float64)
    model = FittedSingleTaskGP.for_domain(box())(X, Y)
    acquisition = LogExpectedImprovement(model, X_observed=X, augmented=True)
    query = loop.ask()
    expected = float(acquisition(query.x.unsqueeze(0)))
    assert query.diagnostics["acquisition_value"] == pytest.approx(expected, abs=1e-8)
    assert expected >= box().maximize(acquisition, seed=11)[1] - 0.05


def test_reward_on_the_way_is_collected_by_a_narrow_bound() -> None:
    loop = make(acquisition="earned")
    play(loop, 6)
    query = loop.ask()
    seen = loop.history.queries[5].diagnostics
    assert seen["width"] == query.diagnostics["width"] == EARNING_WIDTH
    value = seen["mean"] + EARNING_WIDTH * seen["standard_deviation"]
    assert seen["acquisition_value"] == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_default_finds_the_best_point(objective: str) -> None:
    loop = make(acquisition=objective)
    play(loop, 16)
    best = loop.best()
    assert best is not None
    assert best[1].reward > 19.5


def settings_of(**options: Any) -> tuple[type, Any]:
    acquisition = make(**options).settings.acquisition
    return acquisition.acquisition_class, acquisition.options.get("width")


def test_other_settings_take_a_bound() -> None:
    weighs, penalizes = PrimalDual(1, 10.0, divisor=3.0), AdditiveEpochs(1, 5, 0.5)
    censored = Censored(0.0, 30.0, max_delay=5)
    for options, expected in (
        ({}, (LogExpectedImprovement, None)),
        ({"acquisition": "best"}, (LogExpectedImprovement, None)),
        ({"constraints": penalizes}, (LogExpectedImprovement, None)),
        ({"context_dim": 1}, (GPUpperConfidenceBound, DEFAULT_WIDTH)),
        ({"context_dim": 1, "acquisition": "earned"}, (GPUpperConfidenceBound, EARNING_WIDTH)),
        ({"feedback": censored}, (GPUpperConfidenceBound, DEFAULT_WIDTH)),
        ({"constraints": weighs}, (LagrangianUpperConfidenceBound, DEFAULT_WIDTH)),
    ):
        assert settings_of(**options) == expected, options


def test_five_rounds_are_drawn_where_no_acquisition_is_given() -> None:
    model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.1)
    bound = GPUpperConfidenceBound.with_options(width=2.0)
    assert make().settings.num_initial == 5
    assert make(model=model).settings.num_initial == 5
    assert make(num_initial=2).settings.num_initial == 2
    assert make(num_initial=0).settings.num_initial == 0
    assert make(model=model, acquisition=bound).settings.num_initial == 0
    assert make(acquisition=RandomSearch()).settings.num_initial == 0


def with_one_bad_reward(**options: Any) -> tuple[BanditLoop, Tensor, Tensor]:
    """Return a loop with rewards of which one is far below the others, its inputs and rewards."""
    given = torch.tensor([[-1.0, 0.0], [0.0, 4.0], [1.0, 2.0], [1.5, 9.0], [2.0, 5.0], [0.4, 3.0]])
    loop = make(**options)
    for x in given.double():
        value = reward(x) - 1e6 * float(x[0] == -1.0)
        parts = {"constraints": [0.0]} if loop.settings.num_constraints else {}
        context = {"context": [0.5]} if loop.settings.context_dim else {}
        loop.attach(x.tolist(), value, **parts, **context)
    return loop, *loop.history.arrived()


def means(model: Any, X: Tensor) -> Tensor:
    mean: Tensor = model.posterior(X).mean.detach()
    return mean


def test_the_default_chooses_with_very_low_rewards_raised_and_reports_what_was_observed() -> None:
    loop, X, Y = with_one_bad_reward()
    build = FittedSingleTaskGP.for_domain(box())
    assert float(Y.min()) < -9e5 < -1e3 < float(winsorized(Y).min())
    before = loop.recommend()
    query = loop.ask()
    chosen_with = LogExpectedImprovement(build(X, winsorized(Y)), X_observed=X, augmented=True)
    value = chosen_with(query.x.reshape(1, -1))
    assert query.diagnostics["acquisition_value"] == pytest.approx(float(value), rel=1e-9)
    # reports are of the model of the rewards as they were observed
    expected = build(X, Y)
    assert torch.equal(means(loop.current_model(), X), means(expected, X))
    recommended = loop.recommend()
    assert torch.equal(recommended.x, before.x)
    at = expected.posterior(recommended.x.reshape(1, -1))
    assert recommended.mean == pytest.approx(at.mean.item(), rel=1e-9)
    assert torch.equal(loop.check_model().one_step, check_model(expected).one_step)
    assert loop.settings.model is not None
    assert fingerprint({"model": loop.settings.model}) == fingerprint(
        {"model": FittedSingleTaskGP.for_domain(box())}
    )
    given = make(model=build, acquisition=LogExpectedImprovement.with_options(augmented=True))
    rebuilt(given, loop.history)
    assert torch.equal(given.ask().x, loop.ask().x)


class OwnFitted(FittedSingleTaskGP):
    """A subclass, which may have ideas of its own about outcomes."""


@pytest.mark.parametrize(
    "options",
    [
        {"acquisition": "earned"},
        {"acquisition": LogExpectedImprovement.with_options()},
        {"acquisition": LogExpectedImprovement.with_options(augmented=True, maximize=False)},
        {"acquisition": GPUpperConfidenceBound.with_options(width=2.0)},
        {"model": OwnFitted(box().bounds)},
        {"restart": OracleRestart((50,))},
        {"forgetting": SlidingWindow(50)},
        {"constraints": AdditiveEpochs(1, 5, 0.5)},
    ],
    ids=lambda options: str(*options),
)
def test_all_others_choose_with_rewards_as_they_were_told(options: dict[str, Any]) -> None:
    loop, _, _ = with_one_bad_reward(**options)
    assert loop.settings.default_search != "best"


# --- where it is played ---------------------------------------------------------------------------


def test_contexts_are_seen() -> None:
    loop = make(Box([(0.0, 1.0)], num_restarts=3, raw_samples=32), context_dim=1)
    for t in range(24):
        context = float(t % 2)
        query = loop.ask(context=[context])
        loop.tell(query.id, -((float(query.x) - 0.2 - 0.6 * context) ** 2))
    late = {t % 2: float(q.x) for t, q in enumerate(loop.history.queries) if t >= 22}
    assert late[0] == pytest.approx(0.2, abs=0.15)
    assert late[1] == pytest.approx(0.8, abs=0.15)


def test_a_space_is_learned_with_its_categories() -> None:
    domain = Space({"x": Float(0.0, 1.0), "kind": Categorical(["a", "b"]), "n": Integer(1, 4)})
    loop = make(domain)
    rewards = []
    for _ in range(14):
        query = loop.ask()
        known = query.parameters
        rewards.append(
            float(known["kind"] == "b") - (known["x"] - 0.4) ** 2 - 0.1 * abs(known["n"] - 3)
        )
        loop.tell(query.id, rewards[-1])
    assert max(rewards) > 0.95
    assert loop.current_model().covar_module.base_kernel.lengthscale.numel() == 4


# --- where the model cannot be followed -----------------------------------------------------------


def peak(where: Tensor, radius: float) -> Any:
    """Return a function that is 0 but for a tenth of the unit cube."""
    return lambda x: max(0.0, 1.0 - float((x - where).norm()) / radius)


RADIUS = {1: 0.05, 2: 0.178, 3: 0.288, 5: 0.453}


def first_hit(
    domain: Any, reward: Any, seed: int, noise: Any = lambda: 0.0, **options: Any
) -> int | None:
    """Return when a loop that observed five zeros finds a peak; None if not in 40 rounds."""
    loop, draws = make(domain, seed=seed, **options), torch.Generator().manual_seed(seed)
    sign = 1.0 if options.get("maximize", True) else -1.0
    while loop.history.num_queries < 5:
        x = domain.sample(1, draws).squeeze(0)
        if reward(x) == 0.0:
            loop.attach(x, noise())
    for t in range(40):
        query = loop.ask()
        if reward(query.x) > 0.0:
            return t
        loop.tell(query.id, sign * reward(query.x) + noise())
    return None


def test_a_flat_start_covers_the_domain_and_says_so_once() -> None:
    loop = make(Box([(0.0, 1.0), (0.0, 4.0)]))
    for x in ([0.1, 0.4], [0.9, 0.4], [0.5, 2.0]):
        loop.attach(x, 7.0)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(32):
            query = loop.ask()
            loop.tell(query.id, 7.0)
    assert [each.category for each in warned] == [FlatOutcomesWarning]
    assert {query.origin for query in loop.history.queries[5:]} == {"exploration"}
    cells = {(int(4 * q.x[0]), int(q.x[1])) for q in loop.history.queries[3:]}
    assert len(cells) == 16  # each of the 4 x 4 parts has been looked at
    again = make(Box([(0.0, 1.0), (0.0, 4.0)]))
    rebuilt(again, loop.history)
    assert torch.equal(again.ask().x, loop.ask().x)


@pytest.mark.parametrize(("dim", "seed"), [(1, 0), (2, 0), (2, 1), (5, 0)])
def test_a_peak_in_a_tenth_of_the_domain_is_found(dim: int, seed: int) -> None:
    draws, r = torch.Generator().manual_seed(100 + seed), RADIUS[dim]
    where = r + (1.0 - 2.0 * r) * torch.rand(dim, generator=draws, dtype=torch.float64)
    assert first_hit(Box([(0.0, 1.0)] * dim), peak(where, r), seed) is not None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "minimized", "noise", "slope", "rounding", "earned"])
@pytest.mark.parametrize("dim", RADIUS)
def test_a_peak_is_found_in_at_least_19_of_20_runs(dim: int, kind: str) -> None:
    r, found = RADIUS[dim], 0
    for seed in range(20):
        draws = torch.Generator().manual_seed(100 + seed)
        where = r + (1.0 - 2.0 * r) * torch.rand(dim, generator=draws, dtype=torch.float64)
        scale = {"noise": 0.05, "slope": 1e-3, "rounding": 1e-16}.get(kind, 0.0)

        def disturb(scale: float = scale, draws: Any = draws) -> float:
            offset = float(kind == "rounding")
            return offset + scale * float(torch.randn((), generator=draws, dtype=torch.float64))

        options: dict[str, Any] = {"maximize": kind != "minimized"}
        options |= {"acquisition": "earned"} if kind == "earned" else {}
        found += (
            first_hit(Box([(0.0, 1.0)] * dim), peak(where, r), seed, disturb, **options) is not None
        )
    assert found >= 19


def of_whole_numbers() -> Box:
    return Box([(0.0, 19.0)] * 2, integer_dims=[0, 1])


@pytest.mark.parametrize("acquisition", OBJECTIVES)
def test_a_peak_is_found_among_arms_and_whole_numbers(acquisition: str) -> None:
    arms = Arms(torch.rand(200, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    grid = of_whole_numbers()
    at = torch.tensor([12.0, 5.0], dtype=torch.float64)
    for seed in range(3):
        assert first_hit(grid, peak(at, 3.6), seed, acquisition=acquisition) is not None
        hit = first_hit(arms, peak(arms.choices[seed], 0.2), seed, acquisition=acquisition)
        assert hit is not None


def test_without_noise_no_point_is_asked_for_twice_while_others_remain() -> None:
    few = Arms(box().sample(30, torch.Generator().manual_seed(4)))
    many = Box([(0.0, 29.0)] * 3, integer_dims=[0, 1, 2])  # too many to be listed
    for domain, num_rounds in ((few, 30), (of_whole_numbers(), 40), (many, 40)):
        span = domain.input_bounds[1] - domain.input_bounds[0]
        best = domain.sample(1, torch.Generator().manual_seed(7)).squeeze(0)
        loop, pending = make(domain), []
        for _ in range(num_rounds):
            pending.append(loop.ask())
            if len(pending) > 3:
                told = pending.pop(0)
                loop.tell(told.id, -float(((told.x - best) / span).square().sum()))
        asked = torch.stack([query.x for query in loop.history.queries])
        assert len(asked.unique(dim=0)) == num_rounds
    assert few.arm_of(make(few, num_initial=0).ask().x) is not None


def test_with_noise_an_arm_is_asked_for_again_but_not_while_it_is_pending() -> None:
    loop, draws = make(Arms(torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1))), []
    noise = torch.Generator().manual_seed(0)
    for _ in range(40):
        draws.append(loop.ask())
        assert len({query.arm for query in draws}) == len(draws)
        if len(draws) > 3:
            told = draws.pop(0)
            loop.tell(
                told.id, -(float(told.x - 0.5) ** 2) + float(torch.randn((), generator=noise))
            )


def test_beside_a_point_that_was_played_the_output_scale_is_not_learned() -> None:
    """Once a peak is found, only its last digits are worth anything to the learned scales."""
    domain, beside = Box([(0.0, 1.0)], num_restarts=4, raw_samples=64), 0
    build = FittedSingleTaskGP.for_domain(domain)
    loop = make(domain)
    for _ in range(24):
        X, Y = loop.history.arrived()
        query = loop.ask()
        if query.origin == "acquisition":
            values = []
            for model in (build(X, winsorized(Y)), build.steady()(X, winsorized(Y))):
                rule = LogExpectedImprovement(model, X_observed=X, augmented=True)
                values.append(rule(query.x.reshape(1, -1)).item())
            learned, fixed = (query.diagnostics["acquisition_value"] - value for value in values)
            assert min(abs(learned), abs(fixed)) < 1e-6
            if abs(learned) > 1e-6:
                beside += 1
            else:
                sees_noise = build(X, winsorized(Y)).likelihood.noise.item() >= 1e-4
                assert sees_noise or (X - query.x).abs().min() >= 1e-3
        x = float(query.x)
        loop.tell(query.id, math.exp(-(((x - 0.3) / 0.1) ** 2)) + math.exp(-10.0 * (x - 0.8) ** 2))
    assert beside > 0
    kernel = build.steady()(X, Y).covar_module
    assert isinstance(kernel, MaternKernel)


# --- what is recommended --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "offset"), [(1.0, 0.0), (1e-6, 0.0), (1.0, 1e7), (-1e3, 1e5)], ids=str
)
def test_without_noise_the_best_point_that_was_played_is_recommended(
    scale: float, offset: float
) -> None:
    X = box().sample(1000, torch.Generator().manual_seed(0))
    spread = float(torch.tensor([reward(x) for x in X]).std())
    for seed in range(3):
        loop = make(seed=seed, maximize=scale > 0.0)
        for _ in range(12):
            query = loop.ask()
            loop.tell(query.id, offset + scale * reward(query.x))
        best = loop.best()
        assert best is not None
        recommended = loop.recommend()
        assert reward(best[0].x) - reward(recommended.x) < 1e-3 * spread, seed
        assert recommended.mean == pytest.approx(best[1].reward, abs=0.05 * abs(scale))


def test_with_noise_the_largest_mean_is_recommended_and_not_the_luckiest_outcome() -> None:
    loop = make(Arms(torch.linspace(0.0, 1.0, 6, dtype=torch.float64).unsqueeze(-1)))
    noise = torch.Generator().manual_seed(0)
    for k in range(60):
        value = -((k % 6 / 5.0 - 0.4) ** 2) + 0.3 * torch.randn((), generator=noise)
        loop.attach([k % 6 / 5.0], float(value))
    model = loop.current_model()
    assert loop.recommend().arm == int(means(model, loop.settings.domain.choices).argmax())
    best = loop.best()
    assert best is not None
    assert loop.recommend().mean < best[1].reward


def test_where_nobody_looked_a_fitted_model_has_to_be_sure() -> None:
    domain = Arms(torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1))
    loop = make(domain)
    for x, value in ((0.0, 0.0), (0.125, 0.1), (0.25, 0.25), (0.375, 0.45), (0.5, 0.7)):
        loop.attach([x], value)
    posterior = loop.current_model().posterior(domain.choices)
    mean, deviation = posterior.mean.squeeze(-1), posterior.variance.squeeze(-1).sqrt()
    assert int(mean.argmax()) > 4  # the slope goes on beyond what was played
    sure = mean - 2.0 * deviation
    assert loop.recommend().arm == (4 if float(sure[5:].max()) < 0.7 else int(sure.argmax()))


@pytest.mark.parametrize("acquisition", ["best", "earned"])
@pytest.mark.parametrize("on_arms", [False, True], ids=["box", "arms"])
def test_points_do_not_depend_on_the_unit_of_outcomes(acquisition: str, on_arms: bool) -> None:
    domain = Arms(box().sample(40, torch.Generator().manual_seed(1))) if on_arms else box()
    played = {}
    for exponent in (-40, 0, 40):
        loop = make(domain, acquisition=acquisition)
        for _ in range(18):
            query = loop.ask()
            loop.tell(query.id, 2.0**exponent * reward(query.x))
        played[exponent] = torch.stack([query.x for query in loop.history.queries])
    span = box().bounds[1] - box().bounds[0]
    for exponent in (-40, 40):
        assert ((played[exponent] - played[0]).abs() / span).max() < 1e-4


# --- rounds that choose from a part of the domain -------------------------------------------------


def hill_at_the_left(x: Tensor) -> float:
    return -5.0 * float(x[0]) - 4.0 * float(x[1] - 0.6) ** 2


def improvement(model: Any, best: Tensor, X: Tensor) -> Tensor:
    """The logarithm of the expected improvement over one number, by its textbook formula."""
    posterior, normal = model.posterior(X), torch.distributions.Normal(0.0, 1.0)
    mean, deviation = posterior.mean.squeeze(-1), posterior.variance.squeeze(-1).sqrt()
    z = ((mean - best) / deviation).double()
    return (deviation * (normal.log_prob(z).exp() + z * normal.cdf(z))).log().detach()


def test_improvement_is_over_the_best_of_what_a_round_can_choose() -> None:
    acquisition = LogExpectedImprovement.with_options()
    unit = Box([(0.0, 1.0)] * 2, num_restarts=3, raw_samples=64)
    grid = torch.linspace(0.0, 1.0, 401, dtype=torch.float64)
    slice_at_one = torch.stack([torch.ones_like(grid), grid], dim=-1)
    arms = Arms(unit.sample(30, torch.Generator().manual_seed(2)))
    low = (arms.choices[:, 0] > 0.5).nonzero().squeeze(-1)
    kernel = ScaleKernel(MaternKernel(nu=2.5)).double()
    given = BanditGP.with_kernel(kernel, noise=0.01, lengthscale=0.3)
    for domain, model, asked in (
        (unit, None, {"fixed": {0: 1.0}}),
        (arms, None, {"available": low.tolist()}),
        (arms, given, {"available": low.tolist()}),
    ):
        loop = make(domain, model=model, acquisition=acquisition, num_initial=8)
        for _ in range(10):
            query = loop.ask()
            loop.tell(query.id, hill_at_the_left(query.x))
        points = slice_at_one if domain is unit else arms.choices[low]
        built = loop.current_model()
        values = improvement(built, built.posterior(points).mean.max().detach(), points)
        query = loop.ask(**asked)
        assert query.diagnostics["acquisition_value"] == pytest.approx(
            float(values.max()), abs=1e-3
        )
        if domain is arms:
            assert query.arm == int(low[values.argmax()])
        # over the best of the whole domain, next to nothing is left to improve
        whole = improvement(built, loop.history.arrived()[1].max(), points)
        assert float(whole.max()) < float(values.max()) - 1.0

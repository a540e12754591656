"""`recommend()` against dense textbook bounds, and where it says that there is no certificate."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.means import ZeroMean
from records import ON_BOXES, assert_same, rebuilt

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
    Categorical,
    Censored,
    DMMUpperConfidenceBound,
    ExponentialWeights,
    Float,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Hallucinated,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    OracleRestart,
    RandomizedUpperConfidenceBound,
    RandomSearch,
    SlidingWindow,
    Space,
)
from botorch_bandits.confidence.igp_ucb import SUB_GAUSSIAN_ROWS
from botorch_bandits.loop.recommendation import Recommendation
from botorch_bandits.models import candidate_grid

NOISE, LENGTHSCALE, B, R, DELTA = 0.05, 0.3, 2.0, 0.2, 0.1
GRID, FINE = np.linspace(0.0, 1.0, 9), np.linspace(0.0, 1.0, 2001)
ARMS = Arms(torch.from_numpy(GRID).unsqueeze(-1))
BOX = Box([[0.0], [1.0]])
KNOWN: dict[str, Any] = {"rkhs_bound": B, "noise_bound": R, "delta": DELTA, "any_lambda": True}
IGP_UCB = ImprovedUpperConfidenceBound.with_options(**KNOWN)
MODEL = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE)


def make(domain: Any, acquisition: Any, model: Any = MODEL, **options: Any) -> BanditLoop:
    return BanditLoop(domain, model, acquisition, **options)


def rewards(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of arms, and outcomes there."""
    random = np.random.default_rng(seed)
    arms = random.integers(len(GRID) - 2, size=count)
    return arms, np.sin(4.0 * GRID[arms]) + 0.2 * random.standard_normal(count)


def fill(loop: BanditLoop, seed: int = 0, count: int = 12, **also: Any) -> BanditLoop:
    for arm, reward in zip(*rewards(seed, count), strict=True):
        loop.attach([GRID[arm]], reward, **also)
    return loop


def rbf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * (a[:, None] - b[None, :]) ** 2 / LENGTHSCALE**2)


def dense(
    x: np.ndarray, y: np.ndarray, at: np.ndarray, noise: Any = NOISE
) -> tuple[np.ndarray, np.ndarray, float]:
    """Posterior mean, standard deviation and realized gain of rows with their noise variances."""
    N = np.diag(np.broadcast_to(noise, x.shape))
    k, K = rbf(at, x), rbf(x, x)
    variance = 1.0 - np.einsum("ij,ji->i", k, np.linalg.solve(K + N, k.T))
    gain = 0.5 * float(np.linalg.slogdet(np.eye(len(x)) + np.linalg.solve(N, K))[1])
    return k @ np.linalg.solve(K + N, y), np.sqrt(variance), gain


def igp_width(gain: float, delta: float = DELTA, ratio: float = R / math.sqrt(NOISE)) -> float:
    """For every ``lam``; the ratio is that of noise bound and modeled noise."""
    return B + ratio * math.sqrt(2.0 * (gain + math.log(1.0 / delta)))


def finite_width(num_rounds: int) -> float:
    return math.sqrt(2.0 * math.log(len(GRID) * num_rounds**2 * math.pi**2 / (6.0 * DELTA)))


def check(found: Recommendation, bounds: Any, domain: Any, points: Any = None) -> None:
    """What is recommended is that of dense bounds: on a box as well as a fine grid is, or better.

    Args:
        found: The recommendation.
        bounds: From points to their mean, standard deviation and width.
        domain: Of the loop.
        points: What could be recommended; all points by default.
    """
    mean, deviation, width = bounds(np.array(found.point))
    assert found.mean == pytest.approx(mean[0], abs=1e-8)
    assert found.standard_deviation == pytest.approx(deviation[0], abs=1e-8)
    assert found.lower_bound == pytest.approx(mean[0] - width * deviation[0], abs=1e-8)
    assert found.upper_bound == pytest.approx(mean[0] + width * deviation[0], abs=1e-8)
    mean, deviation, width = bounds(GRID if domain is ARMS else FINE)
    best = (mean + width * deviation).max()
    if points is not None:
        mean, deviation, width = bounds(points)
    lower = (mean - width * deviation).max()
    most = math.inf if found.trivial_certificate is None else found.trivial_certificate
    difference = found.best_possible - found.lower_bound
    assert found.certificate == pytest.approx(min(difference, most), abs=1e-10)
    assert ("nothing beyond that yet" in str(found)) == (difference >= most)
    # between the points of the grid of a box it may be better by little
    slack = 1e-8 if domain is ARMS else 1e-3
    assert -1e-8 <= found.lower_bound - lower <= slack
    assert -1e-8 <= found.best_possible - best <= slack
    assert domain is ARMS or "numerical search" in found.assumptions[-1]
    assert not found.reasons
    assert found.theorem


FINITE = GPUpperConfidenceBound.with_options(delta=DELTA)
ON_BOTH = pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])


@ON_BOTH
@pytest.mark.parametrize("seed", range(3))
def test_the_certificate_is_that_of_dense_algebra(domain: Any, seed: int) -> None:
    arms, y = rewards(seed, 15)
    x = GRID[arms]
    rules: list[tuple[Any, Any, float]] = [
        (IGP_UCB, igp_width, DELTA),
        (
            GPThompsonSampling.with_options(**KNOWN),
            lambda gain: igp_width(gain, DELTA / 2.0),
            DELTA / 2.0,
        ),
    ]
    if domain is ARMS:
        rules.append((FINITE, lambda gain: finite_width(16), DELTA))
    for acquisition, width, delta in rules:

        def bounds(at: np.ndarray, width: Any = width) -> tuple[np.ndarray, np.ndarray, float]:
            mean, deviation, gain = dense(x, y, at)
            return mean, deviation, width(gain)

        loop = fill(make(domain, acquisition), seed, 15)
        found = loop.recommend()
        check(found, bounds, domain)
        check(loop.recommend(among="played"), bounds, domain, x)
        assert found.delta == pytest.approx(delta)
        assert found.trivial_certificate == (None if acquisition is FINITE else 2.0 * B)
        if domain is ARMS:
            assert found.point == [GRID[found.arm]]


@ON_BOTH
def test_where_the_acquisition_minimizes_so_does_the_recommendation(domain: Any) -> None:
    least = fill(make(domain, ImprovedUpperConfidenceBound.with_options(**KNOWN, maximize=False)))
    arms, y = rewards(0, 12)
    fine = GRID if domain is ARMS else np.linspace(0.0, 1.0, 2001)
    mean, deviation, gain = dense(GRID[arms], y, fine)
    upper, lower = mean + igp_width(gain) * deviation, mean - igp_width(gain) * deviation
    found = least.recommend()
    assert found.upper_bound == pytest.approx(upper.min(), abs=1e-4)
    assert found.best_possible == pytest.approx(lower.min(), abs=1e-4)
    certificate = min(upper.min() - lower.min(), 2.0 * B)
    assert found.certificate == pytest.approx(certificate, abs=2e-4)


def test_dmm_and_lists_of_priors_have_bounds_of_their_own() -> None:
    arms, y = rewards(1, 12)
    X, Y = torch.from_numpy(GRID[arms]).unsqueeze(-1), torch.from_numpy(y).unsqueeze(-1)
    dmm = DMMUpperConfidenceBound(
        MODEL(X, Y),
        rkhs_bound=B,
        noise_bound=R,
    )
    options = DMMUpperConfidenceBound.with_options(rkhs_bound=B, noise_bound=R)
    priors = BanditGP.with_candidates(candidate_grid([0.2, 0.4], [NOISE]))
    listed = CandidatesUpperConfidenceBound(priors(X, Y), num_arms=9, delta=DELTA, round_number=13)
    of_list = CandidatesUpperConfidenceBound.with_options(delta=DELTA)
    for acquisition, recipe, model in ((dmm, options, MODEL), (listed, of_list, priors)):
        with torch.no_grad():
            lower, upper = acquisition.bounds(ARMS.choices)
        found = fill(make(ARMS, recipe, model), 1).recommend()
        assert found.arm == int(lower.argmax())
        assert found.best_possible == pytest.approx(float(upper.max()), abs=1e-8)
        assert found.certificate == pytest.approx(float(upper.max() - lower.max()), abs=1e-8)
    on_box = fill(make(BOX, options), 1).recommend()
    with torch.no_grad():
        fine = torch.linspace(0.0, 1.0, 2001, dtype=torch.float64).unsqueeze(-1)
        lower, upper = dmm.bounds(fine)
    assert on_box.lower_bound is not None
    assert on_box.lower_bound >= float(lower.max()) - 1e-6
    assert on_box.best_possible == pytest.approx(float(upper.max()), abs=1e-4)


def test_a_context_is_asked_for_and_counts() -> None:
    kernel = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE)
    for domain in (ARMS, BOX):
        loop = make(domain, IGP_UCB, kernel, context_dim=1)
        arms, y = rewards(2, 14)
        contexts = np.linspace(0.0, 1.0, 14)
        for arm, reward, context in zip(arms, y, contexts, strict=True):
            loop.attach([GRID[arm]], reward, context=[context])
        with pytest.raises(ValueError, match=r"recommend\(context=\.\.\.\)"):
            loop.recommend()
        K = rbf(GRID[arms], GRID[arms]) * rbf(contexts, contexts)
        k = rbf(GRID, GRID[arms]) * rbf(np.array([0.3]), contexts)
        full = K + NOISE * np.eye(14)
        mean = k @ np.linalg.solve(full, y)
        deviation = np.sqrt(1.0 - np.einsum("ij,ji->i", k, np.linalg.solve(full, k.T)))
        gain = 0.5 * np.linalg.slogdet(np.eye(14) + K / NOISE)[1]
        lower = mean - igp_width(gain) * deviation
        found = loop.recommend([0.3])
        assert found.context is not None
        assert found.context.tolist() == [0.3]
        assert found.certificate is not None
        if domain is ARMS:
            assert found.arm == int(lower.argmax())
            assert found.lower_bound == pytest.approx(lower.max(), abs=1e-8)
        else:
            assert found.lower_bound is not None
            assert found.lower_bound >= lower.max() - 1e-6
        assert found.x.shape == (1,)
        assert loop.recommend([0.3], among="played").point[0] in GRID[arms]
    finite = make(ARMS, FINITE, context_dim=1)
    finite.attach([GRID[0]], 1.0, context=[0.0])
    assert "in the contexts of the rounds" in finite.recommend([0.0]).reasons[0]


def test_pending_queries_shrink_no_bound() -> None:
    """The bounds are from what arrived; a width that counts rounds waits for what is pending."""
    before = fill(make(ARMS, IGP_UCB)).recommend()
    loop = fill(make(ARMS, IGP_UCB, feedback=Hallucinated()))
    query = loop.ask()
    found = loop.recommend()
    assert (found.certificate, found.arm) == (before.certificate, before.arm)
    assert any("depends" in each or "does not depend" in each for each in found.assumptions)
    assert loop.guarantee().bands is not None
    assert not loop.guarantee().bands.holds  # type: ignore[union-attr]
    finite = fill(make(ARMS, FINITE))
    query = finite.ask()
    waiting = finite.recommend()
    assert waiting.certificate is None
    assert "1 outcome is pending" in waiting.reasons[0]
    finite.tell(query.id, 0.5)
    assert finite.recommend().certificate is not None


def test_a_reset_forgets_and_splits_delta() -> None:
    restart = OracleRestart((12,), exploration=None, split_delta=True)
    loop = fill(make(ARMS, IGP_UCB, restart=restart))
    later = rewards(5, 8)
    for arm, reward in zip(*later, strict=True):
        loop.attach([GRID[arm]], reward)

    def bounds(at: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        mean, deviation, gain = dense(GRID[later[0]], later[1], at)
        return mean, deviation, igp_width(gain, restart.share_of_delta(DELTA, 1))

    check(loop.recommend(), bounds, ARMS)
    assert loop.recommend().delta == pytest.approx(DELTA)
    assert loop.recommend(among="played").arm in later[0]


WITHOUT: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a constant width": (
        GPUpperConfidenceBound.with_options(width=2.0),
        {},
        "a constant width is a heuristic",
    ),
    "plain draws": (GPThompsonSampling.with_options(), {}, "a constant width is a heuristic"),
    "a randomized width": (
        RandomizedUpperConfidenceBound.with_options(),
        {},
        "no confidence bounds are stated for IRGP-UCB",
    ),
    "improvement": (
        LogExpectedImprovement.with_options(),
        {},
        "no theorem here covers expected improvement",
    ),
    "a scaled width": (
        ImprovedUpperConfidenceBound.with_options(**KNOWN, scale=0.5),
        {},
        "the width is scaled by 0.5",
    ),
    "a window": (IGP_UCB, {"forgetting": SlidingWindow(5)}, "a model that forgets"),
    "weights": (IGP_UCB, {"forgetting": ExponentialWeights(0.9)}, "a model that forgets"),
    "penalized rewards": (
        IGP_UCB,
        {"constraints": AdditiveEpochs(1, 6)},
        "the model is of the penalized reward",
    ),
}


PLACES = [(name, place) for name in WITHOUT for place in ("arms", "box")]
PLACES.remove(("a randomized width", "box"))  # it is for arms


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_without_bounds_that_hold_the_largest_mean_is_recommended(name: str, place: str) -> None:
    acquisition, options, reason = WITHOUT[name]
    domain: Any = ARMS if place == "arms" else BOX
    also = {"constraints": [-1.0]} if "constraints" in options else {}
    loop = fill(make(domain, acquisition, **options), 3, 11, **also)
    found = loop.recommend()
    assert found.certificate is found.delta is found.theorem is None
    assert found.lower_bound is found.best_possible is None
    assert any(reason in each for each in found.reasons), found.reasons
    assert f"because: {found.reasons[0]}" in str(found)
    fine = torch.linspace(0.0, 1.0, 801, dtype=torch.float64).unsqueeze(-1)
    X = ARMS.choices if domain is ARMS else fine
    with torch.no_grad():
        means = loop.current_model().posterior(X).mean
    assert found.mean == pytest.approx(float(means.max()), abs=1e-4)
    assert loop.recommend(among="played").mean <= found.mean + 1e-9


def test_theorem_2_speaks_of_points_of_rounds_only() -> None:
    compact = GPUpperConfidenceBound.with_options(smoothness_a=1.0, smoothness_b=5.0, delta=DELTA)
    assert "not at all points at once" in fill(make(BOX, compact)).recommend().reasons[0]
    priors = BanditGP.with_candidates(candidate_grid([0.2, 0.4], [NOISE]))
    of_list = CandidatesUpperConfidenceBound.with_options(smoothness_a=1.0, smoothness_b=5.0)
    assert "not at all points at once" in fill(make(BOX, of_list, priors)).recommend().reasons[0]
    draws = fill(make(BOX, CandidatesThompsonSampling.with_options(), priors)).recommend()
    assert draws.certificate is None
    assert draws.reasons


def test_censored_rewards_have_no_certificate() -> None:
    feedback = Censored(minimum=-3.0, outcome_bound=6.0, max_delay=3)
    for domain in (ARMS, BOX):
        loop = fill(
            make(domain, IGP_UCB, BanditGP.with_kernel(
                RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE, prior_mean=-3.0
            ), feedback=feedback)
        )  # fmt: skip
        loop.ask()
        found = loop.recommend()
        assert found.certificate is None
        assert "arrives in time" in found.reasons[-1]


SEPARATE = AdditiveEpochs(1, 8, surrogate="separate")
OF_BOTH = {
    "bounds": (LagrangianUpperConfidenceBound.with_options(**KNOWN), 2.0, DELTA),
    "draws": (LagrangianThompsonSampling.with_options(**KNOWN), 4.0, DELTA / 2.0),
}


@pytest.mark.parametrize("name", OF_BOTH)
@ON_BOTH
def test_constraints_are_met_by_their_upper_bounds(name: str, domain: Any) -> None:
    acquisition, share, delta = OF_BOTH[name]
    loop = make(domain, acquisition, constraints=SEPARATE)
    arms, y = rewards(4, 60)
    g = 2.0 * (GRID[arms] - 0.5)
    for arm, reward, value in zip(arms, y, g, strict=True):
        loop.attach([GRID[arm]], reward, constraints=[value])
    at = GRID if domain is ARMS else np.linspace(0.0, 1.0, 2001)
    mean, deviation, gain = dense(GRID[arms], y, at)
    of_g = dense(GRID[arms], g, at)[0]
    half = igp_width(gain, DELTA / share) * deviation
    lower, upper = (mean - half)[of_g + half <= 0.0], (mean + half)[of_g - half <= 0.0]
    found = loop.recommend()
    assert found.certificate is not None
    assert found.delta == pytest.approx(delta) or found.delta == pytest.approx(DELTA)
    assert len(found.constraint_bounds) == 1
    assert found.constraint_bounds[0] <= 0.0
    assert found.lower_bound is not None
    assert found.best_possible is not None
    if domain is ARMS:
        assert found.certificate == pytest.approx(upper.max() - lower.max(), abs=1e-8)
    else:  # the search may stay a little within; what may be feasible is never left out
        assert found.lower_bound >= lower.max() - 0.02
        assert found.best_possible >= upper.max() - 1e-3
    played = loop.recommend(among="played")
    assert played.point[0] in GRID[arms]


def test_where_no_point_is_known_to_be_feasible_there_is_no_certificate() -> None:
    for domain in (ARMS, BOX):
        loop = make(domain, OF_BOTH["bounds"][0], constraints=SEPARATE)
        for arm, reward in zip(*rewards(4, 10), strict=True):
            loop.attach([GRID[arm]], reward, constraints=[1.0 + GRID[arm]])
        found = loop.recommend()
        assert found.certificate is None
        assert "no point is known to meet all constraints" in found.reasons[0]


def test_a_space_has_named_parameters() -> None:
    space = Space({"rate": Float(0.0, 1.0), "solvent": Categorical(["water", "oil"])})
    loop = make(space, ImprovedUpperConfidenceBound.with_options(**KNOWN))
    for i in range(10):
        query = loop.ask()
        assert query.parameters is not None
        loop.tell(query.id, query.parameters["rate"] + (query.parameters["solvent"] == "oil"))
        del i
    found = loop.recommend()
    assert found.parameters is not None
    assert found.parameters["solvent"] == "oil"
    assert found.arm is None
    assert found.point == dict(found.parameters)
    assert "oil" in str(found)


def test_nothing_is_recorded_and_no_choice_changes(tmp_path: Path) -> None:
    for name, domain, acquisition in (
        ("arms", ARMS, IGP_UCB),
        ("draws", ARMS, GPThompsonSampling.with_options(**KNOWN)),
        ("box", BOX, IGP_UCB),
        ("fitted", BOX, None),
    ):
        path = tmp_path / f"{name}.db"
        model = MODEL if acquisition is not None else None
        watched = make(domain, acquisition, model, storage=path, seed=3)
        left_alone = make(domain, acquisition, model, seed=3)
        for _ in range(8):
            if watched.history.num_arrived:
                size = path.stat().st_size
                watched.recommend()
                watched.recommend(among="played")
                assert path.stat().st_size == size
            one, other = watched.ask(), left_alone.ask()
            assert_same(one.x, other.x, ON_BOXES)
            for loop in (watched, left_alone):
                loop.tell(one.id, math.sin(4.0 * float(one.x)))
        said = watched.recommend()
        watched.close()
        again = make(domain, acquisition, model, storage=path, seed=3).recommend()
        for found, expected in ((said.x, again.x), (said.mean, again.mean)):
            assert_same(found, expected, ON_BOXES)
        assert_same(said.certificate, again.certificate, ON_BOXES)


def test_what_cannot_be_recommended_is_refused() -> None:
    with pytest.raises(RuntimeError, match="random search has no"):
        make(ARMS, RandomSearch(), None).recommend()
    with pytest.raises(RuntimeError, match="no point was played"):
        make(ARMS, IGP_UCB).recommend(among="played")
    with pytest.raises(RuntimeError, match="no point was played"):
        make(BOX, IGP_UCB).recommend(among="played")
    with pytest.raises(ValueError, match="among is 'some'"):
        make(ARMS, IGP_UCB).recommend(among="some")
    with pytest.raises(RuntimeError, match="Tell the first outcome"):
        make(BOX, None, None).recommend()
    with pytest.raises(ValueError, match="context_dim=0"):
        make(ARMS, IGP_UCB).recommend([1.0])


@ON_BOTH
def test_without_data_the_prior_has_a_certificate(domain: Any) -> None:
    found = make(domain, IGP_UCB).recommend()
    width = igp_width(0.0)
    assert found.best_possible == pytest.approx(width, abs=1e-8)
    assert found.certificate == found.trivial_certificate == 2.0 * B
    assert "is 2 B, by which no two points can differ more" in str(found)
    assert "the outcomes say nothing" in str(found)


def test_fresh_surrogates_fall_back_on_what_was_played() -> None:
    """After an epoch a fresh surrogate has seen nothing, and its means say nothing."""
    loop = make(ARMS, IGP_UCB, constraints=AdditiveEpochs(1, 6, surrogate="fresh"))
    for arm, reward in zip(*rewards(4, 6), strict=True):
        loop.attach([GRID[arm]], reward, constraints=[-1.0])
    loop.ask()  # begins the epoch
    assert loop.recommend().arm in rewards(4, 6)[0]


@pytest.mark.parametrize("surrogate", ["relabeled", "fresh"])
@ON_BOTH
@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["maximize", "minimize"])
def test_a_penalized_mean_is_named_with_what_was_observed(
    domain: Any, surrogate: str, sign: float
) -> None:
    rule = AdditiveEpochs(1, 50, surrogate=surrogate)  # its multiplier is still 0
    loop = make(domain, IGP_UCB, constraints=rule, maximize=sign > 0.0)
    for x, reward, value in ((0.75, 2.0, 0.5), (0.25, 0.0, -0.25), (0.75, 2.2, 0.1)):
        loop.attach([x], sign * reward, constraints=[value])
    found = loop.recommend(among="played")
    assert found.point == [0.75]
    assert found.is_penalized
    assert (found.observed_constraints, found.num_observed) == (pytest.approx((0.3,)), 2)
    assert (found.constraint_means, found.exceeded) == ((), (1,))
    text = str(found)
    assert "mean of the penalized reward" in text
    assert "constraint 1: mean of 2 outcomes here 0.3, above its limit of 0" in text
    assert "surrogate=" in text
    assert "attach the outcomes to a loop" in text
    # the remedy that the text names: the same outcomes, with models of the constraints
    other = AdditiveEpochs(1, 50, surrogate="separate")
    bounds = LagrangianUpperConfidenceBound.with_options(width=2.0)
    again = make(domain, bounds, constraints=other, maximize=sign > 0.0)
    again = rebuilt(again, loop.history).recommend(among="played")
    assert again.point == [0.25]
    assert not again.is_penalized
    assert again.exceeded == ()
    assert again.constraint_means[0] < 0.0
    assert (again.observed_constraints, again.num_observed) == ((-0.25,), 1)
    assert "constraint 1: observed once here: -0.25, not above its limit of 0" in str(again)


def test_a_point_that_only_comes_closest_says_so() -> None:
    for domain in (ARMS, BOX):
        bounds = LagrangianUpperConfidenceBound.with_options(width=2.0)  # no theorem
        loop = make(domain, bounds, constraints=SEPARATE)
        for arm, reward in zip(*rewards(4, 10), strict=True):
            loop.attach([GRID[arm]], reward, constraints=[1.0 + GRID[arm]])
        found = loop.recommend(among="played")
        assert found.exceeded == (1,)
        x = np.array([q.x.item() for q in loop.history.queries])
        mean = dense(x, 1.0 + x, found.x.numpy())[0]
        assert found.constraint_means == pytest.approx(mean, abs=1e-8)
        assert f"posterior mean {mean[0]:.4g}, above its limit of 0" in str(found)


def test_observed_values_are_those_that_count_here() -> None:
    rule = AdditiveEpochs(1, 50)
    windowed = make(ARMS, IGP_UCB, constraints=rule, forgetting=SlidingWindow(2))
    for reward, value in ((1.0, 0.9), (1.0, -0.1), (1.0, 0.3)):
        windowed.attach([GRID[2]], reward, constraints=[value])
    found = windowed.recommend(among="played")
    assert (found.observed_constraints, found.num_observed) == (pytest.approx((0.1,)), 2)
    known = make(ARMS, IGP_UCB, constraints=rule, context_dim=1)
    for place, value in ((0.0, 0.9), (1.0, -0.1)):
        known.attach([GRID[2]], 1.0, constraints=[value], context=[place])
    found = known.recommend(context=[1.0], among="played")
    assert (found.observed_constraints, found.exceeded) == ((-0.1,), ())
    elsewhere = known.recommend(context=[0.5], among="played")
    assert (elsewhere.observed_constraints, elsewhere.num_observed) == ((), 0)
    assert "no constraint value was observed here" in str(elsewhere)
    reset = make(ARMS, IGP_UCB, constraints=rule, restart=OracleRestart((2,)))
    for value in (0.9, -0.1):
        query = reset.ask()
        reset.tell(query.id, 1.0, constraints=[value])
    reset.ask()
    assert reset.resets
    assert reset.recommend().observed_constraints in ((), (-0.1,))


@ON_BOTH
def test_a_loop_that_minimizes_recommends_in_the_sign_of_its_costs(domain: Any) -> None:
    loop = make(domain, IGP_UCB, maximize=False)
    for arm, reward in zip(*rewards(0, 12), strict=True):
        loop.attach([GRID[arm]], -reward)
    of_cost, of_reward = loop.recommend(), fill(make(domain, IGP_UCB)).recommend()
    assert of_cost.point == of_reward.point
    for cost, reward in (
        (of_cost.mean, of_reward.mean),
        (of_cost.upper_bound, of_reward.lower_bound),
        (of_cost.lower_bound, of_reward.upper_bound),
        (of_cost.best_possible, of_reward.best_possible),
    ):
        assert cost is not None
        assert reward is not None
        assert cost == pytest.approx(-reward, abs=1e-12)
    assert of_cost.certificate == of_reward.certificate


def outcomes(seed: int, count: int = 14) -> tuple[np.ndarray, np.ndarray]:
    arms, y = rewards(seed, count)
    return GRID[arms], y


def noise_at(x: np.ndarray) -> np.ndarray:
    return 0.02 + 0.3 * x


def rows_of_their_own(X: torch.Tensor, Y: torch.Tensor) -> SingleTaskGP:
    """A user's model whose rows have the noise variances that they are known to have."""
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
    kernel.outputscale = torch.tensor(1.0, dtype=torch.float64)
    model = SingleTaskGP(
        X,
        Y,
        torch.from_numpy(noise_at(X.numpy())),
        covar_module=kernel,
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    return model.requires_grad_(False)


@pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")
@ON_BOTH
@pytest.mark.parametrize("seed", range(2))
def test_rows_with_noise_of_their_own(domain: Any, seed: int) -> None:
    x, y = outcomes(seed)
    acquisition = ImprovedUpperConfidenceBound.with_options(
        rkhs_bound=B, noise_bound="model", delta=DELTA, any_lambda=True, assume="fixed prior"
    )
    loop = make(domain, acquisition, rows_of_their_own)
    for place, outcome in zip(x, y, strict=True):
        loop.attach([place], outcome)

    def bounds(at: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        mean, deviation, gain = dense(x, y, at, noise_at(x))
        return mean, deviation, igp_width(gain, ratio=1.0)

    found = loop.recommend()
    check(found, bounds, domain)
    assert SUB_GAUSSIAN_ROWS in found.assumptions
    # as if all had the same noise it would be another number
    assert abs(float(dense(x, y, np.array(found.point))[0][0]) - found.mean) > 1e-4


def test_what_is_withdrawn_leaves_its_round_to_a_width_that_counts_rounds() -> None:
    x, y = outcomes(4)
    loop = make(ARMS, FINITE)
    for place, outcome in zip(x, y, strict=True):
        loop.attach([place], outcome)
    loop.retract(5, "typing error")
    kept = [i for i in range(14) if i != 5]

    def bounds(at: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        mean, deviation, _ = dense(x[kept], y[kept], at)
        width = finite_width(15)
        return mean, deviation, width

    check(loop.recommend(), bounds, ARMS)


@pytest.mark.parametrize(
    "acquisition", [IGP_UCB, FINITE], ids=["bounded norm", "draw of the prior"]
)
@pytest.mark.parametrize("avoid", [False, True])
def test_what_was_lost_shrinks_no_bound(acquisition: Any, avoid: bool) -> None:
    loop = make(ARMS, acquisition)
    x, y = [], []
    random = np.random.default_rng(1)
    for i in range(12):
        query = loop.ask()
        if i % 4 == 2:
            loop.fail(query.id, "lost", avoid=avoid)
        else:
            x.append(float(query.x))
            y.append(math.sin(4.0 * x[-1]) + 0.2 * random.standard_normal())
            loop.tell(query.id, y[-1])

    def bounds(at: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        mean, deviation, gain = dense(np.array(x), np.array(y), at)
        finite = finite_width(13)
        width = igp_width(gain) if acquisition is IGP_UCB else finite
        return mean, deviation, width

    found = loop.recommend()
    check(found, bounds, ARMS)
    assert any("failed" in each or "arrived" in each for each in found.assumptions)

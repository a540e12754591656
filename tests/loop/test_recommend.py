"""`recommend()` against dense textbook bounds, and where it says that there is no certificate."""

from __future__ import annotations

import math
from collections.abc import Callable
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
from botorch_bandits.confidence.theorems import SUB_GAUSSIAN_ROWS
from botorch_bandits.loop.reports import Recommendation
from botorch_bandits.models import candidate_grid

NOISE, LENGTHSCALE, B, R, DELTA = 0.05, 0.3, 2.0, 0.2, 0.1
GRID, FINE = np.linspace(0.0, 1.0, 9), np.linspace(0.0, 1.0, 2001)
ARMS = Arms(torch.from_numpy(GRID).unsqueeze(-1))
BOX = Box([[0.0], [1.0]])
KNOWN: dict[str, Any] = {"rkhs_bound": B, "noise_bound": R, "delta": DELTA, "any_lambda": True}
IGP_UCB = ImprovedUpperConfidenceBound.with_options(**KNOWN)
DRAWS = GPThompsonSampling.with_options(**KNOWN)
FINITE = GPUpperConfidenceBound.with_options(delta=DELTA)
MODEL = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE)
PRIORS = BanditGP.with_candidates(candidate_grid([0.2, 0.4], [NOISE]))
ON_BOTH = pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])

Bounds = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, float]]


def make(domain: Any, acquisition: Any, model: Any = MODEL, **options: Any) -> BanditLoop:
    return BanditLoop(domain, model, acquisition, **options)


def outcomes(seed: int, count: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Points of arms, and outcomes there."""
    random = np.random.default_rng(seed)
    x = GRID[random.integers(len(GRID) - 2, size=count)]
    return x, np.sin(4.0 * x) + 0.2 * random.standard_normal(count)


def fill(loop: BanditLoop, seed: int = 0, g: Any = None) -> BanditLoop:
    """Attach outcomes, negative ones where costs are told, and values of ``g``."""
    sign = 1.0 if loop.settings.maximize else -1.0
    for x, reward in zip(*outcomes(seed), strict=True):
        loop.attach([x], sign * reward, constraints=None if g is None else [g(x)])
    return loop


def rbf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    squares = (a.reshape(len(a), 1, -1) - b.reshape(1, len(b), -1)) ** 2
    return np.exp(-0.5 * squares.sum(-1) / LENGTHSCALE**2)


def dense(
    x: np.ndarray, y: np.ndarray, at: np.ndarray, noise: Any = NOISE
) -> tuple[np.ndarray, np.ndarray, float]:
    """Posterior mean, standard deviation and realized gain of rows with their noise variances."""
    N = np.diag(np.broadcast_to(noise, len(x)))
    k, K = rbf(at, x), rbf(x, x)
    variance = 1.0 - np.einsum("ij,ji->i", k, np.linalg.solve(K + N, k.T))
    gain = 0.5 * float(np.linalg.slogdet(np.eye(len(x)) + np.linalg.solve(N, K))[1])
    return k @ np.linalg.solve(K + N, y), np.sqrt(variance), gain


def igp_width(gain: float, delta: float = DELTA, ratio: float = R / math.sqrt(NOISE)) -> float:
    """For every ``lam``; the ratio is that of noise bound and modeled noise."""
    return B + ratio * math.sqrt(2.0 * (gain + math.log(1.0 / delta)))


def finite_width(num_rounds: int) -> float:
    return math.sqrt(2.0 * math.log(len(GRID) * num_rounds**2 * math.pi**2 / (6.0 * DELTA)))


def bounds_of(x: np.ndarray, y: np.ndarray, width: Any, noise: Any = NOISE) -> Bounds:
    """Return the function from points to their mean, standard deviation and width."""

    def bounds(at: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        mean, deviation, gain = dense(x, y, at, noise)
        return mean, deviation, width(gain)

    return bounds


def check(found: Recommendation, bounds: Bounds, domain: Any, points: Any = None) -> None:
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


@ON_BOTH
def test_the_certificate_is_that_of_dense_algebra(domain: Any) -> None:
    x, y = outcomes(0)
    for acquisition, width, delta in (
        (IGP_UCB, igp_width, DELTA),
        (DRAWS, lambda gain: igp_width(gain, DELTA / 2.0), DELTA / 2.0),
        (FINITE, lambda gain: finite_width(13), DELTA),
    ):
        if acquisition is FINITE and domain is BOX:
            continue
        loop = fill(make(domain, acquisition))
        found = loop.recommend()
        check(found, bounds_of(x, y, width), domain)
        check(loop.recommend(among="played"), bounds_of(x, y, width), domain, x)
        assert found.delta == pytest.approx(delta)
        assert found.trivial_certificate == (None if acquisition is FINITE else 2.0 * B)
        if domain is ARMS:
            assert found.point == [GRID[found.arm]]


@ON_BOTH
def test_where_costs_or_the_acquisition_are_minimized_so_does_the_recommendation(
    domain: Any,
) -> None:
    recipe = ImprovedUpperConfidenceBound.with_options(**KNOWN, maximize=False)
    mean, deviation, gain = dense(*outcomes(0), GRID if domain is ARMS else FINE)
    upper, lower = mean + igp_width(gain) * deviation, mean - igp_width(gain) * deviation
    found = fill(make(domain, recipe)).recommend()
    assert found.upper_bound == pytest.approx(upper.min(), abs=1e-4)
    assert found.best_possible == pytest.approx(lower.min(), abs=1e-4)
    certificate = min(upper.min() - lower.min(), 2.0 * B)
    assert found.certificate == pytest.approx(certificate, abs=2e-4)
    # costs that are minus the rewards
    cost = fill(make(domain, IGP_UCB, maximize=False)).recommend()
    reward = fill(make(domain, IGP_UCB)).recommend()
    assert (cost.point, cost.certificate) == (reward.point, reward.certificate)
    names = ("mean", "best_possible", "upper_bound", "lower_bound")
    for name, other in zip(names, (*names[:2], *reversed(names[2:])), strict=True):
        assert getattr(cost, name) == pytest.approx(-getattr(reward, other), abs=1e-12)


def test_dmm_and_lists_of_priors_have_bounds_of_their_own() -> None:
    x, y = outcomes(1)
    data = torch.from_numpy(x).unsqueeze(-1), torch.from_numpy(y).unsqueeze(-1)
    dmm = DMMUpperConfidenceBound(MODEL(*data), rkhs_bound=B, noise_bound=R)
    options = DMMUpperConfidenceBound.with_options(rkhs_bound=B, noise_bound=R)
    listed = CandidatesUpperConfidenceBound(PRIORS(*data), num_arms=9, delta=DELTA, round_number=13)
    of_list = CandidatesUpperConfidenceBound.with_options(delta=DELTA)
    for acquisition, recipe, model in ((dmm, options, MODEL), (listed, of_list, PRIORS)):
        with torch.no_grad():
            lower, upper = acquisition.bounds(ARMS.choices)
        found = fill(make(ARMS, recipe, model), 1).recommend()
        assert found.arm == int(lower.argmax())
        assert found.best_possible == pytest.approx(float(upper.max()), abs=1e-8)
        assert found.certificate == pytest.approx(float(upper.max() - lower.max()), abs=1e-8)
    on_box = fill(make(BOX, options), 1).recommend()
    with torch.no_grad():
        lower, upper = dmm.bounds(torch.from_numpy(FINE).unsqueeze(-1))
    assert on_box.lower_bound is not None
    assert on_box.lower_bound >= float(lower.max()) - 1e-6
    assert on_box.best_possible == pytest.approx(float(upper.max()), abs=1e-4)


@ON_BOTH
def test_a_context_is_asked_for_and_counts(domain: Any) -> None:
    loop, (x, y) = make(domain, IGP_UCB, context_dim=1), outcomes(2)
    rows = np.stack([np.linspace(0.0, 1.0, 12), x], axis=-1)
    for (context, point), reward in zip(rows, y, strict=True):
        loop.attach([point], reward, context=[context])
    with pytest.raises(ValueError, match=r"recommend\(context=\.\.\.\)"):
        loop.recommend()

    def bounds(at: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        mean, deviation, gain = dense(rows, y, np.stack([np.full(len(at), 0.3), at], axis=-1))
        return mean, deviation, igp_width(gain)

    found = loop.recommend([0.3])
    check(found, bounds, domain)
    assert found.context is not None
    assert (found.context.tolist(), found.x.shape) == ([0.3], (1,))
    assert loop.recommend([0.3], among="played").point[0] in GRID
    finite = make(ARMS, FINITE, context_dim=1)
    finite.attach([GRID[0]], 1.0, context=[0.0])
    assert "in the contexts of the rounds" in finite.recommend([0.0]).reasons[0]


def test_pending_queries_shrink_no_bound() -> None:
    """The bounds are from what arrived; a width that counts rounds waits for what is pending."""
    before, loop = fill(make(ARMS, IGP_UCB)).recommend(), fill(make(ARMS, IGP_UCB))
    loop.ask()
    found = loop.recommend()
    assert (found.certificate, found.arm) == (before.certificate, before.arm)
    assert any("depends" in each or "does not depend" in each for each in found.assumptions)
    bands = loop.guarantee().bands
    assert bands is not None
    assert not bands.holds
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
    assert loop.recommend().certificate is None
    assert "changes with the next round" in loop.recommend().reasons[-1]
    fill(loop, 5)
    delta = restart.share_of_delta(DELTA, 1)
    check(loop.recommend(), bounds_of(*outcomes(5), lambda gain: igp_width(gain, delta)), ARMS)
    assert loop.recommend().delta == pytest.approx(DELTA)
    assert loop.recommend(among="played").point[0] in outcomes(5)[0]


@pytest.mark.parametrize("acquisition", [IGP_UCB, FINITE], ids=["bounded norm", "draw"])
@pytest.mark.parametrize("avoid", [False, True])
def test_what_was_lost_or_withdrawn_shrinks_no_bound(acquisition: Any, avoid: bool) -> None:
    """Its round counts for a width that counts rounds."""
    loop = make(ARMS, acquisition)
    rows = []
    random = np.random.default_rng(1)
    for i in range(12):
        query = loop.ask()
        x = float(query.x)
        if i % 4 == 2:
            loop.fail(query.id, "lost", avoid=avoid)
            continue
        rows.append((x, math.sin(4.0 * x) + 0.2 * random.standard_normal()))
        loop.tell(query.id, rows[-1][1])
    loop.retract(0, "typing error")
    x, y = np.array(rows[1:]).T
    width = igp_width if acquisition is IGP_UCB else lambda gain: finite_width(13)
    found = loop.recommend()
    check(found, bounds_of(x, y, width), ARMS)
    assert any("failed" in each or "arrived" in each for each in found.assumptions)


def noise_at(x: np.ndarray) -> np.ndarray:
    return 0.02 + 0.3 * x


def rows_of_their_own(X: torch.Tensor, Y: torch.Tensor) -> SingleTaskGP:
    """A user's model whose rows have the noise variances that they are known to have."""
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
    kernel.outputscale = torch.tensor(1.0, dtype=torch.float64)
    noise = torch.from_numpy(noise_at(X.numpy()))
    given = {"covar_module": kernel, "mean_module": ZeroMean(), "outcome_transform": None}
    return SingleTaskGP(X, Y, noise, **given).requires_grad_(False)


@pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")
@ON_BOTH
def test_rows_with_noise_of_their_own(domain: Any) -> None:
    acquisition = ImprovedUpperConfidenceBound.with_options(
        **{**KNOWN, "noise_bound": "model"}, assume="fixed prior"
    )
    x, y = outcomes(0)
    found = fill(make(domain, acquisition, rows_of_their_own)).recommend()
    check(found, bounds_of(x, y, lambda gain: igp_width(gain, ratio=1.0), noise_at(x)), domain)
    assert SUB_GAUSSIAN_ROWS in found.assumptions


@ON_BOTH
def test_without_data_the_prior_has_a_certificate(domain: Any) -> None:
    found = make(domain, IGP_UCB).recommend()
    assert found.best_possible == pytest.approx(igp_width(0.0), abs=1e-8)
    assert found.certificate == found.trivial_certificate == 2.0 * B
    assert "is 2 B, by which no two points can differ more" in str(found)
    assert "the outcomes say nothing" in str(found)


# --- no certificate -------------------------------------------------------------------------------

HEURISTIC = "a constant width is a heuristic"
COMPACT: dict[str, Any] = {"smoothness_a": 1.0, "smoothness_b": 5.0}
WITHOUT: list[tuple[str, Any, dict[str, Any]]] = [
    (HEURISTIC, GPUpperConfidenceBound.with_options(width=2.0), {}),
    (HEURISTIC, GPThompsonSampling.with_options(), {}),
    ("no confidence bounds are stated for IRGP-UCB",
     RandomizedUpperConfidenceBound.with_options(), {}),
    ("no theorem here covers expected improvement", LogExpectedImprovement.with_options(), {}),
    ("the width is scaled by 0.5",
     ImprovedUpperConfidenceBound.with_options(**KNOWN, scale=0.5), {}),
    ("a model that forgets", IGP_UCB, {"forgetting": SlidingWindow(5)}),
    ("a model that forgets", IGP_UCB, {"forgetting": ExponentialWeights(0.9)}),
    ("the model is of the penalized reward", IGP_UCB, {"constraints": AdditiveEpochs(1, 6)}),
    ("not at all points at once", GPUpperConfidenceBound.with_options(**COMPACT), {}),
    ("not at all points at once", CandidatesUpperConfidenceBound.with_options(**COMPACT),
     {"model": PRIORS}),
    ("", CandidatesThompsonSampling.with_options(), {"model": PRIORS}),
    ("arrives in time", IGP_UCB,
     {"feedback": Censored(minimum=-3.0, outcome_bound=6.0, max_delay=3),
      "model": BanditGP.with_kernel(
          RBFKernel(), NOISE, lengthscale=0.3, prior_mean=-3.0)}),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(WITHOUT)))
@ON_BOTH
def test_without_bounds_that_hold_the_largest_mean_is_recommended(number: int, domain: Any) -> None:
    reason, acquisition, options = WITHOUT[number]
    only_on = {ARMS: "IRGP", BOX: "not at all points"}
    if any(words in reason for place, words in only_on.items() if place is not domain):
        return
    g = (lambda x: -1.0) if "constraints" in options else None
    loop = fill(make(domain, acquisition, **options), 3, g)
    found = loop.recommend()
    assert found.certificate is found.delta is found.theorem is None
    assert found.lower_bound is found.best_possible is None
    assert any(reason in each for each in found.reasons), found.reasons
    assert f"because: {found.reasons[0]}" in str(found)
    X = ARMS.choices if domain is ARMS else torch.from_numpy(FINE).unsqueeze(-1)
    if options.get("model") is not PRIORS:
        with torch.no_grad():
            means = loop.current_model().posterior(X).mean
        assert found.mean == pytest.approx(float(means.max()), abs=1e-4)
    assert loop.recommend(among="played").mean <= found.mean + 1e-9


def test_what_cannot_be_recommended_is_refused() -> None:
    with pytest.raises(RuntimeError, match="random search has no"):
        make(ARMS, RandomSearch(), None).recommend()
    for domain in (ARMS, BOX):
        with pytest.raises(RuntimeError, match="no point was played"):
            make(domain, IGP_UCB).recommend(among="played")
    with pytest.raises(ValueError, match="among is 'some'"):
        make(ARMS, IGP_UCB).recommend(among="some")
    with pytest.raises(RuntimeError, match="Tell the first outcome"):
        make(BOX, None, None).recommend()
    with pytest.raises(ValueError, match="context_dim=0"):
        make(ARMS, IGP_UCB).recommend([1.0])


# --- constraints ----------------------------------------------------------------------------------

SEPARATE = AdditiveEpochs(1, 8, surrogate="separate")
PLAIN = LagrangianUpperConfidenceBound.with_options(width=2.0)
OF_BOTH = {
    "bounds": (LagrangianUpperConfidenceBound.with_options(**KNOWN), 2.0),
    "draws": (LagrangianThompsonSampling.with_options(**KNOWN), 4.0),
}


@pytest.mark.parametrize("name", OF_BOTH)
@ON_BOTH
def test_constraints_are_met_by_their_upper_bounds(name: str, domain: Any) -> None:
    acquisition, share = OF_BOTH[name]
    loop = make(domain, acquisition, constraints=SEPARATE)
    for seed in range(5):
        fill(loop, seed, lambda x: 2.0 * (x - 0.5))
    x, y = np.concatenate([outcomes(seed) for seed in range(5)], axis=1)
    at = GRID if domain is ARMS else FINE
    mean, deviation, gain = dense(x, y, at)
    of_g = dense(x, 2.0 * (x - 0.5), at)[0]
    half = igp_width(gain, DELTA / share) * deviation
    lower, upper = (mean - half)[of_g + half <= 0.0], (mean + half)[of_g - half <= 0.0]
    found = loop.recommend()
    assert found.certificate is not None
    assert found.delta in (pytest.approx(2.0 * DELTA / share), pytest.approx(DELTA))
    assert len(found.constraint_bounds) == 1
    assert found.constraint_bounds[0] <= 0.0
    assert found.lower_bound is not None
    assert found.best_possible is not None
    if domain is ARMS:
        assert found.certificate == pytest.approx(upper.max() - lower.max(), abs=1e-8)
    else:  # the search may stay a little within; what may be feasible is never left out
        assert found.lower_bound >= lower.max() - 0.02
        assert found.best_possible >= upper.max() - 1e-3
    assert loop.recommend(among="played").point[0] in x


@ON_BOTH
def test_a_point_that_only_comes_closest_says_so(domain: Any) -> None:
    found = fill(make(domain, OF_BOTH["bounds"][0], constraints=SEPARATE), 4, lambda x: 1 + x)
    known = found.recommend()
    assert known.certificate is None
    assert "no point is known to meet all constraints" in known.reasons[0]
    closest = fill(make(domain, PLAIN, constraints=SEPARATE), 4, lambda x: 1 + x)  # no theorem
    known, x = closest.recommend(among="played"), outcomes(4)[0]
    assert known.exceeded == (1,)
    mean = dense(x, 1.0 + x, known.x.numpy())[0]
    assert known.constraint_means == pytest.approx(mean, abs=1e-8)
    assert f"posterior mean {mean[0]:.4g}, above its limit of 0" in str(known)


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
    for words in (
        "mean of the penalized reward",
        "constraint 1: mean of 2 outcomes here 0.3, above its limit of 0",
        "surrogate=",
        "attach the outcomes to a loop",
    ):
        assert words in str(found)
    # the remedy that the text names: the same outcomes, with models of the constraints
    other = AdditiveEpochs(1, 50, surrogate="separate")
    again = make(domain, PLAIN, constraints=other, maximize=sign > 0.0)
    again = rebuilt(again, loop.history).recommend(among="played")
    assert (again.point, again.is_penalized, again.exceeded) == ([0.25], False, ())
    assert again.constraint_means[0] < 0.0
    assert (again.observed_constraints, again.num_observed) == ((-0.25,), 1)
    assert "constraint 1: observed once here: -0.25, not above its limit of 0" in str(again)


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
    # after an epoch a fresh surrogate has seen nothing, and its means say nothing
    fresh = AdditiveEpochs(1, 12, surrogate="fresh")
    loop = fill(make(ARMS, IGP_UCB, constraints=fresh), 4, lambda x: -1.0)
    loop.ask()  # begins the epoch
    assert loop.recommend().point[0] in outcomes(4)[0]


def test_a_space_has_named_parameters() -> None:
    space = Space({"rate": Float(0.0, 1.0), "solvent": Categorical(["water", "oil"])})
    loop = make(space, IGP_UCB)
    for _ in range(10):
        query = loop.ask()
        assert query.parameters is not None
        loop.tell(query.id, query.parameters["rate"] + (query.parameters["solvent"] == "oil"))
    found = loop.recommend()
    assert found.parameters is not None
    assert (found.parameters["solvent"], found.arm) == ("oil", None)
    assert found.point == dict(found.parameters)
    assert "oil" in str(found)


@pytest.mark.parametrize(
    ("domain", "acquisition"),
    [(ARMS, IGP_UCB), (ARMS, DRAWS), (BOX, IGP_UCB), (BOX, None)],
    ids=["arms", "draws", "box", "fitted"],
)
def test_nothing_is_recorded_and_no_choice_changes(
    domain: Any, acquisition: Any, tmp_path: Path
) -> None:
    path = tmp_path / "run.db"
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
    for name in ("x", "mean", "certificate"):
        assert_same(getattr(said, name), getattr(again, name), ON_BOXES)


@pytest.mark.parametrize("seed", range(6))
def test_a_certificate_holds_for_the_function_of_any_round(seed: int) -> None:
    """Each round's function is anywhere within ``v`` of one of norm ``B``; there is no noise."""
    stream, b, v = np.random.default_rng(seed), 0.3, 0.2
    X = np.sort(stream.uniform(size=6))
    K = np.exp(-0.5 * ((X[:, None] - X) / 0.2) ** 2)
    weights = stream.normal(size=6)
    f = K @ weights * (b / math.sqrt(weights @ K @ weights))
    acquisition = ImprovedUpperConfidenceBound.with_options(
        rkhs_bound=b, noise_bound=1e-9, variation=v, any_lambda=True
    )
    model = BanditGP.with_kernel(RBFKernel(), noise=0.5, lengthscale=0.2)
    loop = BanditLoop(Arms(torch.tensor(X).unsqueeze(-1)), model, acquisition)
    for t in range(20):
        known = loop.recommend()
        assert known.arm is not None
        assert known.certificate is not None
        assert known.certificate >= f.max() - f[known.arm] + 2.0 * v - 1e-9 or (
            known.certificate == pytest.approx(2.0 * (b + v))  # no two values differ by more
        )
        assert known.lower_bound <= f[known.arm] - v + 1e-9
        assert known.upper_bound >= f[known.arm] + v - 1e-9
        query = loop.ask()
        arm = loop.recommend().arm if t % 2 else int(np.argmin(np.abs(X - float(query.x))))
        side = v if arm == np.argmin(f) else -v  # what misleads most
        loop.tell(query.id, float(f[int(np.argmin(np.abs(X - float(query.x))))] + side))

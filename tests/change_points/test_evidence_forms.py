"""Further forms of the evidence: average run lengths, robust lists of priors, nulls that drift."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from botorch.models.transforms import Normalize
from gpytorch.kernels import MaternKernel, RBFKernel

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    EvidenceDetector,
    EvidenceRestart,
    GPUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
)
from botorch_bandits.change_points.calibration import binomial_interval
from botorch_bandits.forgetting import TimeVaryingKernel

from . import dense
from .test_evidence_restart import assert_tests_as

POINTS = torch.linspace(0.0, 2.0, 5, dtype=torch.float64).unsqueeze(-1)
ARMS, BOX = Arms(POINTS), Box([[0.0], [2.0]])
PRIOR = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=1.0)
PLAYED = [0, 2, 4, 2, 2, 1, 2, 2, 3, 0]
OUTCOMES = [0.3, 0.8, -0.2, 0.85, 0.75, 0.9, 0.1, 0.05, 0.2, -0.4]
SCALES, WEIGHTS = (0.3, 1.0, 2.5), (0.2, 0.5, 0.3)
LIST = [BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.02 * s, lengthscale=s) for s in SCALES]
MEMBERS = [(1.0, 0.0), *itertools.product((1.0, 1.5, 2.25, 3.4), (0.001, 0.01, 0.05))]
NAMES = ("shiryaev_roberts", "cusum")


def play(engine, played=PLAYED, outcomes=OUTCOMES, points=POINTS):
    stream = engine.stream()
    return [stream.observe(points[i], y) for i, y in zip(played, outcomes, strict=True)]


def density(member, y, mean, variance, noise):
    c, share = member
    inner = dense.normal(y, mean, variance + c * noise)
    outer = dense.normal(y, mean, variance + 36.0 * c * noise)
    return math.log((1.0 - share) * math.exp(inner) + share * math.exp(outer))


class DenseBets:
    """All one-step densities of a stream under priors and members, by dense formulas."""

    def __init__(self, X, y, kernels, noises, weights, members):
        self.y, self.members, self.weights = y, members, np.log(weights)
        n = len(y)

        def one(first, i, c, member):  # of outcome i, from 0, given those from ``first`` on
            at = dense.predict(X[first:i], y[first:i], X[i], kernels[c], noises[c])
            return density(member, y[i], *at, noises[c])

        each = range(len(kernels))
        null = np.array([[[one(0, i, c, m) for m in members] for c in each] for i in range(n)])
        self.fits = np.concatenate([np.zeros((1, *null.shape[1:])), null.cumsum(0)])  # n+1 x C x H
        self.starts = {}  # ln of the bet of start j on outcome i, from 1
        for j in range(2, n + 1):
            own = np.zeros(len(kernels))
            for i in range(j, n + 1):
                best = self.fits[i - 1].argmax(-1)
                gain = np.array([one(j - 1, i - 1, c, members[best[c]]) for c in each])
                mixed = dense.log_sum(self.weights + own + gain) - dense.log_sum(self.weights + own)
                self.starts[j, i] = mixed
                own = own + gain

    def mixed(self, n):
        spread = self.weights[:, None] - math.log(len(self.members))
        return dense.log_sum((spread + self.fits[n]).reshape(-1))

    def bet(self, j, n):
        return math.fsum(self.starts[j, i] for i in range(j, n + 1))

    def mixture(self, n, scale=100.0):
        terms = [math.log(scale / (n - 1 + scale)) + self.mixed(n)]
        for j in range(2, n + 1):
            weight = scale / ((j - 2 + scale) * (j - 1 + scale))
            terms.append(math.log(weight) + self.mixed(j - 1) + self.bet(j, n))
        return dense.log_sum(terms) - self.fits[n].max()

    def run_length(self, n, joins):
        """Each start against each member since that start; the member that fits best counts."""
        ratios = np.array(
            [
                self.bet(j, n) - (self.fits[n] - self.fits[j - 1]).reshape(-1)
                for j in range(2, n + 1)
            ]
        )
        joined = np.logaddexp.reduce(ratios) if joins == "shiryaev_roberts" else ratios.max(0)
        return joined.min()


def dense_bets(robust, listed):
    X, y = POINTS.numpy()[PLAYED], np.array(OUTCOMES)
    scales, weights = (SCALES, WEIGHTS) if listed else ((1.0,), (1.0,))
    noises = [0.02 * s for s in SCALES] if listed else [0.01]
    kernels = [dense.matern52(s) for s in scales]
    return DenseBets(X, y, kernels, noises, weights, MEMBERS if robust else [(1.0, 0.0)])


# --- robust and over candidates ------------------------------------------------------------------


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("robust", [False, True])
def test_every_statistic_equals_its_formula(domain, robust, listed):
    bets = dense_bets(robust, listed)
    forms = {"robust": robust, "weights": WEIGHTS if listed else None, "keeps_all_starts": True}
    models = LIST if listed else PRIOR
    tests = play(EvidenceDetector(**forms).on(domain, models))
    for n in range(1, len(OUTCOMES) + 1):
        assert tests[n - 1].statistic == pytest.approx(bets.mixture(n), abs=1e-9)
    for name in NAMES:
        tests = play(EvidenceDetector(statistic=name, **forms).on(domain, models))
        assert tests[0].statistic == -math.inf
        for n in range(2, len(OUTCOMES) + 1):
            expected = bets.run_length(n, name)
            assert tests[n - 1].statistic == pytest.approx(expected, abs=1e-9)
        assert tests[-1].threshold == pytest.approx(math.log(20.0))


def robust_list(alpha=0.8, **settings):
    return EvidenceDetector(alpha=alpha, weights=(1, 1, 1), change_scale=5.0, **settings)


def calm_streams(engine, lengthscale, noise, num_runs, num_rounds, seed, heavy=False):
    """Tests of draws from one prior, queries by the last outcome as a policy's are."""
    random = np.random.default_rng(seed)
    kernel = dense.matern52(lengthscale)
    root = np.linalg.cholesky(kernel(POINTS.numpy(), POINTS.numpy()) + 1e-12 * np.eye(5))
    for _ in range(num_runs):
        f, stream, arm = root @ random.standard_normal(5), engine.stream(), 0
        tests = []
        for _ in range(num_rounds):
            z = random.standard_t(3) if heavy else random.standard_normal()
            y = f[arm] + math.sqrt(noise) * z
            tests.append(stream.observe(POINTS[arm], y))
            arm = (arm + 1 + (y > 0.0)) % 5
        yield tests


@pytest.mark.parametrize("true", [0, 1, 2])
def test_robust_lists_keep_the_level_at_each_prior(true):
    engine = robust_list().on(ARMS, LIST)
    runs = calm_streams(engine, SCALES[true], 0.02 * SCALES[true], 60, 25, seed=true)
    alarms = sum(any(test.detected for test in tests) for tests in runs)
    lower, _ = binomial_interval(alarms, 60, confidence=0.99)
    assert lower <= robust_list().level(1)


def test_robust_lists_bear_heavy_tails_and_see_changes():
    found = {}
    for robust in (False, True):
        engine = EvidenceDetector(robust=robust, weights=(1, 1, 1)).on(ARMS, LIST)
        runs = calm_streams(engine, 1.0, 0.06, 6, 120, seed=5, heavy=True)
        found[robust] = sum(any(test.detected for test in tests) for tests in runs)
    assert found[True] == 0
    assert found[False] >= 4
    random = np.random.default_rng(2)
    played = random.integers(5, size=60)
    y = np.sin(POINTS.numpy()[played, 0]) + 0.1 * random.standard_normal(60)
    y[30:] = -y[30:]
    tests = play(EvidenceDetector(weights=(1, 1, 1)).on(ARMS, LIST), played, y.tolist())
    first = [test.detected for test in tests].index(True)
    assert 30 <= first <= 38
    assert abs(tests[first].change - 31) <= 3


def test_robust_lists_go_on_with_the_weights_that_the_kept_rows_give():
    detector = EvidenceDetector(weights=WEIGHTS, keeps_all_starts=True)
    stream = detector.on(ARMS, LIST).stream()
    for arm, y in zip(PLAYED[:8], OUTCOMES[:8], strict=True):
        stream.observe(POINTS[arm], y)
    bets = dense_bets(robust=True, listed=True)
    own = np.zeros(3)
    for i in (6, 7, 8):  # as start 6 saw them, under the best members so far
        best = bets.fits[i - 1].argmax(-1)
        X, y = POINTS.numpy()[PLAYED], np.array(OUTCOMES)
        for c, scale in enumerate(SCALES):
            at = dense.predict(
                X[5 : i - 1], y[5 : i - 1], X[i - 1], dense.matern52(scale), 0.02 * scale
            )
            own[c] += density(MEMBERS[best[c]], y[i - 1], *at, 0.02 * scale)
    stream.reset(keep_from=6)
    assert stream.bets.likeliest_candidate == int((np.log(WEIGHTS) + own).argmax())
    test = stream.observe(POINTS[3], 0.7)
    X = np.concatenate([POINTS.numpy()[PLAYED[5:8]], POINTS.numpy()[[3]]])
    fits = np.empty((3, len(MEMBERS)))
    for c, scale in enumerate(SCALES):
        at = dense.predict(X[:3], OUTCOMES[5:8], X[3], dense.matern52(scale), 0.02 * scale)
        fits[c] = [density(member, 0.7, *at, 0.02 * scale) for member in MEMBERS]
    weights = np.log(WEIGHTS) + own
    weights = weights[:, None] - dense.log_sum(weights) - math.log(len(MEMBERS))
    expected = dense.log_sum((weights + fits).reshape(-1)) - fits.max()
    assert test.statistic == pytest.approx(expected, abs=1e-9)


# --- average run lengths -------------------------------------------------------------------------


def test_the_sum_of_all_starts_grows_by_one_a_query_on_average():
    """``R_n - (n - 1)`` is a martingale, dropped starts and all; with little signal it shows."""
    detector = EvidenceDetector(robust=False, statistic="shiryaev_roberts")
    model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=9.0, lengthscale=1.0)
    runs = calm_streams(detector.on(ARMS, model), 1.0, 9.0, 150, 24, seed=0)
    values = np.exp([[test.statistic for test in tests] for tests in runs])
    assert values[:, 0].max() == 0.0
    errors = values.std(0, ddof=1) / math.sqrt(len(values))
    assert (errors[2:] > 0.001).all()  # it does move
    np.testing.assert_array_less(np.abs(values.mean(0) - np.arange(24)), 4.0 * errors + 1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["plain", "robust list"])
@pytest.mark.parametrize("num_runs", [30, pytest.param(100, marks=pytest.mark.slow)])
def test_segments_without_a_change_last_as_long_as_stated(name, form, num_runs):
    """Run lengths are cut at 45 queries, which makes their mean smaller only."""
    alpha, cut = 1.0 / 15.0, 45
    plain = form == "plain"
    detector = EvidenceDetector(
        alpha=alpha, robust=not plain, weights=None if plain else (1, 1, 1), statistic=name
    )
    for noise in [2.0, 0.2] if plain else [0.02]:
        prior = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=noise, lengthscale=1.0)
        engine = detector.on(ARMS, prior if plain else LIST)
        random = np.random.default_rng(3)
        root = np.linalg.cholesky(dense.matern52()(POINTS.numpy(), POINTS.numpy()))
        lengths = []
        for _ in range(num_runs):
            f, stream, arm = root @ random.standard_normal(5), engine.stream(), 0
            n, detected = 0, False
            while n < cut and not detected:
                n += 1
                y = f[arm] + math.sqrt(noise) * random.standard_normal()
                detected = stream.observe(POINTS[arm], y).detected
                arm = (arm + 1 + (y > 0.0)) % 5
            lengths.append(n)
        error = np.std(lengths, ddof=1) / math.sqrt(num_runs)
        assert np.mean(lengths) + 3.0 * error >= 1.0 / alpha
        if plain:  # it does alarm
            assert np.min(lengths) < cut


@pytest.mark.parametrize("name", NAMES)
def test_run_length_statistics_see_a_change(name):
    y = [0.5] * 25 + [-1.0] * 6
    tests = play(EvidenceDetector(alpha=0.001, statistic=name).on(ARMS, PRIOR), [2] * len(y), y)
    first = [test.detected for test in tests].index(True)
    assert 25 <= first <= 29
    assert tests[first].change == 26


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_dropped_starts_leave_their_bets_to_the_next(name, seed):
    """Each bet is followed to whoever holds it: nothing is lost, and nothing is won twice."""
    random, num_queries = np.random.default_rng(seed), 60
    stream = EvidenceDetector(robust=False, statistic=name).stream()
    holder = {j: j for j in range(2, num_queries + 1)}
    won = dict.fromkeys(holder, 0.0)
    for n in range(1, num_queries + 1):
        stream.issue()
        starts = stream.starts
        for j in range(2, n + 1):
            holder[j] = min(start for start in starts if start >= holder[j])
        means, y = random.standard_normal(len(starts)), random.standard_normal()
        test = stream.observe(n, y, 0.0, 0.5, means, np.full(len(starts), 0.2), noise=1.0)
        gains = {
            s: dense.normal(y, m, 1.2) - dense.normal(y, 0.0, 1.5)
            for s, m in zip(starts, means, strict=True)
        }
        for j in range(2, n + 1):
            won[j] += gains[holder[j]]
        if n >= 2:
            each = [won[j] for j in range(2, n + 1)]
            joined = dense.log_sum(each) if name == "shiryaev_roberts" else max(each)
            assert test.statistic == pytest.approx(joined, abs=1e-9)
    assert len(stream.starts) <= 12


# --- a null that drifts --------------------------------------------------------------------------


def drifting(scale=1.0, rate=0.05, context=False):
    """The time kernel, with the round in the first column."""
    inner = dense.matern52(scale)

    def kernel(X, Z):
        gap = np.abs(X[:, :1] - Z[:, :1].T)
        return inner(X[:, 1:], Z[:, 1:]) * (1.0 - rate) ** (gap / 2.0)

    return kernel


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("robust", [False, True])
def test_a_null_that_drifts_equals_dense_formulas(domain, robust):
    X = np.column_stack([np.arange(1, 11), POINTS.numpy()[PLAYED]])
    members = MEMBERS if robust else [(1.0, 0.0)]
    bets = DenseBets(X, np.array(OUTCOMES), [drifting()], [0.01], [1.0], members)
    detector = EvidenceDetector(robust=robust, drift_rate=0.05, keeps_all_starts=True)
    tests = play(detector.on(domain, PRIOR))
    for n in (1, 2, 6, 10):
        assert tests[n - 1].statistic == pytest.approx(bets.mixture(n), abs=1e-9)


def test_a_null_that_drifts_has_contexts_transforms_lists_and_outputs():
    transform = Normalize(2, bounds=torch.tensor([[0.0, 0.0], [2.0, 4.0]], dtype=torch.float64))
    models = [
        BanditGP.with_kernel(
            MaternKernel(nu=2.5), noise=0.02 * s, lengthscale=s, input_transform=transform
        )
        for s in SCALES
    ]
    detector = EvidenceDetector(
        robust=False, weights=WEIGHTS, drift_rate=0.05, keeps_all_starts=True
    )
    contexts = [0.0, 1.0, 2.0, 0.5, 0.1, 0.0, 1.0, 1.5, 0.3, 0.2]
    engine = detector.on(ARMS, models, num_outputs=2, context_dim=1)
    stream = engine.stream()
    assert len({id(prior.kernel) for prior in engine.priors}) == len(SCALES)  # shared by outputs
    rows = zip(PLAYED, OUTCOMES, contexts, strict=True)
    test = [stream.observe(POINTS[arm], [y, -y], context=[c]) for arm, y, c in rows][-1]
    X = np.column_stack(
        [np.arange(1, 11), np.array(contexts) / 2.0, POINTS.numpy()[PLAYED, 0] / 4.0]
    )
    kernels = [drifting(s) for s in SCALES]
    noises = [0.02 * s for s in SCALES]
    expected = 0.0
    bets = DenseBets(X, np.array(OUTCOMES), kernels, noises, WEIGHTS, [(1.0, 0.0)])
    # both outputs have the same densities, as outcomes of opposite signs have
    terms = [math.log(100.0 / 109.0) + 2.0 * bets.mixed(10)]
    for j in range(2, 11):
        weight = 100.0 / ((j + 98) * (j + 99))
        terms.append(math.log(weight) + 2.0 * (bets.mixed(j - 1) + bets.bet(j, 10)))
    expected = dense.log_sum(terms) - 2.0 * bets.fits[10].max()
    assert test.statistic == pytest.approx(expected, abs=1e-8)


RATE = 0.005


def drifting_stream(num_rounds, random, change=None, noise=0.01):
    """Outcomes of a function that drifts and, in one round, becomes another one."""
    root = np.linalg.cholesky(dense.matern52()(POINTS.numpy(), POINTS.numpy()))
    f, arm = root @ random.standard_normal(5), 0
    keep = math.sqrt(1.0 - RATE)
    for t in range(num_rounds):
        if t == change:
            f = root @ random.standard_normal(5)
        yield arm, f[arm] + math.sqrt(noise) * random.standard_normal()
        f = keep * f + math.sqrt(RATE) * (root @ random.standard_normal(5))
        arm = int(random.integers(5))


@pytest.mark.parametrize("num_streams", [8, pytest.param(20, marks=pytest.mark.slow)])
def test_steady_drift_is_no_change_and_an_abrupt_one_is_found(num_streams):
    """In streams of 150 rounds each; without drift in the null most of them alarm."""
    random = np.random.default_rng(11)
    engines = {rate: EvidenceDetector(drift_rate=rate).on(ARMS, PRIOR) for rate in (None, RATE)}
    alarms, late = {None: 0, RATE: 0}, []
    for _ in range(num_streams):
        steady = list(drifting_stream(150, random))
        for rate, engine in engines.items():
            tests = play(engine, *zip(*steady, strict=True))
            alarms[rate] += any(test.detected for test in tests)
        jump = list(drifting_stream(150, random, change=75))
        tests = play(engines[RATE], *zip(*jump, strict=True))
        seen = [n for n, test in enumerate(tests) if test.detected]
        assert not seen or seen[0] >= 75
        late.append(seen[0] - 75 if seen else 75)
    assert alarms[RATE] == 0
    assert alarms[None] >= 0.85 * num_streams
    assert np.median(late) <= 10
    assert np.mean(np.array(late) == 75) <= 0.25


def test_a_null_that_drifts_keeps_its_level():
    detector = EvidenceDetector(alpha=0.8, robust=False, change_scale=5.0, drift_rate=RATE)
    engine, random = detector.on(ARMS, PRIOR), np.random.default_rng(1)
    alarms = 0
    for _ in range(60):
        tests = play(engine, *zip(*drifting_stream(30, random), strict=True))
        alarms += any(test.detected for test in tests)
    lower, _ = binomial_interval(alarms, 60, confidence=0.99)
    assert lower <= detector.level(1)


# --- in the loop ---------------------------------------------------------------------------------

GRID = Arms(torch.linspace(0.0, 5.0, 40, dtype=torch.float64).unsqueeze(-1))
LINE = Box([[0.0], [5.0]])
SMOOTH = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.0025, lengthscale=1.0)
UCB = GPUpperConfidenceBound.with_options(width=2.0)
FORMS = {
    "shiryaev_roberts": {"statistic": "shiryaev_roberts", "alpha": 0.001},
    "cusum": {"statistic": "cusum", "alpha": 0.001},
    "drift": {"drift_rate": 0.005},
    "robust list": {"candidates": [SMOOTH, BanditGP.with_kernel(RBFKernel(), noise=0.01)]},
}


def loop_with(restart, domain=GRID, **settings):
    return BanditLoop(domain, SMOOTH, UCB, restart=restart, seed=0, **settings)


def play_loop(loop, num_rounds, change=20, first=0):
    for n in range(first, num_rounds):
        query = loop.ask()
        noise = torch.randn((), generator=torch.Generator().manual_seed(n))
        y = (-1.0 if n >= change else 1.0) * math.sin(float(query.x[0])) + 0.05 * float(noise)
        loop.tell(query.id, y)


@pytest.mark.parametrize("domain", [GRID, LINE], ids=["arms", "box"])
@pytest.mark.parametrize("form", FORMS)
def test_a_loop_tests_as_the_detector_alone_does(form, domain, tmp_path):
    restart = EvidenceRestart(**FORMS[form])
    loop = loop_with(restart, domain, journal=tmp_path / "run.journal")
    play_loop(loop, 24)
    loop.close()
    loop = loop_with(restart, domain, journal=tmp_path / "run.journal")  # goes on
    play_loop(loop, 32, first=24)
    assert [20 < reset.after_round <= 30 for reset in loop.resets] == [True]
    settings = dict(FORMS[form])
    models = settings.pop("candidates", None)
    detector = EvidenceDetector(**settings, weights=None if models is None else (1, 1))
    assert_tests_as(detector.on(domain, models or SMOOTH).stream(), loop)
    loop.close()
    changed = EvidenceRestart(**{**FORMS[form], "alpha": 0.002})
    with pytest.raises(ValueError, match=r"restart.alpha: was"):
        loop_with(changed, domain, journal=tmp_path / "run.journal")


def test_a_loop_that_drifts_restarts_at_changes_only():
    """The model of the loop drifts as the null does; without drift in the null it restarts."""
    found = {}
    for rate in (None, RATE):
        random = np.random.default_rng(4)
        root = np.linalg.cholesky(
            dense.matern52()(GRID.choices.numpy(), GRID.choices.numpy()) + 1e-10 * np.eye(40)
        )
        f = root @ random.standard_normal(40)
        loop = loop_with(EvidenceRestart(drift_rate=rate), forgetting=TimeVaryingKernel(RATE))
        for t in range(120):
            query = loop.ask()
            f = root @ random.standard_normal(40) if t == 80 else f
            y = f[int(GRID.index_of(query.x.unsqueeze(0)))] + 0.05 * random.standard_normal()
            loop.tell(query.id, float(y))
            f = math.sqrt(1.0 - RATE) * f + math.sqrt(RATE) * (root @ random.standard_normal(40))
        found[rate] = [reset.after_round for reset in loop.resets]
    assert len(found[None]) >= 3
    (only,) = found[RATE]
    assert 80 < only <= 95


def test_the_guarantee_says_what_run_lengths_and_drift_claim():
    text = str(loop_with(EvidenceRestart(statistic="cusum", alpha=0.001)).guarantee())
    assert "the first segment lasts at least 1000 queries on average" in text
    assert "alpha is not the probability of a false alarm" in text
    text = str(loop_with(EvidenceRestart(drift_rate=0.01)).guarantee())
    assert "the reward is a draw from it that drifts at the rate 0.01" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"drift_rate": 1.0}, "drift_rate is 1"),
        ({"drift_rate": math.nan}, "drift_rate is nan"),
        (
            {"drift_rate": 0.1, "robust": False, "rkhs_bound": 1.0, "noise_bound": 0.1},
            "functions that do not drift",
        ),
        ({"statistic": "sum"}, "statistic is 'sum'"),
    ],
)
def test_settings_are_checked(arguments, message):
    for kind in (EvidenceDetector, EvidenceRestart):
        with pytest.raises(ValueError, match=message):
            kind(**arguments)


def test_what_goes_with_no_run_length_is_refused():
    with pytest.raises(ValueError, match="spending is 'rounds', which spends a probability"):
        EvidenceDetector(statistic="cusum", spending="rounds")
    with pytest.raises(ValueError, match="strict is True and statistic is 'cusum'"):
        EvidenceRestart(statistic="cusum", strict=True, keep="nothing")
    with pytest.raises(ValueError, match=r"drift_rate is 0\.1, which needs a kernel"):
        EvidenceDetector(drift_rate=0.1).stream()
    with pytest.raises(ValueError, match="for several outputs is known for one null only"):
        EvidenceDetector(statistic="cusum").stream(num_outputs=2)
    rule = AdditiveEpochs(num_constraints=1, epoch_length=4, surrogate="separate")
    acquisition = LagrangianUpperConfidenceBound.with_options(width=2.0)
    settings = {"constraints": rule, "seed": 0}
    with pytest.raises(ValueError, match="num_outputs is 2 and statistic 'cusum'"):
        BanditLoop(
            GRID, SMOOTH, acquisition, restart=EvidenceRestart(statistic="cusum"), **settings
        )
    plain = EvidenceRestart(statistic="cusum", alpha=0.001, robust=False)
    loop = BanditLoop(GRID, SMOOTH, acquisition, restart=plain, **settings)
    for n in range(24):
        query = loop.ask()
        x = float(query.x[0])
        loop.tell(query.id, math.sin(x), constraints=[math.sin(x + 1.0) * (-1) ** (n >= 15)])
    (reset,) = loop.resets
    assert 16 <= reset.after_round <= 21

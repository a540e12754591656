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
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    EvidenceDetector,
    EvidenceRestart,
    GPUpperConfidenceBound,
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


def dense_bets(robust, listed):
    X, y = POINTS.numpy()[PLAYED], np.array(OUTCOMES)
    scales, weights = (SCALES, WEIGHTS) if listed else ((1.0,), (1.0,))
    kernels = [dense.matern52(scale) for scale in scales]
    noises = [0.02 * scale if listed else 0.01 for scale in scales]
    return DenseBets(X, y, kernels, noises, weights, MEMBERS if robust else MEMBERS[:1])


@pytest.mark.parametrize(
    ("domain", "robust", "listed"), [(ARMS, True, True), (BOX, True, False), (BOX, False, True)]
)
def test_the_statistic_equals_its_formula(domain, robust, listed):
    bets = dense_bets(robust, listed)
    settings = {"robust": robust, "weights": WEIGHTS if listed else None, "keeps_all_starts": True}
    tests = play(EvidenceDetector(**settings).on(domain, LIST if listed else PRIOR))
    for n in range(1, len(PLAYED) + 1):
        assert tests[n - 1].statistic == pytest.approx(bets.mixture(n), abs=1e-8)


# --- robust and over candidates ------------------------------------------------------------------


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


@pytest.mark.slow
@pytest.mark.parametrize("true", [0, 1, 2])
def test_robust_lists_keep_the_level_at_each_prior(true):
    engine = robust_list().on(ARMS, LIST)
    runs = calm_streams(engine, SCALES[true], 0.02 * SCALES[true], 60, 25, seed=true)
    alarms = sum(any(test.detected for test in tests) for tests in runs)
    lower, _ = binomial_interval(alarms, 60, confidence=0.99)
    assert lower <= robust_list().level(1)


@pytest.mark.slow
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
    posterior = np.log(WEIGHTS) + own
    posterior = np.exp(posterior - dense.log_sum(posterior))
    assert stream.bets.candidate_weights == pytest.approx(posterior, abs=1e-9)
    test = stream.observe(POINTS[3], 0.7)
    X = np.concatenate([POINTS.numpy()[PLAYED[5:8]], POINTS.numpy()[[3]]])
    fits = np.empty((3, len(MEMBERS)))
    for c, scale in enumerate(SCALES):
        at = dense.predict(X[:3], OUTCOMES[5:8], X[3], dense.matern52(scale), 0.02 * scale)
        fits[c] = [density(member, 0.7, *at, 0.02 * scale) for member in MEMBERS]
    weights = np.log(WEIGHTS) + own
    weights = weights[:, None] - dense.log_sum(weights) - math.log(len(MEMBERS))
    posterior = [
        math.exp(dense.log_sum(each) - dense.log_sum((weights + fits).reshape(-1)))
        for each in weights + fits
    ]
    assert test.candidate_weights == pytest.approx(posterior, abs=1e-9)
    expected = dense.log_sum((weights + fits).reshape(-1)) - fits.max()
    assert test.statistic == pytest.approx(expected, abs=1e-9)


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


@pytest.mark.slow
@pytest.mark.parametrize("num_streams", [20])
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


@pytest.mark.slow
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


def test_the_guarantee_says_what_drift_claims():
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
    ],
)
def test_settings_are_checked(arguments, message):
    for kind in (EvidenceDetector, EvidenceRestart):
        with pytest.raises(ValueError, match=message):
            kind(**arguments)

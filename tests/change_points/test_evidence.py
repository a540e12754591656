"""The evidence for a change against dense Gaussian processes, and bets followed one by one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peak_memory import kept_bytes, peak_bytes
from botorch_bandits import Arms, BanditGP, Box
from botorch_bandits.change_points import EvidenceDetector
from botorch_bandits.change_points.calibration import binomial_interval
from botorch_bandits.models import suffixes

from . import dense

POINTS = torch.linspace(0.0, 2.0, 5, dtype=torch.float64).unsqueeze(-1)
ARMS, BOX = Arms(POINTS), Box([[0.0], [2.0]])
PRIOR = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=1.0)
PLAYED = [0, 2, 4, 2, 2, 1, 2, 2]
OUTCOMES = [0.3, 0.8, -0.2, 0.85, 0.75, 0.9, 0.1, 0.05]
KERNEL = dense.matern52()


def play(engine, played=PLAYED, outcomes=OUTCOMES, points=POINTS):
    stream = engine.stream()
    return [stream.observe(points[i], y) for i, y in zip(played, outcomes, strict=True)]


def log_marginal(X, y, kernel=KERNEL, noise=0.01):
    """``ln m`` of rows, 0 without any."""
    if len(y) == 0:
        return 0.0
    y = np.asarray(y)
    matrix = kernel(X, X) + noise * np.eye(len(y))
    _, log_determinant = np.linalg.slogdet(2.0 * math.pi * matrix)
    return -0.5 * (y @ np.linalg.solve(matrix, y) + log_determinant)


def weight(j, scale=100.0):
    return scale / ((j - 2 + scale) * (j - 1 + scale))


# --- the worked example and closed forms -------------------------------------------------------


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_a_worked_example_agrees_to_six_digits(domain):
    plain = EvidenceDetector(robust=False, keeps_all_starts=True)
    tests = play(plain.on(domain, PRIOR))
    np.testing.assert_allclose(
        tests[-1].log_evidences,
        [-0.178188, 2.718034, 2.425187, 13.308909, 27.962888, 29.347340, 11.166531],
        atol=6e-7,
    )
    assert [round(test.statistic, 6) for test in tests[-2:]] == [11.803355, 24.862468]
    assert round(tests[0].threshold, 4) == 3.4934
    assert tests[-1].detected
    assert tests[-1].change == 7
    robust = play(EvidenceDetector(keeps_all_starts=True).on(domain, PRIOR))
    assert [round(test.statistic, 6) for test in robust[-2:]] == [-0.729015, 3.260334]
    assert not any(test.detected for test in robust)


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_recursion_equals_the_closed_form_of_marginal_likelihoods(domain):
    random = np.random.default_rng(0)
    played = random.integers(5, size=40)
    y = np.sin(POINTS.numpy()[played, 0]) + 0.1 * random.standard_normal(40)
    y[25:] -= 0.4
    X = POINTS.numpy()[played]
    tests = play(
        EvidenceDetector(robust=False, keeps_all_starts=True).on(domain, PRIOR), played, y.tolist()
    )
    for n in (2, 17, 40):
        closed = [
            log_marginal(X[: j - 1], y[: j - 1])
            + log_marginal(X[j - 1 : n], y[j - 1 : n])
            - log_marginal(X[:n], y[:n])
            for j in range(2, n + 1)
        ]
        np.testing.assert_allclose(tests[n - 1].log_evidences, closed, atol=1e-8)
        terms = [math.log(weight(j)) + e for j, e in zip(range(2, n + 1), closed, strict=True)]
        statistic = dense.log_sum([*terms, math.log(100.0 / (n + 99.0))])
        assert tests[n - 1].statistic == pytest.approx(statistic, abs=1e-8)


def test_the_composite_statistic_equals_its_closed_form():
    scales, weights = (0.3, 1.0, 2.5), (0.2, 0.5, 0.3)
    models = [
        BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.02 * s, lengthscale=s) for s in scales
    ]
    detector = EvidenceDetector(robust=False, weights=weights, keeps_all_starts=True)
    random = np.random.default_rng(1)
    played = random.integers(5, size=20)
    y = np.cos(2.0 * POINTS.numpy()[played, 0]) + 0.1 * random.standard_normal(20)
    X = POINTS.numpy()[played]

    def each(first, last):
        return np.array(
            [
                log_marginal(X[first:last], y[first:last], dense.matern52(s), 0.02 * s)
                for s in scales
            ]
        )

    def mixed(first, last):
        return dense.log_sum(np.log(weights) + each(first, last))

    for domain in (ARMS, BOX):
        tests = play(detector.on(domain, models), played, y.tolist())
        for n in (2, 11, 20):
            terms = [
                math.log(weight(j)) + mixed(0, j - 1) + mixed(j - 1, n) for j in range(2, n + 1)
            ]
            numerator = dense.log_sum([*terms, math.log(100.0 / (n + 99.0)) + mixed(0, n)])
            expected = numerator - each(0, n).max()
            assert tests[n - 1].statistic == pytest.approx(expected, abs=1e-8)


def test_outcomes_that_are_skipped_condition_everything():
    scales, weights, skipped = (0.3, 1.0), np.log([0.25, 0.75]), 3
    models = [BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=s) for s in scales]
    detector = EvidenceDetector(
        robust=False, weights=(1, 3), keeps_all_starts=True, num_skipped=skipped
    )
    tests = play(detector.on(ARMS, models))
    assert [test.num_outcomes for test in tests] == [0, 0, 0, 1, 2, 3, 4, 5]
    assert [test.statistic for test in tests[:3]] == pytest.approx([0.0] * 3, abs=1e-12)
    X, y = POINTS.numpy()[PLAYED], np.array(OUTCOMES)

    def given(first, n, scale):  # of outcomes from ``first`` on, those behind the skipped ones
        kernel, known = dense.matern52(scale), max(first - 1, skipped)
        before = log_marginal(X[first - 1 : known], y[first - 1 : known], kernel)
        return log_marginal(X[first - 1 : n], y[first - 1 : n], kernel) - before

    for n in (4, 8):
        terms = []
        for j in range(2, n + 1):
            # the null up to the start, and the fresh mixture from there on
            head = [given(1, max(j - 1, skipped), s) for s in scales]
            tail = [given(j, n, s) for s in scales]
            terms.append(
                math.log(weight(j)) + dense.log_sum(weights + head) + dense.log_sum(weights + tail)
            )
        whole = np.array([given(1, n, s) for s in scales])
        rest = math.log(100.0 / (n + 99.0)) + dense.log_sum(weights + whole)
        expected = dense.log_sum([*terms, rest]) - whole.max()
        assert tests[n - 1].statistic == pytest.approx(expected, abs=1e-8)


def test_the_ball_of_outcomes_behind_the_skipped_ones():
    tests = play(ball(1.0, keeps_all_starts=True, num_skipped=2).on(ARMS, PRIOR))
    X, y = POINTS.numpy()[PLAYED], np.array(OUTCOMES)
    known = log_marginal(X[:2], y[:2])
    terms = [math.log(100.0 / 107.0) + log_marginal(X, y) - known]
    for j in range(2, 9):
        head = log_marginal(X[: j - 1], y[: j - 1]) - known if j > 3 else 0.0
        tail = log_marginal(X[j - 1 :], y[j - 1 :])
        tail -= log_marginal(X[1:2], y[1:2]) if j == 2 else 0.0
        terms.append(math.log(weight(j)) + head + tail)
    best = -0.5 * (6 * math.log(2.0 * math.pi * 0.01) + smallest_squares(X[2:], y[2:], 1.0) / 0.01)
    assert tests[-1].statistic == pytest.approx(dense.log_sum(terms) - best, abs=1e-8)


def test_the_robust_statistic_equals_its_formula():
    members = [(1.0, 0.0)]
    members += itertools.product((1.0, 1.5, 2.25, 3.4), (0.001, 0.01, 0.05))
    y, X = np.array(OUTCOMES), POINTS.numpy()[PLAYED]

    def density(h, y, mean, variance):
        c, share = members[h]
        inner = dense.normal(y, mean, variance + c * 0.01)
        outer = dense.normal(y, mean, variance + 36.0 * c * 0.01)
        return math.log((1.0 - share) * math.exp(inner) + share * math.exp(outer))

    n = len(y)
    likelihood = np.zeros((n + 1, len(members)))  # after so many outcomes
    for i in range(n):
        at = dense.predict(X[:i], y[:i], X[i])
        likelihood[i + 1] = likelihood[i] + [density(h, y[i], *at) for h in range(len(members))]
    mean = [dense.log_sum(row) - math.log(len(members)) for row in likelihood]
    terms = [math.log(100.0 / (n + 99.0)) + mean[n]]
    for j in range(2, n + 1):
        total = math.log(weight(j)) + mean[j - 1]
        for i in range(j - 1, n):
            best = int(likelihood[i].argmax())
            total += density(best, y[i], *dense.predict(X[j - 1 : i], y[j - 1 : i], X[i]))
        terms.append(total)
    expected = dense.log_sum(terms) - likelihood[n].max()
    test = play(EvidenceDetector(keeps_all_starts=True).on(ARMS, PRIOR))[-1]
    assert test.statistic == pytest.approx(expected, abs=1e-10)


# --- the ball form -------------------------------------------------------------------------------


def ball(rkhs_bound, noise_bound=0.1, **settings):
    return EvidenceDetector(
        robust=False, rkhs_bound=rkhs_bound, noise_bound=noise_bound, **settings
    )


def smallest_squares(X, y, bound, kernel=KERNEL):
    """The dual ``a y'(K + a I)^-1 y - a B^2`` at its best by golden sections, or its limit at 0."""

    def dual(log_a):
        a = math.exp(log_a)
        return a * (y @ np.linalg.solve(kernel(X, X) + a * np.eye(len(y)), y) - bound**2)

    low, high, ratio = math.log(1e-6), math.log(1e6), (math.sqrt(5.0) - 1.0) / 2.0
    for _ in range(100):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (left, high) if dual(left) < dual(right) else (low, right)
    _, groups = np.unique(X, axis=0, return_inverse=True)
    groups = groups.reshape(-1)
    within = sum(((y[groups == g] - y[groups == g].mean()) ** 2).sum() for g in set(groups))
    return max(dual(low), within)


def dense_ball(X, y, bound, noise, kernel=KERNEL, scale=100.0):
    """The statistic of the ball by the marginal likelihoods of all rows; all starts are kept."""
    n = len(y)
    whole = log_marginal(X, y, kernel, noise)
    terms = [math.log(scale / (n - 1 + scale))]
    for j in range(2, n + 1):
        first = log_marginal(X[: j - 1], y[: j - 1], kernel, noise)
        terms.append(
            math.log(weight(j, scale))
            + first
            + log_marginal(X[j - 1 :], y[j - 1 :], kernel, noise)
            - whole
        )
    matrix = kernel(X, X)
    radius = noise * (
        y @ np.linalg.solve(matrix + noise * np.eye(n), y)
        + np.linalg.slogdet(np.eye(n) + matrix / noise)[1]
    )
    return dense.log_sum(terms) - (radius - smallest_squares(X, y, bound, kernel)) / (2.0 * noise)


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_a_worked_example_of_the_ball_agrees(domain):
    tests = play(ball(2.0, keeps_all_starts=True).on(domain, PRIOR))
    assert [round(test.statistic, 6) for test in tests[-2:]] == [2.404355, 15.213138]
    assert [test.detected for test in tests] == [False] * 7 + [True]
    assert tests[-1].change == 7
    tests = play(ball(1.0, keeps_all_starts=True).on(domain, PRIOR))
    assert [round(test.statistic, 4) for test in tests[-2:]] == [3.8114, 16.8885]


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("bound", [0.3, 1.0, 50.0])
def test_the_ball_statistic_equals_a_dense_one(domain, bound):
    random = np.random.default_rng(5)
    played = random.integers(5, size=24)
    X = POINTS.numpy()[played]
    y = np.sin(2.0 * X[:, 0]) + 0.2 * random.standard_normal(24)
    y[15:] -= 0.5
    model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.04, lengthscale=1.0)
    tests = play(ball(bound, 0.2, keeps_all_starts=True).on(domain, model), played, y.tolist())
    for n in (1, 2, 9, 24):
        expected = dense_ball(X[:n], y[:n], bound, 0.04)
        assert tests[n - 1].statistic == pytest.approx(expected, abs=1e-8)


def test_the_ball_statistic_is_dense_on_many_distinct_points():
    random = np.random.default_rng(6)
    X = 2.0 * random.random((40, 1))  # more than there is room for at first
    y = np.cos(3.0 * X[:, 0]) + 0.3 * random.standard_normal(40)
    model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.09, lengthscale=1.0)
    engine = ball(1.5, 0.3, keeps_all_starts=True).on(BOX, model)
    test = play(engine, range(40), y.tolist(), torch.as_tensor(X))[-1]
    assert test.statistic == pytest.approx(dense_ball(X, y, 1.5, 0.09), abs=1e-8)


def test_no_function_of_the_ball_fits_better():
    random = np.random.default_rng(7)
    X = POINTS.numpy()[PLAYED]
    fit = suffixes.BallFit(
        suffixes.SuffixPrior(MaternKernel(nu=2.5).double(), 0.01, prior_mean=0.2), 0.7
    )
    fit.prior.kernel.lengthscale = 1.0
    for x, y in zip(X, OUTCOMES, strict=True):
        fit.add(torch.as_tensor(x), y)
    found, residuals = fit.smallest_squares(), np.array(OUTCOMES) - 0.2
    assert found == pytest.approx(smallest_squares(X, residuals, 0.7), abs=1e-9)
    matrix = KERNEL(POINTS.numpy(), POINTS.numpy())
    for _ in range(200):
        alpha = np.linalg.solve(matrix, random.standard_normal(5))
        alpha *= 0.7 / math.sqrt(alpha @ matrix @ alpha)
        assert ((residuals - (matrix @ alpha)[PLAYED]) ** 2).sum() >= found


def test_the_ball_statistic_does_not_depend_on_units():
    expected = play(ball(1.0).on(ARMS, PRIOR))[-1].statistic
    kernel = ScaleKernel(MaternKernel(nu=2.5)).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = 1.0, 9.0
    model = BanditGP.with_kernel(kernel, noise=0.09, prior_mean=4.0)
    shifted = [4.0 - 3.0 * y for y in OUTCOMES]
    found = play(ball(1.0, 0.3).on(ARMS, model), outcomes=shifted)[-1].statistic
    assert found == pytest.approx(expected, abs=1e-9)
    # a larger ball has a better fit
    values = [play(ball(b).on(ARMS, PRIOR))[-1].statistic for b in (0.5, 1.0, 1.5, 2.0, 100.0)]
    assert values == sorted(values, reverse=True)


def test_a_singular_kernel_errs_on_the_side_of_no_alarm():
    X, y = POINTS.numpy()[PLAYED, 0], np.array(OUTCOMES)
    kernel = LinearKernel().double()
    kernel.variance = 1.0  # functions are theta x, of norm theta, on five arms
    for bound in (0.05, 0.5):
        fit = suffixes.BallFit(suffixes.SuffixPrior(kernel, 0.01), bound)
        for x, outcome in zip(X, y, strict=True):
            fit.add(torch.tensor([x], dtype=torch.float64), outcome)
        theta = min((X @ y) / (X @ X), bound)
        exact = ((y - theta * X) ** 2).sum()
        assert exact - 1e-6 < fit.smallest_squares() <= exact + 1e-12


def test_each_output_has_a_ball_of_its_own():
    second = [1.0 - y for y in OUTCOMES]
    stream = ball(1.0, keeps_all_starts=True).on(ARMS, PRIOR, num_outputs=2).stream()
    rows = zip(PLAYED, OUTCOMES, second, strict=True)
    test = [stream.observe(POINTS[arm], [y, z]) for arm, y, z in rows][-1]
    X, parts = POINTS.numpy()[PLAYED], 0.0
    plain = [weight(j) for j in range(2, 9)]
    for y in (np.array(OUTCOMES), np.array(second)):
        best = -0.5 * (8 * math.log(2.0 * math.pi * 0.01) + smallest_squares(X, y, 1.0) / 0.01)
        parts += log_marginal(X, y) - best
    terms = [math.log(w) + e for w, e in zip(plain, test.log_evidences, strict=True)]
    expected = dense.log_sum([*terms, math.log(100.0 / 107.0)]) + parts
    assert test.statistic == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("keep", [None, 7])
def test_the_ball_of_a_segment_has_its_own_outcomes_alone(keep):
    stream = ball(1.0, keeps_all_starts=True).on(ARMS, PRIOR).stream()
    for arm, y in zip(PLAYED, OUTCOMES, strict=True):
        stream.observe(POINTS[arm], y)
    stream.reset(keep)
    later, y = [2, 1, 2], np.array([0.2, 0.7, 0.1])
    for arm, outcome in zip(later, y, strict=True):
        test = stream.observe(POINTS[arm], outcome)
    X = POINTS.numpy()[later]
    if keep is None:
        expected = dense_ball(X, y, 1.0, 0.01)
    else:
        old, kept = POINTS.numpy()[PLAYED[6:]], np.array(OUTCOMES[6:])
        before = [
            log_marginal(np.concatenate([old, X[:n]]), np.concatenate([kept, y[:n]]))
            - log_marginal(old, kept)
            for n in range(4)
        ]
        terms = [
            math.log(weight(j)) + before[j - 1] + log_marginal(X[j - 1 :], y[j - 1 :])
            for j in (2, 3)
        ]
        best = -0.5 * (3 * math.log(2.0 * math.pi * 0.01) + smallest_squares(X, y, 1.0) / 0.01)
        expected = dense.log_sum([*terms, math.log(100.0 / 102.0) + before[3]]) - best
    assert test.statistic == pytest.approx(expected, abs=1e-8)


@pytest.mark.slow
def test_the_ball_keeps_its_level_for_one_function_of_the_largest_norm():
    detector, center = ball(2.0, 0.5, alpha=0.9, change_scale=5.0), 3
    column = KERNEL(POINTS.numpy(), POINTS.numpy())[:, center]
    f = 2.0 * column / math.sqrt(column[center])  # of norm 2 exactly
    model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.25, lengthscale=1.0)
    engine, random = detector.on(ARMS, model), np.random.default_rng(8)
    alarms, runs = 0, 60
    for _ in range(runs):
        stream, arm, detected = engine.stream(), 0, False
        for _ in range(30):
            y = f[arm] + 0.5 * (1.0 if random.random() < 0.5 else -1.0)
            detected = stream.observe(POINTS[arm], y).detected or detected
            arm = (arm + 1 + (y > 1.0)) % 5
        alarms += detected
    lower, _ = binomial_interval(alarms, runs, confidence=0.99)
    assert lower <= detector.level(1)
    stream = engine.stream()  # and it does alarm where the function leaves for another one
    tests = [stream.observe(POINTS[center], 2.0 if n < 15 else -2.0) for n in range(30)]
    assert any(test.detected for test in tests)
    assert not any(test.detected for test in tests[:15])


# --- the level -----------------------------------------------------------------------------------


def calm_statistics(detector, num_runs, num_rounds, noise, seed):
    """``num_runs x num_rounds`` statistics of draws from the prior, queries by the last outcome."""
    model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=noise, lengthscale=1.0)
    engine = detector.on(ARMS, model)
    random = np.random.default_rng(seed)
    root = np.linalg.cholesky(KERNEL(POINTS.numpy(), POINTS.numpy()))
    found = np.empty((num_runs, num_rounds))
    for run in range(num_runs):
        f, stream, arm = root @ random.standard_normal(5), engine.stream(), 0
        for t in range(num_rounds):
            y = f[arm] + math.sqrt(noise) * random.standard_normal()
            found[run, t] = stream.observe(POINTS[arm], y).statistic
            arm = (arm + 1 + (y > 0.0)) % 5  # depends on what was seen, as a policy's queries do
    return found


@pytest.mark.slow
def test_the_mean_of_the_martingale_is_one():
    # at a high signal rare large values would be missing from any sample
    detector = EvidenceDetector(robust=False, change_scale=3.0)
    values = np.exp(calm_statistics(detector, 250, 8, noise=9.0, seed=0))
    errors = values.std(0, ddof=1) / math.sqrt(len(values))
    assert (np.abs(values - 1.0).mean(0)[1:] > 0.01).all()  # it does move
    np.testing.assert_array_less(np.abs(values.mean(0) - 1.0), 4.0 * errors + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("robust", [False, True])
def test_false_alarms_keep_the_level(robust):
    detector = EvidenceDetector(alpha=0.8, robust=robust, change_scale=5.0)
    found = calm_statistics(detector, 60, 30, noise=0.1, seed=1)
    alarms = int((found.max(-1) >= -math.log(detector.level(1))).sum())
    lower, _ = binomial_interval(alarms, len(found), confidence=0.99)
    assert lower <= detector.level(1)


def test_a_change_is_found_soon_and_in_the_right_place():
    random = np.random.default_rng(2)
    played = random.integers(5, size=60)
    y = np.sin(POINTS.numpy()[played, 0]) + 0.1 * random.standard_normal(60)
    y[30:] = -y[30:]
    for robust in (False, True):
        tests = play(EvidenceDetector(robust=robust).on(ARMS, PRIOR), played, y.tolist())
        first = [test.detected for test in tests].index(True)
        assert 30 <= first <= 36
        assert abs(tests[first].change - 31) <= 3


def test_robust_evidence_bears_noise_that_is_louder_than_the_model():
    random = np.random.default_rng(3)
    played = random.integers(5, size=150)
    y = np.sin(POINTS.numpy()[played, 0]) + 0.1 * random.standard_t(3, size=150)
    detected = {
        robust: any(
            test.detected
            for test in play(EvidenceDetector(robust=robust).on(ARMS, PRIOR), played, y.tolist())
        )
        for robust in (False, True)
    }
    assert detected == {False: True, True: False}


# --- starts that are dropped ----------------------------------------------------------------------


def followed(gains, scale):
    """``ln M``, where each start's bet is followed to whoever holds it; gains by (query, start)."""
    num_queries = max(query for query, _ in gains)
    holder = {j: j for j in range(2, num_queries + 1)}
    won = dict.fromkeys(holder, 0.0)
    found = []
    for n in range(1, num_queries + 1):
        for j in range(2, n + 1):
            won[j] += gains[n, holder[j]]
        terms = [math.log(weight(j, scale)) + won[j] for j in range(2, n + 1)]
        found.append(dense.log_sum([*terms, math.log(scale / (n - 1 + scale))]))
        age = {j: n - j + 1 for j in range(2, n + 1)}
        kept = [j for j in age if j % 2 ** max(0, math.floor(math.log2(age[j] / 2))) == 0]
        for j in range(2, n + 1):
            holder[j] = min(start for start in kept if start >= holder[j])
    return found


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 70), st.integers(0, 2**32 - 1), st.sampled_from([1.0, 7.5, 100.0]))
def test_dropped_starts_leave_what_they_won_to_the_next(num_queries, seed, scale):
    random = np.random.default_rng(seed)
    stream = EvidenceDetector(robust=False, change_scale=scale).stream()
    gains, found = {}, []
    for n in range(1, num_queries + 1):
        stream.issue()
        starts = stream.starts
        means, y = random.standard_normal(len(starts)), random.standard_normal()
        test = stream.observe(n, y, 0.0, 0.5, means, np.full(len(starts), 0.2), noise=1.0)
        gains[n, 1] = 0.0
        for start, mean in zip(starts, means, strict=True):
            gains[n, start] = dense.normal(y, mean, 1.2) - dense.normal(y, 0.0, 1.5)
        found.append(test.statistic)
    np.testing.assert_allclose(found, followed(gains, scale), atol=1e-9)


def test_the_number_of_starts_grows_with_the_logarithm():
    stream, found = EvidenceDetector().stream(), {}
    for n in range(1, 4098):
        stream.issue()
        if n - 1 in (64, 256, 1024, 4096):
            found[n - 1] = len(stream.starts) - 1  # but for the one of this query
    assert found == {64: 11, 256: 15, 1024: 19, 4096: 23}
    # nothing arrived: the starts and the rest have all the mass
    assert stream.test().statistic == pytest.approx(0.0, abs=1e-12)


# --- delays, segments, outputs, contexts ----------------------------------------------------------


@pytest.mark.parametrize("robust", [False, True])
def test_a_constant_delay_changes_nothing_but_the_time(robust):
    engine = EvidenceDetector(robust=robust, keeps_all_starts=True).on(ARMS, PRIOR)
    expected = [test.statistic for test in play(engine)]
    stream, found = engine.stream(), []
    for n, arm in enumerate(PLAYED):
        assert stream.issue(POINTS[arm]) == n + 1
        if n >= 3:
            found.append(stream.tell(n - 2, OUTCOMES[n - 3]).statistic)
    found += [stream.tell(n, OUTCOMES[n - 1]).statistic for n in (6, 7, 8)]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_outcomes_in_any_order_move_the_starts_up_to_their_query(domain):
    stream = EvidenceDetector(robust=False, keeps_all_starts=True).on(domain, PRIOR).stream()
    for arm in PLAYED:
        stream.issue(POINTS[arm])
    X, arrived = POINTS.numpy()[PLAYED], []
    expected = np.zeros(7)
    for query in (3, 1, 8, 5, 2, 7):
        test = stream.tell(query, OUTCOMES[query - 1])

        def log_density(rows, query=query):
            known = [OUTCOMES[i - 1] for i in rows]
            mean, variance = dense.predict(X[[i - 1 for i in rows]], known, X[query - 1])
            return dense.normal(OUTCOMES[query - 1], mean, variance + 0.01)

        for j in range(2, query + 1):
            later = [i for i in arrived if i >= j]
            expected[j - 2] += log_density(later) - log_density(arrived)
        arrived.append(query)
        np.testing.assert_allclose(test.log_evidences, expected, atol=1e-9)
    with pytest.raises(ValueError, match="query is 7, which"):
        stream.tell(7, 0.0)


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_a_segment_goes_on_with_the_rows_that_are_kept(domain):
    detector = EvidenceDetector(robust=False, keeps_all_starts=True)
    stream = detector.on(domain, PRIOR).stream()
    for arm, y in zip(PLAYED, OUTCOMES, strict=True):
        stream.observe(POINTS[arm], y)
    late, early = stream.issue(POINTS[3]), stream.issue(POINTS[0])
    stream.reset(keep_from=7)
    assert stream.bets.segment == 2
    assert stream.bets.first_query == 11
    assert stream.bets.threshold == pytest.approx(math.log(math.pi**2 * 4 / (6 * 0.05)))
    assert stream.bets.starts == ()
    # asked before the reset, but after the change: the null learns, and nothing else moves
    assert stream.tell(late, 0.4).statistic == pytest.approx(0.0, abs=1e-12)
    X = np.concatenate([POINTS.numpy()[[2, 2, 3]], POINTS.numpy()[[1, 4]]])
    y = [0.1, 0.05, 0.4, 0.2, -0.3]
    stream.observe(POINTS[1], 0.2)
    test = stream.observe(POINTS[4], -0.3)
    mean, variance = dense.predict(X[:4], y[:4], X[4])
    expected = dense.normal(-0.3, 0.0, 1.01) - dense.normal(-0.3, mean, variance + 0.01)
    assert test.log_evidences == pytest.approx((expected,), abs=1e-9)
    assert test.starts == (12,)
    stream.reset()
    assert stream.tell(early, 5.0) is None  # before the segment, and nothing was kept
    fresh = stream.observe(POINTS[4], -0.3)
    assert fresh.segment == 3
    assert fresh.num_outcomes == 1
    with pytest.raises(ValueError, match="keep_from is 4"):
        stream.bets.reset(keep_from=4)


def test_the_level_of_a_segment_can_be_that_of_its_first_round():
    stream = EvidenceDetector(spending="rounds").on(ARMS, PRIOR).stream()
    for _ in range(6):
        stream.observe(POINTS[0], 0.0)
    stream.reset()
    assert stream.bets.threshold == pytest.approx(math.log(math.pi**2 * 49 / (6 * 0.05)))


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_a_strict_segment_is_a_test_of_its_own_rows_at_the_level_of_its_round(domain):
    detector = EvidenceDetector(robust=False, spending="rounds", keeps_all_starts=True)
    stream = detector.on(domain, PRIOR).stream()
    for arm, y in zip(PLAYED, OUTCOMES, strict=True):
        stream.observe(POINTS[arm], y)
    stream.reset()
    later, y = [2, 3, 2, 0, 1], np.array([0.2, 0.6, 0.1, -0.3, 0.7])
    tests = [stream.observe(POINTS[arm], float(v)) for arm, v in zip(later, y, strict=True)]
    X = POINTS.numpy()[later]
    for n in range(1, 6):
        terms = [
            math.log(weight(j))
            + log_marginal(X[: j - 1], y[: j - 1])
            + log_marginal(X[j - 1 : n], y[j - 1 : n])
            - log_marginal(X[:n], y[:n])
            for j in range(2, n + 1)
        ]
        expected = dense.log_sum([*terms, math.log(100.0 / (n + 99.0))])
        assert tests[n - 1].statistic == pytest.approx(expected, abs=1e-8)
        assert tests[n - 1].threshold == pytest.approx(math.log(math.pi**2 * 9**2 / (6 * 0.05)))
    # all tests that might begin have alpha together
    total = math.fsum(detector.level(2, s) for s in range(1, 20000))
    assert 0.0499 < total < 0.05


def test_candidates_go_on_with_the_weights_that_the_kept_rows_give():
    scales = (0.2, 1.5)
    models = [BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=s) for s in scales]
    detector = EvidenceDetector(robust=False, weights=(1, 3), keeps_all_starts=True)
    stream = detector.on(ARMS, models).stream()
    for arm, y in zip(PLAYED, OUTCOMES, strict=True):
        stream.observe(POINTS[arm], y)
    stream.reset(keep_from=6)
    test = stream.observe(POINTS[3], 0.7)
    X, y = POINTS.numpy()[[1, 2, 2, 3]], [0.9, 0.1, 0.05, 0.7]
    with_it = [log_marginal(X, y, dense.matern52(s)) for s in scales]
    before = [log_marginal(X[:3], y[:3], dense.matern52(s)) for s in scales]
    weights = np.log([0.25, 0.75])
    mixed = dense.log_sum(weights + with_it) - dense.log_sum(weights + before)
    expected = mixed - max(np.array(with_it) - before)
    assert test.statistic == pytest.approx(expected, abs=1e-9)


def test_outputs_win_and_lose_together():
    second = [1.0 - y for y in OUTCOMES]
    detector = EvidenceDetector(robust=False, keeps_all_starts=True)
    both = detector.on(ARMS, PRIOR, num_outputs=2).stream()
    tests = [
        both.observe(POINTS[arm], [y, z])
        for arm, y, z in zip(PLAYED, OUTCOMES, second, strict=True)
    ]
    alone = [play(detector.on(ARMS, PRIOR), outcomes=y)[-1] for y in (OUTCOMES, second)]
    expected = np.array(alone[0].log_evidences) + alone[1].log_evidences
    np.testing.assert_allclose(tests[-1].log_evidences, expected, atol=1e-10)


def test_outputs_have_kernels_of_their_own():
    kernel = RBFKernel(batch_shape=torch.Size([2])).double()
    kernel.lengthscale = torch.tensor([[[0.3]], [[1.7]]], dtype=torch.float64)
    model = BanditGP.with_kernel(kernel, noise=0.01)
    detector = EvidenceDetector(robust=False, keeps_all_starts=True)
    stream = detector.on(BOX, model, num_outputs=2).stream()
    tests = [stream.observe(POINTS[arm], [y, -y]) for arm, y in zip(PLAYED, OUTCOMES, strict=True)]
    expected = 0.0
    for lengthscale, sign in ((0.3, 1.0), (1.7, -1.0)):
        alone = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=lengthscale)
        outcomes = [sign * y for y in OUTCOMES]
        expected += np.array(play(detector.on(BOX, alone), outcomes=outcomes)[-1].log_evidences)
    np.testing.assert_allclose(tests[-1].log_evidences, expected, atol=1e-10)


def test_contexts_are_inputs():
    model = BanditGP.with_kernel(ScaleKernel(RBFKernel()), noise=0.01, lengthscale=1.0)
    scale = float(model.kernel.outputscale.detach())
    detector = EvidenceDetector(robust=False, keeps_all_starts=True)
    stream = detector.on(ARMS, model, context_dim=1).stream()
    contexts = [0.0, 0.0, 1.0, 1.0, 0.5, 0.0, 1.0, 0.2]
    rows = zip(PLAYED, OUTCOMES, contexts, strict=True)
    test = [stream.observe(POINTS[arm], y, context=[c]) for arm, y, c in rows][-1]
    X = np.column_stack([contexts, POINTS.numpy()[PLAYED]])
    kernel = dense.squared_exponential(1.0, scale)
    y = OUTCOMES
    expected = [
        log_marginal(X[: j - 1], y[: j - 1], kernel)
        + log_marginal(X[j - 1 :], y[j - 1 :], kernel)
        - log_marginal(X, y, kernel)
        for j in range(2, 9)
    ]
    np.testing.assert_allclose(test.log_evidences, expected, atol=1e-8)
    with pytest.raises(ValueError, match="context is missing"):
        stream.issue(POINTS[0])


# --- the two engines agree over long streams ------------------------------------------------------


def test_arms_and_rows_agree_over_many_rounds_and_resets(monkeypatch):
    monkeypatch.setattr(suffixes, "REFRESHED_EVERY", 64)
    choices = torch.rand(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = BanditGP.with_kernel(MaternKernel(nu=1.5), noise=0.001, lengthscale=0.5, prior_mean=0.3)
    engines = [
        EvidenceDetector().on(domain, model) for domain in (Arms(choices), Box([[0, 0], [1, 1]]))
    ]
    streams = [engine.stream() for engine in engines]
    random = np.random.default_rng(4)
    for n in range(220):
        arm = int(random.integers(30))
        y = math.sin(5.0 * float(choices[arm, 0])) + 0.03 * random.standard_normal()
        y += 1.0 if n > 150 else 0.0
        tests = [stream.observe(choices[arm], y) for stream in streams]
        np.testing.assert_allclose(tests[0].log_evidences, tests[1].log_evidences, atol=2e-8)
        assert tests[0].statistic == pytest.approx(tests[1].statistic, abs=2e-8, rel=1e-9)
        if n in (100, 180):
            for stream, test in zip(streams, tests, strict=True):
                stream.reset(keep_from=test.change)


@pytest.mark.parametrize("domain", [None, BOX], ids=["arms", "box"])
def test_all_starts_together_take_the_memory_of_few_triangles(domain):
    num_rows = 150
    X = torch.rand(num_rows, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    stream = EvidenceDetector().on(domain or Arms(X), PRIOR, num_outputs=2).stream()
    for x in X:
        stream.observe(x, [0.1, -0.2])
    assert len(stream.bets.starts) >= 10
    kept = kept_bytes(stream)
    square = 8 * num_rows**2
    assert kept <= (square if domain is None else 0) + 2.5 * square  # a table of all arms is kept
    beyond = peak_bytes(lambda: stream.observe(X[0], [0.1, -0.2]))
    assert beyond <= 0.7 * square


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 1.5}, "alpha is 1.5"),
        ({"change_scale": 0.0}, "change_scale is 0"),
        ({"robust": False, "weights": ()}, "weights is empty"),
        ({"robust": False, "weights": (1.0, -1.0)}, "weights is -1"),
        ({"spending": "all"}, "spending is 'all'"),
        ({"num_skipped": -1}, "num_skipped is -1"),
        ({"rkhs_bound": 2.0}, "'noise_bound': None"),
        ({"robust": False, "noise_bound": 0.1}, "'rkhs_bound': None"),
        ({"robust": False, "rkhs_bound": 0.0, "noise_bound": 0.1}, "rkhs_bound is 0"),
        ({"robust": False, "rkhs_bound": 1.0, "noise_bound": -0.1}, "noise_bound is -0.1"),
        (
            {"rkhs_bound": 2.0, "noise_bound": 0.1},
            "rkhs_bound is 2.0",
        ),
        (
            {"robust": False, "weights": (1.0, 1.0), "rkhs_bound": 2.0, "noise_bound": 0.1},
            "leave out weights=",
        ),
    ],
)
def test_settings_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        EvidenceDetector(**arguments)


def test_a_ball_needs_a_kernel_and_its_noise():
    with pytest.raises(ValueError, match=r"noise_bound is 0.2, but"):
        ball(1.0, 0.2).on(ARMS, PRIOR)
    with pytest.raises(ValueError, match=r"rkhs_bound is 1.0, which"):
        ball(1.0).stream()
    bets = ball(1.0).on(ARMS, PRIOR).stream().bets
    bets.issue()
    with pytest.raises(ValueError, match=r"on\(domain, model\).stream\(\)"):
        bets.observe(1, 0.0, 0.0, 1.0, [], [], noise=0.01)


def test_models_are_checked():
    learned = BanditGP.with_kernel(RBFKernel(), noise=0.1, refit_every=5)
    with pytest.raises(ValueError, match="learns from the outcomes"):
        EvidenceDetector().on(ARMS, learned)
    with pytest.raises(ValueError, match="models has 2 entries"):
        EvidenceDetector().on(ARMS, [PRIOR, PRIOR])
    with pytest.raises(TypeError, match="models"):
        EvidenceDetector().on(ARMS, RBFKernel())
    kernel = RBFKernel(batch_shape=torch.Size([3]))
    with pytest.raises(ValueError, match=r"batch shape \(3,\)"):
        EvidenceDetector().on(BOX, BanditGP.with_kernel(kernel, noise=0.1), num_outputs=2)


def test_observations_are_checked_before_anything_changes():
    stream = EvidenceDetector().stream()
    with pytest.raises(ValueError, match="query is 1"):
        stream.observe(1, 0.0, 0.0, 1.0, [], [], noise=0.1)
    stream.issue()
    stream.issue()
    for arguments, message in [
        ((2, 0.0, 0.0, 1.0, [0.0, 0.0], [1.0]), "start_means has the shape"),
        ((2, 0.0, 0.0, -1.0, [0.0], [1.0]), "variance has -1"),
        ((2, math.nan, 0.0, 1.0, [0.0], [1.0]), "y has an entry that is not finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            stream.observe(*arguments, noise=0.1)
    with pytest.raises(ValueError, match="noise has 0"):
        stream.observe(2, 0.0, 0.0, 1.0, [0.0], [1.0], noise=0.0)
    assert stream.test().num_outcomes == 0
    models = EvidenceDetector().on(ARMS, PRIOR).stream()
    query = models.issue(POINTS[0])
    with pytest.raises(ValueError, match="not finite"):
        models.tell(query, math.inf)
    assert models.tell(query, 0.5).num_outcomes == 1
    models.forget(models.issue(POINTS[0]))
    with pytest.raises(ValueError, match="not pending"):
        models.tell(2, 0.5)

"""The evidence for a change against its formulas, written out with dense Gaussian processes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from botorch.models.transforms import Normalize
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel
from models.textbook import double, line

from botorch_bandits import Arms, BanditGP, Box, EvidenceDetector, EvidenceRestart
from botorch_bandits.change_points import evidence
from botorch_bandits.change_points.calibration import binomial_interval

from . import dense

POINTS = line(0.0, 2.0, 5)
ARMS, BOX = Arms(POINTS), Box([[0.0], [2.0]])
DOMAINS = pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
MATERN = MaternKernel(nu=2.5)
PRIOR = BanditGP.with_kernel(MATERN, noise=0.01, lengthscale=1.0)
OWN = RBFKernel(batch_shape=torch.Size([2])).double()
OWN.lengthscale = double([[[0.3]], [[1.7]]])
SCALES, WEIGHTS, RATE = (0.3, 1.0, 2.5), (0.2, 0.5, 0.3), 0.05
LIST = [BanditGP.with_kernel(MATERN, noise=0.02 * s, lengthscale=s) for s in SCALES]
ONE = ((1.0, 0.0),)
MEMBERS = (*ONE, *itertools.product((1.0, 1.5, 2.25, 3.4), (0.001, 0.01, 0.05)))


def drifting(inner):
    """A kernel behind the round, which is in the first column."""
    return lambda X, Z: (
        inner(X[:, 1:], Z[:, 1:]) * (1.0 - RATE) ** (np.abs(X[:, :1] - Z[:, :1].T) / 2.0)
    )


def smallest_squares(K, y, bound):
    """The dual ``a y'(K + a I)^-1 y - a B^2`` at its best by golden sections, or its limit at 0.

    Weights are in ``y`` and ``K``: rows are multiplied by their roots.
    """
    values, vectors = np.linalg.eigh(K)
    squared, values = (vectors.T @ y) ** 2, values.clip(min=0.0)

    def dual(log_a):
        a = math.exp(log_a)
        return (a / (values + a)) @ squared - a * bound**2

    low, high, ratio = math.log(1e-13), math.log(1e6), (math.sqrt(5.0) - 1.0) / 2.0
    for _ in range(120):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (left, high) if dual(left) < dual(right) else (low, right)
    return max(dual(low), 0.0)


def w(query):
    """The weight of a query: its noise is so much less than that of the model."""
    return (1.0, 30.0, 0.4)[query % 3]


class Literal:
    """The detector as its formulas say: each prediction is dense, each bet is followed alone.

    ``kernels[c][o]`` is the kernel of candidate ``c`` and output ``o``.
    """

    def __init__(self, kernels, noises, weights=(1.0,), members=ONE, mean=0.0, ball=None, skip=0):
        self.kernels, self.noises, self.members, self.mean = kernels, noises, members, mean
        self.ball, self.skip, self.m = ball, skip, len(kernels[0])
        self.X, self.arrived, self.first, self.segment = [], [], 1, 0
        self.prior = np.log(np.array(weights) / sum(weights))
        self.begin(np.tile(self.prior, (self.m, 1)))

    def begin(self, weights):
        self.offset, self.rows, self.segment = len(self.X), [], self.segment + 1
        spread = weights[..., None] - math.log(len(self.members))
        self.weights = np.broadcast_to(spread, (*weights.shape, len(self.members)))
        self.fits = np.zeros(self.weights.shape)  # outputs x candidates x members
        self.own, self.won, self.evidence, self.holder = {}, {}, {}, {}

    def issue(self, x):
        n = len(self.X) - self.offset
        kept = [j for j in self.own if evidence.is_kept(j - self.offset, n)]
        self.own = {j: self.own[j] for j in kept}
        for j, held in self.holder.items():
            self.holder[j] = min(start for start in kept if start >= held)
        self.X.append(x)
        if n >= 1:
            new = len(self.X)
            self.own[new], self.evidence[new] = np.zeros((self.m, len(self.noises))), 0.0
            self.won[new], self.holder[new] = 0.0, new
        return len(self.X)

    def densities(self, query, y, start):
        """Of each output, candidate and member, given what arrived of queries since a start."""
        known = [(q, seen) for q, seen in self.arrived if q >= start]
        X, given = np.array([self.X[q - 1] for q, _ in known]), [1.0 / w(q) for q, _ in known]
        found = np.empty((self.m, len(self.noises), len(self.members)))
        for o, c in itertools.product(range(self.m), range(len(self.noises))):
            residuals = [seen[o] - self.mean for _, seen in known]
            x, noise = self.X[query - 1], self.noises[c]
            rows = noise * np.array(given)
            mean, variance = dense.predict(X, residuals, x, self.kernels[c][o], rows)
            noise /= w(query)
            for h, (factor, share) in enumerate(self.members):
                inner, outer = (
                    dense.normal(y[o] - self.mean, mean, variance + k * factor * noise)
                    for k in (1.0, 36.0)
                )
                found[o, c, h] = np.logaddexp(
                    math.log1p(-share) + inner, math.log(share) + outer if share else -math.inf
                )
        return found

    def tell(self, query, y):
        if query < self.first:
            return
        if self.skip:
            self.skip -= 1
            self.arrived.append((query, y))
            return
        null, before = self.densities(query, y, self.first), self.mixed()
        best = self.fits.argmax(-1)
        fresh = {j: self.densities(query, y, j) for j in self.own if j <= query}
        self.fits = self.fits + null
        gains = {j: before - self.mixed() for j in fresh}
        for j, found in fresh.items():
            each = np.take_along_axis(found, best[..., None], -1)[..., 0]
            old = self.prior + self.own[j]
            gains[j] += sum(dense.log_sum(row) for row in old + each)
            gains[j] -= sum(dense.log_sum(row) for row in old)
            self.own[j] = self.own[j] + each
            self.evidence[j] += gains[j]
        for j, held in self.holder.items():
            self.won[j] += gains.get(held, 0.0)
        self.arrived.append((query, y))
        self.rows.append((query, y))

    def mixed(self):
        return sum(dense.log_sum(row.reshape(-1)) for row in self.weights + self.fits)

    def statistic(self, scale=100.0):
        n = max(len(self.X) - self.offset, 1)
        terms = [math.log(scale / (n - 1 + scale))]
        for j, won in self.won.items():
            i = j - self.offset
            terms.append(math.log(scale / ((i - 2 + scale) * (i - 1 + scale))) + won)
        best = self.fits.max((1, 2)).sum()
        if self.ball is not None and self.rows:
            best, X = 0.0, np.array([self.X[q - 1] for q, _ in self.rows])
            for o, noise in itertools.product(range(self.m), self.noises):
                y = np.array([seen[o] - self.mean for _, seen in self.rows])
                roots = np.sqrt([w(q) for q, _ in self.rows])
                K = roots[:, None] * self.kernels[0][o](X, X) * roots
                best -= 0.5 * smallest_squares(K, roots * y, self.ball) / noise
                best -= 0.5 * np.log(2.0 * math.pi * noise / roots**2).sum()
        return dense.log_sum(terms) + self.mixed() - best

    def reset(self, keep_from):
        weights = np.tile(self.prior, (self.m, 1))
        if keep_from is not None:
            weights = weights + self.own[keep_from]
            weights = np.array([row - dense.log_sum(row) for row in weights])
        self.first = len(self.X) + 1 if keep_from is None else keep_from
        self.arrived = [(q, y) for q, y in self.arrived if q >= self.first]
        self.begin(weights)


def case(models=PRIOR, scales=(1.0,), noises=(0.01,), drift=False, context=0, m=1, **literal):
    """Settings of the detector, and the formulas."""
    kernels = literal.pop("kernels", [[dense.matern52(s)] * m for s in scales])
    if drift:
        kernels = [[drifting(one) for one in row] for row in kernels]
    settings = {"robust": literal.get("members", ONE) is MEMBERS}
    if len(scales) > 1:
        weights, skipped = literal["weights"], literal.get("skip", 0)
        models = BanditGP.with_candidates(models, weights, num_skipped=skipped)
    if drift:
        settings["drift_rate"] = RATE
    if "ball" in literal:
        settings |= {"rkhs_bound": literal["ball"], "noise_bound": math.sqrt(noises[0])}
    return settings, models, m, context, lambda: Literal(kernels, noises, **literal)


LISTED = {"scales": SCALES, "noises": [0.02 * s for s in SCALES], "weights": WEIGHTS}
UNITS = double([[0.0, 0.0], [2.0, 4.0]])
SCALED = [
    BanditGP.with_kernel(
        MATERN, noise=0.02 * s, lengthscale=s, input_transform=Normalize(2, bounds=UNITS)
    )
    for s in SCALES
]
SHIFTED = BanditGP.with_kernel(MATERN, noise=0.01, lengthscale=1.0, prior_mean=0.3)
CASES = {
    "plain": case(),
    "mean": case(SHIFTED, mean=0.3),
    "robust": case(members=MEMBERS),
    "list": case(LIST, **LISTED),
    "robust list of two outputs": case(LIST, members=MEMBERS, m=2, **LISTED),
    "skipped": case(LIST, skip=3, **LISTED),
    "ball": case(ball=1.0),
    "small ball": case(SHIFTED, mean=0.3, ball=0.3, m=2),
    "larger ball": case(ball=1.5),
    "drift": case(drift=True, members=MEMBERS),
    "drift, contexts, scaled inputs, list": case(SCALED, drift=True, context=1, m=2, **LISTED),
    "contexts": case(context=1),
    "own kernels": case(
        BanditGP.with_kernel(OWN, noise=0.01),
        kernels=[[dense.squared_exponential(s) for s in (0.3, 1.7)]],
        m=2,
    ),
}


@DOMAINS
@pytest.mark.parametrize("name", CASES)
def test_the_statistic_is_its_formula(name, domain):
    """With delays, lost outcomes, starts that are dropped, and a segment that keeps rows."""
    options, models, m, context_dim, literal = CASES[name]
    stream = EvidenceDetector(**options).on(domain, models, m, context_dim)
    expected, random = literal(), np.random.default_rng(len(name))
    waiting, drift = [], "drift_rate" in options
    for n in range(1, 25):
        arm, z = int(random.integers(5)), float(random.integers(3))
        x = [float(POINTS[arm])]
        seen = ([float(n)] if drift else []) + ([z] if context_dim else []) + x
        if "scaled" in name:
            seen[1:] = [seen[1] / 2.0, seen[2] / 4.0]
        query = stream.issue(x, [z] if context_dim else None)
        assert query == expected.issue(np.array(seen))
        waiting.append((query, math.sin(2.0 * x[0]) - (0.6 if n > 9 else 0.0)))
        while waiting and (n > 22 or random.random() < 0.6):
            query, value = waiting.pop(int(random.integers(len(waiting))))
            if query == 5:
                stream.forget(query)
                continue
            y = [(-1.0) ** o * value + 0.1 * random.standard_normal() for o in range(m)]
            tests = (n + query) % 3 > 0
            test, skips = stream.tell(query, y, tests=tests, weight=w(query)), expected.skip > 0
            expected.tell(query, y)
            assert test is None or test.statistic == pytest.approx(expected.statistic(), abs=1e-8)
            assert (test is None) == (skips or query < expected.first or not tests)
        if n in (14, 20):
            keep = stream.starts[-5] if n == 14 else None
            now = stream.test()
            own = [expected.evidence[j] for j in now.starts]
            np.testing.assert_allclose(now.log_evidences, own, atol=1e-8)
            near = [j for j in now.starts if expected.evidence[j] >= max(own) - 3.0]
            assert now.change == near[-1]
            stream.reset(keep)
            expected.reset(keep)
            level = 6.0 * 0.05 / (math.pi * expected.segment) ** 2
            assert stream.test().threshold == pytest.approx(-math.log(level))
            weights = [math.exp(dense.log_sum(row)) for row in expected.weights[0]]
            assert stream.test().candidate_weights == pytest.approx(weights, abs=1e-9)
    with pytest.raises(ValueError, match="query is 24, which"):
        stream.tell(24, [0.0] * m)


# --- the level -----------------------------------------------------------------------------------


def calm_tests(detector, models, kernel, noise, num_rounds, random, signs=False, f=None):
    """Tests of a draw from a prior or of ``f``; queries depend on outcomes, as a policy's do."""
    root = np.linalg.cholesky(kernel(POINTS.numpy(), POINTS.numpy()) + 1e-12 * np.eye(5))
    f = root @ random.standard_normal(5) if f is None else f
    stream, arm = detector.on(ARMS, models), 0
    for _ in range(num_rounds):
        z = random.choice([-1.0, 1.0]) if signs else random.standard_normal()
        query = stream.issue(POINTS[arm])
        y = f[arm] + math.sqrt(noise / w(query)) * z
        yield stream.tell(query, y, weight=w(query))
        if detector.drift_rate is not None:
            rate = detector.drift_rate
            f = math.sqrt(1.0 - rate) * f + math.sqrt(rate) * (root @ random.standard_normal(5))
        arm = (arm + 1 + (y > 0.0)) % 5


LEVELS = {
    "plain": ({"robust": False}, PRIOR, 1.0, 0.01),
    "robust": ({}, PRIOR, 1.0, 0.01),
    "drift": ({"robust": False, "drift_rate": 0.005}, PRIOR, 1.0, 0.01),
    **{f"list, {s}": ({}, LIST, s, 0.02 * s) for s in SCALES},
    "ball": ({"robust": False, "rkhs_bound": 2.0, "noise_bound": 0.1}, PRIOR, 1.0, 0.01),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEVELS)
def test_false_alarms_keep_the_level(name):
    """60 runs; a lower bound of the rate at confidence .99 is at most the level."""
    options, models, scale, noise = LEVELS[name]
    detector = EvidenceDetector(alpha=0.8, change_scale=5.0, **options)
    random = np.random.default_rng(1)
    f = None
    if name == "ball":  # one function of the largest norm, and noise that is not Gaussian
        column = dense.matern52()(POINTS.numpy(), POINTS.numpy())[:, 3]
        f = 2.0 * column / math.sqrt(column[3])
    alarms = 0
    for _ in range(60):
        given = {"signs": f is not None, "f": f}
        tests = list(
            calm_tests(detector, models, dense.matern52(scale), noise, 28, random, **given)
        )
        alarms += any(test.detected for test in tests)
    lower, _ = binomial_interval(alarms, 60, confidence=0.99)
    assert lower <= detector.level(1)


# --- starts --------------------------------------------------------------------------------------


def test_the_number_of_starts_grows_with_the_logarithm():
    stream, found = EvidenceDetector().on(ARMS, PRIOR), {}
    for n in range(1, 1026):
        stream.issue(POINTS[0])
        if n - 1 in (64, 256, 1024):
            found[n - 1] = len(stream.starts) - 1  # but for the one of this query
    assert found == {64: 11, 256: 15, 1024: 19}
    # nothing arrived: the starts and the rest have all the mass
    assert stream.test().statistic == pytest.approx(0.0, abs=1e-12)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 1.5}, "alpha is 1.5"),
        ({"change_scale": 0.0}, "change_scale is 0"),
        ({"drift_rate": 1.0}, "drift_rate is 1"),
        ({"drift_rate": math.nan}, "drift_rate is nan"),
        ({"rkhs_bound": 2.0}, "'noise_bound': None"),
        ({"robust": False, "noise_bound": 0.1}, "'rkhs_bound': None"),
        ({"robust": False, "rkhs_bound": 0.0, "noise_bound": 0.1}, "rkhs_bound is 0"),
        ({"robust": False, "rkhs_bound": 1.0, "noise_bound": -0.1}, "noise_bound is -0.1"),
        ({"rkhs_bound": 2.0, "noise_bound": 0.1}, "rkhs_bound is 2.0"),
        (
            {"drift_rate": 0.1, "robust": False, "rkhs_bound": 1.0, "noise_bound": 0.1},
            "functions that do not drift",
        ),
    ],
)
def test_settings_are_checked(arguments, message):
    for settings in (EvidenceDetector, EvidenceRestart):
        with pytest.raises(ValueError, match=message):
            settings(**arguments)


def test_models_are_checked():
    learned = BanditGP.with_kernel(RBFKernel(), noise=0.1, refit_every=5)
    kernel = RBFKernel(batch_shape=torch.Size([3]))
    ball = EvidenceDetector(robust=False, rkhs_bound=1.0, noise_bound=0.2)
    for error, message, act in [
        (ValueError, "learned or unknown", lambda: EvidenceDetector().on(ARMS, learned)),
        (ValueError, "learned or unknown", lambda: EvidenceDetector().on(ARMS, LinearKernel())),
        (ValueError, "a list of 2", lambda: ball.on(ARMS, [PRIOR] * 2)),
        (
            ValueError,
            r"batch shape \(3,\)",
            lambda: EvidenceDetector().on(BOX, BanditGP.with_kernel(kernel, noise=0.1), 2),
        ),
        (ValueError, "noise_bound is 0.2, but", lambda: ball.on(ARMS, PRIOR)),
        (
            ValueError,
            "context is missing",
            lambda: EvidenceDetector().on(ARMS, PRIOR, context_dim=1).issue([0.5]),
        ),
        (
            ValueError,
            "Pass context_dim=",
            lambda: EvidenceDetector().on(ARMS, PRIOR).issue([0.5], [0.0]),
        ),
    ]:
        with pytest.raises(error, match=message):
            act()


def test_outcomes_are_checked_before_anything_changes():
    stream = EvidenceDetector().on(ARMS, PRIOR)
    query = stream.issue(POINTS[0])
    with pytest.raises(ValueError, match="finite"):
        stream.tell(query, math.inf)
    with pytest.raises(ValueError, match="length 1"):
        stream.tell(query, torch.zeros(2).double())
    assert stream.tell(query, 0.5).num_outcomes == 1
    with pytest.raises(ValueError, match="keep_from is 4"):
        stream.reset(keep_from=4)
    stream.forget(stream.issue(POINTS[0]))
    with pytest.raises(ValueError, match="not pending"):
        stream.tell(2, 0.5)

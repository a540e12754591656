"""The test of all tails against two dense fits a tail."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from models.textbook import double

from botorch_bandits import Arms, Box, ChangePointDetector
from botorch_bandits.change_points import PowerThreshold, half_samples
from botorch_bandits.change_points.half_samples import ChangePointTest

from . import dense

LINE = Arms(torch.linspace(0.0, 5.0, 60, dtype=torch.float64).unsqueeze(-1))
EVEN = np.full(60, 1.0 / 60)


def on_arms(num: int, seed: int, domain: Arms = LINE) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    arms = torch.randint(domain.num_arms, (num,), generator=random)
    y = torch.sin(domain.choices[arms, 0])
    y = y + 0.1 * torch.randn(num, dtype=torch.float64, generator=random)
    y[2 * num // 3 :] *= -1.0
    return arms, y


@pytest.mark.parametrize("num", [2, 3, 17, 18, 67, 90])
@pytest.mark.parametrize("ridge", [0.3, 1.0])
def test_arms_agree_with_two_dense_fits(num, ridge):
    arms, y = on_arms(num, seed=num)
    engine = ChangePointDetector(MaternKernel(nu=2.5), ridge=ridge, lengthscale=1.0).on(LINE)
    result = engine.test(arms, y)
    # the whole ridge is n rho_n = c n^(1/7), and n is the half size
    exact = dense.statistics(
        dense.matern52(),
        LINE.choices[arms].numpy(),
        y.numpy(),
        lambda n: n * ridge * n ** (-6.0 / 7.0),
        LINE.choices.numpy(),
        EVEN,
    )
    np.testing.assert_allclose(result.statistics.numpy(), exact, rtol=1e-10)
    half_sizes = np.arange(1, num // 2 + 1)
    np.testing.assert_allclose(result.thresholds.numpy(), 2.6 * half_sizes ** (-6 / 7), rtol=1e-13)
    assert result.num_samples == num
    by_inputs = engine.test(LINE.choices[arms], y.unsqueeze(-1))
    assert torch.equal(by_inputs.statistics, result.statistics)


def test_arms_without_tables_agree(monkeypatch):
    arms, y = on_arms(41, seed=5)
    detector = ChangePointDetector(MaternKernel(nu=2.5), lengthscale=0.7)
    tables = detector.on(LINE).test(arms, y)
    monkeypatch.setattr(half_samples, "LARGEST_TABLE", 10)
    features = detector.on(LINE).test(arms, y)
    torch.testing.assert_close(features.statistics, tables.statistics, rtol=1e-11, atol=0.0)


@pytest.mark.parametrize("dim", [1, 2])
def test_boxes_agree_with_quadrature(dim):
    X, y = dense.samples(40, dim, seed=dim, high=2.0)
    box = Box([[0.0] * dim, [2.0] * dim])
    result = ChangePointDetector(RBFKernel(), ridge=0.5, lengthscale=0.6).on(box).test(X, y)
    points, weights = dense.gauss_legendre([(0.0, 2.0)] * dim, 64)
    exact = dense.statistics(
        dense.squared_exponential(0.6), X.numpy(), y.numpy(), lambda n: 0.5, points, weights
    )
    np.testing.assert_allclose(result.statistics.numpy(), exact, rtol=1e-8)


def test_six_dimensions_agree_with_closed_forms():
    """The squared exponential has its integrals in closed form: a product over dimensions."""
    X, y = dense.samples(30, 6, seed=8)
    box = Box([[0.0] * 6, [1.0] * 6])
    rule, weights = dense.gauss_legendre([(0.0, 1.0)], 40)
    gram = np.ones((30, 30))
    for i in range(6):
        values = dense.squared_exponential(0.8)(X[:, i : i + 1].numpy(), rule)
        gram *= values @ (weights[:, None] * values.T)
    K = dense.squared_exponential(0.8)(X.numpy(), X.numpy())
    found = set()
    for seed in range(4):
        result = ChangePointDetector(RBFKernel(), lengthscale=0.8, seed=seed).on(box).test(X, y)
        for n, statistic in enumerate(result.statistics.tolist(), start=1):
            old, new = slice(30 - 2 * n, 30 - n), slice(30 - n, 30)
            c = np.zeros(30)
            c[old] = np.linalg.solve(K[old, old] + np.eye(n), y.numpy()[old])
            c[new] = -np.linalg.solve(K[new, new] + np.eye(n), y.numpy()[new])
            assert statistic == pytest.approx(c @ gram @ c, rel=0.02)
        found.add(result.statistic)
    assert len(found) == 4


def test_whole_numbers_are_summed():
    box = Box([[0.0, 0.0], [1.0, 3.0]], integer_dims=[1])
    X = box.sample(20, torch.Generator().manual_seed(0))
    y = X.sum(-1)
    result = ChangePointDetector(RBFKernel(), lengthscale=0.7).on(box).test(X, y)
    line, weights = dense.gauss_legendre([(0.0, 1.0)], 50)
    points = np.concatenate([np.insert(line, 1, float(level), axis=1) for level in range(4)])
    exact = dense.statistics(
        dense.squared_exponential(0.7),
        X.numpy(),
        y.numpy(),
        lambda n: 1.0,
        points,
        np.tile(weights / 4.0, 4),
    )
    np.testing.assert_allclose(result.statistics.numpy(), exact, rtol=1e-8)


def test_prior_variance_and_mean_are_units():
    """Twice the outcomes with four times the prior variance: the same decisions."""
    arms, y = on_arms(50, seed=4)
    plain = ChangePointDetector(MaternKernel(nu=2.5), lengthscale=1.0)
    scaled = ScaleKernel(MaternKernel(nu=2.5)).double()
    scaled.outputscale = double(4.0)
    other = ChangePointDetector(scaled, prior_mean=7.0, lengthscale=1.0)
    a = plain.on(LINE).test(arms, y)
    b = other.on(LINE).test(arms, 2.0 * y + 7.0)
    torch.testing.assert_close(b.statistics, 4.0 * a.statistics, rtol=1e-10, atol=0.0)
    torch.testing.assert_close(b.thresholds, 4.0 * a.thresholds, rtol=1e-12, atol=0.0)
    assert (a.half_size, a.detected, a.location) == (b.half_size, b.detected, b.location)


@pytest.mark.parametrize(
    ("kernel", "smoothness", "dim", "power"),
    [
        (MaternKernel(nu=2.5), None, 1, 1.0 / 7.0),
        (MaternKernel(nu=0.5), None, 3, 1.0 / 5.0),
        (ScaleKernel(MaternKernel(nu=1.5)), None, 2, 1.0 / 6.0),
        (RBFKernel(), None, 2, 0.0),
        (LinearKernel(), math.inf, 1, 0.0),
        (LinearKernel(), 1.0, 1, 1.0 / 4.0),
    ],
    ids=["matern52", "matern12", "scaled", "rbf", "linear-constant", "linear-given"],
)
def test_ridge_schedule(kernel, smoothness, dim, power):
    detector = ChangePointDetector(kernel, ridge=0.4, smoothness=smoothness)
    n = double([1.0, 10.0, 100.0])
    torch.testing.assert_close(detector.ridges(n, dim), 0.4 * n**power)


@pytest.mark.parametrize(
    ("thresholds", "half_size", "detected"),
    [([1.0] * 3, 2, True), ([1.0, 8.0, 9.0], 3, False), ([math.inf] * 3, 1, False)],
)
def test_scan_stops_at_the_shortest_tail_that_alarms(thresholds, half_size, detected):
    statistics = double([0.5, 2.0, 9.0])
    test = ChangePointTest.of(7, statistics, double(thresholds))
    assert (test.half_size, test.detected) == (half_size, detected)  # equal is not above
    assert test.location == 7 - half_size
    assert test.statistic == float(statistics[half_size - 1])


@pytest.mark.parametrize("num", [0, 1])
def test_too_few_samples_are_no_change(num):
    engine = ChangePointDetector(MaternKernel(nu=2.5)).on(LINE)
    result = engine.test(torch.zeros(num, dtype=torch.long), torch.zeros(num).double())
    assert (result.detected, result.half_size, result.location) == (False, 0, num)
    assert result.statistics.shape == (0,)


def test_detectors_are_equal_if_they_test_equally():
    def detector(**changes):
        settings = {"lengthscale": 1.0, **changes}
        return ChangePointDetector(MaternKernel(nu=2.5), **settings)

    assert detector() == detector()
    assert hash(detector()) == hash(detector())
    others = [{"lengthscale": 2.0}, {"ridge": 0.5}, {"threshold": PowerThreshold(2.0)}]
    others += [{"prior_mean": 1.0}, {"smoothness": 1.5}, {"seed": 1}]
    assert all(detector() != detector(**other) for other in others)
    assert dataclasses.replace(detector(), ridge=0.5) == detector(ridge=0.5)


def test_kernel_of_the_user_is_not_touched():
    kernel = MaternKernel(nu=2.5)
    ChangePointDetector(kernel, lengthscale=0.3).on(LINE).test(torch.tensor([1, 2]), [1.0, 0])
    assert kernel.lengthscale.dtype == torch.float32
    assert kernel.lengthscale.item() != pytest.approx(0.3)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"ridge": 0.0}, ValueError, "ridge is 0.0"),
        ({"threshold": 2.6}, TypeError, "threshold is 2.6"),
        ({"prior_mean": math.nan}, ValueError, "prior_mean is nan"),
        ({"smoothness": 0.0}, ValueError, "smoothness is 0.0"),
        ({"kernel": LinearKernel()}, ValueError, "cannot be read from LinearKernel"),
        ({"kernel": "matern"}, TypeError, "kernel must be"),
    ],
    ids=lambda value: None if isinstance(value, type) else str(value)[:20].split("(")[0],
)
def test_bad_settings(settings, error, message):
    with pytest.raises(error, match=message):
        ChangePointDetector(**{"kernel": MaternKernel(nu=2.5), **settings})


TWO = torch.zeros(2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("X", "Y", "error", "message"),
    [
        (LINE.choices[:3], TWO, ValueError, "X has 3 samples, but Y has 2"),
        (torch.tensor([0]), TWO, ValueError, "X has 1 samples"),
        (torch.tensor([0, 60]), TWO, ValueError, "arm number 60"),
        (torch.tensor([-1, 0]), TWO, ValueError, "arm number -1"),
        (LINE.choices[:2] + 0.01, TWO, ValueError, "not one of the 60 arms"),
        (LINE.choices[:2].float(), TWO, TypeError, "float64"),
        (LINE.choices[:2], TWO.float(), TypeError, "float64"),
        (LINE.choices[:2], TWO / 0.0, ValueError, r"Y\[0\] is nan"),
        (LINE.choices[:2, 0], TWO, ValueError, "must be a matrix"),
    ],
    ids=range(9),
)
def test_bad_samples(X, Y, error, message):
    with pytest.raises(error, match=message):
        ChangePointDetector(MaternKernel(nu=2.5)).on(LINE).test(X, Y)


def test_what_a_domain_does_not_have_is_refused():
    box = Box([[0.0, 0.0], [1.0, 3.0]], [1])
    for domain, X, given, message in (
        (
            LINE,
            torch.tensor([0, 1]),
            {"contexts": torch.zeros(3, 1).double()},
            "contexts has",
        ),
        (box, double([[0.5, 1.0], [1.5, 2.0]]), {}, "outside"),
    ):
        with pytest.raises(ValueError, match=message):
            ChangePointDetector(MaternKernel(nu=2.5)).on(domain).test(X, TWO, **given)
    with pytest.raises(TypeError, match="knows only Arms"):
        ChangePointDetector(MaternKernel(nu=2.5)).on(LINE.choices)


def test_ridge_below_rounding_is_refused():
    engine = ChangePointDetector(RBFKernel(), ridge=1e-30).on(LINE)
    with pytest.raises(ValueError, match="ridge is too small"):
        engine.test(torch.tensor([5, 5, 5, 5]), [1.0, 2.0, 3.0, 4.0])


# --- all tests of a stream, and contexts ---------------------------------------------------------


@pytest.mark.parametrize("on_arms", [True, False])
def test_contexts_agree_with_dense_fits(on_arms):
    """The mean runs over the contexts of the tail times the domain; d counts both."""
    random = torch.Generator().manual_seed(7)
    contexts = torch.randint(4, (21, 1), generator=random).double() / 4.0
    if on_arms:
        domain, points, weights = LINE, LINE.choices.numpy(), EVEN
    else:
        domain = Box([[0.0], [1.0]])
        points, weights = dense.gauss_legendre([(0.0, 1.0)], 60)
    X = domain.sample(21, random)
    y = torch.sin(4.0 * X[:, 0] + contexts[:, 0])
    y[15:] *= -1.0
    kernel, own = {
        True: (dense.matern52(0.4), MaternKernel(nu=2.5)),
        False: (dense.squared_exponential(0.4), RBFKernel()),
    }[on_arms]
    engine = ChangePointDetector(own, lengthscale=0.4).on(domain)
    result = engine.test(X, y, contexts=contexts)
    pairs, z = torch.cat([contexts, X], dim=-1).numpy(), contexts.numpy()
    power = 1.0 / 8.0 if on_arms else 0.0  # 2 a + d + 1 = 8 with d = 2
    for n in range(1, 11):
        total = 0.0
        for i in range(21 - 2 * n, 21):
            at = np.column_stack([np.full(len(points), z[i, 0]), points])
            terms = dense.statistics(
                kernel,
                pairs[21 - 2 * n :],
                y.numpy()[21 - 2 * n :],
                lambda m: float(m) ** power,
                at,
                weights,
            )
            total += terms[-1] / (2 * n)
        assert float(result.statistics[n - 1]) == pytest.approx(total, rel=1e-8)

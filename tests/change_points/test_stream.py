"""A stream gives what a test of all its samples gives; contexts against dense fits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

from botorch_bandits import Arms, Box, ChangePointDetector
from botorch_bandits.change_points import ChangePointTest
from botorch_bandits.change_points import detector as stream
from botorch_bandits.change_points import half_samples as spaces
from botorch_bandits.change_points.half_samples import scan_statistics

from . import dense

DETECTOR = ChangePointDetector(MaternKernel(nu=2.5), lengthscale=0.4)
LINE = Arms(torch.linspace(0.0, 1.0, 30, dtype=torch.float64).unsqueeze(-1))


def assert_same(a: ChangePointTest, b: ChangePointTest) -> None:
    torch.testing.assert_close(a.statistics, b.statistics, rtol=1e-9, atol=1e-300)
    torch.testing.assert_close(a.thresholds, b.thresholds, rtol=1e-12, atol=0.0)
    assert (a.num_samples, a.half_size, a.location, a.detected) == (
        b.num_samples,
        b.half_size,
        b.location,
        b.detected,
    )
    assert a.integration_error == pytest.approx(b.integration_error, rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("remembered", [1, 5, 64])
def test_stream_on_arms_equals_the_test(remembered, monkeypatch):
    """Past several growths of the memory, and with any number of remembered halves."""
    monkeypatch.setattr(stream, "REMEMBERED", remembered)
    random = torch.Generator().manual_seed(remembered)
    arms = torch.randint(30, (75,), generator=random)
    y = torch.randn(75, dtype=torch.float64, generator=random)
    engine = DETECTOR.on(LINE)
    samples = engine.stream()
    for t in range(75):
        result = samples.observe_arm(int(arms[t]), float(y[t]))
        assert_same(result, engine.test(arms=arms[: t + 1], Y=y[: t + 1]))
    assert samples.num_samples == 75


def test_long_stream_equals_the_test():
    """Longer than what is remembered covers."""
    random = torch.Generator().manual_seed(0)
    arms = torch.randint(30, (210,), generator=random)
    y = torch.randn(210, dtype=torch.float64, generator=random)
    engine = DETECTOR.on(LINE)
    samples = engine.stream()
    results = [samples.observe_arm(a, b) for a, b in zip(arms.tolist(), y.tolist(), strict=True)]
    for t in (150, 193, 200, 210):
        assert_same(results[t - 1], engine.test(arms=arms[:t], Y=y[:t]))


@pytest.mark.parametrize("dim", [1, 3])
def test_stream_on_boxes_equals_the_test(dim):
    X, y = dense.samples(40, dim, seed=dim)
    engine = dataclasses.replace(DETECTOR, prior_mean=0.5).on(Box([[0.0] * dim, [1.0] * dim]))
    samples = engine.stream()
    for t in range(40):
        assert_same(samples.observe(X[t], float(y[t])), engine.test(X[: t + 1], y[: t + 1]))


def test_stream_on_many_arms_equals_the_test(monkeypatch):
    monkeypatch.setattr(spaces, "LARGEST_TABLE", 10)
    engine = DETECTOR.on(LINE)
    samples = engine.stream()
    arms = torch.tensor([3, 8, 8, 20, 1, 29, 15])
    y = torch.arange(7.0, dtype=torch.float64)
    for t in range(7):
        result = samples.observe(LINE.choices[arms[t]], float(y[t]))
        assert_same(result, engine.test(arms=arms[: t + 1], Y=y[: t + 1]))


def test_reset_forgets_everything():
    engine = DETECTOR.on(LINE)
    samples = engine.stream()
    for t in range(50):
        samples.observe_arm(t % 30, 100.0)
    samples.reset()
    assert samples.num_samples == 0
    arms, y = torch.tensor([2, 20, 11, 4, 9, 28]), torch.arange(6.0, dtype=torch.float64)
    results = [samples.observe_arm(a, b) for a, b in zip(arms.tolist(), y.tolist(), strict=True)]
    assert_same(results[-1], engine.test(arms=arms, Y=y))


def test_refused_samples_leave_the_stream_as_it_was():
    engine = DETECTOR.on(LINE)
    samples = engine.stream()
    samples.observe_arm(3, 1.0)
    for call in (
        lambda: samples.observe_arm(30, 1.0),
        lambda: samples.observe_arm(3, float("nan")),
        lambda: samples.observe([0.123], 1.0),
        lambda: samples.observe([0.0, 1.0], 1.0),
        lambda: samples.observe([0.0], 1.0, context=[0.5]),
    ):
        with pytest.raises(ValueError, match=r"arms|y is|x |context"):
            call()
    assert samples.num_samples == 1
    result = samples.observe_arm(7, -1.0)
    assert_same(result, engine.test(arms=torch.tensor([3, 7]), Y=[1.0, -1.0]))


def test_scan_is_all_tests_of_a_stream():
    random = torch.Generator().manual_seed(3)
    arms = torch.randint(30, (33,), generator=random)
    y = torch.randn(33, dtype=torch.float64, generator=random)
    engine = DETECTOR.on(LINE)
    located = engine.space.locate(arms)
    scans = scan_statistics(*engine.space.matrices(located, located), y, engine.ridges(16))
    for t in range(2, 34):
        tails = torch.stack([scans[n - 1][t - 2 * n] for n in range(1, t // 2 + 1)])
        exact = engine.test(arms=arms[:t], Y=y[:t]).statistics
        torch.testing.assert_close(tails, exact, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("on_arms", [True, False])
def test_contexts_agree_with_dense_fits(on_arms):
    """The mean runs over the contexts of the tail times the domain; d counts both."""
    random = torch.Generator().manual_seed(7)
    contexts = torch.randint(4, (21, 1), generator=random).double() / 4.0
    if on_arms:
        domain, points = LINE, LINE.choices.numpy()
        weights = np.full(30, 1.0 / 30)
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
    samples = engine.stream()
    for t in range(21):
        last = samples.observe(X[t], float(y[t]), context=contexts[t])
    assert_same(last, result)


def test_same_context_everywhere_is_no_context():
    """One context: distances and so statistics are those without it; the ridge counts it in d."""
    random = torch.Generator().manual_seed(1)
    arms = torch.randint(30, (16,), generator=random)
    y = torch.randn(16, dtype=torch.float64, generator=random)
    plain = ChangePointDetector(RBFKernel(), lengthscale=0.4).on(LINE).test(arms=arms, Y=y)
    with_context = (
        ChangePointDetector(RBFKernel(), lengthscale=0.4)
        .on(LINE)
        .test(arms=arms, Y=y, contexts=torch.full((16, 2), 0.3, dtype=torch.float64))
    )
    torch.testing.assert_close(with_context.statistics, plain.statistics, rtol=1e-10, atol=0.0)

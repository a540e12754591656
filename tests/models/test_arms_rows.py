"""The posterior of a round from rows with weights, contexts or a time equals dense algebra."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from torch import Tensor

from botorch_bandits.core.kernels import TimeDecayKernel
from botorch_bandits.models import arms_rows, row_factors, telling_rows
from botorch_bandits.models.arms_rows import (
    GrowingRows,
    Rows,
    RowsPosterior,
)
from botorch_bandits.models.changed_rows import collapsed_rows
from botorch_bandits.models.front_kernels import (
    AnyKernel,
    FrontCovariance,
    JointStationary,
    SumOfProducts,
    front_covariance,
)
from botorch_bandits.models.prior_on_arms import ArmsPrior
from botorch_bandits.models.row_factors import ExtendedFactor, FreshFactor, GrowingFactor

EXACT = "donot_use_mm_for_euclid_dist"
LAM, RATE, NUM_ARMS = 0.03, 0.07, 25
STREAM = torch.Generator().manual_seed(4)
ARMS = torch.rand(NUM_ARMS, 2, dtype=torch.float64, generator=STREAM)


def with_lengthscale(kernel: Kernel, lengthscale: Any) -> Kernel:
    kernel = kernel.double()
    kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return kernel


def scaled(kernel: Kernel, value: float) -> Kernel:
    outer = ScaleKernel(kernel).double()
    outer.outputscale = torch.tensor(value, dtype=torch.float64)
    return outer


def of_context(kind: type[Kernel] = RBFKernel, **options: Any) -> Kernel:
    return with_lengthscale(kind(active_dims=(0,), **options), 0.5)


def of_arms(kind: type[Kernel] = MaternKernel, **options: Any) -> Kernel:
    return with_lengthscale(kind(active_dims=(1, 2), **options), 0.4)


# the kernel of (context, arm), and the form that it must be found to have
KERNELS: dict[str, tuple[Kernel, type[FrontCovariance]]] = {
    "squared exponential": (
        with_lengthscale(RBFKernel(ard_num_dims=3), [0.5, 0.3, 0.6]),
        SumOfProducts,
    ),
    "product": (scaled(of_context() * of_arms(nu=1.5), 2.0), SumOfProducts),
    "sum of products": (
        AdditiveKernel(
            scaled(of_context(MaternKernel, nu=0.5) * of_arms(), 0.5),
            scaled(of_arms(RQKernel), 2.0),
        ).double(),
        SumOfProducts,
    ),
    "scale inside": (scaled(of_context(), 0.7) * scaled(of_arms(), 1.5), SumOfProducts),
    "Matern 5/2": (scaled(with_lengthscale(MaternKernel(nu=2.5), 0.4), 1.7), JointStationary),
    "Matern 1/2": (with_lengthscale(MaternKernel(nu=0.5), 0.4), JointStationary),
    "rational quadratic": (with_lengthscale(RQKernel(), 0.4), AnyKernel),
}
CASES = [(name, rate) for name in KERNELS for rate in (None, RATE)] + [
    ("arms alone", None),
    ("arms alone", RATE),
]


class Case:
    """Random rows of a kernel, and dense algebra on them."""

    def __init__(self, name: str, rate: float | None, count: int, seed: int = 0) -> None:
        stream = torch.Generator().manual_seed(seed)
        self.has_kink = name == "Matern 1/2"
        self.num_contexts = 0 if name == "arms alone" else 1
        if self.num_contexts:
            kernel, self.form = KERNELS[name]
        else:
            kernel, self.form = with_lengthscale(MaternKernel(nu=1.5), 0.4), SumOfProducts
        self.covariance = front_covariance(kernel, ARMS, self.num_contexts, rate)
        self.dense = kernel if rate is None else TimeDecayKernel(kernel, rate)
        columns = []
        if rate is not None:
            columns.append(torch.arange(1.0, count + 2.0).double())
        if self.num_contexts:
            columns.append(torch.rand(count + 1, dtype=torch.float64, generator=stream))
        fronts = torch.stack(columns, -1) if columns else torch.zeros(count + 1, 0).double()
        self.front, self.fronts = fronts[-1], fronts[:-1]
        self.arms = torch.randint(NUM_ARMS, (count,), generator=stream)
        self.noise = LAM / (0.2 + torch.rand(count, dtype=torch.float64, generator=stream))
        self.outcomes = torch.randn(count, dtype=torch.float64, generator=stream)

    def inputs(self, arms: Tensor, fronts: Tensor) -> Tensor:
        return torch.cat([fronts.expand(len(arms), -1), ARMS[arms]], dim=-1)

    def matrix(self, X: Tensor, Z: Tensor) -> Tensor:
        if not self.has_kink:
            return self.dense(X, Z).to_dense()
        # GPyTorch has distances of equal points that are not quite 0, which a kink shows
        first = X.shape[-1] - 3
        apart = torch.cdist(X[:, first:], Z[:, first:], compute_mode=EXACT) / 0.4
        time = (X[:, :1] - Z[:, 0]).abs() if first else torch.zeros_like(apart)
        return torch.exp(0.5 * math.log1p(-RATE) * time - apart)

    def textbook(self, noise: Tensor, kept: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Mean (of the first rows), covariance (of all) and gain (of the first), densely."""
        with torch.no_grad():
            rows = self.inputs(self.arms, self.fronts)
            here = self.inputs(torch.arange(NUM_ARMS), self.front)
            K, k, prior = self.matrix(rows, rows), self.matrix(rows, here), self.matrix(here, here)
        n = len(K) if kept is None else kept
        mean = k[:n].T @ torch.linalg.solve(K[:n, :n] + noise[:n].diag(), self.outcomes[:n])
        covariance = prior - k.T @ torch.linalg.solve(K + noise.diag(), k)
        root = noise[:n].rsqrt()
        whitened = root[:, None] * K[:n, :n] * root
        gain = 0.5 * torch.logdet(torch.eye(n, dtype=torch.float64) + whitened)
        return mean, covariance, gain

    def rows(self, noise: Tensor, part: slice = slice(None)) -> Rows:
        return Rows(self.arms[part].numpy(), self.fronts[part].numpy(), noise[part].numpy())

    def fresh(self, noise: Tensor, kept: int | None = None) -> RowsPosterior:
        """A posterior of the first rows, of which the others are pending."""
        rows = self.rows(noise, slice(kept))
        among = self.covariance.among(rows.arms, rows.fronts)
        factor = FreshFactor(among + np.diag(rows.noise))
        pending = None if kept is None else self.rows(noise, slice(kept, None))
        return self.posterior(rows, factor, pending, among + np.diag(rows.noise))

    def posterior(self, rows: Rows, factor: Any, pending: Any, among: Any) -> RowsPosterior:
        covariance = self.covariance

        def matrices() -> Any:
            if not isinstance(covariance, SumOfProducts):
                return among, []
            numbers = range(len(covariance.priors))
            return among, [covariance.block_of(i, rows.arms, rows.arms) for i in numbers]

        outcomes = self.outcomes[: len(rows.arms)].numpy()
        stream = torch.Generator().manual_seed(7)
        return RowsPosterior(
            covariance,
            self.front.numpy(),
            rows,
            outcomes,
            factor,
            LAM,
            pending,
            lambda count: torch.randn(count, dtype=torch.float64, generator=stream).numpy(),
            matrices,
        )


def assert_is_textbook(posterior: RowsPosterior, expected: tuple[Tensor, Tensor, Tensor]) -> None:
    mean, covariance, gain = expected
    variance = covariance.diagonal()
    assert torch.allclose(posterior.mean, mean, atol=1e-8, rtol=0)
    assert torch.allclose(posterior.variance, variance, atol=1e-8, rtol=0)
    some = np.array([3, 0, 17])
    assert np.allclose(posterior.variance_at(some), variance[some], atol=1e-8, rtol=0)
    assert float(posterior.information_gain) == pytest.approx(float(gain), abs=1e-8)


@pytest.mark.parametrize("pending", [None, 4])
@pytest.mark.parametrize("count", [9, 60])
@pytest.mark.parametrize(("name", "rate"), CASES)
def test_every_kernel_equals_dense_algebra(
    name: str, rate: float | None, count: int, pending: int | None
) -> None:
    case = Case(name, rate, count)
    assert type(case.covariance) is case.form
    kept = None if pending is None else count - pending
    assert_is_textbook(case.fresh(case.noise, kept), case.textbook(case.noise, kept))


@pytest.mark.parametrize(("name", "rate"), CASES)
def test_draws_have_the_posterior_covariance(name: str, rate: float | None) -> None:
    """A draw is affine in its normal numbers, so its covariance can be computed exactly."""
    case, kept = Case(name, rate, 14), 11
    _, covariance, _ = case.textbook(case.noise, kept)
    posterior = case.fresh(case.noise, kept)
    if isinstance(case.covariance, AnyKernel):
        numbers = torch.eye(NUM_ARMS, dtype=torch.float64)
        root = torch.stack([posterior.correct(row) - posterior.mean for row in numbers])
    else:
        count, nothing = posterior.num_normals, np.zeros(14)
        posterior._normal = lambda count: nothing
        zero = torch.zeros(count, dtype=torch.float64)
        parts = []
        for i in range(count):
            zero[i] = 1.0
            parts.append(posterior.correct(posterior.simulate_prior(zero)) - posterior.mean)
            zero[i] = 0.0
        simulation = posterior.simulate_prior(zero)
        for row in np.eye(14):
            posterior._normal = lambda count, row=row: row
            parts.append(posterior.correct(simulation) - posterior.mean)
        root = torch.stack(parts)
    assert torch.allclose(root.T @ root, covariance, atol=1e-8, rtol=0)


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize(("name", "rate"), CASES)
def test_outputs_share_the_factor_and_have_draws_of_their_own(
    name: str, rate: float | None, pending: bool
) -> None:
    """Two outputs at once are two posteriors with one output each; and so are their draws."""
    case = Case(name, rate, 14)
    kept = 11 if pending else None
    other = torch.randn(14, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    alone, outcomes = [], (case.outcomes, other)
    for case.outcomes in outcomes:
        alone.append(case.fresh(case.noise, kept))
    case.outcomes = torch.stack(outcomes, dim=-1)
    both = case.fresh(case.noise, kept)
    expected = torch.stack([one.mean for one in alone])
    assert torch.allclose(both.means, expected, atol=1e-10, rtol=0)
    stream = torch.Generator().manual_seed(6)
    normal = torch.randn(2, both.num_normals, dtype=torch.float64, generator=stream)
    rows = torch.randn(2, 14, dtype=torch.float64, generator=stream).numpy()
    simulations = both.simulate_prior(normal)
    drawn = both.deviations_of_draws(simulations, [lambda n, row=row: row for row in rows])
    for i, one in enumerate(alone):
        one._normal = lambda n, row=rows[i]: row
        deviation = one.correct(simulations[i]) - one.mean
        assert torch.allclose(drawn[i], deviation, atol=1e-9, rtol=0)


@pytest.mark.parametrize(("name", "rate"), CASES)
def test_rows_that_grow_equal_dense_algebra(name: str, rate: float | None) -> None:
    """Repeated pairs of arm and front are collapsed when the rows have doubled."""
    case = Case(name, rate, 150)
    if rate is None:  # few pairs
        case.arms, case.fronts = case.arms % 9, case.fronts[:1].expand(150, -1).clone()
    growing = GrowingRows(case.covariance, LAM)
    noise = torch.full((150,), LAM, dtype=torch.float64)
    for i, (arm, front) in enumerate(zip(case.arms.tolist(), case.fronts.numpy(), strict=True)):
        growing.observe(arm, front)
        if i in (5, 149):
            matrices = growing.matrices()
    assert (growing.factor.num_rows == 150) == (rate is not None)
    arms, fronts = case.arms.numpy(), case.fronts.numpy()
    assert growing.is_start_of(arms, fronts)
    assert growing.is_start_of(np.append(arms, 3), np.concatenate([fronts, fronts[:1]]))
    assert not growing.is_start_of(arms[:-1], fronts[:-1])
    assert not growing.is_start_of(np.where(np.arange(150) == 70, arms + 1, arms), fronts)
    if fronts.shape[1]:
        assert not growing.is_start_of(arms, fronts + 1.0)
    means = growing.mean_outcomes(case.outcomes.numpy())
    both = np.stack([case.outcomes.numpy(), 2.0 * case.outcomes.numpy()], axis=1)
    assert np.allclose(growing.mean_outcomes(both), np.stack([means, 2.0 * means], axis=1))
    posterior = RowsPosterior(
        case.covariance, case.front.numpy(), growing.rows, means, growing.factor, LAM
    )
    assert_is_textbook(posterior, case.textbook(noise))
    rows = growing.rows
    among, products = matrices
    expected = case.covariance.among(rows.arms, rows.fronts) + np.diag(rows.noise)
    assert np.allclose(among, expected, atol=1e-12)
    if isinstance(case.covariance, SumOfProducts):
        for number, product in enumerate(products):
            block = case.covariance.block_of(number, rows.arms, rows.arms)
            assert np.allclose(product, block, atol=1e-12)


def test_a_row_is_added_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row costs one addition to the factor: nothing is factored again."""
    case, added = Case("product", RATE, 100), []
    append = row_factors.GrowingFactor.append
    monkeypatch.setattr(
        row_factors.GrowingFactor, "append", lambda *each: [append(*each), added.append(1)]
    )
    monkeypatch.setattr(row_factors, "FreshFactor", None)
    growing = GrowingRows(case.covariance, LAM)
    for arm, front in zip(case.arms.tolist(), case.fronts.numpy(), strict=True):
        growing.observe(arm, front)
        rows, means = growing.rows, growing.mean_outcomes(np.zeros(growing.num_observations))
        posterior = RowsPosterior(
            case.covariance, case.front.numpy(), rows, means, growing.factor, LAM
        )
        assert float(posterior.variance.min()) >= 0.0
    assert len(added) == 100


def count_arms(asked: list[int], ask: Any, arms: Any) -> Any:
    asked += arms.tolist()
    return ask(arms)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("width", [0.3, 3.0])
def test_screened_variances_choose_what_exact_ones_choose(
    name: str, width: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arms_rows, "FEW_OPERATIONS", 0)
    monkeypatch.setattr(arms_rows, "FIRST_CANDIDATES", 2)
    monkeypatch.setattr(telling_rows, "FIRST_ROWS", 3)
    for most, seed in ((6, 1), (50, 2)):
        monkeypatch.setattr(telling_rows, "MOST_ROWS", most)
        case = Case(name, RATE, 80, seed)
        _, covariance, _ = case.textbook(case.noise)
        posterior = case.fresh(case.noise)
        exact, mean = covariance.diagonal(), posterior.mean.numpy()
        asked: list[int] = []
        posterior.variance_at = partial(count_arms, asked, posterior.variance_at)
        found = posterior.screened_variance(mean, width, 1e-18, lambda largest: 1e-9)
        assert bool((found >= exact - 1e-9).all())
        scores = mean + width * found.sqrt().numpy()
        expected = mean + width * exact.sqrt().numpy()
        assert scores.argmax() == expected.argmax()
        assert scores.max() == pytest.approx(expected.max(), abs=1e-8)
        assert len(asked) == len(set(asked))
        if most == 50 or case.form is SumOfProducts:
            assert len(asked) < NUM_ARMS  # not all were needed


@pytest.mark.parametrize("pending", [None, 5])
@pytest.mark.parametrize(("name", "rate"), CASES)
def test_bounds_from_telling_rows_hold_and_sharpen(
    name: str, rate: float | None, pending: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second look takes more rows, so that its bounds are lower; none is below the variance."""
    monkeypatch.setattr(arms_rows, "FEW_OPERATIONS", 0)
    monkeypatch.setattr(arms_rows, "GROUPED", 0.0)
    monkeypatch.setattr(telling_rows, "FIRST_ROWS", 3)
    case = Case(name, rate, 40)
    exact = case.textbook(case.noise)[1].diagonal().numpy()
    posterior = case.fresh(case.noise, None if pending is None else 40 - pending)
    first, most = posterior._telling, posterior.largest_variance
    assert bool((first.bound >= most - 1e-12).all())
    assert bool((most >= exact - 1e-10).all())
    some = np.array([5, 2, 20])
    assert np.allclose(first.sharper(some), most[some], atol=1e-12)
    arms = case.arms[first.rows]
    assert len(set(arms.tolist())) == len(arms)
    # the arm whose row comes first is known best by it
    row = int(first.rows[0])
    inputs = case.inputs(case.arms, case.fronts)
    with torch.no_grad():
        own = case.matrix(inputs, case.inputs(case.arms, case.front)).diagonal()
        prior = case.matrix(inputs, inputs).diagonal()
    share = own.square() / (prior + case.noise) / prior
    assert float(share[row]) == pytest.approx(float(share.max()), abs=1e-6)


def test_rows_of_arms_are_those_of_the_prior_whatever_was_asked_before() -> None:
    """Arms that come one after the other share memory; others, and parts, are looked up."""
    stream = np.random.default_rng(0)
    root = torch.from_numpy(stream.normal(size=(NUM_ARMS, NUM_ARMS)))
    prior = ArmsPrior.from_matrix(root @ root.T)
    covariance = SumOfProducts.behind_time(prior, None)
    order, seen = stream.permutation(NUM_ARMS), []
    for i in range(120):
        arms = order[: i % (NUM_ARMS + 1)]
        if i % 4 == 3:
            arms = stream.integers(NUM_ARMS, size=int(stream.integers(12)))
        rows = covariance.rows_of(0, arms)
        seen.append((rows, arms))
        assert np.array_equal(rows, prior.matrix.numpy()[arms])
    for rows, arms in seen:  # none was changed later
        assert np.array_equal(rows, prior.matrix.numpy()[arms])


def test_arms_that_tie_keep_exact_variances(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts as equal to the largest value must be exact, too."""
    monkeypatch.setattr(arms_rows, "FEW_OPERATIONS", 0)
    monkeypatch.setattr(arms_rows, "FIRST_CANDIDATES", 1)
    case = Case("Matern 5/2", None, 30)
    posterior = case.fresh(case.noise)
    exact = posterior.variance.numpy()
    mean = 1.0 - 2.0 * np.sqrt(exact)  # all upper bounds are equal
    found = posterior.screened_variance(mean, 2.0, 1e-18, lambda largest: 1e-9)
    assert np.allclose(found.numpy(), exact, atol=1e-12)


def test_observations_of_a_pair_are_their_weighted_mean() -> None:
    arms, pairs = np.array([4, 2, 4, 9, 2]), np.array([7, 1, 7, 3, 1])
    fronts, outcomes = np.array([[0.1], [0.2], [0.1], [0.3], [0.2]]), np.arange(5.0)
    weights = np.array([0.5, 0.25, 1.0, 1.0, 0.75])
    rows, means = collapsed_rows(arms, fronts, pairs, outcomes, weights, LAM)
    assert rows.arms.tolist() == [2, 9, 4]
    assert rows.fronts[:, 0].tolist() == [0.2, 0.3, 0.1]
    assert np.allclose(LAM / rows.noise, [1.0, 1.0, 1.5])
    assert np.allclose(means, [(0.25 * 1 + 0.75 * 4) / 1.0, 3.0, (0.5 * 0 + 1.0 * 2) / 1.5])


@pytest.mark.parametrize("lam", [1e-6, 1e-3, 1.0])
def test_factors_of_any_noise_solve_alike(lam: float) -> None:
    case = Case("product", RATE, 90)
    growing = GrowingRows(case.covariance, lam)
    for arm, front in zip(case.arms.tolist(), case.fronts.numpy(), strict=True):
        growing.observe(arm, front)
    among = case.covariance.among(growing.rows.arms, growing.rows.fronts) + lam * np.eye(90)
    fresh = FreshFactor(among)
    extended = ExtendedFactor(FreshFactor(among[:70, :70]), among[:70, 70:], among[70:, 70:])
    columns = np.random.default_rng(0).normal(size=(90, 3))
    known = case.covariance.columns(case.arms.numpy(), case.fronts.numpy(), case.front.numpy())
    for factor in (growing.factor, extended):
        assert np.allclose(factor.half(known), fresh.half(known), atol=1e-8 * math.sqrt(1e-2 / lam))
        assert np.allclose(factor.half(columns), fresh.half(columns), rtol=1e-6, atol=1e-6 / lam)
        assert factor.log_determinant == pytest.approx(fresh.log_determinant, abs=1e-7)
        groups = factor.half_of_groups(case.arms.numpy(), columns[:, 0], NUM_ARMS)
        expected = fresh.half_of_groups(case.arms.numpy(), columns[:, 0], NUM_ARMS)
        assert np.allclose(groups, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("num_rows", [0, 1, 63, 64, 65, 200, 600])
def test_a_factor_that_grew_is_the_dense_one(num_rows: int) -> None:
    """Blocks of rows and the zeros beside them change nothing, of vectors and of columns."""
    rng = np.random.default_rng(num_rows)
    points, lam = rng.random((num_rows, 2)), 0.05
    squared = np.square(points[:, None] - points).sum(-1)
    covariance = np.exp(-8.0 * squared) + lam * np.eye(num_rows)
    grown = GrowingFactor()
    for i in range(num_rows):
        grown.append(covariance[i, :i], 1.0, lam)
    triangle = np.linalg.cholesky(covariance)
    columns = rng.normal(size=(num_rows, 7))
    for given in (columns, columns[:, 0]):
        assert np.allclose(grown.half(given), np.linalg.solve(triangle, given), atol=1e-9)
        assert np.allclose(grown.back(given), np.linalg.solve(triangle.T, given), atol=1e-9)
        assert np.allclose(grown.whole(given), np.linalg.solve(covariance, given), atol=1e-8)
    assert grown.log_determinant == pytest.approx(np.linalg.slogdet(covariance)[1], abs=1e-9)


def test_a_singular_covariance_is_raised_by_little() -> None:
    factor = FreshFactor(np.ones((3, 3)))
    assert factor.half(np.ones(3)) == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)

"""The posterior on points against dense textbook computations: one matrix inverse a case."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from models.textbook import double, information_gain, uniform
from other_device import other_device
from torch import Tensor

from botorch_bandits.core.kernels import TimeDecayKernel
from botorch_bandits.core.posterior import (
    FEW_OPERATIONS,
    Posterior,
    RoundPosterior,
    Rows,
    changes_between,
)
from botorch_bandits.core.priors import Prior, Stack, prior_of, root_of

DTYPE = torch.float64
POINTS = uniform(25, 2, seed=0)


def matern(lengthscale: float, columns: tuple[int, ...] | None = None) -> Kernel:
    kernel = MaternKernel(nu=2.5, active_dims=columns).double()
    kernel.lengthscale = lengthscale
    return kernel


def squared_exponential(*lengthscales: float) -> Kernel:
    kernel = RBFKernel(ard_num_dims=len(lengthscales)).double()
    kernel.lengthscale = double(lengthscales)
    return kernel


def draw_rows(count: int, num_outputs: int = 1, seed: int = 0, front: int = 0) -> Rows:
    stream = torch.Generator().manual_seed(seed)
    index = torch.randint(0, len(POINTS), (count,), generator=stream)
    Y = torch.randn(count, num_outputs, dtype=DTYPE, generator=stream)
    noise = 0.5 + torch.rand(count, dtype=DTYPE, generator=stream)
    fronts, place = None, None
    if front:
        fronts = torch.rand(count, front, dtype=DTYPE, generator=stream)
        fronts[:, 0] = torch.arange(1, count + 1)  # rounds
        place = torch.arange(count)
    return Rows(index, Y, noise, fronts, place, torch.arange(count))


def posterior_of(
    kernels: list[Kernel],
    lam: float,
    num_outputs: int = 1,
    mean: float = 0.0,
    points: Tensor = POINTS,
) -> Posterior:
    """A posterior without rows, of one prior for each kernel."""
    stack = Stack([prior_of(kernel, points) for kernel in kernels])
    levels = torch.full((len(kernels),), lam, dtype=DTYPE)
    return Posterior(stack, levels, num_outputs, mean)


class Dense(NamedTuple):
    """The textbook posterior of one prior, by an inverse of the covariance of all rows."""

    mean: Tensor  # m x A
    covariance: Tensor  # A x A
    gain: float

    @classmethod
    def of(cls, among: Tensor, cross: Tensor, own: Tensor, rows: Rows, lam: float, mean: float):
        noise = lam * rows.noise
        inverse = torch.linalg.inv(among + torch.diag(noise))
        gain = information_gain(among, noise)
        values = mean + cross.mT @ inverse @ (rows.Y - mean)
        return cls(values.mT, own - cross.mT @ inverse @ cross, float(gain))

    @classmethod
    def of_points(
        cls, kernel: Kernel, rows: Rows, lam: float, mean: float = 0.0, points: Tensor = POINTS
    ):
        with torch.no_grad():
            matrix = kernel(points).to_dense()
        cross = matrix[rows.index]
        return cls.of(cross[:, rows.index], cross, matrix, rows, lam, mean)


def assert_is(posterior: Posterior, group: int, dense: Dense, tolerance: float = 1e-9) -> None:
    given = (posterior.mean[group], posterior.variance[group], posterior.gain[group])
    wanted = (dense.mean, dense.covariance.diagonal(), double(dense.gain))
    for ours, theirs in zip(given, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


KERNELS = [matern(0.3), ScaleKernel(squared_exponential(0.2, 0.5)).double(), matern(0.05)]


@pytest.mark.parametrize("lam", [1e-6, 1e-2, 1.0, 1e2])
@pytest.mark.parametrize(("num_priors", "num_outputs"), [(1, 1), (1, 3), (3, 1), (3, 2)])
def test_rows_that_come_give_the_textbook_posterior(lam, num_priors, num_outputs):
    kernels = KERNELS[:num_priors]
    posterior = posterior_of(kernels, lam, num_outputs, 0.3)
    rows = draw_rows(90, num_outputs)
    for count in (0, 1, 2, 3, 20, 65, 66, 90):
        posterior = posterior.at(rows[:count])
        for group, kernel in enumerate(kernels):
            dense = Dense.of_points(kernel, rows[:count], lam, 0.3)
            assert_is(posterior, group, dense, 1e-8 if lam > 1e-5 else 2e-6)


@pytest.mark.parametrize("lam", [1e-3, 1e-1, 1e1])
@pytest.mark.parametrize("num_priors", [1, 2])
def test_rows_that_leave_fade_or_are_relabeled_are_taken_back(lam, num_priors):
    kernels = KERNELS[:num_priors]
    posterior, rows = posterior_of(kernels, lam), draw_rows(120)
    for t in range(1, 121):
        if t % 7 == 0:  # one outcome is another one from now on
            rows.Y[t // 2] += 1.0
        if t % 11 == 0:  # and one row weighs less
            rows.noise[t - 1] *= 2.0
        seen = rows[max(0, t - 40) : t]  # a window
        seen = Rows(seen.index, seen.Y.clone(), seen.noise.clone(), ids=seen.ids)
        posterior = posterior.at(seen)
        for group, kernel in enumerate(kernels):
            assert_is(posterior, group, Dense.of_points(kernel, seen, lam), 1e-8)


def test_folded_rows_give_the_same_posterior():
    few, rows = POINTS[:12], draw_rows(400)
    posterior = posterior_of(KERNELS[:1], 0.01, points=few)
    rows = Rows(rows.index % 12, rows.Y, rows.noise)
    for count in range(1, 401):
        posterior.at(rows[:count])
    dense = Dense.of_points(KERNELS[0], rows, 0.01, points=few)
    assert_is(posterior, 0, dense)
    index = torch.tensor([3, 7])
    columns = posterior.columns(index)[0]
    torch.testing.assert_close(columns, dense.covariance[index], rtol=0.0, atol=1e-10)


def test_many_points_without_a_matrix_give_the_same_posterior():
    many = uniform(4200, 2, seed=1)
    kernel, rows = matern(0.3), draw_rows(100)
    assert prior_of(kernel, many).matrix is None
    posterior = posterior_of([kernel], 0.01, points=many)
    for count in (1, 2, 30, 31, 70, 71, 72, 100):
        posterior = posterior.at(rows[:count])
    with torch.no_grad():
        cross = kernel(many[rows.index], many).to_dense()
    inverse = torch.linalg.inv(cross[:, rows.index] + torch.diag(0.01 * rows.noise))
    variance = 1.0 - (cross * (inverse @ cross)).sum(0)
    torch.testing.assert_close(posterior.mean[0], (cross.mT @ inverse @ rows.Y).mT)
    torch.testing.assert_close(posterior.variance[0], variance, rtol=0.0, atol=1e-9)


FRONTS = {
    "stationary": (squared_exponential(0.5, 0.3, 0.3, 0.4), 2, None),
    "stationary and time": (MaternKernel(nu=1.5, ard_num_dims=3).double(), 1, 0.05),
    "product": (matern(0.4, (0,)) * matern(0.3, (1, 2)), 1, None),
    "sum of products": (
        matern(0.4, (0,)) * matern(0.3, (1, 2)) + ScaleKernel(matern(0.2, (1, 2))),
        1,
        0.02,
    ),
    "time alone": (matern(0.3), 0, 0.1),
    "any kernel": (PeriodicKernel(ard_num_dims=3).double(), 1, None),
}


def whole_kernel(kernel: Kernel, front: Tensor, points: Tensor, rate: float | None):
    """Return a function of two lists of (front, point): the kernel times the decay with time."""

    def values(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
        contexts = [front if rate is None else front[:, 1:] for front, _ in (a, b)]
        inputs = [torch.cat([c, x], -1) for c, (_, x) in zip(contexts, (a, b), strict=True)]
        with torch.no_grad():
            matrix = kernel(*inputs).to_dense()
        if rate is None:
            return matrix
        gap = (a[0][:, :1] - b[0][:, 0]).abs()
        return matrix * (1.0 - rate) ** (gap / 2.0)

    return values


@pytest.mark.parametrize("name", FRONTS)
def test_rows_behind_fronts_give_the_textbook_posterior(name):
    kernel, num_contexts, rate = FRONTS[name]
    num_front = num_contexts + (rate is not None)
    varying = kernel if rate is None else TimeDecayKernel(kernel, rate)
    prior = prior_of(varying.double(), POINTS, num_front)
    means = torch.full((1, 2), 0.2, dtype=DTYPE)
    posterior = RoundPosterior(Stack([prior]), double([0.05]), means)
    rows = draw_rows(30, 2, front=num_front)
    values = whole_kernel(kernel, rows.front, POINTS, rate)
    now = torch.full((num_front,), 0.4, dtype=DTYPE)
    if rate is not None:
        now[0] = 31.0
    here = (now.expand(len(POINTS), -1), POINTS)
    for count in (1, 5, 30):
        some = rows[:count]
        behind = (some.front, POINTS[some.index])
        dense = Dense.of(
            values(behind, behind), values(behind, here), values(here, here), some, 0.05, 0.2
        )
        posterior = posterior.at(some, now)
        assert_is(posterior, 0, dense, 1e-8)
        index = torch.tensor([2, 9])
        columns = posterior.columns(index)[0]
        torch.testing.assert_close(columns, dense.covariance[index], rtol=0.0, atol=1e-8)
    # pending rows count as known; the mean stays, and so does the gain
    pending = draw_rows(33, 2, seed=5, front=num_front)[30:]
    both = some.followed_by(pending)
    behind = (both.front, POINTS[both.index])
    known = Dense.of(
        values(behind, behind), values(behind, here), values(here, here), both, 0.05, 0.2
    )
    view = posterior.given(pending)
    torch.testing.assert_close(view.variance[0], known.covariance.diagonal(), rtol=0.0, atol=1e-8)
    torch.testing.assert_close(view.mean[0], dense.mean, rtol=0.0, atol=1e-8)
    # moments behind other fronts
    asked = (pending.front, POINTS[pending.index])
    behind = (some.front, POINTS[some.index])
    dense = Dense.of(
        values(behind, behind), values(behind, asked), values(asked, asked), some, 0.05, 0.2
    )
    mean, variance = posterior.moments_at(pending.index, pending.front)
    torch.testing.assert_close(mean[0], dense.mean, rtol=0.0, atol=1e-8)
    torch.testing.assert_close(variance[0], dense.covariance.diagonal(), rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("points", [[4, 11, 4], [3] * len(POINTS)])
def test_a_point_observed_again_has_the_variance_of_one_more_row(points):
    posterior, rows = posterior_of(KERNELS[:1], 0.1), draw_rows(20)
    posterior, again = posterior.at(rows), torch.tensor(points)
    count = len(points)
    more = Rows(again, torch.zeros(count, 1, dtype=DTYPE), torch.ones(count, dtype=DTYPE))
    known = Dense.of_points(KERNELS[0], rows, 0.1)
    dense = Dense.of_points(KERNELS[0], rows.followed_by(more), 0.1)
    for _ in range(2):  # nothing is left behind
        view = posterior.given(more)
        given = dense._replace(mean=known.mean, gain=known.gain)
        assert_is(view, 0, given)
        index = torch.tensor([2, 9])
        torch.testing.assert_close(view.columns(index)[0], dense.covariance[index])
        assert_is(posterior, 0, known)


@pytest.mark.parametrize("device_name", ["cpu", "other"])
def test_replicates_have_their_own_rows(device_name):
    kernel, lam, count = KERNELS[0], 0.05, 3
    stream = torch.Generator().manual_seed(3)
    arms = torch.randint(0, len(POINTS), (80, count), generator=stream)
    outcomes = torch.randn(80, count, dtype=DTYPE, generator=stream)

    def play(device: torch.device | str) -> tuple[Tensor, Tensor, Tensor]:
        table = Prior.from_matrix(prior_of(KERNELS[0], POINTS).matrix.to(device))
        levels = torch.full((count,), lam, dtype=DTYPE).to(device)
        posterior = Posterior(Stack([table]), levels)
        weight = torch.zeros(count, len(POINTS), dtype=DTYPE)
        sums = torch.zeros_like(weight)
        for t, (arm, y) in enumerate(zip(arms, outcomes, strict=True)):
            if t == 50:
                every = torch.arange(len(POINTS)).expand(count, -1)
                means = (sums / weight.clamp_min(1.0)).unsqueeze(-1)
                rows = (every, means, 1.0 / weight)
                posterior.factorize(Rows(*(each.to(device) for each in rows)))
            if t == 60:
                posterior.fold()
            posterior.add_each(arm.to(device), y.unsqueeze(-1).to(device))
            weight.scatter_add_(1, arm.unsqueeze(-1), torch.ones(count, 1, dtype=DTYPE))
            sums.scatter_add_(1, arm.unsqueeze(-1), y.unsqueeze(-1))
        found = (posterior.mean, posterior.variance, posterior.gain)
        return tuple(each.cpu() for each in found)  # type: ignore[return-value]

    if device_name == "cpu":
        mean, variance, gain = play("cpu")
    else:
        with other_device() as device:
            mean, variance, gain = play(device)
    for b in range(count):
        rows = Rows(arms[:, b], outcomes[:, b].unsqueeze(-1), torch.ones(80, dtype=DTYPE))
        dense = Dense.of_points(kernel, rows, lam)
        torch.testing.assert_close(mean[b], dense.mean, rtol=0.0, atol=1e-9)
        torch.testing.assert_close(variance[b], dense.covariance.diagonal(), rtol=0.0, atol=1e-9)
        assert float(gain[b]) == pytest.approx(dense.gain, abs=1e-9)


def covariance_of(transform: Tensor) -> Tensor:
    return transform @ transform.mT


@pytest.mark.parametrize("noise", [1e-3, 1.0])
def test_draws_of_points_have_the_posterior_covariance(noise):
    """Draws are linear in their normal numbers, so unit vectors in their place give a root."""
    prior, rows = prior_of(KERNELS[0], POINTS), draw_rows(40)
    posterior = posterior_of(KERNELS[:1], noise)
    posterior, kept = posterior.at(rows), rows.collapsed()
    rank, n = prior.num_normals, len(kept)
    numbers = torch.eye(rank + n, dtype=DTYPE)
    function = prior.simulate(numbers[:, :rank]).unsqueeze(0)
    root = posterior.deviation_of_draw(function, numbers[:, rank:].unsqueeze(0), kept)[0]
    dense = Dense.of_points(KERNELS[0], rows, noise).covariance
    torch.testing.assert_close(covariance_of(root.mT), dense, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("name", [name for name in FRONTS if name != "any kernel"])
def test_draws_behind_fronts_have_the_posterior_covariance(name):
    kernel, num_contexts, rate = FRONTS[name]
    num_front = num_contexts + (rate is not None)
    varying = kernel if rate is None else TimeDecayKernel(kernel, rate)
    prior = prior_of(varying.double(), POINTS, num_front)
    means = torch.zeros(1, 1, dtype=DTYPE)
    posterior = RoundPosterior(Stack([prior]), double([0.05]), means)
    rows, now = draw_rows(20, front=num_front), torch.full((num_front,), 0.4, dtype=DTYPE)
    posterior = posterior.at(rows, now)
    numbers = torch.eye(prior.num_normals + len(rows), dtype=DTYPE)
    simulated = prior.simulate(numbers[:, : prior.num_normals]).unsqueeze(0)
    normal = numbers[:, prior.num_normals :].unsqueeze(0)
    root = posterior.deviation_of_draw(simulated, normal, posterior.rows)[0]
    index = torch.arange(len(POINTS))
    dense = posterior.columns(index)[0]
    torch.testing.assert_close(covariance_of(root.mT), dense, rtol=0.0, atol=1e-7)


def test_repeated_rows_collapse_to_their_weighted_mean():
    rows = draw_rows(60, 2)
    kept = rows.collapsed()
    assert kept.index.tolist() == sorted(set(rows.index.tolist()))
    for place, index in enumerate(kept.index.tolist()):
        weight = 1.0 / rows.noise[rows.index == index]
        mean = (weight.unsqueeze(-1) * rows.Y[rows.index == index]).sum(0) / weight.sum()
        torch.testing.assert_close(kept.Y[place], mean)
        assert float(kept.noise[place]) == pytest.approx(1.0 / float(weight.sum()))
    assert kept.collapsed() is kept


def test_behind_fronts_repeated_places_are_merged_and_say_the_same():
    prior = prior_of(matern(0.4, (0,)) * matern(0.3, (1, 2)), POINTS, 1)
    lam, means = double([0.05]), torch.zeros(1, 1, dtype=DTYPE)
    posterior = RoundPosterior(Stack([prior]), lam, means)
    rows = draw_rows(300)
    front = (rows.ids % 2).to(DTYPE).unsqueeze(-1)
    places = rows.index * 2 + rows.ids % 2
    rows = Rows(rows.index, rows.Y, rows.noise, front, places, rows.ids)
    now = torch.zeros(1, dtype=DTYPE)
    for count in (10, 64, 65, 100, 200, 300):
        posterior = posterior.at(rows[:count], now)
    assert len(posterior.collapsed) < 120
    whole = RoundPosterior(Stack([prior]), lam, means, rows, now)
    torch.testing.assert_close(posterior.mean, whole.mean, rtol=0.0, atol=1e-10)
    torch.testing.assert_close(posterior.variance, whole.variance, rtol=0.0, atol=1e-10)


def test_changes_between_rows_are_found_by_their_ids():
    rows = draw_rows(10)
    later = Rows(rows.index, rows.Y.clone(), rows.noise, ids=rows.ids)
    later.Y[4] += 1.0
    assert changes_between(rows[:8], later[2:]) == ([0, 1, 4], [2, 6, 7])
    assert changes_between(Rows(rows.index, rows.Y, rows.noise), later[2:]) is None
    assert changes_between(rows[:8], rows) == ((), range(8, 10))


def test_priors_are_shared():
    assert prior_of(matern(0.3), POINTS) is prior_of(matern(0.3), POINTS)
    assert prior_of(matern(0.3), POINTS) is not prior_of(matern(0.4), POINTS)


@pytest.mark.parametrize(("rank", "count"), list(itertools.product([1, 4], [5, 12])))
def test_roots_give_back_their_covariance(rank, count):
    stream = torch.Generator().manual_seed(rank)
    half = torch.randn(count, rank, dtype=DTYPE, generator=stream)
    covariance = half @ half.mT
    root = root_of(covariance)
    torch.testing.assert_close(root @ root.mT, covariance, rtol=0.0, atol=1e-10)
    stacked = torch.stack([covariance, 2.0 * covariance])
    roots = root_of(stacked)
    torch.testing.assert_close(roots @ roots.mT, stacked, rtol=0.0, atol=1e-9)
    table = Prior.from_matrix(covariance)
    root = table.simulate(torch.eye(table.num_normals, dtype=DTYPE))
    torch.testing.assert_close(root.mT @ root, covariance, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("among", [None, [3, 50, 800]])
@pytest.mark.parametrize("width", [0.0, 0.5, 3.0])
def test_screened_variances_are_exact_where_the_bound_is_largest(width, among):
    stream = torch.Generator().manual_seed(4)
    many = torch.rand(900, 2, dtype=DTYPE, generator=stream)
    rows = draw_rows(300)
    index = torch.randint(0, 900, (300,), generator=stream)
    rows = Rows(index, rows.Y, rows.noise, ids=rows.ids)
    assert FEW_OPERATIONS < 300**2 * 900
    given = (double([0.05]), torch.zeros(1, 1, dtype=DTYPE), rows.collapsed())
    posterior = RoundPosterior(Stack([prior_of(matern(0.2), many)]), *given)
    mean = posterior.mean[0, 0]
    some = None if among is None else torch.tensor(among)
    screened = posterior.screened_variance(mean, width, 1e-18, lambda _: 1e-9, some)[0]
    exact = posterior.variance[0]
    counted = torch.arange(900) if some is None else some
    scores = mean + width * exact.clamp_min(1e-18).sqrt()
    bounds = mean + width * screened.clamp_min(1e-18).sqrt()
    best = counted[scores[counted].argmax()]
    assert counted[bounds[counted].argmax()] == best
    torch.testing.assert_close(screened[best], exact[best], rtol=0.0, atol=1e-10)
    assert bool((screened >= exact - 1e-10).all())
    at = posterior.variance_at(torch.tensor([5, 7]))[0]
    torch.testing.assert_close(at, exact[[5, 7]], rtol=0.0, atol=1e-12)


def test_groups_of_very_many_points_have_their_own_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botorch_bandits.core.priors.LARGEST_MATRIX", 10)
    kernels, rows = [matern(0.31), matern(0.7)], draw_rows(2)
    rows = Rows(rows.index, rows.Y, torch.ones(2, dtype=DTYPE))
    both = posterior_of(kernels, 0.1)
    for number, kernel in enumerate(kernels):
        group = both.group(number)
        for index, outcome in zip(rows.index.tolist(), rows.Y.tolist(), strict=True):
            group.add(index, outcome)
        assert_is(group, 0, Dense.of_points(kernel, rows, 0.1))


def test_a_kernel_of_the_front_alone_is_the_same_at_all_points() -> None:
    kernel, now = matern(0.5, columns=(0,)), double([0.2])
    rows = draw_rows(4, front=1)
    prior = prior_of(kernel, POINTS, 1)
    columns = prior.columns(rows.index, rows.front, now)
    values = kernel(rows.front, now.unsqueeze(0)).to_dense().detach()
    assert torch.allclose(columns, values.expand(4, 25))
    found = RoundPosterior(Stack([prior]), now.new_tensor([0.1]), now.new_zeros(1, 1)).at(rows, now)
    assert found.mean.shape == (1, 1, 25)

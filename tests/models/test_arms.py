"""The posterior on arms equals dense algebra on all raw observations, in every form it takes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel
from other_device import other_device
from torch import Tensor

from botorch_bandits.models.arms import ArmsPosterior
from botorch_bandits.models.prior_on_arms import LARGEST_MATRIX, ArmsPrior

DOUBLE = torch.float64
POINTS = torch.linspace(0, 1, 15, dtype=torch.float64).unsqueeze(-1)
KERNEL = torch.exp(-(torch.cdist(POINTS, POINTS) ** 2) / (2 * 0.2**2))


def squared_exponential(num_arms: int, lengthscale: float) -> Tensor:
    x = torch.linspace(0, 1, num_arms, dtype=torch.float64)
    return torch.exp(-((x.unsqueeze(-1) - x) ** 2) / (2 * lengthscale**2))


def textbook(
    kernel: Tensor, lam: float, arms: Tensor, outcomes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, covariance and information gain from every single row."""
    K, k = kernel[arms][:, arms], kernel[:, arms]
    identity = torch.eye(len(arms), dtype=torch.float64)
    solved = torch.linalg.solve(K + lam * identity, torch.cat([k.T, outcomes[:, None]], 1))
    gain = 0.5 * torch.logdet(identity + K / lam)
    return k @ solved[:, -1], kernel - k @ solved[:, :-1], gain


def assert_is_textbook(
    posterior: ArmsPosterior, kernel: Tensor, lam: float, arms: Tensor, outcomes: Tensor, b: Any
) -> None:
    mean, covariance, gain = textbook(kernel, lam, arms, outcomes)
    assert torch.allclose(posterior.mean[b], mean, atol=1e-8, rtol=0)
    assert torch.allclose(posterior.covariance[b], covariance, atol=1e-8, rtol=0)
    assert torch.allclose(posterior.variance[b], covariance.diagonal(), atol=1e-8, rtol=0)
    assert float(posterior.information_gain[b]) == pytest.approx(float(gain), abs=1e-8)


# (arms, arms that are played, rounds) so that each form is reached: rows of every observation,
# rows of the distinct arms, a dense covariance
FORMS = {
    "rows": (15, 15, 40),
    "distinct arms": (200, 12, 300),
    "dense": (60, 60, 300),
    "growing distinct arms": (400, 120, 300),
}


@pytest.mark.parametrize("lam", [1e-4, 0.1, 1.5])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_equals_dense_algebra(form: str, lam: float) -> None:
    num_arms, num_played, num_rounds = FORMS[form]
    kernel = squared_exponential(num_arms, 0.1)
    stream = torch.Generator().manual_seed(0)
    arms = torch.randint(num_played, (3, num_rounds), generator=stream)
    outcomes = torch.randn(3, num_rounds, dtype=torch.float64, generator=stream)
    batch = ArmsPosterior(kernel, lam, batch_shape=(3,))
    single = ArmsPosterior(kernel, lam)
    for t in range(num_rounds):
        batch.observe(arms[:, t], outcomes[:, t])
        single.observe(int(arms[0, t]), float(outcomes[0, t]))
        if t + 1 in (1, 64, 65, 129, num_rounds):
            seen = slice(t + 1)
            for b in range(3):
                assert_is_textbook(batch, kernel, lam, arms[b, seen], outcomes[b, seen], b)
            assert_is_textbook(single, kernel, lam, arms[0, seen], outcomes[0, seen], ...)
    assert (batch._base is not None) == (form == "dense")
    counts = torch.nn.functional.one_hot(arms, num_arms).sum(1).double()
    assert torch.equal(batch.counts, counts)
    squares = torch.zeros(3, num_arms, dtype=torch.float64)
    assert torch.allclose(batch.squares, squares.scatter_add(1, arms, outcomes**2), atol=1e-12)


def test_regularization_may_differ_between_replicates() -> None:
    lams = torch.tensor([0.01, 0.5], dtype=torch.float64)
    posterior = ArmsPosterior(KERNEL, lams, (2,))
    arms = torch.tensor([[1, 4, 4, 9], [2, 2, 0, 14]])
    outcomes = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    for t in range(4):
        posterior.observe(arms[:, t], outcomes[:, t])
    for b in range(2):
        assert_is_textbook(posterior, KERNEL, float(lams[b]), arms[b], outcomes[b], b)
    posterior.refactorize()
    for b in range(2):
        assert_is_textbook(posterior, KERNEL, float(lams[b]), arms[b], outcomes[b], b)


@pytest.mark.parametrize("kernel", [RBFKernel(), MaternKernel(nu=1.5), RQKernel()])
def test_many_arms_need_no_matrix_of_all(kernel: Any) -> None:
    kernel = kernel.double()
    num_arms = LARGEST_MATRIX + 500
    points = torch.rand(
        num_arms, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    prior = ArmsPrior.from_kernel(kernel, points)
    assert prior.matrix is None
    posterior = ArmsPosterior(prior, 0.05)
    stream = torch.Generator().manual_seed(2)
    arms = torch.randint(90, (150,), generator=stream) * 40
    outcomes = torch.randn(150, dtype=torch.float64, generator=stream)
    for arm, outcome in zip(arms.tolist(), outcomes.tolist(), strict=True):
        posterior.observe(arm, outcome)
    some = torch.cat([arms.unique(), torch.tensor([1, 77, 4001])])
    with torch.no_grad():
        K = kernel(points[some]).to_dense()
    position = {int(arm): i for i, arm in enumerate(some)}
    mean, covariance, gain = textbook(
        K, 0.05, torch.tensor([position[int(arm)] for arm in arms]), outcomes
    )
    assert torch.allclose(posterior.mean[some], mean, atol=1e-8, rtol=0)
    assert torch.allclose(posterior.variance[some], covariance.diagonal(), atol=1e-8, rtol=0)
    columns = posterior.covariance_columns(some)[:, some]
    assert torch.allclose(columns, covariance, atol=1e-8, rtol=0)
    assert float(posterior.information_gain) == pytest.approx(float(gain), abs=1e-8)
    assert prior.num_columns_kept <= len(some)


def test_rounding_does_not_build_up_over_30000_rounds() -> None:
    """Noise 1e-3 and every arm played: the largest error on the way, against raw statistics."""
    kernel, lam = squared_exponential(100, 0.2), 1e-3
    stream = torch.Generator().manual_seed(3)
    arms = torch.randint(100, (30_000,), generator=stream).tolist()
    outcomes = torch.randn(30_000, dtype=torch.float64, generator=stream).tolist()
    posterior = ArmsPosterior(kernel, lam)
    trace = []
    for t, (arm, outcome) in enumerate(zip(arms, outcomes, strict=True), start=1):
        posterior.observe(arm, outcome)
        if t % 1023 == 0 or t == 30_000:  # 1023: just before a fresh factorization
            counts = torch.bincount(torch.tensor(arms[:t]), minlength=100).double()
            sums = torch.zeros(100, dtype=torch.float64)
            sums.index_add_(0, torch.tensor(arms[:t]), torch.tensor(outcomes[:t], dtype=DOUBLE))
            played = counts > 0
            noisy = kernel[played][:, played] + torch.diag(lam / counts[played])
            solved = torch.linalg.solve(noisy, kernel[played])
            mean = solved.T @ (sums / counts)[played]
            covariance = kernel - kernel[:, played] @ solved
            trace.append(
                (
                    float((posterior.mean - mean).abs().max()),
                    float((posterior.covariance - covariance).abs().max()),
                )
            )
    assert max(max(errors) for errors in trace) < 1e-8, trace


def test_a_record_is_taken_in_to_the_last_bit() -> None:
    kernel = squared_exponential(40, 0.1)
    stream = torch.Generator().manual_seed(4)
    arms = torch.randint(40, (2500,), generator=stream).tolist()
    outcomes = torch.randn(2500, dtype=torch.float64, generator=stream).tolist()
    single = ArmsPosterior(kernel, 0.01)
    for t, (arm, outcome) in enumerate(zip(arms, outcomes, strict=True), start=1):
        single.observe(arm, outcome)
        if t in (5, 1024, 1025, 2047, 2500):
            record = ArmsPosterior(kernel, 0.01)
            record.observe_many(arms[:t], outcomes[:t])
            for name in ("mean", "variance", "counts", "sums", "squares", "information_gain"):
                assert torch.equal(getattr(record, name), getattr(single, name)), (t, name)
            normal = torch.ones(record.num_normals, dtype=torch.float64)
            assert torch.equal(record.sample(normal), single.sample(normal))


@pytest.mark.parametrize(
    ("num_arms", "num_played", "num_rounds"),
    [(300, 20, 400), (300, 90, 500), (60, 60, 700), (LARGEST_MATRIX + 1, 50, 330)],
)
def test_of_a_record_only_the_last_rounds_are_played_again(
    num_arms: int, num_played: int, num_rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few distinct arms, many, all, and more arms than a matrix is kept of; to the last bit."""
    stream = torch.Generator().manual_seed(9)
    points = torch.rand(num_arms, 1, dtype=torch.float64, generator=stream)
    prior = ArmsPrior.from_kernel(MaternKernel(nu=2.5).double(), points)
    arms = torch.randint(num_played, (num_rounds,), generator=stream).tolist()
    outcomes = torch.randn(num_rounds, dtype=torch.float64, generator=stream).tolist()
    single = ArmsPosterior(prior, 0.01)
    played = 0
    observe = ArmsPosterior.observe

    def count(self: ArmsPosterior, *given: Any, **more: Any) -> None:
        nonlocal played
        played += 1
        observe(self, *given, **more)

    monkeypatch.setattr(ArmsPosterior, "observe", count)
    for t, (arm, outcome) in enumerate(zip(arms, outcomes, strict=True), start=1):
        observe(single, arm, outcome)
        if t % 31 == 0 or t == num_rounds:
            played = 0
            record = ArmsPosterior(prior, 0.01)
            record.observe_many(arms[:t], outcomes[:t])
            if num_played < num_arms:
                assert played <= max(64, 2 * len(set(arms[:t])))
            for name in ("mean", "variance", "counts", "sums", "squares", "information_gain"):
                assert torch.equal(getattr(record, name), getattr(single, name)), (t, name)
            some = torch.tensor([0, num_played - 1])
            assert torch.equal(record.covariance_columns(some), single.covariance_columns(some))


@pytest.mark.parametrize("form", FORMS)
def test_changed_and_relabeled_outcomes(form: str) -> None:
    num_arms, num_played, num_rounds = FORMS[form]
    kernel = squared_exponential(num_arms, 0.1)
    stream = torch.Generator().manual_seed(6)
    arms = torch.randint(num_played, (2, num_rounds), generator=stream)
    outcomes = torch.randn(2, num_rounds, dtype=torch.float64, generator=stream)
    batch, single = ArmsPosterior(kernel, 0.02, (2,)), ArmsPosterior(kernel, 0.02)
    for t in range(num_rounds):
        batch.observe(arms[:, t], outcomes[:, t])
        single.observe(int(arms[0, t]), float(outcomes[0, t]))
    for t in (0, 7, num_rounds - 1):
        new = outcomes[:, t] + torch.tensor([0.5, 0.0], dtype=torch.float64)
        batch.change_outcome(arms[:, t], outcomes[:, t], new)
        single.change_outcome(int(arms[0, t]), float(outcomes[0, t]), float(new[0]))
        outcomes[:, t] = new
    for b in range(2):
        assert_is_textbook(batch, kernel, 0.02, arms[b], outcomes[b], b)
    assert_is_textbook(single, kernel, 0.02, arms[0], outcomes[0], ...)
    relabeled = outcomes**2 - 1.0
    zero = torch.zeros(2, num_arms, dtype=torch.float64)
    batch.relabel(zero.scatter_add(1, arms, relabeled), zero.scatter_add(1, arms, relabeled**2))
    for b in range(2):
        assert_is_textbook(batch, kernel, 0.02, arms[b], relabeled[b], b)
    assert torch.allclose(batch.squares.sum(-1), (relabeled**2).sum(-1))


@pytest.mark.parametrize("form", FORMS)
def test_replicates_are_reset_and_masked_one_by_one(form: str) -> None:
    num_arms, num_played, num_rounds = FORMS[form]
    kernel = squared_exponential(num_arms, 0.1)
    stream = torch.Generator().manual_seed(7)
    arms = torch.randint(num_played, (3, num_rounds), generator=stream)
    outcomes = torch.randn(3, num_rounds, dtype=torch.float64, generator=stream)
    resets = {1: num_rounds // 3, 2: num_rounds - 1}
    posterior = ArmsPosterior(kernel, 0.02, (3,))
    kept: list[list[int]] = [[], [], []]
    for t in range(num_rounds):
        for b, when in resets.items():
            if t == when:
                posterior.reset(torch.arange(3) == b)
                kept[b] = []
                assert torch.equal(posterior.variance[b], kernel.diagonal())
        mask = torch.tensor([True, t % 3 != 0, t % 5 != 1])
        posterior.observe(arms[:, t], outcomes[:, t].where(mask, torch.nan), mask)
        for b in range(3):
            kept[b] += [t] if mask[b] else []
    for b in range(3):
        assert_is_textbook(posterior, kernel, 0.02, arms[b, kept[b]], outcomes[b, kept[b]], b)
    posterior.refactorize()
    for b in range(3):
        assert_is_textbook(posterior, kernel, 0.02, arms[b, kept[b]], outcomes[b, kept[b]], b)
    posterior.reset()
    assert torch.equal(posterior.mean, torch.zeros(3, num_arms, dtype=torch.float64))
    assert torch.equal(posterior.information_gain, torch.zeros(3, dtype=torch.float64))
    assert float(posterior.counts.sum()) == 0.0


def test_variance_with_pending_arms() -> None:
    posterior = ArmsPosterior(KERNEL, 0.1, (2,))
    posterior.observe(torch.tensor([4, 9]), torch.tensor([1.0, -1.0], dtype=torch.float64))
    pending = torch.tensor([[3, 3, 12], [9, 0, 0]])
    variance = posterior.variance_given(pending)
    for b, first in enumerate((4, 9)):
        rows = torch.cat([torch.tensor([first]), pending[b]])
        _, covariance, _ = textbook(KERNEL, 0.1, rows, torch.zeros(4, dtype=torch.float64))
        assert torch.allclose(variance[b], covariance.diagonal(), atol=1e-10, rtol=0)


@pytest.mark.parametrize("form", FORMS)
def test_draws_are_exact(form: str) -> None:
    """A draw is linear in the normal numbers, so its covariance can be computed, not estimated."""
    num_arms, num_played, num_rounds = FORMS[form]
    kernel = squared_exponential(num_arms, 0.1)
    stream = torch.Generator().manual_seed(8)
    arms = torch.randint(num_played, (2, num_rounds), generator=stream)
    outcomes = torch.randn(2, num_rounds, dtype=torch.float64, generator=stream)
    batch, single = ArmsPosterior(kernel, 0.02, (2,)), ArmsPosterior(kernel, 0.02)
    for t in range(num_rounds):
        batch.observe(arms[:, t], outcomes[:, t])
        single.observe(int(arms[1, t]), float(outcomes[1, t]))
    identity = torch.eye(batch.num_normals, dtype=torch.float64)
    draws = torch.stack([batch.sample(row.expand(2, -1)) - batch.mean for row in identity])
    for b in range(2):
        root = draws[:, b]
        assert torch.allclose(root.T @ root, batch.covariance[b], atol=1e-8, rtol=0)
    alone = torch.stack([single.sample(row) - single.mean for row in identity])
    assert torch.allclose(alone, draws[:, 1], atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("kernel", "largest_rank"),
    [(squared_exponential(500, 0.2), 40), (KERNEL, 15), (torch.eye(7).double(), 7)],
)
def test_root_of_the_prior(kernel: Tensor, largest_rank: int) -> None:
    root = ArmsPrior.from_matrix(kernel).root
    assert len(root) <= largest_rank
    assert torch.allclose(root.T @ root, kernel, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: ArmsPosterior(KERNEL[:3], 0.1), ValueError, r"shape \(3, 15\)"),
        (lambda: ArmsPosterior(KERNEL.float(), 0.1), TypeError, "float64"),
        (lambda: ArmsPosterior(KERNEL.triu(), 0.1), ValueError, "not symmetric"),
        (lambda: ArmsPosterior(KERNEL, -1.0), ValueError, "lam is -1"),
        (lambda: ArmsPosterior(KERNEL, 0.1, (2, 2)), ValueError, r"batch_shape is \(2, 2\)"),
        (lambda: ArmsPosterior(KERNEL, 0.1).observe(0, float("nan")), ValueError, "outcome is nan"),
        (
            lambda: ArmsPosterior(KERNEL, 0.1, (2,)).observe(
                torch.tensor([0, 1]), torch.tensor([0.0, torch.inf]).double()
            ),
            ValueError,
            r"outcome\[1\] is inf",
        ),
        (
            lambda: ArmsPosterior(KERNEL, 0.1).change_outcome(3, 0.0, 1.0),
            ValueError,
            "never observed",
        ),
        (
            lambda: ArmsPosterior(KERNEL, 0.1).observe_many([1], [float("inf")]),
            ValueError,
            "outcome is inf",
        ),
        (lambda: ArmsPosterior(KERNEL, 0.1).observe(-1, 0.0), ValueError, "arm is -1"),
        (lambda: ArmsPosterior(KERNEL, 0.1).observe(15, 0.0), ValueError, "arm is 15, but the 15"),
        (lambda: ArmsPosterior(KERNEL, 0.1).observe(1.7, 0.0), TypeError, "arm must be an integer"),
        (
            lambda: ArmsPosterior(KERNEL, 0.1).observe(torch.tensor(1.0), 0.0),
            TypeError,
            "arm must be an integer",
        ),
        (
            lambda: ArmsPosterior(KERNEL, 0.1, (2,)).observe(torch.tensor([0, -1]), 0.0),
            ValueError,
            "arm is -1",
        ),
        (
            lambda: ArmsPosterior(KERNEL, 0.1, (2,)).observe(torch.tensor([0.0, 1.0]), 0.0),
            TypeError,
            "arm has dtype torch.float32",
        ),
        (
            lambda: ArmsPosterior(KERNEL, 0.1).observe_many([-1] * 2000, [0.0] * 2000),
            ValueError,
            "arm is -1",
        ),
        (
            lambda: ArmsPosterior(KERNEL, 0.1).observe_many([1] * 2000, [0.0] * 1999),
            ValueError,
            "arms has 2000 entries and outcomes 1999",
        ),
        (lambda: ArmsPosterior(KERNEL, 0.1).change_outcome(-1, 0.0, 1.0), ValueError, "arm is -1"),
        (lambda: ArmsPosterior(KERNEL - 0.5, 0.1), ValueError, "not positive semi-definite"),
        (lambda: ArmsPosterior(KERNEL[:0, :0], 0.1), ValueError, "at least one arm"),
    ],
)
def test_bad_input_is_named(act: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        act()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_go_on_by_themselves(duplicate: Any) -> None:
    posterior = ArmsPosterior(KERNEL, 0.1)
    for arm, outcome in ((3, 1.0), (3, 0.5), (9, -1.0)):
        posterior.observe(arm, outcome)
    other = duplicate(posterior)
    other.observe(4, 2.0)
    arms, outcomes = torch.tensor([3, 3, 9, 4]), torch.tensor([1.0, 0.5, -1.0, 2.0]).double()
    assert_is_textbook(other, KERNEL, 0.1, arms, outcomes, ...)
    assert_is_textbook(posterior, KERNEL, 0.1, arms[:3], outcomes[:3], ...)
    other.refactorize()
    assert_is_textbook(other, KERNEL, 0.1, arms, outcomes, ...)


def test_bad_outcome_changes_nothing() -> None:
    posterior = ArmsPosterior(KERNEL, 0.1, (2,))
    posterior.observe(torch.tensor([1, 2]), torch.tensor([1.0, 2.0]).double())
    mean = posterior.mean.clone()
    with pytest.raises(ValueError, match="finite"):
        posterior.observe(torch.tensor([1, 2]), torch.tensor([1.0, torch.nan]).double())
    assert torch.equal(posterior.mean, mean)
    assert torch.equal(posterior.counts.sum(-1), torch.ones(2).double())


@pytest.mark.parametrize("form", FORMS)
def test_devices_agree(form: str) -> None:
    num_arms, num_played, num_rounds = FORMS[form]
    kernel = squared_exponential(num_arms, 0.1)
    stream = torch.Generator().manual_seed(9)
    arms = torch.randint(num_played, (3, num_rounds), generator=stream)
    outcomes = torch.randn(3, num_rounds, dtype=torch.float64, generator=stream)
    host = ArmsPosterior(kernel, 0.02, (3,))
    for t in range(num_rounds):
        host.observe(arms[:, t], outcomes[:, t])
    with other_device() as name:
        device = ArmsPosterior(kernel.to(name), 0.02, (3,))
        for t in range(num_rounds):
            device.observe(arms[:, t].to(name), outcomes[:, t].to(name))
        assert torch.allclose(host.mean, device.mean.cpu(), atol=1e-8, rtol=0)
        assert torch.allclose(host.covariance, device.covariance.cpu(), atol=1e-8, rtol=0)
        # Rounding decides the last columns of the prior's root, so draws may take fewer normals.
        if device.num_normals == host.num_normals:
            normal = torch.randn(3, host.num_normals, dtype=torch.float64, generator=stream)
            drawn = device.sample(normal.to(name)).cpu()
            assert torch.allclose(host.sample(normal), drawn, atol=1e-8)
        else:
            assert abs(device.num_normals - host.num_normals) <= 2


def test_nothing_but_the_mean_is_shared() -> None:
    kernel = KERNEL.clone()
    posterior = ArmsPosterior(kernel, 0.1)
    kernel.zero_()
    kept = (posterior.counts, posterior.sums, posterior.squares, posterior.information_gain)
    posterior.regularization.fill_(9.0)
    posterior.observe(3, 2.0)
    assert all(float(value.sum()) == 0.0 for value in kept)
    arms, outcomes = torch.tensor([3]), torch.tensor([2.0]).double()
    assert_is_textbook(posterior, KERNEL, 0.1, arms, outcomes, ...)


def test_whole_numbers_as_outcomes_do_not_overflow() -> None:
    posterior = ArmsPosterior(KERNEL, 0.1)
    posterior.observe_many([1] * 1024, [10**10] * 1024)
    assert float(posterior.squares[1]) == pytest.approx(1024 * 1e20)


@pytest.mark.parametrize("scale", [1e-12, 1e6, 1e30])
def test_units_of_the_outcomes_do_not_matter(scale: float) -> None:
    kernel = squared_exponential(60, 0.5)
    one, other = ArmsPosterior(kernel, 1e-15), ArmsPosterior(kernel * scale, 1e-15 * scale)
    for posterior, unit in ((one, 1.0), (other, scale**0.5)):
        # a whole record is factorized at once; it is singular to rounding and takes jitter
        posterior.observe_many([t % 60 for t in range(1024)], [unit * (t % 7) for t in range(1024)])
    assert torch.allclose(other.variance / scale, one.variance, atol=1e-6)

"""The posterior on more arms than a matrix is kept of: dense algebra, the last bit, bytes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from torch import Tensor

from botorch_bandits import Arms, BanditGP, BanditLoop, GPThompsonSampling, GPUpperConfidenceBound
from botorch_bandits.models import many_arms
from botorch_bandits.models.arms import ArmsPosterior
from botorch_bandits.models.many_arms import ManyArmsPosterior, posterior_on_arms
from botorch_bandits.models.prior_on_arms import LARGEST_MATRIX, ArmsPrior

NUM_ARMS = LARGEST_MATRIX + 4
NAMES = ("mean", "variance", "counts", "sums", "squares", "information_gain")


def uniform(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


def prior_of(num_arms: int = NUM_ARMS) -> ArmsPrior:
    return ArmsPrior.from_kernel(MaternKernel(nu=2.5).double(), uniform(num_arms, 2, seed=1))


def record(num_rounds: int, num_distinct: int, seed: int = 3) -> tuple[list[int], list[float]]:
    arms = ((uniform(num_rounds, seed=seed) * num_distinct).long() * 37 % NUM_ARMS).tolist()
    noise = torch.randn(num_rounds, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    return arms, noise.tolist()


def assert_is_dense(posterior: ArmsPosterior, arms: list[int], outcomes: list[float]) -> None:
    others = torch.arange(NUM_ARMS - 9, NUM_ARMS)
    some = torch.cat([torch.tensor(arms), others]).unique()
    place = {int(arm): i for i, arm in enumerate(some)}
    with torch.no_grad():
        K = MaternKernel(nu=2.5).double()(uniform(NUM_ARMS, 2, seed=1)[some]).to_dense()
    rows, lam = [place[arm] for arm in arms], float(posterior.lam)
    y = torch.tensor(outcomes, dtype=torch.float64)
    own, identity = K[rows][:, rows], torch.eye(len(rows), dtype=torch.float64)
    solved = torch.linalg.solve(own + lam * identity, K[rows])
    mean, covariance = solved.T @ y, K - K[:, rows] @ solved
    gain = 0.5 * torch.logdet(identity + own / lam)
    assert torch.allclose(posterior.mean[some], mean, rtol=0.0, atol=1e-8)
    assert torch.allclose(posterior.variance[some], covariance.diagonal(), rtol=0.0, atol=1e-8)
    columns = posterior.covariance_columns(some)[:, some]
    assert torch.allclose(columns, covariance, rtol=0.0, atol=1e-8)
    assert float(posterior.information_gain) == pytest.approx(float(gain), abs=1e-7)


@pytest.mark.parametrize("lam", [1e-4, 0.05, 2.0])
@pytest.mark.parametrize("num_distinct", [15, 200])
def test_it_is_dense_algebra(lam: float, num_distinct: int) -> None:
    posterior = posterior_on_arms(prior_of(), lam)
    assert type(posterior) is ManyArmsPosterior
    arms, outcomes = record(300, num_distinct)
    for t, (arm, outcome) in enumerate(zip(arms, outcomes, strict=True), 1):
        posterior.observe(arm, outcome)
        if t in (1, 32, 33, 150, 300):  # before and behind folds, and computed afresh
            assert_is_dense(posterior, arms[:t], outcomes[:t])
    posterior.refactorize()
    assert_is_dense(posterior, arms, outcomes)
    assert posterior.num_columns == len(set(arms))


def test_a_record_is_taken_in_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_arms, "FEWEST_ROUNDS", 64)
    monkeypatch.setattr(many_arms, "ROUNDS_BETWEEN", 128)
    arms, outcomes = record(500, 25)
    single = ManyArmsPosterior(prior_of(), 0.1)
    observe, played = ArmsPosterior.observe, 0

    def count(self: ArmsPosterior, *given: Any, **more: Any) -> None:
        nonlocal played
        played += 1
        observe(self, *given, **more)

    monkeypatch.setattr(ArmsPosterior, "observe", count)
    for t, (arm, outcome) in enumerate(zip(arms, outcomes, strict=True), 1):
        observe(single, arm, outcome)
        if t % 37 == 0 or t == 500:
            played, again = 0, ManyArmsPosterior(prior_of(), 0.1)
            again.observe_many(arms[:t], outcomes[:t])
            assert played <= 128 + 32
            for name in NAMES:
                assert torch.equal(getattr(again, name), getattr(single, name)), (t, name)
            index = torch.tensor([arms[0], arms[t - 1], 11])
            assert torch.equal(again.covariance_columns(index), single.covariance_columns(index))
    for copied in (copy.deepcopy(single), pickle.loads(pickle.dumps(single))):
        kept = single.mean.clone()
        copied.observe(5, 1.0)
        again = ManyArmsPosterior(prior_of(), 0.1)
        again.observe_many([*arms, 5], [*outcomes, 1.0])
        assert torch.equal(copied.mean, again.mean)
        assert torch.equal(single.mean, kept)


def test_outcomes_change_and_are_forgotten() -> None:
    arms, outcomes = record(90, 20)
    posterior = ManyArmsPosterior(prior_of(), 0.1)
    posterior.observe_many(arms, outcomes)
    for t in (0, 50, 89):
        posterior.change_outcome(arms[t], outcomes[t], 2.0)
        outcomes[t] = 2.0
    assert_is_dense(posterior, arms, outcomes)
    posterior.relabel(-posterior.sums)
    assert_is_dense(posterior, arms, [-y for y in outcomes])
    given = posterior.variance_given(torch.tensor([3, 3, arms[0]]))
    fresh = ManyArmsPosterior(prior_of(), 0.1)
    fresh.observe_many([*arms, 3, 3, arms[0]], [0.0] * 93)
    assert torch.allclose(given, fresh.variance, rtol=0.0, atol=1e-10)
    posterior.reset()
    assert float(posterior.mean.abs().sum()) == 0.0
    assert posterior.num_columns == 0
    posterior.observe_many(arms, outcomes)
    assert_is_dense(posterior, arms, outcomes)


def test_draws_are_those_of_the_rows() -> None:
    """The same normal numbers give the same draw as the other form of the posterior does."""
    prior = ArmsPrior.from_kernel(RBFKernel().double(), uniform(NUM_ARMS, 1, seed=5))
    arms, outcomes = record(75, 30)
    one, other = ManyArmsPosterior(prior, 0.1), ArmsPosterior(prior, 0.1)
    for arm, outcome in zip(arms, outcomes, strict=True):
        one.observe(arm, outcome)
        other.observe(arm, outcome)
    normal = torch.randn(one.num_normals, dtype=torch.float64)
    assert torch.allclose(one.sample(normal), other.sample(normal), rtol=0.0, atol=1e-8)
    assert torch.allclose(one.mean, other.mean, rtol=0.0, atol=1e-9)
    assert torch.allclose(one.variance, other.variance, rtol=0.0, atol=1e-9)


def bytes_kept(posterior: ManyArmsPosterior) -> int:
    blocks = [*posterior._prior_columns._blocks, *posterior._columns_of_played._blocks]
    tensors = [*blocks, posterior._prior_block, posterior._rows, posterior._statistics]
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def test_memory_grows_with_the_arms_that_are_played_and_not_with_rounds() -> None:
    prior = prior_of()
    posterior = ManyArmsPosterior(prior, 0.1)
    arms, outcomes = record(400, 33)
    sizes = []
    for t, (arm, outcome) in enumerate(zip(arms, outcomes, strict=True), 1):
        posterior.observe(arm, outcome)
        if t >= 200:
            sizes.append(bytes_kept(posterior))
    assert len(set(sizes)) == 1
    # prior and posterior columns in blocks of 32, a buffer of 64 rows, three statistics
    assert sizes[0] <= 8 * NUM_ARMS * (2 * 64 + 64 + 3) + 8 * 128**2
    assert prior.num_columns_kept == 0


@pytest.mark.parametrize(
    "acquisition",
    [
        GPUpperConfidenceBound.with_options(width=2.0),
        GPThompsonSampling.with_options(width=1.0),
    ],
)
def test_a_loop_plays_what_it_played_with_rows(
    acquisition: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = uniform(NUM_ARMS, 1, seed=6)
    model = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2)

    def play() -> list[float]:
        loop = BanditLoop(Arms(choices), model, acquisition, seed=0)
        for t in range(45):
            query = loop.ask()
            if t % 4 != 2:
                x = float(query.x[0])
                loop.tell(query.id, x * (1.0 - x))
        expected = ManyArmsPosterior if not is_replaced else ArmsPosterior
        assert type(loop._chooser._stream.engine.posterior) is expected
        return [float(query.x[0]) for query in loop.history.queries]

    is_replaced = False
    ours = play()
    monkeypatch.setattr(many_arms, "ManyArmsPosterior", ArmsPosterior)
    is_replaced = True
    assert play() == ours

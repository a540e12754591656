"""Reward and constraints on arms, from one factor: what the models say, without any model."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from botorch_bandits.acquisition.lagrangian_on_arms import LagrangianEngine
from botorch_bandits.loop.arms_stream import OutputsStream
from botorch_bandits.models.arms import ArmsPosterior
from botorch_bandits.models.outputs_on_arms import OutputsPosterior
from botorch_bandits.models.prior_on_arms import LARGEST_MATRIX, ArmsPrior
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Hallucinated,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    MultiplicativeEpochs,
    PrimalDual,
)
from botorch_bandits.feedback import Ignored
from botorch_bandits.models import BanditGPRecipe
from botorch_bandits.penalties import Polynomial


def uniform(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


CHOICES = uniform(60, 2, seed=1)
DOMAIN = Arms(CHOICES)
FORMS = {
    "few distinct arms": (300, 20, 150),
    "all arms": (60, 60, 400),
    "one by one": (60, 60, 5),
    "more arms than a matrix is kept of": (LARGEST_MATRIX + 1, 30, 150),
}


def dense(K: Tensor, lam: float, arms: list[int], y: Tensor) -> tuple[Tensor, Tensor]:
    """Posterior mean and variance from the rows themselves."""
    solved = torch.linalg.solve(K[arms][:, arms] + lam * torch.eye(len(arms)).double(), K[arms])
    return solved.T @ y, K.diagonal() - (K[arms] * solved).sum(0)


@pytest.mark.parametrize("form", FORMS)
def test_each_output_has_the_posterior_of_dense_algebra(form: str) -> None:
    num_arms, num_played, num_rounds = FORMS[form]
    points, lam = uniform(num_arms, 2, seed=2), 0.02
    prior = ArmsPrior.from_kernel(MaternKernel(nu=2.5).double(), points)
    arms = (uniform(num_rounds, seed=3) * num_played).long().tolist()
    Y = torch.randn(num_rounds, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    single = OutputsPosterior(prior, lam, 3)
    for arm, outcomes in zip(arms, Y.tolist(), strict=True):
        single.observe_outputs(arm, outcomes)
    some = torch.tensor(sorted({*arms, *range(num_arms - 20, num_arms)}))
    place = {int(arm): i for i, arm in enumerate(some)}
    with torch.no_grad():
        K = MaternKernel(nu=2.5).double()(points[some]).to_dense()
    rows = [place[arm] for arm in arms]
    for j in range(3):
        mean, variance = dense(K, lam, rows, Y[:, j])
        assert torch.allclose(single.means[j, some], mean, rtol=0.0, atol=1e-8)
        assert torch.allclose(single.variance[some], variance, rtol=0.0, atol=1e-8)
    single.refactorize()
    for j in range(3):
        mean, _ = dense(K, lam, rows, Y[:, j])
        assert torch.allclose(single.means[j, some], mean, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("form", FORMS)
def test_a_record_is_taken_in_to_the_last_bit(form: str) -> None:
    num_arms, num_played, num_rounds = FORMS[form]
    prior = ArmsPrior.from_kernel(RBFKernel().double(), uniform(num_arms, 2, seed=2))
    arms = (uniform(num_rounds, seed=5) * num_played).long().tolist()
    Y = uniform(num_rounds, 2, seed=6).tolist()
    single, alone = OutputsPosterior(prior, 0.1, 2), ArmsPosterior(prior, 0.1)
    for arm, outcomes in zip(arms, Y, strict=True):
        single.observe_outputs(arm, outcomes)
        alone.observe(arm, outcomes[0])
    record = OutputsPosterior(prior, 0.1, 2)
    record.observe_many_outputs(arms, Y)
    assert torch.equal(record.means, single.means)
    assert torch.equal(record.variance, single.variance)
    assert torch.equal(record.mean, alone.mean)
    for copied in (copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        copied.observe_outputs(arms[0], Y[0])
        assert copied.mean.data_ptr() == copied.means.data_ptr() != record.means.data_ptr()
        again = OutputsPosterior(prior, 0.1, 2)
        again.observe_many_outputs([*arms, arms[0]], [*Y, Y[0]])
        assert torch.equal(copied.means, again.means)
    assert torch.equal(record.means, single.means)
    record.reset()
    assert float(record.means.abs().sum()) == 0.0
    record.observe_many_outputs(arms, Y)
    assert torch.equal(record.means, single.means)


def test_the_device_program_says_the_same() -> None:
    """What runs off the CPU, run on it."""
    prior = ArmsPrior.from_kernel(RBFKernel().double(), CHOICES)
    one, other = OutputsPosterior(prior, 0.1, 2), OutputsPosterior(prior, 0.1, 2)
    for t, outcomes in enumerate(uniform(90, 2, seed=7).tolist()):
        arm = 7 * t % 60
        one.observe_outputs(arm, outcomes)
        other._others = iter([outcomes[1:]])
        number, first = torch.tensor([arm]), torch.tensor(outcomes[:1], dtype=torch.float64)
        other._observe_batch(number, first, None)
    assert torch.allclose(one.means, other.means, rtol=0.0, atol=1e-12)


def test_bad_outcomes_change_nothing() -> None:
    posterior = OutputsPosterior(torch.eye(3, dtype=torch.float64), 1.0, 2)
    with pytest.raises(ValueError, match="3 numbers per round"):
        posterior.observe_outputs(0, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="nan"):
        posterior.observe_outputs(0, [1.0, math.nan])
    with pytest.raises(ValueError, match="arm is 7"):
        posterior.observe_outputs(7, [1.0, 2.0])
    assert float(posterior.means.abs().sum()) == 0.0
    posterior.observe_outputs(0, [1.0, 2.0])
    assert posterior.means[:, 0].tolist() == pytest.approx([0.5, 1.0])


@pytest.mark.parametrize("num_rounds", [3, 40, 300])
def test_draws_have_the_covariance_of_the_posterior(num_rounds: int) -> None:
    """A deviation is linear in its normal numbers, so its covariance can be computed exactly."""
    prior = ArmsPrior.from_kernel(MaternKernel(nu=1.5).double(), CHOICES)
    posterior = OutputsPosterior(prior, 0.05, 2)
    for t, outcomes in enumerate(uniform(num_rounds, 2, seed=8).tolist()):
        posterior.observe_outputs(11 * t % 60, outcomes)
    identity = torch.eye(posterior.num_normals, dtype=torch.float64)
    drawn = posterior.deviations_of_draws(posterior.simulate_prior(identity))
    assert torch.allclose(drawn.T @ drawn, posterior.covariance, rtol=0.0, atol=1e-8)
    alone = posterior.sample(identity[3]) - posterior.mean
    assert torch.allclose(drawn[3], alone, rtol=0.0, atol=1e-10)


def batch_kernel() -> ScaleKernel:
    """The first and the last of three outputs have the same kernel."""
    shape = torch.Size([3])
    kernel = ScaleKernel(RBFKernel(batch_shape=shape), batch_shape=shape).double()
    kernel.base_kernel.lengthscale = torch.tensor([0.2, 0.4, 0.2]).double().view(-1, 1, 1)
    kernel.outputscale = torch.tensor([1.0, 2.0, 1.0]).double()
    return kernel


RECIPES: dict[str, Callable[[], BanditGPRecipe]] = {
    "Matern": lambda: BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.05, lengthscale=0.3),
    "prior mean": lambda: BanditGP.with_kernel(RBFKernel(), noise=0.05, prior_mean=1.5),
    "scaled": lambda: BanditGP.with_kernel(ScaleKernel(MaternKernel(ard_num_dims=2)), noise=0.05),
    "linear": lambda: BanditGP.with_kernel(LinearKernel(), noise=0.05),
    "a kernel each": lambda: BanditGP.with_kernel(batch_kernel(), noise=0.05),
}
UCB, TS = LagrangianUpperConfidenceBound.with_options, LagrangianThompsonSampling.with_options
PLAYED: dict[str, Any] = {
    "one width": (UCB(width=1.5), AdditiveEpochs(2, 4, surrogate="separate")),
    "a width each": (UCB(width=(1.5, 1.0, 0.5)), AdditiveEpochs(2, 4, surrogate="separate")),
    "theorem": (
        UCB(rkhs_bound=(2.0, 1.0, 1.0), noise_bound=0.2, any_lambda=True, scale=0.5),
        AdditiveEpochs(2, 4, surrogate="separate"),
    ),
    "plug-in": (
        UCB(width=1.0),
        MultiplicativeEpochs(2, 4, penalty=Polynomial(1.0, 2), surrogate="separate"),
    ),
    "bounds apart": (
        UCB(width=1.0, separate_bounds=True),
        AdditiveEpochs(2, 4, surrogate="separate"),
    ),
    "every round": (
        UCB(rkhs_bound=1.0, noise_bound="model"),
        PrimalDual(2, 3.0, 5.0, reward_bound=1.0, constraint_bound=0.4),
    ),
}


def values_at(i: int, t: int) -> tuple[float, list[float]]:
    x, y = CHOICES[i].tolist()
    return math.sin(6 * x) + 0.1 * math.sin(t), [x - 0.4, 0.3 - y + 0.1 * math.cos(t)]


@pytest.mark.parametrize(
    ("played", "recipe"),
    [
        *((played, "Matern") for played in PLAYED),
        *((played, "a kernel each") for played in ("theorem", "plug-in")),
        *(("one width", recipe) for recipe in ("prior mean", "scaled", "linear")),
        ("every round", "prior mean"),
    ],
)
def test_a_loop_plays_what_the_models_would(
    played: str, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With pending queries, over ends of epochs: choice, diagnostics and all scores."""
    acquisition, rule = PLAYED[played]
    loop = BanditLoop(
        DOMAIN, RECIPES[recipe](), acquisition, constraints=rule, seed=0, num_initial=2
    )
    seen: list[Tensor] = []
    choose = LagrangianEngine.choose

    def keep(engine: LagrangianEngine, known: Any) -> Tensor:
        seen.append(known.scores)
        return choose(engine, known)

    monkeypatch.setattr(LagrangianEngine, "choose", keep)
    for t in range(13):
        chooser = loop._chooser
        chooser.begin_round(t + 1)
        model_path = None
        if t >= 2:
            now = chooser.current.num_queries + 1
            model_path = chooser._new_builder().build(chooser._played, now, DOMAIN, 0.0)
        query = loop.ask()
        assert isinstance(chooser._stream, OutputsStream)
        arm = int(DOMAIN.index_of(query.x[None]))
        if model_path is not None:
            with torch.no_grad():
                expected = model_path(CHOICES.unsqueeze(-2))
            best, _ = DOMAIN.maximize(model_path)
            assert torch.equal(query.x, best)
            found = query.diagnostics["acquisition_value"]
            assert found == pytest.approx(float(expected[arm]), rel=0.0, abs=1e-8)
            described = model_path.describe(query.x)
            told = {name: query.diagnostics[name] for name in described}
            assert told == pytest.approx(described, rel=1e-8, abs=1e-8)
            assert torch.allclose(seen[-1], expected, rtol=0.0, atol=1e-8)
        if t % 3 != 1:  # others stay pending for a while
            for waiting in loop.history.pending():
                i = int(DOMAIN.index_of(waiting.x[None]))
                reward, constraints = values_at(i, t)
                loop.tell(waiting.id, reward, constraints=constraints)
    assert loop.guarantee().method  # from the models themselves


@pytest.mark.parametrize("feedback", [Hallucinated(), Ignored()])
def test_draws_are_described_at_the_widths_of_the_models(feedback: Any) -> None:
    acquisition = TS(rkhs_bound=1.0, noise_bound=0.3)
    loop = BanditLoop(
        DOMAIN,
        RECIPES["a kernel each"](),
        acquisition,
        constraints=AdditiveEpochs(2, 4, surrogate="separate"),
        feedback=feedback,
        seed=3,
    )
    for t in range(12):
        chooser = loop._chooser
        chooser.begin_round(t + 1)
        now = chooser.current.num_queries + 1
        model_path = chooser._new_builder().build(chooser._played, now, DOMAIN, 0.0)
        query = loop.ask()
        described = model_path.describe(query.x)
        assert set(described) <= set(query.diagnostics)
        for name, value in described.items():
            if "draw" not in name and name != "acquisition_value":
                assert query.diagnostics[name] == pytest.approx(value, rel=1e-8, abs=1e-8), name
        seen = chooser._stream._look(now, chooser._stream._rule)
        reward, *constraints = seen.drawn
        multipliers = torch.tensor(loop.multipliers, dtype=torch.float64)
        expected = reward - multipliers @ torch.stack(constraints)
        assert torch.allclose(seen.scores, expected, rtol=0.0, atol=1e-12)
        assert float(np.corrcoef(seen.drawn.numpy() - seen.means.numpy())[0, 2]) < 0.999
        reward, constraints = values_at(int(DOMAIN.index_of(query.x[None])), t)
        loop.tell(query.id, reward, constraints=constraints)


def test_no_model_is_built_and_outputs_share_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = BanditLoop(
        DOMAIN,
        RECIPES["Matern"](),
        UCB(width=1.0),
        constraints=PrimalDual(2, 3.0, 5.0),
        seed=0,
        num_initial=3,
    )
    monkeypatch.setattr(BanditGP, "__init__", None)
    for t in range(30):
        query = loop.ask()
        reward, constraints = values_at(int(DOMAIN.index_of(query.x[None])), t)
        loop.tell(query.id, reward, constraints=constraints)
    (posterior,) = loop._chooser._stream.engine.posteriors
    assert posterior._rows.shape[0] == 1  # one factor for three outputs
    assert posterior.num_outputs == 3


@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        (BanditGP.with_kernel(RBFKernel(), noise=0.1, refit_every=5), {}),
        (BanditGP.with_kernel(RBFKernel(), noise=0.1), {"choices": CHOICES}),
    ],
)
def test_what_needs_the_model_has_it(recipe: BanditGPRecipe, options: dict[str, Any]) -> None:
    acquisition = TS(width=1.0, **options)
    rule = AdditiveEpochs(2, 4, surrogate="separate")
    loop = BanditLoop(DOMAIN, recipe, acquisition, constraints=rule, seed=0)
    assert loop._chooser._stream is None

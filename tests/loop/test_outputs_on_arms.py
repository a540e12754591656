"""Reward and constraints on arms, from one factor: what the models say, without any model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
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
from botorch_bandits.acquisition.player import Player
from botorch_bandits.core.posterior import Posterior
from botorch_bandits.feedback import Ignored
from botorch_bandits.models import BanditGPRecipe
from botorch_bandits.penalties import Polynomial


def uniform(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


CHOICES = uniform(60, 2, seed=1)
DOMAIN = Arms(CHOICES)


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
    choose = Player.choose

    def keep(player: Player, known: Any) -> Tensor:
        seen.append(known.scores)
        return choose(player, known)

    monkeypatch.setattr(Player, "choose", keep)
    for t in range(13):
        chooser = loop._chooser
        chooser.begin_round(t + 1)
        model_path = None
        if t >= 2:
            now = chooser.current.num_queries + 1
            model_path = chooser._new_builder().build(chooser._played, now, DOMAIN, 0.0)
        query = loop.ask()
        assert chooser._stream is not None
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
        seen, _ = chooser._stream._look(now, 0.0, None)
        drawn, means = seen.prepared.drawn(seen), seen.prepared.means
        reward, *constraints = drawn
        multipliers = torch.tensor(loop.multipliers, dtype=torch.float64)
        expected = reward - multipliers @ torch.stack(constraints)
        assert torch.allclose(seen.scores, expected, rtol=0.0, atol=1e-12)
        assert float(np.corrcoef(drawn.numpy() - means.numpy())[0, 2]) < 0.999
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
    posterior = loop._chooser._stream.player.posterior
    assert isinstance(posterior, Posterior)
    assert posterior.mean.shape == (1, 3, 60)  # one factor for three outputs


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

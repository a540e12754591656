"""A loop that forgets plays what dense arithmetic says, and goes on from its history exactly."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel, RBFKernel
from numpy.typing import NDArray
from records import ON_BOXES, assert_same
from torch import Tensor

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Hallucinated,
    History,
    Ignored,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    Policy,
    RandomSearch,
    run,
    simulate,
)
from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.change_points import OracleRestart
from botorch_bandits.feedback import Feedback
from botorch_bandits.forgetting import (
    ExponentialWeights,
    Forgetting,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.problems import ArmsProblem, ConstantDelay, SwitchingProblem, gp_draw_on_arms

CHOICES = torch.linspace(0, 1, 25, dtype=torch.float64).unsqueeze(-1)
ARMS, BOX = Arms(CHOICES), Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
LAM, LENGTHSCALE = 0.03, 0.15
MODEL = BanditGP.with_kernel(RBFKernel(), noise=LAM, lengthscale=LENGTHSCALE)
UCB = GPUpperConfidenceBound.with_options(width=2.0)
KINDS: dict[str, Forgetting] = {
    "window": SlidingWindow(8),
    "weights": ExponentialWeights(0.8),
    "time": TimeVaryingKernel(0.1),
}
every_kind = pytest.mark.parametrize("name", KINDS)
Array = NDArray[np.float64]
GRAM: Array = np.exp(-((CHOICES.numpy() - CHOICES.numpy().T) ** 2) / (2 * LENGTHSCALE**2))


def problem(noise_std: float = 0.1) -> ArmsProblem:
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
    return gp_draw_on_arms(kernel, CHOICES, seed=1, noise_std=noise_std)


def dense_posterior(
    forgetting: Forgetting, arms: Array, y: Array, s: Array, t: int
) -> tuple[Array, Array]:
    """Mean and variance of all arms in round t, from outcomes y of arms asked in rounds s."""
    noise = np.full(len(y), LAM)
    gram, cross = GRAM[np.ix_(arms, arms)], GRAM[:, arms]
    if isinstance(forgetting, SlidingWindow):
        kept = s >= t - forgetting.length
        gram, cross, noise, y = gram[np.ix_(kept, kept)], cross[:, kept], noise[kept], y[kept]
    elif isinstance(forgetting, ExponentialWeights):
        noise = LAM / forgetting.discount ** (t - 1.0 - s)
    elif isinstance(forgetting, TimeVaryingKernel):
        decay = 1 - forgetting.rate
        gram = gram * decay ** (np.abs(s[:, None] - s[None]) / 2)
        cross = cross * decay ** ((t - s[None]) / 2)
    inverse = np.linalg.inv(gram + np.diag(noise))
    return cross @ inverse @ y, 1.0 - np.einsum("ij,jk,ik->i", cross, inverse, cross)


def with_pending(
    forgetting: Forgetting, history: History, t: int, hallucinates: bool
) -> tuple[Array, Array]:
    """The posterior mean of what arrived before round t; the variance also of what is pending."""
    before = [query for query in history.queries if query.round_number < t]
    told, waiting = [], []
    for query in before:
        outcome = history.outcome(query.id)
        if outcome is not None and outcome.arrived_round < t:
            told.append((query, outcome))
        else:
            waiting.append(query)
    told.sort(key=lambda pair: (pair[1].arrived_round, pair[0].id))
    arms = np.array([int(ARMS.index_of(q.x.unsqueeze(0))) for q, _ in told], dtype=int)
    y = np.array([o.reward for _, o in told])
    s = np.array([q.round_number for q, _ in told], dtype=float)
    mean, variance = dense_posterior(forgetting, arms, y, s, t)
    if not hallucinates:
        return mean, variance
    more = np.array([int(ARMS.index_of(q.x.unsqueeze(0))) for q in waiting], dtype=int)
    rounds = np.array([q.round_number for q in waiting], dtype=float)
    if isinstance(forgetting, ExponentialWeights):
        rounds = np.full(len(waiting), t - 1.0)  # what is pending counts in full
    every_arm, every_round = np.concatenate([arms, more]), np.concatenate([s, rounds])
    _, variance = dense_posterior(forgetting, every_arm, np.zeros(len(every_arm)), every_round, t)
    return mean, variance


@every_kind
@pytest.mark.parametrize(
    "feedback", [None, Hallucinated(), Ignored()], ids=lambda f: type(f).__name__
)
def test_loop_plays_the_dense_rule(name: str, feedback: Feedback | None) -> None:
    """Without delays, with hallucinated pending queries, and with ignored ones."""
    forgetting = KINDS[name]
    delays = None if feedback is None else ConstantDelay(4)
    loop = BanditLoop(ARMS, MODEL, UCB, forgetting=forgetting, feedback=feedback, num_initial=3)
    run(loop, problem(), 20, delays=delays, progress=False)
    for query in loop.history.queries[3:]:
        hallucinates = not isinstance(feedback, Ignored)
        mean, variance = with_pending(forgetting, loop.history, query.round_number, hallucinates)
        scores = mean + 2.0 * np.sqrt(np.maximum(variance, 1e-18))
        played = int(ARMS.index_of(query.x.unsqueeze(0)))
        assert scores[played] >= scores.max() - 1e-8
        assert query.diagnostics["mean"] == pytest.approx(mean[played], abs=1e-8)
        assert query.diagnostics["acquisition_value"] == pytest.approx(scores[played], abs=1e-8)


RECIPES: dict[str, AcquisitionRecipe] = {
    "UCB": UCB,
    "IGP-UCB": ImprovedUpperConfidenceBound.with_options(
        rkhs_bound=1.0, noise_bound=0.1, any_lambda=True
    ),
    "TS": GPThompsonSampling.with_options(rkhs_bound=1.0, noise_bound=0.1),
    "EI": LogExpectedImprovement.with_options(incumbent="observed"),
}


@every_kind
@pytest.mark.parametrize(
    ("domain", "recipe", "context_dim"),
    [
        (ARMS, "UCB", 2),
        (ARMS, "IGP-UCB", 0),
        (ARMS, "TS", 0),
        (ARMS, "EI", 0),
        (BOX, "UCB", 0),
        (BOX, "EI", 2),
    ],
    ids=["arms-UCB", "arms-IGP", "arms-TS", "arms-EI", "box-UCB", "box-EI"],
)
def test_loop_goes_on_from_its_history(
    name: str, domain: Arms | Box, recipe: str, context_dim: int
) -> None:
    """With contexts, and with queries that stay pending."""
    contexts = torch.rand(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def build(history: History | None = None) -> BanditLoop:
        return BanditLoop(
            domain,
            BanditGP.with_kernel(MaternKernel(nu=2.5), noise=LAM, lengthscale=0.3),
            RECIPES[recipe],
            forgetting=KINDS[name],
            num_initial=2,
            context_dim=context_dim,
            seed=4,
            history=history,
        )

    def play(loop: BanditLoop, rounds: int) -> None:
        for _ in range(rounds):
            t = loop.history.num_queries
            query = loop.ask(contexts[t] if context_dim else None)
            if t % 4 != 2:
                loop.tell(query.id, float(torch.sin(5 * query.x).sum() + 0.1 * t))

    whole, parts = build(), build()
    play(whole, 7)
    play(parts, 4)
    records = json.loads(json.dumps(parts.history.to_records()))
    rebuilt = build(History.from_records(records, 1, context_dim))
    play(rebuilt, 3)
    points = [q.x.tolist() for q in whole.history.queries]
    assert_same([q.x.tolist() for q in rebuilt.history.queries], points, ON_BOXES)
    assert len({tuple(point) for point in points}) > 2


@every_kind
def test_forgetting_goes_with_restarts(name: str) -> None:
    """Behind a reset the model is that of the rounds since then, faded as ever."""
    restart = OracleRestart(change_points=(6,))
    loop = BanditLoop(ARMS, MODEL, UCB, forgetting=KINDS[name], restart=restart)
    run(loop, problem(), 20, progress=False)
    assert [reset.after_round for reset in loop.resets] == [6]
    X, Y = loop.history.arrived()
    arms, y, rounds = ARMS.index_of(X).numpy(), Y.squeeze(-1).numpy(), np.arange(1.0, 21.0)
    played = [q for q in loop.history.queries[7:] if q.origin == "acquisition"]
    assert len(played) > 3
    for query in played:
        t = query.round_number
        since = slice(6, t - 1)
        mean, _ = dense_posterior(KINDS[name], arms[since], y[since], rounds[since], t)
        assert query.diagnostics["mean"] == pytest.approx(mean[arms[t - 1]], abs=1e-8)


def test_window_that_holds_everything_forgets_nothing() -> None:
    plain = BanditLoop(ARMS, MODEL, UCB, num_initial=2)
    wide = BanditLoop(ARMS, MODEL, UCB, num_initial=2, forgetting=SlidingWindow(100))
    for loop in (plain, wide):
        run(loop, problem(), 25, progress=False)
    assert [q.x.tolist() for q in plain.history.queries] == [
        q.x.tolist() for q in wide.history.queries
    ]


def test_model_of_the_user_gets_the_window_alone() -> None:
    seen: list[Tensor] = []

    def model(X: Tensor, Y: Tensor) -> SingleTaskGP:
        seen.append(X)
        return SingleTaskGP(X, Y)

    def told(t: int) -> bool:
        return t <= 5 or t > 9

    loop = BanditLoop(BOX, model, UCB, forgetting=SlidingWindow(3))
    for t in range(1, 13):
        query = loop.ask()
        window = [
            q for q in loop.history.queries if t - 3 <= q.round_number < t and told(q.round_number)
        ]
        if window:
            assert query.origin == "acquisition"
            assert torch.equal(seen[-1], torch.stack([q.x for q in window]))
        else:  # a window may be empty again
            assert query.origin == "initial"
        if told(t):
            loop.tell(query.id, float(torch.sin(5 * query.x).sum()))
    assert {q.round_number for q in loop.history.queries if q.origin == "initial"} == {1, 9, 10}


@every_kind
def test_forgetting_finds_the_new_best_arm_sooner(name: str) -> None:
    """After 30 rounds the best arm becomes the worst: less than half of the regret from then on."""
    before = torch.tensor([1.0, 0.5, 0.4, 0.3], dtype=torch.float64)
    after = torch.tensor([0.0, 0.5, 0.4, 0.9], dtype=torch.float64)
    choices = torch.arange(4.0, dtype=torch.float64).unsqueeze(-1)
    environment = SwitchingProblem(
        [ArmsProblem(choices, values, noise_std=0.05) for values in (before, after)], [30]
    )
    kinds = {"window": SlidingWindow(15), "weights": ExponentialWeights(0.85)}
    regret = []
    for forgetting in (None, kinds.get(name, KINDS[name])):
        loop = BanditLoop(Arms(choices), MODEL, UCB, forgetting=forgetting)
        result = run(loop, environment, 60, progress=False)
        regret.append(float(result.regret[30:].sum()))
    assert regret[1] < 0.5 * regret[0]


@every_kind
def test_guarantee_and_model_say_what_was_forgotten(name: str) -> None:
    loop = BanditLoop(ARMS, MODEL, GPUpperConfidenceBound.with_options(), forgetting=KINDS[name])
    run(loop, problem(), 12, progress=False)
    guarantee = loop.guarantee()
    assert not guarantee.holds
    assert any("forgets" in gap for gap in guarantee.gaps)
    assert guarantee.regret_bound is None
    model = loop.current_model()
    assert isinstance(model, BanditGP)
    arms = ARMS.index_of(torch.stack([q.x for q in loop.history.queries])).numpy()
    y = loop.history.arrived()[1].squeeze(-1).numpy()
    mean, _ = dense_posterior(KINDS[name], arms, y, np.arange(1.0, 13.0), 13)
    points = CHOICES
    if isinstance(KINDS[name], TimeVaryingKernel):  # its inputs are (round, point)
        points = torch.cat([torch.full_like(CHOICES, 13.0), CHOICES], -1)
    found = model.posterior(points).mean.detach().squeeze(-1)
    np.testing.assert_allclose(found, mean, atol=1e-8, rtol=0)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: BanditLoop(ARMS, MODEL, UCB, forgetting=5), TypeError, "pass SlidingWindow"),
        (
            lambda: BanditLoop(ARMS, None, RandomSearch(), forgetting=SlidingWindow(5)),
            ValueError,
            "no model to forget",
        ),
        (
            lambda: BanditLoop(BOX, SingleTaskGP, UCB, forgetting=ExponentialWeights(0.9)),
            ValueError,
            "your own function",
        ),
        (
            lambda: BanditLoop(
                ARMS,
                BanditGP.with_kernel(RBFKernel(), refit_every=5),
                UCB,
                forgetting=SlidingWindow(5),
            ),
            ValueError,
            "refit_every=5",
        ),
    ],
    ids=["kind", "random", "function", "refit"],
)
def test_what_does_not_go_together_is_refused(
    build: Callable[[], BanditLoop], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build()


def test_a_draw_on_a_box_with_a_time_varying_kernel_is_the_same_again() -> None:
    found = []
    for _ in range(2):
        recipe = GPThompsonSampling.with_options(width=1.0)
        loop = BanditLoop(BOX, MODEL, recipe, forgetting=TimeVaryingKernel(0.1), seed=4)
        for _ in range(5):
            query = loop.ask()
            loop.tell(query.id, float(query.x.sin()))
        found.append(loop.history.inputs())
    assert torch.equal(*found)


def test_policy_passes_forgetting_on_to_its_loops() -> None:
    policy = Policy(MODEL, UCB, forgetting=SlidingWindow(4))
    assert policy.loop(ARMS, seed=0).settings.forgetting == SlidingWindow(4)
    played = simulate(problem(), policy, 5, 1, progress=False)
    loop = policy.loop(ARMS, seed=played.seeds[0])
    run(loop, problem(), 5, progress=False)
    assert played.arms is not None
    assert played.arms[0].tolist() == ARMS.index_of(loop.history.arrived()[0]).tolist()
    assert policy.loop(ARMS, seed=0, forgetting=None).settings.forgetting is None

"""Arms that come and go: the choice is the maximum of the same bound over what is there."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel
from numpy.typing import NDArray

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
    Censored,
    DMMUpperConfidenceBound,
    EvidenceRestart,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    MeanOnly,
    PrimalDual,
    RandomizedUpperConfidenceBound,
    RandomSearch,
    SlidingWindow,
    TopTwoThompsonSampling,
    VarianceOnly,
)
from botorch_bandits.core.priors import LARGEST_MATRIX
from botorch_bandits.models import candidate_grid
from tests.acquisition.dense import DenseGP, matern_five_halves
from tests.models.textbook import uniform

Array = NDArray[np.float64]
NOISE, LENGTH, WIDTH = 0.05, 0.3, 2.5


def recipe(**options: Any) -> Any:
    kernel = MaternKernel(nu=2.5).double()
    return BanditGP.with_kernel(kernel, noise=NOISE, lengthscale=LENGTH, **options)


UCB = GPUpperConfidenceBound.with_options(width=WIDTH)
DMM = DMMUpperConfidenceBound.with_options(rkhs_bound=6.0, noise_bound=0.3, delta=0.1)


def reward(x: Any, t: int) -> float:
    return float(sum(math.sin(6.0 * float(v)) for v in x)) + 0.2 * math.sin(11.0 * t)


def played(
    num_arms: int, num_rounds: int, num_played: int, num_pending: int = 0, **settings: Any
) -> BanditLoop:
    """A loop with some rounds on record, of which some are pending."""
    choices = uniform(num_arms, 2, seed=1)
    given = {"model": recipe(), "acquisition": UCB, "seed": 3, **settings}
    dim = given.get("context_dim", 0)
    loop = BanditLoop(Arms(choices), **given)
    rng = np.random.default_rng(5)
    for t in range(num_rounds):
        x = choices[int(rng.integers(num_played))]
        context = [float(rng.integers(4)) / 3.0] if dim else None
        given_constraints = [2.0 - float(x[0])] if given.get("constraints") else None
        y = reward([*x, *(context or [])], t)
        loop.attach(x, y, context=context, constraints=given_constraints)
    for _ in range(num_pending):
        loop.ask(context=[0.5] if dim else None)
    return loop


def rows_of(loop: BanditLoop, last: int = 0) -> DenseGP:
    X, Y = (each.numpy()[-last:] for each in loop.history.arrived())
    return DenseGP(X, Y[:, 0], matern_five_halves(LENGTH), np.full(len(X), NOISE), NOISE)


def bound(model: DenseGP, at: Array, width: float = WIDTH) -> Array:
    moments = map(model.posterior, np.array_split(at, 1 + len(at) // 500))
    return np.concatenate([m + width * np.sqrt(C.diagonal()) for m, C in moments])


def of_plain(loop: BanditLoop, at: Array, last: int = 0) -> Array:
    return bound(rows_of(loop, last), at)


def of_dmm(loop: BanditLoop, at: Array, last: int = 0) -> Array:
    return rows_of(loop, last).ridge_bounds(at, 6.0, 0.3, 0.1)[1]


def of_lagrangian(loop: BanditLoop, at: Array, kappa: float = 1.0) -> Array:
    reward = rows_of(loop)
    constraint = replace(reward, Y=loop.history.constraints()[:, 0].numpy())
    upper, lower = bound(reward, at), bound(constraint, at, -WIDTH)
    return np.asarray(np.clip(upper, -9.0, 9.0) - kappa * np.clip(lower, -9.0, 9.0))


LAGRANGIAN = {
    "constraints": PrimalDual(1, 4.0, 1.0, reward_bound=9.0, constraint_bound=9.0),
    "acquisition": LagrangianUpperConfidenceBound.with_options(width=WIDTH),
}


def model_of_ones_own(X: torch.Tensor, Y: torch.Tensor) -> Any:
    return recipe()(X, Y)


BOUNDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "more arms than a matrix is kept of": (
        of_plain, {"num_arms": LARGEST_MATRIX + 1, "num_rounds": 25}
    ),
    "contexts, variances screened": (of_plain, {"num_rounds": 300, "context_dim": 1}),
    "window, many rows": (
        partial(of_plain, last=300), {"num_rounds": 310, "forgetting": SlidingWindow(300)}
    ),
    "DMM": (of_dmm, {"num_rounds": 30, "acquisition": DMM}),
    "DMM, few arms looked at": (
        of_dmm, {"num_rounds": 150, "num_played": 100, "acquisition": DMM}
    ),
    "DMM on rows": (
        partial(of_dmm, last=300),
        {"num_rounds": 310, "acquisition": DMM, "forgetting": SlidingWindow(300)},
    ),
    "reward and constraints": (of_lagrangian, {"num_rounds": 40, **LAGRANGIAN}),
    "reward and constraints, contexts": (
        of_lagrangian, {"num_rounds": 40, "context_dim": 1, **LAGRANGIAN}
    ),
    "a model of one's own": (of_plain, {"num_rounds": 20, "model": model_of_ones_own}),
}  # fmt: skip


def everywhere(loop: BanditLoop) -> Array:
    choices: Array = loop.settings.domain.choices.numpy()  # type: ignore[attr-defined]
    if not loop.settings.context_dim:
        return choices
    return np.concatenate([np.full((len(choices), 1), 0.25), choices], axis=1)


def without_the_best(scores: Array, seed: int) -> Array:
    """Numbers of arms: some of those that are not among the best fifteen."""
    others = np.argsort(scores)[:-15]
    return np.random.default_rng(seed).choice(others, size=len(others) // 2, replace=False)


LONG = [case for case, (_, options) in BOUNDS.items() if options["num_rounds"] > 100]


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[pytest.mark.slow] * (c in LONG)) for c in BOUNDS]
)
def test_the_choice_is_the_largest_textbook_bound_of_what_is_there(case: str) -> None:
    find, options = BOUNDS[case]
    loop = played(**{"num_arms": 150, "num_played": 60, **options})
    context = [0.25] if loop.settings.context_dim else None
    for seed in range(3):
        scores = find(loop, everywhere(loop))
        there = without_the_best(scores, seed)
        query = loop.ask(context=context, available=there.tolist())
        if find is of_lagrangian:  # the multiplier of the round is known now
            kappa = query.diagnostics["multiplier_1"]
            assert (kappa > 0.0) == (seed > 0)
            scores = of_lagrangian(loop, everywhere(loop), kappa)
        arm = int(loop.settings.domain.index_of(query.x.unsqueeze(0)))  # type: ignore[attr-defined]
        assert arm in there
        assert query.origin == "acquisition"
        assert scores[arm] == pytest.approx(scores[there].max(), rel=0.0, abs=1e-8)
        told = query.diagnostics["acquisition_value"]
        assert told == pytest.approx(scores[arm], rel=0.0, abs=1e-8)
        constraints = [1.5] if loop.settings.constraints is not None else None
        loop.tell(query.id, reward(query.x, seed), constraints)
    assert find(loop, everywhere(loop))[there].max() < scores.max()


OTHERS: dict[str, dict[str, Any]] = {
    "Thompson": {"acquisition": GPThompsonSampling.with_options(width=1.0)},
    "Thompson, contexts": {
        "acquisition": GPThompsonSampling.with_options(width=1.0), "context_dim": 1
    },
    "improvement": {"acquisition": LogExpectedImprovement.with_options()},
    "mean": {"acquisition": MeanOnly.with_options()},
    "deviation, window": {
        "acquisition": VarianceOnly.with_options(), "forgetting": SlidingWindow(20)
    },
    "random width": {"acquisition": RandomizedUpperConfidenceBound.with_options()},
    "draws of reward and constraints": {
        **LAGRANGIAN, "acquisition": LagrangianThompsonSampling.with_options(width=1.0)
    },
    "draws of reward and constraints, contexts": {
        **LAGRANGIAN,
        "acquisition": LagrangianThompsonSampling.with_options(width=1.0),
        "context_dim": 1,
    },
    "list of priors": {
        "model": BanditGP.with_candidates(candidate_grid([0.2, 0.5])),
        "acquisition": CandidatesUpperConfidenceBound.with_options(delta=0.1),
    },
    "draw from a list of priors": {
        "model": BanditGP.with_candidates(candidate_grid([0.2, 0.5])),
        "acquisition": CandidatesThompsonSampling.with_options(),
    },
    "censored": {
        "model": recipe(),
        "acquisition": ImprovedUpperConfidenceBound.with_options(
            rkhs_bound=2.0, noise_bound=0.3, any_lambda=True
        ),
        "feedback": Censored(minimum=-4.0, outcome_bound=8.0, max_delay=20),
        "num_pending": 3,
    },
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
def test_random_numbers_are_those_of_a_round_in_which_all_arms_are_there(case: str) -> None:
    """So the choice among some arms is the first of them in an order of all."""
    options = {"num_arms": 150, "num_rounds": 30, "num_played": 60, **OTHERS[case]}
    order: list[int] = []

    def chosen(**limits: Any) -> int:
        loop = played(**options)
        context = [0.25] if loop.settings.context_dim else None
        arms: Any = loop.settings.domain
        return int(arms.index_of(loop.ask(context=context, **limits).x.unsqueeze(0)))

    for _ in range(4):
        order.append(chosen(avoid=order))
    assert len(set(order)) == 4
    rng = np.random.default_rng(0)
    for first in range(4):
        others = [arm for arm in rng.permutation(150).tolist() if arm not in order][:70]
        assert chosen(available=[*others, *order[first:]]) == order[first]
    assert chosen(available=list(range(150))) == order[0]


FEW = Arms([[0.0, 1.0], [0.5, 1.0], [1.0, 2.0], [1.5, 2.0], [2.0, 3.0]])


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"available": {3, 1}}, [1, 3]),
        ({"available": range(1, 4)}, [1, 2, 3]),
        ({"available": torch.tensor([1, 3, 3])}, [1, 3]),
        ({"available": np.array([True, False, False, True, False])}, [0, 3]),
        ({"available": [True, False, False, True, False]}, [0, 3]),
        ({"available": FEW.choices[[2, 0]]}, [0, 2]),
        ({"available": [[2.0, 3.0], [0, 1]]}, [0, 4]),
        ({"available": [FEW.choices[4], FEW.choices[0]]}, [0, 4]),
        ({"avoid": [0, 2, 3]}, [1, 4]),
        ({"avoid": FEW.choices[:4]}, [4]),
        ({"avoid": np.array([True, True, False, True, True])}, [2]),
        ({"fixed": {1: 2.0}}, [2, 3]),
        ({"fixed": {0: 1.5, 1: 2}}, [3]),
        ({"available": [0, 2, 3, 4], "fixed": {1: 2.0}, "avoid": [2]}, [3]),
    ],
)
def test_what_is_there_is_named_in_several_ways(given: dict[str, Any], left: list[int]) -> None:
    loop = BanditLoop(FEW, None, RandomSearch())
    seen = set()
    for _ in range(24):
        query = loop.ask(**given)
        assert query.restriction is not None
        assert query.restriction == {"arms": left}
        seen.add(int(FEW.index_of(query.x.unsqueeze(0))))
    assert seen == set(left)  # missed with probability below 1e-4


def test_leader_and_challenger_are_of_what_is_there() -> None:
    """With two arms left the challenger is the other one; the best of all arms is neither."""
    two = TopTwoThompsonSampling.with_options(leader_probability=0.5, max_draws=64)
    one = GPThompsonSampling.with_options(width=1.0)
    seen = set()
    for seed in range(14):
        leader, query = (
            played(60, 30, 30, acquisition=acquisition, seed=seed).ask(available=[3, 40])
            for acquisition in (one, two)
        )
        is_challenger = query.diagnostics["is_challenger"]
        assert torch.equal(query.x, leader.x) == (not is_challenger)
        seen.add(is_challenger)
    assert seen == {0.0, 1.0}
    assert played(60, 30, 30, acquisition=two).ask(available=[7]).restriction == {"arms": [7]}


def test_all_arms_or_none_to_avoid_restrict_nothing() -> None:
    loop = BanditLoop(FEW, None, RandomSearch())
    free = BanditLoop(FEW, None, RandomSearch())
    for given in ({"available": range(5)}, {"avoid": []}, {"fixed": {}}):
        query = loop.ask(**given)
        assert query.restriction is None
        assert torch.equal(query.x, free.ask().x)


@pytest.mark.parametrize("limits", [{"available": [0, 1]}, {"fixed": {1: 1.0}}, {"avoid": [4]}])
def test_restarts_probe_what_is_there(limits: dict[str, Any]) -> None:
    loop = BanditLoop(FEW, recipe(), UCB, restart=EvidenceRestart(exploration=1.0))
    origins = set()
    for t in range(12):
        query = loop.ask(**limits)
        origins.add(query.origin)
        assert query.restriction is not None
        assert int(FEW.index_of(query.x.unsqueeze(0))) in query.restriction["arms"]
        loop.tell(query.id, 0.1 * t)
    assert origins == {"acquisition", "exploration"}


def test_the_guarantee_says_against_what_regret_is_and_what_that_takes() -> None:
    igp = ImprovedUpperConfidenceBound.with_options(
        rkhs_bound=3.0, noise_bound=0.2, any_lambda=True
    )
    arms, finite = Arms(uniform(40, 2, seed=1)), GPUpperConfidenceBound.with_options(delta=0.1)
    loop = BanditLoop(arms, recipe(), igp)
    for t in range(4):
        loop.tell(loop.ask().id, 0.1 * t)
    before = loop.guarantee()
    assert before.regret is not None
    assert "part of the domain" not in before.explain(10_000)
    for t in range(3):
        loop.tell(loop.ask(avoid=[t]).id, 0.1)
    after = loop.guarantee()
    assert after.regret is not None
    assert after.regret.holds == before.regret.holds
    within = "(in 3 of 7 rounds, within the part of the domain that they could choose from)"
    assert f"the regret {within} of every round" in after.regret.text
    assert set(after.assumptions) - set(before.assumptions) == {
        "the points that a round can choose from depend neither on the noise of outcomes that are "
        "not yet told nor on the random numbers of that round",
    }
    drawn = BanditLoop(arms, recipe(), finite)
    drawn.tell(drawn.ask(available=[1, 2]).id, 0.1)
    assert any(
        "reveal nothing about the unknown function" in each
        for each in drawn.guarantee().assumptions
    )

"""A loop that minimizes chooses what one that maximizes the negatives chooses, to the last bit.

Settings are those of the table of storages: every acquisition function, feedback, restart, way to
forget, rule for multipliers and model, on arms and on boxes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Any

import pytest
import torch
from botorch.test_functions import Branin
from gpytorch.kernels import MaternKernel, RBFKernel

import botorch_bandits as bb
from botorch_bandits.acquisition import BelowMinimumWarning
from botorch_bandits.history import flipped_diagnostics
from botorch_bandits.problems import gp_draw_on_arms
from botorch_bandits.running import NoGain

from .rounds import Setting

pytestmark = pytest.mark.filterwarnings("ignore")

ARMS = bb.Arms(torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1))
BOX = bb.Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
MODEL = bb.BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.05, lengthscale=0.3)
IGP = bb.ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.1, any_lambda=True)


def play(setting: Setting, loop: bb.BanditLoop, num_rounds: int) -> bb.BanditLoop:
    for _ in range(num_rounds):
        setting.tell(loop)
        setting.ask(loop)
    return loop


def assert_mirrored(low: bb.BanditLoop, high: bb.BanditLoop) -> None:
    """``low`` was told minus what ``high`` was told."""
    assert low.history.num_queries == high.history.num_queries
    for one, other in zip(low.history.queries, high.history.queries, strict=True):
        assert torch.equal(one.x, other.x), one.round_number
        assert one.origin == other.origin
        assert flipped_diagnostics(one.diagnostics) == pytest.approx(
            other.diagnostics, rel=0.0, abs=0.0, nan_ok=True
        )
    for told, of_high in zip(low.history.outcomes, high.history.outcomes, strict=True):
        assert (told.query_id, told.reward) == (of_high.query_id, -of_high.reward)
    assert str(low.resets) == str(high.resets)
    assert low.multipliers == high.multipliers
    assert str(low.change_tests) == str(high.change_tests)
    context = torch.full((1,), 0.25).double() if low.settings.context_dim else None
    best, best_of_high = low.best(context), high.best(context)
    assert (best is None) == (best_of_high is None)
    if best is not None and best_of_high is not None:
        assert best[0].id == best_of_high[0].id
        assert best[1].reward == -best_of_high[1].reward
        assert best[1] is low.history.outcome(best[0].id)
    of_low, of_high = low.guarantee(), high.guarantee()
    assert (of_low.holds, of_low.regret_bound) == (of_high.holds, of_high.regret_bound)
    assert "reward" not in of_low.explain(10_000).replace("reward_bound", "")
    if of_low.violation is not None and of_high.violation is not None:
        assert of_low.violation.bound == of_high.violation.bound
    constants = (
        {k: v for k, v in each.constants.items() if "mean" in k} for each in (of_low, of_high)
    )
    assert {k: -v for k, v in next(constants).items()} == next(constants)


SETTINGS = [
    Setting(feedback="pending"),
    Setting(method="ucb", feedback="censored", contexts=1),
    Setting("box", "draws", feedback="soft"),
    Setting("box", feedback="proxy", forgetting="weights"),
    Setting(rule="relabeled", forgetting="window", feedback="middle"),
    Setting("box", rule="exact", special="restart"),
    Setting(rule="separate", forgetting="drift"),
    Setting(method="draws", rule="every round", feedback="pending"),
]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: "-".join(map(str, astuple(s))))
def test_choices_are_those_of_the_negatives(setting: Setting) -> None:
    mirrored, num_rounds = replace(setting, special="costs"), 14 if setting.domain == "arms" else 8
    options = {"restart": bb.OracleRestart((7,))} if setting.special == "restart" else {}
    high = play(replace(setting, special="nothing"), setting.loop(**options), num_rounds)
    low = play(mirrored, mirrored.loop(**options), num_rounds)
    assert_mirrored(low, high)
    if isinstance(high.settings.feedback, bb.Censored):
        seen, of_negatives = low.feedback_view(), high.feedback_view()
        assert seen.pending == of_negatives.pending
        told = [None if y is None else -y for y in of_negatives.rewards]
        assert list(seen.rewards) == told


WIDTH = bb.GPUpperConfidenceBound.with_options(width=2.0)


def prior(sign: float, mean: float = 0.2, **options: Any) -> Any:
    return bb.BanditGP.with_kernel(RBFKernel(), noise=0.05, prior_mean=sign * mean, **options)


def priors(sign: float) -> list[Any]:
    return [prior(sign, lengthscale=each) for each in (0.1, 0.3)]


def detector(sign: float) -> Any:
    threshold = bb.change_points.PowerThreshold(scale=0.2, exponent=-0.5)
    return bb.ChangePointDetector(
        RBFKernel(), lengthscale=0.4, prior_mean=0.5 * sign, threshold=threshold
    )


FURTHER: dict[str, Callable[[float], dict[str, Any]]] = {
    "list of priors": lambda sign: {
        "model": bb.BanditGP.with_candidates(priors(sign)),
        "acquisition": bb.CandidatesUpperConfidenceBound.with_options(),
    },
    "list of priors, draws": lambda sign: {
        "model": bb.BanditGP.with_candidates(priors(sign)),
        "acquisition": bb.CandidatesThompsonSampling.with_options(),
    },
    "evidence": lambda sign: {
        "model": prior(sign), "acquisition": WIDTH, "restart": bb.EvidenceRestart()
    },
    "evidence, candidates": lambda sign: {
        "acquisition": WIDTH,
        "restart": bb.EvidenceRestart(robust=False, candidates=priors(sign)),
        "num_initial": 3,
    },
    "detector with a mean": lambda sign: {
        "model": MODEL,
        "acquisition": IGP,
        "restart": bb.ChangePointRestart(detector=detector(sign), exploration=3.0),
    },
    "incumbent": lambda sign: {
        "model": MODEL,
        "acquisition": bb.LogExpectedImprovement.with_options(best_f=0.3 * sign),
    },
    "default": lambda sign: {},
}  # fmt: skip


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("name", FURTHER)
def test_numbers_that_a_user_states_are_in_his_sign(name: str, domain: Any) -> None:
    loops = []
    for sign, special in ((-1.0, "costs"), (1.0, "nothing")):
        settings = {"seed": 3, "maximize": sign > 0.0, **FURTHER[name](sign)}
        loop, setting = bb.BanditLoop(domain, **settings), Setting(special=special)
        play(setting, loop, 20 if domain is ARMS else 8)
        loop.attach([0.0] if domain is ARMS else [0.1], sign * 50.0)
        loop.retract(loop.history.num_queries - 1, "a typing error")
        loops.append(play(setting, loop, 3))
    assert_mirrored(*loops)


def test_the_largest_cost_is_the_minimum_of_censored_feedback() -> None:
    feedback = bb.Censored(minimum=3.0, outcome_bound=6.0, tolerance=0.5)
    loop = bb.BanditLoop(ARMS, MODEL, IGP, feedback=feedback, maximize=False)
    assert loop.settings.model.prior_mean == 3.0
    query = loop.ask()
    with pytest.raises(ValueError, match=r"3.75, above minimum=3.0 by"):
        loop.tell(query.id, 3.75)
    with pytest.warns(BelowMinimumWarning, match=r"3.25 lies above minimum=3.0"):
        loop.tell(query.id, 3.25)
    loop.ask()
    assert "lies above the largest cost" in loop.guarantee().explain(10_000)


def test_a_test_problem_is_minimized_and_its_regret_is_not_negative() -> None:
    problem = Branin().double()
    box = bb.Box(problem.bounds, num_restarts=2, raw_samples=16)
    results = []
    for maximize in (True, False):
        loop = bb.BanditLoop(box, None, maximize=maximize, seed=1)
        used = Branin(negate=True).double() if maximize else problem
        results.append(bb.run(loop, used, 8, progress=False))
    high, low = results
    assert torch.equal(low.rewards, -high.rewards)
    assert bool((low.regret >= 0.0).all())
    torch.testing.assert_close(low.regret, high.regret)
    assert torch.equal(low.best_so_far, low.rewards.cummin(0).values)
    torch.testing.assert_close(low.simple_regret, high.simple_regret)
    again = bb.BanditLoop(box, None, maximize=False)
    with pytest.raises(ValueError, match="or the loop with maximize=True"):
        bb.run(again, Branin(negate=True), 1, progress=False)
    with pytest.raises(ValueError, match=r"is to be minimized.*maximize=False"):
        bb.run(bb.BanditLoop(box), Branin(), 1, progress=False)
    kernel = RBFKernel().double()
    draw = gp_draw_on_arms(kernel, ARMS.choices, seed=0)
    with pytest.raises(ValueError, match=r"is to be maximized"):
        bb.run(bb.BanditLoop(ARMS, MODEL, IGP, maximize=False), draw, 1, progress=False)


def test_a_run_stops_where_costs_no_longer_fall() -> None:
    def cost(x: torch.Tensor) -> float:
        return float((x - 0.3).square())

    high = bb.BanditLoop(ARMS, MODEL, IGP)
    low = bb.BanditLoop(ARMS, MODEL, IGP, maximize=False)
    first = bb.run(high, lambda x: -cost(x), 30, progress=False, stop=NoGain(4))
    second = bb.run(low, cost, 30, progress=False, stop=NoGain(4))
    assert len(first.rewards) == len(second.rewards)
    assert second.stopped == "no better cost in 4 rounds"
    assert second.best_reward == float(second.rewards.min())


def test_feasibility_and_checks_of_the_model_are_in_the_users_sign() -> None:
    rewards, costs = Setting(rule="relabeled"), Setting(rule="relabeled", special="costs")
    low, high = (play(each, each.loop(), 12) for each in (costs, rewards))
    one, other = low.feasibility(), high.feasibility()
    assert one.constraints == other.constraints
    assert one.nearest[1].reward == -other.nearest[1].reward
    low, high = (play(s, s.loop(), 10) for s in (Setting("box", special="costs"), Setting("box")))
    checks = low.check_model(), high.check_model()
    for name in ("one_step", "left_out"):
        assert torch.equal(getattr(checks[0], name), -getattr(checks[1], name))
    assert torch.equal(checks[0].one_step_deviations, checks[1].one_step_deviations)


def test_the_evidence_of_a_list_of_priors_speaks_of_costs() -> None:
    priors = bb.BanditGP.with_candidates([replace(MODEL, noise=noise) for noise in (0.05, 20.0)])
    acquisition = bb.CandidatesUpperConfidenceBound.with_options()
    for maximize, name in ((True, "reward"), (False, "cost")):
        loop = bb.BanditLoop(ARMS, priors, acquisition, maximize=maximize)
        for i in range(12):  # so little noise that one prior goes, then so much that the other does
            loop.attach(ARMS.choices[0], (0.1 if i < 8 else 40.0) * (-1) ** i)
        table = loop.evidence(level=0.05)
        assert table.refuted_after is not None
        assert f"the list is refuted: the {name} is a draw from none" in str(table)
        other = "cost" if maximize else "reward"
        assert other not in str(table)


def test_a_function_of_the_users_sees_the_negatives() -> None:
    seen: list[torch.Tensor] = []

    def model(X: torch.Tensor, Y: torch.Tensor) -> Any:
        seen.append(Y)
        return bb.BanditGP(X, Y, kernel=RBFKernel().double(), noise=0.1)

    loop = bb.BanditLoop(ARMS, model, IGP, maximize=False, num_initial=1)
    loop.tell(loop.ask().id, 2.5)
    loop.ask()
    assert seen[-1].tolist() == [[-2.5]]
    assert loop.history.arrived()[1].tolist() == [[2.5]]

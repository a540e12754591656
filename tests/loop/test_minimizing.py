"""A loop that minimizes chooses what one that maximizes the negatives chooses, to the last bit.

Settings are those of the table of journals: every acquisition function, feedback, restart, way to
forget, rule for multipliers and model, on arms and on boxes.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.test_functions import Branin
from gpytorch.kernels import MaternKernel, RBFKernel
from pairwise import by_day
from records import ON_BOXES, assert_same

import botorch_bandits as bb
from botorch_bandits.acquisition import BelowMinimumWarning
from botorch_bandits.loop.journal import header_of
from botorch_bandits.loop.minimizing import in_costs, turned_diagnostics
from botorch_bandits.problems import gp_draw_on_arms

from .many_settings import settings

pytestmark = pytest.mark.filterwarnings("ignore")

ARMS = bb.Arms(torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1))
BOX = bb.Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
MODEL = bb.BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.05, lengthscale=0.3)
IGP = bb.ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.1, any_lambda=True)
BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1}
SETTINGS = settings()
OWN = ("length", "given", "snapshots")  # for the script that plays the table
REFUSED = ("maximize", "minimum", "posterior_transform")


def is_refused(given: dict[str, Any]) -> bool:
    options = getattr(given["acquisition"], "options", {})
    return any(options.get(name) is not None for name in REFUSED)


def for_costs(given: dict[str, Any]) -> dict[str, Any]:
    """Return settings of a loop with ``maximize=False`` for the negatives."""
    told = {**given, "maximize": False}
    feedback, model = given.get("feedback"), given.get("model")
    if getattr(feedback, "minimum", None) is not None:
        told["feedback"] = replace(feedback, minimum=-feedback.minimum)
    if getattr(model, "prior_mean", None):
        told["model"] = replace(model, prior_mean=-model.prior_mean)
    return told


def reward_at(query: bb.Query, context: torch.Tensor | None) -> float:
    """A reward that changes in round 9, with what stands for noise."""
    t, x = query.round_number, query.x
    shift = 0.7 * float(context.sum()) if context is not None else 0.0
    level = 0.0 if t < 9 else 1.5
    return math.sin(7.0 * float(x.sum()) + shift + level) + 0.1 * math.cos(37.0 * t)


def play(loop: bb.BanditLoop, num_rounds: int, sign: float, delay: int = 2) -> None:
    """Ask and tell; outcomes come two rounds late, and a query fails."""
    waiting: list[bb.Query] = []
    for t in range(loop.history.num_queries + 1, num_rounds + 1):
        dim = loop.settings.context_dim
        context = torch.full((dim,), (t % 4) / 4.0, dtype=torch.float64) if dim else None
        waiting.append(loop.ask(context=context))
        while len(waiting) > delay:
            query = waiting.pop(0)
            if query.round_number == 6:
                loop.tell_failed(query.id)
                continue
            count = loop.settings.num_constraints
            values = [0.4 - float(query.x.sum()) + 0.1 * j for j in range(count)] or None
            loop.tell(query.id, sign * reward_at(query, query.context), values)
    for query in waiting:
        loop.tell_failed(query.id)


def build(given: dict[str, Any], **others: Any) -> bb.BanditLoop:
    ticks = iter(range(10**6))
    known = {name: value for name, value in given.items() if name not in OWN}
    known = {"seed": 3, "clock": lambda: float(next(ticks)), **known}
    return bb.BanditLoop(**known, **others)


def assert_mirrored(low: bb.BanditLoop, high: bb.BanditLoop) -> None:
    """``low`` was told minus what ``high`` was told."""
    assert low.history.num_queries == high.history.num_queries
    for one, other in zip(low.history.queries, high.history.queries, strict=True):
        assert torch.equal(one.x, other.x), one.round_number
        assert one.origin == other.origin
        assert turned_diagnostics(one.diagnostics) == pytest.approx(
            other.diagnostics, rel=0.0, abs=0.0, nan_ok=True
        )
    for one, other in zip(low.history.outcomes, high.history.outcomes, strict=True):
        assert (one.query_id, one.reward) == (other.query_id, -other.reward)
    assert low.resets == high.resets or str(low.resets) == str(high.resets)
    assert low.multipliers == high.multipliers
    assert str(low.change_tests) == str(high.change_tests)
    context = None
    if low.settings.context_dim:
        context = torch.full((low.settings.context_dim,), 0.25, dtype=torch.float64)
    best, best_of_high = low.best(context), high.best(context)
    assert (best is None) == (best_of_high is None)
    if best is not None and best_of_high is not None:
        assert best[0].id == best_of_high[0].id
        assert best[1].reward == -best_of_high[1].reward
        assert best[1] is low.history.outcome(best[0].id)
    assert low.history.best()[0].id == high.history.best()[0].id


@pytest.mark.parametrize("name", by_day(SETTINGS))
def test_choices_are_those_of_the_negatives(name: str) -> None:
    given = SETTINGS[name]
    if is_refused(given):
        with pytest.raises(ValueError, match=r"maximize=False"):
            build({**given, "maximize": False})
        return
    on_arms = isinstance(given["domain"], bb.Arms)
    num_rounds = 24 if on_arms and given.get("length", 0) > 30 else 14 if on_arms else 8
    high, low = build(given), build(for_costs(given))
    play(high, num_rounds, 1.0)
    play(low, num_rounds, -1.0)
    assert_mirrored(low, high)
    of_high, of_low = high.guarantee(), low.guarantee()
    assert of_low.holds is of_high.holds
    assert of_low.regret_bound == of_high.regret_bound
    assert of_low.regret_bound is None or of_low.regret_bound >= 0.0
    assert "reward" not in str(of_low).replace("reward_bound", "")
    if of_low.violation is not None:
        assert of_low.violation.bound == of_high.violation.bound
    if high.settings.feedback.__class__ is bb.Censored:
        seen, of_negatives = low.feedback_view(), high.feedback_view()
        assert seen.pending == of_negatives.pending
        told = [None if y is None else -y for y in of_negatives.rewards]
        assert list(seen.rewards) == told


def test_something_resets_in_the_table() -> None:
    loop = build(for_costs(SETTINGS["arms, restart, power"]))
    play(loop, 40, -1.0)
    assert loop.resets


LISTED = bb.BanditGP.with_candidates(
    [
        bb.BanditGP.with_kernel(RBFKernel(), noise=0.05, lengthscale=each, prior_mean=0.3)
        for each in (0.1, 0.3)
    ]
)
FURTHER: dict[str, dict[str, Any]] = {
    "list of priors": {
        "model": LISTED,
        "acquisition": bb.CandidatesUpperConfidenceBound.with_options(),
    },
    "list of priors, draws": {
        "model": LISTED,
        "acquisition": bb.CandidatesThompsonSampling.with_options(),
    },
    "evidence": {
        "model": replace(MODEL, prior_mean=0.2),
        "acquisition": bb.GPUpperConfidenceBound.with_options(width=2.0),
        "restart": bb.EvidenceRestart(),
    },
    "evidence, candidates": {
        "acquisition": bb.GPUpperConfidenceBound.with_options(width=2.0),
        "model": None,
        "restart": bb.EvidenceRestart(robust=False, candidates=list(LISTED.candidates)),
        "num_initial": 3,
    },
    "detector with a mean": {
        "model": MODEL,
        "acquisition": IGP,
        "restart": bb.ChangePointRestart(
            detector=bb.ChangePointDetector(
                RBFKernel(),
                lengthscale=0.4,
                prior_mean=0.5,
                threshold=bb.change_points.PowerThreshold(scale=0.2, exponent=-0.5),
            ),
            exploration=3.0,
        ),
    },
    "incumbent": {
        "model": MODEL,
        "acquisition": bb.LogExpectedImprovement.with_options(best_f=0.3),
    },
    "default": {"model": None, "acquisition": None},
}


def mirrored_further(given: dict[str, Any]) -> dict[str, Any]:
    told = for_costs(given)
    if given["model"] is LISTED:
        turned = [replace(c, prior_mean=-c.prior_mean) for c in LISTED.candidates]
        told["model"] = bb.BanditGP.with_candidates(turned)
    restart = given.get("restart")
    if isinstance(restart, bb.ChangePointRestart):
        told["restart"] = replace(restart, detector=replace(restart.detector, prior_mean=-0.5))
    if getattr(restart, "candidates", None) is not None:
        turned = [replace(c, prior_mean=-c.prior_mean) for c in LISTED.candidates]
        told["restart"] = replace(restart, candidates=turned)
    if getattr(given["acquisition"], "options", {}).get("best_f") is not None:
        told["acquisition"] = bb.LogExpectedImprovement.with_options(best_f=-0.3)
    return told


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("name", FURTHER)
def test_numbers_that_a_user_states_are_in_his_sign(name: str, domain: Any) -> None:
    given = FURTHER[name]
    num_rounds = 20 if domain is ARMS else 8
    high = build({**given, "domain": domain})
    low = build({**mirrored_further(given), "domain": domain})
    play(high, num_rounds, 1.0)
    play(low, num_rounds, -1.0)
    assert_mirrored(low, high)
    assert low.guarantee().regret_bound == high.guarantee().regret_bound
    known = (loop.guarantee().constants for loop in (low, high))
    means = [{k: v for k, v in each.items() if k.startswith("prior_mean")} for each in known]
    assert means[0] == {name: -value for name, value in means[1].items()}


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_replayed_and_resumed(domain: Any, tmp_path: Path) -> None:
    given = {
        "domain": domain,
        "model": replace(MODEL, prior_mean=0.7),
        "acquisition": IGP,
        "maximize": False,
        "constraints": bb.AdditiveEpochs(1, 3),
    }
    whole = build(given)
    play(whole, 8, -1.0)
    path = tmp_path / "costs.journal"
    with build(given, journal=path) as loop:
        play(loop, 4, -1.0)
        told = loop.history.to_records()
    with build(given, journal=path) as loop:
        assert loop.history.to_records() == told
        assert not loop.history.maximize
        play(loop, 8, -1.0)
        # what was told late in one run was told at once in the other
        again = build(
            given,
            history=bb.History.from_records(
                loop.history.to_records(), 1, num_constraints=1, maximize=False
            ),
        )
        assert_same(again.ask().x, loop.ask().x, ON_BOXES)
        assert again.best()[0].id == loop.best()[0].id
    with pytest.raises(bb.DifferentSettingsError, match="maximize: was False"):
        build({**given, "maximize": True}, journal=path)
    assert header_of(whole.settings)["settings"]["maximize"] is False
    higher = build({**given, "maximize": True})
    assert header_of(higher.settings)["settings"]["maximize"] is True


def test_retracted_costs_leave_no_trace() -> None:
    given = {"domain": ARMS, "model": MODEL, "acquisition": IGP}
    high, low = build(given), build({**given, "maximize": False})
    for loop, sign in ((high, 1.0), (low, -1.0)):
        play(loop, 6, sign)
        loop.attach(torch.tensor([0.0], dtype=torch.float64), sign * 50.0)
        loop.retract(loop.history.num_queries - 1, "a typing error")
        play(loop, 10, sign)
    assert_mirrored(low, high)
    assert low.history.retractions[0].outcome.reward == -50.0
    assert "cost" in str(low.guarantee())


def test_a_given_history_must_be_of_costs() -> None:
    history = bb.History(1, maximize=False)
    with pytest.raises(ValueError, match="history has maximize=False, but"):
        bb.BanditLoop(ARMS, MODEL, IGP, history=history)
    loop = bb.BanditLoop(ARMS, MODEL, IGP, history=history, maximize=False)
    loop.tell(loop.ask().id, 3.0)
    loop.tell(loop.ask().id, 1.0)
    assert loop.best()[1].reward == 1.0
    assert "least cost" in history._repr_html_()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (
            {"acquisition": bb.GPUpperConfidenceBound.with_options(width=1.0, maximize=False)},
            r"acquisition has maximize=False, and the loop maximize=False.*Leave maximize= out",
        ),
        (
            {"acquisition": bb.CensoredUpperConfidenceBound.with_options(minimum=1.0, width=1.0)},
            r"has minimum=1.0.*Pass feedback=Censored",
        ),
        (
            {
                "model": replace(MODEL, prior_mean=2.0),
                "acquisition": bb.LagrangianUpperConfidenceBound.with_options(width=1.0),
                "constraints": bb.AdditiveEpochs(1, 3, surrogate="separate"),
            },
            r"prior_mean is 2 for the cost and for each constraint",
        ),
        ({"maximize": 0}, r"maximize"),
    ],
)
def test_what_cannot_be_turned_is_refused(settings: dict[str, Any], match: str) -> None:
    given = {"model": MODEL, "acquisition": IGP, "maximize": False, **settings}
    with pytest.raises((ValueError, TypeError), match=match):
        bb.BanditLoop(ARMS, **given)


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
    assert "lie above the largest cost" in str(loop.guarantee())


def test_words_of_costs() -> None:
    assert in_costs("the prior mean is -2.5, and rewards differ") == (
        "the prior mean is 2.5, and costs differ"
    )
    text = str(
        build({"domain": ARMS, "model": MODEL, "acquisition": IGP, "maximize": False}).guarantee()
    )
    assert "minimizes the lower confidence bound" in text
    assert "the cost at its point less the least cost, in every round" in text
    assert "the norm of the cost function" in text


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
    assert low.optimal_value == pytest.approx(-high.optimal_value)
    assert bool((low.regret >= 0.0).all())
    torch.testing.assert_close(low.regret, high.regret)
    assert torch.equal(low.best_so_far, low.rewards.cummin(0).values)
    torch.testing.assert_close(low.simple_regret, high.simple_regret)
    assert "least cost" in low._repr_html_()
    assert "largest" not in low._repr_html_()
    again = bb.BanditLoop(box, None, maximize=False)
    with pytest.raises(ValueError, match="the loop has maximize=False"):
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
    first = bb.run(high, lambda x: -cost(x), 30, progress=False, stop_after_no_gain=4)
    second = bb.run(low, cost, 30, progress=False, stop_after_no_gain=4)
    assert len(first.rewards) == len(second.rewards)
    assert second.stopped == "no better cost in 4 rounds"
    assert bb.evaluation.progress_of(low) == {"best": f"{float(second.rewards.min()):.6g}"}


def test_feasibility_and_checks_of_the_model_are_in_the_users_sign() -> None:
    given = {
        "domain": ARMS,
        "model": MODEL,
        "acquisition": IGP,
        "constraints": bb.AdditiveEpochs(1, 3),
    }
    high, low = build(given), build({**given, "maximize": False})
    play(high, 12, 1.0)
    play(low, 12, -1.0)
    one, other = low.feasibility(), high.feasibility()
    assert one.constraints == other.constraints
    assert one.nearest[1].reward == -other.nearest[1].reward
    plain = {"domain": BOX, "model": MODEL, "acquisition": IGP}
    high, low = build(plain), build({**plain, "maximize": False})
    play(high, 10, 1.0)
    play(low, 10, -1.0)
    checks = low.check_model(), high.check_model()
    for name in ("one_step", "left_out"):
        assert torch.equal(getattr(checks[0], name), -getattr(checks[1], name))
    assert torch.equal(checks[0].one_step_deviations, checks[1].one_step_deviations)


def test_the_evidence_of_a_list_of_priors_speaks_of_costs() -> None:
    priors = bb.BanditGP.with_candidates([replace(MODEL, noise=noise) for noise in (0.05, 20.0)])
    acquisition = bb.CandidatesUpperConfidenceBound.with_options()
    given = {"domain": ARMS, "model": priors, "acquisition": acquisition}
    for maximize, name in ((True, "reward"), (False, "cost")):
        loop = build({**given, "maximize": maximize})
        for i in range(12):  # so little noise that one prior goes, then so much that the other does
            loop.attach(ARMS.choices[0], (0.1 if i < 8 else 40.0) * (-1) ** i)
        table = loop.evidence(level=0.05)
        assert table.is_refuted
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
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loop.history.arrived()[1].tolist() == [[2.5]]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"minimize": True}, "'minimize'. To minimize, pass maximize=False."),
        ({"direction": "minimize"}, "'direction'. To minimize, pass maximize=False."),
        ({"maximze": False}, r"'maximze'. Did you mean 'maximize'\?"),
        ({"sed": 1}, r"'sed'. Did you mean 'seed'\?"),
        ({"zzz": 1}, "'zzz'. It has domain, model, "),
    ],
)
def test_an_unknown_argument_of_a_loop_is_explained(given: dict[str, Any], told: str) -> None:
    with pytest.raises(TypeError, match=f"^BanditLoop has no argument {told}"):
        bb.BanditLoop(bb.Box([(0.0, 1.0)]), **given)


def test_an_unknown_argument_of_tell_failed_is_explained() -> None:
    loop = bb.BanditLoop(bb.Arms([[0.0], [1.0]]))
    query = loop.ask()
    message = r"^tell_failed has no argument 'constraints'\. No constraint values can be told"
    with pytest.raises(TypeError, match=message):
        loop.tell_failed(query.id, constraints=[0.1])  # type: ignore[call-arg]
    assert loop.history.num_pending == 1

"""What a loop's guarantee says of regret and violation, and of which rounds it says it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits import (
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    CandidatesUpperConfidenceBound,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    RandomizedUpperConfidenceBound,
)
from botorch_bandits.confidence import (
    Guarantee,
    RegretStatement,
    Statement,
)
from botorch_bandits.confidence.theorems import (
    ARRIVALS_IGNORE_FUNCTION,
    ARRIVALS_IGNORE_NOISE,
    ATTACHED_IGNORE_FUNCTION,
    ATTACHED_IGNORE_NOISE,
    FAILURES_IGNORE_FUNCTION,
    FAILURES_IGNORE_NOISE,
)
from botorch_bandits.constraints import (
    AdditiveEpochs,
    MultiplicativeEpochs,
    PrimalDual,
)
from botorch_bandits.history import History
from botorch_bandits.loop import Censored, Hallucinated, Ignored
from botorch_bandits.loop.guarantees import rounds_of
from botorch_bandits.models import candidate_grid
from tests.records import rebuilt

BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1, "delta": 0.2}
CHOICES = torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1)
MODEL = BanditGP.with_kernel(RBFKernel(), noise=1.1, lengthscale=0.3)
IGP = ImprovedUpperConfidenceBound.with_options(**BOUNDS)
THEOREM_1 = GPUpperConfidenceBound.with_options(delta=0.2)


def build(acquisition: Any = IGP, domain: Any = None, **settings: Any) -> BanditLoop:
    return BanditLoop(Arms(CHOICES) if domain is None else domain, MODEL, acquisition, **settings)


def tell(loop: BanditLoop, query: Any, g: Any = None) -> None:
    x = float(query.x)
    constraints = None
    if loop.settings.constraints is not None:
        constraints = [x - 0.6 if g is None else g]
    loop.tell(query.id, math.sin(5.0 * x), constraints)


def play(loop: BanditLoop, num_rounds: int, context: Tensor | None = None) -> None:
    for _ in range(num_rounds):
        tell(loop, loop.ask() if context is None else loop.ask(context))


def regret_of(loop: BanditLoop) -> RegretStatement:
    regret = loop.guarantee().regret
    assert regret is not None
    return regret


def violation_of(guarantee: Guarantee) -> Statement:
    assert guarantee.violation is not None
    return guarantee.violation


def test_a_rule_that_plays_blind_has_no_theorem_on_regret_and_violation() -> None:
    rule = AdditiveEpochs(num_constraints=1, epoch_length=50, surrogate="fresh")
    loop = build(constraints=rule, feedback=Ignored(), horizon=50)
    assert loop.guarantee().holds
    for _ in range(40):
        loop.ask()
    guarantee = loop.guarantee()
    assert not guarantee.holds
    assert not regret_of(loop).holds
    assert not violation_of(guarantee).holds
    assert "39 of 40 rounds were not chosen by the method with every outcome at hand" in str(
        guarantee
    )
    assert guarantee.bands is not None
    assert guarantee.bands.holds  # the bounds of the penalized function are those of what arrived


def test_constraints_with_contexts_have_no_theorem_on_regret() -> None:
    rule = AdditiveEpochs(num_constraints=1, epoch_length=5, surrogate="fresh")
    loop = build(constraints=rule, context_dim=1, horizon=10)
    play(loop, 3, torch.tensor([0.5], dtype=torch.float64))
    for statement in (regret_of(loop), violation_of(loop.guarantee())):
        assert any("best fixed point" in gap for gap in statement.gaps)


@pytest.mark.parametrize("feedback", [Ignored(), Hallucinated()])
def test_a_query_that_is_pending_now_is_told(feedback: Any) -> None:
    loop = build(feedback=feedback)
    play(loop, 3)
    loop.ask()
    assert (regret_of(loop).num_rounds, regret_of(loop).num_others) == (4, 0)
    assert ARRIVALS_IGNORE_NOISE in loop.guarantee().assumptions
    loop.ask()  # chosen while the last one was pending
    regret, guarantee = regret_of(loop), loop.guarantee()
    assert guarantee.bands is not None
    if isinstance(feedback, Hallucinated):
        assert (regret.num_rounds, regret.num_others, regret.bound_of_others) == (4, 1, 4.0)
        assert not guarantee.bands.holds
        return
    # each round maximized the bound of what had arrived, for which the band holds
    assert guarantee.bands.holds
    assert (regret.num_rounds, regret.num_others) == (5, 0)
    played = [query.diagnostics for query in loop.history.queries]
    expected = sum(min(2 * d["width"] * d["standard_deviation"], 4.0) for d in played)
    assert regret.bound == pytest.approx(expected, rel=1e-12)
    assert guarantee.regret_bound == regret.bound


@pytest.mark.parametrize("feedback", [Ignored(), Hallucinated()])
def test_the_bounds_of_a_list_hold_while_outcomes_are_pending(feedback: Any) -> None:
    truth = torch.sin(5.0 * CHOICES).squeeze(-1)
    model = BanditGP.with_candidates(candidate_grid([0.2, 0.4], noise_ratios=[0.1]))
    recipe = CandidatesUpperConfidenceBound.with_options(delta=0.1)
    loop = BanditLoop(Arms(CHOICES), model, recipe, feedback=feedback)
    running = [loop.ask() for _ in range(3)]
    for _ in range(6):
        tell(loop, running.pop(0))
        running.append(loop.ask())
    guarantee, regret = loop.guarantee(), regret_of(loop)
    assert guarantee.bands is not None
    assert guarantee.bands.holds
    assert regret.holds
    assert ARRIVALS_IGNORE_FUNCTION in guarantee.assumptions
    ignores = isinstance(feedback, Ignored)
    assert (regret.num_rounds, regret.num_others) == ((9, 0) if ignores else (1, 8))
    # each certificate is that of an object with the rows that had arrived, in this round
    for query in loop.history.queries:
        rows = [o for o in loop.history.outcomes if o.arrived_round < query.round_number]
        X = torch.stack([loop.history.query(o.query_id).x for o in rows]) if rows else CHOICES[:0]
        y = torch.tensor([[o.reward] for o in rows], dtype=torch.float64).reshape(-1, 1)
        acqf = CandidatesUpperConfidenceBound(
            model(X, y), delta=0.1, num_arms=9, round_number=query.round_number
        )
        lower, upper = acqf.bounds(CHOICES)
        played = int((query.x == CHOICES).all(-1).nonzero())
        assert query.diagnostics["lower_bound"] == pytest.approx(float(lower[played]), abs=1e-8)
        assert query.diagnostics["upper_bound"] == pytest.approx(float(upper[played]), abs=1e-8)
        loss = float(truth.max() - truth[played])
        assert loss <= acqf.regret_bound(query.x, CHOICES)
        if ignores:
            assert acqf.regret_bound(query.x, CHOICES) == pytest.approx(
                2 * query.diagnostics["width"] * query.diagnostics["standard_deviation"], abs=1e-8
            )


def fails(loop: BanditLoop) -> None:
    loop.fail(loop.ask().id, "it broke")


def attaches(loop: BanditLoop) -> None:
    loop.attach([0.5], 0.3)


@pytest.mark.parametrize(
    ("recipe", "event", "assumption"),
    [
        (IGP, fails, FAILURES_IGNORE_NOISE),
        (AMMUpperConfidenceBound.with_options(**BOUNDS), fails, FAILURES_IGNORE_NOISE),
        (DMMUpperConfidenceBound.with_options(**BOUNDS), fails, FAILURES_IGNORE_NOISE),
        (THEOREM_1, fails, FAILURES_IGNORE_FUNCTION),
        (IGP, attaches, ATTACHED_IGNORE_NOISE),
        (THEOREM_1, attaches, ATTACHED_IGNORE_FUNCTION),
    ],
)
def test_what_happens_must_not_depend_on_noise_or_function(
    recipe: Any, event: Any, assumption: str
) -> None:
    loop = build(recipe)
    play(loop, 2)
    assert assumption not in loop.guarantee().assumptions
    for _ in range(3):
        play(loop, 1)
        event(loop)
    guarantee = loop.guarantee()
    assert assumption in guarantee.assumptions
    assert f"assumes: {assumption}" in guarantee.explain(10_000)
    regret = regret_of(loop)
    if event is fails:
        # their rounds were chosen with every outcome at hand, whatever became of them
        assert (regret.num_rounds, regret.num_others) == (8, 0)
        assert guarantee.regret_bound == regret.bound


def test_a_bound_in_expectation_needs_retractions_that_do_not_look_at_later_choices() -> None:
    assumption = (
        "which outcomes were retracted, and when, does not depend on what was chosen after them"
    )
    for recipe, is_needed in (
        (RandomizedUpperConfidenceBound.with_options(), True),
        (GPThompsonSampling.with_options(**BOUNDS), True),
        (IGP, False),  # each round's bound holds on the event of the confidence bounds
    ):
        loop = build(recipe)
        play(loop, 3)
        loop.retract(2, "a typing error")
        assert assumption not in loop.guarantee().assumptions  # no round was chosen with it
        play(loop, 2)
        loop.retract(3, "another one")
        assert (assumption in loop.guarantee().assumptions) == is_needed
        assert loop.guarantee().holds


def test_rounds_that_no_theorem_covers_leave_no_statement() -> None:
    blind = build(RandomizedUpperConfidenceBound.with_options(), feedback=Ignored(), num_initial=1)
    uniform = build(
        GPUpperConfidenceBound.with_options(smoothness_a=1.0, smoothness_b=5.0),
        Box([[0.0], [1.0]]),
        num_initial=20,
    )
    assert blind.guarantee().holds
    assert uniform.guarantee().holds
    for _ in range(40):
        blind.ask()
    play(uniform, 20)
    for loop, num_rounds in ((blind, 40), (uniform, 20)):
        assert not loop.guarantee().holds
        (gap,) = regret_of(loop).gaps
        assert f"none of the {num_rounds} rounds so far was chosen by the method" in gap
    play(uniform, 2)
    regret = regret_of(uniform)
    assert (regret.holds, regret.num_rounds, regret.num_others) == (True, 2, 20)
    assert regret.total is None
    assert "the 20 other rounds are not bounded" in uniform.guarantee().explain(10_000)


def test_initial_and_attached_rounds_are_bounded_by_the_norm() -> None:
    loop = build(num_initial=3)
    play(loop, 5)
    loop.attach([0.5], 0.3)
    guarantee, regret = loop.guarantee(), regret_of(loop)
    assert (regret.num_rounds, regret.num_others, regret.bound_of_others) == (2, 4, 16.0)
    played = [q.diagnostics for q in loop.history.queries if q.origin == "acquisition"]
    bounds = [min(2 * d["width"] * d["standard_deviation"], 4.0) for d in played]
    assert regret.bound == pytest.approx(sum(bounds))
    assert guarantee.regret_bound == pytest.approx(sum(bounds) + 16.0)


def test_censored_feedback_covers_rounds_with_pending_queries() -> None:
    loop = build(feedback=Censored(minimum=-1.5, outcome_bound=3.0, max_delay=4))
    for _ in range(6):
        loop.ask()
    regret = regret_of(loop)
    assert loop.guarantee().holds
    assert (regret.num_rounds, regret.num_others) == (6, 0)
    assert regret.quantity == "rho_m times the regret"


def test_rounds_with_all_outcomes_by_hand() -> None:
    loop = build(num_initial=1)
    play(loop, 2)  # 0 initial, 1
    late = loop.ask()  # 2: in hand, its own outcome comes late
    blind = loop.ask()  # 3: chosen while 2 is pending
    tell(loop, blind)
    again = loop.ask()  # 4: 2 is still pending
    tell(loop, late)
    tell(loop, again)
    play(loop, 1)  # 5
    failing = loop.ask()  # 6
    loop.fail(failing.id, "it broke")
    wrong = loop.ask()  # 7
    tell(loop, wrong)
    play(loop, 1)  # 8: chosen with what is withdrawn now
    loop.retract(wrong.id, "a typing error")
    play(loop, 1)  # 9
    loop.ask()  # 10: pending
    assert rounds_of(loop.history).has_all.nonzero()[0].tolist() == [1, 2, 5, 6, 7, 9, 10]
    # with a reset before 4, query 2 is no longer waited for
    after_reset = rounds_of(loop.history, [4])
    assert after_reset.has_all.nonzero()[0].tolist() == [1, 2, 4, 5, 6, 7, 9, 10]
    assert after_reset.round[[3, 4]].tolist() == [4, 1]


def test_draws_say_of_which_rounds_they_speak() -> None:
    loop = build(GPThompsonSampling.with_options(**BOUNDS), num_initial=2)
    play(loop, 5)
    guarantee, regret = loop.guarantee(), regret_of(loop)
    assert guarantee.holds
    # the constants of draws are so large that the bound is twice the norm a round
    assert (regret.num_rounds, regret.num_others, regret.bound) == (3, 2, 3 * regret.largest)
    assert guarantee.regret_bound == 5 * regret.largest
    box = build(GPThompsonSampling.with_options(**BOUNDS), Box([[0.0], [1.0]]))
    play(box, 1)
    guarantee = box.guarantee()
    assert guarantee.bands is not None
    assert guarantee.bands.holds  # the width is one of all points
    assert not regret_of(box).holds  # but a pathwise draw is none on a finite set


def largest_noise_sum(squares: float, noise_bound: float, delta: float) -> float:
    # the self-normalized bound with a Gaussian mixture of variance 1 / R^2
    V, rho = noise_bound**2 * squares, noise_bound**2
    return math.sqrt(2.0 * (V + rho) * math.log(math.sqrt((V + rho) / rho) / delta))


@pytest.mark.parametrize("is_exact", [True, False])
def test_epochs_bound_regret_and_violation_by_what_was_seen(is_exact: bool) -> None:
    rule: Any = (
        MultiplicativeEpochs(num_constraints=1, epoch_length=4, surrogate="fresh")
        if is_exact
        else AdditiveEpochs(num_constraints=1, epoch_length=4, step_size=2.0, surrogate="fresh")
    )
    loop = build(constraints=rule, horizon=20)
    noise = torch.Generator().manual_seed(3)
    for _ in range(11):
        query = loop.ask()
        error = 0.0 if is_exact else 0.1 * float(torch.randn((), generator=noise))
        tell(loop, query, float(query.x) - 0.2 + error)
    guarantee, regret = loop.guarantee(), regret_of(loop)
    assert guarantee.holds
    seen = [query.diagnostics for query in loop.history.queries]
    kappa = [d["multiplier_1"] for d in seen]
    assert max(kappa) > min(kappa)
    g = [outcome.constraints[0] for outcome in loop.history.outcomes]
    wanted = sum(2.0 * d["width"] * d["standard_deviation"] for d in seen)
    violation = sum(g)
    if not is_exact:
        wanted -= sum(k * value for k, value in zip(kappa, g, strict=True))
        wanted += largest_noise_sum(sum(k * k for k in kappa), 0.1, 0.2 / 4)
        violation += largest_noise_sum(11.0, 0.1, 0.2 / 4)
    assert regret.bound == pytest.approx(wanted, rel=1e-10)
    assert violation_of(guarantee).bound == pytest.approx(max(violation, 0.0), rel=1e-10)
    assert (regret.num_rounds, regret.num_others) == (11, 0)
    # the probability is that of all epochs
    assert "with probability 0.8 " in regret.text
    share = 0.2 / 5 if is_exact else 0.2 / 10
    assert guarantee.bands is not None
    assert guarantee.bands.text.startswith(
        f"with probability {1 - share:g} the penalized function of the running epoch lies within"
    )
    constants, raised = guarantee.constants, 0.1
    assert (constants["delta"], constants["noise_bound"]) == (0.2, 0.1)
    assert constants["delta_of_epoch"] == pytest.approx(share)
    raised *= 1.0 if is_exact else math.sqrt(1.0 + kappa[-1] ** 2)
    assert constants["noise_bound_of_epoch"] == pytest.approx(raised)


@pytest.mark.parametrize(
    "rule",
    [
        AdditiveEpochs(num_constraints=1, epoch_length=4, surrogate="separate"),
        PrimalDual(num_constraints=1, max_multiplier=5.0, divisor=2.0),
    ],
)
def test_separate_bounds_bound_regret_and_violation(rule: Any) -> None:
    acquisition = LagrangianUpperConfidenceBound.with_options(**BOUNDS)
    loop = build(acquisition, constraints=rule, num_initial=1)
    play(loop, 8)
    guarantee = loop.guarantee()
    regret, violation = regret_of(loop), violation_of(guarantee)
    assert guarantee.holds
    seen = [q.diagnostics for q in loop.history.queries if q.origin == "acquisition"]
    lower = [d["mean"] - d["width"] * d["standard_deviation"] for d in seen]
    wanted = sum(d["acquisition_value"] for d in seen) - sum(lower)
    assert regret.bound == pytest.approx(wanted)
    upper = sum(2 * d["constraint_mean_1"] - d["constraint_lower_bound_1"] for d in seen)
    assert violation.bound == pytest.approx(max(upper, 0.0))
    assert (regret.num_rounds, regret.num_others) == (7, 1)
    # a point with g <= 0 is at most so much better
    f = [math.sin(5.0 * x) for x in CHOICES.squeeze(-1).tolist() if x <= 0.6]
    best = max(f)
    rounds = [q for q in loop.history.queries if q.origin == "acquisition"]
    assert sum(best - math.sin(5.0 * float(q.x)) for q in rounds) <= wanted
    assert sum(float(q.x) - 0.6 for q in rounds) <= upper


def test_bounds_in_prior_units_give_the_same_numbers() -> None:
    # a kernel of output scale 100: bounds of 2 and 0.1 in its units are 20 and 1 in outcomes
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = 100.0
    model = BanditGP.with_kernel(kernel, noise=110.0, lengthscale=0.3)
    rule = AdditiveEpochs(num_constraints=1, epoch_length=3, step_size=0.5, surrogate="fresh")
    numbers = []
    for rkhs_bound, noise_bound, units in ((20.0, 1.0, "outcome"), (2.0, 0.1, "prior")):
        recipe = ImprovedUpperConfidenceBound.with_options(
            rkhs_bound=rkhs_bound, noise_bound=noise_bound, units=units
        )
        loop = BanditLoop(Arms(CHOICES), model, recipe, constraints=rule, horizon=9)
        play(loop, 8)
        numbers.append((regret_of(loop).bound, violation_of(loop.guarantee()).bound))
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-9)


def test_rounds_with_what_was_retracted_are_left_out_of_the_confidence_bounds_too() -> None:
    loop = build()
    play(loop, 4)
    loop.retract(1, "a typing error")
    play(loop, 1)
    bands = loop.guarantee().bands
    assert bands is not None
    assert "in all rounds but for rounds 3 to 4, chosen with what was retracted" in bands.text
    late = loop.ask()
    play(loop, 1)
    tell(loop, late)
    bands = loop.guarantee().bands
    assert bands is not None
    assert "pending" in bands.text
    assert "rounds 3 to 4" in bands.text


def test_a_clipped_lower_bound_does_not_show_the_upper_one() -> None:
    # the values of the constraint are large, and first bounds far beyond the clipping at 1
    rule = PrimalDual(num_constraints=1, max_multiplier=1.0, divisor=10.0, constraint_bound=1.0)
    acquisition = LagrangianUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.001)
    model = BanditGP.with_kernel(RBFKernel(), noise=1.1, lengthscale=0.05)
    loop = BanditLoop(Arms(CHOICES), model, acquisition, constraints=rule)
    values = 0.9 * torch.cos(30.0 * CHOICES.squeeze(-1))
    total = 0.0
    for _ in range(9):
        query = loop.ask()
        g = float(values[int((CHOICES.squeeze(-1) - float(query.x)).abs().argmin())])
        total += g
        tell(loop, query, g)
        bound = violation_of(loop.guarantee()).bound
        assert bound is not None
        assert total <= bound + 1e-12


def test_weighted_outputs_are_bounded_one_by_one() -> None:
    X = CHOICES[:3]
    model = BanditGP.with_kernel(RBFKernel(), 2.0)(X, torch.cat([X, X.sin()], dim=-1))
    weights = ScalarizedPosteriorTransform(torch.tensor([1.0, -1.0], dtype=torch.float64))
    acquisition = ImprovedUpperConfidenceBound(model, posterior_transform=weights, **BOUNDS)
    wanted = (
        "the norm of each output of the model in the unit-variance kernel is at most rkhs_bound"
    )
    guarantee = acquisition.guarantee()
    assert wanted in guarantee.assumptions
    assert any("noise of each output" in each for each in guarantee.assumptions)
    assert "the weighted sum of outputs lies within" in guarantee.statement
    assert "the regret in the weighted sum of outputs" in guarantee.statement


def test_functions_of_the_user_are_taken_at_their_word() -> None:
    def make(X: Tensor, Y: Tensor) -> BanditGP:
        return BanditGP(X, Y, RBFKernel(), 1.1)

    def acquire(model: Any, X_pending: Tensor | None, best: float | None) -> Any:
        return ImprovedUpperConfidenceBound(model, **BOUNDS, X_pending=X_pending)

    loop = BanditLoop(Arms(CHOICES), make, acquire)
    play(loop, 3)
    assumptions = loop.guarantee().assumptions
    assert any("makes a row of every outcome, as it was told" in each for each in assumptions)
    assert any("same arguments in every round" in each for each in assumptions)
    assert not any("function that makes" in each for each in build().guarantee().assumptions)


def test_attached_outcomes_beside_lost_ones_have_no_probability_of_arriving() -> None:
    loop = build(feedback=Censored(minimum=-1.5, outcome_bound=3.0, max_delay=2))
    play(loop, 2)
    loop.attach([0.5], 0.3)
    assert loop.guarantee().holds
    assert any("rho_m = 1" in each for each in loop.guarantee().assumptions)
    for _ in range(4):
        loop.ask()
    (gap,) = loop.guarantee().gaps
    assert "attached outcomes are never lost, but 2 others were" in gap


@pytest.mark.parametrize("ends", ["fails", "is retracted"])
def test_epochs_need_the_values_of_all_rounds(ends: str) -> None:
    rule = AdditiveEpochs(num_constraints=1, epoch_length=3, surrogate="fresh")
    loop = build(constraints=rule, horizon=9)
    play(loop, 4)
    assert loop.guarantee().holds
    query = loop.ask()
    if ends == "fails":
        loop.fail(query.id, "it broke")
    else:
        tell(loop, query)
        loop.retract(query.id, "a typing error")
    guarantee = loop.guarantee()
    for statement in (regret_of(loop), violation_of(guarantee)):
        (gap,) = statement.gaps
        assert "1 of 5 rounds have no outcome" in gap
    assert guarantee.bands is not None
    assert guarantee.bands.holds


def test_draws_of_an_ensemble_have_no_theorem() -> None:
    X = torch.stack([CHOICES[:3], CHOICES[3:6]])
    model = BanditGP(X, X.sin(), RBFKernel(), 1.5)
    model._is_ensemble = True
    options = {"rkhs_bound": 2.0, "noise_bound": 0.1, "choices": CHOICES, "seed": 0}
    guarantee = GPThompsonSampling(model, **options).guarantee()
    assert not guarantee.holds
    assert any("ensemble" in gap for gap in guarantee.gaps)


def test_a_subclass_that_evaluates_something_else_has_no_theorem_on_its_regret() -> None:
    class Mine(AMMUpperConfidenceBound):
        """Looks at the mean alone."""

        def forward(self, X: Tensor) -> Tensor:
            mean: Tensor = self.model.posterior(X).mean.reshape(X.shape[:-2])
            return mean

    class Renamed(AMMUpperConfidenceBound):
        """As its parent, which it says."""

        defines_rule = True

    for cls, holds in ((Mine, False), (Renamed, True)):
        loop = build(cls.with_options(**BOUNDS))
        play(loop, 3)
        guarantee = loop.guarantee()
        assert guarantee.bands is not None
        assert guarantee.bands.holds
        assert guarantee.holds == regret_of(loop).holds == holds
        assert (
            any("Mine may evaluate something other than" in gap for gap in guarantee.reasons)
            != holds
        )


@pytest.mark.parametrize("surrogate", ["fresh", "separate"])
def test_rounds_without_diagnostics_have_no_numbers(surrogate: str) -> None:
    given = History(dim=1, num_constraints=1)
    query = given.record(given.new_query(CHOICES[3], "acquisition", 0.0, arm=3))
    given.record(given.new_outcome(query.id, 0.2, 0.0, [-0.1]))
    recipe = IGP if surrogate == "fresh" else LagrangianUpperConfidenceBound.with_options(**BOUNDS)
    rule = AdditiveEpochs(num_constraints=1, epoch_length=4, surrogate=surrogate)
    loop = rebuilt(build(recipe, constraints=rule, horizon=8), given)
    play(loop, 2)
    regret = regret_of(loop)
    if surrogate == "separate":
        assert (regret.holds, regret.num_rounds, regret.num_others) == (True, 2, 1)
    else:
        assert not regret.holds  # the proof needs every round


def size_notes(loop: BanditLoop) -> list[str]:
    return [note for note in loop.guarantee().notes if "no more than the outcomes do" in note]


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("rkhs_bound", [1.0, 2.0, 6.0, 20.0])
def test_a_bound_as_large_as_the_outcomes_allow_is_noted(rkhs_bound: float, maximize: bool) -> None:
    recipe = DMMUpperConfidenceBound.with_options(rkhs_bound=rkhs_bound, noise_bound=0.1)
    loop = build(recipe, maximize=maximize, num_initial=3)
    play(loop, 9)
    assert not size_notes(loop)  # the outcomes are too few to tell
    play(loop, 3)
    bound, rewards = loop.guarantee().regret_bound, [each.reward for each in loop.history.outcomes]
    assert bound is not None
    spread = max(rewards) - min(rewards)
    notes = size_notes(loop)
    assert len(notes) == (bound >= 12 * spread)
    assert bool(notes) == (rkhs_bound > 1.0)  # both happen
    # 2 B for each round is what the assumptions say themselves
    of_assumptions = [n for n in loop.guarantee().notes if "no more than the assumptions do" in n]
    assert len(of_assumptions) == (bound >= 24.0 * rkhs_bound * (1.0 - 1e-12))
    for note in notes:
        assert f"it is {bound:.6g} for 12 rounds" in note
        assert f"of the 12 outcomes differ by {spread:.6g}, so" in note
        assert note in loop.guarantee().explain(10_000)


@pytest.mark.parametrize("num_initial", [0, 2])
def test_a_bound_that_says_no_more_than_the_norm_is_noted(num_initial: int) -> None:
    recipe = ImprovedUpperConfidenceBound.with_options(
        rkhs_bound=2.0, noise_bound=0.1, any_lambda=True
    )
    loop = build(recipe, num_initial=num_initial)
    play(loop, 3)  # these widths bound nothing that the norm does not
    guarantee = loop.guarantee()
    assert guarantee.regret_bound == pytest.approx(3 * 4.0)
    (note,) = guarantee.notes
    assert note.endswith("it is 12 for 3 rounds, and no round can lose more than 4 under them")
    assert "says no more than the assumptions do" in " ".join(str(guarantee).split())


@pytest.mark.parametrize("scale", [3.0, 0.01])
def test_a_bound_is_compared_on_the_rounds_that_it_bounds(scale: float) -> None:
    loop = build(THEOREM_1)  # rounds that were not chosen by it have no bound
    for x in CHOICES.repeat(2, 1):
        loop.attach(x, scale * math.sin(5.0 * float(x)))
    loop.tell(loop.ask().id, 0.0)
    regret = regret_of(loop)
    assert (regret.num_rounds, regret.num_others, regret.total) == (1, 18, None)
    assert regret.bound is not None
    assert 3.0 < regret.bound < 5.0  # outcomes differ by 1.94 times scale
    notes = size_notes(loop)
    assert len(notes) == (scale == 0.01)
    for note in notes:
        assert f"it is {regret.bound:.6g} for 1 round, and" in note
        assert "even if every round that it bounds had lost" in note


@pytest.mark.parametrize("end", [1.0, 0.0])
def test_equal_outcomes_and_expected_regret_have_no_such_note(end: float) -> None:
    recipe = THEOREM_1 if end == 0.0 else RandomizedUpperConfidenceBound.with_options()
    loop = build(recipe)
    for x in CHOICES.repeat(2, 1):
        loop.attach(x, 1e-3 * end * float(x))
    loop.tell(loop.ask().id, 0.0)
    assert regret_of(loop).bound is not None
    assert not size_notes(loop)

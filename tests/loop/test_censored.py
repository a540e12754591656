"""Censored feedback in loops: fills, widths and reasons; each round is in ``test_rounds``."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.models import ModelListGP, SingleTaskGP
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits import (
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    CensoredUpperConfidenceBound,
    EvidenceRestart,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Hallucinated,
    Ignored,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    MultiplicativeEpochs,
    RandomizedUpperConfidenceBound,
    SlidingWindow,
)
from botorch_bandits.acquisition import BelowMinimumWarning, MinimumLoweredWarning
from botorch_bandits.checks import LARGEST_OUTCOME
from botorch_bandits.cli import main
from botorch_bandits.confidence import (
    BoundedNorm,
    gp_ucb_compact_width,
    gp_ucb_finite_width,
)
from botorch_bandits.penalties import Polynomial
from tests.models.textbook import double, posterior, squared_exponential

from .rounds import (
    ARRIVING,
    CHOICES,
    DELTA,
    LENGTHS,
    MINIMUM,
    NOISE,
    NORMS,
    PAIRS,
    SPAN,
    B,
    R,
    Setting,
)

IGP = ImprovedUpperConfidenceBound.with_options(**NORMS, any_lambda=True)
CENSORED = Censored(MINIMUM, SPAN, max_delay=4)
WIDTH = GPUpperConfidenceBound.with_options(width=1.0)
PRIOR = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHS[0], prior_mean=MINIMUM)
BOX = Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)

pytestmark = [
    pytest.mark.filterwarnings("ignore::botorch_bandits.loop.view.LateOutcomeWarning"),
    pytest.mark.filterwarnings("ignore:.*is not standardized"),
]


def make_loop(
    domain: str, acquisition: Any = IGP, feedback: Any = CENSORED, **options: Any
) -> BanditLoop:
    return Setting(domain).loop(acquisition=acquisition, feedback=feedback, **options)


def arriving(mean: float, delay: float) -> float:
    """A cumulative distribution function."""
    return 1.0 - math.exp(-delay / mean)


# --- fills ----------------------------------------------------------------------------------------


def fixed_model(X: Tensor, Y: Tensor) -> SingleTaskGP:
    return SingleTaskGP(X, Y, torch.full_like(Y, 0.1), outcome_transform=None).eval()


@pytest.mark.parametrize("fill", ["proxy", "middle", "soft", "lower_bound"])
def test_a_users_model_is_that_of_the_drop_in(fill: str) -> None:
    known: dict[str, Any] = {"minimum_proxy": 2.0}
    if fill != "proxy":
        known = {"minimum": MINIMUM, "outcome_bound": SPAN, "fill": fill, "max_delay": 3}
    if fill == "soft":
        known["delay_distribution"] = ARRIVING
    loop = BanditLoop(BOX, fixed_model, WIDTH, feedback=Censored(**known), num_initial=6, seed=2)
    queries = []
    for _ in range(6):
        queries.append(query := loop.ask())
        if query.id in (1, 3):
            loop.tell(query.id, math.sin(7.0 * float(query.x)))
    X = torch.stack([query.x for query in queries])
    acqf = CensoredUpperConfidenceBound(
        fixed_model(X[[1, 3]], (7.0 * X[[1, 3]]).sin()),
        width=1.0,
        X_pending=X[[0, 2, 4, 5]],
        **known,
    )
    found = loop.current_model().train_targets[2:]
    if fill == "proxy":
        assert acqf.pseudo_values is not None
        assert found.tolist() == pytest.approx(acqf.pseudo_values * 4)
    else:
        assert acqf.filled_values is not None
        assert found.tolist() == pytest.approx(acqf.filled_values.squeeze(-1).tolist(), abs=1e-10)
        assert found[:2].tolist() == [MINIMUM] * 2  # three rounds old and more: given up
        assert max(found.tolist()) > MINIMUM + 0.1
    query = loop.ask()
    value = float(acqf(query.x.unsqueeze(0)).detach())
    assert query.diagnostics["width"] == pytest.approx(float(acqf.width), abs=1e-8)
    assert query.diagnostics["acquisition_value"] == pytest.approx(value, abs=1e-8)


def test_a_storage_has_a_function_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setting, path = Setting(feedback="soft"), tmp_path / "run.db"
    feedback = Censored(MINIMUM, SPAN, 6, fill="soft", delay_distribution=partial(arriving, 3.0))
    for start in (0, 4):
        with setting.loop(feedback=feedback, storage=path) as loop:
            assert loop.history.num_queries == start
            for _ in range(4):
                setting.tell(loop)
                setting.ask(loop)
    assert main(["show", str(path)]) == 0
    assert "fill=soft" in capsys.readouterr().out
    with pytest.raises(ValueError, match="fill"):
        Setting(feedback="middle").loop(storage=path)


def test_hyperparameters_are_learned_from_what_arrived() -> None:
    """A recipe that learns does so from outcomes, not from what stands in for them."""
    learned = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=0.3, refit_every=4)
    setting = Setting("box", feedback="soft")
    loop = setting.loop(model=learned)
    for _ in range(16):
        setting.tell(loop)
        setting.ask(loop)
    view = loop.feedback_view()
    told = [o.query_id for o in loop.history.outcomes if view.rewards[o.query_id] is not None]
    X = torch.stack([loop.history.query(i).x for i in told])
    Y = double([view.rewards[i] for i in told]).unsqueeze(-1)
    alone = loop.settings.model.builder(1)(X, Y)  # type: ignore[union-attr]
    model = loop.current_model()
    assert model.likelihood.noise.item() == alone.likelihood.noise.item()
    assert model.covar_module.lengthscale.item() == alone.covar_module.lengthscale.item()


def test_fills_are_asked_for_in_the_context_of_the_query() -> None:
    feedback = Censored(MINIMUM, SPAN, 6, fill="soft", delay_distribution=ARRIVING)
    loop = make_loop("arms", WIDTH, feedback, model=PRIOR, context_dim=1)
    loop.tell(loop.ask([0.2]).id, MINIMUM + 0.5 * SPAN)
    loop.ask([0.4])
    assert loop.current_model().train_targets.tolist()[1] > MINIMUM


def test_seconds_count_ages_by_the_times_of_events() -> None:
    known = {"unit": "seconds", "fill": "soft", "delay_distribution": partial(arriving, 4.0)}
    loop = make_loop("box", feedback=Censored(MINIMUM, SPAN, 10.0, **known))
    first, second = loop.ask(at=0.0), loop.ask(at=0.0)
    loop.tell(first.id, 1.5, at=2.5)
    kernel = squared_exponential(LENGTHS[0])
    residual = double([1.5 - MINIMUM])
    height, _ = posterior(kernel, first.x[None], residual, NOISE, second.x[None])
    come = [arriving(4.0, t) for t in (2.5, 10.0)]
    fill = MINIMUM + (come[1] - come[0]) / (1.0 - come[0]) * float(height)
    assert loop.current_model().train_targets.tolist() == pytest.approx([1.5, fill], abs=1e-9)
    loop.ask(at=11.0)  # the second one is given up
    assert loop.current_model().train_targets.tolist()[:2] == [1.5, MINIMUM]


def test_a_distribution_that_fails_is_named_before_anything_is_recorded() -> None:
    def strange(delay: float) -> float:
        return 1.7 if delay == 3.0 else min(0.2 * delay, 1.0)

    feedback = Censored(MINIMUM, SPAN, 9, fill="soft", delay_distribution=strange)
    loop = make_loop("arms", feedback=feedback)
    for _ in range(3):
        loop.ask()
    with pytest.raises(ValueError, match=r"delay_distribution gives 1\.7 at"):
        loop.ask()
    assert loop.history.num_queries == 3


# --- models of the user's, and windows ------------------------------------------------------------


def fitted(X: Tensor, Y: Tensor) -> SingleTaskGP | ModelListGP:
    """A user's own model, which must not see pseudo-values."""
    assert bool((Y[:, 0] > MINIMUM).all())
    models = [SingleTaskGP(X, y, outcome_transform=None) for y in Y.split(1, dim=-1)]
    return models[0] if len(models) == 1 else ModelListGP(*models)


def test_a_window_on_a_users_model_begins_anew_when_it_is_empty() -> None:
    loop = make_loop("box", WIDTH, model=fitted, forgetting=SlidingWindow(6))
    loop.tell(loop.ask().id, 0.1)
    assert loop.ask().origin == "acquisition"
    for _ in range(8):  # nothing is told any more
        query = loop.ask()
    assert query.origin == "initial"
    loop.tell(query.id, 0.5)
    assert loop.ask().origin == "acquisition"
    # its one outcome, and pseudo-values at what is pending or lost inside the window
    targets = loop.current_model().train_targets.tolist()
    assert sorted(targets) == [MINIMUM] * 5 + [0.5]


def test_pseudo_values_of_reward_and_constraints_join_a_users_model() -> None:
    rule = {"model": fitted, "acquisition": LagrangianUpperConfidenceBound.with_options(width=1.0)}
    setting = Setting(rule="separate", feedback="censored")
    loop = setting.loop(**rule)
    for _ in range(10):
        setting.tell(loop)
        setting.ask(loop)
    told = [(o.reward, *o.constraints) for o in loop.history.outcomes]
    view = loop.feedback_view()
    told = [
        row
        for row, o in zip(told, loop.history.outcomes, strict=True)
        if view.rewards[o.query_id] is not None
    ]
    rows = double(told + [(MINIMUM, 0.0, 0.0)] * (10 - len(told)))
    model: Any = loop.current_model()
    found = torch.stack([each.train_targets for each in model.models], dim=-1)
    assert torch.allclose(found.sum(0), rows.sum(0))


def test_a_lowered_minimum_stays_when_its_outcome_has_left_the_window() -> None:
    feedback = Censored(MINIMUM, on_lower="lower")
    loop = make_loop("arms", WIDTH, feedback, forgetting=SlidingWindow(6))
    first = loop.ask().id
    with pytest.warns(MinimumLoweredWarning):
        loop.tell(first, MINIMUM - 1.0)
    for _ in range(6):
        loop.ask()
    assert loop.current_model().train_targets.tolist() == [MINIMUM - 1.0] * 6


# --- widths ---------------------------------------------------------------------------------------


OTHERS = {
    "finite": GPUpperConfidenceBound.with_options(delta=DELTA),
    "compact": GPUpperConfidenceBound.with_options(delta=DELTA, smoothness_a=1.0, smoothness_b=2.0),
    "AMM": AMMUpperConfidenceBound.with_options(**NORMS),
    "IRGP": RandomizedUpperConfidenceBound.with_options(),
    "given gain": ImprovedUpperConfidenceBound.with_options(
        **NORMS, any_lambda=True, information_gain=2.5
    ),
}


@pytest.mark.parametrize(
    ("name", "domain"),
    [("finite", "arms"), ("compact", "box"), ("AMM", "arms"), ("AMM", "box"), ("IRGP", "arms"),
     ("given gain", "arms"), ("given gain", "box")],
)  # fmt: skip
def test_other_widths_get_the_terms_without_a_promise(name: str, domain: str) -> None:
    loop = make_loop(domain, OTHERS[name])
    plain = make_loop(domain, OTHERS[name], Ignored())
    for t in range(3):
        assert loop.ask().diagnostics["pending"] == t
        plain.ask()
    loop.tell(1, 0.4)
    X = torch.stack([loop.history.query(i).x for i in range(3)])
    kernel = squared_exponential(LENGTHS[0])
    variance = posterior(kernel, X, torch.zeros(3).double(), NOISE, X)[1].diagonal()
    gain = 0.5 * float(torch.logdet(torch.eye(3, dtype=torch.float64) + kernel(X, X) / NOISE))
    total = float(variance[[0, 2]].sqrt().sum())
    raised = R + SPAN
    if name == "finite":
        expected = gp_ucb_finite_width(len(CHOICES), 4, DELTA) + SPAN * total
    elif name == "compact":
        base = gp_ucb_compact_width(1, 4, DELTA, 1.0, smoothness_a=1.0, smoothness_b=2.0)
        expected = base + SPAN * total
    elif name == "AMM":
        base = BoundedNorm(B, raised, DELTA, NOISE, is_mixture=True).width(gain)
        expected = base + SPAN / NOISE * total
    elif name == "given gain":
        norm = BoundedNorm(B, raised, DELTA / 2, NOISE, any_lambda=True)
        expected = norm.width(2.5) + SPAN * total / NOISE
    else:  # the draw of the round
        expected = plain.ask().diagnostics["width"] + SPAN * total
    assert loop.ask().diagnostics["width"] == pytest.approx(float(expected), abs=1e-8)
    guarantee = loop.guarantee()
    assert guarantee.theorem is None
    assert any("no theorem covers this width" in gap for gap in guarantee.gaps)


def test_the_diagnostics_count_what_is_pending_and_lost() -> None:
    loop = make_loop("arms")
    for t in range(1, 9):
        query = loop.ask()
        assert query.diagnostics["pending"] == min(t - 1, 3)
        assert query.diagnostics["lost"] == max(0, t - 4)


def test_without_bounds_a_constant_width_of_constraints_has_no_sum() -> None:
    setting = Setting(rule="separate", feedback="censored")
    loop = setting.loop(
        acquisition=LagrangianUpperConfidenceBound.with_options(width=2.0),
        feedback=Censored(MINIMUM, max_delay=6),
    )
    assert {setting.ask(loop).diagnostics["width"] for _ in range(8)} == {2.0}


def test_bounds_in_prior_deviations() -> None:
    """Those of constraints stay in their own units, in which their values are told."""
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale, kernel.base_kernel.lengthscale = 4.0, LENGTHS[0]
    setting = Setting(rule="separate", feedback="censored")
    loops = []
    for units, unit in (("prior", 1.0), ("outcome", 2.0)):
        acquisition = LagrangianUpperConfidenceBound.with_options(
            rkhs_bound=unit * B, noise_bound=unit * R, any_lambda=True, units=units
        )
        feedback = Censored(MINIMUM, 0.5 * SPAN * unit, max_delay=6, constraint_bounds=PAIRS)
        model = BanditGP.with_kernel(kernel, noise=4.0 * NOISE)
        loops.append(setting.loop(model=model, acquisition=acquisition, feedback=feedback))
    for _ in range(9):
        for loop in loops:
            setting.tell(loop)
        ours, theirs = (setting.ask(loop) for loop in loops)
        assert ours.diagnostics == pytest.approx(theirs.diagnostics, rel=1e-9)


@pytest.mark.parametrize(
    "rule", [LagrangianUpperConfidenceBound, LagrangianThompsonSampling], ids=["ucb", "thompson"]
)
def test_a_minimum_moved_with_the_rewards_changes_nothing(rule: Any) -> None:
    """Neither choices nor what evidence says of changes: constraints have the prior mean 0."""
    setting = Setting(rule="every round", feedback="censored", contexts=1)
    loops = [
        setting.loop(
            acquisition=rule.with_options(**NORMS, any_lambda=True),
            restart=EvidenceRestart(),
            feedback=Censored(MINIMUM + shift, SPAN, max_delay=6, constraint_bounds=PAIRS),
        )
        for shift in (0.0, 5.0)
    ]
    for _ in range(12):
        for loop, shift in zip(loops, (0.0, 5.0), strict=True):
            for query in loop.history.pending()[:-2]:
                told = setting.outcome(query.id, float(query.x[0]), 0.0)
                loop.tell(query.id, told["reward"] + shift, told["constraints"], at=0.0)
        one, other = (setting.ask(loop) for loop in loops)
        assert torch.equal(one.x, other.x)
        lower = "constraint_lower_bound_1"
        assert one.diagnostics[lower] == pytest.approx(other.diagnostics[lower], rel=1e-6)
    statistics = [[test.statistic for test in loop.change_tests] for loop in loops]
    assert statistics[0]
    assert statistics[0] == pytest.approx(statistics[1], rel=1e-6)


# --- constraints ----------------------------------------------------------------------------------


def test_values_outside_of_the_bounds_are_refused_before_they_are_recorded() -> None:
    loop = Setting(rule="relabeled", feedback="censored").loop()
    query = loop.ask()
    with pytest.raises(ValueError, match=r"0\.7, outside its constraint_bounds"):
        loop.tell(query.id, 0.0, constraints=[0.0, 0.7])
    assert loop.history.num_arrived == 0
    loop.tell(query.id, 0.0, constraints=[0.8, 0.6])


def test_pseudo_values_too_large_for_the_model_are_refused() -> None:
    rule = MultiplicativeEpochs(1, 1, penalty=Polynomial(1.0, 2.0))
    side = 0.5 * math.sqrt(LARGEST_OUTCOME)
    feedback = Censored(0.0, 1.0, constraint_bounds=((-1.0, side),))
    loop = make_loop("arms", feedback=feedback, constraints=rule)
    query = loop.ask()
    with pytest.raises(ValueError, match="penalized outcome of"):
        loop.tell(query.id, 0.0, constraints=[5.0])  # a multiplier of 36 follows
    assert loop.history.num_arrived == 0
    for high in (3.0 * side, 1e300):
        feedback = Censored(0.0, 1.0, constraint_bounds=((-1.0, high),))
        with pytest.raises(ValueError, match="at its first multipliers"):
            make_loop("arms", feedback=feedback, constraints=rule)


# --- drop-ins, draws and what is guaranteed -------------------------------------------------------


@pytest.mark.parametrize("domain", ["arms", "box"])
def test_what_a_draw_makes_of_pending_queries_can_be_stated(domain: str) -> None:
    def points(feedback: Any, **options: Any) -> list[tuple[float, float]]:
        recipe = GPThompsonSampling.with_options(width=1.0, **options)
        loop = make_loop(domain, recipe, feedback)
        queries = [loop.ask() for _ in range(6)]
        return [(float(query.x), query.diagnostics["acquisition_value"]) for query in queries]

    assert points(None) == points(Hallucinated(), pending="hallucinate")
    assert points(None, pending="redraw") != points(None)
    if domain == "arms":  # the draws are the loop's, whatever is pending
        assert points(None, pending="redraw") == points(Ignored())


@pytest.mark.parametrize("domain", ["arms", "box"])
def test_batches_are_the_loop_with_fixed_delays(domain: str) -> None:
    """All outcomes of ``b`` queries come before the next one: every ``d_s <= b``, so ``m = b``."""
    size = 3
    loop = make_loop(domain, feedback=Censored(MINIMUM, SPAN, max_delay=size), num_initial=2)
    for query in [loop.ask(), loop.ask()]:  # without data, by symmetry, two points are best
        loop.tell(query.id, math.sin(7.0 * float(query.x)))
    for _ in range(2):
        acqf = CensoredUpperConfidenceBound(
            PRIOR(*loop.history.arrived()), minimum=MINIMUM, outcome_bound=SPAN, max_delay=size,
            any_lambda=True, **NORMS,
        )  # fmt: skip
        if domain == "arms":
            batch, _ = optimize_acqf_discrete(acqf, q=size, choices=CHOICES, unique=False)
        else:
            torch.manual_seed(0)
            batch, _ = optimize_acqf(
                acqf, BOX.bounds, q=size, sequential=True, num_restarts=8, raw_samples=128
            )
        queries = [loop.ask() for _ in range(size)]
        found = torch.stack([query.x for query in queries])
        assert torch.allclose(found, batch, atol=1e-9 if domain == "arms" else 1e-3)
        acqf.set_X_pending(found[: size - 1])
        assert queries[-1].diagnostics["width"] == pytest.approx(float(acqf.width), abs=1e-8)
        for query in queries:
            loop.tell(query.id, math.sin(7.0 * float(query.x)))
        view = loop.feedback_view()
        assert (view.lost, view.late, view.pending) == ((), (), ())


def test_loop_and_drop_in_give_the_same_reasons() -> None:
    """One definition says why the theorem does not cover a use, for both."""

    def build(X: Tensor, Y: Tensor) -> BanditGP:
        return BanditGP(X, Y, kernel=RBFKernel(), noise=1.5, prior_mean=0.0)

    igp = ImprovedUpperConfidenceBound.with_options(rkhs_bound=B, noise_bound=R)
    feedback = Censored(MINIMUM, outcome_bound=2.5, on_lower="lower")
    loop = BanditLoop(Arms(CHOICES), build, igp, feedback=feedback, num_initial=1, seed=0)
    loop.attach(CHOICES[3], 1.0)
    query = loop.ask()
    acqf = CensoredUpperConfidenceBound(
        build(CHOICES[3:4], torch.ones(1, 1).double()),
        minimum=MINIMUM,
        X_pending=query.x[None],
        rkhs_bound=B,
        noise_bound=R,
        outcome_bound=2.5,
    )
    gaps = loop.guarantee().gaps
    assert gaps == acqf.guarantee().gaps[-len(gaps) :]
    assert sorted(gaps) == sorted(acqf.guarantee().gaps)
    assert any("the prior mean differs from the minimum by 2; give" in gap for gap in gaps)
    assert any("outcome is 3 from the minimum, more than outcome_bound = 2.5" in g for g in gaps)
    with pytest.warns(MinimumLoweredWarning, match="lowered"):
        loop.tell(query.id, -3.0)
    (gap,) = [gap for gap in loop.guarantee().gaps if "prior mean differs" in gap]
    assert "by 3; state minimum=-3 and give the model a fixed prior mean of -3" in gap


def test_gaps_of_feedback_are_named() -> None:
    loop = make_loop("arms", feedback=Censored(MINIMUM, 1.0, max_delay=4))
    query = loop.ask()
    assert loop.guarantee().holds
    loop.tell(query.id, -0.5)
    assert any("more than outcome_bound = 1" in gap for gap in loop.guarantee().gaps)
    prior = ImprovedUpperConfidenceBound.with_options(**NORMS, information_gain=2.0, units="prior")
    loop = make_loop("arms", prior, Censored(MINIMUM, outcome_bound=0.1))
    loop.tell(loop.ask().id, 2.0)
    assert not any("outcome_bound = " in gap for gap in loop.guarantee().gaps)


def test_outcomes_below_the_minimum_are_a_gap_of_a_fill() -> None:
    feedback = Censored(MINIMUM, SPAN, 6, fill="soft", tolerance=1.0)
    loop = make_loop("arms", feedback=feedback, model=PRIOR)
    first = loop.ask()
    assert loop.guarantee().holds
    with pytest.warns(BelowMinimumWarning, match="below minimum"):
        loop.tell(first.id, MINIMUM - 0.2)
    gaps = loop.guarantee().gaps
    assert any("1 outcomes lie below the minimum, but fill='soft' needs" in gap for gap in gaps)
    published = Censored(MINIMUM, SPAN, 6, fill="soft", **Censored.as_published)
    loop = make_loop("arms", WIDTH, published)
    loop.ask()
    gaps = loop.guarantee().gaps
    assert any("published code has no fill='soft'" in gap for gap in gaps)

"""A table of settings, and what holds in each of them.

Each round is that of dense algebra, or of the general evaluation of the acquisition function; a
loop that has only the storage, or only the history, goes on alike; and the check of the log finds
nothing.
"""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.acquisition import UpperConfidenceBound
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from pairwise import by_day, pairwise
from records import ON_BOXES, TOLERANCE, assert_same, entries_of, rebuilt
from torch import Tensor

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    CandidatesUpperConfidenceBound,
    Censored,
    ChangePointDetector,
    ChangePointRestart,
    EvidenceRestart,
    FittedSingleTaskGP,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    MultiplicativeEpochs,
    NeverRestart,
    RandomSearch,
    TopTwoThompsonSampling,
)
from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.history import Event, Failure, History, Outcome, Query, Retraction
from botorch_bandits.loop.chooser import Chooser

from .rounds import (
    CENSORED,
    CHOICES,
    FORGETTING,
    METHODS,
    MINIMUM,
    RETRACTED,
    RULES,
    SPAN,
    Dense,
    Setting,
)

pytestmark = pytest.mark.filterwarnings("ignore")

PLACES = [("arms", "igp"), ("arms", "draws"), ("arms", "ucb"), ("box", "igp"), ("box", "draws")]
FEEDBACK = ("at once", "pending", "ignored", *CENSORED)
SPECIAL = (
    *("nothing", "counts", "noises", "failures", "retractions", "available", "costs", "restart"),
    *("prior mean", "attached"),
)
NAMES = {"ids": lambda each: getattr(each, "name", None)}


def goes_together(
    place: tuple[str, str], forgetting: str, feedback: str, rule: str, contexts: int, special: str
) -> bool:
    setting = Setting(*place, forgetting, feedback, rule, contexts, special)
    is_weighted = special in ("counts", "noises") and feedback in CENSORED
    is_drawn = feedback == "published" and setting.method == "draws"
    is_unknown = feedback == "proxy" and rule != "none" and not setting.is_separate
    is_on_arms = special == "available" and setting.domain == "box"
    return not (is_weighted or is_drawn or is_unknown or is_on_arms)


SETTINGS = [
    Setting(*place, *values)
    for rules, feedback, special in (
        (["none"], FEEDBACK, SPECIAL),
        (
            list(RULES)[1:],
            ("at once", "pending", "censored", "middle", "proxy"),
            ("nothing", "restart", "retractions", "costs", "counts"),
        ),
    )
    for place, *values in pairwise(
        PLACES, list(FORGETTING), feedback, rules, (0, 1), special, allowed=goes_together
    )
]


def with_failures(history: History) -> list[Query | Event]:
    """Return what was recorded as if queries whose outcome was retracted had failed instead."""
    entries: list[Query | Event] = []
    for entry in entries_of(history):
        retracted = history.retraction(entry.query_id)
        if isinstance(entry, Outcome) and retracted is not None:
            told = entry.arrived_at, entry.arrived_round
            entries.append(Failure(entry.query_id, retracted.reason, *told))
        elif not isinstance(entry, Retraction):
            entries.append(entry)
    return entries


def play(
    setting: Setting, rounds: int, path: Path, is_dense: bool = True, **options: Any
) -> BanditLoop:
    """Play rounds, and three more by loops that have only the file or the history."""
    live = setting.loop(storage=path / "run.db", **options)
    loops = [live]
    for t in range(rounds + 3):
        if t == rounds:
            with closing(sqlite3.connect(path / "run.db")) as file:
                file.execute("vacuum into ?", (str(path / "copy.db"),))
            opened = setting.loop(storage=path / "copy.db", **options)
            assert opened.check_log(progress=False) == ()
            loops += [opened, rebuilt(setting.loop(**options), live.history)]
            if setting.special in RETRACTED and setting.rule != "every round":
                loops.insert(2, rebuilt(setting.loop(**options), with_failures(live.history)))
        for loop in loops:
            setting.tell(loop)
            query = setting.ask(loop)
            if is_dense and query.origin == "acquisition":
                Dense(setting, loop, query).check()
    for loop in loops[1:]:
        if loop.history.num_retracted:
            assert_same(loop.history.to_records(), live.history.to_records())
        for ours, theirs in zip(loop.history.queries, live.history.queries, strict=True):
            assert ours.x.tolist() == pytest.approx(theirs.x.tolist(), abs=1e-6)
            assert ours.origin == theirs.origin
        assert loop.multipliers == pytest.approx(live.multipliers)
        assert_same(loop.resets, live.resets)
        assert_same(loop.change_tests, live.change_tests)
    live.close()
    opened.close()
    return live


@pytest.mark.parametrize("setting", by_day(SETTINGS, every=3), **NAMES)
def test_rounds_are_those_of_dense_algebra_and_an_opened_loop_goes_on(
    setting: Setting, tmp_path: Path
) -> None:
    play(setting, 12 if setting.domain == "arms" else 8, tmp_path)


@pytest.mark.parametrize(
    "setting",
    [
        Setting(forgetting="window"),
        Setting(forgetting="weights", method="ucb", feedback="censored"),
        Setting(forgetting="drift", contexts=1, feedback="pending"),
        Setting(forgetting="window", rule="separate", special="available"),
        Setting(contexts=1, rule="every round", special="restart"),
    ],
    **NAMES,
)
@pytest.mark.parametrize("way", ["columns only", "some rows first"])
def test_few_arms_take_the_ways_that_pay_on_many(
    setting: Setting, way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Beyond the largest matrix only columns of played arms are kept; variances are screened."""
    if way == "columns only":
        monkeypatch.setattr("botorch_bandits.core.priors.LARGEST_MATRIX", 5)
    else:
        monkeypatch.setattr("botorch_bandits.core.posterior.FEW_OPERATIONS", 0)
        monkeypatch.setattr("botorch_bandits.core.posterior.TELLING_ROWS", 4)
        monkeypatch.setattr("botorch_bandits.core.posterior.FIRST_CANDIDATES", 2)
    play(setting, 20, tmp_path)


# --- methods whose rounds are not those of a table of dense algebra ------------------------------


class General:
    """What a user's own acquisition function is to the loop: its values come from ``forward``."""

    def forward(self, X: Tensor) -> Tensor:
        values: Tensor = super().forward(X)  # type: ignore[misc]
        return values


def general(recipe: AcquisitionRecipe) -> AcquisitionRecipe:
    """Return the same method as a class that the loop does not know."""
    parent = recipe.acquisition_class
    recipe_of: Any = type(parent.__name__, (General, parent), {})
    found: AcquisitionRecipe = recipe_of.with_options(**recipe.options)
    return found


def allows(
    method: str, forgetting: str, feedback: str, rule: str, contexts: int, what: str
) -> bool:
    has_levels = forgetting in ("weights", "drift") or what in ("counts", "noises")
    if method in ("list", "mixture") and (has_levels or rule != "none"):
        return False
    return what != "noises" or rule == "none"


PLAYED = [
    Setting("arms", *row)
    for row in pairwise(
        [each for each in METHODS if each not in ("igp", "ucb", "draws")],
        list(FORGETTING),
        ("at once", "pending", "ignored"),
        ("none", "relabeled", "fresh"),
        (0, 1),
        ("nothing", "restart", "available", "counts", "noises", "failures", "costs"),
        allowed=allows,
    )
]


@pytest.mark.parametrize("setting", by_day(PLAYED, every=2), **NAMES)
def test_other_methods_choose_as_in_their_general_form_and_go_on(
    setting: Setting, tmp_path: Path
) -> None:
    live = play(setting, 11, tmp_path, is_dense=False)
    if setting.method == "random width":  # whose draws come from another stream there
        return
    loop = setting.loop(acquisition=general(METHODS[setting.method]))
    for query in live.history.queries:
        setting.tell(loop)
        other = setting.ask(loop)
        assert torch.equal(other.x, query.x)
        for name in ("acquisition_value", "width", "mean"):
            if name in query.diagnostics and name in other.diagnostics:
                known = query.diagnostics[name]
                assert other.diagnostics[name] == pytest.approx(known, rel=1e-6, abs=1e-7)


def scaled(**options: Any) -> Kernel:
    kernel = ScaleKernel(RBFKernel(**options), **options).double()
    if options:
        kernel.base_kernel.lengthscale = torch.tensor([0.2, 0.4, 0.2]).double().view(-1, 1, 1)
        kernel.outputscale = torch.tensor([1.0, 2.0, 1.0]).double()
    return kernel


def model(kernel: Kernel, **options: Any) -> Any:
    return BanditGP.with_kernel(kernel.double(), noise=0.05, **options)


BOUND = LagrangianUpperConfidenceBound.with_options
PRODUCT = RBFKernel(active_dims=(0,)) * MaternKernel(nu=1.5, active_dims=(1,))
SCORED: dict[str, tuple[Setting, dict[str, Any]]] = {
    "prior mean": (Setting(), {"model": model(MaternKernel(nu=2.5), prior_mean=0.3)}),
    "linear": (Setting(forgetting="window"), {"model": model(LinearKernel())}),
    "product": (Setting(contexts=1), {"model": model(PRODUCT)}),
    "one width": (Setting(rule="separate"), {"acquisition": BOUND(width=1.5)}),
    "theorem": (
        Setting(rule="separate, exact", contexts=1),
        {
            "acquisition": BOUND(
                rkhs_bound=(2.0, 1.0, 1.0), noise_bound=0.2, any_lambda=True, scale=0.5
            )
        },
    ),
    "noise of the model": (
        Setting(rule="every round", feedback="pending"),
        {"acquisition": BOUND(rkhs_bound=1.0, noise_bound="model")},
    ),
    "a kernel each": (
        Setting(rule="separate", forgetting="weights"),
        {"model": model(scaled(batch_shape=torch.Size([3])))},
    ),
    "one kernel, uniform rounds": (
        Setting(rule="separate", forgetting="drift", feedback="pending"),
        {"model": model(scaled(), prior_mean=0.3), "num_initial": 3},
    ),
}


@pytest.mark.parametrize("name", SCORED)
def test_rows_choose_what_models_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop without the engine of arms evaluates a model of the same rows."""
    setting, options = SCORED[name]
    loop = setting.loop(**options)
    with monkeypatch.context() as patch:
        patch.setattr(Chooser, "_new_arms", lambda self: None)
        known = setting.loop(**options)
    for _ in range(13):
        for each in (loop, known):
            setting.tell(each)
        ours, theirs = setting.ask(loop), setting.ask(known)
        assert torch.equal(ours.x, theirs.x)
        expected = dict(theirs.diagnostics)
        found = {key: ours.diagnostics[key] for key in expected}
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize(
    "setting",
    [
        Setting(feedback="pending"),
        Setting(method="ucb", feedback="soft", forgetting="weights"),
        Setting(rule="relabeled", contexts=1, forgetting="drift"),
        Setting(rule="every round"),
        Setting(method="dmm", special="counts"),
    ],
    **NAMES,
)
def test_the_order_of_the_arms_does_not_matter(setting: Setting) -> None:
    """Outcomes depend on the point; of arms that tie the first is played, so none do."""
    moved = Arms(CHOICES[torch.randperm(12, generator=torch.Generator().manual_seed(0))])
    model = replace(setting.prior(), prior_mean=0.0)
    loops = [setting.loop(model=model), setting.loop(model=model, domain=moved)]
    for loop in loops:
        for i in (2, 6, 11):
            told = setting.outcome(i, float(CHOICES[i]), 0.5 if setting.contexts else None)
            context = {"context": [0.5]} if setting.contexts else {}
            loop.attach(CHOICES[i], at=0.0, **told, **context)
    for _ in range(9):
        for loop in loops:
            setting.tell(loop)
        one, other = (setting.ask(loop) for loop in loops)
        assert torch.equal(one.x, other.x)
        assert one.diagnostics == pytest.approx(other.diagnostics, rel=1e-7, abs=1e-9)


DETECTOR = ChangePointDetector(
    RBFKernel(), lengthscale=0.3, threshold=PowerThreshold(scale=0.2, exponent=-0.5)
)
PRIORS = [
    BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.2, lengthscale=each) for each in (0.1, 0.3)
]


def bound_of_botorch(model: Any, X_pending: Any, best: Any) -> UpperConfidenceBound:
    return UpperConfidenceBound(model, beta=4.0 if X_pending is None else 9.0)


UNKNOWN: dict[str, tuple[Setting, dict[str, Any]]] = {
    "a detector": (Setting(special="change"), {"restart": ChangePointRestart(detector=DETECTOR)}),
    "detectors of constraints": (
        Setting(rule="relabeled", feedback="pending", special="change"),
        {
            "restart": ChangePointRestart(
                detector=DETECTOR, constraint_detectors=(DETECTOR,) * 2, keep_multipliers=True
            )
        },
    ),
    "a detector of censored rewards": (
        Setting(feedback="censored", special="change"),
        {"restart": ChangePointRestart(detector=DETECTOR, exploration=3.0)},
    ),
    "evidence": (
        Setting(special="change", contexts=1),
        {"restart": EvidenceRestart(alpha=0.5, exploration=1.0)},
    ),
    "evidence on epochs": (
        Setting(rule="fresh", special="change"),
        {"restart": EvidenceRestart(alpha=0.5)},
    ),
    "never": (Setting(rule="fresh", feedback="pending"), {"restart": NeverRestart()}),
    "a minimum that is lowered": (
        Setting(special="retractions"),
        {"feedback": Censored(0.5, SPAN, max_delay=4, on_lower="lower")},
    ),
    "seconds": (
        Setting(feedback="pending"),
        {"feedback": Censored(MINIMUM, SPAN, max_delay=30.0, unit="seconds", fill="soft")},
    ),
    "refits": (
        Setting(feedback="pending", special="retractions"),
        {"model": BanditGP.with_kernel(RBFKernel(), noise=0.2, refit_every=4)},
    ),
    "functions of the user's": (
        Setting("box", feedback="pending"),
        {
            "model": FittedSingleTaskGP([[0.0], [1.0]]),
            "acquisition": bound_of_botorch,
            "num_initial": 2,
        },
    ),
    "two norms": (Setting("box", "dmm", feedback="pending"), {}),
    "improvement": (
        Setting(forgetting="window"),
        {"acquisition": LogExpectedImprovement.with_options(), "num_initial": 2},
    ),
    "a list of priors": (
        Setting(),
        {
            "model": BanditGP.with_candidates(PRIORS),
            "acquisition": CandidatesUpperConfidenceBound.with_options(form="mixture", width=2.0),
        },
    ),
    "leaders": (
        Setting(special="available"),
        {"acquisition": TopTwoThompsonSampling.with_options(leader_probability=0.5)},
    ),
    "uniform draws": (
        Setting(rule="relabeled", feedback="pending"),
        {"model": None, "acquisition": RandomSearch()},
    ),
    "repeats": (Setting(contexts=1), {"repeats": 3.0}),
    "repeats in a window": (Setting(forgetting="window"), {"repeats": 3.0}),
    "repeats of draws": (
        Setting(),
        {"repeats": 3.0, "acquisition": GPThompsonSampling.with_options(width=1.0)},
    ),
    "models of epochs": (
        Setting(rule="fresh"),
        {
            "model": None,
            "constraints": MultiplicativeEpochs(2, 4, surrogate="fresh", models=PRIORS),
        },
    ),
    "constant width": (
        Setting(feedback="pending", forgetting="weights"),
        {
            "acquisition": GPUpperConfidenceBound.with_options(width=2.0),
            "feedback": Censored(MINIMUM, max_delay=4),
        },
    ),
}


@pytest.mark.parametrize("domain", ["arms", "box"])
@pytest.mark.parametrize("name", UNKNOWN)
def test_other_loops_go_on_as_well(name: str, domain: str, tmp_path: Path) -> None:
    setting, options = UNKNOWN[name]
    if domain == "arms" or name != "leaders":
        rounds = 14 if domain == "arms" else 7
        play(replace(setting, domain=domain), rounds, tmp_path, is_dense=False, **options)


@pytest.mark.parametrize("name", ["a detector", "detectors of constraints"])
def test_changes_are_seen_before_and_after_opening(name: str, tmp_path: Path) -> None:
    setting, options = UNKNOWN[name]
    live = play(setting, 36, tmp_path, is_dense=False, **options)
    assert live.resets


@pytest.mark.parametrize("context_dim", [0, 1])
@pytest.mark.parametrize("feedback", ["pending", "ignored", "censored"])
@pytest.mark.parametrize("domain", ["arms", "box"])
def test_what_is_attached_is_pending_like_what_was_asked(
    feedback: str, domain: str, context_dim: int
) -> None:
    """A loop that is given another one's queries, one by one, is where that one is."""
    setting = Setting(domain, "ucb", feedback=feedback, contexts=context_dim, special="failures")
    asks, takes = setting.loop(), setting.loop()
    for t in range(9):
        for loop in (asks, takes):
            setting.tell(loop)
        query = setting.ask(asks)
        again = takes.attach(query.x, context=query.context, at=0.0)
        assert (again.id, again.origin, again.round_number) == (t, "attached", t + 1)
        assert takes.history.state(again.id) == "pending"
    first, second = setting.ask(asks), setting.ask(takes)
    tolerance = TOLERANCE if domain == "arms" else ON_BOXES
    assert_same(first.x, second.x, tolerance)
    assert_same(first.diagnostics, second.diagnostics, tolerance)
    if feedback == "censored":
        assert asks.feedback_view() == takes.feedback_view()
        assert len(takes.feedback_view().pending) > 0


@pytest.mark.parametrize("feedback", ["pending", "ignored"])
def test_draws_of_outputs_with_the_same_kernel_are_independent(feedback: str) -> None:
    """With multipliers of 0 and of both constraints alike, scores tell draws apart."""
    setting = Setting(method="draws", feedback=feedback, rule="separate")
    loop = setting.loop(model=model(scaled(batch_shape=torch.Size([3]))))
    for _ in range(11):
        setting.tell(loop)
        setting.ask(loop)
        view = loop._chooser.view(0.0)
        seen = loop._chooser._engines()[0]._look(view)  # type: ignore[union-attr]
        drawn, means = seen.prepared.drawn, seen.prepared.means
        multipliers = torch.tensor(loop.multipliers, dtype=torch.float64)
        assert torch.allclose(seen.scores, drawn[0] - multipliers @ drawn[1:], rtol=0.0, atol=1e-12)
        assert float(torch.corrcoef(drawn - means)[0, 2]) < 0.999


@pytest.mark.parametrize(
    "options",
    [
        {
            "feedback": Censored(minimum_proxy=1.0, max_delay=4),
            "acquisition": GPUpperConfidenceBound.with_options(width=2.0),
        },
        {"feedback": Censored(minimum=-3.0, outcome_bound=6.0, predictive=True)},
        {"model": model(MaternKernel(nu=2.5), refit_every=4)},
        {"acquisition": LogExpectedImprovement.with_options(), "num_initial": 2},
        {
            "model": model(MaternKernel(nu=2.5), refit_every=4),
            "acquisition": LagrangianThompsonSampling.with_options(width=2.0),
            "constraints": RULES["separate"],
        },
    ],
    ids=str,
)
def test_what_needs_a_model_builds_one(options: dict[str, Any]) -> None:
    loop = Setting(contexts=1).loop(**options)
    loop.ask(context=[0.5])
    engine, models = loop._chooser._engines()
    assert engine is models
    assert math.isfinite(float(loop.ask(context=[0.5]).x))

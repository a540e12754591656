"""Each round against dense algebra, and loops that are opened again, on tables of settings."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
from botorch.acquisition import UpperConfidenceBound
from gpytorch.kernels import MaternKernel, RBFKernel
from pairwise import by_day, pairwise
from records import assert_same, entries_of, rebuilt

from botorch_bandits import (
    BanditGP,
    BanditLoop,
    CandidatesUpperConfidenceBound,
    Censored,
    ChangePointDetector,
    ChangePointRestart,
    DMMUpperConfidenceBound,
    EvidenceRestart,
    FittedSingleTaskGP,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    LogExpectedImprovement,
    MultiplicativeEpochs,
    NeverRestart,
    RandomizedUpperConfidenceBound,
    RandomSearch,
    TopTwoThompsonSampling,
)
from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.core import round_posterior
from botorch_bandits.history import Event, Failure, History, Outcome, Query, Retraction

from .rounds import CENSORED, FORGETTING, MINIMUM, RETRACTED, RULES, SPAN, Dense, Setting

pytestmark = pytest.mark.filterwarnings("ignore")

PLACES = [("arms", "igp"), ("arms", "draws"), ("arms", "ucb"), ("box", "igp"), ("box", "draws")]
FEEDBACK = ("at once", "pending", "ignored", *CENSORED)
SPECIAL = (
    *("nothing", "counts", "noises", "failures", "retractions", "available", "costs", "restart"),
    *("prior mean", "attached"),
)


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


def play(setting: Setting, rounds: int, path: Path, **options: Any) -> BanditLoop:
    """Play rounds, and three more by loops that have only the file or the history."""
    live = setting.loop(storage=path / "run.db", **options)
    loops = [live]
    for t in range(rounds + 3):
        if t == rounds:
            with closing(sqlite3.connect(path / "run.db")) as file:
                file.execute("vacuum into ?", (str(path / "copy.db"),))
            opened = setting.loop(storage=path / "copy.db", **options)
            loops += [opened, rebuilt(setting.loop(**options), live.history)]
            if setting.special in RETRACTED and setting.rule != "every round":
                loops.insert(2, rebuilt(setting.loop(**options), with_failures(live.history)))
        for loop in loops:
            setting.tell(loop)
            query = setting.ask(loop)
            if not options and query.origin == "acquisition":
                Dense(setting, loop, query).check()
    for loop in loops[1:]:
        if loop.history.num_retracted:
            assert_same(loop.history.to_records(), live.history.to_records())
        for ours, theirs in zip(loop.history.queries, live.history.queries, strict=True):
            assert ours.x.tolist() == pytest.approx(theirs.x.tolist(), abs=1e-6)
            assert ours.origin == theirs.origin
        assert loop.resets == live.resets
        assert loop.multipliers == pytest.approx(live.multipliers)
        assert str(loop.change_tests) == str(live.change_tests)
    live.close()
    opened.close()
    return live


@pytest.mark.parametrize(
    "setting", by_day(SETTINGS, every=3), ids=lambda s: "-".join(map(str, astuple(s)))
)
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
    ids=lambda s: "-".join(map(str, astuple(s))),
)
@pytest.mark.parametrize("way", ["columns only", "some rows first"])
def test_few_arms_take_the_ways_that_pay_on_many(
    setting: Setting, way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Beyond the largest matrix only columns of played arms are kept; variances are screened."""
    if way == "columns only":
        monkeypatch.setattr("botorch_bandits.core.priors.LARGEST_MATRIX", 5)
    else:
        monkeypatch.setattr(round_posterior, "FEW_OPERATIONS", 0)
        monkeypatch.setattr(round_posterior, "TELLING_ROWS", 4)
        monkeypatch.setattr(round_posterior, "FIRST_CANDIDATES", 2)
    play(setting, 20, tmp_path)


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
    "two norms": (
        Setting(feedback="pending"),
        {"acquisition": DMMUpperConfidenceBound.with_options(rkhs_bound=1.0, noise_bound=0.1)},
    ),
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
    "random widths": (
        Setting(contexts=1),
        {"acquisition": RandomizedUpperConfidenceBound.with_options()},
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
ON_ARMS = ("leaders", "random widths")


@pytest.mark.parametrize("domain", ["arms", "box"])
@pytest.mark.parametrize("name", UNKNOWN)
def test_other_loops_go_on_as_well(name: str, domain: str, tmp_path: Path) -> None:
    setting, options = UNKNOWN[name]
    if domain == "arms" or name not in ON_ARMS:
        play(setting.on(domain), 14 if domain == "arms" else 7, tmp_path, **options)


@pytest.mark.parametrize("name", ["a detector", "detectors of constraints"])
def test_changes_are_seen_before_and_after_opening(name: str, tmp_path: Path) -> None:
    setting, options = UNKNOWN[name]
    live = play(setting, 36, tmp_path, **options)
    assert live.resets

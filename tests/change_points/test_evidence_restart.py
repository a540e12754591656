"""Loops and replicates that begin anew by the evidence of all outcomes."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

from botorch_bandits import (
    BanditGP,
    BanditLoop,
    Box,
    CandidatesUpperConfidenceBound,
    EvidenceDetector,
    EvidenceRestart,
    FittedSingleTaskGP,
    Ignored,
)
from botorch_bandits.confidence import check_model
from botorch_bandits.running import NoGain
from tests.records import rebuilt

from .streams import GRID, PRIOR, UCB, assert_tests_as

BOX = Box([[0.0], [5.0]])


def loop_with(restart, domain=GRID, **settings):
    return BanditLoop(domain, PRIOR, UCB, restart=restart, seed=0, **settings)


def play(loop, num_rounds, change=20, first=0, count=1):
    """Every other outcome is the mean of ``count``."""
    for n in range(first, num_rounds):
        query, given = loop.ask(), count if n % 2 else 1
        noise = 0.05 * float(torch.randn((), generator=torch.Generator().manual_seed(n)))
        mean = (-1.0 if n >= change else 1.0) * math.sin(float(query.x[0]))
        loop.tell(query.id, mean + noise / math.sqrt(given), count=given)


@pytest.mark.parametrize("domain", [GRID, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("keep", ["since_change", "nothing"])
def test_a_loop_begins_anew_soon_after_a_change(domain, keep):
    loop = loop_with(EvidenceRestart(keep=keep), domain)
    play(loop, 26)
    (reset,) = loop.resets
    assert 21 <= reset.after_round <= 25
    assert reset.reason == "detection"
    assert reset.quantity == "reward"
    assert reset.statistic >= reset.threshold == pytest.approx(3.4934, abs=1e-4)
    assert abs(reset.change_round - 21) <= 2
    kept = reset.after_round - reset.change_round + 1 if keep == "since_change" else 0
    assert reset.num_kept == kept
    assert reset.num_dropped == reset.after_round - kept
    assert loop.current_model().num_observations == 26 - reset.after_round + kept
    test = loop.change_tests[reset.after_round - 1]
    assert (test.detected, test.half_size, test.quantity) == (True, None, "evidence")
    assert test.change_round == reset.change_round
    # everything follows from the history
    twin = rebuilt(loop_with(EvidenceRestart(keep=keep), domain), loop.history)
    assert twin.resets == loop.resets
    assert twin.change_tests == loop.change_tests
    # on a box, within the digits of its search
    torch.testing.assert_close(twin.ask().x, loop.ask().x, rtol=0.0, atol=1e-6)


FORMS = {
    "plain": {"robust": False},
    "drift": {"drift_rate": 0.005},
    "robust list": {"candidates": [PRIOR, BanditGP.with_kernel(RBFKernel(), noise=0.01)]},
    "ball": {"robust": False, "rkhs_bound": 3.0, "noise_bound": 0.05},
    "keep": {"keep": "nothing"},
}


@pytest.mark.parametrize("domain", [GRID, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("form", FORMS)
def test_a_loop_tests_as_the_detector_alone_does(form, domain, tmp_path):
    restart = EvidenceRestart(**FORMS[form])
    loop = loop_with(restart, domain, storage=tmp_path / "run.db")
    play(loop, 24, count=9)
    loop.close()
    loop = loop_with(restart, domain, storage=tmp_path / "run.db")  # goes on
    play(loop, 32, first=24, count=9)
    assert [20 < reset.after_round <= 30 for reset in loop.resets] == [True]
    settings = dict(FORMS[form])
    models, keep = settings.pop("candidates", None), settings.pop("keep", "since_change")
    detector = EvidenceDetector(**settings)
    assert_tests_as(detector.on(domain, models or PRIOR), loop, keep)
    loop.close()
    changed = EvidenceRestart(**{**FORMS[form], "alpha": 0.002})
    with pytest.raises(ValueError, match=r"restart.alpha: was"):
        loop_with(changed, domain, storage=tmp_path / "run.db")


def test_late_outcomes_from_before_the_change_are_ignored():
    loop = loop_with(EvidenceRestart(), feedback=Ignored())
    early = loop.ask()
    play(loop, 26, first=1)
    (reset,) = loop.resets
    num_tests = len(loop.change_tests)
    late = loop.ask()
    loop.tell(early.id, 0.3)
    assert len(loop.change_tests) == num_tests
    rows = loop.current_model().num_observations
    assert rows == loop.history.num_arrived - 1 - (reset.change_round - 2)
    loop.tell(late.id, 0.1)
    assert len(loop.change_tests) == num_tests + 1


CANDIDATES = [
    BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.0025, lengthscale=lengthscale)
    for lengthscale in (0.5, 1.0, 2.0)
]


def test_candidates_stand_for_hyperparameters_that_are_learned():
    learned = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=1.0, refit_every=10)
    with pytest.raises(ValueError, match="Pass EvidenceRestart\\(candidates="):
        BanditLoop(GRID, learned, UCB, restart=EvidenceRestart())
    with pytest.raises(ValueError, match="learned or unknown"):
        BanditLoop(BOX, FittedSingleTaskGP, UCB, restart=EvidenceRestart())
    restart = EvidenceRestart(robust=False, candidates=CANDIDATES)
    assert restart == EvidenceRestart(robust=False, candidates=BanditGP.with_candidates(CANDIDATES))
    for num_rounds in (24, 13):
        loop = BanditLoop(GRID, learned, UCB, restart=restart, seed=0)
        play(loop, num_rounds, change=12)
        if num_rounds == 24:
            assert 13 <= loop.resets[0].after_round <= 16
    # the first segment's weights are those of the marginal likelihoods of its outcomes
    fits = [check_model(prior(*loop.history.arrived())).log_likelihood for prior in CANDIDATES]
    expected = torch.softmax(torch.tensor(fits), 0).tolist()
    *earlier, last = loop.change_tests
    assert last.candidate_weights == pytest.approx(expected, abs=1e-5)
    assert len(earlier) == 12
    assert all(test.candidate_weights == () for test in earlier)  # so that memory does not grow


def test_outcomes_that_chose_the_list_are_not_tested():
    listed = BanditGP.with_candidates(CANDIDATES, num_skipped=6)
    acquisition = CandidatesUpperConfidenceBound.with_options(delta=0.1)
    loop = BanditLoop(GRID, listed, acquisition, restart=EvidenceRestart(robust=False), seed=0)
    play(loop, 30, change=15)
    assert loop.resets[0].after_round in range(16, 20)
    stream = EvidenceDetector(robust=False).on(GRID, listed)
    assert_tests_as(stream, loop, num_skipped=6)
    text = loop.guarantee().explain(10_000)
    assert "given the first 6 outcomes, which are not tested, before a change" in text
    assert "if the prior is one of the candidates" in text


def test_rules_that_stop_without_gain_and_the_best_count_from_the_same_round():
    loop = loop_with(EvidenceRestart())
    play(loop, 26)
    (reset,) = loop.resets
    assert reset.num_kept >= 1
    assert reset.num_before == reset.after_round - reset.num_kept == reset.change_round - 1
    told = list(zip(loop.history.queries, loop.history.outcomes, strict=True))[reset.num_before :]
    query, outcome = max(told, key=lambda pair: pair[1].reward)
    best = loop.best()
    assert best is not None
    assert (best[0].id, best[1].reward) == (query.id, outcome.reward)
    assert NoGain(25 - query.id)(loop) is not None
    assert NoGain(26 - query.id)(loop) is None


def test_the_guarantee_says_what_is_claimed_of_false_alarms():
    texts = {
        name: loop_with(EvidenceRestart(**settings)).guarantee().explain(10_000)
        for name, settings in {
            "since": {},
            "nothing": {"keep": "nothing"},
            "drift": {"drift_rate": 0.01},
            "ball": {"robust": False, "rkhs_bound": 3.0, "noise_bound": 0.05},
        }.items()
    }
    of_ball = texts.pop("ball")
    assert "segment k raises an alarm with probability at most 0.0304 / k^2" in of_ball
    assert "norm less the prior mean is at most 3 and 0.05-sub-Gaussian noise" in of_ball
    assert "retractions, counts and noise variances do not depend" in of_ball
    assert "approximately" not in of_ball
    assert all("probability at most 0.0304, on average over the prior" in t for t in texts.values())
    others = "attached points, counts, noise variances and available points reveal nothing"
    assert all(others in t for t in texts.values())
    assert (
        "if the estimated change is the true change, and approximately otherwise" in texts["since"]
    )
    assert "later segments keep their levels approximately" in texts["nothing"]
    assert "the function is a draw from it that drifts at the rate 0.01" in texts["drift"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"keep": "all"}, "keep is 'all'"), ({"candidates": []}, "candidates is empty")],
)
def test_settings_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        EvidenceRestart(**arguments)

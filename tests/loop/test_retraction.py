"""An outcome that is withdrawn: on record, and out of everything that is derived from outcomes."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    ChangePointDetector,
    ChangePointRestart,
    DMMUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    MultiplicativeEpochs,
    PrimalDual,
    RandomSearch,
)
from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.cli import main
from botorch_bandits.constraints import MultiplierOverflowError
from botorch_bandits.history import Retraction
from botorch_bandits.penalties import Exponential

NUM_ARMS = 15
ARMS = Arms(torch.linspace(0.0, 1.0, NUM_ARMS, dtype=torch.float64).unsqueeze(-1))
MODEL = BanditGP.with_kernel(RBFKernel(), noise=0.05, lengthscale=0.3)
IGP_UCB = ImprovedUpperConfidenceBound.with_options(
    rkhs_bound=1.0, noise_bound=0.1, any_lambda=True
)
DETECTOR = ChangePointDetector(
    RBFKernel(), lengthscale=0.3, threshold=PowerThreshold(scale=1.0, exponent=-0.8)
)
WEIGHED = LagrangianUpperConfidenceBound.with_options(width=2.0)


def build(domain, settings, **more) -> BanditLoop:
    given = {"model": MODEL, "acquisition": IGP_UCB, "seed": 4}
    return BanditLoop(domain, **{**given, **settings, **more})


def test_a_detection_that_the_outcome_made_is_undone():
    loop = build(ARMS, {"restart": ChangePointRestart(detector=DETECTOR, split_delta=False)})
    while not loop.resets:
        query = loop.ask()
        is_wrong = query.origin == "exploration" and query.round_number > 10
        loop.tell(query.id, 100.0 if is_wrong else math.sin(6.0 * float(query.x)))
    loop.retract(query.id, "the decimal point")
    assert loop.resets == ()
    assert not any(reading.detected for reading in loop.change_tests)
    loop.ask()


def test_ledger_multipliers_and_best_forget_the_outcome():
    loop = build(ARMS, {"constraints": AdditiveEpochs(1, 2, step_size=1.0)})
    for reward, value in ((0.1, -0.5), (9.0, -0.1), (0.5, 40.0), (0.2, 0.3)):
        loop.tell(loop.ask().id, reward, [value])
    loop.ask()
    assert loop.multipliers[0] > 20.0
    loop.retract(2, "the strain gauge had come off")
    assert loop.multipliers == pytest.approx((0.15,))
    loop.retract(1, "likewise")
    assert [record["num_outcomes"] for record in loop.ledger().to_records()][:2] == [1, 1]
    assert loop.best()[1].reward == 0.1
    loop.ask()


def test_bounds_that_were_computed_with_it_move_no_multiplier():
    rule = PrimalDual(1, max_multiplier=500.0, divisor=2.0)
    loop = build(ARMS, {"constraints": rule, "acquisition": WEIGHED})
    for value in (-0.5, 1000.0, 0.2, 0.2):
        loop.tell(loop.ask().id, 0.1, [value])
    loop.ask()
    assert loop.multipliers[0] > 100.0
    loop.retract(1, "the strain gauge had come off")
    bounds = [q.diagnostics["constraint_lower_bound_1"] for q in loop.history.queries]
    expected = 0.0
    for bound in bounds[:2]:  # rounds 3 to 5 were chosen with the outcome; the update comes later
        expected = max(expected + bound / 2.0, 0.0)
    loop.ask()
    assert loop.multipliers == pytest.approx((expected,))


def test_what_was_told_stays_on_record():
    loop = build(ARMS, {"constraints": AdditiveEpochs(2, 5)})
    for reward in (0.5, 70.0, 0.25):
        loop.tell(loop.ask().id, reward, [-0.1, -reward])
    retraction = loop.retract(1, "grams in place of kilograms", at=6.0)
    history = loop.history
    assert isinstance(retraction, Retraction)
    assert history.retraction(1) is retraction
    assert history.retractions == (retraction,)
    assert (retraction.outcome.reward, retraction.outcome.constraints) == (70.0, (-0.1, -70.0))
    assert (retraction.arrived_round, retraction.retracted_round) == (2, 3)
    assert (retraction.arrived_at, retraction.retracted_at) == (retraction.outcome.arrived_at, 6)
    assert (history.outcome(1), history.failure(1)) == (None, None)
    assert (history.num_arrived, history.num_failed, history.num_pending) == (2, 0, 0)
    assert history.num_retracted == 1
    assert history.events[1] is retraction
    assert history.arrived()[1].squeeze(-1).tolist() == [0.5, 0.25]
    assert history.constraints().tolist() == [[-0.1, -0.5], [-0.1, -0.25]]
    assert "3 queries, 2 arrived, 1 retracted" in repr(loop)
    record = history.to_records()[1]
    assert (record["state"], record["reward"], record["constraints"]) == ("retracted", None, None)
    assert record["retracted_reward"] == 70.0
    assert record["retracted_constraints"] == [-0.1, -70.0]
    assert record["reason"] == "grams in place of kilograms"
    frame = history.to_dataframe()
    assert frame["state"].tolist() == ["told", "retracted", "told"]
    assert frame["retracted_reward"].dropna().tolist() == [70.0]
    assert frame["retracted_constraint1"].dropna().tolist() == [-70.0]
    assert frame["reward"].max() == 0.5
    assert [len(history.pending_in(t)) for t in (1, 2, 3, 4)] == [0, 0, 0, 0]


def test_what_cannot_be_retracted():
    loop = build(ARMS, {})
    told, failed, pending = (loop.ask() for _ in range(3))
    loop.tell(told.id, 0.5)
    loop.fail(failed.id, "the oven broke")
    for query_id, reason, error, words in (
        (9, "wrong", KeyError, "query_id 9 was never"),
        (pending.id, "wrong", ValueError, r"query_id 2 is pending.*fail"),
        (failed.id, "wrong", ValueError, "query_id 1 is failed"),
        (told.id, "", ValueError, r"reason is .*; say"),
        (told.id, "  \n", ValueError, r"reason is .*; say"),
        (told.id, None, TypeError, "reason must be"),
    ):
        with pytest.raises(error, match=words):
            loop.retract(query_id, reason)
    assert loop.history.num_retracted == 0
    loop.retract(told.id, "the wrong sample")
    with pytest.raises(ValueError, match=r"query_id 0 is retracted.*was"):
        loop.retract(told.id, "the wrong sample")
    for reward in (0.5, 0.7):
        with pytest.raises(ValueError, match=r"retraction is final. Attach"):
            loop.tell(told.id, reward)
    with pytest.raises(ValueError, match="already retracted; only"):
        loop.fail(told.id)
    assert loop.attach(told.x, 0.7).query_id == 3
    assert loop.history.num_retracted == 1


def test_the_guarantee_says_what_it_rests_on():
    loop = build(ARMS, {})
    for reward in (0.1, 0.2, 40.0):
        loop.tell(loop.ask().id, reward)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            loop.tell(loop.ask().id, 0.1)
    before = loop.guarantee()
    loop.retract(2, "a typing error")
    after = loop.guarantee()
    assert after.holds
    assert (after.regret.num_rounds, after.regret.num_others) == (3, 2)
    line, rounds = sorted(set(after.assumptions) - set(before.assumptions))
    assert line.startswith("1 outcome was retracted (query_id 2)")
    assert "which outcomes are kept does not depend on their noise" in line
    assert "rounds 4 to 5, chosen with what was retracted later" in rounds
    assert f"assumes: {line}" in after.explain(10_000)
    loop.tell(loop.ask().id, 0.1)
    loop.retract(5, "likewise")
    line = "2 outcomes were retracted (query_id 2, 5)"
    for _ in range(2):
        assert any(each.startswith(line) for each in loop.guarantee().assumptions)
        loop.ask()


def test_a_refutation_by_what_was_retracted_is_none():
    recipe = DMMUpperConfidenceBound.with_options(rkhs_bound=1.0, noise_bound=0.1)
    loop = build(ARMS, {"acquisition": recipe})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for reward in (0.1, 1e6, 0.2):
            loop.tell(loop.ask().id, reward)
        assert any("refuted" in gap for gap in loop.guarantee().gaps)
    loop.retract(1, "a typing error")
    assert not any("refuted" in gap for gap in loop.guarantee().gaps)


@pytest.mark.filterwarnings("ignore::botorch_bandits.constraints.NoisyConstraintsWarning")
def test_a_storage_whose_multipliers_overflow_can_be_opened_to_withdraw_more(tmp_path):
    settings = {
        "domain": ARMS,
        "model": None,
        "acquisition": RandomSearch(),
        "constraints": MultiplicativeEpochs(1, 2, penalty=Exponential(1.0)),
        "storage": tmp_path / "run.db",
    }
    with BanditLoop(**settings) as loop:
        for value in (-200.0, 100.0) * 20:
            loop.tell(loop.ask().id, 0.5, [value])
        for query_id in range(0, 40, 2):  # these held the multiplier down
            loop.retract(query_id, "another unit")
    with pytest.warns(RuntimeWarning, match=r"multipliers overflow.*Withdraw them"):
        loop = BanditLoop(**settings)
    with loop:
        with pytest.raises(MultiplierOverflowError):
            loop.ask()
        for query_id in range(1, 40, 2):
            loop.retract(query_id, "another unit")
        assert loop.ask().id == 40


def test_show_prints_what_was_retracted(tmp_path, capsys):
    path = tmp_path / "run.db"
    settings = {"constraints": AdditiveEpochs(1, 2, step_size=1.0)}
    with build(ARMS, settings, storage=path) as loop:
        for reward in (0.5, 7000.0, 0.25, 0.125):
            loop.tell(loop.ask().id, reward, [0.3])
        loop.ask()
        loop.retract(1, "grams in place\nof kilograms")
        loop.ask()
    assert main(["show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "3 told, 2 pending, 0 failed, 1 retracted" in shown
    assert "round 2 was retracted: grams in place of kilograms" in shown
    assert any(line.split()[:2] == ["2", "retracted"] for line in shown.splitlines())
    assert "0.5 in round 1" in shown

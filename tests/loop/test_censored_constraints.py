"""Censored feedback in loops with constraints, against dense models of the penalized outcome."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel
from records import assert_same

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
    MultiplicativeEpochs,
    OracleRestart,
)
from botorch_bandits.checks import LARGEST_OUTCOME
from botorch_bandits.penalties import Polynomial

ARMS = Arms(torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1))
BOX = Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
LENGTHSCALE, NOISE = 0.3, 0.2
MINIMUM, BOUND, PAIRS = -1.0, 3.0, ((-0.7, 0.8), (-0.8, 0.6))
B, R, DELTA = 1.5, 0.1, 0.1
RULES = {
    "additive": AdditiveEpochs(2, 4, step_size=3.0),
    "fresh": AdditiveEpochs(2, 4, step_size=3.0, surrogate="fresh"),
    "multiplicative": MultiplicativeEpochs(2, 4, penalty=Polynomial(1.0, 2.0)),
}
UCB = ImprovedUpperConfidenceBound.with_options(
    rkhs_bound=B, noise_bound=R, delta=DELTA, any_lambda=True
)
THOMPSON = GPThompsonSampling.with_options(
    rkhs_bound=B, noise_bound=R, delta=DELTA, any_lambda=True
)


def build(rule, domain=ARMS, acquisition=UCB, **others):
    feedback = Censored(MINIMUM, BOUND, max_delay=6, constraint_bounds=PAIRS)
    model = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE)
    given = {"feedback": feedback, "constraints": rule, "seed": 3, "clock": lambda: 0.0}
    return BanditLoop(domain, model, acquisition, **{**given, **others})


def outcome_at(x):
    return math.sin(5.0 * x) + 0.5, [x - 0.6, 0.3 - x]


def go_on(loop, num_rounds):
    """Three workers; every fifth query never ends."""
    for _ in range(num_rounds):
        loop.ask()
        waiting = [q for q in loop.history.pending() if q.id % 5 != 4]
        if len(waiting) > 2:
            reward, values = outcome_at(float(waiting[0].x[0]))
            loop.tell(waiting[0].id, reward, constraints=values)


def penalized(rule, reward, values, kappa):
    """Algorithm 3 charges ``kappa g``, Algorithm 2 ``kappa (psi(g) - 1)``."""
    if isinstance(rule, AdditiveEpochs):
        charges = values
    else:
        charges = [(1.0 + max(g, 0.0)) ** 2 - 1.0 for g in values]
    return reward - sum(k * c for k, c in zip(kappa, charges, strict=True))


def kernel(A, C):
    return torch.exp(-0.5 * (A - C.T).square() / LENGTHSCALE**2)


@pytest.mark.parametrize("name", ["additive", "multiplicative"])
def test_each_round_is_the_one_of_a_dense_computation(name):
    rule, changed = RULES[name], 0
    loop = build(rule)
    for t in range(1, 22):
        history = loop.history
        records = list(history.queries)
        told = {o.query_id: o for o in history.outcomes}
        query = loop.ask()
        known = query.diagnostics
        kappa = [known["multiplier_1"], known["multiplier_2"]]
        changed += kappa != [0.0, 0.0] and t > 4
        low = penalized(rule, MINIMUM, [high for _, high in PAIRS], kappa)
        size = penalized(rule, MINIMUM + BOUND, [least for least, _ in PAIRS], kappa) - low
        rows = [told.get(q.id) for q in records]
        # late ones are lost: here none is told later than six rounds after it was asked
        y = [low if o is None else penalized(rule, o.reward, o.constraints, kappa) for o in rows]
        X = torch.stack([q.x for q in records]) if records else torch.zeros(0, 1).double()
        Y = torch.tensor(y, dtype=torch.float64).unsqueeze(-1) - low
        K = kernel(X, X) + NOISE * torch.eye(len(X), dtype=torch.float64)
        k = kernel(X, ARMS.choices)
        mean = low + (k.T @ torch.linalg.solve(K, Y)).squeeze(-1)
        solved = torch.linalg.solve(K, k)
        deviation = (1.0 - (k * solved).sum(0)).clamp_min(0.0).sqrt()
        arm = int(ARMS.index_of(query.x.unsqueeze(0))[0])
        assert known["mean"] == pytest.approx(float(mean[arm]), abs=1e-8)
        assert known["standard_deviation"] == pytest.approx(float(deviation[arm]), abs=1e-8)
        gain = 0.5 * float(torch.logdet(K / NOISE)) if len(X) else 0.0
        young = [
            i for i, o in enumerate(rows) if o is None and i >= len(rows) - 6 + 1
        ]  # not yet six rounds old
        arms = ARMS.index_of(X[young]) if young else []
        sums = float(sum(deviation[int(a)] for a in arms))
        epoch = sum(1 for s in range(2, t + 1) if (s - 1) % 4 == 0) + 1
        delta = rule.delta(DELTA, epoch, None)
        noise = R * float(rule.noise_factor(torch.tensor(kappa, dtype=torch.float64)))
        radius = math.sqrt(2.0 * (gain + math.log(2.0 / delta)) / NOISE)
        width = size / NOISE * sums + B + (noise + size) * radius
        assert known["width"] == pytest.approx(width, rel=1e-8)
        bounds = mean + width * deviation
        assert float(bounds[arm]) >= float(bounds.max()) - 1e-7 * float(bounds.abs().max())
        waiting = [q for q in loop.history.pending() if q.id % 5 != 4]
        if len(waiting) > 2:
            reward, values = outcome_at(float(waiting[0].x[0]))
            loop.tell(waiting[0].id, reward, constraints=values)
    assert changed  # multipliers were not 0


@pytest.mark.parametrize("acquisition", [UCB, THOMPSON], ids=["ucb", "thompson"])
@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("name", RULES)
@pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.OptimizationWarning")
def test_a_journal_brings_it_back(name, domain, acquisition, tmp_path):
    whole = build(RULES[name], domain, acquisition, journal=tmp_path / "whole.journal")
    go_on(whole, 11)
    records = whole.history.to_records()
    whole.close()
    again = build(RULES[name], domain, acquisition, journal=tmp_path / "whole.journal")
    assert again.history.to_records() == records
    assert again.settings.feedback.constraint_bounds == PAIRS
    other = build(RULES[name], domain, acquisition)
    go_on(other, 11)
    go_on(again, 4)
    go_on(other, 4)
    assert_same(again.history.to_records(), other.history.to_records())
    again.close()
    guarantee = other.guarantee()
    assert not guarantee.holds
    assert any("censored feedback with constraints" in gap for gap in guarantee.gaps)


def test_with_restarts_and_contexts():
    restart = OracleRestart((6,), split_delta=False)
    loop = build(RULES["additive"], restart=restart, context_dim=1)
    for t in range(10):
        query = loop.ask(context=[0.1 * t])
        assert all(map(math.isfinite, query.diagnostics.values()))
        if t % 3:
            reward, values = outcome_at(float(query.x[0]))
            loop.tell(query.id, reward, constraints=values)


def test_values_outside_of_the_bounds_are_refused_before_they_are_recorded():
    loop = build(RULES["additive"])
    query = loop.ask()
    with pytest.raises(ValueError, match=r"0\.7, outside its constraint_bounds"):
        loop.tell(query.id, 0.0, constraints=[0.0, 0.7])
    assert loop.history.num_arrived == 0
    loop.tell(query.id, 0.0, constraints=[0.8, 0.6])


def test_pseudo_values_too_large_for_the_model_are_refused():
    rule = MultiplicativeEpochs(1, 1, penalty=Polynomial(1.0, 2.0))
    side = 0.5 * math.sqrt(LARGEST_OUTCOME)
    loop = build(rule, feedback=Censored(0.0, 1.0, constraint_bounds=((-1.0, side),)))
    query = loop.ask()
    with pytest.raises(ValueError, match="penalized outcome of"):
        loop.tell(query.id, 0.0, constraints=[5.0])  # a multiplier of 36 follows
    assert loop.history.num_arrived == 0
    with pytest.raises(ValueError, match="at its first multipliers"):
        build(rule, feedback=Censored(0.0, 1.0, constraint_bounds=((-1.0, 3.0 * side),)))
    with pytest.raises(ValueError, match="at its first multipliers"):
        build(rule, feedback=Censored(0.0, 1.0, constraint_bounds=((-1.0, 1e300),)))


@pytest.mark.parametrize(
    ("feedback", "others", "message"),
    [
        (Censored(0.0, 1.0), {}, r"no constraint_bounds=, but there are 2"),
        (Censored(0.0, 1.0, constraint_bounds=((0.0, 1.0),)), {}, r"for 1 constraints, but .* 2"),
        (Censored(minimum_proxy=2.0, outcome_bound=1.0), {}, r"has minimum_proxy="),
        (Censored(0.0, 1.0, on_lower="lower"), {}, r"has on_lower='lower'"),
        (Censored(0.0, 1.0, constraint_bounds=PAIRS), {"constraints": None}, r"no constraints"),
    ],
)
def test_what_does_not_go_together(feedback, others, message):
    with pytest.raises(ValueError, match=message):
        build(RULES["additive"], feedback=feedback, **others)


@pytest.mark.parametrize("pairs", [(), ((1.0, 0.0),), (1.0, 2.0), ((0.0, 1.0, 2.0),)])
def test_bounds_are_pairs(pairs):
    with pytest.raises(ValueError, match="constraint_bounds is"):
        Censored(0.0, 1.0, constraint_bounds=pairs)

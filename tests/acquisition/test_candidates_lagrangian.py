"""A penalized reward on lists of priors: values, certificates, coverage, and in the loop."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.optim import optimize_acqf
from models.textbook import double, log_likelihood, matern, posterior, uniform
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    CandidatesUpperConfidenceBound,
    EvidenceRestart,
    GPUpperConfidenceBound,
    PrimalDual,
)
from botorch_bandits.acquisition import CandidatesLagrangianUpperConfidenceBound
from botorch_bandits.confidence import RefutedListWarning
from botorch_bandits.models import candidate_grid
from botorch_bandits.penalties import Linear, Penalty, Polynomial

LENGTHS, SCALES, RATIO = (0.1, 0.4), (0.5, 2.0), 0.05
PRIORS = [(length, scale, RATIO * scale) for length in LENGTHS for scale in SCALES]
ARMS = Arms(torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1))
BOX = Box([(0.0, 1.0)])
SMOOTH = {"smoothness_a": 2.0, "smoothness_b": [3.0, 4.0, 5.0, 6.0]}
KAPPA = (0.7, 1.9)


def recipe() -> Any:
    return BanditGP.with_candidates(candidate_grid(LENGTHS, [RATIO], SCALES))


def rows(num_rows: int) -> tuple[Tensor, Tensor]:
    X = uniform(num_rows, 1, seed=1)
    Y = torch.cat([torch.sin(6.0 * X), X - 0.4, torch.cos(9.0 * X)], dim=-1)
    return X, Y + 0.1 * uniform(num_rows, 3, seed=2)


def bands(
    X: Tensor, y: Tensor, points: Tensor, level: float, width: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Bounds of the priors that survive at a level, and which these are, written out."""
    alive = torch.ones(len(PRIORS), dtype=torch.bool)
    for t in range(1, len(X) + 1):
        joint = [log_likelihood(matern(2.5, le, s), X[:t], y[:t], noise) for le, s, noise in PRIORS]
        values = double(joint)
        evidence = torch.logsumexp(values - math.log(len(PRIORS)), 0) - values
        alive &= evidence < math.log(1.0 / level)
    found = [posterior(matern(2.5, le, s), X, y, noise, points) for le, s, noise in PRIORS]
    mean = torch.stack([m for m, _ in found])
    half = width.reshape(-1, 1) * torch.stack([c.diagonal().sqrt() for _, c in found])
    return (mean - half)[alive].amin(0), (mean + half)[alive].amax(0), alive


def widths(t: int, delta: float, on_box: bool, num_arms: int = 12) -> Tensor:
    """Of Theorem 1 or 2 at a level, one per prior."""
    if not on_box:
        beta = 2.0 * math.log(num_arms * t**2 * math.pi**2 / (6.0 * delta))
        return torch.full((len(PRIORS),), math.sqrt(beta), dtype=torch.float64)
    scales = double([s for _, s, _ in PRIORS])
    inner = t**2 * double(SMOOTH["smoothness_b"]) / scales.sqrt()
    inner = inner * math.sqrt(math.log(4.0 * 2.0 / delta))
    beta = 2.0 * math.log(2.0 * math.pi**2 * t**2 / (3.0 * delta)) + 2.0 * inner.log()
    return beta.sqrt()


@pytest.mark.parametrize("on_box", [False, True], ids=["arms", "box"])
@pytest.mark.parametrize("penalty", [Linear(), Polynomial(c=1.5, n=2.0)], ids=str)
def test_values_and_certificates_are_those_of_the_survivors(on_box: bool, penalty: Penalty) -> None:
    X, Y = rows(12)
    points = uniform(25, 1, seed=3)
    of_domain = {**SMOOTH, "dim": 1, "side_length": 1.0} if on_box else {"num_arms": 12}
    acqf = CandidatesLagrangianUpperConfidenceBound(
        recipe()(X, Y), multipliers=KAPPA, penalty=penalty, delta=0.6, **of_domain
    )
    share = 0.6 / 3.0
    each = [
        bands(X, Y[:, j], points, 0.5 * share, widths(13, 0.5 * share, on_box)) for j in range(3)
    ]

    def excess(x: Tensor) -> Tensor:
        return x if penalty.is_linear else (1.5 * x.clamp_min(0.0) + 1.0) ** 2 - 1.0

    expected = each[0][1] - sum(
        kappa * excess(lower) for kappa, (lower, _, _) in zip(KAPPA, each[1:], strict=True)
    )
    value = acqf(points.unsqueeze(-2))
    torch.testing.assert_close(value, expected, rtol=0.0, atol=1e-8)
    lower, upper = acqf.bounds(points)
    for j, (least, largest, alive) in enumerate(each):
        torch.testing.assert_close(lower[:, j], least, rtol=0.0, atol=1e-8)
        torch.testing.assert_close(upper[:, j], largest, rtol=0.0, atol=1e-8)
        assert acqf.parts[j].survivors.tolist() == alive.tolist()
    assert len({tuple(alive.tolist()) for _, _, alive in each}) > 1  # evidence of their own
    known = acqf.describe(points[4])
    assert known["lower_bound"] == pytest.approx(float(each[0][0][4]), abs=1e-8)
    for j in (1, 2):
        assert known[f"constraint_lower_bound_{j}"] == pytest.approx(float(lower[4, j]), abs=1e-12)
        assert known[f"constraint_upper_bound_{j}"] == pytest.approx(float(upper[4, j]), abs=1e-12)
    tail = 0.0
    if on_box:
        scales = double([s for _, s, _ in PRIORS])
        s = torch.stack([scales[alive].max().sqrt() for _, _, alive in each]) / 13**2
        tail = float(s[0] + sum(k * excess(one) for k, one in zip(KAPPA, s[1:], strict=True)))
        assert tail > 0.0
    regret = float(expected[4] - each[0][0][4]) + tail
    assert known["regret_bound"] == pytest.approx(regret, abs=1e-8)
    guarantee = acqf.guarantee()
    assert guarantee.holds
    assert f"Theorem {1 + on_box}, for reward and constraints at delta / 3 each" in str(guarantee)
    assert "reward and constraints are independent of each other" in str(guarantee)
    assert guarantee.violation is not None
    assert guarantee.violation.holds


def test_the_mixture_is_that_of_each_output() -> None:
    X, Y = rows(10)
    points = uniform(9, 1, seed=3)
    model = recipe()(X, Y)
    acqf = CandidatesLagrangianUpperConfidenceBound(
        model, multipliers=KAPPA, form="mixture", width=1.5
    )
    ends = []
    for j, sign in ((0, 1.0), (1, -1.0), (2, -1.0)):
        y = Y[:, j]
        found = [posterior(matern(2.5, le, s), X, y, noise, points) for le, s, noise in PRIORS]
        fits = [log_likelihood(matern(2.5, le, s), X, y, noise) for le, s, noise in PRIORS]
        p = torch.softmax(double(fits), 0).unsqueeze(-1)
        mean = torch.stack([m for m, _ in found])
        variance = torch.stack([c.diagonal() for _, c in found])
        m = (p * mean).sum(0)
        ends.append(m + sign * 1.5 * (p * (variance + (mean - m) ** 2)).sum(0).sqrt())
    expected = ends[0] - KAPPA[0] * ends[1] - KAPPA[1] * ends[2]
    torch.testing.assert_close(acqf(points.unsqueeze(-2)), expected, rtol=0.0, atol=1e-8)
    assert not acqf.guarantee().holds


def test_pending_points_choose_and_do_not_certify() -> None:
    X, Y = rows(12)
    points, pending = uniform(20, 1, seed=3), uniform(2, 1, seed=5)
    given: dict[str, Any] = {"multipliers": KAPPA, "num_arms": 12, "round_number": 15}
    plain = CandidatesLagrangianUpperConfidenceBound(recipe()(X, Y), **given)
    acqf = CandidatesLagrangianUpperConfidenceBound(recipe()(X, Y), **given, X_pending=pending)
    assert bool((acqf(points.unsqueeze(-2)) < plain(points.unsqueeze(-2))).all())
    assert torch.equal(acqf.bounds(points)[1], plain.bounds(points)[1])
    guarantee = acqf.guarantee()
    assert guarantee.bands is not None
    assert guarantee.bands.holds
    assert guarantee.regret is not None
    assert not guarantee.regret.holds
    # of constraints, the bounds at the chosen point count, which are those of what arrived
    assert guarantee.violation is not None
    assert guarantee.violation.holds
    for j in (1, 2):
        name = f"constraint_upper_bound_{j}"
        assert acqf.describe(points[0])[name] == plain.describe(points[0])[name]
    acqf.set_X_pending(None)
    assert acqf.guarantee().holds


def test_botorch_maximizes_and_copies_it() -> None:
    X, Y = rows(8)
    acqf = CandidatesLagrangianUpperConfidenceBound(recipe()(X, Y), multipliers=KAPPA, num_arms=9)
    found, value = optimize_acqf(acqf, double([[0.0], [1.0]]), 1, num_restarts=4, raw_samples=64)
    grid = torch.linspace(0.0, 1.0, 401, dtype=torch.float64).reshape(-1, 1, 1)
    assert float(value) >= float(acqf(grid).max()) - 1e-6
    assert 0.0 <= float(found) <= 1.0
    for twin in (copy.deepcopy(acqf), pickle.loads(pickle.dumps(acqf))):
        assert torch.equal(twin(grid), acqf(grid))


def test_a_list_that_one_output_refutes_is_named() -> None:
    X = torch.zeros(40, 1).double()
    noise = torch.randn(40, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    priors = [*candidate_grid([0.2], [1e-4]), *candidate_grid([0.2], [1.0], [1e4])]
    calm, loud = 1e-2 * noise[:20], 3.0 * noise[20:]
    # the constraint is first as one of them wants, then as neither does
    Y = torch.cat([1e-2 * noise, torch.cat([calm, loud])], dim=-1)
    model = BanditGP.with_candidates(priors)(X, Y)
    with pytest.warns(RefutedListWarning, match="all 2 priors on"):
        acqf = CandidatesLagrangianUpperConfidenceBound(model, multipliers=[1.0], num_arms=3)
    assert [part.is_refuted for part in acqf.parts] == [False, True]
    assert acqf.describe(X[0])["is_refuted"] == 1.0
    assert not acqf.guarantee().holds
    assert "constraint 1: after" in str(acqf.guarantee())


def draw(seed: int, prior: tuple[float, float, float], num_outputs: int) -> Tensor:
    length, scale, _ = prior
    covariance = matern(2.5, length, scale)(ARMS.choices, ARMS.choices)
    root = torch.linalg.cholesky(covariance + 1e-10 * torch.eye(12).double())
    generator = torch.Generator().manual_seed(seed)
    return root @ torch.randn(12, num_outputs, dtype=torch.float64, generator=generator)


def test_bounds_cover_and_certificates_hold() -> None:
    delta, num_runs, num_rounds = 0.5, 16, 12
    failed = {"bands": 0, "regret": 0, "violation": 0}
    for seed in range(num_runs):
        prior = PRIORS[seed % len(PRIORS)]
        f, g = draw(seed, prior, 2).unbind(-1)
        loop = BanditLoop(
            ARMS,
            recipe(),
            CandidatesLagrangianUpperConfidenceBound.with_options(delta=delta),
            constraints=AdditiveEpochs(1, epoch_length=4, surrogate="separate"),
            seed=seed,
        )
        noise = torch.Generator().manual_seed(1000 + seed)
        regret = violation = 0.0
        covered = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RefutedListWarning)
            for t in range(num_rounds):
                model = loop.current_model()
                bounds = CandidatesLagrangianUpperConfidenceBound(
                    model, multipliers=[0.0], num_arms=12, delta=delta, round_number=t + 1
                ).bounds(ARMS.choices)
                truth = torch.stack([f, g], dim=-1)
                covered &= bool(((bounds[0] <= truth) & (truth <= bounds[1])).all())
                query = loop.ask()
                arm = int(ARMS.index_of(query.x.unsqueeze(0)))
                level = math.sqrt(prior[2])
                told = [float(level * torch.randn((), generator=noise)) for _ in range(2)]
                loop.tell(query.id, float(f[arm]) + told[0], constraints=[float(g[arm]) + told[1]])
                if bool((g <= 0.0).any()):  # without a feasible arm nothing is said of regret
                    regret += float(f[g <= 0.0].max() - f[arm])
                violation += float(g[arm])
            guarantee = loop.guarantee()
        failed["bands"] += not covered
        if not guarantee.holds:  # the list was refuted
            continue
        assert guarantee.regret is not None
        assert guarantee.violation is not None
        assert guarantee.regret.num_rounds == num_rounds
        failed["regret"] += regret > (guarantee.regret.bound or 0.0)
        failed["violation"] += max(violation, 0.0) > (guarantee.violation.bound or 0.0)
    # of what fails with probability one half at most, 14 of 16 fail in 2 of 1000
    assert failed["bands"] < 14
    assert failed["regret"] < 14
    assert failed["violation"] < 14


RULES = [
    AdditiveEpochs(1, epoch_length=4, surrogate="separate"),
    PrimalDual(1, max_multiplier=2.0, divisor=4.0),
]


def loop_on(domain: Any, rule: Any, **settings: Any) -> BanditLoop:
    options = SMOOTH if domain is BOX else {}
    acquisition = CandidatesLagrangianUpperConfidenceBound.with_options(delta=0.2, **options)
    return BanditLoop(domain, recipe(), acquisition, constraints=rule, seed=0, **settings)


def play(loop: BanditLoop, num_rounds: int) -> None:
    for _ in range(num_rounds):
        query = loop.ask()
        x = float(query.x[0])
        loop.tell(query.id, math.sin(3.0 * x), constraints=[x - 0.6])


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("rule", RULES, ids=["epochs", "primal-dual"])
def test_a_loop_plays_the_bound_and_counts_its_certificates(domain: Any, rule: Any) -> None:
    loop = loop_on(domain, rule)
    play(loop, 9)
    X = torch.stack([query.x for query in loop.history.queries])
    rewards = double([outcome.reward for outcome in loop.history.outcomes])
    values = double([outcome.constraints[0] for outcome in loop.history.outcomes])
    query = loop.ask()
    kappa = query.diagnostics["multiplier_1"]
    grid = ARMS.choices
    if domain is BOX:
        grid = torch.linspace(0.0, 1.0, 401, dtype=torch.float64).unsqueeze(-1)
    points = torch.cat([grid, query.x.unsqueeze(0)])
    width = widths(10, 0.05, domain is BOX)
    _, upper, _ = bands(X, rewards, points, 0.05, width)
    lower, _, _ = bands(X, values, points, 0.05, width)
    scores = upper - kappa * lower
    assert float(scores[-1]) == pytest.approx(query.diagnostics["acquisition_value"], abs=1e-7)
    assert float(scores[-1]) >= float(scores[:-1].max()) - 1e-6
    loop.tell(query.id, 0.1, constraints=[0.0])
    guarantee = loop.guarantee()
    assert guarantee.holds, str(guarantee)
    known = [each.diagnostics for each in loop.history.queries]
    assert guarantee.regret is not None
    assert guarantee.regret.bound == pytest.approx(sum(each["regret_bound"] for each in known))
    assert guarantee.violation is not None
    expected = max(sum(each["constraint_upper_bound_1"] for each in known), 0.0)
    assert guarantee.violation.bound == pytest.approx(expected)
    tables = [loop.evidence(output=j) for j in (0, 1)]
    assert [len(table) for table in tables] == [4, 4]
    assert [table.level for table in tables] == [pytest.approx(0.05)] * 2
    least = loop.feasibility().constraints[0].smallest_lower_bound
    X = torch.stack([each.x for each in loop.history.queries])
    values = double([outcome.constraints[0] for outcome in loop.history.outcomes])
    lower, _, _ = bands(X, values, grid, 0.05, widths(11, 0.05, domain is BOX))
    assert least == pytest.approx(float(lower.min()), abs=1e-3 if domain is BOX else 1e-8)
    with pytest.raises(ValueError, match="output is 2, but"):
        loop.evidence(output=2)


def test_a_journal_goes_on_and_a_history_gives_the_same_loop(tmp_path: Path) -> None:
    whole = loop_on(ARMS, RULES[0])
    play(whole, 12)
    loop = loop_on(ARMS, RULES[0], journal=tmp_path / "run.journal")
    play(loop, 7)
    loop.close()
    loop = loop_on(ARMS, RULES[0], journal=tmp_path / "run.journal")
    play(loop, 5)
    twin = loop_on(ARMS, RULES[0], history=copy.deepcopy(whole.history))
    for other in (loop, twin):
        assert [q.x.tolist() for q in other.history.queries] == [
            q.x.tolist() for q in whole.history.queries
        ]
    assert torch.equal(twin.ask().x, whole.ask().x)


def test_contexts_initial_rounds_and_restarts_go_with_it() -> None:
    contexts = loop_on(BOX, RULES[1], context_dim=1, num_initial=2)
    for n in range(6):
        query = contexts.ask(context=[0.3 * (n % 2)])
        contexts.tell(query.id, float(query.x[0]), constraints=[float(query.x[0]) - 0.5])
    assert "constraint_lower_bound_1" in contexts.history.queries[0].diagnostics
    assert contexts.guarantee().holds
    loop = loop_on(ARMS, RULES[0], restart=EvidenceRestart(robust=False))
    play(loop, 6)
    assert len(loop.change_tests) == 6


def test_what_does_not_go_together_is_refused() -> None:
    ours = CandidatesLagrangianUpperConfidenceBound
    X, Y = rows(5)
    with pytest.raises(ValueError, match="multipliers has 1 entry"):
        ours(recipe()(X, Y), multipliers=[1.0], num_arms=12)
    with pytest.raises(ValueError, match="ModelList of 2 lists"):
        ours(recipe()(X, Y[:, :1]), multipliers=[1.0], num_arms=12)
    with pytest.raises(ValueError, match="exactly one width"):
        ours(recipe()(X, Y), multipliers=KAPPA, num_arms=12, width=2.0)
    with pytest.raises(ValueError, match="delta"):
        ours.with_options(delta=1.5)
    acquisition = ours.with_options()
    with pytest.raises(ValueError, match="the loop has none"):
        BanditLoop(ARMS, recipe(), acquisition)
    relabeled = AdditiveEpochs(1, epoch_length=4, surrogate="relabeled")
    with pytest.raises(ValueError, match="surrogate='separate'"):
        BanditLoop(ARMS, recipe(), acquisition, constraints=relabeled)
    one = BanditGP.with_candidates(candidate_grid([0.1]))
    with pytest.raises(TypeError, match="needs a list"):
        BanditLoop(ARMS, one.candidates[0], acquisition, constraints=RULES[0])
    clipped = PrimalDual(1, max_multiplier=2.0, divisor=4.0, reward_bound=3.0)
    with pytest.raises(ValueError, match="has reward_bound, at which"):
        BanditLoop(ARMS, recipe(), acquisition, constraints=clipped)
    for other in (CandidatesUpperConfidenceBound, GPUpperConfidenceBound):
        with pytest.raises(ValueError, match=r"surrogate='separate'|weigh them"):
            BanditLoop(ARMS, recipe(), other.with_options(), constraints=RULES[0])

"""Censored feedback where reward and constraints have models of their own.

A query without an outcome has the minimum as its reward and 0 as its constraint values: the share
of outcomes that arrive then scales each constraint about its border, which does not move.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.models import ModelListGP, SingleTaskGP
from gpytorch.kernels import RBFKernel
from records import assert_same
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    EvidenceRestart,
    ExponentialWeights,
    History,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    MultiplicativeEpochs,
    PrimalDual,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.acquisition import AffineOutcomes
from botorch_bandits.penalties import Polynomial

ARMS = Arms(torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1))
DOMAINS = {"arms": ARMS, "box": Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)}
LENGTHSCALE, NOISE, MAX_DELAY = 0.3, 0.2, 6
MINIMUM, BOUND, PAIRS = -1.0, 3.0, ((-0.7, 0.8), (-0.9, 0.6))
BOUNDS = (BOUND, 0.8, 0.9)  # how far each outcome can be from its pseudo-value
B, R, DELTA = 1.5, 0.1, 0.1
KNOWN = Censored(MINIMUM, BOUND, max_delay=MAX_DELAY, constraint_bounds=PAIRS)
RULES = {
    "epochs": AdditiveEpochs(2, 4, step_size=3.0, surrogate="separate"),
    "exact": MultiplicativeEpochs(2, 4, penalty=Polynomial(1.0, 2.0), surrogate="separate"),
    "rounds": PrimalDual(2, max_multiplier=2.0, divisor=4.0),
}
FORGETTING = {
    "none": None,
    "window": SlidingWindow(5),
    "weights": ExponentialWeights(0.8),
    "time": TimeVaryingKernel(0.1),
}
UCB = LagrangianUpperConfidenceBound.with_options(
    rkhs_bound=B, noise_bound=R, delta=DELTA, any_lambda=True
)
THOMPSON = LagrangianThompsonSampling.with_options(
    rkhs_bound=B, noise_bound=R, delta=DELTA, any_lambda=True
)
PRIOR = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE)


def build(rule: Any = RULES["epochs"], domain: Any = ARMS, **others: Any) -> BanditLoop:
    given: dict[str, Any] = {
        "model": PRIOR,
        "acquisition": UCB,
        "feedback": KNOWN,
        "constraints": rule,
        "seed": 3,
        "clock": lambda: 0.0,
    }
    return BanditLoop(domain, **{**given, **others})


def tell(loop: BanditLoop, shift: float = 0.0, sign: float = 1.0) -> None:
    """Tell the oldest of three that are under way; every fifth query never ends."""
    waiting = [q for q in loop.history.pending() if q.id % 5 != 4]
    if len(waiting) > 2:
        x = float(waiting[0].x[0])
        reward = math.sin(5.0 * x) + 0.5 + shift
        loop.tell(waiting[0].id, sign * reward, constraints=[x - 0.6, 0.3 - x])


def play(loop: BanditLoop, num_rounds: int, **others: float) -> None:
    for t in range(num_rounds):
        loop.ask(**({"context": [0.1 * t]} if loop.settings.context_dim else {}))
        tell(loop, **others)


def kernel(A: Tensor, C: Tensor) -> Tensor:
    return torch.exp(-0.5 * (A - C.T).square() / LENGTHSCALE**2)


def vector(values: Iterable[float | Tensor]) -> Tensor:
    return torch.tensor([float(each) for each in values], dtype=torch.float64)


def penalty(name: str, g: Tensor) -> Tensor:
    return (1.0 + g.clamp_min(0.0)).square() - 1.0 if name == "exact" else g


@pytest.mark.parametrize("name", RULES)
@pytest.mark.filterwarnings("ignore::botorch_bandits.constraints.InfeasibleConstraintsWarning")
def test_each_round_is_the_one_of_a_dense_computation(name: str) -> None:  # noqa: PLR0915 - one case after the other
    constant, kappas = 0.05 if name == "rounds" else None, set()
    narrow = LagrangianUpperConfidenceBound.with_options(width=constant)
    loop = build(RULES[name], acquisition=UCB if constant is None else narrow)
    pseudo = torch.tensor([MINIMUM, 0.0, 0.0], dtype=torch.float64)
    for _ in range(21):
        records = list(loop.history.queries)
        told = {o.query_id: (o.reward, *o.constraints) for o in loop.history.outcomes}
        # late ones are lost: here none is told later than six rounds after it was asked
        rows = [told.get(q.id, tuple(pseudo.tolist())) for q in records]
        X = torch.stack([q.x for q in records]) if records else torch.zeros(0, 1).double()
        Y = torch.tensor(rows, dtype=torch.float64).reshape(-1, 3) - pseudo
        K = kernel(X, X) + NOISE * torch.eye(len(X), dtype=torch.float64)
        k = kernel(X, ARMS.choices)
        mean = pseudo + k.T @ torch.linalg.solve(K, Y)
        variance = (1.0 - (k * torch.linalg.solve(K, k)).sum(0)).clamp_min(0.0)
        deviation = variance.sqrt().unsqueeze(-1)
        young = [i for i in range(len(X) - MAX_DELAY + 1, len(X)) if i >= 0 and i not in told]
        arms = ARMS.index_of(X[young]).tolist() if young else []
        total = float(sum(deviation[arm, 0] for arm in arms))
        gain = 0.5 * float(torch.logdet(K / NOISE)) if len(X) else 0.0
        radius = math.sqrt(2.0 * (gain + math.log(2.0 / (DELTA / 3))) / NOISE)
        widths = vector(b / NOISE * total + B + (R + b) * radius for b in BOUNDS)
        if constant is not None:
            widths = vector(b * total + constant for b in BOUNDS)

        query = loop.ask()
        known = query.diagnostics
        kappa = vector(known[f"multiplier_{j}"] for j in (1, 2))
        kappas.add(tuple(kappa.tolist()))
        if name == "epochs":  # one bound of the weighted sum
            weights, active = vector([1.0, *-kappa]), vector([1.0, *(kappa > 0.0)])
            width = (active * widths.square()).sum().sqrt()
            values = mean @ weights + width * (variance * weights.square().sum()).sqrt()
        else:
            lower = mean[:, 1:] - widths[1:] * deviation
            values = mean[:, 0] + widths[0] * deviation[:, 0]
            values = values - (penalty(name, lower) * kappa).sum(-1)
        arm = int(ARMS.index_of(query.x.unsqueeze(0))[0])
        assert known["mean"] == pytest.approx(float(mean[arm, 0]), abs=1e-8)
        assert known["width"] == pytest.approx(float(widths[0]), rel=1e-8)
        assert known["standard_deviation"] == pytest.approx(float(deviation[arm, 0]), abs=1e-8)
        for j in (1, 2):
            least = float(mean[arm, j] - widths[j] * deviation[arm, 0])
            assert known[f"constraint_mean_{j}"] == pytest.approx(float(mean[arm, j]), abs=1e-8)
            assert known[f"constraint_lower_bound_{j}"] == pytest.approx(least, rel=1e-8)
        assert known["acquisition_value"] == pytest.approx(float(values[arm]), rel=1e-8)
        assert float(values[arm]) >= float(values.max()) - 1e-7 * float(values.abs().max())
        if constant is None:
            tell(loop)
        elif query.id % 5 != 4:  # otherwise no lower bound would be positive
            loop.tell(query.id, 0.5, constraints=[0.8, -0.9])
    assert len(kappas) > 1
    after, model = loop.feasibility(), loop.current_model()
    rows_of_all = ARMS.choices.unsqueeze(-2)
    posterior = model.posterior(rows_of_all)
    widest = loop._chooser.acquisition_now(None, 0.0)[0].widths  # type: ignore[union-attr]
    for j, entry in enumerate(after.constraints, start=1):
        spread = float(widest[j]) * posterior.variance[:, 0, j].sqrt()  # type: ignore[index]
        least = float((posterior.mean[:, 0, j] - spread).min())  # type: ignore[index]
        assert entry.smallest_lower_bound == pytest.approx(least, rel=1e-8)


@pytest.mark.slow
def test_the_border_of_a_constraint_stays_where_it_is() -> None:
    """With half of the outcomes lost its model is about half of it; at another pseudo-value not."""
    loop = build(AdditiveEpochs(1, 50, surrogate="separate"), feedback=_one_constraint(max_delay=2))
    for t in range(180):
        query = loop.ask(available=[ARMS.choices[t % 9].tolist()])
        if (t // 9) % 2:
            x = float(query.x[0])
            loop.tell(query.id, 0.0, constraints=[2.0 * x - 1.1])
    mean = loop.current_model().posterior(ARMS.choices).mean[:, 1]
    true = 2.0 * ARMS.choices.squeeze(-1) - 1.1
    assert torch.equal(mean > 0.0, true > 0.0)
    assert float((mean - 0.5 * true).abs().max()) < 0.05
    censored_at_the_largest = 0.5 * true + 0.5 * 1.5
    assert not torch.equal(censored_at_the_largest > 0.0, true > 0.0)


def _one_constraint(**options: Any) -> Censored:
    return Censored(MINIMUM, BOUND, constraint_bounds=((-1.5, 1.5),), **options)


def in_turns() -> list[Any]:
    """Every pair of forgetting, domain and acquisition; what repeats pairs is marked as slow."""
    runs = []
    for i, j, k in product(range(len(FORGETTING)), range(2), range(2)):
        values = (list(FORGETTING)[i], list(DOMAINS)[j], ("ucb", "thompson")[k])
        marks: Any = [] if (i + j + k) % 2 == 0 else pytest.mark.slow
        runs.append(pytest.param(*values, id="-".join(values), marks=marks))
    return runs


@pytest.mark.slow
@pytest.mark.parametrize(("forgetting", "domain", "acquisition"), in_turns())
@pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.OptimizationWarning")
def test_a_journal_brings_it_back(
    forgetting: str, domain: str, acquisition: str, tmp_path: Path
) -> None:
    name = "epochs" if domain == "arms" else "rounds"
    drawn = acquisition == "thompson"
    given = {"acquisition": THOMPSON if drawn else UCB, "forgetting": FORGETTING[forgetting]}
    path = tmp_path / "run.journal"
    other = build(RULES[name], DOMAINS[domain], **given)
    play(other, 12)
    with build(RULES[name], DOMAINS[domain], journal=path, **given) as first:
        play(first, 9)
    with build(RULES[name], DOMAINS[domain], journal=path, **given) as again:
        assert again.settings.feedback == KNOWN
        play(again, 3)
        assert_same(again.history.to_records(), other.history.to_records())
    guarantee = other.guarantee()
    assert not guarantee.holds
    if forgetting == "none":
        assert any("censored feedback with constraints" in gap for gap in guarantee.gaps)


@pytest.mark.parametrize("acquisition", [UCB, THOMPSON], ids=["ucb", "thompson"])
def test_a_minimum_moved_with_the_rewards_changes_nothing(acquisition: Any) -> None:
    """Neither choices nor what evidence says of changes: constraints have the prior mean 0."""
    given = {"acquisition": acquisition, "restart": EvidenceRestart(), "context_dim": 1}
    low = build(RULES["rounds"], **given)
    moved = Censored(MINIMUM + 5.0, BOUND, max_delay=MAX_DELAY, constraint_bounds=PAIRS)
    high = build(RULES["rounds"], feedback=moved, **given)
    play(low, 12)
    play(high, 12, shift=5.0)
    for one, other in zip(low.history.queries, high.history.queries, strict=True):
        assert torch.equal(one.x, other.x)
        lower = "constraint_lower_bound_1"
        assert one.diagnostics[lower] == pytest.approx(other.diagnostics[lower], rel=1e-6)
    statistics = [[test.statistic for test in loop.change_tests] for loop in (low, high)]
    assert statistics[0]
    assert statistics[0] == pytest.approx(statistics[1], rel=1e-6)


def test_costs_are_rewards_in_the_other_sign() -> None:
    given = {"restart": EvidenceRestart()}
    high = build(**given)
    cost = Censored(-MINIMUM, BOUND, max_delay=MAX_DELAY, constraint_bounds=PAIRS)
    low = build(feedback=cost, maximize=False, **given)
    play(high, 10)
    play(low, 10, sign=-1.0)
    for one, other in zip(high.history.queries, low.history.queries, strict=True):
        assert torch.equal(one.x, other.x)


def fitted(X: Tensor, Y: Tensor) -> ModelListGP:
    """Both with the same prior, and no fit."""
    return ModelListGP(
        *(SingleTaskGP(X, y, outcome_transform=None) for y in Y.split(1, dim=-1)),
    )


@pytest.mark.parametrize("forgetting", ["none", "window"])
def test_on_a_users_model(forgetting: str) -> None:
    """Pseudo-values join what it made of the outcomes that came."""
    width = LagrangianUpperConfidenceBound.with_options(width=1.0)
    given = {"model": fitted, "acquisition": width, "forgetting": FORGETTING[forgetting]}
    loop = build(**given)
    play(loop, 10)
    assert {q.origin for q in loop.history.queries} == {"initial", "acquisition"}
    if forgetting == "none":
        model = loop.current_model()
        told = {o.query_id: (o.reward, *o.constraints) for o in loop.history.outcomes}
        rows = [told[i] for i in sorted(told)] + [(MINIMUM, 0.0, 0.0)] * (10 - len(told))
        found = torch.stack([each.train_targets for each in model.models], dim=-1)  # type: ignore
        assert torch.allclose(found.sum(0), torch.tensor(rows, dtype=torch.float64).sum(0))


def test_an_unknown_minimum_is_that_of_the_reward() -> None:
    feedback = Censored(
        minimum_proxy=1.5, outcome_bound=BOUND, max_delay=MAX_DELAY, constraint_bounds=PAIRS
    )
    loop = build(feedback=feedback)
    play(loop, 10)
    told = {o.query_id: o for o in loop.history.outcomes}
    order = [*told, *(q.id for q in loop.history.queries if q.id not in told)]
    X = torch.stack([loop.history.query(i).x for i in told])
    y = torch.tensor([o.reward for o in told.values()], dtype=torch.float64)
    K = kernel(X, X) + NOISE * torch.eye(len(X), dtype=torch.float64)
    k = kernel(X, X)
    mean = k @ torch.linalg.solve(K, y)
    deviation = (1.0 - (k * torch.linalg.solve(K, k)).sum(0)).sqrt()
    least = float((mean - 1.5 * deviation).min())
    reward, *constraints = loop.current_model().models  # type: ignore[union-attr, misc]
    missing = len(order) - len(told)
    assert reward.train_targets[-missing:].tolist() == pytest.approx([least] * missing, abs=1e-8)
    for each in constraints:
        assert each.train_targets[-missing:].tolist() == [0.0] * missing


def test_bounds_in_prior_deviations() -> None:
    """Those of constraints stay in their own units, in which their values are told."""
    scaled = BanditGP.with_kernel(_scaled(4.0), noise=4.0 * NOISE)
    prior = LagrangianUpperConfidenceBound.with_options(
        rkhs_bound=B, noise_bound=R, any_lambda=True, units="prior"
    )
    plain = LagrangianUpperConfidenceBound.with_options(
        rkhs_bound=2.0 * B, noise_bound=2.0 * R, any_lambda=True
    )
    in_prior = Censored(MINIMUM, BOUND / 2.0, max_delay=MAX_DELAY, constraint_bounds=PAIRS)
    one = build(model=scaled, acquisition=prior, feedback=in_prior)
    other = build(model=scaled, acquisition=plain)
    play(one, 9)
    play(other, 9)
    for ours, theirs in zip(one.history.queries, other.history.queries, strict=True):
        assert ours.diagnostics == pytest.approx(theirs.diagnostics, rel=1e-9)


def _scaled(scale: float) -> Any:
    from gpytorch.kernels import ScaleKernel

    outer = ScaleKernel(RBFKernel()).double()
    outer.outputscale = scale
    outer.base_kernel.lengthscale = LENGTHSCALE
    return outer


def test_a_history_goes_on_and_values_outside_the_bounds_are_refused() -> None:
    whole = build()
    play(whole, 8)
    records = whole.history.to_records()
    again = build(history=History.from_records(records, dim=1, num_constraints=2))
    assert torch.equal(again.ask().x, whole.ask().x)
    with pytest.raises(ValueError, match=r"0\.7, outside its constraint_bounds"):
        whole.tell(8, 0.0, constraints=[0.0, 0.7])


def test_without_bounds_a_constant_width_has_no_sum() -> None:
    loop = build(
        acquisition=LagrangianUpperConfidenceBound.with_options(width=2.0),
        feedback=Censored(MINIMUM, max_delay=MAX_DELAY),
    )
    play(loop, 8)
    assert {q.diagnostics["width"] for q in loop.history.queries} == {2.0}


@pytest.mark.parametrize(
    ("feedback", "others", "message"),
    [
        (
            Censored(0.0, 1.0),
            {},
            r"has no constraint_bounds=, but there are 2 constraints: .* from 0",
        ),
        (Censored(0.0, 1.0, constraint_bounds=((0.0, 1.0),)), {}, r"for 1, but there are 2"),
        (Censored(0.0), {}, r"needs outcome_bound="),
        (Censored(0.0, 3.0, constraint_bounds=PAIRS, predictive=True), {}, r"as published"),
        (
            KNOWN,
            {
                "acquisition": LagrangianUpperConfidenceBound.with_options(
                    width=1.0, posterior_transform=AffineOutcomes(torch.eye(3).double())
                )
            },
            r"posterior_transform=, which does not go",
        ),
    ],
)
def test_what_is_missing_is_an_error(feedback: Any, others: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(feedback=feedback, **others)

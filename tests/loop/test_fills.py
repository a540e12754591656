"""Censored feedback with other fills than the minimum: each round against dense computations."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel
from pairwise import by_day
from records import assert_same
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    CensoredUpperConfidenceBound,
    ExponentialWeights,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    History,
    Ignored,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    OracleRestart,
    PrimalDual,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.acquisition import BelowMinimumWarning
from botorch_bandits.cli import main
from botorch_bandits.feedback import CensoredQueue
from botorch_bandits.journal import Journal
from botorch_bandits.problems import PoissonDelay

LENGTH, NOISE, MINIMUM, BOUND, MAX_DELAY = 0.2, 0.3, -2.0, 4.0, 7
B, R, DELTA, ETA, RATE, WINDOW = 3.0, 0.1, 0.1, 0.8, 0.1, 6
CHOICES = torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1)
DOMAINS: dict[str, Any] = {
    "arms": Arms(CHOICES),
    "box": Box([[0.0], [1.0]], num_restarts=8, raw_samples=512),
}
IGP = ImprovedUpperConfidenceBound.with_options(
    rkhs_bound=B, noise_bound=R, delta=DELTA, any_lambda=True
)
PROBABILITIES = (0.05, 0.1, 0.15, 0.3, 0.2, 0.1, 0.04, 0.03, 0.03)
FORGETTING: dict[str, Any] = {
    "none": None,
    "window": SlidingWindow(WINDOW),
    "weights": ExponentialWeights(ETA),
    "time": TimeVaryingKernel(RATE),
}

pytestmark = pytest.mark.filterwarnings("ignore::botorch_bandits.feedback.LateOutcomeWarning")


def arriving(mean: float, share: float, delay: float) -> float:
    """A cumulative distribution function: a share of outcomes arrives."""
    return share * (1.0 - math.exp(-delay / mean))


FEEDBACKS: dict[str, Censored] = {
    "middle": Censored(MINIMUM, BOUND, MAX_DELAY, fill="middle"),
    "lower bound": Censored(MINIMUM, BOUND, MAX_DELAY, fill="lower_bound"),
    "soft, estimated": Censored(MINIMUM, BOUND, MAX_DELAY, fill="soft"),
    "soft, probabilities": Censored(
        MINIMUM, BOUND, MAX_DELAY, fill="soft", delay_distribution=PROBABILITIES
    ),
    "soft, function": Censored(
        MINIMUM, BOUND, MAX_DELAY, fill="soft", delay_distribution=partial(arriving, 3.0, 0.9)
    ),
    "soft, all": Censored(MINIMUM, BOUND, MAX_DELAY, fill="soft", **Censored.as_theorem),
}


def reward(x: float) -> float:
    return math.sin(7.0 * x) + 0.5 * x


def build(domain: str = "arms", feedback: Any = FEEDBACKS["middle"], **options: Any) -> BanditLoop:
    given = {
        "model": BanditGP.with_kernel(
            RBFKernel(), noise=NOISE, lengthscale=LENGTH, prior_mean=MINIMUM
        ),
        "acquisition": IGP,
        "seed": 1,
        "clock": lambda: 0.0,
        **options,
    }
    return BanditLoop(DOMAINS[domain], feedback=feedback, **given)


def play(loop: BanditLoop, rounds: int, seen: Any = None, sign: float = 1.0) -> None:
    """Outcomes come after Poisson delays, a few too late; every eleventh fails."""
    for _ in range(rounds):
        play_outcomes(loop, sign)
        t = loop.history.num_queries + 1
        view = loop.feedback_view() if isinstance(loop.settings.feedback, Censored) else None
        query = loop.ask(context=[math.cos(t)] if loop.settings.context_dim else None)
        if seen is not None:
            seen(query, view)


def play_outcomes(loop: BanditLoop, sign: float = 1.0) -> None:
    delays, t = PoissonDelay(5.0), loop.history.num_queries + 1
    for query in loop.history.pending():
        delay = max(1.0, delays.of_query(query.x, 5, query.round_number))
        if query.id % 11 == 10 and t > query.round_number + 1:
            loop.tell_failed(query.id)
        elif t - query.round_number >= delay:
            x = float(query.x[0])
            told = {} if loop.settings.constraints is None else {"constraints": [0.5 - 0.2 * x]}
            loop.tell(query.id, sign * reward(x), **told)


class Dense:
    """The textbook's posterior of round ``t`` from inputs that were asked in rounds ``s``."""

    def __init__(self, kind: str, t: int, X: np.ndarray, s: np.ndarray, y: np.ndarray) -> None:
        self.kind, self.X, self.s = kind, X, s
        noise = np.full(len(s), NOISE)
        if kind == "weights":
            noise = NOISE / ETA ** (t - 1.0 - s)
        self.gram = self.kernel(X, s, X, s)
        self.inverse = np.linalg.inv(self.gram + np.diag(noise))
        self.residuals = y - MINIMUM
        scaled = self.gram / np.sqrt(noise[:, None] * noise[None])
        self.gain = 0.5 * np.linalg.slogdet(np.eye(len(noise)) + scaled)[1]
        self.lam = noise.min(initial=NOISE)

    def kernel(self, A: np.ndarray, s: np.ndarray, C: np.ndarray, r: np.ndarray) -> np.ndarray:
        values = np.exp(-((A[:, None] - C[None]) ** 2).sum(-1) / (2 * LENGTH**2))
        if self.kind == "time":
            values = values * (1 - RATE) ** (np.abs(s[:, None] - r[None]) / 2)
        return values

    def at(self, X: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation."""
        cross = self.kernel(X, s, self.X, self.s)
        mean = MINIMUM + cross @ self.inverse @ self.residuals
        variance = 1.0 - np.einsum("ij,jk,ik->i", cross, self.inverse, cross)
        return mean, np.sqrt(variance.clip(0.0))


def share_to_come(feedback: Censored, name: str, rows: list[Any], age: int, view: Any) -> float:
    """By hand: from probabilities, from a function, or one delay after the other."""
    if name == "soft, probabilities":
        return sum(PROBABILITIES[age + 1 : MAX_DELAY + 1]) / sum(PROBABILITIES[age + 1 :])
    if name == "soft, function":
        come = [arriving(3.0, 0.9, float(t)) for t in (age, MAX_DELAY)]
        return (come[1] - come[0]) / (1.0 - come[0])
    t = len(rows) + 1
    delays, ages = [], []
    for query, outcome in rows:
        if view.rewards[query.id] is not None:
            delays.append(outcome.arrived_round + 1 - query.round_number)
        else:
            is_waiting = query.id in view.pending
            ages.append(t - query.round_number if is_waiting else math.inf)
    stays = 1.0
    for u in range(age + 1, MAX_DELAY + 1):
        at_risk = sum(d >= u for d in delays) + sum(a >= u for a in ages)
        if at_risk:
            stays *= 1.0 - delays.count(u) / at_risk
    return 1.0 - stays


def expected(
    loop: BanditLoop, name: str, kind: str, query: Any, view: Any
) -> tuple[Dense, float, list[float]]:
    """The posterior of a round, the width's sum and the fills, computed afresh."""
    feedback = loop.settings.feedback
    assert isinstance(feedback, Censored)
    t = query.round_number
    rows = [(loop.history.query(i), loop.history.outcome(i)) for i in range(t - 1)]
    X = np.array([[*([] if q.context is None else q.context), *q.x] for q, _ in rows])
    X = X.reshape(t - 1, -1)
    s = np.arange(1.0, t)
    kept = s >= t - WINDOW if kind == "window" else np.ones(t - 1, dtype=bool)
    told = np.array([value is not None for value in view.rewards], dtype=bool)
    values = np.array([MINIMUM if v is None else v for v in view.rewards])
    arrived = Dense(kind, t, X[kept & told], s[kept & told], values[kept & told])
    shares, fills = np.ones(t - 1), []
    for i in view.pending:
        if not kept[i]:
            continue
        mean, sd = (float(each[0]) for each in arrived.at(X[i : i + 1], s[i : i + 1]))
        if feedback.fill == "middle":
            fill = MINIMUM + 0.5 * BOUND
        elif feedback.fill == "lower_bound":
            fill = mean - sd
        else:
            w = share_to_come(feedback, name, rows, t - 1 - i, view)
            fill = w * mean + (1.0 - w) * MINIMUM
        fill = min(max(fill, MINIMUM), MINIMUM + BOUND)
        values[i] = fill
        shares[i] = max(fill - MINIMUM, MINIMUM + BOUND - fill) / BOUND
        fills.append(fill)
    dense = Dense(kind, t, X[kept], s[kept], values[kept])
    summed = [i for i in view.pending if kept[i]]
    if feedback.window == "all":
        summed = list(range(max(0, t - 1 - MAX_DELAY), t - 1))
    total = float((shares[summed] * dense.at(X[summed], s[summed])[1]).sum()) if summed else 0.0
    return dense, total, fills


def check_round(loop: BanditLoop, name: str, kind: str, log: list[float]) -> Any:
    """Return what compares each round with the dense one."""
    is_draw = loop.settings.acquisition.acquisition_class is GPThompsonSampling

    def check(query: Any, view: Any) -> None:
        t = query.round_number
        if t == 1:
            return
        dense, total, fills = expected(loop, name, kind, query, view)
        level = DELTA / 2 if is_draw else DELTA
        radius = math.sqrt(2 * (dense.gain + math.log(2 / level)) / dense.lam)
        width = BOUND / dense.lam * total + B + (R + BOUND) * radius
        point = np.array([*([] if query.context is None else query.context), *query.x])
        now = np.full(1, float(t))
        mean, sd = (float(each[0]) for each in dense.at(point[None], now))
        known = query.diagnostics
        assert known["width"] == pytest.approx(width, abs=1e-8)
        assert known["mean"] == pytest.approx(mean, abs=1e-8)
        assert known["standard_deviation"] == pytest.approx(sd, abs=1e-8)
        if not is_draw:
            on_arms = isinstance(loop.settings.domain, Arms)
            grid = CHOICES.numpy() if on_arms else np.linspace(0.0, 1.0, 501)[:, None]
            front = [] if query.context is None else [float(c) for c in query.context]
            places = np.array([[*front, *x] for x in grid])
            means, sds = dense.at(places, np.full(len(places), float(t)))
            values = means + width * sds
            # of several peaks on a box the search from random points finds one of the highest
            slack = 1e-6 if on_arms else 0.1 * (values.max() - values.min())
            assert mean + width * sd >= values.max() - slack
        log.extend(fills)

    return check


@pytest.mark.parametrize("name", FEEDBACKS)
@pytest.mark.parametrize("domain", DOMAINS)
def test_the_dense_rule_is_played(domain: str, name: str) -> None:
    loop = build(domain, FEEDBACKS[name])
    log: list[float] = []
    play(loop, 30, check_round(loop, name, "none", log))
    view = loop.feedback_view()
    assert len(view.late) > 0
    assert len(view.lost) > len(view.late)
    inside = [MINIMUM < fill < MINIMUM + BOUND for fill in log]
    assert sum(inside) > 20
    guarantee = loop.guarantee()
    assert guarantee.holds, guarantee.gaps
    assert "lemma" in str(guarantee.theorem)
    assert any(
        "lie between minimum and minimum + outcome_bound" in a for a in guarantee.assumptions
    )


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_scale_of_a_draw_has_half_of_delta(domain: str) -> None:
    recipe = GPThompsonSampling.with_options(
        rkhs_bound=B, noise_bound=R, delta=DELTA, any_lambda=True
    )
    loop = build(domain, FEEDBACKS["soft, estimated"], acquisition=recipe)
    play(loop, 16, check_round(loop, "soft, estimated", "none", []))
    guarantee = loop.guarantee()
    assert guarantee.theorem is not None
    assert "Theorem 3" in guarantee.theorem
    assert guarantee.bands.holds


@pytest.mark.parametrize("name", ["middle", "lower bound", "soft, estimated"])
@pytest.mark.parametrize("forgetting", ["window", "weights", "time"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_the_dense_rule_is_played_with_a_model_that_forgets(
    domain: str, forgetting: str, name: str
) -> None:
    loop = build(domain, FEEDBACKS[name], forgetting=FORGETTING[forgetting])
    play(loop, 14, check_round(loop, name, forgetting, []))


@pytest.mark.parametrize("name", FEEDBACKS)
@pytest.mark.parametrize("domain", DOMAINS)
def test_the_dense_rule_is_played_with_contexts(domain: str, name: str) -> None:
    loop = build(domain, FEEDBACKS[name], context_dim=1)
    play(loop, 14, check_round(loop, name, "none", []))
    assert loop.guarantee().bands.holds


def test_many_arms_whose_covariance_is_not_kept() -> None:
    choices = torch.linspace(0, 1, 5000, dtype=torch.float64).unsqueeze(-1)
    feedback = FEEDBACKS["soft, estimated"]
    loop = BanditLoop(
        Arms(choices), build().settings.model, IGP, feedback=feedback, seed=1, clock=lambda: 0.0
    )
    play(loop, 14, check_round(loop, "soft, estimated", "none", []))


# --- continuing -----------------------------------------------------------------------------

CONTINUED: dict[str, dict[str, Any]] = {
    "arms": {},
    "box": {"domain": "box"},
    "draws on arms": {"acquisition": GPThompsonSampling.with_options(width=1.0)},
    "draws on a box": {
        "domain": "box",
        "acquisition": GPThompsonSampling.with_options(width=1.0),
    },
    "contexts": {"context_dim": 1},
    "window": {"forgetting": SlidingWindow(WINDOW)},
    "weights": {"forgetting": ExponentialWeights(ETA), "domain": "box"},
    "restart": {"restart": OracleRestart((8,))},
    "costs": {"maximize": False, "feedback": Censored(2.0, BOUND, MAX_DELAY, fill="soft")},
}


@pytest.mark.parametrize("name", by_day(CONTINUED))
def test_a_journal_is_continued_to_the_last_bit(name: str, tmp_path: Path) -> None:
    options = {"feedback": FEEDBACKS["soft, estimated"], **CONTINUED[name]}
    sign = -1.0 if options.get("maximize") is False else 1.0
    whole = build(**options)
    play(whole, 18, sign=sign)
    path = tmp_path / "run.journal"
    for rounds in (5, 7, 6):
        loop = build(journal=path, **options)
        play(loop, rounds, sign=sign)
        loop.close()
    for a, b in zip(whole.history.queries, loop.history.queries, strict=True):
        assert torch.equal(a.x, b.x)
        assert_same(a.diagnostics, b.diagnostics)
    recorded = Journal.read(path).header["settings"]["feedback"]
    assert recorded["fill"] == "soft"
    assert recorded["delay_distribution"] is None
    with pytest.raises(ValueError, match="fill"):
        build(journal=path, **{**options, "feedback": FEEDBACKS["middle"]})


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_journal_has_a_function_by_its_name(
    domain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.journal"
    loop = build(domain, FEEDBACKS["soft, function"], journal=path)
    play(loop, 6)
    loop.close()
    again = build(domain, FEEDBACKS["soft, function"], journal=path)
    assert again.history.num_queries == 6
    again.close()
    assert main(["show", str(path)]) == 0
    assert "fill=soft" in capsys.readouterr().out


@pytest.mark.parametrize("options", [{}, {"context_dim": 1}, {"domain": "box"}])
def test_what_was_taken_back_is_no_outcome_any_more(options: dict[str, Any]) -> None:
    loop = build(feedback=FEEDBACKS["soft, estimated"], **options)
    play(loop, 14)
    told = [outcome.query_id for outcome in loop.history.outcomes][2:4]
    for query_id in told:
        loop.retract(query_id, "a wrong unit")
    assert {*told} <= {*loop.feedback_view().lost}
    records = loop.history.to_records()
    size = {"dim": 1, "context_dim": options.get("context_dim", 0)}
    again = build(
        feedback=FEEDBACKS["soft, estimated"],
        history=History.from_records(records, **size),
        **options,
    )
    play(loop, 5)
    play(again, 5)
    for a, b in zip(loop.history.queries, again.history.queries, strict=True):
        assert torch.equal(a.x, b.x)
        assert_same(a.diagnostics, b.diagnostics)


def test_the_queue_knows_the_shares_of_the_view() -> None:
    for unit in ("rounds", "seconds"):
        feedback = Censored(MINIMUM, BOUND, 4, fill="soft", unit=unit)
        rng, history, now = np.random.default_rng(3), History(1), 0.0
        queue = CensoredQueue(feedback, history)
        for _ in range(80):
            now += float(rng.random()) if unit == "seconds" else 0.0
            waiting = history.pending()
            if rng.random() < 0.5 or not waiting:
                history.add_query(torch.zeros(1, dtype=torch.float64), "acquisition", now)
            elif rng.random() < 0.2:
                history.add_failure(waiting[0].id, now, "broken")
            else:
                chosen = waiting[int(rng.integers(len(waiting)))]
                history.add_outcome(chosen.id, 0.5, now)
            if rng.random() < 0.6:
                queue.update(now)
                t = history.num_queries + 1
                view = feedback.view(history, t, now)
                found = queue.shares_to_come()
                assert found == feedback.shares_to_come(view, history, t, now)
                assert all(0.0 <= share <= 1.0 for share in found)


# --- other models and settings --------------------------------------------------------------


def fixed_model(X: Tensor, Y: Tensor) -> SingleTaskGP:
    return SingleTaskGP(X, Y, torch.full_like(Y, 0.1), outcome_transform=None).eval()


@pytest.mark.parametrize("fill", ["middle", "soft", "lower_bound"])
@pytest.mark.filterwarnings("ignore")
def test_a_users_model_is_that_of_the_drop_in(fill: str) -> None:
    distribution = PROBABILITIES if fill == "soft" else None
    options = {"fill": fill, "delay_distribution": distribution, "max_delay": 3}
    loop = BanditLoop(
        Box([[0.0], [1.0]], num_restarts=2, raw_samples=16),
        fixed_model,
        GPUpperConfidenceBound.with_options(width=1.0),
        feedback=Censored(MINIMUM, BOUND, **options),
        num_initial=6,
        seed=2,
    )
    queries = []
    for _ in range(6):
        queries.append(query := loop.ask())
        if query.id in (1, 3):
            loop.tell(query.id, reward(float(query.x)))
    X = torch.stack([query.x for query in queries])
    told = X[[1, 3]]
    base = fixed_model(told, double_column([reward(float(x)) for x in told]))
    acqf = CensoredUpperConfidenceBound(
        base, minimum=MINIMUM, outcome_bound=BOUND, width=1.0, X_pending=X[[0, 2, 4, 5]], **options
    )
    assert acqf.filled_values is not None
    found = loop.current_model().train_targets[2:]
    assert found.tolist() == pytest.approx(acqf.filled_values.squeeze(-1).tolist(), abs=1e-10)
    assert found[:2].tolist() == [MINIMUM] * 2  # three rounds old and more: given up
    assert max(found.tolist()) > MINIMUM + 0.1
    query = loop.ask()
    value = float(acqf(query.x.unsqueeze(0)).detach())
    assert query.diagnostics["width"] == pytest.approx(float(acqf.width), abs=1e-8)
    assert query.diagnostics["acquisition_value"] == pytest.approx(value, abs=1e-8)


def double_column(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(-1)


def test_hyperparameters_are_learned_from_what_arrived() -> None:
    """A recipe that learns does so from outcomes, not from what stands in for them."""
    learned = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTH, refit_every=4)
    loop = build("box", FEEDBACKS["soft, estimated"], model=learned)
    play(loop, 16)
    view = loop.feedback_view()
    told = [o.query_id for o in loop.history.outcomes if view.rewards[o.query_id] is not None]
    X = torch.stack([loop.history.query(i).x for i in told])
    Y = double_column([float(view.rewards[i]) for i in told])  # type: ignore[arg-type]
    alone = loop.settings.model.builder(1)(X, Y)  # type: ignore[union-attr]
    model = loop.current_model()
    assert model.likelihood.noise.item() == alone.likelihood.noise.item()
    assert model.covar_module.lengthscale.item() == alone.covar_module.lengthscale.item()


def test_costs_are_the_mirror_image_of_rewards() -> None:
    options = {"fill": "soft", "delay_distribution": PROBABILITIES}
    loops = [
        build(feedback=Censored(MINIMUM, BOUND, MAX_DELAY, **options)),
        build(
            feedback=Censored(-MINIMUM, BOUND, MAX_DELAY, **options),
            maximize=False,
            model=BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTH),
        ),
    ]
    for loop, sign in zip(loops, (1.0, -1.0), strict=True):
        play(loop, 14, sign=sign)
    for a, b in zip(*(loop.history.queries for loop in loops), strict=True):
        assert torch.equal(a.x, b.x)
        assert a.diagnostics["width"] == b.diagnostics["width"]


@pytest.mark.parametrize("domain", DOMAINS)
def test_penalized_outcomes_have_a_fill_of_their_range(domain: str) -> None:
    feedback = Censored(MINIMUM, BOUND, MAX_DELAY, fill="middle", constraint_bounds=((-1.0, 1.0),))
    rule = AdditiveEpochs(1, 5, step_size=0.5, surrogate="relabeled")
    loop = build(domain, feedback, constraints=rule)
    play(loop, 12)
    kappa = loop.multipliers[0]
    assert kappa > 0.0
    low, high = MINIMUM - kappa, MINIMUM + BOUND + kappa
    model, view = loop.current_model(), loop.feedback_view()
    rows = model.train_targets[-len(view.pending) :] if view.pending else torch.zeros(0)
    assert len(rows) > 1
    assert rows.tolist() == pytest.approx([(low + high) / 2] * len(rows), abs=1e-10)
    assert any("no theorem is claimed" in gap for gap in loop.guarantee().gaps)


STREAMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "contexts": {"context_dim": 1},
    "window": {"forgetting": FORGETTING["window"]},
    "weights": {"forgetting": FORGETTING["weights"]},
    "time and contexts": {"forgetting": FORGETTING["time"], "context_dim": 1},
    "penalized": {"constraints": AdditiveEpochs(1, 5, step_size=0.5, surrogate="relabeled")},
    "restart": {"restart": OracleRestart((9,))},
}


@pytest.mark.parametrize("fill", ["middle", "soft", "lower_bound"])
@pytest.mark.parametrize("name", STREAMS)
def test_arms_need_no_model_and_choose_as_one(name: str, fill: str) -> None:
    options = STREAMS[name]
    bounds = ((-1.0, 1.0),) if "constraints" in options else None
    feedback = Censored(MINIMUM, BOUND, MAX_DELAY, fill=fill, constraint_bounds=bounds)
    loop = build("arms", feedback, **options)
    for _ in range(24):
        chooser = loop._chooser
        chooser.begin_round(loop.history.num_queries + 1)
        assert chooser._stream is not None
        context = [0.3] if loop.settings.context_dim else None
        now = None if context is None else torch.tensor(context, dtype=torch.float64)
        acqf, domain = chooser.acquisition_now(now, 0.0)
        query = loop.ask(context=context)
        whole = (
            query.x
            if not isinstance(domain, Arms)
            else domain.choices[(domain.choices[:, -1] == query.x[-1]).nonzero()[0, 0]]
        )
        if query.origin == "acquisition":
            described = acqf.describe(whole)
            for key in ("mean", "standard_deviation", "width", "acquisition_value"):
                assert query.diagnostics[key] == pytest.approx(described[key], abs=1e-7), key
        play_outcomes(loop)


@pytest.mark.parametrize("domain", DOMAINS)
def test_where_constraints_have_models_of_their_own_the_reward_has_the_fill(domain: str) -> None:
    pairs = ((-1.0, 1.0),)
    recipe = LagrangianUpperConfidenceBound.with_options(
        rkhs_bound=B, noise_bound=R, delta=DELTA, any_lambda=True
    )
    rule = PrimalDual(1, max_multiplier=2.0, divisor=4.0)
    loops = {
        fill: build(
            domain,
            Censored(MINIMUM, BOUND, MAX_DELAY, fill=fill, constraint_bounds=pairs),
            acquisition=recipe,
            constraints=rule,
        )
        for fill in ("minimum", "middle")
    }
    for loop in loops.values():
        for _ in range(4):
            loop.ask()
        loop.tell(1, 0.5, constraints=[0.2])
    reward_model, constraint_model = loops["middle"].current_model().models
    middle = MINIMUM + 0.5 * BOUND
    assert sorted(reward_model.train_targets.tolist()) == pytest.approx([middle] * 3 + [0.5])
    assert sorted(constraint_model.train_targets.tolist()) == [0.0, 0.0, 0.0, 0.2]
    found = {}
    X = torch.stack([q.x for q in loops["middle"].history.queries[:4]])
    for fill, loop in loops.items():
        acqf, _ = loop._chooser.acquisition_now(None, 0.0)
        found[fill] = [float(rule.deviation_sum) for rule in acqf.width_rules]
        assert torch.equal(torch.stack([q.x for q in loop.history.queries[:1]]), X[:1])
    waiting = [0, 2, 3]
    dense = Dense("none", 5, X.numpy(), np.arange(1.0, 5.0), np.zeros(4))
    sds = dense.at(X[waiting].numpy(), np.zeros(3))[1].sum()
    assert found["middle"] == pytest.approx([0.5 * sds, sds], abs=1e-8)


def test_seconds_count_ages_by_the_clock() -> None:
    now = [0.0]
    feedback = Censored(
        MINIMUM,
        BOUND,
        10.0,
        unit="seconds",
        fill="soft",
        delay_distribution=partial(arriving, 4.0, 1.0),
    )
    loop = build("box", feedback, clock=lambda: now[0])
    first, second = loop.ask(), loop.ask()
    now[0] = 2.5
    loop.tell(first.id, 1.5)
    model = loop.current_model()
    mean = Dense("none", 3, first.x.numpy()[None], np.ones(1), np.array([1.5]))
    (height,) = mean.at(second.x.numpy()[None], np.ones(1))[0] - MINIMUM
    come = [1.0 - math.exp(-t / 4.0) for t in (2.5, 10.0)]
    share = (come[1] - come[0]) / (1.0 - come[0])
    assert model.train_targets.tolist() == pytest.approx([1.5, MINIMUM + share * height], abs=1e-9)
    now[0] = 11.0  # given up
    assert loop.current_model().train_targets.tolist() == [1.5, MINIMUM]


def test_an_arm_that_must_be_left_out_is_not_chosen() -> None:
    loop = build("arms", FEEDBACKS["soft, estimated"])
    play(loop, 6)
    query = loop.ask(available=[2, 3, 7])
    assert query.x.item() in CHOICES[[2, 3, 7]].squeeze(-1).tolist()


def test_outcomes_below_the_minimum_are_a_gap() -> None:
    feedback = Censored(MINIMUM, BOUND, MAX_DELAY, fill="soft", tolerance=1.0)
    loop = build("arms", feedback)
    first = loop.ask()
    assert loop.guarantee().holds
    with pytest.warns(BelowMinimumWarning, match="below minimum"):
        loop.tell(first.id, MINIMUM - 0.2)
    gaps = loop.guarantee().gaps
    assert any("1 outcomes lie below the minimum, but fill='soft' needs" in gap for gap in gaps)
    published = Censored(MINIMUM, BOUND, MAX_DELAY, fill="soft", **Censored.as_published)
    loop = build("arms", published, acquisition=GPUpperConfidenceBound.with_options(width=1.0))
    loop.ask()
    gaps = loop.guarantee().gaps
    assert any("published code has no fill='soft'" in gap for gap in gaps)


def test_bounds_in_prior_units_are_refused() -> None:
    options = {"rkhs_bound": B, "noise_bound": R, "units": "prior"}
    with pytest.raises(ValueError, match="of outcomes, but ImprovedUpper"):
        build(acquisition=ImprovedUpperConfidenceBound.with_options(**options))


def test_a_function_that_fails_is_named_before_anything_is_recorded() -> None:
    values = {1.0: 0.2, 2.0: 0.4}

    def strange(delay: float) -> float:
        return 1.7 if delay == 3.0 else values.get(delay, min(delay, 1.0))

    feedback = Censored(MINIMUM, BOUND, 9, fill="soft", delay_distribution=strange)
    loop = build("arms", feedback)
    for _ in range(3):
        loop.ask()
    with pytest.raises(ValueError, match=r"delay_distribution gives 1\.7 at"):
        loop.ask()
    assert loop.history.num_queries == 3


def test_ignored_outcomes_are_those_of_the_soft_mean() -> None:
    """Without delays that are lost, ``w = 1``: the mean is what hallucination would take."""
    certain = Censored(MINIMUM, BOUND, None, fill="soft", delay_distribution=(0.0,) * 99 + (1.0,))
    loop, ignored = build("box", certain), build("box", Ignored())
    queries = [loop.ask() for _ in range(4)]
    for query in queries:
        ignored.attach(query.x, 0.5) if query.id < 2 else None
        if query.id < 2:
            loop.tell(query.id, 0.5)
    X = torch.stack([query.x for query in queries[2:]])
    mean = ignored.current_model().posterior(X).mean.squeeze(-1)
    assert loop.current_model().train_targets[2:].tolist() == pytest.approx(mean.tolist(), abs=1e-9)
    probes = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
    means = [each.current_model().posterior(probes).mean for each in (loop, ignored)]
    assert torch.allclose(*means, atol=1e-9)

"""Loops of many settings, and each of their rounds computed from the records by dense algebra."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    CandidatesUpperConfidenceBound,
    Censored,
    DMMUpperConfidenceBound,
    ExponentialWeights,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Hallucinated,
    Ignored,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    MeanOnly,
    MultiplicativeEpochs,
    OracleRestart,
    PrimalDual,
    Query,
    RandomizedUpperConfidenceBound,
    SlidingWindow,
    TimeVaryingKernel,
    VarianceOnly,
)
from botorch_bandits.penalties import Polynomial
from tests.models.textbook import double, posterior, squared_exponential

NOISE, B, R, DELTA = 0.2, 1.5, 0.1, 0.1
LENGTHS = (0.3, 0.6, 0.45)  # of the reward and of two constraints
WIDTHS = (1.5, 1.0, 0.5)
WINDOW, ETA, RATE = 6, 0.8, 0.1
MINIMUM, SPAN, MAX_DELAY, FACTOR = -2.0, 4.0, 6, 1.5
PAIRS = ((-0.7, 0.8), (-0.9, 0.6))
ARRIVING = (0.05, 0.1, 0.15, 0.3, 0.2, 0.1, 0.04, 0.03, 0.03)
LENGTH_OF_EPOCHS, CHANGE = 4, 7
RETRACTED = ("retractions", "counts", "noises")
CHOICES = torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1)
GRID = torch.linspace(0.0, 1.0, 401, dtype=torch.float64).unsqueeze(-1)

BOUNDS = {"rkhs_bound": B, "noise_bound": R, "delta": DELTA, "any_lambda": True}
NORMS = {"rkhs_bound": B, "noise_bound": R, "delta": DELTA}
METHODS = {
    "igp": ImprovedUpperConfidenceBound.with_options(**BOUNDS),
    "ucb": GPUpperConfidenceBound.with_options(width=WIDTHS[0]),
    "draws": GPThompsonSampling.with_options(**BOUNDS),
    # whose rounds are not computed here
    "theorem": GPUpperConfidenceBound.with_options(delta=DELTA),
    "amm": AMMUpperConfidenceBound.with_options(**NORMS),
    "dmm": DMMUpperConfidenceBound.with_options(**NORMS),
    "improvement": LogExpectedImprovement.with_options(),
    "observed": LogExpectedImprovement.with_options(incumbent="observed"),
    "mean": MeanOnly.with_options(),
    "deviation": VarianceOnly.with_options(),
    "random width": RandomizedUpperConfidenceBound.with_options(),
    "list": CandidatesUpperConfidenceBound.with_options(),
    "mixture": CandidatesUpperConfidenceBound.with_options(form="mixture", width=2.0),
}
SEPARATE = {
    "igp": LagrangianUpperConfidenceBound.with_options(**BOUNDS),
    "ucb": LagrangianUpperConfidenceBound.with_options(width=WIDTHS, separate_bounds=True),
    "draws": LagrangianThompsonSampling.with_options(width=WIDTHS),
}
FORGETTING: dict[str, Any] = {
    "all": None,
    "window": SlidingWindow(WINDOW),
    "weights": ExponentialWeights(ETA),
    "drift": TimeVaryingKernel(RATE),
}
FILLS: dict[str, dict[str, Any]] = {
    "middle": {"fill": "middle"},
    "lower bound": {"fill": "lower_bound"},
    "soft": {"fill": "soft"},
    "soft, known": {"fill": "soft", "delay_distribution": ARRIVING},
    "last rounds": {"window": "all"},
    "published": {"window": "all", "predictive": True},
}
CENSORED = ("censored", "proxy", *FILLS)
EPOCHS: dict[str, Any] = {"num_constraints": 2, "epoch_length": LENGTH_OF_EPOCHS}
EXACT: dict[str, Any] = {**EPOCHS, "penalty": Polynomial(1.0, 2.0)}
RULES: dict[str, Any] = {
    "none": None,
    "relabeled": AdditiveEpochs(**EPOCHS, step_size=3.0),
    "fresh": AdditiveEpochs(**EPOCHS, step_size=3.0, surrogate="fresh"),
    "exact": MultiplicativeEpochs(**EXACT),
    "separate": AdditiveEpochs(**EPOCHS, step_size=3.0, surrogate="separate"),
    "separate, exact": MultiplicativeEpochs(**EXACT, surrogate="separate"),
    "every round": PrimalDual(2, 2.0, 4.0, reward_bound=3.0, constraint_bound=0.4),
}


@dataclass(frozen=True)
class Setting:
    """A value on each axis; ``special`` is what else happens in the rounds."""

    domain: str = "arms"
    method: str = "igp"
    forgetting: str = "all"
    feedback: str = "at once"
    rule: str = "none"
    contexts: int = 0
    special: str = "nothing"

    @property
    def is_separate(self) -> bool:
        return self.rule.startswith(("separate", "every"))

    @property
    def sign(self) -> float:
        return -1.0 if self.special == "costs" else 1.0

    def feedback_of_loop(self) -> Any:
        if self.feedback not in CENSORED:
            return Ignored() if self.feedback == "ignored" else Hallucinated()
        known: dict[str, Any] = {"minimum": self.sign * MINIMUM}
        if self.feedback == "proxy":
            known = {"minimum_proxy": FACTOR}
        if self.rule != "none":
            known["constraint_bounds"] = PAIRS
        return Censored(
            **known, outcome_bound=SPAN, max_delay=MAX_DELAY, **FILLS.get(self.feedback, {})
        )

    def prior(self) -> Any:
        """Return the recipe of the model."""
        if self.method in ("list", "mixture"):
            return BanditGP.with_candidates(
                [BanditGP.with_kernel(RBFKernel(), NOISE, lengthscale=each) for each in LENGTHS]
            )
        kernel = RBFKernel()
        if self.is_separate:
            kernel = RBFKernel(batch_shape=torch.Size([3])).double()
            kernel.lengthscale = double(LENGTHS).view(-1, 1, 1)
        return BanditGP.with_kernel(
            kernel,
            noise=NOISE,
            lengthscale=None if self.is_separate else LENGTHS[0],
            prior_mean=0.3 if self.special == "prior mean" else 0.0,
        )

    def loop(self, **more: Any) -> BanditLoop:
        """Return a loop with these settings."""
        given: dict[str, Any] = {
            "domain": (
                Arms(CHOICES)
                if self.domain == "arms"
                else Box([[0.0], [1.0]], num_restarts=4, raw_samples=64)
            ),
            "model": self.prior(),
            "acquisition": (SEPARATE if self.is_separate else METHODS)[self.method],
            "forgetting": FORGETTING[self.forgetting],
            "feedback": self.feedback_of_loop(),
            "constraints": RULES[self.rule],
            "context_dim": self.contexts,
            "restart": (
                OracleRestart((CHANGE,), exploration=None) if self.special == "restart" else None
            ),
            "maximize": self.sign > 0.0,
            "seed": 3,
        }
        return BanditLoop(**{**given, **more})

    @property
    def name(self) -> str:
        return "-".join(map(str, astuple(self)))

    def tell(self, loop: BanditLoop) -> None:
        """Tell what has come until the next round, as far as the records say."""
        history = loop.history
        t = history.num_queries + 1
        for query in history.pending():
            delay = 1 if self.feedback == "at once" else 1 + (5 * query.id) % 8
            if t - query.round_number < delay:
                continue
            if query.id % 5 == 3 and self.special == "failures":
                loop.fail(query.id, avoid=query.id % 2 == 0, at=0.0)
                continue
            context = None if query.context is None else float(query.context[0])
            loop.tell(query.id, at=0.0, **self.outcome(query.id, float(query.x[0]), context))
        if self.special in RETRACTED and t == 9:
            loop.retract(history.outcomes[2].query_id, "a wrong unit", at=0.0)
        if self.special == "attached" and t == 4:
            context = 0.5 if self.contexts else None
            x = CHOICES[3]
            told = self.outcome(t - 1, float(x), context)
            loop.attach(x, at=0.0, **told, **({"context": [context]} if self.contexts else {}))

    def outcome(self, i: int, x: float, context: float | None) -> dict[str, Any]:
        """Return what is told of query ``i``; after a change its reward has the other sign."""
        reward = math.sin(7.0 * x) + 0.3 * x + 0.2 * x * (context or 0.0)
        if self.special in ("restart", "change") and i >= CHANGE:
            reward = -reward
        told: dict[str, Any] = {"reward": self.sign * (reward + 0.2 * math.sin(11.0 * i))}
        if self.rule != "none":
            told["constraints"] = [x - 0.5 + 0.1 * math.cos(7.0 * i), 0.3 - x]
        if self.special == "counts":
            told["count"] = 1 + i % 3
        if self.special == "noises":
            told["noise"] = 0.05 * (1 + i % 4)
        return told

    def ask(self, loop: BanditLoop) -> Query:
        """Ask for the next round; a context comes again in every third one."""
        t = loop.history.num_queries + 1
        asked: dict[str, Any] = {}
        if self.contexts:
            asked["context"] = [math.cos(float(t)) if t % 3 else 0.5]
        if self.special == "available" and self.domain == "arms":
            asked["available"] = self.available(t)
        return loop.ask(at=0.0, **asked)

    def available(self, t: int) -> list[int]:
        numbers = range(len(CHOICES))
        if self.special != "available" or t % 3 == 0:
            return list(numbers)
        return sorted(random.Random(t).sample(numbers, 5))


def charges(values: Tensor, rule: str) -> Tensor:
    """Return what a multiplier is multiplied with."""
    return (1.0 + values.clamp_min(0.0)) ** 2 - 1.0 if "exact" in rule else values


class Dense:
    """The textbook's round that chose ``query``: posterior, widths and scores."""

    def __init__(self, setting: Setting, loop: BanditLoop, query: Query) -> None:
        self.setting, self.history, self.query = setting, loop.history, query
        self.t, self.segment = query.round_number, len(loop.resets)
        self.kappa = double([query.diagnostics.get(f"multiplier_{j}", 0.0) for j in (1, 2)])
        self.feedback = loop.settings.feedback
        first = loop.resets[-1].after_round if loop.resets else 0
        self.epoch = (self.t - 1 - first) // LENGTH_OF_EPOCHS + 1
        self.segment_queries = self.history.queries[first : self.t - 1]
        if setting.rule == "fresh":
            first += (self.epoch - 1) * LENGTH_OF_EPOCHS
        if setting.forgetting == "window":
            first = max(first, self.t - 1 - WINDOW)
        self.known = list(self.history.queries[first : self.t - 1])
        self.lengths = LENGTHS if setting.is_separate else LENGTHS[:1]
        self.is_censored = setting.feedback in CENSORED
        self._label()

    # --- rows ---------------------------------------------------------------------------------

    def outputs(self, reward: float, values: Sequence[float]) -> list[float]:
        """Return what the models see of an outcome."""
        if self.setting.is_separate:
            return [reward, *values]
        return [reward - float(self.kappa @ charges(double(values or (0, 0)), self.setting.rule))]

    def _label(self) -> None:
        told = {q.id: self.history.outcome(q.id) for q in self.known}
        avoided = {failure.query_id for failure in self.history.failures if failure.avoided}
        pending = {q.id for q in self.known if self.history.state(q.id) == "pending"}
        self.waiting = [q for q in self.known if q.id in avoided | pending]
        if self.is_censored:
            told = {q.id: told[q.id] if self._delay(q) <= MAX_DELAY else None for q in self.known}
            self.waiting = [q for q in self.known if self._is_waited_for(q)]
        labels = {
            i: self.outputs(self.setting.sign * o.reward, o.constraints)
            for i, o in told.items()
            if o is not None
        }
        self.means = [0.3 if self.setting.special == "prior mean" else 0.0] * len(self.lengths)
        arrived = [q for q in self.known if q.id in labels]
        if not self.is_censored:
            self.rows = arrived
            self.Y = double([labels[q.id] for q in arrived]).reshape(-1, len(self.lengths))
            return
        if self.setting.is_separate:
            low = [MINIMUM, 0.0, 0.0]
            self.spans = [SPAN, *(max(map(abs, pair)) for pair in PAIRS)]
        else:
            low = self.outputs(MINIMUM, [high for _, high in PAIRS])
            high = self.outputs(MINIMUM + SPAN, [least for least, _ in PAIRS])
            self.spans = [high[0] - low[0]]
        if self.setting.feedback != "proxy":
            self.means = low
        self.rows = arrived
        self.Y = double([labels[q.id] for q in arrived]).reshape(-1, len(self.lengths))
        filled, shares = self._fills(low[0])
        self.waited_for, self.shares = self.waiting, [shares[q.id] for q in self.waiting]
        if FILLS.get(self.setting.feedback, {}).get("window"):
            self.waited_for = [q for q in self.known if self.t - q.round_number <= MAX_DELAY]
            self.shares = [1.0] * len(self.waited_for)
        self.rows = self.known
        self.Y = double([labels.get(q.id, [filled[q.id], *low[1:]]) for q in self.known]).reshape(
            -1, len(self.lengths)
        )

    def _fills(self, low: float) -> tuple[dict[int, float], dict[int, float]]:
        """Return what stands in for outcomes, and the shares of the span that it can be off."""
        name, span = self.setting.feedback, self.spans[0]
        filled, shares = {q.id: low for q in self.known}, {q.id: 1.0 for q in self.known}
        if name == "proxy":
            mean, deviation = self.at(self.places(self.rows or self.known))
            least = float((mean[:, 0] - FACTOR * deviation[:, 0]).min()) if self.known else 0.0
            return dict.fromkeys(filled, least), shares
        for query in self.waiting if name in FILLS else []:
            mean, deviation = (float(each[0, 0]) for each in self.at(self.places([query])))
            if name == "middle":
                fill = low + 0.5 * span
            elif name == "lower bound":
                fill = mean - deviation
            elif name.startswith("soft"):
                share = self._share_to_come(query)
                fill = share * mean + (1.0 - share) * low
            else:
                continue
            fill = min(max(fill, low), low + span)
            filled[query.id] = fill
            shares[query.id] = max(fill - low, low + span - fill) / span
        return filled, shares

    def _delay(self, query: Query) -> float:
        """Return the delay of a query's outcome; infinity if there is none."""
        outcome = self.history.outcome(query.id)
        return math.inf if outcome is None else outcome.arrived_round + 1 - query.round_number

    def _is_waited_for(self, query: Query) -> bool:
        is_pending = self.history.state(query.id) == "pending"
        return is_pending and self.t - query.round_number < MAX_DELAY

    def _share_to_come(self, query: Query) -> float:
        age = self.t - query.round_number
        if self.setting.feedback == "soft, known":
            return sum(ARRIVING[age + 1 : MAX_DELAY + 1]) / sum(ARRIVING[age + 1 :])
        delays = [d for d in map(self._delay, self.segment_queries) if d <= MAX_DELAY]
        ages = [
            self.t - other.round_number if self._is_waited_for(other) else math.inf
            for other in self.segment_queries
            if not self._delay(other) <= MAX_DELAY
        ]
        stays = 1.0
        for u in range(age + 1, MAX_DELAY + 1):
            at_risk = sum(d >= u for d in delays) + sum(a >= u for a in ages)
            if at_risk:
                stays *= 1.0 - delays.count(u) / at_risk
        return 1.0 - stays

    # --- posterior ----------------------------------------------------------------------------

    def places(self, queries: Sequence[Query]) -> Tensor:
        """Return rounds, contexts and points: n x (1 + context_dim + 1)."""
        rows = [
            [float(q.round_number), *(() if q.context is None else q.context.tolist()), *q.x]
            for q in queries
        ]
        return double(rows).reshape(-1, 2 + self.setting.contexts)

    def now(self, points: Tensor) -> Tensor:
        """Return places of points (n x 1) in this round."""
        front = [] if self.query.context is None else self.query.context.tolist()
        return torch.cat([double([float(self.t), *front]).expand(len(points), -1), points], dim=-1)

    def kernel(self, j: int) -> Any:
        def covariance(A: Tensor, C: Tensor) -> Tensor:
            values = squared_exponential(self.lengths[j])(A[:, 1:], C[:, 1:])
            if self.setting.forgetting == "drift":
                values = values * (1 - RATE) ** ((A[:, None, 0] - C[None, :, 0]).abs() / 2)
            return values

        return covariance

    def noises(self, queries: Sequence[Query]) -> Tensor:
        levels = []
        for query in queries:
            outcome, level = self.history.outcome(query.id), NOISE
            if outcome is not None and outcome.count is not None:
                level = NOISE / outcome.count
            if outcome is not None and outcome.noise is not None:
                level = outcome.noise
            is_row = outcome is not None or self.is_censored  # what is pending has not faded
            if self.setting.forgetting == "weights" and is_row:
                level /= ETA ** (self.t - 1 - query.round_number)
            levels.append(level)
        return double(levels).reshape(-1)

    def at(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and standard deviations: n x m each."""
        means, deviations = [], []
        conditioned = [*self.rows]
        redraws = self.setting.is_separate and self.setting.method == "draws"
        if not (self.is_censored or redraws or self.setting.feedback == "ignored"):
            conditioned += self.waiting  # pending points reduce the deviation
        for j, prior_mean in enumerate(self.means):
            at = self.places(self.rows), self.Y[:, j] - prior_mean, self.noises(self.rows), places
            means.append(prior_mean + posterior(self.kernel(j), *at)[0])
            more = self.places(conditioned)
            zeros = torch.zeros(len(more), dtype=torch.float64)
            rest = posterior(self.kernel(j), more, zeros, self.noises(conditioned), places)[1]
            added = NOISE if self.setting.feedback == "published" else 0.0
            deviations.append((rest.diagonal().clamp_min(0.0) + added).sqrt())
        return torch.stack(means, dim=-1), torch.stack(deviations, dim=-1)

    def gain(self, j: int) -> float:
        """Return the information gain of the rows, pending ones left out."""
        rows, root = self.places(self.rows), self.noises(self.rows).rsqrt()
        scaled = root.unsqueeze(-1) * self.kernel(j)(rows, rows) * root
        return 0.5 * float(torch.logdet(torch.eye(len(rows), dtype=torch.float64) + scaled))

    # --- widths and scores --------------------------------------------------------------------

    def level(self) -> float:
        """Return the share of delta of this segment, this epoch and one output."""
        share = DELTA
        if self.setting.special == "restart":
            share *= 6.0 / (math.pi * (self.segment + 1)) ** 2
        if self.setting.is_separate:
            return share / 3.0
        if self.setting.rule != "none":
            share *= 6.0 / (math.pi * self.epoch) ** 2
            share *= 1.0 if self.setting.rule == "exact" else 0.5
        return share / 2.0 if self.setting.method == "draws" else share

    def widths(self) -> list[float]:
        """Return the width of each output."""
        found = []
        for j in range(len(self.lengths)):
            total, span = 0.0, 0.0
            if self.is_censored:
                deviations = self.at(self.places(self.waited_for))[1][:, j]
                shares = self.shares if j == 0 else [1.0] * len(self.waited_for)
                total, span = float(deviations @ double(shares)), self.spans[j]
            if self.setting.method == "ucb" or (
                self.setting.method == "draws" and self.setting.is_separate
            ):
                found.append(WIDTHS[j] + span * total)
                continue
            noise_bound = R
            if self.setting.rule in ("relabeled", "fresh"):
                noise_bound *= math.sqrt(1.0 + float(self.kappa @ self.kappa))
            log = math.log((2.0 if self.is_censored else 1.0) / self.level())
            radius = math.sqrt(2.0 * (self.gain(j) + log) / NOISE)
            found.append(span / NOISE * total + B + (noise_bound + span) * radius)
        return found

    def scores(self, means: Tensor, deviations: Tensor) -> Tensor:
        """Return what the method maximizes."""
        widths = double(self.widths())
        upper = means[:, 0] + widths[0] * deviations[:, 0]
        if not self.setting.is_separate:
            return upper
        lower = means[:, 1:] - widths[1:] * deviations[:, 1:]
        if self.setting.rule == "separate" and self.setting.method == "igp":
            weights = torch.cat([double([1.0]), -self.kappa])  # one bound of the weighted sum
            active = (weights != 0.0).double()
            width = (active * widths.square()).sum().sqrt()
            return means @ weights + width * (deviations * weights).square().sum(-1).sqrt()
        if self.setting.rule == "every round":
            upper, lower = upper.clamp(-3.0, 3.0), lower.clamp(-0.4, 0.4)
        return upper - charges(lower, self.setting.rule) @ self.kappa

    def check(self) -> None:
        """Compare what the loop says of its choice, and the choice with all others."""
        query, known = self.query, self.query.diagnostics
        means, deviations = self.at(self.now(query.x.unsqueeze(0)))
        widths = self.widths()
        expected = {
            "mean": self.setting.sign * float(means[0, 0]),
            "standard_deviation": float(deviations[0, 0]),
            "width": widths[0],
        }
        if self.setting.is_separate:
            for j in (1, 2):
                expected[f"constraint_mean_{j}"] = float(means[0, j])
        if "information_gain" in known:
            expected["information_gain"] = self.gain(0)
        if self.setting.method != "draws":
            score = self.scores(means, deviations)
            expected["acquisition_value"] = float(score)
            on_arms = self.setting.domain == "arms"
            points = CHOICES[self.setting.available(self.t)] if on_arms else GRID
            others = self.scores(*self.at(self.now(points)))
            # of several peaks on a box the search from random points finds one of the highest
            slack = 1e-7 if on_arms else 0.1 * float(others.max() - others.min())
            assert float(score) >= float(others.max()) - slack * max(1.0, float(others.abs().max()))
        for name, value in expected.items():
            assert abs(known[name] - value) <= 1e-7 * max(1.0, abs(value)), (
                name,
                self.t,
                known[name],
                value,
            )

"""An independent computation of the numbers that a run prints, from its log and the papers.

Width and standard deviation of each round, the bounds on regret and violation, and the number of
rounds that they cover follow from what was asked and told, the kernel, and the bounds that the user
stated. Here they are computed densely, without any posterior, width, gain, share of delta or
multiplier of the package. :func:`deviations` compares them with what the run printed.

Formulas are in prior standard deviations; what is printed of regret is multiplied by this unit.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, fsum, inf, isfinite, log, nan, pi, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from botorch_bandits import BanditLoop
from botorch_bandits.history import History
from claims.building import EPOCH_LENGTH, FACTORS, MAX_DELAY, STEP_SIZE, WEIGHT_OF_TRUTH, Plan
from claims.settings import LIST, Setting
from claims.worlds import kernel_of

TOLERANCE = 1e-8
"""By how much, absolute and relative, a printed number may differ."""

Array = NDArray[Any]
Numbers = dict[str, float]
"""Numbers by name."""


def play(setting: Setting) -> BanditLoop:
    """Play a run in which outcomes are late or missing if the setting says so.

    Args:
        setting: With any delays, an outcome comes up to three rounds later than it could; with any
            failures, every fifth query fails; with anything attached, every fourth round is.
    """
    plan, stream = Plan(setting), np.random.default_rng(setting.number)
    world, unit, loop = plan.world, plan.unit, plan.loop(0)
    history, levels = loop.history, (0.2, -0.1)  # of constraints, the second of which is met
    most = plan.minimum + plan.outcome_bound * unit
    reward = world.of_norm(plan.norm, stream, "random")
    for t in range(setting.num_rounds + 1):
        for query in history.pending():
            if setting.delays != "none" and t - query.round_number < query.id * 7 % 4:
                continue
            if setting.failures != "none" and query.id % 5 == 3:
                loop.fail(query.id)
                continue
            value = float(reward(history.inputs(torch.tensor([query.id]))))
            noise = plan.noise_bound * stream.uniform(-1.0, 1.0)
            outcome = plan.prior_mean + unit * (value + noise)
            if setting.is_censored:
                outcome = min(max(outcome, plan.minimum), most)
            told = [level * (1.0 + 0.1 * value) for level in levels[: history.num_constraints]]
            loop.tell(query.id, outcome, told or None)
        given: dict[str, Any] = {}
        if world.context_dim:
            given = {"context": [float(stream.choice(world.contexts))]}
        if setting.attached != "none" and t % 4 == 3:
            loop.attach(world.points[t % len(world.points)], plan.prior_mean, **given)
        elif t < setting.num_rounds:
            loop.ask(**given)
    return loop


def printed(loop: BanditLoop) -> Numbers:
    """Return what a run printed.

    Args:
        loop: That was played.
    """
    numbers: dict[str, float | None] = {}
    for query in loop.history.queries:
        if query.origin == "acquisition":
            for name in ("width", "standard_deviation"):
                numbers[f"{name}, {query.id}"] = query.diagnostics[name]
    for name, each in loop.guarantee().statements.items():
        known = {"delta": each.delta, "bound": each.bound, "rounds": each.num_rounds}
        numbers |= {f"{name}, {what}": x for what, x in {**known, "total": each.total}.items()}
    return {name: value for name, value in numbers.items() if value is not None}


def deviations(setting: Setting) -> dict[str, tuple[float, float]]:
    """Return what a run printed and what it should have printed, where the two differ.

    Args:
        setting: Of the run.
    """
    loop = play(setting)
    told, right = printed(loop), expected(Plan(setting), loop.history)
    pairs = {name: (told.get(name, nan), right.get(name, nan)) for name in told | right}
    return {n: pair for n, pair in pairs.items() if not np.isclose(*pair, TOLERANCE, TOLERANCE)}


def expected(plan: Plan, history: History) -> Numbers:
    """Return the numbers that a run should print, by the names of :func:`printed`.

    Args:
        plan: What the user stated.
        history: The log of the run.
    """
    setting, unit = plan.setting, plan.unit
    covers_pending = setting.is_censored or setting.feedback == "ignored"
    numbers: Numbers = {}
    covered = []  # bounds on the regret of rounds, constraints there, and multipliers
    for query in history.queries:
        if query.origin != "acquisition":
            continue
        i, this = query.id, _Round(plan, history, query.id)
        width, deviation = this.width_and_deviation()
        numbers |= {f"width, {i}": width, f"standard_deviation, {i}": deviation * unit}
        if this.waiting and not covers_pending:
            continue
        bound, g = 2.0 * (width * deviation + plan.variation) * unit, np.empty(0)
        if setting.method == "Theorem 2":
            bound += unit / this.t**2
        if "separate" in setting.constraints:
            bound, g = this.certificate(width, deviation)
        elif setting.constraints != "none":
            g = np.array(history.outcomes[i].constraints)  # all arrive in order
        covered.append((bound, g, this.kappa))
    delta = plan.delta
    if "fresh" in setting.constraints:  # bands are those of the running epoch
        delta = segment(plan, history, history.num_queries)[1]
    return {**numbers, "bands, delta": delta, **totals(plan, history.num_queries, covered)}


def totals(plan: Plan, num_rounds: int, covered: list[tuple[Any, Array, Array]]) -> Numbers:
    """Return the bounds on regret and violation.

    Args:
        plan: What the user stated.
        num_rounds: All of them.
        covered: The bound on the regret, the constraint values, or bounds on them, and multipliers
            of the rounds that are covered.
    """
    kind, n, delta, largest = plan.setting.constraints, len(covered), plan.delta, inf
    if kind == "none" and not plan.setting.is_drawn:
        largest = 2.0 * (plan.norm + plan.variation) * plan.unit
    total = fsum(min(bound, largest) for bound, _, _ in covered)
    sums = np.sum([g for _, g, _ in covered], axis=0)
    if kind.startswith("additive, fresh"):
        R = plan.noise_bound * plan.unit
        squares = fsum(kappa @ kappa for _, _, kappa in covered)
        total += R * sum_of_noise(squares, delta / 4.0) - sum(k @ g for _, g, k in covered)
        sums = sums + R * sum_of_noise(n, delta / (4.0 * len(sums)))
    bounds = {"regret": total, "violation": float(np.linalg.norm(sums.clip(0.0)))}
    numbers: Numbers = {}
    for name in ("regret",) if kind == "none" else bounds:
        each = {"bound": bounds[name], "rounds": n, "delta": delta, "total": bounds[name]}
        if n < num_rounds:
            each["total"] += (num_rounds - n) * largest
        numbers |= {f"{name}, {what}": x for what, x in each.items() if isfinite(x)}
    return numbers


def sum_of_noise(squares: float, delta: float) -> float:
    """Bound a sum of noises with weights whose squares have this sum (method of mixtures)."""
    return sqrt(2.0 * (squares + 1.0) * log(sqrt(squares + 1.0) / delta))


def largest_gain(K: Array, lam: float, t: int) -> float:
    """Return the maximum of ``1/2 sum ln(1 + m_i l_i / lam)`` over real ``m_i`` that sum to t."""
    floors = np.sort(lam / np.linalg.eigvalsh(K).clip(1e-300))  # water rises above them
    levels = (t + floors.cumsum()) / np.arange(1, len(K) + 1)
    return 0.5 * float(np.log((levels.min() / floors).clip(1.0)).sum())


def segment(plan: Plan, history: History, i: int) -> tuple[int, float, Array]:
    """Return the first query that counts for query ``i``, its share of delta, and multipliers."""
    setting, delta, kind, S = plan.setting, plan.delta, plan.setting.constraints, EPOCH_LENGTH
    kappa = np.full(history.num_constraints, float("mult" in kind))
    if setting.restart == "oracle":
        late = i >= plan.change_round
        return late * plan.change_round, 6.0 * delta / (pi * (1 + late)) ** 2, kappa
    for e in range(i // S):  # outcomes count in the epoch of their arrival
        own = [o.constraints for o in history.outcomes if (o.arrived_round - 1) // S == e]
        mean = np.array(own).sum(0) / S
        if "mult" in kind:
            kappa = kappa * np.exp(mean.clip(0.0))
        else:
            kappa = (kappa + STEP_SIZE * mean).clip(0.0)
    if "fresh" not in kind:
        return 0, delta / (1 + len(kappa)), kappa
    share = 6.0 * delta / (pi * (i // S + 1)) ** 2
    if setting.horizon == "told":
        share = delta / ceil(setting.num_rounds / S)
    return i // S * S, share if "mult" in kind else share / 2.0, kappa


class _Round:
    """What is known when query ``i`` is chosen."""

    def __init__(self, plan: Plan, history: History, i: int) -> None:
        self.plan, self.setting, self.lam, self.i = plan, plan.setting, float(plan.setting.lam), i
        self.first, self.delta, self.kappa = segment(plan, history, i)
        outcomes = [o for o in history.outcomes if o.arrived_round <= i]  # in order of arrival
        outcomes = [o for o in outcomes if o.query_id >= self.first]
        self.told, self.t = [o.query_id for o in outcomes], i - self.first + 1
        values = [((o.reward - plan.prior_mean) / plan.unit, *o.constraints) for o in outcomes]
        self.Y = np.array(values).reshape(len(values), 1 + len(self.kappa))
        ended = {event.query_id for event in history.events if event.arrived_round <= i}
        self.asked = list(range(self.first, i))
        self.waiting = [j for j in self.asked if j not in ended]
        self.X = history.inputs()[: i + 1]
        self.K: Array = plan.world.covariance(self.X, self.X).numpy()

    def solved(self, rows: list[int], right: Array) -> Array:
        """Return ``(K + lam I)^-1`` of some rows times a matrix."""
        noisy = self.K[np.ix_(rows, rows)] + self.lam * np.eye(len(rows))
        return np.linalg.solve(noisy, right)

    def deviation(self, rows: list[int], at: list[int]) -> Array:
        """Return posterior standard deviations at some queries."""
        k = self.K[np.ix_(rows, at)]
        return np.sqrt(1.0 - (k * self.solved(rows, k)).sum(0))

    def gain(self, rows: list[int]) -> float:
        """Return ``1/2 ln det(I + K / lam)``."""
        K = self.K[np.ix_(rows, rows)]
        return 0.5 * float(np.linalg.slogdet(np.eye(len(K)) + K / self.lam)[1])

    def width_and_deviation(self) -> tuple[float, float]:
        """Return the width, and the standard deviation at the point of the round."""
        if self.setting.method == LIST:
            return self.of_list()
        rows, width = self.told + self.waiting, self.width
        if self.setting.feedback == "ignored":
            rows = self.told
        if self.setting.is_censored:
            rows, width = self.asked, self.censored
        return width(), float(self.deviation(rows, [self.i])[0])

    def width(self) -> float:
        """Return the width of a method without censored feedback."""
        plan, setting, delta, lam, t = self.plan, self.setting, self.delta, self.lam, self.t
        method, B, R, level = setting.method, plan.norm, plan.noise_bound, log(1.0 / delta)
        if method == "DMM":
            return self.half_of_ridges() / float(self.deviation(self.told, [self.i])[0])
        if method == "Theorem 1":
            return sqrt(2 * log(setting.num_arms * (pi * t) ** 2 / (6 * delta)))
        if method == "Theorem 2":
            a, b = plan.world.smoothness_at(setting.lengthscale, 1.0)
            d, a = setting.dim, a * len(plan.world.contexts)
            beta = log(2 * (pi * t) ** 2 / (3 * delta))
            beta += d * log(t**2 * d * b * sqrt(log(4 * d * a / delta)))
            return sqrt(2 * beta)
        if method == "Theorem 3":
            arms = plan.world.covariance(plan.world.points, plan.world.points).numpy()
            cube = log(t / delta) ** 3
            return sqrt(2 * B**2 + 300 * largest_gain(arms, lam, t) * cube)
        if "additive, fresh" in setting.constraints:
            R *= sqrt(1.0 + self.kappa @ self.kappa)
        nats = 2.0 * (self.gain(self.told) + level)
        if method == "AMM":
            return sqrt(B**2 + R**2 / lam * nats)
        if "printed" in method:
            return B + R * sqrt(nats + 2.0)
        return B + R * sqrt(nats / lam) + plan.variation * sqrt(len(self.told) / lam)

    def censored(self) -> float:
        """Return the width of Verma, Dai and Low 2022, in which all queries are rows."""
        kind, B_y, m = self.setting.feedback, self.plan.outcome_bound, MAX_DELAY
        summed = [j for j in self.waiting if self.i - j < m]
        if "window all" in kind:
            summed = self.asked[-m:]
        pending = B_y * self.deviation(self.asked, summed).sum()
        if "middle" in kind:  # what a fill may be wrong by
            pending /= 2.0
        nats = 2.0 * (self.gain(self.asked) + log(2.0 / self.delta))
        if "printed" in self.setting.method:
            nats += 2.0
        else:
            pending, nats = pending / self.lam, nats / self.lam
        return float(pending + self.plan.norm + (self.plan.noise_bound + B_y) * sqrt(nats))

    def half_of_ridges(self) -> float:
        """Return half of the distance of DMM's bounds, over 48 ridges and infinity."""
        B, R, lam, told, y = (
            self.plan.norm,
            self.plan.noise_bound,
            self.lam,
            self.told,
            self.Y[:, 0],
        )
        K, k, n = self.K[np.ix_(told, told)], self.K[told, self.i], len(told)
        radius = 2.0 * R**2 * (self.gain(told) - log(self.delta))
        radius += lam * (y @ self.solved(told, y))
        ends = [(-B, B)]
        for a in (*np.geomspace(1e-2 * lam, 1e2 * (lam + n), 47), lam):
            inverse = np.linalg.inv(K + a * np.eye(n))
            radicand = radius / a + B**2 - y @ inverse @ y
            half = sqrt((1.0 - k @ inverse @ k) * radicand)
            ends.append((k @ inverse @ y - half, k @ inverse @ y + half))
        lower, upper = np.array(ends).T
        return 0.5 * float(upper.min() - lower.max())

    def of_list(self) -> tuple[float, float]:
        """Return half of the distance of the survivors' bounds over the mixture's deviation."""
        y, n, told, delta = self.Y[:, 0], len(self.told), self.told, self.delta
        likelihoods, moments = np.zeros((len(FACTORS), n + 1)), []
        for row, (length, ratio, scale) in zip(likelihoods, FACTORS, strict=True):
            kernel = kernel_of(replace(self.setting, lengthscale=length * self.setting.lengthscale))
            K = scale * kernel(self.X).to_dense().detach().numpy()
            noisy = K[np.ix_(told, told)] + scale * ratio * self.lam * np.eye(n)
            L = np.linalg.cholesky(noisy)  # its leading blocks are of the first outcomes
            z, k = np.linalg.solve(L, y), np.linalg.solve(L, K[told, self.i])
            row[1:] = (-0.5 * z**2 - np.log(sqrt(2.0 * pi) * np.diag(L))).cumsum()
            moments.append((k @ z, sqrt(K[self.i, self.i] - k @ k)))
        weights = np.full(len(FACTORS), (1.0 - WEIGHT_OF_TRUTH) / (len(FACTORS) - 1))
        weights[-1] = WEIGHT_OF_TRUTH
        joint = np.exp(likelihoods) * weights[:, None]
        survives = (np.log(joint.sum(0)) - likelihoods < log(2.0 / delta)).all(1)
        mean, deviation = np.array(moments).T
        beta = 2 * log(self.setting.num_arms * (pi * self.t) ** 2 / (3 * delta))
        upper, lower = (mean + sign * sqrt(beta) * deviation for sign in (1.0, -1.0))
        p = joint[:, -1] / joint[:, -1].sum()
        spread = sqrt(p @ (deviation**2 + (mean - p @ mean) ** 2))
        return 0.5 * float(upper[survives].max() - lower[survives].min()) / spread, spread

    def certificate(self, width: float, deviation: float) -> tuple[Any, Array]:
        """Return what separate bounds say of regret and constraints at the point of the round."""
        means = self.K[self.i, self.told] @ self.solved(self.told, self.Y)
        half, kappa = width * deviation * self.plan.unit, self.kappa
        norms = sqrt((1.0 + (kappa > 0.0).sum()) * (1.0 + kappa @ kappa))
        return half * (norms + 1.0) - kappa @ means[1:], means[1:] + half

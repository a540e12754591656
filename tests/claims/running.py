"""Plays runs of a setting and looks whether what ``guarantee()`` says is true in them.

Before a run nothing is decided: adversaries do what they can. What the last guarantee of a run
assumes decides what they may do; a run in which one did something that is assumed away is played
again without it.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from records import rebuilt
from torch import Tensor

from botorch_bandits.confidence import Guarantee
from botorch_bandits.confidence import theorems as words
from botorch_bandits.history import Query
from botorch_bandits.loop.chooser import ArmsEngine
from botorch_bandits.loop.view import View
from botorch_bandits.models import CandidatesModel
from claims.building import FACTORS_OF_EPOCHS, MAX_DELAY, STEP_SIZE, Plan
from claims.settings import LISTS, Setting
from claims.worlds import Function, Noise, two_point

BOUNDED = ("DMM", *LISTS)
"""Methods whose bounds are no multiple of one deviation."""

PLACES = ("at the point", "at the context")
"""Where bands may be stated alone."""

NEVER = 10**6
"""The round in which an outcome arrives that does not."""

TOLERANCE = 1e-7
"""By how much of its size a bound may be exceeded, for rounding."""


@dataclass
class Check:
    """Whether one statement was true in one run.

    Attributes:
        allowed: The probability with which it may fail.
        told: What failed first; empty if nothing did.
        excess: By how much more than it says, where it is about an expectation.
    """

    allowed: float
    told: str = ""
    excess: float | None = None

    @property
    def failed(self) -> bool:
        """Whether it was not true."""
        return bool(self.told)


@dataclass
class Run:
    """What became of one run.

    Attributes:
        holds: Whether the last guarantee holds in every statement.
        theorem: That it names.
        checks: By statement; only those that hold.
        assumptions: All that were stated in the run.
        text: The last guarantee in words.
        forbidden: What adversaries were not allowed.
    """

    holds: bool
    theorem: str
    checks: dict[str, Check]
    assumptions: frozenset[str]
    text: str
    forbidden: frozenset[str] = frozenset()


AXES_OF_EVENTS = {
    "ARRIVALS": ("delays", "order"),
    "FAILURES": ("failures",),
    "ATTACHED": ("attached",),
    "ROWS": ("delays", "order", "failures", "attached"),
}
"""The axes that the assumptions ``..._IGNORE_NOISE`` and ``..._IGNORE_FUNCTION`` are about."""


def forbidden_by(assumptions: frozenset[str]) -> frozenset[str]:
    """Return which behaviors of adversaries these assumptions rule out, as ``axis: value``.

    Args:
        assumptions: Of a guarantee.
    """

    def is_assumed(name: str) -> bool:
        return getattr(words, name, None) in assumptions

    found: set[str] = set()
    for events, axes in AXES_OF_EVENTS.items():
        ignores_function = is_assumed(f"{events}_IGNORE_FUNCTION")
        if ignores_function or is_assumed(f"{events}_IGNORE_NOISE"):
            found.update(f"{axis}: by noise" for axis in axes)
        if ignores_function:
            found.update(f"{axis}: by reward" for axis in axes if axis != "order")
    if is_assumed("CONTEXTS_IGNORE_FUNCTION") or is_assumed("ROWS_IGNORE_FUNCTION"):
        found.add("contexts: adversarial")
    if is_assumed("ATTACHED_WITHOUT_LOSS"):
        found.add(LOSSES)
    if any("delays depend neither on the noise nor on the inputs" in each for each in assumptions):
        found.update(f"delays: {by}" for by in ("by noise", "by reward", "by input"))
        found.update(f"failures: {by}" for by in ("by noise", "by reward"))
    return frozenset(found)


LOSSES = "losses: any"
"""That outcomes do not arrive in time, with censored feedback."""

TAME = {
    "delays": "geometric",
    "order": "shuffled",
    "failures": "random",
    "attached": "random",
    "contexts": "random",
}
"""What takes the place of a behavior that is ruled out."""


@dataclass
class _Told:
    """A query of a run and what is known to its player alone."""

    query_id: int
    row: Tensor
    value: float
    noise: float
    outcome: float
    constraint: float | None
    due: int
    regret: float
    true_constraint: float
    is_in_hand: bool
    origin: str
    fails: bool = False
    ended: bool = False


class Player:
    """Plays runs of one setting.

    Args:
        setting: Its axes.
        seed: Of all runs.
    """

    def __init__(self, setting: Setting, seed: int = 0) -> None:
        """See the class."""
        self.setting, self.seed = setting, seed
        self.plan = Plan(setting)
        self.world = self.plan.world
        self.is_centered = True  # whether the norm is that of the function less the prior mean
        self._forbidden: frozenset[str] = frozenset()

    def play(self, run: int) -> Run:
        """Play a run; again if an adversary did what is assumed away.

        Args:
            run: Its number.
        """
        while True:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kind = _DropInRun if self.setting.played == "drop-in" else _LoopRun
                result = kind(self, run, self._forbidden).play()
            forbidden = self._forbidden | forbidden_by(result.assumptions)
            if not self._uses(forbidden - self._forbidden):
                result.forbidden = self._forbidden
                return result
            self._forbidden = forbidden

    def _uses(self, forbidden: frozenset[str]) -> bool:
        axes = {**self.setting.axes, "losses": "any"}
        return any(axes[axis] == value for axis, value in (each.split(": ") for each in forbidden))


class _AnyRun:
    """What runs of loops and drop-ins share: functions, noise, events, and what is looked at."""

    def __init__(self, player: Player, run: int, forbidden: frozenset[str]) -> None:
        self.setting, self.plan, self.world = player.setting, player.plan, player.world
        self.player = player
        self.axes = dict(self.setting.axes)
        for axis, value in (each.split(": ") for each in forbidden - {LOSSES}):
            if self.axes[axis] == value:
                self.axes[axis] = TAME[axis]
        if LOSSES in forbidden:
            self.axes["failures"] = "none"
            if self.axes["delays"] != "none":
                self.axes["delays"] = "fixed"
        self.stream = np.random.default_rng([player.seed, self.setting.number, run])
        self.run = run
        self.told: list[_Told] = []
        self.failures: dict[str, str] = {}  # what failed first, by what it is about
        self.multiplier = 0.0  # the largest
        self.assumptions: set[str] = set()
        self.num_bands = 0  # that were looked at
        self.unit, self.num_rounds = self.plan.unit, self.setting.num_rounds
        noise_kind = "Gaussian" if self.setting.is_drawn else self.setting.noise
        self.noise = Noise(noise_kind, self.plan.noise_bound * self.unit, self.stream)
        self.sum_of_noise = 0.0
        self.direction = 1.0 if self.stream.random() < 0.5 else -1.0
        self.rho, self.has_forecasts = 1.0, False
        if self.setting.is_censored:
            self.rho = arrives_in_time(self.axes["delays"], self.axes["failures"])
        self.has_constraints = self.setting.constraints != "none"
        self.is_separate = self.setting.method.startswith("Lagrangian")
        self._make_functions()

    # --- functions --------------------------------------------------------------------------

    @property
    def does_change(self) -> bool:
        """Whether there is another function in the second half."""
        return self.setting.restart.startswith(("oracle", "change points"))

    def _make_functions(self) -> None:
        world = self.world
        self.functions: list[Function] = []
        self.g_table = torch.empty(0)
        self.best_feasible, self.index_of_best = 0.0, 0
        self.constraint: Function | None = None
        for _ in range(2 if self.does_change else 1):
            self.functions.append(self._function())
        if self.has_constraints:
            self._make_constraint()
        self.segment = 0
        fine = world.fine_inputs
        self.tables = [f(world.inputs) for f in self.functions]
        fines = self.tables if fine is world.inputs else [f(fine) for f in self.functions]
        num_contexts = len(world.contexts)
        self.bests = [table.reshape(num_contexts, -1).amax(-1) for table in fines]
        self.medians = [float(table.median()) for table in self.tables]
        if self.has_constraints:
            assert self.constraint is not None
            self.g_table = self.constraint(world.inputs)
            feasible = self.g_table <= 0.0
            self.best_feasible = float(self.tables[0][feasible].max())
            self.index_of_best = int(self.tables[0].masked_fill(~feasible, -torch.inf).argmax())

    def _function(self) -> Function:
        setting, world, stream = self.setting, self.world, self.stream
        unit, mean = self.unit, self.plan.prior_mean
        if setting.is_drawn:
            drawn = world.drawn(stream)
            return lambda X: mean + unit * drawn(X)
        if setting.is_censored:
            positive = world.positive_of_norm(self.plan.norm, stream)
            minimum = self.plan.minimum
            return lambda X: minimum + unit * positive(X)
        norm = self.plan.norm
        if self.has_constraints and not self.is_separate:
            norm = 0.6 * norm
        bounded = world.of_norm(norm, stream, setting.shape)
        if setting.models != "one":
            bounded = self._of_every_norm(bounded, norm)
        offset = mean if self.player.is_centered else 0.0
        return lambda X: offset + unit * bounded(X)

    def _of_every_norm(self, function: Function, norm: float) -> Function:
        """Return a function as large as it may be in the kernels of all epochs."""
        inputs, plan = self.world.inputs, self.plan
        values, largest = function(inputs), norm
        for length, _, _ in FACTORS_OF_EPOCHS:
            matrix = plan.kernel_of_epoch(length, 1.0)(inputs).to_dense().detach()
            matrix = matrix / self.world.prior_variance
            largest = max(largest, float(values @ torch.linalg.solve(matrix, values)) ** 0.5)
        return lambda X: norm / largest * function(X)

    def _make_constraint(self) -> None:
        """Make ``g``, so that the penalized function has a norm of at most B in every epoch."""
        world, stream, unit, norm = self.world, self.stream, self.unit, self.plan.norm
        num_updates = max((self.num_rounds - 1) // 4, 1)
        kind = self.setting.constraints
        g = world.of_norm(1.0, stream, self.setting.shape)
        if self.setting.models != "one":
            g = self._of_every_norm(g, 1.0)
        values = g(world.inputs)
        if float(values.min()) > -1e-6:  # some point must meet it
            first = g
            g = lambda X: -first(X)  # noqa: E731
            values = -values
        if self.is_separate:
            size = norm * unit
        elif kind.startswith("multiplicative"):
            matrices = [world.covariance(world.inputs, world.inputs)]
            if self.setting.models != "one":
                kernels = [self.plan.kernel_of_epoch(each[0], 1.0) for each in FACTORS_OF_EPOCHS]
                matrices = [k(world.inputs).to_dense().detach() for k in kernels]
                matrices = [matrix / world.prior_variance for matrix in matrices]
            size = norm * unit
            while True:
                largest = float(values.max()) * size
                penalty = torch.expm1((values * size).clamp_min(0.0)) / unit
                needed = max(penalty @ torch.linalg.solve(m, penalty) for m in matrices)
                if math.exp(num_updates * max(largest, 0.0)) * float(needed) ** 0.5 <= 0.4 * norm:
                    break
                size *= 0.5
        else:
            R, B = self.plan.noise_bound * unit, norm * unit
            per_norm = num_updates * STEP_SIZE  # kappa is at most this times (norm + R)
            size = -R / 2.0 + math.sqrt(R * R / 4.0 + 0.4 * B / per_norm)
        self.constraint = lambda X: size * g(X)

    # --- outcomes ---------------------------------------------------------------------------

    @property
    def f(self) -> Function:
        return self.functions[self.segment]

    @property
    def table(self) -> Tensor:
        return self.tables[self.segment]

    def value_at(self, row: Tensor) -> float:
        """Return the reward function at one input; on arms it is in the table."""
        if self.setting.is_box:
            return float(self.f(row.unsqueeze(0)))
        return float(self.table[self.world.index[tuple(row.tolist())]])

    def moves_of_round(self, row: Tensor) -> Tensor:
        """Return by how much the rewards of all inputs differ in a round from the function."""
        v = self.plan.variation * self.unit
        if v == 0.0:
            return torch.zeros(())
        signs = torch.from_numpy(self.stream.choice((-1.0, 1.0), len(self.world.inputs)))
        if self.setting.variation == "against the band":  # always to the same side
            signs = self.direction * torch.ones(len(self.world.inputs), dtype=torch.float64)
            if self.run % 2:  # up where it is played, down elsewhere
                signs = -signs
                signs[self.world.index[tuple(row.tolist())]] *= -1.0
        return v * signs

    def draw_noise(self, value: float, row: Tensor) -> float:
        if self.setting.is_censored:  # outcomes lie in [minimum, minimum + B_y]
            height, R = value - self.plan.minimum, self.noise.bound
            low = max(-height, -R)
            high = min(self.plan.outcome_bound * self.unit - height, R)
            noise = 0.0 if min(-low, high) < 1e-12 else two_point(low, high, self.stream)
        else:
            factor = float(self.plan.noise_factor(row.unsqueeze(0)))
            noise = factor * self.noise.draw(self.sum_of_noise)
        self.sum_of_noise += noise
        return noise

    def extra_delay(self, row: Tensor, value: float, noise: float) -> int:
        kind = self.axes["delays"]
        if kind == "fixed":
            return 2
        if kind == "geometric":
            return int(self.stream.geometric(1.0 / 3.0)) - 1
        if kind == "by input":
            return 3 if float(row[-1]) > 0.5 else 0
        if kind == "by reward":
            return 4 if value < self.medians[self.segment] else 0
        if kind == "by noise":
            return 0 if noise * self.direction > 0.0 else (4 if self.run % 4 == 0 else NEVER)
        return 0

    def does_fail(self, value: float, noise: float) -> bool:
        kind = self.axes["failures"]
        if kind == "random":
            return bool(self.stream.random() < 0.2)
        if kind == "by reward":
            return value < self.medians[self.segment]
        return kind == "by noise" and noise * self.direction < 0.0

    def new_outcome(
        self, query_id: int, row: Tensor, origin: str, round_number: int, is_in_hand: bool
    ) -> _Told:
        """Draw all that will happen to a query, and note it."""
        value = self.value_at(row)
        noise = self.draw_noise(value, row)
        moves = self.moves_of_round(row)
        num_workers = int(self.setting.workers)
        batch_end = -(-round_number // num_workers) * num_workers
        delay = self.extra_delay(row, value, noise)
        constraint, true_constraint = None, 0.0
        if self.constraint is not None:
            index = self.world.index[tuple(row.tolist())]  # constraints are played on arms
            constraint = true_constraint = float(self.g_table[index])
            if not self.setting.constraints.startswith("multiplicative"):
                constraint += self.noise.draw(self.sum_of_noise)
        context = 0
        if self.world.context_dim:
            context = int(np.abs(self.world.contexts - float(row[0])).argmin())
        best = float(self.bests[self.segment][context])
        if self.has_constraints:  # against the best point that meets them
            best = self.best_feasible
        if self.setting.variation != "none":  # in the rewards of the round
            table = self.table + moves
            value = float(table[self.world.index[tuple(row.tolist())]])
            best = float(table.reshape(len(self.world.contexts), -1)[context].max())
            if self.has_constraints:
                best = float(table[self.index_of_best])
        told = _Told(
            query_id,
            row,
            value,
            noise,
            value + noise,
            constraint,
            batch_end + 1 + delay,
            best - value,
            true_constraint,
            is_in_hand,
            origin,
            self.does_fail(value, noise),
        )
        self.told.append(told)
        return told

    def due(self, round_number: int) -> list[_Told]:
        """Return what arrives before a round is chosen, in order of arrival."""
        found = [t for t in self.told if not t.ended and t.due <= round_number]
        order = self.axes["order"]
        if order == "reversed":
            found.reverse()
        elif order == "shuffled":
            self.stream.shuffle(found)
        elif order == "by noise":
            found.sort(key=lambda t: -self.direction * t.noise)
            if len(found) > 1:  # the worst of them wait another round
                last = found.pop()
                last.due = round_number + 1
        for told in found:
            told.ended = True
        return found

    def row(self, x: Tensor, context: int) -> Tensor:
        if not self.world.context_dim:
            return x
        return torch.cat([torch.tensor([self.world.contexts[context]], dtype=torch.float64), x])

    # --- what is looked at ------------------------------------------------------------------

    def pick_context(self, known: tuple[Tensor, Tensor] | None = None) -> int:
        """Return the context of a round; an adversary takes the one where the band is worst.

        Args:
            known: Posterior means and standard deviations of all inputs.
        """
        number = len(self.world.contexts)
        if self.axes["contexts"] == "adversarial" and known is not None:
            mean, deviation = known
            worst = ((self.target() - mean).abs() / deviation).reshape(number, -1).amax(-1)
            return int(worst.argmax())
        return int(self.stream.integers(number))

    def target(self) -> Tensor:
        """Return what the band is about, at all inputs."""
        if self.setting.is_censored:
            return self.plan.minimum + self.rho * (self.table - self.plan.minimum)
        return self.table

    def look(
        self,
        excess: Tensor,
        where: str,
        is_in_hand: bool,
        at_point: Tensor | None = None,
        context: int = 0,
    ) -> None:
        """Note where a band fails.

        Args:
            excess: By how much each input's value lies outside its band; a band fails if positive.
            where: In which round.
            is_in_hand: Whether no outcome was pending.
            at_point: The excess at the chosen point.
            context: The number of the round's context.
        """
        self.num_bands += 1
        kind = "in hand" if is_in_hand else "pending"
        here = excess.reshape(len(self.world.contexts), -1)[context]
        parts = {"band": excess, "at the context": here}
        if at_point is not None:
            parts["at the point"] = at_point
        for name, values in parts.items():
            worst = float(values.max())
            if worst > 0.0:
                self.note(f"{name}, {kind}", f"{where}: outside by {worst:.3g}")

    def excess(self, target: Tensor, mean: Tensor, half: Tensor) -> Tensor:
        slack = TOLERANCE * (self.unit + target.abs())
        return (target - mean).abs() - half - slack

    def check_numbers(self, guarantee: Guarantee, where: str) -> None:
        """Compare the numbers for regret and violation with the truth."""
        regret = guarantee.regret
        covered = self._covered(guarantee)
        if regret is not None and regret.holds and regret.num_rounds is not None:
            if regret.num_rounds != len(covered):
                self.note(
                    "regret", f"{where}: {regret.num_rounds} rounds counted, not {len(covered)}"
                )
            if regret.bound is not None and not regret.is_expected:
                self._compare("regret", where, sum(t.regret for t in covered), regret.bound)
                if regret.total is not None:
                    everything = sum(t.regret for t in self.told)
                    self._compare("regret", f"{where}, in all", everything, regret.total)
        violation = guarantee.violation
        if violation is not None and violation.holds and violation.bound is not None:
            signed = max(sum(t.true_constraint for t in covered), 0.0)
            self._compare("violation", where, signed, violation.bound)

    def check_before(self, guarantee: Guarantee) -> None:
        """Compare what is said before a run with the whole run."""
        observed = sum(t.constraint or 0.0 for t in self.told)
        values = {
            "cumulative regret": self.rho * sum(t.regret for t in self.told),
            "the regret of": sum(t.regret for t in self.told),
            "constraint values as observed": max(observed, 0.0),
            "the violation of": max(sum(t.true_constraint for t in self.told), 0.0),
            "norm of the multipliers": self.multiplier,
        }
        if "gain" not in self.setting.method:  # elsewhere that in use is not the realized one
            values["information gain"] = guarantee.constants.get("information_gain", 0.0)
        for forecast in guarantee.forecasts:
            name = next((each for each in values if each in forecast.wording), None)
            if name is None or forecast.value is None:
                continue
            self.has_forecasts = True
            if values[name] > forecast.value + TOLERANCE * (self.unit + abs(forecast.value)):
                told = f"{name}: {values[name]:.6g} where at most {forecast.value:.6g} was said"
                self.note("before", told)

    def _covered(self, guarantee: Guarantee) -> list[_Told]:
        regret, origins = guarantee.regret, ["acquisition"]
        if regret is not None and regret.factor is not None and not regret.is_expected:
            origins.append("repeat")  # with the bound of the choice whose point is played again
        found = [t for t in self.told if t.origin in origins]
        if regret is not None and (regret.covers_pending or regret.counts_pending):
            return found
        return [t for t in found if t.is_in_hand]

    def _compare(self, name: str, where: str, value: float, bound: float) -> None:
        value = value * (self.rho if name == "regret" else 1.0)
        if value > bound + TOLERANCE * (self.unit + abs(bound)):
            self.note(name, f"{where}: {value:.6g} where at most {bound:.6g} is said")

    def note(self, name: str, told: str) -> None:
        """Note the first failure of each kind.

        Args:
            name: What it is about.
            told: What failed.
        """
        self.failures.setdefault(name, told)

    def result(self, guarantee: Guarantee) -> Run:
        """Judge a run by its last guarantee."""
        checks: dict[str, Check] = {}
        bands, regret, delta = guarantee.bands, guarantee.regret, self.plan.delta
        if guarantee.theorem is not None and bands is not None and bands.holds and self.num_bands:
            places = (each for each in PLACES if f"{each} of each round" in bands.text)
            place, kinds = next(places, "band"), ["in hand"]
            if "but for rounds that were chosen while outcomes were pending" not in bands.text:
                kinds.append("pending")
            told = [self.failures.get(f"{place}, {kind}", "") for kind in kinds]
            checks["bands"] = Check(allowed_by(bands.text, delta), told[0] or told[-1])
        if self.setting.method in LISTS and is_refuted(guarantee):  # the truth is on the list
            checks["bands"] = Check(delta, "the list was refuted")
        for name, each in (("regret", regret), ("violation", guarantee.violation)):
            if each is not None and each.holds and each.bound is not None:
                told_of_it = self.failures.get(name, "")
                checks[name] = Check(allowed_by(each.text, delta), told_of_it)
        if "regret" in checks and regret is not None and regret.is_expected:
            total = sum(t.regret for t in self._covered(guarantee))
            checks["regret"].excess = total - (regret.bound or 0.0)
        if self.has_forecasts:
            checks["before"] = Check(delta, self.failures.get("before", ""))
        self.assumptions.update(guarantee.assumptions)
        return Run(
            guarantee.holds,
            guarantee.theorem or "",
            checks,
            frozenset(self.assumptions),
            guarantee.explain(),
        )


def is_refuted(guarantee: Guarantee) -> bool:
    """Return whether all that a guarantee lacks is that the outcomes refuted what it assumes.

    Args:
        guarantee: At the end of a run.
    """
    gaps = [*guarantee.gaps, *(gap for part in guarantee.statements.values() for gap in part.gaps)]
    return guarantee.theorem is not None and bool(gaps) and all("refuted" in gap for gap in gaps)


def allowed_by(text: str, delta: float) -> float:
    """Return with which probability a statement may fail, as it says itself.

    Args:
        text: Of the statement.
        delta: Of the method, where the statement names no number.
    """
    found = re.search(r"with probability (\d*\.?\d+)", text)
    return delta if found is None else round(1.0 - float(found.group(1)), 12)


def arrives_in_time(delays: str, failures: str) -> float:
    """Return the probability that an outcome arrives before it is given up.

    Args:
        delays: The value on that axis, after adversaries were tamed.
        failures: Likewise.
    """
    late = {"none": 0.0, "fixed": 0.0}.get(delays, (2.0 / 3.0) ** MAX_DELAY)
    return (1.0 - late) * (1.0 if failures == "none" else 0.8)


class _LoopRun(_AnyRun):
    """A run of a loop."""

    def play(self) -> Run:
        plan, setting = self.plan, self.setting
        self.now, self.num_epochs = 0.0, 0
        seed = int(self.stream.integers(2**31))
        loop = self.loop = plan.loop(seed, known=self.known_of_rule())
        if self.run == 0 and setting.prior_mean != "zero" and setting.model == "BanditGP":
            assumptions = loop.guarantee().assumptions
            is_centered = any("less the prior mean" in each for each in assumptions)
            if is_centered != self.player.is_centered:
                self.player.is_centered = is_centered
                self._make_functions()
        middle = max(self.num_rounds // 2, 4)
        while loop.history.num_queries < self.num_rounds:
            t = loop.history.num_queries + 1
            self.now = float(t)
            if setting.history == "continued" and t == self.num_rounds // 2 + 1:
                known = self.known_of_rule()
                loop = self.loop = rebuilt(plan.loop(seed, known), loop.history)
            self.tell(self.due(t))
            if self.does_change and t > plan.change_round:
                self.segment = 1
            if t == middle:
                self.at_checkpoint(f"before round {t}")
            often = 2 if setting.attached == "by noise" else 5
            if setting.attached != "none" and t % often == often - 1:
                self.attach(t)
                continue
            self.ask(t)
        self.now = float(self.num_rounds + 1)
        if loop.history.num_pending > 1:
            self.at_checkpoint("at the end, some pending")
        self.now = float(self.num_rounds + 50)
        for told in self.told:
            told.due = 0 if told.due < NEVER else NEVER
        self.tell(self.due(NEVER - 1))
        self.tell(self.due(NEVER - 1))
        guarantee = loop.guarantee()
        self.check_numbers(guarantee, "at the end")
        played = [told for told in self.told if told.origin == "acquisition"]
        if setting.is_censored or all(told.is_in_hand for told in played):
            self.check_before(guarantee)
        return self.result(guarantee)

    def known_of_rule(self) -> dict[str, float]:
        """What a user may tell the multiplier rule for the sake of bounds before the run."""
        kind = self.setting.constraints
        if self.setting.horizon != "told" or not kind.endswith("fresh"):
            return {}
        if kind.startswith("multiplicative"):
            return {"unconstrained_gap": max(float(self.table.max()) - self.best_feasible, 0.0)}
        least, largest = float(self.g_table.min()), float(self.g_table.abs().max())
        reward = float(self.table.abs().max())
        told = {"largest_constraint": largest, "largest_reward": reward, "slater_margin": -least}
        return {name: value for name, value in told.items() if value > 0.0}

    def at_checkpoint(self, where: str) -> None:
        guarantee = self.loop.guarantee()
        self.assumptions.update(guarantee.assumptions)
        self.check_numbers(guarantee, where)

    def tell(self, arrived: list[_Told]) -> None:
        for told in arrived:
            if told.fails:
                self.loop.fail(told.query_id, at=self.now)
            else:
                given: dict[str, Any] = {}
                if told.constraint is not None:
                    given = {"constraints": [told.constraint]}
                self.loop.tell(told.query_id, told.outcome, at=self.now, **given)

    def attach(self, t: int) -> None:
        kind, points = self.axes["attached"], self.world.points
        context = self.pick_context()
        table = self.table.reshape(len(self.world.contexts), -1)[context]
        number = int(self.stream.integers(len(points)))
        if kind == "by reward":
            number = int((self.direction * table).argmax())
        row = self.row(points[number], context)
        value = self.value_at(row)
        noise = self.draw_noise(value, row)
        for _ in range(6 if kind == "by noise" else 0):
            another = self.draw_noise(value, row)
            noise = max(noise, another, key=lambda each: self.direction * each)
        given: dict[str, Any] = {"context": row[:1]} if self.world.context_dim else {}
        outcome = self.loop.attach(points[number], value + noise, at=self.now, **given)
        told = self.new_outcome(outcome.query_id, row, "attached", t, False)
        told.ended, told.fails, told.noise, told.outcome = True, False, noise, value + noise

    def ask(self, t: int) -> None:
        loop = self.loop
        moments_known = None
        looks = self.setting.forgetting == "none" and not loop._chooser.has_no_data()
        if self.stream_of_all_arms() is None and looks and not self.has_constraints:
            moments_known = moments(loop.current_model(), self.world.inputs)
        context = 0
        given: dict[str, Any] = {}
        if self.world.context_dim:
            context = self.pick_context(moments_known)
            given = {"context": self.row(torch.empty(0, dtype=torch.float64), context)}
        num_resets = len(loop.resets)
        is_in_hand = not any(
            not told.ended for told in self.told if told.query_id >= self.first_id(t)
        )
        query = loop.ask(at=self.now, **given)
        known, row = query.diagnostics, self.row(query.x, context)
        self.multiplier = max(self.multiplier, known.get("multiplier_1", 0.0))
        multipliers = loop._chooser.multipliers
        num_epochs = 0 if multipliers is None else multipliers.num_epochs
        if self.setting.constraints.endswith("fresh") and num_epochs != self.num_epochs:
            self.num_epochs = num_epochs  # bands are those of the running epoch
            for kind in ("in hand", "pending"):
                self.failures.pop(f"band, {kind}", None)
        if looks and "width" in known and query.origin == "acquisition":
            if self.has_constraints:
                self.look_at_penalized(query, f"round {t}", is_in_hand)
            else:
                stream = self.stream_of_all_arms()
                if stream is not None:
                    posterior = stream.player.posterior
                    deviation = posterior.variance[0].clamp_min(0.0).sqrt()
                    moments_known = posterior.mean[0, 0], deviation
                elif len(loop.resets) != num_resets:
                    moments_known = moments(loop.current_model(), self.world.inputs)
                assert moments_known is not None
                self.look_at_band(query, row, moments_known, f"round {t}", is_in_hand, context)
        if query.origin == "repeat":
            chosen = int(known["choice_round"]) - 1
            is_in_hand = next(each.is_in_hand for each in self.told if each.query_id == chosen)
        self.new_outcome(query.id, row, query.origin, t, is_in_hand)

    def stream_of_all_arms(self) -> ArmsEngine | None:
        """Return what knows the posterior of every input, if there is such a stream."""
        stream, _ = self.loop._chooser._engines()
        if not isinstance(stream, ArmsEngine):
            return None
        return None if stream.player.posterior.prior.num_front else stream

    def first_id(self, t: int) -> int:
        """Return the id of the first query that is waited for in a round."""
        resets = self.loop.resets
        first = resets[-1].after_round if resets else 0
        if self.setting.restart.startswith("oracle") and t > self.plan.change_round:
            first = self.plan.change_round
        return first

    def look_at_band(
        self,
        query: Query,
        row: Tensor,
        known: tuple[Tensor, Tensor],
        where: str,
        is_in_hand: bool,
        context: int,
    ) -> None:
        """Look whether the rewards are in their band, at all inputs and at the chosen one.

        Args:
            query: Of the round.
            row: Its context and point.
            known: Posterior means and standard deviations of all inputs.
            where: In which round.
            is_in_hand: Whether no outcome was pending.
            context: The number of the round's context.
        """
        diagnostics, method = query.diagnostics, self.setting.method
        width, at_point = diagnostics["width"], None
        if method in BOUNDED:
            middle, half = self.bounds_of_round()
            if method in LISTS:
                lower, upper = (diagnostics[f"{name}_bound"] for name in ("lower", "upper"))
                at_point = self.excess_at(row, 0.5 * (lower + upper), 0.5 * (upper - lower))
        else:
            middle, half = known[0], width * known[1]
            deviation = diagnostics["standard_deviation"]
            at_point = self.excess_at(row, diagnostics["mean"], width * deviation)
        excess = self.excess(self.target(), middle, half)
        if at_point is not None and method not in ("Theorem 2", *LISTS):
            excess = torch.maximum(excess, at_point)  # visited points, with what is pending
        self.look(excess, where, is_in_hand, at_point, context)

    def excess_at(self, row: Tensor, mean: float, half: float) -> Tensor:
        """Return the excess at one input, as a tensor of length 1."""
        value = self.value_at(row)
        if self.setting.is_censored:
            value = self.plan.minimum + self.rho * (value - self.plan.minimum)
        numbers = torch.tensor([[value], [mean], [half]], dtype=torch.float64)
        return self.excess(*numbers)

    def bounds_of_round(self) -> tuple[Tensor, Tensor]:
        """Return middle and half width of the last round's bounds, where there is no one width."""
        chooser: Any = self.loop._chooser
        stream = self.stream_of_all_arms()
        if stream is not None:
            seen = stream._look(self.view_of_round())
            known: Any = seen.rule.known(seen)
            return half_of(known.lower, known.upper)
        acquisition = chooser._played.build(
            self.loop.current_model(),
            self.world.domain,
            round_number=self.view_of_round().local_round,
        )
        with torch.no_grad():
            return half_of(*acquisition.bounds(self.world.inputs))

    def view_of_round(self) -> View:
        """Return the view of the round whose query was asked last, without pending queries."""
        view = self.loop._chooser.arrived(0.0)
        return replace(view, round_number=view.round_number - 1, pending=view.pending[:0])

    def look_at_penalized(self, query: Query, where: str, is_in_hand: bool) -> None:
        loop, inputs = self.loop, self.world.inputs
        model = loop.current_model()
        with torch.no_grad():
            posterior = model.posterior(inputs)
            mean, deviation = posterior.mean, posterior.variance.clamp_min(0.0).sqrt()
        if self.is_separate:
            index = self.world.index[tuple(query.x.tolist())]
            known = query.diagnostics
            below = known["constraint_mean_1"] - known["constraint_lower_bound_1"]
            widths = (known["width"], below / float(deviation[index, 1]))
            for j, target in enumerate((self.table, self.g_table)):
                half = widths[j] * deviation[:, j]
                name = "reward" if j == 0 else "constraint"
                excess = self.excess(target, mean[:, j], half)
                self.look(excess, f"{where}, {name}", is_in_hand)
            return
        (multiplier,) = loop.multipliers
        penalty = self.g_table
        if self.setting.constraints.startswith("multiplicative"):
            penalty = torch.expm1(self.g_table.clamp_min(0.0))
        target = self.table - multiplier * penalty
        middle, half = mean.squeeze(-1), query.diagnostics["width"] * deviation.squeeze(-1)
        if self.setting.method == "DMM":  # whose width differs from point to point
            middle, half = self.bounds_of_round()
        self.look(self.excess(target, middle, half), where, is_in_hand)


class _DropInRun(_AnyRun):
    """A run in which a user's own program builds model and acquisition function in each round."""

    def play(self) -> Run:
        plan, world, censors = self.plan, self.world, self.setting.is_censored
        arrived: list[_Told] = []
        last: Guarantee | None = None
        for t in range(1, self.num_rounds + 1):
            arrived += self.due(t)
            shown = [told for told in arrived if not told.fails]
            if censors:  # late ones are given up
                shown = [told for told in shown if told.due - 1 - told.query_id <= MAX_DELAY]
            others = [told for told in self.told if told not in shown]
            lost = [told for told in others if censors and t - told.query_id > MAX_DELAY]
            waiting = [
                told
                for told in others
                if told not in lost and (censors or not (told.fails and told.ended))
            ]
            rows = [*shown, *lost]
            if not rows and self.setting.model != "BanditGP":
                point = world.points[int(self.stream.integers(len(world.points)))]
                self.new_outcome(t - 1, self.row(point, 0), "initial", t, True)
                continue
            X = _stack([told.row for told in rows], world.inputs)
            outcomes = [plan.minimum if told in lost else told.outcome for told in rows]
            model = plan.model(X, torch.tensor(outcomes, dtype=torch.float64).reshape(-1, 1))
            context = 0
            if world.context_dim:
                context = self.pick_context(moments(model, world.inputs))
            pending = _stack([told.row for told in waiting], world.inputs) if waiting else None
            if self.setting.feedback == "ignored":
                pending = None
            guarantee, point = self._choose(model, pending, t, context)
            if guarantee.theorem is not None:
                last = guarantee if last is None or guarantee.holds or not last.holds else last
            self.assumptions.update(guarantee.assumptions)
            self.new_outcome(t - 1, self.row(point, context), "acquisition", t, not waiting)
        return self.result(last or Guarantee("no theorem", gaps=("none was ever stated",)))

    def _choose(
        self, model: Any, pending: Tensor | None, t: int, context: int
    ) -> tuple[Guarantee, Tensor]:
        """Return what is guaranteed in a round, and its point; look at the band."""
        world = self.world
        seed = int(self.stream.integers(2**31))
        domain = world.domain
        if world.context_dim:
            value = torch.tensor([world.contexts[context]], dtype=torch.float64)
            domain = domain.in_context(value)
        acquisition: Any = self.plan.recipe.build(
            model, domain, round_number=t, X_pending=pending, seed=seed
        )
        guarantee: Guarantee = acquisition.guarantee()
        bands = guarantee.bands
        if guarantee.theorem is not None and bands is not None and bands.holds:
            if self.setting.method in BOUNDED:
                with torch.no_grad():
                    middle, half = half_of(*acquisition.bounds(world.inputs))
            else:
                middle, deviation = moments(acquisition.model, world.inputs)  # with what is pending
                half = float(acquisition.width) * deviation
            # what an acquisition function says of its bands it says of the round that it is for
            excess = self.excess(self.target(), middle, half)
            self.look(excess, f"round {t}", True, None, context)
        x, _ = domain.maximize(acquisition, seed=seed)
        return guarantee, x[-self.setting.dim :]


def half_of(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Return middle and half of the width of bounds."""
    return 0.5 * (lower + upper), 0.5 * (upper - lower)


def moments(model: Any, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return posterior means and standard deviations at some inputs.

    Args:
        model: Of one output.
        X: The inputs.
    """
    with torch.no_grad():
        if isinstance(model, CandidatesModel):
            mean, variance = model.mixture(X)
            return mean, variance.clamp_min(1e-18).sqrt()
        posterior = model.posterior(X)
        deviation = posterior.variance.clamp_min(1e-18).sqrt()
    return posterior.mean.squeeze(-1), deviation.squeeze(-1)


def _stack(rows: list[Tensor], like: Tensor) -> Tensor:
    return torch.stack(rows) if rows else like[:0]

"""The features of a loop, each a class: restarts, multipliers, and models that forget.

Each hears what happens, and changes the view of a round; see :class:`.Aspect`. Restarts and
multipliers process queries and outcomes one by one, in the order in which they happened, so that a
rebuilt loop resets at the same rounds as the original one. Before each query except the first of a
segment, one round passes, and after the last round of an epoch the multipliers change. An outcome
counts in the epoch in which it arrives.

If the surrogate of constraints is fresh in each epoch, the end of an epoch also drops the data,
but neither the multipliers nor the data of a restart: a detector tests what came since the last
reset, regardless of the epoch.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
)
from botorch_bandits.acquisition.base import select_output
from botorch_bandits.acquisition.rules import RandomizedArmsRule, WidthArmsRule
from botorch_bandits.change_points import DetectorEngine, EvidenceTest, Reset
from botorch_bandits.checks import DTYPE, LARGEST_OUTCOME, level_of_users_line
from botorch_bandits.confidence import PriorSummary, WidthRule
from botorch_bandits.confidence.ingredients import output_rules
from botorch_bandits.constraints import (
    InfeasibleConstraintsWarning,
    Ledger,
    MultiplierOverflowError,
    MultiplierRule,
    recognize_infeasibility,
    warn_if_noisy,
)
from botorch_bandits.constraints.rules import WAY_ON
from botorch_bandits.domains import Domain
from botorch_bandits.history import Event, History, Outcome, Query
from botorch_bandits.loop.settings import LAGRANGIAN, LoopSettings
from botorch_bandits.loop.view import Aspect, Feedback, View
from botorch_bandits.random_streams import derive_seed, generator


class ChangeNotTestedWarning(RuntimeWarning):
    """A test for a change could not be computed."""


@dataclass(frozen=True)
class ChangeTestRecord:
    """The result of a test for a change.

    Attributes:
        after_round: How many rounds had been asked.
        statistic: The statistic of the tail that came nearest to a detection; with
            ``EvidenceRestart`` the evidence in nats.
        threshold: The threshold of that tail, or of the evidence.
        half_size: Half the number of uniform queries in it; None for evidence.
        detected: Whether the segment ended.
        quantity: The quantity tested: ``"reward"``, or ``"constraint 1"``, ``"constraint 2"``, ...;
            ``"evidence"`` for the evidence, of the reward alone or of reward and constraints.
        change_round: The estimated first round after the change, if there was one.
        candidate_weights: The posterior weights of ``EvidenceRestart(candidates=...)``, which only
            the latest test keeps; empty in the others.
    """

    after_round: int
    statistic: float
    threshold: float
    half_size: int | None
    detected: bool
    quantity: str = "reward"
    change_round: int | None = None
    candidate_weights: tuple[float, ...] = ()


UNIFORM_ORIGINS = ("exploration", "initial")
"""Origins of queries that were drawn uniformly at random."""

Found = tuple[ChangeTestRecord, str]
"""The result of a test, and the quantity that changed if it detected a change."""


Decision = Mapping[str, Any]
"""A reset that a test decided, in plain values: the outcome that was tested, and the result."""


class Decided(NamedTuple):
    """The resets on record that tests decided.

    Attributes:
        resets: Each of them.
        num_queries: The number of queries that were asked before the latest query of which they
            are on record; outcomes that arrived before it are tested.
    """

    resets: tuple[Decision, ...]
    num_queries: int


NOTHING_DECIDED = Decided((), -1)
"""What is on record before the first query."""

Happened = tuple[Any, ...]
"""The name of a method of tests, or "told", and its arguments."""


class Tests:
    """What a restart rule tests, which is nothing for rules that do not look at outcomes.

    Attributes:
        can_skip: Whether the tests of a segment need none of the results of those before it.
    """

    can_skip = True

    def asked(self, query: Query) -> None:
        """Process a query."""

    def lost(self, query: Query) -> None:
        """Process that the outcome of a query will not come, or came too late."""

    def told(self, query: Query, outcome: Outcome, after_round: int) -> Iterator[Found]:
        """Yield the results of the tests that an outcome makes possible."""
        yield from ()

    def take(self, query: Query, outcome: Outcome, is_over: bool) -> None:
        """Process an outcome whose tests are on record; its segment may be over."""

    def begin(self, keep_from: int | None) -> None:
        """Begin a segment, with the queries from a round on; with none if it is None."""


class HalfSamples(Tests):
    """Tests the uniform queries of a segment, for each quantity with a detector of its own.

    Args:
        engines: The detectors on the domain, by quantity: the reward, then constraints.
    """

    def __init__(self, engines: Mapping[str, DetectorEngine]) -> None:
        """See the class."""
        self._engines = engines
        self._told: dict[int, tuple[Query, Outcome]] = {}  # uniform queries, by id

    def begin(self, keep_from: int | None) -> None:
        self._told.clear()

    def take(self, query: Query, outcome: Outcome, is_over: bool) -> None:
        if query.origin in UNIFORM_ORIGINS:
            self._told[query.id] = query, outcome

    def told(self, query: Query, outcome: Outcome, after_round: int) -> Iterator[Found]:
        if query.origin not in UNIFORM_ORIGINS:
            return
        self.take(query, outcome, False)
        queries, outcomes = zip(*(self._told[i] for i in sorted(self._told)), strict=True)
        if len(queries) < 2:
            return
        X, contexts = torch.stack([query.x for query in queries]), _contexts(queries)
        columns = torch.tensor([[o.reward, *o.constraints] for o in outcomes], dtype=DTYPE).mT
        for (quantity, engine), column in zip(self._engines.items(), columns, strict=False):
            try:
                test = engine.test(X, column.contiguous(), contexts=contexts)
            except (RuntimeError, ValueError) as error:
                # the outcome is already recorded: the loop must continue, and reproducibly
                warnings.warn(
                    f"the {quantity} could not be tested for a change after round {after_round} "
                    f"({error}); that counts as no detection.",
                    ChangeNotTestedWarning,
                    stacklevel=level_of_users_line(),
                )
                continue
            change = queries[test.location].round_number if test.detected else None
            numbers = test.statistic, test.threshold, test.half_size, test.detected
            yield ChangeTestRecord(after_round, *numbers, quantity, change), quantity


class Evidence(Tests):
    """Weighs all outcomes of a segment.

    Args:
        settings: The settings of a loop with ``restart=EvidenceRestart(...)``.
    """

    def __init__(self, settings: LoopSettings) -> None:
        """See the class."""
        rule, tests = settings.constraints, settings.evidence
        assert tests is not None
        self._of_all, self._offset = tests.outputs == "all" and rule is not None, 0.0
        is_separate = rule is not None and rule.surrogate == "separate"
        if is_separate and settings.feedback.censored is not None and tests.candidates is None:
            # the prior mean is for the reward only
            self._offset = 0.0 if settings.recipe is None else settings.recipe.prior_mean
        num_outputs = 1 if rule is None else 1 + rule.num_constraints
        given = settings.domain, settings.model, num_outputs, settings.context_dim
        self._stream = tests.on(*given)
        self.can_skip = self._stream.has_one_prior

    def asked(self, query: Query) -> None:
        self._stream.issue(query.x, query.context, is_checked=True)

    def lost(self, query: Query) -> None:
        self._stream.forget(query.id + 1)

    def begin(self, keep_from: int | None) -> None:
        self._stream.reset(keep_from)

    def take(self, query: Query, outcome: Outcome, is_over: bool) -> None:
        self._tell(query, outcome, bets=not is_over, tests=False)

    def _tell(self, query: Query, outcome: Outcome, **options: bool) -> EvidenceTest | None:
        values = [value + self._offset for value in outcome.constraints if self._of_all]
        weight = outcome.weight(self._stream.noise)
        return self._stream.tell(query.id + 1, [outcome.reward, *values], weight=weight, **options)

    def told(self, query: Query, outcome: Outcome, after_round: int) -> Iterator[Found]:
        test = self._tell(query, outcome)
        if test is not None:
            yield (
                ChangeTestRecord(
                    after_round,
                    test.statistic,
                    test.threshold,
                    None,
                    test.detected,
                    "evidence",
                    test.change,
                    test.candidate_weights,
                ),
                "reward and constraints" if self._of_all and outcome.constraints else "reward",
            )


def _tests_of(settings: LoopSettings) -> Tests:
    if settings.evidence is not None:
        return Evidence(settings)
    if settings.detection is None:
        return Tests()
    detectors = settings.detection.detector, *settings.detection.constraint_detectors
    engines = {
        f"constraint {j}" if j else "reward": detector.on(settings.domain)
        for j, detector in enumerate(detectors)
    }
    for quantity, engine in engines.items():
        _check_engine(quantity, engine, settings.domain, settings.context_dim)
    return HalfSamples(engines)


def _replay(
    tests: Tests,
    past: Sequence[Happened],
    note: Callable[[ChangeTestRecord], None] | None = None,
    is_over: bool = False,
) -> None:
    """Give tests what happened, which ends with a reset unless results are noted.

    Args:
        tests: The tests.
        past: What happened, in order.
        note: Processes each result; if None, nothing is tested.
        is_over: Whether the segments are over, so that their outcomes need not be weighed.
    """
    for name, *given in past:
        if name == "asked":
            tests.asked(*given)
        elif name == "lost":
            tests.lost(*given)
        elif name == "begin":
            tests.begin(*given)
        elif note is None:
            query, outcome, _ = given
            tests.take(query, outcome, is_over)
        else:
            for test, _ in tests.told(*given):
                note(test)
                if test.detected:
                    break


def _what(decision: Decision) -> tuple[Any, ...]:
    """Return what two machines must agree on."""
    return decision["outcome"], decision["change_round"]


class Restarts(Aspect):
    """Starts over where a restart rule says so: earlier queries do not count any more.

    No test sees outcomes that the model does not see.

    **Decisions on record.** The event of a query says which resets its chooser had found, because
    the last digits of a statistic differ between machines, and all that share a run must start over
    at the same rounds. What is on record is taken from there. A test needs the statistics of its
    segment alone, which are computed from the outcomes when the first new one is tested; those of
    segments that have ended are computed if :attr:`change_tests` asks for them.

    Args:
        settings: The settings of the loop; without a restart rule, it never starts over.
        history: The history, which grows.
        decided: The resets on record.

    Attributes:
        first: The id of the first query of the segment.
        resets: All resets so far.
        decisions: Those that tests decided, as a storage has them.
    """

    def __init__(
        self,
        settings: LoopSettings,
        history: History,
        decided: Decided = NOTHING_DECIDED,
    ) -> None:
        """See the class."""
        self.rule, self._feedback, self._history = settings.restart, settings.feedback, history
        self._keeps = settings.evidence is not None and settings.evidence.keep == "since_change"
        self._new_tests = partial(_tests_of, settings)
        self._tests = self._new_tests()
        self._decided = decided
        self._recorded = {decision["outcome"]: decision for decision in decided.resets}
        self._past: list[Happened] = []  # what the tests were not given yet
        self._uniform: list[int] = []  # ids of the uniform queries of the segment
        self._num_rounds = 0
        self.resets: list[Reset] = []
        self.decisions: list[Decision] = []
        self._found: list[ChangeTestRecord] = []
        self._untested: list[Happened] = []  # of segments that ended on record
        self._played: tuple[object, int, AcquisitionRecipe | None] = None, -1, None

    @property
    def number(self) -> int:
        """The number of the segment, from 0."""
        return len(self.resets)

    def agrees_with(self, decided: Decided) -> bool:
        """Return whether the resets that were found are those on record (``decided``)."""
        own = [each for each in self.decisions if each["after_round"] <= decided.num_queries]
        return [_what(each) for each in own] == [_what(each) for each in decided.resets]

    def begin(self, round_number: int) -> Reset | None:
        is_told = self.rule is not None and self.rule.is_told_of_change(round_number)
        return self._reset("oracle") if is_told else None

    def asked(self, query: Query) -> None:
        self._num_rounds += 1
        if query.origin in UNIFORM_ORIGINS:
            self._uniform.append(query.id)
        self._past.append(("asked", query))

    def failed(self, event: Event) -> None:
        if event.query_id >= self.first:
            self._past.append(("lost", self._history.query(event.query_id)))

    def told(self, outcome: Outcome) -> Reset | None:
        if outcome.query_id < self.first:
            return None
        query = self._history.query(outcome.query_id)
        if self._feedback.is_late(query, outcome):
            self._past.append(("lost", query))
            return None
        if outcome.arrived_round <= self._decided.num_queries:
            self._past.append(("told", query, outcome, self._num_rounds))
            known = self._recorded.get(outcome.query_id)
            return None if known is None else self._decide(known)
        self._test_past()
        for test, quantity in self._tests.told(query, outcome, self._num_rounds):
            self._note(test)
            if test.detected:
                decision = {
                    "outcome": query.id,
                    "after_round": self._num_rounds,
                    "statistic": test.statistic,
                    "threshold": test.threshold,
                    "half_size": test.half_size,
                    "change_round": test.change_round,
                    "quantity": quantity,
                }
                return self._decide(decision)
        return None

    @property
    def change_tests(self) -> list[ChangeTestRecord]:
        """The results of the tests so far."""
        self._test_past()
        if self._untested:
            later, self._found = self._found, []
            _replay(self._new_tests(), self._untested, self._note)
            self._untested, earlier = [], self._found
            if later:
                earlier[-1:] = [replace(test, candidate_weights=()) for test in earlier[-1:]]
            self._found = earlier + later
        return self._found

    def _note(self, test: ChangeTestRecord) -> None:
        if self._found:  # a list may have hundreds of priors
            self._found[-1] = replace(self._found[-1], candidate_weights=())
        self._found.append(test)

    def _test_past(self) -> None:
        """Give the tests what happened in the meantime."""
        past, self._past = self._past, []
        ends = [i for i, (name, *_) in enumerate(past) if name == "begin"]
        first = ends[-1] + 1 if ends and self._tests.can_skip else 0
        if any(name == "told" for name, *_ in past):
            self._untested = past
        _replay(self._tests, past[:first], is_over=self._tests.can_skip)
        _replay(self._tests, past[first:])

    def _decide(self, decision: Decision) -> Reset:
        self.decisions.append(decision)
        return self._reset("detection", decision)

    def _reset(self, reason: str, decision: Decision | None = None) -> Reset:
        after_round, keep_from = self._num_rounds, None
        if decision is not None and self._keeps:
            keep_from = decision["change_round"]
        first = after_round if keep_from is None else keep_from - 1
        reset = Reset(
            after_round=after_round,
            num_dropped=first - self.first,
            num_uniform=len(self._uniform),
            reason=reason,
            num_kept=after_round - first,
        )
        if decision is not None:
            reset = replace(
                reset,
                statistic=float(decision["statistic"]),
                threshold=float(decision["threshold"]),
                half_size=decision["half_size"],
                change_round=decision["change_round"],
                quantity=decision["quantity"],
            )
        self.resets.append(reset)
        self.first, self._uniform = first, [i for i in self._uniform if i >= first]
        self._past.append(("begin", keep_from))
        return reset

    def see(self, view: View) -> View:
        view = view.since(self.first)
        if self.rule is None:
            return view
        if self._played[:2] != (view.recipe, self.number):
            share = partial(self.rule.share_of_delta, segment=self.number)
            recipe = None if view.recipe is None else view.recipe.at_share_of_delta(share)
            self._played = view.recipe, self.number, recipe
        explores = bool(self.rule.explores(len(self._uniform), view.local_round - 1))
        return replace(view, recipe=self._played[2], explores=view.explores or explores)

    def describe(self) -> dict[str, float]:
        return {} if self.rule is None else {"segment": float(self.number)}


def lower_bound_name(constraint: int) -> str:
    """Return the name under which a query's diagnostics have the lower bound of a constraint."""
    return f"constraint_lower_bound_{constraint + 1}"


@dataclass(frozen=True)
class MultiplierUpdate:
    """A change of the multipliers, at the end of an epoch or at a reset.

    Attributes:
        after_round: How many rounds had been asked.
        epoch: The number of the epoch that begins, over all segments, from 1.
        multipliers: The multipliers in force from then on.
    """

    after_round: int
    epoch: int
    multipliers: tuple[float, ...]


class Multipliers(Aspect):
    """Follows a history with a multiplier rule, and penalizes outcomes unless models are separate.

    Args:
        settings: The settings of a loop with constraints.
        history: The history, which grows.

    Attributes:
        rule: Changes the multipliers.
        first: The id of the first query that counts: since the beginning of an epoch with fresh
            data, or else since the last reset.
        first_of_segment: The id of the first query since the last reset.
        updates: One entry per epoch: when it began, and with which multipliers.
        num_rounds: How many rounds have begun, in all segments.
    """

    def __init__(self, settings: LoopSettings, history: History) -> None:
        """See the class."""
        rule, restart, censored = settings.constraints, settings.restart, settings.feedback.censored
        assert rule is not None
        self.rule, self._horizon = rule, settings.horizon
        self._keeps_at_reset = restart is not None and restart.keep_multipliers
        self._worst: tuple[float, tuple[float, ...]] | None = None  # which censored queries have
        if self.is_penalized and censored is not None and censored.minimum is not None:
            pairs = censored.constraint_bounds or ()
            self._worst = censored.minimum, tuple(high for _, high in pairs)
        # the bounds of these rounds were computed with an outcome that was retracted later
        self._unsound = set(history.rounds_with_retracted())
        self._state = rule.init()
        self.first_of_segment, self.num_rounds = 0, 0
        self._is_first_round = True  # whether the round is the first of the segment
        self._values: list[tuple[float, ...]] = []  # as told, in order of arrival
        self._epochs: list[int] = []
        self.updates: list[MultiplierUpdate] = []
        self._played: tuple[object, int, AcquisitionRecipe | None] = None, -1, None
        self._note()

    @property
    def is_penalized(self) -> bool:
        """Whether the model is one of penalized outcomes, and not of reward and constraints."""
        return self.rule.surrogate != "separate"

    @property
    def values(self) -> Tensor:
        """The multipliers in force, ``num_constraints``."""
        return self.rule.multipliers(self._state)

    @property
    def epoch(self) -> int:
        """The running epoch of the segment, from 1; its share of ``delta`` depends on it."""
        return int(self._state.epoch)

    @property
    def num_epochs(self) -> int:
        """The number of epochs in all segments so far; multipliers change with it."""
        return len(self.updates)

    def penalized(self, Y: Tensor) -> Tensor:
        """Return penalized outcomes, ``n x 1``, with the multipliers in force.

        Args:
            Y: ``n x (1 + num_constraints)`` rewards and constraint values.
        """
        return self.rule.penalized(Y[:, 0], Y[:, 1:], self.values).unsqueeze(-1)

    def _penalized_once(
        self, multipliers: Tensor, reward: float, constraints: Sequence[float]
    ) -> float:
        rewards = torch.tensor([reward], dtype=DTYPE)
        values = torch.tensor([list(constraints)], dtype=DTYPE)
        return float(self.rule.penalized(rewards, values, multipliers))

    def begin(self, round_number: int) -> None:
        if self._is_first_round:
            self._is_first_round = False
            return
        before = int(self._state.epochs)
        self._state = self.rule.advance(self._state)
        if int(self._state.epochs) == before:
            return
        self._note()
        if self.rule.surrogate == "fresh":
            self.first = round_number - 1

    def asked(self, query: Query) -> None:
        """Process a query; rules that use lower bounds find them in its diagnostics."""
        self.num_rounds += 1
        if self.rule.observes != "lower_bounds" or query.round_number in self._unsound:
            return
        diagnostics = query.diagnostics
        names = [lower_bound_name(j) for j in range(self.rule.num_constraints)]
        if all(name in diagnostics for name in names):
            bounds = torch.tensor([diagnostics[name] for name in names], dtype=DTYPE)
            self._state = self.rule.observe(self._state, bounds)
        elif query.origin == "acquisition":
            raise RuntimeError(
                f"the acquisition did not say {', '.join(names)}, which "
                f"{type(self.rule).__name__} needs. Use LagrangianUpperConfidenceBound or "
                "LagrangianThompsonSampling."
            )

    def check_outcome(self, outcome: Outcome) -> None:
        """Raise an error if an outcome, penalized, is too large for the model; nothing is changed.

        It is penalized with the multipliers in force, and with those of the next epoch if the
        running one ended with this outcome.

        Args:
            outcome: An outcome of the segment.

        Raises:
            ValueError: If a penalized outcome, or a multiplier, is larger than
                :data:`~botorch_bandits.checks.LARGEST_OUTCOME`.
        """
        if outcome.query_id < self.first_of_segment or self._is_clearly_small(outcome):
            return
        rule, in_force = self.rule, self.values
        rewards = torch.tensor([outcome.reward], dtype=DTYPE)
        values = torch.tensor([outcome.constraints], dtype=DTYPE)
        try:
            largest = float(rule.penalized(rewards, values, in_force).abs())
            if rule.observes == "outcomes":
                heard = rule.observe(self._state, values[0])
                last = torch.full_like(heard.rounds, rule.epoch_length - 1)
                next_ones = rule.multipliers(rule.advance(replace(heard, rounds=last)))
                grown = next_ones[next_ones > in_force].tolist()
                target = rule.penalized(rewards, values, next_ones)
                largest = max(largest, float(target.abs()), *grown)
                if self._worst is not None:
                    largest = max(largest, abs(self._penalized_once(next_ones, *self._worst)))
        except MultiplierOverflowError:
            largest = float("inf")
        if not largest <= LARGEST_OUTCOME:
            raise ValueError(
                f"constraints is {list(outcome.constraints)}, which {type(self.rule).__name__} "
                f"turns into a multiplier or a penalized outcome of {largest:.3g}; both must be at "
                f"most {LARGEST_OUTCOME:g}. Tell the values in a larger unit, or use a penalty "
                "that grows more slowly, such as Polynomial(c, n), a smaller c, or "
                "max_multiplier=. If the values stand for an evaluation that failed, use "
                f"fail(query_id, reason=...). {WAY_ON}"
            )

    def _is_clearly_small(self, outcome: Outcome) -> bool:
        """Return whether a bound that is cheap to compute is enough for :meth:`check_outcome`."""
        rule = self.rule
        if self._worst is not None:
            return False  # more quantities have to be checked
        size = max(map(abs, (outcome.reward, *outcome.constraints)))
        summed = max(map(abs, self._state.sums.tolist()))
        # the next multipliers' bound
        largest = max(self.values.tolist()) + rule.largest_step(summed + size)
        return largest + size * (1.0 + rule.num_constraints * largest) <= 0.5 * LARGEST_OUTCOME

    def told(self, outcome: Outcome) -> None:
        """Process an outcome."""
        self._count(outcome)

    def failed(self, event: Event) -> None:
        """Process a failure, which counts if its constraint values were told."""
        if event.constraints:
            self._count(event)

    def _count(self, event: Event) -> None:
        """Count constraint values; the ledger has them even if the query does not count."""
        self._values.append(event.constraints)
        self._epochs.append(self.num_epochs)
        if event.query_id >= self.first_of_segment and self.rule.observes == "outcomes":
            values = torch.tensor(event.constraints, dtype=DTYPE)
            self._state = self.rule.observe(self._state, values)

    def reset(self, reset: Reset) -> None:
        """Start over: the running epoch ends early, without an update."""
        self._state = self.rule.reset(self._state, keep_multipliers=self._keeps_at_reset)
        self._is_first_round = True
        self.first = self.first_of_segment = reset.num_before
        if self.rule.surrogate == "fresh":  # rows that are kept are for the evidence only
            self.first = reset.after_round
        self._note()

    def see(self, view: View) -> View:
        view = view.since(self.first)
        if self._played[:2] != (view.recipe, self.num_epochs):
            recipe = None if view.recipe is None else self._in_force(view.recipe)
            self._played = view.recipe, self.num_epochs, recipe
        view = replace(view, recipe=self._played[2])
        if not self.is_penalized:
            return view
        if view.censored is not None:
            censored = view.censored.penalized(partial(self._penalized_once, self.values))
            view = replace(view, censored=censored, prior_mean=censored.minimum)
        return replace(view, Y=self.penalized(view.Y))

    def describe(self) -> dict[str, float]:
        values = {f"multiplier_{j + 1}": v for j, v in enumerate(self.values.tolist())}
        return {"epoch": float(self.num_epochs), **values}

    def _in_force(self, recipe: AcquisitionRecipe) -> AcquisitionRecipe:
        """Return a recipe as it is played with the multipliers in force."""
        rule, num_epochs = self.rule, None
        if not self.is_penalized:
            options = {**recipe.options, "multipliers": tuple(self.values.tolist())}
            options["penalty"] = rule.penalty
            is_bound = recipe.acquisition_class.played_as is LagrangianUpperConfidenceBound
            if rule.observes == "lower_bounds" and is_bound:
                bounds = {
                    "reward_bound": rule.reward_bound,
                    "constraint_bound": rule.constraint_bound,
                }
                options |= {name: bound for name, bound in bounds.items() if bound is not None}
                options["separate_bounds"] = True
            return AcquisitionRecipe(recipe.acquisition_class, options)
        if self._horizon is not None:  # epochs share delta evenly
            num_epochs = max(math.ceil(self._horizon / rule.epoch_length), self.epoch)
        recipe = recipe.at_share_of_delta(lambda d: rule.delta(d, self.epoch, num_epochs))
        noise_bound, factor = recipe.options.get("noise_bound"), rule.noise_factor(self.values)
        if noise_bound is None or factor == 1.0:
            return recipe
        options = {**recipe.options, "noise_bound": noise_bound * float(factor)}
        return AcquisitionRecipe(recipe.acquisition_class, options)

    def ledger(self) -> Ledger:
        """Return the ledger of all observed constraint values."""
        shape = (len(self._values), self.rule.num_constraints)
        return Ledger(
            constraints=torch.tensor(self._values, dtype=DTYPE).reshape(shape),
            epochs=torch.tensor(self._epochs, dtype=torch.int64),
            multipliers=torch.tensor([u.multipliers for u in self.updates], dtype=DTYPE),
        )

    def _note(self) -> None:
        self.updates.append(
            MultiplierUpdate(self.num_rounds, len(self.updates) + 1, tuple(self.values.tolist()))
        )


def _check_engine(quantity: str, engine: DetectorEngine, domain: Domain, context_dim: int) -> None:
    """Raise if a detector cannot test points of the domain, before anything is recorded."""
    X = domain.sample(2, generator(0, 0, "detector check"))
    contexts = torch.zeros(2, context_dim, dtype=DTYPE) if context_dim else None
    try:
        engine.test(X, torch.zeros(2, dtype=DTYPE), contexts=contexts)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"restart= has a detector of the {quantity} that cannot test points with "
            f"{context_dim} context and {domain.dim} other dimensions ({error}). Its kernel must "
            "be on the context and the point together."
        ) from error


def _contexts(queries: Sequence[Query]) -> Tensor | None:
    contexts = [query.context for query in queries if query.context is not None]
    return torch.stack(contexts) if contexts else None


def with_feedback(
    acquisition: AcquisitionRecipe | None, feedback: Feedback
) -> AcquisitionRecipe | None:
    """Return a recipe that treats pending points as the feedback requires."""
    if not feedback.hallucinates or acquisition is None:
        return acquisition
    knows_pending = issubclass(acquisition.acquisition_class, GPThompsonSampling) and (
        "pending" in inspect.signature(acquisition.acquisition_class).parameters
    )
    if not knows_pending or "pending" in acquisition.options:
        return acquisition
    options = {**acquisition.options, "pending": "hallucinate"}
    return replace(acquisition, options=options)


# --- Whether the constraints of a loop can be met, according to the data --------------------------
# :class:`ConstraintWatch` warns if no point seems to meet a constraint, or if values are noisy
# but the rule treats them as exact. Warnings change nothing: a loop suggests the same points with
# and without them.


NUM_EPOCHS = 3
"""How many updates in a row must have raised a multiplier before a problem is called infeasible."""

NUM_CONTEXTS = 10
"""The number of latest contexts over which the smallest lower bounds are averaged."""


class NoWidthError(ValueError):
    """The loop has no model, or no width, for confidence bounds of the constraints."""


@dataclass(frozen=True)
class ConstraintFeasibility:
    """The feasibility of one constraint.

    Attributes:
        constraint: The number of the constraint, from 1.
        smallest_lower_bound: The minimum over the domain of its lower confidence bound. If it is
            positive and the bound holds, no point meets the constraint.
        multiplier: The multiplier in force.
        is_infeasible: Whether the bound is positive, so that no point seems to meet the constraint.
            (The warning of a loop also requires that the multiplier grew in each of the last three
            updates; see :func:`~botorch_bandits.constraints.recognize_infeasibility`.)
    """

    constraint: int
    smallest_lower_bound: float
    multiplier: float
    is_infeasible: bool


@dataclass(frozen=True)
class Feasibility:
    """The result of :meth:`.BanditLoop.feasibility`: whether the constraints can be met.

    Attributes:
        constraints: One entry per constraint.
        nearest: The best observed point that meets all constraints, with its outcome; if there is
            none, the point with the smallest violation; None before the first outcome.
        nearest_is_feasible: Whether its observed values meet them. It is False while
            :attr:`infeasible` is not empty, because one noisy value may meet a constraint that its
            point violates.
    """

    constraints: tuple[ConstraintFeasibility, ...]
    nearest: tuple[Query, Outcome] | None
    nearest_is_feasible: bool

    @property
    def infeasible(self) -> tuple[int, ...]:
        """The numbers, from 1, of the constraints that no point seems to meet."""
        return tuple(entry.constraint for entry in self.constraints if entry.is_infeasible)


def recognize(multipliers: Multipliers, bounds: Tensor) -> Tensor:
    """Return which constraints no point seems to meet, ``num_constraints`` booleans.

    Args:
        multipliers: The rule and what it did so far.
        bounds: ``num_constraints``; the smallest lower confidence bounds.
    """
    latest = multipliers.updates[-NUM_EPOCHS - 1 :]
    table = torch.tensor([update.multipliers for update in latest], dtype=DTYPE)
    return recognize_infeasibility(table, bounds, NUM_EPOCHS, multipliers.rule.max_multiplier)


def feasibility_of(multipliers: Multipliers, history: History, bounds: Tensor) -> Feasibility:
    """Return the feasibility of the constraints.

    Args:
        multipliers: The rule and its state so far.
        history: The whole history.
        bounds: What :func:`smallest_lower_bounds` returned.
    """
    sign = 1.0 if history.maximize else -1.0

    def excess(outcome: Outcome) -> float:
        return math.hypot(*(max(value, 0.0) for value in outcome.constraints))

    nearest, is_feasible = None, False
    if history.num_arrived:
        best = max(history.outcomes, key=lambda told: (-excess(told), sign * told.reward))
        nearest, is_feasible = (history.query(best.query_id), best), excess(best) == 0.0
    in_force = multipliers.values.tolist()
    entries = [
        ConstraintFeasibility(j + 1, float(bound), in_force[j], float(bound) > 0.0)
        for j, bound in enumerate(bounds)
    ]
    is_met = is_feasible and not any(entry.is_infeasible for entry in entries)
    return Feasibility(tuple(entries), nearest, is_met)


def smallest_lower_bounds(
    settings: LoopSettings,
    view: View,
    history: History,
    model_of: Callable[[int], Model],
    width: float | None = None,
    widened: Callable[[Sequence[WidthRule]], Sequence[WidthRule]] = tuple,
) -> Tensor:
    """Return the minimum over the domain of each constraint's lower confidence bound.

    Each constraint has its own model of all its values since the last reset. With separate
    surrogates, these are the loop's models; otherwise they are built like the loop's model, with
    prior mean 0. The width is that of the loop's acquisition at ``delta / (1 + num_constraints)``.
    If the loop forgets, so do these models, and the bounds are those of the next round.

    Args:
        settings: The loop's settings.
        view: The view of the next round, before multipliers change it.
        history: The whole history.
        model_of: Maps the index of a constraint to the model of its negative, or to the loop's
            model of reward and constraints, if it is separate.
        width: A constant that replaces the acquisition's width.
        widened: Adds the terms of pending queries to the rules of separate surrogates, if these
            queries are censored. Bounds are then on constraints times the share of outcomes that
            arrive, which has the same sign.

    Returns:
        ``num_constraints`` numbers. On a box they are found by an optimizer, so they may be too
        large.

    Raises:
        NoWidthError: If the loop has no model, or the acquisition has no width and none is given.
    """
    rule = settings.constraints
    assert rule is not None
    is_separate = rule.surrogate == "separate"
    recent = view.history.queries[-NUM_CONTEXTS:]
    contexts = [query.context for query in recent] if settings.context_dim else [view.context]
    there = [replace(view, context=context) for context in contexts or [None]]
    domains = [each.domain_of(settings.domain) for each in there]
    if settings.model is None:
        raise NoWidthError("random search has no model, so constraints have no confidence bounds.")
    if not len(view.ids) and not settings.priors:
        raise NoWidthError(
            "no outcome has arrived, so the model that was passed cannot be built. Tell the first "
            "outcome with loop.tell(query.id, reward)."
        )
    bounds = []
    for j in range(rule.num_constraints):
        seed = derive_seed(settings.seed, history.num_queries, f"feasibility {j}")
        transform: PosteriorTransform | None = None
        used = model_of(j)
        if is_separate:
            sign = -select_output(j + 1, used.num_outputs).weights
            transform = ScalarizedPosteriorTransform(sign)
        factor = width
        if factor is None:
            factor = _width_of(settings, view, rule, used, j, widened)
        bound = ImprovedUpperConfidenceBound(used, width=factor, posterior_transform=transform)
        largest = [domain.maximize(bound, seed)[1] for domain in domains]
        bounds.append(-sum(largest) / len(largest))
    return torch.tensor(bounds, dtype=DTYPE)


def _width_of(
    settings: LoopSettings,
    view: View,
    rule: MultiplierRule,
    model: Model,
    constraint: int,
    widened: Callable[[Sequence[WidthRule]], Sequence[WidthRule]],
) -> float:
    """Return the loop's width for one constraint."""
    num_outputs, recipe = 1 + rule.num_constraints, view.recipe
    if recipe is not None:
        name = recipe.acquisition_class.__name__
        if recipe.acquisition_class.played_as in LAGRANGIAN:
            options = recipe.acquisition_class.complete_options(recipe.options, None)
            of_output = widened(output_rules(name, num_outputs, options))[constraint + 1]
            summary = PriorSummary(model, select_output(constraint + 1, num_outputs))
            return float(options["scale"] * of_output.width(summary, 1))
        shared = recipe.at_share_of_delta(lambda delta: delta / num_outputs)
        arms_rule = shared.arms_rule(settings.domain)  # on a box as well, for its settings
        is_drawn = isinstance(arms_rule, RandomizedArmsRule)
        if isinstance(arms_rule, WidthArmsRule) and not is_drawn:
            own = arms_rule.rule.width(PriorSummary(model), view.local_round)
            return float(arms_rule.scale * own)
    raise NoWidthError(
        f"acquisition={settings.acquisition!r} has no width for a confidence bound of the "
        "constraints; pass width=, the factor of the standard deviation, such as "
        "feasibility(width=2.0)."
    )


class ConstraintWatch(Aspect):
    """Detects noise under a rule for exact values, and constraints that no point meets.

    Args:
        settings: The settings of a loop with constraints.
        history: The history, which grows.
        multipliers: The multipliers.
    """

    def __init__(self, settings: LoopSettings, history: History, multipliers: Multipliers) -> None:
        """See the class."""
        self._rule, self._history, self._multipliers = multipliers.rule, history, multipliers
        # if functions change, a value that differs is not necessarily noise
        varies = bool(settings.options.get("variation"))
        self._forgets = settings.forgetting is not None
        self._compares = self._rule.expects_exact_constraints and not (self._forgets or varies)
        self._first_values: dict[tuple[float, ...], tuple[float, ...]] = {}  # by input
        self._looks = True
        self._next_look, self._num_epochs = 0, 0

    def reset(self, reset: Reset) -> None:
        self._first_values.clear()

    def told(self, outcome: Outcome) -> None:
        """Compare the values with the first ones of the same input, in this segment."""
        if not self._compares or outcome.query_id < self._multipliers.first_of_segment:
            return
        query = self._history.query(outcome.query_id)
        context = () if query.context is None else query.context.tolist()
        key = (*context, *query.x.tolist())
        first = self._first_values.setdefault(key, outcome.constraints)
        given = (self._rule, first, outcome.constraints)
        if warn_if_noisy(*given, stacklevel=1 + level_of_users_line()):
            self._compares = False

    def look(self, smallest_bounds: Callable[[], Tensor]) -> None:
        """Warn at the end of an epoch if a constraint seems infeasible; to be called every round.

        This requires a model of each constraint and a search of the domain. It is therefore done
        only if multipliers grew in each of the last updates, and then not again for ten rounds or a
        fifth of the rounds so far.

        Args:
            smallest_bounds: Returns the result of :func:`smallest_lower_bounds`.
        """
        multipliers, num_queries = self._multipliers, self._history.num_queries
        is_new_epoch = multipliers.num_epochs != self._num_epochs
        self._num_epochs = multipliers.num_epochs
        if not (self._looks and is_new_epoch and num_queries >= self._next_look):
            return
        positive = torch.ones(self._rule.num_constraints, dtype=DTYPE)
        if not bool(recognize(multipliers, positive).any()):
            return
        self._next_look = num_queries + max(num_queries // 5, 10)
        try:
            bounds = smallest_bounds()
        except NoWidthError:  # only loop.feasibility(width=...) can give an answer then
            self._looks = False
            return
        infeasible = torch.nonzero(recognize(multipliers, bounds)).squeeze(-1).tolist()
        if not infeasible:
            return
        self._looks = False
        told = ", ".join(f"{j + 1} (at least {bounds[j]:.4g})" for j in infeasible)
        now = " now" if self._forgets else ""
        warnings.warn(
            f"no point seems to meet constraint {told}{now}: its smallest lower confidence bound "
            "is positive and its multiplier keeps growing. Relax the constraint, or widen the "
            "domain; loop.feasibility() says what is known. The bound is only as good as the model "
            "of the constraint, which has the kernel and the noise of the reward unless model= "
            "learns them apart: if you know points that meet it, mend the model.",
            InfeasibleConstraintsWarning,
            stacklevel=level_of_users_line(),
        )

"""State derived from the history of a loop: segments, penalized outcomes and multipliers.

:class:`Segments` cuts the history at resets, and :class:`Multipliers` follows it with the rule for
the multipliers. Both process queries and outcomes one by one, in the order in which they happened,
so that a rebuilt loop resets at the same rounds as the original one. Before each query except the
first of a segment, one round passes, and after the last round of an epoch the multipliers change.
An outcome counts in the epoch in which it arrives.

If the surrogate of constraints is fresh in each epoch, the end of an epoch also drops the data,
but neither the multipliers nor the data of a restart: a detector tests what came since the last
reset, regardless of the epoch.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    GPThompsonSampling,
    LagrangianUpperConfidenceBound,
)
from botorch_bandits.change_points import (
    DetectorEngine,
    EvidenceEngine,
    EvidenceStream,
    Reset,
)
from botorch_bandits.checks import DTYPE, LARGEST_OUTCOME, level_of_users_line
from botorch_bandits.constraints import Ledger, MultiplierOverflowError, MultiplierRule
from botorch_bandits.constraints.rules import WAY_ON
from botorch_bandits.core.suffixes import Suffixes
from botorch_bandits.domains import Domain
from botorch_bandits.feedback import Censored, Feedback
from botorch_bandits.history import Event, History, Outcome, Query
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.loop.view import View
from botorch_bandits.random_streams import generator


class ChangeNotTestedWarning(RuntimeWarning):
    """A test for a change could not be computed."""


@dataclass(frozen=True)
class ChangeTestRecord:
    """The result of a test of the uniform queries.

    Attributes:
        after_round: How many rounds had been asked.
        statistic: The statistic of the tail that came nearest to a detection; with
            ``EvidenceRestart`` the evidence in nats.
        threshold: The threshold of that tail, or of the evidence.
        half_size: Half the number of uniform queries in it; None for evidence.
        detected: Whether the segment ended.
        quantity: The quantity tested: ``"reward"``, or ``"constraint 1"``, ``"constraint 2"``, ...;
            ``"evidence"`` for the evidence, of the reward alone or of reward and constraints.
        change_round: With evidence, the estimated first round after the change, if there was one.
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


class Multipliers:
    """Follows a history with a multiplier rule.

    Args:
        rule: Changes the multipliers.
        keeps_at_reset: Whether a reset leaves the multipliers unchanged.
        worst: The smallest reward and the largest constraint values, which are used for censored
            queries; None without them.

    Attributes:
        best: The outcome with the largest reward among those that meet all constraints, the first
            of equals; None if there is none.
        updates: One entry per epoch: when it began, and with which multipliers.
        num_rounds: How many rounds have begun, in all segments.
    """

    def __init__(
        self,
        rule: MultiplierRule,
        keeps_at_reset: bool = False,
        worst: tuple[float, tuple[float, ...]] | None = None,
    ) -> None:
        """See the class."""
        self.rule, self._worst = rule, worst
        self._keeps_at_reset = keeps_at_reset
        self._state = rule.init()
        self.num_rounds = 0
        self._is_first_round = True  # whether the round is the first of the segment
        self._values: list[tuple[float, ...]] = []  # values of each outcome, in order of arrival
        self._epochs: list[int] = []
        self.best: Outcome | None = None
        self.updates: list[MultiplierUpdate] = []
        self._first_update = 0  # where the multipliers last started over
        self._note()

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

    @property
    def num_updates(self) -> int:
        """The number of updates since the multipliers last started over."""
        return len(self.updates) - 1 - self._first_update

    def penalized(self, Y: Tensor) -> Tensor:
        """Return penalized outcomes, ``n x 1``, with the multipliers in force.

        Args:
            Y: ``n x (1 + num_constraints)`` rewards and constraint values.
        """
        return self.rule.penalized(Y[:, 0], Y[:, 1:], self.values).unsqueeze(-1)

    def censored(self, feedback: Censored) -> Censored:
        """Return the feedback on penalized outcomes, with the multipliers in force.

        Args:
            feedback: The feedback on rewards, as the user gave it.
        """
        return feedback.penalized(partial(self._penalized_once, self.values))

    def _penalized_once(
        self, multipliers: Tensor, reward: float, constraints: Sequence[float]
    ) -> float:
        rewards = torch.tensor([reward], dtype=DTYPE)
        values = torch.tensor([list(constraints)], dtype=DTYPE)
        return float(self.rule.penalized(rewards, values, multipliers))

    def before_round(self) -> bool:
        """End the last round; return whether a new epoch begins."""
        if self._is_first_round:
            self._is_first_round = False
            return False
        before = int(self._state.epochs)
        self._state = self.rule.advance(self._state)
        if int(self._state.epochs) == before:
            return False
        self._note()
        return True

    def add_query(self, query: Query, counts: bool = True) -> None:
        """Process a query; rules that use lower bounds find them in its diagnostics.

        Args:
            query: A query of the whole history.
            counts: Whether these bounds count; the round of the query always does.
        """
        self.num_rounds += 1
        if counts and self.rule.observes == "lower_bounds":
            diagnostics = query.diagnostics
            names = [lower_bound_name(j) for j in range(self.rule.num_constraints)]
            if query.origin == "acquisition" and not all(name in diagnostics for name in names):
                raise RuntimeError(
                    f"the acquisition did not say {', '.join(names)}, which "
                    f"{type(self.rule).__name__} needs. Use LagrangianUpperConfidenceBound or "
                    "LagrangianThompsonSampling."
                )
            if all(name in diagnostics for name in names):
                bounds = torch.tensor([diagnostics[name] for name in names], dtype=DTYPE)
                self._state = self.rule.observe(self._state, bounds)

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
        if self._is_clearly_small(outcome):
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
                f"tell_failed(query_id, reason=...). {WAY_ON}"
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

    def add_outcome(self, outcome: Outcome, counts: bool = True) -> None:
        """Process an outcome.

        Args:
            outcome: An outcome of the whole history.
            counts: Whether its query belongs to the segment; the ledger has it in either case.
        """
        self._values.append(outcome.constraints)
        self._epochs.append(self.num_epochs)
        is_feasible = max(outcome.constraints) <= 0.0
        if is_feasible and (self.best is None or outcome.reward > self.best.reward):
            self.best = outcome
        if counts and self.rule.observes == "outcomes":
            values = torch.tensor(outcome.constraints, dtype=DTYPE)
            self._state = self.rule.observe(self._state, values)

    def reset(self) -> None:
        """Start over: the running epoch ends early, without an update."""
        self._state = self.rule.reset(self._state, keep_multipliers=self._keeps_at_reset)
        self._is_first_round = True
        self._note()
        if not self._keeps_at_reset:
            self._first_update = len(self.updates) - 1

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


UNIFORM_ORIGINS = ("exploration", "initial")
"""Origins of queries that were drawn uniformly at random."""


class Segments:
    """Cuts a history into segments, of which only the latest counts.

    A restart rule determines when a segment ends; without one, only the end of an epoch may end
    one. No test sees outcomes that the model does not see.

    Args:
        settings: The settings of the loop.

    Attributes:
        first_id: The id of the first query that counts: since the last reset, or since the
            beginning of an epoch with fresh data.
        num_rounds: The number of rounds that were asked in total.
        resets: All resets so far, except those at the end of an epoch.
        change_tests: The results of the tests so far.
        multipliers: The rule and its state, if there are constraints.
    """

    def __init__(self, settings: LoopSettings) -> None:
        """See the class."""
        restart = self._restart = settings.restart
        domain = settings.domain
        feedback = self._feedback = settings.feedback
        context_dim = settings.context_dim
        rule = settings.constraints
        keeps = restart is not None and restart.keep_multipliers
        worst, censored = None, feedback.censored
        is_separate = rule is not None and rule.surrogate == "separate"
        pairs = None if is_separate or censored is None else censored.constraint_bounds
        if censored is not None and censored.minimum is not None and pairs:
            worst = (censored.minimum, tuple(high for _, high in pairs))
        self.multipliers = None if rule is None else Multipliers(rule, keeps, worst)
        self._engines: dict[str, DetectorEngine] = {}
        if settings.detection is not None:
            self._engines["reward"] = settings.detection.detector.on(domain)
            for j, detector in enumerate(settings.detection.constraint_detectors):
                self._engines[f"constraint {j + 1}"] = detector.on(domain)
        for quantity, engine in self._engines.items():
            _check_engine(quantity, engine, domain, context_dim)
        self._evidence: EvidenceStream | None = None
        self._constraint_offset = 0.0  # not 0 if the prior mean is for the reward only
        tests = self._tests = settings.evidence
        if tests is not None:
            if is_separate and censored is not None and tests.candidates is None:
                recipe = settings.recipe
                self._constraint_offset = 0.0 if recipe is None else recipe.prior_mean
            num_outputs = 1 if rule is None else 1 + rule.num_constraints
            evidence = tests.on(domain, settings.model, num_outputs, context_dim)
            _check_evidence(evidence)
            self._evidence = evidence.stream()
        self.resets: list[Reset] = []
        self.change_tests: list[ChangeTestRecord] = []
        self._tested: dict[int, Query] = {}  # queries, by id, whose outcomes are tested
        self._begun_round = self.num_rounds = 0
        self._first_id_of_segment = 0  # an epoch with fresh data begins later than its segment
        self._begin(0)

    @property
    def number(self) -> int:
        """The number of the segment, from 0."""
        return len(self.resets)

    @property
    def first_id_of_segment(self) -> int:
        """The id of the segment's first query; an epoch with fresh data may begin later."""
        return self._first_id_of_segment

    def describe(self) -> dict[str, float]:
        """Return what is in force now, for a query's diagnostics."""
        diagnostics = {} if self._restart is None else {"segment": float(self.number)}
        if self.multipliers is not None:
            diagnostics["epoch"] = float(self.multipliers.num_epochs)
            for j, value in enumerate(self.multipliers.values.tolist()):
                diagnostics[f"multiplier_{j + 1}"] = value
        return diagnostics

    def explores(self) -> bool:
        """Return whether the next round explores because a detector requires it."""
        if self._restart is None:
            return False
        num_queries = self.num_rounds - self._first_id_of_segment
        return bool(self._restart.explores(len(self._uniform), num_queries))

    def before_round(self, round_number: int) -> bool:
        """End the last round, and start over if it is time; return whether data were dropped.

        A second call for the same round, such as after a choice that failed, does nothing.

        Args:
            round_number: The number of the round in the whole history, from 1.
        """
        if round_number == self._begun_round:
            return False
        self._begun_round = round_number
        is_new = self._restart is not None and self._restart.is_told_of_change(round_number)
        if is_new:
            self._reset(reason="oracle")
        if self.multipliers is None or not self.multipliers.before_round():
            return is_new
        if not self._is_fresh:
            return is_new
        self.first_id = round_number - 1
        return True

    @property
    def _is_fresh(self) -> bool:
        """Whether the model starts over with each epoch."""
        rule = None if self.multipliers is None else self.multipliers.rule
        return rule is not None and rule.surrogate == "fresh"

    def add_query(self, query: Query, has_sound_bounds: bool = True) -> None:
        """Process a query of the whole history.

        Args:
            query: The query.
            has_sound_bounds: Whether the bounds in its diagnostics count; they do not if they were
                computed with an outcome that was retracted later.
        """
        if self.multipliers is not None:
            self.multipliers.add_query(query, has_sound_bounds)
        self.num_rounds += 1
        self._note_tested(query)
        if self._evidence is not None:
            self._evidence.issue(query.x, query.context)

    def check_outcome(self, outcome: Outcome) -> None:
        """Raise an error if an outcome of the whole history, penalized, is too large.

        Args:
            outcome: The outcome of a query that was asked or is about to be recorded.

        Raises:
            ValueError: If it is; see :meth:`.Multipliers.check_outcome`.
        """
        if self.multipliers is not None and outcome.query_id >= self._first_id_of_segment:
            self.multipliers.check_outcome(outcome)

    def add_outcome(self, outcome: Outcome) -> Reset | None:
        """Process an outcome of the whole history; return the reset that it caused, if any.

        Outcomes of queries before the last reset change no model, but the ledger has all of them.
        """
        if self.multipliers is not None:
            counts = outcome.query_id >= self._first_id_of_segment
            self.multipliers.add_outcome(outcome, counts)
        if outcome.query_id < self._first_id_of_segment:
            return None
        if self._evidence is not None:
            if self._feedback.is_late(self._tested[outcome.query_id], outcome):
                self._evidence.forget(outcome.query_id + 1)
                return None
            return self._weigh(self._evidence, outcome)
        query = self._tested.get(outcome.query_id)
        if not self._engines or query is None or self._feedback.is_late(query, outcome):
            return None
        self._told[outcome.query_id] = outcome
        return self._test()

    def add_failure(self, failure: Event) -> None:
        """Process the failure of a query of the whole history; no test uses the query."""
        if self._evidence is not None and failure.query_id >= self._first_id_of_segment:
            self._evidence.forget(failure.query_id + 1)

    def replay(self, history: History) -> None:
        """Process a whole history, in the order in which things happened."""

        def add(event: Event) -> None:
            if event.counted is None:
                self.add_failure(event)
            else:
                # as the model has it
                self.add_outcome(event.counted if history.maximize else event.counted.flipped())

        events = iter(history.events)
        waiting = next(events, None)
        unsound = set(history.rounds_with_retracted())
        for query in history.queries:
            while waiting is not None and waiting.arrived_round < query.round_number:
                add(waiting)
                waiting = next(events, None)
            self.before_round(query.round_number)
            self.add_query(query, query.round_number not in unsound)
        while waiting is not None:
            add(waiting)
            waiting = next(events, None)

    def _test(self) -> Reset | None:
        """Test the uniform queries with an outcome, in the order in which they were asked."""
        tested = [query for query in self._uniform if query.id in self._told]
        if len(tested) < 2:
            return None
        outcomes = [self._told[query.id] for query in tested]
        X = torch.stack([query.x for query in tested])
        contexts = _contexts(tested)
        columns = [[o.reward for o in outcomes]]
        columns += [[o.constraints[j] for o in outcomes] for j in range(len(self._engines) - 1)]
        after_round = self.num_rounds
        for (quantity, engine), column in zip(self._engines.items(), columns, strict=True):
            try:
                test = engine.test(X, torch.tensor(column, dtype=DTYPE), contexts=contexts)
            except (RuntimeError, ValueError) as error:
                # the outcome is already recorded: the loop must continue, and reproducibly
                warnings.warn(
                    f"the {quantity} could not be tested for a change after round {after_round} "
                    f"({error}); that counts as no detection.",
                    ChangeNotTestedWarning,
                    stacklevel=level_of_users_line(),
                )
                continue
            self.change_tests.append(
                ChangeTestRecord(
                    after_round,
                    test.statistic,
                    test.threshold,
                    test.half_size,
                    test.detected,
                    quantity,
                )
            )
            if test.detected:
                return self._reset(
                    reason="detection",
                    statistic=test.statistic,
                    threshold=test.threshold,
                    half_size=test.half_size,
                    change_round=tested[test.location].round_number,
                    quantity=quantity,
                )
        return None

    def _weigh(self, stream: EvidenceStream, outcome: Outcome) -> Reset | None:
        """Add an outcome of the whole history to the evidence."""
        assert self._tests is not None
        values: list[float] = []
        if self._tests.outputs == "all":
            values = [value + self._constraint_offset for value in outcome.constraints]
        test = stream.tell(outcome.query_id + 1, [outcome.reward, *values])
        if test is None:
            return None
        if self.change_tests:  # a list may have hundreds of priors
            self.change_tests[-1] = replace(self.change_tests[-1], candidate_weights=())
        self.change_tests.append(
            ChangeTestRecord(
                self.num_rounds,
                test.statistic,
                test.threshold,
                None,
                test.detected,
                "evidence",
                test.change,
                test.candidate_weights,
            )
        )
        if not test.detected:
            return None
        assert test.change is not None
        return self._reset(
            reason="detection",
            keep_from=test.change if self._tests.keep == "since_change" else None,
            statistic=test.statistic,
            threshold=test.threshold,
            change_round=test.change,
            quantity="reward and constraints" if values else "reward",
        )

    def _reset(
        self, reason: str, keep_from: int | None = None, **found: float | int | str | None
    ) -> Reset:
        """Start over; with ``keep_from``, the queries from that round on are kept."""
        after_round = self.num_rounds
        first_id = after_round if keep_from is None else keep_from - 1
        reset = Reset(
            after_round=after_round,
            num_dropped=first_id - self._first_id_of_segment,
            num_uniform=len(self._uniform),
            reason=reason,
            num_kept=after_round - first_id,
            **found,  # type: ignore[arg-type]
        )
        self.resets.append(reset)
        if self.multipliers is not None:
            self.multipliers.reset()
        self._first_id_of_segment = first_id
        if self._evidence is not None:
            self._evidence.reset(keep_from)
        self._begin(first_id)
        if self._is_fresh:  # rows that are kept are for the evidence only
            self.first_id = after_round
        return reset

    def _begin(self, first_id: int) -> None:
        """Begin a segment."""
        self.first_id = first_id
        kept = [query for query in self._tested.values() if query.id >= first_id]
        self._uniform: list[Query] = []  # the uniform queries of the segment
        self._tested = {}
        self._told: dict[int, Outcome] = {}  # outcomes of uniform queries, by id, that came in time
        for query in kept:
            self._note_tested(query)

    def _note_tested(self, query: Query) -> None:
        """Note a query of the whole history that a restart rule looks at."""
        is_uniform = query.origin in UNIFORM_ORIGINS
        if is_uniform:
            self._uniform.append(query)
        if is_uniform or self._evidence is not None:
            self._tested[query.id] = query

    def see(self, view: View) -> View:
        """Return the view of what counts, with outcomes as the multipliers in force penalize them.

        Args:
            view: The view of everything.
        """
        view = view.since(self.first_id)
        if self.multipliers is None or self.multipliers.rule.surrogate == "separate":
            return view
        return view.with_rows(view.ids, self.multipliers.penalized(view.Y))


def _check_evidence(engine: EvidenceEngine) -> None:
    """Raise an error if the models cannot predict on the domain, before anything is recorded."""
    X = engine.domain.sample(2, generator(0, 0, "detector check"))
    context = torch.zeros(engine.context_dim, dtype=DTYPE) if engine.context_dim else None
    try:
        suffixes = Suffixes(engine.priors.each, engine.dim)
        for x in X:
            located = engine.locate(x, context, 1)
            suffixes.observe(located, np.zeros(engine.priors.noise.size), 1, ())
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"restart= has models that cannot predict at points with {engine.context_dim} context "
            f"and {engine.domain.dim} other dimensions ({error}). Their kernels must be on the "
            "context and the point together."
        ) from error


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


def _contexts(queries: list[Query]) -> Tensor | None:
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


def at_multipliers(
    recipe: AcquisitionRecipe, multipliers: Multipliers, horizon: int | None
) -> AcquisitionRecipe:
    """Return a recipe as it is played with the multipliers in force.

    Args:
        recipe: The recipe as the user gave it, at its segment's share of ``delta``.
        multipliers: The rule and its state.
        horizon: The number of rounds, if it is known; epochs then share ``delta`` evenly.
    """
    rule, values = multipliers.rule, multipliers.values
    num_epochs = None
    if horizon is not None:
        num_epochs = max(math.ceil(horizon / rule.epoch_length), multipliers.epoch)
    if rule.surrogate == "separate":
        options = {
            **recipe.options,
            "multipliers": tuple(values.tolist()),
            "penalty": rule.penalty,
        }
        is_bound = recipe.acquisition_class.played_as is LagrangianUpperConfidenceBound
        if rule.observes == "lower_bounds" and is_bound:
            clips = {"reward_bound": rule.reward_bound, "constraint_bound": rule.constraint_bound}
            options["separate_bounds"] = True
            options |= {name: bound for name, bound in clips.items() if bound is not None}
        return AcquisitionRecipe(recipe.acquisition_class, options)
    factor = float(rule.noise_factor(values))
    return in_epoch(recipe, rule, multipliers.epoch, factor, num_epochs)


def in_epoch(
    recipe: AcquisitionRecipe,
    rule: MultiplierRule,
    epoch: int,
    noise_factor: float,
    num_epochs: int | None = None,
) -> AcquisitionRecipe:
    """Return a recipe as it is played on penalized outcomes in an epoch.

    Args:
        recipe: The recipe as the user gave it.
        rule: The rule for the multipliers.
        epoch: The number of the epoch, from 1.
        noise_factor: The factor on the noise bound.
        num_epochs: The number of epochs, if it is known.
    """
    recipe = recipe.at_share_of_delta(lambda d: rule.delta(d, epoch, num_epochs))
    noise_bound = recipe.options.get("noise_bound")
    if noise_bound is None or noise_factor == 1.0:
        return recipe
    options = {**recipe.options, "noise_bound": noise_bound * noise_factor}
    return AcquisitionRecipe(recipe.acquisition_class, options)

"""When a run stops, and how it handles evaluations that fail.

A run ends after its rounds, by :class:`StopRun`, when rewards have not improved for a while
(:func:`rounds_without_gain`), when the certificate of the recommended point is small, or because
evaluations failed. These rules are shared by everything that runs a loop against a function.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botorch_bandits.checks import (
    check_carried,
    check_integer,
    check_observed,
    check_positive,
    check_reward,
    in_lists,
    is_list,
    level_of_users_line,
    shown_value,
)
from botorch_bandits.history import Failure, Query
from botorch_bandits.journal.files import read_bounded
from botorch_bandits.loop import BanditLoop
from botorch_bandits.loop.recommendation import Recommendation, certificate_on_arms
from botorch_bandits.queries import argument_of

__all__ = ["EvaluationError", "EvaluationFailedWarning", "StopRun", "rounds_without_gain"]


class StopRun(Exception):  # noqa: N818, like StopIteration
    """Raise it in ``on_round=`` to end a run cleanly; its text becomes ``result.stopped``.

    Everything that was told is kept; if workers evaluate, the outcomes of the queries in flight are
    told first. The evaluated function may also raise it; its query then stays pending.

    Example:
        >>> from botorch_bandits import BanditLoop, Box, RandomSearch, run
        >>> def stop_when_good(query, event):
        ...     if event.reward > 0.5:
        ...         raise StopRun("good enough")
        >>> loop = BanditLoop(Box([(0.0, 1.0)]), None, RandomSearch())
        >>> result = run(loop, lambda x: x[0], 100, on_round=stop_when_good, progress=False)
        >>> result.stopped, len(result.rewards) < 100
        ('good enough', True)
    """


class EvaluationError(ValueError):
    """The function returned no usable reward, or too many evaluations in a row failed."""


class NoOutcomeError(EvaluationError):
    """A run ended, and all of its evaluations failed; the history has no outcome."""


class NotARewardError(EvaluationError):
    """The function returned something of another type than the loop expects.

    If no outcome has arrived yet, the function itself is at fault, so this error ends a run even if
    failures are skipped.
    """


class EvaluationFailedWarning(RuntimeWarning):
    """An evaluation failed, and the run continues: the failure is recorded, or a retry worked."""


MOST_FAILURES_IN_A_ROW = 10
"""The number of consecutive failed evaluations that ends a run."""

FEWEST_FAILURES = 3
"""At least this many failures, and no outcome at all, make a run end with an error."""

SHOWN_RETRIES = 3
"""The number of retried queries whose reasons a warning shows."""


@dataclass(frozen=True)
class ErrorPolicy:
    """How failed evaluations are handled.

    Attributes:
        skips: Whether they are recorded as failed and the run continues; otherwise their error ends
            the run.
        num_retries: The number of times that an evaluation is tried again before it counts as
            failed.
    """

    skips: bool = False
    num_retries: int = 0

    @classmethod
    def read(cls, on_error: Any, name: str = "on_error") -> ErrorPolicy:
        """Return the policy that ``on_error=`` describes.

        Args:
            on_error: ``"raise"``, ``"skip"`` or ``"retry:N"``.
            name: The name of the argument, for error messages.

        Raises:
            ValueError: If it is none of these.
        """
        if on_error in ("raise", "skip"):
            return cls(on_error == "skip")
        word, colon, number = str(on_error).partition(":")
        if word != "retry" or not colon or not number.isdecimal() or int(number) < 1:
            raise ValueError(
                f"{name} is {on_error!r}; it must be 'raise', 'skip' or 'retry:N', as in 'retry:2'."
            )
        return cls(True, int(number))


class FailureKeeper:
    """Decides whether the run ends or continues after an evaluation that finally failed.

    Args:
        loop: The loop.
        policy: The user's policy.
        left: Queries that an earlier run left pending; a failure of one of these does not end the
            run.
        most_in_a_row: The number of consecutive failures that ends a run that skips them.
        avoids: Whether the acquisition function avoids the point of a query that failed.
    """

    def __init__(
        self,
        loop: BanditLoop,
        policy: ErrorPolicy,
        left: Iterable[Query],
        most_in_a_row: int = MOST_FAILURES_IN_A_ROW,
        avoids: bool = True,
    ) -> None:
        self._loop, self.policy, self._most = loop, policy, most_in_a_row
        self._avoids = avoids
        self._left = {query.id for query in left}
        self._in_a_row = 0
        self._last: tuple[Query, str] | None = None  # the last failure on record
        self._num_failed = 0
        self._retried: dict[int, str] = {}  # by query, why the last try that failed did so

    def note_success(self) -> None:
        """Restart the count."""
        self._in_a_row = 0

    def note_retry(self, query: Query, reason: str) -> None:
        """Note that a query was evaluated successfully after a try that failed.

        Args:
            query: The query.
            reason: Why the last of the tries that failed did so.
        """
        self._retried[query.id] = reason

    def warn_of_retries(self) -> None:
        """Issue a warning about queries that needed another try, which nothing else mentions."""
        if not self._retried:
            return
        shown = [f"query {i}: {one_line(r)}" for i, r in self._retried.items()][:SHOWN_RETRIES]
        more = ", ..." * (len(self._retried) > len(shown))
        warnings.warn(
            f"evaluations that worked only when they were tried again: {len(self._retried)} "
            f"({', '.join(shown)}{more}). Their outcomes count like all others.",
            EvaluationFailedWarning,
            stacklevel=level_of_users_line(),
        )

    def check_any(self) -> None:
        """Raise an error at the end of a run if every evaluation of the loop failed.

        Raises:
            NoOutcomeError: If this run recorded several failures, and the history has no outcome
                and nothing pending.
        """
        history = self._loop.history
        if history.num_arrived or history.num_pending or self._num_failed < FEWEST_FAILURES:
            return
        assert self._last is not None
        query, reason = self._last
        raise NoOutcomeError(
            f"all {self._num_failed} evaluations of this run failed, and the history has no "
            f"outcome; the last was query {query.id} at {shown_point(query)}: "
            f"{one_line(reason)}. They are on record as failed. Repair the function and run again, "
            "which goes on with other points."
        )

    def check(self, query: Query, error: Exception) -> None:
        """Record the failure and return if the run continues; otherwise raise an error.

        Without ``skips``, a query that an earlier run left pending may fail, because it would fail
        in every run; the next query that fails ends the run. With ``skips``, only a
        :class:`NotARewardError` before the first outcome ends it.

        Args:
            query: The query whose evaluation failed.
            error: The error that it raised, or an :class:`EvaluationError`.

        Raises:
            Exception: The error, with a note on what to do, if the run ends and the query stays
                pending.
        """
        self._in_a_row += 1
        is_program = isinstance(error, NotARewardError) and self._loop.history.num_arrived == 0
        skips = self.policy.skips and not is_program
        if skips or (query.id in self._left and self._in_a_row == 1):
            return
        also = " So did the one before it: is the function itself at fault?" * (self._in_a_row > 1)
        note = (
            f"Query {query.id} at {shown_point(query)} failed and stays pending.{also} The next "
            "run evaluates it once more, and goes on if it fails again. With on_error='skip' "
            "(--on-error skip) a run records failures and goes on at once, with 'retry:2' after "
            "two more tries."
        )
        if is_program:
            note = (
                f"Query {query.id} at {shown_point(query)} stays pending, and is not recorded as "
                "failed: no outcome has arrived yet, so the function itself is at fault. Correct "
                "what it returns and run again, which evaluates the query once more."
            )
        if query.parameters is None and "tensor" in str(error).lower():
            note += (
                " The function is given a float64 tensor: x.tolist() is a list of Python numbers."
            )
        if isinstance(error, EvaluationError):
            raise type(error)(f"{one_line(str(error))}. {note}") from error
        error.add_note(note)
        raise error

    def record(self, query: Query, reason: str) -> Failure:
        """Record that a query failed, with a warning.

        Args:
            query: The query.
            reason: The reason.

        Raises:
            EvaluationError: If too many failed in a row; this failure is then on record.
        """
        avoid = self._avoids or reason == DEADLY  # another process would die there
        failure = self._loop.tell_failed(query.id, reason, avoid=avoid)
        self._num_failed, self._last = self._num_failed + 1, (query, reason)
        again = "again" if query.id in self._left and not self.policy.skips else ""
        told = f"query {query.id} at {shown_point(query)} failed {again}".rstrip()
        if self._in_a_row >= self._most:
            raise EvaluationError(
                f"{self._in_a_row} evaluations in a row failed; the last one was {told}: "
                f"{one_line(reason)}. They are on record as failed. Repair the function and run "
                "again, which goes on with other points."
            )
        warnings.warn(
            f"{told}: {one_line(reason)}. It is recorded as failed, and the run goes on.",
            EvaluationFailedWarning,
            stacklevel=level_of_users_line(),
        )
        return failure


MOST_DEATHS = 2
"""After this many processes died at a point, no other process tries it."""


_MOST_MARK_BYTES = 2**20


class EvaluationMark:
    """A file that exists while a run's own process evaluates a query.

    If the process dies (a segmentation fault, running out of memory, ``sys.exit``), only this file
    tells the next run at which point it died. Otherwise, every further run would die there as well.

    Args:
        path: The path of the file; its folder exists.
    """

    def __init__(self, path: Path) -> None:
        """See the class."""
        self._path = path
        self._deaths = self._read()

    @contextmanager
    def around(self, argument: Any, round_number: int) -> Iterator[None]:
        """Mark an evaluation; the mark stays if the process ends in it.

        Args:
            argument: The argument of the function.
            round_number: The round in which the query was asked.
        """
        times = self._times(argument, round_number) + 1
        self._deaths[str(round_number)] = {"argument": _plain(argument), "times": times}
        self._write()
        try:
            yield
        except SystemExit:
            raise
        except BaseException:
            self.forget(round_number)
            raise
        self.forget(round_number)

    def is_fatal(self, query: Query) -> bool:
        """Whether too many processes died while evaluating this query."""
        return self._times(argument_of(query), query.round_number) >= MOST_DEATHS

    def forget(self, round_number: int) -> None:
        """Remove the entry of the query of a round."""
        self._deaths.pop(str(round_number), None)
        self._write()

    def _times(self, argument: Any, round_number: int) -> int:
        known = self._deaths.get(str(round_number), {})
        times: int = known["times"] if known.get("argument") == _plain(argument) else 0
        return times

    def _write(self) -> None:
        if not self._deaths:
            self._path.unlink(missing_ok=True)
            return
        # always a new file, so that nothing is written through a link that someone has prepared
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        temporary.unlink(missing_ok=True)
        with temporary.open("x", encoding="utf-8") as file:
            file.write(json.dumps(self._deaths) + "\n")
        os.replace(temporary, self._path)

    def _read(self) -> dict[str, dict[str, Any]]:
        """Return the entries by round; none if the file is missing or damaged."""
        try:
            known: dict[str, Any] = json.loads(read_bounded(self._path, _MOST_MARK_BYTES))
            found = {
                str(int(t)): {k: m[k] for k in ("argument", "times")} for t, m in known.items()
            }
            return {t: m for t, m in found.items() if type(m["times"]) is int and int(t) > 0}
        except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):
            return {}


def _plain(argument: Any) -> Any:
    """Return the argument of a function in the form of a JSON file."""
    return json.loads(json.dumps(in_lists(argument), default=str))


def mark_of(loop: BanditLoop, policy: ErrorPolicy) -> EvaluationMark | None:
    """Return the mark that a run in this process leaves if it dies, if a later run can use it.

    Args:
        loop: The loop; only one with a journal outlives its process.
        policy: The user's policy; a run that records no failures leaves no mark.
    """
    path = loop.journal_path
    if path is None or not policy.skips:
        return None
    return EvaluationMark(path.with_name(f"{path.name}.evaluating"))


DEADLY = f"the process that evaluated it ended {MOST_DEATHS} times"
"""The reason in the history of a query that no other process tries."""


def shown_point(query: Query) -> str:
    """Return a query's point in a form for users: by names, or as a list with the context."""
    return str(in_lists(argument_of(query)))


def one_line(text: str) -> str:
    """Return a text in one line, without a period at its end."""
    return " ".join(text.split()).rstrip(".")


def reason_of(error: BaseException) -> str:
    """Return the text that a history records for an error: its class and its message."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def kind_of(error: TypeError | ValueError) -> type[EvaluationError]:
    """Return the error of an evaluation whose result cannot be read because of an error."""
    return NotARewardError if isinstance(error, TypeError) else EvaluationError


def check_told(
    loop: BanditLoop, query: Query, told: tuple[Any, Any]
) -> tuple[float, list[float] | None]:
    """Return the reward and the constraint values that a function returned, if they are usable.

    Args:
        loop: The loop.
        query: The query that was evaluated.
        told: The reward and the constraint values, or None instead of these without constraints.

    Raises:
        EvaluationError: If a value is not a number, not finite or too large, or there are too few.
    """
    reward, constraints = told
    try:
        checked = check_carried("reward", check_reward("reward", reward))
        if constraints is None:
            return checked, None
        values = check_observed("constraints", constraints, loop.history.num_constraints)
        return checked, [check_carried(f"constraints[{i}]", g) for i, g in enumerate(values)]
    except (TypeError, ValueError) as error:
        returned = shown_value(reward if constraints is None else (reward, constraints))
        hint = f" {ONE_NUMBER}" if constraints is None and is_list(reward) else ""
        raise kind_of(error)(
            f"the function returned {returned} at {shown_point(query)}: {error}{hint}"
        ) from error


ONE_NUMBER = (
    "A pair is read as (reward, constraint values); without constraints, return one number, even "
    "if you know its standard deviation."
)
"""What to do if a function without constraints returns a pair."""


def rounds_without_gain(loop: BanditLoop) -> int:
    """Return the number of rounds that have ended since the best reward, or cost, so far.

    A round ends with its outcome or its failure. Initial rounds and attached points do not count,
    nor do, after a reset, the rounds before those that it kept. With constraints, the best reward
    is taken among the outcomes that meet them.

    Args:
        loop: The loop.

    Example:
        >>> from botorch_bandits import BanditLoop, Box, RandomSearch
        >>> loop = BanditLoop(Box([(0.0, 1.0)]), None, RandomSearch())
        >>> for reward in (1.0, 3.0, 2.0, 3.0):
        ...     outcome = loop.tell(loop.ask().id, reward)
        >>> rounds_without_gain(loop)
        2
    """
    history, resets = loop.history, loop.resets
    first_id = resets[-1].num_before if resets else 0
    best, count = None, 0
    for event in history.events:
        query = history.query(event.query_id)
        if query.id < first_id:
            continue
        outcome = event.counted
        if (
            outcome is not None
            and max(outcome.constraints, default=0.0) <= 0.0
            and (best is None or history.is_better(outcome.reward, best))
        ):
            best, count = outcome.reward, 0
        elif query.origin not in ("initial", "attached"):
            count += 1
    return count


class NoGain:
    """Whether a run ends because its best reward has not improved.

    Args:
        loop: The loop.
        num_rounds: The value that the user gave as ``stop_after_no_gain``.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is below 1, or rewards of this loop cannot be compared across rounds.
    """

    def __init__(self, loop: BanditLoop, num_rounds: int | None) -> None:
        self._loop, self._num_rounds = loop, num_rounds
        if num_rounds is None:
            return
        self._num_rounds = check_integer("stop_after_no_gain", num_rounds, minimum=1)
        settings = loop.settings
        differs = {"context_dim": settings.context_dim, "forgetting": settings.forgetting}
        for name, value in differs.items():
            if value:
                raise ValueError(
                    f"stop_after_no_gain is {num_rounds}, but the loop has {name}=, so that "
                    "rewards of different rounds cannot be compared. Leave it out, and raise "
                    "StopRun in on_round= when you know that it is time to stop."
                )

    def reason(self) -> str | None:
        """Return why no other query is to be asked, or None."""
        if self._num_rounds is None or rounds_without_gain(self._loop) < self._num_rounds:
            return None
        name = self._loop.history.outcome_name
        return f"no better {name} in {self._num_rounds} rounds"


class SmallCertificate:
    """Whether a run ends because no point can be much better than the recommended one.

    Args:
        loop: The loop.
        at_most: The value that the user gave as ``stop_below``.

    Raises:
        TypeError: If it is not a number.
        ValueError: If it is not positive, at least the ``2 B`` by which any two points can differ,
            or this loop cannot have a certificate.
    """

    def __init__(self, loop: BanditLoop, at_most: float | None) -> None:
        self._loop, self._at_most = loop, at_most
        if at_most is None:
            return
        self._at_most = check_positive("stop_below", at_most)
        if loop.settings.context_dim:
            self._refuse("a certificate is for one context, and the loop has many")
        if loop.settings.is_random:
            self._refuse("random search has no model")
        if loop.settings.learned is not None:
            self._refuse(
                "FittedSingleTaskGP learns its prior from the outcomes, and no theorem covers that"
            )
        self._is_possible = False
        self._check()

    def _check(self) -> None:
        """Raise an error as soon as it is known that the loop cannot have a certificate."""
        try:
            found = self._loop.recommend()
        except RuntimeError:  # a model that cannot be built yet
            return
        if found.certificate is None and not found.may_come:
            self._refuse("; ".join(found.reasons))
        trivial = found.trivial_certificate
        if trivial is not None and self._at_most is not None and self._at_most >= trivial:
            raise ValueError(
                f"stop_below is {self._at_most}, but any two points differ by at most 2 B = "
                f"{trivial:.6g}, so the run would end at once. Pass a smaller number."
            )
        self._is_possible = True

    def _refuse(self, reason: str) -> None:
        raise ValueError(
            f"stop_below is {self._at_most}, but this loop cannot have a certificate: {reason}. "
            "Leave it out, or give the acquisition what guarantee() needs for confidence bounds."
        )

    def reason(self) -> str | None:
        """Return why no other query is to be asked, or None.

        Raises:
            ValueError: If the loop cannot have a certificate, which could not be known earlier.
        """
        if self._at_most is None:
            return None
        if not self._is_possible:
            self._check()
        found = self._small_enough(self._at_most)
        if found is None:
            return None
        return f"certificate {found.certificate:.6g} at {found.point}"

    def _small_enough(self, at_most: float) -> Recommendation | None:
        """Return the recommendation if its certificate is at most the given number.

        On arms, one pass over their cached values can rule this out at once.
        """
        loop = self._loop
        with loop._lock:
            if not self._is_possible or loop._chooser.has_no_data():
                return None
            quick = certificate_on_arms(loop.settings, loop._chooser)
            if quick is not None and quick > at_most:
                return None
            found = loop.recommend()
        is_enough = found.certificate is not None and found.certificate <= at_most
        return found if is_enough else None


class Endings:
    """The first reason that ends a run before its rounds are over.

    Args:
        loop: The loop.
        stop_after_no_gain: See :class:`NoGain`.
        stop_below: See :class:`SmallCertificate`.
    """

    def __init__(
        self, loop: BanditLoop, stop_after_no_gain: int | None, stop_below: float | None
    ) -> None:
        self._each = (NoGain(loop, stop_after_no_gain), SmallCertificate(loop, stop_below))

    def reason(self) -> str | None:
        """Return why no other query is to be asked, or None."""
        reasons = (each.reason() for each in self._each)
        return next((reason for reason in reasons if reason is not None), None)

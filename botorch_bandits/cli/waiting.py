"""What the options about delayed and parallel evaluations mean."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch
from botorch_bandits.checks import check_integer
from botorch_bandits.domains import Box
from botorch_bandits.feedback import Censored, Feedback, Hallucinated, Ignored
from botorch_bandits.loop.arguments import check_feedback
from botorch_bandits.problems import Delays, parse_delays


@dataclass(frozen=True)
class Waiting:
    """How outcomes are waited for.

    Attributes:
        delays: After how many rounds outcomes are told; None: at once.
        feedback: What is made of pending queries.
        num_workers: How many processes evaluate queries; with one it is this process.
        settings: The effective options that determine the run, by name.
    """

    delays: Delays | None
    feedback: Feedback
    num_workers: int
    settings: dict[str, Any]

    @property
    def has_pending(self) -> bool:
        """Whether queries can be pending while others are chosen."""
        return self.delays is not None or self.num_workers > 1


def read_waiting(
    options: argparse.Namespace,
    acquisition: AcquisitionRecipe | RandomSearch,
    box: Box,
    minimum: float | None = None,
    outcome_bound: float | None = None,
) -> Waiting:
    """Return what the options say, before any file is written.

    Args:
        options: Those of ``add_waiting_arguments``.
        acquisition: The method's; it must go with the feedback.
        box: Where points are chosen.
        minimum: The default of ``--minimum``, in units of the reward; None: it must be given.
        outcome_bound: The default of ``--outcome-bound``. Likewise.

    Raises:
        ValueError: If the options contradict each other, or the method has no width for the
            feedback.
    """
    delays = None if options.delay is None else parse_delays(options.delay)
    workers = 1 if options.workers is None else check_integer("--workers", options.workers, 1)
    if delays is not None and workers > 1:
        raise ValueError(
            f"--workers is {workers} and --delay is {options.delay!r}, but evaluations in "
            "processes are told when they are done. Leave one of the two out."
        )
    if options.feedback is not None and delays is None and options.workers is None:
        raise ValueError(
            f"--feedback is {options.feedback!r}, but without --delay or --workers no query is "
            "pending. Add one of the two, or leave --feedback out."
        )
    name = options.feedback or "hallucinated"
    given = {key: getattr(options, key) for key in ("max_delay", "minimum", "outcome_bound")}
    if name != "censored":
        for key, value in given.items():
            if value is not None:
                raise ValueError(
                    f"--{key.replace('_', '-')} is {value}, but it goes with --feedback censored "
                    f"only, and the feedback is {name}. Add --feedback censored, or leave it out."
                )
        feedback: Feedback = Hallucinated() if name == "hallucinated" else Ignored()
    else:
        defaults = {"minimum": minimum, "outcome_bound": outcome_bound}
        for key, default in defaults.items():
            given[key] = default if given[key] is None else given[key]
            if given[key] is None:
                raise ValueError(
                    f"--feedback censored needs --{key.replace('_', '-')}: "
                    "no reward is smaller than --minimum, and none exceeds it by more than "
                    "--outcome-bound."
                )
        feedback = Censored(**given)
    check_feedback(feedback, acquisition, box)
    return Waiting(delays, feedback, workers, {**given, "feedback": name})

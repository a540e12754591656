"""Recorded results of random search on tuning problems that come with scikit-learn.

They were measured once, by ``python tests/benchmarks/random_rewards.py``, so that a run can be
compared with random search at no cost.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from botorch_bandits.problems.tuning import TuningProblem
from botorch_bandits.random_baseline import RandomBaseline

FILE = "random_rewards.json"


@cache
def recorded_rewards() -> tuple[dict[str, Any], ...]:
    """Return all records: the problem, the number of points, and the count of each reward."""
    text = files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return tuple(json.loads(text))


def describe_problem(problem: TuningProblem, dataset: str) -> dict[str, Any]:
    """Return the fields that distinguish a tuning problem from others on record.

    Args:
        problem: The problem.
        dataset: The name of its data; see :func:`~botorch_bandits.problems.tuning.load_dataset`.
    """
    return {
        "task": problem.task_name,
        "dataset": dataset,
        "num_folds": problem.num_folds,
        "parameters": repr(problem.space.parameters),
    }


def random_baseline_of(problem: TuningProblem, dataset: str) -> RandomBaseline | None:
    """Return what random search finds on a tuning problem; None if there is no record.

    Args:
        problem: A problem with the folds and ranges of a record.
        dataset: The name of its data; see :func:`~botorch_bandits.problems.tuning.load_dataset`.

    Example:
        >>> from botorch_bandits.problems.tuning import load_dataset
        >>> problem = TuningProblem("svm", *load_dataset("breast-cancer"))
        >>> baseline = random_baseline_of(problem, "breast-cancer")
        >>> len(baseline), round(baseline.expected_best(40), 3)
        (1000, 0.98)
    """
    wanted = describe_problem(problem, dataset)
    for record in recorded_rewards():
        if wanted.items() <= record.items():
            return RandomBaseline(y for y, count in record["rewards"] for _ in range(count))
    return None

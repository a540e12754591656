"""Measures what random search finds on tuning problems.

Start it with ``python tests/benchmarks/random_rewards.py``. Points are drawn uniformly at random
with one seed. Records that fit their problem are left alone, so that it goes on where it stopped;
all of them take about ten minutes.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import botorch_bandits.problems
from botorch_bandits.problems.random_rewards import FILE, describe_problem
from botorch_bandits.problems.tuning import TuningProblem, load_dataset
from botorch_bandits.progress import progress_bar

SEED = 7
NUM_POINTS = {
    ("svm", "breast-cancer"): 1000,
    ("svm", "wine"): 500,
    ("svm", "iris"): 500,
    ("svm", "digits"): 200,
    ("logistic-regression", "breast-cancer"): 100,
}


def measure(problem: TuningProblem, num_points: int, name: str) -> list[list[Any]]:
    """Return each reward with its count, smallest first."""
    points = problem.space.sample(num_points, torch.Generator().manual_seed(SEED))
    rewards: Counter[float] = Counter()
    with progress_bar(num_points, name) as advance:
        for x in points:
            rewards[problem(x)] += 1
            advance()
    return [[reward, count] for reward, count in sorted(rewards.items())]


def main() -> None:
    """Measure what is not recorded yet."""
    path = Path(str(botorch_bandits.problems.__path__[0])) / FILE
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    records = []
    for (task, dataset), num_points in NUM_POINTS.items():
        problem = TuningProblem(task, *load_dataset(dataset))
        start = {**describe_problem(problem, dataset), "num_points": num_points, "seed": SEED}
        record = next((r for r in known if start.items() <= r.items()), None)
        if record is None:
            record = {**start, "rewards": measure(problem, num_points, f"{task} on {dataset}")}
        records.append(record)
        lines = ",\n".join(json.dumps(record) for record in records)
        path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Compare methods over seeds; each trial is a file, so that a comparison can be continued."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from botorch_bandits.cli.methods import METHODS, build_loop
from botorch_bandits.cli.output import write_atomically
from botorch_bandits.evaluation import run
from botorch_bandits.problems.tuning import TuningProblem
from botorch_bandits.progress import ProgressBar


def compare(
    problem: TuningProblem,
    acquisitions: Mapping[str, Any],
    seeds: Sequence[int],
    num_rounds: int,
    num_initial: int,
    folder: Path,
    settings: Mapping[str, Any],
    progress: bool = True,
) -> int:
    """Run every method with every seed and print a table of the best rewards.

    All methods share the initial rounds of a seed, so that they differ only in what they do
    with what they know.

    Args:
        problem: The tuning problem.
        acquisitions: The acquisition of each method, by name.
        seeds: One trial a seed and method.
        num_rounds: Rounds of each trial.
        num_initial: Uniform rounds at the start of each trial.
        folder: One file a trial, and ``compare.csv``.
        settings: Trials on file with other settings are run again.
        progress: Show a progress bar.

    Returns:
        The exit code.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = json.loads(json.dumps(dict(settings)))
    best: dict[str, list[float]] = {method: [] for method in acquisitions}
    with ProgressBar(len(seeds) * len(acquisitions), "trials", progress) as bar:
        for seed in seeds:
            for method, acquisition in acquisitions.items():
                path = folder / f"{method}-{seed}.json"
                trial = _load(path)
                if trial is None or trial["settings"] != known:
                    loop = build_loop(problem.box, acquisition, num_initial, seed)
                    result = run(loop, problem, num_rounds, progress=False)
                    trial = {"settings": known, "best_so_far": result.best_so_far.tolist()}
                    write_atomically(path, json.dumps(trial) + "\n")
                best[method].append(trial["best_so_far"][-1])
                bar.advance(last=f"{method} {best[method][-1]:.4f}")
    rows = ["method,seed,best_reward"]
    rows += [
        f"{method},{seed},{value!r}"
        for method, values in best.items()
        for seed, value in zip(seeds, values, strict=True)
    ]
    write_atomically(folder / "compare.csv", "\n".join(rows) + "\n")
    print(f"\nbest reward after {num_rounds} rounds over {len(seeds)} seeds ({problem.task.title})")
    print(f"{'method':<10}{'median':>10}{'mean':>10}{'worst':>10}{'best':>10}")
    for method, values in best.items():
        print(
            f"{method:<10}{statistics.median(values):>10.5f}{statistics.fmean(values):>10.5f}"
            f"{min(values):>10.5f}{max(values):>10.5f}   {METHODS[method]}"
        )
    print(f"{'default':<10}{problem.default_accuracy():>10.5f}   scikit-learn's default")
    return 0


def _load(path: Path) -> dict[str, Any] | None:
    try:
        trial: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return trial if {"settings", "best_so_far"} <= trial.keys() else None

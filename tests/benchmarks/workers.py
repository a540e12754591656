"""Benchmarks of what stands around a loop: handing tasks to workers, and opening a run.

The cost of a task is measured against a promise of one millisecond, and opening a run against
making all fits in it again, for there is no ordinary way to do either.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from gpytorch.kernels import MaternKernel, ScaleKernel

from benchmarks.arms import NOISE, RECIPE, arms_problem
from benchmarks.measure import Measurement, Scale, smooth_data, standard_kernel
from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    GPUpperConfidenceBound,
    History,
    run,
)

PROMISED_SECONDS = 1e-3
"""What asking, handing a task to a worker, taking its result and telling may cost together."""

PENDING = 2


def tasks_on_arms(scale: Scale) -> list[Measurement]:
    """What ``run`` costs a task, asking and telling included, with threads and processes."""
    kinds: dict[str, Callable[[int], Executor]] = {
        "threads": ThreadPoolExecutor,
        "processes": ProcessPoolExecutor,
    }
    count = scale.of(500, 40)
    measurements = []
    for name, kind in kinds.items():
        with kind(PENDING) as executor:
            repeats = range(min(scale.repeats, 3))
            seconds = median(_seconds_of_tasks(executor, count, scale.seed) for _ in repeats)
        measurements.append(
            Measurement(
                name=f"workers: 200 arms, {PENDING} {name}",
                ratio=PROMISED_SECONDS / seconds,
                difference=0.0,
                tolerance=0.0,
                unit="task",
                ordinary_seconds=PROMISED_SECONDS,
                our_seconds=seconds,
                at_least=1.0,
                note="asking and telling included; the ratio is 1 ms over that",
            )
        )
    return measurements


def _loop_on_arms(seed: int) -> BanditLoop:
    problem = arms_problem(200, seed)
    model = BanditGP.with_kernel(standard_kernel(), noise=NOISE)
    return BanditLoop(Arms(problem.choices), model, RECIPE, seed=seed)


def _reward(x: Any) -> float:
    return float(np.sin(6.0 * np.asarray(x)).sum())


def _seconds_of_tasks(executor: Executor, count: int, seed: int) -> float:
    loop = _loop_on_arms(seed)
    run(loop, _reward, 10, executor=executor, progress=False)  # the workers start
    start = time.process_time()
    run(loop, _reward, count, executor=executor, progress=False)
    return (time.process_time() - start) / count


def fits_on_record(scale: Scale) -> list[Measurement]:
    """Open a run with a fit after each of 200 rows, and ask, against making all fits again."""
    rows = scale.of(200, 12)
    X, Y = smooth_data(rows, 2, scale.seed)
    settings: dict[str, Any] = {
        "domain": Box([[0.0, 0.0], [1.0, 1.0]], num_restarts=2, raw_samples=16),
        "model": BanditGP.with_kernel(
            ScaleKernel(MaternKernel(nu=2.5)), noise=NOISE, lengthscale=0.3, refit_every=1
        ),
        "acquisition": GPUpperConfidenceBound.with_options(width=2.0),
        "seed": scale.seed,
    }
    spans: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        with BanditLoop(**settings, storage=path) as loop:
            for x, y in zip(X, Y[:, 0].tolist(), strict=True):
                loop.attach(x, y)
            records = loop.history.to_records()
            asked = loop.ask().x  # the fits are made, and the last one goes on record
        for _ in range(min(scale.repeats, 3)):
            given = History.from_records(records, 2)
            start = time.process_time()
            again = BanditLoop(**settings, history=given)
            again.current_model()
            spans[0].append(time.process_time() - start)
            point = again.ask().x
            start = time.process_time()
            with BanditLoop(**settings, storage=path) as loop:
                loop.current_model()
                spans[1].append(time.process_time() - start)
    ordinary, ours = (median(each) for each in spans)
    return [
        Measurement(
            name=f"fits-on-record: {rows} rows, a fit after each",
            ratio=ordinary / ours,
            difference=float((point - asked).abs().max()),
            tolerance=0.0,
            unit="opening",
            ordinary_seconds=ordinary,
            our_seconds=ours,
            at_least=20.0,
            note="the model of a run that is opened, against all fits again",
        )
    ]

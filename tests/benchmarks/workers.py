"""Benchmarks of what stands around a loop: handing tasks to workers, and opening a run.

The cost of a task is measured against a promise of one millisecond, and opening a run against
making all fits in it again, for there is no ordinary way to do either.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from gpytorch.kernels import MaternKernel, ScaleKernel
from records import entries_of, rebuilt

from benchmarks.arms import POLICY, arms_problem
from benchmarks.boxes import BOUND
from benchmarks.measure import NOISE, Measurement, Scale, compare, smooth_data, timed
from botorch_bandits import Arms, BanditGP, BanditLoop, Box, run

PROMISED_SECONDS = 1e-3
"""What asking, handing a task to a worker, taking its result and telling may cost together."""

PENDING = 2


def tasks_on_arms(scale: Scale) -> list[Measurement]:
    """What ``run`` costs a task, asking and telling included, with threads and processes."""
    count, lines = scale.of(500, 40), []
    for kind, executors in (("threads", ThreadPoolExecutor), ("processes", ProcessPoolExecutor)):
        spans = []
        with executors(PENDING) as executor:
            for _ in range(scale.few_repeats):
                loop = POLICY.loop(Arms(arms_problem(200, scale.seed).choices), seed=scale.seed)
                play = partial(run, loop, _reward, executor=executor, progress=False)
                play(10)  # the workers start
                spans.append(timed(partial(play, count))[0] / count)
        name = f"workers: 200 arms, {PENDING} {kind}"
        note = "asking and telling included; the ratio is 1 ms over that"
        lines.append(Measurement(name, PROMISED_SECONDS, median(spans), (1,), note=note))
    return lines


def _reward(x: Any) -> float:
    return float(np.sin(6.0 * np.asarray(x)).sum())


def fits_on_record(scale: Scale) -> list[Measurement]:
    """Open a run with a fit after each of 200 rows, against making all fits again."""
    rows = scale.of(200, 12)
    X, Y = smooth_data(rows, 2, scale.seed)
    kernel = ScaleKernel(MaternKernel(nu=2.5))
    settings: dict[str, Any] = {
        "domain": Box([[0.0, 0.0], [1.0, 1.0]], num_restarts=2, raw_samples=16),
        "model": BanditGP.with_kernel(kernel, noise=NOISE, lengthscale=0.3, refit_every=1),
        "acquisition": BOUND,
        "seed": scale.seed,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        with BanditLoop(**settings, storage=path) as loop:
            for x, y in zip(X, Y[:, 0].tolist(), strict=True):
                loop.attach(x, y)
            known = entries_of(loop.history)
            asked = loop.ask().x  # the fits are made, and the last one goes on record

        def fitted_again() -> BanditLoop:
            again = rebuilt(BanditLoop(**settings), known)
            again.current_model()
            return again

        def opened() -> BanditLoop:
            with BanditLoop(**settings, storage=path) as loop:
                loop.current_model()
                return loop

        timing = compare(fitted_again, opened, scale.few_repeats)
    return [
        timing.line(
            f"fits-on-record: {rows} rows, a fit after each",
            20,
            difference=float((timing.ordinary_result.ask().x - asked).abs().max()),
            note="the model of a run that is opened, against all fits again",
        )
    ]

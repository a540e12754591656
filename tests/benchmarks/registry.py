"""The benchmarks by name, in the order in which they run.

The command line and the tests take them from here.
"""

from __future__ import annotations

from benchmarks import (
    arms,
    boxes,
    candidates,
    changes,
    fits,
    growth,
    replicates,
    rows,
    settings,
    suggestions,
    workers,
)
from benchmarks.measure import Benchmark

BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("arms-1k", "1000 arms, GP-UCB: the loop against rebuilding", arms.few_arms),
        Benchmark("arms-10k", "10000 arms, GP-UCB: the loop against rebuilding", arms.many_arms),
        Benchmark(
            "arms-100k", "100000 arms, GP-UCB: the loop against rebuilding", arms.very_many_arms
        ),
        Benchmark("arms-40-loops", "what 40 loops on the same 1000 arms keep", arms.many_loops),
        Benchmark("arms-100-long", "100 arms, 30000 rounds, against counts", arms.long_run),
        Benchmark("ts-exact-1k", "Thompson sampling on 1000 arms, exact draws", arms.thompson),
        Benchmark(
            "ts-drop-in",
            "batches of 5 by Thompson sampling as a drop-in, against MaxPosteriorSampling",
            arms.thompson_on_choices,
        ),
        Benchmark("candidates-1k", "36 priors on 1000 arms", candidates.priors_on_arms),
        Benchmark("chain-500", "50 to 550 rows, a posterior after each", boxes.chain),
        Benchmark("append-predict-1000", "one row more, 256 points", boxes.append_and_predict),
        Benchmark("value-change-1000", "one outcome changed, 256 points", boxes.change_a_value),
        Benchmark("acqf-dropin", "optimize_acqf unchanged on our model", boxes.drop_in),
        Benchmark("acqf-own", "optimize_acqf with our gen_candidates", boxes.own_generator),
        Benchmark(
            "replicates-n50",
            "25 replicates on a box in lockstep, one more round",
            replicates.replicates_on_a_box,
        ),
        Benchmark("refit", "marginal-likelihood fits, cold and warm", fits.refits),
        Benchmark(
            "default-suggestion",
            "the default model and its next point, fit included",
            suggestions.default_suggestions,
        ),
        Benchmark("cpd-200", "the change test on all even tails", changes.all_tails),
        Benchmark("evidence", "loops that test by evidence", changes.evidence_in_loops),
        Benchmark(
            "settings",
            "constraints, forgetting, contexts, DMM and draws: a round of the loop",
            settings.suggestions_of_settings,
        ),
        Benchmark("growth", "how the cost of a round grows, over two decades", growth.growth),
        Benchmark("workers", "what workers cost a task, on arms", workers.tasks_on_arms),
        Benchmark(
            "fits-on-record",
            "a run with 200 fits is opened, against all fits again",
            workers.fits_on_record,
        ),
        Benchmark("many-rows", "20000 rows on a box that repeat", rows.many_rows),
        Benchmark(
            "rounds-without-end",
            "100000 rounds on a box that play points again",
            rows.rounds_without_end,
        ),
        Benchmark("memory-1000", "what a model of 1000 rows keeps", boxes.memory),
    )
}

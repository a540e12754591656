"""Benchmarks: this package against the ordinary BoTorch way, on the same work in the same run.

Run them in a clone with ``python tests/benchmarks``; :mod:`benchmarks.faults`, which kills durable
loops, is played by a test. Nothing here is installed.
"""

from functools import partial

from benchmarks import arms, boxes, changes, combinations, growth, suggestions
from benchmarks.measure import Benchmark, Measurement, Scale

BENCHMARKS: dict[str, Benchmark] = {
    "arms-1k": arms.few_arms,
    "arms-10k": arms.many_arms,
    "arms-100k": arms.very_many_arms,
    "arms-100-long": arms.long_run,
    "ts-drop-in": arms.thompson_on_choices,
    "chain-500": boxes.chain,
    "append-predict": boxes.append_and_predict,
    "acqf-dropin": boxes.drop_in,
    "acqf-own": boxes.own_generator,
    "replicates-n50": boxes.replicates_on_a_box,
    "refit": boxes.refits,
    "default-suggestion": suggestions.default_suggestions,
    "cpd-200": changes.all_tails,
    "settings": combinations.suggestions_of_settings,
    "growth": growth.growth,
    "rounds-without-end": boxes.rounds_without_end,
}
"""The benchmarks by name, in the order in which they run."""

PARTS: dict[str, Benchmark] = {
    "combos": combinations.combinations_at_random,
    "dmm": partial(combinations.suggestions_of_settings, acquisition="DMM"),
}
"""What runs only where it is named: combinations at random, and a part of ``settings``."""

__all__ = ["BENCHMARKS", "PARTS", "Benchmark", "Measurement", "Scale"]

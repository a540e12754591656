"""Benchmarks: this package against the ordinary BoTorch way, on the same work in the same run.

Run them in a clone with ``python tests/benchmarks``; ``python tests/benchmarks faults`` kills
durable loops. Nothing here is installed.
"""

from benchmarks.measure import Benchmark, Measurement, Scale
from benchmarks.registry import BENCHMARKS

__all__ = ["BENCHMARKS", "Benchmark", "Measurement", "Scale"]

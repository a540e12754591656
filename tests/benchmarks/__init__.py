"""Benchmarks: this package against the ordinary BoTorch way, on the same work in the same run."""

from benchmarks.measure import Benchmark, Measurement, Scale
from benchmarks.registry import BENCHMARKS

__all__ = ["BENCHMARKS", "Benchmark", "Measurement", "Scale"]

"""The papers' experiments, their baselines and their figures."""

from botorch_bandits.experiments.registry import EXPERIMENTS, TABLES, build_experiments

__all__ = ["EXPERIMENTS", "TABLES", "build_experiments"]

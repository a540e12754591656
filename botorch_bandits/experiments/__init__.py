"""The papers' experiments, their baselines and their figures."""

from botorch_bandits.experiments.registry import EXPERIMENTS, build_experiments

__all__ = ["EXPERIMENTS", "build_experiments"]

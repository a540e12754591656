"""The papers' experiments, their baselines and their figures."""

from papers.registry import EXPERIMENTS, TABLES, build_experiments

__all__ = ["EXPERIMENTS", "TABLES", "build_experiments"]

"""The experiments of the papers that this package implements, and some beyond them.

Run them in a clone with ``python tutorials/papers``. They play the rules of ``botorch_bandits``
through its public names, and come with baselines and problems that only they need.
"""

from papers.registry import EXPERIMENTS, TABLES, build_experiments

__all__ = ["EXPERIMENTS", "TABLES", "build_experiments"]

"""The experiments of the papers that this package implements, run again, and some beyond them.

Run them in a clone with ``python tutorials/papers``. They play the rules of ``botorch_bandits``
through its public names, and have with them the baselines and problems that nothing else needs.
"""

from papers.registry import EXPERIMENTS, TABLES, build_experiments

__all__ = ["EXPERIMENTS", "TABLES", "build_experiments"]

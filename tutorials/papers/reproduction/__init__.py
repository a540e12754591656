"""All experiments on one page: each published figure beside ours, with a verdict.

``python tutorials/papers reproduce`` writes it. Each paper has a file with the claims about its
figures; each claim is checked by a rule against the tables of the run.
"""

from papers.reproduction.figures import FIGURES
from papers.reproduction.run import reproduce
from papers.reproduction.state import Reproduction

__all__ = ["FIGURES", "Reproduction", "reproduce"]

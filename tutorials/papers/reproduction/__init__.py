"""All experiments on one page: each published figure beside ours, with a verdict."""

from papers.reproduction.figures import FIGURES
from papers.reproduction.run import reproduce
from papers.reproduction.state import Reproduction

__all__ = ["FIGURES", "Reproduction", "reproduce"]

"""All experiments on one page: each published figure beside ours, with a verdict."""

from botorch_bandits.reproduction.figures import FIGURES
from botorch_bandits.reproduction.run import reproduce
from botorch_bandits.reproduction.state import Reproduction

__all__ = ["FIGURES", "Reproduction", "reproduce"]

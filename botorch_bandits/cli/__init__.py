"""The command line: ``botorch-bandits``, also ``python -m botorch_bandits``."""

from botorch_bandits.cli.main import main

__all__ = ["main"]

"""The command line: ``botorch-bandits``, also ``python -m botorch_bandits``.

What it shares with other command lines, such as those of the experiments, is exported here too.
"""

from botorch_bandits.cli.command_line import (
    BAD_ARGUMENTS,
    INTERRUPTED,
    CommandParser,
    Executable,
    run_command,
    write_atomically,
)
from botorch_bandits.cli.main import main

__all__ = [
    "BAD_ARGUMENTS",
    "INTERRUPTED",
    "CommandParser",
    "Executable",
    "main",
    "run_command",
    "write_atomically",
]

"""The command line: ``botorch-bandits``, also ``python -m botorch_bandits``.

``tune`` and ``optimize`` run a bandit on a user's task, ``compare`` runs several, and ``resume``
and ``show`` read journals. What other command lines, such as those of the experiments, share with
it is exported here, too.
"""

from botorch_bandits.cli.arguments import main
from botorch_bandits.cli.command_line import (
    BAD_ARGUMENTS,
    INTERRUPTED,
    CommandParser,
    Executable,
    replaced_at_the_end,
    run_command,
    write_atomically,
)

__all__ = [
    "BAD_ARGUMENTS",
    "INTERRUPTED",
    "CommandParser",
    "Executable",
    "main",
    "replaced_at_the_end",
    "run_command",
    "write_atomically",
]

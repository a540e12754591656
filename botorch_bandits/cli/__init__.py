"""The command line: ``botorch-bandits``, also ``python -m botorch_bandits``.

``tune`` and ``optimize`` run a bandit on a user's task and write a folder; the same command goes on
where a run stopped. ``show`` reads the storage of a run.
"""

from botorch_bandits.cli.command_line import (
    BAD_ARGUMENTS,
    INTERRUPTED,
    CommandParser,
    main,
    run_command,
    write_atomically,
)

__all__ = [
    "BAD_ARGUMENTS",
    "INTERRUPTED",
    "CommandParser",
    "main",
    "run_command",
    "write_atomically",
]

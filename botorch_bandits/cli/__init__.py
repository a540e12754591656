"""The command line: ``botorch-bandits``, also ``python -m botorch_bandits``.

``tune`` and ``optimize`` run a bandit on a user's task, ``compare`` runs several, ``resume`` and
``show`` read journals. What other command lines, such as those of the experiments, share with it is
exported here too.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from botorch_bandits.late_imports import import_late
from botorch_bandits.version import __version__

if TYPE_CHECKING:
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

if not TYPE_CHECKING:
    __getattr__, __dir__ = import_late(
        __name__, {name: "command_line" for name in __all__ if name != "main"}
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The arguments, without the name of the program; those of the process if omitted.

    Returns:
        The exit code: 0, 2 for bad arguments, 130 if the user interrupted.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given == ["--version"]:  # importing torch, as the commands do, takes seconds
        print(__version__)
        return 0
    if given in (["--help"], ["-h"]):
        print(import_module("botorch_bandits.cli.first_page").format_first_page(), end="")
        return 0
    code: int = import_module("botorch_bandits.cli.commands").main(given)
    return code

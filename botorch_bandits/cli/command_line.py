"""The arguments of ``botorch-bandits``, its exit codes, and files that are replaced as a whole.

Help pages and errors of arguments appear at once: torch and BoTorch, which take seconds to import,
are imported only when a command starts. The names of tasks, data sets and objectives are therefore
repeated here, and a test compares them with the originals.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from botorch_bandits.version import __version__

BAD_ARGUMENTS = 2
"""The exit code for arguments that cannot be used."""

INTERRUPTED = 130
"""The exit code of a command that the user interrupted, as shells report it for SIGINT."""

TASK_NAMES = ("svm", "logistic-regression", "gradient-boosting")
DATASETS = ("breast-cancer", "digits", "wine", "iris")

METHODS = {
    "best": "the default for the best point (expected improvement)",
    "earned": "the default for reward during the run (a narrow confidence bound)",
    "igp-ucb": "IGP-UCB (Chowdhury and Gopalan 2017)",
    "gp-ts": "GP-TS (Chowdhury and Gopalan 2017)",
    "random": "random search",
}


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message on one line and exit with :data:`BAD_ARGUMENTS`.

        Args:
            message: What is wrong with the arguments.
        """
        print(f"{self.prog}: error: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(BAD_ARGUMENTS)


def run_command(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """Parse the arguments and run the command that they name.

    Errors that say what to change about the arguments are printed on one line.

    Args:
        parser: The parser. It leaves in ``start`` a function that takes the parsed options and
            returns the exit code.
        arguments: The arguments of the command line; the options keep them in ``arguments``.

    Returns:
        The exit code: that of the command, :data:`BAD_ARGUMENTS` or :data:`INTERRUPTED`.
    """
    options = parser.parse_args(arguments)
    options.arguments = list(arguments)
    start: Callable[[argparse.Namespace], int] = options.start
    try:
        return start(options)
    except KeyboardInterrupt:
        print("\ninterrupted; the same command continues", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except _expected_errors() as error:
        print(f"{parser.prog}: error: {printable(str(error))}", file=sys.stderr)
        return BAD_ARGUMENTS


def _expected_errors() -> tuple[type[Exception], ...]:
    """Return the errors that say what to change; imports loops, and with them torch, late."""
    storage_error = import_module("botorch_bandits.loop").StorageError
    return (ValueError, TypeError, ImportError, OSError, storage_error)


def printable(text: str) -> str:
    """Return a text with its control characters spelled out, so that a terminal ignores them.

    Args:
        text: Text of a file that may come from someone else.
    """
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old one or the new one, never a part.

    Args:
        path: The file; its folder exists.
        text: The new content of the file, in UTF-8.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)  # an earlier run may have ended while writing it
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The arguments, without the name of the program; those of the process if omitted.

    Returns:
        The exit code: 0, 1 if an evaluation failed, 2 for bad arguments, 130 if the user
        interrupted.
    """
    return run_command(build_parser(), sys.argv[1:] if arguments is None else arguments)


def build_parser() -> CommandParser:
    """Return the parser with all commands."""
    parser = CommandParser(
        prog="botorch-bandits",
        description="Gaussian-process bandits: tune a classifier, or optimize any function.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)

    tune = commands.add_parser(
        "tune",
        help="tune a classifier on real data",
        description="Tune a scikit-learn classifier; the reward is its cross-validated accuracy.",
        allow_abbrev=False,
    )
    tune.add_argument("--task", choices=TASK_NAMES, default="svm", help="default svm")
    tune.add_argument(
        "--dataset", choices=DATASETS, default="breast-cancer", help="default breast-cancer"
    )
    tune.add_argument("--data", metavar="FILE", help="a CSV file instead of --dataset")
    tune.add_argument("--target", metavar="COLUMN", help="the class column of --data")
    _add_run_arguments(tune)
    tune.set_defaults(start=partial(_start, "commands", "tune"))

    optimize = commands.add_parser(
        "optimize",
        help="maximize a Python function",
        description="Maximize a function of yours, or minimize it with --minimize. It is called "
        "with one argument, a dict of values by name, and returns one number.",
        allow_abbrev=False,
    )
    optimize.add_argument("function", metavar="MODULE:FUNCTION", help="for example mymodule:reward")
    optimize.add_argument(
        "--param",
        action="append",
        required=True,
        metavar="NAME=KIND:...",
        help="a parameter of the function, once for each: NAME=float:LOW:HIGH, NAME=log:LOW:HIGH "
        "(on a logarithmic scale), NAME=int:LOW:HIGH, NAME=log-int:LOW:HIGH, NAME=choice:A,B,..., "
        "NAME=ordered:A,B,... (neighbors are similar) or NAME=fixed:VALUE",
    )
    optimize.add_argument(
        "--minimize", action="store_true", help="the function returns a cost to be minimized"
    )
    _add_run_arguments(optimize)
    optimize.set_defaults(start=partial(_start, "commands", "optimize"))

    show = commands.add_parser(
        "show",
        help="show the content of a run",
        description="Print the settings and rounds of a run, which may go on.",
    )
    show.add_argument("path", metavar="FOLDER", help="the folder of a run, or a loop's storage")
    show.set_defaults(start=partial(_start, "summary", "show"))
    return parser


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that ``tune`` and ``optimize`` share."""
    parser.add_argument(
        "--method", choices=METHODS, default="best", help="default best (expected improvement)"
    )
    parser.add_argument(
        "--prior",
        metavar="LENGTHSCALE:SCALE:NOISE[:MEAN]",
        help="a prior that is fixed before the data, instead of a fitted model: a lengthscale as a "
        "share of each range, and standard deviations of the reward and of its noise",
    )
    for name, symbol in (("rkhs", "norm bound B"), ("noise", "noise bound R")):
        parser.add_argument(
            f"--{name}-bound",
            type=float,
            help=f"{symbol} in prior standard deviations (igp-ucb, gp-ts; default: unknown)",
        )
    parser.add_argument("--rounds", type=int, default=40, help="rounds in total (default 40)")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument(
        "--workers", type=int, default=1, help="processes that evaluate at once (default 1)"
    )
    parser.add_argument(
        "--catch", action="store_true", help="record evaluations that fail, and continue"
    )
    parser.add_argument("--out", metavar="FOLDER", help="folder of the files (default runs/...)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def _start(module: str, name: str, options: argparse.Namespace) -> int:
    """Import the function of a command late, and call it."""
    function = getattr(import_module(f"botorch_bandits.cli.{module}"), name)
    code: int = function(options)
    return code

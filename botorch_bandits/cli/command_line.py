"""What command lines share: one-line errors, exit codes, and files that are replaced as a whole.

A parser leaves in ``start`` the function that its command runs; :func:`run_command` calls it.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, NoReturn, Protocol

BAD_ARGUMENTS = 2
"""The exit code for arguments that cannot be used."""

INTERRUPTED = 130
"""The exit code of a command that the user interrupted, as shells report it for SIGINT."""


class Executable(Protocol):
    """Work that was checked and prepared, but not yet done."""

    def execute(self) -> int:
        """Do the work; returns the exit code."""
        ...


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse all arguments, or say which of them are unknown and what they may be instead.

        Args:
            args: The arguments; those of the process if omitted.
            namespace: Where the options are stored.
        """
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command = getattr(options, "command", None)
            parsers = self._commands()
            told = [f"unrecognized arguments: {' '.join(unknown)}"]
            if command in parsers:
                told += [_instead(word, command, parsers) for word in unknown]
            parsers.get(command, self).error("; ".join(filter(None, told)))
        return options

    def _commands(self) -> dict[str | None, CommandParser]:
        """Return the parsers of the commands by name."""
        groups = (
            action.choices
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
        )
        return {name: parser for group in groups for name, parser in group.items()}

    def error(self, message: str) -> NoReturn:
        """Print the message on one line and exit with :data:`BAD_ARGUMENTS`.

        Args:
            message: What is wrong with the arguments.
        """
        print(f"{self.prog}: error: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(BAD_ARGUMENTS)


def _instead(word: str, command: str | None, parsers: Mapping[str | None, CommandParser]) -> str:
    """Return what an option that a command does not have may be instead; empty if unknown.

    Args:
        word: An argument that was not recognized.
        command: The name of the command.
        parsers: The parsers of all commands by name.
    """
    name = word.partition("=")[0]
    if not name.startswith("--"):
        return ""
    others = [other for other, parser in parsers.items() if name in parser._option_string_actions]
    if others:
        told = (
            f"only {', '.join(filter(None, others))} {'have' if len(others) > 1 else 'has'} {name}"
        )
        return f"{told}; {IN_PYTHON[name]}" if name in IN_PYTHON else told
    # so close that --maximize does not become --minimize
    near = get_close_matches(name, parsers[command]._option_string_actions, n=1, cutoff=0.85)
    return f"did you mean {near[0]}?" if near else ""


IN_PYTHON = {
    "--budget": "for a function of your own, pass constraints= to BanditLoop, in Python",
}
"""What does for any function what an option does only for some commands."""


def keep_beginnings(parser: argparse.ArgumentParser, option: str, *beginnings: str) -> None:
    """Keep those abbreviations of an option valid that a newer option made ambiguous.

    Journals record command lines as they were typed, and ``resume`` reads them again.

    Args:
        parser: The parser that has the option.
        option: The option, such as ``--param``.
        beginnings: The abbreviations, such as ``--p``.
    """
    known = parser._option_string_actions
    for beginning in beginnings:
        known.setdefault(beginning, known[option])


def run_command(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """Parse the arguments and run the command that they name.

    Errors that say what to change about the arguments are printed on one line.

    Args:
        parser: The parser. It leaves in ``start`` a function that takes the parsed options and
            returns the exit code, or prepared work that is then executed. If it has several
            commands, it also leaves the command's name in ``command``.
        arguments: The arguments of the command line; the options keep them in ``arguments``.

    Returns:
        The exit code: that of the command, :data:`BAD_ARGUMENTS` or :data:`INTERRUPTED`.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal may lack characters that a file has
            stream.reconfigure(errors="backslashreplace")
    options = parser.parse_args(arguments)
    options.arguments = list(arguments)
    name = " ".join(filter(None, (parser.prog, getattr(options, "command", None))))
    try:
        start: Callable[[argparse.Namespace], Executable | int] = options.start
        started = start(options)
        if isinstance(started, int):
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("\ninterrupted; the same command continues", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        if not _is_output_closed():
            raise
        return 0  # the reader of the output has closed it
    except _expected_errors() as error:
        if shown := getattr(error, "shown", ""):  # for an error in the user's own module
            print(printable(shown), file=sys.stderr)
        print(f"{name}: error: {printable(str(error))}", file=sys.stderr)
        return BAD_ARGUMENTS
    return started if isinstance(started, int) else started.execute()


def printable(text: str, keep: str = "\n") -> str:
    """Return a text with its control characters spelled out, so that a terminal ignores them.

    Args:
        text: Text of a file that may come from someone else.
        keep: Control characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in keep else _spelled(letter) for letter in text
    )


def _spelled(letter: str) -> str:
    return ascii(letter)[1:-1]


def _is_output_closed() -> bool:
    """Return whether the output is no longer read; nothing is written there then."""
    try:
        descriptor = sys.stdout.fileno()
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(descriptor, 0)
            if not any(event & select.POLLERR for _, event in poll.poll(0)):
                return False
        # the remaining output would raise again when the process ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    except (OSError, ValueError):
        return False
    return True


def _expected_errors() -> tuple[type[Exception], ...]:
    """Return the errors that say what to change; imports journals, and with them torch, late."""
    journal_error = import_module("botorch_bandits.journal").JournalError
    return (ValueError, TypeError, ImportError, OSError, journal_error)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old one or the new one, never a part.

    Args:
        path: The file; its folder exists.
        text: The new content of the file, in UTF-8.
    """
    with replaced_at_the_end(path) as file:
        file.write(text.replace("\n", os.linesep).encode("utf-8"))


@contextmanager
def replaced_at_the_end(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces another one when it is complete.

    It is always a new file, so that nothing is written through a link that somebody else placed in
    the folder.

    Args:
        path: The file to replace; its folder exists.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)  # an earlier run may have ended while writing it
    with temporary.open("xb") as file:
        yield file
    os.replace(temporary, path)

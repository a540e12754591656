"""Journals of ``tune`` and ``optimize``, which record the command line that began them.

``resume`` reads it and continues the run with the same options; a journal of another command, or
one begun with other options, is refused.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botorch_bandits.cli.command_line import printable
from botorch_bandits.journal import Journal
from botorch_bandits.journal.files import make_folders
from botorch_bandits.loop.journal import check_content, header_of
from botorch_bandits.loop.settings import LoopSettings

OWN_OPTIONS = ("--journal", "--overwrite")


@dataclass(frozen=True)
class Command:
    """The command that began a journal.

    Attributes:
        arguments: The arguments of the command line, without the journal.
        folder: The folder in which it was given.
        settings: The effective options that determine the run, by name.
    """

    arguments: tuple[str, ...]
    folder: str
    settings: Mapping[str, Any]


def read_command(path: str | Path) -> Command:
    """Return the command that began a journal.

    Raises:
        FileNotFoundError: If there is no journal.
        ValueError: If the file is not a journal, or was made by a program.
    """
    reader = Journal.read(path)
    check_content(reader)
    known = reader.header.get("command")
    if known is None:
        raise ValueError(
            f"{path} was not begun by tune or optimize, so the command line does not know its "
            "function. Continue it in Python with BanditLoop.open and the settings with which it "
            "was begun; botorch-bandits show reads it."
        )
    try:
        arguments, folder = tuple(known["arguments"]), known["folder"]
        settings = json.loads(known["settings"])
        if not (
            arguments[0] in ("tune", "optimize")
            and all(type(text) is str for text in (*arguments, folder))
            and type(settings) is dict
        ):
            raise ValueError("it is not a command line of tune or optimize")
    except (IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"the header of {path} does not say how its run was begun ({error!r}). Type the "
            "command with which it was begun, with --journal."
        ) from error
    return Command(arguments, folder, settings)


def known_journal_settings(path: str | Path) -> dict[str, Any]:
    """Return the settings of the run that a journal holds; empty if there is no journal."""
    return dict(read_command(path).settings) if Path(path).exists() else {}


def check_journal_options(options: argparse.Namespace) -> None:
    """Raise if the options of journals contradict each other.

    Raises:
        ValueError: If a journal is to be overwritten.
    """
    if options.journal is not None and options.overwrite and Path(options.journal).exists():
        raise ValueError(
            f"--overwrite does not delete the journal {options.journal}. Move it away, together "
            "with the files whose names begin with its name, or choose another --journal."
        )


def begin_journal(
    path: str | Path, loop: LoopSettings, arguments: Sequence[str], settings: Mapping[str, Any]
) -> None:
    """Begin a journal for a loop unless there is one; the loop then continues from it.

    Args:
        path: The path of the journal.
        loop: The settings of the loop.
        arguments: The arguments of the command line.
        settings: The effective options that determine the run, by name.

    Raises:
        ValueError: If there is a journal of a run with other settings.
    """
    wanted = json.loads(json.dumps(dict(settings)))
    if Path(path).exists():
        refuse_other_settings(
            str(path), read_command(path).settings, wanted, "Choose another --journal."
        )
        return
    command = {
        "arguments": _without_journal(arguments),
        "folder": str(Path.cwd()),
        "settings": json.dumps(wanted),
    }
    try:
        make_folders(Path(path).absolute().parent)
        Journal.create(path, {**header_of(loop), "command": command}).close()
    except OSError as error:
        raise ValueError(f"--journal {path} cannot be begun: {error}") from error


def refuse_other_settings(
    where: str, known: Mapping[str, Any], wanted: Mapping[str, Any], remedy: str
) -> None:
    """Raise if a run was begun with other settings.

    Raises:
        ValueError: If so; the error names the first difference.
    """
    for name in [*wanted, *(name for name in known if name not in wanted)]:
        if wanted.get(name) != known.get(name):
            raise ValueError(
                f"{where} holds a run with {name:.80}={known.get(name)!r:.200}, not "
                f"{wanted.get(name)!r:.200}. "
                f"{remedy}"
            )


def resume(options: argparse.Namespace, run: Callable[[list[str]], int]) -> int:
    """Continue the run whose journal ``options.file`` is.

    Args:
        options: The options of ``add_resume_parser``.
        run: A function that runs a command line.

    Returns:
        The exit code.

    Raises:
        ValueError: If the journal does not say how, its folder is gone, or the user does not trust
            it.
    """
    command, path = read_command(options.file), Path(options.file).resolve()
    if not (options.trust or _is_as_given(command, options)):
        _confirm(command, path)
    arguments = [*command.arguments, "--journal", str(path)]
    for name in ("rounds", "on_error", "stop_after_no_gain", "stop_below"):
        if getattr(options, name) is not None:
            arguments += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    if options.quiet:
        arguments.append("--quiet")
    if not Path(command.folder).is_dir():
        raise ValueError(
            f"{path} was begun in the folder {command.folder}, which does not exist. Go to where "
            "its data and modules are now, and type: botorch-bandits " + " ".join(arguments)
        )
    with contextlib.chdir(command.folder):
        return run(arguments)


def _is_as_given(command: Command, options: argparse.Namespace) -> bool:
    """Return whether the user named the function and the folder, and both match.

    Nothing may then be written outside that folder.
    """
    if options.function is None:
        return False
    wanted = Path("." if options.folder is None else options.folder).resolve()
    known = Path(command.folder)
    is_named = command.arguments[:2] == ("optimize", options.function)
    if not (is_named and known.is_absolute() and known.resolve() == wanted):
        raise ValueError(
            f"{options.file} was begun with {printable(shlex.join(command.arguments[:2]))} in "
            f"{printable(command.folder)}, not with optimize {options.function} in {wanted}. "
            "Nothing was run."
        )
    return not any(_leads_outside(argument) for argument in command.arguments[2:])


def _leads_outside(argument: str) -> bool:
    """Return whether an argument may name a file that is not below the current folder."""
    value = Path(argument.partition("=")[2] or argument)
    return value.is_absolute() or ".." in value.parts or str(value).startswith("~")


def _confirm(command: Command, path: Path) -> None:
    """Show what a journal would run, and ask for permission.

    Raises:
        ValueError: If the user says no, or there is no terminal to ask on.
    """
    shown = (
        f"{path} names the code to run and the files to write:\n"
        f"  in the folder  {printable(command.folder, keep='')}\n"
        f"  the command    botorch-bandits {printable(shlex.join(command.arguments), keep='')}"
    )
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise ValueError(
            f"{shown}\nThere is no terminal to ask on, so nothing was run. If the file is yours, "
            "add --trust, or --function MODULE:FUNCTION and --folder FOLDER as you know them."
        )
    print(shown, file=sys.stderr)
    print("Run it? Only if the file is yours [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ValueError("nothing was run.")


def _without_journal(arguments: Sequence[str]) -> list[str]:
    """Leave out ``--journal`` and its value, and ``--overwrite``."""
    kept, is_value = [], False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        # argparse takes abbreviations
        is_own = len(name) > 3 and any(option.startswith(name) for option in OWN_OPTIONS)
        if not is_value and not is_own:
            kept.append(argument)
        is_value = not is_value and is_own and "--journal".startswith(name) and not equals
    return kept

"""Journals of ``tune`` and ``optimize``, which record the command line that began them.

``resume`` reads it and continues the run with the same options; a journal of another command, or
one begun with other options, is refused.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botorch_bandits.cli.command_line import keep_beginnings
from botorch_bandits.cli.first_page import COMMANDS
from botorch_bandits.cli.pages import add_live_page_argument
from botorch_bandits.journal import Journal
from botorch_bandits.loop.journal import check_content, header_of
from botorch_bandits.loop.settings import LoopSettings

OWN_OPTIONS = ("--journal", "--overwrite")


@dataclass(frozen=True)
class Command:
    """The command that began a journal.

    Attributes:
        arguments: Of the command line, without the journal.
        folder: Where it was given.
        settings: The effective options that determine the run, by name.
    """

    arguments: tuple[str, ...]
    folder: str
    settings: Mapping[str, Any]


def add_journal_argument(parser: argparse.ArgumentParser) -> None:
    """Add what says where queries and outcomes are written down."""
    parser.add_argument(
        "--journal",
        metavar="FILE",
        help="write each query and outcome to this file before going on, and continue from it "
        "(in place of the folder's history.json)",
    )


def add_error_argument(parser: argparse.ArgumentParser, default: str | None = "raise") -> None:
    """Add what is done about evaluations that fail.

    Args:
        parser: Of a command.
        default: Of ``--on-error``; None for a command that continues another one.
    """
    parser.add_argument(
        "--on-error",
        default=default,
        metavar="raise|skip|retry:N",
        help="what is done if the function raises or returns no number: end the run (raise, the "
        "default), record it and go on (skip), or try N more times first (retry:N)",
    )


def add_ending_arguments(parser: argparse.ArgumentParser, default: str | None = "raise") -> None:
    """Add what is done about evaluations that fail, and what else ends a run.

    Args:
        parser: Of a command.
        default: Of ``--on-error``; None for a command that continues another one.
    """
    add_error_argument(parser, default)
    parser.add_argument(
        "--stop-after-no-gain",
        type=int,
        metavar="N",
        help="end the run after N rounds without a better reward; a larger N goes on",
    )
    parser.add_argument(
        "--stop-below",
        type=float,
        metavar="EPS",
        help="end the run once the certificate of the recommended point is at most EPS: no point "
        "is better by more, with probability 1 - delta (--prior, and igp-ucb or gp-ts with both "
        "bounds); a smaller EPS goes on",
    )
    keep_beginnings(parser, "--stop-after-no-gain", "--sto", "--stop", "--stop-")


def add_resume_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command ``resume`` and return its parser; what it starts is left to be set.

    Args:
        commands: What ``argparse`` returned for the commands.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        "resume",
        help=COMMANDS["resume"],
        description="Continue the run of tune or optimize that FILE is the journal of, with the "
        "options with which it was begun.",
    )
    parser.add_argument("file", metavar="FILE", help="a journal that --journal made")
    parser.add_argument("--rounds", type=int, help="rounds in total, if they are to be others")
    add_ending_arguments(parser, default=None)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_live_page_argument(parser)
    return parser


def read_command(path: str | Path) -> Command:
    """Return the command that began a journal.

    Raises:
        FileNotFoundError: If there is no journal.
        ValueError: If the file is none, or was made by a program.
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
    return Command(tuple(known["arguments"]), known["folder"], json.loads(known["settings"]))


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
            f"--overwrite does not delete the journal {options.journal}. Move it away, with the "
            "files whose names begin like its name, or choose another --journal."
        )


def begin_journal(
    path: str | Path, loop: LoopSettings, arguments: Sequence[str], settings: Mapping[str, Any]
) -> None:
    """Begin a journal for a loop unless there is one; the loop then continues from it.

    Args:
        path: Of the journal.
        loop: Settings of the loop.
        arguments: Those of the command line.
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
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Journal.create(path, {**header_of(loop), "command": command}).close()
    except OSError as error:
        raise ValueError(f"--journal {path} cannot be begun: {error}") from error


def refuse_other_settings(
    where: str, known: Mapping[str, Any], wanted: Mapping[str, Any], remedy: str
) -> None:
    """Raise if a run was begun with other settings.

    Raises:
        ValueError: If so; it names the first difference.
    """
    for name in [*wanted, *(name for name in known if name not in wanted)]:
        if wanted.get(name) != known.get(name):
            raise ValueError(
                f"{where} holds a run with {name}={known.get(name)!r}, not {wanted.get(name)!r}. "
                f"{remedy}"
            )


def resume(options: argparse.Namespace, run: Callable[[list[str]], int]) -> int:
    """Continue the run whose journal ``options.file`` is.

    Args:
        options: Those of ``add_resume_parser``.
        run: Runs a command line.

    Returns:
        The exit code.

    Raises:
        ValueError: If the journal does not say how, or its folder is gone.
    """
    command, path = read_command(options.file), Path(options.file).resolve()
    arguments = [*command.arguments, "--journal", str(path)]
    for name in ("rounds", "on_error", "stop_after_no_gain", "stop_below"):
        if getattr(options, name) is not None:
            arguments += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    if options.html is not None:
        arguments += ["--html", str(Path(options.html).resolve())]
    if options.quiet:
        arguments.append("--quiet")
    if not Path(command.folder).is_dir():
        raise ValueError(
            f"{path} was begun in the folder {command.folder}, which is not there. Go to where "
            "its data and modules are now, and type: botorch-bandits " + " ".join(arguments)
        )
    with contextlib.chdir(command.folder):
        return run(arguments)


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

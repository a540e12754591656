"""The first page of ``botorch-bandits --help``: which commands there are.

It is shown without importing what the commands need, which takes seconds.
"""

from __future__ import annotations

import argparse
from typing import Any

from botorch_bandits.version import __version__

COMMANDS = {
    "tune": "tune a classifier on real data",
    "optimize": "maximize a Python function",
    "compare": "compare methods on a tuning problem over several seeds",
    "resume": "continue a run from its journal",
    "show": "show what a journal says",
}
"""What each command does, in the order of the page."""


def build_first_parser(
    kind: type[argparse.ArgumentParser] = argparse.ArgumentParser,
) -> tuple[argparse.ArgumentParser, Any]:
    """Return the parser without its commands, and what ``argparse`` returns to add them.

    Args:
        kind: The class of the parser and of those of the commands.
    """
    parser = kind(
        prog="botorch-bandits",
        description="Gaussian-process bandits: tune a classifier, or optimize any function.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    return parser, parser.add_subparsers(dest="command", required=True, parser_class=kind)


def format_first_page() -> str:
    """Return what ``--help`` prints."""
    parser, commands = build_first_parser()
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text)
    return parser.format_help()

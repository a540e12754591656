"""The page of a run: ``--html`` of ``tune``, ``optimize``, ``resume`` and ``show``.

A running command keeps its own page up to date; ``show`` writes the page of a journal, either once
or repeatedly.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from botorch_bandits.checks import check_positive
from botorch_bandits.watching.live import write_page
from botorch_bandits.watching.page import PageFacts


def check_page_arguments(options: argparse.Namespace) -> None:
    """Raise an error unless the arguments of a page can be combined.

    Args:
        options: The options of ``show``.

    Raises:
        ValueError: If they cannot be combined.
    """
    if options.every is None:
        return
    if options.html is None:
        raise ValueError(f"--every is {options.every:g}, but no page is written. Add --html FILE.")
    check_positive("--every", options.every)


def follow(options: argparse.Namespace, read: Callable[[], PageFacts]) -> None:
    """Write the page of a journal; with ``--every`` until the user interrupts.

    Args:
        options: The options of ``show``.
        read: A function that returns the current content of the journal.
    """
    path = Path(options.html)
    try:
        while options.every is not None:
            write_page(path, dataclasses.replace(read(), refresh=options.every))
            time.sleep(options.every)
    except KeyboardInterrupt:
        pass
    write_page(path, read())
    print(f"\npage: {options.html}")

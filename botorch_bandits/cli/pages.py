"""The page of a run: ``--html`` of ``tune``, ``optimize``, ``resume`` and ``show``.

What runs keeps its own page up to date; ``show`` writes that of a journal, once or again and again.
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
    """Raise unless the arguments of a page go together.

    Args:
        options: Of ``show``.

    Raises:
        ValueError: If they do not.
    """
    if options.every is None:
        return
    if options.html is None:
        raise ValueError(f"--every is {options.every:g}, but no page is written. Add --html FILE.")
    check_positive("--every", options.every)


def follow(options: argparse.Namespace, read: Callable[[], PageFacts]) -> None:
    """Write the page of a journal; with ``--every`` until the user interrupts.

    Args:
        options: Of ``show``.
        read: Returns what the journal says now.
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

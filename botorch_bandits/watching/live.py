"""A page about a loop that is kept up to date while the loop runs.

Writing it takes a small share of the time: each writing is followed by a pause twenty times as
long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from botorch_bandits.acquisition import RandomSearch
from botorch_bandits.checks import check_instance, check_integer, check_positive, check_text
from botorch_bandits.confidence import Guarantee
from botorch_bandits.feedback import Censored
from botorch_bandits.history import Event, Outcome, Query
from botorch_bandits.journal.files import write_whole
from botorch_bandits.loop import BanditLoop
from botorch_bandits.loop.descriptions import settings_in_words
from botorch_bandits.watching.page import PageFacts, render_page

SHARE = 0.05
"""The largest share of the time spent on writing pages."""


class LivePage:
    """Writes a page about a loop, again and again while it runs.

    The page is one HTML file without scripts, and nothing in it is loaded from elsewhere: progress,
    the best so far, maps of the points, queries that are pending, failed or retracted, resets,
    constraints, confidence widths, the guarantee and the settings. Until :meth:`close`, the page
    reloads itself in the browser to follow the run; the file is always replaced as a whole.
    :meth:`update` is meant for ``on_round=`` of :func:`~botorch_bandits.run` and
    :func:`~botorch_bandits.run_async`.

    Args:
        loop: The loop that the page shows.
        path: The path of the page; its folder exists.
        title: The title of the run; the file's name if omitted.
        num_rounds: The planned number of rounds, for the progress bar; the loop's ``horizon`` if
            omitted.
        constraint_names: The names of the constraints.
        every: The least number of seconds between two writings.
        clock: Returns the time in seconds; the loop's clock.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If ``every`` is not positive, or ``num_rounds`` is less than 1.
        OSError: If the page cannot be written.

    Example:
        >>> import tempfile
        >>> from botorch_bandits import Box, run
        >>> path = Path(tempfile.mkdtemp()) / "run.html"
        >>> loop = BanditLoop(Box([[0.0], [1.0]]), None, RandomSearch())
        >>> with LivePage(loop, path, num_rounds=3) as page:
        ...     result = run(loop, lambda x: float(x), 3, progress=False, on_round=page.update)
        >>> "3 of 3" in path.read_text(encoding="utf-8")
        True
    """

    def __init__(
        self,
        loop: BanditLoop,
        path: str | Path,
        title: str | None = None,
        *,
        num_rounds: int | None = None,
        constraint_names: Sequence[str] = (),
        every: float = 2.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """See the class."""
        self.loop = check_instance("loop", loop, BanditLoop, "Pass the BanditLoop that runs.")
        self.path = Path(path)
        self._title = check_text("title", self.path.stem if title is None else title)
        if num_rounds is not None:
            num_rounds = check_integer("num_rounds", num_rounds, minimum=1)
        self._wanted = loop.settings.horizon if num_rounds is None else num_rounds
        self._names = tuple(check_text("a constraint's name", name) for name in constraint_names)
        self._every = check_positive("every", every)
        self._clock = clock
        self._settings = settings_in_words(loop.settings)
        self._due = 0.0  # when the next writing is due, by the monotonic clock
        self._write(goes_on=True)

    def __enter__(self) -> Self:
        """Return the page itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write the page for the last time."""
        self.close()

    def update(self, query: Query | None = None, event: Event | None = None) -> None:
        """Write the page if it is time to.

        Args:
            query: The query; not used, but ``on_round=`` passes it.
            event: The outcome or failure; not used either.
        """
        if time.monotonic() >= self._due:
            self._write(goes_on=True)

    def close(self) -> None:
        """Write the final page, which no longer reloads itself."""
        self._write(goes_on=False)

    def _write(self, goes_on: bool) -> None:
        began = time.monotonic()
        refresh = self._every if goes_on else None
        facts = facts_of(self.loop, self._title, self._clock(), self._settings)
        changed: dict[str, Any] = {"wanted": self._wanted, "constraint_names": self._names}
        write_page(self.path, replace(facts, refresh=refresh, **changed))
        took = time.monotonic() - began
        self._due = began + max(self._every, took / SHARE)


def write_page(path: Path, facts: PageFacts) -> None:
    """Write a page so that a browser sees the old one or the new one, never a part.

    Args:
        path: The path of the page, whose folder must exist.
        facts: The content of the page.

    Raises:
        ValueError: If the folder is missing, or the path is one.
    """
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else "is in a folder that does not exist"
        raise ValueError(f"the page {path} {what}; pass the path of a file in a folder.")
    write_whole(path, render_page(facts).encode("utf-8"))


def facts_of(
    loop: BanditLoop, title: str, now: float, settings: Sequence[Sequence[Any]]
) -> PageFacts:
    """Return what a page says about a loop.

    Args:
        loop: The loop that the page is about.
        title: The title of the run.
        now: The time in seconds, by the loop's clock.
        settings: Names and descriptions of the settings.
    """
    feedback = loop.settings.feedback
    lost: frozenset[int] = frozenset()
    if isinstance(feedback, Censored):
        lost = frozenset(loop.feedback_view().lost)
    return PageFacts(
        history=loop.history,
        title=title,
        now=now,
        settings=settings,
        domain=loop.settings.domain,
        best=_best(loop),
        resets=[(reset.after_round, reset.reason) for reset in loop.resets],
        guarantee=_guarantee(loop),
        multipliers=loop.multipliers,
        given_up=lost,
    )


def _best(loop: BanditLoop) -> tuple[Query, Outcome] | None:
    """Return what is best now; with contexts, in the context of the last query."""
    if not loop.settings.context_dim:
        return loop.best()
    queries = loop.history.queries
    return loop.best(queries[-1].context) if queries and loop.history.num_arrived else None


def _guarantee(loop: BanditLoop) -> Guarantee | str:
    """Return the guarantee, or a text if it cannot be computed: the page is written anyway."""
    if not loop.history.num_arrived and not isinstance(loop.settings.acquisition, RandomSearch):
        return "Nothing is promised before the first outcome."
    try:
        return loop.guarantee()
    except Exception as error:  # an error of a user's model must not end the run
        return f"The guarantee could not be computed: {type(error).__name__}: {error}"

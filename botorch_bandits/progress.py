"""A progress bar, if tqdm is installed. Nothing else in the package prints while it works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(
    total: int, description: str, progress: bool | None = None, num_before: int = 0
) -> Iterator[Callable[..., None]]:
    """Show a bar on standard error, and yield a function that moves it.

    Args:
        total: The number of rounds.
        description: What is being done.
        progress: Whether it is shown; None shows it if tqdm is installed.
        num_before: How many of the rounds were played before.

    Yields:
        A function of the number of rounds that have passed, with values to show by name.

    Raises:
        ImportError: If ``progress`` is True, and tqdm is not installed.
    """
    try:
        from tqdm import tqdm
    except ImportError as error:
        if progress:
            raise ImportError(
                "progress=True needs tqdm: pip install 'botorch_bandits[progress]'."
            ) from error
        progress = False
    if progress is False:
        yield lambda *_, **shown: None
        return
    with tqdm(total=total, initial=num_before, desc=description, dynamic_ncols=True) as bar:

        def advance(num_rounds: int = 1, **shown: Any) -> None:
            bar.set_postfix(shown, refresh=False)
            bar.update(num_rounds)

        yield advance

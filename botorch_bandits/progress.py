"""A progress bar if tqdm is installed, and a plain message if it is not.

Nothing else in the package prints while it works.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

__all__ = ["ProgressBar"]


class ProgressBar:
    """Counts rounds on standard error; does nothing if disabled.

    Args:
        total: The number of rounds.
        description: What is being done.
        enabled: If False, nothing is shown.
        num_before: How many of the rounds were played before.
    """

    def __init__(
        self, total: int, description: str, enabled: bool = True, num_before: int = 0
    ) -> None:
        """See the class."""
        self._bar = None
        if not enabled:
            return
        try:
            from tqdm import tqdm
        except ImportError:
            print(
                f"{description}: {total - num_before} rounds (pip install "
                "'botorch_bandits[progress]' for a progress bar)",
                file=sys.stderr,
            )
            return
        self._bar = tqdm(total=total, initial=num_before, desc=description, dynamic_ncols=True)

    def advance(self, num_rounds: int = 1, **shown: float | str) -> None:
        """Count rounds and show some values.

        Args:
            num_rounds: The number of rounds that have passed.
            shown: Values to show after the bar, by name.
        """
        if self._bar is not None:
            self._bar.set_postfix(shown, refresh=False)
            self._bar.update(num_rounds)

    def show(self, **shown: float | str) -> None:
        """Show some values without counting a round.

        Args:
            shown: Values to show after the bar, by name.
        """
        if self._bar is not None:
            self._bar.set_postfix(shown, refresh=True)

    def __enter__(self) -> Self:
        """Return the bar."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the bar as it stands."""
        if self._bar is not None:
            self._bar.close()

"""Watching a run: a page that follows it, and a copy of its history for Optuna's dashboard.

Both read a loop, and change nothing in it. :mod:`botorch_bandits.plotting` draws figures.
"""

from typing import TYPE_CHECKING

from botorch_bandits.late_imports import import_late

if TYPE_CHECKING:
    from botorch_bandits.watching.live import LivePage
    from botorch_bandits.watching.optuna_study import to_optuna

__all__ = ["LivePage", "to_optuna"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = import_late(__name__, {"LivePage": "live", "to_optuna": "optuna_study"})

"""One run from the command line: progress, files and the table at the end."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from torch import Tensor

from botorch_bandits.checks import check_number
from botorch_bandits.cli.output import OutputFolder
from botorch_bandits.evaluation import run
from botorch_bandits.history import Outcome, Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.version import __version__

BAD_REWARD = 1
"""Exit code of a run whose function returned no usable reward."""

INTERRUPTED = 130
"""Exit code of a run that the user stopped (128 + SIGINT)."""


class BadRewardError(ValueError):
    """The function returned something that is no reward."""


@dataclass
class Session:
    """Everything one run needs.

    Attributes:
        loop: The loop.
        function: The reward, from a ``d``-dimensional point to one number.
        num_rounds: How many rounds the run has, those of an earlier start included.
        output: Where files go.
        decode: Turns a point into named parameters.
        title: What is done, in words.
        settings: What was asked for; kept in ``result.json``.
        reference: A reward to compare with, and what it is.
        progress: Whether to show a progress bar.
    """

    loop: BanditLoop
    function: Callable[..., Any]
    num_rounds: int
    output: OutputFolder
    decode: Callable[[list[float]], Mapping[str, Any]]
    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    reference: tuple[str, float] | None = None
    progress: bool = True

    def execute(self) -> int:
        """Run, print the summary, write the files; returns the exit code."""
        started = time.monotonic()
        previous = signal.signal(signal.SIGTERM, _raise_keyboard_interrupt)
        num_known = self.loop.history.num_queries
        if num_known > 0:
            print(f"continuing {self.output.path} after {num_known} rounds", file=sys.stderr)
        exit_code = 0
        try:
            run(
                self.loop,
                self._evaluate,
                max(self.num_rounds - num_known, 0),
                progress=self.progress,
                on_round=self._after_round,
            )
        except KeyboardInterrupt:
            exit_code = INTERRUPTED
        except BadRewardError as error:
            print(f"error: {error}", file=sys.stderr)
            exit_code = BAD_REWARD
        finally:
            signal.signal(signal.SIGTERM, previous)
            # also when the user's function raises: what was told is kept
            self._finish(time.monotonic() - started, exit_code == INTERRUPTED)
        return exit_code

    def _evaluate(self, x: Tensor) -> float:
        value = self.function(x)
        try:
            return check_number("reward", value)
        except (TypeError, ValueError) as error:
            raise BadRewardError(
                f"the function returned {value!r} at {x.tolist()}: {error} The run can be "
                "continued with the same command."
            ) from error

    def _after_round(self, query: Query, outcome: Outcome) -> None:
        self.output.write_history(self.loop.history)

    def _finish(self, seconds: float, interrupted: bool) -> None:
        history = self.loop.history
        self.output.write_history(history)
        best = self.loop.best()
        guarantee = self.loop.guarantee()
        result: dict[str, Any] = {
            "title": self.title,
            "version": __version__,
            "settings": dict(self.settings),
            "num_rounds": history.num_arrived,
            "interrupted": interrupted,
            "seconds": round(seconds, 3),
            "best_reward": None if best is None else best[1].reward,
            "best_round": None if best is None else best[0].round_number,
            "best_parameters": None if best is None else dict(self.decode(best[0].x.tolist())),
            "reference": None
            if self.reference is None
            else {"name": self.reference[0], "reward": self.reference[1]},
            "guarantee": {
                "holds": guarantee.holds,
                "theorem": guarantee.theorem,
                "gaps": list(guarantee.gaps),
            },
        }
        self.output.write_result(result)
        self.output.write_picture(
            history, self.title, None if self.reference is None else self.reference[1]
        )
        print(self._summary(result, seconds))

    def _summary(self, result: Mapping[str, Any], seconds: float) -> str:
        rows = [("", self.title)]
        wanted = max(self.num_rounds, result["num_rounds"])
        stopped = ", interrupted" if result["interrupted"] else ""
        rows.append(("rounds", f"{result['num_rounds']} of {wanted} in {seconds:.1f} s{stopped}"))
        if result["best_reward"] is not None:
            rows.append(("best reward", f"{result['best_reward']:.6g}"))
            rows.append(("found in round", str(result["best_round"])))
            for name, value in result["best_parameters"].items():
                rows.append((f"  {name}", f"{value:.6g}"))
        if self.reference is not None:
            rows.append((self.reference[0], f"{self.reference[1]:.6g}"))
        rows.append(
            ("guarantee", "yes" if result["guarantee"]["holds"] else "none (see result.json)")
        )
        rows.append(("files", str(self.output.path)))
        size = max(len(name) for name, _ in rows)
        return "\n" + "\n".join(f"{name:<{size}}  {value}".rstrip() for name, value in rows)


def _raise_keyboard_interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt

"""Plays Ax for the league, in an environment that has Ax and need not have anything else.

It reads one JSON message a line and answers each with one: what was asked for, and the processor
time that it took. It is started by :class:`benchmarks.league_methods.AxProcess`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any

METRIC, COST = "value", "cost"


class AxServer:
    """An experiment of Ax that is told the common initial points and then asked."""

    def __init__(self) -> None:
        """Import Ax, which takes its time and says much."""
        os.environ["OMP_NUM_THREADS"] = "1"
        logging.disable(logging.WARNING)
        from ax.api.client import Client
        from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

        self._client_class = Client
        self._choice, self._range = ChoiceParameterConfig, RangeParameterConfig
        self._client: Any = None
        self._trials: dict[int, int] = {}

    def answer(self, message: dict[str, Any]) -> Any:
        """Do what a message asks for.

        Args:
            message: One of ``begin`` (parameters, ``seed``, ``has_budget``), ``attach`` (a point,
                ``outcome``), ``ask`` (the number that the trial gets, ``given`` parameters),
                ``tell`` (such a number, ``outcome``) and ``fail`` (such a number).
        """
        if "begin" in message:
            self._client = self._client_class(random_seed=message["seed"])
            self._client.configure_experiment([self._config(p) for p in message["begin"]])
            limits = [f"{COST} <= 0"] if message["has_budget"] else None
            self._client.configure_optimization(objective=METRIC, outcome_constraints=limits)
        elif "attach" in message:
            trial = self._client.attach_trial(message["attach"])
            self._client.complete_trial(trial, message["outcome"])
        elif "ask" in message:
            given = message["given"] or None
            found = self._client.get_next_trials(max_trials=1, fixed_parameters=given)
            ((self._trials[message["ask"]], parameters),) = found.items()
            return parameters
        elif "fail" in message:
            self._client.mark_trial_failed(self._trials[message["fail"]])
        else:
            self._client.complete_trial(self._trials[message["tell"]], message["outcome"])
        return None

    def _config(self, p: dict[str, Any]) -> Any:
        if p["kind"] == "choice":
            return self._choice(p["name"], list(p["choices"]), "str", is_ordered=False)
        return self._range(
            p["name"],
            (p["low"], p["high"]),
            "int" if p["kind"] == "integer" else "float",
            scaling="log" if p["kind"] == "log" else None,
        )


def main() -> None:
    """Answer until there are no more messages."""
    server = AxServer()
    for line in sys.stdin:
        start = time.process_time()
        answer = server.answer(json.loads(line))
        seconds = time.process_time() - start
        print(json.dumps({"answer": answer, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()

"""How tuning with delays is played, in a box or on some of its points.

In the authors' released code, methods other than their own choose uniformly at random until two
outcomes have arrived. Hyperparameters are learned every ``REFIT_EVERY`` rounds, as in
:mod:`papers.delayed_studies`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.domains import Domain
from botorch_bandits.evaluation import RunResult, run
from botorch_bandits.feedback import Censored, LateOutcomeWarning
from botorch_bandits.history import History
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGP, RefitWarning
from papers.delayed_studies import (
    FEWEST_ROWS,
    NUM_INITIAL,
    REFIT_EVERY,
    Hyperparameters,
    LearnedMethod,
    learn,
    rows_to_learn_from,
    simple_regret_in_time,
)
from papers.trials import ArmsStudy


@dataclass(frozen=True)
class TunedFunction:
    """A reward on points of the unit cube.

    Attributes:
        reward: Maps ``d`` coordinates to the reward.
        best: The value relative to which regret is measured.
        worst: The smallest reward, with which queries count before the first outcome arrives.
    """

    reward: Callable[[Tensor], float]
    best: float
    worst: float


@dataclass(frozen=True, kw_only=True)
class TuningMethod(LearnedMethod):
    """A method that may start uniformly.

    Attributes:
        uniform_until: It chooses uniformly at random until this many outcomes have arrived.
        learns: Whether to learn hyperparameters; otherwise, the player's initial ones are kept.
    """

    uniform_until: int = 0
    learns: bool = True


@dataclass(frozen=True, eq=False)
class TuningPlayer:
    """Plays functions on a domain; each function is made when its trial is first played.

    Trials are seeded only by their number. The model's prior mean is 0 for every method, which is
    the minimum of an accuracy.

    Attributes:
        domain: The unit cube, or points of it.
        make: Maps a trial's number to its function.
        start: The initial hyperparameters, except for the noise, which is the method's.
    """

    domain: Domain
    make: Callable[[int], TunedFunction]
    start: Hyperparameters = field(default_factory=Hyperparameters)
    functions: dict[int, TunedFunction] = field(default_factory=dict, init=False, repr=False)

    def __call__(
        self, study: ArmsStudy, method: TuningMethod, on_round: Callable[[int], None]
    ) -> dict[str, Any]:
        """Play a study; see :class:`~papers.delayed_studies.LearnedPlayer`."""
        regrets, simple = [], []
        num_functions = len(study.values)
        feedback = method.feedback
        max_delay = feedback.max_delay if isinstance(feedback, Censored) else None
        for i, seed in enumerate(study.seeds):
            trial = study.first_trial + i
            if trial not in self.functions:
                self.functions[trial] = self.make(trial)
            tuned = self.functions[trial]
            result = self.play_one(tuned, method, seed, study.num_rounds)
            regrets.append(result.regret)
            worst = tuned.best - tuned.worst
            simple.append(simple_regret_in_time(result, max_delay).clamp_max(worst))
            shown = study.num_rounds * i // num_functions
            for t in range(shown, study.num_rounds * (i + 1) // num_functions):
                on_round(t + 1)
        return {
            "regret": torch.stack(regrets).numpy(),
            "simple_regret": torch.stack(simple).numpy(),
        }

    def play_one(
        self, tuned: TunedFunction, method: TuningMethod, seed: int, num_rounds: int
    ) -> RunResult:
        """Play one function.

        Args:
            tuned: The function.
            method: The method that plays it.
            seed: Seeds initial queries, delays and draws.
            num_rounds: The number of rounds.
        """
        history = History(self.domain.dim)
        start = learned = replace(self.start, noise=float(method.lam))
        while history.num_queries < num_rounds:
            asked = history.num_queries
            if asked % REFIT_EVERY == 0:
                learned = _learn(history, method, start, learned)
            is_uniform = history.num_arrived < method.uniform_until
            loop = BanditLoop(
                self.domain,
                BanditGP.with_kernel(learned.kernel(), noise=learned.noise),
                method.acquisition,
                feedback=method.feedback,
                num_initial=max(NUM_INITIAL, asked + 1 if is_uniform else 0),
                seed=seed,
                clock=lambda: 0.0,
                history=history,
            )
            count = 1 if is_uniform else REFIT_EVERY - asked % REFIT_EVERY
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LateOutcomeWarning)  # the experiments rely on them
                run(
                    loop,
                    tuned.reward,
                    min(count, num_rounds - asked),
                    delays=method.delays,
                    progress=False,
                )
        rewards = torch.tensor([tuned.reward(x) for x in history.inputs()], dtype=torch.float64)
        outcomes = [history.outcome(query.id) for query in history.queries]
        arrivals = [torch.inf if outcome is None else outcome.arrived_round for outcome in outcomes]
        return RunResult(
            history, rewards, rewards, tuned.best, torch.tensor(arrivals, dtype=torch.float64)
        )


def _learn(
    history: History, method: TuningMethod, start: Hyperparameters, last: Hyperparameters
) -> Hyperparameters:
    """Learn hyperparameters; the last ones are kept if that fails, as with identical outcomes."""
    X, Y = rows_to_learn_from(history, method)
    if len(X) < FEWEST_ROWS or not method.learns:
        return last
    with warnings.catch_warnings():
        warnings.simplefilter("error", RefitWarning)
        try:
            return learn(X, Y, start)
        except RefitWarning:
            return last


def remembered(reward: Callable[[tuple[float, ...]], float]) -> Callable[[Tensor], float]:
    """Return a function of a point that evaluates each point once.

    Args:
        reward: Maps coordinates to the reward, always the same for the same coordinates.
    """
    known = lru_cache(maxsize=None)(reward)

    def of_point(x: Tensor) -> float:
        return known(tuple(x.tolist()))

    return of_point

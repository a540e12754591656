"""Loops that are killed, and a script that plays them; see :mod:`benchmarks.faults`.

What the script does next depends on the history alone, and so do its times. A run that is
interrupted and continued must therefore have the same events as one that is not.
"""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any

import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior

from botorch_bandits.acquisition import GPThompsonSampling, GPUpperConfidenceBound
from botorch_bandits.change_points import ChangePointDetector, ChangePointRestart, PowerThreshold
from botorch_bandits.constraints import AdditiveEpochs
from botorch_bandits.domains import Arms, Box
from botorch_bandits.history import History
from botorch_bandits.loop import BanditLoop, Censored, SlidingWindow
from botorch_bandits.models import BanditGP

SETTING_NAMES = (
    "arms, ucb",
    "arms, ts, initial rounds",
    "arms, refits",
    "arms, restarts",
    "arms, constraints",
    "arms, censored",
    "arms, window",
    "box, ucb",
    "box, ts, refits",
    "box, context",
)


@cache
def settings() -> dict[str, dict[str, Any]]:
    """Return settings of loops by name; a function, since kernels take long to build."""
    arms = Arms(torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1))
    box = Box([[0.0], [1.0]])
    model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.05, lengthscale=0.3)
    # without a prior, the likelihood of five rows is nearly flat and a fit amplifies last bits
    prior = LogNormalPrior(math.log(0.3), 0.3)
    learned = BanditGP.with_kernel(
        ScaleKernel(RBFKernel(lengthscale_prior=prior)), noise=0.05, lengthscale=0.3, refit_every=5
    )
    ucb = GPUpperConfidenceBound.with_options(width=2.0)
    ts = GPThompsonSampling.with_options(rkhs_bound=2.0, noise_bound=0.05, any_lambda=True)
    detector = ChangePointDetector(
        MaternKernel(nu=2.5),
        lengthscale=0.3,
        ridge=0.5,
        threshold=PowerThreshold(scale=0.3, exponent=-0.5),
    )
    return {
        "arms, ucb": {"domain": arms, "model": model, "acquisition": ucb},
        "arms, ts, initial rounds": {
            "domain": arms,
            "model": model,
            "acquisition": ts,
            "num_initial": 4,
        },
        "arms, refits": {"domain": arms, "model": learned, "acquisition": ucb},
        "arms, restarts": {
            "domain": arms,
            "model": model,
            "acquisition": ucb,
            "restart": ChangePointRestart(detector=detector),
        },
        "arms, constraints": {
            "domain": arms,
            "model": model,
            "acquisition": ucb,
            "constraints": AdditiveEpochs(num_constraints=2, epoch_length=4),
        },
        "arms, censored": {
            "domain": arms,
            "model": model,
            "acquisition": ucb,
            "feedback": Censored(minimum=-3.0, max_delay=40.0, unit="seconds"),
        },
        "arms, window": {
            "domain": arms,
            "model": model,
            "acquisition": ucb,
            "forgetting": SlidingWindow(6),
        },
        "box, ucb": {"domain": box, "model": model, "acquisition": ucb},
        "box, ts, refits": {"domain": box, "model": learned, "acquisition": ts},
        "box, context": {"domain": box, "model": model, "acquisition": ucb, "context_dim": 1},
    }


def build(name: str, **options: Any) -> BanditLoop:
    """Return a loop by the name of its settings; ``storage=`` makes it durable."""
    return BanditLoop(**settings()[name], seed=5, **options)


def num_steps(history: History) -> int:
    """Return how many steps of the script there were."""
    attached = sum(query.origin == "attached" for query in history.queries)
    return history.num_queries + len(history.events) - attached


def step(loop: BanditLoop) -> None:
    """Do what the script does next: ask, tell, fail or attach; nothing depends on the past."""
    history = loop.history
    number = num_steps(history)
    chance, now = random.Random(number), 7.0 * number
    context = [math.sin(number)] if loop.settings.context_dim else None
    waiting = [query.id for query in history.pending()]
    lot = chance.random()
    if lot < 0.05:
        x = loop.settings.domain.sample(1, torch.Generator().manual_seed(number))[0]
        loop.attach(x, reward(x, history.num_queries), constraints(loop, x), context, at=now)
    elif not waiting or (lot < 0.5 and len(waiting) < 4):
        loop.ask(context, at=now)
    elif lot < 0.6:
        loop.fail(chance.choice(waiting), reason=f"at step {number}", at=now)
    else:
        query = history.query(chance.choice(waiting))
        loop.tell(query.id, reward(query.x, query.id), constraints(loop, query.x), at=now)


def reward(x: torch.Tensor, query_id: int) -> float:
    """Return a reward that tells points apart; the function changes once.

    It has noise, because the likelihood of exact repeats has no maximum, and every fit of them
    depends on rounding.
    """
    value = math.sin(9.0 * float(x[0])) - 0.5 * float(x[0])
    return (value if query_id < 15 else -value) + 0.05 * math.sin(7919.0 * query_id)


def constraints(loop: BanditLoop, x: torch.Tensor) -> list[float] | None:
    """Return constraint values, if the loop has constraints."""
    if loop.settings.constraints is None:
        return None
    return [float(x[0]) - 0.4, 0.1 - float(x[0])]


def play(loop: BanditLoop, total: int) -> None:
    """Go on until there were so many steps."""
    while num_steps(loop.history) < total:
        step(loop)


def derived(loop: BanditLoop) -> Any:
    """Return what a user can see beside the history."""
    best = loop.best([0.5] * loop.settings.context_dim if loop.settings.context_dim else None)
    seen: list[Any] = [loop.resets, loop.multipliers, None if best is None else best[1]]
    if isinstance(loop.settings.feedback, Censored):
        seen.append(loop.feedback_view())
    if loop.settings.constraints is not None:
        seen.append(loop.ledger().to_records())
    return seen

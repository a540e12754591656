"""Benchmarks of lists of priors: a round of 36 of them against a round of one, and against a fit.

Both begin with the same outcomes, all of different arms: how many they are decides the cost.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch

from benchmarks.arms import DELTA, NOISE, arms_problem
from benchmarks.measure import Measurement, Scale
from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    FittedSingleTaskGP,
    GPUpperConfidenceBound,
)
from botorch_bandits.acquisition import CandidatesUpperConfidenceBound, player_of
from botorch_bandits.core.rows import Rows
from botorch_bandits.models import candidate_grid
from botorch_bandits.problems import ArmsProblem

LENGTHSCALES, RATIOS, SCALES = (0.05, 0.1, 0.2, 0.4), (0.001, 0.01, 0.1), (0.1, 1.0, 10.0)


def priors_on_arms(scale: Scale) -> list[Measurement]:
    """1000 arms, 200 observations: 36 priors (12 factors) against one, and against one fit."""
    num_rows, num_arms = scale.of(200, 20), scale.of(1000, 100)
    problem = arms_problem(num_arms, scale.seed)
    stream = torch.Generator().manual_seed(scale.seed)
    played = torch.randperm(num_arms, generator=stream)[:num_rows].tolist()
    noise = torch.randn(num_rows, dtype=torch.float64, generator=stream) * NOISE**0.5
    outcomes = (problem.values[played] + noise).tolist()
    recipe = BanditGP.with_candidates(candidate_grid(LENGTHSCALES, RATIOS, SCALES))
    (single,) = candidate_grid([0.2], [NOISE])
    rounds = scale.of(20, 5)
    settings: tuple[tuple[Any, Any], ...] = (
        (single, GPUpperConfidenceBound.with_options(delta=DELTA)),
        (recipe, CandidatesUpperConfidenceBound.with_options(delta=DELTA)),
    )
    spans: tuple[list[float], list[float]] = ([], [])
    for _ in range(scale.repeats):
        for (model, acquisition), span in zip(settings, spans, strict=True):
            loop = BanditLoop(Arms(problem.choices), model, acquisition, seed=scale.seed)
            for arm, outcome in zip(played, outcomes, strict=True):
                loop.attach(problem.choices[arm], outcome)
            span.append(_seconds_a_round(loop, problem, rounds))
    alone, ours = (median(span) for span in spans)
    # the loop is that of the list; what its engine counted against a dense model
    X, Y = loop.history.arrived()
    player = player_of(recipe, settings[1][1], Arms(problem.choices), scale.seed)
    assert player is not None
    index = Arms(problem.choices).index_of(X)
    player.condition(Rows(index, Y, torch.ones(len(Y), dtype=torch.float64)))
    exact = recipe(X, Y).evidence.log_evidence_against
    difference = float((player.evidence.log_evidence_against - exact).abs().max())
    start = time.process_time()
    for _ in range(3):
        FittedSingleTaskGP([[0.0, 0.0], [1.0, 1.0]])(X, Y)
    fit = (time.process_time() - start) / 3
    told: dict[str, Any] = {"difference": difference, "tolerance": 1e-8, "our_seconds": ours}
    name = f"candidates-1k: {recipe.num_candidates} priors, {num_arms} arms, {num_rows} rows"
    return [
        Measurement(
            name=f"{name}, against one prior",
            ratio=alone / ours,
            ordinary_seconds=alone,
            unit="round",
            at_least=0.167,  # a sixth
            aim=0.333,
            note="difference of the log evidence from that of a dense model",
            **told,
        ),
        Measurement(
            name=f"{name}, against one fit",
            ratio=fit / ours,
            ordinary_seconds=fit,
            unit="round",
            at_least=1.0,
            aim=5.0,
            note="a refit by marginal likelihood, without the choice",
            **told,
        ),
    ]


def _seconds_a_round(loop: BanditLoop, problem: ArmsProblem, rounds: int) -> float:
    """Ask and tell, behind a first round that takes in what was attached."""
    for t in range(rounds + 1):
        if t == 1:
            start = time.process_time()
        query = loop.ask()
        loop.tell(query.id, float(problem.evaluate_true(query.x.unsqueeze(0))))
    return (time.process_time() - start) / rounds
